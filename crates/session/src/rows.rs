//! Rows that are computed while they are read.
//!
//! Outside a transaction block rows own the transaction they are read in, so later statements of the connection do not
//! affect them. Inside one they read in the block's transaction. When the connection runs another statement, the
//! remaining rows are read ahead and kept. So a portal or cursor sees the rows as of the start of its query. They are
//! charged to the memory budget of queries, and written to a temporary file when that has no room. An error
//! during that is kept as well: it is returned to the reader after the rows before it, and then the block fails.

use crate::acknowledge::ReadWaits;
use crate::cursor::Fetched;
use crate::routing::RoutedStream;
use crate::timer::Alarm;
use crate::values::{FromRow, check_columns};
use crate::{Column, CommandTag};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use firn_base::Cancel;
use firn_base::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, Weak};
use firn_base::{Error, Result, SqlState, Value};
use firn_sql::activity::{Activity, State};
use firn_sql::plan::{Changed, ChangedRows};
use firn_sql::services::Services;
use firn_sql::{KeptRows, RowChunk, Stream};
use firn_txn::Transaction;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The rows of a statement, computed while they are read. They borrow nothing of their connection.
///
/// Iterating over them returns Arrow batches; [`Rows::into_typed`] returns Rust values. What is not read is not computed:
/// dropping the rest of a result ends its query. See [`Connection::stream`](crate::Connection::stream).
pub struct Rows {
    columns: Arc<[Column]>,
    verb: &'static str,
    rows: u64,
    /// The number of rows that the command tag shows; if `None`, the rows that were counted here.
    tag_rows: Option<u64>,
    /// Whether they are of a cursor that was declared BINARY.
    is_binary: bool,
    source: Source,
}

enum Source {
    /// The values of a short result; empty once they have been read.
    Values(Vec<Value>),
    /// The result of a statement that has ended; `None` once it has been read.
    Finished(Box<Option<Stream>>),
    /// The rows of a cursor that FETCH returns.
    Fetched(Fetched),
    /// A stream in a transaction of its own.
    Own(Box<OwnStream>),
    /// Rows that a replica computes.
    Routed(Box<RoutedStream>),
    /// A stream in the connection's transaction.
    Shared(Arc<SharedStream<Stream>>),
}

/// The session for which rows are read, which is active until that has ended.
pub(crate) struct Drawing {
    activity: Arc<Activity>,
    /// When its statement began: the session may run another one by now.
    since: i64,
    then: State,
}

impl Drawing {
    /// For the newest statement of the session, which enters the state `then` at its end.
    pub fn new(activity: &Arc<Activity>, then: State) -> Drawing {
        Drawing { activity: activity.clone(), since: activity.query_begun(), then }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        if self.activity.query_begun() == self.since {
            self.activity.rest(self.then);
        }
    }
}

struct OwnStream {
    stream: Option<Stream>,
    /// Declared after the stream, which reads in this transaction.
    reading: Option<Reading>,
    alarm: Option<Alarm>,
    drawing: Option<Drawing>,
}

/// Signals that a block has failed because its rows could not be read: the connection checks it.
#[derive(Default)]
pub(crate) struct StreamFailure {
    // Relaxed: rows and connection are used by one thread at a time, or for a client that sees the error first.
    is_raised: AtomicBool,
    state: Mutex<FailureState>,
}

#[derive(Default)]
struct FailureState {
    /// Counts the connection's blocks: rows may be read after theirs has ended.
    block: u64,
    error: Option<Error>,
}

impl StreamFailure {
    /// Raises it for rows of that block, unless another one has begun.
    fn raise(&self, block: u64, error: &Error) {
        let mut state = self.state.lock();
        if state.block == block {
            state.error = Some(error.clone());
            self.is_raised.store(true, Ordering::Relaxed);
        }
    }

    /// The newest block.
    fn block(&self) -> u64 {
        self.state.lock().block
    }

