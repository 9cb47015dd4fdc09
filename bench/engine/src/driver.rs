//! Runs a workload's transactions, and counts them.
//!
//! Every thread is a terminal and a client at once: it enters the next input as soon as the last
//! transaction has committed. A transaction counts once it is durable. Clients of the native
//! interface do not wait for that. They run ahead and check after every transaction how much of the
//! log is durable, as a server with many connections would. Its latency is the time from its start to
//! that check. Transactions that are not durable at the end do not count.

use crate::histogram::Histogram;
use firn_base::clock::{Instant, now, sleep, thread_cpu_time};
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Lsn, Result};
use firn_txn::Engine;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// The most kinds of transactions of a workload.
pub const MAX_KINDS: usize = 8;

/// A terminal and client of a workload: runs one transaction at a time.
pub trait Client {
    /// The names of the workload's kinds of transactions.
    const KINDS: &'static [&'static str];

    /// Draws the next input; returns its kind.
    fn next_input(&mut self) -> usize;

    /// Runs the transaction of the last input. The driver calls again after errors that
    /// may be retried.
    fn run(&mut self) -> Result<Done>;

    /// Whether a conflicting transaction can proceed while this one waits. Clients that take turns in one thread cannot wait.
    fn may_wait(&self) -> bool {
        true
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// False if it rolled back, or found nothing to do, as the specification requires.
    pub committed: bool,
    /// The LSN up to which the log must be durable, if it is not yet.
    pub lsn: Option<Lsn>,
    /// The numbers that its terminal would display, added up.
    pub displayed: i64,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Clients, each a thread.
    pub clients: usize,
    /// For how long.
    pub duration: Duration,
    /// Pins the clients to this core.
    pub core: Option<usize>,
    /// The most transactions a second that all clients together begin.
    pub rate: Option<u64>,
}

/// Clients that are ahead of their rate by less than this do not sleep: a shorter sleep costs more than it saves. Others
/// check at this interval how much of the log is durable, and whether the run has ended.
const AHEAD: Duration = Duration::from_millis(2);

/// The progress of all clients, for its display.
#[derive(Default)]
pub struct Live {
    /// Transactions that count, by kind.
    pub counted: [AtomicU64; MAX_KINDS],
    /// Attempts that failed with 40001 and were repeated.
    pub aborts: AtomicU64,
    /// Set to end the run early.
    pub stop: AtomicBool,
}

impl Live {
    /// Transactions that count, of all kinds.
    pub fn total(&self) -> u64 {
        // ORDERING: statistics; nothing depends on them.
        self.counted.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The results of a run.
#[derive(Clone)]
pub struct Report {
    /// How long it took.
    pub elapsed: Duration,
    /// The processor time of all clients: on a busy machine less than the time of the run.
    pub processor_time: Duration,
    /// Latencies of the transactions that count, by kind.
    pub latencies: Vec<Histogram>,
    /// Their names.
    pub kinds: &'static [&'static str],
    /// Attempts that failed with 40001 and were repeated.
    pub aborts: u64,
    /// Transactions that did not commit, as the specification requires; they are not counted elsewhere.
    pub rollbacks: u64,
    /// The sum of everything displayed: shows that two runs did the same.
    pub checksum: i64,
}

impl Report {
    /// Transactions per second, of all kinds.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64()
    }

    /// Transactions per second of processor time of the clients.
    pub fn per_processor_second(&self) -> f64 {
        self.count() as f64 / self.processor_time.as_secs_f64()
    }

    fn count(&self) -> u64 {
        self.latencies.iter().map(Histogram::count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14}{:>12}{:>12}{:>12}{:>12}", "transaction", "count", "per second", "p50", "p99")?;
        let mut all = Histogram::default();
        self.latencies.iter().for_each(|latencies| all.merge(latencies));
        for (kind, latencies) in self.kinds.iter().zip(&self.latencies).chain([(&"all", &all)]) {
            writeln!(
                f,
                "{:<14}{:>12}{:>12.0}{:>12}{:>12}",
                kind,
                latencies.count(),
                latencies.count() as f64 / self.elapsed.as_secs_f64(),
                crate::short_duration(latencies.percentile(0.5)),
                crate::short_duration(latencies.percentile(0.99)),
            )?;
        }
        write!(
            f,
            "{:.0} tx/s ({:.0} per processor second), {} aborts, {} rollbacks as specified, {:.1} s, checksum {}",
            self.per_second(),
            self.per_processor_second(),
            self.aborts,
            self.rollbacks,
            self.elapsed.as_secs_f64(),
            self.checksum,
        )
    }
}

