//! SQL: parse, bind, DDL, functions, `pg_catalog`. Modules in reading order.

pub mod data_type;
pub mod parse;
pub mod statement;

pub mod bind;
pub mod dml;
pub mod functions;
pub mod names;

pub mod settings;
