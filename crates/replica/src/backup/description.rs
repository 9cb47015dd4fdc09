//! What is known of one backup: a line that every version can read, and JSON.

use firn_base::disk::Disk;
use firn_base::{Epoch, Error, Lsn, Result, SqlState, datetime};
use firn_log::{DatabaseId, LogPoint};
use firn_txn::ClusterId;
use serde::{Deserialize, Serialize};
use std::path::Path;

const WORD: &str = "FIRNBACKUP";
const VERSION: u32 = 1;

/// Whether a backup depends on another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It does not.
    Full,
    /// It needs those before it in its chain.
    Incremental,
}

/// One backup.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Its name: the time at which it began.
    pub label: String,
    /// Whether it depends on others.
    pub kind: Kind,
    /// The database, as 32 hexadecimal digits.
    #[serde(with = "identifier")]
    pub database: DatabaseId,
    /// Its cluster.
    #[serde(with = "identifier")]
    pub cluster: ClusterId,
    /// The version of the program that it was copied from.
    pub program: String,
    /// The folder of its log in that of its chain. Backups whose logs continue one another share it.
    pub log: String,
    /// When it began and when it was complete, in microseconds since 1970 UTC.
    pub begun: i64,
    /// See `begun`.
    pub ended: i64,
    /// Where its log ends.
    #[serde(with = "point")]
    pub end: LogPoint,
    /// Every commit that was acknowledged before this time is in it. In microseconds since 1970 UTC.
    pub complete_until: i64,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Bytes of its tables' files, also of those that earlier backups of the chain have.
    pub table_bytes: u64,
}

impl Description {
    /// Writes it, atomically.
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> Result<()> {
        write_described(disk, path, WORD, VERSION, self)
    }

    /// Reads it. Errors: XX001 if it is damaged, 55000 if another version wrote it.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Description> {
        read_described(disk, path, WORD, VERSION)
    }
}

/// Writes a small file as a line with a version and a checksum, and JSON.
pub(crate) fn write_described<T: Serialize>(
    disk: &dyn Disk,
    path: &Path,
    word: &str,
    version: u32,
    content: &T,
) -> Result<()> {
    let body = serde_json::to_vec_pretty(content).expect("names are strings and numbers are finite");
    let mut bytes = format!("{word} {version} crc32c={:08x}\n", crc32c::crc32c(&body)).into_bytes();
    bytes.extend(body);
    disk.replace(path, &path.with_extension("tmp"), &bytes)
}

/// Reads what [`write_described`] has written.
pub(crate) fn read_described<T: for<'de> Deserialize<'de>>(
    disk: &dyn Disk,
    path: &Path,
    word: &str,
    version: u32,
) -> Result<T> {
    let bytes = disk.read(path)?;
    let damaged = || {
        Error::new(SqlState::DATA_CORRUPTED, format!("the file \"{}\" is damaged", path.display()))
            .with_hint("Use another backup.")
    };
    let line_end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (line, body) =
        (std::str::from_utf8(&bytes[..line_end]).map_err(|_| damaged())?, &bytes[line_end + 1..]);
    let [found, written_by, checksum] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(damaged());
    };
    if found != word {
        return Err(damaged());
    }
    if written_by.parse() != Ok(version) {
        let message = format!("the file \"{}\" has format version {written_by}", path.display());
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_detail(format!("This version of FirnDB reads format version {version}."))
            .with_hint("Use the version that wrote it."));
    }
    if checksum != format!("crc32c={:08x}", crc32c::crc32c(body)) {
        return Err(damaged());
    }
    serde_json::from_slice(body).map_err(|_| damaged())
}

/// A log position as PostgreSQL writes it.
pub fn shown_lsn(lsn: Lsn) -> String {
    let mut text = String::new();
    firn_base::text::write_lsn(lsn.0 as i64, &mut text);
    text
}

/// A time in microseconds since 1970 UTC, as a person reads it.
pub fn shown_time(micros: i64) -> String {
    let mut text = String::new();
    datetime::write_iso_timestamp(micros, &mut text);
    text.push_str("+00");
    text
}

/// Serde for ids of 16 bytes, as 32 hexadecimal digits.
pub(crate) mod identifier {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<I: Copy + Into<[u8; 16]>, S: Serializer>(
        id: &I,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes((*id).into())))
    }

    pub fn deserialize<'de, I: From<[u8; 16]>, D: Deserializer<'de>>(deserializer: D) -> Result<I, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&digits, 16).map_err(D::Error::custom)?;
        Ok(I::from(number.to_be_bytes()))
    }
}

/// Serde for a [`LogPoint`].
pub(crate) mod point {
    use super::{Epoch, LogPoint, Lsn};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Stored {
        lsn: u64,
        checksum: u32,
        epoch: u64,
        wall_time: i64,
    }

    pub fn serialize<S: Serializer>(point: &LogPoint, serializer: S) -> Result<S::Ok, S::Error> {
        let LogPoint { lsn: Lsn(lsn), checksum, epoch: Epoch(epoch), wall_time } = *point;
        Stored { lsn, checksum, epoch, wall_time }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogPoint, D::Error> {
        let Stored { lsn, checksum, epoch, wall_time } = Stored::deserialize(deserializer)?;
        Ok(LogPoint { lsn: Lsn(lsn), checksum, epoch: Epoch(epoch), wall_time })
    }
}
