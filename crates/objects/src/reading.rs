//! A file that is read: mostly from its beginning to its end, so that what follows is requested before it is needed.
//!
//! The first bytes arrive with the opening. Of a large file only its header is kept until it is read: a log has many segments. Reading on in order doubles what is requested ahead, up to 16 MiB in several requests at
//! once, so that the network limits it and not the time of a request. Reading elsewhere begins anew.

use crate::error::failed;
use crate::pieces::{self, Piece};
use crate::store::{LONGEST_TRANSFER, Store, list_all};
use bytes::Bytes;
use firn_base::disk::DiskFile;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, SqlState};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use std::collections::VecDeque;
use tokio::task::JoinHandle;

/// A file that is open for reading, as long as it was then.
pub(crate) struct ReadFile {
    store: Arc<Store>,
    key: Key,
    pieces: Vec<Piece>,
    state: Mutex<State>,
}

impl std::fmt::Debug for ReadFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadFile").field(&self.key).finish()
    }
}

struct State {
    /// What was read last, and before that.
    read: [Chunk; 2],
    /// What was requested, in the order of the file.
    requested: VecDeque<Request>,
    /// How much to request ahead.
    ahead: u64,
}

/// Bytes of the file from a place on.
struct Chunk {
    begin: u64,
    bytes: Bytes,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }
}

struct Request {
    begin: u64,
    end: u64,
    task: JoinHandle<object_store::Result<Bytes>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReadFile {
    /// Opens a file. Error: 58P01 if there is none, XX001 if it lacks a part.
    pub fn open(store: Arc<Store>, key: Key) -> Result<ReadFile> {
        let further = pieces::prefix(&key);
        let objects = &*store.objects;
        let opening = async {
            let (first, listed) =
                tokio::join!(first_bytes(objects, &key, store.sizes.first), list_all(objects, &further));
            Ok((first?, listed?))
        };
        let ((mut length, mut bytes), listed) = store.run("open", &key, LONGEST_TRANSFER, opening)?;
        let mut pieces = pieces::all(&store.shown(&key), length, &listed);
        if pieces.is_err() {
            // The file may have grown in between. In this order both belong together: an object is not written any more once there is one
            // after it.
            let opening = async {
                let listed = list_all(objects, &further).await?;
                Ok((first_bytes(objects, &key, store.sizes.first).await?, listed))
            };
            let (first, listed) = store.run("open", &key, LONGEST_TRANSFER, opening)?;
            (length, bytes) = first;
            pieces = pieces::all(&store.shown(&key), length, &listed);
        }
        let pieces = pieces?;
        let is_whole = bytes.len() as u64 == pieces.last().map_or(0, Piece::end);
        let header = bytes.len().min(store.sizes.header as usize);
        let bytes = if is_whole { bytes } else { Bytes::copy_from_slice(&bytes[..header]) };
        let none = Chunk { begin: 0, bytes: Bytes::new() };
        let state = State {
            read: [Chunk { begin: 0, bytes }, none],
            requested: VecDeque::new(),
            ahead: store.sizes.least_ahead / 2,
        };
        Ok(ReadFile { store, key, pieces, state: Mutex::new(state) })
    }

    fn length(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    /// Requests what follows a place, unless enough of it is requested already.
    fn request(&self, state: &mut State, from: u64) {
        let mut at = state.requested.back().map_or(from, |last| last.end);
        while at < self.length() && (at < from + state.ahead || state.requested.is_empty()) {
            let piece = self.pieces.iter().find(|piece| at < piece.end()).expect("it is before the end");
            let end = piece.end().min(at + self.store.sizes.chunk.min(state.ahead));
            let (range, key) = (at - piece.begin..end - piece.begin, pieces::key(&self.key, piece.begin));
            let objects = self.store.objects.clone();
            let task = self.store.spawn(async move { objects.get_range(&key, range).await });
            state.requested.push_back(Request { begin: at, end, task });
            at = end;
        }
    }

    /// Reads the chunk with a place.
    fn advance(&self, state: &mut State, at: u64) -> Result<()> {
        let is_next = at == state.read[0].end();
        if is_next || state.requested.front().is_some_and(|next| (next.begin..next.end).contains(&at)) {
            state.ahead = (2 * state.ahead).min(self.store.sizes.most_ahead);
        } else {
            state.ahead = self.store.sizes.least_ahead;
            state.requested.clear();
        }
        self.request(state, at);
        let mut next = state.requested.pop_front().expect("it is before the end");
        // While it arrives, those after it are requested.
        self.request(state, next.end);
        let arrived = self.store.wait(async { tokio::time::timeout(LONGEST_TRANSFER, &mut next.task).await });
        let shown = self.store.shown(&self.key);
        let bytes = match arrived {
            Ok(Ok(bytes)) => bytes.map_err(|error| failed("read", &shown, &error))?,
            Ok(Err(source)) => {
                return Err(failed("read", &shown, &object_store::Error::JoinError { source }));
            }
            Err(_) => return Err(crate::error::slow("read", &shown)),
        };
        if bytes.len() as u64 != next.end - next.begin {
            let message = format!("the file \"{shown}\" has become shorter while it is read");
            return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                .with_hint("Do not prune backups while one is restored or verified."));
        }
        state.read.swap(0, 1);
        state.read[0] = Chunk { begin: next.begin, bytes };
        Ok(())
    }
}

/// The length of an object, and what it begins with.
async fn first_bytes(objects: &dyn ObjectStore, key: &Key, count: u64) -> object_store::Result<(u64, Bytes)> {
    let options = GetOptions::new().with_range(Some(GetRange::Bounded(0..count)));
    match objects.get_opts(key, options).await {
        Ok(found) => {
            let length = found.meta.size;
            Ok((length, found.bytes().await?))
        }
        Err(error @ object_store::Error::NotFound { .. }) => Err(error),
        // An empty object has no range.
        Err(error) => match objects.head(key).await {
            Ok(found) if found.size == 0 => Ok((0, Bytes::new())),
            _ => Err(error),
        },
    }
}

impl DiskFile for ReadFile {
    fn len(&self) -> Result<u64> {
        Ok(self.length())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = &mut *self.state.lock();
        let end = self.length().min(offset.saturating_add(buffer.len() as u64));
        let mut at = offset;
        while at < end {
            let Some(chunk) = state.read.iter().find(|chunk| (chunk.begin..chunk.end()).contains(&at)) else {
                self.advance(state, at)?;
                continue;
            };
            let until = chunk.end().min(end);
            let bytes = &chunk.bytes[(at - chunk.begin) as usize..(until - chunk.begin) as usize];
            buffer[(at - offset) as usize..(until - offset) as usize].copy_from_slice(bytes);
            at = until;
        }
        Ok(at.saturating_sub(offset) as usize)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(self.is_read_only())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(self.is_read_only())
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Err(self.is_read_only())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl ReadFile {
    #[cold]
    fn is_read_only(&self) -> Error {
        let message = format!("the file \"{}\" is open for reading only", self.store.shown(&self.key));
        Error::new(SqlState::IO_ERROR, message)
    }
}
