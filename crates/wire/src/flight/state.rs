//! What a server keeps for its clients between two calls: sessions, transactions, prepared statements,
//! results that wait to be fetched, and running statements.
//!
//! Each has a handle of 16 secret bytes, which permits its use. A client that disconnects is not noticed,
//! so everything has two limits: a number of entries, and a time that an entry may be idle.

use std::collections::HashMap;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Weak};
use firn_base::{Error, Result, SqlState, Value, clock, random};
use firn_session::server::{ServerConnection as _, SessionSettings};
use firn_session::{CancelHandle, Connection, Database, Statement, TransactionStatus};
use tokio::sync::Semaphore;

use super::FlightConfig;
use super::auth::{self, Caller};
use super::statements::Queue;
use super::stopping::{Stop, Turns};

/// The result of `current_database()`, and the only catalog.
pub(super) const CATALOG: &str = "firn";

/// How often idle entries are searched.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The setting for how long a transaction may be idle.
const IDLE_TIMEOUT: &str = "idle_in_transaction_session_timeout";

/// The name of an entry.
pub(super) type Handle = [u8; 16];

/// What a server keeps.
pub(super) struct State {
    pub database: Database,
    pub config: FlightConfig,
    pub sessions: Shelf<Session>,
    pub transactions: Shelf<Transaction>,
    pub statements: Shelf<Prepared>,
    pub results: Shelf<Ready>,
    pub running: Running,
    /// Messages that wait to be fetched by clients.
    pub queues: Mutex<Vec<Weak<Queue>>>,
    /// A place for each statement that may run at once.
    pub places: Arc<Semaphore>,
    stopping: AtomicBool,
}

impl State {
    pub fn new(database: Database, config: FlightConfig) -> State {
        State {
            database,
            sessions: Shelf::new(config.max_handles, Full::Replace, config.session_timeout),
            transactions: Shelf::new(config.max_transactions, Full::Refuse, config.transaction_timeout),
            statements: Shelf::new(config.max_handles, Full::Replace, config.handle_timeout),
            results: Shelf::new(config.max_handles, Full::Replace, config.handle_timeout),
            running: Running::default(),
            queues: Mutex::default(),
            places: Arc::new(Semaphore::new(config.max_statements)),
            stopping: AtomicBool::new(false),
            config,
        }
    }

