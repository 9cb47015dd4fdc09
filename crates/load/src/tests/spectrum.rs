//! CSV files as people write them: each kind of valid file, and each deviation from RFC 4180 by itself.
//!
//! The kinds of files are those of csv-spectrum, the deviations mostly those of Pollock (Vitagliano et al., VLDB 2023); the
//! contents are ours. The expected rows are those of PostgreSQL 15, except where a case says otherwise.

use super::{CSV, all_of};
use crate::kind::Kind;
use crate::{Batch, CopyHeader, CopyOptions, CopyReader, binary_rows};
use firn_base::SqlType::{self, Integer, Text};
use firn_base::{Error, Result, SqlState, TextStyle, binary, text};

/// The rows as text, `-` for NULL, or a line and its error: SQLSTATE, column, message.
type Expected = std::result::Result<&'static [&'static [&'static str]], (u64, &'static str)>;

/// A name, a file, and the expected result.
type Case = (&'static str, &'static [u8], Expected);

const MISSING_B: &str = "22P04 missing data for column \"b\"";
const MISSING_C: &str = "22P04 missing data for column \"c\"";
const EXTRA: &str = "22P04 extra data after last expected column";
const UNCLOSED: &str = "22P04 unterminated CSV quoted field";
const LONE_CR: &str = "22P04 unquoted carriage return found in data";
const BAD_A: &str = "22P02 column a: invalid input syntax for type integer: \"x\"";
const NUL: &str = "22021 invalid byte sequence for encoding \"UTF8\": 0x00";
const FF: &str = "22021 invalid byte sequence for encoding \"UTF8\": 0xff";
const E9: &str = "22021 invalid byte sequence for encoding \"UTF8\": 0xe9";

const STYLE: TextStyle = TextStyle::DEFAULT;

pub(super) fn csv() -> CopyOptions {
    CopyOptions::new(CSV)
}

fn header() -> CopyOptions {
    CopyOptions { header: CopyHeader::Yes, ..csv() }
}

fn matching() -> CopyOptions {
    CopyOptions { header: CopyHeader::Match, ..csv() }
}

fn delimited(delimiter: u8) -> CopyOptions {
    CopyOptions { delimiter, ..csv() }
}

fn null(null: &str) -> CopyOptions {
    CopyOptions { null: null.to_owned(), ..csv() }
}

pub(super) fn reader(options: &CopyOptions, types: &[SqlType], chunk_bytes: Option<usize>) -> CopyReader {
    let names = ('a'..='z').map(String::from).chain((27..).map(|number| format!("c{number}")));
    let columns = names.zip(types.iter().copied()).collect();
    let mut reader = CopyReader::new("COPY t", columns, options.clone(), STYLE).unwrap();
    if let Some(bytes) = chunk_bytes {
        reader.set_chunk_bytes(bytes);
    }
    reader
}

/// The rows of a file that arrives in these pieces.
pub(super) fn pushed(
    mut reader: CopyReader,
    types: &[SqlType],
    pieces: &[&[u8]],
) -> Result<Vec<Vec<String>>> {
    for piece in pieces {
        reader.push(piece)?;
    }
    reader.finish()?;
    Ok(std::iter::from_fn(|| reader.next_batch()).flat_map(|batch| rows_of(&batch, types)).collect())
}

/// The rows of a file that is read by this number of threads.
fn read(reader: CopyReader, types: &[SqlType], file: &[u8], threads: usize) -> Result<Vec<Vec<String>>> {
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    let mut rows = Vec::new();
    let mut take = |batch: Batch| {
        rows.extend(rows_of(&batch, types));
        Ok(())
    };
    reader.read_file(all_of(&file), &failed, threads, &mut take)?;
    Ok(rows)
}

/// Rows as texts, by way of the binary format.
fn rows_of(batch: &Batch, types: &[SqlType]) -> Vec<Vec<String>> {
    let mut bytes = Vec::new();
    let kinds: Vec<Kind> = types.iter().map(|ty| Kind::of(*ty)).collect();
    binary_rows::write(&batch.columns, &kinds, batch.rows, &mut bytes);
    let mut rest = bytes.as_slice();
    let row = |_| {
        rest = &rest[2..];
        types.iter().map(|ty| shown(&mut rest, *ty)).collect()
    };
    (0..batch.rows).map(row).collect()
}

/// A value in the binary format as text.
fn shown(rest: &mut &[u8], ty: SqlType) -> String {
    let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
    let Ok(length) = usize::try_from(length) else {
        *rest = &rest[4..];
        return "-".to_owned();
    };
    let mut shown = String::new();
    text::write(&binary::decode(&rest[4..4 + length], ty).unwrap(), ty, &STYLE, &mut shown);
    *rest = &rest[4 + length..];
    shown
}

/// An error in the form of the cases: without the wrong data.
fn error_of(error: &Error) -> (u64, String) {
    let place = error.context().unwrap().strip_prefix("COPY t, line ").unwrap();
    let (line, rest) = place.split_once([':', ',']).unwrap();
    let column = rest.strip_prefix(" column ").and_then(|rest| rest.split_once(": "));
    let column = column.map(|(column, _)| format!("column {column}: ")).unwrap_or_default();
    (line.parse().unwrap(), format!("{} {column}{}", error.state(), error.message()))
}

