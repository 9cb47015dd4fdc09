//! Keys: sets of columns of which no two rows of an operator have the same values.
//!
//! NULL counts as a value here, as in grouping. The empty set is a key of what gives one row at most.
//! Each operator keeps a few small keys, so that the work is linear in the plan.

use crate::column::{Column, Columns};
use crate::faults::Fault;
use crate::operator::{Join, JoinKind, Operator, SharedId};
use crate::plan::{NodeId, Plan};
use crate::properties::gives_at_most_one_row;
use crate::scalar::Scalar;
use crate::statistics::Statistics;
use std::collections::{BTreeSet, HashMap};

/// Columns whose values are different in any two rows.
pub type Key = BTreeSet<Column>;

/// The most keys of an operator, and the most columns of a key.
const MOST_KEYS: usize = 6;
const MOST_COLUMNS: usize = 12;

/// The keys of all operators of a plan.
pub struct Keys(Vec<Vec<Key>>);

impl Keys {
    /// Of all operators that the root reaches.
    pub fn of(plan: &Plan, statistics: &dyn Statistics) -> Keys {
        let mut keys = Keys(vec![Vec::new(); plan.size()]);
        // Definitions come before their bodies.
        let mut definitions: HashMap<SharedId, NodeId> = HashMap::new();
        let order = plan.post_order();
        for node in &order {
            if let Operator::Shared { id, definition, .. } = &plan[*node] {
                definitions.insert(*id, *definition);
            }
        }
        for node in order {
            let found = keys.operator(plan, node, statistics, &definitions);
            let mut minimal: Vec<Key> = Vec::new();
            for key in found {
                if key.len() <= MOST_COLUMNS && !minimal.iter().any(|other| other.is_subset(&key)) {
                    minimal.retain(|other| !key.is_subset(other));
                    minimal.push(key);
                }
            }
            minimal.truncate(MOST_KEYS);
            keys.0[node.index()] = minimal;
        }
        keys
    }

    /// The keys of an operator.
    pub fn at(&self, node: NodeId) -> &[Key] {
        &self.0[node.index()]
    }

    /// Whether rows with the same values in these columns are one row.
    pub fn tell_apart(&self, node: NodeId, columns: &[Column]) -> bool {
        self.at(node).iter().any(|key| key.iter().all(|column| columns.contains(column)))
    }

    /// Whether each left row of a join has at most one partner.
    pub fn matches_once(&self, join: &Join, columns: &Columns) -> bool {
        self.tell_apart(join.right, &equated(&join.conditions, columns))
    }

