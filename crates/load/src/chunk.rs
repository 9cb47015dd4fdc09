//! A file cut into chunks of whole records, which can be read independently of each other.
//!
//! Bytes arrive in pieces cut anywhere. Only the ends of records have to be found in order. For that each byte is
//! examined once, however small the pieces are, which takes a small part of the time of reading the fields
//! (Mühlbauer, "On Scalable and Flexible Transaction and Query Processing in Main-Memory Database Systems", dissertation,
//! TU München 2016, §3.3.3, "safe mode"). A piece with its own search for the ends of records is searched again
//! if it does not begin as the search assumed.

use crate::fault::record_context;
use crate::structure::{Dialect, Progress, Structure};
use firn_base::{Error, SqlState};
use std::io::{self, Read};

/// The approximate length of a chunk, except of the last, by default.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// A longer record is an error: a quote is missing, and the whole rest of the file would be one field.
pub const MAX_RECORD_BYTES: usize = 256 << 20;

/// Whole records.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The last byte is a line feed.
    pub bytes: Vec<u8>,
    /// The offset of the first record.
    pub begin: usize,
    /// The number of lines of the file before it.
    pub lines_before: u64,
    /// Whether it begins the file.
    pub is_first: bool,
    /// Where it is in the file.
    pub extent: Extent,
}

/// The place of a chunk in its file, by which it can be read again without what precedes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in the file, whose last line may lack its end.
    pub bytes: u64,
    /// The number of lines of the file before it.
    pub lines_before: u64,
}

impl Chunk {
    /// The chunk of a CSV or JSON file that was cut off at this place before; `skipped` is the number of skipped lines of the
    /// file. For the text format the bytes alone would not suffice: the last line feed of a file may follow a backslash.
    pub fn again(extent: Extent, mut bytes: Vec<u8>, skipped: u64) -> Chunk {
        debug_assert_eq!(bytes.len() as u64, extent.bytes);
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        let is_first = extent.lines_before == skipped;
        Chunk { bytes, begin: 0, lines_before: extent.lines_before, is_first, extent }
    }

