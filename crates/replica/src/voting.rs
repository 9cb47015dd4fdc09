//! A running voter: a thread that does what the state of the cluster asks of this server ([`Watch`]).

use crate::cluster::{Change, Cluster, Duty, End, Outcome, Patience, Refusal, Standing, Watch};
use crate::following::FollowingWatch;
use crate::promotion::Promotion;
use crate::quorum::Rules;
use crate::senders::Senders;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Epoch, Lsn, NodeId, Result, SqlState, clock};
use firn_txn::Engine;
use std::time::Duration;

/// How often the thread looks whether something is to be done.
const TICK: Duration = Duration::from_millis(10);
/// How long a primary that is not heard takes no part in electing a leader, and how long it does after that. In microseconds.
const ASIDE: u64 = 2_000_000;
/// How long a voter waits for what, on a network of one site.
const PATIENCE: Patience = Patience { lease: 500_000, choice: 800_000 };

/// What the voters agree on, however they do it.
pub trait ControlPlane: Send + Sync {
    /// The state that this server has applied last. It may be behind.
    fn state(&self) -> Arc<Cluster>;

    /// Waits until it knows something else, for so long at most.
    fn wait(&self, known: &Arc<Cluster>, longest: Duration) -> Arc<Cluster>;

    /// Proposes a change, and waits until it is made or refused. Error: 57P03 if that is unknown.
    fn propose(&self, change: Change) -> Result<Outcome>;

    /// The same for what follows from a state. `None` as soon as another one is known, which may have the change or not: then something else
    /// may be to be done.
    fn propose_in(&self, state: &Arc<Cluster>, change: Change) -> Result<Option<Outcome>>;

    /// Lets the others decide without this server, or takes part again: one that reaches the others, and is not reached by them, would keep
    /// them from deciding.
    fn step_aside(&self, is_aside: bool);
}

/// Whom a voter follows: `HOST:PORT`. `None` if no primary is known.
#[derive(Clone, Default, Debug)]
pub struct Leader(Arc<Mutex<Option<String>>>);

impl Leader {
    /// Where it is.
    pub fn address(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Notes where it is.
    pub fn set(&self, address: Option<String>) {
        *self.0.lock() = address;
    }
}

/// Why a voter's database is to be closed and opened again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VotingEnd {
    /// It was a primary, and another one is it now.
    Deposed,
    /// It is no voter any more.
    Removed,
}

