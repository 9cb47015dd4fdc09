//! Comparisons of whole vectors: of integers, dates, times and timestamps, decimals, and strings for equality.
//!
//! A comparison with a constant is a range: `x < 5` is `x` in `[min, 4]`. The bounds are computed once in 128 bits, in units of the
//! column, so that a constant of a finer scale, of another type or beyond the range of the column compares right, and each row costs two
//! comparisons of the column's own width. Two columns of different units are brought to the finer one.

use crate::data::Data;
use crate::kernel::Signature;
use crate::kernel::batch::{bits, bits_of_pairs, validity};
use crate::selection::Rows;
use crate::strings::{INLINE, Strings, view};
use crate::vector::Vector;
use arrow_buffer::BooleanBuffer;
use firn_base::Representation;
use firn_base::datetime::MICROS_PER_DAY;
use firn_base::numeric::{Numeric, power_of_ten};
use std::cmp::Ordering;

/// What is asked of two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// `<>`
    NotEqual,
}

impl Test {
    /// All, with the ends of the names of their functions.
    pub const ALL: [(&'static str, Test); 6] = [
        ("lt", Test::Less),
        ("le", Test::LessOrEqual),
        ("eq", Test::Equal),
        ("ge", Test::GreaterOrEqual),
        ("gt", Test::Greater),
        ("ne", Test::NotEqual),
    ];

    /// Whether values in this order pass.
    #[inline]
    pub fn accepts(self, order: Ordering) -> bool {
        match self {
            Test::Less => order.is_lt(),
            Test::LessOrEqual => order.is_le(),
            Test::Equal => order.is_eq(),
            Test::GreaterOrEqual => order.is_ge(),
            Test::Greater => order.is_gt(),
            Test::NotEqual => order.is_ne(),
        }
    }

    /// The same test of the values the other way round.
    fn flipped(self) -> Test {
        match self {
            Test::Less => Test::Greater,
            Test::LessOrEqual => Test::GreaterOrEqual,
            Test::GreaterOrEqual => Test::LessOrEqual,
            Test::Greater => Test::Less,
            Test::Equal | Test::NotEqual => self,
        }
    }
}

/// The loop for a comparison of two vectors, if there is one.
pub fn compare(test: Test, _: &Signature, arguments: &[Vector], _: Rows<'_>) -> Option<Vector> {
    let [left, right] = arguments else { return None };
    let validity = validity(arguments)?;
    let bits = match (left.is_constant(), right.is_constant()) {
        (true, true) => return None,
        (false, true) => with_constant(test, left, right)?,
        (true, false) => with_constant(test.flipped(), right, left)?,
        (false, false) => of_columns(test, left, right)?,
    };
    Some(Vector::flat(Representation::Boolean, Data::Boolean(bits), validity))
}

/// In which units values of a representation count.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    /// Numbers with so many decimals.
    Decimals(u16),
    /// Days and microseconds of the clock.
    Days,
    Micros,
    /// Microseconds of the day, and those of UTC, which compare only with their like.
    Time,
    Utc,
}

fn unit(representation: Representation) -> Option<Unit> {
    Some(match representation {
        Representation::Int16 | Representation::Int32 | Representation::Int64 => Unit::Decimals(0),
        Representation::Decimal { scale, .. } => Unit::Decimals(scale.into()),
        Representation::Date => Unit::Days,
        Representation::Timestamp => Unit::Micros,
        Representation::Time => Unit::Time,
        Representation::TimestampTz => Unit::Utc,
        _ => return None,
    })
}

/// How many of the finer unit make one of the coarser.
#[derive(Clone, Copy)]
enum Ratio {
    /// One of the left unit is so many of the right.
    Left(i128),
    /// One of the right unit is so many of the left.
    Right(i128),
    /// One of the left unit is more of the right than any value has.
    Vast,
}

