//! The constraint checks that a transaction defers; `deferred.rs` lists them.

use super::Transaction;
use crate::catalog::{Deferral, Oid};
use crate::deferred::Check;
use firn_base::Result;
use firn_base::sync::{Arc, AtomicBool, Ordering};

impl Transaction {
    /// While the flag is set, foreign keys are not checked, and their actions not carried out.
    #[inline]
    pub fn set_trusts_references(&mut self, flag: Arc<AtomicBool>) {
        self.trusts_references = Some(flag);
    }

    /// Whether foreign keys are not checked now.
    #[inline]
    pub fn trusts_references(&self) -> bool {
        // Relaxed: the session sets it between statements.
        self.trusts_references.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Whether a constraint's checks are deferred to the end of the transaction.
    #[inline]
    pub fn defers(&self, constraint: Oid, deferral: Deferral) -> bool {
        match &self.deferred {
            _ if deferral == Deferral::Never => false,
            None => deferral == Deferral::InitiallyDeferred,
            Some(deferred) => deferred.defers(constraint, deferral),
        }
    }

    /// SET CONSTRAINTS; ALL without a list. The caller must then make the checks that are no longer deferred.
    pub fn set_constraints(&mut self, constraints: Option<&[Oid]>, deferred: bool) {
        self.deferred.get_or_insert_default().set(constraints, deferred);
    }

    /// Defers a check. It must be made before the transaction commits. 53200 if there is no memory for more: then the statement is to be
    /// taken back.
    pub fn defer(&mut self, check: Check) -> Result<()> {
        self.deferred.get_or_insert_default().add(check, self.engine.memory())
    }

    /// Whether checks must be made before it can commit.
    #[inline]
    pub fn has_deferred_checks(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| !deferred.is_empty())
    }

    /// The checks that must be made, in the order in which they were deferred.
    pub fn deferred_checks(&self) -> impl Iterator<Item = &Check> {
        self.deferred.iter().flat_map(|deferred| deferred.pending())
    }

    /// Notes that the deferred checks of these constraints have been made, and nothing violates them.
    pub fn checks_made(&mut self, is_made: impl Fn(Oid) -> bool) {
        if let Some(deferred) = &mut self.deferred {
            deferred.made(is_made);
        }
    }
}
