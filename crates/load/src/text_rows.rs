//! Rows of the text, CSV and JSON formats from Arrow columns.
//!
//! Rows are written one after the other. But the type of a column is examined once, and a field
//! is written directly to its final place. Strings are searched eight bytes at a time for characters that need quotes or escapes.
//! Numbers, dates and the like need none, unless a delimiter is a character that occurs in them.

use crate::kind::Kind;
use crate::options::{CopyOptions, RowFormat, forced};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, StringViewArray};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use firn_base::array::ArrayImage;
use firn_base::{
    Interval, Numeric, Representation, TextStyle, Type, Value, datetime, interval, numeric, text,
};

/// How rows of one COPY are written.
pub(crate) struct TextRows {
    format: Format,
    kinds: Vec<Kind>,
    /// How values are written.
    style: TextStyle,
    /// What strings are searched for.
    special: Special,
    /// Whether the texts of values other than strings and bytes need no quotes or escapes.
    is_plain: bool,
}

enum Format {
    Text {
        delimiter: u8,
        null: String,
    },
    Csv {
        options: CopyOptions,
        is_only_column: bool,
    },
    /// The text before each column's value: the brace or comma, and the key.
    Json {
        before: Vec<String>,
    },
}

impl TextRows {
    pub(crate) fn new(columns: &[(String, Kind)], options: &CopyOptions, style: TextStyle) -> TextRows {
        let (special, is_plain) = match options.format {
            RowFormat::Text => {
                let special = Special { below: 14, first: b'\\', second: options.delimiter };
                (special, !is_part_of_numbers(options.delimiter))
            }
            RowFormat::Csv => {
                let special = Special { below: 14, first: options.quote, second: options.delimiter };
                let null = options.null.as_bytes();
                let is_null_plain = null.is_empty() || !null.iter().copied().all(is_part_of_numbers);
                let is_plain =
                    is_null_plain && ![options.quote, options.delimiter].into_iter().any(is_part_of_numbers);
                (special, is_plain)
            }
            RowFormat::Json => (Special { below: 32, first: b'"', second: b'\\' }, true),
            RowFormat::Binary => unreachable!("its rows are no text"),
        };
        let format = match options.format {
            RowFormat::Json => {
                let key = |(position, (name, _)): (usize, &(String, Kind))| {
                    let mut key = if position == 0 { "{" } else { "," }.to_owned();
                    write_json_string(name, &special, &mut key);
                    key.push(':');
                    key
                };
                Format::Json { before: columns.iter().enumerate().map(key).collect() }
            }
            RowFormat::Csv => Format::Csv { options: options.clone(), is_only_column: columns.len() == 1 },
            _ => Format::Text { delimiter: options.delimiter, null: options.null.clone() },
        };
        // JSON has one way to write a date.
        let style = match options.format {
            RowFormat::Json => TextStyle::in_zone(style.zone),
            _ => style,
        };
        let kinds = columns.iter().map(|(_, kind)| *kind).collect();
        TextRows { format, kinds, style, special, is_plain }
    }

    /// Appends rows. Panics if a column has an Arrow type in which no SQL type is stored.
    pub(crate) fn write(&self, columns: &[ArrayRef], rows: usize, out: &mut String) {
        assert_eq!(columns.len(), self.kinds.len());
        let columns: Vec<Column> =
            columns.iter().zip(&self.kinds).map(|(array, kind)| Column::new(array, *kind)).collect();
        match &self.format {
            Format::Text { delimiter, null } => {
                let between = char::from(*delimiter);
                for row in 0..rows {
                    for (position, column) in columns.iter().enumerate() {
                        if position > 0 {
                            out.push(between);
                        }
                        if column.is_null(row) {
                            out.push_str(null);
                        } else {
                            self.write_field(column, row, out, |field, out| {
                                write_escaped(field, *delimiter, out)
                            });
                        }
                    }
                    out.push('\n');
                }
            }
            Format::Csv { options, is_only_column } => {
                let between = char::from(options.delimiter);
                for row in 0..rows {
                    for (position, column) in columns.iter().enumerate() {
                        if position > 0 {
                            out.push(between);
                        }
                        if column.is_null(row) {
                            out.push_str(&options.null);
                        } else {
                            let forced = forced(&options.force_quote, position);
                            self.write_csv_field(column, row, options, forced, *is_only_column, out);
                        }
                    }
                    out.push('\n');
                }
            }
            Format::Json { before } => {
                let end = if columns.is_empty() { "{}\n" } else { "}\n" };
                for row in 0..rows {
                    for (column, before) in columns.iter().zip(before) {
                        out.push_str(before);
                        if column.is_null(row) {
                            out.push_str("null");
                        } else {
                            self.write_json_value(column, row, out);
                        }
                    }
                    out.push_str(end);
                }
            }
        }
    }

