//! A server as a voter of a cluster: its part of the control plane, which outlives the database when that is closed and opened again, and
//! its connections to the other voters.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, NodeId, Result, SqlState, clock, random, thread};
use firn_control::{Control, Line, Transport, ask_change, ask_state, is_unreachable};
use firn_log::DatabaseId;
use firn_replica::cluster::{Change, Cluster, Member, Outcome, Refusal};
use firn_replica::following::{FollowingState, FollowingWatch};
use firn_replica::voting::{ControlPlane, Leader, Options, Voting, VotingEnd};
use firn_replica::{Senders, ask_voter, greet_voter};
use firn_txn::{ClusterId, Engine};

use crate::client::{Client, Patience, Report};
use crate::replication::{Connection, Upstream, report};

/// The folder of the control plane in a database directory.
const FOLDER: &str = "control";
/// What a replica may lack that becomes a voter: commits wait for it from then on.
const LITTLE_BYTES: u64 = 16 << 20;
/// How often one that connects to the primary looks whether it still is one.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long to try to become a voter while the set of voters changes.
const LONGEST_ADMISSION: Duration = Duration::from_secs(10);

/// The voters that this server belongs to, if it does.
pub struct Voters {
    directory: Option<PathBuf>,
    /// How others are reached: all but the address.
    template: Upstream,
    name: String,
    control: Mutex<Option<Arc<Control>>>,
    leader: Leader,
}

impl Voters {
    /// Of a server that is none yet.
    pub fn new(directory: Option<&Path>, template: Upstream, name: &str) -> Arc<Voters> {
        let (directory, name) = (directory.map(Path::to_owned), name.to_owned());
        Arc::new(Voters { directory, template, name, control: Mutex::default(), leader: Leader::default() })
    }

    /// Of a server that cannot become one.
    pub fn none() -> Arc<Voters> {
        Voters::new(None, Upstream::parse("127.0.0.1").expect("it is an address"), "")
    }

    /// Takes part in decisions, as the voter that a database is. No effect if it does already.
    pub fn open(&self, node: NodeId, identity: (DatabaseId, ClusterId)) -> Result<()> {
        let mut control = self.control.lock();
        if control.as_ref().is_none_or(|control| control.node() != node) {
            *control = None;
            *control = Some(Arc::new(self.begin(node, identity)?));
        }
        Ok(())
    }

    fn begin(&self, node: NodeId, identity: (DatabaseId, ClusterId)) -> Result<Control> {
        let directory = self.directory.as_ref().ok_or_else(in_memory)?.join(FOLDER);
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        disk.create_directory(&directory)?;
        Control::open(disk, &directory.join(format!("{:016x}", node.0)), node, self.transport(identity))
    }

    /// Takes part in nothing any more.
    pub fn close(&self) {
        *self.control.lock() = None;
    }

    /// Connects a voter to the one that it follows. Ends when that is another one meanwhile: a server that is stopped accepts a connection and
    /// does not answer.
    ///
    /// Errors: 57P03 if no primary is known, or another one is; those of connecting.
    pub fn connect_to_leader(&self, name: &str) -> Result<Connection> {
        let address = self.leader.address().ok_or_else(no_primary)?;
        let upstream = quick(&self.template, &address)?;
        let (sender, connected) = mpsc::channel();
        let name = name.to_owned();
        // It ends by itself soon if nobody waits for it any more.
        thread::spawn("firn-connect", move || drop(sender.send(upstream.connect(&name))));
        loop {
            match connected.recv_timeout(LOOK_EVERY) {
                Ok(connection) => return connection,
                Err(mpsc::RecvTimeoutError::Timeout) if self.leader.address().as_ref() == Some(&address) => {}
                Err(_) => return Err(no_primary()),
            }
        }
    }

    /// The present primary, if it is another voter, as far as is known.
    pub fn primary(&self) -> Result<Upstream> {
        let (own, cluster) = self.state().ok_or_else(no_voter)?;
        let primary = cluster.primary().filter(|primary| *primary != own);
        let member = primary.and_then(|primary| cluster.member(primary)).ok_or_else(no_primary)?;
        quick(&self.template, &member.address)
    }

    /// Answers a message of another voter.
    pub fn answer(&self, message: &[u8]) -> Result<Vec<u8>> {
        let control = self.control.lock().clone();
        control.ok_or_else(no_voter)?.answer(message)
    }

