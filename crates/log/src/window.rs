//! Groups in the segments of a log: finding them, and checking them.
//!
//! A window holds part of the log in memory, as it was read in large pieces. Only what is on disk for good may be read into it.

use crate::format::{
    DATA_START, ENTRY_HEADER_LEN, GROUP_ALIGNMENT, GROUP_HEADER_LEN, GroupHeader, LogPoint, Seal,
    SegmentHeader, decode_entry_header, seal_group,
};
use crate::record::Records;
use crate::segments::Segment;
use firn_base::{Epoch, Error, Lsn, Result, SqlState, Time};
use std::collections::VecDeque;
use std::path::PathBuf;

/// The length of one read.
pub(crate) const WINDOW_BYTES: u64 = 1 << 20;

/// The commits that one flush has written.
#[derive(Clone, Debug)]
pub struct Group {
    /// The LSN at which it begins.
    pub begin: Lsn,
    /// The end: the LSN at which the next group begins, the CRC of this one, its epoch and wall time.
    pub end: LogPoint,
    entries: u32,
    salt: u64,
    previous: u32,
    header_len: usize,
    bytes: Vec<u8>,
}

/// One commit.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its commit time.
    pub time: Time,
    /// The epoch of its group.
    pub epoch: Epoch,
    /// Its redo records, as [`crate::RedoBuffer::as_bytes`] returned them.
    pub bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Its redo records.
    #[inline]
    pub fn records(&self) -> Records<'a> {
        Records::new(self.bytes)
    }
}

impl Group {
    /// One that has just been sealed in these parts, and ends there.
    pub(crate) fn of_sealed(seal: &Seal, end: LogPoint, parts: &[Vec<u8>]) -> Group {
        let Seal { entries, lsn, salt, previous, .. } = *seal;
        Group {
            begin: lsn,
            end,
            entries,
            salt,
            previous,
            header_len: GROUP_HEADER_LEN,
            bytes: parts.concat(),
        }
    }

    /// Whether it follows a point.
    pub(crate) fn is_after(&self, point: &LogPoint) -> bool {
        (self.begin, self.previous) == (point.lsn, point.checksum)
    }

    /// The commits, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let (mut rest, epoch) = (self.after_header(), self.end.epoch);
        (0..self.entries)
            .map(move |_| take_entry(&mut rest, epoch).expect("the group was checked when it was read"))
    }

    /// Its bytes, exactly as they are in the log, with the header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The position after each of its entries, as [`crate::Log::append`] has returned them.
    pub fn entry_ends(&self) -> impl Iterator<Item = Lsn> {
        let mut end = self.begin.0 + self.header_len as u64;
        self.entries().map(move |entry| {
            end += (ENTRY_HEADER_LEN + entry.bytes.len()) as u64;
            Lsn(end)
        })
    }

    /// A group with only the first `entries` of its entries, at the same place. None follows it that was written after this one.
    pub fn shortened(&self, entries: usize) -> Vec<u8> {
        assert!(0 < entries && entries <= self.entries as usize && self.header_len == GROUP_HEADER_LEN);
        let end = self.entry_ends().nth(entries - 1).expect("there are so many entries");
        let mut bytes = self.bytes[..(end.0 - self.begin.0) as usize].to_vec();
        bytes.resize(bytes.len().next_multiple_of(GROUP_ALIGNMENT), 0);
        let LogPoint { epoch, wall_time, .. } = self.end;
        let (entries, lsn) = (entries as u32, self.begin);
        let seal = Seal { entries, lsn, salt: self.salt, epoch, wall_time, previous: self.previous };
        seal_group(std::slice::from_mut(&mut bytes), &seal);
        bytes
    }

    fn after_header(&self) -> &[u8] {
        &self.bytes[self.header_len..]
    }

    /// Whether the bytes after the header are its entries and padding.
    fn is_well_formed(&self) -> bool {
        let mut rest = self.after_header();
        (0..self.entries).all(|_| take_entry(&mut rest, self.end.epoch).is_some())
            && rest.len() < GROUP_ALIGNMENT
            && rest.iter().all(|byte| *byte == 0)
    }
}

#[inline]
fn take_entry<'a>(rest: &mut &'a [u8], epoch: Epoch) -> Option<Entry<'a>> {
    let (header, behind) = rest.split_first_chunk::<ENTRY_HEADER_LEN>()?;
    let (time, length) = decode_entry_header(header);
    let (bytes, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(Entry { time, epoch, bytes })
}

/// Segments without gaps, and the part of their bytes that was read last.
#[derive(Debug)]
pub(crate) struct Window {
    /// Oldest first.
    pub segments: VecDeque<Segment>,
    /// Nothing from here on is read.
    pub end: Lsn,
    bytes: Vec<u8>,
    begin: Lsn,
}

impl Window {
    /// Over these segments, up to a position in the last one.
    pub fn new(segments: VecDeque<Segment>, end: Lsn) -> Window {
        Window { segments, end, bytes: Vec::new(), begin: Lsn(0) }
    }

    /// Closes the segments that end at a position or before it, except the last one.
    pub fn close_before(&mut self, lsn: Lsn) {
        while self.segments.len() > 1 && self.segments[0].end <= lsn {
            self.segments.pop_front();
        }
    }

