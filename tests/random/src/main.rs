//! Random statements, answered by us and by PostgreSQL 15.
//!
//! `choices` draws, `generate` makes statements of what is drawn, `in_process` and `server` answer them (a server that `own` starts, the
//! whole engine with storage and protocol), `compare` says whether two answers are the same, `shrink` makes a statement small whose answers differ, `coverage` counts what has been
//! tried. `mistakes` compares the parser alone. Each statement has a seed of its own, one more than the one before; the report prints it.

mod choices;
mod compare;
mod coverage;
mod engine;
mod generate;
mod in_process;
mod mistakes;
mod own;
mod schema;
mod server;
mod shrink;

use choices::Choices;
use compare::{Comparison, Difference, compare};
use coverage::Coverage;
use engine::{Answer, Engine, Statement};
use generate::{Generated, generate};
use in_process::InProcess;
use own::OwnServer;
use server::Server;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
firn-random --postgres HOST:PORT [OPTION…]

  --postgres HOST:PORT  PostgreSQL 15: the oracle; user postgres, trusted. FIRN_POSTGRES says the same
  --firn PATH           the firn binary: a server of it is asked as well, and statements change rows, too
  --engine HOST:PORT    a server of ours to ask, instead of the engine within this process
  --seed N              the seed of the first statement (drawn from the clock)
  --count N             how many statements (2000)
  --vector-rows N       how many rows a vector has (3)
  --mistakes N          compares only the parser, with so many texts that have mistakes
  --shrink N            how many differences are made small (25)
  --coverage            prints how often each cell is covered
  --print               prints the statements
  --without-rewrites    only unnests
  --text STATEMENT      asks this statement only, and prints its plans and both answers
";

/// Shares of all statements, in percent.
const ROWS_AT_LEAST: usize = 65;
const OPEN_ERRORS_PER_THOUSAND: usize = 5;

struct Arguments {
    postgres: Option<String>,
    engine: Option<String>,
    firn: Option<PathBuf>,
    seed: u64,
    count: u64,
    vector_rows: usize,
    shrink: usize,
    mistakes: Option<u64>,
    coverage: bool,
    print: bool,
    rewrites: bool,
    text: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let mut arguments = Arguments {
        postgres: std::env::var("FIRN_POSTGRES").ok(),
        engine: None,
        firn: None,
        seed: firn_base::random::Random::from_entropy().next_u64() % 1_000_000_000,
        count: 2000,
        vector_rows: 3,
        shrink: 25,
        mistakes: None,
        coverage: false,
        print: false,
        rewrites: true,
        text: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--coverage" => arguments.coverage = true,
            "--print" => arguments.print = true,
            "--without-rewrites" => arguments.rewrites = false,
            name => {
                let value = given.next()?;
                match name {
                    "--postgres" => arguments.postgres = Some(value),
                    "--text" => arguments.text = Some(value),
                    "--firn" => arguments.firn = Some(value.into()),
                    "--engine" => arguments.engine = Some(value),
                    "--seed" => arguments.seed = value.parse().ok()?,
                    "--count" => arguments.count = value.parse().ok()?,
                    "--vector-rows" => arguments.vector_rows = value.parse().ok()?,
                    "--mistakes" => arguments.mistakes = Some(value.parse().ok()?),
                    "--shrink" => arguments.shrink = value.parse().ok()?,
                    _ => return None,
                }
            }
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    let Some(address) = &arguments.postgres else {
        eprintln!("no PostgreSQL is named: --postgres HOST:PORT");
        return ExitCode::from(2);
    };
    // Recursion in rules, trees and plans is deep in a build without optimisation.
    let run = || match with_database(address, |oracle| run(&arguments, oracle)) {
        Ok(passed) => passed,
        Err(error) => {
            eprintln!("{address}: {error}");
            false
        }
    };
    let passed = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(256 << 20);
        builder.spawn_scoped(scope, run).expect("a thread can be started").join().unwrap_or(false)
    });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Calls with a connection to a new database that has the tables.
