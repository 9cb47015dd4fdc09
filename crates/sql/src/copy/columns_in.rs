//! COPY of files that hold columns: Parquet, and Arrow's IPC format as a file or as a stream.
//!
//! Such files name their columns, and the names say which column of the table is meant. Types that a format lacks go out
//! as text; text that comes in for a column of another type is read as a literal of that.

use super::options::{Compression, CopyFormat, Options};
use super::parquet_out::ParquetOut;
use super::rows_out::Piece;
use super::workers::{Workers, bytes_of};
use super::{Store, as_declared, stop_if_cancelled, without_columns};
use crate::arrow::converted;
use crate::files::Kind;
use crate::files::columns::{Fitted, open, readable};
use crate::files::ipc::StreamReader;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, TimeZoneSetting, text, thread};
use firn_exec::{BatchStream, RunOptions, types};
use firn_txn::Transaction;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;

/// Rows of a batch that is stored at once: each takes a plan.
const BATCH_ROWS: usize = 64 << 10;

/// What a message of Arrow's has beside its values, about.
const ROOM_BESIDE: usize = 4 << 10;

/// What a piece of a file that goes out has at least.
const PIECE_BYTES: usize = 64 << 10;

/// How Arrow and, behind it, Parquet tell uuids from other values of 16 bytes.
const UUID_KEY: &str = "ARROW:extension:name";
const UUID: &str = "arrow.uuid";

/// In so many shares a file is read, at most, after each of which it is told how far one is.
const SHARES: usize = 32;

/// Batches that may wait to be stored.
const WAITING_BATCHES: usize = 2;

/// Columns that come in.
pub(super) struct ColumnsIn {
    kind: Kind,
    place: String,
    /// Whether the statement names columns: then the file may have others.
    named: bool,
    zone: TimeZoneSetting,
    stream: StreamReader,
    /// Which columns of the stream are stored, once it is known.
    found: Option<Vec<usize>>,
}

impl ColumnsIn {
    pub fn new(kind: Kind, place: String, named: bool, zone: TimeZoneSetting) -> ColumnsIn {
        ColumnsIn { kind, place, named, zone, stream: StreamReader::default(), found: None }
    }

    /// Takes the next bytes of a stream.
    pub fn push(
        &mut self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        data: &[u8],
    ) -> Result<()> {
        self.guarded(|stream| stream.push(data))?;
        let Some(schema) = self.stream.schema() else { return Ok(()) };
        if self.found.is_none() {
            self.found = Some(self.choose(store, &schema)?);
        }
        while let Some(batch) = self.stream.next_batch() {
            let found = self.found.as_ref().expect("it has just been chosen");
            let batch = batch.project(found).map_err(external)?;
            crate::arrow::refuse_claims(&batch, 1 << 30)?;
            self.store(store, transaction, options, &batch)?;
        }
        Ok(())
    }

    /// Ends a stream.
    pub fn finish(&mut self) -> Result<()> {
        self.guarded(|stream| stream.finish())
    }

