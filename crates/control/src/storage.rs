//! What the library keeps on disk: one file, which is replaced as a whole. It has a few kilobytes, and changes with each message that
//! decides something, which are few.
//!
//! ```text
//! FIRNCONTROL 1 crc32c=0011aabb
//! {"vote":…,"log":{…},"snapshot":…}
//! ```

use crate::{Known, Types};
use firn_base::disk::Disk;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, SqlState};
use firn_replica::cluster::{Cluster, Outcome};
use openraft::storage::{LogFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot};
use openraft::{
    BasicNode, Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftLogReader,
    RaftSnapshotBuilder, SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Cursor;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

const FILE: &str = "STATE";
const TEMPORARY: &str = "STATE.tmp";
const WORD: &str = "FIRNCONTROL 1";

type Stored<T> = std::result::Result<T, StorageError<u64>>;

/// The file and what is applied of it.
#[derive(Clone)]
pub(crate) struct Store(Arc<Shared>);

struct Shared {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    kept: Mutex<Kept>,
    applied: Mutex<Applied>,
    known: Arc<Known>,
}

/// What is in the file.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Kept {
    vote: Option<Vote<u64>>,
    /// The last entry that has been removed.
    purged: Option<LogId<u64>>,
    log: BTreeMap<u64, Entry<Types>>,
    /// An entry up to which the log is known to be decided; perhaps there is more. Written with the next change.
    decided: Option<LogId<u64>>,
    snapshot: Option<KeptSnapshot>,
}

/// The state after some entries, which replaces them.
#[derive(Clone, Serialize, Deserialize)]
struct KeptSnapshot {
    meta: SnapshotMeta<u64, BasicNode>,
    cluster: Cluster,
}

/// The state after the entries that are decided.
#[derive(Clone, Default)]
struct Applied {
    last: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    cluster: Cluster,
}

impl Store {
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, known: Arc<Known>) -> Result<Store> {
        disk.create_directory(directory)?;
        let path = directory.join(FILE);
        let kept = match disk.exists(&path)? {
            true => decode(&disk.read(&path)?, &path)?,
            false => Kept::default(),
        };
        let applied = kept.snapshot.clone().map(Applied::of).unwrap_or_default();
        known.set(applied.cluster.clone());
        let directory = directory.to_owned();
        let (kept, applied) = (Mutex::new(kept), Mutex::new(applied));
        Ok(Store(Arc::new(Shared { disk, directory, kept, applied, known })))
    }

    /// Changes what is kept, and the file. After an error neither has changed for the library, which stops.
    fn change(&self, change: impl FnOnce(&mut Kept)) -> Result<()> {
        let mut kept = self.0.kept.lock();
        let mut changed = kept.clone();
        change(&mut changed);
        let body = serde_json::to_vec(&changed).expect("keys are strings or numbers");
        let mut bytes = format!("{WORD} crc32c={:08x}\n", crc32c::crc32c(&body)).into_bytes();
        bytes.extend_from_slice(&body);
        let directory = &self.0.directory;
        self.0.disk.replace(&directory.join(FILE), &directory.join(TEMPORARY), &bytes)?;
        *kept = changed;
        Ok(())
    }

    fn write(&self, subject: ErrorSubject<u64>, change: impl FnOnce(&mut Kept)) -> Stored<()> {
        self.change(change).map_err(|error| {
            let cause = std::io::Error::other(error.to_string());
            StorageIOError::new(subject, ErrorVerb::Write, openraft::AnyError::new(&cause)).into()
        })
    }

    fn keep_snapshot(&self, applied: &Applied) -> Stored<KeptSnapshot> {
        let last = applied.last.map_or(0, |last| last.index);
        let meta = SnapshotMeta {
            last_log_id: applied.last,
            last_membership: applied.membership.clone(),
            snapshot_id: last.to_string(),
        };
        let snapshot = KeptSnapshot { meta, cluster: applied.cluster.clone() };
        self.write(ErrorSubject::Snapshot(None), |kept| kept.snapshot = Some(snapshot.clone()))?;
        Ok(snapshot)
    }
}

