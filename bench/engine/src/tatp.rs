//! TATP, the Telecom Application Transaction Processing benchmark, description 1.0: a home location
//! register. Seven very short transactions over four tables; 80 % only read.
//!
//! As the description wants it, subscribers are drawn non-uniformly, and transactions that find no
//! row, or insert one that is there already, have failed: they count as done but not as committed.

use crate::columns::Columns;
use crate::driver::{Client, Done};
use crate::schema::{TableSchema, tables};
use crate::tpcc::load::{LoadProgress, insert_columns};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use firn_base::{Cell, ColumnId, Result, RowId, SqlState};
use firn_storage::{Index, KeyBuffer, Table};
use firn_txn::{Engine, Guard, Transaction, pin};
use std::io::Write;
use std::ops::Bound::Included;

tables! {
    /// Subscribers, with 30 fields that stand for what is known of them.
    subscriber {
        columns {
            s_id: Integer;
            sub_nbr: Char(15);
            bit_1: SmallInt;
            bit_2: SmallInt;
            bit_3: SmallInt;
            bit_4: SmallInt;
            bit_5: SmallInt;
            bit_6: SmallInt;
            bit_7: SmallInt;
            bit_8: SmallInt;
            bit_9: SmallInt;
            bit_10: SmallInt;
            hex_1: SmallInt;
            hex_2: SmallInt;
            hex_3: SmallInt;
            hex_4: SmallInt;
            hex_5: SmallInt;
            hex_6: SmallInt;
            hex_7: SmallInt;
            hex_8: SmallInt;
            hex_9: SmallInt;
            hex_10: SmallInt;
            byte2_1: SmallInt;
            byte2_2: SmallInt;
            byte2_3: SmallInt;
            byte2_4: SmallInt;
            byte2_5: SmallInt;
            byte2_6: SmallInt;
            byte2_7: SmallInt;
            byte2_8: SmallInt;
            byte2_9: SmallInt;
            byte2_10: SmallInt;
            msc_location: Integer;
            vlr_location: Integer;
        }
        primary key (s_id);
        index subscriber_by_number (sub_nbr);
    }

    /// One to four kinds of access per subscriber.
    access_info {
        columns {
            s_id: Integer;
            ai_type: SmallInt;
            data1: SmallInt;
            data2: SmallInt;
            data3: Char(3);
            data4: Char(5);
        }
        primary key (s_id, ai_type);
    }

    /// One to four facilities per subscriber.
    special_facility {
        columns {
            s_id: Integer;
            sf_type: SmallInt;
            is_active: SmallInt;
            error_cntrl: SmallInt;
            data_a: SmallInt;
            data_b: Char(5);
        }
        primary key (s_id, sf_type);
    }

    /// None to three forwardings per facility.
    call_forwarding {
        columns {
            s_id: Integer;
            sf_type: SmallInt;
            start_time: SmallInt;
            end_time: SmallInt;
            numberx: Char(15);
        }
        primary key (s_id, sf_type, start_time);
    }
}

/// All four.
pub static TABLES: [&TableSchema; 4] =
    [&subscriber::SCHEMA, &access_info::SCHEMA, &special_facility::SCHEMA, &call_forwarding::SCHEMA];

/// Subscribers of a batch of the load.
const SUBSCRIBERS_PER_BATCH: i32 = 10_000;

/// About how many rows all tables have together, per subscriber: 1 + 2.5 + 2.5 + 3.75.
pub fn expected_rows(subscribers: i32) -> u64 {
    subscribers as u64 * 39 / 4
}

