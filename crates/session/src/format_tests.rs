//! What a session promises of Parquet, Arrow and JSON files: they are tables, what is written is read back, and damage is an error.

use crate::file_tests::{Folder, connection, rows};
use crate::{Connection, Outcome};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, Date64Array, Decimal128Array, Decimal256Array, DictionaryArray, Int8Array,
    Int32Array, LargeStringArray, ListArray, NullArray, RecordBatch, StringArray, StructArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_buffer::i256;
use arrow_schema::{DataType, Field};
use firn_base::{Result, SqlState};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::fs::{self, File};
use std::sync::Arc;

const FORMATS: [&str; 3] = ["parquet", "arrow", "json"];

/// Runs a statement with `@` for the folder.
fn run(connection: &mut Connection, folder: &Folder, sql: &str) -> Result<u64> {
    connection.execute(&folder.sql(sql))
}

/// The SQLSTATE and the message of an error.
fn error_in(connection: &mut Connection, folder: &Folder, sql: &str) -> (String, String) {
    let error = run(connection, folder, sql).expect_err(sql);
    (error.state().as_str().to_owned(), error.message().replace(&folder.sql("@"), "@"))
}

/// A table of every type, with the extremes of each. Plain numerics have the 16 decimals that they have as Arrow.
const EVERY_TYPE: &str = "
    CREATE TABLE every (
        b boolean, i2 smallint, i4 integer, i8 bigint, r real, f double precision, n numeric(20, 5), m numeric,
        t text, v varchar(5), c char(4), x bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid);
    INSERT INTO every VALUES (true, -32768, 2147483647, -9223372036854775808, 1.5, 0.1, '123456789012345.54321', '0.0000000001000000', E'a\"b\\\\c\\nd ä€😀', 'abc', 'ab',
         '\\x00ff10', '2024-02-29', '23:59:59.999999', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+02',
         '1 year 2 months -3 days 04:05:06.000007', '00112233-4455-6677-8899-aabbccddeeff');
    INSERT INTO every VALUES (false, 32767, -2147483648, 9223372036854775807, 'NaN', 'NaN', '-999999999999999.99999', '1234567890123456789012.5000000000000000', '', '', '',
         '', '0001-01-01', '00:00', '0044-03-15 10:00 BC', '0001-01-01 00:00+00', '-1 month', '00000000-0000-0000-0000-000000000000');
    INSERT INTO every VALUES (NULL, 0, 0, 0, '-Infinity', 'Infinity', 0, '0.0000000000000000', '{\"a\": 1}', 'äöüßx', 'wxyz', '\\x', '9999-12-31', '24:00:00', '262142-12-31 23:59:59.999999',
         '4713-01-02 BC', '0', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    INSERT INTO every VALUES (NULL, NULL, NULL, NULL, '-0', '1e300', NULL, NULL, NULL, NULL, NULL, NULL, '4713-11-24 BC', NULL, '12024-01-01', NULL, NULL, NULL);
    INSERT INTO every VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

#[test]
fn values_of_every_type_come_back_as_they_went() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute(EVERY_TYPE).unwrap();
    connection.execute("SET timezone = 'Europe/Berlin'").unwrap();
    let all = "SELECT * FROM every ORDER BY i2 NULLS LAST, r NULLS LAST";
    let sent = rows(&mut connection, all);
    assert_eq!(sent.len(), 5);
    for (format, options) in [
        ("parquet", ""),
        ("parquet", ", COMPRESSION snappy, ROW_GROUP_SIZE 2"),
        ("parquet", ", COMPRESSION gzip"),
        ("parquet", ", COMPRESSION 'lz4'"),
        ("parquet", ", COMPRESSION none"),
        ("arrow", ""),
        ("arrow", ", COMPRESSION zstd"),
        ("arrow", ", COMPRESSION lz4"),
        ("json", ""),
        ("json", ", COMPRESSION gzip"),
        ("csv", ", COMPRESSION zstd"),
        ("text", ", COMPRESSION gzip"),
        ("binary", ""),
    ] {
        let copied =
            run(&mut connection, &folder, &format!("COPY every TO '@/every' (FORMAT {format}{options})"));
        assert_eq!(copied.unwrap(), 5, "{format}{options}");
        connection.execute("CREATE TABLE back (LIKE every)").unwrap();
        let copied = run(&mut connection, &folder, &format!("COPY back FROM '@/every' (FORMAT {format})"));
        assert_eq!(copied.unwrap_or_else(|error| panic!("{format}: {error:?}")), 5);
        assert_eq!(rows(&mut connection, &all.replace("every", "back")), sent, "{format}{options}");
        connection.execute("DROP TABLE back").unwrap();
    }
}

#[test]
fn files_are_tables_of_whatever_kind_they_are() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id bigint, name text, total double precision, day date);
             INSERT INTO t VALUES (1, 'Ada', 10.5, '2024-01-31'), (2, 'Alan', NULL, '2024-02-29'), (3, 'Ada', 7, NULL)").unwrap();
    for (format, end, reader) in [
        ("parquet", "parquet", "read_parquet"),
        ("arrow", "feather", "read_arrow"),
        ("json", "jsonl", "read_json"),
        ("json", "ndjson.gz", "read_json"),
    ] {
        let packed = if end.ends_with("gz") { ", COMPRESSION gzip" } else { "" };
        run(&mut connection, &folder, &format!("COPY t TO '@/t.{end}' (FORMAT {format}{packed})")).unwrap();
        let mut ask =
            |sql: &str| rows(&mut connection, &folder.sql(&sql.replace('#', &format!("'@/t.{end}'"))));
        assert_eq!(
            ask("SELECT id, name, total, day::text FROM # ORDER BY id"),
            [
                "BigInt(1)|Ada|Double(10.5)|2024-01-31",
                "BigInt(2)|Alan|Null|2024-02-29",
                "BigInt(3)|Ada|Double(7.0)|Null"
            ],
            "{end}"
        );
        assert_eq!(ask("SELECT count(*) FROM #"), ["BigInt(3)"]);
        assert_eq!(ask(&format!("SELECT sum(total) FROM {reader}(#) WHERE name = 'Ada'")), ["Double(17.5)"]);
        assert_eq!(ask("SELECT t.name FROM # JOIN # AS o ON o.id = t.id + 2"), ["Ada"]);
        assert_eq!(ask("SELECT id FROM # LIMIT 1").len(), 1);
    }
    // A Parquet file keeps types that CSV would have to guess; a plan knows when the file has changed.
    let prepared = connection.prepare(&folder.sql("SELECT count(*) FROM '@/t.parquet'")).unwrap();
    let copy = "COPY (SELECT * FROM t WHERE id > 1) TO '@/t.parquet' (FORMAT parquet)";
    run(&mut connection, &folder, copy).unwrap();
    assert_eq!(connection.query_values(&prepared, &[]).unwrap()[0][0], firn_base::Value::BigInt(2));
    run(&mut connection, &folder, "CREATE VIEW v AS SELECT * FROM '@/t.parquet'").unwrap();
    run(&mut connection, &folder, "COPY (SELECT 1 AS x, * FROM t) TO '@/t.parquet' (FORMAT parquet)")
        .unwrap();
    assert_eq!(rows(&mut connection, "SELECT * FROM v WHERE id = 2"), ["BigInt(2)|Alan|Null|Date(19782)"]);
}

