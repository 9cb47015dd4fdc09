//! The redo log: all commits, in commit order, on disk.
//!
//! [`record`] defines the redo of one change, [`format`] the layout of groups of commits in segment files. [`Log`] writes groups,
//! [`Reader`] reads them. [`spill`] holds the redo that long transactions write before they commit. The log does not depend on what
//! tables and rows are, and never contains an address.

pub mod format;
pub mod reader;
pub mod record;
mod segments;
pub mod spill;
pub mod writer;

pub use format::DatabaseId;
pub use reader::{Entry, Group, Reader};
pub use record::{CellReader, CellWriter, RawRecord, Record, Records, RedoBuffer, RedoMark, SpilledChunks};
pub use spill::{Kept, SpillReader, Spills};
pub use writer::{Log, LogOptions};
