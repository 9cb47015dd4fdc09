//! What carries messages. The protocol itself knows no sockets.

use firn_base::Result;
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
