//! Flight SQL: statements, their results and whole tables as Arrow batches over gRPC.
//!
//! The same database that PostgreSQL's clients use, for clients that need columns: ADBC, JDBC, notebooks, Spark.
//! A client of Flight SQL has no connection with a state but handles: a session that begins with a
//! handshake and keeps settings ([`session`](state)), transactions, prepared statements, results. Every
//! statement outside a transaction runs on a connection of its own to the database.
//!
//! Threads (docs/decisions/0026). gRPC runs on few threads of this server's own, none of which ever runs a
//! statement: statements block, and an iterator over rows must not be held across an `.await`.
//! So each statement runs on a thread for blocking work and sends Arrow messages through a bounded channel. A client
//! that reads slowly makes it wait; one that disconnects stops it.
//!
//! Modules from the outside inwards.

mod auth;
mod batches;
mod incoming;
mod message;
mod status;

mod info;
mod metadata;
mod state;

mod connections;
mod door;
mod ingest;
mod options;
mod placeholders;
mod service;
mod statements;
mod stopping;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, thread};
use firn_session::Database;
use futures::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use crate::server::{Auth, bind_tcp};
use crate::tls::Tls;
use connections::Connections;
use door::Door;
use state::State;

/// How long shutdown waits for clients to read their last messages.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How long a client may be silent before a keepalive probe is sent to its machine.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Threads for gRPC: they copy bytes between statements and sockets, and compute nothing. Each has its own connections:
/// if two threads share one, they wake each other for every frame.
const GRPC_THREADS: usize = 2;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// As for clients of PostgreSQL: planning a query can nest deeply.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// How a Flight SQL server listens and what it allows.
#[derive(Clone, Debug)]
pub struct FlightConfig {
    /// The address to listen on, such as `127.0.0.1:32010`; port 0 takes a free one.
    pub listen: String,
    /// How clients authenticate: with the users and passwords of the PostgreSQL side.
    pub auth: Auth,
    /// If clients are to use TLS: then all must. Without, passwords travel as they are.
    pub tls: Option<Tls>,
    /// Statements that run at once; further ones get 53300. In addition, each open transaction has a place of its own.
    pub max_statements: usize,
    /// Transactions that are open at once; further ones get 53300.
    pub max_transactions: usize,
    /// Sessions, and prepared statements, that are kept: beyond that, the one that was unused for longest is dropped.
    pub max_handles: usize,
    /// The longest message a client may send.
    pub max_message_bytes: usize,
    /// The memory of prepared statements, their parameters, and rows that wait to be fetched, for one
    /// client; beyond that it gets 54000.
    pub max_kept_bytes: usize,
    /// How long a transaction may be idle before it is rolled back, unless
    /// `idle_in_transaction_session_timeout` is set: nothing else shows that a client has gone.
    pub transaction_timeout: Duration,
    /// How long unused prepared statements and results are kept.
    pub handle_timeout: Duration,
    /// How long an unused session is kept; after that its client has to authenticate again.
    pub session_timeout: Duration,
}

