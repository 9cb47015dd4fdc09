//! Samples: some rows of a table, kept with it, by which the planner estimates.
//!
//! A sample names its rows; columns are read when they are first asked for. It is taken anew when the table has half or twice as
//! many rows, and once a minute. Reading it is not logged: estimates change no answer.

use super::column_id;
use crate::keys::{Class, KeyColumn, KeyLayout};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Cell, RowId, Snapshot};
use firn_storage::{Table, pin};
use firn_vector::Vector;
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So many rows give the share of a condition to about three percent of the table.
const SAMPLE_ROWS: usize = 1024;
/// How long a sample is used.
const LIFETIME: Duration = Duration::from_secs(60);

/// Some rows of a table.
pub(super) struct Sample {
    rows: Vec<RowId>,
    /// How many rows the table had.
    of: u64,
    taken: Instant,
    columns: Mutex<HashMap<i16, Vector>>,
    distinct: Mutex<HashMap<Vec<i16>, f64>>,
}

impl Sample {
    /// The sample of a table; `None` if the snapshot sees no rows in it.
    pub fn of(table: &Table, snapshot: Snapshot) -> Option<Arc<Sample>> {
        let of = table.approximate_rows();
        let is_fresh = |sample: &Sample| {
            let few = sample.of < SAMPLE_ROWS as u64 && of != sample.of;
            !few && of / 2 <= sample.of && sample.of / 2 <= of && sample.taken.elapsed() < LIFETIME
        };
        let known = table.estimates().and_then(|known| known.downcast::<Sample>().ok());
        if let Some(known) = known.filter(|known| is_fresh(known)) {
            return (!known.rows.is_empty()).then_some(known);
        }
        let guard = pin();
        let mut rows = table.spread_rows(SAMPLE_ROWS);
        rows.retain(|row| table.read(snapshot, *row, &[], &mut [], &guard));
        let (columns, distinct) = (Mutex::default(), Mutex::default());
        let sample = Arc::new(Sample { rows, of, taken: Instant::now(), columns, distinct });
        table.set_estimates(sample.clone());
        (!sample.rows.is_empty()).then_some(sample)
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The values of an attribute. A row that the snapshot does not see any more has a NULL.
    pub fn column(
        &self,
        table: &Table,
        attribute: i16,
        wanted: firn_base::Representation,
        snapshot: Snapshot,
    ) -> Vector {
        let mut columns = self.columns.lock();
        let read = || {
            let column = column_id(attribute);
            let stored = table.columns()[column.index()].representation;
            let (guard, mut builder) = (pin(), Builder::new(stored));
            let mut cell = [Cell::Null];
            for row in &self.rows {
                cell[0] = Cell::Null;
                if !table.read(snapshot, *row, &[column], &mut cell, &guard) {
                    cell[0] = Cell::Null;
                }
                super::push_cell(&mut builder, &cell[0], stored);
            }
            super::as_wanted(&builder.finish(), wanted, Rows::all(self.rows.len()))
        };
        columns.entry(attribute).or_insert_with(read).clone()
    }

    /// How many distinct combinations of values attributes have in the table: the estimator Duj1 (Haas and Stokes, "Estimating
    /// the Number of Classes in a Finite Population", JASA 1998), as PostgreSQL's ANALYZE uses it.
    pub fn distinct(&self, attributes: &[i16], vectors: impl FnOnce() -> Vec<Vector>) -> f64 {
        if let Some(known) = self.distinct.lock().get(attributes) {
            return *known;
        }
        let vectors = vectors();
        let key = |vector: &Vector| {
            let representation = vector.representation();
            let class = Class::common(representation, representation)?;
            Some(KeyColumn { class, nullable: true, descending: false, nulls_first: false })
        };
        let columns: Option<Vec<KeyColumn>> = vectors.iter().map(key).collect();
        // Of values that have no equality nothing is known.
        let found = columns.map_or(self.rows.len() as f64, |columns| {
            let keys = KeyLayout::new(columns).keys(&vectors, Rows::all(self.rows.len()));
            duj1(keys.hashes(), self.of)
        });
        self.distinct.lock().insert(attributes.to_vec(), found);
        found
    }
}

/// The distinct values of so many rows, by the hashes of some of them.
fn duj1(mut hashes: Vec<u64>, rows: u64) -> f64 {
    hashes.sort_unstable();
    let (mut distinct, mut single) = (0, 0);
    for run in hashes.chunk_by(|left, right| left == right) {
        distinct += 1;
        single += usize::from(run.len() == 1);
    }
    let (sampled, distinct, single) = (hashes.len() as f64, distinct as f64, single as f64);
    let rows = (rows as f64).max(sampled);
    let found = sampled * distinct / (sampled - single + single * sampled / rows);
    found.clamp(distinct, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_values_are_estimated_from_a_part_of_the_rows() {
        // All rows: exact.
        assert_eq!(duj1(vec![1, 2, 2, 3], 4), 3.0);
        // Each value once in the sample: as many values as rows.
        assert_eq!(duj1((0..1000).collect(), 1_000_000), 1_000_000.0);
        // Few values, each often.
        assert_eq!(duj1((0..1000).map(|row| row % 10).collect(), 1_000_000), 10.0);
    }
}
