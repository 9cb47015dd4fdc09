//! Look-ups of an index join: the rows of a table under keys that are known only as the statement runs.
//!
//! Each key is logged for validation, as a range of the index with the restrictions of the scan's own conditions, through
//! [`ReadNotes`], since the transaction is not at hand. So many keys that the log would widen them anyway become a scan.

use super::{OpenTable, path};
use crate::source::Lookup;
use crate::values::value;
use firn_base::numeric::power_of_ten;
use firn_base::sync::{Arc, Mutex};
use firn_base::{ColumnSet, Numeric, Representation, Result, RowId, Stored, Value};
use firn_storage::{Index, KeyBuffer, Restriction, Table, pin};
use firn_txn::ReadNotes;
use firn_txn::catalog::TableDef;
use firn_vector::{Chunk, Vector};
use std::collections::HashSet;
use std::ops::Bound;

/// Keys that are logged one by one.
const MOST_NOTED: usize = 1024;

pub(super) struct TableLookup {
    pub open: OpenTable,
    pub index: Arc<Index>,
    /// How many of the index's columns keys have.
    pub parts: usize,
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

/// The index of a table whose first columns are these.
pub(super) fn index_of(definition: &TableDef, table: &Table, attributes: &[i16]) -> Option<Arc<Index>> {
    let begins = |index: &Arc<Index>| {
        let columns = &index.spec().columns;
        columns.len() >= attributes.len()
            && columns
                .iter()
                .zip(attributes)
                .all(|(part, attribute)| part.column == super::column_id(*attribute))
    };
    // A unique key of all columns is the shortest way.
    let fitting = path::known_indexes(definition, table).filter(begins);
    fitting.min_by_key(|index| (index.spec().columns.len(), !index.spec().unique))
}

impl Lookup for TableLookup {
    fn find(&self, keys: &[Vector], rows: &[u16], most: usize, found: &mut Vec<(u32, u64)>) -> Result<usize> {
        if self.is_never_met {
            return Ok(rows.len());
        }
        let guard = pin();
        let (table, index) = (&self.open.table, &self.index);
        let is_full = self.parts == index.spec().columns.len();
        let mut key = KeyBuffer::new();
        for (number, row) in rows.iter().enumerate() {
            if found.len() >= most {
                return Ok(number);
            }
            key.clear();
            if !self.encode(keys, usize::from(*row), &mut key) {
                continue;
            }
            if let Some(log) = &self.log {
                log.add(table, index, &key);
            }
            let mut add = |key: &[u8], row: RowId| {
                if table.sees(index, key, row, self.open.snapshot, &guard) {
                    found.push((number as u32, row.to_bits()));
                }
                true
            };
            match is_full {
                true => index.lookup(key.as_slice(), &guard, &mut |row| add(key.as_slice(), row)),
                false => {
                    let bound = Bound::Included(key.as_slice());
                    index.range(bound, bound, false, &guard, &mut add);
                }
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
    /// The key of a row; false if no row of the table is equal to it.
    fn encode(&self, keys: &[Vector], row: usize, key: &mut KeyBuffer) -> bool {
        let parts = self.index.spec().columns.iter().take(self.parts);
        let values: Option<Vec<(Value, Representation)>> = keys
            .iter()
            .zip(parts)
            .map(|(vector, part)| {
                let given = value(vector.datum(row), vector.representation());
                Some((as_stored(given, part.representation)?, part.representation))
            })
            .collect();
        let Some(values) = values else { return false };
        let stored: Vec<Stored<'_>> = values.iter().map(|(value, stored)| value.stored(*stored)).collect();
        let cells: Vec<_> = stored.iter().map(Stored::cell).collect();
        self.index.encode(&cells, key);
        true
    }
}

/// The digits of a number at a scale, if none is lost and there are not too many.
fn digits(number: Numeric, precision: u8, scale: u8) -> Option<Value> {
    let unscaled = number.exactly_at(scale.into())?;
    let fits = unscaled.unsigned_abs() < power_of_ten(precision.into())?.unsigned_abs();
    fits.then_some(Value::Numeric { unscaled, scale })
}

/// A value as a column with this representation holds it; `None` if none of its values is equal to it.
fn as_stored(value: Value, stored: Representation) -> Option<Value> {
    let integer = match value {
        Value::SmallInt(value) => Some(i64::from(value)),
        Value::Integer(value) => Some(i64::from(value)),
        Value::BigInt(value) => Some(value),
        _ => None,
    };
    match (value, stored) {
        (Value::Null, _) => None,
        (_, Representation::Int16) => integer?.try_into().ok().map(Value::SmallInt),
        (_, Representation::Int32) => integer?.try_into().ok().map(Value::Integer),
        (_, Representation::Int64) => integer.map(Value::BigInt),
        (Value::Number(number), Representation::Decimal { precision, scale }) => {
            digits(number, precision, scale)
        }
        (Value::Numeric { unscaled, scale: from }, Representation::Decimal { precision, scale }) => {
            digits(Numeric::from_decimal(unscaled, from), precision, scale)
        }
        (value, _) => Some(value),
    }
}
