//! What is inferred from files of all kinds, and that files are read accordingly.

use crate::sniff::{Known, sniff};
use crate::{Batch, CopyHeader, CopyReader, NO_QUOTE};
use arrow_array::cast::AsArray;
use firn_base::{Error, SqlType, TextStyle};

/// `delimiter [header]: name type, …`, and how many rows are read so, or the SQLSTATE of the first error.
fn seen(file: &[u8], known: &Known) -> String {
    let sniffed = sniff(file, known);
    let mut reader =
        CopyReader::new("COPY t", sniffed.columns.clone(), sniffed.options.clone(), TextStyle::DEFAULT)
            .unwrap();
    let read = reader.push(file).and_then(|()| reader.finish());
    let rows: usize = std::iter::from_fn(|| reader.next_batch()).map(|batch| batch.rows).sum();
    let read = read.map_or_else(|error: Error| error.state().to_string(), |()| rows.to_string());
    let columns: Vec<String> =
        sniffed.columns.iter().map(|(name, ty)| format!("{name} {}", short(*ty))).collect();
    let header = if sniffed.options.header == CopyHeader::Yes { " header" } else { "" };
    format!("{:?}{header}: {} = {read}", char::from(sniffed.options.delimiter), columns.join(", "))
}

fn short(ty: SqlType) -> String {
    match ty {
        SqlType::Double => "double".to_owned(),
        SqlType::Time => "time".to_owned(),
        SqlType::Timestamp => "timestamp".to_owned(),
        SqlType::TimestampTz => "timestamptz".to_owned(),
        ty => ty.to_string(),
    }
}

#[test]
fn given_properties_of_a_file_are_not_inferred() {
    let known = Known::default();
    let (bigint, text) = (SqlType::BigInt, SqlType::Text);
    let columns = |columns: &[(&str, SqlType)]| {
        Some(columns.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect())
    };
    for (file, known, expected) in [
        (
            "Report; of May\n\"\nid,n\n1,2\n3,4\n",
            Known { skip: 2, ..known.clone() },
            "',' header: id bigint, n bigint = 2",
        ),
        ("id\n1\n", Known { skip: 3, ..known.clone() }, "',':  = 0"),
        ("id,n\n1,2\n3,4\n", Known { all_text: true, ..known.clone() }, "',' header: id text, n text = 2"),
        (
            "id,n\n1,2\n",
            Known { columns: columns(&[("k", SqlType::Integer), ("v", text)]), ..known.clone() },
            "',' header: k integer, v text = 1",
        ),
        (
            "1,2\n3,4\n",
            Known { columns: columns(&[("k", SqlType::SmallInt), ("v", text)]), ..known.clone() },
            "',': k smallint, v text = 2",
        ),
        // All columns are text; the header is recognized by its names alone.
        (
            "First,last\nfirst,x\nFirst,y\n",
            Known { columns: columns(&[("first", text), ("last", text)]), ..known.clone() },
            "',' header: first text, last text = 2",
        ),
        (
            "a,b\n1,2\n",
            Known { columns: columns(&[("a", bigint)]), ..known.clone() },
            "',' header: a bigint = 22P04",
        ),
    ] {
        assert_eq!(seen(file.as_bytes(), &known), expected, "{file:?}");
    }
}

