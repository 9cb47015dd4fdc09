//! Main: the compact blocks of a table, and how frozen blocks join them (seed 002; seed 001 §3.3).
//!
//! A frozen block that is full and has been left alone for long (any one, if it need not be long at all) is encoded,
//! column by column. Which encoding a column of a block gets its own values decide, and what a dictionary would cost
//! that it shares with the other blocks ([`choose`]). New values join that dictionary by a [merge](crate::encoding::merge), after which the codes of the blocks
//! that are in main already may mean other values: then these get new ones, block by block.
//!
//! A merge costs as much as main is large, so it waits until what would join is worth it ([`SHARE`]): for every block that
//! joins so many get new codes at most, however large the table becomes.
//!
//! Transactions go on meanwhile. What is encoded is memory that frozen blocks have handed out: who writes to such a
//! block goes on in a copy, and that it has been written to is found when its columns shall take its place.
//!
//! A compact block of which most rows have been deleted, or moved since they were changed, is left by the others too, and
//! its slots are used again. Once as many blocks have gone as there are, dictionaries forget the values that none has any more if these
//! are most: so for each block that goes one gets new codes.

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
use firn_base::{BlockNumber, Cell, ColumnId, Result, RowId, Slot, Snapshot, SqlType};
use smallvec::SmallVec;
use std::time::Duration;

/// Blocks join main when there is at least one for so many that are there.
const SHARE: usize = 8;

/// Blocks that join at once at most, unless a share of main is more: their rows are in memory twice meanwhile.
const MOST_AT_ONCE: usize = 256;

/// A block is left when fewer than one in so many of its rows are there.
pub(super) const LEFT_BELOW: u32 = 2;

/// What the compact blocks of a table share.
#[derive(Default)]
pub(super) struct Main {
    columns: Mutex<Vec<MainColumn>>,
    /// Bytes of the dictionaries.
    bytes: AtomicUsize,
    /// Blocks that have gone since dictionaries were last looked through for values that none has any more.
    gone: AtomicUsize,
}

#[derive(Default)]
struct MainColumn {
    dictionary: Option<(Dictionary, Counted)>,
    /// Different values in the blocks that have joined since dictionaries were looked through, and in those with codes before.
    distinct: Option<Distinct>,
    slots: u64,
    string_bytes: u64,
}

impl Main {
    /// The memory that dictionaries take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn count_bytes(&self, columns: &[MainColumn]) {
        let bytes =
            |column: &MainColumn| column.dictionary.as_ref().map_or(0, |(_, counted)| counted.bytes());
        self.bytes.store(columns.iter().map(bytes).sum(), Ordering::Relaxed);
    }
}

/// A block on its way into main.
struct Joining<'t> {
    block: &'t Block,
    rows: FrozenRows,
}

