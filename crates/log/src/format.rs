//! The bytes of a segment file.
//!
//! ```text
//! segment file   | segment header | zeros to 4096 | group | group | … | stale or zero bytes |
//!
//! segment        0        8         12    16       24          32           40         56     64      72
//! header         | magic  | version | crc | number | first LSN | file bytes | database | salt | epoch |
//!
//! group          0     4         8     16       24     32      40          48         52     56
//!                | crc | entries | LSN | length | salt | epoch | wall time | previous | zero | entry … entry,
//!                                                                                            zeros to a multiple of 8
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
//!
//! **History.** A group repeats the CRC of the group before it (*previous*), which the CRC of the group covers. So a position
//! and the CRC of the group that ends there identify everything before that position: see [`LogPoint`]. The wall time is when
//! the group was sealed, in microseconds since 1970 UTC. It never decreases from group to group, whatever the clock does.
//!
//! **Epochs.** Every start of a primary begins a new epoch and a new segment, so the groups of a segment have its epoch, and
//! no two primaries write one file. A segment ends where the next one begins: at its last byte, or before it. If there are
//! several segments with one number, the one of the newest epoch counts; it also replaces all later ones of earlier epochs. So
//! one new name ends a segment, or cuts the log.
//!
//! **Version 1** had neither epochs nor wall times nor the CRC of the group before: its segment headers end at byte 64, its
//! group headers at byte 32. Its segments are read, as those of epoch 0, and never written.

use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use std::fmt;
use std::path::Path;

/// Identifies a database, so that the files of two databases are never mixed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatabaseId(pub [u8; 16]);

impl From<[u8; 16]> for DatabaseId {
    fn from(bytes: [u8; 16]) -> DatabaseId {
        DatabaseId(bytes)
    }
}

impl From<DatabaseId> for [u8; 16] {
    fn from(id: DatabaseId) -> [u8; 16] {
        id.0
    }
}

/// The version of the format of segment files that this code writes.
pub const FORMAT_VERSION: u32 = 2;
/// The first version that it reads.
const FIRST_FORMAT_VERSION: u32 = 1;

/// Where groups begin in a segment file. A page of its own, so that no flush rewrites the header.
pub const DATA_START: u64 = 4096;
/// Bytes of a segment header.
pub const SEGMENT_HEADER_LEN: usize = 72;
/// Bytes of a segment header of version 1.
const FIRST_SEGMENT_HEADER_LEN: usize = 64;
/// Bytes of a group before its entries.
pub const GROUP_HEADER_LEN: usize = 56;
/// Bytes of a group of version 1 before its entries.
const FIRST_GROUP_HEADER_LEN: usize = 32;
/// The fewest bytes of a group before its entries in any version.
pub(crate) const SHORTEST_GROUP_HEADER_LEN: usize = FIRST_GROUP_HEADER_LEN;
/// Bytes of an entry before its records.
pub const ENTRY_HEADER_LEN: usize = 16;
/// Groups begin at multiples of this.
pub const GROUP_ALIGNMENT: usize = 8;

const MAGIC: [u8; 8] = *b"FIRNREDO";
const _: () = assert!(GROUP_HEADER_LEN.is_multiple_of(GROUP_ALIGNMENT));
const _: () = assert!(FIRST_GROUP_HEADER_LEN.is_multiple_of(GROUP_ALIGNMENT));
const _: () = assert!(DATA_START.is_multiple_of(GROUP_ALIGNMENT as u64));

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// A place between two groups of a log. Position and checksum together identify the history before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPoint {
    /// The position.
    pub lsn: Lsn,
    /// The CRC of the group that ends there; 0 at the beginning, and if it is unknown because an earlier version wrote that
    /// group.
    pub checksum: u32,
    /// No group before it has a later epoch, and none after it an earlier one.
    pub epoch: Epoch,
    /// No group before it has a later wall time, and none after it an earlier one. In microseconds since 1970 UTC.
    pub wall_time: i64,
}

impl LogPoint {
    /// The beginning of a log.
    pub const START: LogPoint = LogPoint { lsn: Lsn(0), checksum: 0, epoch: Epoch(0), wall_time: 0 };

    /// Whether both have the same history before them. Epoch and wall time are bounds, which may differ.
    pub fn is_same_place(&self, other: &LogPoint) -> bool {
        (self.lsn, self.checksum) == (other.lsn, other.checksum)
    }
}

/// The header of a segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The version of its format.
    pub version: u32,
    /// Segments are numbered without gaps.
    pub number: u64,
    /// The epoch of its groups.
    pub epoch: Epoch,
    /// The LSN of the first byte after the header.
    pub first: Lsn,
    /// Length of the file, unless it was cut at its end.
    pub file_bytes: u64,
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// Repeated by the groups that begin here.
    pub salt: u64,
}

