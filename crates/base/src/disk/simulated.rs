//! A disk in memory for tests: it can be full, break, and lose power.
//!
//! It keeps two states. *Current* is what the running process reads. *Safe* is what certainly survives a
//! power cut: content as of each file's last `sync`, names as of each directory's last `sync_directory`. A
//! cut may keep any changes in between. Of each directory's unsynced name changes,
//! [`SimulatedDisk::after_power_cut`] keeps a prefix, since file systems journal those in order. Of the
//! unsynced writes it keeps an arbitrary set of 512-byte sectors, one of them torn at a byte. Syncing a file
//! does not sync its name, though some file systems do.

use super::extents::Extents;
use super::{Disk, DiskFile, DiskLock, in_use, io_error};
use crate::Result;
use crate::random::Random;
use crate::sync::{Arc, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECTOR: u64 = 512;

/// How a simulated disk fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// ENOSPC
    Full,
    /// EIO
    Broken,
}

impl Fault {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Fault::Full => libc::ENOSPC,
            Fault::Broken => libc::EIO,
        })
    }
}

/// A disk in memory. Cloning it shares it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, File>,
    names: BTreeMap<PathBuf, u64>,
    safe_names: BTreeMap<PathBuf, u64>,
    directories: BTreeSet<PathBuf>,
    pending_names: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    next_file: u64,
    /// The number of bytes that may still be written, and the fault of the next one.
    bytes_left: Option<(u64, Fault)>,
    /// The number of changes (writes, syncs, name changes) that may still happen, and the fault of the next
    /// one.
    operations_left: Option<(u64, Fault)>,
    /// How many more bytes of files may get space.
    room: Option<u64>,
    operations: u64,
    syncs: u64,
    sync_time: Duration,
}

#[derive(Clone, Debug, Default)]
struct File {
    current: Vec<u8>,
    safe: Vec<u8>,
    pending: Vec<Change>,
    /// The bytes that have space: those that were written or allocated.
    allocated: Extents,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, u64),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn directory(&self) -> &Path {
        let (NameChange::Set(path, _) | NameChange::Remove(path) | NameChange::Rename(path, _)) = self;
        path.parent().unwrap_or(path)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Set(path, file) => {
                names.insert(path.clone(), *file);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write(offset, bytes) => write(content, *offset, bytes),
            Change::Length(length) => content.resize(*length as usize, 0),
        }
    }
}

