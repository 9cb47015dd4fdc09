//! The side of a server towards those that follow its log: sends groups as soon as they are committed, and to voters while they are written
//! to the disk; and notes how far each has come.
//!
//! A slow or silent follower delays nothing: it reads the log from files, and its pin retains them only up to
//! `max_slot_wal_keep_size`. One whose pin is broken gets an error and begins anew.

use crate::channel::{Channel, Received};
use crate::message::{FollowerStatus, Reply, Request};
use crate::quorum::{Quorum, Rules};
use crate::source::{LogSender, send, send_file};
use crate::standbys::{StandbyNames, Standbys};
use firn_base::clock::Instant;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Lsn, NodeId, Result, SqlState, clock};
use firn_log::{LogPoint, Waited};
use firn_txn::Engine;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// A position is sent this often.
const POSITION_EVERY: Duration = Duration::from_secs(1);
/// To a voter, which is to notice when this server is gone, this often.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(50);
/// That more is committed is sent to a voter after so long, unless it goes with the next group before: where commits follow one another, each
/// is one message.
const COMMITTED_AFTER: Duration = Duration::from_micros(500);
/// One that has not answered for so long is gone.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// How many positions are remembered with the times when they were sent, to measure how far the other side is behind.
const MOST_SENT: usize = 1024;
/// Commits that wait for replay find it quickly for so long after the last group was sent; after that within the time of a pulse.
const QUICK_REPLAY: Duration = Duration::from_secs(1);
/// What is in transit: one that lacks more is catching up.
const IN_TRANSIT_BYTES: u64 = 16 << 20;

/// The other side of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The name that it has given itself.
    pub name: String,
    /// Which voter it is, if it is one.
    pub voter: Option<NodeId>,
    /// The session of the connection.
    pub session: u32,
    /// Its address and port, unless it is connected by a Unix domain socket.
    pub client: Option<(IpAddr, u16)>,
    /// When it was connected, in microseconds since 1970 UTC.
    pub begun: i64,
}

/// How far one that follows the log has come.
#[derive(Clone, PartialEq, Debug)]
pub struct SenderStatus {
    /// The other side.
    pub peer: Peer,
    /// Whether it lacks more than what is in transit.
    pub is_catching_up: bool,
    /// Up to where the log has been sent.
    pub sent: Lsn,
    /// How far it has come by its last answer.
    pub reached: FollowerStatus,
    /// How long it took until what was sent was received, was on disk and was replayed there, and the answer was here.
    pub lags: [Option<Duration>; 3],
    /// When its last answer has come, in microseconds since 1970 UTC.
    pub reply_time: Option<i64>,
}

/// Those that follow the log of a server.
#[derive(Clone, Default, Debug)]
pub struct Senders {
    list: Arc<Mutex<Vec<Arc<Mutex<SenderStatus>>>>>,
    quorum: Quorum,
    standbys: Standbys,
}

/// When a position is sent although nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pulse {
    /// By the clock.
    Steady,
    /// Only when it is asked for.
    Asked,
    /// Now, which is this time; then only when it is asked for.
    Now(u64),
}

impl Senders {
    /// Which of them commits wait for.
    pub fn standbys(&self) -> &Standbys {
        &self.standbys
    }

    /// Commits wait for these from now on, also those that wait already.
    pub fn set_standby_names(&self, names: Option<StandbyNames>) {
        self.standbys.set(names, self);
    }

    /// What of the log is committed, if there are voters.
    pub fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// Counts by a set of voters from now on: see [`Quorum::count_by`]. What they have answered before counts as well, since one answers
    /// only when it has more.
    pub fn count_by(&self, engine: &Engine, own: NodeId, voters: impl Iterator<Item = u64>, rules: Rules) {
        self.quorum.count_by(engine, own, voters, rules);
        for status in self.list() {
            if let (Some(voter), Some(_)) = (status.peer.voter, status.reply_time) {
                self.quorum.note(engine, voter, status.reached.flushed, 0);
            }
        }
    }

    /// How far each has come, in the order in which they connected.
    pub fn list(&self) -> Vec<SenderStatus> {
        self.list.lock().iter().map(|status| status.lock().clone()).collect()
    }

    fn add(&self, status: SenderStatus) -> Listed {
        let status = Arc::new(Mutex::new(status));
        self.list.lock().push(status.clone());
        Listed { senders: self.clone(), status }
    }
}

/// A connection in the list, until it is dropped.
struct Listed {
    senders: Senders,
    status: Arc<Mutex<SenderStatus>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.senders.list.lock().retain(|other| !Arc::ptr_eq(other, &self.status));
        // Another one may count in its place.
        self.senders.standbys.note(&self.senders);
    }
}