fn ratio(left: Unit, right: Unit) -> Option<Ratio> {
    Some(match (left, right) {
        (Unit::Decimals(left), Unit::Decimals(right)) if left <= right => {
            power_of_ten(u32::from(right - left)).map_or(Ratio::Vast, Ratio::Left)
        }
        (Unit::Decimals(left), Unit::Decimals(right)) => Ratio::Right(power_of_ten(u32::from(left - right))?),
        (Unit::Days, Unit::Micros) => Ratio::Left(MICROS_PER_DAY.into()),
        (Unit::Micros, Unit::Days) => Ratio::Right(MICROS_PER_DAY.into()),
        (left, right) if left == right => Ratio::Left(1),
        _ => return None,
    })
}

/// The one value of a constant, in whole units. NaN and infinities lie beyond all values.
fn constant(vector: &Vector) -> Option<(i128, Unit)> {
    let unit = || unit(vector.representation());
    Some(match vector.data()? {
        Data::Int16(values) => (values[0].into(), unit()?),
        Data::Int32(values) => (values[0].into(), unit()?),
        Data::Int64(values) => (values[0].into(), unit()?),
        Data::Int128(values) => (values[0], unit()?),
        Data::Numeric(values) => match values.value(0).normalized() {
            value if value == Numeric::NEGATIVE_INFINITY => (i128::MIN, Unit::Decimals(0)),
            value => value.number().map_or((i128::MAX, Unit::Decimals(0)), |(unscaled, scale)| {
                (unscaled, Unit::Decimals(scale))
            }),
        },
        _ => return None,
    })
}

/// Whether it is the infinite value of a date or timestamp.
fn is_infinite(value: i128, unit: Unit) -> bool {
    match unit {
        Unit::Days => value == i32::MAX.into() || value == i32::MIN.into(),
        Unit::Micros => value == i64::MAX.into() || value == i64::MIN.into(),
        _ => false,
    }
}

fn with_constant(test: Test, column: &Vector, vector: &Vector) -> Option<BooleanBuffer> {
    if let (Data::Strings(strings), Data::Strings(constant)) = (column.data()?, vector.data()?) {
        return equal_to_string(test, column.representation(), strings, constant.bytes(0));
    }
    let (value, of_constant) = constant(vector)?;
    if is_infinite(value, of_constant) && unit(column.representation())? != of_constant {
        // An infinite date is no number of an infinite timestamp's microseconds.
        return None;
    }
    let range = Range::of(test, value, ratio(unit(column.representation())?, of_constant)?);
    match column.data()? {
        Data::Int16(values) => Some(range.bits(values, i16::MIN, i16::MAX, |bound| bound as i16)),
        Data::Int32(values) => Some(range.bits(values, i32::MIN, i32::MAX, |bound| bound as i32)),
        Data::Int64(values) => Some(range.bits(values, i64::MIN, i64::MAX, |bound| bound as i64)),
        Data::Int128(values) => Some(range.bits(values, i128::MIN, i128::MAX, |bound| bound)),
        _ => None,
    }
}

/// The values that pass: those between two bounds, or all others. The lower bound is larger than the upper one if none lies between.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: i128,
    high: i128,
    negated: bool,
}

impl Range {
    const EMPTY: (i128, i128) = (i128::MAX, i128::MIN);

    /// The values of a column that pass a test with a constant.
    fn of(test: Test, constant: i128, ratio: Ratio) -> Range {
        // The constant in units of the column, rounded down, and whether it is exact.
        let (floor, is_exact) = match ratio {
            Ratio::Right(of_column) => (constant.saturating_mul(of_column), true),
            Ratio::Left(_) if matches!(constant, i128::MIN | i128::MAX) => (constant, true),
            Ratio::Left(of_constant) => {
                (constant.div_euclid(of_constant), constant.rem_euclid(of_constant) == 0)
            }
            Ratio::Vast => (if constant < 0 { -1 } else { 0 }, constant == 0),
        };
        // `x < c` if x is at most the largest whole number below c; `x >= c` is the opposite.
        let below = if is_exact { floor.checked_sub(1) } else { Some(floor) };
        let up_to = |high| (i128::MIN, high);
        let (low, high) = match test {
            Test::Equal | Test::NotEqual if is_exact => (floor, floor),
            Test::Equal | Test::NotEqual => Range::EMPTY,
            Test::Less | Test::GreaterOrEqual => below.map_or(Range::EMPTY, up_to),
            Test::LessOrEqual | Test::Greater => up_to(floor),
        };
        let negated = matches!(test, Test::NotEqual | Test::GreaterOrEqual | Test::Greater);
        Range { low, high, negated }
    }

