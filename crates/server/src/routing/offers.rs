//! A replica's side: connections to its primary, on which it offers to run queries.
//!
//! One connection waits for a query. While that runs another one is made, up to a limit, and those that wait for long end but for one.

use super::{Answer, LOAD_EVERY, LONGEST_SILENCE, Offer, PROGRAM, PULSE_EVERY, out_of_turn};
use crate::client::Closer;
use crate::replication::{Connection, report};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Result, SqlState, clock};
use firn_replica::{Channel, Received};
use firn_session::Database;
use firn_session::server::{RoutedQuery, ServerConnection as _, ServerDatabase as _};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long to wait before another attempt to connect, …
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// … and if the server does not want what this one offers.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// A connection that has waited for so long ends, if another one waits as well.
const LONGEST_IDLENESS: Duration = Duration::from_secs(10);

/// How often it is looked whether a query that runs is to end.
const LOOK_EVERY_MICROS: u64 = 20_000;

/// Offers to run queries for the server that a replica follows, until it is dropped or the replica is promoted.
pub struct Offers {
    shared: Arc<Shared>,
}

/// The server that is followed, at some moment.
pub trait Primary: Send + Sync {
    /// Its address; `None` if it is unknown.
    fn address(&self) -> Option<String>;

    /// Connects to the server at an address, for queries.
    fn connect(&self, address: &str) -> Result<Connection>;
}

struct Shared {
    database: Database,
    primary: Box<dyn Primary>,
    replica: u64,
    /// The most connections.
    most: usize,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    /// Those that have ended are among them.
    threads: Vec<JoinHandle<()>>,
    /// How many threads there are, and how many of them run a query.
    running: usize,
    busy: usize,
    /// Handles of the connections, by numbers.
    closers: BTreeMap<u64, Closer>,
    connections: u64,
    /// The last failure that was reported.
    reported: Option<String>,
}

impl Offers {
    /// Begins with it. 53000 if the operating system refuses a thread.
    pub fn start(database: &Database, primary: impl Primary + 'static) -> Result<Offers> {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let shared = Arc::new(Shared {
            database: database.clone(),
            primary: Box::new(primary),
            replica: Random::from_entropy().next_u64(),
            most: cores.max(2),
            state: Mutex::default(),
            stopped: Condvar::new(),
        });
        shared.clone().spawn(&mut shared.state.lock())?;
        Ok(Offers { shared })
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        // Threads that wait for the primary or for its client fail at once.
        state.closers.values().for_each(Closer::close);
        let threads = std::mem::take(&mut state.threads);
        self.shared.stopped.notify_all();
        drop(state);
        for thread in threads {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Why a connection has ended.
enum End {
    /// Another one waits.
    Superfluous,
    /// It was closed, or is of no use any more.
    Closed,
}

/// A connection that [`Offers`] can end, as long as this is there.
struct Registered<'s> {
    shared: &'s Shared,
    number: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().closers.remove(&self.number);
    }
}

/// A query that runs, as long as this is there.
struct Busy<'s>(&'s Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
    }
}

/// A thread, as long as this is there.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}

