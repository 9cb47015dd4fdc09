//! SQL: parse, bind, DDL, functions, `pg_catalog`. Modules in reading order.

pub mod data_type;
pub mod parse;
pub mod statement;

pub mod bind;
pub mod dml;
pub mod functions;
pub mod names;
pub mod plan;
pub mod query;

pub mod activity;
pub mod arrow;
pub mod copy;
pub mod ddl;
pub mod files;
pub mod services;
pub mod session_facts;
pub mod settings;
pub mod sources;

mod ident;
mod information_schema;
mod output_name;
pub mod pg_catalog;

pub use firn_exec::interrupt::interruptible;
pub use firn_exec::memory::{limit_query_memory, query_memory};
pub use firn_exec::{Cancel, RunOptions, SessionServices, cancelled, deferred};
pub use firn_query::ResultChunk;
pub use firn_vector::Datum;
pub use plan::{Column, Plan, QueryOutput, RowChunk, RowStream};