    /// What is known of the cluster, and which voter this is.
    pub fn state(&self) -> Option<(NodeId, Arc<Cluster>)> {
        self.control.lock().as_ref().map(|control| (control.node(), control.state()))
    }

    fn transport(&self, identity: (DatabaseId, ClusterId)) -> Arc<dyn Transport> {
        Arc::new(Connections { template: self.template.clone(), name: self.name.clone(), identity })
    }

    /// Begins to vote for an open database.
    pub fn vote(
        &self,
        engine: Arc<Engine>,
        following: Option<FollowingWatch>,
        senders: Senders,
        ended: impl Fn(VotingEnd) + Send + Sync + 'static,
    ) -> Option<Voting> {
        let control = self.control.lock().clone()?;
        let (leader, report, ended) = (self.leader.clone(), Box::new(report), Box::new(ended));
        let template = self.template.clone();
        let url = Box::new(move |address: &str| {
            template.at(address).map_or_else(|_| address.to_owned(), |server| server.given)
        });
        Some(Voting::start(Options { engine, control, following, senders, leader, url, report, ended }))
    }

    /// Whether a server is a voter as far as this one knows.
    pub fn knows(&self, node: NodeId) -> bool {
        self.state().is_some_and(|(_, cluster)| cluster.member(node).is_some())
    }

    /// Makes an open database that of a voter, which others reach at an address. It is one already if that was interrupted.
    ///
    /// Errors: 55000 if it is a replica that lacks much, or the others do not reach it; 57P03 if there is no majority, after which it may be
    /// one nevertheless: then it is to be called again.
    pub fn admit(
        &self,
        engine: &Engine,
        following: Option<(&FollowingWatch, &Upstream)>,
        address: String,
        begin_to_vote: &dyn Fn(),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let identity = engine.identity().ok_or_else(in_memory)?;
        let member = Member { name: self.name.clone(), address };
        let node = NodeId(u64::from_le_bytes(random::secret_bytes()) >> 1 | 1);
        let Some((watch, upstream)) = following.filter(|_| engine.is_replica()) else {
            let epoch = engine.written_epoch().ok_or_else(in_memory)?;
            let control = self.begin(node, identity)?;
            control.found(member, epoch.0)?;
            engine.begin_to_vote(node, epoch)?;
            *self.control.lock() = Some(Arc::new(control));
            begin_to_vote();
            return Ok(());
        };
        let server = upstream.shown();
        let transport = self.transport(identity);
        let propose = |node: NodeId| {
            let change = Change::Add { node: node.0, member: member.clone() };
            until_changed(check, || ask_change(&*transport, &server, change.clone()))
        };
        if let Some(voter) = engine.voter() {
            return propose(voter.node);
        }
        if !is_close_behind(watch) {
            let message = "the replica is not connected to its primary, or lacks much of its log";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let mut cluster = ask_state(&*transport, &server);
        if cluster.as_ref().map_or(true, |cluster| cluster.voters.is_empty()) {
            // The first voter is the primary.
            let failed = |report: Report| Error::from(report);
            let mut client = Client::connect(&upstream.target).map_err(failed)?;
            client.rows("SELECT firn_become_voter()").map_err(failed)?;
            cluster = ask_state(&*transport, &server);
        }
        let cluster = cluster?;
        // First, so that it counts only with what it has.
        engine.begin_to_vote(node, cluster.epoch())?;
        match self.begin(node, identity) {
            Ok(control) => *self.control.lock() = Some(Arc::new(control)),
            Err(error) => {
                let _ = engine.cease_to_vote();
                return Err(error);
            }
        }
        // Whom it follows until it knows more.
        self.leader.set(Some(server.clone()));
        begin_to_vote();
        propose(node).inspect_err(|error| {
            // If it is unknown whether it has been added, it remains a voter that asks for that.
            if is_unreachable(error) && engine.cease_to_vote().is_ok() {
                self.close();
            }
        })
    }

    /// Lets a voter, which is named or has this address, be none any more.
    ///
    /// Errors: 42704 if there is none; 55000 if it is the primary; 57P03 if there is no majority.
    pub fn remove(&self, which: &str, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let control = self.control.lock().clone().ok_or_else(no_voter)?;
        let state = control.state();
        let mut found = state.voters.iter().filter(|(node, member)| {
            member.name == which
                || member.address == which
                || u64::from_str_radix(which, 16).is_ok_and(|number| number == **node)
        });
        let (first, second) = (found.next(), found.next());
        if second.is_some() {
            let message = format!("more than one voter is named \"{which}\"");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("Say its address, as \"firn cluster status\" shows it."));
        }
        let Some((node, _)) = first else {
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("there is no voter \"{which}\""))
                .with_hint("\"firn cluster status\" shows their names and addresses."));
        };
        until_changed(check, || control.propose(Change::Remove { node: *node }))
    }

    /// Lets this voter take over from the primary, and waits for that, for so long at most. Returns whether it has. Commits wait meanwhile, so
    /// it waits first until it has nearly all of the log.
    pub fn take_over(
        &self,
        engine: &Engine,
        following: Option<&FollowingWatch>,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        let control = self.control.lock().clone().ok_or_else(no_voter)?;
        let begun = clock::now();
        let (mut asked, mut retried_at) = (0, None::<clock::Instant>);
        while longest.is_none_or(|longest| begun.elapsed() < longest) {
            check()?;
            if !engine.is_replica() {
                return Ok(true);
            }
            let state = control.state();
            let is_due = retried_at.is_none_or(|at| at.elapsed() > Duration::from_secs(3));
            let follows = state.primary().is_some_and(|primary| primary != control.node())
                && (longest.is_none() || following.is_none_or(is_close_behind));
            if follows && is_due && asked < 5 {
                (asked, retried_at) = (asked + 1, Some(clock::now()));
                let preferred = Some(control.node().0);
                // Another one may be faster.
                let _ = control.propose(Change::BeginEpoch { after: state.epoch, preferred })?;
                if longest.is_none() {
                    return Ok(false);
                }
            }
            control.wait(&state, Duration::from_millis(20));
        }
        Ok(!engine.is_replica())
    }
}

