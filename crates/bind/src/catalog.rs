//! What the binder asks of the catalog.
//!
//! A catalog is a snapshot: the same question has the same answer while a statement is bound.

use firn_base::{Result, TextStyle, Type, TypeId, Value};
use firn_plan::operator::SourceId;
use firn_vector::Registry;
use std::sync::Arc;

/// Relations, types and functions, as one session sees them at one time.
pub trait Catalog {
    /// Functions, operators and casts.
    fn registry(&self) -> &Registry;

    /// The relation of that name: in the schema, or in the first schema of the search path that has it.
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>>;

    /// Whether there is a schema of that name.
    fn has_schema(&self, name: &str) -> bool;

    /// How the session reads literals.
    fn style(&self) -> &TextStyle {
        &TextStyle::DEFAULT
    }

    /// What `now` in a literal means, in microseconds since 1970 UTC; `None` if each execution has its own.
    fn present(&self) -> Option<i64> {
        None
    }

    /// The name of the database, which may stand before a schema.
    fn database(&self) -> &str;

    /// A type that is not built in.
    fn type_named(&self, schema: Option<&str>, name: &str) -> Option<TypeId> {
        let _ = (schema, name);
        None
    }

    /// A file, or the files of a pattern, as a relation. The dialect has it, PostgreSQL does not.
    fn file(&self, pattern: &str) -> Result<Option<Arc<Relation>>> {
        let _ = pattern;
        Ok(None)
    }

    /// Whether a function in FROM reads files. The dialect has such functions, PostgreSQL does not.
    fn reads_files(&self, function: &str) -> bool {
        let _ = function;
        false
    }

    /// The files that such a function reads, as a relation.
    fn file_function(&self, function: &str, arguments: &[FileArgument<'_>]) -> Result<Arc<Relation>> {
        let _ = arguments;
        panic!("function {function} reads no files")
    }

    /// The indexes that a constraint or unique index of a relation stands for: `ON CONFLICT ON CONSTRAINT`.
    fn constraint(&self, relation: &Relation, name: &str) -> Option<Key> {
        let is_constraint = |key: &&Key| key.condition.is_none() && key.expressions.is_empty();
        relation.keys.iter().filter(is_constraint).find(|key| *key.name == *name).cloned()
    }

    /// The column with the rows' ids of a cursor's current row: what `WHERE CURRENT OF` compares.
    fn cursor(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }
}

/// An argument of a function that reads files.
pub struct FileArgument<'a> {
    /// `name => value`
    pub name: Option<&'a str>,
    /// Its value: a string, a truth value, a whole number, or an array of these. `None` of everything else.
    pub value: Option<Value>,
    /// The character of the statement at which it begins, from 1; `None` in a view.
    pub position: Option<u32>,
}

/// A relation: what FROM can name.
#[derive(Clone, Debug)]
pub struct Relation {
    /// `pg_class.oid`.
    pub oid: u32,
    /// The schema's name.
    pub schema: Arc<str>,
    /// The relation's name.
    pub name: Arc<str>,
    /// What it is.
    pub kind: RelationKind,
    /// The columns, in the order of their numbers.
    pub columns: Vec<Attribute>,
    /// Primary keys, unique constraints and unique indexes.
    pub keys: Vec<Key>,
    /// Whether its rows have the system columns of tables though it is none, as those of catalogs do. Its source gives them.
    pub has_system_columns: bool,
}

/// What a relation is.
#[derive(Clone, Debug, PartialEq)]
pub enum RelationKind {
    /// Rows with ids that can be changed.
    Table(SourceId),
    /// Rows that can be read: catalogs, files, frames.
    Source(SourceId),
    /// A query, as canonical text.
    View(Arc<str>),
}

/// A column of a relation.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// `pg_attribute.attnum`.
    pub number: i16,
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Type,
    /// NOT NULL
    pub not_null: bool,
    /// DEFAULT, or the expression of a generated column, as canonical text.
    pub default: Option<Arc<str>>,
    /// Where its values come from.
    pub generated: Generated,
}

/// Where the values of a column come from if no statement gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generated {
    /// From its default.
    No,
    /// From the other columns, always.
    Stored,
    /// From a sequence, unless OVERRIDING SYSTEM VALUE is said.
    IdentityAlways,
    /// From a sequence, if no value is given.
    IdentityByDefault,
}

/// A unique index.
#[derive(Clone, Debug)]
pub struct Key {
    /// `pg_class.oid` of the index.
    pub index: u32,
    /// The name of the index and of its constraint.
    pub name: Arc<str>,
    /// The numbers of its columns.
    pub columns: Vec<i16>,
    /// Its expressions, as canonical text.
    pub expressions: Vec<Arc<str>>,
    /// PRIMARY KEY
    pub is_primary: bool,
    /// DEFERRABLE
    pub is_deferrable: bool,
    /// Whether NULLs are equal to each other.
    pub nulls_not_distinct: bool,
    /// The condition of a partial index, as canonical text.
    pub condition: Option<Arc<str>>,
}

impl Relation {
    /// The column of that name, and its position.
    pub fn column(&self, name: &str) -> Option<(usize, &Attribute)> {
        self.columns.iter().enumerate().find(|(_, column)| *column.name == *name)
    }

    /// The source of its rows, unless it is a view.
    pub fn source(&self) -> Option<SourceId> {
        match self.kind {
            RelationKind::Table(source) | RelationKind::Source(source) => Some(source),
            RelationKind::View(_) => None,
        }
    }
}
