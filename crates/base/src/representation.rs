//! Representations: the layout of the values of a type in vectors, blocks and Arrow.
//!
//! A type is the meaning of a value; a representation is the meaning of its bits. Several types share one
//! representation (`oid`, `regclass` and `xid` are all 32-bit unsigned numbers), and one type may have
//! several: `numeric(12,2)` is a [`Representation::Decimal`], plain `numeric` is a
//! [`Representation::Numeric`], whose values have scales of their own.
//!
//! | representation | in a block | Arrow |
//! |---|---|---|
//! | Boolean | 1 bit | Boolean |
//! | Int16, Int32, Int64 | 2, 4, 8 bytes | Int16, Int32, Int64 |
//! | Oid | 4 bytes | UInt32 |
//! | Float32, Float64 | 4, 8 bytes | Float32, Float64 |
//! | Decimal | 8 bytes up to 18 digits, else 16 | Decimal128(precision, scale) |
//! | Numeric | a view of an image | Decimal128(38, 16), if no digit is lost |
//! | Text, PaddedText | a view of UTF-8 | Utf8View |
//! | Bytes | a view | BinaryView |
//! | Date | 4 bytes | Date32 |
//! | Time, Timestamp, TimestampTz | 8 bytes | Time64(µs), Timestamp(µs[, UTC]) |
//! | Interval | 16 bytes | Interval(MonthDayNano) |
//! | Uuid | 16 bytes | FixedSizeBinary(16) |
//! | List | a view of an image | List |
//! | Record | a view of an image | Struct |

use crate::array::ArrayImage;
use crate::numeric::Numeric;
use crate::types::{SqlType, Width};
use crate::value::Cell;
use std::fmt;

/// The memory layout of values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Representation {
    /// One bit.
    Boolean,
    /// A signed integer of 2 bytes.
    Int16,
    /// A signed integer of 4 bytes.
    Int32,
    /// A signed integer of 8 bytes.
    Int64,
    /// An unsigned integer of 4 bytes: object identifiers, transaction ids.
    Oid,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// `unscaled · 10^-scale`, with one scale for all values.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, 0 to `precision`.
        scale: u8,
    },
    /// `unscaled · 10^-scale` with a scale for each value, not-a-number and infinities.
    Numeric,
    /// UTF-8, ordered by its bytes.
    Text,
    /// UTF-8, ordered by its bytes without trailing blanks: `character(n)`.
    PaddedText,
    /// Bytes.
    Bytes,
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 1970-01-01, local.
    Timestamp,
    /// Microseconds since 1970-01-01 UTC.
    TimestampTz,
    /// Months, days, nanoseconds.
    Interval,
    /// 16 bytes.
    Uuid,
    /// Any number of elements, in any number of dimensions. The element is neither a list nor a decimal of
    /// one scale: elements of arrays of numerics are [`Representation::Numeric`].
    List(&'static Representation),
    /// Fields, each with a type of its own.
    Record,
}

impl Representation {
    /// The layout of values in a block.
    pub fn width(self) -> Width {
        match self {
            Representation::Boolean => Width::Bit,
            Representation::Int16 => Width::Fixed(2),
            Representation::Int32 | Representation::Oid | Representation::Float32 | Representation::Date => {
                Width::Fixed(4)
            }
            Representation::Int64
            | Representation::Float64
            | Representation::Time
            | Representation::Timestamp
            | Representation::TimestampTz => Width::Fixed(8),
            Representation::Decimal { precision, .. } => Width::Fixed(if precision <= 18 { 8 } else { 16 }),
            Representation::Interval | Representation::Uuid => Width::Fixed(16),
            Representation::Numeric
            | Representation::Text
            | Representation::PaddedText
            | Representation::Bytes
            | Representation::List(_)
            | Representation::Record => Width::View,
        }
    }

    /// Whether values are character strings.
    pub fn is_string(self) -> bool {
        matches!(self, Representation::Text | Representation::PaddedText)
    }

    /// Whether a block holds an image of a value: bytes whose order and equality are not those of the value.
    pub fn is_image(self) -> bool {
        matches!(self, Representation::Numeric | Representation::List(_) | Representation::Record)
    }

    /// Whether bytes are valid for a representation without a fixed width: UTF-8 for strings, and an image
    /// for images. A caller that receives such bytes from outside checks them; cells are not checked again.
    pub fn admits_bytes(self, bytes: &[u8]) -> bool {
        match self {
            Representation::Text | Representation::PaddedText => std::str::from_utf8(bytes).is_ok(),
            Representation::Bytes => true,
            Representation::Numeric => Numeric::from_image(bytes).is_some(),
            Representation::List(element) => ArrayImage::new(bytes, *element).is_some_and(|image| {
                element.width() != Width::View
                    || (0..image.len()).all(|position| match image.cell(position) {
                        Cell::Null => true,
                        cell => element.admits_bytes(cell.bytes()),
                    })
            }),
            _ => false,
        }
    }

    /// Whether two values are equal exactly if their bits are. It is false for numerics (1.0 and 1.00),
    /// intervals (`1 mon` and `30 days`), padded text, floats (zeros of both signs) and lists and records of
    /// these.
    pub fn equality_is_of_bits(self) -> bool {
        match self {
            Representation::Numeric
            | Representation::Interval
            | Representation::PaddedText
            | Representation::Float32
            | Representation::Float64
            | Representation::Record => false,
            Representation::List(element) => element.equality_is_of_bits(),
            _ => true,
        }
    }

