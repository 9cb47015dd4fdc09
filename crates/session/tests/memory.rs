//! What a session keeps stays within the memory of queries: a process of its own, which has little of it.
//!
//! Results that are several times as large are read ahead, kept for cursors and returned. Then there are temporary files, the memory in
//! use is never more than there may be, and the rows are right. Afterwards nothing is left of it.

use firn_base::random::Random;
use firn_session::server::ServerConnection as _;
use firn_session::{Connection, Database, Error, Outcome, Rows, SqlState, Value, limit_query_memory};
use firn_sql::query::query_memory_used;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const QUERY_MEMORY: u64 = 8 << 20;

/// Rows of some 130 bytes: five times that memory.
const ROWS: i32 = 300_000;

/// One test at a time, since all have the one memory and look at it.
static ALONE: Mutex<()> = Mutex::new(());

struct Setting {
    database: Database,
    /// How many files the process has opened.
    files: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Setting {
    fn new() -> Setting {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = limit_query_memory(QUERY_MEMORY);
        let database = Database::memory().unwrap();
        // What the process opens once.
        let warm = "CREATE TABLE warm AS SELECT generate_series(1, 500000) AS i; SELECT * FROM warm ORDER BY i % 1000; DROP TABLE warm";
        database.connect().execute(warm).unwrap();
        assert_eq!(query_memory_used(), 0);
        Setting { database, files: open_files(), _alone: alone }
    }

    fn connect(&self) -> Connection {
        self.database.connect()
    }

    /// Whether there are temporary files.
    fn has_spilled(&self) -> bool {
        open_files() > self.files
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!((query_memory_used(), open_files()), (0, self.files));
    }
}

fn count_entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

fn open_files() -> usize {
    count_entries("/proc/self/fd")
}

/// What of the process is in memory.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What all threads of the process have used so far, those that have ended among them.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = |field: usize| fields.split(' ').nth(field).unwrap().parse::<u64>().unwrap();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn query() -> String {
    format!("SELECT i, 'row ' || i || repeat('.', 100) AS s FROM generate_series(1, {ROWS}) AS i")
}

fn run(connection: &mut Connection, sql: &str) -> Rows {
    let statement = connection.prepare(sql).unwrap();
    match connection.run(&statement, &[]).unwrap() {
        Outcome::Rows(rows) => rows,
        _ => panic!("it gives rows: {sql}"),
    }
}

/// Draws all rows, which must be those of the query with these numbers.
fn check(rows: &mut Rows, numbers: impl Iterator<Item = i32>) {
    let (columns, mut numbers) = (rows.columns().clone(), numbers);
    while let Some(chunk) = rows.next_chunk().unwrap() {
        assert!(query_memory_used() <= QUERY_MEMORY);
        for row in chunk.into_values(&columns) {
            let number = numbers.next().expect("there are no more rows");
            let text = format!("row {number}{}", ".".repeat(100));
            assert_eq!(row, [Value::Integer(number), Value::Text(text)]);
        }
    }
    assert_eq!(numbers.next(), None);
}

#[test]
fn rows_that_are_read_ahead_go_to_a_temporary_file() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute("CREATE TABLE t (x integer); BEGIN").unwrap();
    let mut rows = run(&mut connection, &query());
    let first = rows.next_chunk().unwrap().unwrap().rows(2) as i32;
    connection.execute("INSERT INTO t VALUES (1)").unwrap();
    assert!(setting.has_spilled());
    check(&mut rows, first + 1..=ROWS);
    connection.execute("COMMIT").unwrap();
    setting.assert_nothing_is_left();
}

/// Of two that have been read ahead, one is dropped.
#[test]
fn data_of_a_copy_that_are_read_ahead_go_to_a_temporary_file() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    let copy = format!("COPY ({}) TO STDOUT", query());
    let mut expected = Vec::new();
    std::io::Read::read_to_end(&mut connection.copy_out(&copy).unwrap(), &mut expected).unwrap();
    connection.execute("CREATE TABLE t (x integer); BEGIN").unwrap();
    let other = connection.copy_out(&copy).unwrap();
    let mut copied = connection.copy_out(&copy).unwrap();
    connection.execute("INSERT INTO t VALUES (1)").unwrap();
    assert!(setting.has_spilled() && query_memory_used() <= QUERY_MEMORY);
    drop(other);
    let mut found = Vec::new();
    std::io::Read::read_to_end(&mut copied, &mut found).unwrap();
    assert!(found == expected);
    drop(copied);
    connection.execute("COMMIT").unwrap();
    setting.assert_nothing_is_left();
}

