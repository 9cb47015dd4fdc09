//! Columns that are filled with the fields of a chunk.
//!
//! Most fields are read by the quick way, by code for the type alone. A field that it does not support is read by the general parser.

use crate::columns::ColumnBuilder;
use crate::kind::Kind;
use crate::lanes::{Eight, LANES, Read};
use crate::number;
use arrow_array::builder::{NullBufferBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, StringViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, TextStyle, datetime, numeric, text};
use std::ops::{Range, RangeInclusive};

/// A column under construction.
pub(crate) trait Filling {
    /// Whether [`Filling::quick`] accepts every field, quotes included.
    const TAKES_ANYTHING: bool = false;

    /// Appends NULL.
    fn null(&mut self);

    /// Appends a literal field. Returns whether it could.
    fn quick(&mut self, chunk: &[u8], field: Range<usize>) -> bool;

    /// Reads literal fields, which then wait to be appended. Returns a mask of those that it could read.
    #[inline(always)]
    fn eight(&mut self, _: &Eight<'_>) -> u8 {
        0
    }

    /// Appends all waiting fields.
    #[inline(always)]
    fn append_eight(&mut self) {}

    /// Appends one of the waiting fields.
    #[inline(always)]
    fn append_lane(&mut self, _: usize) {}

    /// Appends a value, or returns its error.
    fn long(&mut self, field: &str) -> Result<()>;

    /// The column.
    fn finish(self) -> ArrayRef;
}

/// The loop that fills columns, for every type.
pub(crate) trait Filler {
    /// Appends the fields of some rows. `strips_quotes` is kept between calls for a column: whether fields are read as if
    /// they were in quotes.
    fn fill(&mut self, column: &mut impl Filling, strips_quotes: &mut bool);
}

/// A column under construction, of any type.
pub(crate) trait Column<F> {
    /// Appends the fields of the filler's current rows.
    fn fill(&mut self, filler: &mut F);

    /// The column.
    fn finish(self: Box<Self>) -> ArrayRef;
}

struct Typed<C> {
    filling: C,
    strips_quotes: bool,
}

impl<F: Filler, C: Filling> Column<F> for Typed<C> {
    fn fill(&mut self, filler: &mut F) {
        filler.fill(&mut self.filling, &mut self.strips_quotes);
    }

    fn finish(self: Box<Self>) -> ArrayRef {
        self.filling.finish()
    }
}

fn boxed<'c, F: Filler>(filling: impl Filling + 'c) -> Box<dyn Column<F> + 'c> {
    Box::new(Typed { filling, strips_quotes: false })
}

/// The source of the fields.
#[derive(Clone, Copy)]
pub(crate) struct Source<'c> {
    /// The memory in which strings may remain.
    pub chunk: &'c Buffer,
    pub is_ascii: bool,
    /// How many rows there are.
    pub rows: usize,
    /// A byte with which no literal field begins.
    pub quote: u8,
    /// The text style of values.
    pub style: TextStyle,
}

/// A column of a type, to be filled.
pub(crate) fn column<'c, F: Filler>(kind: Kind, source: Source<'c>) -> Box<dyn Column<F> + 'c> {
    let Source { rows, style, .. } = source;
    let Some(ty) = kind.typed() else { return boxed(ColumnBuilder::new(kind, style)) };
    match ty {
        SqlType::SmallInt => numbers::<Int16Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            Integers(i16::MIN.into()..=i16::MAX.into()),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            move |field| text::parse_integer(field, ty),
        ),
        SqlType::Integer => numbers::<Int32Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            Integers(i32::MIN.into()..=i32::MAX.into()),
            |chunk, field| number::integer(chunk, field)?.try_into().ok(),
            move |field| text::parse_integer(field, ty),
        ),
        SqlType::BigInt => numbers::<Int64Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            Integers(i64::MIN..=i64::MAX),
            number::integer,
            move |field| text::parse_integer(field, ty),
        ),
        SqlType::Real => numbers::<Float32Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            OneByOne,
            |_, _| None,
            text::parse_real,
        ),
        SqlType::Double => numbers::<Float64Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            OneByOne,
            number::double,
            text::parse_double,
        ),
        SqlType::Numeric { precision, scale } => {
            let decimals = PrimitiveBuilder::<Decimal128Type>::with_capacity(rows)
                .with_precision_and_scale(precision, scale as i8)
                .expect("SqlType keeps precision and scale in range");
            // The quick way reads at most sixteen digits.
            let most = 10_i64.pow(u32::from(precision.min(18))) - 1;
            let range = -most..=most;
            let quick_range = range.clone();
            numbers(
                decimals,
                Decimals { scale, range },
                move |chunk, field| {
                    let value = number::decimal(chunk, field, usize::from(scale))?;
                    quick_range.contains(&value).then_some(i128::from(value))
                },
                move |field| numeric::parse_as(field, precision, scale),
            )
        }
        SqlType::Date => numbers::<Date32Type, F>(
            PrimitiveBuilder::with_capacity(rows),
            Dates,
            number::date,
            move |field| datetime::parse_date(field, &style),
        ),
        SqlType::Timestamp => numbers::<TimestampMicrosecondType, F>(
            PrimitiveBuilder::with_capacity(rows),
            OneByOne,
            number::timestamp,
            move |field| datetime::parse_timestamp(field, &style),
        ),
        SqlType::TimestampTz => numbers::<TimestampMicrosecondType, F>(
            PrimitiveBuilder::with_capacity(rows).with_timezone("UTC"),
            OneByOne,
            |_, _| None,
            move |field| datetime::parse_timestamptz(field, &style),
        ),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => boxed(Strings {
            ty,
            form: Form::of(ty),
            source,
            waiting: [0; LANES],
            views: Vec::with_capacity(rows),
            nulls: NullBufferBuilder::new(rows),
            rewritten: Vec::new(),
        }),
        SqlType::Boolean | SqlType::Bytea | SqlType::Time | SqlType::Interval | SqlType::Uuid => {
            boxed(ColumnBuilder::new(kind, style))
        }
    }
}

