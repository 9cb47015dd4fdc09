//! Times, stamps, and the one predicate that decides what a snapshot sees.
//!
//! One counter numbers commits. A [`Stamp`] on a version is either such a commit time or, while its writer
//! runs, the writer's transaction id. Ids have the highest bit set, so that an uncommitted stamp is later
//! than every read time. See Mühlbauer, "On Scalable and Flexible Transaction and Query Processing in
//! Main-Memory Database Systems", TU München 2016, section 2.2.1.

const UNCOMMITTED: u64 = 1 << 63;

/// A commit time, or the read time of a snapshot. 0 is before every commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub u64);

impl Time {
    /// After every commit: a snapshot with this read time sees everything committed.
    pub const LATEST: Time = Time(UNCOMMITTED - 1);
}

/// The stamp of an undo record: the commit time of the change it undoes, or the id of the transaction that
/// has not yet committed it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of a change committed at `time`.
    #[inline]
    pub fn committed(time: Time) -> Stamp {
        debug_assert!(time.0 < UNCOMMITTED);
        Stamp(time.0)
    }

    /// The stamp of changes of the running transaction numbered `sequence`.
    #[inline]
    pub const fn transaction(sequence: u64) -> Stamp {
        debug_assert!(sequence < UNCOMMITTED);
        Stamp(sequence | UNCOMMITTED)
    }

    /// The commit time, if the change is committed.
    #[inline]
    pub fn time(self) -> Option<Time> {
        if self.0 & UNCOMMITTED == 0 { Some(Time(self.0)) } else { None }
    }

    /// The number of the transaction, if the change is not committed.
    #[inline]
    pub fn sequence(self) -> Option<u64> {
        (self.0 & UNCOMMITTED != 0).then_some(self.0 & !UNCOMMITTED)
    }

    /// The stamp as stored in an atomic.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Stamp::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> Stamp {
        Stamp(bits)
    }
}

/// All that is needed to judge visibility: the read time, and the transaction whose own changes are visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Changes committed at or before this time are seen.
    pub read_time: Time,
    /// Changes with this stamp are seen as well: the transaction's own.
    pub owner: Stamp,
}

/// Whether `snapshot` sees the change with this stamp.
#[inline]
pub fn visible(stamp: Stamp, snapshot: Snapshot) -> bool {
    stamp.0 <= snapshot.read_time.0 || stamp == snapshot.owner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_committed_before_it_and_what_it_wrote() {
        let me = Stamp::transaction(5);
        let snapshot = Snapshot { read_time: Time(10), owner: me };
        assert!(visible(Stamp::committed(Time(0)), snapshot));
        assert!(visible(Stamp::committed(Time(10)), snapshot));
        assert!(!visible(Stamp::committed(Time(11)), snapshot));
        assert!(visible(me, snapshot));
        assert!(!visible(Stamp::transaction(4), snapshot));
        assert!(!visible(Stamp::transaction(6), snapshot));
    }
}
