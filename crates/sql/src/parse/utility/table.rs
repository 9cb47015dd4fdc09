//! CREATE TABLE and ALTER TABLE: what sqlparser does not know of them.

use super::{Words, is_word};
use crate::parse::{Source, new_parser, parse_tree};
use crate::statement::*;
use datafusion::sql::sqlparser::ast::Statement as Tree;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use firn_base::{Error, Result, SqlState};

/// What PostgreSQL's columns know and ours do without.
const COLUMN_PARAMETERS: [&str; 2] = ["n_distinct", "n_distinct_inherited"];

impl Words<'_> {
    pub(super) fn create_table(&mut self, tokens: &[TokenWithSpan]) -> Result<Statement> {
        // WITH [NO] DATA is not sqlparser's.
        let ends_with = |words: &[&str]| {
            tokens.len() > words.len()
                && words
                    .iter()
                    .zip(&tokens[tokens.len() - words.len()..])
                    .all(|(word, token)| is_word(&token.token, word))
        };
        let (tokens, with_data) = if ends_with(&["with", "no", "data"]) {
            (&tokens[..tokens.len() - 3], false)
        } else if ends_with(&["with", "data"]) {
            (&tokens[..tokens.len() - 2], true)
        } else {
            (tokens, true)
        };
        let (parameters, tokens) = self.without_parameters(tokens)?;
        let tokens = &tokens[..];
        let mut words = Words { source: self.source, parser: new_parser(tokens), tokens };
        words.skip(2);
        let if_not_exists = words.if_not_exists();
        let name = words.name()?;
        let names_only = words.parser.peek_token_ref().token == Token::LParen
            && matches!(words.parser.peek_nth_token_ref(2).token, Token::Comma | Token::RParen)
            && matches!(words.parser.peek_nth_token_ref(1).token, Token::Word(_));
        let (_, after_name) = tokens.split_at(tokens.len() - words.rest().len());
        let list = match closing(after_name) {
            Some(end) => {
                let elements = without_deferral_of_checks(&after_name[1..end])?;
                let elements = in_order_of_identity(self.source, &elements)?;
                let elements = with_brackets_of_arrays(&elements);
                [&after_name[..1], &elements, &after_name[end..]].concat()
            }
            None => after_name.to_vec(),
        };
        let (likes, without_likes) = words.likes(&list)?;
        let columns = match names_only {
            true => words.column_list()?.unwrap_or_default(),
            false => Vec::new(),
        };
        if words.word("as") {
            let query = words.query()?;
            let create = Ddl::CreateTableAs { name, if_not_exists, columns, query, parameters, with_data };
            return words.ddl(create);
        }
        let before = &tokens[..tokens.len() - after_name.len()];
        match parse_tree(self.source, &[before, &without_likes].concat())? {
            Tree::CreateTable(tree) if tree.like.is_some() => Err(self.source.unexpected(&after_name[0])),
            Tree::CreateTable(tree) => match tree.query {
                Some(query) => self.ddl_of_tree(Ddl::CreateTableAs {
                    name,
                    if_not_exists,
                    columns: tree.columns.iter().map(|column| fold(&column.name)).collect(),
                    query,
                    parameters,
                    with_data,
                }),
                None => self.ddl_of_tree(Ddl::CreateTable(Box::new(CreateTable { tree, likes, parameters }))),
            },
            _ => self.unexpected(),
        }
    }

    /// Takes WITH (…) out of CREATE TABLE, of whose parameters sqlparser does not know all spellings.
    fn without_parameters(&self, tokens: &[TokenWithSpan]) -> Result<(Vec<Parameter>, Vec<TokenWithSpan>)> {
        let mut depth = 0;
        for (at, token) in tokens.iter().enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                // What follows is the query's.
                _ if depth == 0 && is_word(&token.token, "as") => break,
                _ if depth == 0 && is_word(&token.token, "with") => {
                    let Some(end) = closing(&tokens[at + 1..]) else { continue };
                    let list = &tokens[at + 1..=at + 1 + end];
                    let mut words = Words { source: self.source, parser: new_parser(list), tokens: list };
                    let parameters = words.parenthesized(Words::parameter)?;
                    return Ok((parameters, [&tokens[..at], &tokens[at + 2 + end..]].concat()));
                }
                _ => {}
            }
        }
        Ok((Vec::new(), tokens.to_vec()))
    }

    /// `name [= value]`, where the value may be a word, a number, or a string.
    pub(super) fn parameter(&mut self) -> Result<Parameter> {
        let name = self.parameter_name()?;
        if !self.symbol(&Token::Eq) {
            return Ok(Parameter { name, value: None });
        }
        let value = match self.parser.peek_token().token {
            Token::Word(word) => {
                self.parser.next_token();
                word.value
            }
            Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => self.string()?,
            Token::Number(digits, _) => {
                self.parser.next_token();
                digits
            }
            Token::Minus => match self.parser.peek_nth_token_ref(1).token.clone() {
                Token::Number(digits, _) => {
                    self.skip(2);
                    format!("-{digits}")
                }
                _ => return self.unexpected(),
            },
            _ => self.integer()?.to_string(),
        };
        Ok(Parameter { name, value: Some(value) })
    }

    /// A name, perhaps of one of PostgreSQL's `toast.` parameters.
    pub(super) fn parameter_name(&mut self) -> Result<String> {
        let mut name = self.identifier()?;
        while self.symbol(&Token::Period) {
            name = format!("{name}.{}", self.identifier()?);
        }
        Ok(name)
    }

    /// What tells PostgreSQL how to sample, store or sort, if it comes next.
    pub(super) fn without_effect(&mut self) -> Result<Option<Concerned>> {
        if self.words(&["cluster", "on"]) {
            return self.identifier().map(|index| Some(Concerned::Index(index)));
        }
        if self.words(&["set", "without", "cluster"]) || self.words(&["set", "without", "oids"]) {
            return Ok(Some(Concerned::Table));
        }
        let named = if is_word(&self.parser.peek_nth_token_ref(1).token, "column") { 2 } else { 1 };
        let is = |words: &Self, at, word| is_word(&words.parser.peek_nth_token_ref(at).token, word);
        let is_list = self.parser.peek_nth_token_ref(named + 2).token == Token::LParen;
        let is_known =
            ["statistics", "storage", "compression"].into_iter().any(|word| is(self, named + 2, word));
        let (sets, resets) = (is(self, named + 1, "set"), is(self, named + 1, "reset"));
        if !is(self, 0, "alter") || !(sets && (is_known || is_list) || resets && is_list) {
            return Ok(None);
        }
        self.skip(named);
        let column = self.identifier()?;
        self.skip(1);
        if is_list {
            let names = match resets {
                true => self.parenthesized(Words::parameter_name)?,
                false => self.parenthesized(|words| Ok(words.parameter()?.name))?,
            };
            if let Some(name) = names.iter().find(|name| !COLUMN_PARAMETERS.contains(&name.as_str())) {
                let message = format!("unrecognized parameter \"{name}\"");
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        } else if self.word("statistics") {
            self.integer()?;
        } else {
            self.skip(1);
            self.identifier()?;
        }
        Ok(Some(Concerned::Column(column)))
    }

    /// `ALTER [COLUMN] name ADD GENERATED {ALWAYS | BY DEFAULT} AS IDENTITY [(…)]`, if it comes next.
    pub(super) fn add_identity(&mut self) -> Result<Option<TableOperation>> {
        let is = |words: &Self, at, word| is_word(&words.parser.peek_nth_token_ref(at).token, word);
        // A column may be called column.
        let named = if is(self, 1, "column") && !is(self, 2, "add") { 2 } else { 1 };
        if !is(self, 0, "alter") || !is(self, named + 1, "add") || !is(self, named + 2, "generated") {
            return Ok(None);
        }
        self.skip(named);
        let column = self.identifier()?;
        self.skip(2);
        let always = self.word("always");
        if !always && !self.words(&["by", "default"]) {
            return self.unexpected();
        }
        self.expect("as")?;
        self.expect("identity")?;
        let mut options = SequenceOptions::default();
        if self.symbol(&Token::LParen) {
            while !self.symbol(&Token::RParen) {
                if self.words(&["sequence", "name"]) {
                    options.name = Some(self.name()?);
                } else {
                    self.sequence_option(&mut options)?;
                }
            }
        }
        Ok(Some(TableOperation::AddIdentity { column, always, options: Box::new(options) }))
    }

    /// Takes the LIKEs out of the list of columns with which `tokens` begin, and what is left.
    fn likes(&self, tokens: &[TokenWithSpan]) -> Result<(Vec<Like>, Vec<TokenWithSpan>)> {
        let Some(end) = closing(tokens) else { return Ok((Vec::new(), tokens.to_vec())) };
        let list = &tokens[1..end];
        let mut likes = Vec::new();
        let mut columns = 0;
        let mut left: Vec<TokenWithSpan> = Vec::new();
        for element in split_at_commas(list) {
            let begins = |word| element.first().is_some_and(|token| is_word(&token.token, word));
            if begins("like") {
                likes.push(self.like(&element[1..], columns)?);
                continue;
            }
            let constraint = ["constraint", "primary", "unique", "check", "foreign", "exclude"];
            columns += usize::from(!constraint.into_iter().any(begins));
            if let Some(comma) = list.iter().find(|token| token.token == Token::Comma)
                && !left.is_empty()
            {
                left.push(comma.clone());
            }
            left.extend_from_slice(element);
        }
        if likes.is_empty() {
            return Ok((likes, tokens.to_vec()));
        }
        Ok((likes, [&tokens[..1], &left, &tokens[end..]].concat()))
    }

    /// `name [INCLUDING part | EXCLUDING part]…`
    fn like(&self, tokens: &[TokenWithSpan], position: usize) -> Result<Like> {
        let mut words = Words { source: self.source, parser: new_parser(tokens), tokens };
        let mut like = Like { name: words.name()?, position, including: LikeParts::default() };
        while !words.at_end() {
            let including = words.word("including");
            if !including {
                words.expect("excluding")?;
            }
            let parts = &mut like.including;
            let all = words.word("all");
            for (word, part) in [
                ("defaults", &mut parts.defaults),
                ("constraints", &mut parts.constraints),
                ("identity", &mut parts.identity),
                ("indexes", &mut parts.indexes),
            ] {
                if all || words.word(word) {
                    *part = including;
                }
            }
            // There is nothing of these to copy.
            for word in ["comments", "compression", "generated", "statistics", "storage"] {
                words.word(word);
            }
        }
        Ok(like)
    }
}

