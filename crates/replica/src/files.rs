//! Writing and comparing large files of copies.
//!
//! They are written, and mostly read, past the operating system's page cache: otherwise the pages of a copy wait to be written all at once,
//! much is read ahead, and a commit on the same disk waits for that.

use firn_base::Result;
use firn_base::disk::{Disk, DiskFile, Medium, PageBuffer};
use firn_base::sync::Arc;
use std::path::Path;

/// How many files are copied at once from or to an object store, which takes its time for each.
pub(crate) const FILES_AT_ONCE: usize = 6;

/// How many files are copied at once from or to a medium.
pub(crate) fn files_at_once(medium: Medium) -> usize {
    match medium {
        Medium::Blocks => 1,
        Medium::Objects => FILES_AT_ONCE,
    }
}

/// How much is read or written at once. A commit on the same disk may wait for one such request.
const CHUNK_BYTES: usize = 512 << 10;

/// The length of a file, and its CRC32C.
pub(crate) type Content = (u64, u32);

/// A new file while it is written.
pub(crate) struct FileWriter {
    file: Arc<dyn DiskFile>,
    buffer: PageBuffer,
    /// Bytes that have been written, without those in the buffer.
    written: u64,
    crc: u32,
}

impl FileWriter {
    pub fn create(disk: &dyn Disk, path: &Path) -> Result<FileWriter> {
        let (file, buffer) = (disk.create_direct(path)?, PageBuffer::new(CHUNK_BYTES));
        Ok(FileWriter { file, buffer, written: 0, crc: 0 })
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        while !bytes.is_empty() {
            let taken = self.buffer.fill(bytes);
            bytes = &bytes[taken..];
            if self.buffer.bytes().len() == CHUNK_BYTES {
                self.file.write_at(self.buffer.bytes(), self.written)?;
                self.written += CHUNK_BYTES as u64;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    /// What has been passed to it.
    pub fn content(&self) -> Content {
        (self.written + self.buffer.bytes().len() as u64, self.crc)
    }

    /// Writes the rest, as whole pages that are then truncated, and makes the file durable, but not its name.
    pub fn finish(mut self) -> Result<()> {
        let (length, _) = self.content();
        self.buffer.pad();
        self.file.write_at(self.buffer.bytes(), self.written)?;
        self.file.set_len(length)?;
        self.file.sync()
    }
}

/// Copies the content of a file into a new one, which its caller finishes.
pub(crate) fn copy(from: &dyn DiskFile, disk: &dyn Disk, to: &Path) -> Result<FileWriter> {
    let mut writer = FileWriter::create(disk, to)?;
    read(from, |bytes| writer.write(bytes))?;
    Ok(writer)
}

/// The content of a file.
pub(crate) fn content_of(disk: &dyn Disk, path: &Path) -> Result<Content> {
    let (mut length, mut crc) = (0, 0);
    read(&*disk.open_direct_to_read(path)?, |bytes| {
        length += bytes.len() as u64;
        crc = crc32c::crc32c_append(crc, bytes);
        Ok(())
    })?;
    Ok((length, crc))
}

/// Passes the bytes of a file to `sink`, piece by piece.
pub(crate) fn read(file: &dyn DiskFile, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (mut buffer, mut at) = (PageBuffer::new(CHUNK_BYTES), 0);
    loop {
        let read = buffer.read(file, at)?;
        if read == 0 {
            return Ok(());
        }
        sink(buffer.bytes())?;
        at += read as u64;
    }
}
