//! Queries from text to rows: parsed, bound over the catalog, run at a snapshot.

mod database;
mod errors;
mod parameters;
mod semantics;
mod tpch;
