//! What the sessions of a database are doing, as other sessions see it: `pg_stat_activity` and its relatives.
//!
//! A session reports to its own [`Activity`]: a few stores per statement, and an uncontended lock
//! where the text of the statement differs from the one before. Timestamps are read from a clock
//! that has a resolution of some milliseconds and costs a fifth of a precise one.

use crate::advisory::AdvisoryLocks;
use crate::copy::Progress;
use crate::notifications::Notifications;
use crate::standby::SynchronousCommit;
use firn_base::clock::coarse_wall_clock_micros;
use firn_base::sync::{
    Arc, AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, Weak,
};
use firn_base::{Cancel, Error, Lsn, Result, SqlState};
use firn_txn::{Abort, Engine};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Something with the text of a statement.
pub trait QueryText: Send + Sync {
    /// The text.
    fn text(&self) -> &str;
}

/// What a session is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It waits for its client.
    Idle,
    /// It runs a statement.
    Active,
    /// It waits for its client, inside a transaction block.
    InBlock,
    /// So it does, and the block has failed.
    Failed,
}

impl State {
    /// PostgreSQL's name.
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Active => "active",
            State::InBlock => "idle in transaction",
            State::Failed => "idle in transaction (aborted)",
        }
    }

    fn from_bits(bits: u8) -> State {
        [State::Idle, State::Active, State::InBlock, State::Failed][usize::from(bits)]
    }
}

/// The client of a session.
#[derive(Clone, Default, Debug)]
pub struct Client {
    /// The user's name.
    pub user: String,
    /// The name of the database that it requested.
    pub database: String,
    /// Its application name.
    pub application: String,
    /// Its address and port; `None` if it is in this process or is connected by a Unix domain socket.
    pub address: Option<(IpAddr, u16)>,
    /// The server's address and port of its connection, if known.
    pub server: Option<(IpAddr, u16)>,
    /// How the connection is encrypted, if it is.
    pub encryption: Option<Encryption>,
}

/// How a connection is encrypted, as `pg_stat_ssl` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encryption {
    /// The version of TLS, such as `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// How many bits its key has.
    pub bits: i32,
    /// The client's certificate, if it has shown one.
    pub client: Option<ClientCertificate>,
}

/// Whose a certificate is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// Its owner, such as `/O=Library/CN=ada`.
    pub subject: String,
    /// Who vouches for it.
    pub issuer: String,
    /// Its number at the issuer, in decimal digits.
    pub serial: String,
}

/// The activity of one session. Timestamps are in microseconds since 1970 UTC, 0 for never.
pub struct Activity {
    id: u32,
    begun: i64,
    state: AtomicU8,
    changed: AtomicI64,
    query_begun: AtomicI64,
    transaction_begun: AtomicI64,
    /// The number of the running transaction, or 0 as long as it has none. The session's services assign it.
    transaction_number: AtomicU64,
    query: Mutex<Option<Arc<dyn QueryText>>>,
    client: Mutex<Client>,
    copy: Mutex<Weak<Progress>>,
    /// The time in microseconds after which a statement is checked for a client that has gone; 0 for never.
    looks_after: AtomicI64,
    /// Whether another session has ended it.
    is_ended: AtomicBool,
    interrupts: Mutex<Interrupts>,
}

