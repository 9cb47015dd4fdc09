//! Making a replica a primary while it is open.
//!
//! ```text
//! Idle ── asked for ──> Wanted ── nothing is received any more ──> Replaying ── all is replayed ──> Done
//!   ^                     │                                            │
//!   └──── in vain ────────┴───────────── it has failed ────────────────┘
//! ```
//! The thread that receives ends receiving: at once if it is forced, and otherwise once the primary has handed over. The thread that
//! replays does the rest. Whoever has asked waits.
//!
//! Invariant: without force, a replica becomes a primary only after the one that it has followed has said that it is none any more, and
//! with the whole of its log.

use firn_base::sync::{Condvar, Mutex};
use firn_base::{Epoch, Error, Result, SqlState, clock};
use firn_log::LogPoint;
use firn_txn::ClusterId;
use std::time::Duration;

/// How a replica is to become a primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Promotion {
    /// The primary hands over. Nothing is lost, and the primary becomes a replica.
    Handover {
        /// Where the primary reaches this replica: `HOST:PORT`, or a URL.
        server: String,
    },
    /// With what the replica has received, whatever the primary does. The replica begins a cluster of its own.
    Forced,
    /// The voters have appointed it, as the primary of an epoch.
    Appointed(Epoch),
}

impl Promotion {
    /// Whether nothing is received any more before it.
    fn ends_receiving(&self) -> bool {
        !matches!(self, Promotion::Handover { .. })
    }
}

/// As what a replica becomes a primary, once everything is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Succession {
    /// As the next one of its cluster.
    Next,
    /// In a cluster of its own.
    InCluster(ClusterId),
    /// In an epoch of its cluster, once a majority of the voters has the beginning of that.
    InEpoch(Epoch),
}

/// How often one that waits looks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The promotion of a replica, which its threads and those that ask for it share.
#[derive(Default, Debug)]
pub(crate) struct Promoting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    stage: Stage,
    /// Whether the log is being received.
    is_receiving: bool,
    /// How many have failed.
    failures: u64,
    failure: Option<Error>,
    /// Why none can succeed any more.
    is_hopeless: bool,
}

#[derive(Default, Debug)]
enum Stage {
    #[default]
    Idle,
    Wanted {
        promotion: Promotion,
        /// Whether the primary has been asked over the present connection.
        is_asked: bool,
        /// Whether nobody waits for it any more.
        is_withdrawn: bool,
    },
    /// Everything that has been received is replayed. Then the replica becomes a primary.
    Replaying(Succession),
    /// It is a primary, whose log begins here.
    Done(LogPoint),
}

/// What the thread that receives is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// To receive.
    Nothing,
    /// To ask the primary to hand over, once that is possible, unless it has been asked.
    Ask,
    /// To receive nothing any more.
    End,
}

