//! Writing and reading without the operating system's page cache (direct I/O).
//!
//! Large data that are written once, and read again only after a crash, do not belong there: the kernel
//! clears pages for them, copies them, evicts pages that are being read, and writes them at a fraction of the
//! disk's speed. When they are copied, the kernel reads megabytes ahead, and commits wait in the disk's queue behind that.
//! Writes and reads bypass it if their offset, their length and their address in memory are multiples of
//! [`PAGE_BYTES`]; a [`PageBuffer`] has such an address. If a file system does not support direct I/O, they
//! use the cache.

use super::{DiskFile, FILE_MODE, RealFile, io_error};
use crate::Result;
use crate::sync::Arc;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Offset, length and address of a direct write are multiples of this. Hardly any disk requires more.
pub const PAGE_BYTES: usize = 4096;

/// A file that is only read, whole pages without the cache.
#[derive(Debug)]
struct DirectReader {
    direct: fs::File,
    cached: RealFile,
}

/// Opens a file to be read without the cache, if its file system supports it.
pub(super) fn open_to_read(path: &Path) -> Result<Arc<dyn DiskFile>> {
    let file = fs::File::open(path).map_err(|error| io_error("open file", path, &error))?;
    let cached = RealFile { file, path: path.to_owned() };
    let direct = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    // If that is not possible, for any reason, the cache is used.
    Ok(match direct {
        Ok(direct) => Arc::new(DirectReader { direct, cached }),
        Err(_) => Arc::new(cached),
    })
}

/// Whether all of an access is whole pages: only then it can be direct.
fn is_whole(bytes: &[u8], offset: u64) -> bool {
    [bytes.as_ptr().addr(), bytes.len(), offset as usize]
        .iter()
        .all(|number| number.is_multiple_of(PAGE_BYTES))
}

impl DiskFile for DirectReader {
    fn len(&self) -> Result<u64> {
        self.cached.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !is_whole(buffer, offset) {
            return self.cached.read_at(buffer, offset);
        }
        match self.direct.read_at(buffer, offset) {
            Ok(read) if read == buffer.len() => Ok(read),
            // The file ends there; if not, the rest is read through the cache.
            Ok(read) => Ok(read + self.cached.read_at(&mut buffer[read..], offset + read as u64)?),
            // The file system requires larger pages, or does not support direct reads after all; or a signal has arrived.
            Err(error)
                if [io::ErrorKind::InvalidInput, io::ErrorKind::Interrupted].contains(&error.kind()) =>
            {
                self.cached.read_at(buffer, offset)
            }
            Err(error) => Err(io_error("read file", &self.cached.path, &error)),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.cached.write_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.cached.set_len(length)
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.cached.allocate(length)
    }

    fn sync(&self) -> Result<()> {
        self.cached.sync()
    }
}

/// A file whose whole pages are written without the cache.
#[derive(Debug)]
struct DirectFile {
    direct: fs::File,
    cached: RealFile,
}

/// Creates a file to be written without the cache, if its file system supports it.
pub(super) fn create(path: &Path) -> Result<Arc<dyn DiskFile>> {
    let failed = |error| io_error("create file", path, &error);
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path);
    let cached = RealFile { file: file.map_err(failed)?, path: path.to_owned() };
    let direct = fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path);
    // If that is not possible, for any reason, the cache is used.
    Ok(match direct {
        Ok(direct) => Arc::new(DirectFile { direct, cached }),
        Err(_) => Arc::new(cached),
    })
}

impl DiskFile for DirectFile {
    fn len(&self) -> Result<u64> {
        self.cached.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.cached.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !is_whole(bytes, offset) {
            return self.cached.write_at(bytes, offset);
        }
        match self.direct.write_all_at(bytes, offset) {
            // The file system requires larger pages, or does not support direct writes after all.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.cached.write_at(bytes, offset),
            Err(error) => Err(io_error("write file", &self.cached.path, &error)),
            Ok(()) => Ok(()),
        }
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.cached.set_len(length)
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.cached.allocate(length)
    }

    fn sync(&self) -> Result<()> {
        self.cached.sync()
    }
}

/// Bytes at an address that is valid for direct writes and reads.
#[derive(Debug)]
pub struct PageBuffer {
    /// Longer than the buffer by a page, so that it can begin at one.
    bytes: Vec<u8>,
    start: usize,
    used: usize,
}