#[test]
fn files_of_a_pattern_have_the_columns_of_the_first() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    for format in ["parquet", "arrow"] {
        for (file, query) in [
            ("a-1", "SELECT 1 AS n, 'x'::text AS t"),
            ("a-2", "SELECT 'y'::text AS t, 2 AS n, true AS more"),
            ("b-1", "SELECT 1 AS n"),
            ("b-2", "SELECT 'one'::text AS n"),
            ("c-1", "SELECT 1 AS n"),
            ("c-2", "SELECT 1 AS m"),
        ] {
            let copy = format!("COPY ({query}) TO '@/{file}.{format}' (FORMAT {format})");
            run(&mut connection, &folder, &copy).unwrap();
        }
        let all = folder.sql(&format!("SELECT n, t FROM '@/a-*.{format}' ORDER BY n"));
        assert_eq!(rows(&mut connection, &all), ["Integer(1)|x", "Integer(2)|y"]);
        assert_eq!(
            error_in(&mut connection, &folder, &format!("SELECT n FROM '@/b-*.{format}'")),
            (
                "42804".to_owned(),
                format!("file \"@/b-2.{format}\" has another type of column \"n\": Utf8View, not Int32")
            )
        );
        assert_eq!(
            error_in(&mut connection, &folder, &format!("SELECT n FROM '@/c-*.{format}'")),
            ("42703".to_owned(), format!("file \"@/c-2.{format}\" has no column \"n\""))
        );
    }
}

#[test]
fn rows_have_their_file_names_and_files_may_be_listed() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    for format in ["csv", "json", "parquet", "arrow"] {
        // The name of the first is too long for the inline part of a view.
        for (file, query) in [
            ("one-of-the-files", "SELECT 1 AS n, 'x'::text AS t UNION ALL SELECT 2, 'y'"),
            ("two", "SELECT 3 AS n, 'z'::text AS t"),
            ("other", "SELECT 9 AS other"),
        ] {
            let header = if format == "csv" { ", HEADER" } else { "" };
            let copy = format!("COPY ({query}) TO '@/{file}.{format}' (FORMAT {format}{header})");
            run(&mut connection, &folder, &copy).unwrap();
        }
        let mut ask = |columns: &str, files: &str, options: &str, rest: &str| {
            let sql = format!("SELECT {columns} FROM read_{format}({files}{options}) {rest}");
            let found = rows(&mut connection, &folder.sql(&sql.replace(".#", &format!(".{format}"))));
            found.into_iter().map(|row| row.replace(&folder.sql("@/"), "")).collect::<Vec<_>>().join("; ")
        };
        let both = "ARRAY['@/two.#', '@/one*.#']";
        let [one, two] = ["one-of-the-files", "two"].map(|file| format!("{file}.{format}"));
        assert_eq!(
            ask("*", both, ", filename => true", "ORDER BY t"),
            ask("n, t, filename", both, ", filename => true", "ORDER BY t"),
        );
        assert_eq!(
            ask("filename, t", both, ", filename => true", "ORDER BY t"),
            format!("{one}|x; {one}|y; {two}|z")
        );
        assert_eq!(ask("filename", "'@/two.#'", ", filename => true", ""), two);
        assert_eq!(
            ask("file, count(*)::int", both, ", filename => 'file'", "GROUP BY file ORDER BY file"),
            format!("{one}|Integer(2); {two}|Integer(1)")
        );
        // Twice, as chunks that have been read once may be skipped.
        for _ in 0..2 {
            assert_eq!(
                ask("t", both, ", filename => true", "WHERE filename LIKE '%/two.%' OR t = 'x' ORDER BY t"),
                "x; z"
            );
        }
        assert_eq!(ask("t", both, ", filename => false", "ORDER BY t"), "x; y; z");
        // A file whose name does not meet the condition is not read: this one has no such column.
        let all = "ARRAY['@/one*.#', '@/t*.#', '@/other.#']";
        if format != "json" {
            let folder_name = folder.sql("@/").len();
            let chosen = format!("WHERE substr(filename, {}) = 'two.{format}'", folder_name + 1);
            assert_eq!(ask("t", all, ", filename => true", &chosen), "z");
            let sql = folder
                .sql(&format!("SELECT t FROM read_{format}({all})").replace(".#", &format!(".{format}")));
            let error = connection.execute(&sql).unwrap_err();
            assert!(error.to_string().contains("other"), "{error}");
        }
        // The column of the file takes precedence: its value is returned.
        let twice = folder.sql(&format!("SELECT * FROM read_{format}('@/two.{format}', filename => 't')"));
        let error = connection.execute(&twice).unwrap_err();
        assert_eq!(error.state(), SqlState::DUPLICATE_COLUMN, "{error}");
    }
    let view = "CREATE VIEW v AS SELECT * FROM read_parquet(ARRAY['@/one*.parquet', '@/two.parquet'], filename => true)";
    run(&mut connection, &folder, view).unwrap();
    let named = "SELECT count(*) FROM v WHERE filename LIKE '%one%'";
    assert_eq!(rows(&mut connection, named), ["BigInt(2)"]);
    for (sql, state) in [
        ("SELECT * FROM read_json('@/two.json', delimiter => ';')", SqlState::INVALID_PARAMETER_VALUE),
        ("SELECT * FROM read_csv('@/two.csv', '@/one.csv')", SqlState::INVALID_PARAMETER_VALUE),
        ("SELECT * FROM read_csv(filename => true)", SqlState::INVALID_PARAMETER_VALUE),
        ("SELECT * FROM read_csv('@/two.csv', filename => '')", SqlState::INVALID_PARAMETER_VALUE),
        ("SELECT * FROM read_csv(ARRAY[1])", SqlState::INVALID_PARAMETER_VALUE),
        ("SELECT * FROM read_csv(ARRAY['@/two.csv', '@/none-*.csv'])", SqlState::UNDEFINED_FILE),
    ] {
        let error = connection.execute(&folder.sql(sql)).unwrap_err();
        assert_eq!(error.state(), state, "{sql}: {error}");
    }
}

