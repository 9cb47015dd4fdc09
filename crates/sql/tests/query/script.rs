//! A database in memory that runs scripts and shows what comes out as text.

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlType, TimeZoneSetting, Value, coerce};
use firn_exec::short::{Completion, ShortProgram};
use firn_exec::{RunOptions, types};
use firn_sql::activity::Sessions;
use firn_sql::bind::Binder;
use firn_sql::services::Services;
use firn_sql::session_facts::SessionFacts;
use firn_sql::settings::Settings;
use firn_sql::statement::{Parsed, Statement};
use firn_sql::{ddl, dml, parse};
use firn_txn::{Config, Engine, Transaction};

/// A database and one transaction at a time on it.
pub struct Db {
    pub engine: Arc<Engine>,
    pub facts: Arc<SessionFacts>,
    pub services: Arc<Services>,
    /// Whether statements may take the short path.
    pub short: bool,
}

/// What a statement came to: its rows as `a|b`, or how many it changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    pub rows: Vec<String>,
    pub count: u64,
    pub was_short: bool,
}

impl Db {
    pub fn new() -> Db {
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
        Db { engine, facts, services, short: true }
    }

    /// A database after a script.
    pub fn with(script: &str) -> Db {
        let db = Db::new();
        db.run(script);
        db
    }

    /// Runs a script, each statement in a transaction of its own; panics on errors.
    pub fn run(&self, script: &str) -> Answer {
        self.try_run(script).unwrap_or_else(|error| panic!("{script}\n{error:?}"))
    }

    /// The rows of a statement, joined by `, `; panics on errors.
    pub fn rows(&self, sql: &str) -> String {
        self.run(sql).rows.join(", ")
    }

    /// The error of the last statement of a script, as `SQLSTATE message / detail`.
    pub fn error(&self, script: &str) -> String {
        let error: Error = match self.try_run(script) {
            Ok(answer) => panic!("{script} must fail, but yields {answer:?}"),
            Err(error) => error,
        };
        let detail = error.detail().map_or_else(String::new, |detail| format!(" / {detail}"));
        format!("{} {}{detail}", error.state(), error.message())
    }

    pub fn try_run(&self, script: &str) -> Result<Answer> {
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

    /// Runs one statement in a transaction.
    pub fn step(
        &self,
        transaction: &mut Transaction,
        parsed: &Parsed,
        parameters: &[Value],
    ) -> Result<Answer> {
        let options = RunOptions { services: self.services.clone(), threads: 1, ..RunOptions::default() };
        match &parsed.statement {
            Statement::Query(query) => {
                let tables = |id| transaction.table(id);
                let catalog = transaction.catalog().clone();
                let binder = Binder::new(&catalog, &tables, &self.facts);
                let plan = binder.query(query)?;
                let types: Vec<SqlType> =
                    types::columns_of(plan.schema().as_arrow())?.into_iter().map(|(_, ty)| ty).collect();
                if let Some(program) = ShortProgram::compile(&plan).filter(|_| self.short) {
                    let mut values = Vec::new();
                    let completion = program.run(transaction, parameters, &options, &mut values)?;
                    if let Completion::Done { rows } = completion {
                        return Ok(Answer {
                            rows: show(&values, &types),
                            count: rows as u64,
                            was_short: true,
                        });
                    }
                }
                let mut stream = firn_exec::run(&plan, parameters, transaction, &options)?;
                let mut values = Vec::new();
                while let Some(batch) = stream.next()? {
                    for row in 0..batch.num_rows() {
                        for column in batch.columns() {
                            values.push(types::value_at(column, row)?);
                        }
                    }
                }
                let rows = show(&values, &types);
                Ok(Answer { count: rows.len() as u64, rows, was_short: false })
            }
            Statement::Change(change) => {
                let tables = |id| transaction.table(id);
                let catalog = transaction.catalog().clone();
                let mut plan = {
                    let binder = Binder::new(&catalog, &tables, &self.facts);
                    dml::plan(&binder, &catalog, change)?
                };
                if !self.short {
                    plan.avoid_short_path();
                }
                // As the session does: parameters come in the types that the plan wants.
                let parameters = parameters
                    .iter()
                    .zip(plan.parameter_types())
                    .map(|(value, ty)| coerce::assign_parameter(value.clone(), *ty, &TimeZoneSetting::UTC))
                    .collect::<Result<Vec<Value>>>()?;
                let outcome = plan.execute(transaction, &parameters, &options)?;
                let types: Vec<SqlType> = plan.columns().unwrap_or(&[]).iter().map(|(_, ty)| *ty).collect();
                let rows = outcome.returning.map_or_else(Vec::new, |values| show(&values, &types));
                Ok(Answer { rows, count: outcome.count, was_short: false })
            }
            Statement::Ddl(ddl) => {
                let mut notices = Vec::new();
                let mut context = ddl::Context {
                    engine: &self.engine,
                    transaction,
                    facts: &self.facts,
                    options: &options,
                    notices: &mut notices,
                    depth: 0,
                };
                let count = ddl::execute(&mut context, ddl)?.unwrap_or(0);
                Ok(Answer { count, ..Answer::default() })
            }
            other => panic!("this harness does not run {other:?}"),
        }
    }

    pub fn begin(&self) -> Transaction {
        self.engine.begin()
    }
}

fn show(values: &[Value], types: &[SqlType]) -> Vec<String> {
    if types.is_empty() {
        return Vec::new();
    }
    values
        .chunks(types.len())
        .map(|row| {
            let shown: Vec<String> = row
                .iter()
                .zip(types)
                .map(|(value, ty)| {
                    let mut text = String::new();
                    match value {
                        Value::Null => text.push_str("null"),
                        value => firn_base::text::write(value, *ty, &TimeZoneSetting::UTC, &mut text),
                    }
                    text
                })
                .collect();
            shown.join("|")
        })
        .collect()
}
