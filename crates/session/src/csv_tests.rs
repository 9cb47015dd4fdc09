//! The options of a CSV file: of `read_csv`, which infers the others from the file, and of COPY.

use crate::file_tests::{Folder, connection, rows};
use firn_base::{SqlState, Value};
use std::fs;

#[test]
fn read_csv_accepts_what_cannot_be_inferred() {
    let folder = Folder::new(&[
        ("report.csv", "Report; of May\n\"\nid,code,price\n1,007,1.5\n2,x,2\n"),
        ("a-1.csv", "id,name\n1,x\n"),
        ("a-2.csv", "ID,NAME\n2,y\n"),
        ("inches.csv", "pipe,n\n12\" long,1\n\"half,2\n"),
    ]);
    fs::write(folder.path("latin.csv"), b"caf\xe9,n\nna\xefve,1\n\x80 5,2\n").unwrap();
    let mut connection = connection();
    for (read, expected) in [
        ("read_csv('@/report.csv', skip => 2)", "BigInt(1)|007|Double(1.5);BigInt(2)|x|Double(2.0)"),
        (
            "read_csv('@/report.csv', skip => 2, types => 'price numeric(8,2), id smallint')",
            "SmallInt(1)|007|Numeric { unscaled: 150, scale: 2 };SmallInt(2)|x|Numeric { unscaled: 200, scale: 2 }",
        ),
        ("read_csv('@/report.csv', skip => 2, all_varchar => true)", "1|007|1.5;2|x|2"),
        (
            "read_csv('@/report.csv', skip => 3, header => false, nullstr => '2')",
            "BigInt(1)|007|Double(1.5);Null|x|Null",
        ),
        (
            "read_csv('@/a-*.csv', columns => 'key integer, \"What it is\" varchar(5)')",
            "Integer(1)|x;Integer(2)|y",
        ),
        ("read_csv('@/inches.csv', quote => '')", "12\" long|BigInt(1);\"half|BigInt(2)"),
        ("read_csv('@/latin.csv', encoding => 'latin-1')", "naïve|BigInt(1);\u{80} 5|BigInt(2)"),
        ("read_csv('@/latin.csv', encoding => 'cp1252')", "naïve|BigInt(1);€ 5|BigInt(2)"),
    ] {
        // The second time the chunks of the file may be known.
        for _ in 0..2 {
            let found = rows(&mut connection, &folder.sql(&format!("SELECT * FROM {read}"))).join(";");
            assert_eq!(found, expected, "{read}");
        }
    }
    let named = "SELECT \"café\", \"What it is\" FROM read_csv('@/latin.csv', encoding => 'win1252'), \
                 read_csv('@/a-1.csv', columns => 'key integer, \"What it is\" varchar(5)') WHERE n = 2";
    assert_eq!(rows(&mut connection, &folder.sql(named)), ["€ 5|x"]);
    for (read, state, message) in [
        ("read_csv('@/a-1.csv', skip => 'two')", "22023", "read_csv: skip is a number of lines"),
        (
            "read_csv('@/a-1.csv', all_varchar => 'perhaps')",
            "22023",
            "read_csv: all_varchar is true or false",
        ),
        ("read_csv('@/a-1.csv', types => 'ids bigint')", "42703", "file \"@/a-1.csv\" has no column \"ids\""),
        (
            "read_csv('@/a-1.csv', types => 'id bigint, id text')",
            "22023",
            "read_csv: types names \"id\" twice",
        ),
        (
            "read_csv('@/a-1.csv', columns => 'id bigint, name text', all_varchar => true)",
            "22023",
            "read_csv: columns has all types already",
        ),
        ("read_csv('@/a-1.csv', types => 'id bignum')", "42704", "type \"bignum\" does not exist"),
        ("read_csv('@/a-1.csv', encoding => 'koi8r')", "0A000", "encoding \"koi8r\" is not supported"),
        (
            "read_csv('@/a-1.csv', quote => '', escape => '\"')",
            "22023",
            "COPY escape cannot be given without a quote",
        ),
        ("read_csv('@/a-1.csv', columns => 'id bigint')", "22P04", "extra data after last expected column"),
        ("read_csv('@/latin.csv')", "22021", "invalid byte sequence for encoding \"UTF8\": 0xe9"),
    ] {
        let error = connection.execute(&folder.sql(&format!("SELECT * FROM {read}"))).unwrap_err();
        assert_eq!((error.state(), error.message()), (SqlState::new(state), &*folder.sql(message)), "{read}");
    }
    let error =
        connection.execute(&folder.sql("SELECT * FROM read_csv('@/a-1.csv', types => 'id')")).unwrap_err();
    assert!(
        error.message().starts_with("read_csv: types are names with types, as in CREATE TABLE"),
        "{error}"
    );
}

