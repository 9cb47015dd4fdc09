//! Cursors of DECLARE: which rows FETCH and MOVE return, and the position of the cursor afterwards.
//!
//! A cursor is positioned before the first row, on a row, or after the last one. One that may go backward keeps the rows that
//! it has read. As in PostgreSQL, a cursor that was declared neither SCROLL nor NO SCROLL may, unless its query locks rows. It
//! keeps at most [`MOST_KEPT_BYTES`] and then only moves forward, so that a client that reads a large result once does not
//! fill the memory with it.
//!
//! Kept rows are charged to the memory budget of queries, and written to a temporary file when that has no room. FETCH returns a part
//! of them, which is read while the client reads it; a cursor that only moves forward keeps the rows of a FETCH for that. MOVE keeps
//! no rows.

use crate::Column;
use crate::rows::Rows;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Cancel, Error, Result, SqlState, Value, clock};
use firn_sql::named::NamedCursor;
use firn_sql::query::kept_rows;
use firn_sql::tree::{DeclareCursor, FetchDirection};
use firn_sql::{KeptRows, ResultChunk, RowChunk, RunOptions};
use firn_txn::catalog::Oid;

/// How many bytes of rows a cursor keeps that was not declared SCROLL.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// A cursor of DECLARE.
pub(crate) struct Cursor {
    name: Box<str>,
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
    /// Whether reading its rows has failed: then some may be lost, and it returns none any more.
    has_failed: bool,
    /// WITH HOLD
    pub hold: bool,
    /// Whether it outlives the block that it was declared in: the block has committed, or there was none.
    pub kept: bool,
    listed: NamedCursor,
    options: RunOptions,
}

/// How a cursor treats the rows that it has read.
enum Passed {
    /// All rows that were read are kept; if the cursor was not declared SCROLL, only up to a limit of memory.
    Kept { rows: Arc<Mutex<KeptRows>>, is_limited: bool },
    /// The rows before the current one are dropped.
    Gone {
        /// Rows that were kept until the limit was reached, and that were not fetched.
        kept: Option<Fetched>,
        /// Behind those: rows that were read and not fetched.
        rest: Option<RowChunk>,
        /// The row that was fetched last, if the cursor is over a table.
        last: Option<RowChunk>,
    },
}

/// A part of the rows that a cursor has kept. They do not change when the cursor moves.
pub(crate) struct Fetched {
    rows: Arc<Mutex<KeptRows>>,
    /// The numbers of the rows that are left, from 0 on.
    from: u64,
    to: u64,
    /// Whether the last row comes first.
    is_backward: bool,
    /// Whether the last column is left out.
    has_row_id: bool,
    cancel: Cancel,
}

impl Fetched {
    /// The next rows.
    pub fn next(&mut self) -> Result<Option<RowChunk>> {
        self.cancel.check()?;
        let chunk = match self.is_backward {
            false => self.next_of(u64::MAX)?,
            true => {
                let chunk = self.rows.lock().last_of(self.from, self.to)?;
                self.to -= chunk.as_ref().map_or(0, |chunk| chunk.rows() as u64);
                chunk.map(|chunk| chunk.reversed())
            }
        };
        let shown = |chunk: ResultChunk| match self.has_row_id {
            true => chunk.without_last_column(),
            false => chunk,
        };
        Ok(chunk.map(shown).map(RowChunk::Vectors))
    }

    /// The next rows, with all their columns, at most so many.
    fn next_of(&mut self, most: u64) -> Result<Option<ResultChunk>> {
        let to = self.to.min(self.from.saturating_add(most));
        let chunk = self.rows.lock().first_of(self.from, to)?;
        self.from += chunk.as_ref().map_or(0, |chunk| chunk.rows() as u64);
        Ok(chunk)
    }

