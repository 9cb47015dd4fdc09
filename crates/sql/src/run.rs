//! The context in which a statement is run: its cancellation, its resources, and the session for its functions.

use firn_base::disk::RealDisk;
use firn_base::random::Random;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Cancel, Error, Result, SqlState, TextStyle, clock};
use firn_executor::{Measures, SpillArea};
use std::any::Any;
use std::fmt::Debug;

/// How to run a statement.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Cancels it.
    pub cancel: Cancel,
    /// How many cores a query may use at once.
    pub threads: usize,
    /// When its transaction began: microseconds since 1970-01-01 UTC.
    pub now: i64,
    /// When the statement began on the server that has received it, if this is another one.
    pub given_time: Option<i64>,
    /// How the session reads and writes values as text, with its time zone.
    pub style: TextStyle,
    /// Where rows are written that do not fit in memory.
    pub spill: Arc<SpillArea>,
    /// The session, for functions.
    pub services: Arc<dyn SessionServices>,
    /// Where the measures of each operator are recorded, if any. The statement then runs as pipelines, even if few rows are
    /// expected.
    pub measures: Option<Arc<Measures>>,
    /// What tests ask of the executor.
    pub forced: Forced,
}

/// What makes rare paths of the executor common: for tests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Forced {
    /// How many rows a vector has.
    pub vector_rows: Option<usize>,
    /// How many threads work for a query, from its first row on.
    pub workers: Option<usize>,
    /// Whether what can be spilled is spilled though there is memory.
    pub spill: bool,
    /// Whether statements that touch few rows run by their pipelines, too.
    pub pipelines: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            cancel: Cancel::new(),
            threads: firn_base::thread::available_parallelism().map_or(1, usize::from),
            now: clock::wall_clock_micros(),
            given_time: None,
            style: TextStyle::DEFAULT,
            spill: SpillArea::new(Arc::new(RealDisk), std::env::temp_dir(), u64::MAX),
            services: Arc::new(NoSession),
            measures: None,
            forced: Forced::default(),
        }
    }
}

impl RunOptions {
    /// Whether a statement that touches few rows runs by its short program.
    pub fn allows_short(&self) -> bool {
        self.measures.is_none() && !self.forced.pipelines
    }
}

/// The session, for `nextval`, `currval`, `current_setting` and their relatives.
///
/// Code that needs more of the session than these methods may downcast it: it is [`Any`].
pub trait SessionServices: Any + Debug + Send + Sync {
    /// `pg_backend_pid`: the number of the session.
    fn session(&self) -> Result<u32>;

    /// `pg_current_xact_id`: the number of the transaction, which it gets if the caller `draws` one or it has written; `None` if it has
    /// none.
    fn transaction_number(&self, draws: bool) -> Result<Option<i64>>;

    /// `nextval`: the sequence by its possibly qualified, possibly quoted name.
    fn next_value(&self, sequence: &str) -> Result<i64>;

    /// `currval`.
    fn current_value(&self, sequence: &str) -> Result<i64>;

    /// `lastval`.
    fn last_value(&self) -> Result<i64>;

    /// `setval`.
    fn set_value(&self, sequence: &str, value: i64, is_called: bool) -> Result<()>;

    /// The last value of a sequence, for any session, and whether it has returned one yet; if not, the value is the
    /// first one that it will return.
    fn sequence_state(&self, sequence: &str) -> Result<(i64, bool)>;

    /// `current_setting`: `None` if there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;

    /// `set_config`.
    fn set_setting(&self, name: &str, value: &str, local: bool) -> Result<String>;

    /// The generator that `setseed` has seeded, if so.
    fn seeded_random(&self) -> Option<&Mutex<Option<Random>>> {
        None
    }

    /// `pg_cancel_backend`, or `pg_terminate_backend` if `ends`: whether there was a session with that
    /// number to interrupt.
    fn interrupt(&self, session: i32, ends: bool) -> Result<bool>;
}

/// No session: for tests and for expressions that do not use one.
#[derive(Debug)]
pub struct NoSession;

fn no_session() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no session runs this expression")
}

impl SessionServices for NoSession {
    fn session(&self) -> Result<u32> {
        Err(no_session())
    }

    fn transaction_number(&self, _draws: bool) -> Result<Option<i64>> {
        Err(no_session())
    }

    fn next_value(&self, _sequence: &str) -> Result<i64> {
        Err(no_session())
    }

    fn current_value(&self, _sequence: &str) -> Result<i64> {
        Err(no_session())
    }

    fn last_value(&self) -> Result<i64> {
        Err(no_session())
    }

    fn set_value(&self, _sequence: &str, _value: i64, _is_called: bool) -> Result<()> {
        Err(no_session())
    }

    fn sequence_state(&self, _sequence: &str) -> Result<(i64, bool)> {
        Err(no_session())
    }

    fn setting(&self, _name: &str) -> Option<String> {
        None
    }

    fn set_setting(&self, _name: &str, _value: &str, _local: bool) -> Result<String> {
        Err(no_session())
    }

    fn interrupt(&self, _session: i32, _ends: bool) -> Result<bool> {
        Err(no_session())
    }
}
