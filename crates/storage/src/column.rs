//! What a physical table's column holds. Layouts, indexes and tables are made from it; it depends on none of
//! them.

use firn_base::Representation;

/// One column of a physical table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// How its values are stored.
    pub representation: Representation,
    /// Whether it may hold NULL. Storage asserts that other columns get no NULL.
    pub nullable: bool,
}
