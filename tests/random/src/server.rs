//! A server that speaks PostgreSQL's protocol: PostgreSQL itself, or ours.

use crate::engine::{Answer, Column, Engine, Row, Statement};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use firn_base::SqlState;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection.
pub struct Server {
    stream: TcpStream,
    received: BytesMut,
    /// The last error.
    refused: Option<Refusal>,
}

/// An error with its position in the text, in characters from 1.
pub struct Refusal {
    pub state: SqlState,
    pub position: Option<u32>,
    pub message: String,
}

/// How often a server is asked that is starting still, with a tenth of a second between.
const ATTEMPTS: usize = 600;

/// How long a statement may take that is for an oracle. Ours may be a build without optimisation.
const TIMEOUT: &str = "SET statement_timeout = '10s'";
const OWN_TIMEOUT: &str = "SET statement_timeout = '60s'";

impl Server {
    /// Connects to a server of ours.
    pub fn connect_own(address: &str) -> io::Result<Server> {
        let mut server = Server::connect(address, "firn", "firn")?;
        server.execute(OWN_TIMEOUT)?;
        Ok(server)
    }

    /// Connects to a server that trusts us.
    pub fn connect(address: &str, user: &str, database: &str) -> io::Result<Server> {
        for _ in 0..ATTEMPTS {
            match Server::connect_once(address, user, database) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                other => return other,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn connect_once(address: &str, user: &str, database: &str) -> io::Result<Server> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut server = Server { stream, received: BytesMut::new(), refused: None };
        let mut out = BytesMut::new();
        frontend::startup_message([("user", user), ("database", database)], &mut out)?;
        server.stream.write_all(&out)?;
        if let Answer::Error { state, message } = server.receive()? {
            // 57P03: it is starting up.
            let is_starting = state.as_str() == "57P03";
            let kind = if is_starting { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
            return Err(io::Error::new(kind, message));
        }
        server.execute(TIMEOUT)?;
        Ok(server)
    }

    /// Runs statements whose rows do not matter. They must succeed.
    pub fn execute(&mut self, text: &str) -> io::Result<()> {
        let mut out = BytesMut::new();
        frontend::query(text, &mut out)?;
        self.stream.write_all(&out)?;
        match self.receive()? {
            Answer::Error { message, .. } => Err(io::Error::other(format!("{message}: {text}"))),
            _ => Ok(()),
        }
    }

    /// Runs statements; the error, if they fail.
    pub fn refusal(&mut self, text: &str) -> io::Result<Option<Refusal>> {
        let mut out = BytesMut::new();
        frontend::query(text, &mut out)?;
        self.stream.write_all(&out)?;
        self.refused = None;
        self.receive()?;
        Ok(self.refused.take())
    }

    fn ask(&mut self, statement: &Statement) -> io::Result<Answer> {
        let mut out = BytesMut::new();
        let types = statement.parameters.iter().map(|parameter| parameter.oid.unwrap_or(0));
        frontend::parse("", &statement.text, types, &mut out)?;
        frontend::describe(b'S', "", &mut out)?;
        let encode = |value: Option<&str>, out: &mut BytesMut| {
            Ok(match value {
                None => IsNull::Yes,
                Some(text) => {
                    out.extend_from_slice(text.as_bytes());
                    IsNull::No
                }
            })
        };
        let values = statement.parameters.iter().map(|parameter| parameter.value.as_deref());
        frontend::bind("", "", [], values, encode, [], &mut out).map_err(|error| match error {
            frontend::BindError::Conversion(error) => io::Error::other(error),
            frontend::BindError::Serialization(error) => error,
        })?;
        frontend::execute("", 0, &mut out)?;
        frontend::sync(&mut out);
        self.stream.write_all(&out)?;
        self.receive()
    }

    /// Asks within a transaction that is rolled back, and then for the rows of the table that has been changed.
    fn ask_and_undo(&mut self, statement: &Statement, table: &str) -> io::Result<Answer> {
        self.execute("BEGIN")?;
        let mut answer = self.ask(statement)?;
        if let Answer::Rows { after, .. } = &mut answer {
            let text = format!("SELECT * FROM public.{table}");
            match self.ask(&Statement { text, parameters: Vec::new(), changed: None })? {
                Answer::Rows { columns, mut rows, .. } => {
                    rows.sort_unstable();
                    *after = Some((columns.iter().map(|column| column.oid).collect(), rows));
                }
                other => answer = other,
            }
        }
        self.execute("ROLLBACK")?;
        Ok(answer)
    }

    /// All messages up to ReadyForQuery.
    fn receive(&mut self) -> io::Result<Answer> {
        let (mut columns, mut parameters, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let (mut failure, mut tag) = (None, String::new());
        loop {
            match Message::parse(&mut self.received)? {
                None => {
                    let mut buffer = [0; 8192];
                    match self.stream.read(&mut buffer)? {
                        // An error at the start ends the connection.
                        0 => return failure.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
                        length => self.received.extend_from_slice(&buffer[..length]),
                    }
                }
                Some(Message::ReadyForQuery(_)) => {
                    return Ok(failure.unwrap_or(Answer::Rows {
                        columns,
                        parameters,
                        rows,
                        tag,
                        after: None,
                    }));
                }
                Some(Message::ErrorResponse(body)) => {
                    let (mut state, mut message) = (SqlState::INTERNAL_ERROR, String::new());
                    let mut position = None;
                    let mut fields = body.fields();
                    while let Some(field) = fields.next()? {
                        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
                        match field.type_() {
                            b'C' => state = SqlState::new(&text),
                            b'M' => message = text,
                            b'P' => position = text.parse().ok(),
                            _ => {}
                        }
                    }
                    self.refused = Some(Refusal { state, position, message: message.clone() });
                    failure = Some(Answer::Error { state, message });
                }
                Some(Message::CommandComplete(body)) => tag = body.tag()?.to_owned(),
                Some(Message::ParameterDescription(body)) => parameters = body.parameters().collect()?,
                Some(Message::RowDescription(body)) => {
                    let column =
                        |field: postgres_protocol::message::backend::Field<'_>| -> io::Result<Column> {
                            Ok(Column { name: field.name().to_owned(), oid: field.type_oid() })
                        };
                    columns = body.fields().map(column).collect()?;
                }
                Some(Message::DataRow(body)) => {
                    let text = |range: Option<std::ops::Range<usize>>| -> io::Result<Option<String>> {
                        let cell = range.map(|range| body.buffer()[range].to_vec());
                        cell.map(String::from_utf8).transpose().map_err(io::Error::other)
                    };
                    let row: Row = body.ranges().map(text).collect()?;
                    rows.push(row);
                }
                Some(_) => {}
            }
        }
    }
}

impl Engine for Server {
    fn run(&mut self, statement: &Statement) -> Answer {
        let answer = match statement.changed {
            None => self.ask(statement),
            Some(table) => self.ask_and_undo(statement, table),
        };
        answer.unwrap_or_else(|error| Answer::Failure(error.to_string()))
    }
}
