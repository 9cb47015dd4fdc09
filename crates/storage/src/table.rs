//! A table: a list of blocks, the rows in them, and the indexes over them.

use crate::{Guard, Index, TableScan, WriteSet};
use arrow_array::ArrayRef;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId, Snapshot, SqlType, TableId};

/// One column of a physical table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// What the column holds.
    pub ty: SqlType,
    /// Whether it may hold NULL. Storage refuses NULLs in other columns by assertion.
    pub nullable: bool,
}

/// How a table lays out its blocks.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Bytes of a block; tests make them small so that rows cross blocks early.
    pub block_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { block_bytes: 1 << 20 }
    }
}

/// A physical table.
pub struct Table {}

impl Table {
    /// An empty table. `name` is for messages only.
    pub fn new(id: TableId, name: &str, columns: Vec<ColumnSpec>, options: TableOptions) -> Arc<Table> {
        todo!("{id:?} {name} {columns:?} {options:?}")
    }

    /// The id that the log and the catalog know it by.
    pub fn id(&self) -> TableId {
        todo!()
    }

    /// The columns, dropped ones included.
    pub fn columns(&self) -> &[ColumnSpec] {
        todo!()
    }

    /// The indexes that every change maintains.
    pub fn indexes(&self) -> Arc<[Arc<Index>]> {
        todo!()
    }

    /// Adds an index; from now on every change maintains it. The caller fills it with the rows that
    /// are already there and keeps writers out meanwhile.
    pub fn add_index(&self, index: Arc<Index>) {
        let _ = index;
        todo!()
    }

    /// Takes an index off; nothing maintains it any more.
    pub fn remove_index(&self, index: &Arc<Index>) {
        let _ = index;
        todo!()
    }

    /// Inserts a row of one cell per column, indexes included.
    ///
    /// Errors: 23505 naming the unique index, 40001 when another running or later transaction holds
    /// the key. After an error the caller rolls the write set back to where it was.
    pub fn insert(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<RowId> {
        let _ = (write_set, snapshot, row, guard);
        todo!()
    }

    /// Inserts whole columns (of the types of [`crate::arrow::data_type`]), all of one length.
    pub fn insert_batch(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        columns: &[ArrayRef],
        guard: &Guard,
    ) -> Result<()> {
        let _ = (write_set, snapshot, columns, guard);
        todo!()
    }

    /// Sets some columns of a row that `snapshot` sees. Errors as for [`Table::insert`].
    pub fn update(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        let _ = (write_set, snapshot, row, columns, cells, guard);
        todo!()
    }

    /// Deletes a row that `snapshot` sees. Error: 40001.
    pub fn delete(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        guard: &Guard,
    ) -> Result<()> {
        let _ = (write_set, snapshot, row, guard);
        todo!()
    }

    /// Reads columns of a row into `cells` (as many as `columns`); false if `snapshot` does not see
    /// the row.
    pub fn read<'g>(
        &'g self,
        snapshot: Snapshot,
        row: RowId,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        let _ = (snapshot, row, columns, cells, guard);
        todo!()
    }

    /// A scan of the rows that `snapshot` sees, in blocks' order, shared by any number of threads.
    pub fn scan(self: &Arc<Self>, snapshot: Snapshot, columns: &[ColumnId], row_ids: bool) -> TableScan {
        let _ = (snapshot, columns, row_ids);
        todo!()
    }

    /// About how many rows the newest version holds; exact when nobody is writing.
    pub fn approximate_rows(&self) -> u64 {
        todo!()
    }

    /// Bytes held: blocks, heaps, version pointers; indexes apart.
    pub fn memory_bytes(&self) -> u64 {
        todo!()
    }
}
