//! One client after its start-up: messages in, replies out.
//!
//! Transactions. PostgreSQL runs a script, and everything between two Syncs, as one *implicit*
//! transaction. A single statement commits by itself in the engine, which may retry it. If more
//! follow, the client opens a block first and ends it at the end of the script or at the Sync. The
//! input buffer shows whether more follow: drivers send Bind, Execute and Sync together, so the
//! usual round trip never opens a block.
//!
//! ```text
//! Ready ──COPY … FROM STDIN──> CopyIn ──CopyDone, CopyFail, error──> Ready, or Skipping
//! Ready ──error in an extended message──> Skipping ──Sync──> Ready
//! ```

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use firn_base::binary::utf8;
use firn_base::encoding::Encoding;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Error, Result, SqlState, TextStyle, Value};
use firn_session::server::{Parsed, Ran, ServerConnection as _};
use firn_session::{CommandTag, Connection, CopyIn, CopyOut, Outcome, Statement, TransactionStatus};

use crate::decode::{Bind, Format, Message, Parse, Target, format_of};
use crate::encode::{self, Output, Severity};
use crate::parameters;
use crate::rows::{CellWriter, Cursor, Progress, send_values};
use crate::socket::{Arrivals, Socket};

/// Output beyond this size is sent before the protocol requires it.
const LARGE_OUTPUT_BYTES: usize = 64 * 1024;

/// How many values of rows a connection has room for, which it keeps between queries.
const MOST_KEPT_VALUES: usize = 1024;

/// The reply to a BEGIN that only makes an implicit block explicit.
const BEGUN: CommandTag = CommandTag { verb: "BEGIN", rows: None };

/// Settings whose changes are reported to clients.
const REPORTED_SETTINGS: [&str; 11] = [
    "server_version",
    "client_encoding",
    "session_authorization",
    "application_name",
    "default_transaction_read_only",
    "in_hot_standby",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "standard_conforming_strings",
    "search_path",
];

/// Replies that are sent to the client.
pub(crate) struct Sink {
    /// The part that has not been sent.
    pub(crate) output: Output,
    /// The socket of the client.
    pub(crate) socket: Arc<Socket>,
    /// The read timeout of the socket, which is set only when it changes.
    pub(crate) read_timeout: Option<Duration>,
    /// How many times output has been sent.
    pub(crate) flushes: u64,
}

impl Sink {
    /// Sends all output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.flushes += 1;
        self.socket.flush(&mut self.output)
    }

    /// Limits how long the client may be silent.
    #[inline]
    pub(crate) fn limit_silence(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.read_timeout != timeout {
            self.socket.set_read_timeout(timeout)?;
            self.read_timeout = timeout;
        }
        Ok(())
    }

    /// Sends all output if it is large.
    #[inline]
    pub(crate) fn flush_if_large(&mut self) -> io::Result<()> {
        if self.output.len() < LARGE_OUTPUT_BYTES { Ok(()) } else { self.flush() }
    }
}

/// Why a message could not be processed.
pub(crate) enum Fault {
    /// An error of the client, which is reported to it.
    Statement(Error),
    /// The client has gone.
    Gone,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Statement(error)
    }
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Fault {
        Fault::Gone
    }
}

type Answered<T = ()> = std::result::Result<T, Fault>;

/// The next step of the connection after a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Takes the next message; sends the replies when there is none.
    Continue,
    /// Sends the replies first.
    Flush,
    /// Ends.
    Terminate,
}

