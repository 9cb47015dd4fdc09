//! Wide results: a chunk whose rows have long strings or arrays is evaluated in parts, so that no vector is much wider than
//! [`WIDE_BYTES`].
//!
//! How wide results become is known when they are there. So a function stops in the middle of a vector that becomes too wide, and all is
//! evaluated again for half of the rows. Operators that pass results on pass on each part by itself ([`Cutter`]); others get the results
//! of all parts together ([`whole`]), which are mostly small: truths, lengths, keys.

use crate::budget::Account;
use crate::pipeline::Work;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{Representation, Result};
use firn_vector::builder::Builder;
use firn_vector::kernel::Part;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Selection, Vector};
use std::cell::Cell;

/// How many bytes the values of a vector take at most, before the last one.
pub const WIDE_BYTES: usize = 16 << 20;

/// Results of fewer bytes are not charged.
const LEAST_CHARGED: usize = 1 << 20;

/// How many numbers of chunks a thread takes at once.
const NUMBERS: u64 = 1024;

/// The number of a chunk that is evaluated: no other one in the process has it.
fn next_chunk() -> u64 {
    static TAKEN: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    NEXT.with(|next| {
        if next.get() % NUMBERS == 0 {
            // Relaxed: only that they are different matters.
            next.set(TAKEN.fetch_add(1, Ordering::Relaxed) * NUMBERS);
        }
        next.set(next.get() + 1);
        next.get()
    })
}

/// Evaluates something for the selected rows of vectors, in parts if it must be. `evaluate` returns `None` for a part that is too wide.
pub(super) fn whole(
    representation: Representation,
    vectors: &[Vector],
    rows: Rows<'_>,
    mut evaluate: impl FnMut(&[Vector], Rows<'_>, Part) -> Result<Option<Vector>>,
) -> Result<Vector> {
    let part = Part { chunk: next_chunk(), from: 0, most_bytes: WIDE_BYTES };
    if let Some(result) = evaluate(vectors, rows, part)? {
        return Ok(result);
    }
    let (mut builder, mut from) = (Builder::new(representation), 0);
    let mut length = rows.length().div_ceil(2);
    while from < rows.length() {
        length = length.min(rows.length() - from);
        let positions = positions_within(rows, from, length);
        let of_part: Vec<Vector> = vectors.iter().map(|vector| vector.slice(from, length)).collect();
        let rows_of_part = positions.as_ref().map_or(Rows::all(length), |at| Rows::at(at, length));
        let most_bytes = if rows_of_part.count() > 1 { WIDE_BYTES } else { usize::MAX };
        match evaluate(&of_part, rows_of_part, Part { from, most_bytes, ..part })? {
            Some(result) => {
                rows_of_part.each(|row| {
                    builder.pad(from + row);
                    builder.push(result.datum(row));
                });
                from += length;
            }
            None => length = length.div_ceil(2),
        }
    }
    builder.pad(rows.length());
    Ok(builder.finish())
}

/// The selected ones of some rows, counted from the first of these; `None` if all are.
fn positions_within(rows: Rows<'_>, from: usize, length: usize) -> Option<Vec<u16>> {
    let positions = rows.positions()?;
    let within = |position: &u16| (from..from + length).contains(&usize::from(*position));
    Some(positions.iter().copied().filter(within).map(|position| position - from as u16).collect())
}

/// Cuts chunks into parts whose results are not too wide, and charges results that are wide nevertheless.
pub(crate) struct Cutter {
    chunk: Option<Chunk>,
    number: u64,
    /// The first row of the chunk that is left, and how many rows are tried at once.
    from: usize,
    rows: usize,
    /// Where the attempts ended that were too wide. A later part does not cross such an end: what an attempt has drawn from volatile
    /// functions is for its rows alone.
    ends: Vec<usize>,
    most_bytes: usize,
    account: Account,
}

impl Cutter {
    pub fn new(work: Work<'_>) -> Cutter {
        let options = &work.run.options;
        Cutter {
            chunk: None,
            number: 0,
            from: 0,
            rows: usize::MAX,
            ends: Vec::new(),
            most_bytes: options.vector_bytes,
            account: Account::new(&options.budget),
        }
    }

    /// Begins with another chunk.
    pub fn begin(&mut self, chunk: Chunk) {
        (self.chunk, self.number, self.from) = (Some(chunk), next_chunk(), 0);
        self.ends.clear();
    }

    /// Whether there are no rows any more.
    pub fn is_done(&self) -> bool {
        self.chunk.is_none()
    }

    /// The next part that has selected rows, and what it comes to; `None` at the end of the chunk. `evaluate` returns the results and how
    /// many bytes they take, or `None` if they are too wide. They are charged until the next call.
    pub fn next<T>(
        &mut self,
        mut evaluate: impl FnMut(&Chunk, Part) -> Result<Option<(T, usize)>>,
    ) -> Result<Option<(Chunk, T)>> {
        let Some(chunk) = self.chunk.take() else { return Ok(None) };
        while self.from < chunk.length() {
            while self.ends.last().is_some_and(|end| *end <= self.from) {
                self.ends.pop();
            }
            let end = self.ends.last().copied().unwrap_or(chunk.length());
            let length = self.rows.min(end - self.from);
            let cut = (length < chunk.length()).then(|| slice(&chunk, self.from, length));
            let part = cut.as_ref().unwrap_or(&chunk);
            let count = part.count();
            if count == 0 {
                self.from += length;
                continue;
            }
            let most_bytes = if count > 1 { self.most_bytes } else { usize::MAX };
            let place = Part { chunk: self.number, from: self.from, most_bytes };
            let Some((result, bytes)) = evaluate(part, place)? else {
                self.try_fewer(length);
                continue;
            };
            match self.charge(bytes) {
                Ok(()) => {}
                Err(error) if count == 1 => return Err(error),
                // With fewer rows there may be memory.
                Err(_) => {
                    self.try_fewer(length);
                    continue;
                }
            }
            if bytes < self.most_bytes / 4 {
                self.rows = self.rows.saturating_mul(2);
            }
            self.from += length;
            let Some(part) = cut else { return Ok(Some((chunk, result))) };
            self.chunk = (self.from < chunk.length()).then_some(chunk);
            return Ok(Some((part, result)));
        }
        Ok(None)
    }

    /// So many rows are too wide.
    fn try_fewer(&mut self, length: usize) {
        self.rows = length.div_ceil(2);
        self.ends.push(self.from + length);
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        let bytes = if bytes < LEAST_CHARGED { 0 } else { bytes };
        if self.account.bytes() == bytes { Ok(()) } else { self.account.set(bytes) }
    }
}

/// Some rows of a chunk.
fn slice(chunk: &Chunk, from: usize, length: usize) -> Chunk {
    let vectors = chunk.vectors().iter().map(|vector| vector.slice(from, length)).collect();
    let positions = positions_within(chunk.rows(), from, length);
    Chunk::new(length, vectors).with_selection(positions.map(Selection::new))
}
