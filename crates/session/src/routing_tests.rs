//! Queries that another session runs, as a replica would: which ones are handed out, that their rows are the same, and what becomes of
//! them when it fails.

use crate::server::{
    QueryRouter, RoutedAnswer, RoutedPiece, RoutedQuery, ServerConnection as _, ServerDatabase as _,
};
use crate::{Connection, Database, Error, SqlState};
use arrow_array::RecordBatch;
use firn_base::sync::{Arc, Mutex, Weak};
use firn_base::{Result, Time};
use firn_txn::Engine;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the other server does.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Conduct {
    /// It runs queries.
    Runs,
    /// There is none.
    Absent,
    /// It fails after so many pieces of its answer.
    FailsAfter(usize, SqlState),
    /// It says nothing.
    Hangs,
}

/// Runs queries in another session of the same database.
struct Loopback {
    database: Mutex<Option<Database>>,
    conduct: Mutex<Conduct>,
    /// The texts of the queries that were handed out.
    taken: Mutex<Vec<String>>,
    /// The answers that are being read.
    answers: Mutex<Vec<Weak<()>>>,
    /// What the other server says of the time of its snapshot, if that is not true.
    time: Mutex<Option<Time>>,
    _directory: TempDir,
}

struct Answer {
    time: Option<Time>,
    pieces: Vec<Result<Option<Vec<u8>>>>,
    conduct: Conduct,
    given: usize,
    _is_read: Arc<()>,
}

impl RoutedAnswer for Answer {
    fn next(&mut self, longest: Duration) -> Result<RoutedPiece> {
        match &self.conduct {
            Conduct::FailsAfter(pieces, state) if self.given == *pieces => {
                return Err(Error::new(*state, "it has failed"));
            }
            Conduct::Hangs => {
                std::thread::sleep(longest);
                return Ok(RoutedPiece::Nothing);
            }
            _ => {}
        }
        if let Some(time) = self.time.take() {
            return Ok(RoutedPiece::Begun(time));
        }
        self.given += 1;
        Ok(self.pieces.remove(0)?.map_or(RoutedPiece::End, RoutedPiece::Rows))
    }
}

impl QueryRouter for Loopback {
    fn is_ready(&self) -> bool {
        *self.conduct.lock() != Conduct::Absent
    }

    fn hand_out(&self, query: &RoutedQuery) -> Option<Box<dyn RoutedAnswer>> {
        let query = RoutedQuery::decode(&query.encode()).unwrap();
        let mut session = self.database.lock().as_ref().unwrap().connect();
        let (mut pieces, mut time) = (Vec::new(), None);
        match session.run_routed(&query) {
            Err(error) => pieces.push(Err(error)),
            Ok(mut rows) => loop {
                time = Some(self.time.lock().unwrap_or(rows.time()));
                let piece = rows.next_image();
                let is_last = !matches!(piece, Ok(Some(_)));
                pieces.push(piece);
                if is_last {
                    break;
                }
            },
        }
        let is_read = Arc::new(());
        self.answers.lock().push(Arc::downgrade(&is_read));
        self.taken.lock().push(query.text().to_owned());
        Some(Box::new(Answer {
            time,
            pieces,
            conduct: self.conduct.lock().clone(),
            given: 0,
            _is_read: is_read,
        }))
    }
}

impl Loopback {
    /// How many queries were handed out since the last call.
    fn taken(&self) -> usize {
        std::mem::take(&mut *self.taken.lock()).len()
    }
}

/// A database whose queries go to a loopback, and a session that hands out all that may be handed out.
fn routed(setup: &str) -> (Arc<Loopback>, Database, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let loopback = Arc::new(Loopback {
        database: Mutex::new(None),
        conduct: Mutex::new(Conduct::Runs),
        taken: Mutex::default(),
        answers: Mutex::default(),
        time: Mutex::default(),
        _directory: directory,
    });
    // Another handle of the same engine, which hands out nothing.
    *loopback.database.lock() = Some(Database::with_engine(Arc::<Engine>::clone(database.engine())));
    database.set_query_router(loopback.clone());
    let mut session = database.connect();
    session.execute("SET firn.route_min_rows = 0").unwrap();
    session.execute(setup).unwrap();
    (loopback, database, session)
}

