//! Ordered indexes from keys to rows.
//!
//! A key is a byte string whose order is the index's order ([`key`]). A unique index maps a key to
//! every row that any snapshot may find under it, nearly always one; a non-unique index holds
//! key ‖ row id. Indexes know no times: readers re-check visibility and key.

use crate::Guard;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, RowId, SqlType};
use std::ops::Bound;

/// The id that the catalog knows an index by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexId(pub u32);

/// An encoded key.
pub type KeyBuffer = smallvec::SmallVec<[u8; 48]>;

/// One column of an index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexColumn {
    /// Which column of the table.
    pub column: ColumnId,
    /// Its type.
    pub ty: SqlType,
    /// Whether it may be NULL; only then does the key hold a null marker.
    pub nullable: bool,
    /// Largest first.
    pub descending: bool,
    /// NULLs before everything else. (PostgreSQL's default: last ascending, first descending.)
    pub nulls_first: bool,
}

/// What an index is over.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// Its id.
    pub id: IndexId,
    /// Its name, for messages.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<IndexColumn>,
    /// Whether two rows that one snapshot sees may not share a key without NULLs.
    pub unique: bool,
}

/// An index.
pub struct Index {}

impl Index {
    /// An empty index.
    pub fn new(spec: IndexSpec) -> Arc<Index> {
        todo!("{spec:?}")
    }

    /// What it is over.
    pub fn spec(&self) -> &IndexSpec {
        todo!()
    }

    /// Appends the key of `cells`, given for the first columns of the index in index order.
    /// With all columns this is a full key, with fewer a prefix of the keys that begin so.
    pub fn encode(&self, cells: &[Cell<'_>], key: &mut KeyBuffer) {
        let _ = (cells, key);
        todo!()
    }

    /// Calls `visit` with every row id under exactly this full key until it returns false.
    pub fn lookup(&self, key: &[u8], guard: &Guard, visit: &mut dyn FnMut(RowId) -> bool) {
        let _ = (key, guard, visit);
        todo!()
    }

    /// Calls `visit` with (full key, row id) in key order, or against it if `reverse`, until it
    /// returns false. Bounds are full keys or prefixes: an excluded or included prefix excludes or
    /// includes every key that begins with it.
    pub fn range(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
        guard: &Guard,
        visit: &mut dyn FnMut(&[u8], RowId) -> bool,
    ) {
        let _ = (low, high, reverse, guard, visit);
        todo!()
    }

    /// Number of entries, dead ones included.
    pub fn len(&self) -> usize {
        todo!()
    }
}
