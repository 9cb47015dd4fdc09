//! What keys make needless: grouping of rows that differ anyway, and orders beyond a key.

use crate::column::Column;
use crate::keys::Keys;
use crate::operator::{Group, Operator};
use crate::plan::{NodeId, Plan};
use crate::statistics::Statistics;
use std::collections::HashMap;

/// Finds the keys of groups that others determine: columns of a table whose key is among the keys.
///
/// An outer join may have made all columns of the table NULL: together, so that they are equal then, too.
pub fn find_determined(plan: &mut Plan, statistics: &dyn Statistics) {
    let is_asked = |node: &NodeId| matches!(&plan[*node], Operator::Group(group) if group.keys.len() > 1);
    let order = plan.post_order();
    if !order.iter().any(is_asked) {
        return;
    }
    // The columns of each table, and its keys among them.
    let mut tables: Vec<(Vec<Column>, Vec<Vec<Column>>)> = Vec::new();
    for node in &order {
        let Operator::Scan(scan) = &plan[*node] else { continue };
        let column = |attribute: &i16| {
            scan.columns.iter().find(|(_, other)| other == attribute).map(|(column, _)| *column)
        };
        let keys = statistics.keys(scan.source);
        let keys: Vec<Vec<Column>> =
            keys.iter().filter_map(|key| key.iter().map(column).collect::<Option<_>>()).collect();
        if !keys.is_empty() {
            tables.push((scan.columns.iter().map(|(column, _)| *column).collect(), keys));
        }
    }
    for node in order {
        let Operator::Group(Group { keys: by, determined, sets: None, .. }) = &mut plan[node] else {
            continue;
        };
        determined.clear();
        for (columns, keys) in &tables {
            let among = keys.iter().filter(|key| key.iter().all(|column| by.contains(column)));
            let Some(key) = among.min_by_key(|key| key.len()) else { continue };
            let others = columns.iter().filter(|column| by.contains(column) && !key.contains(column));
            determined.extend(others);
        }
    }
}

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
            Operator::Group(Group { input, keys: by, sets: None, aggregates, .. })
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
