//! Opening a database directory, in whatever state it is.
//!
//! |    | found | done |
//! |----|-------|------|
//! |  1 | no directory, or an empty one | a new database is created |
//! |  2 | a manifest marked incomplete, or only leftovers of one | creating it was cut short: it is created anew |
//! |  3 | manifest, log ends after a whole group | load the checkpoint, replay the log, continue there |
//! |  4 | the last group is torn | as 3; the log continues at the torn group |
//! |  5 | damage before whole groups | XX001 with file and byte ([`firn_log::Reader`]) |
//! |  6 | log segments missing, all or some; the log ends before what the checkpoint needs of it | XX001 |
//! |  7 | a segment of another database, or of another format version | XX001, 55000 |
//! |  8 | no manifest, but log segments or checkpoint files | XX001: the manifest was lost |
//! |  9 | no manifest, but files that are none of ours | 55000: not a database directory |
//! | 10 | a manifest of a version that is not known | 55000, says which |
//! | 11 | a damaged manifest | XX001 |
//! | 12 | a checkpoint file missing, shorter, longer or changed; a spill file or a load's file that the log names likewise | XX001 |
//! | 13 | files that the manifest does not name: of a checkpoint cut short, or of the one before; spill files and loads' files that the log does not name: of transactions that did not commit | removed |
//! | 14 | redo that does not fit the checkpoint, rows that break a unique index | XX001 |
//! | 15 | the directory open elsewhere | 55006 |
//! | 16 | the database is about to follow another server, which was interrupted | 55000 |
//! | 17 | no right to it; a full disk, if it is to be created; a broken one | 42501, 53100, 58030 |
//!
//! Except in cases 1 and 2, nothing in the directory is changed before everything in it was found
//! valid. So after an error the directory can be examined and repaired, and opened again.
//!
//! A directory of an earlier version is read like one of the present version. Then its manifest is replaced by one of the
//! present version, and only after that the first segment of the present version is written. Older segments stay as they are
//! until a checkpoint has made them superfluous. So at any time either version's program finds all of the log, or refuses the
//! directory.

use crate::apply::{Beside, Rebuilt};
use crate::catalog::{Catalog, IndexDef, Oid};
use crate::checkpoint::Store;
use crate::config::Config;
use crate::copying::{Folder, Folders, files_named_by};
use crate::engine::Recovered;
use crate::epochs::Epochs;
use crate::index_build::build_index;
use crate::manifest::{
    ClusterId, DIRECTORY_VERSION, FileBlock, LOCK, MANIFEST, MANIFEST_TEMPORARY, Manifest, REJOINING,
    checkpoint_directory, log_directory,
};
use crate::role::Replica;
use crate::sequence::SequenceState;
use crate::table_file;
use firn_base::disk::{Disk, DiskLock};
use firn_base::sync::{Arc, Mutex, RwLock};
use firn_base::{BlockNumber, Error, Lsn, Result, RowId, SqlState, TableId, clock, random, thread};
use firn_log::{DatabaseId, Kept, Log, LogPoint, Reader, Record, SpillReader};
use firn_storage::{MemoryBudget, Table, TableOptions};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// File names that a directory may contain in which a database is created.
const INNOCENT: [&str; 2] = [LOCK, "lost+found"];

