//! The predicate log: what a transaction has read, as predicates, and whether it would read the same now.
//!
//! Precision locking (Jordan et al. 1981; seed 000 §2.2.3): a transaction that wants to commit tests
//! its own predicates against what others have written since it began, so that the cost depends on
//! their writes and not on how much it has read. Its reads hold if every row that others changed makes the
//! same difference to each of its predicates now as it did in its snapshot: then the transaction
//! might as well have run at its commit time, all of it.
//!
//! | read | predicate | conflicts with |
//! |---|---|---|
//! | a row, by its id or under a key of a unique index | the row | its end; a new value in a column read, or in the key |
//! | nothing under a key; a stretch of an index | a range of keys | a row that comes into it or leaves it; a new value of a column read of one in it |
//! | a table, under conditions | a range of each column's [`summary`] | likewise |
//!
//! Rows are compared as the snapshot saw them and as they are committed now, whatever happened in
//! between: a value that was set and set back makes no difference to anybody's reads. That is finer
//! than the seed, which looks at every before- and after-image. A range only knows what it can tell
//! from keys or summaries; columns of conditions beyond that count as read.

use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, ColumnSet, Error, Result, RowId, Snapshot, TableId, Time};
use firn_storage::{
    Changed, Guard, Index, IndexId, KeyBuffer, Retired, Table, pin, summary, summary_is_exact,
};
use smallvec::SmallVec;
use std::ops::Bound;

/// Rows of a table that are remembered one by one; more become ranges of row ids.
const MOST_ROWS: usize = 4096;
/// How many ranges they become.
const ROW_RANGES: usize = 256;

/// What makes a difference to what a transaction has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Granularity {
    /// New values of columns that it read, and rows that come or go.
    #[default]
    Attribute,
    /// Any change of a row that it read.
    Record,
}

/// A condition on one column: that it is not NULL and its [`summary`] lies within bounds, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Which column.
    pub column: ColumnId,
    /// The least summary.
    pub low: u64,
    /// The greatest.
    pub high: u64,
}

/// What a transaction has read so far.
#[derive(Debug, Default)]
pub(crate) struct PredicateLog {
    /// The first `used` are of tables read; the others keep their memory for tables to come.
    tables: Vec<TableReads>,
    used: usize,
}

/// What it has read of one table.
#[derive(Debug)]
struct TableReads {
    table: TableId,
    /// Columns that any of the predicates below is about.
    columns: ColumnSet,
    rows: Vec<RowRead>,
    /// Whether they ascend.
    is_sorted: bool,
    /// Ranges of row ids, ascending, which former `rows` have become.
    row_ranges: Vec<(RowRead, RowId)>,
    key_ranges: Vec<KeyRange>,
    scans: Vec<Scan>,
}

/// A row, or the first of several, of which some columns were read.
#[derive(Clone, Copy, Debug)]
struct RowRead {
    row: RowId,
    columns: ColumnSet,
}

/// A stretch of an index, and what was read of the rows in it.
#[derive(Debug)]
struct KeyRange {
    index: IndexId,
    low: Bound<KeyBuffer>,
    high: Bound<KeyBuffer>,
    columns: ColumnSet,
}

/// All rows that meet all conditions.
#[derive(Debug)]
struct Scan {
    conditions: Box<[Condition]>,
    columns: ColumnSet,
}

impl PredicateLog {
    /// An empty log.
    pub const fn new() -> PredicateLog {
        PredicateLog { tables: Vec::new(), used: 0 }
    }

    /// Whether nothing was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Forgets everything but the memory it took.
    pub fn clear(&mut self) {
        self.tables[..self.used].iter_mut().for_each(TableReads::clear);
        self.used = 0;
    }

    #[inline]
    fn of(&mut self, table: TableId) -> &mut TableReads {
        let at = self.tables[..self.used].iter().position(|reads| reads.table == table);
        match at {
            Some(at) => &mut self.tables[at],
            None => self.begin(table),
        }
    }

    #[cold]
    fn begin(&mut self, table: TableId) -> &mut TableReads {
        if self.used == self.tables.len() {
            self.tables.push(TableReads::new());
        }
        let reads = &mut self.tables[self.used];
        reads.table = table;
        self.used += 1;
        reads
    }

    /// A row was found, and `columns` of it read or relied on.
    #[inline]
    pub fn row(&mut self, table: TableId, row: RowId, columns: ColumnSet) {
        let reads = self.of(table);
        reads.columns = reads.columns.union(columns);
        if reads.rows.len() == MOST_ROWS {
            reads.coarsen();
        }
        reads.rows.push(RowRead { row, columns });
        reads.is_sorted = false;
    }

