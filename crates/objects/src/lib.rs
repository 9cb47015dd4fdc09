//! Backups and archives in object stores: [`ObjectDisk`] is a [`Disk`](firn_base::disk::Disk) whose files are objects of a store of the
//! crate `object_store`.
//!
//! It can do what backups and archives need, and is no place for a database: objects are not changed in place
//! ([`Medium::Objects`](firn_base::disk::Medium)).
//!
//! ```text
//! disk ──┬── file      a file that is written: one object, or pieces
//!        ├── reading   a file that is read, ahead of the reader
//!        └── lease     locks
//!              └── store    requests that block, with errors as ours; a runtime for async code
//! ```
//! Async code ends in `store`: everything else blocks.

mod disk;
mod error;
mod file;
mod lease;
mod pieces;
mod place;
mod reading;
mod store;

pub use disk::ObjectDisk;
pub use place::open;
