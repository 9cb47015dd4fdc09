//! Main: the compact blocks of a table, and how frozen blocks join them (Krueger et al., "Fast Updates on
//! Read-Optimized Databases Using Multi-Core CPUs", PVLDB 5(1), 2011; Funke, Kemper and Neumann, "Compacting
//! Transactional Data in Hybrid OLTP&OLAP Databases", VLDB 2012, section 3.3).
//!
//! A frozen block that is full and has been cold for long (any frozen block, if the required time is zero) is
//! encoded, column by column. The encoding of a column depends on its own values, and on the cost of a
//! dictionary that it would share with the other blocks ([`choose`]). New values join that dictionary by a
//! [merge](crate::encoding::merge). After it the codes of blocks in main may have another meaning: then these
//! blocks get new codes, one by one.
//!
//! The cost of a merge is proportional to the size of main, so it waits until enough blocks can join
//! ([`SHARE`]). So for every block that joins only a constant number of blocks get new codes, however large
//! the table becomes.
//!
//! Transactions continue meanwhile. What is encoded is memory that frozen blocks have handed out. A
//! transaction that writes to such a block continues in a copy, and the write is detected when the encoded
//! columns are to replace the block's memory.
//!
//! From a compact block of which most rows have been deleted or changed, the remaining rows are moved too,
//! and its slots are reused. Once as many blocks have been removed as there are, dictionaries drop unused
//! values if these are most of them. So for each removed block one block gets new codes.

use super::Table;
use super::slots::Move;
use crate::block::Block;
use crate::budget::{Counted, Held};
use crate::compact::{Compact, Joined};
use crate::encoding::merge::{DeltaDictionary, Merge, in_parallel, share_out};
use crate::encoding::{
    Dictionary, Distinct, EncodedColumn, Encoding, Kept, Offer, Piece, Statistics, choose,
};
use crate::freeze::FrozenRows;
use crate::memory::prefetch;
use crate::state::BlockState;
use crate::{Guard, WriteSet};
use firn_base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use firn_base::types::Width;
use firn_base::{BlockNumber, Cell, ColumnId, Representation, Result, RowId, Slot, Snapshot};
use smallvec::SmallVec;
use std::time::Duration;

/// Blocks join main when there is at least one for this many in it.
const SHARE: usize = 8;

/// The largest number of blocks that join at once, unless a share of main is more: their rows are in memory
/// twice meanwhile.
const MOST_AT_ONCE: usize = 256;

/// A block's rows are moved when fewer than one in this many are present.
pub(super) const LEFT_BELOW: u32 = 2;

/// What the compact blocks of a table share.
#[derive(Default)]
pub(super) struct Main {
    columns: Mutex<Vec<MainColumn>>,
    /// Bytes of the dictionaries.
    bytes: AtomicUsize,
    /// Blocks removed since dictionaries were last searched for unused values.
    gone: AtomicUsize,
}

#[derive(Default)]
struct MainColumn {
    dictionary: Option<(Dictionary, Counted)>,
    /// The different values in the blocks that have joined since dictionaries were searched, and in those
    /// with codes before.
    distinct: Option<Distinct>,
    slots: u64,
    string_bytes: u64,
}

impl Main {
    /// The memory of dictionaries.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn count_bytes(&self, columns: &[MainColumn]) {
        let bytes =
            |column: &MainColumn| column.dictionary.as_ref().map_or(0, |(_, counted)| counted.bytes());
        self.bytes.store(columns.iter().map(bytes).sum(), Ordering::Relaxed);
    }
}

/// A block that is joining main.
struct Joining<'t> {
    block: &'t Block,
    rows: FrozenRows,
}

