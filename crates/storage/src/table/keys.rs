//! The keys of rows in indexes, read from the rows.

use super::{Rows, Table};
use crate::block::{Block, RawCell};
use crate::decoded::Scratch;
use crate::index::Packed;
use crate::{Index, KeyBuffer};
use firn_base::types::Width;
use firn_base::{ColumnId, RowId, Slot};
use smallvec::SmallVec;
use std::ops::Range;

impl Table {
    /// Calls a function with every row in place and its key in `index`, to build that index. There must be no
    /// writing transaction.
    pub fn keys_in_place<E>(
        &self,
        index: &Index,
        mut each: impl FnMut(&[u8], RowId) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut key = KeyBuffer::new();
        let (columns, mut raw) = key_columns(index);
        let mut scratch = Scratch::default();
        for block in self.blocks.iter() {
            // Strings may be moved meanwhile.
            let _guard = crate::pin();
            for slot in (0..block.allocated()).map(Slot) {
                if !block.is_present(slot) {
                    continue;
                }
                key.clear();
                if let Some(compact) = block.compact() {
                    // Nothing is kept: the caller's guard may be held for many blocks.
                    let cell = scratch
                        .row(columns.len(), |column, keep| compact.column(column).cell(slot.index(), keep));
                    index.encode_with(cell, &mut key);
                } else {
                    for (column, raw) in columns.iter().zip(&mut raw) {
                        *raw = block.load_cell(slot, *column);
                    }
                    encode_raw(block, index, &raw, &mut key);
                }
                each(&key, block.row(slot))?;
            }
        }
        Ok(())
    }
}

/// The keys of some rows in an index in which they are numbers.
pub(super) fn packed_keys<'c>(
    rows: &impl Rows<'c>,
    stretch: Range<usize>,
    index: &Index,
) -> SmallVec<[Packed; 16]> {
    let mut keys = SmallVec::from_elem(0, stretch.len());
    for part in &index.spec().columns {
        let Width::Fixed(bytes) = part.representation.width() else { panic!("plain keys are numbers") };
        rows.append_to_keys(stretch.clone(), part.column.index(), usize::from(bytes), &mut keys);
    }
    keys
}

pub(super) fn key_columns(index: &Index) -> (SmallVec<[ColumnId; 8]>, SmallVec<[RawCell; 8]>) {
    let columns: SmallVec<[ColumnId; 8]> = index.spec().columns.iter().map(|part| part.column).collect();
    let raw = SmallVec::from_elem(RawCell::default(), columns.len());
    (columns, raw)
}

pub(super) fn key_of(block: &Block, index: &Index, raw: &[RawCell]) -> KeyBuffer {
    let mut key = KeyBuffer::new();
    encode_raw(block, index, raw, &mut key);
    key
}

fn encode_raw(block: &Block, index: &Index, raw: &[RawCell], key: &mut KeyBuffer) {
    let mut raw = raw.iter();
    index.encode_with(
        |column| block.export(column, *raw.next().expect("every column of the index has a value")),
        key,
    );
}

pub(super) fn key_in_place(block: &Block, index: &Index, slot: Slot) -> KeyBuffer {
    let (columns, mut raw) = key_columns(index);
    for (column, raw) in columns.iter().zip(&mut raw) {
        *raw = block.load_cell(slot, *column);
    }
    key_of(block, index, &raw)
}
