//! Writing the log: commits are queued, and the first thread that needs one to be durable writes the whole queue.
//!
//! [`Log::append`] runs inside the commit critical section and only copies into a queue in memory. It accepts only what
//! fits into space that the disk has allocated to the log's segments. Otherwise [`Log::make_room`] allocates more, outside
//! the section, where a full disk fails one commit and publishes nothing.
//! [`Log::wait_durable`] makes its caller the *leader* if no thread is flushing. The leader takes the
//! whole queue as one group, writes it through to the disk in one call, and wakes the threads that have
//! begun to wait meanwhile; one of them leads next. So a single committer needs no switch to another
//! thread (waking a sleeping core took 50 µs where this was measured, half of a write to the disk).
//!
//! ```text
//!   committers ── append ──> queue ── leader swaps it for an empty one ──> group ──> segment file
//!                            (appending continues while the leader writes)
//! ```
//!
//! There are two background threads. The *flusher* leads when commits have been in the queue for longer
//! than a tick and no thread waits for them (`synchronous_commit = off`), or when the queue grows large.
//! The *preparer* creates the next segment in advance, so that committers hardly ever do. Both sleep while nothing is appended.
//!
//! The leader seals the group: it takes the time, and chains the group to the one before it by that one's CRC. Committers do
//! nothing of that. The first group of an epoch begins with a record of the epoch.
//!
//! Invariant: groups are written one after the other, each synced before the next begins; so a
//! torn group is the last one, and `durable` never passes a byte that is not on disk.
//! Invariant: the queue ends before `allocated`, with its group's header and padding; so all committers of a group are
//! counted together, and the leader finds the segments that it needs.
//!
//! The log of a replica is *received*: groups and headers of segments of another log are stored as they are ([`Log::receive`]). Then
//! nothing is appended here; the leader syncs what has been stored. When the replica becomes a primary, an epoch of its own begins
//! where receiving has ended ([`Log::begin_to_write`]). A primary that becomes a replica appends nothing any more
//! ([`Log::refuse_appends`]).
//!
//! What is durable is *committed* at once, unless others must have it, too ([`Log::require_confirmation`]): then it is committed up
//! to the position that they have confirmed. A commit waits for that ([`Log::wait_committed`]).
//!
//! After a failed write or sync it is unknown what is on disk, and another sync may report a success
//! that never happened. So the log fails permanently: every commit that was not durable by then gets the
//! error, and every later one, until the database is opened again.

use crate::DatabaseId;
use crate::commitment::Commitment;
use crate::copy::LogCopy;
use crate::follower::{Follower, Reads};
use crate::format::{
    DATA_START, ENTRY_HEADER_LEN, FORMAT_VERSION, GROUP_ALIGNMENT, GROUP_HEADER_LEN, LogPoint,
    SEGMENT_HEADER_LEN, Seal, encode_entry_header, seal_group,
};
use crate::pins::{Pin, Pinned, Pins, Released};
use crate::record::RedoBuffer;
use crate::sealed::Sealed;
use crate::segments::{Segment, Segments, Written};
use crate::spill::{Kept, Spills};
use crate::window::{Group, Window};
use firn_base::disk::Disk;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, ShortMutex};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Epoch, Error, Lsn, Result, SqlState, Time, clock};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Largest length of segment files made from now on; a multiple of 8 above 4096. The first one is smaller
    /// and each following one twice as long, so that the log of a small database is small.
    pub segment_bytes: u64,
    /// Commits that no thread waits for are written after one to two intervals. While a [prompt](crate::Follower::read_promptly) follower
    /// reads the log, the interval is a fifth of this.
    pub flush_interval: Duration,
    /// A queue of this length is written at once.
    pub flush_bytes: usize,
    /// A queue of this length makes committers wait for the disk.
    pub queue_bytes: usize,
    /// The queue grows by buffers of this length. One is enough while the disk keeps up.
    pub chunk_bytes: usize,
    /// Redo of a running transaction that reaches this length is written to a file of its own.
    pub spill_bytes: usize,
    /// The most of the log, its spill files included, that a [`Pin`] retains; `None` for no limit.
    pub most_pinned_bytes: Option<u64>,
    /// The wall clock, in microseconds since 1970 UTC. It may jump; what is written never goes back.
    pub wall_clock: fn() -> i64,
    /// Whether it has threads. Without them, what no thread waits for is not written, and dropping the log writes nothing: for
    /// simulations, which decide what happens when.
    pub has_threads: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            flush_interval: Duration::from_millis(5),
            flush_bytes: 1 << 20,
            queue_bytes: 64 << 20,
            chunk_bytes: 2 << 20,
            spill_bytes: 8 << 20,
            most_pinned_bytes: Some(8 << 30),
            wall_clock: clock::wall_clock_micros,
            has_threads: true,
        }
    }
}

/// The number of ticks without a commit after which the flusher sleeps until the next commit wakes it.
const IDLE_TICKS: u32 = 20;

/// While a prompt follower reads the log, the flusher ticks this many times as often.
const TICKS_WHEN_FOLLOWED: u32 = 5;

