//! The database of a command: in a directory or in memory, both behind a socket of this process, or on a server.

use firn_session::Database;
use firn_session::server::ServerDatabase as _;
use firn_wire::{Server, WireConfig};

use crate::Failure;
use crate::client::{Address, Client, Patience, Report, Target};
use crate::secure::Security;

/// A database in this process and the server in front of it.
pub struct Host {
    server: Server,
    database: Database,
    _directory: tempfile::TempDir,
}

impl Host {
    /// Closes the database, after its client has disconnected.
    pub fn close(self) -> Result<(), Failure> {
        self.server.shutdown();
        self.database.close().map_err(Failure::data)
    }

    /// The same at the end of the process: [`Database::close_at_end`].
    pub fn close_at_end(self) -> Result<(), Failure> {
        self.server.shutdown();
        self.database.close_at_end().map_err(Failure::data)
    }
}

/// Whether a database would be created in a directory, because there is none.
pub fn is_new_directory(target: &str) -> bool {
    !target.contains("://") && std::fs::read_dir(target).map_or(true, |mut files| files.next().is_none())
}

/// Whether a target that is no directory is probably the address of a server.
fn looks_like_an_address(target: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok();
    target.rsplit_once(':').is_some_and(|(host, after)| !host.contains('/') && port(after))
}

/// Connects to a target; to a database in memory if it is `None`. The second value must be closed after the client.
pub fn connect(target: Option<&str>) -> Result<(Client, Option<Host>), Failure> {
    if let Some(address) = target.filter(|target| looks_like_an_address(target) && is_new_directory(target)) {
        return Err(Failure::usage(format!(
            "\"{address}\" is not a directory\nHINT: For a server write postgres://{address}, for a new directory ./{address}."
        )));
    }
    if let Some(url) = target.filter(|target| target.contains("://")) {
        let target = Target::parse(url).map_err(Failure::usage)?;
        return Ok((Client::connect(&target).map_err(|report| Failure::new(plain(&report)))?, None));
    }
    let database = match target {
        None => Database::memory(),
        Some(directory) => Database::open(directory),
    }
    .map_err(Failure::data)?;
    let directory = tempfile::tempdir().map_err(Failure::new)?;
    let config = WireConfig {
        listen: Vec::new(),
        socket_directory: Some(directory.path().to_owned()),
        ..WireConfig::default()
    };
    let server = Server::start(database.clone(), config).map_err(Failure::new)?;
    let socket = server.socket_path().expect("a directory was given").to_owned();
    let target = Target {
        address: Address::Unix(socket),
        user: std::env::var("USER").unwrap_or_else(|_| "firn".to_owned()),
        password: None,
        database: "firn".to_owned(),
        security: Security::default(),
        patience: Patience::USUAL,
    };
    let client = Client::connect(&target).map_err(|report| Failure::new(plain(&report)))?;
    Ok((client, Some(Host { server, database, _directory: directory })))
}

/// A report with all its parts.
pub fn plain(report: &Report) -> String {
    let mut text = report.message.clone();
    for (name, more) in [("DETAIL", &report.detail), ("HINT", &report.hint)] {
        if let Some(more) = more {
            text.push_str(&format!("\n{name}:  {more}"));
        }
    }
    text
}
