//! Checkpoints: the committed state of one moment in files, so that the log before it can go.
//!
//! ```text
//!  1  cut       in the commit section: draw a snapshot and the log position that goes with it
//!  2  write     every table that has changed since the last checkpoint, beside
//!               running transactions; the others keep their file
//!  3  wait      until the log is durable up to the position
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

use crate::active::ActiveSlot;
use crate::catalog::{Catalog, IdMarks, TableDef};
use crate::engine::Engine;
use crate::manifest::{Manifest, SequenceEntry, TableFile, checkpoint_directory};
use crate::table_file;
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};
use firn_base::thread::{self, Behind, JoinHandle};
use firn_base::{ColumnId, Lsn, Result, Snapshot, Stamp, TableId, Time};
use firn_log::Log;
use firn_storage::{Table, TableScan};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// After a failed checkpoint the next one is tried when the log has grown by this part of what
/// makes a checkpoint due.
const RETRY_PART: u64 = 8;

/// A checkpoint beside transactions takes this part of the threads.
const THREADS_PART: usize = 4;

/// A file of a table ends when it has so many bytes, so that several threads can write and load one table.
/// Tiny under test, where splitting is to be common.
const SPLIT_BYTES: u64 = if cfg!(debug_assertions) { 64 << 10 } else { 32 << 20 };

/// The directory of an open database.
#[derive(Debug)]
pub(crate) struct Store {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
    /// Keeps everybody else out.
    _lock: DiskLock,
    /// Locked while a checkpoint is written.
    newest: Mutex<Newest>,
    /// From this log position on the bytes count that make a checkpoint due.
    counted_from: AtomicU64,
    worker: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Newest {
    manifest: Manifest,
    /// Checkpoints begun, failed ones included: the number of a file is never used again, because
    /// after an error nobody knows which manifest counts.
    begun: u64,
    /// Tables that recovery has changed since the checkpoint, of which their gates know nothing.
    replayed: HashSet<TableId>,
}

/// One moment of the database.
struct Cut<'e> {
    engine: &'e Engine,
    slot: ActiveSlot,
    snapshot: Snapshot,
    position: Lsn,
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

/// What one file of a table will hold: what the files before it leave of the scan, up to a size.
struct Part<'c> {
    table: &'c CutTable,
    scan: Arc<TableScan>,
    number: usize,
    most_bytes: u64,
}

impl<'c> Part<'c> {
    /// The parts of a table.
    fn of(table: &'c CutTable, snapshot: Snapshot) -> impl Iterator<Item = Part<'c>> {
        let last = usize::try_from(table.table.memory_bytes() / SPLIT_BYTES).expect("memory can be counted");
        let columns: Vec<ColumnId> =
            (0..table.table.columns().len()).map(|position| ColumnId(position as u16)).collect();
        let scan = Arc::new(table.table.scan(snapshot, &columns, true));
        (0..=last).map(move |number| {
            // The number of parts is an estimate; what it misses goes into the last one.
            let most_bytes = if number == last { u64::MAX } else { SPLIT_BYTES };
            Part { table, scan: scan.clone(), number, most_bytes }
        })
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.engine.leave(&self.slot);
    }
}

impl Store {
    /// The directory as recovery leaves it, which has changed the tables `replayed`.
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        lock: DiskLock,
        manifest: Manifest,
        replayed: HashSet<TableId>,
    ) -> Store {
        Store {
            disk,
            directory,
            _lock: lock,
            counted_from: AtomicU64::new(manifest.position),
            newest: Mutex::new(Newest { begun: manifest.checkpoint, manifest, replayed }),
            worker: Mutex::new(None),
        }
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
        let parts: Vec<Part<'_>> = changed.iter().flat_map(|table| Part::of(table, cut.snapshot)).collect();
        let written = thread::for_each("firn-checkpoint", threads, &parts, |part| {
            let name = format!("{}-{number}-{}.arrow", part.table.table.id().0, part.number);
            let columns = column_names(&part.table.definition);
            let table = &part.table.table;
            table_file::write(&*self.disk, &directory, name, table, &columns, &part.scan, part.most_bytes)
        })?;
        files.extend(written.into_iter().flatten());
        files.sort_by(|left, right| (left.table, &left.name).cmp(&(right.table, &right.name)));
        self.disk.sync_directory(&directory)?;

        let storage = cut.tables.iter().map(|table| table.table.clone());
        let manifest = Manifest {
            database: newest.manifest.database,
            complete: true,
            checkpoint: number,
            time: cut.snapshot.read_time.0,
            position: cut.position.0,
            block_bytes: newest.manifest.block_bytes,
            catalog: cut.catalog.to_change(storage, cut.marks),
            sequences: engine.sequence_entries(),
            files,
        };
        drop(cut);
        log.wait_durable(manifest.position())?;
        manifest.write(&*self.disk, &self.directory)?;

        self.counted_from.store(manifest.position, Ordering::Relaxed);
        newest.manifest = manifest;
        newest.replayed.clear();
        engine.statistics().checkpoints.count();
        remove_unnamed_files(&*self.disk, &directory, &newest.manifest.files)?;
        log.truncate_before(newest.manifest.position())
    }

    /// Begins a checkpoint on a thread of its own if the log has grown by so much.
    pub fn checkpoint_if_due(&self, engine: &Arc<Engine>, log: &Log, after_bytes: u64) {
        let appended = log.appended_lsn().0;
        if appended.saturating_sub(self.counted_from.load(Ordering::Relaxed)) < after_bytes {
            return;
        }
        let mut worker = self.worker.lock();
        if worker.as_ref().is_some_and(|worker| !worker.is_finished()) {
            return;
        }
        // The engine may end while the thread begins.
        let engine: Weak<Engine> = Arc::downgrade(engine);
        *worker = Some(thread::spawn("firn-checkpoint", move || {
            let Some(engine) = engine.upgrade() else { return };
            let Some((store, log)) = engine.store_and_log() else { return };
            let threads = engine.config().threads.div_ceil(THREADS_PART);
            let stand_back = || thread::stand_back(Behind::Queries);
            if store.write(&engine, log, threads, stand_back).is_err() {
                // Whoever asks for a checkpoint is told why. Everything is still in the log.
                store
                    .counted_from
                    .store(appended - after_bytes + after_bytes / RETRY_PART, Ordering::Relaxed);
            }
        }));
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
        let (slot, snapshot) = self.enter()?;
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
        Ok(Cut {
            engine: self,
            slot,
            snapshot,
            position: log.reader_start(),
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

/// Names for readers other than us, all different.
fn column_names(definition: &TableDef) -> Vec<String> {
    let name = |(position, column): (usize, &crate::catalog::ColumnDef)| {
        if column.dropped { format!("_dropped_{position}") } else { column.name.clone() }
    };
    definition.columns.iter().enumerate().map(name).collect()
}

/// Removes the checkpoint files that the manifest does not name.
pub(crate) fn remove_unnamed_files(disk: &dyn Disk, directory: &Path, named: &[TableFile]) -> Result<()> {
    let named: HashSet<&str> = named.iter().map(|file| file.name.as_str()).collect();
    let mut removed = false;
    for name in disk.list(directory)? {
        if !named.contains(name.as_str()) {
            disk.remove(&directory.join(name))?;
            removed = true;
        }
    }
    if removed { disk.sync_directory(directory) } else { Ok(()) }
}
