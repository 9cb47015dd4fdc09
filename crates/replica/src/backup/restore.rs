//! Restoring a database from a backup: as of the newest commit that is there, or as of an earlier one.
//!
//! The restored directory gets the checkpoint of a backup, and the log from there up to the target: from the chain, then from the
//! archive where that continues it. What follows the target is left out. The last group is written anew if only some of its
//! commits belong to the target. The directory is opened like one after a crash.

use super::description::{Description, shown_lsn, shown_time};
use super::repository::{ArchivedRun, Chain, Repository};
use crate::archive;
use crate::files;
use firn_base::disk::Disk;
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Result, SqlState, thread};
use firn_log::{Group, LogCopy, LogPoint, Reader, SegmentHeader};
use firn_txn::{ClusterId, CopiedManifest, DatabaseFile, Folders, files_named_by, restore_point_in};
use std::path::Path;

/// As of when a database is restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// With everything that there is.
    Latest,
    /// With the commits up to a position.
    Lsn(Lsn),
    /// With the groups of commits that were written up to a time, in microseconds since 1970 UTC: with every commit that was
    /// acknowledged before, and none that began after.
    Time(i64),
    /// With the commits up to the first restore point of a name after the backup.
    Name(String),
}

/// A database that was restored.
#[derive(Clone, PartialEq, Debug)]
pub struct Restored {
    /// The backup that it comes from.
    pub backup: Description,
    /// Where its log ends, as a position of the log that was copied.
    pub end: Lsn,
    /// When the last group of commits in it was written, in microseconds since 1970 UTC.
    pub time: i64,
    /// The cluster that it is now.
    pub cluster: ClusterId,
    /// Where a later part of the archived log begins that could not be used, since something is missing before it.
    pub gap: Option<Lsn>,
}

/// What to restore.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// As of when.
    pub target: Target,
    /// Whether what is at the target itself belongs to it.
    pub inclusive: bool,
    /// The label of the backup to begin with; the newest that precedes the target by default.
    pub backup: Option<String>,
    /// The cluster, if there are backups of several.
    pub cluster: Option<ClusterId>,
    /// What has the archive of the log; the directory of the backups by default.
    pub archive: Option<Repository>,
}

/// Restores into the directory `data` of a disk, which is created or empty.
///
/// Errors: 55000 if there is no such backup, the target is not reached or precedes every backup, or `data` is not empty; XX001 if
/// something is damaged; those of the disk. After an error `data` has files, but is no database.
pub fn restore(
    repository: &Repository,
    disk: &Arc<dyn Disk>,
    data: &Path,
    wanted: &Wanted,
) -> Result<Restored> {
    check_that_it_is_empty(&**disk, data)?;
    let chains = repository.chains()?;
    let backups = chains.iter().flat_map(|chain| chain.backups.iter().map(move |backup| (chain, backup)));
    let mut candidates: Vec<(&Chain, &Description)> = backups
        .filter(|(_, backup)| wanted.backup.as_ref().is_none_or(|label| *label == backup.label))
        .filter(|(_, backup)| wanted.cluster.is_none_or(|cluster| cluster == backup.cluster))
        .collect();
    let Some(of) = candidates.first().map(|(chain, _)| chain.cluster()) else {
        return Err(no_backup(repository, wanted.backup.as_deref()));
    };
    if candidates.iter().any(|(chain, _)| chain.cluster() != of) {
        return Err(several_clusters(repository));
    }
    // The newest first.
    candidates.sort_by_key(|(_, backup)| std::cmp::Reverse((backup.end.lsn, backup.begun)));
    let archives = archives_of(repository, wanted, of.1)?;
    let archive_disk = &*wanted.archive.as_ref().unwrap_or(repository).disk;
    let mut after: Option<Error> = None;
    for (chain, backup) in candidates {
        let source = Source::new(repository, chain, backup, &archives, archive_disk)?;
        match source.find(wanted)? {
            Found::At(cut) => return source.install(disk, data, cut),
            // An earlier one reaches it if any does.
            Found::Before(error) => after = Some(error),
            Found::Beyond(error) => {
                return Err(match after {
                    Some(after) => in_a_gap(&error, &after),
                    None => error,
                });
            }
        }
    }
    Err(after.expect("there was a candidate"))
}

/// The archived logs of a cluster, the newest first. 55000 if a directory was named that has none.
fn archives_of(repository: &Repository, wanted: &Wanted, cluster: ClusterId) -> Result<Vec<ArchivedRun>> {
    let archived = wanted.archive.as_ref().unwrap_or(repository).archived()?;
    let of_it: Vec<ArchivedRun> = archived.into_iter().filter(|one| one.cluster == cluster).rev().collect();
    match &wanted.archive {
        Some(archive) if of_it.is_empty() => {
            let directory = archive.directory().display();
            let message = format!("there is no archive of cluster {cluster} in \"{directory}\"");
            Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("Name the directory of firn serve --archive."))
        }
        _ => Ok(of_it),
    }
}

