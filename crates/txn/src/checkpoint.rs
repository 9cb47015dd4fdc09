//! Checkpoints: the committed state in files, so that the log before it can be removed.
//!
//! ```text
//!  1  cut       in the commit section: take a snapshot and the log position that belongs to it
//!  2  write     every table that has changed since the last checkpoint, with running
//!               transactions, each block with a snapshot of its own; blocks that have been
//!               cold since they were written keep their files
//!  3  wait      until the log is durable up to the newest commit that a block may include
//!  4  switch    replace the manifest: from here on the new checkpoint counts
//!  5  clean up  remove the files that only the old one refers to, and the log before the position
//! ```
//! A crash at any time leaves a complete checkpoint: before 4 the old one, its files and its log unchanged;
//! after 4 the new one, and leftovers that opening removes.
//!
//! Invariant of the cut: every commit later than the snapshot has its redo behind the position. (Some earlier
//! ones may have theirs there too; recovery skips them by their times.) Sequences are independent of commit
//! times: their states are read after the cut, and everything that is logged later is behind the position as
//! well. The position of a replica is the beginning of the group that is being replayed.
//!
//! Invariant of the times: those of a checkpoint are times of entries of the log. Servers with the same log have the same clock when they
//! are opened, whichever checkpoints they have: a replica replays what is later than its clock.
//!
//! Invariant of the rows: a block includes everything up to the cut, and of later commits what existed when
//! it was read. Their redo is behind the position, so recovery applies it again, and a row ends with the last
//! change. With one snapshot for the whole checkpoint, transactions would become as slow as with any query
//! that runs for seconds (docs/decisions/0039-checkpoints-read-block-by-block.md).

use crate::active::ActiveSlot;
use crate::catalog::{Catalog, IdMarks, TableDef};
use crate::copying::{DatabaseFile, Folders};
use crate::engine::Engine;
use crate::isolation::Isolation;
use crate::loads::{LoadedFile, Loads};
use crate::manifest::{ClusterId, FileBlock, Manifest, SequenceEntry, TableFile, checkpoint_directory};
use crate::role::Replica;
use crate::table_file::{self, Content};
use firn_base::disk::{Disk, DiskFile, DiskLock};
use firn_base::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, Weak};
use firn_base::thread::{self, Behind, JoinHandle};
use firn_base::{BlockNumber, ColumnId, Lsn, Result, Snapshot, SqlState, Stamp, TableId, Time, clock};
use firn_log::faults::Fault;
use firn_log::{DatabaseId, Log, LogPoint, Pin, Released};
use firn_storage::{Cold, ScanBatch, Table, pin};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After a failed checkpoint the next one is tried when the log has grown by this fraction of the size that
/// triggers a checkpoint.
const RETRY_PART: u64 = 8;

/// While the disk is full, a checkpoint to free space of the log is tried again after so long.
const RETRY_FOR_SPACE: Duration = Duration::from_secs(10);

/// A checkpoint that runs with transactions uses this fraction of the threads.
const THREADS_PART: usize = 4;

/// A file of a table ends at this many bytes, so that several threads can write and load one table. Tiny in
/// tests, where splitting should be common.
pub(crate) const SPLIT_BYTES: u64 = if cfg!(debug_assertions) { 64 << 10 } else { 32 << 20 };

/// A file of cold blocks is kept only if at least one row in this many counts; otherwise these rows are
/// written again.
const LEAST_PART: u64 = 2;

/// The largest number of small files that a table may keep.
const MOST_SMALL_FILES: usize = 8;
const SMALL_BYTES: u64 = SPLIT_BYTES / 2;

/// The directory of an open database.
#[derive(Debug)]
pub(crate) struct Store {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
    /// Excludes other processes.
    _lock: DiskLock,
    /// Locked while a checkpoint is written.
    newest: Mutex<Newest>,
    /// The manifest in the directory. Its files are removed only after another one is here, so a pin that names them
    /// under this lock keeps them.
    current: Mutex<Arc<Manifest>>,
    loads: Loads,
    /// Bytes of redo ([`Log::bytes_at`]) and of loads' files at the last checkpoint: those since then trigger
    /// the next one.
    counted_from: AtomicU64,
    worker: Mutex<Option<JoinHandle<()>>>,
    /// When a checkpoint was last begun because the disk lacked space.
    tried_for_space: Mutex<Option<clock::Instant>>,
}

