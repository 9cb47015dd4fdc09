//! `firn serve`: a server, for clients of PostgreSQL and of Arrow Flight SQL, until it is stopped.

use std::cell::Cell;
use std::io::Write as _;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, SqlState};
use firn_replica::archive::Archiver;
use firn_replica::following::{Following, FollowingState};
use firn_replica::rejoin::{self, Rejoined, rejoin};
use firn_replica::standbys::StandbyNames;
use firn_replica::voting::{Voting, VotingEnd};
use firn_replica::{Channel, Senders, Stoppable, join};
use firn_session::server::{ServerDatabase as _, parse_memory};
use firn_session::{Config, Database};
use firn_txn::DirectoryRole;
use firn_wire::{Auth, FlightConfig, FlightServer, Server, Tls, Users, Verifier, WireConfig};

use crate::Failure;
use crate::cooling::Cooling;
use crate::replication::{Facts, Followed, Service, Upstream, archive, follow};
use crate::routing::{Offers, Router};
use crate::validation::Validation;
use crate::voters::Voters;
use crate::watch::Watch;

/// Arguments of `firn serve`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Directory of the database, created if it is missing; in memory by default.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one. May be given more than once.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432")]
    listen: Vec<String>,
    /// Directory for a Unix domain socket.
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Address for clients of Arrow Flight SQL (ADBC, JDBC, …); port 0 takes a free one. Users and passwords
    /// are those of --auth.
    #[arg(long, value_name = "HOST:PORT")]
    flight: Option<String>,
    /// The server's certificate (PEM), followed by those of intermediate authorities: connections of both protocols are encrypted
    /// (TLS). Only PostgreSQL's clients on this machine may connect without TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificates (PEM) of the authorities that sign certificates of clients: every client over TCP must present one then.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Serve only Flight SQL, and not PostgreSQL's clients.
    #[arg(long, requires = "flight", conflicts_with_all = ["listen", "socket_dir"])]
    flight_only: bool,
    /// How clients authenticate. The default is trust for loopback addresses and sockets; for other addresses the option is
    /// required.
    #[arg(long, value_enum)]
    auth: Option<AuthKind>,
    /// A user for --auth scram and the file with the password (or with the verifier in PostgreSQL's
    /// form). Without a file the password is in the environment variable FIRN_PASSWORD. May be
    /// given more than once.
    #[arg(long, value_name = "NAME[:FILE]")]
    user: Vec<String>,
    /// The most clients of PostgreSQL's protocol at a time. For Flight SQL it limits the statements that run
    /// at a time, and the open transactions, each of which may run one more statement.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
    /// The most memory for rows, indexes and old versions, such as 8GiB. Statements that need
    /// more then fail (53200) and the server continues. Queries have a budget of their own in addition. Three quarters
    /// of the memory of the machine, or of the control group of the server, by default; 0 for no limit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_limit: Option<u64>,
    /// Most memory that running queries may use together in hash tables and sort buffers, such as 8GiB. Those that
    /// need more write to temporary files, or fail (53200). Half the memory of the machine, or of the control group
    /// of the server, by default.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    query_memory: Option<u64>,
    /// Directory for the temporary files of queries. By default that of the database; of a database in memory, the system's
    /// directory for such files.
    #[arg(long, value_name = "DIR")]
    temporary_dir: Option<PathBuf>,
    /// Memory for rows and indexes, such as 8GiB, that is allocated at the start and retained. So transactions do not wait for
    /// the operating system to allocate it. On virtual machines that may take longer than thousands of transactions.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0")]
    reserve_memory: u64,
    /// The most of the log, such as 8GiB, that is retained for those who follow it or copy the database. One who needs more
    /// gets an error and must begin again; so nobody who is slow or silent fills the disk. -1 for no limit.
    #[arg(long, value_name = "SIZE", value_parser = keep_size, default_value = "8GiB", allow_hyphen_values = true)]
    max_slot_wal_keep_size: KeepSize,
    /// Directory for an archive of the log, or the URL of a place in an object store, with the backups of the database or of its own: a
    /// backup can be restored to any commit in it.
    #[arg(long, value_name = "DIR", requires = "data")]
    archive: Option<PathBuf>,
    /// Serve a replica of another server's database, which can be read: HOST:PORT, or postgres://user@host:port/?sslmode=… If --data
    /// is empty, it gets a copy first. A replica remains one until it is promoted: the option only counts if it differs from the one
    /// that was given last, or with --rejoin.
    #[arg(long, value_name = "SERVER", requires = "data", value_parser = follow_argument)]
    follow: Option<Box<Upstream>>,
    /// Let the database in --data follow a server that was promoted by force, and give up the commits that this one does not have.
    /// It may be that of the former primary, or of one of its replicas.
    #[arg(long, requires = "follow")]
    rejoin: bool,
    /// Where other servers reach this one: needed by a replica that is to be promoted if it listens on all addresses.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// How this server connects to other voters, all but the address, if not as to the server of --follow:
    /// postgres://user@host/?sslmode=…
    #[arg(long, value_name = "URL", value_parser = follow_argument)]
    connect_as: Option<Box<Upstream>>,
    /// The replicas that commits wait for, by their names, as in PostgreSQL: 'ANY 1 (*)', 'FIRST 2 (a, b, c)', 'a, b'. The SQL function
    /// firn_set_synchronous_standby_names() changes it in a running server.
    #[arg(long, value_name = "NAMES", requires = "data", default_value = "", value_parser = standby_names)]
    synchronous_standby_names: String,
    /// Let the replicas that follow this server run its long queries that only read. A session can run its own here:
    /// SET firn.route_queries = off.
    #[arg(long)]
    route_queries: bool,
    /// The name of a replica, which the server that it follows shows in pg_stat_replication.
    #[arg(long, value_name = "NAME", default_value = "replica")]
    name: String,
    #[command(flatten)]
    cooling: Cooling,
    #[command(flatten)]
    validation: Validation,
    /// Report transactions on standard error that run for longer than this number of seconds, if they keep old
    /// versions or have written; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    report_transactions_after: u64,
    /// The default of a setting in all sessions, such as
    /// idle_in_transaction_session_timeout=5min. May be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Write a checkpoint before stopping, so that the next start is quick.
    #[arg(long)]
    checkpoint_at_stop: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum AuthKind {
    /// Without a password.
    Trust,
    /// With a password (SCRAM-SHA-256).
    Scram,
}

