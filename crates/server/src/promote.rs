//! `firn promote`: makes a replica the primary.

use std::time::Instant;

use crate::Failure;
use crate::client::{Answer, Client, Report};
use crate::output::say;
use crate::replication::Upstream;
use crate::target::plain;

/// Arguments of `firn promote`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The replica, as HOST:PORT or postgres://user@host:port/?sslmode=…
    server: String,
    /// The primary is lost: promote the replica with what it has received. It begins a cluster of its own, which the other servers join by
    /// --rejoin. Make sure that the former primary does not run any more, or that nobody writes to it.
    #[arg(long)]
    force: bool,
    /// How long to wait until the replica is the primary.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(i32).range(1..))]
    wait: i32,
}

/// Promotes a replica, and waits for that.
pub fn run(options: Options) -> Result<(), Failure> {
    let upstream = Upstream::parse(&options.server).map_err(Failure::usage)?;
    let failed = |report: Report| Failure::new(plain(&report));
    let mut client = Client::connect(&upstream.target).map_err(failed)?;
    let begun = Instant::now();
    let function = if options.force { "pg_promote(true, " } else { "firn_switchover(" };
    client.query(&format!("SELECT {function}{})", options.wait)).map_err(Failure::new)?;
    let (mut is_promoted, mut failure, mut warnings) = (false, None, Vec::new());
    loop {
        match client.next().map_err(failed)? {
            Answer::Row(cells) => is_promoted = cells.first() == Some(&Some("t".to_owned())),
            Answer::Failed(report) => failure = Some(report),
            Answer::Notice(report) => warnings.push(plain(&report)),
            Answer::Ready => break,
            _ => {}
        }
    }
    if let Some(report) = failure {
        return Err(failed(report));
    }
    if !is_promoted {
        warnings.push(
            "HINT:  It may still become the primary: see \"firn cluster status\", and try again.".to_owned(),
        );
        return Err(Failure::new(warnings.join("\n")));
    }
    say!("{} is the primary, after {:.1} s", upstream.shown(), begun.elapsed().as_secs_f64())
}