/// How long to retry a lock that is held, since its holder may be about to release it.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Opens or creates the database in `directory`. An existing database keeps its own size of blocks.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    config: &mut Config,
    memory: &Arc<MemoryBudget>,
) -> Result<Recovered> {
    disk.create_directory(directory)?;
    let lock = lock(&*disk, directory)?;
    if disk.exists(&directory.join(REJOINING))? {
        let message =
            format!("the database in \"{}\" is about to follow another server", directory.display());
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail("That was interrupted, and its log may have been cut in part.")
            .with_hint("firn serve --data continues it."));
    }
    let (manifest, version) = match Manifest::read(&*disk, directory)? {
        Some((manifest, version)) if manifest.complete => (manifest, version),
        Some(_) => return create(disk, directory, lock, config),
        None => {
            check_that_nothing_is_there(&*disk, directory)?;
            return create(disk, directory, lock, config);
        }
    };
    config.block_bytes = manifest.block_bytes as usize;

    let folders = Folders::of(directory);
    let committed = manifest.committed();
    let (rebuilt, tables, visible) = rebuild(&*disk, &folders, &manifest, committed, config.threads, memory)?;
    if committed.is_some_and(|committed| visible.lsn < committed) {
        return Err(lacks_committed(&log_directory(directory)));
    }
    let rest = read_rest(&*disk, &folders, &manifest, visible, committed.is_some())?;
    let point = rest.end;
    let Rebuilt { catalog, mut sequences, mut epochs, mut spilled, loaded, .. } = rebuilt;
    spilled.extend(rest.spilled);
    sequences.retain(|oid, _| catalog.sequences.contains_key(oid));

    // From here on the directory is changed. What it says is acted on, so it must not be another one after a power cut.
    disk.sync_directory(directory)?;
    if disk.exists(&directory.join(MANIFEST_TEMPORARY))? {
        disk.remove(&directory.join(MANIFEST_TEMPORARY))?;
    }
    if version < DIRECTORY_VERSION {
        // First, since earlier versions would not find what is written from now on.
        manifest.write(&*disk, directory)?;
    }
    let (opened, path) = (manifest.database, log_directory(directory));
    let log = match manifest.is_of_replica() {
        false => Log::open(disk.clone(), &path, opened, point, config.log)?,
        true => Log::open_to_receive(disk.clone(), &path, opened, point, config.log)?,
    };
    if !manifest.is_of_replica() {
        epochs.begin(log.epoch(), point.lsn);
    }
    if committed.is_some() {
        log.require_confirmation_from(visible, rest.ends);
    }
    let handed_over_at = manifest.handed_over_at.map(Lsn);
    let replica = manifest
        .is_of_replica()
        .then(|| Replica::new(manifest.follows.clone().unwrap_or_default(), handed_over_at, visible.lsn));
    let voter = manifest.voter;
    log.retain_spills(spilled, manifest.position())?;
    let store =
        Store::new(disk.clone(), directory.to_owned(), lock, manifest, &tables, rebuilt.changed, loaded);
    rest.loaded.iter().for_each(|name| store.loads().list_received(name));
    store.remove_unnamed_files(&log)?;
    Ok(Recovered {
        last: rebuilt.last,
        tables,
        catalog,
        sequences,
        marks: rebuilt.marks,
        epochs,
        log: Some(log),
        store: Some(store),
        replica,
        voter,
    })
}

#[cold]
fn lacks_committed(log: &Path) -> Error {
    let message =
        format!("the log in \"{}\" ends before what the voter knows to be committed", log.display());
    Error::new(SqlState::DATA_CORRUPTED, message).with_hint(
        "Remove the voter from the cluster by \"firn cluster remove-voter\", and let the server join again with an empty directory.",
    )
}

/// The log of a voter that is on disk, and of which it is unknown whether it is committed.
struct Rest {
    /// Where the log ends, and where its groups do.
    end: LogPoint,
    ends: Vec<LogPoint>,
    /// The files that it names.
    spilled: Vec<Kept>,
    loaded: Vec<String>,
}

/// Reads the log behind what is restored, to its end. Of a database that is that of no voter, there is nothing.
fn read_rest(
    disk: &dyn Disk,
    folders: &Folders,
    manifest: &Manifest,
    from: LogPoint,
    is_of_voter: bool,
) -> Result<Rest> {
    let mut rest = Rest { end: from, ends: Vec::new(), spilled: Vec::new(), loaded: Vec::new() };
    if !is_of_voter {
        return Ok(rest);
    }
    let mut reader = Reader::open(disk, &folders.log, manifest.database, from)?;
    reader.end_at_first_gap();
    while let Some(group) = reader.next_group()? {
        rest.ends.push(group.end);
        for file in files_named_by(&group)? {
            match file.folder {
                Folder::Checkpoint => rest.loaded.push(file.name),
                Folder::Log => {}
            }
        }
        for entry in group.entries() {
            for record in entry.records() {
                if let Record::Spilled { number, mut chunks } = record? {
                    let bytes = chunks.try_fold(0, |bytes, chunk| {
                        Ok::<_, Error>(u64::saturating_add(bytes, chunk?.used))
                    })?;
                    rest.spilled.push(Kept { number, epoch: entry.epoch, needed_to: group.end.lsn, bytes });
                }
            }
        }
    }
    rest.end = reader.point();
    Ok(rest)
}

