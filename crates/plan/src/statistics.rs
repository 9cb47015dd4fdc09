//! Statistics of sources, and how many rows operators give by them.
//!
//! The estimates are PostgreSQL's and System R's: values are spread evenly and independently. An
//! equality keeps one of the distinct values, other comparisons a third, what is not known a quarter.

use crate::column::Column;
use crate::function::Strategy;
use crate::operator::{JoinKind, Operator, SourceId};
use crate::plan::{NodeId, Plan};
use crate::scalar::{Scalar, Values};
use firn_base::Value;
use std::collections::HashMap;

/// What is known of sources.
pub trait Statistics {
    /// How many rows.
    fn rows(&self, source: SourceId) -> f64;

    /// How many distinct values an attribute has, if that is known.
    fn distinct(&self, source: SourceId, attribute: i16) -> Option<f64>;

    /// Sets of attributes of which no two rows have the same values and none is NULL, now and after each statement:
    /// constraints that are not deferrable.
    fn keys(&self, _: SourceId) -> Vec<Vec<i16>> {
        Vec::new()
    }

    /// The indexes by which a source finds rows.
    fn indexes(&self, _: SourceId) -> Vec<Index> {
        Vec::new()
    }

    /// The oid of the relation that a source is, by which foreign keys name it.
    fn relation(&self, _: SourceId) -> Option<u32> {
        None
    }

    /// The foreign keys of a source that hold for all its rows, now and after each statement: not those that are deferrable
    /// or have not been validated.
    fn references(&self, _: SourceId) -> Vec<Reference> {
        Vec::new()
    }
}

/// An index of a source.
#[derive(Clone, PartialEq, Debug)]
pub struct Index {
    /// The attributes of its key, in their order.
    pub attributes: Vec<i16>,
    /// For each of them whether the greatest comes first.
    pub descending: Vec<bool>,
    /// For each of them whether NULLs come first.
    pub nulls_first: Vec<bool>,
    /// Whether no two rows have one key without NULLs, now and after each statement.
    pub unique: bool,
}

/// A foreign key: a row without a NULL among the attributes has a row of the relation with the same values.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// The referencing attributes.
    pub attributes: Vec<i16>,
    /// The oid of the relation that they refer to.
    pub relation: u32,
    /// Its attributes, in the same order.
    pub referenced: Vec<i16>,
}

/// The share that a comparison other than equality keeps.
const RANGE: f64 = 1.0 / 3.0;
/// The share that a condition keeps of which nothing is known.
const UNKNOWN: f64 = 0.25;
/// Distinct values of a column of which nothing is known, unless it has fewer rows.
const DISTINCT: f64 = 200.0;
/// How many rows a set-returning function gives.
const SET_ROWS: f64 = 100.0;
/// How many times as many rows as its first round a recursion gives.
const ROUNDS: f64 = 10.0;

/// Estimates for all operators of a plan.
pub struct Estimates {
    rows: Vec<f64>,
    distinct: HashMap<Column, f64>,
}

impl Estimates {
    /// Of all operators that the root reaches.
    pub fn of(plan: &Plan, statistics: &dyn Statistics) -> Estimates {
        let mut estimates = Estimates { rows: vec![0.0; plan.size()], distinct: HashMap::new() };
        let (mut shared, mut iterations) = (HashMap::new(), HashMap::new());
        // Definitions come before their bodies, initial rows before steps.
        let mut defined = HashMap::new();
        for node in plan.post_order() {
            match &plan[node] {
                Operator::Shared { id, definition, .. } => {
                    defined.insert(*definition, *id);
                }
                Operator::Iterate(iterate) => {
                    iterations.insert(iterate.id, iterate.initial);
                }
                _ => {}
            }
        }
        for node in plan.post_order() {
            let rows = estimates.operator(plan, node, statistics, &shared, &iterations);
            estimates.rows[node.index()] = rows;
            if let Some(id) = defined.get(&node) {
                shared.insert(*id, rows);
            }
        }
        estimates
    }

    /// How many rows an operator gives.
    pub fn rows(&self, node: NodeId) -> f64 {
        self.rows[node.index()]
    }

    /// How many distinct values a column has among so many rows.
    pub fn distinct(&self, column: Column, rows: f64) -> f64 {
        self.distinct.get(&column).copied().unwrap_or(DISTINCT).min(rows).max(1.0)
    }

