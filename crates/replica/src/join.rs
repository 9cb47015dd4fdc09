//! Making a directory of a replica: a copy of another server's database, which then follows that server.
//!
//! A replica that cannot follow any more, since the server does not retain the log from its end on or has another history, begins anew:
//! the copy is written beside the old database, which is served meanwhile. Then the old one is closed, and the new one put in its
//! place:
//!
//! ```text
//! directory/JOINING       a copy is being written; so in directory/anew
//! directory/anew/…        the copy that will replace the database
//! directory/anew/MANIFEST it is complete
//! 1  remove the old manifest, then the old files
//! 2  rename the new manifest to anew/MOVING
//! 3  move the new files, then the new manifest
//! ```
//! Nothing is removed that this module has not written: the file JOINING says that it has. All of that does [`finish`], which is called before the directory is opened. After a crash it continues.

use crate::channel::Channel;
use crate::copying::{CopyReceiver, Server, out_of_turn, request};
use crate::receiver::{another_cluster, not_yet};
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_log::{DatabaseId, LogCopy};
use firn_txn::{ClusterId, DirectoryRole, Folders, LOCK, MANIFEST, MANIFEST_TEMPORARY, Voter};
use std::path::Path;
use std::time::Duration;

/// The folder of a copy that will replace the database.
const ANEW: &str = "anew";
/// How long to retry a lock that is held.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);
/// The name of an empty file in a directory in which a copy is being written, or was when that was interrupted.
const JOINING: &str = "JOINING";
/// The name of a copy's manifest while its files are moved.
const MOVING: &str = "MOVING";

/// Copies the database of the server behind a channel into a directory that has none, as that of a replica that follows `upstream`.
/// `name` is shown by the server.
///
/// Errors: those of the channel, the server and the disk. After an error the directory has no database, and this can be repeated.
pub fn join(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    channel: &mut dyn Channel,
    upstream: &str,
    name: &str,
) -> Result<()> {
    disk.create_directory(directory)?;
    let _lock = disk.lock(&directory.join(LOCK))?;
    check_that_nothing_is_there(&**disk, directory)?;
    copy(disk, directory, channel, (upstream, Some(upstream)), name, None, None)?;
    disk.remove(&directory.join(JOINING))?;
    disk.sync_directory(directory)?;
    match directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => disk.sync_directory(parent),
        None => Ok(()),
    }
}

/// Copies the database of the server, which must be of this identity, beside that of a replica, which cannot follow it any more. `option`
/// is the server that the operator has named last.
/// [`finish`] puts it in its place. After an error nothing is left.
pub fn copy_anew(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    channel: &mut dyn Channel,
    (upstream, option): (&str, Option<&str>),
    name: &str,
    identity: (DatabaseId, ClusterId),
    voter: Option<Voter>,
) -> Result<()> {
    let anew = directory.join(ANEW);
    remove(&**disk, &anew)?;
    copy(disk, &anew, channel, (upstream, option), name, Some(identity), voter).inspect_err(|_| {
        // The first error is the more useful one.
        let _ = remove(&**disk, &anew);
    })
}

/// Removes a copy that [`copy_anew`] has made.
pub fn discard(disk: &dyn Disk, directory: &Path) -> Result<()> {
    remove(disk, &directory.join(ANEW))
}

/// Puts a complete copy in the place of the database of a directory, which is not open. No effect without one.
pub fn finish(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let anew = directory.join(ANEW);
    if !disk.exists(directory)? || !is_ours(disk, &anew)? && !disk.exists(&directory.join(JOINING))? {
        return Ok(());
    }
    let _lock = lock(disk, directory)?;
    // Joining was interrupted at its very end.
    if disk.exists(&directory.join(JOINING))? && disk.exists(&directory.join(MANIFEST))? {
        disk.remove(&directory.join(JOINING))?;
        disk.sync_directory(directory)?;
    }
    let (old, new) = (Folders::of(directory), Folders::of(&anew));
    let (complete, moving) = (anew.join(MANIFEST), anew.join(MOVING));
    if disk.exists(&complete)? && !keep_promise(disk, directory, &anew)? {
        return remove(disk, &anew);
    }
    if disk.exists(&complete)? {
        if disk.exists(&directory.join(MANIFEST))? {
            disk.remove(&directory.join(MANIFEST))?;
            disk.sync_directory(directory)?;
        }
        for folder in old.both() {
            disk.create_directory(folder)?;
            disk.list(folder)?.into_iter().try_for_each(|name| disk.remove(&folder.join(name)))?;
            disk.sync_directory(folder)?;
        }
        disk.rename(&complete, &moving)?;
        disk.sync_directory(&anew)?;
    }
    if disk.exists(&moving)? {
        for (old, new) in old.both().into_iter().zip(new.both()) {
            for name in disk.list(new)? {
                disk.rename(&new.join(&name), &old.join(&name))?;
            }
            disk.sync_directory(old)?;
            disk.sync_directory(new)?;
        }
        disk.rename(&moving, &directory.join(MANIFEST))?;
        disk.sync_directory(directory)?;
        // Nor may the old name come back.
        disk.sync_directory(&anew)?;
    }
    remove(disk, &anew)
}