impl Table {
    /// Lets full blocks that have been frozen for this long join main, if they are worth a merge. Returns how
    /// many joined. If the time is zero, all frozen blocks join at once. Must not be called under a guard,
    /// since it may take seconds; ends early when `go_on` returns false.
    pub fn compact(
        self: &Arc<Self>,
        frozen_for: Duration,
        threads: usize,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> usize {
        let mut main = self.main.columns.lock();
        let in_main: Vec<&Block> = self.compact_blocks().collect();
        if self.main.gone.load(Ordering::Relaxed) >= in_main.len() {
            self.forget_values(&mut main, &in_main, go_on);
        }
        let at_once = frozen_for.is_zero();
        let least = if at_once { 1 } else { self.layout.slots };
        let due = || self.blocks.iter().filter(|block| block.may_be_encoded(frozen_for, least));
        let count = due().count();
        if count == 0 || !at_once && count * SHARE < in_main.len() {
            return 0;
        }
        let join = |block| Some(Joining { block, rows: block.rows_to_encode(frozen_for, least)? });
        let joining: Vec<Joining<'_>> =
            due().take(MOST_AT_ONCE.max(in_main.len() / SHARE)).filter_map(join).collect();
        if joining.is_empty() {
            return 0;
        }
        main.resize_with(self.columns.len(), MainColumn::default);
        let (over, within) = share_out(threads, main.len());
        let mut columns: Vec<(ColumnId, &mut MainColumn)> =
            (0..).map(ColumnId).zip(main.iter_mut()).collect();
        // The longest tasks first, so that none is begun last while other threads are idle.
        columns.sort_by_key(|(id, _)| self.columns[id.index()].representation.width() != Width::View);
        let encoded = in_parallel(over, columns, |(id, column)| {
            go_on().then(|| (id, column.join(id, &joining, self, within, go_on)))
        });
        let Some(mut encoded) = encoded.into_iter().collect::<Option<Vec<_>>>() else { return 0 };
        encoded.sort_by_key(|(id, _)| *id);
        let mut merges = Vec::new();
        let mut rows: Vec<Vec<EncodedColumn>> = joining.iter().map(|_| Vec::new()).collect();
        for (id, (columns, merge)) in encoded {
            merges.extend(merge.map(|merge| (id, merge)));
            for (columns_before, column) in rows.iter_mut().zip(columns) {
                columns_before.extend(column);
            }
        }
        // All columns at once: each replacement takes new numbers of the heap.
        for block in in_main.iter().take_while(|_| go_on()) {
            give_codes(block, &merges);
        }
        self.main.count_bytes(&main);
        let joined = joining.into_iter().zip(rows).map(|(joining, columns)| self.let_join(joining, columns));
        joined.map(usize::from).sum()
    }

    /// Removes unused values from the dictionaries.
    fn forget_values(
        &self,
        main: &mut Vec<MainColumn>,
        in_main: &[&Block],
        go_on: &(dyn Fn() -> bool + Sync),
    ) {
        self.main.gone.store(0, Ordering::Relaxed);
        if in_main.is_empty() {
            main.clear();
        }
        let mut merges = Vec::new();
        for (id, column) in (0..).map(ColumnId).zip(main.iter_mut()).take_while(|_| go_on()) {
            merges.extend(column.forget(id, in_main, self).map(|merge| (id, merge)));
        }
        for block in in_main.iter().take_while(|_| go_on()) {
            give_codes(block, &merges);
        }
        self.main.count_bytes(main);
    }

    /// Replaces the rows of a block by its encoded columns, unless one is missing or a transaction has
    /// written to it meanwhile.
    fn let_join(self: &Arc<Self>, Joining { block, rows }: Joining<'_>, columns: Vec<EncodedColumn>) -> bool {
        let guard = crate::pin();
        if columns.len() < self.columns.len() {
            block.stays_frozen();
            return false;
        }
        let mut joined = Joined::No;
        let closed = self.close(block, rows.rows, || {
            joined = block.become_compact(&rows.memory, columns.into(), &guard);
            joined == Joined::Yes
        });
        match joined {
            Joined::Yes => self.let_go_of_rows(block.number, rows, &guard),
            Joined::NoRoom => block.stays_frozen(),
            Joined::No => {}
        }
        closed
    }

    fn compact_blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.life.state() == BlockState::Compact)
    }

    /// Frees the memory of rows that have been encoded, once no reader can have it any more.
    fn let_go_of_rows(self: &Arc<Self>, block: BlockNumber, rows: FrozenRows, guard: &Guard) {
        // This must not keep a table that is dropped meanwhile.
        let table = Arc::downgrade(self);
        guard.defer(move || {
            if let Some(table) = table.upgrade() {
                let block = table.blocks.get(block).expect("a table keeps its blocks");
                block.let_go_of_rows(&rows.memory, table.nothing());
            }
        });
        guard.flush();
    }

    /// As [`Table::update`], for a row of a compact block.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn update_elsewhere(
        &self,
        compact: &Compact,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        let slot = row.slot().index();
        compact.prefetch(slot, (0..self.columns.len()).map(|column| ColumnId(column as u16)));
        self.block(row).prefetch_head(row.slot());
        let mut image: SmallVec<[Cell<'_>; 16]> = SmallVec::from_elem(Cell::Null, self.columns.len());
        for (column, cell) in image.iter_mut().enumerate() {
            *cell = compact.cell(slot, ColumnId(column as u16));
        }
        for (column, cell) in columns.iter().zip(cells) {
            image[column.index()] = *cell;
        }
        // They are copied when the row has been deleted. Mostly they are in a dictionary, which is in no
        // cache.
        for cell in &image {
            if let Cell::Bytes(bytes) = cell {
                prefetch(bytes.as_ptr());
                prefetch(bytes.as_ptr_range().end.wrapping_sub(1));
            }
        }
        let (block, slot) = self.allocate_slot()?;
        self.move_to((block, slot), write_set, snapshot, row, &image, guard)
    }

    /// Deletes a row and inserts its continuation. In any case the slot is filled or given back.
    pub(crate) fn move_to(
        &self,
        (block, slot): (&Block, Slot),
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        let to = block.row(slot);
        // First, so that the row does not conflict with itself in unique indexes.
        self.delete_for(write_set, snapshot, row, Some(to), guard).inspect_err(|_| self.give_back([to]))?;
        self.insert_into((block, slot), write_set, snapshot, cells, Some(row), guard)?;
        Ok(())
    }

    /// Plans up to `most` moves out of compact blocks most of whose rows were removed. Each slot that is not
    /// filled afterwards has to be [given back](Table::give_back).
    pub fn plan_leaving(&self, most: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        for block in self.compact_blocks() {
            let guard = crate::pin();
            let Some(compact) = block.compact().filter(|compact| compact.left() > 0) else { continue };
            let slots = compact.slots();
            if compact.left() * LEFT_BELOW >= slots {
                continue;
            }
            for slot in (0..slots).map(Slot).filter(|slot| block.is_present(*slot)) {
                if moves.len() == most {
                    return moves;
                }
                // Without memory they remain.
                let Ok((to, to_slot)) = self.allocate_slot() else { return moves };
                moves.push((block.row(slot), to.row(to_slot)));
            }
            drop(guard);
        }
        moves
    }

    /// Makes [indexes without values](crate::IndexSpec::values) remove the keys of compact rows. Returns the
    /// number of indexes. Must not be called under a guard, since it may take seconds, and not concurrently
    /// with [`Table::give_up_left`]; ends early when `go_on` returns false.
    pub fn tend_indexes(&self, go_on: &dyn Fn() -> bool) -> usize {
        self.indexes().iter().filter(|index| index.tend(go_on)).count()
    }

    /// Frees the memory of compact blocks without rows, until it is needed again. Returns their number. Must
    /// not be called under a guard: indexes may have to drop them first.
    pub fn give_up_left(&self) -> usize {
        let filling = self.filling.load(Ordering::Acquire);
        // A block that is waiting to be filled is freed when another one is filled.
        let is_left = |block: &&Block| {
            let _guard = crate::pin();
            block.number.0 != filling && block.is_left()
        };
        let left: Vec<&Block> = self.compact_blocks().filter(is_left).collect();
        let numbers: Vec<BlockNumber> = left.iter().map(|block| block.number).collect();
        if left.is_empty() || !self.indexes_have_dropped(&numbers) {
            return 0;
        }
        let guard = crate::pin();
        let mut emptied = self.emptied.lock();
        // It may be another one by now.
        let filling = self.filling.load(Ordering::Acquire);
        let left = left.into_iter().filter(|block| block.number.0 != filling);
        let gone = left.filter(|block| block.give_up_compact(self.nothing(), &guard));
        let before = emptied.len();
        emptied.extend(gone.map(|block| block.number));
        let gone = emptied.len() - before;
        self.main.gone.fetch_add(gone, Ordering::Relaxed);
        gone
    }

    /// Whether no index reads the keys of these blocks' rows any more. This includes removed indexes, since
    /// an older transaction may still use them.
    fn indexes_have_dropped(&self, blocks: &[BlockNumber]) -> bool {
        let mut all = self.indexes().to_vec();
        self.taken_off.lock().retain(|index| {
            all.extend(index.upgrade());
            index.strong_count() > 0
        });
        // All are called, so that none has to wait until the others are done.
        all.iter().filter(|index| !index.has_dropped(blocks)).count() == 0
    }
}