/// What a server is to react to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// It is to stop.
    Stop,
    /// It is a replica that has a new copy, which is to be opened.
    Superseded,
    /// It is a replica of a server that has another history, which it is to rejoin.
    Diverged,
    /// It was a primary, and is to be opened as a replica.
    HandedOver,
    /// It was a replica, and is a primary now.
    Promoted,
    /// It was the primary among voters, and another one is it now.
    Deposed,
    /// It was a voter.
    Removed,
    /// It was to become a primary, which has failed: it is to be opened again, as what its directory says.
    Uncertain,
}

/// Runs a server until SIGINT, SIGTERM or SIGHUP.
pub fn run(options: Options) -> Result<(), Failure> {
    let auth = authentication(&options)?;
    refuse_open_addresses(&options)?;
    let tls = encryption(&options)?;
    // Before the database opens, so that a signal never leaves it half open.
    let (sender, events) = mpsc::channel();
    report_signals(sender.clone())?;
    if let Some(bytes) = options.query_memory {
        firn_session::limit_query_memory(bytes).map_err(Failure::usage)?;
    }
    if let Some(directory) = options.temporary_dir.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(Failure::usage(format!("--temporary-dir {}: not a directory", directory.display())));
    }
    let mut options = options;
    let mut rejoins = options.follow.clone().filter(|_| options.rejoin).map(Rejoins::Requested);
    let voters = Voters::new(options.data.as_deref(), template(&options)?, &options.name);
    loop {
        // One that could not be rejoined is not tried again and again: each time its sessions would end.
        let mut may_diverge = true;
        let upstream = match &options.data {
            Some(directory) => {
                match prepare(&options, directory, rejoins.take(), &voters, &mut may_diverge, &events)? {
                    Prepared::Primary => None,
                    Prepared::Replica(upstream) => Some(upstream),
                    Prepared::Stopped => return Ok(()),
                }
            }
            None => None,
        };
        let (event, kept) =
            serve(&options, &auth, &tls, (upstream.clone(), may_diverge), &voters, &sender, &events)?;
        // What else has happened to the database that was just closed does not matter any more.
        if event == Event::Stop || events.try_iter().any(|event| event == Event::Stop) {
            return Ok(());
        }
        rejoins = upstream.filter(|_| event == Event::Diverged).map(Rejoins::Automatically);
        if let Some(directory) = &options.data {
            join::wait_until_closed(&RealDisk, directory).map_err(Failure::data)?;
        }
        // Clients find it where it was, also if the port was a free one.
        (options.listen, options.flight) = (kept.listen, kept.flight);
        options.synchronous_standby_names = kept.synchronous_standby_names;
    }
}

