//! Rows with long chains: how many records are read until they are collected, and that the indexes have the
//! versions' keys.

use super::*;
use crate::collect::Garbage;
use crate::write_set::Retired;
use crate::{Attic, ColumnSpec, IndexColumn, IndexId, IndexSpec, TableOptions, WriteSet, pin};
use firn_base::random::Random;
use firn_base::{Cell, Representation, Snapshot, Stamp, TableId, Time};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

const A: ColumnId = ColumnId(0);
const B: ColumnId = ColumnId(1);
const ROWS: usize = 3;

/// A table of a few rows, with an index over both columns, one over the first, and one over the second
/// without values.
struct Hot {
    table: Arc<Table>,
    indexes: Vec<Arc<Index>>,
    rows: Vec<RowId>,
    ended: VecDeque<Retired>,
    now: u64,
    owners: u64,
}

impl Hot {
    fn new() -> Hot {
        let column = ColumnSpec { representation: Representation::Int64, nullable: true };
        let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
        let table = Table::new(TableId(1), "hot", vec![column; 2], options);
        let part = |&column: &ColumnId| IndexColumn {
            column,
            representation: Representation::Int64,
            nullable: true,
            descending: false,
            nulls_first: false,
        };
        let specs = [(&[A, B][..], true), (&[A], true), (&[B], false)];
        let indexes = specs.iter().enumerate().map(|(id, (columns, values))| {
            let columns = columns.iter().map(part).collect();
            let (id, name) = (IndexId(id as u32), format!("index {id}"));
            let index = Index::new(IndexSpec { id, name, columns, unique: false, values: *values });
            table.add_index(index.clone());
            index
        });
        let indexes = indexes.collect();
        let mut hot = Hot { table, indexes, rows: Vec::new(), ended: VecDeque::new(), now: 0, owners: 0 };
        let (snapshot, mut writes) = hot.begin();
        for row in 0..ROWS as i64 {
            let cells = [Cell::i64(row), Cell::Null];
            hot.rows.push(hot.table.insert(&mut writes, snapshot, &cells, &pin()).unwrap());
        }
        hot.commit(writes);
        hot
    }

    fn begin(&mut self) -> (Snapshot, WriteSet) {
        self.owners += 1;
        let owner = Stamp::transaction(self.owners);
        let mut writes = WriteSet::new(owner, None);
        writes.touch(&self.table);
        (Snapshot { read_time: Time(self.now), owner }, writes)
    }

    fn commit(&mut self, writes: WriteSet) {
        self.now += 1;
        writes.stamp(Time(self.now));
        self.ended.push_back(writes.retire_now(Time(self.now)));
    }

    fn set(&self, snapshot: Snapshot, writes: &mut WriteSet, row: usize, column: ColumnId, cell: Cell<'_>) {
        self.table.update(writes, snapshot, self.rows[row], &[column], &[cell], &pin()).unwrap();
    }

    /// Runs `times` transactions that change every row once, all but every eighth in the first column.
    fn change_all(&mut self, times: i64) {
        for time in 0..times {
            let (snapshot, mut writes) = self.begin();
            let column = if time % 8 == 0 { B } else { A };
            // Most keys are new, some return.
            let value = if time % 5 == 0 { time % 20 } else { 1000 + time };
            for row in 0..ROWS {
                self.set(snapshot, &mut writes, row, column, Cell::i64(value));
            }
            self.commit(writes);
        }
    }

    /// Collects up to `most` write sets. Returns how many versions were read.
    fn collect(&mut self, most: usize) -> usize {
        let (guard, mut garbage) = (pin(), Garbage::default());
        for _ in 0..most.min(self.ended.len()) {
            self.ended.pop_front().expect("just counted").collect(&mut garbage, &guard);
        }
        garbage.free(&guard)
    }

    /// Entries of an index.
    fn entries(&self, index: &Index) -> BTreeSet<(Vec<u8>, RowId)> {
        let mut entries = BTreeSet::new();
        index.range(Bound::Unbounded, Bound::Unbounded, false, &pin(), &mut |key, row| {
            assert!(entries.insert((key.to_vec(), row)));
            true
        });
        entries
    }

    /// Asserts that every index has the keys of the rows in place and their versions, and no others.
    fn assert_indexed(&self) {
        for index in &self.indexes {
            assert_eq!(self.entries(index), self.versions(index), "{}", index.spec().name);
        }
    }

    /// Asserts that every index has those keys, and perhaps others while updates are deferred.
    fn assert_listed(&self) {
        for index in &self.indexes {
            let (entries, versions) = (self.entries(index), self.versions(index));
            let missing: Vec<_> = versions.difference(&entries).collect();
            assert!(missing.is_empty(), "{}: {missing:?}", index.spec().name);
        }
    }

    /// The keys that the rows in place and their versions have in an index.
    fn versions(&self, index: &Index) -> BTreeSet<(Vec<u8>, RowId)> {
        let guard = &pin();
        let mut versions = BTreeSet::new();
        for row in &self.rows {
            let (block, slot) = (self.table.block(*row), row.slot());
            let mut image = Image::in_place(block, index, slot);
            versions.insert((image.key().to_vec(), *row));
            let chain = std::iter::successors(block.newest(slot, guard), |record| record.older(guard));
            for record in chain.filter(|record| !record.undone()) {
                image.take_back(record);
                versions.insert((image.key().to_vec(), *row));
            }
        }
        versions
    }
}

