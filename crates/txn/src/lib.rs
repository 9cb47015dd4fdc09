//! Transactions: begin, commit, rollback, garbage collection, checkpoints, recovery; the catalog.
//!
//! The modules are listed in reading order.

pub mod catalog;
pub mod dependencies;
pub mod engine;
mod epochs;
pub mod native;
pub mod transaction;

mod active;
mod collector;
mod column_type;
mod config;
mod ddl;
mod deferred;
mod duplicates;
mod freezer;
mod index_build;
mod isolation;
mod predicates;
mod sequence;
mod statistics;
mod ticket;
mod waits;

mod apply;
mod checkpoint;
mod copying;
mod loads;
mod manifest;
mod merger;
mod recovery;
mod replay;
mod role;
mod table_file;
mod times;
mod voter;

pub use catalog::Catalog;
pub use checkpoint::PinnedCheckpoint;
pub use config::Config;
pub use copying::{
    CopiedManifest, DatabaseFile, Folder, Folders, check_files_named_by, files_named_by, restore_point_in,
};
pub use deferred::{Check, GoneKey};
pub use engine::Engine;
pub use firn_storage::{
    BlockUsage, ColumnSpec, Guard, Held, IndexColumn, IndexSpec, RowLock, Str, Text, pin,
};
pub use firn_storage::{Restriction, StringRange};
pub use freezer::Progress;
pub use isolation::Isolation;
pub use manifest::{ClusterId, DIRECTORY_VERSION, LOCK, MANIFEST, MANIFEST_TEMPORARY, REJOINING};
pub use native::{Columns, Key, TableAccess};
pub use predicates::Granularity;
pub use replay::Replayer;
pub use role::{DirectoryRole, address_of};
pub use statistics::{Abort, Counter, Ends, Running, Statistics, TableLock, TableLockMode};
pub use ticket::Ticket;
pub use transaction::{
    Awaited, ReadNotes, ReadsSoFar, Savepoint, StatementStart, TableWaitLimit, Transaction, WaitLimit,
};
pub use voter::{Sender, Voter};
pub use waits::{Waited, Want};