#[test]
fn columns_of_files_are_found_by_name() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id serial, name text DEFAULT 'nobody', n numeric(5, 2))").unwrap();
    for format in FORMATS {
        let to = |query: &str| format!("COPY ({query}) TO '@/f' (FORMAT {format})");
        run(&mut connection, &folder, &to("SELECT 1.5 AS n, 7 AS id")).unwrap();
        let names = if format == "json" { "(n, id)" } else { "" };
        run(&mut connection, &folder, &format!("COPY t {names} FROM '@/f' (FORMAT {format})")).unwrap();
        run(&mut connection, &folder, &format!("COPY t (n) FROM '@/f' (FORMAT {format})")).unwrap();
        run(&mut connection, &folder, &format!("COPY t (n) FROM '@/f' (FORMAT {format}) WHERE n > 2"))
            .unwrap();
        let all = rows(&mut connection, "DELETE FROM t RETURNING id > 0, name, n::text");
        assert_eq!(all, ["Boolean(true)|nobody|1.50"; 2], "{format}");
        // Text is read as a literal, and what does not fit is an error.
        run(&mut connection, &folder, &to("SELECT '12.5'::text AS n, 'x'::text AS name")).unwrap();
        run(&mut connection, &folder, &format!("COPY t (n, name) FROM '@/f' (FORMAT {format})")).unwrap();
        assert_eq!(rows(&mut connection, "DELETE FROM t RETURNING n::text"), ["12.50"]);
        run(&mut connection, &folder, &to("SELECT 'many'::text AS n")).unwrap();
        let copy = folder.sql(&format!("COPY t (n) FROM '@/f' (FORMAT {format})"));
        let error = connection.execute(&copy).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION);
        assert!(error.context().unwrap().ends_with("column n: \"many\""), "{:?}", error.context());
        // The file has one column more, or one less.
        run(&mut connection, &folder, &to("SELECT 1 AS n, 2 AS other")).unwrap();
        assert_eq!(
            error_in(&mut connection, &folder, &format!("COPY t FROM '@/f' (FORMAT {format})")),
            ("42703".to_owned(), "there is no column \"other\" to copy to".to_owned())
        );
        run(&mut connection, &folder, &format!("COPY t (n) FROM '@/f' (FORMAT {format})")).unwrap();
        let short = error_in(&mut connection, &folder, &to("SELECT 1 AS a, 2 AS a"));
        assert_eq!(short, ("42701".to_owned(), "column name \"a\" appears twice".to_owned()));
        connection.execute("DELETE FROM t").unwrap();
    }
    for format in ["parquet", "arrow"] {
        run(&mut connection, &folder, &format!("COPY (SELECT 1 AS id) TO '@/f' (FORMAT {format})")).unwrap();
        assert_eq!(
            error_in(&mut connection, &folder, &format!("COPY t (id, name) FROM '@/f' (FORMAT {format})")),
            ("42703".to_owned(), "the file has no column \"name\"".to_owned())
        );
    }
    connection.execute("CREATE TABLE k (a integer NOT NULL, b smallint)").unwrap();
    run(&mut connection, &folder, "COPY (SELECT 1 AS a, 70000 AS b) TO '@/f' (FORMAT parquet)").unwrap();
    assert_eq!(error_in(&mut connection, &folder, "COPY k FROM '@/f' (FORMAT parquet)").0, "22003");
    run(&mut connection, &folder, "COPY (SELECT 1 AS b) TO '@/f' (FORMAT arrow)").unwrap();
    assert_eq!(error_in(&mut connection, &folder, "COPY k FROM '@/f' (FORMAT arrow)").0, "23502");
}

/// Values that do not cast, and conditions that fail, in the first, a middle and the last row of several batches.
#[test]
fn the_row_is_named_whose_value_does_not_fit_or_whose_condition_fails() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection
        .execute("CREATE TABLE narrow (n smallint, t varchar(5)); CREATE TABLE wide (n bigint, t text)")
        .unwrap();
    for bad in [1, 12_345, 30_000] {
        let values = format!(
            "SELECT CASE i WHEN {bad} THEN 100000 ELSE i % 1000 END::bigint AS n, 'x' AS t FROM generate_series(1, 30000) AS g(i) ORDER BY i"
        );
        for format in ["parquet", "arrow", "csv", "json"] {
            run(&mut connection, &folder, &format!("COPY ({values}) TO '@/f' (FORMAT {format})")).unwrap();
            let mut context = |copy: &str| {
                let error = connection.execute(&folder.sql(copy)).unwrap_err();
                (error.state().as_str().to_owned(), error.context().unwrap_or_default().to_owned())
            };
            let place = if matches!(format, "csv" | "json") { "line" } else { "row" };
            if place == "row" {
                let found = context(&format!("COPY narrow FROM '@/f' (FORMAT {format})"));
                assert_eq!(found, ("22003".to_owned(), format!("COPY narrow, row {bad}")));
            }
            for condition in ["1 / (n - 100000) < 5", "n % 2 = 1 OR 1 / (n - 100000) < 5"] {
                let found = context(&format!("COPY wide FROM '@/f' (FORMAT {format}) WHERE {condition}"));
                assert_eq!(found, ("22012".to_owned(), format!("COPY wide, {place} {bad}")), "{condition}");
            }
        }
    }
    // An error that is not of a value has no row.
    connection
        .execute(
            "ALTER TABLE wide ADD COLUMN d integer DEFAULT 1 / (length(current_user) - length(current_user))",
        )
        .unwrap();
    let error = connection.execute(&folder.sql("COPY wide (n, t) FROM '@/f' (FORMAT json) WHERE n > 0"));
    assert_eq!(error.unwrap_err().context(), None);
}

