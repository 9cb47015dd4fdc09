//! COPY TO files that store columns: Parquet, and Arrow's IPC format as a file or as a stream. Types that a format lacks are
//! written as text.

use super::options::{Compression, CopyFormat, Options};
use super::parquet_out::ParquetOut;
use super::rows_out::Piece;
use super::without_columns;
use super::workers::{Workers, bytes_of};
use crate::arrow::converted;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, TextStyle, TimeZoneSetting, TypeId, text};
use firn_executor::values::value;
use firn_query::{ResultChunk, ResultColumn, Stream};

/// The approximate size of an Arrow message beside its values.
const ROOM_BESIDE: usize = 4 << 10;

/// The least size of a piece that is written.
const PIECE_BYTES: usize = 64 << 10;

/// The name by which Arrow and Parquet distinguish uuids from other values of 16 bytes.
const UUID_KEY: &str = "ARROW:extension:name";
const UUID: &str = "arrow.uuid";

/// Writes columns.
pub(super) struct ColumnWriter(Sink);

/// The writer of a format.
enum Sink {
    Parquet(Box<ParquetOut>),
    File(Formed, Box<FileWriter<Vec<u8>>>),
    Stream(Formed, Box<StreamWriter<Vec<u8>>>),
}

/// Batches in the schema of a file, which several threads make of the chunks of a query.
struct Formed {
    form: Arc<Form>,
    threads: usize,
    workers: Option<Workers<ResultChunk, Result<RecordBatch>>>,
    /// How many have been taken.
    taken: usize,
}

impl Formed {
    /// The number that are made on this thread, before others are started.
    const FIRST: usize = 4;

    fn new(form: Form, threads: usize) -> Formed {
        Formed { form: Arc::new(form), threads, workers: None, taken: 0 }
    }

    /// Takes a chunk, and passes on the batches that are ready, in their order.
    fn take(&mut self, chunk: ResultChunk, mut write: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        self.taken += 1;
        if self.workers.is_none() && self.threads > 1 && self.taken > Formed::FIRST {
            let form = self.form.clone();
            let work = move |chunk: ResultChunk| form.of_file(&chunk);
            self.workers = Workers::start("firn-copy", self.threads, work);
        }
        let Some(workers) = &mut self.workers else { return write(&self.form.of_file(&chunk)?) };
        while workers.is_enough() {
            write(&workers.next().expect("some are under way")?)?;
        }
        let bytes = bytes_of(&chunk);
        workers.give(chunk, bytes);
        Ok(())
    }

    /// Passes on the rest.
    fn finish(self, mut write: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        let Some(mut workers) = self.workers else { return Ok(()) };
        while let Some(batch) = workers.next() {
            write(&batch?)?;
        }
        Ok(())
    }
}

/// The conversion of rows of a query to those of a file.
pub(super) struct Form {
    columns: Vec<ResultColumn>,
    /// The schema of the query.
    result: SchemaRef,
    /// The schema of the file.
    pub schema: SchemaRef,
    zone: TimeZoneSetting,
}

/// The output of a writer for the next rows; `None` once it has ended.
pub(super) fn next_piece(writer: &mut Option<Box<ColumnWriter>>, rows: &mut Stream) -> Result<Option<Piece>> {
    let Some(columns) = writer else { return Ok(None) };
    let (mut bytes, mut count) = (Vec::new(), 0);
    while bytes.len() < PIECE_BYTES {
        match rows.next()? {
            Some(chunk) => {
                count += chunk.rows();
                columns.write(chunk, &mut bytes)?;
            }
            None => {
                writer.take().expect("it has not ended").finish(&mut bytes)?;
                break;
            }
        }
    }
    Ok(Some(Piece { bytes, rows: count }))
}

impl ColumnWriter {
    /// A writer for rows of these columns.
    pub fn new(
        options: &Options,
        columns: &[ResultColumn],
        zone: TimeZoneSetting,
        is_file: bool,
        threads: usize,
    ) -> Result<ColumnWriter> {
        if columns.is_empty() {
            return Err(without_columns(options.format));
        }
        let is_parquet = options.format == CopyFormat::Parquet;
        let result = firn_query::arrow::schema(columns);
        let field = |(field, column): (&FieldRef, &ResultColumn)| file_field(field, column, is_parquet);
        let fields: Vec<Field> = result.fields().iter().zip(columns).map(field).collect();
        let schema = Arc::new(Schema::new(fields));
        let form = Form { columns: columns.to_vec(), result, schema, zone };
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

    /// Takes a chunk, and appends the output that is ready.
    fn write(&mut self, chunk: ResultChunk, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.0 {
            Sink::Parquet(writer) => writer.write(&chunk, out)?,
            Sink::File(formed, writer) => {
                formed.take(chunk, |batch| {
                    writer.get_mut().reserve(batch.get_array_memory_size() + ROOM_BESIDE);
                    writer.write(batch).map_err(external)
                })?;
                append(out, writer.get_mut());
            }
            Sink::Stream(formed, writer) => {
                formed.take(chunk, |batch| {
                    writer.get_mut().reserve(batch.get_array_memory_size() + ROOM_BESIDE);
                    writer.write(batch).map_err(external)
                })?;
                append(out, writer.get_mut());
            }
        }
        Ok(())
    }

    /// Appends the rest.
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

/// Appends what has been written; mostly `out` is empty and the buffer is moved.
fn append(out: &mut Vec<u8>, written: &mut Vec<u8>) {
    match out.is_empty() {
        true => *out = std::mem::take(written),
        false => out.append(written),
    }
}

impl Form {
    /// Rows in the schema of the file.
    pub fn of_file(&self, chunk: &ResultChunk) -> Result<RecordBatch> {
        let batch = firn_query::arrow::batch(chunk, &self.columns, &self.result)?;
        let columns = batch.columns().iter().zip(self.schema.fields()).enumerate();
        let columns = columns.map(|(place, (column, field))| {
            match self.columns[place].ty.id == TypeId::INTERVAL && *field.data_type() == DataType::Utf8 {
                true => Ok(self.intervals(chunk, place)),
                false => converted(column, field.data_type()),
            }
        });
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows).map_err(external)
    }

    /// The texts of a column of intervals.
    fn intervals(&self, chunk: &ResultChunk, place: usize) -> ArrayRef {
        let vector = &chunk.values.vectors()[place];
        let written = |row| {
            let value = value(vector.datum(row), vector.representation());
            let mut written = String::new();
            text::write_any(&value, self.columns[place].ty, &TextStyle::in_zone(self.zone), &mut written);
            (!value.is_null()).then_some(written)
        };
        Arc::new((0..chunk.rows()).map(written).collect::<StringArray>())
    }
}

/// The column of a file for a column of a result.
fn file_field(field: &FieldRef, column: &ResultColumn, is_parquet: bool) -> Field {
    let ty = exchanged(field.data_type());
    let field = Field::new(&column.name, ty, true);
    match column.ty.id {
        // Parquet's own interval has no more than milliseconds.
        TypeId::INTERVAL if is_parquet => field.with_data_type(DataType::Utf8),
        TypeId::UUID => field.with_metadata([(UUID_KEY.to_owned(), UUID.to_owned())].into()),
        _ => field,
    }
}

fn external(error: ArrowError) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, error.to_string())
}

/// The type that also older programs read: they support offsets better than views.
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