/// How fields of a column of numbers are read eight at a time.
trait Together<N> {
    fn read(&self, fields: &Eight<'_>) -> (u8, [N; LANES]);
}

/// A number of a column, made from a lane.
trait FromLane: Copy {
    fn from_lane(value: i64) -> Self;
}

macro_rules! from_lane {
    ($($number:ty),*) => {$(
        impl FromLane for $number {
            #[inline(always)]
            fn from_lane(value: i64) -> $number {
                value as $number
            }
        }
    )*};
}

from_lane!(i16, i32, i64, i128);

#[inline(always)]
fn made<N: FromLane>((read, values): Read) -> (u8, [N; LANES]) {
    let mut made = [N::from_lane(0); LANES];
    for lane in 0..LANES {
        made[lane] = N::from_lane(values[lane]);
    }
    (read, made)
}

struct Integers(RangeInclusive<i64>);

impl<N: FromLane> Together<N> for Integers {
    #[inline(always)]
    fn read(&self, fields: &Eight<'_>) -> (u8, [N; LANES]) {
        made(fields.integers(self.0.clone()))
    }
}

struct Decimals {
    scale: u8,
    /// In units of the last digit.
    range: RangeInclusive<i64>,
}

impl Together<i128> for Decimals {
    #[inline(always)]
    fn read(&self, fields: &Eight<'_>) -> (u8, [i128; LANES]) {
        made(match self.scale {
            0 => fields.integers(self.range.clone()),
            1..8 => fields.decimals(self.scale.into(), self.range.clone()),
            _ => (0, [0; LANES]),
        })
    }
}

struct Dates;

impl Together<i32> for Dates {
    #[inline(always)]
    fn read(&self, fields: &Eight<'_>) -> (u8, [i32; LANES]) {
        made(fields.dates())
    }
}

/// The type of a column whose fields are read one by one.
struct OneByOne;

impl<N: Default + Copy> Together<N> for OneByOne {
    #[inline(always)]
    fn read(&self, _: &Eight<'_>) -> (u8, [N; LANES]) {
        (0, [N::default(); LANES])
    }
}

fn numbers<'c, T: ArrowPrimitiveType, F: Filler>(
    builder: PrimitiveBuilder<T>,
    together: impl Together<T::Native> + 'c,
    quick: impl Fn(&[u8], Range<usize>) -> Option<T::Native> + 'c,
    long: impl Fn(&str) -> Result<T::Native> + 'c,
) -> Box<dyn Column<F> + 'c> {
    boxed(Numbers { builder, waiting: [T::Native::default(); LANES], together, quick, long })
}

struct Numbers<T: ArrowPrimitiveType, E, Q, L> {
    builder: PrimitiveBuilder<T>,
    waiting: [T::Native; LANES],
    together: E,
    quick: Q,
    long: L,
}

