//! Both ends of a connection for replication: the service behind a server's port, and the connection of a command or a replica to a
//! server. And what SQL shows of replication.

use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use firn_base::disk::RealDisk;
use firn_base::sync::{Arc, Mutex, OnceLock};
use firn_base::{Error, Lsn, NodeId, Result, SqlState, clock};
use firn_replica::archive::{Archiver, ArchiverStatus};
use firn_replica::following::{self, Following, FollowingState, FollowingWatch};
use firn_replica::promotion::Promotion;
use firn_replica::standbys::{StandbyLevel, StandbyNames, SyncState};
use firn_replica::{Channel, Peer, Received, Senders};
use firn_session::Database;
use firn_session::server::{
    ArchiverCounts, ReceiverFacts, ReplicationFacts, SenderFacts, ServerDatabase as _, SynchronousCommit,
    VoterFacts,
};
use firn_txn::Engine;
use firn_wire::{ReplicationChannel, ReplicationInput, ReplicationPurpose, ReplicationService};

use crate::client::{Address, Client, Closer, Patience, Report, Target};
use crate::routing::{Primary, Router};
use crate::voters::Voters;

/// A server that is silent for so long is gone.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// A client that reads nothing of its rows for so long has its query ended, if a replica runs it.
const LONGEST_PAUSE_OF_CLIENT: Duration = Duration::from_secs(600);

/// Sends copies of a database, and its log to those that follow it, and queries to those that run them.
pub struct Service {
    database: Database,
    senders: Senders,
    voters: Arc<Voters>,
    router: Option<Arc<Router>>,
    /// Called when the database has been handed over, and is to be closed and opened again.
    handed_over: Box<dyn Fn() + Send + Sync>,
}

impl Service {
    pub fn new(
        database: &Database,
        senders: Senders,
        voters: Arc<Voters>,
        router: Option<Arc<Router>>,
        handed_over: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Service> {
        let (database, handed_over) = (database.clone(), Box::new(handed_over));
        Arc::new(Service { database, senders, voters, router, handed_over })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

impl ReplicationService for Service {
    fn serve(&self, purpose: ReplicationPurpose, channel: &mut ReplicationChannel<'_>) -> Result<()> {
        if purpose == ReplicationPurpose::Queries {
            let router = self.router.as_ref().filter(|_| !self.database.engine().is_replica());
            let router = router.ok_or_else(|| Error::unsupported("handing out queries to replicas"))?;
            return router.serve(self.database.engine(), &mut Serving(channel));
        }
        let peer = Peer {
            name: String::new(),
            voter: None,
            session: channel.session(),
            client: channel.client(),
            begun: clock::wall_clock_micros(),
        };
        let engine = self.database.engine();
        let control = |message: &[u8]| self.voters.answer(message);
        firn_replica::serve(engine, &mut Serving(channel), &self.senders, peer, &*self.handed_over, &control)
    }
}

/// Prints a line for the person who runs the server.
pub fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}"); // Standard error may be closed.
}

/// Archives the log of a database in a directory or at a URL, until the archiver is stopped.
pub fn archive(database: &Database, place: &Path) -> Result<Archiver> {
    let (disk, directory) = firn_objects::open(place)?;
    Archiver::start(database.engine().clone(), disk, &directory, report)
}

/// The server that a replica follows.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub target: Target,
    /// As it was given: `HOST:PORT`, or a URL.
    pub given: String,
}

impl Upstream {
    /// Reads `HOST:PORT` or a URL.
    pub fn parse(given: &str) -> std::result::Result<Upstream, String> {
        let url = if given.contains("://") { given.to_owned() } else { format!("postgres://{given}") };
        Ok(Upstream { target: Target::parse(&url)?, given: given.to_owned() })
    }

    /// Connects under the name of a replica.
    pub fn connect(&self, name: &str) -> Result<Connection> {
        self.connect_for(ReplicationPurpose::Log, name, LONGEST_SILENCE)
    }

    /// The same, to run queries for the server.
    pub fn connect_for_queries(&self, name: &str) -> Result<Connection> {
        let brief =
            Upstream { target: Target { patience: Patience::BRIEF, ..self.target.clone() }, ..self.clone() };
        brief.connect_for(ReplicationPurpose::Queries, name, LONGEST_PAUSE_OF_CLIENT)
    }

