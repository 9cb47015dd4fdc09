//! The definition of an index, as the catalog has it.

use firn_base::{ColumnId, Representation};

/// The id of an index in the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexId(pub u32);

/// One column of an index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexColumn {
    /// Which column of the table.
    pub column: ColumnId,
    /// How its values are stored.
    pub representation: Representation,
    /// Whether it may be NULL; only then the key has a NULL marker.
    pub nullable: bool,
    /// Largest first.
    pub descending: bool,
    /// NULLs before everything else. (PostgreSQL's default: last ascending, first descending.)
    pub nulls_first: bool,
}

/// The definition of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// Its id.
    pub id: IndexId,
    /// Its name, for messages.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<IndexColumn>,
    /// Whether two rows that one snapshot sees may not share a key without NULLs that are distinct.
    pub unique: bool,
    /// From which column on NULLs are equal to each other. Those of the columns before it are distinct; without one all are.
    pub equal_nulls_from: Option<usize>,
    /// Whether it stores the keys of all rows. An index without values reads the keys of rows in compact
    /// blocks from the rows. Ignored for a unique index.
    pub values: bool,
}
