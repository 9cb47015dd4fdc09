//! Scans without Arrow. One returns slices of numbers, some rows at a time: the values are in memory that is
//! reused for the next rows, in the core's first-level cache. The other folds rows into a state, like
//! [`Iterator::fold`], and copies nothing.
//!
//! Values in a block may be written to while they are read, which is detected afterwards. A caller that has
//! already received slices could not undo its work, so slices are copies that were validated first. A fold
//! can be undone: its effect is in its state, and the former state is restored.

use super::row::Row;
use super::{Place, Projection};
use crate::block::{Block, RawCell};
use crate::copy::{self, LANES, Loads};
use crate::layout::Unit;
use crate::scan::{self, TableScan, Values};
use crate::walk::Sink;
use crate::{Guard, Table};
use firn_base::sync::{Arc, AtomicU16, AtomicU32, AtomicU64};
use firn_base::{ColumnId, Slot, Snapshot};
use std::marker::PhantomData;

/// The largest number of rows at a time.
pub(crate) const VECTOR_ROWS: u32 = 2048;

/// Tuples of numbers that cannot be NULL: [`Row`]s that can be scanned as slices, and folded.
pub trait Vectors: Row + Copy {
    /// A slice for each field, all of one length.
    type Slices<'v>;

    #[doc(hidden)]
    fn slices<'v>(columns: &mut dyn Iterator<Item = &'v Values>) -> Self::Slices<'v>;

    /// Calls `fold` with each row of slices.
    #[doc(hidden)]
    fn fold_slices<S>(slices: &Self::Slices<'_>, rows: usize, state: &mut S, fold: &impl Fn(&mut S, Self));

    /// Calls `fold` with the current values of the columns of some rows from the first one on.
    ///
    /// # Safety
    /// As for [`Loads::load`].
    #[doc(hidden)]
    unsafe fn fold_by<L: Loads, S: Copy>(
        first: Place<'_>,
        columns: &[ColumnId],
        rows: usize,
        state: &mut S,
        fold: &impl Fn(&mut S, Self),
    );

    /// The row of some cells.
    #[doc(hidden)]
    fn of(cells: &[RawCell]) -> Self;
}

/// A number that is stored in a column as it is.
trait Number: Copy {
    type Atomic: copy::Number;

    fn slice(values: &Values) -> &[Self];

    /// Some rows of a column.
    fn shared(first: Place<'_>, column: ColumnId, rows: usize) -> &[Self::Atomic];

    fn of(bits: <Self::Atomic as copy::Number>::Plain) -> Self;

    fn of_word(word: u64) -> Self;
}

macro_rules! number {
    ($($representation:ty, $kind:ident, $stored:ty, $atomic:ty, $column:ident, $of:expr;)*) => {$(
        impl Number for $representation {
            type Atomic = $atomic;

            #[inline]
            fn slice(values: &Values) -> &[$representation] {
                const { assert!(size_of::<$representation>() == size_of::<$stored>()) };
                let Values::$kind(values) = values else { unreachable!("the column fits the field") };
                let values: &[$stored] = values;
                // SAFETY: both types have this size, need no greater alignment, and take any bits.
                unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
            }

            #[inline]
            fn shared(Place { block, at }: Place<'_>, column: ColumnId, rows: usize) -> &[$atomic] {
                assert!(block.layout.column(column).unit() == Unit::$kind, "the column fits the field");
                &block.$column(column)[at..at + rows]
            }

            #[inline(always)]
            fn of(bits: $stored) -> $representation {
                $of(bits)
            }

            #[inline(always)]
            fn of_word(word: u64) -> $representation {
                $of(word as $stored)
            }
        }
    )*};
}
number! {
    i16, Two, u16, AtomicU16, u16s, |bits| bits as i16;
    i32, Four, u32, AtomicU32, u32s, |bits| bits as i32;
    f32, Four, u32, AtomicU32, u32s, f32::from_bits;
    i64, Eight, u64, AtomicU64, u64s, |bits| bits as i64;
    f64, Eight, u64, AtomicU64, u64s, f64::from_bits;
}

macro_rules! vectors {
    ($($field:ident $at:tt),*) => {
        #[allow(private_bounds)]
        impl<$($field: super::Field + Number),*> Vectors for ($($field,)*) {
            type Slices<'v> = ($(&'v [$field],)*);

            #[inline]
            fn slices<'v>(columns: &mut dyn Iterator<Item = &'v Values>) -> Self::Slices<'v> {
                ($($field::slice(columns.next().expect("every field has a column")),)*)
            }

            #[inline]
            fn fold_slices<S>(
                slices: &Self::Slices<'_>,
                rows: usize,
                state: &mut S,
                fold: &impl Fn(&mut S, Self),
            ) {
                let slices = ($(&slices.$at[..rows],)*);
                for row in 0..rows {
                    fold(state, ($(slices.$at[row],)*));
                }
            }

            #[inline(always)]
            unsafe fn fold_by<L: Loads, S: Copy>(
                first: Place<'_>,
                columns: &[ColumnId],
                rows: usize,
                state: &mut S,
                fold: &impl Fn(&mut S, Self),
            ) {
                let (chunks, rest) = (rows / LANES, rows % LANES);
                let shared = ($($field::shared(first, columns[$at], rows).as_chunks::<LANES>(),)*);
                let shared = ($((&shared.$at.0[..chunks], &shared.$at.1[..rest]),)*);
                // A local copy, so that it may be in registers.
                let mut own = *state;
                for chunk in 0..chunks {
                    // SAFETY: by the caller.
                    let values = unsafe { ($(L::load(&shared.$at.0[chunk]),)*) };
                    for lane in 0..LANES {
                        fold(&mut own, ($($field::of(values.$at[lane]),)*));
                    }
                }
                for row in 0..rest {
                    fold(&mut own, ($($field::of(copy::Number::load_relaxed(&shared.$at.1[row])),)*));
                }
                *state = own;
            }

            #[inline]
            fn of(cells: &[RawCell]) -> Self {
                ($($field::of_word(cells[$at].words[0]),)*)
            }
        }
    };
}
vectors!(A 0);
vectors!(A 0, B 1);
vectors!(A 0, B 1, C 2);
vectors!(A 0, B 1, C 2, D 3);
vectors!(A 0, B 1, C 2, D 3, E 4);
vectors!(A 0, B 1, C 2, D 3, E 4, F 5);
vectors!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
vectors!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// [`Vectors::fold_by`] with the best loads that the processor has.
fn fold<R: Vectors, S: Copy>(
    first: Place<'_>,
    columns: &[ColumnId],
    rows: usize,
    state: &mut S,
    fold: &impl Fn(&mut S, R),
) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx2") {
        /// Code that is inlined here may use AVX2 throughout, including the caller's `fold`.
        #[target_feature(enable = "avx2")]
        fn by_avx2<R: Vectors, S: Copy>(
            first: Place<'_>,
            columns: &[ColumnId],
            rows: usize,
            state: &mut S,
            fold: &impl Fn(&mut S, R),
        ) {
            // SAFETY: the caller has checked for it.
            unsafe { R::fold_by::<copy::Avx2, S>(first, columns, rows, state, fold) };
        }
        // SAFETY: just checked.
        return unsafe { by_avx2(first, columns, rows, state, fold) };
    }
    // SAFETY: every processor can do this.
    unsafe { R::fold_by::<copy::OneByOne, S>(first, columns, rows, state, fold) };
}