    /// Another block begins.
    pub fn begin_block(&self) {
        let mut state = self.state.lock();
        *state = FailureState { block: state.block + 1, error: None };
        self.is_raised.store(false, Ordering::Relaxed);
    }

    /// Whether it is raised.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed)
    }

    /// Lowers it. Returns the error, if it was raised.
    pub fn lower(&self) -> Option<Error> {
        if !self.is_raised() {
            return None;
        }
        let mut state = self.state.lock();
        self.is_raised.store(false, Ordering::Relaxed);
        state.error.take()
    }
}

/// A result that is computed piece by piece.
pub(crate) trait Pieces: Send {
    type Piece: Send;
    /// Where pieces are kept that were read ahead.
    type Kept: KeptPieces<Self::Piece>;

    /// The next one; `None` at the end.
    fn next_piece(&mut self) -> Result<Option<Self::Piece>>;

    /// A place for pieces, on the account of the statement.
    fn kept(&self) -> Self::Kept;
}

/// Pieces that were read ahead: charged, and in a temporary file if there is no memory for them.
pub(crate) trait KeptPieces<P>: Send {
    /// Appends one.
    fn keep(&mut self, piece: P) -> Result<()>;

    /// Takes out the first one.
    fn take_first(&mut self) -> Result<Option<P>>;
}

impl Pieces for Stream {
    type Piece = RowChunk;
    type Kept = KeptRows;

    fn next_piece(&mut self) -> Result<Option<RowChunk>> {
        Ok(self.next()?.map(RowChunk::Vectors))
    }

    fn kept(&self) -> KeptRows {
        self.kept_rows()
    }
}

impl KeptPieces<RowChunk> for KeptRows {
    fn keep(&mut self, piece: RowChunk) -> Result<()> {
        match piece {
            RowChunk::Vectors(chunk) => self.push(chunk),
            RowChunk::Values(_) => unreachable!("streams give vectors"),
        }
    }

    fn take_first(&mut self) -> Result<Option<RowChunk>> {
        Ok(self.take()?.map(RowChunk::Vectors))
    }
}

/// A stream in a block's transaction, which the connection can reach as well.
pub(crate) struct SharedStream<P: Pieces> {
    state: Mutex<SharedState<P>>,
    failure: Arc<StreamFailure>,
    /// The block in whose transaction it is, by the count of `failure`.
    block: u64,
}

struct SharedState<P: Pieces> {
    stream: Option<P>,
    /// What was read ahead.
    ahead: Option<P::Kept>,
    /// The error that ended the reading ahead: it is returned after those pieces.
    failed_ahead: Option<Error>,
    /// The error for a reader once the transaction has ended.
    error: Option<Error>,
    alarm: Option<Alarm>,
    /// Whether some of it was read since the last check.
    drawn: bool,
    drawing: Option<Drawing>,
}

impl<P: Pieces> SharedStream<P> {
    pub fn new(
        stream: P,
        alarm: Option<Alarm>,
        failure: Arc<StreamFailure>,
        drawing: Option<Drawing>,
    ) -> SharedStream<P> {
        let state = SharedState {
            stream: Some(stream),
            ahead: None,
            failed_ahead: None,
            error: None,
            alarm,
            drawn: false,
            drawing,
        };
        let block = failure.block();
        SharedStream { state: Mutex::new(state), failure, block }
    }

    pub fn next(&self) -> Result<Option<P::Piece>> {
        let mut state = self.state.lock();
        state.drawn = true;
        let SharedState { stream, ahead, failed_ahead, error, alarm, drawing, .. } = &mut *state;
        let kept = match ahead {
            Some(kept) => kept.take_first(),
            None => Ok(None),
        };
        let next = match kept {
            Ok(Some(piece)) => Ok(Some(piece)),
            // A temporary file cannot be read: there is nothing after that.
            Err(error) => {
                (*ahead, *stream) = (None, None);
                Err(error)
            }
            Ok(None) => {
                *ahead = None;
                match (failed_ahead.take(), error.take()) {
                    (Some(failed), _) => Err(failed),
                    (None, Some(gone)) => return Err(gone),
                    (None, None) => pull(stream, alarm),
                }
            }
        };
        if stream.is_none() {
            *drawing = None;
        }
        if let Err(error) = &next {
            self.failure.raise(self.block, error);
        }
        next
    }

