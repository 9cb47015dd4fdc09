//! Redo records: the after-image of one change, as the log stores it.
//!
//! A transaction appends records to its [`RedoBuffer`] while it runs. Commit appends the bytes to the
//! log. Recovery and replicas read them with [`Records`]. All integers are little-endian.
//!
//! ```text
//! every record            0        4      5      6       8       12              20
//!                         | length | kind | zero | count | table | row           | body …
//!                         | u32    | u8   | u8   | u16   | u32   | u64           |
//!   Insert                  count cells, one per column
//!   InsertBatch             rows u32, then per column: length of its cells u32, `rows` cells
//!                           (the rows have consecutive ids from `row` on; count = columns)
//!   Update                  count × (column u16, cell)
//!   Delete                  nothing
//!   CatalogChange           bytes in the catalog's own format (count, table, row are 0)
//!   SequenceAdvance         nothing (count = was called, table = oid, row = value)
//!   Spilled                 per chunk: offset, stored, used as u64, CRC32C as u32 (row = number of the spill file, whose
//!                           epoch is that of the group; its records precede those after this one; see `spill`)
//!   Loaded                  bytes that name files of rows, in the format of those files' owner (count, table, row are 0)
//!   Epoch                   nothing (row = the epoch, which begins here; the first record of the epoch's first group)
//!   BlockCompact            nothing (row = first of the block: changes of its rows are a delete and an insert elsewhere …)
//!   BlockEmptied            nothing (… up to this record; row likewise)
//!   RestorePoint            its name, UTF-8 (count, table, row are 0)
//! ```
//!
//! A cell is a tag and the bytes that the tag announces. Words are stored zero-extended in the fewest of
//! 0, 1, 2, 4 or 8 bytes; the column's type determines the width, so nothing is lost. `length` covers the
//! whole record, so that a reader that replays only some tables skips the records of the others unread.

use crate::spill::{Chunk, Spill, Spills};
use firn_base::sync::Arc;
use firn_base::{BlockNumber, Cell, ColumnId, Epoch, Error, Lsn, Result, RowId, Slot, SqlState, TableId};

/// Bytes before a record's body.
pub const RECORD_HEADER_LEN: usize = 20;

const COUNT_AT: usize = 6;
const TABLE_AT: usize = 8;
const ROW_AT: usize = 12;
const _: () = assert!(COUNT_AT + 2 == TABLE_AT && TABLE_AT + 4 == ROW_AT && ROW_AT + 8 == RECORD_HEADER_LEN);

const KIND_INSERT: u8 = 1;
const KIND_INSERT_BATCH: u8 = 2;
const KIND_UPDATE: u8 = 3;
const KIND_DELETE: u8 = 4;
const KIND_CATALOG_CHANGE: u8 = 5;
const KIND_SEQUENCE_ADVANCE: u8 = 6;
const KIND_SPILLED: u8 = 7;
const KIND_LOADED: u8 = 8;
const KIND_EPOCH: u8 = 9;
const KIND_BLOCK_COMPACT: u8 = 10;
const KIND_BLOCK_EMPTIED: u8 = 11;
const KIND_RESTORE_POINT: u8 = 12;

/// Bytes of a record per chunk of a spill file.
const CHUNK_LEN: usize = 28;

const TAG_NULL: u8 = 0;
/// The word 0; nothing follows.
const TAG_ZERO: u8 = 1;
const TAG_WORD_1: u8 = 2;
const TAG_WORD_2: u8 = 3;
const TAG_WORD_4: u8 = 4;
const TAG_WORD_8: u8 = 5;
/// 16 bytes: low word, high word.
const TAG_WIDE: u8 = 6;
/// A string: its length as u32, its bytes.
const TAG_LONG: u8 = 7;
/// A string of up to 127 bytes: the low 7 bits of the tag are its length.
const TAG_SHORT: u8 = 0x80;

/// One transaction's redo records, in order.
#[derive(Default, Debug)]
pub struct RedoBuffer {
    /// Initialised memory, of which the first `used` bytes hold records: so memory is not cleared again for every record.
    bytes: Vec<u8>,
    used: usize,
    /// The spill file with the records before these, of a long transaction.
    spill: Option<Box<Spill>>,
}

/// A position in a [`RedoBuffer`] to truncate it to: the number of bytes of redo before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoMark(u64);

impl RedoBuffer {
    /// An empty buffer.
    pub fn new() -> RedoBuffer {
        RedoBuffer::default()
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && self.spilled_bytes() == 0
    }

    /// The records in memory; once the buffer is [sealed](RedoBuffer::seal), what [`crate::Log::append`] takes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Empties the buffer. Its memory is kept for the next transaction, up to a limit.
    pub fn clear(&mut self) {
        const KEEP: usize = 1 << 20;
        self.used = 0;
        self.spill = None;
        if self.bytes.len() > KEEP {
            self.bytes = Vec::new();
        }
    }

    /// The current position.
    #[inline]
    pub fn mark(&self) -> RedoMark {
        RedoMark(self.spilled_bytes() + self.used as u64)
    }

