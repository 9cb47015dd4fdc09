//! Tidying: the arrangement of a block's strings when it is frozen.
//!
//! Rows are inserted with strings for several columns, and updates leave garbage. A frozen block's strings
//! are *tidy* if there is little garbage among them and, except for a few, each column has buffers of its
//! own. Then the array of a column has only these buffers, and a program that keeps or writes it does not get
//! the strings of other columns too. If they are not tidy, they are gathered, column by column, each in one
//! new buffer.
//!
//! Strings that share their bytes ([`Recent`](crate::heap::Recent)) still share them afterwards, if the last
//! of them was not long before: a view of the same place as a recent one is of the same string.

use crate::block::Block;
use crate::heap::{BUFFERS, INLINE_BYTES, view_len};
use crate::layout::{RANGE_SLOTS, Unit};
use crate::{Guard, LONGEST_STRING_BYTES};
use firn_base::sync::{Arc, Ordering};
use firn_base::{ColumnId, Slot};
use std::ops::Range;

/// Heaps may hold this much more than their strings, in all and as a fraction of them, before they are
/// gathered. Buffers that columns share may hold as much.
const SLACK_BYTES: usize = if cfg!(any(test, feature = "models")) { 0 } else { 16 << 10 };
const SLACK_PART: usize = 4;

/// With fewer buffers left, a writer waits until the strings have been gathered, and columns get no buffers
/// of their own. With fewer still, the rest is left to writers.
const MANY_BUFFERS: usize = 32;
const FEWEST_BUFFERS: usize = 4;

/// The number of columns of strings that may have buffers of their own; those with long strings count twice,
/// since each may need another buffer when the block is encoded.
const MOST_APART: usize = BUFFERS / 2;

/// What is known of the strings of a column.
struct Strings {
    column: ColumnId,
    /// The bytes of the long ones; shared bytes are counted once.
    bytes: usize,
    /// The buffers that have them, a bit each.
    buffers: u64,
}

/// Former and new places of recent strings: two for each of some sets, the last one first.
struct Places([[Place; 2]; Places::SETS]);

#[derive(Clone, Copy)]
struct Place {
    before: [u64; 2],
    now: u64,
}

impl Places {
    const SETS: usize = 32;

    fn new() -> Places {
        // No long string has that view.
        Places([[Place { before: [0; 2], now: 0 }; 2]; Places::SETS])
    }

    /// The new second word of a view with the second word `before`: from `moved`, unless the string is a
    /// recent one.
    #[inline(always)]
    fn moved(&mut self, before: [u64; 2], moved: impl FnOnce() -> u64) -> u64 {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
        let hash = before[1].wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let [last, other] = &mut self.0[(hash >> (64 - Places::SETS.ilog2())) as usize];
        if last.before == before {
            return last.now;
        }
        if other.before != before {
            *other = Place { before, now: moved() };
        }
        std::mem::swap(last, other);
        last.now
    }
}

impl Block {
    /// Tidies the strings, if that pays, and clears the views of NULLs, which Arrow would follow. Returns the
    /// buffers of each column, a bit each; `None` if a writer wants the block: what has been moved by then
    /// remains so.
    pub fn tidy_strings(&self, rows: u32, guard: &Guard) -> Option<Arc<[u64]>> {
        let mut all = Vec::new();
        for column in (0..self.layout.columns.len()).map(|at| ColumnId(at as u16)) {
            if self.layout.column(column).unit() == Unit::View {
                all.push(self.look_through(column, rows)?);
            }
        }
        let bytes = all.iter().map(|strings| strings.bytes).sum::<usize>();
        let is_dense = self.heap.allocated_bytes() <= bytes + bytes / SLACK_PART + SLACK_BYTES;
        let left = self.heap.buffers_left();
        // Buffer numbers must be left for later writers, and for encoded columns of strings.
        let count = all.iter().filter(|strings| strings.bytes > 0).count();
        let may_be_apart = count + all.len() <= MOST_APART && left >= count + MANY_BUFFERS;
        // A string that shared bytes when it was stored may not be recognised here.
        let stays_small = bytes <= self.heap.appended_bytes();
        let are_mixed = self.heap.filled_bytes(shared(&all)) > bytes / SLACK_PART + SLACK_BYTES;
        let is_worth_it = !is_dense || may_be_apart && are_mixed && stays_small || left < MANY_BUFFERS / 2;
        if is_worth_it && bytes <= LONGEST_STRING_BYTES && left >= FEWEST_BUFFERS {
            self.gather_strings(&mut all, rows, may_be_apart, guard)?;
        }
        let mut buffers = vec![0; self.layout.columns.len()];
        all.iter().for_each(|strings| buffers[strings.column.index()] = strings.buffers);
        Some(buffers.into())
    }

