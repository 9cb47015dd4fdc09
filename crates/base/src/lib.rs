//! What every layer of FirnDB shares: ids, times, snapshots, SQL types and values, errors with
//! SQLSTATE, and the only doors to the clock, files, randomness, threads and atomics, so that
//! tests can own them.
//!
//! Modules in reading order.

pub mod ids;
pub mod snapshot;

pub mod error;
pub mod types;
pub mod value;

pub mod clock;
pub mod random;
pub mod sync;
pub mod thread;

pub use error::{Error, Result, SqlState};
pub use ids::{BlockNumber, ColumnId, Lsn, RowId, Slot, TableId};
pub use snapshot::{Snapshot, Stamp, Time, visible};
pub use types::SqlType;
pub use value::{Cell, Interval, Value};
