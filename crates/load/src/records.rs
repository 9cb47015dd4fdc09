//! Chunks of records to columns.
//!
//! When the ends of all fields are known (see `structure`), a group of rows that fits in the nearest cache is read column by
//! column. Each column is one loop of code for its type alone, compiled for the processor. A field is first tried by the quick
//! way, which supports the usual spellings. The general way removes quotes and escapes and then parses like the rest of the
//! engine. Strings that need neither remain in place: the column's views point into the chunk.

use crate::chunk::{CHUNK_BYTES, Chunk, Cutter};
use crate::fault::{Fault, Rejected, with_encoding_hint};
use crate::field::{unescape, unquote};
use crate::filling::{self, Column, Filler, Filling, Source};
use crate::kind::Kind;
use crate::lanes::{Eight, LANES};
use crate::options::{CopyHeader, CopyOptions, OnError, RowFormat, forced};
use crate::reader::Target;
use crate::structure::{Kernel, Structure};
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};
use firn_base::binary::utf8;
use firn_base::{Error, Result, SqlState, SqlType, TextStyle};
use std::collections::BTreeMap;
use std::ops::Range;

/// The line that ends the data before the end of the file, where the options say so.
pub(crate) const END_MARKER: &[u8] = b"\\.";

/// The approximate size that a chunk may reach by padding with blanks.
const MOST_FILLED: usize = 64 << 20;

/// The least length of a chunk, whatever its padded size.
const LEAST_CHUNK_BYTES: usize = 64;

/// The approximate length of a chunk of a file with such rows, by default.
pub(crate) fn chunk_bytes(target: &Target) -> usize {
    // Padding of columns with blanks may exceed the size of the file many times.
    let filled: usize = target.columns.iter().map(|(_, kind)| filled_bytes(*kind)).sum();
    let chunk_bytes = (MOST_FILLED / filled.max(1)).saturating_mul(target.columns.len().max(1));
    chunk_bytes.clamp(LEAST_CHUNK_BYTES, CHUNK_BYTES)
}

/// The length to which each value of a column is padded.
fn filled_bytes(kind: Kind) -> usize {
    if let Kind::Typed(SqlType::Char(length)) = kind { length as usize } else { 0 }
}

/// Reads chunks, on several threads at once if requested.
pub(crate) struct RecordReader {
    target: Target,
    options: CopyOptions,
    style: TextStyle,
    /// The columns to read.
    wanted: Vec<usize>,
    sieve: Option<Sieve>,
    chunk_bytes: usize,
}

/// Decides by the first columns of a chunk which of its rows are needed: the other columns are read of these alone.
pub struct Sieve {
    /// How many of the columns that are read it uses.
    pub columns: usize,
    /// Its function.
    pub keeps: Keeps,
}

/// A mask of the rows that are needed, given their number; `None` if all may be.
pub type Keeps = Box<dyn Fn(&[ArrayRef], usize) -> Option<BooleanBuffer> + Send + Sync>;

/// Memory for reading, which is reused for the next chunk.
#[derive(Default)]
pub(crate) struct Scratch {
    structure: Structure,
    field: Vec<u8>,
    ends: Vec<u32>,
}

/// The rows of a chunk of a file.
#[derive(Debug)]
pub struct Batch {
    /// One array for each column, all of one length unless there is a [`Sieve`].
    pub columns: Vec<ArrayRef>,
    /// That length, also where no columns are read.
    pub rows: usize,
    /// The rows that a sieve has kept, if not all of them: its columns have all rows, the others these alone.
    pub kept: Option<BooleanBuffer>,
    /// The lines of the rows in the file.
    pub lines: RowLines,
    /// The rows that have been left out and their errors, in order.
    pub rejected: Vec<Rejected>,
    /// Whether `\.` was read: the rest is ignored.
    pub(crate) ended: bool,
}

/// The lines of the rows of a batch in their file; of a row with several lines the last one; of a binary file the numbers of
/// the rows. It is small, so that those of a whole file can be kept.
#[derive(Clone, Debug)]
pub struct RowLines {
    /// The line of the first row, if it has only one.
    first: u64,
    /// Rows before which, or in which, there is more than one line per row; and how many more.
    jumps: Vec<(usize, u64)>,
    /// The sum of these.
    more: u64,
}

