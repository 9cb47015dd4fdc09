//! The manifest: the one small file that describes the contents of a database directory.
//!
//! ```text
//! directory/
//!   LOCK                      locked while the database is open
//!   MANIFEST                  this file; replaced as a whole by every checkpoint, and when the role changes
//!   checkpoint/12-3-0.arrow   rows of physical table 12 as of checkpoint 3, first part
//!   checkpoint/13-load-2-0.arrow rows of table 13, written in epoch 2 by the transaction that made it
//!   log/….redo                redo since the manifest's position
//! ```
//!
//! One line that any version can read, then JSON:
//!
//! ```text
//! FIRNDB 8 crc32c=0011aabb
//! {"database":"…","checkpoint":3,"time":99,"until":102,"position":4711,…}
//! ```
//!
//! A file to which the manifest does not refer is not part of the database: it is left over from a crash.

use crate::catalog::CatalogChange;
use crate::epochs::Epochs;
use crate::voter::Voter;
use firn_base::disk::Disk;
use firn_base::{Epoch, Error, Lsn, Result, SqlState, Time, random};
use firn_log::{DatabaseId, LogPoint};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The version of the format of a database directory that this code writes. It covers the manifest, the names of files of
/// the log, the checkpoint files and the layout of blocks, which row ids depend on.
pub const DIRECTORY_VERSION: u32 = 8;

/// The first version that can still be read: it had no files of which only some blocks count. In the second,
/// files showed nothing later than the checkpoint's time. The third had only columns of
/// [`SqlType`](firn_base::SqlType). The fourth had no epochs: programs that know only it would not find newer segments.
/// The fifth had no cluster: its program would drop it. The sixth had no replicas: its program would write to one.
/// The seventh had no voters: its program would open one as a primary.
const FIRST_DIRECTORY_VERSION: u32 = 1;

const FIRST_VERSION_WITH_CLUSTERS: u32 = 6;

/// The manifest's name in the directory.
pub const MANIFEST: &str = "MANIFEST";
/// The name under which a new manifest is written before it replaces the old one.
pub const MANIFEST_TEMPORARY: &str = "MANIFEST.tmp";
/// The name of a file that says that the log is about to be cut, or has been cut in part: the database cannot be opened.
pub const REJOINING: &str = "REJOINING";
/// The lock file's name.
pub const LOCK: &str = "LOCK";

const WORD: &str = "FIRNDB";

/// The directory of the checkpoint files.
pub fn checkpoint_directory(directory: &Path) -> PathBuf {
    directory.join("checkpoint")
}

/// The directory of the log.
pub fn log_directory(directory: &Path) -> PathBuf {
    directory.join("log")
}

/// Identifies the nodes that share one history of a database. A restored copy has its own from then on, although its files
/// have the same [`DatabaseId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// A new one.
    pub fn random() -> ClusterId {
        ClusterId(random::secret_bytes())
    }

    /// Reads what is displayed: 32 hexadecimal digits.
    pub fn parse(digits: &str) -> Option<ClusterId> {
        let is_usual = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_usual)?;
        Some(ClusterId(number.to_be_bytes()))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The contents of a database directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Identifies the database; its log segments have it too.
    #[serde(with = "hexadecimal")]
    pub database: DatabaseId,
    /// The cluster to which the directory belongs.
    #[serde(with = "hexadecimal", default = "no_cluster")]
    pub cluster: ClusterId,
    /// The server whose log the database follows, if it is a replica: `HOST:PORT`, or a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// Where the log has ended when the database was handed over to the server that it follows, if it was a primary before. A replica that
    /// has received nothing since then lets that server take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over_at: Option<u64>,
    /// The server to follow that the operator has named last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_option: Option<String>,
    /// What makes the database that of a voter, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voter: Option<Voter>,
    /// False while the database is being created: then it is empty, whatever files exist.
    pub complete: bool,
    /// How many checkpoints were begun; names their files.
    pub checkpoint: u64,
    /// The checkpoint includes everything committed up to this time. Of later commits the catalog shows
    /// nothing, …
    pub time: u64,
    /// … and the rows include only those up to this time, each in part or as a whole: their redo has to be
    /// applied again.
    #[serde(default)]
    pub until: u64,
    /// The log position from which later commits are read.
    pub position: u64,
    /// The CRC of the group of the log that ends there; 0 at the beginning, and if an earlier version wrote that group.
    #[serde(default)]
    pub checksum: u32,
    /// No group before that position has a later epoch, and none after it an earlier one.
    #[serde(default)]
    pub epoch: u64,
    /// No group before that position has a later wall time, and none after it an earlier one.
    #[serde(default)]
    pub wall_time: i64,
    /// The log position up to which these commits are complete.
    #[serde(default)]
    pub needed: u64,
    /// Where epochs have begun.
    #[serde(default, skip_serializing_if = "Epochs::is_empty")]
    pub epochs: Epochs,
    /// Bytes of a block, which row ids depend on.
    pub block_bytes: u64,
    /// The catalog and the physical tables, as a change of an empty catalog.
    pub catalog: CatalogChange,
    /// The states of the sequences.
    pub sequences: Vec<SequenceEntry>,
    /// The files of the tables that hold rows.
    pub files: Vec<TableFile>,
}

