//! Checkpoints: what is committed, in files, so that the log before it can go.
//!
//! ```text
//!  1  cut       in the commit section: draw a snapshot and the log position that goes with it
//!  2  write     every table that has changed since the last checkpoint, beside running
//!               transactions, each block by a snapshot of its own, but for its blocks that have
//!               been cold since they were written; the others keep their files
//!  3  wait      until the log is durable up to the newest commit that a block may show
//!  4  switch    replace the manifest: from here on the new checkpoint counts
//!  5  clean up  remove the files that only the old one named, give up the log before the position
//! ```
//! A crash anywhere leaves a whole checkpoint: before 4 the old one, its files and its log untouched;
//! after 4 the new one, and leftovers that opening removes.
//!
//! Invariant of the cut: every commit later than the snapshot has its redo behind the position.
//! (Some earlier ones may have theirs there too; recovery skips them by their times.) Sequences run
//! beside commit times: their states are read after the cut, and whatever is logged later than that
//! lies behind the position as well.
//!
//! Invariant of the rows: a block shows everything up to the cut, and of later commits what there was when it was read. Their
//! redo lies behind the position, so recovery does it again, and a row ends as what was last done to it. By
//! one snapshot for all of it, transactions would lose as much as to any query that runs for seconds
//! (docs/decisions/0039-checkpoints-read-block-by-block.md).

use crate::active::ActiveSlot;
use crate::catalog::{Catalog, IdMarks, TableDef};
use crate::engine::Engine;
use crate::isolation::Isolation;
use crate::loads::{LoadedFile, Loads};
use crate::manifest::{FileBlock, Manifest, SequenceEntry, TableFile, checkpoint_directory};
use crate::table_file::{self, Content};
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, Weak};
use firn_base::thread::{self, Behind, JoinHandle};
use firn_base::{BlockNumber, ColumnId, Lsn, Result, Snapshot, SqlState, Stamp, TableId, Time, clock};
use firn_log::Log;
use firn_storage::{Cold, ScanBatch, Table, pin};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After a failed checkpoint the next one is tried when the log has grown by this part of what
/// makes a checkpoint due.
const RETRY_PART: u64 = 8;

/// While the disk is full, a checkpoint to free space of the log is tried again after so long.
const RETRY_FOR_SPACE: Duration = Duration::from_secs(10);

/// A checkpoint beside transactions takes this part of the threads.
const THREADS_PART: usize = 4;

/// A file of a table ends when it has so many bytes, so that several threads can write and load one table.
/// Tiny under test, where splitting is to be common.
pub(crate) const SPLIT_BYTES: u64 = if cfg!(debug_assertions) { 64 << 10 } else { 32 << 20 };

/// A file of cold blocks is not kept if fewer of its rows count than one in so many: then what counts is written again.
const LEAST_PART: u64 = 2;

/// Nor are small ones kept, of which a table may have so many.
const MOST_SMALL_FILES: usize = 8;
const SMALL_BYTES: u64 = SPLIT_BYTES / 2;

/// The directory of an open database.
#[derive(Debug)]
pub(crate) struct Store {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
    /// Keeps everybody else out.
    _lock: DiskLock,
    /// Locked while a checkpoint is written.
    newest: Mutex<Newest>,
    loads: Loads,
    /// So many bytes of redo ([`Log::bytes_at`]) and of loads' files had been written at the last one: those since make a
    /// checkpoint due.
    counted_from: AtomicU64,
    worker: Mutex<Option<JoinHandle<()>>>,
    /// When a checkpoint was last begun because the disk lacked space.
    tried_for_space: Mutex<Option<clock::Instant>>,
}

#[derive(Debug)]
struct Newest {
    manifest: Manifest,
    /// Checkpoints begun, failed ones included: the number of a file is never used again, because
    /// after an error nobody knows which manifest counts.
    begun: u64,
    /// Tables that recovery has changed since the checkpoint, of which their gates know nothing.
    replayed: HashSet<TableId>,
    /// Of each block that lies in a file of cold blocks and counts there: the generation of which it was then.
    generations: Generations,
}

type Generations = HashMap<(TableId, BlockNumber), u64>;

