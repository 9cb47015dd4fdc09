//! Listening: accepts clients, gives each a thread, and ends all of them at shutdown.
//!
//! Threads. One accepts per listening socket; one serves each client and sleeps in `read` while the
//! client is idle; one checks periodically whether the clients of running statements are still connected.
//! [`Shared::clients`] holds every client that has passed its start-up, which bounds
//! their number and finds the target of a cancel request.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, Weak};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Result, SqlState, clock, random};
use firn_session::server::ServerDatabase as _;
use firn_session::{CancelHandle, Database};
use socket2::SockRef;
use subtle::ConstantTimeEq;
use tokio_rustls::rustls::ServerConfig;

use crate::connection;
use crate::encode::{self, Severity};
use crate::replication::ReplicationService;
use crate::scram::Users;
use crate::socket::Socket;
use crate::tls::Tls;

/// Planning a query can nest deeply; only the part of the stack that is used takes memory.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// Threads for clients that have not passed their start-up, beyond those for clients that have.
const STARTING_CLIENTS: usize = 64;

/// How often the server checks whether the clients of running statements are still connected: of statements that have run
/// for `client_connection_check_interval`.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// How long shutdown waits for clients to read their last message.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How a server listens and what it allows.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Addresses to listen on over TCP, such as `127.0.0.1:5432`; port 0 takes a free one.
    pub listen: Vec<String>,
    /// Directory for a Unix domain socket, which is named `.s.PGSQL.<port>`.
    pub socket_directory: Option<PathBuf>,
    /// How clients authenticate.
    pub auth: Auth,
    /// How connections over TCP are encrypted. With it, those from other machines must be, and if clients are to show
    /// certificates all must.
    pub tls: Option<Tls>,
    /// Clients at once; further ones get 53300.
    pub max_connections: usize,
    /// The longest message a client may send; a longer one ends its connection.
    pub max_message_bytes: usize,
    /// How long a client may take to authenticate.
    pub startup_timeout: Duration,
    /// What serves connections that ask for replication; without it they are refused (0A000).
    pub replication: Option<Arc<dyn ReplicationService>>,
}

impl Default for WireConfig {
    fn default() -> WireConfig {
        WireConfig {
            listen: vec!["127.0.0.1:5432".to_owned()],
            socket_directory: None,
            auth: Auth::Trust,
            tls: None,
            max_connections: 100,
            max_message_bytes: 256 << 20,
            startup_timeout: Duration::from_secs(60),
            replication: None,
        }
    }
}

/// How clients authenticate.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Without a password.
    Trust,
    /// With SCRAM and the passwords of these users.
    Scram(Users),
}

/// A server that runs until it is shut down or dropped.
pub struct Server {
    shared: Arc<Shared>,
    acceptors: Vec<JoinHandle<()>>,
    lookout: Option<JoinHandle<()>>,
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    socket_path: Option<PathBuf>,
}

