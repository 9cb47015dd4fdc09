//! What a copy of a database directory consists of, for backups and replicas: the files of a checkpoint, its manifest, the log
//! from the manifest's position on, and the files that the log names.
//!
//! A copy has the layout of a database directory. It is complete with the log up to [`CopiedManifest::needed`]: before that, its
//! tables are as of no single moment.

use crate::config::Config;
use crate::engine::Engine;
use crate::loads;
use crate::manifest::{ClusterId, Manifest, TableFile, checkpoint_directory, log_directory};
use crate::recovery;
use crate::table_file;
use crate::voter::Voter;
use firn_base::disk::{Disk, DiskFile};
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState, clock};
use firn_log::{DatabaseId, Group, LogPoint, Pin, Record, SpillReader, spill_name};
use firn_storage::MemoryBudget;
use std::path::{Path, PathBuf};

/// A folder of a database directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Folder {
    /// Files with rows.
    Checkpoint,
    /// Segments of the log, and spill files.
    Log,
}

/// Where the folders are. Those of a copy need not be in one directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// [`Folder::Checkpoint`]
    pub checkpoint: PathBuf,
    /// [`Folder::Log`]
    pub log: PathBuf,
}

impl Folders {
    /// Those of a database directory.
    pub fn of(directory: &Path) -> Folders {
        Folders { checkpoint: checkpoint_directory(directory), log: log_directory(directory) }
    }

    /// Both.
    pub fn both(&self) -> [&Path; 2] {
        [&self.checkpoint, &self.log]
    }

    /// The path of a file.
    pub fn path(&self, file: &DatabaseFile) -> PathBuf {
        let folder = match file.folder {
            Folder::Checkpoint => &self.checkpoint,
            Folder::Log => &self.log,
        };
        folder.join(&file.name)
    }
}

/// A file beside the segments of the log. It never changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DatabaseFile {
    /// Where it is.
    pub folder: Folder,
    /// Its name there.
    pub name: String,
    /// Its length and CRC32C. `None` for a spill file: the log has the checksums of its parts.
    pub content: Option<(u64, u32)>,
}

impl DatabaseFile {
    pub(crate) fn of_table(file: &TableFile) -> DatabaseFile {
        let content = Some((file.bytes, file.crc));
        DatabaseFile { folder: Folder::Checkpoint, name: file.name.clone(), content }
    }
}

/// The files that a group of the log names, in addition to those of the manifest.
///
/// Error: XX001 if its records are damaged.
pub fn files_named_by(group: &Group) -> Result<Vec<DatabaseFile>> {
    let mut files = Vec::new();
    for entry in group.entries() {
        for record in entry.records() {
            match record? {
                Record::Spilled { number, .. } => files.push(DatabaseFile {
                    folder: Folder::Log,
                    name: spill_name(number, entry.epoch),
                    content: None,
                }),
                Record::Loaded(bytes) => {
                    files.extend(loads::named_by(bytes)?.iter().map(DatabaseFile::of_table));
                }
                _ => {}
            }
        }
    }
    Ok(files)
}

