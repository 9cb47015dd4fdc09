//! Whether a file has changed since it was read.

use firn_base::clock;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Two times with this difference are distinct in every file system.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The version of a file at a certain time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileVersion {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified: Option<SystemTime>,
    /// The identity of the file, and the time of its last change, as far as the system provides them: another file of the same length
    /// and time may replace one.
    pub identity: [u64; 4],
}

/// Device, number and time of change of a file.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> [u64; 4] {
    use std::os::unix::fs::MetadataExt;
    [metadata.dev(), metadata.ino(), metadata.ctime() as u64, metadata.ctime_nsec() as u64]
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> [u64; 4] {
    [0; 4]
}

impl FileVersion {
    pub fn of(path: PathBuf) -> std::io::Result<FileVersion> {
        let metadata = std::fs::metadata(&path)?;
        FileVersion::from_metadata(path, &metadata)
    }

    /// The version of a file that is open.
    pub fn of_file(path: &Path, file: &File) -> std::io::Result<FileVersion> {
        FileVersion::from_metadata(path.to_owned(), &file.metadata()?)
    }

    fn from_metadata(path: PathBuf, metadata: &Metadata) -> std::io::Result<FileVersion> {
        if !metadata.is_file() {
            // Bytes read from a pipe to examine it are lost.
            return Err(std::io::Error::new(std::io::ErrorKind::IsADirectory, "it is not a regular file"));
        }
        Ok(FileVersion {
            path,
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            identity: identity(metadata),
        })
    }

    /// Whether every later write to the file changes its version: the clocks of file systems are coarse, and two writes
    /// in quick succession may have the same time.
    pub fn is_settled(&self) -> bool {
        let Some(since) = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()) else {
            return false;
        };
        let now = clock::wall_clock_micros();
        i128::from(now) - since.as_micros() as i128 >= SETTLED_AFTER.as_micros() as i128
    }
}