    /// The error that occurred when it was read ahead, if that has not been reported yet.
    fn failed_ahead(&self) -> Option<Error> {
        self.state.lock().failed_ahead.clone()
    }
}

/// A [`SharedStream`] of any kind, for the owner of the transaction.
pub(crate) trait InTransaction: Send + Sync {
    /// Reads everything that is left, because the transaction advances. It stops if the reader goes away meanwhile:
    /// otherwise nothing would stop a stream without end.
    fn read_ahead(self: Arc<Self>);

    /// Keeps other threads from reading it; `None` if one reads it now.
    fn try_hold(&self) -> Option<Box<dyn Hold + '_>>;

    /// As [`InTransaction::try_hold`], but waits.
    fn hold(&self) -> Box<dyn Hold + '_>;
}

/// A stream that no other thread reads as long as this lasts.
pub(crate) trait Hold {
    /// Whether it was read since the last call.
    fn was_drawn(&mut self) -> bool;

    /// Drops the rest: its reader gets the error.
    fn abandon(&mut self, error: &dyn Fn() -> Error);
}

impl<P: Pieces> InTransaction for SharedStream<P> {
    fn read_ahead(self: Arc<Self>) {
        let mut state = self.state.lock();
        let SharedState { stream, ahead, failed_ahead, alarm, .. } = &mut *state;
        if let Some(stream) = &*stream
            && ahead.is_none()
        {
            *ahead = Some(stream.kept());
        }
        while stream.is_some() && Arc::strong_count(&self) > 1 {
            let kept = pull(stream, alarm).and_then(|piece| match (piece, &mut *ahead) {
                (Some(piece), Some(ahead)) => ahead.keep(piece),
                _ => Ok(()),
            });
            if let Err(error) = kept {
                *failed_ahead = Some(error);
                (*stream, *alarm) = (None, None);
            }
        }
        state.drawing = None;
    }

    fn try_hold(&self) -> Option<Box<dyn Hold + '_>> {
        self.state.try_lock().map(|state| Box::new(state) as Box<dyn Hold>)
    }

    fn hold(&self) -> Box<dyn Hold + '_> {
        Box::new(self.state.lock())
    }
}

impl<P: Pieces> Hold for MutexGuard<'_, SharedState<P>> {
    fn was_drawn(&mut self) -> bool {
        std::mem::take(&mut self.drawn)
    }

    fn abandon(&mut self, error: &dyn Fn() -> Error) {
        if self.stream.take().is_some() {
            self.drawing = None;
            self.error = Some(error());
        }
    }
}

/// Abandons streams that are not being read; returns false, and abandons none, if one was read since the last call.
pub(crate) fn end_idle(streams: &[Weak<dyn InTransaction>], error: &Error) -> bool {
    let streams: Vec<_> = streams.iter().filter_map(Weak::upgrade).collect();
    // A stream that another thread holds is being read.
    let Some(mut held) = streams.iter().map(|stream| stream.try_hold()).collect::<Option<Vec<_>>>() else {
        return false;
    };
    if held.iter_mut().fold(false, |drawn, stream| stream.was_drawn() | drawn) {
        return false;
    }
    held.iter_mut().for_each(|stream| stream.abandon(&|| error.clone()));
    true
}

/// The next piece; the stream and its timeout are dropped after the last one and after an error.
fn pull<P: Pieces>(stream: &mut Option<P>, alarm: &mut Option<Alarm>) -> Result<Option<P::Piece>> {
    let next = pull_within(stream, alarm.as_ref());
    if stream.is_none() {
        *alarm = None;
    }
    next
}

