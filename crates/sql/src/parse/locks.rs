//! Locking clauses in words that sqlparser knows.
//!
//! | written | becomes |
//! |---|---|
//! | `FOR NO KEY UPDATE` | `FOR UPDATE OF "no key"` |
//! | `FOR KEY SHARE` | `FOR SHARE OF "key"` |
//! | `FOR UPDATE OF a, b` | `FOR UPDATE OF ""."a"."b"` |
//! | `FOR UPDATE LIMIT 1` | `LIMIT 1 FOR UPDATE` |
//!
//! So the name behind OF, if there is one, begins with the word that goes before UPDATE or SHARE;
//! [`asked`] takes it apart again.

use super::Source;
use super::utility::is_word;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{self, LockClause, LockType, ObjectNamePart};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use firn_base::{Error, Result, SqlState};
use firn_exec::locking::Wait;
use firn_txn::RowLock;
use std::borrow::Cow;

const NO_KEY: &str = "no key";
const KEY: &str = "key";

/// A locking clause.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How rows are to be locked.
    pub lock: RowLock,
    /// Of which items of FROM; of all if none are named.
    pub of: Vec<String>,
    /// What to do if they cannot be.
    pub wait: Wait,
}

/// What a clause asks for, which has been through [`plain`].
pub fn asked(clause: &LockClause) -> Asked {
    let mut names = clause.of.iter().flat_map(|name| &name.0).filter_map(ObjectNamePart::as_ident);
    let lock = match (clause.lock_type, names.next().map(|ident| ident.value.as_str())) {
        (LockType::Update, Some(NO_KEY)) => RowLock::NoKeyUpdate,
        (LockType::Update, _) => RowLock::Update,
        (LockType::Share, Some(KEY)) => RowLock::KeyShare,
        (LockType::Share, _) => RowLock::Share,
    };
    let wait = match clause.nonblock {
        None => Wait::Block,
        Some(ast::NonBlock::SkipLocked) => Wait::Skip,
        Some(ast::NonBlock::Nowait) => Wait::Fail,
    };
    Asked { lock, of: names.map(fold).collect(), wait }
}

/// The tokens of a statement with its locking clauses as sqlparser reads them.
pub(super) fn plain<'t>(
    source: &Source<'_>,
    tokens: &'t [TokenWithSpan],
) -> Result<Cow<'t, [TokenWithSpan]>> {
    if !(0..tokens.len()).any(|at| head(&tokens[at..]).is_some()) {
        return Ok(Cow::Borrowed(tokens));
    }
    let mut plain = Vec::with_capacity(tokens.len() + 4);
    let mut at = 0;
    while at < tokens.len() {
        if head(&tokens[at..]).is_none() {
            plain.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut clauses = Vec::new();
        while let Some((words, ty, before)) = head(&tokens[at..]) {
            at += words;
            let begin = &tokens[at - words];
            clauses.push(begin.clone());
            clauses.push(TokenWithSpan { token: Token::make_keyword(ty), ..tokens[at - 1].clone() });
            at = targets(source, tokens, at, before, &mut clauses)?;
            let follows =
                |nth: usize, word| tokens.get(at + nth).is_some_and(|next| is_word(&next.token, word));
            let policy = match () {
                () if follows(0, "nowait") => 1,
                () if follows(0, "skip") && follows(1, "locked") => 2,
                () => 0,
            };
            clauses.extend_from_slice(&tokens[at..at + policy]);
            at += policy;
        }
        let limit = limit_length(&tokens[at..]);
        plain.extend_from_slice(&tokens[at..at + limit]);
        at += limit;
        plain.append(&mut clauses);
    }
    Ok(Cow::Owned(plain))
}

/// The first words of a locking clause, if one begins here: how many there are, the last of them, and what
/// stands before that.
fn head(tokens: &[TokenWithSpan]) -> Option<(usize, &'static str, &'static str)> {
    let begins = |words: &[&str]| {
        words
            .iter()
            .enumerate()
            .all(|(at, word)| tokens.get(at).is_some_and(|token| is_word(&token.token, word)))
    };
    if !begins(&["for"]) {
        return None;
    }
    let heads: [(&[&str], &str, &str); 4] = [
        (&["for", "update"], "UPDATE", ""),
        (&["for", "no", "key", "update"], "UPDATE", NO_KEY),
        (&["for", "share"], "SHARE", ""),
        (&["for", "key", "share"], "SHARE", KEY),
    ];
    heads.into_iter().find(|(words, ..)| begins(words)).map(|(words, ty, before)| (words.len(), ty, before))
}

