//! [`Numeric`] compared with PostgreSQL 15, whose results are in `cases.txt`, and with a model.
//!
//! A line of `cases.txt` is `operation|value|argument|result`; the result of an error is its SQLSTATE and
//! message. The values were drawn at random and the results printed by psql; results of more than 38 digits
//! were left out.

use super::*;
use crate::random::Random;
use std::hash::{DefaultHasher, Hash, Hasher};

fn number(text: &str) -> Numeric {
    Numeric::parse(text).unwrap_or_else(|error| panic!("{text}: {}", error.message()))
}

fn answer(operation: &str, value: &str, argument: &str) -> Result<String> {
    let whole = || argument.parse::<i32>().expect("the argument is a number");
    let shown = |value: Numeric| value.to_string();
    Ok(match operation {
        "parse" => shown(Numeric::parse(value)?),
        "+" => shown(number(value).checked_add(number(argument))?),
        "-" => shown(number(value).checked_sub(number(argument))?),
        "*" => shown(number(value).checked_mul(number(argument))?),
        "/" => shown(number(value).checked_div(number(argument))?),
        "%" => shown(number(value).checked_rem(number(argument))?),
        "cmp" => (number(value).cmp(&number(argument)) as i8).to_string(),
        "round" => shown(number(value).round(whole())?),
        "trunc" => shown(number(value).truncate(whole())?),
        "ceil" => shown(number(value).ceil()?),
        "floor" => shown(number(value).floor()?),
        "bigint" => number(value).to_i64()?.to_string(),
        "double" => {
            let mut text = String::new();
            crate::text::write_double(number(value).to_f64(), &crate::TextStyle::DEFAULT, &mut text);
            text
        }
        "from" => shown(Numeric::from_f64(crate::text::parse_double(value)?)?),
        "fit" => {
            let (precision, scale) = argument.split_once(',').expect("precision and scale");
            shown(number(value).fit(precision.parse().unwrap(), scale.parse().unwrap())?)
        }
        "send" => {
            let mut bytes = Vec::new();
            number(value).encode(&mut bytes);
            assert!(Numeric::decode(&bytes)?.is_identical(number(value)), "{value}");
            let mut text = String::new();
            crate::text::write_bytea(&bytes, crate::text_style::ByteaStyle::Hex, &mut text);
            text
        }
        other => panic!("{other} is not an operation"),
    })
}

