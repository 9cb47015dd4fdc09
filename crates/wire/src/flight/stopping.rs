//! Stopping the statements of one call, and of no other.
//!
//! A call may run many statements, one for each row of parameters, and each of them begins by lowering the cancel flag
//! of its connection. So a call has a flag of its own that remains raised, which all statements of the call check.
//! The calls of a transaction share a connection, and take turns. The connection checks the flag of the call that has the turn,
//! so stopping a call that still waits does not affect the call before it, which runs.
//!
//! The rows of a query are read after its turn, while other calls may have theirs. The reader checks the flag
//! between batches. If a batch takes long, the connection is cancelled as soon as no call has the turn. A change, or
//! a commit, first reads the rest of such rows. If they do not end while a call has the turn, that call waits for
//! them until they are cancelled.

use std::time::Duration;

use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{Error, Result, SqlState};
use firn_session::server::ServerConnection as _;
use firn_session::{CancelHandle, Connection};

/// How often the cancellation of a query whose rows are read is retried.
const AGAIN: Duration = Duration::from_millis(50);

/// After how many retries the call that has the turn is assumed to wait for the rows.
const PATIENCE: u32 = 10;

/// Stops one call.
#[derive(Clone)]
pub(super) struct Stop {
    asked: Arc<AtomicBool>,
    phase: Arc<Mutex<Phase>>,
    cancel: CancelHandle,
    turns: Option<Arc<Turns>>,
}

/// The phase of a call in a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits for its turn, or has it: its flag suffices.
    Waiting,
    /// It has had a turn and its rows are read, if it has any.
    Drawing,
    Ended,
}

impl Stop {
    /// For a call with a connection of its own.
    pub fn alone(connection: &Connection) -> Stop {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = asked.clone();
        connection.set_interrupt_hook(move || flag.load(Ordering::Relaxed));
        Stop {
            asked,
            phase: Arc::new(Mutex::new(Phase::Waiting)),
            cancel: connection.cancel_handle(),
            turns: None,
        }
    }

    /// For a call in a transaction.
    pub fn in_turn(turns: &Arc<Turns>, cancel: &CancelHandle) -> Stop {
        Stop {
            asked: Arc::default(),
            phase: Arc::new(Mutex::new(Phase::Waiting)),
            cancel: cancel.clone(),
            turns: Some(turns.clone()),
        }
    }

    /// Stops the call, after a time in which it may end by itself.
    pub fn ask(&self, grace: Duration) {
        if self.turns.is_none() {
            self.ask_once();
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.ask_once();
            return;
        };
        if grace.is_zero() && self.ask_once() {
            return;
        }
        let stop = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(grace.max(AGAIN)).await;
            let mut asked = 0;
            while !stop.ask_again(asked >= PATIENCE) {
                tokio::time::sleep(AGAIN).await;
                asked += 1;
            }
        });
    }

    /// Tries to stop the call. Returns whether nothing is left to stop.
    pub fn ask_once(&self) -> bool {
        self.ask_again(false)
    }

    fn ask_again(&self, is_waited_for: bool) -> bool {
        self.asked.store(true, Ordering::Relaxed);
        let phase = self.phase.lock();
        match (*phase, &self.turns) {
            (Phase::Ended, _) | (_, None) => true,
            (Phase::Waiting, Some(_)) => false,
            (Phase::Drawing, Some(turns)) => {
                let turn = turns.0.lock();
                if turn.is_none() || is_waited_for {
                    self.cancel.cancel();
                }
                false
            }
        }
    }

    /// 57014 if the call must stop.
    pub fn check(&self) -> Result<()> {
        match self.asked.load(Ordering::Relaxed) {
            true => Err(Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")),
            false => Ok(()),
        }
    }

    /// Begins a turn, which lasts until the return value is dropped; 57014 if the call was stopped before.
    pub fn begin_turn<'t>(&self, turns: &'t Turns) -> Result<Turn<'t>> {
        self.check()?;
        *self.phase.lock() = Phase::Waiting;
        *turns.0.lock() = Some(self.asked.clone());
        Ok(Turn { turns, phase: Some(self.phase.clone()) })
    }

    /// The call has ended: stopping it has no effect any more.
    pub fn end(&self) {
        *self.phase.lock() = Phase::Ended;
    }
}

/// The flag of the call that has the turn in a transaction.
#[derive(Default)]
pub(super) struct Turns(Mutex<Option<Arc<AtomicBool>>>);

impl Turns {
    /// Makes the connection of a transaction check the flag of the call that has the turn.
    pub fn of(connection: &Connection) -> Arc<Turns> {
        let turns = Arc::new(Turns::default());
        let watched = turns.clone();
        connection.set_interrupt_hook(move || {
            watched.0.lock().as_ref().is_some_and(|asked| asked.load(Ordering::Relaxed))
        });
        turns
    }

    /// Stops the call that has the turn.
    pub fn stop(&self) {
        if let Some(asked) = &*self.0.lock() {
            asked.store(true, Ordering::Relaxed);
        }
    }

    /// A turn that cannot be stopped: that of a commit.
    pub fn begin(&self) -> Turn<'_> {
        *self.0.lock() = Some(Arc::default());
        Turn { turns: self, phase: None }
    }
}

/// A call's turn. The call that has it holds the lock of the transaction's state.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    phase: Option<Arc<Mutex<Phase>>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.turns.0.lock() = None;
        if let Some(phase) = &self.phase {
            *phase.lock() = Phase::Drawing;
        }
    }
}

/// Stops a call whose client has gone.
pub(super) struct StopOnDrop {
    pub stop: Stop,
    /// How long it may continue.
    pub grace: Duration,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if *self.stop.phase.lock() != Phase::Ended {
            self.stop.ask(self.grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_session::Database;

    #[test]
    fn a_waiting_call_is_stopped_without_stopping_the_running_one() {
        let mut connection = Database::memory().unwrap().connect();
        let turns = Turns::of(&connection);
        let (first, second) = (
            Stop::in_turn(&turns, &connection.cancel_handle()),
            Stop::in_turn(&turns, &connection.cancel_handle()),
        );
        let turn = first.begin_turn(&turns).unwrap();
        assert!(!second.ask_once());
        connection.execute("SELECT count(*) FROM generate_series(1, 100000)").unwrap();
        drop(turn);
        assert_eq!(second.begin_turn(&turns).err().unwrap().state(), SqlState::QUERY_CANCELED);
        // A call that has ended is not stopped.
        first.end();
        assert!(first.ask_once());
    }

    /// Each run of a statement lowers the flag of its connection.
    #[test]
    fn a_stopped_call_remains_stopped() {
        let mut connection = Database::memory().unwrap().connect();
        let stop = Stop::alone(&connection);
        connection.execute("SELECT 1").unwrap();
        stop.ask(Duration::ZERO);
        for _ in 0..3 {
            let silent =
                "SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b";
            assert_eq!(connection.execute(silent).unwrap_err().state(), SqlState::QUERY_CANCELED);
        }
        assert!(stop.check().is_err());
    }
}
