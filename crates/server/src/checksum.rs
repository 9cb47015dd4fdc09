//! The entry of a file in `dump.json` by which damage is noticed: its length, and the CRC32C of its bytes.
//!
//! The processor computes it (about 10 GB/s a core), so that it costs little beside reading and writing rows. It detects
//! errors of disks and copies, not deliberate changes by a user that can write `dump.json` as well.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::{Value, json};

/// The number of bytes of a file that are read at once.
const PIECE: usize = 1 << 20;

/// The length of some bytes and their CRC32C.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Checksum {
    bytes: u64,
    crc: u32,
}

impl Checksum {
    /// The checksum of bytes in memory.
    pub fn of(bytes: &[u8]) -> Checksum {
        let mut checksum = Checksum::default();
        checksum.add(bytes);
        checksum
    }

    /// The checksum of a file.
    pub fn of_file(path: &Path) -> io::Result<Checksum> {
        let (mut file, mut checksum) = (File::open(path)?, Checksum::default());
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(checksum),
                Ok(read) => checksum.add(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The CRC in text: eight digits.
    pub fn digits(&self) -> String {
        format!("{:08x}", self.crc)
    }

    /// In the form of `dump.json`.
    pub fn to_json(self) -> Value {
        json!({ "bytes": self.bytes, "crc32c": self.digits() })
    }

    /// Reads the result of [`to_json`](Checksum::to_json).
    pub fn from_json(value: &Value) -> Option<Checksum> {
        let digits = value["crc32c"].as_str()?;
        Some(Checksum { bytes: value["bytes"].as_u64()?, crc: u32::from_str_radix(digits, 16).ok()? })
    }

    /// The damage of a file that was `written` with this checksum, if it differs.
    pub fn difference(self, written: Checksum) -> Option<String> {
        if self.bytes != written.bytes {
            return Some(format!("it has {} bytes, but {} were written", self.bytes, written.bytes));
        }
        let (ours, theirs) = (self.digits(), written.digits());
        (self != written).then(|| format!("its checksum is {ours}, but {theirs} was written"))
    }
}

/// A file that is written, with the checksum of its bytes so far.
pub struct Summed<W> {
    to: W,
    /// The checksum of the bytes so far.
    pub checksum: Checksum,
}

impl<W> Summed<W> {
    /// Nothing has been written.
    pub fn new(to: W) -> Summed<W> {
        Summed { to, checksum: Checksum::default() }
    }

    /// The file.
    pub fn into_inner(self) -> W {
        self.to
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.checksum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_the_whole_and_survives_its_json() {
        // The CRC32C of these digits is the check value in every description of it.
        let whole = Checksum::of(b"123456789");
        assert_eq!((whole.bytes(), whole.digits().as_str()), (9, "e3069283"));
        let mut summed = Summed::new(Vec::new());
        summed.write_all(b"1234").unwrap();
        summed.write_all(b"56789").unwrap();
        assert_eq!((summed.checksum, summed.into_inner()), (whole, b"123456789".to_vec()));
        assert_eq!(Checksum::from_json(&whole.to_json()), Some(whole));
        assert_eq!(whole.difference(whole), None);
        assert!(Checksum::of(b"123456788").difference(whole).unwrap().contains("checksum"));
        assert!(Checksum::of(b"12345678").difference(whole).unwrap().contains("8 bytes, but 9"));
    }
}
