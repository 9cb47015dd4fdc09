//! Short programs beside the pipelines of the same statements: random statements, their rows, and what is logged of them.
//!
//! Two databases have the same rows. In one of them statements run by their short programs, in the other one by
//! their pipelines; after each, counts, rows and errors are compared.

use crate::database::{Database, TableSchema, by_pipelines, by_short_program};
use firn_base::random::Random;
use firn_base::{Error, Result, SqlState, Value};
use firn_query::Prepared;
use firn_txn::Transaction;

const TABLES: [TableSchema; 3] = [
    TableSchema {
        name: "t",
        columns: "a i, b i?, c v20?, d n10.2?, e b",
        indexes: &["a", "b -a", "c a", "d"],
        checks: &["d < 1000.00", "b IS NULL OR e > b - 1000"],
    },
    TableSchema { name: "u", columns: "x i, y i, z i?, w c5?", indexes: &["x y", "z"], checks: &[] },
    TableSchema { name: "log", columns: "k i", indexes: &["k"], checks: &[] },
];

/// What a random statement is like.
struct Case {
    /// Its number in [`STATEMENTS`].
    number: usize,
    text: String,
    parameters: Vec<Value>,
}

/// How rows of a statement compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    InOrder,
    Multiset,
}

/// Statements with parameters: `i` stands for an integer, `j` for a bigint, `n` for a number, `s` for a text, `l` for a list of
/// integers; `k` for the key of a row to insert. Whether rows come in an order.
const STATEMENTS: &[(&str, &str, Rows)] = &[
    ("SELECT * FROM t WHERE a = $1", "i", Rows::Multiset),
    ("SELECT c, d + 1, b IS NULL, coalesce(b, -1) FROM t WHERE a = $1::bigint", "j", Rows::Multiset),
    ("SELECT a, e FROM t WHERE a = $1 AND b > $2", "ii", Rows::Multiset),
    ("SELECT a FROM t WHERE b = $1 ORDER BY a DESC", "i", Rows::InOrder),
    ("SELECT a FROM t WHERE b = $1 ORDER BY a", "i", Rows::InOrder),
    ("SELECT a, c FROM t WHERE b = $1 ORDER BY c NULLS FIRST, a", "i", Rows::InOrder),
    ("SELECT a, c FROM t WHERE b = $1 AND a > $2", "ii", Rows::Multiset),
    ("SELECT a, c FROM t WHERE b = $1 AND a <= $2 AND a >= $3", "iii", Rows::Multiset),
    ("SELECT a, c FROM t WHERE b = $1 AND a < $2::bigint AND a >= $3", "iji", Rows::Multiset),
    ("SELECT count(*), count(DISTINCT z) FROM u WHERE x = $1 AND y > $2::bigint", "ij", Rows::Multiset),
    (
        "SELECT count(DISTINCT u.z) FROM t JOIN u ON u.x = t.a AND u.y = $3 WHERE t.b = $1 AND t.a >= $2 AND u.z < 4",
        "iii",
        Rows::Multiset,
    ),
    ("SELECT a FROM t WHERE b = $1 ORDER BY a LIMIT 2 OFFSET 1", "i", Rows::InOrder),
    ("SELECT a FROM t WHERE c = $1 ORDER BY d DESC, a LIMIT 3", "s", Rows::InOrder),
    ("SELECT a, length(c), upper(c) || 'x' FROM t WHERE c >= $1 AND c < $2", "ss", Rows::Multiset),
    ("SELECT a FROM t WHERE d = $1", "n", Rows::Multiset),
    ("SELECT a, d FROM t WHERE d > $1 AND d < $2 AND e <> 3", "nn", Rows::Multiset),
    ("SELECT a FROM t WHERE a IN ($1, $2, $3)", "iii", Rows::Multiset),
    ("SELECT a, b FROM t WHERE a = ANY ($1) AND b IS NOT NULL", "l", Rows::Multiset),
    (
        "SELECT a, CASE b WHEN 1 THEN 'one' WHEN 2 THEN c ELSE 'many' END FROM t WHERE a = $1",
        "i",
        Rows::Multiset,
    ),
    (
        "SELECT count(*), sum(d), min(c), max(e), count(DISTINCT d), avg(b) FROM t WHERE b = $1",
        "i",
        Rows::Multiset,
    ),
    (
        "SELECT sum(e) FILTER (WHERE d > 5), count(c) + 1 FROM t WHERE b = $1 HAVING count(*) > 1",
        "i",
        Rows::Multiset,
    ),
    ("SELECT t.a, u.y, u.w FROM t JOIN u ON u.x = t.b WHERE t.a = $1", "i", Rows::Multiset),
    ("SELECT t.a, u.y FROM t LEFT JOIN u ON u.x = t.b AND u.y > 2 WHERE t.a = $1", "i", Rows::Multiset),
    ("SELECT t.a FROM t WHERE t.b = $1 AND EXISTS (SELECT FROM u WHERE u.x = t.a)", "i", Rows::Multiset),
    (
        "SELECT t.a FROM t WHERE t.b = $1 AND NOT EXISTS (SELECT FROM u WHERE u.x = t.a AND u.y = 1)",
        "i",
        Rows::Multiset,
    ),
    (
        "SELECT t.a, (SELECT u.z FROM u WHERE u.x = t.a AND u.y = $2) FROM t WHERE t.a = $1",
        "ii",
        Rows::Multiset,
    ),
    ("SELECT t.a, (SELECT u.z FROM u WHERE u.x = t.a) FROM t WHERE t.a = $1", "i", Rows::Multiset),
    ("SELECT w FROM u WHERE x = $1 AND y = $2", "ii", Rows::Multiset),
    ("SELECT x, y FROM u WHERE z = $1 AND w = 'w1'", "i", Rows::Multiset),
    ("SELECT a FROM t WHERE b = $1 AND 10 / (a - 5) > 0", "i", Rows::Multiset),
    ("SELECT x, y FROM u ORDER BY x, y LIMIT 4", "", Rows::InOrder),
    ("SELECT x, y FROM u ORDER BY x DESC, y DESC LIMIT 4", "", Rows::InOrder),
    ("SELECT d, a FROM t WHERE a = $1 FOR UPDATE", "i", Rows::Multiset),
    ("SELECT a FROM t WHERE b = $1 ORDER BY a LIMIT 2 FOR SHARE", "i", Rows::InOrder),
    (
        "SELECT a FROM t WHERE b = $1 ORDER BY c, a LIMIT 2 OFFSET 1 FOR UPDATE SKIP LOCKED",
        "i",
        Rows::InOrder,
    ),
    ("INSERT INTO t VALUES ($1, $2, $3, $4, $5)", "kisnj", Rows::Multiset),
    ("INSERT INTO t (a, e, b) VALUES ($1, 5, 7 + $2) RETURNING *", "ki", Rows::Multiset),
    ("INSERT INTO u VALUES ($1, $2, NULL, 'w1'), ($1, $2 + 1, 3, 'w')", "ii", Rows::Multiset),
    ("INSERT INTO u SELECT a, e, b, 'w2' FROM t WHERE a = $1 RETURNING x, y * 2", "i", Rows::Multiset),
    ("UPDATE t SET d = d + $2 WHERE a = $1", "in", Rows::Multiset),
    ("UPDATE t SET b = $2, c = c || $3 WHERE a = $1 RETURNING a, c, d * 2", "iis", Rows::Multiset),
    ("UPDATE t SET b = b + 1 WHERE b = $1 RETURNING a, b", "i", Rows::Multiset),
    ("UPDATE t SET a = $2 WHERE a = $1", "ik", Rows::Multiset),
    ("UPDATE t SET e = NULL WHERE b = $1", "i", Rows::Multiset),
    ("UPDATE u SET z = $2 WHERE x = $1 AND EXISTS (SELECT FROM t WHERE t.a = u.y)", "ii", Rows::Multiset),
    ("UPDATE t SET d = 99999999.999 WHERE a = $1", "i", Rows::Multiset),
    ("DELETE FROM t WHERE a = $1 RETURNING b, c", "i", Rows::Multiset),
    ("DELETE FROM u WHERE x = $1", "i", Rows::Multiset),
    ("DELETE FROM u WHERE x = $1 AND y IN ($2, $3)", "iii", Rows::Multiset),
];