fn with_database(
    address: &str,
    call: impl FnOnce(&mut Server) -> std::io::Result<bool>,
) -> std::io::Result<bool> {
    let mut administrator = Server::connect(address, "postgres", "postgres")?;
    let name = format!("firn_random_{}", std::process::id());
    administrator.execute(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    ))?;
    let result = (|| {
        let mut oracle = Server::connect(address, "postgres", &name)?;
        oracle.execute("SET timezone = 'UTC'")?;
        make_tables(&mut oracle)?;
        call(&mut oracle)
    })();
    administrator.execute(&format!("DROP DATABASE {name} WITH (FORCE)"))?;
    result
}

fn make_tables(server: &mut Server) -> std::io::Result<()> {
    schema::statements().iter().try_for_each(|statement| server.execute(statement))?;
    server.execute("ANALYZE")
}

/// What has been counted.
#[derive(Default)]
struct Counts {
    with_rows: usize,
    without_rows: usize,
    same_errors: BTreeMap<String, usize>,
    open_errors: usize,
    too_long: usize,
    differences: usize,
}

/// What is asked beside the oracle.
struct Engines {
    in_process: Option<InProcess>,
    server: Option<Server>,
    /// The server's process.
    _own: Option<OwnServer>,
}

impl Engines {
    fn start(arguments: &Arguments) -> std::io::Result<Engines> {
        let own = match (&arguments.engine, &arguments.firn) {
            (None, Some(firn)) => Some(OwnServer::start(firn)?),
            _ => None,
        };
        let address = arguments.engine.as_ref().or(own.as_ref().map(|own| &own.address));
        let server = match address {
            None => None,
            Some(address) => {
                let mut server = Server::connect_own(address)?;
                schema::statements().iter().try_for_each(|statement| server.execute(statement))?;
                Some(server)
            }
        };
        let in_process = arguments.engine.is_none().then(|| {
            let mut engine = InProcess::new(arguments.vector_rows);
            engine.optimise = arguments.rewrites;
            engine.explain = arguments.text.is_some();
            engine
        });
        Ok(Engines { in_process, server, _own: own })
    }

    /// Asks all of them, up to the first that differs: its answer, the oracle's, and what they come to.
    fn ask(&mut self, oracle: &mut Server, generated: &Generated) -> (Answer, Answer, Comparison) {
        let statement = &generated.statement;
        let theirs = oracle.run(statement);
        let mut engines: Vec<&mut dyn Engine> = Vec::new();
        if let Some(engine) = &mut self.in_process {
            // It has no storage.
            if statement.changed.is_none() {
                engines.push(engine);
            }
        }
        if let Some(server) = &mut self.server {
            engines.push(server);
        }
        let mut last = None;
        for engine in engines {
            let ours = engine.run(statement);
            let comparison = compare(&ours, &theirs, &generated.ordering, generated.may_choose());
            let differs = matches!(comparison, Comparison::Differ(_));
            last = Some((ours, comparison));
            if differs {
                break;
            }
        }
        let (ours, comparison) = last.expect("one of them can answer");
        (ours, theirs, comparison)
    }
}

