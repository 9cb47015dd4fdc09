//! Statements from text to rows, without a session: parsed, bound over the catalog, run in a transaction. What statements mean is in the
//! corpus (`tests/slt`); here is what it cannot say: parameters, positions of errors, all ways to store the same rows.

mod changes;
mod database;
mod errors;
mod foreign_keys;
mod parameters;
mod tpch;
