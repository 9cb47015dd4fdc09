//! Three servers as processes, one of which is the primary. Again and again another one takes over: the primary hands over, undisturbed or
//! while one of the two is killed or their connection is cut; or the primary is killed, and a replica is promoted by force, which may have
//! been a synchronous standby. Clients go on meanwhile with whichever server is the primary. A ledger outside of the database says what was acknowledged. In the end every server has
//! all of it, and of each transaction everything or nothing.

use crate::Outcome;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::Value;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_bench::sql_client::SqlClient;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Arguments of `failovers`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// How often another server takes over.
    #[arg(long, default_value_t = 5)]
    failovers: u32,
    /// Clients.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// The time between failovers, in milliseconds.
    #[arg(long, default_value_t = 700)]
    pause_ms: u64,
    /// The seed; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

pub const SERVERS: usize = 3;

/// How long a server may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and the proxy by which all others and its clients reach it.
pub struct Node {
    pub server: Server,
    pub proxy: Proxy,
    data: PathBuf,
}

impl Node {
    pub fn start(firn: &Path, data: PathBuf, follow: Option<&str>) -> std::io::Result<Node> {
        // The server advertises the address of the proxy, which forwards to the server.
        let proxy = Proxy::start("127.0.0.1:1")?;
        let server = serve(firn, &data, &proxy.address, follow, false)?;
        proxy.forward_to(&server.address);
        Ok(Node { server, proxy, data })
    }

    pub fn kill(&mut self) {
        self.server.kill();
        self.proxy.cut();
    }

    /// Starts the server again; it follows another one if that is said.
    pub fn restart(&mut self, firn: &Path, rejoin: Option<&str>) -> std::io::Result<()> {
        self.server = serve(firn, &self.data, &self.proxy.address, rejoin, rejoin.is_some())?;
        self.proxy.forward_to(&self.server.address);
        Ok(())
    }
}

fn serve(
    firn: &Path,
    data: &Path,
    advertised: &str,
    follow: Option<&str>,
    rejoin: bool,
) -> std::io::Result<Server> {
    let name = data.file_name().expect("it is a folder");
    let mut arguments =
        vec![Path::new("--advertise"), Path::new(advertised), Path::new("--name"), Path::new(name)];
    follow.iter().for_each(|server| arguments.extend([Path::new("--follow"), Path::new(*server)]));
    arguments.extend(rejoin.then_some(Path::new("--rejoin")));
    Server::start_with(firn, data, &arguments)
}

/// What clients and the main thread share.
#[derive(Default)]
pub struct Shared {
    pub addresses: Vec<String>,
    /// The server that does not answer.
    pub avoided: Mutex<Option<usize>>,
    pub acknowledged: Mutex<HashSet<i64>>,
    /// The id that was acknowledged last.
    pub last: Mutex<Option<i64>>,
    next: AtomicU64,
    is_paused: AtomicBool,
    pub is_done: AtomicBool,
    /// When a commit was acknowledged last, and the longest time without one since this was reset.
    pub acknowledgements: Mutex<Option<(Instant, Duration)>>,
}

impl Shared {
    /// For servers at these addresses.
    pub fn of(nodes: &[Node]) -> Shared {
        let addresses = nodes.iter().map(|node| node.proxy.address.clone()).collect();
        Shared { addresses, ..Shared::default() }
    }

