//! Integration tests of the transaction engine: one binary.

mod durability;
mod durable;
mod history;
mod isolation;
mod killed;
mod memory;
mod recovery;
mod serializable;
mod support;
mod transfers;