    /// Removes every record that was appended since `mark`.
    pub fn truncate(&mut self, mark: RedoMark) {
        let spilled = self.spilled_bytes();
        if let Some(spill) = &mut self.spill
            && mark.0 < spilled
        {
            spill.truncate(mark.0);
            self.used = 0;
            return;
        }
        let used = usize::try_from(mark.0 - spilled).expect("64-bit addresses");
        assert!(used <= self.used, "a mark of another buffer");
        self.used = used;
    }

    #[inline]
    fn spilled_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, |spill| spill.bytes())
    }

    /// Moves the records from memory to the transaction's spill file. After an error they are still in memory.
    #[cold]
    pub fn spill(&mut self, spills: &Arc<Spills>) -> Result<()> {
        if self.spill.is_none() {
            self.spill = Some(Box::new(Spill::create(spills)?));
        }
        let spill = self.spill.as_mut().expect("just made");
        spill.append(&self.bytes[..self.used])?;
        self.used = 0;
        Ok(())
    }

    /// Before a commit: syncs what has been spilled, so that memory holds only the record that names the spill file.
    #[inline]
    pub fn seal(&mut self, spills: &Arc<Spills>) -> Result<()> {
        if self.spill.is_some() { self.seal_spill(spills) } else { Ok(()) }
    }

    #[cold]
    fn seal_spill(&mut self, spills: &Arc<Spills>) -> Result<()> {
        if self.used > 0 {
            // The rest too, since recovery applies it after the spilled records.
            self.spill(spills)?;
        }
        let spill = self.spill.as_ref().expect("checked by the caller");
        spill.sync()?;
        let mut body = Vec::with_capacity(spill.chunks().len() * CHUNK_LEN);
        for chunk in spill.chunks() {
            for word in [chunk.offset, chunk.stored, chunk.used] {
                body.extend_from_slice(&word.to_le_bytes());
            }
            body.extend_from_slice(&chunk.crc.to_le_bytes());
        }
        let number = spill.number();
        self.plain(KIND_SPILLED, 0, 0, number, &body);
        Ok(())
    }

    /// Its entry is in the log and ends at `end`: the spill file is kept as long as the entry.
    #[inline]
    pub fn logged(&mut self, end: Lsn) {
        if let Some(spill) = self.spill.take() {
            spill.keep(end);
        }
    }

    /// Appends the insertion of a row of one cell per column.
    // Inlined where the kinds of the cells are constants, which removes most of this code.
    #[inline(always)]
    pub fn insert(&mut self, table: TableId, row: RowId, cells: &[Cell<'_>]) {
        let mut tail = self.reserve(RECORD_HEADER_LEN + max_bytes(cells));
        tail.put_header(KIND_INSERT, cells.len() as u16, table.0, row.to_bits());
        for cell in cells {
            tail.put_cell(cell);
        }
        self.used = tail.end_record();
    }

    /// Appends the insertion of `rows` rows with consecutive ids from `first` on. `fill` is called
    /// once per column, in order, and must give it one cell per row.
    pub fn insert_batch(
        &mut self,
        table: TableId,
        first: RowId,
        rows: u32,
        columns: u16,
        mut fill: impl FnMut(ColumnId, &mut CellWriter<'_>),
    ) {
        let start = self.used;
        let mut tail = self.reserve(RECORD_HEADER_LEN + 4);
        tail.put_header(KIND_INSERT_BATCH, columns, table.0, first.to_bits());
        tail.put(rows.to_le_bytes());
        self.used = tail.at;
        for column in 0..columns {
            let length_at = self.used;
            let mut tail = self.reserve(4);
            tail.put([0; 4]);
            self.used = tail.at;
            let mut writer = CellWriter { buffer: self, cells: 0 };
            fill(ColumnId(column), &mut writer);
            assert_eq!(writer.cells, rows, "one cell per row");
            let length = self.used - length_at - 4;
            let length = u32::try_from(length).expect("a batch is split before a column passes 4 GiB");
            self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
        Tail { bytes: &mut self.bytes, start, at: self.used }.end_record();
    }

    /// Appends the change of some columns of a row.
    // As for `insert`.
    #[inline(always)]
    pub fn update(&mut self, table: TableId, row: RowId, columns: &[ColumnId], cells: &[Cell<'_>]) {
        assert_eq!(columns.len(), cells.len());
        let mut tail = self.reserve(RECORD_HEADER_LEN + max_bytes(cells));
        tail.put_header(KIND_UPDATE, cells.len() as u16, table.0, row.to_bits());
        for (column, cell) in columns.iter().zip(cells) {
            match cell {
                Cell::Word(word) => tail.put_after(u64::from(column.0), 2, *word),
                other => {
                    tail.put(column.0.to_le_bytes());
                    tail.put_other(other);
                }
            }
        }
        self.used = tail.end_record();
    }

    /// Appends the deletion of a row.
    #[inline]
    pub fn delete(&mut self, table: TableId, row: RowId) {
        self.plain(KIND_DELETE, 0, table.0, row.to_bits(), &[]);
    }

    /// Appends a change of the catalog.
    pub fn catalog_change(&mut self, bytes: &[u8]) {
        self.plain(KIND_CATALOG_CHANGE, 0, 0, 0, bytes);
    }

    /// Appends the names of files that hold inserted rows, which have no redo. After [`RedoBuffer::seal`].
    pub fn loaded(&mut self, bytes: &[u8]) {
        self.plain(KIND_LOADED, 0, 0, 0, bytes);
    }

    /// Appends the new state of a sequence: `value` is the last one returned if `called`, else the
    /// next one to return.
    pub fn sequence_advance(&mut self, oid: u32, value: i64, called: bool) {
        self.plain(KIND_SEQUENCE_ADVANCE, u16::from(called), oid, value as u64, &[]);
    }

    /// Appends the beginning of an epoch.
    pub fn epoch(&mut self, epoch: Epoch) {
        self.plain(KIND_EPOCH, 0, 0, epoch.0, &[]);
    }

    /// Appends that a block is compact from now on.
    pub fn block_compact(&mut self, table: TableId, block: BlockNumber) {
        self.plain(KIND_BLOCK_COMPACT, 0, table.0, RowId::new(block, Slot(0)).to_bits(), &[]);
    }

    /// Appends that a block that was compact has no rows any more, and is like any other.
    pub fn block_emptied(&mut self, table: TableId, block: BlockNumber) {
        self.plain(KIND_BLOCK_EMPTIED, 0, table.0, RowId::new(block, Slot(0)).to_bits(), &[]);
    }

    /// Appends a point to which the database can be restored, by its name.
    pub fn restore_point(&mut self, name: &str) {
        self.plain(KIND_RESTORE_POINT, 0, 0, 0, name.as_bytes());
    }

    fn plain(&mut self, kind: u8, count: u16, table: u32, row: u64, body: &[u8]) {
        let mut tail = self.reserve(RECORD_HEADER_LEN + body.len());
        tail.put_header(kind, count, table, row);
        tail.put_bytes(body);
        self.used = tail.end_record();
    }

    /// Reserves memory for a record, or a part of one, of at most `bytes` bytes.
    #[inline]
    fn reserve(&mut self, bytes: usize) -> Tail<'_> {
        if self.bytes.len() - self.used < bytes {
            self.grow(bytes);
        }
        Tail { bytes: &mut self.bytes, start: self.used, at: self.used }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        const LEAST: usize = 4096;
        // Cleared in one call; `resize` would clear it byte by byte under Miri.
        let mut larger = vec![0; (self.used + bytes).next_power_of_two().max(LEAST)];
        larger[..self.used].copy_from_slice(self.as_bytes());
        self.bytes = larger;
    }
}

/// Appends the cells of one column of a batch.
pub struct CellWriter<'b> {
    buffer: &'b mut RedoBuffer,
    cells: u32,
}

impl CellWriter<'_> {
    /// Appends the next rows' cells.
    #[inline]
    pub fn extend<'c>(&mut self, cells: impl Iterator<Item = Cell<'c>> + Clone) {
        let bytes = cells.clone().map(|cell| max_bytes(&[cell])).sum();
        let mut tail = self.buffer.reserve(bytes);
        let mut written = 0;
        for cell in cells {
            tail.put_cell(&cell);
            written += 1;
        }
        self.buffer.used = tail.at;
        self.cells += written;
    }

    /// Appends the next rows' cells, words that are not NULL.
    #[inline]
    pub fn extend_words(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.cells += words.len() as u32;
        let mut tail = self.buffer.reserve(words.len() * MAX_CELL_BYTES);
        for word in words {
            tail.put_word(word);
        }
        self.buffer.used = tail.at;
    }

    /// Appends the next rows' cells, strings that are not NULL.
    #[inline]
    pub fn extend_strings<'s>(&mut self, strings: impl ExactSizeIterator<Item = &'s [u8]> + Clone) {
        self.cells += strings.len() as u32;
        let bytes: usize = strings.clone().map(<[u8]>::len).sum();
        let mut tail = self.buffer.reserve(bytes + strings.len() * MAX_CELL_BYTES);
        for string in strings {
            tail.put_string(string);
        }
        self.buffer.used = tail.at;
    }
}

