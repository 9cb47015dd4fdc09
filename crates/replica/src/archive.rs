//! The archive: a copy of a database's log that is written while the database runs, so that a backup can be restored to any commit
//! after it.
//!
//! ```text
//! directory/archive/<cluster>/
//!   LOCK                   locked while a server archives there
//!   1/                     a run: an uninterrupted part of the cluster's log
//!     RUN                  where it begins, how far it is on disk at least, until when it is complete
//!     PRUNED               where it begins since a part was removed
//!     log/                 a copy of the log's segments, and of the spill files that it names
//!     checkpoint/          copies of the files of loads that it names
//!   2/                     the next run; between the two, something is missing
//! ```
//!
//! An [`Archiver`] follows the log, and retains what it has not archived yet. While it fails, it tries again and the log grows, up
//! to `max_slot_wal_keep_size`. Then it begins a new run: a backup made before that can be restored to commits before the gap only.
//!
//! Invariant: the files that a group names are on disk before the group is written.

use crate::backup::{
    ArchivedRun, Repository, explain_lock, identifier, point, read_described, write_described,
};
use crate::files;
use crate::source::is_out_of_reach;
use firn_base::disk::{Disk, DiskLock, Medium};
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_log::format::SegmentName;
use firn_log::{DatabaseId, Follower, LogCopy, LogPoint, Pin, Reader, SegmentHeader, Waited};
use firn_txn::{DatabaseFile, Engine, Folders, check_files_named_by, files_named_by};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const RUN: &str = "RUN";
const PRUNED: &str = "PRUNED";
const LOCK: &str = "LOCK";
const WORD: &str = "FIRNARCHIVE";
const VERSION: u32 = 1;
/// The name of an archiver as a holder of a pin.
const HOLDER: &str = "archive";

/// After a batch of so many bytes, the next one does not wait.
const LARGE_BATCH_BYTES: u64 = 1 << 20;
/// How long to wait for something to archive.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// The description of a run is written this often at least.
const DESCRIBE_IDLE: Duration = Duration::from_secs(10);
/// How long to wait after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often something is written, while something is archived: each of it is a request to an object store.
#[derive(Clone, Copy)]
struct Pace {
    /// How much is archived before it is synced.
    batch_bytes: u64,
    /// The least time between small batches.
    sync: Duration,
    /// The least time between descriptions of a run.
    describe: Duration,
}

impl Pace {
    fn of(medium: Medium) -> Pace {
        let (batch_bytes, sync, describe) = match medium {
            Medium::Blocks => (4 << 20, 0, 500),
            Medium::Objects => (16 << 20, 1000, 5000),
        };
        Pace { batch_bytes, sync: Duration::from_millis(sync), describe: Duration::from_millis(describe) }
    }
}

/// What is known of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The database whose log it is.
    #[serde(with = "identifier")]
    pub database: DatabaseId,
    /// Where it begins.
    #[serde(with = "point")]
    pub begin: LogPoint,
    /// It is on disk up to there at least.
    #[serde(with = "point")]
    pub end: LogPoint,
    /// Every commit that was acknowledged before this time is in it, if it is after its beginning. In microseconds since 1970 UTC.
    pub complete_until: i64,
}

/// Where a run begins since a part of it was removed.
#[derive(Serialize, Deserialize)]
struct Pruned {
    #[serde(with = "point")]
    begin: LogPoint,
}

/// What an archiver has done, as `pg_stat_archiver` shows it. Times are in microseconds since 1970 UTC.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct ArchiverStatus {
    /// How many segments it has archived to their ends.
    pub archived: u64,
    /// The segment that was archived last, and when.
    pub last_archived: Option<(String, i64)>,
    /// How often it has failed.
    pub failures: u64,
    /// The segment at which it failed last, when, and why.
    pub last_failure: Option<(String, i64, String)>,
    /// The log before this position is in the archive, from the beginning of the run on.
    pub position: Option<Lsn>,
    /// How often a part of the log has been lost for the archive, so that the next backup should be a full one.
    pub gaps: u64,
}

/// Archives the log of a database on a thread of its own, until it is stopped.
#[derive(Debug)]
pub struct Archiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stopping: AtomicBool,
    status: Mutex<ArchiverStatus>,
    stopped: Condvar,
}

