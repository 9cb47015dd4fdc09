//! Writing the log: commits queue up, and whoever first needs one to be safe writes them all.
//!
//! [`Log::append`] runs inside the commit critical section and only copies into a queue in memory.
//! [`Log::wait_durable`] makes its caller the *leader* if nobody is flushing: it takes the whole
//! queue as one group, writes it through to the disk in one call, and wakes those who came
//! meanwhile; one of them leads next. A lone committer so pays no hand-over to another thread
//! (waking a sleeping core costs 50 µs where this was measured, half a write to the disk).
//!
//! ```text
//!   committers ── append ──> queue ── leader swaps it for an empty one ──> group ──> segment file
//!                            (appending goes on while the leader writes)
//! ```
//!
//! Two threads stand beside: the *flusher* leads when commits lie in the queue for longer than a
//! tick and nobody waits for them (`synchronous_commit = off`), or when the queue grows large; the
//! *preparer* makes the next segment ready. Both sleep while nothing is appended.
//!
//! Invariant: groups are written one after the other, each synced before the next begins; so a
//! torn group is the last one, and `durable` never passes a byte that is not safe.
//!
//! After a failed write or sync nobody knows what is on disk, and asking the kernel to sync again
//! may report a success that never happened. So the log fails for good: whatever was not durable
//! by then gets that error, and so does everything later, until the database is opened again.

use crate::DatabaseId;
use crate::format::{DATA_START, GROUP_ALIGNMENT, GROUP_HEADER_LEN, encode_entry_header, seal_group};
use crate::segments::{Fill, Segment, Segments};
use crate::spill::{Kept, Spills};
use firn_base::disk::Disk;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, ShortMutex};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Lsn, Result, SqlState, Time};
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Largest length of segment files made from now on; a multiple of 8 above 4096. The first one
    /// is smaller and each following one twice as long, so that a small database stays small.
    pub segment_bytes: u64,
    /// Commits that nobody waits for are written after one to two of these.
    pub flush_interval: Duration,
    /// A queue of this length is written at once.
    pub flush_bytes: usize,
    /// A queue of this length makes committers wait for the disk.
    pub queue_bytes: usize,
    /// The queue grows by buffers of this length. What is written in time fits into one.
    pub chunk_bytes: usize,
    /// A running transaction's redo of this length goes to a file of its own.
    pub spill_bytes: usize,
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
        }
    }
}

/// After so many ticks without a commit the flusher sleeps until the next one wakes it.
const IDLE_TICKS: u32 = 20;

/// A log open for writing. Dropping it flushes what is queued, but only [`Log::close`] reports
/// whether that worked.
pub struct Log {
    shared: Arc<Shared>,
    spills: Arc<Spills>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    options: LogOptions,
    queue: ShortMutex<Queue>,
    /// Committers that wait for room in the queue.
    room: Condvar,
    /// All before it is safe. Stored by the leader after its sync (Release), read by those who wait
    /// for it (Acquire), though nothing but the number itself is handed over.
    durable: AtomicU64,
    /// All commits up to this time are before that.
    durable_time: AtomicU64,
    /// Whether the log has failed: appends go nowhere. Set under the queue's lock.
    failed: AtomicBool,
    turn: Mutex<Turn>,
    /// Flushes have ended: those with an even number, those with an odd one.
    turns_over: [Condvar; 2],
    /// Locked by the leader only.
    writer: Mutex<Writer>,
    /// Never locked by the leader but when it needs another segment.
    segments: Mutex<Segments>,
    flusher: Bell<FlusherCall>,
    preparer: Bell<PreparerCall>,
}

/// The group being collected: room for its header, then entries. In chunks, so that nobody who commits copies what others
/// have appended while the disk lags behind: to grow a buffer of 32 MiB would hold up everyone for tens of milliseconds.
struct Queue {
    /// Chunks that are full.
    full: Vec<Vec<u8>>,
    full_bytes: usize,
    /// The last chunk.
    bytes: Vec<u8>,
    entries: u32,
    /// The time of the last of them.
    newest: Time,
    /// LSN of the first byte.
    begin: Lsn,
    /// Whether the flusher sleeps without a tick and wants to be told of the next append.
    flusher_sleeps: bool,
    /// Whether the flusher was already told that the queue is long.
    flusher_called: bool,
}