    /// The bitmap of the values of a type that pass.
    fn bits<T: Copy + PartialOrd + Into<i128>>(
        self,
        values: &[T],
        least: T,
        most: T,
        narrow: impl Fn(i128) -> T,
    ) -> BooleanBuffer {
        let (low, high) = (self.low.max(least.into()), self.high.min(most.into()));
        if low > high {
            return match self.negated {
                true => BooleanBuffer::new_set(values.len()),
                false => BooleanBuffer::new_unset(values.len()),
            };
        }
        let (low, high) = (narrow(low), narrow(high));
        match (low == least, low == high) {
            (true, _) => bits(values, self.negated, |value| value <= high),
            (_, true) => bits(values, self.negated, |value| value == low),
            _ => bits(values, self.negated, |value| (value >= low) & (value <= high)),
        }
    }
}

fn of_columns(test: Test, left: &Vector, right: &Vector) -> Option<BooleanBuffer> {
    let (left_data, right_data) = (left.data()?, right.data()?);
    if let (Data::Strings(left_strings), Data::Strings(right_strings)) = (left_data, right_data) {
        let is_text = [left, right].iter().all(|side| side.representation() == Representation::Text);
        return is_text.then(|| equal_strings(test, left_strings, right_strings)).flatten();
    }
    let units = (unit(left.representation())?, unit(right.representation())?);
    if matches!(units, (Unit::Days, Unit::Micros) | (Unit::Micros, Unit::Days)) {
        // Infinite values are in no ratio.
        return None;
    }
    let ratio = ratio(units.0, units.1)?;
    match (left_data, right_data, ratio) {
        (Data::Int16(left), Data::Int16(right), Ratio::Left(1)) => Some(pairs(test, left, right)),
        (Data::Int32(left), Data::Int32(right), Ratio::Left(1)) => Some(pairs(test, left, right)),
        (Data::Int64(left), Data::Int64(right), Ratio::Left(1)) => Some(pairs(test, left, right)),
        (Data::Int128(left), Data::Int128(right), Ratio::Left(1)) => Some(pairs(test, left, right)),
        (_, _, Ratio::Vast) => None,
        (Data::Int128(_), ..) | (_, Data::Int128(_), _) => {
            let (by_left, by_right) = factors(ratio);
            fits(left, by_left)?;
            fits(right, by_right)?;
            Some(pairs(test, &raised(left_data, by_left)?, &raised(right_data, by_right)?))
        }
        _ => {
            let (by_left, by_right) = factors(ratio);
            match (raised_narrow(left, by_left), raised_narrow(right, by_right)) {
                (Some(left), Some(right)) => Some(pairs(test, &left, &right)),
                _ => Some(pairs(test, &raised(left_data, by_left)?, &raised(right_data, by_right)?)),
            }
        }
    }
}

fn factors(ratio: Ratio) -> (i128, i128) {
    match ratio {
        Ratio::Left(factor) => (factor, 1),
        Ratio::Right(factor) => (1, factor),
        Ratio::Vast => panic!("there is no common unit"),
    }
}

/// Whether every decimal of a vector of 128 bits, times a power of ten, has at most 38 digits.
fn fits(vector: &Vector, factor: i128) -> Option<()> {
    match vector.representation() {
        Representation::Decimal { precision, .. } => {
            (u32::from(precision) + factor.ilog10() <= 38).then_some(())
        }
        // 19 digits.
        _ => (19 + factor.ilog10() <= 38).then_some(()),
    }
}

