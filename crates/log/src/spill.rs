//! Spill files: the redo of transactions that write more than memory should hold.
//!
//! A long transaction writes its redo to a file of its own before the commit, in chunks. The commit
//! syncs the file, and its entry in the log begins with a record that names the file and the chunks. So
//! the redo takes a bounded amount of memory, and the commit appends a few bytes to the log, however much
//! the transaction has written.
//!
//! ```text
//! spill file     | header | chunk | chunk | …            chunk: redo records, as a buffer held them
//!                                                        each begins at a page and is written past the page cache
//!
//! header         0        8         12    16       24        40      48
//!                | magic  | version | crc | number | database | epoch |
//! ```
//!
//! The epoch is that of the group whose entry names the file; it is in the file's name, too. Files of version 1 have none: they
//! are read, as those of epoch 0, and never written.
//!
//! A file counts if an entry of the log names it. The file of a transaction that did not commit before a
//! crash is removed when the database is opened. A file whose entry precedes the checkpoint is removed
//! together with that part of the log. The position, length and CRC32C of each chunk are in the log, so a
//! rollback to a savepoint changes no file.

use crate::DatabaseId;
use crate::format::numbered;
use crate::segments::{Segments, Written};
use firn_base::disk::{Disk, DiskFile, PageBuffer};
use firn_base::sync::{Arc, AtomicU64, Mutex, Ordering};
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use std::path::{Path, PathBuf};

/// The suffix of the names of spill files, after a number and an epoch.
const SUFFIX: &str = ".spill";
const MAGIC: [u8; 8] = *b"FIRNSPIL";
const VERSION: u32 = 2;
const HEADER_LEN: usize = 48;
const FIRST_VERSION: u32 = 1;
const FIRST_HEADER_LEN: usize = 40;
/// The most that one write writes.
const WRITE_BYTES: usize = 1 << 20;

/// The spill files of one log.
#[derive(Debug)]
pub struct Spills {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: DatabaseId,
    /// The epoch of new files.
    epoch: AtomicU64,
    /// The log's segments, the first of which begins the epoch.
    segments: Arc<Mutex<Segments>>,
    written: Arc<Written>,
    /// The number of the next file.
    next: AtomicU64,
    /// The files that entries of the log name.
    kept: Mutex<Vec<Kept>>,
    /// Bytes of redo in files that were ever kept since the log was opened.
    kept_bytes: AtomicU64,
}

/// A spill file that an entry of the log names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The number of the file.
    pub number: u64,
    /// Its epoch.
    pub epoch: Epoch,
    /// The position after the entry: a log that begins there does not need the file.
    pub needed_to: Lsn,
    /// Bytes of redo in it that are valid.
    pub bytes: u64,
}

/// Part of a spill file, with some redo records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in the file.
    pub stored: u64,
    /// How much of that is valid: the records after it have been rolled back.
    pub used: u64,
    /// CRC32C of the whole chunk.
    pub crc: u32,
}

/// The spill file of a running transaction. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Spill {
    spills: Arc<Spills>,
    file: Arc<dyn DiskFile>,
    buffer: PageBuffer,
    number: u64,
    /// The offset of the next chunk.
    end: u64,
    chunks: Vec<Chunk>,
    /// Bytes of redo that are valid.
    bytes: u64,
    kept: bool,
}