impl Queue {
    fn len(&self) -> usize {
        self.full_bytes + self.bytes.len()
    }

    fn end(&self) -> Lsn {
        if self.entries == 0 { self.begin } else { Lsn(self.begin.0 + self.len() as u64) }
    }

    /// Makes room for an entry behind others; the first one may take more than a chunk.
    fn make_room(&mut self, length: usize, chunk_bytes: usize) {
        // And for what aligns the group's end.
        let length = length + GROUP_ALIGNMENT;
        if self.entries == 0 {
            self.bytes.reserve(length);
        } else if self.bytes.len() + length > self.bytes.capacity() {
            let next = Vec::with_capacity(chunk_bytes.max(length));
            self.full_bytes += self.bytes.len();
            self.full.push(std::mem::replace(&mut self.bytes, next));
        }
    }

    fn reset(&mut self, begin: Lsn) {
        debug_assert!(self.full.is_empty() && self.bytes.is_empty());
        self.full_bytes = 0;
        self.bytes.resize(GROUP_HEADER_LEN, 0);
        self.entries = 0;
        self.begin = begin;
        self.flusher_called = false;
    }
}

/// Who leads, and whose flush is whose. Flushes are numbered. Whoever comes while one is under way
/// waits for it if it covers their commit, else for the next one; at its end the first are all
/// woken, and of the others only one, to lead.
struct Turn {
    flushing: bool,
    /// The flush under way, or the next one, goes by this number.
    number: u64,
    /// What the flush under way makes durable.
    flushing_to: Lsn,
    failure: Option<Error>,
}

/// The queue as a leader took it: room for the header of a group, then its entries.
struct QueuedGroup {
    chunks: Vec<Vec<u8>>,
    entries: u32,
    newest: Time,
    begin: Lsn,
    end: Lsn,
}

struct Writer {
    segment: Segment,
    /// The next group's first chunk.
    spare: Vec<u8>,
}

/// How a thread sleeps until it is called.
#[derive(Default)]
struct Bell<C> {
    call: Mutex<C>,
    rung: Condvar,
}

#[derive(Default)]
struct FlusherCall {
    stop: bool,
    flush: bool,
    wake: bool,
}

#[derive(Default)]
struct PreparerCall {
    stop: bool,
    wanted: bool,
}

impl<C> Bell<C> {
    fn ring(&self, set: impl FnOnce(&mut C)) {
        set(&mut self.call.lock());
        self.rung.notify_all();
    }
}

