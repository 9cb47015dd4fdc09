//! Tables compiled for writing.
//!
//! A [`Target`] holds what every change of a table needs and the catalog only describes: defaults
//! and CHECK conditions as row expressions, foreign keys resolved to physical tables and indexes.
//! A statement writes through a [`TargetSet`]: its table, and every table that the referential
//! actions of foreign keys (cascade, set null, set default) may lead to.
//!
//! A set belongs to one version of the catalog; whoever caches it drops it when the version moves.

use super::writer::Cells;
use crate::expression::RowExpression;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Error, Result, SqlType, TableId, Value};
use firn_storage::{Index, KeyBuffer, Table};
use firn_txn::Catalog;
use firn_txn::catalog::{
    ConstraintDef, ConstraintKind, Deferral, Identity, IndexDef, Oid, ReferentialAction, TableDef,
};
use std::collections::BTreeMap;

/// Compiles the SQL text that the catalog holds.
pub trait TextCompiler {
    /// A CHECK condition over a row of all columns of `table`, in storage order.
    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<RowExpression>;

    /// The DEFAULT of a column: an expression over no columns at all.
    fn default(&self, table: &Arc<TableDef>, column: ColumnId, expression: &str) -> Result<RowExpression>;

    /// The physical table of an id.
    fn table(&self, id: TableId) -> Arc<Table>;
}

/// The tables that one statement may write to; the first is the one it names.
pub struct TargetSet {
    targets: Vec<Target>,
}

/// A table compiled for writing.
pub struct Target {
    pub(crate) definition: Arc<TableDef>,
    /// The name of its schema, for errors.
    pub(crate) schema: String,
    pub(crate) table: Arc<Table>,
    /// All columns, dropped ones included, in storage order.
    pub(crate) columns: Vec<TargetColumn>,
    /// The ids of all columns: what reading a whole row asks for.
    pub(crate) all_columns: Vec<ColumnId>,
    pub(crate) checks: Vec<Check>,
    pub(crate) references: Vec<Reference>,
    pub(crate) referrers: Vec<Referrer>,
    pub(crate) unique: Vec<UniqueIndex>,
    /// Those whose keys are tested when a statement or the transaction ends.
    pub(crate) late_keys: Vec<LateKey>,
}

/// A column as writing sees it.
#[derive(Debug)]
pub(crate) struct TargetColumn {
    pub ty: SqlType,
    pub not_null: bool,
    /// NULL without one.
    pub default: Option<RowExpression>,
    pub always_generated: bool,
}

/// A CHECK constraint.
#[derive(Debug)]
pub(crate) struct Check {
    pub name: String,
    pub condition: RowExpression,
}

/// A unique index.
pub(crate) struct UniqueIndex {
    pub name: String,
    pub oid: Oid,
    pub index: Arc<Index>,
    pub columns: Vec<ColumnId>,
    /// Whether rows may share a key for a while.
    pub is_deferrable: bool,
}

