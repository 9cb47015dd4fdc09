//! The short path: which statements take it, and that it answers as the analytical path does.

use crate::script::Db;
use firn_base::random::Random;

fn orders() -> Db {
    let db = Db::with(
        "CREATE TABLE o (w int, d int, id int, c int, amount numeric(8,2), note text, PRIMARY KEY (w, d, id));
         CREATE INDEX o_customer ON o (w, c, id DESC);
         CREATE INDEX o_amount ON o (amount DESC NULLS LAST);
         CREATE TABLE i (id int PRIMARY KEY, price numeric(8,2), name varchar(20))",
    );
    let mut random = Random::seeded(11);
    for w in 1..=2 {
        for d in 1..=3 {
            let mut rows = Vec::new();
            for id in 1..=20 {
                let customer = match random.uniform(0, 6) {
                    0 => "NULL".to_owned(),
                    other => other.to_string(),
                };
                let amount = match random.uniform(0, 9) {
                    0 => "NULL".to_owned(),
                    _ => format!("{}.{:02}", random.uniform(-5, 20), random.uniform(0, 99)),
                };
                rows.push(format!("({w}, {d}, {id}, {customer}, {amount}, 'n{}')", random.uniform(0, 3)));
            }
            db.run(&format!("INSERT INTO o VALUES {}", rows.join(", ")));
        }
    }
    db.run("INSERT INTO i SELECT g, g * 1.5, 'item ' || g FROM generate_series(1, 6) AS s(g)");
    db
}

#[test]
fn statements_over_few_rows_take_the_short_path() {
    let db = orders();
    for sql in [
        "SELECT * FROM o WHERE w = 1 AND d = 2 AND id = 3",
        "SELECT o.amount + 1 AS more FROM o WHERE o.id = 3 AND o.w = 1 AND o.d = 2 AND c IS NOT NULL",
        "SELECT id FROM o WHERE w = 1 AND d = 2 AND id BETWEEN 3 AND 7",
        "SELECT id FROM o WHERE w = 1 AND d = 2 AND id > 15 AND id <= 18",
        "SELECT id FROM o WHERE w = 1 AND d = 2 ORDER BY id DESC LIMIT 1",
        "SELECT id, c FROM o WHERE w = 1 AND d = 2 ORDER BY c, id LIMIT 5 OFFSET 2",
        "SELECT id FROM o WHERE w = 2 AND c = 3 ORDER BY id DESC",
        "SELECT count(*), sum(amount), min(note), max(id) FROM o WHERE w = 1 AND d = 2",
        "SELECT count(DISTINCT c) FROM o WHERE w = 1 AND d = 2 AND id < 10",
        "SELECT max(amount) FROM o WHERE w = 1 AND c = 99",
        "SELECT o.id, i.name FROM o, i WHERE w = 1 AND d = 1 AND o.id = 4 AND i.id = o.c",
        "SELECT count(DISTINCT i.id) FROM o JOIN i ON i.id = o.c WHERE w = 1 AND d = 1 AND o.id >= 4 AND price < 5",
        "SELECT amount FROM o ORDER BY amount DESC NULLS LAST LIMIT 3",
        "SELECT id FROM o WHERE w = 1 AND d = 2 AND id IN (7, 3, 3, 99, NULL) ORDER BY id",
        "SELECT id, d FROM o WHERE w IN (2, 1) AND d = 2 AND id IN (1, 2) ORDER BY w, id",
        "SELECT d, id FROM o WHERE w = 1 AND d = ANY ('{3,1}') AND id > 17 ORDER BY d DESC, id LIMIT 4",
        "SELECT name FROM i WHERE id IN (5, 2) ORDER BY id DESC",
        "SELECT o.id, name FROM i, o WHERE i.id IN (1, 2) AND w = 1 AND c = i.id ORDER BY o.id",
        "SELECT max(id) FROM i",
        "SELECT min(id) + 1 AS next, max(id), min(id) FROM i WHERE id > 2",
        "SELECT max(amount) FROM o",
        "SELECT min(amount) FROM o WHERE note = 'n1'",
        "SELECT max(id) FROM o WHERE w = 2 AND d = 3",
        "SELECT max(d) FROM o WHERE w = 2",
        "SELECT min(id) FROM o WHERE w = 2 AND d = 9",
        "SELECT max(id) FROM i WHERE id < 0 OFFSET 1",
        "SELECT max(id) FROM i LIMIT 0",
    ] {
        let answer = db.run(sql);
        assert!(answer.was_short, "{sql}");
        let long = Db { short: false, ..orders() }.run(sql);
        assert_eq!(answer.rows, long.rows, "{sql}");
    }
    for sql in [
        "SELECT * FROM o",
        "SELECT id FROM o WHERE c = 1",
        "SELECT id FROM o WHERE w = 1 AND d NOT IN (1, 2) OR id = 4",
        "SELECT w, count(*) FROM o WHERE w = 1 GROUP BY w",
        "SELECT max(id) FROM o",
        "SELECT max(id), count(*) FROM i",
    ] {
        assert!(!db.run(sql).was_short, "{sql}");
    }
}

