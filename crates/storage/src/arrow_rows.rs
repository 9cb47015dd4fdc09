//! Arrow columns seen as rows of cells, and copied into blocks column by column.

use crate::block::Block;
use crate::heap::INLINE_BYTES;
use crate::table::{ColumnSpec, Rows};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, StringViewArray};
use arrow_buffer::{Buffer, IntervalMonthDayNano, NullBuffer};
use firn_base::{Cell, ColumnId, Slot, SqlType};
use firn_log::CellWriter;
use std::ops::Range;

/// The bytes of strings that views lead to. A view of a NULL may say anything, hence no more than there are.
fn long_bytes(views: &[u128], buffers: &[Buffer]) -> usize {
    let lengths = views.iter().map(|view| *view as u32 as usize).filter(|length| *length > INLINE_BYTES);
    lengths.sum::<usize>().min(buffers.iter().map(Buffer::len).sum())
}

/// Columns of one length, of the types that [`crate::arrow::data_type`] gives.
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
    /// Panics if the columns are not of the table's types or differ in length.
    pub fn new(columns: &'a [ArrayRef], specs: &[ColumnSpec]) -> BatchRows<'a> {
        assert_eq!(columns.len(), specs.len());
        let rows = columns.first().map_or(0, |column| column.len());
        let columns = columns
            .iter()
            .zip(specs)
            .map(|(array, spec)| {
                assert_eq!(array.len(), rows);
                let values = match spec.ty {
                    SqlType::Boolean => Values::Boolean(array.as_boolean()),
                    SqlType::SmallInt => Values::Two(array.as_primitive::<Int16Type>().values()),
                    SqlType::Integer => Values::Four(array.as_primitive::<Int32Type>().values()),
                    SqlType::Date => Values::Four(array.as_primitive::<Date32Type>().values()),
                    SqlType::Real => Values::Real(array.as_primitive::<Float32Type>().values()),
                    SqlType::Double => Values::Double(array.as_primitive::<Float64Type>().values()),
                    SqlType::BigInt => Values::Eight(array.as_primitive::<Int64Type>().values()),
                    SqlType::Time => Values::Eight(array.as_primitive::<Time64MicrosecondType>().values()),
                    SqlType::Timestamp | SqlType::TimestampTz => {
                        Values::Eight(array.as_primitive::<TimestampMicrosecondType>().values())
                    }
                    SqlType::Numeric { precision, .. } => {
                        let values = array.as_primitive::<Decimal128Type>().values();
                        if precision <= 18 {
                            Values::NarrowDecimal(values)
                        } else {
                            Values::WideDecimal(values)
                        }
                    }
                    SqlType::Interval => {
                        Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values())
                    }
                    SqlType::Uuid => Values::Uuid(array.as_fixed_size_binary()),
                    SqlType::Bytea => Values::Bytes(array.as_binary_view()),
                    SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
                        Values::Text(array.as_string_view())
                    }
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
        for (position, column) in self.columns.iter().enumerate() {
            let id = ColumnId(position as u16);
            match (&column.values, column.nulls) {
                // The widths that most columns have, without NULLs, in plain loops.
                (Values::Four(values), None) => {
                    for (slot, value) in
                        block.u32s(id)[first.index()..].iter().zip(&values[from..][..count as usize])
                    {
                        slot.store(*value as u32, firn_base::sync::Ordering::Relaxed);
                    }
                    self.mark_valid(block, id, first, count);
                }
                (Values::Eight(values), None) => {
                    for (slot, value) in
                        block.u64s(id)[first.index()..].iter().zip(&values[from..][..count as usize])
                    {
                        slot.store(*value as u64, firn_base::sync::Ordering::Relaxed);
                    }
                    self.mark_valid(block, id, first, count);
                }
                (Values::NarrowDecimal(values), None) => {
                    for (slot, value) in
                        block.u64s(id)[first.index()..].iter().zip(&values[from..][..count as usize])
                    {
                        slot.store(*value as u64, firn_base::sync::Ordering::Relaxed);
                    }
                    self.mark_valid(block, id, first, count);
                }
                (Values::Text(array), None) => {
                    let strings = (from..from + count as usize).map(|row| Some(array.value(row).as_bytes()));
                    block.store_strings_column(first, count, id, strings);
                }
                _ => {
                    let cells = (from..from + count as usize).map(|row| self.cell(row, position));
                    block.store_column(first, count, id, cells);
                }
            }
        }
    }
}

impl BatchRows<'_> {
    /// The bytes of strings that some rows put into a block's heap.
    pub fn string_bytes(&self, from: usize, count: usize) -> usize {
        let bytes = |column: &Column<'_>| match &column.values {
            Values::Text(array) => long_bytes(&array.views()[from..][..count], array.data_buffers()),
            Values::Bytes(array) => long_bytes(&array.views()[from..][..count], array.data_buffers()),
            _ => 0,
        };
        self.columns.iter().map(bytes).sum()
    }

    fn mark_valid(&self, block: &Block, column: ColumnId, first: Slot, count: u32) {
        if let Some(validity) = block.validity(column) {
            crate::block::set_bits(validity, first, count);
        }
    }
}
