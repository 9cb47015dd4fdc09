//! Tables of replicas: rows get the slots that a log names, whatever older snapshots still see there. Random commits, snapshots of
//! all ages and actions of the collector and the freezer, compared with a map for every point in time.

use super::{A, B, KEY, NAME, index, name_of};
use crate::attic::Attic;
use crate::block::Block;
use crate::collect::Garbage;
use crate::state::BlockState;
use crate::{
    Frozen, Guard, Index, KeyBuffer, Restored, Restriction, Retired, ScanBatch, Table, TableOptions,
    WriteSet, pin, summary,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{BlockNumber, Cell, ColumnId, Representation, RowId, Slot, Snapshot, Stamp, TableId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// Key and values of a row.
type Row = (i32, i64, i64);

/// Rows by their ids.
type State = BTreeMap<u64, Row>;

/// The blocks that get rows. The second one is made only because the third one is, unless rows are poured into it.
const BLOCKS: [u64; 3] = [0, 1, 2];

/// How many slots of a block get rows, unless many are poured into it.
const SLOTS: u32 = 5;

const ALL: [ColumnId; 4] = [KEY, A, B, NAME];

/// A table of a replica, and the actions of the one that replays and of the transaction manager.
struct Replica {
    table: Arc<Table>,
    by_key: Arc<Index>,
    by_values: Arc<Index>,
    random: Random,
    now: u64,
    next_owner: u64,
    states: BTreeMap<u64, State>,
    held: Vec<Snapshot>,
    ended: VecDeque<Retired>,
    attic: Attic,
    /// What has been unlinked under a guard that is still held.
    garbage: Option<(Guard, Garbage)>,
    /// Batches that a client keeps, and their contents.
    kept: Vec<(Vec<ScanBatch>, State)>,
    /// Rows that took slots of rows which snapshots may have seen.
    refills: usize,
    freezes: usize,
    /// Records that the attic took in, at most at one time.
    most_kept: usize,
}

fn shown(batches: &[ScanBatch]) -> State {
    let mut shown = State::new();
    for batch in batches {
        let keys = batch.columns[0].as_primitive::<Int32Type>();
        let [a, b] = [1, 2].map(|column| batch.columns[column].as_primitive::<Int64Type>());
        let ids = batch.row_ids.as_ref().expect("they were asked for");
        for row in 0..batch.rows {
            let key = keys.value(row);
            assert_eq!(batch.columns[3].as_string_view().value(row), name_of(key));
            let twice = shown.insert(ids.value(row), (key, a.value(row), b.value(row)));
            assert!(twice.is_none(), "{:?} is seen twice", ids.value(row));
        }
    }
    shown
}

impl Replica {
    fn new(seed: u64) -> Replica {
        let column = |representation| crate::ColumnSpec { representation, nullable: false };
        let types =
            [Representation::Int32, Representation::Int64, Representation::Int64, Representation::Text];
        let options = TableOptions { block_bytes: 1, ..TableOptions::default() };
        let table = Table::new(TableId(1), "t", types.map(column).into(), options);
        table.follow_log();
        Replica {
            by_key: index(&table, 1, &[(KEY, Representation::Int32)], true),
            by_values: index(&table, 2, &[(A, Representation::Int64), (B, Representation::Int64)], false),
            table,
            random: Random::seeded(seed),
            now: 0,
            next_owner: 0,
            states: BTreeMap::from([(0, State::new())]),
            held: Vec::new(),
            ended: VecDeque::new(),
            attic: Attic::default(),
            garbage: None,
            kept: Vec::new(),
            refills: 0,
            freezes: 0,
            most_kept: 0,
        }
    }

    fn at_most(&mut self, most: i64) -> usize {
        self.random.uniform(0, most) as usize
    }

    fn snapshot(&mut self) -> Snapshot {
        self.next_owner += 1;
        Snapshot { read_time: Time(self.now), owner: Stamp::transaction(self.next_owner) }
    }

    fn state_at(&self, time: Time) -> &State {
        self.states.range(..=time.0).next_back().expect("there is a state at 0").1
    }

    fn newest(&self) -> &State {
        self.state_at(Time(self.now))
    }

    fn fresh_row(&mut self, state: &State) -> Row {
        let key = loop {
            let key = self.at_most(20) as i32;
            if state.values().all(|row| row.0 != key) {
                break key;
            }
        };
        (key, self.random.uniform(0, 3), self.random.uniform(0, 3))
    }

    /// Replays a commit of changes that `work` makes.
    fn commit(&mut self, work: impl FnOnce(&mut Replica, &mut WriteSet, Snapshot, &mut State)) {
        let snapshot = self.snapshot();
        let mut writes = WriteSet::new(snapshot.owner, None);
        writes.touch(&self.table);
        let mut state = self.newest().clone();
        work(self, &mut writes, snapshot, &mut state);
        self.now += 1;
        self.states.insert(self.now, state);
        writes.stamp(Time(self.now));
        self.ended.push_back(writes.retire_now(Time(self.now)));
    }

    fn insert(&mut self, writes: &mut WriteSet, snapshot: Snapshot, id: RowId, row: Row) {
        let name = name_of(row.0);
        let cells = [Cell::i32(row.0), Cell::i64(row.1), Cell::i64(row.2), Cell::text(&name)];
        let had_versions = self.has_versions(id);
        let inserted = self.table.replay_insert(writes, snapshot, id, &cells, &pin()).unwrap();
        assert!(inserted, "{id:?} has no row");
        self.refills += usize::from(had_versions);
        let again = self.table.replay_insert(writes, snapshot, id, &cells, &pin()).unwrap();
        assert!(!again, "{id:?} has a row");
    }

    fn has_versions(&self, id: RowId) -> bool {
        let block = self.table.blocks().get(id.block());
        block.is_some_and(|block| block.newest(id.slot(), &pin()).is_some())
    }

    fn insert_many(
        &mut self,
        writes: &mut WriteSet,
        snapshot: Snapshot,
        first: RowId,
        rows: &[Row],
        state: &mut State,
    ) {
        let guard = &pin();
        let names: Vec<String> = rows.iter().map(|row| name_of(row.0)).collect();
        let fill = |restored: &Restored<'_>| {
            restored.set_all(KEY, rows.iter().map(|row| Cell::i32(row.0)));
            restored.set_all(A, rows.iter().map(|row| Cell::i64(row.1)));
            restored.set_all(B, rows.iter().map(|row| Cell::i64(row.2)));
            restored.set_all_strings(NAME, names.iter().map(|name| Some(name.as_bytes())));
            Ok(())
        };
        let count = rows.len() as u32;
        let ids: Vec<RowId> =
            (0..count).map(|at| RowId::new(first.block(), Slot(first.slot().0 + at))).collect();
        let inserted = self.table.replay_insert_many(writes, snapshot, first, count, fill, guard).unwrap();
        assert!(inserted || ids.iter().any(|id| self.has_versions(*id)), "all are vacant");
        for (id, row) in ids.into_iter().zip(rows) {
            if !inserted {
                self.insert(writes, snapshot, id, *row);
            }
            assert!(state.insert(id.to_bits(), *row).is_none());
        }
    }

    fn update(
        &mut self,
        writes: &mut WriteSet,
        snapshot: Snapshot,
        id: RowId,
        columns: &[ColumnId],
        row: Row,
    ) {
        let name = name_of(row.0);
        let cell = |column: &ColumnId| match *column {
            KEY => Cell::i32(row.0),
            A => Cell::i64(row.1),
            B => Cell::i64(row.2),
            _ => Cell::text(&name),
        };
        let cells: Vec<Cell<'_>> = columns.iter().map(cell).collect();
        assert!(self.table.replay_update(writes, snapshot, id, columns, &cells, &pin()).unwrap());
    }

    fn change(&mut self) {
        self.commit(|this, writes, snapshot, state| {
            // A transaction of the primary does not get the slot of a row that it deletes itself.
            let mut gone = Vec::new();
            for _ in 0..=this.at_most(3) {
                let block = BLOCKS[[0, 0, 0, 2][this.at_most(3)]];
                let id = RowId::new(BlockNumber(block), Slot(this.at_most(i64::from(SLOTS) - 1) as u32));
                let Some(row) = state.get(&id.to_bits()).copied() else {
                    let guard = &pin();
                    let table = this.table.clone();
                    assert!(!table.replay_delete(writes, snapshot, id, guard).unwrap());
                    assert!(
                        !table.replay_update(writes, snapshot, id, &[A], &[Cell::i64(1)], guard).unwrap()
                    );
                    let most = 1 + this.at_most(2);
                    let mut rows = Vec::new();
                    let mut then = state.clone();
                    for at in 0..most as u32 {
                        let next = RowId::new(id.block(), Slot(id.slot().0 + at)).to_bits();
                        if gone.contains(&next) || state.contains_key(&next) {
                            break;
                        }
                        let row = this.fresh_row(&then);
                        then.insert(next, row);
                        rows.push(row);
                    }
                    match rows[..] {
                        [] => {}
                        [row] if this.at_most(1) == 0 => {
                            this.insert(writes, snapshot, id, row);
                            state.insert(id.to_bits(), row);
                        }
                        _ => this.insert_many(writes, snapshot, id, &rows, state),
                    }
                    continue;
                };
                match this.at_most(7) {
                    0..4 => {
                        assert!(this.table.replay_delete(writes, snapshot, id, &pin()).unwrap());
                        state.remove(&id.to_bits());
                        gone.push(id.to_bits());
                    }
                    4 => {
                        let (key, ..) = this.fresh_row(state);
                        let row = (key, row.1, row.2);
                        this.update(writes, snapshot, id, &[KEY, NAME], row);
                        state.insert(id.to_bits(), row);
                    }
                    5 => {
                        let row = (row.0, this.random.uniform(0, 3), row.2);
                        this.update(writes, snapshot, id, &[A], row);
                        state.insert(id.to_bits(), row);
                    }
                    6 => {
                        let row = (row.0, row.1, this.random.uniform(0, 3));
                        this.update(writes, snapshot, id, &[B], row);
                        state.insert(id.to_bits(), row);
                    }
                    _ => {
                        let row = this.fresh_row(state);
                        this.update(writes, snapshot, id, &ALL, row);
                        state.insert(id.to_bits(), row);
                    }
                }
            }
        });
    }

    /// Fills the rest of a block, or empties it.
    fn pour(&mut self) {
        let block = BlockNumber(BLOCKS[self.at_most(2)]);
        let slots =
            (1..).take_while(|rows| self.table.has_slots(id(), *rows)).last().expect("a block has slots");
        let of_block = |id: &u64| RowId::from_bits(*id).block() == block;
        if self.newest().keys().filter(|id| of_block(id)).count() > slots as usize / 2 {
            let spared = self.at_most(10) as u32;
            self.commit(|this, writes, snapshot, state| {
                let ids: Vec<u64> = state.keys().filter(|id| of_block(id)).copied().collect();
                for id in ids {
                    if spared == 0 || RowId::from_bits(id).slot().0 % 100 != spared {
                        let row = RowId::from_bits(id);
                        assert!(this.table.replay_delete(writes, snapshot, row, &pin()).unwrap());
                        state.remove(&id);
                    }
                }
            });
            return;
        }
        self.commit(|this, writes, snapshot, state| {
            let mut key = 10_000 * (this.now as i32 + 1);
            let mut slot = 0;
            while slot < slots {
                let is_free = |slot: u32, state: &State| {
                    slot < slots && !state.contains_key(&RowId::new(block, Slot(slot)).to_bits())
                };
                let first = slot;
                while is_free(slot, state) {
                    slot += 1;
                }
                let rows: Vec<Row> = (first..slot).map(|at| (key + at as i32, 3, 4)).collect();
                key += 1;
                if !rows.is_empty() {
                    this.insert_many(writes, snapshot, RowId::new(block, Slot(first)), &rows, state);
                }
                slot = slot.max(first + 1);
            }
        });
    }

    fn freeze(&mut self) {
        self.free_garbage();
        let mut cooling = Vec::new();
        self.table.cool(&mut cooling);
        if self.at_most(2) == 0 {
            self.change();
        }
        let mut empty = Vec::new();
        for block in cooling {
            match self.table.freeze(block, &pin()) {
                Frozen::Yes => self.freezes += 1,
                Frozen::Empty => empty.push(block),
                Frozen::HasVersions => drop(self.table.share_heads(block, &pin())),
                Frozen::HasGaps | Frozen::Compact | Frozen::Hot => {}
            }
        }
        self.table.give_up_empty(&empty, &pin());
    }

    fn keep(&mut self) {
        let newest = self.snapshot();
        let scan = self.table.scan(newest, &ALL, true);
        let batches = std::iter::from_fn(|| scan.next_batch(&pin())).collect();
        self.kept.push((batches, self.newest().clone()));
    }

    fn read_times(&self) -> Vec<Time> {
        let mut times: Vec<Time> = self.held.iter().map(|held| held.read_time).collect();
        times.sort_unstable();
        times
    }

    fn collect(&mut self, most: usize) {
        let (guard, mut garbage) = self.garbage.take().unwrap_or_else(|| (pin(), Garbage::default()));
        let times = self.read_times();
        let horizon = times.first().copied().unwrap_or(Time(self.now));
        let at_once = 1 + self.at_most(3);
        while self.attic.collect(horizon, at_once, &mut garbage, &guard) {}
        let mut is_more = self.attic.settle(&times, 2, &mut garbage, &guard);
        if self.at_most(1) == 0 {
            while is_more {
                is_more = self.attic.settle(&times, 2, &mut garbage, &guard);
            }
        }
        for _ in 0..most {
            let Some(oldest) = self.ended.pop_front() else { break };
            if oldest.time <= horizon {
                oldest.collect(&mut garbage, &guard);
            } else {
                let until = Time(self.random.uniform(oldest.time.0 as i64, self.now as i64) as u64);
                self.attic.take_in(&oldest, &times, until, &mut garbage, &guard);
                oldest.discard(&mut garbage);
            }
        }
        self.most_kept = self.most_kept.max(self.attic.kept().0);
        self.garbage = Some((guard, garbage));
        if most == usize::MAX || !self.now.is_multiple_of(4) {
            self.free_garbage();
        }
    }

    fn free_garbage(&mut self) {
        if let Some((guard, garbage)) = self.garbage.take() {
            garbage.free(&guard);
            guard.flush();
        }
    }

    fn assert_sees(&self, snapshot: Snapshot, state: &State) {
        let scan = self.table.scan(snapshot, &ALL, true);
        let batches: Vec<_> = std::iter::from_fn(|| scan.next_batch(&pin())).collect();
        assert!(shown(&batches) == *state, "at {snapshot:?}: {:?}, not {state:?}", shown(&batches));
        let [low, high] = [3, 12].map(|key| summary(Representation::Int32, &Cell::i32(key)).unwrap());
        let scan = self.table.scan(snapshot, &ALL, true).under(&[Restriction::within(KEY, low, high)]);
        let batches: Vec<_> = std::iter::from_fn(|| scan.next_batch(&pin())).collect();
        let within = |state: &State| -> State {
            state.iter().filter(|(_, row)| (3..=12).contains(&row.0)).map(|(id, row)| (*id, *row)).collect()
        };
        assert!(within(&shown(&batches)) == within(state), "at {snapshot:?} under a condition");
        for index in [&self.by_key, &self.by_values] {
            let mut found = State::new();
            let everything = (Bound::Unbounded, Bound::Unbounded);
            let columns = [KEY, A, B];
            self.table.range(index, everything, false, snapshot, &columns, &pin(), &mut |id, cells| {
                let row = (cells[0].as_i32(), cells[1].as_i64(), cells[2].as_i64());
                assert!(found.insert(id.to_bits(), row).is_none(), "{row:?} is found twice");
                true
            });
            assert!(found == *state, "at {snapshot:?} by {}: {found:?}, not {state:?}", index.spec().name);
        }
        for key in 0..=20 {
            let mut buffer = KeyBuffer::new();
            self.by_key.encode(&[Cell::i32(key)], &mut buffer);
            let mut cells = [Cell::Null];
            let guard = pin();
            let found = self.table.find(&self.by_key, &buffer, snapshot, &[KEY], &mut cells, &guard);
            let expected = state.iter().find(|(_, row)| row.0 == key).map(|(id, _)| *id);
            assert_eq!(found.map(RowId::to_bits), expected, "{key} at {snapshot:?}");
        }
        let mut read = State::new();
        for block in self.table.blocks().iter() {
            for slot in (0..SLOTS + 3).map(Slot) {
                let (mut cells, guard) = ([Cell::Null; 3], pin());
                if self.table.read(snapshot, block.row(slot), &[KEY, A, B], &mut cells, &guard) {
                    let row = (cells[0].as_i32(), cells[1].as_i64(), cells[2].as_i64());
                    read.insert(block.row(slot).to_bits(), row);
                }
            }
        }
        let few = state.iter().filter(|(id, _)| RowId::from_bits(**id).slot().0 < SLOTS + 3);
        assert!(read == few.map(|(id, row)| (*id, *row)).collect(), "at {snapshot:?} by id");
    }

    /// Asserts that the attic has every change between a snapshot and now.
    fn assert_knows_changes(&self, snapshot: Snapshot) {
        let (guard, until) = (&pin(), self.attic.until());
        if until <= snapshot.read_time {
            return;
        }
        let mut changed = Vec::new();
        self.attic.changes(snapshot.read_time, guard, |change| {
            changed.push(change.first.to_bits());
            true
        });
        let (before, after) = (self.state_at(snapshot.read_time), self.state_at(until));
        for id in before.keys().chain(after.keys()).filter(|id| before.get(id) != after.get(id)) {
            assert!(changed.contains(id), "{id} has changed from {snapshot:?} to {until:?}");
        }
    }

    fn check(&mut self) {
        for held in self.held.clone() {
            self.assert_sees(held, self.state_at(held.read_time));
            self.assert_knows_changes(held);
        }
        let newest = Snapshot { read_time: Time(self.now), owner: Stamp::transaction(0) };
        self.assert_sees(newest, self.newest());
        assert_eq!(self.table.approximate_rows(), self.newest().len() as u64);
        self.assert_vacant();
    }

    /// A passed slot is vacant if and only if it has neither a row nor a version.
    fn assert_vacant(&self) {
        let (guard, vacant) = (&pin(), self.table.vacant_slots());
        let mut known = 0;
        let is_empty = |block: &Block, slot| !block.is_present(slot) && block.newest(slot, guard).is_none();
        for block in self.table.blocks().iter() {
            for slot in (0..block.layout.slots).map(Slot) {
                let is_vacant = vacant.contains(&block.row(slot));
                let expected = slot.0 < block.allocated() && is_empty(block, slot);
                assert_eq!(is_vacant, expected, "{:?}", block.row(slot));
                assert!(slot.0 < block.allocated() || is_empty(block, slot));
                known += usize::from(is_vacant);
            }
        }
        assert_eq!(known, vacant.len());
    }

    fn step(&mut self) {
        match self.at_most(15) {
            0 | 1 if self.held.len() < 5 => {
                let held = self.snapshot();
                self.held.push(held);
            }
            0 | 2 if !self.held.is_empty() => {
                let gone = self.at_most(self.held.len() as i64 - 1);
                self.held.swap_remove(gone);
            }
            3..6 => {
                let most = self.at_most(6);
                self.collect(most);
            }
            6 => self.freeze(),
            7 if self.kept.len() < 3 => self.keep(),
            7 => {
                let (batches, state) = self.kept.remove(0);
                assert!(shown(&batches) == state, "what was handed out has changed");
            }
            _ => self.change(),
        }
    }

    fn finish(mut self) -> [usize; 3] {
        self.check();
        while !self.held.is_empty() {
            let most = self.at_most(3);
            self.collect(most);
            self.check();
            let gone = self.at_most(self.held.len() as i64 - 1);
            self.held.swap_remove(gone);
        }
        self.collect(usize::MAX);
        self.check();
        assert!(self.attic.is_empty() && self.attic.tables.is_empty() && self.attic.inserts.is_empty());
        assert_eq!((self.attic.kept(), self.attic.out), ((0, 0), 0));
        let rows = self.newest().len();
        assert_eq!((self.by_key.len(), self.by_values.len()), (rows, rows), "entries of dead versions");
        self.by_key.verify();
        self.by_values.verify();
        for block in self.table.blocks().iter() {
            assert!(!block.has_versions(0, block.layout.slots));
            assert!(block.life.state() != BlockState::Frozen || block.heads.bytes() == 0);
        }
        for (batches, state) in &self.kept {
            assert!(shown(batches) == *state, "what was handed out has changed");
        }
        [self.refills, self.freezes, self.most_kept]
    }
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = std::env::var("FIRN_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    let count = std::env::var("FIRN_ROUNDS").map_or(usual, |count| count.parse().expect("a number"));
    first..first + count
}

#[test]
fn every_snapshot_of_a_replica_sees_its_rows_whatever_took_their_slots() {
    let (count, steps) = if cfg!(miri) { (1, 25) } else { (50, 150) };
    let (mut done, mut runs) = ([0; 3], 0);
    for seed in seeds(count) {
        println!("seed {seed}");
        let mut replica = Replica::new(seed);
        for _ in 0..steps {
            replica.step();
            if !cfg!(miri) || replica.at_most(8) == 0 {
                replica.check();
            }
        }
        done.iter_mut().zip(replica.finish()).for_each(|(all, more)| *all += more);
        runs += 1;
    }
    println!("rows in slots of others, blocks frozen, records kept: {done:?}");
    assert!(cfg!(miri) || done[0] > runs && done[1] > 0 && done[2] > runs, "{done:?}");
}

#[test]
fn whole_blocks_of_a_replica_are_filled_and_emptied_and_frozen() {
    let (count, steps) = if cfg!(miri) { (0, 0) } else { (8, 60) };
    let mut done = [0; 3];
    for seed in seeds(count) {
        println!("seed {seed}");
        let mut replica = Replica::new(seed);
        for step in 0..steps {
            match replica.at_most(5) {
                0 => replica.pour(),
                1 => {
                    replica.collect(usize::MAX);
                    replica.freeze();
                }
                _ => replica.step(),
            }
            if step % 3 == 0 {
                replica.check();
            }
        }
        done.iter_mut().zip(replica.finish()).for_each(|(all, more)| *all += more);
    }
    println!("rows in slots of others, blocks frozen, records kept: {done:?}");
}

/// A row of slot 0 of block 0.
fn id() -> RowId {
    RowId::new(BlockNumber(0), Slot(0))
}

/// Lives of one slot: inserted, perhaps updated, deleted. Before each commit a snapshot is drawn; they end in every order that a
/// number gives, with one of the ways to collect after each.
#[test]
fn one_slot_with_a_snapshot_before_every_change_is_collected_in_any_order() {
    const COMMITS: usize = 9;
    let rounds = if cfg!(miri) { 4 } else { 1500 };
    for round in 0..rounds {
        let mut replica = Replica::new(round);
        for number in 0..COMMITS {
            let held = replica.snapshot();
            replica.held.push(held);
            // The same key again in every other life.
            let row = (number as i32 / 3 % 2, number as i64, 1);
            replica.commit(|this, writes, snapshot, state| match number % 3 {
                0 => {
                    this.insert(writes, snapshot, id(), row);
                    state.insert(id().to_bits(), row);
                }
                1 => {
                    let columns: &[ColumnId] = if round % 2 == 0 { &[A] } else { &ALL };
                    let row = if round % 2 == 0 { row } else { (7, row.1, 1) };
                    this.update(writes, snapshot, id(), columns, row);
                    state.insert(id().to_bits(), row);
                }
                _ => {
                    assert!(this.table.replay_delete(writes, snapshot, id(), &pin()).unwrap());
                    state.remove(&id().to_bits());
                }
            });
            if round % 3 == 0 {
                replica.collect(1);
            }
        }
        replica.check();
        while !replica.held.is_empty() {
            let gone = replica.at_most(replica.held.len() as i64 - 1);
            replica.held.swap_remove(gone);
            let most = replica.at_most(4);
            replica.collect(most);
            replica.check();
        }
        replica.finish();
    }
}

/// Slots that the log has not named, of rows that were deleted, and behind all of them: each is given out once.
#[test]
fn a_table_that_follows_no_more_gives_out_every_free_slot() {
    let mut replica = Replica::new(1);
    let [first, later, last] =
        [(0, 1), (0, 4), (2, 2)].map(|(block, slot)| RowId::new(BlockNumber(block), Slot(slot)));
    replica.commit(|this, writes, snapshot, state| {
        for (key, id) in [first, later, last].into_iter().enumerate() {
            let row = (key as i32, 1, 1);
            this.insert(writes, snapshot, id, row);
            state.insert(id.to_bits(), row);
        }
    });
    // A snapshot sees the row, so its slot becomes free later.
    let held = replica.snapshot();
    replica.held.push(held);
    replica.commit(|this, writes, snapshot, state| {
        assert!(this.table.replay_delete(writes, snapshot, later, &pin()).unwrap());
        state.remove(&later.to_bits());
    });
    replica.table.choose_slots();
    replica.check();
    let mut given = BTreeSet::from([first.to_bits(), later.to_bits(), last.to_bits()]);
    let insert = |replica: &mut Replica, key: i32| {
        let mut given_now = 0;
        replica.commit(|this, writes, snapshot, state| {
            let name = name_of(key);
            let row = [Cell::Word(key as u32 as u64), Cell::Word(1), Cell::Word(1), Cell::text(&name)];
            let id = this.table.insert(writes, snapshot, &row, &pin()).unwrap();
            state.insert(id.to_bits(), (key, 1, 1));
            given_now = id.to_bits();
        });
        given_now
    };
    for key in 3.. {
        let id = insert(&mut replica, key);
        assert!(given.insert(id), "a slot is given out twice");
        if RowId::from_bits(id).block().0 == 3 {
            given.remove(&id);
            break;
        }
    }
    // The blocks before that are full.
    let slots = given.len() as u32 / 3;
    let all = (0..3).flat_map(|block| (0..slots).map(move |slot| RowId::new(BlockNumber(block), Slot(slot))));
    assert!(given.into_iter().eq(all.map(RowId::to_bits)));
    replica.held.clear();
    replica.collect(9);
    assert_eq!(insert(&mut replica, 1), later.to_bits());
    replica.check();
}
