//! The calls of Flight SQL, each dispatched to its implementation.
//!
//! arrow-flight's `FlightSqlService` would dispatch them, but lacks `GetSchema`, which ADBC calls, and the
//! actions of newer versions. So the lower interface is implemented, with the same messages.

use std::pin::Pin;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionResult,
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, ActionEndSavepointRequest,
    ActionEndTransactionRequest, Any, Command, CommandPreparedStatementQuery, CommandStatementIngest,
    DoPutPreparedStatementResult, DoPutUpdateResult, EndTransaction, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty,
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo,
    PutResult, SchemaResult, Ticket,
};
use arrow_schema::{Schema, SchemaRef};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, SqlState, Value, random};
use firn_session::Statement;
use firn_session::server::ServerConnection as _;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};

use super::auth::{self, Caller};
use super::batches::{schema_bytes, schema_of, schema_of_parameters};
use super::incoming::{self, Decoded, decoded};
use super::ingest::{Fed, ingest, quoted};
use super::metadata;
use super::options;
use super::placeholders::numbered;
use super::state::{Bound, Handle, Prepared, State, Transaction};
use super::statements::{Answer, answer, call};
use super::status::status;

/// Batches that may wait to be stored.
const BATCHES_AHEAD: usize = 2;

/// How long an unknown client may take for its handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(60);

/// How long the end of a session waits for running statements of its transactions.
const CLOSING_GRACE: Duration = Duration::from_secs(5);

/// Answers the calls.
pub(super) struct Service {
    state: Arc<State>,
}

type Answered<T> = std::result::Result<T, Status>;
type Messages<T> = Pin<Box<dyn Stream<Item = Answered<T>> + Send>>;

/// What `GetFlightInfo` returns for a statement.
enum Described {
    /// A query, which runs when its rows are fetched.
    Later(SchemaRef),
    /// A statement without rows, which has run; how many rows it changed, if its tag says so.
    Done(u64),
    /// A statement with rows, which has run and whose rows are kept.
    Kept { schema: SchemaRef, handle: Handle, rows: u64 },
}

impl Service {
    pub fn new(state: Arc<State>) -> Service {
        Service { state }
    }

    /// Describes the statement of a command, which is text or was prepared, and runs it if it is no query.
    async fn describe(&self, caller: &Caller, command: Command) -> Answered<Described> {
        match command {
            Command::CommandStatementQuery(query) => {
                let transaction = query.transaction_id.clone();
                call(&self.state, caller, transaction.as_deref(), move |run| {
                    let statement = run.prepare(&query.query)?;
                    refuse_parameters(&statement)?;
                    describe(run, &statement, &[])
                })
                .await
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self.state.statement(&query.prepared_statement_handle).map_err(status)?;
                let transaction = self.state.transaction_of(&prepared, caller);
                call(&self.state, caller, transaction.as_deref(), move |run| {
                    let rows = prepared.bound.lock().rows.clone();
                    describe(run, &prepared.statement, &rows)
                })
                .await
            }
            other => Err(unknown(other.type_url())),
        }
    }

    /// The schema of a command, without running it.
    async fn schema(&self, caller: &Caller, command: Command) -> Answered<SchemaRef> {
        if let Some(schema) = metadata::schema(&command) {
            return Ok(schema);
        }
        let strings = caller.strings;
        let schema = move |statement: &Statement| match statement.columns() {
            Some(columns) => schema_of(columns, strings),
            None => Arc::new(Schema::empty()),
        };
        match command {
            Command::CommandStatementQuery(query) => {
                let transaction = query.transaction_id.clone();
                call(&self.state, caller, transaction.as_deref(), move |run| {
                    run.prepare(&query.query).map(|statement| schema(&statement))
                })
                .await
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self.state.statement(&query.prepared_statement_handle).map_err(status)?;
                Ok(schema(&prepared.statement))
            }
            other => Err(unknown(other.type_url())),
        }
    }

