//! The session as functions use it: sequences and settings.
//!
//! A session has one of these until it ends; functions call it from the threads that run
//! them. Sequences are looked up in the newest catalog, or in the transaction's own once it has
//! run DDL.

use crate::activity::{Activity, DatabaseCounts, Sessions};
use crate::advisory::{Key, Mode, Scope, Waiting};
use crate::named::Named;
use crate::names::{Names, parse_qualified};
use crate::notifications::{Listening, Mark, Pending};
use crate::run::SessionServices;
use crate::session_facts::SessionFacts;
use crate::settings::{self, Settings};
use crate::standby;
use firn_base::clock::coarse_wall_clock_micros;
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Cancel, Error, Result, SqlState};
use firn_txn::catalog::{Oid, SequenceDef};
use firn_txn::{Catalog, Engine};
use std::collections::HashMap;
use std::fmt;

/// The services of a session.
pub struct Services {
    engine: Arc<Engine>,
    sessions: Arc<Sessions>,
    activity: Arc<Activity>,
    state: Mutex<State>,
    named: Mutex<Named>,
    /// The effects of the transaction on channels when it commits.
    pending: Mutex<Pending>,
    /// Whether the transaction has taken advisory locks or has effects on channels.
    has_effects: AtomicBool,
    /// Counts the statements of the session.
    statements: AtomicU64,
    /// The generator of random numbers, once it has been seeded.
    random: Mutex<Option<Random>>,
    /// Raised when a function has changed a setting: the session then applies the settings.
    touched: AtomicBool,
    /// Whether the transaction may only read; `nextval` is refused then.
    read_only: AtomicBool,
    /// The warnings of functions that the session has not taken.
    warnings: Mutex<Vec<Error>>,
    /// Whether there are some.
    has_warnings: AtomicBool,
}

/// A position in a transaction, to which ROLLBACK TO returns.
#[derive(Clone, Copy, Default, Debug)]
pub struct TransactionMark {
    locks: usize,
    pending: Mark,
}

struct State {
    settings: Settings,
    facts: Arc<SessionFacts>,
    /// The transaction's own catalog, if it differs from the newest one.
    catalog: Option<Arc<Catalog>>,
    /// The last value that `nextval` has returned, by sequence.
    given: HashMap<Oid, i64>,
    /// The sequence that was used last.
    last: Option<Oid>,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Services")
    }
}

