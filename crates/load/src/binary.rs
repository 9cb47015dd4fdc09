//! COPY's binary format: values in their wire format, between a header and a trailer.
//!
//! ```text
//! header   "PGCOPY\n\xff\r\n\0"  flags:u32  extension length:i32  extension
//! row      fields:i16, then per field  length:i32 (-1 for NULL)  bytes
//! trailer  -1:i16
//! ```
//!
//! Bytes arrive in pieces cut anywhere. Less than a row is carried over to the next piece. The end of a row is
//! found from its lengths alone, so that a long row which arrives in many pieces is not parsed again
//! for each.

use crate::chunk::{MAX_RECORD_BYTES, too_long};
use crate::columns::ColumnBuilder;
use crate::reader::{BATCH_ROWS, Target};
use crate::records::{Batch, RowLines};
use firn_base::{Error, Result, SqlState, TextStyle};
use std::collections::VecDeque;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Signature, flags and the length of an extension.
const HEADER_BYTES: usize = SIGNATURE.len() + 8;
/// The flag of files that carry an OID in front of each row, which PostgreSQL wrote before 12.
const WITH_OIDS: u32 = 1 << 16;
/// Flags without whose support a file must not be read.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// A push parser of the binary format.
pub(crate) struct BinaryReader {
    target: Target,
    builders: Vec<ColumnBuilder>,
    /// Rows in `builders`.
    rows: usize,
    batches: VecDeque<Batch>,
    /// Rows in batches so far.
    batched: u64,
    /// The beginning of a row whose end has not arrived yet.
    carry: Vec<u8>,
    part: Part,
    /// The number of the current row, from 1; 0 in the header.
    row: u64,
}

/// The next part of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    /// The rest of the header's extension, in bytes; it is ignored.
    Extension(usize),
    Rows,
    /// Nothing.
    End,
}

impl BinaryReader {
    pub(crate) fn new(target: Target, style: TextStyle) -> BinaryReader {
        BinaryReader {
            builders: target.builders(style),
            target,
            rows: 0,
            batches: VecDeque::new(),
            batched: 0,
            carry: Vec::new(),
            part: Part::Header,
            row: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let mut carry = std::mem::take(&mut self.carry);
        if carry.is_empty() {
            let taken = self.take(bytes)?;
            carry.extend_from_slice(&bytes[taken..]);
        } else {
            carry.extend_from_slice(bytes);
            let taken = self.take(&carry)?;
            carry.drain(..taken);
        }
        self.carry = carry;
        Ok(())
    }

    pub(crate) fn next_batch(&mut self) -> Option<Batch> {
        self.batches.pop_front()
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.part {
            Part::Header if self.carry.len() < SIGNATURE.len() => {
                return Err(self.bad("COPY file signature not recognized"));
            }
            Part::Header => return Err(self.bad("invalid COPY file header (missing length)")),
            Part::Extension(_) => return Err(self.bad("invalid COPY file header (wrong length)")),
            Part::Rows if !self.carry.is_empty() => {
                self.row += 1;
                return Err(self.bad("unexpected EOF in COPY data"));
            }
            // PostgreSQL accepts a missing trailer as well.
            Part::Rows | Part::End => {}
        }
        self.flush();
        Ok(())
    }

    /// Reads everything that is complete. Returns how many bytes that were.
    fn take(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            taken += match self.part {
                Part::Header if rest.len() < HEADER_BYTES => return Ok(taken),
                Part::Header => {
                    self.header(rest)?;
                    HEADER_BYTES
                }
                Part::Extension(length) => {
                    let skipped = length.min(rest.len());
                    self.part = match length - skipped {
                        0 => Part::Rows,
                        left => Part::Extension(left),
                    };
                    if skipped == 0 && length > 0 {
                        return Ok(taken);
                    }
                    skipped
                }
                Part::Rows => match self.row(rest)? {
                    Some(length) => length,
                    None => return Ok(taken),
                },
                Part::End if rest.is_empty() => return Ok(taken),
                Part::End => return Err(self.bad("received copy data after EOF marker")),
            };
        }
    }