impl RowLines {
    /// Every row has a line of its own, from this one on.
    pub(crate) fn from(first: u64) -> RowLines {
        RowLines { first, jumps: Vec::new(), more: 0 }
    }

    /// The next row is on this line.
    pub(crate) fn note(&mut self, row: usize, line: u64) {
        let more = line - (self.first + row as u64 + self.more);
        if more > 0 {
            self.jumps.push((row, more));
            self.more += more;
        }
    }

    /// The line that a row is on, from 1.
    pub fn line_of(&self, row: usize) -> u64 {
        let more = self.jumps.iter().take_while(|(from, _)| *from <= row).map(|(_, lines)| lines);
        self.first + row as u64 + more.sum::<u64>()
    }
}

/// The result of an attempt to read a chunk: rows, or faults by their place.
struct Attempt {
    columns: Vec<ArrayRef>,
    rows: usize,
    kept: Option<BooleanBuffer>,
    /// The ends of the lines of the rows, if some rows may have more than one.
    ends: Option<Vec<u32>>,
    ended: bool,
    faults: Faults,
}

/// The faults of records, by the beginning of the record.
type Faults = BTreeMap<usize, Fault>;

/// The lines of a chunk in its file.
struct Lines {
    /// Lines of the file before it.
    before: u64,
    /// Where records have been left out, and how many lines they had.
    left_out: Vec<(usize, u64)>,
}

impl Lines {
    /// A counter of the lines of records.
    fn counter<'l>(&'l self, chunk: &'l [u8]) -> LineCounter<'l> {
        LineCounter { left_out: &self.left_out, chunk, position: 0, line: self.before + 1 }
    }

    /// The lines of rows whose lines have these ends.
    fn of_rows(&self, chunk: &[u8], ends: &[u32]) -> RowLines {
        let mut counter = self.counter(chunk);
        let mut lines = RowLines::from(self.before + 1);
        for (row, end) in ends.iter().enumerate() {
            lines.note(row, counter.at(*end as usize));
        }
        lines
    }

    /// The chunk without some records, which are in ascending order.
    fn leave_out(&mut self, chunk: &[u8], records: &[Range<usize>]) -> Buffer {
        let mut kept = Vec::with_capacity(chunk.len());
        let mut before = std::mem::take(&mut self.left_out).into_iter().peekable();
        let mut from = 0;
        for record in records {
            while let Some((place, lines)) = before.next_if(|(place, _)| *place <= record.start) {
                self.left_out.push((kept.len() + place - from, lines));
            }
            kept.extend_from_slice(&chunk[from..record.start]);
            // Up to the line feed, before which there may be a carriage return.
            from = record.end + 1 + usize::from(chunk[record.end] == b'\r');
            self.left_out.push((kept.len(), line_feeds(&chunk[record.start..from])));
        }
        self.left_out.extend(before.map(|(place, lines)| (kept.len() + place - from, lines)));
        kept.extend_from_slice(&chunk[from..]);
        Buffer::from_vec(kept)
    }
}

/// The blank lines at the beginning, without their ends.
pub(crate) fn leading_blank_lines(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let begin = next;
        next += match bytes[begin..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return None,
        };
        Some(begin..begin)
    })
}

/// Counts the lines of a chunk from record to record.
struct LineCounter<'l> {
    left_out: &'l [(usize, u64)],
    chunk: &'l [u8],
    position: usize,
    line: u64,
}

impl LineCounter<'_> {
    /// The line of a record that ends at `end`; of several its last. Records are asked for in ascending order.
    fn at(&mut self, end: usize) -> u64 {
        self.line += line_feeds(&self.chunk[self.position..end]);
        self.position = end;
        while let [(place, lines), rest @ ..] = self.left_out
            && *place <= end
        {
            self.line += lines;
            self.left_out = rest;
        }
        self.line
    }
}

