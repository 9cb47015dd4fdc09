//! A file that is written: what was not synced yet is kept here, or is being uploaded.
//!
//! ```text
//!   0 ............ begin ............ begin + uploaded ............ length
//!   │ pieces that    │ in parts of an upload,     │ in the buffer    │
//!   │ are complete   │ which nobody sees yet      │                  │
//! ```
//! A new piece becomes visible as a whole by a sync. One that is small then stays in the buffer, and is written again by the next
//! sync, with what was added: so a file that grows by small amounts does not become many objects. A large one is complete.
//! It is uploaded in parts, whose time is not that of a change.
//!
//! A file that is created takes the place of an existing one by its first sync.
//!
//! A piece is written again only if it is still the one that was written or read last: a request that was given up may arrive later, and
//! must not put less in the place of more. That is not so for what is uploaded in parts.

use crate::error::failed;
use crate::pieces::{self, Piece};
use crate::store::{LONGEST, LONGEST_TRANSFER, Store, list_all};
use bytes::Bytes;
use firn_base::disk::DiskFile;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, SqlState};
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectMeta, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How many parts of one file are in memory while they are sent.
const PARTS_AT_ONCE: usize = 4;
/// How long the removal of an upload may take that was not completed.
const LONGEST_ABORT: Duration = Duration::from_secs(5);

/// A file that is open for writing.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    store: Arc<Store>,
    key: Key,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Complete pieces, in order.
    pieces: Vec<Piece>,
    /// Where the piece begins that is being written.
    begin: u64,
    /// How much of it is in the upload.
    uploaded: u64,
    upload: Option<Upload>,
    buffer: Vec<u8>,
    /// Whether something has changed since the last sync.
    is_dirty: bool,
    /// The object of the piece that is being written.
    object: Object,
    /// Until the first sync of a file that was created: what an existing one has behind its first object, or was left of one.
    stale: Option<JoinHandle<object_store::Result<Vec<ObjectMeta>>>>,
    /// Whether an upload has failed, so that bytes are lost.
    is_broken: bool,
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Object {
    /// There is none.
    #[default]
    None,
    /// There may be one, whose place is taken.
    Any,
    /// There is one of this version.
    As(UpdateVersion),
}

impl Object {
    /// The condition of writing it.
    fn mode(&self) -> PutMode {
        match self {
            Object::None => PutMode::Create,
            Object::Any => PutMode::Overwrite,
            Object::As(version) => PutMode::Update(version.clone()),
        }
    }
}

#[derive(Debug)]
struct Upload {
    upload: Box<dyn MultipartUpload>,
    parts: usize,
    running: Vec<JoinHandle<object_store::Result<()>>>,
}

impl State {
    fn length(&self) -> u64 {
        self.begin + self.uploaded + self.buffer.len() as u64
    }
}

impl ObjectFile {
    /// A new file. Nobody sees it before its first sync.
    pub fn create(store: Arc<Store>, key: Key) -> ObjectFile {
        let (objects, further) = (store.objects.clone(), pieces::prefix(&key));
        // While it is written.
        let stale = store.spawn(async move { list_all(&*objects, &further).await });
        let state = State { is_dirty: true, stale: Some(stale), object: Object::Any, ..State::default() };
        ObjectFile { store, key, state: Mutex::new(state) }
    }

    /// An existing file of these pieces, of which the first one has this version.
    pub fn open(
        store: Arc<Store>,
        key: Key,
        mut pieces: Vec<Piece>,
        first: UpdateVersion,
    ) -> Result<ObjectFile> {
        let mut state = State { begin: pieces.last().map_or(0, Piece::end), ..State::default() };
        if let Some(last) = pieces.pop_if(|last| last.length < store.sizes.piece) {
            (state.begin, state.object) = (last.begin, Object::As(first));
            if last.length > 0 {
                let (bytes, version) = store.get(&pieces::key(&key, last.begin), 0..last.length)?;
                (state.buffer, state.object) = (bytes.to_vec(), Object::As(version));
            }
        }
        state.pieces = pieces;
        Ok(ObjectFile { store, key, state: Mutex::new(state) })
    }

    fn shown(&self) -> String {
        self.store.shown(&self.key)
    }