#[derive(Debug)]
struct Newest {
    manifest: Manifest,
    /// Whether it is the one in the directory: it need not be after a failed attempt to replace it.
    is_certain: bool,
    /// Checkpoints begun, including failed ones. The number of a file is never reused, because after an error
    /// it is unknown which manifest counts.
    begun: u64,
    /// Tables that recovery has changed since the checkpoint, which their gates do not show.
    replayed: HashSet<TableId>,
    /// For each block that counts in a file of cold blocks: its generation when it was written.
    generations: Generations,
}

type Generations = HashMap<(TableId, BlockNumber), u64>;

/// A checkpoint that is retained with the log after it. Dropping it ends that.
#[derive(Debug)]
pub struct PinnedCheckpoint {
    manifest: Arc<Manifest>,
    pin: Pin,
}

impl PinnedCheckpoint {
    /// The bytes of its manifest. A copy does not say whom the database follows, nor with which password.
    pub fn manifest(&self) -> Vec<u8> {
        let manifest = (*self.manifest).clone();
        Manifest { follows: None, handed_over_at: None, follow_option: None, voter: None, ..manifest }
            .encode()
    }

    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = DatabaseFile> {
        self.manifest.files.iter().map(DatabaseFile::of_table)
    }

    /// The place in the log's history from which on the log belongs to it.
    pub fn point(&self) -> LogPoint {
        self.manifest.point()
    }

    /// The position up to which the log belongs to it: its rows may include commits up to there.
    pub fn needed(&self) -> Lsn {
        Lsn(self.manifest.needed)
    }

    /// Its claim, which the holder moves ahead.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }
}

/// The database at one time.
struct Cut<'e> {
    /// Reads with the snapshot until the plan is complete.
    reader: Reader<'e>,
    snapshot: Snapshot,
    /// The newest commit that it sees.
    time: Time,
    position: Lsn,
    /// Bytes of redo up to there, and of loads' files.
    redo_bytes: u64,
    catalog: Arc<Catalog>,
    marks: IdMarks,
    tables: Vec<CutTable>,
}

struct CutTable {
    definition: Arc<TableDef>,
    table: Arc<Table>,
    /// Whether its content is that of the last checkpoint.
    unchanged: bool,
}

/// The plan for a table that has changed.
struct Plan {
    /// Files of cold blocks that are kept, with the blocks that still count.
    kept: Vec<TableFile>,
    /// Blocks that are cold now and in none of these files, grouped into files.
    cold: Vec<Vec<ColdBlock>>,
    /// The other blocks, and their number of bytes.
    rest: Vec<BlockNumber>,
    rest_bytes: u64,
}

/// A block that is cold, with its generation.
struct ColdBlock {
    number: BlockNumber,
    generation: u64,
}

impl Plan {
    /// The plan for a table with these files. The caller holds a snapshot at least as old as that of the
    /// checkpoint. Blocks that are cold now may have been filled since then; they are treated like others.
    fn new<'f>(table: &Table, files: impl Iterator<Item = &'f TableFile>, generations: &Generations) -> Plan {
        let (mut cold, mut rest, mut rest_bytes) = (HashMap::new(), Vec::new(), 0);
        for block in table.contents() {
            if let Some(known) = block.cold {
                cold.insert(block.number, (known, block.bytes));
            } else {
                rest.push(block.number);
                rest_bytes += block.bytes;
            }
        }
        let is_same = |block: &FileBlock| {
            let number = BlockNumber(block.0);
            cold.get(&number).is_some_and(|(now, _)| {
                now.rows == block.1 && generations.get(&(table.id(), number)) == Some(&now.generation)
            })
        };
        // A file of compact blocks has fewer bytes than its blocks, whose sizes determine the groups.
        let is_small = |file: &TableFile| {
            let blocks = file.blocks.iter().flatten().map(|block| cold[&BlockNumber(block.0)].1);
            blocks.sum::<u64>() < SMALL_BYTES
        };
        let mut kept = Vec::new();
        for file in files {
            let Some(blocks) = &file.blocks else { continue };
            let same: Vec<FileBlock> = blocks.iter().copied().filter(is_same).collect();
            let rows: u64 = same.iter().map(|block| u64::from(block.1)).sum();
            if rows > 0 && rows * LEAST_PART >= file.rows {
                kept.push(TableFile { blocks: Some(same), ..file.clone() });
            }
        }
        if kept.iter().filter(|file| is_small(file)).count() > MOST_SMALL_FILES {
            kept.retain(|file| !is_small(file));
        }
        for block in kept.iter().flat_map(|file| file.blocks.iter().flatten()) {
            cold.remove(&BlockNumber(block.0));
        }
        Plan { kept, cold: grouped(cold), rest, rest_bytes }
    }
}

