//! Sub-queries and conditions that scalars stand on: where their operators are added.

use super::Binder;
use firn_plan::operator::{Join, JoinKind, JoinMethod};
use firn_plan::{Column, NodeId, Operator, Plan, Scalar};
use std::collections::HashSet;

/// How to produce a column that a scalar uses already.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// By a join with a sub-query.
    Query(PendingQuery),
    /// By a scalar that more than one place needs.
    Value(Scalar),
}

/// A sub-query in an expression.
#[derive(Clone, Debug)]
pub(crate) struct PendingQuery {
    pub kind: JoinKind,
    pub right: NodeId,
    /// Whether it uses columns of the query that it stands in.
    pub dependent: bool,
    pub conditions: Vec<Scalar>,
    /// The boolean of a mark join.
    pub mark: Option<Column>,
    /// The rows for which the expression is evaluated.
    pub guard: Option<Scalar>,
    /// The columns of queries around it that it uses.
    pub outer: Vec<Column>,
}

impl Binder<'_> {
    /// The operator with all columns that scalars over it use.
    pub(super) fn attach<'s>(
        &mut self,
        mut node: NodeId,
        scalars: impl IntoIterator<Item = &'s Scalar>,
    ) -> NodeId {
        if self.pending.is_empty() {
            return node;
        }
        for scalar in scalars {
            let mut columns = Vec::new();
            scalar.for_each_column(&mut |column| columns.push(column));
            for column in columns {
                node = self.produce(node, column);
            }
        }
        node
    }

    fn produce(&mut self, mut node: NodeId, column: Column) -> NodeId {
        let column = self.aliases_of_pending.get(&column).copied().unwrap_or(column);
        match self.pending.remove(&column) {
            None => node,
            Some(Pending::Value(value)) => {
                node = self.attach(node, [&value]);
                self.plan.add(Operator::Map { input: node, outputs: vec![(column, value)] })
            }
            Some(Pending::Query(query)) => {
                node = self.attach(node, query.conditions.iter().chain(&query.guard));
                for outer in &query.outer {
                    node = self.produce(node, *outer);
                }
                let (mut right, mut dependent) = (query.right, query.dependent);
                if let Some(guard) = query.guard {
                    // The sub-query is evaluated for the rows that reach it.
                    let row = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
                    let left = self.plan.add(Operator::Filter { input: row, conditions: vec![guard] });
                    right = self.join(JoinKind::Inner, false, left, right, Vec::new());
                    dependent = true;
                }
                self.plan.add(Operator::Join(Join {
                    kind: query.kind,
                    dependent,
                    left: node,
                    right,
                    conditions: query.conditions,
                    mark: query.mark,
                    method: JoinMethod::default(),
                }))
            }
        }
    }

    /// A join without a mark.
    pub(super) fn join(
        &mut self,
        kind: JoinKind,
        dependent: bool,
        left: NodeId,
        right: NodeId,
        conditions: Vec<Scalar>,
    ) -> NodeId {
        self.plan.add(Operator::Join(Join {
            kind,
            dependent,
            left,
            right,
            conditions,
            mark: None,
            method: JoinMethod::default(),
        }))
    }

    /// Whether a scalar needs operators below the one that evaluates it.
    pub(super) fn has_pending(&self, scalar: &Scalar) -> bool {
        !self.pending.is_empty() && scalar.uses(|column| self.is_pending(column))
    }

    /// The columns of a scalar that need operators below the one that evaluates it.
    pub(super) fn pending_of(&self, scalar: &Scalar) -> Vec<Column> {
        let mut columns = Vec::new();
        scalar.for_each_column(&mut |column| columns.extend(self.is_pending(column).then_some(column)));
        columns
    }

    /// Adds the columns that are used to produce one that is pending.
    pub(super) fn used_by_pending(&self, column: Column, used: &mut Vec<Column>) {
        let column = self.aliases_of_pending.get(&column).copied().unwrap_or(column);
        let mut add = |column: Column| {
            if !used.contains(&column) {
                used.push(column);
            }
        };
        let before = match self.pending.get(&column) {
            None => return,
            Some(Pending::Value(value)) => {
                let mut columns = Vec::new();
                value.for_each_column(&mut |column| columns.push(column));
                columns
            }
            Some(Pending::Query(query)) => {
                let mut columns = query.outer.clone();
                for scalar in query.conditions.iter().chain(&query.guard) {
                    scalar.for_each_column(&mut |column| columns.push(column));
                }
                columns
            }
        };
        before.iter().copied().for_each(&mut add);
        for column in before {
            self.used_by_pending(column, used);
        }
    }

    fn is_pending(&self, column: Column) -> bool {
        let column = self.aliases_of_pending.get(&column).copied().unwrap_or(column);
        self.pending.contains_key(&column)
    }

    /// The rows for which conditions hold: those without sub-queries first.
    pub(super) fn filtered(&mut self, mut node: NodeId, condition: Scalar) -> NodeId {
        let conditions = match condition {
            Scalar::And(list) => list,
            other => vec![other],
        };
        let (later, first): (Vec<Scalar>, Vec<Scalar>) =
            conditions.into_iter().partition(|condition| self.has_pending(condition));
        if !first.is_empty() {
            node = self.plan.add(Operator::Filter { input: node, conditions: first });
        }
        for condition in later {
            node = self.attach(node, [&condition]);
            node = self.plan.add(Operator::Filter { input: node, conditions: vec![condition] });
        }
        node
    }

    /// The scalar as a column of the operator.
    pub(super) fn as_column(
        &mut self,
        node: &mut NodeId,
        scalar: &Scalar,
        ty: firn_base::Type,
        outputs: &mut Vec<(Column, Scalar)>,
    ) -> Column {
        if let Scalar::Column(column) = scalar
            && self
                .owners
                .get(column)
                .is_none_or(|owner| self.levels.last().is_none_or(|level| level.id == *owner))
        {
            *node = self.attach(*node, [scalar]);
            return *column;
        }
        if let Some((column, _)) = outputs.iter().find(|(_, other)| other == scalar && !scalar.is_volatile())
        {
            return *column;
        }
        *node = self.attach(*node, [scalar]);
        let column = self.column_for(scalar, ty, None);
        outputs.push((column, scalar.clone()));
        column
    }

    /// The operator with more columns.
    pub(super) fn map(&mut self, node: NodeId, outputs: Vec<(Column, Scalar)>) -> NodeId {
        if outputs.is_empty() { node } else { self.plan.add(Operator::Map { input: node, outputs }) }
    }
}

/// Scans produce the columns that are used.
pub(super) fn drop_unused_columns(plan: &mut Plan) {
    let nodes = plan.post_order();
    let mut used: HashSet<Column> = plan.output.iter().copied().collect();
    for node in &nodes {
        let operator = &plan[*node];
        operator.for_each_named_column(|column| {
            used.insert(column);
        });
        operator.for_each_scalar(|scalar| {
            scalar.for_each_column(&mut |column| {
                used.insert(column);
            });
        });
        if let Operator::SharedRead { columns, .. } = operator {
            used.extend(columns.iter().map(|(_, of)| *of));
        }
    }
    for node in nodes {
        if let Operator::Scan(scan) = &mut plan[node] {
            scan.columns.retain(|(column, _)| used.contains(column));
        }
    }
}
