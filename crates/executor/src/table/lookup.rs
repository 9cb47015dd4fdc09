//! Look-ups of an index join: the rows of a table under keys that are known only as the statement runs.
//!
//! Each key is logged for validation, as a range of the index with the restrictions of the scan's own conditions, through
//! [`ReadNotes`], since the transaction is not at hand. So many keys that the log would widen them anyway become a scan.

use super::{OpenTable, path};
use crate::source::Lookup;
use crate::write::Cells;
use firn_base::numeric::power_of_ten;
use firn_base::sync::{Arc, Mutex};
use firn_base::types::Width;
use firn_base::{Cell, ColumnSet, Representation, Result, RowId, Stored};
use firn_plan::rewrite::first_rows::{AttributeOrder, Direction, direction};
use firn_storage::{Index, IndexColumn, KeyBuffer, Restriction, Table, pin};
use firn_txn::ReadNotes;
use firn_txn::catalog::TableDef;
use firn_vector::{Chunk, Datum, Vector};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::ops::Bound;

/// Keys that are logged one by one.
const MOST_NOTED: usize = 1024;

pub(super) struct TableLookup {
    pub open: OpenTable,
    pub index: Arc<Index>,
    /// How many of the index's columns keys have.
    pub parts: usize,
    /// In which order rows of a key are found, and how many of them are wanted.
    pub direction: Direction,
    pub most_of_key: usize,
    pub is_never_met: bool,
    pub log: Option<KeyLog>,
}

/// Logs keys.
pub(super) struct KeyLog {
    notes: ReadNotes,
    restrictions: Arc<[Restriction]>,
    columns: ColumnSet,
    /// Those that have been logged; `None` once the table has been.
    noted: Mutex<Option<HashSet<Box<[u8]>>>>,
}

impl KeyLog {
    pub fn new(notes: ReadNotes, restrictions: Vec<Restriction>, columns: ColumnSet) -> KeyLog {
        let restrictions = restrictions.into();
        KeyLog { notes, restrictions, columns, noted: Mutex::new(Some(HashSet::new())) }
    }

    fn add(&self, table: &Arc<Table>, index: &Arc<Index>, key: &KeyBuffer) {
        let mut noted = self.noted.lock();
        let Some(keys) = &mut *noted else { return };
        if keys.len() == MOST_NOTED {
            self.notes.scan(table, &self.restrictions, self.columns);
            *noted = None;
        } else if keys.insert(key.as_slice().into()) {
            let bounds = (Bound::Included(key.clone()), Bound::Included(key.clone()));
            self.notes.range(table, index, bounds, &self.restrictions, self.columns);
        }
    }
}

/// The index of a table whose first columns are these, and which has the rows of a key in an order; and how.
pub(super) fn index_of(
    definition: &TableDef,
    table: &Table,
    attributes: &[i16],
    order: &[AttributeOrder],
) -> Option<(Arc<Index>, Direction)> {
    let fits = |index: Arc<Index>| {
        let columns = &index.spec().columns;
        let begins = columns.len() >= attributes.len()
            && columns
                .iter()
                .zip(attributes)
                .all(|(part, attribute)| part.column == super::column_id(*attribute));
        begins.then_some(())?;
        let part = |part: &IndexColumn| (part.column.0 as i16 + 1, part.descending, part.nulls_first);
        let mut direction = direction(columns.iter().map(part), attributes.len(), order)?;
        if !columns.get(attributes.len()).is_some_and(|part| part.nullable) {
            direction.nulls_apart = None;
        }
        Some((index, direction))
    };
    // A unique key of all columns is the shortest way.
    let fitting = path::known_indexes(definition, table).filter_map(fits);
    fitting.min_by_key(|(index, _)| (index.spec().columns.len(), !index.spec().unique))
}

