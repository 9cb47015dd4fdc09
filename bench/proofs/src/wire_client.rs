//! A connection over a socket for workloads in SQL: the extended protocol with named
//! statements and binary values, one round trip a statement.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use firn_base::coerce::assign;
use firn_base::{Error, Result, SqlState, SqlType, TextStyle, Type, TypeId, Value, binary};
use firn_bench::sql_client::SqlClient;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Binary, in Bind.
const BINARY: [i16; 1] = [1];

/// A connection.
pub struct WireClient {
    stream: TcpStream,
    received: BytesMut,
    /// How many statements have names.
    prepared: u32,
}

/// A statement that the server has under a name.
pub struct WireStatement {
    name: String,
    parameters: Vec<Type>,
    columns: Vec<Type>,
}

/// The rows of a query as text.
#[derive(Default)]
pub struct TextRows {
    /// Name and oid of the type of each column.
    pub columns: Vec<(String, u32)>,
    /// The rows; NULL is `None`.
    pub rows: Vec<Vec<Option<String>>>,
}

impl WireClient {
    /// Connects to the server at `address`, which must not require a password.
    pub fn connect(address: &str) -> Result<WireClient> {
        WireClient::connect_as(address, "firn", "firn")
    }

    /// Connects as this user to this database.
    pub fn connect_as(address: &str, user: &str, database: &str) -> Result<WireClient> {
        let connect = || -> io::Result<WireClient> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut client = WireClient { stream, received: BytesMut::new(), prepared: 0 };
            let mut out = BytesMut::new();
            frontend::startup_message([("user", user), ("database", database)], &mut out)?;
            client.stream.write_all(&out)?;
            Ok(client)
        };
        let mut client = connect().map_err(gone)?;
        client.receive(&mut |_| Ok(()))?;
        Ok(client)
    }

    /// Runs a COPY … FROM STDIN with these pieces of data.
    pub fn copy_in<'p>(&mut self, sql: &str, pieces: impl Iterator<Item = &'p [u8]>) -> Result<()> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(gone)?;
        self.stream.write_all(&out).map_err(gone)?;
        // The server requests the data before it is ready for the next query.
        loop {
            match Message::parse(&mut self.received).map_err(gone)? {
                Some(Message::CopyInResponse(_)) => break,
                Some(Message::ErrorResponse(body)) => {
                    let error = translate(body.fields()).map_err(gone)?;
                    self.receive(&mut |_| Ok(()))?;
                    return Err(error);
                }
                Some(_) => {}
                None => self.receive_more().map_err(gone)?,
            }
        }
        for piece in pieces {
            out.clear();
            frontend::CopyData::new(piece).map_err(gone)?.write(&mut out);
            self.stream.write_all(&out).map_err(gone)?;
        }
        out.clear();
        frontend::copy_done(&mut out);
        self.stream.write_all(&out).map_err(gone)?;
        self.receive(&mut |_| Ok(()))
    }

    /// Runs statements, and returns the rows of the last one, as text.
    pub fn run_simply(&mut self, sql: &str) -> Result<TextRows> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(gone)?;
        self.stream.write_all(&out).map_err(gone)?;
        let mut answer = TextRows::default();
        self.receive(&mut |message| {
            match message {
                Message::RowDescription(body) => {
                    let column =
                        |field: postgres_protocol::message::backend::Field<'_>| -> io::Result<(String, u32)> {
                            Ok((field.name().to_owned(), field.type_oid()))
                        };
                    answer = TextRows { columns: body.fields().map(column).collect()?, rows: Vec::new() };
                }
                Message::DataRow(body) => {
                    let text = |range: Option<std::ops::Range<usize>>| -> io::Result<Option<String>> {
                        let cell = range.map(|range| body.buffer()[range].to_vec());
                        cell.map(String::from_utf8).transpose().map_err(io::Error::other)
                    };
                    answer.rows.push(body.ranges().map(text).collect()?);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(answer)
    }

    /// Passes every message up to ReadyForQuery to `visit`. The server's error, if it sends one, is
    /// returned.
    fn receive(&mut self, visit: &mut dyn FnMut(Message) -> io::Result<()>) -> Result<()> {
        let mut failure = None;
        loop {
            match Message::parse(&mut self.received).map_err(gone)? {
                Some(Message::ReadyForQuery(_)) => return failure.map_or(Ok(()), Err),
                Some(Message::ErrorResponse(body)) => failure = Some(translate(body.fields()).map_err(gone)?),
                Some(message) => visit(message).map_err(gone)?,
                None => self.receive_more().map_err(gone)?,
            }
        }
    }

    fn receive_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }
}

