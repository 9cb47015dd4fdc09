//! A row by its primary key through a prepared statement, in process, one thread: FirnDB and SQLite
//! `:memory:` in alternating rounds over the same keys. Both add up what they read, and the sums must be equal.

use crate::Outcome;
use firn_base::random::Random;
use firn_base::{SqlType, Value};
use firn_bench::columns::Columns;
use firn_bench::schema::{ColumnSchema, TableSchema};
use firn_bench::tpcc::load::insert_columns;
use firn_bench::{median, short_duration};
use firn_session::server::RowChunk;
use firn_session::{Connection, Database, Outcome as Ran, Statement};
use std::time::{Duration, Instant};

/// Arguments of `point-reads`.
#[derive(clap::Args)]
pub struct Options {
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    rows: i64,
    /// Reads a round.
    #[arg(long, default_value_t = 1_000_000)]
    reads: u64,
    /// Rounds of each engine; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

static TABLE: TableSchema = TableSchema {
    name: "points",
    columns: &[
        ColumnSchema { name: "id", ty: SqlType::BigInt, nullable: false },
        ColumnSchema { name: "amount", ty: SqlType::BigInt, nullable: false },
        ColumnSchema { name: "label", ty: SqlType::Text, nullable: false },
    ],
    primary_key: &[firn_base::ColumnId(0)],
    indexes: &[],
};

/// Compares.
pub fn run(options: Options) -> Outcome {
    let database = Database::memory()?;
    fill_firn(&database, options.rows)?;
    let mut connection = database.connect();
    let statement = connection.prepare("SELECT amount, label FROM points WHERE id = $1")?;
    let sqlite = fill_sqlite(options.rows)?;
    let mut prepared = sqlite.prepare("SELECT amount, label FROM points WHERE id = ?1")?;

    let (mut firn, mut other) = (Vec::new(), Vec::new());
    for round in 0..options.rounds as u64 {
        let start = Instant::now();
        let ours = read_firn(&mut connection, &statement, &options, round)?;
        firn.push(start.elapsed() / options.reads as u32);
        let start = Instant::now();
        let theirs = read_sqlite(&mut prepared, &options, round)?;
        other.push(start.elapsed() / options.reads as u32);
        assert_eq!(ours, theirs, "both engines read the same rows");
    }
    let (firn, other) = (median(&mut firn), median(&mut other));
    println!("read by primary key of {} rows, median of {} rounds", options.rows, options.rounds);
    print("FirnDB", firn);
    print("SQLite", other);
    println!("FirnDB takes {:.2} times what SQLite takes", firn.as_secs_f64() / other.as_secs_f64());
    Ok(())
}

fn print(name: &str, duration: Duration) {
    println!("{name:<8}{:>12}{:>14.0} reads/s", short_duration(duration), 1.0 / duration.as_secs_f64());
}

/// The row of a key: a number and 32 characters.
fn row(id: i64) -> (i64, String) {
    (id.wrapping_mul(7) % 1_000_003, format!("{id:032}"))
}

fn fill_firn(database: &Database, rows: i64) -> firn_base::Result<()> {
    TABLE.create(database.engine())?;
    for first in (0..rows).step_by(100_000) {
        let mut columns = Columns::new(&TABLE);
        for id in first..rows.min(first + 100_000) {
            let (amount, label) = row(id);
            columns.number(id).number(amount).text(&label);
        }
        insert_columns(database.engine(), &TABLE, &columns.finish())?;
    }
    Ok(())
}

fn fill_sqlite(rows: i64) -> rusqlite::Result<rusqlite::Connection> {
    let sqlite = rusqlite::Connection::open_in_memory()?;
    sqlite.execute_batch(
        "CREATE TABLE points (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL, label TEXT NOT NULL); BEGIN",
    )?;
    {
        let mut insert = sqlite.prepare("INSERT INTO points VALUES (?1, ?2, ?3)")?;
        for id in 0..rows {
            let (amount, label) = row(id);
            insert.execute(rusqlite::params![id, amount, label])?;
        }
    }
    sqlite.execute_batch("COMMIT")?;
    Ok(sqlite)
}

fn read_firn(
    connection: &mut Connection,
    statement: &Statement,
    options: &Options,
    seed: u64,
) -> firn_base::Result<i64> {
    let mut random = Random::seeded(seed);
    let mut sum = 0;
    for _ in 0..options.reads {
        let id = random.uniform(0, options.rows - 1);
        let Ran::Rows(mut rows) = connection.run(statement, &[Value::BigInt(id)])? else {
            panic!("a query yields rows")
        };
        while let Some(chunk) = rows.next_chunk()? {
            let RowChunk::Values(values) = chunk else { panic!("a read by key takes the short path") };
            let [Value::BigInt(amount), Value::Text(label)] = &values[..] else { panic!("one row") };
            sum += amount + label.len() as i64;
        }
    }
    Ok(sum)
}

fn read_sqlite(
    prepared: &mut rusqlite::Statement<'_>,
    options: &Options,
    seed: u64,
) -> rusqlite::Result<i64> {
    let mut random = Random::seeded(seed);
    let mut sum = 0;
    for _ in 0..options.reads {
        let id = random.uniform(0, options.rows - 1);
        let mut rows = prepared.query([id])?;
        while let Some(row) = rows.next()? {
            let label = row.get_ref(1)?.as_str().expect("labels are text").to_owned();
            sum += row.get::<_, i64>(0)? + label.len() as i64;
        }
    }
    Ok(sum)
}
