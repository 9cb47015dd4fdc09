//! The rules of STYLE.md and the decisions that a program can check. Each check is a function of its
//! input that returns messages, so that its test needs no files.

use crate::{cycles, layers, licences, metadata};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// No file is longer than this many lines. Split it by its nouns before that.
const LONGEST_FILE: usize = 1_200;

/// Files that were longer when the limit was introduced, with their length. Lower a number when a file
/// shrinks; never raise one, never add a line.
const LONGER_FILES: &[(&str, usize)] = &[];

/// The folders that are workspaces of their own, whose lock files no other step reads.
const WORKSPACES: &[&str] = &["bench/compare", "fuzz"];

/// Texts that must not be in code, with the reason.
const FORBIDDEN_CODE: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it, or refuse it with Error::unsupported"),
    (concat!("unimple", "mented!("), "finish it, or refuse it with Error::unsupported"),
    (concat!("db", "g!("), "a trace for debugging was left behind"),
];

/// Paths of a developer's machine, which are meaningless on another.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// A text file of the repository.
struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

/// Runs every check and prints what it finds.
pub fn run(root: &Path) -> bool {
    println!("tidy: reading the tree");
    let files = files(root);
    let mut problems: Vec<String> = files.iter().flat_map(file_problems).collect();
    problems.extend(reference_problems(&files));
    problems.extend(module_problems(&files));
    problems.extend(lock_problems(&files));
    problems.extend(cycles::problems(files.iter().map(|file| (file.path.as_str(), file.text.as_str()))));
    println!("tidy: asking cargo for the packages");
    match metadata::packages(root) {
        Ok(packages) => {
            problems.extend(layers::problems(&packages));
            problems.extend(licences::problems(&packages));
            problems.extend(architecture_problems(&files, &packages));
        }
        Err(error) => problems.push(error),
    }
    for folder in WORKSPACES {
        println!("tidy: asking cargo for the packages of {folder}");
        if let Err(error) = metadata::packages(&root.join(folder)) {
            problems
                .push(format!("{error}; if its lock file is old, run cargo update --workspace in {folder}/"));
        }
    }
    println!("tidy: cargo fmt --check");
    // In the other workspaces, `--all` would format the crates of this one again.
    for (folder, all) in
        [("", Some("--all"))].into_iter().chain(WORKSPACES.iter().map(|folder| (*folder, None)))
    {
        let mut format = Command::new("cargo");
        format.args(["fmt", "--check"]).args(all).current_dir(root.join(folder)).stdin(Stdio::null());
        if !format.status().is_ok_and(|status| status.success()) {
            problems.push(format!("some files of ./{folder} are not formatted; run cargo fmt there"));
        }
    }
    for problem in &problems {
        println!("  {problem}");
    }
    println!("tidy: {} files, {} problems", files.len(), problems.len());
    problems.is_empty()
}

/// All text files but what is built or generated.
fn files(root: &Path) -> Vec<File> {
    const KINDS: [&str; 13] =
        ["rs", "toml", "md", "sql", "slt", "py", "sh", "js", "java", "go", "lock", "yml", "txt"];
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                let skipped = matches!(&*name, "target" | "corpus" | "artifacts" | "node_modules")
                    || name.starts_with('.') && !matches!(&*name, ".ci" | ".cargo");
                if !skipped {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|kind| KINDS.contains(&&*kind.to_string_lossy()))
                || path.ends_with(".ci/run")
            {
                let relative = path.strip_prefix(root).expect("it was found below the root");
                let relative = relative.to_string_lossy().replace('\\', "/");
                match std::fs::read_to_string(&path) {
                    Ok(text) => files.push(File { path: relative, text }),
                    Err(error) => panic!("{relative}: {error}"),
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Problems of a single file.
fn file_problems(file: &File) -> Vec<String> {
    let path = &file.path;
    let mut problems = Vec::new();
    let lines = || file.text.lines().zip(1..);
    if path != "Cargo.lock" {
        for (line, number) in lines() {
            for machine_path in MACHINE_PATHS.iter().filter(|machine_path| names_path(line, machine_path)) {
                problems.push(format!("{path}:{number}: {machine_path}… is a path of one machine"));
            }
        }
    }
    if !path.ends_with(".rs") {
        return problems;
    }
    if !file.text.starts_with("//! ") {
        problems.push(format!("{path}:1: a file opens with //! and its one idea"));
    }
    for (line, number) in lines() {
        for (code, reason) in FORBIDDEN_CODE.iter().filter(|(code, _)| line.contains(code)) {
            problems.push(format!("{path}:{number}: {code}…): {reason}"));
        }
        let borrowed = layers::BORROWED.iter().find(|borrowed| line.contains(&format!("{borrowed}::")));
        if let Some(borrowed) = borrowed
            && !path.starts_with("bench/compare/")
            && !line.trim_start().starts_with("//")
        {
            problems.push(format!("{path}:{number}: nothing here uses {borrowed}"));
        }
    }
    let length = file.text.lines().count();
    let limit =
        LONGER_FILES.iter().find(|(longer, _)| longer == path).map_or(LONGEST_FILE, |(_, limit)| *limit);
    if length > limit {
        problems.push(format!("{path}: {length} lines, at most {limit}; split it"));
    }
    problems
}

/// Whether a line names a path with this prefix, and does not merely contain it.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(position, _)| {
        !line[..position].ends_with(|before: char| before.is_alphanumeric() || "/._-~:>}".contains(before))
    })
}