    #[cold]
    fn refused(&self, what: &str) -> Error {
        Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("the file \"{}\" {what}", self.shown()))
    }

    /// Adds bytes at the end, and sends parts of them if there are many.
    fn append(&self, state: &mut State, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let part = self.part_bytes(state);
            let room = (part + self.store.sizes.kept) as usize - state.buffer.len();
            let (taken, left) = rest.split_at(rest.len().min(room));
            state.buffer.extend_from_slice(taken);
            rest = left;
            if taken.len() == room {
                let left = state.buffer.split_off(part as usize);
                let part = std::mem::replace(&mut state.buffer, left);
                self.send(state, part)?;
            }
        }
        Ok(())
    }

    /// The length of the next part.
    fn part_bytes(&self, state: &State) -> u64 {
        let sizes = &self.store.sizes;
        let parts = state.upload.as_ref().map_or(0, |upload| upload.parts);
        if parts < sizes.small_parts { sizes.part } else { sizes.large_part }
    }

    /// Sends a part, once there are few under way.
    fn send(&self, state: &mut State, part: Vec<u8>) -> Result<()> {
        let length = part.len() as u64;
        let sent = self.try_send(state, part);
        match sent {
            Ok(()) => state.uploaded += length,
            Err(_) => state.is_broken = true,
        }
        sent
    }

    fn try_send(&self, state: &mut State, part: Vec<u8>) -> Result<()> {
        let key = pieces::key(&self.key, state.begin);
        if state.upload.is_none() {
            self.store.leases.check(&key)?;
            let begun = self.store.objects.put_multipart(&key);
            let upload = self.store.run("write", &key, LONGEST, begun)?;
            state.upload = Some(Upload { upload, parts: 0, running: Vec::new() });
        }
        let upload = state.upload.as_mut().expect("it has begun");
        while upload.running.len() >= PARTS_AT_ONCE {
            let oldest = upload.running.remove(0);
            self.wait_for(oldest, &key)?;
        }
        let sending = upload.upload.put_part(PutPayload::from(part));
        upload.running.push(self.store.send(sending));
        upload.parts += 1;
        Ok(())
    }

    /// Waits for a part, which takes a bounded time.
    fn wait_for(&self, part: JoinHandle<object_store::Result<()>>, key: &Key) -> Result<()> {
        let sent = self.store.wait(joined(part));
        sent.map_err(|error| failed("write", &self.store.shown(key), &error))
    }

    /// Completes the upload of the piece that is being written.
    fn complete(&self, state: &mut State) -> Result<()> {
        let key = pieces::key(&self.key, state.begin);
        let last = std::mem::take(&mut state.buffer);
        if !last.is_empty() {
            self.send(state, last)?;
        }
        let upload = state.upload.as_mut().expect("it was there, or its only part has begun it");
        for part in upload.running.drain(..) {
            self.wait_for(part, &key)?;
        }
        self.store.leases.check(&key)?;
        let completed = self.store.run("write", &key, LONGEST, upload.upload.complete())?;
        (state.upload, state.object) = (None, Object::As(completed.into()));
        Ok(())
    }

    /// Cuts off what is behind a place in a complete piece. Later pieces are removed at once, the last one first.
    fn cut(&self, state: &mut State, length: u64) -> Result<()> {
        self.abandon_upload(state);
        state.buffer.clear();
        if state.object != Object::None {
            self.store.delete(&pieces::key(&self.key, state.begin))?;
            state.object = Object::None;
        }
        while let Some(last) = state.pieces.pop() {
            let key = pieces::key(&self.key, last.begin);
            if last.end() <= length {
                state.begin = last.end();
                state.pieces.push(last);
                break;
            }
            state.begin = last.begin;
            if length <= last.begin && last.begin > 0 {
                self.store.delete(&key)?;
                continue;
            }
            // It is written again, with what is left of it.
            (state.object, state.is_dirty) = (Object::Any, true);
            let mut at = 0;
            while at < length - last.begin {
                let next = (at + self.store.sizes.part).min(length - last.begin);
                let (bytes, version) = self.store.get(&key, at..next)?;
                state.object = Object::As(version);
                self.append(state, &bytes)?;
                at = next;
            }
            break;
        }
        Ok(())
    }

    fn remove_stale(&self, stale: JoinHandle<object_store::Result<Vec<ObjectMeta>>>) -> Result<()> {
        let listed = self.store.run("list", &pieces::prefix(&self.key), LONGEST_TRANSFER, joined(stale))?;
        for piece in pieces::further(&listed).iter().rev() {
            self.store.delete(&pieces::key(&self.key, piece.begin))?;
        }
        Ok(())
    }

    fn abandon_upload(&self, state: &mut State) {
        if let Some(mut upload) = state.upload.take() {
            upload.running.iter().for_each(JoinHandle::abort);
            // Otherwise its parts stay, unseen.
            let _ = self.store.try_run(LONGEST_ABORT, upload.upload.abort());
        }
        state.uploaded = 0;
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        let state = &mut std::mem::take(&mut *self.state.lock());
        self.abandon_upload(state);
    }
}