#[test]
fn quotes_that_are_none_stand_for_themselves() {
    // Inches and feet, which are no quotes.
    let both = "pipe,feet,n\n12\" long,3',1\n\"half,5'6,2\nx,y,3\n";
    let one = "pipe,feet,n\n12\" long,3',1\nhalf,5,2\nx,y,3\n";
    let rows = |file: &str, known: &Known| {
        let sniffed = sniff(file.as_bytes(), known);
        let mut reader =
            CopyReader::new("COPY t", sniffed.columns, sniffed.options, TextStyle::DEFAULT).unwrap();
        reader.push(file.as_bytes()).and_then(|()| reader.finish()).unwrap();
        let batches: Vec<Batch> = std::iter::from_fn(|| reader.next_batch()).collect();
        let column = |at: usize| {
            let values = batches.iter().flat_map(|batch| batch.columns[at].as_string_view().iter().flatten());
            values.collect::<Vec<_>>().join("|")
        };
        (column(0), column(1))
    };
    let known = Known { quote: Some(NO_QUOTE), ..Known::default() };
    assert_eq!(rows(both, &known), ("12\" long|\"half|x".to_owned(), "3'|5'6|y".to_owned()));
    // A quote that is not closed is not recognized as a quote.
    assert_eq!(rows(one, &Known::default()), ("12\" long|half|x".to_owned(), "3'|5|y".to_owned()));
    // Apostrophes within words are letters, however many there are.
    let words = "pipe,note,n\n12\" long,it's,1\nhalf,Bob's and Al's,2\nx,don't,3\n";
    assert_eq!(rows(words, &Known::default()).1, "it's|Bob's and Al's|don't");
    // Several of them in consecutive records neither join these nor are lost, and neither are those around words.
    let even = "pipe,note,n\n5\" pipe,Dwayne \"The Rock\" Johnson,1\n7\" pipe,x,2\nplain,5\" x, 3\n";
    let expected = ("5\" pipe|7\" pipe|plain", "Dwayne \"The Rock\" Johnson|x|5\" x");
    assert_eq!(rows(even, &Known::default()), (expected.0.to_owned(), expected.1.to_owned()));
    let known = Known { quote: Some(b'"'), ..Known::default() };
    assert_eq!(rows(even, &known), (expected.0.to_owned(), expected.1.to_owned()));
    // Beside quoted fields as well, also where these follow them.
    let mixed = "pipe,note,n\n\"a, \"\"b\"\"\",5\",1\n7\" pipe,\"c\nd\",2\ne,\"f\" g \"h\",3\n";
    let expected = ("a, \"b\"|7\" pipe|e", "5\"|c\nd|f g \"h\"");
    assert_eq!(rows(mixed, &Known::default()), (expected.0.to_owned(), expected.1.to_owned()));
    let escaped = mixed.replace("\"\"b\"\"", "\\\"b\\\"");
    let known = Known { escape: Some(b'\\'), ..Known::default() };
    assert_eq!(rows(&escaped, &known), (expected.0.to_owned(), expected.1.to_owned()));
    let late = format!("pipe,note,n\n{}\"x, y\",\"z\",0\n", "5\" pipe,x,1\n".repeat(100_000));
    assert!(rows(&late, &Known::default()).0.ends_with("|5\" pipe|x, y"));
    // Blanks before quotes do not make the quoted commas delimiters.
    let blanks = "name, note, n\nAda, \"Ockham, Surrey\", 1\nAlan, \"x\", 2\n";
    assert_eq!(rows(blanks, &Known::default()), ("Ada|Alan".to_owned(), " Ockham, Surrey| x".to_owned()));
    // Where quotes fit as well, they are quotes.
    check(&[("a,b\n\"x\",1\n\"y\",2\n", "',' header: a text, b bigint = 2")]);
}

fn check(cases: &[(&str, &str)]) {
    for (file, expected) in cases {
        assert_eq!(seen(file.as_bytes(), &Known::default()), *expected, "{file:?}");
    }
}

#[test]
fn right_files_are_seen_as_what_they_are() {
    check(&[
        ("id,name\n1,x\n2,y\n", "',' header: id bigint, name text = 2"),
        ("id,name\r\n1,x\r\n2,y\r\n", "',' header: id bigint, name text = 2"),
        ("id,name\n1,x\n2,y", "',' header: id bigint, name text = 2"),
        ("name,place\nAda,\"Ockham, Surrey\"\n,\"a, b, c\"\n", "',' header: name text, place text = 2"),
        ("a,b,c\n1,\"\",\n,,3\n", "',' header: a bigint, b text, c bigint = 2"),
        ("a,b,c\r\n1,\"\",\r\n,,3\r\n", "',' header: a bigint, b text, c bigint = 2"),
        ("a,b\n1,\"he said \"\"no\"\"\"\n2,\"\"\"\"\n", "',' header: a bigint, b text = 2"),
        ("k,v\n1,\"{\"\"a\"\": [1, 2], \"\"b\"\": \"\"c;d\"\"}\"\n", "',' header: k bigint, v text = 1"),
        ("n,at\n1,\"52°31'N, 13°24'E\"\n2,\"(52.5, 13.4)\"\n", "',' header: n bigint, at text = 2"),
        ("a,b\n\"once\nupon\n\na time\",1\n\"\n\",2\n", "',' header: a text, b bigint = 2"),
        ("a,b\r\n\"once\r\nupon\",1\r\nx,2\r\n", "',' header: a text, b bigint = 2"),
        ("\"a\nb\",\"c,d\"\n1,2\n", "',' header: a\nb bigint, c,d bigint = 1"),
        ("größe,名\n1,京\n2,ʤ\n", "',' header: größe bigint, 名 text = 2"),
    ]);
}