fn line_feeds(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

impl RecordReader {
    /// A reader of rows for columns of a table.
    pub fn new(target: Target, options: CopyOptions, style: TextStyle) -> RecordReader {
        let wanted = (0..target.columns.len()).collect();
        let chunk_bytes = chunk_bytes(&target);
        RecordReader { target, options, style, wanted, sieve: None, chunk_bytes }
    }

    /// Reads these columns only.
    pub fn project(&mut self, columns: Vec<usize>) {
        assert!(columns.iter().all(|column| *column < self.width()), "there is no such column");
        self.wanted = columns;
    }

    /// Reads the columns after those of the sieve only of rows that it keeps.
    pub fn set_sieve(&mut self, sieve: Sieve) {
        assert!(sieve.columns <= self.wanted.len(), "it looks at what is read");
        self.sieve = Some(sieve);
    }

    /// The approximate length of a chunk, except of the last.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Sets the length of chunks.
    pub fn set_chunk_bytes(&mut self, bytes: usize) {
        self.chunk_bytes = bytes.max(1);
    }

    /// The cutter of its files.
    pub fn cutter(&self) -> Cutter {
        let mut cutter = Cutter::new(self.options.dialect(), self.chunk_bytes);
        cutter.skip(self.options.skip);
        if self.options.header == CopyHeader::Match {
            cutter.demand_record();
        }
        cutter
    }

    /// The name of the source in errors.
    pub fn place(&self) -> &str {
        &self.target.place
    }

    fn is_csv(&self) -> bool {
        self.options.format == RowFormat::Csv
    }

    fn width(&self) -> usize {
        self.target.columns.len()
    }

    /// Reads a chunk. Of several errors the first row's is returned; or all rows with errors are left out.
    pub fn read(&self, chunk: Chunk, scratch: &mut Scratch) -> Result<Batch> {
        let mut bytes = Buffer::from_vec(chunk.bytes).slice(chunk.begin);
        let mut lines = Lines { before: chunk.lines_before, left_out: Vec::new() };
        let mut rejected = Vec::new();
        let mut passes_over_blank = self.options.passes_over_blank && self.is_csv() && self.width() > 1;
        if passes_over_blank && chunk.is_first {
            // Not only where a record has a fault: a blank line would be taken for the header.
            let blank: Vec<_> = leading_blank_lines(&bytes).collect();
            if blank.last().is_some_and(|last| last.end + 2 < bytes.len()) {
                bytes = lines.leave_out(&bytes, &blank);
            }
        }
        loop {
            let Attempt { columns, rows, kept, ends, ended, mut faults } =
                self.attempt(&bytes, chunk.is_first, !lines.left_out.is_empty(), scratch);
            if !faults.is_empty() && std::mem::take(&mut passes_over_blank) {
                // Only looked for after a fault, as blank lines would be faults.
                let blank = self.blank_records(&bytes, &scratch.structure);
                if !blank.is_empty() {
                    bytes = lines.leave_out(&bytes, &blank);
                    continue;
                }
            }
            if faults.is_empty() {
                let has_header = chunk.is_first && self.options.header != CopyHeader::No;
                let lines = match ends {
                    Some(ends) => lines.of_rows(&bytes, &ends),
                    None => RowLines::from(chunk.lines_before + 1 + u64::from(has_header)),
                };
                rejected.sort_by_key(|rejected: &Rejected| rejected.line);
                return Ok(Batch { columns, rows, kept, lines, ended, rejected });
            }
            let mut line = lines.counter(&bytes);
            if self.options.on_error == OnError::Stop || faults.values().any(|fault| fault.is_of_header) {
                let (_, first) = faults.pop_first().expect("there is one");
                let line = line.at(first.record.end);
                return Err(first.into_error(self.place(), line, &bytes));
            }
            // Without these records, all others are unchanged.
            let records: Vec<Range<usize>> = faults.values().map(|fault| fault.record.clone()).collect();
            rejected.extend(faults.into_values().map(|fault| {
                let line = line.at(fault.record.end);
                fault.into_rejected(self.place(), line, &bytes)
            }));
            bytes = lines.leave_out(&bytes, &records);
        }
    }

    /// Reads a chunk up to its first fault.
    fn attempt(&self, bytes: &Buffer, is_first: bool, lacks_lines: bool, scratch: &mut Scratch) -> Attempt {
        let Scratch { structure, field, ends: kept_ends } = scratch;
        structure.find_some(bytes, self.options.dialect(), self.width() + 1);
        let mut outline = Outline::of(self, bytes, structure, is_first);
        let faults = std::mem::take(&mut outline.faults);
        let mut columns = Columns {
            reader: self,
            bytes,
            outline: &outline,
            has_quoting: structure.has_quoting,
            has_inner_quoting: structure.has_inner_quoting,
            rows: outline.rows,
            stretch: 0..0,
            column: 0,
            faults,
            scratch: field,
        };
        let (first, rest) = self.wanted.split_at(self.sieve.as_ref().map_or(0, |sieve| sieve.columns));
        let mut arrays = columns.read(first, structure.is_ascii);
        // After a fault in these columns all columns are read: the first row with a fault is reported, and another column may have it.
        let sieve = self.sieve.as_ref().filter(|_| columns.faults.is_empty());
        let kept = sieve.and_then(|sieve| (sieve.keeps)(&arrays, columns.rows));
        let sifted;
        if let Some(kept) = &kept {
            sifted = outline.sifted(kept, kept_ends, self.width());
            columns.outline = &sifted;
            columns.rows = sifted.rows;
        }
        arrays.extend(columns.read(rest, structure.is_ascii));
        let faults = columns.faults;
        let width = self.width();
        // After rows have been left out, lines are missing.
        let lacks_lines = lacks_lines || self.options.on_error == OnError::Ignore;
        let is_plain = width == 0 || !lacks_lines && structure.void_lines == 0;
        let ends = outline.ends[1..].iter().skip(width.saturating_sub(1)).step_by(width.max(1));
        let ends = (!is_plain).then(|| ends.take(outline.rows).copied().collect());
        Attempt { columns: arrays, rows: outline.rows, kept, ends, ended: outline.ended, faults }
    }

    /// The blank records.
    #[cold]
    fn blank_records(&self, bytes: &[u8], structure: &Structure) -> Vec<Range<usize>> {
        let mut blank = Vec::new();
        let mut begin = 0;
        for end in &structure.ends()[1..] {
            let end = *end as usize;
            let record = self.without_return(bytes, begin..end);
            if bytes[end] == b'\n' && record.is_empty() && (begin == 0 || bytes[begin - 1] == b'\n') {
                blank.push(record);
            }
            begin = end + 1;
        }
        blank
    }

    /// Removes quotes or escapes from a field. Returns the rest, and whether there were quotes.
    fn unwrapped<'f>(&self, raw: &'f [u8], scratch: &'f mut Vec<u8>) -> Result<(&'f str, bool)> {
        let special = if self.is_csv() { self.options.quote } else { b'\\' };
        if !raw.contains(&special) {
            return Ok((utf8(raw)?, false));
        }
        match self.is_csv() {
            true => unquote(raw, &self.options, scratch),
            false => unescape(raw, scratch),
        }
        Ok((utf8(scratch)?, self.is_csv()))
    }
}

