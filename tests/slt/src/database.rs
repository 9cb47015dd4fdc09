//! The databases that scripts run on: FirnDB in this process, FirnDB with frozen or compact blocks, FirnDB reopened from its directory
//! repeatedly, and any server with PostgreSQL's protocol.

use crate::shown;
use firn_base::{Error, Value, text};
use firn_session::native::pin;
use firn_session::server::ServerConnection as _;
use firn_session::{Column, Config, Connection, Outcome, Progress, TransactionStatus};
use firn_wire::{Server, WireConfig};
use postgres::{Client, NoTls, SimpleQueryMessage};
use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The result of a statement.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// A line for each row.
    pub rows: Vec<String>,
    /// How many rows it changed or returned.
    pub count: u64,
}

/// An error.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// SQLSTATE
    pub code: String,
    /// Message, detail and hint.
    pub text: String,
}

/// A database that runs SQL.
pub trait Database {
    /// `firn`, `postgres` or `compact`, as named by `skipif`.
    fn name(&self) -> &'static str;

    /// Runs one statement on a connection of that name.
    fn run(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure>;

    /// Prepares one statement on a connection of that name. The rows are the name and the type of each of its columns.
    fn columns(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure>;

    /// Called between two statements.
    fn pause(&mut self) {}

    /// Whether a pause replaces the sessions, so that files that depend on a session's state have no pauses.
    fn forgets_sessions(&self) -> bool {
        false
    }
}

/// FirnDB in this process.
pub struct Firn {
    database: Option<firn_session::Database>,
    connections: HashMap<String, Connection>,
}

impl Firn {
    /// A database.
    pub fn new(database: firn_session::Database) -> Firn {
        Firn { database: Some(database), connections: HashMap::new() }
    }

    fn connection(&mut self, name: &str) -> &mut Connection {
        let database = self.database.as_ref().expect("the database is open");
        self.connections.entry(name.to_owned()).or_insert_with(|| database.connect())
    }

    fn answer(connection: &mut Connection, sql: &str) -> Result<Answer, Error> {
        let statement = connection.prepare(sql)?;
        let style = *connection.text_style();
        match connection.run(&statement, &[])? {
            Outcome::Done(tag) => Ok(Answer { rows: Vec::new(), count: tag.rows.unwrap_or(0) }),
            Outcome::Empty => Ok(Answer::default()),
            Outcome::Rows(rows) => {
                let columns = rows.columns().clone();
                let shown = |value: &Value, column: &Column| {
                    let mut out = String::new();
                    text::write_any(value, column.ty, &style, &mut out);
                    shown((!value.is_null()).then_some(&out))
                };
                let rows: Vec<String> = rows
                    .into_values()?
                    .iter()
                    .map(|row| {
                        let cells = row.iter().zip(&columns[..]).map(|(value, column)| shown(value, column));
                        cells.collect::<Vec<_>>().join(" ")
                    })
                    .collect();
                Ok(Answer { count: rows.len() as u64, rows })
            }
            Outcome::CopyIn(copy) => {
                copy.finish().map(|tag| Answer { rows: Vec::new(), count: tag.rows.unwrap_or(0) })
            }
            Outcome::CopyOut(mut copy) => {
                let mut data = Vec::new();
                while let Some(piece) = copy.next_chunk()? {
                    data.extend(piece);
                }
                let text = String::from_utf8_lossy(&data);
                let rows: Vec<String> = text.lines().map(str::to_owned).collect();
                Ok(Answer { count: copy.tag().rows.unwrap_or(0), rows })
            }
        }
    }
}

impl Database for Firn {
    fn name(&self) -> &'static str {
        "firn"
    }

    fn run(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        Firn::answer(self.connection(connection), sql).map_err(failed)
    }

    fn columns(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        let statement = self.connection(connection).prepare(sql).map_err(failed)?;
        let columns = statement.columns().map_or(&[][..], |columns| &columns[..]);
        let rows: Vec<String> =
            columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
        Ok(Answer { count: rows.len() as u64, rows })
    }
}

fn failed(error: Error) -> Failure {
    Failure { code: error.state().as_str().to_owned(), text: error.to_string() }
}

/// The state of the blocks of a [`Cold`] database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Temperature {
    /// Frozen
    Frozen,
    /// Compact
    Compact,
}

/// FirnDB in this process, whose blocks are as cold as possible after every statement.
pub struct Cold {
    firn: Firn,
    temperature: Temperature,
    found: Rc<Cell<u64>>,
}

/// A round of the freezer waits for guards, also of other tests. It is repeated for at most this time, and at most [`ROUNDS`] times.
const PATIENCE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;

impl Cold {
    /// A database in memory; the number of blocks in that state is added to `found`.
    pub fn new(temperature: Temperature, found: Rc<Cell<u64>>) -> Result<Cold, Error> {
        // The freezer's own thread would move rows of transactions that have just begun.
        let config = Config { freeze_after: None, compact_after: None, ..Config::default() };
        Ok(Cold { firn: Firn::new(firn_session::Database::open_with(config)?), temperature, found })
    }
}