/// Groups blocks in their order into files.
fn grouped(blocks: HashMap<BlockNumber, (Cold, u64)>) -> Vec<Vec<ColdBlock>> {
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    blocks.sort_by_key(|(number, _)| number.0);
    let mut groups: Vec<Vec<ColdBlock>> = Vec::new();
    let mut bytes = SPLIT_BYTES;
    for (number, (cold, more)) in blocks {
        if bytes >= SPLIT_BYTES {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        groups.last_mut().expect("just begun").push(ColdBlock { number, generation: cold.generation });
    }
    groups
}

/// The columns of a table, dropped ones included.
pub(crate) fn all_columns(table: &Table) -> Vec<ColumnId> {
    (0..table.columns().len()).map(|position| ColumnId(position as u16)).collect()
}

/// The content of one file of a table.
struct Part<'c> {
    table: &'c CutTable,
    /// Cold blocks are written as wholes; of other blocks, those that the files before it leave.
    blocks: Arc<Blocks>,
    cold: Vec<ColdBlock>,
    number: usize,
    most_bytes: u64,
}

impl<'c> Part<'c> {
    /// The parts of a table, except what is kept.
    fn of(table: &'c CutTable, plan: Plan) -> Vec<Part<'c>> {
        let blocks = |numbers| Arc::new(Blocks { numbers, next: AtomicUsize::new(0) });
        let cold = plan.cold.into_iter().map(|cold| {
            let blocks = blocks(cold.iter().map(|block| block.number).collect());
            Part { table, blocks, cold, number: 0, most_bytes: u64::MAX }
        });
        let last = usize::try_from(plan.rest_bytes / SPLIT_BYTES).expect("the size fits into memory");
        let rest = blocks(plan.rest);
        let rest = (0..=last).map(|number| {
            // The number of parts is an estimate; the last part takes the remainder.
            let most_bytes = if number == last { u64::MAX } else { SPLIT_BYTES };
            Part { table, blocks: rest.clone(), cold: Vec::new(), number: 0, most_bytes }
        });
        let mut parts: Vec<Part<'_>> = cold.chain(rest).collect();
        parts.iter_mut().enumerate().for_each(|(number, part)| part.number = number);
        parts
    }

    /// Writes the file, if a row is left for it.
    fn write(
        &self,
        engine: &Engine,
        disk: &dyn Disk,
        directory: &Path,
        name: String,
    ) -> Result<Option<TableFile>> {
        let reader = Reader::enter(engine)?.0;
        reader.rest();
        let all = all_columns(&self.table.table);
        let read = |number| {
            let scan = self.table.table.scan(reader.now(), &all, true).of_blocks(vec![number]);
            let batches: Vec<ScanBatch> = std::iter::from_fn(|| scan.next_batch(&pin())).collect();
            reader.rest();
            batches
        };
        let more = || Ok(self.blocks.take().map(read).find(|batches| !batches.is_empty()));
        let content = Content { more: &more, most_bytes: self.most_bytes, by_block: !self.cold.is_empty() };
        let columns = column_names(&self.table.definition);
        table_file::write(disk, directory, name, &self.table.table, &columns, &content)
    }
}

/// Blocks of a table. Several threads may write them to several files.
struct Blocks {
    numbers: Vec<BlockNumber>,
    next: AtomicUsize,
}

impl Blocks {
    /// The blocks that no thread has taken yet, one after another.
    fn take(&self) -> impl Iterator<Item = BlockNumber> {
        // ORDERING: only the number itself matters.
        std::iter::from_fn(|| self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed)).copied())
    }
}