/// The records of a chunk that become rows.
struct Outline<'c> {
    /// The ends of their fields: for each record as many as there are columns, after the end of what precedes the first.
    ends: &'c [u32],
    /// The distance from one record's ends to the next one's: the number of columns, unless records in between are left out.
    stride: usize,
    rows: usize,
    /// Whether some records end in carriage returns.
    has_returns: bool,
    /// Whether the end marker follows them.
    ended: bool,
    /// The fault of the record that follows them; if rows may be left out, all faults.
    faults: Faults,
}

impl<'c> Outline<'c> {
    fn of(reader: &RecordReader, bytes: &[u8], structure: &'c Structure, is_first: bool) -> Outline<'c> {
        let mut outline = Outline {
            ends: structure.ends(),
            stride: reader.width(),
            rows: 0,
            has_returns: structure.carriage_returns > 0,
            ended: false,
            faults: Faults::new(),
        };
        let mut lines = structure.lines;
        let mut returns = 0;
        if is_first && reader.options.header != CopyHeader::No {
            let (header, fields) = outline.first_record(reader, bytes, outline.ends);
            outline.ended = reader.is_end(&bytes[header.clone()]);
            if !outline.ended
                && let Err(error) = reader.check_header(&bytes[header.clone()])
            {
                let record = header.clone();
                let fault = Fault { record, field: None, error, is_of_header: true };
                outline.faults.insert(header.start, fault);
            }
            returns = usize::from(header.end < outline.ends[fields] as usize);
            outline.ends = &outline.ends[fields..];
            lines -= 1;
        }
        if outline.ended || !outline.faults.is_empty() {
            return outline;
        }
        let is_text = !structure.has_nul && (structure.is_ascii || std::str::from_utf8(bytes).is_ok());
        let returns = structure.carriage_returns - returns;
        match is_text && outline.is_regular(reader, bytes, lines, returns) {
            true => outline.rows = lines,
            false => outline.go_through(reader, bytes),
        }
        outline
    }

    /// Some of the rows. Their fields' ends are stored in `ends`.
    fn sifted<'e>(&self, kept: &BooleanBuffer, ends: &'e mut Vec<u32>, width: usize) -> Outline<'e> {
        ends.clear();
        for row in kept.set_indices() {
            // A record is not preceded by the end of another one any more.
            ends.extend_from_slice(&self.ends[row * width..=(row + 1) * width]);
        }
        let Outline { has_returns, ended, .. } = *self;
        let rows = kept.count_set_bits();
        Outline { ends, stride: width + 1, rows, has_returns, ended, faults: Faults::new() }
    }

    /// Whether every record is valid, as far as is known without examining all of them.
    fn is_regular(&self, reader: &RecordReader, bytes: &[u8], lines: usize, returns: usize) -> bool {
        let width = reader.width();
        if width == 0 || self.ends.len() != 1 + lines * width {
            return false;
        }
        if lines == 0 {
            return true;
        }
        // As there are no more line feeds than records, all other ends are delimiters.
        let mut last = self.ends[width..].iter().step_by(width);
        if !last.clone().all(|end| bytes[*end as usize] == b'\n') {
            return false;
        }
        if returns > 0 {
            let mut ends_in_return = 0;
            for (end, before) in last.by_ref().zip(self.ends[width - 1..].iter().step_by(width)) {
                let field = before.wrapping_add(1) as usize..*end as usize;
                ends_in_return += usize::from(reader.without_return(bytes, field.clone()).end < field.end);
            }
            if ends_in_return != returns {
                return false;
            }
        }
        // The end marker is a single field, or two by a delimiter that is part of it.
        let mut starts = self.ends[..lines * width].iter().map(|end| end.wrapping_add(1) as usize);
        width > 2
            || !reader.options.ends_at_marker
            || !starts.any(|start| bytes[start..].starts_with(END_MARKER))
    }

    /// Examines each record, up to the first fault. If rows may be left out, examines all of them; but
    /// rows are only those before the first fault.
    #[cold]
    fn go_through(&mut self, reader: &RecordReader, bytes: &[u8]) {
        let mut rest = self.ends;
        while rest.len() > 1 {
            let (record, fields) = self.first_record(reader, bytes, rest);
            if reader.is_end(&bytes[record.clone()]) {
                self.ended = true;
                return;
            }
            rest = &rest[fields..];
            match reader.fault_of(bytes, record, fields) {
                None if self.faults.is_empty() => self.rows += 1,
                None => {}
                Some(fault) => {
                    self.faults.insert(fault.record.start, fault);
                    if reader.options.on_error == OnError::Stop {
                        return;
                    }
                }
            }
        }
    }

    /// The first of the records that have these ends, without its line end; and its number of fields.
    fn first_record(&self, reader: &RecordReader, bytes: &[u8], ends: &[u32]) -> (Range<usize>, usize) {
        let is_line_feed = |end: &u32| bytes[*end as usize] == b'\n';
        let fields = 1 + ends[1..].iter().position(is_line_feed).expect("chunks end in line feeds");
        let record = ends[0].wrapping_add(1) as usize..ends[fields] as usize;
        match self.has_returns {
            true => (reader.without_return(bytes, record), fields),
            false => (record, fields),
        }
    }
}

