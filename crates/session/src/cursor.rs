//! Cursors of DECLARE: which rows FETCH and MOVE return, and the position of the cursor afterwards.
//!
//! A cursor is positioned before the first row, on a row, or after the last one. One that may go backward keeps the rows that
//! it has read. As in PostgreSQL, a cursor that was declared neither SCROLL nor NO SCROLL may, unless its query locks rows. It
//! keeps at most [`MOST_KEPT_BYTES`] and then only moves forward, so that a client that reads a large result once does not
//! fill the memory with it.

use crate::Column;
use crate::rows::Rows;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Value, clock};
use firn_sql::named::NamedCursor;
use firn_sql::query::kept_rows;
use firn_sql::tree::{DeclareCursor, FetchDirection};
use firn_sql::{KeptRows, RowChunk, RunOptions};
use firn_txn::catalog::Oid;
use std::collections::VecDeque;

/// How many bytes of rows a cursor keeps that was not declared SCROLL.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// A cursor of DECLARE.
pub(crate) struct Cursor {
    rows: Rows,
    /// The columns that FETCH returns.
    columns: Arc<[Column]>,
    /// The table whose rows it returns. The last column of `rows` is then the `ctid` of the row in it.
    table: Option<Oid>,
    /// Whether `rows` has returned all.
    is_drained: bool,
    passed: Passed,
    /// The number of the current row, from 1 on; after the end, the number of the last row; 0 before the first one.
    position: u64,
    is_past_end: bool,
    /// WITH HOLD
    pub hold: bool,
    /// Whether it outlives the block that it was declared in: the block has committed, or there was none.
    pub kept: bool,
    listed: NamedCursor,
}

/// How a cursor treats the rows that it has read.
enum Passed {
    /// All rows that were read are kept; if the cursor was not declared SCROLL, only up to a limit of memory.
    Kept { rows: Box<KeptRows>, is_limited: bool },
    /// The rows before the current one are dropped.
    Gone {
        /// Rows that were read and not fetched.
        pending: VecDeque<RowChunk>,
        /// The row that was fetched last, if the cursor is over a table.
        last: Option<RowChunk>,
    },
}

impl Passed {
    fn gone(pending: VecDeque<RowChunk>) -> Passed {
        Passed::Gone { pending, last: None }
    }
}

/// Rows and how many they are.
type Taken = (VecDeque<RowChunk>, u64);

impl Cursor {
    /// A cursor before the first of the rows. `may_scroll` says whether its query could be read backward.
    pub fn new(
        declared: &DeclareCursor,
        text: Arc<str>,
        rows: Rows,
        table: Option<Oid>,
        may_scroll: bool,
        options: &RunOptions,
    ) -> Cursor {
        let is_scrollable = declared.scroll || may_scroll && !declared.no_scroll;
        let passed = match is_scrollable {
            true => Passed::Kept {
                rows: Box::new(kept_rows(rows.columns(), options)),
                is_limited: !declared.scroll,
            },
            false => Passed::gone(VecDeque::new()),
        };
        let listed = NamedCursor {
            text,
            declared_at: clock::wall_clock_micros(),
            is_holdable: declared.with_hold,
            is_binary: declared.is_binary,
            is_scrollable,
        };
        let drawn = rows.columns();
        let columns = match table {
            Some(_) => drawn[..drawn.len() - 1].into(),
            None => drawn.clone(),
        };
        Cursor {
            rows,
            columns,
            table,
            is_drained: false,
            passed,
            position: 0,
            is_past_end: false,
            hold: declared.with_hold,
            kept: false,
            listed,
        }
    }