impl SqlClient for WireClient {
    type Statement = WireStatement;

    fn prepare(&mut self, sql: &str) -> Result<WireStatement> {
        self.prepared += 1;
        let name = format!("s{}", self.prepared);
        let mut out = BytesMut::new();
        frontend::parse(&name, sql, [], &mut out).map_err(gone)?;
        frontend::describe(b'S', &name, &mut out).map_err(gone)?;
        frontend::sync(&mut out);
        self.stream.write_all(&out).map_err(gone)?;
        let mut statement = WireStatement { name, parameters: Vec::new(), columns: Vec::new() };
        self.receive(&mut |message| {
            match message {
                Message::ParameterDescription(body) => {
                    statement.parameters =
                        body.parameters().map(|oid| Ok(Type::new(TypeId(oid)))).collect()?;
                }
                Message::RowDescription(body) => {
                    let columns = body.fields().map(|field| {
                        Ok(Type::new(TypeId(field.type_oid())).with_modifier(field.type_modifier()))
                    });
                    statement.columns = columns.collect()?;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(statement)
    }

    fn run(&mut self, statement: &WireStatement, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut out = BytesMut::new();
        let values = parameters.iter().zip(&statement.parameters);
        let encode = |(value, &ty): (&Value, &Type), out: &mut BytesMut| {
            if value.is_null() {
                return Ok(IsNull::Yes);
            }
            let mut bytes = Vec::new();
            // The other types are strings.
            let single = SqlType::try_from(ty).unwrap_or(SqlType::Text);
            let value = assign(value.clone(), single, &TextStyle::DEFAULT)?;
            binary::encode_any(&value, ty, &mut bytes);
            out.extend_from_slice(&bytes);
            Ok(IsNull::No)
        };
        frontend::bind("", &statement.name, BINARY, values, encode, BINARY, &mut out).map_err(|error| {
            match error {
                frontend::BindError::Conversion(error) => gone(io::Error::other(error)),
                frontend::BindError::Serialization(error) => gone(error),
            }
        })?;
        frontend::execute("", 0, &mut out).map_err(gone)?;
        frontend::sync(&mut out);
        self.stream.write_all(&out).map_err(gone)?;
        let mut rows = Vec::new();
        self.receive(&mut |message| {
            if let Message::DataRow(body) = message {
                let mut row = Vec::with_capacity(statement.columns.len());
                let mut cells = body.ranges();
                for &ty in &statement.columns {
                    let cell = cells.next()?.expect("a row has all its columns");
                    row.push(match cell {
                        None => Value::Null,
                        Some(range) => {
                            binary::decode_any(&body.buffer()[range], ty).map_err(io::Error::other)?
                        }
                    });
                }
                rows.push(row);
            }
            Ok(())
        })?;
        Ok(rows)
    }
}

/// 08006: the connection is broken.
fn gone(error: io::Error) -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, error.to_string())
}

/// The error that the server has sent.
fn translate(mut fields: postgres_protocol::message::backend::ErrorFields<'_>) -> io::Result<Error> {
    let (mut state, mut message) = (SqlState::INTERNAL_ERROR, String::new());
    while let Some(field) = fields.next()? {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => state = SqlState::new(&text),
            b'M' => message = text,
            _ => {}
        }
    }
    Ok(Error::new(state, message))
}
