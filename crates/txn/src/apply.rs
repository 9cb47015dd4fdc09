//! Applying redo: commits as the log has them, done to tables that nobody else uses.
//!
//! One reader takes the log apart into groups and applies what concerns the whole database, the
//! catalog and the sequences; workers apply the rows, each those of its share of the blocks, in log
//! order. Changes of different rows do not depend on each other, so nothing else has an order.
//!
//! ```text
//!   reader ── groups ──┬──> worker 0: the blocks whose table and number add up to 0, 2, 4 …
//!                      └──> worker 1: those of 1, 3, 5 …
//! ```
//! Every worker gets every group and skips what is not its own, by the records' lengths: passing
//! over a record costs less than handing it over.
//!
//! Invariant: a table is known to the workers before a group that names it is handed to them.

use crate::catalog::{Catalog, CatalogChange, IdMarks, Oid, StorageDef};
use crate::sequence::SequenceState;
use firn_base::sync::{Arc, RwLock, mpsc};
use firn_base::types::Width;
use firn_base::{Cell, ColumnId, Error, Result, RowId, SqlState, TableId, Time, thread};
use firn_log::{Entry, Group, Reader, Record};
use firn_storage::{ColumnSpec, Table, TableOptions};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Bytes of the log that are handed to the workers at once.
const BATCH_BYTES: u64 = 1 << 20;
/// Such batches that may wait for a worker.
const WAITING_BATCHES: usize = 8;

type Groups = Arc<Vec<Group>>;
/// Shared with the workers, which look up tables while the reader adds some.
type Tables = Arc<RwLock<HashMap<TableId, Arc<Table>>>>;

/// A database being rebuilt. Its tables have no versions and no indexes yet.
pub(crate) struct Rebuilt {
    /// Every physical table there was at any time.
    pub tables: Tables,
    pub catalog: Catalog,
    pub marks: IdMarks,
    pub sequences: HashMap<Oid, SequenceState>,
    /// The newest commit in it.
    pub last: Time,
    /// Tables that the log has changed.
    pub changed: HashSet<TableId>,
    pub options: TableOptions,
}

impl Rebuilt {
    /// Makes the physical table that a change of the catalog or a checkpoint describes.
    pub fn create_table(&self, definition: &StorageDef) {
        let id = TableId(definition.id);
        let table = Table::new(id, &definition.name, definition.column_specs(), self.options);
        self.tables.write().insert(id, table);
    }