/// A log open for writing. Dropping it flushes the queue, but only [`Log::close`] reports whether that
/// succeeded.
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    options: LogOptions,
    /// The epoch of what is written.
    epoch: AtomicU64,
    queue: ShortMutex<Queue>,
    /// Committers wait here for space in the queue.
    space: Condvar,
    /// Everything before this position is on disk. The leader stores it after its sync (Release); waiting threads load it
    /// (Acquire), although it publishes nothing but the number itself.
    durable: AtomicU64,
    /// What of that is committed. Its lock is taken after that of `flushes`.
    pub commitment: Commitment,
    /// Threads wait here for confirmation, with the lock of `flushes`.
    pub confirmed: Condvar,
    pub sealed: Sealed,
    /// How many followers are prompt.
    pub prompt_followers: AtomicUsize,
    /// Whether the log has failed: appended records are discarded. Set under the queue's lock.
    failed: AtomicBool,
    pub flushes: Mutex<Flushes>,
    /// Threads wait here for the end of a flush: of one with an even number, of one with an odd number.
    flush_ended: [Condvar; 2],
    /// Followers wait here for groups, with the lock of `flushes`: those that read what is committed, and others.
    pub followed: Condvar,
    pub followed_durable: Condvar,
    /// Only the leader locks it.
    writer: Mutex<Writer>,
    /// The leader locks it only when it needs another segment.
    segments: Arc<Mutex<Segments>>,
    pub written: Arc<Written>,
    pub spills: Arc<Spills>,
    pins: Arc<Pins>,
    /// Everything before it has been removed, or may be.
    removed: Mutex<Removed>,
    /// Whether the disk has lacked space for a segment. Says nothing of other memory.
    lacked_space: AtomicBool,
    flusher: Signal<FlusherRequest>,
    preparer: Signal<PreparerRequest>,
}

/// What checkpoints have made superfluous. Locked before `segments`.
#[derive(Clone, Copy)]
struct Removed {
    /// Checkpoints have replaced the log before this position.
    superfluous: Lsn,
    /// The files that were named before this position may have been removed, and no pin gets it any more.
    gone: Lsn,
}

/// The group being collected: space for its header, then entries. It consists of chunks, so that no committer copies what others
/// have appended while the disk lags behind: growing a buffer of 32 MiB would delay every committer by tens of milliseconds.
struct Queue {
    /// Chunks that are full.
    full: Vec<Vec<u8>>,
    full_bytes: usize,
    /// The last chunk.
    bytes: Vec<u8>,
    /// Commits.
    entries: u32,
    /// Entries before these, which are not written without them: one in the first group of an epoch.
    leading: u32,
    /// The commit time of the last entry.
    newest: Time,
    /// LSN of the first byte.
    begin: Lsn,
    /// Everything before this position has space on the disk.
    allocated: Lsn,
    /// Whether the flusher sleeps without a tick and must be woken by the next append.
    flusher_sleeps: bool,
    /// Whether the flusher has already been woken because the queue is long.
    flusher_woken: bool,
    /// Why nothing is appended any more.
    refusal: Option<Error>,
}

impl Queue {
    fn len(&self) -> usize {
        self.full_bytes + self.bytes.len()
    }

    fn end(&self) -> Lsn {
        if self.entries == 0 { self.begin } else { Lsn(self.begin.0 + self.len() as u64) }
    }

    /// Where its group would end with another entry of this length.
    fn end_with(&self, length: usize) -> Lsn {
        Lsn(self.begin.0 + (self.len() + length).next_multiple_of(GROUP_ALIGNMENT) as u64)
    }

    /// Reserves memory for an entry after the others; the first one may be longer than a chunk.
    fn reserve(&mut self, length: usize, chunk_bytes: usize) {
        // And for the padding that aligns the end of the group.
        let length = length + GROUP_ALIGNMENT;
        if self.entries == 0 {
            self.bytes.reserve(length);
        } else if self.bytes.len() + length > self.bytes.capacity() {
            let next = Vec::with_capacity(chunk_bytes.max(length));
            self.full_bytes += self.bytes.len();
            self.full.push(std::mem::replace(&mut self.bytes, next));
        }
    }

    /// Puts the record of an epoch before the first commits.
    fn lead_with(&mut self, epoch: Epoch) {
        let mut redo = RedoBuffer::new();
        redo.epoch(epoch);
        self.bytes.extend_from_slice(&encode_entry_header(Time(0), redo.as_bytes().len()));
        self.bytes.extend_from_slice(redo.as_bytes());
        self.leading = 1;
    }

    fn reset(&mut self, begin: Lsn) {
        debug_assert!(self.full.is_empty() && self.bytes.is_empty());
        self.full_bytes = 0;
        self.bytes.resize(GROUP_HEADER_LEN, 0);
        self.entries = 0;
        self.leading = 0;
        self.begin = begin;
        self.flusher_woken = false;
    }
}

/// Whether a thread is flushing, and which flush makes which commits durable. Flushes are numbered. A thread that arrives during
/// a flush waits for this one if it covers the thread's commit, else for the next one. At the end of a flush all threads that
/// waited for it are woken, and one of those that wait for the next, to lead.
pub(crate) struct Flushes {
    flushing: bool,
    /// The number of the flush that runs, or of the next one.
    number: u64,
    /// The position up to which the running flush makes the log durable.
    flushing_to: Lsn,
    pub failure: Option<Error>,
    /// Why nobody waits for confirmation any more.
    pub abandoned: Option<Error>,
    /// Up to where the log was committed when those were woken last who wait for that.
    pub announced: Lsn,
    /// Whether the log has been closed.
    pub closed: bool,
}

