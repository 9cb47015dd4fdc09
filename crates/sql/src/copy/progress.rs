//! The progress of a COPY, as other sessions see it: `pg_stat_progress_copy` and `firn_stat_progress_copy`.

use firn_base::clock::{self, Instant};
use firn_base::sync::{AtomicU64, Ordering};
use firn_txn::catalog::Oid;
use std::time::Duration;

/// The source or the target of the data of a COPY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// A file of the server.
    File,
    /// The client.
    Pipe,
}

/// The progress of a COPY.
#[derive(Debug)]
pub struct Progress {
    /// `COPY FROM` or `COPY TO`.
    pub command: &'static str,
    /// The other end.
    pub channel: Channel,
    /// The table, unless a query is copied.
    pub table: Option<Oid>,
    begun: Instant,
    bytes_in_all: AtomicU64,
    bytes: AtomicU64,
    rows: AtomicU64,
    excluded: AtomicU64,
    skipped: AtomicU64,
}

impl Progress {
    pub(super) fn new(command: &'static str, channel: Channel, table: Option<Oid>) -> Progress {
        Progress {
            command,
            channel,
            table,
            begun: clock::now(),
            bytes_in_all: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            excluded: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    pub(super) fn set_bytes_in_all(&self, bytes: u64) {
        self.bytes_in_all.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn add_excluded(&self, rows: u64) {
        self.excluded.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn add_skipped(&self, rows: u64) {
        self.skipped.fetch_add(rows, Ordering::Relaxed);
    }

    /// How long it has been running.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The length of the file that is read, compressed or not; 0 if unknown.
    pub fn bytes_in_all(&self) -> u64 {
        self.bytes_in_all.load(Ordering::Relaxed)
    }

    /// How many bytes have been read or written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many rows have been stored or written.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// How many rows the WHERE of COPY FROM has left out.
    pub fn excluded(&self) -> u64 {
        self.excluded.load(Ordering::Relaxed)
    }

    /// How many rows ON_ERROR has left out.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}