impl Spills {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        epoch: Epoch,
        segments: Arc<Mutex<Segments>>,
    ) -> Arc<Spills> {
        let written = segments.lock().written().clone();
        Arc::new(Spills {
            written,
            disk,
            directory: directory.to_owned(),
            database,
            epoch: AtomicU64::new(epoch.0),
            segments,
            // No file has this epoch yet.
            next: AtomicU64::new(0),
            kept: Mutex::default(),
            kept_bytes: AtomicU64::new(0),
        })
    }

    /// Makes sure that the first segment of the epoch is on disk: before that, nothing else of the epoch is written. 53100 if
    /// the disk is full.
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        // The segments are locked as long as one is being prepared.
        if self.written.has_begun() { Ok(()) } else { self.segments.lock().begin_epoch() }
    }

    /// Begins an epoch of which no file exists: a log that was received is written from now on.
    pub(crate) fn begin_to_write(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }

    /// The epoch of new files.
    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// A reader of the files.
    pub fn reader(&self) -> SpillReader<'_> {
        SpillReader { disk: &*self.disk, directory: &self.directory, database: self.database }
    }

    /// Keeps the files that the log names and removes the others.
    pub(crate) fn retain(&self, named: Vec<Kept>) -> Result<()> {
        let mut removed = false;
        for name in self.disk.list(&self.directory)? {
            if !name.ends_with(SUFFIX) {
                continue;
            }
            let is_named = |kept: &Kept| numbered(kept.number, kept.epoch, SUFFIX) == name;
            if !named.iter().any(is_named) {
                self.disk.remove(&self.directory.join(name))?;
                removed = true;
            }
        }
        named.into_iter().for_each(|kept| self.keep(kept));
        if removed { self.disk.sync_directory(&self.directory) } else { Ok(()) }
    }

    /// Keeps a file until the log before the end of its entry is removed.
    pub(crate) fn keep(&self, kept: Kept) {
        let mut all = self.kept.lock();
        // It may have been known when the log was opened.
        let is_new =
            all.extract_if(.., |other| (other.number, other.epoch) == (kept.number, kept.epoch)).count() == 0;
        all.push(kept);
        if is_new {
            self.kept_bytes.fetch_add(kept.bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of redo in files that were ever kept since the log was opened.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Removes the files that no entry after `lsn` names.
    pub(crate) fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        let superfluous: Vec<Kept> =
            self.kept.lock().iter().filter(|kept| kept.needed_to <= lsn).copied().collect();
        for kept in &superfluous {
            self.disk.remove(&path(&self.directory, kept.number, kept.epoch))?;
            self.kept.lock().retain(|other| (other.number, other.epoch) != (kept.number, kept.epoch));
        }
        if superfluous.is_empty() { Ok(()) } else { self.disk.sync_directory(&self.directory) }
    }

    /// Bytes of redo in the files that are named between two positions, and not beyond.
    pub(crate) fn bytes_between(&self, from: Lsn, to: Lsn) -> u64 {
        let kept = self.kept.lock();
        let between = kept.iter().filter(|kept| from < kept.needed_to && kept.needed_to <= to);
        between.map(|kept| kept.bytes).sum()
    }

    /// The path of a file of the present epoch.
    fn path(&self, number: u64) -> PathBuf {
        path(&self.directory, number, self.epoch())
    }
}

impl Spill {
    pub fn create(spills: &Arc<Spills>) -> Result<Spill> {
        spills.begin_epoch()?;
        let number = spills.next.fetch_add(1, Ordering::Relaxed);
        let file = spills.disk.create_direct(&spills.path(number))?;
        // From here on, dropping the value removes the file.
        let mut spill = Spill {
            spills: spills.clone(),
            file,
            buffer: PageBuffer::new(WRITE_BYTES),
            number,
            end: 0,
            chunks: Vec::new(),
            bytes: 0,
            kept: false,
        };
        spill.end = spill.write(&header(number, spills.epoch(), spills.database))?;
        Ok(spill)
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The valid chunks.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Bytes of redo that are valid.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends redo records. After an error nothing has changed.
    pub fn append(&mut self, records: &[u8]) -> Result<()> {
        let end = self.write(records)?;
        let stored = records.len() as u64;
        self.chunks.push(Chunk { offset: self.end, stored, used: stored, crc: crc32c::crc32c(records) });
        self.end = end;
        self.bytes += stored;
        Ok(())
    }

    /// Writes bytes at the end, and zeros up to the next page, where the next chunk begins.
    fn write(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let mut end = self.end;
        while !bytes.is_empty() {
            self.buffer.clear();
            let taken = self.buffer.fill(bytes);
            self.buffer.pad();
            self.file.write_at(self.buffer.bytes(), end)?;
            end += self.buffer.bytes().len() as u64;
            bytes = &bytes[taken..];
        }
        Ok(end)
    }

    /// Truncates the redo to `bytes` bytes.
    pub fn truncate(&mut self, bytes: u64) {
        while self.bytes > bytes {
            let last = self.chunks.last_mut().expect("its bytes are those of its chunks");
            let cut = last.used.min(self.bytes - bytes);
            last.used -= cut;
            self.bytes -= cut;
            if last.used == 0 {
                self.chunks.pop();
            }
        }
    }

    /// Syncs the file.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()?;
        self.spills.disk.sync_directory(&self.spills.directory)
    }

    /// An entry of the log that ends at `needed_to` names the file.
    pub fn keep(mut self, needed_to: Lsn) {
        self.kept = true;
        let (number, epoch) = (self.number, self.spills.epoch());
        self.spills.keep(Kept { number, epoch, needed_to, bytes: self.bytes });
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if !self.kept {
            // A file that cannot be removed now is removed when the database is opened.
            let _ = self.spills.disk.remove(&self.spills.path(self.number));
        }
    }
}

fn path(directory: &Path, number: u64, epoch: Epoch) -> PathBuf {
    directory.join(spill_name(number, epoch))
}

/// The name of a spill file, in the directory of the log. The epoch is that of the group that names it.
pub fn spill_name(number: u64, epoch: Epoch) -> String {
    numbered(number, epoch, SUFFIX)
}

/// The header of a file; epoch 0 has files of version 1.
fn header(number: u64, epoch: Epoch, database: DatabaseId) -> Vec<u8> {
    let is_first = epoch == Epoch(0);
    let (version, length) = if is_first { (FIRST_VERSION, FIRST_HEADER_LEN) } else { (VERSION, HEADER_LEN) };
    let mut bytes = vec![0; length];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..40].copy_from_slice(&database.0);
    if !is_first {
        bytes[40..48].copy_from_slice(&epoch.0.to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads the spill files of a log.
#[derive(Clone, Copy, Debug)]
pub struct SpillReader<'a> {
    /// The disk that they are on.
    pub disk: &'a dyn Disk,
    /// The directory of the log.
    pub directory: &'a Path,
    /// The database whose log it is.
    pub database: DatabaseId,
}

impl SpillReader<'_> {
    /// Reads a file that a group of the log names, by that group's epoch, chunk by chunk, and passes the valid records of each to `sink`.
    ///
    /// Errors: XX001 if the file is missing, of another database, or damaged; those of `sink`.
    pub fn read(
        &self,
        number: u64,
        epoch: Epoch,
        chunks: impl Iterator<Item = Result<Chunk>>,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = path(self.directory, number, epoch);
        let damaged = |what: &str| {
            let message = format!("the file \"{}\", which the log names, {what}", path.display());
            Error::new(SqlState::DATA_CORRUPTED, message)
                .with_hint("Restore the file from a backup of this database.")
        };
        if !self.disk.exists(&path)? {
            return Err(damaged("is missing"));
        }
        let file = self.disk.open_to_read(&path)?;
        let expected = header(number, epoch, self.database);
        let mut found = vec![0; expected.len()];
        if file.read_at(&mut found, 0)? < expected.len() || found != expected {
            return Err(damaged("does not begin as it should"));
        }
        let length = file.len()?;
        let mut bytes = Vec::new();
        for chunk in chunks {
            let Chunk { offset, stored, used, crc } = chunk?;
            if offset.checked_add(stored).is_none_or(|end| end > length) || used > stored {
                return Err(damaged("is too short"));
            }
            bytes.resize(usize::try_from(stored).expect("64-bit addresses"), 0);
            if file.read_at(&mut bytes, offset)? < bytes.len() || crc32c::crc32c(&bytes) != crc {
                return Err(damaged(&format!("is damaged in the {stored} bytes at {offset}")));
            }
            sink(&bytes[..used as usize])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spill_file_begins_with_exactly_these_bytes() {
        let mut expected = b"FIRNSPIL\x02\0\0\0\0\0\0\0".to_vec();
        expected.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xdb; 16]);
        expected.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        let with_crc = |mut bytes: Vec<u8>| {
            let covered: Vec<u8> = [&bytes[..12], &bytes[16..]].concat();
            bytes[12..16].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
            bytes
        };
        let database = DatabaseId([0xdb; 16]);
        assert_eq!(header(7, Epoch(3), database), with_crc(expected.clone()));
        // Of version 1.
        expected.truncate(40);
        expected[8] = 1;
        assert_eq!(header(7, Epoch(0), database), with_crc(expected));
        let directory = Path::new("/log");
        assert_eq!(path(directory, 7, Epoch(3)), Path::new("/log/0000000000000007-00000003.spill"));
        assert_eq!(path(directory, 7, Epoch(0)), Path::new("/log/0000000000000007.spill"));
    }
}
