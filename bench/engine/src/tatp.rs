//! TATP, the Telecom Application Transaction Processing benchmark, description 1.0: a home location
//! register. Seven very short transactions over four tables; 80 % only read.
//!
//! As the description requires, subscribers are drawn non-uniformly, and transactions that find no
//! row, or insert an existing one, have failed: they count as done but not as committed.

mod input;
pub mod sql;

use crate::columns::Columns as Batch;
use crate::driver::{Client, Done};
use crate::schema::{TableSchema, tables};
use crate::tpcc::load::{LoadProgress, insert_columns};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use firn_base::{Result, RowId, SqlState};
use firn_storage::{Row, Rows};
use firn_txn::{Columns, Engine, Guard, Key, Str, TableAccess, Text, Transaction, pin};
use input::{Input, Inputs};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::Write;

tables! {
    /// Subscribers, with 30 fields of data.
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
                    // ORDERING: only distributes numbers.
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

fn generate(first: i32, last: i32, seed: u64) -> [(&'static TableSchema, Batch); 4] {
    let random = &mut Random::seeded(seed);
    let mut subscribers = Batch::new(&subscriber::SCHEMA);
    let mut accesses = Batch::new(&access_info::SCHEMA);
    let mut facilities = Batch::new(&special_facility::SCHEMA);
    let mut forwardings = Batch::new(&call_forwarding::SCHEMA);
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

/// The largest location; the description says 2^32 - 1, which the column's integer type cannot represent.
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
#[derive(Clone, Copy, Debug)]
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

/// The access paths to an open database.
pub struct Tatp {
    engine: Arc<Engine>,
    subscribers: i32,
    subscriber: Key<(i32,)>,
    subscriber_by_number: Key<(Str,)>,
    /// Number, telephone number, locations.
    subscriber_data: Columns<(i32, Str, i32, i32)>,
    /// The other thirty.
    subscriber_details: Columns<[i16; 30]>,
    subscriber_id: Columns<(i32,)>,
    bit_1: Columns<(i16,)>,
    vlr_location: Columns<(i32,)>,
    access_info: Key<(i32, i16)>,
    access_data: Columns<(i16, i16, Str, Str)>,
    special_facility: Key<(i32, i16)>,
    is_active: Columns<(i16,)>,
    data_a: Columns<(i16,)>,
    call_forwarding: Key<(i32, i16, i16)>,
    call_forwardings: Key<(i32, i16)>,
    forwarding: Columns<(i32, i16, i16, i16, Str)>,
    /// Times and number.
    destination: Columns<(i16, i16, Str)>,
}

impl Tatp {
    /// Prepares them. 42P01 if the tables have not been loaded.
    pub fn open(engine: &Arc<Engine>) -> Result<Tatp> {
        let subscriber = TableAccess::open(engine, "subscriber")?;
        let access = TableAccess::open(engine, "access_info")?;
        let facility = TableAccess::open(engine, "special_facility")?;
        let forwarding = TableAccess::open(engine, "call_forwarding")?;
        let details: Vec<&str> = subscriber::SCHEMA.columns[2..32].iter().map(|column| column.name).collect();
        Ok(Tatp {
            engine: engine.clone(),
            subscribers: subscriber.table().approximate_rows() as i32,
            subscriber: subscriber.key("subscriber_pkey")?,
            subscriber_by_number: subscriber.key("subscriber_by_number")?,
            subscriber_data: subscriber.columns(&["s_id", "sub_nbr", "msc_location", "vlr_location"])?,
            subscriber_details: subscriber.columns(&details)?,
            subscriber_id: subscriber.columns(&["s_id"])?,
            bit_1: subscriber.columns(&["bit_1"])?,
            vlr_location: subscriber.columns(&["vlr_location"])?,
            access_info: access.key("access_info_pkey")?,
            access_data: access.columns(&["data1", "data2", "data3", "data4"])?,
            special_facility: facility.key("special_facility_pkey")?,
            is_active: facility.columns(&["is_active"])?,
            data_a: facility.columns(&["data_a"])?,
            call_forwarding: forwarding.key("call_forwarding_pkey")?,
            call_forwardings: forwarding.key("call_forwarding_pkey")?,
            forwarding: forwarding.all_columns()?,
            destination: forwarding.columns(&["start_time", "end_time", "numberx"])?,
        })
    }

    /// The database.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// The most inputs of a client that may wait.
pub const MOST_QUEUED: usize = Rows::MOST;

/// One client: draws inputs and runs transactions one after another.
pub struct Worker<'t> {
    tatp: &'t Tatp,
    inputs: Inputs,
    /// Inputs that wait, and how many of them are drawn together.
    queue: VecDeque<Input>,
    queued: usize,
    input: Input,
}

impl<'t> Worker<'t> {
    /// Client `number`, which always has one request, or several queued: then the rows of the next ones are
    /// prefetched together, as a server with many connections may do.
    pub fn new(tatp: &'t Tatp, seed: u64, number: usize, queued: usize) -> Worker<'t> {
        assert!((1..=MOST_QUEUED).contains(&queued));
        let inputs = Inputs::new(tatp.subscribers, seed, number);
        let queue = VecDeque::with_capacity(queued);
        Worker { tatp, inputs, queue, queued, input: Input::GetSubscriberData { s_id: 1 } }
    }

    /// Prefetches the first rows of the queued transactions.
    fn look_ahead(&self) {
        let (tatp, guard) = (self.tatp, &pin());
        let mut subscribers = SmallVec::<[(i32,); MOST_QUEUED]>::new();
        let mut changed = SmallVec::<[(i32,); MOST_QUEUED]>::new();
        let mut accesses = SmallVec::<[(i32, i16); MOST_QUEUED]>::new();
        let mut facilities = SmallVec::<[(i32, i16); MOST_QUEUED]>::new();
        let mut forwarded = SmallVec::<[(i32, i16); MOST_QUEUED]>::new();
        let mut numbers = SmallVec::<[(Text<'_>,); MOST_QUEUED]>::new();
        for input in &self.queue {
            match input {
                Input::GetSubscriberData { s_id } => subscribers.push((*s_id,)),
                Input::GetAccessData { s_id, ai_type } => accesses.push((*s_id, *ai_type)),
                Input::GetNewDestination { s_id, sf_type, .. } => {
                    facilities.push((*s_id, *sf_type));
                    forwarded.push((*s_id, *sf_type));
                }
                Input::UpdateSubscriberData { s_id, sf_type, .. } => {
                    changed.push((*s_id,));
                    facilities.push((*s_id, *sf_type));
                }
                Input::UpdateLocation { number, .. }
                | Input::InsertCallForwarding { number, .. }
                | Input::DeleteCallForwarding { number, .. } => numbers.push((Text::from(number.as_str()),)),
            }
        }
        let found = tatp.subscriber.look_ahead(&subscribers, &tatp.subscriber_data, guard);
        tatp.subscriber_details.prefetch(&found);
        tatp.access_info.look_ahead(&accesses, &tatp.access_data, guard);
        tatp.subscriber_by_number.approach(&numbers, guard);
        let found = tatp.special_facility.look_ahead(&facilities, &tatp.is_active, guard);
        tatp.data_a.prefetch(&found);
        tatp.call_forwardings.approach(&forwarded, guard);
        tatp.subscriber.look_ahead(&changed, &tatp.bit_1, guard);
    }

    fn get_subscriber_data(&self, s_id: i32) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let tx = tatp.engine.begin_read_only();
        let found = tx.find_as(&tatp.subscriber, &(s_id,), &tatp.subscriber_data, guard);
        let (row, (_, number, msc_location, vlr_location)) = found.expect("subscribers stay");
        let details = tx.read_as(&tatp.subscriber_details, row, guard).expect("it was just found");
        let shown = details.iter().map(|detail| i64::from(*detail)).sum::<i64>();
        let locations = i64::from(msc_location) + i64::from(vlr_location);
        done(tx, shown + locations + number.len() as i64)
    }

    fn get_new_destination(&self, s_id: i32, sf_type: i16, start: i16, end: i16) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let tx = tatp.engine.begin_read_only();
        let facility = (s_id, sf_type);
        match tx.find_as(&tatp.special_facility, &facility, &tatp.is_active, guard) {
            Some((_, (is_active,))) if is_active != 0 => {}
            _ => return nothing(tx),
        }
        let (mut found, mut shown) = (false, 0);
        tx.prefix_as(&tatp.call_forwardings, &facility, &tatp.destination, guard, |_, forwarding| {
            let (start_time, end_time, number) = forwarding;
            if start_time <= start && end < end_time {
                found = true;
                shown += number.len() as i64;
            }
            true
        });
        if found { done(tx, shown) } else { nothing(tx) }
    }

    fn get_access_data(&self, s_id: i32, ai_type: i16) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let tx = tatp.engine.begin_read_only();
        let found = tx.find_as(&tatp.access_info, &(s_id, ai_type), &tatp.access_data, guard);
        let Some((_, (data1, data2, data3, data4))) = found else { return nothing(tx) };
        done(tx, i64::from(data1) + i64::from(data2) + (data3.len() + data4.len()) as i64)
    }

    fn update_subscriber_data(&self, s_id: i32, sf_type: i16, bit: i16, data: i16) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let mut tx = tatp.engine.begin();
        let found = tx.find_as(&tatp.subscriber, &(s_id,), &tatp.bit_1, guard);
        tx.update_as(&tatp.bit_1, found.expect("subscribers stay").0, &(bit,), guard)?;
        let found = tx.find_as(&tatp.special_facility, &(s_id, sf_type), &tatp.data_a, guard);
        let Some((row, _)) = found else { return nothing(tx) };
        tx.update_as(&tatp.data_a, row, &(data,), guard)?;
        done(tx, i64::from(data))
    }

    fn update_location(&self, number: Number, location: i32) -> Result<Done> {
        let guard = &pin();
        let mut tx = self.tatp.engine.begin();
        let (row, _) = self.by_number(&tx, &number, &self.tatp.vlr_location, guard);
        tx.update_as(&self.tatp.vlr_location, row, &(location,), guard)?;
        done(tx, i64::from(location))
    }

    fn insert_call_forwarding(
        &self,
        number: Number,
        sf_type: i16,
        [start, end]: [i16; 2],
        target: Number,
    ) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let mut tx = tatp.engine.begin();
        let (_, (s_id,)) = self.by_number(&tx, &number, &tatp.subscriber_id, guard);
        if tx.find_as(&tatp.special_facility, &(s_id, sf_type), &tatp.is_active, guard).is_none() {
            return nothing(tx);
        }
        let forwarding = (s_id, sf_type, start, end, Text::from(target.as_str()));
        match tx.insert_as(&tatp.forwarding, &forwarding, guard) {
            Ok(_) => done(tx, i64::from(start)),
            Err(error) if error.state() == SqlState::UNIQUE_VIOLATION => nothing(tx),
            Err(error) => Err(error),
        }
    }

    fn delete_call_forwarding(&self, number: Number, sf_type: i16, start: i16) -> Result<Done> {
        let tatp = self.tatp;
        let guard = &pin();
        let mut tx = tatp.engine.begin();
        let (_, (s_id,)) = self.by_number(&tx, &number, &tatp.subscriber_id, guard);
        let found = tx.find_as(&tatp.call_forwarding, &(s_id, sf_type, start), &tatp.destination, guard);
        let Some((row, _)) = found else { return nothing(tx) };
        tx.delete_as(&tatp.destination, row, guard)?;
        done(tx, 1)
    }

    /// The subscriber with a given telephone number.
    fn by_number<'g, R: Row>(
        &self,
        tx: &Transaction,
        number: &Number,
        columns: &'g Columns<R>,
        guard: &'g Guard,
    ) -> (RowId, R::Values<'g>) {
        let mut found = None;
        let key = (Text::from(number.as_str()),);
        tx.prefix_as(&self.tatp.subscriber_by_number, &key, columns, guard, |row, values| {
            found = Some((row, values));
            false
        });
        found.expect("every subscriber has a number")
    }
}

