//! Beginning a transaction.

use super::Transaction;
use crate::engine::Engine;
use crate::isolation::Isolation;
use firn_base::Result;
use firn_base::sync::Arc;

impl Engine {
    /// Begins a serializable transaction that reads the newest committed state.
    ///
    /// Panics if thousands already run ([`Engine::try_begin`] does not).
    #[inline]
    pub fn begin(self: &Arc<Self>) -> Transaction {
        self.try_begin(Isolation::Serializable).expect("callers bound the transactions they run at once")
    }

    /// Begins a transaction that will only read, and is serializable without being validated.
    ///
    /// Panics if it writes, or if thousands already run.
    pub fn begin_read_only(self: &Arc<Self>) -> Transaction {
        let mut transaction = self.begin();
        transaction.set_read_only();
        transaction
    }

    /// Begins a transaction; 53300 if too many run already.
    // Inlined with what it calls: moving a transaction costs, since it is large.
    #[inline]
    pub fn try_begin(self: &Arc<Self>, isolation: Isolation) -> Result<Transaction> {
        // First: a transaction of a primary reads what the primary has committed.
        let is_of_replica = self.is_replica();
        let (slot, snapshot) = self.enter(isolation)?;
        let redo = if is_of_replica { None } else { self.redo_buffer() };
        let seen = self.last_position();
        Ok(Transaction::new(self.clone(), slot, snapshot, seen, isolation, redo, is_of_replica))
    }
}
