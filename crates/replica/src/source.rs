//! The side of a server: sends a copy of its database while transactions go on.
//!
//! 1. Pin the newest checkpoint, and the log from where it is asked for, or from the checkpoint on if it has been removed there.
//!    Nothing of that is removed until it has been sent.
//! 2. Send the checkpoint's files, except those that the other side has.
//! 3. Note how far the log is on disk. Send it up to there: before a group the headers of its segments, and the files that it names.
//!
//! The server's writers are not stopped, nor slowed down but by sharing the machine: files do not change, and a follower shares
//! no memory with the log's writer but a position.

use crate::channel::Channel;
use crate::files;
use crate::message::{PROTOCOL, Reply, Request};
use firn_base::disk::DiskFile;
use firn_base::thread::{self, Behind};
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_log::{Follower, LogPoint, SegmentHeader};
use firn_txn::{DIRECTORY_VERSION, DatabaseFile, Engine, files_named_by};
use std::collections::HashSet;

/// How many bytes of groups a message has, if none of them has more.
const CHUNK_BYTES: usize = 1 << 20;

/// The name of the restore point that begins the log of a database without any commit.
const FIRST_RESTORE_POINT: &str = "first copy";

/// Serves one connection until the other side ends it. The calling thread leaves contended cores to others from then on.
pub fn serve(engine: &Engine, channel: &mut dyn Channel) -> Result<()> {
    thread::stand_back(Behind::Queries);
    let mut message = Vec::new();
    let mut holder = None;
    while channel.receive(&mut message)? {
        match (Request::decode(&message)?, &holder) {
            (Request::Hello { protocol, directory_version, holder: name }, None) => {
                check_versions(protocol, directory_version)?;
                let (database, cluster) = engine.identity().ok_or_else(in_memory)?;
                let program = env!("CARGO_PKG_VERSION");
                let directory_version = DIRECTORY_VERSION;
                send(
                    channel,
                    &Reply::Identity { protocol: PROTOCOL, directory_version, database, cluster, program },
                )?;
                channel.flush()?;
                holder = Some(name);
            }
            (Request::Copy { from, held }, Some(holder)) => {
                Copying::begin(engine, channel, holder, from)?.send(&held)?;
            }
            _ => {
                let message = "a request of the replication protocol comes at the wrong time";
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
            }
        }
    }
    Ok(())
}

fn check_versions(protocol: u32, directory_version: u32) -> Result<()> {
    if (protocol, directory_version) == (PROTOCOL, DIRECTORY_VERSION) {
        return Ok(());
    }
    let message = format!(
        "this server has version {PROTOCOL} of the replication protocol and version {DIRECTORY_VERSION} of directories, the other \
         side {protocol} and {directory_version}"
    );
    let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
    Err(error.with_hint("Use the same version of FirnDB on both sides."))
}

#[cold]
fn in_memory() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "a database in memory cannot be copied")
        .with_hint("Start the server with --data DIR, or write a dump by firn dump.")
}

fn send(channel: &mut dyn Channel, reply: &Reply<'_>) -> Result<()> {
    let (head, body) = reply.encode();
    channel.send(&[&head, body])
}

/// A copy that is being sent.
struct Copying<'c> {
    engine: &'c Engine,
    channel: &'c mut dyn Channel,
    pinned: firn_txn::PinnedCheckpoint,
    follower: Follower,
    /// The names of files that have been sent, or that the other side has.
    sent: HashSet<DatabaseFile>,
    /// The last segment whose header has been sent.
    segment: Option<SegmentHeader>,
}

