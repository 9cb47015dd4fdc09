//! Ordered indexes from keys to rows.
//!
//! A key is a byte string whose order is the index's order ([`key`]). A unique index maps a key to every row
//! that any snapshot may find under it, nearly always one ([`posting`]). The entries of a non-unique index,
//! and the keys of a unique one that contain a NULL, are key ‖ row id. Indexes have no times: readers check
//! visibility and key of the row.
//!
//! Storage follows two rules, so that no entry is lost and no unique key is held twice:
//! - A row is written before its key is inserted or claimed. So a thread that judges the row, or checks
//!   whether it is dead, sees the key that the row is about to hold.
//! - A row and key are inserted or claimed again when an update returns to a key that an older version of the
//!   row had. This also applies if the entry is still there: a pending removal for the older version then
//!   checks the row again.

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

/// Two rows that require one key of a unique index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// The key.
    pub key: KeyBuffer,
    /// The row that has it and the row that requires it.
    pub rows: [RowId; 2],
}

enum Kind {
    Unique(UniqueTree),
    Pairs(PairTree),
    Valueless(Box<ValuelessIndex>),
    Reference(LockedIndex),
}

/// Runs an expression over an index of any kind.
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
    /// Whether a key may contain a NULL, which the keys of most unique indexes cannot.
    nullable: bool,
    kind: Kind,
    /// Bytes of its nodes.
    bytes: AtomicI64,
    /// The budget that counts them, once it belongs to a table.
    budget: OnceLock<Arc<MemoryBudget>>,
}

