//! What a session promises of files that have been read before: the same answers, from a smaller part of the file.

use crate::file_tests::{Folder, rows};
use crate::{Connection, Database};
use firn_base::SqlState;
use firn_base::random::Random;
use std::fs;
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// A database that cuts files into chunks of this size.
fn database(chunk_bytes: usize) -> Database {
    let database = Database::memory().unwrap();
    database.shared.facts.zones.set_chunk_bytes(chunk_bytes);
    database
}

/// The number of files that have zones.
fn known(database: &Database) -> usize {
    database.shared.facts.zones.len()
}

/// Writes a file whose modification time is `seconds_ago`, which may be negative: a file modified just now is not remembered.
fn write(folder: &Folder, name: &str, content: &str, seconds_ago: i64) {
    fs::write(folder.path(name), content).unwrap();
    let file = fs::File::options().write(true).open(folder.path(name)).unwrap();
    let (now, distance) = (SystemTime::now(), Duration::from_secs(seconds_ago.unsigned_abs()));
    file.set_modified(if seconds_ago < 0 { now + distance } else { now - distance }).unwrap();
}

/// What a query has read of files: rows skipped, and bytes read.
fn counters(connection: &mut Connection, sql: &str) -> (u64, u64) {
    let zones = connection.facts.zones.clone();
    let before = zones.totals();
    rows(connection, sql);
    let after = zones.totals();
    (after.rows_passed_over - before.rows_passed_over, after.bytes_read - before.bytes_read)
}

/// Rows with rising numbers.
fn rising(rows: Range<u32>) -> String {
    rows.map(|row| format!("{row},day {row:03},{}\n", row % 7)).collect()
}

#[test]
fn a_later_query_reads_only_chunks_that_may_meet_its_condition() {
    let folder = Folder::new(&[]);
    let content = format!("n,t,d\n{}", rising(0..500));
    write(&folder, "a.csv", &content, 60);
    let database = database(200);
    let mut connection = database.connect();
    let read = |condition: &str| folder.sql(&format!("SELECT n, t FROM '@/a.csv' WHERE {condition}"));
    let whole = content.len() as u64;
    // The first query reads the whole file, but of rows outside the condition only the condition's column.
    let (passed_over, bytes) = counters(&mut connection, &read("n = 450"));
    assert!(
        passed_over == 499 && bytes.abs_diff(whole) < 100,
        "{passed_over} rows, {bytes} of {whole} bytes"
    );
    for (condition, most) in [
        ("n = 450", 500),
        ("n BETWEEN 100 AND 110", 800),
        ("n IN (1, 450, 499)", 1_500),
        ("n < 0", 0),
        ("n IS NULL", 0),
        ("n > 490 AND n % 2 = 0", 800),
    ] {
        let (passed_over, bytes) = counters(&mut connection, &read(condition));
        assert!(bytes <= most && passed_over >= 400, "{condition}: {passed_over} rows, {bytes} bytes");
    }
    assert_eq!(rows(&mut connection, &read("n = 450")), ["BigInt(450)|day 450"]);
    // No query has read this column as a whole; from then on it is known as well, to every session.
    assert!(counters(&mut connection, &read("t = 'day 007'")).1.abs_diff(whole) < 100);
    assert!(counters(&mut database.connect(), &read("t = 'day 007'")).1 <= 500);
    assert!(counters(&mut database.connect(), &read("t LIKE 'day 00%' AND n < 300")).1 <= 800);
    // How many rows there are is known, too.
    let count = folder.sql("SELECT count(*) FROM '@/a.csv'");
    assert_eq!(counters(&mut connection, &count), (0, 0));
    assert_eq!(rows(&mut connection, &count), ["BigInt(500)"]);
}

/// A value of each of four columns, as CSV and as JSON have it. Neighbours are alike, so that some chunks can be excluded.
fn random_values(random: &mut Random, row: i64) -> [(String, String); 4] {
    let mut pick = |values: &[(&str, &str)]| {
        let (csv, json) = values[random.uniform(0, values.len() as i64 - 1) as usize];
        (csv.to_owned(), json.to_owned())
    };
    let near = row / 20;
    let double = match near % 4 {
        0 => pick(&[("NaN", "\"NaN\""), ("1.5", "1.5"), ("-0.0", "-0.0")]),
        1 => pick(&[("0.0", "0.0"), ("-2.5", "-2.5"), ("", "null")]),
        2 => pick(&[("NaN", "\"NaN\"")]),
        _ => pick(&[("1e300", "1e300"), ("Infinity", "\"Infinity\""), ("7", "7.0")]),
    };
    let text = match near % 3 {
        0 => pick(&[("\"a\nb\"", "\"a\\nb\""), ("\"\"\"\"", "\"\\\"\""), ("b", "\"b\"")]),
        1 => {
            let (long, highest) =
                ("\"a, long one, of which not all is kept\"", format!("\"{}\"", "\u{10ffff}".repeat(20)));
            pick(&[(long, long), ("zz", "\"zz\""), (&highest, &highest)])
        }
        _ => pick(&[("", "null"), ("\"\"", "\"\""), ("ü", "\"ü\"")]),
    };
    let day = match near % 5 {
        4 => (String::new(), "null".to_owned()),
        _ => (format!("2024-02-{:02}", 1 + near % 28), format!("\"2024-02-{:02}\"", 1 + near % 28)),
    };
    [(row.to_string(), row.to_string()), double, text, day]
}