impl RecordReader {
    /// A record, or its last field, without a carriage return at its end.
    fn without_return(&self, bytes: &[u8], field: Range<usize>) -> Range<usize> {
        let text = &bytes[field.clone()];
        let Some(before) = text.strip_suffix(b"\r") else { return field };
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        match !self.is_csv() && backslashes % 2 == 1 {
            // The carriage return is escaped.
            true => field,
            false => field.start..field.end - 1,
        }
    }

    /// Whether a record ends the data.
    fn is_end(&self, record: &[u8]) -> bool {
        self.options.ends_at_marker && record == END_MARKER
    }

    /// The fault of a record with this number of fields, if it has one as a whole.
    fn fault_of(&self, bytes: &[u8], record: Range<usize>, fields: usize) -> Option<Fault> {
        let text = &bytes[record.clone()];
        if let Err(error) = utf8(text) {
            let error = with_encoding_hint(error, text, &self.options);
            return Some(Fault { record, field: None, error, is_of_header: false });
        }
        let mut structure = Structure::default();
        structure.find_some(text, self.options.dialect(), 1);
        if let Err(error) = self.check_returns(&structure) {
            return Some(Fault { record, field: None, error, is_of_header: false });
        }
        match self.target.columns.get(fields) {
            Some((name, _)) => Some(Fault::of_width(record, format!("missing data for column \"{name}\""))),
            None if fields > self.width() => {
                Some(Fault::of_width(record, "extra data after last expected column"))
            }
            None => None,
        }
    }

