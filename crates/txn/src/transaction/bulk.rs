//! Inserting many rows: keys that enter their indexes together, and files of tables that the transaction has
//! created.

use super::{Change, Transaction};
use crate::loads::{self, Loading};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_storage::{Table, WaitingKeys, pin};

/// The state of bulk inserts of a transaction.
#[derive(Default)]
pub(super) struct Bulk {
    /// The files with blocks of tables that it has created.
    pub files: Option<Box<Loading>>,
    /// Waiting keys of rows that the running statement has inserted into a table.
    waiting: Option<Box<(Arc<Table>, WaitingKeys)>>,
}

impl Bulk {
    /// Whether keys wait.
    pub fn has_waiting_keys(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.1.is_empty())
    }

    /// Called when the rows of the statement are undone. Removes the files if one could not be written.
    pub fn undo(&mut self) {
        self.waiting = None;
        if self.files.as_ref().is_some_and(|files| files.has_failed()) {
            self.files = None;
        }
    }

    /// Whether keys of a table wait, or did before the last ones entered.
    fn has_keys_of(&self, table: &Arc<Table>) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| Arc::ptr_eq(&waiting.0, table))
    }
}

impl Transaction {
    /// As [`Transaction::insert_batch`], but keys may wait for those of later rows and enter the indexes
    /// together, on at most `threads` threads. They enter when there are many, and at the latest by
    /// [`Transaction::enter_keys`]. Until then the rows cannot be found by these keys, and a duplicate is not
    /// reported. An error about a row of an earlier batch identifies the row by [`Error::row`] and not by its
    /// ordinal. All rows are inserted by one statement into one table.
    pub fn insert_batch_waiting(
        &mut self,
        table: &Arc<Table>,
        columns: &[ArrayRef],
        threads: usize,
    ) -> Result<()> {
        /// How many rows, or bytes, of keys are added between checks whether they are due.
        const ROWS: usize = 64 << 10;
        const BYTES: usize = 32 << 20;
        const LEAST_ROWS: usize = 1 << 10;
        if self.bulk.has_waiting_keys() && !self.bulk.has_keys_of(table) {
            return self.insert_batch(table, columns, &pin());
        }
        let rows = columns.first().map_or(0, |column| column.len());
        let bytes: usize = columns.iter().map(|column| bytes_of(column.as_ref())).sum();
        let at_once =
            ((rows as u128 * BYTES as u128 / bytes.max(1) as u128) as usize).clamp(LEAST_ROWS, ROWS);
        for first in (0..rows).step_by(at_once) {
            self.check_memory(table, Change::Insert, || table.has_strings())?;
            let slices: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(first, at_once.min(rows - first))).collect();
            let guard = &pin();
            let waiting = self.bulk.waiting.take().filter(|waiting| Arc::ptr_eq(&waiting.0, table));
            let mut waiting = waiting.unwrap_or_else(|| Box::new((table.clone(), table.waiting_keys())));
            let keys = &mut waiting.1;
            let mark = keys.mark();
            let inserted = self.insert_with_retry(table, guard, |writes, snapshot| {
                // The rows of the previous attempt have been undone.
                keys.truncate(&mark);
                table.insert_batch_waiting(writes, snapshot, &slices, keys, guard)
            });
            let is_due = keys.is_due();
            self.bulk.waiting = Some(waiting);
            inserted.map_err(|error| match error.ordinal() {
                Some(ordinal) => error.with_ordinal(first as u64 + ordinal),
                None => error,
            })?;
            if is_due {
                self.enter_waiting_keys(threads, true)?;
            }
        }
        if table.is_published() { Ok(()) } else { self.write_ahead(table) }
    }

    /// Enters all waiting keys of a table into their indexes, on at most `threads` threads. Errors as for
    /// [`Transaction::insert_batch`], with the row ([`Error::row`]) instead of its ordinal; of several rows
    /// the first that was inserted. After an error the keys are dropped.
    pub fn enter_keys(&mut self, table: &Arc<Table>, threads: usize) -> Result<()> {
        if self.bulk.has_keys_of(table) { self.enter_waiting_keys(threads, false) } else { Ok(()) }
    }

    /// Enters all waiting keys; if the statement `continues`, their memory is kept.
    fn enter_waiting_keys(&mut self, threads: usize, continues: bool) -> Result<()> {
        let mut waiting = self.bulk.waiting.take().expect("keys wait");
        let (table, keys) = &mut *waiting;
        let mut entered = table.enter_waiting_keys(keys, self.snapshot, threads);
        let is_taken = |error: &Error| error.state() == SqlState::UNIQUE_VIOLATION;
        // As in `retry_with_snapshot`. The rows are in place already, and entering a key a second time is
        // harmless.
        if self.is_without_snapshot() && entered.as_ref().is_err_and(is_taken) {
            self.acquire_snapshot();
            entered = table.enter_waiting_keys(keys, self.snapshot, threads);
        }
        entered.map_err(|error| self.violation(table, error, &pin(), |_| None))?;
        if continues {
            keys.clear();
            self.bulk.waiting = Some(waiting);
        }
        Ok(())
    }

    /// Writes the full blocks of a table that the transaction has created to files.
    pub(super) fn write_ahead(&mut self, table: &Arc<Table>) -> Result<()> {
        let ddl = self.catalog_view.ddl().expect("the transaction has created the table");
        loads::write_ahead(&self.engine, &mut self.bulk.files, &ddl.catalog, table, self.snapshot)
    }
}

/// The bytes of an array. Strings count as at least their lengths, although several may share their bytes.
fn bytes_of(array: &dyn Array) -> usize {
    let lengths = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum();
    let of_strings = match (array.as_string_view_opt(), array.as_binary_view_opt()) {
        (Some(strings), _) => lengths(strings.views()),
        (_, Some(strings)) => lengths(strings.views()),
        _ => 0,
    };
    array.get_array_memory_size().max(of_strings)
}
