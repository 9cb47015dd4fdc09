//! Loads: how rows become durable in tables that their own transaction has created
//! (docs/decisions/0036-private-tables-are-written-as-files.md).
//!
//! Such a table is [private](Table::keep_private): inserted rows get no versions and no redo. At the commit the contents of the
//! table become durable as a whole; most of them are written earlier:
//!
//! ```text
//! 1  freeze   a block that a batch of rows has filled, without gaps and without versions
//! 2  write    such blocks into files, as a checkpoint writes cold ones, on another thread than the load
//!    commit:
//! 3  compare  the blocks in files with the present ones: a block that has been written to since no longer counts
//! 4  log      the rows of all other blocks, as redo; and, in the same entry, the names of the files
//! ```
//! So rows of full blocks are written once. The next checkpoint keeps the files like its own. Until then recovery restores their
//! rows when it reads the entry.
//!
//! A file is listed here before it is created, until a checkpoint has taken it over or its transaction has rolled back:
//! checkpoints remove files that they neither name nor find listed here. Files of a transaction that did not commit before a crash
//! are removed when the database is opened.

use crate::catalog::Catalog;
use crate::checkpoint::{SPLIT_BYTES, Store, all_columns, blocks_of, column_names};
use crate::ddl::{Action, Ddl};
use crate::engine::Engine;
use crate::manifest::{TableFile, checkpoint_directory};
use crate::table_file::{self, Content};
use crate::ticket::Ticket;
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_base::thread::{self, JoinHandle};
use firn_base::{BlockNumber, Epoch, Error, Lsn, Result, RowId, Snapshot, SqlState, Stamp, TableId, Time};
use firn_storage::{Table, WriteSet, pin};
use std::collections::{HashMap, HashSet, VecDeque};

/// Whether files are written on another thread than the load. Models have enough threads to interleave.
const BESIDE: bool = cfg!(not(feature = "models"));

/// The rows that are left at the end are logged as redo, not written to a file of their own, if they have fewer bytes.
const SMALL_BYTES: u64 = SPLIT_BYTES / 4;

/// The files of loads that no checkpoint has taken over yet.
#[derive(Default, Debug)]
pub(crate) struct Loads(Mutex<Listed>);

#[derive(Default, Debug)]
struct Listed {
    begun: u64,
    loads: Vec<Load>,
    /// Bytes of all files that were written since the database was opened, and of those that recovery found.
    bytes: u64,
}

/// Files that one transaction has written.
#[derive(Debug)]
struct Load {
    number: u64,
    /// Their names, listed before they are created.
    names: Vec<String>,
    committed: Option<Committed>,
}

#[derive(Debug)]
struct Committed {
    time: Time,
    /// Where its entry in the log ends: a log that begins there does not need the files.
    needed_to: Lsn,
    files: Vec<LoadedFile>,
}

/// A file of a load.
#[derive(Clone, Debug)]
pub(crate) struct LoadedFile {
    pub file: TableFile,
    /// Of each of its blocks, the generation at the time of writing.
    pub generations: Vec<(BlockNumber, u64)>,
}

impl LoadedFile {
    /// A file whose blocks have been restored and frozen again, except those that have changed since.
    pub fn restored(file: TableFile, table: Option<&Arc<Table>>) -> LoadedFile {
        let cold = |(_, block)| Some((block, table?.cold(block)?.generation));
        LoadedFile { generations: blocks_of(&file).filter_map(cold).collect(), file }
    }

    /// Drops the blocks that have been written to since; returns whether any is left.
    fn drop_changed(&mut self, table: &Table) -> bool {
        let generations: HashMap<BlockNumber, u64> = self.generations.iter().copied().collect();
        let is_same = |number: BlockNumber, rows: u32| {
            let then = generations.get(&number);
            table.cold(number).is_some_and(|now| Some(&now.generation) == then && now.rows == rows)
        };
        let blocks = self.file.blocks.as_mut().expect("it was written by blocks");
        blocks.retain(|block| is_same(BlockNumber(block.0), block.1));
        !blocks.is_empty()
    }
}