/// Values in units of which so many make one of theirs. Values of 64 bits fit whatever the factor is, up to 10^18.
fn raised(data: &Data, factor: i128) -> Option<Vec<i128>> {
    Some(match data {
        Data::Int16(values) => values.iter().map(|value| i128::from(*value).wrapping_mul(factor)).collect(),
        Data::Int32(values) => values.iter().map(|value| i128::from(*value).wrapping_mul(factor)).collect(),
        Data::Int64(values) => values.iter().map(|value| i128::from(*value).wrapping_mul(factor)).collect(),
        Data::Int128(values) => values.iter().map(|value| value.wrapping_mul(factor)).collect(),
        _ => return None,
    })
}

/// As [`raised`], in 64 bits; `None` if a value of the representation may not fit.
fn raised_narrow(vector: &Vector, factor: i128) -> Option<Vec<i64>> {
    let digits = match vector.representation() {
        Representation::Int16 => 5,
        Representation::Int32 => 10,
        Representation::Decimal { precision, .. } => u32::from(precision),
        _ if factor == 1 => 0,
        _ => return None,
    };
    (digits + factor.ilog10() <= 18).then_some(())?;
    let factor = factor as i64;
    Some(match vector.data()? {
        Data::Int16(values) => values.iter().map(|value| i64::from(*value).wrapping_mul(factor)).collect(),
        Data::Int32(values) => values.iter().map(|value| i64::from(*value).wrapping_mul(factor)).collect(),
        Data::Int64(values) => values.iter().map(|value| value.wrapping_mul(factor)).collect(),
        _ => return None,
    })
}

fn pairs<T: Copy + Ord>(test: Test, left: &[T], right: &[T]) -> BooleanBuffer {
    let negated = matches!(test, Test::NotEqual | Test::GreaterOrEqual | Test::LessOrEqual);
    match test {
        Test::Equal | Test::NotEqual => bits_of_pairs(left, right, negated, |left, right| left == right),
        Test::Less | Test::GreaterOrEqual => bits_of_pairs(left, right, negated, |left, right| left < right),
        Test::Greater | Test::LessOrEqual => bits_of_pairs(right, left, negated, |right, left| right < left),
    }
}

/// Equality with a string. A view holds a short string whole, with zeros behind it, and length and first bytes of a long one.
fn equal_to_string(
    test: Test,
    representation: Representation,
    strings: &Strings,
    constant: &[u8],
) -> Option<BooleanBuffer> {
    let negated = negation(test)?;
    match representation {
        Representation::Text if constant.len() <= INLINE => {
            let constant = view(constant, 0, 0);
            Some(bits(strings.views(), negated, |view| view == constant))
        }
        Representation::Text => {
            let head = view(constant, 0, 0) as u64;
            Some(bits_of_rows(strings.len(), negated, |row| {
                strings.views()[row] as u64 == head && strings.bytes(row) == constant
            }))
        }
        Representation::PaddedText => {
            let constant = without_blanks(constant);
            Some(bits_of_rows(strings.len(), negated, |row| {
                let bytes = strings.bytes(row);
                bytes.starts_with(constant) && bytes[constant.len()..].iter().all(|byte| *byte == b' ')
            }))
        }
        _ => None,
    }
}

fn equal_strings(test: Test, left: &Strings, right: &Strings) -> Option<BooleanBuffer> {
    let negated = negation(test)?;
    Some(bits_of_rows(left.len(), negated, |row| {
        let (a, b) = (left.views()[row], right.views()[row]);
        a as u64 == b as u64
            && match a as u32 as usize <= INLINE {
                true => a == b,
                false => left.bytes(row) == right.bytes(row),
            }
    }))
}

fn negation(test: Test) -> Option<bool> {
    match test {
        Test::Equal => Some(false),
        Test::NotEqual => Some(true),
        _ => None,
    }
}

fn bits_of_rows(length: usize, negated: bool, test: impl Fn(usize) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(length, |row| test(row) != negated)
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &bytes[..end]
}