#[test]
fn numerics_answer_as_postgres_does() {
    let mut wrong = String::new();
    for line in include_str!("cases.txt").lines() {
        let mut parts = line.split('|');
        let mut part = || parts.next().expect("a line has four parts");
        let (operation, value, argument, expected) = (part(), part(), part(), part());
        let found = answer(operation, value, argument)
            .unwrap_or_else(|error| format!("{} {}", error.state(), error.message()));
        if found != expected {
            wrong += &format!("{operation} {value} {argument}: {found} instead of {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_has_more_than_38_digits_loses_decimals_and_then_overflows() {
    let long = number("12345678901234567890.123456789");
    assert_eq!(
        long.checked_mul(number("1.0000000000")).unwrap().to_string(),
        "12345678901234567890.123456789000000000"
    );
    let error = long.checked_mul(long).unwrap_err();
    assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    assert_eq!(error.hint(), Some("FirnDB's numeric has 38 digits."));
    assert_eq!(
        number("1").checked_add(number("1e-1000")).unwrap().to_string(),
        format!("1.{}", "0".repeat(37))
    );
    let most = number(&"9".repeat(38));
    assert!(most.checked_add(most).is_err());
    assert!(most.round(-38).is_err(), "the result would have 39 digits");
    assert_eq!(number(&format!("0.{}", "9".repeat(39))).to_string(), format!("1.{}", "0".repeat(37)));
    assert!(Numeric::parse(&"9".repeat(39)).is_err());
    assert_eq!(number("1e-16383").checked_mul(number("1e-16383")).unwrap().to_parts(), (0, MAX_SCALE));
}

fn any(random: &mut Random) -> Numeric {
    match random.uniform(0, 20) {
        0 => Numeric::NAN,
        1 => Numeric::INFINITY,
        2 => Numeric::NEGATIVE_INFINITY,
        3 => number("0.000"),
        _ => {
            let bits = random.uniform(1, 126) as u32;
            let digits =
                (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) >> (128 - bits);
            let unscaled = digits as i128 % POWERS[38];
            let scale =
                if random.uniform(0, 10) == 0 { random.uniform(0, 16_383) } else { random.uniform(0, 40) };
            let zeros = POWERS[random.uniform(0, 5) as usize];
            let unscaled = unscaled / zeros * zeros;
            Numeric::from_parts(if random.uniform(0, 1) == 0 { unscaled } else { -unscaled }, scale as u16)
        }
    }
}

#[test]
fn images_text_and_binary_format_keep_value_and_scale() {
    let mut random = Random::seeded(7);
    for _ in 0..20_000 {
        let value = any(&mut random);
        let image = value.image();
        assert!(
            Numeric::from_image(image.bytes()).expect("the bytes are an image").is_identical(value),
            "{value}"
        );
        assert!(number(&value.to_string()).is_identical(value), "{value}");
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert!(Numeric::decode(&bytes).unwrap().is_identical(value), "{value}");
    }
}

/// The bytes as drawn in `image.rs`.
#[test]
fn an_image_has_its_scale_and_as_few_bytes_as_hold_the_digits() {
    for (text, bytes) in [
        ("0", &[0, 0][..]),
        ("0.00", &[2, 0]),
        ("1.0", &[1, 0, 10]),
        ("127", &[0, 0, 127]),
        ("128", &[0, 0, 128, 0]),
        ("-1", &[0, 0, 0xff]),
        ("-12.8", &[1, 0, 0x80]),
        ("-129", &[0, 0, 0x7f, 0xff]),
        ("1e-300", &[0x2c, 0x01, 1]),
        ("NaN", &[0xff, 0xff]),
        ("Infinity", &[0xfe, 0xff]),
        ("-Infinity", &[0xfd, 0xff]),
    ] {
        assert_eq!(number(text).image().bytes(), bytes, "{text}");
    }
    let long = number("99999999999999999999999999999999999999");
    assert_eq!(long.image().bytes().len(), 18);
    for bad in
        [&[][..], &[1], &[0, 0, 0], &[0, 0, 1, 0], &[0xff, 0xff, 1], &[0xfc, 0xff], &[0, 0x40, 1], &[0; 30]]
    {
        assert!(Numeric::from_image(bad).is_none(), "{bad:?}");
    }
}

/// Numbers of few digits as integers at one scale.
#[test]
fn order_and_hash_are_of_the_value() {
    let hash = |value: Numeric| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    };
    let mut random = Random::seeded(11);
    for _ in 0..20_000 {
        let mut small = || (random.uniform(0, 2_000) as i128 - 1_000, random.uniform(0, 3) as u16);
        let (left, right) = (small(), small());
        let at_three = |(unscaled, scale): (i128, u16)| unscaled * POWERS[usize::from(3 - scale)];
        let numeric = |(unscaled, scale)| Numeric::new(unscaled, scale).expect("the number is small");
        let order = at_three(left).cmp(&at_three(right));
        let (left, right) = (numeric(left), numeric(right));
        assert_eq!(left.cmp(&right), order, "{left} {right}");
        assert!(order != Ordering::Equal || hash(left) == hash(right), "{left} {right}");
    }
    assert_eq!(hash(number("100")), hash(number("100.00")));
    assert!(number("1e37") > number("1e-16383") && number("-1e37") < number("-1e-16383"));
}

#[test]
fn bytes_that_are_no_numeric_are_refused_and_hidden_digits_are_cut() {
    let read = |hex: &str| Numeric::decode(&crate::text::parse_bytea(hex).unwrap());
    assert_eq!(read("\\x0002000000000001000104d2").unwrap().to_string(), "1.1");
    assert_eq!(read("\\x0001fffb000000000001").unwrap().to_string(), "0");
    for bad in [
        "\\x",
        "\\x0001000000000000",
        "\\x00010000000000002710",
        "\\x0000000080000000",
        "\\x0000000000004000",
        "\\x00000000000000000000",
    ] {
        assert_eq!(read(bad).unwrap_err().state(), SqlState::INVALID_BINARY_REPRESENTATION, "{bad}");
    }
    assert!(read("\\x000103e8000000000001").is_err(), "10000^1000 has more than 38 digits");
}
