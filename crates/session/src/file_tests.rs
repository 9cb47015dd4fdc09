//! What a session promises of files in queries: their content decides their columns, and queries see their current content.

use crate::server::ServerConnection as _;
use crate::{Connection, Database, Outcome, interrupted_tests};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use firn_base::disk::SimulatedDisk;
use firn_base::sync::Arc;
use firn_base::{SqlState, Value, thread};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A directory with files.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, content) in files {
            folder.write(name, content);
        }
        folder
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A statement with `@` for the directory.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace('@', &self.0.path().display().to_string())
    }
}

pub(crate) fn connection() -> Connection {
    Database::memory().unwrap().connect()
}

/// The rows of a query, values separated by `|`.
pub(crate) fn rows(connection: &mut Connection, sql: &str) -> Vec<String> {
    let statement = connection.prepare(sql).unwrap();
    let rows = connection.query_values(&statement, &[]).unwrap();
    let show = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    };
    rows.iter().map(|row| row.iter().map(show).collect::<Vec<_>>().join("|")).collect()
}

const ORDERS: &str =
    "id,customer,total,day\n1,Ada,10.5,2024-01-31\n2,\"Alan, T.\",,2024-02-29\n3,Ada,7,2024-03-01\n";

#[test]
fn a_file_is_a_table_whose_columns_are_inferred() {
    let folder = Folder::new(&[("orders.csv", ORDERS)]);
    let mut connection = connection();
    let all = rows(&mut connection, &folder.sql("SELECT * FROM '@/orders.csv'"));
    assert_eq!(
        all,
        [
            "BigInt(1)|Ada|Double(10.5)|Date(19753)",
            "BigInt(2)|Alan, T.|Null|Date(19782)",
            "BigInt(3)|Ada|Double(7.0)|Date(19783)"
        ]
    );
    let count = rows(&mut connection, &folder.sql("SELECT count(*) FROM '@/orders.csv' WHERE total > 7"));
    assert_eq!(count, ["BigInt(1)"]);
    // A file is named by its file name or its alias, and takes part in joins.
    let joined = "SELECT orders.id, o.customer FROM '@/orders.csv' JOIN '@/orders.csv' AS o ON o.id = orders.id + 1 ORDER BY 1";
    assert_eq!(rows(&mut connection, &folder.sql(joined)), ["BigInt(1)|Alan, T.", "BigInt(2)|Ada"]);
}

#[test]
fn tables_are_made_and_filled_from_files() {
    let folder = Folder::new(&[("orders.csv", ORDERS)]);
    let mut connection = connection();
    connection.execute(&folder.sql("CREATE TABLE t AS SELECT * FROM '@/orders.csv'")).unwrap();
    let types = "SELECT column_name || ' ' || data_type FROM information_schema.columns \
                 WHERE table_name = 't' ORDER BY ordinal_position";
    assert_eq!(
        rows(&mut connection, types),
        ["id bigint", "customer text", "total double precision", "day date"]
    );
    let inserted =
        connection.execute(&folder.sql("INSERT INTO t SELECT id + 10, customer FROM '@/orders.csv'"));
    assert_eq!(inserted.unwrap(), 3);
    assert_eq!(rows(&mut connection, "SELECT count(*), max(id) FROM t"), ["BigInt(6)|BigInt(13)"]);
    connection.execute(&folder.sql("CREATE VIEW v AS SELECT customer AS who FROM '@/orders.csv'")).unwrap();
    assert_eq!(rows(&mut connection, "SELECT DISTINCT who FROM v ORDER BY who"), ["Ada", "Alan, T."]);
}

#[test]
fn properties_of_a_file_can_be_given() {
    let folder = Folder::new(&[
        ("a.txt", "x;y\n1;NA\n"),
        ("part-1.csv", "n\n1\n2\n"),
        ("part-2.csv", "n\n3\n"),
        ("part-3.tsv", "n\n4\n"),
    ]);
    let mut connection = connection();
    let read = "SELECT * FROM read_csv('@/a.txt', delimiter => ';', header => false, null => 'NA')";
    assert_eq!(rows(&mut connection, &folder.sql(read)), ["x|y", "1|Null"]);
    let read = "SELECT sum(n) FROM read_csv('@/part-*.csv')";
    assert!(rows(&mut connection, &folder.sql(read))[0].contains('6'));
    for (sql, state, message) in [
        (
            "SELECT * FROM read_csv('@/a.txt', colour => 'red')",
            "22023",
            "read_csv: there is no option \"colour\"",
        ),
        (
            "SELECT * FROM read_csv('@/a.txt', delimiter => 'ab')",
            "22023",
            "read_csv: delimiter is a single ASCII character",
        ),
        ("SELECT * FROM read_csv()", "22023", "read_csv: the name of a file is missing"),
        (
            "SELECT * FROM '@/none.csv'",
            "58P01",
            "could not read file \"@/none.csv\": No such file or directory (os error 2)",
        ),
        ("SELECT * FROM read_csv('@/a.txt') WITH ORDINALITY", "0A000", "WITH ORDINALITY is not supported"),
        ("SELECT * FROM '@/none*.csv'", "58P01", "no files match \"@/none*.csv\""),
        ("SELECT z FROM '@/part-1.csv'", "42703", "column \"z\" does not exist"),
        ("INSERT INTO '@/part-1.csv' VALUES (1)", "42601", "syntax error at or near \"'@/part-1.csv'\""),
    ] {
        let error = connection.execute(&folder.sql(sql)).unwrap_err();
        assert_eq!((error.state(), error.message()), (SqlState::new(state), &*folder.sql(message)), "{sql}");
    }
}