impl SegmentHeader {
    /// The LSN after its last byte. The next segment begins there, unless this one ends early.
    pub fn end(&self) -> Lsn {
        Lsn(self.first.0 + (self.file_bytes - DATA_START))
    }

    /// Its name.
    pub fn name(&self) -> SegmentName {
        SegmentName { number: self.number, epoch: self.epoch }
    }

    /// Bytes of the headers of its groups.
    pub fn group_header_len(&self) -> usize {
        if self.version == FIRST_FORMAT_VERSION { FIRST_GROUP_HEADER_LEN } else { GROUP_HEADER_LEN }
    }

    /// Its bytes. Only headers of the present version are written.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        assert_eq!(self.version, FORMAT_VERSION);
        let mut bytes = [0; SEGMENT_HEADER_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.database.0);
        bytes[56..64].copy_from_slice(&self.salt.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.epoch.0.to_le_bytes());
        let crc = segment_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// How many of these bytes, the first of a file, are its header. The version need not be known.
    pub fn length(bytes: &[u8; SEGMENT_HEADER_LEN]) -> usize {
        if u32_at(bytes, 8) == FIRST_FORMAT_VERSION { FIRST_SEGMENT_HEADER_LEN } else { SEGMENT_HEADER_LEN }
    }

    /// The name that a header states, which has not been checked. Only those of the present version have an epoch.
    pub fn name_in(bytes: &[u8; SEGMENT_HEADER_LEN]) -> SegmentName {
        let is_first = u32_at(bytes, 8) == FIRST_FORMAT_VERSION;
        SegmentName {
            number: u64_at(bytes, 16),
            epoch: if is_first { Epoch(0) } else { Epoch(u64_at(bytes, 64)) },
        }
    }

    /// Reads and checks the header of the file at `path`, which has that name.
    pub fn decode(
        bytes: &[u8; SEGMENT_HEADER_LEN],
        path: &Path,
        name: SegmentName,
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
        let version = u32_at(bytes, 8);
        let length = SegmentHeader::length(bytes);
        if segment_crc(&bytes[..length]) != u32_at(bytes, 12) {
            return Err(damaged("the checksum of its header is wrong"));
        }
        if !(FIRST_FORMAT_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("the log file \"{}\" has format version {version}", path.display()),
            )
            .with_detail(format!(
                "This version of FirnDB reads format versions {FIRST_FORMAT_VERSION} to {FORMAT_VERSION}."
            ))
            .with_hint("Open the database with the version that wrote it."));
        }
        let epoch = if version == FIRST_FORMAT_VERSION { Epoch(0) } else { Epoch(u64_at(bytes, 64)) };
        let header = SegmentHeader {
            version,
            number: u64_at(bytes, 16),
            epoch,
            first: Lsn(u64_at(bytes, 24)),
            file_bytes: u64_at(bytes, 32),
            database: DatabaseId(bytes[40..56].try_into().expect("16 bytes")),
            salt: u64_at(bytes, 56),
        };
        if header.database != database {
            return Err(damaged("it belongs to another database"));
        }
        if header.name() != name {
            return Err(damaged(&format!(
                "it is segment {} of epoch {} under a wrong name",
                header.number, header.epoch.0
            )));
        }
        let has_epoch = (version > FIRST_FORMAT_VERSION) == (header.epoch > Epoch(0));
        let aligned = header.file_bytes.is_multiple_of(GROUP_ALIGNMENT as u64)
            && header.first.0.is_multiple_of(GROUP_ALIGNMENT as u64);
        if header.file_bytes <= DATA_START
            || header.first.0 >> 62 != 0
            || header.file_bytes >> 62 != 0
            || !aligned
            || !has_epoch
        {
            return Err(damaged("its header is invalid"));
        }
        Ok(header)
    }
}

fn segment_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// The header of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// CRC32C of the rest of the header and the entries.
    pub crc: u32,
    /// Bytes after the header, padding included.
    pub length: u64,
    /// The rest of it.
    pub seal: Seal,
}

/// What the writer of a group decides when it seals it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The number of entries: commits, and in the first group of an epoch the one with the record of the epoch.
    pub entries: u32,
    /// The LSN at which it begins.
    pub lsn: Lsn,
    /// The salt of the segment in which it begins.
    pub salt: u64,
    /// The epoch of that segment.
    pub epoch: Epoch,
    /// When it was sealed, in microseconds since 1970 UTC; 0 in groups of version 1.
    pub wall_time: i64,
    /// The CRC of the group before it; 0 in groups of version 1.
    pub previous: u32,
}

