//! The SQL corpus's runner: reads `.slt` files and compares the results of a database with the
//! expected ones.
//!
//! ```text
//! # A comment. A file is records separated by empty lines.
//! statement ok
//! CREATE TABLE t (a integer)
//!
//! statement count 2
//! INSERT INTO t VALUES (1), (2)
//!
//! statement error 23505 duplicate key
//! INSERT INTO t VALUES (1)
//!
//! query rowsort
//! SELECT a, a + 1 FROM t
//! ----
//! 1 2
//! 2 3
//!
//! skipif postgres
//! connection other
//! query
//! SELECT NULL, ''
//! ----
//! NULL (empty)
//!
//! columns
//! SELECT a, a::numeric(6, 2) AS price FROM t
//! ----
//! a integer
//! price numeric(6,2)
//! ```
//!
//! `error` has a SQLSTATE and, optionally, text that the message, detail or hint must contain.
//! `rowsort` sorts the rows of both sides. `columns` prepares a query and lists the names and types of its columns, as
//! `\gdesc` of psql does. `skipif` and `onlyif` name a database: `firn`, `postgres`, or
//! `compact`, which is `firn` as well, with its rows in compact blocks before every statement. `connection` names the
//! connection that the record runs on; all of them end with the file. A file whose first line is `# session` depends on the
//! state of a session, so the database must not be reopened between its statements.

pub mod database;

pub use database::{Answer, Cold, Database, Failure, Firn, Postgres, Restarting, Temperature};

use std::fmt::Write;

/// A statement and its expected result.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The line it begins on.
    pub line: usize,
    /// The connection it runs on.
    pub connection: String,
    /// The databases on which it is skipped, or on which alone it runs.
    pub conditions: Vec<Condition>,
    /// What to run.
    pub sql: String,
    /// What to expect.
    pub expect: Expect,
}

/// On which databases a record runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// On all but this.
    Skip(String),
    /// On this alone.
    Only(String),
}

impl Condition {
    /// Whether a database with this name satisfies it.
    fn is_met(&self, name: &str) -> bool {
        let is = |named: &str| named == name || named == "firn" && name == "compact";
        match self {
            Condition::Skip(named) => !is(named),
            Condition::Only(named) => is(named),
        }
    }
}

/// What a record expects.
#[derive(Clone, PartialEq, Debug)]
pub enum Expect {
    /// Success.
    Ok,
    /// Success, with this number of affected rows.
    Count(u64),
    /// An error: SQLSTATE and a part of its text.
    Error(String, String),
    /// Rows.
    Rows {
        /// One line each.
        rows: Vec<String>,
        /// In any order.
        sorted: bool,
    },
    /// The name and the type of each column, one line each.
    Columns(Vec<String>),
}

/// A file of the corpus.
#[derive(Clone, PartialEq, Debug)]
pub struct Script {
    /// Its records.
    pub records: Vec<Record>,
    /// Whether it depends on the state of a session.
    pub session: bool,
}

/// The databases that records can name.
const DATABASES: [&str; 3] = ["firn", "postgres", "compact"];

/// Parses a file. The error names the line.
pub fn parse(text: &str) -> Result<Script, String> {
    let mut records = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut conditions: Vec<Condition> = Vec::new();
    let mut connection = "default".to_owned();
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let wrong = |what: &str| Err(format!("line {}: {what}: {line}", number + 1));
        match first {
            "skipif" | "onlyif" => {
                let named = words.next().unwrap_or_default();
                if !DATABASES.contains(&named) {
                    return wrong("unknown database");
                }
                let condition = if first == "skipif" { Condition::Skip } else { Condition::Only };
                conditions.push(condition(named.to_owned()));
                continue;
            }
            "connection" => {
                connection = words.next().unwrap_or("default").to_owned();
                continue;
            }
            "statement" | "query" | "columns" => {}
            _ => return wrong("unknown directive"),
        }
        let mut sql = String::new();
        let mut has_rows = false;
        for (_, line) in lines.by_ref() {
            if line.trim() == "----" {
                has_rows = true;
                break;
            }
            if line.trim().is_empty() {
                break;
            }
            if !sql.is_empty() {
                sql.push('\n');
            }
            sql.push_str(line);
        }
        let expect = match (first, words.next()) {
            ("statement", Some("ok")) => Expect::Ok,
            ("statement", Some("count")) => match words.next().and_then(|count| count.parse().ok()) {
                Some(count) => Expect::Count(count),
                None => return wrong("a count is missing"),
            },
            ("statement", Some("error")) => match words.next() {
                Some(code) if code.len() == 5 => {
                    Expect::Error(code.to_owned(), words.collect::<Vec<_>>().join(" "))
                }
                _ => return wrong("a SQLSTATE is missing"),
            },
            ("query" | "columns", option) => {
                let sorted = first == "query" && option == Some("rowsort");
                if option.is_some() && !sorted {
                    return wrong("unknown option");
                }
                let mut rows = Vec::new();
                while has_rows && let Some((_, row)) = lines.next() {
                    if row.is_empty() {
                        break;
                    }
                    rows.push(row.to_owned());
                }
                if first == "columns" { Expect::Columns(rows) } else { Expect::Rows { rows, sorted } }
            }
            _ => return wrong("unknown kind of statement"),
        };
        records.push(Record {
            line: number + 1,
            connection: std::mem::replace(&mut connection, "default".to_owned()),
            conditions: std::mem::take(&mut conditions),
            sql,
            expect,
        });
    }
    Ok(Script { records, session: text.lines().next().is_some_and(|line| line.trim() == "# session") })
}