    /// The rows of a command's statement, or of a catalog call.
    fn rows(&self, caller: &Caller, command: Command, query: Option<Handle>) -> Answered<Answer> {
        match command {
            Command::CommandStatementQuery(text) => {
                let transaction = text.transaction_id.clone();
                answer(&self.state, caller, transaction.as_deref(), query, move |run, output| {
                    let statement = run.prepare(&text.query)?;
                    run.send(&statement, &[], output)
                })
            }
            Command::CommandPreparedStatementQuery(named) => {
                let prepared = self.state.statement(&named.prepared_statement_handle).map_err(status)?;
                let transaction = self.state.transaction_of(&prepared, caller);
                answer(&self.state, caller, transaction.as_deref(), query, move |run, output| {
                    let rows = prepared.bound.lock().rows.clone();
                    run.send(&prepared.statement, &rows, output)
                })
            }
            command => {
                let Some(schema) = metadata::schema(&command) else {
                    return Err(unknown(command.type_url()));
                };
                let state = self.state.clone();
                answer(&self.state, caller, None, None, move |run, output| {
                    let batch =
                        run.connection(|connection| metadata::answer(connection, command, &state.config))?;
                    output.batches(schema, &[batch])
                })
            }
        }
    }

    async fn update(
        &self,
        caller: &Caller,
        transaction: Option<Bytes>,
        sql: String,
    ) -> Answered<DoPutUpdateResult> {
        let done = call(&self.state, caller, transaction.as_deref(), move |run| {
            let statement = run.prepare(&sql)?;
            refuse_parameters(&statement)?;
            run.execute(&statement, &[], false)
        });
        Ok(DoPutUpdateResult { record_count: done.await?.rows as i64 })
    }

    async fn ingest(
        &self,
        caller: &Caller,
        command: CommandStatementIngest,
        messages: impl Stream<Item = Answered<FlightData>> + Send + 'static,
    ) -> Answered<DoPutUpdateResult> {
        let (feed, fed) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
        let transaction = command.transaction_id.clone();
        let storing =
            call(&self.state, caller, transaction.as_deref(), move |run| ingest(run, &command, fed));
        let most_bytes = self.state.config.max_message_bytes;
        let longest = self.state.config.transaction_timeout;
        let feeding = async move {
            let mut messages = decoded(messages, most_bytes);
            // The statement that stores the rows has a transaction, which a silent client must not keep open.
            let too_slow =
                |_| status(Error::new(SqlState::QUERY_CANCELED, "the client sent nothing for too long"));
            while let Some(next) =
                tokio::time::timeout(longest, messages.try_next()).await.map_err(too_slow)??
            {
                if feed.send(Fed::Next(next)).await.is_err() {
                    return Ok(()); // The statement has failed and returns its error.
                }
            }
            let _ = feed.send(Fed::End).await;
            Ok::<(), Status>(())
        };
        let (stored, sent) = futures::join!(storing, feeding);
        match (stored, sent) {
            (Ok(record_count), _) => Ok(DoPutUpdateResult { record_count }),
            // An error of the messages is the reason why the statement was abandoned.
            (Err(error), Err(cause)) if error.code() == tonic::Code::Cancelled => Err(cause),
            (Err(error), _) => Err(error),
        }
    }

    async fn prepare(
        &self,
        caller: &Caller,
        request: ActionCreatePreparedStatementRequest,
    ) -> Answered<ActionCreatePreparedStatementResult> {
        let transaction = request.transaction_id.filter(|handle| !handle.is_empty());
        let sql = numbered(&request.query);
        let text_bytes = sql.len();
        self.state.refuse_hoarding(caller, Prepared::bytes_of(text_bytes)).map_err(status)?;
        let statement =
            call(&self.state, caller, transaction.as_deref(), move |run| run.prepare(&sql)).await?;
        let result = || {
            // A statement without rows has no schema at all, by which JDBC recognizes an update.
            let dataset_schema = match statement.columns() {
                Some(columns) => schema_bytes(&schema_of(columns, caller.strings))?,
                None => Bytes::new(),
            };
            let parameters = schema_of_parameters(statement.parameters(), caller.strings);
            let parameter_schema = schema_bytes(&parameters)?;
            let prepared = Prepared {
                statement: statement.clone(),
                text_bytes,
                transaction: transaction.map(|handle| handle.to_vec()),
                bound: Mutex::default(),
            };
            let handle = self.state.statements.put(prepared, Some(caller))?;
            Ok(ActionCreatePreparedStatementResult {
                prepared_statement_handle: Bytes::copy_from_slice(&handle),
                dataset_schema,
                parameter_schema,
            })
        };
        result().map_err(status)
    }

