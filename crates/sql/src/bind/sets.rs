//! Set operations: the types of their columns, and how often rows come.
//!
//! The planner makes joins of INTERSECT and EXCEPT, over all columns and with NULLs equal. Those with ALL count rows,
//! so equal ones are numbered on both sides and the number is one more column to be equal in:
//!
//! | written | rows of `a` |
//! |---|---|
//! | `a INTERSECT b`, `a EXCEPT b` | without duplicates, that `b` has, or has not |
//! | `a INTERSECT ALL b` | numbered, that `b` has under the same number: as many as the side with fewer has |
//! | `a EXCEPT ALL b` | numbered, that `b` has not under the same number: as many as `a` has more |
//!
//! A DISTINCT on the left is the planner's, of an operation without ALL: below one with ALL those of users are marked
//! (`rewrite/counted.rs`).

use super::nodes::{Nodes, with_types};
use super::operators::{Operand, adopt, common_type, operand, plain_name, united};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result};
use datafusion::functions_window::row_number::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, Limit, LogicalPlan, LogicalPlanBuilder, Projection, SkipType,
    SubqueryAlias, Union,
};
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, SqlState, SqlType};
use firn_exec::error::to_datafusion;
use firn_exec::types::{self, NAME_END};

/// Whether a join is an INTERSECT or an EXCEPT.
pub fn is_set(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
}

impl Nodes<'_> {
    /// Bare literals in one part of a UNION take the type that another part has there; 42804 if
    /// two parts have types that do not meet.
    pub(super) fn union(&self, union: Union) -> Result<LogicalPlan> {
        let mut inputs: Vec<LogicalPlan> = union.inputs.iter().map(|input| input.as_ref().clone()).collect();
        let mut changed = false;
        for column in 0..union.schema.fields().len() {
            changed |= self.column("UNION", &mut inputs, column)?;
        }
        let types: Vec<Option<SqlType>> = (0..union.schema.fields().len())
            .map(|column| {
                let types: Option<Vec<SqlType>> =
                    inputs.iter().map(|input| output_type(input, column)).collect();
                united(&types?)
            })
            .collect();
        if types.iter().any(Option::is_some) {
            inputs = inputs.into_iter().map(|input| with_types(input, &types)).collect::<Result<_>>()?;
            changed = true;
        }
        // A part that is a set operation may have other types by now than the planner saw, which would count as well.
        let is_as_planned = |(part, planned): (&FieldRef, &FieldRef)| {
            part.data_type() == planned.data_type() && types::sql_type(part) == types::sql_type(planned)
        };
        let are_as_planned =
            |part: &LogicalPlan| part.schema().fields().iter().zip(union.schema.fields()).all(is_as_planned);
        if !changed && inputs.iter().all(are_as_planned) {
            return Ok(LogicalPlan::Union(union));
        }
        let inputs = inputs.into_iter().map(Arc::new).collect();
        Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union)
    }

    /// INTERSECT and EXCEPT.
    pub(super) fn set(&self, join: Join) -> Result<LogicalPlan> {
        if is_numbered(&join) {
            // That of a view has been looked at before.
            return Ok(LogicalPlan::Join(join));
        }
        let (rows, is_distinct) = match Arc::unwrap_or_clone(join.left) {
            LogicalPlan::Distinct(Distinct::All(rows)) => (Arc::unwrap_or_clone(rows), true),
            LogicalPlan::Limit(limit) if is_mark(&limit)? => (Arc::unwrap_or_clone(limit.input), false),
            rows => (rows, false),
        };
        let operation = if join.join_type == JoinType::LeftSemi { "INTERSECT" } else { "EXCEPT" };
        let mut sides = [rows, Arc::unwrap_or_clone(join.right)];
        let columns = sides[0].schema().fields().len();
        for column in 0..columns {
            self.column(operation, &mut sides, column)?;
        }
        let [left, right] = sides;
        let common = |column| common(output_type(&left, column)?, output_type(&right, column)?);
        let types: Vec<Option<SqlType>> = (0..columns).map(common).collect();
        let (left, right) = (with_types(left, &types)?, with_types(right, &types)?);
        if is_distinct {
            // Rows that differ no more once they are cast count as one.
            let left = LogicalPlan::Distinct(Distinct::All(Arc::new(left)));
            return LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right), ..join })
                .recompute_schema();
        }
        let columns: Vec<Expr> = left.schema().iter().map(Expr::from).collect();
        let (left, of_left) = numbered(left, "left")?;
        let (right, of_right) = numbered(right, "right")?;
        let mut on = join.on;
        on.push((of_left, of_right));
        let joined = LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right), on, ..join });
        Projection::try_new(columns, Arc::new(joined.recompute_schema()?)).map(LogicalPlan::Projection)
    }

    /// One column of a set operation; whether a part has changed.
    fn column(&self, operation: &str, inputs: &mut [LogicalPlan], column: usize) -> Result<bool> {
        let known = |input: &LogicalPlan| match output(input, column) {
            Some((expression, schema)) => operand(expression, schema, self.parameters),
            None => output_type(input, column).map_or(Operand::Foreign, Operand::Known),
        };
        let operands: Vec<Operand> = inputs.iter().map(known).collect();
        if operands.contains(&Operand::Foreign) {
            return Ok(false);
        }
        let mut types = operands.iter().filter_map(|operand| operand.known());
        let Some(ty) = types.next() else { return Ok(false) };
        for other in types {
            if common_type(ty, other).is_none() {
                let (ty, other) = (plain_name(ty), plain_name(other));
                let message = format!("{operation} types {ty} and {other} cannot be matched");
                return Err(to_datafusion(Error::new(SqlState::DATATYPE_MISMATCH, message)));
            }
        }
        let mut changed = false;
        for (input, operand) in inputs.iter_mut().zip(operands) {
            if operand == Operand::Unknown
                && let Some(adopted) = self.adopted(input, column, ty)?
            {
                *input = adopted;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// A plan whose column, of which no type is known, has taken one; `None` if it is computed further below.
    fn adopted(&self, plan: &LogicalPlan, column: usize, ty: SqlType) -> Result<Option<LogicalPlan>> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let mut outputs = projection.expr.clone();
                let name = outputs[column].schema_name().to_string();
                // A literal beside a char(n) may be longer; all are text then.
                let is_text = matches!((ty, &outputs[column]), (SqlType::Char(_), Expr::Literal(value, _)) if !value.is_null());
                let ty = if is_text { SqlType::Text } else { ty };
                let adopted = adopt(std::mem::take(&mut outputs[column]), ty, self.parameters, self.zone)?;
                outputs[column] =
                    if adopted.schema_name().to_string() == name { adopted } else { adopted.alias(name) };
                let projection = Projection::try_new(outputs, projection.input.clone())?;
                Ok(Some(LogicalPlan::Projection(projection)))
            }
            LogicalPlan::SubqueryAlias(named) => {
                let Some(input) = self.adopted(&named.input, column, ty)? else { return Ok(None) };
                let named = SubqueryAlias::try_new(Arc::new(input), named.alias.clone())?;
                Ok(Some(LogicalPlan::SubqueryAlias(named)))
            }
            _ => Ok(None),
        }
    }
}

