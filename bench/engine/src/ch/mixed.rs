//! CH-benCHmark's run: TPC-C's transactions and the 22 queries at the same time on one copy of the data.
//!
//! Transactions use the native interface, one client a thread. Queries run on one
//! connection in turn, each in a transaction of its own. After each query, the newest payment that its
//! snapshot sees is read: its age at the start of the query is the freshness of
//! the result.

use crate::driver::{self, Live};
use crate::histogram::Histogram;
use crate::queries;
use crate::tpcc::Scale;
use crate::tpcc::input::Terminal;
use crate::tpcc::native::{Tpcc, Worker};
use firn_base::clock::{now, sleep, wall_clock_micros};
use firn_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};
use firn_base::thread::pin_to_core;
use firn_base::{Error, Result, SqlState, Value};
use firn_session::{CancelHandle, Connection, Database};
use std::time::Duration;

/// How many queries there are.
pub const QUERIES: usize = 22;

/// How often `tick` is called.
const TICK: Duration = Duration::from_millis(100);

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The scale that was loaded.
    pub scale: Scale,
    /// Clients that run transactions.
    pub clients: usize,
    /// For how long.
    pub duration: Duration,
    /// The most transactions a second that they begin.
    pub rate: Option<u64>,
    /// Whether queries run as well.
    pub queries: bool,
    /// Keeps transactions on the first core and queries on the second.
    pub pinned: bool,
}

/// The progress of the query stream, for its display.
#[derive(Default)]
pub struct QueryLive {
    /// The number of the query that is running, from 1; 0 before the first.
    pub running: AtomicUsize,
    /// How often each query has run.
    pub runs: [AtomicU64; QUERIES],
    /// The time of each query's last run, in nanoseconds.
    pub last_nanos: [AtomicU64; QUERIES],
    /// The age of the newest commit that the last query saw, in microseconds.
    pub freshness_micros: AtomicU64,
    stop: AtomicBool,
    cancel: Mutex<Option<CancelHandle>>,
}

/// The results of the query stream.
#[derive(Clone)]
pub struct QueryReport {
    /// Latencies by query.
    pub latencies: Vec<Histogram>,
    /// The age of the newest commit that a query saw, at its start.
    pub freshness: Histogram,
    /// The first error of each query that failed.
    pub failures: Vec<(usize, Error)>,
}

impl QueryReport {
    /// How many queries were answered.
    pub fn count(&self) -> u64 {
        self.latencies.iter().map(Histogram::count).sum()
    }
}

/// The results of a run.
#[derive(Clone)]
pub struct Report {
    /// The transactions.
    pub transactions: driver::Report,
    /// The queries, if they ran.
    pub queries: Option<QueryReport>,
}

/// Runs transactions and queries; calls `tick` ten times a second with the time since the start.
pub fn run(
    database: &Database,
    options: Options,
    live: &Live,
    query_live: &QueryLive,
    tick: &mut dyn FnMut(Duration),
) -> Result<Report> {
    let tpcc = Tpcc::open(database.engine())?;
    std::thread::scope(|scope| {
        let tpcc = &tpcc;
        let transactions = scope.spawn(move || {
            let client =
                |number| Ok(Worker::new(tpcc, Terminal::new(options.scale, 1, number, options.clients)));
            let core = options.pinned.then_some(0);
            let Options { clients, duration, rate, .. } = options;
            let driver = driver::Options { clients, duration, core, rate };
            driver::run(&client, Some(tpcc.engine()), driver, live)
        });
        let queries = options.queries.then(|| {
            scope.spawn(move || {
                // The workers of the query engine start with its first query, on the cores of
                // the thread that runs it.
                if options.pinned {
                    pin_to_core(1);
                }
                run_queries(database.connect(), query_live)
            })
        });
        let start = now();
        while !transactions.is_finished() {
            tick(start.elapsed());
            sleep(TICK);
        }
        query_live.stop.store(true, Ordering::Relaxed);
        if let Some(cancel) = &*query_live.cancel.lock() {
            cancel.cancel();
        }
        let queries = queries.map(|queries| queries.join().expect("the query stream does not panic"));
        let transactions = transactions.join().expect("transactions do not panic")?;
        Ok(Report { transactions, queries: queries.transpose()? })
    })
}