    /// From now on statements end with 57P01.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.places.close();
        self.running.cancel_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.transactions.clear();
        self.statements.clear();
        self.results.clear();
        self.sessions.clear();
    }

    fn sweep(&self) {
        let longest = self.config.transaction_timeout;
        let remains = |queue: Arc<Queue>| queue.end_unless_fetched(longest);
        self.queues.lock().retain(|queue| queue.upgrade().is_some_and(remains));
        self.sessions.sweep();
        self.transactions
            .sweep_unless_used_for(|transaction| transaction.longest_idle(self.config.transaction_timeout));
        self.statements.sweep();
        self.results.sweep();
    }

    /// A new connection to the database, for a caller.
    pub fn connect(&self, caller: &Caller) -> Connection {
        let mut connection = self.database.connect();
        connection.report_no_warnings();
        if let Some(user) = &caller.user {
            connection.identify(user, CATALOG);
        }
        if let Some(session) = &caller.session
            && let Some(settings) = &*session.settings.lock()
        {
            connection.adopt_settings(settings);
        }
        connection.set_addresses(caller.address.map(|address| (address.ip(), address.port())), None);
        connection
    }

    /// Begins a session. Returns its token.
    pub fn begin_session(&self, user: String) -> Result<String> {
        let handle = self.sessions.put(Session { user, settings: Mutex::new(None) }, None)?;
        Ok(auth::token_text(&handle))
    }

    /// The session of a token; 28000 if there is none.
    pub fn session(&self, token: &str) -> Result<Arc<Session>> {
        auth::token_bytes(token).and_then(|handle| self.sessions.get(&handle)).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "the session is unknown, or was idle for too long",
            )
            .with_hint("Connect again.")
        })
    }

    /// Ends everything of a client: its session, whose token becomes invalid, transactions, which
    /// are rolled back, prepared statements, and results. Waits until the running statements of its transactions have stopped.
    pub fn end_client(&self, client: &Caller) {
        if let Some(session) = &client.session {
            self.sessions.remove(session);
        }
        drop(self.statements.take_all_of(client));
        drop(self.results.take_all_of(client));
        for transaction in self.transactions.take_all_of(client) {
            transaction.turns.stop();
            let mut state = transaction.state.lock();
            // A rollback reports nothing.
            let _ = state.end(false);
        }
    }

    /// 54000 if `more` bytes more would exceed the memory that a client may use.
    pub fn refuse_hoarding(&self, client: &Caller, more: usize) -> Result<()> {
        let kept = self.statements.bytes_of(client) + self.results.bytes_of(client);
        match kept.saturating_add(more) > self.config.max_kept_bytes {
            true => Err(Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                "this client's prepared statements, parameters and unfetched rows exceed the limit",
            )
            .with_hint(
                "Close prepared statements that are no longer needed, and fetch the rows of RETURNING.",
            )),
            false => Ok(()),
        }
    }

    /// The transaction of a handle; 25P01 if there is none.
    pub fn transaction(&self, handle: &[u8]) -> Result<Arc<Transaction>> {
        self.transactions.get(handle).ok_or_else(|| {
            Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "there is no such transaction: it has ended, or was idle for too long",
            )
            .with_hint("Roll back and begin another.")
        })
    }

    /// The transaction that a prepared statement runs in, if any: the one that it was prepared in. ADBC keeps
    /// prepared statements when it commits, begins the next transaction by itself, and continues to use them. So once
    /// their transaction has ended, they run in the one that the same client has open, if there is exactly one.
    pub fn transaction_of(&self, prepared: &Prepared, caller: &Caller) -> Option<Vec<u8>> {
        let first = prepared.transaction.as_ref()?;
        if self.transactions.get(first).is_some() {
            return Some(first.clone());
        }
        let mut open = self.transactions.handles_of(caller);
        // If there is none or more than one, the lookup of the first one returns the error.
        Some(if open.len() == 1 { open.remove(0).to_vec() } else { first.clone() })
    }

    /// The prepared statement of a handle; 26000 if there is none.
    pub fn statement(&self, handle: &[u8]) -> Result<Arc<Prepared>> {
        self.statements.get(handle).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_SQL_STATEMENT_NAME,
                "there is no such prepared statement: it was closed, or was unused for too long",
            )
            .with_hint("Prepare it again.")
        })
    }
}

/// Drops entries that have been idle for too long, as long as the server exists.
pub(super) async fn sweep_until_stopped(state: Weak<State>) {
    let interval = match state.upgrade() {
        Some(state) => SWEEP_INTERVAL.min(state.config.handle_timeout.min(state.config.transaction_timeout)),
        None => return,
    };
    loop {
        tokio::time::sleep(interval).await;
        let Some(state) = state.upgrade() else { return };
        // A rollback may take some time.
        if tokio::task::spawn_blocking(move || state.sweep()).await.is_err() {
            return;
        }
    }
}

/// A client, from its handshake on.
pub(super) struct Session {
    pub user: String,
    /// The settings that it has changed; `None` before the first.
    pub settings: Mutex<Option<SessionSettings>>,
}

/// A transaction. It begins with its first statement. So one that a client keeps in reserve (ADBC begins the
/// next one at every commit) has no old snapshot and does not hold up garbage collection.
pub(super) struct Transaction {
    pub state: Mutex<TransactionState>,
    pub cancel: CancelHandle,
    /// The turns of the calls that run in it.
    pub turns: Arc<Turns>,
    /// Its own place for a statement: a client that has begun a transaction must be able to end it.
    pub place: Arc<Semaphore>,
}

pub(super) struct TransactionState {
    pub connection: Connection,
    /// Whether there is a block, or was one that has ended automatically.
    pub begun: bool,
    /// Whether settings were changed, which are kept if it commits.
    pub sets: bool,
    /// Whether it was idle for too long and has been rolled back: its client must not continue in another one unnoticed.
    pub lost: bool,
    /// Whether its client has ended it. A call that waited meanwhile must not begin another one, which would
    /// never be committed.
    ended: bool,
    /// The timeout that it was given because its session has none, as the text of the setting.
    own_timeout: Option<String>,
}

