//! The algebra of queries and how it is rewritten.
//!
//! A [`Plan`] is a tree of [`Operator`]s over [`Column`]s, which are numbers: names end in the
//! binder. The binder writes sub-queries as dependent joins; [`unnest`](mod@unnest) removes them. Every rewrite is
//! a function from a plan to a plan with the same meaning, tested with plans as text and against a slow
//! interpreter (`reference`, of tests and the feature of that name). [`verify`](mod@verify) checks what every plan must be.
//!
//! This crate is pure: no I/O, no threads, no storage, no sessions.
//!
//! Modules in reading order.

pub mod column;
pub mod function;
pub mod operator;
pub mod plan;
pub mod scalar;

pub mod registry;

pub mod keys;
pub mod properties;
#[cfg(any(test, feature = "reference"))]
pub mod reference;
pub mod text;
pub mod verify;

pub mod evaluator;
pub mod faults;
pub mod join_order;
pub mod rewrite;
mod row_numbers;
pub mod statistics;
pub mod unnest;

pub use column::{Column, ColumnInfo, Columns, Origin};
pub use evaluator::RegistryEvaluator;
pub use function::{Function, Functions};
pub use operator::Operator;
pub use plan::{NodeId, Plan};
pub use scalar::Scalar;
