//! Recovery's replay of redo: applies commits, as the log has them, to tables that no transaction uses yet. Beside transactions,
//! [`crate::replay`] does.
//!
//! One reader divides the log into groups and applies what concerns the whole database, the catalog and the
//! sequences. Workers apply the rows, each those of its share of the blocks, in log order. Changes of
//! different rows are independent, so no other order is needed.
//!
//! ```text
//!   reader ── groups ──┬──> worker 0: the blocks whose table and number add up to 0, 2, 4 …
//!                      └──> worker 1: those of 1, 3, 5 …
//! ```
//! Every worker gets every group and skips the records of other workers by their lengths: skipping a record
//! costs less than passing it to another thread.
//!
//! Invariant: a table is known to the workers before they get a group that refers to it.

use crate::catalog::{Catalog, CatalogChange, IdMarks, Oid, StorageDef};
use crate::epochs::Epochs;
use crate::loads;
use crate::manifest::TableFile;
use crate::sequence::SequenceState;
use crate::table_file;
use firn_base::disk::Disk;
use firn_base::sync::{Arc, RwLock, mpsc};
use firn_base::types::Width;
use firn_base::{
    Cell, ColumnId, Epoch, Error, Lsn, Representation, Result, RowId, Slot, Snapshot, SqlState, TableId,
    Time, thread,
};
use firn_log::{
    BatchColumns, CellReader, Entry, Group, Kept, RawRecord, Reader, Record, Records, SpillReader,
};
use firn_storage::{Guard, LONGEST_STRING_BYTES, Restored, Table, TableOptions, WriteSet};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Bytes of the log that the workers get at once.
const BATCH_BYTES: u64 = 1 << 20;
/// The largest number of such batches that wait for a worker.
const WAITING_BATCHES: usize = 8;

type Groups = Arc<Vec<Group>>;
/// Shared with the workers, which look up tables while the reader adds some.
type Tables = Arc<RwLock<HashMap<TableId, Arc<Table>>>>;

/// A database during recovery. Its tables have no versions and no indexes yet.
pub(crate) struct Rebuilt {
    /// Every physical table that existed at any time.
    pub tables: Tables,
    pub catalog: Catalog,
    pub marks: IdMarks,
    pub sequences: HashMap<Oid, SequenceState>,
    /// The newest commit that has been applied completely.
    pub last: Time,
    /// Rows may include some or all changes of later commits up to this time.
    pub shown_until: Time,
    /// Tables that the log has changed.
    pub changed: HashSet<TableId>,
    pub options: TableOptions,
    /// Where epochs have begun.
    pub epochs: Epochs,
    /// The spill files that the log refers to.
    pub spilled: Vec<Kept>,
    /// The files of loads that the log refers to, with the times of their commits and the ends of these.
    pub loaded: Vec<(Time, Lsn, TableFile)>,
}

/// Files in addition to the log.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub spills: SpillReader<'a>,
    pub disk: &'a dyn Disk,
    /// The directory of the files of loads.
    pub loads: &'a Path,
}

impl Rebuilt {
    /// Makes the physical table that a change of the catalog or a checkpoint describes.
    pub fn create_table(&self, definition: &StorageDef) {
        let id = TableId(definition.id);
        let table = Table::new(id, &definition.name, definition.column_specs(), self.options.clone());
        self.tables.write().insert(id, table);
    }

