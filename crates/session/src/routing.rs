//! Queries that a primary hands to replicas ([`QueryRouter`]), and those that a replica runs for its primary ([`RoutedQuery`]).
//!
//! A query may be handed out if it is alone in its transaction, is expected to handle many rows, and gives the same rows on another
//! server: see [`Plan::is_portable`]. The replica runs it with the session's settings, user and time, once it has replayed the log as
//! of the query's arrival, and says of which commit time its snapshot is. The session waits until the primary has published that. So a
//! session sees its own commits, and never an older state after a newer one (Mühlbauer et al., "ScyPer: Elastic OLAP Throughput on
//! Transactional Data", DanaC 2013: order-preserving serializability, without global snapshots).
//!
//! A replica whose log has a later epoch than that of the primary refuses: another primary may have committed what this one lacks.
//!
//! Whatever fails before the first rows are here, also an error of the query itself, means that the primary runs it. Then the client
//! gets the rows or the error that it would have got anyway. Afterwards a lost replica is 40001.

use crate::connection::Connection;
use crate::rows::{Drawing, Rows};
use crate::statement::Prepared;
use crate::timer::Alarm;
use crate::{Column, Outcome};
use firn_base::sync::Arc;
use firn_base::{Cancel, Collation, Epoch, Error, Lsn, Result, SqlState, Time, Type, TypeId, Value, clock};
use firn_sql::activity::State;
use firn_sql::standby::Token;
use firn_sql::{Plan, RowChunk};
use firn_txn::Transaction;
use std::time::Duration;

/// How long a replica may take to replay the log up to the arrival of a query.
const LONGEST_REPLAY: Duration = Duration::from_millis(200);

/// How often the end of the statement is looked for while a replica runs it.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);

/// How often it is looked whether the primary has published what the replica has shown, and how long that may take.
const PUBLICATION_INTERVAL: Duration = Duration::from_micros(50);
const LONGEST_PUBLICATION: Duration = Duration::from_secs(1);

/// About how many bytes the image of some rows has, unless one row has more, …
const IMAGE_BYTES: usize = 2 << 20;
/// … and how many at most.
const MOST_IMAGE_BYTES: usize = 128 << 20;

/// A query as a replica gets it.
#[derive(Clone, PartialEq, Debug)]
pub struct RoutedQuery {
    /// Its text.
    text: String,
    /// The types of its parameters, and the image of a row with their values; empty without parameters.
    parameter_types: Vec<Type>,
    parameters: Vec<u8>,
    /// The columns of its rows.
    columns: Vec<(String, Type)>,
    /// The user and the database of the session.
    user: String,
    database: String,
    /// The settings of the session that are not built-in defaults.
    settings: Vec<(String, String)>,
    /// When its transaction began, in microseconds since 1970 UTC.
    time: i64,
    /// The epoch of the primary.
    epoch: Epoch,
    /// The replica must have replayed the log up to here.
    position: Lsn,
}

/// What hands queries to replicas.
pub trait QueryRouter: Send + Sync {
    /// Whether a replica waits for a query. It returns at once.
    fn is_ready(&self) -> bool;

    /// Hands a query to the replica that is least busy; `None` if none waits for one.
    fn hand_out(&self, query: &RoutedQuery) -> Option<Box<dyn RoutedAnswer>>;
}

/// The rows of a query that a replica runs. Dropping it ends the query there.
pub trait RoutedAnswer: Send {
    /// Waits for the next rows, so long at most. After the last rows, and after an error, it is not called again.
    fn next(&mut self, longest: Duration) -> Result<RoutedPiece>;
}

/// What an answer consists of.
pub enum RoutedPiece {
    /// The query reads a snapshot that shows no commit after this time. It comes first.
    Begun(Time),
    /// The image of some rows.
    Rows(Vec<u8>),
    /// There are no more rows.
    End,
    /// The time has passed.
    Nothing,
}

/// The rows of a query that this server runs for another one.
pub struct RoutedRows {
    rows: Rows,
    columns: Arc<[Column]>,
    /// What is left of a chunk that is too large for one image.
    rest: Option<RowChunk>,
    time: Time,
}

