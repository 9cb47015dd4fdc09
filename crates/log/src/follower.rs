//! Following a log while it is written: groups in order, as soon as they are on disk.
//!
//! A follower reads the segment files like any other reader, but only what the log has reported as durable. So the writer
//! shares no memory with it except that position; a group costs the writer nothing, and the follower a read from the
//! operating system's cache.
//!
//! A follower that [reads what is sealed](Follower::read_sealed) gets a group from memory while it is written to the disk.
//!
//! It holds a pin, so what it reads is there. If the pin is broken, what it reads may be gone or overwritten meanwhile; a group
//! is then reported only if it is whole and follows the one before it, and the error is that of the pin and not of damage.
//!
//! Only the segments of what it reads next are open: one or two, or those of a long group. So neither a follower that is far behind
//! nor a silent one holds many files.

use crate::faults::Fault;
use crate::format::{LogPoint, SegmentHeader};
use crate::pins::Pin;
use crate::spill::Chunk;
use crate::window::{Group, WINDOW_BYTES, Window};
use crate::writer::Shared;
use firn_base::sync::{Arc, Ordering};
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::time::Duration;

/// A reader of a log that is being written.
pub struct Follower {
    shared: Arc<Shared>,
    pin: Pin,
    window: Window,
    point: LogPoint,
    reads: Reads,
    /// How often segments had changed when those of the window were opened.
    changes: u64,
    is_prompt: bool,
}

/// What a follower may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    /// What is committed.
    Committed,
    /// What is on disk, whether others have confirmed it or not.
    Durable,
    /// The same, and a group that is being written.
    Sealed,
}

/// What a [wait](Follower::wait) has ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The next group is durable, and ends at the limit or before.
    Group,
    /// The next group ends, or will end, after the limit: no wait helps.
    Limit,
    /// The time has passed.
    TimedOut,
    /// The log has been closed, and all of it has been returned.
    Closed,
}

impl Follower {
    /// From a point on, where the log ends at `end` now. Errors: 57P03 if the log does not reach that point yet; 55000 if the point is
    /// not of its history.
    pub(crate) fn new(shared: Arc<Shared>, pin: Pin, from: LogPoint, end: LogPoint) -> Result<Follower> {
        if from.lsn > end.lsn {
            return Err(behind(from.lsn, end.lsn));
        }
        let window = Window::new(VecDeque::new(), from.lsn);
        let (reads, changes) = (Reads::Committed, shared.written.changes());
        let mut follower = Follower { shared, pin, window, point: from, reads, changes, is_prompt: false };
        let is_known = if Fault::ComparedByLength.is_made() {
            true
        } else if from.lsn < end.lsn {
            follower.end_by_header(end.lsn)?.is_some() && follower.window.follows(&from)?
        } else {
            end.is_same_place(&from) && from.epoch <= end.epoch && from.wall_time <= end.wall_time
        };
        follower.check_pin()?;
        if is_known { Ok(follower) } else { Err(not_of_this_history(from.lsn)) }
    }

    /// Lets it read everything that is on disk.
    pub fn read_durable(mut self) -> Follower {
        self.reads = Reads::Durable;
        self
    }

    /// Lets it read everything that is on disk, and groups while they are being written. So it may have what this server has not on disk
    /// when it crashes.
    pub fn read_sealed(mut self) -> Follower {
        if self.reads != Reads::Sealed {
            self.reads = Reads::Sealed;
            self.shared.sealed.begin_to_follow();
        }
        self
    }

    /// Lets commits that no thread waits for be written sooner, since somebody wants to see them here: the groups are smaller then.
    pub fn read_promptly(mut self) -> Follower {
        if !self.is_prompt {
            self.is_prompt = true;
            self.shared.prompt_followers.fetch_add(1, Ordering::Relaxed);
        }
        self
    }

    /// The place after the last group that it has returned.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// Its claim on the log, which the holder moves ahead once it does not need older groups and their files any more.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The header of the segment in which the next group begins, or in which the last one has ended if that was at the end of the
    /// log. `None` if the log is empty.
    pub fn segment(&self) -> Option<SegmentHeader> {
        self.shared.written.header_at(self.point.lsn)
    }

    /// The headers of the segments in which a group lies that was just returned.
    pub fn segments_of(&self, group: &Group) -> impl Iterator<Item = &SegmentHeader> {
        self.window.segments_between(group.begin, group.end.lsn)
    }

