//! A file read by several threads at once.
//!
//! Whoever is free reads and cuts off the next chunk, one thread at a time, and then reads its records beside the
//! others. The caller gets the rows in the order of the file; workers that are a window of chunks ahead of it wait, so
//! that a slow caller costs no memory.

use crate::chunk::{Chunk, Cutter, Uncut};
use crate::reader::ChunkReader;
use crate::records::{Batch, Scratch};
use firn_base::sync::{Condvar, Mutex};
use firn_base::{Error, Result, thread};
use std::collections::BTreeMap;
use std::io::Read;

/// So many chunks for each thread may be ahead of the caller.
const WINDOW: u64 = 3;

/// The file, of which one thread at a time takes the next chunk.
struct Feed<'f> {
    cutter: Cutter,
    file: &'f mut (dyn Read + Send),
    /// What a failure to read is to the user.
    failed: &'f (dyn Fn(&std::io::Error) -> Error + Sync),
    at_end: bool,
    /// Whether there is no more to take: after an error nobody asks the file again.
    broken: bool,
    /// Chunks taken.
    taken: u64,
}

impl Feed<'_> {
    /// The next chunk with its number.
    fn next(&mut self, file: &str) -> Result<Option<(u64, Chunk)>> {
        match self.broken {
            true => Ok(None),
            false => self.take(file).inspect_err(|_| self.broken = true),
        }
    }

    fn take(&mut self, file: &str) -> Result<Option<(u64, Chunk)>> {
        let uncut = |uncut: Uncut| uncut.into_error(file);
        let chunk = loop {
            if let Some(chunk) = self.cutter.next().map_err(uncut)? {
                break Some(chunk);
            }
            if self.at_end {
                break self.cutter.last().map_err(uncut)?;
            }
            self.at_end = self.cutter.read(self.file).map_err(|error| (self.failed)(&error))?;
        };
        Ok(chunk.map(|chunk| {
            self.taken += 1;
            (self.taken - 1, chunk)
        }))
    }
}

/// What workers have done and the caller has not taken.
#[derive(Default)]
struct Done {
    /// By number of the chunk. An error to get a chunk has the number that this would have had.
    rows: BTreeMap<u64, Result<Batch>>,
    /// Chunks that the caller has taken.
    consumed: u64,
    workers: usize,
    /// Whether nobody wants more.
    stopped: bool,
}

/// Reads `file` to its end on so many threads, and gives the rows to `sink` on this one. The first mistake in the file ends
/// it, after all rows of chunks before it, as does an error of `sink`.
pub(crate) fn read(
    reader: &ChunkReader,
    file: &mut (dyn Read + Send),
    failed: &(dyn Fn(&std::io::Error) -> Error + Sync),
    threads: usize,
    sink: &mut dyn FnMut(Batch) -> Result<()>,
) -> Result<()> {
    let feed = Feed { cutter: reader.cutter(), file, failed, at_end: false, broken: false, taken: 0 };
    let crew = Crew {
        reader,
        feed: Mutex::new(feed),
        done: Mutex::new(Done { workers: threads, ..Done::default() }),
        came: Condvar::new(),
        left: Condvar::new(),
        window: WINDOW * threads as u64,
    };
    thread::scope(|scope| {
        // However this ends, nobody goes on.
        let _stop = Stop(&crew);
        for _ in 0..threads {
            thread::spawn_scoped(scope, "firn-load", || crew.work());
        }
        while let Some(rows) = crew.next() {
            let rows = rows?;
            let ended = rows.ended;
            sink(rows)?;
            if ended {
                break;
            }
        }
        Ok(())
    })
}

struct Crew<'f> {
    reader: &'f ChunkReader,
    feed: Mutex<Feed<'f>>,
    done: Mutex<Done>,
    /// A chunk has been read, or a worker has gone home.
    came: Condvar,
    /// A chunk has been taken.
    left: Condvar,
    window: u64,
}

impl Crew<'_> {
    /// What a worker does until the file ends or nobody wants more.
    fn work(&self) {
        let _leave = Leave(self);
        let mut scratch = Scratch::default();
        loop {
            let (number, rows) = {
                let mut feed = self.feed.lock();
                let number = feed.taken;
                if !self.waits_for_room(number) {
                    return;
                }
                match feed.next(self.reader.place()) {
                    Ok(None) => return,
                    Ok(Some((number, chunk))) => {
                        drop(feed);
                        (number, self.reader.read(chunk, &mut scratch))
                    }
                    Err(error) => (number, Err(error)),
                }
            };
            let failed = rows.is_err();
            let mut done = self.done.lock();
            done.rows.insert(number, rows);
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

    /// The next chunk's rows, in the order of the file.
    fn next(&self) -> Option<Result<Batch>> {
        let mut done = self.done.lock();
        loop {
            let next = done.consumed;
            if let Some(rows) = done.rows.remove(&next) {
                done.consumed += 1;
                self.left.notify_all();
                return Some(rows);
            }
            if done.workers == 0 || done.stopped {
                return None;
            }
            self.came.wait(&mut done);
        }
    }
}

/// Tells the workers, when it is dropped, that nobody wants more.
struct Stop<'c, 'f>(&'c Crew<'f>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.done.lock().stopped = true;
        self.0.left.notify_all();
    }
}

/// Tells the caller, when it is dropped, that a worker has gone home. After a panic all go, for its chunk will not come,
/// and the panic goes on in the caller.
struct Leave<'c, 'f>(&'c Crew<'f>);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        let mut done = self.0.done.lock();
        done.workers -= 1;
        done.stopped |= std::thread::panicking();
        drop(done);
        self.0.left.notify_all();
        self.0.came.notify_all();
    }
}
