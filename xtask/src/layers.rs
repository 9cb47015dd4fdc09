//! Which crate may use which: the table of ARCHITECTURE.md as data, compared with the manifests.
//!
//! The lower layers remain free of SQL and async, so that they can be understood, tested and compiled alone. No crate uses another
//! database's parser or planner: the code that runs a statement is here, from its text to its rows.

use crate::metadata::Package;

/// The permitted dependencies of a crate.
enum May {
    Use(&'static [&'static str]),
    UseAll,
}

/// Dependencies of tests alone are not restricted.
const LAYERS: &[(&str, May)] = &[
    ("firn-base", May::Use(&[])),
    ("firn-log", May::Use(&["firn-base"])),
    ("firn-storage", May::Use(&["firn-base", "firn-log"])),
    ("firn-txn", May::Use(&["firn-base", "firn-log", "firn-storage"])),
    ("firn-replica", May::Use(&["firn-base", "firn-log", "firn-txn"])),
    ("firn-control", May::Use(&["firn-base", "firn-replica"])),
    ("firn-objects", May::Use(&["firn-base"])),
    ("firn-load", May::Use(&["firn-base"])),
    ("firn-syntax", May::Use(&["firn-base"])),
    ("firn-vector", May::Use(&["firn-base"])),
    ("firn-plan", May::Use(&["firn-base", "firn-vector"])),
    ("firn-bind", May::Use(&["firn-base", "firn-syntax", "firn-vector", "firn-plan"])),
    ("firn-executor", May::Use(&["firn-base", "firn-vector", "firn-plan", "firn-storage", "firn-txn"])),
    (
        "firn-query",
        May::Use(&[
            "firn-base",
            "firn-syntax",
            "firn-vector",
            "firn-plan",
            "firn-bind",
            "firn-executor",
            "firn-storage",
            "firn-txn",
        ]),
    ),
    (
        "firn-sql",
        May::Use(&[
            "firn-base",
            "firn-syntax",
            "firn-vector",
            "firn-plan",
            "firn-bind",
            "firn-executor",
            "firn-query",
            "firn-storage",
            "firn-txn",
            "firn-load",
        ]),
    ),
    ("firn-session", May::Use(&["firn-base", "firn-txn", "firn-sql"])),
    ("firn-wire", May::Use(&["firn-base", "firn-session"])),
    ("firn-python", May::Use(&["firn-session"])),
    ("firn-server", May::UseAll),
    ("firn-bench", May::UseAll),
    ("firn-proofs", May::UseAll),
    ("firn-slt", May::UseAll),
    ("firn-random", May::UseAll),
    ("xtask", May::Use(&[])),
];

/// Planners and parsers of others, which no crate may use. (`bench/compare`, a workspace of its own, runs one for comparison.)
pub const BORROWED: &[&str] = &["datafusion", "sqlparser"];

/// The crates in which nothing is async.
const SYNCHRONOUS: &[&str] = &[
    "firn-base",
    "firn-syntax",
    "firn-vector",
    "firn-plan",
    "firn-bind",
    "firn-log",
    "firn-storage",
    "firn-txn",
    "firn-replica",
    "firn-load",
    "firn-executor",
    "firn-query",
    "firn-sql",
    "firn-session",
];
const ASYNC: &[&str] = &["tokio", "futures", "async-trait"];

/// The violations of the table, as messages.
pub fn problems(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    let members = || packages.iter().filter(|package| package.is_member);
    for package in members() {
        let name = &package.name;
        let Some((_, may)) = LAYERS.iter().find(|(layer, _)| layer == name) else {
            problems.push(format!("{name}: not in the table of layers (xtask/src/layers.rs)"));
            continue;
        };
        for dependency in &package.dependencies {
            let used = dependency.name.as_str();
            let is_ours = members().any(|member| member.name == used);
            if is_ours && !dependency.is_dev && matches!(may, May::Use(may) if !may.contains(&used)) {
                problems.push(format!("{name}: may not use {used}"));
            }
            if BORROWED.iter().any(|borrowed| used.starts_with(borrowed)) {
                problems.push(format!("{name}: may not use {used}; the query engine is ours"));
            }
            if ASYNC.contains(&used) && !dependency.is_dev && SYNCHRONOUS.contains(&name.as_str()) {
                problems.push(format!("{name}: may not use {used}; nothing in it is async"));
            }
        }
    }
    for (name, _) in LAYERS {
        if !members().any(|package| package.name == *name) {
            problems.push(format!("{name}: in the table of layers, but not in the workspace"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependency = |&(name, is_dev): &(&str, bool)| Dependency { name: name.to_owned(), is_dev };
        Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            licence: None,
            is_member: true,
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn a_call_upwards_a_borrowed_planner_and_async_are_found() {
        let mut packages: Vec<Package> = LAYERS.iter().map(|(name, _)| package(name, &[])).collect();
        assert_eq!(problems(&packages), [""; 0]);
        let mut replace = |changed: Package| {
            let place = packages.iter().position(|package| package.name == changed.name);
            packages[place.expect("the table has it")] = changed;
        };
        replace(package("firn-log", &[("firn-base", false), ("firn-txn", false), ("firn-sql", true)]));
        replace(package("firn-txn", &[("datafusion-common", true), ("tokio", false)]));
        assert_eq!(
            problems(&packages),
            [
                "firn-log: may not use firn-txn",
                "firn-txn: may not use datafusion-common; the query engine is ours",
                "firn-txn: may not use tokio; nothing in it is async",
            ]
        );
    }
}