/// What a server keeps when its database is opened again.
struct Kept {
    /// The addresses for PostgreSQL's clients.
    listen: Vec<String>,
    /// The address for clients of Flight SQL.
    flight: Option<String>,
    synchronous_standby_names: String,
}

/// Serves a database until an event.
fn serve(
    options: &Options,
    auth: &Auth,
    tls: &Option<Tls>,
    (upstream, may_diverge): (Option<Box<Upstream>>, bool),
    voters: &Arc<Voters>,
    sender: &mpsc::Sender<Event>,
    events: &mpsc::Receiver<Event>,
) -> Result<(Event, Kept), Failure> {
    let mut config = Config {
        directory: options.data.clone(),
        temporary_directory: options.temporary_dir.clone(),
        reserve_memory: options.reserve_memory,
        ..Config::default()
    };
    if let Some(bytes) = options.memory_limit {
        config.memory_limit = (bytes > 0).then_some(bytes);
    }
    config.log.most_pinned_bytes = options.max_slot_wal_keep_size.0;
    let database = Database::open_with(options.validation.apply(options.cooling.apply(config)))
        .map_err(Failure::data)?;
    for setting in &options.set {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {setting}: write --set NAME=VALUE")))?;
        database.set_default(name.trim(), value.trim()).map_err(Failure::usage)?;
    }
    let mut archiver = match &options.archive {
        Some(directory) => Some(archive(&database, directory).map_err(Failure::data)?),
        None => None,
    };
    let senders = Senders::default();
    match (database.engine().voter(), database.engine().identity()) {
        (Some(voter), Some(identity)) => voters.open(voter.node, identity).map_err(Failure::data)?,
        _ => voters.close(),
    }
    let may_diverge = may_diverge || database.engine().voter().is_some();
    // Nothing is lost if the server has stopped meanwhile.
    let send = |event| {
        let sender = sender.clone();
        move || {
            let _ = sender.send(event);
        }
    };
    let following = match (&upstream, &options.data) {
        (Some(upstream), Some(directory)) => {
            let [superseded, diverged, promoted, uncertain] =
                [Event::Superseded, Event::Diverged, Event::Promoted, Event::Uncertain].map(send);
            let ended = move |state| match state {
                FollowingState::Superseded => superseded(),
                FollowingState::Diverged => diverged(),
                FollowingState::Promoted => promoted(),
                FollowingState::Uncertain => uncertain(),
                FollowingState::Connecting | FollowingState::Receiving | FollowingState::CopyingAnew => {}
            };
            let following =
                follow(&database, directory, (**upstream).clone(), voters, &options.name, may_diverge, ended);
            Some(following.map_err(Failure::data)?)
        }
        _ => None,
    };
    let voting: Arc<Mutex<Option<Voting>>> = Arc::default();
    let begin_to_vote = {
        let (engine, voters, voting) = (database.engine().clone(), voters.clone(), voting.clone());
        let (senders, watch) = (senders.clone(), following.as_ref().map(Following::watch));
        let [deposed, removed] = [Event::Deposed, Event::Removed].map(|event| Mutex::new(send(event)));
        let (deposed, removed) = (Arc::new(deposed), Arc::new(removed));
        move || {
            let (deposed, removed) = (deposed.clone(), removed.clone());
            let ended = move |end| match end {
                VotingEnd::Deposed => deposed.lock()(),
                VotingEnd::Removed => removed.lock()(),
            };
            *voting.lock() = voters.vote(engine.clone(), watch.clone(), senders.clone(), ended);
        }
    };
    if database.engine().voter().is_some() {
        begin_to_vote();
    }
    let followed = following.as_ref().zip(upstream.as_deref());
    let offers = upstream.as_deref().filter(|_| following.is_some()).map(|upstream| {
        let (upstream, name) = (upstream.clone(), options.name.clone());
        let (engine, voters) = (database.engine().clone(), voters.clone());
        Offers::start(&database, Followed { upstream, name, engine, voters })
    });
    let offers = offers.transpose().map_err(Failure::data)?;
    let standbys = senders.standbys().clone();
    let facts = Facts::show(&database, senders.clone(), followed, voters.clone(), begin_to_vote);
    database.set_synchronous_standby_names(&options.synchronous_standby_names).map_err(Failure::data)?;
    archiver.iter().for_each(|archiver| facts.set_archiver(archiver));
    let router = options.route_queries.then(Arc::<Router>::default);
    router.iter().for_each(|router| database.set_query_router(router.clone()));
    let service = Service::new(&database, senders, voters.clone(), router, send(Event::HandedOver));
    let server = match options.flight_only {
        true => None,
        false => Some(serve_postgres(options, &database, service, auth.clone(), tls.clone())?),
    };
    facts.set_address(options.advertise.clone().or_else(|| server.as_ref().and_then(reachable_address)));
    let flight = match &options.flight {
        Some(address) => Some(serve_flight(options, &database, address, auth.clone(), tls.clone())?),
        None => None,
    };
    if options.data.is_none() {
        say("the database is in memory only; see --data");
    }
    if let Some(voter) = database.engine().voter() {
        say(format_args!("voter {:016x} of cluster {}", voter.node.0, shown_cluster(&database)));
    } else if let Some(upstream) = &upstream {
        say(format_args!("following {}", upstream.shown()));
    }
    let report_after = Duration::from_secs(options.report_transactions_after);
    let watch = (!report_after.is_zero()).then(|| Watch::start(database.clone(), report_after));
    let addresses = |server: &Server| server.addresses().iter().map(ToString::to_string).collect();
    let listen = server.as_ref().map_or_else(Vec::new, addresses);
    let flight_address = flight.as_ref().map(|flight| flight.local_addr().to_string());
    let cluster = database.engine().identity();
    let event = loop {
        match events.recv().unwrap_or(Event::Stop) {
            Event::Promoted => {
                say("promoted: this server is a primary now");
                if database.engine().voter().is_none() {
                    *voting.lock() = None;
                    voters.close();
                }
                if let (Some(directory), true) = (&options.archive, database.engine().identity() != cluster) {
                    // The archive of the former cluster ends.
                    archiver.take().into_iter().for_each(Archiver::stop);
                    match archive(&database, directory) {
                        Ok(another) => {
                            facts.set_archiver(&another);
                            archiver = Some(another);
                        }
                        Err(error) => say(format_args!("the log is not archived: {error}")),
                    }
                }
            }
            event => break event,
        }
    };
    say(match event {
        Event::Stop | Event::Promoted => "stopping",
        Event::Superseded => "opening the new copy",
        Event::Diverged => "the server that is followed has another history: rejoining it",
        Event::HandedOver => "handed over: opening the database as that of a replica",
        Event::Deposed => "another server is the primary now: opening the database as that of a replica",
        Event::Removed => "this server is no voter any more: opening the database as that of a replica",
        Event::Uncertain => "the promotion has failed: opening the database again",
    });
    drop(watch);
    if event == Event::Stop {
        // Nobody waits for other voters any more.
        database.engine().end_waits();
    }
    standbys.end(not_replicated());
    // The two are independent; what either leaves open is rolled back when it returns.
    if let Some(flight) = flight {
        flight.shutdown();
    }
    if let Some(server) = server {
        server.shutdown();
    }
    *voting.lock() = None;
    drop(offers);
    drop(following);
    // That of a voter is written when it is closed, if everything is committed.
    let is_voter = database.engine().voter().is_some();
    if options.checkpoint_at_stop && options.data.is_some() && event == Event::Stop && !is_voter {
        database.checkpoint().map_err(Failure::data)?;
    }
    let synchronous_standby_names = database.synchronous_standby_names();
    // Nothing is written to the log any more.
    archiver.into_iter().for_each(Archiver::stop);
    match event {
        Event::Stop => database.close_at_end().map_err(Failure::data)?,
        // Its files are about to be changed or removed, or it has nothing to write.
        Event::Superseded
        | Event::Diverged
        | Event::HandedOver
        | Event::Promoted
        | Event::Deposed
        | Event::Removed
        | Event::Uncertain => drop(database),
    }
    Ok((event, Kept { listen, flight: flight_address, synchronous_standby_names }))
}

