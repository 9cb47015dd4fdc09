//! Character encodings for the conversion of text: the encodings with one byte per character that clients
//! still use.

use crate::{Error, Result, SqlState};

/// An encoding of characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// Bytes without a meaning.
    SqlAscii,
    /// UTF-8.
    #[default]
    Utf8,
    /// ISO 8859-1.
    Latin1,
    /// ISO 8859-15.
    Latin9,
    /// Windows code page 1252.
    Windows1252,
}

/// The characters of ISO 8859-15 that differ from ISO 8859-1.
const LATIN9: [(u8, char); 8] =
    [(0xa4, '€'), (0xa6, 'Š'), (0xa8, 'š'), (0xb4, 'Ž'), (0xb8, 'ž'), (0xbc, 'Œ'), (0xbd, 'œ'), (0xbe, 'Ÿ')];

/// The characters of 0x80 to 0x9f in code page 1252; `\0` means none.
const WINDOWS: [char; 32] = [
    '€', '\0', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\0', 'Ž', '\0', '\0', '‘', '’', '“',
    '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\0', 'ž', 'Ÿ',
];

impl Encoding {
    /// The encoding with PostgreSQL's name, if it is one of these.
    pub fn of(name: &str) -> Option<Encoding> {
        const ALL: [Encoding; 5] =
            [Encoding::SqlAscii, Encoding::Utf8, Encoding::Latin1, Encoding::Latin9, Encoding::Windows1252];
        ALL.into_iter().find(|encoding| encoding.name() == name)
    }

    /// PostgreSQL's name.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::SqlAscii => "SQL_ASCII",
            Encoding::Utf8 => "UTF8",
            Encoding::Latin1 => "LATIN1",
            Encoding::Latin9 => "LATIN9",
            Encoding::Windows1252 => "WIN1252",
        }
    }

    /// 22021 for bytes that are not valid in the encoding.
    pub fn check(self, bytes: &[u8]) -> Result<()> {
        let wrong = match self {
            Encoding::Utf8 => match std::str::from_utf8(bytes) {
                Ok(_) => bytes.iter().position(|byte| *byte == 0),
                // A zero byte before the first invalid byte is reported first.
                Err(error) => {
                    let valid = error.valid_up_to();
                    Some(bytes[..valid].iter().position(|byte| *byte == 0).unwrap_or(valid))
                }
            },
            _ => bytes.iter().position(|byte| *byte == 0),
        };
        let Some(place) = wrong else { return Ok(()) };
        // The error shows as many bytes as the first one announces for the character.
        let width = match (self, bytes[place]) {
            (Encoding::Utf8, 0xc0..=0xdf) => 2,
            (Encoding::Utf8, 0xe0..=0xef) => 3,
            (Encoding::Utf8, 0xf0..=0xf7) => 4,
            _ => 1,
        };
        let shown: Vec<String> =
            bytes[place..].iter().take(width).map(|byte| format!("0x{byte:02x}")).collect();
        let message = format!("invalid byte sequence for encoding \"{}\": {}", self.name(), shown.join(" "));
        Err(Error::new(SqlState::new("22021"), message))
    }

    /// Decodes bytes of the encoding.
    pub fn read(self, bytes: &[u8]) -> Result<String> {
        let own = if self == Encoding::SqlAscii { Encoding::Utf8 } else { self };
        own.check(bytes)?;
        let mut text = String::with_capacity(bytes.len());
        for (place, byte) in bytes.iter().enumerate() {
            let character = match self {
                Encoding::Utf8 | Encoding::SqlAscii => {
                    return Ok(std::str::from_utf8(bytes).expect("the bytes were checked").to_owned());
                }
                Encoding::Latin1 => char::from(*byte),
                Encoding::Latin9 => LATIN9
                    .iter()
                    .find(|(code, _)| code == byte)
                    .map_or(char::from(*byte), |(_, other)| *other),
                Encoding::Windows1252 => match byte {
                    0x80..=0x9f if WINDOWS[usize::from(byte - 0x80)] == '\0' => {
                        return Err(no_equivalent(&bytes[place..=place], self, Encoding::Utf8));
                    }
                    0x80..=0x9f => WINDOWS[usize::from(byte - 0x80)],
                    byte => char::from(*byte),
                },
            };
            text.push(character);
        }
        Ok(text)
    }

    /// Appends text as bytes of the encoding. 22P05 for a character that it does not have.
    pub fn write(self, text: &str, out: &mut Vec<u8>) -> Result<()> {
        for character in text.chars() {
            let code = u32::from(character);
            let byte = match self {
                Encoding::Utf8 | Encoding::SqlAscii => {
                    out.extend_from_slice(text.as_bytes());
                    return Ok(());
                }
                Encoding::Latin1 => u8::try_from(code).ok(),
                Encoding::Latin9 => match LATIN9.iter().find(|(_, other)| *other == character) {
                    Some((byte, _)) => Some(*byte),
                    None => {
                        u8::try_from(code).ok().filter(|byte| LATIN9.iter().all(|(other, _)| other != byte))
                    }
                },
                Encoding::Windows1252 => {
                    match WINDOWS.iter().position(|other| *other == character && code != 0) {
                        Some(place) => Some(0x80 + place as u8),
                        None => u8::try_from(code).ok().filter(|byte| !(0x80..=0x9f).contains(byte)),
                    }
                }
            };
            let Some(byte) = byte else {
                let mut buffer = [0; 4];
                return Err(no_equivalent(
                    character.encode_utf8(&mut buffer).as_bytes(),
                    Encoding::Utf8,
                    self,
                ));
            };
            out.push(byte);
        }
        Ok(())
    }
}

#[cold]
fn no_equivalent(bytes: &[u8], source: Encoding, destination: Encoding) -> Error {
    let shown: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    Error::new(
        SqlState::new("22P05"),
        format!(
            "character with byte sequence {} in encoding \"{}\" has no equivalent in encoding \"{}\"",
            shown.join(" "),
            source.name(),
            destination.name()
        ),
    )
}