    /// Applies every commit that `reader` yields. Those up to `last` are in it already.
    pub fn replay(&mut self, reader: &mut Reader, threads: usize) -> Result<()> {
        let known = self.last;
        let shares = threads.max(1) as u32;
        let tables = self.tables.clone();
        let (read, applied) = thread::scope(|scope| {
            let (senders, workers): (Vec<_>, Vec<_>) = (0..shares)
                .map(|share| {
                    let (sender, receiver) = mpsc::sync_channel::<Groups>(WAITING_BATCHES);
                    let mut worker = Worker { tables: &tables, known, share, shares, mine: Vec::new() };
                    let body = move || worker.run(&receiver).map(|()| worker.changed());
                    (sender, thread::spawn_scoped(scope, "firn-replay", body))
                })
                .unzip();
            let read = self.read(reader, &senders);
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
        read
    }

    fn read(&mut self, reader: &mut Reader, workers: &[mpsc::SyncSender<Groups>]) -> Result<()> {
        let known = self.last;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let group = reader.next_group()?;
            let ended = group.is_none();
            if let Some(group) = group {
                for entry in group.entries() {
                    self.apply_to_all(entry, known)?;
                }
                bytes += group.end.0 - group.begin.0;
                batch.push(group);
            }
            if ended || bytes >= BATCH_BYTES {
                let groups = Arc::new(std::mem::take(&mut batch));
                bytes = 0;
                for worker in workers {
                    if worker.send(groups.clone()).is_err() {
                        // It has stopped because of an error, which the caller gets from it.
                        return Ok(());
                    }
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Applies what is not rows.
    fn apply_to_all(&mut self, entry: Entry<'_>, known: Time) -> Result<()> {
        self.last = self.last.max(entry.time);
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
                // Sequences stand beside commit times; the checkpoint may hold a later state than
                // this record, but then it holds that of a record further on as well.
                Record::SequenceAdvance { oid, value, called } => {
                    self.sequences.insert(Oid(oid), SequenceState::recovered(value, called));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Applies the rows of some tables.
struct Worker<'a> {
    tables: &'a RwLock<HashMap<TableId, Arc<Table>>>,
    /// Commits up to this time are in the tables already.
    known: Time,
    share: u32,
    shares: u32,
    /// The tables it has changed, by number.
    mine: Vec<Option<Arc<Table>>>,
}

/// How many records before it is applied a row is fetched from memory.
const AHEAD: usize = 16;

impl Worker<'_> {
    fn run(&mut self, batches: &mpsc::Receiver<Groups>) -> Result<()> {
        while let Ok(groups) = batches.recv() {
            let known = self.known;
            let entries = || groups.iter().flat_map(Group::entries).filter(move |entry| entry.time > known);
            // Of a damaged record we hear below.
            let mut ahead = entries().flat_map(|entry| entry.records()).map_while(Result::ok);
            ahead.by_ref().take(AHEAD).for_each(|record| self.prefetch(&record));
            for entry in entries() {
                for record in entry.records() {
                    if let Some(record) = ahead.next() {
                        self.prefetch(&record);
                    }
                    record
                        .and_then(|record| self.apply(record))
                        .map_err(|error| in_commit(error, entry.time))?;
                }
            }
        }
        Ok(())
    }

    /// Whether the rows of a block are this worker's.
    #[inline]
    fn owns(&self, table: TableId, row: RowId) -> bool {
        (u64::from(table.0) + row.block().0) % u64::from(self.shares) == u64::from(self.share)
    }

    #[inline]
    fn apply(&mut self, record: Record<'_>) -> Result<()> {
        match record.row() {
            Some((id, row)) if self.owns(id, row) => apply_to(self.table(id)?, record),
            _ => Ok(()),
        }
    }

    /// Fetches what applying a record will change: rows lie anywhere, and to wait for one after another
    /// takes longer than all the rest.
    #[inline]
    fn prefetch(&self, record: &Record<'_>) {
        let Some((id, row)) = record.row().filter(|(id, row)| self.owns(*id, *row)) else { return };
        let Some(Some(table)) = self.mine.get(id.0 as usize) else { return };
        match record {
            Record::Update { cells, .. } => {
                let mut columns: SmallVec<[ColumnId; 24]> = SmallVec::new();
                columns.extend(cells.clone().map_while(Result::ok).map(|(column, _)| column));
                columns.retain(|column| column.index() < table.columns().len());
                table.prefetch(row, &columns);
            }
            Record::Delete { .. } => table.prefetch(row, &[]),
            _ => {}
        }
    }

    #[inline]
    fn table(&mut self, id: TableId) -> Result<&Table> {
        let number = id.0 as usize;
        if self.mine.get(number).is_none_or(Option::is_none) {
            let table = self.tables.read().get(&id).cloned();
            let table =
                table.ok_or_else(|| misfit(format!("it names physical table {}, which is unknown", id.0)))?;
            self.mine.resize(self.mine.len().max(number + 1), None);
            self.mine[number] = Some(table);
        }
        Ok(self.mine[number].as_ref().expect("just put there"))
    }

    fn changed(&self) -> HashSet<TableId> {
        self.mine.iter().flatten().map(|table| table.id()).collect()
    }
}

/// Does to the rows of `table` what `record` says. After an error the table is of no more use.
#[inline]
pub(crate) fn apply_to(table: &Table, record: Record<'_>) -> Result<()> {
    let specs = table.columns();
    match record {
        Record::Insert { row, mut cells, .. } => {
            check_columns(cells.len(), specs)?;
            check_slots(table, row, 1)?;
            let restored = table.restore_rows(row, 1);
            for ((column, spec), cell) in (0..).zip(specs).zip(&mut cells) {
                restored.set(ColumnId(column), &fitting(cell?, spec)?);
            }
            check_end(cells)?;
            restored.insert();
        }
        Record::InsertBatch { first, rows, mut columns, .. } => {
            check_columns(columns.len(), specs)?;
            check_slots(table, first, rows)?;
            let restored = table.restore_rows(first, rows);
            for ((column, spec), cells) in (0..).zip(specs).zip(&mut columns) {
                let (mut cells, mut failure) = (cells?, None);
                restored.set_all(
                    ColumnId(column),
                    (&mut cells).map_while(|cell| match cell.and_then(|cell| fitting(cell, spec)) {
                        Ok(cell) => Some(cell),
                        Err(error) => {
                            failure = Some(error);
                            None
                        }
                    }),
                );
                failure.map_or(Ok(()), Err)?;
                check_end(cells)?;
            }
            check_end(columns)?;
            restored.insert();
        }
        Record::Update { row, cells, .. } => {
            let Some(restored) = table.restored(row) else {
                return Err(misfit(format!("it updates row {row:?}, which is not there")));
            };
            for updated in cells {
                let (column, cell) = updated?;
                let Some(spec) = specs.get(column.index()) else {
                    return Err(misfit(format!("there is no column {}", column.0)));
                };
                restored.set(column, &fitting(cell, spec)?);
            }
        }
        Record::Delete { row, .. } => match table.restored(row) {
            Some(restored) => restored.delete(),
            None => return Err(misfit(format!("it deletes row {row:?}, which is not there"))),
        },
        Record::CatalogChange(_) | Record::SequenceAdvance { .. } => {}
    }
    Ok(())
}

fn check_columns(count: usize, specs: &[ColumnSpec]) -> Result<()> {
    if count == specs.len() {
        return Ok(());
    }
    Err(misfit("a row does not have the columns of its table".to_owned()))
}

/// An iterator over what was read to the end may have an error to tell: of bytes that are left over.
fn check_end<T>(mut rest: impl Iterator<Item = Result<T>>) -> Result<()> {
    match rest.next() {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(_)) => Err(misfit("a record holds more than it says".to_owned())),
    }
}

fn check_slots(table: &Table, first: RowId, rows: u32) -> Result<()> {
    if table.has_slots(first, rows) {
        return Ok(());
    }
    Err(misfit(format!("{rows} rows from {first:?} on do not lie in one block")))
}

/// The cell, if the column takes it. Storage believes its callers, and the log is not one of them.
#[inline(always)]
fn fitting<'c>(cell: Cell<'c>, spec: &ColumnSpec) -> Result<Cell<'c>> {
    if fits(&cell, spec) {
        Ok(cell)
    } else {
        Err(misfit(format!("a column of {} does not take {cell:?}", spec.ty)))
    }
}

/// Whether a column takes a cell.
#[inline]
fn fits(cell: &Cell<'_>, spec: &ColumnSpec) -> bool {
    match cell {
        Cell::Null => spec.nullable,
        Cell::Word(_) => matches!(spec.ty.width(), Width::Bit | Width::Fixed(0..=8)),
        Cell::Wide(_) => spec.ty.width() == Width::Fixed(16),
        Cell::Inline(..) | Cell::Bytes(_) => spec.ty.width() == Width::View,
    }
}

#[cold]
fn misfit(what: String) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("the log does not fit the checkpoint: {what}"))
        .with_hint("Restore the database directory from a backup.")
}

#[cold]
fn in_commit(error: Error, time: Time) -> Error {
    error.with_detail(format!("It is in the redo of the commit with time {}.", time.0))
}