    /// Applies every commit that `reader` returns. Those up to `last` are in the tables already. 53000 if no
    /// thread can be started.
    pub fn replay(&mut self, reader: &mut Reader, beside: Beside<'_>, threads: usize) -> Result<()> {
        let (known, shown_until) = (self.last, self.shown_until);
        let shares = threads.max(1) as u32;
        let tables = self.tables.clone();
        let (read, applied) = thread::scope(|scope| {
            let (mut senders, mut beginnings, mut workers) = (Vec::new(), Vec::new(), Vec::new());
            for share in 0..shares {
                let (sender, receiver) = mpsc::sync_channel::<Groups>(WAITING_BATCHES);
                let (begin, begun) = mpsc::channel::<u32>();
                let (spills, tables) = (beside.spills, &tables);
                let body = move || {
                    // The number is known when all have been started, unless there is a panic before.
                    let Ok(shares) = begun.recv() else { return Ok(HashSet::new()) };
                    let mut worker =
                        Worker { tables, spills, known, shown_until, share, shares, mine: Vec::new() };
                    worker.run(&receiver).map(|()| worker.changed())
                };
                match thread::start_scoped(scope, "firn-replay", body) {
                    Ok(worker) => workers.push(worker),
                    Err(error) if workers.is_empty() => return (Err(error), Vec::new()),
                    // The other workers share the blocks.
                    Err(_) => break,
                }
                senders.push(sender);
                beginnings.push(begin);
            }
            for begin in beginnings {
                begin.send(workers.len() as u32).expect("it waits for that");
            }
            let read = self.read(reader, beside, &senders);
            drop(senders);
            let applied: Vec<Result<HashSet<TableId>>> = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            (read, applied)
        });
        for changed in applied {
            self.changed.extend(changed?);
        }
        read?;
        // New commits get later times, so that rows include no change of later records.
        self.last = self.last.max(shown_until);
        Ok(())
    }

