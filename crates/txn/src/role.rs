//! The role of a database: a primary, in which transactions write, or a replica, which only changes as the log of another server
//! says ([`crate::replay`]). It is in the manifest.
//!
//! A replica becomes a primary while it is open ([`Replayer::promote`]): readers go on, and nothing is read again. A primary that
//! hands over to a replica ([`Engine::hand_over`]) commits nothing any more, and is a replica when it is opened again.

use crate::engine::Engine;
use crate::manifest::{ClusterId, LOCK, Manifest};
use crate::replay::Replayer;
use crate::voter::Voter;
use firn_base::disk::Disk;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use firn_log::{DatabaseId, LogPoint};
use std::path::Path;

/// What a database directory is, without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryRole {
    /// The database.
    pub database: DatabaseId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The server whose log it follows, if it is a replica: `HOST:PORT`, or a URL.
    pub upstream: Option<String>,
    /// The server to follow that the operator has named last. The role may have changed since.
    pub option: Option<String>,
    /// What makes it that of a voter.
    pub voter: Option<Voter>,
}

impl DirectoryRole {
    /// Reads that of a directory; `None` if it has no complete database. Errors as of opening it.
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<DirectoryRole>> {
        let read = Manifest::read(disk, directory)?.map(|(manifest, _)| manifest);
        Ok(read.filter(|manifest| manifest.complete).map(|manifest| DirectoryRole {
            database: manifest.database,
            cluster: manifest.cluster,
            upstream: manifest.follows,
            option: manifest.follow_option,
            voter: manifest.voter,
        }))
    }

    /// Makes it the role of the directory that has this database, which is closed.
    ///
    /// Errors: 55000 if the directory has another database, or none; 55006 if it is open.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let _lock = disk.lock(&directory.join(LOCK))?;
        let manifest = Manifest::read(disk, directory)?.map(|(manifest, _)| manifest);
        let Some(manifest) = manifest.filter(|manifest| manifest.database == self.database) else {
            let message = format!("there is another database in \"{}\", or none", directory.display());
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        };
        let (follows, follow_option) = (self.upstream.clone(), self.option.clone());
        let is_same = follows == manifest.follows && self.cluster == manifest.cluster;
        let handed_over_at = manifest.handed_over_at.filter(|_| is_same);
        let (cluster, voter) = (self.cluster, self.voter);
        Manifest { cluster, follows, handed_over_at, follow_option, voter, ..manifest }.write(disk, directory)
    }
}

/// What makes a database a replica: it only changes as the log of another server says.
#[derive(Debug)]
pub(crate) struct Replica {
    /// That server. Empty for a voter that knows no primary.
    upstream: Mutex<String>,
    /// Where the log has ended when the database was handed over to that server, if it was a primary before.
    handed_over_at: Option<Lsn>,
    /// The beginning of the first group of the log that has not been replayed completely.
    replayed: AtomicU64,
    /// A snapshot that is taken now sees everything before this position.
    visible: AtomicU64,
    /// Whether a [`Replayer`] exists.
    pub is_replaying: AtomicBool,
    /// Whether it has become a primary.
    is_promoted: AtomicBool,
}

impl Replica {
    /// A replica that has replayed the log up to here.
    pub fn new(upstream: String, handed_over_at: Option<Lsn>, replayed: Lsn) -> Replica {
        let (visible, replayed) = (AtomicU64::new(replayed.0), AtomicU64::new(replayed.0));
        Replica {
            upstream: Mutex::new(upstream),
            handed_over_at,
            replayed,
            visible,
            is_replaying: AtomicBool::new(false),
            is_promoted: AtomicBool::new(false),
        }
    }

