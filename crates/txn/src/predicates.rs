//! The predicate log: what a transaction has read, as predicates, and whether it would read the same now.
//!
//! It implements precision locking (Jordan, Banerjee and Batman, "Precision Locks", SIGMOD 1981): before a
//! transaction commits, it tests its own predicates against the writes of others since it began. So the cost
//! depends on their writes and not on how much it has read. Its reads are valid if every row that others
//! changed has the same effect on each of its predicates now as in its snapshot: then the result is the same
//! as if the whole transaction had run at its commit time.
//!
//! | read | predicate | conflicts with |
//! |---|---|---|
//! | a row, by its id or under a key of a unique index | the row | its deletion; a new value in a column read, or in the key |
//! | nothing under a key; a range of an index, under conditions | a range of keys, and a [`Restriction`] of each column | a row that enters or leaves it; a new value of a column read of a row in it |
//! | a table, under conditions | a restriction of each column | likewise |
//!
//! Rows are compared as the snapshot saw them and as they are committed now, whatever happened in between: a
//! value that was set and set back has no effect on reads. That is more precise than testing every before-
//! and after-image. A range covers what keys, summaries or prefixes of strings determine; columns of other
//! conditions count as read.

use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, ColumnSet, Error, Result, RowId, Snapshot, TableId, Time};
use firn_storage::{
    Attic, Changed, ChangedRows, ChangedTable, Digest, Guard, Index, IndexId, KeyBuffer, Restriction, Table,
    comparisons_are_exact, pin,
};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::ops::Bound;

/// How many rows of a table are noted one by one; more become ranges of row ids.
const MOST_ROWS: usize = 4096;
/// The number of these ranges.
const ROW_RANGES: usize = 256;

/// How many rows of a table are searched for a changed one when the caller could also wait instead.
const MOST_ROWS_TO_LOOK_THROUGH: usize = 64;

/// How many ranges of keys of a table are noted; more become fewer and wider ones.
const MOST_KEY_RANGES: usize = 1024;
/// The number of the wider ones, of all indexes together, if there are not more indexes.
const KEY_RANGES: usize = 256;

/// How many scans of a table with different conditions are noted; more become one of all rows.
const MOST_SCANS: usize = 64;

/// Which changes invalidate what a transaction has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Granularity {
    /// New values of columns that it read, and inserted or deleted rows.
    #[default]
    Attribute,
    /// Any change of a row that it read.
    Record,
}

/// With more write sets than these, it is likely that some row has changed more than once.
const SEVERAL: usize = 16;

/// What a transaction has read so far.
#[derive(Debug, Default)]
pub(crate) struct PredicateLog {
    /// The first `used` are of tables that were read; the others keep their memory for further tables.
    tables: Vec<TableReads>,
    used: usize,
}

/// What it has read of one table.
#[derive(Debug)]
struct TableReads {
    table: TableId,
    /// The columns of all predicates below.
    columns: ColumnSet,
    /// In the order in which they were read, on which marks rely.
    rows: Vec<RowRead>,
    /// The same in ascending order, unless rows were added since they were sorted.
    sorted: Vec<RowRead>,
    is_sorted: bool,
    filter: RowFilter,
    /// Whether anything else than these rows was read.
    reads_more_than_rows: bool,
    /// How often rows, and ranges of keys, have been replaced by wider ranges.
    rows_widened: u32,
    keys_widened: u32,
    /// Ranges of row ids, ascending, that have replaced former `rows`.
    row_ranges: Vec<(RowRead, RowId)>,
    key_ranges: Vec<KeyRange>,
    /// One for each index with ranges: a summary of the ranges, made for validation.
    hulls: Vec<Hull>,
    hulls_are_known: bool,
    scans: Vec<Scan>,
}