    /// Its records.
    pub fn text(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

/// Room before the bytes of a [`Piece`]: for the rest of the previous piece, which is mostly part of a record.
const TAIL_ROOM: usize = 4 << 10;

/// A part of a file that begins anywhere, with the ends of its records under the assumption that it begins neither between
/// quotes nor after an escape, as most do (Mühlbauer 2016, §3.3.3, calls this speculative).
pub(crate) struct Piece {
    /// The room, then the bytes.
    bytes: Vec<u8>,
    progress: Progress,
}

impl Piece {
    /// A piece of up to `length` bytes, which `read` appends.
    pub fn read(
        dialect: Dialect,
        length: usize,
        read: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<Piece> {
        let mut bytes = Vec::with_capacity(TAIL_ROOM + length);
        bytes.resize(TAIL_ROOM, 0);
        read(&mut bytes)?;
        let mut progress = Progress::default();
        progress.search(&bytes[TAIL_ROOM..], dialect);
        Ok(Piece { bytes, progress })
    }
}

/// Why there is no next chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Uncut {
    /// A record is longer than [`MAX_RECORD_BYTES`].
    TooLong { line: u64, in_quotes: bool },
    /// The file ends between quotes, in a field that begins on that line; what follows from there.
    Unterminated { line: u64, record: Vec<u8> },
}

/// The error for a record longer than [`MAX_RECORD_BYTES`].
#[cold]
pub(crate) fn too_long() -> Error {
    let message = format!("a record is longer than {} MiB", MAX_RECORD_BYTES >> 20);
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

impl Uncut {
    /// The error for the user.
    pub fn into_error(self, file: &str) -> Error {
        match self {
            Uncut::TooLong { line, in_quotes } => {
                let error = too_long().with_context(format!("{file}, line {line}"));
                match in_quotes {
                    true => error.with_hint("A quote that opens in this record may not be closed."),
                    false => error,
                }
            }
            Uncut::Unterminated { line, record } => Error::new(
                SqlState::BAD_COPY_FILE_FORMAT,
                "unterminated CSV quoted field",
            )
            .with_hint(
                "The quote that opens here is not closed. If fields are not quoted, use QUOTE none in COPY \
                         or quote => '' in read_csv.",
            )
            .with_context(record_context(file, line, &record)),
        }
    }
}

/// The result of reading from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// As many bytes as requested.
    More,
    /// Perhaps some bytes; then nothing arrived for a while.
    Silence,
    /// All bytes that were left.
    Last,
}

/// Cuts a file.
pub(crate) struct Cutter {
    dialect: Dialect,
    /// The least length of a chunk of pushed bytes, except of the last; a chunk of [pieces](Cutter::fit) has theirs.
    chunk_bytes: usize,
    /// Bytes not cut off yet.
    bytes: Vec<u8>,
    progress: Progress,
    /// Bytes cut off.
    offset: u64,
    /// Lines cut off.
    lines: u64,
    is_first: bool,
    /// Whether a file without bytes has one empty record.
    has_record: bool,
    /// The number of lines at the beginning that belong to no record.
    skipped: u64,
}

impl Cutter {
    pub fn new(dialect: Dialect, chunk_bytes: usize) -> Cutter {
        Cutter {
            dialect,
            chunk_bytes,
            bytes: Vec::new(),
            progress: Progress::default(),
            offset: 0,
            lines: 0,
            is_first: true,
            has_record: false,
            skipped: 0,
        }
    }

    /// Skips this number of lines at the beginning, whatever they contain.
    pub fn skip(&mut self, lines: u64) {
        self.skipped = lines;
    }

    /// How many lines are skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Skips the lines to be skipped that have arrived. Returns whether there may be more of them.
    fn pass_over(&mut self) -> bool {
        if self.lines >= self.skipped || !self.is_first {
            return false;
        }
        let wanted = (self.skipped - self.lines) as usize;
        let ends = memchr::memchr_iter(b'\n', &self.bytes).take(wanted);
        let (lines, end) = ends.fold((0, 0), |(lines, _), end| (lines + 1, end + 1));
        // The beginning of an incomplete line need not be kept either.
        let gone = if lines < wanted as u64 { self.bytes.len() } else { end };
        self.bytes.drain(..gone);
        self.offset += gone as u64;
        self.lines += lines;
        lines < wanted as u64
    }

    /// Treats a file without bytes as an empty line.
    pub fn demand_record(&mut self) {
        self.has_record = true;
    }

    /// Takes the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Reads the bytes of a chunk from a file, or what a silent pipe has sent.
    pub fn read(&mut self, file: &mut dyn Read) -> io::Result<Came> {
        let wanted = self.chunk_bytes.max(self.bytes.len() / 2);
        // The bytes after the chunk's last record belong to the next one.
        self.bytes.reserve(wanted);
        match file.take(wanted as u64).read_to_end(&mut self.bytes) {
            Ok(bytes) if bytes < wanted => Ok(Came::Last),
            Ok(_) => Ok(Came::More),
            // The bytes that have arrived are kept nevertheless.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Came::Silence),
            Err(error) => Err(error),
        }
    }

    /// How files are written.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The approximate length of a chunk, except of the last.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Takes the next piece of the file. Returns the chunk that ends in it, if there is one.
    pub fn fit(&mut self, mut piece: Piece) -> Result<Option<Chunk>, Uncut> {
        let tail = self.bytes.len();
        let Progress { context, searched, whole: before, lines_behind: behind, .. } = self.progress;
        let first = piece.bytes.get(TAIL_ROOM).copied();
        let is_as_supposed = context.is_as_at_beginning(first, self.dialect)
            && (searched, before) == (tail, 0)
            && (self.lines >= self.skipped || !self.is_first);
        if !is_as_supposed {
            self.push(&piece.bytes[TAIL_ROOM..]);
            return if self.bytes.len() < self.chunk_bytes { Ok(None) } else { self.next() };
        }
        let Progress { context, whole, lines, lines_behind, .. } = piece.progress;
        if whole == 0 {
            self.push(&piece.bytes[TAIL_ROOM..]);
            let lines_behind = behind + lines_behind;
            self.progress =
                Progress { context, searched: self.bytes.len(), whole: 0, lines: 0, lines_behind };
            return match self.bytes.len() > MAX_RECORD_BYTES {
                true => Err(Uncut::TooLong { line: self.lines + 1, in_quotes: context.in_quotes }),
                false => Ok(None),
            };
        }
        let end = TAIL_ROOM + whole;
        let rest = piece.bytes[end..].to_vec();
        let before = std::mem::replace(&mut self.bytes, rest);
        piece.bytes.truncate(end);
        self.progress = Progress { context, searched: self.bytes.len(), whole: 0, lines: 0, lines_behind };
        let (bytes, begin) = match TAIL_ROOM.checked_sub(tail) {
            Some(begin) => {
                piece.bytes[begin..TAIL_ROOM].copy_from_slice(&before);
                (piece.bytes, begin)
            }
            None => ([&before, &piece.bytes[TAIL_ROOM..]].concat(), 0),
        };
        let chunk = self.chunk(bytes, tail + whole, behind + lines);
        Ok(Some(Chunk { begin, ..chunk }))
    }

    /// The whole records that have arrived, however few.
    pub fn next_few(&mut self) -> Option<Chunk> {
        self.pass_over();
        self.progress.search(&self.bytes, self.dialect);
        (self.progress.whole > 0).then(|| self.cut_whole())
    }

    /// The next chunk, if its bytes have arrived.
    pub fn next(&mut self) -> Result<Option<Chunk>, Uncut> {
        if self.pass_over() || self.bytes.len() < self.chunk_bytes {
            return Ok(None);
        }
        self.progress.search(&self.bytes, self.dialect);
        let whole = self.progress.whole;
        if whole == 0 {
            return match self.bytes.len() > MAX_RECORD_BYTES {
                true => {
                    Err(Uncut::TooLong { line: self.lines + 1, in_quotes: self.progress.context.in_quotes })
                }
                false => Ok(None),
            };
        }
        Ok(Some(self.cut_whole()))
    }

    /// The rest at the end of the file, up to two chunks. Its last line may lack its end.
    pub fn last(&mut self) -> Result<Option<Chunk>, Uncut> {
        self.pass_over();
        self.progress.search(&self.bytes, self.dialect);
        if self.progress.whole > 0 {
            return Ok(Some(self.cut_whole()));
        }
        let mut record = std::mem::take(&mut self.bytes);
        if record.is_empty() && !(self.is_first && self.has_record) {
            return Ok(None);
        }
        let Progress { context, lines_behind, .. } = std::mem::take(&mut self.progress);
        if context.in_quotes {
            return Err(self.unterminated(record));
        }
        let in_file = record.len();
        if context.is_escaped() {
            // It is a literal backslash, and does not escape the line feed that is added.
            record.push(b'\\');
        }
        record.push(b'\n');
        Ok(Some(self.chunk(record, in_file, 1 + lines_behind)))
    }

    /// The error for a record that ends between quotes: of its lines the error names the one where the field begins.
    #[cold]
    fn unterminated(&self, mut record: Vec<u8>) -> Uncut {
        let mut structure = Structure::default();
        structure.find(&record, self.dialect);
        let field = structure.ends().last().map_or(0, |end| end.wrapping_add(1) as usize);
        let lines = memchr::memchr_iter(b'\n', &record[..field]).count() as u64;
        let line_begins = memchr::memrchr(b'\n', &record[..field]).map_or(0, |end| end + 1);
        record.drain(..line_begins);
        Uncut::Unterminated { line: self.lines + lines + 1, record }
    }

    /// The whole records.
    fn cut_whole(&mut self) -> Chunk {
        let Progress { context, whole, lines, lines_behind, .. } = self.progress;
        let mut rest = Vec::with_capacity(self.chunk_bytes + self.chunk_bytes / 8);
        rest.extend_from_slice(&self.bytes[whole..]);
        self.bytes.truncate(whole);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        self.progress = Progress { context, searched: self.bytes.len(), whole: 0, lines: 0, lines_behind };
        self.chunk(bytes, whole, lines)
    }

    /// The next chunk, which has this length in the file.
    fn chunk(&mut self, bytes: Vec<u8>, in_file: usize, lines: u64) -> Chunk {
        let extent = Extent { offset: self.offset, bytes: in_file as u64, lines_before: self.lines };
        let is_first = std::mem::replace(&mut self.is_first, false);
        self.offset += extent.bytes;
        self.lines += lines;
        Chunk { bytes, begin: 0, lines_before: extent.lines_before, is_first, extent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::Quoting;

    const CSV: Dialect = Dialect { delimiter: b',', quoting: Quoting::Doubled(b'"') };
    const TEXT: Dialect = Dialect { delimiter: b'\t', quoting: Quoting::Backslash };

    /// All chunks of a file that arrives in pieces.
    fn chunks(file: &[u8], piece: usize) -> Vec<Chunk> {
        let mut cutter = Cutter::new(CSV, CHUNK_BYTES);
        let mut chunks = Vec::new();
        for bytes in file.chunks(piece) {
            cutter.push(bytes);
            while let Some(chunk) = cutter.next().unwrap() {
                chunks.push(chunk);
            }
        }
        while let Some(chunk) = cutter.last().unwrap() {
            chunks.push(chunk);
        }
        chunks
    }

    #[test]
    fn chunks_are_whole_records_and_know_their_lines() {
        let record = b"1,\"a\nb\",xxxxxxxxxxxxxxxx\n2,c,\n";
        let mut file: Vec<u8> = record.iter().copied().cycle().take(record.len() * 60_000).collect();
        file.extend_from_slice(b"3,,end");
        for piece in [1_000, CHUNK_BYTES - 1, 3 * CHUNK_BYTES] {
            let chunks = chunks(&file, piece);
            assert!(chunks.len() > 1);
            let mut together = Vec::new();
            for chunk in &chunks {
                let lines = together.iter().filter(|byte| **byte == b'\n').count() as u64;
                assert_eq!((chunk.lines_before, chunk.is_first), (lines, together.is_empty()));
                let Extent { offset, bytes, lines_before } = chunk.extent;
                assert_eq!((offset, lines_before), (together.len() as u64, lines));
                let again = &file[offset as usize..(offset + bytes) as usize];
                let again = Chunk::again(chunk.extent, again.to_vec(), 0);
                assert_eq!((&again.bytes, again.is_first), (&chunk.bytes, chunk.is_first));
                let in_quotes = chunk.bytes.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
                assert!(chunk.bytes.ends_with(b"\n") && !in_quotes);
                together.extend_from_slice(&chunk.bytes);
            }
            assert_eq!(together.strip_suffix(b"\n"), Some(&file[..]));
        }
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let file: Vec<u8> = b"some,words\n".iter().copied().cycle().take(5 * CHUNK_BYTES + 7).collect();
        let mut cutter = Cutter::new(CSV, CHUNK_BYTES);
        let mut source = &file[..];
        let mut together = Vec::new();
        while cutter.read(&mut source).unwrap() == Came::More {
            while let Some(chunk) = cutter.next().unwrap() {
                together.extend_from_slice(&chunk.bytes);
            }
        }
        while let Some(chunk) = cutter.next().unwrap() {
            together.extend_from_slice(&chunk.bytes);
        }
        while let Some(chunk) = cutter.last().unwrap() {
            together.extend_from_slice(&chunk.bytes);
        }
        assert_eq!(together.strip_suffix(b"\n"), Some(&file[..]));
    }

    #[test]
    fn lines_that_are_skipped_are_counted_however_they_come() {
        let file = b"\"no record\nnor, this\nid\n1\n2\n".to_vec();
        for (skip, rest) in [(0, 0), (1, 11), (2, 21), (4, 26), (5, 28), (9, 28)] {
            for piece in [1, 5, file.len()] {
                let mut cutter = Cutter::new(Dialect { delimiter: b',', quoting: Quoting::Never }, 4);
                cutter.skip(skip);
                let (mut chunks, mut together) = (Vec::new(), Vec::new());
                for bytes in file.chunks(piece) {
                    cutter.push(bytes);
                    while let Some(chunk) = cutter.next().unwrap() {
                        chunks.push(chunk);
                    }
                }
                while let Some(chunk) = cutter.last().unwrap() {
                    chunks.push(chunk);
                }
                for chunk in &chunks {
                    let lines = together.iter().filter(|byte| **byte == b'\n').count() as u64;
                    let Extent { offset, bytes, lines_before } = chunk.extent;
                    assert_eq!((offset, lines_before), ((rest + together.len()) as u64, lines + skip));
                    let again = file[offset as usize..(offset + bytes) as usize].to_vec();
                    let again = Chunk::again(chunk.extent, again, skip);
                    assert_eq!((again.is_first, chunk.is_first), (together.is_empty(), together.is_empty()));
                    together.extend_from_slice(&chunk.bytes);
                }
                assert_eq!(together, file[rest..], "{skip} {piece}");
            }
        }
    }

    #[test]
    fn an_uncut_record_reports_where_it_begins() {
        let mut cutter = Cutter::new(CSV, CHUNK_BYTES);
        cutter.push(b"1,a\n2,\"b\nc\n");
        assert_eq!(cutter.last().unwrap().unwrap().bytes, b"1,a\n");
        let unterminated = Uncut::Unterminated { line: 2, record: b"2,\"b\nc\n".to_vec() };
        assert_eq!(cutter.last().unwrap_err(), unterminated);
        // Of a record of several lines the line where the field begins.
        cutter.push(b"1,a\n2,\"b\nc\",d,\"e\nf\n");
        assert_eq!(cutter.last().unwrap().unwrap().bytes, b"1,a\n");
        let unterminated = Uncut::Unterminated { line: 4, record: b"c\",d,\"e\nf\n".to_vec() };
        assert_eq!(cutter.last().unwrap_err(), unterminated);
        if cfg!(miri) {
            return;
        }
        let mut cutter = Cutter::new(CSV, CHUNK_BYTES);
        cutter.push(b"1,a\n2,\"");
        let mut outcome = Ok(None);
        for _ in 0..=MAX_RECORD_BYTES / CHUNK_BYTES {
            cutter.push(&vec![b'x'; CHUNK_BYTES]);
            outcome = cutter.next();
            if outcome.is_err() {
                break;
            }
        }
        assert_eq!(outcome.unwrap_err(), Uncut::TooLong { line: 2, in_quotes: true });
    }

    #[test]
    fn a_backslash_at_the_very_end_stands_for_itself() {
        let mut cutter = Cutter::new(TEXT, CHUNK_BYTES);
        cutter.push(b"a\\");
        assert_eq!(cutter.last().unwrap().unwrap().bytes, b"a\\\\\n");
    }
}
