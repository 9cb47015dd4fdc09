//! Reductions: groups that a join asks only a few of are made of the rows that it asks for, and so are partitions of windows.
//!
//! ```text
//! L join (Group by [k] of R) on l = k   =   Shared L:  L join (Group by [k] of (R semi join L on k = l)) on l = k
//! ```
//!
//! That is what unnesting leaves of a sub-query such as `(SELECT avg(x) FROM r WHERE r.k = l.k)`, and of one with a LIMIT, which becomes a
//! window: without the semi join it is computed for all values of `k`. It is a magic set (Mumick, Finkelstein, Pirahesh, Ramakrishnan, "Magic is Relevant", SIGMOD 1990). It pays if
//! the left input has far fewer rows than there are groups; the estimates decide.

use crate::column::Column;
use crate::operator::{Join, JoinKind, JoinMethod, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{Producers, is_volatile, scope};
use crate::scalar::Scalar;
use crate::statistics::{Estimates, Statistics};
use std::collections::HashMap;

/// How many times as many groups as left rows make it worth the while.
const PAYS: f64 = 20.0;
/// The fewest rows of a group's input that are worth a semi join.
const FEWEST_ROWS: f64 = 2000.0;

/// Adds semi joins below groups.
pub fn reduce_groups(plan: &mut Plan, statistics: &dyn Statistics) {
    let order = plan.post_order();
    let joins: Vec<(NodeId, NodeId)> =
        order.iter().filter_map(|node| Some((*node, grouped_below(plan, *node)?))).collect();
    if joins.is_empty() {
        return;
    }
    let (estimates, producers) = (Estimates::of(plan, statistics), Producers::of(plan));
    let mut chosen = Vec::new();
    for (node, group) in joins {
        let Operator::Join(join) = &plan[node] else { unreachable!("it is a join") };
        let conditions = asked(plan, join, group, &producers);
        let input = plan[group].inputs()[0];
        let pays =
            estimates.rows(join.left) * PAYS < estimates.rows(group) && estimates.rows(input) >= FEWEST_ROWS;
        if !conditions.is_empty() && pays && may_be_shared(plan, join.left) {
            chosen.push((node, group, conditions));
        }
    }
    for (node, group, conditions) in chosen {
        reduce(plan, node, group, conditions);
    }
}

/// The group or the window that is the right input of a join, perhaps below filters and maps.
fn grouped_below(plan: &Plan, node: NodeId) -> Option<NodeId> {
    let Operator::Join(join) = &plan[node] else { return None };
    // The result of a mark join or a full join depends on all groups.
    if matches!(join.kind, JoinKind::Full | JoinKind::Mark) || join.dependent || join.conditions.is_empty() {
        return None;
    }
    let mut below = join.right;
    loop {
        below = match &plan[below] {
            Operator::Filter { input, .. } | Operator::Map { input, .. } => *input,
            operator => return (!keys_of(operator).is_empty()).then_some(below),
        }
    }
}

/// The columns by which an operator takes rows together; none if it does not, or not by all of them.
fn keys_of(operator: &Operator) -> &[Column] {
    match operator {
        Operator::Group(group) if group.sets.is_none() => &group.keys,
        Operator::Window(window) => &window.partition,
        _ => &[],
    }
}

/// Which conditions of a join equate columns of its left input with keys of a group or window.
fn asked(plan: &Plan, join: &Join, grouped: NodeId, producers: &Producers) -> Vec<usize> {
    let keys = keys_of(&plan[grouped]);
    let column = |scalar: &Scalar| scalar.as_kept_column(|column| plan.columns[column].ty);
    let is_asked = |condition: &Scalar| {
        let (one, other) = match condition {
            Scalar::Call(call) if call.function.is_equality() => match &call.arguments[..] {
                [one, other] => (column(one), column(other)),
                _ => return false,
            },
            Scalar::Distinct(pair, true) => (column(&pair.0), column(&pair.1)),
            _ => return false,
        };
        let (Some(one), Some(other)) = (one, other) else { return false };
        [(one, other), (other, one)]
            .into_iter()
            .any(|(left, key)| producers.is_below(left, join.left) && keys.contains(&key))
    };
    let conditions = join.conditions.iter().enumerate();
    conditions.filter(|(_, condition)| is_asked(condition)).map(|(place, _)| place).collect()
}

/// Whether a sub-plan may be computed once for two readers.
fn may_be_shared(plan: &Plan, root: NodeId) -> bool {
    let is_bound =
        |node: &NodeId| matches!(plan[*node], Operator::IterateRead { .. } | Operator::Lock { .. });
    let order = plan.post_order_of(root);
    !order.iter().any(|node| is_bound(node) || is_volatile(plan, *node))
}

fn reduce(plan: &mut Plan, node: NodeId, group: NodeId, asked: Vec<usize>) {
    let id = plan.unused_shared_id();
    let Operator::Join(mut join) = plan.take(node) else { panic!("it is a join") };
    let definition = join.left;
    let mut conditions: Vec<Scalar> = asked.into_iter().map(|place| join.conditions[place].clone()).collect();
    let mut given: Vec<(Column, bool)> = scope(plan, definition).iter().collect();
    given.sort_unstable();
    let copy = |plan: &mut Plan, (column, nullable): (Column, bool)| {
        let own = plan.columns.copy_of(column);
        plan.columns[own].nullable = nullable;
        (own, column)
    };
    // All that was above the left input reads copies of its columns.
    let columns: Vec<(Column, Column)> = given.iter().map(|column| copy(plan, *column)).collect();
    let renamed: HashMap<Column, Column> = columns.iter().map(|(own, of)| (*of, *own)).collect();
    let mut rename = |column: Column| renamed.get(&column).copied().unwrap_or(column);
    let right = join.right;
    join.left = plan.add(Operator::SharedRead { id, columns });
    let mut joined = Operator::Join(join);
    joined.rename_uses(&mut rename);
    let body = plan.add(joined);
    plan[node] = Operator::Shared { id, definition, body };
    let within: Vec<NodeId> = plan.post_order_of(definition);
    let mut is_within = vec![false; plan.size()];
    within.iter().for_each(|node| is_within[node.index()] = true);
    for other in plan.post_order() {
        if !is_within[other.index()] && other != body {
            plan[other].rename_uses(&mut rename);
            if let Operator::SharedRead { id: read, columns } = &mut plan[other]
                && *read != id
            {
                columns.iter_mut().for_each(|(_, of)| *of = rename(*of));
            }
        }
    }
    plan.output.iter_mut().for_each(|column| *column = rename(*column));

    // The group's rows are those that the left input asks for.
    let mut read: Vec<(Column, Column)> = Vec::new();
    for condition in &mut conditions {
        let mut of_left = Vec::new();
        condition
            .for_each_column(&mut |column| of_left.extend(renamed.contains_key(&column).then_some(column)));
        for column in of_left {
            if !read.iter().any(|(_, of)| *of == column) {
                let nullable = given.iter().any(|(of, nullable)| *of == column && *nullable);
                read.push(copy(plan, (column, nullable)));
            }
        }
        condition.rename(&mut |column| {
            let own = read.iter().find(|(_, of)| *of == column);
            own.map_or(column, |(own, _)| *own)
        });
    }
    debug_assert!(plan.post_order_of(right).contains(&group));
    let reader = plan.add(Operator::SharedRead { id, columns: read });
    let input = plan[group].inputs()[0];
    let semi = plan.add(Operator::Join(Join {
        kind: JoinKind::Semi,
        dependent: false,
        left: input,
        right: reader,
        conditions,
        mark: None,
        method: JoinMethod::default(),
    }));
    plan[group].for_each_input_mut(|input| *input = semi);
}
