//! `firn-proofs`: trials of a whole server, and answers for another engine to check or beside another's. Each subcommand is one proof, and
//! fails if the proof does; `tests/proofs.rs` runs them as the gate does.

mod answers;
mod beside;
mod crash;
mod isolation;
mod loads;
mod restart;
mod server;
mod wire_client;

use clap::Parser;
use std::process::ExitCode;

/// The allocator of the `firn` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any error ends the program with its message.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(name = "firn-proofs", about = "Trials of FirnDB")]
enum Command {
    /// Writes TPC-H's tables and our answers as CSV files, for another engine to check.
    Answers(answers::Options),
    /// Our answers to TPC-H, CH-benCHmark and TPC-DS beside PostgreSQL's.
    Beside(beside::Options),
    /// Reopening after a clean stop, and replaying the log after a crash.
    Restart(restart::Options),
    /// Kills a server under load, again and again, and checks what it has kept.
    Crash(crash::Options),
    /// Random histories of transactions, in process or beside kills, checked for anomalies.
    Isolation(isolation::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Answers(options) => answers::run(options),
        Command::Beside(options) => beside::run(options),
        Command::Restart(options) => restart::run(options),
        Command::Crash(options) => crash::run(options),
        Command::Isolation(options) => isolation::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("firn-proofs: {error}");
            ExitCode::FAILURE
        }
    }
}
