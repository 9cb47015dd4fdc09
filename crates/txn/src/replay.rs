//! Replay in a replica: applies the commits of the log beside readers, one after another, each as one transaction.
//!
//! Recovery restores a state that no transaction uses yet, on several threads and without versions ([`crate::apply`]). Here readers
//! have snapshots: a commit changes rows as a transaction of the primary does, with versions and index entries, and then becomes
//! visible as a whole, at the time that it has in the log. There is no redo, since the log is there already, and there are no conflicts,
//! since no other transaction writes.
//!
//! ```text
//! for each commit   objects of the catalog that it creates
//!                   rows: through versions; those of tables that it creates, as recovery does
//!                   indexes that it creates
//!                   commit section: stamp, publish catalog and time
//! ```
//! Invariant: in a replica only this moves the clock. So a snapshot is a prefix of the primary's history.
//!
//! Invariant: everything in the log before [`Replica::replayed`] is visible. A checkpoint begins there.

use crate::apply::{AHEAD, Ahead, Shown, Target, in_commit, marks_blocks, misfit};
use crate::catalog::{Catalog, CatalogChange, IndexDef, Oid, TableDef};
use crate::ddl::{Action, Ddl};
use crate::engine::Engine;
use crate::index_build::build_index;
use crate::isolation::Isolation;
use crate::loads::{self, LoadedFile};
use crate::manifest::{TableFile, checkpoint_directory, log_directory};
use crate::role::Replica;
use crate::sequence::SequenceState;
use crate::table_file;
use crate::voter::Sender;
use firn_base::disk::Disk;
use firn_base::sync::{Arc, Ordering};
use firn_base::{Error, Lsn, Result, Snapshot, SqlState, TableId};
use firn_log::faults::Fault;
use firn_log::{Entry, Follower, Group, Kept, LogPoint, RawRecord, Record, Records, Waited};
use firn_storage::{Guard, Pressure, Table, WriteSet, pin};
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::time::Duration;

/// How many rows are changed under one guard.
const ROWS_PER_GUARD: usize = 256;

/// Replays the log of a replica as it is received. There is at most one of a database.
pub struct Replayer {
    engine: Arc<Engine>,
    follower: Follower,
    /// The tables that it has changed, by number.
    targets: Vec<Option<Target>>,
    /// The group that has been read but not replayed completely.
    waiting: Option<Group>,
    /// Why nothing can be replayed any more until the database is opened again.
    failure: Option<Error>,
}

impl Engine {
    /// Begins to replay what has been received and is not visible yet.
    ///
    /// Error: 55000 if it is no replica, or is being replayed already.
    pub fn replayer(self: &Arc<Self>) -> Result<Replayer> {
        let replica = self.expect_replica()?;
        if replica.is_replaying.swap(true, Ordering::SeqCst) {
            let message = "the log is being replayed already";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let (_, log) = self.store_and_log().expect("a replica has a directory");
        let begun = log.point_at(replica.replayed()).and_then(|from| log.follow("replay", from));
        let follower = begun.inspect_err(|_| replica.is_replaying.store(false, Ordering::SeqCst))?;
        let follower = if Fault::UncommittedReplayed.is_made() { follower.read_durable() } else { follower };
        let (engine, targets) = (self.clone(), Vec::new());
        Ok(Replayer { engine, follower, targets, waiting: None, failure: None })
    }

    pub(crate) fn expect_replica(&self) -> Result<&Replica> {
        self.replica().ok_or_else(no_replica)
    }

    /// The place up to which a replica has received the log. Error: 55000 if it is no replica.
    pub fn received(&self) -> Result<LogPoint> {
        self.expect_replica()?;
        let (_, log) = self.store_and_log().expect("a replica has a directory");
        log.received().ok_or_else(no_replica)
    }

    /// Lets receiving begin again, over another connection.
    pub fn restart_receiving(&self, sender: Sender) -> Result<()> {
        self.expect_replica()?;
        let _promise = self.check_promise(sender)?;
        self.store_and_log().expect("a replica has a directory").1.restart_receiving()
    }

    /// Stores the header of a segment of the primary's log: see [`firn_log::Log::receive_segment`].
    pub fn receive_segment(
        &self,
        sender: Sender,
        header: &[u8; firn_log::format::SEGMENT_HEADER_LEN],
    ) -> Result<()> {
        self.expect_replica()?;
        let _promise = self.check_promise(sender)?;
        self.store_and_log().expect("a replica has a directory").1.receive_segment(header)
    }

    /// Stores groups of the primary's log, which come from this sender: see [`firn_log::Log::receive`]. The files that they
    /// name have been received. They are on disk after [`Engine::flush_log`], and replayed after that, once they are committed.
    ///
    /// Errors, besides: 55000 if the voter has [promised](Engine::promise) to take nothing from that epoch any more.
    pub fn receive_groups(&self, sender: Sender, groups: &[u8]) -> Result<LogPoint> {
        self.expect_replica()?;
        let _promise = self.check_promise(sender)?;
        self.store_and_log().expect("a replica has a directory").1.receive(groups)
    }

    /// Where a file is to be written that groups name which will be received. It is retained from then on.
    pub fn place_for_received(&self, file: &crate::DatabaseFile) -> Result<(Arc<dyn Disk>, PathBuf)> {
        self.expect_replica()?;
        let (store, _) = self.store_and_log().expect("a replica has a directory");
        let directory = match file.folder {
            crate::Folder::Checkpoint => {
                store.loads().list_received(&file.name);
                checkpoint_directory(&store.directory)
            }
            crate::Folder::Log => log_directory(&store.directory),
        };
        Ok((store.disk.clone(), directory.join(&file.name)))
    }
}

#[cold]
fn no_replica() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the database is no replica")
}