impl RoutedRows {
    /// The query's snapshot shows no commit after this time.
    pub fn time(&self) -> Time {
        self.time
    }

    /// The image of the next rows; `None` at the end. 54000 if one row is too large.
    pub fn next_image(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(chunk) = self.rest.take().map_or_else(|| self.rows.next_chunk(), |rest| Ok(Some(rest)))?
        else {
            return Ok(None);
        };
        let chunk = chunk.into_vectors(&self.columns);
        let (rows, bytes) = (chunk.rows(), chunk.values.memory());
        let first = (rows * IMAGE_BYTES).checked_div(bytes).map_or(rows, |first| first.clamp(1, rows.max(1)));
        let (chunk, rest) = RowChunk::Vectors(chunk).split(first.min(rows), self.columns.len());
        self.rest = (first < rows).then_some(rest);
        let mut image = Vec::new();
        chunk.write(&self.columns, &mut image);
        if image.len() > MOST_IMAGE_BYTES {
            let message = "a row is too large to be sent to the primary";
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("SET firn.route_queries = off lets the primary run the query."));
        }
        Ok(Some(image))
    }
}

/// Rows that a replica computes, as the session reads them.
pub(crate) struct RoutedStream {
    columns: Arc<[Column]>,
    /// The first rows.
    first: Option<Vec<u8>>,
    /// `None` after the last rows.
    answer: Option<Box<dyn RoutedAnswer>>,
    cancel: Cancel,
    alarm: Option<Alarm>,
    drawing: Option<Drawing>,
}

impl RoutedStream {
    /// The next rows; `None` at the end.
    pub fn next(&mut self) -> Result<Option<RowChunk>> {
        let image = self.next_image();
        let next =
            image.and_then(|image| image.map(|image| RowChunk::read(&self.columns, &image)).transpose());
        let next = next.map_err(|error| crate::errors::timed_out(error, self.alarm.as_ref()));
        if !matches!(next, Ok(Some(_))) {
            (self.answer, self.alarm, self.drawing) = (None, None, None);
        }
        next
    }

    fn next_image(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(answer) = &mut self.answer else { return Ok(None) };
        loop {
            self.cancel.check()?;
            match answer.next(CANCEL_INTERVAL).map_err(after_first_rows)? {
                RoutedPiece::Rows(image) => return Ok(Some(image)),
                RoutedPiece::End => return Ok(None),
                RoutedPiece::Nothing | RoutedPiece::Begun(_) => {}
            }
        }
    }
}

/// The error for a client that has rows already: that of the query, or 40001 if the replica does not go on.
fn after_first_rows(error: Error) -> Error {
    let is_of_query = |class: &str| !["08", "25", "40", "55", "57", "58", "XX"].contains(&class);
    if error.state().as_str().get(..2).is_some_and(is_of_query) {
        return error;
    }
    let message = "the replica that ran the query does not go on with it";
    Error::new(SqlState::SERIALIZATION_FAILURE, message)
        .with_detail(error.to_string())
        .with_hint("Run the query again.")
}

