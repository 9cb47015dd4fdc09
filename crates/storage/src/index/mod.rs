//! Ordered indexes from keys to rows.
//!
//! A key is a byte string whose order is the index's order ([`key`]). A unique index maps a key to
//! every row that any snapshot may find under it, nearly always one ([`posting`]); a non-unique
//! index, and the keys of a unique one that hold a distinct NULL, are key ‖ row id. Indexes know no times:
//! readers re-check visibility and key.
//!
//! What storage owes the index, so that no entry is lost and no unique key is held twice:
//! - A row is written before its key is inserted or claimed. Then whoever judges the row, or asks
//!   whether it is dead, sees what it is about to hold.
//! - A row and key are inserted or claimed again when an update returns to a key that an older
//!   version of the row had, even though they are there. Then a removal for the older version that
//!   has not happened yet asks again.

mod art;
mod buffer;
mod key;
mod list;
mod locked;
mod ordered;
mod posting;
mod radix;
mod runs;
mod spec;
#[cfg(test)]
mod tests;
mod valueless;
mod waiting;

use crate::Guard;
use crate::budget::{Held, MemoryBudget};
use crate::column::ColumnSpec;
use crate::table::Table;
use crate::typed::{Misfit, Row};
use art::{PairTree, UniqueTree};
pub use buffer::KeyBuffer;
use firn_base::sync::{Arc, AtomicI64, OnceLock, Ordering, Weak};
use firn_base::{BlockNumber, Cell, ColumnId, ColumnSet, RowId};
use key::{Codec, packed};
pub(crate) use key::{
    Packed, append_packed, doubles_within, numeric_summary, ordered_double, ordered_real, reals_within,
    wide_numbers, wide_summary,
};
pub use key::{comparisons_are_exact, summary, summary_is_exact};
pub(crate) use list::IndexList;
use locked::LockedIndex;
pub use ordered::Verdict;
use ordered::{EVERYTHING, OrderedIndex, Span};
pub(crate) use radix::AT_ONCE;
use radix::{Left, Numbers, Tree};
use runs::Run;
pub(crate) use runs::Runs;
use smallvec::SmallVec;
pub use spec::{IndexColumn, IndexId, IndexSpec};
use std::ops::Bound;
use valueless::ValuelessIndex;
pub use waiting::{WaitingKeys, WaitingMark};

/// Two rows that want one key of a unique index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// The key.
    pub key: KeyBuffer,
    /// The row that has it and the row that wants it.
    pub rows: [RowId; 2],
}

enum Kind {
    Unique(UniqueTree),
    Pairs(PairTree),
    Valueless(Box<ValuelessIndex>),
    Reference(LockedIndex),
}

/// Runs an expression over whichever index it is.
macro_rules! each {
    ($kind:expr, $index:ident => $body:expr) => {
        match $kind {
            Kind::Unique($index) => $body,
            Kind::Pairs($index) => $body,
            Kind::Valueless($index) => $body,
            Kind::Reference($index) => $body,
        }
    };
}

/// An index.
pub struct Index {
    spec: IndexSpec,
    codec: Codec,
    columns: ColumnSet,
    /// Whether its keys are plain; see [`Codec::is_plain`].
    is_plain: bool,
    /// Whether a key may hold a NULL, which the keys of most unique indexes cannot.
    nullable: bool,
    kind: Kind,
    /// Bytes of its nodes.
    bytes: AtomicI64,
    /// Where they are counted, once it belongs to a table.
    budget: OnceLock<Arc<MemoryBudget>>,
}

/// The budget is told of an index in whole lots of so many bytes.
const LOT: i64 = 64 << 10;

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.get() {
            budget.add(Held::Indexes, -(self.bytes.load(Ordering::Relaxed).div_euclid(LOT) * LOT));
        }
    }
}

impl Index {
    /// An empty index.
    pub fn new(spec: IndexSpec) -> Arc<Index> {
        let kind = match (spec.unique, spec.values) {
            (true, _) => Kind::Unique(UniqueTree::new()),
            (false, true) => Kind::Pairs(PairTree::new()),
            (false, false) => Kind::Valueless(Box::new(ValuelessIndex::new(&spec.columns))),
        };
        Index::over(spec, kind)
    }

