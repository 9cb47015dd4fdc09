//! Locks on rows of a table: as records of their chains, and as shared locks ([`crate::row_lock`]).

use super::Table;
use crate::heads::Head;
use crate::row_lock::RowLock;
use crate::version::{Change, Record};
use crate::{Guard, WriteSet};
use firn_base::{ColumnId, Error, Result, RowId, Snapshot, Stamp};

impl Table {
    /// The lock that a record's transaction holds with it.
    #[cold]
    pub(super) fn held_by(&self, record: Record<'_>, guard: &Guard) -> RowLock {
        match record.change() {
            Change::Lock => record.row_lock(),
            Change::Update => self.lock_of_update(record.entries().map(|(column, _)| column), guard),
            Change::Insert | Change::InsertMany | Change::Delete | Change::Refill => RowLock::Update,
        }
    }

    /// The lock that an update of some columns takes.
    pub(super) fn lock_of_update(
        &self,
        mut columns: impl Iterator<Item = ColumnId>,
        guard: &Guard,
    ) -> RowLock {
        let indexes = self.indexes.get(guard).all();
        let is_key = |column| {
            let unique = indexes.iter().filter(|index| index.spec().unique);
            unique.flat_map(|index| &index.spec().columns).any(|part| part.column == column)
        };
        if columns.any(is_key) { RowLock::Update } else { RowLock::NoKeyUpdate }
    }

    /// Whether a lock conflicts with a shared lock of another transaction. `lock` is called only if there are
    /// shared locks.
    #[inline]
    pub(crate) fn check_sharers(
        &self,
        row: RowId,
        snapshot: Snapshot,
        lock: impl FnOnce() -> RowLock,
    ) -> Result<()> {
        if self.sharers.is_empty() {
            return Ok(());
        }
        match self.sharers.blocker(row, snapshot.owner, lock()) {
            Some(blocker) => Err(Error::write_conflict(&self.name()).with_blocker(blocker)),
            None => Ok(()),
        }
    }

    /// Locks a row that `snapshot` sees until the transaction ends, with a lock that one transaction holds
    /// alone. Error: 40001.
    pub fn lock(
        &self,
        write_set: &mut WriteSet,
        snapshot: Snapshot,
        row: RowId,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        debug_assert!(!lock.is_shared());
        let block = self.block(row);
        let slot = row.slot();
        block.prepare_write();
        loop {
            let head = block.head(slot, guard);
            if self.holds(head.record(), snapshot, lock, guard) {
                // It may have locked a version that is newer than its snapshot.
                return self.check_conflict(block, head, snapshot, lock, guard);
            }
            self.check_lockable(row, head, snapshot, lock, guard)?;
            self.check_sharers(row, snapshot, || lock)?;
            let record = write_set.push_lock(block, slot, lock);
            if block.link(record, head) {
                break;
            }
            write_set.pop_lock();
        }
        write_set.count_row(&self.budget);
        self.check_sharers(row, snapshot, || lock)
    }

    /// Takes a shared lock on a row that `snapshot` sees. Returns whether the transaction did not have it
    /// before: then [`Table::unshare`] has to be called. Error: 40001.
    pub fn share(&self, snapshot: Snapshot, row: RowId, lock: RowLock, guard: &Guard) -> Result<bool> {
        debug_assert!(lock.is_shared());
        let block = self.block(row);
        let head = || block.head(row.slot(), guard);
        if self.holds(head().record(), snapshot, lock, guard) {
            return self.check_conflict(block, head(), snapshot, lock, guard).map(|()| false);
        }
        self.sharers
            .add(row, snapshot.owner, lock, || self.check_lockable(row, head(), snapshot, lock, guard))
    }

    /// Whether a row to be locked exists, and no other transaction has a conflicting lock. The row may be
    /// deleted if `snapshot` reads later than the one in which it was found.
    fn check_lockable(
        &self,
        row: RowId,
        head: Head<'_>,
        snapshot: Snapshot,
        lock: RowLock,
        guard: &Guard,
    ) -> Result<()> {
        let block = self.block(row);
        self.check_conflict(block, head, snapshot, lock, guard)?;
        match block.is_present(row.slot()) {
            true => Ok(()),
            false => Err(Error::write_conflict(&self.name())),
        }
    }

    /// Releases a shared lock.
    pub fn unshare(&self, row: RowId, owner: Stamp, lock: RowLock) {
        self.sharers.release(row, owner, lock);
    }

    /// Whether the owner of `snapshot` has changed the row, or has a lock on it that is as strong, by a
    /// record of its chain.
    fn holds(&self, head: Option<Record<'_>>, snapshot: Snapshot, lock: RowLock, guard: &Guard) -> bool {
        let mut next = head;
        while let Some(record) = next
            && record.stamp() == snapshot.owner
        {
            if !record.undone() && self.held_by(record, guard) >= lock {
                return true;
            }
            next = record.older(guard);
        }
        false
    }
}