/// Reads a directory into memory, with the log up to `end` or up to its end, and checks all of it. Changes nothing there. Returns
/// also where the log ended.
pub(crate) fn rebuild(
    disk: &dyn Disk,
    folders: &Folders,
    manifest: &Manifest,
    end: Option<Lsn>,
    threads: usize,
    memory: &Arc<MemoryBudget>,
) -> Result<(Rebuilt, HashMap<TableId, Arc<Table>>, LogPoint)> {
    let Folders { checkpoint, log } = folders;
    let mut rebuilt = load(disk, checkpoint, manifest, threads, memory)?;
    check_that_there_is_a_log(disk, log)?;
    let mut reader = Reader::open(disk, log, manifest.database, manifest.point())?;
    end.into_iter().for_each(|end| reader.end_at(end));
    if manifest.is_of_replica() {
        // Several groups are received between two syncs, so a power cut may lose any of them. They are received again.
        reader.end_at_first_gap();
    }
    let spills = SpillReader { disk, directory: log, database: manifest.database };
    rebuilt.replay(&mut reader, Beside { spills, disk, loads: checkpoint }, threads)?;
    check_that_the_log_reaches(reader.position(), manifest, log)?;
    let tables = finish(&rebuilt, threads)?;
    Ok((rebuilt, tables, reader.point()))
}

/// Locks the directory. The last handle of a database may be one of its own threads, which releases the lock
/// shortly after the user's last handle. So a held lock is retried for a short time.
fn lock(disk: &dyn Disk, directory: &Path) -> Result<DiskLock> {
    let begun = clock::now();
    loop {
        match disk.lock(&directory.join(LOCK)) {
            Err(error) if error.state() == SqlState::OBJECT_IN_USE && begun.elapsed() < LOCK_PATIENCE => {
                clock::sleep(LOCK_PATIENCE / 50);
            }
            outcome => return outcome,
        }
    }
}

/// Creates a new database. The manifest is marked incomplete until the log exists: after that, a missing
/// log is a lost one.
fn create(disk: Arc<dyn Disk>, directory: &Path, lock: DiskLock, config: &Config) -> Result<Recovered> {
    let (log_directory, checkpoint_directory) = (log_directory(directory), checkpoint_directory(directory));
    let new = Recovered::nothing();
    let database = DatabaseId(random::secret_bytes());
    let mut manifest = Manifest {
        database,
        cluster: ClusterId(database.0),
        follows: None,
        handed_over_at: None,
        follow_option: None,
        voter: None,
        complete: false,
        checkpoint: 0,
        time: 0,
        until: 0,
        position: 0,
        checksum: 0,
        epoch: 0,
        wall_time: 0,
        needed: 0,
        epochs: Epochs::default(),
        block_bytes: config.block_bytes as u64,
        catalog: new.catalog.to_change(std::iter::empty(), new.marks),
        sequences: Vec::new(),
        files: Vec::new(),
    };
    manifest.write(&*disk, directory)?;
    for inner in [&log_directory, &checkpoint_directory] {
        disk.create_directory(inner)?;
        for leftover in disk.list(inner)? {
            disk.remove(&inner.join(leftover))?;
        }
    }
    let log = Log::open(disk.clone(), &log_directory, manifest.database, LogPoint::START, config.log)?;
    manifest.complete = true;
    manifest.write(&*disk, directory)?;
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_directory(parent)?;
    }
    let (tables, changed, loaded) = (HashMap::new(), HashSet::new(), Vec::new());
    let store = Store::new(disk, directory.to_owned(), lock, manifest, &tables, changed, loaded);
    let mut epochs = Epochs::default();
    epochs.begin(log.epoch(), Lsn(0));
    Ok(Recovered { epochs, log: Some(log), store: Some(store), ..new })
}

