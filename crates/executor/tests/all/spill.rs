//! Operators without enough memory: the same rows, by way of temporary files, which go with the execution.

use crate::sql::Database;
use firn_base::SqlState;
use firn_base::disk::SimulatedDisk;
use firn_base::sync::Arc;
use firn_executor::{Budget, Options, SpillArea};
use std::time::Duration;

const ROWS: u32 = 20_000;

fn database() -> Database {
    let database = Database::new();
    database.create("CREATE TABLE big (id integer PRIMARY KEY, v integer, s text)");
    database.create("CREATE TABLE other (k integer, w integer, s text)");
    let fill = format!(
        "INSERT INTO big SELECT g, g * 7919 % 10007, 'a text of more than a few bytes ' || g FROM generate_series(1, {ROWS}) g"
    );
    let mut transaction = database.begin();
    database.run_as(&fill, &mut transaction, roomy(1)).unwrap();
    // Some keys are NULL, and one has most of the rows.
    let fill = format!(
        "INSERT INTO other SELECT CASE WHEN g % 5 < 3 THEN 7 WHEN g % 11 <> 0 THEN g END, g * 7907 % 10009, 'other ' || g % 1000 FROM generate_series(1, {ROWS}) g"
    );
    database.run_as(&fill, &mut transaction, roomy(1)).unwrap();
    let _ = transaction.commit().unwrap();
    database
}

fn roomy(workers: usize) -> Options {
    Options { workers, alone: Duration::ZERO, ..Options::new(Budget::new(1 << 30)) }
}

/// Runs a statement with and without enough memory, in transactions that are rolled back, and compares what comes of it.
fn compare(database: &Database, statement: &str, budget: u64, workers: usize) {
    let answer = |options: Options| {
        let mut transaction = database.begin();
        let answer = database.run_as(statement, &mut transaction, options);
        let mut answer = answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
        let after = database.run_as("SELECT count(*), sum(id), sum(v) FROM big", &mut transaction, roomy(1));
        transaction.rollback();
        answer.rows.sort_unstable();
        (answer.rows, answer.count, after.unwrap().rows)
    };
    let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
    let narrow = Options { spill: Some(area.clone()), budget: Budget::new(budget), ..roomy(workers) };
    let of_narrow = Arc::clone(&narrow.budget);
    let found = answer(narrow);
    let expected = answer(roomy(1));
    assert!(found == expected, "{statement}, {workers} workers");
    assert!(area.written() > 0, "it had to spill: {statement}");
    assert_eq!((area.used(), of_narrow.used()), (0, 0), "{statement}");
    let always = Options { spill: Some(area.clone()), always_spill: true, ..roomy(workers) };
    assert!(answer(always) == expected, "{statement}, {workers} workers, always");
    assert_eq!(area.used(), 0, "{statement}");
    let without_files = Options { budget: Budget::new(budget), ..roomy(workers) };
    let mut transaction = database.begin();
    let error = database.run_as(statement, &mut transaction, without_files).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY, "{statement}");
    transaction.rollback();
}

#[test]
fn groups_without_memory_go_to_temporary_files() {
    let database = database();
    for statement in [
        "SELECT id, count(*), sum(v), min(s) FROM big GROUP BY id",
        "SELECT v, count(*), max(id), avg(id) FROM big GROUP BY v",
        "SELECT s, id % 2, count(*) FILTER (WHERE v > 5000) FROM big GROUP BY s, id % 2",
        "SELECT v, id % 3, count(*), GROUPING(v) FROM big GROUP BY GROUPING SETS ((v), (id % 3), (v, id % 3), ())",
        "SELECT DISTINCT s, v FROM big",
        // What one group keeps, or a few, of its rows.
        "SELECT count(DISTINCT s), sum(DISTINCT v), count(*) FROM big",
        "SELECT v % 3, count(DISTINCT s || id), max(s) FROM big GROUP BY v % 3",
        "SELECT string_agg(left(s, 1), '' ORDER BY s DESC, id), string_agg(right(s, 1), '' ORDER BY v, id) FROM big",
        "SELECT length(string_agg(DISTINCT s, '' ORDER BY s)), min(id) FROM big WHERE id < 9000",
        "SELECT k, count(DISTINCT s) FILTER (WHERE w > 500), string_agg(left(s, 1), '' ORDER BY w, s) FROM other GROUP BY k",
    ] {
        for workers in [1, 3] {
            compare(&database, statement, 400_000, workers);
        }
    }
}