/// One moment of the database.
struct Cut<'e> {
    /// Reads by the snapshot until it is known what is to be written.
    reader: Reader<'e>,
    snapshot: Snapshot,
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
    /// Whether it holds what it held at the time of the last checkpoint.
    unchanged: bool,
}

/// What becomes of a table that has changed.
struct Plan {
    /// Files of cold blocks that are kept, with the blocks that still count.
    kept: Vec<TableFile>,
    /// Blocks that are cold now and lie in none of them, as many together as make up a file.
    cold: Vec<Vec<ColdBlock>>,
    /// The other blocks, and how many bytes they have.
    rest: Vec<BlockNumber>,
    rest_bytes: u64,
}

/// A block that is cold, with its generation.
struct ColdBlock {
    number: BlockNumber,
    generation: u64,
}

impl Plan {
    /// For a table of which there are these files. The caller holds a snapshot at least as old as that of the checkpoint; blocks that
    /// are cold by now may have been filled since, and are no different from others then.
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
        // A file of compact blocks has fewer bytes than its blocks, by which groups are formed.
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

/// Blocks in their order, as many together as make up a file.
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

/// What one file of a table will hold.
struct Part<'c> {
    table: &'c CutTable,
    /// Cold blocks go into it as wholes, of others those that the files before it leave.
    blocks: Arc<Blocks>,
    cold: Vec<ColdBlock>,
    number: usize,
    most_bytes: u64,
}

