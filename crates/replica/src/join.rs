//! Making a directory of a replica: a copy of another server's database, which then follows that server.
//!
//! A replica that cannot follow any more, since the server does not retain the log from its end on or has another history, begins anew:
//! the copy is written beside the old database, which is served meanwhile. Then the old one is closed, and the new one put in its
//! place:
//!
//! ```text
//! directory/anew/…        the copy while it is written
//! directory/anew/MANIFEST it is complete
//! 1  remove the old manifest, then the old files
//! 2  rename the new manifest to anew/MOVING
//! 3  move the new files, then the new manifest
//! ```
//! All of that does [`finish`], which is called before the directory is opened. After a crash it continues.

use crate::channel::Channel;
use crate::copying::{CopyReceiver, Server, out_of_turn, request};
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, clock};
use firn_log::LogCopy;
use firn_txn::{DirectoryRole, Folders, LOCK, MANIFEST, MANIFEST_TEMPORARY};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of a copy that will replace the database.
const ANEW: &str = "anew";
/// How long to retry a lock that is held.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The name of its manifest while its files are moved.
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
    copy(disk, directory, channel, upstream, name)?;
    match directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => disk.sync_directory(parent),
        None => Ok(()),
    }
}

/// Copies the database of the server beside that of a replica, which cannot follow it any more. [`finish`] puts it in its place.
pub fn copy_anew(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    channel: &mut dyn Channel,
    upstream: &str,
    name: &str,
) -> Result<()> {
    let anew = directory.join(ANEW);
    remove(&**disk, &anew)?;
    copy(disk, &anew, channel, upstream, name)
}

/// Puts a complete copy in the place of the database of a directory, which is not open. No effect without one.
pub fn finish(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let anew = directory.join(ANEW);
    if !disk.exists(&anew)? {
        return Ok(());
    }
    let _lock = lock(disk, directory)?;
    let (old, new) = (Folders::of(directory), Folders::of(&anew));
    let (complete, moving) = (anew.join(MANIFEST), anew.join(MOVING));
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
    }
    remove(disk, &anew)
}

/// Locks a directory. The last handle of a database that was just closed may be one of its own threads, so a held lock is retried
/// for a while.
fn lock(disk: &dyn Disk, directory: &Path) -> Result<DiskLock> {
    let begun = clock::now();
    loop {
        match disk.lock(&directory.join(LOCK)) {
            Err(error) if error.state() == SqlState::OBJECT_IN_USE && begun.elapsed() < LOCK_PATIENCE => {
                clock::sleep(LOCK_PATIENCE / 500);
            }
            outcome => return outcome,
        }
    }
}

fn copy(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    channel: &mut dyn Channel,
    upstream: &str,
    name: &str,
) -> Result<()> {
    let server = Server::greet(channel, name)?;
    let folders = Folders::of(directory);
    disk.create_directory(directory)?;
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
    let mut receiver = CopyReceiver { disk: disk.clone(), folders, log, bytes: 0 };
    let (end, _) = receiver.receive_all(channel)?;
    if end.lsn < manifest.needed() {
        return Err(out_of_turn());
    }
    for folder in receiver.folders.both() {
        disk.sync_directory(folder)?;
    }
    manifest.install_replica(&**disk, directory, upstream)?;
    disk.sync_directory(directory)
}

/// Error: 55000 if there is anything but what an interrupted copy has left.
fn check_that_nothing_is_there(disk: &dyn Disk, directory: &Path) -> Result<()> {
    if !disk.exists(directory)? {
        return Ok(());
    }
    let folders = Folders::of(directory);
    let is_ours = |name: &String| {
        let path: PathBuf = directory.join(name);
        [LOCK, MANIFEST_TEMPORARY, "lost+found"].contains(&&**name)
            || folders.both().contains(&path.as_path())
    };
    let foreign = disk.list(directory)?.into_iter().find(|name| !is_ours(name));
    let found = match foreign {
        None => return Ok(()),
        Some(found) => found,
    };
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

/// Removes a folder with a copy.
fn remove(disk: &dyn Disk, directory: &Path) -> Result<()> {
    if !disk.exists(directory)? {
        return Ok(());
    }
    // First the manifest: without it the copy is incomplete.
    if disk.exists(&directory.join(MANIFEST))? {
        disk.remove(&directory.join(MANIFEST))?;
        disk.sync_directory(directory)?;
    }
    for folder in Folders::of(directory).both() {
        if disk.exists(folder)? {
            disk.list(folder)?.into_iter().try_for_each(|name| disk.remove(&folder.join(name)))?;
            disk.remove_directory(folder)?;
        }
    }
    disk.list(directory)?.into_iter().try_for_each(|name| disk.remove(&directory.join(name)))?;
    disk.remove_directory(directory)
}
