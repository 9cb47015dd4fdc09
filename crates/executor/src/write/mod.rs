//! Writing rows of tables, one at a time, with the table's constraints.
//!
//! | what | when it is tested |
//! |---|---|
//! | NOT NULL, CHECK | before the row is written |
//! | unique keys | as the row is written, by storage; a deferrable one at the end of the statement or of the transaction |
//! | foreign keys | against what the statement leaves behind, or at the end of the transaction |
//!
//! In reading order: `target` (tables compiled for writing), `writer` (rows), `foreign_key` (the end of a statement), `deferred` (the
//! end of a transaction).

mod deferred;
mod foreign_key;
mod messages;
mod rows;
mod target;
mod writer;

pub use deferred::{check_all, check_immediate};
pub use rows::RowVectors;
pub(crate) use rows::{Cells, RowData, fitted, stored};
pub use target::{CatalogExpressions, StoredExpression, Target, TargetSet};
pub(crate) use target::{UniqueIndex, column_id};
pub(crate) use writer::Violation;
pub use writer::Writer;
