//! A directory with backups: what is in it, what may go.

use super::description::{Description, Kind};
use crate::archive::{self, Run};
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState, datetime};
use firn_log::{DatabaseId, LogPoint};
use firn_txn::{ClusterId, CopiedManifest, Folders};
use std::path::{Path, PathBuf};

/// Marks a directory as one with backups.
const MARKER: &str = "BACKUPS";
const MARKER_TEMPORARY: &str = "BACKUPS.tmp";
/// Its content: the version of the layout.
const MARKER_TEXT: &[u8] = b"FIRNBACKUPS 1\n";
const LOCK: &str = "LOCK";
/// The folder with archived logs.
pub(crate) const ARCHIVE: &str = "archive";
/// Names that an otherwise empty directory may have.
const INNOCENT: [&str; 3] = [LOCK, MARKER_TEMPORARY, "lost+found"];

const DESCRIPTION_SUFFIX: &str = ".backup";
const MANIFEST_SUFFIX: &str = ".manifest";

/// A directory with backups.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
}

/// A full backup, and the incremental ones that are based on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Chain {
    /// The name of its folder.
    pub name: String,
    /// By the ends of their logs. There is at least one.
    pub backups: Vec<Description>,
}

impl Chain {
    /// The database and the cluster, which are the same for all of its backups.
    pub fn cluster(&self) -> (DatabaseId, ClusterId) {
        (self.backups[0].database, self.backups[0].cluster)
    }

    /// The newest backup of it.
    pub fn newest(&self) -> &Description {
        self.backups.last().expect("a chain has a backup")
    }
}

/// An uninterrupted part of a cluster's log in the archive.
#[derive(Clone, PartialEq, Debug)]
pub struct ArchivedRun {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its folder.
    pub directory: PathBuf,
    /// What is known of it.
    pub run: Run,
}