#[test]
fn columns_of_further_csv_files_go_by_their_names() {
    let folder = Folder::new(&[
        ("a-1.csv", "id,name,total\n1,Ada,10.5\n2,,\n"),
        // Another order, with one more column between quotes, a byte order mark, and the line ends of other systems.
        ("a-2.csv", "\u{feff}total,\"more,\n\"\"\",name,id\r\n7.25,\"x\ny\",Alan,3\r\n,z,\"Ada, too\",4\r\n"),
        ("a-3.csv", "name,id\nGrace,5\n"),
        ("a-4.csv", ""),
        ("a-5.csv", "total,id,name"),
        ("b-1.csv", "n\n1\n"),
        ("b-2.csv", "2\n3\n"),
        ("c-1.csv", "1,x\n2,y\n"),
        ("c-2.csv", "3,z\n"),
        ("d-1.csv", "n,m\n1,2\n"),
        ("d-2.csv", "m;n\n1;2\n"),
        ("e-1.csv", "n,t\n1,x\n"),
        ("e-2.csv", "t,n\ny,many\n"),
        ("f-1.csv", "n\n1\n"),
        ("f-2.csv", "\"n\n1\n"),
        ("h-1.csv", "n,m,\n1,2,\n"),
        ("h-2.csv", "3,4,\n5,6,\n"),
        ("i-1.csv", ",n\n1,2\n"),
        ("i-2.csv", "n,\n4,3\n"),
        ("i-3.csv", ",n\n5,6\n"),
        ("j-1.csv", ",n\n1,2\n"),
        ("j-2.csv", ",\n3,4\n"),
        ("g-1.csv", "n\n1\n"),
        ("g-2.csv", &format!("{}\n", "x".repeat(2 << 20))),
    ]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Longer than the part of a file that is read first for its header.
    let more: String = (0..1000).map(|number| format!("more{number},")).collect();
    let row = format!("{more}name,id,total\n{}Edsger,6,1\n", ",".repeat(1000));
    packed.write_all(row.as_bytes()).unwrap();
    fs::write(folder.path("a-6.csv.gz"), packed.finish().unwrap()).unwrap();
    let mut connection = connection();
    let mut ask = |sql: &str| rows(&mut connection, &folder.sql(sql));
    let names = [
        "BigInt(1)|Ada",
        "BigInt(2)|Null",
        "BigInt(3)|Alan",
        "BigInt(4)|Ada, too",
        "BigInt(5)|Grace",
        "BigInt(6)|Edsger",
    ];
    assert_eq!(ask("SELECT id, name FROM '@/a-*' ORDER BY id"), names);
    // For every order of the columns, and whether all rows are read or those that meet a condition.
    assert_eq!(ask("SELECT name, id FROM '@/a-*' WHERE name LIKE 'Ada%' AND id > 1"), ["Ada, too|BigInt(4)"]);
    assert_eq!(ask("SELECT name FROM '@/a-*' WHERE id >= 5 ORDER BY name"), ["Edsger", "Grace"]);
    assert_eq!(ask("SELECT count(*) FROM '@/a-*'"), ["BigInt(6)"]);
    assert_eq!(
        ask("SELECT * FROM '@/a-[126]*' WHERE total < 11 ORDER BY id"),
        ["BigInt(1)|Ada|Double(10.5)", "BigInt(3)|Alan|Double(7.25)", "BigInt(6)|Edsger|Double(1.0)"]
    );
    // Without headers columns are matched by their positions.
    assert_eq!(ask("SELECT * FROM '@/c-*'"), ["BigInt(1)|x", "BigInt(2)|y", "BigInt(3)|z"]);
    // A column without a name is matched by its position.
    assert_eq!(ask("SELECT column1 FROM '@/i-[13].csv'"), ["BigInt(1)", "BigInt(5)"]);
    assert_eq!(ask("SELECT n FROM '@/i-*'"), ["BigInt(2)", "BigInt(4)", "BigInt(6)"]);
    for (sql, state, message, detail) in [
        (
            "SELECT sum(total) FROM '@/a-*'",
            "42703",
            "file \"@/a-3.csv\" has no column \"total\"",
            Some("Its first record is its header, as in the first file, and names \"name\", \"id\"."),
        ),
        (
            "SELECT count(*) FROM '@/a-*' WHERE total > 0",
            "42703",
            "file \"@/a-3.csv\" has no column \"total\"",
            Some("Its first record is its header, as in the first file, and names \"name\", \"id\"."),
        ),
        // No row that was taken for a header is lost, whichever columns are read.
        (
            "SELECT count(*) FROM '@/b-*'",
            "42703",
            "file \"@/b-2.csv\" has no column \"n\"",
            Some("Its first record is its header, as in the first file, and names \"2\"."),
        ),
        (
            "SELECT m FROM '@/d-*'",
            "42703",
            "file \"@/d-2.csv\" has no column \"n\"",
            Some("Its first record is its header, as in the first file, and names \"m;n\"."),
        ),
        // A column without a name is no sign of a header.
        (
            "SELECT count(*) FROM '@/h-*'",
            "42703",
            "file \"@/h-2.csv\" has no column \"n\"",
            Some("Its first record is its header, as in the first file, and names \"3\", \"4\"."),
        ),
        (
            "SELECT column1 FROM '@/j-*'",
            "42703",
            "file \"@/j-2.csv\" has no column \"n\"",
            Some("Its first record is its header, as in the first file, and names none."),
        ),
        (
            "SELECT column1 FROM '@/i-*'",
            "42703",
            "file \"@/i-2.csv\" has no column \"column1\"",
            Some("Its first record is its header, as in the first file, and names \"n\"."),
        ),
        ("SELECT n FROM '@/e-*'", "22P02", "invalid input syntax for type bigint: \"many\"", None),
        ("SELECT n FROM '@/f-*'", "22P04", "unterminated CSV quoted field", None),
        (
            "SELECT n FROM '@/g-*'",
            "22P04",
            "no columns were found in file \"@/g-2.csv\": no record ends in its first megabyte",
            None,
        ),
    ] {
        let error = connection.execute(&folder.sql(sql)).unwrap_err();
        assert_eq!((error.state(), error.message()), (SqlState::new(state), &*folder.sql(message)), "{sql}");
        assert_eq!(error.detail(), detail, "{sql}");
        let has_hint = matches!(state, "42703" | "22P02") || message.starts_with("unterminated");
        assert_eq!(error.hint().is_some(), has_hint, "{sql}");
    }
    assert_eq!(rows(&mut connection, &folder.sql("SELECT t FROM '@/e-*'")), ["x", "y"]);
}

#[test]
fn a_statement_reads_the_file_as_it_is_now() {
    let folder = Folder::new(&[("a.csv", "n\n1\n")]);
    let mut connection = connection();
    let sql = folder.sql("SELECT * FROM '@/a.csv'");
    let prepared = connection.prepare(&sql).unwrap();
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(1)]]);
    folder.write("a.csv", "n\n10\n20\n");
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(10)], [Value::BigInt(20)]]);
    folder.write("a.csv", "n,m\none,2.5\n");
    assert_eq!(rows(&mut connection, &sql), ["one|Double(2.5)"]);
    // So does one that reads all files of a pattern.
    let all = folder.sql("SELECT count(*) FROM '@/part-*.csv'");
    folder.write("part-1.csv", "n\n1\n");
    assert_eq!(rows(&mut connection, &all), ["BigInt(1)"]);
    folder.write("part-2.csv", "n\n2\n");
    assert_eq!(rows(&mut connection, &all), ["BigInt(2)"]);
    // A view has the columns that it was made with, wherever these are now.
    folder.write("v.csv", "\u{feff}a,b\n1,x\n");
    connection.execute(&folder.sql("CREATE VIEW v AS SELECT * FROM '@/v.csv'")).unwrap();
    folder.write("v.csv", "c,b,a\n2.5,x,1\n");
    assert_eq!(rows(&mut connection, "SELECT a, b FROM v"), ["BigInt(1)|x"]);
    // A client that was given other columns gets an error.
    let error = connection.query_values(&prepared, &[]).unwrap_err();
    assert_eq!(error.message(), "cached plan must not change result type");
}

#[test]
fn errors_after_the_sample_name_file_line_and_column() {
    let mut content = "n,t\n".to_owned();
    // Large enough that no file is read to its end while the first waits for its reader.
    let count = 2_000_000;
    for row in 0..count {
        content.push_str(&format!("{row},x\n"));
    }
    content.push_str("many,x\n");
    let folder = Folder::new(&[("a.csv", &content)]);
    let mut connection = connection();
    let error = connection.query(&folder.sql("SELECT sum(n) FROM '@/a.csv'")).unwrap_err();
    assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION);
    let place = format!("file \"@/a.csv\", line {}, column n: \"many\"", count + 2);
    assert_eq!(error.context().unwrap(), folder.sql(&place));
    assert!(error.hint().unwrap().contains("first megabyte"));
    // A column that is not read may hold anything, and a query that has enough rows does not reach it.
    let counted = rows(&mut connection, &folder.sql("SELECT count(t) FROM '@/a.csv'"));
    assert_eq!(counted, [format!("BigInt({})", count + 1)]);
    assert_eq!(rows(&mut connection, &folder.sql("SELECT n FROM '@/a.csv' LIMIT 1")), ["BigInt(0)"]);
}