/// Rounds of all rows, of rows that have all come before, and many of few rows.
#[test]
fn a_recursion_without_memory_goes_to_temporary_files() {
    let database = database();
    for recursion in [
        "SELECT id, v, s FROM big UNION ALL SELECT id + 100000, v, s FROM r WHERE id < 200000",
        "SELECT id, v, s FROM big UNION SELECT id % 5000, v % 100, left(s, 34) FROM r",
        "SELECT id, 0, '' FROM big UNION SELECT id + 7, v, s FROM r WHERE id < 21000",
    ] {
        let statement = format!(
            "WITH RECURSIVE r (id, v, s) AS ({recursion}) SELECT count(*), sum(id), sum(v), min(s), max(s) FROM r"
        );
        compare(&database, &statement, 400_000, 1);
    }
    // The rows of a round come when it has ended, but no others are waited for.
    let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
    let narrow = Options { spill: Some(area.clone()), budget: Budget::new(400_000), ..roomy(1) };
    let mut transaction = database.begin();
    let statement = "WITH RECURSIVE r (id, s) AS (SELECT id, s FROM big UNION SELECT id + 1, s FROM r) SELECT * FROM r LIMIT 70000";
    let answer = database.run_as(statement, &mut transaction, narrow).unwrap();
    transaction.rollback();
    assert_eq!(answer.rows.len(), 70_000);
    assert!(area.written() > 0 && area.used() == 0);
}

#[test]
fn shared_rows_without_memory_go_to_a_temporary_file() {
    let database = database();
    let statement = "WITH x AS MATERIALIZED (SELECT id, v, s FROM big) SELECT (SELECT count(*) FROM x), (SELECT sum(v) FROM x), (SELECT max(s) FROM x)";
    compare(&database, statement, 300_000, 1);
}

/// The rows to change, what RETURNING gives, and a scan of the table that the change must not meet.
#[test]
fn rows_of_changes_without_memory_go_to_temporary_files() {
    let database = database();
    for statement in [
        "UPDATE big SET v = v + 1, s = s || '!' RETURNING id, v, s",
        "INSERT INTO big SELECT id + 100000, v, s FROM big RETURNING id, s",
        "DELETE FROM big WHERE id % 2 = 0 RETURNING s, (SELECT count(*) FROM big WHERE s > 'a')",
        "WITH gone AS (DELETE FROM big WHERE v < 9000 RETURNING id, v, s) SELECT g.s FROM gone g UNION ALL SELECT s FROM big",
    ] {
        compare(&database, statement, 300_000, 1);
    }
}

/// Statements of which each keeps the rows of `other` to find the partners of those of `big`: NULLs, and one key with many rows, among them.
const JOINS: [&str; 21] = [
    "SELECT b.id, o.w, o.s FROM big b JOIN other o ON b.id = o.k",
    "SELECT b.id, o.w FROM big b JOIN other o ON b.id = o.k AND b.v < o.w",
    "SELECT count(*) FROM big b JOIN other o ON b.s = 'a text of more than a few bytes ' || o.k",
    "SELECT b.id, o.w, o.s FROM big b LEFT JOIN other o ON b.id = o.k",
    "SELECT b.id, o.w FROM big b LEFT JOIN other o ON b.id = o.k AND b.v > o.w + 9000",
    "SELECT b.id, o.k, o.w, o.s FROM big b FULL JOIN other o ON b.id = o.k",
    "SELECT b.id, o.k, o.w FROM big b FULL JOIN other o ON b.id = o.k AND b.v > o.w + 5000",
    "SELECT b.id, o.k, o.w FROM (SELECT id FROM big WHERE v < 0) b FULL JOIN other o ON b.id = o.k",
    "SELECT id FROM big b WHERE EXISTS (SELECT 1 FROM other o WHERE o.k = b.id)",
    "SELECT id FROM big b WHERE EXISTS (SELECT 1 FROM other o WHERE o.k = b.id AND o.w > b.v)",
    "SELECT id FROM big b WHERE NOT EXISTS (SELECT 1 FROM other o WHERE o.k = b.id)",
    "SELECT id FROM big b WHERE NOT EXISTS (SELECT 1 FROM other o WHERE o.k = b.id AND o.w > b.v + 9000)",
    "SELECT id, id IN (SELECT k FROM other) FROM big",
    "SELECT id, id IN (SELECT k FROM other WHERE k IS NOT NULL) FROM big",
    "SELECT id, CASE WHEN id % 9 > 0 THEN id END NOT IN (SELECT k FROM other WHERE k IS NOT NULL) FROM big",
    // Rows that are compared with all others, each of which is kept apart from the others.
    "SELECT id, (id, CASE WHEN v % 8 > 0 THEN v END) IN (SELECT k, w FROM other) FROM big WHERE id <= 40",
    "SELECT id, (SELECT w FROM other o WHERE o.k = b.id + 7 AND o.w >= 0) FROM big b",
    "SELECT id, w, o.s FROM big b, other o WHERE b.id <= 30 AND b.v > o.w",
    "SELECT id, w, o.s FROM (SELECT * FROM big WHERE id <= 30) b LEFT JOIN other o ON b.v > o.w + 8000",
    "SELECT id FROM big b WHERE id <= 30 AND NOT EXISTS (SELECT 1 FROM other o WHERE o.w > b.v + 4000 AND o.s || b.s > '')",
    "SELECT b.id, o.w, b2.v FROM big b JOIN other o ON b.id = o.k JOIN big b2 ON b2.v = o.w",
];