    fn read(
        &mut self,
        reader: &mut Reader,
        beside: Beside<'_>,
        workers: &[mpsc::SyncSender<Groups>],
    ) -> Result<()> {
        let known = self.last;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let group = reader.next_group()?;
            let ended = group.is_none();
            if let Some(group) = group {
                self.epochs.note(group.end.epoch, group.begin);
                for entry in group.entries() {
                    self.apply_to_all(entry, group.end.lsn, known, beside, workers.len())?;
                }
                bytes += group.end.lsn.0 - group.begin.0;
                batch.push(group);
            }
            if ended || bytes >= BATCH_BYTES {
                let groups = Arc::new(std::mem::take(&mut batch));
                bytes = 0;
                for worker in workers {
                    if worker.send(groups.clone()).is_err() {
                        // The worker has stopped because of an error, which the caller gets from it.
                        return Ok(());
                    }
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Applies everything but rows. The entry is of a group that ends at `end`.
    fn apply_to_all(
        &mut self,
        entry: Entry<'_>,
        end: Lsn,
        known: Time,
        beside: Beside<'_>,
        threads: usize,
    ) -> Result<()> {
        self.last = self.last.max(entry.time);
        let mut loaded = Vec::new();
        for record in entry.records() {
            match record.map_err(|error| in_commit(error, entry.time))? {
                Record::CatalogChange(bytes) if entry.time > known => {
                    let change =
                        CatalogChange::from_bytes(bytes).map_err(|error| in_commit(error, entry.time))?;
                    for definition in &change.created {
                        self.create_table(definition);
                    }
                    self.marks = IdMarks {
                        next_oid: self.marks.next_oid.max(change.marks.next_oid),
                        next_table: self.marks.next_table.max(change.marks.next_table),
                    };
                    self.catalog.apply(change);
                }
                // Sequences are independent of commit times. The checkpoint may have a later state than this
                // record. Then that is the state of a record further on as well.
                Record::SequenceAdvance { oid, value, called } => {
                    self.sequences.insert(Oid(oid), SequenceState::recovered(value, called));
                }
                Record::Spilled { number, mut chunks } => {
                    let bytes =
                        chunks.try_fold(0, |bytes, chunk| Ok(u64::saturating_add(bytes, chunk?.used)));
                    let bytes = bytes.map_err(|error| in_commit(error, entry.time))?;
                    self.spilled.push(Kept { number, epoch: entry.epoch, needed_to: end, bytes });
                }
                Record::Epoch(epoch) if epoch != entry.epoch => {
                    return Err(misfit(format!(
                        "epoch {} begins in a group of epoch {}",
                        epoch.0, entry.epoch.0
                    )));
                }
                Record::BlockCompact { .. } | Record::BlockEmptied { .. } => {
                    return Err(marks_blocks(beside.spills.directory, end));
                }
                // Also of loads that the checkpoint includes: the files stay as long as the log names them.
                Record::Loaded(bytes) => {
                    loaded = loads::named_by(bytes).map_err(|error| in_commit(error, entry.time))?;
                }
                _ => {}
            }
        }
        if loaded.is_empty() {
            return Ok(());
        }
        if entry.time > known {
            self.load(&loaded, beside, threads).map_err(|error| in_commit(error, entry.time))?;
        }
        self.loaded.extend(loaded.into_iter().map(|file| (entry.time, end, file)));
        Ok(())
    }

    /// Restores the rows of files whose tables the same entry has created. No worker knows these before it
    /// gets the entry.
    fn load(&mut self, files: &[TableFile], beside: Beside<'_>, threads: usize) -> Result<()> {
        let tables = self.tables.read().clone();
        thread::for_each("firn-load", threads, files, |file| {
            let table = tables.get(&TableId(file.table));
            let table = table.ok_or_else(|| misfit(format!("it loads physical table {}", file.table)))?;
            table_file::load(beside.disk, beside.loads, file, table)
        })?;
        self.changed.extend(files.iter().map(|file| TableId(file.table)));
        Ok(())
    }
}

/// Applies the rows of some tables.
struct Worker<'a> {
    tables: &'a RwLock<HashMap<TableId, Arc<Table>>>,
    spills: SpillReader<'a>,
    /// Commits up to this time are in the tables already.
    known: Time,
    /// Some changes of later commits up to this time may be in the tables already.
    shown_until: Time,
    share: u32,
    shares: u32,
    /// The tables that it has changed, by number.
    mine: Vec<Option<Target>>,
}

/// How many records before it is applied a row is prefetched.
pub(crate) const AHEAD: usize = 16;

impl Worker<'_> {
    fn run(&mut self, batches: &mpsc::Receiver<Groups>) -> Result<()> {
        while let Ok(groups) = batches.recv() {
            let known = self.known;
            let entries = || groups.iter().flat_map(Group::entries).filter(move |entry| entry.time > known);
            let mut ahead = Ahead::of(entries());
            (0..AHEAD).for_each(|_| self.prefetch(&mut ahead));
            for entry in entries() {
                let shown = if entry.time <= self.shown_until { Shown::Maybe } else { Shown::No };
                let mut records = entry.records();
                while let Some(record) = records.next_raw() {
                    self.prefetch(&mut ahead);
                    record
                        .and_then(|record| self.apply(record, entry.epoch, shown))
                        .map_err(|error| in_commit(error, entry.time))?;
                }
            }
        }
        Ok(())
    }

    /// Whether the rows of a block belong to this worker.
    #[inline]
    fn owns(&self, table: TableId, row: RowId) -> bool {
        (u64::from(table.0) + row.block().0) % u64::from(self.shares) == u64::from(self.share)
    }

    #[inline]
    fn apply(&mut self, record: RawRecord<'_>, epoch: Epoch, shown: Shown) -> Result<()> {
        match record.row() {
            Some((id, row)) if self.owns(id, row) => self.target(id)?.apply(record.read()?, shown),
            Some(_) => Ok(()),
            None => self.apply_other(record.read()?, epoch, shown),
        }
    }

    /// Applies records that are not of one row, except those that the reader has applied.
    #[cold]
    fn apply_other(&mut self, record: Record<'_>, epoch: Epoch, shown: Shown) -> Result<()> {
        let Record::Spilled { number, chunks } = record else { return Ok(()) };
        let spills = self.spills;
        spills.read(number, epoch, chunks, |records| {
            let mut records = Records::new(records);
            while let Some(record) = records.next_raw() {
                let record = record?;
                if record.row().is_none() {
                    return Err(misfit(
                        "a spill file holds a record that is not a change of a row".to_owned(),
                    ));
                }
                self.apply(record, epoch, shown)?;
            }
            Ok(())
        })
    }

    /// Prefetches what the next record of `ahead` will change. The rows are not adjacent, and to wait for one
    /// after another takes longer than everything else.
    #[inline]
    fn prefetch<'g>(&self, ahead: &mut Ahead<'g, impl Iterator<Item = Entry<'g>>>) {
        if let Some(record) = ahead.next()
            && record.changes_a_row()
            && let Some((id, row)) = record.row()
            && self.owns(id, row)
            && let Some(Some(target)) = self.mine.get(id.0 as usize)
        {
            target.prefetch(&record, row);
        }
    }