    fn guarded(
        &mut self,
        step: impl FnOnce(&mut StreamReader) -> std::result::Result<(), ArrowError>,
    ) -> Result<()> {
        let damaged = |why: &str| {
            let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "the data is no Arrow stream");
            error.with_detail(why.lines().next().unwrap_or_default()).with_context(self.place.clone())
        };
        match catch_unwind(AssertUnwindSafe(|| step(&mut self.stream))) {
            Ok(done) => done.map_err(|error| damaged(&error.to_string())),
            Err(_) => Err(damaged("what it says of itself does not hold")),
        }
    }

    /// Takes all of a file. Another thread reads it while this one stores.
    pub fn read_file(
        self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
    ) -> Result<()> {
        let file = open(path, self.kind)?;
        let found = self.choose(store, file.schema())?;
        let field = |column: &usize| readable(path, &*file, *column);
        let schema = Arc::new(Schema::new(found.iter().map(field).collect::<Result<Vec<_>>>()?));
        let file = Fitted::of(path, file, &found, schema);
        let (sender, batches) = mpsc::sync_channel::<RecordBatch>(WAITING_BATCHES);
        let progress = store.progress.clone();
        thread::scope(|scope| {
            let read = move || {
                let gone = |_| Error::new(SqlState::QUERY_CANCELED, "nobody wants the rows any more");
                let parts = file.all();
                // Each share opens the file and reads its dictionaries.
                let shares = parts.chunks(parts.len().div_ceil(SHARES).max(1));
                let share_bytes = progress.bytes_in_all() / shares.len().max(1) as u64;
                for share in shares {
                    file.read(share, BATCH_ROWS, &mut |batch| sender.send(batch).map_err(gone))?;
                    progress.add_bytes(share_bytes);
                }
                Ok(())
            };
            let reader = thread::start_scoped(scope, "firn-load", read)?;
            for batch in batches {
                stop_if_cancelled(options)?;
                self.store(store, transaction, options, &batch)?;
            }
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Finds the columns of the table in a file by their names, and has only those stored; others get their defaults.
    fn choose(&self, store: &mut Store, schema: &Schema) -> Result<Vec<usize>> {
        let place = |name: &str| schema.fields().iter().position(|field| field.name() == name);
        if self.named {
            let missing = store.columns.iter().find(|(_, name, _)| place(name).is_none());
            if let Some((_, name, _)) = missing {
                let message = format!("the file has no column \"{name}\"");
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                    .with_hint(has(schema))
                    .with_context(self.place.clone()));
            }
        } else {
            let is_known = |field: &&FieldRef| !store.columns.iter().any(|(_, name, _)| name == field.name());
            if let Some(field) = schema.fields().iter().find(is_known) {
                let message = format!("there is no column \"{}\" to copy to", field.name());
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                    .with_hint("Name the columns to be read: COPY t (a, b) FROM …")
                    .with_context(self.place.clone()));
            }
            store.columns.retain(|(_, name, _)| place(name).is_some());
            let fields = store.columns.iter().map(|(_, name, ty)| types::field(name, *ty));
            store.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
        let is_ambiguous =
            |name: &String| schema.fields().iter().filter(|field| field.name() == name).count() > 1;
        if let Some((_, name, _)) = store.columns.iter().find(|(_, name, _)| is_ambiguous(name)) {
            let message = format!("the file has more than one column \"{name}\"");
            return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message)
                .with_hint(format!(
                    "Queries call the others \"{name}_1\", …: INSERT INTO t SELECT … FROM 'file.parquet'."
                ))
                .with_context(self.place.clone()));
        }
        Ok(store.columns.iter().map(|(_, name, _)| place(name).expect("it is there")).collect())
    }

    /// Stores a batch of the columns that were chosen.
    fn store(
        &self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        let targets: Vec<SqlType> = store.columns.iter().map(|(_, _, ty)| *ty).collect();
        let batch = crate::arrow::normalise(batch, Some(&targets))
            .map_err(|error| store.placed(transaction, error))?;
        let read = |(column, (_, name, ty)): (&ArrayRef, &(_, String, SqlType))| {
            let is_text = matches!(ty, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_));
            match column.data_type() {
                DataType::Utf8View if !is_text => self.literals(column, name, *ty),
                _ => Ok(column.clone()),
            }
        };
        let columns = batch.columns().iter().zip(&store.columns).map(read).collect::<Result<Vec<_>>>()?;
        let is_as_declared = |(column, ty): (&ArrayRef, &SqlType)| {
            let is_bounded = matches!(ty, SqlType::Varchar(Some(_)) | SqlType::Char(_));
            !is_bounded && *column.data_type() == types::data_type(*ty)
        };
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        if columns.iter().zip(&targets).all(is_as_declared) {
            let batch =
                RecordBatch::try_new_with_options(store.schema.clone(), columns, &rows).map_err(external)?;
            return store.put_all(transaction, options, batch);
        }
        let field = |(column, field): (&ArrayRef, &FieldRef)| {
            Field::new(field.name(), column.data_type().clone(), true)
        };
        let fields: Vec<Field> = columns.iter().zip(batch.schema().fields()).map(field).collect();
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows);
        store.assign(transaction, options, &batch.map_err(external)?)
    }

    /// Texts read as literals of a type.
    fn literals(&self, texts: &ArrayRef, name: &str, ty: SqlType) -> Result<ArrayRef> {
        firn_load::read_literals(texts.as_string_view(), ty, self.zone).map_err(|(error, value)| {
            let shown: String = value.chars().take(100).collect();
            error.with_context(format!("{}, column {name}: \"{shown}\"", self.place))
        })
    }
}

