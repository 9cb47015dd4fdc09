//! Sources of chunks: a file that is cut as it is read, or parts of it whose places are known.

use crate::chunk::{Came, Chunk, Cutter, Extent, Piece, Uncut};
use crate::structure::Dialect;
use firn_base::{Error, Result};
use rustix::buffer::spare_capacity;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

/// A file that can be read anywhere, by several threads at once.
pub trait Places: Sync {
    /// Appends `length` bytes from this offset on, fewer only at the end of the file.
    fn read_at(&self, from: u64, length: usize, bytes: &mut Vec<u8>) -> io::Result<()>;
}

impl Places for File {
    fn read_at(&self, from: u64, length: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        let before = bytes.len();
        bytes.reserve_exact(length);
        while bytes.len() < before + length {
            let at = from + (bytes.len() - before) as u64;
            match rustix::io::pread(self, spare_capacity(bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // There may have been more room than requested.
        bytes.truncate(before + length);
        Ok(())
    }
}

/// The parts of a file to be read.
pub enum Feed<'f> {
    /// The whole file, from its current position, one piece after the other.
    Whole(&'f mut (dyn Read + Send)),
    /// A range of it, several pieces at once.
    Stretch {
        /// The file.
        file: &'f dyn Places,
        /// Where the range begins, and where it ends if the file does not end before. Bytes that are appended to the file
        /// meanwhile are not in it.
        stretch: Range<u64>,
        /// Is called with the number of bytes that have been read.
        watch: &'f (dyn Fn(u64) + Sync),
    },
    /// These chunks; each begins `begin` bytes later than its extent says. For CSV and JSON files.
    Extents {
        /// The file.
        file: &'f dyn Places,
        /// The offset that the extents are relative to.
        begin: u64,
        /// The chunks, in ascending order.
        extents: &'f [Extent],
    },
}

/// A feed that is read in order, by one thread at a time.
pub(crate) struct InTurn<'f> {
    pub file: &'f mut (dyn Read + Send),
    pub cutter: Cutter,
    pub at_end: bool,
}

impl InTurn<'_> {
    /// The next chunk. `place` is the name of the file in errors, and `failed` makes the error of a failed read.
    pub fn next(&mut self, place: &str, failed: &dyn Fn(&io::Error) -> Error) -> Result<Option<Chunk>> {
        cut(&mut self.cutter, self.file, &mut self.at_end, place, failed)
    }
}

/// A feed that several threads read at once: each [takes](Pieces::take) the next part and [fetches](Taken::fetch) it, and all
/// parts are [joined](Joints::put) in the order in which they were taken.
pub(crate) struct Pieces<'f> {
    rest: Rest<'f>,
    dialect: Dialect,
    piece_bytes: u64,
}

enum Rest<'f> {
    Stretch {
        file: &'f dyn Places,
        rest: Range<u64>,
        watch: &'f (dyn Fn(u64) + Sync),
    },
    Extents {
        file: &'f dyn Places,
        begin: u64,
        rest: std::slice::Iter<'f, Extent>,
        skipped: u64,
    },
    /// All has been taken.
    Nothing,
}

/// A part to be read.
pub(crate) enum Taken<'f> {
    Extent {
        file: &'f dyn Places,
        begin: u64,
        extent: Extent,
        skipped: u64,
    },
    Piece {
        file: &'f dyn Places,
        place: Range<u64>,
        dialect: Dialect,
        watch: &'f (dyn Fn(u64) + Sync),
    },
    /// The end: the remaining records are to be returned.
    End,
}

/// A part that has been read.
pub(crate) enum Fetched {
    Chunk(Chunk),
    /// The flag says whether the file ends in it, although more was expected.
    Piece(Piece, bool),
    End,
}

/// Makes chunks of the parts that were fetched.
pub(crate) struct Joints {
    cutter: Cutter,
    /// Whether the file has ended before the range.
    is_over: bool,
}

