//! Planted faults of replication: the simulations must find each. `cargo xtask faults` runs them.
//!
//! Only a build with the feature `faults` contains them. The environment variable FIRN_FAULT names the one that it makes, so that
//! one build serves for all. They are in this crate because all crates that make them depend on it.

/// A fault, by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A replica reports that it has groups on disk before it syncs them.
    AcknowledgedUnsynced,
    /// A server takes a point for one of its history if its log reaches that position.
    ComparedByLength,
    /// Of several voters the one with the longest log is appointed, whatever its epoch is.
    LongestLogAppointed,
    /// A voter takes messages of the primary of an earlier epoch than that which it has promised to follow.
    OldPrimaryAccepted,
    /// A voter replays what it has on disk, whether it is committed or not.
    UncommittedReplayed,
    /// A server that has lost its disk takes the place of the voter that it was.
    WipedVoterCounted,
    /// Cutting a log leaves the groups behind the branch point in the last segment.
    GroupsLeftByCut,
    /// A checkpoint becomes the newest one before all of its commits are committed by the voters.
    CheckpointBeforeCommitted,
    /// A row that gets the slot of a deleted one keeps nothing of it for the snapshots that see it.
    SlotReusedUnderReader,
    /// A primary counts groups of earlier epochs before a majority has the beginning of its own.
    EarlierEpochsCounted,
    /// A voter promises to follow another primary while the one that it has answered relies on it.
    LeaseBroken,
}

impl Fault {
    /// What FIRN_FAULT calls it.
    pub fn name(self) -> &'static str {
        match self {
            Fault::AcknowledgedUnsynced => "acknowledged-unsynced",
            Fault::ComparedByLength => "compared-by-length",
            Fault::LongestLogAppointed => "longest-log-appointed",
            Fault::OldPrimaryAccepted => "old-primary-accepted",
            Fault::UncommittedReplayed => "uncommitted-replayed",
            Fault::WipedVoterCounted => "wiped-voter-counted",
            Fault::GroupsLeftByCut => "groups-left-by-cut",
            Fault::CheckpointBeforeCommitted => "checkpoint-before-committed",
            Fault::SlotReusedUnderReader => "slot-reused-under-reader",
            Fault::EarlierEpochsCounted => "earlier-epochs-counted",
            Fault::LeaseBroken => "lease-broken",
        }
    }

    /// Whether it is made.
    #[cfg(feature = "faults")]
    pub fn is_made(self) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| std::env::var("FIRN_FAULT").ok());
        chosen.as_deref() == Some(self.name())
    }

    /// Whether it is made.
    #[cfg(not(feature = "faults"))]
    pub fn is_made(self) -> bool {
        false
    }
}
