//! Random concurrent histories compared with a simple model.
//!
//! Threads run random transactions on few keys. Each records its read time, everything it read, and its
//! writes with the commit time. Afterwards the committed writes are replayed in the order of their times into
//! a map. Every read is compared with the map at its read time, plus the transaction's own writes. These
//! invariants are checked:
//! - snapshot reads (points and scans);
//! - first-updater-wins: no two overlapping transactions both wrote a row;
//! - unique keys;
//! - a serializable transaction that wrote would have read the same right before its commit, also if it has
//!   advanced to a later snapshot meanwhile;
//! - while a lock is held, no other transaction commits a conflicting change.

use crate::support::Bank;
use firn_base::random::Random;
use firn_base::{SqlState, Time};
use firn_txn::{Isolation, RowLock};
use std::collections::{BTreeMap, HashMap};

type State = BTreeMap<i32, i64>;

/// The operations of transactions.
#[derive(Clone, Copy)]
pub struct Workload {
    pub isolation: Isolation,
    /// The number of keys, from 0.
    pub keys: i32,
    /// The largest number of operations of a transaction.
    pub operations: i64,
    /// Whether they scan: that takes long, and so reduces conflicts.
    pub scans: bool,
}

/// The record of one transaction.
pub struct Entry {
    read_time: Time,
    /// `None` if it rolled back.
    pub commit_time: Option<Time>,
    /// Writes in order: key and new balance, `None` for a delete.
    writes: Vec<(i32, Option<i64>)>,
    /// Reads in order, each with the number of own writes before it.
    points: Vec<(usize, i32, Option<i64>)>,
    scans: Vec<(usize, Vec<(i32, i64)>)>,
    /// Locks, each with the time at which its row was read.
    locks: Vec<(Time, i32, RowLock)>,
    /// A time up to which they were held.
    held_until: Time,
}

/// Runs one transaction; `stamp` makes the values that it writes unique.
pub fn run_transaction(bank: &Bank, workload: Workload, random: &mut Random, stamp: &mut i64) -> Entry {
    let Workload { isolation, keys, operations, scans } = workload;
    let mut tx = bank.engine.try_begin(isolation).unwrap();
    let mut entry = Entry {
        read_time: tx.snapshot().read_time,
        commit_time: None,
        writes: Vec::new(),
        points: Vec::new(),
        scans: Vec::new(),
        locks: Vec::new(),
        held_until: Time(0),
    };
    for _ in 0..random.uniform(1, operations) {
        let key = random.uniform(0, i64::from(keys) - 1) as i32;
        *stamp += 1;
        let found = bank.balance(&tx, key);
        entry.points.push((entry.writes.len(), key, found));
        let savepoint = tx.savepoint();
        let statement = tx.begin_statement();
        let outcome = match (random.uniform(0, 9), found) {
            (0, _) if scans => {
                entry.scans.push((entry.writes.len(), bank.scan(&tx)));
                continue;
            }
            (1, _) => continue,
            (2, Some(_)) => {
                let locks = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];
                let lock = locks[random.uniform(0, 3) as usize];
                // A row to which it has given this key itself: before, others may have had one with it.
                if entry.writes.iter().any(|(written, _)| *written == key) {
                    continue;
                }
                bank.lock(&mut tx, key, lock).map(|()| {
                    entry.locks.push((tx.snapshot().read_time, key, lock));
                    Vec::new()
                })
            }
            (3, Some(_)) => bank.delete(&mut tx, key).map(|()| vec![(key, None)]),
            (4, Some(balance)) => {
                let other = random.uniform(0, i64::from(keys) - 1) as i32;
                if other == key || bank.balance(&tx, other).is_some() {
                    continue;
                }
                bank.set_key(&mut tx, key, other).map(|()| vec![(key, None), (other, Some(balance))])
            }
            (_, Some(_)) => bank.set_balance(&mut tx, key, *stamp).map(|()| vec![(key, Some(*stamp))]),
            (_, None) => bank.insert(&mut tx, key, *stamp).map(|_| vec![(key, Some(*stamp))]),
        };
        match outcome {
            Ok(writes) if random.uniform(0, 9) == 0 => {
                // Rolled back: nothing of it may be visible.
                if writes.is_empty() {
                    entry.locks.pop();
                }
                tx.rollback_to(savepoint);
            }
            Ok(writes) => entry.writes.extend(writes),
            Err(error) => {
                // A key that is free in the snapshot may have been taken by a later commit.
                let expected = [SqlState::SERIALIZATION_FAILURE, SqlState::UNIQUE_VIOLATION];
                assert!(expected.contains(&error.state()), "{error:?}");
                if error.state() == SqlState::UNIQUE_VIOLATION || random.uniform(0, 3) == 0 {
                    entry.held_until = bank.engine.now();
                    return entry;
                }
                // The other one may have ended by now; and the reads may still be valid.
                entry.held_until = bank.engine.now();
                if tx.restart(&statement).is_err() {
                    return entry;
                }
                entry.read_time = tx.snapshot().read_time;
            }
        }
    }
    entry.held_until = bank.engine.now();
    if random.uniform(0, 9) > 0 {
        let has_written = tx.has_writes();
        match tx.commit() {
            Ok(ticket) => entry.commit_time = (!entry.writes.is_empty()).then_some(ticket.time),
            Err(error) => {
                assert_eq!(isolation, Isolation::Serializable, "{error}");
                assert!(has_written, "reading alone never fails");
                assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
            }
        }
    }
    entry
}

