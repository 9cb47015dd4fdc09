//! Planted faults: each is chosen at run time in a build with the feature `faults`, and must be found twice, by random plans and by
//! random statements.
//!
//! It proves that they would find such a fault if it were made: a test that passes with the fault, and a build that fails, both
//! count as not found. Without any fault the same tests and statements pass; they are steps of `test`.

use crate::metadata::target_directory;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fault.
struct Fault {
    /// As `firn_plan::faults` calls it.
    name: &'static str,
    /// The test of random plans that must fail.
    test: &'static str,
}

const fn fault(name: &'static str, test: &'static str) -> Fault {
    Fault { name, test }
}

const FAULTS: [Fault; 12] = [
    fault("null-in-anti-join", "random_plans"),
    fault("outer-to-inner", "null_rejection_keeps_rows"),
    fault("limit-below-filter", "pushing_down_keeps_rows"),
    fault("volatile-moved", "all_rewrites_keep_the_calls"),
    fault("duplicates-lost", "random_plans_give_the_same_rows"),
    fault("wrong-key", "keys_are_used_to_keep_rows"),
    fault("collapsed-window-order", "merging_windows_keeps_rows"),
    fault("shared-twice", "random_volatile_plans"),
    fault("parameter-folded", "all_rewrites_keep_rows"),
    fault("run-lost", "random_plans_that_spill"),
    fault("join-part-lost", "random_plans_that_spill"),
    fault("group-part-lost", "random_plans_that_spill"),
];

/// Within how many random statements a fault must be found. They are the same in each run.
const STATEMENTS: &str = "10000";

/// The packages with random plans and random statements. They are built together, so that each crate is compiled once.
const TESTS: [&str; 10] = [
    "test",
    "--locked",
    "-p",
    "firn-plan",
    "-p",
    "firn-executor",
    "-p",
    "firn-random",
    "--features",
    "firn-executor/faults",
];

/// How random statements end.
struct End {
    /// The status: 0 if all are as they should be, 3 at a difference.
    status: Option<i32>,
    /// How many statements there were up to the difference.
    statements: Option<String>,
}

/// Looks for each fault by random plans and by random statements beside the PostgreSQL of this address; whether all are found.
pub fn run(root: &Path, postgres: &str) -> bool {
    let Some(random) = build(root) else {
        println!("FAILED: it does not build");
        return false;
    };
    // What fails anyway has found nothing.
    let passes = statements(&random, None, postgres).status == Some(0);
    let mut lines = Vec::new();
    let mut are_found = true;
    for fault in &FAULTS {
        let plans = plans_find(root, fault);
        let End { status, statements } = statements(&random, Some(fault.name), postgres);
        let by_plans = if plans { "found" } else { "MISSED" };
        // What ends otherwise has found nothing.
        let by_statements = match statements.filter(|_| status == Some(3)) {
            Some(statements) => format!("found after {statements}"),
            None => {
                are_found = false;
                "MISSED".to_owned()
            }
        };
        are_found &= plans;
        lines.push(format!("{:<24} by plans {by_plans}, by statements {by_statements}", fault.name));
    }
    println!("\n=== summary");
    lines.iter().for_each(|line| println!("{line}"));
    if !passes {
        println!("FAILED: without a fault the statements must pass");
    }
    passes && are_found
}

/// Builds the tests of random plans and the program that makes random statements; where that is.
fn build(root: &Path) -> Option<PathBuf> {
    let mut build = cargo(root, &["--no-run"]);
    println!("$ {build:?}");
    let is_built = build.status().is_ok_and(|status| status.success());
    let target = target_directory(root).ok().filter(|_| is_built)?;
    Some(target.join("debug").join("firn-random"))
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(TESTS).args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

fn plans_find(root: &Path, fault: &Fault) -> bool {
    let mut command = cargo(root, &["--no-fail-fast", fault.test]);
    command.env("FIRN_FAULT", fault.name).stdout(Stdio::piped()).stderr(Stdio::piped());
    println!("$ FIRN_FAULT={} {command:?}", fault.name);
    // The first error of a random test is enough: a panic of the test, not of another kind.
    command.output().is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        let mut tests = text.lines().filter(|line| line.starts_with("test "));
        !output.status.success() && tests.any(|line| line.ends_with("FAILED"))
    })
}

fn statements(random: &Path, fault: Option<&str>, postgres: &str) -> End {
    let mut command = Command::new(random);
    // The difference itself matters only where there is no fault.
    let shrink = if fault.is_none() { "1" } else { "0" };
    command.args(["--postgres", postgres, "--seed", "1", "--count", STATEMENTS, "--until-difference"]);
    command.args(["--shrink", shrink]).stdin(Stdio::null()).env_remove("FIRN_FAULT");
    if let Some(fault) = fault {
        command.env("FIRN_FAULT", fault);
    }
    println!("$ FIRN_FAULT={} {command:?}", fault.unwrap_or_default());
    let Ok(output) = command.stderr(Stdio::inherit()).output() else {
        return End { status: None, statements: None };
    };
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let after = text.lines().find_map(|line| line.strip_prefix("a difference after "));
    End { status: output.status.code(), statements: after.map(str::to_owned) }
}
