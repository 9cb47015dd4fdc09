//! Fields of files as values: common spellings of numbers, booleans and dates, with PostgreSQL 15's results.

use super::spectrum::{csv, pushed, reader};
use firn_base::SqlType::{self, BigInt, Boolean, Date, Double, Integer, Text, Time, Timestamp, TimestampTz};

/// The result of a field: the value as text, or SQLSTATE and message.
fn value(ty: SqlType, field: &str) -> String {
    let types = [ty, Text];
    let read = |record: String| {
        let rows = pushed(reader(&csv(), &types, None), &types, &[record.as_bytes()]);
        rows.map_or_else(|error| format!("{} {}", error.state(), error.message()), |rows| rows[0][0].clone())
    };
    let quoted = read(format!("\"{}\",x\n", field.replace('"', "\"\"")));
    if !field.contains(['"', ',', '\n']) {
        assert_eq!(read(format!("{field},x\n")), quoted, "{ty}: {field:?} with quotes and without");
        assert_eq!(read(format!("{field},x")), quoted, "{ty}: {field:?} at the end of the file");
    }
    quoted
}

fn check(ty: SqlType, right: &[(&str, &str)], wrong: &str, fields: &[&str]) {
    for (field, expected) in right {
        assert_eq!(value(ty, field), *expected, "{ty}: {field:?}");
    }
    for field in fields {
        assert_eq!(value(ty, field), format!("{wrong}: \"{field}\""), "{ty}: {field:?}");
    }
}

#[test]
fn integers_are_digits_with_a_sign_and_blanks_around() {
    let right = &[
        ("7", "7"),
        (" 12 ", "12"),
        ("\t12\n", "12"),
        ("+7", "7"),
        ("-0", "0"),
        ("00042", "42"),
        ("-2147483648", "-2147483648"),
        ("00000000000000000000000000000000000000012", "12"),
    ];
    let wrong = [
        "1,000",
        "1.000",
        "1 000",
        "1'000",
        "1_000",
        "1.0",
        "1.",
        "1e5",
        "0x1F",
        "- 1",
        "--1",
        "+-1",
        "1-",
        "+",
        "-",
        " ",
        "x",
        "1x",
        "NaN",
        "inf",
        "\u{a0}1",
        "\u{2212}1",
        "\u{ff11}",
        "$1",
        "1%",
        "(1)",
        "'1",
        "true",
        "\u{feff}1",
    ];
    for ty in [Integer, BigInt] {
        check(ty, right, &format!("22P02 invalid input syntax for type {ty}"), &wrong);
    }
    assert_eq!(value(BigInt, "-9223372036854775808"), "-9223372036854775808");
    for (ty, field) in [(Integer, "2147483648"), (Integer, "-2147483649"), (BigInt, "9223372036854775808")] {
        let message = format!("22003 value \"{field}\" is out of range for type {ty}");
        assert_eq!(value(ty, field), message);
    }
}

#[test]
fn doubles_have_points_exponents_and_names() {
    let right = &[
        ("1", "1"),
        ("1.50", "1.5"),
        (".5", "0.5"),
        ("5.", "5"),
        (" 2.5 ", "2.5"),
        ("+2.5", "2.5"),
        ("1e5", "100000"),
        ("1E-5", "1e-05"),
        ("-0", "-0"),
        ("-0.0", "-0"),
        ("007.5", "7.5"),
        ("0.1", "0.1"),
        ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("5e-324", "5e-324"),
        ("inf", "Infinity"),
        ("-inf", "-Infinity"),
        ("+Infinity", "Infinity"),
        ("INFINITY", "Infinity"),
        ("nan", "NaN"),
        ("NaN", "NaN"),
    ];
    let wrong = [
        "1,5", "1.000,5", "1,000.5", "1 000.5", "1_000.5", "1e", "e5", ".", "+", " ", "1.5.2", "1e5.5",
        "1.5%", "infinit", "nanx", "#N/A", "1d", "\u{221e}",
    ];
    check(Double, right, "22P02 invalid input syntax for type double precision", &wrong);
    for field in ["1e400", "-1e400", "1e-400"] {
        assert_eq!(
            value(Double, field),
            format!("22003 \"{field}\" is out of range for type double precision")
        );
    }
}

