//! The indexes compared with the reference index, and with several threads.

use super::*;
use firn_base::Representation;
use firn_base::random::Random;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use firn_base::{BlockNumber, Slot, thread};

fn row(number: u64) -> RowId {
    RowId::new(BlockNumber(number >> 4), Slot(number as u32 & 15))
}

fn number_of(row: RowId) -> u64 {
    row.block().0 << 4 | u64::from(row.slot().0)
}

fn column(representation: Representation) -> IndexColumn {
    IndexColumn {
        column: ColumnId(0),
        representation,
        nullable: false,
        descending: false,
        nulls_first: false,
    }
}

fn spec(unique: bool, columns: Vec<IndexColumn>) -> IndexSpec {
    IndexSpec { id: IndexId(1), name: "orders_pkey".into(), columns, unique, values: true }
}

fn integers(index: &Index, numbers: &[i32]) -> KeyBuffer {
    let cells: Vec<Cell<'_>> = numbers.iter().map(|&number| Cell::i32(number)).collect();
    let mut key = KeyBuffer::new();
    index.encode(&cells, &mut key);
    key
}

fn rows_under(index: &Index, key: &[u8]) -> Vec<RowId> {
    let mut rows = Vec::new();
    index.lookup(key, &crate::pin(), &mut |row| {
        rows.push(row);
        true
    });
    rows.sort_unstable();
    rows
}

type Pairs = Vec<(KeyBuffer, RowId)>;

/// Up to `limit` pairs, those of one key in the order of their rows.
fn pairs(index: &Index, low: Bound<&[u8]>, high: Bound<&[u8]>, reverse: bool, limit: usize) -> Pairs {
    let mut pairs = Pairs::new();
    if limit > 0 {
        index.range(low, high, reverse, &crate::pin(), &mut |key, row| {
            pairs.push((KeyBuffer::from_slice(key), row));
            pairs.len() < limit
        });
    }
    pairs
}

fn sorted_within_keys(mut pairs: Pairs) -> Pairs {
    for run in pairs.chunk_by_mut(|a, b| a.0 == b.0) {
        run.sort_unstable();
    }
    pairs
}

/// Runs random operations on an index and the reference and compares every result.
#[test]
fn every_index_does_what_the_reference_does() {
    let seed = Random::from_entropy().next_u64();
    let random = &mut Random::seeded(seed);
    let flag = |random: &mut Random| random.uniform(0, 1) == 1;
    for round in 0..if cfg!(miri) { 1 } else { 200 } {
        let unique = flag(random);
        let columns = (0..random.uniform(1, 3))
            .map(|_| IndexColumn {
                nullable: flag(random),
                descending: flag(random),
                nulls_first: flag(random),
                ..column([Representation::Int32, Representation::Text][random.uniform(0, 1) as usize])
            })
            .collect();
        let index = Index::new(spec(unique, columns));
        let reference = Index::new_reference(index.spec().clone());
        // Text long enough that some keys do not fit into a leaf.
        let texts: Vec<String> =
            (0..6).map(|length| "ab\0é".repeat(length) + ["", "x"][length % 2]).collect();
        let some_key = |random: &mut Random, columns: usize| {
            let cells: Vec<Cell<'_>> = index.spec().columns[..columns]
                .iter()
                .map(|column| match column.representation {
                    _ if column.nullable && random.uniform(0, 3) == 0 => Cell::Null,
                    Representation::Int32 => Cell::i32(random.uniform(-3, 3) as i32),
                    _ => Cell::text(&texts[random.uniform(0, 5) as usize]),
                })
                .collect();
            let mut key = KeyBuffer::new();
            index.encode(&cells, &mut key);
            key
        };
        let full = index.spec().columns.len();
        let guard = &crate::pin();
        for step in 0..if cfg!(miri) { 40 } else { 150 } {
            let context = format!("seed {seed} round {round} step {step} {:?}", index.spec());
            let key = some_key(random, full);
            let row = row(random.next_u64() % 6);
            match random.uniform(0, 9) {
                0..=2 if unique => {
                    // Odd rows are alive, so they conflict with others.
                    let mut answers = [&index, &reference].map(|index| {
                        let mut judged = Vec::new();
                        let claimed = index.claim(&key, row, guard, &mut |other: RowId| {
                            judged.push(other);
                            if other.slot().0 % 2 == 1 { Err(()) } else { Ok(Verdict::Dead) }
                        });
                        judged.sort_unstable();
                        (claimed, judged)
                    });
                    for (claimed, judged) in &mut answers {
                        // Which of several rows stopped the claim is not defined.
                        if claimed.is_err() {
                            judged.clear();
                        }
                    }
                    assert_eq!(answers[0], answers[1], "{context}");
                }
                0..=2 => [&index, &reference].iter().for_each(|index| index.insert(&key, row, guard)),
                3 => [&index, &reference].iter().for_each(|index| index.remove(&key, row, guard)),
                4 => assert_eq!(rows_under(&index, &key), rows_under(&reference, &key), "{context}"),
                _ => {
                    let some_bound = |random: &mut Random| {
                        let prefix = random.uniform(0, full as i64) as usize;
                        let key = some_key(random, prefix);
                        match random.uniform(0, 4) {
                            0 => Bound::Unbounded,
                            1 | 2 => Bound::Included(key),
                            _ => Bound::Excluded(key),
                        }
                    };
                    let (low, high) = (some_bound(random), some_bound(random));
                    let (low, high) = (low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]));
                    let reverse = flag(random);
                    let expected = pairs(&reference, low, high, reverse, usize::MAX);
                    let found = pairs(&index, low, high, reverse, usize::MAX);
                    assert_eq!(
                        sorted_within_keys(found.clone()),
                        sorted_within_keys(expected),
                        "{context} {low:02x?} {high:02x?}"
                    );
                    let limit = random.uniform(0, 4) as usize;
                    let cut = &found[..limit.min(found.len())];
                    assert_eq!(pairs(&index, low, high, reverse, limit), cut, "{context}");
                }
            }
            assert_eq!(index.len(), reference.len(), "{context}");
        }
        index.verify();
        reference.verify();
    }
}