impl Table {
    /// Has full blocks join main that have been frozen for so long, if they are worth a merge; how many. If they need not
    /// have been for long, all that are frozen join at once. Not to be called under a guard, since it may take
    /// seconds; ends early when it may not `go_on`.
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
        // What takes longest first, so that nobody begins with it when the others are done.
        columns.sort_by_key(|(id, _)| self.columns[id.index()].ty.width() != Width::View);
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
        // All at once: each time takes the heap new numbers.
        for block in in_main.iter().take_while(|_| go_on()) {
            give_codes(block, &merges);
        }
        self.main.count_bytes(&main);
        let joined = joining.into_iter().zip(rows).map(|(joining, columns)| self.let_join(joining, columns));
        joined.map(usize::from).sum()
    }

    /// Has the dictionaries forget what no block has any more.
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

    /// Puts the encoded columns of a block in the place of its rows, unless one is missing or somebody has written to it meanwhile.
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

    /// Gives up the memory of rows that have been encoded, once nobody can be reading them any more.
    fn let_go_of_rows(self: &Arc<Self>, block: BlockNumber, rows: FrozenRows, guard: &Guard) {
        // A table that is dropped meanwhile shall not be kept for this.
        let table = Arc::downgrade(self);
        guard.defer(move || {
            if let Some(table) = table.upgrade() {
                let block = table.blocks.get(block).expect("tables keep their blocks");
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
        // They are copied when the row has been deleted, and mostly lie in a dictionary, where nobody else has been lately.
        for cell in &image {
            if let Cell::Bytes(bytes) = cell {
                prefetch(bytes.as_ptr());
                prefetch(bytes.as_ptr_range().end.wrapping_sub(1));
            }
        }
        let (block, slot) = self.allocate_slot()?;
        self.move_to((block, slot), write_set, snapshot, row, &image, guard)
    }

    /// Deletes a row and inserts one that goes on as it. Whatever comes of it, the slot is filled or given back.
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
        // First, so that it does not stand in its own way in unique indexes.
        self.delete_for(write_set, snapshot, row, Some(to), guard).inspect_err(|_| self.give_back([to]))?;
        self.insert_into((block, slot), write_set, snapshot, cells, Some(row), guard)?;
        Ok(())
    }

    /// Plans so many moves at most out of compact blocks of which most rows have gone. Each slot that is not filled
    /// afterwards has to be [given back](Table::give_back).
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
                // Without memory they stay.
                let Ok((to, to_slot)) = self.allocate_slot() else { return moves };
                moves.push((block.row(slot), to.row(to_slot)));
            }
            drop(guard);
        }
        moves
    }

    /// Has [indexes without values](crate::IndexSpec::values) let go of the keys of rows that are compact; of how many indexes.
    /// Not to be called under a guard, since it may take seconds, and by nobody beside [`Table::give_up_left`]; ends early when it
    /// may not `go_on`.
    pub fn tend_indexes(&self, go_on: &dyn Fn() -> bool) -> usize {
        self.indexes().iter().filter(|index| index.tend(go_on)).count()
    }

    /// Gives up the memory of compact blocks of which no row is left, until it is needed again. Of how many. Not to be
    /// called under a guard: indexes may have to be rid of them first.
    pub fn give_up_left(&self) -> usize {
        let filling = self.filling.load(Ordering::Acquire);
        // One that is still to be filled is left when another is.
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
        // By now it may be another.
        let filling = self.filling.load(Ordering::Acquire);
        let left = left.into_iter().filter(|block| block.number.0 != filling);
        let gone = left.filter(|block| block.give_up_compact(self.nothing(), &guard));
        let before = emptied.len();
        emptied.extend(gone.map(|block| block.number));
        let gone = emptied.len() - before;
        self.main.gone.fetch_add(gone, Ordering::Relaxed);
        gone
    }

    /// Whether no index reads these blocks for the keys of their rows, nor will: also none that was taken off, since a
    /// transaction of before may still look something up in it.
    fn indexes_have_dropped(&self, blocks: &[BlockNumber]) -> bool {
        let mut all = self.indexes().to_vec();
        self.taken_off.lock().retain(|index| {
            all.extend(index.upgrade());
            index.strong_count() > 0
        });
        // All are asked, so that none has to wait until the others are through.
        all.iter().filter(|index| !index.has_dropped(blocks)).count() == 0
    }
}

