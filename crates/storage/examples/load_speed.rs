//! The cost of keys in a load: prints nanoseconds per row for batches of keys in different orders, entered
//! with each batch and together, on one thread and on several; for comparison the cost of the rows without an
//! index, and of an index that is built from the rows.
//!
//! `cargo run --release -p firn-storage --example load_speed [rows] [threads] [which]`

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use firn_base::clock::now;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Representation, Snapshot, Stamp, TableId, Time};
use firn_storage::{ColumnSpec, Index, IndexColumn, IndexId, IndexSpec, Table, TableOptions, WriteSet, pin};

/// Rows of a batch, as in half a megabyte of lineitem.
const BATCH: usize = 4_200;

/// The cost of a load per row: nanoseconds of wall-clock time and of all processors, and bytes of the index.
#[derive(Clone, Copy)]
struct Cost {
    time: f64,
    busy: f64,
    bytes: f64,
}

/// An index over the only column.
fn index(representation: Representation, unique: bool) -> Arc<Index> {
    let column = IndexColumn {
        column: ColumnId(0),
        representation,
        nullable: false,
        descending: false,
        nulls_first: false,
    };
    let (id, name) = (IndexId(1), "speed".into());
    Index::new(IndexSpec { id, name, columns: vec![column], unique, values: true })
}

/// Loads the keys; waiting keys are entered by `threads` threads.
fn load(
    representation: Representation,
    unique: Option<bool>,
    keys: &[i64],
    threads: Option<usize>,
) -> (Arc<Table>, Cost) {
    let specs = vec![ColumnSpec { representation, nullable: false }];
    let table = Table::new(TableId(1), "t", specs, TableOptions::default());
    if let Some(unique) = unique {
        table.add_index(index(representation, unique));
    }
    let array = |some: &[i64]| -> ArrayRef {
        match representation {
            Representation::Int64 => Arc::new(Int64Array::from(some.to_vec())),
            _ => {
                let strings = some.iter().map(|key| format!("customer-{key:012}"));
                Arc::new(StringViewArray::from_iter_values(strings))
            }
        }
    };
    let batches: Vec<ArrayRef> = keys.chunks(BATCH).map(array).collect();
    let snapshot = Snapshot { read_time: Time(1), owner: Stamp::transaction(1) };
    let mut writes = WriteSet::new(snapshot.owner, None);
    let mut waiting = table.waiting_keys();
    let (begin, busy) = (now(), processor_ns());
    for batch in batches {
        let Some(threads) = threads else {
            table.insert_batch(&mut writes, snapshot, &[batch], &pin()).unwrap();
            continue;
        };
        table.insert_batch_waiting(&mut writes, snapshot, &[batch], &mut waiting, &pin()).unwrap();
        if waiting.is_due() {
            table.enter_waiting_keys(&mut waiting, snapshot, threads).unwrap();
            waiting.clear();
        }
    }
    table.enter_waiting_keys(&mut waiting, snapshot, threads.unwrap_or(1)).unwrap();
    let busy = (processor_ns() - busy) / keys.len() as f64;
    let time = begin.elapsed().as_nanos() as f64 / keys.len() as f64;
    let held = table.indexes().iter().map(|index| index.held_bytes()).sum::<u64>();
    // The rows refer to its records.
    std::mem::forget(writes);
    (table, Cost { time, busy, bytes: held as f64 / keys.len() as f64 })
}

/// Wall-clock nanoseconds per row of a table to build an index on `threads` threads.
fn make(table: &Table, representation: Representation, unique: bool, threads: usize) -> f64 {
    let index = index(representation, unique);
    let guard = &pin();
    let (begin, mut rows) = (now(), 0);
    let mut load = index.load(table.budget(), threads, guard);
    let added = table.keys_in_place(&index, |key, row| {
        rows += 1;
        load.add(key, row)
    });
    added.and_then(|()| load.finish()).expect("keys are unique where they must be");
    begin.elapsed().as_nanos() as f64 / f64::from(rows)
}

/// The processor time of all threads so far.
fn processor_ns() -> f64 {
    // SAFETY: the call writes to a struct that it is given.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn main() {
    let argument =
        |at: usize, or: usize| std::env::args().nth(at).map_or(or, |text| text.parse().expect("a number"));
    let (rows, threads) = (argument(1, 6_000_000), argument(2, 2));
    let random = &mut Random::seeded(1);
    let ascending: Vec<i64> = (0..rows as i64).collect();
    let mut shuffled = ascending.clone();
    for place in (1..shuffled.len()).rev() {
        shuffled.swap(place, random.uniform(0, place as i64) as usize);
    }
    let sparse: Vec<i64> = (0..rows).map(|_| random.next_u64() as i64).collect();
    // Each key ten times.
    let tens: Vec<i64> = shuffled.iter().map(|key| key / 10).collect();
    let _warm = load(Representation::Int64, Some(true), &shuffled, None);
    println!();
    for (what, keys, representation, unique) in [
        ("bigint ascending", &ascending, Representation::Int64, true),
        ("bigint shuffled", &shuffled, Representation::Int64, true),
        ("bigint sparse", &sparse, Representation::Int64, true),
        ("bigint ascending, not unique", &ascending, Representation::Int64, false),
        ("bigint tens, not unique", &tens, Representation::Int64, false),
        ("bigint sparse, not unique", &sparse, Representation::Int64, false),
        ("text ascending", &ascending, Representation::Text, true),
        ("text shuffled", &shuffled, Representation::Text, true),
        ("text tens, not unique", &tens, Representation::Text, false),
    ] {
        if std::env::args().nth(3).is_some_and(|which| !what.starts_with(&which)) {
            continue;
        }
        print!("{what:<30}");
        let (table, none) = load(representation, None, keys, None);
        print!(" {:5.1} ns", none.time);
        for (how, threads) in [("at once", None), ("together on 1", Some(1)), ("together", Some(threads))] {
            let (_, cost) = load(representation, Some(unique), keys, threads);
            let [time, busy] = [cost.time - none.time, cost.busy - none.busy];
            print!("  {how} {time:6.1} ns, busy {busy:6.1}");
            if threads.is_none() {
                print!(", {:.1} bytes", cost.bytes);
            }
        }
        println!("  made {:6.1} ns", make(&table, representation, unique, threads));
    }
}
