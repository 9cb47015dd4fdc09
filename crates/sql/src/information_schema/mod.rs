//! The relations of the SQL standard's `information_schema`. Their shapes are PostgreSQL 15's
//! (`relations.tsv`). Relations about features that FirnDB lacks are empty.

pub(crate) mod functions;
mod rows;

use crate::pg_catalog::{Relation, parse_relations};
use std::sync::LazyLock;

static RELATIONS: LazyLock<Vec<Relation>> =
    LazyLock::new(|| parse_relations(include_str!("relations.tsv"), true, rows::of));

/// All relations, by name.
pub(crate) fn all() -> &'static [Relation] {
    &RELATIONS
}

/// The relation of that name.
pub(crate) fn find(name: &str) -> Option<&'static Relation> {
    RELATIONS.iter().find(|relation| relation.name == name)
}
