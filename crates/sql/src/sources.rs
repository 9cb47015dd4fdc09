//! Sources: Arrow batches of the program itself, which a session reads as tables.
//!
//! A source has a name that only its session knows, and which goes before the names of tables, as a
//! temporary table's does in PostgreSQL. It can only be read, by queries and by what contains them. Its
//! batches are read where they lie; a column of a type that SQL has no word for, such as a dictionary or an
//! unsigned number, is cast batch by batch to the type that comes nearest, and values that no value of their type can be,
//! such as times of day of thirty hours, are an error of whoever reads them.

use crate::arrow;
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, Expr, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, SqlState, SqlType};
use firn_exec::error::{from_datafusion, to_datafusion};
use firn_exec::types;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};

/// Batches that can be read as a table.
#[derive(Debug)]
pub struct Source {
    /// As they came.
    rows: MemTable,
    /// As queries see them.
    schema: SchemaRef,
}

impl Source {
    /// Batches of that schema, whose metadata is passed over. 0A000 for a column of a type that cannot be
    /// cast to any of SQL's, 42701 if two have one name.
    pub fn new(schema: &Schema, batches: Vec<RecordBatch>) -> firn_base::Result<Source> {
        let mut fields: Vec<FieldRef> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            if fields.iter().any(|known| known.name() == field.name()) {
                let message = format!("column \"{}\" specified more than once", field.name());
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
            }
            let target = parameter_type(field.data_type())
                .map(|ty| types::parameter_field(field.name(), ty))
                .filter(|target| can_cast_types(field.data_type(), target.data_type()));
            fields.push(target.ok_or_else(|| {
                Error::unsupported(format!("a column of type {} (\"{}\")", field.data_type(), field.name()))
                    .with_hint("Leave the column out, or convert it first.")
            })?);
        }
        let plain = |field: &FieldRef| Field::new(field.name(), field.data_type().clone(), true);
        let raw = Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()));
        let external = from_datafusion;
        let batches = batches.into_iter().map(|batch| {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&raw), batch.columns().to_vec(), &options)
        });
        let batches =
            batches.collect::<std::result::Result<_, _>>().map_err(|error| external(error.into()))?;
        let rows = MemTable::try_new(raw, vec![batches]).map_err(external)?;
        Ok(Source { rows, schema: Arc::new(Schema::new(fields)) })
    }
}

/// The type that comes nearest to an Arrow type.
fn parameter_type(data_type: &DataType) -> Option<ParameterType> {
    match data_type {
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            sql_type(element.data_type()).map(ParameterType::array_of)
        }
        other => sql_type(other).map(ParameterType::Single),
    }
}

fn sql_type(data_type: &DataType) -> Option<SqlType> {
    match data_type {
        DataType::Dictionary(_, values) => sql_type(values),
        DataType::RunEndEncoded(_, values) => sql_type(values.data_type()),
        DataType::UInt64 => Some(SqlType::Numeric { precision: 20, scale: 0 }),
        DataType::Float16 => Some(SqlType::Real),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let precision = (*precision).min(38);
            let scale = u8::try_from(*scale).ok().filter(|scale| *scale <= precision)?;
            Some(SqlType::Numeric { precision, scale })
        }
        DataType::Date64 => Some(SqlType::Date),
        DataType::FixedSizeBinary(bytes) if *bytes != 16 => Some(SqlType::Bytea),
        nested if nested.is_nested() => None,
        other => types::sql_type(&Field::new("", other.clone(), true)),
    }
}

#[async_trait]
impl TableProvider for Source {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = self.rows.scan(state, projection, filters, limit).await?;
        let seen = match projection {
            Some(projection) => Arc::new(self.schema.project(projection)?),
            None => Arc::clone(&self.schema),
        };
        let is_checked = |field: &FieldRef| arrow::may_be_foreign(field.data_type());
        if *seen == *scan.schema() && !seen.fields().iter().any(is_checked) {
            return Ok(scan);
        }
        let raw = scan.schema();
        let cast = |(position, field): (usize, &FieldRef)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), position));
            let is_read_as_it_is = raw.field(position).data_type() == field.data_type()
                && !arrow::may_be_foreign(field.data_type());
            let expression = match is_read_as_it_is {
                true => column,
                false => Arc::new(TakenOver { column, field: Arc::clone(field) }),
            };
            (expression, field.name().clone())
        };
        let columns: Vec<_> = seen.fields().iter().enumerate().map(cast).collect();
        Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
    }
}

/// A column as queries see it ([`arrow::taken_over`]). A cast of DataFusion's would be Arrow's, which reads NULLs in
/// dictionaries as empty strings.
#[derive(Debug)]
struct TakenOver {
    column: Arc<dyn PhysicalExpr>,
    field: FieldRef,
}

impl PartialEq for TakenOver {
    fn eq(&self, other: &TakenOver) -> bool {
        self.column.eq(&other.column) && self.field == other.field
    }
}

impl Eq for TakenOver {}

impl Hash for TakenOver {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
        self.field.hash(state);
    }
}

impl Display for TakenOver {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CAST({} AS {})", self.column, self.field.data_type())
    }
}

impl PhysicalExpr for TakenOver {
    fn return_field(&self, _input: &Schema) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let column: ArrayRef = self.column.evaluate(batch)?.into_array(batch.num_rows())?;
        let given = Field::new(self.field.name(), column.data_type().clone(), true);
        let place = |row| format!("row {} of a batch", row + 1);
        let taken = arrow::taken_over(&given, &column, self.field.data_type());
        Ok(ColumnarValue::Array(taken.map_err(|error| to_datafusion(arrow::with_row(error, place)))?))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.column]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let column = children.pop().expect("it has one child");
        Ok(Arc::new(TakenOver { column, field: Arc::clone(&self.field) }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The sources of a session, by name. Equal if they are the very same.
#[derive(Clone, Debug, Default)]
pub struct Sources(BTreeMap<String, Arc<Source>>);

impl Sources {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The source that a name stands for, if it has no schema.
    pub fn find(&self, schema: Option<&str>, name: &str) -> Option<&Arc<Source>> {
        if schema.is_some() { None } else { self.0.get(name) }
    }

    /// These, and one under a name, which it takes from another.
    pub fn with(&self, name: &str, source: Source) -> Sources {
        let mut sources = self.0.clone();
        sources.insert(name.to_owned(), Arc::new(source));
        Sources(sources)
    }

    /// These but for one; `None` if there is none of that name.
    pub fn without(&self, name: &str) -> Option<Sources> {
        let mut sources = self.0.clone();
        sources.remove(name).map(|_| Sources(sources))
    }
}

impl PartialEq for Sources {
    fn eq(&self, other: &Sources) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((name, source), (other_name, other))| name == other_name && Arc::ptr_eq(source, other))
    }
}
