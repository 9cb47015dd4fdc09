//! Files as they are written from columns, compared with a simple writer, value by value.

use super::{BINARY, CSV, TEXT};
use crate::{CopyHeader, CopyOptions, CopyWriter, RowFormat};
use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, StringViewBuilder,
};
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::IntervalMonthDayNano;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Interval, Numeric, SqlType, TextStyle, TimeZoneSetting, Value, text};

/// The rows in a file.
pub(super) fn file_of(columns: &[(String, SqlType)], options: &CopyOptions, rows: &[Vec<Value>]) -> Vec<u8> {
    let writer = CopyWriter::new(columns.to_vec(), options.clone(), TextStyle::DEFAULT).unwrap();
    let mut file = Vec::new();
    writer.write_header(&mut file);
    writer.write_rows(&arrays(columns, rows), rows.len(), &mut file);
    writer.write_trailer(&mut file);
    file
}

/// The columns of rows.
fn arrays(columns: &[(String, SqlType)], rows: &[Vec<Value>]) -> Vec<ArrayRef> {
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>();
    columns.iter().enumerate().map(|(at, (_, ty))| array(&column(at), *ty)).collect()
}

fn array(values: &[Value], ty: SqlType) -> ArrayRef {
    fn primitive<T: ArrowPrimitiveType>(
        values: &[Value],
        pick: impl Fn(&Value) -> Option<T::Native>,
    ) -> PrimitiveBuilder<T> {
        let mut builder = PrimitiveBuilder::<T>::new();
        for value in values {
            assert!(value.is_null() || pick(value).is_some());
            builder.append_option(pick(value));
        }
        builder
    }
    macro_rules! primitive {
        ($type:ty, $kind:ident) => {
            primitive::<$type>(values, |value| match value {
                Value::$kind(value) => Some(*value),
                _ => None,
            })
        };
    }
    match ty {
        SqlType::Boolean => {
            let mut builder = BooleanBuilder::new();
            values.iter().for_each(|value| {
                builder.append_option(match value {
                    Value::Boolean(value) => Some(*value),
                    _ => None,
                });
            });
            Arc::new(builder.finish())
        }
        SqlType::SmallInt => Arc::new(primitive!(Int16Type, SmallInt).finish()),
        SqlType::Integer => Arc::new(primitive!(Int32Type, Integer).finish()),
        SqlType::BigInt => Arc::new(primitive!(Int64Type, BigInt).finish()),
        SqlType::Real => Arc::new(primitive!(Float32Type, Real).finish()),
        SqlType::Double => Arc::new(primitive!(Float64Type, Double).finish()),
        SqlType::Date => Arc::new(primitive!(Date32Type, Date).finish()),
        SqlType::Time => Arc::new(primitive!(Time64MicrosecondType, Time).finish()),
        SqlType::Timestamp => Arc::new(primitive!(TimestampMicrosecondType, Timestamp).finish()),
        SqlType::TimestampTz => {
            Arc::new(primitive!(TimestampMicrosecondType, TimestampTz).finish().with_timezone("UTC"))
        }
        SqlType::NUMERIC => {
            let mut builder = BinaryViewBuilder::new();
            values.iter().for_each(|value| match value {
                Value::Number(value) => builder.append_value(value.image().bytes()),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        SqlType::Numeric { precision, scale } => {
            let pick = |value: &Value| match value {
                Value::Numeric { unscaled, scale: own } => {
                    assert_eq!(*own, scale);
                    Some(*unscaled)
                }
                _ => None,
            };
            let array = primitive::<Decimal128Type>(values, pick).finish();
            Arc::new(array.with_precision_and_scale(precision, scale as i8).unwrap())
        }
        SqlType::Interval => Arc::new(
            primitive::<IntervalMonthDayNanoType>(values, |value| match value {
                Value::Interval(Interval { months, days, nanoseconds }) => {
                    Some(IntervalMonthDayNano::new(*months, *days, *nanoseconds))
                }
                _ => None,
            })
            .finish(),
        ),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let mut builder = StringViewBuilder::new();
            values.iter().for_each(|value| match value {
                Value::Text(text) => builder.append_value(text),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        SqlType::Bytea => {
            let mut builder = BinaryViewBuilder::new();
            values.iter().for_each(|value| match value {
                Value::Bytea(bytes) => builder.append_value(bytes),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        SqlType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            values.iter().for_each(|value| match value {
                Value::Uuid(bytes) => builder.append_value(bytes).unwrap(),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
    }
}

/// The simple writer: a field is made as text first, and is then written byte by byte.
struct Plain<'a> {
    columns: &'a [(String, SqlType)],
    options: &'a CopyOptions,
    style: TextStyle,
}

impl Plain<'_> {
    fn write_row(&self, row: &[Value], out: &mut Vec<u8>) {
        if self.options.format == RowFormat::Json {
            return self.write_object(row, out);
        }
        for (position, (value, (_, ty))) in row.iter().zip(self.columns).enumerate() {
            if position > 0 {
                out.push(self.options.delimiter);
            }
            if value.is_null() {
                out.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            let mut field = String::new();
            text::write(value, *ty, &self.style, &mut field);
            match self.options.format {
                RowFormat::Text => self.write_escaped(&field, out),
                _ => self.write_quoted(&field, position, out),
            }
        }
        out.push(b'\n');
    }

    fn write_escaped(&self, field: &str, out: &mut Vec<u8>) {
        for &byte in field.as_bytes() {
            let escape = match byte {
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                b'\\' => b'\\',
                byte if byte == self.options.delimiter => byte,
                byte => {
                    out.push(byte);
                    continue;
                }
            };
            out.extend_from_slice(&[b'\\', escape]);
        }
    }

    fn write_quoted(&self, field: &str, position: usize, out: &mut Vec<u8>) {
        let options = self.options;
        let special =
            |byte: &u8| *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r');
        let quoted = options.force_quote.get(position).copied().unwrap_or(false)
            || field == options.null
            || self.columns.len() == 1 && field == "\\."
            || field.as_bytes().iter().any(special);
        if !quoted {
            return out.extend_from_slice(field.as_bytes());
        }
        out.push(options.quote);
        for &byte in field.as_bytes() {
            if byte == options.quote || byte == options.escape {
                out.push(options.escape);
            }
            out.push(byte);
        }
        out.push(options.quote);
    }

    fn write_object(&self, row: &[Value], out: &mut Vec<u8>) {
        let mut before = b'{';
        for ((name, ty), value) in self.columns.iter().zip(row) {
            out.push(before);
            before = b',';
            serde_json::to_writer(&mut *out, name).unwrap();
            out.push(b':');
            self.write_json(value, *ty, out);
        }
        let end: &[u8] = if self.columns.is_empty() { b"{}\n" } else { b"}\n" };
        out.extend_from_slice(end);
    }

    fn write_json(&self, value: &Value, ty: SqlType, out: &mut Vec<u8>) {
        let mut written = String::new();
        text::write(value, ty, &self.style, &mut written);
        match value {
            Value::Null => return out.extend_from_slice(b"null"),
            Value::Boolean(value) => return out.extend_from_slice(value.to_string().as_bytes()),
            Value::SmallInt(_) | Value::Integer(_) | Value::BigInt(_) | Value::Numeric { .. } => {
                return out.extend_from_slice(written.as_bytes());
            }
            Value::Number(value) if value.is_finite() => return out.extend_from_slice(written.as_bytes()),
            Value::Real(value) if value.is_finite() => return out.extend_from_slice(written.as_bytes()),
            Value::Double(value) if value.is_finite() => return out.extend_from_slice(written.as_bytes()),
            Value::Timestamp(_) | Value::TimestampTz(_) => {
                written = written.replacen(' ', "T", 1);
                let offset = written.len() - "+00".len();
                if matches!(value, Value::TimestampTz(_)) && matches!(written.as_bytes()[offset], b'+' | b'-')
                {
                    written.push_str(":00");
                }
            }
            _ => {}
        }
        serde_json::to_writer(out, &written).unwrap();
    }
}

const TYPES: [SqlType; 19] = [
    SqlType::Text,
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric { precision: 12, scale: 2 },
    SqlType::Numeric { precision: 38, scale: 10 },
    SqlType::NUMERIC,
    SqlType::Varchar(Some(40)),
    SqlType::Char(5),
    SqlType::Bytea,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
    SqlType::Uuid,
];

/// Any value of a type, sometimes NULL or one at its limits.
fn any(random: &mut Random, ty: SqlType) -> Value {
    const PARTS: [&str; 24] = [
        "firn",
        "снег",
        ",",
        "\"",
        "'",
        "\\",
        "\n",
        "\r",
        "\t",
        "|",
        "\\.",
        "\\N",
        "7",
        "",
        " ",
        "eight by",
        "ß",
        "\0",
        "\u{8}",
        "\u{b}\u{c}",
        "\u{1f}",
        "\u{7f}",
        "😀",
        "-",
    ];
    if random.uniform(0, 4) == 0 {
        return Value::Null;
    }
    let mut bits = || {
        let any = random.next_u64() as i64;
        // Small numbers as often as large ones.
        any >> random.uniform(0, 63)
    };
    match ty {
        SqlType::Boolean => Value::Boolean(bits() % 2 == 0),
        SqlType::SmallInt => Value::SmallInt(bits() as i16),
        SqlType::Integer => Value::Integer(bits() as i32),
        SqlType::BigInt => Value::BigInt(bits()),
        SqlType::Real => Value::Real(match bits() % 4 {
            0 => f32::from_bits(bits() as u32),
            1 => bits() as f32 / 100.0,
            2 => f32::NAN,
            _ => f32::INFINITY,
        }),
        SqlType::Double => Value::Double(match bits() % 4 {
            0 => f64::from_bits(bits() as u64),
            1 => bits() as f64 / 100.0,
            2 => -0.0,
            _ => f64::NEG_INFINITY,
        }),
        SqlType::NUMERIC => Value::Number(match bits() % 9 {
            0 => Numeric::NAN,
            _ => Numeric::from_decimal(bits().into(), (bits() % 38).unsigned_abs() as u8),
        }),
        SqlType::Numeric { precision, scale } => {
            let unscaled = i128::from(bits()) * i128::from(bits());
            Value::Numeric { unscaled: unscaled % 10i128.pow(precision.into()), scale }
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let parts = random.uniform(0, 4);
            let part = |_| PARTS[random.uniform(0, PARTS.len() as i64 - 1) as usize];
            Value::Text((0..parts).map(part).collect())
        }
        SqlType::Bytea => Value::Bytea(bits().to_le_bytes().to_vec()),
        SqlType::Date => Value::Date((bits() % 3_000_000) as i32),
        SqlType::Time => Value::Time(bits().rem_euclid(86_400_000_000)),
        SqlType::Timestamp => Value::Timestamp(bits() / 100),
        SqlType::TimestampTz => Value::TimestampTz(bits() / 100),
        SqlType::Interval => Value::Interval(Interval {
            months: (bits() % 1000) as i32,
            days: (bits() % 1000) as i32,
            nanoseconds: bits() / 1000 * 1000,
        }),
        SqlType::Uuid => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&bits().to_le_bytes());
            Value::Uuid(bytes)
        }
    }
}

fn variants(columns: usize) -> Vec<CopyOptions> {
    let text = || CopyOptions::new(TEXT);
    let csv = || CopyOptions::new(CSV);
    vec![
        text(),
        CopyOptions { delimiter: b'|', null: String::new(), ..text() },
        CopyOptions { delimiter: b'-', null: "7".to_owned(), ..text() },
        CopyOptions { delimiter: b'B', ..text() },
        csv(),
        CopyOptions { delimiter: b';', null: "7".to_owned(), ..csv() },
        CopyOptions { delimiter: b':', null: "\\N".to_owned(), escape: b'\\', ..csv() },
        CopyOptions { quote: b'0', escape: b'1', ..csv() },
        CopyOptions { quote: b'\'', escape: b' ', delimiter: b'.', ..csv() },
        CopyOptions { force_quote: vec![true; columns], ..csv() },
        CopyOptions { force_quote: (0..columns).map(|column| column % 2 == 0).collect(), ..csv() },
        CopyOptions { delimiter: b'\t', header: CopyHeader::Yes, ..csv() },
        CopyOptions::new(RowFormat::Json),
    ]
}

#[test]
fn columns_are_written_as_their_values_are_one_by_one() {
    let mut random = Random::seeded(11);
    // Each type by itself, and all in a row.
    let mut tables: Vec<Vec<(String, SqlType)>> =
        TYPES.iter().map(|ty| vec![(ty.to_string(), *ty)]).collect();
    tables.push(TYPES.iter().enumerate().map(|(at, ty)| (format!("{at} \"{ty}\"\t"), *ty)).collect());
    tables.push(Vec::new());
    for columns in tables {
        let rows: Vec<Vec<Value>> =
            (0..500).map(|_| columns.iter().map(|(_, ty)| any(&mut random, *ty)).collect()).collect();
        let arrays = arrays(&columns, &rows);
        for options in variants(columns.len()) {
            for zone in ["UTC", "Asia/Kolkata", "-03"] {
                let style = TextStyle::in_zone(TimeZoneSetting::parse(zone).unwrap());
                let writer = CopyWriter::new(columns.clone(), options.clone(), style).unwrap();
                let plain = Plain { columns: &columns, options: &options, style };
                // A part of the columns, like that of batches that are cut.
                let (from, count) = (random.uniform(0, 100) as usize, random.uniform(100, 400) as usize);
                let parts: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(from, count)).collect();
                let mut written = b"before".to_vec();
                writer.write_rows(&parts, count, &mut written);
                let mut expected = b"before".to_vec();
                rows[from..from + count].iter().for_each(|row| plain.write_row(row, &mut expected));
                if written != expected {
                    let at = written.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                    let around = |bytes: &[u8]| {
                        String::from_utf8_lossy(&bytes[at.saturating_sub(40)..bytes.len().min(at + 40)])
                            .into_owned()
                    };
                    panic!("{options:?} {zone:?}: {:?} for {:?}", around(&written), around(&expected));
                }
            }
        }
    }
}

#[test]
fn binary_files_have_a_header_and_a_trailer_even_without_rows() {
    let columns = [("a".to_owned(), SqlType::Integer)];
    let file = file_of(&columns, &CopyOptions::new(BINARY), &[]);
    assert_eq!(file, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff");
}