/// An upper bound of the bytes of a column's number and any cell, without the bytes of a long string.
const MAX_CELL_BYTES: usize = 24;

/// An upper bound of the bytes of some cells, each with the number of its column.
#[inline]
fn max_bytes(cells: &[Cell<'_>]) -> usize {
    let strings = |cell: &Cell<'_>| if let Cell::Bytes(bytes) = cell { bytes.len() } else { 0 };
    cells.len() * MAX_CELL_BYTES + cells.iter().map(strings).sum::<usize>()
}

/// The tag and the width of a word, by its number of bytes.
const WORD_FORMS: [(u8, u8); 9] = [
    (TAG_ZERO, 0),
    (TAG_WORD_1, 1),
    (TAG_WORD_2, 2),
    (TAG_WORD_4, 4),
    (TAG_WORD_4, 4),
    (TAG_WORD_8, 8),
    (TAG_WORD_8, 8),
    (TAG_WORD_8, 8),
    (TAG_WORD_8, 8),
];

/// The unused end of a buffer, long enough for everything that will be written: so a cell is written without a check of
/// the capacity, and by copies of constant length, which are one store each and no call.
struct Tail<'b> {
    bytes: &'b mut [u8],
    start: usize,
    at: usize,
}

impl Tail<'_> {
    #[inline]
    fn put_header(&mut self, kind: u8, count: u16, table: u32, row: u64) {
        let mut header = [0; RECORD_HEADER_LEN];
        header[4] = kind;
        header[COUNT_AT..TABLE_AT].copy_from_slice(&count.to_le_bytes());
        header[TABLE_AT..ROW_AT].copy_from_slice(&table.to_le_bytes());
        header[ROW_AT..].copy_from_slice(&row.to_le_bytes());
        self.put(header);
    }

    /// Writes the length of the record that began at `start`; returns its end.
    #[inline]
    fn end_record(self) -> usize {
        let length = u32::try_from(self.at - self.start).expect("a record is shorter than 4 GiB");
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
        self.at
    }

    #[inline]
    fn put<const LENGTH: usize>(&mut self, bytes: [u8; LENGTH]) {
        self.bytes[self.at..self.at + LENGTH].copy_from_slice(&bytes);
        self.at += LENGTH;
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    fn put_cell(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Word(word) => self.put_word(*word),
            other => self.put_other(other),
        }
    }

    #[inline]
    fn put_word(&mut self, word: u64) {
        self.put_after(0, 0, word);
    }

    /// Writes a word's cell after the lowest `length` bytes of `before`, all in one store.
    #[inline]
    fn put_after(&mut self, before: u64, length: usize, word: u64) {
        let (tag, width) = WORD_FORMS[(71 - word.leading_zeros() as usize) / 8];
        let cell = u128::from(word) << 8 | u128::from(tag);
        let bytes = cell << (8 * length) | u128::from(before);
        self.bytes[self.at..self.at + 16].copy_from_slice(&bytes.to_le_bytes());
        self.at += length + 1 + usize::from(width);
    }

    #[inline]
    fn put_string(&mut self, bytes: &[u8]) {
        if bytes.len() < 0x80 {
            self.put([TAG_SHORT | bytes.len() as u8]);
        } else {
            let length = u32::try_from(bytes.len()).expect("strings are shorter than 4 GiB");
            self.put([TAG_LONG]);
            self.put(length.to_le_bytes());
        }
        self.put_bytes(bytes);
    }

    fn put_other(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Null => self.put([TAG_NULL]),
            Cell::Word(word) => self.put_word(*word),
            Cell::Wide([low, high]) => {
                self.put([TAG_WIDE]);
                self.put(low.to_le_bytes());
                self.put(high.to_le_bytes());
            }
            Cell::Inline(length, bytes) => {
                self.put([TAG_SHORT | length]);
                self.put(*bytes);
                self.at -= bytes.len() - usize::from(*length);
            }
            Cell::Bytes(bytes) => self.put_string(bytes),
        }
    }
}