    /// Checks that a record without its end has no carriage returns.
    fn check_returns(&self, structure: &Structure) -> Result<()> {
        if structure.carriage_returns == 0 {
            return Ok(());
        }
        let (message, hint) = match self.is_csv() {
            true => (
                "unquoted carriage return found in data",
                "Use quoted CSV field to represent carriage return.",
            ),
            false => ("literal carriage return found in data", "Use \"\\r\" to represent carriage return."),
        };
        Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message).with_hint(hint))
    }

    /// Checks that this line can be a header; for HEADER MATCH the names must be those of the columns, in order.
    fn check_header(&self, record: &[u8]) -> Result<()> {
        let mut structure = Structure::default();
        structure.find_some(record, self.options.dialect(), self.width() + 1);
        // In a file with such line ends, the header would be the whole file.
        self.check_returns(&structure)?;
        if self.options.header != CopyHeader::Match {
            return Ok(());
        }
        utf8(record)?;
        let ends = [structure.ends(), &[record.len() as u32]].concat();
        let names = ends.windows(2).map(|ends| {
            let raw = &record[ends[0].wrapping_add(1) as usize..ends[1] as usize];
            let is_null = *raw == *self.options.null.as_bytes();
            Ok((!is_null).then_some(self.unwrapped(raw, &mut Vec::new())?.0.to_owned()))
        });
        let names: Vec<Option<String>> = names.collect::<Result<_>>()?;
        let mismatch = |message| Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        if names.len() != self.width() {
            return mismatch(format!(
                "wrong number of fields in header line: got {}, expected {}",
                names.len() + structure.left_out,
                self.width()
            ));
        }
        for (position, (found, (expected, _))) in names.iter().zip(&self.target.columns).enumerate() {
            if found.as_ref() != Some(expected) {
                let found = match found {
                    Some(found) => format!("\"{found}\""),
                    None => format!("null value (\"{}\")", self.options.null),
                };
                return mismatch(format!(
                    "column name mismatch in header line field {}: got {found}, expected \"{expected}\"",
                    position + 1
                ));
            }
        }
        Ok(())
    }
}

/// The approximate number of bytes of a chunk that are read into all columns before the next ones. They and the ends of their
/// fields remain in the nearest cache of the processor meanwhile.
const STRETCH_BYTES: usize = 16 << 10;

