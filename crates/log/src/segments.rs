//! The files of the log: created in advance, filled in order, recycled.
//!
//! Overwriting blocks that are already allocated makes an fdatasync cost two thirds of one that
//! must also record a new length (90 µs against 135 µs where this was measured). So a segment is
//! filled with zeros before its first use, and a segment that a checkpoint has made superfluous becomes a
//! spare for the next one. A file gets its segment name only after its header is on disk: a segment name
//! with a torn header is always damage.
//!
//! Each opening of the log begins a new epoch with a new segment, where the last group before it ends: see `format`. What was
//! not written of the last segment is given back to the disk then. Until there is space for the new segment, nothing of the
//! epoch can be written.
//!
//! The space of a segment is allocated before it counts as ready. So a write to the log does not meet a full disk; only
//! preparing a segment does, before any commit depends on it (docs/decisions/0061-space-before-a-commit.md).

use crate::format::{
    DATA_START, DatabaseId, FORMAT_VERSION, GROUP_ALIGNMENT, SEGMENT_HEADER_LEN, SegmentHeader, SegmentName,
    numbered,
};
use firn_base::clock::{Instant, now};
use firn_base::disk::{Disk, DiskFile};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{Epoch, Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of a file that is becoming a segment.
const PREPARING: &str = "preparing.tmp";
/// The suffix of the names of spares, after a number and an epoch.
const SPARE_SUFFIX: &str = ".spare";
/// Length of the first segment of an epoch; each following one is twice as long up to the option's length.
const FIRST_FILE_BYTES: u64 = 4 << 20;
/// How many superfluous segments are kept as spares.
const KEPT_SPARES: usize = 4;

/// A log that fills a segment in less time than this is written in large flushes. These gain nothing from blocks that are
/// already allocated, and filling with zeros would double the bytes written to the disk.
const QUICK: Duration = Duration::from_secs(2);

/// One segment, open.
#[derive(Clone, Debug)]
pub struct Segment {
    pub header: SegmentHeader,
    /// Where the next one begins: at its last byte, or before it.
    pub end: Lsn,
    /// Opened for writing through: a group is written by one call, and is on disk when the call returns. That takes 9 µs less
    /// than a write and an fdatasync (about 72 µs against 80 µs where this was measured).
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
}

/// Whether it pays to write the blocks of a new segment before its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Many small flushes will follow.
    Zeros,
    /// Few large writes are about to cover it all.
    Nothing,
}

/// A segment that is being written, or was.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub header: SegmentHeader,
    /// Where the next one begins.
    pub end: Lsn,
}

/// The segments that are being written or were, also for readers beside the writer. These must not wait for a segment that is
/// being prepared.
#[derive(Debug)]
pub struct Written {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Oldest first; the last one is being written if it is of the present epoch. No other lock is taken under this one.
    used: Mutex<VecDeque<Used>>,
    /// Whether the first segment of the epoch is on disk.
    has_begun: AtomicBool,
}

impl Written {
    /// Whether the first segment of the epoch is on disk, so that other files of the epoch may be written.
    pub fn has_begun(&self) -> bool {
        // Acquire: pairs with the store after the segment was synced. The files that follow it are written by system calls.
        self.has_begun.load(Ordering::Acquire)
    }

    fn last(&self) -> Option<Used> {
        self.used.lock().back().copied()
    }

    /// Opens the segments from position `from` on, up to `to` or the last one that has been written to. Returns where they end.
    pub fn open(&self, from: Lsn, to: Lsn, segments: &mut VecDeque<Segment>) -> Result<Lsn> {
        let mut reached = from;
        while reached < to {
            let used = {
                let used = self.used.lock();
                let after = used.partition_point(|used| used.header.first <= reached);
                after.checked_sub(1).map(|at| used[at]).filter(|used| reached < used.end)
            };
            let Some(Used { header, end }) = used else { break };
            let path = self.directory.join(header.name().to_string());
            segments.push_back(Segment { header, end, file: self.disk.open(&path)?, path });
            reached = end;
        }
        Ok(reached)
    }
}