/// Whether a replica receives the log of its primary, and lacks little of it.
fn is_close_behind(watch: &FollowingWatch) -> bool {
    let status = watch.status();
    status.state == FollowingState::Receiving
        && status.available.0.saturating_sub(status.reached.received.0) <= LITTLE_BYTES
}

/// Proposes a change until it is made, or refused for good.
fn until_changed(check: &dyn Fn() -> Result<()>, propose: impl Fn() -> Result<Outcome>) -> Result<()> {
    let begun = clock::now();
    loop {
        let refusal = match propose() {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Refusal::IsPrimary)) => {
                let message = "the primary cannot be removed";
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                    .with_hint("Let another voter take over first: firn promote."));
            }
            Ok(Err(_)) => {
                let message = "the set of voters is changing, or has no primary";
                Error::new(SqlState::CANNOT_CONNECT_NOW, message).with_hint("Try again later.")
            }
            Err(error) => error,
        };
        if begun.elapsed() > LONGEST_ADMISSION {
            return Err(refusal);
        }
        check()?;
        clock::sleep(Duration::from_millis(50));
    }
}

/// Another voter, which is not waited for.
fn quick(template: &Upstream, address: &str) -> Result<Upstream> {
    let mut upstream = template.at(address)?;
    upstream.target.patience = Patience::SHORT;
    Ok(upstream)
}

/// Connections to other voters.
struct Connections {
    template: Upstream,
    name: String,
    identity: (DatabaseId, ClusterId),
}

impl Transport for Connections {
    fn connect(&self, address: &str) -> Result<Box<dyn Line>> {
        let mut connection = Connection::open(&quick(&self.template, address)?.target, &self.name)?;
        greet_voter(&mut connection, &self.name, Some(self.identity))?;
        Ok(Box::new(Lines(connection)))
    }
}

struct Lines(Connection);

impl Line for Lines {
    fn ask(&mut self, message: &[u8], longest: Duration) -> Result<Vec<u8>> {
        ask_voter(&mut self.0, message, longest)
    }
}

#[cold]
fn no_voter() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the server is no voter")
        .with_hint("\"firn cluster add-voter\" makes it one.")
}

#[cold]
fn no_primary() -> Error {
    Error::new(SqlState::CANNOT_CONNECT_NOW, "no primary is known at present")
}

#[cold]
fn in_memory() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "a database in memory cannot be that of a voter")
        .with_hint("Start the server with --data DIR.")
}