/// The next piece; the stream is dropped after the last one and after an error.
fn pull_within<P: Pieces>(stream: &mut Option<P>, alarm: Option<&Alarm>) -> Result<Option<P::Piece>> {
    let Some(running) = stream else { return Ok(None) };
    let next = match catch_unwind(AssertUnwindSafe(|| running.next_piece())) {
        Ok(next) => next,
        Err(panic) => Err(crate::errors::internal_error(&*panic)),
    };
    if !matches!(next, Ok(Some(_))) {
        *stream = None;
        return next.map_err(|error| crate::errors::timed_out(error, alarm));
    }
    next
}

impl Rows {
    /// Rows that are complete.
    pub(crate) fn ready(columns: Arc<[Column]>, verb: &'static str, values: Vec<Value>) -> Rows {
        Rows { columns, verb, rows: 0, tag_rows: None, is_binary: false, source: Source::Values(values) }
    }

    /// The rows of a statement that has changed or locked rows.
    pub(crate) fn changed(columns: Arc<[Column]>, verb: &'static str, changed: Changed) -> Rows {
        let source = match changed.rows {
            ChangedRows::Values(values) => Source::Values(values),
            ChangedRows::Kept(stream) => Source::Finished(Box::new(Some(*stream))),
        };
        Rows { columns, verb, rows: 0, tag_rows: changed.count, is_binary: false, source }
    }

    /// The rows that FETCH returns.
    pub(crate) fn fetched(columns: Arc<[Column]>, fetched: Fetched) -> Rows {
        let source = Source::Fetched(fetched);
        Rows { columns, verb: "FETCH", rows: 0, tag_rows: None, is_binary: false, source }
    }

    /// Sets whether they are of a cursor that was declared BINARY.
    pub(crate) fn in_binary(self, is_binary: bool) -> Rows {
        Rows { is_binary, ..self }
    }

    /// Whether a protocol whose client requests no format sends them in binary format: the rows of a cursor that was declared BINARY.
    pub fn are_binary(&self) -> bool {
        self.is_binary
    }

    /// Rows of a stream in a transaction of its own.
    pub(crate) fn own(
        columns: Arc<[Column]>,
        verb: &'static str,
        stream: Stream,
        reading: Reading,
        alarm: Option<Alarm>,
        drawing: Drawing,
    ) -> Rows {
        let own = OwnStream { stream: Some(stream), reading: Some(reading), alarm, drawing: Some(drawing) };
        Rows { columns, verb, rows: 0, tag_rows: None, is_binary: false, source: Source::Own(Box::new(own)) }
    }

    /// Rows that a replica computes.
    pub(crate) fn routed(columns: Arc<[Column]>, stream: RoutedStream) -> Rows {
        let source = Source::Routed(Box::new(stream));
        Rows { columns, verb: "SELECT", rows: 0, tag_rows: None, is_binary: false, source }
    }

    /// Rows of a stream in the connection's transaction.
    pub(crate) fn shared(
        columns: Arc<[Column]>,
        verb: &'static str,
        stream: Stream,
        alarm: Option<Alarm>,
        failure: Arc<StreamFailure>,
        drawing: Drawing,
    ) -> (Rows, Weak<dyn InTransaction>) {
        let shared = Arc::new(SharedStream::new(stream, alarm, failure, Some(drawing)));
        let weak: Weak<SharedStream<Stream>> = Arc::downgrade(&shared);
        (
            Rows { columns, verb, rows: 0, tag_rows: None, is_binary: false, source: Source::Shared(shared) },
            weak,
        )
    }

    /// The error that occurred when they were read ahead, if that has not been reported yet.
    pub(crate) fn failed_ahead(&self) -> Option<Error> {
        match &self.source {
            Source::Shared(shared) => shared.failed_ahead(),
            _ => None,
        }
    }

    /// Whether they are still being computed.
    pub(crate) fn are_drawn(&self) -> bool {
        matches!(self.source, Source::Own(_) | Source::Routed(_) | Source::Shared(_))
    }

