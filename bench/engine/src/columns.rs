//! Rows into Arrow columns, for bulk loading: cells are pushed one after another in the order of
//! the table's columns, and become arrays of the types that `Transaction::insert_batch` takes.
//! Invariant: between rows, every column has the same length.

use crate::schema::TableSchema;
use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int16Array, Int32Array, Int64Array};
use arrow_array::{StringViewArray, TimestampMicrosecondArray};
use firn_base::SqlType;
use firn_base::sync::Arc;

enum Column {
    Int16(Vec<i16>),
    Int32(Vec<Option<i32>>),
    Int64(Vec<i64>),
    Decimal(Vec<i128>, u8, i8),
    Text(StringViewBuilder),
    Timestamp(Vec<Option<i64>>),
    Date(Vec<i32>),
}

/// Columns that are built.
pub struct Columns {
    columns: Vec<Column>,
    /// The column of the next cell.
    next: usize,
    rows: usize,
}

impl Columns {
    /// No rows yet. Panics on types that no workload of ours uses.
    pub fn new(schema: &TableSchema) -> Columns {
        let columns = schema
            .columns
            .iter()
            .map(|column| match column.ty {
                SqlType::SmallInt => Column::Int16(Vec::new()),
                SqlType::Integer => Column::Int32(Vec::new()),
                SqlType::BigInt => Column::Int64(Vec::new()),
                SqlType::Numeric { precision, scale } => Column::Decimal(Vec::new(), precision, scale as i8),
                SqlType::Timestamp => Column::Timestamp(Vec::new()),
                SqlType::Date => Column::Date(Vec::new()),
                ty if ty.is_string() => Column::Text(StringViewBuilder::new()),
                ty => panic!("no workload has columns of type {ty}"),
            })
            .collect();
        Columns { columns, next: 0, rows: 0 }
    }

    /// How many whole rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// An integer of any width, or the unscaled digits of a numeric.
    pub fn number(&mut self, value: i64) -> &mut Columns {
        match self.turn() {
            Column::Int16(values) => values.push(i16::try_from(value).expect("a smallint")),
            Column::Int32(values) => values.push(Some(i32::try_from(value).expect("an integer"))),
            Column::Int64(values) => values.push(value),
            Column::Decimal(values, ..) => values.push(i128::from(value)),
            _ => panic!("the next column holds no numbers"),
        }
        self
    }

    /// A string.
    pub fn text(&mut self, value: &str) -> &mut Columns {
        let Column::Text(values) = self.turn() else { panic!("the next column holds no strings") };
        values.append_value(value);
        self
    }

    /// A timestamp in microseconds.
    pub fn timestamp(&mut self, micros: i64) -> &mut Columns {
        let Column::Timestamp(values) = self.turn() else { panic!("the next column holds no timestamps") };
        values.push(Some(micros));
        self
    }

    /// A date in days.
    pub fn date(&mut self, days: i32) -> &mut Columns {
        let Column::Date(values) = self.turn() else { panic!("the next column holds no dates") };
        values.push(days);
        self
    }

    /// NULL.
    pub fn null(&mut self) -> &mut Columns {
        match self.turn() {
            Column::Int32(values) => values.push(None),
            Column::Timestamp(values) => values.push(None),
            _ => panic!("no workload has NULLs in the next column"),
        }
        self
    }

    /// The arrays, one per column.
    pub fn finish(self) -> Vec<ArrayRef> {
        assert_eq!(self.next, 0, "the last row is incomplete");
        self.columns
            .into_iter()
            .map(|column| -> ArrayRef {
                match column {
                    Column::Int16(values) => Arc::new(Int16Array::from(values)),
                    Column::Int32(values) => Arc::new(Int32Array::from(values)),
                    Column::Int64(values) => Arc::new(Int64Array::from(values)),
                    Column::Decimal(values, precision, scale) => Arc::new(
                        Decimal128Array::from(values)
                            .with_precision_and_scale(precision, scale)
                            .expect("SQL types keep to Arrow's bounds"),
                    ),
                    Column::Text(mut values) => Arc::<StringViewArray>::new(values.finish()),
                    Column::Timestamp(values) => Arc::new(TimestampMicrosecondArray::from(values)),
                    Column::Date(values) => Arc::new(Date32Array::from(values)),
                }
            })
            .collect()
    }

    /// The column of the next cell; advances to the one after it.
    fn turn(&mut self) -> &mut Column {
        let turn = self.next;
        self.next += 1;
        if self.next == self.columns.len() {
            self.next = 0;
            self.rows += 1;
        }
        &mut self.columns[turn]
    }
}
