//! What was read of a catalog by something that is kept, such as a plan, and whether another catalog has the same.
//!
//! A definition never changes: DDL puts another one in its place. So the address of a definition is the version of its object. It
//! cannot be used again as long as somebody holds the definition, and [`Dependencies`] hold those that were read.
//!
//! A name that was looked up in vain is a dependency as well: an object of that name, created later in a schema that comes first in
//! the search path, takes precedence over the one that was found. So are the foreign keys that reference a table.
//!
//! ```text
//! TrackedCatalog ── names, objects, foreign keys that are asked for ──▶ Dependencies ── hold_in ──▶ CatalogLookup of another catalog
//! ```

use crate::catalog::{Catalog, ConstraintKind, Oid, SchemaDef, SequenceDef, TableDef, ViewDef};
use firn_base::sync::Arc;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A relation of a catalog.
pub enum CatalogRelation<'c> {
    /// A table.
    Table(&'c Arc<TableDef>),
    /// A view.
    View(&'c Arc<ViewDef>),
    /// A sequence.
    Sequence(&'c Arc<SequenceDef>),
}

/// A catalog that records what is asked of it.
pub struct TrackedCatalog<'c> {
    catalog: &'c Catalog,
    read: RefCell<Dependencies>,
}

/// What was read of a catalog.
#[derive(Clone, Default, Debug)]
pub struct Dependencies {
    schemas: Vec<Arc<SchemaDef>>,
    tables: Vec<Arc<TableDef>>,
    views: Vec<Arc<ViewDef>>,
    sequences: Vec<Arc<SequenceDef>>,
    /// Schemas that there were not.
    absent_schemas: Vec<Box<str>>,
    /// Relations that a schema did not have.
    absent: Vec<(Oid, Box<str>)>,
    /// The tables with foreign keys that reference a table, in the order of their ids. Their definitions are among the tables.
    referencing: Vec<(Oid, Vec<Oid>)>,
}

/// A catalog in which dependencies are looked up.
pub struct CatalogLookup<'c> {
    catalog: &'c Catalog,
    /// What has been collected of it, if there are many look-ups.
    collected: Option<Collected<'c>>,
}

#[derive(Default)]
struct Collected<'c> {
    /// The names of its relations by their schemas.
    names: OnceCell<HashSet<(Oid, &'c str)>>,
    /// The tables that reference a table, in the order of their ids.
    referencing: OnceCell<HashMap<Oid, Vec<Oid>>>,
}

impl<'c> TrackedCatalog<'c> {
    /// Nothing has been read yet.
    pub fn new(catalog: &'c Catalog) -> TrackedCatalog<'c> {
        TrackedCatalog { catalog, read: RefCell::default() }
    }

    /// What has been read so far.
    pub fn dependencies(&self) -> Dependencies {
        self.read.borrow().clone()
    }

    /// The schema of that name.
    pub fn schema(&self, name: &str) -> Option<&'c Arc<SchemaDef>> {
        let found = self.catalog.schema(name);
        let mut read = self.read.borrow_mut();
        match found {
            Some(schema) => add(&mut read.schemas, schema),
            None if read.absent_schemas.iter().any(|absent| **absent == *name) => {}
            None => read.absent_schemas.push(name.into()),
        }
        found
    }

