//! `firn cluster`: a server, the one that it follows, and those that follow it.

use crate::Failure;
use crate::client::Client;
use crate::output;
use crate::replication::Upstream;
use crate::shell::table::{Expanded, Style, Table};
use crate::target::plain;

/// Arguments of `firn cluster`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Shows the servers that one of them knows, from its view firn_replication.
    Status(Status),
}

#[derive(clap::Args, Debug)]
struct Status {
    /// The server, as HOST:PORT or postgres://user@host:port/?sslmode=…
    server: String,
}

/// What is shown.
const STATUS: &str = "SELECT name, address, role, upstream, epoch, state, replay_lsn, lag_bytes, replay_lag, last_error FROM firn_replication";

/// Runs a subcommand.
pub fn run(options: Options) -> Result<(), Failure> {
    let Command::Status(Status { server }) = options.command;
    let target = Upstream::parse(&server).map_err(Failure::usage)?.target;
    let failed = |report| Failure::new(plain(&report));
    let mut client = Client::connect(&target).map_err(failed)?;
    let (columns, rows) = client.rows(STATUS).map_err(failed)?;
    let style = Style { expanded: Expanded::Off, null: String::new(), width: None };
    output::print(&Table { columns, rows }.render(&style))
}