impl Repository {
    /// An existing one. Error: 55000 if the directory is none, or is of another version.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path) -> Result<Repository> {
        let repository = Repository { disk, directory: directory.to_owned() };
        if repository.is_marked()? {
            return Ok(repository);
        }
        let message = format!("\"{}\" is not a directory with backups", directory.display());
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("Make a backup there by firn backup create HOST:PORT DIR."))
    }

    /// An existing one, or a new one in a directory that is empty or does not exist. Errors as of [`Repository::open`].
    pub fn open_or_create(disk: Arc<dyn Disk>, directory: &Path) -> Result<Repository> {
        disk.create_directory(directory)?;
        let repository = Repository { disk, directory: directory.to_owned() };
        if repository.is_marked()? {
            return Ok(repository);
        }
        let names = repository.disk.list(directory)?;
        if let Some(foreign) = names.iter().find(|name| !INNOCENT.contains(&name.as_str())) {
            let message = format!("directory \"{}\" is not empty and holds no backups", directory.display());
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_detail(format!("It holds \"{foreign}\"."))
                .with_hint("Name an empty directory, or one that does not exist yet."));
        }
        let (marker, temporary) = (directory.join(MARKER), directory.join(MARKER_TEMPORARY));
        repository.disk.replace(&marker, &temporary, MARKER_TEXT)?;
        Ok(repository)
    }

    fn is_marked(&self) -> Result<bool> {
        let path = self.directory.join(MARKER);
        if !self.disk.exists(&path)? {
            return Ok(false);
        }
        if self.disk.read(&path)? == MARKER_TEXT {
            return Ok(true);
        }
        let message = format!("the backups in \"{}\" are of another version", self.directory.display());
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("Use the version of FirnDB that made them."))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Locks it against others that write or remove backups. Error: 55006 if another one does.
    pub(super) fn lock(&self) -> Result<DiskLock> {
        self.disk.lock(&self.directory.join(LOCK)).map_err(|error| {
            let message =
                format!("another process writes to the backups in \"{}\"", self.directory.display());
            explain_lock(error, message, "Wait until it has ended.")
        })
    }

    /// The folder of a chain.
    pub fn folder(&self, chain: &str) -> PathBuf {
        self.directory.join(chain)
    }

    /// The folders of a chain with files of a database; `log` is the name of one.
    pub(super) fn folders(&self, chain: &str, log: &str) -> Folders {
        let folder = self.folder(chain);
        Folders { checkpoint: folder.join("checkpoint"), log: folder.join(log) }
    }

    /// The path of a backup's description.
    pub(super) fn description_path(&self, chain: &str, label: &str) -> PathBuf {
        self.folder(chain).join(format!("{label}{DESCRIPTION_SUFFIX}"))
    }

    /// The path of a backup's manifest.
    pub(super) fn manifest_path(&self, chain: &str, label: &str) -> PathBuf {
        self.folder(chain).join(format!("{label}{MANIFEST_SUFFIX}"))
    }

    /// A backup's manifest. Error: XX001 if it is damaged.
    pub fn manifest(&self, chain: &str, label: &str) -> Result<CopiedManifest> {
        let path = self.manifest_path(chain, label);
        CopiedManifest::decode(&self.disk.read(&path)?, &path)
    }

    /// All chains with complete backups, oldest first. Damaged descriptions are left out: see [`Repository::damaged`].
    pub fn chains(&self) -> Result<Vec<Chain>> {
        Ok(self.read_chains()?.0)
    }

    /// Why backups and archived logs are left out whose descriptions are damaged.
    pub fn damaged(&self) -> Result<Vec<Error>> {
        let mut damaged = self.read_chains()?.1;
        damaged.extend(archived_in(&self.disk, &self.directory.join(ARCHIVE))?.1);
        Ok(damaged)
    }

    fn read_chains(&self) -> Result<(Vec<Chain>, Vec<Error>)> {
        let (mut chains, mut damaged) = (Vec::new(), Vec::new());
        for name in self.chain_names()? {
            let mut backups = Vec::new();
            for file in self.described_in(&name)? {
                match Description::read(&*self.disk, &self.folder(&name).join(file)) {
                    Ok(description) => backups.push(description),
                    Err(error) if error.state() == SqlState::DATA_CORRUPTED => damaged.push(error),
                    Err(error) => return Err(error),
                }
            }
            if !backups.is_empty() {
                backups.sort_by_key(|backup: &Description| (backup.end.lsn, backup.begun));
                chains.push(Chain { name, backups });
            }
        }
        chains.sort_by_key(|chain| chain.backups[0].begun);
        Ok((chains, damaged))
    }

    /// The names of the descriptions of a chain.
    fn described_in(&self, chain: &str) -> Result<Vec<String>> {
        let names = self.disk.list(&self.folder(chain))?;
        Ok(names.into_iter().filter(|name| name.ends_with(DESCRIPTION_SUFFIX)).collect())
    }

    /// The names of folders of chains, also of unfinished ones.
    fn chain_names(&self) -> Result<Vec<String>> {
        let names = self.disk.list(&self.directory)?;
        Ok(names.into_iter().filter(|name| is_label(name)).collect())
    }

    /// The archived logs, by cluster and oldest first.
    pub fn archived(&self) -> Result<Vec<ArchivedRun>> {
        Ok(archived_in(&self.disk, &self.directory.join(ARCHIVE))?.0)
    }

    /// The folder with the archived log of a cluster, in a directory with backups.
    pub(crate) fn archive_folder(directory: &Path, cluster: ClusterId) -> PathBuf {
        directory.join(ARCHIVE).join(cluster.to_string())
    }

    /// A name for a backup that begins now, which no other one has.
    pub(super) fn new_label(&self, now: i64) -> Result<String> {
        let mut text = String::new();
        datetime::write_iso_timestamp(now.div_euclid(1_000_000) * 1_000_000, &mut text);
        let second: String = text.chars().filter(char::is_ascii_digit).collect::<String>() + "Z";
        let second = format!("{}T{}", &second[..8], &second[8..]);
        let mut taken = self.chain_names()?;
        for chain in taken.clone() {
            let names = self.described_in(&chain)?;
            taken.extend(
                names.iter().filter_map(|name| name.strip_suffix(DESCRIPTION_SUFFIX)).map(str::to_owned),
            );
        }
        let is_free = |label: &String| !taken.contains(label);
        let numbered = (2..).map(|number| format!("{second}-{number}"));
        let mut names = std::iter::once(second.clone()).chain(numbered);
        Ok(names.find(is_free).expect("there is always another number"))
    }

    /// Verifies a backup: reads all of it into memory and builds its indexes. Returns the number of rows.
    ///
    /// Errors: XX001 if anything is missing or damaged; 53200 if memory does not suffice.
    pub fn verify(&self, chain: &str, backup: &Description, config: &firn_txn::Config) -> Result<u64> {
        let manifest = self.manifest(chain, &backup.label)?;
        manifest.check(&*self.disk, &self.folders(chain, &backup.log), backup.end, config)
    }

    /// Verifies an archived log: reads its groups, and the files that they name. Returns where it ends. XX001 if something is
    /// missing or damaged.
    pub fn verify_archived(&self, archived: &ArchivedRun) -> Result<LogPoint> {
        archive::verify(&*self.disk, archived)
    }

    /// Removes all but the newest `keep` chains of each cluster, what interrupted backups have left, and the part of the archive
    /// before the oldest backup that is left of its cluster. A chain is removed as a whole, or not at all. Returns the names of the
    /// removed backups. `archive` has the archive, if it is elsewhere.
    pub fn prune(&self, keep: usize, archive: Option<&Repository>) -> Result<Vec<String>> {
        assert!(keep > 0, "the newest backup stays");
        let _lock = self.lock()?;
        let chains = self.chains()?;
        let is_kept = |chain: &Chain| {
            let newer = chains.iter().filter(|other| {
                other.cluster() == chain.cluster() && other.backups[0].begun > chain.backups[0].begun
            });
            newer.count() < keep
        };
        let mut removed = Vec::new();
        for name in self.chain_names()? {
            let chain = chains.iter().find(|chain| chain.name == name);
            // One of which all descriptions are damaged is left to people.
            let stays = chain.map_or_else(
                || self.described_in(&name).map(|names| !names.is_empty()),
                |chain| Ok(is_kept(chain)),
            )?;
            if stays {
                continue;
            }
            // The descriptions first, the newest before what it is based on: a chain that is removed in part has no gap.
            for backup in chain.iter().flat_map(|chain| chain.backups.iter().rev()) {
                self.disk.remove(&self.description_path(&name, &backup.label))?;
                removed.push(backup.label.clone());
            }
            self.disk.sync_directory(&self.folder(&name))?;
            self.remove_chain(&name)?;
        }
        self.disk.sync_directory(&self.directory)?;
        let archive = archive.unwrap_or(self);
        let archived = archive.archived()?;
        for (number, one) in archived.iter().enumerate() {
            let of_it = chains
                .iter()
                .filter(|chain| chain.cluster() == (one.run.database, one.cluster) && is_kept(chain));
            let backups = of_it.flat_map(|chain| chain.backups.iter().map(move |backup| (chain, backup)));
            let needed =
                backups.map(|(chain, backup)| Ok(self.manifest(&chain.name, &backup.label)?.point().lsn));
            let needed = needed.collect::<Result<Vec<Lsn>>>()?.into_iter().min();
            // Without a backup of it, nothing says what may go.
            if let Some(needed) = needed {
                let is_newest = archived.get(number + 1).is_none_or(|next| next.cluster != one.cluster);
                archive::prune(&archive.disk, one, needed, is_newest)?;
            }
        }
        removed.sort();
        Ok(removed)
    }

    /// Removes what a chain's folder holds, and the folder.
    fn remove_chain(&self, name: &str) -> Result<()> {
        let folder = self.folder(name);
        for inner in self.disk.list(&folder)? {
            if inner == "checkpoint" || inner.starts_with("log-") {
                archive::remove_folder(&*self.disk, &folder.join(inner))?;
            }
        }
        archive::remove_folder(&*self.disk, &folder)
    }

    /// The newest chain of a cluster.
    pub fn newest_chain(&self, of: (DatabaseId, ClusterId)) -> Result<Option<Chain>> {
        Ok(self.chains()?.into_iter().rfind(|chain| chain.cluster() == of))
    }
}

