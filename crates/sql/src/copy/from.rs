//! COPY FROM: rows of a file or of a client into a table.

use super::columns_in::ColumnsIn;
use super::options::{self, CopyFormat, Options};
use super::rejects::{self, Rejects, RejectsTable};
use super::{Channel, CopiedColumn, Progress, channel, columns, stop_if_cancelled, without_columns};
use crate::arrow;
use crate::files::Kind;
use crate::names::{Names, Relation};
use crate::parse::Parsed;
use crate::query::{load_expressions, surroundings};
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use crate::statement::QualifiedName;
use arrow_array::{ArrayRef, RecordBatch};
use firn_base::clock::{self, Instant};
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::thread::{self, Behind};
use firn_base::{ColumnId, Error, Result, RowId, SqlState, TextStyle, Type, pipe};
use firn_executor::arrays::vector_of;
use firn_executor::write::{Load, RowExpression, RowVectors};
use firn_load::source;
use firn_load::{CopyReader, Feed, RowLines, Waits};
use firn_query::Surroundings;
use firn_syntax::tree::{Copy, CopySource, Expr, Statement};
use firn_txn::catalog::TableDef;
use firn_txn::{Savepoint, Transaction};
use firn_vector::Vector;
use firn_vector::selection::Rows;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The shortest time for which a COPY keeps its snapshot.
const KEEPS_UP_AFTER: Duration = Duration::from_millis(10);

/// How often a thread that waits for others checks whether the statement has been cancelled.
const LOOKS_UP_AFTER: Duration = Duration::from_millis(50);

/// How many rows of a batch from outside are converted at a time.
const TOGETHER: usize = 2048;

/// COPY … FROM in progress. It holds no transaction: every step is given the transaction.
pub struct CopyFrom {
    reader: Reader,
    format: CopyFormat,
    store: Store,
}

/// The reader of the data.
enum Reader {
    Rows(Box<CopyReader>),
    Columns(Box<ColumnsIn>),
}

/// Stores rows.
pub(super) struct Store {
    table: Arc<TableDef>,
    pub columns: Vec<CopiedColumn>,
    load: Load,
    /// The script that contains the condition, and the condition.
    condition: Option<(Arc<str>, Expr)>,
    facts: Arc<SessionFacts>,
    /// The context of function calls: the same for all rows.
    surroundings: Option<Arc<Surroundings>>,
    /// The assignments of columns of these types to those of the table, of the last batches.
    assignments: Option<(Vec<Type>, Vec<RowExpression>)>,
    /// How many rows have been stored.
    rows: u64,
    /// How many rows the file had in the batches before, including those that the condition has left out.
    read: u64,
    /// The savepoint from before the COPY.
    begun: Savepoint,
    places: Places,
    rejects: Rejects,
    rejects_table: Option<RejectsTable>,
    pub progress: Arc<Progress>,
    /// When the transaction last advanced its snapshot; `None` once it cannot.
    advanced: Option<Instant>,
}

/// The places of the rows of the file that were read so far.
enum Places {
    /// Lines: for each batch how many rows preceded it, and the lines of its rows.
    Lines(Vec<(u64, RowLines)>),
    /// The number of the row.
    Rows,
}

impl Places {
    /// The word for a place.
    fn word(&self) -> &'static str {
        match self {
            Places::Lines(batches) if !batches.is_empty() => "line",
            // Rows from Arrow batches have no lines.
            Places::Lines(_) | Places::Rows => "row",
        }
    }

    /// The place of a row, given how many preceded it.
    fn of(&self, ordinal: u64) -> u64 {
        match self {
            Places::Lines(batches) if !batches.is_empty() => {
                let batch = batches.partition_point(|(before, _)| *before <= ordinal) - 1;
                let (before, lines) = &batches[batch];
                lines.line_of((ordinal - before) as usize)
            }
            Places::Lines(_) | Places::Rows => ordinal + 1,
        }
    }
}

/// A column of rows that are to be assigned.
pub(super) enum Incoming {
    /// A plain array.
    Plain(ArrayRef),
    /// Values in the representation of the storage.
    Stored(ArrayRef),
}

impl Incoming {
    /// `length` rows from row `first` on.
    fn vector(&self, ty: Type, first: usize, length: usize) -> Vector {
        let representation = ty.representation().expect("it is the type of values");
        match self {
            Incoming::Plain(column) => arrow::vectors::vector(&column.slice(first, length), representation),
            Incoming::Stored(column) => vector_of(&column.slice(first, length), representation),
        }
    }
}

