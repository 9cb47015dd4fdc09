//! A copy of a log: the segment headers and groups of another log, stored byte for byte.
//!
//! A copy may begin at any group. What precedes that group in its segment is missing: the file has zeros there. A
//! [`Reader`](crate::Reader) reads a copy from its beginning on like any log, and [`Log::open`](crate::Log::open) writes on where
//! it ends.
//!
//! Invariant: everything in the files before [`LogCopy::point`] are whole groups that follow one another, and nothing is behind
//! them. So what a program that was killed has left of a group is removed when the copy is opened again.

use crate::faults::Fault;
use crate::format::{
    DATA_START, DatabaseId, FORMAT_VERSION, GROUP_HEADER_LEN, GroupHeader, LogPoint, SEGMENT_HEADER_LEN,
    SegmentHeader,
};
use crate::segments::{Found, Segment, in_force, open_segment_to_read, segment_names};
use firn_base::disk::{Disk, DiskFile, Medium};
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A file of blocks is filled with zeros up to a multiple of this before its data: see `segments`.
const FILLED_AT_ONCE: u64 = 256 << 10;
/// Unless so much is written at once.
const LARGE_WRITE: usize = 64 << 10;

/// The name of a file that is becoming a segment.
const PREPARING: &str = "preparing.tmp";

/// The copy of a log, while it is written.
#[derive(Debug)]
pub struct LogCopy {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    database: DatabaseId,
    point: LogPoint,
    /// The segment of the next group, and those after it that have begun. Before the first group none needs to be here.
    segments: VecDeque<Copied>,
    /// Files that have been written to since the last [`LogCopy::sync`].
    unsynced: Vec<Arc<dyn DiskFile>>,
    /// Where the groups end that have been appended since [`LogCopy::take_ends`], if they are [kept](LogCopy::keep_ends).
    ends: Option<Vec<LogPoint>>,
}

#[derive(Debug)]
struct Copied {
    header: SegmentHeader,
    /// Where the next one begins.
    end: Lsn,
    file: Arc<dyn DiskFile>,
    /// The length of the file, at least.
    filled: u64,
}

impl Copied {
    fn write(&mut self, part: &[u8], at: Lsn, medium: Medium) -> Result<()> {
        let begin = DATA_START + (at.0 - self.header.first.0);
        self.file.write_at(part, begin)?;
        let end = begin + part.len() as u64;
        if end > self.filled {
            self.filled = end;
            let all = DATA_START + (self.end.0 - self.header.first.0);
            let next = end.next_multiple_of(FILLED_AT_ONCE).min(all);
            let is_filled = medium == Medium::Blocks && part.len() < LARGE_WRITE;
            // Without them writing takes longer.
            if is_filled && self.file.write_at(&vec![0; (next - end) as usize], end).is_ok() {
                self.filled = next;
            }
        }
        Ok(())
    }
}

