//! The result of a commit, and waits for it.

use crate::engine::Engine;
use firn_base::{Lsn, Result, Time};

/// The result of a commit: when it took effect, and when it will be durable.
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit is durable only once its ticket has been waited for"]
pub struct Ticket {
    /// The commit time; the read time of a read-only transaction.
    pub time: Time,
    /// The log position that must reach the disk: the end of the transaction's own changes, or of those that it has seen if it
    /// has only read. `None` if there is nothing to wait for.
    pub lsn: Option<Lsn>,
    /// Whether the transaction has changed anything.
    pub has_written: bool,
}

impl Engine {
    /// Waits until a commit is durable: on disk here, and on the disks of a majority of the voters if there are any. Returns at once for
    /// tickets without a log position.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.wait_unless(ticket, &|| Ok(()))
    }

    /// The same, unless an error of `check`, which is called now and then, ends the wait: then it is unknown whether the commit is durable.
    pub fn wait_unless(&self, ticket: Ticket, check: &dyn Fn() -> Result<()>) -> Result<()> {
        match (ticket.lsn, &self.log) {
            (Some(lsn), Some(log)) => log.wait_committed(lsn, check),
            _ => Ok(()),
        }
    }

    /// Waits until a commit is on the disk of this server, whether other voters have it or not. Errors as of [`Engine::wait`].
    pub fn wait_local(&self, ticket: Ticket) -> Result<()> {
        match (ticket.lsn, &self.log) {
            (Some(lsn), Some(log)) => log.wait_local(lsn),
            _ => Ok(()),
        }
    }

    /// Whether a commit is durable.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        match (ticket.lsn, &self.log) {
            (Some(lsn), Some(log)) => log.committed_lsn() >= lsn,
            _ => true,
        }
    }
}