impl<'c> Part<'c> {
    /// The parts of a table, but for what is kept.
    fn of(table: &'c CutTable, plan: Plan) -> Vec<Part<'c>> {
        let blocks = |numbers| Arc::new(Blocks { numbers, next: AtomicUsize::new(0) });
        let cold = plan.cold.into_iter().map(|cold| {
            let blocks = blocks(cold.iter().map(|block| block.number).collect());
            Part { table, blocks, cold, number: 0, most_bytes: u64::MAX }
        });
        let last = usize::try_from(plan.rest_bytes / SPLIT_BYTES).expect("memory can be counted");
        let rest = blocks(plan.rest);
        let rest = (0..=last).map(|number| {
            // The number of parts is an estimate; what it misses goes into the last one.
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

/// Blocks of a table. Several files may be made of them, by threads beside each other.
struct Blocks {
    numbers: Vec<BlockNumber>,
    next: AtomicUsize,
}

impl Blocks {
    /// Those that nobody has taken yet, one after the other.
    fn take(&self) -> impl Iterator<Item = BlockNumber> {
        // ORDERING: the number of a block is all that it gives.
        std::iter::from_fn(|| self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed)).copied())
    }
}

/// One who reads what is committed, by a snapshot or, between two of them, by none.
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

    /// Lets go of its snapshot.
    fn rest(&self) {
        self.engine.active().release_snapshot(&self.slot);
    }

    /// Draws a new one.
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
    /// The directory as recovery leaves it, which has put its rows into `tables` and changed those that are `replayed`, by
    /// `loaded` files as well.
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        lock: DiskLock,
        manifest: Manifest,
        tables: &HashMap<TableId, Arc<Table>>,
        replayed: HashSet<TableId>,
        loaded: Vec<(Time, TableFile)>,
    ) -> Store {
        let loads = Loads::default();
        for (time, file) in loaded {
            let table = tables.get(&TableId(file.table));
            loads.list_recovered(time, vec![LoadedFile::restored(file, table)]);
        }
        let mut generations = Generations::new();
        for (table, block) in manifest.files.iter().flat_map(blocks_of) {
            // A block that has been replayed into is hot, or a compact one that has lost rows, which its count tells.
            let cold = tables.get(&table).and_then(|table| table.cold(block));
            generations.extend(cold.map(|cold| ((table, block), cold.generation)));
        }
        Store {
            disk,
            directory,
            _lock: lock,
            counted_from: AtomicU64::new(manifest.position),
            newest: Mutex::new(Newest { begun: manifest.checkpoint, manifest, replayed, generations }),
            loads,
            worker: Mutex::new(None),
            tried_for_space: Mutex::default(),
        }
    }

    /// The files of loads that no checkpoint has taken over yet.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Writes a checkpoint that somebody waits for.
    pub fn checkpoint(&self, engine: &Engine, log: &Log) -> Result<()> {
        self.write(engine, log, engine.config().threads, || {})
    }

    /// Writes a checkpoint on so many threads; calls `begun` once it no longer holds up anybody.
    fn write(&self, engine: &Engine, log: &Log, threads: usize, begun: impl FnOnce()) -> Result<()> {
        let mut newest = self.newest.lock();
        log.check()?;
        newest.begun += 1;
        let written = self.write_files(engine, log, threads, begun, &mut newest);
        let (manifest, generations, redo_bytes) =
            written.inspect_err(|_| self.remove_files_of(newest.begun))?;
        manifest.write(&*self.disk, &self.directory)?;

        self.counted_from.store(redo_bytes, Ordering::Relaxed);
        newest.manifest = manifest;
        newest.replayed.clear();
        newest.generations = generations;
        engine.statistics().checkpoints.count();
        self.loads.forget_until(newest.manifest.time());
        self.remove_files_but(&newest.manifest)?;
        log.truncate_before(newest.manifest.position())
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
        // The largest first, so that no thread is left alone with it at the end.
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
        // In this order: the position covers all that was published by then.
        let until = engine.now();
        let needed = engine.last_position().max(cut.position);
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

        let storage = cut.tables.iter().map(|table| table.table.clone());
        let manifest = Manifest {
            database: newest.manifest.database,
            complete: true,
            checkpoint: number,
            time: cut.snapshot.read_time.0,
            until: until.0,
            position: cut.position.0,
            needed: needed.0,
            block_bytes: newest.manifest.block_bytes,
            catalog: cut.catalog.to_change(storage, cut.marks),
            sequences: engine.sequence_entries(),
            files,
        };
        let redo_bytes = cut.redo_bytes;
        drop(cut);
        log.wait_durable(needed)?;
        Ok((manifest, generations, redo_bytes))
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

    /// Removes the files that neither the newest manifest names nor a load: after recovery.
    pub fn remove_unnamed_files(&self) -> Result<()> {
        self.remove_files_but(&self.newest.lock().manifest)
    }

    fn remove_files_but(&self, manifest: &Manifest) -> Result<()> {
        let directory = checkpoint_directory(&self.directory);
        let named: HashSet<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
        let mut removed = false;
        // Listed first: what a load makes later is not among them, and what it has made by then is known.
        for name in self.disk.list(&directory)? {
            if !named.contains(name.as_str()) && !self.loads.lists(&name) {
                match self.disk.remove(&directory.join(name)) {
                    // A load that rolls back was quicker.
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
        let written = log.bytes_at(log.appended_lsn()) + self.loads.bytes();
        let is_due = written.saturating_sub(self.counted_from.load(Ordering::Relaxed)) >= after_bytes;
        if !is_due && !self.is_due_for_space(log) {
            return;
        }
        let mut worker = self.worker.lock();
        if worker.as_ref().is_some_and(|worker| !worker.is_finished()) {
            return;
        }
        // Whoever asks for a checkpoint is told why there is none. Everything is still in the log.
        let retry_at = is_due.then(|| written - after_bytes + after_bytes / RETRY_PART);
        // The engine may end while the thread begins.
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
            // A panic of it was reported where it happened.
            let _ = worker.join();
        }
    }
}

impl Engine {
    /// Draws a snapshot and the log position that goes with it; `last` is the time of the last
    /// checkpoint.
    fn cut(&self, log: &Log, last: Time) -> Result<Cut<'_>> {
        // Nobody commits meanwhile: what is not in the snapshot is appended behind the position,
        // and whatever has been written to a table shows at its gate.
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
        let position = log.reader_start();
        let loaded_bytes = self.store_and_log().map_or(0, |(store, _)| store.loads.bytes());
        Ok(Cut {
            reader,
            snapshot,
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

/// Names for readers other than us, all different.
pub(crate) fn column_names(definition: &TableDef) -> Vec<String> {
    let name = |(position, column): (usize, &crate::catalog::ColumnDef)| {
        if column.dropped { format!("_dropped_{position}") } else { column.name.clone() }
    };
    definition.columns.iter().enumerate().map(name).collect()
}
