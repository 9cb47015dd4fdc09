//! Compact blocks: in any state of a block, transactions of any age see what a model contains.

use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use firn_base::Cell;
use firn_base::random::Random;
use firn_storage::{BlockState, ScanBatch};
use firn_txn::{Engine, Progress, Transaction, pin};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The rows of several blocks.
const ACCOUNTS: i32 = if cfg!(miri) { 1100 } else { 5000 };

/// Freezes every block that can be frozen, and then encodes it.
fn compact(engine: &Arc<Engine>) {
    compact_after(engine, Duration::ZERO);
}

fn compact_after(engine: &Arc<Engine>, after: Duration) {
    for _ in 0..2 {
        while engine.freeze(Duration::ZERO) != Progress::Done {
            // Guards of other tests may prevent it.
            pin().flush();
            std::thread::yield_now();
        }
    }
    engine.compact(after);
}

fn states(bank: &Bank) -> Vec<BlockState> {
    bank.accounts.block_usage().map(|usage| usage.state).collect()
}

fn compact_blocks(bank: &Bank) -> usize {
    states(bank).iter().filter(|state| **state == BlockState::Compact).count()
}

/// A bank with these accounts, many of them with the same balance, in compact blocks.
fn compact_bank(accounts: i32) -> Bank {
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for key in 1..=accounts {
        bank.insert(&mut tx, key, i64::from(key % 7) << 40).unwrap();
    }
    commit(tx);
    while compact_blocks(&bank) < (accounts / 1024) as usize {
        compact(&bank.engine);
    }
    bank
}

fn rows(model: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
    model.iter().map(|(key, balance)| (*key, *balance)).collect()
}

#[test]
fn compact_blocks_are_smaller_and_show_the_same() {
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for key in 1..=ACCOUNTS {
        bank.insert(&mut tx, key, i64::from(key % 7)).unwrap();
    }
    commit(tx);
    let bytes = |bank: &Bank| bank.accounts.block_usage().map(|usage| usage.bytes).sum::<u64>();
    let before = bytes(&bank);
    let expected: Vec<(i32, i64)> = (1..=ACCOUNTS).map(|key| (key, i64::from(key % 7))).collect();
    while compact_blocks(&bank) < (ACCOUNTS / 1024) as usize {
        compact(&bank.engine);
    }
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
    assert!(bytes(&bank) < before, "{} bytes of {before}", bytes(&bank));
}

#[test]
fn a_row_that_was_updated_is_known_by_its_old_id_to_its_transaction_until_that_is_taken_back() {
    let bank = compact_bank(1024);
    let mut tx = bank.engine.begin();
    let guard = pin();
    let row = bank.find(&tx, 8, &guard).unwrap();
    let balance = |tx: &Transaction| {
        let mut cells = [Cell::Null];
        tx.read(&bank.accounts, row, &[BALANCE], &mut cells, &guard).then(|| cells[0].as_i64())
    };
    for balance_now in [1, 2] {
        tx.update(&bank.accounts, row, &[BALANCE], &[Cell::i64(balance_now)], &guard).unwrap();
        assert_eq!((balance(&tx), bank.balance(&tx, 8)), (Some(balance_now), Some(balance_now)));
    }
    let moved = tx.current_row_id(&bank.accounts, row);
    assert!(moved != row && bank.find(&tx, 8, &guard) == Some(moved));
    tx.rollback();

    let mut tx = bank.engine.begin();
    let statement = tx.begin_statement();
    tx.update_as(&bank.typed.balance, row, &(Some(3),), &guard).unwrap();
    assert_eq!(balance(&tx), Some(3));
    tx.undo_statement(&statement);
    assert_eq!((balance(&tx), tx.current_row_id(&bank.accounts, row)), (Some(1 << 40), row));
    tx.update_as(&bank.typed.balance, row, &(Some(4),), &guard).unwrap();
    tx.delete(&bank.accounts, row, &guard).unwrap();
    assert_eq!((balance(&tx), bank.balance(&tx, 8)), (None, None));
    commit(tx);
    assert_eq!(bank.balance(&bank.engine.begin_read_only(), 8), None);
}