#[test]
fn packed_files_are_read_and_copied() {
    let folder = Folder::new(&[]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(ORDERS.as_bytes()).unwrap();
    fs::write(folder.path("orders.csv.gz"), packed.finish().unwrap()).unwrap();
    let mut connection = connection();
    let sum = folder.sql("SELECT sum(total) FROM '@/orders.csv.gz'");
    assert_eq!(rows(&mut connection, &sum), ["Double(17.5)"]);
    connection.execute("CREATE TABLE t (id integer, customer text, total numeric(9, 2), day date)").unwrap();
    let copy = folder.sql("COPY t FROM '@/orders.csv.gz' (FORMAT csv, HEADER)");
    assert_eq!(connection.execute(&copy).unwrap(), 3);
}

#[test]
fn a_file_that_breaks_off_in_its_middle_is_not_one_that_cannot_be_opened() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY, t text)").unwrap();
    let source = "SELECT n, 'row ' || n * 7919 % 100003 FROM generate_series(1, 50000) AS g(n)";
    for packing in ["gzip", "zstd"] {
        let to = folder.sql(&format!("COPY ({source}) TO '@/whole' (FORMAT csv, COMPRESSION {packing})"));
        assert_eq!(connection.execute(&to).unwrap(), 50_000);
        let whole = fs::read(folder.path("whole")).unwrap();
        for bytes in [whole.len() / 2, whole.len() - 1] {
            fs::write(folder.path("damaged.csv"), &whole[..bytes]).unwrap();
            for sql in [
                "COPY t FROM '@/damaged.csv' (FORMAT csv)",
                "COPY t FROM '@/damaged.csv' (FORMAT csv, ON_ERROR ignore)",
                "BEGIN; TRUNCATE t; COPY t FROM '@/damaged.csv' (FORMAT csv)",
                "SELECT sum(column1) FROM '@/damaged.csv'",
            ] {
                let error = connection.execute(&folder.sql(sql)).unwrap_err();
                assert_eq!(error.state(), SqlState::BAD_COPY_FILE_FORMAT, "{packing} {sql}: {error}");
                let start = folder.sql("could not read file \"@/damaged.csv\": ");
                assert!(error.message().starts_with(&start), "{packing} {sql}: {error}");
                assert!(error.hint().unwrap().contains("damaged"));
                connection.execute("ROLLBACK").unwrap();
                assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
            }
        }
        connection.execute(&folder.sql("COPY t FROM '@/whole' (FORMAT csv)")).unwrap();
        connection.execute("TRUNCATE t").unwrap();
    }
    // The messages of the operating system.
    for (sql, state, message) in [
        ("COPY t FROM '/proc/self/mem'", SqlState::IO_ERROR, "could not read file \"/proc/self/mem\": "),
        ("COPY t FROM '/proc/self'", SqlState::WRONG_OBJECT_TYPE, "could not read file \"/proc/self\": "),
        ("COPY (SELECT 1) TO '/dev/full'", SqlState::DISK_FULL, "could not write file \"/dev/full\": "),
        (
            "COPY (SELECT 1) TO '/proc/none/file'",
            SqlState::UNDEFINED_FILE,
            "could not open file \"/proc/none/file\" for writing: ",
        ),
    ] {
        let error = connection.execute(sql).unwrap_err();
        assert_eq!(error.state(), state, "{sql}: {error}");
        assert!(error.message().starts_with(message), "{sql}: {error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_changed_byte_in_a_compressed_file_is_reported() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n text, m text)").unwrap();
    let source = "SELECT n, n * 7919 % 100003 FROM generate_series(1, 50000) AS g(n)";
    for packing in ["gzip", "zstd"] {
        let to = folder.sql(&format!("COPY ({source}) TO '@/packed' (FORMAT csv, COMPRESSION {packing})"));
        assert_eq!(connection.execute(&to).unwrap(), 50_000);
        let mut bytes = fs::read(folder.path("packed")).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(folder.path("packed"), bytes).unwrap();
        // Rows that the damage adds or removes are one thing, the damage is another.
        let copy = folder.sql("COPY t FROM '@/packed' (FORMAT csv, ON_ERROR ignore)");
        let error = connection.execute(&copy).unwrap_err();
        assert_eq!(error.state(), SqlState::BAD_COPY_FILE_FORMAT, "{packing}: {error}");
        assert!(error.message().starts_with("could not read file"), "{packing}: {error}");
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
    }
}

#[test]
fn rows_that_cannot_be_read_are_skipped_on_request() {
    let folder = Folder::new(&[("a.csv", "1,x\ntwo,y\n3\n4,z\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY, t text)").unwrap();
    let copy = |connection: &mut Connection, options: &str| {
        connection.execute(&folder.sql(&format!("COPY t FROM '@/a.csv' (FORMAT csv{options})")))
    };
    let error = copy(&mut connection, "").unwrap_err();
    assert_eq!(error.context(), Some("COPY t, line 2, column n: \"two\""));
    let error = copy(&mut connection, ", ON_ERROR ignore, REJECT_LIMIT 1").unwrap_err();
    assert_eq!(
        (error.message(), error.context()),
        (
            "skipped more than REJECT_LIMIT (1) rows, the last for: missing data for column \"t\"",
            Some("COPY t, line 3: \"3\"")
        )
    );
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"], "nothing is left of it");
    for options in
        ["REJECT_LIMIT 1", "ON_ERROR ignore, REJECT_LIMIT 0", "ON_ERROR maybe", "LOG_VERBOSITY loud"]
    {
        let error = copy(&mut connection, &format!(", {options}")).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE, "{options}");
    }
    for (limit, state) in [("99999999999999999999", "22003"), ("many", "22P02"), ("-1", "22023")] {
        let error = copy(&mut connection, &format!(", ON_ERROR ignore, REJECT_LIMIT '{limit}'")).unwrap_err();
        assert_eq!(error.state(), SqlState::new(state), "{limit}: {error}");
    }
    assert!(connection.take_notices().is_empty());
    assert_eq!(copy(&mut connection, ", ON_ERROR ignore, LOG_VERBOSITY verbose").unwrap(), 2);
    let notices: Vec<String> = connection
        .take_notices()
        .iter()
        .map(|notice| format!("{} | {}", notice.message(), notice.context().unwrap_or_default()))
        .collect();
    assert_eq!(
        notices,
        [
            "skipping row: invalid input syntax for type integer: \"two\" | COPY t, line 2, column n: \"two\"",
            "skipping row: missing data for column \"t\" | COPY t, line 3: \"3\"",
            "2 rows were skipped because they could not be read | ",
        ]
    );
    // A key that exists already is not a row that cannot be read.
    let error = copy(&mut connection, ", ON_ERROR ignore").unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
}

#[test]
fn what_several_threads_write_is_in_order_and_whole() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection
        .execute(
            "CREATE TABLE t AS SELECT n, 'row ' || n || repeat('-', 60) AS t, n % 7 = 0 AS b FROM generate_series(1, 100000) AS g(n);
             CREATE TABLE back (n integer, t text, b boolean, place bigserial)",
        )
        .unwrap();
    let sql = "COPY (SELECT * FROM t ORDER BY n) TO '@/t.csv' (FORMAT csv, HEADER)";
    assert_eq!(connection.execute(&folder.sql(sql)).unwrap(), 100_000);
    let mut expected = "n,t,b\n".to_owned();
    for n in 1..=100_000 {
        writeln!(expected, "{n},row {n}{},{}", "-".repeat(60), if n % 7 == 0 { 't' } else { 'f' }).unwrap();
    }
    assert!(fs::read_to_string(folder.path("t.csv")).unwrap() == expected);
    for format in [
        "csv, COMPRESSION gzip",
        "csv, COMPRESSION zstd",
        "text",
        "binary",
        "json",
        "json, COMPRESSION zstd",
        "arrow",
        "parquet, ROW_GROUP_SIZE 7001",
        "parquet",
    ] {
        let to = format!("COPY (SELECT * FROM t ORDER BY n) TO '@/file' (FORMAT {format})");
        assert_eq!(connection.execute(&folder.sql(&to)).unwrap(), 100_000, "{format}");
        let name = format.split(',').next().unwrap();
        let from =
            format!("TRUNCATE back RESTART IDENTITY; COPY back (n, t, b) FROM '@/file' (FORMAT {name})");
        connection.execute(&folder.sql(&from)).unwrap();
        let differ = "SELECT (SELECT count(*) FROM back WHERE n = place), count(*) FROM (SELECT * FROM t EXCEPT SELECT n, t, b FROM back) AS d";
        assert_eq!(rows(&mut connection, differ), ["BigInt(100000)|BigInt(0)"], "{format}");
    }
    let groups = folder.sql("SELECT count(*) FROM read_parquet('@/file') WHERE n > 99990");
    assert_eq!(rows(&mut connection, &groups), ["BigInt(10)"]);

    // A query without rows makes a file as well, and an error in the middle leaves none.
    for format in ["csv", "csv, COMPRESSION gzip", "json, COMPRESSION zstd", "parquet", "arrow"] {
        let to = format!("COPY (SELECT n FROM t WHERE n < 0) TO '@/none' (FORMAT {format})");
        assert_eq!(connection.execute(&folder.sql(&to)).unwrap(), 0);
        let name = format.split(',').next().unwrap();
        let from = format!("COPY back (n) FROM '@/none' (FORMAT {name})");
        assert_eq!(connection.execute(&folder.sql(&from)).unwrap(), 0, "{format}");
        let fails = format!("COPY (SELECT 1 / (n - 90000) FROM t ORDER BY n) TO '@/fails' (FORMAT {format})");
        let error = connection.execute(&folder.sql(&fails)).unwrap_err();
        assert_eq!(error.state(), SqlState::DIVISION_BY_ZERO, "{format}");
        assert!(!folder.path("fails").exists());
    }
}