/// One client's session and what the protocol adds to it.
pub(crate) struct Client {
    session: Connection,
    /// A cache of prepared statements by name: some of the named ones, which the session has as well.
    statements: Statements,
    /// The session's number of forgotten statements when the cache was last checked.
    forgotten: u64,
    portals: Portals,
    mode: Mode,
    /// Whether the session's transaction block is implicit.
    implicit_block: bool,
    /// Whether ReadyForQuery was sent, and no message has come since.
    idle: bool,
    /// The version of the settings that was reported to the client and by which values are written.
    reported_settings: Option<u64>,
    followed_settings: Option<u64>,
    /// Raised when another session has ended this one.
    is_ended: Arc<AtomicBool>,
    /// Whether it has run LISTEN.
    has_listened: bool,
    arrivals: Option<Arc<Arrivals>>,
    reported: Vec<(&'static str, String)>,
    /// The style of text values, which contains the setting `TimeZone`.
    style: TextStyle,
    /// The setting `client_encoding`.
    encoding: Encoding,
    /// The rows of short queries before they are sent, and their encoder: kept for their memory.
    values: Vec<Value>,
    writer: CellWriter,
}

enum Mode {
    Ready,
    /// An extended message failed: everything up to Sync is ignored.
    Skipping,
    /// A COPY receives data; the script continues after it.
    CopyIn(Box<CopyIn>, Protocol),
}

/// The protocol of a statement, and the rest of its script.
enum Protocol {
    Simple(Script),
    Extended,
}

/// Statements that have not run yet.
type Script = std::vec::IntoIter<Parsed>;

struct Prepared {
    statement: Statement,
    control: Control,
    /// The last RowDescription that a client was sent, and its formats: libpq requests one with
    /// every execution.
    description: RefCell<(Vec<Format>, Output)>,
}

impl Prepared {
    /// Describes the columns, if there are any.
    fn describe(&self, formats: &[Format], output: &mut Output) {
        let Some(columns) = self.statement.columns() else {
            return encode::no_data(output);
        };
        let (described_formats, described) = &mut *self.description.borrow_mut();
        if described.is_empty() || described_formats != formats || described.encoding != output.encoding {
            described.encoding = output.encoding;
            described_formats.clear();
            described_formats.extend_from_slice(formats);
            described.clear();
            encode::row_description(described, columns, formats);
        }
        output.extend_from_slice(described);
    }
}

/// Statements by name, as the client sent it.
type Statements = HashMap<Box<[u8]>, Rc<Prepared>, BuildHasherDefault<NameHasher>>;

/// A fast hash of short names. A client that makes names collide only slows itself down.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        // FNV-1a.
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    /// The length of a name, of which one byte is hashed.
    fn write_usize(&mut self, length: usize) {
        self.write_u8(length as u8);
    }

    fn finish(&self) -> u64 {
        // The hash table uses the highest bits and the lowest.
        self.0 ^ (self.0 >> 29)
    }
}

/// The effect of a statement on transaction blocks, as far as implicit blocks are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    None,
    Begin,
    End,
}

/// Bound statements by name. Drivers hardly ever name one, so the unnamed one has its own place: a
/// round trip neither hashes its name nor moves it, and its buffers are reused.
#[derive(Default)]
struct Portals {
    unnamed: Portal,
    named: HashMap<Box<[u8]>, Portal>,
}

impl Portals {
    /// The portal that Bind is to fill, closed; 42P03 if the name is taken.
    fn vacant(&mut self, name: &[u8]) -> Result<&mut Portal> {
        if name.is_empty() {
            self.unnamed.close();
            return Ok(&mut self.unnamed);
        }
        let shown = utf8(name)?;
        let portal = self.named.entry(name.into()).or_default();
        if portal.prepared.is_some() {
            return Err(Error::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{shown}\" already exists")));
        }
        portal.close();
        Ok(portal)
    }

    fn get(&self, name: &[u8]) -> Option<&Portal> {
        if name.is_empty() { Some(&self.unnamed) } else { self.named.get(name) }
    }

    fn get_mut(&mut self, name: &[u8]) -> Option<&mut Portal> {
        if name.is_empty() { Some(&mut self.unnamed) } else { self.named.get_mut(name) }
    }

    fn close(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed.close();
        } else {
            self.named.remove(name);
        }
    }

    /// The block of suspended portals is about to end, which reads the rows that are left of results that are still in use. Of portals
    /// nobody can ask for these afterwards.
    fn drop_rests(&mut self) {
        self.unnamed.drop_rest();
        self.named.values_mut().for_each(Portal::drop_rest);
    }

    /// [Ends](Portal::end) all. Returns the first error.
    fn end_all(&mut self) -> Result<()> {
        let mut ended = self.unnamed.end();
        for (_, mut portal) in self.named.drain() {
            ended = ended.and(portal.end());
        }
        ended
    }
}

/// A place for a bound statement. A closed one counts as absent.
#[derive(Default)]
struct Portal {
    prepared: Option<Rc<Prepared>>,
    parameters: Vec<Value>,
    formats: Vec<Format>,
    state: PortalState,
}

#[derive(Default)]
enum PortalState {
    #[default]
    Bound,
    /// Rows are left after a row limit.
    Suspended(Box<Cursor>),
    Finished {
        /// Whether running it again yields no rows, rather than an error.
        had_rows: bool,
    },
}

