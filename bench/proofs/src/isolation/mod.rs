//! Random histories of concurrent transactions, checked for cycles that no serial order explains: in
//! process, and over the wire with a server that is killed and started again under load. A commit whose
//! reply was lost may or may not have happened; all other transactions must be serializable, in an
//! order that agrees with their times: one that ended before another began precedes it.
//!
//! The history is cut into parts with keys of their own, so that the cost of checking a transaction
//! does not grow with the length of the trial.

mod history;
mod native;
mod sql;
#[cfg(test)]
mod tests;
mod trial;
mod upkeep;
mod workload;

use crate::Outcome;
use crate::server::Server;
use crate::wire_client::WireClient;
use adya::{Valid, Workload};
use firn_base::random::Random;
use firn_base::sync::Mutex;
use firn_base::{Error, Result, SqlState, clock, thread};
use firn_bench::short_duration;
use firn_bench::sql_client::SqlClient;
use firn_session::{Config, Database};
use history::{Counts, Recorder};
use native::{Lists, NativeTransactions};
use sql::SqlTransactions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::{Transactions, patiently};
use workload::Generator;

/// What a history must be at a level of SQL: if serializable, in an order that agrees with real time.
fn model(level: &str) -> &'static str {
    match level {
        "serializable" => "strict-serializable",
        "repeatable read" => "strong-snapshot-isolation",
        "read committed" => "read-committed",
        _ => panic!("no such level: {level}"),
    }
}

/// Arguments of `isolation`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary, to be run as a server; without it, the trial runs in process.
    #[arg(long, value_name = "FILE")]
    firn: Option<PathBuf>,
    /// In process, without SQL.
    #[arg(long, conflicts_with = "firn")]
    native: bool,
    /// In SQL: the level that transactions run at.
    #[arg(long, default_value = "serializable", value_parser = ["serializable", "repeatable read", "read committed"])]
    level: String,
    /// In process: makes all blocks compact, repeatedly.
    #[arg(long, conflicts_with = "firn")]
    compact: bool,
    /// In process, in SQL: changes tables and creates indexes beside the transactions.
    #[arg(long, conflicts_with_all = ["firn", "native"])]
    ddl: bool,
    /// Transactions to begin.
    #[arg(long, default_value_t = 100_000)]
    transactions: u64,
    /// How often to kill the server.
    #[arg(long, default_value_t = 20, requires = "firn")]
    kills: u64,
    /// Clients.
    #[arg(long, default_value_t = 6)]
    clients: i64,
    /// Transactions that are checked together.
    #[arg(long, default_value_t = 10_000)]
    part: u64,
    /// The seed of the random choices; printed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs and checks.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let directory = tempfile::Builder::new().prefix("firn-isolation").tempdir()?;
    let trial = Trial { options: &options, seed, evidence: directory.path().join("history.jsonl") };
    let data = directory.path().join("data");
    let checked = match &options.firn {
        Some(firn) => trial.over_the_wire(firn, &data),
        None => {
            let config = if options.compact { upkeep::compacting() } else { Config::default() };
            trial.in_process(&Database::open_with(Config { directory: Some(data), ..config })?)
        }
    };
    if checked.is_err() {
        println!("the database and the history are in {}", directory.keep().display());
    }
    checked
}

struct Trial<'a> {
    options: &'a Options,
    seed: u64,
    /// Where a history with anomalies is written.
    evidence: PathBuf,
}

impl Trial<'_> {
    fn in_process(&self, database: &Database) -> Outcome {
        let beside = |recorder: &Recorder, _| {
            thread::scope(|scope| {
                let of_tables = || upkeep::change_tables(database, recorder);
                let of_tables = self.options.ddl.then(|| thread::spawn_scoped(scope, "ddl", of_tables));
                if self.options.compact {
                    let times = upkeep::compact(database.engine(), recorder);
                    println!("all rows have become compact {times} times");
                }
                of_tables.map_or(Ok(()), |thread| thread.join().expect("it returns its errors"))
            })
        };
        if self.options.native {
            let lists = Lists::create(database)?;
            let connect = |workload| Ok(NativeTransactions::new(&lists, workload, Default::default()));
            return self.check_parts(connect, || lists.clear(), beside);
        }
        sql::create(&mut database.connect())?;
        let connect = |workload| SqlTransactions::new(database.connect(), workload, &self.options.level);
        self.check_parts(connect, || sql::clear(&mut database.connect()), beside)
    }

    fn over_the_wire(&self, firn: &Path, directory: &Path) -> Outcome {
        let mut server = Server::start(firn, directory)?;
        let address = Mutex::new(server.address.clone());
        let connect = || {
            let address = address.lock().clone();
            WireClient::connect(&address)
        };
        sql::create(&mut connect()?)?;
        let mut random = Random::seeded(!self.seed);
        let mut kill_times: Vec<u64> = (0..self.options.kills)
            .map(|_| random.uniform(1, self.options.transactions as i64) as u64)
            .collect();
        kill_times.sort_unstable();
        let mut kill_times = kill_times.into_iter().peekable();
        // Kills the server when the scheduled numbers of transactions have begun, sometimes after a checkpoint.
        let kill = |recorder: &Recorder, before: u64| -> Result<()> {
            let end = before + recorder.planned();
            while let Some(time) = kill_times.next_if(|time| *time <= end) {
                while before + recorder.begun() < time {
                    clock::sleep(Duration::from_millis(1));
                }
                if random.uniform(0, 2) == 0 {
                    connect()?.run_text("CHECKPOINT")?;
                }
                server.kill();
                let restarted = Server::start(firn, directory);
                server = restarted.map_err(|error| Error::new(SqlState::IO_ERROR, error.to_string()))?;
                *address.lock() = server.address.clone();
            }
            Ok(())
        };
        let transactions = |workload| SqlTransactions::new(connect()?, workload, &self.options.level);
        self.check_parts(transactions, || sql::clear(&mut patiently(connect)?), kill)?;
        server.stop()
    }

    /// Checks part after part, with lists and registers in turn; `beside` gets the number of transactions that had
    /// begun before the part.
    fn check_parts<T: Transactions>(
        &self,
        connect: impl Fn(Workload) -> Result<T> + Sync,
        clear: impl Fn() -> Result<()>,
        mut beside: impl FnMut(&Recorder, u64) -> Result<()>,
    ) -> Outcome {
        let Options { transactions, clients, part, .. } = *self.options;
        let model = model(&self.options.level);
        let mut generator = Generator::new(Workload::ListAppend, self.seed);
        let mut total = Counts::default();
        let (mut before, mut running, mut checking) = (0, Duration::ZERO, Duration::ZERO);
        for number in 0.. {
            let length = part.min(transactions - before);
            if length == 0 {
                break;
            }
            let workload = if number % 2 == 0 { Workload::ListAppend } else { Workload::RwRegister };
            generator.turn_over(workload);
            let recorder = Recorder::new(workload, generator, length);
            let start = Instant::now();
            trial::run(&recorder, clients, &|| connect(workload), || beside(&recorder, before))?;
            clear()?;
            running += start.elapsed();
            let (history, counts, next) = recorder.finish();
            let start = Instant::now();
            let report = history.check(model);
            checking += start.elapsed();
            generator = next;
            before += length;
            total += counts;
            println!("{before} transactions: {counts:?}; anomalies: {}", history::explain(&report));
            if report.valid != Valid::True {
                history.write(&self.evidence)?;
                return Err(format!("the history is not {model}").into());
            }
        }
        println!(
            "{total:?}: no anomalies; ran for {}, checked in {}",
            short_duration(running),
            short_duration(checking)
        );
        Ok(())
    }
}
