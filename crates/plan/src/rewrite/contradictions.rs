//! Contradictions: sub-plans that give no rows become empty lists of rows, up to where that matters.

use crate::column::Column;
use crate::operator::{Group, Join, JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{scope, widen_nullability};
use crate::rewrite::fold::is_never_true;
use crate::scalar::Scalar;
use firn_base::Value;

/// Replaces sub-plans that give no rows.
pub fn remove_empty(plan: &mut Plan) {
    let mut empty = vec![false; plan.size()];
    let mut changes = vec![false; plan.size()];
    for node in plan.post_order() {
        changes[node.index()] =
            plan[node].is_change() || plan[node].inputs().iter().any(|input| changes[input.index()]);
        let is_empty = |input: NodeId| empty[input.index()];
        empty[node.index()] = match &plan[node] {
            Operator::Values { rows, .. } => rows.is_empty(),
            Operator::Scan(scan) => scan.conditions.iter().any(is_never_true),
            Operator::Filter { input, conditions } => {
                is_empty(*input) || conditions.iter().any(is_never_true)
            }
            Operator::Join(join) => {
                let never = join.conditions.iter().any(is_never_true);
                match join.kind {
                    JoinKind::Inner | JoinKind::Semi => is_empty(join.left) || is_empty(join.right) || never,
                    JoinKind::Full => is_empty(join.left) && is_empty(join.right),
                    _ => is_empty(join.left),
                }
            }
            Operator::Group(Group { input, keys, sets: None, .. }) => !keys.is_empty() && is_empty(*input),
            Operator::Map { input, .. }
            | Operator::FlatMap { input, .. }
            | Operator::Window(crate::operator::Window { input, .. })
            | Operator::Sort { input, .. }
            | Operator::DistinctOn { input, .. }
            | Operator::Sample { input, .. } => is_empty(*input),
            Operator::Limit(limit) => {
                is_empty(limit.input) || matches!(limit.count, Some(Scalar::Constant(_, Value::BigInt(0))))
            }
            Operator::UnionAll { inputs, .. } => inputs.iter().all(|(input, _)| is_empty(*input)),
            // A row change of WITH is carried out, whatever the query does with its rows.
            Operator::Shared { definition, body, .. } => is_empty(*body) && !changes[definition.index()],
            Operator::Iterate(iterate) => is_empty(iterate.initial),
            _ => false,
        };
    }
    // From above, so that the largest is replaced and nothing below it.
    let mut stack = vec![plan.root];
    while let Some(node) = stack.pop() {
        if empty[node.index()] {
            let mut columns: Vec<Column> = scope(plan, node).iter().map(|(column, _)| column).collect();
            columns.sort_unstable();
            plan[node] = Operator::Values { columns, rows: Vec::new() };
            continue;
        }
        if let Operator::UnionAll { inputs, .. } = &mut plan[node] {
            inputs.retain(|(input, _)| !empty[input.index()]);
        }
        // An outer join with nothing is its left rows with NULLs; an anti join is its left rows.
        if let Operator::Join(join) = &plan[node]
            && empty[join.right.index()]
        {
            let Join { kind, left, right, mark, .. } = join.clone();
            let nulls = match kind {
                JoinKind::Anti => Some(Vec::new()),
                JoinKind::Left | JoinKind::Single => {
                    let mut columns: Vec<Column> =
                        scope(plan, right).iter().map(|(column, _)| column).collect();
                    columns.sort_unstable();
                    Some(columns)
                }
                JoinKind::Mark => {
                    let mark = mark.expect("a mark join has a mark");
                    let outputs = vec![(mark, Scalar::boolean(false))];
                    plan[node] = Operator::Map { input: left, outputs };
                    None
                }
                _ => None,
            };
            if let Some(columns) = nulls {
                let null = |column: Column| {
                    let info = &mut plan.columns[column];
                    info.nullable = true;
                    (column, Scalar::Constant(info.ty, Value::Null))
                };
                let outputs = columns.into_iter().map(null).collect();
                plan[node] = Operator::Map { input: left, outputs };
            }
        }
        stack.extend(plan[node].inputs());
    }
    widen_nullability(plan);
}
