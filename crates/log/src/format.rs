//! The bytes of a segment file.
//!
//! ```text
//! segment file   | segment header | zeros to 4096 | group | group | … | stale or zero bytes |
//!
//! segment        0        8         12    16       24          32           40         56     64
//! header         | magic  | version | crc | number | first LSN | file bytes | database | salt |
//!
//! group          0     4         8     16       24     32
//!                | crc | entries | LSN | length | salt | entry … entry, zeros to a multiple of 8
//!
//! entry          0             8        16
//!                | commit time | length | records (see `record`)
//! ```
//!
//! An LSN counts the bytes after the segment headers, as if all segments were concatenated. A group may begin
//! in one segment and end in a later one. One flush writes one group; each entry is one commit. CRCs are
//! CRC32C: that of a segment header covers the header without the CRC, that of a group everything after the
//! CRC.
//!
//! Segments are recycled, so old bytes follow the newest group. They are never mistaken for new ones: a group
//! contains its own LSN, which is unique in a log, and the random salt of the segment in which it begins.
//! This excludes even a stored value that imitates a group.

use firn_base::{Error, Lsn, Result, SqlState};
use std::path::Path;

/// Identifies a database, so that the files of two databases are never mixed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatabaseId(pub [u8; 16]);

/// The version of the format of segment files that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Where groups begin in a segment file. A page of its own, so that no flush rewrites the header.
pub const DATA_START: u64 = 4096;
/// Bytes of a segment header.
pub const SEGMENT_HEADER_LEN: usize = 64;
/// Bytes of a group before its entries.
pub const GROUP_HEADER_LEN: usize = 32;
/// Bytes of an entry before its records.
pub const ENTRY_HEADER_LEN: usize = 16;
/// Groups begin at multiples of this.
pub const GROUP_ALIGNMENT: usize = 8;

const MAGIC: [u8; 8] = *b"FIRNREDO";
const _: () = assert!(GROUP_HEADER_LEN.is_multiple_of(GROUP_ALIGNMENT));
const _: () = assert!(DATA_START.is_multiple_of(GROUP_ALIGNMENT as u64));

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The header of a segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Segments are numbered without gaps.
    pub number: u64,
    /// The LSN of the first byte after the header.
    pub first: Lsn,
    /// Length of the file.
    pub file_bytes: u64,
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// Repeated by the groups that begin here.
    pub salt: u64,
}

impl SegmentHeader {
    /// The LSN after its last byte, where the next segment begins.
    pub fn end(&self) -> Lsn {
        Lsn(self.first.0 + (self.file_bytes - DATA_START))
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut bytes = [0; SEGMENT_HEADER_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.database.0);
        bytes[56..64].copy_from_slice(&self.salt.to_le_bytes());
        let crc = segment_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads and checks the header of the file at `path`.
    pub fn decode(
        bytes: &[u8; SEGMENT_HEADER_LEN],
        path: &Path,
        number: u64,
        database: DatabaseId,
    ) -> Result<SegmentHeader> {
        let damaged = |what: &str| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                format!("the log file \"{}\" is damaged: {what}", path.display()),
            )
            .with_hint("Restore the file from a backup of this database.")
        };
        if bytes[0..8] != MAGIC {
            return Err(damaged("it does not begin like a log file"));
        }
        if segment_crc(bytes) != u32_at(bytes, 12) {
            return Err(damaged("the checksum of its header is wrong"));
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("the log file \"{}\" has format version {version}", path.display()),
            )
            .with_detail(format!("This version of FirnDB reads and writes format version {FORMAT_VERSION}."))
            .with_hint("Open the database with the version that wrote it."));
        }
        let header = SegmentHeader {
            number: u64_at(bytes, 16),
            first: Lsn(u64_at(bytes, 24)),
            file_bytes: u64_at(bytes, 32),
            database: DatabaseId(bytes[40..56].try_into().expect("16 bytes")),
            salt: u64_at(bytes, 56),
        };
        if header.database != database {
            return Err(damaged("it belongs to another database"));
        }
        if header.number != number {
            return Err(damaged(&format!("it is segment {} under a wrong name", header.number)));
        }
        let aligned = header.file_bytes.is_multiple_of(GROUP_ALIGNMENT as u64)
            && header.first.0.is_multiple_of(GROUP_ALIGNMENT as u64);
        if header.file_bytes <= DATA_START
            || header.first.0 >> 62 != 0
            || header.file_bytes >> 62 != 0
            || !aligned
        {
            return Err(damaged("its header is invalid"));
        }
        Ok(header)
    }
}

fn segment_crc(bytes: &[u8; SEGMENT_HEADER_LEN]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// The header of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// CRC32C of the rest of the header and the entries.
    pub crc: u32,
    /// The number of commits in it.
    pub entries: u32,
    /// The LSN at which it begins.
    pub lsn: Lsn,
    /// Bytes after the header, padding included.
    pub length: u64,
    /// The salt of the segment in which it begins.
    pub salt: u64,
}