    /// Appends a field of the text format. `careful` writes those with special characters.
    #[inline(always)]
    fn write_field(
        &self,
        column: &Column,
        row: usize,
        out: &mut String,
        careful: impl Fn(&str, &mut String),
    ) {
        match &column.cells {
            Cells::Text(values) => {
                let field = values.value(row);
                if self.special.may_be_in(field.as_bytes()) {
                    careful(field, out);
                } else {
                    out.push_str(field);
                }
            }
            cells => {
                let start = out.len();
                cells.write(row, &self.style, out);
                if !self.is_plain || cells.needs_care() {
                    let field = out.split_off(start);
                    careful(&field, out);
                }
            }
        }
    }

    #[inline(always)]
    fn write_csv_field(
        &self,
        column: &Column,
        row: usize,
        options: &CopyOptions,
        forced: bool,
        is_only_column: bool,
        out: &mut String,
    ) {
        let careful =
            |field: &str, out: &mut String| write_quoted(field, options, forced, is_only_column, out);
        match &column.cells {
            Cells::Text(values) => {
                let field = values.value(row);
                // A lone `\.` would end the file.
                if forced || field == options.null || is_only_column && field == "\\." {
                    write_quotes(field, options, out);
                } else if self.special.may_be_in(field.as_bytes()) {
                    careful(field, out);
                } else {
                    out.push_str(field);
                }
            }
            cells => {
                let start = out.len();
                cells.write(row, &self.style, out);
                if forced || !self.is_plain || cells.needs_care() {
                    let field = out.split_off(start);
                    careful(&field, out);
                }
            }
        }
    }

    fn write_json_value(&self, column: &Column, row: usize, out: &mut String) {
        let cells = &column.cells;
        let is_number = match cells {
            Cells::Boolean(values) => return out.push_str(if values.value(row) { "true" } else { "false" }),
            Cells::Text(values) => return write_json_string(values.value(row), &self.special, out),
            Cells::Arrays { .. } => {
                let mut text = String::new();
                cells.write(row, &self.style, &mut text);
                return write_json_string(&text, &self.special, out);
            }
            Cells::SmallInt(_) | Cells::Integer(_) | Cells::BigInt(_) | Cells::Oids(_) => true,
            Cells::Numeric { .. } => true,
            Cells::Real(values) => values[row].is_finite(),
            Cells::Double(values) => values[row].is_finite(),
            Cells::Numbers(images) => number_at(images, row).is_finite(),
            _ => false,
        };
        if is_number {
            return cells.write(row, &self.style, out);
        }
        out.push('"');
        let start = out.len();
        cells.write(row, &self.style, out);
        match cells {
            // Its backslash is escaped.
            Cells::Bytea(_) => out.insert(start, '\\'),
            Cells::Timestamp(_) | Cells::TimestampTz(_) => {
                // The form of ISO 8601 and of PostgreSQL's JSON functions.
                if let Some(blank) = out[start..].find(' ') {
                    out.replace_range(start + blank..=start + blank, "T");
                    let offset = out.len().saturating_sub("+00".len()).max(start);
                    if matches!(cells, Cells::TimestampTz(_)) && matches!(out.as_bytes()[offset], b'+' | b'-')
                    {
                        out.push_str(":00");
                    }
                }
            }
            _ => {}
        }
        out.push('"');
    }
}

