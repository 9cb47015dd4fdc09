//! COPY: the bridge between files' bytes and tables.
//!
//! [`options`] says what COPY can be told, [`columns`] reads and writes the formats of columns, `load` the others.
//!
//! Rows come in as batches and go through the same door as INSERT, so that defaults, constraints
//! and foreign keys hold. Rows go out from a query's batches, by columns.

mod columns;
mod options;
mod parquet_out;
mod progress;
mod rejects;
mod rows_out;
mod workers;

use crate::bind::{Binder, columns_of};
use crate::files::Kind;
use crate::names::{Names, Relation, missing_column};
use crate::parse::depth_of;
use crate::session_facts::SessionFacts;
use crate::statement::{Copy, CopyEndpoint, CopySubject, QualifiedName, quote_ident};
use columns::{ColumnWriter, ColumnsIn};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::MemTable;
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast;
use firn_base::clock::{self, Instant};
use firn_base::pipe;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::thread::{self, Behind};
use firn_base::{ColumnId, Error, Result, RowId, SqlState, SqlType, TimeZoneSetting, Type, TypeId, Value};
use firn_exec::dml::{Change, DmlPlan, Insert, InsertSource, TargetSet};
use firn_exec::{BatchStream, RunOptions};
pub use firn_load::end_of_first_row;
pub use firn_load::source::is_damage;
use firn_load::source::{self, Packing};
use firn_load::{CopyReader, CopyWriter, Feed, RowLines, Waits};
use firn_txn::catalog::TableDef;
use firn_txn::{Savepoint, Transaction};
pub use options::CopyFormat;
pub(crate) use options::encoding;
use options::{Compression, Options};
pub use progress::{Channel, Progress};
pub use rejects::make_rejects_table;
use rejects::{Rejects, RejectsTable};
use rows_out::{Piece, RowsOut};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// COPY … FROM in progress. It holds no transaction: every step is given the one to work in.
pub struct CopyFrom {
    reader: Reader,
    format: CopyFormat,
    store: Store,
    depth: u32,
}

/// What reads the data.
enum Reader {
    Rows(Box<CopyReader>),
    Columns(Box<ColumnsIn>),
}

/// Where rows go.
struct Store {
    table: Arc<TableDef>,
    columns: Vec<(ColumnId, String, SqlType)>,
    /// The columns as batches of files have them.
    schema: SchemaRef,
    set: Arc<TargetSet>,
    filter: Option<ast::Expr>,
    facts: Arc<SessionFacts>,
    /// How many have been stored.
    rows: u64,
    /// How many the file had in the batches before, those included that the filter has not let through.
    read: u64,
    /// What the transaction had done before.
    begun: Savepoint,
    places: Places,
    rejects: Rejects,
    rejects_table: Option<RejectsTable>,
    progress: Arc<Progress>,
    /// When the transaction last kept up with others; `None` once it cannot.
    kept_up: Option<Instant>,
}

/// Where the rows of a file are that have been stored, all of those which it has.
enum Places {
    /// On lines: how many rows there were before each batch, and on which its own are.
    Lines(Vec<(u64, RowLines)>),
    /// They are counted.
    Rows,
}

impl Places {
    /// What is counted.
    fn word(&self) -> &'static str {
        match self {
            Places::Lines(batches) if !batches.is_empty() => "line",
            // Of what came as batches nobody knows lines.
            Places::Lines(_) | Places::Rows => "row",
        }
    }

    /// The place of a row, by how many came before it.
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

/// What a batch becomes before the filter sees it.
type PlanOfBatch = fn(&Store, &Transaction, RecordBatch) -> Result<LogicalPlan>;

/// How long a COPY stays at one state at least.
const KEEPS_UP_AFTER: Duration = Duration::from_millis(10);

/// What could not be done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// It could not be opened.
    Open,
    /// It could not be read, or not to its end.
    Read,
}

/// What a failure to do something to a file is to the user.
pub type Failed<'f> = &'f (dyn Fn(Deed, &io::Error) -> Error + Sync);

