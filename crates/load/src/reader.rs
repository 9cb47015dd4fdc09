//! Reading files of any format: the reader that the options ask for.

use crate::binary::BinaryReader;
use crate::columns::ColumnBuilder;
use crate::lines::LineReader;
use crate::options::{CopyFormat, CopyOptions};
use arrow_array::ArrayRef;
use firn_base::{Result, SqlType, TimeZoneSetting};

/// Rows in a batch.
pub const BATCH_ROWS: usize = 8_192;

/// A push parser: bytes in, batches of columns out.
pub struct CopyReader(Reader);

enum Reader {
    Lines(Box<LineReader>),
    Binary(Box<BinaryReader>),
}

/// The table and columns that rows are for, as errors name them.
pub(crate) struct Target {
    pub(crate) table: String,
    pub(crate) columns: Vec<(String, SqlType)>,
}

impl Target {
    /// An empty column for each.
    pub(crate) fn builders(&self, zone: TimeZoneSetting) -> Vec<ColumnBuilder> {
        self.columns.iter().map(|(_, ty)| ColumnBuilder::new(*ty, zone)).collect()
    }
}

impl CopyReader {
    /// A reader of rows for columns of a table. Moments that name no zone are in `zone`.
    pub fn new(
        table: &str,
        columns: Vec<(String, SqlType)>,
        options: CopyOptions,
        zone: TimeZoneSetting,
    ) -> Result<CopyReader> {
        options.check()?;
        let target = Target { table: table.to_owned(), columns };
        Ok(CopyReader(match options.format {
            CopyFormat::Text | CopyFormat::Csv => {
                Reader::Lines(Box::new(LineReader::new(target, options, zone)))
            }
            CopyFormat::Binary => Reader::Binary(Box::new(BinaryReader::new(target, zone))),
        }))
    }

    /// Takes the next piece of the file. After an error the reader is of no more use.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.0 {
            Reader::Lines(reader) => reader.push(bytes),
            Reader::Binary(reader) => reader.push(bytes),
        }
    }

    /// The next full batch, one array per column.
    pub fn next_batch(&mut self) -> Option<Vec<ArrayRef>> {
        match &mut self.0 {
            Reader::Lines(reader) => reader.next_batch(),
            Reader::Binary(reader) => reader.next_batch(),
        }
    }

    /// Says that the file has ended. Afterwards [`CopyReader::next_batch`] yields the last rows, too.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Reader::Lines(reader) => reader.finish(),
            Reader::Binary(reader) => reader.finish(),
        }
    }
}