#[test]
fn a_cursor_that_is_held_keeps_its_rows_in_a_temporary_file() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    for scroll in ["NO SCROLL", "", "SCROLL"] {
        connection
            .execute(&format!("BEGIN; DECLARE h {scroll} CURSOR WITH HOLD FOR {}; MOVE 9 h; COMMIT", query()))
            .unwrap();
        assert!(setting.has_spilled(), "{scroll}");
        check(&mut run(&mut connection, "FETCH 3 h"), 10..=12);
        check(&mut run(&mut connection, "FETCH ALL h"), 13..=ROWS);
        check(&mut run(&mut connection, "FETCH ALL h"), std::iter::empty());
        connection.execute("CLOSE h").unwrap();
        setting.assert_nothing_is_left();
    }
}

#[test]
fn a_cursor_that_scrolls_keeps_its_rows_in_a_temporary_file() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute(&format!("BEGIN; DECLARE s SCROLL CURSOR FOR {}", query())).unwrap();
    assert_eq!(connection.execute("MOVE ALL s").unwrap(), ROWS as u64);
    assert!(setting.has_spilled());
    let mut backward = run(&mut connection, "FETCH BACKWARD ALL s");
    // What a FETCH gives is what stood there, wherever the cursor goes meanwhile.
    check(&mut run(&mut connection, "FETCH 2 s"), 1..=2);
    check(&mut backward, (1..=ROWS).rev());
    check(&mut run(&mut connection, "FETCH ABSOLUTE 123456 s"), 123_456..=123_456);
    let mut left = run(&mut connection, "FETCH RELATIVE -1 s");
    connection.execute("CLOSE s").unwrap();
    check(&mut left, 123_455..=123_455);
    drop((backward, left));
    connection.execute("COMMIT").unwrap();
    setting.assert_nothing_is_left();
}

#[test]
fn a_move_keeps_nothing() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute(&format!("BEGIN; DECLARE c NO SCROLL CURSOR FOR {}", query())).unwrap();
    assert_eq!(connection.execute("MOVE 100000 c").unwrap(), 100_000);
    assert!(!setting.has_spilled() && query_memory_used() < QUERY_MEMORY / 8);
    check(&mut run(&mut connection, "FETCH c"), 100_001..=100_001);
    assert_eq!(connection.execute("MOVE ALL c").unwrap(), ROWS as u64 - 100_001);
    connection.execute("COMMIT").unwrap();
    setting.assert_nothing_is_left();
}

/// The rows are drawn when the statement has ended, and another one has been cancelled since.
#[test]
fn returned_rows_stay_in_a_temporary_file() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute("CREATE TABLE t (i integer, s text)").unwrap();
    let mut rows = run(&mut connection, &format!("INSERT INTO t {} RETURNING i, s", query()));
    assert!(setting.has_spilled() && query_memory_used() <= QUERY_MEMORY);
    connection.cancel_handle().cancel();
    check(&mut rows, 1..=ROWS);
    assert_eq!(rows.tag().to_string(), format!("INSERT 0 {ROWS}"));
    drop(rows);
    setting.assert_nothing_is_left();
    let count = connection.query_row_as::<i64>("SELECT count(*) FROM t", ()).unwrap();
    assert_eq!(count, Some(i64::from(ROWS)));
}

/// 2 GB of strings. A sequence, which is asked in the same step of the plan, gives each row one number.
#[test]
fn wide_rows_come_a_few_at_a_time() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute("CREATE SEQUENCE q").unwrap();
    let wide = "SELECT nextval('q') AS n, i || repeat('x', 1000000) AS s FROM generate_series(1, 2048) AS i";
    let mut rows = run(&mut connection, wide);
    let (columns, mut count) = (rows.columns().clone(), 0);
    while let Some(chunk) = rows.next_chunk().unwrap() {
        assert!(chunk.rows(2) <= 20 && query_memory_used() <= QUERY_MEMORY);
        for row in chunk.into_values(&columns) {
            count += 1;
            let Value::Text(text) = &row[1] else { panic!("it is a text") };
            let number = count.to_string();
            assert_eq!(row[0], Value::BigInt(count));
            assert!(text.starts_with(&number) && text.len() == number.len() + 1_000_000);
        }
    }
    assert_eq!(count, 2048);
    drop(rows);
    setting.assert_nothing_is_left();
}

