//! Making the directory of a former primary, or of a replica with another history, that of a replica of a server of the same database.
//!
//! Both logs begin alike. Where they part, at the *branch point*, the own one is cut: what it has behind that is given up. If the own
//! checkpoint contains some of that, or the server does not retain the log at the branch point, the database is copied anew.
//!
//! ```text
//! 1  find the branch point: ask the server for points of the own log, by bisection
//! 2  create the file REJOINING, which names the server
//! 3  cut the log, or copy the database anew and put it in the place of the old one
//! 4  write the role: a replica of the server, in its cluster
//! 5  remove REJOINING
//! ```
//! The database is closed meanwhile. As long as there is that file, the directory is neither the one nor the other, and all of this is
//! to be done again ([`interrupted`]).
//!
//! The position of a group and its checksum identify a history, since each group has the checksum of the one before it. (Raft compares
//! position and term: Ongaro, "Consensus: Bridging Theory and Practice", §3.5. Here two servers may write in the same epoch.)

use crate::channel::{Channel, Received, Stoppable};
use crate::copying::{Server, out_of_turn};
use crate::join;
use crate::message::{Presence, Reply, Request};
use crate::receiver::not_yet;
use firn_base::disk::Disk;
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState};
use firn_log::{DatabaseId, LogCopy, LogPoint, Reader};
use firn_txn::{CopiedManifest, DirectoryRole, Folders, MANIFEST, REJOINING, Voter};
use std::path::Path;
use std::time::Duration;

/// What has become of a database that has rejoined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejoined {
    /// The server has all of its log.
    Unchanged,
    /// Its log has been cut.
    Cut {
        /// Where it has ended before, …
        from: Lsn,
        /// … and where it ends now.
        to: Lsn,
    },
    /// It has been copied anew.
    Copied,
}

/// How the server is reached.
pub type Connect<'c> = dyn Fn() -> Result<Box<dyn Channel>> + 'c;

/// The server that the directory was about to follow when rejoining was interrupted, if it was.
pub fn interrupted(disk: &dyn Disk, directory: &Path) -> Result<Option<String>> {
    let marker = directory.join(REJOINING);
    if !disk.exists(&marker)? {
        return Ok(None);
    }
    let server = String::from_utf8(disk.read(&marker)?);
    Ok(Some(server.map_err(|_| {
        Error::new(SqlState::DATA_CORRUPTED, format!("the file \"{}\" is no text", marker.display()))
            .with_hint("Start the server with --follow and --rejoin.")
    })?))
}

