//! Conditions on columns that are hidden from DataFusion ([`AS_IS`]): these are conditions on the columns.
//!
//! A condition on what a view yields goes down to its tables, and takes the calls along that stand for the view's columns. Nothing
//! asks for keys there, but an index, zones and codes ask for columns. As a rule of the optimiser it comes where conditions have gone down; in the
//! next round they go on.

use crate::types::AS_IS;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule of the optimiser.
#[derive(Debug, Default)]
pub(crate) struct PlainConditions;

impl OptimizerRule for PlainConditions {
    fn name(&self) -> &str {
        "plain_conditions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let conditions = match &plan {
            LogicalPlan::Filter(filter) => std::slice::from_ref(&filter.predicate),
            LogicalPlan::TableScan(scan) => &scan.filters,
            _ => return Ok(Transformed::no(plan)),
        };
        let is_hidden = |part: &Expr| Ok(is_call(part));
        if !conditions.iter().any(|condition| condition.exists(is_hidden).expect("it never fails")) {
            return Ok(Transformed::no(plan));
        }
        plan.map_expressions(|condition| {
            condition.transform_up(|part| {
                Ok(match part {
                    Expr::ScalarFunction(mut call) if call.name() == AS_IS && call.args.len() == 1 => {
                        Transformed::yes(call.args.remove(0))
                    }
                    part => Transformed::no(part),
                })
            })
        })
    }
}

fn is_call(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.name() == AS_IS)
}