/// Reads the files that a group of a copied log names, and compares their checksums. XX001 if one is missing or damaged.
pub fn check_files_named_by(
    group: &Group,
    disk: &dyn Disk,
    folders: &Folders,
    database: DatabaseId,
) -> Result<()> {
    let spills = SpillReader { disk, directory: &folders.log, database };
    for entry in group.entries() {
        for record in entry.records() {
            match record? {
                Record::Spilled { number, chunks } => spills.read(number, entry.epoch, chunks, |_| Ok(()))?,
                Record::Loaded(bytes) => {
                    for file in loads::named_by(bytes)? {
                        table_file::check_file(disk, &folders.checkpoint, &file)?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The position in a group after its restore point of a name, if it has one. XX001 if its records are damaged.
pub fn restore_point_in(group: &Group, name: &str) -> Result<Option<Lsn>> {
    for (entry, end) in group.entries().zip(group.entry_ends()) {
        for record in entry.records() {
            if matches!(record?, Record::RestorePoint(found) if found == name) {
                return Ok(Some(end));
            }
        }
    }
    Ok(None)
}

/// The manifest of a copy.
#[derive(Clone, PartialEq, Debug)]
pub struct CopiedManifest(Manifest);

impl CopiedManifest {
    /// Reads the bytes of a manifest; `path` is where they are, for errors: XX001 if they are damaged, 55000 if they are of
    /// a version that is not known.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<CopiedManifest> {
        Manifest::decode(bytes, path).map(|(manifest, _)| CopiedManifest(manifest))
    }

    /// The database.
    pub fn database(&self) -> DatabaseId {
        self.0.database
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.0.cluster
    }

    /// The place in the log's history from which on the log belongs to it.
    pub fn point(&self) -> LogPoint {
        self.0.point()
    }

    /// The position up to which the log belongs to it at least.
    pub fn needed(&self) -> Lsn {
        Lsn(self.0.needed).max(self.0.position())
    }

    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = DatabaseFile> {
        self.0.files.iter().map(DatabaseFile::of_table)
    }

    /// Makes it the manifest of a directory that has everything else, as that of a replica that follows a server. `option` is the
    /// server that the operator has named last.
    pub fn install_replica(
        mut self,
        disk: &dyn Disk,
        directory: &Path,
        upstream: &str,
        option: Option<&str>,
        voter: Option<Voter>,
    ) -> Result<()> {
        (self.0.follows, self.0.handed_over_at) = (Some(upstream.to_owned()), None);
        self.0.voter = voter;
        self.0.follow_option = option.map(str::to_owned);
        self.0.write(disk, directory)
    }

    /// Makes it the manifest of a directory that has everything else, as that of a database of another cluster.
    pub fn install(mut self, disk: &dyn Disk, directory: &Path, cluster: ClusterId) -> Result<()> {
        (self.0.cluster, self.0.follows, self.0.handed_over_at) = (cluster, None, None);
        (self.0.follow_option, self.0.voter) = (None, None);
        self.0.write(disk, directory)
    }

    /// Checks a copy of which it is the manifest: reads everything into memory, with the log up to `end`, and builds all
    /// indexes. Nothing in the directory is changed. Returns the number of its rows.
    ///
    /// Errors: XX001 if anything is missing or damaged; 53200 if memory does not suffice.
    pub fn check(&self, disk: &dyn Disk, folders: &Folders, end: LogPoint, config: &Config) -> Result<u64> {
        let memory = Arc::new(MemoryBudget::new(config.memory_limit));
        let (_, tables, reached) =
            recovery::rebuild(disk, folders, &self.0, Some(end.lsn), config.threads, &memory)?;
        if !reached.is_same_place(&end) {
            let message = format!("the log in \"{}\" is not the one that was copied", folders.log.display());
            return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                .with_detail(format!(
                    "It ends at byte {}, and should end at byte {}.",
                    reached.lsn.0, end.lsn.0
                ))
                .with_hint("Use another copy."));
        }
        Ok(tables.values().map(|table| table.approximate_rows()).sum())
    }
}

impl Engine {
    /// A time, and the place up to which the log has to be for every commit to be in it that was acknowledged before: now, and
    /// what is on disk now. In a replica only what the log itself says is known. In microseconds since 1970 UTC.
    ///
    /// Error: that of the log, if it has failed.
    pub fn complete_until(&self) -> Result<(i64, LogPoint)> {
        // In this order: what was acknowledged before that time is on disk then.
        let now = clock::wall_clock_micros();
        self.flush_log()?;
        let point = self.committed_point();
        // Of groups with a time before that of the last one none is missing.
        Ok((if self.is_replica() { point.wall_time } else { now }, point))
    }

    /// The database, and the cluster that it belongs to; `None` without a directory.
    pub fn identity(&self) -> Option<(DatabaseId, ClusterId)> {
        self.store_and_log().map(|(store, _)| store.identity())
    }

    /// Retains all of the log that is retained now, as far as `max_slot_wal_keep_size` allows. Error: 55000 without a directory.
    pub fn pin_log(&self, holder: &str) -> Result<Pin> {
        let (_, log) = self.store_and_log().ok_or_else(crate::engine::no_log)?;
        Ok(log.pin_all(holder))
    }

    /// Opens a file of the directory that a pin retains. 58P01 if it has been removed; 55000 without a directory.
    pub fn open_file(&self, file: &DatabaseFile) -> Result<Arc<dyn DiskFile>> {
        let (store, _) = self.store_and_log().ok_or_else(crate::engine::no_log)?;
        store.open_file(file)
    }
}