/// A summary of all ranges of keys of one index: bounds of the first column of the keys in any of them.
struct Hull {
    id: IndexId,
    /// `None` if the index no longer exists: it was dropped by DDL, which conflicts anyway.
    index: Option<Arc<Index>>,
    /// The least and the greatest bound; `None` before there is a range, and inside for an unbounded one.
    bounds: Option<(Option<KeyBuffer>, Option<KeyBuffer>)>,
}

impl std::fmt::Debug for Hull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hull").field("id", &self.id).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Hull {
    fn new(id: IndexId, index: Option<Arc<Index>>) -> Hull {
        Hull { id, index, bounds: None }
    }

    fn add(&mut self, range: &KeyRange) {
        fn key(bound: &Bound<KeyBuffer>) -> Option<&KeyBuffer> {
            match bound {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            }
        }
        let (low, high) = (key(&range.low), key(&range.high));
        let Some((least, greatest)) = &mut self.bounds else {
            self.bounds = Some((low.cloned(), high.cloned()));
            return;
        };
        match (&least, low) {
            (Some(known), Some(low)) if known.as_slice() <= low.as_slice() => {}
            (None, _) => {}
            _ => *least = low.cloned(),
        }
        match (&greatest, high) {
            // It includes all keys that begin with it.
            (Some(known), Some(high)) if high.as_slice().starts_with(known.as_slice()) => {}
            (Some(known), Some(high))
                if known.as_slice() >= high.as_slice() && !known.as_slice().starts_with(high.as_slice()) => {}
            (None, _) => {}
            _ => *greatest = high.cloned(),
        }
    }

    /// Whether a changed row may have been in one of the ranges in one of two snapshots. A change of the key is known from the
    /// changed columns; for other changes one image is enough.
    fn may_hold(
        &self,
        table: &Table,
        row: RowId,
        changed: &ChangedRows,
        [before, after]: [Snapshot; 2],
        guard: &Guard,
    ) -> bool {
        let (Some(index), Some((least, greatest))) = (&self.index, &self.bounds) else { return true };
        let came_or_went = changed.columns == ColumnSet::ALL;
        if !came_or_went && changed.columns.intersects(index.columns()) {
            return true;
        }
        let columns = [index.spec().columns[0].column];
        let leads = [after, before].into_iter().filter_map(|snapshot| {
            let mut lead = [Cell::Null];
            table.read(snapshot, row, &columns, &mut lead, guard).then_some(lead)
        });
        // A change that sets all columns may have changed the key.
        leads.take(if came_or_went { 2 } else { 1 }).any(|lead| {
            let mut key = KeyBuffer::new();
            index.encode(&lead, &mut key);
            Hull::may_begin(key.as_slice(), least.as_ref(), greatest.as_ref())
        })
    }

    /// Whether keys with this prefix may be between two bounds.
    fn may_begin(key: &[u8], least: Option<&KeyBuffer>, greatest: Option<&KeyBuffer>) -> bool {
        let common = |bound: &KeyBuffer| key.len().min(bound.as_slice().len());
        least.is_none_or(|least| key[..common(least)] >= least.as_slice()[..common(least)])
            && greatest
                .is_none_or(|greatest| key[..common(greatest)] <= greatest.as_slice()[..common(greatest)])
    }
}

/// A filter of the rows that were read, with false positives.
#[derive(Debug, Default)]
struct RowFilter([u64; RowFilter::WORDS]);

impl RowFilter {
    const BITS: u32 = 9;
    const WORDS: usize = (1 << Self::BITS) / 64;

    fn place(row: RowId) -> (usize, u64) {
        // Fibonacci hashing: the highest bits depend on all bits.
        let hash = row.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = (hash >> (64 - Self::BITS)) as usize;
        (bit / 64, 1 << (bit % 64))
    }

    #[inline]
    fn add(&mut self, row: RowId) {
        let (word, bit) = RowFilter::place(row);
        self.0[word] |= bit;
    }

    #[inline]
    fn may_have(&self, row: RowId) -> bool {
        let (word, bit) = RowFilter::place(row);
        self.0[word] & bit != 0
    }
}

