//! The workload in SQL, over any connection.
//!
//! A list is one row, which every append updates, or a row for each element. The version is part of the
//! secondary index: its entry moves with every write.

use super::history::{Ended, Found};
use super::trial::Transactions;
use super::workload::{QUERIES, Step, Way, group, stands_apart};
use adya::Workload;
use firn_base::{Error, Result, SqlState, Value};
use firn_bench::sql_client::SqlClient;

const SCHEMA: [&str; 5] = [
    "CREATE TABLE whole (key bigint PRIMARY KEY, grp bigint NOT NULL, wide bigint NOT NULL, \
     version bigint NOT NULL, elements text NOT NULL, name text NOT NULL)",
    "CREATE INDEX whole_grp ON whole (grp, version)",
    "CREATE INDEX whole_name ON whole (name)",
    "CREATE TABLE apart (key bigint, pos bigint, element bigint NOT NULL, grp bigint NOT NULL, \
     wide bigint NOT NULL, name text, PRIMARY KEY (key, pos))",
    "CREATE INDEX apart_grp ON apart (grp)",
];

/// Which rows `w` are those of a group of three keys, of which `$1` is the first and `$2` the last: by what `w` is joined
/// with, and by a condition.
const GROUPS: [(&str, &str); QUERIES - 1] = [
    ("", "w.key IN ($1, $1 + 1, $2)"),
    ("", "w.wide IN ($1, $1 + 1, $2)"),
    ("", "w.wide = $2 OR NOT (w.wide < $1 OR w.wide >= $2)"),
    ("", "w.grp = $1 / 3 AND w.wide <> $1 + 1 OR w.wide = $1 + 1"),
    ("JOIN generate_series($1::bigint, $2::bigint) s(k) ON w.key = s.k", "true"),
    ("", "w.key IN (SELECT k FROM generate_series($1::bigint, $2::bigint) s(k))"),
    (
        "",
        "w.wide BETWEEN $1 AND $2 AND NOT EXISTS (SELECT FROM whole o WHERE o.key = w.key AND o.version < 0)",
    ),
];

/// Likewise, by how all names of a group begin.
const NAMED: (&str, &str) = ("", "w.name LIKE $1");

/// Written only to be rolled back.
const NEVER: i64 = 0;

/// Makes the tables.
pub fn create(client: &mut impl SqlClient) -> Result<()> {
    SCHEMA.iter().try_for_each(|sql| client.run_text(sql).map(drop))
}

/// Removes all keys that were used so far.
pub fn clear(client: &mut impl SqlClient) -> Result<()> {
    ["DELETE FROM whole", "DELETE FROM apart"].iter().try_for_each(|sql| client.run_text(sql).map(drop))
}

/// A connection and its statements.
pub struct SqlTransactions<C: SqlClient> {
    workload: Workload,
    client: C,
    begin: C::Statement,
    commit: C::Statement,
    rollback: C::Statement,
    savepoint: C::Statement,
    rollback_to: C::Statement,
    upsert: C::Statement,
    update_by_scan: C::Statement,
    insert: C::Statement,
    append: C::Statement,
    /// Of whole lists, and of those that stand apart.
    by_key: [C::Statement; 2],
    by_lock: [C::Statement; 2],
    by_index: [C::Statement; 2],
    by_scan: [C::Statement; 2],
    by_query: Vec<[C::Statement; 2]>,
}

