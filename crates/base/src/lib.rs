//! The foundation of all layers of FirnDB: ids, times, snapshots, SQL types and values, and errors with
//! SQLSTATE. It is also the only access to the clock, files, randomness, threads and atomics, so that tests
//! can control them.
//!
//! Modules in reading order.

pub mod ids;
pub mod snapshot;

pub mod data_type;
pub mod error;
pub mod representation;
pub mod type_name;
pub mod type_table;
pub mod types;
pub mod value;

pub mod array;
pub mod binary;
pub mod coerce;
mod conversions;
pub mod datetime;
pub mod encoding;
pub mod interval;
pub mod json;
pub mod numeric;
pub mod oid;
pub mod operators;
pub mod ordering;
pub mod text;
pub mod text_style;
pub mod time_zone;

pub mod cancel;
pub mod clock;
pub mod disk;
pub mod memory;
pub mod pipe;
pub mod process;
pub mod random;
pub mod stack;
pub mod sync;
pub mod thread;

pub use array::ArrayValue;
pub use cancel::Cancel;
pub use data_type::{Collation, Type, TypeId};
pub use error::{Error, Result, SqlState};
pub use ids::{BlockNumber, ColumnId, ColumnSet, Epoch, Lsn, NodeId, RowId, Slot, TableId};
pub use numeric::Numeric;
pub use representation::Representation;
pub use snapshot::{Snapshot, Stamp, Time, visible};
pub use text_style::TextStyle;
pub use time_zone::TimeZoneSetting;
pub use types::SqlType;
pub use value::{Cell, Interval, Stored, Value};