/// Where a restored log ends.
struct Cut {
    /// The last group begins here, unless all before it has been taken as a whole.
    lsn: Lsn,
    /// How many entries of the group that begins there are taken; 0 for none.
    entries: usize,
    /// See [`Restored::gap`].
    gap: Option<Lsn>,
}

/// Whether a backup can be restored to a target.
enum Found {
    At(Cut),
    /// The target precedes the end of the backup's checkpoint.
    Before(Error),
    /// The log does not reach the target.
    Beyond(Error),
}

/// Where a log ends.
struct End {
    /// Every commit that was acknowledged before this time is in it.
    complete_until: i64,
    /// Where the next part of the archive begins, if there is one and something is missing before it.
    gap: Option<Lsn>,
}

/// Where files of a database are.
#[derive(Clone, Copy)]
struct Place<'a> {
    disk: &'a dyn Disk,
    folders: &'a Folders,
}

/// A backup, with the logs that belong to it.
struct Source<'r> {
    repository: &'r Repository,
    backup: &'r Description,
    folders: Folders,
    manifest: CopiedManifest,
    /// Where the log ends that it shares with later backups, and until when that is complete.
    end: LogPoint,
    complete_until: i64,
    archives: Vec<&'r ArchivedRun>,
    /// The disk of the archives.
    archive_disk: &'r dyn Disk,
}