    /// The schema with that id.
    fn schema_of(&self, oid: Oid) -> Option<&'c Arc<SchemaDef>> {
        let schema = self.catalog.schemas.get(&oid)?;
        add(&mut self.read.borrow_mut().schemas, schema);
        Some(schema)
    }

    /// The relation of that name in a schema.
    pub fn relation(&self, schema: Oid, name: &str) -> Option<CatalogRelation<'c>> {
        let mut read = self.read.borrow_mut();
        if let Some(table) = self.catalog.table(schema, name) {
            add(&mut read.tables, table);
            return Some(CatalogRelation::Table(table));
        }
        if let Some(view) = self.catalog.view(schema, name) {
            add(&mut read.views, view);
            return Some(CatalogRelation::View(view));
        }
        if let Some(sequence) = self.catalog.sequence(schema, name) {
            add(&mut read.sequences, sequence);
            return Some(CatalogRelation::Sequence(sequence));
        }
        // Nobody can create anything in the schemas of the system.
        let can_appear = ![Oid::PG_CATALOG, Oid::INFORMATION_SCHEMA].contains(&schema);
        if can_appear && !read.absent.iter().any(|(of, absent)| *of == schema && **absent == *name) {
            read.absent.push((schema, name.into()));
        }
        None
    }

    /// The sequence that an identity column draws from, and its schema.
    pub fn sequence_of(&self, table: Oid, column: u16) -> Option<(&'c SequenceDef, &'c SchemaDef)> {
        let sequence = self.catalog.identity_sequence(table, column)?;
        add(&mut self.read.borrow_mut().sequences, sequence);
        Some((sequence, self.schema_of(sequence.schema)?))
    }

    /// Records what a change of rows of a table reads: its definition, those of the tables that it references, and those that
    /// reference it.
    pub fn record_change_of(&self, table: &Arc<TableDef>) {
        self.schema_of(table.schema);
        let referencing = referencing(self.catalog, table.oid);
        let mut read = self.read.borrow_mut();
        add(&mut read.tables, table);
        let parents = table.constraints.iter().filter_map(|constraint| match &constraint.kind {
            ConstraintKind::ForeignKey { parent, .. } => self.catalog.tables.get(parent),
            _ => None,
        });
        parents.for_each(|parent| add(&mut read.tables, parent));
        for child in &referencing {
            add(&mut read.tables, &self.catalog.tables[child]);
        }
        if !read.referencing.iter().any(|(of, _)| *of == table.oid) {
            read.referencing.push((table.oid, referencing));
        }
    }
}

impl Dependencies {
    /// Whether everything that was read is the same in another catalog.
    pub fn hold_in(&self, lookup: &CatalogLookup<'_>) -> bool {
        let catalog = lookup.catalog;
        are_same(&self.tables, &catalog.tables, |table| table.oid)
            && are_same(&self.schemas, &catalog.schemas, |schema| schema.oid)
            && are_same(&self.views, &catalog.views, |view| view.oid)
            && are_same(&self.sequences, &catalog.sequences, |sequence| sequence.oid)
            && self.absent_schemas.iter().all(|name| catalog.schema(name).is_none())
            && self.absent.iter().all(|(schema, name)| !lookup.has_relation(*schema, name))
            && self.referencing.iter().all(|(table, tables)| lookup.are_referencing(*table, tables))
    }
}

