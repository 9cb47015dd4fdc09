//! What a session contributes to the meaning of its statements. Binding, DDL, `pg_catalog` and COPY all read it, so it depends on
//! none of them.

use crate::files::ZoneMaps;
use crate::sources::Sources;
use firn_base::TextStyle;
use firn_syntax::Options;

/// What a statement's meaning depends on besides its text and the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFacts {
    /// Schemas in which unqualified names are looked up, in order; `pg_catalog` comes before them.
    pub search_path: Vec<String>,
    /// `current_user`
    pub user: String,
    /// `current_database()`
    pub database: String,
    /// How literals are read, and values that are folded are written.
    pub style: TextStyle,
    /// How statements are read.
    pub syntax: Options,
    /// Names that are resolved before any schema is searched, and what they stand for.
    pub sources: Sources,
    /// The zone maps of files that statements have read. All sessions of a database share them.
    pub zones: ZoneMaps,
}

impl Default for SessionFacts {
    fn default() -> SessionFacts {
        SessionFacts {
            search_path: vec!["public".to_owned()],
            user: "firn".to_owned(),
            database: "firn".to_owned(),
            style: TextStyle::DEFAULT,
            syntax: Options::default(),
            sources: Sources::default(),
            zones: ZoneMaps::default(),
        }
    }
}
