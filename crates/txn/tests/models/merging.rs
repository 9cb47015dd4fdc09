//! Merging × writing × reading: blocks that become compact have values that the dictionaries do not have yet.
//! So the blocks that are compact already get other codes, while their rows are read, changed and deleted.

use crate::schedule::explore;
use crate::support::{BALANCE, Bank, KEY, NAME, commit};
use crate::{freezing_bank_with, join, task};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use firn_base::sync::{Arc, AtomicBool};
use firn_base::{Cell, Result, SqlType, clock};
use firn_storage::encoding::Kept;
use firn_storage::{BlockState, ScanBatch, summary};
use firn_txn::{Restriction, Transaction, pin};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The number of rows in a block.
const BLOCK: i32 = 64;

/// The writer's transactions, one of which is rolled back.
const TURNS: i32 = 4;
const TAKEN_BACK: i32 = 1;

/// How often a block was given other codes between two scans of a snapshot.
static BESIDE: AtomicUsize = AtomicUsize::new(0);

/// By key, the number from which an account has its balance and its name.
type State = BTreeMap<i32, i64>;

/// Few in a block, so that it has codes; other ones in each block, which sort between those of the blocks
/// before.
fn number(key: i32) -> i64 {
    i64::from(match (key - 1) / BLOCK {
        0 => key % 7 * 3,
        1 => key % 5 * 3 + 1,
        _ => key % 4 * 3 + 2,
    })
}

/// Far apart: as offsets they take 8 bytes.
fn balance(number: i64) -> i64 {
    number << 40
}

/// A name with a prefix that a condition can use.
fn name(number: i64) -> String {
    format!("{number:02} is the number of this account")
}

/// Inserts as many accounts as fill a block.
fn insert(bank: &Bank, tx: &mut Transaction, block: i32) -> Result<()> {
    let keys = block * BLOCK + 1..=(block + 1) * BLOCK;
    let names: Vec<String> = keys.clone().map(|key| name(number(key))).collect();
    let rows: Vec<_> = keys
        .zip(&names)
        .map(|(key, name)| [Cell::i32(key), Cell::i64(balance(number(key))), Cell::text(name)])
        .collect();
    tx.insert_rows(&bank.accounts, &rows, &pin())
}

fn set(bank: &Bank, tx: &mut Transaction, key: i32, number: i64) -> Result<()> {
    let guard = pin();
    let row = bank.find(tx, key, &guard).expect("the account exists");
    let name = name(number);
    tx.update(&bank.accounts, row, &[BALANCE, NAME], &[Cell::i64(balance(number)), Cell::text(&name)], &guard)
}

/// The accounts that a turn of the writer changes: two exchange their numbers, and one is deleted.
fn turn_of(turn: i32) -> (i32, i32, i32) {
    let (first, second) = (10 * turn + 1, BLOCK + 10 * turn + 2);
    (first, second, if turn % 2 == 0 { first + 1 } else { second + 1 })
}

fn turn(bank: &Bank, tx: &mut Transaction, turn: i32) -> Result<()> {
    let (first, second, gone) = turn_of(turn);
    set(bank, tx, first, number(second))?;
    set(bank, tx, second, number(first))?;
    bank.delete(tx, gone)?;
    // In the middle, so that there are turns before and after it.
    if turn == TURNS / 2 { insert(bank, tx, 2) } else { Ok(()) }
}

/// The states that a snapshot may see: the accounts after each number of turns.
fn states() -> Vec<State> {
    let mut state: State = (1..=2 * BLOCK).map(|key| (key, number(key))).collect();
    let mut states = vec![state.clone()];
    for turn in (0..TURNS).filter(|turn| *turn != TAKEN_BACK) {
        let (first, second, gone) = turn_of(turn);
        state.extend([(first, number(second)), (second, number(first))]);
        state.remove(&gone);
        if turn == TURNS / 2 {
            state.extend((2 * BLOCK + 1..=3 * BLOCK).map(|key| (key, number(key))));
        }
        states.push(state.clone());
    }
    states
}

/// How many blocks have codes for balances and names.
fn coded(bank: &Bank) -> usize {
    let has_codes = |column: &firn_storage::encoding::Encoding| column.values == Kept::Codes;
    let encodings = bank.accounts.block_usage().filter_map(|usage| usage.encodings);
    encodings.filter(|columns| columns[1..].iter().all(has_codes)).count()
}

fn freeze_and_compact(bank: &Bank) {
    bank.engine.freeze(Duration::ZERO);
    bank.engine.compact(Duration::ZERO);
}

/// The accounts in batches.
fn content(batches: &[ScanBatch]) -> State {
    let mut state = State::new();
    for batch in batches {
        let keys = batch.columns[0].as_primitive::<Int32Type>();
        let balances = batch.columns[1].as_primitive::<Int64Type>();
        let names = batch.columns[2].as_string_view();
        for row in 0..batch.rows {
            let number = balances.value(row) >> 40;
            assert_eq!(names.value(row), name(number), "half a row");
            assert!(state.insert(keys.value(row), number).is_none(), "{} is there twice", keys.value(row));
        }
    }
    state
}

fn scan(bank: &Bank, tx: &Transaction, restrictions: &[Restriction]) -> Vec<ScanBatch> {
    let scan = bank.accounts.scan(tx.snapshot(), &[KEY, BALANCE, NAME], false).under(restrictions);
    std::iter::from_fn(|| scan.next_batch(&pin())).collect()
}

