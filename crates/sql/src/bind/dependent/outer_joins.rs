//! LEFT JOIN in a sub-query, and in one of its own that has been computed already: its rows were numbered and joined so.

use super::beyond::{has, subquery_of};
use super::{Dependent, Rows, condition_of, of_present_pairs, reads_nothing};
use crate::bind::lateral::refers;
use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Projection};
use firn_base::sync::Arc;

impl Dependent<'_> {
    /// The rows of the left side beside those of the right of which the condition is true, else beside NULLs. Which are present, the
    /// left side says. `None` if the right side is computed of outer rows, or the condition asks sub-queries.
    pub(super) fn left_joined(&mut self, rows: Rows, join: &Join, keeps: bool) -> Result<Option<Rows>> {
        if join.null_equality != NullEquality::NullEqualsNothing
            || reads_nothing(&join.right)
            || refers(&join.right, &self.outer)?
            || refers(&join.right, join.left.schema())?
        {
            return Ok(None);
        }
        let condition = condition_of(join);
        if let Some(condition) = &condition
            && has(condition, &mut |part: &Expr| Ok(subquery_of(part).is_some()))?
        {
            return Ok(None);
        }
        let Some(left) = self.over(rows, &join.left, keeps)? else { return Ok(None) };
        let mut outputs = Vec::new();
        let mut second = Vec::new();
        for column in join.right.schema().columns() {
            let name = self.name();
            outputs.push(Expr::Column(column).alias(name.clone()));
            second.push(Column::from_name(name));
        }
        let columns: Vec<Column> = left.columns.iter().chain(&second).cloned().collect();
        let condition = match condition {
            Some(condition) => match self.resolved(&condition, &join.schema, &columns)? {
                Some(condition) => Some(match &left.present {
                    Some(present) => of_present_pairs(condition, present, &second)?,
                    None => condition,
                }),
                None => return Ok(None),
            },
            None => None,
        };
        let condition = left.present_and(condition);
        let right = LogicalPlan::Projection(Projection::try_new(outputs, Arc::clone(&join.right))?);
        let joined = Join::try_new(
            Arc::new(left.plan),
            Arc::new(right),
            Vec::new(),
            condition,
            JoinType::Left,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(Some(Rows { plan: LogicalPlan::Join(joined), columns, is_single: false, ..left }))
    }
}
