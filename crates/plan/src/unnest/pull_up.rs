//! Conditions that are all that a right input asks of the left one: they become conditions of the join.
//!
//! ```text
//! L dependent join σ[p(L, R)] R   =   L join R on p
//! ```
//!
//! That is the case of most sub-queries (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015, section 3.1), and needs no
//! domain. Conditions pass filters, maps, orders, inner joins, and the left input of joins that keep its columns. They are pulled up
//! all together or not at all: below a group or a limit they stay, and [the general way](super) is taken.
//!
//! A right input that can fail or is volatile is evaluated for the rows that are asked for, and not changed. A mark join
//! distinguishes NULL from FALSE, so a condition that may be NULL does not become one of its conditions.

use crate::column::Column;
use crate::operator::{JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{Producers, is_volatile, scope, widen_nullability};
use crate::scalar::Scalar;

/// Makes dependent joins plain ones where conditions are all that depends on the left input. `exact` and `outer` are those of
/// [`super::unnest`], for the plan as it is.
pub fn pull_up(plan: &mut Plan, producers: &Producers, outer: &[Vec<Column>], exact: &[bool]) {
    let mut volatile = vec![false; plan.size()];
    let mut changed = false;
    for node in plan.post_order() {
        let below = plan[node].inputs().into_iter().any(|input| volatile[input.index()]);
        volatile[node.index()] = below || is_volatile(plan, node);
        let Operator::Join(join) = &plan[node] else { continue };
        let (kind, left, right) = (join.kind, join.left, join.right);
        if !join.dependent || exact[right.index()] || volatile[right.index()] {
            continue;
        }
        let of_left = |column: Column| producers.is_below(column, left);
        let mut places = Vec::new();
        if !find(plan, right, outer, &of_left, &mut places) {
            continue;
        }
        let mut pulled = Vec::with_capacity(places.len());
        // From the last place on, so that those before keep theirs.
        for (from, place) in places.iter().rev() {
            pulled.push(conditions_mut(plan, *from).remove(*place));
        }
        pulled.reverse();
        if kind == JoinKind::Mark && may_be_null(plan, left, right, &pulled) {
            for ((from, place), condition) in places.into_iter().zip(pulled) {
                conditions_mut(plan, from).insert(place, condition);
            }
            continue;
        }
        // The order of a right input does not matter.
        let mut input = right;
        while let Operator::Sort { input: below, .. } = &plan[input] {
            input = *below;
        }
        let Operator::Join(join) = &mut plan[node] else { unreachable!("it is a join") };
        (join.dependent, join.right) = (false, input);
        join.conditions.extend(pulled);
        changed = true;
    }
    if changed {
        remove_empty_filters(plan);
        widen_nullability(plan);
    }
}

/// Finds the conditions of a right input that use columns of the left one; `false` if something else uses them.
fn find(
    plan: &Plan,
    root: NodeId,
    outer: &[Vec<Column>],
    of_left: &impl Fn(Column) -> bool,
    places: &mut Vec<(NodeId, usize)>,
) -> bool {
    let depends = |node: NodeId| outer[node.index()].iter().any(|column| of_left(*column));
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        if !depends(node) {
            continue;
        }
        let may_pull = match &plan[node] {
            Operator::Filter { input, .. } => {
                stack.push(*input);
                true
            }
            Operator::Scan(_) => true,
            Operator::Map { input, outputs } => {
                if outputs.iter().any(|(_, scalar)| scalar.uses(of_left)) {
                    return false;
                }
                stack.push(*input);
                false
            }
            Operator::Sort { input, .. } => {
                stack.push(*input);
                false
            }
            Operator::Join(join) if join.kind == JoinKind::Inner && !join.dependent => {
                stack.extend([join.left, join.right]);
                true
            }
            Operator::Join(join)
                if matches!(join.kind, JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Mark) =>
            {
                let asks = join.conditions.iter().any(|condition| condition.uses(of_left));
                if join.dependent || asks || depends(join.right) {
                    return false;
                }
                stack.push(join.left);
                false
            }
            _ => return false,
        };
        if may_pull {
            let own = conditions(plan, node).iter().enumerate();
            places
                .extend(own.filter(|(_, condition)| condition.uses(of_left)).map(|(place, _)| (node, place)));
        }
    }
    true
}

/// Whether conditions over two inputs may be NULL.
fn may_be_null(plan: &Plan, left: NodeId, right: NodeId, conditions: &[Scalar]) -> bool {
    let (left, right) = (scope(plan, left), scope(plan, right));
    let nullable = |column: Column| left.nullable(column) && right.nullable(column);
    conditions.iter().any(|condition| condition.nullable(&nullable))
}

fn conditions(plan: &Plan, node: NodeId) -> &[Scalar] {
    match &plan[node] {
        Operator::Filter { conditions, .. } => conditions,
        Operator::Scan(scan) => &scan.conditions,
        Operator::Join(join) => &join.conditions,
        other => panic!("{other:?} has no conditions"),
    }
}

fn conditions_mut(plan: &mut Plan, node: NodeId) -> &mut Vec<Scalar> {
    match &mut plan[node] {
        Operator::Filter { conditions, .. } => conditions,
        Operator::Scan(scan) => &mut scan.conditions,
        Operator::Join(join) => &mut join.conditions,
        other => panic!("{other:?} has no conditions"),
    }
}

fn remove_empty_filters(plan: &mut Plan) {
    for node in plan.post_order() {
        if let Operator::Filter { input, conditions } = &plan[node]
            && conditions.is_empty()
        {
            let input = *input;
            plan[node] = plan.take(input);
        }
    }
}
