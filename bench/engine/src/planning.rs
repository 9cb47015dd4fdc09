//! The cost of planning: statements with a new text each time, statements that differ in literals, and prepared statements.
//!
//! Everything runs in process, over tables with few rows, so that the time is that of parsing, binding, optimising and starting.

use crate::queries::TPCH;
use crate::tpcc::load::LoadProgress;
use crate::{median, tpch};
use firn_base::{Result, Value};
use firn_session::{Connection, Database};
use std::time::{Duration, Instant};

/// A line of the report.
pub struct Line {
    /// What was planned.
    pub name: String,
    /// How long it took to prepare, the median.
    pub plan: Duration,
    /// How long it took to prepare and run; `None` if it was not run.
    pub whole: Option<Duration>,
}

/// The number of rows of the tables whose keys are looked up.
const ROWS: i32 = 1000;

/// Plans statements of each kind `rounds` times.
pub fn run(rounds: usize) -> Result<Vec<Line>> {
    let database = Database::memory()?;
    tpch::load(database.engine(), 0.01, 2, &LoadProgress::default())?;
    let mut connection = database.connect();
    connection.execute(&format!(
        "CREATE TABLE items (id integer PRIMARY KEY, maker integer NOT NULL, price bigint, name text);
         CREATE TABLE makers (id integer PRIMARY KEY, name text);
         CREATE TABLE added (id integer PRIMARY KEY, price bigint, name text);
         INSERT INTO items SELECT i, i % 100, i * 7, 'item ' || i FROM generate_series(1, {ROWS}) AS i;
         INSERT INTO makers SELECT i, 'maker ' || i FROM generate_series(0, 99) AS i"
    ))?;
    let mut lines = Vec::new();
    let by_key = |round| format!("SELECT name, price FROM items WHERE id = {}", 1 + round as i32 % ROWS);
    lines.push(new_texts(&mut connection, "by primary key, a new text", rounds, true, by_key)?);
    for (name, sql) in [
        ("by primary key, another literal", "SELECT name, price FROM items WHERE id = 17"),
        ("UPDATE by primary key, another literal", "UPDATE items SET price = 17 WHERE id = 17"),
        ("INSERT of a row, another literal", "INSERT INTO added VALUES (17, 17, 'item 17')"),
        ("by another column, another literal", "SELECT name, price FROM items WHERE maker = 17 AND id < 17"),
    ] {
        // Two statements in each round.
        let text = |number: usize| sql.replace("17", &number.to_string());
        lines.push(other_literals(&mut connection, name, rounds, text)?);
    }
    let key = |round: usize| vec![Value::Integer(1 + round as i32 % ROWS)];
    for (name, sql) in [
        ("by primary key, prepared", "SELECT name, price FROM items WHERE id = $1"),
        (
            "a join by keys, prepared",
            "SELECT i.name, m.name FROM items i JOIN makers m ON m.id = i.maker WHERE i.id = $1",
        ),
        ("ORDER BY … LIMIT 1, prepared", "SELECT id FROM items WHERE id >= $1 ORDER BY price LIMIT 1"),
    ] {
        lines.push(prepared(&mut connection, name, sql, rounds, key)?);
    }
    let wide = |what: &str, count: usize, separator: &str| vec![what; count].join(separator);
    let fresh = |text: String| move |_: usize| text.clone();
    let few = rounds.div_ceil(50);
    let sum = format!("SELECT {} FROM items WHERE id = 1", wide("price", 1000, " + "));
    lines.push(new_texts(&mut connection, "a sum of 1,000 columns", few, true, fresh(sum))?);
    let conditions: Vec<String> = (0..2000).map(|n| format!("price = {n}")).collect();
    let or = format!("SELECT id FROM items WHERE {}", conditions.join(" OR "));
    lines.push(new_texts(&mut connection, "2,000 ORs", few, true, fresh(or))?);
    let calls = format!("SELECT {}price{} FROM items WHERE id = 1", "abs(".repeat(90), ")".repeat(90));
    lines.push(new_texts(&mut connection, "90 nested calls", few, true, fresh(calls))?);
    for (number, sql) in (1..).zip(TPCH) {
        let of_query: Vec<&str> = sql.lines().filter(|line| !line.starts_with("--")).collect();
        let text = of_query.join(" ").trim_end_matches(';').to_owned();
        lines.push(new_texts(&mut connection, &format!("TPC-H {number}"), few, false, fresh(text))?);
    }
    Ok(lines)
}

/// Statements whose texts have not been seen before.
fn new_texts(
    connection: &mut Connection,
    name: &str,
    rounds: usize,
    runs: bool,
    text: impl Fn(usize) -> String,
) -> Result<Line> {
    let (mut plans, mut wholes) = (Vec::new(), Vec::new());
    // Another comment behind the first word makes it another text.
    let new = |text: &str, number: usize| {
        let (first, rest) = text.split_once(' ').expect("it has several words");
        format!("{first} /* {number} */ {rest}")
    };
    for round in 0..rounds {
        let text = text(round);
        let prepared = new(&text, 2 * round);
        let start = Instant::now();
        connection.prepare(&prepared)?;
        plans.push(start.elapsed());
        if runs {
            let run = new(&text, 2 * round + 1);
            let start = Instant::now();
            connection.query_values(run.as_str(), ())?;
            wholes.push(start.elapsed());
        }
    }
    let whole = runs.then(|| median(&mut wholes));
    Ok(Line { name: name.to_owned(), plan: median(&mut plans), whole })
}

/// Statements that differ in literals.
fn other_literals(
    connection: &mut Connection,
    name: &str,
    rounds: usize,
    text: impl Fn(usize) -> String,
) -> Result<Line> {
    let (mut plans, mut wholes) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let prepared = text(2 * round);
        let start = Instant::now();
        connection.prepare(&prepared)?;
        plans.push(start.elapsed());
        let run = text(2 * round + 1);
        let start = Instant::now();
        connection.execute_statement(run.as_str(), ())?;
        wholes.push(start.elapsed());
    }
    Ok(Line { name: name.to_owned(), plan: median(&mut plans), whole: Some(median(&mut wholes)) })
}

fn prepared(
    connection: &mut Connection,
    name: &str,
    sql: &str,
    rounds: usize,
    parameters: impl Fn(usize) -> Vec<Value>,
) -> Result<Line> {
    let start = Instant::now();
    let statement = connection.prepare(sql)?;
    let plan = start.elapsed();
    let mut wholes = Vec::new();
    for round in 0..rounds {
        let parameters = parameters(round);
        let start = Instant::now();
        let rows = connection.query_values(&statement, parameters)?;
        wholes.push(start.elapsed());
        assert_eq!(rows.len(), 1, "{sql}");
    }
    Ok(Line { name: name.to_owned(), plan, whole: Some(median(&mut wholes)) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_statement_is_planned() {
        let lines = super::run(3).unwrap();
        assert_eq!(lines.len(), 11 + 22);
        assert!(lines.iter().all(|line| !line.plan.is_zero()));
    }
}
