//! SQL: parse, bind, DDL, functions, `pg_catalog`. Modules in reading order.

pub mod literals;
pub mod parse;
pub mod statement;

pub mod options;
pub mod refused;

pub mod names;
pub mod plan;
pub mod query;
pub mod rows;
pub mod run;

pub mod activity;
pub mod advisory;
pub mod arrow;
pub mod copy;
pub mod ddl;
pub mod explain;
pub mod files;
pub mod named;
pub mod notifications;
pub mod services;
pub mod session_facts;
pub mod settings;
pub mod sources;
pub mod standby;

mod information_schema;
mod operator_classes;
pub mod pg_catalog;

pub use firn_base::Cancel;
pub use firn_base::cancel::cancelled;
pub use firn_executor::SpillArea;
pub use firn_executor::budget::{limit_query_memory, query_memory};
pub use firn_query::arrow::data_type as arrow_type;
pub use firn_query::arrow::schema as result_schema;
pub use firn_query::{KeptBytes, KeptRows, ResultChunk, Stream};
pub use firn_syntax::tree;
pub use firn_vector::Datum;
pub use plan::{Changed, Column, Plan, QueryEffect};
pub use rows::RowChunk;
pub use run::{Forced, RunOptions, SessionServices};