/// A record that was read; cells borrow the log's bytes.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// A row was inserted.
    Insert {
        /// The table.
        table: TableId,
        /// The id of the row.
        row: RowId,
        /// One cell per column.
        cells: Cells<'a>,
    },
    /// Rows were inserted.
    InsertBatch {
        /// The table.
        table: TableId,
        /// The id of the first row; the others follow it.
        first: RowId,
        /// The number of rows.
        rows: u32,
        /// The cells by column.
        columns: BatchColumns<'a>,
    },
    /// Columns of a row were updated.
    Update {
        /// The table.
        table: TableId,
        /// The id of the row.
        row: RowId,
        /// The changed columns and their new cells.
        cells: UpdatedCells<'a>,
    },
    /// A row was deleted.
    Delete {
        /// The table.
        table: TableId,
        /// The id of the row.
        row: RowId,
    },
    /// The catalog changed.
    CatalogChange(&'a [u8]),
    /// A sequence advanced.
    SequenceAdvance {
        /// The oid of the sequence.
        oid: u32,
        /// The value last returned, or the next one to return if none was.
        value: i64,
        /// Whether `value` was returned.
        called: bool,
    },
    /// The records in a spill file precede those after this one.
    Spilled {
        /// The number of the file.
        number: u64,
        /// The chunks of the file that hold the records.
        chunks: SpilledChunks<'a>,
    },
    /// Rows in files were inserted; the bytes are the files' names.
    Loaded(&'a [u8]),
    /// An epoch begins.
    Epoch(Epoch),
    /// A block is compact from here on: a change of a row is logged as its deletion and an insertion elsewhere.
    BlockCompact {
        /// The table.
        table: TableId,
        /// The block.
        block: BlockNumber,
    },
    /// A block that was compact has no rows any more, and is like any other from here on.
    BlockEmptied {
        /// The table.
        table: TableId,
        /// The block.
        block: BlockNumber,
    },
    /// A point to which the database can be restored, by its name.
    RestorePoint(&'a str),
}

impl Record<'_> {
    /// The row it changes, or the first of them, and its table.
    #[inline]
    pub fn row(&self) -> Option<(TableId, RowId)> {
        match self {
            Record::Insert { table, row, .. }
            | Record::InsertBatch { table, first: row, .. }
            | Record::Update { table, row, .. }
            | Record::Delete { table, row } => Some((*table, *row)),
            Record::CatalogChange(_)
            | Record::SequenceAdvance { .. }
            | Record::Spilled { .. }
            | Record::Loaded(_)
            | Record::Epoch(_)
            | Record::BlockCompact { .. }
            | Record::BlockEmptied { .. }
            | Record::RestorePoint(_) => None,
        }
    }
}

#[cold]
fn malformed(what: &str) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("malformed redo record: {what}"))
        .with_hint("The log was written by a defective or different version; restore it from a backup.")
}