/// Runs the queries in turn until stopped.
fn run_queries(mut connection: Connection, live: &QueryLive) -> Result<QueryReport> {
    *live.cancel.lock() = Some(connection.cancel_handle());
    let mut report = QueryReport {
        latencies: vec![Histogram::default(); QUERIES],
        freshness: Histogram::default(),
        failures: Vec::new(),
    };
    let newest_payment = connection.prepare("SELECT max(h_date) FROM history")?;
    let statements = queries::CH.iter().map(|sql| connection.prepare(sql));
    let statements: Vec<_> = statements.collect();
    for number in (0..QUERIES).cycle() {
        if live.stop.load(Ordering::Relaxed) || report.failures.len() == QUERIES {
            break;
        }
        if report.failures.iter().any(|(failed, _)| *failed == number + 1) {
            continue;
        }
        live.running.store(number + 1, Ordering::Relaxed);
        let asked = match &statements[number] {
            Ok(statement) => ask(&mut connection, statement, &newest_payment),
            Err(error) => Err(error.clone()),
        };
        match asked {
            Ok((latency, freshness)) => {
                report.latencies[number].record(latency);
                report.freshness.record(freshness);
                // ORDERING: statistics; nothing depends on them.
                live.last_nanos[number].store(latency.as_nanos() as u64, Ordering::Relaxed);
                live.freshness_micros.store(freshness.as_micros() as u64, Ordering::Relaxed);
                live.runs[number].fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                connection.execute("ROLLBACK")?;
                // The end of the run cancels the query that is running.
                if error.state() != SqlState::QUERY_CANCELED {
                    report.failures.push((number + 1, error));
                }
            }
        }
    }
    Ok(report)
}

/// Runs a query. Returns how long it took, and the age of the newest commit that it saw.
fn ask(
    connection: &mut Connection,
    query: &firn_session::Statement,
    newest_payment: &firn_session::Statement,
) -> Result<(Duration, Duration)> {
    connection.execute("BEGIN")?;
    let began_micros = wall_clock_micros();
    let began = now();
    connection.query_statement(query, &[])?;
    let latency = began.elapsed();
    let newest = connection.query_values(newest_payment, &[])?;
    connection.execute("COMMIT")?;
    let age = match newest[0][0] {
        // A payment that committed after the clock was read has the age zero.
        Value::Timestamp(newest) => (began_micros - newest).max(0),
        ref other => panic!("{other:?} is no timestamp"),
    };
    Ok((latency, Duration::from_micros(age as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ch;
    use crate::tpcc::{consistency, load};

    #[test]
    fn transactions_and_all_22_queries_run_side_by_side() {
        let database = Database::memory().unwrap();
        let scale = Scale::small(1);
        load::load(database.engine(), scale, 1, 1, &load::LoadProgress::default()).unwrap();
        ch::load(database.engine(), 1).unwrap();
        let (live, query_live) = (Live::default(), QueryLive::default());
        // Until every query has run once, however slow the machine is.
        let options = Options {
            scale,
            clients: 1,
            duration: Duration::from_secs(300),
            rate: None,
            queries: true,
            pinned: false,
        };
        let report = run(&database, options, &live, &query_live, &mut |_| {
            let last = query_live.runs[QUERIES - 1].load(Ordering::Relaxed);
            if last > 0 {
                live.stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        let queries = report.queries.unwrap();
        assert!(queries.failures.is_empty(), "{:?}", queries.failures);
        assert!(queries.latencies.iter().all(|latencies| latencies.count() > 0));
        assert_eq!(consistency::violations(database.engine(), scale).unwrap(), Vec::<String>::new());
    }
}
