//! Indexes without values: they return what an index over the same columns with values returns, for any
//! temperature of the blocks and any age of the reader.

use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use firn_base::random::Random;
use firn_base::{Cell, ColumnId, Representation, RowId};
use firn_storage::{BlockState, BlockUsage, Index, IndexColumn, IndexId, IndexSpec, KeyBuffer};
use firn_txn::{Progress, Transaction, pin};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ACCOUNTS: i32 = if cfg!(miri) { 1100 } else { 5000 };

/// A bank with two indexes over the same columns, the second without values.
struct TwoIndexes {
    bank: Bank,
    indexes: [Arc<Index>; 2],
}

impl TwoIndexes {
    /// Over these columns; of balances the largest first.
    fn open(columns: &[ColumnId]) -> TwoIndexes {
        let bank = Bank::open();
        let part = |column: &ColumnId| IndexColumn {
            column: *column,
            representation: if *column == NAME { Representation::Text } else { Representation::Int64 },
            nullable: true,
            descending: *column == BALANCE,
            nulls_first: false,
        };
        let columns: Vec<IndexColumn> = columns.iter().map(part).collect();
        let mut tx = bank.engine.begin();
        for values in [true, false] {
            let id = IndexId(1000 + u32::from(values));
            let name = if values { "with_values" } else { "without_values" }.to_owned();
            let spec = IndexSpec { id, name, columns: columns.clone(), unique: false, values };
            tx.create_index(&bank.accounts, spec, 2).unwrap();
        }
        commit(tx);
        let all = bank.accounts.indexes();
        let indexes = [all[1].clone(), all[2].clone()];
        TwoIndexes { bank, indexes }
    }

    /// The rows that a transaction finds between bounds, by each index.
    fn range(
        &self,
        tx: &Transaction,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
        most: usize,
    ) -> [Vec<(RowId, i32)>; 2] {
        [0, 1].map(|at| {
            let guard = pin();
            let (accounts, index) = (&self.bank.accounts, &self.indexes[at]);
            let mut found = Vec::new();
            tx.range_read(accounts, index, (low, high), reverse, &[KEY], &guard, &mut |row, cells| {
                found.push((row, cells[0].as_i32()));
                found.len() < most
            });
            found
        })
    }

    /// Asserts that a transaction finds the same by both, all of it and between random bounds.
    fn assert_same(&self, tx: &Transaction, random: &mut Random) {
        let [with, without] = self.range(tx, Bound::Unbounded, Bound::Unbounded, false, usize::MAX);
        assert_no_difference(&with, &without, "everything");
        for _ in 0..8 {
            let mut bounds = [(); 2].map(|()| {
                let mut key = KeyBuffer::new();
                if with.is_empty() || random.uniform(0, 5) == 0 {
                    let name = Bank::name(random.uniform(0, 9999) as i32);
                    let balance = Cell::i64(random.uniform(0, 9) << 40);
                    let columns = self.indexes[0].spec().columns.iter();
                    let cell =
                        |part: &IndexColumn| if part.column == NAME { Cell::text(&name) } else { balance };
                    let cells: Vec<Cell<'_>> = columns.map(cell).collect();
                    self.indexes[0]
                        .encode(&cells[..random.uniform(1, cells.len() as i64) as usize], &mut key);
                } else {
                    // An existing key, or a prefix of it.
                    let row = with[random.uniform(0, with.len() as i64 - 1) as usize].0;
                    let guard = pin();
                    let mut cells = [Cell::Null; 2];
                    let columns = self.indexes[0].spec().columns.iter().map(|part| part.column);
                    let columns: Vec<ColumnId> = columns.collect();
                    let cells = &mut cells[..columns.len()];
                    assert!(tx.read(&self.bank.accounts, row, &columns, cells, &guard));
                    self.indexes[0]
                        .encode(&cells[..random.uniform(1, cells.len() as i64) as usize], &mut key);
                }
                key
            });
            bounds.sort();
            let bound = |key: &'_ KeyBuffer, kind| match kind {
                0 => Bound::Excluded(key.to_vec()),
                1 => Bound::Unbounded,
                _ => Bound::Included(key.to_vec()),
            };
            let [low, high] = [0, 1].map(|at| bound(&bounds[at], random.uniform(0, 5)));
            let reverse = random.uniform(0, 1) == 1;
            let most = if random.uniform(0, 2) == 0 { random.uniform(1, 20) as usize } else { usize::MAX };
            let [low, high] = [&low, &high].map(|bound| bound.as_ref().map(|key| &key[..]));
            let [with, without] = self.range(tx, low, high, reverse, most);
            assert_no_difference(&with, &without, &format!("{low:02x?} to {high:02x?}, reverse: {reverse}"));
        }
    }

    /// Makes blocks compact, and lets the index take them.
    fn compact(&self, after: Duration) {
        for _ in 0..2 {
            while self.bank.engine.freeze(Duration::ZERO) != Progress::Done {
                pin().flush();
                std::thread::yield_now();
            }
        }
        self.bank.engine.compact(after);
        self.bank.engine.compact(after);
    }

    fn fill(&self, keys: impl Iterator<Item = i32>) {
        let mut tx = self.bank.engine.begin();
        for key in keys {
            self.bank.insert(&mut tx, key, i64::from(key % 7) << 40).unwrap();
        }
        commit(tx);
    }

    fn compact_blocks(&self) -> usize {
        let is_compact = |usage: &BlockUsage| usage.state == BlockState::Compact;
        self.bank.accounts.block_usage().filter(is_compact).count()
    }

    /// Asserts the invariants of both, once no old version is needed.
    fn verify(&self) {
        while self.bank.engine.garbage_backlog() > 0 {
            std::thread::yield_now();
        }
        self.indexes.iter().for_each(|index| index.verify());
        assert_eq!(self.indexes[0].len(), self.indexes[1].len());
    }
}