#[test]
fn equality_with_char_goes_through_an_index_whatever_blanks_there_are() {
    let db = Db::with(
        "CREATE TABLE p (code char(6) PRIMARY KEY, n int);
         CREATE TABLE q (id int PRIMARY KEY, code char(6), short char(3));
         CREATE INDEX q_code ON q (code);
         INSERT INTO p VALUES ('ab', 1), ('abc', 2), ('abcdef', 3), ('', 4);
         INSERT INTO q VALUES (1, 'abc', 'abc'), (2, 'ab', 'ab'), (3, 'abc ', 'x'), (4, NULL, NULL)",
    );
    for (sql, expected) in [
        ("SELECT n FROM p WHERE code = 'ab'", &["1"][..]),
        ("SELECT n FROM p WHERE code = 'abc         '", &["2"]),
        ("SELECT n FROM p WHERE code = 'abcdefg'", &[]),
        ("SELECT n FROM p WHERE '' = code", &["4"]),
        ("SELECT id FROM q WHERE code = 'abc' ORDER BY id", &["1", "3"]),
        ("SELECT p.n FROM q, p WHERE q.id = 3 AND p.code = q.code", &["2"]),
    ] {
        let answer = db.run(sql);
        assert!(answer.was_short, "{sql}");
        assert_eq!(answer.rows, expected, "{sql}");
    }
    for (sql, expected) in [
        ("SELECT p.n FROM q, p WHERE q.id = 2 AND p.code = q.short", &["1"][..]),
        ("SELECT n FROM p WHERE code IN ('ab', 'ab  ', 'x')", &["1"]),
        ("SELECT n FROM p WHERE code = 'ab'::text", &["1"]),
        ("SELECT n FROM p WHERE code = 'ab '::text", &[]),
        ("SELECT count(*) FROM p WHERE code > 'ab' AND code < 'abd'", &["2"]),
    ] {
        let answer = db.run(sql);
        assert_eq!(answer.rows, expected, "{sql} {}", answer.was_short);
    }
}

#[test]
fn a_statement_that_touches_too_many_rows_is_left_to_the_other_path() {
    let db = Db::with(
        "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b));
         INSERT INTO t SELECT 1, i FROM generate_series(1, 10000) AS g(i)",
    );
    let answer = db.run("SELECT count(*) FROM t WHERE a = 1");
    assert_eq!((answer.rows.as_slice(), answer.was_short), (["10000".to_owned()].as_slice(), false));
    assert!(db.run("SELECT b FROM t WHERE a = 1 ORDER BY b LIMIT 2").was_short);
    assert_eq!(db.run("UPDATE t SET b = -b WHERE a = 1").count, 10_000);
}

