//! The binder beside PostgreSQL: statements of `tests/cases`, whose answers `tests/oracle.py` wrote.
//!
//! A case passes if names, types and origins of the columns and the types of the parameters are those of
//! PostgreSQL, or SQLSTATE, position, message, hint and detail of the error.

mod cases;
mod catalog;
mod definitions;
mod functions;
mod rows;