/// The error of commits that wait for synchronous standbys when the database is closed.
fn not_replicated() -> Error {
    let message = "the server is being stopped, or is not the primary any more";
    Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message).with_detail(
        "The transaction has already committed locally, but might not have been replicated to the standby.",
    )
}

/// How the other voters are reached: as the server that the operator has named, but for the address.
fn template(options: &Options) -> Result<Upstream, Failure> {
    if let Some(given) = &options.connect_as {
        return Ok((**given).clone());
    }
    let role = match &options.data {
        Some(directory) if directory.is_dir() => {
            DirectoryRole::read(&RealDisk, directory).map_err(Failure::data)?
        }
        _ => None,
    };
    let known = role.and_then(|role| role.option.or(role.upstream));
    match (&options.follow, known) {
        (Some(given), _) => Ok((**given).clone()),
        (None, Some(known)) => Ok(*follow_argument(&known).map_err(Failure::usage)?),
        (None, None) => Ok(*follow_argument("127.0.0.1").map_err(Failure::usage)?),
    }
}

/// The identity of the cluster of a database.
fn shown_cluster(database: &Database) -> String {
    database.engine().identity().map_or_else(String::new, |(_, cluster)| cluster.to_string())
}

/// What a directory is to be opened as.
enum Prepared {
    Primary,
    Replica(Box<Upstream>),
    /// The server was stopped meanwhile.
    Stopped,
}

