//! Runs plans: sources of rows, pipelines of operators over vectors, and who schedules them.
//!
//! ```text
//! plan ──Program::compile──▶ program ──Rows::start──▶ execution ──Rows::next──▶ chunks
//!                                    ──execute──▶ count, rows      (changes and locks)
//! plan ──ShortProgram::compile──▶ short program ──query, execute──▶ values    (few rows, found by indexes)
//! ```
//!
//! A program is a set of pipelines: an input, stages that pass chunks on, and a sink that collects them. Everything here is
//! synchronous and knows neither SQL text nor names; columns are numbers, and the functions are those of the registry.
//!
//! Modules in reading order.

pub mod source;
pub mod statistics;
pub mod table;

pub mod arrays;
pub mod columns;
pub mod expression;
pub mod keys;
pub mod values;

pub mod budget;
pub mod buffer;
pub mod measures;
pub mod options;
pub mod partitions;
pub mod pipeline;
mod pool;
pub mod run;
mod seen;
pub mod spill;
mod template;
mod timed;

pub mod foreign;

pub mod effects;
pub mod write;

pub mod inputs;
pub mod sinks;
pub mod stages;

pub mod compile;
pub mod execution;
pub mod short;

pub use budget::Budget;
pub use compile::Program;
pub use execution::{Executed, Rows, execute};
pub use measures::{Measured, Measures};
pub use options::Options;
pub use short::ShortProgram;
pub use source::{Reader, Source, Sources};
pub use spill::SpillArea;
pub use statistics::SourceFacts;
pub use table::TableSource;
pub use write::{CatalogExpressions, StoredExpression, TargetSet};