/// Makes the four tables and loads them with `threads` threads.
pub fn load(
    engine: &Arc<Engine>,
    subscribers: i32,
    seed: u64,
    threads: usize,
    progress: &LoadProgress,
) -> Result<()> {
    for table in TABLES {
        table.create(engine)?;
    }
    let batches = (subscribers + SUBSCRIBERS_PER_BATCH - 1) / SUBSCRIBERS_PER_BATCH;
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // ORDERING: only hands out numbers.
                    let batch = next.fetch_add(1, Ordering::Relaxed) as i32;
                    if batch >= batches {
                        return;
                    }
                    let first = batch * SUBSCRIBERS_PER_BATCH + 1;
                    let last = subscribers.min(first + SUBSCRIBERS_PER_BATCH - 1);
                    for (table, rows) in generate(first, last, seed.wrapping_add(batch as u64)) {
                        progress.rows.fetch_add(rows.rows() as u64, Ordering::Relaxed);
                        if let Err(error) = insert_columns(engine, table, &rows.finish()) {
                            failure.lock().get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

fn generate(first: i32, last: i32, seed: u64) -> [(&'static TableSchema, Columns); 4] {
    let random = &mut Random::seeded(seed);
    let mut subscribers = Columns::new(&subscriber::SCHEMA);
    let mut accesses = Columns::new(&access_info::SCHEMA);
    let mut facilities = Columns::new(&special_facility::SCHEMA);
    let mut forwardings = Columns::new(&call_forwarding::SCHEMA);
    for s_id in first..=last {
        subscribers.number(i64::from(s_id)).text(Number::of(s_id).as_str());
        for (count, largest) in [(10, 1), (10, 15), (10, 255)] {
            for _ in 0..count {
                subscribers.number(random.uniform(0, largest));
            }
        }
        subscribers.number(random.uniform(1, LOCATIONS)).number(random.uniform(1, LOCATIONS));
        for ai_type in some_of_four(random) {
            accesses.number(i64::from(s_id)).number(ai_type);
            accesses.number(random.uniform(0, 255)).number(random.uniform(0, 255));
            accesses.text(&capitals::<3>(random)).text(&capitals::<5>(random));
        }
        for sf_type in some_of_four(random) {
            facilities.number(i64::from(s_id)).number(sf_type);
            facilities.number(i64::from(random.uniform(1, 100) <= 85));
            facilities.number(random.uniform(0, 255)).number(random.uniform(0, 255));
            facilities.text(&capitals::<5>(random));
            // Start times 0, 8 and 16, a random subset of a random size.
            let count = random.uniform(0, 3);
            let skipped = random.uniform(0, 2);
            for slot in 0..3 {
                let chosen = match count {
                    0 => false,
                    1 => slot == skipped,
                    2 => slot != skipped,
                    _ => true,
                };
                if chosen {
                    let start = slot * 8;
                    forwardings.number(i64::from(s_id)).number(sf_type);
                    forwardings.number(start).number(start + random.uniform(1, 8));
                    let target = random.uniform(1, i64::from(i32::MAX)) as i32;
                    forwardings.text(Number::of(target).as_str());
                }
            }
        }
    }
    [
        (&subscriber::SCHEMA, subscribers),
        (&access_info::SCHEMA, accesses),
        (&special_facility::SCHEMA, facilities),
        (&call_forwarding::SCHEMA, forwardings),
    ]
}

/// Locations run up to here; the description says 2^32 - 1, which no signed integer holds.
const LOCATIONS: i64 = i32::MAX as i64;

/// One to four of the numbers 1 to 4, ascending.
fn some_of_four(random: &mut Random) -> impl Iterator<Item = i64> + use<> {
    let mut left = random.uniform(1, 4);
    let skip_seed = random.next_u64();
    (1..=4).filter(move |candidate| {
        let candidates_left = 5 - candidate;
        let take = left == candidates_left || (left > 0 && skip_seed >> candidate & 1 == 1);
        left -= i64::from(take);
        take
    })
}

fn capitals<const LENGTH: usize>(random: &mut Random) -> String {
    (0..LENGTH).map(|_| char::from(b'A' + random.uniform(0, 25) as u8)).collect()
}

/// A number of 15 digits: the subscriber's id with leading zeros.
#[derive(Clone, Copy)]
struct Number([u8; 15]);

impl Number {
    fn of(s_id: i32) -> Number {
        let mut digits = [b'0'; 15];
        write!(&mut digits[5..], "{s_id:010}").expect("ten digits fit");
        Number(digits)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }
}

/// A table and one of its indexes.
struct Keyed {
    table: Arc<Table>,
    index: Arc<Index>,
}

impl Keyed {
    fn open(engine: &Arc<Engine>, schema: &TableSchema, index: usize) -> Result<Keyed> {
        let (table, indexes) = schema.open(engine)?;
        Ok(Keyed { table, index: indexes[index].clone() })
    }
}

/// The four tables of an open database.
pub struct Tatp {
    engine: Arc<Engine>,
    subscribers: i32,
    subscriber: Keyed,
    subscriber_by_number: Keyed,
    access_info: Keyed,
    special_facility: Keyed,
    call_forwarding: Keyed,
}

impl Tatp {
    /// Finds the tables. 42P01 if they have not been loaded.
    pub fn open(engine: &Arc<Engine>) -> Result<Tatp> {
        let subscriber = Keyed::open(engine, &subscriber::SCHEMA, 0)?;
        Ok(Tatp {
            engine: engine.clone(),
            subscribers: subscriber.table.approximate_rows() as i32,
            subscriber,
            subscriber_by_number: Keyed::open(engine, &subscriber::SCHEMA, 1)?,
            access_info: Keyed::open(engine, &access_info::SCHEMA, 0)?,
            special_facility: Keyed::open(engine, &special_facility::SCHEMA, 0)?,
            call_forwarding: Keyed::open(engine, &call_forwarding::SCHEMA, 0)?,
        })
    }

    /// The database.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// The seven transactions, in the order of reports.
#[derive(Clone, Copy, Debug)]
enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

/// One client: draws inputs and runs transactions one after another.
pub struct Worker<'t> {
    tatp: &'t Tatp,
    random: Random,
    /// The constant of the non-uniform distribution (description, "A").
    spread: i64,
    kind: Kind,
    s_id: i32,
    key: KeyBuffer,
}

impl<'t> Worker<'t> {
    /// Client `number`.
    pub fn new(tatp: &'t Tatp, seed: u64, number: usize) -> Worker<'t> {
        let spread = match tatp.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Worker {
            tatp,
            random: Random::seeded(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9)),
            spread,
            kind: Kind::GetSubscriberData,
            s_id: 1,
            key: KeyBuffer::new(),
        }
    }

    fn one_of(&mut self, low: i64, high: i64) -> i16 {
        self.random.uniform(low, high) as i16
    }

    fn get_subscriber_data(&mut self) -> Result<Done> {
        let guard = &pin();
        let tx = self.tatp.engine.begin_read_only();
        let columns: [ColumnId; 34] = std::array::from_fn(|column| ColumnId(column as u16));
        let keyed = &self.tatp.subscriber;
        let row = find(&tx, keyed, &[Cell::i32(self.s_id)], &mut self.key, guard);
        let cells = read(&tx, &keyed.table, row.expect("subscribers stay"), columns, guard);
        let shown = cells[2..].iter().map(|cell| cell.word() as i64).sum::<i64>();
        done(tx, shown + cells[1].bytes().len() as i64)
    }

    fn get_new_destination(&mut self) -> Result<Done> {
        let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
        let end = self.one_of(1, 24);
        let guard = &pin();
        let tx = self.tatp.engine.begin_read_only();
        let facility = [Cell::i32(self.s_id), Cell::i16(sf_type)];
        let keyed = &self.tatp.special_facility;
        let Some(row) = find(&tx, keyed, &facility, &mut self.key, guard) else { return nothing(tx) };
        let [is_active] = read(&tx, &keyed.table, row, [special_facility::is_active], guard);
        if is_active.word() == 0 {
            return nothing(tx);
        }
        let keyed = &self.tatp.call_forwarding;
        self.key.clear();
        keyed.index.encode(&facility, &mut self.key);
        let (mut found, mut shown) = (false, 0);
        let bound = Included(&self.key[..]);
        tx.range(&keyed.table, &keyed.index, bound, bound, false, guard, &mut |row| {
            let [start_time, end_time, number] = read(
                &tx,
                &keyed.table,
                row,
                [call_forwarding::start_time, call_forwarding::end_time, call_forwarding::numberx],
                guard,
            );
            if start_time.word() as i16 <= start && end < end_time.word() as i16 {
                found = true;
                shown += number.bytes().len() as i64;
            }
            true
        });
        if found { done(tx, shown) } else { nothing(tx) }
    }

    fn get_access_data(&mut self) -> Result<Done> {
        let ai_type = self.one_of(1, 4);
        let guard = &pin();
        let tx = self.tatp.engine.begin_read_only();
        let keyed = &self.tatp.access_info;
        let cells = [Cell::i32(self.s_id), Cell::i16(ai_type)];
        let Some(row) = find(&tx, keyed, &cells, &mut self.key, guard) else { return nothing(tx) };
        let columns = [access_info::data1, access_info::data2, access_info::data3, access_info::data4];
        let [data1, data2, data3, data4] = read(&tx, &keyed.table, row, columns, guard);
        let characters = data3.bytes().len() + data4.bytes().len();
        done(tx, (data1.word() + data2.word()) as i64 + characters as i64)
    }

    fn update_subscriber_data(&mut self) -> Result<Done> {
        let (sf_type, bit, data) = (self.one_of(1, 4), self.one_of(0, 1), self.one_of(0, 255));
        let guard = &pin();
        let mut tx = self.tatp.engine.begin();
        let keyed = &self.tatp.subscriber;
        let row = find(&tx, keyed, &[Cell::i32(self.s_id)], &mut self.key, guard).expect("subscribers stay");
        tx.update(&keyed.table, row, &[subscriber::bit_1], &[Cell::i16(bit)], guard)?;
        let keyed = &self.tatp.special_facility;
        let cells = [Cell::i32(self.s_id), Cell::i16(sf_type)];
        let Some(row) = find(&tx, keyed, &cells, &mut self.key, guard) else { return nothing(tx) };
        tx.update(&keyed.table, row, &[special_facility::data_a], &[Cell::i16(data)], guard)?;
        done(tx, i64::from(data))
    }

    fn update_location(&mut self) -> Result<Done> {
        let location = self.random.uniform(1, LOCATIONS) as i32;
        let guard = &pin();
        let mut tx = self.tatp.engine.begin();
        let row = self.by_number(&tx, guard);
        let table = &self.tatp.subscriber.table;
        tx.update(table, row, &[subscriber::vlr_location], &[Cell::i32(location)], guard)?;
        done(tx, i64::from(location))
    }

    fn insert_call_forwarding(&mut self) -> Result<Done> {
        let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
        let end = start + self.one_of(1, 8);
        let number = Number::of(self.random.uniform(1, i64::from(i32::MAX)) as i32);
        let guard = &pin();
        let mut tx = self.tatp.engine.begin();
        let subscriber_row = self.by_number(&tx, guard);
        let [s_id] = read(&tx, &self.tatp.subscriber.table, subscriber_row, [subscriber::s_id], guard);
        let facility = [s_id, Cell::i16(sf_type)];
        if find(&tx, &self.tatp.special_facility, &facility, &mut self.key, guard).is_none() {
            return nothing(tx);
        }
        let row = [s_id, facility[1], Cell::i16(start), Cell::i16(end), Cell::text(number.as_str())];
        match tx.insert(&self.tatp.call_forwarding.table, &row, guard) {
            Ok(_) => done(tx, i64::from(start)),
            Err(error) if error.state() == SqlState::UNIQUE_VIOLATION => nothing(tx),
            Err(error) => Err(error),
        }
    }

    fn delete_call_forwarding(&mut self) -> Result<Done> {
        let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
        let guard = &pin();
        let mut tx = self.tatp.engine.begin();
        let subscriber_row = self.by_number(&tx, guard);
        let [s_id] = read(&tx, &self.tatp.subscriber.table, subscriber_row, [subscriber::s_id], guard);
        let keyed = &self.tatp.call_forwarding;
        let cells = [s_id, Cell::i16(sf_type), Cell::i16(start)];
        let Some(row) = find(&tx, keyed, &cells, &mut self.key, guard) else { return nothing(tx) };
        tx.delete(&keyed.table, row, guard)?;
        done(tx, 1)
    }

    /// The subscriber, found by his number.
    fn by_number(&mut self, tx: &Transaction, guard: &Guard) -> RowId {
        let keyed = &self.tatp.subscriber_by_number;
        self.key.clear();
        keyed.index.encode(&[Cell::text(Number::of(self.s_id).as_str())], &mut self.key);
        let mut found = None;
        let bound = Included(&self.key[..]);
        tx.range(&keyed.table, &keyed.index, bound, bound, false, guard, &mut |row| {
            found = Some(row);
            false
        });
        found.expect("every subscriber has a number")
    }
}

impl Client for Worker<'_> {
    const KINDS: &'static [&'static str] = &[
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
    ];

    fn next_input(&mut self) -> usize {
        self.kind = match self.random.uniform(1, 100) {
            1..=35 => Kind::GetSubscriberData,
            36..=45 => Kind::GetNewDestination,
            46..=80 => Kind::GetAccessData,
            81..=82 => Kind::UpdateSubscriberData,
            83..=96 => Kind::UpdateLocation,
            97..=98 => Kind::InsertCallForwarding,
            _ => Kind::DeleteCallForwarding,
        };
        let subscribers = i64::from(self.tatp.subscribers);
        let mixed = self.random.uniform(0, self.spread) | self.random.uniform(1, subscribers);
        self.s_id = (mixed % subscribers + 1) as i32;
        self.kind as usize
    }

    fn run(&mut self) -> Result<Done> {
        match self.kind {
            Kind::GetSubscriberData => self.get_subscriber_data(),
            Kind::GetNewDestination => self.get_new_destination(),
            Kind::GetAccessData => self.get_access_data(),
            Kind::UpdateSubscriberData => self.update_subscriber_data(),
            Kind::UpdateLocation => self.update_location(),
            Kind::InsertCallForwarding => self.insert_call_forwarding(),
            Kind::DeleteCallForwarding => self.delete_call_forwarding(),
        }
    }
}

/// Commits.
fn done(tx: Transaction, displayed: i64) -> Result<Done> {
    Ok(Done { committed: true, lsn: tx.commit()?.lsn, displayed })
}

/// Rolls back a transaction that found nothing to do.
fn nothing(tx: Transaction) -> Result<Done> {
    tx.rollback();
    Ok(Done { committed: false, lsn: None, displayed: 0 })
}

fn find(
    tx: &Transaction,
    keyed: &Keyed,
    cells: &[Cell<'_>],
    key: &mut KeyBuffer,
    guard: &Guard,
) -> Option<RowId> {
    key.clear();
    keyed.index.encode(cells, key);
    tx.get(&keyed.table, &keyed.index, key, guard)
}

fn read<'g, const N: usize>(
    tx: &Transaction,
    table: &'g Table,
    row: RowId,
    columns: [ColumnId; N],
    guard: &'g Guard,
) -> [Cell<'g>; N] {
    let mut cells = [Cell::Null; N];
    let visible = tx.read(table, row, &columns, &mut cells, guard);
    assert!(visible, "a row found through an index is visible");
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{self, Live, Options};
    use firn_txn::Config;
    use std::time::Duration;

    #[test]
    fn a_population_has_the_described_proportions() {
        let [subscribers, accesses, facilities, forwardings] =
            generate(1, 10_000, 5).map(|(_, rows)| rows.rows());
        assert_eq!(subscribers, 10_000);
        let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 20;
        assert!(near(accesses, 25_000) && near(facilities, 25_000) && near(forwardings, 37_500));
    }

    #[test]
    fn all_seven_transactions_run() {
        let engine = Engine::open(Config::default()).unwrap();
        load(&engine, 1_000, 1, 1, &LoadProgress::default()).unwrap();
        let tatp = Tatp::open(&engine).unwrap();
        let options = Options { clients: 1, duration: Duration::from_millis(200), core: None };
        let client = |number| Ok(Worker::new(&tatp, 1, number));
        let report = driver::run(&client, Some(&engine), options, &Live::default()).unwrap();
        assert!(report.latencies.iter().all(|latencies| latencies.count() > 0));
        assert!(report.rollbacks > 0);
    }
}