const TABLES: &str = "CREATE TABLE items (id bigint PRIMARY KEY, name text, price numeric(10,2), tags text[], at timestamptz);
    INSERT INTO items SELECT i, CASE WHEN i % 7 > 0 THEN 'item ' || i END, i * 1.25, ARRAY['a' || i % 3, NULL],
        '2026-01-01 00:00:00+00'::timestamptz + i * interval '1 hour' FROM generate_series(1, 5000) AS i;
    CREATE TABLE parts (item bigint, part int);
    INSERT INTO parts SELECT i % 5000 + 1, i FROM generate_series(1, 20000) AS i;
    CREATE SEQUENCE numbers;
    CREATE VIEW cheap AS SELECT * FROM items WHERE price < 100";

#[test]
fn rows_are_those_that_the_session_would_compute_itself() {
    let (loopback, _database, mut session) = routed(TABLES);
    session
        .execute("SET TimeZone = 'America/New_York'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = -3")
        .unwrap();
    for query in [
        "SELECT count(*), sum(price), min(name), max(at) FROM items",
        "SELECT * FROM items ORDER BY id",
        "SELECT name, at::text, at - timestamptz '2026-01-01', price / 3, tags FROM items ORDER BY id",
        "SELECT i.name, count(*) FROM items i JOIN parts p ON p.item = i.id GROUP BY i.name ORDER BY 1, 2",
        "SELECT (id, name, price, price + 1.5), ARRAY[id, NULL]::int[], 1.5 + id, ARRAY[price * 2] FROM items ORDER BY id",
        "SELECT 'items'::regclass, 'int4'::regtype, count(*) FROM items",
        "SELECT sqrt(id::float8) FROM items ORDER BY 1 DESC LIMIT 50",
        "SELECT * FROM cheap ORDER BY id",
        "SELECT * FROM items WHERE price < 0",
        "WITH x AS MATERIALIZED (SELECT part % 10 AS k FROM parts) SELECT k, count(*) FROM x GROUP BY k ORDER BY k",
        "SELECT to_char(at, 'Day DD Mon YYYY HH24:MI TZ') FROM items ORDER BY id",
    ] {
        let both = |session: &mut Connection| {
            let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            (session.query_values(query, ()).unwrap(), rows(session.query(query).unwrap()))
        };
        session.execute("SET firn.route_queries = off").unwrap();
        let own = both(&mut session);
        assert_eq!(loopback.taken(), 0, "{query}");
        session.execute("SET firn.route_queries = on").unwrap();
        assert_eq!(both(&mut session), own, "{query}");
        assert_eq!(loopback.taken(), 2, "{query}");
    }
}

#[test]
fn parameters_the_time_and_the_user_go_with_a_query() {
    let (loopback, _database, mut session) = routed(TABLES);
    session.identify("ada", "library");
    let by_price = session
        .prepare("SELECT count(*) FROM items WHERE price < $1 AND tags <> $2 AND name IS DISTINCT FROM $3")
        .unwrap();
    let count = |session: &mut Connection| {
        session
            .query_row_as::<i64>(
                &by_price,
                (firn_base::Numeric::new(10_050, 2).unwrap(), vec!["x"], None::<&str>),
            )
            .unwrap()
    };
    let routed = count(&mut session);
    assert_eq!(loopback.taken(), 1);
    session.execute("SET firn.route_queries = off").unwrap();
    assert_eq!(count(&mut session), routed);
    session.execute("SET firn.route_queries = on").unwrap();
    // The transaction of both scans began once.
    let query = "SELECT DISTINCT now() = statement_timestamp(), now() > timestamptz '2026-01-01' FROM items";
    let rows = session.query_values(query, ()).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(loopback.taken(), 1);
}