/// A reader of the committed state, with a snapshot or, between two snapshots, without one.
struct Reader<'e> {
    engine: &'e Engine,
    slot: ActiveSlot,
    owner: Stamp,
}

impl<'e> Reader<'e> {
    /// Begins with a snapshot.
    fn enter(engine: &'e Engine) -> Result<(Reader<'e>, Snapshot)> {
        let (slot, snapshot) = engine.enter(Isolation::Snapshot)?;
        Ok((Reader { engine, slot, owner: snapshot.owner }, snapshot))
    }

    /// Releases its snapshot.
    fn rest(&self) {
        self.engine.active().release_snapshot(&self.slot);
    }

    /// Takes a new one.
    fn now(&self) -> Snapshot {
        let read_time = self.engine.active().acquire_snapshot(&self.slot, self.engine.last());
        Snapshot { read_time, owner: self.owner }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.engine.leave(&self.slot);
    }
}

impl Store {
    /// The directory after recovery, which has restored its rows to `tables` and changed those that are
    /// `replayed`, also by `loaded` files.
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        lock: DiskLock,
        manifest: Manifest,
        tables: &HashMap<TableId, Arc<Table>>,
        replayed: HashSet<TableId>,
        loaded: Vec<(Time, Lsn, TableFile)>,
    ) -> Store {
        let loads = Loads::default();
        for (time, end, file) in loaded {
            let table = tables.get(&TableId(file.table));
            loads.list_recovered(manifest.time(), time, end, vec![LoadedFile::restored(file, table)]);
        }
        let mut generations = Generations::new();
        for (table, block) in manifest.files.iter().flat_map(blocks_of) {
            // A block with replayed changes is hot, or a compact one with fewer rows, as its count shows.
            let cold = tables.get(&table).and_then(|table| table.cold(block));
            generations.extend(cold.map(|cold| ((table, block), cold.generation)));
        }
        Store {
            disk,
            directory,
            _lock: lock,
            counted_from: AtomicU64::new(manifest.position),
            current: Mutex::new(Arc::new(manifest.clone())),
            newest: Mutex::new(Newest {
                begun: manifest.checkpoint,
                manifest,
                is_certain: true,
                replayed,
                generations,
            }),
            loads,
            worker: Mutex::new(None),
            tried_for_space: Mutex::default(),
        }
    }

    /// The files of loads that no checkpoint has taken over yet.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Writes a checkpoint while the caller waits.
    pub fn checkpoint(&self, engine: &Engine, log: &Log) -> Result<()> {
        self.write(engine, log, engine.config().threads, || {})
    }

    /// Writes a checkpoint on `threads` threads. Calls `begun` once no other thread waits for it any more.
    fn write(&self, engine: &Engine, log: &Log, threads: usize, begun: impl FnOnce()) -> Result<()> {
        let mut newest = self.newest.lock();
        log.check()?;
        newest.begun += 1;
        let written = self.write_files(engine, log, threads, begun, &mut newest);
        let (manifest, generations, redo_bytes) =
            written.inspect_err(|_| self.remove_files_of(newest.begun))?;
        // Until it is known which manifest is in the directory, no file is removed.
        newest.is_certain = false;
        let manifest = {
            let mut current = self.current.lock();
            // The role may have changed while the files were written.
            let manifest = manifest.with_role_of(&current);
            manifest.write(&*self.disk, &self.directory)?;
            *current = Arc::new(manifest.clone());
            manifest
        };
        newest.is_certain = true;

        self.counted_from.store(redo_bytes, Ordering::Relaxed);
        newest.manifest = manifest;
        newest.replayed.clear();
        newest.generations = generations;
        engine.statistics().checkpoints.count();
        let named = newest.manifest.file_names();
        let beside = |from, to| self.loads.bytes_between(from, to, &named);
        let gone = log.truncate_before(newest.manifest.position(), beside)?;
        self.loads.forget_until(newest.manifest.time(), gone);
        self.remove_files_but(&newest.manifest, log)
    }

    /// Removes what pins have retained, once they have ended or moved. A checkpoint that is being written does so at its end.
    pub fn remove_released(&self, log: &Log) -> Result<()> {
        // First: what is taken from the log's list is removed here.
        let Some(newest) = self.newest.try_lock() else { return Ok(()) };
        let Some(released) = log.take_released() else { return Ok(()) };
        let removed = log.recycle().and_then(|gone| {
            // Which manifest is in the directory is known after the next checkpoint, which removes all that is not named.
            if !newest.is_certain {
                return Ok(());
            }
            let forgotten = self.loads.forget_until(newest.manifest.time(), gone);
            if forgotten || released == Released::Files {
                self.remove_files_but(&newest.manifest, log)
            } else {
                Ok(())
            }
        });
        // A load that has been forgotten is not again.
        removed.inspect_err(|_| log.put_back_released(Released::Files))
    }

    /// The database, and its cluster.
    pub fn identity(&self) -> (DatabaseId, ClusterId) {
        let current = self.current.lock();
        (current.database, current.cluster)
    }

    /// Changes the role in the manifest. After an error the directory may have either when it is opened again.
    pub fn change_role(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut current = self.current.lock();
        let mut manifest = (**current).clone();
        change(&mut manifest);
        // Another one may be in the directory, after a failed attempt to replace this one. Then nothing has been removed that this
        // one needs.
        manifest.write(&*self.disk, &self.directory)?;
        *current = Arc::new(manifest);
        Ok(())
    }

    /// Opens a file of the directory for reading.
    pub fn open_file(&self, file: &DatabaseFile) -> Result<Arc<dyn DiskFile>> {
        self.disk.open_direct_to_read(&Folders::of(&self.directory).path(file))
    }

    /// Retains the newest checkpoint, with the log after it.
    pub fn pin_checkpoint(&self, log: &Log, holder: &str) -> Result<PinnedCheckpoint> {
        let current = self.current.lock();
        let files = current.files.iter().map(|file| file.name.clone()).collect();
        let pin = log.pin(holder, current.position(), files)?;
        Ok(PinnedCheckpoint { manifest: current.clone(), pin })
    }

    /// Writes the files of a checkpoint. Returns its manifest, of each block in a file of cold blocks the generation, and up to
    /// where it replaces the log.
    fn write_files(
        &self,
        engine: &Engine,
        log: &Log,
        threads: usize,
        begun: impl FnOnce(),
        newest: &mut Newest,
    ) -> Result<(Manifest, Generations, u64)> {
        let number = newest.begun;
        let cut = engine.cut(log, newest.manifest.time())?;
        begun();
        let directory = checkpoint_directory(&self.directory);

        let mut files: Vec<TableFile> = Vec::new();
        let mut changed: Vec<&CutTable> = Vec::new();
        for table in &cut.tables {
            let id = table.table.id();
            if !table.unchanged || newest.replayed.contains(&id) {
                changed.push(table);
            } else {
                files.extend(newest.manifest.files.iter().filter(|file| file.table == id.0).cloned());
            }
        }
        // The largest first, so that it is not processed last by a single thread.
        changed.sort_by_key(|table| std::cmp::Reverse(table.table.memory_bytes()));
        let loaded = self.loads.between(newest.manifest.time(), cut.snapshot.read_time);
        for LoadedFile { file, generations } in &loaded {
            let of_block = |(block, generation): &_| ((TableId(file.table), *block), *generation);
            newest.generations.extend(generations.iter().map(of_block));
        }
        let mut parts: Vec<Part<'_>> = Vec::new();
        for table in changed {
            let id = table.table.id();
            let known = newest.manifest.files.iter().chain(loaded.iter().map(|loaded| &loaded.file));
            let before = known.filter(|file| file.table == id.0);
            let plan = Plan::new(&table.table, before, &newest.generations);
            files.extend(plan.kept.iter().cloned());
            parts.extend(Part::of(table, plan));
        }
        cut.reader.rest();
        let written = thread::for_each("firn-checkpoint", threads, &parts, |part| {
            let name = format!("{}-{number}-{}.arrow", part.table.table.id().0, part.number);
            part.write(engine, &*self.disk, &directory, name)
        })?;
        // In this order: the position covers everything that was read by then.
        let until = engine.logged_time();
        let sequences = engine.sequence_entries();
        // What a replica shows is committed; behind that there may be more, which need not become so.
        let end = if engine.is_replica() { log.committed_lsn() } else { log.appended_lsn() };
        let needed = end.max(cut.position);
        files.extend(written.into_iter().flatten());
        let mut generations: Generations = files
            .iter()
            .flat_map(blocks_of)
            .filter_map(|key| Some((key, *newest.generations.get(&key)?)))
            .collect();
        for part in &parts {
            let id = part.table.table.id();
            generations.extend(part.cold.iter().map(|block| ((id, block.number), block.generation)));
        }
        files.sort_by(|left, right| (left.table, &left.name).cmp(&(right.table, &right.name)));
        self.disk.sync_directory(&directory)?;

        match Fault::CheckpointBeforeCommitted.is_made() {
            false => log.wait_committed(needed, &|| Ok(()))?,
            true => log.wait_durable(needed)?,
        }
        let point = log.point_at(cut.position)?;
        let storage = cut.tables.iter().map(|table| table.table.clone());
        let manifest = Manifest {
            database: newest.manifest.database,
            cluster: newest.manifest.cluster,
            follows: newest.manifest.follows.clone(),
            handed_over_at: newest.manifest.handed_over_at,
            follow_option: newest.manifest.follow_option.clone(),
            voter: newest.manifest.voter,
            complete: true,
            checkpoint: number,
            time: cut.time.0,
            until: until.0,
            position: cut.position.0,
            checksum: point.checksum,
            epoch: point.epoch.0,
            wall_time: point.wall_time,
            needed: needed.0,
            epochs: engine.epochs.lock().clone(),
            block_bytes: newest.manifest.block_bytes,
            catalog: cut.catalog.to_change(storage, cut.marks),
            sequences,
            files,
        };
        Ok((manifest, generations, cut.redo_bytes))
    }

    /// Removes the files of a checkpoint that failed before its manifest was written: they may have filled the disk.
    fn remove_files_of(&self, checkpoint: u64) {
        let directory = checkpoint_directory(&self.directory);
        let number = checkpoint.to_string();
        for name in self.disk.list(&directory).unwrap_or_default() {
            if name.split('-').nth(1) == Some(number.as_str()) {
                // What cannot be removed now is removed with the next checkpoint.
                let _ = self.disk.remove(&directory.join(name));
            }
        }
    }

    /// Removes the files to which neither the newest manifest nor a load refers: after recovery.
    pub fn remove_unnamed_files(&self, log: &Log) -> Result<()> {
        self.remove_files_but(&self.newest.lock().manifest, log)
    }

    fn remove_files_but(&self, manifest: &Manifest, log: &Log) -> Result<()> {
        let directory = checkpoint_directory(&self.directory);
        let named = manifest.file_names();
        let mut removed = false;
        // Listed first: later files of loads are not included, and earlier ones are known.
        for name in self.disk.list(&directory)? {
            if !named.contains(name.as_str()) && !self.loads.lists(&name) && !log.is_pinned(&name) {
                match self.disk.remove(&directory.join(name)) {
                    // A load that rolls back has removed it already.
                    Err(error) if error.state() == SqlState::UNDEFINED_FILE => {}
                    outcome => outcome?,
                }
                removed = true;
            }
        }
        if removed { self.disk.sync_directory(&directory) } else { Ok(()) }
    }

    /// Begins a checkpoint on a thread of its own if the log has grown by so much, or if the disk lacks space for more of it.
    pub fn checkpoint_if_due(&self, engine: &Arc<Engine>, log: &Log, after_bytes: u64) {
        // What a replica has not replayed, a checkpoint does not replace.
        let end = engine.replica().map_or_else(|| log.appended_lsn(), Replica::replayed);
        let written = log.bytes_at(end) + self.loads.bytes();
        let is_due = written.saturating_sub(self.counted_from.load(Ordering::Relaxed)) >= after_bytes;
        if !is_due && !self.is_due_for_space(log) {
            return;
        }
        let mut worker = self.worker.lock();
        if worker.as_ref().is_some_and(|worker| !worker.is_finished()) {
            return;
        }
        // An explicit checkpoint reports its error; this one does not. Everything is still in the log.
        let retry_at = is_due.then(|| written - after_bytes + after_bytes / RETRY_PART);
        // The engine may be closed while the thread starts.
        let engine: Weak<Engine> = Arc::downgrade(engine);
        let started = thread::start("firn-checkpoint", move || {
            let Some(engine) = engine.upgrade() else { return };
            let Some((store, log)) = engine.store_and_log() else { return };
            let threads = engine.config().threads.div_ceil(THREADS_PART);
            let stand_back = || thread::stand_back(Behind::Queries);
            if store.write(&engine, log, threads, stand_back).is_err() {
                store.retry_from(retry_at);
            }
        });
        match started {
            Ok(thread) => *worker = Some(thread),
            Err(_) => self.retry_from(retry_at),
        }
    }

    /// After a failed checkpoint that was due, the next one is.
    fn retry_from(&self, retry_at: Option<u64>) {
        if let Some(retry_at) = retry_at {
            self.counted_from.store(retry_at, Ordering::Relaxed);
        }
    }

    /// Whether the disk lacks space that a checkpoint may free, and none has been tried for that just now.
    fn is_due_for_space(&self, log: &Log) -> bool {
        if !log.take_lack_of_space() {
            return false;
        }
        let mut tried = self.tried_for_space.lock();
        let is_time = tried.is_none_or(|tried| tried.elapsed() >= RETRY_FOR_SPACE);
        if is_time {
            *tried = Some(clock::now());
        }
        is_time
    }

    /// Whether anything was logged since the last checkpoint.
    pub fn has_news(&self, log: &Log) -> bool {
        log.appended_lsn() > self.newest.lock().manifest.position()
    }

    /// Waits for the checkpoint that is being written on a thread of its own, unless it is the caller.
    pub fn stop(&self) {
        let worker = self.worker.lock().take();
        if let Some(worker) = worker
            && !thread::is_current(&worker)
        {
            // Its panic was reported where it happened.
            let _ = worker.join();
        }
    }
}

