//! `firn backup`: backups of a running server, and restoring from them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use firn_base::disk::{Disk, RealDisk};
use firn_base::sync::Arc;
use firn_base::thread::{self, Behind};
use firn_base::{Error, Lsn, TextStyle, datetime, text};
use firn_replica::backup::{
    self, Chain, Description, Repository, Target as RestoreTarget, Wanted, shown_lsn, shown_time,
};
use firn_session::Config;
use firn_txn::ClusterId;

use crate::Failure;
use crate::client::Target;
use crate::output::say;
use crate::replication::Connection;

/// Arguments of `firn backup`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Copies the database of a running server, while its clients work.
    Create(Create),
    /// Lists backups and archived logs.
    List(List),
    /// Reads backups into memory, with all checksums, and builds their indexes.
    Verify(Verify),
    /// Removes old backups, and the archived log that only these need.
    Prune(Prune),
    /// Makes a database directory of a backup.
    Restore(Restore),
}

#[derive(clap::Args, Debug)]
struct Create {
    /// The server, as HOST:PORT or postgres://user@host:port/?sslmode=…
    server: String,
    /// Directory for backups, which is created if it does not exist, or the URL of a place in an object store, such as
    /// s3://bucket/backups.
    directory: PathBuf,
    /// Copy only what the newest backup lacks. If that is not possible, the backup is a full one.
    #[arg(long)]
    incremental: bool,
}

#[derive(clap::Args, Debug)]
struct List {
    /// Directory or URL with backups.
    directory: PathBuf,
}

#[derive(clap::Args, Debug)]
struct Verify {
    /// Directory or URL with backups.
    directory: PathBuf,
    /// The backup to verify; the newest by default.
    backup: Option<String>,
    /// Verify all of them, one after another. Without the name of a backup the archived log is verified, too.
    #[arg(long, conflicts_with = "backup")]
    all: bool,
}

#[derive(clap::Args, Debug)]
struct Prune {
    /// Directory or URL with backups.
    directory: PathBuf,
    /// How many full backups of each cluster to keep, with the incremental ones that are based on them.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Directory or URL of the archive (see firn serve --archive), if it is not that of the backups.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Restore {
    /// Directory or URL with backups.
    directory: PathBuf,
    /// The new database directory, which must be empty or not exist.
    data: PathBuf,
    /// The backup to begin with; the newest that precedes the target by default.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// The cluster, if there are backups of several: a restored database is another one.
    #[arg(long, value_name = "ID", value_parser = cluster)]
    cluster: Option<ClusterId>,
    /// Directory or URL of the archive (see firn serve --archive), if it is not that of the backups.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Restore the database as of a time, such as '2026-11-30 12:00:00+01'; in UTC without a time zone. Every commit that was
    /// acknowledged before is in it, and none that began after.
    #[arg(long, value_name = "TIME", group = "target")]
    target_time: Option<String>,
    /// Restore the database up to a position of its log, such as 0/1A2B3C.
    #[arg(long, value_name = "LSN", group = "target")]
    target_lsn: Option<String>,
    /// Restore the database up to a restore point; see pg_create_restore_point.
    #[arg(long, value_name = "NAME", group = "target")]
    target_name: Option<String>,
    /// Whether what is exactly at the target belongs to it.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, requires = "target")]
    target_inclusive: bool,
}

/// Runs a command.
pub fn run(options: Options) -> Result<(), Failure> {
    match options.command {
        Command::Create(options) => create(&options),
        Command::List(options) => list(&options),
        Command::Verify(options) => verify(&options),
        Command::Prune(options) => prune(&options),
        Command::Restore(options) => restore(&options),
    }
}

/// The argument of --cluster.
fn cluster(digits: &str) -> Result<ClusterId, String> {
    ClusterId::parse(digits)
        .ok_or_else(|| "write 32 hexadecimal digits, as firn backup list shows them".to_owned())
}

/// The server of an argument: a URL, or only its address.
fn server_of(argument: &str) -> Result<Target, Failure> {
    let url = if argument.contains("://") { argument.to_owned() } else { format!("postgres://{argument}") };
    Target::parse(&url).map_err(Failure::usage)
}

/// The backups in a directory, or at a URL.
fn open(place: &Path) -> Result<Repository, Failure> {
    let (disk, directory) = firn_objects::open(place).map_err(Failure::data)?;
    Repository::open(disk, &directory).map_err(Failure::data)
}

fn create(options: &Create) -> Result<(), Failure> {
    let target = server_of(&options.server)?;
    // The server may be on this machine.
    thread::stand_back(Behind::Queries);
    let begun = Instant::now();
    let (disk, directory) = firn_objects::open(&options.directory).map_err(Failure::data)?;
    let mut connection = Connection::open(&target, "firn backup").map_err(Failure::new)?;
    let created = backup::create(disk, &directory, options.incremental, &mut connection);
    let created = created.map_err(Failure::new)?;
    let Description { label, kind, copied_bytes, end, .. } = created.description;
    if let Some(reason) = created.why_full {
        say!("an incremental backup is not possible, so this one is full: {reason}")?;
    }
    say!(
        "{} backup {label}: {} copied in {:.1} s, up to {}",
        kind.name(),
        shown_bytes(copied_bytes),
        begun.elapsed().as_secs_f64(),
        shown_lsn(end.lsn)
    )
}

