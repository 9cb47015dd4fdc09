//! The side that asks for a copy, and stores it: for backups and new replicas.

use crate::channel::{Channel, Received};
use crate::files::{self, FILES_AT_ONCE, FileWriter};
use crate::message::{PROTOCOL, Reply, Request};
use crate::receiver::another_cluster;
use firn_base::disk::{Disk, Medium};
use firn_base::sync::Arc;
use firn_base::thread::{self, JoinHandle};
use firn_base::{Epoch, Error, NodeId, Result, SqlState, clock};
use firn_log::{DatabaseId, LogCopy, LogPoint};
use firn_txn::{ClusterId, CopiedManifest, DIRECTORY_VERSION, DatabaseFile, Folders};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The server that is copied.
pub(crate) struct Server {
    pub database: DatabaseId,
    pub cluster: ClusterId,
    /// Whether it is a primary, or is becoming one.
    pub is_primary: bool,
    /// The epoch in which it writes its log; 0 if it receives it.
    pub epoch: Epoch,
    /// The version of its program.
    pub program: String,
}

impl Server {
    /// Begins a connection under a name, which the server shows to people.
    pub fn greet(channel: &mut dyn Channel, holder: &str, voter: Option<NodeId>) -> Result<Server> {
        let holder = holder.to_owned();
        let hello =
            Request::Hello { protocol: PROTOCOL, directory_version: DIRECTORY_VERSION, voter, holder };
        channel.send(&[&hello.encode()])?;
        channel.flush()?;
        let mut message = Vec::new();
        receive(channel, &mut message)?;
        match Reply::decode(&message)? {
            Reply::Identity { database, cluster, is_primary, epoch, program, .. } => {
                Ok(Server { database, cluster, is_primary, epoch, program: program.to_owned() })
            }
            _ => Err(out_of_turn()),
        }
    }
}

/// Begins a connection to a voter of this database and cluster. Error: 55000 if it has another one.
pub fn greet_voter(
    channel: &mut dyn Channel,
    name: &str,
    identity: Option<(DatabaseId, ClusterId)>,
) -> Result<()> {
    let server = Server::greet(channel, name, None)?;
    match identity == Some((server.database, server.cluster)) {
        true => Ok(()),
        false => Err(another_cluster()),
    }
}

/// Sends a message between voters, and waits for the answer for so long at most.
pub fn ask_voter(channel: &mut dyn Channel, message: &[u8], longest: Duration) -> Result<Vec<u8>> {
    channel.send(&[&Request::Control(message.to_vec()).encode()])?;
    channel.flush()?;
    let (begun, mut reply) = (clock::now(), Vec::new());
    loop {
        match channel.receive_within(&mut reply, longest.saturating_sub(begun.elapsed()))? {
            Received::Message => break,
            Received::End => return Err(out_of_turn()),
            Received::Nothing if begun.elapsed() >= longest => {
                return Err(Error::new(SqlState::CONNECTION_FAILURE, "the voter does not answer"));
            }
            Received::Nothing => {}
        }
    }
    match Reply::decode(&reply)? {
        Reply::Control(answer) => Ok(answer.to_vec()),
        _ => Err(out_of_turn()),
    }
}

/// Asks for a copy: the log from `from` on, if the server has it from there, and the files that are not `held`. Returns the manifest,
/// its bytes, and where the log begins that is sent.
pub(crate) fn request(
    channel: &mut dyn Channel,
    server: &Server,
    from: Option<LogPoint>,
    held: Vec<DatabaseFile>,
    manifest_path: &Path,
) -> Result<(CopiedManifest, Vec<u8>, LogPoint)> {
    channel.send(&[&Request::Copy { from, held }.encode()])?;
    channel.flush()?;
    let mut message = Vec::new();
    receive(channel, &mut message)?;
    let Reply::Manifest(bytes) = Reply::decode(&message)? else { return Err(out_of_turn()) };
    let (manifest, manifest_bytes) = (CopiedManifest::decode(bytes, manifest_path)?, bytes.to_vec());
    if (manifest.database(), manifest.cluster()) != (server.database, server.cluster) {
        return Err(out_of_turn());
    }
    receive(channel, &mut message)?;
    let Reply::Log(begin) = Reply::decode(&message)? else { return Err(out_of_turn()) };
    Ok((manifest, manifest_bytes, begin))
}

