//! Both ends of a connection for replication: the service behind a server's port, and the connection of a command to a server.

use std::fmt;
use std::io::Write as _;
use std::path::Path;

use firn_base::disk::RealDisk;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_replica::Channel;
use firn_replica::archive::{Archiver, ArchiverStatus};
use firn_session::Database;
use firn_session::server::{
    ArchiverCounts, ReceiverFacts, ReplicationFacts, SenderFacts, ServerDatabase as _,
};
use firn_wire::{ReplicationChannel, ReplicationService};

use crate::client::{Client, Report, Target};

/// Sends copies of a database.
pub struct Service(Database);

impl Service {
    pub fn new(database: &Database) -> Arc<Service> {
        Arc::new(Service(database.clone()))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

impl ReplicationService for Service {
    fn serve(&self, channel: &mut ReplicationChannel<'_>) -> Result<()> {
        firn_replica::serve(self.0.engine(), &mut Serving(channel))
    }
}

/// Archives the log of a database in a directory, until the archiver is stopped. `pg_stat_archiver` shows how it gets on.
pub fn archive(database: &Database, directory: &Path) -> Result<Archiver> {
    let archiver = Archiver::start(database.engine().clone(), Arc::new(RealDisk), directory, |line| {
        let _ = writeln!(std::io::stderr(), "{line}"); // Standard error may be closed.
    })?;
    database.set_replication_facts(Arc::new(Facts { archiver: Box::new(archiver.watch()) }));
    Ok(archiver)
}

/// What SQL shows of replication.
struct Facts {
    archiver: Box<dyn Fn() -> ArchiverStatus + Send + Sync>,
}

impl ReplicationFacts for Facts {
    fn archiver(&self) -> Option<ArchiverCounts> {
        let status = (self.archiver)();
        Some(ArchiverCounts {
            archived: status.archived,
            last_archived: status.last_archived,
            failed: status.failures,
            last_failed: status.last_failure.map(|(segment, at, _)| (segment, at)),
        })
    }

    fn receiver(&self) -> Option<ReceiverFacts> {
        None
    }

    fn senders(&self) -> Vec<SenderFacts> {
        Vec::new()
    }

    fn pause_replay(&self, _pause: bool) {}

    fn is_replay_paused(&self) -> bool {
        false
    }
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
}

/// The end of a command.
pub struct Connection(Client);

impl Connection {
    /// Connects, and asks for replication. `name` is shown in the server's `pg_stat_activity`.
    pub fn open(target: &Target, name: &str) -> Result<Connection> {
        let mut client =
            Client::connect_with(target, &[("application_name", name), ("replication", "firn")])?;
        let mut body = Vec::new();
        match receive(&mut client, &mut body)? {
            b'W' => Ok(Connection(client)),
            _ => Err(unexpected()),
        }
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
