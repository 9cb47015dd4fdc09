//! The gate: its steps in order, all of them even after one fails, and a summary.

use crate::postgres::Postgres;
use crate::python::Environment;
use crate::watch::{LONGEST_SILENCE, Watch};
use crate::{faults, metadata, replication_faults, tidy};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(&'static str),
}

/// Tests of all steps together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

struct Run<'a> {
    root: &'a Path,
    steps: Vec<(&'static str, Outcome, Duration)>,
    count: Count,
    /// Lines that are printed again at the end, so that they are not missed.
    remarks: Vec<String>,
    /// The server that steps compare with, once one has requested it, or the error.
    postgres: Option<Result<Postgres, String>>,
    /// Whether tests may run for hours.
    is_soak: bool,
}

/// The tests that run the engine under a model checker (docs/decisions/0013-models-run-the-engine.md).
const MODELS: [&str; 7] = ["-p", "firn-txn", "--features", "models", "--test", "models", "--locked"];

/// The random statements of the gate are the same in each run. `soak` uses others.
const GATE_STATEMENTS: [&str; 4] = ["--seed", "1", "--count", "2000"];

/// Texts with mistakes, for the parser.
const GATE_MISTAKES: [&str; 4] = ["--seed", "1", "--mistakes", "5000"];

/// Everything that a change must pass.
pub fn test(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("tidy", |run| passed(tidy::run(run.root)));
    run.step("clippy", |run| {
        run.cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    });
    run.step("clippy of the models", |run| {
        run.cargo(&[&["clippy"][..], &MODELS, &["--", "-D", "warnings"]].concat())
    });
    run.step("unit, integration and documentation tests", |run| {
        run.cargo(&["test", "--workspace", "--locked", "--no-fail-fast"])
    });
    run.step("models", |run| run.cargo(&[&["test"][..], &MODELS].concat()));
    run.step("corpus beside PostgreSQL", Run::corpus);
    run.step("clients", Run::clients);
    run.step("benchmarks beside PostgreSQL", Run::benchmarks);
    run.step("random statements", |run| run.random_statements(&GATE_STATEMENTS));
    run.step("mistakes of syntax", |run| run.random_statements(&GATE_MISTAKES));
    run.step("Python package", Run::python);
    run.step("fuzz targets compile", |run| {
        run.cargo(&["check", "--manifest-path", "fuzz/Cargo.toml", "--locked"])
    });
    run.finish()
}

/// Only the steps that compare with PostgreSQL 15.
pub fn beside_postgres(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("corpus beside PostgreSQL", Run::corpus);
    run.step("benchmarks beside PostgreSQL", Run::benchmarks);
    run.step("random statements", |run| run.random_statements(&GATE_STATEMENTS));
    run.step("mistakes of syntax", |run| run.random_statements(&GATE_MISTAKES));
    run.finish()
}

/// Only the random statements, with options of the program that makes them.
pub fn random_statements(root: &Path, options: &[&str]) -> bool {
    let mut run = Run::new(root);
    run.step("random statements", |run| run.random_statements(options));
    run.finish()
}

/// The planted faults.
pub fn faults(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("planted faults", Run::faults);
    run.step("planted faults of replication", Run::replication_faults);
    run.finish()
}

/// Those of replication alone.
pub fn replication_faults(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("planted faults of replication", Run::replication_faults);
    run.finish()
}

/// Only the Python package.
pub fn python(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("Python package", Run::python);
    run.finish()
}

/// Only Miri.
pub fn miri(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("miri", Run::miri);
    run.finish()
}

/// Only ThreadSanitizer.
pub fn thread_sanitizer(root: &Path) -> bool {
    let mut run = Run::new(root);
    run.step("thread sanitizer", Run::thread_sanitizer);
    run.finish()
}

