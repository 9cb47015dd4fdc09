//! Statements over tables of the transaction engine: the binder plans them, the executor runs them. Tables are made from CREATE TABLE.

use crate::support::{MODES, Mode, options};
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{ColumnId, Error, Result, TableId, TextStyle, Type, Value, text};
use firn_bind::{Attribute, Bound, Generated, Key, Relation, RelationKind, bind};
use firn_executor::short::Done;
use firn_executor::write::{self, TargetSet};
use firn_executor::{
    CatalogExpressions, Options, Program, Reader, Rows, ShortProgram, Source, Sources, StoredExpression,
    TableSource, execute,
};
use firn_plan::operator::SourceId;
use firn_plan::{Operator, Scalar};
use firn_storage::{ColumnSpec, Table};
use firn_syntax::parse;
use firn_syntax::tree::{
    ColumnConstraintKind as Constraint, KeyAction, Reference, Statement, TableConstraintKind, TableElement,
};
use firn_txn::catalog::{
    ColumnDef, ColumnType, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid,
    ReferentialAction, TableDef, TableSettings,
};
use firn_txn::{Config, Engine, Isolation, Transaction, Waited};
use firn_vector::Registry;
use firn_vector::context::detached;
use std::time::Duration;

/// A database.
pub struct Database {
    pub engine: Arc<Engine>,
    registry: Registry,
    /// Whether plans are rewritten, beyond what must be.
    pub rewrites: bool,
    /// How many statements short programs have run.
    pub short_runs: AtomicU64,
}

/// A transaction's view of a database.
struct View<'a> {
    database: &'a Database,
    catalog: Arc<firn_txn::Catalog>,
}

/// The rows of a statement as text, and its command tag's number.
#[derive(Debug)]
pub struct Answer {
    pub rows: Vec<String>,
    pub count: Option<u64>,
}

impl Database {
    pub fn new() -> Database {
        Database::with(Config::default())
    }

    pub fn with(config: Config) -> Database {
        let engine = Engine::open(Config { memory_limit: None, ..config }).unwrap();
        Database { engine, registry: Registry::built_in(), rewrites: true, short_runs: AtomicU64::new(0) }
    }

