//! Any text is a value of a type or an error, and what is written of a value is read as the same.
#![no_main]

use firn_base::{SqlType, TextStyle, TimeZoneSetting, text};
use libfuzzer_sys::fuzz_target;

const TYPES: [SqlType; 18] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::NUMERIC,
    SqlType::Numeric { precision: 38, scale: 0 },
    SqlType::Numeric { precision: 12, scale: 5 },
    SqlType::Varchar(Some(5)),
    SqlType::Char(5),
    SqlType::Bytea,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
    SqlType::Uuid,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Ok(input) = str::from_utf8(rest) else { return };
    let ty = TYPES[usize::from(*choice) % TYPES.len()];
    let style = TextStyle::in_zone(TimeZoneSetting::Fixed(i32::from(*choice) * 60));
    let Ok(value) = text::parse(input, ty, &style) else { return };
    let mut written = String::new();
    text::write(&value, ty, &style, &mut written);
    let again = text::parse(&written, ty, &style)
        .unwrap_or_else(|error| panic!("{ty}: {input:?} is {value:?}, written {written:?}: {error}"));
    // Texts are compared, since NaN is not equal to itself.
    let mut twice = String::new();
    text::write(&again, ty, &style, &mut twice);
    assert_eq!(written, twice, "{ty}: {input:?} is {value:?}, then {again:?}");
});