impl PageBuffer {
    /// An empty buffer with room for `capacity` bytes, which are whole pages.
    pub fn new(capacity: usize) -> PageBuffer {
        assert!(capacity.is_multiple_of(PAGE_BYTES), "{capacity} bytes are not whole pages");
        let bytes = vec![0; capacity + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        PageBuffer { bytes, start, used: 0 }
    }

    /// Takes bytes from the front of `from` while there is room. Returns how many.
    pub fn fill(&mut self, from: &[u8]) -> usize {
        let taken = from.len().min(self.capacity() - self.used);
        self.bytes[self.start + self.used..][..taken].copy_from_slice(&from[..taken]);
        self.used += taken;
        taken
    }

    /// Replaces its content by what a file has at a position, as much as there is room for: less at the file's end. Returns how much.
    pub fn read(&mut self, file: &dyn DiskFile, offset: u64) -> Result<usize> {
        let capacity = self.capacity();
        self.used = file.read_at(&mut self.bytes[self.start..][..capacity], offset)?;
        Ok(self.used)
    }

    /// Adds zeros up to a whole page.
    pub fn pad(&mut self) {
        let end = self.used.next_multiple_of(PAGE_BYTES);
        self.bytes[self.start..][self.used..end].fill(0);
        self.used = end;
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.used]
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    fn capacity(&self) -> usize {
        self.bytes.len() - PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};

    #[test]
    fn a_page_buffer_takes_what_it_has_room_for_and_lies_at_a_page() {
        let mut buffer = PageBuffer::new(2 * PAGE_BYTES);
        assert_eq!(buffer.fill(&[1; 5000]), 5000);
        assert_eq!(buffer.fill(&[2; 5000]), 3192);
        assert_eq!(buffer.fill(&[3]), 0);
        assert_eq!((buffer.bytes().len(), buffer.bytes()[4999], buffer.bytes()[5000]), (8192, 1, 2));
        assert_eq!(buffer.bytes().as_ptr().align_offset(PAGE_BYTES), 0);
        buffer.clear();
        buffer.fill(&[4; 10]);
        buffer.pad();
        assert_eq!(buffer.bytes().len(), PAGE_BYTES);
        assert_eq!((buffer.bytes()[9], &buffer.bytes()[10..]), (4, &[0; PAGE_BYTES - 10][..]));
        buffer.pad();
        assert_eq!(buffer.bytes().len(), PAGE_BYTES);
    }

    #[test]
    fn what_is_written_by_pages_and_otherwise_is_one_file() {
        let path = std::env::temp_dir().join(format!("firn-direct-{}", std::process::id()));
        let file = RealDisk.create_direct(&path).unwrap();
        let mut buffer = PageBuffer::new(PAGE_BYTES);
        for page in 0..4_u8 {
            buffer.clear();
            buffer.fill(&[page; PAGE_BYTES]);
            file.write_at(buffer.bytes(), u64::from(page) * PAGE_BYTES as u64).unwrap();
        }
        file.write_at(b"x", 5000).unwrap();
        file.write_at(buffer.bytes(), 3 * PAGE_BYTES as u64).unwrap();
        file.write_at(&[9; 100], 4 * PAGE_BYTES as u64).unwrap();
        file.set_len(4 * PAGE_BYTES as u64 + 10).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 4 * PAGE_BYTES as u64 + 10);
        let mut expected: Vec<u8> = (0..4).flat_map(|page| [page; PAGE_BYTES]).collect();
        expected[5000] = b'x';
        expected.extend([9; 10]);
        assert!(fs::read(&path).unwrap() == expected);
        let mut read = [0; 3];
        assert_eq!(file.read_at(&mut read, 4999).unwrap(), 3);
        assert_eq!(read, [1, b'x', 1]);
        let reader = RealDisk.open_direct_to_read(&path).unwrap();
        let (mut read, mut buffer) = (Vec::new(), PageBuffer::new(3 * PAGE_BYTES));
        while buffer.read(&*reader, read.len() as u64).unwrap() > 0 {
            read.extend_from_slice(buffer.bytes());
        }
        assert!(read == expected);
        let error = reader.write_at(b"x", 0).unwrap_err();
        assert!(error.message().starts_with("could not write file"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
