//! A file read by several threads at once.
//!
//! A file that can be read anywhere is read in pieces, each by whoever is free. Pieces are put together in their order, which
//! takes next to no time, and the records of the chunk that this completes are read, beside the others again. Of another
//! file one thread at a time reads and cuts off the next chunk, whose records it then reads beside the others. The caller
//! gets the rows in the order of the file; workers that are a window of chunks ahead of it wait, so that a slow caller costs
//! no memory. Who waits for a file that keeps silent, and who waits for him, hear of each other ([`Waits`]).

use crate::chunk::Chunk;
use crate::feed::{Fetched, InTurn, Joints, Pieces, Taken, Way};
use crate::records::Scratch;
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use firn_base::{Error, Result, thread};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// So many chunks for each thread may be ahead of the caller.
const WINDOW: u64 = 3;

/// How often a caller that waits looks up.
const LOOKS_UP_AFTER: Duration = Duration::from_millis(50);

/// What happens while a file keeps silent, as a pipe may.
pub struct Waits {
    /// What the caller does now and then, on its own thread.
    pub look: Box<dyn Fn() + Send + Sync>,
    /// Raised when nobody wants more: who waits for bytes need not go on.
    pub over: Arc<AtomicBool>,
}

/// A file, as errors tell of it.
#[derive(Clone, Copy)]
pub(crate) struct Named<'f> {
    /// What they call it.
    pub place: &'f str,
    /// What a failure to read it is to the user.
    pub failed: &'f (dyn Fn(&io::Error) -> Error + Sync),
}

/// What a worker makes of a chunk.
pub(crate) type Work<'w, T> = &'w (dyn Fn(Chunk, &mut Scratch) -> Result<T> + Sync);

/// A file of which one thread at a time takes the next chunk.
struct Turns<'f> {
    file: InTurn<'f>,
    /// Whether there is no more to take: after an error nobody asks the file again.
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

/// What was fetched, to be put together in its order.
struct Order {
    joints: Joints,
    /// By number; something before it is still being fetched.
    waiting: BTreeMap<u64, Result<Fetched>>,
    /// The number of what comes next.
    next: u64,
    /// Whether that was an error: behind it nothing counts.
    broken: bool,
}

impl Order {
    /// Takes what was fetched; how many were put in their places by that, and the chunks that came of it.
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

/// What workers have done and the caller has not taken.
struct Done<'f, T> {
    /// By number of the chunk. An error to get a chunk has the number that this would have had.
    read: BTreeMap<u64, Result<T>>,
    /// Chunks that the caller has taken.
    consumed: u64,
    workers: usize,
    /// Whether nobody wants more.
    stopped: bool,
    /// What is left to be fetched, of a file that is read in pieces.
    pieces: Option<Pieces<'f>>,
    /// How many pieces were taken, and how many put in their places.
    taken: u64,
    put: u64,
    /// Whole chunks that nobody has begun to read, and how many have been begun.
    ready: VecDeque<Result<Chunk>>,
    begun: u64,
}

impl<T> Done<'_, T> {
    /// Pieces and chunks that are on their way to the caller.
    fn ahead(&self) -> u64 {
        self.taken - self.put + self.ready.len() as u64 + self.begun - self.consumed
    }
}

/// What a worker does next of a file that is read in pieces.
enum Job<'f> {
    Fetch(u64, Taken<'f>),
    Read(u64, Result<Chunk>),
}

/// Reads all chunks on so many threads, and gives what `work` makes of them to `sink` on this one, until that breaks off. The first
/// mistake in the file ends it, after all chunks before it, as does an error of `sink`; who then waits for bytes is told by `waits`.
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
        // However this ends, nobody goes on.
        let _stop = Stop(&crew);
        for number in 0..threads {
            match thread::start_scoped(scope, "firn-load", || crew.work()) {
                Ok(_) => {}
                Err(error) if number == 0 => return Err(error),
                Err(_) => {
                    // The others do it alone.
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
    /// A chunk has been read, or a worker has gone home.
    came: Condvar,
    /// There may be something to do for a worker: a chunk has been taken, or there are whole ones that nobody reads.
    left: Condvar,
    window: u64,
    waits: Option<&'f Waits>,
}

impl<'f, T: Send> Crew<'f, T> {
    /// What a worker does until the file ends or nobody wants more.
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

    /// The next chunk of a file that is read in its order, once it is wanted.
    fn next_in_turn(&self, turns: &Mutex<Turns<'f>>) -> Option<(u64, Result<Chunk>)> {
        let mut turns = turns.lock();
        let number = turns.taken;
        if !self.waits_for_room(number) {
            return None;
        }
        Some((number, turns.next(self.named).transpose()?))
    }

    /// Waits until a chunk of that number may be read; whether it is wanted.
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
            // Before others put theirs: chunks are numbered as they become ready.
            let mut done = self.done.lock();
            if order.broken {
                done.pieces = None;
            }
            drop(order);
            let came = chunks.len() as u64;
            done.put += put;
            done.ready.extend(chunks);
            if done.pieces.as_ref().is_none_or(Pieces::is_empty) && done.taken == done.put {
                // Who waits for nothing goes home.
                self.left.notify_all();
            }
            // Others read the chunks but one, or fetch more where pieces have become none.
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
                // All has been taken and put.
                return None;
            }
            self.left.wait(&mut done);
        }
    }

    /// What has been made of the next chunk, in the order of the file.
    fn next(&self) -> Option<Result<T>> {
        let mut done = self.done.lock();
        loop {
            let next = done.consumed;
            if let Some(read) = done.read.remove(&next) {
                done.consumed += 1;
                // There is room for one.
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

    /// Waits for a while, and does then what is to be done meanwhile.
    fn look<'d>(
        &'d self,
        waits: &Waits,
        mut done: MutexGuard<'d, Done<'f, T>>,
    ) -> MutexGuard<'d, Done<'f, T>> {
        let _timed_out = self.came.wait_for(&mut done, LOOKS_UP_AFTER);
        // It may take as long as it likes.
        drop(done);
        (waits.look)();
        self.done.lock()
    }
}

/// Tells the workers, when it is dropped, that nobody wants more.
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

/// Tells the caller, when it is dropped, that a worker has gone home. After a panic all go, for its chunk will not come,
/// and the panic goes on in the caller.
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