/// Adds `OF before.a.b` for the names that are listed from `at` on; where they end.
fn targets(
    source: &Source<'_>,
    tokens: &[TokenWithSpan],
    mut at: usize,
    before: &str,
    clauses: &mut Vec<TokenWithSpan>,
) -> Result<usize> {
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let listed = token(at).is_some_and(|token| is_word(token, "of"));
    if !listed && before.is_empty() {
        return Ok(at);
    }
    let mut add = |token, at: usize| {
        let span = tokens[at.min(tokens.len() - 1)].span;
        clauses.push(TokenWithSpan { token, span });
    };
    add(Token::make_keyword("OF"), at);
    add(Token::make_word(before, Some('"')), at);
    if !listed {
        return Ok(at);
    }
    loop {
        at += 1;
        let Some(Token::Word(name)) = token(at) else {
            return Err(tokens
                .get(at)
                .map_or_else(|| source.unexpected_end(), |token| source.unexpected(token)));
        };
        add(Token::Period, at);
        add(Token::Word(Word { keyword: Keyword::NoKeyword, ..name.clone() }), at);
        at += 1;
        match token(at) {
            Some(Token::Comma) => {}
            Some(Token::Period) => {
                let message = "a locking clause must specify unqualified relation names";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
            _ => return Ok(at),
        }
    }
}

/// How many tokens LIMIT, OFFSET and FETCH take that stand at the beginning.
fn limit_length(tokens: &[TokenWithSpan]) -> usize {
    let is_one_of = |token: &Token, words: &[&str]| words.iter().any(|word| is_word(token, word));
    if !tokens.first().is_some_and(|token| is_one_of(&token.token, &["limit", "offset", "fetch"])) {
        return 0;
    }
    let mut depth = 0;
    let ends = |token: &TokenWithSpan| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return true,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
            && is_one_of(&token.token, &["for", "union", "intersect", "except", "on", "returning", "with"])
    };
    tokens.iter().position(ends).unwrap_or(tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Statement;

    fn clauses(text: &str) -> (String, Vec<(RowLock, Vec<String>, Wait)>) {
        let parsed = crate::parse::parse_one(text).unwrap().unwrap();
        let Statement::Query(mut query) = parsed.into_inner().statement else { panic!("{text} is no query") };
        let clauses = query.locks.iter().map(asked).map(|asked| (asked.lock, asked.of, asked.wait)).collect();
        query.locks.clear();
        (query.to_string(), clauses)
    }

    #[test]
    fn clauses_are_read_wherever_postgresql_allows_them() {
        let all = |lock, wait| vec![(lock, Vec::new(), wait)];
        for (text, expected) in [
            ("FOR UPDATE", all(RowLock::Update, Wait::Block)),
            ("FOR NO KEY UPDATE NOWAIT", all(RowLock::NoKeyUpdate, Wait::Fail)),
            ("for share skip locked", all(RowLock::Share, Wait::Skip)),
            ("FOR KEY SHARE", all(RowLock::KeyShare, Wait::Block)),
            (
                "FOR UPDATE OF t, \"Two\" FOR KEY SHARE OF U SKIP LOCKED",
                vec![
                    (RowLock::Update, vec!["t".to_owned(), "Two".to_owned()], Wait::Block),
                    (RowLock::KeyShare, vec!["u".to_owned()], Wait::Skip),
                ],
            ),
        ] {
            for (query, written) in [
                ("SELECT a FROM t", format!("SELECT a FROM t {text}")),
                ("SELECT a FROM t LIMIT 1", format!("SELECT a FROM t LIMIT 1 {text}")),
                ("SELECT a FROM t LIMIT (1)", format!("SELECT a FROM t {text} LIMIT (1)")),
                ("SELECT a FROM t LIMIT 1 OFFSET 2", format!("SELECT a FROM t {text} LIMIT 1 OFFSET 2")),
            ] {
                assert_eq!(clauses(&written), (query.to_owned(), expected.clone()), "{written}");
            }
        }
    }

    #[test]
    fn a_statement_keeps_its_text() {
        for end in ["FOR UPDATE LIMIT 10", "FOR UPDATE OF t, u", "FOR KEY SHARE", "FOR SHARE OF t NOWAIT"] {
            let text = format!("SELECT a FROM t {end}");
            let parsed = crate::parse::parse(&format!("SELECT 1; {text} ; SELECT 2")).unwrap();
            assert_eq!(parsed[1].text, text);
            let parsed = crate::parse::parse_one(&format!("PREPARE p AS {text}")).unwrap().unwrap();
            let Statement::Prepare { statement, .. } = parsed.into_inner().statement else {
                panic!("it is PREPARE")
            };
            assert_eq!(statement.text, text);
        }
        for wrong in
            ["FOR UPDATE OF", "FOR UPDATE OF 1", "FOR UPDATE SKIP", "FOR KEY UPDATE", "FOR UPDATE OF a.b"]
        {
            let error = crate::parse::parse_one(&format!("SELECT a FROM t {wrong}")).unwrap_err();
            assert_eq!(error.state(), SqlState::SYNTAX_ERROR, "{wrong}");
        }
    }
}
