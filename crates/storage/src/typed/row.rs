//! Tuples of [`Field`]s.

use super::{Field, Place};
use crate::KeyBuffer;
use crate::block::RawCell;
use crate::column::ColumnSpec;
use crate::layout::ColumnLayout;
use crate::version::EntryWriter;
use firn_base::{Cell, ColumnId};
use firn_log::CellWriter;

/// A tuple of up to twelve [`Field`]s, or an array of one [`Field`] of any length.
pub trait Row: 'static {
    /// The values of a row.
    type Values<'v>: Copy;
    /// Values as a block holds them.
    #[doc(hidden)]
    type Raws: Copy;
    /// An array with an element for each field.
    #[doc(hidden)]
    type Array<T: Copy>: Copy + AsRef<[T]>;
    /// The number of fields.
    const LEN: usize;
    /// Whether all are plain in keys.
    #[doc(hidden)]
    const IS_PLAIN_KEY: bool;

    /// Appends the values to a key, if they are plain there.
    #[doc(hidden)]
    fn push_key(values: &Self::Values<'_>, key: &mut KeyBuffer);

    #[doc(hidden)]
    fn array<T: Copy>(each: impl FnMut(usize) -> T) -> Self::Array<T>;

    /// Whether each column fits its field.
    #[doc(hidden)]
    fn fits(columns: &mut dyn Iterator<Item = &ColumnSpec>) -> Vec<bool>;

    /// # Safety
    /// As for [`Field::load`].
    #[doc(hidden)]
    unsafe fn load(place: Place<'_>, columns: &Self::Array<ColumnLayout>) -> Self::Raws;

    #[doc(hidden)]
    fn raws(cells: &[RawCell]) -> Self::Raws;

    #[doc(hidden)]
    fn values(place: Place<'_>, raws: Self::Raws) -> Self::Values<'_>;

    #[doc(hidden)]
    fn cells<'v>(values: &Self::Values<'v>) -> Self::Array<Cell<'v>>;

    /// # Safety
    /// As for [`Field::store`].
    #[doc(hidden)]
    unsafe fn store(place: Place<'_>, columns: &Self::Array<ColumnLayout>, values: &Self::Values<'_>);

    /// Fills consecutive rows, column after column.
    ///
    /// # Safety
    /// As for [`Field::store`], for all of them.
    #[doc(hidden)]
    unsafe fn store_rows(first: Place<'_>, columns: &Self::Array<ColumnLayout>, rows: &[Self::Values<'_>]);

    /// Writes the cells of one column to the log.
    #[doc(hidden)]
    fn log_column(rows: &[Self::Values<'_>], column: usize, log: &mut CellWriter<'_>);

    /// Prefetches the values.
    #[doc(hidden)]
    fn prefetch(place: Place<'_>, columns: &Self::Array<ColumnLayout>);

    /// Prefetches what the values refer to, which are strings.
    ///
    /// # Safety
    /// As for [`Field::load`].
    #[doc(hidden)]
    unsafe fn prefetch_further(place: Place<'_>, columns: &Self::Array<ColumnLayout>);

    /// Writes the current values of the columns to an undo record.
    ///
    /// # Safety
    /// As for [`Field::load`]; and the writer has room for all of them.
    #[doc(hidden)]
    unsafe fn remember(
        place: Place<'_>,
        ids: &Self::Array<ColumnId>,
        columns: &Self::Array<ColumnLayout>,
        entries: &mut EntryWriter,
    );
}

macro_rules! row {
    ($len:literal: $($field:ident $at:tt),*) => {
        #[allow(unused_variables, unused_mut, unused_unsafe, clippy::unused_unit)]
        impl<$($field: Field),*> Row for ($($field,)*) {
            type Values<'v> = ($($field::Value<'v>,)*);
            type Raws = ($($field::Raw,)*);
            type Array<T: Copy> = [T; $len];
            const LEN: usize = $len;
            const IS_PLAIN_KEY: bool = true $(&& $field::IS_PLAIN_KEY)*;

            #[inline(always)]
            fn push_key(values: &Self::Values<'_>, key: &mut KeyBuffer) {
                $($field::push_key(&values.$at, key);)*
            }

            #[inline(always)]
            fn array<T: Copy>(each: impl FnMut(usize) -> T) -> [T; $len] {
                std::array::from_fn(each)
            }

            fn fits(columns: &mut dyn Iterator<Item = &ColumnSpec>) -> Vec<bool> {
                let fits: [fn(&ColumnSpec) -> bool; $len] = [$($field::fits),*];
                columns.zip(fits).map(|(column, fits)| fits(column)).collect()
            }

            #[inline(always)]
            unsafe fn load(place: Place<'_>, columns: &[ColumnLayout; $len]) -> Self::Raws {
                // SAFETY: by the caller.
                unsafe { ($($field::load(place, columns[$at]),)*) }
            }

            #[inline(always)]
            fn raws(cells: &[RawCell]) -> Self::Raws {
                ($($field::raw(cells[$at]),)*)
            }

            #[inline(always)]
            fn values(place: Place<'_>, raws: Self::Raws) -> Self::Values<'_> {
                ($($field::value(place, raws.$at),)*)
            }

            #[inline(always)]
            fn cells<'v>(values: &Self::Values<'v>) -> [Cell<'v>; $len] {
                [$($field::cell(&values.$at)),*]
            }

            #[inline(always)]
            unsafe fn store(place: Place<'_>, columns: &[ColumnLayout; $len], values: &Self::Values<'_>) {
                // SAFETY: by the caller.
                unsafe { $($field::store(place, columns[$at], &values.$at);)* }
            }

            #[inline(always)]
            unsafe fn store_rows(
                first: Place<'_>,
                columns: &[ColumnLayout; $len],
                rows: &[Self::Values<'_>],
            ) {
                $(for (offset, row) in rows.iter().enumerate() {
                    let place = Place { at: first.at + offset, ..first };
                    // SAFETY: by the caller.
                    unsafe { $field::store(place, columns[$at], &row.$at) };
                })*
            }

            #[inline(always)]
            fn log_column(rows: &[Self::Values<'_>], column: usize, log: &mut CellWriter<'_>) {
                match column {
                    $($at => log.extend(rows.iter().map(|row| $field::cell(&row.$at))),)*
                    _ => unreachable!("the column is a field of the row"),
                }
            }

            #[inline(always)]
            fn prefetch(place: Place<'_>, columns: &[ColumnLayout; $len]) {
                $($field::prefetch(place, columns[$at]);)*
            }

            #[inline(always)]
            unsafe fn prefetch_further(place: Place<'_>, columns: &[ColumnLayout; $len]) {
                // SAFETY: by the caller.
                unsafe {
                    $($field::prefetch_further(place, columns[$at]);)*
                }
            }

            #[inline(always)]
            unsafe fn remember(
                place: Place<'_>,
                ids: &[ColumnId; $len],
                columns: &[ColumnLayout; $len],
                entries: &mut EntryWriter,
            ) {
                // SAFETY: by the caller.
                unsafe { $(entries.put(ids[$at], $field::image(place, columns[$at]));)* }
            }
        }
    };
}

row!(0:);
row!(1: A 0);
row!(2: A 0, B 1);
row!(3: A 0, B 1, C 2);
row!(4: A 0, B 1, C 2, D 3);
row!(5: A 0, B 1, C 2, D 3, E 4);
row!(6: A 0, B 1, C 2, D 3, E 4, F 5);
row!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
row!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
row!(9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
row!(10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
row!(11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
row!(12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

impl<F: Field, const N: usize> Row for [F; N] {
    type Values<'v> = [F::Value<'v>; N];
    type Raws = [F::Raw; N];
    type Array<T: Copy> = [T; N];
    const LEN: usize = N;
    const IS_PLAIN_KEY: bool = F::IS_PLAIN_KEY;

    #[inline(always)]
    fn push_key(values: &Self::Values<'_>, key: &mut KeyBuffer) {
        values.iter().for_each(|value| F::push_key(value, key));
    }

    #[inline(always)]
    fn array<T: Copy>(each: impl FnMut(usize) -> T) -> [T; N] {
        std::array::from_fn(each)
    }

    fn fits(columns: &mut dyn Iterator<Item = &ColumnSpec>) -> Vec<bool> {
        columns.map(F::fits).collect()
    }

    #[inline(always)]
    unsafe fn load(place: Place<'_>, columns: &[ColumnLayout; N]) -> Self::Raws {
        // SAFETY: by the caller.
        columns.map(|column| unsafe { F::load(place, column) })
    }

    #[inline(always)]
    fn raws(cells: &[RawCell]) -> Self::Raws {
        std::array::from_fn(|at| F::raw(cells[at]))
    }

    #[inline(always)]
    fn values(place: Place<'_>, raws: Self::Raws) -> Self::Values<'_> {
        raws.map(|raw| F::value(place, raw))
    }

    #[inline(always)]
    fn cells<'v>(values: &Self::Values<'v>) -> [Cell<'v>; N] {
        std::array::from_fn(|at| F::cell(&values[at]))
    }

    #[inline(always)]
    unsafe fn store(place: Place<'_>, columns: &[ColumnLayout; N], values: &Self::Values<'_>) {
        for (column, value) in columns.iter().zip(values) {
            // SAFETY: by the caller.
            unsafe { F::store(place, *column, value) };
        }
    }

    #[inline(always)]
    unsafe fn store_rows(first: Place<'_>, columns: &[ColumnLayout; N], rows: &[Self::Values<'_>]) {
        for (at, column) in columns.iter().enumerate() {
            for (offset, row) in rows.iter().enumerate() {
                let place = Place { at: first.at + offset, ..first };
                // SAFETY: by the caller.
                unsafe { F::store(place, *column, &row[at]) };
            }
        }
    }

    #[inline(always)]
    fn log_column(rows: &[Self::Values<'_>], column: usize, log: &mut CellWriter<'_>) {
        log.extend(rows.iter().map(|row| F::cell(&row[column])));
    }

    #[inline(always)]
    fn prefetch(place: Place<'_>, columns: &[ColumnLayout; N]) {
        columns.iter().for_each(|column| F::prefetch(place, *column));
    }

    #[inline(always)]
    unsafe fn prefetch_further(place: Place<'_>, columns: &[ColumnLayout; N]) {
        for column in columns {
            // SAFETY: by the caller.
            unsafe { F::prefetch_further(place, *column) };
        }
    }

    #[inline(always)]
    unsafe fn remember(
        place: Place<'_>,
        ids: &[ColumnId; N],
        columns: &[ColumnLayout; N],
        entries: &mut EntryWriter,
    ) {
        for (id, column) in ids.iter().zip(columns) {
            // SAFETY: by the caller.
            entries.put(*id, unsafe { F::image(place, *column) });
        }
    }
}
