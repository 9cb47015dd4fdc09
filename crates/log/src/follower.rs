//! Following a log while it is written: groups in order, as soon as they are on disk.
//!
//! A follower reads the segment files like any other reader, but only what the log has reported as durable. So the writer
//! shares no memory with it except that position; a group costs the writer nothing, and the follower a read from the
//! operating system's cache.
//!
//! It holds a pin, so what it reads is there. If the pin is broken, what it reads may be gone or overwritten meanwhile; a group
//! is then reported only if it is whole and follows the one before it, and the error is that of the pin and not of damage.

use crate::format::LogPoint;
use crate::pins::Pin;
use crate::spill::SpillReader;
use crate::window::{Group, Window};
use crate::writer::Shared;
use firn_base::sync::Arc;
use firn_base::{Lsn, Result};
use std::collections::VecDeque;
use std::time::Duration;

/// A reader of a log that is being written.
pub struct Follower {
    shared: Arc<Shared>,
    pin: Pin,
    window: Window,
    point: LogPoint,
}

impl Follower {
    pub(crate) fn new(shared: Arc<Shared>, pin: Pin, from: LogPoint) -> Follower {
        Follower { shared, pin, window: Window::new(VecDeque::new(), from.lsn), point: from }
    }

    /// The place after the last group that it has returned.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// Its claim on the log, which the holder moves ahead once it does not need older groups and their files any more.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// A reader of the spill files that the groups name.
    pub fn spills(&self) -> SpillReader<'_> {
        self.shared.spills.reader()
    }

    /// The next group, if it is durable and ends at `up_to` or before.
    ///
    /// Errors: 55000 if its pin has been broken, XX001 if the log is damaged.
    pub fn next_group(&mut self, up_to: Lsn) -> Result<Option<Group>> {
        let durable = self.shared.durable();
        if durable.min(up_to) <= self.point.lsn {
            return Ok(None);
        }
        let group = self.read(durable);
        // After reading: what it read may have been overwritten if the pin was broken before.
        self.pin.position()?;
        let group = group?;
        if group.end.lsn > up_to {
            return Ok(None);
        }
        self.point = group.end;
        Ok(Some(group))
    }

    /// Waits until something is durable after the last group that it has returned, or for so long. False if nothing is.
    ///
    /// Errors: that of the log, if it has failed; 55000 if the pin has been broken.
    pub fn wait(&self, longest: Duration) -> Result<bool> {
        self.pin.position()?;
        self.shared.wait_beyond(self.point.lsn, longest)
    }

    /// The next group. Everything before `durable` is on disk, and is more than what has been returned.
    fn read(&mut self, durable: Lsn) -> Result<Group> {
        let segments = &mut self.window.segments;
        while segments.front().is_some_and(|first| first.end <= self.point.lsn) {
            segments.pop_front();
        }
        let reached = segments.back().map_or(self.point.lsn, |last| last.end);
        let reached = self.shared.written.open(reached, durable, segments)?;
        self.window.end = durable.min(reached);
        let group = self.window.group_after(&self.point)?;
        group.ok_or_else(|| {
            self.window.damaged(self.point.lsn, "There is no whole group where one has been written.")
        })
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("point", &self.point).finish_non_exhaustive()
    }
}
