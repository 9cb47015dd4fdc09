//! Reads a file with several threads at once.
//!
//! A file that can be read at any offset is read in pieces, each by a free worker. Pieces are joined in their order, which
//! takes little time, and the records of the completed chunk are read in parallel again. Of another
//! file one worker at a time reads and cuts off the next chunk, whose records it then reads in parallel with the others. The
//! caller gets the rows in the order of the file. Workers that are a window of chunks ahead of it wait, so that a slow caller
//! costs no memory. [`Waits`] connects a worker that waits for a silent file with its caller.

use crate::chunk::Chunk;
use crate::feed::{Fetched, InTurn, Joints, Pieces, Taken, Way};
use crate::records::Scratch;
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use firn_base::{Error, Result, thread};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// How many chunks for each thread may be ahead of the caller.
const WINDOW: u64 = 3;

/// How often a waiting caller calls [`Waits::look`].
const LOOKS_UP_AFTER: Duration = Duration::from_millis(50);

/// What happens while a file is silent, as a pipe may be.
pub struct Waits {
    /// Is called periodically on the caller's thread.
    pub look: Box<dyn Fn() + Send + Sync>,
    /// Raised when no more rows are needed: a worker that waits for bytes may stop.
    pub over: Arc<AtomicBool>,
}

/// The description of a file for errors.
#[derive(Clone, Copy)]
pub(crate) struct Named<'f> {
    /// Its name.
    pub place: &'f str,
    /// Makes the error of a failed read.
    pub failed: &'f (dyn Fn(&io::Error) -> Error + Sync),
}

/// The work on a chunk.
pub(crate) type Work<'w, T> = &'w (dyn Fn(Chunk, &mut Scratch) -> Result<T> + Sync);

/// A file of which one thread at a time takes the next chunk.
struct Turns<'f> {
    file: InTurn<'f>,
    /// Whether there is no more to take: after an error the file is not read again.
    broken: bool,
    /// Chunks taken.
    taken: u64,
}

impl Turns<'_> {
    fn next(&mut self, named: Named<'_>) -> Result<Option<Chunk>> {
        if self.broken {
            return Ok(None);
        }
        let next = self.file.next(named.place, named.failed);
        self.broken = next.is_err();
        self.taken += u64::from(matches!(next, Ok(Some(_))));
        next
    }
}

/// Parts that were fetched and are joined in their order.
struct Order {
    joints: Joints,
    /// By number; an earlier part is still being fetched.
    waiting: BTreeMap<u64, Result<Fetched>>,
    /// The number of the next part.
    next: u64,
    /// Whether a part was an error: parts after it are ignored.
    broken: bool,
}

impl Order {
    /// Takes a part that was fetched. Returns how many parts were joined then, and the chunks that they complete.
    fn put(&mut self, number: u64, fetched: Result<Fetched>, named: Named<'_>) -> (u64, Vec<Result<Chunk>>) {
        self.waiting.insert(number, fetched);
        let (before, mut chunks) = (self.next, Vec::new());
        while let Some(next) = self.waiting.remove(&self.next) {
            self.next += 1;
            if self.broken {
                continue;
            }
            let put =
                next.and_then(|next| self.joints.put(next, named.place, &mut |chunk| chunks.push(Ok(chunk))));
            if let Err(error) = put {
                self.broken = true;
                chunks.push(Err(error));
            }
        }
        (self.next - before, chunks)
    }
}

enum Supply<'f> {
    InTurn(Mutex<Turns<'f>>),
    AtOnce(Mutex<Order>),
}

/// The results of workers that the caller has not taken.
struct Done<'f, T> {
    /// By number of the chunk. An error while getting a chunk has the number of that chunk.
    read: BTreeMap<u64, Result<T>>,
    /// Chunks that the caller has taken.
    consumed: u64,
    workers: usize,
    /// Whether no more rows are needed.
    stopped: bool,
    /// The parts that are left to be fetched, of a file that is read in pieces.
    pieces: Option<Pieces<'f>>,
    /// How many pieces were taken, and how many were joined.
    taken: u64,
    put: u64,
    /// Whole chunks that no worker has begun to read, and how many have been begun.
    ready: VecDeque<Result<Chunk>>,
    begun: u64,
}

