//! TPC-H, CH-benCHmark and TPC-DS, run on a server of ours and on PostgreSQL 15 over the same rows.
//!
//! Both servers get the rows by COPY: those of TPC-H and CH-benCHmark from generators in this process, those of TPC-DS, with
//! its queries, from a directory that `tests/tpcds/make.py` has made. Each benchmark has a schema of its own. Columns must have
//! the same names and types, and the rows must be the same. They may be in any order, except for the leading columns of ORDER
//! BY. A query that ends in LIMIT is also run without it, since LIMIT may cut rows with equal keys.

use crate::Outcome;
use crate::server::Server;
use crate::wire_client::{TextRows, WireClient};
use firn_bench::schema::TableSchema;
use firn_bench::tpcc::Scale;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{ch, queries, tpcc, tpch};
use firn_session::{Database, Outcome as Done};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `beside`.
#[derive(clap::Args)]
pub struct Options {
    /// The address of PostgreSQL 15; the user `postgres` must not need a password.
    #[arg(long)]
    postgres: String,
    /// The firn binary.
    #[arg(long)]
    firn: PathBuf,
    /// TPC-DS: schema.sql, data/<table>.csv and queries/<number>.sql.
    #[arg(long)]
    tpcds: PathBuf,
}

/// The scale factor of TPC-H.
const SCALE: f64 = 0.01;

/// How long a query may take.
const TIMEOUT: &str = "SET statement_timeout = '120s'";

/// The least number of queries that must return rows. A query without rows shows little.
const WITH_ROWS: usize = 110;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Benchmark {
    name: &'static str,
    /// The statements that create the tables.
    schema: String,
    /// A COPY for each table, and its data.
    tables: Vec<(String, Vec<u8>)>,
    queries: Vec<(String, String)>,
}

/// Runs every query on both.
pub fn run(options: Options) -> Outcome {
    let directory = tempfile::tempdir()?;
    let server = Server::start(&options.firn, directory.path())?;
    let mut administrator = WireClient::connect_as(&options.postgres, "postgres", "postgres")?;
    let name = format!("firn_beside_{}", std::process::id());
    administrator.run_simply(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    ))?;
    let result = (|| -> Outcome {
        let mut ours = WireClient::connect(&server.address)?;
        let mut theirs = WireClient::connect_as(&options.postgres, "postgres", &name)?;
        let (mut count, mut with_rows, mut wrong) = (0, 0, Vec::new());
        for benchmark in [of_tpch()?, of_ch()?, of_tpcds(&options.tpcds)?] {
            let begin = Instant::now();
            for client in [&mut ours, &mut theirs] {
                load(client, &benchmark)?;
            }
            let loaded = begin.elapsed();
            for (number, sql) in &benchmark.queries {
                count += 1;
                match compare(&mut ours, &mut theirs, sql) {
                    Ok(rows) => with_rows += usize::from(rows > 0),
                    Err(difference) => wrong.push(format!("{} {number}: {difference}", benchmark.name)),
                }
            }
            println!(
                "{}: {} tables in {} ms, {} queries in {} ms",
                benchmark.name,
                benchmark.tables.len(),
                loaded.as_millis(),
                benchmark.queries.len(),
                (begin.elapsed() - loaded).as_millis()
            );
        }
        wrong.iter().for_each(|difference| println!("{difference}"));
        println!("{count} queries, {with_rows} with rows, {} differ", wrong.len());
        match wrong.is_empty() && with_rows >= WITH_ROWS {
            true => Ok(()),
            false => Err("answers differ, or too few of them have rows".into()),
        }
    })();
    administrator.run_simply(&format!("DROP DATABASE {name} WITH (FORCE)"))?;
    result
}

fn load(client: &mut WireClient, benchmark: &Benchmark) -> Outcome {
    client.run_simply(TIMEOUT)?;
    client.run_simply(&format!("CREATE SCHEMA {0}; SET search_path = {0}", benchmark.name))?;
    client.run_simply(&benchmark.schema)?;
    for (copy, data) in &benchmark.tables {
        client.copy_in(copy, data.chunks(1 << 16)).map_err(|error| format!("{copy}: {error}"))?;
    }
    client.run_simply("ANALYZE")?;
    Ok(())
}

