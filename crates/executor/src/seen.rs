//! Which rows are new: those of DISTINCT aggregates, and of a recursion whose rows count once.
//!
//! As long as there is memory for the keys of all rows, it is known at once whether a row is new. Then the keys go to a temporary
//! file, split by their hashes ([`Partitions`]), and so do all further rows. [`Seen::drain`] finds those of them that are new, part
//! after part: it reads the keys of a part into a set and looks for the rows' keys. A part for which there is no memory is split again.

use crate::budget::Account;
use crate::keys::{KeyLayout, KeySet, Keys};
use crate::partitions::{MOST_LEVELS, PartRows, Partitions};
use crate::pipeline::Work;
use crate::sinks::LEAST_BYTES;
use crate::spill::SpillArea;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Selection, Vector};

/// The keys of the rows that have come.
pub(crate) struct Seen {
    layout: KeyLayout,
    /// Until they are in files.
    set: KeySet,
    files: Option<Files>,
}

struct Files {
    area: Arc<SpillArea>,
    /// How the columns of rows lie.
    representations: Vec<Representation>,
    /// The keys, without rows.
    keys: Partitions,
    /// Rows of which it is not known whether they are new, if there are some.
    waiting: Option<Partitions>,
}

/// Blocks of keys without rows have so many.
const KEYS_AT_ONCE: usize = 1024;

/// About what a key takes in a set beside its bytes.
const BYTES_OF_A_KEY: usize = 32;

impl Seen {
    /// No rows have come.
    pub fn new(layout: &KeyLayout) -> Seen {
        Seen { layout: layout.clone(), set: KeySet::new(layout), files: None }
    }

    /// Adds rows with their keys, which are those of the selected ones. The new rows among them; `None` if that is not known yet.
    pub fn add(
        &mut self,
        work: Work<'_>,
        vectors: &[Vector],
        keys: &Keys,
        rows: Rows<'_>,
    ) -> Result<Option<Selection>> {
        let Some(files) = &mut self.files else { return Ok(Some(new_rows(&mut self.set, keys, rows))) };
        if files.waiting.is_none() {
            let (none, most) = (Some(self.layout.none()), work.run.options.vector_rows);
            let representations = files.representations.clone();
            files.waiting = Some(Partitions::with_keys(&files.area, representations, none, 0, most)?);
        }
        let waiting = files.waiting.as_mut().expect("it has been made");
        let mut positions = Vec::with_capacity(keys.len());
        rows.each(|row| positions.push(row as u16));
        waiting.add_with_keys(vectors, rows.length(), &positions, &keys.hashes(), Some(keys))?;
        Ok(None)
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.set.memory()
    }

    /// Moves the keys to a temporary file. Columns of rows that come from now on lie like this.
    pub fn spill(&mut self, area: &Arc<SpillArea>, representations: Vec<Representation>) -> Result<()> {
        if self.files.is_none() {
            let mut keys =
                Partitions::with_keys(area, Vec::new(), Some(self.layout.none()), 0, KEYS_AT_ONCE)?;
            let set = std::mem::replace(&mut self.set, KeySet::new(&self.layout)).into_keys();
            add_keys(&mut keys, &set, &self.layout)?;
            self.files = Some(Files { area: area.clone(), representations, keys, waiting: None });
        }
        Ok(())
    }

    /// Gives the new ones of the rows that have been put off, in any order. If no more will come (`is_end`), their keys are not kept.
    pub fn drain(
        &mut self,
        work: Work<'_>,
        is_end: bool,
        give: &mut dyn FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let Some(waiting) = files.waiting.take() else { return Ok(()) };
        for rows in waiting.finish()? {
            let Files { area, keys, .. } = files;
            let before = keys.part(rows.number())?;
            let search = Search { work, layout: &self.layout, area };
            search.new_rows(before, rows, 1, &mut |chunk, of_chunk| {
                if !is_end {
                    add_keys(keys, &of_chunk, &self.layout)?;
                }
                give(chunk)
            })?;
        }
        Ok(())
    }
}