/// The accounts that a scan returns for a number, by their balance or by their name, and that have it.
fn with_number(bank: &Bank, tx: &Transaction, number: i64, by_name: bool) -> State {
    let name = name(number);
    let (column, only) = match by_name {
        true => (NAME, summary(SqlType::Text, &Cell::text(&name))),
        false => (BALANCE, summary(SqlType::BigInt, &Cell::i64(balance(number)))),
    };
    let only = only.expect("the value is not NULL");
    let mut found = content(&scan(bank, tx, &[Restriction::within(column, only, only)]));
    found.retain(|_, has| *has == number);
    found
}

/// The result of a look-up.
fn look_up(bank: &Bank, tx: &Transaction, key: i32) -> Option<i64> {
    let guard = pin();
    let mut cells = [Cell::Null; 2];
    tx.find(&bank.accounts, &bank.by_key, &bank.key(key), &[BALANCE, NAME], &mut cells, &guard)?;
    let number = cells[0].as_i64() >> 40;
    assert_eq!(cells[1].str(), name(number), "half a row");
    Some(number)
}

/// Reads everything in all ways, repeatedly, and keeps it; sets a flag when it has begun.
fn read(bank: &Bank, states: &[State], begun: &AtomicBool) {
    let mut last = 0;
    let mut kept = Vec::new();
    for round in 0..3 {
        let tx = bank.engine.begin_read_only();
        let before = coded(bank);
        begun.store(true, Ordering::Relaxed);
        let batches = scan(bank, &tx, &[]);
        let seen = content(&batches);
        let turns = states.iter().position(|state| *state == seen);
        let turns = turns.unwrap_or_else(|| panic!("no turn leaves this: {seen:?}"));
        assert!(turns >= last, "{turns} after {last}");
        last = turns;
        for (number, by_name) in [(3, true), (4, false), (round * 3 + 2, round % 2 == 0)] {
            let expected = seen.iter().filter(|(_, has)| **has == number);
            let found = with_number(bank, &tx, number, by_name);
            assert!(found.iter().eq(expected), "{number}, by its name: {by_name}: {found:?}");
        }
        for key in (0..TURNS).flat_map(|turn| <[i32; 3]>::from(turn_of(turn))) {
            assert_eq!(look_up(bank, &tx, key), seen.get(&key).copied(), "{key}");
        }
        BESIDE.fetch_add(usize::from(before > 0 && coded(bank) > before), Ordering::Relaxed);
        kept.push((batches, seen));
    }
    for (batches, seen) in kept {
        assert_eq!(content(&batches), seen, "what was handed out has changed");
    }
}

fn merges() {
    let bank = freezing_bank_with([]);
    let states = Arc::new(states());
    let mut tx = bank.engine.begin();
    insert(&bank, &mut tx, 0).unwrap();
    commit(tx);
    while coded(&bank) == 0 {
        freeze_and_compact(&bank);
    }
    let mut tx = bank.engine.begin();
    insert(&bank, &mut tx, 1).unwrap();
    commit(tx);
    while !bank.accounts.block_usage().any(|usage| usage.state == BlockState::Frozen) {
        bank.engine.freeze(Duration::ZERO);
    }
    // All tasks but the merger need few steps, so a reader begins in the middle of a merge in many runs.
    let begun = Arc::new(AtomicBool::new(false));
    let merger = task(&bank, {
        let begun = begun.clone();
        move |bank| {
            while !begun.load(Ordering::Relaxed) {
                clock::sleep(Duration::ZERO);
            }
            // Of the block that is frozen, of what the writer adds, and of what it has changed.
            for _ in 0..6 {
                bank.engine.compact(Duration::ZERO);
                firn_base::thread::yield_now();
            }
        }
    });
    let freezer = task(&bank, |bank| {
        for _ in 0..8 {
            bank.engine.freeze(Duration::ZERO);
            firn_base::thread::yield_now();
        }
    });
    let writer = task(&bank, |bank| {
        for number in 0..TURNS {
            let mut tx = bank.engine.begin();
            turn(bank, &mut tx, number).expect("there is no other writer");
            if number == TAKEN_BACK { tx.rollback() } else { commit(tx) }
        }
    });
    let reader = task(&bank, {
        let (states, begun) = (states.clone(), begun.clone());
        move |bank| read(bank, &states, &begun)
    });
    join([merger, freezer, writer, reader]);
    // Whatever has happened to them: in the end the values of all three share their dictionaries.
    for _ in (0..200).take_while(|_| coded(&bank) < 3) {
        freeze_and_compact(&bank);
    }
    assert!(coded(&bank) >= 3, "{:?}", bank.accounts.block_usage().collect::<Vec<_>>());
    let tx = bank.engine.begin_read_only();
    assert_eq!(content(&scan(&bank, &tx, &[])), states[states.len() - 1]);
    tx.rollback();
    read(&bank, &states[states.len() - 1..], &begun);
}

#[test]
fn rows_show_the_same_while_their_block_is_given_codes_of_another_dictionary() {
    explore(merges);
    let repeated = std::env::var("FIRN_MODEL_SEED").is_ok();
    assert!(repeated || BESIDE.load(Ordering::Relaxed) > 0, "no task read during a merge");
}