#[test]
fn joins_without_memory_go_to_temporary_files() {
    let database = database();
    for statement in JOINS {
        for workers in [1, 3] {
            compare(&database, statement, 400_000, workers);
        }
    }
}

/// A second row for a scalar sub-query is found in whatever round it is looked for.
#[test]
fn a_second_row_of_a_sub_query_is_an_error_without_memory() {
    let database = database();
    let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
    let narrow = Options { spill: Some(area.clone()), budget: Budget::new(400_000), ..roomy(1) };
    let statement = "SELECT id, (SELECT w FROM other o WHERE o.k = b.id) FROM big b";
    let mut transaction = database.begin();
    let error = database.run_as(statement, &mut transaction, narrow).unwrap_err();
    assert_eq!(error.state(), SqlState::CARDINALITY_VIOLATION);
    transaction.rollback();
    assert!(area.written() > 0 && area.used() == 0);
}

#[test]
fn a_limit_ends_a_join_without_memory() {
    let database = database();
    for statement in [
        "SELECT b.id, o.w FROM big b JOIN other o ON b.id = o.k LIMIT 10",
        "SELECT b.id, o.w FROM big b FULL JOIN other o ON b.id = o.k LIMIT 10",
        "SELECT b.id, o.w, o.s FROM big b, other o LIMIT 10",
    ] {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
        let narrow = Options { spill: Some(area.clone()), budget: Budget::new(300_000), ..roomy(3) };
        let mut transaction = database.begin();
        let answer = database.run_as(statement, &mut transaction, narrow).unwrap();
        transaction.rollback();
        assert_eq!(answer.rows.len(), 10, "{statement}");
        assert!(area.written() > 0 && area.used() == 0, "{statement}");
    }
}