    #[inline]
    fn target(&mut self, id: TableId) -> Result<&Target> {
        let number = id.0 as usize;
        if self.mine.get(number).is_none_or(Option::is_none) {
            let table = self.tables.read().get(&id).cloned();
            let table =
                table.ok_or_else(|| misfit(format!("it names physical table {}, which is unknown", id.0)))?;
            if self.mine.len() <= number {
                self.mine.resize_with(number + 1, || None);
            }
            self.mine[number] = Some(Target::new(table));
        }
        Ok(self.mine[number].as_ref().expect("the table was just added"))
    }

    fn changed(&self) -> HashSet<TableId> {
        self.mine.iter().flatten().map(|target| target.table.id()).collect()
    }
}

/// Whether a row may already include a record's change and later ones: a checkpoint reads block by block. The
/// later changes have records too, so that the final row is the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// An insert of a row that exists is skipped: another one will be deleted and inserted again by later
    /// records. A row that does not exist has been deleted since.
    Maybe,
    /// Anything that does not fit is damage.
    No,
}

/// The records that are applied soon. The error of a damaged one is reported when it is applied.
pub(crate) struct Ahead<'g, E> {
    entries: E,
    records: Records<'g>,
}

impl<'g, E: Iterator<Item = Entry<'g>>> Ahead<'g, E> {
    pub fn of(entries: E) -> Ahead<'g, E> {
        Ahead { entries, records: Records::new(&[]) }
    }

    #[inline]
    pub fn next(&mut self) -> Option<RawRecord<'g>> {
        loop {
            match self.records.next_raw() {
                Some(record) => return record.ok(),
                None => self.records = self.entries.next()?.records(),
            }
        }
    }
}

/// A table whose rows are changed as the log says, with the properties of its columns.
pub(crate) struct Target {
    pub table: Arc<Table>,
    columns: Box<[Column]>,
}

struct Column {
    representation: Representation,
    width: Width,
    nullable: bool,
}

impl Column {
    /// The value that was read for this column, unless it is NULL and the column is not nullable. Storage
    /// trusts its callers, but the log cannot be trusted.
    #[inline(always)]
    fn admit<T>(&self, value: Option<T>) -> Result<Option<T>> {
        if value.is_none() && !self.nullable {
            return Err(misfit("a column that is not nullable is NULL".to_owned()));
        }
        Ok(value)
    }

    /// As [`Column::admit`], for strings.
    #[inline(always)]
    fn admit_string<'s>(&self, string: Option<&'s [u8]>) -> Result<Option<&'s [u8]>> {
        if let Some(string) = string {
            if !self.representation.admits_bytes(string) {
                return Err(misfit(match self.representation.is_string() {
                    true => "a text is not UTF-8".to_owned(),
                    false => format!("bytes are not what a column of {} holds", self.representation),
                }));
            }
            if string.len() > LONGEST_STRING_BYTES {
                return Err(misfit("a string is too long".to_owned()));
            }
        }
        self.admit(string)
    }
}

impl Target {
    pub fn new(table: Arc<Table>) -> Target {
        let columns = table.columns().iter().map(|spec| Column {
            representation: spec.representation,
            width: spec.representation.width(),
            nullable: spec.nullable,
        });
        Target { columns: columns.collect(), table }
    }

    /// Prefetches what a record is about to change.
    #[inline]
    pub fn prefetch(&self, record: &RawRecord<'_>, row: RowId) {
        let known = |column: &ColumnId| column.index() < self.columns.len();
        let columns: SmallVec<[ColumnId; 24]> = record.updated_columns().filter(known).collect();
        self.table.prefetch(row, &columns);
    }