    fn connect_for(&self, purpose: ReplicationPurpose, name: &str, longest: Duration) -> Result<Connection> {
        let connection = Connection::open_for(purpose, &self.target, name)?;
        connection.0.limit_silence(longest).map_err(|error| Report::from(error).into()).map(|()| connection)
    }

    /// The address, without a password.
    pub fn shown(&self) -> String {
        match self.host_and_port() {
            (path, 0) => path,
            (host, port) => format!("{host}:{port}"),
        }
    }

    /// The same for another server, at `HOST:PORT`: with the same user, password and parameters.
    pub fn at(&self, address: &str) -> Result<Upstream> {
        let given = match self.given.split_once("://") {
            None => address.to_owned(),
            Some((scheme, rest)) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let (authority, more) = rest.split_at(end);
                let credentials =
                    authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
                format!("{scheme}://{credentials}{address}{more}")
            }
        };
        Upstream::parse(&given).map_err(|error| Error::new(SqlState::INVALID_PARAMETER_VALUE, error))
    }

    /// Whether it is on this machine, as far as its address says.
    fn is_local(&self) -> bool {
        match &self.target.address {
            Address::Tcp(host, _) => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Address::Unix(_) => true,
        }
    }

    fn host_and_port(&self) -> (String, u16) {
        match &self.target.address {
            Address::Tcp(host, port) => (host.clone(), *port),
            Address::Unix(path) => (path.display().to_string(), 0),
        }
    }
}

/// The server that a replica follows, for the queries that it offers to run.
pub struct Followed {
    pub upstream: Upstream,
    /// The name of the replica.
    pub name: String,
    pub engine: Arc<Engine>,
    pub voters: Arc<Voters>,
}

impl Primary for Followed {
    fn address(&self) -> Option<String> {
        match self.engine.voter() {
            Some(_) => self.voters.primary().ok().map(|primary| primary.given),
            None => Some(self.upstream.given.clone()),
        }
    }

    fn connect(&self, address: &str) -> Result<Connection> {
        let server = match self.engine.voter() {
            Some(_) => self.voters.primary().ok().filter(|primary| primary.given == address),
            None => Some(self.upstream.clone()),
        };
        let message = "another server has become the primary";
        let server = server.ok_or_else(|| Error::new(SqlState::CONNECTION_FAILURE, message))?;
        server.connect_for_queries(&self.name)
    }
}

/// Begins to follow the server of a replica. `ended` is called when it follows no more.
pub fn follow(
    database: &Database,
    directory: &Path,
    upstream: Upstream,
    voters: &Arc<Voters>,
    name: &str,
    may_diverge: bool,
    ended: impl Fn(FollowingState) + Send + Sync + 'static,
) -> Result<Following> {
    let options = following::Options {
        name: name.to_owned(),
        disk: Arc::new(RealDisk),
        directory: directory.to_owned(),
        connect: Box::new({
            let (name, voters, engine) = (name.to_owned(), voters.clone(), database.engine().clone());
            move || {
                Ok(Box::new(match engine.voter() {
                    Some(_) => voters.connect_to_leader(&name)?,
                    None => upstream.connect(&name)?,
                }))
            }
        }),
        may_diverge,
        report: Box::new(report),
        ended: Box::new(ended),
    };
    Following::start(database.engine().clone(), options)
}

/// What SQL shows and controls of replication.
pub struct Facts {
    engine: Arc<Engine>,
    senders: Senders,
    archiver: Mutex<Option<Box<dyn Fn() -> ArchiverStatus + Send + Sync>>>,
    following: Option<(FollowingWatch, Upstream)>,
    voters: Arc<Voters>,
    /// Begins to vote, once the server has become a voter.
    begin_to_vote: Box<dyn Fn() + Send + Sync>,
    /// Where other servers reach this one, once it listens: `HOST:PORT`. `None` if that is unknown.
    address: OnceLock<Option<String>>,
}