/// Runs clients made by `client`. Transactions count once the log of `engine` is durable up to them; without it, once they
/// have committed.
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
                let report = client(number).and_then(|client| run_client(client, engine, options, live));
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
                total.processor_time += report.processor_time;
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
    kind: usize,
    began: Instant,
}

fn run_client<C: Client>(
    mut client: C,
    engine: Option<&Arc<Engine>>,
    options: Options,
    live: &Live,
) -> Result<Report> {
    let mut report = Report {
        elapsed: Duration::ZERO,
        processor_time: Duration::ZERO,
        latencies: vec![Histogram::default(); C::KINDS.len()],
        kinds: C::KINDS,
        aborts: 0,
        rollbacks: 0,
        checksum: 0,
    };
    let mut pending = VecDeque::with_capacity(1 << 12);
    let interval = options.rate.map(|rate| Duration::from_secs(options.clients as u64) / rate.max(1) as u32);
    // When the next transaction is due.
    let mut due = now();
    let processor_start = thread_cpu_time();
    let start = now();
    let end = start + options.duration;
    let mut began = start;
    while began < end && !live.stop.load(Ordering::Relaxed) {
        let kind = client.next_input();
        let mut retries = 0;
        let done = loop {
            match client.run() {
                Ok(done) => break done,
                Err(error) if error.is_retryable() => {
                    report.aborts += 1;
                    live.aborts.fetch_add(1, Ordering::Relaxed);
                    if let Some(engine) = engine.filter(|_| client.may_wait()) {
                        engine.pause(&error, retries);
                    }
                    retries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let ended = now();
        report.checksum = report.checksum.wrapping_add(done.displayed);
        match done.lsn.filter(|_| engine.is_some()) {
            _ if !done.committed => report.rollbacks += 1,
            Some(lsn) => pending.push_back(Pending { lsn, kind, began }),
            None => report.add(kind, ended - began, live),
        }
        report.add_durable(&mut pending, engine, ended, live);
        began = ended;
        if let Some(interval) = interval {
            // Time lost to a long pause is not made up for.
            due = (due + interval).max(ended - AHEAD);
            while due > began + AHEAD && began < end && !live.stop.load(Ordering::Relaxed) {
                sleep(AHEAD);
                began = now();
                report.add_durable(&mut pending, engine, began, live);
            }
        }
    }
    report.elapsed = began - start;
    report.processor_time = thread_cpu_time() - processor_start;
    Ok(report)
}

impl Report {
    /// Counts the transactions that have become durable.
    fn add_durable(
        &mut self,
        pending: &mut VecDeque<Pending>,
        engine: Option<&Arc<Engine>>,
        now: Instant,
        live: &Live,
    ) {
        let Some(engine) = engine.filter(|_| !pending.is_empty()) else { return };
        let durable = engine.durable_lsn();
        while let Some(first) = pending.pop_front_if(|first| first.lsn <= durable) {
            self.add(first.kind, now - first.began, live);
        }
    }

    fn add(&mut self, kind: usize, latency: Duration, live: &Live) {
        self.latencies[kind].record(latency);
        // ORDERING: statistics; nothing depends on them.
        live.counted[kind].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its transactions are never in the log.
    struct Unlogged;

    impl Client for Unlogged {
        const KINDS: &'static [&'static str] = &["one", "none"];

        fn next_input(&mut self) -> usize {
            0
        }

        fn run(&mut self) -> Result<Done> {
            Ok(Done { committed: true, lsn: Some(Lsn(u64::MAX)), displayed: 1 })
        }
    }

    #[test]
    fn transactions_are_counted_at_commit_without_a_log() {
        let in_memory = Engine::open(firn_txn::Config::default()).unwrap();
        let options = Options { clients: 1, duration: Duration::from_millis(5), core: None, rate: None };
        for engine in [Some(&in_memory), None] {
            let live = Live::default();
            let report = run(&|_| Ok(Unlogged), engine, options, &live).unwrap();
            assert!(report.checksum > 0);
            assert_eq!(report.latencies[0].count() as i64, report.checksum);
            assert_eq!(live.counted[0].load(Ordering::Relaxed) as i64, report.checksum);
        }
    }
}