fn write(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let offset = offset as usize;
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl State {
    /// Counts a change of the disk; fails it if the disk was set to fail.
    fn operate(&mut self, operation: &str, path: &Path) -> Result<()> {
        self.operations += 1;
        match &mut self.operations_left {
            Some((0, fault)) => Err(io_error(operation, path, &fault.error())),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Frees the room of the bytes of a file.
    fn give_back(&mut self, id: u64) {
        self.truncate_space(id, 0);
    }

    /// The bytes of a file after `length` no longer have space.
    fn truncate_space(&mut self, id: u64, length: u64) {
        let bytes =
            self.files.get_mut(&id).expect("files stay while handles live").allocated.truncate(length);
        if let Some(room) = &mut self.room {
            *room += bytes;
        }
    }

    /// The position up to which there is space for the bytes of a file between `from` and `to`; allocates it.
    fn take_room(&mut self, id: u64, from: u64, to: u64) -> u64 {
        let allocated = &mut self.files.get_mut(&id).expect("files stay while handles live").allocated;
        let mut reached = to;
        if let Some(room) = &mut self.room {
            reached = allocated.reach(from, to, *room);
            *room -= allocated.missing(from, reached);
        }
        allocated.add(from, reached);
        reached
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn restarted(&self, files: BTreeMap<u64, File>, names: BTreeMap<PathBuf, u64>) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(State {
            files,
            safe_names: names.clone(),
            names,
            directories: self.directories.clone(),
            next_file: self.next_file,
            ..State::default()
        })))
    }
}

impl SimulatedDisk {
    /// An empty disk, with its root directory.
    pub fn new() -> Arc<SimulatedDisk> {
        let disk = SimulatedDisk::default();
        disk.0.lock().directories.insert("/".into());
        Arc::new(disk)
    }

    /// Lets the next `bytes` bytes be written and fails every later one with `fault`.
    pub fn fail_after_bytes(&self, bytes: u64, fault: Fault) {
        self.0.lock().bytes_left = Some((bytes, fault));
    }

    /// Lets the next `operations` changes happen (writes, syncs, names) and fails every later one with
    /// `fault`.
    pub fn fail_after_operations(&self, operations: u64, fault: Fault) {
        self.0.lock().operations_left = Some((operations, fault));
    }

    /// Leaves space for so many bytes: what needs more meets a full disk, as [`Fault::Full`]. As on real disks, what is
    /// written over or has been allocated needs none, a length without bytes needs none, and a file that is removed
    /// or truncated frees its own.
    pub fn leave_room(&self, bytes: u64) {
        self.0.lock().room = Some(bytes);
    }

    /// Ends the faults.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.bytes_left = None;
        state.operations_left = None;
        state.room = None;
    }

    /// Lets every sync of a file take this long.
    pub fn set_sync_time(&self, time: Duration) {
        self.0.lock().sync_time = time;
    }

    /// The number of changes so far: writes, syncs, names.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// The number of syncs of files.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Another disk with the current state of this one, as after `kill -9` of the process.
    pub fn after_kill(&self) -> Arc<SimulatedDisk> {
        let state = self.0.lock();
        let files = state
            .files
            .iter()
            .map(|(id, file)| {
                let (current, safe) = (file.current.clone(), file.current.clone());
                (*id, File { current, safe, pending: Vec::new(), allocated: file.allocated.clone() })
            })
            .collect();
        Arc::new(state.restarted(files, state.names.clone()))
    }

    /// Another disk with a state that this one might have if power failed now: everything safe and an
    /// arbitrary part of the rest.
    pub fn after_power_cut(&self, random: &mut Random) -> Arc<SimulatedDisk> {
        let state = self.0.lock();
        let mut names = state.safe_names.clone();
        let mut cut = BTreeSet::new();
        for change in &state.pending_names {
            if !cut.contains(change.directory()) {
                if random.uniform(0, 3) == 0 {
                    cut.insert(change.directory());
                } else {
                    change.apply(&mut names);
                }
            }
        }
        let files = state
            .files
            .iter()
            .map(|(id, file)| {
                let mut content = file.safe.clone();
                // Some cuts keep nearly everything and some nearly nothing.
                let keep = random.uniform(0, 4);
                for change in &file.pending {
                    survive(change, keep, random, &mut content);
                }
                let mut allocated = file.allocated.clone();
                allocated.truncate(content.len() as u64);
                (*id, File { current: content.clone(), safe: content, pending: Vec::new(), allocated })
            })
            .collect();
        Arc::new(state.restarted(files, names))
    }
}

