//! Files in encodings that have one byte for each character, converted to UTF-8.
//!
//! All of them are ASCII in their lower half. Line numbers do not change, so errors name the lines of the file. A byte without
//! a character in the encoding is left unchanged, which is invalid UTF-8 in that place, and so it is reported with its line.

use firn_base::{Error, Result};
use std::io::{self, Read};

/// The character encoding of a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// UTF-8.
    #[default]
    Utf8,
    /// ISO 8859-1.
    Latin1,
    /// ISO 8859-15, which has the euro.
    Latin9,
    /// Windows code page 1252: what most files contain that are declared as ISO 8859-1.
    Windows1252,
}

/// The first quarter of the upper half of Windows 1252; zero for none.
const WINDOWS_1252: [u16; 32] = [
    0x20ac, 0, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,
    0x017d, 0, 0, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a,
    0x0153, 0, 0x017e, 0x0178,
];

/// The most bytes of a character in UTF-8.
const MOST_BYTES: usize = 3;

/// The number of bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

impl Encoding {
    /// The encoding with this name, as PostgreSQL, DuckDB and others use it.
    pub fn of(name: &str) -> Option<Encoding> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match plain.to_ascii_lowercase().as_str() {
            "utf8" | "unicode" => Encoding::Utf8,
            "latin1" | "iso88591" | "l1" => Encoding::Latin1,
            "latin9" | "iso885915" | "l9" => Encoding::Latin9,
            "win1252" | "windows1252" | "cp1252" => Encoding::Windows1252,
            _ => return None,
        })
    }

    /// As [`Encoding::of`]; 0A000 for an unknown name.
    pub fn named(name: &str) -> Result<Encoding> {
        Encoding::of(name).ok_or_else(|| {
            Error::unsupported(format!("encoding \"{name}\"")).with_hint(
                "Supported are UTF8, LATIN1, LATIN9 and WIN1252. Convert files in other encodings to UTF-8.",
            )
        })
    }

    /// The character of a byte beyond ASCII, if it has one.
    fn character(self, byte: u8) -> Option<char> {
        match (self, byte) {
            (Encoding::Windows1252, 0x80..=0x9f) => {
                char::from_u32(WINDOWS_1252[usize::from(byte - 0x80)].into()).filter(|found| *found != '\0')
            }
            (Encoding::Latin9, 0xa4) => Some('€'),
            (Encoding::Latin9, 0xa6) => Some('Š'),
            (Encoding::Latin9, 0xa8) => Some('š'),
            (Encoding::Latin9, 0xb4) => Some('Ž'),
            (Encoding::Latin9, 0xb8) => Some('ž'),
            (Encoding::Latin9, 0xbc) => Some('Œ'),
            (Encoding::Latin9, 0xbd) => Some('œ'),
            (Encoding::Latin9, 0xbe) => Some('Ÿ'),
            _ => Some(char::from(byte)),
        }
    }

    /// Appends bytes of a file as UTF-8.
    pub fn decode(self, mut bytes: &[u8], text: &mut Vec<u8>) {
        if self == Encoding::Utf8 {
            return text.extend_from_slice(bytes);
        }
        while let Some(at) = bytes.iter().position(|byte| !byte.is_ascii()) {
            text.extend_from_slice(&bytes[..at]);
            match self.character(bytes[at]) {
                Some(character) => {
                    text.extend_from_slice(character.encode_utf8(&mut [0; MOST_BYTES]).as_bytes())
                }
                None => text.push(bytes[at]),
            }
            bytes = &bytes[at + 1..];
        }
        text.extend_from_slice(bytes);
    }
}

/// A file converted to UTF-8.
pub struct Decoded<R> {
    file: R,
    encoding: Encoding,
    piece: Box<[u8]>,
    text: Vec<u8>,
    /// The length of the text that has been returned.
    read: usize,
}

impl<R: Read> Decoded<R> {
    /// A file in that encoding.
    pub fn new(file: R, encoding: Encoding) -> Decoded<R> {
        let bytes = if encoding == Encoding::Utf8 { 0 } else { PIECE_BYTES };
        Decoded { file, encoding, piece: vec![0; bytes].into(), text: Vec::new(), read: 0 }
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.encoding == Encoding::Utf8 {
            return self.file.read(buffer);
        }
        if self.read == self.text.len() {
            let length = self.file.read(&mut self.piece)?;
            self.text.clear();
            self.read = 0;
            self.encoding.decode(&self.piece[..length], &mut self.text);
        }
        let length = buffer.len().min(self.text.len() - self.read);
        buffer[..length].copy_from_slice(&self.text[self.read..][..length]);
        self.read += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_characters_that_the_encodings_have() {
        let decoded = |encoding: Encoding, bytes: &[u8]| {
            let mut text = Vec::new();
            encoding.decode(bytes, &mut text);
            text
        };
        for (encoding, bytes, text) in [
            (Encoding::Latin1, &b"Caf\xe9 \xa4 \xff"[..], "Café ¤ ÿ"),
            (Encoding::Latin9, b"Caf\xe9 \xa4 \xbe", "Café € Ÿ"),
            (Encoding::Windows1252, b"\x80 \x93Caf\xe9\x94 \x9f", "€ “Café” Ÿ"),
            (Encoding::Utf8, "Café".as_bytes(), "Café"),
        ] {
            assert_eq!(decoded(encoding, bytes), text.as_bytes());
        }
        // Every byte is one character, except for those without a character.
        let all: Vec<u8> = (0..=255).collect();
        for encoding in [Encoding::Latin1, Encoding::Latin9] {
            assert_eq!(String::from_utf8(decoded(encoding, &all)).unwrap().chars().count(), 256);
        }
        for byte in 0..=255 {
            let is_none = [0x81, 0x8d, 0x8f, 0x90, 0x9d].contains(&byte);
            assert_eq!(std::str::from_utf8(&decoded(Encoding::Windows1252, &[byte])).is_err(), is_none);
        }
    }

    #[test]
    fn a_file_is_decoded_however_little_is_read_at_once() {
        let file: Vec<u8> = (0..200_000_u32).map(|at| [b'a', 0xe9, b'\n', 0x80][at as usize % 4]).collect();
        let mut whole = Vec::new();
        Encoding::Windows1252.decode(&file, &mut whole);
        for most in [1, 7, 100_000] {
            let (mut read, mut buffer) = (Vec::new(), vec![0; most]);
            let mut decoded =
                Decoded::new(&file[..if most == 1 { 1_000 } else { file.len() }], Encoding::Windows1252);
            loop {
                match decoded.read(&mut buffer).unwrap() {
                    0 => break,
                    length => read.extend_from_slice(&buffer[..length]),
                }
            }
            assert!(whole.starts_with(&read) && (most == 1 || read.len() == whole.len()));
        }
    }

    #[test]
    fn encodings_have_the_names_that_others_give_them() {
        for (name, encoding) in [
            ("UTF-8", Encoding::Utf8),
            ("LATIN1", Encoding::Latin1),
            ("iso-8859-1", Encoding::Latin1),
            ("latin-1", Encoding::Latin1),
            ("ISO_8859_15", Encoding::Latin9),
            ("WIN1252", Encoding::Windows1252),
            ("windows-1252", Encoding::Windows1252),
        ] {
            assert_eq!(Encoding::of(name), Some(encoding), "{name}");
        }
        assert_eq!(Encoding::of("EUC_JP"), None);
    }
}