/// The archived runs in a folder with archives, by cluster and oldest first, and errors of those that are damaged.
fn archived_in(disk: &Arc<dyn Disk>, folder: &Path) -> Result<(Vec<ArchivedRun>, Vec<Error>)> {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    if !disk.exists(folder)? {
        return Ok((found, damaged));
    }
    for name in disk.list(folder)? {
        let Some(cluster) = ClusterId::parse(&name) else { continue };
        let (runs, errors) = archive::runs(&**disk, &folder.join(&name))?;
        found.extend(runs.into_iter().map(|(directory, run)| ArchivedRun { cluster, directory, run }));
        damaged.extend(errors);
    }
    Ok((found, damaged))
}

/// Says of a lock that another holder has what it is for.
pub(crate) fn explain_lock(error: Error, message: String, hint: &str) -> Error {
    if error.state() != SqlState::OBJECT_IN_USE {
        return error;
    }
    let explained = Error::new(SqlState::OBJECT_IN_USE, message);
    match (error.detail(), error.hint()) {
        // Who it is, and what to do.
        (Some(detail), Some(cure)) => explained.with_detail(detail).with_hint(format!("{hint} {cure}")),
        _ => explained.with_hint(hint),
    }
}

/// Whether a name is one of a backup: `20261130T010203Z`, or that with a number.
fn is_label(name: &str) -> bool {
    let (time, number) = name.split_once('-').unwrap_or((name, "2"));
    let bytes = time.as_bytes();
    let digits = |range: &[u8]| range.iter().all(u8::is_ascii_digit);
    bytes.len() == 16
        && digits(&bytes[..8])
        && bytes[8] == b'T'
        && digits(&bytes[9..15])
        && bytes[15] == b'Z'
        && number.parse::<u32>().is_ok()
}