/// How often a thread that waits for others looks whether the statement has been cancelled.
const LOOKS_UP_AFTER: Duration = Duration::from_millis(50);

/// What COPY … FROM came to.
#[derive(Debug)]
pub struct Copied {
    /// How many rows were stored.
    pub rows: u64,
    /// What its user is told of those that were left out.
    pub notices: Vec<Error>,
}

impl CopyFrom {
    /// Checks the statement and gets ready for the data.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        copy: &Copy,
        zone: TimeZoneSetting,
    ) -> Result<CopyFrom> {
        let CopySubject::Into(name, names) = &copy.subject else { panic!("COPY FROM fills a table") };
        let catalog_names = Names::new(transaction.catalog(), facts);
        let table = match catalog_names.relation(name)? {
            Relation::Table(table) => table,
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot copy to {} \"{}\"", other.kind().word(), name.name),
                ));
            }
        };
        let columns = columns(&table, names.as_deref())?;
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
        options.other_keys = names.is_some();
        if format == CopyFormat::Parquet && copy.endpoint == CopyEndpoint::Client {
            return Err(Error::unsupported("COPY FROM STDIN of a Parquet file").with_hint(
                "What a Parquet file holds stands at its end: copy it from a file of the server.",
            ));
        }
        let tables = |id| transaction.table(id);
        let binder = Binder::new(transaction.catalog(), &tables, facts);
        let filter = copy.filter.as_ref().map_or(Ok(0), depth_of)?;
        let set = crate::dml::target_set(&binder, transaction.catalog(), &table)?;
        let place = format!("COPY {}", table.name);
        let reader = match format {
            CopyFormat::Parquet => {
                Reader::Columns(Box::new(ColumnsIn::new(Kind::Parquet, place, names.is_some(), zone)))
            }
            CopyFormat::Arrow => {
                Reader::Columns(Box::new(ColumnsIn::new(Kind::Arrow, place, names.is_some(), zone)))
            }
            CopyFormat::Text | CopyFormat::Csv | CopyFormat::Binary | CopyFormat::Json => {
                let columns = columns.iter().map(|(_, name, ty)| (name.clone(), *ty)).collect();
                Reader::Rows(Box::new(CopyReader::new(&place, columns, options, zone)?))
            }
        };
        let fields: Vec<_> = columns.iter().map(|(_, name, ty)| firn_exec::types::field(name, *ty)).collect();
        let progress = Arc::new(Progress::new("COPY FROM", channel(copy), Some(table.oid)));
        let store = Store {
            table,
            columns,
            schema: Arc::new(Schema::new(fields)),
            set,
            filter: copy.filter.clone(),
            facts: facts.clone(),
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
            // A condition may read tables, all of whose rows it is to see in one state.
            kept_up: copy.filter.is_none().then(clock::now),
        };
        Ok(CopyFrom { reader, format, store, depth: binder.deepest().max(filter) })
    }

    /// How deep its condition and those of the table are.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Has the transaction do without a snapshot until the COPY ends, if rows can be stored without one.
    pub fn release_snapshot(&self, transaction: &mut Transaction) {
        let Store { filter, rejects_table, set, .. } = &self.store;
        if filter.is_none() && rejects_table.is_none() && set.inserts_blindly() {
            transaction.release_snapshot();
        }
    }

    /// How far it is, for others to see.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.store.progress
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.store.columns.len()
    }

    /// How the data is written.
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
        written.map_err(|error| self.store.failed(transaction, options, error))
    }

    /// Ends the data.
    pub fn finish(mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        stop_if_cancelled(options)?;
        let finished = match &mut self.reader {
            Reader::Rows(reader) => reader.finish(),
            Reader::Columns(columns) => columns.finish(),
        };
        match finished.and_then(|()| self.store_read(transaction, options)) {
            Ok(()) => self.store.end(transaction, options),
            Err(error) => Err(self.store.failed(transaction, options, error)),
        }
    }

    fn store_read(&mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<()> {
        let Reader::Rows(reader) = &mut self.reader else { return Ok(()) };
        while let Some(batch) = reader.next_batch() {
            self.store.add(transaction, options, batch)?;
        }
        Ok(())
    }

    /// Takes all of a file, which several threads read. They leave cores to transactions and queries that want them, and so does
    /// the one that stores (docs/decisions/0011-queries-are-nice.md), unless rows are looked at by a plan.
    pub fn read_file(
        self,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
        failed: Failed<'_>,
    ) -> Result<Copied> {
        // Threads that plans start are as nice as the one that starts them, and stay there for queries.
        if self.store.filter.is_some() || matches!(self.reader, Reader::Columns(_)) {
            return self.read_here(transaction, options, path, failed);
        }
        firn_exec::runtime::start_workers();
        thread::scope(|scope| {
            let (reading, ended) = mpsc::channel::<()>();
            let read = move || {
                let _reading = reading;
                thread::stand_back(Behind::Everything);
                self.read_here(transaction, options, path, failed)
            };
            let read = thread::start_scoped(scope, "firn-copy", read)?;
            // Who watches the flag may do so on this thread only, as Python does.
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
        let CopyFrom { reader, mut store, format, .. } = self;
        match store.read_file(reader, format, transaction, options, path, failed) {
            Ok(()) => store.end(transaction, options),
            Err(error) => Err(store.failed(transaction, options, error)),
        }
    }

    /// Stores the rows of an Arrow batch, whose columns are those of the COPY in their order. They are
    /// assigned as those of `INSERT … SELECT` would be: 42804 where that does not cast.
    pub fn write_batch(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        let stored = self.store.assign(transaction, options, batch);
        stored.map_err(|error| self.store.failed(transaction, options, error))
    }
}

/// 0A000: formats but text and CSV know of rows by their columns.
fn without_columns(format: CopyFormat) -> Error {
    Error::unsupported(format!("COPY of rows without columns in {} format", format.word()))
}

/// FREEZE is for tables that the transaction has made or emptied itself, which are loaded into frozen blocks anyway
/// (`firn_txn`'s loads): others would have to be told apart from rows that are there.
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

/// Fails with 57014 once the statement has been cancelled.
fn stop_if_cancelled(options: &RunOptions) -> Result<()> {
    if options.cancel.is_cancelled() { Err(firn_exec::cancelled()) } else { Ok(()) }
}

fn channel(copy: &Copy) -> Channel {
    match copy.endpoint {
        CopyEndpoint::File(_) => Channel::File,
        CopyEndpoint::Client => Channel::Pipe,
    }
}

/// What is wrong with a file that holds no text. It stands at its beginning again.
fn of_other_kind(file: &mut File, path: &Path) -> io::Result<Option<Error>> {
    if !file.metadata()?.is_file() {
        // What is read from a pipe is gone.
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
    let message = format!("file \"{}\" holds no text", path.display());
    let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
    Ok(Some(error.with_hint(format!("It looks like a file to be read WITH (FORMAT {format})."))))
}

impl Store {
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
        // A pipe that nobody waits for any more fails to be read.
        let not_read = |error: &io::Error| match options.cancel.is_cancelled() {
            true => firn_exec::cancelled(),
            false => failed(Deed::Read, error),
        };
        let not_opened = |error: io::Error| failed(Deed::Open, &error);
        // Of what cannot be read the error comes later.
        let metadata = path.metadata().ok().filter(Metadata::is_file);
        self.progress.set_bytes_in_all(metadata.map_or(0, |metadata| metadata.len()));
        match reader {
            Reader::Rows(mut reader) => {
                // Once: who writes into a pipe would be told that nobody reads any more if it were closed again.
                let mut file = pipe::open(path).map_err(not_opened)?;
                if format != CopyFormat::Binary
                    && let Some(error) = of_other_kind(&mut file, path).map_err(|error| not_read(&error))?
                {
                    return Err(error);
                }
                let progress = self.progress.clone();
                let watch = move |bytes| progress.add_bytes(bytes);
                // Who reads the pipe and who waits for its rows both see a cancellation that the other need not, and who reads it is not
                // waited for when a row has failed.
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

    /// Stores the rows of an Arrow batch, as [`CopyFrom::write_batch`] says.
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
        let targets: Vec<SqlType> = self.columns.iter().map(|(_, _, ty)| *ty).collect();
        let batch = crate::arrow::normalise(batch, Some(&targets))
            .map_err(|error| self.placed(transaction, error))?;
        let stored = self.insert_query(transaction, options, &batch, Store::assigned);
        stored.map_err(|error| self.placed(transaction, error))
    }

    /// The rows of a batch in the types of the columns.
    fn assigned(&self, transaction: &Transaction, batch: RecordBatch) -> Result<LogicalPlan> {
        let tables = |id| transaction.table(id);
        let binder = Binder::new(transaction.catalog(), &tables, &self.facts);
        let columns: Vec<_> = self.columns.iter().map(|(_, name, ty)| (name.clone(), *ty)).collect();
        crate::bind::insert::assign(self.scan(batch)?, &columns, &binder)
    }

    /// Stores the rows of a batch, as a plan makes them of it, which the filter lets through.
    fn insert_query(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
        plan: PlanOfBatch,
    ) -> Result<()> {
        // All at once and by one thread: rows keep their order, and errors count them from the first.
        let ordered = &RunOptions { threads: 1, batch_rows: batch.num_rows().max(1), ..options.clone() };
        let source = InsertSource::Query(Box::new(
            self.filtered(transaction, plan(self, transaction, batch.clone())?)?,
        ));
        let stored = self.insert(transaction, ordered, options.threads, source, batch.num_rows());
        let options = ordered;
        stored.map_err(|error| self.located(transaction, options, batch, plan, error))
    }

    /// Adds to an error of the value of a row, be it that it does not cast or that the filter fails, where the row is: the first of
    /// the fewest rows of the batch that fail as all of them do.
    #[cold]
    fn located(
        &self,
        transaction: &Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
        plan: PlanOfBatch,
        error: Error,
    ) -> Error {
        let is_of_value = error.state().as_str().starts_with("22");
        if !is_of_value || error.ordinal().is_some() || error.context().is_some() {
            return error;
        }
        let read = |rows: usize| -> Result<()> {
            let plan = plan(self, transaction, batch.slice(0, rows))?;
            let mut stream = firn_exec::run(&self.filtered(transaction, plan)?, &[], transaction, options)?;
            while stream.next()?.is_some() {}
            Ok(())
        };
        let fails = |rows: usize| read(rows).is_err_and(|now| now.state() == error.state());
        // It may be of something else, a default for one.
        if !fails(batch.num_rows()) {
            return error;
        }
        let (mut good, mut bad) = (0, batch.num_rows());
        while bad - good > 1 {
            let middle = good.midpoint(bad);
            if fails(middle) {
                bad = middle;
            } else {
                good = middle;
            }
        }
        let place = self.places.of(self.read + good as u64);
        error.with_context(format!("COPY {}, {} {place}", self.table.name, self.places.word()))
    }

    /// All rows have come.
    fn end(self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        self.enter_keys(transaction, options)?;
        Ok(Copied { rows: self.rows, notices: self.rejects.into_notices() })
    }

    /// Enters the keys that wait.
    fn enter_keys(&self, transaction: &mut Transaction, options: &RunOptions) -> Result<()> {
        let entered = firn_exec::dml::enter_keys(&self.set, transaction, options);
        entered.map_err(|error| self.placed(transaction, error))
    }

    /// The error that ends it: of the first row that has one. That a key of an earlier row is taken may not be known yet.
    #[cold]
    fn failed(&self, transaction: &mut Transaction, options: &RunOptions, error: Error) -> Error {
        let comes_before = |transaction: &Transaction, waiting: &Error, error: &Error| {
            let of = |error| self.ordinal_of(transaction, error);
            let (waiting, error) = (of(waiting), of(error));
            // Who has none is of a row that was not even stored.
            error.is_none_or(|error| waiting.is_some_and(|waiting| waiting < error))
        };
        let first = firn_exec::dml::first_mistake(&self.set, transaction, options, error, comes_before);
        self.placed(transaction, first)
    }

    /// How many rows came before the one that an error is about.
    fn ordinal_of(&self, transaction: &Transaction, error: &Error) -> Option<u64> {
        match error.row() {
            Some(row) => self.ordinal_since(transaction, row),
            None => error.ordinal().map(|ordinal| self.read + ordinal),
        }
    }

    /// How many rows that it has stored came before one of them.
    fn ordinal_since(&self, transaction: &Transaction, row: RowId) -> Option<u64> {
        // Somebody may have dropped it before the first row came.
        let table = transaction.engine().find_table(self.table.storage())?;
        transaction.ordinal_since(self.begun, &table, row)
    }

    /// Stores the rows of a file's batch which the filter lets through.
    fn add(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        read: firn_load::Batch,
    ) -> Result<()> {
        self.progress.add_skipped(read.rejected.len() as u64);
        self.rejects.add(&read.rejected)?;
        if let Some(table) = &self.rejects_table
            && !read.rejected.is_empty()
        {
            if table.looks_elsewhere() {
                self.enter_keys(transaction, options)?;
            }
            // Its rows are no rows of the file.
            let put = table.put(transaction, options, &read.rejected);
            put.map_err(Error::without_row)?;
        }
        if read.rows == 0 {
            return stop_if_cancelled(options);
        }
        let batch = RecordBatch::try_new(self.schema.clone(), read.columns)
            .map_err(|error| firn_exec::error::from_datafusion(error.into()))?;
        if let Places::Lines(batches) = &mut self.places {
            batches.push((self.read, read.lines));
        }
        self.put_all(transaction, options, batch)
    }

    /// [`Store::put`] of the next rows of a file, of which an error tells where they are.
    fn put_all(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: RecordBatch,
    ) -> Result<()> {
        self.put(transaction, options, batch).map_err(|error| self.placed(transaction, error))
    }

    /// Adds to an error of a row of a batch that was to be stored where that is, and where the row is that has its key if it is of the
    /// same file. A condition leaves nobody who knows of what was stored.
    #[cold]
    fn placed(&self, transaction: &Transaction, error: Error) -> Error {
        let (Some(ordinal), None, None) =
            (self.ordinal_of(transaction, &error), error.context(), &self.filter)
        else {
            return error;
        };
        let place = self.places.of(ordinal);
        let other = error.other_row().and_then(|row| self.ordinal_since(transaction, row));
        // Of two rows with a key the later one is at fault, in whatever order the index has met them.
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

    /// Stores the rows of a batch of the columns' own types which the filter lets through.
    fn put(&mut self, transaction: &mut Transaction, options: &RunOptions, batch: RecordBatch) -> Result<()> {
        match &self.filter {
            None => {
                let rows = batch.num_rows();
                self.insert(transaction, options, options.threads, InsertSource::Batch(batch), rows)
            }
            Some(_) => self.insert_query(transaction, options, &batch, |store, _, batch| store.scan(batch)),
        }
    }

    fn insert(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        key_threads: usize,
        source: InsertSource,
        batch_rows: usize,
    ) -> Result<()> {
        if self.kept_up.is_some_and(|then| then.elapsed() >= KEEPS_UP_AFTER) {
            self.kept_up = transaction.advance_snapshot().then(clock::now);
        }
        let columns = self.columns.iter().map(|(id, ..)| *id).collect();
        // A condition may read the table by its keys.
        let goes_on = self.filter.is_none().then_some(key_threads);
        let plan = insert_plan(&self.set, columns, source, goes_on);
        let rows = plan.execute(transaction, &[], options)?.count;
        self.rows += rows;
        self.read += batch_rows as u64;
        self.progress.add_rows(rows);
        self.progress.add_excluded((batch_rows as u64).saturating_sub(rows));
        Ok(())
    }

    /// A plan that yields the rows of a batch.
    fn scan(&self, batch: RecordBatch) -> Result<LogicalPlan> {
        let external = firn_exec::error::from_datafusion;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(external)?;
        let source = provider_as_source(Arc::new(table));
        LogicalPlanBuilder::scan(self.table.name.as_str(), source, None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(external)
    }

    /// A plan that yields those rows which the filter lets through.
    fn filtered(&self, transaction: &Transaction, plan: LogicalPlan) -> Result<LogicalPlan> {
        let external = firn_exec::error::from_datafusion;
        let mut plan = LogicalPlanBuilder::from(plan);
        if let Some(filter) = &self.filter {
            let tables = |id| transaction.table(id);
            let binder = Binder::new(transaction.catalog(), &tables, &self.facts);
            let condition = binder.expression(filter, plan.schema())?;
            let ty = condition.get_type(plan.schema()).map_err(external)?;
            if !matches!(ty, datafusion::arrow::datatypes::DataType::Boolean) {
                return Err(Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    "argument of COPY FROM WHERE must be type boolean",
                ));
            }
            plan = plan.filter(condition).map_err(external)?;
        }
        plan.build().map_err(external)
    }
}

/// A plan that inserts rows into columns of a table, perhaps [before others](Insert::goes_on).
fn insert_plan(
    set: &Arc<TargetSet>,
    columns: Vec<ColumnId>,
    source: InsertSource,
    goes_on: Option<usize>,
) -> DmlPlan {
    DmlPlan {
        picked: Vec::new(),
        set: set.clone(),
        change: Change::Insert(Insert { columns, source, goes_on, on_conflict: None }),
        returning: None,
        parameters: Vec::new(),
    }
}

/// COPY … TO in progress.
pub struct CopyTo {
    batches: BatchStream,
    columns: usize,
    writer: Writer,
    format: CopyFormat,
    progress: Arc<Progress>,
}

/// What writes the data.
enum Writer {
    Rows(RowsOut),
    /// Nothing when all has been written.
    Columns(Option<Box<ColumnWriter>>),
}

impl CopyTo {
    /// Starts the query whose rows go out.
    pub fn new(
        transaction: &Transaction,
        facts: &SessionFacts,
        copy: &Copy,
        options: &RunOptions,
        zone: TimeZoneSetting,
    ) -> Result<CopyTo> {
        let mut table = None;
        let query = match &copy.subject {
            CopySubject::Into(..) => panic!("COPY TO reads"),
            CopySubject::Query(query) => query.clone(),
            CopySubject::Table(name, names) => {
                if let Some(Relation::Table(found)) = Names::new(transaction.catalog(), facts).find(name) {
                    table = Some(found);
                }
                table_query(transaction, facts, name, names.as_deref())?
            }
        };
        let tables = |id| transaction.table(id);
        let plan = Binder::new(transaction.catalog(), &tables, facts).query(&query)?;
        let columns = columns_of(plan.schema().as_arrow())?;
        let named: Vec<(ColumnId, String, SqlType)> = columns
            .iter()
            .enumerate()
            .map(|(position, (name, ty))| (ColumnId(position as u16), name.clone(), *ty))
            .collect();
        let copy_options = options::options(&copy.options, &named, table.as_deref(), false)?;
        let format = copy_options.format;
        match format {
            CopyFormat::Text | CopyFormat::Csv => {}
            CopyFormat::Binary => refuse_arrays(plan.schema().as_arrow())?,
            CopyFormat::Json | CopyFormat::Parquet | CopyFormat::Arrow => refuse_equal_names(&columns)?,
        }
        let types: Vec<SqlType> = columns.iter().map(|(_, ty)| *ty).collect();
        let width = types.len();
        let writer = match format {
            CopyFormat::Parquet | CopyFormat::Arrow => {
                let is_file = copy.endpoint != CopyEndpoint::Client;
                let schema = plan.schema().as_arrow();
                let writer =
                    ColumnWriter::new(&copy_options, schema, &columns, zone, is_file, options.threads)?;
                Writer::Columns(Some(Box::new(writer)))
            }
            CopyFormat::Text | CopyFormat::Csv | CopyFormat::Binary | CopyFormat::Json => {
                let packing = match copy_options.compression {
                    Some(Compression::Gzip) => Some(Packing::Gzip),
                    Some(Compression::Zstd) => Some(Packing::Zstd),
                    _ => None,
                };
                let is_binary = format == CopyFormat::Binary;
                let writer = CopyWriter::new(columns, copy_options.rows, zone)?;
                Writer::Rows(RowsOut::new(writer, types, is_binary, packing, options.threads))
            }
        };
        let batches = firn_exec::run(&plan, &[], transaction, options)?;
        let progress = Arc::new(Progress::new("COPY TO", channel(copy), table.map(|table| table.oid)));
        Ok(CopyTo { batches, columns: width, writer, format, progress })
    }

    /// How far it is, for others to see.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How the data is written.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// Whether pieces hold whole rows: those of packed files and of files of columns do not.
    pub fn has_whole_rows(&self) -> bool {
        matches!(&self.writer, Writer::Rows(rows) if rows.has_whole_rows())
    }

    /// How many rows have gone out.
    pub fn rows(&self) -> u64 {
        self.progress.rows()
    }

    /// The next bytes; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let piece = match &mut self.writer {
                Writer::Rows(rows) => rows.next(&mut self.batches)?,
                Writer::Columns(writer) => columns::next_piece(writer, &mut self.batches)?,
            };
            let Some(Piece { bytes, rows, .. }) = piece else { return Ok(None) };
            self.progress.add_rows(rows as u64);
            if !bytes.is_empty() {
                self.progress.add_bytes(bytes.len() as u64);
                return Ok(Some(bytes));
            }
        }
    }
}

/// Columns that files tell apart by their names must differ in them.
fn refuse_equal_names(columns: &[(String, SqlType)]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match columns.iter().find(|(name, _)| !seen.insert(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("column name \"{name}\" comes twice");
            let error = Error::new(SqlState::DUPLICATE_COLUMN, message);
            Err(error.with_hint("Columns of such a file go by their names: give them others with AS."))
        }
    }
}

/// A column in the Arrow type of its SQL type, but for the scale of numerics.
fn as_declared(column: &ArrayRef, ty: SqlType) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::Decimal128(..) if matches!(ty, SqlType::Numeric { .. }) => Ok(Arc::clone(column)),
        _ => crate::arrow::converted(column, &firn_exec::types::data_type(ty)),
    }
}

