//! Rows of one table as an Arrow IPC file: checkpoints consist of these. A large table has several.
//!
//! The first column, `_rowid`, has the row ids; the others are the table's, by position, including dropped
//! ones. Any Arrow reader can open the file. It is written without the operating system's page cache: with
//! it, a quarter of the processor time of TPC-C during a checkpoint was spent on copying. Arrow files have no
//! checksum, so the manifest has one of the whole file, which is checked before the file is used.

use crate::manifest::{FileBlock, TableFile};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use firn_base::disk::{Disk, DiskFile, PageBuffer};
use firn_base::sync::Arc;
use firn_base::{BlockNumber, Error, Result, RowId, SqlState};
use firn_storage::views::tightened;
use firn_storage::{ScanBatch, Table, arrow};
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The column of the rows' ids.
const ROW_ID: &str = "_rowid";
/// Bytes that are written, or read for the checksum, at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The content of one file.
pub(crate) struct Content<'c> {
    /// Returns all columns of some more rows, with their ids: at least one row, and `None` at the end.
    pub more: &'c dyn Fn() -> Result<Option<Vec<ScanBatch>>>,
    /// The file ends at this many bytes. The remaining rows go to others.
    pub most_bytes: u64,
    /// Whether whole blocks are written, so that the file lists them.
    pub by_block: bool,
}

/// Writes a file of a table, and syncs all but its name. `columns` are the names for other programs. `None`,
/// and no file, if there is no row left.
pub(crate) fn write(
    disk: &dyn Disk,
    directory: &Path,
    name: String,
    table: &Table,
    columns: &[String],
    content: &Content<'_>,
) -> Result<Option<TableFile>> {
    let specs = table.columns();
    let Some(first) = (content.more)()? else { return Ok(None) };

    let row_id = Field::new(ROW_ID, DataType::UInt64, false);
    let fields = specs
        .iter()
        .zip(columns)
        .map(|(spec, name)| arrow::stored_field(name, spec.representation, spec.nullable));
    let schema: SchemaRef =
        Arc::new(Schema::new(std::iter::once(row_id).chain(fields).collect::<Vec<Field>>()));
    let path = directory.join(&name);
    let file = disk.create_direct(&path)?;
    let buffer = PageBuffer::new(CHUNK_BYTES);
    let output = Output { file: &*file, buffer, at: 0, crc: 0, failure: None };
    let mut writer = FileWriter::try_new(output, &schema).map_err(|error| unexpected(&path, &error))?;
    let mut rows = 0;
    let mut blocks: Vec<FileBlock> = Vec::new();
    let mut next = Some(first);
    while let Some(batches) = next {
        for scanned in batches {
            let row_ids = scanned.row_ids.expect("asked for");
            if content.by_block {
                let (block, more) = (block_of(&row_ids), scanned.rows as u32);
                match blocks.last_mut().filter(|last| last.0 == block) {
                    Some(last) => last.1 += more,
                    None => blocks.push(FileBlock(block, more)),
                }
            }
            let row_ids: ArrayRef = Arc::new(row_ids);
            // The heap of a block should not be written once for each column and batch.
            let arrays = std::iter::once(row_ids).chain(scanned.columns.iter().map(tightened)).collect();
            let record_batch =
                RecordBatch::try_new(schema.clone(), arrays).expect("the scan yields the table's types");
            if let Err(error) = writer.write(&record_batch) {
                return Err(failure(&mut writer, &path, &error));
            }
            rows += scanned.rows as u64;
        }
        let output = writer.get_ref();
        let is_full = output.at + output.buffer.bytes().len() as u64 >= content.most_bytes;
        next = if is_full { None } else { (content.more)()? };
    }
    if let Err(error) = writer.finish() {
        return Err(failure(&mut writer, &path, &error));
    }
    let output = writer.get_mut();
    output.finish()?;
    let (bytes, crc) = (output.at, output.crc);
    file.sync()?;
    let blocks = content.by_block.then_some(blocks);
    Ok(Some(TableFile { table: table.id().0, name, rows, bytes, crc, blocks }))
}

/// The block of the rows of a batch, which is the same for all.
fn block_of(row_ids: &UInt64Array) -> u64 {
    RowId::from_bits(row_ids.value(0)).block().0
}

/// Opens a file of a table whose length and checksum are those of the manifest. XX001 otherwise.
pub(crate) fn check_file(disk: &dyn Disk, directory: &Path, entry: &TableFile) -> Result<Arc<dyn DiskFile>> {
    let path = directory.join(&entry.name);
    let file = disk.open_to_read(&path).map_err(|error| match error.state() {
        SqlState::UNDEFINED_FILE => damaged(&path, "it is missing"),
        _ => error,
    })?;
    check(&*file, &path, entry)?;
    Ok(file)
}

