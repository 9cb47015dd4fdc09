//! The group that is being written, for followers that need not wait until it is on disk.
//!
//! Another server can write a group while this one does. Then a commit that waits for both takes the time of one disk and of the way to
//! the other server, and not that of two disks. What this server has not on disk when it crashes, others may have: who follows a
//! log this way must be ready to cut it.
//!
//! A group is copied for them, so that the leader can use its buffers again, and only while there are such followers.

use crate::format::LogPoint;
use crate::window::Group;
use firn_base::sync::{AtomicUsize, Mutex, Ordering};

/// Longer groups are read from the file once they are on disk: then most of the time is that of writing and sending, and a copy would
/// be for nothing.
const LONGEST: usize = 256 << 10;

/// The group that was sealed last.
#[derive(Default)]
pub(crate) struct Sealed {
    /// How many look at it.
    followers: AtomicUsize,
    group: Mutex<Option<Group>>,
}

impl Sealed {
    pub fn begin_to_follow(&self) {
        self.followers.fetch_add(1, Ordering::Relaxed);
    }

    pub fn cease_to_follow(&self) {
        self.followers.fetch_sub(1, Ordering::Relaxed);
        *self.group.lock() = None;
    }

    /// Whether a group of this length is to be put here. Relaxed: a follower that has just begun misses a group here, and reads it from the
    /// file later.
    pub fn is_wanted(&self, length: u64) -> bool {
        length <= LONGEST as u64 && self.followers.load(Ordering::Relaxed) > 0
    }

    pub fn put(&self, group: Group) {
        *self.group.lock() = Some(group);
    }

    /// Whether there is one after a point.
    pub fn has_after(&self, point: &LogPoint) -> bool {
        self.group.lock().as_ref().is_some_and(|group| group.is_after(point))
    }

    /// The one after a point.
    pub fn after(&self, point: &LogPoint) -> Option<Group> {
        self.group.lock().as_ref().filter(|group| group.is_after(point)).cloned()
    }
}
