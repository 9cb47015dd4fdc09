//! Access to files: the log, checkpoints and everything else on disk uses [`Disk`], so that tests can
//! simulate errors, a full disk and power failures ([`SimulatedDisk`]).
//!
//! The guarantees are those of a POSIX file system, no stronger. Bytes are durable once [`DiskFile::sync`]
//! has returned, or a write through [`Disk::open_write_through`]. A new, renamed or removed *name* is durable
//! once [`Disk::sync_directory`] has returned. Every failure is an [`Error`] that names the file and the
//! operation: a full disk is 53100, a missing file 58P01, a refused one 42501, a directory in use 55006, the
//! rest 58030.

mod direct;
mod extents;
mod simulated;

pub use direct::{PAGE_BYTES, PageBuffer};
pub use simulated::{Fault, SimulatedDisk};

use crate::sync::Arc;
use crate::{Error, Result, SqlState};
use std::ffi::CString;
use std::fmt::Debug;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of what the files of a disk are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Of blocks, which are written in place. A file has its name from its creation on.
    Blocks,
    /// Of objects in a store behind a network, each of which is written as a whole. A file has its name, and what was written, from
    /// its first [`DiskFile::sync`] on. Bytes that have been synced are not written over. A request takes milliseconds, and may cost
    /// money.
    Objects,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Of what its files are made.
    fn medium(&self) -> Medium {
        Medium::Blocks
    }

    /// Creates a directory and its parents, unless they exist.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// Creates an empty file for reading and writing; an existing one is emptied.
    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>>;

    /// Creates a file as [`Disk::create`] does, for bytes that should not be cached: writes of whole pages
    /// from a [`PageBuffer`] bypass the operating system's cache, if the file system supports it.
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.create(path)
    }

    /// Creates an empty file without a name in a directory. It cannot be opened again, and is removed with
    /// its last handle, or with the process.
    fn create_temporary(&self, directory: &Path) -> Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading only: it may be on a file system that is read-only.
    fn open_to_read(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    /// Opens an existing file as [`Disk::open_to_read`] does, for large reads. Commits on the same disk should not wait for them: reads
    /// into a [`PageBuffer`] bypass the operating system's cache, if the file system supports it, and nothing is read ahead.
    fn open_direct_to_read(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.open_to_read(path)
    }

    /// Opens an existing file in which bytes are durable once [`DiskFile::write_at`] has returned: a write
    /// and a sync in one step, at a lower cost than both.
    fn open_write_through(&self, path: &Path) -> Result<Arc<dyn DiskFile>>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file atomically, replacing a file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a directory, which is empty.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// The names of the files and directories directly in a directory, sorted.
    fn list(&self, directory: &Path) -> Result<Vec<String>>;

    /// Makes the names in a directory durable: what was created, renamed or removed there.
    fn sync_directory(&self, directory: &Path) -> Result<()>;

    /// How many more bytes may be allocated to files of a directory; more than there are if that is unknown, as with quotas.
    fn free_bytes(&self, directory: &Path) -> Result<u64>;

    /// Takes the exclusive lock on a file, creating it if it does not exist, until the guard is dropped or
    /// the process ends. Error: 55006 if another holder has it.
    fn lock(&self, path: &Path) -> Result<DiskLock>;
}

