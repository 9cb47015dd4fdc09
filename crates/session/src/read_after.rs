//! `firn.read_after`: a session of a replica waits, before it takes a snapshot, until what it wants to read has been replayed.
//!
//! A session that has no such setting pays for one comparison per snapshot. One that waits holds no place among the running
//! transactions, unless it waits inside a block.

use crate::connection::Connection;
use firn_base::sync::Ordering;
use firn_base::{Epoch, Error, Result, SqlState, clock};
use firn_sql::standby::{Token, lsn_text};
use std::time::Duration;

/// How often a waiting session looks how far replay is.
const INTERVAL: Duration = Duration::from_millis(2);

impl Connection {
    /// Waits until a new snapshot shows what the session wants to read.
    ///
    /// Errors: 57014 after `firn.read_after_timeout`, or if the statement is cancelled; 55000 if it is lost, or in a primary whose log
    /// does not have it.
    #[inline]
    pub(crate) fn wait_to_read(&self) -> Result<()> {
        match self.read_after {
            None => Ok(()),
            Some(token) => self.wait_for(token),
        }
    }

    #[cold]
    pub(crate) fn wait_for(&self, token: Token) -> Result<()> {
        let begun = clock::now();
        while !self.has_reached(token)? {
            self.check_cancel()?;
            let left = self.read_after_timeout.map(|longest| longest.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                return Err(self.is_behind(token));
            }
            clock::sleep(left.map_or(INTERVAL, |left| left.min(INTERVAL)));
        }
        Ok(())
    }

    /// Whether a snapshot shows it. 55000 if it is lost, or in a primary that does not have it.
    pub(crate) fn has_reached(&self, token: Token) -> Result<bool> {
        let engine = &self.shared.engine;
        if let Some(epoch) = token.epoch
            && let Some(end) = engine.end_of_epoch(epoch)
            && token.lsn > end
        {
            return Err(is_lost(token));
        }
        if engine.is_replica() {
            return Ok(engine.visible_lsn() >= token.lsn && self.has_epoch(token.epoch)?);
        }
        match engine.log_bytes().0 >= token.lsn.0 && self.has_epoch(token.epoch)? {
            true => Ok(true),
            false => Err(self.is_unknown(token)),
        }
    }

    /// Whether the log has reached an epoch.
    fn has_epoch(&self, epoch: Option<Epoch>) -> Result<bool> {
        let Some(epoch) = epoch else { return Ok(true) };
        // Relaxed: it only grows, and protects nothing.
        let known = &self.shared.known_epoch;
        if known.load(Ordering::Relaxed) >= epoch.0 {
            return Ok(true);
        }
        let engine = &self.shared.engine;
        let point = engine.log_point()?;
        known.fetch_max(point.epoch.0, Ordering::Relaxed);
        Ok(point.epoch >= epoch)
    }

    #[cold]
    fn is_behind(&self, token: Token) -> Error {
        let reached = lsn_text(self.shared.engine.visible_lsn());
        Error::new(SqlState::QUERY_CANCELED, "canceling statement due to firn.read_after_timeout")
            .with_detail(format!(
                "The log has been replayed up to {reached}, and the statement is to read after {token}."
            ))
    }

    #[cold]
    fn is_unknown(&self, token: Token) -> Error {
        let end = lsn_text(firn_base::Lsn(self.shared.engine.log_bytes().0));
        let message = format!("the log of this server does not have {token}, after which is to be read");
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail(format!("It ends at {end}, and the server is no replica, which could receive more."))
            .with_hint("RESET firn.read_after reads what the server has.")
    }
}

#[cold]
fn is_lost(token: Token) -> Error {
    let message = format!("the commit at {token}, after which is to be read, is lost");
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail("Another server was promoted, which had not received it.")
        .with_hint("RESET firn.read_after reads what the server has.")
}