impl Loads {
    /// Lists what recovery has found in the log, after a checkpoint of time `known`. The files of earlier loads are listed, since
    /// the log names them, and do not count for the next checkpoint.
    pub fn list_recovered(&self, known: Time, time: Time, needed_to: Lsn, files: Vec<LoadedFile>) {
        let names = files.iter().map(|loaded| loaded.file.name.clone()).collect();
        let mut listed = self.0.lock();
        let number = listed.begin();
        if known < time {
            listed.bytes += files.iter().map(|loaded| loaded.file.bytes).sum::<u64>();
        }
        listed.loads.push(Load { number, names, committed: Some(Committed { time, needed_to, files }) });
    }

    /// Lists a file that is about to arrive in a replica.
    pub fn list_received(&self, name: &str) {
        let mut listed = self.0.lock();
        if !listed.loads.iter().any(|load| load.names.iter().any(|known| known == name)) {
            let number = listed.begin();
            listed.loads.push(Load { number, names: vec![name.to_owned()], committed: None });
        }
    }

    /// Notes that a load has committed whose files have arrived.
    pub fn commit_received(&self, time: Time, needed_to: Lsn, files: Vec<LoadedFile>) {
        let names: Vec<String> = files.iter().map(|loaded| loaded.file.name.clone()).collect();
        let mut listed = self.0.lock();
        let is_of_it = |load: &Load| load.names.iter().all(|name| names.contains(name));
        listed.loads.retain(|load| load.committed.is_some() || !is_of_it(load));
        let number = listed.begin();
        listed.bytes += files.iter().map(|loaded| loaded.file.bytes).sum::<u64>();
        listed.loads.push(Load { number, names, committed: Some(Committed { time, needed_to, files }) });
    }

    /// Bytes of all files that were written since the database was opened, and of those that recovery found. Enough of them
    /// trigger a checkpoint, which takes the files over, or removes those that are not needed any more.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// The files of loads that committed later than one checkpoint and not later than the next.
    pub fn between(&self, last: Time, next: Time) -> Vec<LoadedFile> {
        let listed = self.0.lock();
        let committed = listed.loads.iter().filter_map(|load| load.committed.as_ref());
        let theirs = committed.filter(|load| last < load.time && load.time <= next);
        theirs.flat_map(|load| load.files.iter().cloned()).collect()
    }

    /// Removes the loads that a checkpoint of that time has taken over, or does not need, and that the log does not name after
    /// position `gone`. Returns whether there were any.
    pub fn forget_until(&self, checkpoint: Time, gone: Lsn) -> bool {
        let is_needed = |load: &Committed| checkpoint < load.time || gone < load.needed_to;
        let mut listed = self.0.lock();
        let before = listed.loads.len();
        listed.loads.retain(|load| load.committed.as_ref().is_none_or(is_needed));
        listed.loads.len() < before
    }

    /// Bytes of the files that the log names between two positions, except those that a manifest names.
    pub fn bytes_between(&self, from: Lsn, to: Lsn, except: &HashSet<&str>) -> u64 {
        let listed = self.0.lock();
        let committed = listed.loads.iter().filter_map(|load| load.committed.as_ref());
        let between = committed.filter(|load| from < load.needed_to && load.needed_to <= to);
        let files = between.flat_map(|load| &load.files).map(|loaded| &loaded.file);
        files.filter(|file| !except.contains(file.name.as_str())).map(|file| file.bytes).sum()
    }

    /// Whether a file is listed.
    pub fn lists(&self, name: &str) -> bool {
        self.0.lock().loads.iter().any(|load| load.names.iter().any(|listed| listed == name))
    }

    /// Lists a load that begins.
    fn begin(&self) -> u64 {
        let mut listed = self.0.lock();
        let number = listed.begin();
        listed.loads.push(Load { number, names: Vec::new(), committed: None });
        number
    }

    /// Lists a file that is about to be created.
    fn list(&self, number: u64, name: String) {
        self.0.lock().of(number).names.push(name);
    }

    /// Counts bytes that a load has written.
    fn count(&self, bytes: u64) {
        self.0.lock().bytes += bytes;
    }

    /// Notes that a load has committed.
    fn commit(&self, number: u64, committed: Committed) {
        let mut listed = self.0.lock();
        let load = listed.of(number);
        load.committed = Some(committed);
        if load.names.is_empty() {
            listed.take_off(number);
        }
    }
}

impl Listed {
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// The load with this number; most likely the newest.
    fn of(&mut self, number: u64) -> &mut Load {
        let load = self.loads.iter_mut().rfind(|load| load.number == number);
        load.expect("a load is listed as long as its transaction runs")
    }

