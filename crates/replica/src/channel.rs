//! What carries messages. The protocol itself knows no sockets.

use firn_base::{Error, Result, SqlState, clock};
use std::time::Duration;

/// What a [wait](Channel::receive_within) for a message has ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// A message.
    Message,
    /// The other side has ended the connection in order.
    End,
    /// The time has passed.
    Nothing,
}

/// A connection that carries whole messages in both directions.
pub trait Channel {
    /// Queues a message, which is given in parts. May wait until the other side has received earlier ones.
    ///
    /// Error: 08006 if the connection is lost; 57P01 if the server ends.
    fn send(&mut self, parts: &[&[u8]]) -> Result<()>;

    /// Sends what is queued.
    fn flush(&mut self) -> Result<()>;

    /// Waits for the next message, and replaces the content of `message` by it. False if the other side has ended the connection
    /// in order.
    ///
    /// Errors: those that the other side reports; 08006 if the connection is lost.
    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool>;

    /// The same, waiting for so long at most. Without any time it returns what has come already.
    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received>;
}

/// How often it is asked whether to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// A channel that fails with 57P01 once its owner is to stop.
pub struct Stoppable<'c> {
    /// What carries the messages.
    pub channel: &'c mut dyn Channel,
    /// Whether to stop.
    pub is_stopped: &'c dyn Fn() -> bool,
}

impl std::fmt::Debug for Stoppable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stoppable")
    }
}

impl Stoppable<'_> {
    fn check(&self) -> Result<()> {
        match (self.is_stopped)() {
            true => Err(Error::new(SqlState::ADMIN_SHUTDOWN, "the program is being stopped")),
            false => Ok(()),
        }
    }
}

impl Channel for Stoppable<'_> {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.check()?;
        self.channel.send(parts)
    }

    fn flush(&mut self) -> Result<()> {
        self.channel.flush()
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        loop {
            match self.receive_within(message, Duration::from_secs(1))? {
                Received::Message => return Ok(true),
                Received::End => return Ok(false),
                Received::Nothing => {}
            }
        }
    }

    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received> {
        let begun = clock::now();
        loop {
            self.check()?;
            let left = longest.saturating_sub(begun.elapsed());
            match self.channel.receive_within(message, left.min(STOP_EVERY))? {
                Received::Nothing if left > STOP_EVERY => {}
                received => return Ok(received),
            }
        }
    }
}
