//! The workload in SQL, over any connection.
//!
//! A list is one row, which every write changes, or a row for each element, of which a register's last one counts. For
//! the latter there is a table whose keys are claimed, and one whose keys are tested at commit. The position of a whole list
//! is part of the secondary index: its entry moves with every write.

use super::history::{Ended, Found, complete};
use super::trial::Transactions;
use super::workload::{CHANGES, ENDS, GROUP_CHANGES, KEYS, LASTS, LOCKS, Manner, QUERIES, Step, Way, group};
use adya::Workload;
use firn_base::{Error, Result, SqlState, Value};
use firn_bench::sql_client::SqlClient;
use std::collections::HashMap;

const SCHEMA: [&str; 8] = [
    "CREATE TABLE whole (key bigint PRIMARY KEY, pos bigint NOT NULL, element text NOT NULL, grp bigint NOT NULL, \
     wide bigint NOT NULL, name text NOT NULL)",
    "CREATE INDEX whole_grp ON whole (grp, pos)",
    "CREATE INDEX whole_name ON whole (name) WITH (values = off)",
    "CREATE TABLE apart (key bigint, pos bigint, element bigint NOT NULL, grp bigint NOT NULL, \
     wide bigint NOT NULL, name text, PRIMARY KEY (key, pos))",
    "CREATE INDEX apart_grp ON apart (grp)",
    "CREATE TABLE late (key bigint, pos bigint, element bigint NOT NULL, grp bigint NOT NULL, \
     wide bigint NOT NULL, name text, PRIMARY KEY (key, pos) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE INDEX late_grp ON late (grp)",
    "CREATE INDEX late_name ON late (name)",
];

const WHOLE: &str = "whole";
/// The tables.
pub const TABLES: [&str; 3] = [WHOLE, "apart", "late"];

/// The rows `w` of a group of three keys in a table `{t}`, of which `$1` is the first and `$2` the last: the FROM clause,
/// and a condition.
const GROUPS: [(&str, &str); QUERIES] = [
    ("{t} w", "w.key IN ($1::bigint, $1::bigint + 1, $2)"),
    ("{t} w", "w.wide IN ($1::bigint, $1::bigint + 1, $2)"),
    ("{t} w", "w.wide = $2 OR NOT (w.wide < $1 OR w.wide >= $2)"),
    ("{t} w", "w.grp = $1 / 3 AND w.wide <> $1 + 1 OR w.wide = $1 + 1"),
    ("{t} w JOIN generate_series($1::bigint, $2::bigint) s(k) ON w.key = s.k", "true"),
    ("{t} w", "w.key IN (SELECT k FROM generate_series($1::bigint, $2::bigint) s(k))"),
    (
        "{t} w",
        "w.wide BETWEEN $1 AND $2 AND NOT EXISTS (SELECT FROM whole o WHERE o.key = w.key AND o.pos < 0)",
    ),
    // All names of a group have the same prefix.
    ("{t} w", "w.name LIKE $1"),
    ("{t} w", "w.key IN (SELECT o.key FROM {t} o WHERE o.wide BETWEEN $1 AND $2)"),
    ("{t} w", "EXISTS (SELECT FROM {t} o WHERE o.key = w.key AND o.grp = $1 / 3)"),
    ("{t} w", "w.grp = (SELECT min(o.grp) FROM {t} o WHERE o.key BETWEEN $1 AND $2)"),
    ("{t} w", "w.grp = (SELECT max(o.grp) FROM {t} o WHERE o.grp <= $2 / 3) AND w.grp = $1 / 3"),
    (
        "(SELECT * FROM {t} WHERE key = $1 UNION ALL SELECT * FROM {t} WHERE wide = $1 + 1 \
         UNION ALL SELECT * FROM {t} WHERE grp = $2 / 3 AND key = $2) w",
        "true",
    ),
    (
        "(WITH r AS MATERIALIZED (SELECT * FROM {t} WHERE grp = $1 / 3) SELECT r.* FROM r JOIN {t} o USING (key, pos)) w",
        "w.key <= $2",
    ),
    (
        "(SELECT key, 0 AS pos, string_agg(element::text, ',' ORDER BY pos) AS element FROM {t} WHERE grp = $1 / 3 GROUP BY key) w",
        "w.key <= $2",
    ),
    (
        "(SELECT *, rank() OVER (PARTITION BY key ORDER BY pos) AS place FROM {t} WHERE key BETWEEN $1 AND $2) w",
        "w.place > 0",
    ),
];
const LIKE: usize = 7;