    fn take_off(&mut self, number: u64) {
        self.loads.retain(|load| load.number != number);
    }
}

/// Blocks of a private table that go into one file.
struct Part {
    table: Arc<Table>,
    columns: Arc<[String]>,
    name: String,
    blocks: Vec<BlockNumber>,
}

/// The parts that must be written, and the written ones.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    parts: VecDeque<Part>,
    /// No more parts follow.
    closed: bool,
    written: Vec<(Arc<Table>, LoadedFile)>,
    failure: Option<Error>,
}

impl Queue {
    /// Writes parts as they arrive, until the queue is closed and empty, or a write fails.
    fn work(&self, store: &Store, snapshot: Snapshot) {
        loop {
            let mut state = self.state.lock();
            let part = loop {
                if state.failure.is_some() {
                    return;
                }
                match state.parts.pop_front() {
                    Some(part) => break part,
                    None if state.closed => return,
                    None => self.changed.wait(&mut state),
                }
            };
            drop(state);
            let written = part.write(store, snapshot);
            let mut state = self.state.lock();
            match written {
                Ok(Some(loaded)) => {
                    store.loads().count(loaded.file.bytes);
                    state.written.push((part.table, loaded));
                }
                Ok(None) => {}
                Err(error) => state.failure = Some(error),
            }
        }
    }

    fn put(&self, part: Part) {
        self.state.lock().parts.push_back(part);
        self.changed.notify_all();
    }

    /// Closes the queue; drops the parts that wait if they are not needed any more.
    fn close(&self, wanted: bool) {
        let mut state = self.state.lock();
        state.closed = true;
        if !wanted {
            state.parts.clear();
        }
        self.changed.notify_all();
    }

    /// The error of a part, if there was one.
    fn check(&self) -> Result<()> {
        self.state.lock().failure.clone().map_or(Ok(()), Err)
    }
}

impl Part {
    /// Freezes the blocks as far as possible, and writes them.
    fn write(&self, store: &Store, snapshot: Snapshot) -> Result<Option<LoadedFile>> {
        let frozen = |number: &BlockNumber| Some((*number, self.table.freeze_cooling(*number)?.generation));
        let generations: Vec<(BlockNumber, u64)> = self.blocks.iter().filter_map(frozen).collect();
        if generations.is_empty() {
            return Ok(None);
        }
        let blocks = generations.iter().map(|(number, _)| *number).collect();
        // Without an owner: otherwise it would see half of a change in a block that its transaction has begun to change again.
        let snapshot = Snapshot { owner: Stamp::committed(Time(0)), ..snapshot };
        let scan = self.table.scan(snapshot, &all_columns(&self.table), true).of_blocks(blocks);
        let more = || Ok(scan.next_batch(&pin()).map(|batch| vec![batch]));
        let content = Content { more: &more, most_bytes: u64::MAX, by_block: true };
        let (directory, name) = (checkpoint_directory(&store.directory), self.name.clone());
        let file = table_file::write(&*store.disk, &directory, name, &self.table, &self.columns, &content)?;
        Ok(file.map(|file| LoadedFile { file, generations }))
    }
}

/// The files of a transaction that has created tables and fills them. Dropping it removes them.
pub(crate) struct Loading {
    engine: Arc<Engine>,
    number: u64,
    /// That of the log, which is in the files' names.
    epoch: Epoch,
    snapshot: Snapshot,
    tables: Vec<LoadedTable>,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
    /// The number of files, from which their names are made.
    parts: usize,
    /// The contents of the files, once all are written.
    files: Vec<LoadedFile>,
    kept: bool,
}

/// Which blocks of a private table have been handed to the writer.
struct LoadedTable {
    table: Arc<Table>,
    columns: Arc<[String]>,
    /// The block to check next.
    next: BlockNumber,
    /// Full blocks that together are too small for a file yet, with their bytes.
    blocks: Vec<BlockNumber>,
    bytes: u64,
}

impl Loading {
    /// Error: 53100 if the disk has no space even to begin the log's epoch.
    fn new(engine: &Arc<Engine>, snapshot: Snapshot) -> Result<Loading> {
        let (store, log) = engine.store_and_log().expect("there is no load without one");
        log.begin_epoch()?;
        Ok(Loading {
            engine: engine.clone(),
            number: store.loads().begin(),
            epoch: log.epoch(),
            snapshot,
            tables: Vec::new(),
            queue: Arc::new(Queue::default()),
            writer: None,
            parts: 0,
            files: Vec::new(),
            kept: false,
        })
    }

