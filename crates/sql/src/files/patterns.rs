//! The files that a pattern names: `*`, `?` and `[…]` in a part of a path, and `**` for any directories below one.
//!
//! The `glob` crate decides whether a name matches. Directories are walked here, since the crate follows links without end and
//! leaves out directories that cannot be read. `**` does not follow links to directories, so that it finds each
//! file once; other parts do.

use super::{file_error, read_error};
use firn_base::{Error, Result, SqlState};
use glob::Pattern;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// A part of a pattern.
enum Part {
    /// One name.
    Name(PathBuf),
    /// The names that match.
    Matching(Pattern),
    /// The directory itself, and all below it.
    AnyDirectories,
}

/// The files that a pattern names, in the order of their names; 58P01 if there are none.
pub(super) fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    if !pattern.contains(['*', '?', '[']) || Path::new(pattern).exists() {
        return Ok(vec![pattern.into()]);
    }
    let wrong = |why: &dyn std::fmt::Display| {
        let message = format!("\"{pattern}\" is not a pattern of files: {why}");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
    };
    let mut parts = Vec::new();
    for component in Path::new(pattern).components() {
        parts.push(match component {
            Component::Normal(name) if name == "**" => Part::AnyDirectories,
            Component::Normal(name) => match name.to_str() {
                Some(name) if name.contains(['*', '?', '[']) => {
                    Part::Matching(Pattern::new(name).map_err(|error| wrong(&error))?)
                }
                _ => Part::Name(name.into()),
            },
            other => Part::Name(other.as_os_str().into()),
        });
    }
    let mut files = Vec::new();
    expand(PathBuf::new(), &parts, &mut HashSet::new(), &mut files)?;
    files.sort();
    match files.is_empty() {
        true => Err(Error::new(SqlState::UNDEFINED_FILE, format!("no files match \"{pattern}\""))),
        false => Ok(files),
    }
}

/// Adds the files below a path that match the rest of a pattern. With more than one `**` several ways lead to the same
/// directory with the same rest: each pair of a directory and the number of remaining parts is visited once.
fn expand(
    path: PathBuf,
    parts: &[Part],
    gone: &mut HashSet<(PathBuf, usize)>,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        if is(&path, std::fs::metadata(&path).map(|metadata| metadata.is_file()))? {
            files.push(path);
        }
        return Ok(());
    };
    match part {
        Part::Name(name) => expand(path.join(name), rest, gone, files),
        Part::Matching(pattern) => {
            for name in names(&path)? {
                // The path as written: not `./a.csv` for `a.csv`. Bytes of a name that are no UTF-8 match like any character.
                if pattern.matches(&name.to_string_lossy()) {
                    expand(path.join(name), rest, gone, files)?;
                }
            }
            Ok(())
        }
        Part::AnyDirectories if !gone.insert((path.clone(), parts.len())) => Ok(()),
        Part::AnyDirectories => {
            for name in names(&path)? {
                let below = path.join(name);
                if is(&below, std::fs::symlink_metadata(&below).map(|metadata| metadata.is_dir()))? {
                    expand(below, parts, gone, files)?;
                }
            }
            expand(path, rest, gone, files)
        }
    }
}

/// The names in a directory; none, if it does not exist.
fn names(directory: &Path) -> Result<Vec<PathBuf>> {
    // The directory of a relative pattern.
    let at = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let listed = std::fs::read_dir(at)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name().into())).collect::<io::Result<_>>());
    match listed {
        Err(error) if is_absence(&error) => Ok(Vec::new()),
        listed => listed.map_err(|error| read_error("directory", at, &error)),
    }
}

/// A property of a path; false, if the path does not exist.
fn is(path: &Path, known: io::Result<bool>) -> Result<bool> {
    match known {
        Err(error) if is_absence(&error) => Ok(false),
        known => known.map_err(|error| file_error(path, &error)),
    }
}

/// Whether the path does not exist. It may have been deleted since it was listed.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
