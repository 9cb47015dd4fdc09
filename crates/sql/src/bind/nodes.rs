//! Analysis of plan nodes as a whole: what PostgreSQL means by a set operation, by ORDER BY and by an
//! aggregation where the expressions alone do not tell.

use super::operators::{Operand, adopt, cast, common_type, length, operand, plain_name};
use super::parameters::Parameters;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, Union,
};
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, SqlState, SqlType, TimeZoneSetting};
use firn_exec::error::to_datafusion;
use firn_exec::types;

/// The pass over nodes whose expressions have their types.
pub struct Nodes<'a> {
    /// What is known of parameters.
    pub parameters: &'a Parameters,
    /// The session's time zone.
    pub zone: TimeZoneSetting,
}

impl Nodes<'_> {
    /// Analyses all nodes of a plan.
    pub fn analyse(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.sorts(self.unions(plan)?)
    }

    /// Spans of time are sorted by their lengths.
    fn sorts(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let sorted = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Sort(mut sort) = node else { return Ok(Transformed::no(node)) };
            let mut changed = false;
            for key in &mut sort.expr {
                if operand(&key.expr, sort.input.schema(), self.parameters)
                    == Operand::Known(SqlType::Interval)
                {
                    key.expr = length(std::mem::take(&mut key.expr));
                    changed = true;
                }
            }
            Ok(if changed { Transformed::yes } else { Transformed::no }(LogicalPlan::Sort(sort)))
        })?;
        Ok(sorted.data)
    }

    /// Bare literals in one part of a set operation take the type that another part has there; 42804 if
    /// two parts have types that do not meet.
    fn unions(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let unified = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Union(union) = node else { return Ok(Transformed::no(node)) };
            let mut inputs: Vec<LogicalPlan> =
                union.inputs.iter().map(|input| input.as_ref().clone()).collect();
            let mut changed = false;
            for column in 0..union.schema.fields().len() {
                changed |= self.union_column(&mut inputs, column)?;
            }
            if !changed {
                return Ok(Transformed::no(LogicalPlan::Union(union)));
            }
            let inputs = inputs.into_iter().map(Arc::new).collect();
            Union::try_new_with_loose_types(inputs).map(|union| Transformed::yes(LogicalPlan::Union(union)))
        })?;
        Ok(unified.data)
    }

    /// One column of a set operation; whether a part has changed.
    fn union_column(&self, inputs: &mut [LogicalPlan], column: usize) -> Result<bool> {
        let known = |input: &LogicalPlan| match output(input, column) {
            Some((expression, schema)) => operand(expression, schema, self.parameters),
            None => types::parameter_type(input.schema().field(column))
                .and_then(ParameterType::single)
                .map_or(Operand::Foreign, Operand::Known),
        };
        let operands: Vec<Operand> = inputs.iter().map(known).collect();
        if operands.contains(&Operand::Foreign) {
            return Ok(false);
        }
        let mut types = operands.iter().filter_map(|operand| match operand {
            Operand::Known(ty) => Some(*ty),
            _ => None,
        });
        let Some(ty) = types.next() else { return Ok(false) };
        for other in types {
            if common_type(ty, other).is_none() {
                let message =
                    format!("UNION types {} and {} cannot be matched", plain_name(ty), plain_name(other));
                return Err(to_datafusion(Error::new(SqlState::DATATYPE_MISMATCH, message)));
            }
        }
        let mut changed = false;
        for (input, operand) in inputs.iter_mut().zip(operands) {
            if let (Operand::Unknown, LogicalPlan::Projection(projection)) = (operand, &*input) {
                let mut outputs = projection.expr.clone();
                let name = outputs[column].schema_name().to_string();
                let adopted = adopt(std::mem::take(&mut outputs[column]), ty, self.parameters, self.zone)?;
                outputs[column] =
                    if adopted.schema_name().to_string() == name { adopted } else { adopted.alias(name) };
                *input = LogicalPlan::Projection(Projection::try_new(outputs, projection.input.clone())?);
                changed = true;
            }
        }
        Ok(changed)
    }
}

/// `sum(real)` is a real, of which DataFusion makes a double.
pub fn real_sums(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Aggregate(aggregate) if !real_sums_of(aggregate).is_empty());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let narrowed = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else {
            return node.recompute_schema().map(Transformed::no);
        };
        let reals = real_sums_of(aggregate);
        if reals.is_empty() {
            return node.recompute_schema().map(Transformed::no);
        }
        let column = |(position, (qualifier, field)): (usize, (Option<&TableReference>, &FieldRef))| {
            let column = Expr::from((qualifier, field));
            match reals.contains(&position) {
                true => cast(column, SqlType::Real).alias_qualified(qualifier.cloned(), field.name()),
                false => column,
            }
        };
        let columns: Vec<Expr> = aggregate.schema.iter().enumerate().map(column).collect();
        LogicalPlanBuilder::from(node).project(columns)?.build().map(Transformed::yes)
    })?;
    Ok(narrowed.data)
}

/// The columns of an aggregation that are sums of reals.
fn real_sums_of(aggregate: &Aggregate) -> Vec<usize> {
    let is_real_sum = |expression: &Expr| match expression {
        Expr::AggregateFunction(call) if call.func.name() == "sum" => {
            let argument = call.params.args.first();
            let ty = argument.and_then(|argument| argument.get_type(aggregate.input.schema()).ok());
            ty == Some(DataType::Float32)
        }
        _ => false,
    };
    let grouped = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    (grouped..aggregate.schema.fields().len())
        .filter(|position| is_real_sum(&aggregate.aggr_expr[position - grouped]))
        .collect()
}

/// What a plan computes a column by, over which columns, if it is a projection.
fn output(plan: &LogicalPlan, column: usize) -> Option<(&Expr, &DFSchema)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            Some((&projection.expr[column], projection.input.schema().as_ref()))
        }
        _ => None,
    }
}
