//! Which index a scan reads by: chosen when it is opened, from the values that its conditions compare columns with.
//!
//! An index fits as far as conditions equate its first columns with values; an IN list gives several keys. Behind them one
//! column may have a range. The entries of each index that fits are counted, up to a limit: only if they are few is the index
//! better than the table. The conditions are asked again of the rows, so that a path may have more rows than meet them.

use super::restrictions::Comparison;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnSet, RowId, Snapshot, Stored, Value};
use firn_plan::function::Strategy;
use firn_storage::{Guard, Index, IndexColumn, KeyBuffer, Restriction, Table};
use firn_txn::Transaction;
use firn_txn::catalog::TableDef;
use std::ops::Bound;

/// Entries that are always worth the index.
const FEW: usize = 256;

/// An index is read instead of the table only for less than this part of its rows: a row that is read by its id costs
/// several times what it costs a scan.
const SHARE: u64 = 32;

/// Row ids that a path has at most.
const MOST: usize = 1 << 20;

/// Keys that IN lists make at most.
const MOST_KEYS: usize = 1024;

/// A part of an index that is read from one end to the other.
type Stretch = (Bound<KeyBuffer>, Bound<KeyBuffer>);

/// Stretches of an index that do not overlap.
pub(super) struct Path {
    index: Arc<Index>,
    stretches: Vec<Stretch>,
    /// Whether each stretch has one key of a unique index.
    is_point: bool,
}

impl Path {
    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }
}

/// The best path to rows that meet comparisons; `None` if the table itself is better.
pub(super) fn choose(definition: &TableDef, table: &Table, comparisons: &[Comparison]) -> Option<Path> {
    if comparisons.is_empty() {
        return None;
    }
    let paths = known_indexes(definition, table).filter_map(|index| path(index, comparisons));
    let mut paths: Vec<Path> = paths.collect();
    let limit = FEW.max((table.approximate_rows() / SHARE) as usize).min(MOST);
    if let Some(point) = paths.iter().position(|path| path.is_point && path.stretches.len() <= limit) {
        return Some(paths.swap_remove(point));
    }
    let guard = firn_storage::pin();
    let counted = paths.into_iter().filter_map(|path| Some((path.count(limit, &guard)?, path)));
    counted.min_by_key(|(entries, _)| *entries).map(|(_, path)| path)
}

/// The indexes that the catalog has. One that another transaction has made since lacks rows that only older snapshots see.
pub(super) fn known_indexes<'t>(
    definition: &'t TableDef,
    table: &Table,
) -> impl Iterator<Item = Arc<Index>> + use<'t> {
    let indexes: Vec<Arc<Index>> = table.indexes().to_vec();
    indexes.into_iter().filter(|index| definition.indexes.iter().any(|known| known.id() == index.spec().id))
}

/// The path of one index, if the comparisons fit it.
fn path(index: Arc<Index>, comparisons: &[Comparison]) -> Option<Path> {
    let columns = &index.spec().columns;
    let mut keys: Vec<Vec<&Value>> = vec![Vec::new()];
    let mut fixed = 0;
    for column in columns {
        let equal = comparisons.iter().filter(|comparison| {
            comparison.column == column.column && comparison.strategy == Strategy::Equal
        });
        let Some(fewest) = equal.min_by_key(|comparison| comparison.values.len()) else { break };
        if keys.len() * fewest.values.len() > MOST_KEYS {
            break;
        }
        keys = extended(&keys, &fewest.values);
        fixed += 1;
    }
    let range: Vec<&Comparison> = match columns.get(fixed) {
        Some(next) => comparisons
            .iter()
            .filter(|comparison| comparison.column == next.column && is_range(comparison.strategy))
            .collect(),
        None => Vec::new(),
    };
    if fixed == 0 && range.is_empty() {
        return None;
    }
    let mut stretches: Vec<Stretch> =
        keys.iter().map(|key| stretch(&index, key, columns.get(fixed), &range)).collect();
    // Values that differ may have one key: 1.0 and 1.00.
    stretches.sort_by(|left, right| bytes(&left.0).cmp(bytes(&right.0)));
    stretches.dedup_by(|left, right| bytes(&left.0) == bytes(&right.0));
    let is_point = index.spec().unique && fixed == columns.len();
    Some(Path { index, stretches, is_point })
}

