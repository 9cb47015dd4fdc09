//! Scans of files of columns: their parts are read by the workers that take morsels.
//!
//! Each reader belongs to some parts of one file, and one worker at a time reads with it. A worker takes a free reader, or
//! begins to read further parts if none is free, or waits for the reader of another worker if all parts have been begun. It cuts
//! what it reads into morsels, and converts them after it has returned the reader.

use super::columns::{Batches, Fitted, MOST_ROWS};
use super::names::{self, Names};
use crate::arrow::vectors::vector;
use arrow::array::RecordBatch;
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_base::{Representation, Result};
use firn_executor::source::{Morsels, Scan};
use firn_vector::Chunk;
use std::collections::VecDeque;

/// Rows of a batch, if a file can be read so.
const BATCH_ROWS: usize = 1 << 13;

/// The number of units of work for each worker, if there are enough parts.
const UNITS: usize = 4;

/// Some parts of a file.
type Unit = (Arc<Fitted>, Vec<usize>);

/// Files whose columns have been found, and the parts of them that are read.
pub(super) struct ColumnScan {
    pub files: Vec<Unit>,
    pub representations: Arc<[Representation]>,
    /// Whether the names of files are requested in addition.
    pub names: Option<Names>,
    pub workers: usize,
}

impl Scan for ColumnScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        let parts: usize = self.files.iter().map(|(_, parts)| parts.len()).sum();
        // A single worker has no use for more than one reader of a file.
        let share = match self.workers {
            ..=1 => parts.max(1),
            workers => parts.div_ceil(workers * UNITS).max(1),
        };
        let units = self
            .files
            .iter()
            .flat_map(|(file, parts)| parts.chunks(share).map(|parts| (file.clone(), parts.to_vec())));
        Arc::new(ColumnMorsels {
            representations: self.representations.clone(),
            names: self.names,
            state: Mutex::new(State { units: units.collect(), free: Vec::new(), busy: 0 }),
            changed: Condvar::new(),
        })
    }
}

struct ColumnMorsels {
    representations: Arc<[Representation]>,
    names: Option<Names>,
    state: Mutex<State>,
    /// A reader is free again, or has reached its end.
    changed: Condvar,
}

struct State {
    /// Units that no worker has begun to read.
    units: VecDeque<Unit>,
    free: Vec<Reading>,
    /// How many readers workers have.
    busy: usize,
}

/// A file that is being read.
struct Reading {
    file: Arc<Fitted>,
    batches: Box<dyn Batches>,
    /// A batch, and how many of its rows have been passed on.
    batch: Option<(RecordBatch, usize)>,
}

impl Reading {
    /// The next rows: a batch, the first of them, and how many.
    fn next(&mut self) -> Result<Option<(RecordBatch, usize, usize)>> {
        loop {
            if let Some((batch, from)) = &mut self.batch {
                let (first, rows) = (*from, MOST_ROWS.min(batch.num_rows() - *from));
                *from += rows;
                if rows > 0 {
                    return Ok(Some((batch.clone(), first, rows)));
                }
            }
            self.batch = self.batches.next()?.map(|batch| (batch, 0));
            match &self.batch {
                Some((batch, _)) => self.file.check_claims(batch)?,
                None => return Ok(None),
            }
        }
    }
}

/// Returns a reader, if it has not reached its end.
struct Lent<'m> {
    morsels: &'m ColumnMorsels,
    reading: Option<Reading>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.morsels.state.lock();
        state.busy -= 1;
        state.free.extend(self.reading.take());
        self.morsels.changed.notify_all();
    }
}

enum Taken {
    Unit(Unit),
    Reading(Reading),
}

impl ColumnMorsels {
    fn take(&self) -> Option<(Lent<'_>, Option<Unit>)> {
        let mut state = self.state.lock();
        let taken = loop {
            let taken = match state.free.pop() {
                Some(reading) => Some(Taken::Reading(reading)),
                None => state.units.pop_front().map(Taken::Unit),
            };
            match taken {
                Some(taken) => break taken,
                None if state.busy == 0 => return None,
                None => self.changed.wait(&mut state),
            }
        };
        state.busy += 1;
        drop(state);
        Some(match taken {
            Taken::Reading(reading) => (Lent { morsels: self, reading: Some(reading) }, None),
            Taken::Unit(unit) => (Lent { morsels: self, reading: None }, Some(unit)),
        })
    }
}

impl Morsels for ColumnMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        while let Some((mut lent, unit)) = self.take() {
            let mut reading = match (lent.reading.take(), unit) {
                (Some(reading), _) => reading,
                (None, Some((file, parts))) => {
                    let batches = file.batches(&parts, BATCH_ROWS)?;
                    Reading { file, batches, batch: None }
                }
                (None, None) => panic!("what was taken is a reader or what one is made for"),
            };
            let Some((batch, from, rows)) = reading.next()? else { continue };
            let file = reading.file.clone();
            lent.reading = Some(reading);
            drop(lent);
            let batch = file.fit(&batch, from, rows)?;
            let columns = batch.columns().iter().zip(&*self.representations);
            let vectors = columns.map(|(array, representation)| vector(array, *representation));
            return Ok(Some(names::chunk(self.names, vectors.collect(), rows, file.path())));
        }
        Ok(None)
    }
}
