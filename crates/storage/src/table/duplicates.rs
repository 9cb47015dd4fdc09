//! Keys of deferrable constraints, whose uniqueness is checked late. The index lists any number of rows under
//! one key.
//!
//! A transaction that writes a row inserts its key and then checks whether another row is listed under it as
//! well. Of two transactions that insert one key, at least one finds the other. It checks again, when its
//! statement or transaction ends, whether there is still a conflict:
//!
//! ```text
//! one                            the other
//! write the row, enter its key   write the row, enter its key
//! fence(SeqCst)                  fence(SeqCst)
//! look up the key                look up the key
//! ```
//!
//! A transaction that found no other row need not check again: a later one finds its row.

use super::Table;
use crate::{Guard, Index};
use firn_base::sync::{Ordering, fence};
use firn_base::{Result, RowId, Snapshot, SqlState};

impl Table {
    /// Whether another row is listed under the full key that `row` has just been given. A key that contains a
    /// NULL is not shared.
    pub fn shares_key(&self, index: &Index, key: &[u8], row: RowId, guard: &Guard) -> bool {
        // ORDERING: pairs with itself, as drawn above.
        fence(Ordering::SeqCst);
        let mut shared = false;
        if !index.holds_null(key) {
            index.lookup(key, guard, &mut |other| {
                shared = other != row;
                !shared
            });
        }
        shared
    }

    /// A row other than `row` that `snapshot` sees with this full key, if `row` has it too. Conflicts are
    /// those of [`Table::insert`] with a unique index: 40001 if another transaction decides it.
    pub fn duplicate(
        &self,
        index: &Index,
        key: &[u8],
        row: RowId,
        snapshot: Snapshot,
        guard: &Guard,
    ) -> Result<Option<RowId>> {
        let mut outcome = Ok(None);
        index.lookup(key, guard, &mut |other| {
            if other != row
                && let Err(error) = self.judge(index, key, other, snapshot, guard)
            {
                outcome = match error.state() {
                    SqlState::UNIQUE_VIOLATION => Ok(Some(other)),
                    _ => Err(error),
                };
            }
            matches!(outcome, Ok(None))
        });
        outcome
    }
}