    /// The representation of lists of such elements. Panics if it is a list itself: arrays of arrays are
    /// arrays with more dimensions.
    pub fn list(self) -> Representation {
        Representation::List(match self {
            Representation::Boolean => &Representation::Boolean,
            Representation::Int16 => &Representation::Int16,
            Representation::Int32 => &Representation::Int32,
            Representation::Int64 => &Representation::Int64,
            Representation::Oid => &Representation::Oid,
            Representation::Float32 => &Representation::Float32,
            Representation::Float64 => &Representation::Float64,
            Representation::Decimal { .. } | Representation::Numeric => &Representation::Numeric,
            Representation::Text => &Representation::Text,
            Representation::PaddedText => &Representation::PaddedText,
            Representation::Bytes => &Representation::Bytes,
            Representation::Date => &Representation::Date,
            Representation::Time => &Representation::Time,
            Representation::Timestamp => &Representation::Timestamp,
            Representation::TimestampTz => &Representation::TimestampTz,
            Representation::Interval => &Representation::Interval,
            Representation::Uuid => &Representation::Uuid,
            Representation::Record => &Representation::Record,
            Representation::List(_) => panic!("the elements of a list are not lists"),
        })
    }
}

/// The names of representations without parameters, as stored in catalogs and files.
const NAMES: [(Representation, &str); 18] = [
    (Representation::Boolean, "boolean"),
    (Representation::Int16, "int16"),
    (Representation::Int32, "int32"),
    (Representation::Int64, "int64"),
    (Representation::Oid, "oid"),
    (Representation::Float32, "float32"),
    (Representation::Float64, "float64"),
    (Representation::Numeric, "numeric"),
    (Representation::Text, "text"),
    (Representation::PaddedText, "padded_text"),
    (Representation::Bytes, "bytes"),
    (Representation::Date, "date"),
    (Representation::Time, "time"),
    (Representation::Timestamp, "timestamp"),
    (Representation::TimestampTz, "timestamptz"),
    (Representation::Interval, "interval"),
    (Representation::Uuid, "uuid"),
    (Representation::Record, "record"),
];

impl fmt::Display for Representation {
    /// The name stored in catalogs and files: `int32`, `decimal(12,2)`, `list(int32)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Representation::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Representation::List(element) => write!(f, "list({element})"),
            other => {
                let (_, name) =
                    NAMES.iter().find(|(named, _)| named == other).expect("every representation has a name");
                f.write_str(name)
            }
        }
    }
}

impl Representation {
    /// The representation of that name.
    pub fn from_name(name: &str) -> Option<Representation> {
        let inside = |word: &str| name.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(element) = inside("list") {
            let element = Representation::from_name(element)?;
            let is_element = !matches!(element, Representation::List(_) | Representation::Decimal { .. });
            return is_element.then(|| element.list());
        }
        if let Some(inside) = inside("decimal") {
            let (precision, scale) = inside.split_once(',')?;
            let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
            return (scale <= precision && (1..=38).contains(&precision))
                .then_some(Representation::Decimal { precision, scale });
        }
        NAMES.iter().find(|(_, known)| *known == name).map(|(representation, _)| *representation)
    }
}

impl From<SqlType> for Representation {
    fn from(ty: SqlType) -> Representation {
        match ty {
            SqlType::Boolean => Representation::Boolean,
            SqlType::SmallInt => Representation::Int16,
            SqlType::Integer => Representation::Int32,
            SqlType::BigInt => Representation::Int64,
            SqlType::Real => Representation::Float32,
            SqlType::Double => Representation::Float64,
            SqlType::Numeric { precision, scale } => Representation::Decimal { precision, scale },
            SqlType::Text | SqlType::Varchar(_) => Representation::Text,
            SqlType::Char(_) => Representation::PaddedText,
            SqlType::Bytea => Representation::Bytes,
            SqlType::Date => Representation::Date,
            SqlType::Time => Representation::Time,
            SqlType::Timestamp => Representation::Timestamp,
            SqlType::TimestampTz => Representation::TimestampTz,
            SqlType::Interval => Representation::Interval,
            SqlType::Uuid => Representation::Uuid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_admitted_if_they_are_characters_or_images() {
        let texts = Representation::Text.list();
        let array = crate::ArrayValue::from(vec![crate::Value::Text("ü".to_owned())]);
        let image = array.image(Representation::Text);
        assert!(texts.admits_bytes(&image));
        assert!(!texts.admits_bytes(&image[..image.len() - 1]), "an element is truncated");
        let mut torn = image.clone();
        *torn.last_mut().expect("it has bytes") = b'a';
        assert!(!texts.admits_bytes(&torn), "an element is not UTF-8");
        assert!(Representation::Numeric.admits_bytes(&[2, 0, 5]));
        assert!(!Representation::Numeric.admits_bytes(&[2]));
        assert!(!Representation::Text.admits_bytes(&[0xff]) && Representation::Bytes.admits_bytes(&[0xff]));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let decimals =
            [(12, 2), (38, 0)].map(|(precision, scale)| Representation::Decimal { precision, scale });
        let lists = NAMES.map(|(element, _)| element.list());
        for representation in NAMES.map(|(named, _)| named).into_iter().chain(decimals).chain(lists) {
            assert_eq!(Representation::from_name(&representation.to_string()), Some(representation));
        }
        for name in [
            "",
            "int",
            "list",
            "list()",
            "list(list(int32))",
            "list(decimal(1,0))",
            "decimal(39,0)",
            "decimal(2,3)",
        ] {
            assert_eq!(Representation::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_list_takes_the_general_form_of_its_elements() {
        let decimal = Representation::Decimal { precision: 12, scale: 2 };
        assert_eq!(decimal.list(), Representation::List(&Representation::Numeric));
        assert!(!decimal.list().equality_is_of_bits(), "1.0 and 1.00 are equal within arrays as well");
        assert!(Representation::Int32.list().equality_is_of_bits());
    }
}
