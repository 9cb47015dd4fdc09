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
use firn_base::{Type, TypeId, type_table};
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
    /// What the old engine has for a type of PostgreSQL.
    fn of(ty: Type) -> Kind {
        match ty.id {
            TypeId::BOOL => Kind::Boolean,
            TypeId::INT2 => Kind::SmallInt,
            TypeId::INT4 | TypeId::OID | TypeId::XID | TypeId::REGPROC | TypeId::REGTYPE => Kind::Integer,
            TypeId::INT8 => Kind::BigInt,
            TypeId::FLOAT4 => Kind::Real,
            TypeId::FLOAT8 => Kind::Double,
            TypeId::TIMESTAMPTZ => Kind::TimestampTz,
            TypeId::INTERVAL => Kind::Interval,
            TypeId::BYTEA => Kind::Bytea,
            TypeId::INT2_ARRAY | TypeId::INT2VECTOR => Kind::SmallIntList,
            TypeId::OIDVECTOR => Kind::IntegerList,
            TypeId::FLOAT4_ARRAY => Kind::RealList,
            _ => match ty.element().filter(|_| ty.info().is_some_and(|info| info.is_array())) {
                Some(Type { id: TypeId::INT4 | TypeId::OID | TypeId::REGTYPE, .. }) => Kind::IntegerList,
                Some(_) => Kind::TextList,
                None => Kind::Text,
            },
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

    /// What a column holds that a row does not set: as in PostgreSQL, flags and numbers are never
    /// NULL, texts and lists are where nothing is known.
    pub(crate) fn default(self) -> Cell {
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

/// A column of a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
    /// What the old engine has for the type.
    pub(crate) kind: Kind,
}

impl Column {
    /// `name:type`, or `name:type(modifier)`.
    fn parse(text: &'static str) -> Column {
        let (name, ty) = text.split_once(':').expect("name and type");
        let (ty, modifier) = match ty.split_once('(') {
            Some((ty, modifier)) => {
                (ty, modifier.trim_end_matches(')').parse().expect("a modifier is a number"))
            }
            None => (ty, -1),
        };
        let array = ty
            .strip_prefix('_')
            .map(|element| type_table::by_name(element).and_then(|element| element.array).map(Type::new));
        let named = || type_table::by_name(ty).map(|info| Type::new(info.id));
        let found = array.unwrap_or_else(named);
        let ty = found.unwrap_or_else(|| panic!("no type is called {ty}")).with_modifier(modifier);
        Column { name, ty, kind: Kind::of(ty) }
    }
}

/// The shape of a relation.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) oid: i64,
    /// `r` or `v`.
    pub(crate) relkind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Option<RowsOf>,
}

impl Relation {
    /// Whether there is never a row, because we lack what it is about.
    pub(crate) fn is_always_empty(&self) -> bool {
        self.rows.is_none()
    }

    fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|column| Field::new(column.name, column.kind.data_type(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// How many rows it has, and the cells of each column.
    pub(crate) fn cells(&self, source: &Source) -> (usize, Vec<Vec<Cell>>) {
        let rows = self.rows.map_or_else(Vec::new, |rows| rows(source));
        let mut columns: Vec<Vec<Cell>> =
            self.columns.iter().map(|column| vec![column.kind.default(); rows.len()]).collect();
        let count = rows.len();
        for (position, row) in rows.into_iter().enumerate() {
            for (name, cell) in row {
                let column = self.columns.iter().position(|column| column.name == name);
                let column = column.unwrap_or_else(|| panic!("{} has no column {name}", self.name));
                columns[column][position] = cell;
            }
        }
        (count, columns)
    }

    fn batch(&self, source: &Source) -> Result<RecordBatch> {
        let (count, columns) = self.cells(source);
        let arrays =
            self.columns.iter().zip(&columns).map(|(column, cells)| array(column.kind, cells)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.schema(), arrays, &options)?)
    }
}

/// What makes the rows of a relation.
type RowsOf = fn(&Source) -> Vec<Row>;

/// Reads shapes, one per line: oid, relkind, name, columns as `name:type`.
pub(crate) fn parse_relations(text: &'static str, rows: fn(&str) -> Option<RowsOf>) -> Vec<Relation> {
    let relation = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().expect("four fields per line");
        let (oid, relkind, name, columns) = (field(), field(), field(), field());
        Relation {
            oid: oid.parse().expect("a number"),
            relkind,
            name,
            columns: columns.split(' ').map(Column::parse).collect(),
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
