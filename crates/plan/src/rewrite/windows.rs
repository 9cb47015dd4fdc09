//! Windows that share an order: neighbours with the same partition and order are one.

use crate::column::Column;
use crate::faults::Fault;
use crate::operator::Operator;
use crate::plan::Plan;

/// Merges windows over windows.
pub fn merge_windows(plan: &mut Plan) {
    for node in plan.post_order() {
        let Operator::Window(upper) = &plan[node] else { continue };
        let below = upper.input;
        let Operator::Window(lower) = &plan[below] else { continue };
        let made: Vec<Column> = lower.calls.iter().map(|call| call.output).collect();
        let mut uses_made = false;
        plan[node].for_each_scalar(|scalar| uses_made |= scalar.uses(|column| made.contains(&column)));
        let same_order = Fault::CollapsedWindowOrder.is_made() || upper.order == lower.order;
        if upper.partition != lower.partition || !same_order || uses_made {
            continue;
        }
        let Operator::Window(mut lower) = plan.take(below) else { unreachable!() };
        let Operator::Window(upper) = &mut plan[node] else { unreachable!() };
        upper.input = lower.input;
        lower.calls.append(&mut upper.calls);
        upper.calls = lower.calls;
    }
}