/// The columns of a chunk, as they are read.
struct Columns<'c> {
    reader: &'c RecordReader,
    bytes: &'c Buffer,
    outline: &'c Outline<'c>,
    /// Whether there are quotes, or backslashes in the text format.
    has_quoting: bool,
    /// Whether some quotes are elsewhere than around a whole field.
    has_inner_quoting: bool,
    /// How many rows are read: up to the first with a fault.
    rows: usize,
    /// The rows that are being read.
    stretch: Range<usize>,
    /// The column that is being read.
    column: usize,
    /// The fault of the row that follows; if rows may be left out, all faults.
    faults: Faults,
    scratch: &'c mut Vec<u8>,
}

impl Columns<'_> {
    fn read(&mut self, wanted: &[usize], is_ascii: bool) -> Vec<ArrayRef> {
        let source = Source {
            chunk: self.bytes,
            is_ascii,
            rows: self.outline.rows,
            quote: self.reader.options.quote,
            style: self.reader.style,
        };
        let start = |column: &usize| {
            let (_, kind) = self.reader.target.columns[*column];
            (*column, filling::column::<Columns<'_>>(kind, source))
        };
        let mut columns: Vec<(usize, Box<dyn Column<Self> + '_>)> = wanted.iter().map(start).collect();
        let row_bytes = self.bytes.len() / self.outline.rows.max(1) + 1;
        let together = (STRETCH_BYTES / row_bytes).next_multiple_of(LANES).max(4 * LANES);
        for first in (0..self.outline.rows).step_by(together) {
            for (position, column) in &mut columns {
                (self.column, self.stretch) = (*position, first..self.rows.min(first + together));
                column.fill(self);
            }
        }
        columns.into_iter().map(|(_, column)| column.finish()).collect()
    }

    /// Reads the field of a row the general way.
    #[cold]
    fn read_long(&mut self, row: usize, raw: Range<usize>, into: &mut impl Filling) {
        let (reader, column) = (self.reader, self.column);
        let raw = &self.bytes[raw];
        let outcome = reader.unwrapped(raw, self.scratch).map_err(|error| (error, None));
        let outcome = outcome.and_then(|(value, quoted)| {
            match quoted && forced(&reader.options.force_null, column) && value == reader.options.null {
                true => into.null(),
                false => into.long(value).map_err(|error| (error, Some(value.to_owned())))?,
            }
            Ok(())
        });
        if let Err((error, value)) = outcome {
            let value = value.unwrap_or_else(|| String::from_utf8_lossy(self.scratch).into_owned());
            let (width, stride) = (reader.width(), self.outline.stride);
            let ends = &self.outline.ends[row * stride..=row * stride + width];
            let mut record = ends[0].wrapping_add(1) as usize..ends[width] as usize;
            if self.outline.has_returns {
                record = reader.without_return(self.bytes, record);
            }
            let field = Some((reader.target.columns[column].0.clone(), value));
            let fault = Fault { record, field, error, is_of_header: false };
            match reader.options.on_error {
                OnError::Stop => {
                    self.rows = row;
                    self.faults = Faults::from([(fault.record.start, fault)]);
                }
                OnError::Ignore => {
                    into.null();
                    // Of several faults in a row the first counts.
                    self.faults.entry(fault.record.start).or_insert(fault);
                }
            }
        }
    }
}

fn takes_anything<F: Filling>(_: &F) -> bool {
    F::TAKES_ANYTHING
}

impl Filler for Columns<'_> {
    fn fill(&mut self, into: &mut impl Filling, strips_quotes: &mut bool) {
        match Kernel::best() {
            // SAFETY: the processor has these instructions: `Kernel::best` has checked it.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { x86::fill_avx512(self, into, strips_quotes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { x86::fill_avx2(self, into, strips_quotes) },
            Kernel::Words => self.fill_by(Kernel::Words, into, strips_quotes),
        }
    }
}

