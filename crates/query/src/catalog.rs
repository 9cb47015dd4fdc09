//! The catalog of a transaction as the binder asks it.
//!
//! Unqualified names are looked up as PostgreSQL does: what a session has registered goes before all schemas, then come
//! `pg_catalog`, unless the search path names it, and the schemas of the search path.

use crate::relations::{FIRST_HELD, Found, Relations};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result, TextStyle, Type, TypeId};
use firn_bind::{Attribute, Catalog as Asked, FileArgument, Generated, Key, Relation, RelationKind};
use firn_executor::Source;
use firn_plan::operator::SourceId;
use firn_txn::Catalog;
use firn_txn::catalog::{
    ColumnDef, ConstraintKind, Deferral, Identity, IndexDef, Oid, SchemaDef, SequenceDef, TableDef, ViewDef,
};
use firn_txn::dependencies::{CatalogRelation, Dependencies, TrackedCatalog};
use firn_vector::Registry;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

const PG_CATALOG: &str = "pg_catalog";

/// The relations of how many tables a thread keeps.
const MOST_KNOWN_TABLES: usize = 32;

thread_local! {
    /// Relations of tables that statements of this thread have named, with the definitions that they were made of: a definition
    /// never changes, and a table whose definition has changed has another one.
    static KNOWN_TABLES: RefCell<VecDeque<(Arc<TableDef>, Arc<Relation>)>> = const { RefCell::new(VecDeque::new()) };
}

/// How a session sees names.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// Schemas in which unqualified names are looked up, in order.
    pub search_path: &'a [String],
    /// The name of the database.
    pub database: &'a str,
    /// How literals are read.
    pub literals: &'a TextStyle,
    /// How values that are folded are read and written.
    pub style: &'a TextStyle,
    /// What `now` in a literal means, if that is not for each execution to say.
    pub present: Option<i64>,
}

/// A catalog while a statement is bound.
pub struct Binding<'a> {
    registry: &'a Registry,
    catalog: TrackedCatalog<'a>,
    names: Names<'a>,
    others: &'a dyn Relations,
    found: RefCell<Cache>,
}

/// What has been found so far: a name means one relation in a statement, however often it is asked for.
#[derive(Default)]
struct Cache {
    held: HashMap<SourceId, Arc<dyn Source>>,
    by_name: HashMap<(Option<String>, String), Option<Arc<Relation>>>,
    files: HashMap<String, Option<Arc<Relation>>>,
}

