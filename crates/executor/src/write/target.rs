//! Tables compiled for writing.
//!
//! A [`Target`] has what each change of a table needs and the catalog only describes: CHECK conditions and defaults as expressions,
//! foreign keys with the tables and indexes that they lead to. A statement writes through a [`TargetSet`]: the tables that it
//! names, and those that the actions of foreign keys (CASCADE, SET NULL, SET DEFAULT) may lead to.
//!
//! A set may be kept as long as the catalog has the same definitions of its tables, of those that they reference, and of those that
//! reference them.

use super::rows::{Cells, RowData, RowVectors, fitted, fitted_value};
use crate::expression::{
    CellExpression, CellScope, Compiler, Expression, Layout, Row, Scope, representation_of,
};
use crate::pool::Pool;
use crate::template::Template;
use crate::values::value;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Error, Representation, Result, TableId, Value};
use firn_plan::operator::SourceId;
use firn_plan::{Column, Columns, Scalar};
use firn_storage::{Index, KeyBuffer, Table};
use firn_txn::Catalog;
use firn_txn::catalog::{
    ColumnType, ConstraintDef, ConstraintKind, Deferral, IndexDef, Oid, ReferentialAction, TableDef,
};
use firn_vector::selection::Rows;
use firn_vector::{Context, Datum, Registry, Slot};
use std::collections::BTreeMap;

/// An expression that the catalog keeps as text, bound.
pub struct StoredExpression {
    /// The columns that it uses, and which attribute of the table each is.
    pub inputs: Vec<(Column, i16)>,
    /// The columns of the expression.
    pub columns: Columns,
    /// What is computed.
    pub scalar: Scalar,
}

/// Binds the expressions that the catalog keeps, and finds tables.
pub trait CatalogExpressions {
    /// The functions.
    fn registry(&self) -> &Registry;

    /// A CHECK condition of a table.
    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<StoredExpression>;