impl<T, E, Q, L> Filling for Numbers<T, E, Q, L>
where
    T: ArrowPrimitiveType,
    E: Together<T::Native>,
    Q: Fn(&[u8], Range<usize>) -> Option<T::Native>,
    L: Fn(&str) -> Result<T::Native>,
{
    #[inline]
    fn null(&mut self) {
        self.builder.append_null();
    }

    #[inline(always)]
    fn eight(&mut self, fields: &Eight<'_>) -> u8 {
        let (read, values) = self.together.read(fields);
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

    fn finish(mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

/// Strings, left in the chunk as far as possible.
struct Strings<'c> {
    ty: SqlType,
    form: Form,
    source: Source<'c>,
    waiting: [u128; LANES],
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// Strings that are not in the chunk in their final form.
    rewritten: Vec<u8>,
}

/// How strings are read that are literal bytes of the chunk.
enum Form {
    /// Unchanged, up to `most` bytes.
    Plain { most: usize, tails: Tails },
    /// ASCII, padded with blanks to `exactly` bytes, which fit in a view.
    Short { exactly: usize, tails: Tails },
    /// ASCII, padded with blanks to `exactly` bytes, which fit in [`BLOCK_BYTES`].
    Long { exactly: usize },
    /// One by one.
    Other,
}

impl Form {
    fn of(ty: SqlType) -> Form {
        let plain = |most| Form::Plain { most, tails: std::array::from_fn(|length| length as u128) };
        match ty {
            // Never more characters than bytes.
            SqlType::Varchar(Some(most)) => plain(most as usize),
            SqlType::Char(exactly) if exactly as usize > BLOCK_BYTES => Form::Other,
            SqlType::Char(exactly) if exactly as usize <= INLINE_BYTES => {
                let exactly = exactly as usize;
                let blanks = u128::from_le_bytes([b' '; 16]) & KEPT[exactly];
                let tails = std::array::from_fn(|length| blanks & !KEPT[length] | exactly as u128);
                Form::Short { exactly, tails }
            }
            SqlType::Char(exactly) => Form::Long { exactly: exactly as usize },
            _ => plain(usize::MAX),
        }
    }
}

/// Bytes that are loaded at once to be padded with blanks.
const BLOCK_BYTES: usize = 32;

/// Strings up to this length are stored inside their views.
const INLINE_BYTES: usize = 12;

/// The last entry, one more than the longest inline length, is for all longer strings.
const LENGTHS: usize = INLINE_BYTES + 2;

/// The mask of the string's bytes in a view, by its length; of long ones the first four bytes.
static KEPT: [u128; LENGTHS] = {
    let mut kept = [0xffff_ffff << 32; LENGTHS];
    let mut length = 0;
    while length <= INLINE_BYTES {
        kept[length] = if length == 0 { 0 } else { u128::MAX >> (128 - 8 * length) << 32 };
        length += 1;
    }
    kept
};

/// Set in bytes that are not ASCII.
const HIGH: u128 = u128::from_le_bytes([0x80; 16]);

/// The other parts of a view, by the length of the string.
type Tails = [u128; LENGTHS];

/// A mask of [`BLOCK_BYTES`] bytes that are kept, and as many that are not.
static KEPT_OF_BLOCK: [u8; 2 * BLOCK_BYTES] = {
    let mut kept = [0; 2 * BLOCK_BYTES];
    let mut at = 0;
    while at < BLOCK_BYTES {
        kept[at] = 0xff;
        at += 1;
    }
    kept
};

/// The largest offset in a buffer.
const MOST_REWRITTEN: usize = i32::MAX as usize;

/// The view of a string at `offset` of a buffer.
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

/// The view of a short string with `blanks` blanks appended, with which it is still short.
fn padded(view: u128, length: usize, blanks: usize) -> u128 {
    debug_assert!(length + blanks <= INLINE_BYTES);
    let spaces = u128::from_le_bytes([b' '; 16]) & ((1 << (8 * blanks)) - 1);
    (view | spaces << (32 + 8 * length)) + blanks as u128
}

impl Strings<'_> {
    /// How many blanks to append to a string of the chunk, so that it fits the type; `None` if that needs the general parser.
    #[inline]
    fn blanks(&self, string: &[u8]) -> Option<usize> {
        match self.ty {
            // Never more characters than bytes.
            SqlType::Varchar(Some(most)) => (string.len() <= most as usize).then_some(0),
            SqlType::Char(exactly) => {
                let blanks = (exactly as usize).checked_sub(string.len())?;
                string.is_ascii().then_some(blanks)
            }
            _ => Some(0),
        }
    }

    /// Stores a string that is long with these blanks among those that are not in the chunk. Returns its view, if there
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
}

/// The first `length` bytes, padded with blanks.
#[inline(always)]
fn with_blanks(bytes: &[u8; BLOCK_BYTES], length: usize) -> [u8; BLOCK_BYTES] {
    let kept = &KEPT_OF_BLOCK[BLOCK_BYTES - length.min(BLOCK_BYTES)..][..BLOCK_BYTES];
    let mut filled = [0; BLOCK_BYTES];
    for at in 0..BLOCK_BYTES {
        filled[at] = bytes[at] & kept[at] | b' ' & !kept[at];
    }
    filled
}

impl Filling for Strings<'_> {
    const TAKES_ANYTHING: bool = true;

    #[inline(always)]
    fn eight(&mut self, fields: &Eight<'_>) -> u8 {
        let mut read = 0;
        let quote = self.source.quote;
        // Each step is the same for all lanes, so that the processor predicts no branch per lane.
        match &self.form {
            Form::Other => {}
            Form::Plain { most, tails } => {
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let (length, offset) = (field.len(), field.start);
                    let Some(bytes) = fields.chunk()[offset..].first_chunk::<16>() else { continue };
                    let place = length.min(LENGTHS - 1);
                    let inside = u128::from_le_bytes(*bytes) << 32 & KEPT[place];
                    let is_long = length > INLINE_BYTES;
                    let outside =
                        if is_long { (offset as u128) << 96 | length as u128 } else { tails[place] };
                    self.waiting[lane] = inside | outside;
                    read |= u8::from(length <= *most && (bytes[0] != quote || length == 0)) << lane;
                }
            }
            Form::Short { exactly, tails } => {
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let Some(bytes) = fields.chunk()[field.start..].first_chunk::<16>() else { continue };
                    let place = field.len().min(LENGTHS - 1);
                    self.waiting[lane] = u128::from_le_bytes(*bytes) << 32 & KEPT[place] | tails[place];
                    read |=
                        u8::from(field.len() <= *exactly && (bytes[0] != quote || field.is_empty())) << lane;
                }
                if !self.source.is_ascii {
                    for lane in 0..LANES {
                        // The length before the string is at most 12, and so never matches the mask.
                        read &= !(u8::from(self.waiting[lane] & HIGH != 0) << lane);
                    }
                }
            }
            Form::Long { exactly } => {
                let exactly = *exactly;
                let begin = self.rewritten.len();
                if begin > MOST_REWRITTEN - LANES * BLOCK_BYTES {
                    return 0;
                }
                // The result of a lane that is not read is not used.
                let mut written = [0; LANES * BLOCK_BYTES];
                for lane in 0..LANES {
                    let field = fields.field(lane);
                    let Some(bytes) = fields.chunk()[field.start..].first_chunk() else { continue };
                    let filled = with_blanks(bytes, field.len());
                    written[lane * exactly..][..BLOCK_BYTES].copy_from_slice(&filled);
                    let prefix = u32::from_le_bytes(*filled.first_chunk().expect("it is longer"));
                    let offset = begin + lane * exactly;
                    self.waiting[lane] =
                        exactly as u128 | u128::from(prefix) << 32 | 1 << 64 | (offset as u128) << 96;
                    read |=
                        u8::from(field.len() <= exactly && (bytes[0] != quote || field.is_empty())) << lane;
                }
                if !self.source.is_ascii {
                    for lane in 0..LANES {
                        let is_ascii = written[lane * exactly..][..exactly].is_ascii();
                        read &= !(u8::from(!is_ascii) << lane);
                    }
                }
                self.rewritten.extend_from_slice(&written[..LANES * exactly]);
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
        let Some(blanks) = self.blanks(&chunk[field.clone()]) else { return false };
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
                let message = "adjacent strings of the file take more than 2 GiB";
                Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            })?,
        };
        self.views.push(view);
        self.nulls.append_non_null();
        Ok(())
    }

    fn finish(mut self) -> ArrayRef {
        let buffers = match self.rewritten.is_empty() {
            true => vec![self.source.chunk.clone()],
            false => vec![self.source.chunk.clone(), Buffer::from_vec(self.rewritten)],
        };
        let views = ScalarBuffer::from(self.views);
        // SAFETY: short strings are in their views, padded with zeros. Long ones are at the offsets and have the lengths of
        // their views: those of the chunk in buffer 0 and the rewritten ones in buffer 1, with their first bytes in the
        // view. A rewritten string of a view was a `str`, or is ASCII of the chunk with blanks appended;
        // no view leads to the rest of that buffer. Strings of the chunk are parts of a chunk that is UTF-8 as far as rows
        // are read from it, cut at delimiters, quotes and line ends, which are ASCII.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, self.nulls.finish()) })
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

    fn finish(mut self) -> ArrayRef {
        ColumnBuilder::finish(&mut self)
    }
}
