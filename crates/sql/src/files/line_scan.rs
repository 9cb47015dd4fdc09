//! Scans of files of rows: a thread reads them with helpers, in their order, and passes chunks on through a bounded channel.

use super::lines::Lines;
use firn_base::sync::{Arc, Mutex};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Result, SqlState};
use firn_executor::source::{Morsels, Scan};
use firn_vector::Chunk;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

/// Chunks that may wait for a worker.
const WAITING_CHUNKS: usize = 4;

/// The rows of files, one after another.
pub(super) struct LineScan {
    pub lines: Arc<Lines>,
    pub workers: usize,
}

impl Scan for LineScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        let state = Mutex::new(State::New);
        Arc::new(LineMorsels { lines: self.lines.clone(), workers: self.workers, state })
    }

    fn is_ordered(&self) -> bool {
        true
    }
}

struct LineMorsels {
    lines: Arc<Lines>,
    workers: usize,
    state: Mutex<State>,
}

enum State {
    /// No chunk has been requested.
    New,
    Running(Running),
    Ended,
}

/// A thread that reads.
struct Running {
    /// `None` once the thread must end.
    chunks: Option<Receiver<Result<Chunk>>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(lines: Arc<Lines>, workers: usize) -> Result<Running> {
        let (sender, chunks) = sync_channel(WAITING_CHUNKS);
        let body = move || {
            let gone = || Error::new(SqlState::QUERY_CANCELED, "the reader of the rows has ended");
            let mut send = |chunk| sender.send(Ok(chunk)).map_err(|_| gone());
            let read = catch_unwind(AssertUnwindSafe(|| lines.read(workers, &mut send)));
            let read = read.unwrap_or_else(|_| Err(Error::internal("reading a file panicked")));
            if let Err(error) = read {
                // If the receiver has gone, the error is not needed.
                drop(sender.send(Err(error)));
            }
        };
        Ok(Running { chunks: Some(chunks), thread: Some(thread::start("file", body)?) })
    }

    fn next(&self) -> Result<Option<Chunk>> {
        // The channel is closed when the files have been read to their end.
        let received = self.chunks.as_ref().and_then(|chunks| chunks.recv().ok());
        received.transpose()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.chunks = None;
        if let Some(thread) = self.thread.take() {
            // Its panics are caught.
            drop(thread.join());
        }
    }
}

impl Morsels for LineMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::New => *state = State::Running(Running::start(self.lines.clone(), self.workers)?),
                State::Running(running) => {
                    let next = running.next();
                    if !matches!(next, Ok(Some(_))) {
                        *state = State::Ended;
                    }
                    return next;
                }
                State::Ended => return Ok(None),
            }
        }
    }
}