/// Arrays go out as text, which has no place among binary values.
fn refuse_arrays(schema: &Schema) -> Result<()> {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => {
            let name = firn_exec::types::visible_name(field.name());
            let error = Error::unsupported(format!("COPY of arrays (column \"{name}\") in binary format"));
            Err(error.with_hint("Cast the array to text, or use text or CSV."))
        }
    }
}

/// The query behind COPY table TO.
fn table_query(
    transaction: &Transaction,
    facts: &SessionFacts,
    name: &QualifiedName,
    columns: Option<&[String]>,
) -> Result<Box<ast::Query>> {
    let names = Names::new(transaction.catalog(), facts);
    let table = match names.relation(name)? {
        Relation::Table(table) => table,
        other => {
            let kind = other.kind().word();
            let error =
                Error::new(SqlState::WRONG_OBJECT_TYPE, format!("cannot copy from {kind} \"{}\"", name.name));
            return Err(error.with_hint("Try the COPY (SELECT ...) TO variant."));
        }
    };
    let list: Vec<String> =
        self::columns(&table, columns)?.iter().map(|(_, name, _)| quote_ident(name)).collect();
    let schema = &transaction.catalog().schemas[&table.schema].name;
    let table = format!("{}.{}", quote_ident(schema), quote_ident(&table.name));
    crate::parse::parse_query(&format!("SELECT {} FROM {table}", list.join(", ")))
}

