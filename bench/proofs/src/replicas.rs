//! A primary and two replicas as processes, with clients beside them. They are killed, and their connections are cut and stalled by a
//! proxy; one replica is away until it has to begin anew. A ledger outside of the database says what was acknowledged. In the end
//! every node has it.

use crate::Outcome;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::Value;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_bench::sql_client::SqlClient;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `replicas`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// How many faults there are.
    #[arg(long, default_value_t = 8)]
    faults: u32,
    /// Clients.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// The time between faults, in milliseconds.
    #[arg(long, default_value_t = 700)]
    pause_ms: u64,
    /// The seed of the faults; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// How long a replica may take to have everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the nodes, breaks what there is, and compares.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let scratch = tempfile::Builder::new().prefix("firn-replicas").tempdir()?;
    let data = scratch.path().join("primary");
    let keep = [Path::new("--max-slot-wal-keep-size"), Path::new("4MB")];
    let mut primary = Server::start_with(&options.firn, &data, &keep)?;
    let mut client = WireClient::connect(&primary.address)?;
    client.run_text("CREATE TABLE ledger (id bigint PRIMARY KEY, text text)")?;
    client.run_text("CREATE TABLE loaded (id bigint, text text)")?;
    let address = Mutex::new(primary.address.clone());
    let proxies = [Proxy::start(&primary.address)?, Proxy::start(&primary.address)?];
    let start = |at: usize| -> std::io::Result<Server> {
        let follow = [Path::new("--follow"), Path::new(&proxies[at].address)];
        Server::start_with(&options.firn, &scratch.path().join(format!("replica-{at}")), &follow)
    };
    let mut replicas = [start(0)?, start(1)?];
    let (ledger, next, done) = (Mutex::new(HashSet::new()), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| -> Outcome {
        for _ in 0..options.clients {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    // It ends with the server; the next one may not be there yet.
                    let _ = work(&address, &ledger, &next, &done);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
        let outcome = (|| -> Outcome {
            for fault in 0..options.faults {
                std::thread::sleep(Duration::from_millis(options.pause_ms));
                let at = random.uniform(0, 1) as usize;
                // Each kind at least once.
                match if fault < 5 { i64::from(fault) } else { random.uniform(0, 4) } {
                    0 => {
                        println!("the primary is killed");
                        primary.kill();
                        proxies.iter().for_each(Proxy::cut);
                        primary = Server::start_with(&options.firn, &data, &keep)?;
                        (*address.lock()).clone_from(&primary.address);
                        proxies.iter().for_each(|proxy| proxy.forward_to(&primary.address));
                    }
                    1 => {
                        println!("replica {at} is killed");
                        replicas[at].kill();
                        replicas[at] = start(at)?;
                    }
                    2 => {
                        println!("the connection of replica {at} is cut");
                        proxies[at].cut();
                    }
                    3 => {
                        println!("the connection of replica {at} is stalled for a while");
                        proxies[at].stall(true);
                        std::thread::sleep(Duration::from_millis(options.pause_ms));
                        proxies[at].stall(false);
                    }
                    _ => {
                        println!("replica {at} is away until the log is gone");
                        replicas[at].kill();
                        let mut client = WireClient::connect(&primary.address)?;
                        for _ in 0..3 {
                            client.run_text(
                                "INSERT INTO loaded SELECT g, repeat('y', 500) FROM generate_series(1, 10000) AS g",
                            )?;
                            client.run_text("CHECKPOINT")?;
                        }
                        replicas[at] = start(at)?;
                    }
                }
                for (at, replica) in replicas.iter().enumerate() {
                    // One that begins anew does not listen for a moment.
                    if let Ok(mut client) = WireClient::connect(&replica.address)
                        && let Ok(rows) = client.run_text("SELECT count(*) FROM ledger")
                    {
                        println!("  replica {at} shows {} commits", shown(&rows[0][0]));
                    }
                }
            }
            Ok(())
        })();
        done.store(true, Ordering::SeqCst);
        outcome
    })?;
    let acknowledged = ledger.into_inner();
    let everything = contents(&primary.address)?;
    let ids: HashSet<i64> = everything.0.iter().copied().collect();
    let missing: Vec<&i64> = acknowledged.iter().filter(|id| !ids.contains(id)).collect();
    if !missing.is_empty() {
        return Err(format!("the primary has lost {missing:?}").into());
    }
    for (at, replica) in replicas.iter_mut().enumerate() {
        let begun = Instant::now();
        loop {
            let shown = contents(&replica.address);
            if shown.as_ref().is_ok_and(|shown| *shown == everything) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                let count = shown.map(|shown| shown.0.len());
                return Err(
                    format!("replica {at} does not get what the primary has: {count:?} commits").into()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let (commits, took) = (acknowledged.len(), begun.elapsed().as_secs_f64());
        println!("replica {at} has all {commits} acknowledged commits after {took:.2} s");
        replica.stop()?;
    }
    primary.stop()
}

fn shown(value: &Value) -> String {
    match value {
        Value::BigInt(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// The ids of the ledger, in order, and what the tables have.
fn contents(address: &str) -> firn_base::Result<(Vec<i64>, String)> {
    let mut client = WireClient::connect(address)?;
    let mut ids = Vec::new();
    for row in client.run_text("SELECT id FROM ledger ORDER BY id")? {
        if let Value::BigInt(id) = row[0] {
            ids.push(id);
        }
    }
    let sums = client.run_text(
        "SELECT (SELECT md5(string_agg(text, ',' ORDER BY id)) FROM ledger), (SELECT count(*) FROM loaded), \
         (SELECT sum(id) FROM loaded)",
    )?;
    Ok((ids, format!("{:?}", sums[0])))
}

/// Commits one transaction after another until the server has gone.
fn work(
    address: &Mutex<String>,
    ledger: &Mutex<HashSet<i64>>,
    next: &AtomicU64,
    done: &AtomicBool,
) -> firn_base::Result<()> {
    let address = address.lock().clone();
    let mut client = WireClient::connect(&address)?;
    let insert = client.prepare("INSERT INTO ledger VALUES ($1, repeat('x', $1::integer % 100))")?;
    let update = client.prepare("UPDATE ledger SET text = text || 'y' WHERE id = $1::bigint / 2")?;
    while !done.load(Ordering::SeqCst) {
        let id = next.fetch_add(1, Ordering::Relaxed) as i64;
        client.run(&insert, &[Value::BigInt(id)])?;
        ledger.lock().insert(id);
        // In conflict with another client's, it changes nothing.
        let _ = client.run(&update, &[Value::BigInt(id)]);
    }
    Ok(())
}