impl<'r> Source<'r> {
    fn new(
        repository: &'r Repository,
        chain: &'r Chain,
        backup: &'r Description,
        archives: &'r [ArchivedRun],
        archive_disk: &'r dyn Disk,
    ) -> Result<Source<'r>> {
        let manifest = repository.manifest(&chain.name, &backup.label)?;
        let newest = chain.backups.iter().rfind(|other| other.log == backup.log).expect("it is one itself");
        let archives = archives.iter().collect();
        let (end, complete_until) = (newest.end, newest.complete_until);
        let folders = repository.folders(&chain.name, &backup.log);
        Ok(Source { repository, backup, folders, manifest, end, complete_until, archives, archive_disk })
    }

    /// Reads its log from the checkpoint on. `visit` gets each group with where it is, and returns whether to go on. Returns where the
    /// log ends if it has been read to its end.
    fn read(&self, mut visit: impl FnMut(&Group, &Reader, Place<'_>) -> Result<bool>) -> Result<Option<End>> {
        let mut disk = &*self.repository.disk;
        let mut reader = Reader::open(disk, &self.folders.log, self.backup.database, self.manifest.point())?;
        reader.end_at(self.end.lsn);
        let (mut folders, mut complete_until) = (self.folders.clone(), self.complete_until);
        let mut archives = self.archives.clone();
        loop {
            while let Some(group) = reader.next_group()? {
                if !visit(&group, &reader, Place { disk, folders: &folders })? {
                    return Ok(None);
                }
            }
            let point = reader.point();
            if point.lsn < self.end.lsn {
                let message = format!("the log in \"{}\" ends too early", self.folders.log.display());
                return Err(Error::new(SqlState::DATA_CORRUPTED, message)
                    .with_detail(format!("It should reach {}.", shown_lsn(self.end.lsn)))
                    .with_hint("Use another backup."));
            }
            let mut next = None;
            for (at, archived) in archives.iter().enumerate() {
                if let Some(reader) = archive::read_from(self.archive_disk, archived, point)? {
                    next = Some((at, reader));
                    break;
                }
            }
            let Some((at, next)) = next else {
                let later = archives.iter().filter(|one| point.lsn < one.run.end.lsn);
                let gap = later.map(|one| one.run.begin.lsn).filter(|begin| point.lsn < *begin).min();
                return Ok(Some(End { complete_until, gap }));
            };
            let archived = archives.remove(at);
            (reader, folders, disk) = (next, Folders::of(&archived.directory), self.archive_disk);
            complete_until = complete_until.max(archived.run.complete_until);
        }
    }

    /// Where its log has to be cut.
    fn find(&self, wanted: &Wanted) -> Result<Found> {
        let (needed, begin) = (self.manifest.needed(), self.manifest.point());
        let is_before = match wanted.target {
            Target::Time(time) => begin.wall_time > time || !wanted.inclusive && begin.wall_time == time,
            Target::Lsn(lsn) => begin.lsn > lsn || !wanted.inclusive && begin.lsn == lsn,
            Target::Latest | Target::Name(_) => false,
        };
        if is_before {
            return Ok(Found::Before(self.precedes()));
        }
        let (mut last, mut cut) = (begin, None);
        let end = self.read(|group, _, _| {
            let taken = taken_of(group, wanted)?;
            match taken {
                Taken::All => last = group.end,
                Taken::Some(entries) => cut = Some(Cut { lsn: group.begin, entries, gap: None }),
            }
            Ok(cut.is_none())
        })?;
        let cut = match (cut, end) {
            (Some(cut), _) => cut,
            (None, None) => unreachable!("the log is read to its end unless a cut is found"),
            (None, Some(End { complete_until, gap })) => match &wanted.target {
                Target::Latest => Cut { lsn: last.lsn, entries: 0, gap },
                Target::Time(time) if *time <= complete_until => Cut { lsn: last.lsn, entries: 0, gap: None },
                Target::Lsn(lsn) if *lsn <= last.lsn => Cut { lsn: last.lsn, entries: 0, gap: None },
                Target::Time(_) | Target::Lsn(_) => {
                    return Ok(Found::Beyond(self.not_reached(last, complete_until)));
                }
                // It may precede this backup.
                Target::Name(name) => return Ok(Found::Before(self.unknown_name(name, last))),
            },
        };
        // With entries, the group that begins there has something of what is needed only if it ends there.
        let reaches = cut.lsn >= needed || cut.entries > 0 && self.is_within(cut.lsn, cut.entries, needed)?;
        Ok(if reaches { Found::At(cut) } else { Found::Before(self.precedes()) })
    }

    /// Whether the first entries of a group contain everything up to a position.
    fn is_within(&self, begin: Lsn, entries: usize, needed: Lsn) -> Result<bool> {
        let mut is_within = false;
        self.read(|group, _, _| {
            if group.begin < begin {
                return Ok(true);
            }
            is_within = group.entry_ends().nth(entries - 1).is_some_and(|end| end >= needed);
            Ok(false)
        })?;
        Ok(is_within)
    }

    #[cold]
    fn not_reached(&self, last: LogPoint, until: i64) -> Error {
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the log ends before the target")
            .with_detail(format!(
                "It ends at {}, and is complete until {}.",
                shown_lsn(last.lsn),
                shown_time(until)
            ))
            .with_hint("Name an earlier target, or leave it out to restore everything that there is.")
    }

    #[cold]
    fn unknown_name(&self, name: &str, last: LogPoint) -> Error {
        let message = format!("there is no restore point \"{name}\" in the log");
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail(format!(
                "From {} to {} there is none of that name.",
                shown_lsn(self.manifest.point().lsn),
                shown_lsn(last.lsn)
            ))
            .with_hint("Names are those of pg_create_restore_point; name a time or a position instead.")
    }

    #[cold]
    fn precedes(&self) -> Error {
        let message = "the target is before the end of the oldest backup that could be used";
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail(format!(
                "Backup {}, which ended at {}, can be restored to {} or later.",
                self.backup.label,
                shown_time(self.backup.ended),
                shown_lsn(self.manifest.needed())
            ))
            .with_hint("Name a later target, or use an earlier backup; see firn backup list.")
    }

    /// Makes the restored directory.
    fn install(&self, disk: &Arc<dyn Disk>, data: &Path, cut: Cut) -> Result<Restored> {
        let (source_disk, target) = (&*self.repository.disk, Folders::of(data));
        let to = Place { disk: &**disk, folders: &target };
        for folder in target.both() {
            disk.create_directory(folder)?;
        }
        let threads = files::files_at_once(source_disk.medium());
        let (from, files) = (Place { disk: source_disk, folders: &self.folders }, self.manifest.files());
        let files: Vec<DatabaseFile> = files.collect();
        thread::for_each("firn-restore", threads, &files, |file| copy_file(file, from, to))?;
        let (begin, database) = (self.manifest.point(), self.backup.database);
        let mut log = LogCopy::create(disk.clone(), &target.log, database, begin)?;
        let first = Reader::open(source_disk, &self.folders.log, database, begin)?;
        // Also if no group follows: a database has a log.
        first.segment().map_or(Ok(()), |segment| log.begin_segment(&segment.encode()).map(drop))?;
        let mut named: Vec<DatabaseFile> = Vec::new();
        self.read(|group, reader, place| {
            if group.begin >= cut.lsn && cut.entries == 0 {
                return Ok(false);
            }
            for segment in reader.segments_of(group).collect::<Vec<&SegmentHeader>>() {
                log.begin_segment(&segment.encode())?;
            }
            for file in files_named_by(group)? {
                if !named.contains(&file) {
                    copy_file(&file, place, to)?;
                    named.push(file);
                }
            }
            if group.begin < cut.lsn {
                log.append(group.bytes())?;
                return Ok(true);
            }
            log.append(&group.shortened(cut.entries))?;
            Ok(false)
        })?;
        log.sync()?;
        for folder in target.both() {
            disk.sync_directory(folder)?;
        }
        let cluster = ClusterId::random();
        self.manifest.clone().install(&**disk, data, cluster)?;
        if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            disk.sync_directory(parent)?;
        }
        let LogPoint { lsn: end, wall_time: time, .. } = log.point();
        Ok(Restored { backup: self.backup.clone(), end, time, cluster, gap: cut.gap })
    }
}

