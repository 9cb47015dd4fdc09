//! Resolves names to catalog objects, along the search path.
//!
//! Tables, views, sequences and indexes of one schema share their names, as in PostgreSQL.

use crate::session_facts::SessionFacts;
use crate::sources::Sources;
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_txn::Catalog;
use firn_txn::catalog::{Deferral, IndexDef, Oid, SchemaDef, SequenceDef, TableDef, ViewDef};

/// The relation that a name in a schema denotes.
#[derive(Clone, Debug)]
pub enum Relation {
    /// A table.
    Table(Arc<TableDef>),
    /// A view.
    View(Arc<ViewDef>),
    /// A sequence.
    Sequence(Arc<SequenceDef>),
    /// An index, with its table.
    Index(Arc<TableDef>, IndexDef),
}

impl Relation {
    /// Which kind it is.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Relation::Table(_) => ObjectKind::Table,
            Relation::View(_) => ObjectKind::View,
            Relation::Sequence(_) => ObjectKind::Sequence,
            Relation::Index(..) => ObjectKind::Index,
        }
    }

    /// Its schema.
    pub fn schema(&self) -> Oid {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.schema,
            Relation::View(view) => view.schema,
            Relation::Sequence(sequence) => sequence.schema,
        }
    }
}

/// A catalog with the schemas in which unqualified names are looked up.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// The schemas, in order.
    search_path: &'a [String],
    /// The sources, which take precedence over all schemas.
    sources: Option<&'a Sources>,
}

impl<'a> Names<'a> {
    /// Names in the context of a session.
    pub fn new(catalog: &'a Catalog, facts: &'a SessionFacts) -> Names<'a> {
        Names { catalog, search_path: &facts.search_path, sources: Some(&facts.sources) }
    }

    /// Names that include their schema.
    pub fn qualified(catalog: &'a Catalog) -> Names<'a> {
        Names { catalog, search_path: &[], sources: None }
    }

    /// Sources can only be read, and readers search them first ([`Sources::find`]): 42809 for other uses.
    pub fn refuse_source(&self, name: &QualifiedName) -> Result<()> {
        match self.sources.and_then(|sources| sources.find(name.schema.as_deref(), &name.name)) {
            None => Ok(()),
            Some(_) => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{}\" is a registered source, which can only be read by queries", name.name),
            )
            .with_hint("A table of that name can be reached by its schema.")),
        }
    }

    /// The schema of that name; 3F000 without one.
    pub fn schema(&self, name: &str) -> Result<&'a Arc<SchemaDef>> {
        self.find_schema(name).ok_or_else(|| {
            Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
        })
    }

    /// The schema of that name, if there is one.
    pub fn find_schema(&self, name: &str) -> Option<&'a Arc<SchemaDef>> {
        self.catalog.schema(name)
    }

    /// The schema in which an object of that name is created.
    pub fn creation_schema(&self, name: &QualifiedName) -> Result<Oid> {
        let schema = match &name.schema {
            Some(schema) => self.schema(schema)?,
            None => self.search_path.iter().find_map(|schema| self.find_schema(schema)).ok_or_else(|| {
                Error::new(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
            })?,
        };
        if [Oid::PG_CATALOG, Oid::INFORMATION_SCHEMA].contains(&schema.oid) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to create \"{}.{}\"", schema.name, name.name),
            )
            .with_detail("System catalog modifications are currently disallowed."));
        }
        Ok(schema.oid)
    }

    /// The relation with a name in one schema.
    pub fn relation_in(&self, schema: Oid, name: &str) -> Option<Relation> {
        let catalog = self.catalog;
        if let Some(table) = catalog.table(schema, name) {
            return Some(Relation::Table(table.clone()));
        }
        if let Some(view) = catalog.view(schema, name) {
            return Some(Relation::View(view.clone()));
        }
        if let Some(sequence) = catalog.sequence(schema, name) {
            return Some(Relation::Sequence(sequence.clone()));
        }
        let (table, index) = catalog.index(schema, name)?;
        Some(Relation::Index(table.clone(), index.clone()))
    }

    /// The relation that a name denotes; `None` if its schema does not exist either.
    pub fn find(&self, name: &QualifiedName) -> Option<Relation> {
        match &name.schema {
            Some(schema) => self.relation_in(self.find_schema(schema)?.oid, &name.name),
            None => self.search_path.iter().find_map(|schema| {
                let schema = self.find_schema(schema)?;
                self.relation_in(schema.oid, &name.name)
            }),
        }
    }

    /// The relation that a name denotes; 42P01 if there is none, 3F000 if its schema does not exist.
    pub fn relation(&self, name: &QualifiedName) -> Result<Relation> {
        self.refuse_source(name)?;
        self.find(name).ok_or_else(|| self.missing_relation(name))
    }

    /// The error for a name that denotes nothing: 3F000 if its schema does not exist, else 42P01.
    pub fn missing_relation(&self, name: &QualifiedName) -> Error {
        self.check_schema(name).err().unwrap_or_else(|| {
            let message = format!("relation \"{name}\" does not exist");
            Error::new(SqlState::UNDEFINED_TABLE, message)
        })
    }

    /// The error of DROP for an object that does not exist.
    pub fn missing(&self, kind: ObjectKind, name: &QualifiedName) -> Error {
        let state = match kind {
            ObjectKind::Index => SqlState::UNDEFINED_OBJECT,
            ObjectKind::Schema => SqlState::INVALID_SCHEMA_NAME,
            _ => SqlState::UNDEFINED_TABLE,
        };
        self.check_schema(name)
            .err()
            .unwrap_or_else(|| Error::new(state, format!("{} \"{}\" does not exist", kind.word(), name.name)))
    }

    /// 3F000 if a name has a schema that does not exist.
    pub fn check_schema(&self, name: &QualifiedName) -> Result<()> {
        name.schema.as_deref().map_or(Ok(()), |schema| self.schema(schema).map(|_| ()))
    }

    /// The object of that kind; 42809 if the name denotes another kind.
    pub fn object(&self, kind: ObjectKind, name: &QualifiedName) -> Result<Relation> {
        self.refuse_source(name)?;
        match self.find(name) {
            Some(relation) if relation.kind() == kind => Ok(relation),
            Some(_) => Err(wrong_kind(kind, &name.name)),
            None => Err(self.missing(kind, name)),
        }
    }

    /// The table of that name.
    pub fn table(&self, name: &QualifiedName) -> Result<Arc<TableDef>> {
        match self.relation(name)? {
            Relation::Table(table) => Ok(table),
            _ => Err(wrong_kind(ObjectKind::Table, &name.name)),
        }
    }

    /// The sequence of that name.
    pub fn sequence(&self, name: &QualifiedName) -> Result<Arc<SequenceDef>> {
        match self.relation(name)? {
            Relation::Sequence(sequence) => Ok(sequence),
            _ => Err(wrong_kind(ObjectKind::Sequence, &name.name)),
        }
    }

    /// The constraints that SET CONSTRAINTS names. Tables of one schema may have constraints with one name: it means
    /// all of them. 42704 if there is none, 42809 if one that is not deferrable is to be deferred.
    pub fn constraints_to_set(&self, names: &[QualifiedName], deferred: bool) -> Result<Vec<Oid>> {
        let mut all = Vec::new();
        for name in names {
            let in_schema = |schema: Oid| -> Vec<(Oid, Deferral)> {
                let tables = self.catalog.tables.values().filter(|table| table.schema == schema);
                let named = |table: &'a Arc<TableDef>| {
                    let constraints = table.constraints.iter().filter(|found| found.name == name.name);
                    constraints.map(|constraint| (constraint.oid, table.deferral(constraint)))
                };
                tables.flat_map(named).collect()
            };
            let found = match &name.schema {
                Some(schema) => in_schema(self.schema(schema)?.oid),
                None => {
                    let schemas = self.search_path.iter().filter_map(|schema| self.find_schema(schema));
                    schemas
                        .map(|schema| in_schema(schema.oid))
                        .find(|found| !found.is_empty())
                        .unwrap_or_default()
                }
            };
            if found.is_empty() {
                return Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("constraint \"{}\" does not exist", name.name),
                ));
            }
            if deferred && found.iter().any(|(_, deferral)| *deferral == Deferral::Never) {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("constraint \"{}\" is not deferrable", name.name),
                ));
            }
            all.extend(found.iter().map(|(constraint, _)| *constraint));
        }
        Ok(all)
    }

    /// A name that no relation has in the schema: `stem_suffix`, else with a number appended, truncated to
    /// PostgreSQL's 63 bytes.
    pub fn fresh(&self, schema: Oid, stem: &str, suffix: &str, taken: &[String]) -> String {
        for number in 0.. {
            let tail = if number == 0 { format!("_{suffix}") } else { format!("_{suffix}{number}") };
            let mut head = stem.to_owned();
            while head.len() + tail.len() > NAME_BYTES {
                head.pop();
            }
            let name = head + &tail;
            if self.relation_in(schema, &name).is_none() && !taken.contains(&name) {
                return name;
            }
        }
        unreachable!("there are more numbers than names")
    }
}