impl GroupHeader {
    /// Reads a header of a group in such a segment; the caller checks it. `None` if a reserved byte is set.
    pub fn decode(bytes: &[u8], segment: &SegmentHeader) -> Option<GroupHeader> {
        assert_eq!(bytes.len(), segment.group_header_len());
        let mut header = GroupHeader {
            crc: u32_at(bytes, 0),
            length: u64_at(bytes, 16),
            seal: Seal {
                entries: u32_at(bytes, 4),
                lsn: Lsn(u64_at(bytes, 8)),
                salt: u64_at(bytes, 24),
                epoch: Epoch(0),
                wall_time: 0,
                previous: 0,
            },
        };
        if segment.version > FIRST_FORMAT_VERSION {
            header.seal.epoch = Epoch(u64_at(bytes, 32));
            header.seal.wall_time = u64_at(bytes, 40) as i64;
            header.seal.previous = u32_at(bytes, 48);
            if u32_at(bytes, 52) != 0 {
                return None;
            }
        }
        Some(header)
    }
}

/// Completes a group whose entries are in `chunks`, the first of which begins with space for the header. Returns its CRC.
pub fn seal_group(chunks: &mut [Vec<u8>], seal: &Seal) -> u32 {
    let length = chunks.iter().map(Vec::len).sum::<usize>();
    debug_assert!(length > GROUP_HEADER_LEN && length.is_multiple_of(GROUP_ALIGNMENT));
    let (group, rest) = chunks.split_first_mut().expect("a group has a header");
    group[4..8].copy_from_slice(&seal.entries.to_le_bytes());
    group[8..16].copy_from_slice(&seal.lsn.0.to_le_bytes());
    group[16..24].copy_from_slice(&((length - GROUP_HEADER_LEN) as u64).to_le_bytes());
    group[24..32].copy_from_slice(&seal.salt.to_le_bytes());
    group[32..40].copy_from_slice(&seal.epoch.0.to_le_bytes());
    group[40..48].copy_from_slice(&seal.wall_time.to_le_bytes());
    group[48..52].copy_from_slice(&seal.previous.to_le_bytes());
    group[52..56].fill(0);
    let crc = rest.iter().fold(crc32c::crc32c(&group[4..]), |crc, chunk| crc32c::crc32c_append(crc, chunk));
    group[0..4].copy_from_slice(&crc.to_le_bytes());
    crc
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

/// What the name of a segment's file says: `0000000000000007-00000003.redo` is segment 7 of epoch 3, and
/// `0000000000000007.redo` segment 7 of version 1, which had no epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentName {
    /// The number of the segment.
    pub number: u64,
    /// Its epoch.
    pub epoch: Epoch,
}

impl SegmentName {
    /// Reads a name; `None` if it is none of a segment.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let (number, epoch) = parse_numbered(name, ".redo")?;
        Some(SegmentName { number, epoch })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&numbered(self.number, self.epoch, ".redo"))
    }
}

/// The name of a file with a number, of an epoch.
pub(crate) fn numbered(number: u64, epoch: Epoch, suffix: &str) -> String {
    match epoch {
        Epoch(0) => format!("{number:016x}{suffix}"),
        Epoch(epoch) => format!("{number:016x}-{epoch:08x}{suffix}"),
    }
}