    /// What a column of a table gets when it is set to its default, as a value of its type.
    fn default(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression>;

    /// The value of a generated column of a table, as one of its type.
    fn generated(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression>;

    /// The physical table of an id.
    fn table(&self, id: TableId) -> Arc<Table>;
}

/// The tables that a statement may write to.
pub struct TargetSet {
    targets: Vec<Target>,
    /// Where in the set the tables are that the statement names.
    named: Vec<(SourceId, usize)>,
}

/// A table compiled for writing.
pub struct Target {
    pub(super) definition: Arc<TableDef>,
    /// The name of its schema, for errors.
    pub(super) schema: String,
    pub(crate) table: Arc<Table>,
    /// All columns, dropped ones included, in storage order.
    pub(super) columns: Vec<TargetColumn>,
    /// In an order in which each can be computed after those before it.
    generated: Vec<GeneratedColumn>,
    /// In the order of their names, in which they are tested.
    pub(super) checks: Vec<Check>,
    pub(super) references: Vec<Reference>,
    pub(super) referrers: Vec<Referrer>,
    pub(crate) unique: Vec<UniqueIndex>,
    pub(super) late_keys: Vec<LateKey>,
}

/// A column as writing sees it.
pub(super) struct TargetColumn {
    /// How its values lie in vectors.
    pub general: Representation,
    /// How they lie in the table.
    pub stored: Representation,
    pub not_null: bool,
    /// What an action of a foreign key sets it to.
    pub default: Option<RowExpression>,
}

/// A column whose values follow from those of others.
struct GeneratedColumn {
    column: ColumnId,
    value: RowExpression,
}

/// A CHECK constraint.
pub(super) struct Check {
    pub name: String,
    pub condition: RowExpression,
}

/// An expression over columns of a row.
pub struct RowExpression {
    expression: Template<Expression>,
    /// The same for one row at a time, if there is such a form.
    cells: Option<Pool<CellExpression>>,
    pub(super) inputs: Vec<ColumnId>,
    /// For each vector that it is evaluated with how it lies.
    representation: Representation,
}

impl RowExpression {
    /// Compiles it. What it is evaluated with are the columns of its attributes.
    pub fn compile(stored: &StoredExpression, registry: &Registry) -> Result<RowExpression> {
        let layout: Layout = stored
            .inputs
            .iter()
            .map(|(column, _)| (*column, representation_of(stored.columns[*column].ty)))
            .collect();
        let compiler = Compiler { registry, columns: &stored.columns };
        let expression = compiler.general(&stored.scalar, &layout)?;
        let representation = expression.representation();
        let inputs = stored.inputs.iter().map(|(_, attribute)| column_id(*attribute)).collect();
        let cells = CellExpression::of(&expression).map(Pool::new);
        Ok(RowExpression { expression: Template::new(expression), cells, inputs, representation })
    }

    /// Whether it can be evaluated for one row at a time.
    fn takes_single_rows(&self) -> bool {
        self.cells.is_some()
    }

    /// Whether a condition is TRUE or FALSE for a row; `None` if it is NULL.
    pub(super) fn truth(&self, context: &Context<'_>, row: &dyn RowData) -> Result<Option<bool>> {
        self.with_datum(context, row, |value| match value {
            Datum::Boolean(truth) => Ok(Some(truth)),
            Datum::Null => Ok(None),
            other => panic!("a condition is a boolean, not {other:?}"),
        })
    }

    /// Calls with its value for a row.
    fn with_datum<R>(
        &self,
        context: &Context<'_>,
        row: &dyn RowData,
        call: impl FnOnce(Datum<'_>) -> Result<R>,
    ) -> Result<R> {
        let pool = self.cells.as_ref().expect("it takes single rows");
        let mut expression = pool.take();
        let scope = CellScope { context, parameters: &[] };
        let inputs = Inputs { columns: &self.inputs, row };
        let result = expression.evaluate(scope, &inputs).and_then(call);
        pool.give_back(expression);
        result
    }

    /// Its values in some rows.
    pub fn evaluate(
        &self,
        context: &Context<'_>,
        columns: &RowVectors,
        rows: Rows<'_>,
    ) -> Result<firn_vector::Vector> {
        let vectors: Vec<_> = self.inputs.iter().map(|column| columns.vector(*column).clone()).collect();
        self.expression.copy().evaluate_on(&Scope { context, parameters: &[] }, &vectors, rows)
    }

    /// As [`RowExpression::evaluate`]; an error has the first row that raises one for its ordinal.
    pub fn evaluate_placed(
        &self,
        context: &Context<'_>,
        columns: &RowVectors,
        rows: Rows<'_>,
    ) -> Result<firn_vector::Vector> {
        self.evaluate(context, columns, rows).map_err(|error| {
            let mut failure = None;
            rows.each(|row| {
                let one = [row as u16];
                let one = Rows::at(&one, rows.length());
                if failure.is_none()
                    && let Err(error) = self.evaluate(context, columns, one)
                {
                    failure = Some(error.with_ordinal(row as u64));
                }
            });
            failure.unwrap_or(error)
        })
    }

    /// Its value without a row.
    pub fn value(&self, context: &Context<'_>) -> Result<Value> {
        let vector = self.evaluate(context, &RowVectors::default(), Rows::all(1))?;
        Ok(value(vector.datum(0), self.representation))
    }
}

/// The columns of a row that an expression reads, in its order.
struct Inputs<'a> {
    columns: &'a [ColumnId],
    row: &'a dyn RowData,
}

impl Row for Inputs<'_> {
    fn datum(&self, place: usize) -> Datum<'_> {
        self.row.datum(self.columns[place])
    }
}

/// The storage's column of an attribute.
pub(crate) fn column_id(attribute: i16) -> ColumnId {
    ColumnId(u16::try_from(attribute - 1).expect("attributes of columns are positive"))
}

/// A unique index.
pub(crate) struct UniqueIndex {
    pub name: String,
    pub oid: u32,
    pub index: Arc<Index>,
    pub columns: Vec<ColumnId>,
    /// Whether the first of them says which rows count.
    pub is_partial: bool,
    /// Whether rows may share a key for a while.
    pub is_deferrable: bool,
}