/// Reads each file at once and cut in two everywhere, in chunks of all sizes, on one thread and on several.
fn check(options: &CopyOptions, types: &[SqlType], cases: &[Case]) {
    for (name, file, expected) in cases {
        let expected: std::result::Result<Vec<Vec<String>>, _> = match expected {
            Ok(rows) => {
                Ok(rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect()).collect())
            }
            Err((line, error)) => Err((*line, (*error).to_owned())),
        };
        let same = |outcome: Result<Vec<Vec<String>>>, how: &str| {
            assert_eq!(outcome.map_err(|error| error_of(&error)), expected, "{name}, {how}");
        };
        let whole = || reader(options, types, None);
        same(pushed(whole(), types, &[file]), "at once");
        same(read(whole(), types, file, 3), "at once by three threads");
        for chunk in [1, 2, 7, 30, 100] {
            let chunked = || reader(options, types, Some(chunk));
            for cut in 0..=file.len() {
                let (begin, end) = file.split_at(cut);
                same(pushed(chunked(), types, &[begin, end]), &format!("cut at {cut} in chunks of {chunk}"));
            }
            let bytes: Vec<&[u8]> = file.chunks(1).collect();
            same(pushed(chunked(), types, &bytes), &format!("by bytes in chunks of {chunk}"));
            for threads in [1, 3] {
                same(
                    read(chunked(), types, file, threads),
                    &format!("by {threads} threads in chunks of {chunk}"),
                );
            }
        }
        // Without any column, rows are counted, and errors of records are returned.
        let mut none = whole();
        none.project(Vec::new());
        let counted = none.push(file).and_then(|()| none.finish());
        let counted =
            counted.map(|()| std::iter::from_fn(|| none.next_batch()).map(|batch| batch.rows).sum::<usize>());
        match &expected {
            Ok(rows) => assert_eq!(counted.unwrap(), rows.len(), "{name}, without columns"),
            Err((_, error)) if error.starts_with("22P02") => {}
            Err(error) => assert_eq!(error_of(&counted.unwrap_err()), *error, "{name}, without columns"),
        }
        // Of valid rows, one column read alone is the same as beside the others.
        let Ok(rows) = &expected else { continue };
        for column in 0..types.len() {
            let mut reader = reader(options, types, Some(10));
            reader.project(vec![column]);
            let alone = pushed(reader, &types[column..=column], &[file]).unwrap();
            let beside = rows.iter().map(|row| &row[column]);
            assert!(alone.iter().map(|row| &row[0]).eq(beside), "{name}, column {column} alone");
        }
    }
}

#[test]
fn the_spectrum_of_right_files_is_read() {
    check(
        &header(),
        &[Integer, Text],
        &[
            ("simple", b"a,b\n1,x\n2,y\n", Ok(&[&["1", "x"], &["2", "y"]])),
            ("simple_crlf", b"a,b\r\n1,x\r\n2,y\r\n", Ok(&[&["1", "x"], &["2", "y"]])),
            (
                "escaped_quotes",
                b"a,b\n1,\"she said \"\"no\"\"\"\n2,\"\"\"\"\n\"3\",\"\"\"\"\"\"\n",
                Ok(&[&["1", "she said \"no\""], &["2", "\""], &["3", "\"\""]]),
            ),
            (
                "json",
                b"k,v\n7,\"{\"\"at\"\": [1.5, -2], \"\"of\"\": {\"\"a\"\": \"\"b\\n\"\"}}\"\n",
                Ok(&[&["7", "{\"at\": [1.5, -2], \"of\": {\"a\": \"b\\n\"}}"]]),
            ),
            ("newlines in a header", b"\"a\n,\nb\",\"\"\"\"\n1,x\n", Ok(&[&["1", "x"]])),
            (
                "quotes_and_newlines",
                b"a,b\n1,\"he \n\"\"said\"\",\nno\"\n2,\"\"\"\n\"\"\"\n",
                Ok(&[&["1", "he \n\"said\",\nno"], &["2", "\"\n\""]]),
            ),
        ],
    );
    check(
        &header(),
        &[Text; 3],
        &[
            (
                "comma_in_quotes",
                b"name,street,place\nAda,\"1, Pond Lane\",\"Ockham, Surrey\"\n\",\",\",,\",x\n",
                Ok(&[&["Ada", "1, Pond Lane", "Ockham, Surrey"], &[",", ",,", "x"]]),
            ),
            (
                "empty",
                b"a,b,c\n1,\"\",\"\"\n,,\n\"\",,3\n",
                Ok(&[&["1", "", ""], &["-", "-", "-"], &["", "-", "3"]]),
            ),
            (
                "empty_crlf",
                b"a,b,c\r\n1,\"\",\"\"\r\n,,\r\n\"\",,3\r\n",
                Ok(&[&["1", "", ""], &["-", "-", "-"], &["", "-", "3"]]),
            ),
            (
                "location_coordinates",
                concat!(
                    "phone,at,towns\n030 1,\"52\u{b0}31'N 13\u{b0}24'E\n(52.5, 13.4)\",\"Berlin\"\n",
                    ",,\"K\u{f6}ln, Bonn\"\n"
                )
                .as_bytes(),
                Ok(&[
                    &["030 1", "52\u{b0}31'N 13\u{b0}24'E\n(52.5, 13.4)", "Berlin"],
                    &["-", "-", "K\u{f6}ln, Bonn"],
                ]),
            ),
        ],
    );
    check(
        &header(),
        &[Text, Integer],
        &[
            (
                "newlines",
                b"a,b\n\"once\nupon a\n\ntime\",1\n\"\n\",2\n\"x\",\"3\"",
                Ok(&[&["once\nupon a\n\ntime", "1"], &["\n", "2"], &["x", "3"]]),
            ),
            (
                "newlines_crlf",
                b"a,b\r\n\"once\r\nupon a\r\n\r\ntime\",1\r\n\"\r\n\",2\r\n\"x\",\"3\"\r\n",
                Ok(&[&["once\r\nupon a\r\n\r\ntime", "1"], &["\r\n", "2"], &["x", "3"]]),
            ),
        ],
    );
    check(
        &csv(),
        &[Text; 2],
        &[
            ("newlines of all kinds in quotes", b"\"a\rb\r\nc\nd\",x\n", Ok(&[&["a\rb\r\nc\nd", "x"]])),
            (
                "utf8",
                "\u{e4},\u{1f600}\n\u{2a4},\u{5317}\u{4eac}\n\"\u{1f468}\u{200d}\u{1f469}\",\"e\u{301}\"\n"
                    .as_bytes(),
                Ok(&[
                    &["\u{e4}", "\u{1f600}"],
                    &["\u{2a4}", "\u{5317}\u{4eac}"],
                    &["\u{1f468}\u{200d}\u{1f469}", "e\u{301}"],
                ]),
            ),
        ],
    );
    check(
        &csv(),
        &[Integer, Text],
        &[("everything in quotes", b"\"1\",\"x\"\n\"2\",\"y\"\n", Ok(&[&["1", "x"], &["2", "y"]]))],
    );
}

