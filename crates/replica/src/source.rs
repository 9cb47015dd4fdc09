//! The side of a server: sends a copy of its database while transactions go on.
//!
//! 1. Pin the newest checkpoint, and the log from where it is asked for, or from the checkpoint on if it has been removed there.
//!    Nothing of that is removed until it has been sent.
//! 2. Send the checkpoint's files, except those that the other side has.
//! 3. Note how far the log is on disk. Send it up to there: before a group the headers of its segments, and the files that it names.
//!
//! One that follows the log gets it as it grows: groups as soon as they are on disk here. Its pin retains what it does not have on disk
//! yet.
//!
//! The server's writers are not stopped, nor slowed down but by sharing the machine: files do not change, and a follower shares
//! no memory with the log's writer but a position.

use crate::channel::{Channel, Received};
use crate::files;
use crate::message::{PROTOCOL, Presence, Reply, Request};
use crate::senders::{Peer, Pulse, Senders, Sending};
use firn_base::clock::Instant;
use firn_base::sync::Arc;
use firn_base::thread::{self, Behind};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_log::{Follower, Group, LogPoint, Pin, SegmentHeader};
use firn_txn::{ClusterId, DIRECTORY_VERSION, DatabaseFile, Engine, files_named_by};
use std::collections::HashSet;
use std::time::Duration;

/// How many bytes of groups a message has, if none of them has more.
const CHUNK_BYTES: usize = 1 << 20;

/// How long to wait for a group, or for a message.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// How long a voter's answer is waited for before looking for more of the log. Both cannot be waited for at once, and what is
/// appended meanwhile becomes one group.
const LONGEST_WAIT_FOR_ANSWER: Duration = Duration::from_millis(2);

/// The name of the restore point that begins the log of a database without any commit.
const FIRST_RESTORE_POINT: &str = "first copy";

/// How long to wait until one that takes over confirms that it has the whole log.
const LONGEST_CONFIRMATION: Duration = Duration::from_secs(10);

/// Serves one connection, of this peer, until the other side ends it. While it copies, the calling thread leaves contended cores to
/// others. Messages between voters are answered by `control`. Calls `handed_over` if the database is to be closed and opened again,
/// because another server has taken over.
pub fn serve(
    engine: &Arc<Engine>,
    channel: &mut dyn Channel,
    senders: &Senders,
    peer: Peer,
    handed_over: &dyn Fn(),
    control: &dyn Fn(&[u8]) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut serving = Serving::new(engine.clone(), senders.clone(), peer);
    let served = serve_until_end(&mut serving, channel, control);
    if serving.has_given_up() {
        handed_over();
    }
    served
}

fn serve_until_end(
    serving: &mut Serving,
    channel: &mut dyn Channel,
    control: &dyn Fn(&[u8]) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut message = Vec::new();
    while !serving.is_handed_over() {
        let longest = match serving.awaits_answer() {
            true => LONGEST_WAIT_FOR_ANSWER,
            false if serving.is_sending() => Duration::ZERO,
            false => LONGEST_WAIT,
        };
        match channel.receive_within(&mut message, longest)? {
            Received::Message => {
                if let Some(question) = serving.take(&message, channel)? {
                    send(channel, &Reply::Control(&control(&question)?))?;
                    channel.flush()?;
                }
                continue;
            }
            Received::End => return Ok(()),
            Received::Nothing => {}
        }
        // Nothing may be appended before an answer comes.
        if !serving.send_some(channel)? && !serving.awaits_answer() {
            serving.wait_for_log(LONGEST_WAIT)?;
        }
    }
    Ok(())
}

/// The state of a connection to one that copies the database or follows its log. Each of its steps ends by itself.
pub struct Serving {
    engine: Arc<Engine>,
    senders: Senders,
    peer: Peer,
    /// The cluster of this server when the connection began.
    greeted_in: Option<ClusterId>,
    sending: Option<Sending>,
    handover: Option<Handover>,
    /// Whether the database was a primary, and has been handed over, or may have been.
    has_given_up: bool,
}

/// A server that hands over the database to the one that follows its log.
struct Handover {
    /// Where the log ends.
    end: LogPoint,
    begun: Instant,
    /// Whether the message that says so has been sent, after all of the log.
    is_sent: bool,
    /// Whether the other side has all of the log on disk.
    is_confirmed: bool,
}

impl Serving {
    /// A connection that begins.
    pub fn new(engine: Arc<Engine>, senders: Senders, peer: Peer) -> Serving {
        Serving {
            engine,
            senders,
            peer,
            greeted_in: None,
            sending: None,
            handover: None,
            has_given_up: false,
        }
    }

