//! Locks in an object store: an object that names its holder, and expires.
//!
//! The holder writes it again every sixth of its duration, by a conditional request that fails if the object is another one. A process
//! that wants the lock takes it over if it was released, if it has not been written for its duration by the store's clock, or if its
//! holder was a process of the same machine that is gone. So two clocks are never compared.
//!
//! ```text
//! held ──renewed──▶ held ──not renewed for a third of its duration──▶ doubtful ──renewed──▶ held
//!                                                                        └──another has taken it──▶ lost
//! ```
//! Invariant: in the states *doubtful* and *lost* nothing below the directory of the lock is changed. A change that began before ends
//! before the lease expires ([`LONGEST`]), unless the store delays it.

use crate::error::{failed, slow};
use crate::pieces;
use crate::store::{LONGEST, Store, version_of};
use bytes::Bytes;
use firn_base::clock;
use firn_base::process;
use firn_base::random::Random;
use firn_base::sync::{Arc, Condvar, Mutex, Weak};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Error, Result, SqlState};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a lease is valid that is not renewed.
pub(crate) const DURATION: Duration = Duration::from_secs(60);

/// How often taking a lock is tried again after another one has changed the object in between.
const TRIES: usize = 4;

/// The object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Content {
    /// A random number of the holder; 0 if it was released.
    holder: u64,
    process: Process,
    duration_ms: u64,
    /// How often it was to be renewed. So the holder writes nothing twice: a condition is one on the tag of the object, which may be a
    /// hash of its content, as that of S3 is.
    #[serde(default)]
    renewal: u64,
}

/// A process of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Process {
    host: String,
    id: u32,
    /// When it was started, in ticks of the machine's clock. Another process may get its id.
    started: u64,
    /// The machine since it was booted, and the namespace of process ids; empty if one of them is unknown.
    machine: String,
}