#[test]
fn ends_and_beginnings_of_files_may_be_odd() {
    const ROW: Expected = Ok(&[&["1", "x"]]);
    check(
        &csv(),
        &[Integer, Text],
        &[
            ("no last newline", b"1,x", ROW),
            ("no last newline after quotes", b"1,\"x\"", ROW),
            ("no last newline after CRLFs", b"1,x\r\n2,y", Ok(&[&["1", "x"], &["2", "y"]])),
            ("no last newline after a delimiter", b"1,x\n2,", Ok(&[&["1", "x"], &["2", "-"]])),
            ("no bytes", b"", Ok(&[])),
            (
                "a header where none is",
                b"a,b\n1,x\n",
                Err((1, "22P02 column a: invalid input syntax for type integer: \"a\"")),
            ),
            ("a footnote under numbers", b"1,x\n2,y\nTotal: 2\n", Err((3, MISSING_B))),
            (
                "a footnote as wide as the table",
                b"1,x\n2,y\n,sum\n",
                Ok(&[&["1", "x"], &["2", "y"], &["-", "sum"]]),
            ),
            ("an end of data", b"1,x\n\\.\n2,y\n", ROW),
            // Data in PostgreSQL, which requires the line feed.
            ("an end of data at the end", b"1,x\n\\.", ROW),
            ("an end of data after a CRLF", b"1,x\r\n\\.\r\nrubbish", ROW),
            ("an end of data at once", b"\\.\n1,x\n", Ok(&[])),
        ],
    );
    check(
        &header(),
        &[Integer, Text],
        &[
            ("no bytes for a header", b"", Ok(&[])),
            ("only a header", b"a,b\n", Ok(&[])),
            ("only a header, no newline", b"a,b", Ok(&[])),
            (
                "two header lines",
                b"a,b\nid,name\n1,x\n",
                Err((2, "22P02 column a: invalid input syntax for type integer: \"id\"")),
            ),
            ("no header where one is", b"1,x\n2,y\n", Ok(&[&["2", "y"]])),
        ],
    );
    check(
        &matching(),
        &[Integer, Text],
        &[
            (
                "no bytes for a header that must match",
                b"",
                Err((1, "22P04 wrong number of fields in header line: got 1, expected 2")),
            ),
            ("only a header that matches, no newline", b"a,b", Ok(&[])),
        ],
    );
    check(
        &header(),
        &[Text; 2],
        &[
            ("two header lines of text", b"a,b\nm,s\n1,x\n", Ok(&[&["m", "s"], &["1", "x"]])),
            ("a title above the header", b"Report of May\na,b\n1,x\n", Ok(&[&["a", "b"], &["1", "x"]])),
            ("a title and a blank line", b"Report of May\n\na,b\n1,x\n", Err((2, MISSING_B))),
        ],
    );
    check(
        &csv(),
        &[Text; 2],
        &[
            ("a title where no header is", b"Report of May\n1,x\n", Err((1, MISSING_B))),
            ("a footnote", b"1,x\n2,y\nTotal: 2\n", Err((3, MISSING_B))),
            ("no end of data: in quotes", b"\"\\.\",x\n\"\\.\"", Err((2, MISSING_B))),
            (
                "no end of data: in a line by itself in quotes",
                b"\"x\n\\.\ny\",z\n",
                Ok(&[&["x\n\\.\ny", "z"]]),
            ),
            (
                "no end of data: more follows",
                b"\\.x,y\n\\.,z\nx,\\.\n",
                Ok(&[&["\\.x", "y"], &["\\.", "z"], &["x", "\\."]]),
            ),
        ],
    );
    check(
        &matching(),
        &[Text; 2],
        &[(
            "a title where the header must match",
            b"Report of May\na,b\n1,x\n",
            Err((1, "22P04 wrong number of fields in header line: got 1, expected 2")),
        )],
    );
    check(
        &csv(),
        &[Text],
        &[(
            "no end of data: in a column by itself",
            b"\"\\.\"\n x\n \\.\n",
            Ok(&[&["\\."], &[" x"], &[" \\."]]),
        )],
    );
}