impl LogCopy {
    /// An empty copy that begins at `from`, in a directory that is created. Files of a log there are removed.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        from: LogPoint,
    ) -> Result<LogCopy> {
        disk.create_directory(directory)?;
        for name in segment_names(&*disk, directory)?.into_iter().rev() {
            disk.remove(&directory.join(name.to_string()))?;
        }
        let directory = directory.to_owned();
        let (segments, unsynced) = (VecDeque::new(), Vec::new());
        Ok(LogCopy { disk, directory, database, point: from, segments, unsynced, ends: None })
    }

    /// Writes on at `at`, where a reader of the copy has ended or which it has passed. What is behind that is removed.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        at: LogPoint,
    ) -> Result<LogCopy> {
        let (names, replaced) = in_force(segment_names(&*disk, directory)?);
        let mut copy = LogCopy {
            disk,
            directory: directory.to_owned(),
            database,
            point: at,
            segments: VecDeque::new(),
            unsynced: Vec::new(),
            ends: None,
        };
        let mut superfluous = replaced;
        let mut last: Option<Segment> = None;
        // Backwards, so that the segments before the place are not even opened.
        for name in names.into_iter().rev() {
            match open_segment_to_read(&*copy.disk, directory, name, database)? {
                Found::Segment(segment) if segment.header.first <= at.lsn => {
                    let is_before = segment.header.first < at.lsn;
                    // An empty one behind it may be of an epoch that the server does not know. It comes again if not.
                    superfluous.extend(last.replace(segment).map(|empty| empty.header.name()));
                    if is_before {
                        break;
                    }
                }
                _ => superfluous.push(name),
            }
        }
        // The last one first, so that no segment is missing before another.
        superfluous.sort_unstable();
        for name in superfluous.into_iter().rev() {
            copy.disk.remove(&directory.join(name.to_string()))?;
        }
        if let Some(last) = last {
            let file = copy.disk.open(&last.path)?;
            let filled = DATA_START + (at.lsn.0 - last.header.first.0);
            file.set_len(filled)?;
            file.sync()?;
            copy.segments.push_back(Copied { header: last.header, end: last.header.end(), file, filled });
        }
        copy.disk.sync_directory(directory)?;
        Ok(copy)
    }

    /// Drops an empty segment at its end: it may be of an epoch that has written nothing, and another server, from which the log is
    /// received next, may go on in the segment before it. What has been appended is durable then.
    pub fn restart(&mut self) -> Result<()> {
        self.sync()?;
        if self.segments.back().is_some_and(|last| last.header.first >= self.point.lsn) {
            let (disk, directory) = (self.disk.clone(), self.directory.clone());
            let opened = LogCopy::open(disk, &directory, self.database, self.point)?;
            *self = LogCopy { ends: self.ends.take(), ..opened };
        }
        Ok(())
    }

    /// Cuts a log that is not open at a place in its history, durably: what is behind that is removed, also segments that only begin
    /// there, perhaps in an epoch of another history. Returns false, and changes nothing, if no segment would be left. After a crash in
    /// between the log ends there or later, perhaps with a gap.
    pub fn cut(disk: &Arc<dyn Disk>, directory: &Path, database: DatabaseId, at: LogPoint) -> Result<bool> {
        let (names, replaced) = in_force(segment_names(&**disk, directory)?);
        let (mut kept, mut removed) = (Vec::new(), replaced);
        for name in names {
            match open_segment_to_read(&**disk, directory, name, database)? {
                Found::Segment(segment) if segment.header.first < at.lsn => kept.push(segment),
                _ => removed.push(name),
            }
        }
        let Some(last) = kept.last() else { return Ok(false) };
        // The last one first, so that no segment is missing before another.
        removed.sort_unstable();
        for name in removed.into_iter().rev() {
            disk.remove(&directory.join(name.to_string()))?;
            disk.sync_directory(directory)?;
        }
        let file = disk.open(&last.path)?;
        let length = DATA_START + (at.lsn.0 - last.header.first.0);
        if file.len()? > length && !Fault::GroupsLeftByCut.is_made() {
            file.set_len(length)?;
            file.sync()?;
        }
        Ok(true)
    }

    /// Where it ends.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// Begins a segment, whose header is given as it is in its file. A segment that has begun already is passed over. Returns
    /// whether it has begun just now.
    ///
    /// Error: XX001 if it is no header of a segment that can follow.
    pub fn begin_segment(&mut self, header: &[u8; SEGMENT_HEADER_LEN]) -> Result<bool> {
        let name = SegmentHeader::name_in(header);
        let path = self.directory.join(name.to_string());
        let header = SegmentHeader::decode(header, &path, name, self.database)?;
        if self.segments.iter().any(|segment| segment.header == header) {
            return Ok(false);
        }
        let takes_place = |last: &Copied| last.header.number >= header.number;
        let follows = match self.segments.back() {
            None => (header.first..=header.end()).contains(&self.point.lsn),
            // An epoch that has written nothing into its segment is followed by another one in its place. That need not be a later one:
            // another server may not have seen the epoch, and may go on in the segment before.
            Some(last) if takes_place(last) => {
                last.header.first == self.point.lsn && (header.first..=header.end()).contains(&self.point.lsn)
            }
            Some(last) => {
                last.header.number + 1 == header.number
                    && self.point.lsn <= header.first
                    && (last.header.first..=last.end).contains(&header.first)
            }
        };
        if !follows || header.version != FORMAT_VERSION {
            return Err(self.invalid(&format!("segment {name} does not follow")));
        }
        // It gets its name only after its header is on disk: a segment with a torn header is damage.
        let temporary = self.directory.join(PREPARING);
        let working = self.disk.working_name(&path, &temporary);
        let file = self.disk.create(working)?;
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        self.disk.publish(working, &path)?;
        self.disk.sync_directory(&self.directory)?;
        if self.segments.back().is_some_and(takes_place) {
            let replaced = self.segments.pop_back().expect("it was just looked at").header.name();
            if replaced != name {
                self.disk.remove(&self.directory.join(replaced.to_string()))?;
                // It may be of a later epoch, which would count instead.
                self.disk.sync_directory(&self.directory)?;
            }
        } else if let Some(last) = self.segments.back_mut() {
            last.end = header.first;
        }
        let filled = file.len()?;
        self.segments.push_back(Copied { header, end: header.end(), file, filled });
        Ok(true)
    }

    /// The header of the segment that has begun last.
    pub fn last_segment(&self) -> Option<SegmentHeader> {
        self.segments.back().map(|last| last.header)
    }

    /// Appends whole groups, whose segments have begun. They are durable after [`LogCopy::sync`]. After an error nothing has been
    /// appended, and they can be appended again.
    ///
    /// Error: XX001 if they are no groups that follow.
    pub fn append(&mut self, groups: &[u8]) -> Result<()> {
        let (begin, mut rest) = (self.point, groups);
        let mut appended = Ok(());
        while !rest.is_empty() && appended.is_ok() {
            appended = self.check(rest).map(|length| rest = &rest[length..]);
        }
        if let Err(error) = appended.and_then(|()| self.write(groups, begin.lsn)) {
            self.point = begin;
            self.ends.iter_mut().for_each(|ends| ends.retain(|end| end.lsn <= begin.lsn));
            return Err(error);
        }
        let end = self.point.lsn;
        while self.segments.len() > 1 && self.segments[0].end <= end {
            self.segments.pop_front();
        }
        Ok(())
    }

    /// Checks the group at the front of some bytes, and moves the end behind it. Returns its length.
    fn check(&mut self, bytes: &[u8]) -> Result<usize> {
        let lsn = self.point.lsn;
        let segment = self.segments.iter().find(|segment| (segment.header.first..segment.end).contains(&lsn));
        let Some(segment) = segment.map(|segment| segment.header) else {
            return Err(self.invalid("there is no segment for it"));
        };
        let header = bytes.get(..GROUP_HEADER_LEN).and_then(|bytes| GroupHeader::decode(bytes, &segment));
        let header = header.ok_or_else(|| self.invalid("it has no header"))?;
        let length =
            usize::try_from(header.length).ok().and_then(|length| length.checked_add(GROUP_HEADER_LEN));
        let group = length.and_then(|length| bytes.get(..length));
        let group = group.ok_or_else(|| self.invalid("it is not whole"))?;
        let seal = header.seal;
        if crc32c::crc32c(&group[4..]) != header.crc {
            return Err(self.invalid("its checksum is wrong"));
        }
        let is_next = seal.lsn == lsn
            && (seal.salt, seal.epoch) == (segment.salt, segment.epoch)
            && seal.previous == self.point.checksum
            && seal.epoch >= self.point.epoch
            && seal.wall_time >= self.point.wall_time;
        if !is_next {
            return Err(self.invalid("it does not follow the one before it"));
        }
        self.point = LogPoint {
            lsn: Lsn(lsn.0 + group.len() as u64),
            checksum: header.crc,
            epoch: seal.epoch,
            wall_time: seal.wall_time,
        };
        self.ends.iter_mut().for_each(|ends| ends.push(self.point));
        Ok(group.len())
    }

    /// Writes checked groups into their segments.
    fn write(&mut self, mut bytes: &[u8], mut at: Lsn) -> Result<()> {
        let medium = self.disk.medium();
        for segment in &mut self.segments {
            if bytes.is_empty() || segment.end <= at {
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min((segment.end.0 - at.0) as usize));
            segment.write(part, at, medium)?;
            if !self.unsynced.iter().any(|file| Arc::ptr_eq(file, &segment.file)) {
                self.unsynced.push(segment.file.clone());
            }
            (bytes, at) = (rest, Lsn(at.0 + part.len() as u64));
        }
        if bytes.is_empty() { Ok(()) } else { Err(self.invalid("there is no segment for its end")) }
    }

    /// Keeps the ends of the groups that are appended from now on, for [`LogCopy::take_ends`].
    pub fn keep_ends(self) -> LogCopy {
        LogCopy { ends: Some(self.ends.unwrap_or_default()), ..self }
    }

    /// Where the groups end that have been appended since the last call; none unless they are kept.
    pub fn take_ends(&mut self) -> Vec<LogPoint> {
        self.ends.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes everything that has been appended durable.
    pub fn sync(&mut self) -> Result<()> {
        while let Some(file) = self.unsynced.last() {
            file.sync()?;
            self.unsynced.pop();
        }
        Ok(())
    }

    /// Makes everything durable, and removes what an append that has failed may have left behind the last group. Nothing more is to be
    /// appended: another log continues there.
    pub fn end(&mut self) -> Result<()> {
        self.sync()?;
        for segment in &self.segments {
            let length = DATA_START + self.point.lsn.0.saturating_sub(segment.header.first.0);
            if segment.file.len()? > length {
                segment.file.set_len(length)?;
                segment.file.sync()?;
            }
        }
        Ok(())
    }

    #[cold]
    fn invalid(&self, what: &str) -> Error {
        Error::new(
            SqlState::DATA_CORRUPTED,
            format!("the group at position {} cannot be copied: {what}", self.point.lsn.0),
        )
        .with_hint("Begin the copy again.")
    }
}
