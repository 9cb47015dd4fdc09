//! The files of the log: created in advance, filled in order, recycled.
//!
//! Overwriting blocks that are already allocated makes an fdatasync cost two thirds of one that
//! must also record a new length (90 µs against 135 µs where this was measured). So a segment is
//! filled with zeros before its first use, and a segment that a checkpoint has made superfluous becomes a
//! spare for the next one. A file gets its segment name only after its header is on disk: a segment name
//! with a torn header is always damage.
//!
//! The space of a segment is allocated before it counts as ready. So a write to the log does not meet a full disk; only
//! preparing a segment does, before any commit depends on it (docs/decisions/0061-space-before-a-commit.md).

use crate::format::{
    DATA_START, DatabaseId, GROUP_ALIGNMENT, SegmentHeader, parse_segment_name, segment_name,
};
use firn_base::clock::{Instant, now};
use firn_base::disk::{Disk, DiskFile};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of a file that is becoming a segment.
const PREPARING: &str = "preparing.tmp";
/// The suffix of the names of spares, after a number.
const SPARE_SUFFIX: &str = ".spare";
/// Length of the first segment; each following one is twice as long up to the option's length.
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
    /// Opened for writing through: a group is written by one call, and is on disk when the call returns. That takes 9 µs less
    /// than a write and an fdatasync (about 72 µs against 80 µs where this was measured).
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
}

/// Whether it pays to write the blocks of a new segment before its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Yes: many small flushes will follow.
    Zeros,
    /// No: few large writes are about to cover it all.
    Nothing,
}