    fn look_through(&self, column: ColumnId, rows: u32) -> Option<Strings> {
        let views = self.pairs(column);
        let nullable = self.layout.column(column).validity().is_some();
        let mut strings = Strings { column, bytes: 0, buffers: 0 };
        let mut places = Places::new();
        for range in ranges(rows) {
            if self.is_wanted() {
                return None;
            }
            for at in range {
                if nullable && self.load_cell(Slot(at as u32), column).null {
                    views[2 * at].store(0, Ordering::Relaxed);
                    views[2 * at + 1].store(0, Ordering::Relaxed);
                    continue;
                }
                let view = [&views[2 * at], &views[2 * at + 1]].map(|word| word.load(Ordering::Relaxed));
                if view_len(view) > INLINE_BYTES {
                    strings.buffers |= 1 << (view[1] as u32);
                    places.moved(view, || {
                        strings.bytes += view_len(view);
                        0
                    });
                }
            }
        }
        Some(strings)
    }

    /// Gathers the strings, each column's in a buffer of its own if they `are_apart`, and notes which.
    fn gather_strings(&self, all: &mut [Strings], rows: u32, are_apart: bool, guard: &Guard) -> Option<()> {
        let with_strings = || all.iter().filter(|strings| strings.bytes > 0);
        // Each interrupted attempt leaves buffers behind.
        let may_be_broken_off = self.heap.buffers_left() > MANY_BUFFERS + with_strings().count();
        let bytes = with_strings().map(|strings| strings.bytes).sum();
        let mut gathering = self.heap.gather();
        if !are_apart {
            gathering.begin(bytes);
        }
        for strings in all.iter_mut().filter(|strings| strings.bytes > 0) {
            let views = self.pairs(strings.column);
            if are_apart {
                gathering.begin(strings.bytes);
            }
            strings.buffers = 0;
            let mut places = Places::new();
            for range in ranges(rows) {
                if may_be_broken_off && self.is_wanted() {
                    return None;
                }
                for at in range {
                    let view = [&views[2 * at], &views[2 * at + 1]].map(|word| word.load(Ordering::Relaxed));
                    if view_len(view) > INLINE_BYTES {
                        let moved = places.moved(view, || gathering.copy(view)[1]);
                        strings.buffers |= 1 << (moved as u32);
                        // Release: a reader that finds this place finds the string. The other word does not
                        // change, so a torn read is whole.
                        views[2 * at + 1].store(moved, Ordering::Release);
                    }
                }
            }
        }
        gathering.finish(guard);
        Some(())
    }
}

/// The buffers that several columns share, a bit each.
fn shared(all: &[Strings]) -> u64 {
    let (_, shared) = all
        .iter()
        .fold((0, 0), |(known, shared), strings| (known | strings.buffers, shared | known & strings.buffers));
    shared
}

/// The rows in intervals; between them the freezer checks for a writer.
fn ranges(rows: u32) -> impl Iterator<Item = Range<usize>> {
    let range = move |start| start as usize..rows.min(start + RANGE_SLOTS) as usize;
    (0..rows).step_by(RANGE_SLOTS as usize).map(range)
}

#[cfg(test)]
mod tests {
    use crate::state::BlockState;
    use crate::table::TableOptions;
    use crate::{ColumnSpec, Frozen, Garbage, ScanBatch, Table, WriteSet, pin};
    use arrow_array::cast::AsArray;
    use arrow_array::{ArrayRef, Int32Array, StringViewArray};
    use arrow_buffer::Buffer;
    use firn_base::sync::Arc;
    use firn_base::{BlockNumber, ColumnId, Representation, Snapshot, Stamp, TableId, Time};
    use std::time::Duration;

    const ALL: [ColumnId; 4] = [ColumnId(0), ColumnId(1), ColumnId(2), ColumnId(3)];

    /// A row's shipping mode, out of a few; often NULL.
    fn way(key: i32) -> Option<String> {
        (key % 5 > 0).then(|| format!("{} is the way", ["ship", "rail", "lorry"][key as usize % 3]))
    }

    fn comment(key: i32) -> String {
        format!("{key} is the key of this row")
    }

    fn rows(keys: std::ops::Range<i32>) -> Vec<ArrayRef> {
        vec![
            Arc::new(Int32Array::from_iter_values(keys.clone())),
            Arc::new(keys.clone().map(way).collect::<StringViewArray>()),
            Arc::new(StringViewArray::from_iter_values(keys.clone().map(comment))),
            Arc::new(StringViewArray::from_iter_values(keys.map(|key| format!("no {key}")))),
        ]
    }