impl<'a> Binding<'a> {
    /// A catalog as a session sees it.
    pub fn new(
        registry: &'a Registry,
        catalog: &'a Catalog,
        names: Names<'a>,
        others: &'a dyn Relations,
    ) -> Binding<'a> {
        let catalog = TrackedCatalog::new(catalog);
        Binding { registry, catalog, names, others, found: RefCell::default() }
    }

    /// What has been read of the catalog so far.
    pub fn dependencies(&self) -> Dependencies {
        self.catalog.dependencies()
    }

    /// Records what a change of rows of a table reads of the catalog.
    pub(crate) fn record_change_of(&self, table: &Arc<TableDef>) {
        self.catalog.record_change_of(table);
    }

    /// The sources that the plan has to hold.
    pub fn held(&self) -> HashMap<SourceId, Arc<dyn Source>> {
        self.found.borrow().held.clone()
    }

    /// The text of a column's default; of an identity column the call that draws from its sequence.
    pub fn default_of(&self, table: &TableDef, column: ColumnId) -> Option<String> {
        let definition = &table.columns[column.index()];
        match definition.identity {
            None => definition.default.clone(),
            Some(_) => {
                let found = self.catalog.sequence_of(table.oid, column.0);
                found.map(|(sequence, schema)| next_value(sequence, schema))
            }
        }
    }

    /// Keeps the source of a relation that was found, under a number of its own.
    fn keep(&self, found: Found) -> Arc<Relation> {
        let Some(source) = found.source else { return found.relation };
        let mut kept = self.found.borrow_mut();
        let id = SourceId(FIRST_HELD + kept.held.len() as u32);
        kept.held.insert(id, source);
        Arc::new(Relation { kind: RelationKind::Source(id), ..(*found.relation).clone() })
    }

    fn look_up(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        if let Some(schema) = schema {
            return self.in_schema(schema, name);
        }
        if let Some(found) = self.others.relation(None, name)? {
            return Ok(Some(self.keep(found)));
        }
        let path = self.names.search_path.iter().map(String::as_str);
        let first = (!path.clone().any(|schema| schema == PG_CATALOG)).then_some(PG_CATALOG);
        for schema in first.into_iter().chain(path) {
            if let Some(found) = self.in_schema(schema, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn in_schema(&self, schema: &str, name: &str) -> Result<Option<Arc<Relation>>> {
        if let Some(found) = self.others.relation(Some(schema), name)? {
            return Ok(Some(self.keep(found)));
        }
        let Some(definition) = self.catalog.schema(schema) else { return Ok(None) };
        let found = self.catalog.relation(definition.oid, name);
        Ok(found.map(|relation| match relation {
            CatalogRelation::Table(table) => self.known_table(schema, table),
            CatalogRelation::View(view) => Arc::new(self.view(schema, view)),
            CatalogRelation::Sequence(sequence) => Arc::new(sequence_relation(schema, sequence)),
        }))
    }

    /// The relation of a table. Of a definition that this thread has met lately it is the same one.
    fn known_table(&self, schema: &str, table: &Arc<TableDef>) -> Arc<Relation> {
        // The default of an identity column names its sequence, which has another definition.
        if table.columns.iter().any(|column| column.identity.is_some()) {
            return Arc::new(self.table(schema, table));
        }
        KNOWN_TABLES.with_borrow_mut(|known| {
            let is_it = |(definition, relation): &(Arc<TableDef>, Arc<Relation>)| {
                Arc::ptr_eq(definition, table) && *relation.schema == *schema
            };
            if let Some((_, relation)) = known.iter().find(|entry| is_it(entry)) {
                return relation.clone();
            }
            let relation = Arc::new(self.table(schema, table));
            if known.len() == MOST_KNOWN_TABLES {
                known.pop_front();
            }
            known.push_back((table.clone(), relation.clone()));
            relation
        })
    }

    fn table(&self, schema: &str, table: &TableDef) -> Relation {
        let attribute = |(id, column): (ColumnId, &ColumnDef)| {
            let generated = match column.identity {
                None if column.generated.is_some() => Generated::Stored,
                None => Generated::No,
                Some(Identity::Always) => Generated::IdentityAlways,
                Some(Identity::ByDefault) => Generated::IdentityByDefault,
            };
            let default = match generated {
                Generated::Stored => column.generated.as_deref().map(Arc::from),
                _ => self.default_of(table, id).map(Arc::from),
            };
            Attribute {
                number: id.0 as i16 + 1,
                name: column.name.as_str().into(),
                ty: column.ty.declared,
                not_null: column.not_null,
                default,
                generated,
            }
        };
        let key = |index: &IndexDef| Key {
            index: index.oid.0,
            name: index.name.as_str().into(),
            columns: key_columns(table, index, false).map(|column| column as i16 + 1).collect(),
            expressions: key_columns(table, index, true)
                .filter_map(|column| table.columns[usize::from(column)].generated.as_deref().map(Arc::from))
                .collect(),
            is_primary: is_primary(table, index.oid),
            is_deferrable: index.deferral != Deferral::Never,
            nulls_not_distinct: index.nulls_not_distinct,
            condition: index.condition.as_deref().map(Arc::from),
        };
        Relation {
            oid: table.oid.0,
            schema: schema.into(),
            name: table.name.as_str().into(),
            kind: RelationKind::Table(SourceId(table.oid.0)),
            columns: table.visible_columns().map(attribute).collect(),
            keys: table.indexes.iter().filter(|index| index.unique).map(key).collect(),
            has_system_columns: false,
        }
    }

    fn view(&self, schema: &str, view: &ViewDef) -> Relation {
        let attribute = |(number, column): (i16, &ColumnDef)| Attribute {
            number,
            name: column.name.as_str().into(),
            ty: column.ty.declared,
            not_null: false,
            default: None,
            generated: Generated::No,
        };
        Relation {
            oid: view.oid.0,
            schema: schema.into(),
            name: view.name.as_str().into(),
            kind: RelationKind::View(view.query.as_str().into()),
            columns: (1..).zip(&view.columns).map(attribute).collect(),
            keys: Vec::new(),
            has_system_columns: false,
        }
    }
}

/// The call that draws from a sequence.
fn next_value(sequence: &SequenceDef, schema: &SchemaDef) -> String {
    let name = format!("{}.{}", quoted(&schema.name), quoted(&sequence.name));
    format!("nextval('{}'::regclass)", name.replace('\'', "''"))
}

/// The attributes of a sequence as a relation, with their types.
pub const SEQUENCE_COLUMNS: [(&str, TypeId); 3] =
    [("last_value", TypeId::INT8), ("log_cnt", TypeId::INT8), ("is_called", TypeId::BOOL)];

/// A sequence as a relation of one row. Its source is found by its oid when the statement runs.
fn sequence_relation(schema: &str, sequence: &SequenceDef) -> Relation {
    let attribute = |(number, (name, ty)): (i16, (&str, TypeId))| Attribute {
        number,
        name: name.into(),
        ty: Type::new(ty),
        not_null: true,
        default: None,
        generated: Generated::No,
    };
    Relation {
        oid: sequence.oid.0,
        schema: schema.into(),
        name: sequence.name.as_str().into(),
        kind: RelationKind::Source(SourceId(sequence.oid.0)),
        columns: (1..).zip(SEQUENCE_COLUMNS).map(attribute).collect(),
        keys: Vec::new(),
        has_system_columns: false,
    }
}

/// An identifier in quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of an index's key that are hidden, or those that are not.
fn key_columns<'t>(
    table: &'t TableDef,
    index: &'t IndexDef,
    hidden: bool,
) -> impl Iterator<Item = u16> + use<'t> {
    let columns = index.key_columns().iter().map(|column| column.column);
    columns.filter(move |column| table.columns[usize::from(*column)].hidden == hidden)
}