/// Refuses to have anything but keys deferred, as PostgreSQL does; sqlparser knows the words only after keys, so
/// those that say of a CHECK what holds of it anyway are left out. The tokens are elements of CREATE TABLE or
/// actions of ALTER TABLE.
pub(super) fn without_deferral_of_checks(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut superfluous = Vec::new();
    let mut begin = 0;
    for element in split_at_commas(tokens) {
        let at_element = begin;
        begin += element.len() + 1;
        let is = |at: usize, word: &str| element.get(at).is_some_and(|token| is_word(&token.token, word));
        let first = usize::from(is(0, "add"));
        let of_table = is(first, "constraint") || is(first, "check");
        let mut depth = 0;
        let mut never = false;
        // Whether the words may stand here, and whether they would belong to a CHECK.
        let (mut after_key, mut after_check) = (is(0, "alter"), false);
        for (at, token) in element.iter().enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth > 0 {
                continue;
            }
            if ["primary", "unique", "references", "foreign"].into_iter().any(|word| is(at, word)) {
                (after_key, after_check) = (true, false);
            } else if is(at, "check") {
                (after_key, after_check) = (false, true);
            } else if (is(at, "null") || is(at, "default")) && (at == 0 || !is(at - 1, "set")) {
                (after_key, after_check) = (false, false);
            }
            let negated = at > 0 && is(at - 1, "not");
            let clause = match (is(at, "deferrable"), is(at, "initially")) {
                _ if after_key => continue,
                (true, _) if negated => "NOT DEFERRABLE",
                (true, _) => "DEFERRABLE",
                (_, true) if is(at + 1, "deferred") => "INITIALLY DEFERRED",
                (_, true) => "INITIALLY IMMEDIATE",
                _ => continue,
            };
            if of_table && after_check && matches!(clause, "NOT DEFERRABLE" | "INITIALLY IMMEDIATE") {
                never |= negated;
                let first = if negated { at - 1 } else { at };
                superfluous.extend([at_element + first, at_element + first + 1]);
                continue;
            }
            if of_table && after_check && never {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
                ));
            }
            return Err(match of_table && after_check {
                true => Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "CHECK constraints cannot be marked DEFERRABLE",
                ),
                false => Error::new(SqlState::SYNTAX_ERROR, format!("misplaced {clause} clause")),
            });
        }
    }
    let kept = tokens.iter().enumerate().filter(|(at, _)| !superfluous.contains(at));
    Ok(kept.map(|(_, token)| token.clone()).collect())
}