impl Columns<'_> {
    /// [`Filler::fill`], compiled once for each kernel.
    #[inline(always)]
    fn fill_by(&mut self, kernel: Kernel, into: &mut impl Filling, strips_quotes: &mut bool) {
        let (reader, outline, bytes, column) =
            (self.reader, self.outline, self.bytes.as_slice(), self.column);
        if self.stretch.is_empty() {
            return;
        }
        let options = &reader.options;
        let null =
            (!reader.is_csv() || !forced(&options.force_not_null, column)).then_some(options.null.as_bytes());
        let has_returns = outline.has_returns && column + 1 == reader.width();
        let quote = reader.is_csv().then_some(options.quote);
        // A field with such a byte is read the general way: the quick way removes quotes only around a whole field.
        let special = if reader.is_csv() { options.quote } else { b'\\' };
        let escape = (reader.is_csv() && options.escape != options.quote).then_some(options.escape);
        let stands_for_itself = |text: &[u8]| {
            memchr::memchr(special, text).is_none() && escape.is_none_or(|escape| !text.contains(&escape))
        };
        let force_null = self.has_quoting && forced(&options.force_null, column);
        // Quotes may be characters that occur in numbers.
        let odd = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b' ');
        let takes_quotes =
            takes_anything(into) || reader.is_csv() && (odd(options.quote) || odd(options.escape));
        let looks_inside = (self.has_inner_quoting || force_null) && takes_quotes;
        // A text with another meaning than its characters is no number, except for perverse settings.
        let stands_for_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let reads_eight = !force_null
            && if takes_anything(into) {
                !looks_inside && (reader.is_csv() || !has_returns)
            } else {
                !takes_quotes
                    && !null.is_some_and(|null| !null.is_empty() && null.iter().all(stands_for_number))
            };
        let stride = outline.stride;
        let Range { start: mut row, end } = self.stretch;
        while row < end {
            let ends = &outline.ends[row * stride + column..];
            let mut read = 0;
            let mut together = 1;
            if reads_eight
                && row + LANES <= end
                && let Some(mut eight) = Eight::new(kernel, bytes, ends, stride)
            {
                if has_returns {
                    eight = eight.without_returns();
                }
                let nulls = match null {
                    Some([]) if takes_anything(into) => eight.empty(),
                    Some(null) if takes_anything(into) => eight.equal(null),
                    _ => 0,
                };
                if *strips_quotes && let Some(quote) = quote {
                    eight = eight.without_quotes(quote);
                }
                read = into.eight(&eight) & !nulls;
                together = LANES;
                if read == u8::MAX {
                    into.append_eight();
                    row += LANES;
                    continue;
                }
                // Where one has quotes around it, others may.
                *strips_quotes |= self.has_quoting;
            }
            for lane in 0..together {
                if read >> lane & 1 == 1 {
                    into.append_lane(lane);
                    row += 1;
                    continue;
                }
                let ends = &ends[lane * stride..];
                let mut field = ends[0].wrapping_add(1) as usize..ends[1] as usize;
                if has_returns {
                    field = reader.without_return(bytes, field);
                }
                if null.is_some_and(|null| bytes[field.clone()] == *null) {
                    into.null();
                    row += 1;
                    continue;
                }
                let mut plain = field.clone();
                if self.has_quoting
                    && !force_null
                    && let [first, .., last] = &bytes[field.clone()]
                    && quote == Some(*first)
                    && quote == Some(*last)
                    && field.len() > 1
                {
                    plain = field.start + 1..field.end - 1;
                }
                let is_plain = !looks_inside || stands_for_itself(&bytes[plain.clone()]);
                if !is_plain || !into.quick(bytes, plain) {
                    self.read_long(row, field, into);
                    if row == self.rows {
                        return;
                    }
                }
                row += 1;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Columns, Filling, Kernel};

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn fill_avx512(columns: &mut Columns<'_>, into: &mut impl Filling, strips_quotes: &mut bool) {
        columns.fill_by(Kernel::Avx512, into, strips_quotes);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn fill_avx2(columns: &mut Columns<'_>, into: &mut impl Filling, strips_quotes: &mut bool) {
        columns.fill_by(Kernel::Avx2, into, strips_quotes);
    }
}