impl Lookup for TableLookup {
    fn find(&self, keys: &[Vector], rows: &[u16], most: usize, found: &mut Vec<(u32, u64)>) -> Result<usize> {
        if self.is_never_met {
            return Ok(rows.len());
        }
        let guard = pin();
        let (table, index) = (&self.open.table, &self.index);
        let is_full = self.parts == index.spec().columns.len();
        let (mut key, mut null_key) = (KeyBuffer::new(), KeyBuffer::new());
        for (number, row) in rows.iter().enumerate() {
            if found.len() >= most {
                return Ok(number);
            }
            key.clear();
            if !self.encode(keys, usize::from(*row), &[], &mut key) {
                continue;
            }
            if let Some(log) = &self.log {
                log.add(table, index, &key);
            }
            let wanted = std::cell::Cell::new(self.most_of_key);
            if wanted.get() == 0 {
                continue;
            }
            let mut add = |key: &[u8], row: RowId| {
                if table.sees(index, key, row, self.open.snapshot, &guard) {
                    found.push((number as u32, row.to_bits()));
                    wanted.set(wanted.get() - 1);
                }
                wanted.get() > 0
            };
            if is_full {
                index.lookup(key.as_slice(), &guard, &mut |row| add(key.as_slice(), row));
                continue;
            }
            let mut range = |low, high| {
                if wanted.get() > 0 {
                    index.range(low, high, self.direction.is_reverse, &guard, &mut add);
                }
            };
            let all = Bound::Included(key.as_slice());
            let Some(nulls_first) = self.direction.nulls_apart else {
                range(all, all);
                continue;
            };
            null_key.clear();
            self.encode(keys, usize::from(*row), &[Cell::Null], &mut null_key);
            let (nulls, others) =
                (Bound::Included(null_key.as_slice()), Bound::Excluded(null_key.as_slice()));
            if nulls_first {
                range(nulls, nulls);
            }
            match index.spec().columns[self.parts].nulls_first {
                true => range(others, all),
                false => range(all, others),
            }
            if !nulls_first {
                range(nulls, nulls);
            }
        }
        Ok(rows.len())
    }

    fn read(&self, rows: &[u64]) -> Result<Chunk> {
        let rows: Vec<RowId> = rows.iter().map(|row| RowId::from_bits(*row)).collect();
        let chunk = self.open.read(&rows);
        assert_eq!(chunk.length(), rows.len(), "a snapshot sees the same for ever");
        Ok(chunk)
    }
}

impl TableLookup {
    /// The key of a row, with further cells; false if no row of the table is equal to it.
    fn encode(&self, keys: &[Vector], row: usize, more: &[Cell<'_>], key: &mut KeyBuffer) -> bool {
        let parts = self.index.spec().columns.iter().take(self.parts);
        let parts = keys.iter().zip(parts);
        let stored: Option<SmallVec<[Stored<'_>; 4]>> =
            parts.map(|(vector, part)| as_stored(vector.datum(row), part.representation)).collect();
        let Some(stored) = stored else { return false };
        let cells: Cells<'_> = stored.iter().map(Stored::cell).chain(more.iter().copied()).collect();
        self.index.encode(&cells, key);
        true
    }
}

/// A value as a column with this representation holds it; `None` if none of its values is equal to it.
#[inline]
pub(crate) fn as_stored<'v>(datum: Datum<'v>, stored: Representation) -> Option<Stored<'v>> {
    let integer = match datum {
        Datum::Int16(value) => Some(i64::from(value)),
        Datum::Int32(value) => Some(i64::from(value)),
        Datum::Int64(value) => Some(value),
        _ => None,
    };
    let cell = match stored {
        Representation::Int16 => Cell::i16(integer?.try_into().ok()?),
        Representation::Int32 => Cell::i32(integer?.try_into().ok()?),
        Representation::Int64 => Cell::i64(integer?),
        Representation::Decimal { precision, scale } => {
            let Datum::Numeric(number) = datum else { return None };
            let unscaled = number.exactly_at(scale.into())?;
            let fits = unscaled.unsigned_abs() < power_of_ten(precision.into())?.unsigned_abs();
            fits.then_some(())?;
            match stored.width() {
                Width::Fixed(8) => Cell::i64(unscaled as i64),
                _ => Cell::i128(unscaled),
            }
        }
        _ if datum.is_null() => return None,
        _ => return crate::write::stored(datum, stored).ok(),
    };
    Some(Stored::Cell(cell))
}