#[test]
fn others_conflict_with_an_update_of_a_compact_row_as_with_any_other() {
    let bank = compact_bank(1024);
    let mut first = bank.engine.begin();
    let mut second = bank.engine.begin();
    bank.set_balance(&mut first, 5, 1).unwrap();
    assert!(bank.set_balance(&mut second, 5, 2).unwrap_err().blocker().is_some());
    second.rollback();
    let reader = bank.engine.begin_read_only();
    let mut late = bank.engine.begin();
    commit(first);
    assert_eq!(bank.balance(&reader, 5), Some(5 << 40));
    assert!(bank.set_balance(&mut late, 5, 3).unwrap_err().is_retryable());
    late.rollback();
    assert_eq!(bank.balance(&bank.engine.begin_read_only(), 5), Some(1));
    assert_eq!(bank.balance(&reader, 5), Some(5 << 40));
}

/// A snapshot and what it must see.
struct Reader {
    tx: Transaction,
    sees: Vec<(i32, i64)>,
}

#[test]
fn transactions_of_any_age_see_what_a_model_says() {
    let seed = std::env::var("FIRN_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("FIRN_SEED={seed}");
    let random = &mut Random::seeded(seed);
    let bank = compact_bank(ACCOUNTS);
    let mut model: BTreeMap<i32, i64> = (1..=ACCOUNTS).map(|key| (key, i64::from(key % 7) << 40)).collect();
    let mut next_key = ACCOUNTS + 1;
    let mut readers: Vec<Reader> = Vec::new();
    let mut seen = [0; 5];
    for round in 0..if cfg!(miri) { 6 } else { 150 } {
        let mut tx = bank.engine.begin();
        let mut changed = model.clone();
        for _ in 0..random.uniform(1, if round % 10 == 0 { i64::from(ACCOUNTS) / 3 } else { 40 }) {
            let statement = tx.begin_statement();
            let mut after = changed.clone();
            for _ in 0..random.uniform(1, 3) {
                let from = random.uniform(1, i64::from(next_key)) as i32;
                let Some((&key, _)) = after.range(from..).next() else { continue };
                match random.uniform(0, 9) {
                    0..4 => {
                        let balance = random.uniform(0, 9) << 40;
                        bank.set_balance(&mut tx, key, balance).unwrap();
                        after.insert(key, balance);
                    }
                    4..8 => {
                        bank.delete(&mut tx, key).unwrap();
                        after.remove(&key);
                    }
                    8 => {
                        bank.insert(&mut tx, next_key, 5 << 40).unwrap();
                        after.insert(next_key, 5 << 40);
                        next_key += 1;
                    }
                    _ => {
                        bank.set_key(&mut tx, key, next_key).unwrap();
                        let balance = after.remove(&key).unwrap();
                        after.insert(next_key, balance);
                        next_key += 1;
                    }
                }
            }
            if random.uniform(0, 4) == 0 { tx.undo_statement(&statement) } else { changed = after }
        }
        assert_eq!(bank.scan(&tx), rows(&changed), "its own changes, in round {round}");
        if random.uniform(0, 4) == 0 {
            tx.rollback();
        } else {
            commit(tx);
            model = changed;
        }
        // Enough that most blocks remain full.
        if model.len() < ACCOUNTS as usize {
            let mut tx = bank.engine.begin();
            while model.len() < ACCOUNTS as usize {
                bank.insert(&mut tx, next_key, 6 << 40).unwrap();
                model.insert(next_key, 6 << 40);
                next_key += 1;
            }
            commit(tx);
        }
        if random.uniform(0, 5) == 0 {
            let tx = bank.engine.begin_read_only();
            readers.push(Reader { tx, sees: rows(&model) });
        }
        if readers.len() > 3 {
            readers.remove(random.uniform(0, 3) as usize);
        }
        if random.uniform(0, 2) == 0 {
            compact(&bank.engine);
        }
        for reader in &readers {
            assert_eq!(bank.scan(&reader.tx), reader.sees, "round {round}");
        }
        assert_eq!(bank.scan(&bank.engine.begin_read_only()), rows(&model), "round {round}");
        states(&bank).into_iter().for_each(|state| seen[state as usize] += 1);
    }
    assert!(seen[BlockState::Compact as usize] > 0 && seen[BlockState::Hot as usize] > 0, "{seen:?}");
}

#[test]
fn blocks_that_are_left_by_most_rows_are_left_by_all_and_filled_again() {
    let bank = compact_bank(4 * 1024);
    let mut tx = bank.engine.begin();
    (1..=4 * 1024).filter(|key| key % 4 != 0).for_each(|key| bank.delete(&mut tx, key).unwrap());
    commit(tx);
    // The remaining rows fill one, but only a full one becomes compact.
    while compact_blocks(&bank) > 1 {
        compact_after(&bank.engine, Duration::from_nanos(1));
    }
    let expected: Vec<(i32, i64)> =
        (1..=4 * 1024).filter(|key| key % 4 == 0).map(|key| (key, i64::from(key % 7) << 40)).collect();
    assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected);
    let blocks = states(&bank).len();
    let mut tx = bank.engine.begin();
    for key in 5001..=8000 {
        bank.insert(&mut tx, key, 1).unwrap();
    }
    commit(tx);
    assert_eq!(states(&bank).len(), blocks, "freed blocks are filled again");
    assert_eq!(bank.scan(&bank.engine.begin_read_only()).len(), 1024 + 3000);
}