#[test]
fn strings_of_files_fit_columns_that_have_a_length() {
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection
        .execute(
            "CREATE TABLE t (c char(4), v varchar(3)); CREATE TABLE u (c text, v text);
             INSERT INTO u VALUES ('ab', 'xyz'), ('äöüß', 'äöü'), ('abcd  ', 'abc   '), (NULL, NULL), ('', '')",
        )
        .unwrap();
    connection.execute(&folder.sql("COPY u TO '@/u.arrow' (FORMAT arrow)")).unwrap();
    connection.execute(&folder.sql("COPY t FROM '@/u.arrow' (FORMAT arrow)")).unwrap();
    let stored = rows(&mut connection, "SELECT octet_length(c), v FROM t");
    assert_eq!(stored, ["Integer(4)|xyz", "Integer(8)|äöü", "Integer(4)|abc", "Null|Null", "Integer(4)|"]);
    // The first row that does not fit is named, and nothing is stored.
    connection.execute("INSERT INTO u VALUES ('abcde', ''), ('', 'abcd')").unwrap();
    connection.execute(&folder.sql("COPY u TO '@/u.arrow' (FORMAT arrow)")).unwrap();
    let error = connection.execute(&folder.sql("COPY t FROM '@/u.arrow' (FORMAT arrow)")).unwrap_err();
    assert_eq!(error.message(), "value too long for type character(4)");
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(5)"]);
}

#[test]
fn rows_that_are_left_out_are_kept_in_a_table() {
    let folder = Folder::new(&[
        ("t.csv", "n,t\n1,a\ntwo,\"b\nb\"\n3\n4,d\n"),
        ("t.json", "{\"n\": 5, \"t\": \"e\"}\n{\"n\": []}\nno object\n"),
    ]);
    fs::write(folder.path("odd.csv"), b"6,f\n7,\xff\x00\n").unwrap();
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY, t text)").unwrap();
    let copy = |connection: &mut Connection, sql: &str| connection.execute(&folder.sql(sql));
    let kept = "SELECT line, column_name, value, reason, sqlstate, record FROM rejected ORDER BY line";

    // After a rollback nothing of it remains.
    let csv = "COPY t FROM '@/t.csv' (FORMAT csv, HEADER, ON_ERROR ignore, REJECTS_TABLE rejected";
    copy(&mut connection, &format!("{csv}, REJECT_LIMIT 1)")).unwrap_err();
    assert_eq!(connection.prepare(kept).err().unwrap().state(), SqlState::UNDEFINED_TABLE);
    connection.execute("BEGIN").unwrap();
    assert_eq!(copy(&mut connection, &format!("{csv})")).unwrap(), 2);
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM rejected"), ["BigInt(2)"]);
    connection.execute("ROLLBACK").unwrap();
    assert_eq!(connection.prepare(kept).err().unwrap().state(), SqlState::UNDEFINED_TABLE);

    assert_eq!(copy(&mut connection, &format!("{csv})")).unwrap(), 2);
    let of_csv = [
        "BigInt(4)|n|two|invalid input syntax for type integer: \"two\"|22P02|two,\"b\nb\"",
        "BigInt(5)|Null|Null|missing data for column \"t\"|22P04|3",
    ];
    assert_eq!(rows(&mut connection, kept), of_csv);
    let file = folder.sql("SELECT DISTINCT file = '@/t.csv' FROM rejected");
    assert_eq!(rows(&mut connection, &file), ["Boolean(true)"]);

    // An existing table stores them as well, and its own columns have their defaults.
    connection.execute("TRUNCATE rejected; ALTER TABLE rejected ADD COLUMN at integer DEFAULT 7").unwrap();
    copy(
        &mut connection,
        "COPY t FROM '@/t.json' (FORMAT json, ON_ERROR ignore, REJECTS_TABLE public.rejected)",
    )
    .unwrap();
    let of_json =
        rows(&mut connection, "SELECT line, column_name, value, record, at FROM rejected ORDER BY line");
    assert_eq!(
        of_json,
        ["BigInt(2)|n|[]|{\"n\": []}|Integer(7)", "BigInt(3)|Null|Null|no object|Integer(7)"]
    );
    connection.execute("TRUNCATE rejected").unwrap();
    copy(&mut connection, "COPY t FROM '@/odd.csv' (FORMAT csv, ON_ERROR ignore, REJECTS_TABLE rejected)")
        .unwrap();
    assert_eq!(rows(&mut connection, "SELECT line, record FROM rejected"), ["BigInt(2)|7,\u{fffd}\u{fffd}"]);

    // The same with data from a client.
    connection.execute("TRUNCATE rejected").unwrap();
    let statement =
        connection.prepare("COPY t FROM STDIN (ON_ERROR ignore, REJECTS_TABLE rejected)").unwrap();
    let Outcome::CopyIn(mut stdin) = connection.run(&statement, &[]).unwrap() else { panic!() };
    stdin.write_data(b"8\th\nnine\ti\n").unwrap();
    connection.finish_copy(*stdin).unwrap();
    let of_client = rows(&mut connection, "SELECT file, line, record FROM rejected");
    assert_eq!(of_client, ["STDIN|BigInt(2)|nine\ti"]);
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(5)"]);

    connection.execute("CREATE TABLE odd (file text, line integer); CREATE VIEW view AS SELECT 1").unwrap();
    for (table, state) in [
        ("odd", SqlState::DATATYPE_MISMATCH),
        ("view", SqlState::WRONG_OBJECT_TYPE),
        ("t", SqlState::INVALID_PARAMETER_VALUE),
        ("nowhere.t", SqlState::new("3F000")),
    ] {
        let sql = format!("COPY t FROM '@/t.csv' (FORMAT csv, ON_ERROR ignore, REJECTS_TABLE {table})");
        assert_eq!(copy(&mut connection, &sql).unwrap_err().state(), state, "{table}");
    }
}

#[test]
fn a_row_that_a_table_does_not_take_is_named_by_its_line() {
    let folder = Folder::new(&[
        ("twice.csv", "id,name\n1,a\n2,\"b\nb\"\n3,c\n2,d\n"),
        ("taken.csv", "5,e\n\"7\",\"f\n\"\n"),
        ("null.csv", "8,\n9,i\n,j\n"),
        ("negative.csv", "10,k\n-1,l\n"),
        ("lines.json", "{\"id\": 20}\n\n{\"id\": 20}\n"),
    ]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name text)").unwrap();
    connection.execute("INSERT INTO t VALUES (7, 'g')").unwrap();
    let mut copy = |sql: &str| connection.execute(&folder.sql(sql)).unwrap_err();

    let error = copy("COPY t FROM '@/twice.csv' (FORMAT csv, HEADER)");
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.detail(), Some("Key (id)=(2) already exists. The row on line 4 has it."));
    assert_eq!(error.context(), Some("COPY t, line 6"));
    let error = copy("COPY t FROM '@/taken.csv' (FORMAT csv)");
    assert_eq!(error.detail(), Some("Key (id)=(7) already exists."));
    assert_eq!(error.context(), Some("COPY t, line 3"));
    let error = copy("COPY t FROM '@/null.csv' (FORMAT csv)");
    assert_eq!((error.state(), error.context()), (SqlState::NOT_NULL_VIOLATION, Some("COPY t, line 3")));
    let error = copy("COPY t (id) FROM '@/lines.json' (FORMAT json)");
    assert_eq!(error.detail(), Some("Key (id)=(20) already exists. The row on line 1 has it."));
    assert_eq!(error.context(), Some("COPY t, line 3"));

    connection.execute("ALTER TABLE t ADD CHECK (id > 0)").unwrap();
    let error = connection.execute(&folder.sql("COPY t FROM '@/negative.csv' (FORMAT csv)")).unwrap_err();
    assert_eq!((error.state(), error.context()), (SqlState::CHECK_VIOLATION, Some("COPY t, line 2")));
    // With a condition only some of the lines are rows.
    let error = connection
        .execute(&folder.sql("COPY t FROM '@/twice.csv' (FORMAT csv, HEADER) WHERE id = 2"))
        .unwrap_err();
    assert_eq!(error.detail(), Some("Key (id)=(2) already exists."));
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(1)"]);
}