/// The first rows of results without end are there at once, and as many as are asked for take no more memory than one. In tenths of
/// a millisecond on a machine that does nothing else; the bound is for one that does much.
#[test]
fn the_first_rows_of_a_result_without_end_are_there_at_once() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    let endless = [
        "SELECT i, 'row ' || i FROM generate_series(1, 1000000000000000) AS i",
        "WITH RECURSIVE r (i) AS (SELECT 1::bigint UNION ALL SELECT i + 1 FROM r) SELECT i, 'row ' || i FROM r",
        "WITH RECURSIVE r (i) AS (SELECT 1::bigint UNION SELECT i + 1 FROM r) SELECT i, 'row ' || i FROM r",
        "SELECT a.i, b.i FROM generate_series(1, 1000000000000000) AS a (i), generate_series(1, 3) AS b (i)",
    ];
    for (number, query) in endless.iter().enumerate() {
        for in_block in [false, true] {
            if in_block {
                connection.execute("BEGIN").unwrap();
            }
            let statement = connection.prepare(query).unwrap();
            let begin = Instant::now();
            let Outcome::Rows(mut rows) = connection.run(&statement, &[]).unwrap() else {
                panic!("it gives rows")
            };
            let mut count = rows.next_chunk().unwrap().unwrap().rows(2);
            assert!(begin.elapsed() < Duration::from_secs(2), "{query}: {:?}", begin.elapsed());
            let resident = resident_bytes();
            while count < 50_000 {
                count += rows.next_chunk().unwrap().unwrap().rows(2);
                // The keys of UNION are kept.
                assert!(query_memory_used() <= if number == 2 { QUERY_MEMORY } else { 1 << 20 }, "{query}");
            }
            assert!(resident_bytes() < resident + (64 << 20), "{query}");
            drop(rows);
            if in_block {
                connection.execute("COMMIT").unwrap();
            }
        }
        connection.execute(&format!("BEGIN; DECLARE c NO SCROLL CURSOR FOR {query}")).unwrap();
        assert_eq!(run(&mut connection, "FETCH 3 c").into_values().unwrap().len(), 3);
        assert_eq!(connection.execute("MOVE 30000 c").unwrap(), 30_000);
        connection.execute("ROLLBACK").unwrap();
    }
    setting.assert_nothing_is_left();
}

/// Ten million rows by FETCH, in an order that needs temporary files and in one that does not.
#[test]
fn a_cursor_over_ten_million_rows_takes_little_memory() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    for (rows, query) in [
        (10_000_000, "SELECT i, i * 2 FROM generate_series(1, 10000000) AS i"),
        (1_000_000, "SELECT i, i * 2 FROM generate_series(1, 1000000) AS i ORDER BY i % 1000, i"),
    ] {
        let resident = resident_bytes();
        connection.execute(&format!("BEGIN; DECLARE c NO SCROLL CURSOR FOR {query}")).unwrap();
        let fetch = connection.prepare("FETCH 50000 c").unwrap();
        let mut count = 0;
        loop {
            let Outcome::Rows(mut fetched) = connection.run(&fetch, &[]).unwrap() else {
                panic!("it gives rows")
            };
            let before = count;
            while let Some(chunk) = fetched.next_chunk().unwrap() {
                assert!(query_memory_used() <= QUERY_MEMORY);
                count += chunk.rows(2);
            }
            if count == before {
                break;
            }
        }
        assert_eq!(count, rows, "{query}");
        assert!(resident_bytes() < resident + (128 << 20), "{query}");
        connection.execute("COMMIT").unwrap();
    }
    setting.assert_nothing_is_left();
}

/// Statements that use much of everything, and some of whose rows are left to be read.
const LARGE: [&str; 9] = [
    "SELECT count(*), max(s) FROM (SELECT i % 1000 AS k, repeat('x', 50) || i AS s FROM generate_series(1, 3000000) AS i ORDER BY s) q",
    "SELECT i % 100000, count(DISTINCT i) FROM generate_series(1, 3000000) AS i GROUP BY 1",
    "SELECT count(*) FROM generate_series(1, 2000000) AS a JOIN generate_series(1, 2000000) AS b ON a = b",
    "SELECT max(n) FROM (SELECT sum(i) OVER (ORDER BY i % 1000, i) + count(*) OVER () AS n FROM generate_series(1, 2000000) AS i) q",
    "WITH RECURSIVE r (i) AS (SELECT 1::bigint UNION SELECT i + 1 FROM r) SELECT max(i) FROM r",
    "WITH RECURSIVE r (i) AS (SELECT i FROM generate_series(1, 100000) AS i UNION ALL SELECT i + 1 FROM r) SELECT i FROM r",
    "SELECT repeat('x', 1000000 + i) FROM generate_series(1, 100000) AS i",
    "INSERT INTO t SELECT i, repeat('y', 100) FROM generate_series(1, 300000) AS i RETURNING i, s",
    "WITH x AS MATERIALIZED (SELECT i, repeat('z', 40) AS s FROM generate_series(1, 2000000) AS i) SELECT count(*) FROM x a JOIN x b USING (i)",
];

