//! Where chunks come from: a file that is cut as it is read, or places in it that are known from before.

use crate::chunk::{Came, Chunk, Cutter, Extent, Uncut};
use firn_base::{Error, Result};
use std::io::{self, Read, Seek, SeekFrom};

/// A file in which one can go anywhere.
pub trait Places: Read + Seek + Send {}

impl<F: Read + Seek + Send> Places for F {}

/// What is read of a file that has chunks.
pub enum Feed<'f> {
    /// All of it, from where it stands.
    Whole(&'f mut (dyn Read + Send)),
    /// Those chunks, which begin so far behind where each says that it does; of CSV and JSON files.
    Extents {
        /// The file.
        file: &'f mut dyn Places,
        /// Where what counts as its beginning is.
        begin: u64,
        /// The chunks, which rise.
        extents: &'f [Extent],
    },
}

/// A feed from which chunks are taken, one after another.
pub(crate) enum Chunks<'f> {
    Cutting {
        cutter: Cutter,
        file: &'f mut (dyn Read + Send),
        at_end: bool,
    },
    Going {
        file: &'f mut dyn Places,
        begin: u64,
        rest: std::slice::Iter<'f, Extent>,
        position: Option<u64>,
        /// Lines at the beginning of the file that are no part of any record.
        skipped: u64,
    },
}

impl<'f> Chunks<'f> {
    /// Chunks of a feed; `cutter` cuts it if nobody has.
    pub fn new(feed: Feed<'f>, cutter: Cutter) -> Chunks<'f> {
        match feed {
            Feed::Whole(file) => Chunks::Cutting { cutter, file, at_end: false },
            Feed::Extents { file, begin, extents } => {
                let (rest, skipped) = (extents.iter(), cutter.skipped());
                Chunks::Going { file, begin, rest, position: None, skipped }
            }
        }
    }

    /// The next chunk. `place` is what errors call the file, and `failed` says what a failure to read is to the user.
    pub fn next(&mut self, place: &str, failed: &dyn Fn(&io::Error) -> Error) -> Result<Option<Chunk>> {
        match self {
            Chunks::Cutting { cutter, file, at_end } => cut(cutter, *file, at_end, place, failed),
            Chunks::Going { file, begin, rest, position, skipped } => {
                let Some(extent) = rest.next() else { return Ok(None) };
                let bytes = read_at(*file, *begin + extent.offset, extent.bytes, position);
                Ok(Some(Chunk::again(*extent, bytes.map_err(|error| failed(&error))?, *skipped)))
            }
        }
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
            // Its writer may wait for what becomes of it.
            Came::Silence => {
                if let Some(chunk) = cutter.next_few() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// So many bytes of a file from there on; `position` is where it stands, if that is known. What follows the chunk before is
/// read without going there, so that the system reads ahead.
fn read_at(file: &mut dyn Places, from: u64, length: u64, position: &mut Option<u64>) -> io::Result<Vec<u8>> {
    if *position != Some(from) {
        file.seek(SeekFrom::Start(from))?;
    }
    *position = None;
    // A line feed may be added.
    let mut bytes = Vec::with_capacity(length as usize + 1);
    if (&mut *file).take(length).read_to_end(&mut bytes)? < length as usize {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter while it was read"));
    }
    *position = Some(from + length);
    Ok(bytes)
}
