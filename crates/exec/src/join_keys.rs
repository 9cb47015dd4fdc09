//! Joins by floats: 0 and -0 are equal.
//!
//! A hash join finds equal floats by itself. But it tells the scan of its other side between which values its keys lie, or which
//! they are, and that is compared by bits, where -0 is less than 0: of a side with nothing but -0, rows with 0 would not be seen. So
//! the sides are compared by keys ([`crate::floats`]). As a rule of the optimiser it comes last, when conditions and sub-queries have become joins.

use crate::lower::keys;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{ExprSchemable, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule of the optimiser.
#[derive(Debug, Default)]
pub(crate) struct FloatKeys;

impl OptimizerRule for FloatKeys {
    fn name(&self) -> &str {
        "float_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let mut changed = false;
        for (left, right) in &mut join.on {
            // Rules run several times.
            if !keys::is_key(left) && left.get_type(join.left.schema())?.is_floating() {
                keys::make_of_join(left);
                keys::make_of_join(right);
                changed = true;
            }
        }
        let join = LogicalPlan::Join(join);
        Ok(if changed { Transformed::yes(join) } else { Transformed::no(join) })
    }
}