    /// An empty index that does the same by the simplest means, for tests to compare with.
    pub fn new_reference(spec: IndexSpec) -> Arc<Index> {
        Index::over(spec, Kind::Reference(LockedIndex::default()))
    }

    fn over(spec: IndexSpec, kind: Kind) -> Arc<Index> {
        let nullable = spec.columns.iter().any(|column| column.nullable);
        let columns = spec.columns.iter().map(|part| part.column).collect();
        let codec = Codec::new(&spec.columns);
        let index = Index {
            is_plain: codec.is_plain(),
            codec,
            columns,
            spec,
            nullable,
            kind,
            bytes: AtomicI64::new(0),
            budget: OnceLock::new(),
        };
        index.settle();
        Arc::new(index)
    }

    /// It belongs to a table from now on, and its nodes are counted there. Nobody changes it meanwhile.
    pub(crate) fn belong_to(&self, table: &Weak<Table>, budget: &Arc<MemoryBudget>) {
        if let Kind::Valueless(index) = &self.kind {
            index.read_values_from(table.clone());
        }
        if self.budget.set(budget.clone()).is_ok() {
            budget.add(Held::Indexes, self.bytes.load(Ordering::Relaxed).div_euclid(LOT) * LOT);
        }
    }

    /// Bytes of its nodes, and of what it keeps beside.
    pub fn held_bytes(&self) -> u64 {
        let nodes = self.bytes.load(Ordering::Relaxed).max(0) as u64;
        match &self.kind {
            Kind::Valueless(index) => nodes + index.sorted_bytes() as u64,
            _ => nodes,
        }
    }

    /// Has it let go of the keys of rows whose blocks have become compact, if it keeps no values; whether there was anything
    /// to do. Not to be called under a guard, since it takes a while; ends early when it may not `go_on`.
    pub(crate) fn tend(&self, go_on: &dyn Fn() -> bool) -> bool {
        let Kind::Valueless(index) = &self.kind else { return false };
        let tended = index.tend(go_on);
        self.settle();
        tended
    }

    /// Whether it reads nothing of these compact blocks, no row of which is left, nor will; otherwise it soon will not. Takes a
    /// while, as well.
    pub(crate) fn has_dropped(&self, blocks: &[BlockNumber]) -> bool {
        match &self.kind {
            Kind::Valueless(index) => index.has_dropped(blocks),
            _ => true,
        }
    }

    /// Counts what the calling thread has just added to it or taken away.
    #[inline]
    fn settle(&self) {
        let growth = radix::take_growth();
        if growth != 0 {
            self.count(growth);
        }
    }

    fn count(&self, growth: i64) {
        let before = self.bytes.fetch_add(growth, Ordering::Relaxed);
        let lots = (before + growth).div_euclid(LOT) - before.div_euclid(LOT);
        if lots != 0
            && let Some(budget) = self.budget.get()
        {
            budget.add(Held::Indexes, lots * LOT);
        }
    }

    /// What it is over.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Its columns as a set.
    #[inline]
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// Whether its keys are ascending integers without NULLs, each as its bytes.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Appends the key of `cells`, given for the first columns of the index in index order.
    /// With all columns this is a full key, with fewer a prefix of the keys that begin so.
    #[inline(always)]
    pub fn encode(&self, cells: &[Cell<'_>], key: &mut KeyBuffer) {
        debug_assert!(cells.len() <= self.spec.columns.len());
        let mut next = cells.iter();
        self.codec.encode(|_| *next.next().expect("as many as are asked for"), cells.len(), key);
    }

    /// Of an index of plain keys that are [numbers](Packed): how many bytes they have.
    pub(crate) fn packed_width(&self) -> Option<usize> {
        self.codec.packed_width()
    }

    /// Appends the full key of a row, whose cells are asked for in index order.
    #[inline]
    pub fn encode_with<'c>(&self, mut cell: impl FnMut(ColumnId) -> Cell<'c>, key: &mut KeyBuffer) {
        self.codec.encode(|part| cell(part.column), self.spec.columns.len(), key);
    }

    /// Whether a full key holds a NULL by which it differs from all others.
    #[inline]
    pub fn has_distinct_null(&self, key: &[u8]) -> bool {
        let count = self.spec.equal_nulls_from.unwrap_or(self.spec.columns.len());
        self.nullable && key::holds_null(&self.spec.columns, count, key)
    }