#[test]
fn values_of_blocks_that_have_gone_go_as_well() {
    // As many as two blocks have slots, each balance far from the others.
    const BATCH: i32 = 2048;
    const DIFFERENT: i32 = 200;
    let bank = compact_bank(1024);
    let expected = bank.scan(&bank.engine.begin_read_only());
    let balance = |batch: i32, key: i32| i64::from(batch * DIFFERENT + key % DIFFERENT) << 40;
    let change = |work: &dyn Fn(&mut Transaction, i32), batch: i32| {
        let mut tx = bank.engine.begin();
        (batch * BATCH..(batch + 1) * BATCH).for_each(|key| work(&mut tx, key));
        commit(tx);
    };
    let mut most = 0;
    for batch in 1..=12 {
        change(
            &|tx, key| {
                bank.insert(tx, key, balance(batch, key)).unwrap();
            },
            batch,
        );
        while compact_blocks(&bank) < 3 {
            compact_after(&bank.engine, Duration::from_nanos(1));
        }
        let reader = bank.engine.begin_read_only();
        let all = bank.scan(&reader);
        change(&|tx, key| bank.delete(tx, key).unwrap(), batch);
        assert_eq!(bank.scan(&reader), all, "batch {batch}");
        drop(reader);
        // A block that was filled last is freed when another one is filled.
        while compact_blocks(&bank) > 2 {
            compact_after(&bank.engine, Duration::from_nanos(1));
        }
        assert_eq!(bank.scan(&bank.engine.begin_read_only()), expected, "batch {batch}");
        most = bank.accounts.dictionary_bytes().max(most);
    }
    // Balances of a batch or two.
    let values = most / size_of::<i64>();
    assert!(values >= DIFFERENT as usize && values < 4 * DIFFERENT as usize, "{values}");
}

/// What a reader has taken out of the table.
struct Kept {
    batches: Vec<ScanBatch>,
    /// A digest of them at that time.
    digest: u64,
    /// The round of the reader in which they are dropped.
    until: u32,
}

impl Kept {
    fn take(bank: &Bank, tx: &Transaction, until: u32) -> Kept {
        let scan = bank.accounts.scan(tx.snapshot(), &[KEY, BALANCE, NAME], false);
        let batches: Vec<ScanBatch> = std::iter::from_fn(|| scan.next_batch(&pin())).collect();
        let mut kept = Kept { batches, digest: 0, until };
        kept.digest = kept.digest_now();
        kept
    }

    fn rows(&self) -> impl Iterator<Item = (i32, i64, &str)> {
        self.batches.iter().flat_map(|batch| {
            let keys = batch.columns[0].as_primitive::<Int32Type>();
            let balances = batch.columns[1].as_primitive::<Int64Type>();
            let names = batch.columns[2].as_string_view();
            (0..batch.rows).map(|row| (keys.value(row), balances.value(row), names.value(row)))
        })
    }