/// Adds keys without rows.
fn add_keys(partitions: &mut Partitions, keys: &Keys, layout: &KeyLayout) -> Result<()> {
    for from in (0..keys.len()).step_by(KEYS_AT_ONCE) {
        let length = KEYS_AT_ONCE.min(keys.len() - from);
        let mut part = layout.none();
        part.push_all(keys, &(from as u32..(from + length) as u32).collect::<Vec<_>>());
        let positions: Vec<u16> = (0..length as u16).collect();
        partitions.add_with_keys(&[], length, &positions, &part.hashes(), Some(&part))?;
    }
    Ok(())
}

/// What rows of one part are looked for with.
#[derive(Clone, Copy)]
struct Search<'a> {
    work: Work<'a>,
    layout: &'a KeyLayout,
    area: &'a Arc<SpillArea>,
}

impl Search<'_> {
    /// Gives the rows of a part that are not among those of which it has the keys, once each, with their keys. `level` says how often the
    /// part would have been split if it were split again.
    fn new_rows(
        self,
        before: PartRows,
        rows: PartRows,
        level: u32,
        give: &mut dyn FnMut(Chunk, Keys) -> Result<()>,
    ) -> Result<()> {
        let mut account = Account::new(&self.work.run.options.budget);
        let count = (before.rows() + rows.rows()) as usize;
        let bytes = 2 * (before.bytes() + rows.bytes()) + BYTES_OF_A_KEY * count;
        if let Err(error) = account.set(bytes)
            && bytes > LEAST_BYTES
        {
            return match level < MOST_LEVELS {
                true => self.split(before, rows, level, give),
                false => Err(error),
            };
        }
        let (mut set, mut numbers) = (KeySet::new(self.layout), Vec::new());
        for number in 0..before.blocks() {
            self.work.context.check_cancel()?;
            numbers.clear();
            set.insert(&keys_of(before.block(number)?).1, &mut numbers);
        }
        drop(before);
        for number in 0..rows.blocks() {
            self.work.context.check_cancel()?;
            let (chunk, keys) = keys_of(rows.block(number)?);
            let new = new_rows(&mut set, &keys, chunk.rows());
            if new.is_empty() {
                continue;
            }
            let mut of_new = self.layout.none();
            of_new.push_all(&keys, &new.positions().iter().map(|row| u32::from(*row)).collect::<Vec<_>>());
            give(chunk.with_selection(Some(new)).compact(), of_new)?;
        }
        Ok(())
    }

    fn split(
        self,
        before: PartRows,
        rows: PartRows,
        level: u32,
        give: &mut dyn FnMut(Chunk, Keys) -> Result<()>,
    ) -> Result<()> {
        let (mut keys, rows) = (self.split_rows(before, level)?, self.split_rows(rows, level)?);
        for rows in rows.finish()? {
            self.new_rows(keys.part(rows.number())?, rows, level + 1, give)?;
        }
        Ok(())
    }

    fn split_rows(self, rows: PartRows, level: u32) -> Result<Partitions> {
        let (none, most) = (Some(self.layout.none()), self.work.run.options.vector_rows);
        let mut parts = Partitions::with_keys(self.area, rows.representations().to_vec(), none, level, most)?;
        for number in 0..rows.blocks() {
            self.work.context.check_cancel()?;
            let (chunk, keys) = keys_of(rows.block(number)?);
            let positions: Vec<u16> = (0..chunk.length() as u16).collect();
            parts.add_with_keys(chunk.vectors(), chunk.length(), &positions, &keys.hashes(), Some(&keys))?;
        }
        Ok(parts)
    }
}

fn keys_of((chunk, keys): (Chunk, Option<Keys>)) -> (Chunk, Keys) {
    (chunk, keys.expect("keys are kept beside the rows"))
}

/// The rows whose keys were not there, which they are afterwards.
pub(crate) fn new_rows(seen: &mut KeySet, keys: &Keys, rows: Rows<'_>) -> Selection {
    let (mut next, mut numbers) = (seen.len() as u32, Vec::with_capacity(keys.len()));
    seen.insert(keys, &mut numbers);
    let (mut place, mut new) = (0, Vec::new());
    rows.each(|row| {
        if numbers[place] == next {
            new.push(row as u16);
            next += 1;
        }
        place += 1;
    });
    Selection::new(new)
}