impl Connection {
    /// A query as a replica gets it; `None` if it is to run here.
    pub(crate) fn routed_query(
        &self,
        prepared: &Prepared,
        plan: &Plan,
        transaction: &Transaction,
        parameters: &[Value],
    ) -> Result<Option<RoutedQuery>> {
        let Some(least) = self.least_routed_work else { return Ok(None) };
        let Some(router) = self.shared.router.get() else { return Ok(None) };
        let engine = &self.shared.engine;
        let Some(epoch) = engine.written_epoch() else { return Ok(None) };
        // Elsewhere its text is read again.
        let means_its_text = prepared.is_whole_text
            && self.literals_of(prepared).is_none()
            && prepared.facts.syntax == self.facts.syntax;
        let may_be_routed = !plan.is_short()
            && plan.is_portable()
            && means_its_text
            && self.facts.sources.is_empty()
            && router.is_ready();
        if !may_be_routed || plan.work(transaction, parameters, &self.options.cancel)? < least {
            return Ok(None);
        }
        let columns = prepared.columns.iter().flat_map(|columns| columns.iter());
        let mut image = Vec::new();
        if !parameters.is_empty() {
            RowChunk::Values(parameters.to_vec()).write(&nameless(&prepared.parameters), &mut image);
        }
        Ok(Some(RoutedQuery {
            text: prepared.text.0.clone(),
            parameter_types: prepared.parameters.clone(),
            parameters: image,
            columns: columns.map(|column| (column.name.clone(), column.ty)).collect(),
            user: self.facts.user.clone(),
            database: self.facts.database.clone(),
            settings: self.services.with_settings(|settings| settings.carried()),
            time: self.options.now,
            epoch,
            position: engine.visible_lsn(),
        }))
    }

    /// Lets a replica run a query, and waits for its first rows. `None` if it is to run here.
    pub(crate) fn run_elsewhere(
        &self,
        query: &RoutedQuery,
        columns: Arc<[Column]>,
        alarm: &mut Option<Alarm>,
    ) -> Result<Option<Rows>> {
        let router = self.shared.router.get().expect("it has said that it is ready");
        let Some(mut answer) = router.hand_out(query) else { return Ok(None) };
        let engine = &self.shared.engine;
        let mut shown = Time(0);
        let first = loop {
            self.check_cancel()?;
            match answer.next(CANCEL_INTERVAL) {
                Ok(RoutedPiece::Nothing) => {}
                Ok(RoutedPiece::Begun(time)) => shown = time,
                Ok(RoutedPiece::Rows(image)) => break Some(image),
                Ok(RoutedPiece::End) => break None,
                Err(_) => {
                    engine.statistics().routed_back.count();
                    return Ok(None);
                }
            }
        };
        // A commit may be in the log, and replayed, a moment before it is published here.
        let begun = clock::now();
        while engine.now() < shown {
            self.check_cancel()?;
            if begun.elapsed() > LONGEST_PUBLICATION {
                engine.statistics().routed_back.count();
                return Ok(None);
            }
            clock::sleep(PUBLICATION_INTERVAL);
        }
        if self.read_waits(true).lease {
            engine.wait_for_lease(&|| self.check_cancel())?;
        }
        engine.statistics().routed.count();
        let stream = RoutedStream {
            columns: columns.clone(),
            answer: first.is_some().then_some(answer),
            first,
            cancel: self.options.cancel.clone(),
            alarm: alarm.take(),
            drawing: Some(Drawing::new(&self.activity, State::Idle)),
        };
        Ok(Some(Rows::routed(columns, stream)))
    }

    /// Runs a query of a session of the primary.
    ///
    /// Errors: those of the query; 57P03 if replay is too far behind; 55000 if it is another one here, or this server follows another primary.
    pub(crate) fn answer(&mut self, query: &RoutedQuery) -> Result<RoutedRows> {
        self.services.with_settings(|settings| settings.adopt_carried(&query.settings))?;
        self.apply_settings();
        // The session of the primary looks after the time that the query takes.
        (self.read_after, self.statement_timeout) = (None, None);
        self.options.given_time = Some(query.time);
        // The catalog is part of what is replayed.
        self.options.cancel.reset();
        self.read_after_timeout = Some(LONGEST_REPLAY);
        let position = Token { epoch: None, lsn: query.position };
        self.wait_for(position)
            .map_err(|error| if self.options.cancel.is_cancelled() { error } else { is_behind() })?;
        let types: Vec<Option<TypeId>> = query.parameter_types.iter().map(|ty| Some(ty.id)).collect();
        let statement = self.prepare_typed(&query.text, &types)?;
        let columns = statement.columns().ok_or_else(is_another)?.clone();
        let are_same = columns.iter().map(|column| (&column.name, column.ty));
        if !are_same.eq(query.columns.iter().map(|(name, ty)| (name, *ty))) || !statement.is_query() {
            return Err(is_another());
        }
        let parameters = match query.parameters.as_slice() {
            [] => Vec::new(),
            image => {
                let columns = nameless(&query.parameter_types);
                RowChunk::read(&columns, image)?.into_values(&columns).pop().unwrap_or_default()
            }
        };
        let Outcome::Rows(rows) = self.run(&statement, &parameters)? else { return Err(is_another()) };
        // Its snapshot has been taken.
        let engine = &self.shared.engine;
        if engine.known_epoch() > query.epoch {
            return Err(is_of_another_primary());
        }
        Ok(RoutedRows { rows, columns, rest: None, time: engine.now() })
    }
}

