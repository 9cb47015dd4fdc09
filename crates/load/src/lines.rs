//! Reading COPY's text and CSV formats, a record per line.
//!
//! Bytes come in pieces cut anywhere. A record that is cut is carried over to the next piece; how far
//! it was searched for its end, and whether inside quotes, is remembered, so that every byte is
//! searched once however small the pieces are. Invariant: `carry` never holds a whole record.

use crate::columns::ColumnBuilder;
use crate::options::{CopyFormat, CopyHeader, CopyOptions, forced};
use crate::reader::{BATCH_ROWS, Target};
use arrow_array::ArrayRef;
use firn_base::binary::utf8;
use firn_base::{Error, Result, SqlState, TimeZoneSetting};
use std::collections::VecDeque;

/// As many characters of wrong data as an error shows.
const SHOWN_CHARACTERS: usize = 100;

/// A push parser: bytes in, batches of columns out.
pub(crate) struct LineReader {
    target: Target,
    options: CopyOptions,
    builders: Vec<ColumnBuilder>,
    /// Rows in `builders`.
    rows: usize,
    batches: VecDeque<Vec<ArrayRef>>,
    /// The beginning of a record whose end has not come yet.
    carry: Vec<u8>,
    search: Search,
    /// Lines read so far, those inside quotes included.
    line: u64,
    header_pending: bool,
    /// `\.` was read: whatever follows does not count.
    ended: bool,
    /// Where fields are put together that hold escapes.
    scratch: Vec<u8>,
}

/// How far the search for a record's end has come.
#[derive(Clone, Copy, Default)]
struct Search {
    /// Bytes of the record that were looked at.
    position: usize,
    in_quotes: bool,
    after_escape: bool,
    /// Line breaks inside quotes.
    inner_lines: u64,
}

impl LineReader {
    /// A reader of rows for columns of a table. Moments that name no zone are in `zone`.
    pub(crate) fn new(target: Target, options: CopyOptions, zone: TimeZoneSetting) -> LineReader {
        LineReader {
            builders: target.builders(zone),
            target,
            header_pending: options.header != CopyHeader::No,
            options,
            rows: 0,
            batches: VecDeque::new(),
            carry: Vec::new(),
            search: Search::default(),
            line: 0,
            ended: false,
            scratch: Vec::new(),
        }
    }