    fn begin_transaction(&self, caller: &Caller) -> Answered<ActionBeginTransactionResult> {
        let begin = || {
            let timeout = self.state.config.transaction_timeout;
            let transaction = Transaction::new(self.state.connect(caller), timeout)?;
            self.state.transactions.put(transaction, Some(caller))
        };
        let handle = begin().map_err(status)?;
        Ok(ActionBeginTransactionResult { transaction_id: Bytes::copy_from_slice(&handle) })
    }

    async fn end_transaction(&self, caller: &Caller, request: ActionEndTransactionRequest) -> Answered<()> {
        let commit = match request.action() {
            EndTransaction::Commit => true,
            EndTransaction::Rollback => false,
            EndTransaction::Unspecified => return Err(malformed("the action of EndTransaction is missing")),
        };
        let Some(transaction) = self.state.transactions.take(&request.transaction_id) else {
            // A transaction that was dropped is rolled back; a client that wants to commit it gets an error.
            return match commit {
                true => {
                    Err(status(self.state.transaction(&request.transaction_id).err().unwrap_or_else(gone)))
                }
                false => Ok(()),
            };
        };
        let caller = caller.clone();
        let ended = tokio::task::spawn_blocking(move || {
            let mut state = transaction.state.lock();
            let _turn = commit.then(|| transaction.turns.begin());
            state.end(commit)?;
            if let Some(session) = caller.session.filter(|_| commit && state.sets) {
                *session.settings.lock() = Some(state.settings()?);
            }
            Ok(())
        });
        ended.await.map_err(|error| Status::internal(error.to_string()))?.map_err(status)
    }

    /// A savepoint is identified by its transaction and its name.
    async fn begin_savepoint(
        &self,
        caller: &Caller,
        request: ActionBeginSavepointRequest,
    ) -> Answered<ActionBeginSavepointResult> {
        let sql = format!("SAVEPOINT {}", quoted(&request.name));
        self.in_transaction(caller, &request.transaction_id, sql).await?;
        let savepoint_id = [&request.transaction_id[..], request.name.as_bytes()].concat().into();
        Ok(ActionBeginSavepointResult { savepoint_id })
    }

    async fn end_savepoint(&self, caller: &Caller, request: ActionEndSavepointRequest) -> Answered<()> {
        let Some((transaction, name)) = request.savepoint_id.split_at_checked(size_of::<Handle>()) else {
            return Err(malformed("no such savepoint"));
        };
        let name = std::str::from_utf8(name).map_err(|_| malformed("no such savepoint"))?;
        let sql = match request.action {
            1 => format!("RELEASE SAVEPOINT {}", quoted(name)),
            2 => format!("ROLLBACK TO SAVEPOINT {}", quoted(name)),
            _ => return Err(malformed("the action of EndSavepoint is missing")),
        };
        self.in_transaction(caller, transaction, sql).await
    }

    async fn in_transaction(&self, caller: &Caller, transaction: &[u8], sql: String) -> Answered<()> {
        let done = call(&self.state, caller, Some(transaction), move |run| {
            run.connection(|connection| connection.execute(&sql))
        });
        done.await.map(|_| ())
    }

    /// Stops the query whose info a client got. Returns whether it runs.
    fn cancel(&self, info: &FlightInfo) -> bool {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let handles = tickets.filter_map(|ticket| {
            let any = Any::decode(&*ticket.ticket).ok()?;
            let ticket: TicketStatementQuery = any.unpack().ok()??;
            Some(Named::read(&ticket.statement_handle)?.handle)
        });
        handles.fold(false, |found, handle| self.state.running.cancel(&handle) | found)
    }

