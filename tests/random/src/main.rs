//! Random statements, run on FirnDB and on PostgreSQL 15.
//!
//! `choices` makes random choices, `generate` makes statements from them, `in_process` and `server` run them (a server that
//! `own` starts is the whole engine with storage and protocol), `compare` checks whether two results are the same and `open`
//! what SQL leaves open about errors, `shrink` makes a statement with different results smaller, `coverage` counts what has
//! been tried. `mistakes` compares the parser alone. Each statement has a seed of its own, one more than the one before; the
//! report prints it.
//!
//! In process each statement runs twice: with all rewrites, spilling and on several threads by chance of its seed, and with one rewrite
//! left out. Some statements are made with others that have their rows together (ternary logic partitioning).

mod choices;
mod compare;
mod coverage;
mod engine;
mod generate;
mod in_process;
mod mistakes;
mod open;
mod own;
mod schema;
mod server;
mod shrink;

use choices::Choices;
use compare::{Comparison, Difference, compare, is_partitioned};
use coverage::Coverage;
use engine::{Answer, Engine, Statement};
use generate::{Generated, Kinds, generate};
use in_process::{InProcess, Way};
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
  --mistakes N          compares only the parser, with N texts that have errors
  --shrink N            how many differences are made small (25)
  --partitions          makes only queries with others that have their rows together
  --coverage            prints how often each cell is covered
  --print               prints the statements
  --without-rewrites    only unnests
  --until-difference    ends with status 3 at the first difference
  --text STATEMENT      asks this statement only, in the ways of --seed, and prints its plans and both answers
";

/// Shares of all statements, in percent.
const ROWS_AT_LEAST: usize = 70;
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
    partitions: bool,
    coverage: bool,
    print: bool,
    rewrites: bool,
    until_difference: bool,
    text: Option<String>,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// At a difference, as it was asked to.
    Differed,
}

impl Arguments {
    /// Only a server changes rows.
    fn kinds(&self, engines: &Engines) -> Kinds {
        match (self.partitions, &engines.server) {
            (true, _) => Kinds::Partitions,
            (false, Some(_)) => Kinds::All,
            (false, None) => Kinds::Queries,
        }
    }
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
        partitions: false,
        coverage: false,
        print: false,
        rewrites: true,
        until_difference: false,
        text: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--partitions" => arguments.partitions = true,
            "--coverage" => arguments.coverage = true,
            "--print" => arguments.print = true,
            "--without-rewrites" => arguments.rewrites = false,
            "--until-difference" => arguments.until_difference = true,
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
        Ok(end) => end,
        Err(error) => {
            eprintln!("{address}: {error}");
            End::Failed
        }
    };
    let end = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(256 << 20);
        builder.spawn_scoped(scope, run).expect("a thread can be started").join().unwrap_or(End::Failed)
    });
    match end {
        End::Passed => ExitCode::SUCCESS,
        End::Failed => ExitCode::FAILURE,
        End::Differed => ExitCode::from(3),
    }
}

