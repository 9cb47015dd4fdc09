//! Rows as tuples of Rust types.
//!
//! The columns that a program reads or sets, and their places in a block, are determined and checked once,
//! when a [`Projection`] is made. A value is then loaded from a known place by code for its type alone, as in
//! a stored procedure compiled to machine code. The cells of [`crate::Table::read`] need a decision for every
//! value.
//!
//! | Rust | SQL |
//! |---|---|
//! | `bool` | boolean |
//! | `i16`, `i32`, `i64` | smallint; integer, date; bigint, time, timestamp(tz), numeric of up to 18 digits (unscaled) |
//! | `i128` | numeric of more than 18 digits (unscaled) |
//! | `[u8; 16]`, [`Interval`] | uuid, interval |
//! | `f32`, `f64` | real, double precision |
//! | [`Str`], its values [`Text`] | text, varchar, char(n), bytea |
//! | `Option<T>` | a nullable column |

mod row;
mod scan;
mod table;
#[cfg(test)]
mod tests;

use crate::block::{Block, RawCell};
use crate::column::ColumnSpec;
use crate::heap;
use crate::index::{Index, KeyBuffer};
use crate::layout::{ColumnLayout, Layout};
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, ColumnSet, Interval, Representation, value};
pub use row::Row;
pub use scan::Vectors;
pub use table::Rows;

/// One slot of a block. Only storage makes these.
#[derive(Clone, Copy)]
pub struct Place<'b> {
    pub(crate) block: &'b Block,
    /// The slot, which has been checked.
    pub(crate) at: usize,
}

