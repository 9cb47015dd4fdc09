//! A client's side of the protocol, for the shell and other commands: a blocking connection that sends scripts and yields the
//! server's replies, message by message. It keeps what other clients drop and a shell shows: command
//! tags, column types, notices, the position of an error in a statement, and the transaction's state.

// Errors here are shown to a person, so their size in memory does not matter.
#![allow(clippy::result_large_err)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256 as MECHANISM, SCRAM_SHA_256_PLUS as BOUND_MECHANISM, ScramSha256,
};
use postgres_protocol::message::backend::{ErrorFields, Message as Received};
use postgres_protocol::message::frontend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::{ClientConnection, StreamOwned};

use crate::secure::{Begun, Security};

/// How long to wait for a connection to one address, and for each answer until the session begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Until the connection is there.
    connect: Duration,
    /// For each answer until the session begins.
    start: Duration,
}

impl Patience {
    /// For one who waits.
    pub const USUAL: Patience = Patience { connect: Duration::from_secs(10), start: Duration::from_secs(30) };
    /// For one who tries again.
    pub const BRIEF: Patience = Patience { connect: Duration::from_secs(2), start: Duration::from_secs(3) };
    /// For a server that has others to ask.
    pub const SHORT: Patience =
        Patience { connect: Duration::from_millis(300), start: Duration::from_millis(500) };
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// The address, and the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub address: Address,
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub security: Security,
    pub patience: Patience,
}

impl Target {
    /// Reads `postgres://user:password@host:port/database?sslmode=…`; all but the scheme may be left out.
    pub fn parse(url: &str) -> Result<Target, String> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or("a URL begins with postgres://")?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = parameters.split('&').filter_map(|parameter| parameter.split_once('='));
        let parameters: Vec<_> = parameters
            .map(|(name, value)| Ok((unescape(name)?, unescape(value)?)))
            .collect::<Result<_, String>>()?;
        let security = Security::read(&parameters)?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(unescape(password)?)),
            None => (credentials, None),
        };
        // An IPv6 address is in brackets, because it has colons itself.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("\"{port}\" is not a port"))?)
            }
            _ => (place, 5432),
        };
        let host = unescape(host.trim_start_matches('[').trim_end_matches(']'))?;
        let address = if host.starts_with('/') {
            Address::Unix(PathBuf::from(host).join(format!(".s.PGSQL.{port}")))
        } else {
            Address::Tcp(if host.is_empty() { "localhost".to_owned() } else { host }, port)
        };
        let user = match unescape(user)? {
            user if user.is_empty() => std::env::var("USER").unwrap_or_else(|_| "firn".to_owned()),
            user => user,
        };
        let database = match unescape(database)? {
            database if database.is_empty() => user.clone(),
            database => database,
        };
        let password =
            password.or_else(|| std::env::var("FIRN_PASSWORD").or_else(|_| std::env::var("PGPASSWORD")).ok());
        Ok(Target { address, user, password, database, security, patience: Patience::USUAL })
    }
}

/// Replaces `%40` and similar escapes.
fn unescape(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("\"{text}\" has a % without two hexadecimal digits"))?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("\"{text}\" is not UTF-8"))
}

/// An error or notice of the server.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    pub severity: String,
    pub code: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// The context of the error.
    pub context: Option<String>,
    /// The position in the script, in characters from 1.
    pub position: Option<usize>,
}

impl Report {
    fn read(mut fields: ErrorFields<'_>) -> io::Result<Report> {
        let mut report = Report::default();
        while let Some(field) = fields.next()? {
            report.take_field(field.type_(), field.value_bytes());
        }
        Ok(report)
    }

    fn take_field(&mut self, field: u8, value: &[u8]) {
        let value = String::from_utf8_lossy(value).into_owned();
        match field {
            b'S' => self.severity = value,
            b'C' => self.code = value,
            b'M' => self.message = value,
            b'D' => self.detail = Some(value),
            b'H' => self.hint = Some(value),
            b'W' => self.context = Some(value),
            b'P' => self.position = value.parse().ok(),
            _ => {}
        }
    }

    /// Reads the content of an ErrorResponse.
    pub fn read_raw(body: &[u8]) -> Report {
        let mut report = Report::default();
        for field in body.split(|byte| *byte == 0) {
            if let Some((field, value)) = field.split_first() {
                report.take_field(*field, value);
            }
        }
        report
    }

    /// A failure that the server did not report itself.
    pub fn local(message: impl Into<String>) -> Report {
        Report {
            severity: "ERROR".into(),
            code: "08006".into(),
            message: message.into(),
            ..Report::default()
        }
    }
}