fn parameters(random: &mut Random, kinds: &str, next_key: &mut i32) -> Vec<Value> {
    let small = |random: &mut Random| random.uniform(0, 12) as i32;
    let kinds = kinds.chars().map(|kind| {
        if kind != 'k' && random.uniform(0, 15) == 0 {
            return Value::Null;
        }
        match kind {
            'i' => Value::Integer(small(random)),
            'j' => match random.uniform(0, 8) {
                0 => Value::BigInt(1 << 40),
                _ => Value::BigInt(small(random).into()),
            },
            'n' => Value::Number(firn_base::Numeric::new(i128::from(random.uniform(-20, 200)), 1).unwrap()),
            's' => Value::Text(format!("c{}", random.uniform(0, 5))),
            'l' => {
                let length = random.uniform(0, 4);
                let elements = (0..length).map(|_| match random.uniform(0, 6) {
                    0 => Value::Null,
                    _ => Value::Integer(small(random)),
                });
                Value::Array(elements.collect::<Vec<Value>>().into())
            }
            // Sometimes one that is there.
            'k' => match random.uniform(0, 3) {
                0 => Value::Integer(small(random)),
                _ => {
                    *next_key += 1;
                    Value::Integer(*next_key)
                }
            },
            other => panic!("{other} is no kind"),
        }
    });
    kinds.collect()
}