#[test]
fn copy_reads_other_encodings_and_files_without_quotes() {
    let folder = Folder::new(&[("inches.csv", "12\" long,1\n\"half,2\n")]);
    fs::write(folder.path("windows.csv"), b"\x93na\xefve\x94,1\ncaf\xe9,2\n\x81,3\n").unwrap();
    fs::write(folder.path("lines.json"), b"{\"t\": \"caf\xe9\"}\n").unwrap();
    let mut connection = connection();
    connection.execute("CREATE TABLE t (t text, n integer)").unwrap();
    let mut copied = |copy: &str| {
        connection.execute("TRUNCATE t").unwrap();
        connection.execute(&folder.sql(copy)).map(|_| rows(&mut connection, "SELECT t FROM t").join("|"))
    };
    let copy = "COPY t FROM '@/inches.csv' (FORMAT csv, QUOTE none)";
    assert_eq!(copied(copy).unwrap(), "12\" long|\"half");
    let copy = "COPY t FROM '@/windows.csv' (FORMAT csv, ENCODING 'WIN1252', ON_ERROR ignore)";
    assert_eq!(copied(copy).unwrap(), "“naïve”|café");
    let copy = "COPY t FROM '@/windows.csv' (FORMAT csv, ENCODING 'WIN1252')";
    let error = copied(copy).unwrap_err();
    assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    assert!(error.context().unwrap().starts_with("COPY t, line 3: "), "{error}");
    let copy = "COPY t (t) FROM '@/lines.json' (FORMAT json, ENCODING 'LATIN1')";
    assert_eq!(copied(copy).unwrap(), "café");
}