/// The sending of the log to one that follows it. Each of its steps ends by itself.
pub(crate) struct Sending {
    engine: Arc<Engine>,
    log: LogSender,
    listed: Listed,
    /// Positions and when they were sent: the oldest first.
    sent: VecDeque<(Lsn, Instant)>,
    /// When a position was sent last.
    positioned_at: Instant,
    answered_at: Instant,
    /// Up to where the other side knows that the log is committed.
    committed: Lsn,
    /// Since when it does not know that more is committed.
    behind_since: Option<Instant>,
    pub pulse: Pulse,
    /// Which voter the other side is, if it counts as one.
    voter: Option<NodeId>,
    /// Up to where it has the log on disk.
    flushed: Lsn,
    /// When an answer was asked for last.
    beat_at: u64,
    /// Whether commits may wait for it without a quorum, and in which version of the names of standbys.
    synchronous: (u64, bool),
    replayed: Lsn,
}

impl Sending {
    /// Begins at a point, which the other side has asked for. Errors as of following the log from there.
    pub fn begin(
        engine: Arc<Engine>,
        channel: &mut dyn Channel,
        senders: &Senders,
        peer: Peer,
        from: LogPoint,
    ) -> Result<Sending> {
        // Others get only what is committed, so they are never ahead of the cluster.
        let voter = peer.voter.filter(|_| engine.voter().is_some() && engine.written_epoch().is_some());
        let follower = engine.follow(&peer.name, from)?.read_promptly();
        let mut log = LogSender::new(if voter.is_some() { follower.read_sealed() } else { follower });
        send(channel, &Reply::Log(from))?;
        log.begin(channel)?;
        channel.flush()?;
        let reached = FollowerStatus { received: from.lsn, flushed: from.lsn, replayed: Lsn(0) };
        let listed = senders.add(SenderStatus {
            peer: Peer { voter, ..peer },
            is_catching_up: true,
            sent: from.lsn,
            reached,
            lags: [None; 3],
            reply_time: None,
        });
        let now = clock::now();
        Ok(Sending {
            engine,
            log,
            listed,
            sent: VecDeque::new(),
            positioned_at: now.checked_sub(POSITION_EVERY).unwrap_or(now),
            answered_at: now,
            committed: Lsn(0),
            behind_since: None,
            pulse: Pulse::Steady,
            voter,
            flushed: Lsn(0),
            beat_at: 0,
            // Not a version: it is looked up first.
            synchronous: (u64::MAX, false),
            replayed: Lsn(0),
        })
    }

    /// Up to where the log has been sent.
    pub fn sent(&self) -> Lsn {
        self.log.sent()
    }

    /// Notes how far the other side has come.
    /// `beat` is that of the position that it has answered, or 0.
    pub fn note(&mut self, reached: FollowerStatus, beat: u64) -> Result<()> {
        self.answered_at = clock::now();
        (self.flushed, self.replayed) = (reached.flushed, reached.replayed);
        let before = {
            // Before it is counted: who begins to count meanwhile finds it here.
            let mut status = self.listed.status.lock();
            status.reply_time = Some(clock::wall_clock_micros());
            std::mem::replace(&mut status.reached, reached)
        };
        if let Some(voter) = self.voter {
            self.listed.senders.quorum.note(&self.engine, voter, reached.flushed, beat);
        }
        // What is not on disk there is retained here.
        self.log.follower.pin().advance(reached.flushed.min(self.log.sent()))?;
        let since = |lsn: Lsn| {
            let newest = self.sent.partition_point(|(sent, _)| *sent <= lsn).checked_sub(1)?;
            Some(self.sent[newest].1.elapsed())
        };
        let positions = [
            (before.received, reached.received),
            (before.flushed, reached.flushed),
            (before.replayed, reached.replayed),
        ];
        let mut status = self.listed.status.lock();
        for (lag, (before, now)) in status.lags.iter_mut().zip(positions) {
            if now > before {
                *lag = since(now).or(*lag);
            }
        }
        status.is_catching_up = lacks_much(self.engine.durable_lsn(), reached);
        drop(status);
        if self.is_synchronous() {
            self.listed.senders.standbys.note(&self.listed.senders);
        }
        let passed = self.sent.partition_point(|(sent, _)| *sent < reached.replayed);
        self.sent.drain(..passed);
        Ok(())
    }

    /// Sends what is on disk, and a position now and then. Returns whether there was anything of the log.
    pub fn send_some(&mut self, channel: &mut dyn Channel) -> Result<bool> {
        if self.answered_at.elapsed() > LONGEST_SILENCE {
            let message = "the connection is ended because the other side does not answer";
            return Err(Error::new(SqlState::CONNECTION_FAILURE, message));
        }
        let engine = self.engine.clone();
        let mut answers = Vec::new();
        let mut beating =
            Beating { beat_at: self.beat_at, voter: self.voter, quorum: &self.listed.senders.quorum };
        let sent = self.log.send_some(channel, Lsn(u64::MAX), |channel, follower, file| {
            send_file(&engine, channel, file, &[follower.pin()], |channel| {
                beating.exchange(&engine, channel, &mut answers)
            })
        })?;
        self.beat_at = beating.beat_at;
        for (reached, beat) in answers {
            self.note(reached, beat)?;
        }
        let durable = engine.durable_lsn();
        if sent {
            self.note_sent(durable);
        }
        let committed = engine.committed_lsn();
        let every = if self.voter.is_some() { HEARTBEAT_EVERY } else { POSITION_EVERY };
        let is_due = match self.pulse {
            Pulse::Steady => self.positioned_at.elapsed() >= every,
            Pulse::Asked => false,
            Pulse::Now(_) => true,
        };
        if sent {
            self.committed = self.log.committed();
        }
        let is_due = is_due || self.behind_since.is_some_and(|since| since.elapsed() >= COMMITTED_AFTER);
        if is_due {
            let sent_at = clock::wall_clock_micros();
            let beat = self.beat();
            send(channel, &Reply::Position { durable, committed, sent_at, beat })?;
            (self.positioned_at, self.committed) = (clock::now(), committed);
        }
        if let Pulse::Now(_) = self.pulse {
            self.pulse = Pulse::Asked;
        }
        self.behind_since = match self.voter {
            Some(_) if committed > self.committed => Some(self.behind_since.unwrap_or_else(clock::now)),
            _ => None,
        };
        if sent || is_due {
            channel.flush()?;
        }
        Ok(sent)
    }