fn assert_no_difference(with: &[(RowId, i32)], without: &[(RowId, i32)], of_what: &str) {
    let differ = with.iter().zip(without).position(|(with, without)| with != without);
    let differ = differ.or((with.len() != without.len()).then(|| with.len().min(without.len())));
    if let Some(at) = differ {
        let part = |rows: &[(RowId, i32)]| rows.iter().skip(at).take(3).copied().collect::<Vec<_>>();
        let (counts, with, without) = ((with.len(), without.len()), part(with), part(without));
        panic!("{of_what}: {counts:?} rows, from {at} on {with:?} and {without:?}");
    }
}

#[test]
fn rows_that_are_compact_take_eight_bytes_of_an_index_without_values() {
    let two = TwoIndexes::open(&[NAME]);
    two.fill(1..=ACCOUNTS);
    let bytes = || two.indexes.each_ref().map(|index| index.held_bytes());
    let [with, without] = bytes();
    assert_eq!(with, without, "before any block is compact");
    while two.compact_blocks() < (ACCOUNTS / 1024) as usize {
        two.compact(Duration::ZERO);
    }
    two.compact(Duration::ZERO);
    let [with, without] = bytes();
    assert!(without * 3 < with, "{without} of {with} bytes");
    assert!(two.indexes[1].memory_bytes() * 3 < two.indexes[0].memory_bytes());
    two.verify();
    two.assert_same(&two.bank.engine.begin_read_only(), &mut Random::seeded(1));
}

#[test]
fn an_index_over_rows_that_are_compact_already_takes_them() {
    let two = TwoIndexes::open(&[BALANCE, NAME]);
    two.fill(1..=ACCOUNTS);
    while two.compact_blocks() < (ACCOUNTS / 1024) as usize {
        two.compact(Duration::ZERO);
    }
    let mut tx = two.bank.engine.begin();
    let spec = IndexSpec { id: IndexId(2000), name: "late".into(), ..two.indexes[1].spec().clone() };
    tx.create_index(&two.bank.accounts, spec, 2).unwrap();
    commit(tx);
    two.compact(Duration::ZERO);
    let late = two.bank.accounts.indexes()[3].clone();
    assert_eq!(late.held_bytes(), two.indexes[1].held_bytes());
    let two = TwoIndexes { indexes: [two.indexes[0].clone(), late], bank: two.bank };
    two.verify();
    two.assert_same(&two.bank.engine.begin_read_only(), &mut Random::seeded(1));
}