impl<C: SqlClient> SqlTransactions<C> {
    /// Prepares the statements; transactions run at `level`.
    pub fn new(mut client: C, workload: Workload, level: &str) -> Result<SqlTransactions<C>> {
        client.run_text(&format!("SET default_transaction_isolation = '{level}'"))?;
        let read_and = |client: &mut C,
                        (join, condition): (&str, &str),
                        apart: &str,
                        lock: &str|
         -> Result<[C::Statement; 2]> {
            Ok([
                client.prepare(&format!(
                    "SELECT w.key, w.elements FROM whole w {join} WHERE {condition} {lock}"
                ))?,
                client.prepare(&format!(
                    "SELECT w.key, w.element FROM apart w {join} WHERE {apart} ORDER BY w.key, w.pos {lock}"
                ))?,
            ])
        };
        let read =
            |client: &mut C, condition: (&str, &str), apart: &str| read_and(client, condition, apart, "");
        let mut by_query = Vec::new();
        for query in GROUPS.into_iter().chain([NAMED]) {
            by_query.push(read(&mut client, query, query.1)?);
        }
        let (old, new) = match workload {
            Workload::ListAppend => ("whole.elements || ',' || excluded.elements", "elements || ',' || $3"),
            Workload::RwRegister => ("excluded.elements", "$3"),
        };
        let span = "wide BETWEEN $1 AND $2";
        Ok(SqlTransactions {
            begin: client.prepare("BEGIN")?,
            commit: client.prepare("COMMIT")?,
            rollback: client.prepare("ROLLBACK")?,
            savepoint: client.prepare("SAVEPOINT before")?,
            rollback_to: client.prepare("ROLLBACK TO before")?,
            upsert: client.prepare(&format!(
                "INSERT INTO whole VALUES ($1, $2, $1, $4, $3, $5) \
                 ON CONFLICT (key) DO UPDATE SET version = excluded.version, elements = {old}"
            ))?,
            update_by_scan: client.prepare(&format!(
                "UPDATE whole SET version = $2, elements = {new} WHERE wide = $1 RETURNING key"
            ))?,
            insert: client.prepare("INSERT INTO whole VALUES ($1, $2, $1, $4, $3, $5)")?,
            append: client.prepare(
                "INSERT INTO apart SELECT $1::bigint, coalesce(max(pos), 0) + 1, $2::bigint, $3::bigint, \
                 $1::bigint, $4::text FROM apart WHERE key = $1",
            )?,
            by_key: read(&mut client, ("", "key = $1"), "key = $1")?,
            by_lock: read_and(&mut client, ("", "key = $1"), "key = $1", "FOR UPDATE")?,
            by_index: read(&mut client, ("", "grp = $1 AND version > 0"), "grp = $1")?,
            by_scan: read(&mut client, ("", span), span)?,
            by_query,
            workload,
            client,
        })
    }

    fn run_step(&mut self, step: &Step) -> Result<Found> {
        match *step {
            Step::Write { key, value, way } => self.write(key, value, way).map(|()| Found::new()),
            Step::Read { first, last, way } => self.read(first, last, way),
        }
    }

    fn write(&mut self, key: i64, value: i64, way: Way) -> Result<()> {
        let number = Value::BigInt;
        if self.is_apart(key) {
            let row = [number(key), number(value), number(group(key)), Value::Text(name(key))];
            return self.client.run(&self.append, &row).map(drop);
        }
        let text = Value::Text(value.to_string());
        let row = [number(key), number(group(key)), text.clone(), number(value), Value::Text(name(key))];
        if way == Way::Key {
            return self.client.run(&self.upsert, &row).map(drop);
        }
        let updated = self.client.run(&self.update_by_scan, &[number(key), number(value), text])?;
        if updated.is_empty() {
            self.client.run(&self.insert, &row)?;
        }
        Ok(())
    }