/// The type of a column of INTERSECT or EXCEPT, if it is not the one of the left side; the comparison of
/// exact numbers finds another for itself.
fn common(left: SqlType, right: SqlType) -> Option<SqlType> {
    use SqlType::{BigInt, Integer, SmallInt};
    match (left, right) {
        (SmallInt, Integer | BigInt) | (Integer, BigInt) => Some(right),
        _ => united(&[left, right]),
    }
}

/// Whether a limit is nothing but the mark of rows on the left of an operation with ALL.
fn is_mark(limit: &Limit) -> Result<bool> {
    Ok(limit.fetch.is_none() && matches!(limit.get_skip_type()?, SkipType::Literal(0)))
}

/// Whether the rows of both sides have their numbers.
fn is_numbered(join: &Join) -> bool {
    let name = number_of("left");
    join.on.iter().any(|(left, _)| matches!(left, Expr::Column(column) if column.name == name))
}

/// The name of the column that numbers the rows of a side. It is nobody else's.
fn number_of(side: &str) -> String {
    format!("{NAME_END}number {side}")
}

/// Rows with one more column that numbers equal ones, and that column.
fn numbered(rows: LogicalPlan, side: &str) -> Result<(LogicalPlan, Expr)> {
    let mut columns: Vec<Expr> = rows.schema().iter().map(Expr::from).collect();
    let number = row_number().partition_by(columns.clone()).build()?;
    let computed = Column::from_name(number.schema_name().to_string());
    let name = number_of(side);
    columns.push(Expr::Column(computed).alias(&name));
    let rows = LogicalPlanBuilder::window_plan(rows, [number])?;
    let rows = Projection::try_new(columns, Arc::new(rows))?;
    Ok((LogicalPlan::Projection(rows), Expr::Column(Column::from_name(name))))
}

/// The type of a column of a plan, if SQL has a name for it.
pub fn output_type(plan: &LogicalPlan, column: usize) -> Option<SqlType> {
    types::parameter_type(plan.schema().field(column)).and_then(ParameterType::single)
}

/// What a plan computes a column by, over which columns, if it is a projection, under a name or not.
fn output(plan: &LogicalPlan, column: usize) -> Option<(&Expr, &DFSchema)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            Some((&projection.expr[column], projection.input.schema().as_ref()))
        }
        LogicalPlan::SubqueryAlias(named) => output(&named.input, column),
        _ => None,
    }
}