/// The columns that were named, or all.
fn columns(table: &TableDef, names: Option<&[String]>) -> Result<Vec<(ColumnId, String, SqlType)>> {
    let Some(names) = names else {
        let all = table.visible_columns().map(|(id, column)| (id, column.name.clone(), column.ty.sql_type()));
        return Ok(all.collect());
    };
    let mut found: Vec<(ColumnId, String, SqlType)> = Vec::with_capacity(names.len());
    for name in names {
        let Some((id, column)) = table.column(name) else { return Err(missing_column(table, name)) };
        if found.iter().any(|(known, ..)| *known == id) {
            return Err(named_twice(name));
        }
        found.push((id, name.clone(), column.ty.sql_type()));
    }
    Ok(found)
}

fn named_twice(column: &str) -> Error {
    Error::new(SqlState::DUPLICATE_COLUMN, format!("column \"{column}\" specified more than once"))
}

/// Appends the values of a batch, row-major.
pub fn values_of(batch: &RecordBatch, types: &[SqlType], values: &mut Vec<Value>) -> Result<()> {
    values.reserve(batch.num_rows() * types.len());
    for row in 0..batch.num_rows() {
        for column in batch.columns() {
            let scalar =
                ScalarValue::try_from_array(column, row).map_err(firn_exec::error::from_datafusion)?;
            values.push(firn_exec::types::value(&scalar)?);
        }
    }
    Ok(())
}

