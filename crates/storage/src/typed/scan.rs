//! Scans that give slices of numbers, a stretch of rows at a time, to whoever takes no Arrow: the values lie
//! in memory that is used again for the next stretch, in the core's first cache.

use super::Projection;
use super::row::Row;
use crate::scan::{TableScan, Values};
use crate::{Guard, Table};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Snapshot};

/// Rows of a stretch at most.
pub(crate) const VECTOR_ROWS: u32 = 2048;

/// Tuples of numbers that cannot be NULL: [`Row`]s that can be scanned as slices.
pub trait Vectors: Row {
    /// A slice for each field, all of one length.
    type Slices<'v>;

    #[doc(hidden)]
    fn slices<'v>(columns: &mut dyn Iterator<Item = &'v Values>) -> Self::Slices<'v>;
}

/// A number that lies in a column as it is.
trait Number: Sized {
    fn slice(values: &Values) -> &[Self];
}

macro_rules! number {
    ($($ty:ty, $kind:ident, $stored:ty;)*) => {$(
        impl Number for $ty {
            #[inline]
            fn slice(values: &Values) -> &[$ty] {
                const { assert!(size_of::<$ty>() == size_of::<$stored>()) };
                let Values::$kind(values) = values else { unreachable!("the projection fits the columns") };
                let values: &[$stored] = values;
                // SAFETY: both types have this size, need no greater alignment, and take any bits.
                unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
            }
        }
    )*};
}
number! {
    i16, Two, u16;
    i32, Four, u32;
    f32, Four, u32;
    i64, Eight, u64;
    f64, Eight, u64;
}

macro_rules! vectors {
    ($($field:ident),*) => {
        #[allow(private_bounds)]
        impl<$($field: super::Field + Number),*> Vectors for ($($field,)*) {
            type Slices<'v> = ($(&'v [$field],)*);

            #[inline]
            fn slices<'v>(columns: &mut dyn Iterator<Item = &'v Values>) -> Self::Slices<'v> {
                ($($field::slice(columns.next().expect("one for every field")),)*)
            }
        }
    };
}
vectors!(A);
vectors!(A, B);
vectors!(A, B, C);
vectors!(A, B, C, D);
vectors!(A, B, C, D, E);
vectors!(A, B, C, D, E, F);
vectors!(A, B, C, D, E, F, G);
vectors!(A, B, C, D, E, F, G, H);

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
    /// Calls `visit` with the next rows, a stretch of at most a few thousand at a time, as far as the block
    /// goes that they lie in; false if the table is through. Several threads may share the scan.
    pub fn next_vectors<R: Vectors>(&self, guard: &Guard, visit: &mut impl FnMut(R::Slices<'_>)) -> bool {
        self.next_block(guard, &mut |columns| visit(R::slices(columns)))
    }
}