/// Calls with a connection to a new database that has the tables.
fn with_database(
    address: &str,
    call: impl FnOnce(&mut Server) -> std::io::Result<End>,
) -> std::io::Result<End> {
    let mut administrator = Server::connect(address, "postgres", "postgres")?;
    let name = format!("firn_random_{}", std::process::id());
    administrator.execute(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    ))?;
    let result = (|| {
        let mut oracle = Server::connect(address, "postgres", &name)?;
        oracle.execute("SET timezone = 'UTC'")?;
        // It would compile plans that it takes for expensive; the tables have a few rows.
        oracle.execute("SET jit = off")?;
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

/// The counts of a run.
#[derive(Default)]
struct Counts {
    with_rows: usize,
    without_rows: usize,
    same_errors: BTreeMap<String, usize>,
    open_errors: usize,
    no_oracle: usize,
    /// Statements whose parts have been compared, and those of which a part has failed.
    partitions: usize,
    failed_partitions: usize,
    differences: usize,
}

/// The engines that are compared with the oracle.
struct Engines {
    in_process: InProcess,
    /// Whether that is asked, and not only what SQL leaves open about a statement.
    asks_in_process: bool,
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
        let mut in_process = InProcess::new(arguments.vector_rows);
        in_process.optimise = arguments.rewrites;
        in_process.explain = arguments.text.is_some();
        Ok(Engines { in_process, asks_in_process: arguments.engine.is_none(), server, _own: own })
    }

    /// Asks all of them in these ways, up to the first that differs.
    fn ask(&mut self, oracle: &mut Server, generated: &Generated, ways: &[Way]) -> Asked {
        let statement = &generated.statement;
        let theirs = oracle.run(statement);
        let mut last = None;
        // In process it has no storage.
        if statement.changed.is_none() && self.asks_in_process {
            for way in ways {
                self.in_process.way = *way;
                let ours = self.in_process.run(statement);
                let asked = self.judged(oracle, generated, ours, &theirs, Some(*way));
                let differs = matches!(asked.comparison, Comparison::Differ(_));
                last = Some(asked);
                if differs {
                    break;
                }
            }
        }
        let differs = matches!(&last, Some(Asked { comparison: Comparison::Differ(_), .. }));
        if !differs && let Some(server) = &mut self.server {
            let ours = server.run(statement);
            last = Some(self.judged(oracle, generated, ours, &theirs, None));
        }
        last.expect("one of them can answer")
    }

    fn judged(
        &mut self,
        oracle: &mut Server,
        generated: &Generated,
        ours: Answer,
        theirs: &Answer,
        way: Option<Way>,
    ) -> Asked {
        let open = || self.in_process.leaves_open(&generated.statement);
        let comparison = compare(&ours, theirs, &generated.ordering, generated.may_choose(), &open);
        let mut asked = Asked { ours, theirs: theirs.clone(), comparison, way, is_partitioned: None };
        let Some(partition) = &generated.partition else { return asked };
        if !matches!(asked.comparison, Comparison::Same { .. }) {
            return asked;
        }
        let mut parts = Vec::new();
        for text in &partition.parts {
            let part = Statement { text: text.clone(), parameters: Vec::new(), changed: None };
            let answer = match (way, &mut self.server) {
                (None, Some(server)) => server.run(&part),
                _ => self.in_process.run(&part),
            };
            let is_bad = match &answer {
                Answer::Rows { .. } => None,
                Answer::Failure(message) => Some(Difference::Failure(message.clone())),
                // A condition may fail that the whole does not have.
                Answer::Error { state, .. } if matches!(&state.as_str()[..2], "21" | "22") => None,
                Answer::Error { state, message } => match oracle.run(&part) {
                    Answer::Error { state: theirs, .. } if *state == theirs => None,
                    _ => Some(Difference::Error(format!("{} {message} of a part", state.as_str()))),
                },
            };
            if let Some(difference) = is_bad {
                asked.comparison = Comparison::Differ(difference);
                return asked;
            }
            parts.push(answer);
        }
        asked.is_partitioned = is_partitioned(&asked.ours, &parts, true);
        if asked.is_partitioned == Some(false) {
            let texts = partition.parts.join(";\n");
            let shown = parts.iter().map(shown).collect::<Vec<_>>().join("\n         ");
            asked.theirs = Answer::Failure(format!("the parts {texts};\n         {shown}"));
            asked.comparison = Comparison::Differ(Difference::Partition);
        }
        asked
    }
}

/// Answers and what they come to.
struct Asked {
    ours: Answer,
    theirs: Answer,
    comparison: Comparison,
    /// How it ran in process.
    way: Option<Way>,
    /// Whether its parts have its rows, if it has some and none has failed.
    is_partitioned: Option<bool>,
}

fn run(arguments: &Arguments, oracle: &mut Server) -> std::io::Result<End> {
    if let Some(count) = arguments.mistakes {
        let passed = mistakes::run(oracle, arguments.seed, count)?;
        return Ok(if passed { End::Passed } else { End::Failed });
    }
    let mut engines = Engines::start(arguments)?;
    let kinds = arguments.kinds(&engines);
    if let Some(text) = &arguments.text {
        let statement = Statement { text: text.clone(), parameters: Vec::new(), changed: None };
        let generated = Generated {
            statement,
            ordering: compare::Ordering::Open,
            partition: None,
            cells: Default::default(),
            record: Vec::new(),
            spans: Vec::new(),
        };
        let asked = engines.ask(oracle, &generated, &ways(arguments, arguments.seed));
        println!("  {:?}\n  ours   {}\n  theirs {}", asked.way, shown(&asked.ours), shown(&asked.theirs));
        let is_same = matches!(asked.comparison, Comparison::Same { .. });
        return Ok(if is_same { End::Passed } else { End::Failed });
    }
    println!("seed {}, {} statements", arguments.seed, arguments.count);
    let (mut counts, mut coverage) = (Counts::default(), Coverage::default());
    let mut differences: BTreeMap<String, usize> = BTreeMap::new();
    let mut shrunk: Vec<String> = Vec::new();
    let mut changing = 0;
    for seed in arguments.seed..arguments.seed + arguments.count {
        let generated = generate(Choices::random(seed), kinds);
        changing += usize::from(generated.statement.changed.is_some());
        if arguments.print {
            println!("-- {seed}\n{};", generated.statement.text);
            let parts = generated.partition.iter().flat_map(|partition| &partition.parts);
            parts.for_each(|part| println!("-- part\n{part};"));
        }
        let ways = ways(arguments, seed);
        let asked = engines.ask(oracle, &generated, &ways);
        if generated.partition.is_some() && matches!(asked.comparison, Comparison::Same { .. }) {
            counts.partitions += 1;
            counts.failed_partitions += usize::from(asked.is_partitioned.is_none());
        }
        match asked.comparison {
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
            Comparison::NoOracle => counts.no_oracle += 1,
            Comparison::Differ(difference) => {
                counts.differences += 1;
                let kind = format!("{difference:?}");
                let seen = differences.entry(kind.clone()).or_default();
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
                    let report = report(seed, &generated, &difference, kinds, &ways, &mut engines, oracle);
                    if !shrunk.contains(&report) {
                        println!("\n{report}");
                        shrunk.push(report);
                    }
                }
                if arguments.until_difference {
                    println!("a difference after {} statements: {kind}", seed + 1 - arguments.seed);
                    return Ok(End::Differed);
                }
            }
        }
    }
    println!();
    for (kind, count) in &differences {
        println!("{count:>6}  {kind}");
    }
    for (state, count) in &counts.same_errors {
        println!("{count:>6}  the same error {state}");
    }
    if arguments.coverage {
        print!("{}", coverage.table());
    }
    let all = arguments.count as usize;
    let (summary, is_covered) = coverage.summary(all, kinds);
    println!("{summary}");
    println!(
        "{} statements have the rows of their parts; of {} more a part has failed",
        counts.partitions - counts.failed_partitions,
        counts.failed_partitions
    );
    println!(
        "seed {}: {all} statements, {changing} of them change rows, {} with rows, {} without, {} with equal errors, {} with errors that depend on the \
         order of evaluation, {} too long or failed on the oracle, {} differ",
        arguments.seed,
        counts.with_rows,
        counts.without_rows,
        counts.same_errors.values().sum::<usize>(),
        counts.open_errors,
        counts.no_oracle,
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
    let passed = counts.differences == 0 && (has_rows || all < 1000) && few_open && is_covered;
    Ok(if passed { End::Passed } else { End::Failed })
}

/// How the statement of a seed runs in process.
fn ways(arguments: &Arguments, seed: u64) -> Vec<Way> {
    match arguments.rewrites {
        true => Way::of(seed).to_vec(),
        false => vec![Way::default()],
    }
}

/// The smallest statement that differs so, and both answers.
fn report(
    seed: u64,
    generated: &Generated,
    difference: &Difference,
    kinds: Kinds,
    ways: &[Way],
    engines: &mut Engines,
    oracle: &mut Server,
) -> String {
    let mut fails = |candidate: &Generated| {
        let asked = engines.ask(oracle, candidate, ways);
        matches!(asked.comparison, Comparison::Differ(found) if found == *difference)
    };
    let small = shrink::shrink(generated.record.clone(), kinds, &mut fails);
    let Asked { ours, theirs, way, .. } = engines.ask(oracle, &small, ways);
    let engine = way.map_or_else(|| "the server".to_owned(), |way| format!("{way:?}"));
    let mut text =
        format!("DIFFERENCE of seed {seed}: {difference:?} of {engine}\n{};\n", small.statement.text);
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