/// All files of one log.
#[derive(Debug)]
pub struct Segments {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: DatabaseId,
    /// The epoch of new segments.
    epoch: Epoch,
    /// The length up to which new files grow; files that were found may have another length.
    file_bytes: u64,
    /// Where the epoch begins.
    begin: Lsn,
    written: Arc<Written>,
    /// Segments ready for use, next first. All are of the present epoch.
    ready: VecDeque<Segment>,
    spares: Vec<PathBuf>,
    /// Whether the disk has lacked space for a segment of the usual length.
    lacked_space: bool,
    /// When writing of the present segment began.
    begun: Instant,
    /// How to create the next segment, depending on how long the last one lasted.
    fill_ahead: Fill,
    random: Random,
}

/// A segment file as found in the directory.
pub enum Found {
    Segment(Segment),
    /// Too short for a header: a copy of a log was truncated here. (A crash leaves no such file.)
    Stub(PathBuf),
}

/// The names of the segments in a directory, in order.
pub fn segment_names(disk: &dyn Disk, directory: &Path) -> Result<Vec<SegmentName>> {
    let mut names: Vec<SegmentName> =
        disk.list(directory)?.iter().filter_map(|name| SegmentName::parse(name)).collect();
    names.sort_unstable();
    Ok(names)
}

/// Of these segments, those that count, in order; and the others, which segments of later epochs with the same or lower
/// numbers have replaced.
pub fn in_force(mut names: Vec<SegmentName>) -> (Vec<SegmentName>, Vec<SegmentName>) {
    // The newest epoch first: the lowest number so far ends all earlier epochs.
    names.sort_unstable_by_key(|name| (std::cmp::Reverse(name.epoch), name.number));
    let (mut counting, mut replaced) = (Vec::new(), Vec::new());
    let (mut epoch, mut lowest, mut lowest_here) = (None, u64::MAX, u64::MAX);
    for name in names {
        if epoch != Some(name.epoch) {
            (epoch, lowest) = (Some(name.epoch), lowest_here);
        }
        lowest_here = lowest_here.min(name.number);
        if name.number < lowest { counting.push(name) } else { replaced.push(name) }
    }
    counting.sort_unstable();
    (counting, replaced)
}

/// Opens a segment and checks its header.
pub fn open_segment(
    disk: &dyn Disk,
    directory: &Path,
    name: SegmentName,
    database: DatabaseId,
) -> Result<Found> {
    let path = directory.join(name.to_string());
    let file = disk.open_write_through(&path)?;
    let mut bytes = [0; SEGMENT_HEADER_LEN];
    if file.read_at(&mut bytes, 0)? < SegmentHeader::length(&bytes) {
        return Ok(Found::Stub(path));
    }
    let header = SegmentHeader::decode(&bytes, &path, name, database)?;
    Ok(Found::Segment(Segment { header, end: header.end(), file, path }))
}

