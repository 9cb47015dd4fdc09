//! `kill -9` of a server under TPC-C in SQL and beside clients that load files ([`loads`]), at random times. After each
//! kill the server starts again on the same directory and must still have everything that it acknowledged, and of each load
//! all rows or none. Then it is stopped, and the twelve consistency conditions are checked in its directory: no commit
//! is there in part, and no spill file is left. In every other round checkpoints are written without pause.

use crate::Outcome;
use crate::loads::{self, Attempts};
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::Value;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_bench::driver::Client;
use firn_bench::short_duration;
use firn_bench::sql_client::SqlClient;
use firn_bench::tpcc::input::Terminal;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::tpcc::sql::{Acknowledged, SqlWorker, missing};
use firn_bench::tpcc::{Scale, consistency, load};
use firn_session::Database;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `crash`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// How often to kill.
    #[arg(long, default_value_t = 50)]
    times: u32,
    /// Clients.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Clients that load files.
    #[arg(long, default_value_t = 2)]
    loaders: usize,
    /// Warehouses, with a thirtieth of the customers.
    #[arg(long, default_value_t = 2)]
    warehouses: i32,
    /// The longest that a server may live, in milliseconds.
    #[arg(long, default_value_t = 3000)]
    longest_ms: i64,
    /// The seed of the random times; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// Kills and checks.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let directory = tempfile::Builder::new().prefix("firn-crash").tempdir()?;
    let scale = Scale::small(options.warehouses);
    let database = Database::open(directory.path())?;
    load::load(database.engine(), scale, seed, 2, &LoadProgress::default())?;
    loads::create(&mut database.connect())?;
    database.close()?;
    let (files, next_load) = (tempfile::Builder::new().prefix("firn-crash").tempdir()?, AtomicU64::new(0));

    for round in 1..=options.times {
        let mut server = Server::start(&options.firn, directory.path())?;
        let payments_at_start = count_payments(&server.address)?;
        let life = Duration::from_millis(random.uniform(50, options.longest_ms) as u64);
        let loading = Loading { files: files.path(), next: &next_load, checkpoints: round % 2 == 0 };
        let (acknowledged, attempts) =
            run_until_killed(&mut server, &options, scale, random.next_u64(), life, loading)?;

        let start = Instant::now();
        let mut server = Server::start(&options.firn, directory.path())?;
        let restart = start.elapsed();
        let mut client = WireClient::connect(&server.address)?;
        let mut wrong = missing(&mut client, &acknowledged, payments_at_start)?;
        wrong.extend(attempts.violations(&mut client)?);
        drop(client);
        server.stop()?;

        let database = Database::open(directory.path())?;
        wrong.extend(consistency::violations(database.engine(), scale)?);
        database.close()?;
        wrong.extend(spills(directory.path())?);
        let (tried, loaded) = attempts.counts();
        let count = |of: fn(&Acknowledged) -> u64| acknowledged.iter().map(of).sum::<u64>();
        println!(
            "kill {round}: after {}, {} orders, {} payments, {} deliveries, {loaded} of {tried} loads acknowledged; restarted in {}; {}",
            short_duration(life),
            count(|client| client.orders.len() as u64),
            count(|client| client.payments),
            count(|client| client.deliveries.len() as u64),
            short_duration(restart),
            if wrong.is_empty() { "nothing lost" } else { "WRONG" }
        );
        if !wrong.is_empty() {
            // The directory is kept for analysis.
            let kept = directory.keep();
            return Err(format!("{}\nthe database is in {}", wrong.join("\n"), kept.display()).into());
        }
    }
    Ok(())
}

/// Spill files in a database that has been closed, as violations: its checkpoint contains everything.
fn spills(directory: &Path) -> std::io::Result<Vec<String>> {
    let names = std::fs::read_dir(directory.join("log"))?.map(|entry| Ok(entry?.file_name()));
    let names: Vec<_> = names.collect::<std::io::Result<_>>()?;
    let spills = names.iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == "spill"));
    Ok(spills.map(|name| format!("the spill file {} is left", name.display())).collect())
}

/// The state of loads, and whether checkpoints are written without pause.
#[derive(Clone, Copy)]
struct Loading<'l> {
    files: &'l Path,
    next: &'l AtomicU64,
    checkpoints: bool,
}

/// Runs clients, kills the server, and returns what it had acknowledged to each client.
fn run_until_killed(
    server: &mut Server,
    options: &Options,
    scale: Scale,
    seed: u64,
    life: Duration,
    loading: Loading<'_>,
) -> Result<(Vec<Acknowledged>, Attempts), Box<dyn std::error::Error + Send + Sync>> {
    let acknowledged = Mutex::new(Vec::new());
    let attempts = Mutex::new(Attempts::default());
    let unexpected = Mutex::new(None);
    let killed = AtomicBool::new(false);
    let address = server.address.clone();
    let failed = |error| {
        if !killed.load(Ordering::SeqCst) {
            unexpected.lock().get_or_insert(error);
        }
    };
    std::thread::scope(|scope| {
        for number in 0..options.clients {
            let (address, acknowledged, failed) = (&address, &acknowledged, &failed);
            scope.spawn(move || {
                let terminal = Terminal::new(scale, seed, number, options.clients);
                let worker = WireClient::connect(address).and_then(|client| SqlWorker::new(client, terminal));
                let mut worker = match worker {
                    Ok(worker) => worker,
                    Err(error) => return failed(error),
                };
                loop {
                    worker.next_input();
                    match worker.run() {
                        Ok(_) => {}
                        Err(error) if error.is_retryable() => {}
                        Err(error) => {
                            failed(error);
                            break;
                        }
                    }
                }
                acknowledged.lock().push(worker.acknowledged().clone());
            });
        }
        for number in 0..options.loaders {
            let (address, attempts, failed) = (&address, &attempts, &failed);
            scope.spawn(move || {
                let mut client = match WireClient::connect(address) {
                    Ok(client) => client,
                    Err(error) => return failed(error),
                };
                let next = || loading.next.fetch_add(1, Ordering::Relaxed) as i32;
                let (tried, error) = loads::run(&mut client, loading.files, seed ^ number as u64, next);
                attempts.lock().add(tried);
                failed(error);
            });
        }
        if loading.checkpoints {
            let (address, failed) = (&address, &failed);
            scope.spawn(move || {
                let checkpoints = || -> firn_base::Result<()> {
                    let mut client = WireClient::connect(address)?;
                    let checkpoint = client.prepare("CHECKPOINT")?;
                    loop {
                        client.run(&checkpoint, &[])?;
                    }
                };
                checkpoints().unwrap_or_else(failed);
            });
        }
        std::thread::sleep(life);
        killed.store(true, Ordering::SeqCst);
        server.kill();
    });
    match unexpected.into_inner() {
        Some(error) => Err(format!("a client failed before the kill: {error:?}").into()),
        None => Ok((acknowledged.into_inner(), attempts.into_inner())),
    }
}

fn count_payments(address: &str) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
    let rows = WireClient::connect(address)?.run_text("SELECT count(*) FROM history")?;
    match rows[0][0] {
        Value::BigInt(count) => Ok(count),
        ref other => panic!("count(*) is a bigint, not {other:?}"),
    }
}
