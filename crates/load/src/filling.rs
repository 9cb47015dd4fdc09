//! Columns as they fill up with the fields of a chunk.
//!
//! Most fields are taken the quick way, by code for the type alone; what that does not know is read as everywhere else.

use crate::columns::ColumnBuilder;
use crate::number;
use arrow_array::builder::{NullBufferBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, StringViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, TimeZoneSetting, datetime, numeric, text};
use std::ops::Range;

/// A column under construction.
pub(crate) trait Filling {
    /// Whether [`Filling::quick`] takes whatever it is given, quotes included.
    const TAKES_ANYTHING: bool = false;

    /// Appends NULL.
    fn null(&mut self);

    /// Appends a field that stands for itself; whether it could.
    fn quick(&mut self, chunk: &[u8], field: Range<usize>) -> bool;

    /// Appends a value, or says what is wrong with it.
    fn long(&mut self, field: &str) -> Result<()>;
}

/// Whoever fills columns, whatever their types.
pub(crate) trait Filler {
    /// Appends the fields of so many rows.
    fn fill(&mut self, column: &mut impl Filling);
}

/// What fields are read from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'c> {
    /// The memory that strings may stay in.
    pub chunk: &'c Buffer,
    pub is_ascii: bool,
    /// How many rows there are.
    pub rows: usize,
    /// What moments are in that name no zone.
    pub zone: TimeZoneSetting,
}

