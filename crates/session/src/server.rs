//! What servers and bindings for other languages need of a connection, beyond the API of programs: hooks, blocks without SQL,
//! reports of what a session does, and memory that is reused.
//!
//! The methods are those of two traits, so that the pages of [`Connection`] and [`Database`] show what programs need.
//!
//! ```
//! use firn_session::{Database, Outcome, server::{ServerConnection, ServerDatabase}};
//!
//! # fn main() -> firn_session::Result<()> {
//! let database = Database::memory()?;
//! let session = database.reserve_session(); // the client gets this number before its session begins
//! let mut connection = database.connect_as(session);
//! connection.identify("ada", "library");
//! for parsed in connection.parse_script("SELECT current_user; SELECT 1")? {
//!     let statement = connection.prepare_parsed(parsed, &[])?;
//!     let Outcome::Rows(mut rows) = connection.run(&statement, &[])? else { unreachable!() };
//!     while let Some(chunk) = rows.next_chunk()? {
//!         // Encode and send the rows.
//!         assert_eq!(chunk.rows(rows.columns().len()), 1);
//!     }
//!     connection.report_idle();
//! }
//! # Ok(())
//! # }
//! ```

use crate::CommandTag;
use crate::connection::{Connection, TransactionStatus};
use crate::copy::CopyIn;
use crate::database::Database;
use crate::statement::Statement;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, TextStyle, TypeId, Value};
use firn_sql::named::NamedCursor;
use firn_sql::session_facts::SessionFacts;
use firn_sql::settings::Settings;
use firn_sql::statement::TransactionModes;
use std::net::IpAddr;
use std::time::Duration;

pub use crate::connection::Ran;
pub use crate::routing::{QueryRouter, RoutedAnswer, RoutedPiece, RoutedQuery, RoutedRows};
pub use firn_sql::activity::{
    ArchiverCounts, ClientCertificate, Encryption, ReceiverFacts, ReplicationFacts, SenderFacts, VoterFacts,
};
pub use firn_sql::parse::{Numbered, Parsed, number_named_parameters, number_parameters};
pub use firn_sql::settings::{cooling_time as parse_cooling_time, parse_memory};
pub use firn_sql::standby::SynchronousCommit;
pub use firn_sql::{Datum, ResultChunk, RowChunk};

/// The settings of a session, apart from it. Copies are cheap.
#[derive(Clone, Debug)]
pub struct SessionSettings(Settings);

/// What a server does with a [`Connection`], which is one client's session.
pub trait ServerConnection {
    // Statements.

    /// Splits a script into statements. Syntax errors (42601) carry their position in the script, as do all errors of what
    /// [`ServerConnection::prepare_parsed`] makes of the statements.
    fn parse_script(&self, script: &str) -> Result<Vec<Parsed>>;

    /// Prepares a statement of a script. Otherwise as [`Connection::prepare_typed`].
    fn prepare_parsed(&mut self, parsed: Parsed, types: &[Option<TypeId>]) -> Result<Statement>;

    /// As [`Connection::prepare_typed`], but an error does not fail the transaction block: for callers that
    /// try several types.
    fn try_prepare(&mut self, sql: &str, types: &[Option<TypeId>]) -> Result<Statement>;

    /// As [`Connection::run`], for callers that run many short queries and reuse the memory of their rows:
    /// `values`, which is emptied first. After an error, or another outcome, its content is
    /// meaningless.
    fn run_into(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        values: &mut Vec<Value>,
    ) -> Result<Ran>;

    /// Runs a query of a session of the primary that this replica follows. The connection is used for nothing else. See
    /// [`ServerDatabase::set_query_router`].
    ///
    /// Errors: those of the query; 57P03 if replay is too far behind; 55000 if the catalog here has other columns for it, or this server
    /// has the log of a later primary.
    fn run_routed(&mut self, query: &RoutedQuery) -> Result<RoutedRows>;