    fn operator(
        &self,
        plan: &Plan,
        node: NodeId,
        statistics: &dyn Statistics,
        definitions: &HashMap<SharedId, NodeId>,
    ) -> Vec<Key> {
        if gives_at_most_one_row(plan, node) {
            return vec![Key::new()];
        }
        let below = |input: NodeId| self.at(input).to_vec();
        match &plan[node] {
            Operator::Scan(scan) => {
                let column = |attribute: &i16| {
                    let found = scan.columns.iter().find(|(_, other)| other == attribute);
                    found.map(|(column, _)| *column)
                };
                let keys = statistics.keys(scan.source);
                let keys = keys.iter().filter_map(|key| key.iter().map(column).collect::<Option<Key>>());
                without_fixed(keys.collect(), &scan.conditions, &plan.columns)
            }
            Operator::Filter { input, conditions } => without_fixed(below(*input), conditions, &plan.columns),
            Operator::Map { input, .. }
            | Operator::Window(crate::operator::Window { input, .. })
            | Operator::Sort { input, .. }
            | Operator::Limit(crate::operator::Limit { input, .. })
            | Operator::Sample { input, .. }
            | Operator::Lock { input, .. } => below(*input),
            Operator::FlatMap { input, calls } => match calls.ordinality {
                Some(ordinality) => below(*input)
                    .into_iter()
                    .map(|mut key| {
                        key.insert(ordinality);
                        key
                    })
                    .collect(),
                None => Vec::new(),
            },
            Operator::TableFunction(calls) => {
                calls.ordinality.into_iter().map(|ordinality| Key::from([ordinality])).collect()
            }
            Operator::Group(group) if group.sets.is_none() => {
                let mut keys = vec![group.keys.iter().copied().collect::<Key>()];
                let passed = below(group.input).into_iter();
                keys.extend(passed.filter(|key| key.iter().all(|column| group.keys.contains(column))));
                keys
            }
            Operator::DistinctOn { input, keys: distinct, .. } => {
                let mut keys = below(*input);
                keys.push(distinct.iter().copied().collect());
                keys
            }
            Operator::Join(join) => {
                let (left, right) = (below(join.left), below(join.right));
                let fixed = equated(&join.conditions, &plan.columns);
                let once = |keys: &[Key]| {
                    Fault::WrongKey.is_made()
                        || keys.iter().any(|key| key.iter().all(|column| fixed.contains(column)))
                };
                match join.kind {
                    JoinKind::Semi | JoinKind::Anti | JoinKind::Mark | JoinKind::Single => left,
                    JoinKind::Left if once(&right) => left,
                    JoinKind::Inner | JoinKind::Left => {
                        let mut keys = Vec::new();
                        if once(&right) {
                            keys.extend(left.iter().cloned());
                        }
                        if join.kind == JoinKind::Inner && once(&left) {
                            keys.extend(right.iter().cloned());
                        }
                        for one in &left {
                            // A padded row has NULLs, but a left row has one padded row alone.
                            keys.extend(right.iter().map(|other| one | other));
                        }
                        if join.kind == JoinKind::Inner {
                            without_fixed(keys, &join.conditions, &plan.columns)
                        } else {
                            keys
                        }
                    }
                    JoinKind::Full => Vec::new(),
                }
            }
            Operator::Shared { body, .. } => below(*body),
            Operator::SharedRead { id, columns } => {
                let Some(definition) = definitions.get(id) else { return Vec::new() };
                let own = |column: &Column| {
                    let found = columns.iter().find(|(_, of)| of == column);
                    found.map(|(own, _)| *own)
                };
                let keys = self.at(*definition).iter();
                keys.filter_map(|key| key.iter().map(own).collect::<Option<Key>>()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Columns that conditions equate with what is one value for a row of the other side: another column, a constant, a parameter.
fn equated(conditions: &[Scalar], columns: &Columns) -> Vec<Column> {
    let column = |scalar: &Scalar| scalar.as_kept_column(|column| columns[column].ty);
    let mut found = Vec::new();
    for condition in conditions {
        let (left, right) = match condition {
            Scalar::Call(call) if call.function.is_equality() && call.arguments.len() == 2 => {
                (&call.arguments[0], &call.arguments[1])
            }
            Scalar::Distinct(pair, true) => (&pair.0, &pair.1),
            _ => continue,
        };
        found.extend(column(left));
        found.extend(column(right));
    }
    found
}

/// Keys without columns that have one value in all rows that meet the conditions.
fn without_fixed(keys: Vec<Key>, conditions: &[Scalar], columns: &Columns) -> Vec<Key> {
    let is_fixed = |scalar: &Scalar| matches!(scalar, Scalar::Constant(..) | Scalar::Parameter(..));
    let mut fixed = Vec::new();
    for condition in conditions {
        if let Scalar::Call(call) = condition
            && call.function.is_equality()
            && let [left, right] = &call.arguments[..]
        {
            let sides = [(left, right), (right, left)].into_iter().filter(|(_, other)| is_fixed(other));
            fixed.extend(sides.filter_map(|(own, _)| own.as_kept_column(|column| columns[column].ty)));
        }
    }
    keys.into_iter().map(|key| key.into_iter().filter(|column| !fixed.contains(column)).collect()).collect()
}
