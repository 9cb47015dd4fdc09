//! Scans: what a snapshot sees of a table, as Arrow batches.

use crate::Guard;
use arrow_array::{ArrayRef, UInt64Array};

/// Rows of one stretch of a table.
pub struct ScanBatch {
    /// One array per requested column.
    pub columns: Vec<ArrayRef>,
    /// How many rows, also when no column was requested.
    pub rows: usize,
    /// The rows' ids, if asked for ([`firn_base::RowId::to_bits`]).
    pub row_ids: Option<UInt64Array>,
}

/// A scan in progress. Several threads may draw from it; each batch goes to one of them.
pub struct TableScan {}

impl TableScan {
    /// The next batch, of at most 8,192 rows; never empty. `None` when the table is through.
    pub fn next_batch(&self, guard: &Guard) -> Option<ScanBatch> {
        let _ = guard;
        todo!()
    }
}
