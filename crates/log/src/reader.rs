//! Reading the log: groups in order, up to the end of the log.
//!
//! The log ends at the first position without a whole group. There are three possible causes: nothing
//! was written there yet; a crash tore the last write; or the file is damaged. Flushes are serial, each
//! synced before the next begins, so there is nothing valid after a torn write. If there is something
//! valid, the log is damaged in between and acknowledged commits are lost; the reader then reports an
//! error (XX001) instead of ending early. So it does if a later epoch has begun behind that position: epochs begin at the end
//! of what is valid.

use crate::format::{
    DatabaseId, GROUP_ALIGNMENT, LogPoint, SHORTEST_GROUP_HEADER_LEN, SegmentHeader, SegmentName,
};
use crate::segments::{Found, Segment, in_force, open_segment_to_read, segment_names};
use crate::window::{Group, WINDOW_BYTES, Window};
use firn_base::disk::Disk;
use firn_base::{Error, Lsn, Result, SqlState};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A reader of a log that is not being written.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    /// The segments from the one with the next group on, without gaps.
    window: Window,
    /// Set if segments follow a gap: the first of them.
    after_gap: Option<Segment>,
    point: LogPoint,
    /// Nothing from here on is returned.
    limit: Lsn,
    /// Whether it may be written to meanwhile.
    is_growing: bool,
    ended: bool,
}

impl Reader {
    /// A reader of the log in `directory` from a point on, at which a group begins.
    ///
    /// Errors: XX001 if the log does not contain that position, belongs to another database, or is damaged;
    /// 55000 if another version wrote it.
    pub fn open(disk: &dyn Disk, directory: &Path, database: DatabaseId, from: LogPoint) -> Result<Reader> {
        let names = if disk.exists(directory)? { segment_names(disk, directory)? } else { Vec::new() };
        let (names, replaced) = in_force(names);
        let newest = names.last().copied();
        // The name of a file without a header proves nothing: it must not hide others.
        let hides = |name: SegmentName| {
            replaced.iter().any(|other| other.epoch < name.epoch && other.number >= name.number)
        };
        // Backwards, so that segments that are not needed any more are not even opened.
        let mut found: VecDeque<Segment> = VecDeque::new();
        for name in names.into_iter().rev() {
            match open_segment_to_read(disk, directory, name, database)? {
                Found::Segment(segment) => {
                    let reached = segment.header.first <= from.lsn;
                    found.push_front(segment);
                    if reached {
                        break;
                    }
                }
                Found::Stub(_) if Some(name) == newest && !hides(name) => {}
                Found::Stub(path) => {
                    return Err(Error::new(
                        SqlState::DATA_CORRUPTED,
                        format!("the log file \"{}\" is damaged: it is cut off", path.display()),
                    )
                    .with_hint("Restore the file from a backup of this database."));
                }
            }
        }
        let mut segments: VecDeque<Segment> = VecDeque::new();
        let mut after_gap = None;
        for segment in found {
            if let Some(last) = segments.back_mut() {
                let (before, header) = (&last.header, &segment.header);
                let continues = before.number + 1 == header.number
                    && (before.first..=before.end()).contains(&header.first);
                if !continues {
                    after_gap = Some(segment);
                    break;
                }
                last.end = header.first;
            }
            segments.push_back(segment);
        }
        match segments.front() {
            Some(first) if first.header.first > from.lsn => {
                return Err(missing(directory, from.lsn, Some(first)));
            }
            None if from.lsn > Lsn(0) => return Err(missing(directory, from.lsn, None)),
            _ => {}
        }
        let end = segments.back().map_or(from.lsn, |last| last.end);
        if from.lsn > end {
            return Err(missing(directory, from.lsn, None));
        }
        let window = Window::new(segments, end);
        Ok(Reader {
            directory: directory.to_owned(),
            window,
            after_gap,
            point: from,
            limit: Lsn(u64::MAX),
            is_growing: false,
            ended: false,
        })
    }