    /// Takes the next piece of the file. After an error the reader is of no more use.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.carry.is_empty() {
            let taken = self.records(bytes)?;
            self.carry.extend_from_slice(&bytes[taken..]);
        } else {
            let mut carry = std::mem::take(&mut self.carry);
            carry.extend_from_slice(bytes);
            let taken = self.records(&carry)?;
            carry.drain(..taken);
            self.carry = carry;
        }
        Ok(())
    }

    /// The next full batch, one array per column.
    pub(crate) fn next_batch(&mut self) -> Option<Vec<ArrayRef>> {
        self.batches.pop_front()
    }

    /// Says that the file has ended. Afterwards [`LineReader::next_batch`] yields the last rows, too.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let last = std::mem::take(&mut self.carry);
        if !last.is_empty() && !self.ended {
            self.line += 1 + self.search.inner_lines;
            if self.search.in_quotes {
                return Err(self.bad_record("unterminated CSV quoted field", &last));
            }
            // The last line may lack its end.
            self.record(last.strip_suffix(b"\r").unwrap_or(&last))?;
        }
        self.flush();
        Ok(())
    }

    /// Reads all whole records of `bytes`; returns how many bytes they took.
    fn records(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut start = 0;
        while !self.ended {
            let Some(length) = self.find_end(&bytes[start..]) else { break };
            let record = &bytes[start..start + length];
            self.line += 1 + self.search.inner_lines;
            self.search = Search::default();
            self.record(record.strip_suffix(b"\r").unwrap_or(record))?;
            start += length + 1;
        }
        Ok(if self.ended { bytes.len() } else { start })
    }

    /// The length of the record that `bytes` begin with, without its line feed.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let search = &mut self.search;
        let csv = self.options.format == CopyFormat::Csv;
        // Where quotes escape themselves, doubled quotes just leave and enter the quotes again.
        let escape = match csv {
            false => Some(b'\\'),
            true if self.options.escape != self.options.quote => Some(self.options.escape),
            true => None,
        };
        while let Some(&byte) = bytes.get(search.position) {
            search.position += 1;
            if search.after_escape {
                search.after_escape = false;
                search.inner_lines += u64::from(byte == b'\n');
            } else if Some(byte) == escape && (!csv || search.in_quotes) {
                search.after_escape = true;
            } else if csv && byte == self.options.quote {
                search.in_quotes = !search.in_quotes;
            } else if byte == b'\n' {
                if search.in_quotes {
                    search.inner_lines += 1;
                } else {
                    return Some(search.position - 1);
                }
            }
        }
        None
    }

    fn record(&mut self, record: &[u8]) -> Result<()> {
        if record == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let text = utf8(record).map_err(|error| error.with_context(self.context()))?;
        if self.header_pending {
            self.header_pending = false;
            return match self.options.header {
                CopyHeader::Match => self.check_header(text),
                _ => Ok(()),
            };
        }
        match self.options.format == CopyFormat::Csv {
            false => self.text_record(text)?,
            true => self.csv_record(text)?,
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        if self.rows > 0 {
            self.batches.push_back(self.builders.iter_mut().map(ColumnBuilder::finish).collect());
            self.rows = 0;
        }
    }

    fn text_record(&mut self, record: &str) -> Result<()> {
        if record.as_bytes().contains(&b'\r') {
            return Err(self
                .bad_record("literal carriage return found in data", record.as_bytes())
                .with_hint("Use \"\\r\" to represent carriage return."));
        }
        let bytes = record.as_bytes();
        let mut start = 0;
        let mut column = 0;
        loop {
            let (end, escaped) = text_field_end(bytes, start, self.options.delimiter);
            let raw = &record[start..end];
            if column == self.builders.len() {
                return Err(self.bad_record("extra data after last expected column", bytes));
            }
            if raw == self.options.null {
                self.builders[column].append_null();
            } else if !escaped {
                let outcome = self.builders[column].append(raw);
                outcome.map_err(|error| self.bad_field(error, column, raw))?;
            } else {
                unescape(raw.as_bytes(), &mut self.scratch);
                let builder = &mut self.builders[column];
                let outcome = utf8(&self.scratch).and_then(|field| builder.append(field));
                outcome.map_err(|error| {
                    self.bad_field(error, column, &String::from_utf8_lossy(&self.scratch))
                })?;
            }
            column += 1;
            if end == bytes.len() {
                break;
            }
            start = end + 1;
        }
        self.check_complete(column, record)
    }

    fn csv_record(&mut self, record: &str) -> Result<()> {
        let mut rest = Some(record);
        let mut column = 0;
        while let Some(remaining) = rest {
            if column == self.builders.len() {
                return Err(self.bad_record("extra data after last expected column", record.as_bytes()));
            }
            let field = CsvField::read(remaining, &self.options, &mut self.scratch);
            rest = field.rest;
            if field.carriage_return {
                return Err(self
                    .bad_record("unquoted carriage return found in data", record.as_bytes())
                    .with_hint("Use quoted CSV field to represent carriage return."));
            }
            // Quotes and delimiters are ASCII, so that what is left of UTF-8 without them is UTF-8.
            let value = match field.plain {
                Some(plain) => plain,
                None => std::str::from_utf8(&self.scratch).expect("cut at ASCII characters only"),
            };
            let may_be_null = match field.quoted {
                true => forced(&self.options.force_null, column),
                false => !forced(&self.options.force_not_null, column),
            };
            if may_be_null && value == self.options.null {
                self.builders[column].append_null();
            } else {
                let outcome = self.builders[column].append(value);
                outcome.map_err(|error| self.bad_field(error, column, value))?;
            }
            column += 1;
        }
        self.check_complete(column, record)
    }

    fn check_complete(&self, columns: usize, record: &str) -> Result<()> {
        match self.target.columns.get(columns) {
            None => Ok(()),
            Some((name, _)) => {
                Err(self.bad_record(&format!("missing data for column \"{name}\""), record.as_bytes()))
            }
        }
    }

    /// HEADER MATCH: the names must be those of the columns, in order.
    fn check_header(&mut self, record: &str) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        match self.options.format == CopyFormat::Csv {
            false => {
                let mut start = 0;
                loop {
                    let (end, _) = text_field_end(record.as_bytes(), start, self.options.delimiter);
                    unescape(&record.as_bytes()[start..end], &mut self.scratch);
                    names.push(String::from_utf8_lossy(&self.scratch).into_owned());
                    if end == record.len() {
                        break;
                    }
                    start = end + 1;
                }
            }
            true => {
                let mut rest = Some(record);
                while let Some(remaining) = rest {
                    let field = CsvField::read(remaining, &self.options, &mut self.scratch);
                    rest = field.rest;
                    names.push(match field.plain {
                        Some(plain) => plain.to_owned(),
                        None => String::from_utf8_lossy(&self.scratch).into_owned(),
                    });
                }
            }
        }
        if names.len() != self.target.columns.len() {
            let message = format!(
                "wrong number of fields in header line: got {}, expected {}",
                names.len(),
                self.target.columns.len()
            );
            return Err(self.bad_record(&message, record.as_bytes()));
        }
        for (position, (found, (expected, _))) in names.iter().zip(&self.target.columns).enumerate() {
            if found != expected {
                let message = format!(
                    "column name mismatch in header line field {}: got \"{found}\", expected \"{expected}\"",
                    position + 1
                );
                return Err(self.bad_record(&message, record.as_bytes()));
            }
        }
        Ok(())
    }

    fn context(&self) -> String {
        format!("COPY {}, line {}", self.target.table, self.line)
    }

    #[cold]
    fn bad_record(&self, message: &str, record: &[u8]) -> Error {
        let shown = shown(&String::from_utf8_lossy(record));
        Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
            .with_context(format!("{}: \"{shown}\"", self.context()))
    }

    #[cold]
    fn bad_field(&self, error: Error, column: usize, field: &str) -> Error {
        let (name, _) = &self.target.columns[column];
        error.with_context(format!("{}, column {name}: \"{}\"", self.context(), shown(field)))
    }
}