    /// The segment of a position.
    pub fn segment_of(&self, lsn: Lsn) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.header.first <= lsn);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (lsn < segment.end).then_some(segment)
    }

    /// The headers of the segments with the bytes between two positions.
    pub fn segments_between(&self, begin: Lsn, end: Lsn) -> impl Iterator<Item = &SegmentHeader> {
        let overlaps = move |segment: &&Segment| begin < segment.end && segment.header.first < end;
        self.segments.iter().filter(overlaps).map(|segment| &segment.header)
    }

    /// The group after `point`, which must be its history. `None` if there is no whole, undamaged group.
    ///
    /// Error: XX001 if the group there is whole, but none of this history, or has invalid entries.
    pub fn group_after(&mut self, point: &LogPoint) -> Result<Option<Group>> {
        let Some((group, header)) = self.group_at(point.lsn)? else { return Ok(None) };
        let is_first_version = header.seal.epoch == Epoch(0);
        if !is_first_version && header.seal.previous != point.checksum {
            return Err(self.damaged(point.lsn, "The group there does not follow the one before it."));
        }
        if group.end.epoch < point.epoch || group.end.wall_time < point.wall_time && !is_first_version {
            return Err(self.damaged(point.lsn, "The group there is older than the one before it."));
        }
        if !group.is_well_formed() {
            return Err(self.damaged(point.lsn, "The entries of the group there are invalid."));
        }
        Ok(Some(group))
    }

    /// Whether a whole group begins at `point` and continues its history.
    pub fn follows(&mut self, point: &LogPoint) -> Result<bool> {
        let Some((group, header)) = self.group_at(point.lsn)? else { return Ok(false) };
        let is_chained = header.seal.previous == point.checksum && point.wall_time <= group.end.wall_time;
        Ok((is_chained || header.seal.epoch == Epoch(0)) && point.epoch <= group.end.epoch)
    }

    /// The header of a group that begins at `lsn`, and its length, if there is one; its checksum has not been checked.
    pub fn header_at(&mut self, lsn: Lsn) -> Result<Option<(GroupHeader, usize)>> {
        let Some(segment) = self.segment_of(lsn).map(|segment| segment.header) else {
            return Ok(None);
        };
        let length = segment.group_header_len();
        let Some(bytes) = self.fetch(lsn, length as u64)? else { return Ok(None) };
        let Some(header) = GroupHeader::decode(bytes, &segment) else { return Ok(None) };
        let seal = &header.seal;
        let fits = seal.lsn == lsn
            && seal.salt == segment.salt
            && seal.epoch == segment.epoch
            && seal.entries > 0
            && header.length.is_multiple_of(GROUP_ALIGNMENT as u64);
        Ok(fits.then_some((header, length)))
    }

    /// The whole, undamaged group that begins at `lsn`, if there is one, and its header.
    pub fn group_at(&mut self, lsn: Lsn) -> Result<Option<(Group, GroupHeader)>> {
        let Some((header, header_len)) = self.header_at(lsn)? else { return Ok(None) };
        if header.length > self.end.0 - lsn.0 - header_len as u64 {
            return Ok(None);
        }
        let seal = header.seal;
        let length = header_len as u64 + header.length;
        let group = self.fetch(lsn, length)?.expect("the group ends before what may be read does");
        if crc32c::crc32c(&group[4..]) != header.crc {
            return Ok(None);
        }
        let bytes = group.to_vec();
        let end = LogPoint {
            lsn: Lsn(lsn.0 + length),
            checksum: header.crc,
            epoch: seal.epoch,
            wall_time: seal.wall_time,
        };
        let Seal { entries, salt, previous, .. } = seal;
        Ok(Some((Group { begin: lsn, end, entries, salt, previous, header_len, bytes }, header)))
    }

    /// The file of a position, and the offset in it.
    pub fn place(&self, lsn: Lsn) -> Option<(PathBuf, u64)> {
        let segment = self.segment_of(lsn).or(self.segments.back())?;
        Some((segment.path.clone(), DATA_START + (lsn.0 - segment.header.first.0)))
    }

    #[cold]
    pub fn damaged(&self, at: Lsn, detail: &str) -> Error {
        let (path, byte) = self.place(at).unwrap_or_default();
        Error::new(
            SqlState::DATA_CORRUPTED,
            format!("the log is damaged in file \"{}\" at byte {byte}", path.display()),
        )
        .with_detail(detail)
        .with_hint(
            "Restore the file from a backup. To give up the commits from there on instead, set that byte and all \
             behind it to zero and move later log files away.",
        )
    }

    /// `length` bytes of the log from `lsn` on, read in large pieces; `None` if what may be read ends
    /// before. A file that is shorter than its header states reads as if zeros followed.
    pub fn fetch(&mut self, lsn: Lsn, length: u64) -> Result<Option<&[u8]>> {
        if length > self.end.0.saturating_sub(lsn.0) {
            return Ok(None);
        }
        let window_end = self.begin.0 + self.bytes.len() as u64;
        if lsn < self.begin || lsn.0 + length > window_end {
            let wanted = length.max(WINDOW_BYTES.min(self.end.0 - lsn.0));
            self.bytes.clear();
            self.bytes.resize(usize::try_from(wanted).expect("64-bit addresses"), 0);
            self.begin = lsn;
            let mut filled = 0;
            while filled < wanted {
                let at = Lsn(lsn.0 + filled);
                let segment = self.segment_of(at).expect("the position is below the end");
                let (file, offset) = (segment.file.clone(), DATA_START + (at.0 - segment.header.first.0));
                let step = (wanted - filled).min(segment.end.0 - at.0);
                file.read_at(&mut self.bytes[filled as usize..(filled + step) as usize], offset)?;
                filled += step;
            }
        }
        let from = (lsn.0 - self.begin.0) as usize;
        Ok(Some(&self.bytes[from..from + length as usize]))
    }
}