impl Default for FlightConfig {
    fn default() -> FlightConfig {
        FlightConfig {
            listen: "127.0.0.1:32010".to_owned(),
            auth: Auth::Trust,
            tls: None,
            max_statements: 100,
            max_transactions: 100,
            max_handles: 10_000,
            max_message_bytes: 256 << 20,
            max_kept_bytes: 512 << 20,
            transaction_timeout: Duration::from_secs(30 * 60),
            handle_timeout: Duration::from_secs(60 * 60),
            session_timeout: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A Flight SQL server that runs until it is shut down or dropped.
pub struct FlightServer {
    state: Arc<State>,
    address: SocketAddr,
    accepting: Option<oneshot::Sender<()>>,
    /// Empty once it has been shut down.
    threads: Vec<ServingThread>,
}

/// A thread for gRPC, with the threads for blocking work that it needs.
struct ServingThread {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl FlightServer {
    /// Starts listening.
    ///
    /// Errors: 55006 if the address is in use, 58030 if it cannot be had; 28000 if passwords would travel as plain text over
    /// a network.
    pub fn start(database: Database, config: FlightConfig) -> Result<FlightServer> {
        let listener = bind_tcp(&config.listen)?;
        let shown = config.listen.clone();
        let failed = |error: io::Error| {
            Error::new(SqlState::IO_ERROR, format!("could not listen on \"{shown}\": {error}"))
        };
        let address = listener.local_addr().map_err(failed)?;
        refuse_open_passwords(&config, address)?;
        let connections = Connections::new(&config);
        let state = Arc::new(State::new(database, config));
        let (mut threads, mut places) = (Vec::new(), Vec::new());
        for _ in 0..GRPC_THREADS {
            let (thread, place) = ServingThread::start(connections.clone(), &state).map_err(failed)?;
            threads.push(thread);
            places.push(place);
        }
        let runtime = &threads[0].runtime;
        let incoming = {
            let _inside = runtime.enter();
            incoming(listener).map_err(failed)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(deal(incoming, places, stopped));
        runtime.spawn(state::sweep_until_stopped(Arc::downgrade(&state)));
        Ok(FlightServer { state, address, accepting: Some(stop), threads })
    }

    /// The address, with the port that was bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, cancels running statements, notifies their clients (57P01), and rolls back open transactions.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        drop(self.accepting.take());
        let (stops, threads): (Vec<_>, Vec<_>) =
            self.threads.drain(..).map(|thread| (thread.stop, (thread.runtime, thread.serving))).unzip();
        drop(stops);
        self.state.stop();
        // In parallel: a statement of one thread may wait for a client of another.
        let ending = threads.into_iter().map(|(runtime, serving)| {
            thread::spawn("firn-flight-end", move || {
                // What is left after that waits for a client that does not read.
                let _ = runtime.block_on(async { tokio::time::timeout(SHUTDOWN_GRACE, serving).await });
                // Closes the channels to clients, and with them ends the statements that wait for one.
                runtime.shutdown_timeout(SHUTDOWN_GRACE);
            })
        });
        for ending in ending.collect::<Vec<_>>() {
            // A panic of it was reported where it happened.
            let _ = ending.join();
        }
        self.state.clear();
    }
}

impl ServingThread {
    /// A thread, and the queue from which it takes its connections.
    fn start(connections: Connections, state: &Arc<State>) -> io::Result<(ServingThread, Place)> {
        let config = &state.config;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            // Running statements, each transaction's own statement and its end, and short work such as checking
            // passwords.
            .max_blocking_threads(config.max_statements + 2 * config.max_transactions + 32)
            .thread_name("firn-flight")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        let (place, dealt) = mpsc::unbounded_channel::<TcpStream>();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(connections.serve(Door::new(state), dealt, stopped));
        Ok((ServingThread { runtime, stop, serving }, place))
    }
}

/// The queue from which a thread takes its connections.
type Place = mpsc::UnboundedSender<TcpStream>;

/// Distributes connections in turn, until it is stopped.
async fn deal(mut incoming: TcpIncoming, places: Vec<Place>, mut stopped: oneshot::Receiver<()>) {
    let mut places = places.iter().cycle();
    loop {
        let next = tokio::select! {
            _ = &mut stopped => return,
            next = incoming.next() => next,
        };
        match next.map(|stream| stream.and_then(tokio::net::TcpStream::into_std)) {
            // A thread that has stopped takes none; then all are about to stop.
            Some(Ok(stream)) => drop(places.next().map(|place| place.send(stream))),
            // The client has disconnected already, or no file descriptor is left: later there may be one.
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            None => return,
        }
    }
}

impl Drop for FlightServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn incoming(listener: TcpListener) -> io::Result<TcpIncoming> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    Ok(TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE)))
}

/// A SCRAM password is never sent; one of Flight SQL is.
fn refuse_open_passwords(config: &FlightConfig, address: SocketAddr) -> Result<()> {
    match (&config.auth, &config.tls) {
        (Auth::Scram(_), None) if !address.ip().is_loopback() => Err(Error::new(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("Flight SQL on {address} would transmit passwords as plain text"),
        )
        .with_hint("Give a certificate and its key, or listen on the loopback interface.")),
        _ => Ok(()),
    }
}