/// The server that a database is to rejoin.
enum Rejoins {
    /// The operator has said so.
    Requested(Box<Upstream>),
    /// It is the server that it follows, and has another history.
    Automatically(Box<Upstream>),
    /// That was interrupted.
    Again(Box<Upstream>),
}

impl Rejoins {
    fn upstream(self) -> Box<Upstream> {
        let (Rejoins::Requested(upstream) | Rejoins::Automatically(upstream) | Rejoins::Again(upstream)) =
            self;
        upstream
    }
}

/// Makes sure that a directory has what it is to be opened as: a copy, if it is to follow a server, or the same history as the server
/// that it `rejoins`.
fn prepare(
    options: &Options,
    directory: &Path,
    rejoins: Option<Rejoins>,
    voters: &Voters,
    may_diverge: &mut bool,
    events: &mpsc::Receiver<Event>,
) -> Result<Prepared, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let name = &options.name;
    join::finish(&*disk, directory).map_err(Failure::data)?;
    let interrupted = rejoin::interrupted(&*disk, directory).map_err(Failure::data)?;
    let interrupted =
        interrupted.map(|server| follow_argument(&server)).transpose().map_err(Failure::usage)?;
    let role = DirectoryRole::read(&*disk, directory).map_err(Failure::data)?;
    let is_requested = matches!(rejoins, Some(Rejoins::Requested(_)));
    if let Some(role) = role.as_ref().filter(|role| role.voter.is_some() && !is_requested) {
        if (rejoins.is_some() || interrupted.is_some())
            && !rejoin_voters(options, directory, role, voters, events)?
        {
            return Ok(Prepared::Stopped);
        }
        // Whom it follows, the voters decide.
        return Ok(Prepared::Replica(Box::new(template(options)?)));
    }
    if let Some(rejoins) = rejoins.filter(|_| role.is_some()).or(interrupted.map(Rejoins::Again)) {
        let is_requested = matches!(rejoins, Rejoins::Requested(_));
        let is_automatic = matches!(rejoins, Rejoins::Automatically(_));
        let upstream = rejoins.upstream();
        let option = is_requested.then_some(&*upstream.given);
        let rejoined = until_reached(&upstream, events, |is_stopped| {
            let connect = || upstream.connect(name).map(|it| Box::new(it) as Box<dyn Channel>);
            let rejoined = rejoin(&disk, directory, &connect, is_stopped, &upstream.given, option, name);
            if let Err(error) = &rejoined
                && is_automatic
                && !is_stopped()
                && rejoin::interrupted(&*disk, directory)?.is_none()
            {
                // Nothing has been changed: it is served as it is.
                say(format_args!("{} cannot be rejoined: {error}", upstream.shown()));
                *may_diverge = false;
                return Ok(());
            }
            say_rejoined(rejoined?, &upstream);
            Ok(())
        })?;
        return Ok(if rejoined { Prepared::Replica(upstream) } else { Prepared::Stopped });
    }
    let Some(role) = role else {
        let Some(upstream) = &options.follow else { return Ok(Prepared::Primary) };
        let begun = Instant::now();
        let copied = until_reached(upstream, events, |is_stopped| {
            let mut connection = upstream.connect(name)?;
            say(format_args!("copying the database of {}", upstream.shown()));
            let mut channel = Stoppable { channel: &mut connection, is_stopped };
            join::join(&disk, directory, &mut channel, &upstream.given, name)?;
            say(format_args!("copied in {:.1} s", begun.elapsed().as_secs_f64()));
            Ok(())
        })?;
        return Ok(if copied { Prepared::Replica(upstream.clone()) } else { Prepared::Stopped });
    };
    match (&role.upstream, &options.follow) {
        // The operator has named another server than before.
        (Some(_), Some(upstream)) if role.option.as_ref() != Some(&upstream.given) => {
            let given = Some(upstream.given.clone());
            DirectoryRole { upstream: given.clone(), option: given, ..role }
                .write(&*disk, directory)
                .map_err(Failure::data)?;
            Ok(Prepared::Replica(upstream.clone()))
        }
        (None, Some(upstream)) if role.option.as_ref() != Some(&upstream.given) => {
            Err(Failure::usage(format!(
                "the database in {} is that of a primary\nHINT: --rejoin lets it follow {shown}, and gives up the commits that \
                 {shown} does not have. A new replica begins with a copy: give it an empty directory.",
                directory.display(),
                shown = upstream.shown()
            )))
        }
        (None, Some(upstream)) => {
            say(format_args!(
                "--follow {} has no effect, since this server was promoted; add --rejoin to follow it again",
                upstream.shown()
            ));
            Ok(Prepared::Primary)
        }
        (None, None) => Ok(Prepared::Primary),
        (Some(known), given) => {
            let upstream = follow_argument(known).map_err(Failure::usage)?;
            if let Some(given) = given.as_ref().filter(|given| given.given != *known) {
                say(format_args!(
                    "--follow {} has no effect, since {} has taken over; add --rejoin to follow it",
                    given.shown(),
                    upstream.shown()
                ));
            }
            Ok(Prepared::Replica(upstream))
        }
    }
}

