//! Needed columns: what no operator above uses is not produced.
//!
//! Column numbers are unique, so one set of all that is used so far is enough: operators are visited
//! before those that produce for them, bodies before what they share, right inputs before left ones.
//! A volatile scalar is kept for its effects. A join of which only the left rows are needed is removed if it gives
//! each of them once.

use crate::column::Column;
use crate::keys::Keys;
use crate::operator::{JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{self, Producers};
use crate::statistics::Statistics;
use std::collections::{HashMap, HashSet};

/// Removes columns that nothing uses, and operators that only produce such.
pub fn prune(plan: &mut Plan, statistics: &dyn Statistics) {
    let mut needed: HashSet<Column> = plan.output.iter().copied().collect();
    let producers = Producers::of(plan);
    let mut order = plan.post_order();
    let is_outer =
        |node: &NodeId| matches!(&plan[*node], Operator::Join(join) if join.kind == JoinKind::Left);
    let keys = order.iter().any(is_outer).then(|| Keys::of(plan, statistics));
    order.reverse();
    let mut replaced: HashMap<NodeId, NodeId> = HashMap::new();
    let mut volatile = vec![false; plan.size()];
    for node in order.iter().rev() {
        let below = plan[*node].inputs().into_iter().any(|input| volatile[input.index()]);
        volatile[node.index()] = below || properties::is_volatile(plan, *node);
    }
    let mut dropped: HashSet<NodeId> = HashSet::new();
    for node in order {
        if dropped.contains(&node) {
            dropped.extend(plan[node].inputs());
            continue;
        }
        let mut operator = plan.take(node);
        let is_needed = |column: &Column| needed.contains(column);
        match &mut operator {
            Operator::Scan(scan) => {
                let mut of_conditions = HashSet::new();
                for condition in &scan.conditions {
                    condition.for_each_column(&mut |column| {
                        of_conditions.insert(column);
                    });
                }
                scan.columns.retain(|(column, _)| is_needed(column) || of_conditions.contains(column));
            }
            Operator::Values { columns, rows } => {
                let keep: Vec<bool> = columns
                    .iter()
                    .enumerate()
                    .map(|(index, column)| {
                        is_needed(column) || rows.iter().any(|row| row[index].is_volatile())
                    })
                    .collect();
                let mut index = keep.iter();
                columns.retain(|_| *index.next().expect("one for each"));
                for row in rows {
                    let mut index = keep.iter();
                    row.retain(|_| *index.next().expect("one for each"));
                }
            }
            Operator::Map { outputs, .. } => {
                outputs.retain(|(column, scalar)| is_needed(column) || scalar.is_volatile());
            }
            Operator::Group(group) => {
                group.aggregates.retain(|aggregate| {
                    is_needed(&aggregate.output)
                        || aggregate.function.is_volatile()
                        || aggregate.arguments.iter().any(crate::scalar::Scalar::is_volatile)
                });
            }
            Operator::Window(window) => {
                window.calls.retain(|call| is_needed(&call.output) || call.function.is_volatile());
            }
            Operator::UnionAll { columns, inputs } => {
                let keep: Vec<bool> = columns.iter().map(is_needed).collect();
                let mut index = keep.iter();
                columns.retain(|_| *index.next().expect("one for each"));
                for (_, list) in inputs {
                    let mut index = keep.iter();
                    list.retain(|_| *index.next().expect("one for each"));
                }
            }
            Operator::SharedRead { columns, .. } => columns.retain(|(own, _)| is_needed(own)),
            _ => {}
        }
        // What is left over without what it was for is passed over.
        let instead = match &operator {
            Operator::Map { input, outputs } if outputs.is_empty() => Some(*input),
            Operator::Window(window) if window.calls.is_empty() => Some(window.input),
            Operator::Join(join) if join.kind == JoinKind::Mark => {
                let mark = join.mark.expect("a mark join has a mark");
                let unused = !needed.contains(&mark) && !volatile[join.right.index()];
                unused.then_some(join.left)
            }
            // A left row comes once whether it has a partner or not.
            Operator::Join(join) if matches!(join.kind, JoinKind::Left | JoinKind::Single) => {
                let unused = !needed.iter().any(|column| producers.is_below(*column, join.right));
                let once = join.kind == JoinKind::Single
                    || keys.as_ref().is_some_and(|keys| keys.matches_once(join, &plan.columns));
                (unused && once && !join.dependent && !volatile[join.right.index()]).then_some(join.left)
            }
            _ => None,
        };
        match instead {
            Some(input) => {
                if let Operator::Join(join) = &operator {
                    dropped.insert(join.right);
                }
                replaced.insert(node, input);
            }
            None => {
                operator.for_each_scalar(|scalar| {
                    scalar.for_each_column(&mut |column| {
                        needed.insert(column);
                    });
                });
                operator.for_each_named_column(|column| {
                    needed.insert(column);
                });
            }
        }
        // A definition comes after all that reads it.
        if let Operator::SharedRead { columns, .. } = &operator {
            needed.extend(columns.iter().map(|(_, of)| *of));
        }
        plan[node] = operator;
    }
    let resolve = |node: NodeId| {
        let mut node = node;
        while let Some(next) = replaced.get(&node) {
            node = *next;
        }
        node
    };
    plan.root = resolve(plan.root);
    let mut stack = vec![plan.root];
    while let Some(node) = stack.pop() {
        plan[node].for_each_input_mut(|input| *input = resolve(*input));
        stack.extend(plan[node].inputs());
    }
}