impl Shared {
    fn spawn(self: Arc<Self>, state: &mut State) -> Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let thread = thread::start("firn-offer", move || {
            let _running = Running(&self);
            self.offer_until_end();
        })?;
        state.running += 1;
        state.threads.push(thread);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.state.lock().is_stopping || !self.database.engine().is_replica()
    }

    /// Whether another thread waits for a query, so that this one need not.
    fn is_superfluous(&self) -> bool {
        let state = self.state.lock();
        state.running - state.busy > 1
    }

    fn offer_until_end(self: &Arc<Self>) {
        while !self.is_over() {
            let error = match self.serve() {
                Ok(End::Superfluous) => return,
                Ok(End::Closed) => continue,
                Err(error) => error,
            };
            let is_refused = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE];
            let mut state = self.state.lock();
            if error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE {
                let text = error.to_string();
                if state.reported.as_ref() != Some(&text) {
                    report(&format!("this replica runs no queries of its primary: {text}"));
                    state.reported = Some(text);
                }
            }
            if !state.is_stopping {
                let wait =
                    if is_refused.contains(&error.state()) { RETRY_AFTER_REFUSAL } else { RETRY_AFTER };
                self.stopped.wait_for(&mut state, wait);
            }
        }
    }

    /// Connects, unless this server is being stopped, and lets its end close the connection.
    fn connect(&self, address: &str) -> Result<(Connection, Registered<'_>)> {
        let connection = self.primary.connect(address)?;
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(Error::new(SqlState::ADMIN_SHUTDOWN, "the server is being stopped"));
        }
        state.connections += 1;
        let number = state.connections;
        state.closers.insert(number, connection.closer()?);
        Ok((connection, Registered { shared: self, number }))
    }

    /// Offers to run queries on a connection until it ends, has waited for long beside another one, or another server is followed.
    fn serve(self: &Arc<Self>) -> Result<End> {
        let no_primary = || Error::new(SqlState::CONNECTION_FAILURE, "no primary is known");
        let address = self.primary.address().ok_or_else(no_primary)?;
        let (mut connection, _registered) = self.connect(&address)?;
        let (database, cluster) = self.database.engine().identity().ok_or_else(out_of_turn)?;
        let program = PROGRAM.to_owned();
        say(&mut connection, &Answer::Offer(Offer { replica: self.replica, database, cluster, program }))?;
        let connection = Arc::new(Mutex::new(connection));
        let (mut message, mut heard, mut idle_since) = (Vec::new(), clock::now(), clock::now());
        while !self.is_over() && self.primary.address().as_ref() == Some(&address) {
            let running = u32::try_from(self.database.active_sessions()).unwrap_or(u32::MAX);
            let replayed = self.database.engine().visible_lsn();
            say(&mut *connection.lock(), &Answer::Load { running, replayed })?;
            // Until the next one is due.
            let begun = clock::now();
            let is_query = loop {
                let left = LOAD_EVERY.saturating_sub(begun.elapsed());
                match connection.lock().receive_within(&mut message, left)? {
                    Received::Message if message == b"A" => heard = clock::now(),
                    Received::Message => break true,
                    Received::End => return Ok(End::Closed),
                    Received::Nothing => break false,
                }
            };
            if is_query {
                let [b'Q', query @ ..] = message.as_slice() else { return Err(out_of_turn()) };
                if !self.run(&RoutedQuery::decode(query)?, &connection)? {
                    return Ok(End::Closed);
                }
                (heard, idle_since) = (clock::now(), clock::now());
            }
            if idle_since.elapsed() > LONGEST_IDLENESS && self.is_superfluous() {
                return Ok(End::Superfluous);
            }
            if heard.elapsed() > LONGEST_SILENCE {
                let message = "the primary does not answer";
                return Err(Error::new(SqlState::CONNECTION_FAILURE, message));
            }
        }
        Ok(End::Closed)
    }

    /// Runs a query, and says how it has ended. False if the connection is of no use any more. While it runs another thread waits for the
    /// next one.
    fn run(self: &Arc<Self>, query: &RoutedQuery, connection: &Arc<Mutex<Connection>>) -> Result<bool> {
        let mut state = self.state.lock();
        state.busy += 1;
        let busy = Busy(self);
        if state.busy == state.running && state.running < self.most && !state.is_stopping {
            // Without it the primary runs the next query.
            let _ = self.clone().spawn(&mut state);
        }
        drop(state);
        let ran = self.send_rows(query, connection);
        drop(busy);
        let mut connection = connection.lock();
        match ran {
            Ok(()) => say(&mut *connection, &Answer::End)?,
            // Its end was asked for.
            Err(_) if connection.has_input() => return Ok(false),
            Err(error) => say(&mut *connection, &Answer::Error(error))?,
        }
        Ok(true)
    }

    fn send_rows(self: &Arc<Self>, query: &RoutedQuery, connection: &Arc<Mutex<Connection>>) -> Result<()> {
        let mut session = self.database.connect();
        session.set_interrupt_hook(pulse(self.clone(), connection.clone()));
        let mut rows = session.run_routed(query)?;
        say(&mut *connection.lock(), &Answer::Started(rows.time()))?;
        while let Some(image) = rows.next_image()? {
            let mut connection = connection.lock();
            connection.send(&[b"R", &image])?;
            connection.flush()?;
        }
        Ok(())
    }
}

/// Says that the query runs, now and then, and looks whether it is to end.
fn pulse(
    shared: Arc<Shared>,
    connection: Arc<Mutex<Connection>>,
) -> impl Fn() -> bool + Send + Sync + 'static {
    let begun = clock::now();
    // When it was looked at last, and when something was said last, in microseconds since it began. Relaxed: they only make the calls
    // rarer.
    let (looked, said) = (AtomicU64::new(0), AtomicU64::new(0));
    move || {
        let now = begun.elapsed().as_micros() as u64;
        let before = looked.load(Ordering::Relaxed);
        if now < before + LOOK_EVERY_MICROS
            || looked.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Otherwise rows are being sent.
        let Some(mut connection) = connection.try_lock() else { return false };
        if now >= said.load(Ordering::Relaxed) + PULSE_EVERY.as_micros() as u64 {
            said.store(now, Ordering::Relaxed);
            if say(&mut *connection, &Answer::Working).is_err() {
                return true;
            }
        }
        connection.has_input() || shared.state.lock().is_stopping
    }
}

fn say(channel: &mut dyn Channel, answer: &Answer) -> Result<()> {
    channel.send(&[&answer.encode()])?;
    channel.flush()
}