impl Replayer {
    /// The database.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The place up to which everything is visible.
    pub fn point(&self) -> LogPoint {
        self.follower.point()
    }

    /// Waits until there is something to replay, or for so long.
    ///
    /// Error: that of the log, if it has failed.
    pub fn wait(&mut self, longest: Duration) -> Result<Waited> {
        if self.waiting.is_some() { Ok(Waited::Group) } else { self.follower.wait(Lsn(u64::MAX), longest) }
    }

    /// The wall time of the next group, in microseconds since 1970 UTC, if it has been received.
    pub fn next_wall_time(&mut self) -> Result<Option<i64>> {
        self.read_ahead()?;
        Ok(self.waiting.as_ref().map(|group| group.end.wall_time))
    }

    /// Replays the next group, if it has been received. Returns its end.
    ///
    /// Errors: 53200 or 53300, before anything of a commit has been changed: to be tried again. XX001 if the log does not fit, or
    /// the error of a file that it names: then nothing more is replayed until the database is opened again, and everything remains
    /// visible that was.
    pub fn replay_next(&mut self) -> Result<Option<LogPoint>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.read_ahead()?;
        let Some(group) = self.waiting.take() else { return Ok(None) };
        let engine = self.engine.clone();
        let replica = engine.expect_replica()?;
        replica.set_replayed(group.begin);
        // Before what it has is visible: who waits for a position that is lost gets an error.
        engine.epochs.lock().note(group.end.epoch, group.begin);
        if let Err(error) = self.replay_group(&group) {
            // To be tried again, unless a commit has been replayed in part.
            self.waiting = Some(group);
            return Err(error);
        }
        // In this order: a checkpoint at the new position must not find a pin before it, which it may break.
        self.follower.pin().advance(group.end.lsn)?;
        replica.set_replayed(group.end.lsn);
        Ok(Some(group.end))
    }

    fn read_ahead(&mut self) -> Result<()> {
        if self.waiting.is_none() {
            self.waiting = self.follower.next_group(Lsn(u64::MAX))?;
        }
        Ok(())
    }

    fn replay_group(&mut self, group: &Group) -> Result<()> {
        let mut ahead = Ahead::of(group.entries());
        (0..AHEAD).for_each(|_| self.prefetch(&mut ahead));
        for (entry, end) in group.entries().zip(group.entry_ends()) {
            // Also the record of an epoch, which has no time, and what was replayed before an error.
            if entry.time > self.engine.now() {
                self.replay_entry(entry, end, group, &mut ahead)?;
            } else {
                entry.records().for_each(|_| self.prefetch(&mut ahead));
            }
        }
        Ok(())
    }

    fn replay_entry<'g>(
        &mut self,
        entry: Entry<'g>,
        end: Lsn,
        group: &Group,
        ahead: &mut Ahead<'g, impl Iterator<Item = Entry<'g>>>,
    ) -> Result<()> {
        self.check_memory()?;
        let engine = self.engine.clone();
        let mut others = Others::read(entry, &engine).map_err(|error| in_commit(error, entry.time))?;
        let (slot, snapshot) = engine.enter(Isolation::Snapshot)?;
        // It is not dropped while its records are in chains, whatever happens.
        let mut writes = ManuallyDrop::new(WriteSet::new(snapshot.owner, None));
        let replayed = (|| {
            let mut definitions =
                others.change.take().map(|change| Definitions::new(&engine, change)).transpose()?;
            if !others.loaded.is_empty() {
                self.load(&others.loaded, definitions.as_ref())?;
            }
            self.change_rows(entry, &mut writes, snapshot, ahead)?;
            if let Some(definitions) = &mut definitions {
                definitions.finish(&engine)?;
                for id in &definitions.dropped {
                    self.targets.get_mut(id.0 as usize).into_iter().for_each(|target| *target = None);
                }
            }
            Ok(definitions)
        })();
        let definitions = match replayed {
            Ok(definitions) => definitions,
            Err(error) => {
                // Readers do not see the changes, which remain as those of a transaction that does not end.
                engine.active().release_snapshot(&slot);
                let error = in_commit(error, entry.time)
                    .with_hint("Empty the directory of the replica, and start it with --follow.");
                self.failure = Some(error.clone());
                return Err(error);
            }
        };
        self.keep_files(&others, entry, group.end.lsn, &engine);
        if !others.sequences.is_empty() {
            let mut sequences = engine.sequences.lock();
            sequences.extend(others.sequences.iter().copied());
        }
        let ddl = definitions.as_ref().map(|definitions| &definitions.ddl);
        engine.replay_section(ManuallyDrop::into_inner(writes), ddl, entry.time, end);
        if let Some(ddl) = ddl {
            engine.sequences.lock().retain(|oid, _| ddl.catalog.sequences.contains_key(oid));
        }
        engine.leave(&slot);
        engine.collect_if_due();
        Ok(())
    }

    /// Error: 53200 if the memory is full, also without what no snapshot needs.
    fn check_memory(&self) -> Result<()> {
        let memory = self.engine.memory();
        if memory.pressure() == Pressure::None {
            return Ok(());
        }
        self.engine.collect_now();
        match memory.pressure() {
            Pressure::None => Ok(()),
            _ => Err(memory.exceeded("room to replay the log")),
        }
    }

    /// Changes rows as the records of an entry say.
    fn change_rows<'g>(
        &mut self,
        entry: Entry<'g>,
        writes: &mut WriteSet,
        snapshot: Snapshot,
        ahead: &mut Ahead<'g, impl Iterator<Item = Entry<'g>>>,
    ) -> Result<()> {
        let mut guard = Guarded::default();
        let mut records = entry.records();
        while let Some(record) = records.next_raw() {
            self.prefetch(ahead);
            let record = record?;
            if record.row().is_some() {
                self.change_row(record, writes, snapshot, guard.next())?;
                continue;
            }
            let Record::Spilled { number, chunks } = record.read()? else { continue };
            // The follower's pin retains the file.
            let engine = self.engine.clone();
            let (_, log) = engine.store_and_log().expect("a replica has a directory");
            log.spills().reader().read(number, entry.epoch, chunks, |bytes| {
                let mut records = Records::new(bytes);
                while let Some(record) = records.next_raw() {
                    let record = record?;
                    if record.row().is_none() {
                        let what = "a spill file holds a record that is not a change of a row";
                        return Err(misfit(what.to_owned()));
                    }
                    self.change_row(record, writes, snapshot, guard.next())?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    #[inline]
    fn change_row(
        &mut self,
        record: RawRecord<'_>,
        writes: &mut WriteSet,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        let (id, _) = record.row().expect("it is a change of a row");
        let target = self.target(id)?;
        let table = &target.table;
        if !table.is_published() {
            // Of a table that this commit creates.
            return target.apply(record.read()?, Shown::No);
        }
        if !writes.has_touched(table) {
            let joined = table.gate().try_join(snapshot.owner);
            assert!(joined, "no transaction of a replica locks a table");
            writes.touch(table);
        }
        target.replay(record.read()?, writes, snapshot, guard)
    }

    #[inline]
    fn target(&mut self, id: TableId) -> Result<&Target> {
        let number = id.0 as usize;
        if self.targets.get(number).is_none_or(Option::is_none) {
            self.find_target(id)?;
        }
        Ok(self.targets[number].as_ref().expect("the table was just found"))
    }

    #[cold]
    fn find_target(&mut self, id: TableId) -> Result<()> {
        let number = id.0 as usize;
        let table = self.engine.find_table(id);
        let table =
            table.ok_or_else(|| misfit(format!("it names physical table {}, which is unknown", id.0)))?;
        if self.targets.len() <= number {
            self.targets.resize_with(number + 1, || None);
        }
        self.targets[number] = Some(Target::new(table));
        Ok(())
    }

    /// Prefetches what the next record of `ahead` will change.
    #[inline]
    fn prefetch<'g>(&self, ahead: &mut Ahead<'g, impl Iterator<Item = Entry<'g>>>) {
        if let Some(record) = ahead.next()
            && let Some((id, row)) = record.row()
            && record.changes_a_row()
            && let Some(Some(target)) = self.targets.get(id.0 as usize)
        {
            target.prefetch(&record, row);
        }
    }

    /// Restores the rows of files whose tables the same entry has created.
    fn load(&self, files: &[TableFile], definitions: Option<&Definitions>) -> Result<()> {
        let (store, _) = self.engine.store_and_log().expect("a replica has a directory");
        let directory = checkpoint_directory(&store.directory);
        for file in files {
            let id = TableId(file.table);
            let table = definitions.and_then(|definitions| definitions.created.get(&id));
            let table = table.ok_or_else(|| misfit(format!("it loads physical table {}", file.table)))?;
            table_file::load(&*store.disk, &directory, file, table)?;
        }
        Ok(())
    }

    /// Keeps the files that an entry names, until a checkpoint has replaced the log up to `needed_to`.
    fn keep_files(&self, others: &Others, entry: Entry<'_>, needed_to: Lsn, engine: &Engine) {
        let (store, log) = engine.store_and_log().expect("a replica has a directory");
        for (number, bytes) in &others.spilled {
            log.keep_received(Kept { number: *number, epoch: entry.epoch, needed_to, bytes: *bytes });
        }
        if !others.loaded.is_empty() {
            let restored = |file: &TableFile| {
                LoadedFile::restored(file.clone(), engine.find_table(TableId(file.table)).as_ref())
            };
            let files = others.loaded.iter().map(restored).collect();
            store.loads().commit_received(entry.time, needed_to, files);
        }
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        // After a failure another one would meet the same.
        if let Some(replica) = self.engine.replica().filter(|_| self.failure.is_none()) {
            replica.is_replaying.store(false, Ordering::SeqCst);
        }
    }
}

/// A guard that is renewed after some changes.
#[derive(Default)]
struct Guarded {
    guard: Option<Guard>,
    rows: usize,
}

impl Guarded {
    #[inline]
    fn next(&mut self) -> &Guard {
        self.rows += 1;
        if self.rows > ROWS_PER_GUARD {
            (self.guard, self.rows) = (None, 0);
        }
        self.guard.get_or_insert_with(pin)
    }
}

/// What an entry says beside changes of rows.
#[derive(Default)]
struct Others {
    change: Option<CatalogChange>,
    sequences: Vec<(Oid, SequenceState)>,
    /// Numbers of spill files, and the bytes of redo in them.
    spilled: Vec<(u64, u64)>,
    loaded: Vec<TableFile>,
}

impl Others {
    fn read(entry: Entry<'_>, engine: &Engine) -> Result<Others> {
        let mut others = Others::default();
        let mut records = entry.records();
        while let Some(record) = records.next_raw() {
            let record = record?;
            if record.row().is_none() {
                others.note(record.read()?, entry, engine)?;
            }
        }
        Ok(others)
    }

    #[cold]
    fn note(&mut self, record: Record<'_>, entry: Entry<'_>, engine: &Engine) -> Result<()> {
        match record {
            Record::CatalogChange(bytes) => {
                let before = self.change.replace(CatalogChange::from_bytes(bytes)?);
                if before.is_some() {
                    return Err(misfit("a commit changes the catalog twice".to_owned()));
                }
            }
            Record::SequenceAdvance { oid, value, called } => {
                self.sequences.push((Oid(oid), SequenceState::recovered(value, called)));
            }
            Record::Spilled { number, mut chunks } => {
                let bytes = chunks
                    .try_fold(0, |bytes, chunk| Ok::<_, Error>(u64::saturating_add(bytes, chunk?.used)));
                self.spilled.push((number, bytes?));
            }
            Record::Loaded(bytes) => self.loaded.extend(loads::named_by(bytes)?),
            Record::Epoch(epoch) if epoch != entry.epoch => {
                return Err(misfit(format!(
                    "epoch {} begins in a group of epoch {}",
                    epoch.0, entry.epoch.0
                )));
            }
            Record::BlockCompact { .. } | Record::BlockEmptied { .. } => {
                let directory = engine.config().directory.clone().unwrap_or_default();
                let received = engine.visible_lsn();
                return Err(marks_blocks(&log_directory(&directory), received));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The change of the catalog by a commit, and of the storage with it.
struct Definitions {
    ddl: Ddl,
    created: HashMap<TableId, Arc<Table>>,
    dropped: HashSet<TableId>,
}

impl Definitions {
    /// Creates the tables, which no other transaction can find yet.
    fn new(engine: &Engine, change: CatalogChange) -> Result<Definitions> {
        let base = engine.catalog();
        let mut ddl = Ddl::new(base.clone());
        let mut created = HashMap::new();
        for definition in &change.created {
            let table = engine.create_replayed_table(definition);
            created.insert(table.id(), table.clone());
            ddl.actions.push(Action::CreateStorage(table));
        }
        let dropped: HashSet<TableId> = change.dropped.iter().copied().map(TableId).collect();
        for id in &dropped {
            if engine.find_table(*id).is_none() {
                return Err(misfit(format!("it drops physical table {}, which is unknown", id.0)));
            }
            ddl.actions.push(Action::DropStorage(*id));
        }
        engine.raise_id_marks(change.marks);
        let mut catalog = Catalog::clone(&base);
        catalog.apply(change);
        catalog.version = engine.fresh_catalog_version();
        ddl.catalog = Arc::new(catalog);
        Ok(Definitions { ddl, created, dropped })
    }

    /// Once all rows are there: makes created tables ready for use, and builds and lists indexes.
    fn finish(&mut self, engine: &Engine) -> Result<()> {
        self.created.values().for_each(|table| table.finish_restore());
        let (base, catalog) = (self.ddl.base.clone(), self.ddl.catalog.clone());
        for (oid, definition) in &catalog.tables {
            let before = base.tables.get(oid);
            if before.is_some_and(|before| Arc::ptr_eq(before, definition)) {
                continue;
            }
            let table = engine.find_table(definition.storage()).ok_or_else(|| {
                misfit(format!(
                    "the catalog names a physical table of \"{}\" that is nowhere",
                    definition.name
                ))
            })?;
            table.rename(&definition.name);
            self.change_indexes(engine, &table, definition)?;
        }
        Ok(())
    }

    fn change_indexes(&mut self, engine: &Engine, table: &Arc<Table>, definition: &TableDef) -> Result<()> {
        let present = table.indexes();
        for index in present.iter() {
            if !definition.indexes.iter().any(|wanted| wanted.id() == index.spec().id) {
                self.ddl.actions.push(Action::DropIndex(table.clone(), index.clone()));
            }
        }
        let is_new = |wanted: &&IndexDef| !present.iter().any(|index| index.spec().id == wanted.id());
        let mut new: Vec<_> = definition.indexes.iter().filter(is_new).collect();
        // As recovery does.
        new.sort_by_key(|index| index.oid);
        for wanted in new {
            let index =
                build_index(table, wanted.spec(table), engine.config().threads, None).map_err(|error| {
                    misfit(format!(
                        "the rows of table \"{}\" break its unique index \"{}\"",
                        table.name(),
                        wanted.name
                    ))
                    .with_detail(error.message())
                })?;
            table.add_index(index.clone());
            self.ddl.actions.push(Action::CreateIndex(table.clone(), index));
        }
        Ok(())
    }
}
