//! Every file of the corpus, in process, over the wire, and frozen, encoded or reopened after every statement; with vectors of three
//! rows, everything spilled that can be, by one worker; and with such vectors by four workers.
//!
//! The corpus also runs on PostgreSQL 15, whose results are the expected ones: `FIRN_POSTGRES` (HOST:PORT) names
//! a server on which the user `postgres` needs no password. `FIRN_SLT_ONLY` picks files by a part of their name.

use firn_session::{Database as FirnDatabase, Forced};
use firn_slt::{Cold, Database, Firn, Postgres, Restarting, Temperature, parse, run};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Files without rows, so that none become cold.
const WITHOUT_ROWS: [&str; 21] = [
    "advisory_locks",
    "catalog_relations",
    "catalog_stars",
    "catalogs",
    "comments",
    "daylight_saving",
    "errors",
    "formatted_dates",
    "formatted_numbers",
    "forms_of_set",
    "index_of_foreign_key",
    "information_schema",
    "keys_in_catalogs",
    "missing_objects",
    "output_names",
    "planner_settings",
    "result_types",
    "session_functions",
    "shown_definitions",
    "transaction_settings",
    "unchecked_values",
];

fn cases() -> Vec<(String, String)> {
    // Read now, because clones that share a target directory share this binary.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let directory = PathBuf::from(package).join("cases");
    let only = std::env::var("FIRN_SLT_ONLY").unwrap_or_default();
    let mut cases: Vec<(String, String)> = std::fs::read_dir(directory)
        .expect("there is a corpus")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .map(|path| {
            let name = path.file_stem().expect("files have names").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("the corpus can be read"))
        })
        .filter(|(name, _)| name.contains(&only))
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

/// Runs every file on a database of its own and panics with all differences.
fn run_all(mut database: impl FnMut(&str) -> Box<dyn Database>) {
    let mut complaints = String::new();
    for (name, text) in cases() {
        let script = parse(&text).unwrap_or_else(|wrong| panic!("{name}.slt {wrong}"));
        for complaint in run(&script, &mut *database(&name)) {
            complaints.push_str(&format!("{name}.slt {complaint}\n"));
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn every_case_holds_in_process() {
    run_all(|_| Box::new(Firn::new(FirnDatabase::memory().expect("memory needs nothing"))));
}

/// Runs every file on a database whose executor does what is rare else, and no statement by a short program.
fn run_forced(forced: Forced) {
    run_all(|_| {
        let database = FirnDatabase::memory().expect("memory needs nothing");
        database.force(Forced { vector_rows: Some(3), pipelines: true, ..forced });
        Box::new(Firn::new(database))
    });
}

#[test]
fn every_case_holds_when_one_worker_spills_vectors_of_three_rows() {
    run_forced(Forced { workers: Some(1), spill: true, ..Forced::default() });
}

#[test]
fn every_case_holds_when_four_workers_have_vectors_of_three_rows() {
    run_forced(Forced { workers: Some(4), ..Forced::default() });
}

/// Runs every file on a database whose blocks have this state after every statement.
fn run_cold(temperature: Temperature) {
    let mut found: BTreeMap<String, Rc<Cell<u64>>> = BTreeMap::new();
    run_all(|name| {
        let found = found.entry(name.to_owned()).or_default().clone();
        Box::new(Cold::new(temperature, found).expect("memory needs nothing"))
    });
    let is_wrong =
        |(name, found): &(&String, &Rc<Cell<u64>>)| (found.get() > 0) == WITHOUT_ROWS.contains(&&name[..]);
    let wrong: Vec<(&String, u64)> =
        found.iter().filter(is_wrong).map(|(name, found)| (name, found.get())).collect();
    assert!(wrong.is_empty(), "so many blocks have become so cold: {wrong:?}");
}

#[test]
fn every_case_holds_when_rows_are_frozen_after_every_statement() {
    run_cold(Temperature::Frozen);
}

#[test]
fn every_case_holds_when_rows_are_encoded_after_every_statement() {
    run_cold(Temperature::Compact);
}

#[test]
fn every_case_holds_over_the_wire() {
    run_all(|_| {
        let database = FirnDatabase::memory().expect("memory needs nothing");
        Box::new(Postgres::firn(database).expect("a free port"))
    });
}

#[test]
fn every_case_holds_when_the_database_is_reopened_between_statements() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    run_all(|name| {
        Box::new(Restarting::open(directory.path().join(name)).expect("an empty directory opens"))
    });
}

#[test]
#[ignore = "needs PostgreSQL 15; cargo xtask test has it"]
fn every_case_holds_on_postgresql() {
    let address = std::env::var("FIRN_POSTGRES").expect("FIRN_POSTGRES names a server");
    let (host, port) = address.rsplit_once(':').expect("it is HOST:PORT");
    let url = format!("host={host} port={port} user=postgres");
    let connect = || postgres::Client::connect(&format!("{url} dbname=postgres"), postgres::NoTls);
    let mut admin = connect().expect("the server answers");
    let version: String = admin.query_one("SHOW server_version", &[]).expect("it has a version").get(0);
    assert!(version.starts_with("15."), "the corpus has the answers of PostgreSQL 15, not of {version}");
    let prefix = format!("slt_{}", std::process::id());
    run_all(|name| {
        // A database per file, as with FirnDB.
        let database = format!("{prefix}_{name}");
        admin
            .batch_execute(&format!("CREATE DATABASE {database} LC_COLLATE 'C' TEMPLATE template0"))
            .expect("create");
        // The same setting as in FirnDB.
        admin
            .batch_execute(&format!(
                "ALTER DATABASE {database} SET default_transaction_isolation = 'serializable';
                 ALTER DATABASE {database} SET timezone = 'UTC'"
            ))
            .expect("alter");
        // A statement that would wait for ever fails.
        let options = "SET lock_timeout = '20s'";
        Box::new(Postgres::new(&format!("{url} dbname={database}"), "postgres", options))
    });
    let query = "SELECT datname FROM pg_database WHERE starts_with(datname, $1)";
    for row in admin.query(query, &[&prefix]).expect("the databases are listed") {
        let database: String = row.get(0);
        admin.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).expect("drop");
    }
}