/// A fold in progress.
struct Folding<'a, S, F, R> {
    columns: &'a [ColumnId],
    state: S,
    fold: &'a F,
    row: PhantomData<R>,
}

impl<R: Vectors, S: Copy, F: Fn(&mut S, R)> Sink for Folding<'_, S, F, R> {
    const IN_ORDER: bool = false;

    type Mark = S;

    #[inline]
    fn mark(&self) -> S {
        self.state
    }

    #[inline]
    fn forget(&mut self, since: S) {
        self.state = since;
    }

    #[inline]
    fn take(&mut self, block: &Block, from: u32, to: u32) {
        if block.is_compact() {
            // In parts whose decoded values fit into a cache.
            return (from..to).step_by(VECTOR_ROWS as usize).for_each(|first| {
                let rows = (to - first).min(VECTOR_ROWS);
                let columns = scan::decode(block, self.columns, first, first + rows);
                let slices = R::slices(&mut columns.iter());
                R::fold_slices(&slices, rows as usize, &mut self.state, self.fold);
            });
        }
        let first = Place { block, at: from as usize };
        fold(first, self.columns, (to - from) as usize, &mut self.state, self.fold);
    }

    #[inline]
    fn take_row(&mut self, _slot: Slot, cells: &[RawCell]) {
        (self.fold)(&mut self.state, R::of(cells));
    }
}

impl Table {
    /// A scan of the rows that `snapshot` sees, for [`TableScan::next_vectors`] with the same projection.
    pub fn scan_as<R: Vectors>(
        self: &Arc<Self>,
        snapshot: Snapshot,
        projection: &Projection<R>,
    ) -> TableScan {
        let columns: &[ColumnId] = projection.columns();
        TableScan::new(self.clone(), snapshot, columns, false).giving_stored(VECTOR_ROWS)
    }
}

impl TableScan {
    /// Calls `visit` with the next rows, at most a few thousand at a time, up to the end of their block.
    /// Returns false at the end of the table. Several threads may share the scan.
    pub fn next_vectors<R: Vectors>(&self, guard: &Guard, visit: &mut impl FnMut(R::Slices<'_>)) -> bool {
        self.next_block(guard, &mut |columns| visit(R::slices(columns)))
    }
    /// Calls `fold` with a state and each row of the next few blocks. Returns false at the end of the table.
    /// Several threads may share the scan, each with its own state.
    ///
    /// Rows are read in place. If a writer has changed some of them meanwhile, the former state is restored,
    /// and they are read once more, as the snapshot sees them. So `fold` may be called with values that never
    /// were in one row together. It must return for any values, and must have no effect except on the state.
    pub fn fold_next<R: Vectors, S: Copy>(
        &self,
        guard: &Guard,
        state: &mut S,
        fold: &impl Fn(&mut S, R),
    ) -> bool {
        let Some(block) = self.next_whole_block() else { return false };
        let mut folding = Folding { columns: self.columns(), state: *state, fold, row: PhantomData };
        let mut walk = self.walk(block, guard);
        walk.rows(0, block.allocated(), &mut folding);
        for block in (1..self.blocks_at_once()).map_while(|_| self.next_whole_block()) {
            walk.turn_to(block);
            walk.rows(0, block.allocated(), &mut folding);
        }
        walk.finish(&mut folding);
        *state = folding.state;
        true
    }
}