/// The limit of reads of versions for `changes` changes of each row: a few for each version and index.
fn few_times(changes: i64) -> usize {
    8 * changes as usize * 3 * ROWS
}

const CHANGES: i64 = if cfg!(miri) { 12 } else { 2000 };

#[test]
fn the_versions_of_hot_rows_are_looked_at_a_few_times_until_they_are_collected() {
    let mut hot = Hot::new();
    hot.change_all(CHANGES);
    hot.assert_indexed();
    let looked_at = hot.collect(usize::MAX);
    hot.assert_indexed();
    assert!(hot.indexes.iter().all(|index| index.len() == ROWS));
    assert!(looked_at < few_times(CHANGES), "{looked_at} versions");
}

#[test]
fn so_are_those_that_stay_for_others() {
    let mut hot = Hot::new();
    hot.change_all(CHANGES);
    // The first of these inserts.
    let looked_at = hot.collect(CHANGES as usize / 2);
    hot.assert_indexed();
    assert!(looked_at < few_times(CHANGES), "{looked_at} versions");
}

#[test]
fn so_are_those_of_a_transaction_that_has_not_ended() {
    let mut hot = Hot::new();
    hot.change_all(CHANGES);
    let (snapshot, mut writes) = hot.begin();
    for time in 0..CHANGES {
        (0..ROWS).for_each(|row| hot.set(snapshot, &mut writes, row, A, Cell::i64(-time)));
    }
    let looked_at = hot.collect(usize::MAX);
    hot.assert_indexed();
    assert!(looked_at < few_times(2 * CHANGES), "{looked_at} versions");
    writes.roll_back_all(&pin());
    hot.commit(writes);
    hot.assert_indexed();
}

#[test]
fn what_is_taken_back_while_others_are_put_off_keeps_no_entry() {
    let mut hot = Hot::new();
    for value in [7, 1, 2, 3, 4] {
        let (snapshot, mut writes) = hot.begin();
        hot.set(snapshot, &mut writes, 0, A, Cell::i64(value));
        hot.commit(writes);
    }
    let (snapshot, mut writes) = hot.begin();
    [5, 7, 6, 8].iter().for_each(|value| hot.set(snapshot, &mut writes, 0, A, Cell::i64(*value)));
    let (guard, mut garbage) = (pin(), Garbage::default());
    // The insert, and the first update.
    (0..2).for_each(|_| hot.ended.pop_front().expect("six").collect(&mut garbage, &guard));
    hot.assert_listed();
    assert!(garbage.purges.has(hot.table.block(hot.rows[0]), hot.rows[0].slot()));
    writes.roll_back_all(&guard);
    hot.ended.drain(..).for_each(|oldest| oldest.collect(&mut garbage, &guard));
    garbage.free(&guard);
    hot.assert_indexed();
}

#[test]
fn so_are_those_that_come_while_others_are_collected() {
    let mut hot = Hot::new();
    hot.change_all(CHANGES);
    let (guard, mut garbage) = (pin(), Garbage::default());
    for _ in 0..CHANGES {
        hot.ended.pop_front().expect("more are added than removed").collect(&mut garbage, &guard);
        hot.change_all(2);
    }
    let looked_at = garbage.free(&guard);
    hot.assert_indexed();
    assert!(looked_at < few_times(3 * CHANGES), "{looked_at} versions");
}

#[test]
fn so_are_those_that_go_to_the_attic() {
    let mut hot = Hot::new();
    // Before the first change.
    let held = [Time(hot.now)];
    hot.change_all(CHANGES);
    let (guard, mut garbage, mut attic) = (pin(), Garbage::default(), Attic::default());
    while let Some(oldest) = hot.ended.pop_front() {
        if oldest.time <= held[0] {
            oldest.collect(&mut garbage, &guard);
        } else {
            attic.take_in(&oldest, &held, Time(hot.now), &mut garbage, &guard);
            oldest.discard(&mut garbage);
        }
    }
    let looked_at = garbage.free(&guard);
    hot.assert_indexed();
    assert!(looked_at < few_times(CHANGES), "{looked_at} versions");
    // The first version of each row.
    assert!(hot.indexes.iter().all(|index| index.len() == 2 * ROWS));
}

