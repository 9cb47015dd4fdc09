//! The role of a database: a primary, in which transactions write, or a replica, which only changes as the log of another server
//! says ([`crate::replay`]). It is in the manifest.

use crate::engine::Engine;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use firn_base::{Error, Lsn, Result, SqlState};

/// What makes a database a replica: it only changes as the log of another server says.
#[derive(Debug)]
pub(crate) struct Replica {
    /// That server.
    upstream: String,
    /// The beginning of the first group of the log that has not been replayed completely.
    replayed: AtomicU64,
    /// A snapshot that is taken now sees everything before this position.
    visible: AtomicU64,
    /// Whether a [`Replayer`](crate::Replayer) exists.
    pub is_replaying: AtomicBool,
}

impl Replica {
    /// A replica that has replayed the log up to here.
    pub fn new(upstream: String, replayed: Lsn) -> Replica {
        let (visible, replayed) = (AtomicU64::new(replayed.0), AtomicU64::new(replayed.0));
        Replica { upstream, replayed, visible, is_replaying: AtomicBool::new(false) }
    }

    /// The beginning of the first group that has not been replayed completely.
    pub fn replayed(&self) -> Lsn {
        Lsn(self.replayed.load(Ordering::SeqCst))
    }

    /// Notes the beginning of the group that is replayed next. Nothing of it has been replayed yet.
    pub fn set_replayed(&self, to: Lsn) {
        self.replayed.store(to.0, Ordering::SeqCst);
        // Everything before it is visible, also padding and entries without a commit.
        self.show(to);
    }

    /// A snapshot that is taken now sees everything before this position.
    fn visible(&self) -> Lsn {
        Lsn(self.visible.load(Ordering::SeqCst))
    }

    /// Notes that a snapshot that is taken now sees everything before a position.
    pub fn show(&self, to: Lsn) {
        self.visible.fetch_max(to.0, Ordering::SeqCst);
    }
}

impl Engine {
    /// Whether it is a replica, which only changes as the log of another server says: transactions cannot write (25006).
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.replica().is_some()
    }

    /// The server whose log it follows, if it is a replica: `HOST:PORT`, or a URL.
    pub fn upstream(&self) -> Option<&str> {
        self.replica().map(|replica| &*replica.upstream)
    }

    /// Error: 25006 in a replica.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.replica().map_or(Ok(()), |replica| Err(not_writable(&replica.upstream)))
    }

    /// The position in the log up to which commits are visible; in a replica, up to which the log has been replayed.
    pub fn visible_lsn(&self) -> Lsn {
        match self.replica() {
            // A group may end with padding, or have no commit.
            Some(replica) => replica.visible(),
            None => self.last_position(),
        }
    }
}

#[cold]
fn not_writable(upstream: &str) -> Error {
    Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, "a replica cannot be changed")
        .with_hint(format!("Write to the server that it follows: {}.", address_of(upstream)))
}

/// The address in a URL or in `HOST:PORT`, without user, password and parameters.
pub fn address_of(server: &str) -> &str {
    let server = server.split_once('?').map_or(server, |(before, _)| before);
    let server = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let server = server.split_once("://").map_or(server, |(_, host)| host);
    server.split('/').next().unwrap_or(server)
}