/// A row, or the first of several, of which some columns were read.
#[derive(Clone, Copy, Debug)]
struct RowRead {
    row: RowId,
    columns: ColumnSet,
}

/// A range of an index, and what was read of those rows in it that meet all restrictions.
#[derive(Debug)]
struct KeyRange {
    index: IndexId,
    low: Bound<KeyBuffer>,
    high: Bound<KeyBuffer>,
    restrictions: Box<[Restriction]>,
    columns: ColumnSet,
}

/// All rows that meet all restrictions.
#[derive(Debug)]
struct Scan {
    restrictions: Box<[Restriction]>,
    columns: ColumnSet,
}

/// A position in the log.
#[derive(Debug)]
pub(crate) struct ReadMark(SmallVec<[TableMark; 8]>);

/// A position in the reads of one table.
#[derive(Clone, Copy, Debug)]
struct TableMark {
    rows: u32,
    rows_widened: u32,
    key_ranges: u32,
    keys_widened: u32,
    scans: u32,
}

impl PredicateLog {
    /// An empty log.
    pub const fn new() -> PredicateLog {
        PredicateLog { tables: Vec::new(), used: 0 }
    }

    /// The present position.
    pub fn mark(&self) -> ReadMark {
        ReadMark(self.tables[..self.used].iter().map(TableReads::mark).collect())
    }

    /// Removes what was read since a mark, except what has been widened meanwhile.
    pub fn truncate(&mut self, ReadMark(mark): &ReadMark) {
        let (known, new) = self.tables[..self.used].split_at_mut(mark.len());
        for (reads, mark) in known.iter_mut().zip(mark) {
            reads.truncate(*mark);
        }
        new.iter_mut().for_each(TableReads::clear);
        self.used = mark.len();
    }

    /// Whether nothing was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Empties the log and keeps its memory.
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

    /// Notes that a row was found, and that `columns` of it were read or relied on.
    #[inline]
    pub fn row(&mut self, table: TableId, row: RowId, columns: ColumnSet) {
        let reads = self.of(table);
        reads.columns = reads.columns.union(columns);
        if reads.rows.len() == MOST_ROWS {
            reads.coarsen();
        }
        reads.rows.push(RowRead { row, columns });
        reads.filter.add(row);
        reads.is_sorted = false;
    }

    /// Notes that no row was found under a key or a prefix of keys.
    pub fn nothing(&mut self, table: TableId, index: &Index, key: &[u8]) {
        let table_reads = self.of(table);
        table_reads.range(
            index,
            (Bound::Included(key), Bound::Included(key)),
            Box::default(),
            ColumnSet::NONE,
        );
    }

    /// Notes that all rows in a range of an index that meet the restrictions were found, with `columns` of each.
    pub fn range(
        &mut self,
        table: &Table,
        index: &Index,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        restrictions: &[Restriction],
        columns: ColumnSet,
    ) {
        let reads = self.of(table.id());
        let (restrictions, columns) = reads.restricted(table, restrictions, columns);
        reads.range(index, bounds, restrictions, columns);
    }

    /// Counts as read all rows of the ranges and scans, whatever their restrictions.
    pub fn widen(&mut self) {
        self.tables[..self.used].iter_mut().for_each(TableReads::widen);
    }

    /// Notes that all rows that meet the restrictions were found, with `columns` of each.
    pub fn scan(&mut self, table: &Table, restrictions: &[Restriction], columns: ColumnSet) {
        let reads = self.of(table.id());
        let (restrictions, columns) = reads.restricted(table, restrictions, columns);
        if let Some(same) = reads.scans.iter_mut().find(|scan| scan.restrictions == restrictions) {
            same.columns = same.columns.union(columns);
            return;
        }
        if reads.scans.len() == MOST_SCANS {
            // Then the restricted columns count as read.
            reads.scans.clear();
            reads.scans.push(Scan { restrictions: Box::default(), columns: reads.columns });
        }
        reads.scans.push(Scan { restrictions, columns });
        reads.reads_more_than_rows = true;
    }

