//! Begin, commit, roll back, collect garbage, checkpoint, recover; the catalog.
//!
//! Modules in reading order.

pub mod catalog;
pub mod engine;
pub mod native;
pub mod transaction;

mod active;
mod collector;
mod ddl;
mod deferred;
mod duplicates;
mod freezer;
mod predicates;
mod sequence;
mod statistics;

mod apply;
mod checkpoint;
mod loads;
mod manifest;
mod merger;
mod recovery;
mod table_file;
mod times;

pub use active::{Waited, Want};
pub use catalog::Catalog;
pub use deferred::{Check, GoneKey};
pub use engine::{Config, Engine};
pub use firn_storage::{
    BlockUsage, ColumnSpec, Guard, Held, IndexColumn, IndexSpec, RowLock, Str, Text, pin,
};
pub use firn_storage::{Restriction, StringRange};
pub use freezer::Progress;
pub use native::{Columns, Key, TableAccess};
pub use predicates::Granularity;
pub use statistics::{Abort, Counter, Ends, Running, Statistics, TableLock, TableLockMode};
pub use transaction::{
    Awaited, Isolation, Patience, ReadsSoFar, Savepoint, StatementStart, TablePatience, Ticket, Transaction,
};