impl Archiver {
    /// Begins to archive in the folder for archives of a directory with backups, which is created if it does not exist. `report`
    /// gets lines for the person who runs the server: a failure, unless it is that of before, and a gap.
    ///
    /// Errors: 55000 if the database is in memory, or the directory has other files; 55006 if another server archives the same
    /// cluster there; those of the disk. In an object store, what may pass is tried again instead.
    pub fn start(
        engine: Arc<Engine>,
        disk: Arc<dyn Disk>,
        directory: &Path,
        report: impl Fn(&str) + Send + 'static,
    ) -> Result<Archiver> {
        let (database, cluster) = engine.identity().ok_or_else(|| {
            let message = "a database in memory has no log to archive";
            Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint("Use --data DIR.")
        })?;
        let medium = disk.medium();
        let shared = Arc::new(Shared {
            stopping: AtomicBool::new(false),
            status: Mutex::default(),
            stopped: Condvar::new(),
        });
        let mut worker = Worker {
            engine,
            pace: Pace::of(medium),
            disk,
            database,
            repository: directory.to_owned(),
            folder: Repository::archive_folder(directory, cluster),
            lock: None,
            retained: None,
            shared: shared.clone(),
            gap: false,
            reported: None,
            report: Box::new(report),
        };
        // Whatever is wrong from the beginning is reported at once.
        let writing = match worker.open() {
            Err(error) if medium == Medium::Objects && may_pass(&error) => {
                worker.note_failure(&error, None);
                let begin = worker.engine.log_point()?;
                worker.retained = Some((worker.engine.pin_log(HOLDER)?, begin));
                None
            }
            opened => Some(opened?),
        };
        let thread = thread::spawn("firn-archive", move || worker.work(writing));
        Ok(Archiver { shared, thread: Some(thread) })
    }

    /// What it has done since it was started.
    pub fn status(&self) -> ArchiverStatus {
        self.shared.status.lock().clone()
    }

    /// A handle that shows what it has done.
    pub fn watch(&self) -> impl Fn() -> ArchiverStatus + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.status.lock().clone()
    }

    /// Archives what is on disk by now, and ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Release: pairs with the load of the worker, which archives everything that is durable by then.
        self.shared.stopping.store(true, Ordering::Release);
        // Under the lock, so that the worker does not begin to sleep in between.
        let status = self.shared.status.lock();
        self.shared.stopped.notify_all();
        drop(status);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    engine: Arc<Engine>,
    disk: Arc<dyn Disk>,
    pace: Pace,
    database: DatabaseId,
    /// The directory with backups, which has the archive.
    repository: PathBuf,
    /// Of the cluster.
    folder: PathBuf,
    /// `None` before it is held, and once another server has taken it over.
    lock: Option<DiskLock>,
    /// What is retained before a run is open for the first time, which may continue an older one, and where the log ended then.
    retained: Option<(Pin, LogPoint)>,
    shared: Arc<Shared>,
    /// Whether a part of the log has been lost, so that a new run begins.
    gap: bool,
    /// The failure that was reported last.
    reported: Option<String>,
    report: Box<dyn Fn(&str) + Send>,
}

/// A run that is being written.
struct Writing {
    directory: PathBuf,
    run: Run,
    log: LogCopy,
    follower: Follower,
    /// The last segment that was begun.
    segment: Option<SegmentHeader>,
    described: clock::Instant,
    /// The next batch waits until then.
    pause_until: clock::Instant,
    /// A time, and the position up to which what was acknowledged before it is on disk.
    upcoming: Option<(i64, Lsn)>,
}

