//! `firn-compare`: the same workloads on other engines in the same run, alternating, and trials that
//! need a whole server. Each subcommand is one bar or one proof; `wire.py` beside it is the rest.

mod answers;
mod crash;
mod echo;
mod isolation;
mod loads;
mod pipeline;
mod point_reads;
mod restart;
mod server;
mod tpch;
mod wire_client;

use clap::Parser;
use std::process::ExitCode;

/// The allocator of the `firn` binary, for every engine alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Anything that goes wrong ends the program with its message.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(name = "firn-compare", about = "FirnDB beside other engines")]
enum Command {
    /// Reads by primary key, prepared, in process: FirnDB and SQLite in memory.
    PointReads(point_reads::Options),
    /// TPC-H: FirnDB and DataFusion over batches in memory.
    Tpch(tpch::Options),
    /// Writes TPC-H's tables and our answers as CSV files, for another engine to check.
    Answers(answers::Options),
    /// Round trips to a server that does nothing: what socket and client cost.
    Echo(echo::Options),
    /// Reads by primary key in pipelines over a socket, from clients that do next to nothing.
    Pipeline(pipeline::Options),
    /// Reopening after a clean stop, and replaying the log after a crash.
    Restart(restart::Options),
    /// Kills a server under load, again and again, and checks what it has kept.
    Crash(crash::Options),
    /// Random histories of transactions, in process or beside kills, checked for anomalies.
    Isolation(isolation::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::PointReads(options) => point_reads::run(options),
        Command::Tpch(options) => tpch::run(options),
        Command::Answers(options) => answers::run(options),
        Command::Echo(options) => echo::run(options),
        Command::Pipeline(options) => pipeline::run(options),
        Command::Restart(options) => restart::run(options),
        Command::Crash(options) => crash::run(options),
        Command::Isolation(options) => isolation::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("firn-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