/// What arrives of a copy after its manifest, and where it goes.
pub(crate) struct CopyReceiver {
    disk: Arc<dyn Disk>,
    pub folders: Folders,
    log: LogCopy,
    /// Bytes that have arrived.
    pub bytes: u64,
    ending: EndingFiles,
}

impl CopyReceiver {
    pub fn new(disk: Arc<dyn Disk>, folders: Folders, log: LogCopy) -> CopyReceiver {
        CopyReceiver { disk, folders, log, bytes: 0, ending: EndingFiles::default() }
    }

    /// Stores everything up to the end, and syncs all but names. Returns where the log ends, and the time up to which it is complete.
    pub fn receive_all(&mut self, channel: &mut dyn Channel) -> Result<(LogPoint, i64)> {
        let mut message = Vec::new();
        loop {
            receive(channel, &mut message)?;
            match Reply::decode(&message)? {
                Reply::File(file) => self.receive_file(channel, &file)?,
                Reply::Segment(header) => {
                    // What is not synced may be in memory, in parts of an object.
                    self.log.sync()?;
                    self.log.begin_segment(header)?;
                }
                Reply::Groups { groups, .. } => {
                    self.log.append(groups)?;
                    self.bytes += groups.len() as u64;
                }
                Reply::End { point, complete_until } => {
                    self.ending.wait()?;
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
        let path = self.folders.path(file);
        let temporary = path.with_extension("tmp");
        // Under another name: an earlier backup may have the same file, and this one may be interrupted.
        let is_there = self.disk.exists(&path)?;
        let working = if is_there { &temporary } else { self.disk.working_name(&path, &temporary) };
        let mut writer = FileWriter::create(&*self.disk, working)?;
        receive_content(channel, &mut writer)?;
        let (length, crc) = writer.content();
        if file.content.is_some_and(|content| content != (length, crc)) {
            let message = format!("the file \"{}\" has not been copied as it is", file.name);
            return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                .with_detail("Its length or its checksum is not that of the manifest.")
                .with_hint("Look for errors of the server's disk; the backup can be tried again."));
        }
        self.bytes += length;
        let working = working.to_owned();
        self.ending.begin(EndingFile { disk: self.disk.clone(), writer, working, path, is_there })
    }
}

/// A file that has arrived as a whole.
struct EndingFile {
    disk: Arc<dyn Disk>,
    writer: FileWriter,
    working: PathBuf,
    path: PathBuf,
    /// Whether there was a file of its name.
    is_there: bool,
}

impl EndingFile {
    /// Makes it durable, and gives it its name.
    fn end(self) -> Result<()> {
        let EndingFile { disk, writer, working, path, is_there } = self;
        let content = writer.content();
        writer.finish()?;
        if is_there && files::content_of(&*disk, &path)? != content {
            let _ = disk.remove(&working);
            let message = format!("an earlier backup has another file \"{}\"", path.display());
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_detail("The database was set back to an earlier state without a new cluster.")
                .with_hint("Make a full backup, without --incremental."));
        }
        if is_there && disk.medium() == Medium::Objects {
            // It is complete, and durable since it appeared; objects have no other names.
            return disk.remove(&working);
        }
        disk.publish(&working, &path)
    }
}

/// Files that become durable while others arrive: in an object store that takes longer than receiving them. None is left once this is
/// dropped.
#[derive(Default)]
struct EndingFiles(VecDeque<JoinHandle<Result<()>>>);

impl EndingFiles {
    fn begin(&mut self, file: EndingFile) -> Result<()> {
        if file.disk.medium() == Medium::Blocks {
            return file.end();
        }
        while self.0.len() >= FILES_AT_ONCE {
            self.wait_for_one()?;
        }
        self.0.push_back(thread::spawn("firn-backup", move || file.end()));
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        while !self.0.is_empty() {
            self.wait_for_one()?;
        }
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<()> {
        let oldest = self.0.pop_front().expect("the caller has seen one");
        oldest.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for EndingFiles {
    fn drop(&mut self) {
        for file in self.0.drain(..) {
            // There was another error before.
            let _ = file.join();
        }
    }
}

/// Writes what arrives of a file.
fn receive_content(channel: &mut dyn Channel, file: &mut FileWriter) -> Result<()> {
    let mut message = Vec::new();
    loop {
        receive(channel, &mut message)?;
        match Reply::decode(&message)? {
            Reply::Data(&[]) => return Ok(()),
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
pub(crate) fn out_of_turn() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "a message of the server comes at the wrong time")
}