/// The inverse of [`numbered`].
pub(crate) fn parse_numbered(name: &str, suffix: &str) -> Option<(u64, Epoch)> {
    let digits = name.strip_suffix(suffix)?;
    let (number, epoch) = match digits.split_once('-') {
        Some((number, epoch)) => (number, u64::from_str_radix(epoch, 16).ok()?),
        None => (digits, 0),
    };
    let (number, epoch) = (u64::from_str_radix(number, 16).ok()?, Epoch(epoch));
    (numbered(number, epoch, suffix) == name).then_some((number, epoch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::Time;

    const NAME: SegmentName = SegmentName { number: 2, epoch: Epoch(0x0a09) };

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: FORMAT_VERSION,
            number: NAME.number,
            epoch: NAME.epoch,
            first: Lsn(0x0100),
            file_bytes: 8192,
            database: DatabaseId([0xdb; 16]),
            salt: 0x0807_0605_0403_0201,
        }
    }

    /// The bytes of that header in a version, with their checksum.
    fn header_bytes(version: u8) -> Vec<u8> {
        let mut bytes = b"FIRNREDO".to_vec();
        bytes.extend([version, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        bytes.extend([0xdb; 16]);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        if version > 1 {
            bytes.extend([9, 10, 0, 0, 0, 0, 0, 0]);
        }
        let covered: Vec<u8> = [&bytes[..12], &bytes[16..]].concat();
        bytes[12..16].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        bytes
    }

    #[test]
    fn a_segment_header_has_exactly_these_bytes() {
        let bytes = header().encode();
        assert_eq!(bytes[..], header_bytes(2));
        let path = Path::new("p");
        assert_eq!(SegmentHeader::decode(&bytes, path, NAME, header().database).unwrap(), header());
        assert_eq!(header().end(), Lsn(0x0100 + 4096));
        for at in 0..SEGMENT_HEADER_LEN {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            let error = SegmentHeader::decode(&flipped, path, NAME, header().database).unwrap_err();
            assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
        }
        let foreign = SegmentHeader::decode(&bytes, path, NAME, DatabaseId([0; 16])).unwrap_err();
        assert!(foreign.message().contains("another database"));
        for wrong in [SegmentName { number: 3, ..NAME }, SegmentName { epoch: Epoch(1), ..NAME }] {
            let misnamed = SegmentHeader::decode(&bytes, path, wrong, header().database).unwrap_err();
            assert!(misnamed.message().contains("wrong name"));
        }
    }

    #[test]
    fn a_segment_header_of_version_1_is_read() {
        let mut bytes = [0xee; SEGMENT_HEADER_LEN];
        bytes[..64].copy_from_slice(&header_bytes(1));
        assert_eq!(SegmentHeader::length(&bytes), 64);
        let name = SegmentName { epoch: Epoch(0), ..NAME };
        let read = SegmentHeader::decode(&bytes, Path::new("p"), name, header().database).unwrap();
        assert_eq!(read, SegmentHeader { version: 1, epoch: Epoch(0), ..header() });
        assert_eq!(read.group_header_len(), 32);
    }

    #[test]
    fn a_group_has_exactly_these_bytes() {
        let mut group = vec![0; GROUP_HEADER_LEN];
        group.extend(encode_entry_header(Time(5), 3));
        group.extend(*b"abc\0\0\0\0\0");
        let (front, entry) = group.split_at(GROUP_HEADER_LEN + 5);
        let mut chunks = [front.to_vec(), entry.to_vec()];
        let seal = Seal {
            entries: 1,
            lsn: Lsn(0x10),
            salt: 0xff,
            epoch: Epoch(0x0203),
            wall_time: -2,
            previous: 0x0807_0605,
        };
        let crc = seal_group(std::slice::from_mut(&mut group), &seal);
        assert_eq!(seal_group(&mut chunks, &seal), crc);
        assert_eq!(chunks.concat(), group);
        let mut expected = vec![0, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([0xff, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([3, 2, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        expected.extend([5, 6, 7, 8, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(*b"abc\0\0\0\0\0");
        assert_eq!(crc, crc32c::crc32c(&expected[4..]));
        expected[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(group, expected);
        let read = GroupHeader::decode(&group[..GROUP_HEADER_LEN], &header()).unwrap();
        assert_eq!(read, GroupHeader { crc, length: 24, seal });
        group[55] = 1;
        assert_eq!(GroupHeader::decode(&group[..GROUP_HEADER_LEN], &header()), None);
    }

    #[test]
    fn a_group_header_of_version_1_is_read() {
        let bytes = [
            7, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0,
            0,
        ];
        let seal = Seal { entries: 1, lsn: Lsn(0x10), salt: 9, epoch: Epoch(0), wall_time: 0, previous: 0 };
        let of_first = SegmentHeader { version: 1, epoch: Epoch(0), ..header() };
        let read = GroupHeader::decode(&bytes, &of_first).unwrap();
        assert_eq!(read, GroupHeader { crc: 7, length: 24, seal });
    }

    #[test]
    fn segment_names_are_read_back_and_nothing_else_is() {
        let name = |number, epoch| SegmentName { number, epoch: Epoch(epoch) };
        for (name, text) in [
            (name(0x2a, 0x1f), "000000000000002a-0000001f.redo"),
            (name(0x2a, 0x1_2345_6789), "000000000000002a-123456789.redo"),
            (name(0x2a, 0), "000000000000002a.redo"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(SegmentName::parse(text), Some(name));
        }
        for name in [
            "2a.redo",
            "000000000000002A.redo",
            "000000000000002a-00000000.redo",
            "000000000000002a-1.redo",
            "000000000000002a-0000001f.tmp",
            "spare",
            ".redo",
            "-.redo",
        ] {
            assert_eq!(SegmentName::parse(name), None, "{name}");
        }
    }
}
