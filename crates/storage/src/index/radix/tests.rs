//! The tree compared with a sorted map, and with several threads.

use super::*;
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool};
use firn_base::thread;
use std::collections::BTreeMap;

type Key = Vec<u8>;

/// Keys of one shape, of which none is a prefix of another: dense and sparse numbers, consecutive numbers,
/// and strings with long common parts.
fn some_key(shape: i64, random: &mut Random) -> Key {
    let number = |random: &mut Random, most| random.uniform(0, most);
    match shape {
        0 => (number(random, 600) as u32).to_be_bytes().to_vec(),
        1 => (random.next_u64() & 0x00ff_0000_ff00_00ff).to_be_bytes().to_vec(),
        2 => {
            let (order, line) = (number(random, 40) as u32, number(random, 14) as u32);
            [1, order, line].iter().flat_map(|part: &u32| part.to_be_bytes()).collect()
        }
        _ => {
            let mut key = b"common beginnings ".repeat(number(random, 2) as usize);
            key.extend_from_slice(&b"abcdefghijklmnopqrstuvwxyz"[..number(random, 26) as usize]);
            key.extend(std::iter::repeat_n(b'z', number(random, 3) as usize));
            key.push(0);
            key
        }
    }
}

fn found(tree: &Tree, low: &[u8], high: Option<&[u8]>, reverse: bool) -> Vec<(Key, u64)> {
    let mut found = Vec::new();
    tree.range(Span { low, high }, reverse, &crate::pin(), &mut |_| {}, &mut |key, value| {
        found.push((key.to_vec(), value));
        true
    });
    found
}

fn expected(model: &BTreeMap<Key, u64>, low: &[u8], high: Option<&[u8]>, reverse: bool) -> Vec<(Key, u64)> {
    let within = |key: &Key| &key[..] >= low && high.is_none_or(|high| &key[..] < high);
    let mut expected: Vec<_> =
        model.iter().filter(|(key, _)| within(key)).map(|(key, value)| (key.clone(), *value)).collect();
    if reverse {
        expected.reverse();
    }
    expected
}