#[test]
fn bounds_that_are_prefixes_mean_every_key_that_begins_so() {
    for index in [false, true].map(|unique| Index::new(spec(unique, vec![column(Representation::Int32); 2])))
    {
        let guard = &crate::pin();
        let keys = [[1, 1], [1, 2], [2, i32::MIN], [2, i32::MAX], [3, 0]];
        index
            .bulk_load(keys.iter().zip(0..).map(|(key, number)| (integers(&index, key), row(number))), guard)
            .unwrap();
        let found = |low, high| -> Vec<u64> {
            let (low, high): (Bound<KeyBuffer>, Bound<KeyBuffer>) = (low, high);
            let (low, high) = (low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]));
            let mut rows: Vec<u64> =
                pairs(&index, low, high, false, 9).iter().map(|pair| number_of(pair.1)).collect();
            let backward: Vec<u64> =
                pairs(&index, low, high, true, 9).iter().rev().map(|pair| number_of(pair.1)).collect();
            assert_eq!(rows, backward);
            rows.dedup();
            rows
        };
        let key = |numbers: &[i32]| integers(&index, numbers);
        assert_eq!(found(Bound::Included(key(&[2])), Bound::Included(key(&[2]))), [2, 3]);
        assert_eq!(found(Bound::Excluded(key(&[1])), Bound::Excluded(key(&[3]))), [2, 3]);
        assert_eq!(found(Bound::Included(key(&[1, 2])), Bound::Unbounded), [1, 2, 3, 4]);
        assert_eq!(found(Bound::Excluded(key(&[1, 2])), Bound::Included(key(&[2]))), [2, 3]);
        assert_eq!(found(Bound::Included(key(&[3])), Bound::Included(key(&[1]))), [0u64; 0]);
        assert_eq!(found(Bound::Excluded(key(&[2])), Bound::Excluded(key(&[2]))), [0u64; 0]);
    }
}

#[test]
fn keys_that_contain_a_null_conflict_with_none() {
    let nullable = IndexColumn { nullable: true, ..column(Representation::Int32) };
    let index = Index::new(spec(true, vec![column(Representation::Int32), nullable]));
    let guard = &crate::pin();
    let mut key = KeyBuffer::new();
    index.encode(&[Cell::i32(1), Cell::Null], &mut key);
    for number in 0..5 {
        index.claim(&key, row(number), guard, &mut |_| Err("judged")).unwrap();
    }
    assert_eq!(rows_under(&index, &key), [0, 1, 2, 3, 4].map(row));
    index.remove(&key, row(2), guard);
    assert_eq!(rows_under(&index, &key), [0, 1, 3, 4].map(row));
    let found = pairs(&index, Bound::Included(&key), Bound::Included(&key), true, 2);
    assert_eq!(found, [(key.clone(), row(4)), (key.clone(), row(3))]);
    index.verify();
}