/// Runs a script. Returns the differences from the expected results.
pub fn run(script: &Script, database: &mut dyn Database) -> Vec<String> {
    let mut complaints = Vec::new();
    for record in &script.records {
        if !record.conditions.iter().all(|condition| condition.is_met(database.name())) {
            continue;
        }
        let answer = match record.expect {
            Expect::Columns(_) => database.columns(&record.connection, &record.sql),
            _ => database.run(&record.connection, &record.sql),
        };
        if let Some(complaint) = judge(&record.expect, &answer) {
            complaints.push(format!("line {}: {}\n{complaint}", record.line, record.sql));
        }
        if !script.session || !database.forgets_sessions() {
            database.pause();
        }
    }
    complaints
}

fn judge(expect: &Expect, answer: &Result<Answer, Failure>) -> Option<String> {
    match (expect, answer) {
        (Expect::Ok, Ok(_)) => None,
        (Expect::Count(count), Ok(answer)) if answer.count == *count => None,
        (Expect::Count(count), Ok(answer)) => Some(format!("  expected {count} rows, got {}", answer.count)),
        (Expect::Error(code, text), Err(failure)) => {
            if failure.code != *code {
                return Some(format!("  expected error {code}, got {} {}", failure.code, failure.text));
            }
            (!failure.text.contains(text.as_str()))
                .then(|| format!("  expected an error with: {text}\n  got: {}", failure.text))
        }
        (Expect::Error(code, _), Ok(_)) => Some(format!("  expected error {code}, got none")),
        (_, Err(failure)) => Some(format!("  got error {} {}", failure.code, failure.text)),
        (Expect::Rows { rows, sorted }, Ok(answer)) => {
            let (mut expected, mut got) = (rows.clone(), answer.rows.clone());
            if *sorted {
                expected.sort();
                got.sort();
            }
            difference(&expected, &got)
        }
        (Expect::Columns(columns), Ok(answer)) => difference(columns, &answer.rows),
    }
}

/// A value in the form of expected rows.
pub fn shown(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.replace('\n', "\\n"),
    }
}

/// What is expected and what was got, if they differ.
fn difference(expected: &[String], got: &[String]) -> Option<String> {
    if expected == got {
        return None;
    }
    let mut complaint = String::from("  expected:\n");
    for row in expected {
        let _ = writeln!(complaint, "    {row}");
    }
    complaint.push_str("  got:\n");
    for row in got {
        let _ = writeln!(complaint, "    {row}");
    }
    Some(complaint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_record_by_record() {
        let script = parse(
            "# session\n\nskipif postgres\nconnection a\nstatement error 23505 duplicate key\nINSERT\n  VALUES\n\nquery rowsort\nSELECT 1\n----\n1\n2\n\ncolumns\nSELECT 1 AS a\n----\na integer\n",
        )
        .unwrap();
        assert!(script.session);
        assert_eq!(script.records.len(), 3);
        assert_eq!(script.records[0].sql, "INSERT\n  VALUES");
        assert_eq!(script.records[0].conditions, [Condition::Skip("postgres".into())]);
        assert_eq!(script.records[0].connection, "a");
        assert_eq!(script.records[0].expect, Expect::Error("23505".into(), "duplicate key".into()));
        assert_eq!(script.records[1].connection, "default");
        assert_eq!(
            script.records[1].expect,
            Expect::Rows { rows: vec!["1".into(), "2".into()], sorted: true }
        );
        assert_eq!(script.records[2].expect, Expect::Columns(vec!["a integer".into()]));
        assert!(parse("nonsense\n").is_err());
        assert!(parse("columns rowsort\nSELECT 1\n").is_err());
    }

    #[test]
    fn a_database_with_compact_rows_is_one_of_ours() {
        let runs_on = |condition: Condition| DATABASES.map(|name| condition.is_met(name));
        assert_eq!(runs_on(Condition::Skip("firn".into())), [false, true, false]);
        assert_eq!(runs_on(Condition::Only("firn".into())), [true, false, true]);
        assert_eq!(runs_on(Condition::Skip("compact".into())), [true, true, false]);
        assert_eq!(runs_on(Condition::Only("compact".into())), [false, false, true]);
        assert_eq!(runs_on(Condition::Only("postgres".into())), [false, true, false]);
    }
}