impl Portal {
    fn close(&mut self) {
        self.prepared = None;
        self.parameters.clear();
        self.formats.clear();
        self.state = PortalState::Bound;
    }

    /// Closes it at the end of its transaction. A query in a transaction of its own, of which the client has taken the first rows only, waits
    /// as at its end; these are its errors.
    fn end(&mut self) -> Result<()> {
        let state = std::mem::take(&mut self.state);
        self.close();
        match state {
            PortalState::Suspended(cursor) => cursor.end(),
            PortalState::Bound | PortalState::Finished { .. } => Ok(()),
        }
    }

    /// Drops the rows that are left.
    fn drop_rest(&mut self) {
        if matches!(self.state, PortalState::Suspended(_)) {
            self.state = PortalState::Finished { had_rows: true };
        }
    }
}

impl Client {
    pub(crate) fn new(mut session: Connection) -> Client {
        session.leave_timeouts_to_caller();
        Client {
            session,
            statements: Statements::default(),
            forgotten: 0,
            portals: Portals::default(),
            mode: Mode::Ready,
            implicit_block: false,
            idle: false,
            reported_settings: None,
            followed_settings: None,
            is_ended: Arc::default(),
            has_listened: false,
            arrivals: None,
            reported: Vec::new(),
            style: TextStyle::DEFAULT,
            encoding: Encoding::Utf8,
            values: Vec::new(),
            writer: CellWriter::new(TextStyle::DEFAULT),
        }
    }

    /// Lets other sessions end this one (`pg_terminate_backend`): the hook closes the socket for reading and sets the flag.
    pub(crate) fn set_terminate_hook(&mut self, socket: &Arc<Socket>, is_ended: &Arc<AtomicBool>) {
        self.is_ended = is_ended.clone();
        let (socket, is_ended) = (Arc::downgrade(socket), is_ended.clone());
        self.session.set_terminate_hook(move || {
            is_ended.store(true, Ordering::Relaxed);
            if let Some(socket) = socket.upgrade() {
                socket.shutdown(Shutdown::Read);
            }
        });
    }

    /// Cancels the running statement once its client has gone.
    pub(crate) fn cancel_when_gone(&self, socket: &Arc<Socket>) {
        let socket = Arc::downgrade(socket);
        self.session.set_client_gone_hook(move || socket.upgrade().is_none_or(|socket| socket.is_left()));
    }

    /// Reports changed settings to the client, and that the server is ready.
    pub(crate) fn ready(&mut self, output: &mut Output) {
        let version = self.session.settings_version();
        self.deliver(output);
        if self.reported_settings != Some(version) {
            self.reported_settings = Some(version);
            self.report_settings(output);
        }
        encode::ready_for_query(output, self.session.status());
        self.session.report_idle();
        self.idle = true;
    }

    /// Sends notifications of other sessions, unless the client is in a transaction block: then they are sent at its end.
    pub(crate) fn deliver(&mut self, output: &mut Output) {
        if self.listens() && self.session.status() == TransactionStatus::Idle {
            for notification in self.session.take_notifications() {
                encode::notification(output, &notification);
            }
        }
    }

    /// Whether the session has listened to channels, so that a notification may arrive while the client is idle.
    #[inline]
    pub(crate) fn listens(&mut self) -> bool {
        self.has_listened
    }

    /// What the thread waits for beside its socket: notifications. `None` if the session listens to no channel.
    pub(crate) fn arrivals(&mut self) -> Option<&Arc<Arrivals>> {
        if self.has_listened && self.arrivals.is_none() {
            let arrivals = Arc::new(Arrivals::new().ok()?);
            let waker = arrivals.clone();
            self.session.set_notification_hook(move || waker.wake());
            // Earlier arrivals have not woken the thread.
            arrivals.wake();
            self.arrivals = Some(arrivals);
        }
        self.arrivals.as_ref()
    }