fn of_tpch() -> Result<Benchmark, Failure> {
    let database = Database::memory()?;
    tpch::load(database.engine(), SCALE, 2, &LoadProgress::default())?;
    generated("tpch", &database, &tpch::TABLES, &queries::TPCH)
}

fn of_ch() -> Result<Benchmark, Failure> {
    let database = Database::memory()?;
    tpcc::load::load(database.engine(), Scale::small(2), 7, 2, &LoadProgress::default())?;
    ch::load(database.engine(), 7)?;
    let tables: Vec<&TableSchema> = tpcc::schema::TABLES.iter().chain(&ch::TABLES).copied().collect();
    generated("ch", &database, &tables, &queries::CH)
}

/// A benchmark of the tables in a database.
fn generated(
    name: &'static str,
    database: &Database,
    tables: &[&TableSchema],
    queries: &[&str],
) -> Result<Benchmark, Failure> {
    let mut connection = database.connect();
    let mut data = Vec::new();
    for table in tables {
        let statement = connection.prepare(&format!("COPY {} TO STDOUT", table.name))?;
        let Done::CopyOut(mut copy) = connection.run(&statement, &[])? else {
            return Err("COPY TO STDOUT yields data".into());
        };
        let mut bytes = Vec::new();
        while let Some(piece) = copy.next_chunk()? {
            bytes.extend(piece);
        }
        data.push((format!("COPY {} FROM STDIN", table.name), bytes));
    }
    let schema: Vec<String> = tables.iter().map(|table| table.create_table_sql()).collect();
    let queries = (1..).zip(queries).map(|(number, sql)| (number.to_string(), (*sql).to_owned()));
    Ok(Benchmark { name, schema: schema.join(";\n"), tables: data, queries: queries.collect() })
}

fn of_tpcds(directory: &Path) -> Result<Benchmark, Failure> {
    let mut tables = Vec::new();
    for (table, path) in files(&directory.join("data"))? {
        tables.push((format!("COPY {table} FROM STDIN (FORMAT csv)"), std::fs::read(path)?));
    }
    let mut queries = Vec::new();
    for (number, path) in files(&directory.join("queries"))? {
        queries.push((number, std::fs::read_to_string(path)?));
    }
    if (tables.len(), queries.len()) != (24, 99) {
        return Err("TPC-DS has 24 tables and 99 queries".into());
    }
    let schema = std::fs::read_to_string(directory.join("schema.sql"))?;
    Ok(Benchmark { name: "tpcds", schema, tables, queries })
}

/// The files of a directory, by their names without extension.
fn files(directory: &Path) -> std::io::Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(stem, path);
    }
    Ok(files)
}

/// The number of rows of the result, or how ours differs.
fn compare(ours: &mut WireClient, theirs: &mut WireClient, sql: &str) -> Result<usize, String> {
    let sql = sql.trim().trim_end_matches(';').trim_end();
    let whole = split_limit(sql).map_or(sql, |(whole, _)| whole);
    let answer =
        |client: &mut WireClient, sql: &str| client.run_simply(sql).map_err(|error| error.to_string());
    let expected = answer(theirs, whole).map_err(|error| format!("PostgreSQL: {error}"))?;
    let got = answer(ours, whole)?;
    if got.columns != expected.columns {
        return Err(format!("columns {:?}, PostgreSQL has {:?}", got.columns, expected.columns));
    }
    let (got, expected) = (normal(got), normal(expected));
    let sorted = |rows: &[Vec<String>]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    if sorted(&got.1) != sorted(&expected.1) {
        let other = got.1.iter().find(|row| !expected.1.contains(row));
        let missing = expected.1.iter().find(|row| !got.1.contains(row));
        let (count, of) = (got.1.len(), expected.1.len());
        return Err(format!(
            "{count} rows, PostgreSQL has {of}; {other:?} is ours, {missing:?} is PostgreSQL's"
        ));
    }
    let keys = keys(whole, &expected.0);
    in_order(&got.1, &expected.1, &keys)?;
    if let Some((_, limit)) = split_limit(sql) {
        let cut = normal(answer(ours, sql)?).1;
        if cut.len() != expected.1.len().min(limit) || cut.iter().any(|row| !expected.1.contains(row)) {
            return Err(format!("LIMIT {limit} yields {} rows, or others", cut.len()));
        }
        in_order(&cut, &expected.1[..cut.len()], &keys)?;
    }
    Ok(expected.1.len())
}

