//! Queries: what stands around the rows of SELECT, VALUES and set operations.

use super::order::SortItems;
use super::target::BoundTarget;
use super::{Binder, Clause, ItemColumn, Operand, Output, Rows, Table};
use crate::catalog::RelationKind;
use firn_base::{Result, SqlState, Type, TypeId, Value};
use firn_plan::operator::{Limit, LockStrength, LockTarget, LockWait, SortKey};
use firn_plan::{NodeId, Operator, Scalar};
use firn_syntax::tree::{self, Expr, Locking, Query, QueryBody};

impl Binder<'_> {
    /// A query. If `resolve`, literals in its select list become text; otherwise the reader of the rows gives them a type.
    pub(super) fn query(&mut self, query: &Query, resolve: bool) -> Result<Rows> {
        self.deeper(|binder| {
            binder.open();
            binder.level().locking.extend(query.locking.iter().cloned());
            let definitions = match &query.with {
                Some(with) => binder.with_clause(with)?,
                None => Vec::new(),
            };
            let rows = binder.query_body(query, resolve)?;
            let node = binder.with_definitions(definitions, rows.node);
            binder.close();
            Ok(Rows { node, ..rows })
        })
    }

    fn query_body(&mut self, query: &Query, resolve: bool) -> Result<Rows> {
        let rows = match &query.body {
            QueryBody::Select(select) => return self.select(select, query, resolve),
            QueryBody::Nested(inner) if !has_clauses(query) => {
                self.pushed_locks = self.level().locking.clone();
                return self.query(inner, resolve);
            }
            QueryBody::Nested(inner) => {
                self.pushed_locks = self.level().locking.clone();
                self.query(inner, true)?
            }
            QueryBody::Values(rows) => self.values(rows, resolve)?,
            QueryBody::Table(relation) => self.table(relation)?,
            QueryBody::SetOperation(operation) => self.set_operation(operation)?,
        };
        self.with_clauses(query, rows)
    }

    /// The rows of VALUES, of a set operation or of a query in parentheses with the clauses of the query around them.
    pub(super) fn with_clauses(&mut self, query: &Query, mut rows: Rows) -> Result<Rows> {
        let is_nested = matches!(query.body, QueryBody::Nested(_));
        // A clause of a query around it finds no table in VALUES, and passes over them.
        let locking = match &query.body {
            QueryBody::Values(_) => query.locking.first(),
            _ => self.level().locking.first(),
        };
        if let Some(locking) = locking.filter(|_| !is_nested) {
            let refused = match &query.body {
                QueryBody::Values(_) => "cannot be applied to VALUES",
                _ => "is not allowed with UNION/INTERSECT/EXCEPT",
            };
            let message = format!("{} {refused}", strength_name(locking.strength));
            // PostgreSQL names no position.
            return Err(firn_base::Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if !query.order_by.is_empty() {
            rows = self.projected(rows)?;
            let is_set = matches!(query.body, QueryBody::SetOperation(_));
            self.output_namespace(&rows.columns);
            let mut targets: Vec<BoundTarget> = Vec::with_capacity(rows.columns.len());
            for output in &rows.columns {
                let operand = Operand { scalar: output.value.clone(), ty: output.ty, at: output.at };
                targets.push(BoundTarget {
                    name: output.name.clone(),
                    operand,
                    span: firn_syntax::Span::new(output.at, output.at),
                });
            }
            let count = targets.len();
            let items: SortItems = self.sort_clause(&query.order_by, &mut targets)?;
            if is_set && let Some(added) = targets.get(count) {
                let error =
                    self.unsupported_as("invalid UNION/INTERSECT/EXCEPT ORDER BY clause", added.span.start);
                return Err(error
                    .with_detail("Only result column names can be used, not expressions or functions.")
                    .with_hint(
                        "Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
                    ));
            }
            let mut outputs = Vec::new();
            let mut node = rows.node;
            let keys = self.keys_of(&mut node, &items, &targets, &mut outputs);
            let node = self.map(node, outputs);
            rows.node = self.plan.add(Operator::Sort { input: node, keys });
        }
        let order = self.order_of(rows.node);
        rows.node = self.limited_rows(query, rows.node, order)?;
        Ok(rows)
    }

    /// ORDER BY of VALUES and set operations sees the columns of the result.
    fn output_namespace(&mut self, columns: &[Output]) {
        let column = |output: &Output| ItemColumn {
            name: output.name.clone(),
            value: output.value.clone(),
            ty: output.ty,
        };
        let columns = columns.iter().map(column).collect();
        let mut table = Table::derived("*RESULT*", columns);
        table.is_join = true;
        let item = self.add_item(table);
        self.level().items[item].has_name = false;
    }

    /// `TABLE t`
    pub(super) fn table(&mut self, relation: &tree::Relation) -> Result<Rows> {
        let node = self.relation(relation, None, None)?;
        let columns = self.all_columns(relation.name.span().start)?;
        let output = |(name, operand): (std::rc::Rc<str>, Operand)| Output {
            name,
            value: operand.scalar,
            ty: operand.ty,
            at: operand.at,
        };
        Ok(Rows { node, columns: columns.into_iter().map(output).collect() })
    }

    /// LIMIT and OFFSET over rows in an order.
    pub(super) fn limited_rows(
        &mut self,
        query: &Query,
        node: NodeId,
        order: Vec<SortKey>,
    ) -> Result<NodeId> {
        let mut node = node;
        let offset = match &query.offset {
            Some(offset) => self.row_count(offset, Clause::Offset)?,
            None => None,
        };
        let mut ties = None;
        let count = match &query.limit {
            Some(limit) => {
                if limit.with_ties {
                    if order.is_empty() {
                        let message = "WITH TIES cannot be specified without ORDER BY clause";
                        return Err(self.error(SqlState::SYNTAX_ERROR, message, limit.span.start));
                    }
                    ties = Some(order);
                }
                match &limit.count {
                    Some(count) => self.row_count(count, Clause::Limit)?,
                    None => None,
                }
            }
            None => None,
        };
        if count.is_none() && offset.is_none() {
            return Ok(node);
        }
        let (mut before, mut later) = (Vec::new(), Vec::new());
        for scalar in [&count, &offset].into_iter().flatten() {
            if self.has_pending(scalar) { later.push(scalar.clone()) } else { before.push(scalar.clone()) }
        }
        if !later.is_empty() {
            return self.limited_by_query(node, count, offset, ties);
        }
        node = self.plan.add(Operator::Limit(Limit { input: node, count, offset, ties }));
        Ok(node)
    }

    /// A limit that a sub-query computes: the rows are the right side of a join with it.
    fn limited_by_query(
        &mut self,
        node: NodeId,
        count: Option<Scalar>,
        offset: Option<Scalar>,
        ties: Option<Vec<SortKey>>,
    ) -> Result<NodeId> {
        let row = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
        let left = self.attach(row, count.iter().chain(&offset));
        let right = self.plan.add(Operator::Limit(Limit { input: node, count, offset, ties }));
        Ok(self.join(firn_plan::operator::JoinKind::Inner, true, left, right, Vec::new()))
    }

    /// A number of rows: a bigint that uses no column of the query.
    fn row_count(&mut self, expression: &Expr, clause: Clause) -> Result<Option<Scalar>> {
        let operand = self.within(clause, |binder| binder.expression(expression))?;
        let operand = self.specific(operand, TypeId::INT8, clause.name())?;
        let columns = self.columns_behind(&[&operand.scalar]);
        let current = self.levels.len() - 1;
        if columns.iter().any(|column| self.level_of(*column) == Some(current)) {
            let message = format!("argument of {} must not contain variables", clause.name());
            return Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, operand.at));
        }
        let scalar = fold_count(operand.scalar);
        match &scalar {
            Scalar::Constant(_, Value::Null) => Ok(None),
            Scalar::Constant(_, Value::BigInt(number)) if *number < 0 => {
                // PostgreSQL finds it when the statement runs: without a position.
                let (state, message) = if clause == Clause::Limit {
                    ("2201W", "LIMIT must not be negative")
                } else {
                    ("2201X", "OFFSET must not be negative")
                };
                Err(firn_base::Error::new(SqlState::new(state), message))
            }
            Scalar::Constant(..) => Ok(Some(scalar)),
            _ => {
                let check = if clause == Clause::Limit { "limit_count" } else { "offset_count" };
                let operand = Operand { scalar, ty: Type::new(TypeId::INT8), at: operand.at };
                Ok(Some(self.call_named(check, vec![operand], expression.span.start)?.scalar))
            }
        }
    }

    /// The locking clauses of the query at hand that apply to a sub-query or view of that name.
    pub(super) fn locks_of(&mut self, name: &str) -> Vec<Locking> {
        let applies = |locking: &&Locking| {
            let is_it =
                |relation: &tree::ObjectName| relation.qualifiers.is_empty() && *relation.name.text == *name;
            locking.relations.is_empty() || locking.relations.iter().any(is_it)
        };
        let all = |locking: &Locking| Locking { relations: Vec::new(), ..locking.clone() };
        self.level().locking.iter().filter(applies).map(all).collect()
    }

    /// FOR UPDATE and its relatives over the rows of a SELECT.
    pub(super) fn locked(&mut self, mut node: NodeId) -> Result<NodeId> {
        let mut targets: Vec<LockTarget> = Vec::new();
        for clause in &self.level().locking.clone() {
            let wanted: Vec<usize> = if clause.relations.is_empty() {
                (0..self.level().items.len()).collect()
            } else {
                let mut wanted = Vec::new();
                for name in &clause.relations {
                    if !name.qualifiers.is_empty() {
                        let message = format!(
                            "{} must specify unqualified relation names",
                            strength_name(clause.strength)
                        );
                        return Err(self.error(SqlState::SYNTAX_ERROR, message, name.span().start));
                    }
                    let level = self.level();
                    let found = level
                        .items
                        .iter()
                        .position(|item| item.has_name && *level.tables[item.table].alias == *name.name.text);
                    let Some(found) = found else {
                        let message = format!(
                            "relation \"{}\" in {} clause not found in FROM clause",
                            name.name.text,
                            strength_name(clause.strength)
                        );
                        return Err(self.error(SqlState::UNDEFINED_TABLE, message, name.span().start));
                    };
                    wanted.push(found);
                }
                wanted
            };
            for item in wanted {
                let level = self.levels.last().expect("a query is being bound");
                let table = &level.tables[level.items[item].table];
                let is_named = !clause.relations.is_empty();
                let at = clause.relations.first().map(|name| name.span().start);
                let refused = |what: &str| {
                    let message = format!("{} cannot be applied to {what}", strength_name(clause.strength));
                    let error = firn_base::Error::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                    at.map_or(error.clone(), |at| self.placed(error, at))
                };
                if table.is_padded {
                    return Err(refused("the nullable side of an outer join"));
                }
                let source = match &table.relation {
                    Some(relation) => match relation.kind {
                        RelationKind::Table(source) if table.scan.is_some() => source,
                        // Its own tables are locked.
                        RelationKind::View(_) => continue,
                        _ => return Err(refused(&format!("relation \"{}\"", relation.name))),
                    },
                    None if is_named && table.is_function => return Err(refused("a function")),
                    None if is_named && table.is_join => return Err(refused("a join")),
                    None if is_named && table.is_common => return Err(refused("a WITH query")),
                    // The tables of a sub-query are locked there.
                    None => continue,
                };
                let Some(row) = self.row_id(item) else { continue };
                let strength = match clause.strength {
                    tree::LockStrength::KeyShare => LockStrength::KeyShare,
                    tree::LockStrength::Share => LockStrength::Share,
                    tree::LockStrength::NoKeyUpdate => LockStrength::NoKeyUpdate,
                    tree::LockStrength::Update => LockStrength::Update,
                };
                let wait = match clause.wait {
                    tree::LockWait::Block => LockWait::Block,
                    tree::LockWait::Error => LockWait::Error,
                    tree::LockWait::Skip => LockWait::Skip,
                };
                match targets.iter_mut().find(|target| target.row == row) {
                    // The strongest lock and the shortest wait count.
                    Some(target) => {
                        if (strength as u8) > (target.strength as u8) {
                            target.strength = strength;
                        }
                        if target.wait == LockWait::Block || wait == LockWait::Error {
                            target.wait = wait;
                        }
                    }
                    None => targets.push(LockTarget { source, row, strength, wait }),
                }
            }
        }
        if !targets.is_empty() {
            node = self.plan.add(Operator::Lock { input: node, targets });
        }
        Ok(node)
    }

    /// Rows whose columns all are columns of the plan; literals become text.
    pub(super) fn projected(&mut self, rows: Rows) -> Result<Rows> {
        let Rows { mut node, mut columns } = rows;
        let mut outputs = Vec::new();
        for output in &mut columns {
            if output.ty.id == TypeId::UNKNOWN {
                let operand = Operand { scalar: output.value.clone(), ty: output.ty, at: output.at };
                let known = self.known(operand)?;
                (output.value, output.ty) = (known.scalar, known.ty);
            }
            if output.value.as_column().is_none() {
                let column = self.column_for(&output.value, output.ty, Some(&output.name));
                outputs.push((column, std::mem::replace(&mut output.value, Scalar::Column(column))));
            }
        }
        node = self.map(node, outputs);
        Ok(Rows { node, columns })
    }
}

/// Whether a query adds something to its body.
fn has_clauses(query: &Query) -> bool {
    !query.order_by.is_empty() || query.limit.is_some() || query.offset.is_some() || !query.locking.is_empty()
}

/// An integer constant as a bigint.
fn fold_count(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Cast(cast) => match cast.argument {
            Scalar::Constant(_, Value::Integer(number)) if cast.ty.id == TypeId::INT8 => {
                Scalar::int8(i64::from(number))
            }
            _ => Scalar::Cast(cast),
        },
        other => other,
    }
}

/// How messages name a lock.
pub(super) fn strength_name(strength: tree::LockStrength) -> &'static str {
    match strength {
        tree::LockStrength::KeyShare => "FOR KEY SHARE",
        tree::LockStrength::Share => "FOR SHARE",
        tree::LockStrength::NoKeyUpdate => "FOR NO KEY UPDATE",
        tree::LockStrength::Update => "FOR UPDATE",
    }
}