/// Makes a directory, whose database is closed, that of a replica of the server behind `connect`, and gives up the commits that this one
/// does not have. `upstream` is the server's address, `HOST:PORT` or a URL; `option` is what the operator has just named; `name` is shown
/// by the server. Ends with 57P01 once `is_stopped`.
///
/// Errors: 55000 if the server has another database, or is a replica; those of the connection and the disk, after which it is to be done
/// again; XX001 if the directory is damaged.
pub fn rejoin(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    connect: &Connect<'_>,
    is_stopped: &dyn Fn() -> bool,
    upstream: &str,
    option: Option<&str>,
    name: &str,
) -> Result<Rejoined> {
    // The copy that an earlier attempt has made.
    join::finish(&**disk, directory)?;
    let mut channel = Stoppable { channel: &mut *connect()?, is_stopped };
    let role = DirectoryRole::read(&**disk, directory)?;
    let voter = role.as_ref().and_then(|role| role.voter);
    let server = Server::greet(&mut channel, name, voter.map(|voter| voter.node))?;
    if !server.is_primary {
        return Err(no_primary());
    }
    // In another cluster it is no voter. In the same one, what is taken from the server counts in its epoch.
    let voter = voter.filter(|_| role.as_ref().is_some_and(|role| role.cluster == server.cluster));
    if voter.is_some_and(|voter| server.epoch < voter.promised) {
        return Err(not_yet(server.epoch));
    }
    let voter = voter.map(|voter| Voter { promised: server.epoch, ..voter });
    let role = role.filter(|role| role.database == server.database).ok_or_else(another_database)?;
    if voter.is_some() {
        DirectoryRole { voter, ..role.clone() }.write(&**disk, directory)?;
    }
    let lock = join::lock(&**disk, directory)?;
    let bytes = disk.read(&directory.join(MANIFEST))?;
    let manifest = CopiedManifest::decode(&bytes, &directory.join(MANIFEST))?;
    let log = Folders::of(directory).log;
    let points = points_of(&**disk, &log, role.database, &manifest)?;
    let end = *points.last().expect("there is the point of the manifest");
    let branch = branch_point(&mut channel, &points)?;
    // Nothing can be removed from the checkpoint.
    let branch = branch.filter(|branch| branch.lsn >= manifest.needed());

    let marker = directory.join(REJOINING);
    disk.replace(&marker, &directory.join("REJOINING.tmp"), upstream.as_bytes())?;
    let kept = match branch {
        Some(branch) if LogCopy::cut(disk, &log, role.database, branch)? => {
            match branch.is_same_place(&end) {
                true => Some(Rejoined::Unchanged),
                false => Some(Rejoined::Cut { from: end.lsn, to: branch.lsn }),
            }
        }
        _ => None,
    };
    drop(lock);
    if kept.is_none() {
        let mut channel = Stoppable { channel: &mut *connect()?, is_stopped };
        let identity = (server.database, server.cluster);
        let followed = (upstream, option.or(role.option.as_deref()));
        join::copy_anew(disk, directory, &mut channel, followed, name, identity, voter)?;
        join::finish(&**disk, directory)?;
    }
    let (upstream, option) =
        (Some(upstream.to_owned()), option.map(str::to_owned).or_else(|| role.option.clone()));
    DirectoryRole { cluster: server.cluster, upstream, option, voter, ..role }.write(&**disk, directory)?;
    disk.remove(&marker)?;
    disk.sync_directory(directory)?;
    Ok(kept.unwrap_or(Rejoined::Copied))
}

/// The places of a log after its groups, from that of the manifest on.
fn points_of(
    disk: &dyn Disk,
    log: &Path,
    database: DatabaseId,
    manifest: &CopiedManifest,
) -> Result<Vec<LogPoint>> {
    let mut points = vec![manifest.point()];
    let mut reader = Reader::open(disk, log, database, manifest.point())?;
    // Of a replica, and of one that was about to be one.
    reader.end_at_first_gap();
    while let Some(group) = reader.next_group()? {
        points.push(group.end);
    }
    Ok(points)
}

/// The last of some points of a history that is of the server's, too; `None` if there is none, or the server does not retain its log
/// there.
fn branch_point(channel: &mut dyn Channel, points: &[LogPoint]) -> Result<Option<LogPoint>> {
    let ask = |channel: &mut dyn Channel, at: usize| {
        channel.send(&[&Request::Has(points[at]).encode()])?;
        channel.flush()?;
        let mut message = Vec::new();
        loop {
            match channel.receive_within(&mut message, Duration::from_secs(1))? {
                Received::Message => break,
                Received::Nothing => {}
                Received::End => return Err(out_of_turn()),
            }
        }
        match Reply::decode(&message)? {
            Reply::Has(presence) => Ok(presence),
            _ => Err(out_of_turn()),
        }
    };
    // Usually none is given up.
    let last = points.len() - 1;
    if ask(channel, last)? == Presence::There {
        return Ok(Some(points[last]));
    }
    // The server has those before `low`, or has had them; from `high` on it does not have them.
    let (mut low, mut high, mut newest) = (0, last, Presence::Nowhere);
    while low < high {
        let middle = low + (high - low) / 2;
        match ask(channel, middle)? {
            Presence::Nowhere => high = middle,
            presence => (low, newest) = (middle + 1, presence),
        }
    }
    Ok((newest == Presence::There).then(|| points[low - 1]))
}

#[cold]
fn no_primary() -> Error {
    let message = "the server is no primary, so what it does not have must not be given up";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_hint("Name the primary. If there is none, promote a replica by \"firn promote\".")
}

#[cold]
fn another_database() -> Error {
    let message = "the server has another database";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(
        "Only a server that has the same database, or has had it, can be followed. Use an empty directory.",
    )
}
