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
//! header         0        8         12    16       24        40
//!                | magic  | version | crc | number | database |
//! ```
//!
//! A file counts if an entry of the log names it. The file of a transaction that did not commit before a
//! crash is removed when the database is opened. A file whose entry precedes the checkpoint is removed
//! together with that part of the log. The position, length and CRC32C of each chunk are in the log, so a
//! rollback to a savepoint changes no file.

use crate::DatabaseId;
use firn_base::disk::{Disk, DiskFile, PageBuffer};
use firn_base::sync::{Arc, AtomicU64, Mutex, Ordering};
use firn_base::{Error, Lsn, Result, SqlState};
use std::path::{Path, PathBuf};

/// The suffix of the names of spill files, after a number.
const SUFFIX: &str = ".spill";
const MAGIC: [u8; 8] = *b"FIRNSPIL";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 40;
/// The most that one write writes.
const WRITE_BYTES: usize = 1 << 20;

/// The spill files of one log.
#[derive(Debug)]
pub struct Spills {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: DatabaseId,
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
    pub(crate) fn open(disk: Arc<dyn Disk>, directory: &Path, database: DatabaseId) -> Result<Arc<Spills>> {
        let next = numbers(&*disk, directory)?.last().map_or(0, |last| last + 1);
        Ok(Arc::new(Spills {
            disk,
            directory: directory.to_owned(),
            database,
            next: AtomicU64::new(next),
            kept: Mutex::default(),
            kept_bytes: AtomicU64::new(0),
        }))
    }

    /// Keeps the files that the log names and removes the others.
    pub(crate) fn retain(&self, named: Vec<Kept>) -> Result<()> {
        let mut removed = false;
        for number in numbers(&*self.disk, &self.directory)? {
            if !named.iter().any(|kept| kept.number == number) {
                self.disk.remove(&self.path(number))?;
                removed = true;
            }
        }
        named.into_iter().for_each(|kept| self.keep(kept));
        if removed { self.disk.sync_directory(&self.directory) } else { Ok(()) }
    }

    fn keep(&self, kept: Kept) {
        self.kept_bytes.fetch_add(kept.bytes, Ordering::Relaxed);
        self.kept.lock().push(kept);
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
            self.disk.remove(&self.path(kept.number))?;
            self.kept.lock().retain(|other| other.number != kept.number);
        }
        if superfluous.is_empty() { Ok(()) } else { self.disk.sync_directory(&self.directory) }
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.directory, number)
    }

    fn header(&self, number: u64) -> [u8; HEADER_LEN] {
        header(number, self.database)
    }
}

impl Spill {
    pub fn create(spills: &Arc<Spills>) -> Result<Spill> {
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
        spill.end = spill.write(&spills.header(number))?;
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
        self.spills.keep(Kept { number: self.number, needed_to, bytes: self.bytes });
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

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:016x}{SUFFIX}"))
}

fn numbers(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>> {
    let number = |name: &String| u64::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok();
    let mut numbers: Vec<u64> = disk.list(directory)?.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn header(number: u64, database: DatabaseId) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..40].copy_from_slice(&database.0);
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
    /// Reads a file that the log names, chunk by chunk, and passes the valid records of each to `sink`.
    ///
    /// Errors: XX001 if the file is missing, of another database, or damaged; those of `sink`.
    pub fn read(
        &self,
        number: u64,
        chunks: impl Iterator<Item = Result<Chunk>>,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = path(self.directory, number);
        let damaged = |what: &str| {
            let message = format!("the file \"{}\", which the log names, {what}", path.display());
            Error::new(SqlState::DATA_CORRUPTED, message)
                .with_hint("Restore the file from a backup of this database.")
        };
        if !self.disk.exists(&path)? {
            return Err(damaged("is missing"));
        }
        let file = self.disk.open(&path)?;
        let mut found = [0; HEADER_LEN];
        if file.read_at(&mut found, 0)? < HEADER_LEN || found != header(number, self.database) {
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