impl Segments {
    /// Takes over the files in `directory`, in which reading has ended at `at`, and begins a new epoch there, later than `last`.
    /// Syncs what a reader has read up to `at`, and removes leftovers of a crash. Succeeds on a full disk unless the log is new.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        file_bytes: u64,
        at: Lsn,
        last: Epoch,
    ) -> Result<Segments> {
        assert!(file_bytes > DATA_START && file_bytes.is_multiple_of(8));
        disk.create_directory(directory)?;
        let names = segment_names(&*disk, directory)?;
        let last = names.iter().map(|name| name.epoch).fold(last, Epoch::max);
        let (names, mut leftover) = in_force(names);
        let mut segments = Segments {
            directory: directory.to_owned(),
            database,
            epoch: Epoch(last.0 + 1),
            file_bytes,
            begin: at,
            written: Arc::new(Written {
                disk: disk.clone(),
                directory: directory.to_owned(),
                used: Mutex::default(),
                has_begun: AtomicBool::new(false),
            }),
            ready: VecDeque::new(),
            spares: Vec::new(),
            lacked_space: false,
            begun: now(),
            fill_ahead: Fill::Zeros,
            random: Random::from_entropy(),
            disk,
        };
        let mut newest = None;
        for name in names {
            match open_segment(&*segments.disk, directory, name, database)? {
                Found::Segment(segment) if segment.header.first <= at => {
                    // A crash of the process may have left unsynced bytes that recovery has just read as
                    // committed. The sync makes them so.
                    segment.file.sync()?;
                    let mut used = segments.written.used.lock();
                    if let Some(before) = used.back_mut() {
                        before.end = segment.header.first;
                    }
                    used.push_back(Used { header: segment.header, end: at });
                    drop(used);
                    newest = Some(segment);
                }
                _ => leftover.push(name),
            }
        }
        for name in segments.disk.list(directory)? {
            let path = directory.join(&name);
            if name == PREPARING {
                segments.disk.remove(&path)?;
            } else if name.ends_with(SPARE_SUFFIX) {
                if segments.disk.open(&path)?.len()? == file_bytes && segments.spares.len() < KEPT_SPARES {
                    segments.spares.push(path);
                } else {
                    segments.disk.remove(&path)?;
                }
            }
        }
        // The last one first: a segment that is missing before another would be damage.
        leftover.sort_unstable();
        for name in leftover.into_iter().rev() {
            segments.dismiss(name)?;
            segments.disk.sync_directory(directory)?;
        }
        segments.disk.sync_directory(directory)?;
        if let Some(newest) = newest {
            assert!(at <= newest.header.end(), "the log continues where reading it ended");
            segments.give_back_rest(&newest, at)?;
        }
        match segments.begin_epoch() {
            Err(error) if error.state() == SqlState::DISK_FULL && segments.written.last().is_some() => {
                Ok(segments)
            }
            outcome => outcome.map(|()| segments),
        }
    }

    /// Frees the space of a segment behind `at`, where nothing will be written any more.
    fn give_back_rest(&self, segment: &Segment, at: Lsn) -> Result<()> {
        let length = DATA_START + (at.0 - segment.header.first.0);
        if segment.file.len()? > length {
            segment.file.set_len(length)?;
            segment.file.sync()?;
        }
        Ok(())
    }

    /// Removes the file of a segment that is not needed, or keeps it as a spare.
    fn dismiss(&mut self, name: SegmentName) -> Result<()> {
        let path = self.directory.join(name.to_string());
        if self.spares.len() < KEPT_SPARES && self.disk.open(&path)?.len()? == self.file_bytes {
            let spare = self.directory.join(numbered(name.number, name.epoch, SPARE_SUFFIX));
            self.disk.rename(&path, &spare)?;
            self.spares.push(spare);
            Ok(())
        } else {
            self.disk.remove(&path)
        }
    }

    /// The segments that are being written or were.
    pub fn written(&self) -> &Arc<Written> {
        &self.written
    }

    /// The epoch of what is written.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Makes sure that the first segment of the epoch is there: before that, nothing else of the epoch is written. 53100 if
    /// the disk is full.
    pub fn begin_epoch(&mut self) -> Result<()> {
        if self.written.has_begun() { Ok(()) } else { self.prepare(self.fill_ahead) }
    }

    /// Whether a segment of the epoch is being written.
    fn is_writing(&self) -> bool {
        self.written.last().is_some_and(|last| last.header.epoch == self.epoch)
    }

    /// The segment after the last one used. Panics if none is ready: only what has [space](Segments::allocated) is written.
    pub fn next(&mut self) -> Segment {
        let segment = self.ready.pop_front().expect("what is written has space");
        if self.is_writing() {
            self.fill_ahead = if self.begun.elapsed() < QUICK { Fill::Nothing } else { Fill::Zeros };
        }
        self.written.used.lock().push_back(Used { header: segment.header, end: segment.end });
        self.begun = now();
        segment
    }

    /// Everything before this position has space on the disk.
    pub fn allocated(&self) -> Lsn {
        match (self.ready.back(), self.written.last()) {
            (Some(last), _) => last.end,
            (None, Some(last)) => last.end,
            (None, None) => self.begin,
        }
    }

    /// Makes sure that the next segment is ready.
    pub fn prepare_ahead(&mut self) -> Result<()> {
        // One is about to be the present segment.
        let wanted = if self.is_writing() { 1 } else { 2 };
        while self.ready.len() < wanted {
            self.prepare(self.fill_ahead)?;
        }
        Ok(())
    }

    /// Allocates space for everything before `lsn`, of which `entry_bytes` belong together. 53100 if the disk is full:
    /// then the log is as it was, or has got part of the space.
    pub fn allocate(&mut self, lsn: Lsn, entry_bytes: u64) -> Result<()> {
        while self.allocated() < lsn {
            self.prepare(if entry_bytes >= self.file_bytes { Fill::Nothing } else { self.fill_ahead })?;
        }
        Ok(())
    }

    /// Prepares another segment: a smaller one if the disk does not have the space.
    fn prepare(&mut self, fill: Fill) -> Result<()> {
        let last = self.ready.back().map(|segment| Used { header: segment.header, end: segment.end });
        let last = last.or(self.written.last());
        // Of an earlier epoch that has written nothing to its last segment, a new one takes the place.
        let replaced = last.filter(|last| last.header.epoch != self.epoch && last.header.first == last.end);
        let (number, first, mut file_bytes) = match last {
            None => (0, self.begin, FIRST_FILE_BYTES),
            Some(last) => {
                let number = if replaced.is_some() { last.header.number } else { last.header.number + 1 };
                let is_first = last.header.epoch != self.epoch;
                (number, last.end, if is_first { FIRST_FILE_BYTES } else { 2 * last.header.file_bytes })
            }
        };
        file_bytes = file_bytes.min(self.file_bytes);
        loop {
            match self.prepare_at(number, first, file_bytes, fill) {
                Err(error) if error.state() == SqlState::DISK_FULL => {
                    self.lacked_space = true;
                    if !self.spares.is_empty() && file_bytes != self.file_bytes {
                        // Its space is allocated already.
                        file_bytes = self.file_bytes;
                        continue;
                    }
                    if file_bytes <= FIRST_FILE_BYTES {
                        return Err(error);
                    }
                    file_bytes =
                        FIRST_FILE_BYTES.max((file_bytes / 2).next_multiple_of(GROUP_ALIGNMENT as u64));
                }
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        if let Some(replaced) = replaced {
            self.written.used.lock().pop_back();
            // What cannot be removed now does not count, and is removed when the log is next opened.
            let _ = self.disk.remove(&self.directory.join(replaced.header.name().to_string()));
        }
        Ok(())
    }

    /// Whether the disk has lacked space for a segment of the usual length since the last call.
    pub fn take_lack_of_space(&mut self) -> bool {
        std::mem::take(&mut self.lacked_space)
    }

    fn prepare_at(&mut self, number: u64, first: Lsn, file_bytes: u64, fill: Fill) -> Result<()> {
        let temporary = self.directory.join(PREPARING);
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            number,
            epoch: self.epoch,
            first,
            file_bytes,
            database: self.database,
            salt: self.random.next_u64(),
        };
        let path = self.directory.join(header.name().to_string());
        let prepared = self.make(&temporary, &path, header, fill);
        if prepared.is_err() {
            // On a full disk the file is removed again to free its space. If that fails too, the first
            // error is the more useful one.
            let _ = self.disk.remove(&temporary);
            let _ = self.disk.remove(&path);
        }
        self.ready.push_back(prepared?);
        self.written.has_begun.store(true, Ordering::Release);
        Ok(())
    }

    fn make(&mut self, temporary: &Path, path: &Path, header: SegmentHeader, fill: Fill) -> Result<Segment> {
        let file_bytes = header.file_bytes;
        let spare = if file_bytes == self.file_bytes { self.spares.pop() } else { None };
        let file = match &spare {
            Some(spare) => {
                self.disk.rename(spare, temporary)?;
                self.disk.open(temporary)?
            }
            None => self.disk.create(temporary)?,
        };
        // First, since a full disk then fails it at once, and without filling up for others.
        file.allocate(file_bytes)?;
        if spare.is_none() && fill == Fill::Zeros {
            write_zeros(&*file, file_bytes)?;
        }
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        self.disk.rename(temporary, path)?;
        self.disk.sync_directory(&self.directory)?;
        let file = self.disk.open_write_through(path)?;
        Ok(Segment { header, end: header.end(), file, path: path.to_owned() })
    }

    /// Removes or recycles the segments that end at or before `lsn`, but never the one being written, nor the last one.
    pub fn truncate_before(&mut self, lsn: Lsn) -> Result<()> {
        let mut changed = false;
        loop {
            let (first, count) = {
                let used = self.written.used.lock();
                (used.front().copied(), used.len())
            };
            let has_next =
                |first: &Used| count > 1 || first.header.epoch != self.epoch && !self.ready.is_empty();
            let Some(first) = first.filter(|first| first.end <= lsn && has_next(first)) else { break };
            self.dismiss(first.header.name())?;
            self.written.used.lock().pop_front();
            changed = true;
        }
        if changed { self.disk.sync_directory(&self.directory) } else { Ok(()) }
    }

    /// Whether a segment precedes the one being written.
    pub fn has_whole(&self) -> bool {
        let being_written = usize::from(self.is_writing());
        self.written.used.lock().len() > being_written
    }

    /// The LSN of the first byte that is retained.
    pub fn begin(&self) -> Lsn {
        let first = self.ready.front().map(|segment| segment.header);
        let used = self.written.used.lock();
        used.front().map(|used| used.header).or(first).map_or(self.begin, |header| header.first)
    }
}

