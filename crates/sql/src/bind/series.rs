//! `generate_series` of numbers in FROM: its rows are of the type that its bounds have.
//!
//! DataFusion counts in bigints. A series of integers is one of these, made narrow; a series of numerics counts in
//! the smallest unit that a bound or the step has:
//!
//! | written | counts | and yields |
//! |---|---|---|
//! | `generate_series(1, 3)` | `1, 2, 3` | them as integers |
//! | `generate_series(1, 2, 0.5)` | `10, 15, 20` | `1.0, 1.5, 2.0` |
//! | with a bigint; of moments | | what it counts |

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType, lit};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use firn_base::sync::Arc;
use firn_base::{Error, SqlType, Value, numeric};
use firn_exec::error::to_datafusion;
use firn_exec::types;
use futures::StreamExt;
use std::fmt;

/// What a series yields of each number that it counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    /// The number.
    Itself,
    /// It as an integer.
    Integer,
    /// So many decimals behind the point are it.
    Decimals(u8),
}

/// The unit of a series between such bounds, and the bounds as they are to be counted.
pub fn unit(arguments: Vec<Expr>) -> Result<(Unit, Vec<Expr>)> {
    let is = |kind: fn(&ScalarValue) -> bool| move |argument: &Expr| matches!(argument, Expr::Literal(scalar, _) if kind(scalar));
    let is_small = is(|scalar| matches!(scalar, ScalarValue::Int16(_) | ScalarValue::Int32(_)));
    let is_null = is(|scalar| scalar.is_null());
    let is_number = is(|scalar| scalar.data_type().is_numeric() && !scalar.data_type().is_floating());
    let scale = arguments.iter().filter_map(|argument| match argument {
        Expr::Literal(ScalarValue::Decimal128(_, _, scale), _) => Some(scale.unsigned_abs()),
        _ => None,
    });
    match scale.max() {
        Some(scale) if arguments.iter().all(|argument| is_number(argument) || is_null(argument)) => {
            let mut counted =
                arguments.into_iter().map(|bound| count(bound, scale)).collect::<Result<Vec<_>>>()?;
            if counted.len() == 2 {
                counted.push(count(lit(1), scale)?);
            }
            Ok((Unit::Decimals(scale), counted))
        }
        None if arguments.iter().any(is_small)
            && arguments.iter().all(|argument| is_small(argument) || is_null(argument)) =>
        {
            Ok((Unit::Integer, arguments))
        }
        _ => Ok((Unit::Itself, arguments)),
    }
}

/// A bound as a number of units.
fn count(bound: Expr, scale: u8) -> Result<Expr> {
    let Expr::Literal(scalar, _) = bound else { return Ok(bound) };
    if scalar.is_null() {
        return Ok(lit(ScalarValue::Null));
    }
    let (unscaled, from) = match types::value(&scalar).map_err(to_datafusion)? {
        Value::SmallInt(value) => (i128::from(value), 0),
        Value::Integer(value) => (i128::from(value), 0),
        Value::BigInt(value) => (i128::from(value), 0),
        Value::Numeric { unscaled, scale } => (unscaled, scale),
        other => unreachable!("{other:?} passed for an exact number"),
    };
    let counted = numeric::rescale(unscaled, from, scale).and_then(|units| i64::try_from(units).ok());
    let counted = counted.ok_or_else(|| {
        Error::unsupported("generate_series of numerics with more than 18 digits")
            .with_hint("Compute them from a series of bigints.")
    });
    counted.map(lit).map_err(to_datafusion)
}

/// The series of what another counts.
#[derive(Debug)]
struct Series {
    counted: Arc<dyn TableProvider>,
    ty: DataType,
    schema: SchemaRef,
}

/// The series that yields of what another counts.
pub fn of(counted: Arc<dyn TableProvider>, unit: Unit) -> Arc<dyn TableProvider> {
    let ty = match unit {
        Unit::Itself => return counted,
        Unit::Integer => DataType::Int32,
        Unit::Decimals(scale) => {
            let precision = numeric::MAX_PRECISION.min(19 + scale);
            types::data_type(SqlType::Numeric { precision, scale })
        }
    };
    let field = counted.schema().field(0).clone().with_data_type(ty.clone());
    Arc::new(Series { counted, ty, schema: Arc::new(Schema::new(vec![field])) })
}

#[async_trait]
impl TableProvider for Series {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let counted = self.counted.scan(state, projection, filters, limit).await?;
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema(),
        };
        let orderings = counted.properties().output_ordering().cloned();
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orderings),
            counted.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(SeriesExec { counted, ty: self.ty.clone(), schema, properties: Arc::new(properties) }))
    }
}

/// The leaf of a plan that yields a series. What counts is no child of it: nothing comes between the two,
/// and numbers come in their order, as users expect who ask for none.
#[derive(Debug)]
struct SeriesExec {
    counted: Arc<dyn ExecutionPlan>,
    ty: DataType,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SeriesExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series: type={}", self.ty)
    }
}

impl ExecutionPlan for SeriesExec {
    fn name(&self) -> &str {
        "Series"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// A recursive query runs its step many times: each counts anew.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(SeriesExec {
            counted: Arc::clone(&self.counted).reset_state()?,
            ty: self.ty.clone(),
            schema: Arc::clone(&self.schema),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (schema, ty) = (Arc::clone(&self.schema), self.ty.clone());
        let batches = self.counted.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let yielded = |column: &ArrayRef| yielded(column, &ty);
            let columns = batch.columns().iter().map(yielded).collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }
}

/// Counted numbers as values of a type: decimals are what their units are called together.
fn yielded(counted: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *ty else {
        // All lie between bounds that are integers.
        return Ok(cast(counted, ty)?);
    };
    let units = counted.as_primitive::<Int64Type>().unary::<_, Decimal128Type>(i128::from);
    Ok(Arc::new(units.with_precision_and_scale(precision, scale)?))
}