/// Without a manifest: checks that a database may be created here.
fn check_that_nothing_is_there(disk: &dyn Disk, directory: &Path) -> Result<()> {
    for inner in [log_directory(directory), checkpoint_directory(directory)] {
        if disk.exists(&inner)? && !disk.list(&inner)?.is_empty() {
            return Err(Error::new(
                SqlState::DATA_CORRUPTED,
                format!("the manifest \"{}\" is missing", directory.join(MANIFEST).display()),
            )
            .with_detail(format!("There is data of a database in \"{}\".", inner.display()))
            .with_hint("Restore the database directory from a backup."));
        }
    }
    let ours = |name: &str| {
        let inner = directory.join(name);
        INNOCENT.contains(&name)
            || name == MANIFEST_TEMPORARY
            || inner == log_directory(directory)
            || inner == checkpoint_directory(directory)
    };
    match disk.list(directory)?.into_iter().find(|name| !ours(name)) {
        None => Ok(()),
        Some(foreign) => Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("directory \"{}\" is not empty and holds no database", directory.display()),
        )
        .with_detail(format!("It holds \"{foreign}\"."))
        .with_hint("Name an empty directory, or one that does not exist yet.")),
    }
}

/// A complete database has a log, even an empty one.
fn check_that_there_is_a_log(disk: &dyn Disk, log_directory: &Path) -> Result<()> {
    if disk.exists(log_directory)? && disk.list(log_directory)?.iter().any(|name| name.ends_with(".redo")) {
        return Ok(());
    }
    Err(Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the log in \"{}\" is missing", log_directory.display()),
    )
    .with_hint("Put its files back from a backup of this database."))
}

/// Checks that the log contains the commits that the checkpoint's files may include.
fn check_that_the_log_reaches(end: Lsn, manifest: &Manifest, log_directory: &Path) -> Result<()> {
    if end.0 >= manifest.needed {
        return Ok(());
    }
    Err(Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the log in \"{}\" ends before what the checkpoint needs of it", log_directory.display()),
    )
    .with_detail(format!(
        "It ends at byte {}, the checkpoint needs it up to byte {}.",
        end.0, manifest.needed
    ))
    .with_hint("Restore the database directory from a backup."))
}

/// The contents of the checkpoint, whose files are in `folder`.
fn load(
    disk: &dyn Disk,
    folder: &Path,
    manifest: &Manifest,
    threads: usize,
    memory: &Arc<MemoryBudget>,
) -> Result<Rebuilt> {
    let mut rebuilt = Rebuilt {
        tables: Arc::new(RwLock::new(HashMap::new())),
        catalog: Catalog::default(),
        marks: manifest.catalog.marks,
        sequences: HashMap::new(),
        last: manifest.time(),
        shown_until: manifest.until(),
        changed: HashSet::new(),
        options: TableOptions { block_bytes: manifest.block_bytes as usize, budget: memory.clone() },
        epochs: manifest.epochs.clone(),
        spilled: Vec::new(),
        loaded: Vec::new(),
    };
    for definition in &manifest.catalog.created {
        rebuilt.create_table(definition);
    }
    rebuilt.catalog.apply(manifest.catalog.clone());
    for entry in &manifest.sequences {
        rebuilt.sequences.insert(Oid(entry.oid), SequenceState::recovered(entry.value, entry.called));
    }
    let mut files: Vec<_> = manifest.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    // Cold blocks since memory was last short, and those that have been filled since.
    let loaded: Mutex<Vec<(Arc<Table>, BlockNumber)>> = Mutex::default();
    let gaps: Mutex<Vec<Filled>> = Mutex::default();
    thread::for_each("firn-load", threads, &files, |file| {
        let table = rebuilt.tables.read().get(&TableId(file.table)).cloned();
        let table = table.expect("the manifest, whose checksum is valid, describes the tables of its files");
        table_file::load(disk, folder, file, &table)?;
        let cold =
            file.blocks.iter().flatten().map(|FileBlock(number, _)| (table.clone(), BlockNumber(*number)));
        loaded.lock().extend(cold);
        // No block of a replica is compact.
        if !manifest.is_of_replica() && is_short_of_memory(memory) {
            let cold = std::mem::take(&mut *loaded.lock());
            for (table, number) in &cold {
                let filled = table.fill_gaps(*number);
                if !filled.is_empty() {
                    table.freeze_restored(*number);
                    gaps.lock().push((table.clone(), *number, filled));
                }
            }
            let tables: HashMap<TableId, Arc<Table>> =
                cold.into_iter().map(|(table, _)| (table.id(), table)).collect();
            tables.values().for_each(|table| table.compact_restored(1));
            open_gaps(&mut gaps.lock(), |table, number| table.has_become_compact(number));
        }
        Ok(())
    })?;
    open_gaps(&mut gaps.lock(), |_, _| true);
    Ok(rebuilt)
}

