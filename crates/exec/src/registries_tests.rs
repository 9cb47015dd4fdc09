//! The functions that DataFusion's registries hold, and what becomes of each when they go: the list is
//! `registries.txt` beside this file, and shrinks to nothing with DataFusion.
//!
//! | mark | meaning |
//! |---|---|
//! | ours | the registry of `firn-vector` has a function of that name |
//! | to write | PostgreSQL has it, and the registry does not yet |
//! | syntax | PostgreSQL has it as syntax, not as a function |
//! | not PostgreSQL's | it goes |

use crate::runtime::planning_state;
use std::collections::BTreeMap;

const LIST: &str = include_str!("registries.txt");

fn listed() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let entries = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let mut fields = line.splitn(3, ' ');
        let mut field = || fields.next().unwrap_or_else(|| panic!("three fields are in {line:?}"));
        ((field(), field()), field())
    });
    entries.collect()
}

#[test]
fn every_function_of_datafusions_registries_is_listed() {
    let state = planning_state();
    let scalars = state.scalar_functions().keys().map(|name| ("scalar", name.as_str()));
    let aggregates = state.aggregate_functions().keys().map(|name| ("aggregate", name.as_str()));
    let windows = state.window_functions().keys().map(|name| ("window", name.as_str()));
    let tables = state.table_functions().keys().map(|name| ("table", name.as_str()));
    let mut there: Vec<_> = scalars.chain(aggregates).chain(windows).chain(tables).collect();
    there.sort_unstable();
    let listed: Vec<_> = listed().into_keys().collect();
    let names: String = there.iter().map(|(kind, name)| format!("{kind} {name}\n")).collect();
    assert_eq!(listed, there, "all there are:\n{names}");
}

#[test]
fn the_marks_are_those_of_the_registry_that_replaces_them() {
    let registry = firn_vector::Registry::built_in();
    let mut wrong = Vec::new();
    for ((kind, name), mark) in listed() {
        let has = !registry.functions_named(name).is_empty();
        let fits = match mark {
            "ours" => has,
            "to write" | "syntax" | "not PostgreSQL's" => !has,
            other => panic!("{kind} {name} has an unknown mark: {other}"),
        };
        if !fits {
            wrong.push(format!("{kind} {name}: {mark}, and firn-vector has it: {has}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
