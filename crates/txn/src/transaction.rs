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

    /// Whether a row that this transaction sees stands under a full key of a unique index: what a
    /// foreign key asks before it points there. 40001 if another transaction is deleting or moving
    /// that row, or has since this one began.
    pub fn reference_target_exists(
        &self,
        table: &Table,
        index: &Index,
        key: &[u8],
        guard: &Guard,
    ) -> Result<bool> {
        let _ = (table, index, key, guard);
        todo!()
    }

    /// Whether a row that this transaction sees has a key that begins with `prefix`: what deleting
    /// a referenced row asks of the referencing table. 40001 if another transaction is inserting
    /// such a row, or has since this one began.
    pub fn referencing_row_exists(
        &self,
        table: &Table,
        index: &Index,
        prefix: &[u8],
        guard: &Guard,
    ) -> Result<bool> {
        let _ = (table, index, prefix, guard);
        todo!()
    }

    /// Makes an empty physical table, which goes away again if the transaction rolls back.
    /// `name` is for messages. The caller puts the id into a [`crate::catalog::TableDef`].
    pub fn create_storage(
        &mut self,
        name: &str,
        columns: Vec<firn_storage::ColumnSpec>,
    ) -> firn_base::TableId {
        let _ = (name, columns);
        todo!()
    }

    /// Lets a physical table go once this transaction has committed and nobody reads it any more.
    pub fn drop_storage(&mut self, table: firn_base::TableId) {
        todo!("{table:?}")
    }

    /// Keeps every other transaction from writing to the table until this one ends: for ALTER,
    /// CREATE INDEX, TRUNCATE, DROP. 55P03 if others that have written to it do not end in time.
    pub fn lock_exclusive(&mut self, table: &Arc<Table>) -> Result<()> {
        let _ = table;
        todo!()
    }

    /// Builds an index over what the table holds, under [`Transaction::lock_exclusive`]; it goes
    /// away again on rollback. 23505 if `spec.unique` and two rows share a key.
    pub fn create_index(&mut self, table: &Arc<Table>, spec: firn_storage::IndexSpec) -> Result<()> {
        let _ = (table, spec);
        todo!()
    }

    /// Takes an index off a table once this transaction has committed.
    pub fn drop_index(&mut self, table: &Arc<Table>, index: firn_storage::IndexId) -> Result<()> {
        let _ = (table, index);
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
    /// [`crate::Engine::wait`] returns for the ticket.
    pub fn commit(self) -> Result<Ticket> {
        todo!()
    }

    /// Rolls back.
    pub fn rollback(self) {
        todo!()
    }
}