#[test]
fn delimiters_are_seen_by_how_alike_records_are() {
    check(&[
        ("a;b\n1;x\n2;y\n", "';' header: a bigint, b text = 2"),
        ("a\tb\n1\tx\n2\ty\n", "'\\t' header: a bigint, b text = 2"),
        ("a|b\n1|x\n2|y\n", "'|' header: a bigint, b text = 2"),
        // Decimal commas, lists, sentences.
        ("a;b\n1,5;2,5\n3,5;4,5\n", "';' header: a text, b text = 2"),
        ("a;b\n1;x, y\n2;z\n3;u, v, w\n", "';' header: a bigint, b text = 3"),
        ("a\tb\n1\tOne, two.\n2\tThree; four.\n", "'\\t' header: a bigint, b text = 2"),
        ("a|b\n1|x,y\n2|z,u\n", "'|' header: a bigint, b text = 2"),
        ("a,b\n1,x|y\n2,z\n", "',' header: a bigint, b text = 2"),
        ("a,b,c\n1,x;y,3\n2,z;u,4\n", "',' header: a bigint, b text, c bigint = 2"),
        ("a;b\n\"1;2,3\";x\n\"4\";y\n", "';' header: a text, b text = 2"),
        // Uncommon delimiters.
        ("a b\n1 x\n2 y\n", "',' header: a b text = 2"),
        ("a:b\n1:x\n2:y\n", "',' header: a:b text = 2"),
    ]);
    let known = |delimiter| Known { delimiter: Some(delimiter), ..Known::default() };
    assert_eq!(seen(b"a b\n1 x\n2 y\n", &known(b' ')), "' ' header: a bigint, b text = 2");
    assert_eq!(seen(b"a||b\n1||x\n2||y\n", &known(b'|')), "'|' header: a bigint, column2 text, b text = 2");
}

#[test]
fn headers_are_seen_and_named() {
    check(&[
        ("1,x\n2,y\n3,x\n", "',': column1 bigint, column2 text = 3"),
        ("a,b\n", "',' header: a text, b text = 0"),
        ("a,b", "',' header: a text, b text = 0"),
        ("1,2\n", "',': column1 bigint, column2 bigint = 1"),
        ("a,a,a_1\n1,2,3\n", "',' header: a bigint, a_1 bigint, a_1_1 bigint = 1"),
        ("a,,\n1,2,3\n", "',' header: a bigint, column2 bigint, column3 bigint = 1"),
        ("column2,\n1,2\n", "',' header: column2 bigint, column2_1 bigint = 1"),
        ("a,b\nid,name\n1,x\n", "',' header: a text, b text = 2"),
        ("date,sum\n2024-02-29,1\n", "',' header: date date, sum bigint = 1"),
        ("2023,2024\n1,2\n", "',': column1 bigint, column2 bigint = 2"),
        ("city,2023,2024\nRome,1,2\nOslo,3,4\n", "',': column1 text, column2 bigint, column3 bigint = 3"),
    ]);
    let known = |header| Known { header: Some(header), ..Known::default() };
    assert_eq!(seen(b"2023,2024\n1,2\n", &known(true)), "',' header: 2023 bigint, 2024 bigint = 1");
    assert_eq!(seen(b"a,b\n1,2\n", &known(false)), "',': column1 text, column2 text = 2");
    let long = "n".repeat(100);
    let file = format!("{long},{long}\n1,2\n");
    let expected = format!("',' header: {} bigint, {}_1 bigint = 1", &long[..63], &long[..61]);
    assert_eq!(seen(file.as_bytes(), &Known::default()), expected);
}