#[test]
fn a_duplicate_key_is_reported_with_both_places() {
    let folder = Folder::new(&[]);
    let rows_of_file = "SELECT (CASE i WHEN 99990 THEN 17 ELSE i END)::int AS id, \
         CASE WHEN i % 30000 = 0 THEN E'two\\nlines' ELSE 'row ' || i END AS name FROM generate_series(1, 100000) AS g(i) ORDER BY i";
    let mut writing = connection();
    for format in ["csv", "json", "binary", "parquet", "arrow"] {
        let to = format!("COPY ({rows_of_file}) TO '@/{format}' (FORMAT {format})");
        assert_eq!(writing.execute(&folder.sql(&to)).unwrap(), 100_000);
    }
    // In memory, and where redo is written to files before the commit.
    for database in [Database::memory().unwrap(), interrupted_tests::open(&SimulatedDisk::new())] {
        let mut connection = database.connect();
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, name text)").unwrap();
        for (opening, table) in [
            ("BEGIN", "t"),
            ("BEGIN; TRUNCATE t; INSERT INTO t VALUES (0, 'before')", "t"),
            ("BEGIN; CREATE TABLE own (name text, id int PRIMARY KEY); CREATE INDEX ON own (name)", "own"),
        ] {
            for (format, word, first, second) in [
                ("csv", "line", 17, 99_993),
                ("json", "line", 17, 99_990),
                ("binary", "line", 17, 99_990),
                ("parquet", "row", 17, 99_990),
                ("arrow", "row", 17, 99_990),
            ] {
                connection.execute(opening).unwrap();
                let copy = format!("COPY {table} (id, name) FROM '@/{format}' (FORMAT {format})");
                let error = connection.execute(&folder.sql(&copy)).unwrap_err();
                let other = match word {
                    "line" => format!("The row on line {first} has it."),
                    _ => format!("Row {first} has it."),
                };
                let detail = format!("Key (id)=(17) already exists. {other}");
                assert_eq!(error.detail(), Some(&*detail), "{opening} {format}");
                let context = format!("COPY {table}, {word} {second}");
                assert_eq!(error.context(), Some(&*context), "{opening} {format}");
                connection.execute("ROLLBACK").unwrap();
            }
        }
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(0)"]);
    }
}

/// Rows in no order: `number,text,number of few`, where the given rows replace those of their lines.
fn rows_in_no_order(count: usize, others: &[(usize, &str)]) -> String {
    let mut file = String::new();
    for line in 1..=count {
        match others.iter().find(|(other, _)| *other == line) {
            Some((_, row)) => writeln!(file, "{row}").unwrap(),
            None => {
                let id = line * 7_919 % 60_013;
                // Long, so that keys are entered before the end; and some are NULL.
                let name =
                    if id % 10 > 0 { format!("{}{id}", "customer ".repeat(40)) } else { String::new() };
                writeln!(file, "{id},{name},{}", id % 100).unwrap();
            }
        }
    }
    file
}

const IN_NO_ORDER: &str = "CREATE TABLE t (id bigint PRIMARY KEY, name text UNIQUE, few int NOT NULL); \
     CREATE INDEX ON t (few); CREATE INDEX ON t (few, name) WITH (values = off)";

#[test]
fn rows_of_a_file_in_no_order_are_found_by_all_their_keys() {
    let folder = Folder::new(&[("t.csv", &rows_in_no_order(60_000, &[]))]);
    let copy = folder.sql("COPY t FROM '@/t.csv' (FORMAT csv)");
    let select = folder.sql("INSERT INTO t SELECT * FROM read_csv('@/t.csv', header => false)");
    for (opening, load) in [("", &copy), ("BEGIN; ", &copy), ("BEGIN; TRUNCATE t; ", &copy), ("", &select)] {
        let mut connection = connection();
        connection.execute(IN_NO_ORDER).unwrap();
        connection.execute(&format!("{opening}{load}")).unwrap();
        if !opening.is_empty() {
            // It finds its own rows as well.
            assert_eq!(rows(&mut connection, "SELECT id % 100 FROM t WHERE id = 4711"), ["BigInt(11)"]);
            connection.execute("COMMIT").unwrap();
        }
        let found = |connection: &mut Connection, condition: &str| {
            rows(connection, &format!("SELECT count(*), min(id), max(id) FROM t WHERE {condition}"))[0]
                .clone()
        };
        assert_eq!(found(&mut connection, "true"), found(&mut connection, "id BETWEEN 0 AND 100000"));
        assert_eq!(found(&mut connection, "few = 17"), found(&mut connection, "id % 100 = 17"));
        assert_eq!(found(&mut connection, "few = 17 AND name > 'd'"), "BigInt(0)|Null|Null");
        for id in (1..60_000).step_by(997) {
            let name = format!("repeat('customer ', 40) || {id}");
            let of_id = found(&mut connection, &format!("id = {id}"));
            assert_eq!(of_id, format!("BigInt(1)|BigInt({id})|BigInt({id})"));
            if id % 10 > 0 {
                assert_eq!(found(&mut connection, &format!("name = {name}")), of_id);
                assert_eq!(found(&mut connection, &format!("few = {} AND name = {name}", id % 100)), of_id);
            }
            let twice = connection.execute(&format!("INSERT INTO t VALUES ({id}, 'x', 0)")).unwrap_err();
            assert_eq!(twice.detail(), Some(&*format!("Key (id)=({id}) already exists.")));
        }
        // No entry remains.
        connection.execute("DELETE FROM t").unwrap();
        connection.execute(load).unwrap();
    }
}