/// As much of wrong data as is useful.
fn shown(data: &str) -> String {
    match data.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &data[..end]),
        None => data.to_owned(),
    }
}

/// Where the field of a text record that begins at `start` ends, and whether it holds escapes.
fn text_field_end(record: &[u8], start: usize, delimiter: u8) -> (usize, bool) {
    let mut escaped = false;
    let mut position = start;
    while let Some(&byte) = record.get(position) {
        if byte == delimiter {
            return (position, escaped);
        }
        if byte == b'\\' {
            escaped = true;
            position += 1;
        }
        position += 1;
    }
    (record.len(), escaped)
}

/// Resolves the backslash escapes of the text format.
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else {
            // A backslash at the very end stands for itself.
            out.push(b'\\');
            break;
        };
        rest = after;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let digits = after.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let start = u32::from(escape - b'0');
                let value =
                    after[..digits].iter().fold(start, |value, digit| value * 8 + u32::from(digit - b'0'));
                out.push(value as u8);
                rest = &after[digits..];
            }
            b'x' => {
                let digits = after.iter().take(2).take_while(|digit| digit.is_ascii_hexdigit()).count();
                if digits == 0 {
                    out.push(b'x');
                } else {
                    let value = after[..digits]
                        .iter()
                        .filter_map(|digit| char::from(*digit).to_digit(16))
                        .fold(0, |value, digit| value * 16 + digit);
                    out.push(value as u8);
                    rest = &after[digits..];
                }
            }
            other => out.push(other),
        }
    }
}

/// The first field of what is left of a CSV record.
struct CsvField<'a> {
    /// The value, if it stands there as it is; else it was put together in the scratch buffer.
    plain: Option<&'a str>,
    /// Whether any part was in quotes.
    quoted: bool,
    carriage_return: bool,
    /// What follows the delimiter; `None` after the last field.
    rest: Option<&'a str>,
}

impl<'a> CsvField<'a> {
    fn read(record: &'a str, options: &CopyOptions, scratch: &mut Vec<u8>) -> CsvField<'a> {
        let bytes = record.as_bytes();
        let special = |byte: &u8| *byte == options.delimiter || *byte == options.quote;
        let end = bytes.iter().position(special).unwrap_or(bytes.len());
        if bytes.get(end) != Some(&options.quote) {
            let plain = &record[..end];
            return CsvField {
                plain: Some(plain),
                quoted: false,
                carriage_return: plain.as_bytes().contains(&b'\r'),
                rest: record.get(end + 1..).filter(|_| end < bytes.len()),
            };
        }
        scratch.clear();
        scratch.extend_from_slice(&bytes[..end]);
        let mut carriage_return = scratch.contains(&b'\r');
        let mut in_quotes = false;
        let mut position = end;
        while let Some(&byte) = bytes.get(position) {
            position += 1;
            if in_quotes {
                let next = bytes.get(position).copied();
                if byte == options.escape
                    && next.is_some_and(|next| next == options.quote || next == options.escape)
                {
                    scratch.extend(next);
                    position += 1;
                } else if byte == options.quote {
                    in_quotes = false;
                } else {
                    scratch.push(byte);
                }
            } else if byte == options.quote {
                in_quotes = true;
            } else if byte == options.delimiter {
                return CsvField {
                    plain: None,
                    quoted: true,
                    carriage_return,
                    rest: Some(&record[position..]),
                };
            } else {
                carriage_return |= byte == b'\r';
                scratch.push(byte);
            }
        }
        CsvField { plain: None, quoted: true, carriage_return, rest: None }
    }
}