#[test]
fn only_tables_of_the_transaction_are_loaded_frozen() {
    let folder = Folder::new(&[("n.csv", "1\n2\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY); INSERT INTO t VALUES (9)").unwrap();
    let copy = folder.sql("COPY t FROM '@/n.csv' (FORMAT csv, FREEZE)");
    for begin in ["", "BEGIN;", "BEGIN; DELETE FROM t;"] {
        let error = connection.execute(&format!("{begin} {copy}")).unwrap_err();
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{begin}");
        assert!(error.message().starts_with("cannot perform COPY FREEZE because the table was not created"));
        connection.execute("ROLLBACK").unwrap();
    }
    connection.execute(&copy.replace("FREEZE", "FREEZE off")).unwrap();
    for begin in ["TRUNCATE t", "DROP TABLE t; CREATE TABLE t (n integer PRIMARY KEY)"] {
        connection.execute(&format!("BEGIN; {begin}; {copy}; COMMIT")).unwrap();
        assert_eq!(rows(&mut connection, "SELECT n FROM t ORDER BY n"), ["Integer(1)", "Integer(2)"]);
    }
}

#[test]
fn quotes_within_fields_are_characters_in_queries_and_quotes_for_copy() {
    let folder =
        Folder::new(&[("inch.csv", "id,size,price\n1,5\" pipe,2.5\n2,7\" pipe,3.5\n3,\"a, b\",1\n")]);
    let mut connection = connection();
    let all =
        ["BigInt(1)|5\" pipe|Double(2.5)", "BigInt(2)|7\" pipe|Double(3.5)", "BigInt(3)|a, b|Double(1.0)"];
    for read in ["'@/inch.csv'", "read_csv('@/inch.csv', quote => '\"')"] {
        assert_eq!(rows(&mut connection, &folder.sql(&format!("SELECT * FROM {read}"))), all);
    }
    connection.execute(&folder.sql("CREATE TABLE t AS SELECT * FROM '@/inch.csv'")).unwrap();
    assert_eq!(rows(&mut connection, "SELECT * FROM t"), all);
    // PostgreSQL's rule: a quote anywhere in a field opens quotes.
    connection.execute("TRUNCATE t").unwrap();
    assert_eq!(connection.execute(&folder.sql("COPY t FROM '@/inch.csv' (FORMAT csv, HEADER)")).unwrap(), 2);
    assert_eq!(rows(&mut connection, "SELECT size FROM t"), ["5 pipe,2.5\n2,7 pipe", "a, b"]);
}

#[test]
fn blank_lines_are_no_rows_of_files_with_columns() {
    let mut long = "n,t\n".to_owned();
    (0..2000).for_each(|row| long.push_str(&format!("{row},x\r\n\n")));
    let folder = Folder::new(&[
        ("end.csv", "n,t\n1,x\n2,\"\n\ny\"\n\n"),
        ("returns.csv", "n,t\r\n1,x\r\n\r\n2,y\r\n\r\n"),
        ("one.csv", "n\n1\n\n2\n"),
        ("wrong.csv", "n,t\n1,x\n\n\n2\n"),
        ("long.csv", &long),
        ("first.csv", "\r\n\nid,name\n1,a\n2,b\n"),
        ("title.csv", "Report\n\nid,name\n1,a\n2,b\n"),
        ("no-header.csv", "\n1,a\n2,b\n"),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT * FROM '@/first.csv'", "BigInt(1)|a;BigInt(2)|b"),
        ("SELECT name FROM read_csv('@/first.csv', header => true)", "a;b"),
        ("SELECT count(*) FROM '@/first.csv'", "BigInt(2)"),
        ("SELECT name, id FROM read_csv('@/title.csv', skip => 1)", "a|BigInt(1);b|BigInt(2)"),
        ("SELECT name, id FROM read_csv('@/title.csv', skip => 2)", "a|BigInt(1);b|BigInt(2)"),
        ("SELECT * FROM '@/no-header.csv'", "BigInt(1)|a;BigInt(2)|b"),
        ("SELECT id, name FROM '@/firs*.csv' WHERE id = 1", "BigInt(1)|a"),
        ("SELECT * FROM '@/end.csv'", "BigInt(1)|x;BigInt(2)|\n\ny"),
        ("SELECT * FROM '@/returns.csv'", "BigInt(1)|x;BigInt(2)|y"),
        ("SELECT n FROM '@/returns.csv' WHERE t = 'y'", "BigInt(2)"),
        // There it is a NULL.
        ("SELECT * FROM '@/one.csv'", "BigInt(1);Null;BigInt(2)"),
        ("SELECT count(*), sum(n), max(n) FROM '@/long.csv'", "BigInt(2000)|Number(1999000)|BigInt(1999)"),
    ] {
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
        }
    }
    let error = connection.query(&folder.sql("SELECT * FROM '@/wrong.csv'")).unwrap_err();
    assert!(error.context().unwrap().ends_with("wrong.csv\", line 5: \"2\""), "{error:?}");
    // To COPY they are rows, as to PostgreSQL.
    connection.execute("CREATE TABLE t (n integer, t text)").unwrap();
    let error = connection.execute(&folder.sql("COPY t FROM '@/end.csv' (FORMAT csv, HEADER)")).unwrap_err();
    assert_eq!(error.message(), "missing data for column \"t\"");
}

#[test]
fn errors_in_files_have_useful_hints() {
    let folder = Folder::new(&[
        ("title.csv", "Report of May\nid,name\n1,x\n2,y\n"),
        ("ragged.csv", &format!("id,name\n{}3,x,y\n", "1,x\n".repeat(20))),
        ("open.csv", "id,name\n1,\"x\n2,y\n3,z\n"),
        ("late.csv", &format!("d,n\n{}2024-13-01,x\n", "2024-01-01,1\n".repeat(100_000))),
    ]);
    fs::write(folder.path("latin.csv"), b"id,name\n1,caf\xe9\n").unwrap();
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id integer, name text)").unwrap();
    let types = "read_csv('@/late.csv', types => 'n integer')";
    for (sql, message, context, hint) in [
        ("SELECT * FROM '@/title.csv'", "missing data", "line 1:", "skip => 2"),
        ("SELECT * FROM '@/ragged.csv'", "extra data", "line 22:", "ignore_errors => true"),
        ("SELECT * FROM '@/latin.csv'", "invalid byte sequence", "line 2:", "encoding => 'latin1'"),
        (
            "COPY t FROM '@/latin.csv' (FORMAT csv, HEADER)",
            "invalid byte sequence",
            "line 2:",
            "ENCODING 'LATIN1'",
        ),
        (
            "SELECT * FROM read_csv('@/open.csv', quote => '\"')",
            "unterminated",
            "line 2: \"1,",
            "quote => ''",
        ),
        ("COPY t FROM '@/open.csv' (FORMAT csv, HEADER)", "unterminated", "line 2: \"1,", "QUOTE none"),
        ("SELECT max(n) FROM '@/late.csv'", "invalid input", "line 100002, column n: ", "types => "),
        (&format!("SELECT max(n) FROM {types}"), "invalid input", "line 100002, column n: ", ""),
        (&format!("SELECT max(d) FROM {types}"), "date/time field", "line 100002, column d: ", "datestyle"),
        (
            "SELECT * FROM read_csv('@/title.csv', columns => 'id integer')",
            "invalid input",
            "line 1, column id",
            "",
        ),
        ("SELECT * FROM read_csv('@/title.csv', columns => 'id integer, name text', skip => 2)", "", "", ""),
    ] {
        let error = connection.execute(&folder.sql(sql));
        if message.is_empty() {
            error.unwrap();
            continue;
        }
        let error = error.unwrap_err();
        let (found, place) = (error.hint().unwrap_or_default(), error.context().unwrap_or_default());
        assert!(error.message().starts_with(message) && place.contains(context), "{sql}: {error:?}");
        assert!(found.contains(hint) && hint.is_empty() == found.is_empty(), "{sql}: {error:?}");
    }
}

#[test]
fn the_mark_that_ends_data_is_data_in_queries_and_an_end_for_copy() {
    let folder = Folder::new(&[
        ("one.csv", "path\nC:\n\\.\nD:\n"),
        ("two.csv", "a.b\n\\.1\n\\.\r\nx.y\n"),
        ("header.csv", "\\.\nx\n"),
        ("ragged.csv", "n,t\n1,x\n\\.\n2,y\n"),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT * FROM '@/one.csv'", "C:;\\.;D:"),
        ("SELECT * FROM read_csv('@/one.csv', columns => 'path text')", "C:;\\.;D:"),
        ("SELECT count(*) FROM '@/one.csv'", "BigInt(3)"),
        ("SELECT path FROM '@/one.csv' WHERE path > 'C:' AND path < 'a'", "\\.;D:"),
        ("SELECT * FROM read_csv('@/two.csv', delimiter => '.', header => false)", "a|b;\\|1;\\|Null;x|y"),
        ("SELECT * FROM read_csv('@/header.csv', header => true)", "x"),
    ] {
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
        }
    }
    let error = connection.execute(&folder.sql("SELECT * FROM '@/ragged.csv'")).unwrap_err();
    assert_eq!(error.context().unwrap(), folder.sql("file \"@/ragged.csv\", line 3: \"\\.\""));
    connection.execute(&folder.sql("CREATE TABLE made AS SELECT * FROM '@/one.csv'")).unwrap();
    assert_eq!(rows(&mut connection, "SELECT * FROM made"), ["C:", "\\.", "D:"]);
    connection.execute("CREATE TABLE t (path text)").unwrap();
    assert_eq!(connection.execute(&folder.sql("COPY t FROM '@/one.csv' (FORMAT csv, HEADER)")).unwrap(), 1);
}

#[test]
fn quotes_of_a_single_column_are_not_divided() {
    let folder = Folder::new(&[
        ("names.csv", "\"Full Name, Title\"\n\"Lovelace, Ada\"\n\"Turing, Alan\"\n"),
        ("plain.csv", "name\n\"Turing, Alan\"\n\"Lovelace, Ada\"\n"),
        ("numbers.csv", "\"1,5\"\n\"2,5\"\n"),
        ("ragged.csv", "n,s\n1,\"a, b\"\n2,\"c, d\"\n3,e, f\n"),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT \"Full Name, Title\" FROM '@/names.csv'", "Lovelace, Ada;Turing, Alan"),
        ("SELECT name FROM '@/plain.csv'", "Turing, Alan;Lovelace, Ada"),
        ("SELECT column1 FROM '@/numbers.csv'", "1,5;2,5"),
    ] {
        assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
    }
    let error = connection.execute(&folder.sql("SELECT * FROM '@/ragged.csv'")).unwrap_err();
    assert_eq!(error.context().unwrap(), folder.sql("file \"@/ragged.csv\", line 4: \"3,e, f\""));
}

#[test]
fn apostrophes_join_no_lines() {
    let folder = Folder::new(&[
        ("words.csv", "word,meaning,origin\n'em,them,shortenin'\naint,is not,x\nbro,brother,y\n"),
        ("songs.csv", "title,album,year\n'Til Tuesday,Voices Carry,1985\nFoo,Nothin',1990\nBar,Baz,1991\n"),
        ("notes.csv", "a,b\n1,'tis\n2,foo\n3,rockin'\n"),
        ("quoted.csv", "'id','text'\n'1','one\ntwo'\n'2','three'\n"),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT word, origin FROM '@/words.csv'", "'em|shortenin';aint|x;bro|y"),
        (
            "SELECT title, year FROM '@/songs.csv'",
            "'Til Tuesday|BigInt(1985);Foo|BigInt(1990);Bar|BigInt(1991)",
        ),
        ("SELECT * FROM '@/notes.csv'", "BigInt(1)|'tis;BigInt(2)|foo;BigInt(3)|rockin'"),
        ("SELECT * FROM '@/quoted.csv'", "BigInt(1)|one\ntwo;BigInt(2)|three"),
        ("SELECT b FROM read_csv('@/notes.csv', quote => '''')", "tis\n2,foo\n3,rockin"),
    ] {
        assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
    }
}

#[test]
fn a_header_that_is_cut_off_within_a_character_is_no_encoding_error() {
    let folder = Folder::new(&[]);
    let header = format!("x{}\n1\n", "ß".repeat(1 << 19));
    fs::write(folder.path("long.csv"), header).unwrap();
    let read = folder.sql("SELECT * FROM read_csv('@/long.csv', header => true)");
    let error = connection().execute(&read).unwrap_err();
    assert!(error.message().ends_with("no record ends in its first megabyte"), "{error:?}");
}

#[test]
fn names_that_are_no_text_are_errors() {
    let folder = Folder::new(&[
        ("zero.csv", "\n\nid,na\0me\n1,x\n"),
        ("key.json", "{\"id\": 1}\n{\"na\\u0000me\": 2}\n"),
        ("given.csv", "i\0d\n1\n"),
    ]);
    fs::write(folder.path("junk.csv"), b"PK\x03\x04\x14\0\x08\0\xff\xfe").unwrap();
    fs::write(folder.path("latin.csv"), b"stra\xdfe,n\nx,1\n").unwrap();
    let mut connection = connection();
    for (read, line, hint) in [
        ("'@/zero.csv'", "zero.csv\", line 3: \"id,na\0me\"", ""),
        ("'@/key.json'", "key.json\", line 2: \"{\"na\\u0000me\": 2}\"", ""),
        ("'@/junk.csv'", "junk.csv\", line 1: \"PK", ""),
        ("read_csv('@/junk.csv', header => false)", "junk.csv\", line 1: \"PK", ""),
        ("'@/latin.csv'", "latin.csv\", line 1: \"stra\u{fffd}e,n\"", "encoding => 'latin1'"),
    ] {
        let error = connection.execute(&folder.sql(&format!("SELECT * FROM {read}"))).unwrap_err();
        assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE, "{read}: {error:?}");
        assert!(error.context().unwrap().contains(line), "{read}: {error:?}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{read}: {error:?}");
    }
    let given = "SELECT id FROM read_csv('@/given.csv', columns => 'id bigint', header => true)";
    assert_eq!(rows(&mut connection, &folder.sql(given)), ["BigInt(1)"]);
}

/// A statement finds the same rows whichever of them it reads, and whether the file is known or not.
#[test]
fn rows_that_cannot_be_read_are_left_out_on_request() {
    let mut long = "n,t,d\n".to_owned();
    for row in 0..30_000 {
        long.push_str(&match row % 3000 {
            2997 => format!("{row},x\n"),
            2998 => format!("{row},x,2024-13-01\n"),
            2999 => format!("{row},x,2024-01-01,y\n"),
            _ => format!("{row},x,2024-01-01\n"),
        });
    }
    let lines = |text: &str| text.lines().map(|line| format!("{{\"n\": {line}}}\n")).collect::<String>();
    let folder = Folder::new(&[
        ("bad.csv", "n,t\n1,x\n2\nthree,y\n4,z,z\n5,w\n"),
        ("long.csv", &long),
        ("bad.json", &(lines("1\ntwo\n\"3\"\n\"x\"\n4") + "{\"z\\u0000\": 1}\n{\"m\": 1, \"\": }\n")),
        ("a-1.csv", "n,t\n1,x\n"),
        ("a-2.csv", "n\n2\nx\n"),
        ("open.csv", "n,t\n1,x\n2,\"y\n"),
    ]);
    fs::write(folder.path("latin.csv"), b"n,t\n1,caf\xe9\n2,x\n").unwrap();
    let mut connection = connection();
    let bad = "read_csv('@/bad.csv', types => 'n integer', ignore_errors => true)";
    let long = "read_csv('@/long.csv', types => 'd date', ignore_errors => true)";
    let json = "read_json('@/bad.json', types => 'n integer', ignore_errors => true)";
    let several = "read_csv('@/a-*.csv', types => 'n bigint', ignore_errors => true)";
    for (query, expected) in [
        (&*format!("SELECT * FROM {bad}"), "Integer(1)|x;Integer(5)|w"),
        (&format!("SELECT t FROM {bad}"), "x;w"),
        (&format!("SELECT count(*) FROM {bad}"), "BigInt(2)"),
        (&format!("SELECT t FROM {bad} WHERE t >= 'w'"), "x;w"),
        (&format!("SELECT count(*) FROM {long}"), "BigInt(29970)"),
        (&format!("SELECT count(t) FROM {long} WHERE n > 100 AND n < 6000"), "BigInt(5893)"),
        (&format!("SELECT max(d), max(n) FROM {long}"), "Date(19723)|BigInt(29996)"),
        (&format!("SELECT count(*) FROM {long} WHERE t = 'y'"), "BigInt(0)"),
        // A key that cannot be a column's name is skipped.
        (&format!("SELECT * FROM {json}"), "Integer(1);Integer(3);Integer(4);Null"),
        (&format!("SELECT count(*) FROM {json}"), "BigInt(4)"),
        (&format!("SELECT n FROM {several}"), "BigInt(1);BigInt(2)"),
        ("SELECT n FROM read_csv('@/latin.csv', ignore_errors => true)", "BigInt(2)"),
    ] {
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
        }
    }
    for (read, state) in [
        (several.replace("n bigint", "t text"), "42703"),
        (bad.replace(", ignore_errors => true", ""), "22P04"),
        ("read_csv('@/open.csv', quote => '\"', ignore_errors => true)".to_owned(), "22P04"),
        (bad.replace("ignore_errors => true", "ignore_errors => 'some'"), "22023"),
    ] {
        let error = connection.execute(&folder.sql(&format!("SELECT * FROM {read}"))).unwrap_err();
        assert_eq!(error.state(), SqlState::new(state), "{read}: {error:?}");
    }
}