    /// The current limit on the client's idle time.
    #[inline]
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        if self.idle { self.session.idle_timeout() } else { None }
    }

    /// The client has exceeded that limit.
    pub(crate) fn expire(&mut self) -> Error {
        self.session.expire()
    }

    fn report_settings(&mut self, output: &mut Output) {
        for name in REPORTED_SETTINGS {
            let Ok(value) = self.session.setting(name) else { continue };
            match self.reported.iter_mut().find(|(reported, _)| *reported == name) {
                Some((_, old)) if *old == value => continue,
                Some((_, old)) => old.clone_from(&value),
                None => self.reported.push((name, value.clone())),
            }
            encode::parameter_status(output, name, &value);
        }
        self.follow_settings(output);
    }

    /// Applies the current settings to the reading and writing of values.
    fn follow_settings(&mut self, output: &mut Output) {
        let version = self.session.settings_version();
        if self.followed_settings != Some(version) {
            self.followed_settings = Some(version);
            self.style = *self.session.text_style();
            self.writer.set_style(self.style);
            let encoding = self.session.setting("client_encoding").ok();
            self.encoding = encoding.and_then(|name| Encoding::of(&name)).unwrap_or_default();
            output.encoding = self.encoding;
        }
    }

    /// A string that the client has sent.
    fn text_of<'b>(&self, bytes: &'b [u8]) -> Result<Cow<'b, str>> {
        match encode::converts(self.encoding) {
            false => utf8(bytes).map(Cow::Borrowed),
            true => self.encoding.read(bytes).map(Cow::Owned),
        }
    }

    /// Processes a message. `sync_follows` says that the next one is a Sync that has arrived already.
    pub(crate) fn handle(
        &mut self,
        message: Message<'_>,
        sync_follows: bool,
        sink: &mut Sink,
    ) -> io::Result<Next> {
        self.idle = false;
        let (flushes, length) = (sink.flushes, sink.output.len());
        let next = self.answer_or_fail(message, sync_follows, sink)?;
        if self.is_ended.load(Ordering::Relaxed) {
            // The client gets the error that its session was ended, and not the outcome of the statement.
            let kept = if sink.flushes == flushes { length } else { sink.output.len() };
            sink.output.truncate(kept);
            return Ok(Next::Terminate);
        }
        Ok(next)
    }

    fn answer_or_fail(
        &mut self,
        message: Message<'_>,
        sync_follows: bool,
        sink: &mut Sink,
    ) -> io::Result<Next> {
        let answered = match self.mode {
            Mode::Ready => self.answer(message, sync_follows, sink),
            Mode::CopyIn(..) => self.take_copy_message(message, sink),
            Mode::Skipping => match message {
                Message::Sync => self.sync(sink),
                Message::Terminate => Ok(Next::Terminate),
                _ => Ok(Next::Continue),
            },
        };
        match answered {
            Ok(next) => Ok(next),
            Err(Fault::Statement(error)) => {
                // Only Query and FunctionCall end with ReadyForQuery by themselves; after other errors messages are skipped up to Sync.
                self.fail(&error, sink);
                self.mode = Mode::Skipping;
                Ok(Next::Continue)
            }
            Err(Fault::Gone) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn answer(&mut self, message: Message<'_>, sync_follows: bool, sink: &mut Sink) -> Answered<Next> {
        match message {
            Message::Bind(bind) => {
                self.bind(&bind)?;
                encode::bind_complete(&mut sink.output);
            }
            Message::Execute { portal, row_limit } => {
                self.execute(portal, row_limit, sync_follows, sink)?;
            }
            Message::Sync => return self.sync(sink),
            Message::Parse(parse) => {
                self.parse(&parse)?;
                encode::parse_complete(&mut sink.output);
            }
            Message::Describe(target) => self.describe(target, &mut sink.output)?,
            Message::Close(target) => {
                match target {
                    Target::Statement(name) => self.close_statement(name)?,
                    Target::Portal(name) => self.close_portal(name)?,
                }
                encode::close_complete(&mut sink.output);
            }
            Message::Flush => return Ok(Next::Flush),
            Message::Query(sql) => {
                self.query(sql, sink)?;
                return Ok(Next::Flush);
            }
            Message::FunctionCall => {
                self.fail(&Error::unsupported("the function call protocol"), sink);
                self.ready(&mut sink.output);
            }
            // The rest of a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
            Message::Password(_) => {
                return Err(violation("a password was sent, but none was requested").into());
            }
            Message::Terminate => return Ok(Next::Terminate),
        }
        Ok(Next::Continue)
    }

    /// Reports an error, after the notices before it.
    fn fail(&mut self, error: &Error, sink: &mut Sink) {
        self.session.fail_block();
        self.notices(&mut sink.output);
        encode::error(&mut sink.output, Severity::Error, error);
    }

    fn notices(&mut self, output: &mut Output) {
        for notice in self.session.take_notices() {
            encode::error(output, Severity::Notice, &notice);
        }
    }

    fn complete(&mut self, tag: &CommandTag, output: &mut Output) {
        self.notices(output);
        self.follow_settings(output);
        self.has_listened |= tag.verb == "LISTEN";
        encode::command_complete(output, tag);
    }

    // Implicit transaction blocks.

    /// Opens an implicit block for a statement that is not the only one of its transaction. Returns
    /// whether the statement must still be run: BEGIN inside an implicit block only
    /// makes the block explicit.
    fn enter(&mut self, control: Control, alone: bool) -> Result<bool> {
        if control == Control::End {
            self.portals.drop_rests();
        }
        if self.implicit_block {
            match control {
                Control::None => {}
                Control::Begin => {
                    self.implicit_block = false;
                    return Ok(false);
                }
                Control::End => self.implicit_block = false,
            }
        } else if !alone && control == Control::None && self.session.status() == TransactionStatus::Idle {
            self.session.open_block()?;
            self.implicit_block = true;
        }
        Ok(true)
    }

    /// Ends an implicit block.
    fn leave(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.implicit_block) {
            return Ok(());
        }
        self.portals.drop_rests();
        self.session.close_block()
    }

    // The simple protocol.

    fn query(&mut self, sql: &[u8], sink: &mut Sink) -> Answered {
        // A script replaces the unnamed statement and portal.
        self.statements.remove(&b""[..]);
        self.portals.close(b"");
        let text = self.text_of(sql);
        match text.and_then(|sql| self.session.parse_script(&sql)) {
            Ok(statements) if statements.is_empty() => {
                encode::empty_query_response(&mut sink.output);
                self.ready(&mut sink.output);
                Ok(())
            }
            Ok(statements) => self.run_script(statements.into_iter(), sink),
            Err(error) => {
                self.end_script(Some(error), sink);
                Ok(())
            }
        }
    }

    /// Runs the remaining statements, up to one that takes data.
    fn run_script(&mut self, mut script: Script, sink: &mut Sink) -> Answered {
        while let Some(parsed) = script.next() {
            let alone = script.len() == 0 && !self.implicit_block;
            match self.run_simple(parsed, alone, sink) {
                Ok(Some(copy)) => {
                    encode::copy_response(&mut sink.output, b'G', copy.columns(), copy.format());
                    self.mode = Mode::CopyIn(copy, Protocol::Simple(script));
                    return Ok(());
                }
                Ok(None) => {}
                Err(Fault::Statement(error)) => {
                    self.end_script(Some(error), sink);
                    return Ok(());
                }
                Err(Fault::Gone) => return Err(Fault::Gone),
            }
        }
        self.end_script(None, sink);
        Ok(())
    }

    fn run_simple(&mut self, parsed: Parsed, alone: bool, sink: &mut Sink) -> Answered<Option<Box<CopyIn>>> {
        let control = Control::of(parsed.text());
        let statement = self.session.prepare_parsed(parsed, &[])?;
        if !statement.parameters().is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        if !self.enter(control, alone)? {
            encode::command_complete(&mut sink.output, &BEGUN);
            return Ok(None);
        }
        match self.session.run(&statement, &[])? {
            Outcome::Rows(rows) => {
                let formats: &[Format] = if rows.are_binary() { &[Format::Binary] } else { &[] };
                let mut cursor = Cursor::new(rows, self.style);
                encode::row_description(&mut sink.output, cursor.columns(), formats);
                let Progress::Finished(tag) = cursor.send(0, formats, sink)? else {
                    unreachable!("no limit was set")
                };
                self.complete(&tag, &mut sink.output);
            }
            Outcome::Done(tag) => self.complete(&tag, &mut sink.output),
            Outcome::CopyIn(copy) => return Ok(Some(copy)),
            Outcome::CopyOut(copy) => self.copy_out(*copy, sink)?,
            Outcome::Empty => encode::empty_query_response(&mut sink.output),
        }
        Ok(None)
    }

    fn end_script(&mut self, error: Option<Error>, sink: &mut Sink) {
        self.mode = Mode::Ready;
        if let Some(error) = error {
            self.fail(&error, sink);
        }
        let left = self.leave();
        if let Err(error) = left.and(self.end_portals_outside_a_block()) {
            self.fail(&error, sink);
        }
        self.ready(&mut sink.output);
    }

    // The extended protocol.

    fn parse(&mut self, parse: &Parse<'_>) -> Result<()> {
        let name = &*self.text_of(parse.name)?;
        let sql = &*self.text_of(parse.sql)?;
        if name.is_empty() {
            self.statements.remove(parse.name);
        } else if self.session.kept_statement(name).is_some() {
            return Err(Error::new(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let types = parse.types().map(parameters::declared).collect::<Result<Vec<_>>>()?;
        let statement = self.session.prepare_typed(sql, &types)?;
        if !name.is_empty() {
            self.session.keep_statement(name, &statement)?;
        }
        let prepared = Prepared { statement, control: Control::of(sql), description: RefCell::default() };
        self.statements.insert(parse.name.into(), Rc::new(prepared));
        Ok(())
    }

    /// The prepared statement of that name, of this protocol or of SQL's PREPARE.
    fn statement(&mut self, name: &[u8]) -> Result<Rc<Prepared>> {
        if self.forgotten != self.session.forgotten_statements() {
            self.forget_what_the_session_has();
        }
        match self.statements.get(name) {
            Some(prepared) => Ok(prepared.clone()),
            None => self.statement_of_session(name),
        }
    }

    #[cold]
    fn statement_of_session(&mut self, name: &[u8]) -> Result<Rc<Prepared>> {
        let kept = utf8(name).ok().and_then(|name| self.session.kept_statement(name));
        let statement = kept.ok_or_else(|| no_statement(name))?.clone();
        // EXECUTE runs no statement that controls transactions.
        let prepared = Prepared { statement, control: Control::None, description: RefCell::default() };
        let prepared = Rc::new(prepared);
        self.statements.insert(name.into(), prepared.clone());
        Ok(prepared)
    }

    /// DEALLOCATE and DISCARD remove statements of the protocol.
    #[cold]
    fn forget_what_the_session_has(&mut self) {
        self.forgotten = self.session.forgotten_statements();
        let session = &self.session;
        self.statements.retain(|name, prepared| {
            let kept = std::str::from_utf8(name).ok().and_then(|name| session.kept_statement(name));
            name.is_empty() || kept.is_some_and(|kept| kept.is_same(&prepared.statement))
        });
    }

    fn close_statement(&mut self, name: &[u8]) -> Result<()> {
        self.statements.remove(name);
        if !name.is_empty() {
            let knows_all = self.forgotten == self.session.forgotten_statements();
            self.session.forget_statement(utf8(name)?);
            if knows_all {
                self.forgotten = self.session.forgotten_statements();
            }
        }
        Ok(())
    }

    fn bind(&mut self, bind: &Bind<'_>) -> Result<()> {
        let prepared = self.statement(bind.statement)?;
        let types = prepared.statement.parameters();
        if bind.parameter_count != types.len() {
            return Err(violation(format!(
                "bind message supplies {} parameters, but the prepared statement requires {}",
                bind.parameter_count,
                types.len()
            )));
        }
        let columns = prepared.statement.columns().map_or(0, |columns| columns.len());
        if bind.result_formats.count() > 1 && bind.result_formats.count() != columns {
            return Err(violation(format!(
                "bind message has {} result formats but the query has {columns} columns",
                bind.result_formats.count()
            )));
        }
        let encoding = self.encoding;
        let portal = self.portals.vacant(bind.portal)?;
        portal.formats.extend(bind.parameter_formats.iter());
        for (index, (bytes, ty)) in bind.parameters().zip(types).enumerate() {
            let format = format_of(&portal.formats, index);
            let value = match bytes {
                Some(bytes) if encode::converts(encoding) && parameters::is_text(format, *ty) => encoding
                    .read(bytes)
                    .and_then(|text| parameters::read(Some(text.as_bytes()), format, *ty, &self.style)),
                bytes => parameters::read(bytes, format, *ty, &self.style),
            };
            portal.parameters.push(value.map_err(|error| in_parameter(error, index))?);
        }
        portal.formats.clear();
        portal.formats.extend(bind.result_formats.iter());
        if !bind.portal.is_empty() {
            self.session.list_portal(utf8(bind.portal)?, &prepared.statement);
        }
        portal.prepared = Some(prepared);
        Ok(())
    }

    fn describe(&mut self, target: Target<'_>, output: &mut Output) -> Result<()> {
        match target {
            Target::Statement(name) => {
                let prepared = self.statement(name)?;
                encode::parameter_description(output, prepared.statement.parameters());
                prepared.describe(&[], output);
            }
            Target::Portal(name) => {
                // Cursors of DECLARE are portals, too, and always have a name.
                if !name.is_empty()
                    && let Some(columns) = self.session.cursor_columns(utf8(name)?)
                {
                    encode::row_description(output, columns, &[]);
                    return Ok(());
                }
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                let prepared = portal.prepared.as_ref().ok_or_else(|| no_portal(name))?;
                prepared.describe(&portal.formats, output);
            }
        }
        Ok(())
    }

    fn execute(&mut self, name: &[u8], row_limit: u32, sync_follows: bool, sink: &mut Sink) -> Answered {
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        let prepared = portal.prepared.clone().ok_or_else(|| no_portal(name))?;
        let state = std::mem::replace(&mut portal.state, PortalState::Finished { had_rows: false });
        let mut cursor = match state {
            PortalState::Suspended(cursor) => *cursor,
            PortalState::Finished { had_rows: true } => {
                portal.state = state;
                encode::command_complete(&mut sink.output, &CommandTag { verb: "SELECT", rows: Some(0) });
                return Ok(());
            }
            PortalState::Finished { had_rows: false } => {
                return Err(Error::new(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("portal \"{}\" cannot be run", utf8(name)?),
                )
                .into());
            }
            PortalState::Bound => {
                if !self.enter(prepared.control, sync_follows)? {
                    encode::command_complete(&mut sink.output, &BEGUN);
                    return Ok(());
                }
                let portal = self.portals.get_mut(name).expect("it was just there");
                let (statement, parameters) = (&prepared.statement, &portal.parameters[..]);
                let ran = match row_limit {
                    0 => self.session.run_into(statement, parameters, &mut self.values)?,
                    _ => Ran::Outcome(self.session.run(statement, parameters)?),
                };
                match ran {
                    Ran::Rows(rows) => {
                        let columns = statement.columns().expect("a query has columns");
                        send_values(&self.values, rows, columns, &portal.formats, &mut self.writer, sink)?;
                        self.values.clear();
                        self.values.shrink_to(MOST_KEPT_VALUES);
                        portal.state = PortalState::Finished { had_rows: true };
                        let tag = CommandTag { verb: "SELECT", rows: Some(rows as u64) };
                        self.complete(&tag, &mut sink.output);
                        return Ok(());
                    }
                    Ran::Outcome(Outcome::Rows(rows)) => Cursor::new(rows, self.style),
                    Ran::Outcome(Outcome::Done(tag)) => {
                        self.complete(&tag, &mut sink.output);
                        return Ok(());
                    }
                    Ran::Outcome(Outcome::CopyIn(copy)) => {
                        encode::copy_response(&mut sink.output, b'G', copy.columns(), copy.format());
                        self.mode = Mode::CopyIn(copy, Protocol::Extended);
                        return Ok(());
                    }
                    Ran::Outcome(Outcome::CopyOut(copy)) => return self.copy_out(*copy, sink),
                    Ran::Outcome(Outcome::Empty) => {
                        encode::empty_query_response(&mut sink.output);
                        return Ok(());
                    }
                }
            }
        };
        let portal = self.portals.get_mut(name).expect("it was just there");
        match cursor.send(row_limit, &portal.formats, sink)? {
            Progress::Finished(tag) => {
                portal.state = PortalState::Finished { had_rows: true };
                self.complete(&tag, &mut sink.output);
            }
            Progress::Suspended => {
                portal.state = PortalState::Suspended(Box::new(cursor));
                encode::portal_suspended(&mut sink.output);
            }
        }
        Ok(())
    }

    fn sync(&mut self, sink: &mut Sink) -> Answered<Next> {
        self.mode = Mode::Ready;
        let left = self.leave();
        if let Err(error) = left.and(self.end_portals_outside_a_block()) {
            self.fail(&error, sink);
        }
        self.ready(&mut sink.output);
        Ok(Next::Continue)
    }

    fn close_portal(&mut self, name: &[u8]) -> Result<()> {
        if !name.is_empty() && self.portals.get(name).is_some() {
            self.session.forget_portal(Some(utf8(name)?));
        }
        self.portals.close(name);
        Ok(())
    }

    /// Portals live as long as their transaction.
    fn end_portals_outside_a_block(&mut self) -> Result<()> {
        if self.session.status() != TransactionStatus::Idle {
            return Ok(());
        }
        if !self.portals.named.is_empty() {
            self.session.forget_portal(None);
        }
        self.portals.end_all()
    }

    // COPY.

    fn copy_out(&mut self, mut copy: CopyOut, sink: &mut Sink) -> Answered {
        encode::copy_response(&mut sink.output, b'H', copy.columns(), copy.format());
        while let Some(piece) = copy.next_chunk()? {
            // A message per row, as PostgreSQL sends them: some clients take each for a row.
            for row in copy.rows(&piece) {
                encode::copy_data(&mut sink.output, row);
            }
            sink.flush_if_large()?;
        }
        encode::copy_done(&mut sink.output);
        self.complete(&copy.tag(), &mut sink.output);
        Ok(())
    }

    fn take_copy_message(&mut self, message: Message<'_>, sink: &mut Sink) -> Answered<Next> {
        let Mode::CopyIn(copy, _) = &mut self.mode else { unreachable!("called in this mode only") };
        let written = match message {
            Message::CopyData(data) => copy.write_data(data),
            Message::CopyDone => return self.end_copy(None, sink),
            Message::CopyFail(reason) => {
                let reason = String::from_utf8_lossy(reason);
                Err(Error::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}")))
            }
            // libpq sends a Sync with Execute, before it knows that the server waits for data.
            Message::Sync | Message::Flush => Ok(()),
            Message::Terminate => return Ok(Next::Terminate),
            _ => Err(violation("unexpected message during COPY from stdin")),
        };
        match written {
            Ok(()) => Ok(Next::Continue),
            Err(error) => self.end_copy(Some(error), sink),
        }
    }

    /// Ends a COPY with an error of the client's data, or with the result of finishing it.
    fn end_copy(&mut self, error: Option<Error>, sink: &mut Sink) -> Answered<Next> {
        let Mode::CopyIn(copy, protocol) = std::mem::replace(&mut self.mode, Mode::Ready) else {
            unreachable!("called in this mode only")
        };
        let finished = match error {
            Some(error) => {
                drop(copy); // Aborts the statement.
                Err(error)
            }
            None => self.session.finish_copy(*copy),
        };
        match (finished, protocol) {
            (Ok(tag), Protocol::Extended) => self.complete(&tag, &mut sink.output),
            (Ok(tag), Protocol::Simple(script)) => {
                self.complete(&tag, &mut sink.output);
                self.run_script(script, sink)?;
            }
            (Err(error), Protocol::Extended) => return Err(error.into()),
            (Err(error), Protocol::Simple(_)) => self.end_script(Some(error), sink),
        }
        Ok(Next::Continue)
    }
}

impl Control {
    /// Checks the first word, after blanks and comments.
    fn of(sql: &str) -> Control {
        let mut rest = sql.trim_start();
        loop {
            rest = if let Some(comment) = rest.strip_prefix("--") {
                comment.split_once('\n').map_or("", |(_, rest)| rest).trim_start()
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.split_once("*/").map_or("", |(_, rest)| rest).trim_start()
            } else {
                break;
            };
        }
        let end = rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len());
        let word = &rest[..end];
        let is_one_of = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));
        if is_one_of(&["BEGIN", "START"]) {
            Control::Begin
        } else if is_one_of(&["COMMIT", "END", "ABORT"]) || is_one_of(&["ROLLBACK"]) && !to_savepoint(rest) {
            Control::End
        } else {
            Control::None
        }
    }
}

fn to_savepoint(rollback: &str) -> bool {
    rollback.split_ascii_whitespace().skip(1).take(2).any(|word| word.eq_ignore_ascii_case("TO"))
}

#[cold]
fn no_statement(name: &[u8]) -> Error {
    let message = match utf8(name) {
        Ok("") => "unnamed prepared statement does not exist".to_owned(),
        Ok(name) => format!("prepared statement \"{name}\" does not exist"),
        Err(error) => return error,
    };
    Error::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
}

#[cold]
fn no_portal(name: &[u8]) -> Error {
    match utf8(name) {
        Ok(name) => Error::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist")),
        Err(error) => error,
    }
}

#[cold]
fn violation(message: impl Into<String>) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, message)
}

#[cold]
fn in_parameter(error: Error, index: usize) -> Error {
    match error.detail() {
        Some(_) => error,
        None => error.with_detail(format!("This is the value of parameter ${}.", index + 1)),
    }
}