    fn header(&mut self, bytes: &[u8]) -> Result<()> {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        if !bytes.starts_with(SIGNATURE) {
            return Err(self
                .bad("COPY file signature not recognized")
                .with_hint("The file may have another format: try FORMAT text or FORMAT csv."));
        }
        let flags = word(SIGNATURE.len());
        if flags & WITH_OIDS != 0 {
            return Err(self.bad("invalid COPY file header (WITH OIDS)"));
        }
        if flags & CRITICAL_FLAGS != 0 {
            return Err(self.bad("unrecognized critical flags in COPY file header"));
        }
        let extension = i32::try_from(word(SIGNATURE.len() + 4));
        let Ok(extension) = extension else {
            return Err(self.bad("invalid COPY file header (missing length)"));
        };
        self.part = Part::Extension(extension as usize);
        Ok(())
    }

    /// Reads a row or the trailer; `None` if its end has not arrived yet.
    fn row(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some((count, _)) = bytes.split_first_chunk() else { return Ok(None) };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.part = Part::End;
            return Ok(Some(2));
        }
        self.row += 1;
        let expected = self.builders.len();
        if usize::try_from(count) != Ok(expected) {
            return Err(self.bad(&format!("row field count is {count}, expected {expected}")));
        }
        // Nothing is appended before the whole row has arrived.
        let Some(length) = self.row_length(bytes, expected)? else {
            self.row -= 1;
            return Ok(None);
        };
        let mut rest = &bytes[2..length];
        for column in 0..expected {
            let (field, after) = field(rest);
            rest = after;
            let (_, kind) = self.target.columns[column];
            let appended = match field {
                None => {
                    self.builders[column].append_null();
                    Ok(())
                }
                Some(field) => self.builders[column].append_binary(field, kind),
            };
            appended.map_err(|error| error.with_context(self.context(Some(column))))?;
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS {
            self.flush();
        }
        Ok(Some(length))
    }

    /// The length of the row at the beginning of `bytes`; `None` if it has not arrived as a whole. A row that announces more than the
    /// maximal length is refused before it arrives.
    fn row_length(&self, bytes: &[u8], columns: usize) -> Result<Option<usize>> {
        let mut end = 2;
        for column in 0..columns {
            let Some(length) = bytes.get(end..end + 4) else { return Ok(None) };
            end += 4;
            match i32::from_be_bytes(length.try_into().expect("4 bytes")) {
                -1 => {}
                length => match usize::try_from(length) {
                    Ok(length) => end += length,
                    Err(_) => {
                        let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "invalid field size");
                        return Err(error.with_context(self.context(Some(column))));
                    }
                },
            }
            if end > MAX_RECORD_BYTES {
                return Err(too_long()
                    .with_hint("The lengths of its fields add up to more: the file may be damaged.")
                    .with_context(self.context(Some(column))));
            }
        }
        Ok((end <= bytes.len()).then_some(end))
    }

    fn flush(&mut self) {
        if self.rows > 0 {
            let columns = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
            let lines = RowLines::from(self.batched + 1);
            let rejected = Vec::new();
            self.batches.push_back(Batch {
                columns,
                rows: self.rows,
                kept: None,
                lines,
                rejected,
                ended: false,
            });
            self.batched += self.rows as u64;
            self.rows = 0;
        }
    }

    fn context(&self, column: Option<usize>) -> String {
        let place = format!("{}, line {}", self.target.place, self.row);
        match column {
            None => place,
            Some(column) => format!("{place}, column {}", self.target.columns[column].0),
        }
    }

    #[cold]
    fn bad(&self, message: &str) -> Error {
        let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
        if self.row == 0 { error } else { error.with_context(self.context(None)) }
    }
}

/// The first field of a complete row, and the rest.
fn field(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let (length, rest) = bytes.split_first_chunk().expect("the row is whole");
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => {
            let (field, rest) = rest.split_at(length);
            (Some(field), rest)
        }
        Err(_) => (None, rest),
    }
}

/// Appends the header.
pub(crate) fn write_header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0; 8]);
}

/// Appends the trailer.
pub(crate) fn write_trailer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i16).to_be_bytes());
}

/// The length of the first row of a written file, with the header before it; the length of the trailer
/// if there is no row.
pub fn end_of_first_row(file: &[u8]) -> usize {
    let start = if file.starts_with(SIGNATURE) { HEADER_BYTES } else { 0 };
    let Some((count, mut rest)) = file[start..].split_first_chunk() else { return file.len() };
    for _ in 0..i16::from_be_bytes(*count).max(0) {
        (_, rest) = field(rest);
    }
    file.len() - rest.len()
}
