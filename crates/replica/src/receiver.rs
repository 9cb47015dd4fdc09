//! The side of a replica: stores what arrives of the log that it follows.
//!
//! A receiver is a state machine: [`Receiver::take`] takes one message, and [`Receiver::answer`] makes everything durable that has
//! arrived and returns the answer. It has neither threads nor clocks.
//!
//! Invariant: the files that a group names are on disk before the group is stored.

use crate::channel::Channel;
use crate::copying::out_of_turn;
use crate::files::FileWriter;
use crate::message::{FollowerStatus, PROTOCOL, Reply, Request};
use firn_base::sync::Arc;
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use firn_log::faults::Fault;
use firn_txn::{DIRECTORY_VERSION, DatabaseFile, Engine, Folder, Sender};

/// What a replica may lack when it takes over: so much is sent in a moment.
const CLOSE_BYTES: u64 = 16 << 20;

/// What receives the log of a replica, over one connection.
pub struct Receiver {
    engine: Arc<Engine>,
    state: State,
    /// The file that is arriving.
    file: Option<(DatabaseFile, FileWriter)>,
    /// Whether the server was a primary when it was connected.
    is_of_primary: bool,
    /// Up to where the log of the server is on disk, as far as is known.
    available: Lsn,
    /// When the server has sent its last position, by its clock. In microseconds since 1970 UTC.
    sent_at: Option<i64>,
    sender: Sender,
    /// Up to where the log of the server is committed, as far as is known.
    committed: Lsn,
    /// What the next answer is to contain, if it is not 0.
    beat: u64,
    /// What the last answer has said.
    answered: FollowerStatus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for the identity of the server.
    Greeting,
    /// It waits for the beginning of the log.
    Asked,
    /// The log arrives.
    Streaming,
}

/// What a message was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The identity of the server: the replica asks for the log now.
    Identity,
    /// The beginning of the log: the server has it from there on.
    Beginning,
    /// Part of a file, or the header of a segment: nothing to answer.
    Part,
    /// Groups of the log.
    Groups,
    /// A position.
    Position,
    /// The server has handed over the database: its log ends where it has been received.
    HandedOver,
}

impl Receiver {
    /// Greets the server, under a name that it shows to people. Then its messages are to be [taken](Receiver::take).
    pub fn begin(engine: Arc<Engine>, channel: &mut dyn Channel, name: &str) -> Result<Receiver> {
        let holder = name.to_owned();
        let voter = engine.voter().map(|voter| voter.node);
        let hello =
            Request::Hello { protocol: PROTOCOL, directory_version: DIRECTORY_VERSION, voter, holder };
        channel.send(&[&hello.encode()])?;
        channel.flush()?;
        Ok(Receiver {
            engine,
            state: State::Greeting,
            file: None,
            is_of_primary: false,
            available: Lsn(0),
            sent_at: None,
            sender: Sender { epoch: Epoch(0), voter },
            committed: Lsn(0),
            beat: 0,
            answered: FollowerStatus { received: Lsn(0), flushed: Lsn(0), replayed: Lsn(0) },
        })
    }

    /// Whether the server has said that it is a primary.
    pub fn is_of_primary(&self) -> bool {
        self.is_of_primary
    }

    /// The epoch in which the server writes its log.
    pub fn sender(&self) -> Epoch {
        self.sender.epoch
    }

    /// Whether the server still counts: the voter has not promised to follow a later epoch, and was one when it connected.
    pub fn is_current(&self) -> bool {
        let voter = self.engine.voter();
        let is_known = self.state != State::Greeting;
        voter.map(|voter| voter.node) == self.sender.voter
            && voter.is_none_or(|voter| !is_known || voter.takes_from(self.sender.epoch))
    }

    /// Up to where the log of the server is on disk, as far as is known.
    pub fn available(&self) -> Lsn {
        self.available
    }

    /// When the server has sent its last position, by its clock. In microseconds since 1970 UTC.
    pub fn sent_at(&self) -> Option<i64> {
        self.sent_at
    }