#[test]
fn booleans_are_words_their_beginnings_and_digits() {
    let mut right =
        vec![("1", "t"), ("0", "f"), ("on", "t"), ("of", "f"), ("off", "f"), ("ON", "t"), (" true ", "t")];
    for (word, value) in [
        ("true", "t"),
        ("yes", "t"),
        ("TRUE", "t"),
        ("Yes", "t"),
        ("false", "f"),
        ("no", "f"),
        ("False", "f"),
    ] {
        right.extend((1..=word.len()).map(|length| (&word[..length], value)));
    }
    let wrong = [
        "o", "2", "01", "-1", "1.0", "truer", "yess", "ja", "nein", "wahr", "x", "T F", " ", ".true.",
        "\u{2713}", "null",
    ];
    check(Boolean, &right, "22P02 invalid input syntax for type boolean", &wrong);
}

#[test]
fn days_are_year_month_day_or_say_which_is_which() {
    let right = &[
        ("2024-02-29", "2024-02-29"),
        (" 2024-02-29 ", "2024-02-29"),
        ("2024/02/29", "2024-02-29"),
        ("20240229", "2024-02-29"),
        ("02/29/2024", "2024-02-29"),
        ("29 Feb 2024", "2024-02-29"),
        ("February 29, 2024", "2024-02-29"),
        ("2024-02-29 10:00", "2024-02-29"),
        ("0099-01-01", "0099-01-01"),
    ];
    check(Date, right, "22007 invalid input syntax for type date", &["x", "2024-", "29.", "2024-W09-4"]);
    let outside = "22008 date/time field value out of range";
    check(
        Date,
        &[],
        outside,
        &["2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "29/02/2024", "29.02.2024"],
    );
}

#[test]
fn moments_have_days_times_and_perhaps_zones() {
    let right = &[
        ("2024-02-29 12:30:00", "2024-02-29 12:30:00"),
        ("2024-02-29T12:30:00", "2024-02-29 12:30:00"),
        ("2024-02-29 12:30", "2024-02-29 12:30:00"),
        ("2024-02-29", "2024-02-29 00:00:00"),
        ("2024-02-29 12:30:00.1234567", "2024-02-29 12:30:00.123457"),
        ("2024-02-29 24:00:00", "2024-03-01 00:00:00"),
        ("2024-02-29 12:30:60", "2024-02-29 12:31:00"),
        ("2024-02-29 01:30 PM", "2024-02-29 13:30:00"),
        ("2024-02-29T12:30:00Z", "2024-02-29 12:30:00"),
        ("2024-02-29 12:30:00+02", "2024-02-29 12:30:00"),
    ];
    check(Timestamp, right, "22007 invalid input syntax for type timestamp", &["x", "12:30:00"]);
    let right = &[
        ("2024-02-29 12:30:00", "2024-02-29 12:30:00+00"),
        ("2024-02-29T12:30:00Z", "2024-02-29 12:30:00+00"),
        ("2024-02-29 12:30:00+02", "2024-02-29 10:30:00+00"),
        ("2024-02-29 12:30:00 -0530", "2024-02-29 18:00:00+00"),
        ("2024-02-29 12:30:00+05:30", "2024-02-29 07:00:00+00"),
    ];
    check(TimestampTz, right, "22007 invalid input syntax for type timestamp with time zone", &["x"]);
    let right = &[
        ("12:30:00", "12:30:00"),
        ("12:30", "12:30:00"),
        ("12:30:00.5", "12:30:00.5"),
        ("24:00:00", "24:00:00"),
        ("01:30 PM", "13:30:00"),
    ];
    check(Time, right, "22007 invalid input syntax for type time", &["x", "12h"]);
    let outside = "22008 date/time field value out of range";
    check(Time, &[], outside, &["25:00:00", "12:60", "12:30:61"]);
    check(Timestamp, &[], outside, &["2024-02-30 12:30:00", "2024-02-29 25:00:00"]);
}
