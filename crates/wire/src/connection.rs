//! One connection from its first byte to its last: start-up, authentication, then messages.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use firn_base::clock;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Error, Result, SqlState};
use firn_session::server::{ServerConnection as _, ServerDatabase as _};

use crate::client::{Client, Next, Sink};
use crate::decode::{Message, Startup, decode_message, decode_startup};
use crate::encode::{self, Authentication, Severity};
use crate::replication::{self, ReplicationPurpose};
use crate::scram::{self, Channel, Exchange};
use crate::server::{Auth, Encrypting, Registration, Shared};
use crate::socket::{Arrived, End, Input, Socket};

/// With what a client begins that begins with TLS: the type of its first record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Longer messages before authentication cannot be passwords.
const MAX_UNAUTHENTICATED_BYTES: usize = 10_000;

/// Serves a client until it disconnects. A panic ends only this connection.
pub(crate) fn serve(socket: &Arc<Socket>, shared: &Arc<Shared>) {
    if catch_unwind(AssertUnwindSafe(|| serve_until_it_ends(socket, shared))).is_err() {
        let error = Error::new(SqlState::INTERNAL_ERROR, "the server failed while serving this connection")
            .with_hint("The server's standard error has details. Other connections continue.");
        let mut output = encode::Output::default();
        encode::error(&mut output, Severity::Fatal, &error);
        let _ = socket.flush(&mut output);
    }
}

fn serve_until_it_ends(socket: &Arc<Socket>, shared: &Arc<Shared>) {
    let is_ended = Arc::new(AtomicBool::new(false));
    let mut input = Input::new(MAX_UNAUTHENTICATED_BYTES);
    let mut sink =
        Sink { output: encode::Output::default(), socket: socket.clone(), read_timeout: None, flushes: 0 };
    let end = match start(&mut input, &mut sink, shared) {
        // Both are dropped before the last message: the client's open transaction is rolled back by then.
        Ok(Some(Started { mut client, registration, replication })) => {
            client.set_terminate_hook(socket, &is_ended);
            client.cancel_when_gone(socket);
            input.set_max_message_bytes(shared.config.max_message_bytes);
            let served = match replication {
                Some(purpose) => {
                    let session = registration.process();
                    replication::serve(purpose, &mut input, &mut sink, shared, &is_ended, session)
                }
                None => try_serve_messages(&mut client, &mut input, &mut sink, shared),
            };
            served.err().unwrap_or(Fate::Gone)
        }
        Ok(None) => return,
        Err(end) => end,
    };
    let last_error = match end {
        Fate::Gone if !shared.is_stopping() && !is_ended.load(Ordering::Relaxed) => return,
        Fate::Gone => {
            Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
        }
        Fate::Refused(error) => error,
    };
    encode::error(&mut sink.output, Severity::Fatal, &last_error);
    if sink.flush().is_ok() {
        sink.socket.linger();
    }
}

/// A connection that has passed its start-up.
struct Started {
    client: Client,
    registration: Registration,
    /// What it is for, if it is for replication.
    replication: Option<ReplicationPurpose>,
}

/// Why a connection ends.
pub(crate) enum Fate {
    /// The client has gone, or the server stops.
    Gone,
    /// The client gets this error.
    Refused(Error),
}

impl From<End> for Fate {
    fn from(end: End) -> Fate {
        match end {
            End::Gone | End::TimedOut => Fate::Gone,
            End::Malformed(malformed) => Fate::Refused(malformed.into()),
        }
    }
}

impl From<io::Error> for Fate {
    fn from(_: io::Error) -> Fate {
        Fate::Gone
    }
}

impl From<Error> for Fate {
    fn from(error: Error) -> Fate {
        Fate::Refused(error)
    }
}

/// The loop of a connection: processes all messages that have arrived, and sends the replies when there are no
/// more. So a round trip is one read and one write, and a pipeline of many messages needs few more.
fn try_serve_messages(
    client: &mut Client,
    input: &mut Input,
    sink: &mut Sink,
    shared: &Shared,
) -> std::result::Result<(), Fate> {
    loop {
        let Some(packet) = input.take().map_err(End::from)? else {
            sink.flush()?;
            if shared.is_stopping() {
                return Err(Fate::Gone);
            }
            let limit = client.idle_timeout();
            if let Some(arrivals) = client.arrivals() {
                match arrivals.clone().wait(&sink.socket, limit)? {
                    Arrived::Message => {}
                    Arrived::Notification => {
                        client.deliver(&mut sink.output);
                        continue;
                    }
                    Arrived::TimedOut => return Err(Fate::Refused(client.expire())),
                }
            }
            sink.limit_silence(limit)?;
            match input.fill(&sink.socket) {
                Err(End::TimedOut) if limit.is_some() => {
                    return Err(Fate::Refused(client.expire()));
                }
                filled => filled?,
            }
            continue;
        };
        let message = decode_message(input.packet(packet)).map_err(End::from)?;
        // A Sync is five bytes, so one whose tag has arrived counts as arrived.
        let sync_follows = input.next_tag() == Some(b'S');
        match client.handle(message, sync_follows, sink)? {
            Next::Continue => sink.flush_if_large()?,
            Next::Flush if input.has_message() => sink.flush_if_large()?,
            Next::Flush => sink.flush()?,
            Next::Terminate => return Err(Fate::Gone),
        }
    }
}