impl Transaction {
    pub fn new(mut connection: Connection, timeout: Duration) -> Result<Transaction> {
        // Nothing else shows that its client has gone.
        let mut own_timeout = None;
        if connection.setting(IDLE_TIMEOUT)? == "0" {
            let milliseconds = timeout.as_millis().max(1).to_string();
            connection.set(IDLE_TIMEOUT, &milliseconds)?;
            own_timeout = Some(connection.setting(IDLE_TIMEOUT)?);
        }
        let cancel = connection.cancel_handle();
        let turns = Turns::of(&connection);
        let state = TransactionState {
            connection,
            begun: false,
            sets: false,
            lost: false,
            ended: false,
            own_timeout,
        };
        let place = Arc::new(Semaphore::new(1));
        Ok(Transaction { state: Mutex::new(state), cancel, turns, place })
    }

    /// How long it may be unused before it is dropped; `None` if it is in use.
    fn longest_idle(&self, default: Duration) -> Option<Duration> {
        let state = self.state.try_lock()?;
        let own = state.connection.idle_in_transaction_timeout();
        Some(match own {
            // The timeout has ended it by then. Its client gets that error when it returns.
            Some(limit) if state.begun => 2 * limit,
            own => own.unwrap_or(default),
        })
    }
}

impl TransactionState {
    /// Begins the block, if there is none.
    pub fn begin(&mut self) -> Result<&mut Connection> {
        if self.ended {
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "the transaction has ended")
                .with_hint("Its end was requested before this call could run. Begin another."));
        }
        if self.lost {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "the transaction was idle for too long and has been rolled back",
            )
            .with_hint("Roll back and begin another."));
        }
        if !self.begun {
            self.connection.execute("BEGIN")?;
            self.begun = true;
        }
        Ok(&mut self.connection)
    }

    /// Ends the transaction, and the block, if there is one.
    pub fn end(&mut self, commit: bool) -> Result<()> {
        let result = self.end_block(commit);
        self.ended = true;
        result
    }

    /// The settings that outlive it. The timeout that it was given is not among them.
    pub fn settings(&mut self) -> Result<SessionSettings> {
        if let Some(own) = &self.own_timeout
            && self.connection.setting(IDLE_TIMEOUT)? == *own
        {
            self.connection.set(IDLE_TIMEOUT, "0")?;
        }
        Ok(self.connection.session_settings())
    }

    fn end_block(&mut self, commit: bool) -> Result<()> {
        if !commit {
            // A transaction that was idle for too long has been rolled back already.
            if std::mem::take(&mut self.begun) && !self.lost {
                let _ = self.connection.execute("ROLLBACK");
            }
            return Ok(());
        }
        if self.lost {
            return self.begin().map(|_| ());
        }
        if !std::mem::take(&mut self.begun) {
            return Ok(());
        }
        // COMMIT of a failed block rolls back and is no error in SQL; a client that has requested a commit needs one.
        if self.connection.status() == TransactionStatus::Failed {
            self.connection.execute("ROLLBACK")?;
            return Err(Error::new(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "the transaction had failed and was rolled back",
            )
            .with_hint("Begin another and run its statements again."));
        }
        self.connection.execute("COMMIT").map(|_| ())
    }
}

/// A prepared statement.
pub(super) struct Prepared {
    pub statement: Statement,
    /// The length of its text.
    pub text_bytes: usize,
    /// The transaction that it was prepared in, and runs in.
    pub transaction: Option<Vec<u8>>,
    /// The rows of parameters for its next run.
    pub bound: Mutex<Bound>,
}

/// Rows of parameters, and the memory that they take.
#[derive(Clone, Default)]
pub(super) struct Bound {
    pub rows: Arc<Vec<Vec<Value>>>,
    pub bytes: usize,
}

/// The approximate number of bytes of a plan for each byte of text.
const PLAN_BYTES: usize = 32;

impl Prepared {
    /// The approximate number of bytes of a prepared statement with a text of this length.
    pub fn bytes_of(text_bytes: usize) -> usize {
        text_bytes.saturating_mul(PLAN_BYTES)
    }
}

