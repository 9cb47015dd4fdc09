//! Reading the log: groups in order, up to the end of the log.
//!
//! The log ends at the first position without a whole group. There are three possible causes: nothing
//! was written there yet; a crash tore the last write; or the file is damaged. Flushes are serial, each
//! synced before the next begins, so there is nothing valid after a torn write. If there is something
//! valid, the log is damaged in between and acknowledged commits are lost; the reader then reports an
//! error (XX001) instead of ending early.

use crate::format::{
    DATA_START, DatabaseId, ENTRY_HEADER_LEN, GROUP_ALIGNMENT, GROUP_HEADER_LEN, GroupHeader,
    decode_entry_header,
};
use crate::record::Records;
use crate::segments::{Found, Segment, open_segment, segment_numbers};
use firn_base::disk::Disk;
use firn_base::{Error, Lsn, Result, SqlState, Time};
use std::path::{Path, PathBuf};

/// The length of one read.
const WINDOW_BYTES: u64 = 1 << 20;

/// A reader of a log that is not being written.
pub struct Reader {
    directory: PathBuf,
    /// The segments from the one with the starting LSN on, without gaps.
    segments: Vec<Segment>,
    /// The LSN after the last segment.
    end: Lsn,
    /// Set if segments follow a gap after `end`: the first of them.
    after_gap: Option<Segment>,
    position: Lsn,
    ended: bool,
    window: Vec<u8>,
    window_begin: Lsn,
}

/// The commits that one flush has written.
#[derive(Debug)]
pub struct Group {
    /// The LSN at which it begins.
    pub begin: Lsn,
    /// The LSN at which the next group begins.
    pub end: Lsn,
    entries: u32,
    bytes: Vec<u8>,
}

/// One commit.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its commit time.
    pub time: Time,
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
    /// The commits, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = &self.bytes[..];
        (0..self.entries).map(move |_| take_entry(&mut rest).expect("the group was checked when it was read"))
    }
}

#[inline]
fn take_entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (header, behind) = rest.split_first_chunk::<ENTRY_HEADER_LEN>()?;
    let (time, length) = decode_entry_header(header);
    let (bytes, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(Entry { time, bytes })
}

/// Whether the bytes after a group's header are `entries` entries and padding.
fn well_formed(bytes: &[u8], entries: u32) -> bool {
    let mut rest = bytes;
    (0..entries).all(|_| take_entry(&mut rest).is_some())
        && rest.len() < GROUP_ALIGNMENT
        && rest.iter().all(|byte| *byte == 0)
}

impl Reader {
    /// A reader of the log in `directory` from the group that begins at `from` on.
    ///
    /// Errors: XX001 if the log does not contain that position, belongs to another database, or is damaged;
    /// 55000 if another version wrote it.
    pub fn open(disk: &dyn Disk, directory: &Path, database: DatabaseId, from: Lsn) -> Result<Reader> {
        let numbers = if disk.exists(directory)? { segment_numbers(disk, directory)? } else { Vec::new() };
        let newest = numbers.last().copied();
        // Backwards, so that segments that are not needed any more are not even opened.
        let mut found: Vec<Segment> = Vec::new();
        for number in numbers.into_iter().rev() {
            match open_segment(disk, directory, number, database)? {
                Found::Segment(segment) => {
                    let reached = segment.header.first <= from;
                    found.push(segment);
                    if reached {
                        break;
                    }
                }
                Found::Stub(_) if Some(number) == newest => {}
                Found::Stub(path) => {
                    return Err(Error::new(
                        SqlState::DATA_CORRUPTED,
                        format!("the log file \"{}\" is damaged: it is cut off", path.display()),
                    )
                    .with_hint("Restore the file from a backup of this database."));
                }
            }
        }
        found.reverse();
        let mut segments: Vec<Segment> = Vec::new();
        let mut after_gap = None;
        for segment in found {
            let continues = segments.last().is_none_or(|last| {
                last.header.number + 1 == segment.header.number && last.header.end() == segment.header.first
            });
            if !continues {
                after_gap = Some(segment);
                break;
            }
            segments.push(segment);
        }
        match segments.first() {
            Some(first) if first.header.first > from => {
                return Err(missing(directory, from, Some(first)));
            }
            None if from > Lsn(0) => return Err(missing(directory, from, None)),
            _ => {}
        }
        let end = segments.last().map_or(from, |last| last.header.end());
        if from > end {
            return Err(missing(directory, from, None));
        }
        Ok(Reader {
            directory: directory.to_owned(),
            segments,
            end,
            after_gap,
            position: from,
            ended: false,
            window: Vec::new(),
            window_begin: Lsn(0),
        })
    }

