//! Values that are too wide for vectors of many rows: chunks are evaluated in parts, with the same results.

use crate::sql::Database;
use firn_base::SqlState;
use firn_base::sync::Arc;
use firn_executor::{Budget, Options};

fn answer(database: &Database, statement: &str, options: Options) -> Vec<String> {
    let mut transaction = database.begin();
    let answer = database.run_as(statement, &mut transaction, options);
    let mut answer = answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
    transaction.rollback();
    answer.rows.sort_unstable();
    answer.rows
}

#[test]
fn wide_values_come_in_parts() {
    let database = Database::new();
    database.create("CREATE TABLE one (a integer)");
    for statement in [
        "SELECT i, repeat('x', i) FROM generate_series(1, 3000) i",
        "SELECT i, repeat('x', 100 + i) || i, CASE WHEN i % 3 = 0 THEN repeat('ab', i) ELSE i || 'c' END FROM generate_series(1, 3000) i WHERE i % 7 < 5",
        "SELECT i, repeat('x', 100 + i) || i || repeat('y', i % 50) || 'z' FROM generate_series(1, 3000) i",
        // Wide where no row before was.
        "SELECT i, repeat('x', i / 2000 * 3000) FROM generate_series(1, 4000) i",
        "SELECT i, array_fill(i, ARRAY[i]) FROM generate_series(1, 300) i",
        "SELECT i, u FROM generate_series(1, 300) i, unnest(ARRAY[repeat('x', i), i::text, repeat('y', 2 * i)]) u",
        "SELECT i % 5, max(repeat('x', i)), count(DISTINCT repeat('z', i % 90)), string_agg(repeat('y', i % 4), ',' ORDER BY i) FILTER (WHERE length(repeat('y', i)) % 2 = 0) FROM generate_series(1, 2000) i GROUP BY i % 5",
        "SELECT count(*) FROM generate_series(1, 2000) i WHERE repeat('x', i) LIKE '%xxx' AND length(repeat('x', i)) % 3 = 0",
    ] {
        let budget = Budget::new(1 << 28);
        let narrow = Options { vector_bytes: 4096, ..Options::new(budget.clone()) };
        let expected = answer(&database, statement, Options::new(Budget::new(1 << 28)));
        assert!(answer(&database, statement, narrow) == expected, "{statement}");
        assert_eq!(budget.used(), 0);
    }
}

/// 2,048 rows with 200 MB of strings: conditions on what is wide, and keys. Results take memory as long as they are passed on.
#[test]
fn wide_values_take_the_memory_of_a_part() {
    let database = Database::new();
    database.create("CREATE TABLE one (a integer)");
    let series = "generate_series(1, 2048) i";
    let options = |bytes| Options::new(Budget::new(bytes));
    let count = format!("SELECT count(*) FROM {series} WHERE length(repeat('x', 100000 + i)) > 101024");
    assert_eq!(answer(&database, &count, options(1 << 20)), ["1024"]);
    let longest = format!(
        "SELECT length(max(repeat('x', 100000 + i))), sum(length(repeat('y', 100000 + i))) FROM {series}"
    );
    assert_eq!(answer(&database, &longest, options(8 << 20)), ["102048|206898176"]);
    // One value for which there is no memory.
    let budget = Budget::new(1 << 20);
    let mut transaction = database.begin();
    let statement = "SELECT i, repeat('x', 4000000 + i) FROM generate_series(1, 2) i";
    let refused =
        database.run_as(statement, &mut transaction, Options::new(Arc::clone(&budget))).unwrap_err();
    assert_eq!((refused.state(), budget.used()), (SqlState::OUT_OF_MEMORY, 0));
    transaction.rollback();
}
