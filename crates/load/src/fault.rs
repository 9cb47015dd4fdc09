//! Errors of records: found by position, reported by line.

use crate::encoding::Encoding;
use crate::options::CopyOptions;
use firn_base::{Error, SqlState};
use std::ops::Range;

/// The number of characters of wrong data that an error shows.
const SHOWN_CHARACTERS: usize = 100;

/// The routine of an error about too few or too many fields, which distinguishes it from others of its SQLSTATE.
pub const WIDTH_ROUTINE: &str = "NextCopyFrom";

/// An error of a record of a chunk.
pub(crate) struct Fault {
    /// The place of the record, without its line feed.
    pub record: Range<usize>,
    /// The column and the text of the field with the error; `None` if it is about the whole record.
    pub field: Option<(String, String)>,
    pub error: Error,
    /// Whether the record is the header, without which no row can be read.
    pub is_of_header: bool,
}

/// A row that was left out.
#[derive(Debug)]
pub struct Rejected {
    /// Its error, and the place.
    pub error: Error,
    /// The line on which it ends.
    pub line: u64,
    /// The column and the text of the field with the error; `None` if it is about the whole record.
    pub field: Option<(String, String)>,
    /// The record as in the file; bytes that are no UTF-8 are U+FFFD.
    pub record: String,
}

impl Fault {
    /// A record has too few fields or too many.
    #[cold]
    pub fn of_width(record: Range<usize>, message: impl Into<String>) -> Fault {
        Fault {
            record,
            field: None,
            error: Error::new(SqlState::BAD_COPY_FILE_FORMAT, message).with_routine(WIDTH_ROUTINE),
            is_of_header: false,
        }
    }

    /// The description of a row that is left out.
    #[cold]
    pub fn into_rejected(self, file: &str, line: u64, chunk: &[u8]) -> Rejected {
        let field = self.field.clone();
        let record = String::from_utf8_lossy(&chunk[self.record.clone()]).into_owned();
        Rejected { error: self.into_error(file, line, chunk), line, field, record }
    }

    /// The error, which names the place.
    #[cold]
    pub fn into_error(self, file: &str, line: u64, chunk: &[u8]) -> Error {
        let place = format!("{file}, line {line}");
        self.error.with_context(match self.field {
            Some((name, value)) => format!("{place}, column {name}: \"{}\"", shown(&value)),
            None => record_context(file, line, &chunk[self.record]),
        })
    }
}

/// The place of an error about a whole record.
pub(crate) fn record_context(file: &str, line: u64, record: &[u8]) -> String {
    format!("{file}, line {line}: \"{}\"", shown(&String::from_utf8_lossy(record)))
}

/// The hint for bytes that are no UTF-8, unless they are no text at all.
#[cold]
pub(crate) fn with_encoding_hint(error: Error, bytes: &[u8], options: &CopyOptions) -> Error {
    if options.encoding != Encoding::Utf8 || bytes.contains(&0) {
        return error;
    }
    error.with_hint(
        "The file may have another encoding: try ENCODING 'LATIN1' in COPY, or encoding => 'latin1' in read_csv.",
    )
}

/// The beginning of wrong data, for an error.
fn shown(data: &str) -> String {
    match data.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &data[..end]),
        None => data.to_owned(),
    }
}
