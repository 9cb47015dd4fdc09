//! A file read by several threads at once.
//!
//! Whoever is free reads and cuts off the next chunk, one thread at a time, and then reads its records beside the
//! others. The caller gets the rows in the order of the file; workers that are a window of chunks ahead of it wait, so
//! that a slow caller costs no memory. Who waits for a file that keeps silent, and who waits for him, hear of each other ([`Waits`]).

use crate::chunk::Chunk;
use crate::records::Scratch;
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering};
use firn_base::{Result, thread};
use std::collections::BTreeMap;
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

/// Where chunks come from.
pub(crate) type Source<'s> = &'s mut (dyn FnMut() -> Result<Option<Chunk>> + Send);

/// Of which one thread at a time takes the next chunk.
struct Feed<'f> {
    source: Source<'f>,
    /// Whether there is no more to take: after an error nobody asks the source again.
    broken: bool,
    /// Chunks taken.
    taken: u64,
}

impl Feed<'_> {
    fn next(&mut self) -> Result<Option<Chunk>> {
        if self.broken {
            return Ok(None);
        }
        let next = (self.source)();
        self.broken = next.is_err();
        self.taken += u64::from(matches!(next, Ok(Some(_))));
        next
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
    workers: usize,
    /// Whether nobody wants more.
    stopped: bool,
}

/// Reads all chunks on so many threads, and gives what `work` makes of them to `sink` on this one, until that breaks off. The first
/// mistake in the file ends it, after all chunks before it, as does an error of `sink`; who then waits for bytes is told by `waits`.
pub(crate) fn read<T: Send>(
    source: Source<'_>,
    work: Work<'_, T>,
    threads: usize,
    waits: Option<&Waits>,
    sink: &mut dyn FnMut(T) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let crew = Crew {
        work,
        feed: Mutex::new(Feed { source, broken: false, taken: 0 }),
        done: Mutex::new(Done { read: BTreeMap::new(), consumed: 0, workers: threads, stopped: false }),
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
            let (number, read) = {
                let mut feed = self.feed.lock();
                let number = feed.taken;
                if !self.waits_for_room(number) {
                    return;
                }
                match feed.next() {
                    Ok(None) => return,
                    Ok(Some(chunk)) => {
                        drop(feed);
                        (number, (self.work)(chunk, &mut scratch))
                    }
                    Err(error) => (number, Err(error)),
                }
            };
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

    /// Waits until a chunk of that number may be read; whether it is wanted.
    fn waits_for_room(&self, number: u64) -> bool {
        let mut done = self.done.lock();
        while !done.stopped && number >= done.consumed + self.window {
            self.left.wait(&mut done);
        }
        !done.stopped
    }

    /// What has been made of the next chunk, in the order of the file.
    fn next(&self) -> Option<Result<T>> {
        let mut done = self.done.lock();
        loop {
            let next = done.consumed;
            if let Some(read) = done.read.remove(&next) {
                done.consumed += 1;
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