/// The state of a sequence: see [`firn_log::Record::SequenceAdvance`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SequenceEntry {
    /// The sequence.
    pub oid: u32,
    /// The value last returned, or the first one to return.
    pub value: i64,
    /// Whether `value` was returned.
    pub called: bool,
}

/// A file with the rows of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableFile {
    /// The physical table.
    pub table: u32,
    /// Its name in the checkpoint directory.
    pub name: String,
    /// The number of its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all of it.
    pub crc: u32,
    /// For a file that was written block by block: those that count. The rows of the others are in later
    /// files, or were deleted. In a file without this all rows count.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "blocks")]
    pub blocks: Option<Vec<FileBlock>>,
}

/// A block of a file, and its number of rows there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileBlock(pub u64, pub u32);

impl Manifest {
    /// The log position from which commits are read that the checkpoint does not include.
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// The names of its files.
    pub fn file_names(&self) -> HashSet<&str> {
        self.files.iter().map(|file| file.name.as_str()).collect()
    }

    /// That position as a point of the log's history.
    pub fn point(&self) -> LogPoint {
        let (checksum, wall_time) = (self.checksum, self.wall_time);
        LogPoint { lsn: self.position(), checksum, epoch: Epoch(self.epoch), wall_time }
    }

    /// The same, with the role that another one says.
    pub fn with_role_of(self, other: &Manifest) -> Manifest {
        let (follows, follow_option) = (other.follows.clone(), other.follow_option.clone());
        let Manifest { cluster, handed_over_at, voter, .. } = *other;
        Manifest { cluster, follows, handed_over_at, follow_option, voter, ..self }
    }

    /// Whether the database is that of a replica when it is opened. A voter may become a primary then.
    pub fn is_of_replica(&self) -> bool {
        self.follows.is_some() || self.voter.is_some()
    }

    /// The log position up to which it is known, when a voter is opened, that the log is committed.
    pub fn committed(&self) -> Option<Lsn> {
        self.voter.map(|voter| voter.committed.max(Lsn(self.needed)))
    }

    /// The commit time of the checkpoint.
    pub fn time(&self) -> Time {
        Time(self.time)
    }

