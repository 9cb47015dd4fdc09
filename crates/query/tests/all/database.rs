//! A database in memory whose tables are made without SQL, and how statements are run in it.

use firn_base::sync::Arc;
use firn_base::{Cancel, ColumnId, Result, SqlType, TextStyle, Value};
use firn_executor::values::value;
use firn_executor::{Budget, Options};
use firn_query::catalog::Names;
use firn_query::prepared::Preparing;
use firn_query::{Done, NoRelations, Prepared, Stream, Surroundings};
use firn_storage::{ColumnSpec, IndexColumn, IndexSpec};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid, TableDef,
    TableSettings,
};
use firn_txn::{Config, Engine, Transaction};
use firn_vector::context::{NoObjects, NoSession, NoSettings};
use firn_vector::{Registry, Vector};
use std::sync::LazyLock;

/// The built-in functions.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::built_in);

/// A table: its name, its columns and its indexes.
pub struct TableSchema {
    pub name: &'static str,
    /// `name type` each, with a `?` behind those that may be NULL.
    pub columns: &'static str,
    /// The first is the primary key; the others need not be unique. A `-` before a column makes it descend.
    pub indexes: &'static [&'static str],
    /// CHECK conditions.
    pub checks: &'static [&'static str],
}

/// An engine with tables.
pub struct Database {
    pub engine: Arc<Engine>,
    pub surroundings: Arc<Surroundings>,
}

impl Database {
    /// With tables that have no rows.
    pub fn new(tables: &[TableSchema]) -> Database {
        let config = Config { freeze_after: None, memory_limit: None, ..Config::default() };
        let engine = Engine::open(config).expect("a database in memory opens");
        let surroundings = Surroundings {
            statement_time: 0,
            transaction_time: 0,
            style: TextStyle::DEFAULT,
            settings: Arc::new(NoSettings),
            objects: Arc::new(NoObjects),
            session: Arc::new(NoSession),
            budget: Budget::new(1 << 30),
            cancel: Cancel::new(),
        };
        let database = Database { engine, surroundings: Arc::new(surroundings) };
        tables.iter().for_each(|table| database.create(table));
        database
    }

    fn create(&self, schema: &TableSchema) {
        let mut transaction = self.engine.begin();
        let columns: Vec<(&str, SqlType, bool)> = schema.columns.split(", ").map(column).collect();
        let specs = columns
            .iter()
            .map(|(_, ty, nullable)| ColumnSpec { representation: (*ty).into(), nullable: *nullable });
        let storage = transaction.create_storage(schema.name, specs.collect()).expect("storage is made");
        let table = transaction.table(storage);
        let (mut indexes, mut constraints) = (Vec::new(), Vec::new());
        for (number, text) in schema.indexes.iter().enumerate() {
            let part = |name: &str| {
                let plain = name.trim_start_matches('-');
                let column =
                    columns.iter().position(|(known, ..)| *known == plain).expect("it has the column");
                let descending = plain.len() < name.len();
                IndexColumnDef { column: column as u16, descending, nulls_first: descending }
            };
            let index = IndexDef {
                oid: self.engine.allocate_oid(),
                name: if number == 0 {
                    format!("{}_pkey", schema.name)
                } else {
                    format!("{}_{number}", schema.name)
                },
                columns: text.split(' ').map(part).collect(),
                unique: number == 0,
                nulls_not_distinct: false,
                values: true,
                deferral: Deferral::Never,
                condition: None,
                internal: false,
                annotations: Default::default(),
            };
            let physical = |part: &IndexColumnDef| {
                let (_, ty, nullable) = columns[usize::from(part.column)];
                IndexColumn {
                    column: ColumnId(part.column),
                    representation: ty.into(),
                    nullable,
                    descending: part.descending,
                    nulls_first: part.nulls_first,
                }
            };
            let spec = IndexSpec {
                id: index.id(),
                name: index.name.clone(),
                columns: index.columns.iter().map(physical).collect(),
                unique: index.unique,
                equal_nulls_from: None,
                values: true,
            };
            transaction.create_index(&table, spec, 1).expect("an empty table takes any index");
            if number == 0 {
                let kind = ConstraintKind::PrimaryKey { index: index.oid };
                constraints.push((index.name.clone(), kind));
            }
            indexes.push(index);
        }
        for (number, check) in schema.checks.iter().enumerate() {
            let kind = ConstraintKind::Check { expression: (*check).to_owned() };
            constraints.push((format!("{}_check{number}", schema.name), kind));
        }
        let constraint =
            |(name, kind)| ConstraintDef { oid: self.engine.allocate_oid(), name, kind, valid: true };
        let oid = self.engine.allocate_oid();
        let definition = TableDef {
            oid,
            schema: Oid::PUBLIC,
            name: schema.name.to_owned(),
            columns: columns
                .iter()
                .map(|(name, ty, nullable)| ColumnDef {
                    name: (*name).to_owned(),
                    ty: (*ty).into(),
                    not_null: !*nullable,
                    default: None,
                    identity: None,
                    generated: None,
                    hidden: false,
                    dropped: false,
                })
                .collect(),
            constraints: constraints.into_iter().map(constraint).collect(),
            indexes,
            storage: storage.0,
            settings: TableSettings::default(),
        };
        transaction.catalog_mut().expect("no other DDL runs").tables.insert(oid, Arc::new(definition));
        let ticket = transaction.commit().expect("nothing else writes");
        self.engine.wait(ticket).expect("memory needs no disk");
    }