#[test]
fn a_tree_does_what_a_sorted_map_does() {
    let seed = Random::from_entropy().next_u64();
    let random = &mut Random::seeded(seed);
    let (mut runs, mut ascending) = (0, 0);
    for round in 0..if cfg!(miri) { 4 } else { 120 } {
        let shape = round % 4;
        let guard = &crate::pin();
        let (tree, mut model) = (Tree::new(), BTreeMap::new());
        // First it mostly grows, then it mostly shrinks.
        let steps = if cfg!(miri) { 120 } else { 3_000 };
        for step in 0..steps {
            let context = format!("seed {seed} round {round} step {step}");
            let key = some_key(shape, random);
            let value = random.next_u64() >> 4;
            let grows = (step < steps / 2) == (random.uniform(0, 4) > 0);
            match random.uniform(0, 7) {
                // Hundreds for nodes of all sizes, few for places between others.
                7 if grows && shape < 3 && step % 3 == 0 => {
                    let count = [2, 20, 400][random.uniform(0, if step % 60 == 0 { 2 } else { 1 }) as usize];
                    let mut keys: Vec<Key> = (0..count).map(|_| some_key(shape, random)).collect();
                    keys.sort_unstable();
                    keys.dedup();
                    let left = enter_ascending(&tree, &keys, step as u64, guard);
                    for (at, key) in keys.into_iter().enumerate() {
                        if left.iter().any(|part| part.contains(&at)) {
                            assert_eq!(tree.get(&key, guard), model.get(&key).copied(), "{context}");
                        } else {
                            assert_eq!(tree.get(&key, guard), Some(step as u64 + at as u64), "{context}");
                            assert_eq!(model.insert(key, (step + at) as u64), None, "{context}");
                            ascending += 1;
                        }
                    }
                }
                0 if grows && shape < 3 => {
                    let mut key = key;
                    let last = key.len() - 1;
                    let mut bytes: Vec<u8> =
                        (0..random.uniform(1, 20)).map(|_| random.uniform(0, 255) as u8).collect();
                    bytes.sort_unstable();
                    bytes.dedup();
                    key[last] = bytes[0];
                    let entries: Vec<(u8, u64)> = bytes.iter().map(|byte| (*byte, value)).collect();
                    let inserted = tree.insert_run(&key, &entries, guard);
                    for byte in bytes {
                        key[last] = byte;
                        assert!(!inserted || !model.contains_key(&key), "{context}");
                        if inserted {
                            model.insert(key.clone(), value);
                        }
                        assert_eq!(tree.get(&key, guard), model.get(&key).copied(), "{context}");
                    }
                    runs += usize::from(inserted);
                }
                0..=4 if grows => match model.get(&key) {
                    Some(known) => assert_eq!(tree.insert(&key, value, guard), Err(*known), "{context}"),
                    None => {
                        assert_eq!(tree.insert(&key, value, guard), Ok(()), "{context}");
                        model.insert(key, value);
                    }
                },
                0..=4 => {
                    let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                    let seen = tree.look(&key, guard);
                    assert_eq!(seen.value, model.get(&key).copied(), "{context}");
                    assert_eq!(
                        tree.replace(&key, seen, None, guard),
                        model.remove(&key).is_some(),
                        "{context}"
                    );
                }
                5 => {
                    let seen = tree.look(&key, guard);
                    let replaced = tree.replace(&key, seen, Some(value), guard);
                    assert_eq!(replaced, model.contains_key(&key), "{context}");
                    if replaced {
                        model.insert(key.clone(), value);
                        assert!(!tree.replace(&key, seen, None, guard), "{context}: it has changed since");
                    }
                }
                6 => {
                    let keys: Vec<Key> =
                        (0..random.uniform(0, 16)).map(|_| some_key(shape, random)).collect();
                    let mut values = vec![None; keys.len()];
                    tree.get_many(&keys, &mut values, guard);
                    let known: Vec<_> = keys.iter().map(|key| model.get(key).copied()).collect();
                    assert_eq!(values, known, "{context}");
                }
                _ if step % 5 == 0 => {
                    // Bounds are keys, prefixes of keys, or strings in between.
                    let mut bound = || {
                        let mut key = some_key(shape, random);
                        key.truncate(random.uniform(0, 12) as usize);
                        key
                    };
                    let (low, high) = (bound(), Some(bound()).filter(|high| !high.is_empty()));
                    for reverse in [false, true] {
                        assert_eq!(
                            found(&tree, &low, high.as_deref(), reverse),
                            expected(&model, &low, high.as_deref(), reverse),
                            "{context} {low:?} {high:?} {reverse}"
                        );
                    }
                }
                _ => assert_eq!(tree.get(&key, guard), model.get(&key).copied(), "{context}"),
            }
        }
        tree.verify();
        assert_eq!(found(&tree, &[], None, false), expected(&model, &[], None, false));
        for key in model.into_keys() {
            assert!(tree.replace(&key, tree.look(&key, guard), None, guard));
        }
        tree.verify();
        assert_eq!(found(&tree, &[], None, true), []);
    }
    assert!(runs > 0 && ascending > 0, "no run was ever entered at once");
}

/// Inserts keys of one length, with values that count from `first`. Returns those that are left.
fn enter_ascending(tree: &Tree, keys: &[Key], first: u64, guard: &Guard) -> Left {
    let number = |key: &Key| key.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
    let numbers: Vec<u128> = keys.iter().map(number).collect();
    let value = |at| first + at as u64;
    tree.insert_ascending(&Numbers { keys: &numbers, width: keys[0].len(), below: 0, value }, guard)
}