    /// The LSN at which the next group begins or, at the end of the log, writing continues.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The next group; `None` at the end of the log. XX001 if the log is damaged.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        if self.ended {
            return Ok(None);
        }
        if let Some(group) = self.group_at(self.position)? {
            if !well_formed(&group.bytes, group.entries) {
                return Err(self.damaged(self.position, "The entries of the group there are invalid."));
            }
            self.position = group.end;
            return Ok(Some(group));
        }
        self.ended = true;
        self.check_that_nothing_follows()?;
        Ok(None)
    }

    /// The whole, undamaged group that begins at `lsn`, if there is one.
    fn group_at(&mut self, lsn: Lsn) -> Result<Option<Group>> {
        let Some(salt) = self.segment_of(lsn).map(|segment| segment.header.salt) else {
            return Ok(None);
        };
        let Some(header) = self.fetch(lsn, GROUP_HEADER_LEN as u64)? else { return Ok(None) };
        let header = GroupHeader::decode(header.try_into().expect("a header was fetched"));
        let fits = header.lsn == lsn
            && header.salt == salt
            && header.entries > 0
            && header.length.is_multiple_of(GROUP_ALIGNMENT as u64)
            && header.length <= self.end.0 - lsn.0 - GROUP_HEADER_LEN as u64;
        if !fits {
            return Ok(None);
        }
        let length = GROUP_HEADER_LEN as u64 + header.length;
        let group = self.fetch(lsn, length)?.expect("the group ends before the log's files do");
        if crc32c::crc32c(&group[4..]) != header.crc {
            return Ok(None);
        }
        let bytes = group[GROUP_HEADER_LEN..].to_vec();
        Ok(Some(Group { begin: lsn, end: Lsn(lsn.0 + length), entries: header.entries, bytes }))
    }

    /// Distinguishes a torn write from damage: searches for a group after the end of the log.
    fn check_that_nothing_follows(&mut self) -> Result<()> {
        const STEP: u64 = GROUP_ALIGNMENT as u64;
        const HEADER: u64 = GROUP_HEADER_LEN as u64;
        let mut lsn = self.position.0 + STEP;
        while lsn + HEADER <= self.end.0 {
            let length = (self.end.0 - lsn).min(WINDOW_BYTES);
            let bytes = self.fetch(Lsn(lsn), length)?.expect("the window ends before the log's files do");
            // A group has its own LSN after eight bytes; other data hardly ever matches that.
            let candidates: Vec<u64> = (0..=length - HEADER)
                .step_by(GROUP_ALIGNMENT)
                .filter(|at| bytes[*at as usize + 8..*at as usize + 16] == (lsn + at).to_le_bytes())
                .map(|at| lsn + at)
                .collect();
            for candidate in candidates {
                if self.group_at(Lsn(candidate))?.is_some() {
                    let (path, byte) = self.place(Lsn(candidate));
                    return Err(self.damaged(
                        self.position,
                        &format!(
                            "Whole commits follow at byte {byte} of \"{}\", so a crash cannot be the cause.",
                            path.display()
                        ),
                    ));
                }
            }
            // The next window begins at the first header that did not fit into this one.
            lsn += (length - HEADER) / STEP * STEP + STEP;
        }
        if let Some(segment) = self.after_gap.take() {
            // Segments are prepared in order, so a gap is damage even before one is written.
            return Err(missing(&self.directory, self.end, Some(&segment)));
        }
        Ok(())
    }

    fn segment_of(&self, lsn: Lsn) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.header.first <= lsn);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (lsn < segment.header.end()).then_some(segment)
    }

    /// The file of an LSN, and the offset in it.
    fn place(&self, lsn: Lsn) -> (PathBuf, u64) {
        match self.segment_of(lsn).or(self.segments.last()) {
            Some(segment) => (segment.path.clone(), DATA_START + (lsn.0 - segment.header.first.0)),
            None => (self.directory.clone(), 0),
        }
    }

    fn damaged(&self, at: Lsn, detail: &str) -> Error {
        let (path, byte) = self.place(at);
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

    /// `length` bytes of the log from `lsn` on, read in large pieces; `None` if the log's files end
    /// before. A file that is shorter than its header states reads as if zeros followed.
    fn fetch(&mut self, lsn: Lsn, length: u64) -> Result<Option<&[u8]>> {
        if length > self.end.0.saturating_sub(lsn.0) {
            return Ok(None);
        }
        let window_end = self.window_begin.0 + self.window.len() as u64;
        if lsn < self.window_begin || lsn.0 + length > window_end {
            let wanted = length.max(WINDOW_BYTES.min(self.end.0 - lsn.0));
            self.window.clear();
            self.window.resize(usize::try_from(wanted).expect("64-bit addresses"), 0);
            self.window_begin = lsn;
            let mut filled = 0;
            while filled < wanted {
                let at = Lsn(lsn.0 + filled);
                let segment = self.segment_of(at).expect("the position is below the end");
                let (file, offset) = (segment.file.clone(), DATA_START + (at.0 - segment.header.first.0));
                let step = (wanted - filled).min(segment.header.end().0 - at.0);
                file.read_at(&mut self.window[filled as usize..(filled + step) as usize], offset)?;
                filled += step;
            }
        }
        let from = (lsn.0 - self.window_begin.0) as usize;
        Ok(Some(&self.window[from..from + length as usize]))
    }
}

#[cold]
fn missing(directory: &Path, from: Lsn, found: Option<&Segment>) -> Error {
    let error = Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the log in \"{}\" lacks the part from position {} on", directory.display(), from.0),
    )
    .with_hint("Put the missing log files back from a backup of this database.");
    match found {
        Some(segment) => {
            error.with_detail(format!("The next file that is there is \"{}\".", segment.path.display()))
        }
        None => error.with_detail("No file there holds that part."),
    }
}
