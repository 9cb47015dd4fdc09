//! The redo log: all commits, in commit order, on disk.
//!
//! [`record`] defines the redo of one change, [`format`] the layout of groups of commits in segment files. [`Log`] writes groups,
//! [`Reader`] reads them after a restart, and a [`Follower`] while they are written; a [`Pin`] keeps what a follower still needs.
//! A [`LogCopy`] stores what another log's reader or follower returns.
//! [`spill`] holds the redo that long transactions write before they commit. The log does not depend on what
//! tables and rows are, and never contains an address.

mod commitment;
mod copy;
pub mod faults;
mod follower;
pub mod format;
mod pins;
pub mod reader;
pub mod record;
mod sealed;
mod segments;
pub mod spill;
mod waiting;
mod window;
pub mod writer;

pub use copy::LogCopy;
pub use follower::{Follower, Waited};
pub use format::{DatabaseId, LogPoint, SegmentHeader};
pub use pins::{Pin, Pinned, Released};
pub use reader::Reader;
pub use record::{
    BatchColumns, CellReader, CellWriter, RawRecord, Record, Records, RedoBuffer, RedoMark, SpilledChunks,
};
pub use spill::{Kept, SpillReader, Spills, spill_name};
pub use window::{Entry, Group};
pub use writer::{Log, LogOptions};