fn case(random: &mut Random, next_key: &mut i32) -> Case {
    let number = random.uniform(0, STATEMENTS.len() as i64 - 1) as usize;
    let (text, kinds, ..) = STATEMENTS[number];
    Case { number, text: text.to_owned(), parameters: parameters(random, kinds, next_key) }
}

/// Two databases with the same rows.
fn databases(random: &mut Random) -> [Database; 2] {
    let databases = [Database::new(&TABLES), Database::new(&TABLES)];
    let mut statements = Vec::new();
    for a in 0..12 {
        let b = if random.uniform(0, 6) == 0 { "NULL".to_owned() } else { random.uniform(0, 4).to_string() };
        let c = if random.uniform(0, 6) == 0 {
            "NULL".to_owned()
        } else {
            format!("'c{}'", random.uniform(0, 4))
        };
        let d = random.uniform(0, 150);
        statements.push(format!("INSERT INTO t VALUES ({a}, {b}, {c}, {d} / 10.0, {a} % 5)"));
    }
    for x in 0..8 {
        for y in 0..random.uniform(0, 4) {
            let z = random.uniform(0, 5);
            statements.push(format!("INSERT INTO u VALUES ({x}, {y}, {z}, 'w{}')", z % 2));
        }
    }
    for database in &databases {
        let mut transaction = database.engine.begin();
        for statement in &statements {
            let prepared = database.prepare(statement, &transaction).unwrap();
            by_pipelines(database, &prepared, &mut transaction, &[], &mut Vec::new()).unwrap();
        }
        let _ = transaction.commit().unwrap();
    }
    databases
}

/// What a statement comes to: how many rows it has changed, and the rows as text.
type Outcome = std::result::Result<(Option<u64>, Vec<String>), SqlState>;