fn is_primary(table: &TableDef, index: Oid) -> bool {
    let is_key =
        |kind: &ConstraintKind| matches!(kind, ConstraintKind::PrimaryKey { index: of } if *of == index);
    table.constraints.iter().any(|constraint| is_key(&constraint.kind))
}

impl Asked for Binding<'_> {
    fn registry(&self) -> &Registry {
        self.registry
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        let key = (schema.map(str::to_owned), name.to_owned());
        if let Some(found) = self.found.borrow().by_name.get(&key) {
            return Ok(found.clone());
        }
        let found = self.look_up(schema, name)?;
        self.found.borrow_mut().by_name.insert(key, found.clone());
        Ok(found)
    }

    fn has_schema(&self, name: &str) -> bool {
        self.catalog.schema(name).is_some() || self.others.has_schema(name)
    }

    #[expect(clippy::misnamed_getters, reason = "the binder asks for the style of literals alone")]
    fn style(&self) -> &TextStyle {
        self.names.literals
    }

    fn present(&self) -> Option<i64> {
        self.names.present
    }

    fn database(&self) -> &str {
        self.names.database
    }

    fn file(&self, pattern: &str) -> Result<Option<Arc<Relation>>> {
        if let Some(found) = self.found.borrow().files.get(pattern) {
            return Ok(found.clone());
        }
        let found = self.others.file(pattern)?.map(|found| self.keep(found));
        self.found.borrow_mut().files.insert(pattern.to_owned(), found.clone());
        Ok(found)
    }

    fn reads_files(&self, function: &str) -> bool {
        self.others.reads_files(function)
    }

    fn file_function(&self, function: &str, arguments: &[FileArgument<'_>]) -> Result<Arc<Relation>> {
        Ok(self.keep(self.others.file_function(function, arguments)?))
    }
}