/// Documents that are named but do not exist.
fn reference_problems(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for (line, number) in file.text.lines().zip(1..) {
            for (position, _) in line.match_indices("docs/") {
                let end = |c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c));
                let name = line[position..].split(end).next().expect("split yields at least one part");
                let name = name.trim_end_matches('.');
                let is_part_of_path =
                    line[..position].ends_with(|c: char| c.is_alphanumeric() || "/-_".contains(c));
                if name.ends_with(".md") && !is_part_of_path && !files.iter().any(|file| file.path == name) {
                    problems.push(format!("{}:{number}: there is no {name}", file.path));
                }
            }
        }
    }
    problems
}

/// Files of modules that nothing declares: they are not compiled, and their tests do not run.
fn module_problems(files: &[File]) -> Vec<String> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let mut problems = Vec::new();
    for file in files {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        let Some(name) = name.strip_suffix(".rs") else { continue };
        let (folder, name) = match (name, folder.rsplit_once('/')) {
            ("lib" | "main" | "build", _) => continue,
            ("mod", Some((folder, name))) => (folder, name),
            _ => (folder, name),
        };
        let parents = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{folder}{end}"));
        let parents: Vec<&String> = parents.iter().filter_map(|parent| text_of(parent)).collect();
        let declares = |text: &&String| {
            let declaration = format!("mod {name};");
            text.lines().any(|line| line.ends_with(&declaration) && !line.trim_start().starts_with("//"))
        };
        // Without a parent it is an example or a test of its own.
        if !parents.is_empty() && !parents.iter().any(declares) {
            problems.push(format!("{}: no file declares it as a module", file.path));
        }
    }
    problems
}

/// Two versions of Arrow could not exchange arrays (docs/decisions/0002-pinned-arrow.md).
fn lock_problems(files: &[File]) -> Vec<String> {
    let lock = files.iter().find(|file| file.path == "Cargo.lock");
    let versions =
        lock.map_or(0, |lock| lock.text.lines().filter(|line| *line == "name = \"arrow-array\"").count());
    if versions == 1 {
        vec![]
    } else {
        vec![format!("Cargo.lock: {versions} versions of arrow-array, not one")]
    }
}

/// Checks that the map of the code shows every crate.
fn architecture_problems(files: &[File], packages: &[metadata::Package]) -> Vec<String> {
    let Some(map) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md is missing".to_owned()];
    };
    let is_shown =
        |name: &str| map.text.contains(&format!("`{}`", name.strip_prefix("firn-").unwrap_or(name)));
    packages
        .iter()
        .filter(|package| package.is_member && !is_shown(&package.name))
        .map(|package| format!("ARCHITECTURE.md does not mention {}", package.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_faults_of_a_file_are_reported_by_line() {
        let unfinished = format!("//! An idea.\n\nfn f() {{ {}) }}\n", concat!("to", "do!("));
        let problems = |path: &str, text: &str| file_problems(&file(path, text));
        assert_eq!(problems("crates/log/src/a.rs", "//! An idea.\n"), [""; 0]);
        assert_eq!(
            problems("crates/log/src/a.rs", "fn f() {}\n"),
            ["crates/log/src/a.rs:1: a file opens with //! and its one idea"]
        );
        assert!(problems("crates/log/src/a.rs", &unfinished)[0].starts_with("crates/log/src/a.rs:3: "));
        let borrowed = format!("//! An idea.\nuse {}x;\n", concat!("datafusion", "::"));
        assert_eq!(problems("crates/log/src/a.rs", &borrowed).len(), 1);
        assert_eq!(problems("bench/compare/src/a.rs", &borrowed), [""; 0]);
        assert_eq!(
            problems("crates/log/src/a.rs", &format!("//! An idea.\n{}", "\n".repeat(LONGEST_FILE))).len(),
            1
        );
    }

    #[test]
    fn a_path_of_one_machine_differs_from_a_folder_of_that_name() {
        let path = MACHINE_PATHS[1];
        assert!(names_path(&format!("see {path}me/x"), path));
        assert!(names_path(&format!("\"{path}me\""), path));
        assert!(!names_path(&format!("https://example.org{path}me"), path));
        assert!(!names_path(&format!("$HOME/..{path}me"), path));
    }

    #[test]
    fn a_document_that_is_named_must_be_there() {
        let (there, absent) = (concat!("docs", "/there.md"), concat!("docs", "/absent.md"));
        let naming = format!("// ({there}), {absent}.\n// other/{absent}");
        assert_eq!(
            reference_problems(&[file(there, ""), file("crates/base/src/types.rs", &naming)]),
            [format!("crates/base/src/types.rs:1: there is no {absent}")]
        );
    }

    #[test]
    fn a_file_that_is_no_module_is_found() {
        let files = [
            file("crates/a/src/lib.rs", "//! An idea.\n\nmod b;\npub(crate) mod c;\n// mod gone;\n"),
            file("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;"),
            file("crates/a/src/b/tests.rs", ""),
            file("crates/a/src/c/mod.rs", "mod deep;"),
            file("crates/a/src/c/deep.rs", ""),
            file("crates/a/examples/alone.rs", ""),
        ];
        assert_eq!(module_problems(&files), [""; 0]);
        let [library, .., example] = files;
        let forgotten = [library, file("crates/a/src/d.rs", ""), file("crates/a/src/e/mod.rs", ""), example];
        assert_eq!(
            module_problems(&forgotten),
            [
                "crates/a/src/d.rs: no file declares it as a module",
                "crates/a/src/e/mod.rs: no file declares it as a module"
            ]
        );
    }

    #[test]
    fn a_second_arrow_is_found() {
        let one = "name = \"arrow-array\"\nversion = \"59.3.2\"\n";
        assert_eq!(lock_problems(&[file("Cargo.lock", one)]), [""; 0]);
        assert_eq!(lock_problems(&[file("Cargo.lock", &one.repeat(2))]).len(), 1);
    }
}
