//! What carries messages. The protocol itself knows no sockets.

use firn_base::Result;

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
}