    /// Applies a record to the rows, as of one transaction, beside readers. After an error the transaction cannot end.
    #[inline(always)]
    pub fn replay(
        &self,
        record: Record<'_>,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        let table = &*self.table;
        match record {
            Record::Insert { row, cells, .. } => {
                self.check_rows(row, 1, cells.len())?;
                let (mut reader, mut row_cells) = (cells.reader(), Cells::new());
                for column in &self.columns {
                    row_cells.push(next_cell(column, &mut reader)?);
                }
                reader.end()?;
                self.insert_one(row, &row_cells, write_set, snapshot, guard)
            }
            Record::InsertBatch { first, rows, columns, .. } => {
                self.check_rows(first, rows, columns.len())?;
                let fill = |restored: &Restored<'_>| {
                    let mut columns = columns.clone();
                    for ((number, column), cells) in (0..).zip(&self.columns).zip(&mut columns) {
                        set_all(restored, ColumnId(number), column, cells?.reader())?;
                    }
                    // As in `apply`.
                    columns.next().transpose().map(drop)
                };
                let inserted = table.replay_insert_many(write_set, snapshot, first, rows, fill, guard);
                if inserted.map_err(|error| contradiction(table, &error))? {
                    return Ok(());
                }
                self.insert_each(first, rows, columns, write_set, snapshot, guard)
            }
            Record::Update { row, cells, .. } => {
                let (mut reader, mut columns, mut changed) =
                    (cells.reader(), SmallVec::<[ColumnId; 16]>::new(), Cells::new());
                for _ in 0..cells.len() {
                    let number = reader.column()?;
                    let column = self.columns.get(number.index());
                    let column = column.ok_or_else(|| misfit(format!("there is no column {}", number.0)))?;
                    columns.push(number);
                    changed.push(next_cell(column, &mut reader)?);
                }
                reader.end()?;
                let updated = table.replay_update(write_set, snapshot, row, &columns, &changed, guard);
                match updated.map_err(|error| contradiction(table, &error))? {
                    true => Ok(()),
                    false => self.missing(row, "updates", Shown::No),
                }
            }
            Record::Delete { row, .. } => {
                let deleted = table.replay_delete(write_set, snapshot, row, guard);
                match deleted.map_err(|error| contradiction(table, &error))? {
                    true => Ok(()),
                    false => self.missing(row, "deletes", Shown::No),
                }
            }
            _ => unreachable!("the caller passes changes of rows"),
        }
    }

    fn insert_one(
        &self,
        row: RowId,
        cells: &[Cell<'_>],
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        let inserted = self.table.replay_insert(write_set, snapshot, row, cells, guard);
        match inserted.map_err(|error| contradiction(&self.table, &error))? {
            true => Ok(()),
            false => Err(misfit(format!("it inserts row {row:?}, which is there already"))),
        }
    }

    /// Inserts the rows of a batch one by one.
    #[cold]
    fn insert_each<'r>(
        &self,
        first: RowId,
        rows: u32,
        mut batch: BatchColumns<'r>,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<()> {
        let mut columns: Vec<Vec<Cell<'r>>> = Vec::new();
        for (column, cells) in self.columns.iter().zip(&mut batch) {
            let mut reader = cells?.reader();
            columns.push((0..rows).map(|_| next_cell(column, &mut reader)).collect::<Result<_>>()?);
            reader.end()?;
        }
        batch.next().transpose()?;
        for number in 0..rows {
            let row = RowId::new(first.block(), Slot(first.slot().0 + number));
            let cells: Cells<'_> = columns.iter().map(|cells| cells[number as usize]).collect();
            self.insert_one(row, &cells, write_set, snapshot, guard)?;
        }
        Ok(())
    }

    /// Applies a record to the rows. After an error the table cannot be used any more.
    #[inline(always)]
    pub fn apply(&self, record: Record<'_>, shown: Shown) -> Result<()> {
        match record {
            Record::Insert { row, cells, .. } => {
                self.check_rows(row, 1, cells.len())?;
                if shown == Shown::Maybe && self.table.has_restored(row, 1) {
                    return Ok(());
                }
                let (restored, mut reader) = (self.table.restore_rows(row, 1), cells.reader());
                for (number, column) in (0..).zip(&self.columns) {
                    set(&restored, ColumnId(number), column, &mut reader)?;
                }
                reader.end()?;
                restored.insert();
            }
            Record::InsertBatch { first, rows, mut columns, .. } => {
                self.check_rows(first, rows, columns.len())?;
                if shown == Shown::Maybe && self.table.has_restored(first, rows) {
                    return Ok(());
                }
                let restored = self.table.restore_rows(first, rows);
                for ((number, column), cells) in (0..).zip(&self.columns).zip(&mut columns) {
                    set_all(&restored, ColumnId(number), column, cells?.reader())?;
                }
                // After the last one it reports bytes that are left over.
                columns.next().transpose()?;
                restored.insert();
            }
            Record::Update { row, cells, .. } => {
                let Some(restored) = self.table.restored(row) else {
                    return self.missing(row, "updates", shown);
                };
                let mut reader = cells.reader();
                for _ in 0..cells.len() {
                    let number = reader.column()?;
                    let Some(column) = self.columns.get(number.index()) else {
                        return Err(misfit(format!("there is no column {}", number.0)));
                    };
                    set(&restored, number, column, &mut reader)?;
                }
                reader.end()?;
            }
            Record::Delete { row, .. } => {
                if !self.table.delete_restored(row) {
                    return self.missing(row, "deletes", shown);
                }
            }
            Record::CatalogChange(_)
            | Record::SequenceAdvance { .. }
            | Record::Spilled { .. }
            | Record::Loaded(_)
            | Record::Epoch(_)
            | Record::BlockCompact { .. }
            | Record::BlockEmptied { .. }
            | Record::RestorePoint(_) => {}
        }
        Ok(())
    }

    /// The result of a change of a row that does not exist.
    #[cold]
    fn missing(&self, row: RowId, what: &str, shown: Shown) -> Result<()> {
        match shown {
            Shown::Maybe if self.table.has_slots(row, 1) => Ok(()),
            _ => Err(misfit(format!("it {what} row {row:?}, which is not there"))),
        }
    }

    fn check_rows(&self, first: RowId, rows: u32, columns: usize) -> Result<()> {
        if columns != self.columns.len() {
            return Err(misfit("a row does not have the columns of its table".to_owned()));
        }
        if !self.table.has_slots(first, rows) {
            return Err(misfit(format!("{rows} rows from {first:?} on do not lie in one block")));
        }
        Ok(())
    }
}