impl Process {
    fn own() -> Process {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let boot = read("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok().filter(|_| !boot.is_empty());
        let id = std::process::id();
        Process {
            host: read("/proc/sys/kernel/hostname"),
            id,
            started: started(id).unwrap_or(0),
            machine: namespace
                .map_or_else(String::new, |namespace| format!("{boot} {}", namespace.display())),
        }
    }

    /// Whether it is known to have ended.
    fn has_ended(&self, own: &Process) -> bool {
        self.started != 0
            && self.machine == own.machine
            && !self.machine.is_empty()
            && match started(self.id) {
                Some(started) => started != self.started,
                // It may belong to somebody else.
                None => process::is_missing(self.id),
            }
    }
}

/// When a process was started; `None` if there is none of this id, or it cannot be read.
fn started(id: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it may have spaces. See proc(5): it is the 22nd field.
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The leases that a store's user holds.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Shared>>>);

impl Leases {
    /// Error: 55006 if an object is below a lock that was lost, 58030 if it is doubtful.
    pub fn check(&self, key: &Key) -> Result<()> {
        let leases = self.0.lock();
        let held = leases.iter().filter_map(Weak::upgrade);
        held.filter(|lease| key.prefix_matches(&lease.directory)).try_for_each(|lease| lease.check())
    }

    fn add(&self, lease: &Arc<Shared>) {
        let mut leases = self.0.lock();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(Arc::downgrade(lease));
    }
}

/// A held lease, which is renewed until it is dropped.
pub(crate) struct Lease {
    store: Arc<Store>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    key: Key,
    shown: String,
    /// What it protects.
    directory: Key,
    content: Content,
    duration: Duration,
    state: Mutex<State>,
    stopping: Condvar,
}

struct State {
    version: UpdateVersion,
    /// The number of the last request that has begun.
    renewal: u64,
    /// When the last request began that has succeeded, by [`clock::boot_micros`]: while the machine sleeps, the lease expires.
    renewed: u64,
    is_lost: bool,
    is_stopping: bool,
}

/// How a conditional request ends.
enum Written {
    As(UpdateVersion),
    /// The object is another one, or there is none.
    Refused,
}

impl Lease {
    /// Takes a lock. Errors: 55006 if another one has it, 0A000 if the store cannot do it.
    pub fn take(store: &Arc<Store>, key: &Key, duration: Duration) -> Result<Lease> {
        let holder = Random::from_entropy().next_u64() | 1;
        let duration_ms = duration.as_millis() as u64;
        let content = Content { holder, process: Process::own(), duration_ms, renewal: 0 };
        let begun = clock::boot_micros();
        for _ in 0..TRIES {
            let written = match read(store, key)? {
                None => write(store, key, &content, PutMode::Create)?,
                // It was created by a request that the library has repeated.
                Some((found, meta)) if found == content => Written::As(version_of(&meta)),
                Some((found, meta)) => {
                    if !is_free(store, key, &found, &meta, &content.process)? {
                        return Err(held(&store.shown(key), &found));
                    }
                    write(store, key, &content, PutMode::Update(version_of(&meta)))?
                }
            };
            let Written::As(version) = written else { continue };
            // A store that does not know the condition writes the object again.
            if let Written::As(_) = write(store, key, &content, PutMode::Create)? {
                return Err(unsupported(&store.shown(key)));
            }
            let shared = Arc::new(Shared {
                key: key.clone(),
                shown: store.shown(key),
                directory: key.parent().unwrap_or_default(),
                content,
                duration,
                state: Mutex::new(State {
                    version,
                    renewal: 0,
                    renewed: begun,
                    is_lost: false,
                    is_stopping: false,
                }),
                stopping: Condvar::new(),
            });
            store.leases.add(&shared);
            let (renewed, by) = (shared.clone(), store.clone());
            let thread = thread::spawn("firn-lease", move || renewed.renew_until_stopped(&by));
            return Ok(Lease { store: store.clone(), shared, thread: Some(thread) });
        }
        let message = format!("the lock \"{}\" changes all the time", store.shown(key));
        Err(Error::new(SqlState::OBJECT_IN_USE, message).with_hint("Try again."))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        self.shared.stopping.notify_all();
        if self.shared.check_state(&state).is_err() {
            // The store cannot be reached, and perhaps a request waits for it; or it is another one's.
            return;
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
        let state = self.shared.state.lock();
        if !state.is_lost {
            // If this fails, it expires.
            let renewal = state.renewal + 1;
            let released = Content { holder: 0, renewal, ..self.shared.content.clone() };
            let mode = PutMode::Update(state.version.clone());
            let _ = write(&self.store, &self.shared.key, &released, mode);
        }
    }
}

impl Shared {
    fn check(&self) -> Result<()> {
        self.check_state(&self.state.lock())
    }

    fn check_state(&self, state: &State) -> Result<()> {
        if state.is_lost {
            let message = format!("the lock \"{}\" was taken over by another process", self.shown);
            return Err(Error::new(SqlState::OBJECT_IN_USE, message)
                .with_detail("This one had not renewed it in time."));
        }
        let since = clock::boot_micros().saturating_sub(state.renewed);
        if Duration::from_micros(since) > self.duration / 3 {
            let message = format!("the lock \"{}\" cannot be renewed", self.shown);
            return Err(Error::new(SqlState::IO_ERROR, message)
                .with_detail("Another process may take it over.")
                .with_hint("Check that the object store can be reached."));
        }
        Ok(())
    }

    fn renew_until_stopped(&self, store: &Arc<Store>) {
        let mut state = self.state.lock();
        while !state.is_stopping && !state.is_lost {
            self.stopping.wait_for(&mut state, self.duration / 6);
            if state.is_stopping {
                return;
            }
            let mode = PutMode::Update(state.version.clone());
            state.renewal += 1;
            let content = Content { renewal: state.renewal, ..self.content.clone() };
            drop(state);
            let begun = clock::boot_micros();
            let renewed = write(store, &self.key, &content, mode);
            state = self.state.lock();
            match renewed {
                Ok(Written::As(version)) => (state.version, state.renewed) = (version, begun),
                Ok(Written::Refused) => state.is_lost = true,
                // It is doubtful after a while, and perhaps renewed later.
                Err(_) => {}
            }
        }
    }
}

/// The present object, if there is one. A damaged one counts as one that has expired by its time.
fn read(store: &Store, key: &Key) -> Result<Option<(Content, ObjectMeta)>> {
    let read = async {
        let found = store.objects.get(key).await?;
        let meta = found.meta.clone();
        Ok((found.bytes().await?, meta))
    };
    let (bytes, meta) = match store.try_run(LONGEST, read) {
        Some(Ok(found)) => found,
        Some(Err(object_store::Error::NotFound { .. })) => return Ok(None),
        Some(Err(error)) => return Err(failed("read", &store.shown(key), &error)),
        None => return Err(slow("read", &store.shown(key))),
    };
    let content = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
        let process = Process { host: String::new(), id: 0, started: 0, machine: String::new() };
        Content { holder: 1, process, duration_ms: DURATION.as_millis() as u64, renewal: 0 }
    });
    Ok(Some((content, meta)))
}

/// Writes the object on a condition.
fn write(store: &Store, key: &Key, content: &Content, mut mode: PutMode) -> Result<Written> {
    use object_store::Error as E;
    let bytes = Bytes::from(serde_json::to_vec(content).expect("it has names and numbers"));
    loop {
        let is_create = mode == PutMode::Create;
        let put = store.objects.put_opts(key, PutPayload::from(bytes.clone()), mode.into());
        match store.try_run(LONGEST, put) {
            Some(Ok(put)) => return Ok(Written::As(put.into())),
            Some(Err(E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. }))
                if is_create =>
            {
                return Ok(Written::Refused);
            }
            Some(Err(E::Precondition { .. } | E::NotModified { .. })) => match read(store, key)? {
                // This very request has written it, which the library has repeated then.
                Some((found, meta)) if found == *content => return Ok(Written::As(version_of(&meta))),
                // An earlier one has, which was given up and has arrived. That is no renewal as of now.
                Some((found, meta)) if found.holder == content.holder && found.holder != 0 => {
                    mode = PutMode::Update(version_of(&meta));
                }
                _ => return Ok(Written::Refused),
            },
            Some(Err(E::NotSupported { .. } | E::NotImplemented { .. })) => {
                return Err(unsupported(&store.shown(key)));
            }
            Some(Err(error)) => return Err(failed("lock", &store.shown(key), &error)),
            None => return Err(slow("lock", &store.shown(key))),
        }
    }
}

