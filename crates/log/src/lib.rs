//! The redo log: what has been committed, in commit order, safe on disk.
//!
//! [`record`] is what one change looks like, [`format`] how groups of commits lie in segment files,
//! [`Log`] writes them, [`Reader`] reads them back; [`spill`] takes what long transactions write before they commit. The log knows nothing of what tables and rows
//! are; it never holds an address.

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
