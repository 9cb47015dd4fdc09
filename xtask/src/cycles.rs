//! Import cycles: in the crates of the query engine, modules that import each other must be in one folder.
//!
//! A file belongs to its folder, and to the folder with its own name if there is one beside it. Imports are the paths that
//! begin with `crate`, `super` or `self`, outside of tests.

use std::collections::{BTreeMap, BTreeSet};

/// The crates that are checked.
const CRATES: &[&str] = &["syntax", "vector", "plan", "bind", "executor", "query", "sql"];

/// Modules that import each other across folders since before the check. Remove a module when its cycle is gone; never add one.
const KNOWN: &[(&str, &str)] = &[("sql", "information_schema"), ("sql", "pg_catalog")];

/// The cycles that cross a folder, as messages. `files` are paths from the root with their texts.
pub fn problems<'f>(files: impl Iterator<Item = (&'f str, &'f str)> + Clone) -> Vec<String> {
    let mut problems = Vec::new();
    for name in CRATES {
        let root = format!("crates/{name}/src/");
        let sources = files.clone().filter_map(|(path, text)| Some((path.strip_prefix(&root)?, text)));
        let known: BTreeSet<&str> =
            KNOWN.iter().filter(|(of, _)| of == name).map(|(_, module)| *module).collect();
        problems.extend(crate_problems(name, &sources.collect(), &known));
    }
    problems
}

/// `sources` are the crate's files by their paths below `src/`.
fn crate_problems(name: &str, sources: &BTreeMap<&str, &str>, known: &BTreeSet<&str>) -> Vec<String> {
    let modules: BTreeMap<String, &str> = sources.keys().map(|path| (module_of(path), *path)).collect();
    let folders: BTreeSet<&str> = sources.keys().filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
    let imports: BTreeMap<&String, BTreeSet<&String>> = modules
        .iter()
        .filter(|(module, _)| !module.split("::").any(|part| part == "tests"))
        .map(|(module, path)| (module, imports_of(module, sources[path], &modules)))
        .collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (*module, reachable(module, &imports))).collect();
    let mut found = BTreeSet::new();
    let mut problems = Vec::new();
    for (module, from_here) in &reached {
        // The modules that it imports and that import it, by any number of steps.
        let cycle: Vec<&String> =
            from_here.iter().filter(|other| reached[*other].contains(module)).copied().collect();
        let in_folders: BTreeSet<&str> =
            cycle.iter().map(|module| folder_of(modules[*module], &folders)).collect();
        if in_folders.len() < 2 {
            continue;
        }
        found.insert(module.as_str());
        if !known.contains(module.as_str()) {
            let others: Vec<&str> =
                cycle.iter().map(|other| other.as_str()).filter(|other| other != module).collect();
            problems.push(format!(
                "crates/{name}/src/{}: {module} is in an import cycle across folders, with {}",
                modules[*module],
                others.join(", ")
            ));
        }
    }
    for module in known.difference(&found) {
        problems.push(format!(
            "{name}: {module} is no longer in an import cycle; remove it from xtask/src/cycles.rs"
        ));
    }
    problems
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; the root of the crate is the empty name.
fn module_of(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let parts: Vec<&str> = path.split('/').collect();
    match parts.split_last() {
        Some((&("mod" | "lib"), folder)) => folder.join("::"),
        _ => parts.join("::"),
    }
}

fn folder_of<'p>(path: &'p str, folders: &BTreeSet<&str>) -> &'p str {
    let own = path.strip_suffix(".rs").unwrap_or(path);
    match folders.contains(own) {
        true => own,
        false => path.rsplit_once('/').map_or("", |(folder, _)| folder),
    }
}

/// Everything that a module imports by any number of steps.
fn reachable<'m>(
    module: &'m String,
    imports: &BTreeMap<&'m String, BTreeSet<&'m String>>,
) -> BTreeSet<&'m String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
    while let Some(next) = open.pop() {
        for imported in imports.get(next).into_iter().flatten() {
            if reached.insert(*imported) {
                open.push(imported);
            }
        }
    }
    reached
}

/// The modules of the crate that a text names. The root is not one of them: its items are re-exports.
fn imports_of<'m>(module: &str, text: &str, modules: &'m BTreeMap<String, &str>) -> BTreeSet<&'m String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut imports = BTreeSet::new();
    for path in paths(&code.join("\n")) {
        let mut names: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
        let mut parts = path.split("::").peekable();
        match parts.next() {
            Some("crate") => names.clear(),
            Some("super") => {
                names.pop();
                while parts.next_if_eq(&"super").is_some() {
                    names.pop();
                }
            }
            _ => {}
        }
        names.extend(parts);
        // The longest prefix that is a module; the rest are items in it.
        let longest =
            (1..=names.len()).rev().find_map(|length| modules.get_key_value(&names[..length].join("::")));
        imports.extend(longest.map(|(imported, _)| imported).filter(|imported| *imported != module));
    }
    imports
}

/// The paths in a text that begin in this crate, those in braces one by one.
fn paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (place, _) in code.match_indices(start) {
            let is_part =
                code[..place].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before));
            if !is_part {
                path_from(&code[place..], String::new(), &mut paths);
            }
        }
    }
    paths
}

/// Reads a path, or a list of paths in braces after `::`, and returns the rest.
fn path_from<'c>(code: &'c str, before: String, paths: &mut Vec<String>) -> &'c str {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(code.len());
    let (own, mut rest) = code.split_at(end);
    let path = before + own;
    let Some(list) = rest.strip_prefix('{').filter(|_| path.ends_with("::")) else {
        paths.push(path.trim_end_matches("::self").trim_end_matches(':').to_owned());
        return rest;
    };
    rest = list;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        match rest.chars().next() {
            Some(c) if c.is_alphanumeric() || c == '_' => {
                rest = path_from(rest, path.clone(), paths);
                // `as` and a name.
                rest = rest.trim_start_matches(|c: char| !matches!(c, ',' | '}'));
            }
            Some('}') => return &rest[1..],
            _ => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_across_folders_are_found_and_those_within_are_not() {
        let sources = BTreeMap::from([
            ("lib.rs", "pub mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::{\n    self,\n    inner::Thing as Other,\n};\n"),
            ("a/part.rs", "use super::x;\n"),
            ("b/mod.rs", "pub mod inner;\n"),
            ("b/inner.rs", "// use crate::none;\nfn f() { crate::a::part::g() }\n"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "use super::c::C;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
        ]);
        let problems = crate_problems("x", &sources, &BTreeSet::new());
        let modules: Vec<&str> = problems.iter().filter_map(|text| text.split(' ').nth(1)).collect();
        assert_eq!(modules, ["a", "a::part", "b::inner"], "{problems:?}");
        assert!(problems[0].ends_with("with a::part, b::inner"), "{}", problems[0]);

        let known = BTreeSet::from(["a", "a::part", "b::inner"]);
        assert_eq!(crate_problems("x", &sources, &known), [""; 0]);
        let known = BTreeSet::from(["a", "a::part", "b::inner", "c"]);
        assert_eq!(crate_problems("x", &sources, &known).len(), 1, "c has no cycle that is listed");
    }
}
