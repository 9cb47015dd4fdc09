//! Copies of a database outside of its directory: backups, the archive of its log, and restoring from them.
//!
//! A server [sends](serve) a copy of its database while transactions go on; [`backup::create`] stores it. An
//! [`Archiver`](archive::Archiver) copies the log as it grows. [`backup::restore`] makes a database directory of both.
//! The messages between the two sides are in [`message`]; what carries them is a [`Channel`].

pub mod archive;
pub mod backup;
pub mod message;

mod channel;
mod files;
mod source;

pub use channel::Channel;
pub use source::serve;
