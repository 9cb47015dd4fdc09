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
//!
//! A segment takes at most half of what is free on the disk, so that the log never leaves a checkpoint, which frees the log,
//! without space. Where less is free, commits get segments of the length that they need, except for a reserve. The first segment of
//! an epoch may take what the opening has given back: a restart does not refuse what was accepted before it.
//!
//! A log that is [received](crate::Log::receive) has the segments of the log that it is a copy of: none is prepared here.

use crate::format::{
    DATA_START, DatabaseId, FORMAT_VERSION, GROUP_ALIGNMENT, SEGMENT_HEADER_LEN, SegmentHeader, SegmentName,
    numbered,
};
use firn_base::clock::{Instant, now};
use firn_base::disk::{Disk, DiskFile, io_error};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of a file that is becoming a segment.
const PREPARING: &str = "preparing.tmp";
/// The suffix of the names of spares, after a number and an epoch.
const SPARE_SUFFIX: &str = ".spare";
/// Length of the first segment of an epoch; each following one is twice as long up to the option's length.
const FIRST_FILE_BYTES: u64 = 4 << 20;
/// The least length of a segment on a nearly full disk.
const LEAST_FILE_BYTES: u64 = 64 << 10;
/// On a nearly full disk, this fraction of [`FIRST_FILE_BYTES`] is left to checkpoints.
const RESERVED_PART: u64 = 4;
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
    changes: AtomicU64,
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

    /// Notes that a segment of a log that is received has begun. It may take the place of the last one.
    pub fn begin_received(&self, header: SegmentHeader) {
        let mut used = self.used.lock();
        let mut has_changed = false;
        while used.pop_back_if(|last| last.header.number >= header.number).is_some() {
            has_changed = true;
        }
        if let Some(last) = used.back_mut() {
            has_changed |= last.end != header.first;
            last.end = header.first;
        }
        used.push_back(Used { header, end: header.end() });
        if has_changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes that receiving begins again at a position, without a segment that only begins there.
    pub fn restart(&self, at: Lsn) {
        let mut used = self.used.lock();
        let mut has_changed = false;
        while used.len() > 1 && used.back().is_some_and(|last| last.header.first >= at) {
            used.pop_back();
            has_changed = true;
        }
        if let Some(last) = used.back_mut() {
            has_changed |= last.end != last.header.end();
            last.end = last.header.end();
        }
        if has_changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often a segment that had begun has been replaced, or has ended before its file did, while the log is received. So far a reader may
    /// use the files that it has opened.
    pub fn changes(&self) -> u64 {
        // Acquire: pairs with the store after the change.
        self.changes.load(Ordering::Acquire)
    }

    /// The header of the last segment that begins at a position or before it. `None` if none has been written to.
    pub fn header_at(&self, lsn: Lsn) -> Option<SegmentHeader> {
        let used = self.used.lock();
        let after = used.partition_point(|used| used.header.first <= lsn);
        after.checked_sub(1).map(|at| used[at].header)
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
            segments.push_back(Segment { header, end, file: self.disk.open_to_read(&path)?, path });
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
    /// Whether the log is received: then there are no new segments but those of another log.
    is_received: bool,
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
    /// Bytes of superfluous files that have been freed before the epoch began.
    given_back: u64,
    /// Whether the last segment of an earlier epoch has been cut to its header.
    last_is_cut: bool,
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

/// Opens a segment for writing through, and checks its header.
pub fn open_segment(
    disk: &dyn Disk,
    directory: &Path,
    name: SegmentName,
    database: DatabaseId,
) -> Result<Found> {
    let path = directory.join(name.to_string());
    check_segment(disk.open_write_through(&path)?, path, name, database)
}

/// Opens a segment for reading, and checks its header.
pub fn open_segment_to_read(
    disk: &dyn Disk,
    directory: &Path,
    name: SegmentName,
    database: DatabaseId,
) -> Result<Found> {
    let path = directory.join(name.to_string());
    check_segment(disk.open_to_read(&path)?, path, name, database)
}

fn check_segment(
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    name: SegmentName,
    database: DatabaseId,
) -> Result<Found> {
    let mut bytes = [0; SEGMENT_HEADER_LEN];
    if file.read_at(&mut bytes, 0)? < SegmentHeader::length(&bytes) {
        return Ok(Found::Stub(path));
    }
    let header = SegmentHeader::decode(&bytes, &path, name, database)?;
    Ok(Found::Segment(Segment { header, end: header.end(), file, path }))
}

impl Segments {
    /// Takes over the files in `directory`, in which reading has ended at `at`, and begins a new epoch there, later than `last`,
    /// unless the log `is_received`. Syncs what a reader has read up to `at`, and removes leftovers of a crash. Succeeds on a full
    /// disk unless the log is new.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        file_bytes: u64,
        at: Lsn,
        last: Epoch,
        is_received: bool,
    ) -> Result<Segments> {
        assert!(file_bytes > DATA_START && file_bytes.is_multiple_of(8));
        disk.create_directory(directory)?;
        let names = segment_names(&*disk, directory)?;
        let last = names.iter().map(|name| name.epoch).fold(last, Epoch::max);
        let epoch = last.0.checked_add(u64::from(!is_received)).ok_or_else(|| {
            let message =
                format!("a file in \"{}\" has an impossible epoch in its name", directory.display());
            Error::new(SqlState::DATA_CORRUPTED, message).with_hint("Move that file away.")
        })?;
        let (names, mut leftover) = in_force(names);
        let mut segments = Segments {
            directory: directory.to_owned(),
            database,
            epoch: Epoch(epoch),
            is_received,
            file_bytes,
            begin: at,
            written: Arc::new(Written {
                disk: disk.clone(),
                directory: directory.to_owned(),
                used: Mutex::default(),
                has_begun: AtomicBool::new(is_received),
                changes: AtomicU64::new(0),
            }),
            ready: VecDeque::new(),
            spares: Vec::new(),
            lacked_space: false,
            given_back: 0,
            last_is_cut: false,
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
                let is_of_use = segments.spares.len() < KEPT_SPARES && !is_received;
                if is_of_use && segments.disk.open(&path)?.len()? == file_bytes {
                    segments.spares.push(path);
                } else {
                    segments.disk.remove(&path)?;
                }
            }
        }
        // The last one first: a segment that is missing before another would be damage.
        leftover.sort_unstable();
        for name in leftover.into_iter().rev() {
            let spare = segments.dismiss(name, 0)?;
            segments.disk.sync_directory(directory)?;
            segments.spares.extend(spare);
        }
        segments.disk.sync_directory(directory)?;
        if is_received {
            // Its copy continues there.
            if let Some(last) = segments.written.used.lock().back_mut() {
                last.end = last.header.end();
            }
            return Ok(segments);
        }
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
    fn give_back_rest(&mut self, segment: &Segment, at: Lsn) -> Result<()> {
        self.cut(&*segment.file, DATA_START + (at.0 - segment.header.first.0))
    }

    /// Frees the space of a file of an earlier epoch behind `length`.
    fn cut(&mut self, file: &dyn DiskFile, length: u64) -> Result<()> {
        let before = file.len()?;
        if before > length {
            file.set_len(length)?;
            file.sync()?;
            self.given_back += before - length;
        }
        self.last_is_cut = before.min(length) <= DATA_START;
        Ok(())
    }

    /// Removes the file of a segment that is not needed, or makes it a spare, whose path it returns. That one may be used once
    /// the directory has been synced: before, a power cut may give it its old name again. `more` such spares are about to be.
    fn dismiss(&mut self, name: SegmentName, more: usize) -> Result<Option<PathBuf>> {
        let path = self.directory.join(name.to_string());
        let length = self.disk.open(&path)?.len()?;
        if self.spares.len() + more < KEPT_SPARES && length == self.file_bytes && !self.is_received {
            let spare = self.directory.join(numbered(name.number, name.epoch, SPARE_SUFFIX));
            self.disk.rename(&path, &spare)?;
            Ok(Some(spare))
        } else {
            self.disk.remove(&path)?;
            if !self.written.has_begun() {
                self.given_back += length;
            }
            Ok(None)
        }
    }

    /// Begins a new epoch at `at`, where receiving has ended: `epoch`, or the next one if it has begun already. From now on segments are
    /// prepared here. Those that have begun behind that place have nothing in them.
    pub fn begin_to_write(&mut self, at: Lsn, epoch: Epoch) {
        assert!(self.is_received, "it was received");
        let mut empty = Vec::new();
        let last = {
            let mut used = self.written.used.lock();
            let last = used.iter().map(|used| used.header.epoch).fold(self.epoch, Epoch::max);
            empty.extend(std::iter::from_fn(|| used.pop_back_if(|used| used.header.first > at)));
            used.back_mut().into_iter().for_each(|last| last.end = at);
            self.written.changes.fetch_add(1, Ordering::AcqRel);
            last
        };
        for empty in empty {
            // What cannot be removed now does not count, and is removed when the log is next opened.
            let _ = self.disk.remove(&self.directory.join(empty.header.name().to_string()));
        }
        (self.epoch, self.begin, self.is_received) = (epoch.max(Epoch(last.0 + 1)), at, false);
        self.begun = now();
        self.written.has_begun.store(false, Ordering::Release);
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
        if self.written.has_begun() { Ok(()) } else { self.prepare(self.fill_ahead, None) }
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

    /// Makes sure that the next segment is ready. 53100 if the disk is nearly full: then commits get what they need.
    pub fn prepare_ahead(&mut self) -> Result<()> {
        // One is about to be the present segment.
        let wanted = if self.is_writing() { 1 } else { 2 };
        while self.ready.len() < wanted {
            self.prepare(self.fill_ahead, None)?;
        }
        Ok(())
    }

    /// Allocates space for everything before `lsn`, of which `entry_bytes` belong together. 53100 if the disk is full:
    /// then the log is as it was, or has got part of the space.
    pub fn allocate(&mut self, lsn: Lsn, entry_bytes: u64) -> Result<()> {
        let missing = lsn.0.saturating_sub(self.allocated().0);
        let spares = self.spares.len() as u64 * self.file_bytes;
        let reserved = if self.written.has_begun() { self.reserved_bytes() } else { 0 };
        if missing.saturating_sub(spares) > self.free_bytes().saturating_sub(reserved) {
            // None of it, since others need what there is.
            self.lacked_space = true;
            return Err(self.full());
        }
        while self.allocated() < lsn {
            let missing = DATA_START + (lsn.0 - self.allocated().0);
            let least = missing.next_multiple_of(LEAST_FILE_BYTES).min(self.first_file_bytes());
            let fill = if entry_bytes >= self.file_bytes { Fill::Nothing } else { self.fill_ahead };
            self.prepare(fill, Some(least))?;
        }
        Ok(())
    }

    /// The usual length of the first segment.
    fn first_file_bytes(&self) -> u64 {
        FIRST_FILE_BYTES.min(self.file_bytes)
    }

    /// What is left to checkpoints.
    fn reserved_bytes(&self) -> u64 {
        self.first_file_bytes() / RESERVED_PART
    }

    /// What can be allocated. Without knowledge of it, allocating shows what there is.
    fn free_bytes(&self) -> u64 {
        self.disk.free_bytes(&self.directory).unwrap_or(u64::MAX)
    }

    /// The length of the next segment: the usual one, or less if the disk is nearly full. `needed` is what a commit waits for,
    /// if one does. 53100 if there is too little space even for that.
    fn affordable(&mut self, usual: u64, needed: Option<u64>, is_first: bool) -> Result<u64> {
        let free = self.free_bytes();
        let given_back = if is_first { self.given_back.min(free) } else { 0 };
        let limit = given_back.max(free / 2);
        if usual <= limit {
            return Ok(usual);
        }
        self.lacked_space |= usual > free;
        if !self.spares.is_empty() {
            // Its space is allocated already.
            return Ok(self.file_bytes);
        }
        let mut length = usual;
        while length > limit && length > self.first_file_bytes() {
            length = shorter(length, self.first_file_bytes());
        }
        if length <= limit {
            return Ok(length);
        }
        self.lacked_space = true;
        match needed {
            _ if is_first && limit >= LEAST_FILE_BYTES => Ok(limit / DATA_START * DATA_START),
            Some(needed) if needed + self.reserved_bytes() <= free => Ok(needed),
            _ => Err(self.full()),
        }
    }

    #[cold]
    fn full(&self) -> Error {
        io_error("allocate space for the log in", &self.directory, &io::ErrorKind::StorageFull.into())
            .with_detail("What is free is left to a checkpoint, which frees space of the log.")
    }

    /// Prepares another segment: a smaller one if the disk does not have the space. `needed` is the length of file that a commit
    /// waits for, if one does.
    fn prepare(&mut self, fill: Fill, needed: Option<u64>) -> Result<()> {
        let last = self.ready.back().map(|segment| Used { header: segment.header, end: segment.end });
        let last = last.or(self.written.last());
        // Of an earlier epoch that has written nothing to its last segment, a new one takes the place.
        let replaced = last.filter(|last| last.header.epoch != self.epoch && last.header.first == last.end);
        let is_first = last.is_none_or(|last| last.header.epoch != self.epoch);
        let (number, first) = match last {
            None => (0, self.begin),
            Some(last) if replaced.is_some() => (last.header.number, last.end),
            Some(last) => (last.header.number + 1, last.end),
        };
        let usual = last.filter(|_| !is_first).map_or(FIRST_FILE_BYTES, |last| 2 * last.header.file_bytes);
        let usual = usual.max(self.first_file_bytes()).min(self.file_bytes);
        let mut file_bytes = self.affordable(usual, needed, is_first)?;
        let least = match needed {
            _ if is_first => LEAST_FILE_BYTES.min(self.file_bytes),
            Some(needed) => needed,
            None => self.first_file_bytes(),
        };
        loop {
            match self.prepare_at(number, first, file_bytes, fill) {
                Err(error) if error.state() == SqlState::DISK_FULL => {
                    self.lacked_space = true;
                    if !self.spares.is_empty() && file_bytes != self.file_bytes {
                        // Its space is allocated already.
                        file_bytes = self.file_bytes;
                        continue;
                    }
                    if file_bytes <= least {
                        return Err(error);
                    }
                    file_bytes = shorter(file_bytes, least);
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
        self.given_back = 0;
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

    /// Removes or recycles the segments that end at or before `lsn`, but never the one being written, nor the last one. If that is
    /// of an earlier epoch, and there is no space for the present one to begin, only its header stays.
    pub fn truncate_before(&mut self, lsn: Lsn) -> Result<()> {
        let (mut spares, mut changed, mut outcome) = (Vec::new(), false, Ok(()));
        while outcome.is_ok() {
            let (first, count) = {
                let used = self.written.used.lock();
                (used.front().copied().filter(|first| first.end <= lsn), used.len())
            };
            let Some(first) = first else { break };
            if !self.is_free(&first, count) {
                if first.header.epoch != self.epoch && !self.last_is_cut && !self.is_received {
                    let opened = self.disk.open(&self.directory.join(first.header.name().to_string()));
                    outcome = opened.and_then(|file| self.cut(&*file, DATA_START));
                }
                break;
            }
            outcome = self.dismiss(first.header.name(), spares.len()).map(|spare| {
                spares.extend(spare);
                self.written.used.lock().pop_front();
                changed = true;
            });
        }
        if changed {
            self.disk.sync_directory(&self.directory)?;
            self.spares.extend(spares);
        }
        outcome
    }

    /// Whether the first of so many used segments may go: another one takes its place.
    fn is_free(&self, first: &Used, count: usize) -> bool {
        count > 1 || first.header.epoch != self.epoch && !self.ready.is_empty()
    }

    /// Whether [`Segments::truncate_before`] of the log's end would free space.
    pub fn has_whole(&self) -> bool {
        let used = self.written.used.lock();
        let Some(first) = used.front() else { return false };
        self.is_free(first, used.len())
            || first.header.epoch != self.epoch && !self.last_is_cut && !self.is_received
    }

    /// The LSN of the first byte that is retained.
    pub fn begin(&self) -> Lsn {
        let first = self.ready.front().map(|segment| segment.header);
        let used = self.written.used.lock();
        used.front().map(|used| used.header).or(first).map_or(self.begin, |header| header.first)
    }
}

/// Half of a length, but no less than `least`.
fn shorter(length: u64, least: u64) -> u64 {
    least.max((length / 2).next_multiple_of(GROUP_ALIGNMENT as u64))
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
        type Names = &'static [(u64, u64)];
        let cases: [(Names, Names); 6] = [
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