    /// Checks that what was read in `snapshot` reads the same at the time `now` in spite of these write sets, which
    /// have ended in between; otherwise 40001, with the table's name. The transaction's own changes are not
    /// among them.
    pub fn validate(
        &mut self,
        snapshot: Snapshot,
        now: Time,
        ended: &[&Digest],
        granularity: Granularity,
        guard: &Guard,
    ) -> Result<()> {
        let mut comparing = Comparing::new(self, snapshot, now, granularity, guard);
        comparing.snapshots.compared = (ended.len() > SEVERAL).then(HashSet::new);
        for (at, digest) in ended.iter().enumerate() {
            ended.get(at + 1).iter().for_each(|next| next.prefetch());
            digest.parts().all(|(table, changed)| comparing.all_pass(table, changed));
        }
        comparing.outcome()
    }

    /// The same for the write sets that have ended since `snapshot` and whose records were moved to the attic.
    pub fn validate_attic(
        &mut self,
        snapshot: Snapshot,
        now: Time,
        attic: &Attic,
        granularity: Granularity,
    ) -> Result<()> {
        let guard = &pin();
        let mut comparing = Comparing::new(self, snapshot, now, granularity, guard);
        attic.changes(snapshot.read_time, guard, |changed| comparing.passes(changed));
        comparing.outcome()
    }

    /// Whether a write set may have changed anything that was read. Fast, and true when in doubt: it compares which
    /// rows were changed, not how.
    pub fn is_touched_by(&self, ended: &Digest) -> bool {
        !ended.changes(|changed| {
            let mut tables = self.tables[..self.used].iter();
            tables
                .find(|reads| reads.table == changed.table.id())
                .is_none_or(|reads| !reads.is_touched_by(&changed))
        })
    }

    /// The tables that were read.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables[..self.used].iter().map(|reads| reads.table)
    }
}

/// One validation against changes of others.
struct Comparing<'a> {
    tables: &'a mut [TableReads],
    snapshots: Snapshots<'a>,
    conflict: Option<Error>,
}

/// How changed rows are compared.
struct Snapshots<'a> {
    before: Snapshot,
    after: Snapshot,
    granularity: Granularity,
    /// Rows that were compared, if a row may be changed several times: one comparison is enough, however often it changed, since
    /// `after` is the same for all.
    compared: Option<HashSet<(TableId, RowId)>>,
    guard: &'a Guard,
}

impl<'a> Comparing<'a> {
    fn new(
        reads: &'a mut PredicateLog,
        snapshot: Snapshot,
        now: Time,
        granularity: Granularity,
        guard: &'a Guard,
    ) -> Comparing<'a> {
        let after = Snapshot { read_time: now, owner: snapshot.owner };
        Comparing {
            tables: &mut reads.tables[..reads.used],
            snapshots: Snapshots { before: snapshot, after, granularity, compared: None, guard },
            conflict: None,
        }
    }

    /// Whether neither a change nor any before it invalidates a read.
    fn passes(&mut self, Changed { table, first, rows, columns }: Changed<'_>) -> bool {
        let rows = &[ChangedRows { first, columns, rows }];
        self.all_pass(table.id(), ChangedTable { table, columns, rows })
    }

    /// Whether neither changes of a table nor any before them invalidate a read.
    #[inline]
    fn all_pass(&mut self, table: TableId, changed: ChangedTable<'_>) -> bool {
        if self.conflict.is_some() {
            return false;
        }
        let granularity = self.snapshots.granularity;
        let reads = self.tables.iter_mut().find(|reads| reads.table == table);
        let Some(reads) = reads.filter(|reads| reads.may_mind(changed.columns, granularity)) else {
            return true;
        };
        let minds = |rows: &ChangedRows| {
            reads.may_mind(rows.columns, granularity)
                && reads.may_touch(rows)
                && reads.minds(changed.table, rows, &mut self.snapshots)
        };
        if changed.rows.iter().any(minds) {
            self.conflict = Some(Error::read_conflict(&changed.table.name()));
        }
        self.conflict.is_none()
    }

    fn outcome(self) -> Result<()> {
        self.conflict.map_or(Ok(()), Err)
    }
}

