//! The initial population (clause 4.3.3), generated in stretches, each of which is a function of the
//! seed alone, and loaded as whole columns.
//!
//! A stretch is one warehouse's share of one table, or of a part of a table: small enough to be in
//! memory twice. Stretches are independent, so threads take them in any order.

use super::input::{LastName, NuRandConstants, nurand};
use super::schema::{
    TABLES, customer, district, history, item, new_order, order_line, orders, stock, warehouse,
};
use super::{DISTRICTS, Scale};
use crate::columns::Columns;
use crate::schema::TableSchema;
use arrow_array::ArrayRef;
use firn_base::Result;
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};
use firn_txn::Engine;

/// When the initial orders were entered: 2012-01-01. Fixed, so that loads are reproducible, and such that the
/// dates in CH-benCHmark's queries make sense.
pub const LOAD_TIME: i64 = 1_325_376_000_000_000;

/// What every customer has paid at the start, in cents.
const FIRST_PAYMENT: i64 = 1_000;

/// The rows of a stretch: few, so that a progress bar moves and little memory is used.
const ROWS_PER_BATCH: usize = 20_000;

/// One stretch of the population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    Items,
    /// The warehouse row, its districts and its stock.
    Warehouse(i32),
    /// Customers, history and orders of a district.
    District(i32, i32),
}

/// The progress of a load.
#[derive(Default)]
pub struct LoadProgress {
    /// Rows loaded.
    pub rows: AtomicU64,
}

/// How many rows a population has, without order lines, of which there are ten an order on average.
pub fn expected_rows(scale: Scale) -> u64 {
    let (warehouses, items, customers) =
        (scale.warehouses as u64, scale.items as u64, scale.customers as u64);
    let districts = warehouses * DISTRICTS as u64;
    let undelivered = customers - scale.delivered_orders() as u64;
    items + warehouses + districts + warehouses * items + districts * (customers * 13 + undelivered)
}