    /// Its columns.
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }

    /// The table whose rows it returns, if it is over one alone.
    pub fn table(&self) -> Option<Oid> {
        self.table
    }

    /// The `ctid` of the current row, if there is one. The cursor has a [table](Cursor::table).
    pub fn row_id(&self) -> Result<Option<Value>> {
        if !self.is_on_row() {
            return Ok(None);
        }
        let row = match &self.passed {
            Passed::Kept { rows, .. } => {
                rows.slice(self.position - 1, self.position)?.pop().map(RowChunk::Vectors)
            }
            Passed::Gone { last, .. } => last.clone(),
        };
        Ok(row.and_then(|row| row.into_values(self.rows.columns()).pop()?.pop()))
    }

    /// What other sessions see of it.
    pub fn listed(&self) -> &NamedCursor {
        &self.listed
    }

    /// Whether its rows are sent in binary format.
    pub fn is_binary(&self) -> bool {
        self.listed.is_binary
    }

    /// The error that occurred when its rows were read ahead, if that has not been reported yet.
    pub fn failed_ahead(&self) -> Option<Error> {
        self.rows.failed_ahead()
    }

    /// The rows of FETCH. 55000 if it would have to go backward and cannot.
    pub fn fetch(&mut self, direction: FetchDirection) -> Result<Taken> {
        let (mut chunks, rows) = self.go(direction)?;
        if self.table.is_some() {
            let own = |chunk: RowChunk| {
                RowChunk::Vectors(chunk.into_vectors(self.rows.columns()).without_last_column())
            };
            chunks = chunks.into_iter().map(own).collect();
        }
        Ok((chunks, rows))
    }

    fn go(&mut self, direction: FetchDirection) -> Result<Taken> {
        match direction {
            FetchDirection::Forward(0) | FetchDirection::Backward(0) | FetchDirection::Relative(0) => {
                if self.is_on_row() {
                    self.backward(Some(1))?;
                    return self.forward(Some(1));
                }
                Ok((VecDeque::new(), 0))
            }
            FetchDirection::Forward(count @ 1..) => self.forward(Some(count as u64)),
            FetchDirection::Forward(count) => self.backward(Some(u64::from(count.unsigned_abs()))),
            FetchDirection::Backward(count @ 1..) => self.backward(Some(count as u64)),
            FetchDirection::Backward(count) => self.forward(Some(u64::from(count.unsigned_abs()))),
            FetchDirection::ForwardAll => self.forward(None),
            FetchDirection::BackwardAll => self.backward(None),
            FetchDirection::Absolute(0) => {
                self.rewind()?;
                Ok((VecDeque::new(), 0))
            }
            FetchDirection::Absolute(number @ 1..) => {
                let before = number as u64 - 1;
                let passed = self.position + u64::from(self.is_past_end);
                match before.checked_sub(passed) {
                    Some(0) => {}
                    Some(more) => drop(self.forward(Some(more))?),
                    None => drop(self.backward(Some(passed - before))?),
                }
                self.forward(Some(1))
            }
            FetchDirection::Absolute(number) => {
                self.forward(None)?;
                match u64::from(number.unsigned_abs()) - 1 {
                    0 => {}
                    more => drop(self.backward(Some(more))?),
                }
                self.backward(Some(1))
            }
            FetchDirection::Relative(count @ 1..) => {
                if count > 1 {
                    self.forward(Some(count as u64 - 1))?;
                }
                self.forward(Some(1))
            }
            FetchDirection::Relative(count) => {
                if count < -1 {
                    self.backward(Some(u64::from(count.unsigned_abs()) - 1))?;
                }
                self.backward(Some(1))
            }
        }
    }

    /// How many rows MOVE passes that FETCH would return.
    pub fn move_by(&mut self, direction: FetchDirection) -> Result<u64> {
        match direction {
            // It does not move, and so need not go backward.
            FetchDirection::Forward(0) | FetchDirection::Backward(0) | FetchDirection::Relative(0) => {
                Ok(u64::from(self.is_on_row()))
            }
            direction => Ok(self.go(direction)?.1),
        }
    }

    fn is_on_row(&self) -> bool {
        self.position > 0 && !self.is_past_end
    }

    /// The next rows, all of them without a count.
    fn forward(&mut self, count: Option<u64>) -> Result<Taken> {
        if self.is_past_end || count == Some(0) {
            return Ok((VecDeque::new(), 0));
        }
        let end = count.map(|count| self.position.saturating_add(count));
        while let Passed::Kept { rows, .. } = &self.passed
            && !self.is_drained
            && end.is_none_or(|end| rows.rows() < end)
        {
            self.keep_next()?;
        }
        let (chunks, rows): Taken = match &mut self.passed {
            Passed::Kept { rows: kept, .. } => {
                let last = end.map_or(kept.rows(), |end| end.min(kept.rows()));
                let chunks = kept.slice(self.position, last)?;
                (chunks.into_iter().map(RowChunk::Vectors).collect(), last - self.position)
            }
            Passed::Gone { .. } => self.take(count)?,
        };
        self.position += rows;
        self.is_past_end = count.is_none_or(|count| rows < count);
        if let Passed::Gone { last, .. } = &mut self.passed
            && self.table.is_some()
            && let Some(chunk) = chunks.back()
        {
            let width = self.rows.columns().len();
            *last = Some(chunk.clone().split(chunk.rows(width) - 1, width).1);
        }
        Ok((chunks, rows))
    }

    /// Reads some more rows to be kept.
    fn keep_next(&mut self) -> Result<()> {
        let Some(chunk) = self.rows.next_chunk()? else {
            self.is_drained = true;
            return Ok(());
        };
        let Passed::Kept { rows, is_limited } = &mut self.passed else { unreachable!("they are kept") };
        let full = match rows.push(chunk.clone().into_vectors(self.rows.columns())) {
            Ok(()) => *is_limited && rows.bytes() > MOST_KEPT_BYTES,
            Err(error) if !*is_limited => return Err(error),
            Err(_) => {
                let pending = rows.slice(self.position, rows.rows())?.into_iter().map(RowChunk::Vectors);
                self.passed = Passed::gone(pending.chain(std::iter::once(chunk)).collect());
                return Ok(());
            }
        };
        if full {
            let pending = rows.slice(self.position, rows.rows())?;
            self.passed = Passed::gone(pending.into_iter().map(RowChunk::Vectors).collect());
        }
        Ok(())
    }

    /// The next rows, of a cursor that keeps none.
    fn take(&mut self, count: Option<u64>) -> Result<Taken> {
        let width = self.rows.columns().len();
        let Passed::Gone { pending, .. } = &mut self.passed else { unreachable!("they are not kept") };
        let mut taken = VecDeque::new();
        let mut rows = 0;
        while count.is_none_or(|count| rows < count) {
            let chunk = match pending.pop_front() {
                Some(chunk) => chunk,
                None => match self.rows.next_chunk()? {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            let wanted = count.map_or(usize::MAX, |count| (count - rows) as usize);
            let length = chunk.rows(width);
            let (chunk, length) = match length > wanted {
                true => {
                    let (first, rest) = chunk.split(wanted, width);
                    pending.push_front(rest);
                    (first, wanted)
                }
                false => (chunk, length),
            };
            rows += length as u64;
            taken.push_back(chunk);
        }
        Ok((taken, rows))
    }

    /// The rows before, in reverse, all of them without a count.
    fn backward(&mut self, count: Option<u64>) -> Result<Taken> {
        let Passed::Kept { rows: kept, .. } = &self.passed else { return Err(only_forward()) };
        // The number of the row before the current position.
        let before = if self.is_past_end { self.position } else { self.position.saturating_sub(1) };
        let rows = count.map_or(before, |count| count.min(before));
        let first = before - rows;
        let mut chunks = VecDeque::new();
        for chunk in kept.slice(first, before)?.into_iter().rev() {
            chunks.extend((0..chunk.rows()).rev().map(|row| RowChunk::Vectors(chunk.slice(row, 1))));
        }
        self.is_past_end = false;
        self.position = if count.is_some_and(|count| count <= rows) { first + 1 } else { 0 };
        Ok((chunks, rows))
    }

    /// Goes before the first row.
    fn rewind(&mut self) -> Result<()> {
        if self.position > 0 || self.is_past_end {
            if matches!(self.passed, Passed::Gone { .. }) {
                return Err(only_forward());
            }
            (self.position, self.is_past_end) = (0, false);
        }
        Ok(())
    }
}

#[cold]
fn only_forward() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
        .with_hint("Declare it with SCROLL option to enable backward scan.")
}