impl UniqueIndex {
    /// The key of a row, unless it holds a NULL and so conflicts with no other.
    pub fn key(&self, cells: &[Cell<'_>]) -> Option<KeyBuffer> {
        let parts: Cells<'_> = self.columns.iter().map(|column| cells[column.index()]).collect();
        let mut key = KeyBuffer::new();
        self.index.encode(&parts, &mut key);
        (!parts.iter().any(Cell::is_null)).then_some(key)
    }
}

/// A deferrable PRIMARY KEY or UNIQUE.
pub(crate) struct LateKey {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    /// Its index, which lists any number of rows under a key.
    pub index: Arc<Index>,
    pub columns: Vec<ColumnId>,
    pub column_types: Vec<SqlType>,
}

/// A foreign key of the table: its rows point at rows of `parent`.
pub(crate) struct Reference {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    pub columns: Vec<ColumnId>,
    pub parent_name: String,
    pub parent: Arc<Table>,
    /// The unique index over the parent's columns that the key points to.
    pub index: Arc<Index>,
    /// For each column of the index: which of `columns` it corresponds to, and its type.
    pub key: Vec<(usize, SqlType)>,
    /// Whether the table points at itself.
    pub to_itself: bool,
}

/// A foreign key that points at the table: rows of `child` point at its rows.
pub(crate) struct Referrer {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    pub own_table: Arc<Table>,
    /// The columns of this table that are pointed to.
    pub columns: Vec<ColumnId>,
    pub column_types: Vec<SqlType>,
    /// The unique index over them, and the order in which it wants them.
    pub own_index: Arc<Index>,
    pub own_key: Vec<usize>,
    pub child_name: String,
    pub child: Arc<Table>,
    /// The child's columns, in the order of `columns`.
    pub child_columns: Vec<ColumnId>,
    pub child_types: Vec<SqlType>,
    /// An index of the child that begins with `child_columns` in some order, and that order.
    pub child_index: Option<(Arc<Index>, Vec<usize>)>,
    /// Where the child stands in the set, if an action may change it.
    pub child_target: Option<usize>,
    pub on_delete: ReferentialAction,
    pub on_update: ReferentialAction,
}

/// Whether an action changes the pointing rows.
pub(crate) fn changes_child(action: ReferentialAction) -> bool {
    match action {
        ReferentialAction::NoAction | ReferentialAction::Restrict => false,
        ReferentialAction::Cascade | ReferentialAction::SetNull | ReferentialAction::SetDefault => true,
    }
}

impl TargetSet {
    /// Compiles `table` and what its referential actions lead to.
    pub fn compile(
        catalog: &Catalog,
        table: &Arc<TableDef>,
        compiler: &dyn TextCompiler,
    ) -> Result<Arc<TargetSet>> {
        // First find out which tables there are, so that foreign keys can name them by position.
        let mut definitions = vec![table.clone()];
        let mut positions = BTreeMap::from([(table.oid, 0)]);
        let mut next = 0;
        while next < definitions.len() {
            let parent = definitions[next].oid;
            for (child, _, actions) in referring(catalog, parent) {
                if actions.into_iter().any(changes_child) && !positions.contains_key(&child.oid) {
                    positions.insert(child.oid, definitions.len());
                    definitions.push(child.clone());
                }
            }
            next += 1;
        }
        let targets = definitions
            .iter()
            .map(|definition| Target::compile(catalog, definition, &positions, compiler))
            .collect::<Result<_>>()?;
        Ok(Arc::new(TargetSet { targets }))
    }

    /// Whether the statement may write to a table.
    pub fn writes_to(&self, table: Oid) -> bool {
        self.targets.iter().any(|target| target.definition.oid == table)
    }

    /// Whether rows can be inserted into the table that the statement names without a look at any other row but those under
    /// their keys: neither foreign keys nor keys that are tested later ask for one.
    pub fn inserts_blindly(&self) -> bool {
        self.root().references.is_empty() && self.root().late_keys.is_empty()
    }

    /// The table that the statement names.
    pub fn root(&self) -> &Target {
        &self.targets[0]
    }