/// Creates the nine tables and loads them with `threads` threads.
pub fn load(
    engine: &Arc<Engine>,
    scale: Scale,
    seed: u64,
    threads: usize,
    progress: &LoadProgress,
) -> Result<()> {
    for table in TABLES {
        table.create(engine)?;
    }
    let stretches = stretches(scale);
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // ORDERING: only distributes numbers; the data behind them was written before.
                while let Some(&stretch) = stretches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut insert = |table: &TableSchema, columns: Vec<ArrayRef>| {
                        progress.rows.fetch_add(columns[0].len() as u64, Ordering::Relaxed);
                        insert_columns(engine, table, &columns)
                    };
                    if let Err(error) = generate(scale, seed, stretch, &mut insert) {
                        failure.lock().get_or_insert(error);
                        return;
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// Generates the whole population, table by table and stretch by stretch, without a database.
pub fn generate_all(
    scale: Scale,
    seed: u64,
    sink: &mut dyn FnMut(&TableSchema, Vec<ArrayRef>) -> Result<()>,
) -> Result<()> {
    stretches(scale).into_iter().try_for_each(|stretch| generate(scale, seed, stretch, sink))
}

/// Inserts whole columns in a transaction of their own and waits until they are durable.
pub fn insert_columns(engine: &Arc<Engine>, table: &TableSchema, columns: &[ArrayRef]) -> Result<()> {
    let (handle, _) = table.open(engine)?;
    let mut transaction = engine.begin();
    transaction.insert_batch(&handle, columns, &firn_txn::pin())?;
    let ticket = transaction.commit()?;
    engine.wait(ticket)
}

fn stretches(scale: Scale) -> Vec<Stretch> {
    let mut stretches = vec![Stretch::Items];
    for w in 1..=scale.warehouses {
        stretches.push(Stretch::Warehouse(w));
        stretches.extend((1..=DISTRICTS).map(|d| Stretch::District(w, d)));
    }
    stretches
}

fn generate(
    scale: Scale,
    seed: u64,
    stretch: Stretch,
    sink: &mut dyn FnMut(&TableSchema, Vec<ArrayRef>) -> Result<()>,
) -> Result<()> {
    let number = match stretch {
        Stretch::Items => 0,
        Stretch::Warehouse(w) => w as u64 * 100,
        Stretch::District(w, d) => w as u64 * 100 + d as u64,
    };
    let mut source = Source { random: Random::seeded(seed.wrapping_add(number << 20)), text: String::new() };
    match stretch {
        Stretch::Items => items(scale, &mut source, sink),
        Stretch::Warehouse(w) => {
            warehouse_and_districts(scale, w, &mut source, sink)?;
            stock_of(scale, w, &mut source, sink)
        }
        Stretch::District(w, d) => {
            customers_and_history(scale, w, d, &mut source, sink)?;
            orders_of(scale, w, d, &mut source, sink)
        }
    }
}

type Sink<'a> = &'a mut dyn FnMut(&TableSchema, Vec<ArrayRef>) -> Result<()>;

fn items(scale: Scale, source: &mut Source, sink: Sink) -> Result<()> {
    let mut rows = Columns::new(&item::SCHEMA);
    for id in 1..=scale.items {
        rows.number(i64::from(id)).number(source.number(1, 10_000));
        rows.text(source.letters(14, 24)).number(source.number(100, 10_000)).text(source.data(26, 50));
        if rows.rows() == ROWS_PER_BATCH {
            sink(&item::SCHEMA, std::mem::replace(&mut rows, Columns::new(&item::SCHEMA)).finish())?;
        }
    }
    flush(&item::SCHEMA, rows, sink)
}

fn warehouse_and_districts(scale: Scale, w: i32, source: &mut Source, sink: Sink) -> Result<()> {
    let mut row = Columns::new(&warehouse::SCHEMA);
    row.number(i64::from(w)).text(source.letters(6, 10));
    address(&mut row, source);
    row.number(source.number(0, 2_000)).number(i64::from(DISTRICTS) * paid_per_district(scale));
    sink(&warehouse::SCHEMA, row.finish())?;

    let mut rows = Columns::new(&district::SCHEMA);
    for d in 1..=DISTRICTS {
        rows.number(i64::from(w)).number(i64::from(d)).text(source.letters(6, 10));
        address(&mut rows, source);
        rows.number(source.number(0, 2_000)).number(paid_per_district(scale));
        rows.number(i64::from(scale.customers) + 1);
    }
    sink(&district::SCHEMA, rows.finish())
}

/// The initial payments to a district, in cents: ten from every customer.
fn paid_per_district(scale: Scale) -> i64 {
    i64::from(scale.customers) * FIRST_PAYMENT
}

/// Streets, city, state and zip code.
fn address(row: &mut Columns, source: &mut Source) {
    row.text(source.letters(10, 20)).text(source.letters(10, 20)).text(source.letters(10, 20));
    row.text(source.letters(2, 2)).text(source.zip());
}

fn stock_of(scale: Scale, w: i32, source: &mut Source, sink: Sink) -> Result<()> {
    let mut rows = Columns::new(&stock::SCHEMA);
    for i in 1..=scale.items {
        rows.number(i64::from(w)).number(i64::from(i)).number(source.number(10, 100));
        for _ in 0..DISTRICTS {
            rows.text(source.letters(24, 24));
        }
        rows.number(0).number(0).number(0).text(source.data(26, 50));
        if rows.rows() == ROWS_PER_BATCH {
            sink(&stock::SCHEMA, std::mem::replace(&mut rows, Columns::new(&stock::SCHEMA)).finish())?;
        }
    }
    flush(&stock::SCHEMA, rows, sink)
}

fn customers_and_history(scale: Scale, w: i32, d: i32, source: &mut Source, sink: Sink) -> Result<()> {
    let mut customers = Columns::new(&customer::SCHEMA);
    let mut payments = Columns::new(&history::SCHEMA);
    let (w, d) = (i64::from(w), i64::from(d));
    for c in 1..=scale.customers {
        // The first thousand have each name once, so that every name occurs.
        let name = if c <= scale.last_names() { c - 1 } else { source.last_name_number() };
        customers.number(w).number(d).number(i64::from(c));
        customers.text(source.letters(8, 16)).text("OE").text(LastName::of(name).as_str());
        address(&mut customers, source);
        customers.text(source.digits(16, 16)).timestamp(LOAD_TIME);
        customers.text(if source.number(1, 10) == 1 { "BC" } else { "GC" });
        customers.number(5_000_000).number(source.number(0, 5_000));
        customers.number(-FIRST_PAYMENT).number(FIRST_PAYMENT);
        customers.number(1).number(0).text(source.letters(300, 500));

        payments.number(i64::from(c)).number(d).number(w).number(d).number(w);
        payments.timestamp(LOAD_TIME).number(FIRST_PAYMENT).text(source.letters(12, 24));
    }
    sink(&customer::SCHEMA, customers.finish())?;
    sink(&history::SCHEMA, payments.finish())
}

fn orders_of(scale: Scale, w: i32, d: i32, source: &mut Source, sink: Sink) -> Result<()> {
    // Every customer has one order, in random order of customers.
    let mut buyers: Vec<i32> = (1..=scale.customers).collect();
    for last in (1..buyers.len()).rev() {
        buyers.swap(last, source.number(0, last as i64) as usize);
    }
    let mut rows = Columns::new(&orders::SCHEMA);
    let mut undelivered = Columns::new(&new_order::SCHEMA);
    let mut lines = Columns::new(&order_line::SCHEMA);
    let (w, d) = (i64::from(w), i64::from(d));
    for (o, buyer) in (1..).zip(buyers) {
        let delivered = o <= scale.delivered_orders();
        let line_count = source.number(5, 15);
        let o = i64::from(o);
        rows.number(w).number(d).number(o).number(i64::from(buyer)).timestamp(LOAD_TIME);
        if delivered {
            rows.number(source.number(1, 10));
        } else {
            rows.null();
            undelivered.number(w).number(d).number(o);
        }
        rows.number(line_count).number(1);
        for line in 1..=line_count {
            lines.number(w).number(d).number(o).number(line);
            lines.number(source.number(1, i64::from(scale.items))).number(w);
            if delivered {
                lines.timestamp(LOAD_TIME).number(5).number(0);
            } else {
                lines.null().number(5).number(source.number(1, 999_999));
            }
            lines.text(source.letters(24, 24));
        }
    }
    sink(&orders::SCHEMA, rows.finish())?;
    flush(&new_order::SCHEMA, undelivered, sink)?;
    sink(&order_line::SCHEMA, lines.finish())
}

fn flush(table: &TableSchema, rows: Columns, sink: Sink) -> Result<()> {
    if rows.rows() == 0 { Ok(()) } else { sink(table, rows.finish()) }
}

/// Random fields; strings are built in one buffer.
struct Source {
    random: Random,
    text: String,
}

impl Source {
    fn number(&mut self, low: i64, high: i64) -> i64 {
        self.random.uniform(low, high)
    }

    fn last_name_number(&mut self) -> i32 {
        nurand(&mut self.random, 255, 0, 999, NuRandConstants::LOAD.last_name)
    }

    /// The specification's a-string: letters and digits.
    fn letters(&mut self, shortest: i64, longest: i64) -> &str {
        const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        self.characters(ALPHABET, shortest, longest)
    }

    /// The specification's n-string: digits.
    fn digits(&mut self, shortest: i64, longest: i64) -> &str {
        self.characters(b"0123456789", shortest, longest)
    }

    fn zip(&mut self) -> &str {
        self.digits(4, 4);
        self.text.push_str("11111");
        &self.text
    }

    /// An a-string that in one case of ten contains ORIGINAL (clause 4.3.3.1).
    fn data(&mut self, shortest: i64, longest: i64) -> &str {
        self.letters(shortest, longest);
        if self.number(1, 10) == 1 {
            let start = self.number(0, self.text.len() as i64 - 8) as usize;
            self.text.replace_range(start..start + 8, "ORIGINAL");
        }
        &self.text
    }

    fn characters(&mut self, alphabet: &[u8], shortest: i64, longest: i64) -> &str {
        let length = self.number(shortest, longest);
        self.text.clear();
        for _ in 0..length {
            self.text.push(char::from(alphabet[self.random.uniform(0, alphabet.len() as i64 - 1) as usize]));
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use std::collections::BTreeMap;

    fn counts(scale: Scale, seed: u64) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        generate_all(scale, seed, &mut |table, columns| {
            assert_eq!(columns.len(), table.columns.len());
            *counts.entry(table.name.to_owned()).or_default() += columns[0].len();
            Ok(())
        })
        .unwrap();
        counts
    }

    #[test]
    fn the_population_has_the_specified_cardinalities() {
        let scale = Scale::small(2);
        let counts = counts(scale, 42);
        let expected = [
            ("customer", 2000),
            ("district", 20),
            ("history", 2000),
            ("item", 1000),
            ("new_order", 600),
            ("orders", 2000),
            ("stock", 2000),
            ("warehouse", 2),
        ];
        for (table, rows) in expected {
            assert_eq!(counts[table], rows, "{table}");
        }
        assert!((18_000..22_000).contains(&counts["order_line"]));
        let total: usize = counts.values().sum();
        assert!(total.abs_diff(expected_rows(scale) as usize) < 2_000);
    }

    #[test]
    fn a_seed_repeats_its_population_and_every_customer_has_one_order() {
        let mut first = Vec::new();
        generate_all(Scale::small(1), 7, &mut |_, columns| {
            first.push(columns);
            Ok(())
        })
        .unwrap();
        let mut again = first.iter();
        generate_all(Scale::small(1), 7, &mut |table, columns| {
            for (left, right) in columns.iter().zip(again.next().unwrap()) {
                assert_eq!(left.as_ref(), right.as_ref());
            }
            if table.name == "orders" {
                let buyers = columns[orders::o_c_id.index()].as_primitive::<Int32Type>();
                let mut buyers: Vec<_> = buyers.values().to_vec();
                buyers.sort_unstable();
                assert_eq!(buyers, (1..=100).collect::<Vec<_>>());
            }
            Ok(())
        })
        .unwrap();
    }
}