impl<'c> Copying<'c> {
    fn begin(
        engine: &'c Engine,
        channel: &'c mut dyn Channel,
        holder: &str,
        from: Option<LogPoint>,
    ) -> Result<Copying<'c>> {
        let mut pinned = engine.pin_checkpoint(holder)?;
        let continued = from.map(|from| engine.follow(holder, from)).transpose();
        let follower = match continued {
            Ok(Some(follower)) => follower,
            // The log is not retained from there on, or has another history.
            Err(error) if !is_out_of_reach(&error) => return Err(error),
            _ => {
                while !engine.can_copy_from(pinned.point().lsn) {
                    // Nothing has been written since this epoch began, or an earlier version wrote the log there.
                    if pinned.point().lsn == engine.log_point()?.lsn {
                        engine.create_restore_point(FIRST_RESTORE_POINT)?;
                    } else {
                        engine.checkpoint()?;
                    }
                    pinned = engine.pin_checkpoint(holder)?;
                }
                engine.follow(holder, pinned.point())?
            }
        };
        // The follower retains what is needed of the log.
        pinned.pin().advance(follower.point().lsn)?;
        Ok(Copying { engine, channel, pinned, follower, sent: HashSet::new(), segment: None })
    }

    fn send(mut self, held: &[DatabaseFile]) -> Result<()> {
        send(self.channel, &Reply::Manifest(&self.pinned.manifest()))?;
        send(self.channel, &Reply::Log(self.follower.point()))?;
        self.sent.extend(held.iter().cloned());
        let files: Vec<DatabaseFile> = self.pinned.files().collect();
        for file in files {
            self.send_file(&file)?;
            self.pinned.pin().release_file(&file.name);
        }
        // In this order: what was acknowledged before that time is on disk then.
        let complete_until = clock::wall_clock_micros();
        self.engine.flush_log()?;
        let end = self.engine.log_point()?;
        self.send_log(end)?;
        send(self.channel, &Reply::End { point: end, complete_until })?;
        self.channel.flush()
    }

    fn send_file(&mut self, file: &DatabaseFile) -> Result<()> {
        if !self.sent.insert(file.clone()) {
            return Ok(());
        }
        let opened = self.engine.open_file(file);
        // First: if a pin was broken, the file may have been removed.
        self.pinned.pin().position()?;
        self.follower.pin().position()?;
        let opened = opened?;
        send(self.channel, &Reply::File(file.clone()))?;
        send_content(self.channel, &*opened)
    }

    /// Sends the log up to `end`, which is on disk.
    fn send_log(&mut self, end: LogPoint) -> Result<()> {
        let headers: Vec<SegmentHeader> = self.follower.segment().into_iter().collect();
        self.send_segments(headers.iter())?;
        let mut groups = Vec::new();
        while let Some(group) = self.follower.next_group(end.lsn)? {
            let headers: Vec<SegmentHeader> = self.follower.segments_of(&group).copied().collect();
            let named = files_named_by(&group)?;
            let is_new = headers.last() != self.segment.as_ref();
            if is_new || !named.is_empty() || groups.len() + group.bytes().len() > CHUNK_BYTES {
                self.send_groups(&mut groups, group.begin)?;
            }
            for file in &named {
                self.send_file(file)?;
            }
            self.send_segments(headers.iter())?;
            groups.extend_from_slice(group.bytes());
        }
        self.send_groups(&mut groups, end.lsn)?;
        assert!(self.follower.point().is_same_place(&end), "a group ends where the log is durable");
        Ok(())
    }

    /// Sends headers of segments that have not been sent.
    fn send_segments<'h>(&mut self, headers: impl Iterator<Item = &'h SegmentHeader>) -> Result<()> {
        for header in headers {
            if self.segment.is_none_or(|sent| sent.number < header.number || sent.epoch < header.epoch) {
                send(self.channel, &Reply::Segment(&header.encode()))?;
                self.segment = Some(*header);
            }
        }
        Ok(())
    }

    /// Sends groups, which end at `end`. They and their files are not needed any more.
    fn send_groups(&mut self, groups: &mut Vec<u8>, end: Lsn) -> Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        send(self.channel, &Reply::Groups(groups))?;
        groups.clear();
        self.follower.pin().advance(end)?;
        self.pinned.pin().advance(end)
    }
}

/// Whether the log cannot be followed from a point on.
pub(crate) fn is_out_of_reach(error: &Error) -> bool {
    [SqlState::UNDEFINED_FILE, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE].contains(&error.state())
}

fn send_content(channel: &mut dyn Channel, file: &dyn DiskFile) -> Result<()> {
    files::read(file, |bytes| send(channel, &Reply::Data(bytes)))?;
    send(channel, &Reply::Data(&[]))
}
