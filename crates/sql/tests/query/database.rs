//! A database in memory to ask queries of.

use datafusion::arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, Result, SqlType, TimeZoneSetting, Value};
use firn_exec::{RunOptions, run};
use firn_sql::bind::{Binder, columns_of};
use firn_sql::session_facts::SessionFacts;
use firn_storage::{ColumnSpec, IndexColumn, IndexSpec};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid, TableDef,
    TableSettings, ViewDef,
};
use firn_txn::{Config, Engine};

/// Names and types of the columns of an answer.
type Columns = Vec<(String, SqlType)>;

/// An engine with some tables.
pub struct Database {
    pub engine: Arc<Engine>,
    pub facts: SessionFacts,
    pub options: RunOptions,
}

/// The rows of an answer as text, and its columns.
#[derive(Debug)]
pub struct Answer {
    pub columns: Vec<(String, SqlType)>,
    pub rows: Vec<Vec<String>>,
}

impl Database {
    pub fn new() -> Database {
        let engine = Engine::open(Config::default()).expect("a database in memory opens");
        Database {
            engine,
            facts: SessionFacts::default(),
            options: RunOptions { threads: 2, ..RunOptions::default() },
        }
    }

    /// Makes a table whose first column is its primary key; columns whose names end in `?` may be
    /// NULL. Values are written as SQL writes them.
    pub fn table(&self, name: &str, columns: &[(&str, SqlType)], rows: &[&[Option<&str>]]) {
        let mut transaction = self.engine.begin();
        let plain = |name: &str| name.trim_end_matches('?').to_owned();
        let specs =
            columns.iter().map(|(name, ty)| ColumnSpec { ty: *ty, nullable: name.ends_with('?') }).collect();
        let storage = transaction.create_storage(name, specs).expect("storage is made");
        let table = transaction.table(storage);
        let index = IndexDef {
            oid: self.engine.allocate_oid(),
            name: format!("{name}_pkey"),
            columns: vec![IndexColumnDef { column: 0, descending: false, nulls_first: false }],
            unique: true,
            values: true,
            deferral: Deferral::Never,
        };
        let spec = IndexSpec {
            id: index.id(),
            name: index.name.clone(),
            columns: vec![IndexColumn {
                column: firn_base::ColumnId(0),
                ty: columns[0].1,
                nullable: false,
                descending: false,
                nulls_first: false,
            }],
            unique: true,
            values: true,
        };
        transaction.create_index(&table, spec, 2).expect("an empty table takes any index");
        let key = ConstraintDef {
            oid: self.engine.allocate_oid(),
            name: index.name.clone(),
            kind: ConstraintKind::PrimaryKey { index: index.oid },
            valid: true,
        };
        let oid = self.engine.allocate_oid();
        let column = |(name, ty): &(&str, SqlType)| ColumnDef {
            name: plain(name),
            ty: *ty,
            not_null: !name.ends_with('?'),
            default: None,
            identity: None,
            dropped: false,
        };
        let definition = TableDef {
            oid,
            schema: Oid::PUBLIC,
            name: name.to_owned(),
            columns: columns.iter().map(column).collect(),
            constraints: vec![key],
            indexes: vec![index],
            storage: storage.0,
            settings: TableSettings::default(),
        };
        transaction.catalog_mut().expect("nobody else runs DDL").tables.insert(oid, Arc::new(definition));
        let guard = firn_storage::pin();
        for row in rows {
            let zone = TimeZoneSetting::UTC;
            let values: Vec<Value> = row
                .iter()
                .zip(columns)
                .map(|(text, (_, ty))| match text {
                    Some(text) => firn_base::text::parse(text, *ty, &zone).expect("tests write valid values"),
                    None => Value::Null,
                })
                .collect();
            let cells: Vec<_> =
                values.iter().zip(columns).map(|(value, (_, ty))| value.as_cell(*ty)).collect();
            transaction.insert(&table, &cells, &guard).expect("keys differ");
        }
        drop(guard);
        let ticket = transaction.commit().expect("nobody else writes");
        self.engine.wait(ticket).expect("memory needs no disk");
    }

