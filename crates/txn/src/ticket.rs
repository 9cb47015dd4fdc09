//! The result of a commit.

use firn_base::{Lsn, Time};

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
