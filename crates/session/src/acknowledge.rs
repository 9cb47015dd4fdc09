//! What a commit waits for before it is acknowledged, and the end of a query before it is reported.

use crate::database::Shared;
use firn_base::{Cancel, Error, Result, SqlState};
use firn_sql::activity::Activity;
use firn_sql::standby::SynchronousCommit;
use firn_txn::{Engine, Ticket};

/// Waits for what `synchronous_commit` asks for. Returns a warning if the wait for synchronous standbys was cancelled: the commit is
/// acknowledged nevertheless, as in PostgreSQL.
///
/// Errors, after which the transaction may be committed or not: 08007 if the wait for other voters was cancelled, or the server or the
/// session ends before the others have the commit; 58030 and 53100 of the log.
pub(crate) fn acknowledge(
    shared: &Shared,
    mode: SynchronousCommit,
    ticket: Ticket,
    activity: &Activity,
    cancel: &Cancel,
) -> Result<Option<Error>> {
    let check = || cancel.check();
    match mode {
        SynchronousCommit::Off => return Ok(None),
        SynchronousCommit::Local | SynchronousCommit::RemoteWrite => shared.engine.wait_local(ticket)?,
        SynchronousCommit::On | SynchronousCommit::RemoteApply => {
            shared.engine.wait_unless(ticket, &check).map_err(unknown_outcome)?;
        }
    }
    let (Some(lsn), Some(facts)) = (ticket.lsn.filter(|_| ticket.has_written), shared.sessions.replication())
    else {
        return Ok(None);
    };
    if mode == SynchronousCommit::Local {
        return Ok(None);
    }
    match facts.wait_for_standbys(lsn, mode, &check) {
        Err(error) if error.state() == SqlState::QUERY_CANCELED => match activity.is_ended() {
            true => Err(ended_by_another()),
            false => Ok(Some(not_replicated())),
        },
        waited => waited.map(|()| None),
    }
}

/// The error in place of a warning for a client that gets no warnings: the commit must not look as if it had been replicated.
#[cold]
pub(crate) fn not_known_to_be_replicated(warning: Error) -> Error {
    let error = Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, warning.message());
    match warning.detail() {
        Some(detail) => error.with_detail(detail),
        None => error,
    }
}

/// What the end of a query waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadWaits {
    /// Until what it has seen is committed.
    pub commits: bool,
    /// Until it is certain that no other server was the primary when it began.
    pub lease: bool,
}

impl ReadWaits {
    /// Waits at the end of a query, whose transaction has this ticket. Errors: those of `check`; 57P01 if another server is the primary; 08007
    /// and 58030 as of a commit.
    pub fn wait(self, engine: &Engine, ticket: Ticket, check: &dyn Fn() -> Result<()>) -> Result<()> {
        if self.commits {
            engine.wait_unless(ticket, check)?;
        }
        if self.lease { engine.wait_for_lease(check) } else { Ok(()) }
    }
}

/// The error for a client whose wait for other voters has ended early: that does not mean that the commit has failed.
#[cold]
fn unknown_outcome(error: Error) -> Error {
    if error.state() != SqlState::QUERY_CANCELED {
        return error;
    }
    let message =
        "the wait for the other voters was cancelled, and it is unknown whether the transaction is committed";
    Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message)
        .with_detail("It is on the disk of this server, and not yet on those of a majority of the voters.")
}

#[cold]
fn not_replicated() -> Error {
    Error::new(SqlState::WARNING, "canceling wait for synchronous replication due to user request").with_detail(
        "The transaction has already committed locally, but might not have been replicated to the standby.",
    )
}

#[cold]
fn ended_by_another() -> Error {
    let message =
        "terminating connection due to administrator command during the wait for synchronous replication";
    Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message).with_detail(
        "The transaction has already committed locally, but might not have been replicated to the standby.",
    )
}
