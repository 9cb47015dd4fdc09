//! Errors of names that mean nothing, with what was perhaps meant.

use super::{Binder, Table};
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::Name;
use std::rc::Rc;

/// The most edits after which a name is still suggested.
const MOST_EDITS: usize = 3;

/// What was perhaps meant.
#[derive(Default)]
struct Suggestions {
    distance: usize,
    first: Option<(Rc<str>, Rc<str>)>,
    second: Option<(Rc<str>, Rc<str>)>,
}

impl Binder<'_> {
    /// 42703
    #[cold]
    pub(super) fn missing_column(&self, table: Option<&str>, name: &str, at: u32) -> Error {
        let message = match table {
            Some(table) => format!("column {table}.{name} does not exist"),
            None => format!("column \"{name}\" does not exist"),
        };
        let error = self.error(SqlState::UNDEFINED_COLUMN, message, at);
        let mut found = Suggestions { distance: MOST_EDITS + 1, ..Suggestions::default() };
        for level in self.levels.iter().rev() {
            for entry in level.tables.iter().filter(|entry| !entry.is_join) {
                let penalty = table.map_or(0, |table| edits(table, &entry.alias));
                if penalty == 0 && entry.columns.iter().any(|column| &*column.name == name) {
                    return error.with_hint(format!(
                        "There is a column named \"{name}\" in table \"{}\", but it cannot be referenced from this part of the query.",
                        entry.alias
                    ));
                }
                found.add_all(entry, name, penalty);
            }
        }
        match (found.first, found.second) {
            (Some(first), Some(second)) => error.with_hint(format!(
                "Perhaps you meant to reference the column \"{}.{}\" or the column \"{}.{}\".",
                first.0, first.1, second.0, second.1
            )),
            (Some(first), None) => error
                .with_hint(format!("Perhaps you meant to reference the column \"{}.{}\".", first.0, first.1)),
            _ => error,
        }
    }

    /// 3F000 if the schema before a name does not exist.
    pub(super) fn check_schema(&self, qualifiers: &[Name], at: u32) -> Result<()> {
        match qualifiers.last().map(|schema| &*schema.text) {
            Some(schema) if !self.catalog.has_schema(schema) => {
                let message = format!("schema \"{schema}\" does not exist");
                Err(self.error(SqlState::INVALID_SCHEMA_NAME, message, at))
            }
            _ => Ok(()),
        }
    }

    /// 42P01 of a name before a dot.
    #[cold]
    pub(super) fn missing_table(&self, schema: Option<&str>, name: &str, at: u32) -> Error {
        let oid = self.catalog.relation(schema, name).ok().flatten().map(|relation| relation.oid);
        let is_meant = |entry: &&Table| {
            let by_relation = oid.is_some() && entry.relation.as_ref().map(|relation| relation.oid) == oid;
            by_relation || schema.is_none() && &*entry.alias == name
        };
        let meant = self.levels.iter().rev().find_map(|level| level.tables.iter().find(is_meant));
        let Some(entry) = meant else {
            let message = format!("missing FROM-clause entry for table \"{name}\"");
            return self.error(SqlState::UNDEFINED_TABLE, message, at);
        };
        let message = format!("invalid reference to FROM-clause entry for table \"{name}\"");
        let error = self.error(SqlState::UNDEFINED_TABLE, message, at);
        let is_hidden_by_alias = entry.has_alias
            && &*entry.alias != name
            && matches!(self.find_item(None, &entry.alias, at), Ok(Some(_)));
        if is_hidden_by_alias {
            error.with_hint(format!("Perhaps you meant to reference the table alias \"{}\".", entry.alias))
        } else {
            error.with_hint(format!(
                "There is an entry for table \"{}\", but it cannot be referenced from this part of the query.",
                entry.alias
            ))
        }
    }
}

impl Suggestions {
    fn add_all(&mut self, entry: &Table, name: &str, penalty: usize) {
        for column in entry.columns.iter() {
            if penalty > self.distance {
                return;
            }
            let distance = edits(&column.name, name);
            // More than half of the name is no suggestion.
            if distance > name.len() / 2 {
                continue;
            }
            let distance = distance + penalty;
            let suggestion = Some((entry.alias.clone(), column.name.clone()));
            if distance < self.distance {
                *self = Suggestions { distance, first: suggestion, second: None };
            } else if distance == self.distance {
                if self.second.is_some() {
                    // Too many.
                    *self = Suggestions { distance: distance.saturating_sub(1), first: None, second: None };
                } else if self.first.is_some() {
                    self.second = suggestion;
                } else if distance <= MOST_EDITS {
                    self.first = suggestion;
                }
            }
        }
    }
}

/// Levenshtein's distance.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (place, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (column, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