#[test]
fn headers_are_names_only_where_they_must_match() {
    const ROW: Expected = Ok(&[&["1", "x"]]);
    check(
        &header(),
        &[Integer, Text],
        &[
            ("names twice", b"a,a\n1,x\n", ROW),
            ("no names", b",\n1,x\n", ROW),
            ("an empty line", b"\n1,x\n", ROW),
            ("too short", b"a\n1,x\n", ROW),
            ("too long", b"a,b,c\n1,x\n", ROW),
            ("blanks", b" a , b \n1,x\n", ROW),
            // The whole file would be the header.
            ("carriage returns", b"a,b\r1,x\r2,y\r", Err((1, LONE_CR))),
            ("carriage returns, a line feed last", b"a,b\r1,x\n", Err((1, LONE_CR))),
            ("carriage returns in quotes", b"\"a\rb\",\"\r\n\"\n1,x\n", ROW),
            // PostgreSQL does not check a header at the end of a file.
            ("a quote that is not closed", b"\"a,b\n1,x\n", Err((1, UNCLOSED))),
        ],
    );
    check(
        &matching(),
        &[Integer, Text],
        &[
            ("names in quotes that match", b"\"a\",\"b\"\r\n1,x\r\n", ROW),
            (
                "names twice, to match",
                b"a,a\n1,x\n",
                Err((1, "22P04 column name mismatch in header line field 2: got \"a\", expected \"b\"")),
            ),
            (
                "the wrong order, to match",
                b"b,a\n1,x\n",
                Err((1, "22P04 column name mismatch in header line field 1: got \"b\", expected \"a\"")),
            ),
            (
                "capitals, to match",
                b"A,b\n1,x\n",
                Err((1, "22P04 column name mismatch in header line field 1: got \"A\", expected \"a\"")),
            ),
            (
                "blanks, to match",
                b"a, b\n1,x\n",
                Err((1, "22P04 column name mismatch in header line field 2: got \" b\", expected \"b\"")),
            ),
            (
                "no name, to match",
                b"a,\n1,x\n",
                Err((
                    1,
                    "22P04 column name mismatch in header line field 2: got null value (\"\"), expected \"b\"",
                )),
            ),
            (
                "an empty name, to match",
                b"\"\",b\n1,x\n",
                Err((1, "22P04 column name mismatch in header line field 1: got \"\", expected \"a\"")),
            ),
            (
                "too short, to match",
                b"a\n1,x\n",
                Err((1, "22P04 wrong number of fields in header line: got 1, expected 2")),
            ),
            (
                "too long, to match",
                b"a,b,c\n1,x\n",
                Err((1, "22P04 wrong number of fields in header line: got 3, expected 2")),
            ),
        ],
    );
}

#[test]
fn other_delimiters_quotes_and_escapes_are_read_where_they_are_named() {
    const MISSING: Expected = Err((1, MISSING_B));
    const TWO: Expected = Ok(&[&["1", "x"], &["2", "y z"]]);
    check(
        &csv(),
        &[Text; 2],
        &[
            ("semicolons, not named", b"1;x\n2;y z\n", MISSING),
            ("tabs, not named", b"1\tx\n2\ty z\n", MISSING),
            ("bars, not named", b"1|x\n2|y z\n", MISSING),
            ("blanks, not named", b"1 x\n2 y\n", MISSING),
            (
                "semicolons and decimal commas, not named",
                b"1,5;x\n2,5;y\n",
                Ok(&[&["1", "5;x"], &["2", "5;y"]]),
            ),
            ("two bytes, not named", "1\u{a7}x\n".as_bytes(), MISSING),
        ],
    );
    check(&delimited(b';'), &[Integer, Text], &[("semicolons", b"1;x\n2;y z\n", TWO)]);
    check(&delimited(b'\t'), &[Integer, Text], &[("tabs", b"1\tx\n2\ty z\n", TWO)]);
    check(&delimited(b'|'), &[Integer, Text], &[("bars", b"1|x\n2|y z\n", TWO)]);
    check(&delimited(b' '), &[Integer, Text], &[("blanks", b"1 x\n2 \"y z\"\n", TWO)]);
    check(&delimited(0x1f), &[Integer, Text], &[("a control character", b"1\x1fx\n2\x1fy z\n", TWO)]);
    check(&delimited(b'|'), &[Text; 3], &[("a delimiter twice", b"1||x\n", Ok(&[&["1", "-", "x"]]))]);
    check(
        &delimited(b'|'),
        &[Text; 2],
        &[("a delimiter twice, for two columns", b"1||x\n", Err((1, EXTRA)))],
    );
    check(
        &CopyOptions { quote: b'\'', escape: b'\'', ..csv() },
        &[Integer, Text],
        &[
            ("other quotes, named", b"1,'x'\n2,'y z'\n", TWO),
            ("other quotes, doubled", b"1,'it''s, \"x\"'\n", Ok(&[&["1", "it's, \"x\""]])),
        ],
    );
    check(
        &csv(),
        &[Integer, Text],
        &[
            ("other quotes, not named", b"1,'x'\n", Ok(&[&["1", "'x'"]])),
            ("a delimiter in other quotes, not named", b"1,'x,y'\n", Err((1, EXTRA))),
            ("other escapes, not named", b"1,\"a\\\"b\"\n", Err((1, UNCLOSED))),
            ("other escapes, not named, twice", b"1,\"a\\\"b\\\"c\"\n", Ok(&[&["1", "a\\b\\c"]])),
        ],
    );
    check(
        &CopyOptions { escape: b'\\', ..csv() },
        &[Integer, Text],
        &[
            (
                "other escapes, named",
                b"1,\"a\\\"b\\\\\"\n2,\"\\,\n\\n\"\n",
                Ok(&[&["1", "a\"b\\"], &["2", "\\,\n\\n"]]),
            ),
            ("doubled quotes where others are named", b"1,\"a\"\"b\"\n", Ok(&[&["1", "ab"]])),
            ("escapes outside quotes", b"1,a\\b\\\\\n", Ok(&[&["1", "a\\b\\\\"]])),
            ("an escape of a quote outside quotes", b"1,a\\\"b,c\"\n", Ok(&[&["1", "a\\b,c"]])),
            ("an escape at the end of the file", b"1,\"a\\", Err((1, UNCLOSED))),
        ],
    );
}