/// A type as which a column's values can be read and set.
pub trait Field: 'static {
    /// Its values.
    type Value<'v>: Copy;
    /// A value as a block holds it, perhaps torn.
    #[doc(hidden)]
    type Raw: Copy;

    /// The number of bits of a value in a column.
    #[doc(hidden)]
    const BITS: usize;
    /// Whether a value in an ascending key is its bytes, the highest first and with its sign bit inverted.
    #[doc(hidden)]
    const IS_PLAIN_KEY: bool = false;

    /// Whether the values of a column have this type.
    #[doc(hidden)]
    fn fits(column: &ColumnSpec) -> bool;

    /// Loads the current value of a column, written by any transaction.
    ///
    /// # Safety
    /// The column is one of the block's, and fits.
    #[doc(hidden)]
    unsafe fn load(place: Place<'_>, column: ColumnLayout) -> Self::Raw;

    /// As [`Field::load`], from the image of an older version.
    #[doc(hidden)]
    fn raw(cell: RawCell) -> Self::Raw;

    /// The value of a raw one that has been validated.
    #[doc(hidden)]
    fn value(place: Place<'_>, raw: Self::Raw) -> Self::Value<'_>;

    /// The value as a cell.
    #[doc(hidden)]
    fn cell<'v: 'v>(value: &Self::Value<'v>) -> Cell<'v>;

    /// Changes the column in place.
    ///
    /// # Safety
    /// As for [`Field::load`]; and the caller owns the row.
    #[doc(hidden)]
    unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &Self::Value<'_>);

    /// The current value of a column, for an undo record. The caller owns the row, or finds out later that it
    /// does not.
    ///
    /// # Safety
    /// As for [`Field::load`].
    #[doc(hidden)]
    unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell;

    /// Appends a value to a key, if it is plain there.
    #[doc(hidden)]
    #[inline(always)]
    fn push_key(_value: &Self::Value<'_>, _key: &mut KeyBuffer) {
        unreachable!("values of this type are not plain in keys");
    }

    /// Prefetches a value.
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch(place: Place<'_>, column: ColumnLayout) {
        place.block.prefetch_byte(column.values() + place.at * Self::BITS / 8);
    }

    /// Prefetches what a value refers to.
    ///
    /// # Safety
    /// As for [`Field::load`].
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn prefetch_further(_place: Place<'_>, _column: ColumnLayout) {}
}

/// Implements [`Field`] for a number type that is a word in a cell.
macro_rules! number {
    ($ty:ty, $load:ident, $store:ident, $pattern:pat, $to_bits:expr, $from_bits:expr $(, $key:expr)?) => {
        impl Field for $ty {
            type Value<'v> = $ty;
            type Raw = u64;
            const BITS: usize = size_of::<$ty>() * 8;

            $(
                const IS_PLAIN_KEY: bool = true;

                #[inline(always)]
                fn push_key(value: &$ty, key: &mut KeyBuffer) {
                    let bytes: [u8; size_of::<$ty>()] = $key(*value).to_be_bytes();
                    key.push_bytes(bytes);
                }
            )?

            fn fits(column: &ColumnSpec) -> bool {
                !column.nullable && matches!(column.representation, $pattern) && column.representation.width() == width_of::<$ty>()
            }

            #[inline(always)]
            unsafe fn load(place: Place<'_>, column: ColumnLayout) -> u64 {
                // SAFETY: by the caller.
                unsafe { place.block.$load(place.at, column) }
            }

            #[inline(always)]
            fn raw(cell: RawCell) -> u64 {
                cell.words[0]
            }

            #[inline(always)]
            fn value(_place: Place<'_>, raw: u64) -> $ty {
                $from_bits(raw)
            }

            #[inline(always)]
            fn cell<'v: 'v>(value: &$ty) -> Cell<'v> {
                Cell::Word($to_bits(*value))
            }

            #[inline(always)]
            unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &$ty) {
                // SAFETY: by the caller.
                unsafe { place.block.$store(place.at, column, $to_bits(*value)) };
            }

            #[inline(always)]
            unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell {
                // SAFETY: by the caller.
                RawCell { null: false, words: [unsafe { Self::load(place, column) }, 0] }
            }
        }
    };
}

/// The width of columns for values of a type.
fn width_of<T>() -> firn_base::types::Width {
    firn_base::types::Width::Fixed(size_of::<T>() as u8)
}

use Representation::{
    Date, Decimal, Float32, Float64, Int16, Int32, Int64, Oid, Time, Timestamp, TimestampTz,
};
number!(
    i16,
    load_two,
    store_two,
    Int16,
    |value| u64::from(value as u16),
    |bits| bits as u16 as i16,
    |value| value ^ i16::MIN
);
number!(
    i32,
    load_four,
    store_four,
    Int32 | Date,
    |value| u64::from(value as u32),
    |bits| bits as u32 as i32,
    |value| value ^ i32::MIN
);
number!(
    i64,
    load_eight,
    store_eight,
    Int64 | Time | Timestamp | TimestampTz | Decimal { .. },
    |value| value as u64,
    |bits| bits as i64,
    |value| value ^ i64::MIN
);
number!(u32, load_four, store_four, Oid, u64::from, |bits| bits as u32);
number!(f32, load_four, store_four, Float32, |value: f32| u64::from(value.to_bits()), |bits| f32::from_bits(
    bits as u32
));
number!(f64, load_eight, store_eight, Float64, f64::to_bits, f64::from_bits);

impl Field for bool {
    type Value<'v> = bool;
    type Raw = u64;
    const BITS: usize = 1;

    fn fits(column: &ColumnSpec) -> bool {
        !column.nullable && column.representation == Representation::Boolean
    }

    #[inline(always)]
    unsafe fn load(place: Place<'_>, column: ColumnLayout) -> u64 {
        // SAFETY: by the caller.
        unsafe { place.block.load_bit(place.at, column) }
    }

    #[inline(always)]
    fn raw(cell: RawCell) -> u64 {
        cell.words[0]
    }

    #[inline(always)]
    fn value(_place: Place<'_>, raw: u64) -> bool {
        raw != 0
    }

    #[inline(always)]
    fn cell<'v: 'v>(value: &bool) -> Cell<'v> {
        Cell::boolean(*value)
    }

    #[inline(always)]
    unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &bool) {
        // SAFETY: by the caller.
        unsafe { place.block.store_bit(place.at, column, *value) };
    }

    #[inline(always)]
    unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell {
        // SAFETY: by the caller.
        RawCell { null: false, words: [unsafe { Self::load(place, column) }, 0] }
    }
}