impl UniqueIndex {
    /// The key of a row, unless it has a distinct NULL and so conflicts with no other.
    pub fn key(&self, cells: &[Cell<'_>]) -> Option<KeyBuffer> {
        let parts: Cells<'_> = self.columns.iter().map(|column| cells[column.index()]).collect();
        let mut key = KeyBuffer::new();
        self.index.encode(&parts, &mut key);
        (!self.index.has_distinct_null(&key)).then_some(key)
    }
}

/// A deferrable PRIMARY KEY or UNIQUE.
pub(super) struct LateKey {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    /// Its index, which lists any number of rows under a key.
    pub index: Arc<Index>,
    pub columns: Vec<ColumnId>,
    pub types: Vec<ColumnType>,
}

/// A foreign key of the table: its rows reference rows of `parent`.
pub(super) struct Reference {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    pub columns: Vec<ColumnId>,
    pub parent_name: String,
    pub parent: Arc<Table>,
    /// The unique index over the parent's columns that the key references.
    pub index: Arc<Index>,
    /// For each column of the index: which of `columns` it corresponds to, and its type.
    pub key: Vec<(usize, ColumnType)>,
    /// MATCH FULL
    pub match_full: bool,
    /// Whether the table references itself.
    pub to_itself: bool,
}

impl Reference {
    /// Whether a row has to be tested some of whose columns of the key are NULL, or none: under MATCH SIMPLE a key with a NULL
    /// references nothing, under MATCH FULL one of NULLs alone.
    pub fn refers(&self, mut nulls: impl Iterator<Item = bool>) -> bool {
        match self.match_full {
            true => !nulls.all(|is_null| is_null),
            false => !nulls.any(|is_null| is_null),
        }
    }
}

/// A foreign key that references the table: rows of `child` reference its rows.
pub(super) struct Referrer {
    pub name: String,
    pub constraint: Oid,
    pub deferral: Deferral,
    pub own_table: Arc<Table>,
    /// The columns of this table that are referenced.
    pub columns: Vec<ColumnId>,
    pub types: Vec<ColumnType>,
    /// The unique index over them, and which of them each of its columns is.
    pub own_index: Arc<Index>,
    pub own_key: Vec<usize>,
    pub child_name: String,
    pub child: Arc<Table>,
    /// The child's columns, in the order of `columns`.
    pub child_columns: Vec<ColumnId>,
    pub child_types: Vec<ColumnType>,
    /// An index of the child that begins with `child_columns` in some order, and that order.
    pub child_index: Option<(Arc<Index>, Vec<usize>)>,
    /// Where the child is in the set, if an action may change it.
    pub child_target: Option<usize>,
    pub on_delete: ReferentialAction,
    /// The columns of the child that this sets, if it sets any.
    pub set_on_delete: Vec<ColumnId>,
    pub on_update: ReferentialAction,
}

/// Whether an action changes the referencing rows.
pub(super) fn changes_child(action: ReferentialAction) -> bool {
    match action {
        ReferentialAction::NoAction | ReferentialAction::Restrict => false,
        ReferentialAction::Cascade | ReferentialAction::SetNull | ReferentialAction::SetDefault => true,
    }
}

impl TargetSet {
    /// Compiles the tables that a statement names as targets, and those that referential actions lead to.
    pub fn compile(
        catalog: &Catalog,
        named: &[(SourceId, Arc<TableDef>)],
        expressions: &dyn CatalogExpressions,
    ) -> Result<Arc<TargetSet>> {
        let mut definitions: Vec<Arc<TableDef>> = Vec::new();
        let mut positions: BTreeMap<Oid, usize> = BTreeMap::new();
        let mut add = |definition: &Arc<TableDef>, definitions: &mut Vec<Arc<TableDef>>| {
            *positions.entry(definition.oid).or_insert_with(|| {
                definitions.push(definition.clone());
                definitions.len() - 1
            })
        };
        let sources = named.iter().map(|(source, table)| (*source, add(table, &mut definitions))).collect();
        let mut next = 0;
        while next < definitions.len() {
            for (child, constraint) in referring(catalog, definitions[next].oid) {
                let ConstraintKind::ForeignKey { on_delete, on_update, .. } = &constraint.kind else {
                    unreachable!("only foreign keys refer")
                };
                if changes_child(*on_delete) || changes_child(*on_update) {
                    add(child, &mut definitions);
                }
            }
            next += 1;
        }
        let targets = definitions
            .iter()
            .map(|definition| Target::compile(catalog, definition, &positions, expressions))
            .collect::<Result<_>>()?;
        Ok(Arc::new(TargetSet { targets, named: sources }))
    }

    /// No tables: of a statement that changes none.
    pub fn none() -> Arc<TargetSet> {
        Arc::new(TargetSet { targets: Vec::new(), named: Vec::new() })
    }

    /// Where the table is that the statement names first.
    pub(super) fn first(&self) -> usize {
        self.named.first().expect("the statement names a table").1
    }

    /// The definitions of its tables.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.targets.iter().map(|target| &target.definition)
    }

