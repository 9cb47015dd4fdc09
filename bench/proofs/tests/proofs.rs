//! Proofs that need another engine or a whole server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROOFS: &str = env!("CARGO_BIN_EXE_firn-proofs");
/// The exit status of a trial that needs a file system that this machine does not provide: `full-disk`.
const UNAVAILABLE: i32 = 77;

/// Our results at scale factor 0.1 and DuckDB's over the same rows, of all 22 queries.
#[test]
fn our_answers_to_tpch_are_those_of_duckdb() {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(PROOFS).arg("answers").arg(directory.path()).status().unwrap();
    assert!(status.success(), "answering failed");
    let script = root().join("tests/tpch/compare.py");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("duckdb");
    let status = Command::new("python3").arg(script).arg(directory.path()).arg(environment).status().unwrap();
    assert!(status.success(), "some answers differ, or DuckDB cannot be installed");
}

/// All 22 queries of TPC-H and of CH-benCHmark, and the 99 of TPC-DS, whose rows and texts are from DuckDB's extension.
#[test]
#[ignore = "needs PostgreSQL 15 and a package index; cargo xtask test has them"]
fn our_answers_to_the_benchmarks_are_those_of_postgresql() {
    let postgres = std::env::var("FIRN_POSTGRES").expect("FIRN_POSTGRES names a server");
    let firn = Path::new(PROOFS).with_file_name("firn");
    assert!(firn.exists(), "{} is to be built first", firn.display());
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (tpcds, environment) = (scratch.join("tpcds"), scratch.join("tpcds-python"));
    let script = root().join("tests/tpcds/make.py");
    let status = Command::new("python3").arg(script).arg(&tpcds).arg(environment).status().unwrap();
    assert!(status.success(), "TPC-DS's rows and queries cannot be had");
    let mut beside = Command::new(PROOFS);
    beside.args(["beside", "--postgres", &postgres]).arg("--firn").arg(firn).arg("--tpcds").arg(tpcds);
    assert!(beside.status().unwrap().success(), "some answers differ");
}

#[test]
fn a_server_killed_under_load_has_all_that_it_acknowledged() {
    on_a_server("crash", &["--times", "2"]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn a_server_killed_fifty_times_under_load_has_all_that_it_acknowledged() {
    on_a_server("crash", &["--times", "50"]);
}

#[test]
fn a_backup_beside_clients_is_restored_to_any_time() {
    on_a_server("backup", &[]);
}

/// The same with a store of S3's protocol behind HTTP.
#[test]
fn a_backup_in_an_object_store_is_restored_to_any_time() {
    let store = Store::start();
    let firn = firn();
    // What can be wrong is said.
    let list = |place: &str, endpoint: &str| {
        let mut list = Command::new(&firn);
        let output =
            store.environment(list.args(["backup", "list", place])).env("AWS_ENDPOINT_URL", endpoint);
        let output = output.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let nothing = list("s3://backups/nothing", &store.endpoint);
    assert!(nothing.contains("\"s3://backups/nothing\" is not a directory with backups"), "{nothing}");
    let bucket = list("s3://elsewhere/x", &store.endpoint);
    assert!(bucket.contains("the bucket does not exist") && bucket.contains("HINT"), "{bucket}");
    let unreachable = list("s3://backups/x", "http://127.0.0.1:9");
    assert!(
        unreachable.contains("cannot be reached") && unreachable.contains("AWS_ENDPOINT_URL"),
        "{unreachable}"
    );
    let mut trial = Command::new(PROOFS);
    trial.args(["backup", "--backups", "s3://backups/of/the proof", "--times", "5"]).arg("--firn").arg(&firn);
    assert!(store.environment(&mut trial).status().unwrap().success(), "the trial has failed");
}

#[test]
fn replicas_have_everything_after_kills_and_lost_connections() {
    on_a_server("replicas", &[]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn replicas_have_everything_after_a_hundred_faults() {
    on_a_server("replicas", &["--faults", "100"]);
}

#[test]
fn replicas_run_queries_while_they_are_killed_and_stopped() {
    on_a_server("routing", &[]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn replicas_run_queries_through_a_hundred_faults() {
    on_a_server("routing", &["--faults", "100"]);
}

#[test]
fn every_server_has_what_was_acknowledged_after_others_have_taken_over() {
    on_a_server("failovers", &[]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn every_server_has_what_was_acknowledged_after_a_hundred_failovers() {
    on_a_server("failovers", &["--failovers", "100"]);
}

#[test]
fn voters_have_what_was_acknowledged_after_another_one_has_taken_over_by_itself() {
    on_a_server("voters", &[]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn voters_have_what_was_acknowledged_after_a_hundred_failovers() {
    on_a_server("voters", &["--failovers", "100"]);
}

#[test]
fn a_server_on_a_full_disk_keeps_what_it_acknowledged_and_nothing_else() {
    on_a_server("full-disk", &[]);
}

#[test]
fn histories_over_the_wire_with_kills_in_between_have_no_anomalies() {
    on_a_server("isolation", &["--transactions", "1500", "--kills", "3", "--part", "750"]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn long_histories_over_the_wire_with_many_kills_have_no_anomalies() {
    on_a_server("isolation", &["--transactions", "100000", "--kills", "300"]);
}

#[test]
#[ignore = "takes minutes; cargo xtask soak runs it"]
fn long_histories_in_process_have_no_anomalies() {
    for arguments in [&["--transactions", "100000"][..], &["--native", "--transactions", "1500000"]] {
        let status = Command::new(PROOFS).arg("isolation").args(arguments).status().unwrap();
        assert!(status.success(), "the history has anomalies");
    }
}

/// A server of S3's protocol, with the bucket `backups`.
struct Store {
    process: Child,
    endpoint: String,
}

impl Store {
    fn start() -> Store {
        let script = root().join("tests/objects/server.py");
        let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("objects-python");
        let mut process = Command::new("python3")
            .arg(script)
            .arg(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let output = process.stdout.take().expect("the output is piped");
        BufReader::new(output).read_line(&mut address).unwrap();
        assert!(!address.is_empty(), "the server does not start, or its packages cannot be had");
        Store { process, endpoint: format!("http://{}", address.trim_end()) }
    }

    /// Sets what a client of it needs.
    fn environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The server to try.
fn firn() -> PathBuf {
    // Tests of the whole workspace have built it with everything else. Alone, this crate's tests
    // would build all its dependencies again, with other features.
    let firn = Path::new(PROOFS).with_file_name("firn");
    assert!(firn.exists(), "run the tests of the whole workspace, which build the firn binary");
    firn
}

/// Runs a trial of a server.
fn on_a_server(trial: &str, arguments: &[&str]) {
    let status = Command::new(PROOFS).arg(trial).args(arguments).arg("--firn").arg(firn()).status().unwrap();
    if status.code() == Some(UNAVAILABLE) {
        eprintln!("SKIPPED: this machine does not have what {trial} needs");
        return;
    }
    assert!(status.success(), "the trial has failed");
}

fn root() -> PathBuf {
    // Read now, because clones that share a target directory share this binary.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&package).ancestors().nth(2).unwrap().to_owned()
}