impl Services {
    /// The services of a new session.
    pub fn new(
        engine: Arc<Engine>,
        facts: Arc<SessionFacts>,
        settings: Settings,
        sessions: Arc<Sessions>,
        activity: Arc<Activity>,
    ) -> Services {
        let state = State { settings, facts, catalog: None, given: HashMap::new(), last: None };
        Services {
            engine,
            sessions,
            activity,
            state: Mutex::new(state),
            named: Mutex::default(),
            pending: Mutex::default(),
            has_effects: AtomicBool::new(false),
            statements: AtomicU64::new(0),
            random: Mutex::new(None),
            touched: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            warnings: Mutex::default(),
            has_warnings: AtomicBool::new(false),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// All sessions of the database.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// The activity of this session.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Calls `work` with the list of the session's named objects.
    pub fn with_named<T>(&self, work: impl FnOnce(&mut Named) -> T) -> T {
        work(&mut self.named.lock())
    }

    /// Calls `work` with the settings.
    pub fn with_settings<T>(&self, work: impl FnOnce(&mut Settings) -> T) -> T {
        work(&mut self.state.lock().settings)
    }

    /// Whether a function has changed a setting since the last call.
    #[inline]
    pub fn take_touched(&self) -> bool {
        // Relaxed: the same thread ran the function or waited for it.
        self.touched.load(Ordering::Relaxed) && self.touched.swap(false, Ordering::Relaxed)
    }

    /// Sets the facts by which names are looked up from now on.
    pub fn set_facts(&self, facts: Arc<SessionFacts>) {
        self.state.lock().facts = facts;
    }

    /// Sets the catalog in which sequences are looked up; `None` for the newest one. Returns the previous one.
    pub fn set_catalog(&self, catalog: Option<Arc<Catalog>>) -> Option<Arc<Catalog>> {
        std::mem::replace(&mut self.state.lock().catalog, catalog)
    }

    /// Whether the transaction may only read.
    #[inline]
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// A transaction begins, which has no number yet.
    #[inline]
    pub fn forget_transaction_number(&self) {
        // Relaxed: the same thread runs the functions or waits for them. Hardly any transaction uses its number.
        let number = self.activity.transaction_number();
        if number.load(Ordering::Relaxed) != 0 {
            number.store(0, Ordering::Relaxed);
        }
    }

    /// DISCARD: forgets the last values of sequences.
    pub fn forget_sequences(&self) {
        let mut state = self.state.lock();
        state.given.clear();
        state.last = None;
    }

    /// A warning of a function for the client.
    pub fn warn(&self, message: impl Into<String>) {
        self.warnings.lock().push(Error::new(SqlState::WARNING, message));
        // Relaxed: the session's thread runs the functions or waits for them.
        self.has_warnings.store(true, Ordering::Relaxed);
    }

    /// The warnings of functions since the last call.
    #[inline]
    pub fn take_warnings(&self) -> Vec<Error> {
        match self.has_warnings.load(Ordering::Relaxed) && self.has_warnings.swap(false, Ordering::Relaxed) {
            false => Vec::new(),
            true => std::mem::take(&mut self.warnings.lock()),
        }
    }

    /// `pg_stat_reset`: what `pg_stat_database` counts begins at 0.
    pub fn reset_statistics(&self) {
        let counts = DatabaseCounts::of(&self.engine);
        let reset = (coarse_wall_clock_micros(), counts);
        self.sessions.with_resets(|resets| resets.database = Some(reset));
    }

    /// `pg_stat_reset_shared`
    pub fn reset_shared_statistics(&self, target: &str) -> Result<()> {
        let now = coarse_wall_clock_micros();
        let log = self.engine.log_bytes().0;
        self.sessions.with_resets(|resets| match target {
            "archiver" => resets.archiver = Some((now, self.sessions.archiver())),
            "bgwriter" => resets.writer = Some(now),
            "wal" => resets.log = Some((now, log)),
            _ => {}
        });
        match target {
            "archiver" | "bgwriter" | "wal" | "recovery_prefetch" => Ok(()),
            _ => {
                let message = format!("unrecognized reset target: \"{target}\"");
                Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(
                    "Target must be \"archiver\", \"bgwriter\", \"recovery_prefetch\", or \"wal\".",
                ))
            }
        }
    }

    // Advisory locks and notifications.

    /// Takes an advisory lock, and waits for it. Errors as for [`AdvisoryLocks::lock`](crate::advisory::AdvisoryLocks::lock).
    pub fn lock(&self, key: Key, mode: Mode, scope: Scope, cancel: &Cancel) -> Result<()> {
        self.note_effects(scope == Scope::Transaction);
        let timeout = self.with_settings(|settings| settings.lock_timeout());
        let waiting = Waiting { cancel, timeout, engine: &self.engine };
        self.sessions.advisory().lock(key, self.activity.id(), mode, scope, &waiting)
    }

    /// Takes an advisory lock if it is free.
    pub fn try_lock(&self, key: Key, mode: Mode, scope: Scope) -> bool {
        self.note_effects(scope == Scope::Transaction);
        self.sessions.advisory().try_lock(key, self.activity.id(), mode, scope)
    }

    /// Gives an advisory lock of the session back; false, and a warning, if it holds none.
    pub fn unlock(&self, key: Key, mode: Mode) -> bool {
        let is_unlocked = self.sessions.advisory().unlock(key, self.activity.id(), mode);
        if !is_unlocked {
            self.warn(format!("you don't own a lock of type {}", mode.name()));
        }
        is_unlocked
    }

    /// Releases all advisory locks of the session, except those of its transaction.
    pub fn unlock_all(&self) {
        self.sessions.advisory().unlock_all(self.activity.id());
    }

    /// NOTIFY
    pub fn notify(&self, channel: &str, payload: &str) -> Result<()> {
        self.note_effects(true);
        self.pending.lock().send(channel, payload)
    }

    /// LISTEN and UNLISTEN
    pub fn listen(&self, change: Listening) {
        self.note_effects(true);
        self.pending.lock().listen(change);
    }

    /// The channels to which the session listens.
    pub fn channels(&self) -> Vec<String> {
        self.sessions.notifications().channels(self.activity.id())
    }

    // Relaxed, here and below: the session's thread runs the functions or waits for them.
    fn note_effects(&self, has_some: bool) {
        if has_some {
            self.has_effects.store(true, Ordering::Relaxed);
        }
    }

    /// The session runs another statement.
    #[inline]
    pub fn begin_statement(&self) {
        self.statements.store(self.statement() + 1, Ordering::Relaxed);
    }

    /// The number of the statement that the session runs, or has run last.
    #[inline]
    pub fn statement(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Whether the transaction has taken advisory locks or has effects on channels.
    #[inline]
    pub fn has_effects(&self) -> bool {
        self.has_effects.load(Ordering::Relaxed)
    }

    /// The current position of the transaction's locks and effects on channels.
    pub fn mark(&self) -> TransactionMark {
        match self.has_effects() {
            false => TransactionMark::default(),
            true => TransactionMark {
                locks: self.sessions.advisory().taken_by_transaction(self.activity.id()),
                pending: self.pending.lock().mark(),
            },
        }
    }

    /// Returns to a position.
    pub fn undo_to(&self, mark: TransactionMark) {
        if self.has_effects() {
            self.sessions.advisory().end_transaction(self.activity.id(), mark.locks);
            self.pending.lock().undo_to(mark.pending);
        }
    }

    /// Commits the transaction by `commit`, and sends its notifications if that succeeds. Its locks are held until it
    /// [ends](Services::end_transaction).
    pub fn commit<T>(&self, commit: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.has_effects() {
            return commit();
        }
        let pending = std::mem::take(&mut *self.pending.lock());
        if pending.is_empty() {
            return commit();
        }
        let notifications = self.sessions.notifications();
        let committing = notifications.begin_commit();
        let committed = commit()?;
        notifications.commit(self.activity.id(), pending, committing);
        Ok(committed)
    }

    /// The transaction has ended: its locks are released, and its unsent notifications are dropped.
    #[inline]
    pub fn end_transaction(&self) {
        if self.has_effects() {
            self.undo_to(TransactionMark::default());
            self.has_effects.store(false, Ordering::Relaxed);
        }
    }

    /// The session ends.
    pub fn end_session(&self) {
        self.end_transaction();
        self.unlock_all();
        self.sessions.notifications().forget(self.activity.id());
    }

    fn sequence(&self, state: &State, name: &str) -> Result<Arc<SequenceDef>> {
        let name = parse_qualified(name)?;
        let catalog = state.catalog.clone().unwrap_or_else(|| self.engine.catalog());
        Names::new(&catalog, &state.facts).sequence(&name)
    }

    fn refuse_read_only(&self, function: &str) -> Result<()> {
        match self.read_only.load(Ordering::Relaxed) || self.engine.is_replica() {
            false => Ok(()),
            true => Err(standby::in_read_only(&format!("{function}()"), &self.engine)),
        }
    }
}

impl SessionServices for Services {
    fn session(&self) -> Result<u32> {
        Ok(self.activity.id())
    }

    fn transaction_number(&self, draws: bool) -> Result<Option<i64>> {
        if draws && self.engine.is_replica() {
            return Err(standby::during_recovery("pg_current_xact_id()", &self.engine));
        }
        // One number is allocated, whichever threads of a statement call.
        let _state = self.state.lock();
        let kept = self.activity.transaction_number();
        let mut number = kept.load(Ordering::Relaxed);
        let has_written = || {
            let running = self.engine.running();
            running.iter().any(|running| running.session == self.activity.id() && running.writes)
        };
        if number == 0 && (draws || has_written()) {
            number = self.engine.draw_number()?;
            kept.store(number, Ordering::Relaxed);
        }
        Ok((number != 0).then_some(number as i64))
    }

    fn next_value(&self, sequence: &str) -> Result<i64> {
        self.refuse_read_only("nextval")?;
        let mut state = self.state.lock();
        let definition = self.sequence(&state, sequence)?;
        let value = self.engine.next_value(&definition)?;
        state.given.insert(definition.oid, value);
        state.last = Some(definition.oid);
        Ok(value)
    }

    fn current_value(&self, sequence: &str) -> Result<i64> {
        let state = self.state.lock();
        let definition = self.sequence(&state, sequence)?;
        state.given.get(&definition.oid).copied().ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{}\" is not yet defined in this session", definition.name),
            )
        })
    }

    fn last_value(&self) -> Result<i64> {
        let state = self.state.lock();
        state.last.and_then(|last| state.given.get(&last)).copied().ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )
        })
    }

    fn set_value(&self, sequence: &str, value: i64, is_called: bool) -> Result<()> {
        self.refuse_read_only("setval")?;
        let mut state = self.state.lock();
        let definition = self.sequence(&state, sequence)?;
        if !(definition.minimum..=definition.maximum).contains(&value) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    definition.name, definition.minimum, definition.maximum
                ),
            ));
        }
        self.engine.set_value(&definition, value, is_called)?;
        if is_called {
            state.given.insert(definition.oid, value);
        }
        Ok(())
    }

    fn sequence_state(&self, sequence: &str) -> Result<(i64, bool)> {
        let state = self.state.lock();
        let definition = self.sequence(&state, sequence)?;
        Ok(self.engine.last_value(&definition))
    }

    fn seeded_random(&self) -> Option<&Mutex<Option<Random>>> {
        Some(&self.random)
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.state.lock().settings.get(name).map(str::to_owned)
    }

    fn set_setting(&self, name: &str, value: &str, local: bool) -> Result<String> {
        if name.eq_ignore_ascii_case("transaction_read_only")
            && settings::boolean(value) == Some(false)
            && self.engine.is_replica()
        {
            return Err(standby::no_read_write(&self.engine));
        }
        let mut state = self.state.lock();
        state.settings.set(name, Some(value), local)?;
        self.touched.store(true, Ordering::Relaxed);
        Ok(state.settings.show(name)?.to_owned())
    }

    fn interrupt(&self, session: i32, ends: bool) -> Result<bool> {
        match u32::try_from(session).ok().filter(|session| self.sessions.has(*session)) {
            Some(session) => Ok(self.sessions.interrupt(session, ends)),
            None => {
                self.warn(format!("PID {session} is not a PostgreSQL backend process"));
                Ok(false)
            }
        }
    }
}