fn list(options: &List) -> Result<(), Failure> {
    let repository = open(&options.directory)?;
    let chains = repository.chains().map_err(Failure::data)?;
    let mut lines = vec![
        ["backup", "kind", "ended", "complete until", "log up to", "copied", "tables", "cluster"]
            .map(str::to_owned),
    ];
    // Chains may overlap in time.
    let mut backups: Vec<&Description> = chains.iter().flat_map(|chain| &chain.backups).collect();
    backups.sort_by_key(|backup| backup.begun);
    for backup in backups {
        lines.push([
            backup.label.clone(),
            backup.kind.name().to_owned(),
            shown_second(backup.ended),
            shown_time(backup.complete_until),
            shown_lsn(backup.end.lsn),
            shown_bytes(backup.copied_bytes),
            shown_bytes(backup.table_bytes),
            backup.cluster.to_string(),
        ]);
    }
    print_table(&lines)?;
    let archived = repository.archived().map_err(Failure::data)?;
    if !archived.is_empty() {
        say!()?;
        let mut lines =
            vec![["archived log of cluster", "run", "from", "to", "complete until"].map(str::to_owned)];
        for one in archived {
            let run = one.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let until = match one.run.complete_until {
                i64::MIN => String::new(),
                until => shown_time(until),
            };
            let (from, to) = (shown_lsn(one.run.begin.lsn), shown_lsn(one.run.end.lsn));
            lines.push([one.cluster.to_string(), run, from, to, until]);
        }
        print_table(&lines)?;
    }
    report_damaged(&repository)
}

/// Prints what is left out because its description is damaged.
fn report_damaged(repository: &Repository) -> Result<(), Failure> {
    repository
        .damaged()
        .map_err(Failure::data)?
        .iter()
        .try_for_each(|error| say!("left out: {}", error.message()))
}

/// Prints lines of cells, of which the first has the headings.
fn print_table<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> Result<(), Failure> {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        say!("{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn verify(options: &Verify) -> Result<(), Failure> {
    let repository = open(&options.directory)?;
    let chains = repository.chains().map_err(Failure::data)?;
    let backups = chains.iter().flat_map(|chain| chain.backups.iter().map(move |backup| (chain, backup)));
    let mut wanted: Vec<(&Chain, &Description)> = match &options.backup {
        Some(label) => backups.filter(|(_, backup)| backup.label == *label).collect(),
        None => backups.collect(),
    };
    wanted.sort_by_key(|(_, backup)| backup.begun);
    if wanted.is_empty() {
        return Err(Failure::data("there is no such backup\nHINT: See firn backup list."));
    }
    let first = if options.all { 0 } else { wanted.len() - 1 };
    for (chain, backup) in &wanted[first..] {
        let begun = Instant::now();
        let rows = repository.verify(&chain.name, backup, &Config::default()).map_err(Failure::data)?;
        say!("backup {}: {rows} rows, verified in {:.1} s", backup.label, begun.elapsed().as_secs_f64())?;
    }
    if options.backup.is_none() {
        for archived in repository.archived().map_err(Failure::data)? {
            let end = repository.verify_archived(&archived).map_err(Failure::data)?;
            say!("archived log of cluster {}: verified up to {}", archived.cluster, shown_lsn(end.lsn))?;
        }
    }
    match repository.damaged().map_err(Failure::data)?.first() {
        Some(error) => Err(Failure::data(error)),
        None => Ok(()),
    }
}

fn prune(options: &Prune) -> Result<(), Failure> {
    let archive = options.archive.as_deref().map(open).transpose()?;
    let removed = open(&options.directory)?.prune(options.keep as usize, archive.as_ref());
    let removed = removed.map_err(Failure::data)?;
    match removed.is_empty() {
        true => say!("there is no older backup"),
        false => removed.iter().try_for_each(|label| say!("removed backup {label}")),
    }
}

fn restore(options: &Restore) -> Result<(), Failure> {
    let repository = open(&options.directory)?;
    let invalid = |error: Error| Failure::usage(error);
    let target = match (&options.target_time, &options.target_lsn, &options.target_name) {
        (Some(time), ..) => {
            RestoreTarget::Time(datetime::parse_timestamptz(time, &TextStyle::default()).map_err(invalid)?)
        }
        (_, Some(lsn), _) => RestoreTarget::Lsn(Lsn(text::parse_lsn(lsn).map_err(invalid)? as u64)),
        (_, _, Some(name)) => RestoreTarget::Name(name.clone()),
        _ => RestoreTarget::Latest,
    };
    let wanted = Wanted {
        target,
        inclusive: options.target_inclusive,
        backup: options.backup.clone(),
        cluster: options.cluster,
        archive: options.archive.as_deref().map(open).transpose()?,
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let restored = backup::restore(&repository, &disk, &options.data, &wanted).map_err(Failure::data)?;
    let kind = restored.backup.kind.name();
    say!(
        "restored from {kind} backup {} to {}, with commits up to {}",
        restored.backup.label,
        shown_lsn(restored.end),
        shown_time(restored.time)
    )?;
    if let Some(gap) = restored.gap {
        say!(
            "the archive goes on at {}, but lacks what is between: later commits are not restored",
            shown_lsn(gap)
        )?;
    }
    report_damaged(&repository)?;
    say!("start it by firn serve --data {}", options.data.display())
}

fn shown_second(micros: i64) -> String {
    shown_time(micros.div_euclid(1_000_000) * 1_000_000)
}

fn shown_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut shown, mut unit) = (bytes as f64, 0);
    while shown >= 1000.0 && unit + 1 < UNITS.len() {
        (shown, unit) = (shown / 1000.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{shown:.1} {}", UNITS[unit]) }
}