    pub fn view(&self, name: &str, columns: &[&str], query: &str) {
        let mut transaction = self.engine.begin();
        let oid = self.engine.allocate_oid();
        let column = |name: &&str| ColumnDef {
            name: (*name).to_owned(),
            ty: SqlType::Text,
            not_null: false,
            default: None,
            identity: None,
            dropped: false,
        };
        let view = ViewDef {
            oid,
            schema: Oid::PUBLIC,
            name: name.to_owned(),
            columns: columns.iter().map(column).collect(),
            query: query.to_owned(),
        };
        transaction.catalog_mut().expect("nobody else runs DDL").views.insert(oid, Arc::new(view));
        let ticket = transaction.commit().expect("nobody else writes");
        self.engine.wait(ticket).expect("memory needs no disk");
    }

    /// Binds a query; the types of its parameters come with it.
    pub fn bind(
        &self,
        text: &str,
        declared: &[Option<ParameterType>],
    ) -> Result<(LogicalPlan, Vec<ParameterType>)> {
        let query = firn_sql::parse::parse_query(text)?;
        let catalog = self.engine.catalog();
        let tables = |id| self.engine.table(id);
        let binder =
            Binder::new(&catalog, &tables, &self.facts).with_text(text).with_parameter_types(declared);
        let plan = binder.query(&query)?;
        Ok((plan, binder.parameter_types()?))
    }

    pub fn batches(&self, text: &str, parameters: &[Value]) -> Result<(Columns, Vec<RecordBatch>)> {
        let (plan, _) = self.bind(text, &[])?;
        let transaction = self.engine.begin();
        let mut stream = run(&plan, parameters, &transaction, &self.options)?;
        let columns = columns_of(&stream.schema())?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next()? {
            batches.push(batch);
        }
        Ok((columns, batches))
    }

    pub fn try_ask(&self, text: &str, parameters: &[Value]) -> Result<Answer> {
        let (columns, batches) = self.batches(text, parameters)?;
        let mut rows = Vec::new();
        for batch in batches {
            for row in 0..batch.num_rows() {
                let cell = |(position, (_, ty)): (usize, &(String, SqlType))| {
                    let value = firn_exec::types::value_at(batch.column(position).as_ref(), row)?;
                    let mut text = String::new();
                    match value {
                        Value::Null => text.push_str("NULL"),
                        value => firn_base::text::write(&value, *ty, &TimeZoneSetting::UTC, &mut text),
                    }
                    Ok(text)
                };
                rows.push(columns.iter().enumerate().map(cell).collect::<Result<Vec<String>>>()?);
            }
        }
        Ok(Answer { columns, rows })
    }

    /// The rows of an answer, columns parted by `|`, rows by blanks.
    pub fn ask(&self, text: &str) -> String {
        match self.try_ask(text, &[]) {
            Ok(answer) => answer.text(),
            Err(error) => panic!("{text}: {error:?}"),
        }
    }

    /// The error of a query that has one.
    pub fn refuse(&self, text: &str) -> Error {
        match self.try_ask(text, &[]) {
            Ok(answer) => panic!("{text} yields {}", answer.text()),
            Err(error) => error,
        }
    }
}

impl Answer {
    pub fn text(&self) -> String {
        self.rows.iter().map(|row| row.join("|")).collect::<Vec<_>>().join(" ")
    }
}

/// Customers and their orders.
pub fn shop() -> Database {
    let database = Database::new();
    database.table(
        "customer",
        &[
            ("c_id", SqlType::Integer),
            ("c_name", SqlType::Varchar(Some(20))),
            ("c_credit", SqlType::Char(4)),
            ("c_since?", SqlType::Date),
            ("c_balance?", SqlType::Numeric { precision: 12, scale: 2 }),
        ],
        &[
            &[Some("1"), Some("Ada"), Some("GC"), Some("2020-01-31"), Some("10.50")],
            &[Some("2"), Some("Grace"), Some("BC"), Some("2021-06-15"), Some("-3.00")],
            &[Some("3"), Some("Edsger"), Some("GC"), None, None],
        ],
    );
    database.table(
        "orders",
        &[
            ("o_id", SqlType::BigInt),
            ("o_c_id", SqlType::Integer),
            ("o_entry", SqlType::Timestamp),
            ("o_lines", SqlType::SmallInt),
            ("o_weight?", SqlType::Double),
        ],
        &[
            &[Some("10"), Some("1"), Some("2024-02-29 12:30:00"), Some("3"), Some("1.5")],
            &[Some("11"), Some("1"), Some("2024-03-01 00:00:00"), Some("5"), None],
            &[Some("12"), Some("2"), Some("2024-12-31 23:59:59.5"), Some("7"), Some("0")],
        ],
    );
    database
}
