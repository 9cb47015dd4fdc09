//! Vectors of values, and the one registry of functions, operators, casts and aggregates.
//!
//! A [`Vector`] holds about 2,048 values of one column; a [`Chunk`] holds vectors of one length. A
//! function is one row kernel: a Rust function over the values of one row. The adapter in
//! [`kernel`] makes of it a loop over the selected rows of vectors and a call on single values, so
//! that pipelines and short programs share one meaning. The [`Registry`] says which functions there are,
//! with the facts that PostgreSQL's catalogs give about them.
//!
//! This crate knows no tables, transactions, plans or SQL text, and nothing in it is async.
//!
//! Modules in reading order.

pub mod builder;
pub mod chunk;
pub mod data;
pub mod datum;
pub mod image;
pub mod lists;
pub mod numerics;
pub mod order;
pub mod selection;
pub mod strings;
pub mod values;
pub mod vector;

pub mod aggregate;
pub mod context;
pub mod kernel;
pub mod window;

mod functions;
mod regex;

/// Patterns of LIKE, for who looks for texts by what they begin with.
pub mod pattern {
    pub use crate::functions::patterns::{Beginning, Rest, STARTS_WITH, TEXT_LIKE, successor};
}

pub mod registry;

pub use chunk::Chunk;
pub use context::Context;
pub use data::Data;
pub use datum::Datum;
pub use functions::{ROW_VERSION, encoding_name, encoding_number, is_object};
pub use kernel::slot::Slot;
pub use registry::{FunctionId, OperatorId, Registry};
pub use selection::{Rows, Selection};
pub use vector::{Form, Vector};
