//! Row locks: `SELECT … FOR UPDATE` and its relatives.
//!
//! A lock that one transaction holds alone (FOR UPDATE, FOR NO KEY UPDATE) is an undo record that changes
//! nothing (`Change::Lock`): whoever would change or lock the row meets it as he would meet a change. Locks
//! that several may hold (FOR SHARE, FOR KEY SHARE) have no place in a version chain, whose uncommitted
//! records are one transaction's. They are listed here, by table, and whoever links a record looks at the
//! list right after that; nearly always it is empty, which takes one load:
//!
//! ```text
//! writer                                       sharer, holding the list's lock
//! link an undo record at the chain head        count itself in
//! count not 0? → look at the list: conflict    look at the chain head: conflict → count itself out
//! ```
//! All in sequential order, so that one of the two sees the other; and since the sharer decides under the
//! lock, not both give way. The writer looks at the list before it links as well: it leaves an undone
//! record behind when it finds somebody only afterwards, and a sharer that then wants to change the row itself
//! would wait for the one that waits for it.

use firn_base::sync::{AtomicUsize, Mutex, Ordering, fence};
use firn_base::{Result, RowId, Stamp};
use smallvec::SmallVec;
use std::collections::HashMap;

/// How firmly a row is locked; each keeps away all that those before it keep away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum RowLock {
    /// FOR KEY SHARE: the row stays, and its keys.
    KeyShare,
    /// FOR SHARE: the row stays as it is.
    Share,
    /// FOR NO KEY UPDATE, which a change of other columns than keys takes as well.
    NoKeyUpdate,
    /// FOR UPDATE, which any other change takes as well.
    Update,
}

impl RowLock {
    /// Whether two transactions cannot hold these locks of one row at the same time.
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

/// Room for so many rows is kept when nobody shares any.
const KEPT_ROWS: usize = 1024;

/// Who shares rows of one table.
// On cache lines of its own: all writers look at the count.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Sharers {
    count: AtomicUsize,
    rows: Mutex<HashMap<RowId, Holders>>,
}

/// Who shares a row, and how.
type Holders = SmallVec<[(Stamp, RowLock); 2]>;

impl Sharers {
    /// Lists `owner` as one who shares a row, unless it is already as firmly; not if `check`, which looks at the
    /// row's chain, finds a conflict. Whether it was listed now; then it is to be [released](Sharers::release).
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

    /// Takes one off the list.
    pub fn release(&self, row: RowId, owner: Stamp, lock: RowLock) {
        let mut rows = self.rows.lock();
        let held = rows.get_mut(&row).expect("it is listed");
        let at = held.iter().position(|holder| *holder == (owner, lock)).expect("it is listed");
        held.swap_remove(at);
        if held.is_empty() {
            rows.remove(&row);
            if rows.is_empty() && rows.capacity() > KEPT_ROWS {
                rows.shrink_to_fit();
            }
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether nobody shares any row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Another transaction than `owner` that shares a row such that `lock` conflicts with it.
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
