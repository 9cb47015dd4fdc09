//! Constraint checks that a transaction puts off; `deferred.rs` keeps them.

use super::Transaction;
use crate::catalog::{Deferral, Oid};
use crate::deferred::Check;

impl Transaction {
    /// Whether a constraint's checks are to wait for the end of the transaction.
    #[inline]
    pub fn defers(&self, constraint: Oid, deferral: Deferral) -> bool {
        match &self.deferred {
            _ if deferral == Deferral::Never => false,
            None => deferral == Deferral::InitiallyDeferred,
            Some(deferred) => deferred.defers(constraint, deferral),
        }
    }

    /// SET CONSTRAINTS, of all without a list. Checks that no longer wait are then to be made.
    pub fn set_constraints(&mut self, constraints: Option<&[Oid]>, deferred: bool) {
        self.deferred.get_or_insert_default().set(constraints, deferred);
    }

    /// Puts a check off. It is to be made before the transaction commits.
    pub fn defer(&mut self, check: Check) {
        self.deferred.get_or_insert_default().add(check);
    }

    /// Whether checks are to be made before it may commit.
    #[inline]
    pub fn has_deferred_checks(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| !deferred.is_empty())
    }

    /// The checks that are to be made, in the order in which they were put off.
    pub fn deferred_checks(&self) -> impl Iterator<Item = &Check> {
        self.deferred.iter().flat_map(|deferred| deferred.pending())
    }

    /// The deferred checks of these constraints have been made: nothing violates them.
    pub fn checks_made(&mut self, is_made: impl Fn(Oid) -> bool) {
        if let Some(deferred) = &mut self.deferred {
            deferred.made(is_made);
        }
    }
}