    /// Whether the statement may write to a table.
    pub fn writes_to(&self, table: TableId) -> bool {
        self.targets.iter().any(|target| target.table.id() == table)
    }

    /// Where a table that the statement names is in the set. Panics if it has not been compiled.
    pub(crate) fn position(&self, source: SourceId) -> usize {
        let named = self.named.iter().find(|(known, _)| *known == source);
        named.unwrap_or_else(|| panic!("{source:?} has been compiled for writing")).1
    }

    pub(crate) fn target(&self, position: usize) -> &Target {
        &self.targets[position]
    }

    /// The tables that the statement names.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Target> {
        self.named.iter().map(|(_, position)| &self.targets[*position])
    }
}

/// The foreign keys that reference `parent`, each with its table.
fn referring(catalog: &Catalog, parent: Oid) -> impl Iterator<Item = (&Arc<TableDef>, &ConstraintDef)> {
    catalog.tables.values().flat_map(move |child| {
        let refers = move |constraint: &&ConstraintDef| {
            matches!(&constraint.kind, ConstraintKind::ForeignKey { parent: of, .. } if *of == parent)
        };
        child.constraints.iter().filter(refers).map(move |constraint| (child, constraint))
    })
}

impl Target {
    fn compile(
        catalog: &Catalog,
        definition: &Arc<TableDef>,
        positions: &BTreeMap<Oid, usize>,
        expressions: &dyn CatalogExpressions,
    ) -> Result<Target> {
        let tables = |id| expressions.table(id);
        let table = tables(definition.storage());
        let set_to_default = default_columns(catalog, definition);
        let mut columns = Vec::with_capacity(definition.columns.len());
        let mut generated = Vec::new();
        for (position, column) in definition.columns.iter().enumerate() {
            let id = ColumnId(position as u16);
            if column.generated.is_some() {
                let value = expressions.generated(definition, id)?;
                let value = RowExpression::compile(&value, expressions.registry())?;
                generated.push(GeneratedColumn { column: id, value });
            }
            let default = match set_to_default.contains(&id) && !column.dropped {
                true => {
                    let default = expressions.default(definition, id)?;
                    Some(RowExpression::compile(&default, expressions.registry())?)
                }
                false => None,
            };
            columns.push(TargetColumn {
                general: match column.dropped {
                    true => column.ty.stored,
                    false => representation_of(column.ty.declared),
                },
                stored: table.columns()[position].representation,
                not_null: column.not_null && !column.dropped,
                default,
            });
        }
        let (mut checks, mut references, mut late_keys) = (Vec::new(), Vec::new(), Vec::new());
        for constraint in &definition.constraints {
            match &constraint.kind {
                ConstraintKind::Check { expression } => {
                    let condition = expressions.check(definition, expression)?;
                    let condition = RowExpression::compile(&condition, expressions.registry())?;
                    checks.push(Check { name: constraint.name.clone(), condition });
                }
                ConstraintKind::ForeignKey { .. } => {
                    references.push(Reference::compile(catalog, definition, constraint, &tables)?);
                }
                ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. } => {
                    late_keys.extend(LateKey::compile(definition, constraint, &tables)?);
                }
            }
        }
        checks.sort_by(|one, other| one.name.cmp(&other.name));
        let referrers = referring(catalog, definition.oid)
            .map(|(child, constraint)| {
                let child_target = positions.get(&child.oid).copied();
                Referrer::compile(definition, child, constraint, child_target, &tables)
            })
            .collect::<Result<_>>()?;
        let unique = |index: &IndexDef| {
            Ok(UniqueIndex {
                name: index.name.clone(),
                oid: index.oid.0,
                index: physical_index(&table, index)?,
                columns: index.columns.iter().map(|column| ColumnId(column.column)).collect(),
                is_partial: index.condition.is_some(),
                is_deferrable: !index.is_always_unique(),
            })
        };
        let unique =
            definition.indexes.iter().filter(|index| index.unique).map(unique).collect::<Result<_>>()?;
        let schema = catalog.schemas.get(&definition.schema);
        Ok(Target {
            definition: definition.clone(),
            schema: schema.map_or_else(String::new, |schema| schema.name.clone()),
            table,
            columns,
            generated,
            checks,
            references,
            referrers,
            unique,
            late_keys,
        })
    }

    /// Whether its CHECK conditions and generated columns can be evaluated for one row at a time.
    pub(crate) fn takes_single_rows(&self) -> bool {
        let conditions = self.checks.iter().map(|check| &check.condition);
        conditions
            .chain(self.generated.iter().map(|generated| &generated.value))
            .all(RowExpression::takes_single_rows)
    }

    /// Whether it has columns whose values follow from those of others.
    pub(super) fn has_generated_columns(&self) -> bool {
        !self.generated.is_empty()
    }

    /// The columns that change with these: they themselves, and behind them the generated ones over them.
    pub(crate) fn with_generated(&self, mut set: Vec<ColumnId>) -> Vec<ColumnId> {
        for generated in &self.generated {
            let is_over_set = generated.value.inputs.iter().any(|input| set.contains(input));
            if is_over_set && !set.contains(&generated.column) {
                set.push(generated.column);
            }
        }
        set
    }

    /// Computes the generated columns among `changed`, or all, in some rows whose other columns are known.
    pub(crate) fn generate(
        &self,
        changed: Option<&[ColumnId]>,
        context: &Context<'_>,
        columns: &mut RowVectors,
        rows: Rows<'_>,
    ) -> Result<()> {
        for generated in self.generated_among(changed) {
            let vector = generated.value.evaluate(context, columns, rows)?;
            columns.set(generated.column, fitted(&vector, self.general(generated.column), rows)?);
        }
        Ok(())
    }

    /// As [`Target::generate`], of all; an error has the first row that raises one for its ordinal.
    pub(super) fn generate_placed(
        &self,
        context: &Context<'_>,
        columns: &mut RowVectors,
        rows: Rows<'_>,
    ) -> Result<()> {
        let Err(error) = self.generate(None, context, columns, rows) else { return Ok(()) };
        let mut failure = None;
        rows.each(|row| {
            let one = [row as u16];
            if failure.is_none()
                && let Err(error) = self.generate(None, context, columns, Rows::at(&one, rows.length()))
            {
                failure = Some(error.with_ordinal(row as u64));
            }
        });
        Err(failure.unwrap_or(error))
    }

    /// Computes a generated column of one row and keeps it in a slot. The table [takes single rows](Target::takes_single_rows).
    pub(crate) fn generate_one(
        &self,
        column: ColumnId,
        context: &Context<'_>,
        row: &dyn RowData,
        slot: &mut Slot,
    ) -> Result<()> {
        let generated = self.generated.iter().find(|generated| generated.column == column);
        let generated = generated.expect("the column is generated");
        generated.value.with_datum(context, row, |value| {
            slot.set(fitted_value(value, self.general(column))?);
            Ok(())
        })
    }

    fn generated_among(&self, changed: Option<&[ColumnId]>) -> impl Iterator<Item = &GeneratedColumn> {
        let is_changed = move |column| changed.is_none_or(|changed| changed.contains(&column));
        self.generated.iter().filter(move |generated| is_changed(generated.column))
    }

    /// The generated columns among some.
    pub(crate) fn generated_columns(&self, among: Option<&[ColumnId]>) -> Vec<ColumnId> {
        self.generated_among(among).map(|generated| generated.column).collect()
    }

    /// The columns of an old row that an update of these columns, [generated ones included](Target::with_generated), must know.
    pub(crate) fn columns_to_update(&self, set: &[ColumnId]) -> Vec<ColumnId> {
        let conditions = self.checks.iter().map(|check| &check.condition);
        let computed = self.generated_among(Some(set)).map(|generated| &generated.value);
        let mut needed: Vec<ColumnId> =
            conditions.chain(computed).flat_map(|expression| expression.inputs.clone()).collect();
        let keys = self.references.iter().map(|reference| &reference.columns);
        let keys = keys.chain(self.referrers.iter().map(|referrer| &referrer.columns));
        for key in keys.filter(|key| key.iter().any(|column| set.contains(column))) {
            needed.extend(key);
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// The columns of a row that its deletion must know.
    pub(crate) fn columns_to_delete(&self) -> Vec<ColumnId> {
        let mut needed: Vec<ColumnId> =
            self.referrers.iter().flat_map(|referrer| referrer.columns.clone()).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// The name of a column.
    pub(super) fn column_name(&self, column: ColumnId) -> &str {
        &self.definition.columns[column.index()].name
    }

    /// How many columns it has, dropped ones included.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// How the values of a column lie in vectors.
    pub(crate) fn general(&self, column: ColumnId) -> Representation {
        self.columns[column.index()].general
    }

    /// How they lie in the table.
    pub(crate) fn stored(&self, column: ColumnId) -> Representation {
        self.columns[column.index()].stored
    }
}

/// The columns of a table that an action of one of its foreign keys may set to their defaults.
fn default_columns(catalog: &Catalog, definition: &TableDef) -> Vec<ColumnId> {
    let mut found = Vec::new();
    for constraint in &definition.constraints {
        if let ConstraintKind::ForeignKey { columns, parent, on_delete, on_update, .. } = &constraint.kind
            && catalog.tables.contains_key(parent)
            && [on_delete, on_update].contains(&&ReferentialAction::SetDefault)
        {
            found.extend(columns.iter().copied().map(ColumnId));
        }
    }
    found
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
            types: types(table, &columns),
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
        let ConstraintKind::ForeignKey { columns, parent, parent_columns, match_full, deferral, .. } =
            &constraint.kind
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
            match_full: *match_full,
            to_itself: parent.oid == child.oid,
        })
    }
}

