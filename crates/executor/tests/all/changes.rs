//! Changes of tables beside PostgreSQL 15: `cases/changes.expected` has its answers to `cases/changes.sql`, made by
//! `cases/expected.py`. Rows come in any order, unless the statement orders them.

use crate::sql::{Database, error_text};
use crate::support::MODES;

/// The statements of a file: each ends with a semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(str::trim).filter(|one| !one.is_empty())
}

/// Each file begins with the tables. A statement is run in a transaction of its own.
fn compare(name: &str, sql: &str, expected: &str) {
    for mode in MODES {
        let database = Database::new();
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
            if found != expected {
                differing.push(format!("{body}\n  expected {expected:?}\n  found    {found:?}"));
            }
        }
        assert!(answers.next().is_none(), "{name} has more answers than statements");
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