    /// Takes a message. `channel` is what answers go to.
    ///
    /// Errors: 55000 if the server has another database or cluster; XX001 if the log is not what follows; 53100, 58030, after which
    /// another connection may succeed.
    pub fn take(&mut self, message: &[u8], channel: &mut dyn Channel) -> Result<Taken> {
        let reply = Reply::decode(message)?;
        match (self.state, reply, &mut self.file) {
            (State::Greeting, Reply::Identity { database, cluster, is_primary, epoch, .. }, _) => {
                if self.engine.identity() != Some((database, cluster)) {
                    return Err(another_cluster());
                }
                match self.engine.voter() {
                    Some(voter) if epoch < voter.promised => return Err(not_yet(epoch)),
                    // What is taken from it counts in its epoch.
                    Some(voter) if epoch > voter.promised => drop(self.engine.promise(epoch)?),
                    _ => {}
                }
                self.sender.epoch = epoch;
                channel.send(&[&Request::Follow { from: self.engine.received()? }.encode()])?;
                channel.flush()?;
                (self.state, self.is_of_primary) = (State::Asked, is_primary);
                Ok(Taken::Identity)
            }
            (State::Asked, Reply::Log(point), _) if point.is_same_place(&self.engine.received()?) => {
                self.engine.restart_receiving(self.sender)?;
                self.answered = FollowerStatus { received: point.lsn, flushed: point.lsn, replayed: Lsn(0) };
                self.state = State::Streaming;
                Ok(Taken::Beginning)
            }
            (State::Streaming, Reply::File(file), None) if is_beside_the_log(&file) => {
                let (disk, path) = self.engine.place_for_received(&file)?;
                self.file = Some((file, FileWriter::create(&*disk, &path)?));
                Ok(Taken::Part)
            }
            (State::Streaming, Reply::Data(&[]), Some(_)) => {
                let (file, writer) = self.file.take().expect("just seen");
                self.end_file(&file, writer)?;
                Ok(Taken::Part)
            }
            (State::Streaming, Reply::Data(bytes), Some((_, writer))) => {
                writer.write(bytes)?;
                Ok(Taken::Part)
            }
            (State::Streaming, Reply::Segment(header), None) => {
                self.engine.receive_segment(self.sender, header)?;
                Ok(Taken::Part)
            }
            (State::Streaming, Reply::Groups { committed, groups }, None) => {
                let end = self.engine.receive_groups(self.sender, groups)?;
                self.available = self.available.max(end.lsn);
                self.committed = self.committed.max(committed);
                Ok(Taken::Groups)
            }
            // Also while a file arrives.
            (State::Streaming, Reply::Position { durable, committed, sent_at, beat }, _) => {
                self.beat = self.beat.max(beat);
                (self.available, self.sent_at) = (self.available.max(durable), Some(sent_at));
                self.committed = self.committed.max(committed);
                self.engine.confirm(self.committed);
                Ok(Taken::Position)
            }
            (State::Streaming, Reply::HandedOver(end), None)
                if end.is_same_place(&self.engine.received()?) =>
            {
                Ok(Taken::HandedOver)
            }
            _ => Err(out_of_turn()),
        }
    }

    /// Whether it is known to lack little of what the server has.
    pub fn is_close(&self) -> Result<bool> {
        let lacks = self.available.0.saturating_sub(self.engine.received()?.lsn.0);
        Ok(self.sent_at.is_some() && lacks <= CLOSE_BYTES)
    }

    /// Asks the server to hand over the database, and to follow `server` from then on: `HOST:PORT`, or a URL. The log must have begun to
    /// arrive.
    pub fn ask_for_handover(&self, server: &str, channel: &mut dyn Channel) -> Result<()> {
        channel.send(&[&Request::Handover { server: server.to_owned() }.encode()])?;
        channel.flush()
    }

    fn end_file(&self, file: &DatabaseFile, writer: FileWriter) -> Result<()> {
        if file.content.is_some_and(|expected| expected != writer.content()) {
            let message = format!("the file \"{}\" has not been received as it is", file.name);
            return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                .with_detail("Its length or its checksum is not that of the log."));
        }
        writer.finish()?;
        let (disk, path) = self.engine.place_for_received(file)?;
        disk.sync_directory(path.parent().expect("it is in a folder"))
    }

    /// The server must not rely on an answer: this voter knows that another epoch has begun.
    pub fn forget_beat(&mut self) {
        self.beat = 0;
    }

    /// Answers the beat alone, if there is one: before a flush, which may take long.
    pub fn answer_beat(&mut self, channel: &mut dyn Channel) -> Result<()> {
        let beat = std::mem::take(&mut self.beat);
        if beat == 0 || !self.is_current() {
            return Ok(());
        }
        channel.send(&[&Request::Status { reached: self.answered, beat }.encode()])?;
        channel.flush()
    }

    /// Makes everything durable that has arrived, and answers. Returns how far the replica has come.
    pub fn answer(&mut self, channel: &mut dyn Channel) -> Result<FollowerStatus> {
        let received = self.engine.received()?.lsn;
        let is_synced_first = !Fault::AcknowledgedUnsynced.is_made();
        if is_synced_first {
            self.engine.flush_log()?;
        }
        let replayed = self.engine.visible_lsn();
        let reached = FollowerStatus { received, flushed: received, replayed };
        let beat = std::mem::take(&mut self.beat);
        // The server relies on it: not if this voter has promised to follow a later one since.
        let beat = if self.is_current() { beat } else { 0 };
        channel.send(&[&Request::Status { reached, beat }.encode()])?;
        channel.flush()?;
        self.answered = reached;
        if !is_synced_first {
            self.engine.flush_log()?;
        }
        // Commits may wait for the answer, and only readers here for this.
        self.engine.confirm(self.committed);
        Ok(reached)
    }
}

/// Whether it is a file that groups name, and none of the log or of a checkpoint.
fn is_beside_the_log(file: &DatabaseFile) -> bool {
    match file.folder {
        Folder::Log => file.name.ends_with(".spill"),
        Folder::Checkpoint => file.name.contains("-load-") && file.name.ends_with(".arrow"),
    }
}

#[cold]
pub(crate) fn not_yet(epoch: Epoch) -> Error {
    let message = "the server is not the primary of the present epoch yet, or not any more";
    Error::new(SqlState::CANNOT_CONNECT_NOW, message).with_detail(format!("Its epoch is {}.", epoch.0))
}

#[cold]
pub(crate) fn another_cluster() -> Error {
    let message = "the server has another database, or belongs to another cluster";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_hint(
            "A replica follows the server of which it was made. After --force has made another cluster, start it with --rejoin, \
             or make a new one in an empty directory.",
        )
}