#[test]
fn a_bulk_load_reports_the_key_that_two_rows_have() {
    let index = Index::new(spec(true, vec![column(Representation::Int32)]));
    let keys = [4, 2, 7, 2, 4].map(|number| integers(&index, &[number]));
    let duplicate = index.bulk_load(keys.iter().zip((0..).map(row)), &crate::pin()).unwrap_err();
    assert_eq!(duplicate, Duplicate { key: integers(&index, &[2]), rows: [row(1), row(3)] });
    assert_eq!(index.len(), 3);
}

#[test]
fn going_the_ways_to_keys_ahead_changes_nothing() {
    let guard = &crate::pin();
    let indexes =
        [false, true].map(|unique| Index::new(spec(unique, vec![column(Representation::Int32); 2])));
    let [pairs, unique] = &indexes;
    let keys = [[1, 1], [1, 2], [7, 300]].map(|key| integers(unique, &key));
    for index in &indexes {
        index.bulk_load(keys.iter().zip((0..).map(row)), guard).unwrap();
    }
    let absent = integers(unique, &[1, 3]);
    let prefix = integers(unique, &[7]);
    let ways: Vec<(&Index, &[u8])> = [pairs, unique]
        .into_iter()
        .flat_map(|index| [&keys[2], &absent, &prefix].map(|key| (&**index, &key[..])))
        .collect();
    Index::approach(&[], guard);
    Index::approach(&ways, guard);
    Index::approach(&ways.repeat(5), guard);
    for index in &indexes {
        assert_eq!(rows_under(index, &keys[2]), [row(2)]);
        assert_eq!(index.len(), 3);
    }
}

#[test]
fn a_key_may_change_hands_over_and_over() {
    let index = Index::new(spec(true, vec![column(Representation::Int32)]));
    let guard = &crate::pin();
    let key = &integers(&index, &[1])[..];
    let dead = &mut |_| Ok::<_, ()>(Verdict::Dead);
    index.claim(key, row(0), guard, dead).unwrap();
    for turn in 0..if cfg!(miri) { 50 } else { 5_000 } {
        let (old, new) = (row(turn % 2), row((turn + 1) % 2));
        index.claim(key, new, guard, dead).unwrap();
        assert_eq!(rows_under(&index, key).len(), 2);
        index.remove(key, old, guard);
        assert_eq!(rows_under(&index, key), [new]);
        assert_eq!(index.len(), 1);
        index.verify();
    }
    index.remove(key, row(0), guard);
    assert!(index.is_empty());
}

/// A removal that was decided before the row was listed again must not take place.
#[test]
fn a_row_that_is_listed_anew_is_asked_about_again() {
    for unique in [false, true] {
        let index = Index::new(spec(unique, vec![column(Representation::Int32)]));
        let guard = &crate::pin();
        let key = &integers(&index, &[1])[..];
        let list = || match unique {
            true => index.claim(key, row(1), guard, &mut |_| Err(())).unwrap(),
            false => index.insert(key, row(1), guard),
        };
        list();
        let mut asked = 0;
        index.remove_if(key, row(1), guard, &mut || {
            asked += 1;
            if asked == 1 {
                list();
            }
            asked == 1
        });
        assert_eq!(asked, 2);
        assert_eq!(rows_under(&index, key), [row(1)]);
    }
}