/// Checks that the columns by which rows are ordered are in the same order.
fn in_order(got: &[Vec<String>], expected: &[Vec<String>], keys: &[usize]) -> Result<(), String> {
    let key = |row: &Vec<String>| keys.iter().map(|key| row[*key].clone()).collect::<Vec<_>>();
    match got.iter().zip(expected).find(|(got, expected)| key(got) != key(expected)) {
        None => Ok(()),
        Some((got, expected)) => Err(format!("found {got:?} instead of {expected:?}")),
    }
}

/// A query without its LIMIT at the end, and the limit.
fn split_limit(sql: &str) -> Option<(&str, usize)> {
    let at = sql.to_ascii_uppercase().rfind("LIMIT")?;
    Some((&sql[..at], sql[at + 5..].trim().parse().ok()?))
}

/// The leading columns of the last ORDER BY, as far as it names columns of the result.
fn keys(sql: &str, columns: &[String]) -> Vec<usize> {
    let Some(at) = sql.to_ascii_lowercase().rfind("order by") else { return Vec::new() };
    let tail = &sql[at + "order by".len()..];
    let (mut items, mut depth) = (vec![String::new()], 0_i32);
    for character in tail.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().expect("there is one").push(character);
    }
    // It belongs to a sub-query or to a window.
    if depth != 0 {
        return Vec::new();
    }
    let place = |item: &String| {
        let words: Vec<String> = item.split_whitespace().map(str::to_ascii_lowercase).collect();
        let name = words.first()?;
        let is_rest_known =
            words[1..].iter().all(|word| ["asc", "desc", "nulls", "first", "last"].contains(&word.as_str()));
        let name = name.rsplit('.').next()?;
        let named = columns.iter().filter(|column| *column == name).count();
        let place = match name.parse::<usize>() {
            Ok(ordinal) => ordinal.checked_sub(1)?,
            Err(_) => columns.iter().position(|column| column == name).filter(|_| named == 1)?,
        };
        (is_rest_known && place < columns.len()).then_some(place)
    };
    items.iter().map_while(place).collect()
}

/// Names of columns, and rows with doubles to 10 digits.
fn normal(answer: TextRows) -> (Vec<String>, Vec<Vec<String>>) {
    const FLOAT8: u32 = 701;
    let row = |row: Vec<Option<String>>| {
        let cell = |(cell, (_, ty)): (Option<String>, &(String, u32))| match (cell, *ty) {
            (None, _) => "NULL".to_owned(),
            (Some(text), FLOAT8) => text.parse::<f64>().map_or(text, |number| format!("{number:.9e}")),
            (Some(text), _) => format!("'{text}'"),
        };
        row.into_iter().zip(&answer.columns).map(cell).collect()
    };
    let rows = answer.rows.into_iter().map(row).collect();
    (answer.columns.iter().map(|(name, _)| name.clone()).collect(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_query_are_columns_of_its_result() {
        let columns = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let keys = |sql: &str| keys(sql, &columns);
        assert_eq!(keys("SELECT a, b, c FROM t ORDER BY c DESC NULLS LAST, t.a"), [2, 0]);
        assert_eq!(keys("SELECT a, b, c FROM t ORDER BY 2, a + 1, c"), [1]);
        assert_eq!(keys("SELECT a, b, sum(c) OVER (ORDER BY b) AS c FROM t"), [0; 0]);
        assert_eq!(keys("SELECT a, b, c FROM t"), [0; 0]);
    }

    #[test]
    fn the_last_limit_is_taken_off() {
        assert_eq!(split_limit("SELECT 1 LIMIT 100"), Some(("SELECT 1 ", 100)));
        assert_eq!(split_limit("SELECT * FROM (SELECT 1 LIMIT 1) AS x"), None);
    }
}
