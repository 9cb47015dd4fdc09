//! The named objects of a session: prepared statements and cursors, for `pg_prepared_statements` and `pg_cursors`.

use firn_base::sync::Arc;
use firn_base::{Type, clock};
use std::collections::BTreeMap;

/// The prepared statements and the cursors of a session, by their names.
#[derive(Default, Debug)]
pub struct Named {
    /// The prepared statements.
    pub statements: BTreeMap<String, NamedStatement>,
    /// The cursors.
    pub cursors: BTreeMap<String, NamedCursor>,
    /// The portals of the protocol that have names.
    pub portals: BTreeMap<String, NamedCursor>,
}

/// A prepared statement. Timestamps are microseconds since 1970 UTC.
#[derive(Clone, Debug)]
pub struct NamedStatement {
    /// The text that the client has sent.
    pub text: Arc<str>,
    /// When it was prepared.
    pub prepared_at: i64,
    /// The types of its parameters.
    pub parameters: Vec<Type>,
    /// Whether PREPARE has made it, and not the protocol.
    pub from_sql: bool,
}

/// A cursor. Timestamps are microseconds since 1970 UTC.
#[derive(Clone, Debug)]
pub struct NamedCursor {
    /// The text that the client has sent.
    pub text: Arc<str>,
    /// When it was declared.
    pub declared_at: i64,
    /// WITH HOLD
    pub is_holdable: bool,
    /// BINARY
    pub is_binary: bool,
    /// Whether it can go backward.
    pub is_scrollable: bool,
}

impl NamedCursor {
    /// A portal of the protocol that is bound now.
    pub fn portal(text: Arc<str>) -> NamedCursor {
        let declared_at = clock::wall_clock_micros();
        NamedCursor { text, declared_at, is_holdable: false, is_binary: false, is_scrollable: false }
    }
}

impl NamedStatement {
    /// A statement that is prepared now.
    pub fn new(text: Arc<str>, parameters: &[Type], from_sql: bool) -> NamedStatement {
        let prepared_at = clock::wall_clock_micros();
        NamedStatement { text, prepared_at, parameters: parameters.to_vec(), from_sql }
    }
}