/// What a file has, for a hint.
fn has(schema: &Schema) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = schema.fields().iter().take(MOST).map(|field| field.name().as_str()).collect();
    let more = if schema.fields().len() > MOST { ", …" } else { "" };
    format!("Its columns are {}{more}.", names.join(", "))
}

fn external(error: ArrowError) -> Error {
    firn_exec::error::from_datafusion(error.into())
}

/// Columns that go out.
pub(super) struct ColumnWriter(Sink);

/// What writes them.
enum Sink {
    Parquet(Box<ParquetOut>),
    File(Formed, Box<FileWriter<Vec<u8>>>),
    Stream(Formed, Box<StreamWriter<Vec<u8>>>),
}

/// Batches as a file has them, which several threads make of those of a query.
struct Formed {
    form: Arc<Form>,
    threads: usize,
    workers: Option<Workers<RecordBatch, Result<RecordBatch>>>,
    /// How many have been taken.
    taken: usize,
}

impl Formed {
    /// So many are made on this thread, before it is worth while to start others.
    const FIRST: usize = 4;

    fn new(form: Form, threads: usize) -> Formed {
        Formed { form: Arc::new(form), threads, workers: None, taken: 0 }
    }

    /// Takes a batch, and hands on those that are ready, in their order.
    fn take(&mut self, batch: &RecordBatch, mut write: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        self.taken += 1;
        if self.workers.is_none() && self.threads > 1 && self.taken > Formed::FIRST {
            let form = self.form.clone();
            let work = move |batch: RecordBatch| form.of_file(&batch);
            self.workers = Workers::start("firn-copy", self.threads, work);
        }
        let Some(workers) = &mut self.workers else { return write(&self.form.of_file(batch)?) };
        while workers.is_enough() {
            write(&workers.next().expect("some are under way")?)?;
        }
        workers.give(batch.clone(), bytes_of(batch));
        Ok(())
    }

    /// Hands on what is left.
    fn finish(self, mut write: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        let Some(mut workers) = self.workers else { return Ok(()) };
        while let Some(batch) = workers.next() {
            write(&batch?)?;
        }
        Ok(())
    }
}

/// How rows of a query become those of a file.
pub(super) struct Form {
    columns: Vec<Option<SqlType>>,
    /// The file's.
    pub schema: SchemaRef,
    zone: TimeZoneSetting,
}

/// What a writer yields of the next batches: nothing once it has ended.
pub(super) fn next_piece(
    writer: &mut Option<Box<ColumnWriter>>,
    batches: &mut BatchStream,
) -> Result<Option<Piece>> {
    let Some(columns) = writer else { return Ok(None) };
    let (mut bytes, mut rows) = (Vec::new(), 0);
    while bytes.len() < PIECE_BYTES {
        match batches.next()? {
            Some(batch) => {
                columns.write(&batch, &mut bytes)?;
                rows += batch.num_rows();
            }
            None => {
                writer.take().expect("it has not ended").finish(&mut bytes)?;
                break;
            }
        }
    }
    Ok(Some(Piece { bytes, rows }))
}

impl ColumnWriter {
    /// A writer for the rows of a plan with that schema, whose columns are named and typed as `columns` says.
    pub fn new(
        options: &Options,
        plan: &Schema,
        columns: &[(String, SqlType)],
        zone: TimeZoneSetting,
        is_file: bool,
        threads: usize,
    ) -> Result<ColumnWriter> {
        if columns.is_empty() {
            return Err(without_columns(options.format));
        }
        let is_parquet = options.format == CopyFormat::Parquet;
        let field = |(field, (name, ty)): (&FieldRef, &(String, SqlType))| match field.data_type().is_nested()
        {
            true => Field::new(name, exchanged(field.data_type()), true),
            false => file_field(name, *ty, is_parquet),
        };
        let fields: Vec<Field> = plan.fields().iter().zip(columns).map(field).collect();
        let ty = |(field, (_, ty)): (&FieldRef, &(String, SqlType))| {
            (!field.data_type().is_nested()).then_some(*ty)
        };
        let types = plan.fields().iter().zip(columns).map(ty).collect();
        let schema = Arc::new(Schema::new(fields));
        let form = Form { columns: types, schema, zone };
        Ok(ColumnWriter(match (is_parquet, is_file) {
            (true, _) => Sink::Parquet(Box::new(ParquetOut::new(options, form, threads)?)),
            (false, true) => {
                let options = ipc_options(options).map_err(external)?;
                let writer = FileWriter::try_new_with_options(Vec::new(), &form.schema, options);
                Sink::File(Formed::new(form, threads), Box::new(writer.map_err(external)?))
            }
            (false, false) => {
                let options = ipc_options(options).map_err(external)?;
                let writer = StreamWriter::try_new_with_options(Vec::new(), &form.schema, options);
                Sink::Stream(Formed::new(form, threads), Box::new(writer.map_err(external)?))
            }
        }))
    }

