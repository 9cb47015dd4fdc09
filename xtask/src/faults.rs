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
    /// The package that has random plans for it, and the test of them that must fail.
    package: &'static str,
    test: &'static str,
}

const fn fault(name: &'static str, package: &'static str, test: &'static str) -> Fault {
    Fault { name, package, test }
}

const FAULTS: [Fault; 12] = [
    fault("null-in-anti-join", "firn-executor", "random_plans"),
    fault("outer-to-inner", "firn-plan", "null_rejection_keeps_rows"),
    fault("limit-below-filter", "firn-plan", "pushing_down_keeps_rows"),
    fault("volatile-moved", "firn-plan", "all_rewrites_keep_the_calls"),
    fault("duplicates-lost", "firn-plan", "random_plans_give_the_same_rows"),
    fault("wrong-key", "firn-plan", "keys_are_used_to_keep_rows"),
    fault("collapsed-window-order", "firn-plan", "merging_windows_keeps_rows"),
    fault("shared-twice", "firn-executor", "random_volatile_plans"),
    fault("parameter-folded", "firn-plan", "all_rewrites_keep_rows"),
    fault("run-lost", "firn-executor", "random_plans_that_spill"),
    fault("join-part-lost", "firn-executor", "random_plans_that_spill"),
    fault("group-part-lost", "firn-executor", "random_plans_that_spill"),
];

/// Within how many random statements a fault must be found. They are the same in each run.
const STATEMENTS: &str = "10000";

/// Looks for each fault by random plans and by random statements beside the PostgreSQL of this address; whether all are found.
pub fn run(root: &Path, postgres: &str) -> bool {
    let by_plans: Vec<bool> = FAULTS.iter().map(|fault| plans_find(root, fault)).collect();
    let random = build_random(root);
    let end = |fault| statements(random.as_deref()?, fault, postgres);
    // 3 says that there is a difference; what fails otherwise has found nothing.
    let statements_find = |fault: &Fault| end(Some(fault.name)) == Some(3);
    let by_statements: Vec<bool> = FAULTS.iter().map(statements_find).collect();
    // What fails anyway has found nothing.
    let passes = end(None) == Some(0);
    println!("\n=== summary");
    let word = |found: bool| if found { "found" } else { "MISSED" };
    for ((fault, plans), statements) in FAULTS.iter().zip(&by_plans).zip(&by_statements) {
        println!("{:<8} by plans, {:<8} by statements: {}", word(*plans), word(*statements), fault.name);
    }
    if !passes {
        println!("FAILED: without a fault the statements must pass");
    }
    passes && by_plans.into_iter().chain(by_statements).all(|found| found)
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

fn plans_find(root: &Path, fault: &Fault) -> bool {
    let run = |rest: &[&str]| {
        let all = [&["test", "--locked", "-p", fault.package, "--features", "faults"], rest].concat();
        let mut command = cargo(root, &all);
        command.env("FIRN_FAULT", fault.name).stdout(Stdio::piped()).stderr(Stdio::piped());
        println!("$ FIRN_FAULT={} {command:?}", fault.name);
        command.output()
    };
    let is_built = run(&["--no-run"]).is_ok_and(|output| output.status.success());
    if !is_built {
        println!("it does not build");
        return false;
    }
    // The first error of a random test is enough: a panic of the test, not of another kind.
    run(&["--", fault.test]).is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
        !output.status.success() && failed.count() > 0
    })
}

/// Builds the program that makes random statements with the faults; where it is.
fn build_random(root: &Path) -> Option<PathBuf> {
    let mut build =
        cargo(root, &["build", "--locked", "-p", "firn-random", "--features", "firn-executor/faults"]);
    println!("$ {build:?}");
    let is_built = build.status().is_ok_and(|status| status.success());
    let target = target_directory(root).ok().filter(|_| is_built)?;
    Some(target.join("debug").join("firn-random"))
}

/// The status with which random statements end.
fn statements(random: &Path, fault: Option<&str>, postgres: &str) -> Option<i32> {
    let mut command = Command::new(random);
    command.args(["--postgres", postgres, "--seed", "1", "--count", STATEMENTS, "--until-difference"]);
    command.stdin(Stdio::null()).env_remove("FIRN_FAULT");
    if let Some(fault) = fault {
        command.env("FIRN_FAULT", fault);
    }
    println!("$ FIRN_FAULT={} {command:?}", fault.unwrap_or_default());
    command.status().ok()?.code()
}
