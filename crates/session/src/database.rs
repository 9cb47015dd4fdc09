//! A database handle: the engine, and what its connections share.

use crate::cache::PlanCache;
use crate::connection::Connection;
use crate::routing::QueryRouter;
use crate::statement::Statements;
use crate::timer::Timer;
use firn_base::disk::RealDisk;
use firn_base::sync::{Arc, AtomicU64, Mutex, OnceLock};
use firn_base::{Error, Result, SqlState};
use firn_sql::activity::Sessions;
use firn_sql::session_facts::SessionFacts;
use firn_sql::settings::{Settings, print_memory};
use firn_sql::{Forced, SpillArea};
use firn_txn::dependencies::CatalogLookup;
use firn_txn::{Config, Engine};
use std::path::Path;

/// An open database; cheap to clone, closed when the last handle and connection go.
///
/// ```
/// # fn main() -> firn_base::Result<()> {
/// let database = firn_session::Database::memory()?;
/// let mut connection = database.connect();
/// connection.execute("CREATE TABLE visits (page text PRIMARY KEY, count bigint NOT NULL)")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) shared: Arc<Shared>,
}

/// What the connections of a database share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub plans: PlanCache,
    pub statements: Statements,
    pub timer: Timer,
    /// The facts of sessions that have changed none, so that their plans are the same ones.
    pub facts: Arc<SessionFacts>,
    /// The settings that new connections begin with.
    pub defaults: Mutex<Settings>,
    /// What connections ask of the executor from now on.
    pub forced: Mutex<Forced>,
    /// The sessions of the database, and what each does.
    pub sessions: Arc<Sessions>,
    /// An epoch that the log has reached.
    pub known_epoch: AtomicU64,
    /// What hands queries to replicas, if anything does.
    pub router: OnceLock<Arc<dyn QueryRouter>>,
}

impl Shared {
    /// The temporary files of a session, with the limit of their size in bytes.
    pub fn spill_area(&self, limit: Option<u64>) -> Arc<SpillArea> {
        SpillArea::new(Arc::new(RealDisk), self.engine.temporary_directory(), limit.unwrap_or(u64::MAX))
    }

    /// DDL has been committed or rolled back: plans of what has changed are dropped.
    #[cold]
    pub fn note_end_of_ddl(&self) {
        // Plans that are kept meanwhile hold in this catalog or a newer one; the DDL of that examines them.
        let catalog = self.engine.catalog();
        let newest = CatalogLookup::of_many(&catalog);
        self.plans.discard_outdated(&newest);
        self.statements.discard_outdated(&newest);
    }
}

impl Database {
    /// Opens the database in `directory`, creating it if the directory is empty or missing.
    ///
    /// Errors: 55006 if another process has it open, XX001 if a file is damaged, 58P01 and 58030
    /// for errors of the file system.
    pub fn open(directory: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(Config { directory: Some(directory.as_ref().to_owned()), ..Config::default() })
    }

    /// A database in memory only.
    pub fn memory() -> Result<Database> {
        Database::open_with(Config::default())
    }

    /// Opens a database as configured.
    pub fn open_with(config: Config) -> Result<Database> {
        Ok(Database::with_engine(Engine::open(config)?))
    }

    /// A handle for an engine that is already open.
    pub fn with_engine(engine: Arc<Engine>) -> Database {
        let mut defaults = Settings::new();
        defaults.fix("memory_limit", print_memory(engine.memory().limit().unwrap_or(0)));
        let most_pinned = engine.config().log.most_pinned_bytes;
        defaults.fix("max_slot_wal_keep_size", most_pinned.map_or_else(|| "-1".to_owned(), print_memory));
        defaults.fix("in_hot_standby", if engine.is_replica() { "on" } else { "off" }.to_owned());
        defaults.fix("query_memory", print_memory(firn_sql::query_memory()));
        Database {
            shared: Arc::new(Shared {
                engine,
                plans: PlanCache::default(),
                statements: Statements::default(),
                timer: Timer::default(),
                facts: Arc::new(SessionFacts::default()),
                defaults: Mutex::new(defaults),
                forced: Mutex::default(),
                sessions: Arc::default(),
                known_epoch: AtomicU64::new(0),
                router: OnceLock::new(),
            }),
        }
    }

    /// A new connection. It keeps the database open.
    pub fn connect(&self) -> Connection {
        Connection::new(self.shared.clone(), self.shared.sessions.reserve())
    }

    /// Sets the default of a setting for connections from now on, such as
    /// `idle_in_transaction_session_timeout`. Errors as for SET.
    pub fn set_default(&self, name: &str, value: &str) -> Result<()> {
        self.shared.defaults.lock().set_default(name, value)
    }

    /// Sets what connections ask of the executor from now on: for tests.
    #[doc(hidden)]
    pub fn force(&self, forced: Forced) {
        *self.shared.forced.lock() = forced;
    }

    /// The engine, for programs that work below SQL.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Writes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.engine.checkpoint()
    }

    /// Flushes and closes. 55006 if there is another handle or a connection.
    pub fn close(self) -> Result<()> {
        self.close_alone()
    }

    pub(crate) fn close_alone(&self) -> Result<()> {
        if Arc::strong_count(&self.shared) > 1 {
            return Err(Error::new(
                SqlState::OBJECT_IN_USE,
                "the database is being accessed by other connections",
            )
            .with_hint("Drop every connection and every other handle first."));
        }
        self.shared.engine.close()
    }
}
