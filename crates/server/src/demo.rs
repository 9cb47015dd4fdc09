//! `firn demo`: the purpose of the database, in half a minute. Orders are entered and analyses run over the
//! same rows at the same time; at the end the consistency conditions must hold.
//!
//! On a terminal the view is redrawn in place; elsewhere a line is printed every few seconds.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

use firn_base::sync::Ordering;
use firn_bench::ch::mixed::{self, QUERIES, QueryLive};
use firn_bench::driver::Live;
use firn_bench::tpcc::{Kind, Scale};
use firn_bench::{resident_bytes, short_bytes, short_duration};
use firn_session::Database;
use firn_wire::Server;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::Failure;
use crate::bench::{check, load_ch, print_queries, serve};
use crate::output::say;

/// Arguments of `firn demo`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Warehouses: about 500,000 rows each.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    warehouses: i32,
    /// For how long.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Clients that run transactions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Only transactions.
    #[arg(long)]
    without_queries: bool,
    /// Serve the database during the demo, and afterwards until interrupted.
    #[arg(long)]
    serve: bool,
    /// Address of the server; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432")]
    listen: String,
}

/// Runs the demonstration.
pub fn run(options: Options) -> Result<(), Failure> {
    let directory = tempfile::Builder::new().prefix("firn-demo").tempdir().map_err(Failure::new)?;
    let database = Database::open(directory.path()).map_err(Failure::data)?;
    let scale = Scale::warehouses(options.warehouses);
    say!("CH-benCHmark, {} warehouses, in {}", options.warehouses, directory.path().display())?;
    load_ch(&database, scale)?;

    let (interrupt, interrupted) = mpsc::channel();
    let server = if options.serve {
        ctrlc::set_handler(move || {
            let _ = interrupt.send(());
        })
        .map_err(Failure::new)?;
        Some(serve(&database, &options.listen)?)
    } else {
        None
    };
    if let Some(server) = &server {
        say!("{}", how_to_connect(server))?;
    }

    let run = mixed::Options {
        scale,
        clients: usize::from(options.clients),
        duration: Duration::from_secs(options.seconds),
        rate: None,
        queries: !options.without_queries,
        pinned: std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
    };
    let (live, query_live) = (Live::default(), QueryLive::default());
    let mut view = View::new(options.seconds);
    let mut shown = Ok(());
    let report = mixed::run(&database, run, &live, &query_live, &mut |elapsed| {
        if shown.is_ok() {
            shown = view.show(elapsed, &live, &query_live);
        }
        if shown.is_err() || interrupted.try_recv().is_ok() {
            live.stop.store(true, Ordering::Relaxed);
        }
    })
    .map_err(Failure::new)?;
    view.finish();
    shown?;

    say!("{}", report.transactions)?;
    if let Some(queries) = &report.queries {
        print_queries(queries, report.transactions.elapsed)?;
    }
    say!("{} of memory", short_bytes(resident_bytes()))?;
    check(&database, scale)?;
    if let Some(queries) = &report.queries
        && !queries.failures.is_empty()
    {
        return Err(Failure::new(format!("{} queries failed", queries.failures.len())));
    }
    match server {
        Some(server) => {
            say!("{}\nInterrupt to stop.", how_to_connect(&server))?;
            let _ = interrupted.recv();
            server.shutdown();
            Ok(())
        }
        None => say!(
            "To look at the rows yourself: firn demo --serve, then psql -h 127.0.0.1 -p 5432 -U firn firn"
        ),
    }
}

fn how_to_connect(server: &Server) -> String {
    let address = server.local_addr();
    format!("Connect with: psql -h {} -p {} -U firn firn", address.ip(), address.port())
}

/// The display during the run.
struct View {
    seconds: u64,
    terminal: Option<Bars>,
    /// Transactions at the last update, and its time.
    last: (u64, Duration),
    /// When the next line is due, without a terminal.
    next_line: Duration,
}

/// Lines that are redrawn in place.
struct Bars {
    time: ProgressBar,
    transactions: ProgressBar,
    queries: ProgressBar,
    state: ProgressBar,
}

/// How often a line is printed without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the lines on a terminal change.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

impl View {
    fn new(seconds: u64) -> View {
        let terminal = std::io::stderr().is_terminal().then(|| {
            let bars = MultiProgress::new();
            let line = |template: &str, length| {
                let bar = bars.add(ProgressBar::new(length));
                bar.set_style(ProgressStyle::with_template(template).expect("the template is fine"));
                bar
            };
            Bars {
                time: line("{wide_bar} {msg}", seconds * 10),
                transactions: line("transactions  {msg}", 1),
                queries: line("queries       {msg}", 1),
                state: line("state         {msg}", 1),
            }
        });
        let next_line = if terminal.is_some() { REDRAW_INTERVAL } else { LINE_INTERVAL };
        View { seconds, terminal, last: (0, Duration::ZERO), next_line }
    }

    fn show(&mut self, elapsed: Duration, live: &Live, query_live: &QueryLive) -> Result<(), Failure> {
        if let Some(bars) = &self.terminal {
            bars.time.set_position(elapsed.as_millis() as u64 / 100);
        }
        if elapsed < self.next_line {
            return Ok(());
        }
        self.next_line += if self.terminal.is_some() { REDRAW_INTERVAL } else { LINE_INTERVAL };

        let total = live.total();
        let rate = (total - self.last.0) as f64 / (elapsed - self.last.1).as_secs_f64();
        self.last = (total, elapsed);
        let new_orders = live.counted[Kind::NewOrder as usize].load(Ordering::Relaxed);
        let aborts = live.aborts.load(Ordering::Relaxed);
        let transactions =
            format!("{rate:.0} tx/s, {total} in all, {new_orders} new orders, {aborts} aborts");
        let queries = describe_queries(query_live);
        let freshness = Duration::from_micros(query_live.freshness_micros.load(Ordering::Relaxed));
        let state = format!(
            "newest commit seen {} old, {} of memory",
            short_duration(freshness),
            short_bytes(resident_bytes())
        );
        match &self.terminal {
            Some(bars) => {
                bars.time.set_message(format!("{} of {} s", elapsed.as_secs(), self.seconds));
                bars.transactions.set_message(transactions);
                bars.queries.set_message(queries);
                bars.state.set_message(state);
                Ok(())
            }
            None => say!("{:>3} s: {transactions}; {queries}; {state}", elapsed.as_secs()),
        }
    }

    fn finish(&self) {
        if let Some(bars) = &self.terminal {
            for bar in [&bars.time, &bars.transactions, &bars.queries, &bars.state] {
                bar.finish_and_clear();
            }
        }
    }
}

/// How many queries ran, and the times of the last ones.
fn describe_queries(live: &QueryLive) -> String {
    const TOLD: usize = 4;
    let runs = |number: usize| live.runs[number - 1].load(Ordering::Relaxed);
    let total: u64 = (1..=QUERIES).map(runs).sum();
    let running = live.running.load(Ordering::Relaxed);
    if running == 0 {
        return "none".to_owned();
    }
    let mut text = format!("{total} answered");
    for back in 1..=TOLD {
        let number = (running + QUERIES - 1 - back) % QUERIES + 1;
        if runs(number) > 0 {
            let nanos = live.last_nanos[number - 1].load(Ordering::Relaxed);
            text.push_str(&format!(", Q{number} {}", short_duration(Duration::from_nanos(nanos))));
        }
    }
    text
}
