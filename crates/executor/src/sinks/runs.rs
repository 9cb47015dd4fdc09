//! Sorted runs in temporary files, and how they are merged: what a sort comes to for which there is no memory.
//!
//! A run is written in blocks of about 64 kB, rows and their keys. A merge keeps one block of each run in memory and takes the
//! smallest key again and again; of equal ones that of the run that was written first. What it does for a row, and for a block, is
//! at most in proportion to the logarithm of the number of runs. Rows of one block that follow one another are copied together.

use crate::budget::Account;
use crate::columns::{Collection, Table};
use crate::expression::WIDE_BYTES;
use crate::keys::{Key, KeyLayout, Keys};
use crate::pipeline::Work;
use crate::sinks::tournament::Tournament;
use crate::spill::{SpillFile, read_rows, write_rows};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_plan::faults::Fault;
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
    /// The runs in the order of their next rows.
    order: Tournament,
    /// What the cursors take.
    bytes: usize,
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

impl RunCursor {
    /// The key of its next row, if it has one.
    fn key(&self) -> Option<Key<'_>> {
        (self.row < self.rows).then(|| self.keys.get(self.row))
    }

    fn memory(&self) -> usize {
        self.vectors.iter().map(Vector::memory).sum::<usize>() + self.keys.memory()
    }
}

/// Whether the next row of a run is before that of another one. Runs at their end are last.
fn precedes(cursors: &[RunCursor], left: usize, right: usize) -> bool {
    match (cursors[left].key(), cursors[right].key()) {
        (Some(of_left), Some(of_right)) => (of_left, left) < (of_right, right),
        (of_left, of_right) => (of_left.is_none(), left) < (of_right.is_none(), right),
    }
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
        let cursors: Vec<RunCursor> = runs.iter().map(cursor).collect();
        let bytes = cursors.iter().map(RunCursor::memory).sum();
        let account = Account::new(&work.run.options.budget);
        let order = Tournament::new(0, |_, _| false);
        let mut merge = Merge { runs, representations, layout, cursors, order, bytes, account };
        let lost = usize::from(Fault::RunLost.is_made() && merge.cursors.len() > 1);
        for run in lost..merge.cursors.len() {
            merge.load(run)?;
        }
        let cursors = &merge.cursors;
        merge.order = Tournament::new(cursors.len(), |left, right| precedes(cursors, left, right));
        Ok(merge)
    }

    /// Reads the next block of a run whose rows have all been taken.
    fn load(&mut self, run: usize) -> Result<()> {
        let cursor = &mut self.cursors[run];
        self.bytes -= cursor.memory();
        (cursor.row, cursor.rows) = (0, 0);
        cursor.vectors.clear();
        cursor.keys = self.layout.none();
        if let Some(place) = self.runs[run].blocks.get(cursor.block) {
            cursor.block += 1;
            let image = self.runs[run].file.read(*place)?;
            let mut rest = &image[..];
            (cursor.vectors, cursor.rows) = read_rows(&self.representations, &mut rest);
            cursor.keys = self.layout.none().read(cursor.rows, &mut rest);
        }
        self.bytes += cursor.memory();
        match self.account.set(self.bytes) {
            Err(error) if self.bytes > LEAST_BYTES => Err(error),
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
            let is_open = |run: &usize| self.cursors[*run].row < self.cursors[*run].rows;
            let Some(run) = self.order.winner().filter(is_open) else { break };
            if taken.0 != run {
                self.append(&mut rows, &mut taken);
                taken.0 = run;
            }
            let cursor = &mut self.cursors[run];
            taken.1.push(cursor.row as u16);
            cursor.row += 1;
            count += 1;
            let is_at_end_of_block = cursor.row == cursor.rows;
            if is_at_end_of_block {
                self.append(&mut rows, &mut taken);
                self.load(run)?;
            }
            self.order.replay(|left, right| precedes(&self.cursors, left, right));
            if is_at_end_of_block && rows.memory() >= WIDE_BYTES {
                break;
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