/// Slots of a block that have been filled because only a block without gaps becomes compact.
type Filled = (Arc<Table>, BlockNumber, Vec<RowId>);

/// Empties the filled slots of these blocks again.
fn open_gaps(gaps: &mut Vec<Filled>, of: impl Fn(&Table, BlockNumber) -> bool) {
    gaps.retain(|(table, number, rows)| {
        let opened = of(table, *number);
        if opened {
            let all = rows.iter().all(|row| table.delete_restored(*row));
            assert!(all, "the filled rows exist");
        }
        !opened
    });
}

/// Whether blocks should be encoded before more rows are read: a database that fitted into memory because it was compact may not
/// fit in another form. Otherwise encoding can wait, since it takes longer than reading.
fn is_short_of_memory(memory: &MemoryBudget) -> bool {
    memory.limit().is_some_and(|limit| memory.total() > limit / 2)
}

/// Makes the tables of the catalog ready for use: counts their rows and builds their indexes. Drops
/// tables that the catalog does not name any more.
fn finish(rebuilt: &Rebuilt, threads: usize) -> Result<HashMap<TableId, Arc<Table>>> {
    let all = rebuilt.tables.read();
    let mut tables: HashMap<TableId, Arc<Table>> = HashMap::new();
    let mut indexes: Vec<(Arc<Table>, &IndexDef)> = Vec::new();
    for definition in rebuilt.catalog.tables.values() {
        let table = all.get(&definition.storage()).ok_or_else(|| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                format!("the catalog names a physical table of \"{}\" that is nowhere", definition.name),
            )
            .with_hint("Restore the database directory from a backup.")
        })?;
        table.rename(&definition.name);
        indexes.extend(definition.indexes.iter().map(|index| (table.clone(), index)));
        tables.insert(table.id(), table.clone());
    }
    let restored: Vec<&Arc<Table>> = tables.values().collect();
    thread::for_each("firn-load", threads, &restored, |table| {
        table.finish_restore();
        Ok(())
    })?;
    indexes.sort_by_key(|(table, _)| std::cmp::Reverse(table.approximate_rows()));
    let threads_each = threads.div_ceil(indexes.len().max(1));
    let built = thread::for_each("firn-index", threads, &indexes, |(table, index)| {
        build_index(table, index.spec(table), threads_each, None).map_err(|error| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                format!("the rows of table \"{}\" break its unique index \"{}\"", table.name(), index.name),
            )
            .with_detail(error.message())
            .with_hint("Restore the database directory from a backup.")
        })
    })?;
    // In the catalog's order: changes of rows use the index first that was created first.
    let mut built: Vec<_> = indexes.into_iter().zip(built).collect();
    built.sort_by_key(|((_, definition), _)| definition.oid);
    for ((table, _), index) in built {
        table.add_index(index);
    }
    Ok(tables)
}