impl TableReads {
    fn new() -> TableReads {
        TableReads {
            table: TableId(0),
            columns: ColumnSet::NONE,
            rows: Vec::new(),
            sorted: Vec::new(),
            is_sorted: true,
            filter: RowFilter::default(),
            reads_more_than_rows: false,
            rows_widened: 0,
            keys_widened: 0,
            row_ranges: Vec::new(),
            key_ranges: Vec::new(),
            hulls: Vec::new(),
            hulls_are_known: true,
            scans: Vec::new(),
        }
    }

    /// Counts `columns`, and those that are restricted, among the columns read; returns the restrictions to note, and the
    /// columns whose values matter.
    fn restricted(
        &mut self,
        table: &Table,
        restrictions: &[Restriction],
        columns: ColumnSet,
    ) -> (Box<[Restriction]>, ColumnSet) {
        let mut matter = columns;
        let keep = |restriction: &Restriction| {
            let column = restriction.column();
            let coarser = restriction.coarser();
            // If a restriction is not exact, the condition may have been evaluated by reading the column.
            if coarser.is_some() || !comparisons_are_exact(table.columns()[column.index()].representation) {
                matter = matter.with(column);
            }
            coarser.unwrap_or_else(|| restriction.clone())
        };
        let kept = restrictions.iter().map(keep).collect();
        let restricted = restrictions.iter().map(Restriction::column).collect();
        self.columns = self.columns.union(matter).union(restricted);
        (kept, matter)
    }

    fn widen(&mut self) {
        let asked = |restrictions: &[Restriction]| restrictions.iter().map(Restriction::column).collect();
        for range in &mut self.key_ranges {
            range.columns = range.columns.union(asked(&range.restrictions));
            range.restrictions = Box::default();
        }
        for scan in &mut self.scans {
            scan.columns = scan.columns.union(asked(&scan.restrictions));
            scan.restrictions = Box::default();
        }
    }

    fn range(
        &mut self,
        index: &Index,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        restrictions: Box<[Restriction]>,
        columns: ColumnSet,
    ) {
        self.columns = self.columns.union(columns).union(index.columns());
        if self.key_ranges.len() >= MOST_KEY_RANGES {
            self.widen_key_ranges();
        }
        self.reads_more_than_rows = true;
        self.hulls_are_known = false;
        let (low, high) = (low.map(KeyBuffer::from_slice), high.map(KeyBuffer::from_slice));
        self.key_ranges.push(KeyRange { index: index.spec().id, low, high, restrictions, columns });
    }

    fn mark(&self) -> TableMark {
        TableMark {
            rows: self.rows.len() as u32,
            rows_widened: self.rows_widened,
            key_ranges: self.key_ranges.len() as u32,
            keys_widened: self.keys_widened,
            scans: self.scans.len() as u32,
        }
    }

    /// Removes what was read since a mark. The set of columns does not change and may be too large; so may
    /// the columns of a scan that was noted before the mark.
    fn truncate(&mut self, mark: TableMark) {
        if self.rows_widened == mark.rows_widened {
            self.is_sorted &= mark.rows as usize >= self.rows.len();
            self.rows.truncate(mark.rows as usize);
        }
        if self.keys_widened == mark.keys_widened {
            self.key_ranges.truncate(mark.key_ranges as usize);
            self.hulls_are_known = false;
        }
        self.scans.truncate(mark.scans as usize);
    }

