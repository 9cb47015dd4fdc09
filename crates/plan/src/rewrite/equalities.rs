//! Equalities: `IS NOT DISTINCT FROM`, by which unnesting joins, is `=` where it makes no difference.
//!
//! That is so for a join to which only TRUE counts if one of the operands is never NULL, and for a mark if neither is. An equality
//! can be asked of an index, and leaves out NULLs.

use crate::column::Column;
use crate::function::Functions;
use crate::operator::{JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{Scope, scope_above};
use crate::scalar::Scalar;
use std::collections::HashMap;

/// Compares by `=` in the conditions of joins.
pub fn use_equality(plan: &mut Plan, functions: &dyn Functions) {
    let has_any = |node: &NodeId| match &plan[*node] {
        Operator::Join(join) => join.conditions.iter().any(|condition| same(condition).is_some()),
        _ => false,
    };
    let order = plan.post_order();
    if !order.iter().any(has_any) {
        return;
    }
    let mut scopes: HashMap<NodeId, Scope> = HashMap::new();
    for node in order {
        let inputs = plan[node].inputs();
        let below: Vec<Scope> =
            inputs.iter().map(|input| scopes.remove(input).expect("inputs come first")).collect();
        if let Operator::Join(join) = &plan[node] {
            let is_mark = join.kind == JoinKind::Mark;
            let mut conditions = join.conditions.clone();
            for condition in &mut conditions {
                let Some((left, right)) = same(condition) else { continue };
                let nullable = |column: Column| below.iter().all(|scope| scope.nullable(column));
                let is_equality = match (nullable(left), nullable(right)) {
                    (false, false) => true,
                    (true, true) => false,
                    _ => !is_mark,
                };
                let types = [plan.columns[left].ty, plan.columns[right].ty];
                if is_equality && let Some(function) = functions.operator("=", &types) {
                    *condition =
                        Scalar::call(function, true, vec![Scalar::Column(left), Scalar::Column(right)]);
                }
            }
            let Operator::Join(join) = &mut plan[node] else { unreachable!("it is a join") };
            join.conditions = conditions;
        }
        scopes.insert(node, scope_above(plan, node, below));
    }
}

/// The columns of which a condition asks whether they are not distinct.
fn same(condition: &Scalar) -> Option<(Column, Column)> {
    match condition {
        Scalar::Distinct(pair, true) => Some((pair.0.as_column()?, pair.1.as_column()?)),
        _ => None,
    }
}