/// Likewise for the first or the last existing key.
const ENDINGS: [(bool, &str); ENDS] = [
    (true, "w.key = (SELECT min(key) FROM {t} WHERE key BETWEEN $1 AND $2)"),
    (false, "w.key = (SELECT max(key) FROM {t} WHERE key BETWEEN $1 AND $2)"),
    (true, "w.key = (SELECT key FROM {t} WHERE key >= $1 AND key <= $2 ORDER BY key LIMIT 1)"),
    (false, "w.key = (SELECT wide FROM {t} WHERE grp = $2 / 3 AND wide >= $1 ORDER BY wide DESC LIMIT 1)"),
];

/// Which row of a register with several rows is the last.
const LAST: [&str; LASTS] = [
    "w.key = $1 ORDER BY w.pos DESC LIMIT 1",
    "w.key = $1 AND w.pos = (SELECT max(pos) FROM {t} WHERE key = $1)",
    "w.wide = $1 ORDER BY w.pos DESC LIMIT 1",
];

const CLAUSES: [&str; LOCKS] = [
    "FOR UPDATE OF w",
    "FOR NO KEY UPDATE OF w",
    "FOR SHARE OF w",
    "FOR KEY SHARE OF w",
    "FOR UPDATE OF w NOWAIT",
    // These do not show which rows they skip.
    "FOR UPDATE OF w SKIP LOCKED",
    "FOR SHARE OF w SKIP LOCKED",
];
const SKIPPING: &str = "SKIP LOCKED";

const MODES: [&str; 3] = ["SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE"];

/// Values that are written only to be rolled back; the next keys of a group get the next values.
const NEVER: i64 = -KEYS;

/// How a list that is one row is written, if it exists: `$1` is the key, `$2` the value, and `{new}` the new elements.
const UPDATES: [&str; 4] = [
    "UPDATE whole w SET pos = $2, element = {new} WHERE wide = $1 RETURNING key, element",
    "UPDATE whole w SET pos = $2, element = {new} FROM generate_series($1::bigint, $1::bigint) s(k) WHERE w.key = s.k \
     RETURNING key, element",
    "UPDATE whole w SET pos = $2, element = {new} WHERE key IN (SELECT key FROM whole WHERE key = $1 FOR UPDATE) \
     RETURNING key, element",
    "UPDATE whole w SET pos = $2, element = {new} WHERE grp = $1 / 3 AND pos <> $2 AND key = $1 RETURNING key, element",
];

/// How an element is added to those of its key in the table `{t}`.
const APPENDS: [&str; 3] = [
    "INSERT INTO {t} SELECT $1::bigint, coalesce(max(pos), 0) + 1, $2::bigint, $3::bigint, $1::bigint, $4::text \
     FROM {t} WHERE key = $1",
    "INSERT INTO {t} VALUES ($1, coalesce((SELECT pos FROM {t} WHERE key = $1 ORDER BY pos DESC LIMIT 1), 0) + 1, $2, $3, $1, $4)",
    "INSERT INTO {t} SELECT $1::bigint, count(*) + 1, $2::bigint, $3::bigint, $1::bigint, $4::text \
     FROM {t} WHERE wide = $1",
];

/// Makes the tables.
pub fn create(client: &mut impl SqlClient) -> Result<()> {
    SCHEMA.iter().try_for_each(|sql| client.run_text(sql).map(drop))
}

/// Removes all keys that were used so far. No two rows have one.
pub fn clear(client: &mut impl SqlClient) -> Result<()> {
    for table in TABLES {
        let twice = format!("SELECT key, pos FROM {table} GROUP BY key, pos HAVING count(*) > 1");
        let twice = client.run_text(&twice)?;
        assert!(twice.is_empty(), "{table} has rows with the same keys: {twice:?}");
        client.run_text(&format!("DELETE FROM {table}"))?;
    }
    Ok(())
}

