//! Connections that ask for replication by a start-up parameter: `replication=firn` for copies of the database and its log,
//! `replication=firn-queries` for queries that a replica runs.
//!
//! They begin like others, with TLS and authentication. After ReadyForQuery the server sends CopyBothResponse; from then on each
//! message of the replication protocol is one CopyData in either direction. CopyDone ends the connection, and an ErrorResponse
//! reports an error of the server.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use firn_base::sync::{AtomicBool, Ordering};
use firn_base::{Error, Result, SqlState, clock};

use crate::client::Sink;
use crate::connection::Fate;
use crate::decode::{Message, decode_message};
use crate::encode;
use crate::server::Shared;
use crate::socket::{End, Input};

/// How long the other side may read nothing of what is sent.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

/// What such a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicationPurpose {
    /// Copies of the database, its log, and messages between voters.
    Log,
    /// Queries, which the other side runs.
    Queries,
}

impl ReplicationPurpose {
    /// The value of the start-up parameter `replication`.
    pub fn parameter(self) -> &'static str {
        match self {
            ReplicationPurpose::Log => "firn",
            ReplicationPurpose::Queries => "firn-queries",
        }
    }

    /// The purpose with that value.
    pub(crate) fn parse(parameter: &str) -> Option<ReplicationPurpose> {
        [ReplicationPurpose::Log, ReplicationPurpose::Queries]
            .into_iter()
            .find(|purpose| purpose.parameter() == parameter)
    }
}

/// What serves such connections.
pub trait ReplicationService: Debug + Send + Sync {
    /// Serves a connection until it ends. An error is reported to the other side.
    fn serve(&self, purpose: ReplicationPurpose, channel: &mut ReplicationChannel<'_>) -> Result<()>;
}

/// What a wait for a message has ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicationInput {
    /// A message.
    Message,
    /// The other side has ended the connection in order.
    End,
    /// The time has passed.
    Nothing,
}

/// Such a connection: whole messages in both directions.
pub struct ReplicationChannel<'c> {
    input: &'c mut Input,
    sink: &'c mut Sink,
    shared: &'c Shared,
    /// Whether another session has ended this one.
    is_ended: &'c AtomicBool,
    session: u32,
}

impl ReplicationChannel<'_> {
    /// Error: 57P01 if the server is being stopped, or the connection is to end.
    fn check(&self) -> Result<()> {
        if self.shared.is_stopping() || self.is_ended.load(Ordering::Relaxed) {
            Err(stopping())
        } else {
            Ok(())
        }
    }

    /// The session of the connection.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The address and port of the other side, unless it is connected by a Unix domain socket.
    pub fn client(&self) -> Option<(IpAddr, u16)> {
        self.sink.socket.peer()
    }

    /// Queues a message, which is given in parts, and sends what is queued if that is much.
    ///
    /// Errors: 57P01 if the server is being stopped, 08006 if the connection is lost.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.check()?;
        encode::message(&mut self.sink.output, b'd', |output| {
            parts.iter().for_each(|part| output.extend_from_slice(part));
        });
        self.sink.flush_if_large().map_err(|_| lost())
    }

    /// Sends what is queued. Error: 08006 if the connection is lost.
    pub fn flush(&mut self) -> Result<()> {
        self.sink.flush().map_err(|_| lost())
    }

    /// Waits for the next message, and replaces the content of `message` by it. False if the other side has ended the connection.
    ///
    /// Errors: as [`ReplicationChannel::send`]; 08P01 if it sends anything else.
    pub fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        self.flush()?;
        loop {
            if let Some(packet) = self.input.take()? {
                return match decode_message(self.input.packet(packet))? {
                    Message::CopyData(data) => {
                        message.clear();
                        message.extend_from_slice(data);
                        Ok(true)
                    }
                    Message::CopyDone | Message::Terminate => Ok(false),
                    _ => {
                        let message = "unexpected message on a connection for replication";
                        Err(Error::new(SqlState::PROTOCOL_VIOLATION, message))
                    }
                };
            }
            self.check()?;
            self.fill()?;
        }
    }

    /// The same, waiting for so long at most. Without any time it returns what has come already.
    pub fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<ReplicationInput> {
        self.flush()?;
        let begun = clock::now();
        while !self.input.has_message() {
            self.check()?;
            let left = longest.saturating_sub(begun.elapsed());
            if !self.sink.socket.wait_readable(left).map_err(|_| lost())? {
                if longest <= begun.elapsed() {
                    return Ok(ReplicationInput::Nothing);
                }
                continue;
            }
            self.fill()?;
        }
        Ok(if self.receive(message)? { ReplicationInput::Message } else { ReplicationInput::End })
    }

    /// Waits for more bytes.
    fn fill(&mut self) -> Result<()> {
        let filled = self.input.fill(&self.sink.socket);
        filled.map_err(|end| match end {
            End::Gone | End::TimedOut => self.check().err().unwrap_or_else(lost),
            End::Malformed(malformed) => malformed.into(),
        })
    }
}

/// Serves a connection that has started.
pub(crate) fn serve(
    purpose: ReplicationPurpose,
    input: &mut Input,
    sink: &mut Sink,
    shared: &Shared,
    is_ended: &AtomicBool,
    session: u32,
) -> std::result::Result<(), Fate> {
    let service = shared.config.replication.clone();
    let service = service.ok_or_else(|| Error::unsupported("replication of this server's database"))?;
    sink.socket.set_write_timeout(Some(LONGEST_WRITE))?;
    encode::copy_both_response(&mut sink.output);
    sink.flush()?;
    match service.serve(purpose, &mut ReplicationChannel { input, sink, shared, is_ended, session }) {
        Err(error) if error.state() == SqlState::CONNECTION_FAILURE => Err(Fate::Gone),
        outcome => Ok(outcome?),
    }
}

#[cold]
fn stopping() -> Error {
    Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

#[cold]
fn lost() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the connection was lost")
}