    /// How many rows are left.
    fn count(&self) -> u64 {
        self.to - self.from
    }
}

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
                rows: Arc::new(Mutex::new(kept_rows(rows.columns(), options))),
                is_limited: !declared.scroll,
            },
            false => Passed::Gone { kept: None, rest: None, last: None },
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
            name: declared.name.text.clone(),
            rows,
            columns,
            table,
            is_drained: false,
            passed,
            position: 0,
            is_past_end: false,
            has_failed: false,
            hold: declared.with_hold,
            kept: false,
            listed,
            options: options.clone(),
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
        if !self.is_on_row() || self.has_failed {
            return Ok(None);
        }
        let row = match &self.passed {
            Passed::Kept { rows, .. } => {
                rows.lock().first_of(self.position - 1, self.position)?.map(RowChunk::Vectors)
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

    /// The rows of FETCH. 55000 if it would have to go backward and cannot, or after an error.
    pub fn fetch(&mut self, direction: FetchDirection) -> Result<Fetched> {
        self.go(direction, true)
    }

    /// How many rows MOVE passes that FETCH would return.
    pub fn move_by(&mut self, direction: FetchDirection) -> Result<u64> {
        self.check_failed()?;
        match direction {
            // It does not move, and so need not go backward.
            FetchDirection::Forward(0) | FetchDirection::Backward(0) | FetchDirection::Relative(0) => {
                Ok(u64::from(self.is_on_row()))
            }
            direction => Ok(self.go(direction, false)?.count()),
        }
    }

    /// The rows of FETCH. If they are not `wanted`, only their count is right. The cursor cannot be used after an error.
    fn go(&mut self, direction: FetchDirection, wanted: bool) -> Result<Fetched> {
        self.check_failed()?;
        let fetched = self.read(direction, wanted);
        self.has_failed = fetched.is_err();
        fetched
    }

    /// 55000 after an error.
    fn check_failed(&self) -> Result<()> {
        match self.has_failed {
            false => Ok(()),
            true => {
                let message = format!("portal \"{}\" cannot be run", self.name);
                Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
            }
        }
    }

    fn read(&mut self, direction: FetchDirection, wanted: bool) -> Result<Fetched> {
        match direction {
            FetchDirection::Forward(0) | FetchDirection::Backward(0) | FetchDirection::Relative(0) => {
                if self.is_on_row() {
                    self.backward(Some(1))?;
                    return self.forward(Some(1), wanted);
                }
                Ok(self.nothing())
            }
            FetchDirection::Forward(count @ 1..) => self.forward(Some(count as u64), wanted),
            FetchDirection::Forward(count) => self.backward(Some(u64::from(count.unsigned_abs()))),
            FetchDirection::Backward(count @ 1..) => self.backward(Some(count as u64)),
            FetchDirection::Backward(count) => self.forward(Some(u64::from(count.unsigned_abs())), wanted),
            FetchDirection::ForwardAll => self.forward(None, wanted),
            FetchDirection::BackwardAll => self.backward(None),
            FetchDirection::Absolute(0) => {
                self.rewind()?;
                Ok(self.nothing())
            }
            FetchDirection::Absolute(number @ 1..) => {
                let before = number as u64 - 1;
                let passed = self.position + u64::from(self.is_past_end);
                match before.checked_sub(passed) {
                    Some(0) => {}
                    Some(more) => drop(self.forward(Some(more), false)?),
                    None => drop(self.backward(Some(passed - before))?),
                }
                self.forward(Some(1), wanted)
            }
            FetchDirection::Absolute(number) => {
                self.forward(None, false)?;
                match u64::from(number.unsigned_abs()) - 1 {
                    0 => {}
                    more => drop(self.backward(Some(more))?),
                }
                self.backward(Some(1))
            }
            FetchDirection::Relative(count @ 1..) => {
                if count > 1 {
                    self.forward(Some(count as u64 - 1), false)?;
                }
                self.forward(Some(1), wanted)
            }
            FetchDirection::Relative(count) => {
                if count < -1 {
                    self.backward(Some(u64::from(count.unsigned_abs()) - 1))?;
                }
                self.backward(Some(1))
            }
        }
    }

    fn is_on_row(&self) -> bool {
        self.position > 0 && !self.is_past_end
    }

    /// Some of the rows that are kept.
    fn part(&self, rows: &Arc<Mutex<KeptRows>>, from: u64, to: u64) -> Fetched {
        Fetched {
            rows: rows.clone(),
            from,
            to,
            is_backward: false,
            has_row_id: self.table.is_some(),
            cancel: self.options.cancel.clone(),
        }
    }

    /// No rows.
    fn nothing(&self) -> Fetched {
        self.part(&Arc::new(Mutex::new(self.place())), 0, 0)
    }

    /// A place for rows.
    fn place(&self) -> KeptRows {
        kept_rows(self.rows.columns(), &self.options)
    }

    /// The next rows, all of them without a count.
    fn forward(&mut self, count: Option<u64>, wanted: bool) -> Result<Fetched> {
        if self.is_past_end || count == Some(0) {
            return Ok(self.nothing());
        }
        let end = count.map(|count| self.position.saturating_add(count));
        while let Passed::Kept { rows, .. } = &self.passed
            && !self.is_drained
            && end.is_none_or(|end| rows.lock().rows() < end)
        {
            self.options.cancel.check()?;
            self.keep_next()?;
        }
        let fetched = match &self.passed {
            Passed::Kept { rows, .. } => {
                let all = rows.lock().rows();
                self.part(rows, self.position, end.map_or(all, |end| end.min(all)))
            }
            Passed::Gone { .. } => self.take(count, wanted)?,
        };
        let rows = fetched.count();
        self.position += rows;
        self.is_past_end = count.is_none_or(|count| rows < count);
        Ok(fetched)
    }

    /// Reads some more rows to be kept.
    fn keep_next(&mut self) -> Result<()> {
        let Some(chunk) = self.rows.next_chunk()? else {
            self.is_drained = true;
            return Ok(());
        };
        let chunk = chunk.into_vectors(self.rows.columns());
        let Passed::Kept { rows, is_limited } = &self.passed else { unreachable!("they are kept") };
        let (is_limited, mut kept) = (*is_limited, rows.lock());
        let rest = match kept.push(chunk.clone()) {
            Ok(()) if !is_limited || kept.bytes() <= MOST_KEPT_BYTES => return Ok(()),
            Ok(()) => None,
            Err(error) if !is_limited => return Err(error),
            Err(_) => Some(RowChunk::Vectors(chunk)),
        };
        let all = kept.rows();
        drop(kept);
        let kept = Some(self.part(rows, self.position, all));
        self.passed = Passed::Gone { kept, rest, last: None };
        Ok(())
    }

    /// The next rows of those that are not kept.
    fn take(&mut self, count: Option<u64>, wanted: bool) -> Result<Fetched> {
        let (mut taken, mut rows) = (self.place(), 0);
        while count.is_none_or(|count| rows < count) {
            self.options.cancel.check()?;
            let Some(chunk) = self.take_next(count.map_or(u64::MAX, |count| count - rows))? else { break };
            let chunk = chunk.into_vectors(self.rows.columns());
            rows += chunk.rows() as u64;
            if let Passed::Gone { last, .. } = &mut self.passed
                && self.table.is_some()
            {
                *last = Some(RowChunk::Vectors(chunk.slice(chunk.rows() - 1, 1)));
            }
            if wanted {
                taken.push(chunk)?;
            }
        }
        Ok(self.part(&Arc::new(Mutex::new(taken)), 0, rows))
    }

    /// At most so many of the next rows that are not kept; `None` after the last ones.
    fn take_next(&mut self, most: u64) -> Result<Option<RowChunk>> {
        let Passed::Gone { kept, rest, .. } = &mut self.passed else { unreachable!("they are not kept") };
        if let Some(left) = kept {
            if let Some(chunk) = left.next_of(most)? {
                return Ok(Some(RowChunk::Vectors(chunk)));
            }
            *kept = None;
        }
        let chunk = match rest.take() {
            Some(chunk) => chunk,
            None => match self.rows.next_chunk()? {
                Some(chunk) => chunk,
                None => return Ok(None),
            },
        };
        let width = self.rows.columns().len();
        if chunk.rows(width) as u64 <= most {
            return Ok(Some(chunk));
        }
        let (first, others) = chunk.split(most as usize, width);
        *rest = Some(others);
        Ok(Some(first))
    }

    /// The rows before, in reverse, all of them without a count.
    fn backward(&mut self, count: Option<u64>) -> Result<Fetched> {
        let Passed::Kept { rows: kept, .. } = &self.passed else { return Err(only_forward()) };
        // The number of the row before the current position.
        let before = if self.is_past_end { self.position } else { self.position.saturating_sub(1) };
        let rows = count.map_or(before, |count| count.min(before));
        let first = before - rows;
        let fetched = Fetched { is_backward: true, ..self.part(kept, first, before) };
        self.is_past_end = false;
        self.position = if count.is_some_and(|count| count <= rows) { first + 1 } else { 0 };
        Ok(fetched)
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