impl Referrer {
    /// `constraint` is a foreign key of `child` that references `parent`.
    pub fn compile(
        parent: &TableDef,
        child: &TableDef,
        constraint: &ConstraintDef,
        child_target: Option<usize>,
        tables: &dyn Fn(TableId) -> Arc<Table>,
    ) -> Result<Referrer> {
        let ConstraintKind::ForeignKey {
            columns,
            parent_columns,
            on_delete,
            on_delete_columns,
            on_update,
            deferral,
            ..
        } = &constraint.kind
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
            types: types(parent, parent_columns),
            own_index,
            own_key,
            child_name: child.name.clone(),
            child: child_table,
            child_columns: ids(columns),
            child_types: types(child, columns),
            child_index,
            child_target,
            on_delete: *on_delete,
            set_on_delete: ids(if on_delete_columns.is_empty() { columns } else { on_delete_columns }),
            on_update: *on_update,
        })
    }

    /// A key of the parent as its index has it.
    pub fn encode_own(&self, key: &[Value]) -> KeyBuffer {
        encoded(&self.own_index, self.own_key.iter().map(|&part| (&key[part], self.types[part])))
    }
}

/// The key of values in the order of an index.
pub(super) fn encoded<'v>(
    index: &Index,
    parts: impl IntoIterator<Item = (&'v Value, ColumnType)>,
) -> KeyBuffer {
    let stored: SmallVecStored<'v> = parts.into_iter().map(|(value, ty)| value.stored(ty.stored)).collect();
    let cells: Cells<'_> = stored.iter().map(|stored| stored.cell()).collect();
    let mut key = KeyBuffer::new();
    index.encode(&cells, &mut key);
    key
}

