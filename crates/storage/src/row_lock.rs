//! Row locks: `SELECT … FOR UPDATE` and its relatives.
//!
//! A lock that one transaction holds alone (FOR UPDATE, FOR NO KEY UPDATE) is an undo record that changes
//! nothing (`Change::Lock`). Another transaction that wants to change or lock the row finds it, as it would
//! find a change. Locks that several transactions may hold (FOR SHARE, FOR KEY SHARE) have no place in a
//! version chain, whose uncommitted records belong to one transaction. They are listed here, by table. A
//! writer checks the list right after it has linked its record. Nearly always the list is empty, which one
//! load shows:
//!
//! ```text
//! writer                                       sharer, holding the list's lock
//! link an undo record at the chain head        add itself to the count
//! count not 0? → search the list: conflict     load the chain head: conflict → subtract itself
//! ```
//! All of this is sequentially consistent, so that one of the two sees the other. The sharer decides under
//! the lock, so they do not both give way. The writer checks the list before it links as well. If it found a
//! sharer only afterwards, it would leave an undone record behind. If that sharer then wants to change the
//! row itself, it would wait for the transaction that waits for it.

use firn_base::sync::{AtomicUsize, Mutex, Ordering, fence};
use firn_base::{Result, RowId, Stamp};
use smallvec::SmallVec;
use std::collections::HashMap;

/// The strength of a row lock; each excludes everything that those before it exclude.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum RowLock {
    /// FOR KEY SHARE: the row and its keys remain.
    KeyShare,
    /// FOR SHARE: the row does not change.
    Share,
    /// FOR NO KEY UPDATE; also taken by a change of columns other than keys.
    NoKeyUpdate,
    /// FOR UPDATE; also taken by any other change.
    Update,
}

impl RowLock {
    /// Whether two transactions cannot hold these locks on one row at the same time.
    #[inline]
    pub fn conflicts_with(self, other: RowLock) -> bool {
        self as u8 + other as u8 >= RowLock::Update as u8
    }

    /// Whether several transactions may hold it.
    #[inline]
    pub fn is_shared(self) -> bool {
        self < RowLock::NoKeyUpdate
    }
}

/// Memory for this many rows is kept when no row is shared.
const KEPT_ROWS: usize = 1024;

/// The shared locks on rows of one table.
// On cache lines of its own: all writers load the count.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Sharers {
    count: AtomicUsize,
    rows: Mutex<HashMap<RowId, Holders>>,
}

/// The transactions that share a row, and their locks.
type Holders = SmallVec<[(Stamp, RowLock); 2]>;

impl Sharers {
    /// Lists a shared lock of `owner`, unless it has one that is as strong already, or `check`, which reads
    /// the row's chain, finds a conflict. Returns whether it was listed now; then it has to be
    /// [released](Sharers::release).
    pub fn add(
        &self,
        row: RowId,
        owner: Stamp,
        lock: RowLock,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let mut rows = self.rows.lock();
        if rows.get(&row).is_some_and(|held| held.iter().any(|(by, held)| *by == owner && *held >= lock)) {
            return check().map(|()| false);
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the writer's compare-and-swap of the chain head and its load of the count.
        fence(Ordering::SeqCst);
        if let Err(conflict) = check() {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(conflict);
        }
        rows.entry(row).or_default().push((owner, lock));
        Ok(true)
    }

    /// Removes a lock from the list.
    pub fn release(&self, row: RowId, owner: Stamp, lock: RowLock) {
        let mut rows = self.rows.lock();
        let held = rows.get_mut(&row).expect("the row is listed");
        let at = held.iter().position(|holder| *holder == (owner, lock)).expect("the lock is listed");
        held.swap_remove(at);
        if held.is_empty() {
            rows.remove(&row);
            if rows.is_empty() && rows.capacity() > KEPT_ROWS {
                rows.shrink_to_fit();
            }
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no row is shared.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// A transaction other than `owner` that holds a shared lock on the row which conflicts with `lock`.
    #[cold]
    pub fn blocker(&self, row: RowId, owner: Stamp, lock: RowLock) -> Option<Stamp> {
        let rows = self.rows.lock();
        let other = |(by, held): &&(Stamp, RowLock)| *by != owner && held.conflicts_with(lock);
        rows.get(&row)?.iter().find(other).map(|(by, _)| *by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_conflict_as_in_postgresql() {
        use RowLock::{KeyShare, NoKeyUpdate, Share, Update};
        let all = [KeyShare, Share, NoKeyUpdate, Update];
        let conflicts = all.map(|one| all.map(|other| one.conflicts_with(other)));
        assert_eq!(
            conflicts,
            [
                [false, false, false, true],
                [false, false, true, true],
                [false, true, true, true],
                [true, true, true, true],
            ]
        );
    }
}