fn write_zeros(file: &dyn DiskFile, length: u64) -> Result<()> {
    let zeros = vec![0; length.min(1 << 20) as usize];
    let mut at = 0;
    while at < length {
        let step = (length - at).min(zeros.len() as u64);
        file.write_at(&zeros[..step as usize], at)?;
        at += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_a_later_epoch_replaces_those_from_its_number_on() {
        let names = |list: &[(u64, u64)]| -> Vec<SegmentName> {
            list.iter().map(|(number, epoch)| SegmentName { number: *number, epoch: Epoch(*epoch) }).collect()
        };
        let cases: &[(&[(u64, u64)], &[(u64, u64)])] = &[
            (&[], &[]),
            (&[(0, 0), (1, 0)], &[(0, 0), (1, 0)]),
            // A second start, while the first one had prepared a segment.
            (&[(0, 1), (1, 1), (2, 1), (2, 2)], &[(0, 1), (1, 1), (2, 2)]),
            // A cut.
            (&[(0, 1), (1, 1), (2, 1), (1, 2)], &[(0, 1), (1, 2)]),
            (&[(5, 1), (6, 1), (7, 3), (8, 3), (6, 2), (7, 2)], &[(5, 1), (6, 2), (7, 3), (8, 3)]),
            // Of three with one number the newest.
            (&[(3, 1), (3, 2), (3, 9), (2, 1)], &[(2, 1), (3, 9)]),
        ];
        for (all, expected) in cases {
            let (counting, replaced) = in_force(names(all));
            assert_eq!(counting, names(expected));
            assert_eq!(counting.len() + replaced.len(), all.len());
        }
    }
}