impl MainColumn {
    /// Encodes a column of all joining blocks, on `threads` threads; `None` for one that cannot be encoded.
    /// If blocks of main have to get other codes, also returns the merge that translates them.
    fn join(
        &mut self,
        id: ColumnId,
        joining: &[Joining<'_>],
        table: &Table,
        threads: usize,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> (Vec<Option<EncodedColumn>>, Option<Merge>) {
        let representation = table.columns[id.index()].representation;
        let sources: Vec<_> = joining.iter().map(|joining| joining.rows.source(joining.block, id)).collect();
        let pieces: Vec<Piece<'_>> = sources.iter().map(|source| source.piece()).collect();
        let gather = |piece: Piece<'_>| Statistics::gather(representation, piece);
        let statistics: Vec<Statistics> = in_parallel(threads, pieces.clone(), gather);
        let offer = self.offer(representation, &statistics);
        let mut encodings: Vec<Encoding> =
            statistics.iter().map(|statistics| choose(statistics, Some(&offer))).collect();
        let coded: Vec<usize> = (0..pieces.len()).filter(|at| encodings[*at].values == Kept::Codes).collect();
        let mut codes = Vec::new();
        let mut changed = None;
        if !coded.is_empty() {
            let delta: Vec<Piece<'_>> = coded.iter().map(|at| pieces[*at]).collect();
            let before = self.dictionary.as_ref().map(|(dictionary, _)| dictionary.clone());
            let merged = DeltaDictionary::build(representation, &delta, threads)
                .and_then(|delta| delta.merge(before.as_ref(), threads));
            match merged {
                Ok(mut merge) => {
                    let all = coded.iter().enumerate().collect();
                    codes =
                        in_parallel(threads, all, |(number, at)| merge.delta(number, encodings[*at].runs));
                    merge.forget_delta();
                    let dictionary = merge.dictionary().clone();
                    if before.is_none_or(|before| !before.is(&dictionary)) {
                        let counted = Counted::new(Held::Rows, dictionary.bytes(), table.budget());
                        self.dictionary = Some((dictionary, counted));
                        changed = Some(merge);
                    }
                }
                Err(_too_large) => {
                    for at in &coded {
                        encodings[*at] = choose(&statistics[*at], None);
                    }
                }
            }
        }
        let mut codes = codes.into_iter();
        let has_codes = |encoding: &Encoding| encoding.values == Kept::Codes;
        let jobs = encodings.iter().zip(&pieces).map(|(encoding, piece)| {
            (encoding, *piece, has_codes(encoding).then(|| codes.next().expect("every block has codes")))
        });
        let encoded = in_parallel(threads, jobs.collect(), |(encoding, piece, coded)| match coded {
            Some(coded) => Some(coded),
            None => {
                let plain = EncodedColumn::encode(representation, piece, *encoding);
                // That takes long.
                plain.map(|plain| if go_on() { plain.with_symbols() } else { plain })
            }
        });
        (encoded, changed)
    }

    /// Removes the values that no block of main has any more, if these are most, and adjusts the estimate.
    /// Returns the merge that translates the blocks' codes.
    fn forget(&mut self, id: ColumnId, in_main: &[&Block], table: &Table) -> Option<Merge> {
        let columns: Vec<EncodedColumn> = {
            let _guard = crate::pin();
            let column = |block: &&Block| Some(block.compact()?.column(id).clone());
            in_main.iter().filter_map(column).collect()
        };
        let before = std::mem::take(self);
        let (dictionary, counted) = before.dictionary?;
        let has_it = |column: &&EncodedColumn| column.codes().is_some_and(|(_, own)| own.is(&dictionary));
        self.slots = columns.iter().filter(has_it).map(|column| column.slots() as u64).sum();
        if self.slots == 0 {
            return None;
        }
        // With the same average length as before.
        self.string_bytes =
            (before.string_bytes as f64 * self.slots as f64 / before.slots.max(1) as f64) as u64;
        let merge = Merge::forgetting(&dictionary, &columns);
        let kept = match &merge {
            None => (dictionary, counted),
            Some(merge) => {
                let kept = merge.dictionary().clone();
                let counted = Counted::new(Held::Rows, kept.bytes(), table.budget());
                (kept, counted)
            }
        };
        self.distinct = Some(kept.0.distinct());
        self.dictionary = Some(kept);
        merge
    }

    /// The dictionary that blocks with these statistics would share with those of main.
    fn offer(&mut self, representation: Representation, statistics: &[Statistics]) -> Offer {
        for block in statistics {
            self.slots += block.slots as u64;
            self.string_bytes += block.string_bytes.0 as u64;
            match &mut self.distinct {
                Some(distinct) => distinct.join(&block.distinct),
                none => *none = Some(block.distinct.clone()),
            }
        }
        let distinct = self.distinct.as_ref().expect("there is a joining block");
        Offer::estimated(representation, distinct, self.slots, self.string_bytes)
    }
}

/// Gives a block of main codes for other dictionaries. Columns with codes for older ones keep what they have,
/// and so does a block whose heap has no numbers left for strings.
fn give_codes(block: &Block, merges: &[(ColumnId, Merge)]) {
    let columns = || -> Option<Vec<EncodedColumn>> {
        let _guard = crate::pin();
        Some(block.compact()?.columns().to_vec())
    };
    let Some(mut columns) = columns() else { return };
    let mut changed = false;
    for (id, merge) in merges {
        let column = &mut columns[id.index()];
        if merge.concerns(column) {
            *column = merge.main(column);
            changed = true;
        }
    }
    if changed {
        let _given = block.replace_columns(columns.into(), &crate::pin());
    }
}

#[cfg(test)]
mod tests {
    use super::super::TableOptions;
    use super::*;
    use crate::ColumnSpec;
    use crate::{Frozen, Garbage};
    use arrow_array::{ArrayRef, Int32Array};
    use firn_base::{Stamp, TableId, Time};

    /// Not zero: so only full blocks count, and only if there are enough of them.
    const SOON: Duration = Duration::from_nanos(1);

    /// Adds a block with this many rows, and freezes it.
    fn add(table: &Arc<Table>, rows: u32) {
        let time = table.blocks.iter().count() as u64 + 1;
        let mut writes = WriteSet::new(Stamp::transaction(time), None);
        writes.touch(table);
        let snapshot = Snapshot { read_time: Time(time - 1), owner: Stamp::transaction(time) };
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
        table.insert_batch(&mut writes, snapshot, &[column], &crate::pin()).unwrap();
        writes.stamp(Time(time));
        let mut garbage = Garbage::default();
        writes.retire_now(Time(time)).collect(&mut garbage, &crate::pin());
        garbage.free(&crate::pin());
        let mut cooling = Vec::new();
        table.cool(&mut cooling);
        let freeze = |block| table.freeze(block, &crate::pin());
        assert!(cooling.len() == 1 && cooling.into_iter().map(freeze).all(|frozen| frozen == Frozen::Yes));
        // The required time must have passed.
        std::thread::sleep(SOON);
    }

    #[test]
    fn blocks_join_when_they_are_an_eighth_of_those_that_are_compact() {
        let column = ColumnSpec { representation: Representation::Int32, nullable: false };
        let table = Table::new(
            TableId(1),
            "t",
            vec![column],
            TableOptions { block_bytes: 1, ..TableOptions::default() },
        );
        let slots = table.layout.slots;
        let compact = |after| table.compact(after, 1, &|| true);
        // How many are compact, and how many have to be added until others join.
        let mut there = 0;
        for needed in [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3] {
            for number in 1..=needed {
                assert_eq!(compact(SOON), 0, "{} of {there}", number - 1);
                add(&table, slots);
            }
            assert_eq!(compact(SOON), needed, "{needed} of {there}");
            there += needed;
            assert_eq!(table.compact_blocks().count(), there);
        }
        assert_eq!(there, 20);
        // A block that is not full does not count, unless all are made compact at once.
        add(&table, slots);
        add(&table, slots);
        add(&table, slots - 1);
        assert_eq!((compact(SOON), compact(Duration::from_secs(3600))), (0, 0));
        assert_eq!(compact(Duration::ZERO), 3);
    }

    #[test]
    fn rows_that_are_passed_over_are_those_that_are_there() {
        let column = ColumnSpec { representation: Representation::Int32, nullable: false };
        let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
        let table = Table::new(TableId(1), "t", vec![column], options);
        let slots = table.layout.slots;
        add(&table, slots);
        add(&table, slots / 3);
        let passed_over = || {
            let scan = table.scan(Snapshot { read_time: Time(9), owner: Stamp::transaction(9) }, &[], false);
            let [low, high] =
                [-2, -1].map(|key| crate::summary(Representation::Int32, &Cell::i32(key)).unwrap());
            let scan = scan.under(&[crate::Restriction::within(ColumnId(0), low, high)]);
            assert!(scan.next_batch(&crate::pin()).is_none());
            scan.rows_passed_over()
        };
        assert_eq!(passed_over(), u64::from(slots + slots / 3), "frozen");
        assert_eq!(table.compact(Duration::ZERO, 1, &|| true), 2);
        assert_eq!(passed_over(), u64::from(slots + slots / 3), "compact");
    }
}
