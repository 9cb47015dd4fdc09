//! A voter: one of the servers that decide together who is the primary, and whose disks make a commit one of the cluster.
//!
//! What is committed on a voter is what a majority of the voters has on disk, the primary included. The log is told how far that is
//! ([`Engine::confirm`]); transactions, readers, checkpoints and replay wait for it.
//!
//! A voter promises not to take anything from the primary of an earlier epoch any more ([`Engine::promise`]), and then says where its log
//! ends. The promise is in the manifest before that. So a majority of promises ends an epoch: what its primary had committed is on the
//! disk of one of those who have promised. (Ongaro, "Consensus: Bridging Theory and Practice", §3.4 and §3.6: the promise is a vote, but
//! it is not given to a candidate.)
//!
//! The one with the last log is appointed, and begins the epoch ([`Replayer::begin_epoch`]). Nothing counts as committed before a
//! majority has the beginning of that epoch, with everything before it (§3.6.2 there). Then it is a primary ([`Replayer::take_over`]).

use crate::engine::{Engine, no_log};
use crate::replay::Replayer;
use firn_base::sync::{AtomicBool, AtomicU64, MutexGuard, Ordering};
use firn_base::{Epoch, Error, Lsn, NodeId, Result, SqlState, clock};
use firn_log::LogPoint;
use firn_log::faults::Fault;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often one that waits for a lease looks for it.
const LEASE_CHECK: Duration = Duration::from_millis(2);

/// What makes a database that of a voter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Voter {
    /// Which one it is.
    pub node: NodeId,
    /// It takes nothing from the primary of an earlier epoch.
    pub promised: Epoch,
    /// The log is known to be committed up to here.
    pub committed: Lsn,
}

/// Who sends the log to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The epoch in which it writes its log; 0 if it receives it.
    pub epoch: Epoch,
    /// As which voter the replica has asked for the log, if it was one.
    pub voter: Option<NodeId>,
}

/// The same in the manifest.
#[derive(Serialize, Deserialize)]
struct Stored {
    node: u64,
    promised: u64,
    committed: u64,
}

impl From<Stored> for Voter {
    fn from(stored: Stored) -> Voter {
        let Stored { node, promised, committed } = stored;
        Voter { node: NodeId(node), promised: Epoch(promised), committed: Lsn(committed) }
    }
}

impl From<Voter> for Stored {
    fn from(voter: Voter) -> Stored {
        Stored { node: voter.node.0, promised: voter.promised.0, committed: voter.committed.0 }
    }
}

/// Until when the server is certainly the primary, if it is one among voters.
#[derive(Debug)]
pub(crate) struct Lease {
    /// In microseconds of a clock that is never set; `u64::MAX` without other voters, and in a replica.
    until: AtomicU64,
    /// Whether it has promised to follow another one.
    is_lost: AtomicBool,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease { until: AtomicU64::new(u64::MAX), is_lost: AtomicBool::new(false) }
    }
}

impl Voter {
    /// Whether it takes messages over a connection to the primary of an epoch.
    pub fn takes_from(&self, epoch: Epoch) -> bool {
        epoch >= self.promised || Fault::OldPrimaryAccepted.is_made()
    }
}