/// Threads compete for a few keys. Each owns its rows and marks a row alive before it claims a key for it, as
/// storage does; a judge that finds a row alive refuses.
fn fight(index: Arc<Index>) {
    const THREADS: u64 = 4;
    const KEYS: u64 = 3;
    const ROWS: u64 = 4;
    const TURNS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    /// The number of the key of a row, plus one; 0 while it is dead.
    struct Arena {
        index: Arc<Index>,
        held: Vec<AtomicU64>,
        owners: Vec<AtomicU64>,
        stop: AtomicBool,
    }
    let arena = Arc::new(Arena {
        index,
        held: (0..THREADS * ROWS).map(|_| AtomicU64::new(0)).collect(),
        owners: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
    });
    let fighters: Vec<_> = (0..THREADS)
        .map(|thread| {
            let arena = arena.clone();
            thread::spawn("fighter", move || {
                let random = &mut Random::seeded(thread);
                let mut wins = 0;
                for _ in 0..TURNS {
                    let guard = &crate::pin();
                    let mine = thread * ROWS + random.next_u64() % ROWS;
                    let key_number = random.next_u64() % KEYS;
                    let key = &integers(&arena.index, &[key_number as i32])[..];
                    arena.held[mine as usize].store(key_number + 1, Ordering::SeqCst);
                    let claimed = arena.index.claim(key, row(mine), guard, &mut |other| {
                        let held = arena.held[number_of(other) as usize].load(Ordering::SeqCst);
                        if held == key_number + 1 { Err(()) } else { Ok(Verdict::Dead) }
                    });
                    if claimed.is_ok() {
                        wins += 1;
                        let owners = &arena.owners[key_number as usize];
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "two rows hold one key");
                        assert!(rows_under(&arena.index, key).contains(&row(mine)), "the row is not listed");
                        owners.fetch_sub(1, Ordering::SeqCst);
                    }
                    arena.held[mine as usize].store(0, Ordering::SeqCst);
                    // Some dead rows are left for other threads to judge.
                    if random.uniform(0, 2) > 0 {
                        arena.index.remove(key, row(mine), guard);
                    }
                }
                wins
            })
        })
        .collect();
    let reader = {
        let arena = arena.clone();
        thread::spawn("reader", move || {
            while !arena.stop.load(Ordering::Relaxed) {
                let found = pairs(&arena.index, Bound::Unbounded, Bound::Unbounded, false, usize::MAX);
                assert!(found.is_sorted_by(|a, b| a.0 <= b.0));
            }
        })
    };
    let wins: u64 = fighters.into_iter().map(|fighter| fighter.join().expect("no assertion failed")).sum();
    arena.stop.store(true, Ordering::Relaxed);
    reader.join().expect("the order holds");
    assert!(wins > TURNS / 10, "only {wins} claims went through");
    arena.index.verify();
    for key_number in 0..KEYS {
        let key = integers(&arena.index, &[key_number as i32]);
        for number in 0..THREADS * ROWS {
            arena.index.remove(&key, row(number), &crate::pin());
        }
    }
    assert!(arena.index.is_empty());
    arena.index.verify();
}

#[test]
fn a_unique_key_has_one_owner_at_a_time() {
    fight(Index::new(spec(true, vec![column(Representation::Int32)])));
}

#[test]
fn a_unique_key_of_the_reference_has_one_owner_at_a_time() {
    fight(Index::new_reference(spec(true, vec![column(Representation::Int32)])));
}

/// Scans run while other threads insert and remove around constant keys.
#[test]
fn a_scan_sees_every_constant_key() {
    let index = Index::new(spec(false, vec![column(Representation::Int32)]));
    let guard = &crate::pin();
    let constant: Vec<u64> = (0..1000u64).filter(|number| number.is_multiple_of(10)).collect();
    for &number in &constant {
        index.insert(&integers(&index, &[number as i32]), row(number), guard);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|seed| {
            let (index, stop) = (index.clone(), stop.clone());
            thread::spawn("writer", move || {
                let random = &mut Random::seeded(seed);
                while !stop.load(Ordering::Relaxed) {
                    let guard = &crate::pin();
                    let number = random.next_u64() % 1000;
                    if !number.is_multiple_of(10) {
                        let key = integers(&index, &[number as i32]);
                        match random.uniform(0, 1) {
                            0 => index.insert(&key, row(number), guard),
                            _ => index.remove(&key, row(number), guard),
                        }
                    }
                }
            })
        })
        .collect();
    for turn in 0..if cfg!(miri) { 2 } else { 400 } {
        let reverse = turn % 2 == 1;
        let mut found = pairs(&index, Bound::Unbounded, Bound::Unbounded, reverse, usize::MAX);
        if reverse {
            found.reverse();
        }
        assert!(found.is_sorted_by(|a, b| a < b));
        let found: Vec<u64> =
            found.iter().map(|pair| number_of(pair.1)).filter(|number| number.is_multiple_of(10)).collect();
        assert_eq!(found, constant);
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no assertion failed"));
    index.verify();
}