impl Report {
    fn with_code(self, code: &str) -> Report {
        Report { code: code.into(), ..self }
    }
}

impl From<io::Error> for Report {
    fn from(error: io::Error) -> Report {
        Report::local(format!("the connection to the server was lost: {error}"))
    }
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    /// Its type's row in `pg_type`.
    pub type_oid: u32,
}

/// A row as text; `None` for NULL.
pub type Row = Vec<Option<String>>;

/// The server's replies to a script.
pub enum Answer {
    /// Rows with these columns follow.
    Columns(Vec<Column>),
    /// A row as text.
    Row(Row),
    /// A statement is done; its command tag.
    Complete(String),
    /// A statement or the script failed.
    Failed(Report),
    /// A notice.
    Notice(Report),
    /// The server waits for data.
    CopyIn,
    /// Data of COPY … TO STDOUT.
    CopyData(Bytes),
    /// The script is over; the state of the transaction (`I`, `T` or `E`).
    Ready,
}

enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Connects, encrypted as is wanted. Also comes back with what SCRAM can be bound to.
    fn connect(
        address: &Address,
        security: &Security,
        patience: Patience,
    ) -> Result<(Stream, Option<Vec<u8>>), Report> {
        match address {
            Address::Tcp(host, port) => {
                let connected = connect(host, *port, patience);
                let stream = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
                let stream = stream.map_err(|error| {
                    let mut report = Report::local(format!("could not connect to {host}:{port}: {error}"));
                    report.hint = Some("Is a server running there? Start one with firn serve.".into());
                    report
                })?;
                let failed = |error| Report::local(format!("could not connect to {host}:{port}: {error}"));
                Ok(match security.begin(stream, host).map_err(failed)? {
                    Begun::Clear(stream) => (Stream::Tcp(stream), None),
                    Begun::Encrypted(stream, end_point) => (Stream::Tls(stream), end_point),
                })
            }
            Address::Unix(path) => {
                let connected = UnixStream::connect(path);
                let stream = connected.map_err(|error| {
                    Report::local(format!("could not connect to {}: {error}", path.display()))
                })?;
                Ok((Stream::Unix(stream), None))
            }
        }
    }

    fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    /// Reads and writes fail that have waited for so long.
    fn limit_silence(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => limit_silence(stream, timeout),
            Stream::Tls(stream) => limit_silence(stream.get_ref(), timeout),
            Stream::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    /// A handle that ends the connection.
    fn closer(&self) -> io::Result<Closer> {
        Ok(match self {
            Stream::Tcp(stream) => Closer::Tcp(stream.try_clone()?),
            Stream::Tls(stream) => Closer::Tcp(stream.get_ref().try_clone()?),
            Stream::Unix(stream) => Closer::Unix(stream.try_clone()?),
        })
    }

    /// Waits until there is something to read; false if so long there is nothing.
    fn wait_readable(&mut self, longest: Duration) -> io::Result<bool> {
        if let Stream::Tls(stream) = self {
            let state = stream.conn.process_new_packets().map_err(io::Error::other)?;
            if state.plaintext_bytes_to_read() > 0 {
                return Ok(true);
            }
        }
        let limit = Timespec {
            tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let socket = match &*self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.get_ref().as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&limit)) {
            Ok(answered) => Ok(answered > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Connects to the first address of a host that answers. Waits for the server are limited from then on.
fn connect(host: &str, port: u16, patience: Patience) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience.connect) {
            Ok(stream) => return limit_silence(&stream, Some(patience.start)).map(|()| stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn limit_silence(stream: &TcpStream, timeout: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
}

/// A connection.
pub struct Client {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    target: Target,
    canceller: Canceller,
    status: u8,
    server_version: String,
}

/// Ends a connection from another thread, also while one waits for the server in it.
pub enum Closer {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Closer {
    /// Everything that reads or writes fails from now on.
    pub fn close(&self) {
        // It may have ended already.
        let _ = match self {
            Closer::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Closer::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Stops what a connection runs, from another thread.
#[derive(Clone)]
pub struct Canceller {
    address: Address,
    security: Security,
    process: i32,
    key: i32,
}

impl Canceller {
    /// Sends the request. Whether a statement was cancelled shows in its reply.
    pub fn cancel(&self) {
        let mut request = BytesMut::new();
        frontend::cancel_request(self.process, self.key, &mut request);
        if let Ok((mut stream, _)) = Stream::connect(&self.address, &self.security, Patience::USUAL) {
            let _ = stream.write_all(&request);
        }
    }
}

impl Client {
    /// Connects and authenticates.
    pub fn connect(target: &Target) -> Result<Client, Report> {
        Client::connect_with(target, &[("application_name", "firn sql")])
    }

    /// The same with other start-up parameters.
    pub fn connect_with(target: &Target, more: &[(&str, &str)]) -> Result<Client, Report> {
        let (stream, end_point) = Stream::connect(&target.address, &target.security, target.patience)?;
        let mut client = Client {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            target: target.clone(),
            canceller: Canceller {
                address: target.address.clone(),
                security: target.security.clone(),
                process: 0,
                key: 0,
            },
            status: b'I',
            server_version: String::new(),
        };
        let parameters = [
            ("user", target.user.as_str()),
            ("database", target.database.as_str()),
            ("client_encoding", "UTF8"),
        ];
        let parameters = parameters.into_iter().chain(more.iter().copied());
        frontend::startup_message(parameters, &mut client.output)?;
        client.authenticate(target, end_point)?;
        client.stream.limit_silence(None)?;
        Ok(client)
    }

    fn authenticate(&mut self, target: &Target, mut end_point: Option<Vec<u8>>) -> Result<(), Report> {
        let password = || {
            target.password.as_deref().map(str::as_bytes).ok_or_else(|| {
                let mut report = Report::local("the server asks for a password").with_code("28P01");
                report.hint = Some("Give it in the URL or in the environment variable FIRN_PASSWORD.".into());
                report
            })
        };
        let mut scram = None;
        loop {
            self.send()?;
            match self.receive()? {
                Received::AuthenticationCleartextPassword => {
                    frontend::password_message(password()?, &mut self.output)?;
                }
                Received::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(target.user.as_bytes(), password()?, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                Received::AuthenticationSasl(body) => {
                    let is_bound = body.mechanisms().any(|mechanism| Ok(mechanism == BOUND_MECHANISM))?;
                    let (mechanism, binding) = match end_point.take() {
                        Some(hash) if is_bound => {
                            (BOUND_MECHANISM, ChannelBinding::tls_server_end_point(hash))
                        }
                        Some(_) => (MECHANISM, ChannelBinding::unrequested()),
                        None => (MECHANISM, ChannelBinding::unsupported()),
                    };
                    let started = ScramSha256::new(password()?, binding);
                    frontend::sasl_initial_response(mechanism, started.message(), &mut self.output)?;
                    scram = Some(started);
                }
                Received::AuthenticationSaslContinue(body) => {
                    let scram = scram.as_mut().ok_or_else(unexpected)?;
                    scram.update(body.data()).map_err(untrusted)?;
                    frontend::sasl_response(scram.message(), &mut self.output)?;
                }
                Received::AuthenticationSaslFinal(body) => {
                    scram.as_mut().ok_or_else(unexpected)?.finish(body.data()).map_err(untrusted)?;
                }
                Received::AuthenticationOk => {}
                Received::BackendKeyData(body) => {
                    self.canceller.process = body.process_id();
                    self.canceller.key = body.secret_key();
                }
                Received::ParameterStatus(body) if body.name()? == "server_version" => {
                    self.server_version = body.value()?.to_owned();
                }
                Received::ParameterStatus(_) | Received::NoticeResponse(_) => {}
                Received::ReadyForQuery(_) => return Ok(()),
                Received::ErrorResponse(body) => return Err(Report::read(body.fields())?),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Sends a script; [`Client::next`] yields the replies up to [`Answer::Ready`].
    pub fn query(&mut self, script: &str) -> io::Result<()> {
        frontend::query(script, &mut self.output)?;
        self.send()
    }

    /// The next reply.
    pub fn next(&mut self) -> Result<Answer, Report> {
        loop {
            return Ok(match self.receive()? {
                Received::RowDescription(body) => {
                    let columns = body.fields().map(|field| {
                        Ok(Column { name: field.name().to_owned(), type_oid: field.type_oid() })
                    });
                    Answer::Columns(columns.collect()?)
                }
                Received::DataRow(body) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let cells = body.ranges().map(|range| Ok(range.map(|range| text(&body.buffer()[range]))));
                    Answer::Row(cells.collect()?)
                }
                Received::CommandComplete(body) => Answer::Complete(body.tag()?.to_owned()),
                Received::ErrorResponse(body) => Answer::Failed(Report::read(body.fields())?),
                Received::NoticeResponse(body) => Answer::Notice(Report::read(body.fields())?),
                Received::CopyInResponse(_) => Answer::CopyIn,
                Received::CopyData(body) => Answer::CopyData(body.into_bytes()),
                Received::ReadyForQuery(body) => {
                    self.status = body.status();
                    Answer::Ready
                }
                _ => continue,
            });
        }
    }

    /// Runs a script and yields the rows of its last query with their columns; its error if it fails.
    pub fn rows(&mut self, script: &str) -> Result<(Vec<Column>, Vec<Row>), Report> {
        self.query(script)?;
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        let mut failure = None;
        loop {
            match self.next()? {
                Answer::Columns(new) => (columns, rows) = (new, Vec::new()),
                Answer::Row(row) => rows.push(row),
                Answer::Failed(report) => failure = Some(report),
                Answer::Ready => return failure.map_or(Ok((columns, rows)), Err),
                Answer::CopyIn => self.copy_end(Some("there is no data to send"))?,
                Answer::Complete(_) | Answer::Notice(_) | Answer::CopyData(_) => {}
            }
        }
    }

    /// Runs COPY … TO STDOUT and passes its data to `take`. Returns the number of rows in its tag. An error of `take`
    /// is returned after the end of the server's reply.
    pub fn copy_out(
        &mut self,
        sql: &str,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Report> {
        self.query(sql)?;
        let (mut taken, mut failure, mut rows) = (Ok(()), None, 0);
        loop {
            match self.next()? {
                Answer::CopyData(data) => taken = taken.and_then(|()| take(&data)),
                Answer::Complete(tag) => rows = copied(&tag),
                Answer::Failed(report) => failure = Some(report),
                Answer::Ready => break,
                _ => {}
            }
        }
        match (failure, taken) {
            (Some(report), _) => Err(report),
            (None, Err(error)) => Err(Report::local(error.to_string())),
            (None, Ok(())) => Ok(rows),
        }
    }

    /// Runs a statement whose only reply is its tag, or COPY … FROM STDIN with the data that `give` yields until
    /// there is none. Returns the number of rows in its tag.
    pub fn copy_in(
        &mut self,
        sql: &str,
        give: &mut dyn FnMut() -> Result<Option<Vec<u8>>, Report>,
    ) -> Result<u64, Report> {
        self.query(sql)?;
        let (mut failure, mut rows) = (None, 0);
        loop {
            match self.next()? {
                Answer::CopyIn => loop {
                    match give() {
                        Ok(Some(data)) => self.copy_data(&data)?,
                        Ok(None) => break self.copy_end(None)?,
                        Err(report) => {
                            self.copy_end(Some(&report.message))?;
                            failure = Some(report);
                            break;
                        }
                    }
                },
                Answer::Complete(tag) => rows = copied(&tag),
                Answer::Failed(report) => failure = failure.or(Some(report)),
                Answer::Ready => return failure.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Sends data for a COPY.
    pub fn copy_data(&mut self, data: &[u8]) -> io::Result<()> {
        frontend::CopyData::new(data)?.write(&mut self.output);
        if self.output.len() > 64 * 1024 { self.send() } else { Ok(()) }
    }

    /// Ends the data of a COPY; with a reason, fails it.
    pub fn copy_end(&mut self, failure: Option<&str>) -> io::Result<()> {
        match failure {
            None => frontend::copy_done(&mut self.output),
            Some(reason) => frontend::copy_fail(reason, &mut self.output)?,
        }
        self.send()
    }

    /// The state of the transaction: `I` outside one, `T` inside, `E` inside a failed one.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// The server's version.
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// The address, and the user.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The session's number, as `pg_backend_pid()` returns it.
    pub fn session(&self) -> i32 {
        self.canceller.process
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// A handle for cancelling.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent
    }

    /// The tag of the next message, whose content replaces that of `body`: for messages of other protocols.
    pub fn receive_raw(&mut self, body: &mut Vec<u8>) -> io::Result<u8> {
        const HEADER: usize = 5;
        self.receive_at_least(HEADER)?;
        let length = u32::from_be_bytes(self.input[1..HEADER].try_into().expect("4 bytes")) as usize;
        let length = length.checked_sub(HEADER - 1).ok_or(io::ErrorKind::InvalidData)?;
        let tag = self.input.split_to(HEADER)[0];
        self.receive_at_least(length)?;
        body.clear();
        body.extend_from_slice(&self.input.split_to(length));
        Ok(tag)
    }

    /// The same, waiting for so long at most; `None` if nothing whole has come by then. Without any time it returns what has come
    /// already.
    pub fn receive_raw_within(&mut self, body: &mut Vec<u8>, longest: Duration) -> io::Result<Option<u8>> {
        if !self.has_whole_message() {
            if !self.stream.wait_readable(longest)? {
                return Ok(None);
            }
            self.fill()?;
        }
        match self.has_whole_message() {
            true => self.receive_raw(body).map(Some),
            false => Ok(None),
        }
    }

    /// A handle that ends the connection.
    pub fn closer(&self) -> io::Result<Closer> {
        self.stream.closer()
    }

    /// Whether the server has sent something that was not received yet, or has closed the connection.
    pub fn has_input(&mut self) -> bool {
        !self.input.is_empty() || self.stream.wait_readable(Duration::ZERO).unwrap_or(true)
    }

    fn has_whole_message(&self) -> bool {
        let length = self.input.get(1..5).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("4 bytes")));
        length.is_some_and(|length| self.input.len() > length as usize)
    }

    /// Waits until so many bytes have arrived.
    fn receive_at_least(&mut self, length: usize) -> io::Result<()> {
        while self.input.len() < length {
            self.fill()?;
        }
        Ok(())
    }

    /// Waits for more bytes.
    fn fill(&mut self) -> io::Result<()> {
        const READ_BYTES: usize = 256 * 1024;
        let have = self.input.len();
        self.input.resize(have + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[have..]);
        self.input.truncate(have + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// From now on, waits for the server fail that last for so long.
    pub fn limit_silence(&self, timeout: Duration) -> io::Result<()> {
        self.stream.limit_silence(Some(timeout))
    }

    /// Appends data in parts as one message, and sends what is queued if that is much.
    pub fn queue_data(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.output.extend_from_slice(b"d");
        self.output.extend_from_slice(&(length as u32 + 4).to_be_bytes());
        parts.iter().for_each(|part| self.output.extend_from_slice(part));
        if self.output.len() > 64 * 1024 { self.send() } else { Ok(()) }
    }

    /// Sends what is queued.
    pub fn flush(&mut self) -> io::Result<()> {
        self.send()
    }

    fn receive(&mut self) -> io::Result<Received> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(message) = Received::parse(&mut self.input)? {
                return Ok(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        frontend::terminate(&mut self.output);
        let _ = self.send(); // The server notices the closed socket as well.
    }
}

/// The number of rows in a tag such as `COPY 5`.
fn copied(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|rows| rows.parse().ok()).unwrap_or(0)
}

impl From<Report> for firn_base::Error {
    fn from(report: Report) -> firn_base::Error {
        let is_code = report.code.len() == 5 && report.code.is_ascii();
        let code = if is_code { report.code.as_str() } else { "08006" };
        let mut error = firn_base::Error::new(firn_base::SqlState::new(code), report.message);
        if let Some(detail) = report.detail {
            error = error.with_detail(detail);
        }
        if let Some(hint) = report.hint {
            error = error.with_hint(hint);
        }
        error
    }
}

fn unexpected() -> Report {
    Report::local("the server sent a message that does not belong to start-up")
}

fn untrusted(error: io::Error) -> Report {
    // Trying again does not help.
    Report::local(format!("the server could not prove that it has the password: {error}")).with_code("28000")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::SslMode;

    #[test]
    fn urls_may_leave_out_all_but_the_scheme() {
        let target = Target::parse("postgres://ada:p%40ss@[::1]:5433/db?sslmode=disable").unwrap();
        assert_eq!(target.address, Address::Tcp("::1".into(), 5433));
        assert_eq!((target.user.as_str(), target.database.as_str()), ("ada", "db"));
        assert_eq!(target.password.as_deref(), Some("p@ss"));
        let target = Target::parse("postgresql://ada@").unwrap();
        assert_eq!(target.address, Address::Tcp("localhost".into(), 5432));
        assert_eq!(target.database, "ada");
        let target = Target::parse("postgres://ada@%2Ftmp:7/").unwrap();
        assert_eq!(target.address, Address::Unix("/tmp/.s.PGSQL.7".into()));
        let target =
            Target::parse("postgres://ada@db/x?sslmode=verify-full&sslrootcert=%2Fa%20b.crt").unwrap();
        assert_eq!(target.security.mode, SslMode::VerifyFull);
        let target = Target::parse("postgres://ada@db/x?sslmode=require&sslrootcert=a.crt").unwrap();
        assert_eq!(target.security.mode, SslMode::VerifyCa);
        for bad in ["mysql://x", "postgres://x:y", "postgres://%4/", "postgres://x?sslmode=verify"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