    /// Whether no other row may have this full key: the index is unique and the key holds no NULL that is distinct.
    #[inline]
    fn is_exclusive(&self, key: &[u8]) -> bool {
        self.spec.unique && !self.has_distinct_null(key)
    }

    /// Lists `row` under this full key of a non-unique index.
    pub fn insert(&self, key: &[u8], row: RowId, guard: &Guard) {
        assert!(!self.spec.unique, "keys of a unique index are claimed");
        each!(&self.kind, index => index.insert(key, row, guard));
        self.settle();
    }

    /// Lists `row` under this full key of a unique index. First, `judge` is asked about every
    /// other row that is listed there, and asked again whenever that changes before `row` is
    /// added; its error ends the claim. Keys that hold a distinct NULL are in nobody's way.
    pub fn claim<E>(
        &self,
        key: &[u8],
        row: RowId,
        guard: &Guard,
        judge: &mut (impl FnMut(RowId) -> Result<Verdict, E> + ?Sized),
    ) -> Result<(), E> {
        assert!(self.spec.unique, "keys of a non-unique index are inserted");
        if !self.is_exclusive(key) {
            each!(&self.kind, index => index.insert(key, row, guard));
            self.settle();
            return Ok(());
        }
        let claimed = match &self.kind {
            Kind::Unique(index) => index.claim(key, row, guard, judge),
            Kind::Reference(index) => index.claim(key, row, judge),
            Kind::Pairs(_) | Kind::Valueless(_) => unreachable!("the index is unique"),
        };
        self.settle();
        claimed
    }

    /// Lists rows under full keys that differ from `key` in their last byte alone, given by that byte,
    /// ascending, and what stands for the row ([`posting::single`]). False, and nothing has happened, unless nobody else can be in their way and they go
    /// in together.
    fn claim_run(&self, key: &[u8], run: &Run, guard: &Guard) -> bool {
        match &self.kind {
            Kind::Unique(index) if !self.nullable => {
                let claimed = index.claim_run(key, run, guard);
                self.settle();
                claimed
            }
            _ => false,
        }
    }

    /// Lists rows under full keys that are numbers and ascend, with what stands for the row in each place ([`posting::single`]). Which of
    /// them are left to be claimed by themselves; all, unless nobody else can be in their way.
    fn claim_ascending(
        &self,
        keys: &[Packed],
        width: usize,
        row: impl Fn(usize) -> u64,
        guard: &Guard,
    ) -> Left {
        match &self.kind {
            Kind::Unique(index) if !self.nullable => {
                let left =
                    index.tree().insert_ascending(&Numbers { keys, width, below: 0, value: row }, guard);
                self.settle();
                left
            }
            _ => std::iter::once(0..keys.len()).collect(),
        }
    }

    /// Takes `row` off this full key, if it is there.
    pub fn remove(&self, key: &[u8], row: RowId, guard: &Guard) {
        self.remove_if(key, row, guard, &mut || true);
    }

    /// Takes `row` off this full key, if it is there and `dead` agrees that no version of the row
    /// has the key. If the row is listed anew after `dead` was asked, it is asked again.
    pub fn remove_if(
        &self,
        key: &[u8],
        row: RowId,
        guard: &Guard,
        dead: &mut (impl FnMut() -> bool + ?Sized),
    ) {
        match &self.kind {
            Kind::Unique(index) if self.is_exclusive(key) => index.remove_claimed(key, row, guard, dead),
            kind => each!(kind, index => index.remove(key, row, guard, dead)),
        }
        self.settle();
    }

    /// Whether values of `K`'s types are keys of its first columns.
    pub fn key_fits<K: Row>(&self) -> Result<(), Misfit> {
        let columns = &self.spec.columns;
        if K::LEN > columns.len() {
            return Err(Misfit::Count { columns: columns.len(), fields: K::LEN });
        }
        let specs: Vec<ColumnSpec> = columns
            .iter()
            .map(|part| ColumnSpec { representation: part.representation, nullable: part.nullable })
            .collect();
        match K::fits(&mut specs.iter()).iter().position(|fits| !fits) {
            Some(misfit) => Err(Misfit::Type(columns[misfit].column)),
            None => Ok(()),
        }
    }

