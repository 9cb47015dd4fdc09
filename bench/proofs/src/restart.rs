//! How long it takes to open a database again: TPC-H after a clean stop, and TPC-C after a crash,
//! compared with the time in which the transactions of the lost process had run.

use crate::Outcome;
use firn_bench::driver::{self, Live};
use firn_bench::short_duration;
use firn_bench::tpcc::input::Terminal;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::tpcc::native::{Tpcc, Worker};
use firn_bench::tpcc::{Scale, consistency, load};
use firn_bench::tpch;
use firn_session::Database;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::time::{Duration, Instant};

/// Arguments of `restart`.
#[derive(clap::Args)]
pub struct Options {
    /// Scale factor of TPC-H.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Warehouses of TPC-C.
    #[arg(long, default_value_t = 5)]
    warehouses: i32,
    /// How long transactions run before the crash.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Runs transactions in this directory and crashes: for the program's own use.
    #[arg(long, hide = true)]
    crash_in: Option<PathBuf>,
}

/// Measures.
pub fn run(options: Options) -> Outcome {
    if let Some(directory) = &options.crash_in {
        return run_and_crash(directory, &options);
    }
    reopen_tpch(&options)?;
    replay_tpcc(&options)
}

fn reopen_tpch(options: &Options) -> Outcome {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path())?;
    tpch::load(database.engine(), options.scale, 2, &LoadProgress::default())?;
    let start = Instant::now();
    database.checkpoint()?;
    database.close()?;
    let stop = start.elapsed();
    let start = Instant::now();
    let database = Database::open(directory.path())?;
    let opened = start.elapsed();
    let rows = database.connect().query("SELECT count(*) FROM lineitem")?;
    assert_eq!(rows.len(), 1);
    let answered = start.elapsed();
    println!(
        "TPC-H {}: stopped in {}, opened again in {}, first answer after {}",
        options.scale,
        short_duration(stop),
        short_duration(opened),
        short_duration(answered)
    );
    Ok(())
}

fn replay_tpcc(options: &Options) -> Outcome {
    let directory = tempfile::tempdir()?;
    let scale = Scale::warehouses(options.warehouses);
    let database = Database::open(directory.path())?;
    load::load(database.engine(), scale, 1, 2, &LoadProgress::default())?;
    database.checkpoint()?;
    database.close()?;
    let start = Instant::now();
    Database::open(directory.path())?.close()?;
    let without_log = start.elapsed();

    let status = Command::new(std::env::current_exe()?)
        .args(["restart", "--warehouses", &options.warehouses.to_string()])
        .args(["--seconds", &options.seconds.to_string(), "--crash-in"])
        .arg(directory.path())
        .status()?;
    if status.code() != Some(CRASHED) {
        return Err(format!("the process that was to crash ended with {status}").into());
    }
    let log_bytes = directory_bytes(&directory.path().join("log"))?;
    let start = Instant::now();
    let database = Database::open(directory.path())?;
    let opened = start.elapsed();
    let replay = opened.saturating_sub(without_log);
    println!(
        "TPC-C {}: {} s of transactions ({} MB of log) replayed in {} ({} to open, {} of it without log): {:.1} times as fast",
        options.warehouses,
        options.seconds,
        log_bytes / 1_000_000,
        short_duration(replay),
        short_duration(opened),
        short_duration(without_log),
        options.seconds as f64 / replay.as_secs_f64()
    );
    let violations = consistency::violations(database.engine(), scale)?;
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n").into()) }
}

/// The exit code of a process that crashed as requested, so that other ends are noticed.
const CRASHED: i32 = 77;

/// Runs transactions, then ends without closing anything.
fn run_and_crash(directory: &Path, options: &Options) -> Outcome {
    let database = Database::open(directory)?;
    let scale = Scale::warehouses(options.warehouses);
    let tpcc = Tpcc::open(database.engine())?;
    let client = |number| Ok(Worker::new(&tpcc, Terminal::new(scale, 1, number, 1)));
    let duration = Duration::from_secs(options.seconds);
    let driver = driver::Options { clients: 1, duration, core: None, rate: None };
    let report = driver::run(&client, Some(database.engine()), driver, &Live::default())?;
    println!("{:.0} tx/s before the crash", report.per_second());
    exit(CRASHED)
}

fn directory_bytes(directory: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
