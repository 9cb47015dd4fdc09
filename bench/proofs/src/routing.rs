//! A primary that hands long queries to its replicas, as processes, with clients beside them. Replicas are killed, stopped, and cut off
//! by a proxy. Each client sees its own commits in its next query, never less than before, and no error but that a replica was lost amid
//! its rows.

use crate::Outcome;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use firn_base::{SqlState, Value};
use firn_bench::sql_client::SqlClient;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `routing`.
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
    #[arg(long, default_value_t = 600)]
    pause_ms: u64,
    /// The seed of the faults; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// How long a replica may take to offer itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients have done.
#[derive(Default)]
struct Counts {
    queries: AtomicU64,
    lost: AtomicU64,
}

/// Runs the nodes, breaks what there is, and looks at what the clients get.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let scratch = tempfile::Builder::new().prefix("firn-routing").tempdir()?;
    let arguments = ["--route-queries", "--set", "firn.route_min_rows=0"].map(Path::new);
    let mut primary = Server::start_with(&options.firn, &scratch.path().join("primary"), &arguments)?;
    let mut client = WireClient::connect(&primary.address)?;
    client.run_text("CREATE TABLE ledger (client bigint, number bigint)")?;
    client.run_text(
        "CREATE TABLE items AS SELECT g AS id, 'item ' || g AS name FROM generate_series(1, 200000) AS g",
    )?;
    let proxies = [Proxy::start(&primary.address)?, Proxy::start(&primary.address)?];
    let start = |at: usize| -> std::io::Result<Server> {
        let follow = [Path::new("--follow"), Path::new(&proxies[at].address)];
        Server::start_with(&options.firn, &scratch.path().join(format!("replica-{at}")), &follow)
    };
    let mut replicas = [start(0)?, start(1)?];
    wait_until_routed(&mut client)?;
    let (counts, done) = (Counts::default(), AtomicBool::new(false));
    std::thread::scope(|scope| -> Outcome {
        let workers: Vec<_> = (0..options.clients)
            .map(|number| {
                let (address, counts, done) = (&primary.address, &counts, &done);
                scope.spawn(move || {
                    let worked = work(address, number as i64, counts, done);
                    done.store(true, Ordering::SeqCst);
                    worked
                })
            })
            .collect();
        let outcome = (|| -> Outcome {
            for fault in 0..options.faults {
                std::thread::sleep(Duration::from_millis(options.pause_ms));
                if done.load(Ordering::SeqCst) {
                    break;
                }
                let at = random.uniform(0, 1) as usize;
                // Each kind at least once.
                match if fault < 4 { i64::from(fault) } else { random.uniform(0, 3) } {
                    0 => {
                        println!("replica {at} is killed");
                        replicas[at].kill();
                        replicas[at] = start(at)?;
                    }
                    1 => {
                        println!("the connections of replica {at} are cut");
                        proxies[at].cut();
                    }
                    2 => {
                        println!("replica {at} does nothing for a while");
                        replicas[at].pause(true);
                        std::thread::sleep(Duration::from_millis(options.pause_ms));
                        replicas[at].pause(false);
                    }
                    _ => {
                        println!("both replicas are away for a while");
                        replicas.iter_mut().for_each(Server::kill);
                        std::thread::sleep(Duration::from_millis(options.pause_ms));
                        replicas = [start(0)?, start(1)?];
                    }
                }
                println!("  {} queries so far", counts.queries.load(Ordering::Relaxed));
            }
            Ok(())
        })();
        done.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().expect("a client does not panic")?;
        }
        outcome
    })?;
    // A statement that is cancelled, or that takes too long, ends on the replica.
    wait_until_routed(&mut client)?;
    client.run_text("SET statement_timeout = '200ms'")?;
    let begun = Instant::now();
    let endless = "SELECT count(*) FROM items a, items b, items c WHERE a.name || b.name = c.name";
    let error = client.run_text(endless).expect_err("it does not end");
    if error.state() != SqlState::QUERY_CANCELED || begun.elapsed() > Duration::from_secs(10) {
        return Err(
            format!("after {:.1} s the query has ended with {error}", begun.elapsed().as_secs_f64()).into()
        );
    }
    client.run_text("SET statement_timeout = 0")?;
    let begun = Instant::now();
    for replica in &replicas {
        let mut there = WireClient::connect(&replica.address)?;
        let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%a.name || b.name%' \
                       AND pid <> pg_backend_pid()";
        while there.run_text(running)?[0][0] != Value::BigInt(0) {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("a replica goes on with a query that has ended".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let [routed, returned] = counters(&mut client)?;
    let (queries, lost) = (counts.queries.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed));
    println!("{queries} queries; {routed} by replicas, {returned} handed back, {lost} lost amid their rows");
    if routed < 20 {
        return Err("replicas have run hardly any queries".into());
    }
    replicas.iter_mut().try_for_each(Server::stop)?;
    primary.stop()
}

/// How many queries replicas have run, and how many were handed back.
fn counters(client: &mut WireClient) -> firn_base::Result<[i64; 2]> {
    let mut counter = |name: &str| -> firn_base::Result<i64> {
        let rows =
            client.run_text(&format!("SELECT value::bigint FROM firn_stat_engine WHERE name = '{name}'"))?;
        match rows[0][0] {
            Value::BigInt(count) => Ok(count),
            ref other => panic!("{other:?} is no count"),
        }
    };
    Ok([counter("routed_queries")?, counter("routed_queries_returned")?])
}

/// Waits until a replica runs a query.
fn wait_until_routed(client: &mut WireClient) -> Outcome {
    let (begun, [before, _]) = (Instant::now(), counters(client)?);
    loop {
        client.run_text("SELECT count(*), min(name) FROM items")?;
        if counters(client)?[0] > before {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("no replica runs a query".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Commits and asks in turn. A query sees the commit before it, and all that an earlier query has seen.
fn work(address: &str, number: i64, counts: &Counts, done: &AtomicBool) -> Outcome {
    let mut client = WireClient::connect(address)?;
    let insert = client.prepare("INSERT INTO ledger VALUES ($1, $2)")?;
    let count = "SELECT count(*) FILTER (WHERE client = $1), count(*) FROM ledger";
    let count = client.prepare(count)?;
    let many = format!("SELECT id, name FROM items ORDER BY name, id LIMIT {}", 50_000 + number);
    let (mut own, mut seen) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        own += 1;
        client.run(&insert, &[Value::BigInt(number), Value::BigInt(own)])?;
        let rows = client.run(&count, &[Value::BigInt(number)])?;
        counts.queries.fetch_add(1, Ordering::Relaxed);
        let [Value::BigInt(mine), Value::BigInt(all)] = rows[0][..] else { panic!("{rows:?} are no counts") };
        if mine != own || all < seen {
            return Err(
                format!("after {own} commits a query sees {mine}, and {all} after {seen} of all").into()
            );
        }
        seen = all;
        if own % 8 == 0 {
            counts.queries.fetch_add(1, Ordering::Relaxed);
            match client.run_text(&many) {
                Ok(rows) if rows.len() as i64 == 50_000 + number => {}
                Ok(rows) => return Err(format!("there are {} rows", rows.len()).into()),
                Err(error) if error.state() == SqlState::SERIALIZATION_FAILURE => {
                    counts.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
