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
    let fill = format!(
        "INSERT INTO big SELECT g, g * 7919 % 10007, 'a text of more than a few bytes ' || g FROM generate_series(1, {ROWS}) g"
    );
    let mut transaction = database.begin();
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
    assert!(found == answer(roomy(1)), "{statement}, {workers} workers");
    assert!(area.written() > 0, "it had to spill: {statement}");
    assert_eq!((area.used(), of_narrow.used()), (0, 0), "{statement}");
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
    ] {
        for workers in [1, 3] {
            compare(&database, statement, 400_000, workers);
        }
    }
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
