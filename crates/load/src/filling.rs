//! Columns as they fill up with the fields of a chunk.
//!
//! Most fields are taken the quick way, by code for the type alone; what that does not know is read as everywhere else.

use crate::columns::ColumnBuilder;
use crate::lanes::{Eight, LANES};
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

    /// Reads fields that stand for themselves, which then wait for their turn; those that it could read are the bits of a mask.
    #[inline(always)]
    fn eight(&mut self, _: &Eight<'_>) -> u8 {
        0
    }

    /// Appends all fields that wait.
    #[inline(always)]
    fn append_eight(&mut self) {}

    /// Appends one of the fields that wait.
    #[inline(always)]
    fn append_lane(&mut self, _: usize) {}

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
    /// What a field does not begin with that stands for itself.
    pub quote: u8,
    /// What moments are in that name no zone.
    pub zone: TimeZoneSetting,
}

/// Has a column of a type filled.
pub(crate) fn column(ty: SqlType, source: Source<'_>, filler: &mut impl Filler) -> ArrayRef {
    let Source { rows, zone, .. } = source;
    match ty {
        SqlType::SmallInt => numbers::<Int16Type>(
            PrimitiveBuilder::with_capacity(rows),
            |fields| fields.integers().fitting(|value| i16::try_from(value).is_ok(), |value| value as i16),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::Integer => numbers::<Int32Type>(
            PrimitiveBuilder::with_capacity(rows),
            |fields| fields.integers().fitting(|value| i32::try_from(value).is_ok(), |value| value as i32),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::BigInt => numbers::<Int64Type>(
            PrimitiveBuilder::with_capacity(rows),
            |fields| fields.integers().fitting(|_| true, |value| value),
            number::integer,
            |field| text::parse_integer(field, ty),
            filler,
        ),
        SqlType::Real => numbers::<Float32Type>(
            PrimitiveBuilder::with_capacity(rows),
            one_by_one,
            |_, _| None,
            text::parse_real,
            filler,
        ),
        SqlType::Double => numbers::<Float64Type>(
            PrimitiveBuilder::with_capacity(rows),
            one_by_one,
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
            let fits = move |value: i64| value.unsigned_abs() < bound;
            numbers(
                decimals,
                |fields| match scale {
                    0 => fields.integers().fitting(fits, i128::from),
                    1..8 => fields.decimals(scale.into()).fitting(fits, i128::from),
                    _ => one_by_one(fields),
                },
                |chunk, field| {
                    let value = number::decimal(chunk, field, usize::from(scale))?;
                    fits(value).then_some(i128::from(value))
                },
                |field| numeric::parse_as(field, precision, scale),
                filler,
            )
        }
        SqlType::Date => numbers::<Date32Type>(
            PrimitiveBuilder::with_capacity(rows),
            |fields| fields.dates().fitting(|_| true, |value| value as i32),
            number::date,
            datetime::parse_date,
            filler,
        ),
        SqlType::Timestamp => numbers::<TimestampMicrosecondType>(
            PrimitiveBuilder::with_capacity(rows),
            one_by_one,
            number::timestamp,
            datetime::parse_timestamp,
            filler,
        ),
        SqlType::TimestampTz => numbers::<TimestampMicrosecondType>(
            PrimitiveBuilder::with_capacity(rows).with_timezone("UTC"),
            one_by_one,
            |_, _| None,
            |field| datetime::parse_timestamptz(field, &zone),
            filler,
        ),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let mut strings = Strings {
                ty,
                form: Form::of(ty, source.is_ascii),
                source,
                waiting: [0; LANES],
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

/// What reads no fields together.
fn one_by_one<N: Default + Copy>(_: &Eight<'_>) -> (u8, [N; LANES]) {
    (0, [N::default(); LANES])
}

fn numbers<T: ArrowPrimitiveType>(
    builder: PrimitiveBuilder<T>,
    eight: impl Fn(&Eight<'_>) -> (u8, [T::Native; LANES]),
    quick: impl Fn(&[u8], Range<usize>) -> Option<T::Native>,
    long: impl Fn(&str) -> Result<T::Native>,
    filler: &mut impl Filler,
) -> ArrayRef {
    let mut numbers = Numbers { builder, waiting: [T::Native::default(); LANES], eight, quick, long };
    filler.fill(&mut numbers);
    Arc::new(numbers.builder.finish())
}

struct Numbers<T: ArrowPrimitiveType, E, Q, L> {
    builder: PrimitiveBuilder<T>,
    waiting: [T::Native; LANES],
    eight: E,
    quick: Q,
    long: L,
}

impl<T, E, Q, L> Filling for Numbers<T, E, Q, L>
where
    T: ArrowPrimitiveType,
    E: Fn(&Eight<'_>) -> (u8, [T::Native; LANES]),
    Q: Fn(&[u8], Range<usize>) -> Option<T::Native>,
    L: Fn(&str) -> Result<T::Native>,
{
    #[inline]
    fn null(&mut self) {
        self.builder.append_null();
    }

    #[inline(always)]
    fn eight(&mut self, fields: &Eight<'_>) -> u8 {
        let (read, values) = (self.eight)(fields);
        self.waiting = values;
        read
    }

    #[inline(always)]
    fn append_eight(&mut self) {
        self.builder.append_slice(&self.waiting);
    }

    #[inline(always)]
    fn append_lane(&mut self, lane: usize) {
        self.builder.append_value(self.waiting[lane]);
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
    form: Form,
    source: Source<'c>,
    waiting: [u128; LANES],
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// Those that are not in the chunk as they should be.
    rewritten: Vec<u8>,
}

/// How strings are read that are plain bytes of the chunk.
#[derive(Clone, Copy)]
enum Form {
    /// As they are, up to this length.
    Plain(usize),
    /// Filled up with blanks to this length, which fits a view.
    Short(usize),
    /// Filled up with blanks to this length, which fits [`BLOCK_BYTES`].
    Long(usize),
    /// One by one.
    Other,
}

impl Form {
    fn of(ty: SqlType, is_ascii: bool) -> Form {
        match ty {
            // Never more characters than bytes.
            SqlType::Varchar(Some(most)) => Form::Plain(most as usize),
            SqlType::Char(exactly) if !is_ascii || exactly as usize > BLOCK_BYTES => Form::Other,
            SqlType::Char(exactly) if exactly as usize <= INLINE_BYTES => Form::Short(exactly as usize),
            SqlType::Char(exactly) => Form::Long(exactly as usize),
            _ => Form::Plain(usize::MAX),
        }
    }
}

/// Bytes that are loaded at once to be filled up with blanks.
const BLOCK_BYTES: usize = 32;

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

/// The first `length` of sixteen bytes, blanks behind them.
#[inline(always)]
fn with_blanks(bytes: [u8; 16], length: usize) -> [u8; 16] {
    let blanks = u128::from_le_bytes([b' '; 16]);
    let kept = if length < 16 { (1_u128 << (8 * length)) - 1 } else { u128::MAX };
    (u128::from_le_bytes(bytes) & kept | blanks & !kept).to_le_bytes()
}

impl Filling for Strings<'_> {
    const TAKES_ANYTHING: bool = true;

    #[inline(always)]
    fn eight(&mut self, fields: &Eight<'_>) -> u8 {
        let mut read = 0;
        let quote = self.source.quote;
        // Each step is the same for all lanes, so that no lane is a surprise to the processor.
        match self.form {
            Form::Other => {}
            Form::Plain(most) => {
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let (length, offset) = (field.len(), field.start);
                    let Some(bytes) = fields.chunk()[offset..].first_chunk::<16>() else { continue };
                    let bytes = u128::from_le_bytes(*bytes);
                    let kept = (1_u128 << (8 * length.min(INLINE_BYTES))) - 1;
                    let short = (bytes & kept) << 32;
                    let long = (bytes & 0xffff_ffff) << 32 | (offset as u128) << 96;
                    self.waiting[lane] = length as u128 | if length <= INLINE_BYTES { short } else { long };
                    read |= u8::from(length <= most && (bytes as u8 != quote || length == 0)) << lane;
                }
            }
            Form::Short(exactly) => {
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let Some(bytes) = fields.chunk()[field.start..].first_chunk::<16>() else { continue };
                    let filled = u128::from_le_bytes(with_blanks(*bytes, field.len()));
                    let kept = (1_u128 << (8 * exactly)) - 1;
                    self.waiting[lane] = exactly as u128 | (filled & kept) << 32;
                    read |=
                        u8::from(field.len() <= exactly && (bytes[0] != quote || field.is_empty())) << lane;
                }
            }
            Form::Long(exactly) => {
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let length = field.len();
                    let Some(bytes) = fields.chunk()[field.start..].first_chunk::<BLOCK_BYTES>() else {
                        continue;
                    };
                    let offset = self.rewritten.len();
                    let is_quoted = bytes[0] == quote && length > 0;
                    if length > exactly || is_quoted || offset > MOST_REWRITTEN - BLOCK_BYTES {
                        continue;
                    }
                    let (front, back) = bytes.split_at(16);
                    let front = with_blanks(front.try_into().expect("sixteen bytes"), length);
                    let back =
                        with_blanks(back.try_into().expect("sixteen bytes"), length.saturating_sub(16));
                    self.rewritten.extend_from_slice([front, back].as_flattened());
                    self.rewritten.truncate(offset + exactly);
                    let prefix = u32::from_le_bytes(*front.first_chunk().expect("it is longer"));
                    self.waiting[lane] =
                        exactly as u128 | u128::from(prefix) << 32 | 1 << 64 | (offset as u128) << 96;
                    read |= 1 << lane;
                }
            }
        }
        read
    }

    #[inline(always)]
    fn append_eight(&mut self) {
        self.views.extend_from_slice(&self.waiting);
        self.nulls.append_n_non_nulls(LANES);
    }

    #[inline(always)]
    fn append_lane(&mut self, lane: usize) {
        self.views.push(self.waiting[lane]);
        self.nulls.append_non_null();
    }

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