/// An open file. Methods may be called from several threads at once.
pub trait DiskFile: Send + Sync + Debug {
    /// Its length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether it is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns how many bytes it read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file if needed. After an error of a file opened to
    /// write through, it is unknown which bytes are durable, as after one of `sync`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// As [`write_at`](DiskFile::write_at), for adjacent bytes that are in several buffers: in one call if
    /// the file supports it.
    fn write_parts_at(&self, parts: &mut [IoSlice<'_>], mut offset: u64) -> Result<()> {
        for part in parts {
            self.write_at(part, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Truncates the file or extends it with zeros.
    fn set_len(&self, length: u64) -> Result<()>;

    /// Makes the file at least `length` bytes long, by zeros, and reserves the space for these bytes on the disk: a later
    /// write there does not fail because the disk is full. What has been written stays. After an error the file may
    /// have got part of the space.
    fn allocate(&self, length: u64) -> Result<()>;

    /// Makes the file's bytes and length durable.
    ///
    /// After an error it is unknown which bytes are durable, and a later success does not imply that they
    /// are: never call it again and continue as if there had been no error.
    fn sync(&self) -> Result<()>;
}

/// A held lock; dropping it releases the lock.
pub struct DiskLock(#[expect(dead_code, reason = "it is held only to be dropped")] Box<dyn Send + Sync>);

impl DiskLock {
    /// A lock that `guard` releases when it is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> DiskLock {
        DiskLock(Box::new(guard))
    }
}

impl Debug for DiskLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskLock")
    }
}

impl dyn Disk + '_ {
    /// The whole content of a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.open_to_read(path)?;
        let length = usize::try_from(file.len()?).expect("64-bit addresses");
        let mut bytes = vec![0; length];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Replaces a file by one with this content, atomically with respect to a crash: writes a temporary file,
    /// syncs, renames, and syncs the directory. `temporary` is the name of the temporary file.
    pub fn replace(&self, path: &Path, temporary: &Path, content: &[u8]) -> Result<()> {
        let working = self.working_name(path, temporary);
        let file = self.create(working)?;
        file.write_at(content, 0)?;
        file.sync()?;
        self.publish(working, path)?;
        self.sync_directory(path.parent().expect("a file has a parent directory"))
    }

    /// The name under which a file is written that must not be seen as `path` before it is complete: `temporary`, or `path` itself on a
    /// disk where a file appears with its first sync.
    pub fn working_name<'p>(&self, path: &'p Path, temporary: &'p Path) -> &'p Path {
        match self.medium() {
            Medium::Blocks => temporary,
            Medium::Objects => path,
        }
    }

    /// Gives a file, which was synced under its [working name](Self::working_name), its name.
    pub fn publish(&self, working: &Path, path: &Path) -> Result<()> {
        if working == path { Ok(()) } else { self.rename(working, path) }
    }
}

/// The error of a failed operation on a file.
#[cold]
pub fn io_error(operation: &str, path: &Path, error: &io::Error) -> Error {
    let state = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlState::DISK_FULL,
        io::ErrorKind::NotFound => SqlState::UNDEFINED_FILE,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            SqlState::INSUFFICIENT_PRIVILEGE
        }
        _ => SqlState::IO_ERROR,
    };
    let message = format!("could not {operation} \"{}\": {error}", path.display());
    let result = Error::new(state, message);
    match state {
        SqlState::DISK_FULL => {
            result.with_hint("Free space on the disk that holds the file, then try again.")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            result.with_hint("Give the user that the database runs as the right to this file.")
        }
        _ => result,
    }
}

#[cold]
fn in_use(path: &Path) -> Error {
    let directory = path.parent().unwrap_or(path);
    Error::new(
        SqlState::OBJECT_IN_USE,
        format!("the database in \"{}\" is already open elsewhere", directory.display()),
    )
    .with_hint("Close the other process or handle that has it open, or connect to that server instead.")
}

/// The rights to a new file: only the user of this process may read and write it.
const FILE_MODE: u32 = 0o600;
/// The rights to a new directory.
const DIRECTORY_MODE: u32 = 0o700;

/// The operating system's files. Only the user of this process may read what it creates.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    path: PathBuf,
}

impl RealFile {
    fn handle(file: fs::File, path: &Path) -> Arc<dyn DiskFile> {
        Arc::new(RealFile { file, path: path.to_owned() })
    }
}

