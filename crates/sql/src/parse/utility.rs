//! The statements around queries: transaction control, settings, cursors, COPY, sequences, and the
//! forms of CREATE, ALTER and DROP that sqlparser does not know or knows only in part.
//!
//! The first words decide. What is PostgreSQL's but not (yet) ours is 0A000 here, so that nothing
//! later meets it.

mod control;
mod rows;
mod table;

use super::{INNER_LIMIT, Source, depth, exceeded, new_parser, parse_tokens, parse_tree};
use crate::data_type::{parameter_type, sql_type};
use crate::statement::*;
use datafusion::sql::sqlparser::ast::{self, Statement as Tree};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use firn_base::{Error, ParameterType, Result, SqlType};

/// PostgreSQL's modes of LOCK TABLE: each with what it comes to where readers are in nobody's way.
const TABLE_LOCKS: [(&[&str], TableLock); 8] = [
    (&["access", "share"], TableLock::Reading),
    (&["row", "share"], TableLock::LockingRows),
    (&["row", "exclusive"], TableLock::Writing),
    (&["share", "update", "exclusive"], TableLock::Maintaining),
    (&["share", "row", "exclusive"], TableLock::WritingAlone),
    (&["share"], TableLock::Sharing),
    (&["exclusive"], TableLock::Alone),
    (&["access", "exclusive"], TableLock::Alone),
];

/// What the tokens of one statement ask for.
pub(super) fn statement(source: &Source<'_>, tokens: &[TokenWithSpan]) -> Result<Statement> {
    let mut words = Words { source, parser: new_parser(tokens), tokens };
    let first = match &tokens[0].token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        Token::LParen => String::from("select"),
        _ => return Err(source.unexpected(&tokens[0])),
    };
    match first.as_str() {
        "select" | "values" | "with" | "table" | "insert" | "update" | "delete" => words.tree(),
        "create" => words.create(),
        "alter" => words.alter(),
        "drop" => words.drop(),
        "explain" => words.explain(),
        "prepare" => words.prepare(),
        "execute" => words.execute(),
        "deallocate" => words.deallocate(),
        "declare" => words.declare(),
        "fetch" | "move" => words.fetch(),
        "close" => words.close(),
        "discard" => words.discard(),
        "copy" => words.copy(),
        "set" => words.set(),
        "show" => words.show(),
        "reset" => words.reset(),
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release" => {
            words.transaction()
        }
        "truncate" => words.truncate(),
        "comment" => words.comment(),
        "lock" => words.lock(),
        "checkpoint" => {
            words.skip(1);
            words.done(Statement::Checkpoint)
        }
        "vacuum" => words.housekeeping("VACUUM"),
        "analyze" | "analyse" => words.housekeeping("ANALYZE"),
        "cluster" => words.housekeeping("CLUSTER"),
        "reindex" => words.housekeeping("REINDEX"),
        "grant" | "revoke" | "reassign" => Err(unsupported(&first, ROLES)),
        "listen" | "notify" | "unlisten" => {
            Err(unsupported(&first, "Poll a table instead; notifications come with a later release."))
        }
        "call" | "do" => Err(unsupported(&first, "Procedures come with a later release.")),
        "merge" => {
            Err(unsupported(&first, "INSERT … ON CONFLICT DO UPDATE does most of what MERGE is used for."))
        }
        "import" | "load" | "refresh" | "security" => Err(unsupported(&first, "See docs/dialect.md.")),
        _ => Err(source.unexpected(&tokens[0])),
    }
}

const ROLES: &str = "Roles and privileges come with a later release; every user may do everything.";

fn unsupported(what: &str, hint: &str) -> Error {
    Error::unsupported(what.to_uppercase()).with_hint(hint)
}

/// The words of one statement, read from left to right.
struct Words<'s> {
    source: &'s Source<'s>,
    parser: Parser<'static>,
    tokens: &'s [TokenWithSpan],
}