/// What chance decides, for longer: every model for so many minutes; what only instrumented code shows, Miri
/// and ThreadSanitizer; random statements, and whether they find planted faults; and the long tests.
pub fn soak(root: &Path, minutes: u64) -> bool {
    let mut run = Run { is_soak: true, ..Run::new(root) };
    run.step("models", |run| {
        let mut models = Command::new("cargo");
        models.arg("test").args(MODELS).env("FIRN_MODEL_SECONDS", (60 * minutes).to_string());
        run.tests(&mut models)
    });
    run.step("miri", Run::miri);
    run.step("thread sanitizer", Run::thread_sanitizer);
    run.step("random statements", |run| run.random_statements(&["--count", "20000"]));
    run.step("mistakes of syntax", |run| run.random_statements(&["--mistakes", "200000"]));
    run.step("planted faults", Run::faults);
    run.step("planted faults of replication", Run::replication_faults);
    run.step("long tests", |run| {
        let Some(address) = run.postgres("long tests") else { return Outcome::Failed };
        let mut long = Command::new("cargo");
        long.args(["test", "--workspace", "--locked", "--no-fail-fast", "--", "--ignored"]);
        run.tests(long.env("FIRN_POSTGRES", address).env("FIRN_SOAK_MINUTES", minutes.to_string()))
    });
    run.finish()
}

