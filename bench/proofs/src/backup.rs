//! Backups of a server beside its clients, with real processes: a ledger outside of the database says what was acknowledged, and
//! when. The server archives its log and is killed once. Then the database is restored as of random times: what was acknowledged
//! before a time is there, and nothing that began after it.

use crate::Outcome;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Value, clock, datetime};
use firn_bench::sql_client::SqlClient;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Arguments of `backup`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// Where the backups and the archive are: a directory or a URL that has none yet. A temporary directory by default.
    #[arg(long, value_name = "PLACE")]
    backups: Option<PathBuf>,
    /// To how many times the database is restored.
    #[arg(long, default_value_t = 10)]
    times: u32,
    /// Clients.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// How long each of the two servers lives, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    life_ms: u64,
    /// The seed of the random times; printed, so that a failure can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// A transaction that was tried. Times are in microseconds since 1970 UTC.
struct Attempt {
    id: i64,
    begun: i64,
    /// `None` if its outcome is unknown.
    acknowledged: Option<i64>,
}

/// Backs up, kills, restores and checks.
pub fn run(options: Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(|| Random::from_entropy().next_u64() >> 32);
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let scratch = tempfile::Builder::new().prefix("firn-backup").tempdir()?;
    let data = scratch.path().join("data");
    let backups = options.backups.clone().unwrap_or_else(|| scratch.path().join("backups"));
    let archive = [Path::new("--archive"), &backups];
    let ledger = Mutex::new(Vec::new());
    let next = AtomicU64::new(0);

    let mut server = Server::start_with(&options.firn, &data, &archive)?;
    let mut client = WireClient::connect(&server.address)?;
    for sql in [
        "CREATE TABLE ledger (id bigint PRIMARY KEY, text text)",
        "CREATE TABLE loaded (id bigint, text text)",
    ] {
        client.run_text(sql)?;
    }
    drop(client);
    println!("{}", firn(&options.firn, &["backup", "create", &server.address, text(&backups)])?);
    let first = clock::wall_clock_micros();
    for kills in [true, false] {
        let killed = AtomicBool::new(false);
        let address = server.address.clone();
        std::thread::scope(|scope| -> Outcome {
            for _ in 0..options.clients {
                let (address, ledger, next, killed) = (&address, &ledger, &next, &killed);
                scope.spawn(move || work(address, ledger, next, killed));
            }
            let outcome = (|| -> Outcome {
                for _ in 0..3 {
                    std::thread::sleep(Duration::from_millis(options.life_ms / 4));
                    let made = firn(
                        &options.firn,
                        &["backup", "create", "--incremental", &server.address, text(&backups)],
                    )?;
                    println!("{made}");
                }
                std::thread::sleep(Duration::from_millis(options.life_ms / 4));
                Ok(())
            })();
            killed.store(true, Ordering::SeqCst);
            if kills {
                server.kill()
            } else {
                server.stop()?
            }
            outcome
        })?;
        if kills {
            server = Server::start_with(&options.firn, &data, &archive)?;
        }
    }
    let last = clock::wall_clock_micros();
    let ledger = ledger.into_inner();
    println!("{}", firn(&options.firn, &["backup", "list", text(&backups)])?);
    println!("{}", firn(&options.firn, &["backup", "verify", "--all", text(&backups)])?);
    for number in 0..=options.times {
        let restored = scratch.path().join(format!("restored-{number}"));
        // The last time, everything that there is.
        let time = (number < options.times).then(|| random.uniform(first, last - 500_000));
        let mut arguments = vec![
            "backup".to_owned(),
            "restore".to_owned(),
            text(&backups).to_owned(),
            text(&restored).to_owned(),
        ];
        if let Some(time) = time {
            let mut shown = String::new();
            datetime::write_iso_timestamp(time, &mut shown);
            arguments.extend(["--target-time".to_owned(), shown]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        println!("{}", firn(&options.firn, &arguments)?);
        let mut server = Server::start(&options.firn, &restored)?;
        check(&server.address, &ledger, time.unwrap_or(last))?;
        server.stop()?;
        std::fs::remove_dir_all(&restored)?;
    }
    println!("{}", firn(&options.firn, &["backup", "prune", "--keep", "1", text(&backups)])?);
    Ok(())
}

/// Commits one row after another, now and then a load, until the server has gone.
fn work(address: &str, ledger: &Mutex<Vec<Attempt>>, next: &AtomicU64, killed: &AtomicBool) {
    let attempt = || -> firn_base::Result<()> {
        let mut client = WireClient::connect(address)?;
        let insert = client.prepare("INSERT INTO ledger VALUES ($1, repeat('x', $1::integer % 100))")?;
        let load = client
            .prepare("INSERT INTO loaded SELECT g, repeat('y', 500) FROM generate_series(1, 2000) AS g")?;
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed) as i64;
            let begun = clock::wall_clock_micros();
            let outcome = client.run(&insert, &[Value::BigInt(id)]);
            let acknowledged = outcome.is_ok().then(clock::wall_clock_micros);
            ledger.lock().push(Attempt { id, begun, acknowledged });
            outcome?;
            if id % 500 == 499 {
                client.run(&load, &[])?;
            }
        }
    };
    let ended = attempt();
    assert!(killed.load(Ordering::SeqCst), "{ended:?}");
}

/// Compares a restored database with the ledger.
fn check(address: &str, ledger: &[Attempt], time: i64) -> Outcome {
    let mut client = WireClient::connect(address)?;
    let mut found = HashSet::new();
    for row in client.run_text("SELECT id FROM ledger")? {
        let [Value::BigInt(id)] = row[..] else { return Err("an id is no bigint".into()) };
        found.insert(id);
    }
    let must = ledger.iter().filter(|attempt| attempt.acknowledged.is_some_and(|at| at < time));
    let missing: Vec<i64> = must.map(|attempt| attempt.id).filter(|id| !found.contains(id)).collect();
    let later = ledger.iter().filter(|attempt| attempt.begun > time);
    let extra: Vec<i64> = later.map(|attempt| attempt.id).filter(|id| found.contains(id)).collect();
    if !missing.is_empty() || !extra.is_empty() {
        return Err(format!("as of {time}: missing {missing:?}, too many {extra:?}").into());
    }
    let rows = client.run_text("SELECT count(*) FROM loaded")?;
    let [Value::BigInt(count)] = rows[0][..] else { return Err("a count is no bigint".into()) };
    if count % 2000 != 0 {
        return Err(format!("{count} rows of loads: one is there in part").into());
    }
    println!("as of {time}: {} commits, {} loads, as they should be", found.len(), count / 2000);
    Ok(())
}

/// Runs the binary; returns what it prints.
fn firn(firn: &Path, arguments: &[&str]) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let output = Command::new(firn).args(arguments).output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("firn {} failed: {errors}", arguments.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have such names")
}