/// Cuts the log of a voter where it leaves that of the present primary. Tries again, since that may change, until the directory can be opened.
/// False if this server is to stop.
fn rejoin_voters(
    options: &Options,
    directory: &Path,
    role: &DirectoryRole,
    voters: &Voters,
    events: &mpsc::Receiver<Event>,
) -> Result<bool, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let voter = role.voter.expect("it is that of a voter");
    voters.open(voter.node, (role.database, role.cluster)).map_err(Failure::data)?;
    let is_stopped = Cell::new(false);
    let stop = || {
        if events.try_iter().any(|event| event == Event::Stop) {
            is_stopped.set(true);
        }
        is_stopped.get()
    };
    let mut reported = String::new();
    while !stop() {
        let rejoined = voters.primary().and_then(|primary| {
            let connect = || primary.connect(&options.name).map(|it| Box::new(it) as Box<dyn Channel>);
            rejoin(&disk, directory, &connect, &stop, &primary.given, None, &options.name)
                .map(|rejoined| (rejoined, primary))
        });
        match rejoined {
            Ok((rejoined, primary)) => {
                say_rejoined(rejoined, &primary);
                return Ok(true);
            }
            Err(error) => {
                let is_whole = rejoin::interrupted(&*disk, directory).map_err(Failure::data)?.is_none();
                let text = error.to_string();
                if text != reported {
                    say(format_args!("the primary cannot be rejoined: {text}"));
                    reported = text;
                }
                if is_whole {
                    // It is opened as it is, and follows whoever is the primary then.
                    std::thread::sleep(Duration::from_millis(100));
                    return Ok(!stop());
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
    Ok(false)
}

/// Says what has become of a database that has rejoined.
fn say_rejoined(rejoined: Rejoined, upstream: &Upstream) {
    say(match rejoined {
        Rejoined::Unchanged => format!("{} has all commits of this server", upstream.shown()),
        Rejoined::Cut { from, to } => format!(
            "{} bytes of the log were given up, which {} does not have",
            from.0 - to.0,
            upstream.shown()
        ),
        Rejoined::Copied => format!("the database of {} was copied anew", upstream.shown()),
    });
}

/// Does something with a server, and waits for it if it cannot be reached. False if this server is to stop.
fn until_reached(
    upstream: &Upstream,
    events: &mpsc::Receiver<Event>,
    mut body: impl FnMut(&dyn Fn() -> bool) -> firn_base::Result<()>,
) -> Result<bool, Failure> {
    let mut reported = None;
    let is_stopped = Cell::new(false);
    let stop = || {
        if events.try_iter().any(|event| event == Event::Stop) {
            is_stopped.set(true);
        }
        is_stopped.get()
    };
    loop {
        let Err(error) = body(&stop) else { return Ok(true) };
        if is_stopped.get() {
            return Ok(false);
        }
        if ![SqlState::CONNECTION_FAILURE, SqlState::ADMIN_SHUTDOWN].contains(&error.state()) {
            return Err(Failure::data(error));
        }
        let text = error.to_string();
        if reported.as_ref() != Some(&text) {
            say(format_args!("waiting for {}: {text}", upstream.shown()));
            reported = Some(text);
        }
        if events.recv_timeout(Duration::from_secs(1)) == Ok(Event::Stop) {
            return Ok(false);
        }
    }
}

/// Where other servers reach a server, if it listens on a certain address.
fn reachable_address(server: &Server) -> Option<String> {
    server.addresses().iter().find(|address| !address.ip().is_unspecified()).map(ToString::to_string)
}

fn serve_postgres(
    options: &Options,
    database: &Database,
    service: Arc<Service>,
    auth: Auth,
    tls: Option<Tls>,
) -> Result<Server, Failure> {
    let config = WireConfig {
        listen: options.listen.clone(),
        socket_directory: options.socket_dir.clone(),
        auth,
        tls,
        max_connections: usize::from(options.max_connections),
        replication: Some(service),
        ..WireConfig::default()
    };
    let server = Server::start(database.clone(), config).map_err(cannot_start)?;
    for address in server.addresses() {
        say(format_args!("listening on {address}"));
    }
    if let Some(path) = server.socket_path() {
        say(format_args!("listening on {}", path.display()));
    }
    Ok(server)
}

fn serve_flight(
    options: &Options,
    database: &Database,
    address: &str,
    auth: Auth,
    tls: Option<Tls>,
) -> Result<FlightServer, Failure> {
    let encryption = if tls.is_some() { " with TLS" } else { "" };
    let config = FlightConfig {
        listen: address.to_owned(),
        auth,
        tls,
        max_statements: usize::from(options.max_connections),
        max_transactions: usize::from(options.max_connections),
        ..FlightConfig::default()
    };
    let server = FlightServer::start(database.clone(), config).map_err(cannot_start)?;
    say(format_args!("listening on {} for Flight SQL{encryption}", server.local_addr()));
    Ok(server)
}

fn cannot_start(error: Error) -> Failure {
    match error.state() {
        SqlState::OBJECT_IN_USE | SqlState::IO_ERROR => Failure::address(error),
        _ => Failure::usage(error),
    }
}

/// Refuses addresses that other machines can reach, unless --auth is given: without it all clients are trusted.
fn refuse_open_addresses(options: &Options) -> Result<(), Failure> {
    if options.auth.is_some() {
        return Ok(());
    }
    let postgres = options.listen.iter().filter(|_| !options.flight_only);
    for address in postgres.chain(&options.flight) {
        // What is not an address is reported when the server listens on it.
        let mut resolved = address.to_socket_addrs().into_iter().flatten();
        if resolved.any(|resolved| !resolved.ip().is_loopback()) {
            return Err(Failure::usage(format!(
                "every client that can connect to {address} could read and write all data\nHINT: Require passwords with \
                 --auth scram and --user NAME:FILE, or allow it with --auth trust."
            )));
        }
    }
    Ok(())
}

/// How connections are encrypted.
fn encryption(options: &Options) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) else { return Ok(None) };
    Tls::read(certificate, key, options.tls_ca.as_deref()).map(Some).map_err(Failure::usage)
}

/// The argument of --follow.
fn follow_argument(given: &str) -> Result<Box<Upstream>, String> {
    Upstream::parse(given).map(Box::new)
}

/// The argument of --synchronous-standby-names.
fn standby_names(given: &str) -> Result<String, String> {
    StandbyNames::parse(given).map_err(|error| error.to_string()).map(|_| given.to_owned())
}

/// The argument of --memory-limit.
fn memory(text: &str) -> Result<u64, String> {
    size(text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err(NO_SIZE.to_owned()) })
}

