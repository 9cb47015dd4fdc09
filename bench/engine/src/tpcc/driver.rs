//! Who runs TPC-C's transactions, and counts them.
//!
//! Every thread is a terminal and a client at once: it enters the next input as soon as the last
//! transaction has committed. A transaction counts once it is durable. Clients of the native
//! interface do not wait for that: they run ahead and look, after every transaction, how far the
//! log has come, as a server with many connections would; its latency is the time from its start to
//! that look. What is not durable when time is up does not count.

use super::input::{Input, Terminal};
use super::native::{Outcome, Tpcc, Worker};
use super::{Kind, Scale};
use crate::histogram::Histogram;
use firn_base::clock::{Instant, now};
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Lsn, Result};
use firn_txn::Engine;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A client that runs one transaction at a time.
pub trait Client {
    /// Runs the transaction that an input asks for. Retryable errors make the driver try again.
    fn run(&mut self, input: &Input) -> Result<Done>;
}

/// What a client says of a transaction that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// False if it was a new order for an item that there is not.
    pub committed: bool,
    /// How far the log must reach for it to be durable, if it is not yet.
    pub lsn: Option<Lsn>,
    /// The numbers that its terminal would display, added up.
    pub displayed: i64,
}

impl Client for Worker<'_> {
    fn run(&mut self, input: &Input) -> Result<Done> {
        Ok(match Worker::run(self, input)? {
            Outcome::Committed { ticket, displayed } => Done { committed: true, lsn: ticket.lsn, displayed },
            Outcome::RolledBack => Done { committed: false, lsn: None, displayed: 0 },
        })
    }
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much data there is.
    pub scale: Scale,
    /// Clients, each a thread.
    pub clients: usize,
    /// For how long.
    pub duration: Duration,
    /// Where the random inputs begin.
    pub seed: u64,
    /// Pins the clients to this core.
    pub core: Option<usize>,
}

/// What all clients have done so far; read by whoever shows it.
#[derive(Default)]
pub struct Live {
    /// Transactions that count, by kind.
    pub counted: [AtomicU64; 5],
    /// Attempts that failed with 40001 and were repeated.
    pub aborts: AtomicU64,
    /// Set to end the run early.
    pub stop: AtomicBool,
}

impl Live {
    /// Transactions that count, of all kinds.
    pub fn total(&self) -> u64 {
        // ORDERING: statistics; nothing is read on the strength of them.
        self.counted.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// What a run came to.
#[derive(Clone)]
pub struct Report {
    /// How long it took.
    pub elapsed: Duration,
    /// Latencies of the transactions that count, by kind.
    pub latencies: [Histogram; 5],
    /// Attempts that failed with 40001 and were repeated.
    pub aborts: u64,
    /// New orders rolled back as the specification wants it; they count nowhere else.
    pub rollbacks: u64,
    /// Everything displayed, added up: shows that two runs did the same.
    pub checksum: i64,
}

impl Report {
    /// Transactions per second, of all kinds.
    pub fn per_second(&self) -> f64 {
        let count: u64 = self.latencies.iter().map(Histogram::count).sum();
        count as f64 / self.elapsed.as_secs_f64()
    }

    /// New orders per second.
    pub fn new_orders_per_second(&self) -> f64 {
        self.latencies[Kind::NewOrder as usize].count() as f64 / self.elapsed.as_secs_f64()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14}{:>12}{:>12}{:>12}{:>12}", "transaction", "count", "per second", "p50", "p99")?;
        for kind in Kind::ALL {
            let latencies = &self.latencies[kind as usize];
            writeln!(
                f,
                "{:<14}{:>12}{:>12.0}{:>12}{:>12}",
                kind.name(),
                latencies.count(),
                latencies.count() as f64 / self.elapsed.as_secs_f64(),
                crate::short_duration(latencies.percentile(0.5)),
                crate::short_duration(latencies.percentile(0.99)),
            )?;
        }
        write!(
            f,
            "{:.0} tx/s, {:.0} new orders/s, {} aborts, {} rollbacks as specified, {:.1} s, checksum {}",
            self.per_second(),
            self.new_orders_per_second(),
            self.aborts,
            self.rollbacks,
            self.elapsed.as_secs_f64(),
            self.checksum,
        )
    }
}

/// Runs the native transactions.
pub fn run_native(tpcc: &Tpcc, options: Options, live: &Live) -> Result<Report> {
    run(&|_| Ok(Worker::new(tpcc)), Some(tpcc.engine()), options, live)
}

/// Runs clients made by `client`. `engine` is needed only for those whose transactions are not yet
/// durable when they return.
pub fn run<C: Client>(
    client: &(dyn Fn(usize) -> Result<C> + Sync),
    engine: Option<&Arc<Engine>>,
    options: Options,
    live: &Live,
) -> Result<Report> {
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..options.clients {
            let reports = &reports;
            scope.spawn(move || {
                if let Some(core) = options.core {
                    firn_base::thread::pin_to_core(core);
                }
                let report =
                    client(number).and_then(|client| run_client(client, number, engine, options, live));
                if report.is_err() {
                    live.stop.store(true, Ordering::Relaxed);
                }
                reports.lock().push(report);
            });
        }
    });
    let mut total: Option<Report> = None;
    for report in reports.into_inner() {
        let report = report?;
        total = Some(match total {
            None => report,
            Some(mut total) => {
                total.elapsed = total.elapsed.max(report.elapsed);
                for (mine, theirs) in total.latencies.iter_mut().zip(&report.latencies) {
                    mine.merge(theirs);
                }
                total.aborts += report.aborts;
                total.rollbacks += report.rollbacks;
                total.checksum = total.checksum.wrapping_add(report.checksum);
                total
            }
        });
    }
    Ok(total.expect("a run has a client"))
}

/// A transaction that has committed but is not yet known to be durable.
struct Pending {
    lsn: Lsn,
    kind: Kind,
    began: Instant,
}

fn run_client<C: Client>(
    mut client: C,
    number: usize,
    engine: Option<&Arc<Engine>>,
    options: Options,
    live: &Live,
) -> Result<Report> {
    let mut terminal = Terminal::new(options.scale, options.seed, number, options.clients);
    let mut report = Report {
        elapsed: Duration::ZERO,
        latencies: Default::default(),
        aborts: 0,
        rollbacks: 0,
        checksum: 0,
    };
    let mut pending = VecDeque::with_capacity(1 << 12);
    let start = now();
    let end = start + options.duration;
    let mut began = start;
    while began < end && !live.stop.load(Ordering::Relaxed) {
        let input = terminal.next_input();
        let done = loop {
            match client.run(&input) {
                Ok(done) => break done,
                Err(error) if error.is_retryable() => {
                    report.aborts += 1;
                    live.aborts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        };
        let ended = now();
        report.checksum = report.checksum.wrapping_add(done.displayed);
        if !done.committed {
            report.rollbacks += 1;
        } else if let Some(lsn) = done.lsn {
            pending.push_back(Pending { lsn, kind: input.kind(), began });
        } else {
            report.count(input.kind(), ended - began, live);
        }
        if let Some(engine) = engine
            && !pending.is_empty()
        {
            let durable = engine.durable_lsn();
            while let Some(first) = pending.pop_front_if(|first: &mut Pending| first.lsn <= durable) {
                report.count(first.kind, ended - first.began, live);
            }
        }
        began = ended;
    }
    report.elapsed = began - start;
    Ok(report)
}

impl Report {
    fn count(&mut self, kind: Kind, latency: Duration, live: &Live) {
        self.latencies[kind as usize].record(latency);
        // ORDERING: statistics; nothing is read on the strength of them.
        live.counted[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}
