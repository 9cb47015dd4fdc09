//! SELECT: its clauses in the order in which they are bound, and the operators in the order in which they are evaluated.

use super::order::SortItems;
use super::target::BoundTarget;
use super::{Binder, Clause, Output, Rows};
use firn_base::{Result, SqlState, TypeId};
use firn_plan::operator::{Group, SetCall, SetCalls};
use firn_plan::{Column, Function, NodeId, Operator, Scalar};
use firn_syntax::tree::{Distinct, Locking, Query, Select};

/// A call of a function that returns a set, in an expression.
#[derive(Clone, Debug)]
pub(crate) struct SetCallPlace {
    /// The columns that stand for it: one for each that the function declares.
    pub outputs: Vec<Column>,
    pub function: Function,
    pub arguments: Vec<Scalar>,
    pub at: u32,
}

impl Binder<'_> {
    /// SELECT with the clauses of the query around it.
    pub(super) fn select(&mut self, select: &Select, query: &Query, resolve: bool) -> Result<Rows> {
        if select.into.is_some() {
            let message = "SELECT ... INTO is not allowed here";
            return Err(self.error(SqlState::SYNTAX_ERROR, message, select.span.start));
        }
        self.refuse_locks(select)?;
        let mut node = self.clause_from(&select.from)?;
        self.window_clause(&select.windows)?;
        let mut targets = self.targets(&select.targets, Clause::Targets)?;
        let count = targets.len();
        let condition = match &select.condition {
            Some(condition) => {
                Some(self.within(Clause::Where, |binder| binder.condition(condition, "WHERE"))?)
            }
            None => None,
        };
        let having = match &select.having {
            Some(having) => {
                let scalar = self.within(Clause::Having, |binder| binder.condition(having, "HAVING"))?;
                Some((scalar, having.span))
            }
            None => None,
        };
        let mut order = self.sort_clause(&query.order_by, &mut targets)?;
        let grouping = self.group_clause(select, &mut targets, count)?;
        let distinct_on = match &select.distinct {
            Some(Distinct::On(list)) => {
                let mut on = Vec::with_capacity(list.len());
                for expression in list {
                    let place = self.find_target(expression, &mut targets, count, Clause::DistinctOn)?;
                    if on.iter().all(|(other, _)| *other != place) {
                        on.push((place, expression.span.start));
                    }
                }
                Some(on)
            }
            _ => None,
        };
        self.check_distinct(select, &order, distinct_on.as_deref(), &targets, count)?;
        let late = |place: usize| {
            place >= count || order.0.iter().any(|item| item.target == place) || select.distinct.is_some()
        };
        // Literals of the select list become text where their type matters.
        for (place, target) in targets.iter_mut().enumerate() {
            if resolve || late(place) {
                target.operand = self.known(target.operand.clone())?;
            }
        }

        // PostgreSQL does not sort by constants, not even by those that are NULL in some grouping sets.
        if grouping.has_sets() && !query.limit.as_ref().is_some_and(|limit| limit.with_ties) {
            order.0.retain(|item| !matches!(targets[item.target].operand.scalar, Scalar::Constant(..)));
        }

        if let Some(condition) = condition {
            node = self.filtered(node, condition);
        }
        let mut having_scalar = having.as_ref().map(|(scalar, _)| scalar.clone());
        let having_span = having.map(|(_, span)| span);
        if !self.level().locking.is_empty() {
            self.refuse_locks_of_computed_rows()?;
        }
        node = self.grouped(node, grouping, &mut targets, &mut having_scalar, having_span)?;
        if let Some(having) = having_scalar {
            node = self.filtered(node, having);
        }
        let windows = std::mem::take(&mut self.level().windows);
        let calls = std::mem::take(&mut self.level().window_calls);
        node = self.windowed(node, windows, calls);
        let sets = std::mem::take(&mut self.level().sets);
        node = self.with_sets(node, sets);

        // The columns of the result.
        let mut outputs: Vec<(Column, Scalar)> = Vec::new();
        for (place, target) in targets.iter_mut().enumerate() {
            let operand = &target.operand;
            let is_open = operand.ty.id == TypeId::UNKNOWN && place < count;
            if is_open {
                continue;
            }
            let column = match operand.scalar.as_column().filter(|_| place < count) {
                Some(column) => {
                    node = self.attach(node, [&operand.scalar]);
                    self.own_column(column, &operand.scalar, &target.name, operand.ty, &mut outputs)
                }
                None if place >= count => {
                    let (scalar, ty) = (operand.scalar.clone(), operand.ty);
                    self.as_column(&mut node, &scalar, ty, &mut outputs)
                }
                None => {
                    node = self.attach(node, [&operand.scalar]);
                    let column = self.column_for(&operand.scalar, operand.ty, Some(&target.name));
                    outputs.push((column, operand.scalar.clone()));
                    column
                }
            };
            target.operand.scalar = Scalar::Column(column);
        }
        node = self.map(node, outputs);
        let columns: Vec<Output> = targets[..count].iter().map(BoundTarget::output).collect();

        let mut none = Vec::new();
        let keys = self.keys_of(&mut node, &order, &targets, &mut none);
        debug_assert!(none.is_empty(), "all targets are columns");
        match (&select.distinct, distinct_on) {
            (Some(Distinct::All), _) => node = self.distinct_rows(node, &columns)?,
            (_, Some(on)) => {
                let mut distinct = Vec::with_capacity(on.len());
                for (place, _) in on {
                    let operand = &targets[place].operand;
                    self.check_equality(operand.ty, operand.at)?;
                    distinct.extend(operand.scalar.as_column());
                }
                node =
                    self.plan.add(Operator::DistinctOn { input: node, keys: distinct, order: keys.clone() });
            }
            _ => {}
        }
        if !keys.is_empty() {
            node = self.plan.add(Operator::Sort { input: node, keys: keys.clone() });
        }
        if !self.level().locking.is_empty() {
            node = self.locked(node)?;
        }
        node = self.limited_rows(query, node, keys)?;
        Ok(Rows { node, columns })
    }

    /// A column that is a result column as it is, unless it is one of a query around.
    fn own_column(
        &mut self,
        column: Column,
        scalar: &Scalar,
        name: &str,
        ty: firn_base::Type,
        outputs: &mut Vec<(Column, Scalar)>,
    ) -> Column {
        let id = self.level().id;
        if self.owners.get(&column).is_none_or(|owner| *owner == id) {
            return column;
        }
        let own = self.column_for(scalar, ty, Some(name));
        outputs.push((own, scalar.clone()));
        own
    }

    /// One row of each group of equal rows.
    pub(super) fn distinct_rows(&mut self, node: NodeId, columns: &[Output]) -> Result<NodeId> {
        let mut keys: Vec<Column> = Vec::with_capacity(columns.len());
        for output in columns {
            self.check_equality(output.ty, output.at)?;
            if let Some(column) = output.value.as_column()
                && !keys.contains(&column)
            {
                keys.push(column);
            }
        }
        Ok(if keys.is_empty() {
            self.plan.add(Operator::DistinctOn { input: node, keys, order: Vec::new() })
        } else {
            self.plan.add(Operator::Group(Group {
                input: node,
                keys,
                determined: Vec::new(),
                sets: None,
                aggregates: Vec::new(),
            }))
        })
    }

    fn check_distinct(
        &self,
        select: &Select,
        order: &SortItems,
        on: Option<&[(usize, u32)]>,
        targets: &[BoundTarget],
        count: usize,
    ) -> Result<()> {
        if matches!(select.distinct, Some(Distinct::All))
            && let Some(item) = order.0.iter().find(|item| item.target >= count)
        {
            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
            return Err(self.error(
                SqlState::INVALID_COLUMN_REFERENCE,
                message,
                targets[item.target].operand.at,
            ));
        }
        let Some(on) = on else { return Ok(()) };
        let mut seen: Vec<usize> = Vec::with_capacity(on.len());
        for item in &order.0 {
            if on.iter().any(|(place, _)| *place == item.target) {
                seen.push(item.target);
            } else if let Some((_, at)) = on.iter().find(|(place, _)| !seen.contains(place)) {
                let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
                return Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, *at));
            }
        }
        Ok(())
    }

    /// Each row with the rows that functions give for it. Functions side by side go on together.
    pub(super) fn with_sets(&mut self, mut node: NodeId, mut sets: Vec<SetCallPlace>) -> NodeId {
        while !sets.is_empty() {
            let outputs: Vec<Column> = sets.iter().flat_map(|set| set.outputs.iter().copied()).collect();
            let waits = |set: &SetCallPlace| {
                set.arguments.iter().any(|argument| argument.uses(|column| outputs.contains(&column)))
            };
            let (later, now): (Vec<_>, Vec<_>) = sets.into_iter().partition(waits);
            for set in &now {
                node = self.attach(node, &set.arguments);
            }
            let call = |set: SetCallPlace| SetCall {
                function: set.function,
                arguments: set.arguments,
                columns: set.outputs,
            };
            let calls = SetCalls { calls: now.into_iter().map(call).collect(), ordinality: None };
            node = self.plan.add(Operator::FlatMap { input: node, calls });
            sets = later;
        }
        node
    }

    fn refuse_locks(&mut self, select: &Select) -> Result<()> {
        let Some(locking) = self.level().locking.first() else { return Ok(()) };
        let what = if select.distinct.is_some() {
            "DISTINCT clause"
        } else if !select.group_by.is_empty() {
            "GROUP BY clause"
        } else if select.having.is_some() {
            "HAVING clause"
        } else {
            return Ok(());
        };
        Err(lock_not_allowed(locking, what))
    }

    /// The same of what is known once expressions have been bound.
    fn refuse_locks_of_computed_rows(&mut self) -> Result<()> {
        let level = self.level();
        let Some(locking) = level.locking.first() else { return Ok(()) };
        let what = if !level.aggregates.is_empty() {
            "aggregate functions"
        } else if !level.window_calls.is_empty() {
            "window functions"
        } else if !level.sets.is_empty() {
            "set-returning functions in the target list"
        } else {
            return Ok(());
        };
        Err(lock_not_allowed(locking, what))
    }
}

/// PostgreSQL names no position.
fn lock_not_allowed(locking: &Locking, what: &str) -> firn_base::Error {
    let message = format!("{} is not allowed with {what}", super::query::strength_name(locking.strength));
    firn_base::Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}
