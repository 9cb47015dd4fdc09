//! Scans: the rows of a table that a snapshot sees, as Arrow batches. [`crate::walk`] reads the rows of a
//! block, [`crate::encoded_scan`] those of a compact one.

use crate::block::{Block, RawCell};
use crate::compact::{Compact, put_decoded};
use crate::copy::{append, append_pairs};
use crate::encoded_scan::{Asked, Encoded, Filter, Judge, Judged, RowFilter};
use crate::freeze::{FrozenRows, HandedOut};
use crate::heap::{self, BUFFERS, INLINE_BYTES};
use crate::layout::{RANGE_SLOTS, Unit};
use crate::restriction::Restriction;
use crate::walk::{Sink, Walk};
use crate::{Guard, Table, arrow, spare};
use arrow_array::types::Decimal128Type;
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, StringViewArray,
    UInt64Array, make_array,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use firn_base::sync::{Arc, AtomicU64, Ordering, RwLock};
use firn_base::{BlockNumber, ColumnId, Representation, Slot, Snapshot};

/// The largest number of rows in a batch.
pub const BATCH_ROWS: usize = 8192;

/// With more, postponed rows have left the second-level cache when they are read.
const MOST_BLOCKS_AT_ONCE: u64 = 4;

const RANGES_PER_BATCH: u32 = BATCH_ROWS as u32 / RANGE_SLOTS;

/// Some consecutive rows of a table.
pub struct ScanBatch {
    /// One array per requested column.
    pub columns: Vec<ArrayRef>,
    /// The number of rows, also when no column was requested.
    pub rows: usize,
    /// The rows' ids, if requested ([`firn_base::RowId::to_bits`]).
    pub row_ids: Option<UInt64Array>,
}

/// A scan in progress. Several threads may read from it; each batch goes to one of them.
///
/// The transaction whose snapshot it reads must run until the scan ends.
pub struct TableScan {
    table: Arc<Table>,
    snapshot: Snapshot,
    columns: Box<[ColumnId]>,
    row_ids: bool,
    /// Rows that do not meet all of these need not be returned.
    asked: Box<[Asked]>,
    /// Nor rows that do not meet these, which are evaluated where values have codes.
    judged: Box<[Judged]>,
    /// Nor rows that do not pass these, which are added during the scan.
    filters: RwLock<Arc<[Arc<Filter>]>>,
    /// The number of rows that were skipped because of all these.
    passed_over: AtomicU64,
    blocks: u64,
    /// The blocks to scan; all of them in order if it is `None`.
    only: Option<Box<[BlockNumber]>>,
    /// The largest number of rows in a batch.
    batch_rows: u32,
    /// Whether values are returned as they are stored, also where Arrow's are wider.
    as_stored: bool,
    batches_per_block: u64,
    /// The next batch to return, counted over all blocks.
    next: AtomicU64,
}