/// Gives a complete copy the promise of the voter whose database it replaces. False if it has promised since not to take anything from
/// the server that it was copied from.
fn keep_promise(disk: &dyn Disk, directory: &Path, anew: &Path) -> Result<bool> {
    let Some(old) = DirectoryRole::read(disk, directory)?.and_then(|role| role.voter) else {
        return Ok(true);
    };
    let Some(role) = DirectoryRole::read(disk, anew)? else { return Ok(true) };
    match role.voter {
        Some(voter) if voter.promised >= old.promised => Ok(true),
        _ => Ok(false),
    }
}

/// Waits until a database that is being closed is closed: the last handle may be one of its own threads.
pub fn wait_until_closed(disk: &dyn Disk, directory: &Path) -> Result<()> {
    lock(disk, directory).map(drop)
}

/// Locks a directory. The last handle of a database that was just closed may be one of its own threads, such as that of a checkpoint,
/// so a held lock is retried for long.
pub(crate) fn lock(disk: &dyn Disk, directory: &Path) -> Result<DiskLock> {
    let begun = clock::now();
    loop {
        match disk.lock(&directory.join(LOCK)) {
            Err(error) if error.state() == SqlState::OBJECT_IN_USE && begun.elapsed() < LOCK_PATIENCE => {
                clock::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

fn copy(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    channel: &mut dyn Channel,
    (upstream, option): (&str, Option<&str>),
    name: &str,
    identity: Option<(DatabaseId, ClusterId)>,
    voter: Option<Voter>,
) -> Result<()> {
    let server = Server::greet(channel, name, voter.map(|voter| voter.node))?;
    if voter.is_some_and(|voter| server.epoch < voter.promised) {
        return Err(not_yet(server.epoch));
    }
    if identity.is_some_and(|identity| identity != (server.database, server.cluster)) {
        return Err(another_cluster());
    }
    let folders = Folders::of(directory);
    disk.create_directory(directory)?;
    // First, and on disk: what is there later may be removed.
    disk.create(&directory.join(JOINING))?.sync()?;
    disk.sync_directory(directory)?;
    for folder in folders.both() {
        disk.create_directory(folder)?;
        // Of a copy that was interrupted. Its manifest is written again.
        disk.list(folder)?.into_iter().try_for_each(|left| disk.remove(&folder.join(left)))?;
    }
    let (manifest, _, begin) = request(channel, &server, None, Vec::new(), &directory.join(MANIFEST))?;
    if !begin.is_same_place(&manifest.point()) {
        return Err(out_of_turn());
    }
    let log = LogCopy::create(disk.clone(), &folders.log, server.database, begin)?;
    let mut receiver = CopyReceiver::new(disk.clone(), folders, log);
    let (end, _) = receiver.receive_all(channel)?;
    if end.lsn < manifest.needed() {
        return Err(out_of_turn());
    }
    for folder in receiver.folders.both() {
        disk.sync_directory(folder)?;
    }
    // It is that of a primary of this epoch, so it has what others than the old one have promised to follow.
    let voter =
        voter.map(|voter| Voter { promised: server.epoch, committed: Lsn(manifest.needed().0), ..voter });
    manifest.install_replica(&**disk, directory, upstream, option, voter)?;
    disk.sync_directory(directory)
}

/// Whether a folder has a copy, complete or not.
fn is_ours(disk: &dyn Disk, anew: &Path) -> Result<bool> {
    for name in [MANIFEST, MOVING, JOINING] {
        if disk.exists(&anew.join(name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Error: 55000 if there is anything but what an interrupted copy has left.
fn check_that_nothing_is_there(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let is_interrupted = disk.exists(&directory.join(JOINING))?;
    let folders = Folders::of(directory);
    let mut found = None;
    for name in disk.list(directory)? {
        let is_folder = folders.both().contains(&directory.join(&name).as_path());
        let is_harmless = [LOCK, JOINING, "lost+found"].contains(&&*name)
            || is_interrupted && (is_folder || name == MANIFEST_TEMPORARY)
            || is_folder && disk.list(&directory.join(&name))?.is_empty();
        if !is_harmless {
            found = Some(name);
        }
    }
    let Some(found) = found else { return Ok(()) };
    let message =
        format!("directory \"{}\" is not empty, so no replica can be made there", directory.display());
    let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(format!("It has \"{found}\"."));
    Err(match DirectoryRole::read(disk, directory) {
        Ok(Some(_)) => {
            error.with_hint("A database that is no replica does not become one. Name another directory.")
        }
        _ => error.with_hint("Name an empty directory, or one that does not exist yet."),
    })
}

/// Removes a folder with a copy. No effect if it has none.
fn remove(disk: &dyn Disk, directory: &Path) -> Result<()> {
    if !is_ours(disk, directory)? {
        return Ok(());
    }
    // Whatever is left then is an interrupted copy.
    disk.create(&directory.join(JOINING))?.sync()?;
    for name in [MANIFEST, MOVING] {
        if disk.exists(&directory.join(name))? {
            disk.remove(&directory.join(name))?;
        }
    }
    disk.sync_directory(directory)?;
    for folder in Folders::of(directory).both() {
        if disk.exists(folder)? {
            disk.list(folder)?.into_iter().try_for_each(|name| disk.remove(&folder.join(name)))?;
            disk.sync_directory(folder)?;
            disk.remove_directory(folder)?;
        }
    }
    for name in disk.list(directory)?.iter().filter(|name| *name != JOINING) {
        disk.remove(&directory.join(name))?;
    }
    disk.remove(&directory.join(JOINING))?;
    disk.sync_directory(directory)?;
    disk.remove_directory(directory)
}
