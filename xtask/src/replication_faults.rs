//! Planted faults of replication: each is chosen at run time in a build with the feature `faults`, and a simulation must find it.
//!
//! A simulation that passes with the fault, and a build that fails, both count as not found. Without any fault the simulations pass.

use std::path::Path;
use std::process::{Command, Stdio};

/// The simulations: of a primary and its replicas, and of voters.
const REPLICAS: &str = "sim::replicas_are_prefixes_of_their_primary_whatever_happens";
const VOTERS: &str = "voters::nothing_acknowledged_is_lost_whoever_is_the_primary";

/// The faults, as `firn_log::faults` calls them, and the simulation that must find each.
const FAULTS: [(&str, &str); 11] = [
    ("acknowledged-unsynced", VOTERS),
    ("compared-by-length", VOTERS),
    ("longest-log-appointed", VOTERS),
    ("old-primary-accepted", VOTERS),
    ("uncommitted-replayed", VOTERS),
    ("wiped-voter-counted", VOTERS),
    ("groups-left-by-cut", VOTERS),
    ("checkpoint-before-committed", VOTERS),
    ("slot-reused-under-reader", REPLICAS),
    ("earlier-epochs-counted", VOTERS),
    ("lease-broken", VOTERS),
];

/// Within how many seeds a fault must be found. They are the same in each run.
const SEEDS: &str = "200";

/// The package with the simulations.
const TESTS: [&str; 6] = ["test", "--locked", "-p", "firn-replica", "--features", "firn-replica/faults"];

/// How a simulation ends.
enum End {
    Passes,
    /// A seed fails.
    Fails(String),
    /// It cannot be run.
    Broken,
}

/// Looks for each fault by a simulation; whether all are found.
pub fn run(root: &Path) -> bool {
    // What fails anyway has found nothing.
    let passes = [REPLICAS, VOTERS].iter().all(|test| matches!(simulate(root, test, None), End::Passes));
    if !passes {
        println!("FAILED: without a fault the simulations must pass");
        return false;
    }
    let mut lines = Vec::new();
    let mut are_found = true;
    for (fault, test) in FAULTS {
        let found = match simulate(root, test, Some(fault)) {
            End::Fails(seed) => format!("found by seed {seed}"),
            End::Passes | End::Broken => {
                are_found = false;
                "MISSED".to_owned()
            }
        };
        lines.push(format!("{fault:<28} {found}"));
    }
    println!("\n=== summary");
    lines.iter().for_each(|line| println!("{line}"));
    are_found
}

fn simulate(root: &Path, test: &str, fault: Option<&str>) -> End {
    let mut command = Command::new("cargo");
    command.args(TESTS).args(["--test", "all", "--", "--exact", test]).current_dir(root);
    command.env("FIRN_SIM_SEEDS", SEEDS).env_remove("FIRN_SIM_FIRST").env_remove("FIRN_FAULT");
    if let Some(fault) = fault {
        command.env("FIRN_FAULT", fault);
    }
    println!("$ FIRN_FAULT={} {command:?}", fault.unwrap_or_default());
    let Ok(output) = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output() else {
        return End::Broken;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let ends = |end: &str| text.lines().any(|line| line.starts_with("test ") && line.ends_with(end));
    // A panic of the test, not of another kind.
    let seed = text.lines().find_map(|line| line.strip_prefix("seed "));
    match seed {
        _ if output.status.success() && ends("ok") => End::Passes,
        Some(seed) if ends("FAILED") => End::Fails(seed.to_owned()),
        _ => {
            print!("{text}");
            End::Broken
        }
    }
}
