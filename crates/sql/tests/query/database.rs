//! A database in memory that runs scripts and returns results as text: tests `sql` without a session.

use firn_base::sync::Arc;
use firn_base::{Cancel, Error, Result, TextStyle, Type, TypeId, Value, coerce, text};
use firn_sql::activity::Sessions;
use firn_sql::parse::{self, Parsed};
use firn_sql::query::Prepared;
use firn_sql::services::Services;
use firn_sql::session_facts::SessionFacts;
use firn_sql::settings::Settings;
use firn_sql::{Datum, ResultChunk, RunOptions, Stream, ddl};
use firn_txn::{Config, Engine, Transaction};

/// An engine and the parts of a session.
pub struct Database {
    pub engine: Arc<Engine>,
    facts: Arc<SessionFacts>,
    services: Arc<Services>,
    pub cancel: Cancel,
}

/// The result of a statement: its rows as `a|b`, or how many it changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    pub rows: Vec<String>,
    pub count: u64,
}

impl Database {
    pub fn new() -> Database {
        let engine = Engine::open(Config { block_bytes: 1 << 14, ..Config::default() }).expect("opens");
        let facts = Arc::new(SessionFacts::default());
        let sessions = Arc::new(Sessions::default());
        let services = Arc::new(Services::new(
            engine.clone(),
            facts.clone(),
            Settings::new(),
            sessions.clone(),
            sessions.begin(1),
        ));
        Database { engine, facts, services, cancel: Cancel::new() }
    }

    /// A database after a script.
    pub fn with(script: &str) -> Database {
        let database = Database::new();
        database.run(script);
        database
    }

    /// Runs a script, each statement in a transaction of its own; panics on errors.
    pub fn run(&self, script: &str) -> Answer {
        self.try_run(script).unwrap_or_else(|error| panic!("{script}\n{error:?}"))
    }

    /// The rows of a statement, joined by `, `; panics on errors.
    pub fn rows(&self, sql: &str) -> String {
        self.run(sql).rows.join(", ")
    }

    /// The error of the last statement of a script.
    pub fn refuse(&self, script: &str) -> Error {
        match self.try_run(script) {
            Ok(answer) => panic!("{script} must fail, but yields {answer:?}"),
            Err(error) => error,
        }
    }

    /// The error of the last statement of a script, as `SQLSTATE message / detail`.
    pub fn error(&self, script: &str) -> String {
        let error = self.refuse(script);
        let detail = error.detail().map_or_else(String::new, |detail| format!(" / {detail}"));
        format!("{} {}{detail}", error.state(), error.message())
    }

    fn try_run(&self, script: &str) -> Result<Answer> {
        let mut answer = Answer::default();
        for parsed in parse::parse(script)? {
            let mut transaction = self.engine.begin();
            answer = self.step(&mut transaction, &parsed, &[])?;
            let _ = transaction.commit()?;
        }
        Ok(answer)
    }

    /// Runs one statement with parameters.
    pub fn with_parameters(&self, sql: &str, parameters: &[Value]) -> Result<Answer> {
        let parsed = parse::parse_one(sql)?.expect("one statement");
        let mut transaction = self.engine.begin();
        let answer = self.step(&mut transaction, &parsed, parameters)?;
        let _ = transaction.commit()?;
        Ok(answer)
    }

    /// The types of a statement's parameters, of which some may be declared.
    pub fn parameter_types(&self, sql: &str, declared: &[Option<TypeId>]) -> Result<Vec<Type>> {
        let parsed = parse::parse_one(sql)?.expect("one statement");
        let transaction = self.engine.begin();
        let prepared = Prepared::new(&parsed, declared, &transaction, &self.facts, &self.cancel)?;
        Ok(prepared.parameters().to_vec())
    }

    pub fn begin(&self) -> Transaction {
        self.engine.begin()
    }

    /// Runs one statement in a transaction.
    pub fn step(
        &self,
        transaction: &mut Transaction,
        parsed: &Parsed,
        parameters: &[Value],
    ) -> Result<Answer> {
        let options = RunOptions {
            services: self.services.clone(),
            cancel: self.cancel.clone(),
            threads: 2,
            ..RunOptions::default()
        };
        if ddl::tag(&parsed.statement).is_some() {
            let mut notices = Vec::new();
            let mut context = ddl::Context {
                engine: &self.engine,
                transaction,
                facts: &self.facts,
                options: &options,
                notices: &mut notices,
            };
            let count = ddl::execute(&mut context, parsed)?.unwrap_or(0);
            return Ok(Answer { count, ..Answer::default() });
        }
        let prepared = Prepared::new(parsed, &[], transaction, &self.facts, &self.cancel)?;
        // As in the session, parameters are converted to the types of the plan.
        let parameters = parameters
            .iter()
            .zip(prepared.parameters())
            .map(|(value, ty)| coerce::assign_parameter(value.clone(), *ty, &TextStyle::DEFAULT))
            .collect::<Result<Vec<Value>>>()?;
        if !prepared.has_effects() {
            let rows = rows_of(prepared.start(transaction, &self.facts, &parameters, &options)?)?;
            return Ok(Answer { count: rows.len() as u64, rows });
        }
        let executed = prepared.execute(transaction, &self.facts, &parameters, &options)?;
        let rows = rows_of(executed.rows)?;
        Ok(Answer { count: executed.count.unwrap_or(rows.len() as u64), rows })
    }
}

fn rows_of(mut stream: Stream) -> Result<Vec<String>> {
    let types: Vec<Type> = stream.columns().iter().map(|column| column.ty).collect();
    let mut rows = Vec::new();
    while let Some(chunk) = stream.next()? {
        rows.extend((0..chunk.rows()).map(|row| line(&chunk, &types, row)));
    }
    Ok(rows)
}

fn line(chunk: &ResultChunk, types: &[Type], row: usize) -> String {
    let shown = types.iter().enumerate().map(|(place, ty)| {
        let mut out = String::new();
        match chunk.text(place).map(|texts| texts.datum(row)) {
            Some(Datum::Text(text)) => out.push_str(text),
            _ => match chunk.values.vectors()[place].datum(row).to_value(*ty) {
                Value::Null => out.push_str("null"),
                value => text::write_any(&value, *ty, &TextStyle::DEFAULT, &mut out),
            },
        }
        out
    });
    shown.collect::<Vec<_>>().join("|")
}

/// Customers and their orders.
pub fn shop() -> Database {
    Database::with(
        "CREATE TABLE customer (c_id int PRIMARY KEY, c_name varchar(20) NOT NULL, c_credit char(4) NOT NULL,
             c_since date, c_balance numeric(12,2));
         CREATE TABLE orders (o_id bigint PRIMARY KEY, o_c_id int NOT NULL, o_entry timestamp NOT NULL,
             o_lines smallint NOT NULL, o_weight double precision);
         INSERT INTO customer VALUES (1, 'Ada', 'GC', '2020-01-31', 10.50), (2, 'Grace', 'BC', '2021-06-15', -3),
             (3, 'Edsger', 'GC', NULL, NULL);
         INSERT INTO orders VALUES (10, 1, '2024-02-29 12:30', 3, 1.5), (11, 1, '2024-03-01', 5, NULL),
             (12, 2, '2024-12-31 23:59:59.5', 7, 0)",
    )
}