impl Server {
    /// Starts listening. Fails with 55006 if an address is in use, 58030 if it cannot be bound.
    pub fn start(database: Database, config: WireConfig) -> Result<Server> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &config.listen {
            let listener = bind_tcp(address)?;
            addresses.push(listener.local_addr().map_err(|error| cannot_listen(address, &error))?);
            listeners.push(Listener::Tcp(listener));
        }
        let mut socket_path = None;
        if let Some(directory) = &config.socket_directory {
            let port = addresses.first().map_or(5432, SocketAddr::port);
            let path = directory.join(format!(".s.PGSQL.{port}"));
            listeners.push(Listener::Unix(bind_unix(&path)?));
            socket_path = Some(path);
        }
        let shared = Arc::new(Shared {
            database,
            tls: config.tls.as_ref().map(Encrypting::new),
            config,
            stopping: AtomicBool::new(false),
            at_the_end: (Mutex::new(false), Condvar::new()),
            clients: Mutex::new(HashMap::new()),
            threads: Mutex::new(Vec::new()),
        });
        let mut acceptors = Vec::new();
        for listener in &listeners {
            let listener = listener.try_clone().map_err(|error| cannot_listen("a socket", &error))?;
            let shared = shared.clone();
            acceptors.push(thread::spawn("accept", move || accept_until_stopped(&listener, &shared)));
        }
        let lookout = {
            let shared = shared.clone();
            Some(thread::spawn("lookout", move || shared.look_out_for_clients()))
        };
        Ok(Server { shared, acceptors, lookout, listeners, addresses, socket_path })
    }

    /// The first TCP address, with the port that was bound. Panics if there is none.
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All TCP addresses, with the ports that were bound.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The path of the Unix domain socket.
    pub fn socket_path(&self) -> Option<&Path> {
        self.socket_path.as_deref()
    }

    /// Stops listening, cancels running statements, notifies every client (57P01), and waits for their threads.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        // Pairs with the loads in `is_stopping`: a thread that is woken by the shutdowns below sees it.
        self.shared.stopping.store(true, Ordering::SeqCst);
        for listener in &self.listeners {
            listener.wake();
        }
        self.shared.end_lookout();
        for thread in self.acceptors.drain(..).chain(self.lookout.take()) {
            let _ = thread.join();
        }
        if let Some(path) = &self.socket_path {
            let _ = std::fs::remove_file(path);
        }
        self.shared.end_clients(Shutdown::Read);
        let deadline = clock::now() + SHUTDOWN_GRACE;
        while !self.shared.all_threads_finished() && clock::now() < deadline {
            clock::sleep(Duration::from_millis(2));
            // A statement that has begun since is cancelled like those before.
            self.shared.cancel_all();
        }
        // The threads that are left wait for a client that does not read.
        self.shared.end_clients(Shutdown::Both);
        while !self.shared.all_threads_finished() {
            clock::sleep(Duration::from_millis(10));
            self.shared.cancel_all();
        }
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        for (_, thread) in threads {
            let _ = thread.join(); // A panic has been reported where it happened.
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.shared.is_stopping() {
            self.stop();
        }
    }
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) config: WireConfig,
    /// How connections are encrypted.
    pub(crate) tls: Option<Encrypting>,
    stopping: AtomicBool,
    /// For threads that sleep until then.
    at_the_end: (Mutex<bool>, Condvar),
    /// Clients that count against the limit, by process number.
    clients: Mutex<HashMap<u32, ClientEntry>>,
    /// All threads that serve clients, each with the socket that it owns while it runs.
    threads: Mutex<Vec<(Weak<Socket>, JoinHandle<()>)>>,
}

/// What a connection needs of [`Tls`].
pub(crate) struct Encrypting {
    pub(crate) config: Arc<ServerConfig>,
    /// What SCRAM binds a channel to.
    pub(crate) end_point: Option<Arc<[u8]>>,
    pub(crate) asks_for_certificates: bool,
}

impl Encrypting {
    fn new(tls: &Tls) -> Encrypting {
        Encrypting {
            config: tls.for_postgres(),
            end_point: tls.end_point().cloned(),
            asks_for_certificates: tls.asks_for_certificates(),
        }
    }
}

struct ClientEntry {
    key: [u8; 4],
    cancel: Option<CancelHandle>,
}

impl Shared {
    /// Whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Cancels statements whose clients have gone, until the server ends.
    fn look_out_for_clients(&self) {
        let (is_at_the_end, ended) = &self.at_the_end;
        let mut is_at_the_end = is_at_the_end.lock();
        while !*is_at_the_end {
            ended.wait_for(&mut is_at_the_end, LOOKS_EVERY);
            self.database.cancel_for_gone_clients();
        }
    }

    fn end_lookout(&self) {
        *self.at_the_end.0.lock() = true;
        self.at_the_end.1.notify_all();
    }

    /// Counts a client; 53300 if there are too many.
    pub(crate) fn register(self: &Arc<Shared>) -> Result<Registration> {
        let mut clients = self.clients.lock();
        if clients.len() >= self.config.max_connections {
            return Err(too_many_clients());
        }
        let process = self.database.reserve_session();
        let key = random::secret_bytes();
        clients.insert(process, ClientEntry { key, cancel: None });
        Ok(Registration { shared: self.clone(), process, key })
    }

    /// Cancels a client's statement, if the key is that client's.
    pub(crate) fn cancel(&self, process: u32, key: &[u8]) {
        let clients = self.clients.lock();
        if let Some(client) = clients.get(&process)
            && bool::from(client.key[..].ct_eq(key))
            && let Some(cancel) = &client.cancel
        {
            cancel.cancel();
        }
    }