    /// A table for such rows.
    fn table_of_rows(block_bytes: usize) -> Arc<Table> {
        let column = |(representation, nullable)| ColumnSpec { representation, nullable };
        let types = [
            (Representation::Int32, false),
            (Representation::Text, true),
            (Representation::Text, false),
            (Representation::Text, false),
        ];
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        Table::new(TableId(1), "t", types.map(column).into(), options)
    }

    fn at(time: u64, owner: u64) -> Snapshot {
        Snapshot { read_time: Time(time), owner: Stamp::transaction(owner) }
    }

    fn scan(table: &Arc<Table>, time: u64) -> ScanBatch {
        let scan = table.scan(at(time, 9), &ALL, false);
        let batch = scan.next_batch(&pin()).expect("there are rows");
        assert!(scan.next_batch(&pin()).is_none(), "they are in one block");
        batch
    }

    fn buffers(batch: &ScanBatch, column: usize) -> Vec<Buffer> {
        let buffers = batch.columns[column].as_string_view().data_buffers();
        buffers.iter().filter(|buffer| !buffer.is_empty()).cloned().collect()
    }

    #[test]
    fn columns_of_a_frozen_block_have_buffers_of_their_own_and_strings_still_share_their_bytes() {
        const ROWS: i32 = if cfg!(miri) { 100 } else { 1000 };
        let table = table_of_rows(TableOptions::default().block_bytes);
        for (time, keys) in [(1, 0..ROWS / 2), (2, ROWS / 2..ROWS)] {
            insert(&table, time, &rows(keys));
        }
        let is_right = |batch: &ScanBatch| {
            batch.columns.iter().zip(rows(0..ROWS)).all(|(found, expected)| **found == *expected)
        };
        let hot = scan(&table, 2);
        assert!(
            is_right(&hot) && buffers(&hot, 1).iter().map(Buffer::len).sum::<usize>() > 25 * ROWS as usize
        );
        let mut cooling = Vec::new();
        table.cool(&mut cooling);
        assert_eq!(table.freeze(BlockNumber(0), &pin()), Frozen::Yes);
        let frozen = scan(&table, 2);
        assert!(is_right(&frozen));
        let bytes = [1, 2, 3].map(|column| buffers(&frozen, column).iter().map(Buffer::len).sum::<usize>());
        // Three modes in each of two batches.
        assert_eq!(bytes, [2 * (15 + 15 + 16), (0..ROWS).map(|key| comment(key).len()).sum(), 0]);
        // Without versions and garbage nothing is gathered twice.
        let place = buffers(&frozen, 2)[0].as_ptr();
        table.blocks().get(BlockNumber(0)).unwrap().thaw();
        drop(frozen);
        table.cool(&mut cooling);
        assert_eq!(table.freeze(BlockNumber(0), &pin()), Frozen::Yes);
        assert_eq!(buffers(&scan(&table, 2), 2)[0].as_ptr(), place);
    }

    /// Freezes the first block of a table while a thread wants to write to it. If the writer `comes_late`,
    /// the strings have been examined by then, and are about to be gathered.
    fn freeze_beside_writer(table: &Arc<Table>, comes_late: bool) -> Frozen {
        let block = table.blocks().get(BlockNumber(0)).unwrap();
        table.cool(&mut Vec::new());
        // Gathering strings waits for this lock.
        let appender = comes_late.then(|| block.heap().appender());
        std::thread::scope(|scope| {
            let freezer = scope.spawn(|| table.freeze(BlockNumber(0), &pin()));
            while block.life.state() != BlockState::Freezing && !freezer.is_finished() {
                std::hint::spin_loop();
            }
            if comes_late {
                // Likely to be enough; if it is not, the freezer sees the writer even before.
                std::thread::sleep(Duration::from_millis(50));
                scope.spawn(|| block.thaw());
                while !block.is_wanted() {
                    std::thread::yield_now();
                }
                drop(appender);
            } else {
                block.thaw();
            }
            freezer.join().unwrap()
        })
    }

    /// A table with `count` rows, and with more garbage than strings, so that these are gathered.
    fn untidy(count: i32, block_bytes: usize) -> Arc<Table> {
        let table = table_of_rows(block_bytes);
        insert(&table, 1, &rows(0..count));
        assert_eq!(table.blocks().iter().count(), 1);
        table.blocks().get(BlockNumber(0)).unwrap().heap().store(&vec![0; 64 * count as usize]);
        table
    }