#[test]
fn types_are_the_first_that_hold_all_fields() {
    for (fields, expected) in [
        ("true false", "boolean"),
        ("TRUE False", "boolean"),
        ("true 1", "text"),
        ("0 1", "bigint"),
        ("1 -7", "bigint"),
        ("0 10 -0", "bigint"),
        ("9223372036854775807 -9223372036854775808", "bigint"),
        ("9223372036854775808 1", "text"),
        ("007 42", "text"),
        ("-01 42", "text"),
        ("1 2.5", "double"),
        (".5 5. 0.5", "double"),
        ("1e5 1E-5", "double"),
        ("1 1e5", "double"),
        ("0x1F 1", "text"),
        ("1_000 1", "text"),
        ("\"1.000,5\" 1", "text"),
        ("$1 2", "text"),
        ("50% 1", "text"),
        ("2024-02-29 2024-03-01", "date"),
        ("2024-02-30 2024-03-01", "text"),
        ("12:30:00 23:59:59.5", "time"),
        // Minutes and seconds, perhaps.
        ("12:30 23:59", "text"),
        ("2024-02-29T12:30:00 2024-03-01T00:00:00.5", "timestamp"),
        ("2024-02-29 2024-02-29T12:30:00", "timestamp"),
        ("2024-02-29T12:30:00Z 2024-02-29T12:30:00+02", "timestamptz"),
        ("2024-02-29T12:30:00 2024-02-29T12:30:00Z", "timestamptz"),
        ("2024-02-29 12:30:00", "text"),
        ("2024-02-29 1", "text"),
        ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "text"),
        ("1.5 nan", "text"),
        ("yes no", "text"),
        ("02/29/2024 03/01/2024", "text"),
        ("20240229", "bigint"),
        ("1 \"2\"", "bigint"),
        ("1 \"\"", "text"),
        ("1  2", "bigint"),
        ("  ", "text"),
    ] {
        let records: Vec<String> = fields.split(' ').map(|field| format!("{field},x\n")).collect();
        let known = Known { header: Some(false), ..Known::default() };
        let expected = format!("',': column1 {expected}, column2 text = {}", records.len());
        assert_eq!(seen(records.concat().as_bytes(), &known), expected, "{fields}");
    }
}

#[test]
fn blanks_around_values_are_no_part_of_them() {
    for (fields, expected) in [
        ([" 1", "2 "], "bigint"),
        ([" 1.5", "2"], "double"),
        ([" 007", "1"], "text"),
        (["true", " false"], "boolean"),
        (["2024-02-29 ", "2024-03-01"], "date"),
        (["12:30:00", " 12:31:00"], "time"),
        ([" 2024-02-29 12:30:00", "2024-02-29"], "timestamp"),
        (["2024-02-29 12:30:00Z ", "2024-02-29 12:30:00"], "timestamptz"),
        ([" ", "1"], "text"),
        (["1 2", "1"], "text"),
    ] {
        let known = Known { header: Some(false), ..Known::default() };
        let file = format!("{},x\n\"{}\",x\n", fields[0], fields[1]);
        let expected = format!("',': column1 {expected}, column2 text = 2");
        assert_eq!(seen(file.as_bytes(), &known), expected, "{fields:?}");
    }
}

#[test]
fn files_are_read_as_what_was_seen_in_them() {
    // For every set of fields, the inferred type fits all of them.
    let fields = [
        "",
        "\"\"",
        " ",
        "0",
        "-0",
        "+0",
        "1",
        "+1",
        "- 1",
        "01",
        "-01",
        "+007",
        "1.",
        ".5",
        ".",
        "-",
        "+",
        "e",
        "1e",
        "1e5",
        "1E+5",
        "1e400",
        "-1e-400",
        "00.5",
        "0.5",
        "0e0",
        "0x1F",
        "1_0",
        "1-1",
        "1+1",
        "1.2.3",
        "123456789012345678",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "1234567890123456789012345.5",
        "inf",
        "NaN",
        "true",
        "FALSE",
        "t",
        "yes",
        "on",
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "9999-12-31",
        "99999-01-01",
        "2024-2-9",
        "2024-02-29 BC",
        "24-02-29",
        "29-02-2024",
        "2024-0-229",
        "2024/02/29",
        "2024-060",
        "2024-02-29 ",
        "2024-02-29T",
        "2024-02-29T1",
        "2024-02-29 12:30",
        "2024-02-29T24:00:00",
        "2024-02-29 25:00",
        "2024-02-29 12:30:00+02",
        "2024-02-29 12:30:00 Europe/Rome",
        "2024-02-29 12:30:00-99",
        "2024-02-29 12:30:00Z",
        "2024-02-29 12:30 PM",
        "2024-02-29 12:30:00+",
        "0001-01-01 00:00:00 BC",
        "12:30:00",
        "24:00:00",
        "12:30:61",
        "1:30:00",
        "12:30:00 PM",
        "13:30:00 PM",
        "12:30:00Z",
        "12:30:00.1234567",
        "-1:30:00",
        "12:30:00.",
        "x",
        "\u{ff11}",
        "'1'",
        "\"1\"",
        "\" 1\"",
        "\"1\n\"",
        "\"true\"",
        "\"2024-02-29\"",
        "1\"2\"",
        "\"a\"\"b\"",
        "null",
        "\u{a0}1",
        "1\u{a0}",
        "\\.1",
        "\u{e9}2024-02-",
    ];
    for header in [None, Some(false)] {
        let known = Known { header, delimiter: Some(b','), ..Known::default() };
        for first in fields {
            for second in fields {
                let file = format!("{first},x\n{second},y\n{first},x\n");
                let seen = seen(file.as_bytes(), &known);
                let has_header = seen.starts_with("',' header");
                let rows = if has_header { " = 2" } else { " = 3" };
                assert!(seen.ends_with(rows), "{seen}: {file:?}");
            }
        }
    }
}