impl Disk for RealDisk {
    fn create_directory(&self, path: &Path) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
        made.map_err(|error| io_error("create directory", path, &error))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let mut options = fs::OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path);
        opened.map(|file| RealFile::handle(file, path)).map_err(|error| io_error("create file", path, &error))
    }

    fn create_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        direct::create(path)
    }

    fn create_temporary(&self, directory: &Path) -> Result<Arc<dyn DiskFile>> {
        let created = tempfile::tempfile_in(directory);
        let handle = created.map(|file| RealFile::handle(file, directory));
        handle.map_err(|error| io_error("create a temporary file in", directory, &error))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let opened = fs::OpenOptions::new().read(true).write(true).open(path);
        opened.map(|file| RealFile::handle(file, path)).map_err(|error| io_error("open file", path, &error))
    }

    fn open_direct_to_read(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        direct::open_to_read(path)
    }

    fn open_to_read(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let opened = fs::File::open(path);
        opened.map(|file| RealFile::handle(file, path)).map_err(|error| io_error("open file", path, &error))
    }

    fn open_write_through(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let opened = fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DSYNC).open(path);
        opened.map(|file| RealFile::handle(file, path)).map_err(|error| io_error("open file", path, &error))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|error| io_error("look for", path, &error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| io_error("remove file", path, &error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| io_error("rename file", from, &error))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| io_error("remove directory", path, &error))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let entries = fs::read_dir(directory)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
                    .collect::<io::Result<Vec<String>>>()
            })
            .map_err(|error| io_error("list directory", directory, &error));
        entries.map(|mut names| {
            names.sort();
            names
        })
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        fs::File::open(directory)
            .and_then(|opened| opened.sync_all())
            .map_err(|error| io_error("sync directory", directory, &error))
    }

    fn free_bytes(&self, directory: &Path) -> Result<u64> {
        // Miri does not know the call.
        if cfg!(miri) {
            return Ok(u64::MAX);
        }
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(io::Error::from);
        let path = path.map_err(|error| io_error("read the free space of", directory, &error))?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the string ends with a zero, and both live until the call returns.
        if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io_error("read the free space of", directory, &io::Error::last_os_error()));
        }
        // SAFETY: the call has succeeded, so it has filled the structure.
        let found = unsafe { found.assume_init() };
        // Some file systems report no sizes at all.
        let is_known = found.f_blocks > 0;
        Ok(if is_known { found.f_bavail.saturating_mul(found.f_frsize) } else { u64::MAX })
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)
            .map_err(|error| io_error("open lock file", path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(DiskLock::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(in_use(path)),
            Err(fs::TryLockError::Error(error)) => Err(io_error("lock file", path, &error)),
        }
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> Result<u64> {
        self.file
            .metadata()
            .map(|metadata| metadata.len())
            .map_err(|error| io_error("read the length of", &self.path, &error))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error("read file", &self.path, &error)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| io_error("write file", &self.path, &error))
    }

    // Miri does not support the call.
    #[cfg(not(miri))]
    fn write_parts_at(&self, mut parts: &mut [IoSlice<'_>], mut offset: u64) -> Result<()> {
        // The largest number of parts of a call (IOV_MAX).
        const MOST_PARTS: usize = 1024;
        // Empty parts at the front would look like a disk that accepts no bytes.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let count = parts.len().min(MOST_PARTS) as libc::c_int;
            // SAFETY: an `IoSlice` is an `iovec` by its documentation, there are `count` of them, and the
            // bytes that they borrow live until the call returns.
            let written = unsafe {
                libc::pwritev(self.file.as_raw_fd(), parts.as_ptr().cast(), count, offset as libc::off_t)
            };
            let error = match written {
                0 => io::ErrorKind::WriteZero.into(),
                1.. => {
                    IoSlice::advance_slices(&mut parts, written as usize);
                    offset += written as u64;
                    continue;
                }
                _ => io::Error::last_os_error(),
            };
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(io_error("write file", &self.path, &error));
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(|error| io_error("set the length of", &self.path, &error))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        let failed = |error| Err(io_error("allocate space for", &self.path, &error));
        // Miri does not know the call.
        while !cfg!(miri) {
            // SAFETY: the call takes no address.
            let allocated = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, length as libc::off_t) };
            let error = match allocated {
                0 => return Ok(()),
                _ => io::Error::last_os_error(),
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => break,
                _ => return failed(error),
            }
        }
        // A file system without the call, where only what is written is allocated. The file is taken to have no holes.
        let zeros = vec![0; 1 << 20];
        let mut at = self.len()?;
        while at < length {
            let step = (length - at).min(zeros.len() as u64);
            self.write_at(&zeros[..step as usize], at)?;
            at += step;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| io_error("sync file", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("firn-disk-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// The common behaviour of all disks; tested on the real one and the simulated one.
    fn behaves(disk: &dyn Disk, root: &Path) {
        let inner = root.join("a/b");
        disk.create_directory(&inner).unwrap();
        disk.create_directory(&inner).unwrap();
        let path = inner.join("file");
        let missing = disk.open(&path).unwrap_err();
        assert_eq!(missing.state(), SqlState::UNDEFINED_FILE);
        assert!(missing.message().contains("file"), "{missing:?}");
        let file = disk.create(&path).unwrap();
        file.write_at(b"hello world", 0).unwrap();
        file.write_at(b"W", 6).unwrap();
        let parts = ["", "b", "", "rave", ""].map(|part| IoSlice::new(part.as_bytes()));
        file.write_parts_at(&mut parts.clone(), 20).unwrap();
        file.write_parts_at(&mut [], 90).unwrap();
        let mut brave = [1; 7];
        assert_eq!(file.read_at(&mut brave, 18).unwrap(), 7);
        assert_eq!(&brave, b"\0\0brave");
        file.set_len(11).unwrap();
        file.set_len(16).unwrap();
        file.allocate(12).unwrap();
        file.sync().unwrap();
        let mut buffer = [9; 20];
        assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 12);
        assert_eq!(&buffer[..12], b"o World\0\0\0\0\0");
        assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 0);
        let other = inner.join("other");
        disk.rename(&path, &other).unwrap();
        disk.sync_directory(&inner).unwrap();
        assert!(!disk.exists(&path).unwrap() && disk.exists(&other).unwrap());
        assert_eq!(disk.list(&inner).unwrap(), ["other"]);
        assert_eq!(disk.open(&other).unwrap().len().unwrap(), 16);
        let through = disk.open_write_through(&other).unwrap();
        through.write_at(b"H", 0).unwrap();
        assert_eq!(through.read_at(&mut buffer[..5], 0).unwrap(), 5);
        assert_eq!(&buffer[..5], b"Hello");
        assert_eq!(disk.open_write_through(&path).unwrap_err().state(), SqlState::UNDEFINED_FILE);
        disk.replace(&other, &inner.join("temporary"), b"new").unwrap();
        assert_eq!(disk.read(&other).unwrap(), b"new");
        assert_eq!(disk.list(&inner).unwrap(), ["other"]);
        let held = disk.lock(&root.join("LOCK")).unwrap();
        assert_eq!(disk.lock(&root.join("LOCK")).unwrap_err().state(), SqlState::OBJECT_IN_USE);
        drop(held);
        drop(disk.lock(&root.join("LOCK")).unwrap());
        let allocated = disk.open(&other).unwrap();
        allocated.allocate(9000).unwrap();
        assert_eq!(allocated.len().unwrap(), 9000);
        assert_eq!(allocated.read_at(&mut buffer, 0).unwrap(), 20);
        assert_eq!(&buffer[..5], b"new\0\0");
        disk.remove(&other).unwrap();
        let temporary = disk.create_temporary(&inner).unwrap();
        temporary.write_at(b"rows", 0).unwrap();
        assert!(disk.list(&inner).unwrap().is_empty(), "the file has no name");
        assert_eq!(temporary.read_at(&mut buffer, 0).unwrap(), 4);
        let nowhere = disk.create_temporary(&root.join("nowhere"));
        assert_eq!(nowhere.unwrap_err().state(), SqlState::UNDEFINED_FILE);
        assert_eq!(disk.remove(&other).unwrap_err().state(), SqlState::UNDEFINED_FILE);
        assert_eq!(disk.list(&root.join("nowhere")).unwrap_err().state(), SqlState::UNDEFINED_FILE);
        assert!(disk.free_bytes(&inner).unwrap() > 0);
        assert_eq!(disk.list(&root.join("a")).unwrap(), ["b"]);
        assert!(disk.remove_directory(&root.join("a")).is_err(), "it is not empty");
        disk.remove_directory(&inner).unwrap();
        assert!(disk.list(&root.join("a")).unwrap().is_empty());
    }

    #[test]
    fn the_real_and_the_simulated_disk_behave_alike() {
        let directory = Directory::new("alike");
        behaves(&RealDisk, &directory.0);
        behaves(&*SimulatedDisk::new(), Path::new("/sim"));
    }

    #[test]
    fn an_error_says_what_it_means_and_what_to_do() {
        let full = io_error("write file", Path::new("x"), &io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(full.state(), SqlState::DISK_FULL);
        assert!(full.hint().is_some() && full.message().contains("write file \"x\""));
        let refused = io_error("open file", Path::new("x"), &io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(refused.state(), SqlState::INSUFFICIENT_PRIVILEGE);
        let broken = io_error("sync file", Path::new("x"), &io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(broken.state(), SqlState::IO_ERROR);
    }
}