impl Kind {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Full => "full",
            Kind::Incremental => "incremental",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::disk::SimulatedDisk;

    #[test]
    fn a_label_is_the_second_at_which_a_backup_begins() {
        let disk = SimulatedDisk::new();
        let repository = Repository::open_or_create(disk.clone(), Path::new("/backups")).unwrap();
        // 2026-11-30 01:02:03.5
        let label = repository.new_label(1_795_999_323_500_000 + 2_400_000_000).unwrap();
        assert!(is_label(&label) && label.starts_with("2026"), "{label}");
        disk.create_directory(&repository.folder(&label)).unwrap();
        let next = repository.new_label(1_795_999_323_700_000 + 2_400_000_000).unwrap();
        assert_eq!(next, format!("{label}-2"));
        for other in
            ["archive", "LOCK", "20261130", "20261130T010203", "20261130T010203Z-x", "x0261130T010203Z"]
        {
            assert!(!is_label(other), "{other}");
        }
    }

    #[test]
    fn a_directory_with_other_files_gets_no_backups() {
        let disk = SimulatedDisk::new();
        let home = Path::new("/home");
        disk.create_directory(home).unwrap();
        disk.create(&home.join("letter")).unwrap();
        let error = Repository::open_or_create(disk.clone(), home).unwrap_err();
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert!(error.detail().is_some_and(|detail| detail.contains("letter")));
        assert!(Repository::open(disk.clone(), home).is_err());
        Repository::open_or_create(disk.clone(), Path::new("/backups")).unwrap();
        assert!(Repository::open(disk, Path::new("/backups")).unwrap().chains().unwrap().is_empty());
    }
}