/// Cancels fall anywhere into statements: each after a random number of looks at whether there is one, or by another thread after
/// a random time.
#[test]
fn random_cancels_leave_nothing_behind() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute("CREATE TABLE t (i integer, s text)").unwrap();
    let seed = Random::from_entropy().next_u64();
    let mut random = Random::seeded(seed);
    let looks = Arc::new(AtomicI64::new(i64::MAX));
    let watched = looks.clone();
    connection.set_interrupt_hook(move || watched.fetch_sub(1, Ordering::Relaxed) <= 0);
    let threads = count_entries("/proc/self/task");
    let mut cancelled = 0;
    for number in 0..200 {
        let statement = LARGE[random.uniform(0, LARGE.len() as i64 - 1) as usize];
        let in_block = random.uniform(0, 2) == 0;
        if in_block {
            connection.execute("BEGIN").unwrap();
        }
        let by_looks = random.uniform(0, 1) == 0;
        let done = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            match by_looks {
                true => looks.store(1 << random.uniform(0, 9), Ordering::Relaxed),
                false => {
                    let (cancel, after) = (connection.cancel_handle(), random.uniform(0, 20_000) as u64);
                    let done = &done;
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_micros(after));
                        // The first ones may come before the statement has begun.
                        while !done.load(Ordering::Relaxed) {
                            cancel.cancel();
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    });
                }
            }
            let mut rows_left = if random.uniform(0, 3) == 0 { 1 } else { usize::MAX };
            let ended = (|| {
                let statement = connection.prepare(statement)?;
                let Outcome::Rows(mut rows) = connection.run(&statement, &[])? else { unreachable!() };
                while rows_left > 0 && rows.next_chunk()?.is_some() {
                    rows_left -= 1;
                }
                Ok::<(), Error>(())
            })();
            done.store(true, Ordering::Relaxed);
            ended
        });
        looks.store(i64::MAX, Ordering::Relaxed);
        match ended {
            Ok(()) => drop(connection.execute("TRUNCATE t").unwrap()),
            Err(error) if error.state() == SqlState::QUERY_CANCELED => cancelled += 1,
            Err(error) => panic!("{statement}: {error}, number {number} of seed {seed}"),
        }
        if in_block {
            connection.execute("ROLLBACK").unwrap();
        }
        assert_eq!(query_memory_used(), 0, "{statement}, number {number} of seed {seed}");
        assert_eq!(open_files(), setting.files, "{statement}, number {number} of seed {seed}");
    }
    assert!(cancelled > 100, "{cancelled} of seed {seed}");
    // Threads that were asked to end are not joined.
    let begin = Instant::now();
    while count_entries("/proc/self/task") > threads {
        assert!(begin.elapsed() < Duration::from_secs(10), "threads are left, seed {seed}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(connection.query_row_as::<i64>("SELECT 1::bigint", ()).unwrap(), Some(1));
}

/// The process is looked at for a while after each cancel; on a machine that does much else a thread that went on would still get
/// more than that.
#[test]
fn after_a_cancel_a_statement_uses_no_processor_time() {
    let setting = Setting::new();
    let mut connection = setting.connect();
    connection.execute("CREATE TABLE t (i integer, s text)").unwrap();
    for statement in LARGE {
        let cancel = connection.cancel_handle();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            Instant::now()
        });
        let ended = connection.execute_statement(statement, &[]);
        let at = canceller.join().unwrap();
        if let Err(error) = &ended {
            assert_eq!(error.state(), SqlState::QUERY_CANCELED, "{statement}: {error}");
            assert!(at.elapsed() < Duration::from_secs(5), "{statement}: {:?}", at.elapsed());
        }
        // What a rollback leaves is collected.
        std::thread::sleep(Duration::from_millis(100));
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(400));
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(100), "{statement}: {used:?}");
    }
    setting.assert_nothing_is_left();
}
