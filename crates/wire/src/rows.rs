//! Rows on their way out: from row-major values, or from Arrow batches read column by column, into
//! DataRow messages.
//!
//! ```text
//! D  length:i32  columns:i16  then per column  length:i32 (-1 for NULL)  bytes
//! ```

use std::io;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use firn_base::sync::Arc;
use firn_base::{
    Error, Interval, Representation, Result, SqlType, TimeZoneSetting, Type, TypeId, Value, binary, text,
};
use firn_session::{Column, CommandTag, Datum, ResultChunk, RowChunk, Rows, arrow};

use crate::array::Arrays;
use crate::client::{Fault, Sink};
use crate::decode::{Format, format_of};
use crate::encode::{self, Output};

/// A result of which some rows have been sent.
pub(crate) struct Cursor {
    rows: Rows,
    columns: Arc<[Column]>,
    /// What was drawn from `rows` last, and how many of its rows have been sent.
    chunk: Option<(RowChunk, usize)>,
    writer: CellWriter,
}

/// How far sending got.
pub(crate) enum Progress {
    /// All rows have been sent.
    Finished(CommandTag),
    /// As many as were asked for have been sent.
    Suspended,
}

impl Cursor {
    pub(crate) fn new(rows: Rows, zone: TimeZoneSetting) -> Cursor {
        let columns = rows.columns().clone();
        Cursor { rows, columns, chunk: None, writer: CellWriter::new(zone) }
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Sends the next rows, at most `limit` unless that is 0.
    pub(crate) fn send(
        &mut self,
        limit: u32,
        formats: &[Format],
        sink: &mut Sink,
    ) -> std::result::Result<Progress, Fault> {
        let mut left = if limit == 0 { usize::MAX } else { limit as usize };
        let mut sent_now = 0;
        loop {
            let (chunk, sent) = match &mut self.chunk {
                Some(chunk) => chunk,
                None => match self.rows.next_chunk()? {
                    Some(chunk) => self.chunk.insert((chunk, 0)),
                    None => break,
                },
            };
            let rows = chunk.rows(self.columns.len());
            let end = rows.min(sent.saturating_add(left));
            match chunk {
                RowChunk::Values(values) => {
                    let width = self.columns.len();
                    let (values, rows) = (&values[*sent * width..end * width], end - *sent);
                    send_values(values, rows, &self.columns, formats, &mut self.writer, sink)?;
                }
                RowChunk::Batch(batch) => {
                    send_batch(batch, *sent..end, &self.columns, formats, &mut self.writer, sink)?;
                }
                RowChunk::Vectors(chunk) => {
                    send_vectors(chunk, *sent..end, &self.columns, formats, &mut self.writer, sink)?;
                }
            }
            left -= end - *sent;
            sent_now += (end - *sent) as u64;
            if end == rows {
                self.chunk = None;
            } else {
                *sent = end;
            }
            if left == 0 {
                return Ok(Progress::Suspended);
            }
        }
        let tag = self.rows.tag();
        // A SELECT that was suspended counts only what was sent since, as PostgreSQL does.
        let rows = if tag.verb == "SELECT" { Some(sent_now) } else { tag.rows };
        Ok(Progress::Finished(CommandTag { rows, ..tag }))
    }
}

/// Sends rows of values that lie row by row.
pub(crate) fn send_values(
    values: &[Value],
    rows: usize,
    columns: &[Column],
    formats: &[Format],
    writer: &mut CellWriter,
    sink: &mut Sink,
) -> io::Result<()> {
    let width = columns.len();
    for row in 0..rows {
        encode::message(&mut sink.output, b'D', |output| {
            output.extend_from_slice(&(width as u16).to_be_bytes());
            let row = &values[row * width..][..width];
            for (index, (value, column)) in row.iter().zip(columns).enumerate() {
                writer.value(value, column.ty, format_of(formats, index), output);
            }
        });
        sink.flush_if_large()?;
    }
    Ok(())
}

fn send_batch(
    batch: &RecordBatch,
    rows: std::ops::Range<usize>,
    columns: &[Column],
    formats: &[Format],
    writer: &mut CellWriter,
    sink: &mut Sink,
) -> std::result::Result<(), Fault> {
    let cells = batch
        .columns()
        .iter()
        .zip(columns)
        .map(|(array, column)| match column.element {
            Some(element) => Arrays::new(array, element, rows.clone()).map(Cells::Arrays),
            None => Reader::new(array, column.ty).map(Cells::Single),
        })
        .collect::<Result<Vec<_>>>()?;
    for row in rows {
        encode::message(&mut sink.output, b'D', |output| {
            output.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (index, cells) in cells.iter().enumerate() {
                let format = format_of(formats, index);
                match cells {
                    Cells::Single(reader) => reader.write(row, format, writer, output),
                    Cells::Arrays(arrays) => arrays.write(row, format, writer, output),
                }
            }
        });
        sink.flush_if_large()?;
    }
    Ok(())
}

fn send_vectors(
    chunk: &ResultChunk,
    rows: std::ops::Range<usize>,
    columns: &[Column],
    formats: &[Format],
    writer: &mut CellWriter,
    sink: &mut Sink,
) -> std::result::Result<(), Fault> {
    for (index, column) in columns.iter().enumerate() {
        if format_of(formats, index) == Format::Binary && has_records(column.declared) {
            let error = Error::unsupported(format_args!("type {} in binary format", column.declared));
            return Err(error.with_hint("Ask for the column in text format.").into());
        }
    }
    for row in rows {
        encode::message(&mut sink.output, b'D', |output| {
            output.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (index, (vector, column)) in chunk.values.vectors().iter().zip(columns).enumerate() {
                let format = format_of(formats, index);
                let vector = chunk.text(index).filter(|_| format == Format::Text).unwrap_or(vector);
                writer.datum(vector.datum(row), column.declared, format, output);
            }
        });
        sink.flush_if_large()?;
    }
    Ok(())
}

/// Whether values of a type are records, or arrays of them.
fn has_records(ty: Type) -> bool {
    match ty.element() {
        Some(element) => has_records(element),
        None => ty.representation() == Some(Representation::Record),
    }
}

/// The cells of a column, ready to be written.
enum Cells {
    Single(Reader),
    Arrays(Arrays),
}

/// Writes single cells, each with its length.
pub(crate) struct CellWriter {
    zone: TimeZoneSetting,
    /// What the text of one cell is written into before it is copied out.
    scratch: String,
}

/// The length of a cell that is NULL.
pub(crate) const NULL: [u8; 4] = (-1i32).to_be_bytes();

impl CellWriter {
    pub(crate) fn new(zone: TimeZoneSetting) -> CellWriter {
        CellWriter { zone, scratch: String::new() }
    }

