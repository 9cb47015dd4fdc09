//! Relations that are computed: their shape from a table of texts, their rows from a function.

use super::{Source, rows};
use async_trait::async_trait;
use datafusion::arrow::array::builder::{
    BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, ListBuilder,
    StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use firn_base::sync::Arc;
use firn_exec::runtime::SessionOptions;
use std::fmt;
use std::sync::LazyLock;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Boolean,
    SmallInt,
    /// Also oids
    Integer,
    BigInt,
    Real,
    Double,
    /// Also names and single characters
    Text,
    TimestampTz,
    Interval,
    Bytea,
    SmallIntList,
    IntegerList,
    RealList,
    TextList,
}

impl Kind {
    fn parse(name: &str) -> Kind {
        match name {
            "bool" => Kind::Boolean,
            "int2" => Kind::SmallInt,
            "int4" => Kind::Integer,
            "int8" => Kind::BigInt,
            "float4" => Kind::Real,
            "float8" => Kind::Double,
            "text" => Kind::Text,
            "timestamptz" => Kind::TimestampTz,
            "interval" => Kind::Interval,
            "bytea" => Kind::Bytea,
            "_int2" => Kind::SmallIntList,
            "_int4" => Kind::IntegerList,
            "_float4" => Kind::RealList,
            "_text" => Kind::TextList,
            other => panic!("no kind of column is called {other}"),
        }
    }

    /// As Arrow. Strings are plain Utf8, which every function of DataFusion takes.
    pub(crate) fn data_type(self) -> DataType {
        let list = |element| DataType::List(Arc::new(Field::new("item", element, true)));
        match self {
            Kind::Boolean => DataType::Boolean,
            Kind::SmallInt => DataType::Int16,
            Kind::Integer => DataType::Int32,
            Kind::BigInt => DataType::Int64,
            Kind::Real => DataType::Float32,
            Kind::Double => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Kind::Bytea => DataType::Binary,
            Kind::SmallIntList => list(DataType::Int16),
            Kind::IntegerList => list(DataType::Int32),
            Kind::RealList => list(DataType::Float32),
            Kind::TextList => list(DataType::Utf8),
        }
    }

    /// The oid of PostgreSQL's type.
    pub(crate) fn type_oid(self) -> i64 {
        match self {
            Kind::Boolean => 16,
            Kind::Bytea => 17,
            Kind::BigInt => 20,
            Kind::SmallInt => 21,
            Kind::Integer => 23,
            Kind::Text => 25,
            Kind::Real => 700,
            Kind::Double => 701,
            Kind::TimestampTz => 1184,
            Kind::Interval => 1186,
            Kind::SmallIntList => 1005,
            Kind::IntegerList => 1007,
            Kind::TextList => 1009,
            Kind::RealList => 1021,
        }
    }

    /// What a column holds that a row does not set: as in PostgreSQL, flags and numbers are never
    /// NULL, texts and lists are where nothing is known.
    fn default(self) -> Cell {
        match self {
            Kind::Boolean => Cell::Boolean(false),
            Kind::SmallInt | Kind::Integer => Cell::Integer(0),
            _ => Cell::Null,
        }
    }
}

/// One value of a computed row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cell {
    Null,
    Boolean(bool),
    /// Of any width.
    Integer(i64),
    Float(f64),
    Text(String),
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Boolean(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Integer(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Float(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Cell {
        Cell::Text(value)
    }
}

impl From<Vec<i64>> for Cell {
    fn from(value: Vec<i64>) -> Cell {
        Cell::Integers(value)
    }
}

impl From<Vec<String>> for Cell {
    fn from(value: Vec<String>) -> Cell {
        Cell::Texts(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, T::into)
    }
}

/// A row by column names; columns that it does not name hold [`Kind::default`].
pub(crate) type Row = Vec<(&'static str, Cell)>;

/// The shape of a relation.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) oid: i64,
    /// `r` or `v`.
    pub(crate) relkind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<(&'static str, Kind)>,
    pub(crate) rows: Option<RowsOf>,
}

impl Relation {
    /// Whether there is never a row, because we lack what it is about.
    pub(crate) fn is_always_empty(&self) -> bool {
        self.rows.is_none()
    }

    fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|(name, kind)| Field::new(*name, kind.data_type(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn batch(&self, source: &Source) -> Result<RecordBatch> {
        let rows = self.rows.map_or_else(Vec::new, |rows| rows(source));
        let mut columns: Vec<Vec<Cell>> =
            self.columns.iter().map(|(_, kind)| vec![kind.default(); rows.len()]).collect();
        let count = rows.len();
        for (position, row) in rows.into_iter().enumerate() {
            for (name, cell) in row {
                let column = self.columns.iter().position(|(column, _)| *column == name);
                let column = column.unwrap_or_else(|| panic!("{} has no column {name}", self.name));
                columns[column][position] = cell;
            }
        }
        let arrays =
            self.columns.iter().zip(&columns).map(|((_, kind), cells)| array(*kind, cells)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.schema(), arrays, &options)?)
    }
}

/// What makes the rows of a relation.
type RowsOf = fn(&Source) -> Vec<Row>;

/// Reads shapes, one per line: oid, relkind, name, columns as `name:kind`.
pub(crate) fn parse_relations(text: &'static str, rows: fn(&str) -> Option<RowsOf>) -> Vec<Relation> {
    let relation = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().expect("four fields per line");
        let (oid, relkind, name, columns) = (field(), field(), field(), field());
        let column = |column: &'static str| {
            let (name, kind) = column.split_once(':').expect("name and kind");
            (name, Kind::parse(kind))
        };
        Relation {
            oid: oid.parse().expect("a number"),
            relkind,
            name,
            columns: columns.split(' ').map(column).collect(),
            rows: rows(name),
        }
    };
    text.lines().map(relation).collect()
}

static RELATIONS: LazyLock<Vec<Relation>> =
    LazyLock::new(|| parse_relations(include_str!("relations.tsv"), rows::of));

/// The relations of `pg_catalog`, by name.
pub(crate) fn all() -> &'static [Relation] {
    &RELATIONS
}

/// The relation of that name in `pg_catalog`.
pub(crate) fn find(name: &str) -> Option<&'static Relation> {
    RELATIONS.iter().find(|relation| relation.name == name)
}

