//! Making a backup: the side that asks a server for a copy, and stores it.

use super::description::{Description, Kind};
use super::repository::{Chain, Repository};
use crate::channel::Channel;
use crate::files::{self, Content, FileWriter};
use crate::message::{PROTOCOL, Reply, Request};
use firn_base::disk::Disk;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, clock};
use firn_log::{DatabaseId, LogCopy, LogPoint};
use firn_txn::{ClusterId, CopiedManifest, DIRECTORY_VERSION, DatabaseFile, Folders};
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
    let server = Server::greet(channel)?;
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

/// Who is copied from.
struct Server {
    database: DatabaseId,
    cluster: ClusterId,
    program: String,
}

impl Server {
    fn greet(channel: &mut dyn Channel) -> Result<Server> {
        let holder = "firn backup".to_owned();
        let hello = Request::Hello { protocol: PROTOCOL, directory_version: DIRECTORY_VERSION, holder };
        channel.send(&[&hello.encode()])?;
        channel.flush()?;
        let mut message = Vec::new();
        receive(channel, &mut message)?;
        match Reply::decode(&message)? {
            Reply::Identity { database, cluster, program, .. } => {
                Ok(Server { database, cluster, program: program.to_owned() })
            }
            _ => Err(out_of_turn()),
        }
    }
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
    channel.send(&[&Request::Copy { from: newest.map(|newest| newest.end), held }.encode()])?;
    channel.flush()?;
    let mut message = Vec::new();
    receive(channel, &mut message)?;
    let Reply::Manifest(bytes) = Reply::decode(&message)? else { return Err(out_of_turn()) };
    let manifest_path = repository.manifest_path(&chain, &label);
    let (manifest, manifest_bytes) = (CopiedManifest::decode(bytes, &manifest_path)?, bytes.to_vec());
    if (manifest.database(), manifest.cluster()) != (server.database, server.cluster) {
        return Err(out_of_turn());
    }
    receive(channel, &mut message)?;
    let Reply::Log(begin) = Reply::decode(&message)? else { return Err(out_of_turn()) };

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
    let mut receiver = Receiver { disk: disk.clone(), folders, log, bytes: 0 };
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

/// What arrives of a copy after its manifest, and where it goes.
struct Receiver {
    disk: Arc<dyn Disk>,
    folders: Folders,
    log: LogCopy,
    /// Bytes that have arrived.
    bytes: u64,
}

impl Receiver {
    /// Stores everything up to the end, and syncs all but names. Returns where the log ends, and the time up to which it is complete.
    fn receive_all(&mut self, channel: &mut dyn Channel) -> Result<(LogPoint, i64)> {
        let mut message = Vec::new();
        loop {
            receive(channel, &mut message)?;
            match Reply::decode(&message)? {
                Reply::File(file) => self.receive_file(channel, &file)?,
                Reply::Segment(header) => self.log.begin_segment(header).map(drop)?,
                Reply::Groups(groups) => {
                    self.log.append(groups)?;
                    self.bytes += groups.len() as u64;
                }
                Reply::End { point, complete_until } => {
                    self.log.sync()?;
                    if !self.log.point().is_same_place(&point) {
                        return Err(out_of_turn());
                    }
                    return Ok((self.log.point(), complete_until));
                }
                _ => return Err(out_of_turn()),
            }
        }
    }

    fn receive_file(&mut self, channel: &mut dyn Channel, file: &DatabaseFile) -> Result<()> {
        // Under another name: an earlier backup may have the same file, and this one may be interrupted.
        let path = self.folders.path(file);
        let temporary = path.with_extension("tmp");
        let created = FileWriter::create(&*self.disk, &temporary)?;
        let (length, crc) = receive_content(channel, created)?;
        if file.content.is_some_and(|content| content != (length, crc)) {
            let message = format!("the file \"{}\" has not been copied as it is", file.name);
            return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                .with_detail("Its length or its checksum is not that of the manifest.")
                .with_hint("Look for errors of the server's disk; the backup can be tried again."));
        }
        self.bytes += length;
        if self.disk.exists(&path)? && files::content_of(&*self.disk, &path)? != (length, crc) {
            let _ = self.disk.remove(&temporary);
            let message = format!("an earlier backup has another file \"{}\"", path.display());
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_detail("The database was set back to an earlier state without a new cluster.")
                .with_hint("Make a full backup, without --incremental."));
        }
        self.disk.rename(&temporary, &path)
    }
}

/// Writes what arrives of a file, and makes it durable, but not its name.
fn receive_content(channel: &mut dyn Channel, mut file: FileWriter) -> Result<Content> {
    let mut message = Vec::new();
    loop {
        receive(channel, &mut message)?;
        match Reply::decode(&message)? {
            Reply::Data(&[]) => return file.finish(),
            Reply::Data(bytes) => file.write(bytes)?,
            _ => return Err(out_of_turn()),
        }
    }
}

/// The next message, of which there must be one.
fn receive(channel: &mut dyn Channel, message: &mut Vec<u8>) -> Result<()> {
    if channel.receive(message)? {
        return Ok(());
    }
    let message = "the server has ended the connection before the copy was complete";
    Err(Error::new(SqlState::CONNECTION_FAILURE, message))
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "a message of the server comes at the wrong time")
}
