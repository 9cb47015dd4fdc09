//! Many groups and many join partners: sets that are split into runs, parts that workers merge, with and without enough memory.
//!
//! With vectors of a few rows a set is split at a few hundred groups, so a table of some thousand rows has all of it.

use crate::sql::Database;
use firn_base::disk::SimulatedDisk;
use firn_base::sync::Arc;
use firn_executor::{Budget, Options, SpillArea};
use std::time::Duration;

const ROWS: u32 = 12_000;

fn database() -> Database {
    let database = Database::new();
    database.create(
        "CREATE TABLE big (id integer PRIMARY KEY, near bigint NOT NULL, far bigint, code bigint NOT NULL, short text, long text NOT NULL, few integer)",
    );
    let fill = format!(
        "INSERT INTO big SELECT g, g / 4, CASE WHEN g % 7 <> 0 THEN g * 7919 % 5003 END, g % 3000, \
         CASE WHEN g % 5 <> 0 THEN 's' || g % 2000 END, 'a text of more than a few bytes ' || g % 4000, g % 3 \
         FROM generate_series(1, {ROWS}) g"
    );
    let mut transaction = database.begin();
    database.run_as(&fill, &mut transaction, options(2048, 1)).unwrap();
    let _ = transaction.commit().unwrap();
    database
}

fn options(vector_rows: usize, workers: usize) -> Options {
    Options { vector_rows, workers, alone: Duration::ZERO, ..Options::new(Budget::new(1 << 30)) }
}

fn rows(database: &Database, statement: &str, options: Options) -> Vec<String> {
    let mut transaction = database.begin();
    let answer = database.run_as(statement, &mut transaction, options);
    let mut rows = answer.unwrap_or_else(|error| panic!("{statement}: {error}")).rows;
    transaction.rollback();
    rows.sort_unstable();
    rows
}

/// Runs a statement with few and many threads, small and large vectors, much memory and little, and compares its rows.
fn compare(database: &Database, statement: &str, groups: usize) {
    let expected = rows(database, statement, options(2048, 1));
    assert_eq!(expected.len(), groups, "{statement}");
    for (vector_rows, workers) in [(4, 1), (4, 3), (16, 2), (2048, 2)] {
        let found = rows(database, statement, options(vector_rows, workers));
        assert!(found == expected, "{statement}: {vector_rows} rows in a vector, {workers} workers");
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
        let narrow = Options {
            spill: Some(area.clone()),
            budget: Budget::new(60_000),
            ..options(vector_rows, workers)
        };
        let budget = Arc::clone(&narrow.budget);
        let found = rows(database, statement, narrow);
        assert!(found == expected, "{statement}: {vector_rows} rows, {workers} workers, little memory");
        assert!(area.written() > 0, "it had to spill: {statement}");
        assert_eq!((area.used(), budget.used()), (0, 0), "{statement}");
    }
}

#[test]
fn many_groups_are_the_same_however_they_are_split_and_merged() {
    let database = database();
    compare(&database, "SELECT near, count(*), sum(id), min(long) FROM big GROUP BY near", 3001);
    compare(&database, "SELECT far, count(*), sum(id), max(short) FROM big GROUP BY far", 5004);
    compare(&database, "SELECT long, count(*) FILTER (WHERE few > 0), min(id) FROM big GROUP BY long", 4000);
    compare(
        &database,
        "SELECT short, far, code, count(*), min(few) FROM big GROUP BY short, far, code",
        12_000,
    );
    compare(&database, "SELECT DISTINCT id, long FROM big", 12_000);
    compare(
        &database,
        "SELECT near, few, count(*), sum(code) FROM big GROUP BY GROUPING SETS ((near), (few), (near, few), ())",
        3001 + 3 + 9001 + 1,
    );
}

#[test]
fn joins_find_all_partners_by_keys_of_each_kind() {
    let database = database();
    // The numbers are PostgreSQL's.
    for (statement, count) in [
        ("SELECT a.id, b.id FROM big a JOIN big b ON a.code = b.near", 47_996),
        ("SELECT a.id, b.id FROM big a JOIN big b ON a.id = b.code", 11_996),
        ("SELECT a.id, b.id FROM big a LEFT JOIN big b ON a.short = b.short AND a.few = b.few", 21_600),
        ("SELECT a.id, b.id FROM big a LEFT JOIN big b ON a.near = b.id", 12_000),
        ("SELECT a.id, b.id FROM big a FULL JOIN big b ON a.far = b.id", 18_998),
        ("SELECT a.id, b.id FROM big a FULL JOIN big b ON a.long = b.long AND a.far = b.far", 13_714),
        ("SELECT id FROM big a WHERE EXISTS (SELECT 1 FROM big b WHERE b.id = a.far)", 10_284),
        (
            "SELECT id FROM big a WHERE NOT EXISTS (SELECT 1 FROM big b WHERE b.id = a.far AND b.few = a.few)",
            8_578,
        ),
        ("SELECT id FROM (SELECT id, far IN (SELECT id FROM big WHERE few = 1) x FROM big) a WHERE x", 3_420),
        (
            "SELECT id FROM (SELECT id, far IN (SELECT far FROM big WHERE few = 1) x FROM big) a WHERE x IS NULL",
            4_290,
        ),
    ] {
        let expected = rows(&database, statement, options(2048, 1));
        assert_eq!(expected.len(), count, "{statement}");
        for (vector_rows, workers) in [(3, 1), (4, 3), (2048, 2)] {
            let found = rows(&database, statement, options(vector_rows, workers));
            assert!(found == expected, "{statement}: {vector_rows} rows in a vector, {workers} workers");
        }
    }
}
