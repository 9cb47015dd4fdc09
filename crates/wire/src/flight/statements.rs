//! Running statements for calls: where, with which parameters, and how their rows are sent.
//!
//! A query runs when a client fetches its rows. Every other statement runs once, when its client asks for its
//! description (`GetFlightInfo`). Clients may never fetch the result of a statement without rows, or rows that they do
//! not need, and still expect the statement to have run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Representation, Result, SqlState, Type, Value, clock};
use firn_session::server::ServerConnection as _;
use firn_session::{CommandTag, Connection, Outcome, Rows, Statement, TransactionStatus};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, mpsc};
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

use super::auth::Caller;
use super::batches::{Encoder, schema_of};
use super::message::Message;
use super::state::{Handle, Noted, Ready, Running, State, Transaction, TransactionState};
use super::status::status;
use super::stopping::{Stop, StopOnDrop};
use crate::parameters::read_text;

/// Messages that may wait for a client: enough for encoding and sending to overlap.
const MESSAGES_AHEAD: usize = 4;

/// How long a transaction's query may continue after its client has dropped the stream.
const UNREAD_GRACE: Duration = Duration::from_millis(500);

/// How often several rows of parameters are run again after conflicts.
const MOST_RETRIES: u32 = 5;

/// Where a statement runs.
enum Place {
    /// On a connection of its own.
    Alone(Box<Connection>),
    /// In a transaction.
    Block(Arc<Transaction>),
}

/// What is needed to run statements for one call.
pub(super) struct Run {
    pub state: Arc<State>,
    pub caller: Caller,
    place: Place,
    stop: Stop,
    _noted: Noted,
    _permit: OwnedSemaphorePermit,
}

/// The result of a statement that is no query.
#[derive(Default)]
pub(super) struct Done {
    /// The number of rows that it changed, from its tag.
    pub rows: u64,
    /// The rows that it yields, if any.
    pub ready: Option<Ready>,
}

impl Run {
    /// A place to run in: the transaction of that handle, or a new connection.
    ///
    /// Errors: 53300 if too many statements run, 57P01 if the server stops, 25P01 if there is no such
    /// transaction.
    fn new(
        state: &Arc<State>,
        caller: &Caller,
        transaction: Option<&[u8]>,
        query: Option<Handle>,
    ) -> Result<Run> {
        if state.is_stopping() {
            return Err(shut_down());
        }
        // Some clients send an empty handle for none.
        let (place, stop, permit) = match transaction.filter(|handle| !handle.is_empty()) {
            Some(handle) => {
                let transaction = state.transaction(handle)?;
                // A transaction can always continue, however many statements run. Further statements of it that run at the
                // same time need places.
                let permit = match transaction.place.clone().try_acquire_owned() {
                    Ok(permit) => permit,
                    Err(_) => place_of(state)?,
                };
                let stop = Stop::in_turn(&transaction.turns, &transaction.cancel);
                (Place::Block(transaction), stop, permit)
            }
            None => {
                let permit = place_of(state)?;
                let connection = Box::new(state.connect(caller));
                let stop = Stop::alone(&connection);
                (Place::Alone(connection), stop, permit)
            }
        };
        let noted = Running::note(state, query, stop.clone());
        let (state, caller) = (state.clone(), caller.clone());
        Ok(Run { state, caller, place, stop, _noted: noted, _permit: permit })
    }

    /// Lends the connection.
    pub fn connection<T>(&mut self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        match &mut self.place {
            Place::Alone(connection) => work(connection),
            Place::Block(transaction) => in_turn(transaction, &self.stop, |state| work(state.begin()?)),
        }
    }

    /// Runs `work` in the current transaction, or in one of its own that commits at the end.
    pub fn atomically<T>(&mut self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        match &mut self.place {
            Place::Block(transaction) => in_turn(transaction, &self.stop, |state| work(state.begin()?)),
            Place::Alone(connection) => {
                connection.execute("BEGIN")?;
                match work(connection) {
                    Ok(value) => connection.execute("COMMIT").map(|_| value),
                    Err(error) => {
                        // The first error is more useful than one of the rollback.
                        let _ = connection.execute("ROLLBACK");
                        Err(error)
                    }
                }
            }
        }
    }