    /// The commit time up to which the rows may include changes that are also in the log.
    pub fn until(&self) -> Time {
        Time(self.until.max(self.time))
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body = serde_json::to_vec_pretty(self).expect("maps have string keys and numbers are finite");
        let mut bytes =
            format!("{WORD} {DIRECTORY_VERSION} crc32c={:08x}\n", crc32c::crc32c(&body)).into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Decodes and checks the bytes of the file at `path`. Returns also the version of its format.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<(Manifest, u32)> {
        let damaged = |what: &str| {
            Error::new(
                SqlState::DATA_CORRUPTED,
                format!("the manifest \"{}\" is damaged: {what}", path.display()),
            )
            .with_hint("Restore the database directory from a backup.")
        };
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, body) = bytes.split_at(line_end.ok_or_else(|| damaged("it has no first line"))?);
        let body = &body[1..];
        let line = std::str::from_utf8(line).map_err(|_| damaged("its first line is no text"))?;
        let mut words = line.split(' ');
        if words.next() != Some(WORD) {
            return Err(damaged("it does not begin like a manifest"));
        }
        let version: u32 =
            words.next().and_then(|word| word.parse().ok()).ok_or_else(|| damaged("it names no version"))?;
        if !(FIRST_DIRECTORY_VERSION..=DIRECTORY_VERSION).contains(&version) {
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("the database described by \"{}\" has format version {version}", path.display()),
            )
            .with_detail(format!(
                "This version of FirnDB reads format versions {FIRST_DIRECTORY_VERSION} to {DIRECTORY_VERSION}."
            ))
            .with_hint(
                "Open the database with the version that wrote it, and copy it over by dump and load.",
            ));
        }
        let expected = format!("crc32c={:08x}", crc32c::crc32c(body));
        if words.next() != Some(&expected) || words.next().is_some() {
            return Err(damaged("its checksum is wrong"));
        }
        let mut manifest: Manifest =
            serde_json::from_slice(body).map_err(|error| damaged(&error.to_string()))?;
        if version < FIRST_VERSION_WITH_CLUSTERS {
            // No copy of it is in another cluster.
            manifest.cluster = ClusterId(manifest.database.0);
        }
        Ok((manifest, version))
    }

    /// Reads the manifest of a directory, with the version of its format; `None` if it has none.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<(Manifest, u32)>> {
        let path = directory.join(MANIFEST);
        if !disk.exists(&path)? {
            return Ok(None);
        }
        Manifest::decode(&disk.read(&path)?, &path).map(Some)
    }

    /// Makes it the manifest of a directory, atomically. After an error either it or the former one is in
    /// place.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        disk.replace(&directory.join(MANIFEST), &directory.join(MANIFEST_TEMPORARY), &self.encode())
    }
}

/// The cluster of a manifest that names none, until its version is known.
fn no_cluster() -> ClusterId {
    ClusterId([0; 16])
}

impl From<[u8; 16]> for ClusterId {
    fn from(bytes: [u8; 16]) -> ClusterId {
        ClusterId(bytes)
    }
}

impl From<ClusterId> for [u8; 16] {
    fn from(id: ClusterId) -> [u8; 16] {
        id.0
    }
}

/// Serde for [`DatabaseId`] and [`ClusterId`], as 32 hexadecimal digits.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<I, S>(id: &I, serializer: S) -> Result<S::Ok, S::Error>
    where
        I: Copy + Into<[u8; 16]>,
        S: Serializer,
    {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes((*id).into())))
    }

    pub fn deserialize<'de, I: From<[u8; 16]>, D: Deserializer<'de>>(deserializer: D) -> Result<I, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&digits, 16).map_err(D::Error::custom)?;
        Ok(I::from(number.to_be_bytes()))
    }
}