/// How much of a group belongs to a target.
enum Taken {
    All,
    /// So many entries, and the log ends there. Those of an epoch's beginning alone are not taken.
    Some(usize),
}

fn taken_of(group: &Group, wanted: &Wanted) -> Result<Taken> {
    let inclusive = wanted.inclusive;
    let entries = match &wanted.target {
        Target::Latest => return Ok(Taken::All),
        Target::Time(time) => {
            let is_in = group.end.wall_time < *time || inclusive && group.end.wall_time == *time;
            return Ok(if is_in { Taken::All } else { Taken::Some(0) });
        }
        Target::Lsn(lsn) => {
            if group.end.lsn < *lsn || inclusive && group.end.lsn == *lsn {
                return Ok(Taken::All);
            }
            // The last one ends at the end of the group, as the positions that SQL shows.
            let last = group.entries().count() - 1;
            let before =
                group.entry_ends().take(last).take_while(|end| end < lsn || inclusive && end == lsn).count();
            let is_all = before == last && inclusive && group.entry_ends().last() <= Some(*lsn);
            before + usize::from(is_all)
        }
        Target::Name(name) => match restore_point_in(group, name)? {
            None => return Ok(Taken::All),
            Some(at) => group.entry_ends().take_while(|end| *end < at || inclusive && *end == at).count(),
        },
    };
    let commits = group.entries().take(entries).filter(|entry| entry.time.0 > 0).count();
    Ok(Taken::Some(if commits > 0 { entries } else { 0 }))
}

/// Copies a file, and checks its checksum if that is known.
fn copy_file(file: &DatabaseFile, from: Place<'_>, to: Place<'_>) -> Result<()> {
    let (source, target) = (from.folders.path(file), to.folders.path(file));
    let damaged = |what: &str| {
        Error::new(SqlState::DATA_CORRUPTED, format!("the file \"{}\" {what}", source.display()))
            .with_hint("Use another backup.")
    };
    let opened = from.disk.open_to_read(&source).map_err(|error| match error.state() {
        SqlState::UNDEFINED_FILE => damaged("is missing"),
        _ => error,
    })?;
    let copied = files::copy(&*opened, to.disk, &target)?;
    if file.content.is_some_and(|content| content != copied.content()) {
        return Err(damaged("is damaged"));
    }
    copied.finish()
}

fn check_that_it_is_empty(disk: &dyn Disk, data: &Path) -> Result<()> {
    disk.create_directory(data)?;
    let names = disk.list(data)?;
    let Some(foreign) = names.iter().find(|name| *name != "lost+found") else { return Ok(()) };
    let message = format!("directory \"{}\" is not empty", data.display());
    Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(format!("It holds \"{foreign}\"."))
        .with_hint("Name an empty directory, or one that does not exist yet."))
}

#[cold]
fn several_clusters(repository: &Repository) -> Error {
    let message = format!("the backups in \"{}\" are of several clusters", repository.directory().display());
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail("A restored database is another cluster than the one that was backed up.")
        .with_hint("Name one by --cluster, or a backup by --backup; see firn backup list.")
}

/// The error for a target after the end of one backup's log, and before the next backup can be used.
#[cold]
fn in_a_gap(beyond: &Error, before: &Error) -> Error {
    let details = [beyond.detail(), before.detail()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the target is in a gap between two backups")
        .with_detail(details)
        .with_hint("Name another target. An archive (firn serve --archive) leaves no gaps.")
}

#[cold]
fn no_backup(repository: &Repository, label: Option<&str>) -> Error {
    let directory = repository.directory().display();
    let message = match label {
        Some(label) => format!("there is no backup \"{label}\" in \"{directory}\""),
        None => format!("there is no backup in \"{directory}\""),
    };
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_hint("See firn backup list; make one by firn backup create HOST:PORT DIR.")
}