impl Weigh for Prepared {
    fn bytes(&self) -> usize {
        Prepared::bytes_of(self.text_bytes).saturating_add(self.bound.lock().bytes)
    }
}

/// The rows of a statement that was run when its client requested its description.
pub(super) struct Ready {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Weigh for Ready {
    fn bytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }
}

/// Entries by handle, with the client that owns each and the time of its last use.
pub(super) struct Shelf<T> {
    things: Mutex<HashMap<Handle, Kept<T>>>,
    most: usize,
    full: Full,
    longest_idle: Duration,
}

struct Kept<T> {
    thing: Arc<T>,
    owner: Option<Caller>,
    used: clock::Instant,
}

/// An entry whose memory counts for the client that owns it.
pub(super) trait Weigh {
    /// Its approximate number of bytes.
    fn bytes(&self) -> usize;
}

/// What happens when an entry exceeds the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The entry that was unused for longest is dropped.
    Replace,
    /// 53300
    Refuse,
}

impl<T> Shelf<T> {
    fn new(most: usize, full: Full, longest_idle: Duration) -> Shelf<T> {
        Shelf { things: Mutex::new(HashMap::new()), most, full, longest_idle }
    }

    /// Stores an entry for a client. Returns its handle.
    pub fn put(&self, thing: T, owner: Option<&Caller>) -> Result<Handle> {
        let mut things = self.things.lock();
        let mut gone = None;
        if things.len() >= self.most {
            if self.full == Full::Refuse {
                return Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, "too many transactions are open")
                    .with_hint("End those that are not needed, or wait."));
            }
            let oldest = things.iter().min_by_key(|(_, kept)| kept.used).map(|(handle, _)| *handle);
            gone = oldest.and_then(|handle| things.remove(&handle));
        }
        let handle = random::secret_bytes();
        let kept = Kept { thing: Arc::new(thing), owner: owner.cloned(), used: clock::now() };
        things.insert(handle, kept);
        drop(things);
        drop(gone);
        Ok(handle)
    }

    pub fn get(&self, handle: &[u8]) -> Option<Arc<T>> {
        let mut things = self.things.lock();
        let kept = things.get_mut(<&Handle>::try_from(handle).ok()?)?;
        kept.used = clock::now();
        Some(kept.thing.clone())
    }

    /// The handles of a client's entries.
    fn handles_of(&self, client: &Caller) -> Vec<Handle> {
        let things = self.things.lock();
        things.iter().filter(|(_, kept)| kept.is_of(client)).map(|(handle, _)| *handle).collect()
    }

    pub fn take(&self, handle: &[u8]) -> Option<Arc<T>> {
        self.things.lock().remove(<&Handle>::try_from(handle).ok()?).map(|kept| kept.thing)
    }

    /// Removes all entries of a client.
    fn take_all_of(&self, client: &Caller) -> Vec<Arc<T>> {
        let gone: Vec<_> = self.things.lock().extract_if(|_, kept| kept.is_of(client)).collect();
        gone.into_iter().map(|(_, kept)| kept.thing).collect()
    }

    /// Drops an entry, whatever its handle.
    fn remove(&self, thing: &Arc<T>) {
        self.things.lock().retain(|_, kept| !Arc::ptr_eq(&kept.thing, thing));
    }

    /// Drops entries that have been idle for too long.
    fn sweep(&self) {
        self.sweep_unless_used_for(|_| Some(self.longest_idle));
    }

    /// As [`Shelf::sweep`], where each entry has a limit of its own. Entries without one are in use.
    fn sweep_unless_used_for(&self, limit: impl Fn(&T) -> Option<Duration>) {
        let now = clock::now();
        let is_idle = |kept: &mut Kept<T>| {
            // An entry that a call uses now is not idle, however long ago the call began.
            let limit = if Arc::strong_count(&kept.thing) == 1 { limit(&kept.thing) } else { None };
            if limit.is_none() {
                kept.used = now;
            }
            limit.is_some_and(|limit| now.saturating_duration_since(kept.used) > limit)
        };
        let gone: Vec<_> = self.things.lock().extract_if(|_, kept| is_idle(kept)).collect();
        drop(gone);
    }

    fn clear(&self) {
        let gone = std::mem::take(&mut *self.things.lock());
        drop(gone);
    }
}