/// In places without other keys each node is made once and in its final size, and none remains if another one
/// was first.
#[test]
fn ascending_keys_are_entered_together_but_for_those_that_are_there() {
    let guard = &crate::pin();
    let key = |order: u64, line: u32| [&order.to_be_bytes()[..], &line.to_be_bytes()].concat();
    // As many lines as an order has, a single one among them; more orders than a node has room for, close and
    // far apart.
    let orders = [0..9, 300..301, 7_000..if cfg!(miri) { 7_040 } else { 8_000 }, 1 << 40..(1 << 40) + 60];
    let keys: Vec<Key> = orders
        .into_iter()
        .flatten()
        .flat_map(|order| (0..=order as u32 % 23).map(move |line| key(order, line)))
        .collect();
    let (at_once, one_by_one) = (Tree::new(), Tree::new());
    assert!(enter_ascending(&at_once, &keys, 5, guard).is_empty());
    at_once.verify();
    for (key, value) in keys.iter().zip(5..) {
        assert_eq!(at_once.get(key, guard), Some(value));
        one_by_one.insert(key, value, guard).unwrap();
    }
    assert_eq!(found(&at_once, &[], None, false), found(&one_by_one, &[], None, false));
    // Nodes that were made at once are no larger, and their bytes are counted.
    let _before = take_growth();
    let all = Tree::new();
    assert!(enter_ascending(&all, &keys, 5, guard).is_empty());
    let empty = Tree::new();
    assert_eq!(
        take_growth() as usize,
        all.memory_bytes(guard) + empty.memory_bytes(guard) - 2 * size_of_val(&*empty.changes)
    );
    assert!(all.memory_bytes(guard) <= one_by_one.memory_bytes(guard));
    // Existing keys are left. A line of an existing order, and those beside a leaf, are not.
    let (taken, again, free, line) = (key(300, 0), key(300, 1), key(6_999, 0), key(7_001, 40));
    let left = enter_ascending(&at_once, &[taken, again, free.clone(), line.clone()], 0, guard);
    assert_eq!(left.into_iter().flatten().collect::<Vec<usize>>(), [0, 1]);
    for beside in
        [vec![key(6_999, 1), key(6_999, 300)], vec![key(6_990, 7)], vec![key(6_998, 1), key(6_999, 9)]]
    {
        assert!(enter_ascending(&at_once, &beside, 9, guard).is_empty());
        assert!(beside.iter().zip(9..).all(|(key, value)| at_once.get(key, guard) == Some(value)));
    }
    assert_eq!([&free, &line].map(|key| at_once.get(key, guard)), [Some(2), Some(3)]);
    at_once.verify();
}

/// Keys with long common parts are below a chain of nodes, which is removed together with them.
#[test]
fn a_long_chain_of_nodes_goes_with_the_keys_below_it() {
    let (tree, guard) = (Tree::new(), &crate::pin());
    let shared = vec![7; if cfg!(miri) { 100 } else { 200_000 }];
    let keys: Vec<Key> = (1..=3).map(|last| [&shared[..], &[last]].concat()).collect();
    let empty = tree.memory_bytes(guard);
    for _ in 0..2 {
        for (key, number) in keys.iter().zip(0..) {
            assert_eq!(tree.insert(key, number, guard), Ok(()));
        }
        assert_eq!(tree.get(&keys[1], guard), Some(1));
        for key in &keys {
            assert!(tree.replace(key, tree.look(key, guard), None, guard));
        }
        tree.verify();
        assert_eq!(tree.memory_bytes(guard), empty);
    }
}

/// A scan continues at its position when its callback changes the tree below it.
#[test]
fn a_scan_outlives_changes_to_the_nodes_it_stands_in() {
    for reverse in [false, true] {
        let (tree, guard) = (Tree::new(), &crate::pin());
        let key = |number: u64| (number * 3).to_be_bytes();
        let (count, end) = if cfg!(miri) { (60, 55) } else { (300, 290) };
        (0..count).for_each(|number| tree.insert(&key(number), number, guard).unwrap());
        let mut visited = Vec::new();
        tree.range(
            Span { low: &key(7), high: Some(&key(end)) },
            reverse,
            guard,
            &mut |_| {},
            &mut |_, number| {
                if number % 3 == 0 {
                    visited.push(number);
                }
                // The node grows and shrinks around the position, and the position's own key is removed.
                let neighbour = (number * 3 + 1).to_be_bytes();
                assert!(tree.insert(&neighbour, 3 * number + 1_000_000, guard).is_ok());
                if number % 2 == 0 {
                    assert!(tree.replace(&key(number), tree.look(&key(number), guard), None, guard));
                }
                assert!(tree.replace(&neighbour, tree.look(&neighbour, guard), None, guard));
                true
            },
        );
        if reverse {
            visited.reverse();
        }
        assert_eq!(visited, (7..end).filter(|number| number % 3 == 0).collect::<Vec<_>>());
        tree.verify();
    }
}