/// Implements [`Field`] for a type that is two words in a cell.
macro_rules! wide {
    ($ty:ty, $pattern:pat, $to_words:expr, $from_words:expr) => {
        impl Field for $ty {
            type Value<'v> = $ty;
            type Raw = [u64; 2];
            const BITS: usize = 128;

            fn fits(column: &ColumnSpec) -> bool {
                !column.nullable
                    && matches!(column.representation, $pattern)
                    && column.representation.width() == width_of::<$ty>()
            }

            #[inline(always)]
            unsafe fn load(place: Place<'_>, column: ColumnLayout) -> [u64; 2] {
                // SAFETY: by the caller.
                unsafe { place.block.load_pair(place.at, column) }
            }

            #[inline(always)]
            fn raw(cell: RawCell) -> [u64; 2] {
                cell.words
            }

            #[inline(always)]
            fn value(_place: Place<'_>, raw: [u64; 2]) -> $ty {
                $from_words(raw)
            }

            #[inline(always)]
            fn cell<'v: 'v>(value: &$ty) -> Cell<'v> {
                Cell::Wide($to_words(*value))
            }

            #[inline(always)]
            unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &$ty) {
                // SAFETY: by the caller.
                unsafe { place.block.store_pair(place.at, column, $to_words(*value)) };
            }

            #[inline(always)]
            unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell {
                // SAFETY: by the caller.
                RawCell { null: false, words: unsafe { Self::load(place, column) } }
            }
        }
    };
}

wide!(
    i128,
    Decimal { .. },
    |value: i128| [value as u64, (value as u128 >> 64) as u64],
    |[low, high]: [u64; 2]| (u128::from(high) << 64 | u128::from(low)) as i128
);
wide!([u8; 16], Representation::Uuid, value::uuid_to_words, value::uuid_from_words);
wide!(Interval, Representation::Interval, Interval::to_words, Interval::from_words);

/// Represents strings in a [`Row`]; their values are [`Text`].
pub enum Str {}

/// A string; short ones are stored inline.
#[derive(Clone, Copy, Debug)]
pub struct Text<'v>(Cell<'v>);

impl<'v> Text<'v> {
    /// Makes a text from bytes.
    #[inline]
    pub fn of_bytes(bytes: &'v [u8]) -> Text<'v> {
        Text(Cell::Bytes(bytes))
    }

    /// Its bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Its characters; only for columns that hold characters.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.str()
    }

    /// How many bytes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'v> From<&'v str> for Text<'v> {
    #[inline]
    fn from(text: &'v str) -> Text<'v> {
        Text(Cell::text(text))
    }
}

impl Field for Str {
    type Value<'v> = Text<'v>;
    type Raw = [u64; 2];
    const BITS: usize = 128;

    fn fits(column: &ColumnSpec) -> bool {
        !column.nullable
            && matches!(
                column.representation,
                Representation::Text | Representation::PaddedText | Representation::Bytes
            )
    }

    #[inline(always)]
    unsafe fn load(place: Place<'_>, column: ColumnLayout) -> [u64; 2] {
        // SAFETY: by the caller.
        unsafe { place.block.load_pair(place.at, column) }
    }

    #[inline(always)]
    fn raw(cell: RawCell) -> [u64; 2] {
        cell.words
    }

    #[inline(always)]
    fn value(place: Place<'_>, view: [u64; 2]) -> Text<'_> {
        Text(place.block.export_view(view))
    }

    #[inline(always)]
    fn cell<'v: 'v>(value: &Text<'v>) -> Cell<'v> {
        value.0
    }

    #[inline(always)]
    unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &Text<'_>) {
        let view = match &value.0 {
            Cell::Inline(length, bytes) => heap::inline_view(&bytes[..usize::from(*length)]),
            other => place.block.heap().store(other.bytes()),
        };
        // SAFETY: by the caller.
        unsafe { place.block.store_pair(place.at, column, view) };
    }

    #[inline(always)]
    unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell {
        // SAFETY: by the caller.
        RawCell { null: false, words: unsafe { Self::load(place, column) } }
    }

    #[inline(always)]
    unsafe fn prefetch_further(place: Place<'_>, column: ColumnLayout) {
        // SAFETY: by the caller.
        place.block.heap().prefetch(unsafe { Self::load(place, column) });
    }
}

impl<F: Field> Field for Option<F> {
    type Value<'v> = Option<F::Value<'v>>;
    type Raw = Option<F::Raw>;
    const BITS: usize = F::BITS;

    fn fits(column: &ColumnSpec) -> bool {
        column.nullable && F::fits(&ColumnSpec { nullable: false, ..column.clone() })
    }

    #[inline(always)]
    unsafe fn load(place: Place<'_>, column: ColumnLayout) -> Option<F::Raw> {
        // SAFETY: by the caller.
        unsafe { place.block.is_valid(place.at, column).then(|| F::load(place, column)) }
    }

