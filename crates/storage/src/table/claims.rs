//! Which rows have a key: in place, in the committed state, in a snapshot, and in versions to which a
//! transaction may return.

use super::keys::{key_columns, key_in_place, key_of};
use super::{Table, changes};
use crate::index::Verdict;
use crate::row_lock::RowLock;
use crate::version::{Change, Record, restore_columns};
use crate::write_set::Freed;
use crate::{Guard, Index};
use firn_base::{Error, Result, RowId, Slot, Snapshot, SqlState, Time, visible};

impl Table {
    /// Whether `other`, found under `key` of a unique index, conflicts with a new row with that key. The key
    /// may be in the own snapshot, in the newest committed version, or in uncommitted versions, including
    /// those to which a rollback may return. See Mühlbauer, "On Scalable and Flexible Transaction and Query
    /// Processing in Main-Memory Database Systems", TU München 2016, section 2.2.5.
    #[cold]
    pub(super) fn judge(
        &self,
        index: &Index,
        key: &[u8],
        other: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<Verdict> {
        let committed = Snapshot { read_time: Time::LATEST, owner: snapshot.owner };
        // In this order: a transaction that has not committed at the first check may have at the second.
        let in_pending = self.is_pending_under(index, key, other, snapshot, guard);
        let in_newest = self.has_key(index, key, other, committed, guard);
        let in_own = self.has_key(index, key, other, snapshot, guard);
        let in_place = self.has_key_in_place(index, key, other);
        if in_place && in_newest {
            return Err(Error::new(
                SqlState::UNIQUE_VIOLATION,
                format!("duplicate key value violates unique constraint \"{}\"", index.spec().name),
            )
            .with_constraint(&index.spec().name)
            .with_other_row(other));
        }
        if in_place || in_newest || in_own || in_pending {
            return Err(self.conflict(other, snapshot, guard));
        }
        Ok(Verdict::Dead)
    }

    /// The error of a conflict with a row; it names the transaction that is changing the row, if there is
    /// one.
    #[cold]
    pub fn conflict(&self, row: RowId, snapshot: Snapshot, guard: &Guard) -> Error {
        self.conflict_over(self.block(row).newest(row.slot(), guard), snapshot, RowLock::Update, guard)
    }

    /// The error of a conflict of `lock` with the row whose newest record is `head`. It names no transaction
    /// to wait for if there is, below the uncommitted changes, a change that the snapshot does not see: that
    /// conflict is permanent.
    #[cold]
    pub(super) fn conflict_over(
        &self,
        head: Option<Record<'_>>,
        snapshot: Snapshot,
        lock: RowLock,
        guard: &Guard,
    ) -> Error {
        let mut blocker = None;
        let mut next = head;
        while let Some(record) = next {
            let stamp = record.stamp();
            let conflicts = || self.held_by(record, guard).conflicts_with(lock);
            if !record.is_void() && stamp != snapshot.owner && conflicts() {
                if stamp.time().is_none() {
                    blocker = Some(stamp);
                } else {
                    blocker = blocker.filter(|_| visible(stamp, snapshot));
                    break;
                }
            }
            next = record.older(guard);
        }
        let error = Error::write_conflict(&self.name());
        match blocker {
            Some(stamp) => error.with_blocker(stamp),
            None => error,
        }
    }

    /// Whether the version of `row` that `snapshot` sees has `key`.
    pub(crate) fn has_key(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> bool {
        let block = self.block(row);
        let (columns, mut raw) = key_columns(index);
        block.read_raw(row.slot(), snapshot, &columns, &mut raw, guard)
            && key_of(block, index, &raw).as_slice() == key
    }

    /// Whether `snapshot` sees a row with the key that the row has in the committed state and the snapshot's
    /// own changes.
    pub fn is_seen_under_newest_key(
        &self,
        index: &Index,
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> bool {
        let block = self.block(row);
        let newest = Snapshot { read_time: Time::LATEST, ..snapshot };
        let (columns, mut raw) = key_columns(index);
        block.read_raw(row.slot(), newest, &columns, &mut raw, guard)
            && self.has_key(index, &key_of(block, index, &raw), row, snapshot, guard)
    }

    /// Whether the row in place, committed or not, has `key`.
    fn has_key_in_place(&self, index: &Index, key: &[u8], row: RowId) -> bool {
        let block = self.block(row);
        let slot = row.slot();
        // The lock keeps the keys of a row consistent; those of a row just inserted are complete once it is
        // present.
        let _turn = self.key_lock(row).lock();
        block.is_present(slot) && key_in_place(block, index, slot).as_slice() == key
    }

    /// Whether another transaction with uncommitted changes of `row` has given it `key`, or left it with it,
    /// in any of its versions. This includes versions that it has replaced again, or found, since it may
    /// return to them (ROLLBACK, ROLLBACK TO).
    fn is_pending_under(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> bool {
        let block = self.block(row);
        let slot = row.slot();
        let (columns, mut raw) = key_columns(index);
        let _turn = self.key_lock(row).lock();
        for (column, cell) in columns.iter().zip(&mut raw) {
            *cell = block.load_cell(slot, *column);
        }
        let mut next = block.newest(slot, guard);
        let mut pending = false;
        while let Some(record) = next
            && (record.is_void() || record.stamp().time().is_none() && record.stamp() != snapshot.owner)
        {
            pending |= !record.is_void();
            // The version after the record. Whether it is deleted does not matter: it may return.
            if pending && key_of(block, index, &raw).as_slice() == key {
                return true;
            }
            restore_columns(record, &columns, &mut raw);
            next = record.older(guard);
        }
        pending && key_of(block, index, &raw).as_slice() == key
    }

    /// 40001 if another transaction that has not ended has changed keys of a row: it may return to any key
    /// that the row has had meanwhile (ROLLBACK TO), whatever the row's current key. Row locks do not matter
    /// here.
    pub fn check_key_stays(&self, row: RowId, snapshot: Snapshot, guard: &Guard) -> Result<()> {
        let mut next = self.block(row).newest(row.slot(), guard);
        while let Some(record) = next {
            let stamp = record.stamp();
            // Everything from here on is committed.
            if stamp.time().is_some() {
                break;
            }
            let may_go_back = stamp != snapshot.owner && record.change() != Change::Lock && !record.undone();
            if may_go_back && self.held_by(record, guard) == RowLock::Update {
                return Err(Error::write_conflict(&self.name()).with_blocker(stamp));
            }
            next = record.older(guard);
        }
        Ok(())
    }

    /// Whether the row in place, committed or not, has `key` in `index`.
    pub fn stands_in_place(&self, index: &Index, key: &[u8], row: RowId) -> bool {
        self.has_key_in_place(index, key, row)
    }

    /// Whether `row` may get `key` in `index` by uncommitted changes of another transaction: it has the key
    /// in place, or the other transaction may return to a version with it, its own or the one that it found.
    pub fn may_come_to_stand(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> bool {
        let head = || self.block(row).head(row.slot(), guard);
        loop {
            let before = head();
            if self.is_pending_under(index, key, row, snapshot, guard)
                || self.has_key_in_place(index, key, row)
            {
                return true;
            }
            // Another transaction may have moved the row away after the first check and back after the
            // second.
            if head() == before {
                return false;
            }
        }
    }

    /// Reports the newest of the keys that rows have by a change; see
    /// [`WriteSet::roll_back_and`](crate::WriteSet::roll_back_and).
    pub(crate) fn keys_claimed(&self, record: Record<'_>, guard: &Guard, freed: &mut Freed<'_>) {
        /// For rows that were inserted together.
        const MOST_KEYS: u32 = 64;
        let rows = match record.change() {
            Change::Insert | Change::Update | Change::Refill => 1,
            Change::InsertMany => record.inserted_rows(),
            Change::Delete | Change::Lock => return,
        };
        let indexes = self.indexes.get(guard);
        for index in
            indexes.all().iter().filter(|index| index.spec().unique || freed.late.contains(&index.spec().id))
        {
            if record.change() == Change::Update && !changes(index, record) {
                continue;
            }
            if rows > MOST_KEYS {
                (freed.visit)(self, index, None);
                continue;
            }
            let first = record.slot().0;
            for slot in (first..first + rows).map(Slot) {
                (freed.visit)(self, index, Some(&key_in_place(record.block(), index, slot)));
            }
        }
    }
}