    /// The only row ids under exactly these full keys of a unique index, at most [`AT_ONCE`], looked up
    /// together; `Err` where it takes [`Index::lookup`] to tell.
    pub(crate) fn only_many(
        &self,
        keys: &[KeyBuffer],
        rows: &mut [Result<Option<RowId>, ()>],
        guard: &Guard,
    ) {
        match &self.kind {
            Kind::Unique(index) if !self.nullable => index.only_many(keys, rows, guard),
            _ => rows.fill(Err(())),
        }
    }

    /// Calls `visit` with every row id under exactly this full key until it returns false.
    #[inline]
    pub fn lookup(&self, key: &[u8], guard: &Guard, visit: &mut (impl FnMut(RowId) -> bool + ?Sized)) {
        match &self.kind {
            Kind::Unique(index) if self.is_exclusive(key) => index.lookup_claimed(key, guard, visit),
            _ => {
                let only = Bound::Included(key);
                self.range(only, only, false, guard, &mut |_, row| visit(row));
            }
        }
    }

    /// Calls `visit` with (full key, row id) in key order, or against it if `reverse`, until it
    /// returns false. Bounds are full keys or prefixes: an excluded or included prefix excludes or
    /// includes every key that begins with it.
    ///
    /// A pair that is listed all the while is visited once; one that comes or goes meanwhile, at
    /// most once. `visit` may change the index.
    #[inline]
    pub fn range(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
        guard: &Guard,
        visit: &mut (impl FnMut(&[u8], RowId) -> bool + ?Sized),
    ) {
        self.range_ahead((low, high), reverse, guard, &mut |_| {}, visit);
    }

    /// As [`Index::range`], and calls `ahead` with rows that are soon to be visited, as far as they are
    /// known: what they touch can be fetched meanwhile.
    #[inline]
    pub(crate) fn range_ahead(
        &self,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut (impl FnMut(&[u8], RowId) -> bool + ?Sized),
    ) {
        // What comes after a prefix begins at the string after it.
        let (after_low, after_high);
        let low = match low {
            Bound::Unbounded => &[],
            Bound::Included(prefix) => prefix,
            Bound::Excluded(prefix) => {
                after_low = key::after(prefix);
                let Some(after) = &after_low else { return };
                &after[..]
            }
        };
        let high = match high {
            Bound::Unbounded => None,
            Bound::Included(prefix) => {
                after_high = key::after(prefix);
                after_high.as_deref()
            }
            Bound::Excluded(prefix) => Some(prefix),
        };
        if high.is_some_and(|high| low >= high) {
            return;
        }
        let visit = &mut |key: &[u8], row| visit(key, row);
        each!(&self.kind, index => index.range(Span { low, high }, reverse, guard, ahead, visit));
    }

    /// The tree that keys enter, if it is one.
    fn tree(&self) -> Option<&Tree> {
        match &self.kind {
            Kind::Unique(unique) => Some(unique.tree()),
            Kind::Pairs(pairs) => Some(pairs.tree()),
            Kind::Valueless(index) => Some(index.fresh().tree()),
            Kind::Reference(_) => None,
        }
    }

    /// Fetches the ways to keys, full ones or prefixes, of several indexes together: ahead of look-ups and
    /// inserts, each of which would wait for one node after another. Of at most [`AT_ONCE`] keys.
    pub fn approach(keys: &[(&Index, &[u8])], guard: &Guard) {
        let ways: SmallVec<[(&Tree, &[u8]); AT_ONCE]> =
            keys.iter().filter_map(|(index, key)| Some((index.tree()?, *key))).collect();
        radix::approach(&ways, guard);
    }