    /// Shows moments in this zone from now on.
    pub(crate) fn set_zone(&mut self, zone: TimeZoneSetting) {
        self.zone = zone;
    }

    #[inline]
    fn value(&mut self, value: &Value, ty: SqlType, format: Format, output: &mut Output) {
        match (value, format) {
            (Value::Null, _) => output.extend_from_slice(&NULL),
            (Value::Text(text), _) => write_bytes(text.as_bytes(), output),
            (value, Format::Binary) => {
                encode::length_prefixed(output, 0, |output| binary::encode(value, ty, output));
            }
            (Value::SmallInt(number), Format::Text) => write_integer(*number, output),
            (Value::Integer(number), Format::Text) => write_integer(*number, output),
            (Value::BigInt(number), Format::Text) => write_integer(*number, output),
            (value, Format::Text) => {
                self.scratch.clear();
                text::write(value, ty, &self.zone, &mut self.scratch);
                write_bytes(self.scratch.as_bytes(), output);
            }
        }
    }

    #[inline]
    fn datum(&mut self, datum: Datum<'_>, ty: Type, format: Format, output: &mut Output) {
        match (datum, format) {
            (Datum::Null, _) => output.extend_from_slice(&NULL),
            (Datum::Text(text), _) => write_bytes(text.as_bytes(), output),
            (Datum::Int16(number), Format::Text) => write_integer(number, output),
            (Datum::Int64(number), Format::Text) if ty.id == TypeId::INT8 => write_integer(number, output),
            (Datum::Int32(number), Format::Text) if ty.id == TypeId::INT4 => write_integer(number, output),
            (Datum::Bytes(bytes), format) => self.bytea(bytes, format, output),
            (datum, Format::Binary) => {
                let value = datum.to_value(ty);
                encode::length_prefixed(output, 0, |output| binary::encode_any(&value, ty, output));
            }
            (datum, Format::Text) => {
                self.scratch.clear();
                text::write_any(&datum.to_value(ty), ty, &self.zone, &mut self.scratch);
                write_bytes(self.scratch.as_bytes(), output);
            }
        }
    }