#[test]
fn the_first_error_of_an_unsorted_file_is_reported() {
    let id = |line: usize| line * 7_919 % 60_013;
    let name = |line: usize| format!("{}{}", "customer ".repeat(40), id(line));
    let (early, late) = (format!("{},a,1", id(20)), format!("{},b,1", id(10)));
    let named = format!("-7,{},1", name(30));
    let both = format!("{},{},1", id(40), name(30));
    let folder = Folder::new(&[]);
    let mut connection = connection();
    connection.execute(IN_NO_ORDER).unwrap();
    connection.execute("INSERT INTO t VALUES (-1, 'taken', 0)").unwrap();
    connection.execute("BEGIN; SAVEPOINT s").unwrap();
    let bad = "7,x,none";
    let null = "-8,y,";
    for (others, constraint, line, other) in [
        (vec![(45_000, &*early), (50_000, &late)], Some("t_pkey"), 45_000, Some(20)),
        (vec![(59_000, &*early), (50_000, &late)], Some("t_pkey"), 50_000, Some(10)),
        // The error of the first index, and of its first row.
        (vec![(55_000, &*early), (54_000, &named)], Some("t_name_key"), 54_000, Some(30)),
        (vec![(55_000, &*both)], Some("t_pkey"), 55_000, Some(40)),
        (vec![(33, "-1,c,1"), (34, &early)], Some("t_pkey"), 33, None),
        // Before and after errors that are found as rows are read and stored.
        (vec![(50_000, &*early), (55_001, bad)], Some("t_pkey"), 50_000, Some(20)),
        (vec![(55_000, bad), (55_001, &*early)], None, 55_000, None),
        (vec![(30_000, &*early), (55_000, null)], Some("t_pkey"), 30_000, Some(20)),
        (vec![(30_000, null), (55_000, &*early)], None, 30_000, None),
    ] {
        folder.write("t.csv", &rows_in_no_order(60_000, &others));
        let error = connection.execute(&folder.sql("COPY t FROM '@/t.csv' (FORMAT csv)")).unwrap_err();
        let context = error.context().expect("a line is named").to_owned();
        assert!(format!("{context},").starts_with(&format!("COPY t, line {line},")), "{context}");
        if constraint.is_some() {
            assert_eq!(
                (error.state(), error.constraint()),
                (SqlState::UNIQUE_VIOLATION, constraint),
                "{line}"
            );
            let detail = error.detail().expect("the key is named");
            match other {
                Some(other) => {
                    assert!(detail.ends_with(&format!("The row on line {other} has it.")), "{detail}")
                }
                None => assert!(detail.ends_with("already exists."), "{detail}"),
            }
        }
        connection.execute("ROLLBACK TO s").unwrap();
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), ["BigInt(1)"]);
    }
    // Nothing of all the failed loads is in the way.
    folder.write("t.csv", &rows_in_no_order(60_000, &[]));
    connection.execute(&folder.sql("COPY t FROM '@/t.csv' (FORMAT csv); COMMIT")).unwrap();
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t WHERE id >= -1"), ["BigInt(60001)"]);
    // Rows of a query have no lines.
    let select = "INSERT INTO t SELECT * FROM read_csv('@/t.csv', header => false)";
    connection.execute("DELETE FROM t WHERE id > 9").unwrap();
    let error = connection.execute(&folder.sql(select)).unwrap_err();
    assert_eq!((error.state(), error.constraint()), (SqlState::UNIQUE_VIOLATION, Some("t_pkey")));
    assert!(
        error.detail().is_some_and(|detail| detail.ends_with(" already exists.")),
        "{:?}",
        error.detail()
    );
}

/// The rows that are left out are stored in their own table one by one (it has a default that is no constant), while keys of
/// the COPY wait.
#[test]
fn rows_that_are_left_out_are_kept_beside_keys_that_wait() {
    let key_of = |line: usize| line * 7_919 % 60_013;
    let (bad, early) = ("7,x,none", format!("{},a,1", key_of(20)));
    let mut connection = connection();
    connection
        .execute(&format!(
            "{IN_NO_ORDER}; CREATE TABLE rejected (n bigserial PRIMARY KEY, file text, line bigint, column_name text, \
             value text, reason text, sqlstate text, record text)"
        ))
        .unwrap();
    let folder = Folder::new(&[]);
    let copy = folder.sql("COPY t FROM '@/t.csv' (FORMAT csv, ON_ERROR ignore, REJECTS_TABLE rejected)");
    folder.write("t.csv", &rows_in_no_order(60_000, &[(40_000, bad), (45_000, &early), (59_000, bad)]));
    let error = connection.execute(&copy).unwrap_err();
    assert_eq!((error.state(), error.constraint()), (SqlState::UNIQUE_VIOLATION, Some("t_pkey")));
    assert!(error.context().unwrap().starts_with("COPY t, line 45000"), "{:?}", error.context());
    assert!(error.detail().unwrap().ends_with("The row on line 20 has it."), "{:?}", error.detail());
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t, rejected"), ["BigInt(0)"]);
    // Keys of the rejects table may be taken too: of two errors the first is reported, and the rejected rows are not rows of the file.
    connection.execute("INSERT INTO rejected (n) SELECT * FROM generate_series(1, 9)").unwrap();
    let error = connection.execute(&copy).unwrap_err();
    assert_eq!(error.constraint(), Some("rejected_pkey"));
    assert!(error.context().is_none() && error.detail().unwrap().ends_with(") already exists."), "{error:?}");
    folder.write("t.csv", &rows_in_no_order(60_000, &[(30_000, &early), (40_000, bad), (59_000, bad)]));
    let error = connection.execute(&copy).unwrap_err();
    assert_eq!(error.constraint(), Some("t_pkey"));

    folder.write("t.csv", &rows_in_no_order(60_000, &[(40_000, bad), (59_000, bad)]));
    connection.execute("DELETE FROM rejected").unwrap();
    assert_eq!(connection.execute(&copy).unwrap(), 59_998);
    assert_eq!(
        rows(&mut connection, "SELECT line FROM rejected ORDER BY n"),
        ["BigInt(40000)", "BigInt(59000)"]
    );
    for line in [1, 39_999, 40_001, 60_000] {
        let found = rows(&mut connection, &format!("SELECT few FROM t WHERE id = {}", key_of(line)));
        assert_eq!(found, [format!("Integer({})", key_of(line) % 100)]);
    }
}

/// Keys of one large batch are inserted in several groups. An error's row number is counted from the first row of the batch.
#[test]
fn keys_of_a_large_batch_enter_as_it_is_stored() {
    const ROWS: i64 = 300_000;
    let key_of = |row: i64| row * 7_919 % 300_007;
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, other bigint)").unwrap();
    connection.execute("CREATE INDEX ON t (other)").unwrap();
    let statement = connection.prepare("COPY t FROM STDIN").unwrap();
    let batch = |others: &[(i64, i64)]| {
        let other = |row: i64| others.iter().find(|(of, _)| *of == row).map_or(row, |(_, other)| *other);
        let ids: Int64Array = (0..ROWS).map(|row| Some(key_of(other(row)))).collect();
        let others: Int64Array = (0..ROWS).map(|row| Some(key_of(row) % 1_000)).collect();
        RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("other", Arc::new(others))]).unwrap()
    };
    for (others, row, first) in
        [(vec![(200_000, 5)], 200_001, 6), (vec![(299_999, 7), (250_000, 249_000)], 250_001, 249_001)]
    {
        let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
        let error = copy.write_batch(&batch(&others)).and_then(|()| copy.finish()).unwrap_err();
        assert_eq!(error.constraint(), Some("t_pkey"));
        assert_eq!(error.context(), Some(&*format!("COPY t, row {row}")));
        assert!(error.detail().unwrap().ends_with(&format!("Row {first} has it.")), "{:?}", error.detail());
    }
    let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
    copy.write_batch(&batch(&[])).unwrap();
    copy.finish().unwrap();
    for row in [0, 65_535, 65_536, 131_072, ROWS - 1] {
        let found = format!("SELECT count(*) FROM t WHERE id = {0} AND other = {0} % 1000", key_of(row));
        assert_eq!(rows(&mut connection, &found), ["BigInt(1)"]);
    }
    let of_index =
        "SELECT count(*) = (SELECT count(*) FROM t WHERE other % 1000 = 17) FROM t WHERE other = 17";
    assert_eq!(rows(&mut connection, of_index), ["Boolean(true)"]);
}

/// A waiting key is not claimed yet: another transaction may take it, and then the load fails, as if it had come later.
#[test]
fn a_key_that_waits_may_be_taken_by_another() {
    for level in ["SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"] {
        for (commits, opens) in [(true, false), (true, true), (false, false), (false, true)] {
            let database = Database::memory().unwrap();
            let (mut loading, mut other) = (database.connect(), database.connect());
            loading.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)").unwrap();
            if opens {
                loading.execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1")).unwrap();
            } else {
                loading.execute(&format!("SET default_transaction_isolation = '{level}'")).unwrap();
            }
            let statement = loading.prepare("COPY t FROM STDIN").unwrap();
            let Outcome::CopyIn(mut copy) = loading.run(&statement, &[]).unwrap() else { panic!() };
            // Not in order, so that they wait.
            copy.write_data(b"3\tx\n1\tx\n2\tx\n").unwrap();
            other.execute("BEGIN; INSERT INTO t VALUES (1, 'other')").unwrap();
            other.execute(if commits { "COMMIT" } else { "ROLLBACK" }).unwrap();
            let ended = copy.finish();
            if opens {
                loading.execute(if ended.is_ok() { "COMMIT" } else { "ROLLBACK" }).unwrap();
            }
            let case = format!("{level} {commits} {opens}: {ended:?}");
            let found = rows(&mut other, "SELECT name FROM t WHERE id = 1");
            match commits {
                true => {
                    let error = ended.unwrap_err();
                    let expected = [SqlState::UNIQUE_VIOLATION, SqlState::SERIALIZATION_FAILURE];
                    assert!(expected.contains(&error.state()), "{case}");
                    assert_eq!(found, ["other"], "{case}");
                }
                false => {
                    assert_eq!((ended.unwrap().rows, &found[..]), (Some(3), &["x".to_owned()][..]), "{case}")
                }
            }
        }
    }
}