/// Whether a lock that was found may be taken over.
fn is_free(store: &Store, key: &Key, found: &Content, meta: &ObjectMeta, own: &Process) -> Result<bool> {
    if found.holder == 0 || found.process.has_ended(own) {
        return Ok(true);
    }
    // The store's time is that of an object that is written now.
    let probe = pieces::prefix(key).join(format!("now-{:016x}", Random::from_entropy().next_u64()));
    store.run("write", &probe, LONGEST, store.objects.put(&probe, PutPayload::new()))?;
    let now = store.head(&probe);
    let _ = store.try_run(LONGEST, store.objects.delete(&probe));
    let age = now?.map(|now| now.last_modified - meta.last_modified);
    Ok(age.is_some_and(|age| age.num_milliseconds() > found.duration_ms as i64))
}

#[cold]
fn held(shown: &str, found: &Content) -> Error {
    let Content { process: Process { host, id, .. }, duration_ms, .. } = found;
    Error::new(SqlState::OBJECT_IN_USE, format!("another process has the lock \"{shown}\""))
        .with_detail(format!("It is process {id} on \"{host}\"."))
        .with_hint(format!("If that has ended, the lock expires after {} seconds.", duration_ms / 1000))
}

#[cold]
fn unsupported(shown: &str) -> Error {
    let message = format!("the lock \"{shown}\" cannot be taken: the object store has no conditional writes");
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("Use a store with conditional writes (If-Match and If-None-Match), or a directory.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_machine_is_known_to_have_ended() {
        let own = Process::own();
        assert!(!own.has_ended(&own) && own.started != 0 && !own.host.is_empty());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let running = Process { id: child.id(), started: started(child.id()).unwrap(), ..own.clone() };
        assert!(!running.has_ended(&own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(running.has_ended(&own));
        // Another process has its id, or it is of another machine.
        assert!(Process { started: own.started + 1, ..own.clone() }.has_ended(&own));
        let elsewhere = Process { machine: "elsewhere".to_owned(), ..running.clone() };
        assert!(!elsewhere.has_ended(&own));
        // What is unknown proves nothing.
        let unknown = |process: Process| Process { machine: String::new(), ..process };
        assert!(!unknown(running.clone()).has_ended(&unknown(own.clone())));
        assert!(!Process { started: 0, ..running }.has_ended(&own));
    }
}
