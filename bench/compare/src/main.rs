//! `firn-compare`: the same workloads on other engines in the same run, alternating. Each subcommand is one bar;
//! `wire.py`, `flight.py` and `load.py` are the rest.

mod echo;
mod pipeline;
mod point_reads;
mod tpch;

use clap::Parser;
use std::process::ExitCode;

/// The allocator of the `firn` binary, for every engine alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Every error ends the program with its message.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(name = "firn-compare", about = "FirnDB compared with other engines")]
enum Command {
    /// Reads by primary key, prepared, in process: FirnDB and SQLite in memory.
    PointReads(point_reads::Options),
    /// TPC-H: FirnDB and DataFusion over batches in memory.
    Tpch(tpch::Options),
    /// Round trips to a server that does nothing: the cost of socket and client.
    Echo(echo::Options),
    /// Reads by primary key in pipelines over a socket, from clients that do little work.
    Pipeline(pipeline::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::PointReads(options) => point_reads::run(options),
        Command::Tpch(options) => tpch::run(options),
        Command::Echo(options) => echo::run(options),
        Command::Pipeline(options) => pipeline::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("firn-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
