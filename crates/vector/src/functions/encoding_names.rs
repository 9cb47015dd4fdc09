//! PostgreSQL's encodings by name and number, whether or not we convert them; and `to_ascii`.

use crate::kernel::Text;
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState};

/// The names, each at its number.
const NAMES: [&str; 42] = [
    "SQL_ASCII",
    "EUC_JP",
    "EUC_CN",
    "EUC_KR",
    "EUC_TW",
    "EUC_JIS_2004",
    "UTF8",
    "MULE_INTERNAL",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "WIN1256",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "WIN1251",
    "WIN1252",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1257",
    "KOI8U",
    "SJIS",
    "BIG5",
    "GBK",
    "UHC",
    "GB18030",
    "JOHAB",
    "SHIFT_JIS_2004",
];

/// Other names in lower case and without punctuation, with their numbers.
const ALIASES: &[(&str, u8)] = &[
    ("abc", 19),
    ("alt", 20),
    ("iso88591", 8),
    ("iso885910", 13),
    ("iso885913", 14),
    ("iso885914", 15),
    ("iso885915", 16),
    ("iso885916", 17),
    ("iso88592", 9),
    ("iso88593", 10),
    ("iso88594", 11),
    ("iso88599", 12),
    ("koi8", 22),
    ("mskanji", 35),
    ("shiftjis", 35),
    ("tcvn", 19),
    ("tcvn5712", 19),
    ("unicode", 6),
    ("vscii", 19),
    ("win", 23),
    ("win932", 35),
    ("win936", 37),
    ("win949", 38),
    ("win950", 36),
    ("windows1250", 29),
    ("windows1251", 23),
    ("windows1252", 24),
    ("windows1253", 30),
    ("windows1254", 31),
    ("windows1255", 32),
    ("windows1256", 18),
    ("windows1257", 33),
    ("windows1258", 19),
    ("windows866", 20),
    ("windows874", 21),
    ("windows932", 35),
    ("windows936", 37),
    ("windows949", 38),
    ("windows950", 36),
];

/// The name of the encoding of a number.
pub fn encoding_name(number: i32) -> Option<&'static str> {
    NAMES.get(usize::try_from(number).ok()?).copied()
}

/// The number of the encoding of a name, of which case and punctuation do not matter.
pub fn encoding_number(name: &str) -> Option<i32> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    let is_named = |known: &&str| known.chars().filter(|c| *c != '_').eq(plain.to_ascii_uppercase().chars());
    let number = NAMES.iter().position(is_named).map(|place| place as i32);
    number.or_else(|| Some(i32::from(ALIASES.iter().find(|(known, _)| *known == plain)?.1)))
}

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("to_ascii(text)", |_, (_,)| Err::<Text, _>(not_converted("UTF8")));
    builder.scalar::<(&str, i32), _>("to_ascii(text,int4)", |call, (text, number)| {
        let name = encoding_name(number).ok_or_else(|| {
            let message = format!("{number} is not a valid encoding code");
            Error::new(SqlState::UNDEFINED_OBJECT, message)
        })?;
        to_ascii(text, name, &mut call.text)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str), _>("to_ascii(text,name)", |call, (text, name)| {
        let known = encoding_number(name).and_then(encoding_name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_OBJECT, format!("{name} is not a valid encoding name"))
        })?;
        to_ascii(text, known, &mut call.text)?;
        Ok::<_, Error>(Text)
    });
}

/// What letters of the upper half of an encoding look like, from a byte on.
const LOOKS: [(&str, u8, &[u8]); 4] = [
    (
        "LATIN1",
        0xa0,
        b"  cL Y  \"Ca  -R     'u .,      ?AAAAAAACEEEEIIII NOOOOOxOUUUUYTBaaaaaaaceeeeiiii nooooo/ouuuuyty",
    ),
    (
        "LATIN2",
        0xa0,
        b" A L LS \"SSTZ-ZZ a,l'ls ,sstz\"zzRAAAALCCCEEEEIIDDNNOOOOxRUUUUYTBraaaalccceeeeiiddnnoooo/ruuuuyt.",
    ),
    (
        "LATIN9",
        0xa0,
        b"  cL YS sCa  -R     Zu .z   EeY?AAAAAAACEEEEIIII NOOOOOxOUUUUYTBaaaaaaaceeeeiiii nooooo/ouuuuyty",
    ),
    (
        "WIN1250",
        0x80,
        b"  ' \"    %S<STZZ `'\"\".--  s>stzz   L A  \"CS  -RZ  ,l'u .,as L\"lzRAAAALCCCEEEEIIDDNNOOOOxRUUUUYTBraaaalccceeeeiiddnnoooo/ruuuuyt ",
    ),
];

/// Each byte of a text as if it were of that encoding, which no text here is: so PostgreSQL does in a UTF-8 database.
fn to_ascii(text: &str, encoding: &str, out: &mut String) -> Result<()> {
    let look = LOOKS.iter().find(|(name, ..)| *name == encoding);
    let (_, first, looks) = look.ok_or_else(|| not_converted(encoding))?;
    out.extend(text.bytes().map(|byte| match byte {
        0..0x80 => char::from(byte),
        byte if byte < *first => ' ',
        byte => char::from(looks[usize::from(byte - first)]),
    }));
    Ok(())
}

#[cold]
fn not_converted(encoding: &str) -> Error {
    let message = format!("encoding conversion from {encoding} to ASCII not supported");
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_looks_of_an_encoding_go_to_its_last_byte() {
        for (name, first, looks) in LOOKS {
            assert_eq!(usize::from(first) + looks.len(), 256, "{name}");
            assert!(encoding_number(name).is_some(), "{name}");
        }
    }

    /// As in PostgreSQL 15.
    #[test]
    fn encodings_have_the_numbers_of_postgresql_by_all_names() {
        for (name, number) in [
            ("UTF8", 6),
            ("utf-8", 6),
            ("Latin 1", 8),
            ("iso-8859-15", 16),
            ("ISO_8859_5", 25),
            ("ms_kanji", 35),
        ] {
            assert_eq!(encoding_number(name), Some(number), "{name}");
        }
        assert_eq!((encoding_number("nonsense"), encoding_name(-1), encoding_name(42)), (None, None, None));
    }
}
