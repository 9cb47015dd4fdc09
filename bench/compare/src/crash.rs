//! `kill -9` of a server under TPC-C in SQL, at random moments. After each kill the server starts
//! again on the same directory and must still have everything that it acknowledged; then it is
//! stopped, and the twelve consistency conditions are checked in its directory: no commit is half
//! there.

use crate::Outcome;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::Value;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, Mutex, Ordering};
use firn_bench::driver::Client;
use firn_bench::short_duration;
use firn_bench::sql_client::SqlClient;
use firn_bench::tpcc::input::Terminal;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::tpcc::sql::{Acknowledged, SqlWorker, missing};
use firn_bench::tpcc::{Scale, consistency, load};
use firn_session::Database;
use std::path::PathBuf;
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
    /// Warehouses, with a thirtieth of the customers.
    #[arg(long, default_value_t = 2)]
    warehouses: i32,
    /// The longest that a server may live, in milliseconds.
    #[arg(long, default_value_t = 3000)]
    longest_ms: i64,
    /// Where the random moments begin; printed, so that a failure can be repeated.
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
    database.close()?;

    for round in 1..=options.times {
        let mut server = Server::start(&options.firn, directory.path())?;
        let payments_at_start = count_payments(&server.address)?;
        let life = Duration::from_millis(random.uniform(50, options.longest_ms) as u64);
        let acknowledged = run_until_killed(&mut server, &options, scale, random.next_u64(), life)?;

        let start = Instant::now();
        let mut server = Server::start(&options.firn, directory.path())?;
        let restart = start.elapsed();
        let mut client = WireClient::connect(&server.address)?;
        let mut wrong = missing(&mut client, &acknowledged, payments_at_start)?;
        drop(client);
        server.stop()?;

        let database = Database::open(directory.path())?;
        wrong.extend(consistency::violations(database.engine(), scale)?);
        database.close()?;
        let count = |of: fn(&Acknowledged) -> u64| acknowledged.iter().map(of).sum::<u64>();
        println!(
            "kill {round}: after {}, {} orders, {} payments, {} deliveries acknowledged; restarted in {}; {}",
            short_duration(life),
            count(|client| client.orders.len() as u64),
            count(|client| client.payments),
            count(|client| client.deliveries.len() as u64),
            short_duration(restart),
            if wrong.is_empty() { "nothing lost" } else { "WRONG" }
        );
        if !wrong.is_empty() {
            // Keep the evidence.
            let kept = directory.keep();
            return Err(format!("{}\nthe database is in {}", wrong.join("\n"), kept.display()).into());
        }
    }
    Ok(())
}

/// Runs clients, kills the server, and returns what it had acknowledged to each client.
fn run_until_killed(
    server: &mut Server,
    options: &Options,
    scale: Scale,
    seed: u64,
    life: Duration,
) -> Result<Vec<Acknowledged>, Box<dyn std::error::Error + Send + Sync>> {
    let acknowledged = Mutex::new(Vec::new());
    let unexpected = Mutex::new(None);
    let killed = AtomicBool::new(false);
    let address = server.address.clone();
    std::thread::scope(|scope| {
        for number in 0..options.clients {
            let (address, acknowledged, unexpected, killed) = (&address, &acknowledged, &unexpected, &killed);
            scope.spawn(move || {
                let terminal = Terminal::new(scale, seed, number, options.clients);
                let worker = WireClient::connect(address).and_then(|client| SqlWorker::new(client, terminal));
                let mut worker = match worker {
                    Ok(worker) => worker,
                    Err(error) => {
                        if !killed.load(Ordering::SeqCst) {
                            unexpected.lock().get_or_insert(error);
                        }
                        return;
                    }
                };
                loop {
                    worker.next_input();
                    match worker.run() {
                        Ok(_) => {}
                        Err(error) if error.is_retryable() => {}
                        Err(error) => {
                            if !killed.load(Ordering::SeqCst) {
                                unexpected.lock().get_or_insert(error);
                            }
                            break;
                        }
                    }
                }
                acknowledged.lock().push(worker.acknowledged().clone());
            });
        }
        std::thread::sleep(life);
        killed.store(true, Ordering::SeqCst);
        server.kill();
    });
    match unexpected.into_inner() {
        Some(error) => Err(format!("a client failed before the kill: {error:?}").into()),
        None => Ok(acknowledged.into_inner()),
    }
}

fn count_payments(address: &str) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
    let rows = WireClient::connect(address)?.run_text("SELECT count(*) FROM history")?;
    match rows[0][0] {
        Value::BigInt(count) => Ok(count),
        ref other => panic!("count(*) is a bigint, not {other:?}"),
    }
}