    /// The rows of parameters in a stream; `None` if it contains no table, not even an empty one.
    async fn parameters(
        &self,
        messages: impl Stream<Item = Answered<FlightData>> + Send + 'static,
    ) -> Answered<Option<Bound>> {
        let most_bytes = self.state.config.max_message_bytes;
        let mut budget = most_bytes;
        let mut messages = decoded(messages, budget);
        let mut rows = None;
        while let Some(next) = messages.try_next().await? {
            match (next, &mut rows) {
                (Decoded::Schema(_), None) => rows = Some(Vec::new()),
                (Decoded::Schema(_), Some(_)) => return Err(malformed("a second schema in one stream")),
                (Decoded::Batch(batch), rows) => {
                    let more = incoming::rows(&batch, &mut budget).map_err(status)?;
                    rows.get_or_insert_default().extend(more);
                }
            }
        }
        Ok(rows.map(|rows| Bound { rows: Arc::new(rows), bytes: most_bytes - budget }))
    }
}

/// Rows for the door, among the extensions of a response, which must implement `Clone`.
#[derive(Clone)]
pub(super) struct Fetched(Arc<Mutex<Option<Answer>>>);

impl Fetched {
    fn new(answer: Answer) -> Fetched {
        Fetched(Arc::new(Mutex::new(Some(answer))))
    }

    pub fn take(&self) -> Option<Answer> {
        self.0.lock().take()
    }
}

/// The content of a ticket of ours: a query to be run, with its command, or rows that are kept.
struct Named<'a> {
    is_kept: bool,
    handle: Handle,
    command: &'a [u8],
}

impl Named<'_> {
    fn write(&self) -> Bytes {
        let statement_handle = [&[u8::from(self.is_kept)][..], &self.handle, self.command].concat().into();
        TicketStatementQuery { statement_handle }.as_any().encode_to_vec().into()
    }

    fn read(bytes: &[u8]) -> Option<Named<'_>> {
        let (kind, rest) = bytes.split_first()?;
        let (handle, command) = rest.split_first_chunk::<{ size_of::<Handle>() }>()?;
        let is_kept = match kind {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Named { is_kept, handle: *handle, command })
    }
}

/// The caller, which the door has identified.
fn caller_of<T>(request: &Request<T>) -> Answered<Caller> {
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .ok_or_else(|| Status::internal("the caller was not identified"))
}

fn describe(
    run: &mut super::statements::Run,
    statement: &Statement,
    rows: &[Vec<Value>],
) -> firn_base::Result<Described> {
    if statement.is_query() {
        let columns = statement.columns().expect("a query has columns");
        return Ok(Described::Later(schema_of(columns, run.caller.strings)));
    }
    if statement.columns().is_some() {
        // Before the statement runs: afterwards its rows would be lost.
        run.state.refuse_hoarding(&run.caller, 0)?;
    }
    let done = run.execute(statement, rows, true)?;
    Ok(match done.ready {
        None => Described::Done(done.rows),
        Some(ready) => {
            let schema = ready.schema.clone();
            let handle = run.state.results.put(ready, Some(&run.caller))?;
            Described::Kept { schema, handle, rows: done.rows }
        }
    })
}

/// 42P02 for a statement that needs parameters and gets none.
fn refuse_parameters(statement: &Statement) -> firn_base::Result<()> {
    match statement.parameters() {
        [] => Ok(()),
        _ => Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")
            .with_hint("Prepare the statement and bind its parameters.")),
    }
}

fn gone() -> Error {
    Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no such transaction")
}

fn unknown(what: &str) -> Status {
    status(Error::unsupported(format!("the Flight SQL message {what}")))
}

fn malformed(what: impl std::fmt::Display) -> Status {
    status(Error::new(SqlState::PROTOCOL_VIOLATION, what.to_string()))
}

