//! The time of index operations: prints nanoseconds per insert, look-up and range with a million keys in
//! random order, and a checksum of what was found.
//!
//! `cargo run --release -p firn-storage --example index_speed [keys]`

use firn_base::clock::now;
use firn_base::random::Random;
use firn_base::{BlockNumber, Cell, ColumnId, Representation, RowId, Slot};
use firn_storage::index::Verdict;
use firn_storage::{Guard, Index, IndexColumn, IndexId, IndexSpec, KeyBuffer, pin};
use std::hint::black_box;
use std::ops::Bound;

fn index(unique: bool) -> std::sync::Arc<Index> {
    let column = IndexColumn {
        column: ColumnId(0),
        representation: Representation::Int32,
        nullable: false,
        descending: false,
        nulls_first: false,
    };
    // As in TPC-C's order line: three columns of four bytes.
    Index::new(IndexSpec {
        id: IndexId(1),
        name: "speed".into(),
        columns: vec![column; 3],
        unique,
        values: true,
    })
}

fn key(index: &Index, number: i64) -> KeyBuffer {
    let mut key = KeyBuffer::new();
    let number = number as i32;
    index.encode(&[Cell::i32(number >> 16), Cell::i32(number >> 8 & 255), Cell::i32(number & 255)], &mut key);
    key
}

fn timed(what: &str, count: i64, mut body: impl FnMut(&Guard, i64) -> u64) {
    let begin = now();
    let mut checksum = 0u64;
    for number in 0..count {
        checksum = checksum.wrapping_add(body(&pin(), number));
    }
    let ns = begin.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:<28} {ns:8.1} ns  checksum {checksum:016x}");
}

fn main() {
    let keys: i64 =
        std::env::args().nth(1).map_or(1_000_000, |count| count.parse().expect("a number of keys"));
    let mut order: Vec<i64> = (0..keys).collect();
    let mut random = Random::seeded(1);
    for place in (1..order.len()).rev() {
        order.swap(place, random.uniform(0, place as i64) as usize);
    }
    let row = |number: i64| RowId::new(BlockNumber(number as u64 >> 14), Slot(number as u32 & 0x3fff));

    timed("pin", keys, |guard, _| {
        black_box(guard);
        0
    });
    let unique = index(true);
    timed("encode", keys, |_, number| key(&unique, order[number as usize])[11].into());
    timed("unique: claim", keys, |guard, number| {
        let number = order[number as usize];
        let judge = &mut |_| Err::<Verdict, _>("duplicate");
        unique.claim(&key(&unique, number), row(number), guard, judge).expect("each key is inserted once");
        0
    });
    timed("unique: lookup", keys, |guard, number| {
        let mut found = 0;
        unique.lookup(&key(&unique, order[number as usize]), guard, &mut |row| {
            found = row.to_bits();
            true
        });
        found
    });
    let ranges = |index: &Index, name: &str, length: u32, reverse: bool| {
        timed(&format!("{name}: range of {length}"), keys / i64::from(length), |guard, number| {
            let (mut left, mut sum) = (length, 0);
            let from = key(index, order[number as usize]);
            let (low, high) = (Bound::Included(&from[..]), Bound::Unbounded);
            let (low, high) = if reverse { (high, low) } else { (low, high) };
            index.range(low, high, reverse, guard, &mut |_, row| {
                sum += row.to_bits();
                left -= 1;
                left > 0
            });
            sum
        });
    };
    for length in [1, 10, 100] {
        ranges(&unique, "unique", length, false);
        ranges(&unique, "unique backwards", length, true);
    }
    println!("{:28} {:8.1} bytes per key", "unique", unique.memory_bytes() as f64 / keys as f64);

    let pairs = index(false);
    timed("non-unique: insert", keys, |guard, number| {
        let number = order[number as usize];
        pairs.insert(&key(&pairs, number), row(number), guard);
        0
    });
    for length in [1, 10, 100] {
        ranges(&pairs, "non-unique", length, false);
    }
    timed("non-unique: remove", keys, |guard, number| {
        let number = order[number as usize];
        pairs.remove(&key(&pairs, number), row(number), guard);
        0
    });
    timed("unique: remove", keys, |guard, number| {
        let number = order[number as usize];
        unique.remove(&key(&unique, number), row(number), guard);
        0
    });
    assert!(pairs.is_empty() && unique.is_empty());
}
