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
    /// Shows the servers that one of them knows, from its views firn_replication and firn_voters.
    Status(Server),
    /// Makes a server a voter: the voters decide who is the primary, and a commit is durable once a majority of them has it. The primary
    /// becomes one with the first of its replicas. With three, the loss of one is survived.
    AddVoter(Server),
    /// Lets a voter be none any more, such as one whose machine is lost.
    RemoveVoter {
        /// A voter, as HOST:PORT or postgres://user@host:port/?sslmode=…
        server: String,
        /// The one that is removed: its address, as "firn cluster status" shows it, or its name or number.
        voter: String,
    },
}

#[derive(clap::Args, Debug)]
struct Server {
    /// The server, as HOST:PORT or postgres://user@host:port/?sslmode=…
    server: String,
}

/// What is shown.
const STATUS: &str = "SELECT name, address, role, upstream, epoch, state, replay_lsn, lag_bytes, replay_lag, last_error FROM firn_replication";
const VOTERS: &str = "SELECT to_hex(node_id) AS voter, name, address, role, epoch, is_this, flush_lsn FROM firn_voters ORDER BY address";

const STYLE: Style = Style { expanded: Expanded::Off, null: String::new(), width: None };

/// Runs a subcommand.
pub fn run(options: Options) -> Result<(), Failure> {
    let failed = |report| Failure::new(plain(&report));
    let connect = |server: &str| {
        let target = Upstream::parse(server).map_err(Failure::usage)?.target;
        Client::connect(&target).map_err(failed)
    };
    match options.command {
        Command::Status(Server { server }) => {
            let mut client = connect(&server)?;
            let (columns, rows) = client.rows(STATUS).map_err(failed)?;
            output::print(&Table { columns, rows }.render(&STYLE))?;
            let (columns, rows) = client.rows(VOTERS).map_err(failed)?;
            let count = rows.len();
            if count > 0 {
                output::print(&Table { columns, rows }.render(&STYLE))?;
            }
            match count {
                0 => Ok(()),
                1 | 2 => output::say!("With {count} of at least 3 voters, the loss of one is not survived."),
                _ => output::say!("The loss of {} of {count} voters is survived.", (count - 1) / 2),
            }
        }
        Command::AddVoter(Server { server }) => {
            let (_, rows) = connect(&server)?.rows("SELECT firn_become_voter()").map_err(failed)?;
            match rows.first().and_then(|row| row.first()).and_then(Option::as_deref) {
                Some("t") => output::say!("{server} is a voter"),
                _ => output::say!("{server} is a voter already"),
            }
        }
        Command::RemoveVoter { server, voter } => {
            let quoted = voter.replace('\'', "''");
            let sql = format!("SELECT firn_remove_voter('{quoted}')");
            connect(&server)?.rows(&sql).map_err(failed)?;
            output::say!("{voter} is no voter any more")
        }
    }
}
