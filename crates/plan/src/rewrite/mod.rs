//! Rewrites: functions from a plan to a plan of the same meaning, one a file.
//!
//! Each is linear in the plan's size. [`optimise`] calls them in the order in which each finds what
//! the ones before have left; they may also be called alone, which is how they are tested: cases as
//! text, and random plans whose rows are compared before and after.

pub mod common;
pub mod computed;
pub mod contradictions;
pub mod equalities;
pub mod first_rows;
pub mod fold;
pub mod join_methods;
pub mod outer_joins;
pub mod prune;
pub mod push_down;
pub mod reductions;
pub mod references;
pub mod semi_joins;
#[cfg(test)]
pub mod testing;
pub mod unique;
pub mod windows;

use crate::function::{Function, Functions};
use crate::join_order::{BUDGET, order_joins};
use crate::plan::Plan;
use crate::scalar::Cast;
use crate::statistics::Statistics;
use crate::unnest::unnest;
use crate::verify::debug_verify;
use firn_base::{Result, Type, Value};

/// Evaluates calls and casts of constants. An error leaves the expression as it is.
pub trait Evaluator {
    /// The result of a call of an immutable function.
    fn call(&self, function: &Function, arguments: &[(Type, Value)], result: Type) -> Result<Value>;

    /// The result of a cast of a constant that is not NULL. The cast's own argument does not count.
    fn cast(&self, cast: &Cast, source: Type, value: Value) -> Result<Value>;
}

/// The rewrites of [`optimise`] without which a plan gives the same rows: all but unnesting.
pub const REWRITES: [&str; 15] = [
    "folding",
    "marks",
    "NULL rejection",
    "pushing down",
    "equalities",
    "contradictions",
    "computed columns",
    "uniqueness",
    "foreign keys",
    "reductions",
    "windows",
    "join order",
    "pruning",
    "common expressions",
    "join methods",
];

/// All rewrites.
pub fn optimise(
    plan: &mut Plan,
    functions: &dyn Functions,
    evaluator: &dyn Evaluator,
    statistics: &dyn Statistics,
) {
    optimise_without(plan, functions, evaluator, statistics, "");
}

/// All rewrites but one of [`REWRITES`]: for tests.
pub fn optimise_without(
    plan: &mut Plan,
    functions: &dyn Functions,
    evaluator: &dyn Evaluator,
    statistics: &dyn Statistics,
    left_out: &str,
) {
    debug_verify(plan, "binding");
    let step = |plan: &mut Plan, name: &str, rewrite: &mut dyn FnMut(&mut Plan)| {
        if name != left_out {
            rewrite(plan);
            debug_verify(plan, name);
        }
    };
    step(plan, "folding", &mut |plan| fold::fold(plan, evaluator));
    step(plan, "marks", &mut semi_joins::use_marks);
    step(plan, "unnesting", &mut |plan| unnest(plan, functions));
    step(plan, "NULL rejection", &mut outer_joins::reject_nulls);
    step(plan, "pushing down", &mut push_down::push_down);
    step(plan, "equalities", &mut |plan| equalities::use_equality(plan, functions));
    step(plan, "contradictions", &mut contradictions::remove_empty);
    step(plan, "computed columns", &mut |plan| {
        computed::use_computed(plan, functions, evaluator, statistics);
    });
    step(plan, "uniqueness", &mut |plan| unique::use_keys(plan, statistics));
    step(plan, "foreign keys", &mut |plan| references::remove_joins(plan, statistics));
    step(plan, "reductions", &mut |plan| reductions::reduce_groups(plan, statistics));
    step(plan, "windows", &mut |plan| {
        windows::merge_windows(plan);
        first_rows::limit_windows(plan);
    });
    step(plan, "join order", &mut |plan| order_joins(plan, statistics, BUDGET));
    step(plan, "pruning", &mut |plan| prune::prune(plan, statistics));
    step(plan, "determined keys", &mut |plan| unique::find_determined(plan, statistics));
    step(plan, "common expressions", &mut common::share_expressions);
    step(plan, "join methods", &mut |plan| {
        join_methods::choose_methods(plan, statistics);
        first_rows::settle_windows(plan, statistics);
    });
}