    pub(crate) fn target(&self, position: usize) -> &Target {
        &self.targets[position]
    }
}

/// The foreign keys that point at `parent`: the child, the name, the actions on delete and update.
pub fn referring(
    catalog: &Catalog,
    parent: Oid,
) -> impl Iterator<Item = (&Arc<TableDef>, &ConstraintDef, [ReferentialAction; 2])> {
    catalog.tables.values().flat_map(move |child| {
        child.constraints.iter().filter_map(move |constraint| match &constraint.kind {
            ConstraintKind::ForeignKey { parent: pointed_to, on_delete, on_update, .. }
                if *pointed_to == parent =>
            {
                Some((child, constraint, [*on_delete, *on_update]))
            }
            _ => None,
        })
    })
}

impl Target {
    fn compile(
        catalog: &Catalog,
        definition: &Arc<TableDef>,
        positions: &BTreeMap<Oid, usize>,
        compiler: &dyn TextCompiler,
    ) -> Result<Target> {
        let tables = |id| compiler.table(id);
        let table = tables(definition.storage());
        let mut columns = Vec::with_capacity(definition.columns.len());
        for (position, column) in definition.columns.iter().enumerate() {
            let id = ColumnId(position as u16);
            let default = match &column.default {
                _ if column.dropped => None,
                Some(text) => Some(compiler.default(definition, id, text)?),
                None if column.identity.is_some() => {
                    Some(RowExpression::next_value(identity_sequence(catalog, definition, id)))
                }
                None => None,
            };
            columns.push(TargetColumn {
                ty: column.ty.to_sql_type()?,
                not_null: column.not_null && !column.dropped,
                default,
                always_generated: column.identity == Some(Identity::Always),
            });
        }
        let mut checks = Vec::new();
        let mut references = Vec::new();
        let mut late_keys = Vec::new();
        for constraint in &definition.constraints {
            match &constraint.kind {
                ConstraintKind::Check { expression } => checks.push(Check {
                    name: constraint.name.clone(),
                    condition: compiler.check(definition, expression)?,
                }),
                ConstraintKind::ForeignKey { .. } => {
                    references.push(Reference::compile(catalog, definition, constraint, &tables)?);
                }
                ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. } => {
                    late_keys.extend(LateKey::compile(definition, constraint, &tables)?);
                }
            }
        }
        let referrers = referring(catalog, definition.oid)
            .map(|(child, constraint, _)| {
                let child_target = positions.get(&child.oid).copied();
                Referrer::compile(definition, child, constraint, child_target, &tables)
            })
            .collect::<Result<_>>()?;
        let unique = definition
            .indexes
            .iter()
            .filter(|index| index.unique)
            .map(|index| {
                Ok(UniqueIndex {
                    name: index.name.clone(),
                    oid: index.oid,
                    index: physical_index(&table, index)?,
                    columns: index.columns.iter().map(|column| ColumnId(column.column)).collect(),
                    is_deferrable: !index.is_always_unique(),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Target {
            definition: definition.clone(),
            schema: catalog
                .schemas
                .get(&definition.schema)
                .map_or_else(String::new, |schema| schema.name.clone()),
            all_columns: (0..columns.len()).map(|position| ColumnId(position as u16)).collect(),
            table,
            columns,
            checks,
            references,
            referrers,
            unique,
            late_keys,
        })
    }

    /// What the catalog says of it.
    pub fn definition(&self) -> &Arc<TableDef> {
        &self.definition
    }

    /// The name of a column.
    pub(crate) fn column_name(&self, column: ColumnId) -> &str {
        &self.definition.columns[column.index()].name
    }

    /// Whether rows can go in as they come: nothing looks at single rows. Columns that may not be
    /// NULL are checked by column.
    pub(crate) fn takes_batches(&self) -> bool {
        self.checks.is_empty() && self.references.is_empty() && self.late_keys.is_empty()
    }
}

impl LateKey {
    /// `constraint` is a key of `table`; `None` if it is not deferrable.
    pub fn compile(
        table: &TableDef,
        constraint: &ConstraintDef,
        tables: &dyn Fn(TableId) -> Arc<Table>,
    ) -> Result<Option<LateKey>> {
        let (ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index }) = &constraint.kind
        else {
            unreachable!("only keys are unique")
        };
        let deferrable = |candidate: &&IndexDef| candidate.oid == *index && !candidate.is_always_unique();
        let Some(index) = table.indexes.iter().find(deferrable) else { return Ok(None) };
        let columns: Vec<u16> = index.columns.iter().map(|column| column.column).collect();
        Ok(Some(LateKey {
            name: constraint.name.clone(),
            constraint: constraint.oid,
            deferral: index.deferral,
            index: physical_index(&tables(table.storage()), index)?,
            column_types: types(table, &columns),
            columns: ids(&columns),
        }))
    }
}

impl Reference {
    /// `constraint` is a foreign key of `child`.
    pub fn compile(
        catalog: &Catalog,
        child: &TableDef,
        constraint: &ConstraintDef,
        tables: &dyn Fn(TableId) -> Arc<Table>,
    ) -> Result<Reference> {
        let ConstraintKind::ForeignKey { columns, parent, parent_columns, deferral, .. } = &constraint.kind
        else {
            unreachable!("only foreign keys refer")
        };
        let parent = &catalog.tables[parent];
        let parent_table = tables(parent.storage());
        let (index, order) = unique_index_over(parent, parent_columns, &parent_table)?;
        let parent_types = types(parent, parent_columns);
        Ok(Reference {
            name: constraint.name.clone(),
            constraint: constraint.oid,
            deferral: *deferral,
            columns: ids(columns),
            parent_name: parent.name.clone(),
            parent: parent_table,
            index,
            key: order.iter().map(|&position| (position, parent_types[position])).collect(),
            to_itself: parent.oid == child.oid,
        })
    }
}

impl Referrer {
    /// `constraint` is a foreign key of `child` that points at `parent`.
    pub fn compile(
        parent: &TableDef,
        child: &TableDef,
        constraint: &ConstraintDef,
        child_target: Option<usize>,
        tables: &dyn Fn(TableId) -> Arc<Table>,
    ) -> Result<Referrer> {
        let ConstraintKind::ForeignKey { columns, parent_columns, on_delete, on_update, deferral, .. } =
            &constraint.kind
        else {
            unreachable!("only foreign keys refer")
        };
        let (own_table, child_table) = (tables(parent.storage()), tables(child.storage()));
        let (own_index, own_key) = unique_index_over(parent, parent_columns, &own_table)?;
        let child_index = child.indexes.iter().find_map(|index| {
            let order = leading_order(index, columns)?;
            Some((find_physical_index(&child_table, index)?, order))
        });
        Ok(Referrer {
            name: constraint.name.clone(),
            constraint: constraint.oid,
            deferral: *deferral,
            own_table,
            columns: ids(parent_columns),
            column_types: types(parent, parent_columns),
            own_index,
            own_key,
            child_name: child.name.clone(),
            child: child_table,
            child_columns: ids(columns),
            child_types: types(child, columns),
            child_index,
            child_target,
            on_delete: *on_delete,
            on_update: *on_update,
        })
    }