    #[test]
    #[cfg_attr(miri, ignore = "depends on the speed of threads")]
    fn a_writer_does_not_wait_until_all_strings_of_a_block_have_been_examined() {
        // The writer may be too late, and then finds a buffer begun, or the block frozen; but not each time.
        let gives_way = |_| {
            let table = untidy(200_000, 32 << 20);
            let heap = table.blocks().get(BlockNumber(0)).unwrap().heap();
            let before = heap.allocated_bytes();
            freeze_beside_writer(&table, false) == Frozen::Hot && heap.allocated_bytes() == before
        };
        assert!((0..100).any(gives_way));
    }

    #[test]
    fn a_writer_does_not_wait_until_the_strings_of_a_block_have_been_gathered() {
        let table = untidy(1000, TableOptions::default().block_bytes);
        let places = || buffers(&scan(&table, 2), 2).iter().map(|buffer| buffer.as_ptr()).collect::<Vec<_>>();
        let before = places();
        assert_eq!(freeze_beside_writer(&table, true), Frozen::Hot);
        assert_eq!(places(), before, "they are not moved");
        // No writer wants the block; otherwise they would not have been moved anyway.
        table.cool(&mut Vec::new());
        assert_eq!(table.freeze(BlockNumber(0), &pin()), Frozen::Yes);
        assert_ne!(places(), before);
    }

    #[test]
    fn a_writer_does_not_wait_until_the_zones_of_a_block_are_known() {
        let column = ColumnSpec { representation: Representation::Text, nullable: false };
        let table = Table::new(TableId(1), "t", vec![column], TableOptions::default());
        let short: ArrayRef = Arc::new(StringViewArray::from_iter_values(["short"; 100]));
        insert(&table, 1, &[short]);
        // The only long string has been deleted. So the freezer checks for the writer only when it has
        // gathered nothing.
        table.blocks().get(BlockNumber(0)).unwrap().heap().store(b"longer than a view can hold");
        assert_eq!(freeze_beside_writer(&table, true), Frozen::Hot);
        table.cool(&mut Vec::new());
        assert_eq!(table.freeze(BlockNumber(0), &pin()), Frozen::Yes);
    }

    /// A table with `columns` columns of strings, and rows with long strings in the first `long` of them.
    fn wide(columns: usize, long: usize) -> (Arc<Table>, Vec<ArrayRef>) {
        let column = ColumnSpec { representation: Representation::Text, nullable: false };
        let table = Table::new(TableId(1), "t", vec![column; columns], TableOptions::default());
        let string = |column: usize, row: usize| {
            let rest = if column < long { ", and more than lies in a view" } else { "" };
            format!("{row} of {column}{rest}")
        };
        let values = |column| (0..10).map(move |row| string(column, row));
        let column = |column| Arc::new(StringViewArray::from_iter_values(values(column))) as ArrayRef;
        (table, (0..columns).map(column).collect())
    }

    fn insert(table: &Arc<Table>, time: u64, rows: &[ArrayRef]) {
        let mut writes = WriteSet::new(Stamp::transaction(time), None);
        writes.touch(table);
        table.insert_batch(&mut writes, at(time - 1, time), rows, &pin()).unwrap();
        writes.stamp(Time(time));
        let mut garbage = Garbage::default();
        writes.retire_now(Time(time)).collect(&mut garbage, &pin());
        garbage.free(&pin());
    }

    #[test]
    fn tables_with_many_columns_of_strings_can_be_written_to_after_they_were_frozen_and_become_compact() {
        let cases = [(3, 3), (17, 17), (32, 32), (56, 56), (40, 8), (50, 17), (60, 2)];
        for (columns, long) in cases.into_iter().take(if cfg!(miri) { 2 } else { cases.len() }) {
            let (table, rows) = wide(columns, long);
            let mut time = 0;
            for _ in 0..3 {
                for _ in 0..if cfg!(miri) { 2 } else { 60 } {
                    time += 1;
                    insert(&table, time, &rows);
                }
                let mut cooling = Vec::new();
                table.cool(&mut cooling);
                for block in cooling {
                    assert_eq!(table.freeze(block, &pin()), Frozen::Yes, "{columns} columns");
                    let left = table.blocks().get(block).unwrap().heap().buffers_left();
                    assert!(left >= super::MANY_BUFFERS / 2, "{left} left, {columns} columns");
                }
                // Numbers become free once all guards of now are released, including those of other tests.
                while table.blocks().iter().any(|block| block.heap().has_leaving()) {
                    pin().flush();
                    firn_base::thread::yield_now();
                }
            }
            let blocks = table.blocks().iter().count();
            assert_eq!(table.compact(Duration::ZERO, 1, &|| true), blocks, "{columns} columns");
        }
    }
}
