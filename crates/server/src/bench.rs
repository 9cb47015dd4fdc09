//! `firn bench`: the workloads on this engine, in this process.
//!
//! Long work shows a progress bar if standard error is a terminal. Results are printed to standard
//! output, one table per run, and every transactional run ends with its consistency conditions.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use firn_base::sync::Ordering;
use firn_bench::ch::mixed;
use firn_bench::driver::{self, Live};
use firn_bench::memory::MemoryUsage;
use firn_bench::temperature::{Temperature, cool, row_bytes};
use firn_bench::tpcc::consistency::HeldSnapshot;
use firn_bench::tpcc::input::Terminal;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::tpcc::{Scale, beside, consistency, native};
use firn_bench::{
    ch, compact, freeze, geometric_mean, median, merge, planning, queries, rows, short_duration, tatp,
    temperature, tpcc, tpch,
};
use firn_session::{Config, Connection, Database};
use firn_wire::{Server, WireConfig};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::cooling::Cooling;
use crate::output::say;
use crate::replication::{Facts, Service};
use crate::validation::Validation;
use crate::voters::Voters;
use firn_replica::Senders;

/// Arguments of `firn bench`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(clap::Subcommand, Debug)]
enum Workload {
    /// TPC-C's five transactions, without think time.
    Tpcc {
        /// Warehouses.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=10_000))]
        warehouses: i32,
        #[command(flatten)]
        run: Transactional,
        /// The isolation of transactions.
        #[arg(long, value_enum, default_value = "serializable")]
        isolation: IsolationLevel,
        /// As prepared SQL statements instead of native calls.
        #[arg(long)]
        sql: bool,
        /// Report the states of the blocks after this number of seconds without writes.
        #[arg(long, value_name = "SECONDS")]
        settle: Option<u64>,
        /// Hold a snapshot from before the first transaction until after the last one; its rows must be the same in
        /// the end.
        #[arg(long, conflicts_with = "load")]
        hold_snapshot: bool,
        /// Report ten times how much memory is used, and for what.
        #[arg(long, conflicts_with = "load")]
        memory: bool,
        /// How many transactions each client begins before it runs the first of them, so that others commit
        /// meanwhile.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1_000), conflicts_with = "sql")]
        interleaved: u16,
        /// Run twice, without and with this CSV file (with a header) being copied into a table of the same database
        /// repeatedly.
        #[arg(long, value_name = "FILE", value_parser = file_of_rows, conflicts_with = "settle")]
        load: Option<String>,
        /// The columns of that table's primary key, separated by commas; the first column by default.
        #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "load")]
        load_key: Vec<String>,
        /// A statement that runs before the transactions, such as one that makes another table. May be given more than
        /// once.
        #[arg(long, value_name = "SQL")]
        before: Vec<String>,
    },
    /// TATP's seven transactions.
    Tatp {
        /// Subscribers.
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(i32).range(1..))]
        subscribers: i32,
        #[command(flatten)]
        run: Transactional,
        /// As prepared SQL statements instead of native calls.
        #[arg(long)]
        sql: bool,
        /// How many requests each client has queued. The rows of queued requests are prefetched together, so
        /// that they do not wait for memory one by one.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16), conflicts_with = "sql")]
        queued: u16,
    },
    /// How fast one thread inserts and changes rows, and what versions cost a scan.
    Rows {
        /// Rows.
        #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u32).range(10_000..))]
        rows: u32,
        /// How often each scan runs; the median is reported.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        runs: u16,
    },
    /// What the merge of dictionaries costs, beside a naive one and beside the bandwidth of memory; and what reading encoded columns
    /// costs.
    Merge {
        /// Tuples of main.
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1_000..))]
        main: u32,
        /// Tuples of delta.
        #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(100..))]
        delta: u32,
        /// Threads.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        threads: u16,
        /// How often each merge runs; the median is reported.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
        runs: u16,
    },
    /// How fast blocks are frozen, by how many of their slots are empty, beside other ways to make Arrow arrays.
    Freeze {
        /// Blocks of 1 MiB.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(2..))]
        blocks: u16,
    },
    /// What reading and changing single rows costs in hot, frozen and compact blocks, and how large these are.
    Compact {
        /// Orders of ten lines each.
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        orders: u32,
    },
    /// What planning costs: statements that are new, and statements that are prepared.
    Planning {
        /// How often each statement is planned; the median counts.
        #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// TPC-H's 22 queries.
    Tpch {
        /// Scale factor: gigabytes of raw data.
        #[arg(long, default_value_t = 1.0, value_parser = scale_factor)]
        scale: f64,
        /// How often each query runs; the median is reported.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
        runs: u16,
        /// Directory for the database, which must be empty; in memory by default.
        #[arg(long, value_name = "DIR", value_parser = empty_directory)]
        data: Option<PathBuf>,
        /// States of the blocks that hold the rows, if the blocks are full: each in turn; as loaded by default.
        #[arg(long, value_enum, value_delimiter = ',')]
        blocks: Vec<Blocks>,
        /// Numbers of queries, separated by commas; all by default.
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=22))]
        queries: Vec<u8>,
    },
    /// CH-benCHmark: TPC-C's transactions and 22 queries on the same rows, without and with the
    /// queries, transactions pinned to one core and queries to another.
    Ch {
        /// Warehouses.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..=10_000))]
        warehouses: i32,
        #[command(flatten)]
        run: Transactional,
        /// Only transactions: the run for comparison.
        #[arg(long)]
        without_queries: bool,
    },
}