#[test]
fn json_lines_are_read_as_they_are() {
    let lines = concat!(
        "{\"a\": 1, \"b\": \"x\", \"c\": {\"d\": [1, 2]}, \"n\": 1.0}\n",
        "\n",
        "  {\"b\": \"\\u00e4\\n\\ud83d\\ude00\", \"a\": 12345678901234567890, \"f\": true, \"n\": 2}\r\n",
        "{}\n",
        "{\"a\": null, \"c\": \"t\", \"f\": false, \"a\": 3}",
    );
    let folder = Folder::new(&[
        ("a.json", lines),
        ("array.json", "[{\"a\": 1},\n {\"a\": 2}]"),
        ("broken.json", "{\"a\": 1}\n{\"a\": \n"),
        ("empty.json", ""),
        ("nothing.json", "{}\n{}\n"),
        ("late.json", &("{\"a\": 1}\n".repeat(200_000) + "{\"a\": \"x\", \"z\": 1}\n")),
    ]);
    let mut connection = connection();
    assert_eq!(
        rows(&mut connection, &folder.sql("SELECT a, b, c, n, f FROM '@/a.json'")),
        [
            "1|x|{\"d\": [1, 2]}|Double(1.0)|Null",
            "12345678901234567890|ä\n😀|Null|Double(2.0)|Boolean(true)",
            "Null|Null|Null|Null|Null",
            "3|Null|t|Null|Boolean(false)"
        ]
    );
    for (file, message) in [
        ("array", "a line is no JSON object"),
        ("broken", "a line is no JSON object"),
        ("empty", "no columns were found in file \"@/empty.json\": it is empty"),
        ("nothing", "no columns were found in file \"@/nothing.json\": no row has any"),
    ] {
        let found = error_in(&mut connection, &folder, &format!("SELECT * FROM '@/{file}.json'"));
        assert_eq!(found, ("22P04".to_owned(), message.to_owned()));
    }
    let error = connection.execute(&folder.sql("SELECT sum(a) FROM '@/late.json'")).unwrap_err();
    assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION);
    assert_eq!(error.context().unwrap(), folder.sql("file \"@/late.json\", line 200001, column a: \"x\""));
    assert!(error.hint().unwrap().contains("read_json('file.json', types => "), "{error:?}");
    assert_eq!(rows(&mut connection, &folder.sql("SELECT count(*) FROM '@/late.json'")), ["BigInt(200001)"]);
    // Some programs write a byte order mark before UTF-8, which is no part of the first line.
    fs::write(folder.path("marked.json"), "\u{feff}{\"a\": 1}\n{\"a\": 2}\n").unwrap();
    connection.execute("CREATE TABLE marked (a integer)").unwrap();
    assert_eq!(run(&mut connection, &folder, "COPY marked FROM '@/marked.json' (FORMAT json)").unwrap(), 2);
    assert_eq!(rows(&mut connection, &folder.sql("SELECT sum(a)::text FROM '@/marked.json'")), ["3"]);
    // COPY is stricter, except for what its options leave out.
    connection.execute("CREATE TABLE t (a integer)").unwrap();
    let copied = run(&mut connection, &folder, "COPY t FROM '@/late.json' (FORMAT json, ON_ERROR ignore)");
    assert_eq!(copied.unwrap(), 200_000);
    assert_eq!(connection.take_notices().len(), 1);
    let error = connection.execute(&folder.sql("COPY t FROM '@/broken.json' (FORMAT json)")).unwrap_err();
    assert_eq!(error.context().unwrap(), "COPY t, line 2: \"{\"a\": \"");
}

fn begin(connection: &mut Connection, sql: &str) -> Outcome {
    let statement = connection.prepare(sql).unwrap();
    connection.run(&statement, &[]).unwrap()
}

/// Data of a COPY … TO STDOUT.
fn sent(connection: &mut Connection, sql: &str) -> Vec<u8> {
    let Outcome::CopyOut(mut copy) = begin(connection, sql) else { panic!("{sql}") };
    let mut data = Vec::new();
    while let Some(piece) = copy.next_chunk().unwrap() {
        copy.rows(&piece).for_each(|row| data.extend_from_slice(row));
    }
    data
}

#[test]
fn clients_send_and_get_the_same_formats() {
    let mut connection = connection();
    connection.execute(EVERY_TYPE).unwrap();
    connection.execute("CREATE TABLE back (LIKE every)").unwrap();
    let all = "SELECT * FROM every ORDER BY i2 NULLS LAST, r NULLS LAST";
    let expected = rows(&mut connection, all);
    for format in ["json", "arrow"] {
        let data = sent(&mut connection, &format!("COPY every TO STDOUT (FORMAT {format})"));
        for piece in [1, 7, data.len()] {
            let sql = format!("COPY back FROM STDIN (FORMAT {format})");
            let Outcome::CopyIn(mut copy) = begin(&mut connection, &sql) else { panic!("{sql}") };
            data.chunks(piece).for_each(|piece| copy.write_data(piece).unwrap());
            copy.finish().unwrap();
            assert_eq!(rows(&mut connection, &all.replace("every", "back")), expected, "{format} {piece}");
            connection.execute("DELETE FROM back").unwrap();
        }
        // Data that is cut off is not accepted as complete.
        let sql = format!("COPY back FROM STDIN (FORMAT {format})");
        let Outcome::CopyIn(mut copy) = begin(&mut connection, &sql) else { panic!("{sql}") };
        let cut = copy.write_data(&data[..data.len() / 2]).and_then(|()| copy.finish());
        assert_eq!(cut.unwrap_err().state(), SqlState::BAD_COPY_FILE_FORMAT, "{format}");
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM back"), ["BigInt(0)"]);
    }
    assert!(sent(&mut connection, "COPY every TO STDOUT (FORMAT parquet)").ends_with(b"PAR1"));
    let error = connection.execute("COPY back FROM STDIN (FORMAT parquet)").unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
    let json = sent(
        &mut connection,
        "COPY (SELECT 1 AS a, 1.50 AS n, 'x\"y' AS t, 'NaN'::float8 AS f, 1e20::float8 AS g, '\\x01'::bytea AS b, \
         '2024-01-31 10:00'::timestamp AS ts, '2024-01-31 10:00+00'::timestamptz AS tz, NULL AS z, true AS y) \
         TO STDOUT (FORMAT json)",
    );
    assert_eq!(
        String::from_utf8(json).unwrap(),
        "{\"a\":1,\"n\":1.50,\"t\":\"x\\\"y\",\"f\":\"NaN\",\"g\":1e+20,\"b\":\"\\\\x01\",\"ts\":\"2024-01-31T10:00:00\",\
         \"tz\":\"2024-01-31T10:00:00+00:00\",\"z\":null,\"y\":true}\n"
    );
}

