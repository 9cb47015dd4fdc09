//! NULL rejection: an outer join whose padded rows a condition above removes is an inner one.
//!
//! Columns that conditions above reject as NULL go down the plan, as far as a row without a value
//! in them can be left out below as well: not below LIMIT, nor into what is shared.

use crate::column::Column;
use crate::faults::Fault;
use crate::operator::{Join, JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{Producers, rejects_null};
use crate::scalar::Scalar;
use std::collections::HashSet;

/// Makes outer joins inner ones where that changes nothing.
pub fn reject_nulls(plan: &mut Plan) {
    let producers = Producers::of(plan);
    let mut stack: Vec<(NodeId, HashSet<Column>)> = vec![(plan.root, HashSet::new())];
    while let Some((node, mut rejected)) = stack.pop() {
        let add = |rejected: &mut HashSet<Column>, conditions: &[Scalar]| {
            rejected.extend(conditions.iter().flat_map(rejects_null));
            if Fault::OuterToInner.is_made() {
                let mut all = |column| _ = rejected.insert(column);
                conditions.iter().for_each(|condition| condition.for_each_column(&mut all));
            }
        };
        match &mut plan[node] {
            Operator::Filter { input, conditions } => {
                add(&mut rejected, conditions);
                stack.push((*input, rejected));
            }
            Operator::Join(join) => {
                let is_below = |node: NodeId| rejected.iter().any(|column| producers.is_below(*column, node));
                let (of_left, of_right) = (is_below(join.left), is_below(join.right));
                narrow(join, of_left, of_right);
                let (left, right) = (join.left, join.right);
                let mut of_conditions = HashSet::new();
                add(&mut of_conditions, &join.conditions);
                let (of_left, of_right) = match join.kind {
                    JoinKind::Inner => {
                        rejected.extend(of_conditions);
                        (rejected.clone(), rejected)
                    }
                    JoinKind::Semi => {
                        rejected.extend(&of_conditions);
                        (rejected, of_conditions)
                    }
                    JoinKind::Left | JoinKind::Single | JoinKind::Anti => (rejected, of_conditions),
                    // A mark tells NULL from FALSE.
                    JoinKind::Mark => (rejected, HashSet::new()),
                    JoinKind::Full => (HashSet::new(), HashSet::new()),
                };
                stack.push((left, of_left));
                stack.push((right, of_right));
            }
            Operator::Group(group) => {
                let keys = &group.keys;
                let passes = group.sets.is_none();
                let rejected = rejected.into_iter().filter(|column| passes && keys.contains(column));
                stack.push((group.input, rejected.collect()));
            }
            Operator::Window(window) => {
                rejected.retain(|column| window.partition.contains(column));
                stack.push((window.input, rejected));
            }
            Operator::DistinctOn { input, keys, .. } => {
                rejected.retain(|column| keys.contains(column));
                stack.push((*input, rejected));
            }
            Operator::UnionAll { columns, inputs } => {
                for (input, list) in inputs {
                    let pairs = columns.iter().zip(list);
                    let of_input =
                        pairs.filter(|(column, _)| rejected.contains(column)).map(|(_, from)| *from);
                    stack.push((*input, of_input.collect()));
                }
            }
            Operator::Map { input, outputs } => {
                // A column that is another one's value is not NULL if that one is not.
                let copies = outputs.iter().filter(|(column, _)| rejected.contains(column));
                let copied: Vec<Column> = copies.filter_map(|(_, scalar)| scalar.as_column()).collect();
                rejected.extend(copied);
                stack.push((*input, rejected));
            }
            Operator::Sort { input, .. } | Operator::FlatMap { input, .. } => {
                stack.push((*input, rejected));
            }
            Operator::Shared { definition, body, .. } => {
                let (definition, body) = (*definition, *body);
                stack.push((definition, HashSet::new()));
                stack.push((body, rejected));
            }
            other => stack.extend(other.inputs().into_iter().map(|input| (input, HashSet::new()))),
        }
    }
}

/// What a join is if rows with NULLs in all columns of a side are not wanted.
fn narrow(join: &mut Join, rejects_left: bool, rejects_right: bool) {
    match join.kind {
        JoinKind::Left if rejects_right => join.kind = JoinKind::Inner,
        JoinKind::Full if rejects_left && rejects_right => join.kind = JoinKind::Inner,
        JoinKind::Full if rejects_left => join.kind = JoinKind::Left,
        JoinKind::Full if rejects_right => {
            join.kind = JoinKind::Left;
            std::mem::swap(&mut join.left, &mut join.right);
        }
        _ => {}
    }
}