fn outcome(prepared: &Prepared, run: Result<(Option<u64>, Vec<Value>)>, rows: Rows) -> Outcome {
    let (count, values) = run.map_err(|error: Error| error.state())?;
    let width = prepared.columns().len().max(1);
    let text = |value: &Value| match value {
        Value::Numeric { unscaled, scale } => firn_base::Numeric::from_decimal(*unscaled, *scale).to_string(),
        Value::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let row = |row: &[Value]| row.iter().map(text).collect::<Vec<_>>().join(" | ");
    let mut texts: Vec<String> = values.chunks(width).map(row).collect();
    if rows == Rows::Multiset {
        texts.sort_unstable();
    }
    Ok((count, texts))
}

/// Runs a case in one of the two ways; whether by a short program.
fn run(database: &Database, case: &Case, transaction: &mut Transaction, is_short: bool) -> (Outcome, bool) {
    let rows = STATEMENTS[case.number].2;
    let prepared =
        database.prepare(&case.text, transaction).unwrap_or_else(|error| panic!("{}: {error}", case.text));
    let mut values = Vec::new();
    if is_short {
        match by_short_program(database, &prepared, transaction, &case.parameters, &mut values) {
            Ok(None) => {}
            done => {
                let done = done.map(|done| done.expect("it has not given up"));
                if let Ok(done) = &done {
                    assert_eq!(values.len(), done.rows * prepared.columns().len(), "{}", case.text);
                }
                return (outcome(&prepared, done.map(|done| (done.count, values)), rows), true);
            }
        }
    }
    let done = by_pipelines(database, &prepared, transaction, &case.parameters, &mut values);
    (outcome(&prepared, done.map(|done| (done.count, values)), rows), false)
}

#[test]
fn short_programs_do_what_pipelines_do() {
    let mut short = vec![0; STATEMENTS.len()];
    for seed in 0..60 {
        let (mut random, mut next_key) = (Random::seeded(seed), 100);
        let databases = databases(&mut random);
        for _ in 0..40 {
            let mut transactions = [0, 1].map(|number: usize| databases[number].engine.begin());
            let mut failed = false;
            for _ in 0..random.uniform(1, 3) {
                let case = case(&mut random, &mut next_key);
                let mut run =
                    |number: usize| run(&databases[number], &case, &mut transactions[number], number == 0);
                let ((found, is_short), (expected, _)) = (run(0), run(1));
                let Case { text, parameters, .. } = &case;
                assert_eq!(found, expected, "seed {seed}: {text} with {parameters:?}");
                short[case.number] += i32::from(is_short);
                // What a failed statement has done is undone with its transaction.
                failed = found.is_err();
                if failed {
                    break;
                }
            }
            for transaction in transactions {
                match failed {
                    true => transaction.rollback(),
                    false => drop(transaction.commit().unwrap()),
                }
            }
        }
    }
    let never: Vec<&str> =
        short.iter().zip(STATEMENTS).filter(|(count, _)| **count == 0).map(|(_, (text, ..))| *text).collect();
    assert!(never.is_empty(), "only by pipelines: {never:?}");
}

/// A transaction reads, another one changes something and commits, and then the first one writes and commits: that fails only if
/// it fails after the pipelines of the same statement, and if it does not fail, what was read is as it was.
#[test]
fn short_programs_log_what_pipelines_log() {
    let (mut conflicts, mut differing) = (0, 0);
    for seed in 0..400 {
        let (mut random, mut next_key) = (Random::seeded(1000 + seed), 100);
        let databases = databases(&mut random);
        let read = loop {
            let case = case(&mut random, &mut next_key);
            let is_query = case.text.starts_with("SELECT") && !case.text.contains(" FOR ");
            if is_query {
                break case;
            }
        };
        let change = loop {
            let case = case(&mut random, &mut next_key);
            if !case.text.starts_with("SELECT") {
                break case;
            }
        };
        let outcomes = [0, 1].map(|number: usize| {
            let database = &databases[number];
            let mut reading = database.engine.begin();
            let before = run(database, &read, &mut reading, number == 0).0;
            if before.is_err() {
                // How far it had come by then is open.
                reading.rollback();
                return None;
            }
            let mut changing = database.engine.begin();
            match run(database, &change, &mut changing, false).0 {
                Ok(_) => drop(changing.commit().unwrap()),
                Err(_) => changing.rollback(),
            }
            let note = database.prepare("INSERT INTO log VALUES (1)", &reading).unwrap();
            by_pipelines(database, &note, &mut reading, &[], &mut Vec::new()).unwrap();
            let committed = reading.commit().map(drop).map_err(|error| error.state());
            if committed.is_ok() {
                // What it has read is as it was.
                let mut again = database.engine.begin();
                let after = run(database, &read, &mut again, false).0;
                assert_eq!(before, after, "seed {seed}: {} {:?}", read.text, read.parameters);
                again.rollback();
            }
            Some(committed)
        });
        let [Some(short), Some(pipelines)] = outcomes else { continue };
        let texts = format!(
            "seed {seed}: {} {:?}, then {} {:?}",
            read.text, read.parameters, change.text, change.parameters
        );
        conflicts += i32::from(pipelines.is_err());
        // Where reading may end early, or its pipelines read whole tables, a short program may read less.
        differing += i32::from(short != pipelines);
        assert!(short.is_ok() || pipelines.is_err(), "{texts}");
    }
    assert!(conflicts > 10, "only {conflicts} conflicts");
    assert!(differing < conflicts, "{differing} of {conflicts} differ");
}

/// A statement that finds more rows than a short program visits gives the rows of its pipelines, and changes each row once.
#[test]
fn a_short_program_that_visits_too_many_rows_gives_up_before_it_changes_anything() {
    let database = Database::new(&TABLES);
    let mut transaction = database.engine.begin();
    let insert = database.prepare("INSERT INTO t VALUES ($1, 1, NULL, 0, 0)", &transaction).unwrap();
    for a in 0..1500 {
        let parameters = [Value::Integer(a)];
        by_short_program(&database, &insert, &mut transaction, &parameters, &mut Vec::new())
            .unwrap()
            .unwrap();
    }
    let mut values = vec![Value::Null];
    for text in ["SELECT a FROM t WHERE b = $1", "UPDATE t SET e = e + 1 WHERE b = $1"] {
        let prepared = database.prepare(text, &transaction).unwrap();
        assert!(prepared.is_short());
        let parameters = [Value::Integer(1)];
        let done =
            by_short_program(&database, &prepared, &mut transaction, &parameters, &mut values).unwrap();
        assert_eq!((done, values.len()), (None, 1), "{text} gives up and leaves nothing");
    }
    let prepared = database.prepare("UPDATE t SET e = e + 1 WHERE b = 1", &transaction).unwrap();
    let (others, surroundings) = (&firn_query::NoRelations, database.surroundings.clone());
    let executed = prepared.execute(&mut transaction, others, &[], surroundings, database.options()).unwrap();
    assert_eq!(executed.count, Some(1500));
    let sum = database.prepare("SELECT sum(e), count(*) FROM t WHERE b = 1", &transaction).unwrap();
    by_pipelines(&database, &sum, &mut transaction, &[], &mut values).unwrap();
    assert_eq!(values[2], Value::BigInt(1500));
}

/// Rows are added until there are more than ten times a hundred.
#[test]
fn a_statement_outgrows_its_plan_once_it_runs_as_pipelines() {
    let database = Database::new(&TABLES);
    let mut transaction = database.engine.begin();
    let insert = database
        .prepare("INSERT INTO u SELECT g, g, g, 'w' FROM generate_series($1::int, $2) g", &transaction);
    let insert = insert.unwrap();
    let join = database.prepare("SELECT count(*) FROM u, u v WHERE u.z = v.y", &transaction).unwrap();
    let point = database.prepare("SELECT w FROM u WHERE x = $1 AND y = $2", &transaction).unwrap();
    for (from, to, has_outgrown) in [(1, 900, false), (901, 1001, true)] {
        let bounds = [Value::Integer(from), Value::Integer(to)];
        by_pipelines(&database, &insert, &mut transaction, &bounds, &mut Vec::new()).unwrap();
        assert_eq!((join.has_outgrown(), point.has_outgrown()), (has_outgrown, false));
    }
    let again = database.prepare("SELECT count(*) FROM u, u v WHERE u.z = v.y", &transaction).unwrap();
    assert!(!again.has_outgrown());
}