    /// Commits as long as there is a primary, until everything is done.
    pub fn run_client(&self) {
        while !self.is_done.load(Ordering::SeqCst) {
            for (at, address) in self.addresses.iter().enumerate() {
                if *self.avoided.lock() != Some(at) {
                    // It is no primary, or not there.
                    let _ = work(self, address);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs the servers, changes the primary, and compares.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let scratch = tempfile::Builder::new().prefix("firn-failovers").tempdir()?;
    let data = |at: usize| scratch.path().join(format!("node-{at}"));
    let mut nodes = vec![Node::start(&options.firn, data(0), None)?];
    let mut client = WireClient::connect(&nodes[0].proxy.address)?;
    client.run_text("CREATE TABLE ledger (id bigint, part integer, text text, PRIMARY KEY (id, part))")?;
    for at in 1..SERVERS {
        let upstream = nodes[0].proxy.address.clone();
        nodes.push(Node::start(&options.firn, data(at), Some(&upstream))?);
    }
    let shared = Shared::of(&nodes);
    std::thread::scope(|scope| -> Outcome {
        for _ in 0..options.clients {
            scope.spawn(|| shared.run_client());
        }
        let outcome = fail_over(&options, &shared, &mut nodes, &mut random);
        shared.is_done.store(true, Ordering::SeqCst);
        outcome
    })?;
    compare(&shared, &mut nodes)
}

/// Lets one server after another take over.
fn fail_over(options: &Options, shared: &Shared, nodes: &mut [Node], random: &mut Random) -> Outcome {
    let mut primary = 0;
    for failover in 0..options.failovers {
        std::thread::sleep(Duration::from_millis(options.pause_ms));
        let next = (primary + 1 + random.uniform(0, SERVERS as i64 - 2) as usize) % SERVERS;
        *shared.acknowledgements.lock() = None;
        // Each kind at least once.
        match if failover < 5 { i64::from(failover) } else { random.uniform(0, 4) } {
            0 => {
                println!("server {primary} hands over to server {next}");
                follow_directly(options, nodes, next, primary)?;
                promote(&options.firn, &nodes[next], false)?;
            }
            1 | 2 => {
                follow_directly(options, nodes, next, primary)?;
                let mut command = promotion(&options.firn, &nodes[next], false).spawn()?;
                std::thread::sleep(Duration::from_micros(random.uniform(0, 60_000) as u64));
                match random.uniform(0, 2) {
                    0 => {
                        println!("server {primary} is killed while it hands over to server {next}");
                        nodes[primary].kill();
                        nodes[primary].restart(&options.firn, None)?;
                    }
                    1 => {
                        println!("server {next} is killed while server {primary} hands over to it");
                        nodes[next].kill();
                        nodes[next].restart(&options.firn, None)?;
                    }
                    _ => {
                        println!("the connection is cut while server {primary} hands over to server {next}");
                        nodes[primary].proxy.cut();
                    }
                }
                command.wait()?;
                promote(&options.firn, &nodes[next], false)?;
            }
            kind => {
                let is_synchronous = kind == 4;
                let waits = !is_synchronous && random.uniform(0, 1) == 0;
                println!(
                    "server {primary} is killed, and server {next}{} is promoted by force{}",
                    if is_synchronous { ", which has been a synchronous standby," } else { "" },
                    if waits { ", after it has received everything" } else { "" }
                );
                if is_synchronous {
                    follow_directly(options, nodes, next, primary)?;
                    let mut client = WireClient::connect(&nodes[primary].proxy.address)?;
                    client.run_text(&format!(
                        "SELECT firn_set_synchronous_standby_names('FIRST 1 (\"node-{next}\")')"
                    ))?;
                    // The first commit that waits for the standby waits for all before it.
                    let before = shared.acknowledged.lock().len();
                    until("commits reach the standby", || shared.acknowledged.lock().len() > before + 10)?;
                    std::thread::sleep(Duration::from_micros(random.uniform(0, 300_000) as u64));
                }
                if waits {
                    shared.is_paused.store(true, Ordering::SeqCst);
                    // What a client has begun ends.
                    std::thread::sleep(Duration::from_millis(200));
                    until("a replica has everything", || {
                        let [expected, shown] = [primary, next].map(|at| contents(&nodes[at].proxy.address));
                        shown.is_ok_and(|shown| expected.is_ok_and(|expected| shown == expected))
                    })?;
                }
                nodes[primary].kill();
                let before = shared.acknowledged.lock().clone();
                promote(&options.firn, &nodes[next], true)?;
                // The proxy may still end connections of before.
                let mut shown = contents(&nodes[next].proxy.address);
                until("the new primary answers", || {
                    shown = contents(&nodes[next].proxy.address);
                    shown.is_ok()
                })?;
                let shown: HashSet<i64> = shown?.keys().copied().collect();
                let lost: Vec<i64> = before.difference(&shown).copied().collect();
                if (waits || is_synchronous) && !lost.is_empty() {
                    return Err(format!("server {next} has lost {lost:?}").into());
                }
                println!("  {} commits are lost that it had not received", lost.len());
                shared.acknowledged.lock().retain(|id| !lost.contains(id));
                shared.is_paused.store(false, Ordering::SeqCst);
                let address = nodes[next].proxy.address.clone();
                for other in (0..SERVERS).filter(|other| *other != next) {
                    if other != primary {
                        nodes[other].kill();
                    }
                    nodes[other].restart(&options.firn, Some(&address))?;
                }
            }
        }
        primary = next;
        let before = shared.acknowledged.lock().len();
        until("clients go on", || shared.acknowledged.lock().len() > before + 10)?;
        let longest = shared.acknowledgements.lock().map_or(Duration::ZERO, |(_, longest)| longest);
        println!("  for {:.0} ms no commit was acknowledged", longest.as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Makes sure that a server follows another one, and not a replica of it, and lacks nothing of before.
fn follow_directly(options: &Options, nodes: &mut [Node], at: usize, primary: usize) -> Outcome {
    let upstream = nodes[primary].proxy.address.clone();
    let follows = |nodes: &[Node]| -> firn_base::Result<bool> {
        let mut client = WireClient::connect(&nodes[at].proxy.address)?;
        let rows = client.run_text("SELECT upstream, state FROM firn_replication LIMIT 1")?;
        Ok(rows[0][0] == Value::Text(upstream.clone()) && rows[0][1] == Value::Text("streaming".to_owned()))
    };
    if !follows(nodes).unwrap_or(false) {
        nodes[at].kill();
        let advertised = nodes[at].proxy.address.clone();
        // The same option may have been given before, and the server have followed others since.
        nodes[at].server = serve(&options.firn, &nodes[at].data, &advertised, Some(&upstream), true)?;
        nodes[at].proxy.forward_to(&nodes[at].server.address);
    }
    until("a replica follows", || follows(nodes).unwrap_or(false)).map_err(|error| {
        let rows = WireClient::connect(&nodes[at].proxy.address).and_then(|mut client| {
            client.run_text("SELECT upstream, state, last_error FROM firn_replication")
        });
        format!("{error}: {rows:?}").into()
    })
}

/// Asks for a server to be promoted.
fn promotion(firn: &Path, node: &Node, force: bool) -> Command {
    let mut command = Command::new(firn);
    command.args(["promote", &node.proxy.address, "--wait", "5"]).args(force.then_some("--force"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Promotes a server, again and again until it is the primary.
pub fn promote(firn: &Path, node: &Node, force: bool) -> Outcome {
    until("a server is promoted", || {
        let is_primary = is_primary(&node.proxy.address).unwrap_or(false);
        is_primary || promotion(firn, node, force).status().is_ok_and(|status| status.success())
    })
}

pub fn is_primary(address: &str) -> firn_base::Result<bool> {
    let rows = WireClient::connect(address)?.run_text("SELECT pg_is_in_recovery()")?;
    Ok(rows[0][0] == Value::Boolean(false))
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) -> Outcome {
    let begun = Instant::now();
    while !is() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("not within a minute: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Commits one transaction after another, as long as the server is a primary.
fn work(shared: &Shared, address: &str) -> firn_base::Result<()> {
    if !is_primary(address)? {
        return Ok(());
    }
    let mut client = WireClient::connect(address)?;
    let insert = client
        .prepare("INSERT INTO ledger SELECT $1, part, repeat('x', 50) FROM generate_series(1, 2) AS part")?;
    while !shared.is_done.load(Ordering::SeqCst) {
        if shared.is_paused.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let id = shared.next.fetch_add(1, Ordering::Relaxed) as i64;
        client.run(&insert, &[Value::BigInt(id)])?;
        shared.acknowledged.lock().insert(id);
        *shared.last.lock() = Some(id);
        let mut acknowledgements = shared.acknowledgements.lock();
        let longest = acknowledgements.map_or(Duration::ZERO, |(last, longest)| longest.max(last.elapsed()));
        *acknowledgements = Some((Instant::now(), longest));
    }
    Ok(())
}

/// The ids of the ledger, each with the number of its parts.
fn contents(address: &str) -> firn_base::Result<BTreeMap<i64, i64>> {
    let mut found = BTreeMap::new();
    let mut client = WireClient::connect(address)?;
    for row in client.run_text("SELECT id, count(*) FROM ledger GROUP BY id")? {
        if let (Value::BigInt(id), Value::BigInt(parts)) = (&row[0], &row[1]) {
            found.insert(*id, *parts);
        }
    }
    Ok(found)
}

/// Checks that every server has what was acknowledged, and the same.
pub fn compare(shared: &Shared, nodes: &mut [Node]) -> Outcome {
    let acknowledged = shared.acknowledged.lock().clone();
    // A former primary may be about to open its directory, or may not have learned yet that it is none any more.
    until("one server is the primary", || {
        let roles: Vec<_> = nodes.iter().map(|node| is_primary(&node.proxy.address)).collect();
        roles.iter().all(Result::is_ok) && roles.iter().filter(|role| matches!(role, Ok(true))).count() == 1
    })?;
    let mut last = None;
    until("all servers have everything", || {
        let shown: Vec<_> = nodes.iter().map(|node| contents(&node.proxy.address)).collect();
        last = shown.first().and_then(|shown| shown.as_ref().ok().cloned());
        shown.iter().all(|shown| shown.as_ref().ok() == last.as_ref()) && last.is_some()
    })?;
    let everything = last.expect("there are servers");
    let missing: Vec<&i64> = acknowledged.iter().filter(|id| !everything.contains_key(id)).collect();
    if !missing.is_empty() {
        return Err(format!("lost: {missing:?}").into());
    }
    if let Some((id, parts)) = everything.iter().find(|(_, parts)| **parts != 2) {
        return Err(format!("transaction {id} has {parts} of its 2 rows").into());
    }
    println!("each server has all {} acknowledged commits", acknowledged.len());
    for node in nodes {
        node.server.stop()?;
    }
    Ok(())
}