    /// Reads a spill file that a group names, by that group's epoch, and passes its records to `sink`, chunk by chunk.
    ///
    /// Errors: 55000 if the pin has been broken, XX001 if the file is missing or damaged, those of `sink`.
    pub fn read_spill(
        &self,
        number: u64,
        epoch: Epoch,
        chunks: impl Iterator<Item = Result<Chunk>>,
        sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let read = self.shared.spills.reader().read(number, epoch, chunks, sink);
        // After reading: the file may have been removed if the pin was broken before.
        self.pin.position()?;
        read
    }

    /// The next group, if it may be read and ends at `up_to` or before.
    ///
    /// Errors: 55000 if its pin has been broken, XX001 if the log is damaged.
    pub fn next_group(&mut self, up_to: Lsn) -> Result<Option<Group>> {
        let durable = self.shared.readable(self.reads);
        let group = match durable.min(up_to) > self.point.lsn {
            true => self.read(durable, up_to),
            false if self.reads == Reads::Sealed => self.sealed_group(up_to),
            false => return Ok(None),
        };
        // After reading: what it read may have been overwritten if the pin was broken before.
        self.check_pin()?;
        let Some(group) = group? else { return Ok(None) };
        self.point = group.end;
        Ok(Some(group))
    }

    /// Waits until the next group is durable, if it ends at `up_to` or before, or for so long.
    ///
    /// Errors: that of the log, if it has failed; 55000 if the pin has been broken; XX001 if the log is damaged.
    pub fn wait(&mut self, up_to: Lsn, longest: Duration) -> Result<Waited> {
        self.check_pin()?;
        if up_to <= self.point.lsn {
            return Ok(Waited::Limit);
        }
        let waited = self.shared.wait_until(self.reads, longest, || self.has_next())?;
        let durable = self.shared.readable(self.reads);
        // Of a limit that is durable, the length of the group decides.
        if waited == Waited::Group && up_to < durable {
            let end = self.next_end(durable);
            self.check_pin()?;
            if end? > up_to {
                return Ok(Waited::Limit);
            }
        }
        Ok(waited)
    }

    /// Waits until there is a next group, or more than up to `committed` is committed, or for so long. Errors as of [`Follower::wait`].
    pub fn wait_for_news(&mut self, committed: Lsn, longest: Duration) -> Result<Waited> {
        self.check_pin()?;
        self.shared.wait_until(self.reads, longest, || self.has_next() || self.shared.committed() > committed)
    }

    /// Whether there is a next group.
    fn has_next(&self) -> bool {
        self.shared.readable(self.reads) > self.point.lsn
            || self.reads == Reads::Sealed && self.shared.sealed.has_after(&self.point)
    }

    /// Up to where the log is committed.
    pub fn committed(&self) -> Lsn {
        self.shared.committed()
    }

    /// Closes the segments if the pin has been broken: otherwise they would keep their space.
    fn check_pin(&mut self) -> Result<()> {
        self.pin
            .position()
            .map(drop)
            .inspect_err(|_| self.window = Window::new(VecDeque::new(), self.point.lsn))
    }

    /// The next group, unless it ends after `up_to`. Everything before `durable` is on disk, and is more than what has been
    /// returned.
    fn read(&mut self, durable: Lsn, up_to: Lsn) -> Result<Option<Group>> {
        if self.next_end(durable)? > up_to {
            return Ok(None);
        }
        match self.window.group_after(&self.point)? {
            Some(group) => Ok(Some(group)),
            None => Err(self.damaged()),
        }
    }

    /// The next group while it is being written, unless it ends after `up_to`. Its segments are open afterwards, but are not read there.
    fn sealed_group(&mut self, up_to: Lsn) -> Result<Option<Group>> {
        let group = self.shared.sealed.after(&self.point).filter(|group| group.end.lsn <= up_to);
        if let Some(group) = &group {
            self.close_passed_segments();
            self.open_up_to(group.end.lsn)?;
        }
        Ok(group)
    }

    /// Where the next group ends, whose segments are open afterwards. Everything before `durable` is on disk.
    fn next_end(&mut self, durable: Lsn) -> Result<Lsn> {
        self.end_by_header(durable)?.ok_or_else(|| self.damaged())
    }

    /// The same; `None` if no header of a group is there that ends before `durable`. The checksum has not been checked.
    fn end_by_header(&mut self, durable: Lsn) -> Result<Option<Lsn>> {
        let begin = self.point.lsn;
        self.close_passed_segments();
        // For a group of usual length, this opens all of its segments.
        self.open_to_read(durable.min(Lsn(begin.0 + WINDOW_BYTES)))?;
        let Some((header, header_len)) = self.window.header_at(begin)? else { return Ok(None) };
        let end = begin.0.saturating_add(header_len as u64).saturating_add(header.length);
        if Lsn(end) > durable {
            return Ok(None);
        }
        self.open_to_read(Lsn(end))?;
        Ok(Some(Lsn(end)))
    }