#[test]
fn records_end_by_line_feeds_before_which_may_be_carriage_returns() {
    const TWO: Expected = Ok(&[&["1", "x"], &["2", "y"]]);
    check(
        &csv(),
        &[Integer, Text],
        &[
            ("CRLF", b"1,x\r\n2,y\r\n", TWO),
            ("CRLF after quotes", b"\"1\",\"x\"\r\n\"2\",\"y\"\r\n", TWO),
            ("CRLF after NULL", b",\r\n,\r\n", Ok(&[&["-", "-"], &["-", "-"]])),
            // PostgreSQL expects every line to end like the first one.
            ("CRLF, then LF", b"1,x\r\n2,y\n", TWO),
            ("LF, then CRLF", b"1,x\n2,y\r\n", TWO),
            ("LF in quotes, then CRLF", b"1,\"x\n\"\r\n2,y\r\n", Ok(&[&["1", "x\n"], &["2", "y"]])),
            // PostgreSQL reads records that end by carriage returns alone.
            ("CR", b"1,x\r2,y\r", Err((1, LONE_CR))),
            ("CR, then LF", b"1,x\r2,y\n", Err((1, LONE_CR))),
            // The last line feed may be missing, and be missing after a carriage return.
            ("LF, then CR", b"1,x\n2,y\r", TWO),
            ("CR CR LF", b"1,x\n2,y\r\r\n", Err((2, LONE_CR))),
            ("CR in a field", b"1,x\n2,y\rz\n", Err((2, LONE_CR))),
            ("CR in quotes", b"1,\"x\ry\"\n", Ok(&[&["1", "x\ry"]])),
            ("CR in quotes at their end", b"1,\"x\r\"\n", Ok(&[&["1", "x\r"]])),
            // Other ends of lines, as Unicode has them, are letters.
            (
                "VT, FF, NEL, LS",
                "1,a\u{b}b\u{c}c\u{85}d\u{2028}e\n".as_bytes(),
                Ok(&[&["1", "a\u{b}b\u{c}c\u{85}d\u{2028}e"]]),
            ),
        ],
    );
    check(&matching(), &[Integer, Text], &[("a header by LF, rows by CRLF", b"a,b\n1,x\r\n2,y\r\n", TWO)]);
    check(
        &csv(),
        &[Text; 2],
        &[
            ("blank line first", b"\n1,x\n", Err((1, MISSING_B))),
            ("blank line between", b"1,x\n\n2,y\n", Err((2, MISSING_B))),
            ("blank line last", b"1,x\n2,y\n\n", Err((3, MISSING_B))),
            ("blank line by CRLF", b"1,x\r\n\r\n2,y\r\n", Err((2, MISSING_B))),
            ("line of blanks", b"1,x\n  \n2,y\n", Err((2, MISSING_B))),
            ("line of a quote and its like", b"1,x\n\"\"\n", Err((2, MISSING_B))),
        ],
    );
    check(&csv(), &[Integer; 2], &[("blank line, numbers", b"1,2\n\n", Err((2, MISSING_B)))]);
    check(
        &csv(),
        &[Text],
        &[
            // Where there is one column, an empty line is a row.
            ("one column", b"x\n\n\"\"\n \n", Ok(&[&["x"], &["-"], &[""], &[" "]])),
            ("one column by CRLF", b"x\r\n\r\n\"\"\r\n\r\n", Ok(&[&["x"], &["-"], &[""], &["-"]])),
            ("nothing but newlines", b"\n\n\n", Ok(&[&["-"], &["-"], &["-"]])),
        ],
    );
    check(
        &csv(),
        &[Integer],
        &[("one column of numbers", b"\n1\n\n2", Ok(&[&["-"], &["1"], &["-"], &["2"]]))],
    );
    check(&header(), &[Text], &[("nothing but newlines after a header", b"\n\n\n", Ok(&[&["-"], &["-"]]))]);
}