    /// Takes a batch, and appends what can be written.
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            Sink::Parquet(writer) => writer.write(batch, out)?,
            Sink::File(formed, writer) => {
                formed.take(batch, |batch| {
                    writer.get_mut().reserve(bytes_of(batch) + ROOM_BESIDE);
                    writer.write(batch).map_err(external)
                })?;
                append(out, writer.get_mut());
            }
            Sink::Stream(formed, writer) => {
                formed.take(batch, |batch| {
                    writer.get_mut().reserve(bytes_of(batch) + ROOM_BESIDE);
                    writer.write(batch).map_err(external)
                })?;
                append(out, writer.get_mut());
            }
        }
        Ok(())
    }

    /// Appends what is left.
    fn finish(self, out: &mut Vec<u8>) -> Result<()> {
        match self.0 {
            Sink::Parquet(writer) => writer.finish(out)?,
            Sink::File(formed, mut writer) => {
                formed.finish(|batch| writer.write(batch).map_err(external))?;
                writer.finish().map_err(external)?;
                append(out, writer.get_mut());
            }
            Sink::Stream(formed, mut writer) => {
                formed.finish(|batch| writer.write(batch).map_err(external))?;
                writer.finish().map_err(external)?;
                append(out, writer.get_mut());
            }
        }
        Ok(())
    }
}

/// Appends what has been written; mostly there is nothing yet that it would have to be copied behind.
fn append(out: &mut Vec<u8>, written: &mut Vec<u8>) {
    match out.is_empty() {
        true => *out = std::mem::take(written),
        false => out.append(written),
    }
}

impl Form {
    /// The rows of a batch as the file has them.
    pub fn of_file(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(&self.columns).zip(self.schema.fields());
        let columns = columns.map(|((column, ty), field)| match ty {
            Some(ty) => self.written(column, *ty, field.data_type()),
            None => converted(column, field.data_type()),
        });
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows).map_err(external)
    }

    /// A column of a result in the type that the file has for it.
    fn written(&self, column: &ArrayRef, ty: SqlType, wanted: &DataType) -> Result<ArrayRef> {
        if ty != SqlType::Interval || *wanted != DataType::Utf8 {
            return converted(&as_declared(column, ty)?, wanted);
        }
        let text = |row| {
            let value = types::value_at(column, row)?;
            let mut text = String::new();
            text::write(&value, ty, &self.zone, &mut text);
            Ok((!value.is_null()).then_some(text))
        };
        let texts = (0..column.len()).map(text).collect::<Result<StringArray>>()?;
        Ok(Arc::new(texts))
    }
}

/// The column of a file for a column of a result.
fn file_field(name: &str, ty: SqlType, is_parquet: bool) -> Field {
    let field = Field::new(name, types::data_type(ty), true);
    match ty {
        // Parquet's own interval has no more than milliseconds.
        SqlType::Interval if is_parquet => field.with_data_type(DataType::Utf8),
        SqlType::Uuid => field.with_metadata([(UUID_KEY.to_owned(), UUID.to_owned())].into()),
        _ => {
            let ty = exchanged(field.data_type());
            field.with_data_type(ty)
        }
    }
}

/// The type that programs of any age read: they know offsets better than views.
fn exchanged(ty: &DataType) -> DataType {
    match ty {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(inner) => {
            DataType::List(Arc::new(Field::new(inner.name(), exchanged(inner.data_type()), true)))
        }
        other => other.clone(),
    }
}

fn ipc_options(options: &Options) -> std::result::Result<IpcWriteOptions, ArrowError> {
    IpcWriteOptions::default().try_with_compression(match options.compression {
        Some(Compression::Zstd) => Some(CompressionType::ZSTD),
        Some(Compression::Lz4) => Some(CompressionType::LZ4_FRAME),
        _ => None,
    })
}
