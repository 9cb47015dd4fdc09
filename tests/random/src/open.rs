//! What SQL leaves open about the errors of a statement: which expressions are evaluated on which rows, and in which order.
//!
//! Conditions, joins, limits and sub-queries let an engine leave expressions out whose rows nobody asks for, and evaluate others before
//! rows are removed. What remains is certain: an expression of the result, or of an only condition of a table, outside of AND, OR,
//! CASE, COALESCE and lists, is evaluated on each row; what fails there fails everywhere.

use firn_base::SqlState;
use firn_plan::operator::{JoinKind, Operator};
use firn_plan::scalar::Scalar;
use firn_plan::{Column, NodeId, Plan};
use std::collections::HashSet;

/// What is open.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// What may fail.
    fails: Fails,
    /// What may overflow: any computation.
    overflows: Fails,
    /// Whether several rows may be changed, or a row may be changed in several ways.
    has_rows: bool,
}

/// What may fail in one way.
#[derive(Clone, Copy, Debug, Default)]
struct Fails {
    /// What is evaluated on rows that are not certain.
    open: usize,
    /// What is evaluated on certain ones.
    certain: usize,
}

impl Open {
    /// Everything: of a statement of which no plan is known.
    pub const ALL: Open = Open {
        fails: Fails { open: 1, certain: 1 },
        overflows: Fails { open: 1, certain: 1 },
        has_rows: true,
    };

    /// Of a statement as it is bound.
    pub fn of(plan: &Plan) -> Open {
        Open {
            fails: Fails::of(plan, &fails),
            overflows: Fails::of(plan, &overflows),
            has_rows: has_rows(plan),
        }
    }

    /// Whether an engine may not meet this error where another one does.
    pub fn may_miss(&self, state: &SqlState) -> bool {
        match *state == SqlState::NUMERIC_VALUE_OUT_OF_RANGE || state.as_str() == "22008" {
            true => self.overflows.open > 0,
            false => self.fails.open > 0,
        }
    }

    /// Whether an engine may meet one of two errors before the other.
    pub fn has_choice(&self, one: &SqlState, other: &SqlState) -> bool {
        let is_of_table = |state: &SqlState| state.as_str().starts_with("23");
        match (is_of_table(one), is_of_table(other)) {
            (false, false) => self.overflows.open + self.overflows.certain > 1,
            // The constraints of a row are checked when it has been computed, NOT NULL before keys.
            _ => self.has_rows,
        }
    }
}

fn has_rows(plan: &Plan) -> bool {
    let Operator::Insert(insert) = &plan[plan.root] else { return true };
    let mut node = insert.input;
    while let Operator::Map { input, .. } = &plan[node] {
        node = *input;
    }
    !(insert.conflicts.is_empty() && matches!(&plan[node], Operator::Values { rows, .. } if rows.len() < 2))
}

fn fails(scalar: &Scalar) -> bool {
    scalar.can_fail()
}

/// Arithmetic does not count as what can fail, but may overflow.
fn overflows(scalar: &Scalar) -> bool {
    scalar.any(&mut |scalar| matches!(scalar, Scalar::Call(_) | Scalar::Cast(_))) || scalar.can_fail()
}

impl Fails {
    fn of(plan: &Plan, fails: &dyn Fn(&Scalar) -> bool) -> Fails {
        let mut counts = Fails::default();
        // From the result down, as long as each row of an operator is one of the result or is computed for it.
        let mut needed: HashSet<Column> = plan.output.iter().copied().collect();
        let mut certain: HashSet<NodeId> = HashSet::new();
        let mut node = plan.root;
        loop {
            let input = match &plan[node] {
                Operator::Sort { input, keys } => {
                    needed.extend(keys.iter().map(|key| key.column));
                    *input
                }
                Operator::Map { input, outputs } => {
                    for (column, scalar) in outputs {
                        let is_needed = needed.contains(column);
                        counts.add(scalar, is_needed, fails);
                        if is_needed && !branches(scalar) {
                            scalar.for_each_column(&mut |column| _ = needed.insert(column));
                        }
                    }
                    *input
                }
                Operator::Group(group) if group.sets.is_none() => {
                    needed.extend(&group.keys);
                    for aggregate in &group.aggregates {
                        let is_whole = needed.contains(&aggregate.output) && aggregate.filter.is_none();
                        for scalar in aggregate.arguments.iter().chain(&aggregate.filter) {
                            counts.add(scalar, is_whole, fails);
                            if is_whole && !branches(scalar) {
                                scalar.for_each_column(&mut |column| _ = needed.insert(column));
                            }
                        }
                        counts.open += usize::from(aggregate.function.can_fail);
                    }
                    group.input
                }
                Operator::Filter { input, conditions } if matches!(plan[*input], Operator::Scan(_)) => {
                    let is_only = conditions.len() == 1;
                    conditions.iter().for_each(|condition| counts.add(condition, is_only, fails));
                    *input
                }
                Operator::Insert(insert) => {
                    let is_plain = insert.conflicts.is_empty();
                    for assignment in &insert.values {
                        counts.add(&assignment.value, is_plain, fails);
                        if is_plain && !branches(&assignment.value) {
                            assignment.value.for_each_column(&mut |column| _ = needed.insert(column));
                        }
                    }
                    insert.input
                }
                Operator::Values { columns, rows } => {
                    for row in rows {
                        for (column, scalar) in columns.iter().zip(row) {
                            counts.add(scalar, needed.contains(column), fails);
                        }
                    }
                    certain.insert(node);
                    break;
                }
                _ => break,
            };
            certain.insert(node);
            node = input;
        }
        for node in plan.post_order() {
            if certain.contains(&node) {
                continue;
            }
            let operator = &plan[node];
            operator.for_each_scalar(|scalar| counts.add(scalar, false, fails));
            counts.open += match operator {
                Operator::Join(join) => usize::from(join.kind == JoinKind::Single),
                Operator::Group(group) => {
                    group.aggregates.iter().filter(|aggregate| aggregate.function.can_fail).count()
                }
                Operator::Window(window) => window.calls.iter().filter(|call| call.function.can_fail).count(),
                Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => {
                    calls.calls.iter().filter(|call| call.function.can_fail).count()
                }
                _ => 0,
            };
        }
        counts
    }

    fn add(&mut self, scalar: &Scalar, is_certain: bool, fails: &dyn Fn(&Scalar) -> bool) {
        if !fails(scalar) {
            return;
        }
        let mut uses_columns = false;
        scalar.for_each_column(&mut |_| uses_columns = true);
        // One without columns may be computed before there are rows.
        match is_certain && uses_columns && !branches(scalar) {
            true => self.certain += 1,
            false => self.open += 1,
        }
    }
}

/// Whether parts of it are evaluated only where others ask for them.
fn branches(scalar: &Scalar) -> bool {
    scalar.any(&mut |scalar| {
        matches!(
            scalar,
            Scalar::And(_) | Scalar::Or(_) | Scalar::Case(_) | Scalar::Coalesce(_) | Scalar::Quantified(_)
        )
    })
}