    /// Begins to enter the rows of a table that no transaction is changing: recovery, and CREATE INDEX.
    pub fn load<'l>(
        self: &'l Arc<Self>,
        budget: &Arc<MemoryBudget>,
        threads: usize,
        guard: &'l Guard,
    ) -> Load<'l> {
        Load {
            index: self,
            runs: Runs::new(self),
            takes_runs: self.spec.unique && self.spec.columns.iter().all(|column| !column.nullable),
            last: KeyBuffer::new(),
            waiting: WaitingKeys::new(budget),
            threads,
            guard,
        }
    }

    /// Enters rows as [`Index::load`] does.
    #[cfg(test)]
    fn bulk_load<K: AsRef<[u8]>>(
        self: &Arc<Self>,
        entries: impl IntoIterator<Item = (K, RowId)>,
        guard: &Guard,
    ) -> Result<(), Duplicate> {
        let mut load = self.load(&Arc::default(), 2, guard);
        entries.into_iter().try_for_each(|(key, row)| load.add(key.as_ref(), row))?;
        load.finish()
    }

    /// Enters a row by itself, as [`Load`] does.
    fn load_one(&self, key: &[u8], row: RowId, guard: &Guard) -> Result<(), Duplicate> {
        if !self.spec.unique {
            self.insert(key, row, guard);
            return Ok(());
        }
        self.claim(key, row, guard, &mut |other| {
            Err(Duplicate { key: KeyBuffer::from_slice(key), rows: [other, row] })
        })
    }

    /// Number of entries, dead ones included, which are counted one by one; about right while others
    /// write.
    pub fn len(&self) -> usize {
        each!(&self.kind, index => index.len(&crate::pin()))
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        let mut empty = true;
        self.range(Bound::Unbounded, Bound::Unbounded, false, &crate::pin(), &mut |_, _| {
            empty = false;
            false
        });
        empty
    }

    /// About how many bytes it takes, which are summed up node by node.
    pub fn memory_bytes(&self) -> u64 {
        each!(&self.kind, index => index.memory_bytes(&crate::pin())) as u64
    }

    /// Asserts the invariants: keys rise, no row twice under a key, nothing half removed. Nobody
    /// else may be writing.
    pub fn verify(&self) {
        let guard = &crate::pin();
        each!(&self.kind, index => index.verify(guard));
        let mut last: Option<KeyBuffer> = None;
        let mut entries = 0;
        each!(&self.kind, index => index.range(EVERYTHING, false, guard, &mut |_| {}, &mut |key, _| {
            entries += 1;
            match &last {
                Some(last) if &last[..] == key => {}
                Some(last) => assert!(
                    &last[..] < key && !key.starts_with(last),
                    "{}: {key:02x?} stands after {last:02x?}",
                    self.spec.name
                ),
                None => {}
            }
            last = Some(KeyBuffer::from_slice(key));
            true
        }));
        assert_eq!(entries, self.len(), "{}: the count is wrong", self.spec.name);
    }
}

/// Rows on their way into an index that no transaction is changing. Keys that ascend enter in runs, if the index takes them so;
/// others wait for each other ([`WaitingKeys`]).
pub struct Load<'l> {
    index: &'l Arc<Index>,
    runs: Runs<'l>,
    takes_runs: bool,
    /// The last key of those that ascend.
    last: KeyBuffer,
    waiting: WaitingKeys,
    threads: usize,
    guard: &'l Guard,
}

impl Load<'_> {
    /// Adds a row under a full key; an error, if it has become known that two rows want one key of a unique index: these, or others.
    #[inline]
    pub fn add(&mut self, key: &[u8], row: RowId) -> Result<(), Duplicate> {
        let (index, guard) = (self.index, self.guard);
        if !self.takes_runs || !self.waiting.is_empty() || *key < self.last[..] {
            return self.wait(key, row);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.runs.add(key, row, guard, |key, row| index.load_one(key, row, guard))
    }

    fn wait(&mut self, key: &[u8], row: RowId) -> Result<(), Duplicate> {
        let number = self.index.packed_width().map(|_| packed(key));
        let copy = |_, buffer: &mut KeyBuffer| buffer.extend_from_slice(key);
        if !self.waiting.take(self.index, row, number.as_ref().map(std::slice::from_ref), 1, copy) {
            return self.index.load_one(key, row, self.guard);
        }
        if self.waiting.is_due() { self.enter() } else { Ok(()) }
    }

    /// Enters those that wait. What comes then may ascend again.
    fn enter(&mut self) -> Result<(), Duplicate> {
        let entered =
            self.waiting.enter(self.threads, &|index, key, row, guard| index.load_one(key, row, guard));
        self.waiting.clear();
        self.last.clear();
        entered.map_err(|refused| refused.error)
    }

    /// Must follow the last row: until then some are not in the index.
    pub fn finish(mut self) -> Result<(), Duplicate> {
        let (index, guard) = (self.index, self.guard);
        self.runs.finish(guard, |key, row| index.load_one(key, row, guard))?;
        self.enter()
    }
}
