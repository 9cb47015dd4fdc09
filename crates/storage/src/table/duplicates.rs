//! Keys that are kept unique late: those of a deferrable constraint, whose index lists any number of rows
//! under one key.
//!
//! Who writes a row enters its key and then looks whether another row is listed there as well. Of two who
//! enter one key at least one finds the other, and asks again when its statement or transaction ends whether
//! that one is still in the way:
//!
//! ```text
//! one                            the other
//! write the row, enter its key   write the row, enter its key
//! fence(SeqCst)                  fence(SeqCst)
//! look under the key             look under the key
//! ```
//!
//! Who found nobody need not ask again: whoever comes later finds him.

use super::Table;
use crate::{Guard, Index};
use firn_base::sync::{Ordering, fence};
use firn_base::{Result, RowId, Snapshot, SqlState};

impl Table {
    /// Whether another row is listed under the full key that `row` has just been given. A key that holds
    /// a distinct NULL is nobody else's.
    pub fn shares_key(&self, index: &Index, key: &[u8], row: RowId, guard: &Guard) -> bool {
        // ORDERING: pairs with itself, as drawn above.
        fence(Ordering::SeqCst);
        let mut shared = false;
        if !index.has_distinct_null(key) {
            index.lookup(key, guard, &mut |other| {
                shared = other != row;
                !shared
            });
        }
        shared
    }

    /// A row other than `row`, which `snapshot` sees under this full key, that has that key as well, as
    /// [`Table::insert`] would find it under a unique index: 40001 if that is for another transaction to say.
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
