//! How large a plan may be.
//!
//! A view, or a query of WITH, that is named twice is planned twice, and so is what it names: the plan may have
//! exponentially more nodes than the text has characters. While it is built its parts are shared; the passes over it
//! copy them.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use firn_base::{Error, Result, SqlState};
use std::collections::HashMap;

/// The most nodes of a plan.
const MOST_NODES: u64 = 5_000;

/// 54001 if a plan has too many nodes.
pub fn check(plan: &LogicalPlan) -> Result<()> {
    match nodes(plan, &mut HashMap::new()) {
        0..=MOST_NODES => Ok(()),
        _ => Err(Error::new(SqlState::new("54001"), "statement is too complex")
            .with_detail(format!("Its plan has more than {MOST_NODES} nodes."))
            .with_hint("Views and queries of WITH are planned as often as they are named: keep the rows of one in a table.")),
    }
}

/// The nodes of a plan as a tree. Each shared part is visited once.
fn nodes(plan: &LogicalPlan, known: &mut HashMap<*const LogicalPlan, u64>) -> u64 {
    let place: *const LogicalPlan = plan;
    if let Some(nodes) = known.get(&place) {
        return *nodes;
    }
    let mut count = 1_u64;
    for input in plan.inputs() {
        count = count.saturating_add(nodes(input, known));
    }
    plan.apply_subqueries(|subquery| {
        // A copy of the subquery's node: its input is what is shared.
        count = count.saturating_add(1);
        for input in subquery.inputs() {
            count = count.saturating_add(nodes(input, known));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .expect("counting does not fail");
    known.insert(place, count);
    count
}
