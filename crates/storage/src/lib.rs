//! Blocks, version chains, write sets, tables, indexes, Arrow views: one copy of the data that short
//! transactions change in place and scans read as Arrow.
//!
//! Storage does not know transactions: it gets a [`Snapshot`](firn_base::Snapshot). Everything that may be
//! freed while it is read is reached through a [`Guard`].

pub mod arrow;
mod arrow_rows;
pub mod encoding;
pub mod images;

pub mod index;
pub mod scan;
pub mod table;
pub mod typed;
pub mod write_set;

mod attic;
mod block;
mod budget;
mod cold;
mod collect;
mod column;
mod compact;
mod copy;
mod decoded;
mod digest;
mod directory;
mod encoded_scan;
mod freeze;
mod gate;
mod guard;
mod heads;
mod heap;
mod layout;
mod life;
mod memory;
mod position;
mod region;
mod restriction;
mod row_lock;
mod shared;
mod spare;
pub mod state;
mod tidy;
mod undo;
mod version;
pub mod views;
mod walk;
mod zone;
mod zone_map;

pub use attic::Attic;
pub use budget::{Counted, Held, MemoryBudget, Pressure, print_bytes};
pub use cold::{BlockContent, Cold};
pub use collect::Garbage;
pub use column::ColumnSpec;
pub use digest::{Changed, ChangedRows, ChangedTable, Digest, Digests, Recent};
pub use encoded_scan::{Judge, RowFilter};
pub use freeze::{BlockUsage, Frozen};
pub use gate::{Closed, Gate};
pub use guard::{Guard, Reaper, pin};
pub use heap::{LONGEST_STRING_BYTES, is_long_string};
pub use index::{
    Index, IndexColumn, IndexId, IndexSpec, KeyBuffer, WaitingKeys, WaitingMark, comparisons_are_exact,
    summary, summary_is_exact,
};
pub use region::{Provider, reserve};
pub use restriction::{Restriction, StringRange};
pub use row_lock::RowLock;
pub use scan::{ScanBatch, TableScan};
pub use state::BlockState;
pub use table::{Found, Move, Restored, Table, TableOptions, TableUsage};
pub use typed::{Field, Misfit, Projection, Row, Rows, Str, Text, Vectors};
pub use write_set::{Freed, LetGo, Mark, Retired, WriteSet};