/// Serde for the blocks of a file, as `7:5400 8:5400`: there is one for each megabyte of a database.
mod blocks {
    use super::FileBlock;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        blocks: &Option<Vec<FileBlock>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let blocks = blocks.iter().flatten().map(|block| format!("{}:{}", block.0, block.1));
        serializer.serialize_str(&blocks.collect::<Vec<String>>().join(" "))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<FileBlock>>, D::Error> {
        let block = |word: &str| {
            let (number, rows) = word.split_once(':')?;
            Some(FileBlock(number.parse().ok()?, rows.parse().ok()?))
        };
        let words = String::deserialize(deserializer)?;
        let blocks: Option<Vec<FileBlock>> = words.split_whitespace().map(block).collect();
        blocks.map(Some).ok_or_else(|| D::Error::custom("this is not a list of blocks with their rows"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, IdMarks};

    fn manifest() -> Manifest {
        let marks = IdMarks { next_oid: 20000, next_table: 5 };
        let blocks = Some(vec![FileBlock(7, 5), FileBlock(9, 3)]);
        Manifest {
            database: DatabaseId([0xab; 16]),
            cluster: ClusterId([0xc1; 16]),
            follows: None,
            handed_over_at: None,
            follow_option: None,
            voter: None,
            complete: true,
            checkpoint: 3,
            time: 99,
            until: 102,
            position: 4711,
            checksum: 0xfedc_ba98,
            epoch: 6,
            wall_time: 1_700_000_000_000_000,
            needed: 4900,
            epochs: Epochs::default(),
            block_bytes: 1 << 20,
            catalog: Catalog::bootstrap().to_change(std::iter::empty(), marks),
            sequences: vec![SequenceEntry { oid: 7, value: -1, called: true }],
            files: vec![
                TableFile { table: 4, name: "4-2-0.arrow".into(), rows: 9, bytes: 2, crc: 3, blocks },
                TableFile { table: 4, name: "4-3-0.arrow".into(), rows: 1, bytes: 2, crc: 3, blocks: None },
            ],
        }
    }

    #[test]
    fn a_manifest_is_a_line_for_every_version_and_json() {
        let bytes = manifest().encode();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with("FIRNDB 8 crc32c="), "{text}");
        assert!(text.contains("\"cluster\": \"c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1\""), "{text}");
        assert!(text.contains("\"database\": \"abababababababababababababababab\""), "{text}");
        assert_eq!(Manifest::decode(&bytes, Path::new("MANIFEST")).unwrap(), (manifest(), DIRECTORY_VERSION));
    }

    #[test]
    fn the_versions_before_can_be_read() {
        let bytes = manifest().encode();
        // Of the cluster of the database itself.
        let manifest = || Manifest { cluster: ClusterId([0xab; 16]), ..self::tests::manifest() };
        for version in 1..=5 {
            let before = [format!("FIRNDB {version}").as_bytes(), &bytes[8..]].concat();
            let read = Manifest::decode(&before, Path::new("MANIFEST")).unwrap();
            assert_eq!(read, (manifest(), version));
        }
        let sixth = [&b"FIRNDB 6"[..], &bytes[8..]].concat();
        let read = Manifest::decode(&sixth, Path::new("MANIFEST")).unwrap();
        assert_eq!(read, (self::tests::manifest(), 6));
        let body = std::str::from_utf8(&bytes).unwrap().split_once('\n').unwrap().1;
        let without = |version: u32, names: &[&str]| {
            let is_of_then = |line: &&str| !names.iter().any(|name| line.contains(&format!("\"{name}\"")));
            let body = body.lines().filter(is_of_then).collect::<Vec<_>>().join("\n");
            let before = format!("FIRNDB {version} crc32c={:08x}\n{body}", crc32c::crc32c(body.as_bytes()));
            Manifest::decode(before.as_bytes(), Path::new("MANIFEST")).unwrap().0
        };
        // The fourth had no history.
        let read = without(5, &["cluster"]);
        assert_eq!(read, manifest());
        let read = without(4, &["cluster", "checksum", "epoch", "wall_time"]);
        assert_eq!(read, Manifest { checksum: 0, epoch: 0, wall_time: 0, ..manifest() });
        assert_eq!(read.point(), LogPoint { lsn: Lsn(4711), ..LogPoint::START });
        // The first two had neither of these, and nothing in their files was later than the checkpoint.
        let read = without(2, &["cluster", "until", "needed", "checksum", "epoch", "wall_time"]);
        assert_eq!((read.until(), read.needed), (read.time(), 0));
    }

    #[test]
    fn any_other_byte_is_damage_and_another_version_is_named() {
        let bytes = manifest().encode();
        let step = if cfg!(miri) { 7 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            // The version becomes 9.
            flipped[at] ^= if at == 7 { 0x01 } else { 2 };
            let error = Manifest::decode(&flipped, Path::new("MANIFEST")).unwrap_err();
            let version = bytes.starts_with(&flipped[..7]) && at == 7;
            let expected =
                if version { SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE } else { SqlState::DATA_CORRUPTED };
            assert_eq!(error.state(), expected, "byte {at}: {error:?}");
            assert!(error.hint().is_some());
        }
        for length in (0..bytes.len()).step_by(step) {
            assert!(Manifest::decode(&bytes[..length], Path::new("MANIFEST")).is_err());
        }
    }
}