    #[inline(always)]
    fn raw(cell: RawCell) -> Option<F::Raw> {
        (!cell.null).then(|| F::raw(cell))
    }

    #[inline(always)]
    fn value(place: Place<'_>, raw: Option<F::Raw>) -> Option<F::Value<'_>> {
        raw.map(|raw| F::value(place, raw))
    }

    #[inline(always)]
    fn cell<'v: 'v>(value: &Option<F::Value<'v>>) -> Cell<'v> {
        value.as_ref().map_or(Cell::Null, F::cell)
    }

    #[inline(always)]
    unsafe fn store(place: Place<'_>, column: ColumnLayout, value: &Option<F::Value<'_>>) {
        // SAFETY: by the caller.
        unsafe {
            place.block.store_validity(place.at, column, value.is_some());
            match value {
                Some(value) => F::store(place, column, value),
                None => place.block.store_null(place.at, column),
            }
        }
    }

    #[inline(always)]
    unsafe fn image(place: Place<'_>, column: ColumnLayout) -> RawCell {
        // SAFETY: by the caller.
        unsafe {
            if place.block.is_valid(place.at, column) {
                F::image(place, column)
            } else {
                RawCell { null: true, words: [0, 0] }
            }
        }
    }

    #[inline(always)]
    fn prefetch(place: Place<'_>, column: ColumnLayout) {
        F::prefetch(place, column);
        place.block.prefetch_validity(place.at, column);
    }

    #[inline(always)]
    unsafe fn prefetch_further(place: Place<'_>, column: ColumnLayout) {
        // SAFETY: by the caller.
        unsafe {
            if place.block.is_valid(place.at, column) {
                F::prefetch_further(place, column);
            }
        }
    }
}

impl Index {
    /// As [`Index::encode`], for values that [fit](Index::key_fits) its first columns.
    #[inline(always)]
    pub fn encode_as<K: Row>(&self, values: &K::Values<'_>, key: &mut KeyBuffer) {
        if K::IS_PLAIN_KEY && self.is_plain() {
            K::push_key(values, key);
        } else {
            self.encode(K::cells(values).as_ref(), key);
        }
    }
}

/// Some columns of a table, to be read or set together.
pub struct Projection<R: Row> {
    /// Of the table that the columns belong to: tables share no layout.
    layout: Arc<Layout>,
    ids: R::Array<ColumnId>,
    layouts: R::Array<ColumnLayout>,
    set: ColumnSet,
}

impl<R: Row> Projection<R> {
    pub(crate) fn new(
        columns: &[ColumnSpec],
        layout: &Arc<Layout>,
        ids: &[ColumnId],
    ) -> Result<Self, Misfit> {
        if ids.len() != R::LEN {
            return Err(Misfit::Count { columns: ids.len(), fields: R::LEN });
        }
        let fits = R::fits(&mut ids.iter().map(|id| &columns[id.index()]));
        if let Some(at) = fits.iter().position(|fits| !fits) {
            return Err(Misfit::Type(ids[at]));
        }
        Ok(Projection {
            layout: layout.clone(),
            ids: R::array(|at| ids[at]),
            layouts: R::array(|at| layout.column(ids[at])),
            set: ids.iter().copied().collect(),
        })
    }

    /// The columns.
    #[inline]
    pub fn columns(&self) -> &[ColumnId] {
        self.ids.as_ref()
    }

    /// The columns as a set.
    #[inline]
    pub fn set(&self) -> ColumnSet {
        self.set
    }

    #[inline(always)]
    fn ids(&self) -> &R::Array<ColumnId> {
        &self.ids
    }

    /// Their layouts in a block of their table.
    #[inline(always)]
    fn layouts(&self, block: &Block) -> &R::Array<ColumnLayout> {
        assert!(Arc::ptr_eq(&self.layout, &block.layout), "a projection belongs to one table");
        &self.layouts
    }
}

/// The reason why a row type does not fit some columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// The numbers of columns and fields differ.
    Count {
        /// Number of columns.
        columns: usize,
        /// Number of fields of the row type.
        fields: usize,
    },
    /// The values of this column are of another type; or it is nullable and the field is not, or the other
    /// way round.
    Type(ColumnId),
}