    /// Ends the data of a COPY that this connection has begun, as [`CopyIn::finish`], and adds its notices to those of the
    /// connection.
    fn finish_copy(&mut self, copy: CopyIn) -> Result<CommandTag>;

    // Transaction blocks.

    /// Opens a block as BEGIN does, for a protocol whose client has requested one without that statement.
    fn open_block(&mut self) -> Result<()>;

    /// Ends the block: as COMMIT, or as ROLLBACK if it has failed.
    fn close_block(&mut self) -> Result<()>;

    /// Fails the open transaction block, if there is one: for mistakes that a protocol finds before a
    /// statement reaches the session. Only ROLLBACK ends the block then.
    fn fail_block(&mut self);

    // Portals.

    /// Lists a portal that the protocol has bound under a name, for `pg_cursors`.
    fn list_portal(&self, name: &str, statement: &Statement);

    /// Takes a portal off the list, or all.
    fn forget_portal(&self, name: Option<&str>);

    // What other sessions see of this one.

    /// Reports that the session waits for its client: after every statement, and once the rows of a query have been
    /// sent or are left for later.
    fn report_idle(&self);

    /// Sets the user and the database, as `current_user` and `current_database()` return them.
    fn identify(&mut self, user: &str, database: &str);

    /// Sets the addresses of the client and of the server, for `pg_stat_activity` and similar.
    fn set_addresses(&mut self, client: Option<(IpAddr, u16)>, server: Option<(IpAddr, u16)>);

    /// Sets how the connection is encrypted, for `pg_stat_ssl`; it is not, if that is not set.
    fn set_encryption(&mut self, encryption: Option<Encryption>);

    // Hooks.