fn run(arguments: &Arguments, oracle: &mut Server) -> std::io::Result<bool> {
    if let Some(count) = arguments.mistakes {
        return mistakes::run(oracle, arguments.seed, count);
    }
    let mut engines = Engines::start(arguments)?;
    let changes = engines.server.is_some();
    if let Some(text) = &arguments.text {
        let statement = Statement { text: text.clone(), parameters: Vec::new(), changed: None };
        let generated = Generated {
            statement,
            ordering: compare::Ordering::Open,
            cells: Default::default(),
            record: Vec::new(),
            spans: Vec::new(),
        };
        let (ours, theirs, comparison) = engines.ask(oracle, &generated);
        println!("  ours   {}\n  theirs {}", shown(&ours), shown(&theirs));
        return Ok(comparison == Comparison::Same { has_rows: true });
    }
    println!("seed {}, {} statements", arguments.seed, arguments.count);
    let (mut counts, mut coverage) = (Counts::default(), Coverage::default());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut shrunk: Vec<String> = Vec::new();
    let mut changing = 0;
    for seed in arguments.seed..arguments.seed + arguments.count {
        let generated = generate(Choices::random(seed), changes);
        changing += usize::from(generated.statement.changed.is_some());
        if arguments.print {
            println!("-- {seed}\n{};", generated.statement.text);
        }
        let (_, _, comparison) = engines.ask(oracle, &generated);
        match comparison {
            Comparison::Same { has_rows: true } => {
                counts.with_rows += 1;
                coverage.add(&generated.cells);
            }
            Comparison::Same { has_rows: false } => counts.without_rows += 1,
            Comparison::SameError(state) => {
                *counts.same_errors.entry(state.as_str().to_owned()).or_default() += 1;
                if arguments.print {
                    println!("-- error {}", state.as_str());
                }
            }
            Comparison::OpenError => counts.open_errors += 1,
            Comparison::TooLong => counts.too_long += 1,
            Comparison::Differ(difference) => {
                counts.differences += 1;
                let kind = format!("{difference:?}");
                let seen = kinds.entry(kind.clone()).or_default();
                *seen += 1;
                // One statement for each panic or error; a few of other kinds.
                let most = match difference {
                    Difference::Failure(_) | Difference::Error(_) => 1,
                    _ => 8,
                };
                if difference == Difference::Slow {
                    // Each attempt at shrinking would take as long.
                    println!("\nSLOW seed {seed}:\n{};", generated.statement.text);
                } else if *seen <= most && shrunk.len() < arguments.shrink {
                    let report = report(seed, &generated, &difference, &mut engines, oracle);
                    if !shrunk.contains(&report) {
                        println!("\n{report}");
                        shrunk.push(report);
                    }
                }
            }
        }
    }
    println!();
    for (kind, count) in &kinds {
        println!("{count:>6}  {kind}");
    }
    for (state, count) in &counts.same_errors {
        println!("{count:>6}  the same error {state}");
    }
    if arguments.coverage {
        print!("{}", coverage.table());
    }
    println!("{}", coverage.summary());
    let all = arguments.count as usize;
    println!(
        "seed {}: {all} statements, {changing} of them change rows, {} with rows, {} without, {} with equal errors, {} with errors that depend on the \
         order of evaluation, {} too long, {} differ",
        arguments.seed,
        counts.with_rows,
        counts.without_rows,
        counts.same_errors.values().sum::<usize>(),
        counts.open_errors,
        counts.too_long,
        counts.differences
    );
    let has_rows = counts.with_rows * 100 >= all * ROWS_AT_LEAST;
    let few_open = counts.open_errors * 1000 <= (all * OPEN_ERRORS_PER_THOUSAND).max(1000);
    if all >= 1000 && !has_rows {
        println!("fewer than {ROWS_AT_LEAST} % of the statements give rows");
    }
    if !few_open {
        println!("too many errors depend on the order of evaluation");
    }
    Ok(counts.differences == 0 && (has_rows || all < 1000) && few_open)
}

/// The smallest statement that differs so, and both answers.
fn report(
    seed: u64,
    generated: &Generated,
    difference: &Difference,
    engines: &mut Engines,
    oracle: &mut Server,
) -> String {
    let changes = engines.server.is_some();
    let mut fails = |candidate: &Generated| matches!(engines.ask(oracle, candidate).2, Comparison::Differ(found) if found == *difference);
    let small = shrink::shrink(generated.record.clone(), changes, &mut fails);
    let (ours, theirs, _) = engines.ask(oracle, &small);
    let mut text = format!("DIFFERENCE of seed {seed}: {difference:?}\n{};\n", small.statement.text);
    for (number, parameter) in small.statement.parameters.iter().enumerate() {
        text += &format!("  ${} = {:?} of {:?}\n", number + 1, parameter.value, parameter.oid);
    }
    text + &format!("  ours   {}\n  theirs {}", shown(&ours), shown(&theirs))
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Failure(message) => message.clone(),
        Answer::Error { state, message } => format!("{} {message}", state.as_str()),
        Answer::Rows { columns, parameters, rows, tag, after } => {
            let columns: Vec<String> =
                columns.iter().map(|column| format!("{} {}", column.name, column.oid)).collect();
            let row = |row: &engine::Row| {
                let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_owned());
                row.iter().map(cell).collect::<Vec<_>>().join("|")
            };
            let lines: Vec<String> = rows.iter().take(20).map(row).collect();
            let after = after.iter().flat_map(|(_, rows)| rows).map(row).collect::<Vec<_>>().join(" / ");
            let after = if after.is_empty() { after } else { format!("; then {after}") };
            let (columns, lines) = (columns.join(", "), lines.join(" / "));
            format!("{tag} ({columns}) {parameters:?} {} rows: {lines}{after}", rows.len())
        }
    }
}
