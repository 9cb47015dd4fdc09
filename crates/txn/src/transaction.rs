//! A transaction: a snapshot, a write set, and the way to end it.
//!
//! Reads take a [`Guard`], which pins what they return; hold it for one operation or one short
//! transaction, never across a wait. Dropping a transaction rolls it back.

use crate::{Catalog, Guard};
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Lsn, Result, RowId, Snapshot, Time};
use firn_storage::{Index, Table};
use std::ops::Bound;

/// A running transaction.
pub struct Transaction {}

/// A place to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {}

/// What a commit yields: when it took effect, and when it will be safe on disk.
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit is durable only once its ticket has been waited for"]
pub struct Ticket {
    /// The commit time; a read-only transaction's read time.
    pub time: Time,
    /// The log position that must reach the disk; `None` if there is nothing to wait for.
    pub lsn: Option<Lsn>,
}

impl Transaction {
    /// What it sees.
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }

    /// The catalog as it sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        todo!()
    }

    /// The catalog to change. First use takes the DDL lock until the end of the transaction;
    /// SQLSTATE 40001 if another transaction's DDL committed since this one began or is running.
    pub fn catalog_mut(&mut self) -> Result<&mut Catalog> {
        todo!()
    }

    /// The physical table of an id, also if this transaction has just created it.
    pub fn table(&self, id: firn_base::TableId) -> Arc<Table> {
        todo!("{id:?}")
    }

    /// Whether it has changed anything.
    pub fn has_writes(&self) -> bool {
        todo!()
    }

    /// Inserts a row; see [`Table::insert`].
    pub fn insert(&mut self, table: &Arc<Table>, row: &[Cell<'_>], guard: &Guard) -> Result<RowId> {
        let _ = (table, row, guard);
        todo!()
    }

    /// Inserts whole columns; see [`Table::insert_batch`].
    pub fn insert_batch(
        &mut self,
        table: &Arc<Table>,
        columns: &[arrow_array::ArrayRef],
        guard: &Guard,
    ) -> Result<()> {
        let _ = (table, columns, guard);
        todo!()
    }

    /// Sets columns of a visible row; see [`Table::update`].
    pub fn update(
        &mut self,
        table: &Arc<Table>,
        row: RowId,
        columns: &[ColumnId],
        cells: &[Cell<'_>],
        guard: &Guard,
    ) -> Result<()> {
        let _ = (table, row, columns, cells, guard);
        todo!()
    }

    /// Deletes a visible row; see [`Table::delete`].
    pub fn delete(&mut self, table: &Arc<Table>, row: RowId, guard: &Guard) -> Result<()> {
        let _ = (table, row, guard);
        todo!()
    }

    /// Reads columns of a row; false if this transaction does not see it.
    pub fn read<'g>(
        &self,
        table: &'g Table,
        row: RowId,
        columns: &[ColumnId],
        cells: &mut [Cell<'g>],
        guard: &'g Guard,
    ) -> bool {
        let _ = (table, row, columns, cells, guard);
        todo!()
    }

    /// The visible row under a full key of a unique index.
    pub fn get(&self, table: &Table, index: &Index, key: &[u8], guard: &Guard) -> Option<RowId> {
        let _ = (table, index, key, guard);
        todo!()
    }

    /// Calls `visit` with every visible row whose key lies in the bounds, in key order or against
    /// it, until `visit` returns false. Bounds as for [`Index::range`].
    #[allow(clippy::too_many_arguments)]
    pub fn range(
        &self,
        table: &Table,
        index: &Index,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
        guard: &Guard,
        visit: &mut dyn FnMut(RowId) -> bool,
    ) {
        let _ = (table, index, low, high, reverse, guard, visit);
        todo!()
    }

    /// Remembers this point.
    pub fn savepoint(&self) -> Savepoint {
        todo!()
    }

    /// Undoes everything since the savepoint, DDL included; the savepoint stays.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        let _ = savepoint;
        todo!()
    }

    /// Commits. The changes are visible to others when this returns, and durable once
    /// [`Transaction::wait`]-ing for the ticket returns.
    pub fn commit(self) -> Result<Ticket> {
        todo!()
    }

    /// Rolls back.
    pub fn rollback(self) {
        todo!()
    }
}