/// Each key with each value behind it.
fn extended<'v>(keys: &[Vec<&'v Value>], values: &'v [Value]) -> Vec<Vec<&'v Value>> {
    let with = |key: &Vec<&'v Value>| {
        let key = key.clone();
        values.iter().map(move |value| key.iter().copied().chain([value]).collect())
    };
    keys.iter().flat_map(with).collect()
}

fn is_range(strategy: Strategy) -> bool {
    !matches!(strategy, Strategy::Equal | Strategy::NotEqual)
}

fn bytes(bound: &Bound<KeyBuffer>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
        Bound::Unbounded => &[],
    }
}

/// The entries under a key, as far as the ranges of the column behind it go.
fn stretch(index: &Index, key: &[&Value], next: Option<&IndexColumn>, ranges: &[&Comparison]) -> Stretch {
    let stored: Vec<Stored<'_>> = key
        .iter()
        .zip(&index.spec().columns)
        .map(|(value, part)| value.stored(part.representation))
        .collect();
    let cells: Vec<Cell<'_>> = stored.iter().map(Stored::cell).collect();
    let encode = |cells: &[Cell<'_>]| {
        let mut key = KeyBuffer::new();
        index.encode(cells, &mut key);
        key
    };
    let whole = || if cells.is_empty() { Bound::Unbounded } else { Bound::Included(encode(&cells)) };
    let (mut low, mut high) = (whole(), whole());
    let Some(next) = next else { return (low, high) };
    for range in ranges {
        let end = range.values[0].stored(next.representation);
        let mut cells = cells.clone();
        cells.push(end.cell());
        let end = encode(&cells);
        let is_low =
            matches!(range.strategy, Strategy::Greater | Strategy::GreaterOrEqual) != next.descending;
        let includes = matches!(range.strategy, Strategy::GreaterOrEqual | Strategy::LessOrEqual);
        let bound = if is_low { &mut low } else { &mut high };
        // A prefix of all keys says less than any end.
        let narrower = match bound {
            Bound::Unbounded => true,
            Bound::Included(known) | Bound::Excluded(known) => {
                let (new, known) = (end.as_slice(), known.as_slice());
                new.starts_with(known) || (new > known) == is_low
            }
        };
        if narrower {
            *bound = if includes { Bound::Included(end) } else { Bound::Excluded(end) };
        }
    }
    (low, high)
}

/// How reads are logged.
pub(super) struct Noted<'a> {
    /// The transaction that reads.
    pub transaction: Option<&'a Transaction>,
    /// What rows must meet to be used.
    pub restrictions: &'a [Restriction],
    /// The columns that count as read of them.
    pub columns: ColumnSet,
}

impl Path {
    /// How many entries it has, dead ones included; `None` beyond the limit.
    fn count(&self, limit: usize, guard: &Guard) -> Option<usize> {
        let mut entries = 0;
        for (low, high) in &self.stretches {
            let (low, high) = (as_slice(low), as_slice(high));
            self.index.range(low, high, false, guard, &mut |_, _| {
                entries += 1;
                entries <= limit
            });
            if entries > limit {
                return None;
            }
        }
        Some(entries)
    }

    /// The rows that a snapshot sees; what has been read is logged.
    pub fn rows(&self, table: &Table, snapshot: Snapshot, noted: &Noted<'_>) -> Vec<RowId> {
        let guard = firn_storage::pin();
        let mut rows = Vec::new();
        for (low, high) in &self.stretches {
            let (low, high) = (as_slice(low), as_slice(high));
            match noted.transaction {
                Some(transaction) => transaction.range_under(
                    table,
                    &self.index,
                    (low, high),
                    false,
                    noted.restrictions,
                    noted.columns,
                    &guard,
                    &mut |row| {
                        rows.push(row);
                        true
                    },
                ),
                None => self.index.range(low, high, false, &guard, &mut |key, row| {
                    if table.sees(&self.index, key, row, snapshot, &guard) {
                        rows.push(row);
                    }
                    true
                }),
            }
        }
        rows
    }
}

pub(super) fn as_slice(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| key.as_slice())
}
