//! Encodes rows, from row-major values or from vectors, into DataRow messages.
//!
//! ```text
//! D  length:i32  columns:i16  then per column  length:i32 (-1 for NULL)  bytes
//! ```

use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, TextStyle, Type, TypeId, Value, binary, text};
use firn_session::server::{Datum, ResultChunk, RowChunk};
use firn_session::{Column, CommandTag, Rows};

use crate::client::{Fault, Sink};
use crate::decode::{Format, format_of};
use crate::encode::{self, Output};

/// A result of which some rows have been sent.
pub(crate) struct Cursor {
    rows: Rows,
    columns: Arc<[Column]>,
    /// The last chunk of `rows`, and how many of its rows have been sent.
    chunk: Option<(RowChunk, usize)>,
    writer: CellWriter,
}

/// The result of sending rows.
pub(crate) enum Progress {
    /// All rows have been sent.
    Finished(CommandTag),
    /// As many rows as the limit have been sent.
    Suspended,
}

impl Cursor {
    pub(crate) fn new(rows: Rows, style: TextStyle) -> Cursor {
        let columns = rows.columns().clone();
        Cursor { rows, columns, chunk: None, writer: CellWriter::new(style) }
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Ends a query whose client has taken as many rows as it wants. Errors as of [`Rows::end`].
    pub(crate) fn end(mut self) -> Result<()> {
        self.rows.end()
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
        // The tag of a SELECT that was suspended counts only the rows since, as in PostgreSQL.
        let rows = if tag.verb == "SELECT" { Some(sent_now) } else { tag.rows };
        Ok(Progress::Finished(CommandTag { rows, ..tag }))
    }
}

/// Sends row-major values.
pub(crate) fn send_values(
    values: &[Value],
    rows: usize,
    columns: &[Column],
    formats: &[Format],
    writer: &mut CellWriter,
    sink: &mut Sink,
) -> std::result::Result<(), Fault> {
    let width = columns.len();
    for row in 0..rows {
        let start = sink.output.len();
        encode::message(&mut sink.output, b'D', |output| {
            output.extend_from_slice(&(width as u16).to_be_bytes());
            let row = &values[row * width..][..width];
            for (index, (value, column)) in row.iter().zip(columns).enumerate() {
                writer.value(value, column.ty, format_of(formats, index), output);
            }
        });
        writer.check(start, &mut sink.output)?;
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
        if format_of(formats, index) == Format::Binary && has_records(column.ty) {
            let error = Error::unsupported(format_args!("type {} in binary format", column.ty));
            return Err(error.with_hint("Ask for the column in text format.").into());
        }
    }
    for row in rows {
        let start = sink.output.len();
        encode::message(&mut sink.output, b'D', |output| {
            output.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (index, (vector, column)) in chunk.values.vectors().iter().zip(columns).enumerate() {
                let format = format_of(formats, index);
                let vector = chunk.text(index).filter(|_| format == Format::Text).unwrap_or(vector);
                writer.datum(vector.datum(row), column.ty, format, output);
            }
        });
        writer.check(start, &mut sink.output)?;
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

/// Writes single cells, each with its length.
pub(crate) struct CellWriter {
    style: TextStyle,
    /// A buffer for the text of one cell before it is copied into the output.
    scratch: String,
    /// The error of a character that the client's encoding does not have.
    failed: Option<Error>,
}

/// The length of a cell that is NULL.
const NULL: [u8; 4] = (-1i32).to_be_bytes();

impl CellWriter {
    pub(crate) fn new(style: TextStyle) -> CellWriter {
        CellWriter { style, scratch: String::new(), failed: None }
    }

    /// Writes values in this style from now on.
    pub(crate) fn set_style(&mut self, style: TextStyle) {
        self.style = style;
    }

    /// Removes a row with a cell that could not be encoded: 22P05.
    #[inline]
    fn check(&mut self, start: usize, output: &mut Output) -> Result<()> {
        match self.failed.take() {
            None => Ok(()),
            Some(error) => {
                output.truncate(start);
                Err(error)
            }
        }
    }

    /// A cell that is text.
    #[inline]
    fn text(&mut self, text: &str, output: &mut Output) {
        match encode::converts(output.encoding) {
            false => write_bytes(text.as_bytes(), output),
            true => {
                let encoding = output.encoding;
                encode::length_prefixed(output, 0, |output| {
                    if let Err(error) = encoding.write(text, output) {
                        self.failed = Some(error);
                    }
                });
            }
        }
    }

    #[inline]
    fn value(&mut self, value: &Value, ty: Type, format: Format, output: &mut Output) {
        match (value, format) {
            (Value::Null, _) => output.extend_from_slice(&NULL),
            (Value::Text(text), _) => self.text(text, output),
            (value, Format::Binary) => {
                encode::length_prefixed(output, 0, |output| binary::encode_any(value, ty, output));
            }
            (Value::SmallInt(number), Format::Text) => write_integer(*number, output),
            (Value::Integer(number), Format::Text) => write_integer(*number, output),
            (Value::BigInt(number), Format::Text) if ty.id == TypeId::INT8 => write_integer(*number, output),
            (value, Format::Text) => {
                self.scratch.clear();
                text::write_any(value, ty, &self.style, &mut self.scratch);
                self.written(output);
            }
        }
    }

    /// A cell with the text that has been written.
    fn written(&mut self, output: &mut Output) {
        let text = std::mem::take(&mut self.scratch);
        self.text(&text, output);
        self.scratch = text;
    }

    #[inline]
    fn datum(&mut self, datum: Datum<'_>, ty: Type, format: Format, output: &mut Output) {
        match (datum, format) {
            (Datum::Null, _) => output.extend_from_slice(&NULL),
            (Datum::Text(text), _) => self.text(text, output),
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
                text::write_any(&datum.to_value(ty), ty, &self.style, &mut self.scratch);
                self.written(output);
            }
        }
    }

    fn bytea(&mut self, bytes: &[u8], format: Format, output: &mut Output) {
        match format {
            Format::Binary => write_bytes(bytes, output),
            Format::Text => {
                self.scratch.clear();
                text::write_bytea(bytes, self.style.bytea, &mut self.scratch);
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

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::array::Dimension;
    use firn_base::text_style::{ByteaStyle, DateStyle};
    use firn_base::{ArrayValue, Numeric};

    /// A cell without its length; `None` for NULL.
    fn cell(output: &[u8]) -> Option<&[u8]> {
        let (length, bytes) = output.split_first_chunk::<4>().unwrap();
        let length = i32::from_be_bytes(*length);
        assert_eq!(bytes.len(), usize::try_from(length).unwrap_or(0));
        (length >= 0).then_some(bytes)
    }

    fn written(value: Value, ty: Type, format: Format) -> Option<Vec<u8>> {
        let mut output = Output::default();
        CellWriter::new(TextStyle::DEFAULT).value(&value, ty, format, &mut output);
        cell(&output).map(<[u8]>::to_vec)
    }

    fn written_datum(datum: Datum<'_>, ty: Type, format: Format) -> Option<Vec<u8>> {
        let mut output = Output::default();
        CellWriter::new(TextStyle::DEFAULT).datum(datum, ty, format, &mut output);
        cell(&output).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_cell_of_a_vector_is_written_as_the_same_value() {
        let decimal = Value::Numeric { unscaled: -150, scale: 2 };
        let cases = [
            (Datum::Null, Value::Null, Type::new(TypeId::INT8)),
            (Datum::Int16(-7), Value::SmallInt(-7), Type::new(TypeId::INT2)),
            (Datum::Int32(-7), Value::Integer(-7), Type::new(TypeId::INT4)),
            (Datum::Int32(-7), Value::Date(-7), Type::new(TypeId::DATE)),
            (Datum::Int64(-7), Value::BigInt(-7), Type::new(TypeId::INT8)),
            (Datum::Int64(0x16_0000_0017), Value::BigInt(0x16_0000_0017), Type::new(TypeId::PG_LSN)),
            (Datum::Int64(7), Value::Time(7), Type::new(TypeId::TIME)),
            (Datum::Int64(-7), Value::TimestampTz(-7), Type::new(TypeId::TIMESTAMPTZ)),
            (Datum::UInt32(u32::MAX), Value::Oid(u32::MAX), Type::new(TypeId::OID)),
            (Datum::Float64(0.1), Value::Double(0.1), Type::new(TypeId::FLOAT8)),
            (Datum::Numeric(Numeric::from_decimal(-150, 2)), decimal, Type::numeric(10, 2)),
            (Datum::Text("ü"), Value::Text("ü".to_owned()), Type::varchar(3)),
            (Datum::Bytes(&[0, 255]), Value::Bytea(vec![0, 255]), Type::new(TypeId::BYTEA)),
            (Datum::Uuid([9; 16]), Value::Uuid([9; 16]), Type::new(TypeId::UUID)),
        ];
        for (datum, value, ty) in cases {
            for format in [Format::Text, Format::Binary] {
                let shown = format!("{value:?}");
                assert_eq!(written_datum(datum, ty, format), written(value.clone(), ty, format), "{shown}");
            }
        }
        assert_eq!(
            written(Value::Date(-7), Type::new(TypeId::DATE), Format::Text),
            Some(b"1969-12-25".to_vec())
        );
        let lsn = written(Value::BigInt(0x16_0000_0017), Type::new(TypeId::PG_LSN), Format::Text);
        assert_eq!(lsn, Some(b"16/17".to_vec()));
    }

    #[test]
    fn cells_in_text_format_have_the_style_of_the_session() {
        let style = TextStyle {
            dates: DateStyle::German,
            bytea: ByteaStyle::Escape,
            float_digits: 0,
            ..TextStyle::DEFAULT
        };
        let mut writer = CellWriter::new(TextStyle::DEFAULT);
        writer.set_style(style);
        for (datum, ty, text) in [
            (Datum::Int32(-7), TypeId::DATE, "25.12.1969"),
            (Datum::Bytes(&[b'a', 0]), TypeId::BYTEA, "a\\000"),
            (Datum::Float64(0.1 + 0.2), TypeId::FLOAT8, "0.3"),
        ] {
            let mut output = Output::default();
            writer.datum(datum, Type::new(ty), Format::Text, &mut output);
            assert_eq!(cell(&output), Some(text.as_bytes()));
        }
    }

    /// The bytes are those of PostgreSQL's `numeric_send` and `array_send`.
    #[test]
    fn numerics_keep_their_decimals_and_arrays_their_bounds_in_both_formats() {
        let number = |text: &str| Value::Number(Numeric::parse(text).unwrap());
        let dimension = Dimension { length: 2, lower: 0 };
        let array = ArrayValue::new(vec![dimension], vec![Value::SmallInt(1), Value::Null]);
        let numeric = Type::new(TypeId::NUMERIC);
        let cases: [(Value, Type, &str, &[u8]); 3] = [
            (number("1.500"), numeric, "1.500", &[0, 2, 0, 0, 0, 0, 0, 3, 0, 1, 0x13, 0x88]),
            (number("NaN"), numeric, "NaN", &[0, 0, 0, 0, 0xc0, 0, 0, 0]),
            (
                Value::Array(array),
                Type::new(TypeId::INT2_ARRAY),
                "[0:1]={1,NULL}",
                &[
                    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0xff,
                    0xff, 0xff, 0xff,
                ],
            ),
        ];
        for (value, ty, text, bytes) in cases {
            assert_eq!(written(value.clone(), ty, Format::Text).unwrap(), text.as_bytes());
            assert_eq!(written(value, ty, Format::Binary).unwrap(), bytes, "{text}");
        }
    }
}