    /// A statement, prepared for the catalog of a transaction.
    pub fn prepare(&self, text: &str, transaction: &Transaction) -> Result<Prepared> {
        let statement = firn_syntax::parse(text, firn_syntax::Options::default())?.pop().expect("it is one");
        Prepared::new(text, &statement.statement, &[], self.preparing(transaction))
    }

    /// What statements are prepared with.
    pub fn preparing<'a>(&'a self, transaction: &'a Transaction) -> Preparing<'a> {
        static PATH: LazyLock<Vec<String>> = LazyLock::new(|| vec!["public".to_owned()]);
        Preparing {
            registry: &REGISTRY,
            transaction,
            names: Names {
                search_path: &PATH,
                database: "firn",
                literals: &self.surroundings.style,
                style: &self.surroundings.style,
                present: None,
            },
            others: &NoRelations,
            cancel: &self.surroundings.cancel,
        }
    }

    /// How pipelines are run.
    pub fn options(&self) -> Options {
        Options::new(self.surroundings.budget.clone())
    }
}

fn column(text: &'static str) -> (&'static str, SqlType, bool) {
    let (name, ty) = text.split_once(' ').expect("a column has a type");
    let (ty, nullable) = match ty.strip_suffix('?') {
        Some(ty) => (ty, true),
        None => (ty, false),
    };
    let number = |text: &str| text.parse().expect("it is a number");
    let ty = match ty.split_at(1) {
        ("i", "") => SqlType::Integer,
        ("b", "") => SqlType::BigInt,
        ("s", "") => SqlType::Text,
        ("t", "") => SqlType::Timestamp,
        ("v", length) => SqlType::Varchar(Some(number(length))),
        ("c", length) => SqlType::Char(number(length)),
        ("n", size) => {
            let (precision, scale) = size.split_once('.').expect("it has a scale");
            let (precision, scale) = (number(precision) as u8, number(scale) as u8);
            SqlType::Numeric { precision, scale }
        }
        _ => panic!("{ty} is no type"),
    };
    (name, ty, nullable)
}

/// The values of all rows of a stream, row by row; how many rows.
pub fn values_of(stream: &mut Stream, values: &mut Vec<Value>) -> Result<usize> {
    let mut rows = 0;
    while let Some(chunk) = stream.next()? {
        for row in 0..chunk.rows() {
            let cell = |vector: &Vector| value(vector.datum(row), vector.representation());
            values.extend(chunk.values.vectors().iter().map(cell));
        }
        rows += chunk.rows();
    }
    Ok(rows)
}

/// Runs a statement by its pipelines: how many rows it has changed, and how many its result has.
pub fn by_pipelines(
    database: &Database,
    prepared: &Prepared,
    transaction: &mut Transaction,
    parameters: &[Value],
    values: &mut Vec<Value>,
) -> Result<Done> {
    let (surroundings, options) = (database.surroundings.clone(), database.options());
    match prepared.has_effects() {
        false => {
            let mut stream = prepared.start(transaction, &NoRelations, parameters, surroundings, options)?;
            Ok(Done { count: None, rows: values_of(&mut stream, values)? })
        }
        true => {
            let mut executed =
                prepared.execute_pipelines(transaction, &NoRelations, parameters, surroundings, options)?;
            Ok(Done { count: executed.count, rows: values_of(&mut executed.rows, values)? })
        }
    }
}

/// Runs a statement by its short program, if it has one and that does not give up.
pub fn by_short_program(
    database: &Database,
    prepared: &Prepared,
    transaction: &mut Transaction,
    parameters: &[Value],
    values: &mut Vec<Value>,
) -> Result<Option<Done>> {
    let context = database.surroundings.context();
    match prepared.has_effects() {
        false => {
            let rows = prepared.run_short(transaction, parameters, &context, values)?;
            Ok(rows.map(|rows| Done { count: None, rows }))
        }
        true => prepared.execute_short(transaction, parameters, &context, values),
    }
}