impl<T: Weigh> Shelf<T> {
    /// How many bytes a client's entries use.
    fn bytes_of(&self, client: &Caller) -> usize {
        let things = self.things.lock();
        things.values().filter(|kept| kept.is_of(client)).map(|kept| kept.thing.bytes()).sum()
    }
}

impl<T> Kept<T> {
    fn is_of(&self, client: &Caller) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_same_client(client))
    }
}

/// The running statements, and how to stop each.
#[derive(Default)]
pub(super) struct Running {
    next: AtomicU64,
    statements: Mutex<HashMap<u64, (Option<Handle>, Stop)>>,
}

impl Running {
    /// Registers a statement until the return value is dropped. A query is identified by the handle of its ticket.
    pub fn note(state: &Arc<State>, query: Option<Handle>, stop: Stop) -> Noted {
        let number = state.running.next.fetch_add(1, Ordering::Relaxed);
        state.running.statements.lock().insert(number, (query, stop.clone()));
        // It may have been registered between the two steps of `State::stop`.
        if state.is_stopping() {
            stop.ask_once();
        }
        Noted { state: state.clone(), number }
    }

    /// Stops a query. Returns whether it runs.
    pub fn cancel(&self, query: &Handle) -> bool {
        let statements = self.statements.lock();
        let mut found = false;
        for (_, stop) in statements.values().filter(|(known, _)| known.as_ref() == Some(query)) {
            stop.ask(Duration::ZERO);
            found = true;
        }
        found
    }

    fn cancel_all(&self) {
        self.statements.lock().values().for_each(|(_, stop)| {
            stop.ask_once();
        });
    }
}

/// A registered statement.
pub(super) struct Noted {
    state: Arc<State>,
    number: u64,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.state.running.statements.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(database: &Database) -> Transaction {
        Transaction::new(database.connect(), Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_call_that_waited_for_the_end_of_its_transaction_begins_no_other() {
        let database = Database::memory().unwrap();
        let ended = transaction(&database);
        for commit in [true, false] {
            let mut state = ended.state.lock();
            let _ = state.end(commit);
            assert_eq!(state.begin().err().unwrap().state(), SqlState::NO_ACTIVE_SQL_TRANSACTION);
        }
    }

    #[test]
    fn a_transactions_timeout_applies_to_no_other() {
        let database = Database::memory().unwrap();
        let state = transaction(&database).state;
        let mut state = state.lock();
        assert_eq!(state.begin().unwrap().setting(IDLE_TIMEOUT).unwrap(), "1min");
        state.end(true).unwrap();
        let mut next = database.connect();
        next.adopt_settings(&state.settings().unwrap());
        assert_eq!(next.setting(IDLE_TIMEOUT).unwrap(), "0");
    }

    #[test]
    fn of_too_many_things_the_one_goes_that_was_unused_for_longest() {
        let shelf = Shelf::new(2, Full::Replace, Duration::from_secs(3600));
        let (first, second) = (shelf.put(1, None).unwrap(), shelf.put(2, None).unwrap());
        assert_eq!(shelf.get(&first).as_deref(), Some(&1));
        let third = shelf.put(3, None).unwrap();
        assert_eq!(shelf.get(&second), None);
        assert_eq!((shelf.get(&first).as_deref(), shelf.get(&third).as_deref()), (Some(&1), Some(&3)));
    }

    #[test]
    fn idle_entries_are_dropped_unless_they_are_in_use() {
        let shelf = Shelf::new(10, Full::Refuse, Duration::ZERO);
        let (idle, used) = (shelf.put(1, None).unwrap(), shelf.put(2, None).unwrap());
        let user = shelf.get(&used);
        clock::sleep(Duration::from_millis(1));
        shelf.sweep();
        assert_eq!((shelf.get(&idle), shelf.get(&used)), (None, user));
        assert_eq!((shelf.get(b"short"), shelf.take(&used).as_deref()), (None, Some(&2)));
    }
}
