//! Values: [`Value`] is what users pass and receive, typed and owned; [`Cell`] is what storage reads and
//! writes, untyped, borrowed and fast to copy.
//!
//! The cell of a numeric with a scale of its own, and that of an array, holds its image: bytes that are not
//! part of the value. [`Stored`] owns them.

use crate::array::{ArrayImage, ArrayValue};
use crate::numeric::{Numeric, NumericImage};
use crate::representation::Representation;
use crate::types::{SqlType, Width};

/// An SQL value with its type.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// NULL of any type
    Null,
    /// boolean
    Boolean(bool),
    /// smallint
    SmallInt(i16),
    /// integer
    Integer(i32),
    /// bigint
    BigInt(i64),
    /// real
    Real(f32),
    /// double precision
    Double(f64),
    /// numeric of a column with one scale: `unscaled · 10^-scale`
    Numeric {
        /// The digits as an integer.
        unscaled: i128,
        /// The number of digits after the point.
        scale: u8,
    },
    /// text, varchar, char
    Text(String),
    /// bytea
    Bytea(Vec<u8>),
    /// date: days since 1970-01-01
    Date(i32),
    /// time: microseconds since midnight
    Time(i64),
    /// timestamp: microseconds since 1970-01-01
    Timestamp(i64),
    /// timestamptz: microseconds since 1970-01-01 UTC
    TimestampTz(i64),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// numeric with a scale of its own, NaN or infinite
    Number(Numeric),
    /// oid, xid, regclass and their like
    Oid(u32),
    /// An array.
    Array(ArrayValue),
}

impl Value {
    /// Whether a cast to `ty` would leave the value unchanged, as far as its kind decides it: strings and
    /// numbers of limited size may have to be truncated or widened.
    #[inline]
    pub fn is_of(&self, ty: SqlType) -> bool {
        matches!(
            (self, ty),
            (Value::Null, _)
                | (Value::Boolean(_), SqlType::Boolean)
                | (Value::SmallInt(_), SqlType::SmallInt)
                | (Value::Integer(_), SqlType::Integer)
                | (Value::BigInt(_), SqlType::BigInt)
                | (Value::Real(_), SqlType::Real)
                | (Value::Double(_), SqlType::Double)
                | (Value::Text(_), SqlType::Text | SqlType::Varchar(None))
                | (Value::Bytea(_), SqlType::Bytea)
                | (Value::Date(_), SqlType::Date)
                | (Value::Time(_), SqlType::Time)
                | (Value::Timestamp(_), SqlType::Timestamp)
                | (Value::TimestampTz(_), SqlType::TimestampTz)
                | (Value::Interval(_), SqlType::Interval)
                | (Value::Uuid(_), SqlType::Uuid)
        )
    }
}

/// An interval in three parts that do not convert into each other. Laid out as Arrow's
/// `IntervalMonthDayNano`: months, days, then nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interval {
    /// Whole months.
    pub months: i32,
    /// Whole days.
    pub days: i32,
    /// The rest, in nanoseconds (SQL values are whole microseconds).
    pub nanoseconds: i64,
}

impl Interval {
    /// The words of a cell that holds it.
    #[inline]
    pub fn to_words(self) -> [u64; 2] {
        [u64::from(self.months as u32) | u64::from(self.days as u32) << 32, self.nanoseconds as u64]
    }

    /// The interval that a cell of these words holds.
    #[inline]
    pub fn from_words([low, high]: [u64; 2]) -> Interval {
        Interval { months: low as u32 as i32, days: (low >> 32) as u32 as i32, nanoseconds: high as i64 }
    }
}

/// The words of a cell that holds a uuid.
#[inline]
pub fn uuid_to_words(uuid: [u8; 16]) -> [u64; 2] {
    let bits = u128::from_le_bytes(uuid);
    [bits as u64, (bits >> 64) as u64]
}

