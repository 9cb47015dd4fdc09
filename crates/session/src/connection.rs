//! A connection: one client's transaction, settings and prepared statements, and how a statement
//! is run in them.
//!
//! A statement outside a transaction block is a transaction of its own. If that conflicts with another
//! transaction (40001), the statement is run again, and its client does not see the conflict. Inside a block
//! every statement begins at a savepoint; an error rolls back to it and fails the block.
//!
//! A panic inside a statement is a bug of the engine. It is caught here, ends the transaction and
//! becomes XX000; the connection remains usable.

use crate::acknowledge::{ReadWaits, acknowledge, not_known_to_be_replicated};
use crate::block::Block;
use crate::copy::{CopyIn, CopyOut};
use crate::cursor::Cursor;
use crate::database::Shared;
use crate::errors::{internal_error, timed_out, with_table_of_constraint};
use crate::parameters::coerced;
use crate::patience::Patience;
use crate::rows::{Drawing, OpenStreams, Reading, Rows, StreamFailure};
use crate::statement::{Kind, Prepared, Statement, Text};
use crate::timer::Alarm;
use firn_base::random::Random;
use firn_base::stack;
use firn_base::sync::{Arc, AtomicBool, AtomicUsize, Ordering};
use firn_base::{Error, Result, SqlState, TypeId, Value, clock};
use firn_sql::activity::{Activity, State};
use firn_sql::notifications::Notification;
use firn_sql::parse::Parsed;
use firn_sql::plan::QueryEffect;
use firn_sql::query::{QueryOutput, check_deferred};
use firn_sql::refused::refuse;
use firn_sql::services::Services;
use firn_sql::session_facts::SessionFacts;
use firn_sql::settings::Settings;
use firn_sql::sources::Sources;
use firn_sql::standby::{self, SynchronousCommit, Token};
use firn_sql::statement::ends_failed_block;
use firn_sql::{Cancel, RunOptions, cancelled, parse};
use firn_txn::{Isolation, TableWaitLimit, Ticket, Transaction, Waited};
use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How often a statement outside a block is run again after conflicts.
const MOST_RETRIES: u32 = 20;

/// After how many attempts a statement locks rows before it changes them, so that it need not begin again for each row that
/// other transactions change meanwhile.
const ATTEMPTS_WITHOUT_LOCKS: u32 = 2;
/// The longest pause before a retry; the first is a few microseconds and each may be twice as long.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Of this number of commits that do not wait for the disk, one is timed: reading a clock is a part of their cost.
const TIMED_COMMITS: u64 = 16;
/// How often a waiting statement checks whether it was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether a connection is inside a transaction block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// Outside a transaction block.
    Idle,
    /// Inside a transaction block.
    InBlock,
    /// Inside a transaction block that has failed: only ROLLBACK ends it.
    Failed,
}

/// What running one statement returns: [`Connection::run`].
pub enum Outcome {
    /// Rows, to be read; their [`tag`](Rows::tag) is complete once all are.
    Rows(Rows),
    /// No rows: a command tag such as `INSERT 0 3`, `BEGIN`, `CREATE TABLE`.
    Done(CommandTag),
    /// COPY FROM STDIN, which waits for data. Boxed, as it is ten times as large as the others, which every statement moves.
    CopyIn(Box<CopyIn>),
    /// COPY TO STDOUT, whose data is to be read.
    CopyOut(Box<CopyOut>),
    /// The statement text was empty.
    Empty,
}

/// What running one statement returns to a caller that provides memory for rows.
pub enum Ran {
    /// How many rows a short query has returned. Their values are in that memory, row by row.
    Rows(usize),
    /// Everything else.
    Outcome(Outcome),
}

impl Ran {
    /// As an outcome, for a query with the values that it has appended.
    pub(crate) fn into_outcome(self, statement: &Statement, values: Vec<Value>) -> Outcome {
        match self {
            Ran::Rows(_) => {
                let columns = statement.columns().expect("a query has columns").clone();
                Outcome::Rows(Rows::ready(columns, "SELECT", values))
            }
            Ran::Outcome(outcome) => outcome,
        }
    }
}

/// What a statement has done, as PostgreSQL's command tags show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandTag {
    /// `SELECT`, `INSERT`, `CREATE TABLE`, …
    pub verb: &'static str,
    /// Rows returned or changed; `None` for statements that do neither.
    pub rows: Option<u64>,
}

impl CommandTag {
    /// The number that the tag shows: none for `SHOW` and `EXPLAIN`, although they return rows.
    pub fn shown_rows(&self) -> Option<u64> {
        self.rows.filter(|_| !matches!(self.verb, "SHOW" | "EXPLAIN"))
    }
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.verb, self.shown_rows()) {
            ("INSERT", Some(rows)) => write!(f, "INSERT 0 {rows}"),
            (verb, Some(rows)) => write!(f, "{verb} {rows}"),
            (verb, None) => f.write_str(verb),
        }
    }
}

