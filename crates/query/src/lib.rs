//! A statement from its text to its rows: bound against the catalog of a transaction, optimised, compiled, run.
//!
//! ```text
//! text ──Prepared::new──▶ prepared statement ──start──▶ Stream ──next──▶ chunks of vectors ──arrow──▶ batches
//! ```
//!
//! The crate joins the parts that know nothing of each other: the binder, which asks a catalog; the optimiser, which asks for
//! statistics; the executor, which asks for sources. It holds what all of them are asked of: the tables and views of a
//! transaction's catalog. What lies outside of that (system catalogs, registered batches, files) comes from
//! [`Relations`], which its caller implements.
//!
//! Modules in reading order.

pub mod relations;

pub mod catalog;
pub mod expressions;
pub mod sources;

pub mod surroundings;

pub mod prepared;
pub mod stream;

pub mod layout;

pub mod kept;

pub mod arrow;

pub use kept::{KeptBytes, KeptRows};
pub use layout::Layout;
pub use prepared::{Done, Executed, Prepared, ResultColumn};
pub use relations::{Found, NoRelations, Relations};
pub use stream::{ResultChunk, Stream};
pub use surroundings::Surroundings;