/// A condition over the columns n, x, t and d.
fn random_condition(random: &mut Random) -> String {
    let number = random.uniform(-5, 305);
    let day = random.uniform(1, 28);
    let comparison = ["=", "<>", "<", "<=", ">", ">="][random.uniform(0, 5) as usize];
    let double = ["'NaN'", "'0'", "'-0.0'", "'1.5'", "'Infinity'", "'-3'"][random.uniform(0, 5) as usize];
    let texts = ["'a'", "'b'", "''", "'a, long one, of which not all is kept'", "'zz'", "E'a\\nb'", "'ü'"];
    let text = texts[random.uniform(0, 6) as usize];
    match random.uniform(0, 12) {
        0 => format!("n {comparison} {number}"),
        1 => format!("n BETWEEN {number} AND {}", number + 30),
        2 => format!("n IN ({number}, 17, 250)"),
        3 => format!("x {comparison} {double}::double precision"),
        4 => "x IS NULL".to_owned(),
        5 => format!("t {comparison} {text}"),
        6 => "t IS NOT NULL AND t LIKE 'a%'".to_owned(),
        7 => format!("d {comparison} '2024-02-{day:02}'"),
        8 => format!("({}) AND {}", random_condition(random), random_condition(random)),
        9 => format!("({} OR {})", random_condition(random), random_condition(random)),
        10 => format!("NOT ({})", random_condition(random)),
        11 => format!("n > (SELECT min(n) + {number} FROM model)"),
        _ => format!("n + 1 {comparison} {number} AND length(t) < 5"),
    }
}

#[test]
fn answers_are_the_same_however_much_is_known() {
    // A table with the same rows is the model.
    for seed in 0..12 {
        let mut random = Random::seeded(seed);
        let folder = Folder::new(&[]);
        let is_json = seed % 4 == 3;
        let (name, mut file) = match is_json {
            true => ("a.json", String::new()),
            false => ("a.csv", "n,x,t,d\n".to_owned()),
        };
        for row in 0..300 {
            let [n, x, t, d] = random_values(&mut random, row);
            let line = match is_json {
                true => format!("{{\"n\": {}, \"x\": {}, \"t\": {}, \"d\": {}}}\n", n.1, x.1, t.1, d.1),
                false => format!("{},{},{},{}\n", n.0, x.0, t.0, d.0),
            };
            file.push_str(&line);
        }
        write(&folder, name, &file, 60);
        let database = database(random.uniform(1, 600) as usize);
        let mut connection = database.connect();
        // In JSON, doubles that are not finite, and dates, are strings.
        let typed = format!("SELECT n, x::double precision AS x, t, d::date AS d FROM '@/{name}'");
        connection.execute(&folder.sql(&format!("CREATE TABLE model AS {typed}"))).unwrap();
        connection.execute(&folder.sql(&format!("CREATE VIEW file AS {typed}"))).unwrap();
        for _ in 0..60 {
            let condition = random_condition(&mut random);
            let wanted = ["n", "n, t", "n, x, t, d", "n, d"][random.uniform(0, 3) as usize];
            let mut of = |relation: &str| {
                let sql = format!("SELECT {wanted} FROM {relation} WHERE {condition} ORDER BY n");
                rows(&mut connection, &sql)
            };
            assert_eq!(of("file"), of("model"), "seed {seed}: {condition}");
        }
    }
}