/// Restores the counting rows of a file into a table that has none of them yet. Blocks that were cold when
/// they were written are frozen again, if they have no gaps.
///
/// Error: XX001 if the file is missing or differs from the manifest.
pub(crate) fn load(disk: &dyn Disk, directory: &Path, entry: &TableFile, table: &Table) -> Result<()> {
    let path = directory.join(&entry.name);
    let file = check_file(disk, directory, entry)?;
    let input = Input { file: &*file, at: 0, length: entry.bytes };
    let reader = FileReader::try_new(input, None).map_err(|error| unexpected(&path, &error))?;
    let specs = table.columns();
    let schema = reader.schema();
    let fields = schema.fields().iter().skip(1);
    if schema.fields().first().is_none_or(|field| field.name() != ROW_ID)
        || schema.fields().len() != specs.len() + 1
        || !fields.zip(specs).all(|(field, spec)| arrow::is_stored_field(field, spec.representation))
    {
        return Err(damaged(&path, "its columns are not those of the table"));
    }
    let mut rows = 0;
    let mut left: Option<HashMap<u64, u32>> =
        entry.blocks.as_ref().map(|blocks| blocks.iter().map(|block| (block.0, block.1)).collect());
    let mut row_ids = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|error| unexpected(&path, &error))?;
        row_ids.clear();
        let ids = batch.column(0).as_primitive_opt::<UInt64Type>();
        let ids = ids.filter(|ids| !ids.is_empty());
        let ids = ids.ok_or_else(|| damaged(&path, "its row ids are invalid"))?;
        rows += batch.num_rows() as u64;
        if let Some(left) = &mut left {
            let Some(left) = left.get_mut(&block_of(ids)) else { continue };
            let fewer = left.checked_sub(batch.num_rows() as u32);
            *left = fewer.ok_or_else(|| damaged(&path, "a block has more rows than the manifest says"))?;
        }
        row_ids.extend(ids.values().iter().map(|bits| RowId::from_bits(*bits)));
        table.restore_batch(&row_ids, &batch.columns()[1..]);
    }
    if left.is_some_and(|left| left.values().any(|rows| *rows > 0)) {
        return Err(damaged(&path, "a block has fewer rows than the manifest says"));
    }
    if rows != entry.rows {
        return Err(damaged(&path, "it has another number of rows than the manifest says"));
    }
    for block in entry.blocks.iter().flatten() {
        table.freeze_restored(BlockNumber(block.0));
    }
    Ok(())
}

fn check(file: &dyn DiskFile, path: &Path, entry: &TableFile) -> Result<()> {
    if file.len()? != entry.bytes {
        return Err(damaged(path, "it has another length than the manifest says"));
    }
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut at, mut crc) = (0, 0);
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, &chunk[..read]);
        at += read as u64;
    }
    if crc == entry.crc { Ok(()) } else { Err(damaged(path, "its checksum is wrong")) }
}

#[cold]
fn damaged(path: &Path, what: &str) -> Error {
    Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the checkpoint file \"{}\" is damaged: {what}", path.display()),
    )
    .with_hint("Restore the database directory from a backup.")
}

/// An error of the Arrow library about a file whose checksum is valid.
#[cold]
fn unexpected(path: &Path, error: &ArrowError) -> Error {
    damaged(path, &error.to_string())
}

fn failure(writer: &mut FileWriter<Output<'_>>, path: &Path, error: &ArrowError) -> Error {
    writer.get_mut().failure.take().unwrap_or_else(|| unexpected(path, error))
}

/// A file being written from front to back, with its checksum.
struct Output<'f> {
    file: &'f dyn DiskFile,
    buffer: PageBuffer,
    at: u64,
    crc: u32,
    /// The error, which `io::Error` cannot represent.
    failure: Option<Error>,
}

impl Output<'_> {
    fn write_out(&mut self) -> Result<()> {
        self.file.write_at(self.buffer.bytes(), self.at)?;
        self.crc = crc32c::crc32c_append(self.crc, self.buffer.bytes());
        self.at += self.buffer.bytes().len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, as a whole page that is then truncated.
    fn finish(&mut self) -> Result<()> {
        let left = self.buffer.bytes();
        let (start, end) = (self.at, self.at + left.len() as u64);
        self.crc = crc32c::crc32c_append(self.crc, left);
        self.buffer.pad();
        self.file.write_at(self.buffer.bytes(), start)?;
        self.at = end;
        self.file.set_len(end)
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.buffer.fill(bytes);
        if self.buffer.bytes().len() == CHUNK_BYTES
            && let Err(error) = self.write_out()
        {
            self.failure = Some(error);
            return Err(io::Error::other("the disk failed"));
        }
        Ok(taken)
    }

    /// Does nothing: the bytes are written when there are enough or the file ends.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file being read in any order.
struct Input<'f> {
    file: &'f dyn DiskFile,
    at: u64,
    length: u64,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at).map_err(|error| io::Error::other(error.to_string()))?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Input<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