#[test]
fn only_what_gives_the_same_rows_elsewhere_is_handed_out() {
    let (loopback, database, mut session) = routed(TABLES);
    for query in [
        "SELECT * FROM items WHERE id = 17",
        "SELECT count(*) FROM items WHERE random() < 2",
        "SELECT nextval('numbers'), count(*) FROM items",
        "SELECT count(*), current_user FROM items",
        "SELECT count(*), pg_backend_pid() FROM items",
        "SELECT count(*), current_setting('statement_timeout') FROM items",
        "SELECT count(*) FROM items, pg_stat_activity",
        "SELECT count(*) FROM items, numbers",
        "SELECT count(*) FROM pg_class",
        "SELECT count(*) FROM items TABLESAMPLE BERNOULLI (50)",
        "SELECT id FROM items FOR UPDATE",
        "WITH gone AS (DELETE FROM parts WHERE part = 1 RETURNING *) SELECT count(*) FROM items, gone",
        "SELECT pg_advisory_lock(1), count(*) FROM items",
        "EXPLAIN SELECT count(*) FROM items",
        "COPY (SELECT count(*) FROM items) TO '/dev/null'",
        "INSERT INTO parts SELECT id, 0 FROM items",
        "CREATE TABLE copies AS SELECT * FROM items",
    ] {
        session.execute(query).unwrap();
        assert_eq!(loopback.taken(), 0, "{query}");
    }
    let long = "SELECT count(*) FROM items JOIN parts ON item = id";
    session.execute("BEGIN").unwrap();
    session.execute(long).unwrap();
    session.execute("COMMIT").unwrap();
    assert_eq!(loopback.taken(), 0);
    session.execute("SET firn.route_min_rows = 1000000").unwrap();
    session.execute(long).unwrap();
    assert_eq!(loopback.taken(), 0, "it is short");
    session.execute("SET firn.route_min_rows = 20000").unwrap();
    session.execute(long).unwrap();
    assert_eq!(loopback.taken(), 1);
    // By default only long ones.
    let mut other = database.connect();
    other.execute(long).unwrap();
    assert_eq!(loopback.taken(), 0);
    // What means something else when its text is read again, and what is a part of another text.
    let escaped = session.prepare("SELECT count(*) FROM items, parts WHERE name <> 'a\\n'").unwrap();
    session.execute_statement(&escaped, ()).unwrap();
    assert_eq!(loopback.taken(), 1);
    session.execute("SET standard_conforming_strings = off").unwrap();
    session.execute_statement(&escaped, ()).unwrap();
    session.execute("SET standard_conforming_strings = on").unwrap();
    session.execute(&format!("PREPARE p AS {long}; EXECUTE p; EXPLAIN ANALYZE {long}")).unwrap();
    assert_eq!(loopback.taken(), 0);
    // What only this session has.
    let batches = other.query("SELECT 1 AS id").unwrap();
    session.register("mine", &batches[0].schema(), batches).unwrap();
    session.execute("SELECT count(*) FROM items, parts, mine").unwrap();
    assert_eq!(loopback.taken(), 0);
}