    /// Cancels every statement and ends a direction of every socket.
    fn end_clients(&self, how: Shutdown) {
        self.cancel_all();
        for socket in self.threads.lock().iter().filter_map(|(socket, _)| socket.upgrade()) {
            socket.shutdown(how);
        }
    }

    /// Cancels every statement.
    fn cancel_all(&self) {
        for client in self.clients.lock().values() {
            client.cancel.iter().for_each(CancelHandle::cancel);
        }
    }

    fn all_threads_finished(&self) -> bool {
        self.threads.lock().iter().all(|(_, thread)| thread.is_finished())
    }

    /// Gives a client its thread, unless there are too many.
    fn admit(self: &Arc<Shared>, socket: Socket) -> io::Result<()> {
        let mut threads = self.threads.lock();
        for (_, finished) in threads.extract_if(.., |(_, thread)| thread.is_finished()) {
            let _ = finished.join(); // A panic has been reported where it happened.
        }
        if threads.len() >= self.config.max_connections + STARTING_CLIENTS {
            let mut output = encode::Output::default();
            encode::error(&mut output, Severity::Fatal, &too_many_clients());
            return socket.flush(&mut output);
        }
        let shared = self.clone();
        let socket = Arc::new(socket);
        let handle = Arc::downgrade(&socket);
        let thread = thread::try_spawn("client", STACK_BYTES, move || connection::serve(&socket, &shared))?;
        threads.push((handle, thread));
        Ok(())
    }
}

/// A client's place among the counted ones, released when dropped.
pub(crate) struct Registration {
    shared: Arc<Shared>,
    process: u32,
    key: [u8; 4],
}

impl Registration {
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    pub(crate) fn key(&self) -> [u8; 4] {
        self.key
    }

    /// From now on the client can be cancelled.
    pub(crate) fn set_cancel_handle(&self, cancel: CancelHandle) {
        let mut clients = self.shared.clients.lock();
        clients.get_mut(&self.process).expect("registered until dropped").cancel = Some(cancel);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.clients.lock().remove(&self.process);
    }
}

fn too_many_clients() -> Error {
    Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
        .with_hint("Raise --max-connections, or share connections through a pool.")
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn try_clone(&self) -> io::Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
    }

    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                // Detects clients whose machine has disappeared.
                SockRef::from(&stream).set_keepalive(true)?;
                Socket::tcp(stream)
            }
            Listener::Unix(listener) => Socket::unix(listener.accept()?.0),
        })
    }

    /// Makes a blocked `accept`, and every later one, return an error.
    fn wake(&self) {
        let _ = match self {
            Listener::Tcp(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
            Listener::Unix(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
        };
    }
}

fn accept_until_stopped(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        let admitted = listener
            .accept()
            .and_then(|socket| if shared.is_stopping() { Ok(()) } else { shared.admit(socket) });
        if shared.is_stopping() {
            return;
        }
        if admitted.is_err() {
            // Out of file descriptors or threads, most likely: trying again at once would only burn CPU.
            clock::sleep(Duration::from_millis(10));
        }
    }
}

pub(crate) fn bind_tcp(address: &str) -> Result<TcpListener> {
    let addresses: Vec<_> = address
        .to_socket_addrs()
        .map_err(|error| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid listen address \"{address}\": {error}"),
            )
            .with_hint("Write host:port, such as 127.0.0.1:5432.")
        })?
        .collect();
    TcpListener::bind(&addresses[..]).map_err(|error| cannot_listen(address, &error))
}

/// Binds a Unix socket, replacing one that a dead server has left.
fn bind_unix(path: &Path) -> Result<UnixListener> {
    let shown = path.display().to_string();
    if path.metadata().is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(_) => return Err(cannot_listen(&shown, &io::ErrorKind::AddrInUse.into())),
            Err(_) => std::fs::remove_file(path).map_err(|error| cannot_listen(&shown, &error))?,
        }
    }
    UnixListener::bind(path).map_err(|error| cannot_listen(&shown, &error))
}

fn cannot_listen(address: &str, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AddrInUse {
        Error::new(SqlState::OBJECT_IN_USE, format!("address \"{address}\" is in use"))
            .with_hint("Is another server running? Choose another port with --listen.")
    } else {
        Error::new(SqlState::IO_ERROR, format!("could not listen on \"{address}\": {error}"))
    }
}
