//! Running things: DataFusion plans over our scans, compiled short statements, DML.
//!
//! This crate knows how a plan is run, not what SQL text it came from. Modules in reading order.

pub mod types;

pub mod aggregate;
mod cancellable;
pub mod error;
mod exact;
pub mod floats;
pub mod function;
mod guards;
mod index_path;
pub mod interrupt;
mod join_keys;
mod judge;
mod plain_conditions;
pub mod scan;
pub mod session;
mod spans;

pub mod join_order;
pub mod lengthening;
pub mod lower;
pub mod memory;
pub mod query;
mod reads;
pub mod runtime;
pub mod sleep;

pub mod expression;
pub mod short;

mod constraint;
pub mod deferred;
pub mod dml;
pub mod locking;

pub use firn_storage::Table;
pub use firn_storage::views::{strings_of, tightened, views_of};
pub use query::{BatchStream, Cancel, RunOptions, explain, run};
pub use scan::{FirnTable, ROW_ID_COLUMN, cancelled};
pub use session::{NoSession, SessionServices};

#[cfg(test)]
mod registries_tests;