    /// The columns.
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }

    /// The next rows; `None` at the end. After an error the statement has been rolled back, and the
    /// transaction block it was in has failed.
    pub fn next_chunk(&mut self) -> Result<Option<RowChunk>> {
        let chunk = match &mut self.source {
            Source::Values(values) if values.is_empty() => None,
            Source::Values(values) => Some(RowChunk::Values(std::mem::take(values))),
            Source::Finished(stream) => pull(stream, &mut None)?,
            Source::Fetched(fetched) => fetched.next()?,
            Source::Shared(shared) => shared.next()?,
            Source::Own(own) => own.next()?,
            Source::Routed(routed) => routed.next()?,
        };
        self.rows += chunk.as_ref().map_or(0, |chunk| chunk.rows(self.columns.len()) as u64);
        Ok(chunk)
    }

    /// Ends the statement before its last row, if it is one that only reads, in a transaction of its own: what has been read counts, so this
    /// waits for the same as the end of all rows. Dropping rows does not.
    ///
    /// Errors: 57014 if the wait was cancelled; 57P01 if another server is the primary; 08007 and 58030 as of a commit.
    pub fn end(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Own(own) => own.end(),
            _ => Ok(()),
        }
    }

    /// The columns as Arrow has them: those of [`Rows::batch`]. Every one may hold NULL.
    pub fn schema(&self) -> SchemaRef {
        firn_sql::result_schema(&self.columns)
    }

    /// A chunk as a batch of that schema. Columns of fixed width and strings are not copied.
    pub fn batch(chunk: RowChunk, columns: &[Column], schema: &SchemaRef) -> Result<RecordBatch> {
        chunk.into_batch(columns, schema)
    }

    /// The next rows as an Arrow batch; else as [`Rows::next_chunk`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(chunk) = self.next_chunk()? else { return Ok(None) };
        chunk.into_batch(&self.columns, &self.schema()).map(Some)
    }

    /// The command tag, once `next_chunk` has returned `None`.
    pub fn tag(&self) -> CommandTag {
        CommandTag { verb: self.verb, rows: Some(self.tag_rows.unwrap_or(self.rows)) }
    }

    /// The rows as Rust values, one at a time: see [`FromRow`]. 42804 if a row of the type has another number of columns.
    pub fn into_typed<T: FromRow>(self) -> Result<TypedRows<T>> {
        check_columns::<T>(self.columns.len())?;
        Ok(TypedRows { rows: Some(self), waiting: Vec::new().into_iter(), is_of: PhantomData })
    }

    /// All rows as Arrow batches.
    pub fn into_batches(mut self) -> Result<Vec<RecordBatch>> {
        let schema = self.schema();
        let mut batches = Vec::new();
        while let Some(chunk) = self.next_chunk()? {
            batches.push(chunk.into_batch(&self.columns, &schema)?);
        }
        Ok(batches)
    }

    /// All rows as values, a vector each.
    pub fn into_values(mut self) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        while let Some(chunk) = self.next_chunk()? {
            let mut more = chunk.into_values(&self.columns);
            match rows.is_empty() {
                true => rows = more,
                false => rows.append(&mut more),
            }
        }
        Ok(rows)
    }
}

/// The rows of a result as Arrow batches, computed while they are read. After an error it ends.
pub struct Batches {
    rows: Option<Rows>,
    schema: SchemaRef,
}

impl Batches {
    /// The schema of all batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let rows = self.rows.as_mut()?;
        let next = rows
            .next_chunk()
            .and_then(|chunk| chunk.map(|chunk| chunk.into_batch(&rows.columns, &self.schema)).transpose());
        if !matches!(next, Ok(Some(_))) {
            self.rows = None;
        }
        next.transpose()
    }
}

impl IntoIterator for Rows {
    type Item = Result<RecordBatch>;
    type IntoIter = Batches;

    /// The rows as Arrow batches.
    fn into_iter(self) -> Batches {
        Batches { schema: self.schema(), rows: Some(self) }
    }
}

