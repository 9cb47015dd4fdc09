//! Arrow columns seen as rows of cells, and copied into blocks column by column.

use crate::block::Block;
use crate::column::ColumnSpec;
use crate::heap::INLINE_BYTES;
use crate::index::{Packed, append_packed};
use crate::table::Rows;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, UInt32Type,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, StringViewArray};
use arrow_buffer::{Buffer, IntervalMonthDayNano, NullBuffer};
use firn_base::sync::Ordering::Relaxed;
use firn_base::{Cell, ColumnId, Representation, Slot};
use firn_log::CellWriter;
use std::ops::Range;

/// The bytes of the strings that views refer to. The view of a NULL may have any length, hence the limit.
fn long_bytes(views: &[u128], buffers: &[Buffer]) -> usize {
    let lengths = views.iter().map(|view| *view as u32 as usize).filter(|length| *length > INLINE_BYTES);
    lengths.sum::<usize>().min(buffers.iter().map(Buffer::len).sum())
}

/// Columns of one length, of the types that [`crate::arrow::data_type`] returns.
pub(crate) struct BatchRows<'a> {
    columns: Vec<Column<'a>>,
    rows: usize,
}

struct Column<'a> {
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
}

enum Values<'a> {
    Boolean(&'a BooleanArray),
    Two(&'a [i16]),
    Four(&'a [i32]),
    Oid(&'a [u32]),
    Real(&'a [f32]),
    Eight(&'a [i64]),
    Double(&'a [f64]),
    NarrowDecimal(&'a [i128]),
    WideDecimal(&'a [i128]),
    Interval(&'a [IntervalMonthDayNano]),
    Uuid(&'a FixedSizeBinaryArray),
    Text(&'a StringViewArray),
    Bytes(&'a BinaryViewArray),
}

impl<'a> BatchRows<'a> {
    /// Panics if the columns are not of the table's types, or differ in length.
    pub fn new(columns: &'a [ArrayRef], specs: &[ColumnSpec]) -> BatchRows<'a> {
        assert_eq!(columns.len(), specs.len());
        let rows = columns.first().map_or(0, |column| column.len());
        let columns = columns
            .iter()
            .zip(specs)
            .map(|(array, spec)| {
                assert_eq!(array.len(), rows);
                let values = match spec.representation {
                    Representation::Boolean => Values::Boolean(array.as_boolean()),
                    Representation::Int16 => Values::Two(array.as_primitive::<Int16Type>().values()),
                    Representation::Int32 => Values::Four(array.as_primitive::<Int32Type>().values()),
                    Representation::Date => Values::Four(array.as_primitive::<Date32Type>().values()),
                    Representation::Float32 => Values::Real(array.as_primitive::<Float32Type>().values()),
                    Representation::Float64 => Values::Double(array.as_primitive::<Float64Type>().values()),
                    Representation::Oid => Values::Oid(array.as_primitive::<UInt32Type>().values()),
                    Representation::Int64 => Values::Eight(array.as_primitive::<Int64Type>().values()),
                    Representation::Time => {
                        Values::Eight(array.as_primitive::<Time64MicrosecondType>().values())
                    }
                    Representation::Timestamp | Representation::TimestampTz => {
                        Values::Eight(array.as_primitive::<TimestampMicrosecondType>().values())
                    }
                    Representation::Decimal { precision, .. } => {
                        let values = array.as_primitive::<Decimal128Type>().values();
                        if precision <= 18 {
                            Values::NarrowDecimal(values)
                        } else {
                            Values::WideDecimal(values)
                        }
                    }
                    Representation::Interval => {
                        Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values())
                    }
                    Representation::Uuid => Values::Uuid(array.as_fixed_size_binary()),
                    Representation::Bytes
                    | Representation::Numeric
                    | Representation::List(_)
                    | Representation::Record => Values::Bytes(array.as_binary_view()),
                    Representation::Text | Representation::PaddedText => Values::Text(array.as_string_view()),
                };
                let nulls = array.nulls();
                assert!(spec.nullable || array.null_count() == 0, "NULL in a column that is not nullable");
                Column { values, nulls }
            })
            .collect();
        BatchRows { columns, rows }
    }
}

impl<'a> Rows<'a> for BatchRows<'a> {
    fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    fn cell(&self, row: usize, column: usize) -> Cell<'a> {
        let column = &self.columns[column];
        if column.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Cell::Null;
        }
        match &column.values {
            Values::Boolean(array) => Cell::boolean(array.value(row)),
            Values::Two(values) => Cell::i16(values[row]),
            Values::Four(values) => Cell::i32(values[row]),
            Values::Oid(values) => Cell::Word(u64::from(values[row])),
            Values::Real(values) => Cell::f32(values[row]),
            Values::Eight(values) => Cell::i64(values[row]),
            Values::Double(values) => Cell::f64(values[row]),
            Values::NarrowDecimal(values) => Cell::i64(values[row] as i64),
            Values::WideDecimal(values) => Cell::i128(values[row]),
            Values::Interval(values) => {
                let value = values[row];
                Cell::Wide([
                    u64::from(value.months as u32) | u64::from(value.days as u32) << 32,
                    value.nanoseconds as u64,
                ])
            }
            Values::Uuid(array) => {
                let (low, high) = array.value(row).split_at(8);
                Cell::Wide([
                    u64::from_le_bytes(low.try_into().expect("8 bytes")),
                    u64::from_le_bytes(high.try_into().expect("8 bytes")),
                ])
            }
            Values::Text(array) => Cell::Bytes(array.value(row).as_bytes()),
            Values::Bytes(array) => Cell::Bytes(array.value(row)),
        }
    }

    fn append_to_keys(&self, rows: Range<usize>, column: usize, bytes: usize, keys: &mut [Packed]) {
        fn append<T: Copy>(values: &[T], bytes: usize, keys: &mut [Packed], word: impl Fn(T) -> u64) {
            keys.iter_mut().zip(values).for_each(|(key, value)| append_packed(key, word(*value), bytes));
        }
        match &self.columns[column].values {
            Values::Two(values) => append(&values[rows], 2, keys, |value| value as u64),
            Values::Four(values) => append(&values[rows], 4, keys, |value| value as u64),
            Values::Eight(values) => append(&values[rows], 8, keys, |value| value as u64),
            Values::NarrowDecimal(values) => append(&values[rows], bytes, keys, |value| value as u64),
            _ => panic!("plain keys are numbers"),
        }
    }

    fn log(&self, rows: Range<usize>, position: usize, cells: &mut CellWriter<'_>) {
        let column = &self.columns[position];
        match (&column.values, column.nulls) {
            // As below.
            (Values::Four(values), None) => {
                cells.extend_words(values[rows].iter().map(|value| u64::from(*value as u32)));
            }
            (Values::Eight(values), None) => {
                cells.extend_words(values[rows].iter().map(|value| *value as u64))
            }
            (Values::NarrowDecimal(values), None) => {
                cells.extend_words(values[rows].iter().map(|value| *value as u64));
            }
            (Values::Text(array), None) => {
                cells.extend_strings(rows.map(|row| array.value(row).as_bytes()));
            }
            _ => cells.extend(rows.map(|row| self.cell(row, position))),
        }
    }

    fn store(&self, from: usize, count: u32, block: &Block, first: Slot) {
        let range = from..from + count as usize;
        for (position, column) in self.columns.iter().enumerate() {
            let id = ColumnId(position as u16);
            let nulls = column.nulls.map(|nulls| nulls.slice(from, range.len()));
            let nulls = nulls.as_ref();
            // The widths that most columns have, in plain loops.
            match &column.values {
                Values::Four(values) => {
                    let slots = &block.u32s(id)[first.index()..];
                    put(&values[range.clone()], nulls, |at, value| slots[at].store(value as u32, Relaxed));
                    block.store_validities(first, count, id, nulls);
                }
                Values::Eight(values) => {
                    let slots = &block.u64s(id)[first.index()..];
                    put(&values[range.clone()], nulls, |at, value| slots[at].store(value as u64, Relaxed));
                    block.store_validities(first, count, id, nulls);
                }
                Values::NarrowDecimal(values) => {
                    let slots = &block.u64s(id)[first.index()..];
                    put(&values[range.clone()], nulls, |at, value| slots[at].store(value as u64, Relaxed));
                    block.store_validities(first, count, id, nulls);
                }
                Values::Text(array) => {
                    let views = &array.views()[range.clone()];
                    block.store_views(first, id, views, array.data_buffers(), nulls);
                }
                Values::Bytes(array) => {
                    let views = &array.views()[range.clone()];
                    block.store_views(first, id, views, array.data_buffers(), nulls);
                }
                _ => {
                    let cells = range.clone().map(|row| self.cell(row, position));
                    block.store_column(first, count, id, cells);
                }
            }
        }
    }
}

/// Passes values with their positions to `store`; a NULL is passed as zero.
#[inline(always)]
fn put<T: Copy + Default>(values: &[T], nulls: Option<&NullBuffer>, store: impl Fn(usize, T)) {
    match nulls {
        None => values.iter().enumerate().for_each(|(at, value)| store(at, *value)),
        Some(nulls) => {
            let valid = values.iter().zip(nulls);
            let value = |(value, is_valid): (&T, bool)| if is_valid { *value } else { T::default() };
            valid.map(value).enumerate().for_each(|(at, value)| store(at, value));
        }
    }
}

impl BatchRows<'_> {
    /// The bytes that the strings of some rows take in a block's heap.
    pub fn string_bytes(&self, from: usize, count: usize) -> usize {
        let bytes = |column: &Column<'_>| match &column.values {
            Values::Text(array) => long_bytes(&array.views()[from..][..count], array.data_buffers()),
            Values::Bytes(array) => long_bytes(&array.views()[from..][..count], array.data_buffers()),
            _ => 0,
        };
        self.columns.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TableOptions;
    use crate::{Table, WriteSet, pin};
    use arrow_array::builder::StringViewBuilder;
    use arrow_array::cast::AsArray;
    use firn_base::random::Random;
    use firn_base::sync::Arc;
    use firn_base::{BlockNumber, Snapshot, Stamp, TableId, Time, Value};

    const TYPES: [Representation; 7] = [
        Representation::Boolean,
        Representation::Int16,
        Representation::Int32,
        Representation::Int64,
        Representation::Decimal { precision: 12, scale: 2 },
        Representation::Text,
        Representation::Bytes,
    ];

    /// Strings that often repeat, of every length around the limit of inline views.
    fn any_string(random: &mut Random) -> String {
        let length = random.uniform(0, 40) as usize;
        let first = char::from(b'a' + random.uniform(0, 2) as u8);
        std::iter::repeat_n(first, length).chain([char::from(b'0' + random.uniform(0, 1) as u8)]).collect()
    }

    fn any_value(representation: Representation, random: &mut Random) -> Value {
        let number = random.uniform(-30_000, 30_000);
        match representation {
            Representation::Boolean => Value::Boolean(number > 0),
            Representation::Int16 => Value::SmallInt(number as i16),
            Representation::Int32 => Value::Integer(number as i32),
            Representation::Int64 => Value::BigInt(number),
            Representation::Text => Value::Text(any_string(random)),
            Representation::Bytes => Value::Bytea(any_string(random).into_bytes()),
            _ => Value::Numeric { unscaled: number.into(), scale: 2 },
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot { read_time: Time(1), owner: Stamp::transaction(1) }
    }

    /// A table with the write set that its rows' versions refer to.
    struct Bench(Arc<Table>, WriteSet);

    impl Bench {
        fn new(specs: Vec<ColumnSpec>, block_bytes: usize) -> Bench {
            let options = TableOptions { block_bytes, ..TableOptions::default() };
            Bench(Table::new(TableId(1), "t", specs, options), WriteSet::new(snapshot().owner, None))
        }

        fn insert(&mut self, columns: &[ArrayRef]) {
            self.0.insert_batch(&mut self.1, snapshot(), columns, &pin()).unwrap();
        }
    }

    #[test]
    fn what_is_stored_of_a_batch_is_what_it_holds() {
        let seed = Random::from_entropy().next_u64();
        println!("seed {seed}");
        let mut random = Random::seeded(seed);
        for _ in 0..if cfg!(miri) { 2 } else { 100 } {
            let specs: Vec<ColumnSpec> = [false, true]
                .iter()
                .flat_map(|&nullable| TYPES.map(|representation| ColumnSpec { representation, nullable }))
                .collect();
            let mut bench = Bench::new(specs.clone(), 1);
            let mut stored: Vec<Vec<Value>> = vec![Vec::new(); specs.len()];
            for _ in 0..random.uniform(1, 4) {
                let rows = random.uniform(1, if cfg!(miri) { 30 } else { 700 });
                let column = |spec: &ColumnSpec, random: &mut Random| -> Vec<Value> {
                    let nulls = if spec.nullable { random.uniform(0, 3) } else { 0 };
                    let is_null = |random: &mut Random| random.uniform(0, 3) < nulls;
                    (0..rows)
                        .map(|_| {
                            if is_null(random) { Value::Null } else { any_value(spec.representation, random) }
                        })
                        .collect()
                };
                let values: Vec<Vec<Value>> = specs.iter().map(|spec| column(spec, &mut random)).collect();
                let arrays = specs.iter().zip(&values);
                let arrays: Vec<ArrayRef> = arrays
                    .map(|(spec, values)| crate::arrow::values_to_array(values, spec.representation))
                    .collect();
                // Also when the array has an offset.
                let from = random.uniform(0, rows - 1) as usize;
                let count = rows as usize - from;
                let arrays: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(from, count)).collect();
                bench.insert(&arrays);
                for (stored, values) in stored.iter_mut().zip(&values) {
                    stored.extend_from_slice(&values[from..]);
                }
            }
            let columns: Vec<ColumnId> = (0..specs.len() as u16).map(ColumnId).collect();
            let scan = bench.0.scan(snapshot(), &columns, false);
            let mut at = 0;
            while let Some(batch) = scan.next_batch(&pin()) {
                for row in 0..batch.columns[0].len() {
                    for ((array, spec), stored) in batch.columns.iter().zip(&specs).zip(&stored) {
                        assert_eq!(
                            crate::arrow::array_value(array, row, spec.representation),
                            stored[at],
                            "{spec:?} {at}"
                        );
                    }
                    at += 1;
                }
            }
            assert_eq!(at, stored[0].len());
        }
    }

    #[test]
    fn strings_that_repeat_are_stored_once_and_what_is_behind_short_ones_is_not_kept() {
        let specs = vec![ColumnSpec { representation: Representation::Text, nullable: true }];
        let mut bench = Bench::new(specs, 1 << 20);
        let mut builder = StringViewBuilder::new();
        for row in 0..900 {
            builder.append_value(["DELIVER IN PERSON", "TAKE BACK RETURN", "DELIVER AT NIGHT!"][row % 3]);
        }
        bench.insert(&[Arc::new(builder.finish())]);
        let block = bench.0.blocks().get(BlockNumber(0)).unwrap();
        assert_eq!(block.heap().appended_bytes(), 17 + 16 + 17);

        let untidy = u128::from_le_bytes(*b"\x02\0\0\0ab and more.");
        // SAFETY: a short string needs no buffer. The bytes after it are what is tested.
        let array = unsafe { StringViewArray::new_unchecked(vec![untidy].into(), Vec::new(), None) };
        bench.insert(&[Arc::new(array)]);
        let scan = bench.0.scan(snapshot(), &[ColumnId(0)], false);
        let mut last = None;
        while let Some(batch) = scan.next_batch(&pin()) {
            last = batch.columns[0].as_string_view().views().last().copied();
        }
        assert_eq!(last, Some(u128::from_le_bytes(*b"\x02\0\0\0ab\0\0\0\0\0\0\0\0\0\0")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many rows")]
    fn a_block_has_one_buffer_for_as_many_strings_as_the_one_before() {
        let specs = vec![ColumnSpec { representation: Representation::Text, nullable: false }];
        let mut bench = Bench::new(specs, 1 << 16);
        let strings: Vec<Value> =
            (0..20_000).map(|row| Value::Text(format!("string of row {row:>8}"))).collect();
        bench.insert(&[crate::arrow::values_to_array(&strings, Representation::Text)]);
        let blocks: Vec<_> = bench.0.blocks().iter().collect();
        assert!(blocks.len() > 3);
        for block in &blocks[1..blocks.len() - 1] {
            let (appended, allocated) = (block.heap().appended_bytes(), block.heap().allocated_bytes());
            assert!(allocated <= appended + appended / 16, "{appended} of {allocated}");
        }
    }
}