    /// Whether it has become a primary.
    #[inline]
    pub fn is_promoted(&self) -> bool {
        // Acquire: what a primary needs was made before.
        self.is_promoted.load(Ordering::Acquire)
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
    pub fn upstream(&self) -> Option<String> {
        self.replica().map(|replica| replica.upstream.lock().clone())
    }

    /// Notes which server a voter follows now: `HOST:PORT`.
    pub fn set_upstream(&self, server: &str) {
        self.replica().into_iter().for_each(|replica| server.clone_into(&mut replica.upstream.lock()));
    }

    /// Error: 25006 in a replica.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.replica().map_or(Ok(()), |replica| Err(not_writable(&replica.upstream.lock())))
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

impl Engine {
    /// Lets a replica take over the database: nothing is committed any more. Returns where the log ends, which is on disk. From then on
    /// the directory is that of a replica that follows `server`, `HOST:PORT` or a URL; the database is to be closed, and opened
    /// again. It may be called again then, as long as that server has not taken over: it returns the same.
    ///
    /// Errors: 55000 if it is another replica, hands over to another server, or has no directory; 53100, 58030 if the log or the
    /// manifest cannot be written. If it [has handed over](Engine::has_handed_over_to) nevertheless, nothing is committed any more: the
    /// database is to be closed, and what it is when it is opened again depends on whether the directory has changed.
    pub fn hand_over(&self, server: &str) -> Result<LogPoint> {
        let (store, log) = self.store_and_log().ok_or_else(crate::engine::no_log)?;
        if self.voter().is_some() {
            let message = "the voters decide which of them is the primary";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        if let Some(replica) = self.replica() {
            let received = self.received()?;
            // Since then nobody has taken over: that would have begun an epoch. And nobody else may.
            if *replica.upstream.lock() == server && replica.handed_over_at == Some(received.lsn) {
                return Ok(received);
            }
            let message = "a replica cannot hand over the database";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_detail(format!("It follows {}.", address_of(&replica.upstream.lock())))
                .with_hint("Promote a replica that follows the primary."));
        }
        if self.successor.get().is_none() {
            // The clock of the other server passes this one's, whatever has taken times here.
            self.append_nothing()?;
        }
        if self.successor.get_or_init(|| server.to_owned()) != server {
            let message = "the database is being handed over to another replica";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        log.refuse_appends(
            Error::new(SqlState::ADMIN_SHUTDOWN, "the database is handed over to another server")
                .with_hint(format!("Connect to {}, and try again.", address_of(server))),
        );
        log.wait_durable(log.appended_lsn())?;
        let point = log.point()?;
        store.change_role(|manifest| {
            (manifest.follows, manifest.handed_over_at) = (Some(server.to_owned()), Some(point.lsn.0));
        })?;
        Ok(point)
    }

    /// Whether it was a primary, and commits nothing any more, since it hands over to this server.
    pub fn has_handed_over_to(&self, server: &str) -> bool {
        self.successor.get().is_some_and(|successor| successor == server)
    }

    /// Makes a replica that has replayed everything up to a point a primary, whose log is written from there on.
    pub(crate) fn become_primary(&self, point: LogPoint) {
        let replica = self.replica().expect("it is a replica");
        // A checkpoint that begins meanwhile takes the same place in the log from either role.
        let turn = self.commit.lock();
        self.all_tables().iter().for_each(|table| table.choose_slots());
        self.raise_position(point.lsn);
        replica.is_promoted.store(true, Ordering::Release);
        drop(turn);
    }
}

/// How many epochs a replica passes over that is promoted into another cluster: those in which the former primary may be started again, and
/// a number of the cluster, which is random, since another replica may be promoted in the same way. So epochs of the same number are of
/// the same history.
fn skipped_epochs(cluster: ClusterId) -> u64 {
    let [a, b, c, d, ..] = cluster.0;
    1_000 + u64::from(u32::from_le_bytes([a, b, c, d]))
}

impl Replayer {
    /// Makes the replica a primary, once everything has been replayed that has been received, and nothing is received any more. An
    /// epoch of its own begins. In another cluster, if one is given: then replicas of the former primary refuse to follow it, and it
    /// refuses them.
    ///
    /// Readers go on, with their snapshots. Transactions that have begun before do not write (25006). Returns where the former
    /// primary's log ends, and that of this one begins.
    ///
    /// Errors: 55000 if it is no replica any more, or not everything has been replayed; those of the disk, after which the database is
    /// to be closed: when it is opened again, it may be a primary.
    pub fn promote(&mut self, cluster: Option<ClusterId>) -> Result<LogPoint> {
        let engine = self.engine().clone();
        let replica = engine.expect_replica()?;
        let (store, log) = engine.store_and_log().expect("a replica has a directory");
        let point = log.end_receiving()?;
        if replica.replayed() != point.lsn {
            let message = "the log has not been replayed up to its end";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        {
            // Under the lock, so that no promise is written in between.
            let mut voting = engine.voting.lock();
            store.change_role(|manifest| {
                (manifest.follows, manifest.handed_over_at, manifest.voter) = (None, None, None);
                manifest.cluster = cluster.unwrap_or(manifest.cluster);
            })?;
            *voting = None;
        }
        log.begin_to_write(Epoch(point.epoch.0 + 1 + cluster.map_or(0, skipped_epochs)));
        engine.epochs.lock().begin(log.epoch(), point.lsn);
        engine.become_primary(point);
        // The epoch begins on disk. If the disk is full, the next commit fails, too, and says so.
        let _ = engine.append_nothing().and_then(|end| log.wait_durable(end));
        Ok(point)
    }
}

#[cold]
pub(crate) fn begun_in_replica() -> Error {
    let message = "the transaction cannot write, since it began when the server was a replica";
    Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).with_hint("Begin a new transaction.")
}

#[cold]
fn not_writable(upstream: &str) -> Error {
    Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, "a replica cannot be changed").with_hint(
        match address_of(upstream) {
            "" => "No primary is known at present.".to_owned(),
            address => format!("Write to the server that it follows: {address}."),
        },
    )
}

/// The address in a URL or in `HOST:PORT`, without user, password and parameters.
pub fn address_of(server: &str) -> &str {
    let server = server.split_once('?').map_or(server, |(before, _)| before);
    let server = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let server = server.split_once("://").map_or(server, |(_, host)| host);
    server.split('/').next().unwrap_or(server)
}
