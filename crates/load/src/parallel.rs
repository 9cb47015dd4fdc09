//! A file read by several threads at once.
//!
//! Whoever is free reads what comes next: of a file that can be read anywhere a piece, beside the others; of others one thread at a
//! time. Pieces are put together in their order, which takes next to no time, and of the chunk that this makes whole the
//! records are read, beside the others again. The caller gets the rows in the order of the file; workers that are a window of chunks ahead of it wait, so
//! that a slow caller costs no memory. Who waits for a file that keeps silent, and who waits for him, hear of each other ([`Waits`]).

use crate::chunk::Chunk;
use crate::feed::{Chunks, Fetched, Taken};
use crate::records::Scratch;
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering};
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

/// Of which one thread at a time takes what is to be read next, and puts what it has read.
struct Feed<'f> {
    chunks: Chunks<'f>,
    /// Whether there is no more to take: after an error nobody asks for more.
    broken: bool,
    /// Whether an error has been put.
    failed: bool,
    /// How many were taken.
    taken: u64,
    /// What has been read and cannot be put yet, since something before it is being read.
    waiting: BTreeMap<u64, Result<Fetched>>,
    /// How many were put.
    put: u64,
    /// Whole chunks that nobody has begun to read, the first with the number of them that are before it.
    ready: VecDeque<Result<Chunk>>,
    begun: u64,
}

impl<'f> Feed<'f> {
    fn take(&mut self) -> Option<(u64, Result<Taken<'f>>)> {
        if self.broken {
            return None;
        }
        let next = self.chunks.take().transpose()?;
        self.broken = next.is_err();
        self.taken += 1;
        Some((self.taken - 1, next))
    }

    /// Takes back what was read; how many were put, and how many chunks have come by that.
    fn put(&mut self, number: u64, fetched: Result<Fetched>) -> (u64, u64) {
        self.waiting.insert(number, fetched);
        let before = (self.put, self.ready.len());
        while let Some(next) = self.waiting.remove(&self.put) {
            self.put += 1;
            // Behind an error nothing counts.
            if self.failed {
                continue;
            }
            let (chunks, ready) = (&mut self.chunks, &mut self.ready);
            let put = next.and_then(|next| chunks.put(next, &mut |chunk| ready.push_back(Ok(chunk))));
            if let Err(error) = put {
                (self.broken, self.failed) = (true, true);
                self.ready.push_back(Err(error));
            }
        }
        (self.put - before.0, (self.ready.len() - before.1) as u64)
    }

    /// The next chunk that nobody has begun to read, and its number.
    fn begin(&mut self) -> Option<(u64, Result<Chunk>)> {
        let next = self.ready.pop_front()?;
        self.begun += 1;
        Some((self.begun - 1, next))
    }
}

/// What a worker makes of a chunk.
pub(crate) type Work<'w, T> = &'w (dyn Fn(Chunk, &mut Scratch) -> Result<T> + Sync);

/// What workers have done and the caller has not taken.
struct Done<T> {
    /// By number of the chunk. An error to get a chunk has the number that this would have had.
    read: BTreeMap<u64, Result<T>>,
    /// Chunks that the caller has taken.
    consumed: u64,
    /// How much is between taken from the feed and consumed.
    ahead: u64,
    workers: usize,
    /// Whether nobody wants more.
    stopped: bool,
}

/// Reads all chunks on so many threads, and gives what `work` makes of them to `sink` on this one, until that breaks off. The first
/// mistake in the file ends it, after all chunks before it, as does an error of `sink`; who then waits for bytes is told by `waits`.
pub(crate) fn read<'f, T: Send>(
    chunks: Chunks<'f>,
    work: Work<'f, T>,
    threads: usize,
    waits: Option<&'f Waits>,
    sink: &mut dyn FnMut(T) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let failed = chunks.failed();
    let feed = Feed {
        chunks,
        broken: false,
        failed: false,
        taken: 0,
        waiting: BTreeMap::new(),
        put: 0,
        ready: VecDeque::new(),
        begun: 0,
    };
    let done = Done { read: BTreeMap::new(), consumed: 0, ahead: 0, workers: threads, stopped: false };
    let crew = Crew {
        work,
        failed,
        feed: Mutex::new(feed),
        done: Mutex::new(done),
        came: Condvar::new(),
        left: Condvar::new(),
        window: WINDOW * threads as u64,
        waits,
    };
    thread::scope(|scope| {
        // However this ends, nobody goes on.
        let _stop = Stop(&crew);
        for _ in 0..threads {
            thread::spawn_scoped(scope, "firn-load", || crew.work());
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
    failed: &'f (dyn Fn(&io::Error) -> Error + Sync),
    feed: Mutex<Feed<'f>>,
    done: Mutex<Done<T>>,
    /// A chunk has been read, or a worker has gone home.
    came: Condvar,
    /// A chunk has been taken.
    left: Condvar,
    window: u64,
    waits: Option<&'f Waits>,
}

impl<T: Send> Crew<'_, T> {
    /// What a worker does until the file ends or nobody wants more.
    fn work(&self) {
        let _leave = Leave(self);
        let mut scratch = Scratch::default();
        loop {
            let begun = self.feed.lock().begin();
            let Some((number, chunk)) = begun else {
                match self.fetch_next() {
                    true => continue,
                    false => return,
                }
            };
            let read = chunk.and_then(|chunk| (self.work)(chunk, &mut scratch));
            let failed = read.is_err();
            let mut done = self.done.lock();
            done.read.insert(number, read);
            drop(done);
            self.came.notify_all();
            if failed {
                return;
            }
        }
    }

    /// Reads what comes next in the file, once there is room; whether there was something, and it is wanted.
    fn fetch_next(&self) -> bool {
        if !self.waits_for_room() {
            return false;
        }
        let Some((number, taken)) = self.feed.lock().take() else { return false };
        let fetched = taken.and_then(|taken| taken.fetch(self.failed));
        let (put, came) = self.feed.lock().put(number, fetched);
        if put != came {
            let mut done = self.done.lock();
            done.ahead = (done.ahead + came).saturating_sub(put);
            drop(done);
            self.left.notify_all();
        }
        true
    }

    /// Waits until more may be read; whether it is wanted.
    fn waits_for_room(&self) -> bool {
        let mut done = self.done.lock();
        while !done.stopped && done.ahead >= self.window {
            self.left.wait(&mut done);
        }
        done.ahead += 1;
        !done.stopped
    }

    /// What has been made of the next chunk, in the order of the file.
    fn next(&self) -> Option<Result<T>> {
        let mut done = self.done.lock();
        loop {
            let next = done.consumed;
            if let Some(read) = done.read.remove(&next) {
                done.consumed += 1;
                done.ahead = done.ahead.saturating_sub(1);
                self.left.notify_all();
                return Some(read);
            }
            if done.workers == 0 || done.stopped {
                return None;
            }
            match self.waits {
                None => self.came.wait(&mut done),
                Some(waits) => {
                    let _timed_out = self.came.wait_for(&mut done, LOOKS_UP_AFTER);
                    // It may take as long as it likes.
                    drop(done);
                    (waits.look)();
                    done = self.done.lock();
                }
            }
        }
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