    /// Closes the segments before the next group, and those that are others now.
    fn close_passed_segments(&mut self) {
        let segments = &mut self.window.segments;
        // A segment of a log that is received may have ended early since, or have been replaced: another epoch has begun. What was read of it
        // was durable before that.
        let changes = self.shared.written.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            segments.clear();
        }
        while segments.front().is_some_and(|first| first.end <= self.point.lsn) {
            segments.pop_front();
        }
    }

    /// Makes everything up to a position readable, which is on disk.
    fn open_to_read(&mut self, end: Lsn) -> Result<()> {
        let reached = self.open_up_to(end)?;
        self.window.end = self.window.end.max(end.min(reached));
        Ok(())
    }

    /// Opens the segments up to a position, or as far as there are any. Returns where they end.
    fn open_up_to(&mut self, end: Lsn) -> Result<Lsn> {
        let segments = &mut self.window.segments;
        let reached = segments.back().map_or(self.point.lsn, |last| last.end);
        self.shared.written.open(reached, end, segments)
    }

    #[cold]
    fn damaged(&self) -> Error {
        self.window.damaged(self.point.lsn, "There is no whole group where one has been written.")
    }
}

#[cold]
fn behind(lsn: Lsn, end: Lsn) -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        format!("the log does not reach position {} yet, and ends at {}", lsn.0, end.0),
    )
    .with_detail("Whether it will have the same history there is unknown.")
}

#[cold]
fn not_of_this_history(lsn: Lsn) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("position {} is not of the history of this log", lsn.0),
    )
    .with_detail("No group ends there, or another one, or it is not on disk.")
    .with_hint("Begin again with a new copy of the database.")
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.is_prompt {
            self.shared.prompt_followers.fetch_sub(1, Ordering::Relaxed);
        }
        if self.reads == Reads::Sealed {
            self.shared.sealed.cease_to_follow();
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("point", &self.point).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{DatabaseId, Log, LogOptions, LogPoint};
    use firn_base::disk::SimulatedDisk;
    use firn_base::{Lsn, Time};
    use std::path::Path;

    #[test]
    fn a_follower_holds_few_segments_open_and_none_once_its_pin_is_broken() {
        const MEBIBYTE: usize = 1 << 20;
        let options = LogOptions {
            segment_bytes: MEBIBYTE as u64,
            most_pinned_bytes: Some(MEBIBYTE as u64),
            ..LogOptions::default()
        };
        let (disk, database) = (SimulatedDisk::new(), DatabaseId([1; 16]));
        let log = Log::open(disk, Path::new("/log"), database, LogPoint::START, options).unwrap();
        let redo = vec![7; MEBIBYTE / 2];
        for time in 1..=40 {
            let lsn = loop {
                match log.append(Time(time), &redo).unwrap() {
                    Some(lsn) => break lsn,
                    None => log.make_room(redo.len()).unwrap(),
                }
            };
            log.wait_durable(lsn).unwrap();
        }
        let mut follower = log.follow("far behind", LogPoint::START).unwrap();
        for _ in 0..10 {
            follower.next_group(Lsn(u64::MAX)).unwrap().unwrap();
            assert!((1..=3).contains(&follower.window.segments.len()));
        }
        log.truncate_before(log.durable_lsn(), |_, _| 0).unwrap();
        follower.next_group(Lsn(u64::MAX)).unwrap_err();
        assert!(follower.window.segments.is_empty());
    }

    #[test]
    fn the_log_is_flushed_more_often_while_it_is_followed_promptly() {
        let (disk, database, options) = (SimulatedDisk::new(), DatabaseId([1; 16]), LogOptions::default());
        let log = Log::open(disk, Path::new("/log"), database, LogPoint::START, options).unwrap();
        let usual = options.flush_interval;
        let begin = || log.follow("replica", LogPoint::START).unwrap();
        let plain = begin();
        let interval = || plain.shared.flush_interval();
        assert_eq!(interval(), usual);
        let (first, second) =
            (begin().read_promptly().read_durable(), begin().read_promptly().read_promptly());
        assert_eq!(interval(), usual / 5);
        drop(first);
        assert_eq!(interval(), usual / 5);
        drop(second);
        assert_eq!(interval(), usual);
    }
}
