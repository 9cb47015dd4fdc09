//! The engine: one database in this process.
//!
//! It owns the commit clock, the running transactions, the log, the physical tables, the versions
//! of the catalog and the sequences' counters.
//!
//! Commit is one short critical section ([`Engine::commit_section`]): validate against the commits since the
//! validation before it, draw the time, append to the log, stamp, publish. Read times are drawn from the
//! newest published time, which is stored at the very end. So no transaction can draw a read time between the
//! draw and the last stamp.

use crate::active::{ActiveSet, ActiveSlot};
use crate::catalog::{Catalog, IdMarks, Oid, SequenceDef, StorageDef};
use crate::checkpoint::{PinnedCheckpoint, Store};
use crate::collector::Collector;
use crate::config::Config;
use crate::ddl::Ddl;
use crate::epochs::Epochs;
use crate::freezer::{Freezer, Progress};
use crate::isolation::Isolation;
use crate::merger::Merger;
use crate::predicates::PredicateLog;
use crate::recovery;
use crate::role::Replica;
use crate::sequence::SequenceState;
use crate::statistics::{Running, Statistics, TableLock, TableLockMode};
use crate::ticket::Ticket;
use crate::voter::{Lease, Voter};
use crate::waits::Want;
use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::{
    Apart, Arc, AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, OnceLock, Ordering, RwLock, ShortMutex,
    ShortMutexGuard, Weak,
};
use firn_base::thread::JoinHandle;
use firn_base::{Epoch, Error, Lsn, Result, Snapshot, SqlState, Stamp, TableId, Time, clock, thread};
use firn_log::{Follower, Log, LogPoint, Pinned, RedoBuffer};
use firn_storage::{
    Closed, Digest, LetGo, MemoryBudget, Provider, Reaper, Table, TableOptions, WriteSet, pin,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How often garbage is collected while no transaction commits. Miri uses the real clock, and would do
/// nothing else.
const COLLECT_INTERVAL: Duration = Duration::from_millis(if cfg!(miri) { 5_000 } else { 10 });

/// The interval grows up to this while there is nothing to collect, so that an idle database hardly runs.
const IDLE_INTERVAL: Duration = COLLECT_INTERVAL.saturating_mul(16);

/// How often a transaction validates against new commits before it enters the critical section; how often at most while it waits
/// for the section; and how many commits may be left to validate inside.
const VALIDATED_AHEAD: usize = if cfg!(feature = "models") { 2 } else { 8 };
const VALIDATED_WAITING: usize = if cfg!(feature = "models") { 1 } else { 1024 };
const LEFT_TO_VALIDATE: u64 = if cfg!(feature = "models") { 0 } else { 4 };

/// How many hundreds of functions that guards have deferred one tick runs at most: some milliseconds.
const REAPED_AT_ONCE: usize = if cfg!(any(feature = "models", miri)) { 2 } else { 128 };

/// The state that recovery finds, or with which a new database begins.
pub(crate) struct Recovered {
    pub last: Time,
    pub tables: HashMap<TableId, Arc<Table>>,
    pub catalog: Catalog,
    pub sequences: HashMap<Oid, SequenceState>,
    pub marks: IdMarks,
    pub epochs: Epochs,
    pub log: Option<Log>,
    pub store: Option<Store>,
    pub replica: Option<Replica>,
    pub voter: Option<Voter>,
}

impl Recovered {
    /// A new database.
    pub fn nothing() -> Recovered {
        Recovered {
            last: Time(0),
            tables: HashMap::new(),
            catalog: Catalog::bootstrap(),
            sequences: HashMap::new(),
            marks: IdMarks { next_oid: Oid::FIRST_USER.0, next_table: 1 },
            epochs: Epochs::default(),
            log: None,
            store: None,
            replica: None,
            voter: None,
        }
    }
}

/// What every transaction reads when it begins, and every commit writes.
#[derive(Default)]
struct Newest {
    /// The newest published commit time.
    time: AtomicU64,
    /// The position in the log where the newest published commit ends. Stored before its time.
    position: AtomicU64,
    /// The time of the newest entry of the log. Rollbacks and numbers that are drawn take times, too, which are in no log.
    logged: AtomicU64,
}

/// An open database.
pub struct Engine {
    config: Config,
    opened: clock::Instant,
    /// Microseconds since then, stored by the background thread. Transactions note it as their beginning, since reading a clock
    /// costs more.
    slow_clock: AtomicU64,
    memory: Arc<MemoryBudget>,
    statistics: Statistics,
    newest: Apart<Newest>,
    active: ActiveSet,
    /// The right to commit.
    pub(crate) commit: ShortMutex<()>,
    pub(crate) log: Option<Log>,
    /// The directory with the checkpoints. Present if there is a log.
    store: Option<Store>,
    replica: Option<Replica>,
    pub(crate) voting: Mutex<Option<Voter>>,
    pub(crate) lease: Lease,
    /// Where the epochs of the log have begun.
    pub(crate) epochs: Mutex<Epochs>,
    /// The server to which the database is handed over.
    pub(crate) successor: OnceLock<String>,
    tables: RwLock<HashMap<TableId, Arc<Table>>>,
    /// Physical tables that were dropped, with the time from which no new snapshot sees them.
    dropped: Mutex<Vec<(Time, TableId)>>,
    /// Versions of the catalog that some snapshot may read, oldest first, with their times.
    catalogs: RwLock<Vec<(Time, Arc<Catalog>)>>,
    /// The time of the newest of these.
    catalog_time: AtomicU64,
    /// The version of the newest of these.
    catalog_version: AtomicU64,
    next_catalog_version: AtomicU64,
    /// The stamp of the transaction that runs DDL, or 0.
    ddl: AtomicU64,
    next_oid: AtomicU32,
    next_table: AtomicU32,
    pub(crate) sequences: Mutex<HashMap<Oid, SequenceState>>,
    collector: Collector,
    reaper: Mutex<Reaper>,
    freezer: Freezer,
    merger: Merger,
    /// Collects garbage, freezes blocks, and requests checkpoints.
    background: Background,
    /// Encodes blocks and merges dictionaries.
    merging: Background,
    /// Keeps memory ready for blocks and indexes.
    _provider: Arc<Provider>,
}

impl Engine {
    /// Opens or creates the database; recovers it first if need be.
    ///
    /// Errors: 55006 (open elsewhere), XX001 (damaged, with the file and position), 55000 (another
    /// version's, or no database directory), 42501, 53100, 58030.
    pub fn open(config: Config) -> Result<Arc<Engine>> {
        Engine::open_on(Arc::new(RealDisk), config)
    }

    /// As [`Engine::open`], on a disk of the caller's, which tests can break.
    pub fn open_on(disk: Arc<dyn Disk>, mut config: Config) -> Result<Arc<Engine>> {
        firn_storage::reserve(config.reserve_memory, config.threads);
        let memory = Arc::new(MemoryBudget::new(config.memory_limit));
        let recovered = match config.directory.clone() {
            None => Recovered::nothing(),
            Some(directory) => recovery::open(disk, &directory, &mut config, &memory)?,
        };
        Ok(Engine::start(config, memory, recovered))
    }

    fn start(config: Config, memory: Arc<MemoryBudget>, recovered: Recovered) -> Arc<Engine> {
        let version = recovered.catalog.version;
        if recovered.replica.is_some() {
            recovered.tables.values().for_each(|table| table.follow_log());
        }
        // What has been recovered is visible.
        let recovered_to = recovered.log.as_ref().map_or(0, |log| log.committed_lsn().0);
        let position = recovered.replica.as_ref().map_or(recovered_to, |replica| replica.replayed().0);
        let engine = Arc::new(Engine {
            config,
            opened: clock::now(),
            slow_clock: AtomicU64::new(0),
            memory,
            statistics: Statistics::default(),
            newest: Apart(Newest {
                time: AtomicU64::new(recovered.last.0),
                position: AtomicU64::new(position),
                logged: AtomicU64::new(recovered.last.0),
            }),
            active: ActiveSet::new(),
            commit: ShortMutex::new(()),
            log: recovered.log,
            store: recovered.store,
            replica: recovered.replica,
            voting: Mutex::new(recovered.voter),
            lease: Lease::default(),
            epochs: Mutex::new(recovered.epochs),
            successor: OnceLock::new(),
            tables: RwLock::new(recovered.tables),
            dropped: Mutex::default(),
            catalogs: RwLock::new(vec![(recovered.last, Arc::new(recovered.catalog))]),
            catalog_time: AtomicU64::new(recovered.last.0),
            catalog_version: AtomicU64::new(version),
            next_catalog_version: AtomicU64::new(version + 1),
            ddl: AtomicU64::new(0),
            next_oid: AtomicU32::new(recovered.marks.next_oid),
            next_table: AtomicU32::new(recovered.marks.next_table),
            sequences: Mutex::new(recovered.sequences),
            collector: Collector::default(),
            reaper: Mutex::default(),
            freezer: Freezer::default(),
            merger: Merger::default(),
            background: Background::default(),
            merging: Background::default(),
            _provider: Provider::shared(),
        });
        if !engine.config.has_threads {
            return engine;
        }
        engine.background.start(&engine, "firn-background", Engine::tick);
        // Models call the merger themselves: another thread would multiply the schedules.
        #[cfg(not(feature = "models"))]
        engine
            .merging
            .start(&engine, "firn-merge", |engine| engine.compact_if_due(engine.config.compact_after));
        engine
    }

    /// How it was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What makes it a replica, if it is one.
    #[inline]
    pub(crate) fn replica(&self) -> Option<&Replica> {
        self.replica.as_ref().filter(|replica| !replica.is_promoted())
    }

    /// How much memory the store holds, and may hold.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalogs.read().last().expect("there is always a version").1.clone()
    }

    /// The catalog that `snapshot` sees, its own changes apart.
    pub(crate) fn catalog_at(&self, snapshot: Snapshot) -> Arc<Catalog> {
        let catalogs = self.catalogs.read();
        let newer = catalogs.partition_point(|(time, _)| *time <= snapshot.read_time);
        catalogs[newer.saturating_sub(1)].1.clone()
    }

    /// The version of the newest committed catalog.
    #[inline]
    pub fn catalog_version(&self) -> u64 {
        self.catalog_version.load(Ordering::Acquire)
    }

    /// The version of the catalog that `snapshot` sees, if that is the newest: a fast check whether a cached plan is still
    /// valid.
    #[inline]
    pub(crate) fn newest_catalog_version(&self, snapshot: Snapshot) -> Option<u64> {
        // The version is stored before the time, and both before a snapshot can read at that time.
        let version = self.catalog_version.load(Ordering::Acquire);
        let time = self.catalog_time.load(Ordering::Acquire);
        (time <= snapshot.read_time.0 && self.catalog_version.load(Ordering::Acquire) == version)
            .then_some(version)
    }

    /// The physical table of an id. Panics if there is none: ids come from the catalog.
    pub fn table(&self, id: TableId) -> Arc<Table> {
        self.tables.read().get(&id).expect("the catalog names existing tables").clone()
    }

    /// The physical table of an id, if it still exists.
    pub fn find_table(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.read().get(&id).cloned()
    }

    /// Every physical table.
    pub(crate) fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Whether there is a log, for which committers wait.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Every physical table that more than one transaction can use.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().filter(|table| table.is_published()).cloned().collect()
    }

    /// A new object id; never returned again, also after a crash.
    pub fn allocate_oid(&self) -> Oid {
        Oid(self.next_oid.fetch_add(1, Ordering::Relaxed))
    }

    /// The next value of a sequence, outside transactions: never returned twice, also after a crash.
    ///
    /// Errors: 2200H when it is exhausted; 53100, 58030 if the log cannot take it, and then the sequence has not advanced; 25006 in
    /// a replica.
    pub fn next_value(&self, sequence: &SequenceDef) -> Result<i64> {
        self.check_writable()?;
        let mut sequences = self.sequences.lock();
        let state = sequences.entry(sequence.oid).or_insert_with(|| SequenceState::new(sequence));
        let before = *state;
        let (value, log) = state.advance(sequence)?;
        if let Some(reached) = log
            && let Err(error) = self.log_sequence(sequence.oid, reached, true)
        {
            *state = before;
            return Err(error);
        }
        Ok(value)
    }

    /// What `setval` does: `value` counts as already returned if `is_called`.
    pub fn set_value(&self, sequence: &SequenceDef, value: i64, is_called: bool) -> Result<()> {
        self.check_writable()?;
        if !(sequence.minimum..=sequence.maximum).contains(&value) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    sequence.name, sequence.minimum, sequence.maximum
                ),
            ));
        }
        let mut sequences = self.sequences.lock();
        self.log_sequence(sequence.oid, value, is_called)?;
        sequences.insert(sequence.oid, SequenceState::recovered(value, is_called));
        Ok(())
    }

    /// The value last returned and whether one was: `SELECT last_value, is_called FROM seq`.
    pub fn last_value(&self, sequence: &SequenceDef) -> (i64, bool) {
        let sequences = self.sequences.lock();
        let state = sequences.get(&sequence.oid).copied().unwrap_or_else(|| SequenceState::new(sequence));
        (state.value, state.called)
    }

    fn log_sequence(&self, oid: Oid, value: i64, called: bool) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut redo = spare_redo();
        redo.sequence_advance(oid.0, value, called);
        self.append_alone(log, redo).map(drop)
    }

    /// Appends records that are of no transaction. Returns where they end.
    fn append_alone(&self, log: &Log, redo: RedoBuffer) -> Result<Lsn> {
        loop {
            let turn = self.commit.lock();
            let time = Time(self.newest.time.load(Ordering::Relaxed) + 1);
            if let Some(end) = log.append(time, redo.as_bytes())? {
                self.newest.logged.store(time.0, Ordering::Relaxed);
                self.newest.time.store(time.0, Ordering::SeqCst);
                drop(turn);
                keep_redo(redo);
                return Ok(end);
            }
            drop(turn);
            log.make_room(redo.as_bytes().len())?;
        }
    }

    /// Appends a commit of nothing. Returns where it ends.
    pub(crate) fn append_nothing(&self) -> Result<Lsn> {
        self.append_alone(self.log.as_ref().ok_or_else(no_log)?, spare_redo())
    }

    /// Writes a restore point: a name for this place in the log, to which a backup can be restored. Returns the place, once it is
    /// on disk.
    ///
    /// Errors: 55000 without a directory; 53100, 58030 if the log cannot take it; 25006 in a replica.
    pub fn create_restore_point(&self, name: &str) -> Result<Lsn> {
        self.check_writable()?;
        let log = self.log.as_ref().ok_or_else(no_log)?;
        let mut redo = spare_redo();
        redo.restore_point(name);
        let end = self.append_alone(log, redo)?;
        log.wait_committed(end, &|| Ok(()))?;
        Ok(end)
    }

    /// The newest committed time.
    pub fn now(&self) -> Time {
        Time(self.newest.time.load(Ordering::Acquire))
    }

    /// The number of ended transactions whose undo records a snapshot may still need, plus the number of undo records of earlier
    /// transactions that a snapshot needs.
    pub fn garbage_backlog(&self) -> usize {
        self.collector.backlog()
    }

    /// A unique number, greater than all before: a time at which no transaction ends. It is not returned again after a restart,
    /// either, if anything was committed after it: then recovery finds a greater time in the log. Error: 25006 in a replica.
    pub fn draw_number(&self) -> Result<u64> {
        self.check_writable()?;
        let turn = self.commit.lock();
        let time = self.newest.time.load(Ordering::Relaxed) + 1;
        self.newest.time.store(time, Ordering::SeqCst);
        drop(turn);
        Ok(time)
    }

    /// A number greater than all that [`Engine::draw_number`] has returned.
    pub fn next_number(&self) -> u64 {
        self.newest.time.load(Ordering::SeqCst) + 1
    }

    /// Collects what no snapshot needs any more, as the background thread does from time to time.
    pub fn collect(&self) {
        self.collector.collect(&self.active, &self.newest.time, self.safe_time(), &self.memory);
    }

    /// Counters since the database was opened.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The running transactions, the readers of checkpoints included.
    pub fn running(&self) -> Vec<Running> {
        let now = self.opened.elapsed().as_micros() as u64;
        self.active.running_now(&self.newest.time, now, &|want| self.holders_of(want))
    }

    /// The transactions that hold what another one wants, except those that write to a table or lock rows of it.
    pub(crate) fn holders_of(&self, want: Want) -> Vec<Stamp> {
        match want {
            Want::Write(table) | Want::Lock(table) | Want::Share(table) => {
                self.find_table(table).map_or_else(Vec::new, |table| table.gate().closed_by())
            }
            Want::WriteToo(table) => {
                self.find_table(table).map_or_else(Vec::new, |table| table.gate().closed_to_write_too_by())
            }
            Want::LockRows(table) => {
                self.find_table(table).and_then(|table| table.gate().closed_to_all_by()).into_iter().collect()
            }
            Want::Maintain(table) => {
                self.find_table(table).and_then(|table| table.gate().maintained_by()).into_iter().collect()
            }
            Want::Unwritten(_) | Want::Alone(_) => Vec::new(),
            Want::Catalog => self.ddl_by().into_iter().collect(),
        }
    }

    /// The transactions that hold or wait for locks of whole tables. Transactions may begin and end meanwhile.
    pub fn table_locks(&self) -> Vec<TableLock> {
        let running = self.running();
        let mut locks = Vec::new();
        for transaction in &running {
            let lock = |table, mode, is_granted| TableLock {
                transaction: transaction.id,
                session: transaction.session,
                table,
                mode,
                is_granted,
            };
            let locks_in = transaction.locks_in.iter();
            locks.extend(locks_in.map(|table| lock(Some(*table), TableLockMode::LockingRows, true)));
            let writes_to = transaction.writes_to.iter();
            locks.extend(writes_to.map(|table| lock(Some(*table), TableLockMode::Writing, true)));
            locks.extend(transaction.wants.map(|want| match want {
                Want::LockRows(table) => lock(Some(table), TableLockMode::LockingRows, false),
                Want::Write(table) | Want::WriteToo(table) => {
                    lock(Some(table), TableLockMode::Writing, false)
                }
                Want::Maintain(table) => lock(Some(table), TableLockMode::Maintaining, false),
                Want::Share(table) => lock(Some(table), TableLockMode::Sharing, false),
                Want::Lock(table) => lock(Some(table), TableLockMode::Alone, false),
                Want::Unwritten(id) | Want::Alone(id) => {
                    let table = self.find_table(id);
                    lock(Some(id), table.map_or(TableLockMode::Alone, |table| mode_of(&table)), false)
                }
                Want::Catalog => lock(None, TableLockMode::Alone, false),
            }));
        }
        let mut note = |table: Option<TableId>, by: Stamp, mode: TableLockMode| {
            let Some(by) = by.sequence() else { return };
            let Some(holder) = running.iter().find(|transaction| transaction.id == by) else { return };
            // A transaction that keeps others out may still wait for earlier ones to end.
            let is_about_to =
                |table| [Some(Want::Unwritten(table)), Some(Want::Alone(table))].contains(&holder.wants);
            if mode == TableLockMode::Maintaining || !table.is_some_and(is_about_to) {
                locks.push(TableLock {
                    transaction: by,
                    session: holder.session,
                    table,
                    mode,
                    is_granted: true,
                });
            }
        };
        for table in self.tables() {
            let (gate, id, mode) = (table.gate(), Some(table.id()), mode_of(&table));
            gate.maintained_by().into_iter().for_each(|by| note(id, by, TableLockMode::Maintaining));
            gate.closed_by().into_iter().for_each(|by| note(id, by, mode));
        }
        self.ddl_by().into_iter().for_each(|by| note(None, by, TableLockMode::Alone));
        locks
    }

    /// Transactions that have ended, whether they wrote or not.
    pub fn ended_transactions(&self) -> u64 {
        self.active.ended()
    }

    /// How many commits the oldest snapshot is behind the newest.
    pub fn oldest_snapshot_commits(&self) -> u64 {
        self.now().0.saturating_sub(self.active.horizon(&self.newest.time).0)
    }

    /// Bytes that were ever written to the log, and how many of them are on disk; 0 without one.
    pub fn log_bytes(&self) -> (u64, u64) {
        self.log.as_ref().map_or((0, 0), |log| (log.appended_lsn().0, log.durable_lsn().0))
    }

    /// The position up to which the log is on disk: commits with this position or an earlier one are durable.
    pub fn durable_lsn(&self) -> Lsn {
        // Without a log no commit has a position, and nothing waits for one.
        self.log.as_ref().map_or(Lsn(u64::MAX), Log::durable_lsn)
    }

    /// Writes a checkpoint now and removes the log before it. No effect without a directory.
    pub fn checkpoint(&self) -> Result<()> {
        let Some((store, log)) = self.store_and_log() else { return Ok(()) };
        store.checkpoint(self, log)
    }

    /// A reader of the log from a point on, while it is written. It retains that part of the log with the files that the log
    /// names there, as far as `max_slot_wal_keep_size` allows. `holder` names it for people.
    ///
    /// Errors: 55000 without a directory; 58P01 if part of that has been removed.
    pub fn follow(&self, holder: &str, from: LogPoint) -> Result<Follower> {
        self.log.as_ref().ok_or_else(no_log)?.follow(holder, from)
    }

    /// Retains the newest checkpoint and the log after it, until the pin is dropped. Errors as of [`Engine::follow`].
    pub fn pin_checkpoint(&self, holder: &str) -> Result<PinnedCheckpoint> {
        let (store, log) = self.store_and_log().ok_or_else(no_log)?;
        store.pin_checkpoint(log, holder)
    }

    /// Whether a copy of the log can begin at a position, which is retained. It cannot in a part that an earlier version has
    /// written, or if the log is empty.
    pub fn can_copy_from(&self, lsn: Lsn) -> bool {
        self.log.as_ref().is_some_and(|log| log.can_copy_from(lsn))
    }

    /// The epoch of what is in the log before a position, as far as is known.
    pub fn epoch_before(&self, lsn: Lsn) -> Option<Epoch> {
        self.epochs.lock().before(lsn)
    }

    /// Where the log of an epoch ends, if a later one has begun: commits of that epoch behind this position are lost.
    pub fn end_of_epoch(&self, epoch: Epoch) -> Option<Lsn> {
        self.epochs.lock().end_of(epoch)
    }

    /// Whether a point is of the log's history, and durable. Errors: 58P01 if that is unknown, since the log there has been removed;
    /// 55000 without a directory.
    pub fn has_point(&self, point: LogPoint) -> Result<bool> {
        self.log.as_ref().ok_or_else(no_log)?.has(point)
    }

    /// What followers and pins retain.
    pub fn pinned(&self) -> Vec<Pinned> {
        self.log.as_ref().map_or_else(Vec::new, Log::pinned)
    }

    /// Waits until everything that has been committed is on disk, also with `synchronous_commit = off`.
    pub fn flush_log(&self) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.wait_durable(log.appended_lsn()))
    }

    /// The place in the log's history up to which it is on disk; that of an empty log without a directory.
    pub fn log_point(&self) -> Result<LogPoint> {
        self.log.as_ref().map_or(Ok(LogPoint::START), Log::point)
    }

    /// Stops background work, flushes the log, and writes a checkpoint so that the next opening need not replay the log. Dropping
    /// the last handle only flushes, and cannot report an error.
    pub fn close(&self) -> Result<()> {
        self.background.stop();
        self.merging.stop();
        let Some((store, log)) = self.store_and_log() else { return Ok(()) };
        // A checkpoint may wait for other voters, which are not there.
        self.end_waits();
        store.stop();
        log.wait_durable(log.appended_lsn())?;
        // What no majority has must not be in a checkpoint.
        let is_committed = log.committed_lsn() >= log.appended_lsn() || self.is_replica();
        if is_committed && store.has_news(log) { store.checkpoint(self, log) } else { Ok(()) }
    }

    /// Where queries put rows for which there is no memory.
    pub fn temporary_directory(&self) -> PathBuf {
        let chosen = self.config.temporary_directory.as_ref().or(self.config.directory.as_ref());
        chosen.cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// The directory and the log, of a database that has them.
    pub(crate) fn store_and_log(&self) -> Option<(&Store, &Log)> {
        self.store.as_ref().zip(self.log.as_ref())
    }

    /// Adds a transaction, or a reader without one, to the running ones, and takes its snapshot; 53300 if too
    /// many run already. [`Engine::leave`] removes it.
    #[inline]
    pub(crate) fn enter(&self, isolation: Isolation) -> Result<(ActiveSlot, Snapshot)> {
        self.active.enter(&self.newest.time, isolation, self.slow_clock.load(Ordering::Relaxed))
    }

    /// A redo buffer for a transaction that may write; `None` without a log.
    #[inline]
    pub(crate) fn redo_buffer(&self) -> Option<RedoBuffer> {
        self.log.is_some().then(spare_redo)
    }

    // ---- for transactions ----

    /// Checks that what a transaction has read still reads the same, 40001 if not; returns the time up to
    /// which that is known.
    ///
    /// Any number of transactions can do this at the same time. What commits meanwhile is validated in the
    /// critical section. From the first of several such calls until the last the transaction is
    /// [advancing](ActiveSet::advance): otherwise the later of two changes of a row might be moved to the
    /// attic, and be merged there with the earlier one, after the earlier one was checked.
    pub(crate) fn validate(&self, reads: &mut PredicateLog, snapshot: Snapshot, since: Time) -> Result<Time> {
        let now = Time(self.newest.time.load(Ordering::SeqCst));
        let mut validated = since;
        while validated < now {
            let granularity = self.config.granularity;
            let guard = &pin();
            let outcome = match self.collector.ended_between(validated, now, guard) {
                Some((ended, until)) => {
                    validated = until;
                    reads.validate(snapshot, now, &ended, granularity, guard)
                }
                None => self.collector.look_in_attic(|attic, until| {
                    debug_assert!(validated < until && until <= now);
                    validated = until;
                    reads.validate_attic(snapshot, now, attic, granularity)
                }),
            };
            outcome.inspect_err(|_| self.statistics.validation_failures.count())?;
        }
        if self.catalog_time.load(Ordering::Acquire) > snapshot.read_time.0 {
            let tables = self.tables.read();
            // A table that does not exist was created and dropped by the transaction itself.
            let mut read = reads.tables().filter_map(|table| tables.get(&table));
            if let Some(table) = read.find(|table| !table.gate().admits(snapshot)) {
                self.statistics.validation_failures.count();
                return Err(Error::read_conflict(&table.name()));
            }
        }
        Ok(now)
    }

    /// Whether the committed catalog has changed since a time.
    pub(crate) fn has_changed_catalog_since(&self, time: Time) -> bool {
        self.catalog_time.load(Ordering::Acquire) > time.0
    }

    /// Validates before the critical section, until few commits are left for it.
    pub(crate) fn validate_ahead(
        &self,
        slot: &ActiveSlot,
        reads: &mut PredicateLog,
        snapshot: Snapshot,
    ) -> Result<Time> {
        let mut validated = snapshot.read_time;
        for _ in 0..VALIDATED_AHEAD {
            let now = self.newest.time.load(Ordering::SeqCst);
            if now <= validated.0 {
                break;
            }
            if validated == snapshot.read_time {
                self.active.advance(slot, validated, &self.newest.time);
            }
            validated = self.validate(reads, snapshot, validated)?;
            if self.newest.time.load(Ordering::Relaxed) <= validated.0 + LEFT_TO_VALIDATE {
                break;
            }
        }
        Ok(validated)
    }

    /// Writes the redo of a long transaction from memory to disk. Errors: 53100, 58030.
    #[cold]
    pub(crate) fn spill_redo(&self, write_set: &mut WriteSet) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| write_set.spill_redo(log.spills()))
    }

    /// Writes redo to disk if it is long.
    #[inline]
    pub(crate) fn spill_if_long(&self, write_set: &mut WriteSet) -> Result<()> {
        if write_set.has_long_redo(self.config.log.spill_bytes) { self.spill_redo(write_set) } else { Ok(()) }
    }

    /// Before a commit: syncs the redo that has been written to disk.
    #[inline]
    pub(crate) fn seal_redo(&self, write_set: &mut WriteSet) -> Result<()> {
        match (&self.log, write_set.redo()) {
            (Some(log), Some(redo)) => redo.seal(log.spills()),
            _ => Ok(()),
        }
    }

    /// The right to commit, for a transaction whose reads are valid up to a time. While it waits it validates against what others
    /// commit, so that little is left to do while others wait for it.
    fn validated_turn(
        &self,
        slot: &ActiveSlot,
        reads: &mut PredicateLog,
        snapshot: Snapshot,
        mut validated: Time,
    ) -> Result<ShortMutexGuard<'_, ()>> {
        let (mut waited, mut given_up) = (0, 0);
        loop {
            let newest = || self.newest.time.load(Ordering::Relaxed);
            let may_validate = waited < VALIDATED_WAITING;
            let turn = self.commit.lock_or(|| may_validate && newest() > validated.0);
            if let Some(turn) = turn {
                if newest() <= validated.0 + LEFT_TO_VALIDATE || given_up == VALIDATED_AHEAD {
                    self.validate(reads, snapshot, validated)?;
                    return Ok(turn);
                }
                given_up += 1;
            }
            waited += 1;
            if validated == snapshot.read_time {
                self.active.advance(slot, validated, &self.newest.time);
            }
            validated = self.validate(reads, snapshot, validated)?;
        }
    }

    /// The critical section of commit. An error changes nothing.
    pub(crate) fn commit_section(
        &self,
        slot: &ActiveSlot,
        mut write_set: WriteSet,
        ddl: Option<&Ddl>,
        mut reads: Option<(&mut PredicateLog, Snapshot, Time)>,
    ) -> std::result::Result<Ticket, Box<(Error, WriteSet)>> {
        if let (Some(ddl), Some(redo)) = (ddl, write_set.redo()) {
            redo.catalog_change(&ddl.log_entry(self));
        }
        let digest = write_set.digest();
        let (turn, time, lsn) = loop {
            let turn = match &mut reads {
                None => self.commit.lock(),
                Some((reads, snapshot, validated)) => {
                    match self.validated_turn(slot, reads, *snapshot, *validated) {
                        Ok(turn) => turn,
                        Err(error) => return Err(Box::new((error, write_set))),
                    }
                }
            };
            let time = Time(self.newest.time.load(Ordering::Relaxed) + 1);
            let (Some(log), Some(redo)) = (&self.log, write_set.redo()) else { break (turn, time, None) };
            match log.append(time, redo.as_bytes()) {
                Ok(Some(end)) => {
                    redo.logged(end);
                    break (turn, time, Some(end));
                }
                // Others commit meanwhile.
                refused => {
                    drop(turn);
                    let made = refused.and_then(|_| log.make_room(redo.as_bytes().len()));
                    if let Err(error) = made {
                        return Err(Box::new((error, write_set)));
                    }
                }
            }
        };
        write_set.stamp(time);
        if let Some(ddl) = ddl {
            self.publish_catalog(ddl, time);
        }
        self.end(turn, write_set, digest, time, Some(lsn));
        Ok(Ticket { time, lsn, has_written: true })
    }

    /// The same for a commit that is replayed, at the time that it has in the log, where it ends at `end`. In a replica only this moves
    /// the clock.
    pub(crate) fn replay_section(&self, write_set: WriteSet, ddl: Option<&Ddl>, time: Time, end: Lsn) {
        let digest = write_set.digest();
        let turn = self.commit.lock();
        assert!(time.0 > self.newest.time.load(Ordering::Relaxed), "commits are replayed in their order");
        write_set.stamp(time);
        if let Some(ddl) = ddl {
            self.publish_catalog(ddl, time);
            // Their rows have no records. So the next checkpoint finds that they have changed.
            ddl.created_storage().for_each(|table| table.gate().note_commit(write_set.owner(), time));
        }
        self.end(turn, write_set, digest, time, Some(Some(end)));
        // After the time: who finds this position takes a snapshot that sees the commit.
        if let Some(replica) = self.replica() {
            replica.show(end);
        }
    }

    /// Gives the undone records of a rolled-back write set a time of their own, so that only readers that
    /// began before still apply them. Locks end in the same way; they need no log.
    pub(crate) fn rollback_section(&self, write_set: WriteSet) {
        assert!(!self.is_replica(), "no transaction of a replica has changed or locked anything");
        let digest = write_set.digest();
        let turn = self.commit.lock();
        let time = Time(self.newest.time.load(Ordering::Relaxed) + 1);
        write_set.stamp(time);
        self.end(turn, write_set, digest, time, None);
    }

    /// The same for rows that a running transaction releases.
    pub(crate) fn release_section(&self, owner: Stamp, released: LetGo) {
        let counted = released.counted_bytes();
        let turn = self.commit.lock();
        let time = Time(self.newest.time.load(Ordering::Relaxed) + 1);
        let retired = released.end(time);
        let (records, bytes) = (retired.record_count(), retired.bytes);
        self.collector.retire(retired);
        self.newest.time.store(time.0, Ordering::SeqCst);
        drop(turn);
        self.memory.retire(owner.sequence().expect("transactions write"), records, bytes);
        self.memory.forget_unfinished(counted);
    }

    /// Lists a write set that has been stamped with `time` for collection, publishes the time, and releases the right to commit.
    /// `commit` is `None` for a rollback; for a commit it has the position in the log where the commit ends, if there is a log.
    fn end(
        &self,
        turn: ShortMutexGuard<'_, ()>,
        write_set: WriteSet,
        digest: Box<Digest>,
        time: Time,
        commit: Option<Option<Lsn>>,
    ) {
        let unfinished = write_set.counted_bytes();
        let owner = write_set.owner().sequence().expect("transactions write");
        let (retired, redo) = write_set.retire(time, digest);
        let (records, bytes) = (retired.record_count(), retired.bytes);
        // After it is listed other threads may collect it.
        let guard = &pin();
        let digest = retired.digest(guard);
        // Listed before the time is published: validation up to a time finds everything that ended by then.
        self.collector.retire(retired);
        if let Some(Some(lsn)) = commit {
            self.newest.position.store(lsn.0, Ordering::Relaxed);
            self.newest.logged.store(time.0, Ordering::Relaxed);
        }
        // Publish: from here on snapshots see the commit, and everything above.
        self.newest.time.store(time.0, Ordering::SeqCst);
        if commit.is_some() {
            digest.note_commit();
        }
        drop(turn);
        digest.leave_gates();
        let Statistics { commits, rollbacks, .. } = &self.statistics;
        if commit.is_some() { commits } else { rollbacks }.count(owner);
        self.memory.retire(owner, records, bytes);
        self.memory.forget_unfinished(unfinished);
        if let Some(redo) = redo {
            keep_redo(redo);
        }
    }

    fn publish_catalog(&self, ddl: &Ddl, time: Time) {
        ddl.publish(time, self);
        let horizon = self.active.horizon(&self.newest.time);
        let mut catalogs = self.catalogs.write();
        catalogs.push((time, ddl.catalog.clone()));
        // No snapshot reads before the horizon: of the versions up to it only the newest is needed.
        let needless = catalogs.partition_point(|(time, _)| *time <= horizon).saturating_sub(1);
        catalogs.drain(..needless);
        self.catalog_version.store(ddl.catalog.version, Ordering::Release);
        self.catalog_time.store(time.0, Ordering::Release);
    }

    /// The time of the newest commit: what a snapshot sees of which this is the newest time, one of a later time sees, too, as long as
    /// there is no other commit.
    pub(crate) fn logged_time(&self) -> Time {
        // Relaxed: a thread that has loaded a time from `last` sees what was stored before it.
        Time(self.newest.logged.load(Ordering::Relaxed))
    }

    /// The running transactions.
    pub(crate) fn active(&self) -> &ActiveSet {
        &self.active
    }

    /// The newest published commit time.
    pub(crate) fn last(&self) -> &AtomicU64 {
        &self.newest.time
    }

    /// The position up to which the log must be on disk for everything to be durable that a snapshot drawn just now sees.
    pub(crate) fn last_position(&self) -> Lsn {
        // Relaxed: a thread that has loaded a time from `last` sees what was stored before it.
        Lsn(self.newest.position.load(Ordering::Relaxed))
    }

    /// Notes that everything up to a position is published.
    pub(crate) fn raise_position(&self, to: Lsn) {
        self.newest.position.fetch_max(to.0, Ordering::Relaxed);
    }

    /// The position that a reader of commits up to `position` must wait for; `None` if they are durable. If the log has failed,
    /// waiting returns the error: what was not on disk by then never will be.
    pub(crate) fn unflushed_position(&self, position: Lsn) -> Option<Lsn> {
        (self.log.as_ref()?.committed_lsn() < position).then_some(position)
    }

    /// Everything that ended up to this time is durable, or need not be.
    fn safe_time(&self) -> Time {
        let Some(log) = &self.log else { return Time(u64::MAX) };
        // In this order: the position covers everything that was published by then.
        let published = Time(self.newest.time.load(Ordering::Acquire));
        if log.committed_lsn() >= self.last_position() { published } else { log.committed_time() }
    }

    /// Whether what was read with a snapshot of this time reads the same in a state that is on disk. False when in doubt.
    pub(crate) fn has_read_durable(&self, reads: &PredicateLog, read_time: Time) -> bool {
        let safe = self.safe_time();
        // A transaction that has not read a table may have read its definition.
        self.catalog_time.load(Ordering::Acquire) <= safe.0
            && self.collector.holds_since(safe, read_time, |ended| !reads.is_touched_by(ended))
    }

    pub(crate) fn leave(&self, slot: &ActiveSlot) {
        self.active.leave(slot);
    }

    /// Collects garbage if there is enough.
    #[inline]
    pub(crate) fn collect_if_due(&self) {
        if self.collector.is_due(&self.newest.time) {
            self.collector.collect_inline(&self.active, &self.newest.time, self.safe_time(), &self.memory);
        }
    }

    /// Frees what can be freed, for a transaction that needs memory.
    #[cold]
    pub(crate) fn collect_now(&self) {
        // Also old versions of commits that are not on disk yet.
        self.collector.collect(&self.active, &self.newest.time, Time(u64::MAX), &self.memory);
        self.forget_dropped_tables();
        self.memory.look_around();
    }

    /// Runs `body` while no thread collects.
    pub(crate) fn with_collection_paused<T>(&self, body: impl FnOnce() -> T) -> T {
        self.collector.with_collection_paused(body)
    }

    /// What the background thread does at each interval; returns whether there was anything to do.
    fn tick(self: &Arc<Self>) -> bool {
        self.slow_clock.store(self.opened.elapsed().as_micros() as u64, Ordering::Relaxed);
        let collected = self.collector.backlog() > 0;
        self.collect();
        let reaps = self.reaper.lock().reap(REAPED_AT_ONCE, pin);
        if let Some((store, log)) = self.store_and_log() {
            store.checkpoint_if_due(self, log, self.config.checkpoint_after_bytes);
            // What cannot be removed now is tried again.
            let _ = store.remove_released(log);
        }
        let drops = self.forget_dropped_tables();
        let freezes = self.freezer.work(self, self.config.freeze_after) == Progress::Working;
        collected || reaps || drops || freezes
    }

    /// Does what the background thread does at each interval: for simulations, whose engines have no threads. Returns whether there was
    /// anything to do.
    pub fn work_in_background(self: &Arc<Self>) -> bool {
        self.tick()
    }

    /// Does part of the work of freezing blocks that have not been written to for `freeze_after`, as the background thread does
    /// with [`Config::freeze_after`]; tables with a time of their own use that. Returns the furthest progress of all tables.
    pub fn freeze(self: &Arc<Self>, freeze_after: Duration) -> Progress {
        self.freezer.work(self, Some(freeze_after))
    }

    /// Encodes blocks that have been frozen for `compact_after`, if that saves memory, as a background thread does with
    /// [`Config::compact_after`]; tables with a time of their own use that. Returns whether there was anything to do. Must not be
    /// called while a guard is held.
    pub fn compact(self: &Arc<Self>, compact_after: Duration) -> bool {
        self.compact_if_due(Some(compact_after))
    }

    /// Rows of compact blocks cannot be changed in place, and those of a replica must be.
    fn compact_if_due(self: &Arc<Self>, compact_after: Option<Duration>) -> bool {
        !self.is_replica() && self.merger.work(self, compact_after)
    }

    /// Whether the database is about to be closed, so that no long work should begin.
    pub(crate) fn is_closing(&self) -> bool {
        self.background.stopped.load(Ordering::Acquire)
    }

    /// Frees dropped tables that no snapshot sees any more; returns whether any had been dropped.
    fn forget_dropped_tables(&self) -> bool {
        let mut dropped = self.dropped.lock();
        let drops = !dropped.is_empty();
        if drops {
            let horizon = self.active.horizon(&self.newest.time);
            let gone: Vec<TableId> =
                dropped.extract_if(.., |(time, _)| *time <= horizon).map(|(_, table)| table).collect();
            let mut tables = self.tables.write();
            gone.iter().for_each(|table| drop(tables.remove(table)));
        }
        drops
    }

    pub(crate) fn create_table(&self, name: &str, columns: Vec<firn_storage::ColumnSpec>) -> Arc<Table> {
        let id = TableId(self.next_table.fetch_add(1, Ordering::Relaxed));
        let options = TableOptions { block_bytes: self.config.block_bytes, budget: self.memory.clone() };
        let table = Table::new(id, name, columns, options);
        table.keep_private();
        self.tables.write().insert(id, table.clone());
        table
    }

    /// Creates a table that the log describes, in a replica.
    pub(crate) fn create_replayed_table(&self, definition: &StorageDef) -> Arc<Table> {
        let id = TableId(definition.id);
        let options = TableOptions { block_bytes: self.config.block_bytes, budget: self.memory.clone() };
        let table = Table::new(id, &definition.name, definition.column_specs(), options);
        table.keep_private();
        table.follow_log();
        self.tables.write().insert(id, table.clone());
        table
    }

    /// No id below these is returned from now on.
    pub(crate) fn raise_id_marks(&self, marks: IdMarks) {
        self.next_oid.fetch_max(marks.next_oid, Ordering::Relaxed);
        self.next_table.fetch_max(marks.next_table, Ordering::Relaxed);
    }

    pub(crate) fn forget_table(&self, id: TableId) {
        self.tables.write().remove(&id);
    }

    pub(crate) fn drop_table_after(&self, id: TableId, time: Time) {
        self.dropped.lock().push((time, id));
    }

    pub(crate) fn id_marks(&self) -> IdMarks {
        IdMarks {
            next_oid: self.next_oid.load(Ordering::Relaxed),
            next_table: self.next_table.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn fresh_catalog_version(&self) -> u64 {
        self.next_catalog_version.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the right to change the catalog; false if another transaction has it.
    pub(crate) fn try_begin_ddl(&self, owner: Stamp) -> bool {
        self.ddl.compare_exchange(0, owner.to_bits(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The transaction that has the right to change the catalog.
    pub(crate) fn ddl_by(&self) -> Option<Stamp> {
        Some(self.ddl.load(Ordering::SeqCst)).filter(|bits| *bits != 0).map(Stamp::from_bits)
    }

    pub(crate) fn end_ddl(&self) {
        self.ddl.store(0, Ordering::SeqCst);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.background.stop();
        self.merging.stop();
        if let Some(store) = &self.store {
            store.stop();
        }
        if let Some(log) = self.log.take() {
            // A caller that needs the error calls `close`.
            let _ = log.close();
        }
    }
}

#[cold]
pub(crate) fn no_log() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "a database in memory has no log")
        .with_hint("Open the database with a directory.")
}

/// The mode in which a table is locked.
fn mode_of(table: &Table) -> TableLockMode {
    match table.gate().how_closed() {
        Some(Closed::Together) => TableLockMode::Sharing,
        Some(Closed::ToWriters) => TableLockMode::WritingAlone,
        // Or it has just been opened.
        Some(Closed::ToAll) | None => TableLockMode::Alone,
    }
}

thread_local! {
    /// A redo buffer to reuse.
    static SPARE: std::cell::Cell<Option<RedoBuffer>> = const { std::cell::Cell::new(None) };
}

fn spare_redo() -> RedoBuffer {
    SPARE.take().unwrap_or_default()
}

/// Redo buffers that are longer are not kept.
const SPARE_REDO_BYTES: usize = 1 << 20;

/// Keeps a redo buffer's memory for the next transaction of this thread.
pub(crate) fn keep_redo(mut redo: RedoBuffer) {
    if redo.as_bytes().len() <= SPARE_REDO_BYTES {
        redo.clear();
        SPARE.set(Some(redo));
    }
}

/// A background thread.
#[derive(Default)]
struct Background {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl Background {
    /// Starts the thread, which runs `work` at intervals that are shorter while there is something to do.
    fn start(&self, engine: &Arc<Engine>, name: &'static str, work: fn(&Arc<Engine>) -> bool) {
        let stopping = self.stopping.clone();
        let engine: Weak<Engine> = Arc::downgrade(engine);
        let body = move || {
            let mut interval = COLLECT_INTERVAL;
            loop {
                let mut stop = stopping.0.lock();
                if !*stop {
                    stopping.1.wait_for(&mut stop, interval);
                }
                if *stop {
                    return;
                }
                drop(stop);
                let Some(engine) = engine.upgrade() else { return };
                interval = if work(&engine) { COLLECT_INTERVAL } else { IDLE_INTERVAL.min(2 * interval) };
            }
        };
        *self.thread.lock() = Some(thread::spawn(name, body));
    }

    /// Stops the thread and waits for its end, unless the thread itself is the caller: it may have the last handle.
    fn stop(&self) {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        *self.stopping.0.lock() = true;
        self.stopping.1.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && !thread::is_current(&thread)
        {
            let _ = thread.join();
        }
    }
}