/// Splits off the first `length` bytes.
#[inline]
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    match bytes.split_at_checked(length) {
        Some((taken, rest)) => {
            *bytes = rest;
            Ok(taken)
        }
        None => Err(malformed("it ends early")),
    }
}

#[inline]
fn take_array<'a, const LENGTH: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; LENGTH]> {
    match bytes.split_first_chunk::<LENGTH>() {
        Some((taken, rest)) => {
            *bytes = rest;
            Ok(taken)
        }
        None => Err(malformed("it ends early")),
    }
}

#[inline(always)]
fn take_cell<'a>(bytes: &mut &'a [u8]) -> Result<Cell<'a>> {
    let [tag] = *take_array::<1>(bytes)?;
    Ok(match tag {
        TAG_NULL => Cell::Null,
        TAG_ZERO => Cell::Word(0),
        TAG_WORD_1 => Cell::Word(u64::from(take_array::<1>(bytes)?[0])),
        TAG_WORD_2 => Cell::Word(u64::from(u16::from_le_bytes(*take_array(bytes)?))),
        TAG_WORD_4 => Cell::Word(u64::from(u32::from_le_bytes(*take_array(bytes)?))),
        TAG_WORD_8 => Cell::Word(u64::from_le_bytes(*take_array(bytes)?)),
        TAG_WIDE => {
            let low = u64::from_le_bytes(*take_array(bytes)?);
            let high = u64::from_le_bytes(*take_array(bytes)?);
            Cell::Wide([low, high])
        }
        TAG_LONG => {
            let length = u32::from_le_bytes(*take_array(bytes)?);
            Cell::Bytes(take(bytes, length as usize)?)
        }
        _ if tag & TAG_SHORT != 0 => Cell::Bytes(take(bytes, usize::from(tag & !TAG_SHORT))?),
        _ => return Err(malformed("unknown cell tag")),
    })
}

/// The records of one commit. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Reads what a [`RedoBuffer`] wrote.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { rest: bytes }
    }

    /// The next record with its body unread; faster where most records are skipped. After an error there are no more.
    #[inline(always)]
    pub fn next_raw(&mut self) -> Option<Result<RawRecord<'a>>> {
        if self.rest.is_empty() {
            return None;
        }
        let record = RawRecord::take(&mut self.rest);
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// A record whose body has not been read.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    kind: u8,
    count: u16,
    table: u32,
    bits: u64,
    body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    #[inline(always)]
    fn take(bytes: &mut &'a [u8]) -> Result<RawRecord<'a>> {
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_LEN>() else {
            return Err(malformed("it ends early"));
        };
        let word = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("within the header"));
        let length = word(0) as usize;
        if length < RECORD_HEADER_LEN || length > bytes.len() {
            return Err(malformed("it ends early"));
        }
        if header[5] != 0 {
            return Err(malformed("a reserved byte is set"));
        }
        let body = &bytes[RECORD_HEADER_LEN..length];
        *bytes = &bytes[length..];
        Ok(RawRecord {
            kind: header[4],
            count: (word(4) >> 16) as u16,
            table: word(TABLE_AT),
            bits: u64::from(word(ROW_AT)) | u64::from(word(ROW_AT + 4)) << 32,
            body,
        })
    }

    /// The row it changes, or the first of them, and its table.
    #[inline]
    pub fn row(&self) -> Option<(TableId, RowId)> {
        let is_row = (KIND_INSERT..=KIND_DELETE).contains(&self.kind) && self.bits >> 63 == 0;
        is_row.then(|| (TableId(self.table), RowId::from_bits(self.bits)))
    }

    /// Whether it updates or deletes a row.
    #[inline]
    pub fn changes_a_row(&self) -> bool {
        matches!(self.kind, KIND_UPDATE | KIND_DELETE)
    }

    /// The columns of a row that it updates, as far as they can be read.
    #[inline]
    pub fn updated_columns(&self) -> impl Iterator<Item = ColumnId> {
        let mut reader = CellReader { rest: self.body };
        let count = if self.kind == KIND_UPDATE { self.count } else { 0 };
        (0..count).map_while(move |_| {
            let column = reader.column().ok()?;
            reader.skip().ok()?;
            Some(column)
        })
    }

    /// Reads the body.
    #[inline(always)]
    pub fn read(self) -> Result<Record<'a>> {
        let RawRecord { kind, count, table, bits, mut body } = self;
        if kind == KIND_SEQUENCE_ADVANCE {
            return match (count, body) {
                (0 | 1, []) => {
                    Ok(Record::SequenceAdvance { oid: table, value: bits as i64, called: count == 1 })
                }
                _ => Err(malformed("a sequence advance has a body")),
            };
        }
        if bits >> 63 != 0 {
            return Err(malformed("a row id is too large"));
        }
        let (table, row) = (TableId(table), RowId::from_bits(bits));
        match kind {
            KIND_INSERT => {
                Ok(Record::Insert { table, row, cells: Cells { rest: body, left: u32::from(count) } })
            }
            KIND_INSERT_BATCH => {
                let rows = u32::from_le_bytes(*take_array(&mut body)?);
                if bits.checked_add(u64::from(rows)).is_none_or(|end| end >> 63 != 0) {
                    return Err(malformed("a row id is too large"));
                }
                let columns = BatchColumns { rest: body, left: count, rows };
                Ok(Record::InsertBatch { table, first: row, rows, columns })
            }
            KIND_UPDATE => Ok(Record::Update { table, row, cells: UpdatedCells { rest: body, left: count } }),
            KIND_DELETE if body.is_empty() => Ok(Record::Delete { table, row }),
            KIND_CATALOG_CHANGE => Ok(Record::CatalogChange(body)),
            KIND_LOADED => Ok(Record::Loaded(body)),
            KIND_SPILLED => Ok(Record::Spilled { number: bits, chunks: SpilledChunks { rest: body } }),
            KIND_EPOCH if body.is_empty() => Ok(Record::Epoch(Epoch(bits))),
            KIND_BLOCK_COMPACT | KIND_BLOCK_EMPTIED if body.is_empty() && row.slot() == Slot(0) => {
                let block = row.block();
                Ok(match kind {
                    KIND_BLOCK_COMPACT => Record::BlockCompact { table, block },
                    _ => Record::BlockEmptied { table, block },
                })
            }
            KIND_RESTORE_POINT => match std::str::from_utf8(body) {
                Ok(name) => Ok(Record::RestorePoint(name)),
                Err(_) => Err(malformed("the name of a restore point is not UTF-8")),
            },
            _ => Err(malformed("unknown kind")),
        }
    }
}