/// How a feed is read and cut.
pub(crate) enum Way<'f> {
    InTurn(InTurn<'f>),
    AtOnce(Pieces<'f>, Joints),
}

impl<'f> Way<'f> {
    /// How a feed is read; `cutter` cuts it if it has no chunks yet.
    pub fn of(feed: Feed<'f>, cutter: Cutter) -> Way<'f> {
        let rest = match feed {
            Feed::Whole(file) => return Way::InTurn(InTurn { file, cutter, at_end: false }),
            Feed::Stretch { file, stretch, watch } => Rest::Stretch { file, rest: stretch, watch },
            Feed::Extents { file, begin, extents } => {
                Rest::Extents { file, begin, rest: extents.iter(), skipped: cutter.skipped() }
            }
        };
        let (dialect, piece_bytes) = (cutter.dialect(), cutter.chunk_bytes() as u64);
        Way::AtOnce(Pieces { rest, dialect, piece_bytes }, Joints { cutter, is_over: false })
    }
}

impl<'f> Pieces<'f> {
    /// The next part to be read.
    pub fn take(&mut self) -> Option<Taken<'f>> {
        match &mut self.rest {
            Rest::Nothing => None,
            Rest::Stretch { rest, .. } if rest.is_empty() => {
                self.rest = Rest::Nothing;
                Some(Taken::End)
            }
            Rest::Stretch { file, rest, watch } => {
                let end = rest.end.min(rest.start + self.piece_bytes);
                let place = std::mem::replace(&mut rest.start, end)..end;
                Some(Taken::Piece { file: *file, place, dialect: self.dialect, watch: *watch })
            }
            Rest::Extents { file, begin, rest, skipped } => {
                let (file, begin, skipped) = (*file, *begin, *skipped);
                rest.next().map(|extent| Taken::Extent { file, begin, extent: *extent, skipped })
            }
        }
    }
}

impl Pieces<'_> {
    /// Whether all has been taken.
    pub fn is_empty(&self) -> bool {
        match &self.rest {
            Rest::Stretch { .. } => false,
            Rest::Extents { rest, .. } => rest.len() == 0,
            Rest::Nothing => true,
        }
    }
}

impl Joints {
    /// Calls `found` with the chunks that the next part completes.
    pub fn put(&mut self, fetched: Fetched, place: &str, found: &mut dyn FnMut(Chunk)) -> Result<()> {
        let uncut = |uncut: Uncut| uncut.into_error(place);
        match fetched {
            Fetched::Chunk(chunk) => found(chunk),
            // Bytes that are appended to a file which was truncated meanwhile do not continue what precedes them.
            Fetched::Piece(..) if self.is_over => {}
            Fetched::Piece(piece, is_over) => {
                self.is_over = is_over;
                self.cutter.fit(piece).map_err(uncut)?.into_iter().for_each(found);
            }
            Fetched::End => {
                while let Some(chunk) = self.cutter.next().map_err(uncut)? {
                    found(chunk);
                }
                while let Some(chunk) = self.cutter.last().map_err(uncut)? {
                    found(chunk);
                }
            }
        }
        Ok(())
    }
}

impl Taken<'_> {
    /// Reads the part.
    pub fn fetch(self, failed: &dyn Fn(&io::Error) -> Error) -> Result<Fetched> {
        match self {
            Taken::Extent { file, begin, extent, skipped } => {
                let bytes = read_extent(file, begin + extent.offset, extent.bytes as usize);
                Ok(Fetched::Chunk(Chunk::again(extent, bytes.map_err(|error| failed(&error))?, skipped)))
            }
            Taken::Piece { file, place, dialect, watch } => {
                let length = (place.end - place.start) as usize;
                let mut read = 0;
                let piece = Piece::read(dialect, length, |bytes| {
                    let before = bytes.len();
                    file.read_at(place.start, length, bytes)?;
                    read = bytes.len() - before;
                    Ok(())
                });
                watch(read as u64);
                Ok(Fetched::Piece(piece.map_err(|error| failed(&error))?, read < length))
            }
            Taken::End => Ok(Fetched::End),
        }
    }
}

/// Reads a range of a file from its beginning to its end, or to the end of the file.
pub(crate) struct InOrder<'f> {
    pub file: &'f dyn Places,
    pub rest: Range<u64>,
    pub watch: &'f (dyn Fn(u64) + Sync),
}

impl Read for InOrder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min((self.rest.end - self.rest.start) as usize);
        let mut bytes = Vec::new();
        self.file.read_at(self.rest.start, length, &mut bytes)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.rest.start += bytes.len() as u64;
        (self.watch)(bytes.len() as u64);
        Ok(bytes.len())
    }
}

/// Cuts off the next chunk.
fn cut(
    cutter: &mut Cutter,
    file: &mut (dyn Read + Send),
    at_end: &mut bool,
    place: &str,
    failed: &dyn Fn(&io::Error) -> Error,
) -> Result<Option<Chunk>> {
    let uncut = |uncut: Uncut| uncut.into_error(place);
    loop {
        if let Some(chunk) = cutter.next().map_err(uncut)? {
            return Ok(Some(chunk));
        }
        if *at_end {
            return cutter.last().map_err(uncut);
        }
        match cutter.read(file).map_err(|error| failed(&error))? {
            Came::More => {}
            Came::Last => *at_end = true,
            // The writer of the pipe may wait for the effect of what it has sent.
            Came::Silence => {
                if let Some(chunk) = cutter.next_few() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// `length` bytes of a file from offset `from` on.
fn read_extent(file: &dyn Places, from: u64, length: usize) -> io::Result<Vec<u8>> {
    // A line feed may be added.
    let mut bytes = Vec::with_capacity(length + 1);
    file.read_at(from, length, &mut bytes)?;
    match bytes.len() < length {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was truncated while it was read")),
        false => Ok(bytes),
    }
}
