//! Which files a pattern in FROM names, and what their columns are told from.

use crate::file_tests::{Folder, connection, rows};
use firn_base::SqlState;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The names of the files that a pattern names, `@` for their directory.
fn named(folder: &Folder, pattern: &str) -> String {
    let read = format!(
        "SELECT replace(filename, '@/', '') FROM read_csv('@/{pattern}', filename => true) ORDER BY 1"
    );
    rows(&mut connection(), &folder.sql(&read)).join(" ")
}

#[test]
fn each_file_is_read_once_whatever_links_lead_to_it() {
    let folder = Folder::new(&[("1.csv", "n\n1\n")]);
    fs::create_dir_all(folder.path("a/b/.c")).unwrap();
    for name in ["a/2.csv", "a/b/3.csv", "a/b/.c/4.csv", "a/b/[5].csv", "a/no"] {
        fs::write(folder.path(name), "n\n1\n").unwrap();
    }
    symlink(folder.path(""), folder.path("a/all")).unwrap();
    symlink(folder.path("a"), folder.path("a/b/back")).unwrap();
    symlink(folder.path("1.csv"), folder.path("a/link.csv")).unwrap();
    symlink(folder.path("nowhere"), folder.path("a/broken.csv")).unwrap();
    for (pattern, expected) in [
        ("*.csv", "1.csv"),
        ("**/?.csv", "1.csv a/2.csv a/b/.c/4.csv a/b/3.csv"),
        ("**/**/[13].csv", "1.csv a/b/3.csv"),
        ("a/**/*.csv", "a/2.csv a/b/.c/4.csv a/b/3.csv a/b/[5].csv a/link.csv"),
        ("a/*/*.csv", "a/all/1.csv a/b/3.csv a/b/[5].csv"),
        ("*/b/3.csv", "a/b/3.csv"),
        ("a/b/[5].csv", "a/b/[5].csv"),
        ("a/b/[[]5].csv", "a/b/[5].csv"),
    ] {
        assert_eq!(named(&folder, pattern), expected, "{pattern}");
    }
    for (pattern, state) in [
        ("a/no/*.csv", SqlState::UNDEFINED_FILE),
        ("none/**/*.csv", SqlState::UNDEFINED_FILE),
        ("a/**", SqlState::UNDEFINED_FILE),
        ("a***/*.csv", SqlState::INVALID_PARAMETER_VALUE),
    ] {
        let error = connection().execute(&folder.sql(&format!("SELECT * FROM '@/{pattern}'"))).unwrap_err();
        assert_eq!(error.state(), state, "{pattern}");
    }
}

/// One whose name is too long cannot be read by anybody; what others may not read, root may.
#[test]
fn a_directory_that_cannot_be_read_is_told() {
    let folder = Folder::new(&[("1.csv", "n\n1\n")]);
    let long = "x".repeat(300);
    let error = connection().execute(&folder.sql(&format!("SELECT * FROM '@/{long}/*.csv'"))).unwrap_err();
    assert_eq!(error.state(), SqlState::IO_ERROR);
    let begin = folder.sql(&format!("could not read directory \"@/{long}\": "));
    assert!(error.message().starts_with(&begin), "{error}");
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0)).unwrap();
    if fs::read_dir(&closed).is_err() {
        let error = connection().execute(&folder.sql("SELECT * FROM '@/**/*.csv'")).unwrap_err();
        assert_eq!(error.state(), SqlState::INSUFFICIENT_PRIVILEGE);
        assert!(error.message().starts_with(&folder.sql("could not read directory \"@/closed\"")), "{error}");
    }
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
}
