//! Writing formats of rows on several threads: a thread turns some chunks of a query into a piece of the file
//! while others do so with the next ones.
//!
//! Compressed output consists of many members (gzip, RFC 1952 §2.2) or frames (zstd, RFC 8878 §3.1), one for each piece:
//! decompressors treat them as one.

use super::workers::{Workers, bytes_of};
use arrow_array::ArrayRef;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_executor::arrays::array_of;
use firn_load::CopyWriter;
use firn_load::source::{Packing, packed};
use firn_query::{ResultChunk, Stream};

/// The approximate size of a piece, before it is compressed.
const PIECE_BYTES: usize = 256 << 10;
/// The same if pieces are compressed, each by itself.
const PACKED_PIECE_BYTES: usize = 1 << 20;

/// The number of pieces that are written on this thread, before others are started.
const FIRST_PIECES: usize = 2;

/// Turns rows into pieces.
pub(super) struct RowsOut {
    form: Arc<Form>,
    /// Threads to use.
    threads: usize,
    workers: Option<Workers<Job, Result<Piece>>>,
    /// Jobs begun, and pieces taken.
    given: usize,
    pieces: usize,
    /// The rest of a chunk of which a part has been given to a job.
    rest: Option<ResultChunk>,
    /// Whether all chunks have been taken.
    at_end: bool,
}

/// What all threads share.
struct Form {
    writer: CopyWriter,
    is_binary: bool,
    packing: Option<Packing>,
}

/// The rows of one piece.
struct Job {
    chunks: Vec<ResultChunk>,
    is_first: bool,
    is_last: bool,
}

/// A piece of the file.
pub(super) struct Piece {
    /// The bytes of the output.
    pub bytes: Vec<u8>,
    /// How many rows they contain.
    pub rows: usize,
}

impl Form {
    fn write(&self, job: &Job) -> Result<Piece> {
        let mut written = Vec::new();
        if job.is_first {
            self.writer.write_header(&mut written);
        }
        let mut rows = 0;
        for chunk in &job.chunks {
            let column = |(place, vector)| match chunk.text(place) {
                Some(text) if !self.is_binary => array_of(text),
                _ => array_of(vector),
            };
            let columns: Vec<ArrayRef> = chunk.values.vectors().iter().enumerate().map(column).collect();
            self.writer.write_rows(&columns, chunk.rows(), &mut written);
            rows += chunk.rows();
        }
        if job.is_last {
            self.writer.write_trailer(&mut written);
        }
        let length = written.len();
        let bytes = match self.packing {
            // An empty file is compressed as well.
            Some(packing) if length > 0 || job.is_first && job.is_last => packed(packing, &written),
            _ => written,
        };
        Ok(Piece { bytes, rows })
    }
}

impl RowsOut {
    pub fn new(writer: CopyWriter, is_binary: bool, packing: Option<Packing>, threads: usize) -> RowsOut {
        let form = Arc::new(Form { writer, is_binary, packing });
        RowsOut { form, threads, workers: None, given: 0, pieces: 0, rest: None, at_end: false }
    }

    /// Whether pieces consist of whole rows: compressed ones do not.
    pub fn has_whole_rows(&self) -> bool {
        self.form.packing.is_none()
    }

    /// The next piece, perhaps an empty one; `None` after the last.
    pub fn next(&mut self, rows: &mut Stream) -> Result<Option<Piece>> {
        if self.workers.is_none() && self.threads > 1 && self.pieces >= FIRST_PIECES {
            let form = self.form.clone();
            self.workers = Workers::start("firn-copy", self.threads, move |job: Job| form.write(&job));
        }
        let piece = match self.workers.take() {
            Some(workers) => self.next_of_workers(workers, rows)?,
            None => self.job(rows)?.map(|job| self.form.write(&job)).transpose()?,
        };
        self.pieces += usize::from(piece.is_some());
        Ok(piece)
    }

    fn next_of_workers(
        &mut self,
        mut workers: Workers<Job, Result<Piece>>,
        rows: &mut Stream,
    ) -> Result<Option<Piece>> {
        while !workers.is_enough() {
            let Some(job) = self.job(rows)? else { break };
            let bytes = job.chunks.iter().map(bytes_of).sum();
            workers.give(job, bytes);
        }
        let piece = workers.next().transpose();
        self.workers = Some(workers);
        piece
    }

    /// The next chunks that make up a piece; `None` after the last.
    fn job(&mut self, rows: &mut Stream) -> Result<Option<Job>> {
        if self.at_end {
            return Ok(None);
        }
        let enough = if self.form.packing.is_some() { PACKED_PIECE_BYTES } else { PIECE_BYTES };
        let mut job = Job { chunks: Vec::new(), is_first: self.given == 0, is_last: false };
        let mut bytes = 0;
        while bytes < enough {
            let next = match self.rest.take() {
                Some(rest) => Some(rest),
                None => rows.next()?,
            };
            let Some(mut chunk) = next else {
                (job.is_last, self.at_end) = (true, true);
                break;
            };
            let (rows, chunk_bytes) = (chunk.rows(), bytes_of(&chunk));
            if chunk_bytes > 2 * enough && rows > 1 {
                // About as many of its rows as make a piece.
                let first = (rows * enough / chunk_bytes).clamp(1, rows - 1);
                self.rest = Some(chunk.slice(first, rows - first));
                chunk = chunk.slice(0, first);
            }
            bytes += chunk_bytes;
            job.chunks.push(chunk);
        }
        self.given += 1;
        Ok(Some(job))
    }
}
