//! `firn-proofs`: tests of a whole server, and comparisons of results with other engines. Each subcommand is one proof, and
//! fails if the proof does; `tests/proofs.rs` runs them as the gate does.

mod answers;
mod backup;
mod beside;
mod crash;
mod failovers;
mod full_disk;
mod isolation;
mod loads;
mod proxy;
mod replicas;
mod restart;
mod routing;
mod server;
mod voters;
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
    /// Writes TPC-H's tables and our results as CSV files, for another engine to check.
    Answers(answers::Options),
    /// Compares our results of TPC-H, CH-benCHmark and TPC-DS with PostgreSQL's.
    Beside(beside::Options),
    /// Reopening after a clean stop, and replaying the log after a crash.
    Restart(restart::Options),
    /// Kills a server under load, repeatedly, and checks what is durable.
    Crash(crash::Options),
    /// Backs a server up beside its clients, and restores it to random times.
    Backup(backup::Options),
    /// Kills a primary and its replicas beside clients, cuts and stalls their connections, and compares what they have.
    Replicas(replicas::Options),
    /// Lets replicas run the long queries of a primary beside clients, kills and stops them, and looks at what the clients get.
    Routing(routing::Options),
    /// Lets one server after another take over, beside clients, and compares what they have.
    Failovers(failovers::Options),
    /// Three voters, whose primary is killed, stopped or asked to hand over, beside clients; another one takes over by itself.
    Voters(voters::Options),
    /// Fills the disk of a server, and checks what it has kept. Ends with 77 if no file system can be mounted.
    FullDisk(full_disk::Options),
    /// Random histories of transactions, in process or beside kills, checked for anomalies.
    Isolation(isolation::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Answers(options) => answers::run(options),
        Command::Beside(options) => beside::run(options),
        Command::Restart(options) => restart::run(options),
        Command::Crash(options) => crash::run(options),
        Command::Backup(options) => backup::run(options),
        Command::Replicas(options) => replicas::run(options),
        Command::Routing(options) => routing::run(options),
        Command::Failovers(options) => failovers::run(options),
        Command::Voters(options) => voters::run(options),
        Command::FullDisk(options) => match full_disk::run(options) {
            Ok(None) => return ExitCode::from(full_disk::UNAVAILABLE),
            outcome => outcome.map(drop),
        },
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