    /// Sets the hook that ends the session when another one calls `pg_terminate_backend`. Without it, that call has no effect.
    fn set_terminate_hook(&self, terminate: impl Fn() + Send + Sync + 'static);

    /// Sets the hook that returns whether the client has gone: the statement that runs for it is cancelled then.
    /// [`ServerDatabase::cancel_for_gone_clients`] calls it.
    fn set_client_gone_hook(&self, has_gone: impl Fn() -> bool + Send + Sync + 'static);

    /// Sets the hook that returns whether the running statement is to be cancelled. It is called periodically while a statement
    /// runs or waits or its rows are read. Any thread that works for the statement may call it, including the calling one. It
    /// is for programs that have to poll for interrupts. Only the first hook that is set counts.
    fn set_interrupt_hook(&self, is_interrupted: impl Fn() -> bool + Send + Sync + 'static);

    /// Sets the hook that is called when a notification has arrived at the session and it had taken all earlier ones. The thread of
    /// the notifying session calls it, so the hook must not wait.
    fn set_notification_hook(&self, wake: impl Fn() + Send + Sync + 'static);

    /// Whether the session listens to a channel (LISTEN).
    fn is_listening(&self) -> bool;

    /// The client gets no warnings: what would only be one about a commit is an error (08007).
    fn report_no_warnings(&mut self);

    // Settings.

    /// A number that changes when settings have changed: for protocols, which report some of them to clients.
    fn settings_version(&mut self) -> u64;

    /// How the session reads and writes values as text: for protocols and programs that do so themselves.
    fn text_style(&self) -> &TextStyle;

    /// The settings of this session, for [`ServerConnection::adopt_settings`] of another one.
    fn session_settings(&self) -> SessionSettings;

    /// Applies the settings of another session of the database. Outside a transaction block only.
    fn adopt_settings(&mut self, settings: &SessionSettings);

    // Idle clients.

    /// Leaves it to the caller to end the session when its client is idle for longer than
    /// [`ServerConnection::idle_timeout`], by [`ServerConnection::expire`]: a protocol can notify its client. Otherwise
    /// the session rolls back an idle transaction by itself, and the next statement fails (25P03).
    fn leave_timeouts_to_caller(&mut self);

    /// How long the client may now be idle: `idle_in_transaction_session_timeout` or `idle_session_timeout`.
    fn idle_timeout(&self) -> Option<Duration>;

    /// How long the client may be idle in a block.
    fn idle_in_transaction_timeout(&self) -> Option<Duration>;

    /// The client was idle for too long: its block fails. Returns the error to end the connection with.
    fn expire(&mut self) -> Error;
}

/// What a server does with a [`Database`].
pub trait ServerDatabase {
    /// Reserves the number of a future connection, which `pg_backend_pid()` returns in it.
    fn reserve_session(&self) -> u32;

    /// A new connection under a reserved number.
    fn connect_as(&self, session: u32) -> Connection;

    /// Sets what shows replication to SQL, as in `pg_stat_archiver`. Only the first call has an effect.
    fn set_replication_facts(&self, facts: Arc<dyn ReplicationFacts>);

    /// Commits wait for these standbys from now on: a value of `synchronous_standby_names`. Errors: 22023; 55000 without [replication
    /// facts](ServerDatabase::set_replication_facts).
    fn set_synchronous_standby_names(&self, names: &str) -> Result<()>;

    /// The value of `synchronous_standby_names`.
    fn synchronous_standby_names(&self) -> String;

    /// How many sessions run a statement.
    fn active_sessions(&self) -> usize;

    /// Sets what hands long queries to replicas. Only the first call has an effect. Without it, and while this server is a replica
    /// itself, all queries run here.
    fn set_query_router(&self, router: Arc<dyn QueryRouter>);

    /// Cancels statements whose [clients have gone](ServerConnection::set_client_gone_hook). A server calls this periodically.
    fn cancel_for_gone_clients(&self);

    /// As [`Database::close`], at the end of a process: memory is left to the operating system, which frees it as a whole. Freeing
    /// rows and indexes one by one takes a tenth of a second a gigabyte. The directory is locked until the process has ended.
    fn close_at_end(self) -> Result<()>;
}

impl ServerConnection for Connection {
    fn parse_script(&self, script: &str) -> Result<Vec<Parsed>> {
        self.split_script(script)
    }

    fn prepare_parsed(&mut self, parsed: Parsed, types: &[Option<TypeId>]) -> Result<Statement> {
        self.prepare_tree(parsed, types)
    }

    fn try_prepare(&mut self, sql: &str, types: &[Option<TypeId>]) -> Result<Statement> {
        self.prepare_text(sql, types)
    }

    #[inline]
    fn run_into(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        values: &mut Vec<Value>,
    ) -> Result<Ran> {
        self.run_reusing(statement, parameters, values)
    }

    fn run_routed(&mut self, query: &RoutedQuery) -> Result<RoutedRows> {
        let (user, database) = query.identity();
        self.identify(user, database);
        self.answer(query)
    }

    fn finish_copy(&mut self, copy: CopyIn) -> Result<CommandTag> {
        self.end_copy(copy)
    }

    fn list_portal(&self, name: &str, statement: &Statement) {
        let portal = NamedCursor::portal(statement.prepared.text.0.as_str().into());
        self.services.with_named(|named| named.portals.insert(name.to_owned(), portal));
    }

    fn forget_portal(&self, name: Option<&str>) {
        self.services.with_named(|named| match name {
            Some(name) => drop(named.portals.remove(name)),
            None => named.portals.clear(),
        });
    }

    fn open_block(&mut self) -> Result<()> {
        self.guarded(|connection| connection.begin(TransactionModes::default()))
    }

    fn close_block(&mut self) -> Result<()> {
        self.guarded(|connection| match connection.status() {
            TransactionStatus::Idle => Ok(()),
            TransactionStatus::InBlock => connection.commit(false).map(drop),
            TransactionStatus::Failed => connection.roll_back(false).map(drop),
        })
    }

    fn fail_block(&mut self) {
        self.fail_open_block();
    }

    #[inline]
    fn report_idle(&self) {
        self.note_idle();
    }

    fn identify(&mut self, user: &str, database: &str) {
        let facts =
            SessionFacts { user: user.to_owned(), database: database.to_owned(), ..(*self.facts).clone() };
        self.facts = Arc::new(facts);
        self.services.with_settings(|settings| settings.set_user(user));
        self.apply_settings();
        self.report_identity();
    }

    fn set_addresses(&mut self, client: Option<(IpAddr, u16)>, server: Option<(IpAddr, u16)>) {
        self.activity.set_client(|shown| (shown.address, shown.server) = (client, server));
    }

    fn set_encryption(&mut self, encryption: Option<Encryption>) {
        self.activity.set_client(|client| client.encryption = encryption);
    }

    fn report_no_warnings(&mut self) {
        self.reports_warnings = false;
    }

    fn set_terminate_hook(&self, terminate: impl Fn() + Send + Sync + 'static) {
        self.activity.set_end(terminate);
    }

    fn set_client_gone_hook(&self, has_gone: impl Fn() -> bool + Send + Sync + 'static) {
        self.activity.set_client_has_gone(has_gone);
    }

    fn set_interrupt_hook(&self, is_interrupted: impl Fn() -> bool + Send + Sync + 'static) {
        self.options.cancel.watch(is_interrupted);
    }

    fn set_notification_hook(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.services.sessions().notifications().wake_by(self.activity.id(), wake);
    }

    fn is_listening(&self) -> bool {
        !self.services.channels().is_empty()
    }

    #[inline]
    fn settings_version(&mut self) -> u64 {
        self.end_statement_alone(true);
        self.settings_version
    }

    fn text_style(&self) -> &TextStyle {
        &self.options.style
    }

    fn session_settings(&self) -> SessionSettings {
        SessionSettings(self.services.with_settings(|settings| settings.clone()))
    }

    fn adopt_settings(&mut self, settings: &SessionSettings) {
        self.services.with_settings(|own| own.clone_from(&settings.0));
        self.apply_settings();
    }

    fn leave_timeouts_to_caller(&mut self) {
        self.ends_itself_when_idle = false;
    }

    #[inline]
    fn idle_timeout(&self) -> Option<Duration> {
        if self.in_block() { self.idle_in_transaction_timeout } else { self.idle_session_timeout }
    }

    fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.idle_in_transaction_timeout
    }

    fn expire(&mut self) -> Error {
        self.shared.engine.statistics().idle_timeouts.count();
        let (state, message) = match self.in_block() {
            true => (
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
            ),
            false => (SqlState::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"),
        };
        let error = Error::new(state, message);
        self.fail_block_of(&error);
        error
    }
}

impl ServerDatabase for Database {
    fn reserve_session(&self) -> u32 {
        self.shared.sessions.reserve()
    }

    fn connect_as(&self, session: u32) -> Connection {
        Connection::new(self.shared.clone(), session)
    }

    fn set_replication_facts(&self, facts: Arc<dyn ReplicationFacts>) {
        self.shared.sessions.set_replication(facts);
    }

    fn set_synchronous_standby_names(&self, names: &str) -> Result<()> {
        self.shared.sessions.set_standby_names(names)
    }

    fn synchronous_standby_names(&self) -> String {
        self.shared.sessions.standby_names()
    }

    fn active_sessions(&self) -> usize {
        self.shared.sessions.active()
    }

    fn set_query_router(&self, router: Arc<dyn QueryRouter>) {
        let _ = self.shared.router.set(router);
    }

    fn cancel_for_gone_clients(&self) {
        self.shared.sessions.cancel_for_clients_that_have_gone();
    }

    fn close_at_end(self) -> Result<()> {
        let closed = self.close_alone();
        std::mem::forget(self);
        closed
    }
}