    /// The time of a position that a voter is to answer; 0 if none is due.
    fn beat(&mut self) -> u64 {
        let now = match self.pulse {
            Pulse::Now(now) => now,
            Pulse::Steady | Pulse::Asked => clock::boot_micros(),
        };
        let is_due = self.pulse == Pulse::Now(now)
            || now.saturating_sub(self.beat_at) >= HEARTBEAT_EVERY.as_micros() as u64;
        if self.voter.is_none() || !is_due {
            return 0;
        }
        self.beat_at = now;
        now
    }

    /// Waits until there is something to be sent, for so long at most. Error: 57P01 if the log has been closed.
    pub fn wait_for_log(&mut self, longest: Duration) -> Result<()> {
        let follower = &mut self.log.follower;
        let waited = match self.behind_since {
            Some(since) => {
                follower.wait(Lsn(u64::MAX), longest.min(COMMITTED_AFTER.saturating_sub(since.elapsed())))?
            }
            None => follower.wait_for_news(self.committed, longest)?,
        };
        match waited {
            Waited::Closed => Err(Error::new(SqlState::ADMIN_SHUTDOWN, "the server has closed its log")),
            _ => Ok(()),
        }
    }

    /// Whether one for which commits wait has not answered yet that it has everything that was sent to it: on disk, or replayed.
    pub fn awaits_answer(&mut self) -> bool {
        let is_synchronous = self.is_synchronous();
        let standbys = &self.listed.senders.standbys;
        if (self.voter.is_some() || is_synchronous) && self.flushed < self.log.sent() {
            return true;
        }
        is_synchronous
            && standbys.awaits_replay()
            && self.replayed < self.log.sent()
            && self.sent.back().is_some_and(|(_, sent)| sent.elapsed() < QUICK_REPLAY)
    }

    /// Whether commits may wait for the other side without a quorum.
    fn is_synchronous(&mut self) -> bool {
        let standbys = &self.listed.senders.standbys;
        let version = standbys.version();
        if self.synchronous.0 != version {
            let name = self.listed.status.lock().peer.name.clone();
            self.synchronous = (version, standbys.counts(&name));
        }
        self.synchronous.1
    }

    fn note_sent(&mut self, durable: Lsn) {
        let to = self.log.sent();
        if self.sent.len() == MOST_SENT {
            // Every second one is enough.
            let mut keep = false;
            self.sent.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.sent.push_back((to, clock::now()));
        let mut status = self.listed.status.lock();
        status.sent = to;
        status.is_catching_up = lacks_much(durable, status.reached);
    }
}

/// What a primary exchanges with a voter while it sends a file.
struct Beating<'q> {
    beat_at: u64,
    voter: Option<NodeId>,
    quorum: &'q Quorum,
}

impl Beating<'_> {
    /// Sends a position with a beat if one is due, and takes the answers that have arrived.
    fn exchange(
        &mut self,
        engine: &Engine,
        channel: &mut dyn Channel,
        answers: &mut Vec<(FollowerStatus, u64)>,
    ) -> Result<()> {
        let Some(voter) = self.voter else { return Ok(()) };
        let now = clock::boot_micros();
        if now.saturating_sub(self.beat_at) < HEARTBEAT_EVERY.as_micros() as u64 {
            return Ok(());
        }
        self.beat_at = now;
        let (durable, committed) = (engine.durable_lsn(), engine.committed_lsn());
        send(
            channel,
            &Reply::Position { durable, committed, sent_at: clock::wall_clock_micros(), beat: now },
        )?;
        channel.flush()?;
        let mut message = Vec::new();
        while channel.receive_within(&mut message, Duration::ZERO)? == Received::Message {
            let Request::Status { reached, beat } = Request::decode(&message)? else {
                return Err(Error::new(
                    SqlState::PROTOCOL_VIOLATION,
                    "a request of the replication protocol comes at the wrong time",
                ));
            };
            self.quorum.note(engine, voter, reached.flushed, beat);
            answers.push((reached, beat));
        }
        Ok(())
    }
}

/// Whether more is missing than what is in transit.
fn lacks_much(durable: Lsn, reached: FollowerStatus) -> bool {
    durable.0.saturating_sub(reached.received.0) > IN_TRANSIT_BYTES
}
