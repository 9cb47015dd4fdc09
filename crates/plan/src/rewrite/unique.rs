//! What keys make needless: grouping of rows that differ anyway, and orders beyond a key.

use crate::keys::Keys;
use crate::operator::{Group, Operator};
use crate::plan::{NodeId, Plan};
use crate::statistics::Statistics;
use std::collections::HashMap;

/// Removes DISTINCT of distinct rows, and sort keys that decide nothing.
pub fn use_keys(plan: &mut Plan, statistics: &dyn Statistics) {
    let asks = |node: &NodeId| match &plan[*node] {
        Operator::Group(group) => group.aggregates.is_empty() && group.sets.is_none(),
        Operator::DistinctOn { .. } => true,
        Operator::Sort { keys, .. } => keys.len() > 1,
        _ => false,
    };
    if !plan.post_order().iter().any(asks) {
        return;
    }
    let keys = Keys::of(plan, statistics);
    let mut replaced: HashMap<NodeId, NodeId> = HashMap::new();
    for node in plan.post_order() {
        match &mut plan[node] {
            Operator::Group(Group { input, keys: by, sets: None, aggregates })
                if aggregates.is_empty() && !by.is_empty() && keys.tell_apart(*input, by) =>
            {
                replaced.insert(node, *input);
            }
            Operator::DistinctOn { input, keys: by, .. } if keys.tell_apart(*input, by) => {
                replaced.insert(node, *input);
            }
            Operator::Sort { input, keys: order } => {
                let mut columns = Vec::new();
                let mut decided = order.len();
                for (index, key) in order.iter().enumerate() {
                    columns.push(key.column);
                    if keys.tell_apart(*input, &columns) {
                        decided = index + 1;
                        break;
                    }
                }
                order.truncate(decided);
            }
            _ => {}
        }
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
