//! TPC-C beside a load: the throughput that transactions lose while a file is copied into a table of the same database, and how
//! long the commit of that load delays them.
//!
//! The file determines the table: its columns are inferred from the file, its primary key is the columns that the
//! caller names. The load is online: one COPY into a table that is visible to others, in a transaction block, so that its COMMIT
//! can be measured apart from the rest. It is repeated, each time into a table of its own, for the duration of the run. The run
//! lasts at least until the first load has committed.
//!
//! A delayed transaction is seen by the duration of its call: calls are timed from outside, and those that overlap
//! a COMMIT of the load are also counted apart.

use crate::driver::{self, Client, Done, Live};
use crate::histogram::Histogram;
use firn_base::clock::{now, sleep};
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Error, Result, SqlState};
use firn_session::{CancelHandle, Connection, Database, Outcome};
use firn_txn::Engine;
use std::time::Duration;

/// How often the end of the transactions is checked.
const TICK: Duration = Duration::from_millis(20);

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A file to load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its path, as the database finds it: CSV with a header.
    pub file: String,
    /// The columns of the table's primary key; the first column of the file if there are none.
    pub key: Vec<String>,
}

/// The results of the loads.
#[derive(Clone, Default)]
pub struct LoadReport {
    /// How many were committed.
    pub loads: u64,
    /// Rows of one.
    pub rows: u64,
    /// How long the copying took, by load.
    pub copies: Histogram,
    /// How long the commits took.
    pub commits: Histogram,
    /// The sum of the rows of the last table as text, each as a number: shows that two runs have loaded the same.
    pub checksum: u64,
}

/// The durations of calls of transactions, of all and of those that overlap a commit of a load.
#[derive(Clone, Default)]
pub struct Calls {
    /// All.
    pub all: Histogram,
    /// Those that overlap a commit of a load.
    pub beside_commits: Histogram,
}

/// The results of a run.
#[derive(Clone)]
pub struct Report {
    /// The transactions.
    pub transactions: driver::Report,
    /// Their calls.
    pub calls: Calls,
    /// The loads, if there were any.
    pub load: Option<LoadReport>,
}

/// The shared state of the loader and the clients.
#[derive(Default)]
struct Shared {
    /// Odd while a load commits: every change is the beginning or the end of a commit.
    commits: AtomicU64,
    /// Stops the loader.
    stop: AtomicBool,
    /// Cancels the running load.
    cancel: Mutex<Option<CancelHandle>>,
    /// The durations of calls, of clients that are done.
    calls: Mutex<Calls>,
}

/// A client whose calls are timed.
struct Watched<'s, C> {
    client: C,
    shared: &'s Shared,
    calls: Calls,
}

impl<C: Client> Client for Watched<'_, C> {
    const KINDS: &'static [&'static str] = C::KINDS;

    fn next_input(&mut self) -> usize {
        self.client.next_input()
    }

    fn may_wait(&self) -> bool {
        self.client.may_wait()
    }

    fn run(&mut self) -> Result<Done> {
        // Acquire: pairs with the loader's stores, so that the call lies between the two reads.
        let (commits, began) = (self.shared.commits.load(Ordering::Acquire), now());
        let done = self.client.run();
        let took = began.elapsed();
        self.calls.all.record(took);
        if commits % 2 == 1 || self.shared.commits.load(Ordering::Acquire) != commits {
            self.calls.beside_commits.record(took);
        }
        done
    }
}

impl<C> Drop for Watched<'_, C> {
    fn drop(&mut self) {
        let mut total = self.shared.calls.lock();
        total.all.merge(&self.calls.all);
        total.beside_commits.merge(&self.calls.beside_commits);
    }
}