#[test]
fn columns_of_files_have_any_type_that_columns_of_tables_have() {
    let folder = Folder::new(&[("a.csv", "id,tags,price\n1,\"{a,b}\",1.50\n2,,2\n")]);
    let mut connection = connection();
    let read =
        "SELECT id, tags[2], price::text FROM read_csv('@/a.csv', types => 'tags text[], price numeric')";
    assert_eq!(rows(&mut connection, &folder.sql(read)), ["BigInt(1)|b|1.50", "BigInt(2)|Null|2"]);
    for (ty, state) in [("record", "42P16"), ("anyelement", "42P16"), ("nothing", "42704")] {
        let read = format!("SELECT * FROM read_csv('@/a.csv', types => 'tags {ty}')");
        let error = connection.execute(&folder.sql(&read)).unwrap_err();
        assert_eq!(error.state(), SqlState::new(state), "{ty}: {error}");
    }
}

#[test]
fn lines_of_a_file_come_in_their_order() {
    const LINES: i64 = 300_000;
    let content: String = (0..LINES).map(|line| format!("{line},x\n")).collect();
    let folder = Folder::new(&[("a.csv", &content)]);
    let mut connection = connection();
    let statement = connection.prepare(&folder.sql("SELECT column1 FROM '@/a.csv'")).unwrap();
    let found = connection.query_values(&statement, &[]).unwrap();
    assert!(found.iter().flatten().eq((0..LINES).map(Value::BigInt).collect::<Vec<_>>().iter()));
}