/// The chunks of records in a spill file. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct SpilledChunks<'a> {
    rest: &'a [u8],
}

impl SpilledChunks<'_> {
    fn take(&mut self) -> Result<Chunk> {
        let mut word = || take_array(&mut self.rest).map(|bytes| u64::from_le_bytes(*bytes));
        let (offset, stored, used) = (word()?, word()?, word()?);
        let crc = u32::from_le_bytes(*take_array(&mut self.rest)?);
        Ok(Chunk { offset, stored, used, crc })
    }
}

impl Iterator for SpilledChunks<'_> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let chunk = self.take();
        if chunk.is_err() {
            self.rest = &[];
        }
        Some(chunk)
    }
}

/// Reads cells whose types are known, without making a [`Cell`] of each: replay of a log reads hundreds of millions.
#[derive(Clone, Debug)]
pub struct CellReader<'a> {
    rest: &'a [u8],
}

/// The number of bytes after each word's tag, and a mask of the bits that belong to the word in the next 8 bytes.
const WORD_WIDTHS: [(u8, u64); 6] =
    [(0, 0), (0, 0), (1, 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, 0xffff_ffff_ffff_ffff)];

impl<'a> CellReader<'a> {
    /// The next cell, of a type of up to 8 bytes; `None` for NULL.
    #[inline(always)]
    pub fn word(&mut self) -> Result<Option<u64>> {
        if let Some(chunk) = self.rest.first_chunk::<9>()
            && let Some((width, mask)) = WORD_WIDTHS.get(usize::from(chunk[0]))
        {
            let word = u64::from_le_bytes(*chunk[1..].first_chunk().expect("8 of 9 bytes"));
            self.rest = &self.rest[1 + usize::from(*width)..];
            return Ok((chunk[0] != TAG_NULL).then_some(word & mask));
        }
        match self.cell()? {
            Cell::Null => Ok(None),
            Cell::Word(word) => Ok(Some(word)),
            _ => Err(unfitting()),
        }
    }

    /// The next cell, of a type of 16 bytes.
    #[inline]
    pub fn wide(&mut self) -> Result<Option<[u64; 2]>> {
        match self.cell()? {
            Cell::Null => Ok(None),
            Cell::Wide(words) => Ok(Some(words)),
            _ => Err(unfitting()),
        }
    }