impl Worker {
    fn work(&mut self, mut writing: Option<Writing>) {
        // A run that has failed. Its pin retains the log until a run is open again, which finds what the failed write has left.
        let mut failed: Option<Writing> = None;
        loop {
            let is_stopping = self.shared.stopping.load(Ordering::Acquire);
            let outcome = match writing.as_mut() {
                Some(writing) => self.archive(writing, is_stopping),
                None => {
                    let is_broken = |failed: &Writing| failed.follower.pin().position().is_err();
                    self.gap |= failed.as_ref().is_some_and(is_broken);
                    self.open().map(|opened| {
                        (writing, failed, self.retained) = (Some(opened), None, None);
                        false
                    })
                }
            };
            match outcome {
                Ok(is_done) if is_done && is_stopping => return,
                Ok(_) => {}
                Err(error) => {
                    self.note_failure(&error, writing.as_ref());
                    if error.state() == SqlState::OBJECT_IN_USE {
                        self.lock = None;
                    }
                    if is_stopping {
                        return;
                    }
                    failed = writing.take().or(failed);
                    self.rest(RETRY_AFTER);
                    // A store that does not answer would delay the end for as long again. The next start goes on if the log from there on is retained.
                    if self.disk.medium() == Medium::Objects && self.shared.stopping.load(Ordering::Acquire) {
                        return;
                    }
                }
            }
        }
    }

    /// Sleeps for a while, or until it is to stop.
    fn rest(&self, longest: Duration) {
        let mut status = self.shared.status.lock();
        if !self.shared.stopping.load(Ordering::Acquire) {
            self.shared.stopped.wait_for(&mut status, longest);
        }
    }

    fn note_failure(&mut self, error: &Error, writing: Option<&Writing>) {
        let segment = writing.and_then(|writing| writing.segment);
        let name = segment.map_or_else(String::new, |header| header.name().to_string());
        let mut status = self.shared.status.lock();
        status.failures += 1;
        let message = error.to_string();
        status.last_failure = Some((name, clock::wall_clock_micros(), message.clone()));
        drop(status);
        // Its detail may differ each time.
        if self.reported.as_deref() != Some(error.message()) {
            self.reported = Some(error.message().to_owned());
            (self.report)(&format!("the log could not be archived, which is tried again: {message}"));
        }
    }

    /// Opens the newest run where it ends, or begins another one.
    fn open(&mut self) -> Result<Writing> {
        if self.lock.is_none() {
            Repository::open_or_create(self.disk.clone(), &self.repository)?;
            self.disk.create_directory(&self.folder)?;
            for made in [Some(&*self.repository), self.folder.parent()].into_iter().flatten() {
                self.disk.sync_directory(made)?;
            }
            self.lock = Some(self.disk.lock(&self.folder.join(LOCK)).map_err(|error| {
                let message = format!("another server archives its log in \"{}\"", self.folder.display());
                explain_lock(error, message, "Name another directory.")
            })?);
        }
        let newest = run_numbers(&*self.disk, &self.folder)?.last().copied();
        let number = newest.map_or(1, |newest| newest + 1);
        if self.gap {
            self.note_gap();
        } else if let Some(newest) = newest {
            let directory = self.folder.join(newest.to_string());
            let continued = read_run(&*self.disk, &directory).and_then(|run| match run {
                Some(run) => self.continue_run(&directory, run),
                // It was being created.
                None => Ok(None),
            });
            match continued {
                Ok(Some(writing)) => return Ok(writing),
                Ok(None) => self.note_gap(),
                // What was archived.
                Err(error) if error.state() == SqlState::DATA_CORRUPTED => self.note_gap(),
                Err(error) => return Err(error),
            }
        }
        let (begin, follower) = self.follow_from_now()?;
        let directory = self.folder.join(number.to_string());
        for folder in Folders::of(&directory).both() {
            self.disk.create_directory(folder)?;
        }
        let log = LogCopy::create(self.disk.clone(), &Folders::of(&directory).log, self.database, begin)?;
        let run = Run { database: self.database, begin, end: begin, complete_until: i64::MIN };
        let mut writing = Writing::new(directory, run, log, follower);
        writing.describe(&*self.disk)?;
        self.disk.sync_directory(&self.folder)?;
        self.gap = false;
        Ok(writing)
    }

    /// Follows the log from its present end, or from where that was when archiving was begun.
    fn follow_from_now(&mut self) -> Result<(LogPoint, Follower)> {
        if let Some((_, begin)) = self.retained {
            match self.engine.follow(HOLDER, begin) {
                // It needed more than may be retained.
                Err(error) if is_out_of_reach(&error) => self.note_gap(),
                followed => return Ok((begin, followed?)),
            }
        }
        let begin = self.engine.log_point()?;
        Ok((begin, self.engine.follow(HOLDER, begin)?))
    }