/// Applies the part of an unsynced change that survives a power cut: each sector with `keep` chances in 4.
fn survive(change: &Change, keep: i64, random: &mut Random, content: &mut Vec<u8>) {
    match change {
        Change::Length(_) => {
            if random.uniform(0, 3) < keep {
                change.apply(content);
            }
        }
        Change::Write(offset, bytes) => {
            let end = offset + bytes.len() as u64;
            let mut from = *offset;
            while from < end {
                let to = end.min((from / SECTOR + 1) * SECTOR);
                if random.uniform(0, 3) < keep {
                    let torn = if random.uniform(0, 15) == 0 {
                        random.uniform(from as i64, to as i64) as u64
                    } else {
                        to
                    };
                    write(content, from, &bytes[(from - offset) as usize..(torn - offset) as usize]);
                }
                from = to;
            }
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    id: u64,
    path: PathBuf,
    /// Whether a write is followed by a sync at once.
    write_through: bool,
    /// Whether it has no name, and is removed with this handle.
    is_temporary: bool,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if self.is_temporary {
            let mut state = self.disk.0.lock();
            state.give_back(self.id);
            state.files.remove(&self.id);
        }
    }
}

impl SimulatedDisk {
    fn handle(&self, id: u64, path: &Path) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile {
            disk: self.clone(),
            id,
            path: path.to_owned(),
            write_through: false,
            is_temporary: false,
        })
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl Disk for SimulatedDisk {
    fn create_directory(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.operate("create directory", path)?;
        for directory in path.ancestors() {
            state.directories.insert(directory.to_owned());
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.operate("create file", path)?;
        if !path.parent().is_some_and(|parent| state.directories.contains(parent)) {
            return Err(io_error("create file", path, &missing()));
        }
        if let Some(id) = state.names.get(path).copied() {
            state.give_back(id);
            let file = state.files.get_mut(&id).expect("a name has a file");
            file.current.clear();
            file.pending.push(Change::Length(0));
            return Ok(self.handle(id, path));
        }
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, File::default());
        state.change_name(NameChange::Set(path.to_owned(), id));
        Ok(self.handle(id, path))
    }

    fn create_temporary(&self, directory: &Path) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.operate("create a temporary file in", directory)?;
        if !state.directories.contains(directory) {
            return Err(io_error("create a temporary file in", directory, &missing()));
        }
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, File::default());
        let (disk, path) = (self.clone(), directory.to_owned());
        Ok(Arc::new(SimulatedFile { disk, id, path, write_through: false, is_temporary: true }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let state = self.0.lock();
        match state.names.get(path) {
            Some(id) => Ok(self.handle(*id, path)),
            None => Err(io_error("open file", path, &missing())),
        }
    }

    fn open_write_through(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let state = self.0.lock();
        let id = *state.names.get(path).ok_or_else(|| io_error("open file", path, &missing()))?;
        let (disk, path) = (self.clone(), path.to_owned());
        Ok(Arc::new(SimulatedFile { disk, id, path, write_through: true, is_temporary: false }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.0.lock();
        Ok(state.names.contains_key(path) || state.directories.contains(path))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.operate("remove file", path)?;
        let Some(id) = state.names.get(path).copied() else {
            return Err(io_error("remove file", path, &missing()));
        };
        state.give_back(id);
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.operate("rename file", from)?;
        if !state.names.contains_key(from) {
            return Err(io_error("rename file", from, &missing()));
        }
        let is_moved = from.parent() != to.parent();
        // It is durable once the directory is synced from which it is moved: both or neither of the names are there.
        assert!(!is_moved || state.safe_names.contains_key(from), "a name is durable before it is moved");
        if let Some(replaced) = state.names.get(to).copied() {
            state.give_back(replaced);
        }
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let state = self.0.lock();
        if !state.directories.contains(directory) {
            return Err(io_error("list directory", directory, &missing()));
        }
        let files = state.names.keys().chain(&state.directories);
        let mut names: Vec<String> = files
            .filter(|path| path.parent() == Some(directory))
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.operate("remove directory", path)?;
        let is_full = state.names.keys().chain(&state.directories).any(|other| other.parent() == Some(path));
        if is_full {
            return Err(io_error("remove directory", path, &io::ErrorKind::DirectoryNotEmpty.into()));
        }
        if state.directories.remove(path) {
            Ok(())
        } else {
            Err(io_error("remove directory", path, &missing()))
        }
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.operate("sync directory", directory)?;
        let (now, later) =
            std::mem::take(&mut state.pending_names).into_iter().partition(|it| it.directory() == directory);
        state.pending_names = later;
        let now: Vec<NameChange> = now;
        for change in now {
            change.apply(&mut state.safe_names);
        }
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> Result<u64> {
        Ok(self.0.lock().room.unwrap_or(u64::MAX))
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        let mut state = self.0.lock();
        if !state.locks.insert(path.to_owned()) {
            return Err(in_use(path));
        }
        Ok(DiskLock::new(Held { disk: self.clone(), path: path.to_owned() }))
    }
}

struct Held {
    disk: SimulatedDisk,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.0.lock().locks.remove(&self.path);
    }
}

impl SimulatedFile {
    fn with<T>(&self, body: impl FnOnce(&mut File) -> T) -> T {
        body(self.disk.0.lock().files.get_mut(&self.id).expect("files stay while handles live"))
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> Result<u64> {
        Ok(self.with(|file| file.current.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.with(|file| {
            let from = file.current.len().min(offset as usize);
            let length = buffer.len().min(file.current.len() - from);
            buffer[..length].copy_from_slice(&file.current[from..from + length]);
            length
        }))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut state = self.disk.0.lock();
        state.operate("write file", &self.path)?;
        let (length, fault) = match &mut state.bytes_left {
            Some((left, fault)) if *left < bytes.len() as u64 => {
                (std::mem::take(left) as usize, Some(*fault))
            }
            Some((left, _)) => {
                *left -= bytes.len() as u64;
                (bytes.len(), None)
            }
            None => (bytes.len(), None),
        };
        let fits = (state.take_room(self.id, offset, offset + length as u64) - offset) as usize;
        let (length, fault) = if fits < length { (fits, Some(Fault::Full)) } else { (length, fault) };
        let file = state.files.get_mut(&self.id).expect("files stay while handles live");
        let change = Change::Write(offset, bytes[..length].to_owned());
        change.apply(&mut file.current);
        file.pending.push(change);
        drop(state);
        match fault {
            Some(fault) => Err(io_error("write file", &self.path, &fault.error())),
            None if self.write_through => self.sync(),
            None => Ok(()),
        }
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let mut state = self.disk.0.lock();
        state.operate("set the length of", &self.path)?;
        state.truncate_space(self.id, length);
        let file = state.files.get_mut(&self.id).expect("files stay while handles live");
        Change::Length(length).apply(&mut file.current);
        file.pending.push(Change::Length(length));
        Ok(())
    }

    fn allocate(&self, length: u64) -> Result<()> {
        let mut state = self.disk.0.lock();
        state.operate("allocate space for", &self.path)?;
        if state.take_room(self.id, 0, length) < length {
            return Err(io_error("allocate space for", &self.path, &Fault::Full.error()));
        }
        let file = state.files.get_mut(&self.id).expect("files stay while handles live");
        if (file.current.len() as u64) < length {
            Change::Length(length).apply(&mut file.current);
            file.pending.push(Change::Length(length));
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let time = self.disk.0.lock().sync_time;
        if !time.is_zero() {
            crate::clock::sleep(time);
        }
        let mut state = self.disk.0.lock();
        state.operate("sync file", &self.path)?;
        state.syncs += 1;
        let file = state.files.get_mut(&self.id).expect("files stay while handles live");
        for change in std::mem::take(&mut file.pending) {
            change.apply(&mut file.safe);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqlState;

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_may_lose_the_rest() {
        let root = Path::new("/d");
        let (mut lost, mut kept, mut torn) = (false, false, false);
        for seed in 0..200 {
            let disk = SimulatedDisk::new();
            disk.create_directory(root).unwrap();
            let file = disk.create(&root.join("a")).unwrap();
            disk.sync_directory(root).unwrap();
            file.write_at(&[1; 2000], 0).unwrap();
            file.sync().unwrap();
            file.write_at(&[2; 2000], 1000).unwrap();
            disk.create(&root.join("b")).unwrap();
            let after = disk.after_power_cut(&mut Random::seeded(seed));
            let content = (&*after as &dyn Disk).read(&root.join("a")).unwrap();
            assert!(content[..1000].iter().all(|byte| *byte == 1), "seed {seed}");
            assert!(content.len() >= 2000);
            let twos = content.iter().filter(|byte| **byte == 2).count();
            (lost, kept, torn) = (lost || twos == 0, kept || twos == 2000, torn || (1..2000).contains(&twos));
            lost |= !after.exists(&root.join("b")).unwrap();
        }
        assert!(lost && kept && torn);
    }

    #[test]
    fn what_was_written_through_survives_a_power_cut() {
        let root = Path::new("/d");
        let disk = SimulatedDisk::new();
        disk.create_directory(root).unwrap();
        disk.create(&root.join("a")).unwrap();
        disk.sync_directory(root).unwrap();
        disk.open_write_through(&root.join("a")).unwrap().write_at(&[1; 2000], 0).unwrap();
        for seed in 0..20 {
            let after = disk.after_power_cut(&mut Random::seeded(seed));
            assert_eq!((&*after as &dyn Disk).read(&root.join("a")).unwrap(), [1; 2000], "seed {seed}");
        }
    }

    #[test]
    fn a_full_disk_takes_the_bytes_that_fit() {
        let root = Path::new("/d");
        let disk = SimulatedDisk::new();
        disk.create_directory(root).unwrap();
        let file = disk.create(&root.join("a")).unwrap();
        disk.fail_after_bytes(5, Fault::Full);
        file.write_at(b"abc", 0).unwrap();
        assert_eq!(file.write_at(b"defg", 3).unwrap_err().state(), SqlState::DISK_FULL);
        assert_eq!(file.len().unwrap(), 5);
        disk.heal();
        file.write_at(b"f", 5).unwrap();
        disk.fail_after_operations(1, Fault::Broken);
        file.write_at(b"g", 6).unwrap();
        assert_eq!(file.sync().unwrap_err().state(), SqlState::IO_ERROR);
    }

    #[test]
    fn files_grow_only_where_there_is_room() {
        let root = Path::new("/d");
        let disk = SimulatedDisk::new();
        disk.create_directory(root).unwrap();
        let file = disk.create(&root.join("a")).unwrap();
        file.write_at(b"abcd", 0).unwrap();
        disk.leave_room(2);
        assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 2);
        file.write_at(b"ABCD", 0).unwrap();
        file.write_at(b"DE", 3).unwrap();
        assert_eq!(file.write_at(b"EFG", 4).unwrap_err().state(), SqlState::DISK_FULL);
        assert_eq!((&*disk as &dyn Disk).read(&root.join("a")).unwrap(), b"ABCDEF");
        file.write_at(b"e", 4).unwrap();
        let other = disk.create(&root.join("b")).unwrap();
        assert_eq!(other.write_at(b"x", 0).unwrap_err().state(), SqlState::DISK_FULL);
        disk.remove(&root.join("a")).unwrap();
        other.write_at(b"xyz", 0).unwrap();
        disk.heal();
        other.write_at(&[1; 100], 3).unwrap();
    }

    #[test]
    fn only_what_was_allocated_or_written_can_be_written_on_a_full_disk() {
        let root = Path::new("/d");
        let disk = SimulatedDisk::new();
        disk.create_directory(root).unwrap();
        let file = disk.create(&root.join("a")).unwrap();
        file.write_at(b"abcd", 0).unwrap();
        disk.leave_room(10);
        file.set_len(100).unwrap();
        file.allocate(10).unwrap();
        assert_eq!(file.len().unwrap(), 100);
        file.write_at(b"0123456789", 0).unwrap();
        let error = file.allocate(100).unwrap_err();
        assert_eq!(error.state(), SqlState::DISK_FULL);
        assert!(error.hint().is_some() && error.message().contains("allocate space for"), "{error:?}");
        // What was there of space has gone to the file meanwhile.
        assert_eq!(file.write_at(b"x", 90).unwrap_err().state(), SqlState::DISK_FULL);
        file.write_at(b"wxyz", 10).unwrap();
        file.set_len(4).unwrap();
        let other = disk.create(&root.join("b")).unwrap();
        other.allocate(10).unwrap();
        assert_eq!(other.len().unwrap(), 10);
        assert_eq!(other.allocate(11).unwrap_err().state(), SqlState::DISK_FULL);
        assert_eq!((&*disk as &dyn Disk).read(&root.join("a")).unwrap(), b"0123");
    }
}
