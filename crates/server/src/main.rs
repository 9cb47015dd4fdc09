//! The `firn` binary: a server, a shell, dumps, backups, and workloads for demonstration.
//!
//! Exit codes: 0 fine; 1 a statement or anything else failed; 2 wrong arguments; 3 the database
//! directory cannot be used; 4 the address cannot be listened on.

mod allocator;
mod backup;
mod bench;
mod checksum;
mod client;
mod cluster;
mod cooling;
mod demo;
mod dump;
mod output;
mod promote;
mod replication;
mod routing;
mod secure;
mod serve;
mod shell;
mod target;
mod validation;
mod voters;
mod watch;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// FirnDB: transactions and analyses over one copy of the data, in memory.
#[derive(Parser)]
#[command(name = "firn", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Serves a database to clients of PostgreSQL and of Arrow Flight SQL.
    Serve(Box<serve::Options>),
    /// Opens a shell on a database.
    Sql(shell::Options),
    /// Writes a whole database to a folder of files.
    Dump(dump::DumpOptions),
    /// Reads a dump into a database.
    Restore(dump::RestoreOptions),
    /// Makes a replica the primary.
    Promote(promote::Options),
    /// Shows a server, the one that it follows, and those that follow it.
    Cluster(cluster::Options),
    /// Makes, lists, verifies and removes backups of a running server, and restores from them.
    Backup(backup::Options),
    /// Runs a workload in this process and reports its speed.
    Bench(bench::Options),
    /// Shows orders being entered and analyses running over the same rows, then checks consistency.
    Demo(demo::Options),
}

fn main() -> ExitCode {
    allocator::keep_what_is_freed();
    let outcome = match Arguments::parse().command {
        Command::Serve(options) => serve::run(*options),
        Command::Sql(options) => shell::run(options),
        Command::Dump(options) => dump::dump(options),
        Command::Restore(options) => dump::restore(options),
        Command::Promote(options) => promote::run(options),
        Command::Cluster(options) => cluster::run(options),
        Command::Backup(options) => backup::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Demo(options) => demo::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message {
                let _ = writeln!(std::io::stderr(), "firn: {message}"); // Standard error may be closed.
            }
            failure.code
        }
    }
}

/// Why the program ends early, and with which code.
pub(crate) struct Failure {
    /// `None` if it has been printed already.
    message: Option<String>,
    code: ExitCode,
}

impl Failure {
    /// An error without a code of its own.
    pub(crate) fn new(message: impl Display) -> Failure {
        Failure { message: Some(message.to_string()), code: ExitCode::from(1) }
    }

    /// An error that has already been printed.
    pub(crate) fn silent() -> Failure {
        Failure { message: None, code: ExitCode::from(1) }
    }

    /// The arguments are invalid.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure { message: Some(message.to_string()), code: ExitCode::from(2) }
    }

    /// The database directory cannot be used: damaged, of another version, open elsewhere.
    pub(crate) fn data(message: impl Display) -> Failure {
        Failure { message: Some(message.to_string()), code: ExitCode::from(3) }
    }

    /// The address cannot be listened on.
    pub(crate) fn address(message: impl Display) -> Failure {
        Failure { message: Some(message.to_string()), code: ExitCode::from(4) }
    }
}