/// Has a column of a type filled.
pub(crate) fn column(ty: SqlType, source: Source<'_>, filler: &mut impl Filler) -> ArrayRef {
    let Source { rows, zone, .. } = source;
    match ty {
        SqlType::SmallInt => numbers::<Int16Type>(
            PrimitiveBuilder::with_capacity(rows),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::Integer => numbers::<Int32Type>(
            PrimitiveBuilder::with_capacity(rows),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::BigInt => numbers::<Int64Type>(
            PrimitiveBuilder::with_capacity(rows),
            number::integer,
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::Real => numbers::<Float32Type>(
            PrimitiveBuilder::with_capacity(rows),
            |_, _| None,
            text::parse_real,
            filler,
        ),
        SqlType::Double => numbers::<Float64Type>(
            PrimitiveBuilder::with_capacity(rows),
            number::double,
            text::parse_double,
            filler,
        ),
        SqlType::Numeric { precision, scale } => {
            let decimals = PrimitiveBuilder::<Decimal128Type>::with_capacity(rows)
                .with_precision_and_scale(precision, scale as i8)
                .expect("SqlType keeps precision and scale in range");
            // What is read quickly has sixteen digits at most.
            let bound = 10_u64.pow(u32::from(precision.min(18)));
            numbers(
                decimals,
                |chunk, field| {
                    let value = number::decimal(chunk, field, usize::from(scale))?;
                    (value.unsigned_abs() < bound).then_some(i128::from(value))
                },
                |field| numeric::parse_as(field, precision, scale),
                filler,
            )
        }
        SqlType::Date => numbers::<Date32Type>(
            PrimitiveBuilder::with_capacity(rows),
            number::date,
            datetime::parse_date,
            filler,
        ),
        SqlType::Timestamp => numbers::<TimestampMicrosecondType>(
            PrimitiveBuilder::with_capacity(rows),
            number::timestamp,
            datetime::parse_timestamp,
            filler,
        ),
        SqlType::TimestampTz => numbers::<TimestampMicrosecondType>(
            PrimitiveBuilder::with_capacity(rows).with_timezone("UTC"),
            |_, _| None,
            |field| datetime::parse_timestamptz(field, &zone),
            filler,
        ),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let mut strings = Strings {
                ty,
                source,
                views: Vec::with_capacity(rows),
                nulls: NullBufferBuilder::new(rows),
                rewritten: Vec::new(),
            };
            filler.fill(&mut strings);
            strings.finish()
        }
        SqlType::Boolean | SqlType::Bytea | SqlType::Time | SqlType::Interval | SqlType::Uuid => {
            let mut builder = ColumnBuilder::new(ty, zone);
            filler.fill(&mut builder);
            builder.finish()
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(
    builder: PrimitiveBuilder<T>,
    quick: impl Fn(&[u8], Range<usize>) -> Option<T::Native>,
    long: impl Fn(&str) -> Result<T::Native>,
    filler: &mut impl Filler,
) -> ArrayRef {
    let mut numbers = Numbers { builder, quick, long };
    filler.fill(&mut numbers);
    Arc::new(numbers.builder.finish())
}

struct Numbers<T: ArrowPrimitiveType, Q, L> {
    builder: PrimitiveBuilder<T>,
    quick: Q,
    long: L,
}

impl<T, Q, L> Filling for Numbers<T, Q, L>
where
    T: ArrowPrimitiveType,
    Q: Fn(&[u8], Range<usize>) -> Option<T::Native>,
    L: Fn(&str) -> Result<T::Native>,
{
    #[inline]
    fn null(&mut self) {
        self.builder.append_null();
    }

    #[inline]
    fn quick(&mut self, chunk: &[u8], field: Range<usize>) -> bool {
        let Some(value) = (self.quick)(chunk, field) else { return false };
        self.builder.append_value(value);
        true
    }

    fn long(&mut self, field: &str) -> Result<()> {
        self.builder.append_value((self.long)(field)?);
        Ok(())
    }
}

/// Strings, left where they are as far as possible.
struct Strings<'c> {
    ty: SqlType,
    source: Source<'c>,
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// Those that are not in the chunk as they should be.
    rewritten: Vec<u8>,
}

/// Strings up to this length lie in their views.
const INLINE_BYTES: usize = 12;

/// So far offsets in a buffer go.
const MOST_REWRITTEN: usize = i32::MAX as usize;

/// The view of a string that lies at `offset` of a buffer.
#[inline]
fn view(string: &[u8], buffer: u32, offset: u32) -> u128 {
    let length = string.len() as u128;
    if string.len() <= INLINE_BYTES {
        let mut bytes = [0; 16];
        bytes[4..4 + string.len()].copy_from_slice(string);
        return u128::from_le_bytes(bytes) | length;
    }
    let prefix = u32::from_le_bytes(*string.first_chunk().expect("it is long"));
    length | u128::from(prefix) << 32 | u128::from(buffer) << 64 | u128::from(offset) << 96
}

/// The view of a short string with so many blanks behind it, with which it is still short.
fn padded(view: u128, length: usize, blanks: usize) -> u128 {
    debug_assert!(length + blanks <= INLINE_BYTES);
    let spaces = u128::from_le_bytes([b' '; 16]) & ((1 << (8 * blanks)) - 1);
    (view | spaces << (32 + 8 * length)) + blanks as u128
}

impl Strings<'_> {
    /// How many blanks to put behind a string of the chunk, so that it fits the type; nothing if that takes more thought.
    #[inline]
    fn blanks(&self, length: usize) -> Option<usize> {
        match self.ty {
            // Never more characters than bytes.
            SqlType::Varchar(Some(most)) => (length <= most as usize).then_some(0),
            SqlType::Char(exactly) => {
                let blanks = (exactly as usize).checked_sub(length)?;
                self.source.is_ascii.then_some(blanks)
            }
            _ => Some(0),
        }
    }

    /// Puts a string that is long with these blanks behind it among those that are not in the chunk; its view, if there
    /// is room for more.
    fn rewrite(&mut self, string: &[u8], blanks: usize) -> Option<u128> {
        let offset = self.rewritten.len();
        let end = offset + string.len() + blanks;
        if end > MOST_REWRITTEN {
            return None;
        }
        self.rewritten.extend_from_slice(string);
        self.rewritten.resize(end, b' ');
        Some(view(&self.rewritten[offset..], 1, offset as u32))
    }

    fn finish(mut self) -> ArrayRef {
        let buffers = match self.rewritten.is_empty() {
            true => vec![self.source.chunk.clone()],
            false => vec![self.source.chunk.clone(), Buffer::from_vec(self.rewritten)],
        };
        let views = ScalarBuffer::from(self.views);
        // SAFETY: short strings lie in their views, padded with zeros; long ones at the offsets and of the lengths that
        // their views say, the chunk's in buffer 0 and the rewritten ones in buffer 1, with their first bytes in the
        // view. The rewritten ones were `str`; the chunk's are parts of a chunk that is UTF-8 as far as rows are read
        // from it, cut at delimiters, quotes and line ends, which are ASCII.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, self.nulls.finish()) })
    }
}

impl Filling for Strings<'_> {
    const TAKES_ANYTHING: bool = true;

    #[inline]
    fn null(&mut self) {
        self.views.push(0);
        self.nulls.append_null();
    }

    #[inline]
    fn quick(&mut self, chunk: &[u8], field: Range<usize>) -> bool {
        let length = field.len();
        let Some(blanks) = self.blanks(length) else { return false };
        let view = match chunk.get(field.start..field.start + 16) {
            // Short ones are masked rather than copied byte by byte.
            Some(around) if length <= INLINE_BYTES => {
                let around: &[u8; 16] = around.try_into().expect("sixteen bytes");
                let kept = (1_u128 << (8 * length)) - 1;
                (u128::from_le_bytes(*around) & kept) << 32 | length as u128
            }
            _ => view(&chunk[field.clone()], 0, field.start as u32),
        };
        let view = match blanks {
            0 => view,
            _ if length + blanks <= INLINE_BYTES => padded(view, length, blanks),
            _ => match self.rewrite(&chunk[field], blanks) {
                Some(view) => view,
                None => return false,
            },
        };
        self.views.push(view);
        self.nulls.append_non_null();
        true
    }

    fn long(&mut self, field: &str) -> Result<()> {
        let padded;
        let fitted = match self.ty {
            SqlType::Varchar(Some(length)) => text::fit_varchar(field, length)?,
            SqlType::Char(length) => {
                padded = text::fit_char(field, length)?;
                &padded
            }
            _ => field,
        };
        let view = match fitted.len() <= INLINE_BYTES {
            true => view(fitted.as_bytes(), 0, 0),
            false => self.rewrite(fitted.as_bytes(), 0).ok_or_else(|| {
                let message = "strings that lie side by side in the file take more than 2 GiB";
                Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            })?,
        };
        self.views.push(view);
        self.nulls.append_non_null();
        Ok(())
    }
}

impl Filling for ColumnBuilder {
    fn null(&mut self) {
        self.append_null();
    }

    fn quick(&mut self, _: &[u8], _: Range<usize>) -> bool {
        false
    }

    fn long(&mut self, field: &str) -> Result<()> {
        self.append(field)
    }
}
