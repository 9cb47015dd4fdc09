//! Files of columns, Parquet and Arrow: what both have in common.
//!
//! A file has parts (row groups, record batches) that can be read independently of each other, and columns with types of
//! Arrow's. Columns whose types have a similar one in SQL are converted like batches of other programs ([`crate::arrow`]).
//! The crates that read damaged files may panic rather than fail, so each step is guarded.

use super::condition::Test;
use super::ipc::{ArrowFile, ArrowStream};
use super::parquet::ParquetFile;
use super::version::FileVersion;
use super::{Kind, changed, file_error};
use crate::arrow::types::{self, type_of};
use crate::arrow::{normalise, plain_field, refuse_claims, with_row};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use firn_base::{Error, Result, SqlState, Type, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The memory that a batch may claim with a few bytes for repeated values.
const MOST_CLAIMED: usize = 1 << 30;

/// The most rows of a batch that is passed on; larger ones are cut.
pub(super) const MOST_ROWS: usize = 64 << 10;

/// A file that has been opened.
pub(crate) trait ColumnFile: Send + Sync {
    /// Its columns.
    fn schema(&self) -> &SchemaRef;

    /// How many parts it has.
    fn parts(&self) -> usize;

    /// Refuses a column that cannot be read although its type seems readable.
    fn check(&self, _column: usize) -> Result<()> {
        Ok(())
    }

    /// Begins to read columns, by ascending positions, of parts; batches have about `rows` rows if the file permits that.
    fn read(&self, columns: &[usize], parts: &[usize], batch_rows: usize) -> Result<Box<dyn Batches>>;

    /// Which parts may have rows that satisfy a test; all, if that is unknown. `columns` are those of the table: their
    /// positions there, their names in the file, and the plain types of their values.
    fn candidates(&self, _test: &Test, _columns: &[(usize, String, DataType)]) -> Vec<usize> {
        (0..self.parts()).collect()
    }
}

/// Batches that are read one after the other.
pub(crate) trait Batches: Send {
    /// The next one; `None` after the last. After an error there are no more.
    fn next(&mut self) -> Result<Option<RecordBatch>>;
}

/// A function that takes batches.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(RecordBatch) -> Result<()>;

/// The path of a file, and its version when it was examined. Between then and the time when it is read the file is not kept open,
/// since a pattern may name more files than may be open at once.
pub(super) struct Place {
    pub path: PathBuf,
    version: FileVersion,
}

impl Place {
    fn of(path: &Path) -> Result<Place> {
        let version = FileVersion::of(path.to_owned()).map_err(|error| file_error(path, &error))?;
        Ok(Place { path: path.to_owned(), version })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.version.bytes
    }

    /// Opens it, if it is unchanged.
    pub fn open(&self) -> Result<File> {
        let file = File::open(&self.path).map_err(|error| file_error(&self.path, &error))?;
        match FileVersion::of(self.path.clone()).is_ok_and(|now| now == self.version) {
            true => Ok(file),
            false => Err(changed(&self.path)),
        }
    }
}

/// Opens a file.
pub(crate) fn open(path: &Path, kind: Kind) -> Result<Box<dyn ColumnFile>> {
    let place = Place::of(path)?;
    let mut first = Vec::with_capacity(8);
    place.open()?.take(8).read_to_end(&mut first).map_err(|error| file_error(path, &error))?;
    let found = Kind::by_bytes(&first);
    if found != Some(kind) {
        let is = found.map_or(String::new(), |found| format!("; it looks like {}", found.article()));
        let message = format!("file \"{}\" is not {}{is}", path.display(), kind.article());
        return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
    }
    Ok(match kind {
        Kind::Parquet => Box::new(ParquetFile::open(place)?),
        Kind::Arrow if first.starts_with(b"ARROW1") => Box::new(ArrowFile::open(place)?),
        Kind::Arrow => Box::new(ArrowStream::open(place)?),
        Kind::Csv | Kind::Json => unreachable!("files of rows are read elsewhere"),
    })
}

/// Runs a step of reading a file, in which only the file can be the cause of a panic.
pub(super) fn guarded<T, E: Display>(
    path: &Path,
    step: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(done) => done.map_err(|error| damaged(path, &error)),
        Err(_) => Err(damaged(path, &"its metadata is inconsistent")),
    }
}

/// The error for a file that cannot be read.
#[cold]
pub(super) fn damaged(path: &Path, why: &dyn Display) -> Error {
    let why = why.to_string();
    let message = format!("file \"{}\" cannot be read", path.display());
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
        .with_detail(why.lines().next().unwrap_or_default())
        .with_hint("The file may be damaged, or its writer may not have finished.")
}

/// The columns of the table of a file. A column whose type has no similar one in SQL becomes text, and is refused
/// when it is read.
pub(super) fn schema(file: &dyn ColumnFile) -> SchemaRef {
    let field = |(field, name): (&FieldRef, String)| match plain_field(field) {
        Ok(field) if *field.name() == name => field,
        Ok(field) => Arc::new(Field::clone(&field).with_name(name)),
        Err(_) => types::field(&name, Type::new(TypeId::TEXT)),
    };
    let names = names_of(file.schema());
    Arc::new(Schema::new(file.schema().fields().iter().zip(names).map(field).collect::<Vec<_>>()))
}