    fn view<'a>(&'a self, transaction: &Transaction) -> View<'a> {
        View { database: self, catalog: transaction.catalog().clone() }
    }

    /// Makes the tables that a text of statements describes.
    pub fn create(&self, script: &str) {
        for parsed in parse(script, firn_syntax::Options::default()).unwrap() {
            let Statement::CreateTable(create) = &parsed.statement else {
                panic!("CREATE TABLE makes tables")
            };
            let mut transaction = self.engine.begin();
            self.create_table(&mut transaction, script, create);
            let _ = transaction.commit().unwrap();
        }
    }

    fn create_table(
        &self,
        transaction: &mut Transaction,
        script: &str,
        create: &firn_syntax::tree::CreateTable,
    ) {
        let name = create.name.name.text.to_string();
        let oid = self.engine.allocate_oid();
        let slice = |span: firn_syntax::Span| &script[span.start as usize..span.end as usize];
        let mut columns: Vec<ColumnDef> = Vec::new();
        // Kind, name, whether it is deferrable and deferred at first.
        let mut pending: Vec<(Pending<'_>, String, Deferral)> = Vec::new();
        for element in &create.elements {
            match element {
                TableElement::Column(column) => {
                    let place = columns.len();
                    let mut definition = ColumnDef {
                        name: column.name.text.to_string(),
                        ty: self.column_type(slice(column.type_name.as_ref().unwrap().span)),
                        not_null: false,
                        default: None,
                        identity: None,
                        generated: None,
                        hidden: false,
                        dropped: false,
                    };
                    for constraint in &column.constraints {
                        let one = || vec![place as u16];
                        let default_name = |suffix: &str| format!("{name}_{}_{suffix}", column.name.text);
                        let named = |suffix: &str| match &constraint.name {
                            Some(name) => name.text.to_string(),
                            None => default_name(suffix),
                        };
                        match &constraint.kind {
                            Constraint::NotNull => definition.not_null = true,
                            Constraint::Default(value) => {
                                definition.default = Some(slice(value.span).to_owned())
                            }
                            Constraint::Generated(value) => {
                                definition.generated = Some(slice(value.span).to_owned());
                            }
                            Constraint::PrimaryKey(_) => {
                                pending.push((
                                    Pending::Key(one(), true),
                                    format!("{name}_pkey"),
                                    Deferral::Never,
                                ));
                            }
                            Constraint::Unique { .. } => {
                                pending.push((Pending::Key(one(), false), named("key"), Deferral::Never));
                            }
                            Constraint::Check { condition, .. } => {
                                let text = slice(condition.span).to_owned();
                                pending.push((Pending::Check(text), named("check"), Deferral::Never));
                            }
                            Constraint::References(reference) => {
                                pending.push((
                                    Pending::Foreign(one(), reference),
                                    named("fkey"),
                                    Deferral::Never,
                                ));
                            }
                            Constraint::Deferrable => {
                                pending.last_mut().unwrap().2 = Deferral::InitiallyImmediate;
                            }
                            Constraint::InitiallyDeferred => {
                                pending.last_mut().unwrap().2 = Deferral::InitiallyDeferred;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    columns.push(definition);
                }
                TableElement::Constraint(constraint) => {
                    let deferral = match constraint.attributes {
                        it if it.initially_deferred => Deferral::InitiallyDeferred,
                        it if it.deferrable => Deferral::InitiallyImmediate,
                        _ => Deferral::Never,
                    };
                    let places = |names: &[firn_syntax::tree::Name]| -> Vec<u16> {
                        let place = |name: &firn_syntax::tree::Name| {
                            columns.iter().position(|column| column.name == *name.text).unwrap() as u16
                        };
                        names.iter().map(place).collect()
                    };
                    let named = |suffix: String| match &constraint.name {
                        Some(name) => name.text.to_string(),
                        None => format!("{name}_{suffix}"),
                    };
                    let joined = |names: &[firn_syntax::tree::Name]| {
                        names.iter().map(|name| name.text.to_string()).collect::<Vec<_>>().join("_")
                    };
                    match &constraint.kind {
                        TableConstraintKind::Check(condition) => {
                            let text = slice(condition.span).to_owned();
                            pending.push((Pending::Check(text), named("check".into()), deferral));
                        }
                        TableConstraintKind::Unique { is_primary, columns: names, .. } => {
                            let suffix = match is_primary {
                                true => "pkey".to_owned(),
                                false => format!("{}_key", joined(names)),
                            };
                            pending.push((Pending::Key(places(names), *is_primary), named(suffix), deferral));
                        }
                        TableConstraintKind::ForeignKey { columns: names, reference } => {
                            let suffix = format!("{}_fkey", joined(names));
                            pending.push((
                                Pending::Foreign(places(names), reference),
                                named(suffix),
                                deferral,
                            ));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        for (kind, _, _) in &pending {
            if let Pending::Key(places, true) = kind {
                places.iter().for_each(|place| columns[usize::from(*place)].not_null = true);
            }
        }
        let specs = columns
            .iter()
            .map(|column| ColumnSpec { representation: column.ty.stored, nullable: !column.not_null })
            .collect();
        let storage = transaction.create_storage(&name, specs).unwrap();
        let table = transaction.table(storage);
        let mut definition = TableDef {
            oid,
            schema: Oid::PUBLIC,
            name,
            columns,
            constraints: Vec::new(),
            indexes: Vec::new(),
            storage: storage.0,
            settings: TableSettings::default(),
        };
        for (kind, name, deferral) in pending {
            let kind = match kind {
                Pending::Check(expression) => ConstraintKind::Check { expression },
                Pending::Key(places, is_primary) => {
                    let index = self.index(&name, &places, true, deferral);
                    transaction.create_index(&table, index.spec(&table), 1).unwrap();
                    let oid = index.oid;
                    definition.indexes.push(index);
                    match is_primary {
                        true => ConstraintKind::PrimaryKey { index: oid },
                        false => ConstraintKind::Unique { index: oid },
                    }
                }
                Pending::Foreign(places, reference) => {
                    let own = *definition.name == *reference.table.name.text;
                    let parent = match own {
                        true => Arc::new(definition.clone()),
                        false => {
                            let catalog = transaction.catalog();
                            catalog.table(Oid::PUBLIC, &reference.table.name.text).unwrap().clone()
                        }
                    };
                    let parent_columns = match reference.columns.is_empty() {
                        true => {
                            parent.primary_key().unwrap().columns.iter().map(|column| column.column).collect()
                        }
                        false => {
                            let names = reference.columns.iter();
                            names.map(|name| parent.column(&name.text).unwrap().0.0).collect()
                        }
                    };
                    // As DDL does, for the searches of the referenced side.
                    let index = self.index(&format!("{name}_index"), &places, false, Deferral::Never);
                    transaction.create_index(&table, index.spec(&table), 1).unwrap();
                    definition.indexes.push(index);
                    ConstraintKind::ForeignKey {
                        columns: places,
                        parent: parent.oid,
                        parent_columns,
                        on_delete: action(&reference.on_delete),
                        on_update: action(&reference.on_update),
                        on_delete_columns: Vec::new(),
                        match_full: false,
                        deferral,
                    }
                }
            };
            let oid = self.engine.allocate_oid();
            definition.constraints.push(ConstraintDef { oid, name, kind, valid: true });
        }
        let catalog = transaction.catalog_mut().unwrap();
        catalog.tables.insert(definition.oid, Arc::new(definition));
    }

    fn index(&self, name: &str, places: &[u16], unique: bool, deferral: Deferral) -> IndexDef {
        let column = |place: &u16| IndexColumnDef { column: *place, descending: false, nulls_first: false };
        IndexDef {
            oid: self.engine.allocate_oid(),
            name: name.to_owned(),
            columns: places.iter().map(column).collect(),
            unique,
            nulls_not_distinct: false,
            values: true,
            deferral,
            condition: None,
            internal: false,
            annotations: Default::default(),
        }
    }

    fn column_type(&self, name: &str) -> ColumnType {
        let transaction = self.engine.begin_read_only();
        let text = format!("SELECT CAST(NULL AS {name})");
        let bound = self.bound(&text, &transaction).unwrap();
        transaction.rollback();
        ColumnType::new(bound.columns[0].ty).unwrap()
    }

    fn bound(&self, statement: &str, transaction: &Transaction) -> Result<Bound> {
        let parsed = parse(statement, firn_syntax::Options::default())?;
        let view = self.view(transaction);
        let mut bound = bind(statement, &parsed[0].statement, &[], &view)?;
        firn_plan::unnest::unnest(&mut bound.plan, &self.registry);
        firn_plan::rewrite::first_rows::limit_windows(&mut bound.plan);
        if self.rewrites {
            firn_plan::rewrite::outer_joins::reject_nulls(&mut bound.plan);
            firn_plan::rewrite::push_down::push_down(&mut bound.plan);
            firn_plan::rewrite::contradictions::remove_empty(&mut bound.plan);
            firn_plan::verify::debug_verify(&bound.plan, "rewriting");
        }
        Ok(bound)
    }

    /// Runs a statement once, within a transaction.
    pub fn run_as(&self, statement: &str, transaction: &mut Transaction, options: Options) -> Result<Answer> {
        let bound = self.bound(statement, transaction)?;
        let view = self.view(transaction);
        let context = detached();
        let program = Arc::new(Program::compile(&bound.plan, &self.registry)?);
        let set = match program.has_effects() {
            true => {
                let definition = |source: &SourceId| (*source, view.definition(*source));
                let named: Vec<_> = program.targets().iter().map(definition).collect();
                Some(TargetSet::compile(&view.catalog, &named, &view)?)
            }
            false => None,
        };
        // Short programs run where vectors have their usual length; so the other modes run pipelines always.
        if options.vector_rows == MODES[1].vector_rows
            && let Some(short) = ShortProgram::compile(&bound.plan, &self.registry, &view, set.as_deref())
        {
            let mut values = Vec::new();
            let done = match &set {
                Some(set) => short.execute(set, transaction, &[], &context, &mut values)?,
                None => short
                    .query(transaction, &[], &context, &mut values)?
                    .map(|rows| Done { count: None, rows }),
            };
            if let Some(done) = done {
                self.short_runs.fetch_add(1, Ordering::Relaxed);
                let width = bound.columns.len();
                assert_eq!(values.len(), done.rows * width);
                let row = |number: usize| {
                    let cells = values[number * width..][..width].iter().zip(&bound.columns);
                    cells.map(|(value, column)| shown(value, column.ty)).collect::<Vec<_>>().join("|")
                };
                return Ok(Answer { rows: (0..done.rows).map(row).collect(), count: done.count });
            }
        }
        let (mut rows, count) = match &set {
            Some(set) => {
                let executed = execute(&program, &view, set, transaction, &[], options, &context)?;
                assert_eq!(executed.count.is_some(), program.is_change());
                (executed.rows, executed.count)
            }
            None => {
                let reader = Reader { snapshot: transaction.snapshot(), transaction: Some(transaction) };
                (Rows::start(&program, &view, reader, &[], options)?, None)
            }
        };
        let mut found = Vec::new();
        while let Some(chunk) = rows.next(&context)? {
            for row in 0..chunk.length() {
                let columns = chunk.vectors().iter().zip(&bound.columns);
                let cell = |(vector, column): (&firn_vector::Vector, &firn_bind::OutputColumn)| {
                    let value = firn_executor::values::value(vector.datum(row), vector.representation());
                    shown(&value, column.ty)
                };
                found.push(columns.map(cell).collect::<Vec<_>>().join("|"));
            }
        }
        Ok(Answer { rows: found, count })
    }

    /// Runs a statement of a transaction as a session does: it waits for other transactions, and runs it again.
    pub fn run(&self, statement: &str, transaction: &mut Transaction, mode: Mode) -> Result<Answer> {
        self.run_until(statement, transaction, mode, &mut || {})
    }

    /// As [`Database::run`]; calls `wait` before it waits for another transaction.
    pub fn run_until(
        &self,
        statement: &str,
        transaction: &mut Transaction,
        mode: Mode,
        wait: &mut dyn FnMut(),
    ) -> Result<Answer> {
        transaction.refresh();
        let start = transaction.begin_statement();
        loop {
            let outcome = self.run_as(statement, transaction, options(mode));
            let error = match (outcome, transaction.take_skipped_conflict()) {
                (Ok(_), Some(missed)) => missed,
                (Ok(answer), None) => return Ok(answer),
                (Err(error), _) => error,
            };
            if error.blocker().is_none() && !(error.is_retryable() && transaction.can_advance_snapshot()) {
                transaction.abort_statement(&start);
                return Err(error);
            }
            transaction.undo_statement(&start);
            if let Some(blocker) = error.blocker() {
                wait();
                if transaction.wait_for(blocker, Duration::from_secs(20)) == Waited::Deadlock {
                    return Err(Error::deadlock());
                }
            }
            transaction.restart(&start)?;
        }
    }

    /// Begins a transaction that reads what is committed.
    pub fn begin(&self) -> Transaction {
        let mut transaction = self.engine.begin();
        transaction.set_isolation(Isolation::ReadCommitted);
        transaction
    }

    /// Runs a statement in a transaction of its own.
    pub fn alone(&self, statement: &str, mode: Mode) -> Result<Answer> {
        let mut transaction = self.begin();
        let answer = self.run(statement, &mut transaction, mode)?;
        write::check_all(&mut transaction, &detached())?;
        let _ = transaction.commit()?;
        Ok(answer)
    }

    /// The rows of a query, in a transaction of its own.
    pub fn rows(&self, query: &str) -> Vec<String> {
        self.alone(query, MODES[1]).unwrap().rows
    }
}

enum Pending<'a> {
    Check(String),
    Key(Vec<u16>, bool),
    Foreign(Vec<u16>, &'a Reference),
}

fn action(action: &KeyAction) -> ReferentialAction {
    match action {
        KeyAction::NoAction => ReferentialAction::NoAction,
        KeyAction::Restrict => ReferentialAction::Restrict,
        KeyAction::Cascade => ReferentialAction::Cascade,
        KeyAction::SetNull(_) => ReferentialAction::SetNull,
        KeyAction::SetDefault(_) => ReferentialAction::SetDefault,
    }
}

/// A value as psql prints it.
fn shown(value: &Value, ty: Type) -> String {
    let mut written = String::new();
    text::write_any(value, ty, &TextStyle::DEFAULT, &mut written);
    written
}

impl View<'_> {
    fn definition(&self, source: SourceId) -> Arc<TableDef> {
        self.catalog.tables[&Oid(source.0)].clone()
    }

    /// The scalar of an expression over the columns of a table.
    fn expression(&self, table: &TableDef, expression: &str) -> Result<StoredExpression> {
        let statement = format!("SELECT ({expression}) FROM {}", table.name);
        let parsed = parse(&statement, firn_syntax::Options::default())?;
        let plan = bind(&statement, &parsed[0].statement, &[], self)?.plan;
        let mut stored = StoredExpression {
            inputs: Vec::new(),
            columns: plan.columns.clone(),
            scalar: Scalar::Column(plan.output[0]),
        };
        for node in plan.post_order() {
            match &plan[node] {
                Operator::Scan(scan) => stored.inputs = scan.columns.clone(),
                Operator::Map { outputs, .. } => {
                    let found = outputs.iter().find(|(column, _)| *column == plan.output[0]);
                    stored.scalar = found.expect("the map gives it").1.clone();
                }
                other => panic!("{other:?}"),
            }
        }
        Ok(stored)
    }
}

impl CatalogExpressions for View<'_> {
    fn registry(&self) -> &Registry {
        &self.database.registry
    }

    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<StoredExpression> {
        self.expression(table, condition)
    }

    fn default(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let text = definition.default.as_deref().unwrap_or("NULL");
        self.expression(table, &format!("CAST({text} AS {})", definition.ty.declared))
    }

    fn generated(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let text = definition.generated.as_deref().expect("it is generated");
        self.expression(table, &format!("CAST({text} AS {})", definition.ty.declared))
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        self.database.engine.table(id)
    }
}

impl Sources for View<'_> {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        let definition = self.definition(id);
        let table = self.database.engine.table(definition.storage());
        Arc::new(TableSource::new(definition, table))
    }
}

impl firn_bind::Catalog for View<'_> {
    fn registry(&self) -> &Registry {
        &self.database.registry
    }

    fn relation(&self, _: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        let Some(table) = self.catalog.table(Oid::PUBLIC, name) else { return Ok(None) };
        let attribute = |(id, column): (ColumnId, &ColumnDef)| Attribute {
            number: id.0 as i16 + 1,
            name: column.name.as_str().into(),
            ty: column.ty.declared,
            not_null: column.not_null,
            default: column.default.as_deref().map(Into::into),
            generated: if column.generated.is_some() { Generated::Stored } else { Generated::No },
        };
        let primary = table.primary_key().map(|index| index.oid);
        let key = |index: &IndexDef| Key {
            index: index.oid.0,
            name: index.name.as_str().into(),
            columns: index.columns.iter().map(|column| column.column as i16 + 1).collect(),
            is_primary: Some(index.oid) == primary,
            is_deferrable: !index.is_always_unique(),
            nulls_not_distinct: false,
            expressions: Vec::new(),
            condition: None,
        };
        Ok(Some(Arc::new(Relation {
            oid: table.oid.0,
            schema: "public".into(),
            name: table.name.as_str().into(),
            kind: RelationKind::Table(SourceId(table.oid.0)),
            columns: table.visible_columns().map(attribute).collect(),
            keys: table.indexes.iter().filter(|index| index.unique).map(key).collect(),
            has_system_columns: false,
        })))
    }

    fn has_schema(&self, name: &str) -> bool {
        name == "public"
    }

    fn database(&self) -> &str {
        "test"
    }
}

/// What an error looks like in the files of answers.
pub fn error_text(error: &Error) -> String {
    let mut text = format!("error {}: {}", error.state(), error.message());
    if let Some(detail) = error.detail() {
        text.push_str(&format!(" / {detail}"));
    }
    text
}
