//! What a session contributes to the meaning of its statements. Binding, DDL, `pg_catalog` and COPY all read it, so it depends on
//! none of them.

use crate::files::ZoneMaps;
use crate::sources::Sources;
use firn_base::TextStyle;

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
    /// How literals are read otherwise: those of a prepared statement mean what they meant when it was prepared. Facts of a session
    /// have none.
    pub literals: Option<TextStyle>,
    /// Whether backslashes are ordinary characters in strings.
    pub standard_strings: bool,
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
            literals: None,
            standard_strings: true,
            sources: Sources::default(),
            zones: ZoneMaps::default(),
        }
    }
}