/// Runs the clients, and the load beside them if there is one; calls `tick` with the time since the start.
pub fn run<C: Client>(
    database: &Database,
    client: &(dyn Fn(usize) -> Result<C> + Sync),
    engine: Option<&Arc<Engine>>,
    options: driver::Options,
    load: Option<&Load>,
    tick: &mut dyn FnMut(Duration),
) -> Result<Report> {
    let (live, shared) = (Live::default(), Shared::default());
    let (transactions, loaded) = std::thread::scope(|scope| {
        let (live, shared) = (&live, &shared);
        let loader = load.map(|load| {
            scope.spawn(move || {
                let loaded = Loader::new(database, load, shared).and_then(Loader::run);
                if loaded.is_err() {
                    live.stop.store(true, Ordering::Relaxed);
                }
                loaded
            })
        });
        // Beside a load the loop below ends the transactions.
        let duration = if load.is_some() { FOREVER } else { options.duration };
        let runner = scope.spawn(move || {
            let watched = |number| Ok(Watched { client: client(number)?, shared, calls: Calls::default() });
            driver::run(&watched, engine, driver::Options { duration, ..options }, live)
        });
        let start = now();
        while !runner.is_finished() {
            tick(start.elapsed());
            sleep(TICK);
            let is_in = shared.commits.load(Ordering::Acquire) >= 2;
            if load.is_some() && is_in && start.elapsed() >= options.duration {
                live.stop.store(true, Ordering::Relaxed);
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
        // Between two statements there is nothing to cancel.
        while loader.as_ref().is_some_and(|loader| !loader.is_finished()) {
            {
                // Under the lock: the loader takes the handle away while it must not be cancelled.
                let cancel = shared.cancel.lock();
                let Some(cancel) = &*cancel else { break };
                cancel.cancel();
            }
            sleep(TICK);
        }
        let transactions = runner.join().expect("clients do not panic");
        (transactions, loader.map(|loader| loader.join().expect("loading does not panic")))
    });
    // An error of the loader has ended the transactions early.
    Ok(Report { load: loaded.transpose()?, transactions: transactions?, calls: shared.calls.into_inner() })
}

/// The thread that loads.
struct Loader<'l> {
    connection: Connection,
    load: &'l Load,
    /// The columns of the key, as a list in SQL.
    key: String,
    shared: &'l Shared,
}

impl<'l> Loader<'l> {
    fn new(database: &Database, load: &'l Load, shared: &'l Shared) -> Result<Loader<'l>> {
        let mut connection = database.connect();
        let key = match &load.key[..] {
            [] => {
                let file = connection.prepare(&format!("SELECT * FROM {}", literal(&load.file)))?;
                let first = file.columns().and_then(|columns| columns.first()).expect("a file has a column");
                identifier(&first.name)
            }
            names => names.iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", "),
        };
        *shared.cancel.lock() = Some(connection.cancel_handle());
        Ok(Loader { connection, load, key, shared })
    }

    fn run(mut self) -> Result<LoadReport> {
        let mut report = LoadReport::default();
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.load_once(&mut report) {
                Ok(()) => {}
                // The transactions have ended.
                Err(error) if error.state() == SqlState::QUERY_CANCELED => {
                    self.connection.execute("ROLLBACK")?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // The rest must not be cancelled.
        *self.shared.cancel.lock() = None;
        report.checksum = self.check(report.rows)?;
        Ok(report)
    }

    /// Replaces the table by one with the file's rows.
    fn load_once(&mut self, report: &mut LoadReport) -> Result<()> {
        let file = literal(&self.load.file);
        let connection = &mut self.connection;
        // The table is visible to others, so that the load is online.
        connection.execute("DROP TABLE IF EXISTS loading")?;
        connection.execute(&format!("CREATE TABLE loading AS SELECT * FROM {file} WITH NO DATA"))?;
        connection.execute(&format!("ALTER TABLE loading ADD PRIMARY KEY ({})", self.key))?;
        connection.execute("BEGIN")?;
        let began = now();
        let rows = connection.execute(&format!("COPY loading FROM {file} (FORMAT csv, HEADER)"))?;
        report.copies.record(began.elapsed());
        let began = now();
        self.shared.commits.fetch_add(1, Ordering::AcqRel);
        let committed = connection.execute("COMMIT");
        self.shared.commits.fetch_add(1, Ordering::AcqRel);
        committed?;
        report.commits.record(began.elapsed());
        // Not cancelled in between.
        let cancel = self.shared.cancel.lock().take();
        connection.execute("DROP TABLE IF EXISTS loaded")?;
        connection.execute("ALTER TABLE loading RENAME TO loaded")?;
        *self.shared.cancel.lock() = cancel;
        report.rows = rows;
        report.loads += 1;
        Ok(())
    }

    /// Checks that the table holds the rows of the file, each under its key; returns their sum.
    fn check(&mut self, rows: u64) -> Result<u64> {
        let (file, key) = (literal(&self.load.file), &self.key);
        let there = add_up(&mut self.connection, "SELECT * FROM loaded")?;
        let given = add_up(&mut self.connection, &format!("SELECT * FROM {file}"))?;
        let keys = format!("SELECT DISTINCT {key} FROM loaded");
        let keys = add_up(&mut self.connection, &keys)?.0;
        if there != given || there.0 != rows || keys != rows {
            let message = format!("loaded {rows} rows; {there:?} are there of {given:?}, with {keys} keys");
            return Err(Error::new(SqlState::DATA_CORRUPTED, message));
        }
        Ok(there.1)
    }
}

/// The number of rows of a query, and the sum of all of them as numbers of their text: independent of their order.
fn add_up(connection: &mut Connection, query: &str) -> Result<(u64, u64)> {
    let copy = connection.prepare(&format!("COPY ({query}) TO STDOUT"))?;
    let Outcome::CopyOut(mut copy) = connection.run(&copy, &[])? else { panic!("a COPY to the client") };
    let mut sum = 0_u64;
    while let Some(piece) = copy.next_chunk()? {
        for row in copy.rows(&piece) {
            // FNV-1a.
            let number = row.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            sum = sum.wrapping_add(number);
        }
    }
    Ok((copy.tag().rows.unwrap_or(0), sum))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::input::Terminal;
    use crate::tpcc::native::{Tpcc, Worker};
    use crate::tpcc::{Scale, consistency, load};
    use std::fmt::Write;

    #[test]
    fn transactions_run_beside_a_load_and_both_are_right_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rows.csv");
        let mut csv = "id,part,price,what\n".to_owned();
        for row in 0..20_000 {
            writeln!(csv, "{},{},{row}.5,\"number, {row}\"", row / 4, row % 4).unwrap();
        }
        std::fs::write(&file, csv).unwrap();
        let database = Database::open(directory.path().join("data")).unwrap();
        let scale = Scale::small(1);
        load::load(database.engine(), scale, 1, 1, &load::LoadProgress::default()).unwrap();
        let tables = Tpcc::open(database.engine()).unwrap();
        let client = |number| Ok(Worker::new(&tables, Terminal::new(scale, 1, number, 2)));
        // Until a load has committed.
        let options = driver::Options { clients: 2, duration: Duration::ZERO, core: None, rate: None };
        let key = vec!["id".to_owned(), "part".to_owned()];
        let right = Load { file: file.display().to_string(), key };
        let mut checksums = Vec::new();
        for _ in 0..2 {
            let engine = Some(database.engine());
            let report = run(&database, &client, engine, options, Some(&right), &mut |_| {}).unwrap();
            let loaded = report.load.unwrap();
            assert!(loaded.loads > 0 && loaded.commits.count() == loaded.loads);
            assert_eq!(loaded.rows, 20_000);
            assert!(report.calls.all.count() > 0 && report.transactions.per_second() > 0.0);
            assert_eq!(consistency::violations(database.engine(), scale).unwrap(), Vec::<String>::new());
            checksums.push(loaded.checksum);
        }
        assert_eq!(checksums[0], checksums[1]);
        // The first column of the file is not unique, and the transactions stop when that is found.
        let wrong = Load { key: Vec::new(), ..right };
        let error = run(&database, &client, None, options, Some(&wrong), &mut |_| {}).err().unwrap();
        assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    }
}