    fn bytea(&mut self, bytes: &[u8], format: Format, output: &mut Output) {
        match format {
            Format::Binary => write_bytes(bytes, output),
            Format::Text => {
                self.scratch.clear();
                text::write_bytea(bytes, &mut self.scratch);
                write_bytes(self.scratch.as_bytes(), output);
            }
        }
    }
}

#[inline]
fn write_bytes(bytes: &[u8], output: &mut Output) {
    let length = i32::try_from(bytes.len()).expect("cells stay below 2 GiB");
    output.reserve(4 + bytes.len());
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(bytes);
}

fn write_integer(number: impl itoa::Integer, output: &mut Output) {
    write_bytes(itoa::Buffer::new().format(number).as_bytes(), output);
}

/// A column in the Arrow type that its SQL type has here, cast if a function of the engine chose
/// another one.
fn as_sent(array: &ArrayRef, ty: SqlType) -> Result<ArrayRef> {
    let wanted = arrow_type(ty);
    let found = array.data_type();
    let same = match (found, &wanted) {
        // The zone is always UTC inside, whatever it is called.
        (DataType::Timestamp(found, _), DataType::Timestamp(wanted, _)) => found == wanted,
        (found, wanted) => found == wanted,
    };
    if same {
        return Ok(array.clone());
    }
    arrow::converted(array, &wanted)
}

fn arrow_type(ty: SqlType) -> DataType {
    match ty {
        SqlType::Boolean => DataType::Boolean,
        SqlType::SmallInt => DataType::Int16,
        SqlType::Integer => DataType::Int32,
        SqlType::BigInt => DataType::Int64,
        SqlType::Real => DataType::Float32,
        SqlType::Double => DataType::Float64,
        SqlType::Numeric { precision, scale } => DataType::Decimal128(precision, scale as i8),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => DataType::Utf8View,
        SqlType::Bytea => DataType::BinaryView,
        SqlType::Date => DataType::Date32,
        SqlType::Time => DataType::Time64(TimeUnit::Microsecond),
        SqlType::Timestamp | SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Uuid => DataType::FixedSizeBinary(16),
    }
}

/// A column with its type found out once per batch.
pub(crate) struct Reader {
    ty: SqlType,
    array: ArrayRef,
    has_nulls: bool,
}

impl Reader {
    pub(crate) fn new(array: &ArrayRef, ty: SqlType) -> Result<Reader> {
        let array = as_sent(array, ty)?;
        let has_nulls = array.null_count() > 0;
        Ok(Reader { ty, array, has_nulls })
    }

    pub(crate) fn len(&self) -> usize {
        self.array.len()
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.has_nulls
    }

