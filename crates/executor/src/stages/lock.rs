//! FOR UPDATE and its relatives: locks the rows that rows are made of.
//!
//! A row that another transaction has locked, or has changed since the snapshot, is a conflict, after which the caller runs the
//! statement again: that is how a changed row is checked again. A changed row is locked all the same, as it is by now, before the
//! statement is given back: so it gets its rows however often others change them. Under SKIP LOCKED both are left out; if
//! there are then too few rows and one of them had only changed, the statement is to be run again: on a newer snapshot it
//! may suffice.
//!
//! Below a limit rows are locked one at a time, and no more of them than the limit lets pass.

use super::LimitBounds;
use crate::effects::State;
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Error, Result, RowId, SqlState};
use firn_plan::operator::{LockWait, SourceId};
use firn_storage::{RowLock, Table};
use firn_txn::pin;
use firn_vector::{Chunk, Datum, Selection};

/// Locks of rows.
pub struct LockPlan {
    /// What is locked.
    pub targets: Arc<[LockedRows]>,
    /// The limit above, if there is one.
    pub limit: Option<Template<LimitBounds>>,
}

/// Rows of a table that are locked.
pub struct LockedRows {
    /// The table.
    pub source: SourceId,
    /// Where the row's id is. Where it is NULL there is no row.
    pub row: usize,
    /// How strongly.
    pub lock: RowLock,
    /// What to do about a conflict.
    pub wait: LockWait,
    /// The columns of the row that the statement reads, if its scan has not been logged.
    pub read: Option<Vec<ColumnId>>,
}

struct Lock {
    targets: Arc<[LockedRows]>,
    one_by_one: bool,
    wants_none: bool,
    chunk: Option<Chunk>,
    positions: Vec<u16>,
    next: usize,
}

impl StagePlan for LockPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        let count = match &self.limit {
            Some(limit) => limit.copy().evaluate(work)?.0,
            None => None,
        };
        Ok(Box::new(Lock {
            targets: self.targets.clone(),
            one_by_one: self.limit.is_some(),
            wants_none: count == Some(0),
            chunk: None,
            positions: Vec::new(),
            next: 0,
        }))
    }
}

impl Stage for Lock {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        if self.wants_none {
            return Ok(Output::Done(None));
        }
        self.positions.clear();
        chunk.rows().each(|row| self.positions.push(row as u16));
        (self.chunk, self.next) = (Some(chunk), 0);
        self.resume(work)
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        let chunk = self.chunk.clone().expect("it has a chunk");
        let effects = work.effects.expect("a program with locks is executed");
        let mut locked = Vec::new();
        while self.next < self.positions.len() && (!self.one_by_one || locked.is_empty()) {
            work.context.check_cancel()?;
            let row = self.positions[self.next];
            self.next += 1;
            let mut is_locked = false;
            effects.with(&mut |state| {
                is_locked = lock_row(&self.targets, work, state, &chunk, usize::from(row))?;
                Ok(())
            })?;
            if is_locked {
                locked.push(row);
            }
        }
        let is_through = self.next == self.positions.len();
        if is_through {
            self.chunk = None;
        }
        let rows = chunk.with_selection(Some(Selection::new(locked)));
        Ok(if is_through { Output::Last(rows) } else { Output::Some(rows) })
    }
}

/// Locks the rows that one row is made of. Whether that row is to go on.
fn lock_row(
    targets: &[LockedRows],
    work: Work<'_>,
    state: &mut State<'_>,
    chunk: &Chunk,
    row: usize,
) -> Result<bool> {
    for target in targets {
        let Datum::Int64(bits) = chunk.vectors()[target.row].datum(row) else { continue };
        let (id, table) = (RowId::from_bits(bits as u64), work.run.locked(target.source));
        if !lock_row_of(target, state, table, id)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks a row of a target, and logs what is read of it if its scan has not been logged. Whether the row that it belongs to is to go on.
pub(crate) fn lock_row_of(
    target: &LockedRows,
    state: &mut State<'_>,
    table: &Arc<Table>,
    id: RowId,
) -> Result<bool> {
    if !lock(target, state, table, id)? {
        return Ok(false);
    }
    let transaction = &state.writer.transaction;
    if let Some(columns) = &target.read
        && (target.lock.is_shared() || transaction.continues_after_error())
    {
        let mut cells = vec![Cell::Null; columns.len()];
        transaction.read(table, id, columns, &mut cells, &pin());
    }
    Ok(true)
}

/// Locks a row. Whether the row that it belongs to is to go on.
fn lock(target: &LockedRows, state: &mut State<'_>, table: &Arc<Table>, id: RowId) -> Result<bool> {
    let transaction = &mut *state.writer.transaction;
    let Err(conflict) = transaction.lock(table, id, target.lock, &pin()) else { return Ok(true) };
    match (target.wait, conflict.blocker()) {
        _ if conflict.state() != SqlState::SERIALIZATION_FAILURE => Err(conflict),
        (LockWait::Skip, Some(_)) => Ok(false),
        (LockWait::Skip, None) => {
            state.set_left_out(conflict);
            Ok(false)
        }
        (LockWait::Error, Some(_)) => Err(not_available(table)),
        (LockWait::Block | LockWait::Error, None) if transaction.can_advance_snapshot() => {
            // Were it not locked now, others might change it again and again before the statement is run again. If it is gone,
            // there is nothing to wait for.
            let newest = transaction.lock_newest(table, id, target.lock, &pin());
            if let Some(blocker) = newest.err().and_then(|error| error.blocker()) {
                return match target.wait {
                    LockWait::Error => Err(not_available(table)),
                    _ => Err(conflict.with_blocker(blocker)),
                };
            }
            state.set_out_of_date(conflict);
            Ok(true)
        }
        (LockWait::Block | LockWait::Error, _) => Err(conflict),
    }
}

/// The error of NOWAIT.
#[cold]
fn not_available(table: &Table) -> Error {
    let message = format!("could not obtain lock on row in relation \"{}\"", table.name());
    Error::new(SqlState::LOCK_NOT_AVAILABLE, message)
}
