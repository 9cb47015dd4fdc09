//! SQL: parse, bind, DDL, functions, `pg_catalog`. Modules in reading order.

pub mod parse;
pub mod statement;

pub mod names;
pub mod plan;
pub mod query;
pub mod run;

pub mod activity;
pub mod arrow;
#[path = "stub/copy.rs"]
pub mod copy;
#[path = "stub/ddl.rs"]
pub mod ddl;
pub mod files;
pub mod services;
pub mod session_facts;
pub mod settings;
pub mod sources;

mod information_schema;
pub mod pg_catalog;

pub use firn_base::Cancel;
pub use firn_base::cancel::cancelled;
pub use firn_query::ResultChunk;
pub use firn_query::arrow::data_type as arrow_type;
pub use firn_vector::Datum;
pub use plan::{Changed, Column, Plan, RowChunk};
pub use run::{RunOptions, SessionServices};