type SmallVecStored<'v> = smallvec::SmallVec<[firn_base::Stored<'v>; 4]>;

fn ids(columns: &[u16]) -> Vec<ColumnId> {
    columns.iter().copied().map(ColumnId).collect()
}

fn types(table: &TableDef, columns: &[u16]) -> Vec<ColumnType> {
    columns.iter().map(|&column| table.columns[usize::from(column)].ty).collect()
}

/// The physical index of a definition; `None` if it has been dropped since the catalog was as it is seen.
fn find_physical_index(table: &Table, definition: &IndexDef) -> Option<Arc<Index>> {
    table.indexes().iter().find(|index| index.spec().id == definition.id()).cloned()
}

/// The physical index of a definition, without which nothing can be written. Where it has been dropped since, the
/// table does not admit writers with such an old snapshot either: 40001.
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

/// A unique index over exactly `columns`, and their order in it. DDL makes sure that there is one.
fn unique_index_over(
    definition: &TableDef,
    columns: &[u16],
    table: &Table,
) -> Result<(Arc<Index>, Vec<usize>)> {
    let fits = |index: &&IndexDef| index.is_always_unique() && index.columns.len() == columns.len();
    let candidates = definition.indexes.iter().filter(fits);
    let mut candidates =
        candidates.filter_map(|index| Some((index, leading_order(index, columns)?))).peekable();
    let name = &definition.name;
    assert!(
        candidates.peek().is_some(),
        "a foreign key references columns of \"{name}\" without a unique index"
    );
    candidates
        .find_map(|(index, order)| Some((find_physical_index(table, index)?, order)))
        .ok_or_else(|| Error::write_conflict(&table.name()))
}