/// Two loads of the same rows at the same time: one stores them all, the other none, whichever keys each claims first.
#[test]
fn of_two_loads_of_the_same_keys_one_wins() {
    let folder = Folder::new(&[("t.csv", &rows_in_no_order(20_000, &[]))]);
    let copy = folder.sql("COPY t FROM '@/t.csv' (FORMAT csv)");
    for level in ["SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"] {
        let database = Database::memory().unwrap();
        database.connect().execute(IN_NO_ORDER).unwrap();
        let load = || {
            let mut connection = database.connect();
            connection.execute(&format!("SET default_transaction_isolation = '{level}'")).unwrap();
            connection.execute(&copy)
        };
        let ended = thread::scope(|scope| {
            let loads = ["one", "other"].map(|name| thread::spawn_scoped(scope, name, load));
            loads.map(|load| load.join().unwrap())
        });
        let allowed =
            [SqlState::UNIQUE_VIOLATION, SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK_DETECTED];
        for error in ended.iter().filter_map(|ended| ended.as_ref().err()) {
            assert!(allowed.contains(&error.state()), "{level}: {error}");
        }
        // A load that fails may make the other fail, but does not affect the rows of one that succeeds.
        let won = ended.iter().filter(|ended| ended.is_ok()).count();
        assert!(won <= 1, "{level}: {ended:?}");
        let mut connection = database.connect();
        let count = format!("BigInt({})", 20_000 * won);
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), [&*count], "{level}");
        assert_eq!(rows(&mut connection, "SELECT count(*) FROM t WHERE id >= 0"), [&*count], "{level}");
        if won == 0 {
            connection.execute(&copy).unwrap();
        }
    }
}

/// A table that the transaction has made or truncated is filled apart from others. Its rows become frozen; errors still name lines.
#[test]
fn a_duplicate_key_in_a_table_of_the_transaction_is_reported_by_line() {
    let early = format!("{},a,1", 20 * 7_919 % 60_013);
    let folder = Folder::new(&[("t.csv", &rows_in_no_order(60_000, &[(45_000, &early)]))]);
    let copy = folder.sql("COPY t FROM '@/t.csv' (FORMAT csv)");
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("db")).unwrap();
    let mut connection = database.connect();
    for opening in [format!("BEGIN; {IN_NO_ORDER}"), format!("{IN_NO_ORDER}; BEGIN; TRUNCATE t")] {
        connection.execute(&opening).unwrap();
        let error = connection.execute(&copy).unwrap_err();
        assert_eq!(error.constraint(), Some("t_pkey"));
        assert!(error.context().unwrap().starts_with("COPY t, line 45000"), "{:?}", error.context());
        assert!(error.detail().unwrap().ends_with("The row on line 20 has it."), "{:?}", error.detail());
        connection.execute("ROLLBACK").unwrap();
    }
}

/// A table for rejected rows that references the table which is filled finds its rows.
#[test]
fn rows_that_are_left_out_may_point_to_those_that_have_come() {
    let mut connection = connection();
    connection.execute(IN_NO_ORDER).unwrap();
    let columns =
        "file text, line bigint, column_name text, value text, reason text, sqlstate text, record text";
    connection
        .execute(&format!("CREATE TABLE rejected ({columns}, first bigint DEFAULT 7919 REFERENCES t)"))
        .unwrap();
    let folder = Folder::new(&[("t.csv", &rows_in_no_order(30_000, &[(20_000, "7,x,none")]))]);
    let copy = folder.sql("COPY t FROM '@/t.csv' (FORMAT csv, ON_ERROR ignore, REJECTS_TABLE rejected)");
    assert_eq!(connection.execute(&copy).unwrap(), 29_999);
    assert_eq!(rows(&mut connection, "SELECT line, first FROM rejected"), ["BigInt(20000)|BigInt(7919)"]);
}

#[test]
fn others_see_how_far_a_copy_is() {
    let folder = Folder::new(&[]);
    let database = Database::memory().unwrap();
    let (mut copying, mut looking, mut holding) =
        (database.connect(), database.connect(), database.connect());
    holding.execute("CREATE TABLE t (i int PRIMARY KEY)").unwrap();
    let seen = |looking: &mut Connection, relation: &str, columns: &str| {
        rows(looking, &format!("SELECT {columns} FROM {relation}"))
    };
    let ours = "relname, command, type, bytes, bytes_in_all, rows, rows_excluded, rows_skipped";
    let theirs = "relid = 't'::regclass, bytes_processed, bytes_total, tuples_processed, tuples_excluded";
    // From a client.
    let copy = copying.prepare("COPY t FROM STDIN (ON_ERROR ignore, FORMAT json) WHERE i > 1").unwrap();
    let Outcome::CopyIn(mut copy) = copying.run(&copy, &[]).unwrap() else { panic!() };
    let record = "{\"i\": 1}\n{\"i\": \"x\"}\n";
    copy.write_data(record.as_bytes()).unwrap();
    let line = |in_all: &str, rest: &str| format!("t|COPY FROM|{rest}").replace("@", in_all);
    assert_eq!(
        seen(&mut looking, "firn_stat_progress_copy", ours),
        [line("Null", "PIPE|BigInt(20)|@|BigInt(0)|BigInt(0)|BigInt(0)")]
    );
    copy.finish().unwrap();
    assert!(seen(&mut looking, "firn_stat_progress_copy", ours).is_empty());
    // From a pipe that is not at its end; the length of a file would be known.
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    std::thread::scope(|scope| {
        let sql = folder.sql("COPY t FROM '@/pipe' (FORMAT csv)");
        let copied = scope.spawn(move || copying.execute(&sql).map(|_| ()));
        let mut pipe = fs::OpenOptions::new().write(true).open(folder.path("pipe")).unwrap();
        pipe.write_all(b"5\n6\n7\n").unwrap();
        let read = "SELECT count(*) FROM firn_stat_progress_copy WHERE bytes > 0";
        while rows(&mut looking, read) != ["BigInt(1)"] && !copied.is_finished() {
            std::thread::yield_now();
        }
        let (of_ours, of_theirs) = (
            seen(&mut looking, "firn_stat_progress_copy", ours),
            seen(&mut looking, "pg_stat_progress_copy", theirs),
        );
        // If these assertions fail, no thread waits for ever.
        drop(pipe);
        copied.join().unwrap().unwrap();
        // What has been sent is stored a little later.
        let is_one_of = |found: &[String], line: &dyn Fn(u32) -> String| {
            assert!(found.len() == 1 && [0, 3].map(line).contains(&found[0]), "{found:?}");
        };
        is_one_of(&of_ours, &|rows| {
            line("Null", &format!("FILE|BigInt(6)|@|BigInt({rows})|BigInt(0)|BigInt(0)"))
        });
        is_one_of(&of_theirs, &|rows| format!("Boolean(true)|BigInt(6)|BigInt(0)|BigInt({rows})|BigInt(0)"));
    });
    assert!(seen(&mut looking, "firn_stat_progress_copy", ours).is_empty());
    // To a client.
    let copy = looking.prepare("COPY t TO STDOUT").unwrap();
    let Outcome::CopyOut(mut copy) = looking.run(&copy, &[]).unwrap() else { panic!() };
    assert_eq!(copy.next_chunk().unwrap().unwrap(), b"5\n6\n7\n");
    assert_eq!(
        seen(&mut holding, "firn_stat_progress_copy", "command, type, bytes, rows"),
        ["COPY TO|PIPE|BigInt(6)|BigInt(3)"]
    );
}