/// A column that is written.
struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    cells: Cells<'a>,
}

/// The values of a column.
enum Cells<'a> {
    Boolean(&'a BooleanArray),
    SmallInt(&'a [i16]),
    Integer(&'a [i32]),
    BigInt(&'a [i64]),
    Real(&'a [f32]),
    Double(&'a [f64]),
    /// With the scale that the array has.
    Numeric {
        values: &'a [i128],
        scale: u8,
    },
    /// The images of numerics without a common scale.
    Numbers(&'a BinaryViewArray),
    /// The images of arrays with such elements.
    Arrays {
        images: &'a BinaryViewArray,
        ty: Type,
        element: Representation,
    },
    Oids(&'a [u32]),
    Text(&'a StringViewArray),
    Bytea(&'a BinaryViewArray),
    Date(&'a [i32]),
    Time(&'a [i64]),
    Timestamp(&'a [i64]),
    TimestampTz(&'a [i64]),
    Interval(&'a [IntervalMonthDayNano]),
    Uuid(&'a FixedSizeBinaryArray),
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef, kind: Kind) -> Column<'a> {
        let cells = match array.data_type() {
            DataType::Boolean => Cells::Boolean(array.as_boolean()),
            DataType::Int16 => Cells::SmallInt(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Cells::Integer(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Cells::BigInt(array.as_primitive::<Int64Type>().values()),
            DataType::Float32 => Cells::Real(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Cells::Double(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => Cells::Numeric {
                values: array.as_primitive::<Decimal128Type>().values(),
                scale: u8::try_from(*scale).expect("numerics have no negative scale"),
            },
            DataType::Utf8View => Cells::Text(array.as_string_view()),
            DataType::BinaryView => match kind {
                Kind::General(_, Representation::Numeric) => Cells::Numbers(array.as_binary_view()),
                Kind::General(ty, Representation::List(element)) => {
                    Cells::Arrays { images: array.as_binary_view(), ty, element: *element }
                }
                _ => Cells::Bytea(array.as_binary_view()),
            },
            DataType::UInt32 => Cells::Oids(array.as_primitive::<UInt32Type>().values()),
            DataType::Date32 => Cells::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Time64(TimeUnit::Microsecond) => {
                Cells::Time(array.as_primitive::<Time64MicrosecondType>().values())
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                if zone.is_some() { Cells::TimestampTz(values) } else { Cells::Timestamp(values) }
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Cells::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values())
            }
            DataType::FixedSizeBinary(16) => Cells::Uuid(array.as_fixed_size_binary()),
            other => panic!("no SQL type is stored as {other}"),
        };
        Column { nulls: array.nulls(), cells }
    }

    #[inline(always)]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

fn number_at(images: &BinaryViewArray, row: usize) -> Numeric {
    Numeric::from_image(images.value(row)).expect("it is the image of a numeric")
}

impl Cells<'_> {
    /// Whether texts may contain characters that numbers and dates do not have.
    fn needs_care(&self) -> bool {
        matches!(self, Cells::Bytea(_) | Cells::Arrays { .. })
    }

    /// Appends a value as text.
    #[inline(always)]
    fn write(&self, row: usize, style: &TextStyle, out: &mut String) {
        match self {
            Cells::Boolean(values) => out.push(if values.value(row) { 't' } else { 'f' }),
            Cells::SmallInt(values) => text::write_integer(values[row].into(), out),
            Cells::Integer(values) => text::write_integer(values[row].into(), out),
            Cells::BigInt(values) => text::write_integer(values[row], out),
            Cells::Real(values) => text::write_real(values[row], style, out),
            Cells::Double(values) => text::write_double(values[row], style, out),
            Cells::Numeric { values, scale } => numeric::write(values[row], *scale, out),
            Cells::Numbers(images) => number_at(images, row).write(out),
            Cells::Arrays { images, ty, element } => {
                let image =
                    ArrayImage::new(images.value(row), *element).expect("it is the image of an array");
                text::write_any(&Value::Array(image.to_value()), *ty, style, out);
            }
            Cells::Oids(values) => text::write_integer(values[row].into(), out),
            Cells::Text(values) => out.push_str(values.value(row)),
            Cells::Bytea(values) => text::write_bytea(values.value(row), style.bytea, out),
            Cells::Date(values) => datetime::write_date(values[row], style, out),
            Cells::Time(values) => datetime::write_time(values[row], out),
            Cells::Timestamp(values) => datetime::write_timestamp(values[row], style, out),
            Cells::TimestampTz(values) => datetime::write_timestamptz(values[row], style, out),
            Cells::Interval(values) => {
                let IntervalMonthDayNano { months, days, nanoseconds } = values[row];
                interval::write(&Interval { months, days, nanoseconds }, style.intervals, out);
            }
            Cells::Uuid(values) => text::write_uuid(values.value(row).try_into().expect("16 bytes"), out),
        }
    }
}

/// Bytes that strings are searched for, eight at a time.
#[derive(Clone, Copy)]
struct Special {
    /// All below this one.
    below: u8,
    first: u8,
    second: u8,
}

impl Special {
    /// Whether there may be such a byte: the caller then checks each byte.
    #[inline(always)]
    fn may_be_in(&self, bytes: &[u8]) -> bool {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = ONES << 7;
        let found = |word: [u8; 8]| {
            let word = u64::from_le_bytes(word);
            let is_below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
            let is = |byte: u8| is_below(word ^ (ONES * u64::from(byte)), 1);
            (is_below(word, self.below) | is(self.first) | is(self.second)) & HIGH
        };
        let mut any = 0;
        let (words, _) = bytes.as_chunks::<8>();
        for word in words {
            any |= found(*word);
        }
        if let Some(last) = bytes.last_chunk::<8>() {
            any |= found(*last);
        } else if let Some(first) = bytes.first() {
            // The places that are left are filled with a byte of the set.
            let mut word = [*first; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            any |= found(word);
        }
        any != 0
    }
}

/// Whether numbers, dates, times, intervals, booleans and uuids may have such a character.
fn is_part_of_numbers(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" .:+-/@".contains(&byte)
}

/// Appends a field of the text format.
pub(crate) fn write_escaped(field: &str, delimiter: u8, out: &mut String) {
    let mut written = 0;
    for (at, byte) in field.bytes().enumerate() {
        let escape = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            _ => continue,
        };
        out.push_str(&field[written..at]);
        out.push('\\');
        out.push(char::from(escape));
        written = at + 1;
    }
    out.push_str(&field[written..]);
}

/// Appends a field of the CSV format, in quotes where it needs them.
pub(crate) fn write_quoted(
    field: &str,
    options: &CopyOptions,
    forced: bool,
    is_only_column: bool,
    out: &mut String,
) {
    let special =
        |byte: u8| byte == options.delimiter || byte == options.quote || matches!(byte, b'\n' | b'\r');
    if forced || field == options.null || is_only_column && field == "\\." || field.bytes().any(special) {
        write_quotes(field, options, out);
    } else {
        out.push_str(field);
    }
}

/// Appends a field in quotes.
fn write_quotes(field: &str, options: &CopyOptions, out: &mut String) {
    let (quote, escape) = (char::from(options.quote), char::from(options.escape));
    out.push(quote);
    let mut written = 0;
    for (at, byte) in field.bytes().enumerate() {
        if byte == options.quote || byte == options.escape {
            out.push_str(&field[written..at]);
            out.push(escape);
            written = at;
        }
    }
    out.push_str(&field[written..]);
    out.push(quote);
}

/// Appends a string of JSON.
fn write_json_string(string: &str, special: &Special, out: &mut String) {
    if special.may_be_in(string.as_bytes()) {
        out.push_str(&serde_json::to_string(string).expect("every string can be written"));
    } else {
        out.push('"');
        out.push_str(string);
        out.push('"');
    }
}