#[test]
fn records_have_as_many_fields_as_there_are_columns() {
    check(
        &csv(),
        &[Text; 3],
        &[
            ("first short", b"1,2\n1,2,3\n1,2,3\n", Err((1, MISSING_C))),
            ("second short", b"1,2,3\n1,2\n1,2,3\n", Err((2, MISSING_C))),
            ("third short", b"1,2,3\n1,2,3\n1,2\n", Err((3, MISSING_C))),
            ("third short, no newline", b"1,2,3\n1,2,3\n1", Err((3, MISSING_B))),
            ("all short", b"1,2\n1,2\n1,2\n", Err((1, MISSING_C))),
            ("first long", b"1,2,3,4\n1,2,3\n1,2,3\n", Err((1, EXTRA))),
            ("second long", b"1,2,3\n1,2,3,4\n1,2,3\n", Err((2, EXTRA))),
            ("third long", b"1,2,3\n1,2,3\n1,2,3,4\n", Err((3, EXTRA))),
            ("third long, no newline", b"1,2,3\n1,2,3\n1,2,3,4", Err((3, EXTRA))),
            ("all long", b"1,2,3,4\n1,2,3,4\n1,2,3,4\n", Err((1, EXTRA))),
            // As many fields in all as there should be.
            ("short, then long", b"1,2\n1,2,3,4\n", Err((1, MISSING_C))),
            ("long, then short", b"1,2,3,4\n1,2\n", Err((1, EXTRA))),
            (
                "delimiters at line ends, a column for them",
                b"1,2,\n3,4,\n",
                Ok(&[&["1", "2", "-"], &["3", "4", "-"]]),
            ),
            ("nothing but delimiters", b",,\n,,\n", Ok(&[&["-", "-", "-"], &["-", "-", "-"]])),
        ],
    );
    check(
        &csv(),
        &[Text; 2],
        &[
            ("twice as long", b"1,2,3,4\n", Err((1, EXTRA))),
            ("half as long", b"1\n2\n", Err((1, MISSING_B))),
            ("delimiters at line ends", b"1,2,\n3,4,\n", Err((1, EXTRA))),
            ("delimiter at the second line's end", b"1,2\n3,4,\n", Err((2, EXTRA))),
        ],
    );
    check(
        &csv(),
        &[Integer; 2],
        &[
            // The first error of a file is returned. PostgreSQL reports errors of values before missing fields.
            ("a bad value, then a short record", b"x,2\n1\n", Err((1, BAD_A))),
            ("a short record, then a bad value", b"1\nx,2\n", Err((1, MISSING_B))),
            ("a bad value in a short record", b"x\n", Err((1, MISSING_B))),
            ("a bad value in a long record", b"x,1,2\n", Err((1, EXTRA))),
            ("two bad values", b"x,y\n", Err((1, BAD_A))),
            (
                "a bad value, then one in an earlier column",
                b"1,x\ny,2\n",
                Err((1, "22P02 column b: invalid input syntax for type integer: \"x\"")),
            ),
            ("a bad value, then an unclosed quote", b"x,2\n1,\"2\n", Err((1, BAD_A))),
            ("a short record, then a lone carriage return", b"1\n1,\r2\n", Err((1, MISSING_B))),
            ("a bad value, then bytes that are no text", b"x,2\n\xff,2\n", Err((1, BAD_A))),
        ],
    );
}

#[test]
fn quotes_may_stand_anywhere_but_must_be_closed() {
    check(
        &csv(),
        &[Integer, Text],
        &[
            // PostgreSQL does not count lines in quotes before the end of the first record.
            ("in a field", b"1,5\" nail, 3\" pipe\n", Ok(&[&["1", "5 nail, 3 pipe"]])),
            ("in a field, alone", b"1,5\" nail\n2,x\n", Err((1, UNCLOSED))),
            ("in a field, doubled", b"1,a\"\"b\n", Ok(&[&["1", "ab"]])),
            ("at the end of a field", b"1,a\"\"\n", Ok(&[&["1", "a"]])),
            ("around a part", b"1,a\"b,c\"d\n", Ok(&[&["1", "ab,cd"]])),
            ("around two parts", b"1,\"a\"b\"c\"\n", Ok(&[&["1", "abc"]])),
            ("around digits", b"\"1\"2\"3\",x\n", Ok(&[&["123", "x"]])),
            ("in quotes, not escaped", b"1,\"a \"b\" c\"\n", Ok(&[&["1", "a b c"]])),
            ("in quotes, not escaped, alone", b"1,\"a \" b\"\n", Err((1, UNCLOSED))),
            ("in quotes, not escaped, with a delimiter", b"1,\"a \"b, c\" d\"\n", Err((1, EXTRA))),
            ("three", b"1,\"\"\"\n", Err((1, UNCLOSED))),
            ("not closed, first record", b"\"1,x\n2,y\n", Err((1, UNCLOSED))),
            ("not closed, last record", b"1,x\n2,\"y\n", Err((2, UNCLOSED))),
            ("not closed, no newline", b"1,x\n2,\"y", Err((2, UNCLOSED))),
            ("not closed at the end of the file", b"1,\"", Err((1, UNCLOSED))),
            ("closed by the next that opens", b"1,\"x\n2,\"y\"\n", Err((1, UNCLOSED))),
            ("blanks before", b"1, \"a,b\"\n", Ok(&[&["1", " a,b"]])),
            ("blanks behind", b"1,\"a,b\" \n", Ok(&[&["1", "a,b "]])),
            ("blanks around digits", b" \"1\" ,\tx\t\n", Ok(&[&["1", "\tx\t"]])),
            ("blanks in quotes", b"\" 1 \",\" \"\n", Ok(&[&["1", " "]])),
            (
                "nothing in quotes for a number",
                b"\"\",x\n",
                Err((1, "22P02 column a: invalid input syntax for type integer: \"\"")),
            ),
            ("typographic", "1,\u{201c}x\u{201d}\n".as_bytes(), Ok(&[&["1", "\u{201c}x\u{201d}"]])),
            (
                "a mistake is in the last line of its record",
                b"\"1\n\",x\n\"a\nb\n\",y\n",
                Err((5, "22P02 column a: invalid input syntax for type integer: \"a\nb\n\"")),
            ),
        ],
    );
    check(
        &csv(),
        &[Text; 2],
        &[("lines are counted in quotes", b"1,\"a\n\nb\"\n\"2\n\",\"x\ny\"\n3\n", Err((7, MISSING_B)))],
    );
}