impl Promoting {
    /// Promotes the replica, and waits for that, for so long at most, if it waits at all. Returns where the log of the former primary ends;
    /// `None` if it has not waited, or the time has passed: then it is given up, unless the primary has been asked already.
    ///
    /// Errors: those of `check`, which is called again and again; 55006 if another one waits for it; what the primary says; those of replay
    /// and of the disk.
    pub fn run(
        &self,
        promotion: Promotion,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<LogPoint>> {
        let failures = self.ask(promotion)?;
        let Some(longest) = longest else { return Ok(None) };
        let until = clock::now().checked_add(longest);
        let mut state = self.state.lock();
        loop {
            if let Stage::Done(point) = state.stage {
                return Ok(Some(point));
            }
            if state.failures > failures {
                return Err(state.failure.clone().expect("it has failed"));
            }
            let left = until.map(|until| until.saturating_duration_since(clock::now()));
            let checked = if left == Some(Duration::ZERO) { Ok(None) } else { check().map(Some) };
            if !matches!(checked, Ok(Some(()))) {
                state.withdraw();
                return checked.map(|_| None);
            }
            self.changed.wait_for(&mut state, left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
        }
    }

    /// Asks for a promotion. Returns how many have failed before.
    fn ask(&self, promotion: Promotion) -> Result<u64> {
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.as_ref().filter(|_| state.is_hopeless) {
            return Err(failure.clone());
        }
        match &mut state.stage {
            Stage::Idle => {}
            // Of the same primary, which has not answered yet.
            Stage::Wanted { is_withdrawn, is_asked, .. } if *is_withdrawn => {
                let is_asked = *is_asked && !promotion.ends_receiving();
                state.stage = Stage::Wanted { promotion, is_asked, is_withdrawn: false };
                state.end_if_received();
                return Ok(state.failures);
            }
            Stage::Done(_) => {
                let message = "the server is a primary already";
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            _ => return Err(Error::new(SqlState::OBJECT_IN_USE, "the server is being promoted already")),
        }
        state.stage = Stage::Wanted { promotion, is_asked: false, is_withdrawn: false };
        state.end_if_received();
        self.changed.notify_all();
        Ok(state.failures)
    }

    /// Begins to receive. False if nothing is to be received any more.
    pub fn begin_receiving(&self) -> bool {
        let mut state = self.state.lock();
        state.is_receiving = !matches!(state.stage, Stage::Replaying(_) | Stage::Done(_));
        state.is_receiving
    }

    /// What the thread that receives is to do next.
    pub fn wish(&self) -> Wish {
        match &self.state.lock().stage {
            Stage::Wanted { promotion, .. } if promotion.ends_receiving() => Wish::End,
            Stage::Wanted { .. } => Wish::Ask,
            _ => Wish::Nothing,
        }
    }

    /// The server to which the primary is to hand over, if it is to be asked now. Then it counts as asked.
    pub fn take_request(&self) -> Option<String> {
        match &mut self.state.lock().stage {
            Stage::Wanted { promotion: Promotion::Handover { server }, is_asked, .. } if !*is_asked => {
                *is_asked = true;
                Some(server.clone())
            }
            _ => None,
        }
    }

    /// Nothing can be replayed any more, or the database is to be opened again: each promotion fails for this reason.
    pub fn give_up(&self, error: Error) {
        let mut state = self.state.lock();
        state.fail(error);
        state.is_hopeless = true;
        self.changed.notify_all();
    }

    /// Notes that nothing is received any more: because the primary has handed over, or for this reason.
    pub fn end_receiving(&self, ended: std::result::Result<(), &Error>) {
        let mut state = self.state.lock();
        state.is_receiving = false;
        state.end_if_received();
        let Stage::Wanted { is_asked, is_withdrawn, .. } = &mut state.stage else { return };
        match ended {
            Ok(()) => state.stage = Stage::Replaying(Succession::Next),
            // It has refused, and has not given up anything.
            Err(error) if *is_asked && error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => {
                state.fail((*error).clone());
            }
            // It may have given up: it is asked again over the next connection.
            Err(_) if *is_withdrawn => state.stage = Stage::Idle,
            Err(_) => *is_asked = false,
        }
        self.changed.notify_all();
    }

    /// As what the replica becomes a primary once everything is replayed; `None` if it is not to become one.
    pub fn replaying(&self) -> Option<Succession> {
        match self.state.lock().stage {
            Stage::Replaying(succession) => Some(succession),
            _ => None,
        }
    }

    /// Notes that it has succeeded, or failed.
    pub fn finish(&self, outcome: Result<LogPoint>) {
        let mut state = self.state.lock();
        match outcome {
            Ok(point) => state.stage = Stage::Done(point),
            Err(error) => state.fail(error),
        }
        self.changed.notify_all();
    }

    /// Whether it has succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Done(_))
    }
}

impl State {
    /// Lets everything be replayed, if nothing is received and nothing more is to be received.
    fn end_if_received(&mut self) {
        let Stage::Wanted { promotion, .. } = &self.stage else { return };
        let succession = match promotion {
            Promotion::Handover { .. } => return,
            Promotion::Forced => Succession::InCluster(ClusterId::random()),
            Promotion::Appointed(epoch) => Succession::InEpoch(*epoch),
        };
        if !self.is_receiving {
            self.stage = Stage::Replaying(succession);
        }
    }

    fn fail(&mut self, error: Error) {
        (self.stage, self.failure) = (Stage::Idle, Some(error));
        self.failures += 1;
    }

    /// Gives it up, unless the primary may give up the database.
    fn withdraw(&mut self) {
        match &mut self.stage {
            Stage::Wanted { is_asked: true, is_withdrawn, .. } => *is_withdrawn = true,
            Stage::Wanted { .. } => self.stage = Stage::Idle,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> Promotion {
        Promotion::Handover { server: "b:5432".into() }
    }

    fn lost() -> Error {
        Error::new(SqlState::CONNECTION_FAILURE, "lost")
    }

    #[test]
    fn a_handover_is_asked_for_again_over_each_connection_until_it_is_given_up() {
        let promoting = Promoting::default();
        assert!(promoting.begin_receiving());
        assert_eq!(promoting.wish(), Wish::Nothing);
        promoting.ask(handover()).unwrap();
        assert_eq!(promoting.ask(handover()).unwrap_err().state(), SqlState::OBJECT_IN_USE);
        for _ in 0..2 {
            assert_eq!(promoting.wish(), Wish::Ask);
            assert_eq!(promoting.take_request().as_deref(), Some("b:5432"));
            assert_eq!(promoting.take_request(), None);
            promoting.end_receiving(Err(&lost()));
            assert!(promoting.begin_receiving());
        }
        promoting.take_request().unwrap();
        promoting.state.lock().withdraw();
        // The primary may still answer, and another one may wait for that.
        promoting.ask(handover()).unwrap();
        assert_eq!(promoting.take_request(), None);
        promoting.state.lock().withdraw();
        promoting.end_receiving(Err(&lost()));
        assert!(promoting.begin_receiving());
        assert_eq!(promoting.wish(), Wish::Nothing);
    }

    #[test]
    fn an_answer_decides_and_a_forced_promotion_waits_only_for_what_is_being_received() {
        let promoting = Promoting::default();
        let refusal = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no");
        assert!(promoting.begin_receiving());
        promoting.ask(handover()).unwrap();
        promoting.take_request().unwrap();
        promoting.end_receiving(Err(&Error::new(SqlState::DISK_FULL, "of the replica itself")));
        assert_eq!(promoting.state.lock().failures, 0);
        assert!(promoting.begin_receiving());
        promoting.take_request().unwrap();
        promoting.end_receiving(Err(&refusal));
        assert_eq!(promoting.state.lock().failures, 1);
        assert!(promoting.replaying().is_none() && promoting.begin_receiving());

        promoting.ask(Promotion::Forced).unwrap();
        assert!(promoting.wish() == Wish::End && promoting.replaying().is_none());
        promoting.end_receiving(Err(&lost()));
        assert!(
            matches!(promoting.replaying(), Some(Succession::InCluster(_))) && !promoting.begin_receiving()
        );
        promoting.finish(Err(refusal));
        assert!(promoting.begin_receiving());
        promoting.end_receiving(Err(&lost()));

        // Nothing is received: a connection is being made, perhaps.
        promoting.ask(Promotion::Forced).unwrap();
        assert!(promoting.replaying().is_some() && !promoting.begin_receiving());
        promoting.finish(Ok(LogPoint::START));
        assert!(promoting.is_done() && !promoting.begin_receiving());
        assert!(promoting.ask(handover()).is_err());

        let promoting = Promoting::default();
        promoting.ask(handover()).unwrap();
        promoting.give_up(lost());
        assert_eq!(promoting.ask(handover()).unwrap_err().message(), "lost");
    }
}