impl Engine {
    /// Takes a snapshot and the log position that belongs to it; `last` is the time of the last checkpoint.
    fn cut(&self, log: &Log, last: Time) -> Result<Cut<'_>> {
        // No commit is possible meanwhile: what is not in the snapshot is appended behind the position, and
        // every write to a table shows at its gate.
        let _turn = self.commit.lock();
        let (reader, snapshot) = Reader::enter(self)?;
        let catalog = self.catalog_at(snapshot);
        let then = Snapshot { read_time: last, owner: Stamp::committed(Time(0)) };
        let tables = catalog
            .tables
            .values()
            .map(|definition| {
                let table = self.table(definition.storage());
                let unchanged = table.gate().is_current(then);
                CutTable { definition: definition.clone(), table, unchanged }
            })
            .collect();
        let position = self.replica().map_or_else(|| log.reader_start(), Replica::replayed);
        let loaded_bytes = self.store_and_log().map_or(0, |(store, _)| store.loads.bytes());
        Ok(Cut {
            reader,
            snapshot,
            time: self.logged_time(),
            position,
            redo_bytes: log.bytes_at(position) + loaded_bytes,
            catalog,
            marks: self.id_marks(),
            tables,
        })
    }

    fn sequence_entries(&self) -> Vec<SequenceEntry> {
        let sequences = self.sequences.lock();
        let mut entries: Vec<SequenceEntry> = sequences
            .iter()
            .map(|(oid, state)| {
                let (value, called) = state.logged();
                SequenceEntry { oid: oid.0, value, called }
            })
            .collect();
        entries.sort_by_key(|entry| entry.oid);
        entries
    }
}

/// The blocks of a file of cold blocks that count.
pub(crate) fn blocks_of(file: &TableFile) -> impl Iterator<Item = (TableId, BlockNumber)> {
    file.blocks.iter().flatten().map(|block| (TableId(file.table), BlockNumber(block.0)))
}

/// Names for other programs, all different.
pub(crate) fn column_names(definition: &TableDef) -> Vec<String> {
    let name = |(position, column): (usize, &crate::catalog::ColumnDef)| {
        if column.dropped { format!("_dropped_{position}") } else { column.name.clone() }
    };
    definition.columns.iter().enumerate().map(name).collect()
}