    /// Nothing was found under a key or a prefix of keys.
    pub fn nothing(&mut self, table: TableId, index: &Index, key: &[u8]) {
        self.range(table, index, Bound::Included(key), Bound::Included(key), ColumnSet::NONE);
    }

    /// All rows in a stretch of an index were found, with `columns` of each.
    pub fn range(
        &mut self,
        table: TableId,
        index: &Index,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        columns: ColumnSet,
    ) {
        let reads = self.of(table);
        reads.columns = reads.columns.union(columns).union(index.columns());
        let (low, high) = (low.map(KeyBuffer::from_slice), high.map(KeyBuffer::from_slice));
        reads.key_ranges.push(KeyRange { index: index.spec().id, low, high, columns });
    }

    /// All rows that meet the conditions were found, with `columns` of each.
    pub fn scan(&mut self, table: &Table, conditions: &[Condition], columns: ColumnSet) {
        let reads = self.of(table.id());
        // What a condition cannot tell exactly, it may have been told by reading the column.
        let inexact = conditions
            .iter()
            .map(|condition| condition.column)
            .filter(|column| !summary_is_exact(table.columns()[column.index()].ty));
        let columns = columns.union(inexact.collect());
        let restricted: ColumnSet = conditions.iter().map(|condition| condition.column).collect();
        reads.columns = reads.columns.union(columns).union(restricted);
        reads.scans.push(Scan { conditions: conditions.into(), columns });
    }

    /// Whether what was read in `snapshot` still reads the same, as far as the write sets go that have
    /// ended since; 40001 naming the table otherwise. The transaction's own changes are not among them.
    pub fn validate(
        &mut self,
        snapshot: Snapshot,
        ended: &[Arc<Retired>],
        granularity: Granularity,
    ) -> Result<()> {
        let mut guard = None;
        let mut conflict = None;
        let now = Snapshot { read_time: Time::LATEST, owner: snapshot.owner };
        for retired in ended {
            retired.changes(|changed| {
                let reads =
                    self.tables[..self.used].iter_mut().find(|reads| reads.table == changed.table.id());
                let Some(reads) = reads.filter(|reads| reads.may_mind(&changed, granularity)) else {
                    return true;
                };
                let guard = guard.get_or_insert_with(pin);
                if reads.minds(&changed, snapshot, now, granularity, guard) {
                    conflict = Some(changed.table.name());
                }
                conflict.is_none()
            });
            if let Some(table) = conflict {
                return Err(Error::read_conflict(&table));
            }
        }
        Ok(())
    }

    /// The tables that were read.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables[..self.used].iter().map(|reads| reads.table)
    }
}

impl TableReads {
    fn new() -> TableReads {
        TableReads {
            table: TableId(0),
            columns: ColumnSet::NONE,
            rows: Vec::new(),
            is_sorted: true,
            row_ranges: Vec::new(),
            key_ranges: Vec::new(),
            scans: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.columns = ColumnSet::NONE;
        self.rows.clear();
        self.row_ranges.clear();
        self.key_ranges.clear();
        self.scans.clear();
    }

    /// Makes ranges of the rows, those read before included.
    #[cold]
    fn coarsen(&mut self) {
        let former = self.row_ranges.drain(..);
        let mut all: Vec<(RowRead, RowId)> =
            self.rows.drain(..).map(|read| (read, read.row)).chain(former).collect();
        all.sort_unstable_by_key(|(read, _)| read.row.to_bits());
        for part in all.chunks(all.len().div_ceil(ROW_RANGES)) {
            let columns = part.iter().fold(ColumnSet::NONE, |all, (read, _)| all.union(read.columns));
            let last = part.iter().map(|(_, last)| *last).max_by_key(|row| row.to_bits());
            let first = RowRead { row: part[0].0.row, columns };
            self.row_ranges.push((first, last.expect("chunks are not empty")));
        }
    }

    /// Whether a change can make a difference, by its columns.
    #[inline]
    fn may_mind(&self, changed: &Changed<'_>, granularity: Granularity) -> bool {
        granularity == Granularity::Record
            || changed.columns.intersects(self.columns)
            || changed.columns == ColumnSet::ALL
    }

    /// Whether the changed rows make a difference between what two snapshots read of them.
    fn minds(
        &mut self,
        changed: &Changed<'_>,
        before: Snapshot,
        after: Snapshot,
        granularity: Granularity,
        guard: &Guard,
    ) -> bool {
        let table = changed.table;
        if !self.is_sorted {
            self.rows.sort_unstable_by_key(|read| read.row.to_bits());
            self.is_sorted = true;
        }
        let wanted: SmallVec<[ColumnId; 16]> = (0..table.columns().len() as u16)
            .map(ColumnId)
            .filter(|column| self.columns.contains(*column))
            .collect();
        let first = changed.first.to_bits();
        (first..first + u64::from(changed.rows)).map(RowId::from_bits).any(|row| {
            let begin = self.rows.partition_point(|read| read.row.to_bits() < row.to_bits());
            let rows = self.rows[begin..].iter().take_while(|read| read.row == row).map(|read| read.columns);
            let ranges = self
                .row_ranges
                .iter()
                .filter(|(first, last)| (first.row.to_bits()..=last.to_bits()).contains(&row.to_bits()))
                .map(|(first, _)| first.columns);
            let by_id = rows.chain(ranges).reduce(ColumnSet::union);
            if by_id.is_none() && self.key_ranges.is_empty() && self.scans.is_empty() {
                return false;
            }
            let difference = Difference::of(table, row, &wanted, before, after, guard);
            by_id.is_some_and(|columns| difference.matters([true, true], columns, granularity))
                || self.key_ranges.iter().any(|range| {
                    difference.matters(range.holds(table, &difference), range.columns, granularity)
                })
                || self
                    .scans
                    .iter()
                    .any(|scan| difference.matters(scan.holds(table, &difference), scan.columns, granularity))
        })
    }
}

/// A row as it was and as it is.
struct Difference<'g> {
    columns: &'g [ColumnId],
    images: [Image<'g>; 2],
}

/// The wanted columns of a row; `None` if there is no row.
type Image<'g> = Option<SmallVec<[Cell<'g>; 16]>>;