    /// Whether the other side follows the log.
    pub fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Sends a position with the next [`Serving::send_some`], at this time, and from then on only when this is called: for simulations, in
    /// which no time passes.
    pub fn beat(&mut self, now: u64) {
        self.sending.iter_mut().for_each(|sending| sending.pulse = Pulse::Now(now));
    }

    /// Whether commits wait for an answer of the other side.
    fn awaits_answer(&mut self) -> bool {
        self.sending.as_mut().is_some_and(Sending::awaits_answer)
    }

    /// Whether the database was a primary, and is to be closed and opened again, because the other side takes over.
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Whether the other side has everything that it needs to take over, or does not confirm it for long: the connection is to end.
    pub fn is_handed_over(&self) -> bool {
        let is_over = |handover: &Handover| {
            handover.is_confirmed || handover.is_sent && handover.begun.elapsed() > LONGEST_CONFIRMATION
        };
        self.has_given_up && self.handover.as_ref().is_some_and(is_over)
    }

    /// Takes a message of the other side. A copy is sent before this returns. Returns a message between voters, which is to be answered.
    ///
    /// Errors, after which the connection ends: 08P01 if it is out of turn; 55000 if the other side has another version, the server
    /// belongs to another cluster than when the connection began, it does not hand over, or the log has
    /// another history; 57P03 if it does not reach the place where it is asked for; 58P01 if it is not retained from there.
    pub fn take(&mut self, message: &[u8], channel: &mut dyn Channel) -> Result<Option<Vec<u8>>> {
        self.check_cluster()?;
        let request = Request::decode(message)?;
        if let (Request::Control(question), true) = (&request, self.greeted_in.is_some()) {
            return Ok(Some(question.clone()));
        }
        self.take_request(request, channel).map(|()| None)
    }

    fn take_request(&mut self, request: Request, channel: &mut dyn Channel) -> Result<()> {
        match (request, self.greeted_in.is_some(), &mut self.sending) {
            (Request::Hello { protocol, directory_version, voter, holder }, false, _) => {
                check_versions(protocol, directory_version)?;
                let (database, cluster) = self.engine.identity().ok_or_else(in_memory)?;
                let program = env!("CARGO_PKG_VERSION");
                send(
                    channel,
                    &Reply::Identity {
                        protocol: PROTOCOL,
                        directory_version: DIRECTORY_VERSION,
                        database,
                        cluster,
                        is_primary: self.engine.written_epoch().is_some(),
                        epoch: self.engine.written_epoch().unwrap_or_default(),
                        program,
                    },
                )?;
                (self.greeted_in, self.peer.name, self.peer.voter) = (Some(cluster), holder, voter);
                channel.flush()
            }
            (Request::Follow { from }, true, None) => {
                let peer = self.peer.clone();
                let sending = Sending::begin(self.engine.clone(), channel, &self.senders, peer, from)?;
                self.sending = Some(sending);
                Ok(())
            }
            (Request::Status { reached, beat }, _, Some(sending)) => {
                for handover in self.handover.iter_mut().filter(|handover| handover.is_sent) {
                    handover.is_confirmed |= reached.flushed >= handover.end.lsn;
                }
                sending.note(reached, beat)
            }
            (Request::Handover { server }, _, Some(_)) => {
                let handed_over = self.engine.hand_over(&server);
                // Not if it hands over to another one, whose connection sees to the rest.
                self.has_given_up = self.engine.has_handed_over_to(&server);
                let (end, begun) = (handed_over?, clock::now());
                self.handover = Some(Handover { end, begun, is_sent: false, is_confirmed: false });
                Ok(())
            }
            (Request::Has(point), true, None) => {
                let presence = match self.engine.has_point(point) {
                    Ok(true) => Presence::There,
                    Ok(false) => Presence::Nowhere,
                    Err(error) if error.state() == SqlState::UNDEFINED_FILE => Presence::Unknown,
                    Err(error) => return Err(error),
                };
                send(channel, &Reply::Has(presence))?;
                channel.flush()
            }
            (Request::Copy { from, held }, true, None) => {
                thread::stand_back(Behind::Queries);
                Copying::begin(&self.engine, channel, &self.peer, from)?.send(&held)
            }
            _ => {
                let message = "a request of the replication protocol comes at the wrong time";
                Err(Error::new(SqlState::PROTOCOL_VIOLATION, message))
            }
        }
    }

    /// Sends what there is of the log to one that follows it, and a position now and then. Returns whether there was anything of the
    /// log.
    ///
    /// Error: 55000 if the log is not retained any more that has not been sent; 08006 if the other side does not answer.
    pub fn send_some(&mut self, channel: &mut dyn Channel) -> Result<bool> {
        self.check_cluster()?;
        let Some(sending) = &mut self.sending else { return Ok(false) };
        let has_sent = sending.send_some(channel)?;
        for handover in self.handover.iter_mut().filter(|handover| !handover.is_sent) {
            if sending.sent() >= handover.end.lsn {
                send(channel, &Reply::HandedOver(handover.end))?;
                channel.flush()?;
                handover.is_sent = true;
            }
        }
        Ok(has_sent)
    }