    fn clear(&mut self) {
        self.columns = ColumnSet::NONE;
        self.rows.clear();
        self.sorted.clear();
        self.is_sorted = true;
        self.filter = RowFilter::default();
        self.reads_more_than_rows = false;
        self.row_ranges.clear();
        self.key_ranges.clear();
        self.hulls.clear();
        self.hulls_are_known = true;
        self.scans.clear();
    }

    /// Replaces the rows by ranges of row ids, which include earlier ranges.
    #[cold]
    fn coarsen(&mut self) {
        self.rows_widened += 1;
        self.reads_more_than_rows = true;
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

    /// Replaces the ranges of keys by fewer ones, each of which covers several neighbours.
    #[cold]
    fn widen_key_ranges(&mut self) {
        fn low(range: &KeyRange) -> &[u8] {
            match &range.low {
                Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
                Bound::Unbounded => &[],
            }
        }
        self.key_ranges.sort_by(|left, right| (left.index.0, low(left)).cmp(&(right.index.0, low(right))));
        let indexes = self.key_ranges.chunk_by(|left, right| left.index == right.index).count();
        let each = (KEY_RANGES / indexes).max(1);
        let mut wider: Vec<KeyRange> = Vec::new();
        for ranges in self.key_ranges.chunk_by(|left, right| left.index == right.index) {
            for neighbours in ranges.chunks(ranges.len().div_ceil(each)) {
                // Of two bounds with the same prefix, one inclusive and one exclusive, the inclusive one.
                let first = match low(&neighbours[0]) {
                    [] => Bound::Unbounded,
                    key => Bound::Included(KeyBuffer::from_slice(key)),
                };
                let ends = neighbours.iter().map(|range| match &range.high {
                    Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
                    Bound::Unbounded => None,
                });
                // Of bounds that are prefixes of each other, the shortest is the last: it includes all keys that begin with it.
                let last = ends.reduce(|left, right| match (left?, right?) {
                    (left, right) if left.starts_with(right) => Some(right),
                    (left, right) if right.starts_with(left) => Some(left),
                    (left, right) => Some(left.max(right)),
                });
                let last = last
                    .flatten()
                    .map_or(Bound::Unbounded, |key| Bound::Included(KeyBuffer::from_slice(key)));
                // The columns of their restrictions count as read.
                let restricted = neighbours.iter().flat_map(|range| &range.restrictions);
                let restricted: ColumnSet = restricted.map(Restriction::column).collect();
                let columns = neighbours.iter().fold(restricted, |all, range| all.union(range.columns));
                let (index, restrictions) = (ranges[0].index, Box::default());
                wider.push(KeyRange { index, low: first, high: last, restrictions, columns });
            }
        }
        self.key_ranges = wider;
        self.keys_widened += 1;
    }

    /// Whether one of the changed rows was read, or may have entered or left a range or scan.
    fn is_touched_by(&self, changed: &Changed<'_>) -> bool {
        let first = changed.first.to_bits();
        let rows = first..first + u64::from(changed.rows);
        !self.key_ranges.is_empty()
            || !self.scans.is_empty()
            || !self.row_ranges.is_empty()
            || self.rows.len() > MOST_ROWS_TO_LOOK_THROUGH
            || self.rows.iter().any(|read| rows.contains(&read.row.to_bits()))
    }

    /// Whether a change can invalidate a read, according to its columns.
    #[inline]
    fn may_mind(&self, columns: ColumnSet, granularity: Granularity) -> bool {
        granularity == Granularity::Record || columns.intersects(self.columns) || columns == ColumnSet::ALL
    }

    /// Whether changed rows can be among those read, according to the filters.
    #[inline]
    fn may_touch(&self, changed: &ChangedRows) -> bool {
        changed.rows > 1 || self.reads_more_than_rows || self.filter.may_have(changed.first)
    }

    /// Whether two snapshots read the changed rows differently.
    fn minds(&mut self, table: &Arc<Table>, changed: &ChangedRows, snapshots: &mut Snapshots<'_>) -> bool {
        let Snapshots { before, after, granularity, ref mut compared, guard } = *snapshots;
        if !self.is_sorted {
            self.sorted.clone_from(&self.rows);
            self.sorted.sort_unstable_by_key(|read| read.row.to_bits());
            self.is_sorted = true;
        }
        if !self.hulls_are_known {
            self.find_hulls(table, guard);
        }
        let list = |columns: ColumnSet| -> SmallVec<[ColumnId; 16]> {
            (0..table.columns().len() as u16)
                .map(ColumnId)
                .filter(|column| columns.contains(*column))
                .collect()
        };
        let first = changed.first.to_bits();
        let end = first + u64::from(changed.rows);
        let from = |row: u64| self.sorted.partition_point(|read| read.row.to_bits() < row);
        let touches =
            |(first_read, last): &(RowRead, RowId)| first_read.row.to_bits() < end && last.to_bits() >= first;
        if self.key_ranges.is_empty()
            && self.scans.is_empty()
            && from(first) == from(end)
            && !self.row_ranges.iter().any(touches)
        {
            return false;
        }
        let wanted = list(self.columns);
        (first..end).map(RowId::from_bits).any(|row| {
            let rows = self.sorted[from(row.to_bits())..].iter().take_while(|read| read.row == row);
            let ranges = self
                .row_ranges
                .iter()
                .filter(|(first, last)| (first.row.to_bits()..=last.to_bits()).contains(&row.to_bits()))
                .map(|(first, _)| first.columns);
            let by_id = rows.map(|read| read.columns).chain(ranges).reduce(ColumnSet::union);
            if by_id.is_none() && self.key_ranges.is_empty() && self.scans.is_empty() {
                return false;
            }
            if by_id.is_none()
                && self.scans.is_empty()
                && !self.hulls.iter().any(|hull| hull.may_hold(table, row, changed, [before, after], guard))
            {
                return false;
            }
            if compared.as_mut().is_some_and(|compared| !compared.insert((self.table, row))) {
                return false;
            }
            let difference = Difference::of(table, row, &wanted, before, after, guard);
            by_id.is_some_and(|columns| difference.matters([true, true], columns, granularity))
                || self.is_in_a_range_that_minds(table, &difference, granularity, guard)
                || self.scans.iter().any(|scan| {
                    let meets = difference.meets(table, &scan.restrictions);
                    difference.matters(meets, scan.columns, granularity)
                })
        })
    }

    /// Makes the summary of the ranges of each index.
    #[cold]
    fn find_hulls(&mut self, table: &Table, guard: &Guard) {
        self.hulls.clear();
        for range in &self.key_ranges {
            let hull = match self.hulls.iter_mut().find(|hull| hull.id == range.index) {
                Some(hull) => hull,
                None => {
                    let index = table.indexes_now(guard).iter().find(|index| index.spec().id == range.index);
                    self.hulls.push(Hull::new(range.index, index.cloned()));
                    self.hulls.last_mut().expect("just added")
                }
            };
            hull.add(range);
        }
        self.hulls_are_known = true;
    }

    fn is_in_a_range_that_minds(
        &self,
        table: &Table,
        difference: &Difference<'_>,
        granularity: Granularity,
        guard: &Guard,
    ) -> bool {
        let indexes = table.indexes_now(guard);
        // Ranges of one index are mostly neighbours: the keys are not encoded again for each.
        let mut keys: Option<(IndexId, [Option<KeyBuffer>; 2])> = None;
        self.key_ranges.iter().any(|range| {
            if keys.as_ref().is_none_or(|(index, _)| *index != range.index) {
                // The index was dropped by DDL, which conflicts anyway.
                let Some(index) = indexes.iter().find(|index| index.spec().id == range.index) else {
                    return true;
                };
                keys = Some((range.index, difference.keys(index)));
            }
            let (_, keys) = keys.as_ref().expect("just made");
            let [before, after] =
                keys.each_ref().map(|key| key.as_ref().is_some_and(|key| range.contains(key.as_slice())));
            if !before && !after {
                return false;
            }
            let meets = difference.meets(table, &range.restrictions);
            difference.matters([before && meets[0], after && meets[1]], range.columns, granularity)
        })
    }
}

/// A row as the snapshot saw it and as it is committed.
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