impl<'a> Run<'a> {
    fn new(root: &'a Path) -> Run<'a> {
        Run {
            root,
            steps: Vec::new(),
            count: Count::default(),
            remarks: Vec::new(),
            postgres: None,
            is_soak: false,
        }
    }

    fn step(&mut self, name: &'static str, body: impl FnOnce(&mut Self) -> Outcome) {
        println!("\n=== {name}");
        let begin = Instant::now();
        let outcome = body(self);
        if let Outcome::Skipped(why) = outcome {
            println!("skipped: {why}");
        }
        self.steps.push((name, outcome, begin.elapsed()));
    }

    /// Finds undefined behaviour, on one thread or few. Takes hours: not part of [`test`].
    fn miri(&mut self) -> Outcome {
        if !nightly_has("miri") {
            return Outcome::Skipped("no nightly toolchain with miri");
        }
        // Tests use the clock and the operating system's generator, which isolation forbids. The epochs of
        // crossbeam are sound by tree borrows only. They make pointers of integers, of which Miri would warn
        // at each place, and keep their list of threads to the end.
        let flags =
            "-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-permissive-provenance";
        let mut miri = |arguments: &[&str]| {
            let mut miri = Command::new("rustup");
            miri.args(["run", "nightly", "cargo", "miri", "test", "--locked"]).args(arguments);
            self.tests(miri.env("MIRIFLAGS", flags))
        };
        // Each part of storage by itself without mapped memory; blocks, versions and undo through transactions as well.
        let parts = [
            "memory::",
            "attic::",
            "budget::",
            "copy::",
            "digest::",
            "spare::",
            "heap::",
            "arrow::",
            "arrow_rows::",
            "views::",
            "encoding::",
            "encoded_scan::",
            "compact::",
            "decoded::",
            "typed::",
            "directory::",
            "gate::",
            "guard::",
            "index::",
            "layout::",
            "position::",
            "restriction::",
            "row_lock::",
            "scan::",
            "state::",
            "table::",
            "tidy::",
            "zone::",
        ];
        let storage = miri(&[&["-p", "firn-storage", "--lib", "--"][..], &parts].concat());
        if storage != Outcome::Passed {
            return storage;
        }
        // Views into chunks; of the kernels the one that any processor supports.
        let files = ["structure::", "lanes::", "tests::csv", "tests::text_files", "tests::random_files"];
        let load = miri(&[&["-p", "firn-load", "--lib", "--"][..], &files].concat());
        if load != Outcome::Passed {
            return load;
        }
        let alone = miri(&["-p", "firn-txn", "--lib"]);
        if alone != Outcome::Passed {
            return alone;
        }
        let through = ["isolation::", "locks::", "native::", "serializable::"];
        miri(&[&["-p", "firn-txn", "--test", "all", "--"][..], &through].concat())
    }

    fn thread_sanitizer(&mut self) -> Outcome {
        if !nightly_has("rust-src") {
            return Outcome::Skipped("no nightly toolchain with rust-src");
        }
        let mut sanitized = |arguments: &[&str]| {
            let mut tests = Command::new("rustup");
            tests.args(["run", "nightly", "cargo", "test", "--locked", "--no-fail-fast", "-Zbuild-std"]);
            tests.args(["--target", "x86_64-unknown-linux-gnu"]).args(arguments);
            self.tests(tests.env("RUSTFLAGS", "-Zsanitizer=thread"))
        };
        // The attic's random tests are of one thread, and would take an hour.
        let storage = sanitized(&["-p", "firn-storage", "--lib", "--", "--skip", "attic::tests"]);
        if storage != Outcome::Passed {
            return storage;
        }
        sanitized(&["-p", "firn-txn", "--lib", "--test", "all"])
    }

    /// PostgreSQL's clients against the server. One that cannot be installed fails.
    fn clients(&mut self) -> Outcome {
        let Some(firn) = self.program("firn") else { return Outcome::Failed };
        let mut clients = Command::new("tests/clients/run.sh");
        clients.arg(&firn);
        // Drivers are kept from one run to the next, beside `debug`.
        let target = firn.ancestors().nth(2).expect("it is in a directory of the target directory");
        clients.env("FIRN_CLIENTS_CACHE", target.join("clients"));
        self.tests(&mut clients)
    }

    /// The Python package's wheel, installed and tested. It is built with the profile of the tests, so that
    /// the engine is not compiled again.
    fn python(&mut self) -> Outcome {
        let environment = match Environment::prepare(self.root) {
            Ok(environment) => environment,
            Err(why) => {
                println!("{why}");
                self.remarks.push(format!("FAILED Python package: {why}"));
                return Outcome::Failed;
            }
        };
        if self.tests(&mut environment.build("dev")) != Outcome::Passed {
            return Outcome::Failed;
        }
        let wheel = match environment.wheel() {
            Ok(wheel) => wheel,
            Err(error) => {
                println!("{error}");
                return Outcome::Failed;
            }
        };
        if self.tests(&mut environment.install(&wheel)) != Outcome::Passed {
            return Outcome::Failed;
        }
        let before = self.count.passed;
        match self.tests(&mut environment.test()) {
            Outcome::Passed if self.count.passed == before => {
                println!("no test was run");
                Outcome::Failed
            }
            outcome => outcome,
        }
    }

    /// The address of PostgreSQL 15. A step that compares with it fails without it.
    fn postgres(&mut self, step: &str) -> Option<String> {
        match self.postgres.get_or_insert_with(|| Postgres::start(self.root)) {
            Ok(postgres) => Some(postgres.address.clone()),
            Err(error) => {
                println!("{error}");
                self.remarks.push(format!("FAILED {step}: {error}"));
                None
            }
        }
    }

    /// The corpus of SQL on PostgreSQL 15, whose results it must contain.
    fn corpus(&mut self) -> Outcome {
        self.beside("corpus beside PostgreSQL", "corpus", "every_case_holds_on_postgresql")
    }

    /// TPC-H, CH-benCHmark and TPC-DS on a server of ours and on PostgreSQL 15.
    fn benchmarks(&mut self) -> Outcome {
        // The server is a process of its own.
        if self.program("firn").is_none() {
            return Outcome::Failed;
        }
        self.beside(
            "benchmarks beside PostgreSQL",
            "proofs",
            "our_answers_to_the_benchmarks_are_those_of_postgresql",
        )
    }

    /// One test that other runs leave out because it needs PostgreSQL 15.
    fn beside(&mut self, step: &str, file: &str, test: &str) -> Outcome {
        let Some(address) = self.postgres(step) else { return Outcome::Failed };
        let before = self.count.passed;
        let mut tests = Command::new("cargo");
        // Of the whole workspace, so that nothing is built again with other features.
        tests.args(["test", "--workspace", "--locked", "--test", file, "--", "--ignored", "--exact", test]);
        match self.tests(tests.env("FIRN_POSTGRES", address)) {
            Outcome::Passed if self.count.passed == before => {
                println!("no test was run");
                Outcome::Failed
            }
            outcome => outcome,
        }
    }

    /// Builds a program for others to start: `firn` or `firn-random`.
    ///
    /// It is the one that the integration tests start. Built alone it would have other features of a few
    /// dependencies, and nearly all crates would be compiled again.
    fn program(&mut self, name: &str) -> Option<PathBuf> {
        let build = self.cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"]);
        match (build, metadata::target_directory(self.root)) {
            (Outcome::Passed, Ok(target)) => Some(target.join("debug").join(name)),
            (Outcome::Passed, Err(error)) => {
                println!("{error}");
                None
            }
            _ => None,
        }
    }

    /// Random statements beside PostgreSQL 15. Without it the step fails.
    fn random_statements(&mut self, options: &[&str]) -> Outcome {
        let (Some(firn), Some(random)) = (self.program("firn"), self.program("firn-random")) else {
            return Outcome::Failed;
        };
        let Some(address) = self.postgres("random statements") else { return Outcome::Failed };
        let mut random = Command::new(random);
        random.args(["--postgres", &address]).arg("--firn").arg(&firn).args(options);
        self.tests(&mut random)
    }

    /// Planted faults, which random plans and random statements must find.
    fn faults(&mut self) -> Outcome {
        match self.postgres("planted faults") {
            Some(address) => passed(faults::run(self.root, &address)),
            None => Outcome::Failed,
        }
    }

    /// Planted faults of replication, which the simulations must find.
    fn replication_faults(&mut self) -> Outcome {
        passed(replication_faults::run(self.root))
    }

    fn cargo(&mut self, arguments: &[&str]) -> Outcome {
        self.tests(Command::new("cargo").args(arguments))
    }

    /// Runs a command, shows its output as it arrives, and counts the tests it reports.
    fn tests(&mut self, command: &mut Command) -> Outcome {
        println!("$ {command:?}");
        let child = command.current_dir(self.root).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                println!("{error}");
                return Outcome::Failed;
            }
        };
        let output = child.stdout.take().expect("the output is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        let mut watch = Watch::default();
        loop {
            let line = match lines.recv_timeout(LONGEST_SILENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if self.is_soak => continue,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(remark) = watch.end(child.id()) {
                        println!("{remark}");
                        self.remarks.push(remark);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            self.count.add(&line);
            watch.note(&line);
            // The summary repeats them: often only the summary of a run is kept.
            let is_remark =
                line.starts_with("FAILED ") || (line.starts_with("test ") && line.ends_with(" ... FAILED"));
            if is_remark {
                self.remarks.push(line.into_owned());
            }
        }
        match child.wait() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => {
                // A program that was ended by a signal has printed no error.
                let program = command.get_program().to_string_lossy();
                self.remarks.push(format!("FAILED {program}: {status}"));
                Outcome::Failed
            }
            Err(error) => {
                println!("{error}");
                Outcome::Failed
            }
        }
    }

    fn finish(self) -> bool {
        println!("\n=== summary");
        for (name, outcome, took) in &self.steps {
            let outcome = match outcome {
                Outcome::Passed => "passed",
                Outcome::Failed => "FAILED",
                Outcome::Skipped(_) => "skipped",
            };
            println!("{outcome:<8} {:>5} s  {name}", took.as_secs());
        }
        for remark in &self.remarks {
            println!("{remark}");
        }
        let Count { passed, failed, ignored } = self.count;
        println!("{passed} passed, {failed} failed, {ignored} ignored");
        self.steps.iter().all(|(_, outcome, _)| *outcome != Outcome::Failed)
    }
}

impl Count {
    /// Adds what a line says of the kind `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

fn passed(passed: bool) -> Outcome {
    if passed { Outcome::Passed } else { Outcome::Failed }
}

/// Whether a nightly toolchain with this component is installed; nothing is downloaded.
fn nightly_has(component: &str) -> bool {
    let rustup = |arguments: &[&str]| {
        let output =
            Command::new("rustup").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    rustup(&["toolchain", "list"]).lines().any(|toolchain| toolchain.starts_with("nightly"))
        && rustup(&["component", "list", "--installed", "--toolchain", "nightly"])
            .lines()
            .any(|installed| installed.starts_with(component))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 14 passed; 2 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.54s",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { passed: 17, failed: 2, ignored: 1 });
    }
}
