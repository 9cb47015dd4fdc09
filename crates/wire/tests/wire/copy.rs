//! COPY in the binary format.

use crate::raw::*;

const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Rows of an integer and a text.
fn row(number: i32, text: Option<&[u8]>) -> Vec<u8> {
    let mut row = vec![0, 2, 0, 0, 0, 4];
    row.extend_from_slice(&number.to_be_bytes());
    row.extend_from_slice(&text.map_or(-1, |text| text.len() as i32).to_be_bytes());
    row.extend_from_slice(text.unwrap_or(&[]));
    row
}

fn table(raw: &mut Raw) {
    assert_eq!(raw.answers(&query("CREATE TABLE t (a integer PRIMARY KEY, b text)")), "C ZI");
}

#[test]
fn binary_rows_go_in_and_out_one_to_a_message() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    table(&mut raw);
    raw.send(&query("COPY t FROM STDIN (FORMAT binary)"));
    let begin = raw.until('G').pop().unwrap().1;
    assert_eq!(begin, [1, 0, 2, 0, 1, 0, 1], "binary, two columns, both binary");
    let file = [&HEADER[..], &row(1, Some(b"one")), &row(2, None), &[255, 255]].concat();
    // Cut where no row ends.
    let pieces: Vec<u8> = file.chunks(7).flat_map(|piece| message(b'd', piece)).collect();
    assert_eq!(raw.answers(&[pieces, message(b'c', b"")].concat()), "C ZI");

    raw.send(&query("COPY t TO STDOUT WITH BINARY"));
    let received = raw.until('Z');
    assert_eq!(summary(&received), "H d d d c C ZI");
    assert_eq!(received[0].1, [1, 0, 2, 0, 1, 0, 1]);
    assert_eq!(received[1].1, [&HEADER[..], &row(1, Some(b"one"))].concat(), "the header with the first row");
    assert_eq!(received[2].1, row(2, None));
    assert_eq!(received[3].1, [255, 255]);

    raw.send(&query("COPY (SELECT a FROM t WHERE a > 9) TO STDOUT (FORMAT 'binary')"));
    let received = raw.until('Z');
    assert_eq!(summary(&received), "H d c C ZI");
    assert_eq!(received[1].1, [&HEADER[..], &[255, 255]].concat());
}

#[test]
fn binary_data_that_is_none_names_row_and_column_and_leaves_nothing() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    table(&mut raw);
    let mut fails = |rows: &[&[u8]], expected: &str| {
        raw.send(&query("COPY t FROM STDIN BINARY"));
        raw.until('G');
        raw.send(&[message(b'd', &[&HEADER[..], &rows.concat()].concat()), message(b'c', b"")].concat());
        let received = raw.until('Z');
        let error = &received[0].1;
        let fields = [b'C', b'M', b'W'].map(|code| field(error, code).unwrap_or_default());
        assert_eq!(fields.join(" | "), expected);
    };
    let one = row(1, Some(b"one"));
    fails(&[&one, &[0, 1]], "22P04 | row field count is 1, expected 2 | COPY t, line 2");
    fails(&[&one, &one[..8]], "22P04 | unexpected EOF in COPY data | COPY t, line 2");
    fails(
        &[&[0, 2, 0, 0, 0, 1, 7, 0, 0, 0, 0]],
        "22P03 | incorrect binary data format for type integer | COPY t, line 1, column a",
    );
    assert_eq!(raw.answers(&query("SELECT * FROM t")), "T C ZI");
    // The options that belong to lines.
    for (options, state) in [
        ("FORMAT binary, DELIMITER ','", "42601"),
        ("FORMAT binary, NULL ''", "42601"),
        ("FORMAT binary, HEADER", "42601"),
        ("FORMAT binary, QUOTE '\"'", "0A000"),
    ] {
        assert_eq!(raw.answers(&query(&format!("COPY t TO STDOUT ({options})"))), format!("E{state} ZI"));
    }
    let arrays = "COPY (SELECT array_agg(a) FROM t) TO STDOUT BINARY";
    assert_eq!(raw.answers(&query(arrays)), "H d d c C ZI");
}

/// The word of the format, and the names of options, may be quoted either way.
#[test]
fn every_way_to_ask_for_binary_is_understood() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    table(&mut raw);
    for options in [
        "(FORMAT \"binary\")",
        "(FORMAT 'binary')",
        "(FORMAT binary)",
        "(\"format\" binary)",
        "WITH (FORMAT BINARY)",
        "WITH BINARY",
        "BINARY",
    ] {
        raw.send(&query(&format!("TRUNCATE t; COPY t FROM STDIN {options}")));
        raw.until('G');
        let file = [&HEADER[..], &row(1, Some(b"a")), &row(2, None), &[255, 255]].concat();
        assert_eq!(raw.answers(&[message(b'd', &file), message(b'c', b"")].concat()), "C ZI", "{options}");
        raw.send(&query(&format!("COPY (SELECT a, b FROM t ORDER BY a) TO STDOUT {options}")));
        let received = raw.until('Z');
        let sent: Vec<u8> =
            received.iter().filter(|(tag, _)| *tag == 'd').flat_map(|(_, body)| body.clone()).collect();
        assert_eq!(sent, file, "{options}");
    }
}
