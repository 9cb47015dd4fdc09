//! Statements on the query engine: the functions that need the catalog or the session, the relations outside
//! of the catalog, and how a session prepares and starts a statement.
//!

mod binding;
mod context;
mod functions;
mod objects;
mod registry;
mod relations;
mod sets;
mod snapshots;
mod statement;

pub use binding::with_catalog;
pub(crate) use context::surroundings;
pub use registry::registry;
pub(crate) use statement::load_expressions;
pub use statement::{
    Execution, Prepared, QueryOutput, check_deferred, check_no_longer_deferred, kept_rows, query_memory_used,
    type_named,
};