    /// Opens a run where it ends; `None` if the log is not retained from there on, or has another history.
    fn continue_run(&self, directory: &Path, run: Run) -> Result<Option<Writing>> {
        let log_directory = Folders::of(directory).log;
        let (log, end) = if segment_names(&*self.disk, &log_directory)?.is_empty() {
            let log = LogCopy::create(self.disk.clone(), &log_directory, self.database, run.begin)?;
            (log, run.begin)
        } else {
            // More may be there than the description says.
            let mut reader = Reader::open(&*self.disk, &log_directory, self.database, run.end)?;
            reader.end_at_first_gap();
            while reader.next_group()?.is_some() {}
            let end = reader.point();
            (LogCopy::open(self.disk.clone(), &log_directory, self.database, end)?, end)
        };
        let follower = match self.engine.follow(HOLDER, end) {
            Err(error) if is_out_of_reach(&error) => return Ok(None),
            followed => followed?,
        };
        self.shared.status.lock().position = Some(end.lsn);
        Ok(Some(Writing::new(directory.to_owned(), Run { end, ..run }, log, follower)))
    }

    fn note_gap(&mut self) {
        const MESSAGE: &str =
            "the archive lacks a part of the log, which is not retained any more: make a backup now";
        self.gap = false;
        let mut status = self.shared.status.lock();
        status.gaps += 1;
        status.failures += 1;
        status.last_failure = Some((String::new(), clock::wall_clock_micros(), MESSAGE.to_owned()));
        drop(status);
        (self.report)(MESSAGE);
    }

    /// Archives what is on disk, or waits for more. Returns whether there was nothing to do.
    fn archive(&self, writing: &mut Writing, is_stopping: bool) -> Result<bool> {
        let longest = if is_stopping { Duration::ZERO } else { LONGEST_WAIT };
        let waited = writing.follower.wait(Lsn(u64::MAX), longest)?;
        if waited != Waited::Group {
            if is_stopping || writing.described.elapsed() >= DESCRIBE_IDLE {
                // Nothing is left to archive, unless the first of these has found something to flush.
                writing.note_complete(&self.engine)?;
                writing.note_complete(&self.engine)?;
                writing.describe(&*self.disk)?;
            }
            return Ok(true);
        }
        let pause = writing.pause_until.saturating_duration_since(clock::now());
        if !pause.is_zero() && !is_stopping {
            self.rest(pause);
        }
        let mut segments = Vec::new();
        let begin = writing.log.point().lsn;
        while writing.log.point().lsn.0 - begin.0 < self.pace.batch_bytes {
            let Some(group) = writing.follower.next_group(Lsn(u64::MAX))? else { break };
            let (engine, disk, directory) = (&*self.engine, &*self.disk, &*writing.directory);
            let threads = files::files_at_once(disk.medium());
            thread::for_each("firn-archive", threads, &files_named_by(&group)?, |file| {
                copy_named(engine, disk, file, directory)
            })?;
            let headers: Vec<SegmentHeader> = writing.follower.segments_of(&group).copied().collect();
            for header in headers {
                if writing.segment.is_some_and(|last| last.name() < header.name()) {
                    segments.extend(writing.segment.map(|last| last.name().to_string()));
                }
                if writing.segment.is_none_or(|last| last.name() < header.name()) {
                    writing.log.begin_segment(&header.encode())?;
                    writing.segment = Some(header);
                }
            }
            writing.log.append(group.bytes())?;
        }
        writing.log.sync()?;
        writing.run.end = writing.log.point();
        if writing.run.end.lsn.0 - begin.0 < LARGE_BATCH_BYTES {
            writing.pause_until = clock::now() + self.pace.sync;
        }
        writing.follower.pin().advance(writing.run.end.lsn)?;
        let mut status = self.shared.status.lock();
        status.position = Some(writing.run.end.lsn);
        status.archived += segments.len() as u64;
        if let Some(last) = segments.pop() {
            status.last_archived = Some((last, clock::wall_clock_micros()));
        }
        drop(status);
        if writing.described.elapsed() >= self.pace.describe {
            writing.note_complete(&self.engine)?;
            writing.describe(&*self.disk)?;
        }
        Ok(false)
    }
}