impl<T> Done<'_, T> {
    /// Pieces and chunks that the caller has not taken yet.
    fn ahead(&self) -> u64 {
        self.taken - self.put + self.ready.len() as u64 + self.begun - self.consumed
    }
}

/// The next job of a worker for a file that is read in pieces.
enum Job<'f> {
    Fetch(u64, Taken<'f>),
    Read(u64, Result<Chunk>),
}

/// Reads all chunks on this number of threads, and passes the results of `work` to `sink` on this thread, until `sink` breaks off. The
/// first error in the file ends it, after all chunks before it, as does an error of `sink`; `waits` then stops a worker that waits
/// for bytes.
pub(crate) fn read<'f, T: Send>(
    way: Way<'f>,
    named: Named<'f>,
    work: Work<'f, T>,
    threads: usize,
    waits: Option<&'f Waits>,
    sink: &mut dyn FnMut(T) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let (supply, pieces) = match way {
        Way::InTurn(file) => (Supply::InTurn(Mutex::new(Turns { file, broken: false, taken: 0 })), None),
        Way::AtOnce(pieces, joints) => {
            let order = Order { joints, waiting: BTreeMap::new(), next: 0, broken: false };
            (Supply::AtOnce(Mutex::new(order)), Some(pieces))
        }
    };
    let done = Done {
        read: BTreeMap::new(),
        consumed: 0,
        workers: threads,
        stopped: false,
        pieces,
        taken: 0,
        put: 0,
        ready: VecDeque::new(),
        begun: 0,
    };
    let crew = Crew {
        work,
        named,
        supply,
        done: Mutex::new(done),
        came: Condvar::new(),
        left: Condvar::new(),
        window: WINDOW * threads as u64,
        waits,
    };
    thread::scope(|scope| {
        // However this ends, all workers stop.
        let _stop = Stop(&crew);
        for number in 0..threads {
            match thread::start_scoped(scope, "firn-load", || crew.work()) {
                Ok(_) => {}
                Err(error) if number == 0 => return Err(error),
                Err(_) => {
                    // The threads that were started do the work.
                    crew.done.lock().workers -= threads - number;
                    break;
                }
            }
        }
        while let Some(read) = crew.next() {
            if sink(read?)?.is_break() {
                break;
            }
        }
        Ok(())
    })
}

struct Crew<'f, T> {
    work: Work<'f, T>,
    named: Named<'f>,
    supply: Supply<'f>,
    done: Mutex<Done<'f, T>>,
    /// A chunk has been read, or a worker has ended.
    came: Condvar,
    /// There may be work: a chunk has been taken, or there are whole ones that no worker reads.
    left: Condvar,
    window: u64,
    waits: Option<&'f Waits>,
}

impl<'f, T: Send> Crew<'f, T> {
    /// The loop of a worker, until the file ends or no more rows are needed.
    fn work(&self) {
        let _leave = Leave(self);
        let mut scratch = Scratch::default();
        loop {
            let next = match &self.supply {
                Supply::InTurn(turns) => self.next_in_turn(turns),
                Supply::AtOnce(order) => self.next_at_once(order),
            };
            let Some((number, chunk)) = next else { return };
            let read = chunk.and_then(|chunk| (self.work)(chunk, &mut scratch));
            let failed = read.is_err();
            self.done.lock().read.insert(number, read);
            self.came.notify_all();
            if failed {
                return;
            }
        }
    }

    /// The next chunk of a file that is read in its order, once there is room for it.
    fn next_in_turn(&self, turns: &Mutex<Turns<'f>>) -> Option<(u64, Result<Chunk>)> {
        let mut turns = turns.lock();
        let number = turns.taken;
        if !self.waits_for_room(number) {
            return None;
        }
        Some((number, turns.next(self.named).transpose()?))
    }