    pub fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.connection(|connection| connection.prepare(sql))
    }

    /// Runs a statement with one row of parameters.
    fn run(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        self.stop.check()?;
        match &mut self.place {
            Place::Alone(connection) => {
                let outcome = connection.run(statement, parameters)?;
                if let Outcome::Done(tag) = &outcome {
                    keep_what_lasts(connection, tag, &self.caller)?;
                }
                Ok(outcome)
            }
            Place::Block(transaction) => in_turn(transaction, &self.stop, |state| {
                let outcome = state.begin()?.run(statement, parameters);
                state.note(&outcome);
                outcome
            }),
        }
    }

    /// Reads texts in rows of parameters as the types of the statement's parameters, as PostgreSQL does with parameters that are
    /// sent as texts: dates, for example, are often sent so.
    fn read_texts(&mut self, statement: &Statement, rows: &mut [Vec<Value>]) -> Result<()> {
        let types = statement.parameters();
        let is_read = |value: &Value, ty: &Type| {
            matches!(value, Value::Text(_)) && !ty.representation().is_some_and(Representation::is_string)
        };
        if !rows.iter().any(|row| row.iter().zip(types).any(|(value, ty)| is_read(value, ty))) {
            return Ok(());
        }
        let style = self.connection(|connection| Ok(*connection.text_style()))?;
        for (value, ty) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(types)) {
            if let Value::Text(written) = &*value
                && is_read(value, ty)
            {
                *value = read_text(written, *ty, &style)?;
            }
        }
        Ok(())
    }

    /// Runs a statement that is no query, or one whose rows are not needed, with each row of parameters: all of
    /// them succeed or none.
    pub fn execute(&mut self, statement: &Statement, rows: &[Vec<Value>], keep: bool) -> Result<Done> {
        let mut rows = rows.to_vec();
        self.read_texts(statement, &mut rows)?;
        if rows.len() <= 1 {
            let parameters = rows.first().map_or(&[][..], |row| &row[..]);
            let mut done = Done::default();
            let outcome = self.run(statement, parameters)?;
            done.take(outcome, &self.caller, keep)?;
            return Ok(done);
        }
        let (caller, stop) = (self.caller.clone(), self.stop.clone());
        let may_repeat = matches!(self.place, Place::Alone(_));
        let mut retries = 0;
        loop {
            let all = self.atomically(|connection| {
                let mut done = Done::default();
                for row in &rows {
                    if let Err(stopped) = stop.check() {
                        // The rows before it must not be committed alone.
                        connection.fail_block();
                        return Err(stopped);
                    }
                    let outcome = connection.run(statement, row)?;
                    done.take(outcome, &caller, keep)?;
                }
                Ok(done)
            });
            match all {
                Err(error) if error.is_retryable() && may_repeat && retries < MOST_RETRIES => retries += 1,
                all => return all,
            }
        }
    }

    /// Runs a query with each row of parameters and sends the rows that it yields.
    pub fn send(&mut self, statement: &Statement, rows: &[Vec<Value>], output: &mut Output) -> Result<()> {
        let columns = statement.columns().ok_or_else(|| {
            Error::new(SqlState::SYNTAX_ERROR, "the statement yields no rows")
                .with_hint("Run it as an update.")
        })?;
        let (mut encoder, first) = Encoder::new(schema_of(columns, self.caller.strings))?;
        let mut first = Some(first);
        let mut rows = if rows.is_empty() { vec![Vec::new()] } else { rows.to_vec() };
        self.read_texts(statement, &mut rows)?;
        for row in &rows {
            let Outcome::Rows(mut drawn) = self.run(statement, row)? else {
                return Err(copy_refused());
            };
            if let Some(first) = first.take()
                && !output.send(first)
            {
                return Ok(());
            }
            while let Some(batch) = drawn.next_batch()? {
                self.stop.check()?;
                if !encoder.batch(&batch, &mut |message| output.send(message))? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Runs `work` in a transaction, when it is the call's turn.
fn in_turn<T>(
    transaction: &Transaction,
    stop: &Stop,
    work: impl FnOnce(&mut TransactionState) -> Result<T>,
) -> Result<T> {
    let mut state = transaction.state.lock();
    let _turn = stop.begin_turn(&transaction.turns)?;
    work(&mut state)
}

/// A place among the statements that run.
fn place_of(state: &State) -> Result<OwnedSemaphorePermit> {
    state.places.clone().try_acquire_owned().map_err(|error| match error {
        TryAcquireError::Closed => shut_down(),
        TryAcquireError::NoPermits => {
            Error::new(SqlState::TOO_MANY_CONNECTIONS, "too many statements run already")
                .with_hint("Try again later, or raise --max-connections.")
        }
    })
}

impl TransactionState {
    /// Records how a statement has changed the transaction itself.
    fn note(&mut self, outcome: &Result<Outcome>) {
        match outcome {
            Ok(Outcome::Done(tag)) if is_setting(tag) => self.sets = true,
            Err(error) if error.state() == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => self.lost = true,
            _ => {}
        }
        // COMMIT and ROLLBACK as statements: the next one begins another block.
        if self.connection.status() == TransactionStatus::Idle {
            self.begun = false;
        }
    }
}

impl Done {
    fn take(&mut self, outcome: Outcome, caller: &Caller, keep: bool) -> Result<()> {
        match outcome {
            Outcome::Done(tag) => self.rows += tag.shown_rows().unwrap_or(0),
            Outcome::Empty => {}
            Outcome::Rows(rows) => self.take_rows(rows, caller, keep)?,
            Outcome::CopyIn(_) | Outcome::CopyOut(_) => return Err(copy_refused()),
        }
        Ok(())
    }

    fn take_rows(&mut self, mut rows: Rows, caller: &Caller, keep: bool) -> Result<()> {
        let ready = self.ready.get_or_insert_with(|| Ready {
            schema: schema_of(rows.columns(), caller.strings),
            batches: Vec::new(),
        });
        while let Some(batch) = rows.next_batch()? {
            if keep {
                ready.batches.push(batch);
            }
        }
        self.rows += rows.tag().rows.unwrap_or(0);
        Ok(())
    }
}

fn is_setting(tag: &CommandTag) -> bool {
    matches!(tag.verb, "SET" | "RESET" | "DISCARD ALL")
}

/// After a statement on a connection that is dropped: settings are saved in the session; other lasting effects are refused.
fn keep_what_lasts(connection: &Connection, tag: &CommandTag, caller: &Caller) -> Result<()> {
    if connection.status() != TransactionStatus::Idle {
        return Err(Error::unsupported(format!("{} as a statement", tag.verb)).with_hint(
            "Begin a transaction with Flight SQL's BeginTransaction: in ADBC, turn autocommit off.",
        ));
    }
    match (tag.verb, &caller.session) {
        ("PREPARE" | "DECLARE CURSOR", _) => Err(Error::unsupported(format!("{} as a statement", tag.verb))
            .with_hint("Prepare statements with Flight SQL's CreatePreparedStatement.")),
        (_, Some(session)) if is_setting(tag) => {
            *session.settings.lock() = Some(connection.session_settings());
            Ok(())
        }
        (_, None) if is_setting(tag) => Err(Error::unsupported(format!("{} without a session", tag.verb))
            .with_hint(
                "Connect with a user name: settings last as long as the session that a handshake begins.",
            )),
        _ => Ok(()),
    }
}

#[cold]
fn copy_refused() -> Error {
    Error::unsupported("COPY with the client over Flight SQL").with_hint(
        "Use bulk ingestion or a query; COPY works with the server's files, and over PostgreSQL's protocol.",
    )
}

#[cold]
pub(super) fn shut_down() -> Error {
    Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// Sends rows.
pub(super) struct Output(mpsc::Sender<std::result::Result<Message, Status>>);

impl Output {
    /// Waits for a place in the queue; false if the client has gone.
    pub fn send(&mut self, message: Message) -> bool {
        self.0.blocking_send(Ok(message)).is_ok()
    }

    /// Sends batches that have a schema of their own.
    pub fn batches(&mut self, schema: SchemaRef, batches: &[RecordBatch]) -> Result<()> {
        let (mut encoder, first) = Encoder::new(schema)?;
        if !self.send(first) {
            return Ok(());
        }
        for batch in batches {
            if !encoder.batch(batch, &mut |message| self.send(message))? {
                break;
            }
        }
        Ok(())
    }
}

/// Messages that are sent to a client, as the body of an HTTP reply. Dropping it stops the statement.
pub(super) struct Answer {
    queue: Arc<Queue>,
    /// The rest of the current message.
    current: Message,
    has_ended: bool,
    _stop: StopOnDrop,
}

impl Answer {
    /// The next message or a part of one, and after the last one the status.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Message>>> {
        let end = loop {
            if let Some(chunk) = self.current.next_chunk() {
                return Poll::Ready(Some(Frame::data(chunk)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.queue.poll(context)) {
                Some(Ok(message)) => self.current = message,
                Some(Err(status)) => break status,
                None => break Status::ok(""),
            }
        };
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        if end.add_header(&mut trailers).is_err() {
            // The text of the status cannot be sent, but its code can.
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from(i32::from(Code::Internal)));
        }
        Poll::Ready(Some(Frame::trailers(trailers)))
    }

    /// Whether the whole body has been taken.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// The messages that wait for a client.
pub(super) struct Queue(Mutex<Queued>);

struct Queued {
    messages: mpsc::Receiver<std::result::Result<Message, Status>>,
    /// The time since which a message waits.
    waits_since: Option<clock::Instant>,
    /// Why the remaining messages are not sent.
    given_up: Option<Status>,
}

impl Queue {
    /// The next message; none after the last.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<std::result::Result<Message, Status>>> {
        let mut queued = self.0.lock();
        let next = queued.messages.poll_recv(context);
        if next.is_ready() {
            queued.waits_since = None;
        }
        match next {
            Poll::Ready(None) => Poll::Ready(queued.given_up.take().map(Err)),
            next => next,
        }
    }

    /// Ends the stream if its client has fetched nothing for so long: its query occupies a place, a thread and a
    /// snapshot. Returns whether it continues.
    pub fn end_unless_fetched(&self, longest: Duration) -> bool {
        let mut queued = self.0.lock();
        if queued.messages.is_empty() {
            queued.waits_since = None;
            return !queued.messages.is_closed();
        }
        let now = clock::now();
        let since = *queued.waits_since.get_or_insert(now);
        if now.saturating_duration_since(since) <= longest {
            return true;
        }
        // A statement that waits for a place in the queue finds it closed.
        queued.messages.close();
        while queued.messages.try_recv().is_ok() {}
        queued.given_up = Some(status(
            Error::new(
                SqlState::QUERY_CANCELED,
                "the query was ended because its rows were not fetched for too long",
            )
            .with_hint("Run it again, and fetch its rows or drop the stream."),
        ));
        false
    }
}

/// Runs `work` on a thread that may block.
pub(super) async fn call<T: Send + 'static>(
    state: &Arc<State>,
    caller: &Caller,
    transaction: Option<&[u8]>,
    work: impl FnOnce(&mut Run) -> Result<T> + Send + 'static,
) -> std::result::Result<T, Status> {
    let mut run = Run::new(state, caller, transaction, None).map_err(status)?;
    let _stop = StopOnDrop { stop: run.stop.clone(), grace: Duration::ZERO };
    let running = tokio::task::spawn_blocking(move || {
        let result = guarded(&mut run, work);
        run.stop.end();
        result
    });
    match running.await {
        Ok(result) => result.map_err(status),
        Err(_) => Err(status(shut_down())),
    }
}

/// Runs `work`, which sends messages, on a thread that may block.
pub(super) fn answer(
    state: &Arc<State>,
    caller: &Caller,
    transaction: Option<&[u8]>,
    query: Option<Handle>,
    work: impl FnOnce(&mut Run, &mut Output) -> Result<()> + Send + 'static,
) -> std::result::Result<Answer, Status> {
    let mut run = Run::new(state, caller, transaction, query).map_err(status)?;
    let (sender, messages) = mpsc::channel(MESSAGES_AHEAD);
    let queue = Arc::new(Queue(Mutex::new(Queued { messages, waits_since: None, given_up: None })));
    state.queues.lock().push(Arc::downgrade(&queue));
    // Cancelling fails a transaction. A client that leaves rows of its transaction unread wants to continue with it. The
    // statement finds out with the next message; only if none follows, it is cancelled.
    let grace = if matches!(run.place, Place::Block(_)) { UNREAD_GRACE } else { Duration::ZERO };
    let stop = StopOnDrop { stop: run.stop.clone(), grace };
    tokio::task::spawn_blocking(move || {
        let mut output = Output(sender);
        if let Err(error) = guarded(&mut run, |run| work(run, &mut output)) {
            // If this fails, the client has gone.
            let _ = output.0.blocking_send(Err(status(error)));
        }
        run.stop.end();
        // The statement ends before its client sees the end of the stream, as the client may rely on that.
        drop(run);
        drop(output);
    });
    Ok(Answer { queue, current: Message::default(), has_ended: false, _stop: stop })
}

/// A panic is a bug of the server and ends only this call. A statement that was cancelled because the server
/// stops returns that error.
fn guarded<T>(run: &mut Run, work: impl FnOnce(&mut Run) -> Result<T>) -> Result<T> {
    let result = catch_unwind(AssertUnwindSafe(|| work(run))).unwrap_or_else(|panic| Err(panicked(&*panic)));
    result.map_err(|error| match error.state() {
        SqlState::QUERY_CANCELED if run.state.is_stopping() => shut_down(),
        _ => error,
    })
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown cause");
    Error::internal(message)
}
