//! Three voters as processes. Again and again the primary is killed, stopped for a while, not reached by the others, or asked to hand over,
//! or another voter is killed. Another one takes over by itself. Clients go on meanwhile with whichever server is the primary. A ledger
//! outside of the database says what was acknowledged. In the end every server has all of it, and of each transaction everything or
//! nothing. Readers ask each server that says that it is the primary for what was acknowledged last before they asked.

use crate::Outcome;
use crate::failovers::{Node, SERVERS, Shared, compare, is_primary, promote, until};
use crate::wire_client::WireClient;
use firn_base::Value;
use firn_base::random::Random;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_bench::sql_client::SqlClient;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Arguments of `voters`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// How often something happens.
    #[arg(long, default_value_t = 5)]
    failovers: u32,
    /// Clients.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// The time between failovers, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    pause_ms: u64,
    /// The seed; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the servers, takes the primary away, and compares.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let scratch = tempfile::Builder::new().prefix("firn-voters").tempdir()?;
    let data = |at: usize| scratch.path().join(format!("node-{at}"));
    let mut nodes = vec![Node::start(&options.firn, data(0), None)?];
    let mut client = WireClient::connect(&nodes[0].proxy.address)?;
    client.run_text("CREATE TABLE ledger (id bigint, part integer, text text, PRIMARY KEY (id, part))")?;
    for at in 1..SERVERS {
        let upstream = nodes[0].proxy.address.clone();
        let node = Node::start(&options.firn, data(at), Some(&upstream))?;
        until("a replica becomes a voter", || {
            let status =
                Command::new(&options.firn).args(["cluster", "add-voter", &node.proxy.address]).status();
            status.is_ok_and(|status| status.success())
        })?;
        nodes.push(node);
    }
    let shared = Shared::of(&nodes);
    let readers = Readers::default();
    std::thread::scope(|scope| -> Outcome {
        for _ in 0..options.clients {
            scope.spawn(|| shared.run_client());
        }
        *readers.addresses.lock() = nodes.iter().map(|node| node.server.address.clone()).collect();
        for at in 0..SERVERS {
            let (readers, shared) = (&readers, &shared);
            scope.spawn(move || readers.read(shared, at));
        }
        let outcome = fail_over(&options, &shared, &readers, &mut nodes, &mut random);
        shared.is_done.store(true, Ordering::SeqCst);
        outcome
    })?;
    if let Some(stale) = readers.stale.lock().take() {
        return Err(stale.into());
    }
    println!("{} reads of primaries, none of the past", readers.reads.load(Ordering::SeqCst));
    compare(&shared, &mut nodes)
}

/// Those who read from servers that say that they are the primary.
#[derive(Default)]
struct Readers {
    /// Where the servers are reached, whether the others reach them or not.
    addresses: Mutex<Vec<String>>,
    reads: AtomicU64,
    /// What was read of the past.
    stale: Mutex<Option<String>>,
}

impl Readers {
    /// Reads from a server until everything is done.
    fn read(&self, shared: &Shared, at: usize) {
        while !shared.is_done.load(Ordering::SeqCst) {
            let address = self.addresses.lock()[at].clone();
            // It ends its sessions when it is none any more.
            let _ = self.read_while_primary(shared, &address);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn read_while_primary(&self, shared: &Shared, address: &str) -> firn_base::Result<()> {
        let mut client = WireClient::connect(address)?;
        while !shared.is_done.load(Ordering::SeqCst) {
            if client.run_text("SELECT pg_is_in_recovery()")?[0][0] != Value::Boolean(false) {
                return Ok(());
            }
            let Some(id) = *shared.last.lock() else { return Ok(()) };
            // By a key: such a query does not wait for the commits of others that have not been acknowledged.
            let rows = client.run_text(&format!("SELECT part FROM ledger WHERE id = {id}"))?;
            self.reads.fetch_add(1, Ordering::SeqCst);
            if rows.len() != 2 {
                let message =
                    format!("{address} shows {} rows of {id}, which was acknowledged before", rows.len());
                self.stale.lock().get_or_insert(message);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The primary, once there is one.
fn primary_of(shared: &Shared) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    let mut found = None;
    until("there is a primary", || {
        let avoided = *shared.avoided.lock();
        let mut others = (0..SERVERS).filter(|at| Some(*at) != avoided);
        found = others.find(|at| is_primary(&shared.addresses[*at]).unwrap_or(false));
        found.is_some()
    })?;
    Ok(found.expect("it was just found"))
}

fn fail_over(
    options: &Options,
    shared: &Shared,
    readers: &Readers,
    nodes: &mut [Node],
    random: &mut Random,
) -> Outcome {
    let mut times: [Vec<f64>; 5] = Default::default();
    for failover in 0..options.failovers {
        std::thread::sleep(Duration::from_millis(options.pause_ms));
        let primary = primary_of(shared)?;
        let other = (primary + 1 + random.uniform(0, SERVERS as i64 - 2) as usize) % SERVERS;
        // Each kind at least once.
        let kind = if failover < 5 { failover as usize } else { random.uniform(0, 4) as usize };
        let begun = Instant::now();
        *shared.acknowledgements.lock() = Some((begun, Duration::ZERO));
        let mut before = shared.acknowledged.lock().len();
        match kind {
            0 => {
                println!("server {primary} is killed");
                nodes[primary].kill();
                *shared.avoided.lock() = Some(primary);
            }
            1 => {
                println!("server {primary} is stopped");
                nodes[primary].server.pause(true);
                *shared.avoided.lock() = Some(primary);
                nodes[primary].proxy.cut();
            }
            2 => {
                println!("server {other} takes over from server {primary}");
                promote(&options.firn, &nodes[other], false)?;
                // Those before do not end the interruption.
                before = shared.acknowledged.lock().len();
            }
            3 => {
                println!("server {other} is killed, which is not the primary");
                nodes[other].kill();
            }
            _ => {
                println!("server {primary} is not reached by the others");
                *shared.avoided.lock() = Some(primary);
                nodes[primary].proxy.stall(true);
                nodes[primary].proxy.cut();
            }
        }
        until("clients go on", || shared.acknowledged.lock().len() > before + 10)?;
        let longest = shared.acknowledgements.lock().map_or(Duration::ZERO, |(_, longest)| longest);
        println!("  for {:.0} ms no commit was acknowledged", longest.as_secs_f64() * 1e3);
        times[kind].push(longest.as_secs_f64() * 1e3);
        match kind {
            0 => nodes[primary].restart(&options.firn, None)?,
            1 => {
                std::thread::sleep(Duration::from_millis(random.uniform(0, 500) as u64));
                nodes[primary].server.pause(false);
            }
            3 => nodes[other].restart(&options.firn, None)?,
            4 => {
                // Readers still ask it.
                std::thread::sleep(Duration::from_millis(300));
                nodes[primary].proxy.stall(false);
            }
            _ => {}
        }
        for (address, node) in readers.addresses.lock().iter_mut().zip(&*nodes) {
            address.clone_from(&node.server.address);
        }
        *shared.avoided.lock() = None;
        // All are there again before the next one goes.
        until("each server answers", || shared.addresses.iter().all(|address| is_primary(address).is_ok()))?;
    }
    let names = ["killed primary", "stopped primary", "handed over", "killed voter", "unreachable primary"];
    for (name, times) in names.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        if let Some(last) = times.len().checked_sub(1) {
            let at = |part: f64| times[(last as f64 * part).round() as usize];
            println!("{name}: {} times, p50 {:.0} ms, p95 {:.0} ms", last + 1, at(0.5), at(0.95));
        }
    }
    Ok(())
}