impl TableScan {
    pub(crate) fn new(
        table: Arc<Table>,
        snapshot: Snapshot,
        columns: &[ColumnId],
        row_ids: bool,
    ) -> TableScan {
        TableScan {
            blocks: table.blocks().len(),
            only: None,
            batch_rows: BATCH_ROWS as u32,
            as_stored: false,
            batches_per_block: u64::from(table.layout().slots.div_ceil(BATCH_ROWS as u32)),
            table,
            snapshot,
            columns: columns.into(),
            row_ids,
            asked: Box::default(),
            judged: Box::default(),
            filters: RwLock::new(Arc::new([])),
            passed_over: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// Scans only some of the table's blocks, in this order.
    pub fn of_blocks(self, numbers: Vec<BlockNumber>) -> TableScan {
        TableScan { blocks: numbers.len() as u64, only: Some(numbers.into()), ..self }
    }

    /// Skips blocks in which no row is known to meet all restrictions, and rows of compact blocks. Other
    /// blocks are returned whole.
    pub fn under(self, restrictions: &[Restriction]) -> TableScan {
        let asked = restrictions.iter().map(|restriction| {
            let representation = self.table.columns()[restriction.column().index()].representation;
            Asked::new(restriction.clone(), representation)
        });
        TableScan { asked: asked.collect(), ..self }
    }

    /// Skips rows of compact blocks that do not meet conditions on single columns of strings, if these can be
    /// evaluated once for many rows.
    pub fn judging(self, judges: impl IntoIterator<Item = (ColumnId, Judge)>) -> TableScan {
        let judged = judges.into_iter().map(|(column, judge)| Judged::new(column, judge));
        TableScan { judged: judged.collect(), ..self }
    }

    /// Adds a filter: from now on, rows of compact blocks that do not pass it are skipped. It is applied as
    /// long as it removes more than half of the rows that the filters before it leave.
    pub fn filter(&self, columns: &[ColumnId], passes: RowFilter) {
        let mut filters = self.filters.write();
        *filters = filters.iter().cloned().chain([Arc::new(Filter::new(columns, passes))]).collect();
    }

    /// Its filters.
    pub(crate) fn filters(&self) -> Arc<[Arc<Filter>]> {
        self.filters.read().clone()
    }

    /// The number of rows that it has skipped since the last call.
    pub fn rows_passed_over(&self) -> u64 {
        self.passed_over.swap(0, Ordering::Relaxed)
    }

    /// For [`TableScan::next_block`] instead of batches; each call takes a whole block.
    pub(crate) fn giving_stored(self, batch_rows: u32) -> TableScan {
        TableScan { as_stored: true, batch_rows, batches_per_block: 1, ..self }
    }

    /// Calls `visit` with the columns of the next block's rows, some rows at a time. Returns false if there
    /// is no further block.
    pub(crate) fn next_block(
        &self,
        guard: &Guard,
        visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Values>),
    ) -> bool {
        let Some(block) = self.next_whole_block() else { return false };
        let mut gather = self.gather(block, self.batch_rows);
        let mut walk = self.walk(block, guard);
        let end = block.allocated();
        for start in (0..end).step_by(self.batch_rows as usize) {
            gather.forget(0);
            walk.rows(start, end.min(start + self.batch_rows), &mut gather);
            if gather.rows > 0 {
                visit(&mut gather.columns.iter().map(|column| &column.values));
            }
        }
        walk.finish(&mut gather);
        gather.columns.into_iter().for_each(Column::keep);
        true
    }

    /// The next block of a scan that is not divided into batches.
    pub(crate) fn next_whole_block(&self) -> Option<&Block> {
        assert!(self.as_stored, "the scan returns batches");
        self.block(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// How many blocks a thread may take from the scan at once, so that the others have their share.
    pub(crate) fn blocks_at_once(&self) -> u64 {
        (self.blocks / 32).clamp(1, MOST_BLOCKS_AT_ONCE)
    }

    /// The block at a position of the scan's order.
    fn block(&self, at: u64) -> Option<&Block> {
        let at = Some(at).filter(|at| *at < self.blocks)?;
        let number = self.only.as_ref().map_or(BlockNumber(at), |only| only[at as usize]);
        Some(self.table.blocks().get(number).expect("the block existed when the scan began"))
    }

    /// The snapshot that it reads.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// The columns that it returns.
    pub(crate) fn columns(&self) -> &[ColumnId] {
        &self.columns
    }

    /// A walk through a block of the table.
    pub(crate) fn walk<'a>(&'a self, block: &'a Block, guard: &'a Guard) -> Walk<'a> {
        Walk::new(&self.table, block, self.snapshot, &self.columns, guard)
    }

    /// The next batch, of at most [`BATCH_ROWS`] rows; never empty. `None` at the end of the table.
    pub fn next_batch(&self, guard: &Guard) -> Option<ScanBatch> {
        loop {
            let batch = self.next.fetch_add(1, Ordering::Relaxed);
            let block = self.block(batch / self.batches_per_block)?;
            let first = (batch % self.batches_per_block) as u32 * self.batch_rows;
            let end = block.allocated().min(first + self.batch_rows);
            if first < end
                && let Some(batch) = self.read(block, first, end, guard)
            {
                return Some(batch);
            }
        }
    }

    fn gather<'a>(&self, block: &'a Block, rows: u32) -> Gather<'a> {
        let column = |column: &ColumnId| Column::new(block, *column, rows as usize, self.as_stored);
        Gather {
            block,
            columns: self.columns.iter().map(column).collect(),
            rows: 0,
            row_ids: self.row_ids.then(Vec::new),
        }
    }

    fn read(&self, block: &Block, first: u32, end: u32, guard: &Guard) -> Option<ScanBatch> {
        debug_assert!(end - first <= RANGES_PER_BATCH * RANGE_SLOTS);
        let is_string = |column: &ColumnId| block.layout.column(*column).unit() == Unit::View;
        let strings = self.columns.iter().any(is_string);
        match block.hand_out(self.snapshot, strings, &self.asked, guard) {
            HandedOut::Rows(frozen) => return self.frozen(&frozen, block, first, end),
            HandedOut::NothingMeets => {
                // A frozen block has no gaps.
                self.pass_over(end.min(block.rows_present()).saturating_sub(first) as usize);
                return None;
            }
            HandedOut::NotSeen => return None,
            HandedOut::Encoded => match self.encoded(block, first, end, guard) {
                Encoded::Rows(batch) => return Some(batch),
                Encoded::NothingMeets => return None,
                Encoded::MayHaveVersions => {}
            },
            HandedOut::NotCold => {}
        }
        let mut gather = self.gather(block, end - first);
        let mut walk = self.walk(block, guard);
        walk.rows(first, end, &mut gather);
        walk.finish(&mut gather);
        gather.finish()
    }

    /// Counts rows that were skipped because of the conditions.
    pub(crate) fn pass_over(&self, rows: usize) {
        self.passed_over.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Conditions that returned rows meet, as far as that is known without reading them.
    pub(crate) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Conditions that are evaluated on values of dictionaries.
    pub(crate) fn judged(&self) -> &[Judged] {
        &self.judged
    }

    /// Whether it returns the rows' ids.
    pub(crate) fn gives_row_ids(&self) -> bool {
        self.row_ids
    }

    /// Rows of a frozen block, without a copy.
    fn frozen(&self, frozen: &FrozenRows, block: &Block, first: u32, end: u32) -> Option<ScanBatch> {
        let end = end.min(frozen.rows);
        let rows = end.checked_sub(first).filter(|rows| *rows > 0)?;
        Some(ScanBatch {
            columns: self.columns.iter().map(|column| frozen.column(block, *column, first, rows)).collect(),
            rows: rows as usize,
            row_ids: self.row_ids.then(|| row_ids(block, first, end).collect::<Vec<_>>().into()),
        })
    }
}

