//! Writing Parquet files on several threads: each row group is encoded and compressed by one thread while others do so with the
//! next ones.

use super::columns_out::Form;
use super::options::{Compression, Options};
use super::workers::{Workers, bytes_of};
use arrow::datatypes::SchemaRef;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_query::ResultChunk;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

/// The most bytes of a row group before it is encoded, however few rows that are.
const GROUP_BYTES: usize = 128 << 20;

/// A file that is being written.
pub(super) struct ParquetOut {
    writer: SerializedFileWriter<Vec<u8>>,
    encoder: Arc<Encoder>,
    /// Rows of a row group.
    group_rows: usize,
    /// The chunks of the next row group so far.
    chunks: Vec<ResultChunk>,
    rows: usize,
    bytes: usize,
    /// Row groups begun.
    begun: usize,
    threads: usize,
    workers: Option<Workers<Job, Result<Vec<ArrowColumnChunk>>>>,
}

/// What all threads share.
struct Encoder {
    form: Form,
    groups: ArrowRowGroupWriterFactory,
}

/// The rows of one row group.
struct Job {
    number: usize,
    chunks: Vec<ResultChunk>,
}

impl Encoder {
    fn encode(&self, job: &Job) -> Result<Vec<ArrowColumnChunk>> {
        let mut writers = self.groups.create_column_writers(job.number).map_err(unwritten)?;
        for chunk in &job.chunks {
            let batch = self.form.of_file(chunk)?;
            let mut leaves = writers.iter_mut();
            for (field, column) in self.form.schema.fields().iter().zip(batch.columns()) {
                for leaf in compute_leaves(field, column).map_err(unwritten)? {
                    let writer = leaves.next().expect("a leaf has a writer");
                    writer.write(&leaf).map_err(unwritten)?;
                }
            }
        }
        writers.into_iter().map(|writer| writer.close().map_err(unwritten)).collect()
    }
}

impl ParquetOut {
    pub fn new(options: &Options, form: Form, threads: usize) -> Result<ParquetOut> {
        let (writer, groups) = begin(options, &form.schema).map_err(unwritten)?;
        Ok(ParquetOut {
            writer,
            encoder: Arc::new(Encoder { form, groups }),
            group_rows: options.row_group_rows,
            chunks: Vec::new(),
            rows: 0,
            bytes: 0,
            begun: 0,
            threads,
            workers: None,
        })
    }

    /// Takes a chunk, and appends the output that is ready.
    pub fn write(&mut self, chunk: &ResultChunk, out: &mut Vec<u8>) -> Result<()> {
        let mut from = 0;
        while from < chunk.rows() {
            let taken = (self.group_rows - self.rows).min(chunk.rows() - from);
            let part = chunk.slice(from, taken);
            self.bytes += bytes_of(&part);
            self.chunks.push(part);
            self.rows += taken;
            from += taken;
            if self.rows == self.group_rows || self.bytes >= GROUP_BYTES {
                self.end_group()?;
            }
        }
        out.append(self.writer.inner_mut());
        Ok(())
    }

    /// Encodes the row group.
    fn end_group(&mut self) -> Result<()> {
        let job = Job { number: self.begun, chunks: std::mem::take(&mut self.chunks) };
        let bytes = std::mem::take(&mut self.bytes);
        self.rows = 0;
        self.begun += 1;
        // No other threads are started for the first: there may be no second.
        if self.workers.is_none() && self.threads > 1 && job.number > 0 {
            let encoder = self.encoder.clone();
            self.workers = Workers::start("firn-copy", self.threads, move |job: Job| encoder.encode(&job));
        }
        let Some(mut workers) = self.workers.take() else {
            let chunks = self.encoder.encode(&job)?;
            return self.append(chunks);
        };
        while workers.is_enough() {
            self.append(workers.next().expect("some are under way")?)?;
        }
        workers.give(job, bytes);
        self.workers = Some(workers);
        Ok(())
    }

    fn append(&mut self, chunks: Vec<ArrowColumnChunk>) -> Result<()> {
        let mut group = self.writer.next_row_group().map_err(unwritten)?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group).map_err(unwritten)?;
        }
        group.close().map(drop).map_err(unwritten)
    }

    /// Appends the rest.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.rows > 0 {
            self.end_group()?;
        }
        if let Some(mut workers) = self.workers.take() {
            while let Some(chunks) = workers.next() {
                self.append(chunks?)?;
            }
        }
        out.append(&mut self.writer.into_inner().map_err(unwritten)?);
        Ok(())
    }
}

type Begun = (SerializedFileWriter<Vec<u8>>, ArrowRowGroupWriterFactory);

fn begin(options: &Options, schema: &SchemaRef) -> std::result::Result<Begun, ParquetError> {
    let compression = match options.compression.unwrap_or(Compression::Zstd) {
        Compression::None => parquet::basic::Compression::UNCOMPRESSED,
        Compression::Gzip => parquet::basic::Compression::GZIP(GzipLevel::default()),
        Compression::Zstd => parquet::basic::Compression::ZSTD(ZstdLevel::default()),
        Compression::Snappy => parquet::basic::Compression::SNAPPY,
        Compression::Lz4 => parquet::basic::Compression::LZ4_RAW,
    };
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_created_by(format!("FirnDB {}", env!("CARGO_PKG_VERSION")))
        .build();
    ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties))?.into_serialized_writer()
}

#[cold]
fn unwritten(error: ParquetError) -> Error {
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, "the rows cannot be written as a Parquet file")
        .with_detail(error.to_string())
}