    /// That of a transaction, which begins one if it has none.
    fn of<'l>(
        loading: &'l mut Option<Box<Loading>>,
        engine: &Arc<Engine>,
        snapshot: Snapshot,
    ) -> Result<&'l mut Loading> {
        if loading.is_none() {
            *loading = Some(Box::new(Loading::new(engine, snapshot)?));
        }
        Ok(loading.as_mut().expect("just made"))
    }

    fn store(&self) -> &Store {
        self.engine.store_and_log().expect("there is no load without one").0
    }

    /// Takes the blocks of a table below `most` that have been filled since the last call, and has them written when they are
    /// enough for a file. The transaction does not write to them meanwhile. Error: that of an earlier file.
    fn take_full(&mut self, table: &Arc<Table>, catalog: &Catalog, most: u64) -> Result<()> {
        let known = self.tables.iter().position(|known| Arc::ptr_eq(&known.table, table));
        let at = match known {
            Some(at) => at,
            None => {
                let definition = catalog.tables.values().find(|found| found.storage() == table.id());
                // It has no definition yet while a table is rewritten: then the commit writes all of it.
                let Some(definition) = definition else { return Ok(()) };
                let (columns, next) = (column_names(definition).into(), BlockNumber(0));
                let (table, blocks) = (table.clone(), Vec::new());
                self.tables.push(LoadedTable { table, columns, next, blocks, bytes: 0 });
                self.tables.len() - 1
            }
        };
        while self.tables[at].next.0 < most {
            let known = &mut self.tables[at];
            if let Some(bytes) = known.table.cool_full(known.next) {
                known.blocks.push(known.next);
                known.bytes += bytes;
            }
            known.next.0 += 1;
            if known.bytes >= SPLIT_BYTES {
                self.hand_over(at);
            }
        }
        self.queue.check()
    }

    /// Hands the taken blocks of a table to the writer.
    fn hand_over(&mut self, at: usize) {
        let known = &mut self.tables[at];
        if known.blocks.is_empty() {
            return;
        }
        known.bytes = 0;
        let name = format!("{}-load-{}-{}.arrow", known.table.id().0, self.epoch.0, self.parts);
        let blocks = std::mem::take(&mut known.blocks);
        let part =
            Part { table: known.table.clone(), columns: known.columns.clone(), name: name.clone(), blocks };
        self.parts += 1;
        self.store().loads().list(self.number, name);
        self.queue.put(part);
        if BESIDE && self.writer.is_none() {
            let (engine, queue, snapshot) = (self.engine.clone(), self.queue.clone(), self.snapshot);
            let writer = thread::start("firn-load-write", move || {
                let (store, _) = engine.store_and_log().expect("there is no load without one");
                queue.work(store, snapshot);
            });
            // Without a thread, all parts are written at the end.
            self.writer = writer.ok();
        }
    }

    /// Writes all that is left of the tables that its transaction keeps, and determines which blocks count.
    fn finish(&mut self, made: &[&Arc<Table>]) -> Result<()> {
        // Tables that have been dropped again, or rewritten, do not count.
        let is_made = |table: &Arc<Table>| made.iter().any(|made| Arc::ptr_eq(made, table));
        self.tables.retain(|known| is_made(&known.table));
        self.queue.state.lock().parts.retain(|part| is_made(&part.table));
        for at in 0..self.tables.len() {
            if self.tables[at].bytes >= SMALL_BYTES {
                self.hand_over(at);
            }
        }
        self.queue.close(true);
        self.queue.work(self.store(), self.snapshot);
        self.join();
        self.queue.check()?;
        let written = std::mem::take(&mut self.queue.state.lock().written);
        let counts =
            |(table, mut loaded): (Arc<Table>, LoadedFile)| loaded.drop_changed(&table).then_some(loaded);
        self.files = written.into_iter().filter(|(table, _)| is_made(table)).filter_map(counts).collect();
        if self.parts > 0 {
            self.store().disk.sync_directory(&checkpoint_directory(&self.store().directory))?;
        }
        Ok(())
    }

    fn join(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }

    /// The names of the files, encoded for the log; `None` if there are no files.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let files: Vec<&TableFile> = self.files.iter().map(|loaded| &loaded.file).collect();
        (!files.is_empty()).then(|| serde_json::to_vec(&files).expect("names and numbers"))
    }

    /// Keeps the files, which belong to a commit.
    pub fn keep(mut self, commit: Ticket) {
        let files = std::mem::take(&mut self.files);
        let needed_to = commit.lsn.expect("there is a log");
        self.store().loads().commit(self.number, Committed { time: commit.time, needed_to, files });
        self.kept = true;
    }

    /// Whether a file could not be written. Then the load must be dropped when the statement that failed because of it is undone:
    /// redo takes the place of its files.
    pub fn has_failed(&self) -> bool {
        self.queue.check().is_err()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.queue.close(false);
        if let Some(writer) = self.writer.take() {
            // A panic of the thread was reported where it happened.
            let _ = writer.join();
        }
        let names = self.store().loads().0.lock().of(self.number).names.clone();
        for name in &names {
            // An error does not matter: opening the database removes the file if it exists.
            let _ = self.store().disk.remove(&checkpoint_directory(&self.store().directory).join(name));
        }
        // Last, since checkpoints do not remove listed files.
        self.store().loads().0.lock().take_off(self.number);
    }
}