impl MainColumn {
    /// Encodes a column of all blocks that join, on so many threads; `None` of one that cannot be encoded. If blocks of main have
    /// to get other codes, what gives these.
    fn join(
        &mut self,
        id: ColumnId,
        joining: &[Joining<'_>],
        table: &Table,
        threads: usize,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> (Vec<Option<EncodedColumn>>, Option<Merge>) {
        let ty = table.columns[id.index()].ty;
        let sources: Vec<_> = joining.iter().map(|joining| joining.rows.source(joining.block, id)).collect();
        let pieces: Vec<Piece<'_>> = sources.iter().map(|source| source.piece()).collect();
        let gather = |piece: Piece<'_>| Statistics::gather(ty, piece);
        let statistics: Vec<Statistics> = in_parallel(threads, pieces.clone(), gather);
        let offer = self.offer(ty, &statistics);
        let mut encodings: Vec<Encoding> =
            statistics.iter().map(|statistics| choose(statistics, Some(&offer))).collect();
        let coded: Vec<usize> = (0..pieces.len()).filter(|at| encodings[*at].values == Kept::Codes).collect();
        let mut codes = Vec::new();
        let mut changed = None;
        if !coded.is_empty() {
            let delta: Vec<Piece<'_>> = coded.iter().map(|at| pieces[*at]).collect();
            let before = self.dictionary.as_ref().map(|(dictionary, _)| dictionary.clone());
            let merged = DeltaDictionary::build(ty, &delta, threads)
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
            (encoding, *piece, has_codes(encoding).then(|| codes.next().expect("one for every block")))
        });
        let encoded = in_parallel(threads, jobs.collect(), |(encoding, piece, coded)| match coded {
            Some(coded) => Some(coded),
            None => {
                let plain = EncodedColumn::encode(ty, piece, *encoding);
                // That takes a while.
                plain.map(|plain| if go_on() { plain.with_symbols() } else { plain })
            }
        });
        (encoded, changed)
    }

    /// Forgets the values that no block of main has any more, if these are most, and what is estimated of them. What gives the blocks codes for
    /// the others.
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
        // As long on average as before.
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

    /// The dictionary that blocks with these statistics would share with those of before.
    fn offer(&mut self, ty: SqlType, statistics: &[Statistics]) -> Offer {
        for block in statistics {
            self.slots += block.slots as u64;
            self.string_bytes += block.string_bytes.0 as u64;
            match &mut self.distinct {
                Some(distinct) => distinct.join(&block.distinct),
                none => *none = Some(block.distinct.clone()),
            }
        }
        let distinct = self.distinct.as_ref().expect("some block joins");
        Offer::estimated(ty, distinct, self.slots, self.string_bytes)
    }
}

/// Gives a block of main codes for other dictionaries. Columns with codes for older ones go on with what they have, and so
/// does a block whose heap has no numbers left for the strings of others.
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

    /// Not at once: so only full blocks count, and only if there are enough of them.
    const SOON: Duration = Duration::from_nanos(1);

    /// Adds a block with so many rows, and freezes it.
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
        // Whoever asks shall find that it has been frozen for longer.
        std::thread::sleep(SOON);
    }

    #[test]
    fn blocks_join_when_they_are_an_eighth_of_those_that_are_compact() {
        let column = ColumnSpec { ty: SqlType::Integer, nullable: false };
        let table = Table::new(
            TableId(1),
            "t",
            vec![column],
            TableOptions { block_bytes: 1, ..TableOptions::default() },
        );
        let slots = table.layout.slots;
        let compact = |after| table.compact(after, 1, &|| true);
        // How many are compact, and how many it takes until others join.
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
        // One that is not full counts for nothing, unless all are to become compact at once.
        add(&table, slots);
        add(&table, slots);
        add(&table, slots - 1);
        assert_eq!((compact(SOON), compact(Duration::from_secs(3600))), (0, 0));
        assert_eq!(compact(Duration::ZERO), 3);
    }

    #[test]
    fn rows_that_are_passed_over_are_those_that_are_there() {
        let column = ColumnSpec { ty: SqlType::Integer, nullable: false };
        let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
        let table = Table::new(TableId(1), "t", vec![column], options);
        let slots = table.layout.slots;
        add(&table, slots);
        add(&table, slots / 3);
        let passed_over = || {
            let scan = table.scan(Snapshot { read_time: Time(9), owner: Stamp::transaction(9) }, &[], false);
            let [low, high] = [-2, -1].map(|key| crate::summary(SqlType::Integer, &Cell::i32(key)).unwrap());
            let scan = scan.under(&[crate::Restriction::within(ColumnId(0), low, high)]);
            assert!(scan.next_batch(&crate::pin()).is_none());
            scan.rows_passed_over()
        };
        assert_eq!(passed_over(), u64::from(slots + slots / 3), "frozen");
        assert_eq!(table.compact(Duration::ZERO, 1, &|| true), 2);
        assert_eq!(passed_over(), u64::from(slots + slots / 3), "compact");
    }
}