impl Engine {
    /// No other server is the primary before a time, in microseconds of a clock that is never set; `None` if no other one can be.
    pub fn set_lease(&self, until: Option<u64>) {
        self.lease.until.store(until.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Until when no other server is the primary; `None` if no other one can be.
    pub fn lease(&self) -> Option<u64> {
        match self.lease.is_lost.load(Ordering::SeqCst) {
            true => Some(0),
            false => Some(self.lease.until.load(Ordering::SeqCst)).filter(|until| *until != u64::MAX),
        }
    }

    /// Waits until it is certain that no other server was the primary when this was called. Calls `check` now and then. A replica
    /// waits for nothing.
    ///
    /// Errors: those of `check`; 57P01 if another one is it.
    #[inline]
    pub fn wait_for_lease(&self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        match self.lease() {
            None => Ok(()),
            Some(until) if clock::boot_micros() < until => Ok(()),
            Some(_) => self.wait_for_next_lease(check),
        }
    }

    #[cold]
    fn wait_for_next_lease(&self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        // A replica that begins an epoch has none yet, and does not say that it shows the present.
        while !self.is_replica() && self.lease().is_some_and(|until| clock::boot_micros() >= until) {
            if self.lease.is_lost.load(Ordering::SeqCst) {
                return Err(deposed());
            }
            check()?;
            clock::sleep(LEASE_CHECK);
        }
        Ok(())
    }

    /// What makes it a voter, if it is one.
    pub fn voter(&self) -> Option<Voter> {
        *self.voting.lock()
    }

    /// Makes it a voter: from now on, nothing is committed that has not been [confirmed](Engine::confirm). What is committed now remains so.
    ///
    /// Errors: 55000 without a directory, or if it is one already; those of writing the manifest.
    pub fn begin_to_vote(&self, node: NodeId, promised: Epoch) -> Result<()> {
        let (store, log) = self.store_and_log().ok_or_else(no_log)?;
        let mut voting = self.voting.lock();
        if voting.is_some() {
            let message = "the server is a voter already";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        log.wait_durable(log.appended_lsn())?;
        let voter = Voter { node, promised, committed: log.committed_lsn() };
        store.change_role(|manifest| manifest.voter = Some(voter))?;
        *voting = Some(voter);
        log.require_confirmation();
        Ok(())
    }

    /// Makes it a server that is no voter: a primary, or a replica of the server that it follows.
    ///
    /// Error: 55000 if it has more on disk than it knows to be committed.
    pub fn cease_to_vote(&self) -> Result<()> {
        let (store, log) = self.store_and_log().ok_or_else(no_log)?;
        let mut voting = self.voting.lock();
        // Nothing is received meanwhile, which needs the lock.
        let end = log.appended_lsn();
        log.wait_durable(end)?;
        if log.committed_lsn() < end {
            let message = "the server may have more than is committed";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let known = self.upstream().filter(|known| !known.is_empty());
        let is_replica = self.is_replica();
        let mut has_ceased = false;
        store.change_role(|manifest| {
            let follows = known.or_else(|| manifest.follow_option.clone()).filter(|_| is_replica);
            // A replica must not be opened as a primary: without anybody to follow, it remains a voter of whom nobody knows.
            if follows.is_some() || !is_replica {
                (manifest.voter, manifest.follows) = (None, follows);
                has_ceased = true;
            }
        })?;
        if !has_ceased {
            let message = "the server knows nobody to follow";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        *voting = None;
        log.require_no_confirmation();
        Ok(())
    }

    /// Promises that nothing is taken any more from the primary of an epoch before this one. If it is such a primary itself, nothing is
    /// committed any more: commits that wait for confirmation get 08007. Returns where the log ends, which is on disk.
    ///
    /// Errors: 55000 if it is no voter; those of the disk, after which it has not promised.
    pub fn promise(&self, epoch: Epoch) -> Result<LogPoint> {
        let (store, log) = self.store_and_log().ok_or_else(no_log)?;
        let mut voting = self.voting.lock();
        let voter = voting.as_mut().ok_or_else(no_voter)?;
        if voter.promised < epoch {
            let promised = Voter { promised: epoch, committed: log.committed_lsn(), ..*voter };
            store.change_role(|manifest| manifest.voter = Some(promised))?;
            *voter = promised;
        }
        if !log.is_received() && log.epoch() < epoch {
            self.lease.is_lost.store(true, Ordering::SeqCst);
            log.refuse_appends(deposed());
            log.abandon(unknown_outcome());
        }
        log.wait_durable(log.appended_lsn())?;
        // Nothing has been received since, as that needs the lock.
        log.point()
    }

    /// For what is taken from a sender: error 55000 if the voter has promised to take nothing from its epoch any more, or is none any more,
    /// or was none when it asked for the log. That does not change while the result is held.
    pub(crate) fn check_promise(&self, sender: Sender) -> Result<impl Drop> {
        let voting: MutexGuard<'_, _> = self.voting.lock();
        let refused = |message: &str| Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        match &*voting {
            voter if voter.map(|voter| voter.node) != sender.voter => {
                refused("the server has become a voter, or is none any more")
            }
            Some(voter) if !voter.takes_from(sender.epoch) => {
                refused("the log comes from the primary of an earlier epoch")
            }
            _ => Ok(voting),
        }
    }

    /// The epoch in which the log is written; `None` if it is received, or there is none.
    pub fn written_epoch(&self) -> Option<Epoch> {
        self.log.as_ref().filter(|log| !log.is_received()).map(|log| log.epoch())
    }

    /// The latest epoch of which the log has a file.
    pub fn known_epoch(&self) -> Epoch {
        self.log.as_ref().map_or(Epoch(0), |log| log.epoch())
    }

    /// Ends all waits for other voters, if it is one: it is being stopped, or does not lead any more. What waits gets 08007.
    pub fn end_waits(&self) {
        if let (Some(_), Some(log)) = (self.voter(), &self.log) {
            let message =
                "the server is being stopped, and it is unknown whether the transaction is committed";
            log.abandon(Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message));
        }
    }

    /// A majority of the voters has everything before a position on disk, the primary included.
    pub fn confirm(&self, lsn: Lsn) {
        self.log.iter().for_each(|log| log.confirm(lsn));
    }

    /// From now on, nothing is committed before it is confirmed anew, if it is a voter: by another set of voters.
    pub fn confirm_anew(&self) {
        if let (Some(_), Some(log)) = (self.voter(), &self.log) {
            log.require_confirmation();
        }
    }

    /// Lets everything be committed that is on disk here: for a promotion by force.
    pub fn confirm_all(&self) {
        self.log.iter().for_each(|log| log.require_no_confirmation());
    }

    /// The position before which everything is committed: on disk here, and on the disks of a majority of the voters if there are any.
    pub fn committed_lsn(&self) -> Lsn {
        self.log.as_ref().map_or(Lsn(u64::MAX), |log| log.committed_lsn())
    }

    /// That position as a point of the log's history; that of an empty log without a directory.
    pub fn committed_point(&self) -> LogPoint {
        self.log.as_ref().map_or(LogPoint::START, |log| log.committed_point())
    }
}

impl Replayer {
    /// Begins an epoch for which the voter has been appointed: nothing is received any more, and the log is written here. Returns where it
    /// is committed once a majority has the beginning of the epoch. Replay goes on to there; then the voter [takes
    /// over](Replayer::take_over).
    ///
    /// Errors: 55000 if it is no voter, or has promised a later epoch; those of the disk, after which the database is to be closed.
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<Lsn> {
        let engine = self.engine().clone();
        engine.expect_replica()?;
        let (_, log) = engine.store_and_log().expect("a replica has a directory");
        let voting = engine.voting.lock();
        if voting.ok_or_else(no_voter)?.promised != epoch {
            let message = "the server has not promised to follow that epoch";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        log.end_receiving()?;
        // A file of that epoch, or of a later one, says that it has been begun here before.
        if log.epoch() >= epoch {
            let message = "the epoch has been begun before";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        log.begin_to_write(epoch);
        assert!(log.epoch() == epoch, "no later epoch has begun");
        drop(voting);
        // The time of no commit: those before it may not have been replayed.
        let end = loop {
            match log.append(firn_base::Time(0), &[])? {
                Some(end) => break end,
                None => log.make_room(0)?,
            }
        };
        log.wait_durable(end)?;
        Ok(end)
    }

    /// Makes the voter a primary if everything has been replayed up to the position that [`Replayer::begin_epoch`] has returned. Readers go on,
    /// with their snapshots. Transactions that have begun before do not write (25006). Returns whether it is one.
    pub fn take_over(&mut self, end: Lsn) -> Result<bool> {
        let engine = self.engine().clone();
        if engine.expect_replica()?.replayed() < end {
            return Ok(false);
        }
        engine.become_primary(self.point());
        Ok(true)
    }
}

#[cold]
fn no_voter() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the server is no voter")
}

#[cold]
fn deposed() -> Error {
    Error::new(SqlState::ADMIN_SHUTDOWN, "another server is the primary now")
        .with_hint("Connect to the present primary, and try again.")
}

#[cold]
fn unknown_outcome() -> Error {
    let message = "another server is the primary now, and it is unknown whether the transaction is committed";
    Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message)
        .with_hint("Look on the present primary what has become of it.")
}