#[test]
fn transactions_of_any_age_find_the_same_by_both() {
    let seed = std::env::var("FIRN_SEED").map_or(11, |seed| seed.parse().unwrap());
    println!("FIRN_SEED={seed}");
    for columns in [&[BALANCE, NAME][..], &[NAME], &[BALANCE]] {
        let random = &mut Random::seeded(seed);
        let two = TwoIndexes::open(columns);
        let bank = &two.bank;
        two.fill(1..=ACCOUNTS);
        let mut keys: Vec<i32> = (1..=ACCOUNTS).collect();
        let mut next_key = ACCOUNTS + 1;
        let mut readers: Vec<Transaction> = Vec::new();
        while two.compact_blocks() < (ACCOUNTS / 1024) as usize {
            two.compact(Duration::ZERO);
        }
        for round in 0..if cfg!(miri) { 5 } else { 80 } {
            let mut tx = bank.engine.begin();
            let mut changed = keys.clone();
            for _ in 0..random.uniform(1, if round % 8 == 0 { i64::from(ACCOUNTS) / 3 } else { 40 }) {
                let at = random.uniform(0, changed.len() as i64 - 1) as usize;
                match random.uniform(0, 9) {
                    0..4 => bank.set_balance(&mut tx, changed[at], random.uniform(0, 9) << 40).unwrap(),
                    4..7 => bank.delete(&mut tx, changed.swap_remove(at)).unwrap(),
                    7 => {
                        let guard = pin();
                        let row = bank.find(&tx, changed[at], &guard).unwrap();
                        // Many rows have one of a few values.
                        let most = if random.uniform(0, 1) == 0 { 9 } else { 99_999 };
                        let name = Bank::name(random.uniform(0, most) as i32);
                        let cell = if random.uniform(0, 9) == 0 { Cell::Null } else { Cell::text(&name) };
                        tx.update(&bank.accounts, row, &[NAME], &[cell], &guard).unwrap();
                    }
                    _ => {
                        bank.insert(&mut tx, next_key, 5 << 40).unwrap();
                        changed.push(next_key);
                        next_key += 1;
                    }
                }
            }
            two.assert_same(&tx, random);
            if random.uniform(0, 4) == 0 {
                tx.rollback();
            } else {
                commit(tx);
                keys = changed;
            }
            if keys.len() < ACCOUNTS as usize {
                let more = next_key..next_key + ACCOUNTS - keys.len() as i32;
                two.fill(more.clone());
                next_key = more.end;
                keys.extend(more);
            }
            if random.uniform(0, 4) == 0 {
                readers.push(bank.engine.begin_read_only());
            }
            if readers.len() > 3 {
                readers.remove(random.uniform(0, 3) as usize);
            }
            if random.uniform(0, 2) == 0 {
                two.compact(Duration::ZERO);
            }
            readers.iter().for_each(|reader| two.assert_same(reader, random));
            two.assert_same(&bank.engine.begin_read_only(), random);
        }
        readers.clear();
        two.verify();
        assert_eq!(two.indexes[1].len(), keys.len());
    }
}

#[test]
fn an_entry_that_is_removed_is_not_taken_for_another_of_its_row() {
    let two = TwoIndexes::open(&[NAME]);
    two.fill(1..=ACCOUNTS);
    while two.compact_blocks() < (ACCOUNTS / 1024) as usize {
        two.compact(Duration::ZERO);
    }
    two.compact(Duration::ZERO);
    let tx = two.bank.engine.begin_read_only();
    let guard = pin();
    let row = two.bank.find(&tx, 7, &guard).unwrap();
    let mut stale = KeyBuffer::new();
    // Just before the first name that begins with a seven.
    two.indexes[1].encode(&[Cell::text("the owner of account number 6~")], &mut stale);
    two.indexes[1].remove(&stale, row, &guard);
    two.assert_same(&tx, &mut Random::seeded(1));
}

#[test]
fn an_index_that_has_been_dropped_is_read_by_older_transactions() {
    let two = TwoIndexes::open(&[NAME]);
    two.fill(1..=2 * 1024);
    while two.compact_blocks() < 2 {
        two.compact(Duration::ZERO);
    }
    two.compact(Duration::ZERO);
    let random = &mut Random::seeded(1);
    // As long as this one runs, the blocks remain.
    let old = two.bank.engine.begin_read_only();
    let mut tx = two.bank.engine.begin();
    (1..=2 * 1024).for_each(|key| two.bank.delete(&mut tx, key).unwrap());
    commit(tx);
    let reader = two.bank.engine.begin_read_only();
    let mut tx = two.bank.engine.begin();
    two.indexes.iter().for_each(|index| tx.drop_index(&two.bank.accounts, index.spec().id).unwrap());
    commit(tx);
    two.assert_same(&old, random);
    two.assert_same(&reader, random);
    drop(old);
    // The last one is kept until another one is filled.
    while two.compact_blocks() > 1 {
        two.compact(Duration::from_nanos(1));
    }
    two.assert_same(&reader, random);
    two.fill(3001..=3000 + 2 * 1024);
    two.assert_same(&reader, random);
}