/// The ids of the rows in some slots.
pub(crate) fn row_ids(block: &Block, first: u32, end: u32) -> impl Iterator<Item = u64> {
    (first..end).map(|slot| block.row(Slot(slot)).to_bits())
}

/// A batch under construction.
struct Gather<'a> {
    block: &'a Block,
    columns: Vec<Column<'a>>,
    rows: usize,
    row_ids: Option<Vec<u64>>,
}

impl Sink for Gather<'_> {
    // Callers that request no order still prefer to get the same one twice.
    const IN_ORDER: bool = true;

    type Mark = usize;

    fn mark(&self) -> usize {
        self.rows
    }

    fn forget(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.truncate(rows);
        }
        if let Some(row_ids) = &mut self.row_ids {
            row_ids.truncate(rows);
        }
        self.rows = rows;
    }

    fn take(&mut self, block: &Block, from: u32, to: u32) {
        debug_assert!(std::ptr::eq(block, self.block));
        for column in &mut self.columns {
            column.copy(from as usize, to as usize);
        }
        self.add_row_ids(from, to);
        self.rows += (to - from) as usize;
    }

    fn take_row(&mut self, slot: Slot, cells: &[RawCell]) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(*cell);
        }
        self.add_row_ids(slot.0, slot.0 + 1);
        self.rows += 1;
    }
}

impl Gather<'_> {
    fn add_row_ids(&mut self, from: u32, to: u32) {
        if let Some(row_ids) = &mut self.row_ids {
            row_ids.extend(self::row_ids(self.block, from, to));
        }
    }

    fn finish(self) -> Option<ScanBatch> {
        let rows = self.rows;
        if rows == 0 {
            return None;
        }
        let heap = if self.columns.iter().any(|column| matches!(column.values, Values::Views(_))) {
            self.block.heap().arrow_buffers(true)
        } else {
            Vec::new()
        };
        Some(ScanBatch {
            columns: self.columns.into_iter().map(|column| column.finish(rows, &heap)).collect(),
            rows,
            row_ids: self.row_ids.map(UInt64Array::from),
        })
    }
}

/// One column of a batch under construction.
struct Column<'a> {
    block: &'a Block,
    id: ColumnId,
    representation: Representation,
    values: Values,
    validity: Option<BooleanBufferBuilder>,
    /// Strings of a compact block that had to be decoded.
    decoded: Vec<u8>,
}