    /// Error: 55000 if this server has been promoted into another cluster: the other side is to be refused, like any other one.
    fn check_cluster(&self) -> Result<()> {
        let present = self.engine.identity().map(|(_, cluster)| cluster);
        if self.greeted_in.is_none() || self.greeted_in == present {
            return Ok(());
        }
        let message = "the server has been promoted by force, and belongs to another cluster now";
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    }

    /// Waits until more of the log is on disk, if the other side follows it, for so long at most.
    fn wait_for_log(&mut self, longest: Duration) -> Result<()> {
        self.sending.as_mut().map_or(Ok(()), |sending| sending.wait_for_log(longest))
    }
}

fn check_versions(protocol: u32, directory_version: u32) -> Result<()> {
    if (protocol, directory_version) == (PROTOCOL, DIRECTORY_VERSION) {
        return Ok(());
    }
    let message = format!(
        "this server has version {PROTOCOL} of the replication protocol and version {DIRECTORY_VERSION} of directories, the other \
         side {protocol} and {directory_version}"
    );
    let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    Err(error.with_hint("Use the same version of FirnDB on both sides."))
}

#[cold]
fn in_memory() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "a database in memory cannot be copied")
        .with_hint("Start the server with --data DIR, or write a dump by firn dump.")
}

pub(crate) fn send(channel: &mut dyn Channel, reply: &Reply<'_>) -> Result<()> {
    let (head, body) = reply.encode();
    channel.send(&[&head, body])
}

/// A copy that is being sent.
struct Copying<'c> {
    engine: &'c Engine,
    channel: &'c mut dyn Channel,
    pinned: firn_txn::PinnedCheckpoint,
    log: LogSender,
    /// The files that have been sent, or that the other side has.
    sent: HashSet<DatabaseFile>,
    /// Whether everything is sent that is on disk, whether it is committed or not.
    is_for_voter: bool,
}

/// Sends the log from a follower.
pub(crate) struct LogSender {
    pub follower: Follower,
    /// The last segment whose header has been sent.
    segment: Option<SegmentHeader>,
    /// Groups that are sent next.
    groups: Vec<u8>,
    /// The group after these, which needs something before it.
    waiting: Option<Group>,
    /// Up to where the log was committed when groups were sent last.
    committed: Lsn,
}

impl LogSender {
    pub fn new(follower: Follower) -> LogSender {
        LogSender { follower, segment: None, groups: Vec::new(), waiting: None, committed: Lsn(0) }
    }

    /// Sends the header of the segment in which the next group begins, also if none follows: a database has a log.
    pub fn begin(&mut self, channel: &mut dyn Channel) -> Result<()> {
        let headers: Vec<SegmentHeader> = self.follower.segment().into_iter().collect();
        self.send_segments(channel, &headers)
    }

    /// Up to where the log was committed when groups were sent last.
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// Up to where the log has been sent.
    pub fn sent(&self) -> Lsn {
        self.waiting.as_ref().map_or(self.follower.point().lsn, |waiting| waiting.begin)
    }

    /// Sends some of the log up to `end`, as far as it is on disk: before a group the headers of its segments, and the files that it
    /// names, by `send_file`. At most one message has groups, so that answers can be read in between. Returns whether there was any.
    pub fn send_some(
        &mut self,
        channel: &mut dyn Channel,
        end: Lsn,
        mut send_file: impl FnMut(&mut dyn Channel, &Follower, &DatabaseFile) -> Result<()>,
    ) -> Result<bool> {
        while self.groups.len() < CHUNK_BYTES {
            let Some(group) =
                self.waiting.take().map_or_else(|| self.follower.next_group(end), |it| Ok(Some(it)))?
            else {
                break;
            };
            let headers: Vec<SegmentHeader> = self.follower.segments_of(&group).copied().collect();
            let named = files_named_by(&group)?;
            if (headers.last() != self.segment.as_ref() || !named.is_empty()) && !self.groups.is_empty() {
                self.waiting = Some(group);
                break;
            }
            for file in &named {
                send_file(channel, &self.follower, file)?;
            }
            self.send_segments(channel, &headers)?;
            self.groups.extend_from_slice(group.bytes());
        }
        let has_groups = !self.groups.is_empty();
        self.send_groups(channel)?;
        Ok(has_groups)
    }

    /// Sends headers of segments that have not been sent.
    fn send_segments(&mut self, channel: &mut dyn Channel, headers: &[SegmentHeader]) -> Result<()> {
        for header in headers {
            // One of another epoch may take the place of an empty one.
            if self.segment.is_none_or(|sent| sent != *header && sent.number <= header.number) {
                send(channel, &Reply::Segment(&header.encode()))?;
                self.segment = Some(*header);
            }
        }
        Ok(())
    }

