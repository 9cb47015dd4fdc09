//! Loads for the trial of a server that is killed: some from files, some from the client, some whose redo remains in
//! memory and some whose redo is spilled long before they commit.
//!
//! Every load has a number of its own and rows `(load, row, what)`. So the table shows for each load whether it was stored
//! as a whole, in part, or not at all. Each client tries a load once and continues with the next number.

use crate::wire_client::WireClient;
use firn_base::random::Random;
use firn_base::{Error, Result, Value};
use firn_bench::sql_client::SqlClient;
use std::fmt::Write;
use std::path::Path;

/// Rows of a short load, and of one whose redo is longer than the 8 MiB that remain in memory.
const ROWS: [i32; 2] = [500, 60_000];

/// The approximate size of rows in bytes.
const WHAT_BYTES: usize = 180;

/// Bytes of a message of COPY.
const MESSAGE_BYTES: usize = 64 << 10;

/// How a load ended, as its client saw it.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: i32,
    rows: i32,
    acknowledged: bool,
}

/// All attempts of one kill.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Vec<Attempt>);

impl Attempts {
    /// Adds another client's.
    pub fn add(&mut self, other: Attempts) {
        self.0.extend(other.0);
    }

    /// How many there were, and how many of them were acknowledged.
    pub fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.iter().filter(|attempt| attempt.acknowledged).count())
    }

    /// The violations in the table of a server that has been started again; none if all is well. Afterwards
    /// the table is empty.
    pub fn violations(&self, client: &mut WireClient) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let counts = client.run_text(
            "SELECT load, count(*), count(DISTINCT row), sum(row::bigint)::bigint FROM loaded GROUP BY load",
        )?;
        for row in &counts {
            let known = |attempt: &&Attempt| row[0] == Value::Integer(attempt.number);
            let Some(attempt) = self.0.iter().find(known) else {
                wrong.push(format!("no client has sent the load of {row:?}"));
                continue;
            };
            let rows = i64::from(attempt.rows);
            if row[1..] != [Value::BigInt(rows), Value::BigInt(rows), Value::BigInt(rows * (rows - 1) / 2)] {
                wrong.push(format!("{attempt:?} was stored in part: {row:?}"));
            }
        }
        let by_key = client.prepare("SELECT what FROM loaded WHERE load = $1 AND row = $2")?;
        let by_what = client.prepare("SELECT row FROM loaded WHERE what = $1")?;
        for attempt in &self.0 {
            let number = Value::Integer(attempt.number);
            let is_there = counts.iter().any(|row| row[0] == number);
            if attempt.acknowledged && !is_there {
                wrong.push(format!("{attempt:?} is lost"));
            }
            // Both indexes find some of its rows, or none of them.
            let step = attempt.rows as usize / 100;
            for row in (0..attempt.rows).step_by(step).chain([attempt.rows - 1]) {
                let (row, what) = (Value::Integer(row), Value::Text(what(attempt.number, row)));
                let expected = |value: &Value| if is_there { vec![vec![value.clone()]] } else { Vec::new() };
                if client.run(&by_key, &[number.clone(), row.clone()])? != expected(&what)
                    || client.run(&by_what, std::slice::from_ref(&what))? != expected(&row)
                {
                    wrong.push(format!("of {attempt:?}, {row:?} is not in an index as it is in the table"));
                }
            }
        }
        client.run_text("TRUNCATE loaded")?;
        Ok(wrong)
    }
}

/// Makes the table.
pub fn create(client: &mut impl SqlClient) -> Result<()> {
    client.run_text("CREATE TABLE loaded (load integer, row integer, what text, PRIMARY KEY (load, row))")?;
    client.run_text("CREATE INDEX ON loaded (what)")?;
    Ok(())
}

/// Loads until an error, such as that the server has been killed; returns all attempts. `next` gives
/// each load its number.
pub fn run(
    client: &mut WireClient,
    directory: &Path,
    seed: u64,
    mut next: impl FnMut() -> i32,
) -> (Attempts, Error) {
    let mut random = Random::seeded(seed);
    let mut attempts = Attempts::default();
    loop {
        let (number, rows) = (next(), ROWS[random.uniform(0, 1) as usize]);
        let csv = csv(number, rows);
        let outcome = if random.uniform(0, 1) == 0 {
            client.copy_in("COPY loaded FROM STDIN (FORMAT csv)", csv.as_bytes().chunks(MESSAGE_BYTES))
        } else {
            from_file(client, &directory.join(format!("{number}.csv")), &csv)
        };
        attempts.0.push(Attempt { number, rows, acknowledged: outcome.is_ok() });
        if let Err(error) = outcome {
            return (attempts, error);
        }
    }
}

fn from_file(client: &mut WireClient, path: &Path, csv: &str) -> Result<()> {
    std::fs::write(path, csv).expect("a temporary file can be written");
    let copied = client.run_text(&format!("COPY loaded FROM '{}' (FORMAT csv)", path.display()));
    std::fs::remove_file(path).expect("it has just been written");
    copied.map(drop)
}

fn csv(number: i32, rows: i32) -> String {
    let mut csv = String::new();
    for row in 0..rows {
        writeln!(csv, "{number},{row},{}", what(number, row)).expect("a string takes all");
    }
    csv
}

/// Different in each row, from its first bytes on.
fn what(number: i32, row: i32) -> String {
    format!("{row:>6} of {number:>6}: {:.<width$}", "", width = WHAT_BYTES - 18)
}