    /// The LSN at which the next group begins or, at the end of the log, writing continues.
    pub fn position(&self) -> Lsn {
        self.point.lsn
    }

    /// The same with the checksum, the epoch and the wall time of the group before it.
    pub fn point(&self) -> LogPoint {
        self.point
    }

    /// Ends at a position before the end of the log, at which a group begins.
    pub fn end_at(&mut self, limit: Lsn) {
        self.limit = limit;
    }

    /// Whether what follows has the history of the point at which it stands; true if nothing follows.
    pub fn is_continued(&mut self) -> Result<bool> {
        let is_end = self.window.group_at(self.point.lsn)?.is_none();
        Ok(is_end || self.window.follows(&self.point)?)
    }

    /// Ends where no whole group follows, without looking for damage behind it: for a copy that is being written.
    pub fn end_at_first_gap(&mut self) {
        self.is_growing = true;
    }

    /// The header of the segment in which the next group begins, or in which the log ends. `None` if the log has no segment.
    pub fn segment(&self) -> Option<&SegmentHeader> {
        let segments = &self.window.segments;
        let after = segments.partition_point(|segment| segment.header.first <= self.point.lsn);
        after.checked_sub(1).map(|at| &segments[at].header)
    }

    /// The headers of the segments in which a group lies that was just returned.
    pub fn segments_of(&self, group: &Group) -> impl Iterator<Item = &SegmentHeader> {
        self.window.segments_between(group.begin, group.end.lsn)
    }

    /// The next group; `None` at the end of the log. XX001 if the log is damaged.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        if self.ended || self.point.lsn >= self.limit {
            return Ok(None);
        }
        // An open file may hold memory: see `firn-objects`.
        self.window.close_before(self.point.lsn);
        if let Some(group) = self.window.group_after(&self.point)? {
            self.point = group.end;
            return Ok(Some(group));
        }
        self.ended = true;
        if !self.is_growing {
            self.check_that_nothing_follows()?;
        }
        Ok(None)
    }

    /// Distinguishes a torn write from damage: searches for a group after the end of the log.
    fn check_that_nothing_follows(&mut self) -> Result<()> {
        const STEP: u64 = GROUP_ALIGNMENT as u64;
        const HEADER: u64 = SHORTEST_GROUP_HEADER_LEN as u64;
        let end = self.window.end.0;
        if let Some(here) = self.window.segment_of(self.point.lsn) {
            let begins_behind = |segment: &&Segment| {
                segment.header.epoch > here.header.epoch && segment.header.first > self.point.lsn
            };
            if let Some(later) = self.window.segments.iter().find(begins_behind) {
                let detail = format!(
                    "The log of a later start begins behind it, in \"{}\", so a crash cannot be the cause.",
                    later.path.display()
                );
                return Err(self.window.damaged(self.point.lsn, &detail));
            }
        }
        let mut lsn = self.point.lsn.0 + STEP;
        while lsn + HEADER <= end {
            let length = (end - lsn).min(WINDOW_BYTES);
            let bytes = self.window.fetch(Lsn(lsn), length)?.expect("it ends before the log's files do");
            // A group has its own LSN after eight bytes; other data hardly ever matches that.
            let candidates: Vec<u64> = (0..=length - HEADER)
                .step_by(GROUP_ALIGNMENT)
                .filter(|at| bytes[*at as usize + 8..*at as usize + 16] == (lsn + at).to_le_bytes())
                .map(|at| lsn + at)
                .collect();
            for candidate in candidates {
                if self.window.group_at(Lsn(candidate))?.is_some() {
                    let (path, byte) = self.window.place(Lsn(candidate)).expect("it is in a segment");
                    return Err(self.window.damaged(
                        self.point.lsn,
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
            return Err(missing(&self.directory, self.window.end, Some(&segment)));
        }
        Ok(())
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
