//! Making a backup: the side that asks a server for a copy, and stores it.

use super::description::{Description, Kind};
use super::repository::{Chain, Repository};
use crate::channel::Channel;
use crate::copying::{CopyReceiver, Server, out_of_turn, request};
use firn_base::disk::Disk;
use firn_base::sync::Arc;
use firn_base::{Result, clock};
use firn_log::LogCopy;
use std::path::Path;

/// A backup that was made.
#[derive(Clone, PartialEq, Debug)]
pub struct Created {
    /// What it is.
    pub description: Description,
    /// Why it is full, although an incremental one was asked for.
    pub why_full: Option<String>,
}

/// Makes a backup of the database of the server behind a channel. An incremental backup is based on the newest one; if
/// there is none that it can be based on, it is full.
///
/// Errors: those of the server and of the disk; 55006 if another process writes there; 55000 if the server has another version, or
/// its database is in memory. After an error nothing has changed but for files that the next backup or pruning removes.
pub fn create(
    disk: Arc<dyn Disk>,
    directory: &Path,
    incremental: bool,
    channel: &mut dyn Channel,
) -> Result<Created> {
    let server = Server::greet(channel, "firn backup", None)?;
    let repository = Repository::open_or_create(disk, directory)?;
    let _lock = repository.lock()?;
    let base = if incremental { Some(base(&repository, &server)?) } else { None };
    let (base, why_full) = match base {
        None => (None, None),
        Some(Ok(chain)) => (Some(chain), None),
        Some(Err(reason)) => (None, Some(reason)),
    };
    let description = copy(&repository, channel, &server, base.as_ref())?;
    Ok(Created { description, why_full })
}

/// The chain that an incremental backup extends, or why there is none.
fn base(repository: &Repository, server: &Server) -> Result<std::result::Result<Chain, String>> {
    let newest = repository.newest_chain((server.database, server.cluster))?;
    Ok(newest.ok_or_else(|| "there is no earlier backup of this database and cluster".to_owned()))
}

fn copy(
    repository: &Repository,
    channel: &mut dyn Channel,
    server: &Server,
    base: Option<&Chain>,
) -> Result<Description> {
    let begun = clock::wall_clock_micros();
    let label = repository.new_label(begun)?;
    let chain = base.map_or(&label, |chain| &chain.name).clone();
    let disk = repository.disk.clone();
    let newest = base.map(Chain::newest);
    let held = match newest {
        Some(newest) => repository.manifest(&chain, &newest.label)?.files().collect(),
        None => Vec::new(),
    };
    let manifest_path = repository.manifest_path(&chain, &label);
    let from = newest.map(|newest| newest.end);
    let (manifest, manifest_bytes, begin) = request(channel, server, from, held, &manifest_path)?;

    let continued = newest.filter(|newest| newest.end.is_same_place(&begin));
    let log_name = continued.map_or_else(|| format!("log-{label}"), |newest| newest.log.clone());
    let folders = repository.folders(&chain, &log_name);
    for folder in folders.both() {
        disk.create_directory(folder)?;
    }
    let log = match continued {
        Some(newest) => LogCopy::open(disk.clone(), &folders.log, server.database, newest.end)?,
        None if begin.is_same_place(&manifest.point()) => {
            LogCopy::create(disk.clone(), &folders.log, server.database, begin)?
        }
        None => return Err(out_of_turn()),
    };
    let mut receiver = CopyReceiver::new(disk.clone(), folders, log);
    let (end, complete_until) = receiver.receive_all(channel)?;
    if end.lsn < manifest.needed() {
        return Err(out_of_turn());
    }
    for folder in receiver.folders.both() {
        disk.sync_directory(folder)?;
    }
    disk.replace(&manifest_path, &manifest_path.with_extension("tmp"), &manifest_bytes)?;
    let description = Description {
        label: label.clone(),
        kind: if base.is_some() { Kind::Incremental } else { Kind::Full },
        database: server.database,
        cluster: server.cluster,
        program: server.program.clone(),
        log: log_name,
        begun,
        ended: clock::wall_clock_micros(),
        end,
        complete_until,
        copied_bytes: receiver.bytes + manifest_bytes.len() as u64,
        table_bytes: manifest.files().filter_map(|file| file.content).map(|(bytes, _)| bytes).sum(),
    };
    disk.sync_directory(repository.directory())?;
    description.write(&*disk, &repository.description_path(&chain, &label))?;
    Ok(description)
}