    fn digest_now(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.rows().for_each(|row| row.hash(&mut hasher));
        hasher.finish()
    }
}

/// Counts a reader as long as it exists, however it ends.
struct Reads<'a>(&'a AtomicUsize);

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Moves some money; inserts an account, or deletes one with a balance of 0.
fn change(bank: &Bank, tx: &mut Transaction, from: i32, to: i32, new: i32) -> firn_base::Result<()> {
    for (key, by) in [(from, -7), (to, 7)] {
        let before = bank.balance(tx, key).expect("no such account is ever deleted");
        bank.set_balance(tx, key, before + by)?;
    }
    match bank.balance(tx, new) {
        Some(_) => bank.delete(tx, new),
        None => bank.insert(tx, new, 0).map(drop),
    }
}

#[test]
#[cfg_attr(miri, ignore = "runs until blocks become cold in spite of writers")]
fn arrays_that_readers_hold_for_any_time_stay_as_they_were() {
    const ROUNDS: u32 = 200;
    const TOTAL: i64 = 1_000_000;
    let bank = Bank::open();
    let mut tx = bank.engine.begin();
    for key in 1..=ACCOUNTS {
        bank.insert(&mut tx, key, if key == 1 { TOTAL } else { 0 }).unwrap();
    }
    commit(tx);
    let (reading, all_seen) = (AtomicUsize::new(3), AtomicBool::new(false));
    let write = |seed| {
        let random = &mut Random::seeded(seed);
        let mut written = 0;
        while reading.load(Ordering::SeqCst) > 0 {
            // Most change a few accounts, so that blocks cool; some read many.
            let among = if random.uniform(0, 1000) == 0 { i64::from(ACCOUNTS) } else { 100 };
            let [from, to] = [(); 2].map(|()| random.uniform(1, among) as i32);
            let new = ACCOUNTS * seed as i32 + 1 + random.uniform(0, 500) as i32;
            let mut tx = bank.engine.begin();
            match change(&bank, &mut tx, from, to, new) {
                Ok(()) => written += usize::from(tx.commit().is_ok()),
                Err(error) => {
                    assert!(error.is_retryable() || error.blocker().is_some(), "{error}");
                    tx.rollback();
                }
            }
        }
        written
    };
    let read = |seed| {
        let _reads = Reads(&reading);
        let random = &mut Random::seeded(seed);
        let mut kept: Vec<Kept> = Vec::new();
        for round in 0.. {
            if round >= ROUNDS && all_seen.load(Ordering::SeqCst) {
                break;
            }
            let tx = bank.engine.begin_read_only();
            let new = Kept::take(&bank, &tx, round + random.uniform(0, 20) as u32);
            drop(tx);
            assert_eq!(new.rows().map(|(_, balance, _)| balance).sum::<i64>(), TOTAL);
            assert!(new.rows().all(|(key, _, name)| name == Bank::name(key)));
            kept.push(new);
            kept.retain(|kept| {
                assert!(kept.until > round || kept.digest_now() == kept.digest, "what was held has changed");
                kept.until > round
            });
        }
        kept.iter().for_each(|kept| assert_eq!(kept.digest_now(), kept.digest));
    };
    let mut missing = vec![BlockState::Hot, BlockState::Frozen, BlockState::Compact];
    let end = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let (write, read) = (&write, &read);
        let writers = [1, 2].map(|seed| scope.spawn(move || write(seed)));
        (3..6).for_each(|seed| drop(scope.spawn(move || read(seed))));
        while reading.load(Ordering::SeqCst) > 0 {
            bank.engine.freeze(Duration::from_millis(5));
            bank.engine.compact(Duration::from_millis(5));
            missing.retain(|missing| !states(&bank).contains(missing));
            all_seen.store(missing.is_empty() || Instant::now() > end, Ordering::SeqCst);
        }
        assert!(missing.is_empty(), "no block has been {missing:?}");
        assert!(writers.into_iter().all(|writer| writer.join().unwrap() > 0));
    });
    bank.scan(&bank.engine.begin_read_only());
}