    /// Waits until the chunk with this number may be read. Returns false if it is not needed.
    fn waits_for_room(&self, number: u64) -> bool {
        let mut done = self.done.lock();
        while !done.stopped && number >= done.consumed + self.window {
            self.left.wait(&mut done);
        }
        !done.stopped
    }

    /// The next whole chunk of a file that is read in pieces. Fetches pieces as long as there is none.
    fn next_at_once(&self, order: &Mutex<Order>) -> Option<(u64, Result<Chunk>)> {
        loop {
            let (number, taken) = match self.next_job()? {
                Job::Read(number, chunk) => return Some((number, chunk)),
                Job::Fetch(number, taken) => (number, taken),
            };
            let fetched = taken.fetch(self.named.failed);
            let mut order = order.lock();
            let (put, chunks) = order.put(number, fetched, self.named);
            // Before other workers add theirs: chunks are numbered as they become ready.
            let mut done = self.done.lock();
            if order.broken {
                done.pieces = None;
            }
            drop(order);
            let came = chunks.len() as u64;
            done.put += put;
            done.ready.extend(chunks);
            if done.pieces.as_ref().is_none_or(Pieces::is_empty) && done.taken == done.put {
                // Workers that have nothing to wait for end.
                self.left.notify_all();
            }
            // Other workers read the chunks but one, or fetch more where pieces have completed no chunk.
            for _ in 0..came.saturating_sub(1) + put.saturating_sub(came) {
                self.left.notify_one();
            }
        }
    }

    fn next_job(&self) -> Option<Job<'f>> {
        let mut done = self.done.lock();
        loop {
            if done.stopped {
                return None;
            }
            if let Some(chunk) = done.ready.pop_front() {
                done.begun += 1;
                return Some(Job::Read(done.begun - 1, chunk));
            }
            if done.ahead() < self.window
                && let Some(taken) = done.pieces.as_mut().and_then(Pieces::take)
            {
                done.taken += 1;
                return Some(Job::Fetch(done.taken - 1, taken));
            }
            if done.taken == done.put && done.ahead() < self.window {
                // All parts have been taken and joined.
                return None;
            }
            self.left.wait(&mut done);
        }
    }

    /// The result for the next chunk, in the order of the file.
    fn next(&self) -> Option<Result<T>> {
        let mut done = self.done.lock();
        loop {
            let next = done.consumed;
            if let Some(read) = done.read.remove(&next) {
                done.consumed += 1;
                // There is room for one more chunk.
                self.left.notify_one();
                return Some(read);
            }
            if done.workers == 0 || done.stopped {
                return None;
            }
            match self.waits {
                None => self.came.wait(&mut done),
                Some(waits) => done = self.look(waits, done),
            }
        }
    }

    /// Waits for a short time, and then calls [`Waits::look`].
    fn look<'d>(
        &'d self,
        waits: &Waits,
        mut done: MutexGuard<'d, Done<'f, T>>,
    ) -> MutexGuard<'d, Done<'f, T>> {
        let _timed_out = self.came.wait_for(&mut done, LOOKS_UP_AFTER);
        // The call may take any time.
        drop(done);
        (waits.look)();
        self.done.lock()
    }
}

/// Stops the workers when it is dropped.
struct Stop<'c, 'f, T>(&'c Crew<'f, T>);

impl<T> Drop for Stop<'_, '_, T> {
    fn drop(&mut self) {
        self.0.done.lock().stopped = true;
        if let Some(waits) = self.0.waits {
            waits.over.store(true, Ordering::Relaxed);
        }
        self.0.left.notify_all();
    }
}

/// Notifies the caller, when it is dropped, that a worker has ended. After a panic all end, for its chunk is lost,
/// and the panic continues in the caller.
struct Leave<'c, 'f, T>(&'c Crew<'f, T>);

impl<T> Drop for Leave<'_, '_, T> {
    fn drop(&mut self) {
        let mut done = self.0.done.lock();
        done.workers -= 1;
        done.stopped |= std::thread::panicking();
        drop(done);
        self.0.left.notify_all();
        self.0.came.notify_all();
    }
}
