//! Pins: claims on the log from a position on, and on files, that keep them from being recycled.
//!
//! What a checkpoint has made superfluous is removed up to the position of the oldest pin. A [`Pin`] moves its own position
//! ahead as its holder gets on, and ends when it is dropped; what it has retained is removed soon after
//! ([`crate::Log::recycle`]).
//!
//! A pin that would retain more than [`crate::LogOptions::most_pinned_bytes`] is *broken*: nothing is retained for it any more,
//! and its holder gets an error with its next call. So no holder, slow or silent, can fill the disk.
//!
//! Pins are in memory only: they end with the process, as their holders do.

use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Lsn, Result, SqlState};

/// All pins of a log.
#[derive(Default, Debug)]
pub(crate) struct Pins(Mutex<Held>);

#[derive(Default, Debug)]
struct Held {
    next: u64,
    pins: Vec<(u64, Pinned)>,
    /// Checkpoints have replaced the log before this position, as far as [`Pins::needed_from`] has been called for them.
    superfluous: Option<Lsn>,
    /// What has been released since the last call of [`Pins::take_released`].
    released: Option<Released>,
}

/// What pins that have ended or moved retained, and nothing else needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Released {
    /// Part of the log, with the files that it names.
    Log,
    /// Files beside the log, too.
    Files,
}

/// What a pin retains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// The name of its holder, to be shown.
    pub holder: String,
    /// The log from this position on, with the files that it names.
    pub position: Lsn,
    /// Files beside the log, by their names in their directory.
    pub files: Vec<String>,
    /// Whether it has been broken, and retains nothing.
    pub is_broken: bool,
}

/// A claim on the log from a position on, and on files. Dropping it ends it.
#[derive(Debug)]
pub struct Pin {
    pins: Arc<Pins>,
    id: u64,
}

impl Pins {
    pub fn add(self: &Arc<Pins>, pinned: Pinned) -> Pin {
        let mut held = self.0.lock();
        held.next += 1;
        let id = held.next;
        held.pins.push((id, pinned));
        Pin { pins: self.clone(), id }
    }

    /// Breaks the pins because of which more than `most` bytes before `lsn` would be retained; `bytes` counts those between
    /// a position and `lsn`.
    pub fn break_beyond(&self, lsn: Lsn, most: u64, bytes: impl Fn(Lsn) -> u64) {
        for (_, pin) in &mut self.0.lock().pins {
            if pin.position < lsn && !pin.is_broken && bytes(pin.position) > most {
                pin.is_broken = true;
                pin.files.clear();
            }
        }
    }

    /// The position before `lsn` from which on the log is needed: `lsn` itself, or that of the oldest pin.
    pub fn needed_from(&self, lsn: Lsn) -> Lsn {
        let mut held = self.0.lock();
        held.superfluous = Some(lsn);
        held.needed_from()
    }

    /// Whether a pin names this file.
    pub fn names(&self, name: &str) -> bool {
        self.0.lock().pins.iter().any(|(_, pin)| pin.files.iter().any(|file| file == name))
    }

    /// What the pins retain.
    pub fn list(&self) -> Vec<Pinned> {
        self.0.lock().pins.iter().map(|(_, pin)| pin.clone()).collect()
    }

    /// What pins have released since the last call.
    pub fn take_released(&self) -> Option<Released> {
        self.0.lock().released.take()
    }

    /// Notes again what could not be removed.
    pub fn put_back(&self, released: Released) {
        let mut held = self.0.lock();
        held.released = held.released.max(Some(released));
    }
}

impl Held {
    fn of(&mut self, id: u64) -> &mut Pinned {
        let found = self.pins.iter_mut().find(|(other, _)| *other == id);
        &mut found.expect("a pin is listed until it is dropped").1
    }

    /// The position from which on the log is needed.
    fn needed_from(&self) -> Lsn {
        let whole = self.pins.iter().filter(|(_, pin)| !pin.is_broken);
        whole.map(|(_, pin)| pin.position).fold(self.superfluous.unwrap_or(Lsn(0)), Lsn::min)
    }

    /// Ends or moves pins, and notes what of the log that releases.
    fn change<T>(&mut self, change: impl FnOnce(&mut Held) -> T) -> T {
        let before = self.needed_from();
        let outcome = change(self);
        if self.needed_from() > before {
            self.released = self.released.max(Some(Released::Log));
        }
        outcome
    }
}

impl Pin {
    /// The position from which on it retains the log. Error: 55000 if it is broken.
    pub fn position(&self) -> Result<Lsn> {
        let mut held = self.pins.0.lock();
        let pinned = held.of(self.id);
        if pinned.is_broken { Err(broken(pinned)) } else { Ok(pinned.position) }
    }

    /// Gives up the log before a position. Error: 55000 if the pin is broken.
    pub fn advance(&self, to: Lsn) -> Result<()> {
        let mut held = self.pins.0.lock();
        let pinned = held.of(self.id);
        if pinned.is_broken {
            return Err(broken(pinned));
        }
        if to > pinned.position {
            held.change(|held| held.of(self.id).position = to);
        }
        Ok(())
    }

    /// Gives up a file. No effect if the pin is broken.
    pub fn release_file(&self, name: &str) {
        let mut held = self.pins.0.lock();
        held.of(self.id).files.retain(|file| file != name);
        held.released = Some(Released::Files);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut held = self.pins.0.lock();
        if !held.of(self.id).files.is_empty() {
            held.released = Some(Released::Files);
        }
        held.change(|held| held.pins.retain(|(id, _)| *id != self.id));
    }
}

#[cold]
fn broken(pinned: &Pinned) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the log is no longer retained for \"{}\"", pinned.holder),
    )
    .with_detail("It has needed more of the log than max_slot_wal_keep_size allows.")
    .with_hint("Begin again with a new copy of the database, or let more of the log be retained.")
}
