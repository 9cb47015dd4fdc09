//! INTERSECT ALL and EXCEPT ALL of rows on the left that are written to come once: the planner makes of these what it makes of any rows
//! where ALL is missing, which leaves out those that have become equal in the type that both sides have in common.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT DISTINCT a … EXCEPT ALL …` | `(SELECT DISTINCT a … OFFSET 0) EXCEPT ALL …` |
//!
//! Analysis takes the mark off again: see [`crate::bind::sets`].

use super::parsed;
use datafusion::sql::sqlparser::ast::{Distinct, SetExpr, SetOperator, SetQuantifier, Statement};

/// Marks such rows in a query.
pub(super) fn mark_distinct(body: &mut SetExpr) {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return };
    mark_distinct(left);
    mark_distinct(right);
    let counts = matches!(op, SetOperator::Intersect | SetOperator::Except)
        && matches!(set_quantifier, SetQuantifier::All);
    if counts && is_distinct(left) {
        let Statement::Query(mut marked) = parsed("SELECT 1 OFFSET 0") else { unreachable!("it is a query") };
        std::mem::swap(&mut marked.body, left);
        **left = SetExpr::Query(marked);
    }
}

fn is_distinct(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => matches!(select.distinct, Some(Distinct::Distinct)),
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, .. } => {
            !matches!(set_quantifier, SetQuantifier::All)
        }
        SetExpr::Query(query) => is_distinct(&query.body),
        _ => false,
    }
}
