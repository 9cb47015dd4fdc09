//! A client that sends exactly the bytes that a test gives it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use firn_session::Database;
use firn_wire::{Server, WireConfig};

/// A server on a free port over an empty database in memory.
pub fn serve(configure: impl FnOnce(&mut WireConfig)) -> Server {
    let mut config = WireConfig { listen: vec!["127.0.0.1:0".to_owned()], ..WireConfig::default() };
    configure(&mut config);
    Server::start(Database::memory().unwrap(), config).unwrap()
}

/// The server with its defaults.
pub fn serve_plainly() -> Server {
    serve(|_| ())
}

/// A connection that reads messages one by one.
pub struct Raw<S = TcpStream> {
    pub stream: S,
}

/// A message: its tag and body.
pub type Received = (char, Vec<u8>);

impl Raw {
    /// Connects and sends nothing. No test waits longer than ten seconds for a reply.
    pub fn silent(server: &Server) -> Raw {
        let stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream }
    }

    /// Connects as a trusted user and waits until the server is ready.
    pub fn connect(server: &Server) -> Raw {
        let mut raw = Raw::silent(server);
        raw.send(&startup(3 << 16, b"user\0tester\0\0"));
        raw.until('Z');
        raw
    }
}

impl<S: Read + Write> Raw<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next message; `None` when the server has closed the connection.
    pub fn receive(&mut self) -> Option<Received> {
        let mut header = [0; 5];
        match self.stream.read(&mut header[..1]) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("the server does not answer: {error}"),
        }
        self.stream.read_exact(&mut header[1..]).unwrap();
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some((char::from(header[0]), body))
    }

    /// All messages up to and including one with that tag.
    pub fn until(&mut self, tag: char) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let message = self.receive().unwrap_or_else(|| panic!("closed before {tag}: {received:?}"));
            let found = message.0 == tag;
            received.push(message);
            if found {
                return received;
            }
        }
    }

    /// The server's replies, as one character per message; errors as `E<SQLSTATE>`.
    pub fn answers(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        summary(&self.until('Z'))
    }

    /// The SQLSTATE of the error that ends the connection.
    pub fn last_error(&mut self) -> Option<String> {
        let mut state = None;
        while let Some((tag, body)) = self.receive() {
            if tag == 'E' {
                state = Some(sqlstate(&body));
            }
        }
        state
    }
}

/// Messages as one character each; errors as `E<SQLSTATE>`, ReadyForQuery with its status.
pub fn summary(messages: &[Received]) -> String {
    let each = messages.iter().map(|(tag, body)| match tag {
        'E' => format!("E{}", sqlstate(body)),
        'Z' => format!("Z{}", char::from(body[0])),
        tag => tag.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

/// A field of an error, by its code.
pub fn field(body: &[u8], code: u8) -> Option<String> {
    let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code))?;
    Some(String::from_utf8(found[1..].to_vec()).unwrap())
}

fn sqlstate(body: &[u8]) -> String {
    field(body, b'C').unwrap()
}

pub fn startup(code: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = (body.len() as u32 + 8).to_be_bytes().to_vec();
    packet.extend_from_slice(&code.to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![tag];
    packet.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

/// Binds text parameters and requests text results.
pub fn bind(portal: &str, statement: &str, parameters: &[&str]) -> Vec<u8> {
    let parameters: Vec<_> = parameters.iter().map(|parameter| Some(parameter.as_bytes())).collect();
    bind_in(portal, statement, &parameters, 0, 0)
}

/// Binds parameters in a format and requests results in one: 0 is text, 1 is binary.
pub fn bind_in(
    portal: &str,
    statement: &str,
    parameters: &[Option<&[u8]>],
    parameter_format: u16,
    result_format: u16,
) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0").into_bytes();
    body.extend_from_slice(&1u16.to_be_bytes());
    body.extend_from_slice(&parameter_format.to_be_bytes());
    body.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
    for parameter in parameters {
        let length = parameter.map_or(-1, |parameter| parameter.len() as i32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(parameter.unwrap_or(&[]));
    }
    body.extend_from_slice(&1u16.to_be_bytes());
    body.extend_from_slice(&result_format.to_be_bytes());
    message(b'B', &body)
}

/// The cells of a DataRow.
pub fn cells(row: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut rest = &row[2..];
    let mut cells = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        rest = after;
        cells.push(usize::try_from(i32::from_be_bytes(*length)).ok().map(|length| {
            let (cell, after) = rest.split_at(length);
            rest = after;
            cell.to_vec()
        }));
    }
    cells
}

pub fn describe(kind: char, name: &str) -> Vec<u8> {
    message(b'D', format!("{kind}{name}\0").as_bytes())
}

pub fn close(kind: char, name: &str) -> Vec<u8> {
    message(b'C', format!("{kind}{name}\0").as_bytes())
}

pub fn execute(portal: &str, row_limit: u32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend_from_slice(&row_limit.to_be_bytes());
    message(b'E', &body)
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}