/// The uuid that a cell of these words holds.
#[inline]
pub fn uuid_from_words([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// One column of one row in storage. The column's type determines the meaning of the bits.
///
/// Fixed widths of up to 8 bytes are zero-extended bit patterns; booleans are 0 or 1.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// NULL
    Null,
    /// 1 bit to 8 bytes
    Word(u64),
    /// 16 bytes: low word, high word
    Wide([u64; 2]),
    /// Up to 12 bytes of a string that was inline in its view: length, bytes
    Inline(u8, [u8; 12]),
    /// A string
    Bytes(&'a [u8]),
}

impl<'a> Cell<'a> {
    /// A boolean.
    #[inline]
    pub fn boolean(value: bool) -> Cell<'a> {
        Cell::Word(u64::from(value))
    }

    /// A smallint.
    #[inline]
    pub fn i16(value: i16) -> Cell<'a> {
        Cell::Word(u64::from(value as u16))
    }

    /// An integer or a date.
    #[inline]
    pub fn i32(value: i32) -> Cell<'a> {
        Cell::Word(u64::from(value as u32))
    }

    /// A bigint, a time, a timestamp or a numeric of up to 18 digits (unscaled).
    #[inline]
    pub fn i64(value: i64) -> Cell<'a> {
        Cell::Word(value as u64)
    }

    /// A double.
    #[inline]
    pub fn f64(value: f64) -> Cell<'a> {
        Cell::Word(value.to_bits())
    }

    /// A real.
    #[inline]
    pub fn f32(value: f32) -> Cell<'a> {
        Cell::Word(u64::from(value.to_bits()))
    }

    /// A numeric of more than 18 digits (unscaled).
    #[inline]
    pub fn i128(value: i128) -> Cell<'a> {
        Cell::Wide([value as u64, (value as u128 >> 64) as u64])
    }

    /// A character string.
    #[inline]
    pub fn text(value: &'a str) -> Cell<'a> {
        Cell::Bytes(value.as_bytes())
    }

    /// Whether this is NULL.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Cell::Null)
    }

    /// Whether two cells of one column hold the same bits or characters.
    pub fn is_same(&self, other: &Cell<'_>) -> bool {
        match (self, other) {
            (Cell::Null, Cell::Null) => true,
            (Cell::Word(left), Cell::Word(right)) => left == right,
            (Cell::Wide(left), Cell::Wide(right)) => left == right,
            (Cell::Inline(..) | Cell::Bytes(_), Cell::Inline(..) | Cell::Bytes(_)) => {
                self.bytes() == other.bytes()
            }
            _ => false,
        }
    }

    /// The low word of a fixed-width cell. Panics on a string or NULL.
    #[inline]
    pub fn word(&self) -> u64 {
        match self {
            Cell::Word(word) => *word,
            Cell::Wide(words) => words[0],
            other => panic!("{other:?} is not a fixed-width cell"),
        }
    }

    /// As an integer or date.
    #[inline]
    pub fn as_i32(&self) -> i32 {
        self.word() as u32 as i32
    }

    /// As a bigint or anything stored like one.
    #[inline]
    pub fn as_i64(&self) -> i64 {
        self.word() as i64
    }

    /// The bytes of a string cell. Panics on a fixed-width cell or NULL.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Cell::Bytes(bytes) => bytes,
            Cell::Inline(length, bytes) => &bytes[..usize::from(*length)],
            other => panic!("{other:?} is not a string cell"),
        }
    }

    /// The characters of a text cell; storage holds only valid UTF-8 in text columns.
    #[inline]
    pub fn str(&self) -> &str {
        let bytes = self.bytes();
        debug_assert!(std::str::from_utf8(bytes).is_ok());
        // SAFETY: every value of a text column comes from a `str` or is checked to be UTF-8 (`load`, `wire`).
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }

    /// The owned, typed value of a cell of a column with this representation. Panics if it has another one,
    /// or if it is not a valid image.
    pub fn to_value(&self, representation: impl Into<Representation>) -> Value {
        if self.is_null() {
            return Value::Null;
        }
        match representation.into() {
            Representation::Boolean => Value::Boolean(self.word() != 0),
            Representation::Int16 => Value::SmallInt(self.word() as u16 as i16),
            Representation::Int32 => Value::Integer(self.as_i32()),
            Representation::Int64 => Value::BigInt(self.as_i64()),
            Representation::Oid => Value::Oid(self.word() as u32),
            Representation::Float32 => Value::Real(f32::from_bits(self.word() as u32)),
            Representation::Float64 => Value::Double(f64::from_bits(self.word())),
            Representation::Decimal { scale, .. } => Value::Numeric {
                unscaled: match self {
                    Cell::Wide(words) => (u128::from(words[1]) << 64 | u128::from(words[0])) as i128,
                    _ => i128::from(self.as_i64()),
                },
                scale,
            },
            Representation::Numeric => Value::Number(self.as_numeric()),
            Representation::Text | Representation::PaddedText => Value::Text(self.str().to_owned()),
            Representation::Bytes => Value::Bytea(self.bytes().to_owned()),
            Representation::Date => Value::Date(self.as_i32()),
            Representation::Time => Value::Time(self.as_i64()),
            Representation::Timestamp => Value::Timestamp(self.as_i64()),
            Representation::TimestampTz => Value::TimestampTz(self.as_i64()),
            Representation::Interval => {
                let Cell::Wide(words) = *self else { panic!("interval cells are wide") };
                Value::Interval(Interval::from_words(words))
            }
            Representation::Uuid => {
                let Cell::Wide(words) = *self else { panic!("uuid cells are wide") };
                Value::Uuid(uuid_from_words(words))
            }
            Representation::List(element) => Value::Array(self.as_array(*element).to_value()),
            Representation::Record => panic!("no column holds records"),
        }
    }

    /// A numeric with a scale of its own. Panics if the cell is not an image of one.
    #[inline]
    pub fn as_numeric(&self) -> Numeric {
        Numeric::from_image(self.bytes()).expect("the column holds images of numerics")
    }

    /// An array with such elements. Panics if the cell is not an image of one.
    #[inline]
    pub fn as_array(&self, element: Representation) -> ArrayImage<'_> {
        ArrayImage::new(self.bytes(), element).expect("the column holds images of arrays")
    }
}