    /// A key of the parent as its index has it.
    pub fn encode_own(&self, key: &[Value]) -> KeyBuffer {
        let parts: Cells<'_> =
            self.own_key.iter().map(|&part| key[part].as_cell(self.column_types[part])).collect();
        let mut encoded = KeyBuffer::new();
        self.own_index.encode(&parts, &mut encoded);
        encoded
    }
}

fn ids(columns: &[u16]) -> Vec<ColumnId> {
    columns.iter().copied().map(ColumnId).collect()
}

fn types(table: &TableDef, columns: &[u16]) -> Vec<SqlType> {
    columns.iter().map(|&column| table.columns[usize::from(column)].ty.sql_type()).collect()
}

/// The physical index of a definition; nothing if it has been dropped since the catalog was as it is seen.
pub(crate) fn find_physical_index(table: &Table, definition: &IndexDef) -> Option<Arc<Index>> {
    table.indexes().iter().find(|index| index.spec().id == definition.id()).cloned()
}

/// The physical index of a definition that a write cannot do without. Where it has been dropped since, the
/// table does not admit writers of that age either: SQLSTATE 40001.
fn physical_index(table: &Table, definition: &IndexDef) -> Result<Arc<Index>> {
    find_physical_index(table, definition).ok_or_else(|| Error::write_conflict(&table.name()))
}

/// For the first columns of the index, which of `columns` each is, if these are exactly `columns`.
fn leading_order(index: &IndexDef, columns: &[u16]) -> Option<Vec<usize>> {
    let leading = index.columns.get(..columns.len())?;
    let order: Vec<usize> = leading
        .iter()
        .map(|indexed| columns.iter().position(|column| *column == indexed.column))
        .collect::<Option<_>>()?;
    // Each of them once: an index may name a column twice.
    (0..columns.len()).all(|position| order.contains(&position)).then_some(order)
}

/// A unique index over exactly `columns` that stands, and their order in it. DDL has made sure of one.
fn unique_index_over(
    definition: &TableDef,
    columns: &[u16],
    table: &Table,
) -> Result<(Arc<Index>, Vec<usize>)> {
    let mut candidates = definition
        .indexes
        .iter()
        .filter(|index| index.is_always_unique() && index.columns.len() == columns.len())
        .filter_map(|index| Some((index, leading_order(index, columns)?)))
        .peekable();
    assert!(
        candidates.peek().is_some(),
        "a foreign key points at columns of \"{}\" without a unique index",
        definition.name
    );
    candidates
        .find_map(|(index, order)| Some((find_physical_index(table, index)?, order)))
        .ok_or_else(|| Error::write_conflict(&table.name()))
}

/// The quoted and qualified name of the sequence behind an identity column.
fn identity_sequence(catalog: &Catalog, table: &TableDef, column: ColumnId) -> String {
    let sequence = catalog
        .sequences
        .values()
        .find(|sequence| sequence.owner == Some((table.oid, column.0)))
        .unwrap_or_else(|| panic!("an identity column of \"{}\" has no sequence", table.name));
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    match catalog.schemas.get(&sequence.schema) {
        Some(schema) => format!("{}.{}", quoted(&schema.name), quoted(&sequence.name)),
        None => quoted(&sequence.name),
    }
}