    fn read(&mut self, first: i64, last: i64, way: Way) -> Result<Found> {
        let apart = usize::from(self.is_apart(first));
        let rows = match way {
            Way::Key => self.client.run(&self.by_key[apart], &[Value::BigInt(first)])?,
            Way::Lock => self.client.run(&self.by_lock[apart], &[Value::BigInt(first)])?,
            Way::Index => self.client.run(&self.by_index[apart], &[Value::BigInt(group(first))])?,
            Way::Scan => {
                self.client.run(&self.by_scan[apart], &[Value::BigInt(first), Value::BigInt(last)])?
            }
            Way::Query(query) => {
                let statement = &self.by_query[query][apart];
                match query < GROUPS.len() {
                    true => self.client.run(statement, &[Value::BigInt(first), Value::BigInt(last)])?,
                    false => self.client.run(statement, &[Value::Text(format!("{}/%", group(first)))])?,
                }
            }
        };
        let mut found = Found::new();
        for row in &rows {
            let Value::BigInt(key) = row[0] else { panic!("{:?}", row[0]) };
            let elements: Vec<i64> = match &row[1] {
                Value::Text(list) => {
                    list.split(',').map(|number| number.parse().expect("a number")).collect()
                }
                Value::BigInt(element) => vec![*element],
                other => panic!("{other:?}"),
            };
            assert!(!elements.contains(&NEVER), "key {key} shows what was rolled back: {elements:?}");
            match found.iter_mut().find(|(found, _)| *found == key) {
                Some((_, all)) => all.extend(elements),
                None => found.push((key, elements)),
            }
        }
        Ok(found)
    }

    /// Before some writes: the same with a value that nobody may ever see.
    fn change_and_take_back(&mut self, step: &Step) -> Result<()> {
        if let Step::Write { key, value, way } = *step
            && value % 8 == 0
        {
            self.client.run(&self.savepoint, &[])?;
            self.write(key, NEVER, way)?;
            self.client.run(&self.rollback_to, &[])?;
        }
        Ok(())
    }

    /// Some that meet a conflict are tried once more, from a savepoint.
    fn run_step_in_block(&mut self, step: &Step) -> Result<Found> {
        let tries_again = match *step {
            Step::Write { value, .. } => value % 8 == 4,
            Step::Read { first, way, .. } => way == Way::Lock && first % 2 == 0,
        };
        if !tries_again {
            return self.run_step(step);
        }
        self.client.run(&self.savepoint, &[])?;
        match self.run_step(step) {
            Err(error) if error.is_retryable() || error.state() == SqlState::UNIQUE_VIOLATION => {
                self.client.run(&self.rollback_to, &[])?;
                self.run_step(step)
            }
            outcome => outcome,
        }
    }

    fn is_apart(&self, key: i64) -> bool {
        self.workload == Workload::ListAppend && stands_apart(key)
    }

    /// All steps in a block.
    fn run_block(&mut self, steps: &[Step]) -> Ended {
        let mut found = Vec::new();
        let mut done = self.client.run(&self.begin, &[]).map(drop);
        for step in steps {
            done = done.and_then(|()| self.change_and_take_back(step));
            done = done.and_then(|()| self.run_step_in_block(step).map(|rows| found.push(rows)));
        }
        if let Err(error) = done {
            let ended = ended(error, false);
            return match self.client.run(&self.rollback, &[]) {
                Ok(_) => ended,
                Err(error) => self::ended(error, false),
            };
        }
        match self.client.run(&self.commit, &[]) {
            Ok(_) => Ended::Committed(found),
            Err(error) => ended(error, true),
        }
    }
}

impl<C: SqlClient> Transactions for SqlTransactions<C> {
    fn run(&mut self, steps: &[Step]) -> Ended {
        match steps {
            // A statement by itself, which the engine runs again when it meets a conflict.
            [step @ (Step::Write { way: Way::Key, .. } | Step::Read { .. })] => match self.run_step(step) {
                Ok(found) => Ended::Committed(vec![found]),
                Err(error) => ended(error, true),
            },
            steps => self.run_block(steps),
        }
    }
}

/// Begins as those of its group do.
fn name(key: i64) -> String {
    format!("{}/{key}", group(key))
}

fn ended(error: Error, while_committing: bool) -> Ended {
    match error.state() {
        SqlState::CONNECTION_FAILURE => Ended::Lost { while_committing },
        // A key that was free in the snapshot may have been taken since.
        SqlState::UNIQUE_VIOLATION => Ended::Failed,
        _ if error.is_retryable() => Ended::Failed,
        _ => Ended::Wrong(error),
    }
}