impl Facts {
    /// Those of a database without an archiver, which sees them from now on.
    pub fn show(
        database: &Database,
        senders: Senders,
        following: Option<(&Following, &Upstream)>,
        voters: Arc<Voters>,
        begin_to_vote: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Facts> {
        // Without the database itself, which holds them.
        let engine = database.engine().clone();
        let following = following.map(|(following, upstream)| (following.watch(), upstream.clone()));
        let (archiver, address) = (Mutex::default(), OnceLock::new());
        let begin_to_vote = Box::new(begin_to_vote);
        let facts = Arc::new(Facts { engine, senders, archiver, following, voters, begin_to_vote, address });
        database.set_replication_facts(facts.clone());
        facts
    }

    /// The archiver of the log is this one from now on.
    pub fn set_archiver(&self, archiver: &Archiver) {
        *self.archiver.lock() = Some(Box::new(archiver.watch()));
    }

    /// Other servers reach this one at `HOST:PORT`. Only the first call has an effect.
    pub fn set_address(&self, address: Option<String>) {
        let _ = self.address.set(address);
    }
}

impl ReplicationFacts for Facts {
    fn archiver(&self) -> Option<ArchiverCounts> {
        let status = self.archiver.lock().as_ref()?();
        Some(ArchiverCounts {
            archived: status.archived,
            last_archived: status.last_archived,
            failed: status.failures,
            last_failed: status.last_failure.map(|(segment, at, _)| (segment, at)),
        })
    }

    fn receiver(&self) -> Option<ReceiverFacts> {
        let (watch, upstream) = self.following.as_ref()?;
        let status = watch.status();
        let received = self.engine.received().ok()?;
        Some(ReceiverFacts {
            server: upstream.host_and_port(),
            is_connected: status.state == FollowingState::Receiving,
            is_of_primary: status.is_of_primary,
            epoch: received.epoch.0,
            begun: status.begun,
            received: received.lsn,
            flushed: self.engine.durable_lsn(),
            available: status.available,
            last_message: status.last_message,
            replayed_time: status.replayed_time,
            last_error: status.replay_error.or(status.receive_error),
        })
    }

    fn senders(&self) -> Vec<SenderFacts> {
        let micros = |lag: Option<Duration>| lag.map(|lag| lag.as_micros() as i64);
        let list = self.senders.list();
        let states = self.senders.standbys().states(&list);
        let facts = |(status, (priority, state)): (firn_replica::SenderStatus, _)| SenderFacts {
            sync_priority: priority,
            sync_state: match (state, status.peer.voter) {
                (SyncState::Async, None) => "async",
                (SyncState::Async, Some(_)) | (SyncState::Quorum, _) => "quorum",
                (SyncState::Potential, _) => "potential",
                (SyncState::Sync, _) => "sync",
            },
            session: status.peer.session,
            name: status.peer.name,
            voter: status.peer.voter.map(|node| node.0),
            client: status.peer.client,
            begun: status.peer.begun,
            is_catching_up: status.is_catching_up,
            sent: status.sent,
            written: status.reached.received,
            flushed: status.reached.flushed,
            replayed: status.reached.replayed,
            lags: status.lags.map(micros),
            reply_time: status.reply_time,
        };
        list.into_iter().zip(states).map(facts).collect()
    }

    fn wait_for_standbys(
        &self,
        lsn: Lsn,
        mode: SynchronousCommit,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let level = match mode {
            SynchronousCommit::Off | SynchronousCommit::Local => return Ok(()),
            SynchronousCommit::RemoteWrite => StandbyLevel::Received,
            SynchronousCommit::On => StandbyLevel::Flushed,
            SynchronousCommit::RemoteApply => StandbyLevel::Replayed,
        };
        self.senders.standbys().wait(lsn, level, check)
    }

    fn set_standby_names(&self, names: &str) -> Result<()> {
        self.senders.set_standby_names(StandbyNames::parse(names)?);
        Ok(())
    }

    fn pause_replay(&self, pause: bool) {
        self.following.iter().for_each(|(watch, _)| watch.pause(pause));
    }

    fn is_replay_paused(&self) -> bool {
        self.following.as_ref().is_some_and(|(watch, _)| watch.is_paused())
    }

    fn promote(
        &self,
        is_forced: bool,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        if self.engine.voter().is_some() && !is_forced {
            let watch = self.following.as_ref().map(|(watch, _)| watch);
            return self.voters.take_over(&self.engine, watch, longest, check);
        }
        let (watch, upstream) = self.following.as_ref().ok_or_else(no_replica)?;
        let promotion = match is_forced {
            true => Promotion::Forced,
            false => {
                let address = self.address.get().and_then(Option::as_ref);
                // The address of loopback is one of this machine alone.
                let is_reachable = |address: &&String| !is_of_loopback(address) || upstream.is_local();
                let address = address.filter(is_reachable).ok_or_else(no_address)?;
                Promotion::Handover { server: upstream.at(address)?.given }
            }
        };
        watch.promote(promotion, longest, check).map(|promoted| promoted.is_some())
    }

