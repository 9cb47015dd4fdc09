//! A slow interpreter of plans, and a registry of a few functions: the oracle of tests.
//!
//! It does what the algebra says and nothing else: a dependent join evaluates its right input for
//! each row of the left one, a row is a list of columns and values. Rewrites are tested by
//! comparing what it gives before and after, on small tables of random values.
//!
//! Errors are as lazy as the algebra asks for: conditions that cannot fail are asked first, and the
//! right input of a join is not evaluated if the left one gives no row.

mod aggregates;
mod functions;
mod operators;
pub mod random;
mod scalars;
mod windows;

pub use functions::TestFunctions;
pub use operators::{Row, Tables, run};
pub use scalars::evaluate;