/// What a voter is made of.
pub struct Options {
    /// The database.
    pub engine: Arc<Engine>,
    /// What the voters agree on.
    pub control: Arc<dyn ControlPlane>,
    /// How it follows; `None` if it was a primary before there were voters.
    pub following: Option<FollowingWatch>,
    /// Those who follow it.
    pub senders: Senders,
    /// Is told whom to follow.
    pub leader: Leader,
    /// The server at an address, with what is needed to connect to it.
    pub url: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// Gets lines for the person who runs the server.
    pub report: Box<dyn Fn(&str) + Send + Sync>,
    /// Called once when the database is to be closed and opened again.
    pub ended: Box<dyn Fn(VotingEnd) + Send + Sync>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

/// A voter, until it is dropped.
#[derive(Debug)]
pub struct Voting {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Voting {
    /// Begins to do what the cluster asks of this voter.
    pub fn start(options: Options) -> Voting {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stopping = is_stopping.clone();
        let thread = thread::spawn("firn-voting", move || options.run(&stopping));
        Voting { is_stopping, thread: Some(thread) }
    }
}

impl Drop for Voting {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Options {
    fn run(&self, stopping: &AtomicBool) {
        let mut watch = Watch::new(PATIENCE, clock::boot_micros());
        // Those that were begun before the database was opened: not what it begins meanwhile.
        let known = self.engine.known_epoch();
        let mut state = self.control.state();
        let mut reported = String::new();
        let (mut is_aside, mut unheard_since) = (false, None);
        self.control.step_aside(false);
        while !stopping.load(Ordering::SeqCst) {
            // In this order: what has been heard before is still waited for.
            self.following.iter().for_each(|following| following.refuse_before(state.epoch()));
            let heard = self.following.as_ref().and_then(FollowingWatch::heard);
            if let Some((epoch, at)) = heard {
                watch.hear(epoch, at);
            }
            if self.following.as_ref().is_some_and(FollowingWatch::is_copying) {
                // The copy comes from the primary, which is there.
                watch.hear(state.epoch(), clock::boot_micros());
            }
            let Some(standing) = self.standing(known) else { return };
            let now = clock::boot_micros();
            unheard_since = self.is_unheard().then(|| unheard_since.unwrap_or(now));
            // In turns: perhaps it is the only one that can lead the others.
            let wants = unheard_since.is_some_and(|since| ((now - since) / ASIDE).is_multiple_of(2));
            if is_aside != wants {
                is_aside = wants;
                self.control.step_aside(is_aside);
            }
            let duty = watch.duty(&state, &standing, clock::boot_micros());
            let done = match &duty {
                Duty::Nothing => Ok(()),
                Duty::Promise(epoch) => {
                    let promise = || self.engine.promise(*epoch).map(drop);
                    match &self.following {
                        // The one that is followed may have been heard, and answered, a moment ago: then it relies on that.
                        Some(following) => following.unless_heard_since(heard, promise),
                        None => promise(),
                    }
                }
                Duty::Propose(change) => self.control.propose_in(&state, change.clone()).map(|outcome| {
                    // If it is refused otherwise, the state has changed.
                    if outcome == Some(Err(Refusal::Unknown)) {
                        watch.note_unknown();
                    }
                }),
                Duty::Lead(epoch) => self.lead(Promotion::Appointed(*epoch)),
                Duty::Follow(primary) => {
                    self.follow(&state, *primary);
                    Ok(())
                }
                Duty::Adopt => {
                    // One that was a primary before there were voters has committed all that it has written.
                    let floor = self.begun().unwrap_or(Lsn(0));
                    let voters = state.voters.keys().copied();
                    let rules = Rules { version: state.version, floor, lease: PATIENCE.lease };
                    self.senders.count_by(&self.engine, standing.node, voters, rules);
                    Ok(())
                }
                Duty::StepDown => return (self.ended)(VotingEnd::Deposed),
                Duty::Leave => {
                    // Whom it follows as a replica.
                    state.primary().into_iter().for_each(|primary| self.follow(&state, primary));
                    match self.engine.cease_to_vote() {
                        Ok(()) => return (self.ended)(VotingEnd::Removed),
                        Err(error) => Err(error),
                    }
                }
            };
            match done {
                Ok(()) => reported.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if reported != text {
                        (self.report)(&format!("voter: {text}"));
                        reported = text;
                    }
                    clock::sleep(TICK);
                }
            }
            state = match duty {
                Duty::Nothing | Duty::Follow(_) | Duty::Lead(_) => self.control.wait(&state, TICK),
                _ => self.control.state(),
            };
        }
    }

    /// Whether it is a primary whose lease has ended long ago: a majority does not hear it, or is not heard.
    fn is_unheard(&self) -> bool {
        let ended = |until: u64| clock::boot_micros() > until.saturating_add(PATIENCE.lease);
        !self.engine.is_replica() && self.engine.lease().is_some_and(|until| until > 0 && ended(until))
    }

    /// Where the beginning of the epoch ends for which it has been appointed, if it was.
    fn begun(&self) -> Option<Lsn> {
        self.following.as_ref().and_then(FollowingWatch::begun)
    }

    /// What it is; `None` if it is no voter any more.
    fn standing(&self, known: Epoch) -> Option<Standing> {
        let voter = self.engine.voter()?;
        let point = self.engine.log_point().ok()?;
        Some(Standing {
            node: voter.node,
            promised: voter.promised,
            end: End { epoch: point.epoch.0, position: point.lsn.0 },
            known,
            // A replica that begins an epoch, once it is known where that begins.
            writes: self
                .engine
                .written_epoch()
                .filter(|_| !self.engine.is_replica() || self.begun().is_some()),
            commits_by: self.senders.quorum().version(),
            is_settled: self.engine.committed_lsn() == self.engine.durable_lsn(),
        })
    }

    fn lead(&self, promotion: Promotion) -> Result<()> {
        self.leader.set(None);
        let Some(following) = &self.following else { return Ok(()) };
        match following.promote(promotion, None, &|| Ok(())) {
            // It has been told already.
            Err(error) if error.state() == SqlState::OBJECT_IN_USE => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn follow(&self, state: &Cluster, primary: NodeId) {
        let address = state.member(primary).map(|member| member.address.clone());
        if address != self.leader.address() {
            address.iter().for_each(|address| self.engine.set_upstream(&(self.url)(address)));
            self.leader.set(address);
        }
    }
}