/// The longest name, as in PostgreSQL.
pub const NAME_BYTES: usize = 63;

/// 42809
pub fn wrong_kind(kind: ObjectKind, name: &str) -> Error {
    let article = if kind == ObjectKind::Index { "an" } else { "a" };
    Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {article} {}", kind.word()))
}

/// 42703
pub fn missing_column(table: &TableDef, column: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column \"{column}\" of relation \"{}\" does not exist", table.name),
    )
}

/// Parses a name in the form of `nextval`'s argument: `s`, `schema.s`, `"S"`.
pub fn parse_qualified(text: &str) -> Result<QualifiedName> {
    let invalid = || Error::new(SqlState::new("42602"), "invalid name syntax");
    let mut parts = Vec::new();
    let mut characters = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if characters.next_if_eq(&'"').is_some() {
            loop {
                match characters.next().ok_or_else(invalid)? {
                    '"' if characters.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    other => part.push(other),
                }
            }
        } else {
            while let Some(next) = characters.next_if(|next| *next != '.' && *next != '"') {
                part.extend(next.to_lowercase());
            }
        }
        if part.is_empty() {
            return Err(invalid());
        }
        parts.push(part);
        match characters.next() {
            None => break,
            Some('.') => {}
            Some(_) => return Err(invalid()),
        }
    }
    let name = parts.pop().ok_or_else(invalid)?;
    Ok(QualifiedName { schema: parts.pop(), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_strings_fold_unless_quoted() {
        let name = |schema: Option<&str>, name: &str| QualifiedName {
            schema: schema.map(str::to_owned),
            name: name.to_owned(),
        };
        assert_eq!(parse_qualified("Seq").unwrap(), name(None, "seq"));
        assert_eq!(parse_qualified("a.\"B.\"\"c\"").unwrap(), name(Some("a"), "B.\"c"));
        for bad in ["", "a.", "\"a", "a\"b\""] {
            assert!(parse_qualified(bad).is_err(), "{bad}");
        }
    }
}