    #[inline]
    pub(crate) fn write(&self, row: usize, format: Format, writer: &mut CellWriter, output: &mut Output) {
        if self.has_nulls && self.array.is_null(row) {
            output.extend_from_slice(&NULL);
            return;
        }
        let array = self.array.as_ref();
        let value = match self.ty {
            SqlType::Boolean => Value::Boolean(array.as_boolean().value(row)),
            SqlType::SmallInt => Value::SmallInt(array.as_primitive::<Int16Type>().value(row)),
            SqlType::Integer => Value::Integer(array.as_primitive::<Int32Type>().value(row)),
            SqlType::BigInt => Value::BigInt(array.as_primitive::<Int64Type>().value(row)),
            SqlType::Real => Value::Real(array.as_primitive::<Float32Type>().value(row)),
            SqlType::Double => Value::Double(array.as_primitive::<Float64Type>().value(row)),
            SqlType::Numeric { scale, .. } => {
                Value::Numeric { unscaled: array.as_primitive::<Decimal128Type>().value(row), scale }
            }
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
                return write_bytes(array.as_string_view().value(row).as_bytes(), output);
            }
            SqlType::Bytea => {
                return writer.bytea(array.as_binary_view().value(row), format, output);
            }
            SqlType::Date => Value::Date(array.as_primitive::<Date32Type>().value(row)),
            SqlType::Time => Value::Time(array.as_primitive::<Time64MicrosecondType>().value(row)),
            SqlType::Timestamp => {
                Value::Timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            SqlType::TimestampTz => {
                Value::TimestampTz(array.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            SqlType::Interval => {
                let interval = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Value::Interval(Interval {
                    months: interval.months,
                    days: interval.days,
                    nanoseconds: interval.nanoseconds,
                })
            }
            SqlType::Uuid => {
                let bytes = array.as_fixed_size_binary().value(row);
                Value::Uuid(bytes.try_into().expect("as_sent made it 16 bytes wide"))
            }
        };
        writer.value(&value, self.ty, format, output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray, StringViewArray};
    use firn_base::array::Dimension;
    use firn_base::{ArrayValue, Numeric};

    fn written(array: ArrayRef, ty: SqlType, format: Format) -> Vec<Option<Vec<u8>>> {
        let reader = Reader::new(&array, ty).unwrap();
        let mut writer = CellWriter::new(TimeZoneSetting::UTC);
        (0..array.len())
            .map(|row| {
                let mut output = Vec::new();
                reader.write(row, format, &mut writer, &mut output);
                let (length, bytes) = output.split_first_chunk::<4>().unwrap();
                let length = i32::from_be_bytes(*length);
                (length >= 0).then(|| {
                    assert_eq!(length as usize, bytes.len());
                    bytes.to_vec()
                })
            })
            .collect()
    }

    #[test]
    fn a_column_is_written_as_text_or_binary_with_its_nulls() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None]));
        assert_eq!(written(numbers.clone(), SqlType::BigInt, Format::Text), [Some(b"-7".to_vec()), None]);
        assert_eq!(
            written(numbers, SqlType::BigInt, Format::Binary),
            [Some((-7i64).to_be_bytes().to_vec()), None]
        );
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["", "longer than an inline view"]));
        assert_eq!(
            written(texts, SqlType::Text, Format::Text),
            [Some(vec![]), Some(b"longer than an inline view".to_vec())]
        );
    }

    /// The bytes are those of PostgreSQL's `numeric_send` and `array_send`.
    #[test]
    fn numerics_keep_their_decimals_and_arrays_their_bounds_in_both_formats() {
        let number = |text: &str| Value::Number(Numeric::parse(text).unwrap());
        let dimension = Dimension { length: 2, lower: 0 };
        let array = ArrayValue::new(vec![dimension], vec![Value::SmallInt(1), Value::Null]);
        let cases: [(Value, SqlType, &str, &[u8]); 3] = [
            (number("1.500"), SqlType::NUMERIC, "1.500", &[0, 2, 0, 0, 0, 0, 0, 3, 0, 1, 0x13, 0x88]),
            (number("NaN"), SqlType::NUMERIC, "NaN", &[0, 0, 0, 0, 0xc0, 0, 0, 0]),
            (
                Value::Array(array),
                SqlType::SmallInt,
                "[0:1]={1,NULL}",
                &[
                    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0xff,
                    0xff, 0xff, 0xff,
                ],
            ),
        ];
        let mut writer = CellWriter::new(TimeZoneSetting::UTC);
        for (value, ty, text, bytes) in cases {
            for (format, expected) in [(Format::Text, text.as_bytes()), (Format::Binary, bytes)] {
                let mut output = Vec::new();
                writer.value(&value, ty, format, &mut output);
                assert_eq!(output[..4], (expected.len() as i32).to_be_bytes(), "{text}");
                assert_eq!(&output[4..], expected, "{text}");
            }
        }
    }

    #[test]
    fn a_column_of_another_arrow_type_is_cast() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["12"]));
        assert_eq!(written(texts, SqlType::Integer, Format::Text), [Some(b"12".to_vec())]);
    }
}