#[test]
fn strange_files_are_seen_without_a_panic() {
    for (file, expected) in [
        (&b""[..], "',':  = 0"),
        // A title, a footnote, records too short or too long: errors once they are read.
        (b"Report\n\na,b\n1,x\n2,y\n", "',': column1 text, column2 text = 22P04"),
        (b"a,b\n1,x\n2,y\nTotal: 2\n", "',' header: a bigint, b text = 22P04"),
        (b"a,b\n1,x\n2\n3,z\n", "',' header: a bigint, b text = 22P04"),
        (b"a,b\n1,x\n2,y,\n3,z\n", "',' header: a bigint, b text = 22P04"),
        (b"a,b\n1,x\n\n3,z\n", "',' header: a bigint, b text = 2"),
        (b"a,b\n1,x\n2,\"y\n", "',' header: a bigint, b text = 22P04"),
        // A delimiter too many in each record, also of the header.
        (b"a,b,\n1,x,\n2,y,\n", "',' header: a bigint, b text, column3 text = 2"),
        (b"a,b\n1,'x'\n2,'y'\n", "',' header: a bigint, b text = 2"),
        (b"a, b\n1, 2\n3, 4\n", "',' header: a bigint, b bigint = 2"),
        (b"\xff\xfea\0,\0b\0\n\x001\0,\0x\0\n\0", "',': column1 text, column2 text = 22021"),
        (b"a,b\n1,\xff\n2,y\n", "',' header: a bigint, b text = 22021"),
        (b"a,b\n1,x\0\n2,y\n", "',' header: a bigint, b text = 22021"),
        (b"caf\xe9,b\n1,x\n2,y\n", "',' header: caf\u{fffd} bigint, b text = 2"),
        (b"x\n\nx\n", "',': column1 text = 3"),
        (b"n\n1\n\n2\n", "',' header: n bigint = 3"),
        (b"\n", "',': column1 text = 1"),
        (b",\n", "',': column1 text, column2 text = 1"),
        // The columns are unusual, but the error is reported.
        (b"a,b\r1,x\r2,y\r", "',' header: a text, b\r1 text, x\r2 text, y text = 22P04"),
        (b"a,b\n\\.\n1,x\n", "',' header: a bigint, b text = 22P04"),
    ] {
        assert_eq!(seen(file, &Known::default()), expected, "{:?}", String::from_utf8_lossy(file));
    }
}

#[test]
fn wide_and_long_files_are_seen() {
    for width in [1600, 1601] {
        let names: Vec<String> = (0..width).map(|column| format!("n{column}")).collect();
        let file = format!("{}\n{}\n", names.join("\t"), vec!["1"; width].join("\t"));
        let sniffed = sniff(file.as_bytes(), &Known::default());
        assert_eq!(sniffed.options.delimiter, b'\t');
        assert!(sniffed.columns.into_iter().eq(names.into_iter().map(|name| (name, SqlType::BigInt))));
    }
    let file = format!("n,t\n1,\"{}\"\n2,x\n", "long, ".repeat(100_000));
    assert_eq!(seen(file.as_bytes(), &Known::default()), "',' header: n bigint, t text = 2");
}