#[test]
fn a_file_appears_when_it_is_whole() {
    let folder = Folder::new(&[("old.csv", "as it was")]);
    let mut connection = connection();
    for format in ["text", "csv", "json", "parquet", "arrow"] {
        let fails = "SELECT 1 / (n - 5000) AS q FROM generate_series(1, 10000) AS s(n)";
        for name in ["old.csv", "new.csv"] {
            let copy = format!("COPY ({fails}) TO '@/{name}' (FORMAT {format})");
            assert_eq!(error_in(&mut connection, &folder, &copy).0, "22012");
        }
        assert_eq!(fs::read_to_string(folder.path("old.csv")).unwrap(), "as it was");
        assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 1, "{format}");
    }
    run(&mut connection, &folder, "COPY (SELECT 1) TO '@/old.csv'").unwrap();
    assert_eq!(fs::read_to_string(folder.path("old.csv")).unwrap(), "1\n");
    assert_eq!(error_in(&mut connection, &folder, "COPY (SELECT 1) TO '@/no/such.csv'").0, "58P01");
    assert_eq!(error_in(&mut connection, &folder, "COPY (SELECT 1) TO '@'").0, "42809");
    run(&mut connection, &folder, "COPY (SELECT 1) TO '/dev/null'").unwrap();
}

#[test]
fn errors_have_hints() {
    let folder = Folder::new(&[("a.csv", "n\n1\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer)").unwrap();
    run(&mut connection, &folder, "COPY (SELECT 1 AS n) TO '@/a.parquet' (FORMAT parquet)").unwrap();
    run(&mut connection, &folder, "COPY (SELECT 1 AS n) TO '@/a.arrow' (FORMAT arrow)").unwrap();
    for (sql, state, message) in [
        ("COPY t FROM '@/a.parquet'", "22P04", "file \"@/a.parquet\" is not a text file"),
        ("COPY t FROM '@/a.arrow' (FORMAT csv)", "22P04", "file \"@/a.arrow\" is not a text file"),
        ("COPY t FROM '@/a.csv' (FORMAT parquet)", "22P04", "file \"@/a.csv\" is not a Parquet file"),
        (
            "COPY t FROM '@/a.arrow' (FORMAT parquet)",
            "22P04",
            "file \"@/a.arrow\" is not a Parquet file; it looks like an Arrow file",
        ),
        ("SELECT * FROM read_arrow('@/a.csv')", "22P04", "file \"@/a.csv\" is not an Arrow file"),
        (
            "SELECT * FROM read_parquet('@/a.parquet', header => true)",
            "22023",
            "read_parquet: there is no option \"header\"",
        ),
        ("SELECT * FROM read_json(1)", "22023", "read_json: file is given as a literal"),
        (
            "SELECT * FROM read_parquet('@/none')",
            "58P01",
            "could not read file \"@/none\": No such file or directory (os error 2)",
        ),
        (
            "COPY t FROM '@/none' (FORMAT parquet)",
            "58P01",
            "could not open file \"@/none\" for reading: No such file or directory (os error 2)",
        ),
        (
            "COPY t TO '@/x' (FORMAT parquet, DELIMITER ',')",
            "42601",
            "cannot specify DELIMITER in PARQUET mode",
        ),
        ("COPY t TO '@/x' (FORMAT json, HEADER)", "42601", "cannot specify HEADER in JSON mode"),
        (
            "COPY t TO '@/x' (FORMAT parquet, ROW_GROUP_SIZE 0)",
            "22023",
            "ROW_GROUP_SIZE (0) must be greater than zero",
        ),
        (
            "COPY t TO '@/x' (FORMAT arrow, COMPRESSION gzip)",
            "22023",
            "COPY COMPRESSION \"gzip\" not recognized in ARROW mode",
        ),
        (
            "COPY t FROM '@/a.csv' (COMPRESSION gzip)",
            "42601",
            "COPY COMPRESSION cannot be used with COPY FROM",
        ),
        ("COPY t TO '@/x' (FORMAT xml)", "22023", "COPY format \"xml\" not recognized"),
        (
            "COPY (SELECT FROM t) TO '@/x' (FORMAT parquet)",
            "0A000",
            "COPY of rows without columns in parquet format is not supported",
        ),
    ] {
        assert_eq!(error_in(&mut connection, &folder, sql), (state.to_owned(), message.to_owned()), "{sql}");
    }
}

/// A row, and a row of NULLs, of types that SQL lacks or has in a similar form only.
fn foreign() -> RecordBatch {
    let keys: DictionaryArray<Int32Type> = [Some("key"), None].into_iter().collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None]), None]);
    let wide = Decimal256Array::from(vec![Some(i256::from_i128(-1234)), None]);
    let inner: ArrayRef = Arc::new(Int8Array::from(vec![1, 2]));
    let pair = StructArray::from(vec![(Arc::new(Field::new("x", DataType::Int8, true)), inner)]);
    let columns: [(&str, ArrayRef); 11] = [
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
        ("i", Arc::new(Int8Array::from(vec![Some(-7), None]))),
        ("k", Arc::new(keys)),
        ("l", Arc::new(LargeStringArray::from(vec![Some("long"), None]))),
        ("s", Arc::new(TimestampSecondArray::from(vec![Some(1), None]))),
        ("z", Arc::new(TimestampNanosecondArray::from(vec![Some(1_999), None]).with_timezone("+02:00"))),
        ("d", Arc::new(Date64Array::from(vec![Some(86_400_000), None]))),
        ("w", Arc::new(wide.with_precision_and_scale(50, 2).unwrap())),
        ("nothing", Arc::new(NullArray::new(2))),
        ("list", Arc::new(list)),
        ("pair", Arc::new(pair)),
    ];
    RecordBatch::try_from_iter(columns.map(|(name, column)| (name, column))).unwrap()
}