    fn become_voter(&self, check: &dyn Fn() -> Result<()>) -> Result<bool> {
        if self.engine.voter().is_some_and(|voter| self.voters.knows(voter.node)) {
            return Ok(false);
        }
        let following = self.following.as_ref().map(|(watch, upstream)| (watch, upstream));
        // The address of loopback is one of this machine alone.
        let is_reachable = |address: &&String| {
            !is_of_loopback(address) || following.is_none_or(|(_, upstream)| upstream.is_local())
        };
        let address = self.address.get().and_then(Option::as_ref).filter(is_reachable);
        let address = address.ok_or_else(no_address)?.clone();
        self.voters.admit(&self.engine, following, address, &*self.begin_to_vote, check)?;
        Ok(true)
    }

    fn remove_voter(&self, which: &str, check: &dyn Fn() -> Result<()>) -> Result<()> {
        self.voters.remove(which, check)
    }

    fn voters(&self) -> Vec<VoterFacts> {
        let Some((own, cluster)) = self.voters.state() else { return Vec::new() };
        let senders = self.senders.list();
        let facts = cluster.voters.iter().map(|(node, member)| VoterFacts {
            node: *node,
            name: member.name.clone(),
            address: member.address.clone(),
            is_primary: cluster.primary() == Some(NodeId(*node)),
            is_this: own == NodeId(*node),
            epoch: cluster.epoch,
            flushed: senders
                .iter()
                .find(|sender| sender.peer.voter == Some(NodeId(*node)))
                .map(|sender| sender.reached.flushed),
        });
        facts.collect()
    }
}

/// Whether `IP:PORT` is an address of loopback.
fn is_of_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cold]
fn no_replica() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the server is no replica")
}

#[cold]
fn no_address() -> Error {
    let message = "other servers would not know the address of this one";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_hint("Start this server with --advertise HOST:PORT.")
}

/// The server's end.
struct Serving<'c, 's>(&'c mut ReplicationChannel<'s>);

impl Channel for Serving<'_, '_> {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.0.send(parts)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        self.0.receive(message)
    }

    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received> {
        Ok(match self.0.receive_within(message, longest)? {
            ReplicationInput::Message => Received::Message,
            ReplicationInput::End => Received::End,
            ReplicationInput::Nothing => Received::Nothing,
        })
    }
}

/// The end of a command or a replica.
pub struct Connection(Client);

impl Connection {
    /// Connects, and asks for replication. `name` is shown in the server's `pg_stat_activity`.
    pub fn open(target: &Target, name: &str) -> Result<Connection> {
        Connection::open_for(ReplicationPurpose::Log, target, name)
    }

    fn open_for(purpose: ReplicationPurpose, target: &Target, name: &str) -> Result<Connection> {
        let parameters = [("application_name", name), ("replication", purpose.parameter())];
        let mut client = Client::connect_with(target, &parameters)?;
        let mut body = Vec::new();
        match receive(&mut client, &mut body)? {
            b'W' => Ok(Connection(client)),
            _ => Err(unexpected()),
        }
    }

    /// Whether the server has sent something that was not received yet, or has closed the connection.
    pub fn has_input(&mut self) -> bool {
        self.0.has_input()
    }

    /// A handle that ends the connection.
    pub fn closer(&self) -> Result<Closer> {
        self.0.closer().map_err(|error| Report::from(error).into())
    }
}

impl Channel for Connection {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.0.queue_data(parts).map_err(|error| Report::from(error).into())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(|error| Report::from(error).into())
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        match receive(&mut self.0, message)? {
            b'd' => Ok(true),
            b'c' => Ok(false),
            _ => Err(unexpected()),
        }
    }

    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received> {
        let tag = self.0.receive_raw_within(message, longest).map_err(Report::from)?;
        match tag {
            None => Ok(Received::Nothing),
            Some(b'd') => Ok(Received::Message),
            Some(b'c') => Ok(Received::End),
            Some(b'E') => Err(Report::read_raw(message).into()),
            Some(b'N' | b'S') => Ok(Received::Nothing),
            Some(_) => Err(unexpected()),
        }
    }
}

/// The next message but notices; an error of the server is returned as such.
fn receive(client: &mut Client, body: &mut Vec<u8>) -> Result<u8> {
    loop {
        match client.receive_raw(body).map_err(Report::from)? {
            b'E' => return Err(Report::read_raw(body).into()),
            b'N' | b'S' => {}
            tag => return Ok(tag),
        }
    }
}

#[cold]
fn unexpected() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "the server sent a message that does not belong to replication")
}