/// States of blocks.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Blocks {
    Hot,
    Frozen,
    Compact,
}

impl Blocks {
    fn temperature(self) -> Temperature {
        match self {
            Blocks::Hot => Temperature::Hot,
            Blocks::Frozen => Temperature::Frozen,
            Blocks::Compact => Temperature::Compact,
        }
    }
}

/// Arguments of all transactional workloads.
#[derive(clap::Args, Clone, Debug)]
struct Transactional {
    /// Clients, each a thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    threads: u16,
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many transactions a second all clients together begin at most; no limit by default.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,
    /// When a transaction counts: once it is on disk, once it has committed, or without any log.
    #[arg(long, value_enum, default_value = "on")]
    log: Log,
    /// Directory for the database, which must be empty; a temporary one by default.
    #[arg(long, value_name = "DIR", value_parser = empty_directory)]
    data: Option<PathBuf>,
    /// Serve the database at this address while transactions run, such as for backups.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Memory for rows and indexes that is allocated at the start, such as 4GiB, and retained.
    #[arg(long, value_name = "SIZE", value_parser = crate::serve::size, default_value = "0")]
    reserve_memory: u64,
    #[command(flatten)]
    cooling: Cooling,
    #[command(flatten)]
    validation: Validation,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum IsolationLevel {
    /// As if they ran one after another.
    Serializable,
    /// Each reads one snapshot.
    Snapshot,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Log {
    /// Counts once it is on disk.
    On,
    /// The log is written, but no client waits for it.
    Off,
    /// There is no log.
    Memory,
}

fn scale_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=1_000.0).contains(&scale) => Ok(scale),
        Ok(_) => Err("it must be between 0.001 and 1000".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// An empty directory, or one that does not exist yet.
fn empty_directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match std::fs::read_dir(&path).map(|mut files| files.next().is_some()) {
        Ok(true) => Err("the directory is not empty".to_owned()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(path),
    }
}

/// The absolute path of a file.
fn file_of_rows(text: &str) -> Result<String, String> {
    let path = std::fs::canonicalize(text).map_err(|error| error.to_string())?;
    path.into_os_string().into_string().map_err(|_| "the path is not UTF-8".to_owned())
}

/// Runs a workload.
pub fn run(options: Options) -> Result<(), Failure> {
    match options.workload {
        Workload::Tpcc {
            warehouses,
            run,
            isolation,
            sql,
            settle,
            hold_snapshot,
            memory,
            interleaved,
            load,
            load_key,
            before,
        } => {
            let (isolation, sql_name) = match isolation {
                IsolationLevel::Serializable => (native::Isolation::Serializable, "serializable"),
                IsolationLevel::Snapshot => (native::Isolation::Snapshot, "repeatable read"),
            };
            let clients = match sql {
                true => Clients::Sql { isolation: sql_name },
                false => Clients::Native(native::Mode { isolation, interleaved: usize::from(interleaved) }),
            };
            let what = match load {
                None => Show::Transactions { settle, hold_snapshot, memory },
                Some(file) => Show::Beside(beside::Load { file, key: load_key }),
            };
            run_tpcc(warehouses, &run, clients, &what, &before)
        }
        Workload::Rows { rows, runs } => run_rows(rows as usize, usize::from(runs)),
        Workload::Merge { main, delta, threads, runs } => run_merge(merge::Options {
            main: main as usize,
            delta: delta as usize,
            threads: usize::from(threads),
            runs: usize::from(runs),
        }),
        Workload::Freeze { blocks } => run_freeze(usize::from(blocks)),
        Workload::Compact { orders } => run_compact(orders as i32),
        Workload::Tatp { subscribers, run, sql, queued } => {
            run_tatp(subscribers, &run, sql, usize::from(queued))
        }
        Workload::Planning { rounds } => run_planning(rounds as usize),
        Workload::Tpch { scale, runs, data, blocks, queries } => {
            run_tpch(scale, runs, data, &blocks, &queries)
        }
        Workload::Ch { warehouses, run, without_queries } => run_ch(warehouses, &run, without_queries),
    }
}

/// How TPC-C's clients run their transactions.
enum Clients {
    Native(native::Mode),
    Sql { isolation: &'static str },
}

/// The reports of TPC-C.
enum Show {
    /// The transactions, and the states of the blocks.
    Transactions { settle: Option<u64>, hold_snapshot: bool, memory: bool },
    /// The transactions without and with a load.
    Beside(beside::Load),
}

fn run_tpcc(
    warehouses: i32,
    run: &Transactional,
    clients: Clients,
    what: &Show,
    before: &[String],
) -> Result<(), Failure> {
    let (database, _directory) = open(run)?;
    let scale = Scale::warehouses(warehouses);
    load_tpcc(&database, scale)?;
    for statement in before {
        database.connect().execute(statement).map_err(Failure::new)?;
    }
    let terminal = |number| Terminal::new(scale, 1, number, usize::from(run.threads));
    match clients {
        Clients::Native(mode) => {
            let tables = native::Tpcc::open(database.engine()).map_err(Failure::new)?;
            let client = |number| Ok(native::Worker::with(&tables, terminal(number), mode));
            show_tpcc(&database, scale, run, &client, what)
        }
        Clients::Sql { isolation } => {
            let client = |number| {
                let mut connection = connect(&database, run)?;
                connection.set("default_transaction_isolation", isolation)?;
                tpcc::sql::SqlWorker::new(connection, terminal(number))
            };
            show_tpcc(&database, scale, run, &client, what)
        }
    }
}

fn show_tpcc<C: driver::Client>(
    database: &Database,
    scale: Scale,
    run: &Transactional,
    client: &(dyn Fn(usize) -> firn_base::Result<C> + Sync),
    what: &Show,
) -> Result<(), Failure> {
    let (settle, hold_snapshot, memory) = match what {
        Show::Transactions { settle, hold_snapshot, memory } => (*settle, *hold_snapshot, *memory),
        Show::Beside(load) => return show_tpcc_beside(database, scale, run, client, load),
    };
    let engine = database.engine();
    let snapshot = hold_snapshot.then(|| HeldSnapshot::take(engine, scale));
    let snapshot = snapshot.transpose().map_err(Failure::new)?;
    let mut usages = Vec::new();
    let report = drive(database, run, client, &mut |elapsed, live| {
        if memory && elapsed >= Duration::from_secs(run.seconds) / 10 * (usages.len() as u32 + 1) {
            usages.push(MemoryUsage::now(engine.memory(), live));
        }
    })?;
    say!("{report}")?;
    if memory {
        say!("{}", MemoryUsage::TITLE)?;
        for usage in &usages {
            say!("{usage}")?;
        }
    }
    if let Some(snapshot) = snapshot {
        report_violations(snapshot.violations(engine).map_err(Failure::new)?)?;
        say!("the snapshot that was held has not changed")?;
    }
    if let Some(seconds) = settle {
        std::thread::sleep(Duration::from_secs(seconds));
        for (table, shares) in temperature::shares(database.engine()) {
            say!("{table:<12} {shares}")?;
        }
    }
    check(database, scale)
}

fn show_tpcc_beside<C: driver::Client>(
    database: &Database,
    scale: Scale,
    run: &Transactional,
    client: &(dyn Fn(usize) -> firn_base::Result<C> + Sync),
    load: &beside::Load,
) -> Result<(), Failure> {
    let engine = (run.log == Log::On).then(|| database.engine());
    let mut reports = Vec::new();
    for load in [None, Some(load)] {
        say!("{}", if load.is_some() { "With the load" } else { "Without the load" })?;
        let bar = bar("running", run.seconds * 10);
        let mut tick = |elapsed: Duration| bar.set_position(elapsed.as_millis() as u64 / 100);
        let report = beside::run(database, client, engine, driver_options(run), load, &mut tick)
            .map_err(Failure::new)?;
        bar.finish_and_clear();
        say!("{}", report.transactions)?;
        check(database, scale)?;
        say!()?;
        reports.push(report);
    }
    let [without, with] = &reports[..] else { panic!("two runs") };
    let loaded = with.load.as_ref().expect("the second run has a load");
    say!(
        "{} loads of {} rows: copied in {} each (median), committed in {}, the longest in {}; checksum {}",
        loaded.loads,
        loaded.rows,
        short_duration(loaded.copies.percentile(0.5)),
        short_duration(loaded.commits.percentile(0.5)),
        short_duration(loaded.commits.percentile(1.0)),
        loaded.checksum,
    )?;
    say!("{:<36}{:>12}{:>12}{:>12}{:>12}", "calls of transactions", "count", "p50", "p99", "longest")?;
    for (what, calls) in [
        ("without the load", &without.calls.all),
        ("with it", &with.calls.all),
        ("those that ran during its commits", &with.calls.beside_commits),
    ] {
        say!(
            "{what:<36}{:>12}{:>12}{:>12}{:>12}",
            calls.count(),
            short_duration(calls.percentile(0.5)),
            short_duration(calls.percentile(0.99)),
            short_duration(calls.percentile(1.0)),
        )?;
    }
    let (without, with) = (without.transactions.per_second(), with.transactions.per_second());
    say!(
        "{without:.0} tx/s without the load, {with:.0} tx/s with it: {:.1} % lost",
        (1.0 - with / without) * 100.0
    )?;
    Ok(())
}

fn run_tatp(subscribers: i32, run: &Transactional, sql: bool, queued: usize) -> Result<(), Failure> {
    let (database, _directory) = open(run)?;
    let engine = database.engine();
    with_progress("loading", tatp::expected_rows(subscribers), |progress| {
        tatp::load(engine, subscribers, 1, loaders(), progress)
    })?;
    let report = if sql {
        let client = |number| tatp::sql::SqlWorker::new(connect(&database, run)?, subscribers, 1, number);
        drive(&database, run, &client, &mut |_, _| {})?
    } else {
        let tables = tatp::Tatp::open(engine).map_err(Failure::new)?;
        let client = |number| Ok(tatp::Worker::new(&tables, 1, number, queued));
        drive(&database, run, &client, &mut |_, _| {})?
    };
    say!("{report}")?;
    Ok(())
}

fn run_rows(rows: usize, runs: usize) -> Result<(), Failure> {
    let scans = rows::scans(rows, runs).map_err(Failure::new)?;
    say!("adding up {} pairs of integers", scans.rows)?;
    let speed = |time: Duration| scans.arrays.as_secs_f64() / time.as_secs_f64();
    for (what, time) in [
        ("two arrays", scans.arrays),
        ("fold, no versions", scans.clean),
        ("fold, 0.01 % of the rows changed", scans.dirty),
        ("slices, no versions", scans.slices),
        ("Arrow batches, no versions", scans.batches),
        ("row by row, every version pointer", scans.row_by_row),
    ] {
        say!("{what:<36}{:>10}{:>8.2} of the arrays' speed", short_duration(time), speed(time))?;
    }
    let writes = rows::writes(rows).map_err(Failure::new)?;
    say!("{rows} rows of ten integers, {} changes a transaction", rows::CHANGES_PER_TRANSACTION)?;
    for (what, millions) in [
        ("inserts", writes.inserts),
        ("updates of one attribute", writes.updates_of_one),
        ("updates of five", writes.updates_of_five),
        ("updates of ten", writes.updates_of_ten),
        ("deletes and inserts", writes.delete_inserts),
    ] {
        say!("{what:<36}{millions:>8.2} million a second")?;
    }
    Ok(())
}

fn run_freeze(blocks: usize) -> Result<(), Failure> {
    say!("{blocks} blocks of 1 MiB: integers of 8 bytes and strings of 12 to 24; one thread, GB a second")?;
    say!(
        "{:>7}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "empty",
        "freeze",
        "gather",
        "snapshot",
        "in place",
        "blocks left"
    )?;
    for empty in [0, 1, 5, 10, 20, 40, 60, 80, 100] {
        let speeds = freeze::run(blocks, empty).map_err(Failure::new)?;
        let [freeze, gather, snapshot, in_place] =
            [speeds.freeze, speeds.gather, speeds.snapshot, speeds.in_place].map(|speed| speed / 1e9);
        let left = speeds.blocks[1];
        say!("{empty:>5} %{freeze:>12.2}{gather:>12.2}{snapshot:>12.2}{in_place:>12.2}{left:>12}")?;
    }
    Ok(())
}

fn run_compact(orders: i32) -> Result<(), Failure> {
    say!("{orders} orders of 10 lines; one thread, without a log; 10,000 random orders are changed")?;
    say!(
        "{:<9}{:>11}{:>14}{:>14}{:>18}{:>18}{:>24}{:>24}",
        "blocks",
        "bytes/row",
        "read ns",
        "by key ns",
        "100,000 updates",
        "by key",
        "index on strings",
        "without values"
    )?;
    for temperature in Temperature::ALL {
        let costs = compact::run(temperature, orders).map_err(Failure::new)?;
        let ms = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let index = |index: compact::IndexCosts| format!("{:.1} B, {:.0} ns", index.row_bytes, index.find);
        say!(
            "{temperature:<9}{:>11.1}{:>14.0}{:>14.0}{:>18}{:>18}{:>24}{:>24}",
            costs.row_bytes,
            costs.read,
            costs.find,
            ms(costs.update),
            ms(costs.update_by_key),
            index(costs.with_values),
            index(costs.without_values)
        )?;
    }
    Ok(())
}

fn run_merge(options: merge::Options) -> Result<(), Failure> {
    /// More than any cache.
    const MEASURED_BYTES: usize = 1 << 28;
    let machine =
        merge::Machine::measure(options.threads, MEASURED_BYTES, options.runs).map_err(Failure::new)?;
    say!("{} tuples of main, {} of delta, {} threads", options.main, options.delta, options.threads)?;
    say!("{machine}")?;
    for (kind, percent) in [
        (merge::Kind::Words, 1.0),
        (merge::Kind::Words, 10.0),
        (merge::Kind::Words, 100.0),
        (merge::Kind::Strings, 10.0),
    ] {
        say!("\n{}", merge::run(kind, percent, options, machine).map_err(Failure::new)?)?;
    }
    say!("\n{} 8-byte values in runs of ten; cycles per value", options.main)?;
    say!("{:<18}{:>8}{:>12}{:>12}{:>12}", "", "bytes", "any slot", "decoded", "compared")?;
    for reads in merge::reads(options.main, options.runs, machine).map_err(Failure::new)? {
        say!(
            "{:<18}{:>8.2}{:>12.1}{:>12.2}{:>12.2}",
            reads.name,
            reads.bytes,
            reads.slot,
            reads.decoded,
            reads.selected
        )?;
    }
    Ok(())
}

fn run_planning(rounds: usize) -> Result<(), Failure> {
    let lines = planning::run(rounds).map_err(Failure::data)?;
    say!("{:<32}{:>12}{:>16}", "statement", "prepared in", "prepared and run")?;
    for line in &lines {
        let whole = line.whole.map_or(String::new(), short_duration);
        say!("{:<32}{:>12}{whole:>16}", line.name, short_duration(line.plan))?;
    }
    let mut tpch: Vec<Duration> =
        lines.iter().filter(|line| line.whole.is_none()).map(|line| line.plan).collect();
    say!("TPC-H: median {}, at most {}", short_duration(median(&mut tpch)), {
        short_duration(tpch.iter().max().copied().unwrap_or_default())
    })?;
    Ok(())
}

fn run_tpch(
    scale: f64,
    runs: u16,
    directory: Option<PathBuf>,
    blocks: &[Blocks],
    only: &[u8],
) -> Result<(), Failure> {
    let mut config = Config { directory, ..Config::default() };
    if !blocks.is_empty() {
        (config.freeze_after, config.compact_after) = (None, None);
    }
    let database = Database::open_with(config).map_err(Failure::data)?;
    with_progress("loading", tpch::expected_rows(scale), |progress| {
        tpch::load(database.engine(), scale, loaders(), progress)
    })?;
    let mut connection = database.connect();
    // Colder blocks do not become warmer.
    let mut temperatures: Vec<Option<Temperature>> = Temperature::ALL
        .into_iter()
        .filter(|one| blocks.iter().any(|of| of.temperature() == *one))
        .map(Some)
        .collect();
    if temperatures.is_empty() {
        temperatures.push(None);
    }
    let is_wanted = |(number, _): &(u8, &str)| only.is_empty() || only.contains(number);
    let wanted: Vec<(u8, &str)> = (1..).zip(queries::TPCH).filter(is_wanted).collect();
    let bar = bar("queries", (wanted.len() * usize::from(runs) * temperatures.len()) as u64);
    let mut columns = Vec::new();
    let mut rows = Vec::new();
    for temperature in &temperatures {
        if let Some(temperature) = temperature {
            cool(database.engine(), *temperature);
        }
        let bytes = row_bytes(database.engine());
        let mut medians = Vec::new();
        rows.clear();
        for (number, sql) in &wanted {
            let mut times = Vec::new();
            let mut count = 0;
            for _ in 0..runs {
                let start = Instant::now();
                let batches = connection
                    .query(sql)
                    .map_err(|error| Failure::new(format!("query {number}: {error}")))?;
                times.push(start.elapsed());
                count = batches.iter().map(|batch| batch.num_rows()).sum::<usize>();
                bar.inc(1);
            }
            medians.push(median(&mut times));
            rows.push(count);
        }
        columns.push((bytes, medians));
    }
    bar.finish_and_clear();
    let title = |temperature: &Option<Temperature>| {
        format!("{:>12}", temperature.map_or("median".to_owned(), |temperature| temperature.to_string()))
    };
    say!("query{}{:>10}", temperatures.iter().map(title).collect::<String>(), "rows")?;
    for (at, rows) in rows.iter().enumerate() {
        let times = columns.iter().map(|(_, medians)| format!("{:>12}", short_duration(medians[at])));
        say!("{:>5}{}{rows:>10}", wanted[at].0, times.collect::<String>())?;
    }
    for (temperature, (bytes, medians)) in temperatures.iter().zip(&columns) {
        let seconds: Vec<f64> = medians.iter().map(Duration::as_secs_f64).collect();
        let mean = short_duration(Duration::from_secs_f64(geometric_mean(&seconds)));
        let sum = short_duration(Duration::from_secs_f64(seconds.iter().sum()));
        let of = temperature.map_or(String::new(), |temperature| format!("{temperature}: "));
        say!("{of}geometric mean {mean}, sum {sum}, rows in {:.0} MB", *bytes as f64 / 1e6)?;
    }
    Ok(())
}

fn run_ch(warehouses: i32, run: &Transactional, without_queries: bool) -> Result<(), Failure> {
    let (database, _directory) = open(run)?;
    let scale = Scale::warehouses(warehouses);
    load_ch(&database, scale)?;
    let mut rates = Vec::new();
    for queries in [false, true] {
        if queries && without_queries {
            break;
        }
        say!("{}", if queries { "With queries" } else { "Without queries" })?;
        let options = mixed::Options {
            scale,
            clients: usize::from(run.threads),
            duration: Duration::from_secs(run.seconds),
            rate: run.rate,
            queries,
            pinned: true,
        };
        let bar = bar("running", run.seconds * 10);
        let mut tick = |elapsed: Duration| bar.set_position(elapsed.as_millis() as u64 / 100);
        let report = mixed::run(&database, options, &Live::default(), &Default::default(), &mut tick)
            .map_err(Failure::new)?;
        bar.finish_and_clear();
        say!("{}", report.transactions)?;
        if let Some(queries) = &report.queries {
            print_queries(queries, report.transactions.elapsed)?;
        }
        rates.push(report.transactions.per_second());
        check(&database, scale)?;
        say!()?;
    }
    if let [without, with] = rates[..] {
        say!(
            "{without:.0} tx/s without queries, {with:.0} tx/s with them: {:.1} % lost",
            (1.0 - with / without) * 100.0
        )?;
    }
    Ok(())
}

fn driver_options(run: &Transactional) -> driver::Options {
    let (clients, duration) = (usize::from(run.threads), Duration::from_secs(run.seconds));
    driver::Options { clients, duration, core: None, rate: run.rate }
}

/// Runs the clients of a transactional workload under a progress bar. Calls `tick` several times a second with the time
/// since the start.
fn drive<C: driver::Client>(
    database: &Database,
    run: &Transactional,
    client: &(dyn Fn(usize) -> firn_base::Result<C> + Sync),
    tick: &mut dyn FnMut(Duration, &Live),
) -> Result<driver::Report, Failure> {
    let server = run.listen.as_ref().map(|address| serve(database, address)).transpose()?;
    let options = driver_options(run);
    let live = Live::default();
    let engine = (run.log == Log::On).then(|| database.engine());
    let bar = bar("running", run.seconds * 10);
    let report = std::thread::scope(|scope| {
        let runner = scope.spawn(|| driver::run(client, engine, options, &live));
        let start = Instant::now();
        while !runner.is_finished() {
            let elapsed = start.elapsed();
            bar.set_position(elapsed.as_millis() as u64 / 100);
            tick(elapsed, &live);
            std::thread::sleep(Duration::from_millis(50));
        }
        tick(start.elapsed(), &live);
        runner.join().expect("clients do not panic")
    });
    bar.finish_and_clear();
    server.into_iter().for_each(Server::shutdown);
    report.map_err(Failure::new)
}

/// Opens an empty database according to the arguments; the second value removes the directory when it is dropped.
fn open(run: &Transactional) -> Result<(Database, Option<tempfile::TempDir>), Failure> {
    if run.log == Log::Memory && run.data.is_some() {
        return Err(Failure::usage("--data keeps a log and --log memory has none: leave one of them out"));
    }
    let temporary = match (run.log, &run.data) {
        (Log::Memory, _) | (_, Some(_)) => None,
        _ => Some(tempfile::Builder::new().prefix("firn-bench").tempdir().map_err(Failure::new)?),
    };
    let directory = temporary.as_ref().map(|directory| directory.path().to_owned()).or(run.data.clone());
    let reserve_memory = run.reserve_memory;
    let config = Config { directory, reserve_memory, ..Config::default() };
    let config = run.validation.apply(run.cooling.apply(config));
    Ok((Database::open_with(config).map_err(Failure::data)?, temporary))
}

/// Serves a database at an address of this machine.
pub(crate) fn serve(database: &Database, address: &str) -> Result<Server, Failure> {
    let senders = Senders::default();
    let voters = Voters::none();
    Facts::show(database, senders.clone(), None, voters.clone(), || {});
    let config = WireConfig {
        listen: vec![address.to_owned()],
        replication: Some(Service::new(database, senders, voters, None, || {})),
        ..WireConfig::default()
    };
    Server::start(database.clone(), config).map_err(Failure::address)
}

/// A connection whose commits are as durable as the arguments require.
fn connect(database: &Database, run: &Transactional) -> firn_base::Result<Connection> {
    let mut connection = database.connect();
    if run.log == Log::Off {
        connection.execute("SET synchronous_commit = off")?;
    }
    Ok(connection)
}

/// Loads TPC-C's tables.
pub(crate) fn load_tpcc(database: &Database, scale: Scale) -> Result<(), Failure> {
    with_progress("loading", tpcc::load::expected_rows(scale), |progress| {
        tpcc::load::load(database.engine(), scale, 1, loaders(), progress)
    })
}

/// Loads CH-benCHmark's tables: TPC-C's and three more.
pub(crate) fn load_ch(database: &Database, scale: Scale) -> Result<(), Failure> {
    load_tpcc(database, scale)?;
    ch::load(database.engine(), 1).map_err(Failure::new)
}

/// Checks TPC-C's consistency conditions and prints the result.
pub(crate) fn check(database: &Database, scale: Scale) -> Result<(), Failure> {
    let violations = consistency::violations(database.engine(), scale).map_err(Failure::new)?;
    report_violations(violations)?;
    say!("all 12 consistency conditions hold")
}

fn report_violations(violations: Vec<String>) -> Result<(), Failure> {
    if violations.is_empty() {
        return Ok(());
    }
    violations.iter().for_each(|violation| eprintln!("{violation}"));
    Err(Failure::new(format!("{} consistency conditions are violated", violations.len())))
}

/// Prints the times of the queries.
pub(crate) fn print_queries(report: &mixed::QueryReport, elapsed: Duration) -> Result<(), Failure> {
    say!("{:>5}{:>8}{:>12}{:>12}", "query", "runs", "median", "longest")?;
    for (number, latencies) in (1..).zip(&report.latencies) {
        if latencies.count() > 0 {
            say!(
                "{number:>5}{:>8}{:>12}{:>12}",
                latencies.count(),
                short_duration(latencies.percentile(0.5)),
                short_duration(latencies.percentile(1.0)),
            )?;
        }
    }
    for (number, error) in &report.failures {
        say!("query {number} failed: {error}")?;
    }
    say!(
        "{} queries, {:.2} a second; newest commit seen was {} old (median), {} at most",
        report.count(),
        report.count() as f64 / elapsed.as_secs_f64(),
        short_duration(report.freshness.percentile(0.5)),
        short_duration(report.freshness.percentile(1.0)),
    )
}

/// Runs a load under a progress bar and prints how long it took.
fn with_progress(
    what: &'static str,
    rows: u64,
    work: impl FnOnce(&LoadProgress) -> firn_base::Result<()> + Send,
) -> Result<(), Failure> {
    let progress = LoadProgress::default();
    let bar = bar(what, rows);
    let start = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&progress));
        while !worker.is_finished() {
            bar.set_position(progress.rows.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(20));
        }
        worker.join().expect("loading does not panic")
    });
    bar.finish_and_clear();
    outcome.map_err(Failure::new)?;
    say!("loaded {} rows in {}", progress.rows.load(Ordering::Relaxed), short_duration(start.elapsed()))?;
    Ok(())
}

/// A progress bar on standard error; hidden if that is no terminal.
fn bar(what: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}");
    let bar = ProgressBar::new(length).with_message(what);
    bar.set_style(style.expect("the template is fine"));
    bar
}

/// Threads that load.
fn loaders() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