impl Flushes {
    /// Whether more is committed than when this was called last. If it is not, who waits for that need not be woken.
    pub fn announce(&mut self, committed: Lsn) -> bool {
        let is_news = committed > self.announced;
        self.announced = self.announced.max(committed);
        is_news
    }
}

/// The queue as a leader has taken it: space for the header of a group, then its entries.
struct QueuedGroup {
    chunks: Vec<Vec<u8>>,
    entries: u32,
    newest: Time,
    begin: Lsn,
    end: Lsn,
}

struct Writer {
    /// `None` until the first group of the epoch.
    segment: Option<Segment>,
    /// The end of the last group.
    last: LogPoint,
    /// The next group's first chunk.
    spare: Vec<u8>,
    /// If the log is received: what stores it.
    copy: Option<LogCopy>,
}

/// A background thread sleeps here until it gets a request.
#[derive(Default)]
struct Signal<R> {
    request: Mutex<R>,
    sent: Condvar,
}

#[derive(Default)]
struct FlusherRequest {
    stop: bool,
    flush: bool,
    wake: bool,
}

#[derive(Default)]
struct PreparerRequest {
    stop: bool,
    wanted: bool,
}

impl<R> Signal<R> {
    fn send(&self, set: impl FnOnce(&mut R)) {
        set(&mut self.request.lock());
        self.sent.notify_all();
    }
}