/// Values of a column under construction.
pub enum Values {
    /// Booleans.
    Bits(BooleanBufferBuilder),
    /// Of 2 bytes.
    Two(Vec<u16>),
    /// Of 4.
    Four(Vec<u32>),
    /// Of 8.
    Eight(Vec<u64>),
    /// An 8-byte numeric, widened for Arrow.
    Narrow(Vec<i128>),
    /// Of 16 bytes.
    Sixteen(Vec<u128>),
    /// Strings.
    Views(Vec<u128>),
}

impl<'a> Column<'a> {
    fn new(block: &'a Block, id: ColumnId, capacity: usize, as_stored: bool) -> Column<'a> {
        let layout = block.layout.column(id);
        let representation = block.layout.types[id.index()];
        let values = match (layout.unit(), representation) {
            (Unit::Bit, _) => Values::Bits(BooleanBufferBuilder::new(capacity)),
            (Unit::Two, _) => Values::Two(spare::take(capacity)),
            (Unit::Four, _) => Values::Four(spare::take(capacity)),
            (Unit::Eight, Representation::Decimal { .. }) if !as_stored => {
                Values::Narrow(spare::take(capacity))
            }
            (Unit::Eight, _) => Values::Eight(spare::take(capacity)),
            (Unit::Pair, _) => Values::Sixteen(spare::take(capacity)),
            (Unit::View, _) => Values::Views(spare::take(capacity)),
        };
        let validity = layout.validity().map(|_| BooleanBufferBuilder::new(capacity));
        Column { block, id, representation, values, validity, decoded: Vec::new() }
    }

    /// Appends the values in the slots `from..to`.
    fn copy(&mut self, from: usize, to: usize) {
        let (block, id) = (self.block, self.id);
        if let Some(compact) = block.compact() {
            return self.decode(compact, from, to);
        }
        match &mut self.values {
            Values::Bits(bits) => copy_bits(block.bits(id), from, to, bits),
            Values::Two(values) => append(&block.u16s(id)[from..to], values),
            Values::Four(values) => append(&block.u32s(id)[from..to], values),
            Values::Eight(values) => append(&block.u64s(id)[from..to], values),
            Values::Narrow(values) => {
                let source = &block.u64s(id)[from..to];
                values.extend(source.iter().map(|value| i128::from(value.load(Ordering::Relaxed) as i64)));
            }
            Values::Sixteen(values) | Values::Views(values) => {
                append_pairs(&block.pairs(id)[2 * from..2 * to], values);
            }
        }
        if let (Some(target), Some(source)) = (&mut self.validity, block.validity(id)) {
            copy_bits(source, from, to, target);
        }
    }

    /// As [`Column::copy`], of a compact block.
    fn decode(&mut self, compact: &Compact, from: usize, to: usize) {
        let encoded = compact.column(self.id);
        let rows = to - from;
        macro_rules! words {
            ($word:ty) => {
                decoded::<$word>(rows, |words| encoded.decode_words(from..to, words))
            };
        }
        match &mut self.values {
            Values::Bits(bits) => bits.append_buffer(&encoded.decode_bits(from..to)),
            Values::Two(values) => values.extend(words!(i16).map(|word| word as u16)),
            Values::Four(values) => values.extend(words!(i32).map(|word| word as u32)),
            Values::Eight(values) => values.extend(words!(i64).map(|word| word as u64)),
            Values::Narrow(values) => values.extend(words!(i64).map(i128::from)),
            Values::Sixteen(values) => {
                values.extend(words!(i128).map(|word| word as u128));
            }
            Values::Views(values) => compact.views(from, to, self.id, values, &mut self.decoded),
        }
        if let Some(validity) = &mut self.validity {
            match encoded.validity(from..to) {
                Some(nulls) => validity.append_buffer(nulls.inner()),
                None => validity.append_n(rows, true),
            }
        }
    }

    fn push(&mut self, raw: RawCell) {
        let [low, _] = raw.words;
        match &mut self.values {
            Values::Bits(bits) => bits.append(low != 0),
            Values::Two(values) => values.push(low as u16),
            Values::Four(values) => values.push(low as u32),
            Values::Eight(values) => values.push(low),
            Values::Narrow(values) => values.push(i128::from(low as i64)),
            Values::Sixteen(values) => values.push(wide(raw.words)),
            Values::Views(values) => values.push(wide(match raw.words {
                view if heap::view_len(view) > INLINE_BYTES && heap::is_elsewhere(view) => {
                    put_decoded(self.block.heap().bytes(view), &mut self.decoded)
                }
                view => view,
            })),
        }
        if let Some(validity) = &mut self.validity {
            validity.append(!raw.null);
        }
    }

    fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bits(bits) => bits.truncate(rows),
            Values::Two(values) => values.truncate(rows),
            Values::Four(values) => values.truncate(rows),
            Values::Eight(values) => values.truncate(rows),
            Values::Narrow(values) => values.truncate(rows),
            Values::Sixteen(values) | Values::Views(values) => values.truncate(rows),
        }
        if let Some(validity) = &mut self.validity {
            validity.truncate(rows);
        }
    }

    /// Keeps its memory for reuse.
    fn keep(self) {
        match self.values {
            Values::Two(values) => spare::keep(values),
            Values::Four(values) => spare::keep(values),
            Values::Eight(values) => spare::keep(values),
            Values::Sixteen(values) | Values::Views(values) => spare::keep(values),
            Values::Narrow(values) => spare::keep(values),
            Values::Bits(_) => {}
        }
    }

    fn finish(self, rows: usize, heap: &[Buffer]) -> ArrayRef {
        let nulls = self
            .validity
            .map(|mut bits| NullBuffer::new(bits.finish()))
            .filter(|nulls| nulls.null_count() > 0);
        let data_type = arrow::data_type(self.representation);
        let buffer = match self.values {
            Values::Bits(mut bits) => {
                let bits: BooleanBuffer = bits.finish();
                return Arc::new(BooleanArray::new(bits, nulls));
            }
            Values::Views(mut views) => {
                if let Some(nulls) = &nulls {
                    // The view of a NULL may be an old one; Arrow follows it regardless.
                    for (view, valid) in views.iter_mut().zip(nulls) {
                        *view = if valid { *view } else { 0 };
                    }
                }
                let views = ScalarBuffer::new(spare::into_buffer(views), 0, rows);
                let mut heap = heap.to_vec();
                if !self.decoded.is_empty() {
                    // At the buffer number of their views.
                    heap.resize(BUFFERS, Buffer::default());
                    heap.push(self.decoded.into());
                }
                let heap: Arc<[Buffer]> = heap.into();
                // SAFETY: `Heap::store` of this block wrote the views, and the version check has validated
                // them; its buffers are `heap`. Other views are of strings decoded for this column, in the
                // last buffer. Text is checked to be UTF-8 wherever it enters.
                return unsafe {
                    if self.representation.is_string() {
                        Arc::new(StringViewArray::new_unchecked(views, heap, nulls))
                    } else {
                        Arc::new(BinaryViewArray::new_unchecked(views, heap, nulls))
                    }
                };
            }
            Values::Narrow(values) => {
                let array = PrimitiveArray::<Decimal128Type>::new(
                    ScalarBuffer::new(spare::into_buffer(values), 0, rows),
                    nulls,
                );
                return Arc::new(array.with_data_type(data_type));
            }
            Values::Sixteen(values) if self.representation == Representation::Uuid => {
                return Arc::new(FixedSizeBinaryArray::new(16, spare::into_buffer(values), nulls));
            }
            Values::Two(values) => spare::into_buffer(values),
            Values::Four(values) => spare::into_buffer(values),
            Values::Eight(values) => spare::into_buffer(values),
            Values::Sixteen(values) => spare::into_buffer(values),
        };
        let data = ArrayData::builder(data_type).len(rows).add_buffer(buffer).nulls(nulls);
        // SAFETY: one buffer of `rows` values of a primitive type's width.
        make_array(unsafe { data.build_unchecked() })
    }
}

