//! What the operators of a statement do to a transaction: changes and locks of rows.
//!
//! Operators get at the transaction through [`Effects`], one at a time: those that change or lock rows are never split between
//! workers, but pipelines below them may be.

use crate::write::{TargetSet, Writer};
use firn_base::sync::Mutex;
use firn_base::{Error, Result};
use firn_txn::Transaction;
use firn_vector::Context;

/// The way to the transaction of a statement that is executed.
pub trait Effects: Sync {
    /// Calls `call` with the state of the statement's effects. The call must not run pipelines.
    fn with(&self, call: &mut dyn FnMut(&mut State<'_>) -> Result<()>) -> Result<()>;
}

/// The effects of a statement so far.
pub struct State<'a> {
    /// Writes rows.
    pub writer: Writer<'a>,
    /// A conflict with a row that had changed since the snapshot and has been locked as it is by now: the statement must be run again.
    out_of_date: Option<Error>,
    /// Likewise with a row that was left out (SKIP LOCKED): only if there are then too few rows.
    left_out: Option<Error>,
}

impl<'a> State<'a> {
    /// Nothing has been changed. Up to `key_threads` threads may enter keys.
    pub fn new(
        targets: &'a TargetSet,
        transaction: &'a mut Transaction,
        has_several_changes: bool,
        key_threads: usize,
    ) -> State<'a> {
        let writer = Writer::new(targets, transaction, has_several_changes).with_key_threads(key_threads);
        State { writer, out_of_date: None, left_out: None }
    }

    /// A row that had changed was locked as it is by now.
    pub(crate) fn set_out_of_date(&mut self, conflict: Error) {
        self.out_of_date.get_or_insert(conflict);
    }

    /// A row that had changed was left out.
    pub(crate) fn set_left_out(&mut self, conflict: Error) {
        self.left_out.get_or_insert(conflict);
    }

    /// There are as many rows as were wanted.
    pub(crate) fn has_enough(&mut self) {
        self.left_out = None;
    }

    /// Ends the statement: the actions of foreign keys and the tests that had to wait. 40001 if it must be run again.
    pub fn finish(self, context: &Context<'_>) -> Result<()> {
        match self.out_of_date.or(self.left_out) {
            Some(conflict) => Err(conflict),
            None => self.writer.finish(context),
        }
    }
}

impl Effects for Mutex<State<'_>> {
    fn with(&self, call: &mut dyn FnMut(&mut State<'_>) -> Result<()>) -> Result<()> {
        call(&mut self.lock())
    }
}