    /// Whether the images differ for a read of `columns` of the rows that meet a predicate, given whether
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

    /// Whether each image meets all restrictions, if there is one.
    fn meets(&self, table: &Table, restrictions: &[Restriction]) -> [bool; 2] {
        self.images.each_ref().map(|image| {
            let Some(image) = image else { return false };
            restrictions.iter().all(|restriction| {
                let column = restriction.column();
                let ty = table.columns()[column.index()].representation;
                restriction.admits_value(ty, &self.cell(image, column))
            })
        })
    }

    /// The keys of both images in an index.
    fn keys(&self, index: &Index) -> [Option<KeyBuffer>; 2] {
        self.images.each_ref().map(|image| {
            let image = image.as_ref()?;
            let mut key = KeyBuffer::new();
            index.encode_with(|column| self.cell(image, column), &mut key);
            Some(key)
        })
    }

    fn cell(&self, image: &[Cell<'g>], column: ColumnId) -> Cell<'g> {
        let at = self.columns.iter().position(|wanted| *wanted == column);
        image[at.expect("every column of a predicate is wanted")]
    }
}

impl KeyRange {
    /// Whether a full key is in the range. Bounds may be prefixes, as those of [`Index::range`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    /// Few different bytes, so that many keys are prefixes of each other.
    fn bytes(random: &mut Random, longest: i64) -> Vec<u8> {
        (0..random.uniform(0, longest)).map(|_| random.uniform(1, 3) as u8).collect()
    }

    fn bound(random: &mut Random) -> Bound<KeyBuffer> {
        let key = KeyBuffer::from_slice(&bytes(random, 4));
        match random.uniform(0, 6) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    #[test]
    fn a_hull_holds_how_every_key_begins_that_is_in_a_range() {
        let mut random = Random::seeded(11);
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..if cfg!(miri) { 60 } else { 20_000 } {
            let ranges: Vec<KeyRange> = (0..random.uniform(1, 3))
                .map(|_| KeyRange {
                    index: IndexId(1),
                    low: bound(&mut random),
                    high: bound(&mut random),
                    restrictions: Box::default(),
                    columns: ColumnSet::NONE,
                })
                .collect();
            let mut hull = Hull::new(IndexId(1), None);
            ranges.iter().for_each(|range| hull.add(range));
            let (least, greatest) = hull.bounds.as_ref().expect("there are ranges");
            let key = bytes(&mut random, 5);
            let is_in_a_range = ranges.iter().any(|range| range.contains(&key));
            for begins in (0..=key.len()).map(|length| &key[..length]) {
                let may_be = Hull::may_begin(begins, least.as_ref(), greatest.as_ref());
                assert!(may_be || !is_in_a_range, "{key:?} in {ranges:?}");
                outside += u32::from(!may_be);
            }
            inside += u32::from(is_in_a_range);
        }
        assert!(cfg!(miri) || inside > 2000 && outside > 2000, "{inside} and {outside}");
    }

    #[test]
    fn a_row_that_was_read_is_in_the_filter() {
        let mut filter = RowFilter::default();
        let read: Vec<RowId> = (0..40).map(|number| RowId::from_bits(number * 977)).collect();
        read.iter().for_each(|row| filter.add(*row));
        assert!(read.iter().all(|row| filter.may_have(*row)));
        let others = (0..1000).filter(|number| filter.may_have(RowId::from_bits(number * 977 + 1))).count();
        assert!(others < 200, "{others}");
    }
}
