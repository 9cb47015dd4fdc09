//! The state of a block, and what is known of a block that is not hot.

use crate::state::{BlockEvent, BlockState, next};
use crate::zone_map::Zone;
use firn_base::clock;
use firn_base::sync::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

/// The state of a block, and the right to change it (the *turn*).
#[derive(Default)]
pub(crate) struct Life {
    state: AtomicU8,
    /// Held while the block is being frozen, thawed, encoded, or handed out, and while its chain heads are
    /// being freed.
    pub turn: Mutex<Turn>,
    /// Whether a writer waits for the freezer.
    pub wanted: AtomicBool,
    /// How many rows a frozen block has.
    pub rows: AtomicU32,
    /// How often it has been frozen.
    pub generation: AtomicU64,
}

/// What is known of a block that is not hot.
#[derive(Default)]
pub(crate) struct Turn {
    /// The zones of its columns.
    pub zones: Box<[Zone]>,
    /// The buffers of the heap that have strings of each column, a bit each.
    pub buffers: Arc<[u64]>,
    /// When it was frozen, unless it cannot be encoded.
    pub encoded_after: Option<clock::Instant>,
}

const _: () = assert!(BlockState::Hot as u8 == 0, "blocks begin hot");

impl Life {
    #[inline]
    pub fn is_hot(&self) -> bool {
        // Acquire: a writer that finds the block hot uses the memory that it was thawed in.
        self.state.load(Ordering::Acquire) == BlockState::Hot as u8
    }

    /// The current state.
    pub fn state(&self) -> BlockState {
        BlockState::from_bits(self.state.load(Ordering::Acquire))
    }

    /// Notes how many rows the block has, which is about to be frozen.
    pub fn set_rows(&self, rows: u32) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// How often the block has been frozen. The caller holds the turn.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Waits for the turn and takes it.
    pub fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock()
    }

    /// Makes the transition from `from` by `event`. Returns false if the state is no longer `from`.
    pub fn step(&self, from: BlockState, event: BlockEvent) -> bool {
        let to = next(from, event).expect("the event is possible in that state");
        self.state
            // Release: publishes what was done to the rows before. Acquire: what other threads had done.
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}
