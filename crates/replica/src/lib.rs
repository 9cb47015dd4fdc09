//! Copies of a database outside of its directory: backups, the archive of its log, restoring from them, and replicas.
//!
//! A server [sends](serve) a copy of its database while transactions go on; [`backup::create`] stores it. An
//! [`Archiver`](archive::Archiver) copies the log as it grows. [`backup::restore`] makes a database directory of both.
//! A replica is such a copy ([`join`]) that then [follows](following::Following) the log of the server, and replays it.
//! The messages between the two sides are in [`message`]; what carries them is a [`Channel`].

pub mod archive;
pub mod backup;
pub mod cluster;
pub mod following;
pub mod join;
pub mod message;
pub mod promotion;
pub mod quorum;
pub mod rejoin;
pub mod standbys;
pub mod voting;

mod channel;
mod copying;
mod files;
mod receiver;
mod senders;
mod source;

pub use channel::{Channel, Received, Stoppable};
pub use copying::{ask_voter, greet_voter};
pub use receiver::{Receiver, Taken};
pub use senders::{Peer, SenderStatus, Senders};
pub use source::{Serving, serve};