/// A cell with the bytes that are not part of the value from which it was made.
pub enum Stored<'a> {
    /// A cell without such bytes.
    Cell(Cell<'a>),
    /// The image of a numeric.
    Numeric(NumericImage),
    /// The image of an array.
    Array(Vec<u8>),
}

impl Stored<'_> {
    /// The cell.
    #[inline]
    pub fn cell(&self) -> Cell<'_> {
        match self {
            Stored::Cell(cell) => *cell,
            Stored::Numeric(image) => Cell::Bytes(image.bytes()),
            Stored::Array(image) => Cell::Bytes(image),
        }
    }
}

impl Value {
    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The cell that stores this value in a column with this representation, which has no images: see
    /// [`Value::stored`]. The value must already have been coerced to its type (`numeric` to its scale,
    /// strings to their length); panics otherwise.
    pub fn as_cell(&self, representation: impl Into<Representation>) -> Cell<'_> {
        let representation = representation.into();
        self.cell_of(representation).unwrap_or_else(|| panic!("{self:?} was not coerced to {representation}"))
    }

    /// The stored form of this value in a column with this representation, to which it must already have been
    /// coerced; panics otherwise.
    pub fn stored(&self, representation: Representation) -> Stored<'_> {
        match (self, representation) {
            (Value::Number(value), Representation::Numeric) => Stored::Numeric(value.image()),
            (Value::Numeric { unscaled, scale }, Representation::Numeric) => {
                Stored::Numeric(Numeric::from_decimal(*unscaled, *scale).image())
            }
            (Value::Array(array), Representation::List(element)) => Stored::Array(array.image(*element)),
            _ => match self.cell_of(representation) {
                Some(cell) => Stored::Cell(cell),
                None => panic!("{self:?} was not coerced to {representation}"),
            },
        }
    }

    /// The cell that needs no bytes but those of the value; `None` if the value has another representation.
    fn cell_of(&self, representation: Representation) -> Option<Cell<'_>> {
        Some(match (self, representation) {
            (Value::Null, _) => Cell::Null,
            (Value::Boolean(value), Representation::Boolean) => Cell::boolean(*value),
            (Value::SmallInt(value), Representation::Int16) => Cell::i16(*value),
            (Value::Integer(value), Representation::Int32) => Cell::i32(*value),
            (Value::BigInt(value), Representation::Int64) => Cell::i64(*value),
            (Value::Oid(value), Representation::Oid) => Cell::Word(u64::from(*value)),
            (Value::Real(value), Representation::Float32) => Cell::f32(*value),
            (Value::Double(value), Representation::Float64) => Cell::f64(*value),
            (Value::Numeric { unscaled, scale }, Representation::Decimal { scale: wanted, .. })
                if *scale == wanted =>
            {
                match representation.width() {
                    Width::Fixed(8) => Cell::i64(*unscaled as i64),
                    _ => Cell::i128(*unscaled),
                }
            }
            (Value::Text(value), Representation::Text | Representation::PaddedText) => {
                Cell::Bytes(value.as_bytes())
            }
            (Value::Bytea(value), Representation::Bytes) => Cell::Bytes(value),
            (Value::Date(value), Representation::Date) => Cell::i32(*value),
            (Value::Time(value), Representation::Time)
            | (Value::Timestamp(value), Representation::Timestamp)
            | (Value::TimestampTz(value), Representation::TimestampTz) => Cell::i64(*value),
            (Value::Interval(value), Representation::Interval) => Cell::Wide(value.to_words()),
            (Value::Uuid(value), Representation::Uuid) => Cell::Wide(uuid_to_words(*value)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_the_way_into_a_cell_and_back() {
        let cases = [
            (Value::Null, SqlType::Integer),
            (Value::Boolean(true), SqlType::Boolean),
            (Value::SmallInt(-3), SqlType::SmallInt),
            (Value::Integer(i32::MIN), SqlType::Integer),
            (Value::BigInt(-1), SqlType::BigInt),
            (Value::Real(-0.5), SqlType::Real),
            (Value::Double(1e300), SqlType::Double),
            (Value::Numeric { unscaled: -12345, scale: 2 }, SqlType::Numeric { precision: 12, scale: 2 }),
            (
                Value::Numeric { unscaled: -(10i128.pow(37)), scale: 2 },
                SqlType::Numeric { precision: 38, scale: 2 },
            ),
            (Value::Text("firn".into()), SqlType::Text),
            (Value::Bytea(vec![0, 255]), SqlType::Bytea),
            (Value::Date(-1), SqlType::Date),
            (Value::Time(86_399_999_999), SqlType::Time),
            (Value::Timestamp(-1), SqlType::Timestamp),
            (Value::TimestampTz(1), SqlType::TimestampTz),
            (Value::Interval(Interval { months: -1, days: 2, nanoseconds: -3000 }), SqlType::Interval),
            (Value::Uuid([7; 16]), SqlType::Uuid),
        ];
        for (value, ty) in cases {
            assert_eq!(value.as_cell(ty).to_value(ty), value);
        }
    }

    #[test]
    fn numerics_oids_and_arrays_are_stored_and_come_back() {
        let number = |text: &str| Value::Number(Numeric::parse(text).expect("it is a number"));
        let numerics = Representation::List(&Representation::Numeric);
        let array = Value::Array([number("1.00"), Value::Null].into_iter().collect());
        for (value, representation) in [
            (Value::Null, Representation::Numeric),
            (number("1.00"), Representation::Numeric),
            (number("NaN"), Representation::Numeric),
            (Value::Oid(u32::MAX), Representation::Oid),
            (array, numerics),
        ] {
            let back = value.stored(representation).cell().to_value(representation);
            // Decimals count as well, which equality ignores.
            assert_eq!(format!("{back:?}"), format!("{value:?}"));
        }
        let decimal = Value::Numeric { unscaled: 150, scale: 2 };
        let stored = decimal.stored(Representation::Numeric);
        assert_eq!(stored.cell().as_numeric().to_string(), "1.50");
    }
}