impl<'g> Difference<'g> {
    fn of(
        table: &'g Table,
        row: RowId,
        columns: &'g [ColumnId],
        before: Snapshot,
        after: Snapshot,
        guard: &'g Guard,
    ) -> Difference<'g> {
        let image = |snapshot| {
            let mut cells = SmallVec::from_elem(Cell::Null, columns.len());
            table.read(snapshot, row, columns, &mut cells, guard).then_some(cells)
        };
        Difference { columns, images: [image(before), image(after)] }
    }

    /// Whether it makes one to a read of `columns` of the rows that meet a predicate, given whether
    /// each image meets it if there is one.
    fn matters(&self, meets: [bool; 2], columns: ColumnSet, granularity: Granularity) -> bool {
        let [before, after] = &self.images;
        match (before.as_ref().filter(|_| meets[0]), after.as_ref().filter(|_| meets[1])) {
            (None, None) => false,
            (Some(before), Some(after)) => {
                granularity == Granularity::Record
                    || self
                        .columns
                        .iter()
                        .zip(before.iter().zip(after))
                        .any(|(column, (before, after))| columns.contains(*column) && !before.is_same(after))
            }
            _ => true,
        }
    }

    fn cell(&self, image: &[Cell<'g>], column: ColumnId) -> Cell<'g> {
        let at = self.columns.iter().position(|wanted| *wanted == column);
        image[at.expect("every column of a predicate is wanted")]
    }
}

impl KeyRange {
    /// Whether each image lies in the range.
    fn holds(&self, table: &Table, difference: &Difference<'_>) -> [bool; 2] {
        let indexes = table.indexes();
        // An index that is gone was dropped by DDL, which conflicts anyway.
        let Some(index) = indexes.iter().find(|index| index.spec().id == self.index) else {
            return [true, true];
        };
        difference.images.each_ref().map(|image| {
            image.as_ref().is_some_and(|image| {
                let mut key = KeyBuffer::new();
                index.encode_with(|column| difference.cell(image, column), &mut key);
                self.contains(key.as_slice())
            })
        })
    }

    /// Whether a full key lies in it: bounds may be prefixes, as those of [`Index::range`].
    fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= low.as_slice(),
            Bound::Excluded(low) => key > low.as_slice() && !key.starts_with(low.as_slice()),
        };
        above
            && match &self.high {
                Bound::Unbounded => true,
                Bound::Included(high) => key <= high.as_slice() || key.starts_with(high.as_slice()),
                Bound::Excluded(high) => key < high.as_slice(),
            }
    }
}

impl Scan {
    /// Whether each image meets the conditions.
    fn holds(&self, table: &Table, difference: &Difference<'_>) -> [bool; 2] {
        difference.images.each_ref().map(|image| {
            image.as_ref().is_some_and(|image| {
                self.conditions.iter().all(|condition| {
                    let ty = table.columns()[condition.column.index()].ty;
                    let summary = summary(ty, &difference.cell(image, condition.column));
                    summary.is_some_and(|summary| (condition.low..=condition.high).contains(&summary))
                })
            })
        })
    }
}