impl Writing {
    fn new(directory: PathBuf, run: Run, log: LogCopy, follower: Follower) -> Writing {
        let now = clock::now();
        let (described, pause_until) = (now, now);
        Writing { directory, run, log, follower, segment: None, described, pause_until, upcoming: None }
    }

    /// Notes until when the run is complete.
    fn note_complete(&mut self, engine: &Engine) -> Result<()> {
        if let Some((time, position)) = self.upcoming
            && position <= self.run.end.lsn
        {
            self.run.complete_until = self.run.complete_until.max(time);
            self.upcoming = None;
        }
        if self.upcoming.is_none() {
            let (time, point) = engine.complete_until()?;
            // After the clock was set back, the times of groups are later than those of their commits.
            self.upcoming = (point.wall_time <= time).then_some((time, point.lsn));
        }
        Ok(())
    }

    fn describe(&mut self, disk: &dyn Disk) -> Result<()> {
        self.described = clock::now();
        write_described(disk, &self.directory.join(RUN), WORD, VERSION, &self.run)
    }
}

/// Whether an error of an object store at the start is no reason for a server not to start: another server has the lock, which may have
/// been lost with its machine; or the store cannot be reached.
fn may_pass(error: &Error) -> bool {
    [SqlState::OBJECT_IN_USE, SqlState::UNABLE_TO_CONNECT, SqlState::IO_ERROR].contains(&error.state())
}

/// Copies a file that a group names, unless it is there.
fn copy_named(engine: &Engine, disk: &dyn Disk, file: &DatabaseFile, directory: &Path) -> Result<()> {
    let folders = Folders::of(directory);
    let path = folders.path(file);
    if disk.exists(&path)? {
        return Ok(());
    }
    let source = engine.open_file(file)?;
    let temporary = path.with_extension("tmp");
    let working = disk.working_name(&path, &temporary);
    let copied = files::copy(&*source, disk, working)?;
    if file.content.is_some_and(|content| content != copied.content()) {
        let message = format!("the file \"{}\" has not been copied as it is", file.name);
        return Err(Error::new(SqlState::DATA_CORRUPTED, message)
            .with_detail("Its length or its checksum is not that in the log.")
            .with_hint("Look for errors of the server's disk."));
    }
    copied.finish()?;
    disk.publish(working, &path)?;
    disk.sync_directory(path.parent().expect("a file is in a folder"))
}

fn segment_names(disk: &dyn Disk, directory: &Path) -> Result<Vec<SegmentName>> {
    Ok(disk.list(directory)?.iter().filter_map(|name| SegmentName::parse(name)).collect())
}