/// An array of cells that all fit `kind`.
pub(crate) fn array(kind: Kind, cells: &[Cell]) -> ArrayRef {
    let wrong = |cell: &Cell| -> ! { panic!("{cell:?} is no {kind:?}") };
    macro_rules! build {
        ($builder:expr, $pattern:pat => $value:expr) => {{
            let mut builder = $builder;
            for cell in cells {
                match cell {
                    Cell::Null => builder.append_null(),
                    $pattern => builder.append_value($value),
                    other => wrong(other),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    macro_rules! build_list {
        ($builder:expr, $pattern:pat => $values:expr, $element:ident => $value:expr) => {{
            let mut builder = ListBuilder::new($builder);
            for cell in cells {
                match cell {
                    Cell::Null => builder.append_null(),
                    $pattern => {
                        for $element in $values {
                            builder.values().append_value($value);
                        }
                        builder.append(true);
                    }
                    other => wrong(other),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    match kind {
        Kind::Boolean => build!(BooleanBuilder::new(), Cell::Boolean(value) => *value),
        Kind::SmallInt => build!(Int16Builder::new(), Cell::Integer(value) => *value as i16),
        Kind::Integer => build!(Int32Builder::new(), Cell::Integer(value) => *value as i32),
        Kind::BigInt => build!(Int64Builder::new(), Cell::Integer(value) => *value),
        Kind::TimestampTz => {
            let builder = TimestampMicrosecondBuilder::new().with_timezone("UTC");
            build!(builder, Cell::Integer(micros) => *micros)
        }
        Kind::Real => build!(Float32Builder::new(), Cell::Float(value) => *value as f32),
        Kind::Double => build!(Float64Builder::new(), Cell::Float(value) => *value),
        Kind::Text => build!(StringBuilder::new(), Cell::Text(value) => value),
        Kind::SmallIntList => {
            build_list!(Int16Builder::new(), Cell::Integers(values) => values, value => *value as i16)
        }
        Kind::IntegerList => {
            build_list!(Int32Builder::new(), Cell::Integers(values) => values, value => *value as i32)
        }
        Kind::TextList => build_list!(StringBuilder::new(), Cell::Texts(values) => values, value => value),
        // Nothing that we know is of these types.
        Kind::Interval | Kind::Bytea | Kind::RealList => {
            assert!(cells.iter().all(|cell| *cell == Cell::Null), "{kind:?} holds NULL only");
            new_null_array(&kind.data_type(), cells.len())
        }
    }
}

/// A relation as DataFusion scans it. Rows are made when the scan is planned.
pub(crate) struct CatalogTable {
    relation: &'static Relation,
    schema: SchemaRef,
    source: Source,
}

impl CatalogTable {
    pub(crate) fn new(relation: &'static Relation, source: Source) -> CatalogTable {
        CatalogTable { relation, schema: relation.schema(), source }
    }
}

impl fmt::Debug for CatalogTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CatalogTable").field(&self.relation.name).finish()
    }
}

#[async_trait]
impl TableProvider for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let session = state.config().options().extensions.get::<SessionOptions>();
        let source =
            Source { services: session.map(|session| session.services.clone()), ..self.source.clone() };
        let batch = self.relation.batch(&source)?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}
