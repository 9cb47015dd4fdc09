//! INSERT, UPDATE, DELETE, MERGE.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    Assignment, ChangeCondition, ConflictTarget, ConflictUpdate, Delete, Expr, ExprKind, IndexElement,
    Insert, Merge, MergeAction, MergeArm, Name, ObjectName, OnConflict, Overriding, Relation, Statement,
    Target, TargetColumn, Update, With,
};
use firn_base::Result;

impl Parser<'_> {
    /// A query, INSERT, UPDATE, DELETE or MERGE (PostgreSQL's PreparableStmt).
    pub(crate) fn preparable(&mut self) -> Result<Statement> {
        self.enter()?;
        let with = self.optional_with()?;
        let statement = match self.keyword() {
            Some(Keyword::Insert) => Statement::Insert(Box::new(self.insert(with)?)),
            Some(Keyword::Update) => Statement::Update(Box::new(self.update(with)?)),
            Some(Keyword::Delete) => Statement::Delete(Box::new(self.delete(with)?)),
            Some(Keyword::Merge) => Statement::Merge(Box::new(self.merge(with)?)),
            _ => {
                if self.at_keyword(Keyword::With) {
                    return self.unexpected();
                }
                let mut query = self.query()?;
                if let Some(with) = with {
                    self.add_with(&mut query, with)?;
                }
                Statement::Query(query)
            }
        };
        self.leave();
        Ok(statement)
    }

    fn insert(&mut self, with: Option<Box<With>>) -> Result<Insert> {
        self.expect_keywords(&[Keyword::Insert, Keyword::Into])?;
        let table = self.relation_name()?;
        let alias = if self.accept_keyword(Keyword::As) { Some(self.name()?) } else { None };
        let mut insert = Insert {
            with,
            table,
            alias,
            columns: Vec::new(),
            overriding: None,
            source: None,
            on_conflict: None,
            returning: Vec::new(),
        };
        if self.accept_keyword(Keyword::Default) {
            self.expect_keyword(Keyword::Values)?;
        } else {
            self.insert_rows(&mut insert)?;
        }
        insert.on_conflict = self.optional_on_conflict()?;
        insert.returning = self.optional_returning()?;
        Ok(insert)
    }

    fn insert_rows(&mut self, insert: &mut Insert) -> Result<()> {
        if self.at_symbol(b'(') {
            // A parenthesis before names is a list of columns, before anything else a query.
            let is_values = self.peek(1) == TokenKind::Keyword(Keyword::Values)
                && self.peek(2) == TokenKind::Symbol(b'(');
            if Self::is_name(self.peek(1)) && !is_values {
                insert.columns = self.parenthesised_list(Self::target_column)?;
            }
        }
        insert.overriding = self.optional_overriding()?;
        insert.source = Some(self.query()?);
        Ok(())
    }

    fn optional_overriding(&mut self) -> Result<Option<Overriding>> {
        if !self.accept_keyword(Keyword::Overriding) {
            return Ok(None);
        }
        let overriding = if self.accept_keyword(Keyword::User) {
            Overriding::User
        } else {
            self.expect_keyword(Keyword::System)?;
            Overriding::System
        };
        self.expect_keyword(Keyword::Value)?;
        Ok(Some(overriding))
    }

    /// A column, or a part of one (PostgreSQL's insert_column_item and set_target).
    fn target_column(&mut self) -> Result<TargetColumn> {
        let name = self.name()?;
        Ok(TargetColumn { name, path: self.accessors()? })
    }

    fn optional_on_conflict(&mut self) -> Result<Option<Box<OnConflict>>> {
        let start = self.start();
        if !self.accept_keyword(Keyword::On) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::Conflict)?;
        let target = self.optional_conflict_target()?;
        self.expect_keyword(Keyword::Do)?;
        let mut update = None;
        if !self.accept_keyword(Keyword::Nothing) {
            self.expect_keywords(&[Keyword::Update, Keyword::Set])?;
            let assignments = self.list(Self::assignment)?;
            update = Some(ConflictUpdate { assignments, condition: self.optional_where()? });
        }
        Ok(Some(Box::new(OnConflict { span: self.span_from(start), target, update })))
    }

    fn optional_conflict_target(&mut self) -> Result<Option<ConflictTarget>> {
        if self.accept_keyword(Keyword::On) {
            self.expect_keyword(Keyword::Constraint)?;
            return Ok(Some(ConflictTarget::Constraint(self.name()?)));
        }
        if !self.at_symbol(b'(') {
            return Ok(None);
        }
        let start = self.start();
        let elements = self.parenthesised_list(Self::index_element)?;
        let condition = self.optional_where()?;
        Ok(Some(ConflictTarget::Inference { span: self.span_from(start), elements, condition }))
    }

    /// An element of an index (PostgreSQL's index_elem): a column, a function or an expression in parentheses.
    pub(crate) fn index_element(&mut self) -> Result<IndexElement> {
        let start = self.start();
        let (value, collation) = self.index_key()?;
        let class = self.optional_operator_class()?;
        let class_parameters =
            if class.is_some() && self.at_symbol(b'(') { self.rel_options()? } else { Vec::new() };
        let order = self.sort_direction();
        let nulls = self.nulls_order()?;
        let span = self.span_from(start);
        Ok(IndexElement { span, value, collation, class, class_parameters, order, nulls })
    }

    /// What an index holds, and its collation.
    pub(super) fn index_key(&mut self) -> Result<(Expr, Option<ObjectName>)> {
        let value = self.index_value()?;
        let collation = if self.accept_keyword(Keyword::Collate) { Some(self.any_name()?) } else { None };
        Ok((value, collation))
    }

    /// A column, a function or an expression in parentheses.
    pub(super) fn index_value(&mut self) -> Result<Expr> {
        if !self.accept_symbol(b'(') {
            return self.index_column_or_function();
        }
        let value = self.expr()?;
        self.expect_symbol(b')')?;
        Ok(value)
    }

    /// An operator class or nothing.
    pub(super) fn optional_operator_class(&mut self) -> Result<Option<ObjectName>> {
        let is_class = Self::is_name(self.kind())
            && !(self.at_keyword(Keyword::Nulls)
                && matches!(self.peek(1), TokenKind::Keyword(Keyword::First | Keyword::Last)));
        if is_class { Ok(Some(self.any_name()?)) } else { Ok(None) }
    }

    /// A column, or a call of a function.
    fn index_column_or_function(&mut self) -> Result<Expr> {
        let start = self.start();
        if let Some(keyword) = self.keyword()
            && self.at_special(keyword)
        {
            return self.special(keyword);
        }
        let is_column = Self::is_name(self.kind());
        let is_function = Self::is_type_or_function_name(self.kind());
        if !is_column && !is_function {
            return self.unexpected();
        }
        let mut name = ObjectName::simple(self.take_name());
        if is_column && self.at_symbol(b'.') {
            name = self.with_attributes(name.name)?;
            return self.call(name, start, false);
        }
        if !is_column || (is_function && self.at_symbol(b'(')) {
            return self.call(name, start, false);
        }
        Ok(Expr { kind: ExprKind::Column(Box::new(name)), span: self.span_from(start) })
    }

    /// An item of SET (PostgreSQL's set_clause).
    pub(crate) fn assignment(&mut self) -> Result<Assignment> {
        if !self.at_symbol(b'(') {
            let column = self.target_column()?;
            self.expect_symbol(b'=')?;
            return Ok(Assignment::Single { column, value: self.expr()? });
        }
        let columns = self.parenthesised_list(Self::target_column)?;
        self.expect_symbol(b'=')?;
        Ok(Assignment::Multiple { columns, value: self.expr()? })
    }

    fn optional_returning(&mut self) -> Result<Vec<Target>> {
        if self.accept_keyword(Keyword::Returning) { self.list(Self::target) } else { Ok(Vec::new()) }
    }

    /// A table with its alias; SET is none without AS (PostgreSQL's relation_expr_opt_alias).
    fn changed_table(&mut self) -> Result<(Relation, Option<Name>)> {
        let relation = self.relation()?;
        if self.at_keyword(Keyword::Set) {
            return Ok((relation, None));
        }
        Ok((relation, self.optional_alias()?))
    }

    fn update(&mut self, with: Option<Box<With>>) -> Result<Update> {
        self.expect_keyword(Keyword::Update)?;
        let (table, alias) = self.changed_table()?;
        self.expect_keyword(Keyword::Set)?;
        let assignments = self.list(Self::assignment)?;
        let from = self.optional_from(Keyword::From)?;
        let condition = self.optional_change_condition()?;
        let returning = self.optional_returning()?;
        Ok(Update { with, table, alias, assignments, from, condition, returning })
    }

    fn delete(&mut self, with: Option<Box<With>>) -> Result<Delete> {
        self.expect_keywords(&[Keyword::Delete, Keyword::From])?;
        let (table, alias) = self.changed_table()?;
        let using = self.optional_from(Keyword::Using)?;
        let condition = self.optional_change_condition()?;
        let returning = self.optional_returning()?;
        Ok(Delete { with, table, alias, using, condition, returning })
    }

    fn optional_change_condition(&mut self) -> Result<Option<ChangeCondition>> {
        if !self.accept_keyword(Keyword::Where) {
            return Ok(None);
        }
        if self.at_keyword(Keyword::Current) && self.next_is(Keyword::Of) {
            self.advance();
            self.advance();
            return Ok(Some(ChangeCondition::CurrentOf(self.name()?)));
        }
        Ok(Some(ChangeCondition::Expr(self.expr()?)))
    }

    fn merge(&mut self, with: Option<Box<With>>) -> Result<Merge> {
        self.expect_keywords(&[Keyword::Merge, Keyword::Into])?;
        let (table, alias) = self.changed_table()?;
        self.expect_keyword(Keyword::Using)?;
        let source = self.table_ref()?;
        self.expect_keyword(Keyword::On)?;
        let condition = self.expr()?;
        let mut arms = vec![self.merge_arm()?];
        while self.at_keyword(Keyword::When) {
            arms.push(self.merge_arm()?);
        }
        let returning = if self.options.additions { self.optional_returning()? } else { Vec::new() };
        Ok(Merge { with, table, alias, source, condition, arms, returning })
    }

    fn merge_arm(&mut self) -> Result<MergeArm> {
        let start = self.start();
        self.expect_keyword(Keyword::When)?;
        let is_matched = !self.accept_not();
        self.expect_keyword(Keyword::Matched)?;
        let condition = if self.accept_keyword(Keyword::And) { Some(self.expr()?) } else { None };
        self.expect_keyword(Keyword::Then)?;
        let action = match self.keyword() {
            Some(Keyword::Do) => {
                self.expect_keywords(&[Keyword::Do, Keyword::Nothing])?;
                MergeAction::Nothing
            }
            Some(Keyword::Update) if is_matched => {
                self.expect_keywords(&[Keyword::Update, Keyword::Set])?;
                MergeAction::Update(self.list(Self::assignment)?)
            }
            Some(Keyword::Delete) if is_matched => {
                self.advance();
                MergeAction::Delete
            }
            Some(Keyword::Insert) if !is_matched => self.merge_insert()?,
            _ => return self.unexpected(),
        };
        Ok(MergeArm { span: self.span_from(start), is_matched, condition, action })
    }

    fn merge_insert(&mut self) -> Result<MergeAction> {
        self.advance();
        if self.accept_keyword(Keyword::Default) {
            self.expect_keyword(Keyword::Values)?;
            return Ok(MergeAction::Insert { columns: Vec::new(), overriding: None, values: None });
        }
        let columns =
            if self.at_symbol(b'(') { self.parenthesised_list(Self::target_column)? } else { Vec::new() };
        let overriding = self.optional_overriding()?;
        self.expect_keyword(Keyword::Values)?;
        let values = Some(self.parenthesised_list(Self::expr)?);
        Ok(MergeAction::Insert { columns, overriding, values })
    }
}
