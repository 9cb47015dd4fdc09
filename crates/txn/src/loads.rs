//! Loads: how rows of tables become durable that their own transaction has made (DESIGN §8, offline loads).
//!
//! Such a table is [private](Table::keep_private): rows get no versions and no redo as they come. When the transaction commits,
//! what is there becomes durable as a whole:
//!
//! ```text
//! 1  freeze   every full block without gaps and without versions
//! 2  write    files of these, as a checkpoint writes cold blocks, and sync them
//! 3  log      the other rows, as redo; and, in the same entry, the names of the files
//! ```
//! So rows of full blocks are written once. The next checkpoint keeps the files as it keeps its own; until then recovery puts
//! their rows back when it comes to the entry.
//!
//! A file is listed here before it is made, and until a checkpoint has taken it over or its transaction has rolled back:
//! checkpoints remove what is neither named by them nor listed here. What a crash leaves of a transaction that did not commit is
//! removed when the database is opened.

use crate::catalog::TableDef;
use crate::checkpoint::{Store, all_columns, blocks_of, column_names, grouped};
use crate::ddl::{Action, Ddl};
use crate::engine::Engine;
use crate::manifest::{TableFile, checkpoint_directory};
use crate::table_file::{self, Content};
use firn_base::disk::Disk;
use firn_base::sync::{Arc, Mutex};
use firn_base::{BlockNumber, Error, Result, RowId, Snapshot, SqlState, TableId, Time, thread};
use firn_storage::{Cold, Table, WriteSet, pin};
use std::collections::HashSet;
use std::path::Path;

/// The files of loads that no checkpoint has taken over yet.
#[derive(Default, Debug)]
pub(crate) struct Loads(Mutex<Vec<Load>>);

/// Files that one transaction has written.
#[derive(Clone, Debug)]
struct Load {
    /// Their names, from before they are made.
    names: Vec<String>,
    /// Once it has committed: when, and what is in them.
    committed: Option<(Time, Vec<LoadedFile>)>,
}

/// A file of a load that has committed.
#[derive(Clone, Debug)]
pub(crate) struct LoadedFile {
    pub file: TableFile,
    /// Of each of its blocks: the generation of which it was when it was written.
    pub generations: Vec<(BlockNumber, u64)>,
}

impl LoadedFile {
    /// A file whose blocks have been put back and frozen again, unless they have changed since.
    pub fn restored(file: TableFile, table: Option<&Arc<Table>>) -> LoadedFile {
        let cold = |(_, block)| Some((block, table?.cold(block)?.generation));
        LoadedFile { generations: blocks_of(&file).filter_map(cold).collect(), file }
    }
}

impl Loads {
    /// Lists what recovery has found in the log.
    pub fn list_recovered(&self, time: Time, files: Vec<LoadedFile>) {
        let names = files.iter().map(|loaded| loaded.file.name.clone()).collect();
        self.0.lock().push(Load { names, committed: Some((time, files)) });
    }

    /// The files of loads that committed later than one checkpoint and not later than the next.
    pub fn between(&self, last: Time, next: Time) -> Vec<LoadedFile> {
        let loads = self.0.lock();
        let committed = loads.iter().filter_map(|load| load.committed.as_ref());
        let theirs = committed.filter(|(time, _)| last < *time && *time <= next);
        theirs.flat_map(|(_, files)| files.iter().cloned()).collect()
    }

    /// Forgets those that a checkpoint of that time has taken over, or does without.
    pub fn forget_until(&self, checkpoint: Time) {
        let is_later = |load: &Load| load.committed.as_ref().is_none_or(|(time, _)| checkpoint < *time);
        self.0.lock().retain(is_later);
    }

    /// Whether a file is listed.
    pub fn lists(&self, name: &str) -> bool {
        self.0.lock().iter().any(|load| load.names.iter().any(|listed| listed == name))
    }
}

/// The files of a transaction that is about to commit. Dropping it removes them.
pub(crate) struct Written<'e> {
    store: &'e Store,
    names: Vec<String>,
    files: Vec<LoadedFile>,
}

impl Written<'_> {
    /// What the log says of them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let files: Vec<&TableFile> = self.files.iter().map(|loaded| &loaded.file).collect();
        serde_json::to_vec(&files).expect("names and numbers")
    }

    /// They belong to a commit.
    pub fn keep(mut self, time: Time) {
        let names = std::mem::take(&mut self.names);
        let files = std::mem::take(&mut self.files);
        let mut loads = self.store.loads().0.lock();
        let load = loads.iter_mut().find(|load| load.names == names);
        load.expect("listed before they were written").committed = Some((time, files));
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        if self.names.is_empty() {
            return;
        }
        for name in &self.names {
            // What stays behind, or was never made, is of no account: opening removes it.
            let _ = self.store.disk.remove(&checkpoint_directory(&self.store.directory).join(name));
        }
        self.store.loads().0.lock().retain(|load| load.names != self.names);
    }
}

