//! Integration tests of the transaction engine: one binary.

mod history;
mod isolation;
mod support;
