//! A replica's side: connections to its primary, on which it offers to run queries.
//!
//! One connection waits for a query. While that runs, another connection is made, up to a limit.

use super::{Answer, LOAD_EVERY, Offer, PROGRAM, PULSE_EVERY, out_of_turn};
use crate::replication::{Connection, report};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Result, SqlState, clock};
use firn_replica::{Channel, Received};
use firn_session::Database;
use firn_session::server::{RoutedQuery, ServerConnection as _, ServerDatabase as _};
use std::time::Duration;

/// How long to wait before another attempt to connect, …
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// … and if the server does not hand out queries.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// How often the end of a query's connection is looked for.
const LOOK_EVERY_MICROS: u64 = 20_000;

/// Offers to run queries for the server that a replica follows, until it is dropped or the replica is promoted.
pub struct Offers {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    connect: Box<dyn Fn() -> Result<Connection> + Send + Sync>,
    replica: u64,
    /// The most connections.
    most: usize,
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    threads: Vec<JoinHandle<()>>,
    /// How many of them run a query.
    busy: usize,
    /// The last failure that was reported.
    reported: Option<String>,
}

impl Offers {
    /// Begins with it. `connect` connects to the server that is followed.
    pub fn start(
        database: &Database,
        connect: impl Fn() -> Result<Connection> + Send + Sync + 'static,
    ) -> Offers {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let shared = Arc::new(Shared {
            database: database.clone(),
            connect: Box::new(connect),
            replica: Random::from_entropy().next_u64(),
            most: cores.max(2),
            state: Mutex::default(),
            stopped: Condvar::new(),
        });
        shared.clone().spawn(&mut shared.state.lock());
        Offers { shared }
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        let threads = std::mem::take(&mut state.threads);
        self.shared.stopped.notify_all();
        drop(state);
        for thread in threads {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn spawn(self: Arc<Self>, state: &mut State) {
        let shared = self.clone();
        state.threads.push(thread::spawn("firn-offer", move || shared.offer_until_end()));
    }

    fn is_over(&self) -> bool {
        self.state.lock().is_stopping || !self.database.engine().is_replica()
    }

    fn offer_until_end(self: &Arc<Self>) {
        while !self.is_over() {
            let offered = (self.connect)().and_then(|connection| self.serve(connection));
            let Err(error) = offered else { continue };
            let wait = match error.state() {
                SqlState::FEATURE_NOT_SUPPORTED => RETRY_AFTER_REFUSAL,
                _ => RETRY_AFTER,
            };
            let mut state = self.state.lock();
            if error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE {
                let text = error.to_string();
                if state.reported.as_ref() != Some(&text) {
                    report(&format!("this replica runs no queries of its primary: {text}"));
                    state.reported = Some(text);
                }
            }
            if !state.is_stopping {
                self.stopped.wait_for(&mut state, wait);
            }
        }
    }

    /// Offers to run queries on a connection until it ends.
    fn serve(self: &Arc<Self>, mut connection: Connection) -> Result<()> {
        let (database, cluster) = self.database.engine().identity().ok_or_else(out_of_turn)?;
        let program = PROGRAM.to_owned();
        say(&mut connection, &Answer::Offer(Offer { replica: self.replica, database, cluster, program }))?;
        let connection = Arc::new(Mutex::new(connection));
        let mut message = Vec::new();
        while !self.is_over() {
            let running = u32::try_from(self.database.active_sessions()).unwrap_or(u32::MAX);
            let replayed = self.database.engine().visible_lsn();
            say(&mut *connection.lock(), &Answer::Load { running, replayed })?;
            match connection.lock().receive_within(&mut message, LOAD_EVERY)? {
                Received::Message => {}
                Received::End => return Ok(()),
                Received::Nothing => continue,
            }
            let [b'Q', query @ ..] = message.as_slice() else { return Err(out_of_turn()) };
            let query = RoutedQuery::decode(query)?;
            self.begin_query();
            let ran = self.run(&query, &connection);
            self.state.lock().busy -= 1;
            match ran {
                Ok(()) => say(&mut *connection.lock(), &Answer::End)?,
                // Its end was asked for.
                Err(_) if connection.lock().has_input() => return Ok(()),
                Err(error) => say(&mut *connection.lock(), &Answer::Error(error))?,
            }
        }
        Ok(())
    }

    /// A query begins: another connection is to wait for the next one.
    fn begin_query(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.busy += 1;
        if state.busy == state.threads.len() && state.threads.len() < self.most && !state.is_stopping {
            self.clone().spawn(&mut state);
        }
    }

    fn run(self: &Arc<Self>, query: &RoutedQuery, connection: &Arc<Mutex<Connection>>) -> Result<()> {
        let mut session = self.database.connect();
        session.set_interrupt_hook(pulse(self.clone(), connection.clone()));
        let mut rows = session.run_routed(query)?;
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
