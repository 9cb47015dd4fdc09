//! Statements from text to rows, without a session: parsed, bound over the catalog, run in a transaction. The corpus
//! (`tests/slt`) tests their meaning; these test what it cannot express: parameters, positions of errors, all ways to store the same rows.

mod changes;
mod database;
mod errors;
mod foreign_keys;
mod parameters;
mod tpch;