impl Database for Cold {
    fn name(&self) -> &'static str {
        match self.temperature {
            Temperature::Frozen => "firn",
            Temperature::Compact => "compact",
        }
    }

    fn run(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        self.firn.run(connection, sql)
    }

    fn columns(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        self.firn.columns(connection, sql)
    }

    fn pause(&mut self) {
        let database = self.firn.database.as_ref().expect("the database is open");
        let engine = database.engine();
        // Rows with versions do not freeze, and the collector may run only later.
        engine.collect();
        let until = Instant::now() + PATIENCE;
        let mut rounds = 0;
        while rounds < ROUNDS && Instant::now() < until {
            pin().flush();
            match engine.freeze(Duration::ZERO) {
                Progress::Done => rounds += 1,
                Progress::Working => {}
                Progress::Waiting => std::thread::yield_now(),
            }
        }
        let state = match self.temperature {
            Temperature::Frozen => "frozen",
            Temperature::Compact => {
                engine.compact(Duration::ZERO);
                "compact"
            }
        };
        let sql = format!("SELECT count(*) FROM firn_blocks WHERE state = '{state}'");
        let found = Firn::answer(&mut database.connect(), &sql).expect("that is always there");
        self.found.set(self.found.get() + found.rows[0].parse::<u64>().expect("a number"));
    }
}

/// FirnDB in a directory, closed and opened again whenever no transaction is open.
pub struct Restarting {
    directory: PathBuf,
    firn: Firn,
}

impl Restarting {
    /// The database in a directory.
    pub fn open(directory: PathBuf) -> Result<Restarting, Error> {
        let firn = Firn::new(firn_session::Database::open(&directory)?);
        Ok(Restarting { directory, firn })
    }
}

impl Database for Restarting {
    fn name(&self) -> &'static str {
        "firn"
    }

    fn run(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        self.firn.run(connection, sql)
    }

    fn columns(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        self.firn.columns(connection, sql)
    }

    fn pause(&mut self) {
        let idle = |connection: &Connection| connection.status() == TransactionStatus::Idle;
        if !self.firn.connections.values().all(idle) {
            return;
        }
        self.firn.connections.clear();
        let database = self.firn.database.take().expect("the database is open");
        database.close().expect("an idle database closes");
        let reopened = firn_session::Database::open(&self.directory);
        self.firn.database = Some(reopened.expect("a closed database opens"));
    }

    fn forgets_sessions(&self) -> bool {
        true
    }
}

/// A server with PostgreSQL's protocol.
pub struct Postgres {
    url: String,
    name: &'static str,
    /// The statements at the beginning of each connection.
    begin: &'static str,
    // Before the server, which waits for its clients when it ends.
    clients: HashMap<String, Client>,
    _server: Option<Server>,
}

impl Postgres {
    /// The server of a connection string; `name` is for `skipif`, `begin` is run at the beginning of each connection.
    pub fn new(url: &str, name: &'static str, begin: &'static str) -> Postgres {
        Postgres { url: url.to_owned(), name, begin, clients: HashMap::new(), _server: None }
    }

    /// FirnDB behind a server of its own.
    pub fn firn(database: firn_session::Database) -> Result<Postgres, Error> {
        let config = WireConfig { listen: vec!["127.0.0.1:0".to_owned()], ..WireConfig::default() };
        let server = Server::start(database, config)?;
        let address = server.local_addr();
        let url = format!("host={} port={} user=firn dbname=firn", address.ip(), address.port());
        Ok(Postgres { _server: Some(server), ..Postgres::new(&url, "firn", "") })
    }

    fn client(&mut self, name: &str) -> Result<&mut Client, postgres::Error> {
        if !self.clients.contains_key(name) {
            let mut client = Client::connect(&self.url, NoTls)?;
            client.batch_execute(self.begin)?;
            self.clients.insert(name.to_owned(), client);
        }
        Ok(self.clients.get_mut(name).expect("it has just been made"))
    }

    fn answer(client: &mut Client, sql: &str) -> Result<Answer, postgres::Error> {
        let lower = sql.trim_start().to_lowercase();
        if lower.starts_with("copy") && lower.contains("stdout") {
            use std::io::Read;
            let mut data = Vec::new();
            let mut reader = client.copy_out(sql)?;
            // An error of the connection is returned by the reader as an I/O error.
            let _ = reader.read_to_end(&mut data);
            let text = String::from_utf8_lossy(&data);
            let rows: Vec<String> = text.lines().map(str::to_owned).collect();
            return Ok(Answer { count: rows.len() as u64, rows });
        }
        if lower.starts_with("copy") && lower.contains("stdin") {
            let count = client.copy_in(sql)?.finish()?;
            return Ok(Answer { rows: Vec::new(), count });
        }
        let mut answer = Answer::default();
        for message in client.simple_query(sql)? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let cells: Vec<String> = (0..row.len()).map(|column| shown(row.get(column))).collect();
                    answer.rows.push(cells.join(" "));
                }
                SimpleQueryMessage::CommandComplete(count) => answer.count = count,
                _ => {}
            }
        }
        Ok(answer)
    }
}

impl Database for Postgres {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        let client = self.client(connection).map_err(failure)?;
        Postgres::answer(client, sql).map_err(failure)
    }

    fn columns(&mut self, connection: &str, sql: &str) -> Result<Answer, Failure> {
        let client = self.client(connection).map_err(failure)?;
        let statement = client.prepare(sql).map_err(failure)?;
        let mut rows = Vec::new();
        for column in statement.columns() {
            let (oid, modifier) = (column.type_().oid(), column.type_modifier());
            let query = "SELECT pg_catalog.format_type($1, $2)";
            let ty: String = client.query_one(query, &[&oid, &modifier]).map_err(failure)?.get(0);
            rows.push(format!("{} {ty}", column.name()));
        }
        Ok(Answer { count: rows.len() as u64, rows })
    }
}

fn failure(error: postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(error) => {
            let mut text = error.message().to_owned();
            for (label, more) in [("DETAIL", error.detail()), ("HINT", error.hint())] {
                if let Some(more) = more {
                    text.push_str(&format!("\n{label}: {more}"));
                }
            }
            Failure { code: error.code().code().to_owned(), text }
        }
        None => Failure { code: "08006".to_owned(), text: error.to_string() },
    }
}