impl Client for Worker<'_> {
    const KINDS: &'static [&'static str] = &Input::NAMES;

    fn next_input(&mut self) -> usize {
        if self.queue.is_empty() {
            self.queue.extend((0..self.queued).map(|_| self.inputs.next()));
            if self.queued > 1 {
                self.look_ahead();
            }
        }
        self.input = self.queue.pop_front().expect("it was just filled");
        self.input.kind()
    }

    fn run(&mut self) -> Result<Done> {
        match self.input {
            Input::GetSubscriberData { s_id } => self.get_subscriber_data(s_id),
            Input::GetNewDestination { s_id, sf_type, start, end } => {
                self.get_new_destination(s_id, sf_type, start, end)
            }
            Input::GetAccessData { s_id, ai_type } => self.get_access_data(s_id, ai_type),
            Input::UpdateSubscriberData { s_id, sf_type, bit, data } => {
                self.update_subscriber_data(s_id, sf_type, bit, data)
            }
            Input::UpdateLocation { number, location } => self.update_location(number, location),
            Input::InsertCallForwarding { number, sf_type, start, end, target } => {
                self.insert_call_forwarding(number, sf_type, [start, end], target)
            }
            Input::DeleteCallForwarding { number, sf_type, start } => {
                self.delete_call_forwarding(number, sf_type, start)
            }
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
        let options = Options { clients: 1, duration: Duration::from_millis(200), core: None, rate: None };
        let client = |number| Ok(Worker::new(&tatp, 1, number, 1));
        let report = driver::run(&client, Some(&engine), options, &Live::default()).unwrap();
        assert!(report.latencies.iter().all(|latencies| latencies.count() > 0));
        assert!(report.rollbacks > 0);
    }
}
