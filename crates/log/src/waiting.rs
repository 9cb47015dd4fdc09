//! Those who wait for a log: for groups to read, and for confirmation. All wait with the lock of `flushes`, so that none begins to sleep
//! just before what it waits for.

use crate::follower::{Reads, Waited};
use crate::writer::{Log, Shared};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use std::time::Duration;

/// How often one that waits for confirmation looks whether it is to end.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How long a follower that waits without limit sleeps at once.
const LONGEST_SLEEP: Duration = Duration::from_secs(86400);

impl Log {
    /// Returns once everything before `lsn` is committed: on disk here, which it writes if no other thread does, and confirmed by
    /// others, if that is [required](Log::require_confirmation). Calls `check` now and then while it waits for them.
    ///
    /// Errors: the cause of the log's failure, those of `check`, and why the wait was [abandoned](Log::abandon): then it is unknown whether
    /// the commit will be there.
    pub fn wait_committed(&self, lsn: Lsn, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let shared = &*self.shared;
        if shared.committed() >= lsn {
            return Ok(());
        }
        shared.wait_durable(lsn)?;
        let mut flushes = shared.flushes.lock();
        while shared.committed() < lsn {
            if let Some(error) = flushes.failure.as_ref().or(flushes.abandoned.as_ref()) {
                return Err(error.clone());
            }
            if flushes.closed {
                let message = "the log has been closed before the commit was confirmed";
                return Err(Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, message));
            }
            check()?;
            shared.confirmed.wait_for(&mut flushes, CHECK_EVERY);
        }
        Ok(())
    }

    /// Returns once everything before `lsn` is on disk here, whether it is confirmed by others or not.
    ///
    /// Errors: the cause of the log's failure, and why waits were [abandoned](Log::abandon).
    pub fn wait_local(&self, lsn: Lsn) -> Result<()> {
        let shared = &*self.shared;
        shared.wait_durable(lsn)?;
        let flushes = shared.flushes.lock();
        match flushes.abandoned.as_ref().filter(|_| shared.committed() < lsn) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Ends all waits for confirmation, and later ones, by this error.
    pub fn abandon(&self, error: Error) {
        self.shared.flushes.lock().abandoned = Some(error);
        self.shared.confirmed.notify_all();
    }
}

impl Shared {
    /// Wakes those who wait for confirmation, and followers, if more is committed.
    pub fn wake_waiting(&self) {
        // Under the lock, so that no thread begins to sleep in between.
        let is_news = self.flushes.lock().announce(self.committed());
        if is_news {
            // Those who read what is durable also send how much is committed.
            self.wake_all();
        }
    }

    /// Waits until something is there, for so long or until the log is closed. It is what becomes committed, or, for one that reads it, also
    /// what becomes durable or is written.
    ///
    /// Error: the cause of the log's failure.
    pub fn wait_until(&self, reads: Reads, longest: Duration, is_there: impl Fn() -> bool) -> Result<Waited> {
        let until = clock::now().checked_add(longest);
        let changed = match reads {
            Reads::Committed => &self.followed,
            Reads::Durable | Reads::Sealed => &self.followed_durable,
        };
        // The leader stores the position before it takes this lock and wakes followers: none sleeps over a group.
        let mut flushes = self.flushes.lock();
        loop {
            if is_there() {
                return Ok(Waited::Group);
            }
            if let Some(failure) = &flushes.failure {
                return Err(failure.clone());
            }
            if flushes.closed {
                return Ok(Waited::Closed);
            }
            // Without an end that a clock can show, it waits again and again.
            let left = until.map_or(LONGEST_SLEEP, |until| until.saturating_duration_since(clock::now()));
            if left.is_zero() {
                return Ok(Waited::TimedOut);
            }
            changed.wait_for(&mut flushes, left);
        }
    }

    /// Wakes those who wait for groups or for confirmation.
    pub fn wake_all(&self) {
        self.confirmed.notify_all();
        self.followed.notify_all();
        self.followed_durable.notify_all();
    }
}