    /// The next cell, of a string type.
    #[inline(always)]
    pub fn string(&mut self) -> Result<Option<&'a [u8]>> {
        if let Some(tag) = self.rest.first()
            && tag & TAG_SHORT != 0
        {
            let mut rest = &self.rest[1..];
            let bytes = take(&mut rest, usize::from(tag & !TAG_SHORT))?;
            self.rest = rest;
            return Ok(Some(bytes));
        }
        match self.cell()? {
            Cell::Null => Ok(None),
            Cell::Bytes(bytes) => Ok(Some(bytes)),
            _ => Err(unfitting()),
        }
    }

    #[inline(never)]
    fn cell(&mut self) -> Result<Cell<'a>> {
        take_cell(&mut self.rest)
    }

    /// The number of a column.
    #[inline(always)]
    pub fn column(&mut self) -> Result<ColumnId> {
        Ok(ColumnId(u16::from_le_bytes(*take_array(&mut self.rest)?)))
    }

    /// Skips a cell.
    #[inline(always)]
    pub fn skip(&mut self) -> Result<()> {
        let Some(tag) = self.rest.first() else { return Err(malformed("it ends early")) };
        let length = match *tag {
            tag if tag & TAG_SHORT != 0 => usize::from(tag & !TAG_SHORT),
            TAG_WIDE => 16,
            TAG_LONG => return self.cell().map(|_| ()),
            tag => match WORD_WIDTHS.get(usize::from(tag)) {
                Some((width, _)) => usize::from(*width),
                None => return Err(malformed("unknown cell tag")),
            },
        };
        take(&mut self.rest, 1 + length).map(|_| ())
    }

    /// Error: bytes are left over.
    #[inline]
    pub fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(malformed("bytes are left over")) }
    }
}

#[cold]
fn unfitting() -> Error {
    malformed("a cell is not of its column's type")
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_raw()?.and_then(RawRecord::read);
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// Cells in a row: of one inserted row, or of one column of a batch. Ends after the first
/// malformed one; bytes left over after the last are malformed too.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Cells<'a> {
    type Item = Result<Cell<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        finish(&mut self.rest, &mut self.left, take_cell)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<'a> Cells<'a> {
    /// The number of cells.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.left as usize
    }

    /// A reader of the cells for callers that know their types.
    #[inline]
    pub fn reader(&self) -> CellReader<'a> {
        CellReader { rest: self.rest }
    }
}

/// The columns and cells of an update.
#[derive(Clone, Debug)]
pub struct UpdatedCells<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Iterator for UpdatedCells<'a> {
    type Item = Result<(ColumnId, Cell<'a>)>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        finish(&mut self.rest, &mut self.left, |rest| {
            let column = ColumnId(u16::from_le_bytes(*take_array(rest)?));
            Ok((column, take_cell(rest)?))
        })
    }
}

impl<'a> UpdatedCells<'a> {
    /// The number of columns.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.left)
    }

    /// A reader of the cells, each after its column's number, for callers that know their types.
    #[inline]
    pub fn reader(&self) -> CellReader<'a> {
        CellReader { rest: self.rest }
    }
}

/// The columns of a batch, each as many cells as the batch has rows.
#[derive(Clone, Debug)]
pub struct BatchColumns<'a> {
    rest: &'a [u8],
    left: u16,
    rows: u32,
}

impl<'a> Iterator for BatchColumns<'a> {
    type Item = Result<Cells<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows;
        finish(&mut self.rest, &mut self.left, |rest| {
            let length = u32::from_le_bytes(*take_array(rest)?);
            Ok(Cells { rest: take(rest, length as usize)?, left: rows })
        })
    }
}

impl BatchColumns<'_> {
    /// The number of columns.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.left)
    }
}

