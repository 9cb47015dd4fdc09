//! Many keys for one index, entered in runs: keys that follow each other and differ in their last byte
//! alone, as numbers that count up do, go into the tree together.

use super::{Index, KeyBuffer};
use crate::Guard;
use firn_base::RowId;
use smallvec::SmallVec;

/// Keys and rows that wait until the run of them ends.
pub(crate) struct Runs<'i> {
    index: &'i Index,
    /// The first key of the run, and of each key the last byte and the row.
    key: KeyBuffer,
    run: SmallVec<[(u8, RowId); 16]>,
}

impl<'i> Runs<'i> {
    /// Runs for this index, none as yet.
    pub fn new(index: &'i Index) -> Runs<'i> {
        Runs { index, key: KeyBuffer::new(), run: SmallVec::new() }
    }

    /// The index.
    pub fn index(&self) -> &'i Index {
        self.index
    }

    /// Adds a full key. What must be entered by itself goes to `enter`, whose errors end the run;
    /// [`Runs::finish`] must follow the last key.
    #[inline]
    pub fn add<E>(
        &mut self,
        key: &[u8],
        row: RowId,
        guard: &Guard,
        enter: impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        if let (Some((last, shared)), Some((known, _))) = (key.split_last(), self.run.last())
            && self.key.len() == key.len()
            && known < last
            && self.key[..key.len() - 1] == *shared
        {
            self.run.push((*last, row));
            return Ok(());
        }
        self.finish(guard, enter)?;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.run.extend(key.last().map(|last| (*last, row)));
        Ok(())
    }

    /// Enters what still waits.
    pub fn finish<E>(
        &mut self,
        guard: &Guard,
        mut enter: impl FnMut(&[u8], RowId) -> Result<(), E>,
    ) -> Result<(), E> {
        let run = std::mem::take(&mut self.run);
        if run.len() > 1 && self.index.claim_run(&self.key, &run, guard) {
            return Ok(());
        }
        for (last, row) in run {
            *self.key.last_mut().expect("a key of a run has a last byte") = last;
            enter(&self.key, row)?;
        }
        Ok(())
    }
}