#[test]
fn zones_of_a_patterns_further_files_are_those_of_their_columns() {
    // Both columns are numbers: read by position, one would be taken for the other, with its zones.
    let folder = Folder::new(&[]);
    let file =
        |names: &str, row: fn(u32) -> String| format!("{names}\n{}", (0..400).map(row).collect::<String>());
    write(&folder, "a-1.csv", &file("up,down,t", |row| format!("{row},{},first\n", 1000 - row)), 60);
    write(&folder, "a-2.csv", &file("down,x,up", |row| format!("{},,{row}\n", 1000 - row)), 60);
    let database = database(200);
    let mut connection = database.connect();
    for wanted in ["up, down", "down, up", "down", "count(*)"] {
        for condition in ["up = 17", "down = 983", "down > 983 AND up > 15", "up = 983"] {
            let sql = folder.sql(&format!("SELECT {wanted} FROM '@/a-*.csv' WHERE {condition}"));
            let (both, expected) =
                (["BigInt(17)", "BigInt(983)"], if condition == "up = 983" { 0 } else { 2 });
            let row = match wanted {
                "up, down" => both.join("|"),
                "down, up" => [both[1], both[0]].join("|"),
                "down" => both[1].to_owned(),
                _ => format!("BigInt({expected})"),
            };
            let row = if condition.contains("AND") && wanted != "count(*)" {
                row.replace("17", "16").replace("983", "984")
            } else {
                row
            };
            for _ in 0..3 {
                let expected = if wanted == "count(*)" { 1 } else { expected };
                assert_eq!(rows(&mut connection, &sql), vec![row.clone(); expected], "{sql}");
            }
        }
    }
    // By now they are known, and each file has zones of its own.
    let read = folder.sql("SELECT up, down FROM '@/a-*.csv' WHERE down = 983");
    let (passed_over, bytes) = counters(&mut connection, &read);
    assert!(passed_over >= 780 && bytes <= 800, "{passed_over} rows, {bytes} bytes");
    let alone = folder.sql("SELECT up FROM '@/a-2.csv' WHERE down = 983");
    for _ in 0..2 {
        assert_eq!(rows(&mut connection, &alone), ["BigInt(17)"]);
    }
    // A column that the file lacks is still an error where all its other columns are known.
    let error = connection.execute(&folder.sql("SELECT t FROM '@/a-*.csv' WHERE up = 17")).unwrap_err();
    assert_eq!(
        (error.state(), error.message()),
        (SqlState::UNDEFINED_COLUMN, &*folder.sql("file \"@/a-2.csv\" has no column \"t\""))
    );
}

#[test]
fn a_file_that_has_changed_is_read_anew() {
    let folder = Folder::new(&[]);
    let database = database(50);
    let mut connection = database.connect();
    let sql = folder.sql("SELECT column2 FROM '@/a.csv' WHERE column1 = 5");
    write(&folder, "a.csv", &rising(0..40), 60);
    for _ in 0..2 {
        assert_eq!(rows(&mut connection, &sql), ["day 005"]);
    }
    // The same number of bytes with another time, and fewer bytes with the same time.
    write(&folder, "a.csv", &rising(0..40).replace("\n5,", "\n6,"), 50);
    assert!(rows(&mut connection, &sql).is_empty());
    write(&folder, "a.csv", &rising(0..30), 50);
    assert_eq!(rows(&mut connection, &sql), ["day 005"]);
    // A file that has just been written may be written again without a visible change.
    let files = known(&database);
    for number in 100..110 {
        write(&folder, "new.csv", &format!("{number},x\n"), -60);
        let sql = folder.sql(&format!("SELECT count(column2) FROM '@/new.csv' WHERE column1 = {number}"));
        assert_eq!(rows(&mut connection, &sql), ["BigInt(1)"]);
    }
    assert_eq!(known(&database), files);
}

#[test]
fn errors_are_found_with_and_without_zones() {
    let folder = Folder::new(&[]);
    // The sample is a megabyte, after which anything may follow.
    let mut content = String::from("n,m\n");
    content.extend((0..150_000).map(|row| format!("{row},{row}\n")));
    content.push_str("200000,many\n");
    write(&folder, "a.csv", &content, 60);
    let database = database(100_000);
    let mut connection = database.connect();
    let judged = folder.sql("SELECT sum(n) FROM '@/a.csv' WHERE m < 10");
    let met = folder.sql("SELECT count(m) FROM '@/a.csv' WHERE n > 199999");
    let left_out = folder.sql("SELECT count(m) FROM '@/a.csv' WHERE n < 10");
    for _ in 0..3 {
        for failing in [&judged, &met] {
            let error = connection.query(failing).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION);
            assert!(error.context().unwrap().ends_with("line 150002, column m: \"many\""), "{error:?}");
        }
        // Of rows that the condition leaves out no other column is read.
        assert_eq!(rows(&mut connection, &left_out), ["BigInt(10)"]);
    }
}

#[test]
fn a_query_that_breaks_off_leaves_nothing_that_could_mislead() {
    let folder = Folder::new(&[]);
    let content = rising(0..30_000);
    write(&folder, "a.csv", &content, 60);
    let database = database(1000);
    let mut connection = database.connect();
    let first = folder.sql("SELECT column1 FROM '@/a.csv' LIMIT 1");
    for _ in 0..3 {
        assert_eq!(rows(&mut connection, &first), ["BigInt(0)"]);
    }
    let count = folder.sql("SELECT count(*) FROM '@/a.csv' WHERE column1 >= 29990");
    assert_eq!(rows(&mut connection, &count), ["BigInt(10)"]);
    // A query that ends early adds what it has read: some chunks of its column are known, and others are read.
    let part = folder.sql("SELECT column3 FROM '@/a.csv' LIMIT 1");
    assert_eq!(rows(&mut connection, &part), ["BigInt(0)"]);
    let of_part = folder.sql("SELECT count(*) FROM '@/a.csv' WHERE column3 = 6");
    assert_eq!(rows(&mut connection, &of_part), ["BigInt(4285)"]);
    assert_eq!(rows(&mut connection, &count), ["BigInt(10)"]);
    assert!(counters(&mut connection, &count).1 < content.len() as u64 / 10);
}