    fn operator(
        &mut self,
        plan: &Plan,
        node: NodeId,
        statistics: &dyn Statistics,
        shared: &HashMap<crate::operator::SharedId, f64>,
        iterations: &HashMap<crate::operator::IterateId, NodeId>,
    ) -> f64 {
        let below = |estimates: &Self, input: NodeId| estimates.rows[input.index()];
        match &plan[node] {
            Operator::Scan(scan) => {
                let rows = statistics.rows(scan.source).max(1.0);
                for (column, attribute) in &scan.columns {
                    if let Some(distinct) = statistics.distinct(scan.source, *attribute) {
                        self.distinct.insert(*column, distinct);
                    }
                }
                rows * self.share(&scan.conditions, rows)
            }
            Operator::Values { rows, .. } => rows.len() as f64,
            Operator::TableFunction(_) => SET_ROWS,
            Operator::FlatMap { input, .. } => below(self, *input) * SET_ROWS,
            Operator::Filter { input, conditions } => {
                let rows = below(self, *input);
                rows * self.share(conditions, rows)
            }
            Operator::Map { input, outputs } => {
                for (column, scalar) in outputs {
                    if let Some(distinct) =
                        scalar.as_column().and_then(|from| self.distinct.get(&from)).copied()
                    {
                        self.distinct.insert(*column, distinct);
                    }
                }
                below(self, *input)
            }
            Operator::Join(join) => {
                let (left, right) = (below(self, join.left), below(self, join.right));
                let share = self.share(&join.conditions, left.max(right));
                joined(join.kind, left, right, share)
            }
            Operator::Group(group) => {
                let rows = below(self, group.input);
                let groups = self.combinations(&group.keys, rows);
                groups * group.sets.as_ref().map_or(1, |sets| sets.sets.len()) as f64
            }
            Operator::DistinctOn { input, keys, .. } => self.combinations(keys, below(self, *input)),
            Operator::Limit(limit) => {
                let rows = below(self, limit.input);
                match limit.count {
                    Some(Scalar::Constant(_, Value::BigInt(count))) => rows.min(count as f64),
                    _ => rows,
                }
            }
            Operator::Sample { input, percent, .. } => match percent {
                Scalar::Constant(_, Value::Double(percent)) => below(self, *input) * percent / 100.0,
                _ => below(self, *input) * UNKNOWN,
            },
            Operator::UnionAll { inputs, .. } => inputs.iter().map(|(input, _)| below(self, *input)).sum(),
            Operator::Iterate(iterate) => below(self, iterate.initial) * ROUNDS,
            Operator::IterateRead { iterate, .. } => {
                iterations.get(iterate).map_or(DISTINCT, |initial| below(self, *initial))
            }
            Operator::SharedRead { id, columns } => {
                for (own, of) in columns {
                    if let Some(distinct) = self.distinct.get(of).copied() {
                        self.distinct.insert(*own, distinct);
                    }
                }
                shared.get(id).copied().unwrap_or(DISTINCT)
            }
            Operator::Shared { body, .. } => below(self, *body),
            operator => operator.inputs().first().map_or(0.0, |input| below(self, *input)),
        }
    }

    fn combinations(&self, keys: &[Column], rows: f64) -> f64 {
        keys.iter().map(|key| self.distinct(*key, rows)).product::<f64>().min(rows).max(1.0)
    }

    /// The share of rows that all conditions keep, among about so many rows.
    pub fn share(&self, conditions: &[Scalar], rows: f64) -> f64 {
        conditions.iter().map(|condition| self.share_of(condition, rows)).product()
    }

    fn share_of(&self, condition: &Scalar, rows: f64) -> f64 {
        let share = match condition {
            Scalar::Constant(_, Value::Boolean(value)) => f64::from(u8::from(*value)),
            Scalar::And(list) => self.share(list, rows),
            Scalar::Or(list) => {
                1.0 - list.iter().map(|operand| 1.0 - self.share_of(operand, rows)).product::<f64>()
            }
            Scalar::Not(operand) => 1.0 - self.share_of(operand, rows),
            Scalar::IsNull(_, negated) => {
                if *negated {
                    0.95
                } else {
                    0.05
                }
            }
            Scalar::Distinct(pair, true) => self.equality(&pair.0, &pair.1, rows),
            Scalar::Call(call) if call.arguments.len() == 2 => match call.function.strategy {
                Some(Strategy::Equal) => self.equality(&call.arguments[0], &call.arguments[1], rows),
                Some(Strategy::NotEqual) => 1.0 - self.equality(&call.arguments[0], &call.arguments[1], rows),
                Some(_) => RANGE,
                None => UNKNOWN,
            },
            Scalar::Quantified(quantified) if quantified.function.is_equality() && !quantified.all => {
                let Values::List(list) = &quantified.values else { return UNKNOWN };
                let each = list.iter().map(|value| self.equality(&quantified.argument, value, rows));
                each.sum::<f64>()
            }
            _ => UNKNOWN,
        };
        share.clamp(0.0, 1.0)
    }

    fn equality(&self, left: &Scalar, right: &Scalar, rows: f64) -> f64 {
        let distinct = |scalar: &Scalar| scalar.as_column().map(|column| self.distinct(column, rows));
        1.0 / match (distinct(left), distinct(right)) {
            (Some(left), Some(right)) => left.max(right),
            (Some(distinct), None) | (None, Some(distinct)) => distinct,
            (None, None) => DISTINCT.min(rows).max(1.0),
        }
    }
}

/// How many rows a join gives whose conditions keep a share of all pairs.
pub fn joined(kind: JoinKind, left: f64, right: f64, share: f64) -> f64 {
    let pairs = left * right * share;
    match kind {
        JoinKind::Inner => pairs,
        JoinKind::Left => pairs.max(left),
        JoinKind::Full => pairs.max(left).max(right),
        JoinKind::Semi => left * (right * share).min(1.0),
        JoinKind::Anti => left * (1.0 - (right * share).min(0.9)),
        JoinKind::Mark | JoinKind::Single => left,
    }
}
