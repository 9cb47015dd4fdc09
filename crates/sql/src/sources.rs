//! Sources: Arrow batches of the program itself, which a session reads as tables.
//!
//! A source has a name that only its session has, and which takes precedence over the names of tables, like a
//! temporary table's in PostgreSQL. It can only be read, by queries and by statements that contain them. Its
//! batches are read in place. A column of a type that SQL lacks, such as a dictionary or an
//! unsigned number, is cast to the nearest type when it is read. Values that are invalid for their type,
//! such as times of day of thirty hours, are an error when they are read.

use crate::arrow::types::type_of;
use crate::arrow::{plain_type, taken_over, vectors, with_row};
use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, Schema};
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Error, Representation, Result, SqlState, Type};
use firn_bind::{Attribute, Generated, Relation, RelationKind};
use firn_executor::Reader;
use firn_executor::source::{Morsels, Request, Scan, SourceColumn, SourceStatistics};
use firn_plan::operator::SourceId;
use firn_vector::{Chunk, Vector};
use std::collections::BTreeMap;

/// Rows of a morsel.
const MORSEL_ROWS: usize = 1 << 14;

/// Batches that can be read as a table.
#[derive(Debug)]
pub struct Source {
    columns: Vec<Column>,
    /// The batches as given; those without rows are left out.
    batches: Arc<[RecordBatch]>,
}

/// A column of the relation.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    ty: Type,
    /// The plain Arrow type of its values.
    plain: DataType,
    representation: Representation,
}

impl Source {
    /// Batches with that schema, whose metadata is ignored. 0A000 for a column of a type that cannot be
    /// cast to any of SQL's, 42701 if two have one name.
    pub fn new(schema: &Schema, batches: Vec<RecordBatch>) -> Result<Source> {
        let mut columns: Vec<Column> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            if columns.iter().any(|known| known.name == *field.name()) {
                let message = format!("column \"{}\" specified more than once", field.name());
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
            }
            columns.push(Column::of(field).ok_or_else(|| {
                Error::unsupported(format!("a column of type {} (\"{}\")", field.data_type(), field.name()))
                    .with_hint("Leave the column out, or convert it first.")
            })?);
        }
        // Whatever the schemas of the batches, their columns have the types of this schema.
        let plain = |field: &Arc<Field>| Field::new(field.name(), field.data_type().clone(), true);
        let raw = Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()));
        let batches = batches.into_iter().filter(|batch| batch.num_rows() > 0).map(|batch| {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(raw.clone(), batch.columns().to_vec(), &options)
                .map_err(|error| Error::new(SqlState::DATATYPE_MISMATCH, error.to_string()))
        });
        Ok(Source { columns, batches: batches.collect::<Result<_>>()? })
    }

    /// The relation with a given name.
    pub(crate) fn relation(&self, name: &str) -> Relation {
        let attribute = |(number, column): (i16, &Column)| Attribute {
            number,
            name: column.name.as_str().into(),
            ty: column.ty,
            not_null: false,
            default: None,
            generated: Generated::No,
        };
        Relation {
            oid: 0,
            schema: "".into(),
            name: name.into(),
            kind: RelationKind::Source(SourceId(0)),
            columns: (1..).zip(&self.columns).map(attribute).collect(),
            keys: Vec::new(),
            has_system_columns: false,
        }
    }
}

impl Column {
    fn of(field: &Field) -> Option<Column> {
        let given = field.data_type();
        let plain = match given {
            DataType::Null => DataType::Utf8View,
            given => plain_type(given)?,
        };
        let ty = type_of(&plain)?;
        let can_be_read = *given == plain || can_cast_types(given, &plain);
        can_be_read.then_some(Column {
            name: field.name().clone(),
            ty,
            plain,
            representation: ty.representation()?,
        })
    }
}

impl firn_executor::Source for Source {
    fn columns(&self) -> Vec<SourceColumn> {
        let column =
            |(attribute, column): (i16, &Column)| SourceColumn { attribute, ty: column.ty, nullable: true };
        (1..).zip(&self.columns).map(column).collect()
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics { rows: self.batches.iter().map(|batch| batch.num_rows() as u64).sum() }
    }

    fn open(&self, request: &Request<'_>, _: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let place = |(_, attribute): &(firn_plan::Column, i16)| *attribute as usize - 1;
        let columns = request.columns.iter().map(place).map(|place| (place, self.columns[place].clone()));
        let columns = columns.collect();
        Ok(Arc::new(SourceScan(Arc::new(Wanted { columns, batches: self.batches.clone() }))))
    }
}

/// Batches, and the columns of them that are read.
struct Wanted {
    columns: Vec<(usize, Column)>,
    batches: Arc<[RecordBatch]>,
}

struct SourceScan(Arc<Wanted>);

impl Scan for SourceScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        let parts = self.0.batches.iter().map(|batch| batch.num_rows().div_ceil(MORSEL_ROWS) as u64);
        let ends = parts.scan(0, |end, parts| {
            *end += parts;
            Some(*end)
        });
        Arc::new(SourceMorsels { wanted: self.0.clone(), ends: ends.collect(), next: AtomicU64::new(0) })
    }
}

struct SourceMorsels {
    wanted: Arc<Wanted>,
    /// The number of the morsel after the last one of each batch.
    ends: Vec<u64>,
    next: AtomicU64,
}

impl Morsels for SourceMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        // Relaxed: each number is taken once, and nothing else depends on it.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = self.ends.partition_point(|end| *end <= number);
        let Some(batch) = self.wanted.batches.get(place) else { return Ok(None) };
        let first = if place == 0 { 0 } else { self.ends[place - 1] };
        let from = (number - first) as usize * MORSEL_ROWS;
        let length = MORSEL_ROWS.min(batch.num_rows() - from);
        let columns = self.wanted.columns.iter();
        let vectors = columns.map(|(place, column)| column.read(batch, *place, from, length));
        Ok(Some(Chunk::new(length, vectors.collect::<Result<_>>()?)))
    }
}

impl Column {
    /// Rows of a batch, whose column at that position this is.
    fn read(&self, batch: &RecordBatch, place: usize, from: usize, length: usize) -> Result<Vector> {
        let array = batch.column(place).slice(from, length);
        if array.data_type().is_null() {
            return Ok(Vector::null(self.representation, length));
        }
        let given = Field::new(&self.name, array.data_type().clone(), true);
        let row = |row| format!("row {} of a batch", from as u64 + row + 1);
        let taken = taken_over(&given, &array, &self.plain).map_err(|error| with_row(error, row))?;
        Ok(vectors::vector(&taken, self.representation))
    }
}

/// The sources of a session, by name. Equal if they are the same objects.
#[derive(Clone, Debug, Default)]
pub struct Sources(BTreeMap<String, Arc<Source>>);

impl Sources {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The source with a name, if the name has no schema.
    pub fn find(&self, schema: Option<&str>, name: &str) -> Option<&Arc<Source>> {
        if schema.is_some() { None } else { self.0.get(name) }
    }

    /// These, and one with a name, which it replaces.
    pub fn with(&self, name: &str, source: Source) -> Sources {
        let mut sources = self.0.clone();
        sources.insert(name.to_owned(), Arc::new(source));
        Sources(sources)
    }

    /// These without one; `None` if there is none with that name.
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
