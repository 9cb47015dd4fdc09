//! Planted faults: each is a feature of a crate, built alone, and random plans must find it.
//!
//! This proves that the random plans would find such a fault: a test that passes with the fault, and a build
//! that fails, both count as not found. Without any fault the same tests pass; that is a step of `test`.

use std::path::Path;
use std::process::{Command, Stdio};

/// The package, the feature, and the tests that must fail.
const FAULTS: [(&str, &str, &str); 10] = [
    ("firn-executor", "fault-null-in-anti-join", "random_plans"),
    ("firn-plan", "fault-outer-to-inner", "null_rejection_keeps_rows"),
    ("firn-plan", "fault-limit-below-filter", "pushing_down_keeps_rows"),
    ("firn-plan", "fault-volatile-moved", "all_rewrites_keep_the_calls"),
    ("firn-plan", "fault-duplicates-lost", "random_plans_give_the_same_rows"),
    ("firn-plan", "fault-wrong-key", "keys_are_used_to_keep_rows"),
    ("firn-plan", "fault-collapsed-window-order", "merging_windows_keeps_rows"),
    ("firn-executor", "fault-shared-twice", "random_volatile_plans"),
    ("firn-plan", "fault-parameter-folded", "all_rewrites_keep_rows"),
    ("firn-executor", "fault-run-lost", "random_plans_that_spill"),
];

/// Builds with each fault and runs the tests. Returns whether all are found.
pub fn run(root: &Path) -> bool {
    let found: Vec<bool> = FAULTS.iter().map(|fault| is_found(root, *fault)).collect();
    println!("\n=== summary");
    for ((package, feature, _), found) in FAULTS.iter().zip(&found) {
        println!("{:<8} {package} {feature}", if *found { "found" } else { "MISSED" });
    }
    found.into_iter().all(|found| found)
}

fn is_found(root: &Path, (package, feature, tests): (&str, &str, &str)) -> bool {
    let cargo = |rest: &[&str]| {
        let mut command = Command::new("cargo");
        command
            .args(["test", "--locked", "-p", package, "--features", feature])
            .args(rest)
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        println!("$ {command:?}");
        command.output()
    };
    let is_built = cargo(&["--no-run"]).is_ok_and(|output| output.status.success());
    if !is_built {
        println!("it does not build");
        return false;
    }
    // The first error of a random test is enough: a panic of the test, not of another kind.
    cargo(&["--", tests]).is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
        !output.status.success() && failed.count() > 0
    })
}
