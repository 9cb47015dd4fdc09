//! The order of joins, chosen by cost.
//!
//! A *region* is a tree of inner, left, semi and anti joins; what lies below it are its relations,
//! up to 64. A region becomes a graph of relations and operators ([`graph`]), the cheapest tree of
//! joins over it is searched ([`search`]), and the joins are built again. Columns have numbers, so
//! that nothing above or below changes.
//!
//! A join whose conditions can fail or are volatile is not moved, nor is one with another kind, nor
//! one whose right input can fail: that is not evaluated where there are no left rows. Such a join
//! is a relation of the region above, and its inputs are regions of their own.

mod graph;
mod search;

use crate::operator::{Join, JoinKind, JoinMethod, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{can_fail, is_volatile};
use crate::statistics::{Estimates, Statistics};
use graph::{Graph, Tree};

/// The most relations of a region.
const MOST_RELATIONS: usize = 64;

/// Chooses the order of all joins.
pub fn order_joins(plan: &mut Plan, statistics: &dyn Statistics, budget: usize) {
    let is_join = |node: &NodeId| matches!(plan[*node], Operator::Join(_));
    // Two relations have no other order: a region has two joins at least.
    if plan.post_order().iter().filter(|node| is_join(node)).count() < 2 {
        return;
    }
    let estimates = Estimates::of(plan, statistics);
    let producers = crate::properties::Producers::of(plan);
    let mut fails = vec![false; plan.size()];
    for node in plan.post_order() {
        let below = plan[node].inputs().into_iter().any(|input| fails[input.index()]);
        fails[node.index()] = below || can_fail(plan, node) || is_volatile(plan, node);
    }
    let mut stack = vec![plan.root];
    while let Some(node) = stack.pop() {
        if !is_movable(plan, node, &fails) {
            stack.extend(plan[node].inputs());
            continue;
        }
        let mut graph = Graph::default();
        let original = collect(plan, node, MOST_RELATIONS, &fails, &mut graph);
        stack.extend(graph.relations.iter().copied());
        if graph.relations.len() < 3 {
            continue;
        }
        graph.finish(&producers, &estimates);
        let Some(tree) = search::cheapest(&graph, &original, budget) else { continue };
        let built = build(plan, &graph, &tree);
        let top = plan.take(built);
        plan[node] = top;
    }
}

/// Pairs that the exact search may look at.
pub const BUDGET: usize = 10_000;

fn is_movable(plan: &Plan, node: NodeId, fails: &[bool]) -> bool {
    match &plan[node] {
        Operator::Join(join) => {
            let kind =
                matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
            let moves = |condition: &crate::scalar::Scalar| !condition.can_fail() && !condition.is_volatile();
            kind && !join.dependent && !fails[join.right.index()] && join.conditions.iter().all(moves)
        }
        _ => false,
    }
}

/// Takes a region apart, into at most so many relations.
fn collect(plan: &Plan, node: NodeId, most: usize, fails: &[bool], graph: &mut Graph) -> Tree {
    match &plan[node] {
        Operator::Join(join) if most > 1 && is_movable(plan, node, fails) => {
            let (left, right) = (join.left, join.right);
            let first = graph.relations.len();
            let left = collect(plan, left, most - 1, fails, graph);
            let used = graph.relations.len() - first;
            let right = collect(plan, right, most - used, fails, graph);
            graph.add(join.kind, join.conditions.clone(), left, right)
        }
        _ => {
            graph.relations.push(node);
            Tree::Relation(graph.relations.len() - 1)
        }
    }
}

/// Builds the joins of a tree.
fn build(plan: &mut Plan, graph: &Graph, tree: &Tree) -> NodeId {
    match tree {
        Tree::Relation(relation) => graph.relations[*relation],
        Tree::Join { kind, operators, left, right } => {
            let (left, right) = (build(plan, graph, left), build(plan, graph, right));
            let conditions =
                operators.iter().flat_map(|operator| graph.conditions(*operator)).cloned().collect();
            let join = Join {
                kind: *kind,
                dependent: false,
                left,
                right,
                conditions,
                mark: None,
                method: JoinMethod::default(),
            };
            plan.add(Operator::Join(join))
        }
    }
}

#[cfg(test)]
mod tests;