/// Changes of an index's memory are reported to the budget in multiples of this.
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

    /// An empty index with the simplest implementation, for tests to compare with.
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

    /// Makes it belong to a table, whose budget counts its nodes from now on. No thread changes it meanwhile.
    pub(crate) fn belong_to(&self, table: &Weak<Table>, budget: &Arc<MemoryBudget>) {
        if let Kind::Valueless(index) = &self.kind {
            index.read_values_from(table.clone());
        }
        if self.budget.set(budget.clone()).is_ok() {
            budget.add(Held::Indexes, self.bytes.load(Ordering::Relaxed).div_euclid(LOT) * LOT);
        }
    }

    /// Bytes of its nodes, and of its other memory.
    pub fn held_bytes(&self) -> u64 {
        let nodes = self.bytes.load(Ordering::Relaxed).max(0) as u64;
        match &self.kind {
            Kind::Valueless(index) => nodes + index.sorted_bytes() as u64,
            _ => nodes,
        }
    }

    /// Removes the keys of rows whose blocks have become compact, if it stores no values. Returns whether
    /// there was anything to do. It takes long and must not be called under a guard; it ends early when
    /// `go_on` returns false.
    pub(crate) fn tend(&self, go_on: &dyn Fn() -> bool) -> bool {
        let Kind::Valueless(index) = &self.kind else { return false };
        let tended = index.tend(go_on);
        self.settle();
        tended
    }

    /// Whether it does not read these compact blocks any more, none of whose rows are left. If it does, it
    /// will stop soon. Takes long as well.
    pub(crate) fn has_dropped(&self, blocks: &[BlockNumber]) -> bool {
        match &self.kind {
            Kind::Valueless(index) => index.has_dropped(blocks),
            _ => true,
        }
    }

    /// Counts what the calling thread has just added to it or removed.
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

    /// Its definition.
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

    /// Appends the key of `cells`, given for the first columns of the index in index order. With all columns
    /// this is a full key, with fewer a prefix of the keys that begin with it.
    #[inline(always)]
    pub fn encode(&self, cells: &[Cell<'_>], key: &mut KeyBuffer) {
        debug_assert!(cells.len() <= self.spec.columns.len());
        let mut next = cells.iter();
        self.codec.encode(|_| *next.next().expect("there is a cell for every column"), cells.len(), key);
    }

    /// The number of bytes of its plain keys, if they are [numbers](Packed).
    pub(crate) fn packed_width(&self) -> Option<usize> {
        self.codec.packed_width()
    }

    /// Appends the full key of a row; `cell` is called in index order.
    #[inline]
    pub fn encode_with<'c>(&self, mut cell: impl FnMut(ColumnId) -> Cell<'c>, key: &mut KeyBuffer) {
        self.codec.encode(|part| cell(part.column), self.spec.columns.len(), key);
    }

    /// Whether a full key contains a NULL.
    #[inline]
    pub fn holds_null(&self, key: &[u8]) -> bool {
        self.nullable && key::holds_null(&self.spec.columns, key)
    }

    /// Whether no other row may have this full key: the index is unique and the key contains no NULL.
    #[inline]
    fn is_exclusive(&self, key: &[u8]) -> bool {
        self.spec.unique && !self.holds_null(key)
    }

    /// Lists `row` under this full key of a non-unique index.
    pub fn insert(&self, key: &[u8], row: RowId, guard: &Guard) {
        assert!(!self.spec.unique, "keys of a unique index are claimed");
        each!(&self.kind, index => index.insert(key, row, guard));
        self.settle();
    }

    /// Lists `row` under this full key of a unique index. First, `judge` is called with every other row that
    /// is listed there, and called again whenever the list changes before `row` is added. An error of `judge`
    /// ends the claim. Keys that contain a NULL conflict with no other.
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

    /// Lists rows under full keys that differ from `key` only in their last byte. A run has these bytes,
    /// ascending, with the values for the rows ([`posting::single`]). Returns false without an effect unless
    /// no conflict is possible and they can be inserted together.
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

    /// Lists rows under full keys that are ascending numbers, with the values for the rows
    /// ([`posting::single`]). Returns those that have to be claimed one by one; all, unless no conflict is
    /// possible.
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

    /// Removes `row` from this full key, if it is listed.
    pub fn remove(&self, key: &[u8], row: RowId, guard: &Guard) {
        self.remove_if(key, row, guard, &mut || true);
    }

    /// Removes `row` from this full key, if it is listed and `dead` returns that no version of the row has
    /// the key. If the row is listed again after the call of `dead`, it is called again.
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
    /// together; `Err` where only [`Index::lookup`] can decide.
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

    /// Calls `visit` with (full key, row id) in key order, or against it if `reverse`, until it returns
    /// false. Bounds are full keys or prefixes: an excluded or included prefix excludes or includes every key
    /// that begins with it.
    ///
    /// A pair that is listed all the time is visited once; one that is inserted or removed meanwhile, at most
    /// once. `visit` may change the index.
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

    /// As [`Index::range`]; also calls `ahead` with rows that will be visited soon, if they are known, so
    /// that they can be prefetched.
    #[inline]
    pub(crate) fn range_ahead(
        &self,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(RowId),
        visit: &mut (impl FnMut(&[u8], RowId) -> bool + ?Sized),
    ) {
        // The keys after a prefix begin at the string after it.
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

    /// The tree to which keys are added, if it is one.
    fn tree(&self) -> Option<&Tree> {
        match &self.kind {
            Kind::Unique(unique) => Some(unique.tree()),
            Kind::Pairs(pairs) => Some(pairs.tree()),
            Kind::Valueless(index) => Some(index.fresh().tree()),
            Kind::Reference(_) => None,
        }
    }

    /// Prefetches the paths to keys, full ones or prefixes, of several indexes together, before look-ups and
    /// inserts, each of which would wait for one node after another. At most [`AT_ONCE`] keys.
    pub fn approach(keys: &[(&Index, &[u8])], guard: &Guard) {
        let ways: SmallVec<[(&Tree, &[u8]); AT_ONCE]> =
            keys.iter().filter_map(|(index, key)| Some((index.tree()?, *key))).collect();
        radix::approach(&ways, guard);
    }

    /// Begins to add the rows of a table that no transaction is changing: recovery, and CREATE INDEX.
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

    /// Adds rows as [`Index::load`] does.
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

    /// Adds a row by itself, as [`Load`] does.
    fn load_one(&self, key: &[u8], row: RowId, guard: &Guard) -> Result<(), Duplicate> {
        if !self.spec.unique {
            self.insert(key, row, guard);
            return Ok(());
        }
        self.claim(key, row, guard, &mut |other| {
            Err(Duplicate { key: KeyBuffer::from_slice(key), rows: [other, row] })
        })
    }

    /// The number of entries, including dead ones, which are counted one by one; approximate with concurrent
    /// writers.
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

    /// The approximate number of bytes, summed up node by node.
    pub fn memory_bytes(&self) -> u64 {
        each!(&self.kind, index => index.memory_bytes(&crate::pin())) as u64
    }

    /// Asserts the invariants: keys rise, no row twice under a key, nothing half removed. There must be no
    /// concurrent writer.
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
                    "{}: {key:02x?} is after {last:02x?}",
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

/// A bulk insert into an index that no transaction is changing. Ascending keys are added in runs, if the
/// index supports it; others are collected and added together ([`WaitingKeys`]).
pub struct Load<'l> {
    index: &'l Arc<Index>,
    runs: Runs<'l>,
    takes_runs: bool,
    /// The last of the ascending keys.
    last: KeyBuffer,
    waiting: WaitingKeys,
    threads: usize,
    guard: &'l Guard,
}

impl Load<'_> {
    /// Adds a row under a full key. Returns an error if two rows, these or others, have been found to require
    /// one key of a unique index.
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

    /// Adds the waiting keys. Later ones may ascend again.
    fn enter(&mut self) -> Result<(), Duplicate> {
        let entered =
            self.waiting.enter(self.threads, &|index, key, row, guard| index.load_one(key, row, guard));
        self.waiting.clear();
        self.last.clear();
        entered.map_err(|refused| refused.error)
    }

    /// Must follow the last row: until then some rows are not in the index.
    pub fn finish(mut self) -> Result<(), Duplicate> {
        let (index, guard) = (self.index, self.guard);
        self.runs.finish(guard, |key, row| index.load_one(key, row, guard))?;
        self.enter()
    }
}
