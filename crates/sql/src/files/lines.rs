//! Files of rows, CSV and JSON lines, as tables: read by the code of COPY, of each row the columns that are asked for.

use super::{Asked, Kind, file_error, no_columns};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::streaming::PartitionStream;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, TimeZoneSetting};
use firn_load::sniff::{Known, SAMPLE_BYTES, Sniffed, sniff};
use firn_load::{CopyOptions, CopyReader, RowFormat, json, source};
use std::fmt::{self, Debug};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the beginning of the first file tells.
pub(super) fn look(path: &Path, asked: &Asked, kind: Kind) -> Result<Sniffed> {
    let failed = |error| file_error(path, &error);
    let mut sample = Vec::new();
    let mut source = open_text(path).map_err(failed)?.take(SAMPLE_BYTES as u64);
    source.read_to_end(&mut sample).map_err(failed)?;
    let sniffed = match (kind, asked) {
        (Kind::Json, _) => {
            let columns = json::sniff(&place(path), &sample)?;
            Sniffed {
                options: CopyOptions { other_keys: true, ..CopyOptions::new(RowFormat::Json) },
                columns,
            }
        }
        (_, Asked::Csv(known)) => sniff(&sample, known),
        _ => sniff(&sample, &Known::default()),
    };
    sniffed.options.check()?;
    match sniffed.columns.is_empty() {
        true if sample.is_empty() => Err(no_columns(path, "it is empty")),
        true if sample.len() < SAMPLE_BYTES => Err(no_columns(path, "no row has any")),
        true => Err(no_columns(path, "no record ends in its first megabyte")),
        false => Ok(sniffed),
    }
}

/// The bytes of a file, without the mark that some programs put before UTF-8.
fn open_text(path: &Path) -> std::io::Result<source::Source> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut file = source::open(path)?;
    let mut begin = Vec::with_capacity(MARK.len());
    (&mut file).take(MARK.len() as u64).read_to_end(&mut begin)?;
    Ok(match begin == MARK {
        true => file,
        false => Box::new(std::io::Cursor::new(begin).chain(file)),
    })
}

fn place(path: &Path) -> String {
    format!("file \"{}\"", path.display())
}

/// The rows of files, one after another.
#[derive(Clone)]
pub(super) struct LineStream {
    pub paths: Vec<PathBuf>,
    pub sniffed: Sniffed,
    /// The columns to read.
    pub wanted: Vec<usize>,
    pub schema: SchemaRef,
    pub zone: TimeZoneSetting,
}

impl Debug for LineStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LineStream({:?})", self.paths)
    }
}

impl PartitionStream for LineStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = self.clone();
        let threads = context.session_config().target_partitions();
        super::spawn(self.schema.clone(), move |sink| stream.read(threads, sink))
    }
}

impl LineStream {
    fn read(&self, threads: usize, sink: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        for path in &self.paths {
            let failed = |error: &std::io::Error| file_error(path, error);
            let place = place(path);
            let Sniffed { options, columns } = self.sniffed.clone();
            let mut reader = CopyReader::new(&place, columns, options, self.zone)?;
            reader.project(self.wanted.clone());
            let mut file = open_text(path).map_err(|error| failed(&error))?;
            let read = reader.read_file(&mut *file, &failed, threads, &mut |read| {
                if read.rows == 0 {
                    return Ok(());
                }
                let options = RecordBatchOptions::new().with_row_count(Some(read.rows));
                let batch = RecordBatch::try_new_with_options(self.schema.clone(), read.columns, &options);
                sink(batch.map_err(|error| firn_exec::error::from_datafusion(error.into()))?)
            });
            read.map_err(|error| self.explained(error))?;
        }
        Ok(())
    }

    /// An error in a file, of which only the beginning was looked at.
    fn explained(&self, error: Error) -> Error {
        match error.state() {
            SqlState::INVALID_TEXT_REPRESENTATION
            | SqlState::NUMERIC_VALUE_OUT_OF_RANGE
            | SqlState::INVALID_DATETIME_FORMAT
            | SqlState::DATETIME_FIELD_OVERFLOW
                if error.hint().is_none() => error.with_hint(
                "The types of columns are told from the file's first megabyte. Where they do not hold for all of it, create \
                 a table and COPY the file into it.",
            ),
            _ => error,
        }
    }
}