#[test]
fn files_of_a_pattern_are_each_known() {
    let folder = Folder::new(&[]);
    for file in 0..5 {
        let content = format!("n,t,d\n{}", rising(file * 100..file * 100 + 100));
        write(&folder, &format!("part-{file}.csv"), &content, 60);
    }
    let database = database(100_000);
    let mut connection = database.connect();
    let read = folder.sql("SELECT n FROM '@/part-*.csv' WHERE n IN (99, 100, 250) ORDER BY n");
    let (_, first) = counters(&mut connection, &read);
    let (passed_over, second) = counters(&mut connection, &read);
    assert_eq!((passed_over, known(&database)), (497, 5));
    assert!(second < first * 2 / 3, "{second} bytes of {first}");
    assert_eq!(rows(&mut connection, &read), ["BigInt(99)", "BigInt(100)", "BigInt(250)"]);
    // The byte order mark at the beginning of some files is no part of their text.
    write(&folder, "marked.csv", &format!("\u{feff}n,t,d\n{}", rising(0..9)), 60);
    let marked = folder.sql("SELECT n FROM '@/marked.csv' WHERE t = 'day 008'");
    for _ in 0..3 {
        assert_eq!(rows(&mut connection, &marked), ["BigInt(8)"]);
    }
}

#[test]
fn queries_at_the_same_time_leave_each_other_what_they_find() {
    let folder = Folder::new(&[]);
    write(&folder, "a.csv", &rising(0..5000), 60);
    let database = database(300);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut connection = database.connect();
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..25_u32 {
                    let number = (round * 331 + thread * 97) % 5000;
                    let (column, value) = match (round + thread) % 3 {
                        0 => ("column1", number.to_string()),
                        1 => ("column2", format!("'day {number:03}'")),
                        _ => ("column1 * 2", (number * 2).to_string()),
                    };
                    let sql = format!("SELECT column1, column3 FROM '@/a.csv' WHERE {column} = {value}");
                    let read = rows(&mut connection, &folder.sql(&sql));
                    assert_eq!(read, [format!("BigInt({number})|BigInt({})", number % 7)], "{sql}");
                }
            });
        }
    });
    assert_eq!(known(&database), 1);
}

#[test]
fn lines_that_are_skipped_are_no_part_of_what_is_known() {
    let folder = Folder::new(&[]);
    let head = "# of May\n\"# and June\n";
    write(&folder, "a.csv", &format!("{head}n,t,d\n{}", rising(0..500)), 60);
    write(&folder, "marked.csv", &format!("\u{feff}{head}{}", rising(0..500)), 60);
    write(&folder, "short.csv", head, 60);
    for chunk_bytes in [200, 100_000] {
        let database = database(chunk_bytes);
        let mut connection = database.connect();
        for (file, header) in [("a.csv", "true"), ("marked.csv", "false")] {
            let columns = "columns => 'n bigint, t text, d bigint'";
            let read = format!("read_csv('@/{file}', skip => 2, header => {header}, {columns})");
            for _ in 0..3 {
                for (query, expected) in [
                    (format!("SELECT n, t FROM {read} WHERE n = 450"), "BigInt(450)|day 450"),
                    (format!("SELECT n, t FROM {read} WHERE t < 'day 001'"), "BigInt(0)|day 000"),
                    (format!("SELECT count(*) FROM {read}"), "BigInt(500)"),
                    (format!("SELECT count(*), max(d) FROM {read} WHERE n >= 490"), "BigInt(10)|BigInt(6)"),
                ] {
                    assert_eq!(rows(&mut connection, &folder.sql(&query)), [expected], "{query}");
                }
            }
            let sql = folder.sql(&format!("SELECT t FROM {read} WHERE n = 450"));
            let (passed_over, bytes) = counters(&mut connection, &sql);
            assert!(
                chunk_bytes > 1000 || passed_over > 400 && bytes < 500,
                "{passed_over} rows, {bytes} bytes"
            );
        }
        assert_eq!(known(&database), 2);
        let nothing = "SELECT count(*) FROM read_csv('@/short.csv', skip => 2, columns => 'n bigint')";
        for _ in 0..2 {
            assert_eq!(rows(&mut connection, &folder.sql(nothing)), ["BigInt(0)"]);
        }
    }
}