/// Columns of some rows of a compact block, in the form in which other blocks store them.
pub(crate) fn decode(block: &Block, columns: &[ColumnId], from: u32, to: u32) -> Vec<Values> {
    let decode = |column: &ColumnId| {
        let mut decoded = Column::new(block, *column, (to - from) as usize, true);
        decoded.copy(from as usize, to as usize);
        decoded.values
    };
    columns.iter().map(decode).collect()
}

/// The words that `decode` appends, `words` of them.
fn decoded<T>(words: usize, decode: impl FnOnce(&mut Vec<T>)) -> impl Iterator<Item = T> {
    let mut decoded = Vec::with_capacity(words);
    decode(&mut decoded);
    decoded.into_iter()
}

/// The 16 bytes of a pair of words, low word first.
#[inline]
fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn copy_bits(source: &[AtomicU64], from: usize, to: usize, target: &mut BooleanBufferBuilder) {
    let first_word = from / 64;
    let words = &source[first_word..to.div_ceil(64)];
    let mut bytes = [0u8; BATCH_ROWS / 8];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    target.append_packed_range(from - first_word * 64..to - first_word * 64, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnSpec, Garbage, TableOptions, WriteSet, pin};
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use firn_base::{Cell, RowId, Stamp, TableId, Time};

    /// A table of one column, and the actions of the transaction manager.
    struct Bench {
        table: Arc<Table>,
        now: u64,
    }

    impl Bench {
        fn snapshot(&self) -> Snapshot {
            Snapshot { read_time: Time(self.now), owner: Stamp::transaction(1) }
        }

        fn commit(&mut self, change: impl FnOnce(&Table, &mut WriteSet, Snapshot, &Guard)) {
            let guard = &pin();
            let mut writes = WriteSet::new(Stamp::transaction(1), None);
            writes.touch(&self.table);
            change(&self.table, &mut writes, self.snapshot(), guard);
            self.now += 1;
            writes.stamp(Time(self.now));
            let mut garbage = Garbage::default();
            writes.retire_now(Time(self.now)).collect(&mut garbage, guard);
            garbage.free(guard);
        }

        fn sum(&self, snapshot: Snapshot) -> i64 {
            let scan = self.table.scan(snapshot, &[ColumnId(0)], false);
            let mut sum = 0;
            while let Some(batch) = scan.next_batch(&pin()) {
                sum += batch.columns[0]
                    .as_primitive::<Int32Type>()
                    .values()
                    .iter()
                    .map(|n| i64::from(*n))
                    .sum::<i64>();
            }
            sum
        }

        fn fold(&self, snapshot: Snapshot) -> i64 {
            let column = self.table.projection::<(i32,)>(&[ColumnId(0)]).unwrap();
            let scan = self.table.scan_as(snapshot, &column);
            let mut sum = 0;
            while scan
                .fold_next(&pin(), &mut sum, &|sum: &mut i64, (number,): (i32,)| *sum += i64::from(number))
            {
            }
            sum
        }

        /// The intervals of the first two ranges.
        fn stretches(&self) -> [Vec<(u32, u32)>; 2] {
            let block = self.table.blocks().get(BlockNumber(0)).unwrap();
            [0, 1].map(|range| {
                let versioned = block.position(Slot(range * RANGE_SLOTS)).versioned();
                versioned.stretches().map(|rows| (rows.start, rows.end)).collect()
            })
        }
    }

    #[test]
    fn a_scan_that_finds_no_versions_spares_the_next_one_the_search() {
        let spec = ColumnSpec { representation: Representation::Int32, nullable: false };
        let options = TableOptions { block_bytes: 1 << 14, ..TableOptions::default() };
        let mut bench = Bench { table: Table::new(TableId(1), "t", vec![spec], options), now: 1 };
        let rows = [[Cell::i32(1)]; 2 * RANGE_SLOTS as usize];
        bench.commit(|table, writes, snapshot, guard| {
            table.insert_rows(writes, snapshot, &rows, guard).unwrap();
        });
        let (all, none) = (vec![(0, RANGE_SLOTS)], vec![]);
        assert_eq!(bench.stretches(), [all.clone(), all]);
        let update = |row: u32, to| {
            let row = RowId::new(BlockNumber(0), Slot(row));
            move |table: &Table, writes: &mut WriteSet, snapshot, guard: &Guard| {
                table.update(writes, snapshot, row, &[ColumnId(0)], &[Cell::i32(to)], guard).unwrap();
            }
        };
        for round in 0..3 {
            assert_eq!(bench.sum(bench.snapshot()), 2 * i64::from(RANGE_SLOTS) + round);
            // The reset waits for the guards of its time, including those of other tests' threads. Pinning
            // now and then finishes it.
            while bench.stretches() != [none.clone(), none.clone()] {
                drop(pin());
                firn_base::thread::yield_now();
            }
            assert_eq!(bench.sum(bench.snapshot()), 2 * i64::from(RANGE_SLOTS) + round);
            bench.commit(update(RANGE_SLOTS + 70, 2 + round as i32));
            assert_eq!(bench.stretches(), [none.clone(), vec![(70, 71)]]);
        }

        // A version that a snapshot needs keeps the interval, and the values that other snapshots see.
        let old = bench.snapshot();
        let mut writes = WriteSet::new(Stamp::transaction(2), None);
        writes.touch(&bench.table);
        let newer = Snapshot { owner: Stamp::transaction(2), ..old };
        update(RANGE_SLOTS + 70, 100)(&bench.table, &mut writes, newer, &pin());
        for _ in 0..3 {
            assert_eq!(bench.sum(newer) - bench.sum(old), 96);
            pin().flush();
        }
        assert_eq!(bench.stretches()[1], [(70, 71)]);
        writes.roll_back_all(&pin());
        assert_eq!(bench.sum(newer), bench.sum(old));
    }

    #[test]
    fn folds_see_one_state_while_others_change_the_rows() {
        move_amounts_beside_folds(if cfg!(miri) { 2 } else { 6 } * RANGE_SLOTS);
    }

    /// Rows with versions are postponed over several blocks.
    #[test]
    #[cfg_attr(miri, ignore = "too many rows")]
    fn folds_of_many_blocks_see_one_state_while_others_change_the_rows() {
        move_amounts_beside_folds(2 * 32 * 2 * 3 * RANGE_SLOTS);
    }

    /// Moves amounts between rows while other threads add them up: every sum is that of its snapshot.
    fn move_amounts_beside_folds(count: u32) {
        let spec = ColumnSpec { representation: Representation::Int32, nullable: false };
        let options = TableOptions { block_bytes: 1 << 14, ..TableOptions::default() };
        let mut bench = Bench { table: Table::new(TableId(1), "t", vec![spec], options), now: 1 };
        let rows = vec![[Cell::i32(100)]; count as usize];
        let mut ids = Vec::new();
        bench.commit(|table, writes, snapshot, guard| {
            table.insert_rows(writes, snapshot, &rows, guard).unwrap();
        });
        let scan = bench.table.scan(bench.snapshot(), &[], true);
        while let Some(batch) = scan.next_batch(&pin()) {
            ids.extend(batch.row_ids.unwrap().values().iter().map(|id| RowId::from_bits(*id)));
        }
        let blocks_at_once = scan.blocks_at_once();
        assert_eq!(blocks_at_once > 1, count > 64 * RANGE_SLOTS);
        drop(scan);
        let total = 100 * i64::from(count);
        let old = bench.snapshot();
        let table = bench.table.clone();
        let stop = Arc::new(firn_base::sync::unmodelled::AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (bench, stop) = (Bench { table: table.clone(), now: old.read_time.0 }, stop.clone());
                firn_base::thread::spawn("reader", move || {
                    let mut folds = 0;
                    while !stop.load(Ordering::Relaxed) || folds < 3 {
                        assert_eq!(bench.fold(old), total);
                        folds += 1;
                    }
                })
            })
            .collect();
        // Nothing is collected and write sets are kept, so the readers' snapshots find everything.
        let random = &mut firn_base::random::Random::seeded(3);
        let mut kept = Vec::new();
        for round in 0..if cfg!(miri) { 20 } else { 2_000 } {
            let guard = &pin();
            let owner = Stamp::transaction(10 + round);
            let mut writes = WriteSet::new(owner, None);
            writes.touch(&table);
            let snapshot = Snapshot { read_time: Time(2 + round), owner };
            for change in [-1, 1] {
                let row = ids[random.uniform(0, ids.len() as i64 - 1) as usize];
                let mut cells = [Cell::Null];
                assert!(table.read(snapshot, row, &[ColumnId(0)], &mut cells, guard));
                let Cell::Word(now) = cells[0] else { panic!("a number") };
                table
                    .update(
                        &mut writes,
                        snapshot,
                        row,
                        &[ColumnId(0)],
                        &[Cell::i32(now as i32 + change)],
                        guard,
                    )
                    .unwrap();
            }
            writes.stamp(Time(3 + round));
            kept.push(writes);
            if round % 100 == 0 {
                let newest = Snapshot { read_time: Time(3 + round), owner: Stamp::transaction(1) };
                assert_eq!(bench.fold(newest), total);
            }
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let mut garbage = Garbage::default();
        for (writes, round) in kept.into_iter().zip(0..) {
            writes.retire_now(Time(3 + round)).collect(&mut garbage, &pin());
        }
        garbage.free(&pin());
    }
}