/// Runs a transaction that only reads, everything, again and again.
pub fn run_reader(bank: &Bank, workload: Workload) -> Entry {
    let tx = bank.engine.begin_read_only();
    let mut entry = Entry {
        read_time: tx.snapshot().read_time,
        commit_time: None,
        writes: Vec::new(),
        points: Vec::new(),
        scans: Vec::new(),
        locks: Vec::new(),
        held_until: Time(0),
    };
    for _ in 0..workload.operations {
        entry.points.extend((0..workload.keys).map(|key| (0, key, bank.balance(&tx, key))));
        if workload.scans {
            entry.scans.push((0, bank.scan(&tx)));
        }
    }
    entry
}

/// Panics if the transactions violate the guarantees of `isolation`.
pub fn check(mut entries: Vec<Entry>, isolation: Isolation, seed: u64) {
    // Replay the commits, keeping the state at every commit time.
    let mut states: BTreeMap<Time, State> = BTreeMap::from([(Time(0), State::new())]);
    entries.sort_by_key(|entry| entry.commit_time);
    let mut last_writer: HashMap<i32, Time> = HashMap::new();
    let mut changes: HashMap<i32, Vec<(Time, Option<i64>)>> = HashMap::new();
    for entry in &entries {
        let Some(time) = entry.commit_time else { continue };
        let mut state = states.last_key_value().unwrap().1.clone();
        let seen = states.range(..=entry.read_time).next_back().unwrap().1;
        // Only the final state of each key counts. A row that it inserted and deleted again has no effect:
        // meanwhile another transaction may have taken the key.
        let net: BTreeMap<i32, Option<i64>> = entry.writes.iter().copied().collect();
        for (key, balance) in net.into_iter().filter(|(key, left)| left.is_some() || seen.contains_key(key)) {
            changes.entry(key).or_default().push((time, balance));
            // A key that the transaction did not see may have been inserted and deleted meanwhile.
            let before = last_writer.insert(key, time);
            let unseen = before.is_some_and(|before| before > entry.read_time);
            assert!(!unseen || !seen.contains_key(&key), "seed {seed}: lost update of {key}");
            let was_there = match balance {
                Some(balance) => state.insert(key, balance).is_some(),
                None => state.remove(&key).is_some(),
            };
            let known = seen.contains_key(&key);
            assert_eq!(was_there, known, "seed {seed}: {key} at {time:?} was written as if it were not");
        }
        states.insert(time, state);
    }
    for entry in &entries {
        for (since, key, lock) in &entry.locks {
            let during = |time: &Time| time > since && *time <= entry.held_until;
            let own = |time: &Time| entry.commit_time == Some(*time);
            for (time, left) in changes.get(key).into_iter().flatten() {
                let kept_away = *lock > RowLock::KeyShare || left.is_none();
                assert!(
                    !during(time) || own(time) || !kept_away,
                    "seed {seed}: {key} was locked {lock:?} from {since:?} to {:?} and changed at {time:?}",
                    entry.held_until
                );
            }
        }
        check_reads(entry, states.range(..=entry.read_time).next_back().unwrap().1, seed);
        if isolation == Isolation::Serializable
            && let Some(time) = entry.commit_time
        {
            check_reads(entry, states.range(..time).next_back().unwrap().1, seed);
        }
    }
}

/// Whether a transaction reads what it read if it runs on this state.
fn check_reads(entry: &Entry, state: &State, seed: u64) {
    let at = |writes: usize| {
        let mut state = state.clone();
        for (key, balance) in &entry.writes[..writes] {
            match balance {
                Some(balance) => state.insert(*key, *balance),
                None => state.remove(key),
            };
        }
        state
    };
    for (writes, key, found) in &entry.points {
        assert_eq!(at(*writes).get(key), found.as_ref(), "seed {seed}: key {key} at {:?}", entry.read_time);
    }
    for (writes, rows) in &entry.scans {
        let expected: Vec<(i32, i64)> = at(*writes).into_iter().collect();
        assert_eq!(&expected, rows, "seed {seed}: scan at {:?}", entry.read_time);
    }
}