#[test]
fn what_others_write_is_read_where_sql_has_something_like_it() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    let batch = foreign();
    let file = || File::create(folder.path("foreign")).unwrap();
    let parquet = || {
        let mut writer = ArrowWriter::try_new(file(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    let arrow = || {
        let mut writer = arrow_ipc::writer::FileWriter::try_new(file(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    };
    let stream = || {
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(file(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    };
    let kinds: [(&str, &dyn Fn()); 3] = [("parquet", &parquet), ("arrow", &arrow), ("arrow", &stream)];
    for (format, write) in kinds {
        write();
        let columns = "u, i, k, l, s::text, z::text, d::text, w, nothing, list[1]";
        let read = folder.sql(&format!("SELECT {columns} FROM '@/foreign' ORDER BY u"));
        assert_eq!(
            rows(&mut connection, &read),
            [
                "Numeric { unscaled: 18446744073709551615, scale: 0 }|SmallInt(-7)|key|long|1970-01-01 00:00:01|\
                 1970-01-01 00:00:00.000001+00|1970-01-02|Numeric { unscaled: -1234, scale: 2 }|Null|Integer(1)",
                "Null|Null|Null|Null|Null|Null|Null|Null|Null|Null"
            ],
            "{format}"
        );
        // A column that cannot be read does not affect a query that does not read it.
        assert_eq!(rows(&mut connection, &folder.sql("SELECT count(*) FROM '@/foreign'")), ["BigInt(2)"]);
        let (state, message) = error_in(&mut connection, &folder, "SELECT * FROM '@/foreign'");
        assert_eq!(state, "0A000");
        assert!(
            message.starts_with("column \"pair\" of file \"@/foreign\": a column of Arrow type Struct"),
            "{message}"
        );
        connection
            .execute("CREATE TABLE t (i integer, l varchar(4), w numeric(9, 1), k char(5), pair text)")
            .unwrap();
        run(&mut connection, &folder, &format!("COPY t (w, i, l, k) FROM '@/foreign' (FORMAT {format})"))
            .unwrap();
        assert_eq!(
            rows(&mut connection, "SELECT * FROM t WHERE i IS NOT NULL"),
            ["Integer(-7)|long|Numeric { unscaled: -123, scale: 1 }|key  |Null"]
        );
        let copy = format!("COPY t (pair) FROM '@/foreign' (FORMAT {format})");
        assert_eq!(error_in(&mut connection, &folder, &copy).0, "0A000");
        connection.execute("DROP TABLE t").unwrap();
    }
}

/// A dictionary may hold NULL among its values; Parquet's have none. And a decimal may have more digits than its type.
#[test]
fn what_arrow_files_alone_can_hold_is_read_or_refused() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE strict (t text NOT NULL); CREATE TABLE n (n numeric(5, 2))").unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some("e")]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![None, Some(&b"b"[..])]));
    let of = |values| Arc::new(DictionaryArray::<Int32Type>::new(vec![1, 0].into(), values)) as ArrayRef;
    let decimals = Decimal128Array::from(vec![12_345, 100_000]).with_precision_and_scale(5, 2).unwrap();
    let columns: [(&str, ArrayRef); 3] = [("t", of(texts)), ("b", of(bytes)), ("n", Arc::new(decimals))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = || File::create(folder.path("foreign")).unwrap();
    let arrow = || {
        let mut writer = arrow_ipc::writer::FileWriter::try_new(file(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    };
    let stream = || {
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(file(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    };
    let writes: [&dyn Fn(); 2] = [&arrow, &stream];
    for write in writes {
        write();
        let read = folder.sql("SELECT t, b FROM '@/foreign'");
        assert_eq!(rows(&mut connection, &read), ["e|Bytea([98])", "Null|Null"]);
        let copy = "COPY strict (t) FROM '@/foreign' (FORMAT arrow)";
        assert_eq!(error_in(&mut connection, &folder, copy).0, "23502");
        let message = "value 1000.00 of column \"n\" is out of range for type numeric(5,2)".to_owned();
        for sql in ["SELECT n FROM '@/foreign'", "COPY n (n) FROM '@/foreign' (FORMAT arrow)"] {
            let error = run(&mut connection, &folder, sql).unwrap_err();
            assert_eq!((error.state().as_str(), error.message()), ("22003", message.as_str()), "{sql}");
            let place = folder.sql("file \"@/foreign\", row 2 of a batch");
            assert_eq!(error.context(), Some(place.as_str()), "{sql}");
        }
    }
}

#[test]
fn columns_of_one_name_are_distinguished() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    let names = ["a", "a", "b", "a_1", "a"];
    let fields: Vec<Field> = names.map(|name| Field::new(name, DataType::Int32, true)).to_vec();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let columns = (0..5).map(|column| Arc::new(Int32Array::from(vec![column, column + 10])) as ArrayRef);
    let batch = RecordBatch::try_new(schema, columns.collect()).unwrap();
    let file = || File::create(folder.path("same")).unwrap();
    let parquet = || {
        let mut writer = ArrowWriter::try_new(file(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    let arrow = || {
        let mut writer = arrow_ipc::writer::FileWriter::try_new(file(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    };
    connection
        .execute("CREATE TABLE t (a integer, b integer); CREATE TABLE two (b integer, a_1 integer)")
        .unwrap();
    let kinds: [(&str, &dyn Fn()); 2] = [("parquet", &parquet), ("arrow", &arrow)];
    for (format, write) in kinds {
        write();
        for (query, expected) in [
            ("SELECT * FROM '@/same' WHERE a < 10", "Integer(0)|Integer(1)|Integer(2)|Integer(3)|Integer(4)"),
            (
                "SELECT a_3, a, a_1, a_2 FROM '@/same' WHERE a_2 = 11",
                "Integer(14)|Integer(10)|Integer(13)|Integer(11)",
            ),
            ("SELECT b FROM '@/same' WHERE a_1 = 3 AND a_3 = 4", "Integer(2)"),
            ("SELECT b FROM '@/same' WHERE a_2 = 13", ""),
        ] {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{format}: {query}");
        }
        let copy = format!("COPY t (a) FROM '@/same' (FORMAT {format})");
        let found = error_in(&mut connection, &folder, &copy);
        assert_eq!(found, ("42702".to_owned(), "the file has more than one column \"a\"".to_owned()));
        run(&mut connection, &folder, &format!("COPY two (b, a_1) FROM '@/same' (FORMAT {format})")).unwrap();
        assert_eq!(rows(&mut connection, "SELECT * FROM two WHERE b = 2"), ["Integer(2)|Integer(3)"]);
        connection.execute("TRUNCATE two").unwrap();
    }
}

#[test]
fn read_json_accepts_what_cannot_be_inferred() {
    let folder = Folder::new(&[
        ("late.json", &("{\"a\": 1, \"b\": \"x\"}\n".repeat(100_000) + "{\"a\": 1.5, \"z\": 7}\n")),
        ("long.json", &format!("{{\"t\": \"{}\", \"n\": 1}}\n", "x".repeat(2 << 20))),
        ("nothing.json", "{}\n"),
    ]);
    let mut connection = connection();
    for (query, expected) in [
        ("SELECT max(a)::text, max(b) FROM read_json('@/late.json', types => 'a numeric(5,1)')", "1.5|x"),
        (
            "SELECT count(z), max(z) FROM read_json('@/late.json', columns => 'z smallint')",
            "BigInt(1)|SmallInt(7)",
        ),
        (
            "SELECT n, length(t) FROM read_json('@/long.json', columns => 't text, n bigint')",
            "BigInt(1)|Integer(2097152)",
        ),
        ("SELECT a FROM read_json('@/nothing.json', columns => 'a date')", "Null"),
    ] {
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(query)).join(";"), expected, "{query}");
        }
    }
    for (read, state, message, hint) in [
        (
            "'@/late.json'",
            "22P02",
            "invalid input syntax for type bigint",
            "read_json('file.json', types => ",
        ),
        (
            "read_json('@/late.json', columns => 'a bigint')",
            "22P02",
            "invalid input syntax for type bigint",
            "",
        ),
        ("'@/long.json'", "22P04", "no columns were found", "read_json('file.json', columns => "),
        (
            "read_json('@/late.json', types => 'c bigint')",
            "42703",
            "has no column \"c\"",
            "Its columns are a, b.",
        ),
        (
            "read_json('@/late.json', types => 'a text', columns => 'a text')",
            "22023",
            "columns has all types",
            "read_json(",
        ),
        ("read_json('@/late.json', header => true)", "22023", "there is no option \"header\"", "read_json("),
    ] {
        let error = connection.execute(&folder.sql(&format!("SELECT max(a::text) FROM {read}"))).unwrap_err();
        assert_eq!(error.state(), SqlState::new(state), "{read}: {error:?}");
        assert!(error.message().contains(message), "{read}: {error:?}");
        let found = error.hint().unwrap_or_default();
        assert!(found.contains(hint) && hint.is_empty() == found.is_empty(), "{read}: {error:?}");
    }
}

#[test]
fn the_mark_that_ends_data_ends_json_as_well() {
    let folder = Folder::new(&[("t.json", "{\"n\": 1}\n\\.\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer)").unwrap();
    for data in ["{\"n\": 1}\n\n{\"n\": 2}\n\\.\n", "{\"n\": 1}\n{\"n\": 2}\r\n\\.\r\nno object\n"] {
        for piece in [1, data.len()] {
            let Outcome::CopyIn(mut copy) = begin(&mut connection, "COPY t FROM STDIN (FORMAT json)") else {
                panic!()
            };
            data.as_bytes().chunks(piece).for_each(|piece| copy.write_data(piece).unwrap());
            assert_eq!(copy.finish().unwrap().rows, Some(2));
        }
    }
    assert_eq!(run(&mut connection, &folder, "COPY t FROM '@/t.json' (FORMAT json)").unwrap(), 1);
    // A file that is read in place ends only at its end.
    let found = error_in(&mut connection, &folder, "SELECT n FROM '@/t.json'");
    assert_eq!(found, ("22P04".to_owned(), "a line is no JSON object".to_owned()));
}

#[test]
fn streams_without_rows_are_of_some_columns_all_the_same() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (i integer, t text); CREATE TABLE back (i integer, t text)").unwrap();
    let ours = sent(&mut connection, "COPY t TO STDOUT (FORMAT arrow)");
    let schema = foreign().schema();
    let others = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap().into_inner().unwrap();
    // A program that writes a stream may also end it without the mark.
    let unmarked = ours.strip_suffix(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).unwrap().to_vec();
    for data in [&ours, &unmarked] {
        std::fs::write(folder.path("t.arrows"), data).unwrap();
        assert!(rows(&mut connection, &folder.sql("SELECT i + 1, t FROM '@/t.arrows'")).is_empty());
        assert_eq!(rows(&mut connection, &folder.sql("SELECT count(i) FROM '@/t.arrows'")), ["BigInt(0)"]);
        let copied = run(&mut connection, &folder, "COPY back FROM '@/t.arrows' (FORMAT arrow)").unwrap();
        assert_eq!(copied, 0);
        for piece in [1, 7, data.len()] {
            let Outcome::CopyIn(mut copy) = begin(&mut connection, "COPY back FROM STDIN (FORMAT arrow)")
            else {
                panic!()
            };
            data.chunks(piece).for_each(|piece| copy.write_data(piece).unwrap());
            assert_eq!(copy.finish().unwrap().rows, Some(0));
        }
    }
    std::fs::write(folder.path("foreign"), others).unwrap();
    assert!(rows(&mut connection, &folder.sql("SELECT u, list FROM '@/foreign'")).is_empty());
    let error = run(&mut connection, &folder, "COPY back FROM '@/foreign' (FORMAT arrow)").unwrap_err();
    assert_eq!(error.state(), SqlState::UNDEFINED_COLUMN);
    // Data that ends before its columns are known is no stream.
    std::fs::write(folder.path("cut"), &ours[..40]).unwrap();
    assert_eq!(error_in(&mut connection, &folder, "SELECT * FROM '@/cut'").0, "22P04");
}

#[test]
fn a_duplicate_key_is_reported_with_its_table_for_every_source() {
    let folder = Folder::new(&[("t.csv", "1\n2\n1\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY)").unwrap();
    run(
        &mut connection,
        &folder,
        "COPY (SELECT 1 AS n UNION ALL SELECT 1) TO '@/t.parquet' (FORMAT parquet)",
    )
    .unwrap();
    for copy in ["COPY t FROM '@/t.csv'", "COPY t FROM '@/t.parquet' (FORMAT parquet)"] {
        let error = run(&mut connection, &folder, copy).unwrap_err();
        assert_eq!((error.state(), error.constraint()), (SqlState::UNIQUE_VIOLATION, Some("t_pkey")));
        assert_eq!((error.schema(), error.table()), (Some("public"), Some("t")), "{copy}");
    }
}

/// The second row group cannot be read, which only a query that needs it notices.
#[test]
fn row_groups_that_cannot_meet_a_condition_are_not_read() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    let rows_of = "SELECT n, 'key ' || n AS t, n::float8 AS f, n::numeric(9, 2) AS d, '2024-01-01'::date + n::integer AS day \
                   FROM generate_series(1, 2000) AS s(n)";
    let copy =
        format!("COPY ({rows_of}) TO '@/a.parquet' (FORMAT parquet, COMPRESSION none, ROW_GROUP_SIZE 1000)");
    run(&mut connection, &folder, &copy).unwrap();
    let path = folder.path("a.parquet");
    let read = File::open(&path).unwrap();
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&read).unwrap();
    assert_eq!(metadata.num_row_groups(), 2);
    let mut bytes = fs::read(&path).unwrap();
    for column in metadata.row_group(1).columns() {
        let (start, length) = column.byte_range();
        bytes[start as usize..(start + length) as usize].fill(0xff);
    }
    fs::write(&path, bytes).unwrap();
    for condition in [
        "n = 7",
        "n < 1000 AND n > 998",
        "d = 10",
        "day < '2024-02-01'",
        "f < 500",
        "n IN (3, 5)",
        "n IS NULL",
    ] {
        let count = folder.sql(&format!("SELECT count(t) FROM '@/a.parquet' WHERE {condition}"));
        connection.query(&count).unwrap_or_else(|error| panic!("{condition}: {error:?}"));
    }
    // NaN is larger than every number, and statistics do not contain it.
    for condition in ["true", "n = 1001", "n + 1 = 7", "t = 'key 1500'", "f > 5000"] {
        let count = folder.sql(&format!("SELECT count(t) FROM '@/a.parquet' WHERE {condition}"));
        let error = connection.query(&count).expect_err(condition);
        assert_eq!(error.state(), SqlState::BAD_COPY_FILE_FORMAT, "{condition}");
    }
    // A statistic that another writer leaves out is not assumed.
    let properties = WriterProperties::builder()
        .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None)
        .build();
    let batch = foreign().project(&[1, 3]).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert_eq!(rows(&mut connection, &folder.sql("SELECT l FROM '@/a.parquet' WHERE i = -7")), ["long"]);
    assert_eq!(rows(&mut connection, &folder.sql("SELECT l FROM '@/a.parquet' WHERE i IS NULL")), ["Null"]);
}

/// Every file that is cut off somewhere, and files with wrong bytes, either make an error or rows.
#[test]
fn damaged_files_make_errors() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute(EVERY_TYPE).unwrap();
    connection.execute("CREATE TABLE back (LIKE every)").unwrap();
    let mut random = 1_u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for (format, options) in
        [("parquet", ""), ("parquet", ", COMPRESSION none"), ("arrow", ""), ("arrow", ", COMPRESSION lz4")]
    {
        run(&mut connection, &folder, &format!("COPY every TO '@/whole' (FORMAT {format}{options})"))
            .unwrap();
        let whole = fs::read(folder.path("whole")).unwrap();
        let read = folder.sql(&format!("SELECT * FROM read_{format}('@/damaged')"));
        let copy = folder.sql(&format!("COPY back FROM '@/damaged' (FORMAT {format})"));
        for cut in (0..whole.len()).step_by(41) {
            fs::write(folder.path("damaged"), &whole[..cut]).unwrap();
            let error = connection.execute(&read).unwrap_err();
            assert_eq!(error.state(), SqlState::BAD_COPY_FILE_FORMAT, "{format} cut at {cut}: {error:?}");
            assert_eq!(connection.execute(&copy).unwrap_err().state(), SqlState::BAD_COPY_FILE_FORMAT);
        }
        for round in 0..400 {
            let mut bytes = whole.clone();
            let place = next(bytes.len());
            bytes[place] ^= 1 << next(8);
            if round % 4 == 0 {
                bytes[place] = 0xff;
            }
            fs::write(folder.path("damaged"), &bytes).unwrap();
            for sql in [&read, &copy] {
                if let Err(error) = connection.execute(sql) {
                    assert_ne!(error.state(), SqlState::INTERNAL_ERROR, "{format} byte {place}: {error:?}");
                }
            }
        }
    }
}

/// No text could restore them.
#[test]
fn strings_with_zero_bytes_stay_in_their_files() {
    let folder = Folder::new(&[]);
    let strings: ArrayRef = Arc::new(StringArray::from(vec!["whole", "in \0 two"]));
    let batch = RecordBatch::try_from_iter([("t", strings)]).unwrap();
    let file = File::create(folder.path("t.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut connection = connection();
    connection.execute("CREATE TABLE t (t text)").unwrap();
    for sql in [
        "COPY t FROM '@/t.parquet' (FORMAT parquet)",
        "INSERT INTO t SELECT t FROM '@/t.parquet'",
        "CREATE TABLE u AS SELECT * FROM '@/t.parquet'",
    ] {
        let (state, message) = error_in(&mut connection, &folder, sql);
        assert_eq!(
            (&*state, &*message),
            ("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"),
            "{sql}"
        );
    }
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
}