impl Words<'_> {
    // Reading.

    fn check<T>(&self, result: std::result::Result<T, ParserError>) -> Result<T> {
        result.map_err(|error| self.source.error(error, &self.parser))
    }

    /// How many tokens have been read. The parser holds no whitespace, so its place is ours.
    fn rest(&mut self) -> &[TokenWithSpan] {
        let mut read = 0;
        while self.parser.peek_token_ref().token != Token::EOF {
            self.parser.next_token();
            read += 1;
        }
        for _ in 0..read {
            self.parser.prev_token();
        }
        &self.tokens[self.tokens.len() - read..]
    }

    fn peek_is(&self, word: &str) -> bool {
        is_word(&self.parser.peek_token_ref().token, word)
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.peek_is(word);
        if found {
            self.parser.next_token();
        }
        found
    }

    /// All of the words or none.
    fn words(&mut self, words: &[&str]) -> bool {
        let found =
            (0..words.len()).all(|nth| is_word(&self.parser.peek_nth_token_ref(nth).token, words[nth]));
        if found {
            self.skip(words.len());
        }
        found
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.parser.next_token();
        }
    }

    fn unexpected<T>(&self) -> Result<T> {
        Err(self.source.unexpected(&self.parser.peek_token()))
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { self.unexpected() }
    }

    fn symbol(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    fn expect_symbol(&mut self, token: &Token) -> Result<()> {
        if self.symbol(token) { Ok(()) } else { self.unexpected() }
    }

    fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    fn done(&self, statement: Statement) -> Result<Statement> {
        self.source.expect_end(&self.parser)?;
        Ok(statement)
    }

    fn ddl(&self, ddl: Ddl) -> Result<Statement> {
        self.done(Statement::Ddl(Box::new(ddl)))
    }

    fn identifier(&mut self) -> Result<String> {
        match &self.parser.peek_token_ref().token {
            Token::Word(_) => {
                let ident = self.parser.parse_identifier();
                Ok(fold(&self.check(ident)?))
            }
            _ => self.unexpected(),
        }
    }

    fn name(&mut self) -> Result<QualifiedName> {
        match &self.parser.peek_token_ref().token {
            Token::Word(_) => {
                let name = self.parser.parse_object_name(false);
                qualified_name(&self.check(name)?)
            }
            _ => self.unexpected(),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.symbol(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn parenthesized<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect_symbol(&Token::LParen)?;
        let items = self.list(item)?;
        self.expect_symbol(&Token::RParen)?;
        Ok(items)
    }

    fn column_list(&mut self) -> Result<Option<Vec<String>>> {
        match self.parser.peek_token_ref().token {
            Token::LParen => self.parenthesized(Self::identifier).map(Some),
            _ => Ok(None),
        }
    }

    fn string(&mut self) -> Result<String> {
        match self.parser.peek_token().token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
                self.parser.next_token();
                Ok(text)
            }
            _ => self.unexpected(),
        }
    }

    fn integer(&mut self) -> Result<i64> {
        let negative = self.symbol(&Token::Minus);
        if !negative {
            self.symbol(&Token::Plus);
        }
        let Token::Number(digits, _) = self.parser.peek_token().token else { return self.unexpected() };
        let sign = if negative { "-" } else { "" };
        match format!("{sign}{digits}").parse() {
            Ok(number) => {
                self.parser.next_token();
                Ok(number)
            }
            Err(_) => self.unexpected(),
        }
    }

    /// The statement that the rest of the tokens make.
    fn inner(&mut self) -> Result<Parsed> {
        let source = self.source;
        let rest = self.rest();
        if rest.is_empty() {
            return Err(source.unexpected_end());
        }
        let inner = source.inner.get() + 1;
        if inner > INNER_LIMIT {
            return Err(exceeded());
        }
        source.inner.set(inner);
        let parsed = depth::of_tokens(rest).and_then(|depth| parse_tokens(source, rest, depth));
        source.inner.set(inner - 1);
        parsed
    }

    fn if_exists(&mut self) -> bool {
        self.words(&["if", "exists"])
    }

    fn if_not_exists(&mut self) -> bool {
        self.words(&["if", "not", "exists"])
    }

    fn behavior(&mut self) -> Behavior {
        if self.word("cascade") {
            Behavior::Cascade
        } else {
            self.word("restrict");
            Behavior::Restrict
        }
    }

    // Queries.

    fn query(&mut self) -> Result<Box<ast::Query>> {
        let query = self.parser.parse_query();
        self.check(query)
    }

    // CREATE, ALTER, DROP.

    fn create(&mut self) -> Result<Statement> {
        self.skip(1);
        let or_replace = self.words(&["or", "replace"]);
        if self.word("temp") || self.word("temporary") || self.words(&["local", "temp"]) {
            return Err(unsupported(
                "create temporary",
                "Make an ordinary table and drop it when the session ends.",
            ));
        }
        let unlogged = self.word("unlogged");
        if self.peek_is("table") {
            let statement = match unlogged {
                // Every table is logged; UNLOGGED only asks to be faster than that.
                true => [&self.tokens[..1], &self.tokens[2..]].concat(),
                false => self.tokens.to_vec(),
            };
            return self.create_table(&statement);
        }
        if self.word("view") || self.words(&["recursive", "view"]) {
            return self.create_view(or_replace);
        }
        if self.peek_is("unique") || self.peek_is("index") {
            return match parse_tree(self.source, self.tokens)? {
                Tree::CreateIndex(index) => self.ddl_of_tree(Ddl::CreateIndex(Box::new(index))),
                _ => self.unexpected(),
            };
        }
        if self.word("sequence") {
            let if_not_exists = self.if_not_exists();
            let name = self.name()?;
            let options = self.sequence_options()?;
            return self.ddl(Ddl::CreateSequence { name, if_not_exists, options });
        }
        if self.word("schema") {
            let if_not_exists = self.if_not_exists();
            let name = match self.peek_is("authorization") {
                true => None,
                false => Some(self.identifier()?),
            };
            let owner = match self.word("authorization") {
                true => Some(self.identifier()?),
                false => None,
            };
            return match name.or(owner) {
                Some(name) => self.ddl(Ddl::CreateSchema { name, if_not_exists }),
                None => self.unexpected(),
            };
        }
        for (word, hint) in [
            ("role", ROLES),
            ("user", ROLES),
            ("group", ROLES),
            ("policy", ROLES),
            ("database", "One directory holds one database; open another directory instead."),
            ("materialized", "Use CREATE TABLE AS, or a view."),
            ("function", "Functions and procedures come with a later release."),
            ("procedure", "Functions and procedures come with a later release."),
            ("trigger", "Triggers come with a later release."),
            ("extension", "FirnDB has no extensions."),
            ("type", "See docs/dialect.md for the types that FirnDB has."),
            ("domain", "Use a CHECK constraint on the column."),
            ("rule", "Use a view."),
            ("aggregate", "See docs/dialect.md."),
            ("operator", "See docs/dialect.md."),
            ("cast", "See docs/dialect.md."),
            ("collation", "Strings compare by their bytes (collation C)."),
            ("foreign", "COPY loads files."),
            ("server", "COPY loads files."),
            ("publication", "Replication comes with a later release."),
            ("subscription", "Replication comes with a later release."),
            ("tablespace", "One directory holds one database."),
            ("statistics", "FirnDB needs no statistics objects."),
            ("event", "Triggers come with a later release."),
            ("language", "Functions and procedures come with a later release."),
            ("text", "See docs/dialect.md."),
            ("access", "See docs/dialect.md."),
            ("transform", "See docs/dialect.md."),
            ("conversion", "See docs/dialect.md."),
        ] {
            if self.peek_is(word) {
                return Err(unsupported(&format!("create {word}"), hint));
            }
        }
        self.unexpected()
    }

    fn ddl_of_tree(&self, ddl: Ddl) -> Result<Statement> {
        Ok(Statement::Ddl(Box::new(ddl)))
    }

    fn create_view(&mut self, or_replace: bool) -> Result<Statement> {
        let name = self.name()?;
        let columns = self.column_list()?.unwrap_or_default();
        if self.peek_is("with") {
            return Err(unsupported("view options", "Leave WITH (…) out."));
        }
        self.expect("as")?;
        let query = self.query()?;
        if self.peek_is("with") {
            return Err(unsupported("with check option", "Views of FirnDB are for reading."));
        }
        self.ddl(Ddl::CreateView { name, or_replace, columns, query })
    }

    fn sequence_options(&mut self) -> Result<SequenceOptions> {
        let mut options = SequenceOptions::default();
        while !self.at_end() {
            self.sequence_option(&mut options)?;
        }
        Ok(options)
    }

    fn sequence_option(&mut self, options: &mut SequenceOptions) -> Result<()> {
        if self.word("as") {
            options.ty = Some(self.data_type()?);
        } else if self.word("increment") {
            self.word("by");
            options.increment = Some(self.integer()?);
        } else if self.words(&["no", "minvalue"]) {
            options.minimum = Some(None);
        } else if self.words(&["no", "maxvalue"]) {
            options.maximum = Some(None);
        } else if self.words(&["no", "cycle"]) {
            options.cycle = Some(false);
        } else if self.word("minvalue") {
            options.minimum = Some(Some(self.integer()?));
        } else if self.word("maxvalue") {
            options.maximum = Some(Some(self.integer()?));
        } else if self.word("start") {
            self.word("with");
            options.start = Some(self.integer()?);
        } else if self.word("restart") {
            let with = self.word("with");
            let number =
                matches!(self.parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus);
            options.restart = Some(if with || number { Some(self.integer()?) } else { None });
        } else if self.word("cache") {
            // Numbers are handed out from memory anyway.
            self.integer()?;
        } else if self.word("cycle") {
            options.cycle = Some(true);
        } else if self.words(&["owned", "by"]) {
            options.owner = Some(self.owner()?);
        } else {
            return self.unexpected();
        }
        Ok(())
    }

    fn owner(&mut self) -> Result<Option<(QualifiedName, String)>> {
        if self.word("none") {
            return Ok(None);
        }
        let mut parts = vec![self.identifier()?];
        while self.symbol(&Token::Period) {
            parts.push(self.identifier()?);
        }
        let column = parts.pop().expect("there is at least one part");
        match (parts.pop(), parts.pop()) {
            (Some(name), schema) => Ok(Some((QualifiedName { schema, name }, column))),
            (None, _) => Err(Error::new(firn_base::SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")),
        }
    }

    fn data_type(&mut self) -> Result<SqlType> {
        let data_type = self.parser.parse_data_type();
        sql_type(&self.check(data_type)?)
    }

    fn parameter_type(&mut self) -> Result<ParameterType> {
        let data_type = self.parser.parse_data_type();
        parameter_type(&self.check(data_type)?)
    }

    fn alter(&mut self) -> Result<Statement> {
        self.skip(1);
        let kind = if self.word("table") {
            ObjectKind::Table
        } else if self.word("view") {
            ObjectKind::View
        } else if self.word("index") {
            ObjectKind::Index
        } else if self.word("sequence") {
            ObjectKind::Sequence
        } else if self.word("schema") {
            ObjectKind::Schema
        } else {
            for (word, hint) in [
                ("role", ROLES),
                ("user", ROLES),
                ("group", ROLES),
                ("default", ROLES),
                ("policy", ROLES),
                ("database", "Give settings to the server or set them in the session."),
                ("system", "Give settings to the server or set them in the session."),
                ("function", "Functions and procedures come with a later release."),
                ("type", "See docs/dialect.md for the types that FirnDB has."),
                ("domain", "See docs/dialect.md for the types that FirnDB has."),
                ("extension", "FirnDB has no extensions."),
                ("materialized", "Use CREATE TABLE AS, or a view."),
            ] {
                if self.peek_is(word) {
                    return Err(unsupported(&format!("alter {word}"), hint));
                }
            }
            return self.unexpected();
        };
        let if_exists = self.if_exists();
        self.word("only");
        let name = match kind {
            ObjectKind::Schema => QualifiedName { schema: None, name: self.identifier()? },
            _ => self.name()?,
        };
        self.symbol(&Token::Mul);
        if self.words(&["rename", "to"]) {
            let to = self.identifier()?;
            return self.ddl(Ddl::Rename { kind, if_exists, name, to });
        }
        if kind != ObjectKind::Schema && self.words(&["set", "schema"]) {
            let schema = self.identifier()?;
            return self.ddl(Ddl::SetSchema { kind, if_exists, name, schema });
        }
        if self.words(&["owner", "to"]) {
            self.identifier()?;
            return self.ddl(Ddl::Owner { kind, if_exists, name });
        }
        match kind {
            ObjectKind::Sequence => {
                let options = self.sequence_options()?;
                self.ddl(Ddl::AlterSequence { name, if_exists, options })
            }
            ObjectKind::Table => {
                let tokens = table::without_deferral_of_checks(self.rest())?;
                let tokens = table::in_order_of_identity(self.source, &tokens)?;
                let mut words = Words { source: self.source, parser: new_parser(&tokens), tokens: &tokens };
                let operations = words.list(|words| {
                    if words.parser.peek_nth_token_ref(1).token == Token::LParen {
                        if words.word("set") {
                            return words.parenthesized(Words::parameter).map(TableOperation::Set);
                        }
                        if words.word("reset") {
                            return words.parenthesized(Words::parameter_name).map(TableOperation::Reset);
                        }
                    }
                    if words.words(&["alter", "constraint"]) {
                        let name = words.identifier()?;
                        let characteristics = words.parser.parse_constraint_characteristics();
                        let characteristics = words.check(characteristics)?;
                        return Ok(TableOperation::AlterConstraint { name, characteristics });
                    }
                    if let Some(operation) = words.add_identity()? {
                        return Ok(operation);
                    }
                    if let Some(concerned) = words.without_effect()? {
                        return Ok(TableOperation::WithoutEffect(concerned));
                    }
                    let operation = words.parser.parse_alter_table_operation();
                    words.check(operation).map(|operation| TableOperation::Tree(Box::new(operation)))
                })?;
                words.ddl(Ddl::AlterTable { name, if_exists, operations })
            }
            ObjectKind::Index
                if ["set", "reset", "attach", "alter", "no", "depends"]
                    .iter()
                    .any(|word| self.peek_is(word)) =>
            {
                let hint = match self.rest().iter().any(|token| is_word(&token.token, "values")) {
                    true => {
                        "An index keeps values or not from its beginning: make another with CREATE INDEX … WITH (values = off), \
                         or without, and drop this one."
                    }
                    false => {
                        "RENAME TO, SET SCHEMA and OWNER TO are known. Storage parameters of PostgreSQL's indexes have no \
                         effect here."
                    }
                };
                Err(unsupported("this form of alter index", hint))
            }
            _ => self.unexpected(),
        }
    }

    fn drop(&mut self) -> Result<Statement> {
        self.skip(1);
        let kind = if self.word("table") {
            ObjectKind::Table
        } else if self.word("view") {
            ObjectKind::View
        } else if self.word("index") {
            self.word("concurrently");
            ObjectKind::Index
        } else if self.word("sequence") {
            ObjectKind::Sequence
        } else if self.word("schema") {
            ObjectKind::Schema
        } else {
            for word in [
                "role",
                "user",
                "group",
                "database",
                "function",
                "procedure",
                "trigger",
                "extension",
                "type",
                "domain",
                "materialized",
                "policy",
                "rule",
                "owned",
                "aggregate",
                "operator",
            ] {
                if self.peek_is(word) {
                    return Err(unsupported(&format!("drop {word}"), "See docs/dialect.md."));
                }
            }
            return self.unexpected();
        };
        let if_exists = self.if_exists();
        let names = match kind {
            ObjectKind::Schema => {
                self.list(|words| Ok(QualifiedName { schema: None, name: words.identifier()? }))?
            }
            _ => self.list(Self::name)?,
        };
        let behavior = self.behavior();
        self.ddl(Ddl::Drop { kind, if_exists, names, behavior })
    }

    fn truncate(&mut self) -> Result<Statement> {
        self.skip(1);
        self.word("table");
        let names = self.list(|words| {
            words.word("only");
            let name = words.name();
            words.symbol(&Token::Mul);
            name
        })?;
        let restart_identity = self.words(&["restart", "identity"]);
        if !restart_identity {
            self.words(&["continue", "identity"]);
        }
        let behavior = self.behavior();
        self.ddl(Ddl::Truncate { names, restart_identity, behavior })
    }

    fn comment(&mut self) -> Result<Statement> {
        self.skip(1);
        self.expect("on")?;
        let commented = match () {
            () if self.word("column") => {
                let mut parts = self.parts()?;
                match parts.pop() {
                    Some(column) if !parts.is_empty() => Commented::Column(self.of_parts(parts)?, column),
                    _ => return self.unexpected(),
                }
            }
            () if self.word("constraint") => {
                let constraint = self.identifier()?;
                self.expect("on")?;
                if self.peek_is("domain") {
                    return Err(unsupported("domain", "See docs/dialect.md for the types that FirnDB has."));
                }
                let parts = self.parts()?;
                Commented::Constraint(self.of_parts(parts)?, constraint)
            }
            () if self.word("database") => {
                self.identifier()?;
                Commented::Database
            }
            () => {
                let kind = match () {
                    () if self.word("table") => ObjectKind::Table,
                    () if self.word("view") => ObjectKind::View,
                    () if self.word("index") => ObjectKind::Index,
                    () if self.word("sequence") => ObjectKind::Sequence,
                    () if self.word("schema") => ObjectKind::Schema,
                    () => {
                        return Err(Error::unsupported("COMMENT ON this kind of object").with_hint(
                            "Tables, columns, constraints, views, indexes, sequences, schemas and the database take comments.",
                        ));
                    }
                };
                let parts = self.parts()?;
                Commented::Object(kind, self.of_parts(parts)?)
            }
        };
        self.expect("is")?;
        if !self.word("null") {
            self.string()?;
        }
        self.ddl(Ddl::Comment(commented))
    }

    /// Names with dots between.
    fn parts(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.identifier()?];
        while self.symbol(&Token::Period) {
            parts.push(self.identifier()?);
        }
        Ok(parts)
    }

    /// The name of an object from its parts; those before its schema are passed over.
    fn of_parts(&self, mut parts: Vec<String>) -> Result<QualifiedName> {
        match (parts.pop(), parts.pop()) {
            (Some(name), schema) => Ok(QualifiedName { schema, name }),
            (None, _) => self.unexpected(),
        }
    }

    // Sessions.

    fn explain(&mut self) -> Result<Statement> {
        self.skip(1);
        let mut analyze = false;
        if self.parser.peek_token_ref().token == Token::LParen
            && !matches!(&self.parser.peek_nth_token_ref(1).token, Token::LParen)
            && !["select", "with", "values"]
                .iter()
                .any(|word| is_word(&self.parser.peek_nth_token_ref(1).token, word))
        {
            self.skip(1);
            // Only ANALYZE changes what is done; the others shape an output that is ours anyway.
            self.list(|words| {
                let name = words.identifier()?;
                let off = words.word("off") || words.word("false") || words.word("0");
                if !off && !matches!(words.parser.peek_token_ref().token, Token::Comma | Token::RParen) {
                    words.skip(1);
                }
                match name.as_str() {
                    "analyze" | "analyse" => analyze = !off,
                    "verbose" | "costs" | "settings" | "generic_plan" | "buffers" | "wal" | "timing"
                    | "summary" | "format" | "serialize" | "memory" => {}
                    _ => {
                        return Err(Error::new(
                            firn_base::SqlState::SYNTAX_ERROR,
                            format!("unrecognized EXPLAIN option \"{name}\""),
                        ));
                    }
                }
                Ok(())
            })?;
            self.expect_symbol(&Token::RParen)?;
        } else {
            analyze = self.word("analyze") || self.word("analyse");
            self.word("verbose");
        }
        let statement = self.inner()?;
        match statement.statement {
            Statement::Query(_)
            | Statement::Change(_)
            | Statement::Execute { .. }
            | Statement::Declare { .. } => {}
            Statement::Ddl(ref ddl) if matches!(**ddl, Ddl::CreateTableAs { .. }) => {}
            _ => return Err(self.source.unexpected(&self.rest()[0].clone())),
        }
        Ok(Statement::Explain { analyze, statement: Box::new(statement) })
    }

    fn prepare(&mut self) -> Result<Statement> {
        self.skip(1);
        if self.peek_is("transaction") {
            return Err(unsupported("prepare transaction", "Two-phase commit is not planned."));
        }
        let name = self.identifier()?;
        let mut types = Vec::new();
        if self.symbol(&Token::LParen) {
            types = self.list(Self::parameter_type)?;
            self.expect_symbol(&Token::RParen)?;
        }
        self.expect("as")?;
        let statement = self.inner()?;
        if !matches!(statement.statement, Statement::Query(_) | Statement::Change(_)) {
            return Err(self.source.unexpected(&self.rest()[0].clone()));
        }
        Ok(Statement::Prepare { name, types, statement: Box::new(statement) })
    }

    fn execute(&mut self) -> Result<Statement> {
        self.skip(1);
        let name = self.identifier()?;
        let mut arguments = Vec::new();
        if self.symbol(&Token::LParen) && !self.symbol(&Token::RParen) {
            arguments = self.list(|words| {
                let expression = words.parser.parse_expr();
                words.check(expression)
            })?;
            self.expect_symbol(&Token::RParen)?;
        }
        self.done(Statement::Execute { name, arguments })
    }

    fn deallocate(&mut self) -> Result<Statement> {
        self.skip(1);
        self.word("prepare");
        let name = match self.word("all") {
            true => None,
            false => Some(self.identifier()?),
        };
        self.done(Statement::Deallocate(name))
    }

    fn declare(&mut self) -> Result<Statement> {
        self.skip(1);
        let name = self.identifier()?;
        let mut scroll = false;
        while !self.word("cursor") {
            if self.words(&["no", "scroll"]) || self.word("insensitive") || self.word("asensitive") {
                continue;
            } else if self.word("scroll") {
                scroll = true;
            } else if self.word("binary") {
                return Err(unsupported("declare binary", "Ask for binary results in the protocol."));
            } else {
                return self.unexpected();
            }
        }
        if scroll {
            return Err(unsupported("a scrollable cursor", "Cursors of FirnDB only move forward."));
        }
        let hold = self.words(&["with", "hold"]);
        if !hold {
            self.words(&["without", "hold"]);
        }
        self.expect("for")?;
        let query = self.inner()?;
        if !matches!(query.statement, Statement::Query(_)) {
            return Err(self.source.unexpected(&self.rest()[0].clone()));
        }
        Ok(Statement::Declare { name, hold, query: Box::new(query) })
    }

    fn fetch(&mut self) -> Result<Statement> {
        let discard = self.peek_is("move");
        self.skip(1);
        let forward = self.word("forward");
        let count = if self.word("all") {
            None
        } else if !forward && self.word("next") {
            Some(1)
        } else if matches!(self.parser.peek_token_ref().token, Token::Number(..)) {
            Some(self.integer()?.unsigned_abs())
        } else if ["backward", "prior", "first", "last", "absolute", "relative"]
            .iter()
            .any(|word| self.peek_is(word))
            || self.parser.peek_token_ref().token == Token::Minus
        {
            return Err(Error::new(
                firn_base::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
            )
            .with_hint("Cursors of FirnDB only move forward."));
        } else {
            Some(1)
        };
        let _ = self.word("from") || self.word("in");
        let cursor = self.identifier()?;
        self.done(Statement::Fetch { cursor, count, discard })
    }

    fn close(&mut self) -> Result<Statement> {
        self.skip(1);
        let name = match self.word("all") {
            true => None,
            false => Some(self.identifier()?),
        };
        self.done(Statement::CloseCursor(name))
    }

    fn discard(&mut self) -> Result<Statement> {
        self.skip(1);
        let all = self.word("all");
        if !all && !["plans", "sequences", "temp", "temporary"].iter().any(|word| self.word(word)) {
            return self.unexpected();
        }
        self.done(Statement::Discard(all))
    }

    fn lock(&mut self) -> Result<Statement> {
        self.skip(1);
        self.word("table");
        let names = self.list(|words| {
            words.word("only");
            words.name()
        })?;
        let mut mode = TableLock::Alone;
        if self.word("in") {
            let known = TABLE_LOCKS.iter().find(|(words, _)| self.words(words));
            let Some((_, known)) = known else { return self.unexpected() };
            mode = *known;
            if !self.word("mode") {
                return self.unexpected();
            }
        }
        let nowait = self.word("nowait");
        self.done(Statement::Lock { tables: names, mode, nowait })
    }

    fn housekeeping(&mut self, tag: &'static str) -> Result<Statement> {
        self.skip(1);
        if self.symbol(&Token::LParen) {
            while !self.symbol(&Token::RParen) {
                if self.at_end() {
                    return self.unexpected();
                }
                self.skip(1);
            }
        }
        for word in
            ["full", "freeze", "verbose", "analyze", "analyse", "table", "index", "schema", "database"]
        {
            self.word(word);
        }
        let name = match self.at_end() {
            true => None,
            false => Some(self.name()?),
        };
        // Columns, further tables, USING of CLUSTER: all of it asks for nothing that we would do.
        while !self.at_end() {
            self.skip(1);
        }
        self.done(Statement::Housekeeping(tag, name))
    }

    // COPY.

    fn copy(&mut self) -> Result<Statement> {
        self.skip(1);
        let old_binary = self.word("binary");
        let (subject, from) = if self.symbol(&Token::LParen) {
            let query = self.query()?;
            self.expect_symbol(&Token::RParen)?;
            self.expect("to")?;
            (CopySubject::Query(query), false)
        } else {
            let name = self.name()?;
            let columns = self.column_list()?;
            if self.word("from") {
                (CopySubject::Into(name, columns), true)
            } else {
                self.expect("to")?;
                (CopySubject::Table(name, columns), false)
            }
        };
        let endpoint = if self.word("program") {
            return Err(unsupported("copy program", "Pipe through the client: COPY … FROM STDIN."));
        } else if self.word(if from { "stdin" } else { "stdout" }) {
            CopyEndpoint::Client
        } else {
            CopyEndpoint::File(self.string()?)
        };
        let mut options = Vec::new();
        if old_binary {
            options.push(("format".into(), CopyOption::Text("binary".into())));
        }
        self.word("with");
        if self.symbol(&Token::LParen) {
            options.extend(self.list(Self::copy_option)?);
            self.expect_symbol(&Token::RParen)?;
        } else {
            self.old_copy_options(&mut options)?;
        }
        let filter = match from && self.word("where") {
            true => {
                let expression = self.parser.parse_expr();
                Some(self.check(expression)?)
            }
            false => None,
        };
        self.done(Statement::Copy(Box::new(Copy { subject, endpoint, options, filter })))
    }

    fn copy_option(&mut self) -> Result<(String, CopyOption)> {
        let name = self.identifier()?;
        if name == "rejects_table" {
            return Ok((name, CopyOption::Name(self.name()?)));
        }
        let value = match self.parser.peek_token().token {
            Token::Comma | Token::RParen => CopyOption::Text("true".to_owned()),
            Token::Mul => {
                self.skip(1);
                CopyOption::All
            }
            Token::LParen => CopyOption::Columns(self.column_list()?.unwrap_or_default()),
            Token::Number(number, _) => {
                self.skip(1);
                CopyOption::Text(number)
            }
            Token::Word(word) if word.quote_style.is_none() => {
                self.skip(1);
                CopyOption::Text(word.value.to_lowercase())
            }
            _ => CopyOption::Text(self.string()?),
        };
        Ok((name, value))
    }

    /// The options as they were written before PostgreSQL 9: `DELIMITER ',' CSV HEADER`.
    fn old_copy_options(&mut self, options: &mut Vec<(String, CopyOption)>) -> Result<()> {
        loop {
            let text = |text: &str| CopyOption::Text(text.to_owned());
            if self.word("csv") {
                options.push(("format".into(), text("csv")));
            } else if self.word("binary") {
                options.push(("format".into(), text("binary")));
            } else if self.word("header") {
                options.push(("header".into(), text("true")));
            } else if self.word("freeze") {
                options.push(("freeze".into(), text("true")));
            } else if self.words(&["force", "quote"]) {
                let columns = match self.symbol(&Token::Mul) {
                    true => CopyOption::All,
                    false => CopyOption::Columns(self.list(Self::identifier)?),
                };
                options.push(("force_quote".into(), columns));
            } else if self.words(&["force", "not", "null"]) {
                options.push(("force_not_null".into(), CopyOption::Columns(self.list(Self::identifier)?)));
            } else if self.words(&["force", "null"]) {
                options.push(("force_null".into(), CopyOption::Columns(self.list(Self::identifier)?)));
            } else if let Some(name) = ["delimiter", "delimiters", "null", "quote", "escape", "encoding"]
                .iter()
                .find(|word| self.peek_is(word))
            {
                self.skip(1);
                self.word("as");
                let name = if *name == "delimiters" { "delimiter" } else { name };
                options.push((name.to_owned(), CopyOption::Text(self.string()?)));
            } else {
                return Ok(());
            }
        }
    }
}

pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}
