//! FROM: relations, functions, sub-queries, files, and joins.

use super::Parser;
use crate::keyword::Keyword;
use crate::span::error_at;
use crate::token::TokenKind;
use crate::tree::{
    Alias, ColumnDefinition, FromItem, Join, JoinConstraint, JoinKind, Name, ObjectName, Query, QueryBody,
    Relation, Sample, Table, TableFunction, TableFunctionItem, TableKind, XmlColumn, XmlTable,
};
use firn_base::{Result, SqlState};

/// What a parenthesis in FROM holds.
enum Inside {
    Query(Box<Query>),
    /// At least one join.
    Joins(FromItem),
}

impl Parser<'_> {
    /// `FROM item, …` or `USING item, …` or nothing.
    pub(super) fn optional_from(&mut self, keyword: Keyword) -> Result<Vec<FromItem>> {
        if self.accept_keyword(keyword) { self.list(Self::table_ref) } else { Ok(Vec::new()) }
    }

    /// An item of FROM with its joins (PostgreSQL's table_ref).
    pub(super) fn table_ref(&mut self) -> Result<FromItem> {
        let mut item = self.table_operand()?;
        while self.optional_join(&mut item)? {}
        Ok(item)
    }

    /// Adds one join to the right, if there is one.
    fn optional_join(&mut self, left: &mut FromItem) -> Result<bool> {
        let start = self.start();
        let Some(keyword) = self.keyword() else { return Ok(false) };
        let is_cross = keyword == Keyword::Cross;
        let is_natural = keyword == Keyword::Natural;
        if is_cross || is_natural {
            self.advance();
        }
        let kind = match self.keyword() {
            _ if is_cross => JoinKind::Inner,
            Some(Keyword::Join) => JoinKind::Inner,
            Some(Keyword::Inner) => {
                self.advance();
                JoinKind::Inner
            }
            Some(keyword @ (Keyword::Left | Keyword::Right | Keyword::Full)) => {
                self.advance();
                self.accept_keyword(Keyword::Outer);
                match keyword {
                    Keyword::Left => JoinKind::Left,
                    Keyword::Right => JoinKind::Right,
                    _ => JoinKind::Full,
                }
            }
            _ if is_natural => return self.unexpected(),
            _ => return Ok(false),
        };
        self.expect_keyword(Keyword::Join)?;
        let span = self.span_from(start);
        let mut right = self.table_operand()?;
        let constraint = if is_cross {
            JoinConstraint::None
        } else if is_natural {
            JoinConstraint::Natural
        } else {
            // `a JOIN b JOIN c ON … ON …`: what comes before this join's condition belongs to its right side.
            while !self.at_keyword(Keyword::On) && !self.at_keyword(Keyword::Using) {
                self.enter()?;
                if !self.optional_join(&mut right)? {
                    return self.unexpected();
                }
                self.leave();
            }
            self.join_constraint()?
        };
        left.joins.push(Join { span, kind, right, constraint });
        Ok(true)
    }

    fn join_constraint(&mut self) -> Result<JoinConstraint> {
        if self.accept_keyword(Keyword::On) {
            return Ok(JoinConstraint::On(self.expr()?));
        }
        self.expect_keyword(Keyword::Using)?;
        let columns = self.parenthesised_list(Self::name)?;
        let alias = if self.accept_keyword(Keyword::As) { Some(self.name()?) } else { None };
        Ok(JoinConstraint::Using { columns, alias })
    }

    /// What a join joins. Joins in parentheses without an alias are several tables.
    fn table_operand(&mut self) -> Result<FromItem> {
        let start = self.start();
        if self.at_symbol(b'(') {
            return match self.parenthesis_in_from()? {
                Inside::Query(query) => self.sub_query(query, false, start, start),
                Inside::Joins(item) => self.joins_in_parentheses(item, start),
            };
        }
        if self.options.additions && self.kind().is_string() {
            let file = TableKind::File(self.string()?);
            let alias = self.optional_table_alias()?;
            return Ok(self.table(file, alias, start));
        }
        let is_lateral = self.accept_keyword(Keyword::Lateral);
        if is_lateral && self.at_symbol(b'(') {
            let inside = self.start();
            let query = self.parenthesised_query()?;
            return self.sub_query(query, true, start, inside);
        }
        match self.keyword() {
            Some(Keyword::Only) if !is_lateral => return self.relation_in_from(start),
            Some(Keyword::Rows) if self.next_is(Keyword::From) => return self.rows_from(is_lateral, start),
            Some(Keyword::Xmltable) if self.peek(1) == TokenKind::Symbol(b'(') => {
                return self.xml_table(is_lateral, start);
            }
            Some(keyword) if self.at_special(keyword) => {
                let call = self.special(keyword)?;
                return self.table_function(call, is_lateral, start);
            }
            _ => {}
        }
        self.relation_or_function(is_lateral, start)
    }

    fn table(&self, kind: TableKind, alias: Option<Alias>, start: u32) -> FromItem {
        FromItem { first: Table { span: self.span_from(start), kind, alias }, joins: Vec::new() }
    }

    /// Behind joins in parentheses: with an alias they are one table.
    fn joins_in_parentheses(&mut self, item: FromItem, start: u32) -> Result<FromItem> {
        match self.optional_table_alias()? {
            None => Ok(item),
            alias => Ok(self.table(TableKind::Join(Box::new(item)), alias, start)),
        }
    }

    fn sub_query(
        &mut self,
        query: Box<Query>,
        is_lateral: bool,
        start: u32,
        inside: u32,
    ) -> Result<FromItem> {
        let alias = self.optional_table_alias()?;
        if alias.is_none() {
            if self.at(TokenKind::Invalid) {
                return self.unexpected();
            }
            let (what, example) = match query.body {
                QueryBody::Values(_) => ("VALUES", "(VALUES ...)"),
                _ => ("subquery", "(SELECT ...)"),
            };
            let message = format!("{what} in FROM must have an alias");
            let hint = format!("For example, FROM {example} [AS] foo.");
            return Err(error_at(SqlState::SYNTAX_ERROR, message, self.text, inside).with_hint(hint));
        }
        Ok(self.table(TableKind::Query { is_lateral, query }, alias, start))
    }

    /// `(…)`: what it holds is known when its inner parentheses have been read.
    fn parenthesis_in_from(&mut self) -> Result<Inside> {
        self.enter()?;
        self.expect_symbol(b'(')?;
        let inside = if self.begins_query() {
            Inside::Query(self.query()?)
        } else if self.at_symbol(b'(') {
            let start = self.start();
            match self.parenthesis_in_from()? {
                Inside::Query(query) if self.at_symbol(b')') || self.continues_query() => {
                    Inside::Query(self.query_from(query, start)?)
                }
                Inside::Query(query) => {
                    if !self.at_keyword(Keyword::As) && !Self::is_name(self.kind()) && !self.begins_join() {
                        return self.unexpected();
                    }
                    let item = self.sub_query(query, false, start, start)?;
                    self.joins_of(item)?
                }
                Inside::Joins(item) if self.at_symbol(b')') => Inside::Joins(item),
                Inside::Joins(item) => {
                    let item = self.joins_in_parentheses(item, start)?;
                    self.joins_of(item)?
                }
            }
        } else {
            let item = self.table_operand()?;
            self.joins_of(item)?
        };
        self.expect_symbol(b')')?;
        self.leave();
        Ok(inside)
    }

    fn begins_join(&self) -> bool {
        matches!(
            self.keyword(),
            Some(
                Keyword::Join
                    | Keyword::Inner
                    | Keyword::Left
                    | Keyword::Right
                    | Keyword::Full
                    | Keyword::Cross
                    | Keyword::Natural
            )
        )
    }

    /// In parentheses a table without a join is a mistake.
    fn joins_of(&mut self, mut item: FromItem) -> Result<Inside> {
        if !self.optional_join(&mut item)? {
            return self.unexpected();
        }
        while self.optional_join(&mut item)? {}
        Ok(Inside::Joins(item))
    }

    /// `AS name (columns)` or nothing.
    fn optional_table_alias(&mut self) -> Result<Option<Alias>> {
        let Some(name) = self.optional_alias()? else { return Ok(None) };
        Ok(Some(Alias { name, columns: self.optional_names()? }))
    }

    /// `[ONLY] name [*]` (PostgreSQL's relation_expr).
    pub(crate) fn relation(&mut self) -> Result<Relation> {
        if self.accept_keyword(Keyword::Only) {
            let name = if self.accept_symbol(b'(') {
                let name = self.relation_name()?;
                self.expect_symbol(b')')?;
                name
            } else {
                self.relation_name()?
            };
            return Ok(Relation { name, is_only: true });
        }
        let name = self.relation_name()?;
        self.accept_symbol(b'*');
        Ok(Relation { name, is_only: false })
    }

    fn relation_in_from(&mut self, start: u32) -> Result<FromItem> {
        let relation = self.relation()?;
        self.relation_rest(relation, start)
    }

    fn relation_rest(&mut self, relation: Relation, start: u32) -> Result<FromItem> {
        let alias = self.optional_table_alias()?;
        let sample = self.optional_sample()?;
        Ok(self.table(TableKind::Relation { relation, sample }, alias, start))
    }

    fn optional_sample(&mut self) -> Result<Option<Box<Sample>>> {
        let start = self.start();
        if !self.accept_keyword(Keyword::Tablesample) {
            return Ok(None);
        }
        let method = self.function_name()?;
        let arguments = self.parenthesised_list(Self::expr)?;
        let mut seed = None;
        if self.accept_keyword(Keyword::Repeatable) {
            self.expect_symbol(b'(')?;
            seed = Some(self.expr()?);
            self.expect_symbol(b')')?;
        }
        Ok(Some(Box::new(Sample { span: self.span_from(start), method, arguments, seed })))
    }

    /// What begins with a name: a parenthesis behind it makes it a function.
    fn relation_or_function(&mut self, is_lateral: bool, start: u32) -> Result<FromItem> {
        let is_relation = Self::is_name(self.kind());
        let is_function = Self::is_type_or_function_name(self.kind());
        if !is_relation && !is_function {
            return self.unexpected();
        }
        let first = self.take_name();
        if !is_relation || (is_function && self.at_symbol(b'(')) {
            let call = self.call(ObjectName::simple(first), start, false)?;
            return self.table_function(call, is_lateral, start);
        }
        let mut name = ObjectName::simple(first);
        while self.at_symbol(b'.') && self.peek(1) != TokenKind::Symbol(b'*') {
            self.advance();
            let part = self.label()?;
            name.qualifiers.push(std::mem::replace(&mut name.name, part));
        }
        if self.at_symbol(b'(') && !name.qualifiers.is_empty() {
            let call = self.call(name, start, false)?;
            return self.table_function(call, is_lateral, start);
        }
        if is_lateral {
            return self.unexpected();
        }
        let name = self.as_relation_name(name)?;
        self.accept_symbol(b'*');
        self.relation_rest(Relation { name, is_only: false }, start)
    }

    /// A call with what may follow it in FROM: an alias, and the columns of records.
    fn table_function(&mut self, call: crate::tree::Expr, is_lateral: bool, start: u32) -> Result<FromItem> {
        let item = TableFunctionItem { call, columns: Vec::new() };
        self.table_functions(vec![item], is_lateral, false, start)
    }

    fn table_functions(
        &mut self,
        functions: Vec<TableFunctionItem>,
        is_lateral: bool,
        is_rows_from: bool,
        start: u32,
    ) -> Result<FromItem> {
        let with_ordinality = self.optional_ordinality();
        let (alias, columns) = self.optional_function_alias()?;
        let function = TableFunction { is_lateral, is_rows_from, functions, with_ordinality, columns };
        Ok(self.table(TableKind::Function(Box::new(function)), alias, start))
    }

    fn optional_ordinality(&mut self) -> bool {
        let found = self.at_keyword(Keyword::With) && self.next_is(Keyword::Ordinality);
        if found {
            self.advance();
            self.advance();
        }
        found
    }

    fn rows_from(&mut self, is_lateral: bool, start: u32) -> Result<FromItem> {
        self.expect_keywords(&[Keyword::Rows, Keyword::From])?;
        let functions = self.parenthesised_list(|parser| {
            let start = parser.start();
            let call = match parser.keyword() {
                Some(keyword) if parser.at_special(keyword) => parser.special(keyword)?,
                _ => {
                    let name = parser.function_name()?;
                    parser.call(name, start, false)?
                }
            };
            let mut columns = Vec::new();
            if parser.accept_keyword(Keyword::As) {
                columns = parser.parenthesised_list(Self::column_definition)?;
            }
            Ok(TableFunctionItem { call, columns })
        })?;
        self.table_functions(functions, is_lateral, true, start)
    }

    /// An alias with names of columns, or with definitions of columns (PostgreSQL's func_alias_clause).
    fn optional_function_alias(&mut self) -> Result<(Option<Alias>, Vec<ColumnDefinition>)> {
        let has_as = self.accept_keyword(Keyword::As);
        if has_as && self.at_symbol(b'(') {
            return Ok((None, self.parenthesised_list(Self::column_definition)?));
        }
        if !has_as && !Self::is_name(self.kind()) {
            return Ok((None, Vec::new()));
        }
        let name = self.name()?;
        if !self.accept_symbol(b'(') {
            return Ok((Some(Alias { name, columns: Vec::new() }), Vec::new()));
        }
        let first = self.name()?;
        if self.at_symbol(b',') || self.at_symbol(b')') {
            let mut columns = vec![first];
            while self.accept_symbol(b',') {
                columns.push(self.name()?);
            }
            self.expect_symbol(b')')?;
            return Ok((Some(Alias { name, columns }), Vec::new()));
        }
        let mut columns = vec![self.column_definition_from(first)?];
        while self.accept_symbol(b',') {
            columns.push(self.column_definition()?);
        }
        self.expect_symbol(b')')?;
        Ok((Some(Alias { name, columns: Vec::new() }), columns))
    }

    /// `name type [COLLATE collation]`
    pub(super) fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.name()?;
        self.column_definition_from(name)
    }

    fn column_definition_from(&mut self, name: Name) -> Result<ColumnDefinition> {
        let type_name = self.type_name()?;
        let collation = if self.accept_keyword(Keyword::Collate) { Some(self.any_name()?) } else { None };
        Ok(ColumnDefinition { name, type_name, collation })
    }

    // XMLTABLE.

    fn xml_table(&mut self, is_lateral: bool, start: u32) -> Result<FromItem> {
        self.advance();
        self.expect_symbol(b'(')?;
        let mut namespaces = Vec::new();
        if self.at_keyword(Keyword::Xmlnamespaces) && self.peek(1) == TokenKind::Symbol(b'(') {
            self.advance();
            namespaces = self.parenthesised_list(|parser| {
                if parser.accept_keyword(Keyword::Default) {
                    return Ok((parser.restricted_expr()?, None));
                }
                let value = parser.restricted_expr()?;
                parser.expect_keyword(Keyword::As)?;
                Ok((value, Some(parser.label()?)))
            })?;
            self.expect_symbol(b',')?;
        }
        let path = self.operand()?;
        let xml = self.xml_passing()?;
        self.expect_keyword(Keyword::Columns)?;
        let columns = self.list(Self::xml_column)?;
        self.expect_symbol(b')')?;
        let table = TableKind::Xml(Box::new(XmlTable { is_lateral, namespaces, path, xml, columns }));
        let alias = self.optional_table_alias()?;
        Ok(self.table(table, alias, start))
    }

    fn xml_column(&mut self) -> Result<XmlColumn> {
        let name = self.name()?;
        let mut column = XmlColumn { name, type_name: None, path: None, default: None, is_nullable: None };
        if self.accept_keyword(Keyword::For) {
            self.expect_keyword(Keyword::Ordinality)?;
            return Ok(column);
        }
        column.type_name = Some(self.type_name()?);
        loop {
            let at = self.start();
            match self.kind() {
                TokenKind::Keyword(Keyword::Default) => {
                    self.advance();
                    let value = self.restricted_expr()?;
                    if column.default.replace(value).is_some() {
                        return self.error(SqlState::SYNTAX_ERROR, "only one DEFAULT value is allowed", at);
                    }
                }
                TokenKind::Keyword(Keyword::Not | Keyword::Null) => {
                    let is_nullable = !self.accept_not();
                    self.expect_keyword(Keyword::Null)?;
                    if column.is_nullable.replace(is_nullable).is_some() {
                        let message = format!(
                            "conflicting or redundant NULL / NOT NULL declarations for column \"{}\"",
                            column.name.text
                        );
                        return self.error(SqlState::SYNTAX_ERROR, message, at);
                    }
                }
                TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => {
                    let option = self.take_name();
                    if &*option.text == "__pg__is_not_null" {
                        let message = format!("option name \"{}\" cannot be used in XMLTABLE", option.text);
                        return self.error(SqlState::SYNTAX_ERROR, message, at);
                    }
                    let value = self.restricted_expr()?;
                    if &*option.text != "path" {
                        let message = format!("unrecognized column option \"{}\"", option.text);
                        return self.error(SqlState::SYNTAX_ERROR, message, at);
                    }
                    if column.path.replace(value).is_some() {
                        let message = "only one PATH value per column is allowed";
                        return self.error(SqlState::SYNTAX_ERROR, message, at);
                    }
                }
                _ => break,
            }
        }
        Ok(column)
    }
}