#[test]
fn both_paths_answer_random_statements_alike() {
    let seed = 20_261_121;
    let mut random = Random::seeded(seed);
    let short = orders();
    let long = Db { short: false, ..orders() };
    let mut taken = 0;
    for _ in 0..400 {
        let sql = statement(&mut random);
        let (left, right) = (short.try_run(&sql), long.try_run(&sql));
        match (left, right) {
            (Ok(mut left), Ok(mut right)) => {
                taken += usize::from(left.was_short);
                if !sql.contains("ORDER BY") {
                    left.rows.sort();
                    right.rows.sort();
                }
                assert_eq!((left.rows, left.count), (right.rows, right.count), "seed {seed}: {sql}");
            }
            (Err(left), Err(right)) => assert_eq!(left.state(), right.state(), "seed {seed}: {sql}"),
            (left, right) => panic!("seed {seed}: {sql}\nshort {left:?}\nlong {right:?}"),
        }
    }
    assert!(taken > 100, "only {taken} statements took the short path");
    let all = "SELECT * FROM o ORDER BY w, d, id";
    assert_eq!(short.rows(all), long.rows(all));
}

fn statement(random: &mut Random) -> String {
    let mut conditions = Vec::new();
    for column in ["w", "d", "id"] {
        match random.uniform(0, 9) {
            0 => break,
            1 => conditions.push(format!("{column} >= {}", random.uniform(0, 3))),
            2 => conditions.push(format!(
                "{column} BETWEEN {} AND {}",
                random.uniform(-1, 2),
                random.uniform(1, 9)
            )),
            3 => conditions.push(format!("{}.5 > {column}", random.uniform(0, 9))),
            _ => conditions.push(format!("{column} = {}", random.uniform(1, 3))),
        }
    }
    match random.uniform(0, 9) {
        0 => conditions.push(format!("c = {}", random.uniform(1, 6))),
        1 => conditions.push("c IS NULL".to_owned()),
        2 => conditions.push(format!("note = 'n{}'", random.uniform(0, 3))),
        3 => conditions.push(format!("amount > {}.{}", random.uniform(-3, 9), random.uniform(0, 9))),
        4 => conditions.push(format!("(c IN (1, 3, NULL) OR note LIKE '%{}')", random.uniform(0, 3))),
        5 => conditions.push(format!("NOT amount BETWEEN {} AND 8", random.uniform(0, 9))),
        _ => {}
    }
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    match random.uniform(0, 11) {
        0 => {
            format!("SELECT count(*), count(amount), sum(amount), min(amount), max(note) FROM o {condition}")
        }
        1 => format!("SELECT sum(c), avg(c), count(DISTINCT c), max(id) FROM o {condition}"),
        2 => format!("SELECT id, amount FROM o {condition} ORDER BY amount, w, d, id LIMIT 3 OFFSET 1"),
        3 => format!("SELECT w, d, id FROM o {condition} ORDER BY w DESC, d DESC, id DESC LIMIT 4"),
        4 => format!("SELECT c, id FROM o {condition} ORDER BY c NULLS FIRST, id DESC, w, d"),
        5 => format!("UPDATE o SET amount = amount + 1, note = note || '' {condition} RETURNING id, amount"),
        6 => format!("UPDATE o SET c = coalesce(c, 0) + 1 {condition}"),
        7 => format!(
            "DELETE FROM o {condition} {} id = 20 RETURNING w, d, id",
            if conditions.is_empty() { "WHERE" } else { "AND" }
        ),
        8 => format!(
            "SELECT o.id, i.name FROM o JOIN i ON i.id = o.c {condition} {} o.id > 0",
            if conditions.is_empty() { "WHERE" } else { "AND" }
        )
        .replace(" id ", " o.id ")
        .replace("AND id", "AND o.id")
        .replace("WHERE id", "WHERE o.id")
        .replace("> id", "> o.id"),
        9 => format!(
            "SELECT CASE WHEN c > 3 THEN 'many' WHEN c > 0 THEN 'few' ELSE 'none' END AS k, -amount FROM o {condition}"
        ),
        _ => format!("SELECT w, d, id, c, amount * 2, upper(note), amount / 3 FROM o {condition}"),
    }
}