impl<'c> CatalogLookup<'c> {
    /// For the dependencies of one plan or so.
    pub fn of_few(catalog: &'c Catalog) -> CatalogLookup<'c> {
        CatalogLookup { catalog, collected: None }
    }

    /// For those of many plans: what they are looked up in is collected once.
    pub fn of_many(catalog: &'c Catalog) -> CatalogLookup<'c> {
        CatalogLookup { catalog, collected: Some(Collected::default()) }
    }

    /// The catalog.
    pub fn catalog(&self) -> &'c Catalog {
        self.catalog
    }

    fn has_relation(&self, schema: Oid, name: &str) -> bool {
        let catalog = self.catalog;
        let Some(collected) = &self.collected else {
            return catalog.table(schema, name).is_some()
                || catalog.view(schema, name).is_some()
                || catalog.sequence(schema, name).is_some();
        };
        let names = collected.names.get_or_init(|| {
            let Catalog { tables, views, sequences, .. } = catalog;
            let tables = tables.values().map(|table| (table.schema, table.name.as_str()));
            let views = views.values().map(|view| (view.schema, view.name.as_str()));
            let sequences = sequences.values().map(|sequence| (sequence.schema, sequence.name.as_str()));
            tables.chain(views).chain(sequences).collect()
        });
        names.contains(&(schema, name))
    }

    /// Whether these are the tables that reference a table, in the order of their ids.
    fn are_referencing(&self, table: Oid, expected: &[Oid]) -> bool {
        let Some(collected) = &self.collected else { return referencing(self.catalog, table) == expected };
        let all = collected.referencing.get_or_init(|| {
            let mut all: HashMap<Oid, Vec<Oid>> = HashMap::new();
            for child in self.catalog.tables.values() {
                for parent in parents(child) {
                    let children = all.entry(parent).or_default();
                    if children.last() != Some(&child.oid) {
                        children.push(child.oid);
                    }
                }
            }
            all
        });
        all.get(&table).map_or(&[][..], Vec::as_slice) == expected
    }
}

/// The tables that its foreign keys reference, those that several reference more than once.
fn parents(table: &TableDef) -> impl Iterator<Item = Oid> {
    table.constraints.iter().filter_map(|constraint| match constraint.kind {
        ConstraintKind::ForeignKey { parent, .. } => Some(parent),
        _ => None,
    })
}

/// The tables with foreign keys that reference a table, in the order of their ids.
fn referencing(catalog: &Catalog, table: Oid) -> Vec<Oid> {
    let refers = |child: &&Arc<TableDef>| parents(child).any(|parent| parent == table);
    catalog.tables.values().filter(refers).map(|child| child.oid).collect()
}

fn add<T>(known: &mut Vec<Arc<T>>, definition: &Arc<T>) {
    if !known.iter().any(|other| Arc::ptr_eq(other, definition)) {
        known.push(definition.clone());
    }
}

fn are_same<T>(read: &[Arc<T>], now: &BTreeMap<Oid, Arc<T>>, oid: impl Fn(&T) -> Oid) -> bool {
    read.iter().all(|definition| now.get(&oid(definition)).is_some_and(|now| Arc::ptr_eq(now, definition)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ConstraintDef, Deferral, ReferentialAction, TableSettings};

    fn table(oid: u32, schema: Oid, name: &str, parent: Option<u32>) -> TableDef {
        let reference = |parent| ConstraintDef {
            oid: Oid(oid + 1),
            name: "reference".into(),
            kind: ConstraintKind::ForeignKey {
                columns: vec![0],
                parent: Oid(parent),
                parent_columns: vec![0],
                on_delete: ReferentialAction::NoAction,
                on_update: ReferentialAction::NoAction,
                on_delete_columns: Vec::new(),
                match_full: false,
                deferral: Deferral::Never,
            },
            valid: true,
        };
        TableDef {
            oid: Oid(oid),
            schema,
            name: name.into(),
            columns: Vec::new(),
            constraints: parent.map(reference).into_iter().collect(),
            indexes: Vec::new(),
            storage: oid,
            settings: TableSettings::default(),
        }
    }

    fn put(catalog: &mut Catalog, table: TableDef) {
        catalog.tables.insert(table.oid, Arc::new(table));
    }

    /// Each change is made of the same catalog, in which everything holds.
    #[test]
    fn dependencies_hold_as_long_as_what_was_read_is_the_same() {
        const FIRST: Oid = Oid(20000);
        let mut catalog = Catalog::bootstrap();
        catalog.schemas.insert(FIRST, Arc::new(SchemaDef { oid: FIRST, name: "first".into() }));
        put(&mut catalog, table(20010, Oid::PUBLIC, "orders", None));
        put(&mut catalog, table(20020, Oid::PUBLIC, "lines", Some(20010)));
        put(&mut catalog, table(20030, Oid::PUBLIC, "others", None));
        let tracked = TrackedCatalog::new(&catalog);
        assert!(tracked.schema("missing").is_none());
        assert!(tracked.relation(tracked.schema("first").unwrap().oid, "orders").is_none());
        let public = tracked.schema("public").unwrap().oid;
        let Some(CatalogRelation::Table(orders)) = tracked.relation(public, "orders") else { panic!() };
        let read = tracked.dependencies();
        tracked.record_change_of(orders);
        let changed = tracked.dependencies();

        type Change = fn(&mut Catalog);
        // Whether those of a query of orders hold, and those of a change.
        let cases: [(&str, Change, bool, bool); 9] = [
            ("nothing", |_| (), true, true),
            ("another table", |c| put(c, table(20030, Oid::PUBLIC, "others", Some(20020))), true, true),
            ("the table", |c| put(c, table(20010, Oid::PUBLIC, "orders", None)), false, false),
            ("a table in its place", |c| put(c, table(20040, FIRST, "orders", None)), false, false),
            (
                "the referencing table",
                |c| put(c, table(20020, Oid::PUBLIC, "lines", Some(20010))),
                true,
                false,
            ),
            ("a reference more", |c| put(c, table(20030, Oid::PUBLIC, "others", Some(20010))), true, false),
            ("a reference less", |c| drop(c.tables.remove(&Oid(20020))), true, false),
            (
                "a schema",
                |c| {
                    let schema = SchemaDef { oid: Oid(20050), name: "missing".into() };
                    c.schemas.insert(schema.oid, Arc::new(schema));
                },
                false,
                false,
            ),
            ("the schema", |c| drop(c.schemas.remove(&Oid::PUBLIC)), false, false),
        ];
        for (name, change, reads, changes) in cases {
            let mut other = catalog.clone();
            change(&mut other);
            for lookup in [CatalogLookup::of_few(&other), CatalogLookup::of_many(&other)] {
                assert_eq!((read.hold_in(&lookup), changed.hold_in(&lookup)), (reads, changes), "{name}");
            }
        }
    }
}