/// All files of one log.
#[derive(Debug)]
pub struct Segments {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: DatabaseId,
    /// The length up to which new files grow; files that were found may have another length.
    file_bytes: u64,
    /// Segments in use, oldest first; the last one is being written.
    used: VecDeque<SegmentHeader>,
    /// Segments ready for use, next first.
    ready: VecDeque<Segment>,
    /// The segment being written and the position where writing begins, if there was no space for the rest of it when
    /// the log was opened: a copy of a file may take less space than the file.
    unallocated: Option<(Segment, Lsn)>,
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

/// The numbers of the segments in a directory, in order.
pub fn segment_numbers(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> =
        disk.list(directory)?.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens a segment and checks its header.
pub fn open_segment(disk: &dyn Disk, directory: &Path, number: u64, database: DatabaseId) -> Result<Found> {
    let path = directory.join(segment_name(number));
    let file = disk.open_write_through(&path)?;
    let mut bytes = [0; crate::format::SEGMENT_HEADER_LEN];
    if file.read_at(&mut bytes, 0)? < bytes.len() {
        return Ok(Found::Stub(path));
    }
    let header = SegmentHeader::decode(&bytes, &path, number, database)?;
    Ok(Found::Segment(Segment { header, file, path }))
}

impl Segments {
    /// Takes over the files in `directory` for writing at `at`; returns also the segment to write first. Syncs what a reader has
    /// read up to `at`, and removes leftovers of a crash. Succeeds on a full disk unless the log is new.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        file_bytes: u64,
        at: Lsn,
    ) -> Result<(Segments, Segment)> {
        assert!(file_bytes > DATA_START && file_bytes.is_multiple_of(8));
        disk.create_directory(directory)?;
        let mut segments = Segments {
            directory: directory.to_owned(),
            database,
            file_bytes,
            used: VecDeque::new(),
            ready: VecDeque::new(),
            unallocated: None,
            spares: Vec::new(),
            lacked_space: false,
            begun: now(),
            fill_ahead: Fill::Zeros,
            random: Random::from_entropy(),
            disk,
        };
        let mut current = None;
        let mut without_space = Vec::new();
        for number in segment_numbers(&*segments.disk, directory)? {
            let segment = match open_segment(&*segments.disk, directory, number, database)? {
                Found::Segment(segment) => segment,
                Found::Stub(path) => {
                    segments.disk.remove(&path)?;
                    continue;
                }
            };
            let has_space = match segment.file.allocate(segment.header.file_bytes) {
                Err(error) if error.state() == SqlState::DISK_FULL => false,
                outcome => outcome.map(|()| true)?,
            };
            // A crash of the process may have left unsynced bytes that recovery has just read as
            // committed. The sync makes them so.
            segment.file.sync()?;
            if segment.header.first <= at {
                segments.used.push_back(segment.header);
                segments.unallocated = (!has_space).then(|| (segment.clone(), at));
                current = Some(segment);
            } else if has_space && without_space.is_empty() {
                segments.ready.push_back(segment);
            } else {
                without_space.push(segment.path);
            }
        }
        // The last one first: a segment that is missing before another would be damage.
        for path in without_space.into_iter().rev() {
            segments.disk.remove(&path)?;
            segments.disk.sync_directory(directory)?;
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
        segments.disk.sync_directory(directory)?;
        let current = match current {
            Some(segment) => {
                assert!(at <= segment.header.end(), "the log continues where reading it ended");
                segment
            }
            None => {
                assert!(segments.ready.is_empty(), "the log continues where reading it ended");
                segments.prepare_at(0, at, FIRST_FILE_BYTES.min(file_bytes), Fill::Zeros)?;
                let first = segments.next();
                segments.fill_ahead = Fill::Zeros;
                first
            }
        };
        Ok((segments, current))
    }

    /// The segment after the last one used. Panics if none is ready: only what has [space](Segments::allocated) is written.
    pub fn next(&mut self) -> Segment {
        let segment = self.ready.pop_front().expect("what is written has space");
        self.used.push_back(segment.header);
        self.fill_ahead = if self.begun.elapsed() < QUICK { Fill::Nothing } else { Fill::Zeros };
        self.begun = now();
        segment
    }

    /// Everything before this position has space on the disk.
    pub fn allocated(&self) -> Lsn {
        match (&self.unallocated, self.ready.back()) {
            (Some((_, at)), _) => *at,
            (None, Some(last)) => last.header.end(),
            (None, None) => self.used.back().expect("an open log has a segment").end(),
        }
    }

    /// Makes sure that the next segment is ready.
    pub fn prepare_ahead(&mut self) -> Result<()> {
        if self.ready.is_empty() { self.prepare(self.fill_ahead) } else { Ok(()) }
    }

    /// Allocates space for everything before `lsn`, of which `entry_bytes` belong together. 53100 if the disk is full:
    /// then the log is as it was, or has got part of the space.
    pub fn allocate(&mut self, lsn: Lsn, entry_bytes: u64) -> Result<()> {
        if let Some((segment, _)) = &self.unallocated {
            segment.file.allocate(segment.header.file_bytes)?;
            segment.file.sync()?;
            self.unallocated = None;
        }
        while self.allocated() < lsn {
            self.prepare(if entry_bytes >= self.file_bytes { Fill::Nothing } else { self.fill_ahead })?;
        }
        Ok(())
    }

    /// Prepares another segment: a smaller one if the disk does not have the space.
    fn prepare(&mut self, fill: Fill) -> Result<()> {
        let last = self.ready.back().map(|segment| &segment.header).or(self.used.back());
        let last = *last.expect("an open log has a segment");
        let mut file_bytes = self.file_bytes.min(last.file_bytes * 2);
        loop {
            match self.prepare_at(last.number + 1, last.end(), file_bytes, fill) {
                Err(error) if error.state() == SqlState::DISK_FULL => {
                    self.lacked_space = true;
                    if file_bytes <= FIRST_FILE_BYTES {
                        return Err(error);
                    }
                    file_bytes =
                        FIRST_FILE_BYTES.max((file_bytes / 2).next_multiple_of(GROUP_ALIGNMENT as u64));
                }
                outcome => return outcome,
            }
        }
    }

    /// Whether the disk has lacked space for a segment of the usual length since the last call.
    pub fn take_lack_of_space(&mut self) -> bool {
        std::mem::take(&mut self.lacked_space)
    }

    fn prepare_at(&mut self, number: u64, first: Lsn, file_bytes: u64, fill: Fill) -> Result<()> {
        let temporary = self.directory.join(PREPARING);
        let path = self.directory.join(segment_name(number));
        let prepared = self.make(&temporary, &path, number, first, file_bytes, fill);
        if prepared.is_err() {
            // On a full disk the file is removed again to free its space. If that fails too, the first
            // error is the more useful one.
            let _ = self.disk.remove(&temporary);
            let _ = self.disk.remove(&path);
        }
        self.ready.push_back(prepared?);
        Ok(())
    }

    fn make(
        &mut self,
        temporary: &Path,
        path: &Path,
        number: u64,
        first: Lsn,
        file_bytes: u64,
        fill: Fill,
    ) -> Result<Segment> {
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
        let header = SegmentHeader {
            number,
            first,
            file_bytes,
            database: self.database,
            salt: self.random.next_u64(),
        };
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        self.disk.rename(temporary, path)?;
        self.disk.sync_directory(&self.directory)?;
        let file = self.disk.open_write_through(path)?;
        Ok(Segment { header, file, path: path.to_owned() })
    }

    /// Removes or recycles the segments that end at or before `lsn`, but never the one being written.
    pub fn truncate_before(&mut self, lsn: Lsn) -> Result<()> {
        let mut changed = false;
        while self.used.len() > 1 && self.used[0].end() <= lsn {
            let header = self.used[0];
            let path = self.directory.join(segment_name(header.number));
            if self.spares.len() < KEPT_SPARES && header.file_bytes == self.file_bytes {
                let spare = self.directory.join(format!("{:016x}{SPARE_SUFFIX}", header.number));
                self.disk.rename(&path, &spare)?;
                self.spares.push(spare);
            } else {
                self.disk.remove(&path)?;
            }
            self.used.pop_front();
            changed = true;
        }
        if changed { self.disk.sync_directory(&self.directory) } else { Ok(()) }
    }

    /// Whether a segment precedes the one being written.
    pub fn has_whole(&self) -> bool {
        self.used.len() > 1
    }

    /// The LSN of the first byte that is retained.
    pub fn begin(&self) -> Lsn {
        self.used.front().expect("an open log has a segment").first
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