    fn send_groups(&mut self, channel: &mut dyn Channel) -> Result<()> {
        if !self.groups.is_empty() {
            self.committed = self.follower.committed();
            send(channel, &Reply::Groups { committed: self.committed, groups: &self.groups })?;
            self.groups.clear();
        }
        Ok(())
    }
}

/// Sends a file that is retained as long as these pins are not broken.
///
/// `between` is called after each part of it.
pub(crate) fn send_file(
    engine: &Engine,
    channel: &mut dyn Channel,
    file: &DatabaseFile,
    pins: &[&Pin],
    mut between: impl FnMut(&mut dyn Channel) -> Result<()>,
) -> Result<()> {
    let opened = engine.open_file(file);
    // First: if a pin was broken, the file may have been removed.
    pins.iter().try_for_each(|pin| pin.position().map(drop))?;
    let opened = opened?;
    send(channel, &Reply::File(file.clone()))?;
    files::read(&*opened, |bytes| {
        send(channel, &Reply::Data(bytes))?;
        between(channel)
    })?;
    send(channel, &Reply::Data(&[]))
}

impl<'c> Copying<'c> {
    fn begin(
        engine: &'c Engine,
        channel: &'c mut dyn Channel,
        peer: &Peer,
        from: Option<LogPoint>,
    ) -> Result<Copying<'c>> {
        let holder = &peer.name;
        let mut pinned = engine.pin_checkpoint(holder)?;
        let continued = from.map(|from| engine.follow(holder, from)).transpose();
        let follower = match continued {
            Ok(Some(follower)) => follower,
            // The log is not retained from there on, or has another history.
            Err(error) if !is_out_of_reach(&error) => return Err(error),
            _ => {
                while !engine.can_copy_from(pinned.point().lsn) {
                    // Nothing has been written since this epoch began, or an earlier version wrote the log there.
                    if pinned.point().lsn == engine.log_point()?.lsn {
                        engine.create_restore_point(FIRST_RESTORE_POINT)?;
                    } else {
                        engine.checkpoint()?;
                    }
                    pinned = engine.pin_checkpoint(holder)?;
                }
                engine.follow(holder, pinned.point())?
            }
        };
        // The follower retains what is needed of the log.
        pinned.pin().advance(follower.point().lsn)?;
        // A voter may have acknowledged more than is committed.
        let is_for_voter = peer.voter.is_some();
        let follower = if is_for_voter { follower.read_durable() } else { follower };
        let (log, sent) = (LogSender::new(follower), HashSet::new());
        Ok(Copying { engine, channel, pinned, log, sent, is_for_voter })
    }

    fn send(mut self, held: &[DatabaseFile]) -> Result<()> {
        send(self.channel, &Reply::Manifest(&self.pinned.manifest()))?;
        send(self.channel, &Reply::Log(self.log.follower.point()))?;
        self.sent.extend(held.iter().cloned());
        let files: Vec<DatabaseFile> = self.pinned.files().collect();
        for file in files {
            if self.sent.insert(file.clone()) {
                let pins = [self.pinned.pin(), self.log.follower.pin()];
                send_file(self.engine, self.channel, &file, &pins, |_| Ok(()))?;
            }
            self.pinned.pin().release_file(&file.name);
        }
        let (complete_until, committed) = self.engine.complete_until()?;
        let end = if self.is_for_voter { self.engine.log_point()? } else { committed };
        self.send_log(end)?;
        send(self.channel, &Reply::End { point: end, complete_until })?;
        self.channel.flush()
    }

    /// Sends the log up to `end`, which is on disk.
    fn send_log(&mut self, end: LogPoint) -> Result<()> {
        self.log.begin(self.channel)?;
        let (engine, pinned, sent) = (self.engine, self.pinned.pin(), &mut self.sent);
        while self.log.send_some(self.channel, end.lsn, |channel, follower, file| {
            match sent.insert(file.clone()) {
                true => send_file(engine, channel, file, &[pinned, follower.pin()], |_| Ok(())),
                false => Ok(()),
            }
        })? {
            // What has been sent is not needed any more, nor its files.
            let reached = self.log.sent();
            self.log.follower.pin().advance(reached)?;
            pinned.advance(reached)?;
        }
        assert!(self.log.follower.point().is_same_place(&end), "a group ends where the log is durable");
        Ok(())
    }
}

/// Whether the log cannot be followed from a point on.
pub(crate) fn is_out_of_reach(error: &Error) -> bool {
    let states =
        [SqlState::UNDEFINED_FILE, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::CANNOT_CONNECT_NOW];
    states.contains(&error.state())
}
