//! File bytes to columns, and rows to file bytes: the formats of COPY that store row after row.
//!
//! [`CopyReader`] takes bytes in pieces cut anywhere and yields Arrow columns; [`CopyWriter`] takes
//! Arrow columns and appends bytes. Neither depends on the source or the target of the bytes.

mod binary;
mod binary_rows;
mod chunk;
mod columns;
pub mod encoding;
mod fault;
mod feed;
mod field;
mod filling;
pub mod json;
mod kind;
mod lanes;
mod number;
pub mod options;
mod parallel;
pub mod reader;
mod records;
pub mod sniff;
pub mod source;
mod structure;
mod text_rows;
pub mod writer;

#[cfg(test)]
mod tests;

pub use binary::end_of_first_row;
pub use chunk::Extent;
pub use columns::read_literals;
pub use encoding::Encoding;
pub use fault::{Rejected, WIDTH_ROUTINE};
pub use feed::{Feed, Places};
pub use options::{CopyHeader, CopyOptions, NO_QUOTE, OnError, QuotesOpen, RowFormat};
pub use parallel::Waits;
pub use reader::{BATCH_ROWS, CopyReader};
pub use records::{Batch, Keeps, RowLines, Sieve};
pub use writer::CopyWriter;
