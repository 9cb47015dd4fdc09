//! Sorted runs in temporary files, and how they are merged: what a sort comes to for which there is no memory.
//!
//! A run is written in blocks of about 64 kB, rows and their keys. A merge keeps one block of each run in memory and takes the
//! smallest key again and again; of equal ones that of the run that was written first. Rows of one block that follow one another
//! are copied together.

use crate::budget::Account;
use crate::columns::{Collection, Table};
use crate::expression::WIDE_BYTES;
use crate::keys::{KeyLayout, Keys};
use crate::pipeline::Work;
use crate::spill::{SpillFile, read_rows, write_rows};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::Vector;
use firn_vector::selection::Rows;

/// About how many bytes a block takes in memory.
const BLOCK_BYTES: usize = 64 << 10;

/// Rows of a block at most.
const BLOCK_ROWS: usize = 4096;

/// Blocks of so many bytes together are merged however little memory is left.
const LEAST_BYTES: usize = 16 * BLOCK_BYTES;

/// A sorted run.
pub struct SortedRun {
    file: SpillFile,
    blocks: Vec<(u64, usize)>,
}

impl SortedRun {
    /// Writes the rows of a table in an order.
    pub fn write(
        work: Work<'_>,
        file: SpillFile,
        table: &Table,
        keys: &Keys,
        order: &[u32],
    ) -> Result<SortedRun> {
        let bytes = table.vectors().iter().map(Vector::memory).sum::<usize>() + keys.memory();
        let block_rows = (BLOCK_BYTES * table.rows() / bytes.max(1)).clamp(1, BLOCK_ROWS);
        let mut blocks = Vec::with_capacity(order.len().div_ceil(block_rows));
        let mut image = Vec::new();
        for places in order.chunks(block_rows) {
            work.context.check_cancel()?;
            image.clear();
            write_rows(&table.gather(0..table.vectors().len(), places), places.len(), &mut image);
            keys.write(places, &mut image);
            blocks.push(file.write(&image)?);
        }
        Ok(SortedRun { file, blocks })
    }
}

/// Runs that are being merged.
pub struct Merge {
    runs: Arc<Vec<SortedRun>>,
    representations: Vec<Representation>,
    layout: KeyLayout,
    cursors: Vec<RunCursor>,
    account: Account,
}

/// Where the merge stands in a run.
struct RunCursor {
    /// The next block to read.
    block: usize,
    vectors: Vec<Vector>,
    keys: Keys,
    row: usize,
    rows: usize,
}

impl Merge {
    /// Begins before the first rows.
    pub fn new(
        work: Work<'_>,
        runs: Arc<Vec<SortedRun>>,
        representations: Vec<Representation>,
        layout: KeyLayout,
    ) -> Result<Merge> {
        let cursor =
            |_: &SortedRun| RunCursor { block: 0, vectors: Vec::new(), keys: layout.none(), row: 0, rows: 0 };
        let cursors = runs.iter().map(cursor).collect();
        let account = Account::new(&work.run.options.budget);
        let mut merge = Merge { runs, representations, layout, cursors, account };
        let lost = usize::from(cfg!(feature = "fault-run-lost") && merge.cursors.len() > 1);
        for run in lost..merge.cursors.len() {
            merge.load(run)?;
        }
        Ok(merge)
    }

    /// Reads the next block of a run whose rows have all been taken.
    fn load(&mut self, run: usize) -> Result<()> {
        let cursor = &mut self.cursors[run];
        (cursor.row, cursor.rows) = (0, 0);
        cursor.vectors.clear();
        let Some(place) = self.runs[run].blocks.get(cursor.block) else { return Ok(()) };
        cursor.block += 1;
        let image = self.runs[run].file.read(*place)?;
        let mut rest = &image[..];
        (cursor.vectors, cursor.rows) = read_rows(&self.representations, &mut rest);
        cursor.keys = self.layout.none().read(cursor.rows, &mut rest);
        let bytes = |cursor: &RunCursor| -> usize {
            cursor.vectors.iter().map(Vector::memory).sum::<usize>() + cursor.keys.memory()
        };
        let bytes = self.cursors.iter().map(bytes).sum();
        match self.account.set(bytes) {
            Err(error) if bytes > LEAST_BYTES => Err(error),
            _ => Ok(()),
        }
    }

    /// The next rows, of at most so many, fewer if they are wide; none at the end.
    pub fn next(&mut self, most: usize) -> Result<Table> {
        let mut rows = Collection::new(self.representations.iter().copied());
        // Rows of one block that are taken one after the other.
        let mut taken: (usize, Vec<u16>) = (0, Vec::new());
        let mut count = 0;
        while count < most {
            let open = self.cursors.iter().enumerate().filter(|(_, cursor)| cursor.row < cursor.rows);
            let Some((run, _)) = open.min_by_key(|(run, cursor)| (cursor.keys.get(cursor.row), *run)) else {
                break;
            };
            if taken.0 != run {
                self.append(&mut rows, &mut taken);
                taken.0 = run;
            }
            let cursor = &mut self.cursors[run];
            taken.1.push(cursor.row as u16);
            cursor.row += 1;
            count += 1;
            if cursor.row == cursor.rows {
                self.append(&mut rows, &mut taken);
                self.load(run)?;
                if rows.memory() >= WIDE_BYTES {
                    break;
                }
            }
        }
        self.append(&mut rows, &mut taken);
        Ok(rows.finish())
    }

    fn append(&self, rows: &mut Collection, taken: &mut (usize, Vec<u16>)) {
        let cursor = &self.cursors[taken.0];
        if !taken.1.is_empty() {
            rows.append(&cursor.vectors, Rows::at(&taken.1, cursor.rows));
            taken.1.clear();
        }
    }
}