fn command(bytes: &[u8]) -> Answered<Command> {
    let any = Any::decode(bytes).map_err(malformed)?;
    Command::try_from(any).map_err(malformed)
}

fn unpacked<T: ProstMessageExt + Default>(action: &Action) -> Answered<T> {
    let any = Any::decode(&*action.body).map_err(malformed)?;
    any.unpack().map_err(malformed)?.ok_or_else(|| malformed(format!("not what {} takes", action.r#type)))
}

fn one<T: Send + 'static>(item: T) -> Messages<T> {
    Box::pin(stream::iter([Ok(item)]))
}

fn result(body: impl Into<Bytes>) -> Messages<arrow_flight::Result> {
    one(arrow_flight::Result { body: body.into() })
}

fn packed(message: &impl ProstMessageExt) -> Messages<arrow_flight::Result> {
    result(message.as_any().encode_to_vec())
}

/// The stream with the message that was read ahead.
fn from_first(
    first: FlightData,
    rest: Streaming<FlightData>,
) -> impl Stream<Item = Answered<FlightData>> + Send + 'static {
    // A message without a header carries a descriptor and nothing else.
    let has_data = |message: &Answered<FlightData>| {
        let is_empty = matches!(message, Ok(message) if message.data_header.is_empty());
        futures::future::ready(!is_empty)
    };
    stream::iter([Ok(first)]).chain(rest).filter(has_data)
}

/// The actions, with their descriptions.
const ACTIONS: [(&str, &str); 11] = [
    ("BeginSavepoint", "Begins a savepoint in a transaction."),
    ("BeginTransaction", "Begins a transaction, which starts with its first statement."),
    ("CancelFlightInfo", "Stops a query."),
    ("CancelQuery", "Stops a query."),
    ("ClosePreparedStatement", "Closes a prepared statement."),
    (options::CLOSE_SESSION, "Ends the session."),
    ("CreatePreparedStatement", "Prepares a statement."),
    ("EndSavepoint", "Releases a savepoint or rolls back to it."),
    ("EndTransaction", "Commits a transaction or rolls it back."),
    (options::GET_SESSION_OPTIONS, "Returns the options of the session."),
    (options::SET_SESSION_OPTIONS, "Sets options of the session."),
];

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type DoActionStream = Messages<arrow_flight::Result>;
    type ListActionsStream = Messages<ActionType>;
    type DoExchangeStream = Messages<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answered<Response<Self::HandshakeStream>> {
        let headers = request.metadata().clone();
        // Some clients send nothing but headers.
        let mut sent = request.into_inner();
        let first = tokio::time::timeout(HANDSHAKE_TIME, sent.message());
        let first = first.await.map_err(|_| Status::deadline_exceeded("the handshake takes too long"))?;
        let first = first?.unwrap_or_default();
        let state = self.state.clone();
        let begun = tokio::task::spawn_blocking(move || {
            let credentials = auth::credentials(&headers, &first.payload)?;
            auth::check(&state.config.auth, &credentials)?;
            state.begin_session(credentials.user)
        });
        let token = begun.await.map_err(|error| Status::internal(error.to_string()))?.map_err(status)?;
        let bearer = format!("Bearer {token}");
        let payload = HandshakeResponse { protocol_version: 0, payload: token.into() };
        let mut response = Response::new(one(payload));
        let bearer = bearer.parse().map_err(|_| Status::internal("a token is ASCII"))?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answered<Response<Self::ListFlightsStream>> {
        Err(unknown("ListFlights"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answered<Response<FlightInfo>> {
        let caller = caller_of(&request)?;
        let descriptor = request.into_inner();
        let bytes = descriptor.cmd.clone();
        let command = command(&bytes)?;
        let info = FlightInfo::new().with_descriptor(descriptor);
        let endpoint = |ticket: Bytes| FlightEndpoint::new().with_ticket(Ticket { ticket });
        let (info, schema) = match metadata::schema(&command) {
            Some(schema) => (info.with_endpoint(endpoint(bytes)), schema),
            None => match self.describe(&caller, command).await? {
                Described::Later(schema) => {
                    let named = Named { is_kept: false, handle: random::secret_bytes(), command: &bytes };
                    (info.with_endpoint(endpoint(named.write())), schema)
                }
                Described::Kept { schema, handle, rows } => {
                    let named = Named { is_kept: true, handle, command: &[] };
                    let info = info.with_endpoint(endpoint(named.write()));
                    (info.with_total_records(rows as i64), schema)
                }
                // There is nothing to be fetched.
                Described::Done(rows) => (info.with_total_records(rows as i64), Arc::new(Schema::empty())),
            },
        };
        let info = info.with_ordered(true).try_with_schema(&schema);
        Ok(Response::new(info.map_err(|error| Status::internal(error.to_string()))?))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answered<Response<PollInfo>> {
        Err(unknown("PollFlightInfo"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answered<Response<SchemaResult>> {
        let caller = caller_of(&request)?;
        let command = command(&request.into_inner().cmd)?;
        let schema = schema_bytes(&*self.schema(&caller, command).await?).map_err(status)?;
        Ok(Response::new(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answered<Response<Self::DoGetStream>> {
        let caller = caller_of(&request)?;
        let rows = match command(&request.into_inner().ticket)? {
            Command::TicketStatementQuery(ticket) => {
                let named = Named::read(&ticket.statement_handle)
                    .ok_or_else(|| malformed("the ticket is not from this server"))?;
                if named.is_kept {
                    let kept = self.state.results.take(&named.handle).ok_or_else(|| {
                        status(
                            Error::new(
                                SqlState::INVALID_CURSOR_NAME,
                                "the rows have been fetched, or were not fetched in time",
                            )
                            .with_hint("The statement was executed, and executing it again would repeat its changes."),
                        )
                    })?;
                    answer(&self.state, &caller, None, Some(named.handle), move |_, output| {
                        output.batches(kept.schema.clone(), &kept.batches)
                    })?
                } else {
                    self.rows(&caller, command(named.command)?, Some(named.handle))?
                }
            }
            command => self.rows(&caller, command, None)?,
        };
        // The door uses it as the body of the reply.
        let mut response = Response::new(Box::pin(stream::empty()) as Self::DoGetStream);
        response.extensions_mut().insert(Fetched::new(rows));
        Ok(response)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answered<Response<Self::DoPutStream>> {
        let caller = caller_of(&request)?;
        let mut messages = request.into_inner();
        let first = messages.message().await?.ok_or_else(|| {
            // A client that has no batch to ingest does not even name the table.
            let error = Error::new(SqlState::PROTOCOL_VIOLATION, "nothing was sent");
            status(error.with_hint("Use CREATE TABLE for a table without rows."))
        })?;
        let descriptor =
            first.flight_descriptor.clone().ok_or_else(|| malformed("a descriptor is missing"))?;
        let messages = from_first(first, messages);
        let app_metadata = match command(&descriptor.cmd)? {
            Command::CommandStatementUpdate(update) => {
                self.update(&caller, update.transaction_id, update.query).await?.encode_to_vec()
            }
            Command::CommandStatementIngest(command) => {
                self.ingest(&caller, command, messages).await?.encode_to_vec()
            }
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery {
                prepared_statement_handle,
            }) => {
                let prepared = self.state.statement(&prepared_statement_handle).map_err(status)?;
                let bound = self.parameters(messages).await?.unwrap_or_default();
                *prepared.bound.lock() = Bound::default();
                self.state.refuse_hoarding(&caller, bound.bytes).map_err(status)?;
                *prepared.bound.lock() = bound;
                let prepared_statement_handle = Some(prepared_statement_handle);
                DoPutPreparedStatementResult { prepared_statement_handle }.encode_to_vec()
            }
            Command::CommandPreparedStatementUpdate(update) => {
                let prepared = self.state.statement(&update.prepared_statement_handle).map_err(status)?;
                // They are in this message, or were bound before.
                let rows = match self.parameters(messages).await? {
                    Some(bound) => bound.rows,
                    None => prepared.bound.lock().rows.clone(),
                };
                let transaction = self.state.transaction_of(&prepared, &caller);
                let done = call(&self.state, &caller, transaction.as_deref(), move |run| {
                    run.execute(&prepared.statement, &rows, false)
                });
                DoPutUpdateResult { record_count: done.await?.rows as i64 }.encode_to_vec()
            }
            other => return Err(unknown(other.type_url())),
        };
        Ok(Response::new(one(PutResult { app_metadata: app_metadata.into() })))
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answered<Response<Self::ListActionsStream>> {
        caller_of(&request)?;
        let action = |(name, description): &(&str, &str)| {
            Ok(ActionType { r#type: (*name).to_owned(), description: (*description).to_owned() })
        };
        Ok(Response::new(Box::pin(stream::iter(ACTIONS.iter().map(action).collect::<Vec<_>>()))))
    }

    async fn do_action(&self, request: Request<Action>) -> Answered<Response<Self::DoActionStream>> {
        let caller = caller_of(&request)?;
        let action = request.into_inner();
        let nothing = || Box::pin(stream::empty()) as Self::DoActionStream;
        let results = match action.r#type.as_str() {
            "CreatePreparedStatement" => packed(&self.prepare(&caller, unpacked(&action)?).await?),
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = unpacked(&action)?;
                self.state.statements.take(&request.prepared_statement_handle);
                nothing()
            }
            "BeginTransaction" => packed(&self.begin_transaction(&caller)?),
            "EndTransaction" => {
                self.end_transaction(&caller, unpacked(&action)?).await?;
                nothing()
            }
            "BeginSavepoint" => packed(&self.begin_savepoint(&caller, unpacked(&action)?).await?),
            "EndSavepoint" => {
                self.end_savepoint(&caller, unpacked(&action)?).await?;
                nothing()
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = unpacked(&action)?;
                let info = FlightInfo::decode(&*request.info).map_err(malformed)?;
                // Cancelled, or not cancellable.
                let result = if self.cancel(&info) { 1 } else { 3 };
                packed(&ActionCancelQueryResult { result })
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(&*action.body).map_err(malformed)?;
                let found = request.info.is_some_and(|info| self.cancel(&info));
                let status = if found { CancelStatus::Cancelled } else { CancelStatus::NotCancellable };
                result(CancelFlightInfoResult { status: status.into() }.encode_to_vec())
            }
            options::SET_SESSION_OPTIONS => {
                let request = options::SetSessionOptionsRequest::decode(&*action.body).map_err(malformed)?;
                let session = caller.session.clone().ok_or_else(no_session)?;
                let errors = call(&self.state, &caller, None, move |run| {
                    run.connection(|connection| {
                        let errors = options::set(connection, &request);
                        *session.settings.lock() = Some(connection.session_settings());
                        Ok(errors)
                    })
                });
                result(errors.await?.encode_to_vec())
            }
            options::GET_SESSION_OPTIONS => {
                let values = call(&self.state, &caller, None, |run| run.connection(options::get));
                result(values.await?.encode_to_vec())
            }
            options::CLOSE_SESSION => {
                let (state, client) = (self.state.clone(), caller.clone());
                let ending = tokio::task::spawn_blocking(move || state.end_client(&client));
                // It runs to its end in the background, although this call does not wait for statements that do not stop at once.
                let _ = tokio::time::timeout(CLOSING_GRACE, ending).await;
                result(options::CloseSessionResult::closed().encode_to_vec())
            }
            other => return Err(unknown(&format!("action {other}"))),
        };
        Ok(Response::new(results))
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answered<Response<Self::DoExchangeStream>> {
        Err(unknown("DoExchange"))
    }
}

fn no_session() -> Status {
    status(
        Error::unsupported("a session option without a session").with_hint(
            "Connect with a user name: options last as long as the session that a handshake begins.",
        ),
    )
}