/// The cells of a row.
type Cells<'r> = SmallVec<[Cell<'r>; 16]>;

/// The next cell, of a column.
#[inline(always)]
fn next_cell<'r>(column: &Column, reader: &mut CellReader<'r>) -> Result<Cell<'r>> {
    Ok(match column.width {
        Width::View => column.admit_string(reader.string()?)?.map_or(Cell::Null, Cell::Bytes),
        Width::Fixed(16) => column.admit(reader.wide()?)?.map_or(Cell::Null, Cell::Wide),
        Width::Bit | Width::Fixed(_) => column.admit(reader.word()?)?.map_or(Cell::Null, Cell::Word),
    })
}

/// Sets a column of a row to the next cell.
#[inline(always)]
fn set(
    restored: &Restored<'_>,
    number: ColumnId,
    column: &Column,
    reader: &mut CellReader<'_>,
) -> Result<()> {
    restored.set(number, &next_cell(column, reader)?);
    Ok(())
}

/// Sets a column of every row to the remaining cells.
fn set_all(
    restored: &Restored<'_>,
    number: ColumnId,
    column: &Column,
    mut reader: CellReader<'_>,
) -> Result<()> {
    let mut failure = None;
    // An iterator ends with the first error, which is returned after it.
    macro_rules! each {
        ($read:ident, $admit:ident) => {
            std::iter::from_fn(|| match reader.$read().and_then(|value| column.$admit(value)) {
                Ok(value) => Some(value),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            })
        };
    }
    match column.width {
        Width::View => restored.set_all_strings(number, each!(string, admit_string)),
        Width::Fixed(16) => {
            restored.set_all(number, each!(wide, admit).map(|words| words.map_or(Cell::Null, Cell::Wide)));
        }
        Width::Bit | Width::Fixed(_) => restored.set_all_words(number, each!(word, admit)),
    }
    match failure {
        Some(error) => Err(error),
        None => reader.end(),
    }
}