/// After a batch of rows was inserted into a private table: has full blocks written, if there is a log.
pub(crate) fn write_ahead(
    engine: &Arc<Engine>,
    loading: &mut Option<Box<Loading>>,
    catalog: &Catalog,
    table: &Arc<Table>,
    snapshot: Snapshot,
) -> Result<()> {
    // The newest block is still being filled.
    let full = table.block_count().saturating_sub(1);
    if full == 0 || !engine.has_log() {
        return Ok(());
    }
    Loading::of(loading, engine, snapshot)?.take_full(table, catalog, full)
}

/// Makes the tables that a transaction has created ready for its commit.
pub(crate) fn write(
    engine: &Arc<Engine>,
    loading: &mut Option<Box<Loading>>,
    ddl: &Ddl,
    snapshot: Snapshot,
    write_set: &mut WriteSet,
) -> Result<()> {
    if !engine.has_log() {
        return Ok(());
    }
    let is_named = |id: TableId| ddl.catalog.tables.values().any(|table| table.storage() == id);
    let made = ddl.actions.iter().filter_map(|action| match action {
        Action::CreateStorage(table) if is_named(table.id()) => Some(table),
        _ => None,
    });
    let made: Vec<&Arc<Table>> = made.collect();
    for table in &made {
        if table.approximate_rows() == 0 {
            continue;
        }
        let loading = Loading::of(loading, engine, snapshot)?;
        loading.take_full(table, &ddl.catalog, table.block_count())?;
    }
    if let Some(loading) = loading {
        loading.finish(&made)?;
    }
    let files = loading.iter().flat_map(|loading| &loading.files);
    let in_files: HashSet<(TableId, BlockNumber)> =
        files.flat_map(|loaded| blocks_of(&loaded.file)).collect();
    for table in made {
        log_rest(engine, table, &in_files, snapshot, write_set)?;
    }
    Ok(())
}

/// Logs the rows of the other blocks.
fn log_rest(
    engine: &Engine,
    table: &Arc<Table>,
    in_files: &HashSet<(TableId, BlockNumber)>,
    snapshot: Snapshot,
    write_set: &mut WriteSet,
) -> Result<()> {
    let numbers = (0..table.block_count()).map(BlockNumber);
    let others = numbers.filter(|number| !in_files.contains(&(table.id(), *number))).collect();
    let scan = table.scan(snapshot, &all_columns(table), true).of_blocks(others);
    loop {
        // No guard is held while this waits for the disk.
        let Some(batch) = scan.next_batch(&pin()) else { return Ok(()) };
        let rows = batch.row_ids.expect("asked for");
        let rows: Vec<RowId> = rows.values().iter().map(|bits| RowId::from_bits(*bits)).collect();
        let mut logged = 0;
        while logged < rows.len() {
            logged += table.log_rows(write_set, &rows, &batch.columns, logged);
            engine.spill_if_long(write_set)?;
        }
    }
}

/// The files that an entry of the log names. Error: XX001.
pub(crate) fn named_by(bytes: &[u8]) -> Result<Vec<TableFile>> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the log names files of a load in a way that cannot be read: {error}");
        Error::new(SqlState::DATA_CORRUPTED, message)
            .with_hint("Restore the database directory from a backup.")
    })
}