#[cold]
fn is_behind() -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "the replica has not replayed the log up to the arrival of the query",
    )
}

#[cold]
fn is_of_another_primary() -> Error {
    let message = "the server's log has a later epoch than that of the query's primary";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

#[cold]
fn is_another() -> Error {
    let message = "the query is another one in this server's catalog";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

/// Columns of these types.
fn nameless(types: &[Type]) -> Vec<Column> {
    types.iter().map(|ty| Column { name: String::new(), ty: *ty, origin: None }).collect()
}

impl RoutedQuery {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The position up to which the replica must have replayed the log.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The user and the database of its session.
    pub fn identity(&self) -> (&str, &str) {
        (&self.user, &self.database)
    }

    /// Its bytes. Numbers are little-endian; a list, a text and an image begin with their length as u32.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        text(&self.text, out);
        length(self.parameter_types.len(), out);
        self.parameter_types.iter().for_each(|ty| of_type(*ty, out));
        length(self.parameters.len(), out);
        out.extend_from_slice(&self.parameters);
        length(self.columns.len(), out);
        for (name, ty) in &self.columns {
            text(name, out);
            of_type(*ty, out);
        }
        text(&self.user, out);
        text(&self.database, out);
        length(self.settings.len(), out);
        for (name, value) in &self.settings {
            text(name, out);
            text(value, out);
        }
        out.extend(self.time.to_le_bytes());
        out.extend(self.epoch.0.to_le_bytes());
        out.extend(self.position.0.to_le_bytes());
        bytes
    }

    /// Reads its bytes; 08P01 if they are not those of a query.
    pub fn decode(bytes: &[u8]) -> Result<RoutedQuery> {
        let mut bytes = Bytes(bytes);
        Ok(RoutedQuery {
            text: bytes.text()?,
            parameter_types: bytes.list(Bytes::ty)?,
            parameters: bytes.sized()?.to_vec(),
            columns: bytes.list(|bytes| Ok((bytes.text()?, bytes.ty()?)))?,
            user: bytes.text()?,
            database: bytes.text()?,
            settings: bytes.list(|bytes| Ok((bytes.text()?, bytes.text()?)))?,
            time: i64::from_le_bytes(bytes.array()?),
            epoch: Epoch(u64::from_le_bytes(bytes.array()?)),
            position: Lsn(u64::from_le_bytes(bytes.array()?)),
        })
    }
}

fn length(length: usize, out: &mut Vec<u8>) {
    out.extend(u32::try_from(length).expect("queries are shorter").to_le_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn of_type(ty: Type, out: &mut Vec<u8>) {
    out.extend(ty.id.0.to_le_bytes());
    out.extend(ty.modifier.to_le_bytes());
    out.extend(ty.collation.0.to_le_bytes());
}

/// Bytes that are being read.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn sized(&mut self) -> Result<&'b [u8]> {
        let length = self.number()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String> {
        std::str::from_utf8(self.sized()?).map(str::to_owned).map_err(|_| malformed())
    }

    fn ty(&mut self) -> Result<Type> {
        let (id, modifier) = (TypeId(self.number()?), i32::from_le_bytes(self.array()?));
        Ok(Type { id, modifier, collation: Collation(self.number()?) })
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        (0..self.number()?).map(|_| item(self)).collect()
    }
}

#[cold]
fn malformed() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "a message has no query that could be run")
}