/// The means by which other sessions stop this one.
#[derive(Default)]
struct Interrupts {
    cancel: Option<Cancel>,
    end: Option<Box<dyn Fn() + Send + Sync>>,
    client_has_gone: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Activity {
    /// The number of its running transaction, if it has one.
    pub fn running_number(&self) -> Option<u64> {
        // The number of the last transaction remains until the next one begins.
        let number = self.transaction_number.load(Ordering::Relaxed);
        (number != 0 && self.transaction_begun() != 0).then_some(number)
    }

    /// The place of its transaction number.
    pub(crate) fn transaction_number(&self) -> &AtomicU64 {
        &self.transaction_number
    }

    /// Its number among the sessions, never 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// When the session began.
    pub fn begun(&self) -> i64 {
        self.begun
    }

    /// Its current state, and since when.
    pub fn state(&self) -> (State, i64) {
        (State::from_bits(self.state.load(Ordering::Relaxed)), self.changed.load(Ordering::Relaxed))
    }

    /// When its newest statement began.
    pub fn query_begun(&self) -> i64 {
        self.query_begun.load(Ordering::Relaxed)
    }

    /// When its transaction began.
    pub fn transaction_begun(&self) -> i64 {
        self.transaction_begun.load(Ordering::Relaxed)
    }

    /// The text of its newest statement.
    pub fn query(&self) -> String {
        self.query.lock().as_ref().map_or_else(String::new, |query| query.text().to_owned())
    }

    /// Its client.
    pub fn client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Changes the client.
    pub fn set_client(&self, change: impl FnOnce(&mut Client)) {
        change(&mut self.client.lock());
    }

    /// Shows the progress of a COPY to other sessions while it lasts.
    pub fn show_copy(&self, copy: &Arc<Progress>) {
        *self.copy.lock() = Arc::downgrade(copy);
    }

    /// The progress of its COPY, if it runs one.
    pub fn copy(&self) -> Option<Arc<Progress>> {
        self.copy.lock().upgrade()
    }

    /// Sets the flag that cancels its statement.
    pub fn set_cancel(&self, cancel: Cancel) {
        self.interrupts.lock().cancel = Some(cancel);
    }

    /// Sets the hook that ends it: for a server whose client it serves.
    pub fn set_end(&self, end: impl Fn() + Send + Sync + 'static) {
        self.interrupts.lock().end = Some(Box::new(end));
    }

    /// Sets the hook that returns whether its client has gone.
    pub fn set_client_has_gone(&self, has_gone: impl Fn() -> bool + Send + Sync + 'static) {
        self.interrupts.lock().client_has_gone = Some(Box::new(has_gone));
    }

    /// Sets how long its statements run until the first check for a client that has gone; `None` for no check.
    pub fn set_client_check_interval(&self, interval: Option<Duration>) {
        let micros = interval.map_or(0, |interval| interval.as_micros() as i64);
        self.looks_after.store(micros, Ordering::Relaxed);
    }

    /// Whether another session has ended it.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Cancels a statement that has run for long enough and whose client has gone.
    fn cancel_if_client_has_gone(&self, now: i64) {
        let looks_after = self.looks_after.load(Ordering::Relaxed);
        let is_running = self.state().0 == State::Active;
        if looks_after == 0 || !is_running || now - self.query_begun() < looks_after {
            return;
        }
        let interrupts = self.interrupts.lock();
        // A statement that begins meanwhile has the same client.
        if interrupts.client_has_gone.as_ref().is_some_and(|has_gone| has_gone()) {
            interrupts.cancel.iter().for_each(Cancel::cancel);
        }
    }

    /// Cancels its statement, and also ends the session if `ends`; returns false, and does nothing, if other sessions cannot end it.
    fn interrupt(&self, ends: bool) -> bool {
        let interrupts = self.interrupts.lock();
        if ends {
            let Some(end) = &interrupts.end else { return false };
            self.is_ended.store(true, Ordering::Relaxed);
            end();
        }
        interrupts.cancel.iter().for_each(Cancel::cancel);
        true
    }

    /// A statement begins; `query` is given if it differs from the one before.
    #[inline]
    pub fn begin(&self, in_block: bool, query: Option<Arc<dyn QueryText>>) {
        let now = coarse_wall_clock_micros();
        self.query_begun.store(now, Ordering::Relaxed);
        if !in_block {
            self.transaction_begun.store(now, Ordering::Relaxed);
        }
        if let Some(query) = query {
            *self.query.lock() = Some(query);
        }
        self.enter(State::Active, now);
    }

    /// It waits for its client.
    #[inline]
    pub fn rest(&self, state: State) {
        if self.state.load(Ordering::Relaxed) == state as u8 {
            return;
        }
        if state == State::Idle {
            self.transaction_begun.store(0, Ordering::Relaxed);
        }
        self.enter(state, coarse_wall_clock_micros());
    }

    fn enter(&self, state: State, now: i64) {
        self.changed.store(now, Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
    }
}

/// The sessions of a database.
pub struct Sessions {
    begun: i64,
    last: AtomicU32,
    all: Mutex<BTreeMap<u32, Weak<Activity>>>,
    advisory: AdvisoryLocks,
    notifications: Notifications,
    resets: Mutex<Resets>,
    replication: OnceLock<Arc<dyn ReplicationFacts>>,
    standby_names: Mutex<String>,
    /// Changes with the names.
    standby_names_version: AtomicU64,
}

/// What SQL shows of replication and of the archive, which are outside of the database.
pub trait ReplicationFacts: Send + Sync {
    /// What the archiver has done; `None` without one.
    fn archiver(&self) -> Option<ArchiverCounts>;

    /// What a replica has received; `None` in a primary.
    fn receiver(&self) -> Option<ReceiverFacts>;

    /// The connections over which others receive this server's log, in the order in which they began.
    fn senders(&self) -> Vec<SenderFacts>;

    /// Waits until the synchronous standbys have the log up to a position, as far as a mode says, if there are any; and calls `check`
    /// meanwhile.
    ///
    /// Errors: those of `check`; 08007 if the database is to be closed.
    fn wait_for_standbys(
        &self,
        lsn: Lsn,
        mode: SynchronousCommit,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()>;

    /// Commits wait for these standbys from now on: a value of `synchronous_standby_names`. Error: 22023.
    fn set_standby_names(&self, names: &str) -> Result<()>;

    /// Stops or continues replay in a replica. No effect in a primary.
    fn pause_replay(&self, pause: bool);

    /// Whether replay has been stopped.
    fn is_replay_paused(&self) -> bool;

    /// Makes a replica a primary: by force, or once its primary has handed over. Waits for that, for so long at most, if it waits at all,
    /// and calls `check` meanwhile. Returns whether it is one.
    ///
    /// Errors: those of `check`; 55000 if it is no replica, or the primary does not hand over; 55006 if that is under way already.
    fn promote(
        &self,
        is_forced: bool,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<bool>;

    /// Makes the server a voter: the first one if it is a primary, which then begins a cluster. Calls `check` while it waits. Returns false
    /// if it is one already.
    ///
    /// Errors: those of `check`; 55000 if it is a replica that lacks much; 57P03 if no majority is reached.
    fn become_voter(&self, check: &dyn Fn() -> Result<()>) -> Result<bool>;

    /// Lets a voter, which has this name or address, be none any more.
    ///
    /// Errors: those of `check`; 42704 if there is none; 55000 if it is the primary; 57P03 if no majority is reached.
    fn remove_voter(&self, which: &str, check: &dyn Fn() -> Result<()>) -> Result<()>;

    /// The voters, by number.
    fn voters(&self) -> Vec<VoterFacts>;
}

/// A voter.
#[derive(Clone, PartialEq, Debug)]
pub struct VoterFacts {
    /// Its number.
    pub node: u64,
    /// The name that its operator has given it.
    pub name: String,
    /// Where others reach it.
    pub address: String,
    /// Whether it is the primary of the epoch, or is becoming that.
    pub is_primary: bool,
    /// Whether it is this server.
    pub is_this: bool,
    /// The epoch.
    pub epoch: u64,
    /// Up to where it has the log of this server on disk, if it follows it.
    pub flushed: Option<Lsn>,
}

/// What a replica has received. Times are in microseconds since 1970 UTC.
#[derive(Clone, PartialEq, Debug)]
pub struct ReceiverFacts {
    /// The server whose log it receives: its host, and its port.
    pub server: (String, u16),
    /// Whether it is connected.
    pub is_connected: bool,
    /// Whether that server was a primary when it was connected last.
    pub is_of_primary: bool,
    /// The epoch of what it has received last.
    pub epoch: u64,
    /// Where receiving began since it was started.
    pub begun: Lsn,
    /// Up to where it has received the log.
    pub received: Lsn,
    /// Up to where that is on disk.
    pub flushed: Lsn,
    /// Up to where the log of the server is on disk, as it has said last.
    pub available: Lsn,
    /// When the last message has come, and when the server had sent it.
    pub last_message: Option<(i64, i64)>,
    /// When the group was sealed that has been replayed last.
    pub replayed_time: Option<i64>,
    /// Why receiving or replay has failed last, if it has not succeeded since.
    pub last_error: Option<String>,
}

/// A connection over which another server receives the log. Times are in microseconds since 1970 UTC.
#[derive(Clone, PartialEq, Debug)]
pub struct SenderFacts {
    /// The session.
    pub session: u32,
    /// The name that the other side has given itself.
    pub name: String,
    /// Its number, if it is a voter.
    pub voter: Option<u64>,
    /// The address and port of the other side, unless it is connected by a Unix domain socket.
    pub client: Option<(IpAddr, u16)>,
    /// When it was connected.
    pub begun: i64,
    /// Whether it lags behind: what it has not been sent yet is more than what is in transit.
    pub is_catching_up: bool,
    /// Up to where the log has been sent.
    pub sent: Lsn,
    /// Up to where the other side has received it.
    pub written: Lsn,
    /// Up to where it is on disk there.
    pub flushed: Lsn,
    /// Up to where it has been replayed there.
    pub replayed: Lsn,
    /// Its place in the list of synchronous standbys, from 1; 0 if it is not there.
    pub sync_priority: u32,
    /// What it is to commits, in the word of `pg_stat_replication`.
    pub sync_state: &'static str,
    /// How long it took until what was written here was received, was on disk, and was replayed there. In microseconds.
    pub lags: [Option<i64>; 3],
    /// When the other side has sent its last answer.
    pub reply_time: Option<i64>,
}

/// What `pg_stat_archiver` shows. Times are in microseconds since 1970 UTC.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct ArchiverCounts {
    /// The number of archived segments.
    pub archived: u64,
    /// The last of them, and when it was archived.
    pub last_archived: Option<(String, i64)>,
    /// How often archiving has failed.
    pub failed: u64,
    /// The segment at which it has failed last, and when.
    pub last_failed: Option<(String, i64)>,
}

impl ArchiverCounts {
    /// Those since earlier ones, which were noted at a time.
    pub fn since(self, at: i64, earlier: &ArchiverCounts) -> ArchiverCounts {
        let later = |(_, event): &(String, i64)| *event >= at;
        ArchiverCounts {
            archived: self.archived.saturating_sub(earlier.archived),
            last_archived: self.last_archived.filter(later),
            failed: self.failed.saturating_sub(earlier.failed),
            last_failed: self.last_failed.filter(later),
        }
    }
}

/// What `pg_stat_database` counts.
#[derive(Clone, Copy, Default, Debug)]
pub struct DatabaseCounts {
    /// Transactions that have committed.
    pub commits: u64,
    /// Transactions that had written and were rolled back.
    pub rollbacks: u64,
    /// Those of them that were in conflict with others.
    pub conflicts: u64,
    /// Deadlocks
    pub deadlocks: u64,
}

impl DatabaseCounts {
    /// Those since the engine was opened.
    pub fn of(engine: &Engine) -> DatabaseCounts {
        let statistics = engine.statistics();
        let rollbacks = statistics.rollbacks.get();
        let is_conflict = |abort: &Abort| abort.state == Some(SqlState::SERIALIZATION_FAILURE);
        let aborts = statistics.aborts();
        DatabaseCounts {
            // PostgreSQL counts those that only read as well.
            commits: engine.ended_transactions().saturating_sub(rollbacks),
            rollbacks,
            conflicts: aborts.iter().filter(|(abort, _)| is_conflict(abort)).map(|(_, count)| count).sum(),
            deadlocks: statistics.deadlocks.get(),
        }
    }

    /// Those since earlier ones.
    pub fn since(self, earlier: DatabaseCounts) -> DatabaseCounts {
        DatabaseCounts {
            commits: self.commits.saturating_sub(earlier.commits),
            rollbacks: self.rollbacks.saturating_sub(earlier.rollbacks),
            conflicts: self.conflicts.saturating_sub(earlier.conflicts),
            deadlocks: self.deadlocks.saturating_sub(earlier.deadlocks),
        }
    }
}

/// When counts were reset since the database was opened, in microseconds since 1970 UTC, and what they were.
#[derive(Default, Debug)]
pub struct Resets {
    /// Those of `pg_stat_database`.
    pub database: Option<(i64, DatabaseCounts)>,
    /// Those of `pg_stat_archiver`.
    pub archiver: Option<(i64, ArchiverCounts)>,
    /// Those of `pg_stat_bgwriter`.
    pub writer: Option<i64>,
    /// The bytes of `pg_stat_wal`.
    pub log: Option<(i64, u64)>,
}

#[cold]
pub(crate) fn not_in_a_server() -> Error {
    let message = "the database is not open in a server, which could be changed";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint("Use firn serve.")
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            begun: coarse_wall_clock_micros(),
            last: AtomicU32::default(),
            all: Mutex::default(),
            advisory: AdvisoryLocks::default(),
            notifications: Notifications::default(),
            resets: Mutex::default(),
            replication: OnceLock::new(),
            standby_names: Mutex::default(),
            standby_names_version: AtomicU64::default(),
        }
    }
}

impl Sessions {
    /// Sets what shows replication. No effect if it has been set.
    pub fn set_replication(&self, facts: Arc<dyn ReplicationFacts>) {
        let _ = self.replication.set(facts);
    }