/// A key of two numbers, of which the second one has five bits.
fn key_of_two(number: u64) -> Key {
    let number = number as u32;
    [number >> 5, number & 31].iter().flat_map(|part| part.to_be_bytes()).collect()
}

/// Threads insert and remove, each its own keys among those of the others, while readers look up and scan
/// constant keys. Nodes grow, shrink, split and are removed all the time.
#[test]
fn threads_do_not_disturb_each_others_keys() {
    const THREADS: u64 = 3;
    const TURNS: u64 = if cfg!(miri) { 60 } else { 60_000 };
    // Every fourth key is constant; the others belong to the threads.
    let key = key_of_two;
    let space = if cfg!(miri) { 64 } else { 1024 };
    let (tree, stop) = (Arc::new(Tree::new()), Arc::new(AtomicBool::new(false)));
    let constant: Vec<u64> = (0..space).step_by(4).collect();
    constant.iter().for_each(|&number| tree.insert(&key(number), number, &crate::pin()).unwrap());
    let writers: Vec<_> = (1..=THREADS)
        .map(|thread| {
            let tree = tree.clone();
            thread::spawn("writer", move || {
                let random = &mut Random::seeded(thread);
                let mut own = BTreeMap::new();
                // Ranges of keys are inserted and removed, so that whole nodes are.
                for turn in 0..TURNS {
                    let guard = &crate::pin();
                    let base = turn / 64 * 64 % space;
                    let number = (base + random.next_u64() % 64) / 4 * 4 + thread;
                    let key = key(number % space);
                    let seen = tree.look(&key, guard);
                    assert_eq!(seen.value, own.get(&key).copied());
                    if turn % 128 < 64 && turn % 16 == 0 {
                        let from = number % space;
                        let keys: Vec<Key> =
                            (from..space.min(from + 90)).step_by(4).map(key_of_two).collect();
                        let left = enter_ascending(&tree, &keys, turn, guard);
                        for (at, key) in keys.into_iter().enumerate() {
                            if !left.iter().any(|part| part.contains(&at)) {
                                assert_eq!(own.insert(key, turn + at as u64), None);
                            }
                        }
                    } else if turn % 128 < 64 && number % 32 < 20 {
                        let last = key[key.len() - 1];
                        let run: Vec<(u8, u64)> = (0..3).map(|step| (last + 4 * step, turn)).collect();
                        if tree.insert_run(&key, &run, guard) {
                            for (last, turn) in run {
                                let mut key = key.clone();
                                *key.last_mut().unwrap() = last;
                                assert_eq!(own.insert(key, turn), None);
                            }
                        }
                    } else if seen.value.is_none() && turn % 128 < 64 {
                        assert_eq!(tree.insert(&key, turn, guard), Ok(()));
                        own.insert(key, turn);
                    } else if seen.value.is_some() {
                        let new = (turn % 128 < 64).then_some(turn);
                        // Another key may share the counter.
                        if tree.replace(&key, seen, new, guard) {
                            own.remove(&key);
                            own.extend(new.map(|new| (key, new)));
                        }
                    }
                }
                own
            })
        })
        .collect();
    let readers: Vec<_> = [false, true]
        .map(|reverse| {
            let (tree, stop, constant) = (tree.clone(), stop.clone(), constant.clone());
            thread::spawn("reader", move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut all = found(&tree, &[], None, reverse);
                    if reverse {
                        all.reverse();
                    }
                    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
                    let there: Vec<_> = constant.iter().map(|&number| (key(number), number)).collect();
                    let seen: Vec<_> = all.into_iter().filter(|(key, _)| key[7] % 4 == 0).collect();
                    assert_eq!(seen, there);
                    let keys: Vec<Key> = constant.iter().take(AT_ONCE).map(|&number| key(number)).collect();
                    let mut values = vec![None; keys.len()];
                    tree.get_many(&keys, &mut values, &crate::pin());
                    assert!(values.iter().zip(&constant).all(|(value, number)| *value == Some(*number)));
                }
            })
        })
        .into();
    let mut model: BTreeMap<Key, u64> = constant.iter().map(|&number| (key(number), number)).collect();
    for writer in writers {
        model.extend(writer.join().expect("no assertion failed"));
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("no assertion failed"));
    tree.verify();
    assert_eq!(found(&tree, &[], None, false), expected(&model, &[], None, false));
}