/// The tables that a transaction has made and keeps, and what its catalog says of them.
fn made(ddl: &Ddl) -> Vec<(Arc<Table>, Arc<TableDef>)> {
    let definition = |id: TableId| ddl.catalog.tables.values().find(|table| table.storage() == id).cloned();
    let made = ddl.actions.iter().filter_map(|action| match action {
        Action::CreateStorage(table) => Some((table.clone(), definition(table.id())?)),
        _ => None,
    });
    made.collect()
}

/// Blocks of one private table that may go into a file.
struct Part<'t> {
    table: &'t Arc<Table>,
    columns: &'t [String],
    name: String,
    blocks: Vec<BlockNumber>,
}

/// Makes what a transaction has put into tables of its own ready to be committed. `None` if that needs no files.
pub(crate) fn write<'e>(
    engine: &'e Engine,
    ddl: &Ddl,
    snapshot: Snapshot,
    write_set: &mut WriteSet,
) -> Result<Option<Written<'e>>> {
    let Some((store, _)) = engine.store_and_log() else { return Ok(None) };
    let made = made(ddl);
    let columns: Vec<Vec<String>> = made.iter().map(|(_, definition)| column_names(definition)).collect();
    let mut parts: Vec<Part<'_>> = Vec::new();
    for ((table, _), columns) in made.iter().zip(&columns) {
        let full = table.contents().filter(|block| block.is_full).map(|block| (block.number, block.bytes));
        for (part, blocks) in grouped(full).into_iter().enumerate() {
            let name = format!("{}-load-{part}.arrow", table.id().0);
            parts.push(Part { table, columns, name, blocks });
        }
    }
    let written = match parts.is_empty() {
        true => None,
        false => Some(write_files(engine, store, &parts, snapshot)?),
    };
    let files = written.iter().flat_map(|written| &written.files);
    let in_files: HashSet<(TableId, BlockNumber)> =
        files.flat_map(|loaded| blocks_of(&loaded.file)).collect();
    for (table, _) in &made {
        log_rest(engine, table, &in_files, snapshot, write_set)?;
    }
    Ok(written)
}

fn write_files<'e>(
    engine: &Engine,
    store: &'e Store,
    parts: &[Part<'_>],
    snapshot: Snapshot,
) -> Result<Written<'e>> {
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    store.loads().0.lock().push(Load { names: names.clone(), committed: None });
    // From here on dropping it removes them.
    let mut written = Written { store, names, files: Vec::new() };
    let directory = checkpoint_directory(&store.directory);
    let files = thread::for_each("firn-load", engine.config().threads, parts, |part| {
        write_file(&*store.disk, &directory, part, snapshot)
    })?;
    written.files = files.into_iter().flatten().collect();
    store.disk.sync_directory(&directory)?;
    Ok(written)
}

/// Freezes the blocks of a part as far as that can be done, and writes them.
fn write_file(
    disk: &dyn Disk,
    directory: &Path,
    part: &Part<'_>,
    snapshot: Snapshot,
) -> Result<Option<LoadedFile>> {
    let frozen = |number: &BlockNumber| Some((*number, part.table.freeze_full(*number)?));
    let frozen: Vec<(BlockNumber, Cold)> = part.blocks.iter().filter_map(frozen).collect();
    if frozen.is_empty() {
        return Ok(None);
    }
    let blocks = frozen.iter().map(|(number, _)| *number).collect();
    let scan = part.table.scan(snapshot, &all_columns(part.table), true).of_blocks(blocks);
    let content = Content { scan: &scan, most_bytes: u64::MAX, by_block: true };
    let file = table_file::write(disk, directory, part.name.clone(), part.table, part.columns, &content)?;
    let generations = frozen.iter().map(|(number, cold)| (*number, cold.generation)).collect();
    Ok(file.map(|file| LoadedFile { file, generations }))
}

/// Logs the rows of the other blocks.
fn log_rest(
    engine: &Engine,
    table: &Arc<Table>,
    in_files: &HashSet<(TableId, BlockNumber)>,
    snapshot: Snapshot,
    write_set: &mut WriteSet,
) -> Result<()> {
    let numbers = table.contents().map(|block| block.number);
    let others = numbers.filter(|number| !in_files.contains(&(table.id(), *number))).collect();
    let scan = table.scan(snapshot, &all_columns(table), true).of_blocks(others);
    while let Some(batch) = scan.next_batch(&pin()) {
        let rows = batch.row_ids.expect("asked for");
        let rows: Vec<RowId> = rows.values().iter().map(|bits| RowId::from_bits(*bits)).collect();
        table.log_rows(write_set, &rows, &batch.columns);
        engine.spill_if_long(write_set)?;
    }
    Ok(())
}

/// The files that an entry of the log names. Error: XX001.
pub(crate) fn named_by(bytes: &[u8]) -> Result<Vec<TableFile>> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the log names files of a load in a way that cannot be read: {error}");
        Error::new(SqlState::DATA_CORRUPTED, message)
            .with_hint("Restore the database directory from a backup.")
    })
}