impl GroupHeader {
    /// Reads a header; the caller checks it.
    pub fn decode(bytes: &[u8; GROUP_HEADER_LEN]) -> GroupHeader {
        GroupHeader {
            crc: u32_at(bytes, 0),
            entries: u32_at(bytes, 4),
            lsn: Lsn(u64_at(bytes, 8)),
            length: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
        }
    }
}

/// Completes a group whose entries are in `chunks`, the first of which begins with space for the header.
pub fn seal_group(chunks: &mut [Vec<u8>], entries: u32, lsn: Lsn, salt: u64) {
    let length = chunks.iter().map(Vec::len).sum::<usize>();
    debug_assert!(length > GROUP_HEADER_LEN && length.is_multiple_of(GROUP_ALIGNMENT));
    let (group, rest) = chunks.split_first_mut().expect("a group has a header");
    group[4..8].copy_from_slice(&entries.to_le_bytes());
    group[8..16].copy_from_slice(&lsn.0.to_le_bytes());
    group[16..24].copy_from_slice(&((length - GROUP_HEADER_LEN) as u64).to_le_bytes());
    group[24..32].copy_from_slice(&salt.to_le_bytes());
    let crc = rest.iter().fold(crc32c::crc32c(&group[4..]), |crc, chunk| crc32c::crc32c_append(crc, chunk));
    group[0..4].copy_from_slice(&crc.to_le_bytes());
}

/// The header of an entry.
#[inline]
pub fn encode_entry_header(time: firn_base::Time, length: usize) -> [u8; ENTRY_HEADER_LEN] {
    let mut bytes = [0; ENTRY_HEADER_LEN];
    bytes[0..8].copy_from_slice(&time.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    bytes
}

/// The commit time and length in an entry's header.
pub fn decode_entry_header(bytes: &[u8; ENTRY_HEADER_LEN]) -> (firn_base::Time, u64) {
    (firn_base::Time(u64_at(bytes, 0)), u64_at(bytes, 8))
}

/// The name of the file of a segment.
pub fn segment_name(number: u64) -> String {
    format!("{number:016x}.redo")
}

/// The inverse of [`segment_name`].
pub fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".redo")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::Time;

    #[test]
    fn a_segment_header_has_exactly_these_bytes() {
        let header = SegmentHeader {
            number: 2,
            first: Lsn(0x0100),
            file_bytes: 8192,
            database: DatabaseId([0xdb; 16]),
            salt: 0x0807_0605_0403_0201,
        };
        let mut expected = b"FIRNREDO\x01\0\0\0".to_vec();
        expected.extend([0; 4]);
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xdb; 16]);
        expected.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        let covered: Vec<u8> = [&expected[..12], &expected[16..]].concat();
        expected[12..16].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        let bytes = header.encode();
        assert_eq!(bytes[..], expected);
        let path = Path::new("p");
        assert_eq!(SegmentHeader::decode(&bytes, path, 2, header.database).unwrap(), header);
        assert_eq!(header.end(), Lsn(0x0100 + 4096));
        for at in 0..SEGMENT_HEADER_LEN {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            let error = SegmentHeader::decode(&flipped, path, 2, header.database).unwrap_err();
            assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
        }
        let foreign = SegmentHeader::decode(&bytes, path, 2, DatabaseId([0; 16])).unwrap_err();
        assert!(foreign.message().contains("another database"));
    }

    #[test]
    fn a_group_has_exactly_these_bytes() {
        let mut group = vec![0; GROUP_HEADER_LEN];
        group.extend(encode_entry_header(Time(5), 3));
        group.extend(*b"abc\0\0\0\0\0");
        let (header, entry) = group.split_at(GROUP_HEADER_LEN + 5);
        let mut chunks = [header.to_vec(), entry.to_vec()];
        seal_group(std::slice::from_mut(&mut group), 1, Lsn(0x10), 0xff);
        seal_group(&mut chunks, 1, Lsn(0x10), 0xff);
        assert_eq!(chunks.concat(), group);
        let mut expected = vec![0, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([0xff, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(*b"abc\0\0\0\0\0");
        let crc = crc32c::crc32c(&expected[4..]);
        expected[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(group, expected);
        let header = GroupHeader::decode(group[..32].try_into().unwrap());
        assert_eq!(header, GroupHeader { crc, entries: 1, lsn: Lsn(0x10), length: 24, salt: 0xff });
    }

    #[test]
    fn segment_names_are_read_back_and_nothing_else_is() {
        assert_eq!(segment_name(0x2a), "000000000000002a.redo");
        assert_eq!(parse_segment_name("000000000000002a.redo"), Some(0x2a));
        for name in ["2a.redo", "000000000000002A.redo", "000000000000002a.tmp", "spare", ".redo"] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