/// One step of an iterator over `left` items in `rest`; after an error it has no more items.
#[inline(always)]
fn finish<'a, T, N: From<u8> + PartialEq + Copy + std::ops::SubAssign>(
    rest: &mut &'a [u8],
    left: &mut N,
    read: impl FnOnce(&mut &'a [u8]) -> Result<T>,
) -> Option<Result<T>> {
    let item = if *left != N::from(0) {
        *left -= N::from(1);
        read(rest)
    } else if rest.is_empty() {
        return None;
    } else {
        Err(malformed("bytes are left over"))
    };
    if item.is_err() {
        *left = N::from(0);
        *rest = &[];
    }
    Some(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    const TABLE: TableId = TableId(0x0a0b_0c0d);

    fn row(bits: u64) -> RowId {
        RowId::from_bits(bits)
    }

    #[test]
    fn records_have_exactly_these_bytes() {
        let mut redo = RedoBuffer::new();
        redo.insert(
            TABLE,
            row(0x0102_0304_0506_0708),
            &[
                Cell::Null,
                Cell::Word(0),
                Cell::Word(0xff),
                Cell::Word(0x1234),
                Cell::i32(-1),
                Cell::i64(-2),
                Cell::Wide([1, 2]),
                Cell::Inline(2, *b"hi\0\0\0\0\0\0\0\0\0\0"),
                Cell::Bytes(b"yo"),
            ],
        );
        let mut expected = vec![68, 0, 0, 0, 1, 0, 9, 0, 0x0d, 0x0c, 0x0b, 0x0a, 8, 7, 6, 5, 4, 3, 2, 1];
        expected.extend([0, 1, 2, 0xff, 3, 0x34, 0x12, 4, 0xff, 0xff, 0xff, 0xff]);
        expected.extend([5, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        expected
            .extend([6, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x82, b'h', b'i', 0x82, b'y', b'o']);
        expected[0] = expected.len() as u8;
        assert_eq!(redo.as_bytes(), expected);

        redo.clear();
        let long = [b'x'; 128];
        redo.update(TABLE, row(7), &[ColumnId(3), ColumnId(0x102)], &[Cell::Word(1), Cell::Bytes(&long)]);
        let mut expected = vec![160, 0, 0, 0, 3, 0, 2, 0, 0x0d, 0x0c, 0x0b, 0x0a, 7, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([3, 0, 2, 1, 2, 1, 7, 128, 0, 0, 0]);
        expected.extend(long);
        expected[0] = expected.len() as u8;
        assert_eq!(redo.as_bytes(), expected);

        redo.clear();
        redo.delete(TABLE, row(1));
        redo.catalog_change(b"cat");
        redo.sequence_advance(0x4000, -1, true);
        redo.loaded(b"f");
        redo.insert_batch(TableId(1), row(2), 2, 2, |column, cells| {
            cells.extend([Cell::Word(u64::from(column.0)), Cell::Null].into_iter());
        });
        let mut expected = vec![20, 0, 0, 0, 4, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 1, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([23, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'c', b'a', b't']);
        expected.extend([20, 0, 0, 0, 6, 0, 1, 0, 0, 0x40, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        expected.extend([21, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'f']);
        expected.extend([37, 0, 0, 0, 2, 0, 2, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 1, 0, 3, 0, 0, 0, 2, 1, 0]);
        assert_eq!(redo.as_bytes(), expected);

        redo.clear();
        redo.epoch(Epoch(0x0203));
        redo.block_compact(TABLE, BlockNumber(0x11));
        redo.block_emptied(TableId(1), BlockNumber(2));
        redo.restore_point("now");
        let mut expected = vec![20, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0];
        // The block's number follows the 20 bits of the slot.
        expected.extend([20, 0, 0, 0, 10, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0x10, 1, 0, 0, 0, 0]);
        expected.extend([20, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0]);
        expected.extend([23, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'n', b'o', b'w']);
        assert_eq!(redo.as_bytes(), expected);
        let read: Vec<String> =
            Records::new(redo.as_bytes()).map(|it| format!("{:?}", it.unwrap())).collect();
        let names = ["Epoch(Epoch(515))", "BlockCompact", "BlockEmptied", "RestorePoint(\"now\")"];
        assert!(read.iter().zip(names).all(|(read, name)| read.starts_with(name)), "{read:?}");
    }

    /// The contents of `bytes` as text, for comparisons.
    fn show(bytes: &[u8]) -> Result<Vec<String>> {
        let cells = |cells: Cells<'_>| -> Result<String> {
            let cells: Result<Vec<Cell<'_>>> = cells.collect();
            cells.map(|cells| format!("{cells:?}"))
        };
        Records::new(bytes)
            .map(|record| {
                Ok(match record? {
                    Record::Insert { table, row, cells: row_cells } => {
                        format!("insert {table:?} {row:?} {}", cells(row_cells)?)
                    }
                    Record::InsertBatch { table, first, rows, columns } => {
                        let columns: Result<Vec<String>> = columns.map(|column| cells(column?)).collect();
                        format!("batch {table:?} {first:?} {rows} {:?}", columns?)
                    }
                    Record::Update { table, row, cells } => {
                        let cells: Result<Vec<(ColumnId, Cell<'_>)>> = cells.collect();
                        format!("update {table:?} {row:?} {:?}", cells?)
                    }
                    other => format!("{other:?}"),
                })
            })
            .collect()
    }

    fn sample() -> RedoBuffer {
        let mut redo = RedoBuffer::new();
        redo.insert(
            TABLE,
            row(9),
            &[Cell::Null, Cell::Word(70_000), Cell::Wide([1, u64::MAX]), Cell::text("firn")],
        );
        redo.update(TABLE, row(9), &[ColumnId(1)], &[Cell::Word(u64::MAX)]);
        redo.insert_batch(TABLE, row(10), 3, 2, |_, cells| {
            cells.extend((0..3).map(|number| Cell::Word(number << 8)));
        });
        redo.catalog_change(b"{}");
        redo.sequence_advance(3, i64::MIN, false);
        redo.loaded(b"[]");
        redo.delete(TABLE, row(9));
        redo.epoch(Epoch(7));
        redo.block_compact(TABLE, BlockNumber(1));
        redo.block_emptied(TABLE, BlockNumber(1));
        redo.restore_point("name");
        redo
    }

    #[test]
    fn what_is_written_is_read_back_and_a_mark_cuts_it_off_again() {
        let mut redo = sample();
        let whole = show(redo.as_bytes()).unwrap();
        assert_eq!(whole.len(), 11);
        assert!(
            whole[0].contains("Word(70000), Wide([1, 18446744073709551615]), Bytes([102, 105, 114, 110])")
        );
        assert!(whole[2].contains("[Word(0), Word(256), Word(512)]"), "{}", whole[2]);
        let mark = redo.mark();
        redo.delete(TABLE, row(1));
        redo.truncate(mark);
        assert_eq!(show(redo.as_bytes()).unwrap(), whole);
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let redo = sample();
        let good = redo.as_bytes();
        for length in 0..good.len() {
            let _ = show(&good[..length]);
        }
        let mut random = Random::seeded(1);
        for _ in 0..200_000 {
            let mut bytes = good.to_vec();
            for _ in 0..random.uniform(1, 4) {
                let at = random.uniform(0, bytes.len() as i64 - 1) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            let _ = show(&bytes);
        }
    }
}