async fn joined<T>(task: JoinHandle<object_store::Result<T>>) -> object_store::Result<T> {
    task.await.unwrap_or_else(|source| Err(object_store::Error::JoinError { source }))
}

impl DiskFile for ObjectFile {
    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().length())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.state.lock();
        let end = state.length().min(offset.saturating_add(buffer.len() as u64));
        let mut at = offset;
        while at < end {
            let rest = &mut buffer[(at - offset) as usize..(end - offset) as usize];
            let buffered = state.begin + state.uploaded;
            let taken = if at >= buffered {
                rest.copy_from_slice(&state.buffer[(at - buffered) as usize..(end - buffered) as usize]);
                rest.len()
            } else if at >= state.begin {
                return Err(self.refused("cannot be read before it is synced"));
            } else {
                let piece = state.pieces.iter().find(|piece| at < piece.end()).expect("it is before the end");
                let until = piece.end().min(end);
                let key = pieces::key(&self.key, piece.begin);
                let (bytes, _) = self.store.get(&key, at - piece.begin..until - piece.begin)?;
                rest[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            };
            at += taken as u64;
        }
        Ok(at.saturating_sub(offset) as usize)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let state = &mut *self.state.lock();
        if state.is_broken {
            return Err(self.refused("could not be written before"));
        }
        let buffered = state.begin + state.uploaded;
        if offset < buffered && !bytes.is_empty() {
            return Err(self.refused("is in an object store, where bytes are not written over"));
        }
        state.is_dirty = true;
        let zeros = [0; 64 << 10];
        while state.length() < offset {
            let missing = (offset - state.length()).min(zeros.len() as u64);
            self.append(state, &zeros[..missing as usize])?;
        }
        let inner = offset.saturating_sub(state.begin + state.uploaded) as usize;
        let (over, behind) = bytes.split_at(bytes.len().min(state.buffer.len() - inner));
        state.buffer[inner..inner + over.len()].copy_from_slice(over);
        self.append(state, behind)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let present = self.len()?;
        if length > present {
            return self.write_at(&[], length);
        }
        if length == present {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let buffered = state.begin + state.uploaded;
        if length < state.begin {
            return self.cut(state, length);
        }
        if length < buffered {
            return Err(self.refused("cannot be cut before it is synced"));
        }
        state.buffer.truncate((length - buffered) as usize);
        state.is_dirty = true;
        Ok(())
    }

    fn allocate(&self, length: u64) -> Result<()> {
        if length > self.len()? { self.set_len(length) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        let state = &mut *self.state.lock();
        if state.is_broken {
            return Err(self.refused("could not be written before"));
        }
        if !state.is_dirty {
            return Ok(());
        }
        if let Some(stale) = state.stale.take() {
            let removed = self.remove_stale(stale);
            // Another sync would leave them.
            state.is_broken |= removed.is_err();
            removed?;
        }
        let key = pieces::key(&self.key, state.begin);
        if state.upload.is_some() || state.buffer.len() as u64 > self.store.sizes.single {
            let completed = self.complete(state);
            state.is_broken = completed.is_err();
            completed?;
        } else if state.buffer.is_empty() && state.begin > 0 {
            if state.object != Object::None {
                self.store.delete(&key)?;
                state.object = Object::None;
            }
        } else {
            let bytes = Bytes::copy_from_slice(&state.buffer);
            state.object = Object::As(self.store.put(&key, bytes, state.object.mode())?);
        }
        state.is_dirty = false;
        let length = state.uploaded + state.buffer.len() as u64;
        if length < self.store.sizes.piece {
            return Ok(());
        }
        state.pieces.push(Piece { begin: state.begin, length });
        (state.begin, state.uploaded, state.object) = (state.begin + length, 0, Object::None);
        state.buffer = Vec::new();
        Ok(())
    }
}