/// The error of a change that the primary has made and the replica cannot.
#[cold]
fn contradiction(table: &Table, error: &Error) -> Error {
    misfit(format!("a change of table \"{}\" fails", table.name())).with_detail(error.message())
}

#[cold]
pub(crate) fn misfit(what: String) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("the log does not fit the checkpoint: {what}"))
        .with_hint("Restore the database directory from a backup.")
}

/// The error of a log that marks blocks as compact. A program that continues it would have to move rows of these that change.
#[cold]
pub(crate) fn marks_blocks(log: &Path, end: Lsn) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the log in \"{}\" marks blocks as compact before position {}", log.display(), end.0),
    )
    .with_detail("This version of FirnDB cannot honour that.")
    .with_hint("Open the database with the version that wrote it.")
}

#[cold]
pub(crate) fn in_commit(error: Error, time: Time) -> Error {
    error.with_detail(format!("It is in the redo of the commit with time {}.", time.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{BlockNumber, Slot};
    use firn_log::RedoBuffer;
    use firn_storage::ColumnSpec;

    const ID: TableId = TableId(7);

    fn first() -> RowId {
        RowId::new(BlockNumber(0), Slot(0))
    }

    fn target() -> Target {
        let column = |representation, nullable| ColumnSpec { representation, nullable };
        let columns = vec![
            column(Representation::Int32, false),
            column(Representation::Text, true),
            column(Representation::Decimal { precision: 30, scale: 2 }, true),
        ];
        Target::new(Table::new(
            ID,
            "t",
            columns,
            TableOptions { block_bytes: 1 << 14, ..TableOptions::default() },
        ))
    }

    fn apply(target: &Target, write: impl FnOnce(&mut RedoBuffer)) -> Result<()> {
        apply_to(target, Shown::No, write)
    }

    fn apply_to(target: &Target, shown: Shown, write: impl FnOnce(&mut RedoBuffer)) -> Result<()> {
        let mut redo = RedoBuffer::new();
        write(&mut redo);
        Records::new(redo.as_bytes()).try_for_each(|record| target.apply(record?, shown))
    }

    #[test]
    fn redo_that_fits_is_applied() {
        let target = target();
        apply(&target, |redo| {
            redo.insert(
                ID,
                first(),
                &[Cell::i32(1), Cell::text("a text of more than twelve bytes"), Cell::Null],
            );
            let next = RowId::new(BlockNumber(0), Slot(1));
            redo.insert_batch(ID, next, 2, 3, |column, cells| {
                cells.extend((0..2).map(|row| match column.0 {
                    0 => Cell::i32(row),
                    1 => Cell::text("short"),
                    _ => Cell::i128(1 << 100),
                }));
            });
            redo.update(ID, next, &[ColumnId(1), ColumnId(2)], &[Cell::Null, Cell::Null]);
            redo.delete(ID, first());
        })
        .unwrap();
        target.table.finish_restore();
        assert_eq!(target.table.approximate_rows(), 2);
    }

    /// Four rows are inserted, changed and deleted, and one takes the place of another. Each prefix of this
    /// gives the same table.
    #[test]
    fn redo_of_what_is_shown_already_ends_the_same() {
        let row = |slot| RowId::new(BlockNumber(0), Slot(slot));
        let cells = |number| [Cell::i32(number), Cell::text("a text of more than twelve bytes"), Cell::Null];
        type Write = Box<dyn Fn(&mut RedoBuffer)>;
        let history: Vec<Write> = vec![
            Box::new(move |redo| {
                redo.insert_batch(ID, row(0), 3, 3, |column, cells| {
                    cells.extend((0..3).map(|row| if column.0 == 0 { Cell::i32(row) } else { Cell::Null }));
                });
            }),
            Box::new(move |redo| redo.insert(ID, row(3), &cells(3))),
            Box::new(move |redo| redo.update(ID, row(1), &[ColumnId(0)], &[Cell::i32(11)])),
            Box::new(move |redo| redo.update(ID, row(2), &[ColumnId(0)], &[Cell::i32(12)])),
            Box::new(move |redo| redo.delete(ID, row(2))),
            Box::new(move |redo| redo.delete(ID, row(3))),
            Box::new(move |redo| redo.insert(ID, row(3), &cells(33))),
            Box::new(move |redo| redo.update(ID, row(1), &[ColumnId(1)], &[Cell::text("the last")])),
        ];
        let rows = |target: &Target| {
            let columns = [ColumnId(0), ColumnId(1)];
            let snapshot =
                firn_base::Snapshot { read_time: Time(1), owner: firn_base::Stamp::committed(Time(0)) };
            let scan = target.table.scan(snapshot, &columns, true);
            let batch = scan.next_batch(&firn_storage::pin()).expect("there are rows");
            let ids = batch.row_ids.expect("asked for").values().to_vec();
            format!("{ids:?} {:?}", batch.columns)
        };
        let whole = target();
        history.iter().for_each(|write| apply(&whole, write).unwrap());
        let expected = rows(&whole);
        for shown in 1..=history.len() {
            let target = target();
            history[..shown].iter().for_each(|write| apply(&target, write).unwrap());
            history.iter().for_each(|write| apply_to(&target, Shown::Maybe, write).unwrap());
            assert_eq!(rows(&target), expected, "{shown} had been shown");
        }
        // A row beyond the size of a block is damage in any case.
        let beyond = RowId::new(BlockNumber(0), Slot((1 << 20) - 1));
        assert!(apply_to(&whole, Shown::Maybe, |redo| redo.delete(ID, beyond)).is_err());
    }

    #[test]
    fn redo_that_does_not_fit_is_refused() {
        let good = [Cell::i32(1), Cell::text("x"), Cell::i128(3)];
        let beyond = RowId::new(BlockNumber(0), Slot((1 << 20) - 1));
        let with = |column: usize, cell: Cell<'static>| {
            let mut cells = good;
            cells[column] = cell;
            move |redo: &mut RedoBuffer| redo.insert(ID, first(), &cells)
        };
        let update = |row, column, cell: Cell<'static>| {
            move |redo: &mut RedoBuffer| redo.update(ID, row, &[ColumnId(column)], &[cell])
        };
        type Write = Box<dyn FnOnce(&mut RedoBuffer)>;
        let bad: Vec<Write> = vec![
            Box::new(with(0, Cell::Null)),
            Box::new(with(0, Cell::text("one"))),
            Box::new(with(1, Cell::i32(1))),
            Box::new(with(1, Cell::Bytes(b"\xff"))),
            Box::new(with(2, Cell::i32(1))),
            Box::new(|redo| redo.insert(ID, first(), &[Cell::i32(1)])),
            Box::new(move |redo| redo.insert(ID, beyond, &good)),
            Box::new(|redo| {
                redo.insert_batch(ID, first(), 5000, 3, |_, cells| {
                    cells.extend(std::iter::repeat_n(Cell::Null, 5000))
                });
            }),
            Box::new(|redo| {
                redo.insert_batch(ID, first(), 2, 3, |_, cells| {
                    cells.extend(std::iter::repeat_n(Cell::i32(1), 2))
                });
            }),
            Box::new(update(first(), 0, Cell::Null)),
            Box::new(update(first(), 9, Cell::i32(1))),
            Box::new(update(RowId::new(BlockNumber(0), Slot(5)), 0, Cell::i32(1))),
            Box::new(update(RowId::new(BlockNumber(1), Slot(0)), 0, Cell::i32(1))),
            Box::new(update(beyond, 0, Cell::i32(1))),
            Box::new(move |redo| redo.delete(ID, beyond)),
        ];
        for (number, write) in bad.into_iter().enumerate() {
            let target = target();
            apply(&target, |redo| redo.insert(ID, first(), &good)).unwrap();
            let error = apply(&target, write).expect_err(&format!("number {number} was applied"));
            assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{number}: {error:?}");
        }
    }
}