/// The numbers of the runs in the folder of a cluster, also of those that were being created.
fn run_numbers(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk.list(folder)?.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What is known of a run; `None` if it was being created.
fn read_run(disk: &dyn Disk, directory: &Path) -> Result<Option<Run>> {
    if !disk.exists(&directory.join(RUN))? {
        return Ok(None);
    }
    let mut run: Run = read_described(disk, &directory.join(RUN), WORD, VERSION)?;
    if disk.exists(&directory.join(PRUNED))? {
        let Pruned { begin } = read_described(disk, &directory.join(PRUNED), WORD, VERSION)?;
        run.begin = begin;
        if run.end.lsn < begin.lsn {
            // The description was not written again since.
            run.end = begin;
        }
    }
    Ok(Some(run))
}

/// A run with its folder.
pub(crate) type FoundRun = (PathBuf, Run);

/// The runs in the folder of a cluster, oldest first, and errors of those that are damaged.
pub(crate) fn runs(disk: &dyn Disk, folder: &Path) -> Result<(Vec<FoundRun>, Vec<Error>)> {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for number in run_numbers(disk, folder)? {
        let directory = folder.join(number.to_string());
        match read_run(disk, &directory) {
            Ok(Some(run)) => found.push((directory, run)),
            Ok(None) => {}
            Err(error) if error.state() == SqlState::DATA_CORRUPTED => damaged.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok((found, damaged))
}

/// A reader of a run from a point on; `None` if the run does not reach that point, or has another history there. The run may be
/// growing, and have more than its description says.
pub(crate) fn read_from(disk: &dyn Disk, archived: &ArchivedRun, point: LogPoint) -> Result<Option<Reader>> {
    let ArchivedRun { directory, run, .. } = archived;
    let log_directory = Folders::of(directory).log;
    if point.lsn < run.begin.lsn || segment_names(disk, &log_directory)?.is_empty() {
        return Ok(None);
    }
    let from = if run.end.lsn < point.lsn { run.end } else { point };
    let mut reader = Reader::open(disk, &log_directory, run.database, from)?;
    reader.end_at_first_gap();
    for known in [run.begin, run.end] {
        if known.lsn == point.lsn && !known.is_same_place(&point) {
            return Ok(None);
        }
    }
    if !reader.is_continued()? {
        return Ok(None);
    }
    while reader.position() < point.lsn && reader.next_group()?.is_some() {}
    Ok(reader.point().is_same_place(&point).then_some(reader))
}

/// Reads all of a run: its groups, and the files that they name. Returns where it ends. XX001 if something is damaged or missing.
pub(crate) fn verify(disk: &dyn Disk, archived: &ArchivedRun) -> Result<LogPoint> {
    let ArchivedRun { directory, run, .. } = archived;
    let folders = Folders::of(directory);
    if segment_names(disk, &folders.log)?.is_empty() {
        return Ok(run.begin);
    }
    let mut reader = Reader::open(disk, &folders.log, run.database, run.begin)?;
    reader.end_at_first_gap();
    while let Some(group) = reader.next_group()? {
        check_files_named_by(&group, disk, &folders, run.database)?;
    }
    if reader.position() < run.end.lsn {
        let message = format!("the log in \"{}\" ends too early", folders.log.display());
        return Err(Error::new(SqlState::DATA_CORRUPTED, message).with_hint("Make a backup now."));
    }
    Ok(reader.point())
}

/// Removes the part of a run before the position from which the oldest backup needs the log: all of it if it ends before, and is
/// not the newest of its cluster.
pub(crate) fn prune(
    disk: &Arc<dyn Disk>,
    archived: &ArchivedRun,
    needed: Lsn,
    is_newest: bool,
) -> Result<()> {
    let ArchivedRun { directory, run, .. } = archived;
    let log_directory = Folders::of(directory).log;
    if !is_newest && run.end.lsn < needed {
        return remove_run(&**disk, directory);
    }
    if needed <= run.begin.lsn || segment_names(&**disk, &log_directory)?.is_empty() {
        return Ok(());
    }
    let mut reader = Reader::open(&**disk, &log_directory, run.database, run.begin)?;
    reader.end_at_first_gap();
    let (mut begin, mut superfluous) = (run.begin, Vec::new());
    let mut first = reader.segment().map(SegmentHeader::name);
    while let Some(group) = reader.next_group()? {
        if group.end.lsn > needed {
            break;
        }
        superfluous.extend(files_named_by(&group)?);
        begin = group.end;
        first = reader.segments_of(&group).last().map(SegmentHeader::name);
    }
    write_described(&**disk, &directory.join(PRUNED), WORD, VERSION, &Pruned { begin })?;
    for file in superfluous {
        remove_if_there(&**disk, &Folders::of(directory).path(&file))?;
    }
    for name in segment_names(&**disk, &log_directory)? {
        if first.is_some_and(|first| name < first) {
            remove_if_there(&**disk, &log_directory.join(name.to_string()))?;
        }
    }
    disk.sync_directory(&log_directory)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.state() == SqlState::UNDEFINED_FILE => Ok(()),
        outcome => outcome,
    }
}

/// Removes a folder with files, if it is there.
pub(crate) fn remove_folder(disk: &dyn Disk, folder: &Path) -> Result<()> {
    if !disk.exists(folder)? {
        return Ok(());
    }
    for file in disk.list(folder)? {
        disk.remove(&folder.join(file))?;
    }
    disk.remove_directory(folder)
}

fn remove_run(disk: &dyn Disk, directory: &Path) -> Result<()> {
    // First, so that a run without all of its files is none.
    remove_if_there(disk, &directory.join(RUN))?;
    disk.sync_directory(directory)?;
    let folders = Folders::of(directory);
    folders.both().into_iter().chain([directory]).try_for_each(|folder| remove_folder(disk, folder))
}