/// A connection and the statements that it has prepared.
pub struct SqlTransactions<C: SqlClient> {
    workload: Workload,
    client: C,
    statements: HashMap<String, C::Statement>,
}

impl<C: SqlClient> SqlTransactions<C> {
    /// Transactions run at `level`.
    pub fn new(mut client: C, workload: Workload, level: &str) -> Result<SqlTransactions<C>> {
        client.run_text(&format!("SET default_transaction_isolation = '{level}'"))?;
        // Deadlocks of table locks are not detected.
        client.run_text("SET lock_timeout = '50ms'")?;
        Ok(SqlTransactions { workload, client, statements: HashMap::new() })
    }

    /// Runs a statement with those of the parameters that it has.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
        if !self.statements.contains_key(sql) {
            let statement = self.client.prepare(sql)?;
            self.statements.insert(sql.to_owned(), statement);
        }
        let count =
            (1..=parameters.len()).rev().find(|number| sql.contains(&format!("${number}"))).unwrap_or(0);
        self.client.run(&self.statements[sql], &parameters[..count])
    }

    fn run_step(&mut self, step: &Step) -> Result<Found> {
        match *step {
            Step::Write { first, last, value, change } if first == last => self.write(first, value, change),
            Step::Write { first, last, value, change } => self.write_group(first, last, value, change),
            Step::Read { first, last, way, manner } => self.read(first, last, way, manner),
            Step::LockTable { key, mode } => {
                let sql = format!("LOCK TABLE {} IN {} MODE", table(key), MODES[mode]);
                self.execute(&sql, &[]).map(|_| Found::new())
            }
        }
    }

    /// Writes a key, and also reads it if the statement returns the new row.
    fn write(&mut self, key: i64, value: i64, change: usize) -> Result<Found> {
        if table(key) != WHOLE {
            return self.append(key, value, change).map(|()| Found::new());
        }
        let row = [
            Value::BigInt(key),
            Value::BigInt(value),
            Value::Text(value.to_string()),
            Value::BigInt(group(key)),
            Value::Text(name(key)),
        ];
        let (new, old) = match self.workload {
            Workload::ListAppend => {
                ("w.element || ',' || $2::bigint::text", "w.element || ',' || excluded.element")
            }
            Workload::RwRegister => ("$2::bigint::text", "excluded.element"),
        };
        let insert = "INSERT INTO whole AS w VALUES ($1, $2, $3, $4, $1, $5)";
        let upsert = format!("{insert} ON CONFLICT (key) DO UPDATE SET pos = excluded.pos, element = {old}");
        let rows = match change {
            0 => return self.execute(&upsert, &row).map(|_| Found::new()),
            1 => self.execute(
                &format!("{upsert} WHERE w.pos <> $2 AND w.wide = $1 RETURNING key, element"),
                &row,
            )?,
            2 => {
                let inserted = format!("{insert} ON CONFLICT DO NOTHING RETURNING key, element");
                self.execute(&inserted, &row)?
            }
            // The row moves to another slot.
            3 | 4 => {
                let gone = self.execute("DELETE FROM whole WHERE key = $1 RETURNING element", &row)?;
                let mut row = row.clone();
                if let (Some([Value::Text(old)]), Workload::ListAppend) =
                    (gone.first().map(Vec::as_slice), self.workload)
                {
                    row[2] = Value::Text(format!("{old},{value}"));
                }
                self.execute(&format!("{insert} RETURNING key, element"), &row)?
            }
            // Its key is deleted and inserted again.
            5 | 6 => {
                self.execute("UPDATE whole SET key = -key WHERE key = $1", &row)?;
                let back = format!(
                    "UPDATE whole w SET key = -key, pos = $2, element = {new} WHERE key = -$1::bigint RETURNING key, element"
                );
                self.execute(&back, &row)?
            }
            change => self.execute(&UPDATES[change % UPDATES.len()].replace("{new}", new), &row)?,
        };
        if !rows.is_empty() {
            return Ok(found(&rows, self.workload));
        }
        if change == 2 {
            // The row existed.
            let rows = self.execute(&UPDATES[3].replace("{new}", new), &row)?;
            assert_eq!(rows.len(), 1, "key {key} is neither free nor taken");
            return Ok(found(&rows, self.workload));
        }
        self.execute(insert, &row).map(|_| Found::new())
    }

    fn append(&mut self, key: i64, value: i64, change: usize) -> Result<()> {
        let table = table(key);
        let row =
            [Value::BigInt(key), Value::BigInt(value), Value::BigInt(group(key)), Value::Text(name(key))];
        let last = format!("SELECT pos FROM {table} WHERE key = $1 ORDER BY pos DESC LIMIT 1");
        match change {
            0 => {}
            // Its rows move to other slots.
            6 => {
                let moved = format!("DELETE FROM {table} WHERE key = $1 RETURNING pos, element");
                for old in self.execute(&moved, &row)? {
                    let row =
                        [row[0].clone(), old[0].clone(), old[1].clone(), row[2].clone(), row[3].clone()];
                    self.execute(&format!("INSERT INTO {table} VALUES ($1, $2, $3, $4, $1, $5)"), &row)?;
                }
            }
            // Their keys are deleted and inserted again.
            7 => {
                self.execute(&format!("UPDATE {table} SET pos = pos + 1000 WHERE key = $1"), &row)?;
                self.execute(
                    &format!("UPDATE {table} SET pos = pos - 1000 WHERE key = $1 AND pos > 1000"),
                    &row,
                )?;
            }
            8 => drop(self.execute(&format!("SELECT FROM {table} WHERE key = $1 FOR UPDATE"), &row)?),
            9 => drop(self.execute(&format!("{last} FOR SHARE"), &row)?),
            10 => drop(self.execute(&format!("{last} FOR NO KEY UPDATE"), &row)?),
            change => {
                return self.execute(&APPENDS[change % APPENDS.len()].replace("{t}", table), &row).map(drop);
            }
        }
        let pos = match self.execute(&last, &row)?.first().map(|last| &last[0]) {
            Some(Value::BigInt(pos)) => pos + 1,
            _ => 1,
        };
        let row = [row[0].clone(), Value::BigInt(pos), row[1].clone(), row[2].clone(), row[3].clone()];
        self.execute(&format!("INSERT INTO {table} VALUES ($1, $2, $3, $4, $1, $5)"), &row).map(drop)
    }

    /// Writes a group of keys, those of whole lists in one statement or two.
    fn write_group(&mut self, first: i64, last: i64, value: i64, change: usize) -> Result<Found> {
        let mut written = Found::new();
        if table(first) == WHOLE && change > 0 {
            let (new, old) = match self.workload {
                Workload::ListAppend => ("element || ',' || ", "w.element || ',' || "),
                Workload::RwRegister => ("", ""),
            };
            let update = format!(
                "UPDATE whole SET pos = $3, element = {new}($3::bigint + key - $1)::text WHERE grp = $1 / 3 AND key <= $2 RETURNING key, element"
            );
            let upsert = format!(
                "INSERT INTO whole AS w SELECT k, $3::bigint, ($3::bigint + k - $1::bigint)::text, $1::bigint / 3, k, ($1::bigint / 3)::text || '/' || k::text \
                 FROM generate_series($1::bigint, $2::bigint) s(k) \
                 ON CONFLICT (key) DO UPDATE SET pos = excluded.pos, element = {old}excluded.element RETURNING key, element"
            );
            let parameters = [first, last, value].map(Value::BigInt);
            let rows = self.execute(if change == 1 { &update } else { &upsert }, &parameters)?;
            written = found(&rows, self.workload);
        }
        for key in first..=last {
            if !written.iter().any(|(done, _)| *done == key) {
                self.write(key, value + key - first, 0)?;
            }
        }
        Ok(written)
    }

    fn read(&mut self, first: i64, last: i64, way: Way, manner: Manner) -> Result<Found> {
        let (sql, ..) = self.reading(first, way, manner);
        let mut parameters = [Value::BigInt(first), Value::BigInt(last)];
        if way == Way::Query(LIKE) {
            parameters[0] = Value::Text(format!("{}/%", group(first)));
        }
        let rows = self.execute(&sql, &parameters)?;
        Ok(self.known(&rows, first, last, way, manner))
    }

    /// The text of a query.
    fn reading(&self, first: i64, way: Way, manner: Manner) -> (String, bool) {
        let table = table(first);
        let order = if table == WHOLE { "" } else { "ORDER BY w.key, w.pos" };
        let has_last = self.workload == Workload::RwRegister && table != WHOLE;
        let (from, condition) = match way {
            Way::Last(last) if has_last => ("{t} w", LAST[last]),
            Way::Key | Way::Last(_) => ("{t} w", "w.key = $1"),
            Way::Index => ("{t} w", "w.grp = $1 / 3 AND w.pos > -100"),
            Way::Scan => ("{t} w", "w.wide BETWEEN $1 AND $2"),
            Way::Query(query) => GROUPS[query],
            Way::End(end) => ("{t} w", ENDINGS[end].1),
        };
        let clause = match manner {
            Manner::Locking(_) if from.starts_with('(') => "",
            // Skipped elements would be missing in the middle.
            Manner::Locking(lock) if CLAUSES[lock].ends_with(SKIPPING) && table != WHOLE => CLAUSES[0],
            Manner::Locking(lock) => CLAUSES[lock],
            _ => "",
        };
        let order = if matches!(way, Way::Last(_)) && has_last { "" } else { order };
        let sql = format!("SELECT w.key, w.element FROM {from} WHERE {condition} {order} {clause}");
        (sql.replace("{t}", table), clause.ends_with(SKIPPING))
    }

    /// What these rows show about the requested keys.
    fn known(&self, rows: &[Vec<Value>], first: i64, last: i64, way: Way, manner: Manner) -> Found {
        let mut found = found(rows, self.workload);
        let (_, skips) = self.reading(first, way, manner);
        let only = found.first().map(|(key, _)| *key);
        match (way, only) {
            _ if skips => {}
            (Way::End(end), Some(key)) if ENDINGS[end].0 => complete(&mut found, first, key),
            (Way::End(_), Some(key)) => complete(&mut found, key, last),
            _ => complete(&mut found, first, last),
        }
        found
    }

    /// Before some writes: the same with a value that must never be visible.
    fn change_and_take_back(&mut self, step: &Step) -> Result<()> {
        if let Step::Write { first, last, value, change } = *step
            && value % 8 == 0
        {
            self.execute("SAVEPOINT before", &[])?;
            self.run_step(&Step::Write { first, last, value: NEVER, change })?;
            self.execute("ROLLBACK TO before", &[])?;
        }
        Ok(())
    }

    /// Some steps that conflict are tried again, from a savepoint. Of some steps that read everything else is rolled back.
    fn run_step_in_block(&mut self, step: &Step) -> Result<Found> {
        let (tries_again, is_taken_back) = match *step {
            Step::Write { value, .. } => (value % 8 == 4, false),
            Step::Read { first, manner, .. } => (
                matches!(manner, Manner::Locking(_)) && first % 2 == 0,
                first % 2 == 1 && manner != Manner::Cursor,
            ),
            Step::LockTable { .. } => (false, false),
        };
        if !tries_again && !is_taken_back {
            return self.run_step(step);
        }
        self.execute("SAVEPOINT before", &[])?;
        match self.run_step(step) {
            Err(error) if tries_again && may_happen(&error) => {
                self.execute("ROLLBACK TO before", &[])?;
                self.run_step(step)
            }
            Ok(found) if is_taken_back => self.execute("ROLLBACK TO before", &[]).map(|_| found),
            outcome => outcome,
        }
    }

    /// All steps in a block.
    fn run_block(&mut self, steps: &[Step], between: &dyn Fn()) -> Ended {
        match self.run_steps(steps, between) {
            Ok(found) => match self.execute("COMMIT", &[]) {
                Ok(_) => Ended::Committed(found),
                Err(error) => ended(error, true),
            },
            Err(error) => match self.execute("ROLLBACK", &[]) {
                Ok(_) => ended(error, false),
                Err(error) => ended(error, false),
            },
        }
    }

    fn run_steps(&mut self, steps: &[Step], between: &dyn Fn()) -> Result<Vec<Found>> {
        self.execute("BEGIN", &[])?;
        let mut found: Vec<Found> = Vec::new();
        let mut writes = false;
        let mut open = None;
        for (number, step) in steps.iter().enumerate() {
            if !writes {
                between();
            }
            writes |= !matches!(step, Step::Read { manner: Manner::Plain | Manner::Cursor, .. });
            let Step::Read { first, last, way, manner: Manner::Cursor } = *step else {
                self.change_and_take_back(step)?;
                found.push(self.run_step_in_block(step)?);
                continue;
            };
            if let Some((number, rows)) = open.take() {
                found[number] = self.fetch_rest(&steps[number], rows)?;
            }
            let (sql, _) = self.reading(first, way, Manner::Cursor);
            let first_name =
                if way == Way::Query(LIKE) { format!("'{}/%'", group(first)) } else { first.to_string() };
            let sql = sql.replace("$1", &first_name).replace("$2", &last.to_string());
            self.client.run_text(&format!("DECLARE c CURSOR FOR {sql}"))?;
            open = Some((number, self.client.run_text("FETCH 1 FROM c")?));
            found.push(Found::new());
        }
        if let Some((number, rows)) = open {
            found[number] = self.fetch_rest(&steps[number], rows)?;
        }
        Ok(found)
    }

    /// The other rows of a cursor, which was declared by `step`.
    fn fetch_rest(&mut self, step: &Step, mut rows: Vec<Vec<Value>>) -> Result<Found> {
        rows.extend(self.client.run_text("FETCH ALL FROM c")?);
        self.client.run_text("CLOSE c")?;
        let Step::Read { first, last, way, manner } = *step else { panic!("{step:?}") };
        Ok(self.known(&rows, first, last, way, manner))
    }
}

