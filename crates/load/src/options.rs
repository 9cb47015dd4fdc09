//! The options of COPY for a file, with PostgreSQL's defaults and checks.

use crate::encoding::Encoding;
use crate::structure::{Dialect, Quoting};
use firn_base::{Error, Result, SqlState};

/// The format of a file that stores row after row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RowFormat {
    /// One record per line, backslash escapes.
    Text,
    /// Comma-separated values with quotes.
    Csv,
    /// Values in their wire format, each with its length.
    Binary,
    /// One JSON object per line, whose keys are the names of columns.
    Json,
}

/// The value of `quote` for files without quotes. Text has no such byte.
pub const NO_QUOTE: u8 = 0;

/// Where in a field quotes may open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuotesOpen {
    /// Everywhere, as for PostgreSQL: `5" x, 7"` is one field.
    Anywhere,
    /// At its beginning: others are literal.
    AtBeginning,
}

/// Whether the first line names the columns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CopyHeader {
    /// There is none.
    No,
    /// It is written, and skipped when read.
    Yes,
    /// It is written, and must name the columns when read.
    Match,
}

/// How a file with rows that cannot be read is treated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnError {
    /// The first of them is an error.
    Stop,
    /// They are left out.
    Ignore,
}

/// The options of one COPY.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CopyOptions {
    /// FORMAT
    pub format: RowFormat,
    /// DELIMITER
    pub delimiter: u8,
    /// NULL
    pub null: String,
    /// HEADER
    pub header: CopyHeader,
    /// QUOTE, CSV only; [`NO_QUOTE`] if there is none
    pub quote: u8,
    /// ESCAPE, CSV only
    pub escape: u8,
    /// Where quotes open, CSV only
    pub quotes_open: QuotesOpen,
    /// FORCE_QUOTE: by column of the copied list; shorter lists mean no.
    pub force_quote: Vec<bool>,
    /// FORCE_NOT_NULL, likewise
    pub force_not_null: Vec<bool>,
    /// FORCE_NULL, likewise
    pub force_null: Vec<bool>,
    /// ON_ERROR, not for binary files
    pub on_error: OnError,
    /// ENCODING, not of binary files
    pub encoding: Encoding,
    /// Whether blank lines are skipped, of a CSV file of several columns
    pub passes_over_blank: bool,
    /// The number of lines to skip at the beginning of a file of text or CSV.
    pub skip: u64,
    /// Whether a line `\.` ends the data, of text, CSV and JSON; otherwise it is data, as other programs read such files.
    pub ends_at_marker: bool,
    /// Whether JSON objects may have keys that name no column, which are skipped.
    pub other_keys: bool,
}

impl CopyOptions {
    /// The defaults of a format.
    pub fn new(format: RowFormat) -> CopyOptions {
        let (delimiter, null) = match format {
            RowFormat::Text => (b'\t', "\\N"),
            RowFormat::Csv => (b',', ""),
            // There are no delimiters.
            RowFormat::Binary | RowFormat::Json => (0, ""),
        };
        CopyOptions {
            format,
            delimiter,
            null: null.to_owned(),
            header: CopyHeader::No,
            quote: b'"',
            escape: b'"',
            quotes_open: QuotesOpen::Anywhere,
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
            on_error: OnError::Stop,
            encoding: Encoding::Utf8,
            passes_over_blank: false,
            skip: 0,
            ends_at_marker: true,
            other_keys: false,
        }
    }

    /// The bytes with a meaning in files of text and CSV.
    pub(crate) fn dialect(&self) -> Dialect {
        let CopyOptions { delimiter, quote, escape, .. } = *self;
        let quoting = match self.format {
            RowFormat::Csv if quote == NO_QUOTE => Quoting::Never,
            RowFormat::Csv if self.quotes_open == QuotesOpen::AtBeginning => {
                Quoting::Leading { quote, escape }
            }
            RowFormat::Csv if quote == escape => Quoting::Doubled(quote),
            RowFormat::Csv => Quoting::Escaped { quote, escape },
            _ => Quoting::Backslash,
        };
        Dialect { delimiter, quoting }
    }

    /// Refuses combinations whose output could not be read back.
    pub fn check(&self) -> Result<()> {
        let invalid = |message: &str| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        if !self.delimiter.is_ascii() || !self.quote.is_ascii() || !self.escape.is_ascii() {
            return Err(Error::unsupported("a COPY delimiter, quote or escape outside ASCII"));
        }
        if matches!(self.delimiter, b'\n' | b'\r') {
            return invalid("COPY delimiter cannot be newline or carriage return");
        }
        if self.null.contains(['\n', '\r']) {
            return invalid("COPY null representation cannot use newline or carriage return");
        }
        let unsupported = |message: &str| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        if self.null.as_bytes().contains(&self.delimiter) {
            return unsupported("COPY delimiter must not appear in the NULL specification");
        }
        match self.format {
            RowFormat::Binary | RowFormat::Json => {}
            RowFormat::Text => {
                // These would be mistaken for escapes.
                if matches!(self.delimiter, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9') {
                    return invalid(&format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter)));
                }
            }
            RowFormat::Csv => {
                if self.quote == NO_QUOTE && self.escape != NO_QUOTE {
                    return invalid("COPY escape cannot be given without a quote");
                }
                if self.delimiter == self.quote {
                    return invalid("COPY delimiter and quote must be different");
                }
                if self.null.as_bytes().contains(&self.quote) {
                    return unsupported("CSV quote character must not appear in the NULL specification");
                }
                if matches!(self.quote, b'\n' | b'\r') || matches!(self.escape, b'\n' | b'\r') {
                    return invalid("COPY quote and escape cannot be newline or carriage return");
                }
            }
        }
        Ok(())
    }
}

/// Whether a list of columns contains a column.
pub(crate) fn forced(columns: &[bool], column: usize) -> bool {
    columns.get(column).copied().unwrap_or(false)
}