impl Log {
    /// Opens the log in `directory` for writing from `at` on: where its [`crate::Reader`] ended, or
    /// the beginning of a new one. Everything after that position is discarded. A new epoch begins.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        at: LogPoint,
        options: LogOptions,
    ) -> Result<Log> {
        Log::open_as(disk, directory, database, at, options, false)
    }

    /// Opens the log in `directory` to be [received](Log::receive) from `at` on, where its [`crate::Reader`] ended. No epoch begins.
    pub fn open_to_receive(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        at: LogPoint,
        options: LogOptions,
    ) -> Result<Log> {
        Log::open_as(disk, directory, database, at, options, true)
    }

    fn open_as(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        at: LogPoint,
        options: LogOptions,
        is_received: bool,
    ) -> Result<Log> {
        let LogPoint { lsn: begin, epoch: last, .. } = at;
        let file_bytes = options.segment_bytes;
        let segments =
            Segments::open(disk.clone(), directory, database, file_bytes, begin, last, is_received)?;
        let copy = match is_received {
            true => Some(LogCopy::open(disk.clone(), directory, database, at)?.keep_ends()),
            false => None,
        };
        let (allocated, epoch, retained) = (segments.allocated(), segments.epoch(), segments.begin());
        let written = segments.written().clone();
        if copy.is_some() {
            written.restart(begin);
        }
        let segments = Arc::new(Mutex::new(segments));
        let spills = Spills::open(disk, directory, database, epoch, segments.clone());
        let mut queue = Queue {
            full: Vec::new(),
            full_bytes: 0,
            bytes: Vec::with_capacity(options.chunk_bytes),
            entries: 0,
            leading: 0,
            newest: Time(0),
            begin,
            allocated,
            flusher_sleeps: false,
            flusher_woken: false,
            refusal: None,
        };
        queue.reset(begin);
        queue.lead_with(epoch);
        let shared = Arc::new(Shared {
            options,
            epoch: AtomicU64::new(epoch.0),
            queue: ShortMutex::new(queue),
            space: Condvar::new(),
            durable: AtomicU64::new(begin.0),
            commitment: Commitment::new(at),
            confirmed: Condvar::new(),
            sealed: Sealed::default(),
            prompt_followers: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            flushes: Mutex::new(Flushes {
                flushing: false,
                number: 0,
                flushing_to: begin,
                failure: None,
                abandoned: None,
                announced: Lsn(0),
                closed: false,
            }),
            flush_ended: [Condvar::new(), Condvar::new()],
            followed: Condvar::new(),
            followed_durable: Condvar::new(),
            writer: Mutex::new(Writer {
                segment: None,
                last: at,
                spare: Vec::with_capacity(options.chunk_bytes),
                copy,
            }),
            written,
            segments,
            spills,
            pins: Arc::default(),
            removed: Mutex::new(Removed { superfluous: retained, gone: retained }),
            lacked_space: AtomicBool::new(false),
            flusher: Signal::default(),
            preparer: Signal {
                request: Mutex::new(PreparerRequest { stop: false, wanted: !is_received }),
                sent: Condvar::new(),
            },
        });
        let mut threads = Vec::new();
        if options.has_threads {
            let (flushing, preparing) = (shared.clone(), shared.clone());
            threads.push(thread::spawn("firn-log-flush", move || flushing.run_flusher()));
            threads.push(thread::spawn("firn-log-prepare", move || preparing.run_preparer()));
        }
        Ok(Log { shared, threads: Mutex::new(threads) })
    }

    /// Queues the redo records of a commit and returns the position that must become durable for it. `None` if they do
    /// not fit into the allocated space: then nothing has changed. Call [`Log::make_room`] and try again.
    ///
    /// Called inside the commit critical section, so that log order is commit order. Waits only if
    /// the disk lags far behind.
    ///
    /// Errors: the cause of the log's failure; why appends are [refused](Log::refuse_appends). Then nothing has changed.
    pub fn append(&self, commit_time: Time, records: &[u8]) -> Result<Option<Lsn>> {
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        while queue.len() >= shared.options.queue_bytes && !shared.has_failed() {
            shared.space.wait(&mut queue);
        }
        if shared.has_failed() {
            drop(queue);
            return Err(shared.failure());
        }
        if let Some(refusal) = &queue.refusal {
            return Err(refusal.clone());
        }
        let length = ENTRY_HEADER_LEN + records.len();
        if queue.end_with(length) > queue.allocated {
            return Ok(None);
        }
        queue.reserve(length, shared.options.chunk_bytes);
        queue.bytes.extend_from_slice(&encode_entry_header(commit_time, records.len()));
        queue.bytes.extend_from_slice(records);
        queue.entries += 1;
        queue.newest = commit_time;
        let lsn = queue.end();
        let long = queue.len() >= shared.options.flush_bytes && !queue.flusher_woken;
        if long || queue.flusher_sleeps {
            queue.flusher_woken |= long;
            queue.flusher_sleeps = false;
            drop(queue);
            shared.flusher.send(|request| {
                request.wake = true;
                request.flush |= long;
            });
        }
        Ok(Some(lsn))
    }

    /// Allocates space for redo records of this length. Others may take it before the caller appends: then the caller
    /// tries again.
    ///
    /// Error: 53100 if the disk is full, which harms nothing; the cause of the log's failure.
    #[cold]
    pub fn make_room(&self, length: usize) -> Result<()> {
        self.check()?;
        let shared = &*self.shared;
        let allocated = {
            // Waits for the preparer, which may be about to have enough.
            let mut segments = shared.segments.lock();
            let length = ENTRY_HEADER_LEN + length;
            let end = shared.queue.lock().end_with(length);
            let allocated = segments.allocate(end, length as u64);
            shared.note_space(&mut segments);
            allocated
        };
        match allocated {
            Err(error) if error.state() != SqlState::DISK_FULL => {
                shared.fail(&mut shared.flushes.lock(), error);
                Err(shared.failure())
            }
            outcome => outcome,
        }
    }

    /// Lets receiving begin again, perhaps from another server: see [`LogCopy::restart`].
    pub fn restart_receiving(&self) -> Result<()> {
        let mut writer = self.shared.writer.lock();
        let copy = writer.copy.as_mut().expect("the log is received");
        self.shared.note_full(copy.restart())?;
        self.shared.written.restart(copy.point().lsn);
        Ok(())
    }

    /// Stores the header of a segment of the log that this one is a copy of. One that is known already is passed over.
    ///
    /// Errors: XX001 if it is no header of a segment that can follow; 53100, 58030, after which it can be received again.
    pub fn receive_segment(&self, header: &[u8; SEGMENT_HEADER_LEN]) -> Result<()> {
        let mut writer = self.shared.writer.lock();
        let copy = writer.copy.as_mut().expect("the log is received");
        if self.shared.note_full(copy.begin_segment(header))? {
            self.shared.written.begin_received(copy.last_segment().expect("it has just begun"));
        }
        Ok(())
    }

    /// Stores whole groups of the log that this one is a copy of, whose segments have been received. They are on disk after
    /// [`Log::wait_durable`]. Returns where they end.
    ///
    /// Errors: XX001 if they are no groups that follow; 53100, 58030, after which they can be received again; the cause of the log's
    /// failure.
    pub fn receive(&self, groups: &[u8]) -> Result<LogPoint> {
        self.check()?;
        let mut writer = self.shared.writer.lock();
        let copy = writer.copy.as_mut().expect("the log is received");
        self.shared.note_full(copy.append(groups))?;
        let point = copy.point();
        self.shared.queue.lock().begin = point.lsn;
        Ok(point)
    }

    /// Whether it is received, and not written here.
    pub fn is_received(&self) -> bool {
        self.shared.writer.lock().copy.is_some()
    }

    /// The place up to which groups have been received; `None` if it is written here.
    pub fn received(&self) -> Option<LogPoint> {
        self.shared.writer.lock().copy.as_ref().map(LogCopy::point)
    }

    /// Ends receiving. What has been received is on disk then, and nothing else is behind it. Until
    /// [`Log::begin_to_write`], more may be received nevertheless.
    ///
    /// Errors: 58030; the cause of the log's failure.
    pub fn end_receiving(&self) -> Result<LogPoint> {
        self.wait_durable(self.appended_lsn())?;
        let mut writer = self.shared.writer.lock();
        let copy = writer.copy.as_mut().expect("the log is received");
        copy.end()?;
        Ok(copy.point())
    }

    /// Begins an epoch of its own where receiving has [ended](Log::end_receiving): this one, or the next one if it has begun already. From
    /// now on the log is appended to, and nothing is received.
    pub fn begin_to_write(&self, epoch: Epoch) {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock();
        let copy = writer.copy.take().expect("the log is received");
        let (point, mut segments) = (copy.point(), shared.segments.lock());
        assert!(point.lsn == shared.durable(), "receiving has ended");
        segments.begin_to_write(point.lsn, epoch);
        let epoch = segments.epoch();
        shared.epoch.store(epoch.0, Ordering::Release);
        shared.spills.begin_to_write(epoch);
        (writer.last, writer.segment) = (point, None);
        let mut queue = shared.queue.lock();
        assert!(queue.entries == 0, "nothing has been appended");
        queue.bytes.clear();
        queue.reset(point.lsn);
        queue.lead_with(epoch);
        queue.allocated = segments.allocated();
        drop((queue, segments, writer));
        shared.preparer.send(|request| request.wanted = true);
    }

    /// Lets every append fail from now on, with this error. What has been appended before is written; so after a flush nothing follows
    /// any more.
    pub fn refuse_appends(&self, refusal: Error) {
        let mut queue = self.shared.queue.lock();
        queue.refusal = Some(refusal);
        self.shared.space.notify_all();
    }

    /// Keeps a spill file that a group names which has been received.
    pub fn keep_received(&self, kept: Kept) {
        self.shared.spills.keep(kept);
    }

    /// Returns once everything before `lsn` is on disk; writes it if no other thread does.
    ///
    /// Error: the cause of the log's failure; then it is unknown whether the commit is on disk.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait_durable(lsn)
    }

    /// Everything before this position is on disk.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.durable()
    }

    /// The position behind everything appended so far.
    pub fn appended_lsn(&self) -> Lsn {
        self.shared.queue.lock().end()
    }

    /// A position at which a group begins and after which everything is appended from now on. A
    /// [`crate::Reader`] that must see all of that may start there. Commits that were appended shortly before
    /// may also be after it.
    pub fn reader_start(&self) -> Lsn {
        self.shared.queue.lock().begin
    }

    /// The position of the oldest byte that is retained.
    pub fn begin(&self) -> Lsn {
        self.shared.segments.lock().begin()
    }

    /// Whether the disk has lacked space for a segment since the last call, while [`Log::truncate_before`] could free
    /// some.
    pub fn take_lack_of_space(&self) -> bool {
        self.shared.lacked_space.load(Ordering::Relaxed)
            && self.shared.lacked_space.swap(false, Ordering::Relaxed)
            && self.shared.segments.lock().has_whole()
    }

    /// Requests that the queue is written soon, without waiting for that.
    pub fn request_flush(&self) {
        self.shared.flusher.send(|request| request.flush = true);
    }

    /// The error because of which the log has failed, if it has.
    pub fn check(&self) -> Result<()> {
        if self.shared.has_failed() { Err(self.shared.failure()) } else { Ok(()) }
    }

    /// The epoch of what is written.
    pub fn epoch(&self) -> Epoch {
        // Acquire: pairs with the store after which files of the epoch may be written.
        Epoch(self.shared.epoch.load(Ordering::Acquire))
    }

    /// Makes sure that the epoch has begun on disk, before a file of it is written beside the log. 53100 if the disk is full.
    pub fn begin_epoch(&self) -> Result<()> {
        self.shared.spills.begin_epoch()
    }

    /// The place up to which the log is durable.
    pub fn point(&self) -> Result<LogPoint> {
        self.check()?;
        // The leader holds this lock from taking the queue until its group is on disk.
        Ok(self.shared.writer.lock().last)
    }

    /// A position at which a group begins and up to which the log is committed, as a point of its history. It must be retained.
    pub fn point_at(&self, lsn: Lsn) -> Result<LogPoint> {
        let committed = self.committed_point();
        if committed.lsn == lsn {
            // The group after it may become another one.
            return Ok(committed);
        }
        // The leader holds this lock from taking the queue until its group is on disk.
        let last = self.shared.writer.lock().last;
        if last.lsn == lsn {
            return Ok(last);
        }
        assert!(lsn < last.lsn, "the position is durable");
        let mut segments = VecDeque::new();
        let end = Lsn(lsn.0 + GROUP_HEADER_LEN as u64);
        let reached = self.shared.written.open(lsn, end, &mut segments)?;
        let mut window = Window::new(segments, reached.min(end));
        let (header, _) = window
            .header_at(lsn)?
            .ok_or_else(|| window.damaged(lsn, "There is no group where one has been written."))?;
        let Seal { previous, epoch, wall_time, .. } = header.seal;
        Ok(LogPoint { lsn, checksum: previous, epoch, wall_time })
    }

    /// Whether a point is of this log's history, and durable.
    ///
    /// Errors: 58P01 if that is unknown, since the log there has been removed; those of the disk.
    pub fn has(&self, point: LogPoint) -> Result<bool> {
        match self.follow("a comparison", point) {
            Ok(_) => Ok(true),
            Err(error) if is_elsewhere(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a [`LogCopy`](crate::LogCopy) can begin at a position: there is a segment of the present version.
    pub fn can_copy_from(&self, lsn: Lsn) -> bool {
        self.shared.written.header_at(lsn).is_some_and(|header| header.version == FORMAT_VERSION)
    }

    /// Removes the log before `lsn`, by whole segments, because a checkpoint contains its effects; but only up to what pins
    /// retain. Returns the position up to which files that the log names may be removed, too.
    ///
    /// Pins that would retain too much are broken. `beside` counts the bytes of other files, between two positions, that are
    /// retained with the log.
    pub fn truncate_before(&self, lsn: Lsn, beside: impl Fn(Lsn, Lsn) -> u64) -> Result<Lsn> {
        assert!(lsn <= self.durable_lsn(), "only the durable part of a log can be superfluous");
        {
            let mut removed = self.shared.removed.lock();
            removed.superfluous = removed.superfluous.max(lsn);
        }
        if let Some(most) = self.shared.options.most_pinned_bytes {
            let spills = &self.shared.spills;
            let bytes = |from: Lsn| lsn.0 - from.0 + spills.bytes_between(from, lsn) + beside(from, lsn);
            self.shared.pins.break_beyond(lsn, most, bytes);
        }
        self.recycle()
    }

    /// Removes what checkpoints have made superfluous and no pin retains any more: after pins have ended or moved. Returns
    /// what [`Log::truncate_before`] does.
    pub fn recycle(&self) -> Result<Lsn> {
        let mut removed = self.shared.removed.lock();
        let to = self.shared.pins.needed_from(removed.superfluous);
        removed.gone = removed.gone.max(to);
        self.shared.segments.lock().truncate_before(to)?;
        self.shared.spills.truncate_before(to)?;
        Ok(to)
    }

    /// What pins that have ended or moved since the last call have released, so that [`Log::recycle`] finds something, or files
    /// that pins have named are not needed.
    pub fn take_released(&self) -> Option<Released> {
        self.shared.pins.take_released()
    }

    /// Notes again what has been released, because it could not be removed.
    pub fn put_back_released(&self, released: Released) {
        self.shared.pins.put_back(released);
    }

    /// Retains the log from a position on, with the files that its groups name, and other files by their names.
    ///
    /// Error: 58P01 if part of that has been removed.
    pub fn pin(&self, holder: &str, from: Lsn, files: Vec<String>) -> Result<Pin> {
        // Nothing is removed meanwhile.
        let removed = self.shared.removed.lock();
        if from < removed.gone {
            let message = format!("the log from position {} on has been removed", from.0);
            return Err(Error::new(SqlState::UNDEFINED_FILE, message)
                .with_detail(format!("It is retained from position {} on.", removed.gone.0))
                .with_hint("Begin again with a new copy of the database."));
        }
        let pinned = Pinned { holder: holder.to_owned(), position: from, files, is_broken: false };
        Ok(self.shared.pins.add(pinned))
    }

    /// Retains all of the log that is retained now, with the files that its groups name.
    pub fn pin_all(&self, holder: &str) -> Pin {
        // Nothing is removed meanwhile.
        let removed = self.shared.removed.lock();
        let (holder, files) = (holder.to_owned(), Vec::new());
        self.shared.pins.add(Pinned { holder, position: removed.gone, files, is_broken: false })
    }

    /// What pins retain.
    pub fn pinned(&self) -> Vec<Pinned> {
        self.shared.pins.list()
    }

    /// Whether a pin names a file beside the log.
    pub fn is_pinned(&self, file: &str) -> bool {
        self.shared.pins.names(file)
    }

    /// A reader of what is written from a point on, which it pins.
    ///
    /// It reads what is committed.
    ///
    /// Errors: those of [`Log::pin`]; 55000 if the point is none of this log's history; 57P03 if it is behind what is durable; the cause of
    /// the log's failure.
    pub fn follow(&self, holder: &str, from: LogPoint) -> Result<Follower> {
        let pin = self.pin(holder, from.lsn, Vec::new())?;
        // The leader holds this lock from taking the queue until its group is on disk. So a point that was read before that is known.
        let end = self.shared.writer.lock().last;
        if from.lsn > end.lsn {
            self.check()?;
        }
        Follower::new(self.shared.clone(), pin, from, end)
    }

    /// The files with the redo of long transactions.
    pub fn spills(&self) -> &Arc<Spills> {
        &self.shared.spills
    }

    /// After recovery, which has read the log from a position on: keeps the spill files that it has found there and removes
    /// the others.
    pub fn retain_spills(&self, named: Vec<Kept>, from: Lsn) -> Result<()> {
        let mut removed = self.shared.removed.lock();
        removed.superfluous = removed.superfluous.max(from);
        removed.gone = removed.gone.max(from);
        self.shared.spills.retain(named)
    }

    /// Bytes of redo up to a position, and those spilled since the log was opened: a measure of how far the log has
    /// grown.
    pub fn bytes_at(&self, lsn: Lsn) -> u64 {
        lsn.0 + self.shared.spills.kept_bytes()
    }

    /// Writes what is queued and stops the log's threads.
    pub fn close(self) -> Result<()> {
        self.stop()
    }

    fn stop(&self) -> Result<()> {
        let flushed = self.shared.wait_durable(self.appended_lsn());
        self.shared.flushes.lock().closed = true;
        self.shared.wake_all();
        self.shared.flusher.send(|request| request.stop = true);
        self.shared.preparer.send(|request| request.stop = true);
        for thread in self.threads.lock().drain(..) {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
        flushed
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            // A caller that needs the error calls `close`.
            let _ = self.stop();
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("durable", &self.durable_lsn())
            .field("appended", &self.appended_lsn())
            .finish()
    }
}

impl Shared {
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    #[cold]
    fn failure(&self) -> Error {
        self.flushes.lock().failure.clone().expect("set before the queue is closed")
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    pub fn committed(&self) -> Lsn {
        self.commitment.lsn()
    }

    /// Up to where a follower may read files.
    pub fn readable(&self, reads: Reads) -> Lsn {
        match reads {
            Reads::Committed => self.committed(),
            Reads::Durable | Reads::Sealed => self.durable(),
        }
    }

    fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable() >= lsn
    }

    /// Notes that groups are on disk that end at these points, with the newest commit time of each.
    fn note_durable(&self, groups: impl Iterator<Item = (LogPoint, Time)>) {
        self.commitment.note(groups, |end| self.durable.store(end.0, Ordering::Release));
    }

    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        if self.is_durable(lsn) {
            return Ok(());
        }
        let mut flushes = self.flushes.lock();
        loop {
            if self.is_durable(lsn) {
                return Ok(());
            }
            if let Some(failure) = &flushes.failure {
                return Err(failure.clone());
            }
            if flushes.flushing {
                let flush = if lsn <= flushes.flushing_to { flushes.number } else { flushes.number + 1 };
                self.ended(flush).wait(&mut flushes);
                continue;
            }
            // Under the lock of `flushes`, so that the next thread finds the number of the flush to wait for.
            let mut writer = self.writer.lock();
            let group = self.take_queue(&mut writer);
            flushes.flushing = true;
            flushes.flushing_to = group.end;
            assert!(lsn <= flushes.flushing_to, "the log has not been appended up to {lsn:?}");
            drop(flushes);
            let lead = Lead(self);
            let flushed = self.flush(&mut writer, group);
            std::mem::forget(lead);
            drop(writer);
            flushes = self.flushes.lock();
            if let Err(failure) = flushed {
                self.fail(&mut flushes, failure);
            }
            self.end_flush(&mut flushes);
        }
    }

    /// Wakes the threads whose flush has ended, and one of the others to lead the next flush.
    fn end_flush(&self, flushes: &mut Flushes) {
        flushes.flushing = false;
        self.ended(flushes.number).notify_all();
        flushes.number += 1;
        self.followed_durable.notify_all();
        if flushes.announce(self.committed()) {
            self.confirmed.notify_all();
            self.followed.notify_all();
        }
        if flushes.failure.is_none() {
            self.ended(flushes.number).notify_one();
        } else {
            self.ended(flushes.number).notify_all();
        }
    }

    fn ended(&self, flush: u64) -> &Condvar {
        &self.flush_ended[(flush % 2) as usize]
    }

    /// Marks the log as failed: nothing is written any more.
    fn fail(&self, flushes: &mut Flushes, failure: Error) {
        if flushes.failure.is_none() {
            // Of a disk that is full although the space was allocated, too: 53100 means that nothing has happened.
            let state = match failure.state() {
                SqlState::DISK_FULL => SqlState::IO_ERROR,
                state => state,
            };
            let message = format!("could not write the log: {}", failure.message());
            flushes.failure = Some(
                Error::new(state, message)
                    .with_detail(
                        "Commits that were acknowledged are safe. Later ones may be lost: they are not shown, and no \
                         more are accepted.",
                    )
                    .with_hint("Repair the disk, then restart the database."),
            );
        }
        let mut queue = self.queue.lock();
        self.failed.store(true, Ordering::Release);
        (queue.full, queue.full_bytes, queue.bytes) = (Vec::new(), 0, Vec::new());
        self.space.notify_all();
        self.wake_all();
    }

    /// Replaces the queue by an empty one. Only the leader calls it.
    fn take_queue(&self, writer: &mut Writer) -> QueuedGroup {
        let mut queue = self.queue.lock();
        let (newest, begin) = (queue.newest, queue.begin);
        if queue.entries == 0 {
            return QueuedGroup { chunks: Vec::new(), entries: 0, newest, begin, end: begin };
        }
        let entries = queue.leading + queue.entries;
        let padding = queue.len().next_multiple_of(GROUP_ALIGNMENT) - queue.len();
        let padded = queue.bytes.len() + padding;
        queue.bytes.resize(padded, 0);
        let end = Lsn(begin.0 + queue.len() as u64);
        let mut chunks = std::mem::take(&mut queue.full);
        chunks.push(std::mem::replace(&mut queue.bytes, std::mem::take(&mut writer.spare)));
        queue.reset(end);
        self.space.notify_all();
        QueuedGroup { chunks, entries, newest, begin, end }
    }

    /// Writes and syncs a group, or syncs what has been received.
    fn flush(&self, writer: &mut Writer, mut group: QueuedGroup) -> Result<()> {
        if let Some(copy) = &mut writer.copy {
            copy.sync()?;
            writer.last = copy.point();
            // Only who writes the log needs the times.
            self.note_durable(copy.take_ends().into_iter().map(|end| (end, Time(0))));
            return Ok(());
        }
        if group.entries == 0 {
            return Ok(());
        }
        self.write(writer, &mut group)?;
        self.note_durable(std::iter::once((writer.last, group.newest)));
        writer.spare = group.chunks.swap_remove(0);
        writer.spare.clear();
        writer.spare.shrink_to(self.options.chunk_bytes);
        Ok(())
    }

    /// Seals a group and writes it at its position, into as many segments as needed. Returns when it is on disk.
    fn write(&self, writer: &mut Writer, group: &mut QueuedGroup) -> Result<()> {
        let mut at = group.begin;
        let segment = self.segment_for(writer, at);
        let (header, is_in_one) = (segment.header, group.end <= segment.end);
        let seal = Seal {
            entries: group.entries,
            lsn: at,
            salt: header.salt,
            epoch: header.epoch,
            wall_time: writer.last.wall_time.max((self.options.wall_clock)()),
            previous: writer.last.checksum,
        };
        let checksum = seal_group(&mut group.chunks, &seal);
        let Seal { epoch, wall_time, .. } = seal;
        let last = LogPoint { lsn: group.end, checksum, epoch, wall_time };
        // A follower opens the segments of a group: there is not yet a second one.
        if is_in_one && self.sealed.is_wanted(group.end.0 - group.begin.0) {
            self.sealed.put(Group::of_sealed(&seal, last, &group.chunks));
            // Under the lock, so that no follower begins to sleep in between.
            drop(self.flushes.lock());
            self.followed_durable.notify_all();
        }
        let mut chunks = group.chunks.iter().map(Vec::as_slice);
        let mut rest: &[u8] = &[];
        while at < group.end {
            let segment = self.segment_for(writer, at);
            let (first, end) = (segment.header.first, segment.end);
            assert!(first <= at && at < end, "the writer's position is in its segment");
            // The part of the group that is in the segment.
            let mut parts = Vec::with_capacity(group.chunks.len());
            let (start, mut space) = (at, (end.min(group.end).0 - at.0) as usize);
            while space > 0 {
                if rest.is_empty() {
                    rest = chunks.next().expect("the chunks reach to the group's end");
                }
                let (now, later) = rest.split_at(rest.len().min(space));
                parts.push(IoSlice::new(now));
                (rest, space) = (later, space - now.len());
                at.0 += now.len() as u64;
            }
            // On disk when it returns: see `Segment::file`.
            segment.file.write_parts_at(&mut parts, DATA_START + (start.0 - first.0))?;
        }
        writer.last = last;
        Ok(())
    }

    /// The segment to write to at a position: the present one, or the next one if that is full or there is none yet.
    fn segment_for<'w>(&self, writer: &'w mut Writer, at: Lsn) -> &'w Segment {
        let current = writer.segment.take().filter(|segment| at < segment.end);
        writer.segment.insert(current.unwrap_or_else(|| self.next_segment()))
    }

    fn next_segment(&self) -> Segment {
        let segment = self.segments.lock().next();
        self.preparer.send(|request| request.wanted = true);
        segment
    }

    /// Notes whether the disk has lacked space for what is received: a checkpoint may free some.
    fn note_full<T>(&self, received: Result<T>) -> Result<T> {
        received.inspect_err(|error| {
            if error.state() == SqlState::DISK_FULL {
                self.lacked_space.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Accepts what fits into the space that has been allocated.
    fn note_space(&self, segments: &mut Segments) {
        self.queue.lock().allocated = segments.allocated();
        if segments.take_lack_of_space() {
            self.lacked_space.store(true, Ordering::Relaxed);
        }
    }

    pub fn flush_interval(&self) -> Duration {
        // Relaxed: a follower that has just begun gets its first groups a little later.
        match self.prompt_followers.load(Ordering::Relaxed) {
            0 => self.options.flush_interval,
            _ => self.options.flush_interval / TICKS_WHEN_FOLLOWED,
        }
    }

    fn run_flusher(&self) {
        // Commits that were appended before the last tick and are not durable yet are overdue.
        let mut seen = Lsn(0);
        let mut idle_ticks = 0;
        loop {
            let flush_now = {
                let mut request = self.flusher.request.lock();
                if idle_ticks >= IDLE_TICKS {
                    while !(request.stop || request.flush || request.wake) {
                        self.flusher.sent.wait(&mut request);
                    }
                    idle_ticks = 0;
                } else if !(request.stop || request.flush) {
                    self.flusher.sent.wait_for(&mut request, self.flush_interval());
                }
                if request.stop {
                    return;
                }
                request.wake = false;
                std::mem::take(&mut request.flush)
            };
            let appended = self.queue.lock().end();
            let overdue = if flush_now { appended } else { seen };
            // A failure is reported to the threads that wait for commits.
            let _ = self.wait_durable(overdue);
            idle_ticks = if appended == seen { idle_ticks + 1 } else { 0 };
            seen = appended;
            if idle_ticks >= IDLE_TICKS {
                let mut queue = self.queue.lock();
                if queue.entries == 0 || self.has_failed() {
                    queue.flusher_sleeps = true;
                } else {
                    idle_ticks = 0;
                }
            }
        }
    }

    fn run_preparer(&self) {
        loop {
            {
                let mut request = self.preparer.request.lock();
                while !(request.stop || request.wanted) {
                    self.preparer.sent.wait(&mut request);
                }
                if request.stop {
                    return;
                }
                request.wanted = false;
            }
            // If it fails, the committer that needs the space tries again, and reports the error.
            let mut segments = self.segments.lock();
            let _ = segments.prepare_ahead();
            self.note_space(&mut segments);
        }
    }
}

/// Whether following a log has failed because a point is not of its history.
fn is_elsewhere(error: &Error) -> bool {
    [SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::CANNOT_CONNECT_NOW].contains(&error.state())
}

/// Held while leading. Dropped only if the leader panics, so that no thread waits forever.
struct Lead<'s>(&'s Shared);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut flushes = self.0.flushes.lock();
        self.0.fail(&mut flushes, Error::new(SqlState::INTERNAL_ERROR, "the log's writer panicked"));
        self.0.end_flush(&mut flushes);
    }
}