fn decode(bytes: &[u8], path: &Path) -> Result<Kept> {
    let damaged = || {
        Error::new(SqlState::DATA_CORRUPTED, format!("the file \"{}\" is damaged", path.display())).with_hint(
            "Remove the voter from the cluster by \"firn cluster remove-voter\", and let the server join again with an empty directory.",
        )
    };
    let at = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (line, body) = (&bytes[..at], &bytes[at + 1..]);
    if line != format!("{WORD} crc32c={:08x}", crc32c::crc32c(body)).as_bytes() {
        return Err(damaged());
    }
    serde_json::from_slice(body).map_err(|_| damaged())
}

impl Applied {
    fn of(snapshot: KeptSnapshot) -> Applied {
        let KeptSnapshot { meta, cluster } = snapshot;
        Applied { last: meta.last_log_id, membership: meta.last_membership, cluster }
    }
}

impl KeptSnapshot {
    fn bytes(self) -> Snapshot<Types> {
        let bytes = serde_json::to_vec(&self.cluster).expect("keys are strings or numbers");
        Snapshot { meta: self.meta, snapshot: Box::new(Cursor::new(bytes)) }
    }
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Stored<Vec<Entry<Types>>> {
        Ok(self.0.kept.lock().log.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Stored<LogState<Types>> {
        let kept = self.0.kept.lock();
        let last = kept.log.last_key_value().map(|(_, entry)| entry.log_id).or(kept.purged);
        Ok(LogState { last_purged_log_id: kept.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Stored<()> {
        self.write(ErrorSubject::Vote, |kept| kept.vote = Some(*vote))
    }

    async fn read_vote(&mut self) -> Stored<Option<Vote<u64>>> {
        Ok(self.0.kept.lock().vote)
    }

    async fn save_committed(&mut self, decided: Option<LogId<u64>>) -> Stored<()> {
        self.0.kept.lock().decided = decided;
        Ok(())
    }

    async fn read_committed(&mut self) -> Stored<Option<LogId<u64>>> {
        Ok(self.0.kept.lock().decided)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Stored<()>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        let written = self.write(ErrorSubject::Logs, |kept| kept.log.extend(entries));
        let reported = match &written {
            Ok(()) => Ok(()),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        };
        callback.log_io_completed(reported);
        written
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Stored<()> {
        self.write(ErrorSubject::Logs, |kept| drop(kept.log.split_off(&log_id.index)))
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Stored<()> {
        self.write(ErrorSubject::Logs, |kept| {
            kept.log = kept.log.split_off(&(log_id.index + 1));
            kept.purged = Some(log_id);
        })
    }
}

impl RaftSnapshotBuilder<Types> for Store {
    async fn build_snapshot(&mut self) -> Stored<Snapshot<Types>> {
        let applied = self.0.applied.lock().clone();
        self.keep_snapshot(&applied).map(KeptSnapshot::bytes)
    }
}

impl RaftStateMachine<Types> for Store {
    type SnapshotBuilder = Store;

    async fn applied_state(&mut self) -> Stored<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        let applied = self.0.applied.lock();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Stored<Vec<Outcome>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut applied = self.0.applied.lock();
        let mut outcomes = Vec::new();
        for entry in entries {
            applied.last = Some(entry.log_id);
            outcomes.push(match entry.payload {
                EntryPayload::Blank => Ok(()),
                EntryPayload::Normal(change) => applied.cluster.apply(change),
                EntryPayload::Membership(membership) => {
                    applied.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Ok(())
                }
            });
        }
        self.0.known.set(applied.cluster.clone());
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> Store {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Stored<Box<Cursor<Vec<u8>>>> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Stored<()> {
        let cluster = serde_json::from_slice(snapshot.get_ref())
            .map_err(|error| StorageIOError::read_snapshot(Some(meta.signature()), &error))?;
        let applied = Applied::of(KeptSnapshot { meta: meta.clone(), cluster });
        self.keep_snapshot(&applied)?;
        self.0.known.set(applied.cluster.clone());
        *self.0.applied.lock() = applied;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Stored<Option<Snapshot<Types>>> {
        Ok(self.0.kept.lock().snapshot.clone().map(KeptSnapshot::bytes))
    }
}