/// The operation on a file that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// It could not be opened.
    Open,
    /// It could not be read, or not to its end.
    Read,
}

/// Makes the error of a failed operation on a file.
pub type Failed<'f> = &'f (dyn Fn(Deed, &io::Error) -> Error + Sync);

/// The result of COPY … FROM.
#[derive(Debug)]
pub struct Copied {
    /// How many rows were stored.
    pub rows: u64,
    /// Notices about the rows that were left out.
    pub notices: Vec<Error>,
}

/// The statement, which must be a COPY.
pub(super) fn copy_of(parsed: &Parsed) -> &Copy {
    match &parsed.statement {
        Statement::Copy(copy) => copy,
        _ => panic!("it is a COPY"),
    }
}

impl CopyFrom {
    /// Checks the statement and prepares for the data.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        style: TextStyle,
    ) -> Result<CopyFrom> {
        let copy = copy_of(parsed);
        let CopySource::Table { name, columns: names } = &copy.source else {
            panic!("COPY FROM fills a table")
        };
        let channel = channel(copy)?;
        let catalog_names = Names::new(transaction.catalog(), facts);
        let table = match catalog_names.relation(&QualifiedName::from(name))? {
            Relation::Table(table) => table,
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot copy to {} \"{}\"", other.kind().word(), name.name.text),
                ));
            }
        };
        let columns = columns(&table, names)?;
        let Options { format, rows: mut options, freeze, .. } =
            options::options(&copy.options, &columns, Some(&table), true)?;
        if columns.is_empty() && !matches!(format, CopyFormat::Text | CopyFormat::Csv) {
            return Err(without_columns(format));
        }
        if freeze {
            refuse_to_freeze(transaction, &table)?;
        }
        let rejects = rejects::rejects(&copy.options, &options)?;
        let rejects_table = RejectsTable::of(transaction, facts, copy)?;
        let are_named = !names.is_empty();
        options.other_keys = are_named;
        if format == CopyFormat::Parquet && channel == Channel::Pipe {
            return Err(Error::unsupported("COPY FROM STDIN of a Parquet file").with_hint(
                "The metadata of a Parquet file is at its end: copy it from a file of the server.",
            ));
        }
        let place = format!("COPY {}", table.name);
        let reader = match format {
            CopyFormat::Parquet => {
                Reader::Columns(Box::new(ColumnsIn::new(Kind::Parquet, place, are_named, style.zone)))
            }
            CopyFormat::Arrow => {
                Reader::Columns(Box::new(ColumnsIn::new(Kind::Arrow, place, are_named, style.zone)))
            }
            CopyFormat::Text | CopyFormat::Csv | CopyFormat::Binary | CopyFormat::Json => {
                let columns = columns.iter().map(|(_, name, ty)| (name.clone(), *ty)).collect();
                Reader::Rows(Box::new(CopyReader::new(&place, columns, options, style)?))
            }
        };
        let condition = copy.condition.as_ref().map(|condition| (parsed.script.clone(), condition.clone()));
        let load = compile(transaction, facts, &table, &columns, condition.as_ref())?;
        let progress = Arc::new(Progress::new("COPY FROM", channel, Some(table.oid)));
        let store = Store {
            table,
            columns,
            load,
            condition,
            facts: facts.clone(),
            surroundings: None,
            assignments: None,
            rows: 0,
            read: 0,
            begun: transaction.implicit_savepoint(),
            places: match &reader {
                Reader::Rows(_) => Places::Lines(Vec::new()),
                Reader::Columns(_) => Places::Rows,
            },
            rejects,
            rejects_table,
            progress,
            advanced: Some(clock::now()),
        };
        Ok(CopyFrom { reader, format, store })
    }

    /// Releases the snapshot of the transaction until the COPY ends, if rows can be stored without one.
    pub fn release_snapshot(&self, transaction: &mut Transaction) {
        let Store { load, rejects_table, .. } = &self.store;
        if rejects_table.is_none() && load.reads_keys_alone() {
            transaction.release_snapshot();
        }
    }

    /// Its progress, for other sessions.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.store.progress
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.store.columns.len()
    }

    /// The format of the data.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// Takes the next bytes, cut anywhere.
    pub fn write(&mut self, transaction: &mut Transaction, options: &RunOptions, data: &[u8]) -> Result<()> {
        stop_if_cancelled(options)?;
        self.store.progress.add_bytes(data.len() as u64);
        let written = match &mut self.reader {
            Reader::Rows(reader) => {
                let pushed = reader.push(data);
                pushed.and_then(|()| self.store_read(transaction, options))
            }
            Reader::Columns(columns) => columns.push(&mut self.store, transaction, options, data),
        };
        written.map_err(|error| self.store.failed(transaction, error))
    }

    /// Marks the end of the data.
    pub fn finish(mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        stop_if_cancelled(options)?;
        let finished = match &mut self.reader {
            Reader::Rows(reader) => reader.finish(),
            Reader::Columns(columns) => columns.finish(),
        };
        match finished.and_then(|()| self.store_read(transaction, options)) {
            Ok(()) => self.store.end(transaction, options),
            Err(error) => Err(self.store.failed(transaction, error)),
        }
    }

    fn store_read(&mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<()> {
        let Reader::Rows(reader) = &mut self.reader else { return Ok(()) };
        while let Some(batch) = reader.next_batch() {
            self.store.add(transaction, options, batch)?;
        }
        Ok(())
    }

    /// Reads a whole file, on several threads. They yield processors to transactions and queries, and so does the thread
    /// that stores (docs/decisions/0011-queries-are-nice.md), unless the file stores columns.
    pub fn read_file(
        self,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
        failed: Failed<'_>,
    ) -> Result<Copied> {
        if matches!(self.reader, Reader::Columns(_)) {
            return self.read_here(transaction, options, path, failed);
        }
        thread::scope(|scope| {
            let (reading, ended) = mpsc::channel::<()>();
            let read = move || {
                let _reading = reading;
                thread::stand_back(Behind::Everything);
                self.read_here(transaction, options, path, failed)
            };
            let read = thread::start_scoped(scope, "firn-copy", read)?;
            // The hook that sets the flag may have to be called on this thread, as with Python.
            while ended.recv_timeout(LOOKS_UP_AFTER) == Err(RecvTimeoutError::Timeout) {
                options.cancel.is_cancelled();
            }
            read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// [`CopyFrom::read_file`] on this thread.
    fn read_here(
        self,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
        failed: Failed<'_>,
    ) -> Result<Copied> {
        let CopyFrom { reader, mut store, format } = self;
        match store.read_file(reader, format, transaction, options, path, failed) {
            Ok(()) => store.end(transaction, options),
            Err(error) => Err(store.failed(transaction, error)),
        }
    }

    /// Stores the rows of an Arrow batch, whose columns are those of the COPY in their order. They are
    /// assigned like those of `INSERT … SELECT`: 42804 if there is no assignment cast.
    pub fn write_batch(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        let stored = self.store.assign(transaction, options, batch);
        stored.map_err(|error| self.store.failed(transaction, error))
    }
}

/// Compiles the load for rows of these columns.
fn compile(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    table: &Arc<TableDef>,
    columns: &[CopiedColumn],
    condition: Option<&(Arc<str>, Expr)>,
) -> Result<Load> {
    let ids = columns.iter().map(|(id, ..)| *id).collect();
    let condition = condition.map(|(script, condition)| (&**script, condition));
    load_expressions(transaction, facts, |expressions| expressions.load(table, ids, condition))
}

/// FREEZE is for tables that the transaction itself has made or truncated, which are loaded into frozen blocks anyway
/// (`firn_txn`'s loads). In other tables the rows would have to be distinguished from existing ones.
fn refuse_to_freeze(transaction: &Transaction, table: &TableDef) -> Result<()> {
    let stored = transaction.engine().find_table(table.storage());
    match stored.is_some_and(|stored| !stored.is_published()) {
        true => Ok(()),
        false => Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "cannot perform COPY FREEZE because the table was not created or truncated in the current transaction",
        )
        .with_hint("Create or truncate the table in the same transaction, or leave FREEZE out.")),
    }
}

/// The error for a file that contains no text, if so. The file is at its beginning again.
fn of_other_kind(file: &mut File, path: &Path) -> io::Result<Option<Error>> {
    if !file.metadata()?.is_file() {
        // Bytes read from a pipe are lost.
        return Ok(None);
    }
    let mut first = Vec::with_capacity(8);
    file.take(8).read_to_end(&mut first)?;
    file.rewind()?;
    let format = match Kind::by_bytes(&first) {
        Some(Kind::Parquet) => "parquet",
        Some(Kind::Arrow) => "arrow",
        _ => return Ok(None),
    };
    let message = format!("file \"{}\" is not a text file", path.display());
    let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
    Ok(Some(error.with_hint(format!("It looks like a file to be read WITH (FORMAT {format})."))))
}

impl Store {
    /// Leaves out columns that the file does not have; they get their defaults.
    pub fn retain_columns(&mut self, transaction: &Transaction, keeps: impl Fn(&str) -> bool) -> Result<()> {
        let before = self.columns.len();
        self.columns.retain(|(_, name, _)| keeps(name));
        if self.columns.len() < before {
            self.load =
                compile(transaction, &self.facts, &self.table, &self.columns, self.condition.as_ref())?;
        }
        Ok(())
    }

    /// Stores the rows of a file.
    fn read_file(
        &mut self,
        reader: Reader,
        format: CopyFormat,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
        failed: Failed<'_>,
    ) -> Result<()> {
        // A read from a pipe fails after a cancellation.
        let not_read = |error: &io::Error| match options.cancel.is_cancelled() {
            true => crate::cancelled(),
            false => failed(Deed::Read, error),
        };
        let not_opened = |error: io::Error| failed(Deed::Open, &error);
        // If the metadata cannot be read, the error is raised later.
        let metadata = path.metadata().ok().filter(Metadata::is_file);
        self.progress.set_bytes_in_all(metadata.map_or(0, |metadata| metadata.len()));
        match reader {
            Reader::Rows(mut reader) => {
                // Once: a pipe that is closed again has lost its reader, as its writer sees it.
                let mut file = pipe::open(path).map_err(not_opened)?;
                if format != CopyFormat::Binary
                    && let Some(error) = of_other_kind(&mut file, path).map_err(|error| not_read(&error))?
                {
                    return Err(error);
                }
                let progress = self.progress.clone();
                let watch = move |bytes| progress.add_bytes(bytes);
                // Both the thread that reads the pipe and the one that waits for its rows check for a cancellation, as either may see one
                // that the other does not. After a row has failed, `over` stops the reading thread.
                let over = Arc::new(AtomicBool::new(false));
                let (cancel, watched) = (options.cancel.clone(), options.cancel.clone());
                let look = Box::new(move || {
                    watched.is_cancelled();
                });
                reader.set_waits(Waits { look, over: over.clone() });
                let stops = move || cancel.is_cancelled() || over.load(Ordering::Relaxed);
                let mut sink = |batch| self.add(transaction, options, batch);
                if let Some(bytes) = source::plain_bytes(&mut file).map_err(|error| not_read(&error))? {
                    let feed = Feed::Stretch { file: &file, stretch: 0..bytes, watch: &watch };
                    reader.read_file(feed, &not_read, options.threads, &mut sink)?;
                } else {
                    let mut file = source::watched(file, watch, stops).map_err(|error| not_read(&error))?;
                    reader.read_file(Feed::Whole(&mut *file), &not_read, options.threads, &mut sink)?;
                }
            }
            Reader::Columns(columns) => {
                pipe::open(path).map_err(not_opened)?;
                columns.read_file(self, transaction, options, path)?;
            }
        }
        Ok(())
    }

    /// Stores the rows of an Arrow batch, like [`CopyFrom::write_batch`].
    fn assign(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        if batch.num_columns() != self.columns.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("a batch with {} columns for a COPY of {}", batch.num_columns(), self.columns.len()),
            ));
        }
        let targets: Vec<Type> = self.columns.iter().map(|(_, _, ty)| *ty).collect();
        let batch =
            arrow::normalise(batch, Some(&targets)).map_err(|error| self.placed(transaction, error))?;
        let schema = batch.schema();
        let plain = |(field, column): (&Arc<arrow_schema::Field>, &ArrayRef)| {
            let ty = arrow::types::type_of(field.data_type()).expect("a normal batch has plain types");
            (Incoming::Plain(column.clone()), ty)
        };
        let columns: Vec<_> = schema.fields().iter().zip(batch.columns()).map(plain).collect();
        self.assign_columns(transaction, options, batch.num_rows(), &columns)
    }

    /// Stores rows whose columns have these types.
    pub fn assign_columns(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        rows: usize,
        columns: &[(Incoming, Type)],
    ) -> Result<()> {
        let types: Vec<Type> = columns.iter().map(|(_, ty)| *ty).collect();
        self.prepare_assignments(transaction, &types)?;
        self.advance_snapshot(transaction);
        let surroundings = self.surroundings(transaction, options);
        for first in (0..rows).step_by(TOGETHER) {
            let length = TOGETHER.min(rows - first);
            let vectors: Vec<Vector> =
                columns.iter().map(|(column, ty)| column.vector(*ty, first, length)).collect();
            let stored = self.insert_assigned(transaction, &surroundings, vectors, length);
            let stored = stored.map_err(|error| match error.ordinal() {
                Some(ordinal) => self.placed(transaction, error.with_ordinal(first as u64 + ordinal)),
                None => self.placed(transaction, error),
            })?;
            self.count(stored, length);
        }
        self.read += rows as u64;
        Ok(())
    }

    /// Binds the assignment of columns of these types, unless that was done for the batch before.
    fn prepare_assignments(&mut self, transaction: &Transaction, types: &[Type]) -> Result<()> {
        if self.assignments.as_ref().is_some_and(|(known, _)| known == types) {
            return Ok(());
        }
        let ids: Vec<ColumnId> = self.columns.iter().map(|(id, ..)| *id).collect();
        let assignments = load_expressions(transaction, &self.facts, |expressions| {
            expressions.assignments(&self.table, &ids, types)
        })?;
        self.assignments = Some((types.to_vec(), assignments));
        Ok(())
    }

    /// Stores rows of vectors that have the types of the assignments. The ordinal of an error counts these rows.
    fn insert_assigned(
        &mut self,
        transaction: &mut Transaction,
        surroundings: &Surroundings,
        vectors: Vec<Vector>,
        length: usize,
    ) -> Result<u64> {
        let context = surroundings.context();
        let (_, assignments) = self.assignments.as_ref().expect("they have been bound");
        let mut given = RowVectors::new(vectors.len());
        for (place, vector) in vectors.iter().enumerate() {
            given.set(ColumnId(place as u16), vector.clone());
        }
        let rows = Rows::all(length);
        let assigned =
            assignments.iter().map(|assignment| assignment.evaluate_placed(&context, &given, rows));
        let mut failed: Option<Error> = None;
        let mut whole = Vec::with_capacity(vectors.len());
        for result in assigned {
            match result {
                Ok(vector) => whole.push(vector),
                Err(error) => {
                    let is_first = failed.as_ref().is_none_or(|first| error.ordinal() < first.ordinal());
                    failed = if is_first { Some(error) } else { failed };
                }
            }
        }
        let Some(error) = failed else {
            return self.load.insert_vectors(transaction, length, whole, &context);
        };
        // A row before it may have an error as well.
        if let Some(before @ 1..) = error.ordinal() {
            let before = before as usize;
            let vectors = vectors.iter().map(|vector| vector.slice(0, before)).collect();
            self.insert_assigned(transaction, surroundings, vectors, before)?;
        }
        Err(error)
    }

    /// All rows have been read.
    fn end(mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        let surroundings = self.surroundings(transaction, options);
        let finished = self.load.finish(transaction, &surroundings.context());
        finished.map_err(|error| self.placed(transaction, error))?;
        Ok(Copied { rows: self.rows, notices: self.rejects.into_notices() })
    }

    /// The error with which it ends: that of the first row with one. A duplicate key of an earlier row may not have been found yet.
    #[cold]
    fn failed(&mut self, transaction: &mut Transaction, error: Error) -> Error {
        let position = Position {
            table: self.table.storage(),
            begun: self.begun,
            read: self.read,
            has_condition: self.condition.is_some(),
        };
        let first = self.load.first_error(transaction, error, |transaction, waiting, error| {
            let (waiting, error) = (position.of(transaction, waiting), position.of(transaction, error));
            // An error without an ordinal is of a row that was not even stored.
            error.is_none_or(|error| waiting.is_some_and(|waiting| waiting < error))
        });
        self.placed(transaction, first)
    }

    /// Stores the rows of a file's batch that meet the condition.
    fn add(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        read: firn_load::Batch,
    ) -> Result<()> {
        self.progress.add_skipped(read.rejected.len() as u64);
        self.rejects.add(&read.rejected)?;
        if !read.rejected.is_empty() && self.rejects_table.is_some() {
            let entered = self.load.enter_keys(transaction);
            entered.map_err(|error| self.placed(transaction, error))?;
            let surroundings = self.surroundings(transaction, options);
            let table = self.rejects_table.as_mut().expect("there is one");
            // Rows of the rejects table are not rows of the file.
            let put = table.put(transaction, &surroundings.context(), &read.rejected);
            put.map_err(Error::without_row)?;
        }
        if read.rows == 0 {
            return stop_if_cancelled(options);
        }
        if let Places::Lines(batches) = &mut self.places {
            batches.push((self.read, read.lines));
        }
        self.put(transaction, options, read.rows, &read.columns)
    }

    /// Stores the next rows of a file, whose columns have the representation of the storage.
    pub fn put(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        rows: usize,
        columns: &[ArrayRef],
    ) -> Result<()> {
        self.advance_snapshot(transaction);
        let surroundings = self.surroundings(transaction, options);
        let stored = self.load.insert(transaction, rows, columns, &surroundings.context());
        let stored = stored.map_err(|error| self.placed(transaction, error))?;
        self.count(stored, rows);
        self.read += rows as u64;
        Ok(())
    }

    fn count(&mut self, stored: u64, of: usize) {
        self.rows += stored;
        self.progress.add_rows(stored);
        self.progress.add_excluded((of as u64).saturating_sub(stored));
    }

    fn advance_snapshot(&mut self, transaction: &mut Transaction) {
        if self.advanced.is_some_and(|then| then.elapsed() >= KEEPS_UP_AFTER) {
            self.advanced = transaction.advance_snapshot().then(clock::now);
        }
    }

    fn surroundings(&mut self, transaction: &Transaction, options: &RunOptions) -> Arc<Surroundings> {
        self.load.set_key_threads(options.threads);
        let new = || Arc::new(surroundings(transaction, &self.facts, options));
        self.surroundings.get_or_insert_with(new).clone()
    }

    /// Adds the place of a row to its error, and the place of the row that has its key, if that is from
    /// the same file.
    #[cold]
    pub fn placed(&self, transaction: &Transaction, error: Error) -> Error {
        let position = Position {
            table: self.table.storage(),
            begun: self.begun,
            read: self.read,
            has_condition: self.condition.is_some(),
        };
        let (Some(ordinal), None) = (position.of(transaction, &error), error.context()) else {
            return error;
        };
        let place = self.places.of(ordinal);
        let other = error.other_row().and_then(|row| position.of_row(transaction, row));
        // Of two rows with one key the later one has the error, in whatever order the index has found them.
        let (place, other) = match other.map(|ordinal| self.places.of(ordinal)) {
            Some(other) if other > place => (other, Some(place)),
            other => (place, other),
        };
        let error = match (error.detail().map(str::to_owned), other, self.places.word()) {
            (Some(detail), Some(other), "line") => {
                error.with_detail(format!("{detail} The row on line {other} has it."))
            }
            (Some(detail), Some(other), _) => error.with_detail(format!("{detail} Row {other} has it.")),
            _ => error,
        };
        error.with_context(format!("COPY {}, {} {place}", self.table.name, self.places.word()))
    }
}

/// Finds the place of a row.
struct Position {
    table: firn_base::TableId,
    begun: Savepoint,
    read: u64,
    has_condition: bool,
}

impl Position {
    /// How many rows of the file preceded the one that an error is about.
    fn of(&self, transaction: &Transaction, error: &Error) -> Option<u64> {
        match error.row() {
            Some(row) => self.of_row(transaction, row),
            None => error.ordinal().map(|ordinal| self.read + ordinal),
        }
    }

    /// How many rows of the file preceded one that has been stored. With a condition the rows of the table are not those of the
    /// file.
    fn of_row(&self, transaction: &Transaction, row: RowId) -> Option<u64> {
        if self.has_condition {
            return None;
        }
        // The table may have been dropped before the first row was stored.
        let table = transaction.engine().find_table(self.table)?;
        transaction.ordinal_since(self.begun, &table, row)
    }
}