/// The schema of a result as those who get it see it: names without what keeps equal ones apart in plans. Where
/// columns hold arrays, `drawn` is the schema that their batches have by themselves.
pub fn schema_of(columns: &[crate::Column], drawn: Option<&Schema>) -> SchemaRef {
    let field = |(position, column): (usize, &crate::Column)| match (drawn, column.element) {
        (Some(drawn), Some(element)) => {
            Arc::new(Field::new(&column.name, array_type(drawn.field(position).data_type(), element), true))
        }
        _ => firn_exec::types::field(&column.name, column.ty),
    };
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// The type of arrays of so many dimensions as another one's, whose elements are of `element`'s own Arrow type.
fn array_type(drawn: &DataType, element: SqlType) -> DataType {
    match drawn {
        DataType::List(inner) => {
            DataType::List(Arc::new(Field::new_list_field(array_type(inner.data_type(), element), true)))
        }
        _ => firn_exec::types::data_type(element),
    }
}

/// A batch under such a schema. Columns are cast only where operators have yielded another type than the plan said:
/// 22003 if a value does not fit.
pub fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let external = |error: ArrowError| firn_exec::error::from_datafusion(error.into());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let fit = |(column, field): (&ArrayRef, &FieldRef)| crate::arrow::converted(column, field.data_type());
    let columns = batch.columns().iter().zip(schema.fields()).map(fit).collect::<Result<_>>()?;
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(external)
}