/// Runs a connection up to its first ReadyForQuery; `None` if it only cancelled another.
fn start(
    input: &mut Input,
    sink: &mut Sink,
    shared: &Arc<Shared>,
) -> std::result::Result<Option<Started>, Fate> {
    // A request for TLS on a socket of this machine's file system is declined, as PostgreSQL does.
    let tls = shared.tls.as_ref().filter(|_| sink.socket.is_tcp());
    sink.socket.set_deadline(Some(clock::now() + shared.config.startup_timeout))?;
    if let Some(tls) = tls
        && input.first_byte(&sink.socket)? == TLS_HANDSHAKE
    {
        // The client has not asked, as newer ones do to save a round trip.
        begin_tls(input, sink, tls)?;
        if !sink.socket.has_named_protocol() {
            // It may believe that it speaks to a server of another protocol.
            let message =
                "received direct SSL connection request without ALPN protocol negotiation extension";
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message).into());
        }
    }
    let parameters = loop {
        match decode_startup(input.take_startup(&sink.socket)?).map_err(End::from)? {
            Startup::SslRequest | Startup::GssRequest if sink.socket.is_encrypted() => {
                let message = "the connection is encrypted already";
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message).into());
            }
            Startup::SslRequest => match tls {
                None => decline(sink)?,
                Some(_) if !input.take_all().is_empty() => {
                    // It would pass for something that has come encrypted.
                    let message = "received unencrypted data after SSL request";
                    return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message).into());
                }
                Some(tls) => {
                    sink.output.push(b'S');
                    sink.flush()?;
                    begin_tls(input, sink, tls)?;
                }
            },
            Startup::GssRequest => decline(sink)?,
            Startup::Cancel { process, key } => {
                shared.cancel(process, key);
                return Ok(None);
            }
            Startup::Session { minor, parameters } => {
                let parameters = Parameters::read(&parameters)?;
                if minor > 0 || !parameters.unknown_options.is_empty() {
                    let unknown: Vec<_> = parameters.unknown_options.iter().map(String::as_str).collect();
                    encode::negotiate_protocol_version(&mut sink.output, &unknown);
                }
                break parameters;
            }
        }
    };
    if let Some(tls) = tls.filter(|_| !sink.socket.is_encrypted()) {
        let is_local = sink.socket.peer().is_some_and(|(address, _)| address.to_canonical().is_loopback());
        if tls.asks_for_certificates || !is_local {
            return Err(is_not_encrypted().into());
        }
    }
    let registration = shared.register()?;
    authenticate(&parameters.user, input, sink, shared)?;
    let mut session = shared.database.connect_as(registration.process());
    session.identify(&parameters.user, &parameters.database);
    session.set_addresses(sink.socket.peer(), sink.socket.local());
    session.set_encryption(sink.socket.encryption());
    for (name, value) in &parameters.settings {
        session.set(name, value)?;
    }
    registration.set_cancel_handle(session.cancel_handle());

    encode::authentication(&mut sink.output, Authentication::Ok);
    for (name, value) in [("server_encoding", "UTF8"), ("integer_datetimes", "on"), ("is_superuser", "on")] {
        encode::parameter_status(&mut sink.output, name, value);
    }
    encode::backend_key_data(&mut sink.output, registration.process(), registration.key());
    let mut client = Client::new(session);
    client.ready(&mut sink.output);
    sink.socket.set_deadline(None)?;
    Ok(Some(Started { client, registration, replication: parameters.replication }))
}

/// Replies that the server does not have the encryption that the client asks for.
fn decline(sink: &mut Sink) -> io::Result<()> {
    sink.output.push(b'N');
    sink.flush()
}

/// Shakes hands with a client that wants TLS.
fn begin_tls(input: &mut Input, sink: &Sink, tls: &Encrypting) -> io::Result<()> {
    let received = input.take_all();
    sink.socket.begin_tls(tls.config.clone(), &received)
}

#[cold]
fn is_not_encrypted() -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        "this server accepts only encrypted connections",
    )
    .with_hint("Connect with sslmode=verify-full, or at least with sslmode=require.")
}