    /// Commits wait for these standbys from now on, and all sessions show them as `synchronous_standby_names`. Errors: 22023; 55000 if
    /// nothing shows replication.
    pub fn set_standby_names(&self, names: &str) -> Result<()> {
        // One that sets them at the same time does so before or after both.
        let mut shown = self.standby_names.lock();
        self.replication().ok_or_else(not_in_a_server)?.set_standby_names(names)?;
        names.clone_into(&mut shown);
        self.standby_names_version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What `synchronous_standby_names` shows.
    pub fn standby_names(&self) -> String {
        self.standby_names.lock().clone()
    }

    /// Changes with the names of standbys; 0 as long as there are none.
    #[inline]
    pub fn standby_names_version(&self) -> u64 {
        self.standby_names_version.load(Ordering::Acquire)
    }

    /// What the archiver has done since the database was opened.
    pub fn archiver(&self) -> ArchiverCounts {
        self.replication.get().and_then(|facts| facts.archiver()).unwrap_or_default()
    }

    /// What shows replication, if there is any.
    pub fn replication(&self) -> Option<&dyn ReplicationFacts> {
        self.replication.get().map(|facts| &**facts)
    }

    /// When the database was opened: microseconds since 1970 UTC.
    pub fn begun(&self) -> i64 {
        self.begun
    }

    /// Their advisory locks.
    pub fn advisory(&self) -> &AdvisoryLocks {
        &self.advisory
    }

    /// The notifications that they send to one another.
    pub fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Lends when counts were reset.
    pub fn with_resets<T>(&self, work: impl FnOnce(&mut Resets) -> T) -> T {
        work(&mut self.resets.lock())
    }

    /// Whether there is a session of that number.
    pub fn has(&self, id: u32) -> bool {
        self.all.lock().get(&id).is_some_and(|activity| activity.strong_count() > 0)
    }

    /// How many of them run a statement.
    pub fn active(&self) -> usize {
        self.list().iter().filter(|activity| activity.state().0 == State::Active).count()
    }

    /// A number for a future session.
    pub fn reserve(&self) -> u32 {
        let all = self.all.lock();
        // Numbers start again after 4 billion sessions, so one may still be in use.
        loop {
            let id = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if id != 0 && i32::try_from(id).is_ok() && !all.contains_key(&id) {
                return id;
            }
        }
    }

    /// A session begins under a reserved number. It is listed as long as its activity is held.
    pub fn begin(&self, id: u32) -> Arc<Activity> {
        let begun = coarse_wall_clock_micros();
        let activity = Arc::new(Activity {
            id,
            begun,
            state: AtomicU8::new(State::Idle as u8),
            changed: AtomicI64::new(begun),
            query_begun: AtomicI64::new(0),
            transaction_begun: AtomicI64::new(0),
            transaction_number: AtomicU64::new(0),
            query: Mutex::new(None),
            client: Mutex::default(),
            copy: Mutex::default(),
            looks_after: AtomicI64::new(0),
            is_ended: AtomicBool::new(false),
            interrupts: Mutex::default(),
        });
        let mut all = self.all.lock();
        all.retain(|_, activity| activity.strong_count() > 0);
        all.insert(id, Arc::downgrade(&activity));
        activity
    }

    /// Cancels the statement of a session, or ends the session; false if there is none of that number that permits this.
    pub fn interrupt(&self, id: u32, ends: bool) -> bool {
        let activity = self.all.lock().get(&id).and_then(Weak::upgrade);
        activity.is_some_and(|activity| activity.interrupt(ends))
    }

    /// Cancels statements whose clients have gone: `client_connection_check_interval`.
    pub fn cancel_for_clients_that_have_gone(&self) {
        let now = coarse_wall_clock_micros();
        self.list().iter().for_each(|activity| activity.cancel_if_client_has_gone(now));
    }

    /// The current sessions, by their numbers.
    pub fn list(&self) -> Vec<Arc<Activity>> {
        self.all.lock().values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl QueryText for &'static str {
        fn text(&self) -> &str {
            self
        }
    }

    #[test]
    fn sessions_are_listed_while_they_last_with_what_they_do() {
        let sessions = Sessions::default();
        let (first, second) = (sessions.begin(sessions.reserve()), sessions.begin(sessions.reserve()));
        first.begin(false, Some(Arc::new("SELECT 1")));
        assert_eq!((first.state().0.name(), first.query().as_str()), ("active", "SELECT 1"));
        assert!(first.query_begun() > 0 && first.transaction_begun() == first.query_begun());
        first.rest(State::InBlock);
        assert_eq!(first.state().0.name(), "idle in transaction");
        first.rest(State::Idle);
        assert_eq!((first.transaction_begun(), first.query().as_str()), (0, "SELECT 1"));
        assert_eq!(sessions.list().iter().map(|session| session.id()).collect::<Vec<_>>(), [1, 2]);
        drop(first);
        assert_eq!(sessions.list().len(), 1);
        assert_eq!((second.id(), sessions.reserve()), (2, 3));
    }
}