#[test]
fn files_are_utf8() {
    check(
        &csv(),
        &[Integer, Text],
        &[
            ("NUL", b"1,x\n2,a\0b\n", Err((2, NUL))),
            ("NUL in quotes", b"1,x\n2,\"a\0b\"\n", Err((2, NUL))),
            ("NUL in a number", b"1,x\n2\0,y\n", Err((2, NUL))),
            ("NULs at the end", b"1,x\n\0\0\0", Err((2, NUL))),
            ("no text", b"1,x\n2,\xff\n", Err((2, FF))),
            (
                "no text in a number",
                b"1,x\n\x80,x\n",
                Err((2, "22021 invalid byte sequence for encoding \"UTF8\": 0x80")),
            ),
            ("no text in the last line of quotes", b"1,\"x\n\xff\"\n", Err((2, FF))),
            // PostgreSQL shows as many bytes as the first one announces.
            ("Latin-1", b"1,caf\xe9 noir\n", Err((1, E9))),
            ("Latin-1 before a newline", b"1,caf\xe9\n2,x\n", Err((1, E9))),
            (
                "cut off",
                b"1,\xe5\x8c",
                Err((1, "22021 invalid byte sequence for encoding \"UTF8\": 0xe5 0x8c")),
            ),
            (
                "too long a form",
                b"1,\xc0\xaf\n",
                Err((1, "22021 invalid byte sequence for encoding \"UTF8\": 0xc0")),
            ),
            (
                "half of a pair",
                b"1,\xed\xa0\x80\n",
                Err((1, "22021 invalid byte sequence for encoding \"UTF8\": 0xed")),
            ),
            (
                "too large",
                b"1,\xf4\x90\x80\x80\n",
                Err((1, "22021 invalid byte sequence for encoding \"UTF8\": 0xf4")),
            ),
            ("UTF-16", b"\xff\xfe1\0,\0x\0\n\0", Err((1, FF))),
            (
                "UTF-16, big end first",
                b"\xfe\xff\x001\0,\0x\0\n",
                Err((1, "22021 invalid byte sequence for encoding \"UTF8\": 0xfe")),
            ),
            ("UTF-16 without a mark", b"1\0,\0x\0\n\0", Err((1, NUL))),
            (
                "a mark before a number",
                b"\xef\xbb\xbf1,x\n",
                Err((1, "22P02 column a: invalid input syntax for type integer: \"\u{feff}1\"")),
            ),
            ("a mark further on", b"1,\xef\xbb\xbfx\n", Ok(&[&["1", "\u{feff}x"]])),
        ],
    );
    check(
        &header(),
        &[Integer, Text],
        &[
            // PostgreSQL checks lines that it skips.
            ("NUL in a header", b"a\0,b\n1,x\n", Ok(&[&["1", "x"]])),
            ("no text in a header", b"a,\xff\n1,x\n", Ok(&[&["1", "x"]])),
            ("a mark before a header", b"\xef\xbb\xbfa,b\n1,x\n", Ok(&[&["1", "x"]])),
        ],
    );
    check(
        &csv(),
        &[Text; 2],
        &[
            ("Latin-1 before a delimiter", b"caf\xe9,x\n", Err((1, E9))),
            ("a mark before text", b"\xef\xbb\xbfa,b\n", Ok(&[&["\u{feff}a", "b"]])),
        ],
    );
    check(
        &matching(),
        &[Integer, Text],
        &[(
            "a mark before a header that must match",
            b"\xef\xbb\xbfa,b\n1,x\n",
            Err((1, "22P04 column name mismatch in header line field 1: got \"\u{feff}a\", expected \"a\"")),
        )],
    );
}