/// Of a few partitions only the first rows are kept: all rows do not fit.
#[test]
fn the_first_rows_of_each_partition_fit() {
    let database = database();
    let narrow = |workers| Options { budget: Budget::new(2_000_000), ..roomy(workers) };
    let rows = |statement: &str, options: Options| {
        let mut transaction = database.begin();
        let answer = database.run_as(statement, &mut transaction, options);
        transaction.rollback();
        answer.map(|mut answer| {
            answer.rows.sort_unstable();
            answer.rows
        })
    };
    for (statement, count) in [
        (
            "SELECT id, s FROM (SELECT *, row_number() OVER (PARTITION BY v % 50 ORDER BY id) n FROM big) x WHERE n <= 3",
            150,
        ),
        (
            "SELECT id, s FROM (SELECT *, row_number() OVER (PARTITION BY id % 2 ORDER BY v, id) n FROM big) x WHERE n BETWEEN 11 AND 100",
            180,
        ),
        (
            "SELECT id, s FROM (SELECT *, row_number() OVER (ORDER BY v DESC, id) n FROM big) x WHERE n <= 7",
            7,
        ),
        (
            "SELECT id, s FROM (SELECT *, row_number() OVER (PARTITION BY id % 2 ORDER BY v) n FROM big) x WHERE n <= 0",
            0,
        ),
        ("SELECT DISTINCT ON (v % 100) id, s FROM big ORDER BY v % 100, id", 100),
    ] {
        let expected = rows(statement, roomy(1)).unwrap();
        assert_eq!(expected.len(), count, "{statement}");
        for workers in [1, 3] {
            let found =
                rows(statement, narrow(workers)).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
            assert!(found == expected, "{statement}, {workers} workers");
        }
    }
    let all = "SELECT id, s, row_number() OVER (PARTITION BY v % 50 ORDER BY id) FROM big";
    assert_eq!(rows(all, narrow(1)).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
}

/// Windows of many partitions, of one that has most of the rows, and of one that has all.
#[test]
fn windows_without_memory_go_to_temporary_files() {
    let database = database();
    for statement in [
        "SELECT id, s, sum(v) OVER (PARTITION BY v % 100), ntile(3) OVER (PARTITION BY v % 100 ORDER BY id) FROM big",
        "SELECT id, s, first_value(s) OVER (PARTITION BY v ORDER BY id DESC), count(*) OVER (PARTITION BY v) FROM big",
        "SELECT id, s, row_number() OVER (ORDER BY v, id) FROM big",
        "SELECT id, s, rank() OVER (ORDER BY v), dense_rank() OVER (ORDER BY v), sum(id) OVER (ORDER BY v) FROM big",
        "SELECT id, s, lag(v, 2) OVER w, lead(v) OVER w, lead(v, 3, -1) OVER w FROM big WINDOW w AS (ORDER BY id)",
        "SELECT id, s, sum(v) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING), max(v) FILTER (WHERE v % 3 = 0) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 4 PRECEDING) FROM big",
        "SELECT k, w, s, row_number() OVER p, sum(w) OVER p, lag(s) OVER p FROM other WINDOW p AS (PARTITION BY k ORDER BY w, s)",
        // What must be known of a whole partition.
        "SELECT id, s, count(*) OVER () FROM big",
        "SELECT id, s, sum(v) OVER w, avg(v) FILTER (WHERE v % 3 = 0) OVER w, max(s) OVER w FROM big WINDOW w AS (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "SELECT id, s, count(*) OVER (ORDER BY v, id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), row_number() OVER (ORDER BY v, id), lag(s) OVER (ORDER BY v, id) FROM big",
        "SELECT id, s, ntile(7) OVER (ORDER BY v, id), percent_rank() OVER w, cume_dist() OVER w FROM big WINDOW w AS (ORDER BY v)",
        "SELECT k, w, s, max(w) OVER (PARTITION BY k), min(s) OVER (PARTITION BY k) FROM other",
    ] {
        for workers in [1, 3] {
            compare(&database, statement, 400_000, workers);
        }
    }
    // The first rows of each partition, of which there are many, or which one has most of.
    for statement in [
        "SELECT id, s, n FROM (SELECT *, row_number() OVER (PARTITION BY v ORDER BY id DESC) n FROM big) x WHERE n = 1",
        "SELECT id, s, n FROM (SELECT *, row_number() OVER (PARTITION BY s, v ORDER BY id) n FROM big) x WHERE n <= 3",
        "SELECT k, w, s, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY w DESC, s) n FROM other) x WHERE n BETWEEN 100 AND 9000",
        "SELECT k, w, s FROM (SELECT *, row_number() OVER (ORDER BY w, s) n FROM other) x WHERE n <= 15000",
        "SELECT DISTINCT ON (v) v, id, s FROM big ORDER BY v, id DESC",
        "SELECT DISTINCT ON (s) v, id, s FROM big ORDER BY s, id DESC",
    ] {
        for workers in [1, 3] {
            compare(&database, statement, 400_000, workers);
        }
    }
    // Each row asks for single rows far away.
    let narrow = Options { budget: Budget::new(400_000), ..roomy(1) };
    let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
    let narrow = Options { spill: Some(area.clone()), ..narrow };
    let mut transaction = database.begin();
    let statement = "SELECT id, s, last_value(s) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM big";
    let error = database.run_as(statement, &mut transaction, narrow).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
    transaction.rollback();
    assert!(area.written() > 0 && area.used() == 0);
}
