//! Writing rows of tables, with the table's constraints.
//!
//! | what | when it is tested |
//! |---|---|
//! | NOT NULL, CHECK | before the row is written |
//! | unique keys | as the row is written, by storage, or when the keys of many rows enter together; a deferrable one at the end of the statement or of the transaction |
//! | foreign keys | against what the statement leaves behind, or at the end of the transaction |
//!
//! In reading order: `target` (tables compiled for writing), `writer` (rows), `bulk` (many rows at a time), `load` (COPY),
//! `foreign_key` (the end of a statement), `deferred` (the end of a transaction).

mod bulk;
mod deferred;
mod foreign_key;
mod load;
mod messages;
mod rows;
mod target;
mod writer;

pub use deferred::{check_all, check_immediate};
pub use load::Load;
pub use rows::RowVectors;
pub(crate) use rows::{Cells, RowData, StoredCells, fitted, fitted_value, stored};
pub use target::{CatalogExpressions, RowExpression, StoredExpression, Target, TargetSet};
pub(crate) use target::{UniqueIndex, column_id};
pub(crate) use writer::Violation;
pub use writer::Writer;