/// The argument of --reserve-memory.
pub fn size(text: &str) -> Result<u64, String> {
    parse_memory(text).ok_or_else(|| NO_SIZE.to_owned())
}

/// A size, or none for no limit.
#[derive(Clone, Copy, Debug)]
struct KeepSize(Option<u64>);

/// The argument of --max-slot-wal-keep-size.
fn keep_size(text: &str) -> Result<KeepSize, String> {
    if text == "-1" { Ok(KeepSize(None)) } else { size(text).map(|bytes| KeepSize(Some(bytes))) }
}

const NO_SIZE: &str = "write a size such as 512MB or 8GiB";

/// Prints a line, and ignores an error if the process that started the server has closed the pipe.
fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Reports the first signal to stop. A second one stops the process at once: a database survives that.
fn report_signals(sender: mpsc::Sender<Event>) -> Result<(), Failure> {
    let mut asked = false;
    ctrlc::set_handler(move || {
        if asked {
            std::process::exit(130);
        }
        asked = true;
        let _ = sender.send(Event::Stop);
    })
    .map_err(Failure::new)
}

fn authentication(options: &Options) -> Result<Auth, Failure> {
    match options.auth.unwrap_or(AuthKind::Trust) {
        AuthKind::Trust if !options.user.is_empty() => Err(Failure::usage("--user needs --auth scram")),
        AuthKind::Trust => Ok(Auth::Trust),
        AuthKind::Scram if options.user.is_empty() => {
            Err(Failure::usage("--auth scram needs at least one --user"))
        }
        AuthKind::Scram => {
            let users =
                options.user.iter().map(|user| user_with_verifier(user)).collect::<Result<Vec<_>, _>>()?;
            Ok(Auth::Scram(Users::new(users)))
        }
    }
}

fn user_with_verifier(argument: &str) -> Result<(String, Verifier), Failure> {
    let (name, secret) = match argument.split_once(':') {
        Some((name, file)) => {
            let secret = std::fs::read_to_string(file).map_err(|error| {
                Failure::usage(format!("could not read the password file {file}: {error}"))
            })?;
            (name, secret)
        }
        None => {
            let secret = std::env::var("FIRN_PASSWORD").map_err(|_| {
                Failure::usage(format!(
                    "--user {argument} needs a password: write {argument}:FILE or set FIRN_PASSWORD"
                ))
            })?;
            (argument, secret)
        }
    };
    let secret = secret.trim_end_matches(['\r', '\n']);
    if name.is_empty() || secret.is_empty() {
        return Err(Failure::usage(format!("--user {argument}: neither a name nor a password may be empty")));
    }
    let verifier = Verifier::parse(secret).unwrap_or_else(|| Verifier::from_password(secret));
    Ok((name.to_owned(), verifier))
}