/// Writes `integer ARRAY` as `integer[]`, of which sqlparser knows that it is a type. The tokens are elements of CREATE TABLE.
fn with_brackets_of_arrays(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut written = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        let is_behind_type = at > 0 && matches!(tokens[at - 1].token, Token::Word(_) | Token::RParen);
        let next = tokens.get(at + 1).map(|next| &next.token);
        let is_value = matches!(next, Some(Token::LBracket | Token::LParen));
        if is_behind_type && !is_value && is_word(&token.token, "array") {
            let brackets = [Token::LBracket, Token::RBracket];
            written.extend(brackets.map(|bracket| TokenWithSpan { token: bracket, span: token.span }));
        } else {
            written.push(token.clone());
        }
    }
    written
}

/// Puts the options of identity columns into the one order in which sqlparser reads them. The tokens are elements of
/// CREATE TABLE or actions of ALTER TABLE.
pub(super) fn in_order_of_identity(
    source: &Source<'_>,
    tokens: &[TokenWithSpan],
) -> Result<Vec<TokenWithSpan>> {
    const ORDER: [&str; 7] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle", "sequence"];
    let mut ordered = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let Some(at) = rest.iter().position(|token| is_word(&token.token, "identity")) {
        let (before, after) = rest.split_at(at + 1);
        ordered.extend_from_slice(before);
        rest = after;
        let is_identity = at > 0 && is_word(&before[at - 1].token, "as");
        let Some(end) = closing(after).filter(|_| is_identity) else { continue };
        let inside = &after[1..end];
        let mut words = Words { source, parser: new_parser(inside), tokens: inside };
        let mut options = Vec::new();
        while !words.at_end() {
            let begin = inside.len() - words.rest().len();
            let no = usize::from(words.peek_is("no"));
            let place = ORDER
                .iter()
                .position(|word| inside.get(begin + no).is_some_and(|token| is_word(&token.token, word)));
            let Some(place) = place else { return words.unexpected() };
            if words.words(&["sequence", "name"]) {
                words.name()?;
            } else {
                words.sequence_option(&mut SequenceOptions::default())?;
            }
            options.push((place, &inside[begin..inside.len() - words.rest().len()]));
        }
        options.sort_by_key(|(place, _)| *place);
        if options.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
        }
        ordered.push(after[0].clone());
        options.into_iter().for_each(|(_, tokens)| ordered.extend_from_slice(tokens));
        ordered.push(after[end].clone());
        rest = &after[end + 1..];
    }
    ordered.extend_from_slice(rest);
    Ok(ordered)
}

/// Where the parenthesis closes with which the tokens begin.
fn closing(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(at),
            Token::RParen => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The elements of a list between commas that stand outside parentheses.
fn split_at_commas(tokens: &[TokenWithSpan]) -> Vec<&[TokenWithSpan]> {
    let mut depth = 0i32;
    tokens
        .split(|token| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth == 0 && token.token == Token::Comma
        })
        .collect()
}