#[test]
fn blocks_that_are_given_up_are_dropped_first() {
    let two = TwoIndexes::open(&[NAME]);
    two.fill(1..=4 * 1024);
    while two.compact_blocks() < 4 {
        two.compact(Duration::ZERO);
    }
    for round in 0..3 {
        let first = 10_000 * round;
        let mut tx = two.bank.engine.begin();
        let keys: Vec<i32> = {
            let [rows, _] = two.range(&tx, Bound::Unbounded, Bound::Unbounded, false, usize::MAX);
            rows.into_iter().map(|(_, key)| key).collect()
        };
        keys.iter().filter(|key| *key % 4 != 0).for_each(|key| two.bank.delete(&mut tx, *key).unwrap());
        commit(tx);
        let is_sparse = |usage: BlockUsage| usage.state == BlockState::Compact && usage.rows < 512;
        while two.bank.accounts.block_usage().any(is_sparse) {
            two.compact(Duration::from_nanos(1));
        }
        let empty = two.bank.accounts.block_usage().filter(|usage| usage.rows == 0).count();
        assert!(empty >= 2, "{empty} blocks are empty");
        two.fill(first + 10_001..first + 13_000);
        let filled = two.bank.accounts.block_usage().filter(|usage| usage.rows == 0).count() < empty;
        assert!(filled, "freed blocks are filled again");
        two.assert_same(&two.bank.engine.begin_read_only(), &mut Random::seeded(round as u64));
        while two.compact_blocks() < 3 {
            two.compact(Duration::ZERO);
        }
        two.verify();
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[cfg_attr(miri, ignore = "runs until blocks become cold in spite of writers")]
fn readers_beside_writers_and_the_merger_find_the_same_by_both() {
    let two = &TwoIndexes::open(&[BALANCE, NAME]);
    let bank = &two.bank;
    two.fill(1..=ACCOUNTS);
    let (stop, compact) = (&AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in [1, 2] {
            scope.spawn(move || {
                let random = &mut Random::seeded(seed);
                let mut anywhere = 200;
                while !stop.load(Ordering::Relaxed) {
                    let mut tx = bank.engine.begin();
                    // Mostly few, and in the end only those, so that the others cool on any machine.
                    let among = if anywhere > 0 && random.uniform(0, 500) == 0 {
                        anywhere -= 1;
                        i64::from(ACCOUNTS)
                    } else {
                        50
                    };
                    let key = random.uniform(1, among) as i32;
                    let other = ACCOUNTS * (seed as i32 + 1) + random.uniform(0, 500) as i32;
                    let changed =
                        bank.set_balance(&mut tx, key, random.uniform(0, 9) << 40).and_then(|()| match bank
                            .balance(&tx, other)
                        {
                            Some(_) => bank.delete(&mut tx, other),
                            None => bank.insert(&mut tx, other, 3 << 40).map(drop),
                        });
                    match changed {
                        Ok(()) => drop(tx.commit()),
                        Err(error) => {
                            assert!(error.is_retryable() || error.blocker().is_some(), "{error}");
                            tx.rollback();
                        }
                    }
                }
            });
        }
        let readers: Vec<_> = [3, 4]
            .map(|seed| {
                scope.spawn(move || {
                    let random = &mut Random::seeded(seed);
                    let mut rounds = 0;
                    while rounds < 30 || !compact.load(Ordering::Relaxed) {
                        two.assert_same(&bank.engine.begin_read_only(), random);
                        rounds += 1;
                    }
                })
            })
            .into_iter()
            .collect();
        // Also if what follows panics: otherwise the scope would wait for the writers.
        let _stop = StopAtEnd(stop);
        while readers.iter().any(|reader| !reader.is_finished()) {
            bank.engine.freeze(Duration::from_millis(5));
            bank.engine.compact(Duration::from_millis(5));
            // By then an index has taken rows, and dropped their keys.
            let [with, without] = two.indexes.each_ref().map(|index| index.held_bytes());
            compact.fetch_or(without * 10 < with * 9, Ordering::Relaxed);
        }
    });
    two.compact(Duration::ZERO);
    assert!(two.compact_blocks() > 0);
    two.verify();
}