#[test]
fn before_the_first_rows_a_failure_means_running_it_here_and_afterwards_an_error() {
    let (loopback, database, mut session) = routed(TABLES);
    let query = "SELECT id FROM items ORDER BY name, id";
    let all = session.query_values(query, ()).unwrap().len();
    for state in [SqlState::CONNECTION_FAILURE, SqlState::ADMIN_SHUTDOWN, SqlState::DIVISION_BY_ZERO] {
        *loopback.conduct.lock() = Conduct::FailsAfter(0, state);
        assert_eq!(session.query_values(query, ()).unwrap().len(), all);
    }
    let statistics = database.engine().statistics();
    assert_eq!((statistics.routed.get(), statistics.routed_back.get()), (1, 3));
    for (state, expected) in [
        (SqlState::CONNECTION_FAILURE, SqlState::SERIALIZATION_FAILURE),
        (SqlState::QUERY_CANCELED, SqlState::SERIALIZATION_FAILURE),
        (SqlState::DIVISION_BY_ZERO, SqlState::DIVISION_BY_ZERO),
    ] {
        *loopback.conduct.lock() = Conduct::FailsAfter(1, state);
        assert_eq!(session.query_values(query, ()).unwrap_err().state(), expected);
        // The session goes on.
        *loopback.conduct.lock() = Conduct::Absent;
        assert_eq!(session.query_values(query, ()).unwrap().len(), all);
    }
    // An error of the query itself is that of this server, with its position.
    *loopback.conduct.lock() = Conduct::Runs;
    let error = session.query_values("SELECT sum(1 / (part - part)) FROM parts", ()).unwrap_err();
    assert_eq!(error.state(), SqlState::DIVISION_BY_ZERO);
}

#[test]
fn a_query_elsewhere_ends_with_its_statement() {
    let (loopback, _database, mut session) = routed(TABLES);
    let query = "SELECT id FROM items ORDER BY name, id";
    *loopback.conduct.lock() = Conduct::Hangs;
    session.execute("SET statement_timeout = '50ms'").unwrap();
    let begun = Instant::now();
    let error = session.query_values(query, ()).unwrap_err();
    assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    assert_eq!(error.message(), "canceling statement due to statement timeout");
    assert!(begun.elapsed() < Duration::from_secs(10));
    session.execute("SET statement_timeout = 0").unwrap();
    let cancel = session.cancel_handle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Until the statement has begun, a cancel has no effect.
            let ended = Instant::now() + Duration::from_secs(20);
            while session_is_waiting(&loopback) && Instant::now() < ended {
                cancel.cancel();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        loopback.answers.lock().clear();
        assert_eq!(session.query_values(query, ()).unwrap_err().state(), SqlState::QUERY_CANCELED);
    });
    // Rows that nobody reads any more end it.
    *loopback.conduct.lock() = Conduct::Runs;
    let mut rows = session.stream(query, ()).unwrap();
    assert!(rows.next_chunk().unwrap().is_some());
    let answer = loopback.answers.lock().last().unwrap().clone();
    drop(rows);
    assert!(answer.upgrade().is_none());
}

#[test]
fn rows_wait_until_the_primary_shows_what_they_show() {
    let (loopback, database, mut session) = routed(TABLES);
    let query = "SELECT count(*) FROM items";
    let shown = database.engine().now();
    *loopback.time.lock() = Some(Time(shown.0 + 1));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || session.query_row_as::<i64>(query, ()).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!reader.is_finished());
        database.connect().execute("INSERT INTO parts VALUES (1, 0)").unwrap();
        assert_eq!(reader.join().unwrap(), Some(5000));
    });
}

#[test]
fn large_rows_are_sent_in_several_pieces() {
    let (loopback, _database, mut session) = routed(
        "CREATE TABLE pages AS SELECT i AS id, repeat(md5(i::text), 4000) AS text FROM generate_series(1, 100) AS i",
    );
    let query = "SELECT * FROM pages ORDER BY id";
    session.execute("SET firn.route_queries = off").unwrap();
    let own = session.query_values(query, ()).unwrap();
    session.execute("SET firn.route_queries = on").unwrap();
    let mut rows = session.stream(query, ()).unwrap();
    let (mut routed, mut pieces) = (Vec::new(), 0);
    while let Some(chunk) = rows.next_chunk().unwrap() {
        pieces += 1;
        routed.extend(chunk.into_values(rows.columns()));
    }
    assert_eq!((routed, loopback.taken()), (own, 1));
    assert!(pieces >= 5, "{pieces} pieces");
}

/// Whether no answer has been given up yet.
fn session_is_waiting(loopback: &Loopback) -> bool {
    let answers = loopback.answers.lock();
    answers.is_empty() || answers.iter().any(|answer| answer.strong_count() > 0)
}