/// The rows of a result as Rust values, computed while they are read. After an error it ends.
pub struct TypedRows<T> {
    rows: Option<Rows>,
    /// The rest of a chunk.
    waiting: std::vec::IntoIter<Vec<Value>>,
    is_of: PhantomData<fn() -> T>,
}

impl<T: FromRow> Iterator for TypedRows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        loop {
            let rows = self.rows.as_mut()?;
            if let Some(row) = self.waiting.next() {
                let row = T::from_row(row);
                if row.is_err() {
                    self.rows = None;
                }
                return Some(row);
            }
            match rows.next_chunk() {
                Ok(Some(chunk)) => self.waiting = chunk.into_values(&rows.columns).into_iter(),
                Ok(None) => self.rows = None,
                Err(error) => {
                    self.rows = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// A transaction of a single statement that only reads. Dropping it abandons the statement.
pub(crate) struct Reading {
    pub transaction: Transaction,
    pub waits: ReadWaits,
    /// The session, whose functions may have taken locks and sent notifications, and the number of the statement.
    services: Arc<Services>,
    statement: u64,
    cancel: Cancel,
}

impl Reading {
    /// For the statement that the session runs, which `cancel` ends.
    pub fn new(
        transaction: Transaction,
        waits: ReadWaits,
        services: &Arc<Services>,
        cancel: &Cancel,
    ) -> Reading {
        let (services, statement) = (services.clone(), services.statement());
        Reading { transaction, waits, services, statement, cancel: cancel.clone() }
    }

    /// Ends the transaction. Returns when all that it has read is durable. The alarm of its statement ends the wait.
    pub fn end(self, alarm: Option<&Alarm>) -> Result<()> {
        let engine = self.transaction.engine().clone();
        // If the session runs another statement, they belong to that transaction.
        let ticket = match self.services.statement() == self.statement {
            true => {
                let committed = self.services.commit(|| self.transaction.commit());
                self.services.end_transaction();
                committed?
            }
            false => self.transaction.commit()?,
        };
        let waited = self.waits.wait(&engine, ticket, &|| self.cancel.check());
        waited.map_err(|error| crate::errors::timed_out(error, alarm))
    }
}

impl OwnStream {
    fn end(&mut self) -> Result<()> {
        (self.stream, self.drawing) = (None, None);
        let alarm = self.alarm.take();
        self.reading.take().map_or(Ok(()), |reading| reading.end(alarm.as_ref()))
    }

    fn next(&mut self) -> Result<Option<RowChunk>> {
        let next = pull_within(&mut self.stream, self.alarm.as_ref());
        if self.stream.is_some() {
            return next;
        }
        let alarm = self.alarm.take();
        if let Some(reading) = self.reading.take()
            && next.is_ok()
        {
            self.drawing = None;
            reading.end(alarm.as_ref())?;
        }
        next
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.stream = None;
    }
}

/// The streams that read in a connection's transaction.
#[derive(Default)]
pub(crate) struct OpenStreams(Vec<Weak<dyn InTransaction>>);

impl OpenStreams {
    pub fn add(&mut self, stream: Weak<dyn InTransaction>) {
        self.0.push(stream);
    }

    /// All that exist.
    pub fn list(&self) -> Vec<Weak<dyn InTransaction>> {
        self.0.clone()
    }

    /// The transaction advances: the rest of the streams is read now.
    #[inline]
    pub fn read_ahead(&mut self) {
        for stream in self.0.drain(..) {
            if let Some(stream) = stream.upgrade() {
                stream.read_ahead();
            }
        }
    }

    /// The transaction has been rolled back: the rest of the streams is dropped.
    pub fn abandon(&mut self) {
        for stream in self.0.drain(..) {
            if let Some(stream) = stream.upgrade() {
                stream.hold().abandon(&|| {
                    Error::new(
                        SqlState::INVALID_CURSOR_NAME,
                        "the transaction of these rows has been rolled back",
                    )
                });
            }
        }
    }
}
