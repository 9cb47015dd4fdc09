//! Backups: copies of a database, taken while it runs, in a directory of their own.
//!
//! ```text
//! directory/
//!   BACKUPS                            what the directory is, and its version
//!   LOCK                               locked while a backup is written or removed
//!   20261130T010203Z/                  a chain: a full backup, and the incremental ones that are based on it
//!     20261130T010203Z.backup          describes a backup; written last, so a backup without it does not exist
//!     20261130T010203Z.manifest        the manifest of its checkpoint, as it was in the database's directory
//!     20261201T010203Z.backup          …
//!     checkpoint/                      files with rows, of all backups of the chain
//!     log-20261130T010203Z/            the log from that backup's checkpoint to the end of the last backup that continues it
//!   archive/<cluster>/1/               the archived log: see [`crate::archive`]
//! ```
//!
//! An incremental backup adds the files that its chain lacks, and the log. If the server still has the log since the end of the
//! backup before it, that is continued: then the database can be restored as of any commit in between. Otherwise a log of its own
//! begins at its checkpoint, and only an archive has what is between the two.
//!
//! Invariant: a file of a chain is never written again once a backup is described that needs it. Of the log, everything up to the
//! newest described end stays as it is.

mod create;
mod description;
mod repository;
mod restore;

pub use create::{Created, create};
pub use description::{Description, Kind, shown_lsn, shown_time};
pub(crate) use description::{identifier, point, read_described, write_described};
pub(crate) use repository::explain_lock;
pub use repository::{ArchivedRun, Chain, Repository};
pub use restore::{Restored, Target, Wanted, restore};
