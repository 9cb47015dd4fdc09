//! Statements from text to rows: parsed, bound over the catalog, run in a transaction.

mod changes;
mod database;
mod errors;
mod foreign_keys;
mod parameters;
mod script;
mod semantics;
mod short;
mod tpch;
