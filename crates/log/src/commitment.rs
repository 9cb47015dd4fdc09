//! Which part of a log is committed: what is durable, and has been confirmed by others if that is required.

use crate::format::LogPoint;
use crate::writer::Log;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Lsn, Time};
use std::collections::VecDeque;

/// Up to where a log is committed.
pub(crate) struct Commitment {
    /// Everything before this position is committed. Stored with Release, loaded with Acquire, although it publishes nothing but the number.
    lsn: AtomicU64,
    /// Every commit up to this time is before it.
    time: AtomicU64,
    confirmation: Mutex<Confirmation>,
}

/// Up to where the log is known to be on the disks of others, if they must have what is committed.
struct Confirmation {
    /// `None` if nobody else needs to have it.
    confirmed: Option<Lsn>,
    /// The ends of groups that are durable and not committed yet, with the newest commit time of each.
    waiting: VecDeque<(LogPoint, Time)>,
    /// Up to where the log is committed.
    committed: LogPoint,
}

impl Commitment {
    /// Of a log of which everything is committed up to a point.
    pub fn new(committed: LogPoint) -> Commitment {
        let confirmation = Confirmation { confirmed: None, waiting: VecDeque::new(), committed };
        let (lsn, time) = (AtomicU64::new(committed.lsn.0), AtomicU64::new(0));
        Commitment { lsn, time, confirmation: Mutex::new(confirmation) }
    }

    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    /// Every commit up to this time is committed; 0 if none has been since the log was opened.
    pub fn time(&self) -> Time {
        // Acquire: as the position, which is never behind it for a thread that loads this first.
        Time(self.time.load(Ordering::Acquire))
    }

    pub fn point(&self) -> LogPoint {
        self.confirmation.lock().committed
    }

    /// Notes that groups are on disk that end at these points, with the newest commit time of each. `durable` is called with the last one's
    /// position before anything is committed.
    pub fn note(&self, groups: impl Iterator<Item = (LogPoint, Time)>, durable: impl FnOnce(Lsn)) {
        let mut confirmation = self.confirmation.lock();
        confirmation.waiting.extend(groups);
        if let Some((last, _)) = confirmation.waiting.back() {
            durable(last.lsn);
            self.advance(&mut confirmation);
        }
    }

    /// From now on, nothing more is committed before it is confirmed; what was confirmed before does not count.
    pub fn require(&self) {
        let mut confirmation = self.confirmation.lock();
        confirmation.confirmed = Some(confirmation.committed.lsn);
    }

    /// The same for a log of which nobody has seen more than is before a point. Further groups end at these.
    pub fn require_from(&self, committed: LogPoint, further: Vec<LogPoint>) {
        let mut confirmation = self.confirmation.lock();
        let waiting = further.into_iter().map(|end| (end, Time(0))).collect();
        *confirmation = Confirmation { confirmed: Some(committed.lsn), waiting, committed };
        self.lsn.store(committed.lsn.0, Ordering::Release);
    }

    /// From now on, everything that is durable is committed.
    pub fn require_nothing(&self) {
        let mut confirmation = self.confirmation.lock();
        confirmation.confirmed = None;
        self.advance(&mut confirmation);
    }

    /// Notes that others have everything before a position. Returns whether more is committed.
    pub fn confirm(&self, lsn: Lsn) -> bool {
        let mut confirmation = self.confirmation.lock();
        let Some(confirmed) = confirmation.confirmed else { return false };
        if lsn <= confirmed {
            return false;
        }
        confirmation.confirmed = Some(lsn);
        self.advance(&mut confirmation)
    }

    /// Groups are committed that are durable, and confirmed if that is required. Returns whether there was any.
    fn advance(&self, confirmation: &mut Confirmation) -> bool {
        let confirmed = confirmation.confirmed.unwrap_or(Lsn(u64::MAX));
        let mut has_advanced = false;
        while let Some((end, newest)) = confirmation.waiting.pop_front_if(|(end, _)| end.lsn <= confirmed) {
            confirmation.committed = end;
            self.time.store(newest.0, Ordering::Release);
            has_advanced = true;
        }
        // In this order: who loads the time first finds a position that is not behind it.
        self.lsn.store(confirmation.committed.lsn.0, Ordering::Release);
        has_advanced
    }
}

impl Log {
    /// From now on, nothing more is committed before it is [confirmed](Log::confirm); what was confirmed before does not count.
    pub fn require_confirmation(&self) {
        self.shared.commitment.require();
    }

    /// The same for a log that was just opened: it is known to be committed up to a point, and further groups end at these. Nobody has
    /// seen them.
    pub fn require_confirmation_from(&self, committed: LogPoint, further: Vec<LogPoint>) {
        self.shared.commitment.require_from(committed, further);
    }

    /// From now on, everything that is durable is committed.
    pub fn require_no_confirmation(&self) {
        self.shared.commitment.require_nothing();
        self.shared.wake_waiting();
    }

    /// Every commit up to this time is committed; 0 if none has been since the log was opened.
    pub fn committed_time(&self) -> Time {
        self.shared.commitment.time()
    }

    /// Everything before this position is on disk, and has been confirmed if that is required.
    pub fn committed_lsn(&self) -> Lsn {
        self.shared.committed()
    }

    /// The place up to which the log is committed.
    pub fn committed_point(&self) -> LogPoint {
        self.shared.commitment.point()
    }

    /// Everything before a position is on disk wherever it has to be, but perhaps here. Does nothing if no confirmation is required.
    pub fn confirm(&self, lsn: Lsn) {
        if self.shared.commitment.confirm(lsn) {
            self.shared.wake_waiting();
        }
    }
}