#[test]
fn nulls_are_what_stands_for_them_outside_quotes() {
    check(&csv(), &[Text; 2], &[("empty", b",\n\"\",x\n", Ok(&[&["-", "-"], &["", "x"]]))]);
    check(
        &null("NA"),
        &[Integer, Text],
        &[
            ("a word", b"NA,NA\n1,x\n", Ok(&[&["-", "-"], &["1", "x"]])),
            ("a word in quotes", b"1,\"NA\"\n", Ok(&[&["1", "NA"]])),
            (
                "a word in quotes for a number",
                b"\"NA\",x\n",
                Err((1, "22P02 column a: invalid input syntax for type integer: \"NA\"")),
            ),
            ("a word partly in quotes", b"1,N\"A\"\n", Ok(&[&["1", "NA"]])),
            (
                "a word and blanks",
                b"1, NA\n2,NA \n3,na\n4,NAN\n",
                Ok(&[&["1", " NA"], &["2", "NA "], &["3", "na"], &["4", "NAN"]]),
            ),
            ("empty beside a word", b"1,\n", Ok(&[&["1", ""]])),
            (
                "empty beside a word for a number",
                b",x\n",
                Err((1, "22P02 column a: invalid input syntax for type integer: \"\"")),
            ),
        ],
    );
    check(&null("\\N"), &[Integer, Text], &[("as in the text format", b"\\N,\\N\n", Ok(&[&["-", "-"]]))]);
    check(
        &null("-1"),
        &[Integer, Text],
        &[("a number", b"-1,-1\n-10,-1 \n", Ok(&[&["-", "-"], &["-10", "-1 "]]))],
    );
    check(&null("  "), &[Integer, Text], &[("blanks", b"  ,x\n", Ok(&[&["-", "x"]]))]);
    check(
        &csv(),
        &[Integer, Text],
        &[(
            "blanks for a number",
            b" ,x\n",
            Err((1, "22P02 column a: invalid input syntax for type integer: \" \"")),
        )],
    );
    check(
        &null("\u{2013}"),
        &[Integer, Text],
        &[("a word that is not ASCII", "1,\u{2013}\n".as_bytes(), Ok(&[&["1", "-"]]))],
    );
    check(&null("NA"), &[Text], &[("a line", b"NA\n\nx\n", Ok(&[&["-"], &[""], &["x"]]))]);
    check(
        &CopyOptions { force_null: vec![true; 2], ..null("NA") },
        &[Text; 2],
        &[("forced", b"\"\",\"NA\"\n,NA\n", Ok(&[&["", "-"], &["", "-"]]))],
    );
    check(
        &CopyOptions { force_null: vec![true; 2], ..csv() },
        &[Integer, Text],
        &[("forced, empty", b"\"\",\"\"\n", Ok(&[&["-", "-"]]))],
    );
    check(
        &CopyOptions { force_not_null: vec![true; 2], ..null("NA") },
        &[Text; 2],
        &[("forced not to be", b"NA,\n", Ok(&[&["NA", ""]]))],
    );
    check(
        &CopyOptions { force_null: vec![true; 2], force_not_null: vec![true; 2], ..csv() },
        &[Text; 2],
        &[("both", b"\"\",\n", Ok(&[&["-", ""]]))],
    );
}

#[test]
fn long_fields_are_read_whole() {
    let plain = "long ".repeat(600_000);
    let quoted = "a \"quote\",\r\nand a line\n".repeat(150_000);
    let file = format!("1,{plain}\n2,\"{}\"\n3,x\n", quoted.replace('"', "\"\""));
    let expected = [["1", &plain], ["2", &quoted], ["3", "x"]];
    let types = [Integer, Text];
    for chunk in [None, Some(1), Some(1000), Some(10 << 20)] {
        let started = || reader(&csv(), &types, chunk);
        let pieces: Vec<&[u8]> = file.as_bytes().chunks(1 << 16).collect();
        assert!(pushed(started(), &types, &pieces).unwrap() == expected, "in chunks of {chunk:?}");
        for threads in [1, 3] {
            let rows = read(started(), &types, file.as_bytes(), threads).unwrap();
            assert!(rows == expected, "in chunks of {chunk:?} by {threads} threads");
        }
    }
}

#[test]
fn records_may_be_as_wide_as_tables() {
    let width = 1600;
    let types = vec![Integer; width];
    let record = |width: usize| (0..width).map(|field| field.to_string()).collect::<Vec<_>>();
    let line = |width| record(width).join(",") + "\n";
    let files = [
        (line(width).repeat(3), Ok(vec![record(width); 3])),
        (",".repeat(width - 1) + "\r\n", Ok(vec![vec!["-".to_owned(); width]])),
        (line(width) + &line(width + 1), Err((2, EXTRA.to_owned()))),
        (line(width) + &line(width - 1), Err((2, "22P04 missing data for column \"c1600\"".to_owned()))),
    ];
    for (file, expected) in &files {
        for chunk in [None, Some(1), Some(8000)] {
            let started = || reader(&csv(), &types, chunk);
            let rows = pushed(started(), &types, &[file.as_bytes()]).map_err(|error| error_of(&error));
            assert!(rows == *expected, "in chunks of {chunk:?}");
            let rows = read(started(), &types, file.as_bytes(), 3).map_err(|error| error_of(&error));
            assert!(rows == *expected, "in chunks of {chunk:?} by threads");
        }
    }
}