#[test]
fn a_change_of_a_row_during_the_search_for_its_keys_keeps_its_entries() {
    let mut hot = Hot::new();
    hot.change_all(CHANGES / 10);
    let (ended, to_collect) = std::sync::mpsc::channel();
    let writer = {
        let (table, row) = (hot.table.clone(), hot.rows[0]);
        let (now, owners) = (hot.now, hot.owners);
        std::thread::spawn(move || {
            let random = &mut Random::seeded(1);
            for time in now..now + CHANGES as u64 {
                let owner = Stamp::transaction(owners + time);
                let mut writes = WriteSet::new(owner, None);
                writes.touch(&table);
                let cell = Cell::i64(random.uniform(0, 9));
                let snapshot = Snapshot { read_time: Time(time), owner };
                table.update(&mut writes, snapshot, row, &[A], &[cell], &pin()).unwrap();
                writes.stamp(Time(time + 1));
                ended.send(writes.retire_now(Time(time + 1))).expect("there is a collector");
            }
        })
    };
    loop {
        let (guard, mut garbage) = (pin(), Garbage::default());
        hot.ended.extend(to_collect.try_iter());
        let most = if cfg!(miri) { 20 } else { 200 };
        hot.ended.drain(..most.min(hot.ended.len())).for_each(|oldest| oldest.collect(&mut garbage, &guard));
        garbage.free(&guard);
        if writer.is_finished() && hot.ended.is_empty() {
            break;
        }
    }
    writer.join().expect("the writer meets no conflict");
    hot.ended.extend(to_collect.try_iter());
    hot.collect(usize::MAX);
    hot.assert_indexed();
    assert!(hot.indexes.iter().all(|index| index.len() == ROWS));
}

#[test]
fn whatever_happens_while_updates_are_put_off_the_indexes_have_what_versions_have() {
    let (seeds, steps) = if cfg!(miri) { (1, 60) } else { (60, 600) };
    for seed in 0..seeds {
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let mut hot = Hot::new();
        let mut attic = Attic::default();
        let (mut guard, mut garbage) = (pin(), Garbage::default());
        // Each running transaction has rows of its own.
        let mut running: Vec<(usize, Snapshot, WriteSet)> = Vec::new();
        let mut held: Vec<Time> = Vec::new();
        let mut most_running = ROWS as i64;
        for _ in 0..steps {
            match random.uniform(0, 19) {
                0..3 if random.uniform(0, most_running) > running.len() as i64 => {
                    let row = random.uniform(0, ROWS as i64 - 1) as usize;
                    if running.iter().all(|(other, ..)| *other != row) {
                        let (snapshot, writes) = hot.begin();
                        running.push((row, snapshot, writes));
                    }
                }
                3 if held.len() < 3 => held.push(Time(hot.now)),
                4 if !held.is_empty() => {
                    held.remove(random.uniform(0, held.len() as i64 - 1) as usize);
                }
                5 if random.uniform(0, 3) == 0 => {
                    std::mem::take(&mut garbage).free(&guard);
                    hot.assert_indexed();
                    guard = pin();
                    most_running = random.uniform(1, ROWS as i64);
                }
                6..9 if !running.is_empty() => {
                    let at = random.uniform(0, running.len() as i64 - 1) as usize;
                    let (_, _, mut writes) = running.remove(at);
                    if random.uniform(0, 2) == 0 {
                        writes.roll_back_all(&pin());
                    }
                    hot.commit(writes);
                }
                9..13 => {
                    let reads = running.iter().map(|(_, snapshot, _)| snapshot.read_time);
                    let mut times: Vec<Time> = held.iter().copied().chain(reads).collect();
                    times.sort_unstable();
                    let horizon = times.first().copied().unwrap_or(Time(hot.now));
                    while attic.collect(horizon, 2, &mut garbage, &guard) {}
                    attic.settle(&times, 2, &mut garbage, &guard);
                    for _ in 0..random.uniform(0, 8) {
                        let Some(oldest) = hot.ended.pop_front() else { break };
                        if oldest.time <= horizon {
                            oldest.collect(&mut garbage, &guard);
                        } else {
                            attic.take_in(&oldest, &times, Time(hot.now), &mut garbage, &guard);
                            oldest.discard(&mut garbage);
                        }
                    }
                }
                _ if running.is_empty() => {}
                _ => {
                    let at = random.uniform(0, running.len() as i64 - 1) as usize;
                    let (row, snapshot, writes) = &mut running[at];
                    let mark = writes.mark();
                    for _ in 0..random.uniform(1, 4) {
                        let cell = match random.uniform(0, 4) {
                            0 => Cell::Null,
                            value => Cell::i64(value),
                        };
                        let column = if random.uniform(0, 1) == 0 { A } else { B };
                        hot.table
                            .update(writes, *snapshot, hot.rows[*row], &[column], &[cell], &pin())
                            .expect("no other transaction has the row");
                    }
                    if random.uniform(0, 3) == 0 {
                        writes.roll_back(mark, &pin());
                        if let Some(let_go) = writes.let_go(mark, &pin()) {
                            hot.now += 1;
                            hot.ended.push_back(let_go.end(Time(hot.now)));
                        }
                    }
                }
            }
            hot.assert_listed();
        }
        running.into_iter().for_each(|(.., writes)| hot.commit(writes));
        while attic.collect(Time(hot.now), 2, &mut garbage, &guard) {}
        hot.ended.drain(..).for_each(|oldest| oldest.collect(&mut garbage, &guard));
        garbage.free(&guard);
        hot.assert_indexed();
        assert!(hot.indexes.iter().all(|index| index.len() == ROWS), "old versions are collected");
    }
}