/// The batch that holds the rows of vectors.
pub fn batch_of_vectors(columns: &[crate::Column], chunk: &firn_query::ResultChunk) -> Result<RecordBatch> {
    let described = |column: &crate::Column| firn_query::ResultColumn {
        name: column.name.clone(),
        ty: column.declared,
        origin: column.origin,
    };
    let described: Vec<firn_query::ResultColumn> = columns.iter().map(described).collect();
    firn_query::arrow::batch(chunk, &firn_query::arrow::schema(&described))
}

/// The values of a row of vectors.
pub fn values_of_row(columns: &[crate::Column], chunk: &firn_query::ResultChunk, row: usize) -> Vec<Value> {
    let value = |(place, column): (usize, &crate::Column)| match chunk.text(place) {
        Some(text) => text.datum(row).to_value(Type::new(TypeId::TEXT)),
        None => chunk.values.vectors()[place].datum(row).to_value(column.declared),
    };
    columns.iter().enumerate().map(value).collect()
}

/// The batch that holds these values, row-major.
pub fn batch_of(columns: &[crate::Column], values: Vec<Value>) -> Result<RecordBatch> {
    let fields: Vec<_> =
        columns.iter().map(|column| firn_exec::types::field(&column.name, column.ty)).collect();
    let mut by_column: Vec<Vec<ScalarValue>> = columns.iter().map(|_| Vec::new()).collect();
    for (position, value) in values.iter().enumerate() {
        let column = position % columns.len();
        by_column[column].push(firn_exec::types::scalar(value, columns[column].ty));
    }
    let external = firn_exec::error::from_datafusion;
    let arrays = by_column
        .into_iter()
        .map(|scalars| ScalarValue::iter_to_array(scalars).map_err(external))
        .collect::<Result<Vec<ArrayRef>>>()?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|error| external(error.into()))
}