/// The rows of the table must meet its constraints, whenever the constraints were added.
#[test]
fn a_copy_does_not_keep_up_beyond_a_change_of_its_table() {
    for (isolation, in_block) in ["SERIALIZABLE", "READ COMMITTED", "REPEATABLE READ"]
        .into_iter()
        .flat_map(|isolation| [(isolation, true), (isolation, false)])
    {
        let database = Database::memory().unwrap();
        let (mut copying, mut changing) = (database.connect(), database.connect());
        changing.execute("CREATE TABLE t (i int)").unwrap();
        copying.execute(&format!("SET default_transaction_isolation = '{isolation}'")).unwrap();
        if in_block {
            copying.execute("BEGIN").unwrap();
        }
        let copy = copying.prepare("COPY t FROM STDIN").unwrap();
        let Outcome::CopyIn(mut copy) = copying.run(&copy, &[]).unwrap() else { panic!() };
        changing.execute("ALTER TABLE t ADD CHECK (i > 0)").unwrap();
        // Long enough for it to advance its snapshot before its first row.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let outcome = copy.write_data(b"-1\n").and_then(|()| copy.finish()).map(|_| ());
        let error = outcome.unwrap_err();
        assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE, "{isolation}: {error}");
        if in_block {
            copying.execute("ROLLBACK").unwrap();
        }
        assert_eq!(rows(&mut changing, "SELECT count(*) FROM t"), ["BigInt(0)"]);
    }
}

/// While a COPY runs for long, old versions are collected, unless it reads rows by its snapshot.
#[test]
fn a_copy_of_its_own_holds_no_versions_back() {
    let database = Database::memory().unwrap();
    let (mut copying, mut changing) = (database.connect(), database.connect());
    changing.execute("CREATE TABLE hot (i int PRIMARY KEY)").unwrap();
    changing.execute("INSERT INTO hot VALUES (0)").unwrap();
    changing.execute("CREATE TABLE free (i int PRIMARY KEY)").unwrap();
    changing.execute("CREATE TABLE pointing (i int REFERENCES hot)").unwrap();
    for (table, holds_back, in_block) in
        [("free", false, false), ("pointing", true, false), ("free", false, true)]
    {
        if in_block {
            copying.execute("TRUNCATE free").unwrap();
            copying.execute("BEGIN").unwrap();
        }
        let copy = copying.prepare(&format!("COPY {table} FROM STDIN")).unwrap();
        let Outcome::CopyIn(mut copy) = copying.run(&copy, &[]).unwrap() else { panic!() };
        copy.write_data(b"0\n").unwrap();
        for _ in 0..200 {
            changing.execute("INSERT INTO hot VALUES (1)").unwrap();
            changing.execute("DELETE FROM hot WHERE i = 1").unwrap();
        }
        let begun = std::time::Instant::now();
        while !holds_back && database.engine().garbage_backlog() > 100 {
            assert!(begun.elapsed().as_secs() < 60, "nothing is collected");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(database.engine().garbage_backlog() > 100, holds_back);
        copying.finish_copy(*copy).unwrap();
        if in_block {
            // From here on it reads the current rows.
            assert_eq!(rows(&mut copying, "SELECT count(*) FROM hot"), ["BigInt(1)"]);
            changing.execute("INSERT INTO hot VALUES (2)").unwrap();
            assert_eq!(rows(&mut copying, "SELECT count(*) FROM hot"), ["BigInt(1)"]);
            // Its commit depends on what it reads.
            let error = copying.execute("COMMIT").map(|_| ()).unwrap_err();
            assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
            continue;
        }
        assert_eq!(rows(&mut changing, &format!("SELECT * FROM {table}")), ["Integer(0)"]);
    }
}

/// The error for a taken key counts as a read, also of a COPY without a snapshot: a transaction that continues after it depends on it.
#[test]
fn a_copy_that_found_a_key_taken_has_read_that() {
    // With a CHECK rows are inserted one by one, without as a batch.
    for check in ["", ", CHECK (a > 0)"] {
        for goes in [false, true] {
            let database = Database::memory().unwrap();
            let (mut copying, mut changing) = (database.connect(), database.connect());
            changing.execute(&format!("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE{check})")).unwrap();
            changing.execute("INSERT INTO t VALUES (1, 1)").unwrap();
            copying.execute("BEGIN").unwrap();
            copying.execute("SAVEPOINT s").unwrap();
            let copy = copying.prepare("COPY t FROM STDIN").unwrap();
            let Outcome::CopyIn(mut copy) = copying.run(&copy, &[]).unwrap() else { panic!() };
            let outcome = copy.write_data(b"2\t1\n").and_then(|()| copying.finish_copy(*copy).map(|_| ()));
            let error = outcome.unwrap_err();
            assert_eq!((error.state(), error.constraint()), (SqlState::UNIQUE_VIOLATION, Some("t_b_key")));
            copying.execute("ROLLBACK TO s").unwrap();
            if goes {
                changing.execute("DELETE FROM t").unwrap();
            }
            copying.execute("INSERT INTO t VALUES (3, 3)").unwrap();
            let committed = copying.execute("COMMIT").map(|_| ());
            match goes {
                true => assert_eq!(committed.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE),
                false => committed.unwrap(),
            }
        }
    }
}

/// A COPY that has not stored a row yet does not lock its table.
#[test]
fn a_copy_whose_table_was_dropped_before_its_first_row_reports_it() {
    for check in ["", ", CHECK (i > 0)"] {
        let database = Database::memory().unwrap();
        let (mut copying, mut changing) = (database.connect(), database.connect());
        changing.execute(&format!("CREATE TABLE t (i int{check})")).unwrap();
        let copy = copying.prepare("COPY t FROM STDIN").unwrap();
        let Outcome::CopyIn(mut copy) = copying.run(&copy, &[]).unwrap() else { panic!() };
        changing.execute("DROP TABLE t").unwrap();
        // Until the lock is released.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let error = copy.write_data(b"-1\n").and_then(|()| copy.finish().map(|_| ())).unwrap_err();
        assert_ne!(error.state(), SqlState::INTERNAL_ERROR, "{error}");
        assert_eq!(rows(&mut copying, "SELECT 1"), ["Integer(1)"]);
    }
}

/// Data that was read from a pipe cannot be read again, so the statement is not run again.
#[test]
fn a_copy_of_a_pipe_that_meets_a_conflict_stores_nothing() {
    let folder = Folder::new(&[]);
    let database = Database::memory().unwrap();
    let (mut copying, mut holding) = (database.connect(), database.connect());
    holding.execute("CREATE TABLE t (i int PRIMARY KEY)").unwrap();
    holding.execute("BEGIN").unwrap();
    holding.execute("INSERT INTO t VALUES (2)").unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    std::thread::scope(|scope| {
        let sql = folder.sql("COPY t FROM '@/pipe' (FORMAT csv)");
        let copied = scope.spawn(move || copying.execute(&sql).map(|_| ()));
        let mut pipe = fs::OpenOptions::new().write(true).open(folder.path("pipe")).unwrap();
        pipe.write_all(b"1\n2\n3\n").unwrap();
        drop(pipe);
        // It waits for the end of the other by now, or comes later and finds the row deleted.
        std::thread::sleep(std::time::Duration::from_millis(200));
        holding.execute("ROLLBACK").unwrap();
        let outcome = copied.join().unwrap();
        if let Err(error) = outcome {
            assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
            assert!(error.hint().is_some());
            assert_eq!(rows(&mut holding, "SELECT count(*) FROM t"), ["BigInt(0)"]);
        } else {
            assert_eq!(rows(&mut holding, "SELECT count(*) FROM t"), ["BigInt(3)"]);
        }
    });
}
