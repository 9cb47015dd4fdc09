//! The states of a block, and the one function that decides every transition.
//!
//! ```text
//!  hot ──cold for a while──> cooling ──no versions left──> freezing ──> frozen ──stays cold──> compact
//!   ^────────── any write ────────┘                                        │
//!   ^───────────── write: thaw in place, or copy if a reader holds it ─────┘ <─────no rows left──────┘
//! ```
//! Behind a long reader a block goes from freezing back to cooling once, when its chain heads are replaced by
//! one. A row of a compact block that is changed is deleted there and inserted elsewhere. Once no row is
//! left, the block is frozen without rows, and filled again.

/// The current state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockState {
    /// Rows change in place.
    Hot = 0,
    /// No transaction has written for a while; the next write makes it hot again.
    Cooling = 1,
    /// Being made canonical, or having its chain heads freed; a writer waits briefly, or makes it hot again.
    Freezing = 2,
    /// Canonical Arrow, handed out without a copy.
    Frozen = 3,
    /// Encoded; immutable except for a delete mask.
    Compact = 4,
}

impl BlockState {
    /// All, by their numbers.
    pub const ALL: [BlockState; 5] =
        [BlockState::Hot, BlockState::Cooling, BlockState::Freezing, BlockState::Frozen, BlockState::Compact];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        use BlockState::*;
        match self {
            Hot => "hot",
            Cooling => "cooling",
            Freezing => "freezing",
            Frozen => "frozen",
            Compact => "compact",
        }
    }

    /// The state with this number.
    pub(crate) fn from_bits(bits: u8) -> BlockState {
        BlockState::ALL[usize::from(bits)]
    }
}

/// An event in the life of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockEvent {
    /// A transaction is about to write to it.
    Write,
    /// A round of the freezer begins: a write before its end cancels the cooling.
    GoneCold,
    /// No transaction has written for `freeze_after`, no row has a version chain or one record represents all
    /// (`heads.rs`), and no slot before a row is empty.
    VersionsGone,
    /// Its chain heads are replaced by one, and it continues to cool.
    HeadsShared,
    /// Its canonical form is complete.
    Canonical,
    /// Its encoded form is complete.
    Encoded,
    /// It has no row and no version left.
    Emptied,
}

/// The state after `event`, or `None` if the event cannot happen in that state.
pub fn next(state: BlockState, event: BlockEvent) -> Option<BlockState> {
    use BlockEvent::*;
    use BlockState::*;
    match (state, event) {
        (Hot | Cooling | Freezing | Frozen, Write) => Some(Hot),
        (Compact, Write) => Some(Compact),
        (Hot, GoneCold) => Some(Cooling),
        (Cooling, VersionsGone) => Some(Freezing),
        (Freezing, HeadsShared) => Some(Cooling),
        (Freezing, Canonical) => Some(Frozen),
        (Frozen, Encoded) => Some(Compact),
        (Compact, Emptied) => Some(Frozen),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockEvent::*, BlockState::*, next};

    #[test]
    fn the_table_of_transitions_is_exactly_this() {
        let table = [
            (Hot, [Some(Hot), Some(Cooling), None, None, None, None, None]),
            (Cooling, [Some(Hot), None, Some(Freezing), None, None, None, None]),
            (Freezing, [Some(Hot), None, None, Some(Cooling), Some(Frozen), None, None]),
            (Frozen, [Some(Hot), None, None, None, None, Some(Compact), None]),
            (Compact, [Some(Compact), None, None, None, None, None, Some(Frozen)]),
        ];
        for (state, expected) in table {
            for (event, expected) in [Write, GoneCold, VersionsGone, HeadsShared, Canonical, Encoded, Emptied]
                .into_iter()
                .zip(expected)
            {
                assert_eq!(next(state, event), expected, "{state:?} on {event:?}");
            }
        }
    }
}
