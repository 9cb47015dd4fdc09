//! Statements from their text to their rows.

mod database;
mod short;