/// Cancels the statement that a connection runs, from another thread: [`Connection::cancel_handle`]. Cheap to clone.
///
/// ```
/// # fn main() -> firn_session::Result<()> {
/// # let mut connection = firn_session::Database::memory()?.connect();
/// let cancel = connection.cancel_handle();
/// std::thread::scope(|scope| {
///     scope.spawn(move || {
///         std::thread::sleep(std::time::Duration::from_millis(50));
///         cancel.cancel();
///     });
///     let endless = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b";
///     assert_eq!(connection.execute(endless).unwrap_err().state().as_str(), "57014");
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CancelHandle {
    cancel: Cancel,
}

impl CancelHandle {
    /// The statement running now, if any, fails with 57014.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// One client's state. Dropping it rolls back an open transaction.
///
/// See the [crate documentation](crate) for examples.
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) block: Block,
    pub(crate) streams: OpenStreams,
    pub(crate) services: Arc<Services>,
    /// What other sessions see of it.
    pub(crate) activity: Arc<Activity>,
    /// The address of the text that was reported last. The activity holds this text, so no other text can have its address.
    /// Relaxed: only the connection's thread uses it.
    reported_text: AtomicUsize,
    /// Commits so far; some are timed.
    commits: u64,
    pub(crate) facts: Arc<SessionFacts>,
    pub(crate) options: RunOptions,
    /// Copies of settings that every statement reads.
    pub(crate) synchronous_commit: SynchronousCommit,
    allows_stale_reads: bool,
    /// Whether a statement of the block has read tables. Relaxed: only the connection's thread uses it.
    read_tables: AtomicBool,
    /// Whether the client gets the warnings of its statements.
    pub(crate) reports_warnings: bool,
    /// Which names of synchronous standbys the settings show.
    standby_names_version: u64,
    pub(crate) default_read_only: bool,
    /// What a replica is to have replayed before a statement reads, and how long a statement waits for that.
    pub(crate) read_after: Option<Token>,
    pub(crate) read_after_timeout: Option<Duration>,
    /// Replicas may run queries that handle so many rows, if they may at all.
    pub(crate) least_routed_work: Option<f64>,
    /// The isolation level of new transactions.
    pub(crate) default_isolation: Isolation,
    /// How long a statement waits for a row that another transaction is changing.
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) patience: Arc<Patience>,
    patience_of_transactions: TableWaitLimit,
    /// Whether `session_replication_role` is `replica`: foreign keys are not checked.
    trusts_references: Arc<AtomicBool>,
    pub(crate) statement_timeout: Option<Duration>,
    /// How long a client may be idle in a block, and outside.
    pub(crate) idle_in_transaction_timeout: Option<Duration>,
    pub(crate) idle_session_timeout: Option<Duration>,
    /// Whether the session itself ends the transaction when its client is idle for too long, and no caller does.
    pub(crate) ends_itself_when_idle: bool,
    /// Counts changes of the settings.
    pub(crate) settings_version: u64,
    /// Whether `in_hot_standby` is on.
    is_in_standby: bool,
    /// The prepared statements with a name, of PREPARE and of a protocol.
    pub(crate) prepared: HashMap<String, Statement>,
    /// How many of them were forgotten so far.
    pub(crate) forgotten_statements: u64,
    pub(crate) cursors: HashMap<String, Cursor>,
    pub(crate) notices: Vec<Error>,
    /// Set when rows of the block have an error.
    pub(crate) stream_failure: Arc<StreamFailure>,
    random: Random,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, session: u32) -> Connection {
        let facts = shared.facts.clone();
        let settings = shared.defaults.lock().clone();
        let is_in_standby = settings.is_in_hot_standby();
        let sessions = shared.sessions.clone();
        let activity = sessions.begin(session);
        let engine = shared.engine.clone();
        let services = Arc::new(Services::new(engine, facts.clone(), settings, sessions, activity.clone()));
        let spill = shared.spill_area(None);
        let forced = *shared.forced.lock();
        let usual = RunOptions::default();
        let threads = forced.workers.unwrap_or(usual.threads);
        let options = RunOptions { services: services.clone(), spill, threads, forced, ..usual };
        activity.set_cancel(options.cancel.clone());
        let patience = Patience::new(shared.engine.clone(), options.cancel.clone());
        let mut connection = Connection {
            shared,
            block: Block::Idle,
            streams: OpenStreams::default(),
            services,
            activity,
            reported_text: AtomicUsize::new(0),
            commits: 0,
            facts,
            options,
            synchronous_commit: SynchronousCommit::On,
            allows_stale_reads: false,
            read_tables: AtomicBool::new(false),
            reports_warnings: true,
            standby_names_version: 0,
            default_read_only: false,
            read_after: None,
            read_after_timeout: None,
            least_routed_work: None,
            default_isolation: Isolation::default(),
            lock_timeout: None,
            patience_of_transactions: patience.of_transactions(),
            trusts_references: Arc::default(),
            patience,
            statement_timeout: None,
            idle_in_transaction_timeout: None,
            idle_session_timeout: None,
            ends_itself_when_idle: true,
            settings_version: 0,
            is_in_standby,
            prepared: HashMap::new(),
            forgotten_statements: 0,
            cursors: HashMap::new(),
            notices: Vec::new(),
            stream_failure: Arc::default(),
            random: Random::from_entropy(),
        };
        connection.follow_role();
        connection.apply_settings();
        connection.report_identity();
        connection
    }

    // Statements.

    /// Splits a script into statements.
    pub(crate) fn split_script(&self, script: &str) -> Result<Vec<Parsed>> {
        stack::with_room_for_tree(|| parse::parse_with(script, self.facts.syntax))
    }

    /// Prepares a statement of a script.
    pub(crate) fn prepare_tree(&mut self, parsed: Parsed, types: &[Option<TypeId>]) -> Result<Statement> {
        let prepared = self.prepare_guarded(|connection| connection.prepare_inner(Some(parsed), types));
        if let Err(error) = &prepared {
            self.fail_block_of(error);
        }
        prepared
    }

    /// Prepares one statement, with the types of its parameters as far as they are given; the others are inferred (42P18 if
    /// they cannot be). 42601 for a text of several statements; an empty one does nothing when it is run.
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<TypeId>]) -> Result<Statement> {
        let prepared = self.prepare_text(sql, types);
        if let Err(error) = &prepared {
            self.fail_block_of(error);
        }
        prepared
    }

    /// As [`Connection::prepare_typed`], but an error does not fail the transaction block.
    pub(crate) fn prepare_text(&mut self, sql: &str, types: &[Option<TypeId>]) -> Result<Statement> {
        self.prepare_guarded(|connection| {
            connection.prepare_inner(parse::parse_one_with(sql, connection.facts.syntax)?, types)
        })
    }

    /// Runs `prepare` with all that surrounds the preparation of a statement.
    fn prepare_guarded(&mut self, prepare: impl FnOnce(&mut Self) -> Result<Statement>) -> Result<Statement> {
        self.options.cancel.reset();
        let alarm = self.alarm();
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            stack::with_room_for_tree(|| {
                self.recall();
                prepare(self)
            })
        }));
        let prepared = prepared.unwrap_or_else(|panic| Err(self.after_panic(&*panic)));
        self.rest();
        // A cancel that came too late for planning still cancels a statement that was sent to be run at once.
        let prepared = prepared.and_then(|statement| self.check_cancel().map(|()| statement));
        prepared.map_err(|error| timed_out(error, alarm.as_ref()))
    }

    /// Prepares one statement, which then runs quicker than its text. The types of its parameters are inferred.
    /// Errors as of [`Connection::prepare_typed`].
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let double = connection.prepare("SELECT $1::bigint * 2")?;
    /// for number in 1..=3_i64 {
    ///     assert_eq!(connection.query_row_as::<i64>(&double, (number,))?, Some(2 * number));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.prepare_typed(sql, &[])
    }

    fn prepare_inner(&mut self, parsed: Option<Parsed>, types: &[Option<TypeId>]) -> Result<Statement> {
        if let Some(parsed) = &parsed {
            self.refuse_in_failed_block(parsed)?;
            if let Err(error) = refuse(&parsed.statement) {
                return Err(self.refused_in_replica(&parsed.statement).unwrap_or(error));
            }
        }
        self.make_statement(parsed, types, true)
    }

    /// Lends the block's transaction, or a temporary one, to a statement that reads.
    pub(crate) fn with_reader<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &Transaction) -> Result<T>,
    ) -> Result<T> {
        self.begin_statement()?;
        if matches!(self.block, Block::Idle) {
            self.wait_to_read()?;
        }
        self.with_planner(work)
    }

    /// Lends the block's transaction, or a temporary one, to the preparation of a statement. That does not wait for what the session
    /// wants to read.
    pub(crate) fn with_planner<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &Transaction) -> Result<T>,
    ) -> Result<T> {
        self.refresh_catalog()?;
        match self.block.take_transaction() {
            Some(transaction) => {
                let result = work(self, &transaction);
                self.block.put_transaction(transaction);
                result
            }
            None => {
                let transaction = self.begin_reader_now()?;
                let result = work(self, &transaction);
                transaction.rollback();
                result
            }
        }
    }

    // Running.

    /// Runs a prepared statement of any kind. The remaining rows of an earlier statement remain valid (they borrow nothing):
    /// inside a transaction they are read and kept first, outside they have a transaction of
    /// their own. Parameters are converted to the statement's types as an assignment would do.
    pub fn run(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        let mut values = Vec::new();
        let ran = self.run_reusing(statement, parameters, &mut values)?;
        Ok(ran.into_outcome(statement, values))
    }

    /// As [`Connection::run`]; a short query appends its rows to `values`, which are emptied first.
    pub(crate) fn run_reusing(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        values: &mut Vec<Value>,
    ) -> Result<Ran> {
        // An earlier one may have failed amid its rows.
        values.clear();
        self.report_statement(statement);
        let run = || stack::with_room_for_tree(|| self.run_inner(statement, parameters, values));
        let result = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result,
            Err(panic) => Err(self.after_panic(&*panic)),
        };
        match &result {
            // The statement continues as long as its rows are read, or its data is sent.
            Ok(Ran::Outcome(Outcome::Rows(rows))) if rows.are_drawn() => {}
            Ok(Ran::Outcome(Outcome::CopyIn(_) | Outcome::CopyOut(_))) => {}
            Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {
                self.shared.engine.statistics().out_of_memory.count();
                self.note_idle();
            }
            _ => self.note_idle(),
        }
        self.rest();
        result
    }

    /// Reports a statement that begins.
    #[inline]
    fn report_statement(&mut self, statement: &Statement) {
        let text = &statement.prepared.text;
        let place = Arc::as_ptr(text).addr();
        let is_new = self.reported_text.load(Ordering::Relaxed) != place;
        if is_new {
            self.reported_text.store(place, Ordering::Relaxed);
        }
        self.activity.begin(self.in_block(), is_new.then(|| text.clone() as _));
    }

    /// Reports a statement that is planned, unless one runs already. Returns whether it was reported.
    pub(crate) fn report_planning(&self, text: impl FnOnce() -> Arc<Text>) -> bool {
        if self.activity.state().0 == State::Active {
            return false;
        }
        let text = text();
        self.reported_text.store(Arc::as_ptr(&text).addr(), Ordering::Relaxed);
        self.activity.begin(self.in_block(), Some(text));
        true
    }

    /// Reports that the session waits for its client.
    #[inline]
    pub(crate) fn note_idle(&self) {
        self.activity.rest(self.idle_state());
    }

    fn idle_state(&self) -> State {
        match &self.block {
            Block::Idle => State::Idle,
            Block::Open(_) => State::InBlock,
            Block::Failed(_) => State::Failed,
        }
    }

    /// Begins a transaction of this session; 53300 if too many run already. Errors also as of [`Connection::wait_to_read`].
    #[inline]
    pub(crate) fn begin_transaction(&self, isolation: Isolation) -> Result<Transaction> {
        self.wait_to_read()?;
        self.begin_transaction_now(isolation)
    }

    /// As [`Connection::begin_transaction`], but without a wait for what the session wants to read.
    #[inline]
    pub(crate) fn begin_transaction_now(&self, isolation: Isolation) -> Result<Transaction> {
        let mut transaction = self.shared.engine.try_begin(isolation)?;
        self.services.forget_transaction_number();
        transaction.set_session(self.activity.id());
        transaction.set_wait_limit(self.patience_of_transactions.clone());
        transaction.set_trusts_references(self.trusts_references.clone());
        transaction.set_continues_after_error(false);
        Ok(transaction)
    }

    /// Begins a transaction for a single statement that only reads, and so never waits. One snapshot is enough for any level; other
    /// sessions see that of the session.
    #[inline]
    pub(crate) fn begin_reader(&self) -> Result<Transaction> {
        self.wait_to_read()?;
        self.begin_reader_now()
    }

    /// As [`Connection::begin_reader`], but without a wait for what the session wants to read.
    #[inline]
    fn begin_reader_now(&self) -> Result<Transaction> {
        let transaction = self.shared.engine.try_begin(Isolation::Snapshot)?;
        self.services.forget_transaction_number();
        transaction.set_session(self.activity.id());
        transaction.report_isolation(self.default_isolation);
        Ok(transaction)
    }

    /// Reads the clock before a commit, if it is to be timed: all commits that wait for a disk, and some others.
    #[inline]
    pub(crate) fn time_commit(&mut self, transaction: &Transaction) -> Option<clock::Instant> {
        if !transaction.has_writes() {
            return None;
        }
        self.commits += 1;
        let waits = self.waits_for_disk() && self.shared.engine.has_log();
        (waits || self.commits % TIMED_COMMITS == 1).then(clock::now)
    }

    /// Waits until a commit is as durable as a mode requires; or for what has been read, if nothing was written.
    pub(crate) fn finish_commit(
        &mut self,
        ticket: Ticket,
        begun: Option<clock::Instant>,
        mode: SynchronousCommit,
        waits: ReadWaits,
    ) -> Result<()> {
        if !ticket.has_written {
            return waits.wait(&self.shared.engine, ticket, &|| self.check_cancel());
        }
        let warning = acknowledge(&self.shared, mode, ticket, &self.activity, &self.options.cancel)?;
        match warning {
            Some(warning) if self.reports_warnings => self.notices.push(warning),
            Some(warning) => return Err(not_known_to_be_replicated(warning)),
            None => {}
        }
        if let Some(begun) = begun {
            self.shared.engine.statistics().note_latency(begun.elapsed());
        }
        Ok(())
    }

    fn run_inner(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        values: &mut Vec<Value>,
    ) -> Result<Ran> {
        let prepared = &statement.prepared;
        let Some(parsed) = &prepared.parsed else { return Ok(Ran::Outcome(Outcome::Empty)) };
        self.recall();
        self.refuse_in_failed_block(parsed)?;
        self.options.cancel.reset();
        // Rows of an earlier statement may have been read since.
        self.end_statement_alone(true);
        self.services.begin_statement();
        let result = match prepared.kind {
            Kind::Query => self.run_query(prepared, parameters, values),
            Kind::Change(verb) => self.run_change(prepared, parameters, verb).map(Ran::Outcome),
            Kind::Utility => self.run_utility(statement, parsed, parameters).map(Ran::Outcome),
        };
        match &result {
            Ok(Ran::Outcome(Outcome::Rows(rows))) if rows.are_drawn() => self.apply_touched_settings(),
            result => self.end_statement_alone(result.is_ok()),
        }
        if let Err(error) = &result {
            self.fail_block_of(error);
        }
        result
    }

    pub(crate) fn run_query(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Value],
        values: &mut Vec<Value>,
    ) -> Result<Ran> {
        if let Some(effect) = prepared.effect {
            return self.run_query_with_effect(prepared, parameters, effect).map(Ran::Outcome);
        }
        let parameters = coerced(&prepared.parameters, parameters, &self.options.style)?;
        let columns = || prepared.columns.clone().expect("a query has columns");
        let mut alarm = self.alarm();
        if matches!(self.block, Block::Idle) {
            self.options.now = self.options.given_time.unwrap_or_else(clock::wall_clock_micros);
            self.services.set_read_only(self.begins_read_only());
            let mut transaction = self.begin_reader().map_err(|error| timed_out(error, alarm.as_ref()))?;
            let mut plan = self.current_plan(prepared, &transaction)?;
            if let Some(query) = self.routed_query(prepared, &plan, &transaction, &parameters)? {
                // Nothing here holds back old versions while a replica runs it.
                drop(plan);
                transaction.rollback();
                let routed = self.run_elsewhere(&query, columns(), &mut alarm);
                if let Some(rows) = routed.map_err(|error| timed_out(error, alarm.as_ref()))? {
                    return Ok(Ran::Outcome(Outcome::Rows(rows)));
                }
                transaction = self.begin_reader().map_err(|error| timed_out(error, alarm.as_ref()))?;
                plan = self.current_plan(prepared, &transaction)?;
            }
            if plan.is_short() && self.waits_for_disk() {
                transaction.track_read_durability();
            }
            let output =
                plan.query(&transaction, prepared.values_of(&plan, &parameters), &self.options, values);
            let waits = self.read_waits(plan.reads_tables());
            // The plan is released before the wait for the disk.
            drop(plan);
            return match output {
                Ok(QueryOutput::Values(rows)) => {
                    let ticket = transaction.commit()?;
                    waits
                        .wait(&self.shared.engine, ticket, &|| self.check_cancel())
                        .map_err(|error| timed_out(error, alarm.as_ref()))?;
                    Ok(Ran::Rows(rows))
                }
                Ok(QueryOutput::Stream(stream)) => {
                    let reading = Reading::new(transaction, waits, &self.services, &self.options.cancel);
                    let drawing = Drawing::new(&self.activity, State::Idle);
                    let rows = Rows::own(columns(), "SELECT", *stream, reading, alarm, drawing);
                    Ok(Ran::Outcome(Outcome::Rows(rows)))
                }
                Err(error) => Err(timed_out(error, alarm.as_ref())),
            };
        }
        self.begin_statement().map_err(|error| timed_out(error, alarm.as_ref()))?;
        let mut query = |connection: &Self, transaction: &Transaction| {
            let plan = connection.current_plan(prepared, transaction)?;
            if plan.reads_tables() {
                connection.note_read_of_tables();
            }
            plan.query(transaction, prepared.values_of(&plan, &parameters), &connection.options, values)
        };
        let output = match self.block.transaction() {
            Some(transaction) => query(self, transaction),
            None => self.with_planner(|connection, transaction| query(connection, transaction)),
        };
        match output.map_err(|error| timed_out(error, alarm.as_ref()))? {
            QueryOutput::Values(rows) => Ok(Ran::Rows(rows)),
            QueryOutput::Stream(stream) => {
                let failure = self.stream_failure.clone();
                let drawing = Drawing::new(&self.activity, State::InBlock);
                let (rows, shared) = Rows::shared(columns(), "SELECT", *stream, alarm, failure, drawing);
                self.streams.add(shared);
                Ok(Ran::Outcome(Outcome::Rows(rows)))
            }
        }
    }

    /// Runs a query that locks or changes rows: to its end before the first row is returned.
    fn run_query_with_effect(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Value],
        effect: QueryEffect,
    ) -> Result<Outcome> {
        self.note_read_of_tables();
        let parameters = coerced(&prepared.parameters, parameters, &self.options.style)?;
        self.refuse_read_only(&effect.command())?;
        let changed = self.in_transaction(|connection, transaction| {
            let plan = connection.current_plan(prepared, transaction)?;
            plan.change(transaction, prepared.values_of(&plan, &parameters), &connection.options)
                .map_err(|error| with_table_of_constraint(error, transaction.catalog()))
        })?;
        let columns = prepared.columns.clone().expect("a query has columns");
        Ok(Outcome::Rows(Rows::changed(columns, "SELECT", changed)))
    }

    pub(crate) fn run_change(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Value],
        verb: &'static str,
    ) -> Result<Outcome> {
        self.note_read_of_tables();
        let parameters = coerced(&prepared.parameters, parameters, &self.options.style)?;
        self.refuse_read_only(verb)?;
        let outcome = self.in_transaction(|connection, transaction| {
            let plan = connection.current_plan(prepared, transaction)?;
            plan.change(transaction, prepared.values_of(&plan, &parameters), &connection.options)
                .map_err(|error| with_table_of_constraint(error, transaction.catalog()))
        })?;
        match &prepared.columns {
            Some(columns) => Ok(Outcome::Rows(Rows::changed(columns.clone(), verb, outcome))),
            None => Ok(Outcome::Done(CommandTag { verb, rows: outcome.count })),
        }
    }

    /// Runs work that writes: in the block at a savepoint, or in a transaction of its own that is
    /// committed, run again after conflicts.
    pub(crate) fn in_transaction<T>(
        &mut self,
        mut work: impl FnMut(&mut Self, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let alarm = self.alarm();
        self.begin_statement().map_err(|error| timed_out(error, alarm.as_ref()))?;
        let result = match self.block.take_transaction() {
            Some(mut transaction) => {
                self.streams.read_ahead();
                let result = self.in_block_transaction(&mut transaction, &mut work);
                transaction.report_progress();
                self.block.put_transaction(transaction);
                result
            }
            None => self.in_own_transaction(&mut work),
        };
        result.map_err(|error| timed_out(error, alarm.as_ref()))
    }

    /// Makes the checks that a transaction has deferred, before it commits.
    pub(crate) fn make_deferred_checks(&mut self, transaction: &mut Transaction) -> Result<()> {
        if !transaction.has_deferred_checks() {
            return Ok(());
        }
        let alarm = self.alarm();
        transaction.refresh();
        self.in_block_transaction(transaction, &mut |connection, transaction| {
            connection.check_deferred(transaction)
        })
        .map_err(|error| timed_out(error, alarm.as_ref()))
    }

    fn check_deferred(&self, transaction: &mut Transaction) -> Result<()> {
        check_deferred(transaction, &self.facts, &self.options)
            .map_err(|error| with_table_of_constraint(error, transaction.catalog()))
    }

    /// Runs a statement in a transaction. Where it finds a row that another transaction is changing, it waits
    /// for the end of that transaction. Where it finds a row that has changed since its snapshot, it advances the snapshot if
    /// it can ([`Transaction::restart`]). In both cases the statement is then run again.
    fn in_block_transaction<T>(
        &mut self,
        transaction: &mut Transaction,
        work: &mut dyn FnMut(&mut Self, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let start = transaction.begin_statement();
        let mark = self.services.mark();
        let (mut attempts, mut retries, mut awaited) = (0, 0, None);
        // The other transactions wait until this one has ended or returns to a savepoint: a retry is of no use.
        let is_deadlock = |error: &Error| error.state() == SqlState::DEADLOCK_DETECTED;
        loop {
            let outcome = work(self, transaction);
            let error = match (outcome, transaction.take_skipped_conflict()) {
                // The result of the statement does not count, as it lacks the rows that were left out.
                (Ok(_), Some(missed)) => missed,
                (Err(error), Some(missed)) if error.blocker().is_none() && !is_deadlock(&error) => missed,
                (Ok(value), None) => return Ok(value),
                (Err(error), _) => error,
            };
            // At READ COMMITTED a statement is always run again.
            let may_retry = error.is_retryable()
                && !is_deadlock(&error)
                && transaction.can_advance_snapshot()
                && (retries < MOST_RETRIES || transaction.isolation() == Isolation::ReadCommitted);
            if error.blocker().is_none() && !may_retry {
                transaction.abort_statement(&start);
                return Err(error);
            }
            transaction.undo_statement(&start);
            self.services.undo_to(mark);
            match error.blocker() {
                Some(blocker) => {
                    // It is the same wait if the other transaction releases other rows meanwhile.
                    let (_, begun) = *awaited.insert(
                        awaited.filter(|(other, _)| *other == blocker).unwrap_or((blocker, clock::now())),
                    );
                    self.wait_until_ended(begun, |longest| transaction.wait_for(blocker, longest))?;
                }
                None => {
                    retries += 1;
                    self.pause(retries)?;
                }
            }
            self.shared.engine.statistics().restarts.count();
            transaction.restart(&start)?;
            attempts += 1;
            if attempts >= ATTEMPTS_WITHOUT_LOCKS && transaction.can_advance_snapshot() {
                transaction.lock_rows_before_changes();
            }
        }
    }

    /// 57014 if the statement is cancelled.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        match self.options.cancel.is_cancelled() {
            true => Err(cancelled()),
            false => Ok(()),
        }
    }

    /// Waits for the end of another transaction, since `begun`: 55P03 if that takes longer than the session's timeout
    /// for a row, 40P01 for a deadlock, 57014 if the statement is cancelled.
    fn wait_until_ended(
        &self,
        begun: clock::Instant,
        mut wait: impl FnMut(Duration) -> Waited,
    ) -> Result<()> {
        let statistics = self.shared.engine.statistics();
        statistics.waits.count();
        loop {
            self.check_cancel()?;
            let left = self.lock_timeout.map(|longest| longest.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                statistics.lock_timeouts.count();
                let error =
                    Error::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout");
                return Err(
                    error.with_hint("Another transaction is changing a row that the statement needs.")
                );
            }
            match wait(left.map_or(CANCEL_INTERVAL, |left| left.min(CANCEL_INTERVAL))) {
                Waited::Ended | Waited::Released => return Ok(()),
                Waited::NotYet => {}
                Waited::Deadlock => return Err(Error::deadlock()),
            }
        }
    }

    fn in_own_transaction<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Self, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        self.services.set_read_only(self.begins_read_only());
        let mut retries = 0;
        loop {
            self.options.now = clock::wall_clock_micros();
            let mut transaction = self.begin_transaction(self.default_isolation)?;
            let mut checked = |connection: &mut Self, transaction: &mut Transaction| {
                let value = work(connection, transaction)?;
                connection.check_deferred(transaction)?;
                Ok(value)
            };
            let mut begun = None;
            let done = self.in_block_transaction(&mut transaction, &mut checked);
            let has_ddl = transaction.has_ddl();
            let result = match done {
                Ok(value) => {
                    begun = self.time_commit(&transaction);
                    self.services.commit(|| transaction.commit()).map(|ticket| (value, ticket))
                }
                Err(error) => {
                    transaction.rollback();
                    Err(error)
                }
            };
            self.services.end_transaction();
            if has_ddl {
                self.shared.note_end_of_ddl();
            }
            match result {
                Ok((value, ticket)) => {
                    self.finish_commit(ticket, begun, self.synchronous_commit, self.read_waits(true))?;
                    return Ok(value);
                }
                Err(error) if error.is_retryable() && retries < MOST_RETRIES => {
                    retries += 1;
                    self.pause(retries)?;
                }
                Err(error) => {
                    self.shared.engine.statistics().note_abort(self.default_isolation, Some(&error));
                    return Err(error);
                }
            }
        }
    }

    /// Lets other transactions proceed before a retry, for a random time whose bound doubles with each retry.
    #[cold]
    pub(crate) fn pause(&mut self, retries: u32) -> Result<()> {
        self.check_cancel()?;
        let longest = LONGEST_PAUSE.min(Duration::from_micros(4 << retries.min(20)));
        clock::sleep(Duration::from_nanos(self.random.uniform(0, longest.as_nanos() as i64) as u64));
        Ok(())
    }

    /// Whether the session waits for the disk at all: for its commits, and for those that it has seen.
    #[inline]
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.synchronous_commit != SynchronousCommit::Off
    }

    /// Notes that a statement reads tables.
    #[inline]
    pub(crate) fn note_read_of_tables(&self) {
        self.read_tables.store(true, Ordering::Relaxed);
    }

    /// Whether a statement of the block has read tables.
    pub(crate) fn has_read_tables(&self) -> bool {
        self.read_tables.load(Ordering::Relaxed)
    }

    /// A block begins.
    pub(crate) fn forget_reads(&self) {
        self.read_tables.store(false, Ordering::Relaxed);
    }

    /// What the end of a query waits for, which reads tables or does not.
    #[inline]
    pub(crate) fn read_waits(&self, reads_tables: bool) -> ReadWaits {
        let commits = self.waits_for_disk();
        ReadWaits { commits, lease: commits && reads_tables && !self.allows_stale_reads }
    }

    pub(crate) fn alarm(&self) -> Option<Alarm> {
        self.statement_timeout.map(|delay| self.shared.timer.set(delay, &self.options.cancel))
    }

    pub(crate) fn refuse_read_only(&self, what: &str) -> Result<()> {
        if !self.is_read_only() {
            return Ok(());
        }
        Err(standby::in_read_only(what, &self.shared.engine))
    }

    /// Whether new transactions may only read: all of a replica.
    #[inline]
    pub(crate) fn begins_read_only(&self) -> bool {
        self.default_read_only || self.shared.engine.is_replica()
    }

    fn refuse_in_failed_block(&self, parsed: &Parsed) -> Result<()> {
        if self.status() != TransactionStatus::Failed || ends_failed_block(&parsed.statement) {
            return Ok(());
        }
        Err(self.why_failed())
    }

    // After a panic.

    /// The statement has been unwound, and with it the transaction, unless the statement only read in it.
    #[cold]
    pub(crate) fn after_panic(&mut self, panic: &(dyn Any + Send)) -> Error {
        self.block.lose_transaction();
        self.streams.abandon();
        self.fail_open_block();
        internal_error(panic)
    }

    // Settings.

    /// The value of a setting, as SHOW prints it. 42704 for an unknown one.
    pub fn setting(&self, name: &str) -> Result<String> {
        self.services.with_settings(|settings| settings.show(name).map(str::to_owned))
    }

    /// Sets a setting for the session, as SET does: `connection.set("statement_timeout", "5s")`. 42704 for an unknown one, 22023
    /// for a value that it cannot have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.services.with_settings(|settings| settings.set(name, Some(value), false))?;
        self.apply_settings();
        Ok(())
    }

    pub(crate) fn report_identity(&self) {
        let SessionFacts { user, database, .. } = &*self.facts;
        self.activity.set_client(|client| {
            client.user.clone_from(user);
            client.database.clone_from(database);
        });
    }

    /// Applies the settings that functions have set.
    #[inline]
    fn apply_touched_settings(&mut self) {
        if self.services.take_touched() {
            if !self.in_block() {
                // The settings of the transaction end with it.
                self.services.with_settings(Settings::end_transaction);
            }
            self.apply_settings();
        }
    }

    /// A statement has ended; outside a block its transaction has, with its advisory locks and notifications.
    #[inline]
    pub(crate) fn end_statement_alone(&mut self, succeeded: bool) {
        if self.services.has_effects() && !self.in_block() {
            if succeeded {
                let sent = self.services.commit(|| Ok(()));
                debug_assert!(sent.is_ok());
            }
            self.services.end_transaction();
        }
        self.follow_role();
        self.apply_touched_settings();
    }

    /// The notifications of the channels to which the connection listens (LISTEN) that have arrived since the last call, those of its
    /// own among them.
    pub fn take_notifications(&mut self) -> Vec<Arc<Notification>> {
        self.services.sessions().notifications().take(self.activity.id())
    }

    /// Lets `in_hot_standby` say what the server is now: it may have become a primary.
    #[inline]
    pub(crate) fn follow_role(&mut self) {
        if self.standby_names_version != self.shared.sessions.standby_names_version() {
            self.follow_standby_names();
        }
        if self.is_in_standby && !self.shared.engine.is_replica() {
            self.is_in_standby = false;
            self.services.with_settings(|settings| settings.fix("in_hot_standby", "off".to_owned()));
            self.shared.defaults.lock().fix("in_hot_standby", "off".to_owned());
            self.settings_version += 1;
        }
    }

    #[cold]
    fn follow_standby_names(&mut self) {
        self.standby_names_version = self.shared.sessions.standby_names_version();
        let names = self.shared.sessions.standby_names();
        self.services.with_settings(|settings| settings.fix("synchronous_standby_names", names));
    }

    /// Copies settings to where statements read them.
    pub(crate) fn apply_settings(&mut self) {
        self.settings_version += 1;
        let copy = |settings: &mut Settings| {
            self.synchronous_commit = settings.synchronous_commit();
            self.allows_stale_reads = settings.allows_stale_reads();
            self.default_read_only = settings.default_read_only();
            self.read_after = settings.read_after();
            self.read_after_timeout = settings.read_after_timeout();
            self.least_routed_work = settings.least_routed_work();
            self.default_isolation = settings.default_isolation();
            self.lock_timeout = settings.lock_timeout();
            self.patience.set_lock_timeout(self.lock_timeout);
            self.trusts_references.store(settings.trusts_references(), Ordering::Relaxed);
            self.activity.set_client_check_interval(settings.client_check_interval());
            self.statement_timeout = settings.statement_timeout();
            self.idle_in_transaction_timeout = settings.idle_in_transaction_timeout();
            self.idle_session_timeout = settings.idle_session_timeout();
            self.options.style = settings.text_style();
            self.activity
                .set_client(|client| settings.application_name().clone_into(&mut client.application));
            let limit = settings.temporary_file_limit();
            if self.options.spill.limit() != limit.unwrap_or(u64::MAX) {
                self.options.spill = self.shared.spill_area(limit);
            }
            (settings.search_path(), settings.syntax())
        };
        let (search_path, syntax) = self.services.with_settings(copy);
        let (facts, style) = (&*self.facts, self.options.style);
        if facts.search_path != search_path || facts.style != style || facts.syntax != syntax {
            self.facts = Arc::new(SessionFacts { search_path, style, syntax, ..(*self.facts).clone() });
        }
        // Sessions with the same facts share their plans at no cost.
        if *self.facts == *self.shared.facts {
            self.facts = self.shared.facts.clone();
        }
        self.services.set_facts(self.facts.clone());
    }

    /// Warnings and notices since the last call, in order; each an [`Error`] with SQLSTATE. Those that
    /// `client_min_messages` excludes are left out.
    pub fn take_notices(&mut self) -> Vec<Error> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.append(&mut self.services.take_warnings());
        if !notices.is_empty() {
            match self.setting("client_min_messages").as_deref() {
                Ok("error") => notices.clear(),
                Ok("warning") => notices.retain(|notice| notice.state().is_warning()),
                _ => {}
            }
        }
        notices
    }

    // Sources.

    pub(crate) fn set_sources(&mut self, sources: Sources) {
        self.facts = Arc::new(SessionFacts { sources, ..(*self.facts).clone() });
        self.apply_settings();
    }

    /// A handle by which another thread cancels the statement that runs.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle { cancel: self.options.cancel.clone() }
    }

    /// Whether the connection is in a transaction block, and whether that has failed.
    pub fn status(&self) -> TransactionStatus {
        match &self.block {
            Block::Idle => TransactionStatus::Idle,
            Block::Failed(_) => TransactionStatus::Failed,
            Block::Open(_) if self.stream_failure.is_raised() => TransactionStatus::Failed,
            Block::Open(block) if block.has_failed_meanwhile() => TransactionStatus::Failed,
            Block::Open(_) => TransactionStatus::InBlock,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave_block();
        self.services.end_session();
    }
}