impl<C: SqlClient> Transactions for SqlTransactions<C> {
    fn run(&mut self, steps: &[Step], between: &dyn Fn()) -> Ended {
        match steps {
            // A single statement, which the engine runs again when it conflicts.
            [step] if is_one_statement(step) => match self.run_step(step) {
                Ok(found) => Ended::Committed(vec![found]),
                Err(error) => ended(error, true),
            },
            steps => self.run_block(steps, between),
        }
    }
}

fn is_one_statement(step: &Step) -> bool {
    match *step {
        Step::Write { first, last, change, .. } => {
            first == last && (change == 1 || change == 0 && table(first) == WHOLE)
        }
        Step::Read { manner, .. } => manner != Manner::Cursor,
        Step::LockTable { .. } => false,
    }
}

/// The table of a key's rows.
fn table(key: i64) -> &'static str {
    TABLES[group(key) as usize % 3]
}

/// A name with the prefix of its group.
fn name(key: i64) -> String {
    format!("{}/{key}", group(key))
}

/// The elements of each key in these rows.
fn found(rows: &[Vec<Value>], workload: Workload) -> Found {
    let mut found = Found::new();
    for row in rows {
        let Value::BigInt(key) = row[0] else { panic!("{:?}", row[0]) };
        let elements: Vec<i64> = match &row[1] {
            Value::Text(list) => list.split(',').map(|number| number.parse().expect("a number")).collect(),
            Value::BigInt(element) => vec![*element],
            other => panic!("{other:?}"),
        };
        match found.iter_mut().find(|(found, _)| *found == key) {
            Some((_, all)) => all.extend(elements),
            None => found.push((key, elements)),
        }
    }
    if workload == Workload::RwRegister {
        found.iter_mut().for_each(|(_, elements)| drop(elements.drain(..elements.len() - 1)));
    }
    found
}

/// Whether this error may be caused by other transactions.
fn may_happen(error: &Error) -> bool {
    // A key that was free in the snapshot may have been taken since, and waits for tables are short.
    error.is_retryable()
        || [SqlState::UNIQUE_VIOLATION, SqlState::LOCK_NOT_AVAILABLE].contains(&error.state())
}

fn ended(error: Error, while_committing: bool) -> Ended {
    match error.state() {
        SqlState::CONNECTION_FAILURE => Ended::Lost { while_committing },
        _ if may_happen(&error) => Ended::Failed,
        _ => Ended::Wrong(error),
    }
}

const _: () = assert!(CHANGES > 6 + UPDATES.len() - 1 && GROUP_CHANGES == 3);
