//! Changes of tables beside PostgreSQL 15: `cases/changes.expected` has its answers to `cases/changes.sql`, made by
//! `cases/expected.py`. Rows come in any order, unless the statement orders them.

use crate::sql::{Database, error_text};
use crate::support::MODES;
use firn_base::sync::Ordering;

/// The statements of a file: each ends with a semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(str::trim).filter(|one| !one.is_empty())
}

/// Each file begins with the tables. A statement is run in a transaction of its own.
fn compare(name: &str, sql: &str, expected: &str) {
    for (mode, rewrites) in MODES.into_iter().zip([false, true, true]) {
        let mut database = Database::new();
        database.rewrites = rewrites;
        let mut differing = Vec::new();
        let mut answers = expected.split("@@\n").skip(1);
        let mut count = 0;
        for statement in statements(sql) {
            let body: String =
                statement.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
            if body.starts_with("CREATE TABLE") {
                database.create(&body);
                continue;
            }
            let answer = answers.next().unwrap_or_else(|| panic!("{name} has no answer to {body}"));
            let mut expected: Vec<&str> = answer.lines().collect();
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| database.alone(&body, mode)));
            let mut found = match run {
                Ok(Ok(answer)) => {
                    let mut lines = answer.rows;
                    lines.extend(answer.count.map(|count| format!("count {count}")));
                    lines
                }
                Ok(Err(error)) => vec![error_text(&error)],
                Err(_) => vec!["panic".to_owned()],
            };
            if !body.contains("ORDER BY") {
                expected.sort_unstable();
                found.sort_unstable();
            }
            count += 1;
            // Which of several rows that violate a constraint comes first is open if several threads find them.
            if let ([found], [expected], true) = (&mut found[..], &mut expected[..], mode.workers > 1)
                && expected.starts_with("error")
            {
                found.truncate(found.find(" / ").unwrap_or(found.len()));
                *expected = &expected[..expected.find(" / ").unwrap_or(expected.len())];
            }
            if found != expected {
                differing.push(format!("{body}\n  expected {expected:?}\n  found    {found:?}"));
            }
        }
        assert!(answers.next().is_none(), "{name} has more answers than statements");
        let short = database.short_runs.load(Ordering::Relaxed);
        assert_eq!(short > 0, mode.vector_rows == MODES[1].vector_rows, "short programs run in one mode");
        assert!(
            differing.is_empty(),
            "{name}, {mode:?}: {} of {count} differ\n{}",
            differing.len(),
            differing.join("\n")
        );
    }
}

#[test]
fn changes_and_their_constraints_are_those_of_postgresql() {
    compare("changes", include_str!("../cases/changes.sql"), include_str!("../cases/changes.expected"));
}

#[test]
fn on_conflict_does_what_postgresql_does() {
    compare("conflicts", include_str!("../cases/conflicts.sql"), include_str!("../cases/conflicts.expected"));
}

#[test]
fn merge_does_what_postgresql_does() {
    compare("merges", include_str!("../cases/merges.sql"), include_str!("../cases/merges.expected"));
}

/// RETURNING of MERGE, which PostgreSQL 15 does not have, is over the source's row and the target's: as it is now, or was before its
/// deletion.
#[test]
fn merge_returns_the_rows_that_it_has_changed() {
    for mode in MODES {
        let database = Database::new();
        database.create(
            "CREATE TABLE t (id integer PRIMARY KEY, v integer); CREATE TABLE s (id integer, op text)",
        );
        database.alone("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)", mode).unwrap();
        database.alone("INSERT INTO s VALUES (1, 'upd'), (2, 'del'), (4, 'new'), (5, 'skip')", mode).unwrap();
        let merge = "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.op = 'del' THEN DELETE \
            WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED AND s.op = 'new' THEN INSERT VALUES (s.id, 0) \
            WHEN NOT MATCHED THEN DO NOTHING RETURNING s.op, t.*, (SELECT count(*) FROM t)";
        let mut answer = database.alone(merge, mode).unwrap();
        answer.rows.sort_unstable();
        assert_eq!(answer.rows, ["del|2|20|3", "new|4|0|3", "upd|1|11|3"]);
        assert_eq!(answer.count, Some(3));
        assert_eq!(database.rows("SELECT id, v FROM t ORDER BY id"), ["1|11", "3|30", "4|0"]);
    }
}
