//! What a physical table's column holds. Layouts, indexes and tables are all made from it, so it depends on none of them.

use firn_base::SqlType;

/// One column of a physical table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// The type of its values.
    pub ty: SqlType,
    /// Whether it may hold NULL. Storage refuses NULLs in other columns by assertion.
    pub nullable: bool,
}