/// The names of the columns of a file: `a`, and `a_1`, `a_2`, … for further columns with the same name. A generated name is not the
/// own name of another column, by which the statistics of the file are found.
fn names_of(schema: &Schema) -> Vec<String> {
    let given: HashSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut names = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let mut unique = field.name().clone();
        match numbers.get_mut(field.name().as_str()) {
            None => drop(numbers.insert(field.name(), 0)),
            Some(number) => {
                while given.contains(unique.as_str()) {
                    *number += 1;
                    unique = format!("{}_{number}", field.name());
                }
            }
        }
        names.push(unique);
    }
    names
}

/// A file whose columns have been found.
pub(crate) struct Fitted {
    path: PathBuf,
    file: Box<dyn ColumnFile>,
    /// The columns to read, in ascending order.
    columns: Vec<usize>,
    /// The position of each requested column among them.
    order: Vec<usize>,
    schema: SchemaRef,
    types: Vec<Type>,
}

impl Fitted {
    /// Opens a file and finds in it the columns of a schema, by their names.
    pub(super) fn open(path: &Path, kind: Kind, schema: &SchemaRef) -> Result<Fitted> {
        let file = open(path, kind)?;
        let misfit = |message: String| {
            Error::new(SqlState::DATATYPE_MISMATCH, format!("file \"{}\" {message}", path.display()))
                .with_hint("The files of a pattern have the columns of the first, with the same types.")
        };
        let names = names_of(file.schema());
        let find = |wanted: &FieldRef| {
            let found = names.iter().position(|name| name == wanted.name());
            let column = found.ok_or_else(|| {
                let message = format!("file \"{}\" has no column \"{}\"", path.display(), wanted.name());
                Error::new(SqlState::UNDEFINED_COLUMN, message)
                    .with_hint("The files of a pattern have the columns of the first.")
            })?;
            let plain = readable(path, &*file, column)?;
            match file.schema().field(column).data_type().is_null() || plain.data_type() == wanted.data_type()
            {
                true => Ok(column),
                false => Err(misfit(format!(
                    "has another type of column \"{}\": {}, not {}",
                    wanted.name(),
                    plain.data_type(),
                    wanted.data_type()
                ))),
            }
        };
        let found = schema.fields().iter().map(find).collect::<Result<Vec<usize>>>()?;
        Ok(Fitted::of(path, file, &found, schema.clone()))
    }

    /// A file whose columns are read as those of a schema.
    pub(crate) fn of(path: &Path, file: Box<dyn ColumnFile>, found: &[usize], schema: SchemaRef) -> Fitted {
        let mut columns = found.to_vec();
        columns.sort_unstable();
        let position = |column: &usize| columns.binary_search(column).expect("it is among them");
        let order = found.iter().map(position).collect();
        let ty = |field: &FieldRef| type_of(field.data_type()).unwrap_or(Type::new(TypeId::TEXT));
        let types = schema.fields().iter().map(ty).collect();
        Fitted { path: path.to_owned(), file, columns, order, schema, types }
    }

    /// All parts.
    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.file.parts()).collect()
    }

    /// The file.
    pub(super) fn file(&self) -> &dyn ColumnFile {
        &*self.file
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read parts, in batches of the file, which [`Fitted::fit`] converts to the schema's types.
    pub(super) fn batches(&self, parts: &[usize], batch_rows: usize) -> Result<Box<dyn Batches>> {
        self.file.read(&self.columns, parts, batch_rows)
    }

    /// Reads parts, in batches of the schema's types.
    pub(crate) fn read(&self, parts: &[usize], batch_rows: usize, sink: Sink<'_>) -> Result<()> {
        let mut batches = self.batches(parts, batch_rows)?;
        while let Some(batch) = batches.next()? {
            self.check_claims(&batch)?;
            for start in (0..batch.num_rows()).step_by(MOST_ROWS) {
                sink(self.fit(&batch, start, MOST_ROWS.min(batch.num_rows() - start))?)?;
            }
        }
        Ok(())
    }

    /// Refuses a batch that claims more than it may ([`refuse_claims`]), before any of it is converted.
    pub(super) fn check_claims(&self, batch: &RecordBatch) -> Result<()> {
        refuse_claims(batch, MOST_CLAIMED).map_err(|error| self.placed(error))
    }

    /// `length` rows of a batch of the file from a given one on, converted to the schema.
    pub(super) fn fit(&self, batch: &RecordBatch, start: usize, rows: usize) -> Result<RecordBatch> {
        let batch = batch.slice(start, rows).project(&self.order);
        let batch = batch.map_err(|error: ArrowError| damaged(&self.path, &error))?;
        let place = |row| {
            let row = start as u64 + row + 1;
            format!("file \"{}\", row {row} of a batch", self.path.display())
        };
        let batch =
            normalise(&batch, Some(&self.types)).map_err(|error| self.placed(with_row(error, place)))?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), batch.columns().to_vec(), &options)
            .map_err(|error| damaged(&self.path, &error))
    }

    fn placed(&self, error: Error) -> Error {
        match error.context() {
            Some(_) => error,
            None => error.with_context(format!("file \"{}\"", self.path.display())),
        }
    }
}

/// The field of a column of a file in its table; 0A000 if SQL has no similar type.
pub(crate) fn readable(path: &Path, file: &dyn ColumnFile, column: usize) -> Result<FieldRef> {
    let field: &Field = file.schema().field(column);
    let refused = |why: &Error| {
        let name = field.name();
        let message = format!("column \"{name}\" of file \"{}\": {}", path.display(), why.message());
        Error::new(why.state(), message).with_hint("Leave the column out.")
    };
    file.check(column).and_then(|()| plain_field(field)).map_err(|error| refused(&error))
}