impl Log {
    /// Opens the log in `directory` for writing from `at` on: where its [`crate::Reader`] ended, or
    /// position 0 of a new one. Whatever lies behind is given up.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        database: DatabaseId,
        at: Lsn,
        options: LogOptions,
    ) -> Result<Log> {
        let (segments, segment) =
            Segments::open(disk.clone(), directory, database, options.segment_bytes, at)?;
        let spills = Spills::open(disk, directory, database)?;
        let mut queue = Queue {
            full: Vec::new(),
            full_bytes: 0,
            bytes: Vec::with_capacity(options.chunk_bytes),
            entries: 0,
            newest: Time(0),
            begin: at,
            flusher_sleeps: false,
            flusher_called: false,
        };
        queue.reset(at);
        let shared = Arc::new(Shared {
            options,
            queue: ShortMutex::new(queue),
            room: Condvar::new(),
            durable: AtomicU64::new(at.0),
            durable_time: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            turn: Mutex::new(Turn { flushing: false, number: 0, flushing_to: at, failure: None }),
            turns_over: [Condvar::new(), Condvar::new()],
            writer: Mutex::new(Writer { segment, spare: Vec::with_capacity(options.chunk_bytes) }),
            segments: Mutex::new(segments),
            flusher: Bell::default(),
            preparer: Bell {
                call: Mutex::new(PreparerCall { stop: false, wanted: true }),
                rung: Condvar::new(),
            },
        });
        let threads = vec![
            thread::spawn("firn-log-flush", {
                let shared = shared.clone();
                move || shared.run_flusher()
            }),
            thread::spawn("firn-log-prepare", {
                let shared = shared.clone();
                move || shared.run_preparer()
            }),
        ];
        Ok(Log { shared, spills, threads: Mutex::new(threads) })
    }

    /// Queues the redo records of a commit and says which position must become durable for it.
    ///
    /// Called inside the commit critical section, so that log order is commit order. Waits only if
    /// the disk lags far behind. If the log has failed the records go nowhere, and waiting for the
    /// position reports why; ask [`Log::check`] before a commit begins.
    pub fn append(&self, commit_time: Time, records: &[u8]) -> Lsn {
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        while queue.len() >= shared.options.queue_bytes && !shared.has_failed() {
            shared.room.wait(&mut queue);
        }
        if shared.has_failed() {
            return Lsn(u64::MAX);
        }
        let header = encode_entry_header(commit_time, records.len());
        queue.make_room(header.len() + records.len(), shared.options.chunk_bytes);
        queue.bytes.extend_from_slice(&header);
        queue.bytes.extend_from_slice(records);
        queue.entries += 1;
        queue.newest = commit_time;
        let lsn = queue.end();
        let long = queue.len() >= shared.options.flush_bytes && !queue.flusher_called;
        if long || queue.flusher_sleeps {
            queue.flusher_called |= long;
            queue.flusher_sleeps = false;
            drop(queue);
            shared.flusher.ring(|call| {
                call.wake = true;
                call.flush |= long;
            });
        }
        lsn
    }

    /// Returns once everything before `lsn` is safe on disk, writing it if nobody else is.
    ///
    /// Error: what made the log fail; then nobody knows whether the commit is on disk.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait_durable(lsn)
    }

    /// All commits up to this time are safe on disk; 0 if none has been appended since the log was opened.
    pub fn durable_time(&self) -> Time {
        // Acquire: as `durable_lsn`, which is never behind it for whoever looks at this first.
        Time(self.shared.durable_time.load(Ordering::Acquire))
    }

    /// Everything before this position is safe on disk.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// The position behind everything appended so far.
    pub fn appended_lsn(&self) -> Lsn {
        self.shared.queue.lock().end()
    }

    /// A position where a group begins, such that everything appended from now on lies behind it:
    /// where a [`crate::Reader`] may start that must see all of that. Commits appended shortly
    /// before may lie behind it as well.
    pub fn reader_start(&self) -> Lsn {
        self.shared.queue.lock().begin
    }

    /// The position of the oldest byte that is still kept.
    pub fn begin(&self) -> Lsn {
        self.shared.segments.lock().begin()
    }

    /// Has what is queued written soon, without waiting for it.
    pub fn request_flush(&self) {
        self.shared.flusher.ring(|call| call.flush = true);
    }

    /// Why the log has failed, if it has.
    pub fn check(&self) -> Result<()> {
        if self.shared.has_failed() {
            return Err(self.shared.turn.lock().failure.clone().expect("set before the queue is closed"));
        }
        Ok(())
    }

    /// Gives up the log before `lsn`, by whole segments, because a checkpoint holds what they say.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        assert!(lsn <= self.durable_lsn(), "only what is durable can be superfluous");
        self.shared.segments.lock().truncate_before(lsn)?;
        self.spills.truncate_before(lsn)
    }

    /// Where long transactions put their redo.
    pub fn spills(&self) -> &Arc<Spills> {
        &self.spills
    }

    /// After recovery: of the spill files keeps those that the log names and removes the others.
    pub fn retain_spills(&self, named: Vec<Kept>) -> Result<()> {
        self.spills.retain(named)
    }

    /// Bytes of redo up to a position, with those spilled since the log was opened: what tells how the log has
    /// grown.
    pub fn bytes_at(&self, lsn: Lsn) -> u64 {
        lsn.0 + self.spills.kept_bytes()
    }

    /// Writes what is queued and stops the log's threads.
    pub fn close(self) -> Result<()> {
        self.stop()
    }

    fn stop(&self) -> Result<()> {
        let flushed = self.shared.wait_durable(self.appended_lsn());
        self.shared.flusher.ring(|call| call.stop = true);
        self.shared.preparer.ring(|call| call.stop = true);
        for thread in self.threads.lock().drain(..) {
            // A panic of theirs was reported where it happened.
            let _ = thread.join();
        }
        flushed
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            // Whoever wants to know calls `close`.
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

    fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable.load(Ordering::Acquire) >= lsn.0
    }

    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        if self.is_durable(lsn) {
            return Ok(());
        }
        let mut turn = self.turn.lock();
        loop {
            if self.is_durable(lsn) {
                return Ok(());
            }
            if let Some(failure) = &turn.failure {
                return Err(failure.clone());
            }
            if turn.flushing {
                let flush = if lsn <= turn.flushing_to { turn.number } else { turn.number + 1 };
                self.turn_over(flush).wait(&mut turn);
                continue;
            }
            // Under the turn's lock, so that whoever comes next knows which flush is theirs.
            let mut writer = self.writer.lock();
            let group = self.take_queue(&mut writer);
            turn.flushing = true;
            turn.flushing_to = group.end;
            assert!(lsn <= turn.flushing_to, "nobody has appended up to {lsn:?}");
            drop(turn);
            let lead = Lead(self);
            let flushed = self.flush(&mut writer, group);
            std::mem::forget(lead);
            drop(writer);
            turn = self.turn.lock();
            if let Err(failure) = flushed {
                self.fail(&mut turn, failure);
            }
            self.end_turn(&mut turn);
        }
    }

    /// Wakes those whose flush has ended, and one of the others to lead the next.
    fn end_turn(&self, turn: &mut Turn) {
        turn.flushing = false;
        self.turn_over(turn.number).notify_all();
        turn.number += 1;
        if turn.failure.is_none() {
            self.turn_over(turn.number).notify_one();
        } else {
            self.turn_over(turn.number).notify_all();
        }
    }

    fn turn_over(&self, flush: u64) -> &Condvar {
        &self.turns_over[(flush % 2) as usize]
    }

    /// Ends the log's life: nothing is written any more.
    fn fail(&self, turn: &mut Turn, failure: Error) {
        if turn.failure.is_none() {
            let hint = match failure.hint() {
                Some(hint) => format!("{hint} Then restart the database."),
                None => "Repair the disk, then restart the database.".to_owned(),
            };
            let message = format!("could not write the log: {}", failure.message());
            turn.failure = Some(
                Error::new(failure.state(), message)
                    .with_detail(
                        "Commits that were acknowledged are safe; those since the failure may be lost, and no more \
                         are accepted.",
                    )
                    .with_hint(hint),
            );
        }
        let mut queue = self.queue.lock();
        self.failed.store(true, Ordering::Release);
        (queue.full, queue.full_bytes, queue.bytes) = (Vec::new(), 0, Vec::new());
        self.room.notify_all();
    }

    /// Swaps the queue for an empty one. Only the leader calls it.
    fn take_queue(&self, writer: &mut Writer) -> QueuedGroup {
        let mut queue = self.queue.lock();
        let (entries, newest, begin) = (queue.entries, queue.newest, queue.begin);
        if entries == 0 {
            return QueuedGroup { chunks: Vec::new(), entries, newest, begin, end: begin };
        }
        let padding = queue.len().next_multiple_of(GROUP_ALIGNMENT) - queue.len();
        let padded = queue.bytes.len() + padding;
        queue.bytes.resize(padded, 0);
        let end = Lsn(begin.0 + queue.len() as u64);
        let mut chunks = std::mem::take(&mut queue.full);
        chunks.push(std::mem::replace(&mut queue.bytes, std::mem::take(&mut writer.spare)));
        queue.reset(end);
        self.room.notify_all();
        QueuedGroup { chunks, entries, newest, begin, end }
    }

    /// Writes and syncs a group.
    fn flush(&self, writer: &mut Writer, mut group: QueuedGroup) -> Result<()> {
        if group.entries == 0 {
            return Ok(());
        }
        self.write(writer, &mut group)?;
        self.durable_time.store(group.newest.0, Ordering::Release);
        self.durable.store(group.end.0, Ordering::Release);
        writer.spare = group.chunks.swap_remove(0);
        writer.spare.clear();
        writer.spare.shrink_to(self.options.chunk_bytes);
        Ok(())
    }

    /// Writes a group where it belongs, through as many segments as it takes, until it is safe.
    fn write(&self, writer: &mut Writer, group: &mut QueuedGroup) -> Result<()> {
        let mut at = group.begin;
        if at == writer.segment.header.end() {
            writer.segment = self.next_segment(group.end.0 - at.0)?;
        }
        seal_group(&mut group.chunks, group.entries, at, writer.segment.header.salt);
        let mut chunks = group.chunks.iter().map(Vec::as_slice);
        let mut rest: &[u8] = &[];
        while at < group.end {
            if at == writer.segment.header.end() {
                writer.segment = self.next_segment(group.end.0 - at.0)?;
            }
            let header = &writer.segment.header;
            assert!(header.first <= at && at < header.end(), "the writer stands in its segment");
            // What belongs into the segment.
            let mut parts = Vec::with_capacity(group.chunks.len());
            let (start, mut room) = (at, (header.end().min(group.end).0 - at.0) as usize);
            while room > 0 {
                if rest.is_empty() {
                    rest = chunks.next().expect("the chunks reach to the group's end");
                }
                let (now, later) = rest.split_at(rest.len().min(room));
                parts.push(IoSlice::new(now));
                (rest, room) = (later, room - now.len());
                at.0 += now.len() as u64;
            }
            // Safe when it returns: see `Segment::file`.
            writer.segment.file.write_parts_at(&mut parts, DATA_START + (start.0 - header.first.0))?;
        }
        Ok(())
    }

    fn next_segment(&self, about_to_write: u64) -> Result<Segment> {
        let fill = if about_to_write >= self.options.segment_bytes { Fill::Nothing } else { Fill::Zeros };
        let segment = self.segments.lock().next(fill)?;
        if fill == Fill::Zeros {
            self.preparer.ring(|call| call.wanted = true);
        }
        Ok(segment)
    }

    fn run_flusher(&self) {
        // What was appended before the last tick and still is not durable is overdue.
        let mut seen = Lsn(0);
        let mut idle_ticks = 0;
        loop {
            let flush_now = {
                let mut call = self.flusher.call.lock();
                if idle_ticks >= IDLE_TICKS {
                    while !(call.stop || call.flush || call.wake) {
                        self.flusher.rung.wait(&mut call);
                    }
                    idle_ticks = 0;
                } else if !(call.stop || call.flush) {
                    self.flusher.rung.wait_for(&mut call, self.options.flush_interval);
                }
                if call.stop {
                    return;
                }
                call.wake = false;
                std::mem::take(&mut call.flush)
            };
            let appended = self.queue.lock().end();
            let overdue = if flush_now { appended } else { seen };
            // A failure is reported to whoever waits for a commit.
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
                let mut call = self.preparer.call.lock();
                while !(call.stop || call.wanted) {
                    self.preparer.rung.wait(&mut call);
                }
                if call.stop {
                    return;
                }
                call.wanted = false;
            }
            // If it fails the leader tries again when it needs the segment, and reports that.
            let _ = self.segments.lock().prepare_ahead();
        }
    }
}

/// Held while leading; dropped only if leading panics, to let nobody wait forever.
struct Lead<'s>(&'s Shared);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut turn = self.0.turn.lock();
        self.0.fail(&mut turn, Error::new(SqlState::INTERNAL_ERROR, "the log's writer panicked"));
        self.0.end_turn(&mut turn);
    }
}
