//! Expressions that only DataFusion evaluates, on batches of one row.
//!
//! Parameters and the transaction's time become columns of that batch, beside the columns that the
//! expression refers to; so the physical expression is made once and knows neither.

use super::compile::{Positions, parameter_index};
use super::{Row, parameter};
use crate::error::{from_datafusion, to_datafusion};
use crate::sleep::is_sleep;
use crate::{lower, types};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlType, Value};

/// Where a column of the batch comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Source {
    Cell { position: usize, ty: SqlType },
    Parameter { index: usize, ty: SqlType },
    Now,
}

/// A physical expression and how to make the batch that it wants.
#[derive(Debug)]
pub(super) struct Delegate {
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    sources: Vec<Source>,
    is_constant: bool,
}

impl Delegate {
    pub(super) fn new(expression: &Expr, schema: &DFSchema, positions: Positions<'_>) -> Result<Delegate> {
        let mut fields: Vec<FieldRef> = Vec::new();
        let mut sources: Vec<Source> = Vec::new();
        // The name of the batch's column for a source, the same whenever it is asked for.
        let mut column = |source: Source, mut field: datafusion::arrow::datatypes::Field| {
            let position = sources.iter().position(|known| *known == source).unwrap_or_else(|| {
                field.set_name(format!("#{}", sources.len()));
                fields.push(Arc::new(field.with_nullable(true)));
                sources.push(source);
                sources.len() - 1
            });
            Expr::Column(Column::new_unqualified(format!("#{position}")))
        };
        let rewritten = expression.clone().transform(|node| {
            let unsupported = |what: &str| to_datafusion(Error::unsupported(what));
            Ok(match &node {
                Expr::Column(name) => {
                    let index = schema.index_of_column(name)?;
                    let field = schema.field(index);
                    let position = positions(index)
                        .ok_or_else(|| unsupported(&format!("a reference to column {name} here")))?;
                    let ty = types::sql_type(field)
                        .ok_or_else(|| unsupported(&format!("the type of column {name}")))?;
                    Transformed::yes(column(Source::Cell { position, ty }, field.as_ref().clone()))
                }
                Expr::Placeholder(Placeholder { id, field: Some(field) }) => {
                    let (index, ty) = parameter_index(id)
                        .zip(types::sql_type(field))
                        .ok_or_else(|| unsupported(&format!("parameter {id} of this type")))?;
                    Transformed::yes(column(Source::Parameter { index, ty }, field.as_ref().clone()))
                }
                Expr::ScalarFunction(call)
                    if call.args.is_empty()
                        && matches!(call.name(), "now" | "current_timestamp" | "transaction_timestamp") =>
                {
                    let (_, field) = node.to_field(schema)?;
                    Transformed::yes(column(Source::Now, field.as_ref().clone()))
                }
                // Whoever evaluates this holds a guard.
                Expr::ScalarFunction(call) if is_sleep(&call.func) => {
                    return Err(unsupported(&format!("{} in this place", call.name())));
                }
                Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) => {
                    return Err(unsupported("a sub-query in this place"));
                }
                _ => Transformed::no(node),
            })
        });
        let rewritten = rewritten.map_err(from_datafusion)?.data;
        let schema = Arc::new(Schema::new(fields));
        let df_schema = DFSchema::try_from(schema.as_ref().clone()).map_err(from_datafusion)?;
        let lowered = lower::expression(rewritten.clone(), &df_schema, &[]).map_err(from_datafusion)?;
        let expression = create_physical_expr(
            &lowered,
            &df_schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )
        .map_err(from_datafusion)?;
        let is_constant =
            !rewritten.is_volatile() && !sources.iter().any(|source| matches!(source, Source::Cell { .. }));
        Ok(Delegate { expression, schema, sources, is_constant })
    }

    /// Whether it yields the same on every row.
    pub(super) fn is_constant(&self) -> bool {
        self.is_constant
    }

    pub(super) fn evaluate(&self, row: Row<'_>) -> Result<Value> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            let scalar = match *source {
                Source::Cell { position, ty } => types::scalar(&row.cells[position].to_value(ty), ty),
                Source::Parameter { index, ty } => types::scalar(parameter(row, index)?, ty),
                Source::Now => {
                    ScalarValue::TimestampMicrosecond(Some(row.environment.options.now), Some("UTC".into()))
                }
            };
            let scalar = scalar.cast_to(field.data_type()).map_err(from_datafusion)?;
            columns.push(scalar.to_array().map_err(from_datafusion)?);
        }
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &one_row)
            .map_err(|error| from_datafusion(error.into()))?;
        let result = self.expression.evaluate(&batch).map_err(from_datafusion)?;
        let array = result.into_array(1).map_err(from_datafusion)?;
        types::value_at(&array, 0)
    }
}