fn authenticate(
    user: &str,
    input: &mut Input,
    sink: &mut Sink,
    shared: &Shared,
) -> std::result::Result<(), Fate> {
    let Auth::Scram(users) = &shared.config.auth else { return Ok(()) };
    let end_point = shared.tls.as_ref().and_then(|tls| tls.end_point.as_deref());
    let end_point = end_point.filter(|_| sink.socket.is_encrypted());
    let mechanisms: &[&str] =
        if end_point.is_some() { &[scram::BOUND_MECHANISM, scram::MECHANISM] } else { &[scram::MECHANISM] };
    encode::authentication(&mut sink.output, Authentication::Sasl(mechanisms));
    let initial = password(input, sink)?;
    let (mechanism, client_first) = scram_initial_response(&initial)?;
    let channel = match end_point {
        _ if !mechanisms.iter().any(|offered| offered.as_bytes() == mechanism) => {
            let message = "client selected an invalid SASL authentication mechanism";
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message).into());
        }
        None => Channel::Open,
        Some(end_point) if mechanism == scram::BOUND_MECHANISM.as_bytes() => Channel::Bound(end_point),
        Some(_) => Channel::Unbound,
    };
    let exchange = Exchange::begin(users, user, client_first, channel)?;
    encode::authentication(&mut sink.output, Authentication::SaslContinue(exchange.server_first()));
    let client_final = password(input, sink)?;
    let server_final = exchange.finish(&client_final)?;
    encode::authentication(&mut sink.output, Authentication::SaslFinal(&server_final));
    Ok(())
}

/// Waits for the next message, which must contain a password or a step of SCRAM.
fn password(input: &mut Input, sink: &mut Sink) -> std::result::Result<Vec<u8>, Fate> {
    sink.flush()?;
    loop {
        if let Some(packet) = input.take().map_err(End::from)? {
            return match decode_message(input.packet(packet)).map_err(End::from)? {
                Message::Password(password) => Ok(password.to_owned()),
                Message::Terminate => Err(Fate::Gone),
                _ => Err(Error::new(SqlState::PROTOCOL_VIOLATION, "expected a SASL response").into()),
            };
        }
        input.fill(&sink.socket)?;
    }
}

/// The mechanism and the data in `mechanism\0 length:i32 data`.
fn scram_initial_response(message: &[u8]) -> Result<(&[u8], &[u8])> {
    let malformed = || Error::new(SqlState::PROTOCOL_VIOLATION, "malformed SASL initial response");
    let end = message.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let (length, data) = message[end + 1..].split_first_chunk::<4>().ok_or_else(malformed)?;
    if u32::from_be_bytes(*length) as usize == data.len() {
        Ok((&message[..end], data))
    } else {
        Err(malformed())
    }
}

/// The content of a start-up packet.
struct Parameters {
    user: String,
    /// A server has one database, whatever name clients use for it; the default is the name of the user.
    database: String,
    /// Name and value, to be set in the session.
    settings: Vec<(String, String)>,
    /// What the connection is for, if it is for replication.
    replication: Option<ReplicationPurpose>,
    /// Options of the protocol that we do not know.
    unknown_options: Vec<String>,
}

impl Parameters {
    fn read(raw: &[(&[u8], &[u8])]) -> Result<Parameters> {
        let mut parameters = Parameters {
            user: String::new(),
            database: String::new(),
            settings: Vec::new(),
            replication: None,
            unknown_options: Vec::new(),
        };
        for (name, value) in raw {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (name, value) = (text(name), text(value));
            match name.as_str() {
                "user" => parameters.user = value,
                "database" => parameters.database = value,
                "replication" => match value.as_str() {
                    "false" | "off" | "no" | "0" => {}
                    value => match ReplicationPurpose::parse(value) {
                        Some(purpose) => parameters.replication = Some(purpose),
                        None => return Err(Error::unsupported("the replication protocol of PostgreSQL")),
                    },
                },
                // Some clients quote it.
                "client_encoding" => parameters.settings.push((name, value.trim_matches('\'').to_owned())),
                "options" => parameters.settings.extend(read_options(&value)?),
                _ if name.starts_with("_pq_.") => parameters.unknown_options.push(name),
                _ => parameters.settings.push((name, value)),
            }
        }
        if parameters.user.is_empty() {
            return Err(Error::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            ));
        }
        if parameters.database.is_empty() {
            parameters.database.clone_from(&parameters.user);
        }
        Ok(parameters)
    }
}

/// Reads `-c name=value` and `--name=value`, as in libpq's `options` and `PGOPTIONS`. A
/// backslash escapes the next character, such as a blank.
fn read_options(options: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().expect("never empty").extend(characters.next()),
            character if character.is_whitespace() => words.push(String::new()),
            character => words.last_mut().expect("never empty").push(character),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or(word.strip_prefix("-c")) {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_owned()),
            None => None,
        };
        let pair = setting.as_deref().and_then(|setting| setting.split_once('='));
        let (name, value) = pair.ok_or_else(|| {
            Error::new(SqlState::SYNTAX_ERROR, format!("invalid command-line argument: {word}"))
                .with_hint("Options are written -c name=value.")
        })?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_both_spellings() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read_options(r"-c a=1 --b-c=2  -cd=x\ y").unwrap(),
            [pair("a", "1"), pair("b_c", "2"), pair("d", "x y")]
        );
        assert!(read_options("-x").is_err() && read_options("-c").is_err() && read_options("a=1").is_err());
    }
}
