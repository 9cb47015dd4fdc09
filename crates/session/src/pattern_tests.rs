//! Which files a pattern in FROM names, and which files their columns are inferred from.

use crate::file_tests::{Folder, connection, rows};
use firn_base::SqlState;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
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

/// With many `**`, the number of ways to split a path between them is too large to try all.
#[test]
fn a_directory_is_gone_through_once_however_often_any_are_asked_for() {
    let folder = Folder::new(&[]);
    let deep = folder.path(&"d/".repeat(30));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("1.csv"), "n\n1\n").unwrap();
    let found = format!("{}1.csv", "d/".repeat(30));
    assert_eq!(named(&folder, &format!("{}*.csv", "**/".repeat(30))), found);
    assert_eq!(named(&folder, &format!("{}*.csv", "**/*/".repeat(15))), found);
}

#[test]
fn names_that_are_no_utf_8_are_matched_like_others() {
    let folder = Folder::new(&[("1.csv", "n\n1\n")]);
    let name = OsStr::from_bytes(b"stra\xdfe.csv");
    fs::write(folder.path("").join(name), "n\n1\n").unwrap();
    assert_eq!(named(&folder, "*.csv"), "1.csv stra\u{fffd}e.csv");
    assert_eq!(named(&folder, "stra?e.csv"), "stra\u{fffd}e.csv");
}

/// A file whose name is too long cannot be read by any user; files without permission can be read by root.
#[test]
fn a_directory_that_cannot_be_read_is_reported() {
    let folder = Folder::new(&[("1.csv", "n\n1\n")]);
    let long = "x".repeat(300);
    let error = connection().execute(&folder.sql(&format!("SELECT * FROM '@/{long}/*.csv'"))).unwrap_err();
    assert_eq!(error.state(), SqlState::IO_ERROR);
    let begin = folder.sql(&format!("could not read directory \"@/{long}\": "));
    assert!(error.message().starts_with(&begin), "{error}");
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
    if fs::read_dir(&closed).is_err() {
        let error = connection().execute(&folder.sql("SELECT * FROM '@/**/*.csv'")).unwrap_err();
        assert_eq!(error.state(), SqlState::INSUFFICIENT_PRIVILEGE);
        assert!(error.message().starts_with(&folder.sql("could not read directory \"@/closed\"")), "{error}");
    }
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn types_are_those_of_the_first_file_that_has_rows() {
    let folder = Folder::new(&[
        ("empty-1.csv", ""),
        ("empty-2.csv", "id;price\n1;2,5\n"),
        ("empty-3.csv", ""),
        ("header-1.csv", "id,day\n"),
        ("header-2.csv", "id,day"),
        ("header-3.csv", "day,more,id\n2024-02-29,x,1\n"),
        ("other-1.csv", "id,day\n"),
        ("other-2.csv", "ID,DAY\n1,2024-02-29\n"),
        ("known-1.csv", ""),
        ("known-2.csv", "1;x\n"),
        ("text-1.csv", ""),
        ("text-2.csv", "name\nAda\n"),
        ("given-1.csv", ""),
        ("given-2.csv", "id;name\n1;x\n"),
        ("line-1.csv", "\n"),
        ("line-2.csv", "id;name\n1;x\n"),
        ("rows-1.csv", "a\n\n"),
        ("rows-2.csv", "a\n2\n"),
        ("lines-1.json", ""),
        ("lines-2.json", "{}\n"),
        ("lines-3.json", "{\"a\": 1}\n"),
        ("nothing-1.csv", ""),
        ("nothing-2.csv", "\n"),
        ("none-1.json", "\n"),
        ("none-2.json", ""),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT id, price FROM '@/empty-*.csv'", "BigInt(1)|2,5"),
        ("SELECT * FROM '@/header-*.csv'", "BigInt(1)|Date(19782)"),
        ("SELECT day, id FROM '@/header-*.csv' WHERE id = 1", "Date(19782)|BigInt(1)"),
        ("SELECT id FROM read_csv('@/header-*.csv', types => 'id smallint')", "SmallInt(1)"),
        ("SELECT id, day FROM '@/header-[12].csv'", ""),
        ("SELECT k, v FROM read_csv('@/known-*.csv', columns => 'k bigint, v text')", "BigInt(1)|x"),
        ("SELECT k, v FROM read_csv('@/known-1.csv', columns => 'k bigint, v text')", ""),
        ("SELECT name FROM read_csv('@/text-*.csv', columns => 'name text')", "Ada"),
        ("SELECT * FROM read_csv('@/given-*.csv', columns => 'id bigint, name text')", "BigInt(1)|x"),
        ("SELECT * FROM read_csv('@/line-*.csv', columns => 'id bigint, name text')", "BigInt(1)|x"),
        ("SELECT id, name FROM '@/line-*.csv'", "BigInt(1)|x"),
        ("SELECT id, name FROM read_csv('@/line-*.csv', header => true)", "BigInt(1)|x"),
        ("SELECT a FROM '@/rows-*.csv'", "Null;BigInt(2)"),
        ("SELECT a FROM '@/lines-*.json'", "Null;BigInt(1)"),
        ("SELECT * FROM read_json(ARRAY['@/lines-1.json', '@/lines-3.json'])", "BigInt(1)"),
    ] {
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
        }
    }
    for (pattern, message) in [
        ("other-*.csv", "file \"@/other-2.csv\" has no column \"id\""),
        ("nothing-1*.csv", "no columns were found in file \"@/nothing-1.csv\": it is empty"),
        ("none-*.json", "no columns were found in file \"@/none-1.json\": no row has any"),
    ] {
        let error = connection.execute(&folder.sql(&format!("SELECT * FROM '@/{pattern}'"))).unwrap_err();
        assert_eq!(error.message(), folder.sql(message));
    }
    // A plan that was made for the first file alone is invalid now.
    let query = folder.sql("SELECT max(n) FROM '@/later-*.csv'");
    fs::write(folder.path("later-1.csv"), "n\n").unwrap();
    assert_eq!(rows(&mut connection, &query), ["Null"]);
    fs::write(folder.path("later-2.csv"), "n\n10\n9\n").unwrap();
    assert_eq!(rows(&mut connection, &query), ["BigInt(10)"]);
}
