//! A replica of a primary in the same process: a copy of the primary's directory, and a pump that passes the log on in small steps.

use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::sync::Arc;
use firn_base::{Epoch, Lsn, Result, SqlState};
use firn_log::{Follower, LogCopy, LogPoint, SegmentHeader};
use firn_txn::{
    Config, CopiedManifest, DatabaseFile, DirectoryRole, Engine, Folders, Replayer, files_named_by,
};
use std::path::Path;

/// What the replica's manifest says that it follows.
const SENDER: firn_txn::Sender = firn_txn::Sender { epoch: Epoch(0), voter: None };
pub const UPSTREAM: &str = "replica:secret@primary.example:5432";

/// A replica, with what is needed to pass it the log.
pub struct Replica {
    pub disk: Arc<SimulatedDisk>,
    pub engine: Arc<Engine>,
    config: Config,
    /// Present while it is connected to the primary.
    link: Option<Link>,
    replayer: Option<Replayer>,
}

struct Link {
    follower: Follower,
    /// The last segment whose header has been passed on.
    segment: Option<SegmentHeader>,
}

/// Whether the primary has removed what the replica needs.
pub fn is_out_of_reach(state: SqlState) -> bool {
    [SqlState::UNDEFINED_FILE, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE].contains(&state)
}

/// Writes a file of the primary to a place of its own.
fn put(primary: &Engine, file: &DatabaseFile, disk: &dyn Disk, path: &Path) -> Result<()> {
    let from = primary.open_file(file)?;
    let mut bytes = vec![0; from.len()? as usize];
    assert_eq!(from.read_at(&mut bytes, 0)?, bytes.len());
    let to = disk.create(path)?;
    to.write_at(&bytes, 0)?;
    to.sync()?;
    disk.sync_directory(path.parent().expect("it is in a folder"))
}

/// Makes a copy of the primary's directory, in a directory that is empty, as that of a replica.
pub fn copy(primary: &Arc<Engine>, disk: &Arc<SimulatedDisk>, directory: &Path) {
    let pinned = loop {
        let pinned = primary.pin_checkpoint("a new replica").unwrap();
        if primary.can_copy_from(pinned.point().lsn) {
            break pinned;
        }
        // Nothing has been written since the epoch began.
        let _ = primary.create_restore_point("first").unwrap();
    };
    let folders = Folders::of(directory);
    folders.both().iter().for_each(|folder| disk.create_directory(folder).unwrap());
    let mut follower = primary.follow("a new replica", pinned.point()).unwrap();
    for file in pinned.files() {
        put(primary, &file, &**disk, &folders.path(&file)).unwrap();
    }
    let manifest = CopiedManifest::decode(&pinned.manifest(), Path::new("MANIFEST")).unwrap();
    let (database, point) = (manifest.database(), manifest.point());
    let mut log = LogCopy::create(disk.clone(), &folders.log, database, point).unwrap();
    if let Some(header) = follower.segment() {
        log.begin_segment(&header.encode()).unwrap();
    }
    primary.flush_log().unwrap();
    while log.point().lsn < manifest.needed() {
        let group = follower.next_group(Lsn(u64::MAX)).unwrap().expect("what is needed is on disk");
        for file in files_named_by(&group).unwrap() {
            put(primary, &file, &**disk, &folders.path(&file)).unwrap();
        }
        follower.segments_of(&group).for_each(|header| assert!(log.begin_segment(&header.encode()).is_ok()));
        log.append(group.bytes()).unwrap();
    }
    log.sync().unwrap();
    manifest.install_replica(&**disk, directory, UPSTREAM, None, None).unwrap();
    let role = DirectoryRole::read(&**disk, directory).unwrap().expect("it is complete");
    assert_eq!((role.database, role.upstream.as_deref()), (database, Some(UPSTREAM)));
}

impl Replica {
    /// A new replica on a disk of its own.
    pub fn of(primary: &Arc<Engine>, config: Config) -> Replica {
        let disk = SimulatedDisk::new();
        copy(primary, &disk, config.directory.as_ref().expect("it has a directory"));
        Replica::open(disk, config)
    }

    /// Opens the directory of a replica.
    pub fn open(disk: Arc<SimulatedDisk>, config: Config) -> Replica {
        let engine = Engine::open_on(disk.clone(), config.clone()).unwrap();
        assert!(engine.is_replica() && engine.upstream().as_deref() == Some(UPSTREAM));
        let replayer = Some(engine.replayer().unwrap());
        Replica { disk, engine, config, link: None, replayer }
    }

    /// Ends the process, without or with a loss of power, and opens the directory again.
    pub fn reopen(self, disk: Arc<SimulatedDisk>) -> Replica {
        let config = self.config.clone();
        drop(self);
        Replica::open(disk, config)
    }

    pub fn disconnect(&mut self) {
        self.link = None;
    }

    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Connects to the primary, where it has ended. Error: if the primary has removed that.
    pub fn connect(&mut self, primary: &Arc<Engine>) -> Result<()> {
        let follower = primary.follow("a replica", self.engine.received()?)?;
        self.link = Some(Link { follower, segment: None });
        Ok(())
    }

    /// Receives the next group with the files that it names. Returns false if there is none.
    pub fn receive_one(&mut self, primary: &Arc<Engine>) -> Result<bool> {
        let Link { follower, segment } = self.link.as_mut().expect("it is connected");
        let first: Vec<SegmentHeader> = follower.segment().into_iter().collect();
        send_headers(&self.engine, segment, &first)?;
        let Some(group) = follower.next_group(Lsn(u64::MAX))? else { return Ok(false) };
        for file in files_named_by(&group)? {
            let (disk, path) = self.engine.place_for_received(&file)?;
            put(primary, &file, &*disk, &path)?;
        }
        let headers: Vec<SegmentHeader> = follower.segments_of(&group).copied().collect();
        send_headers(&self.engine, segment, &headers)?;
        let reached = self.engine.receive_groups(SENDER, group.bytes())?;
        assert!(reached == group.end);
        assert!(self.engine.received()? == group.end);
        Ok(true)
    }

    /// Makes what has been received durable, and lets the primary remove it.
    pub fn flush(&mut self) -> Result<()> {
        self.engine.flush_log()?;
        let point = self.engine.log_point()?;
        assert!(point == self.engine.received()?);
        if let Some(link) = &self.link {
            link.follower.pin().advance(point.lsn)?;
        }
        Ok(())
    }

    /// Replays the next group that is durable. Returns its end.
    pub fn replay_one(&mut self) -> Result<Option<LogPoint>> {
        self.replayer.as_mut().expect("it replays").replay_next()
    }

    /// Stops replaying and begins again.
    pub fn renew_replayer(&mut self) {
        self.replayer = None;
        self.replayer = Some(self.engine.replayer().unwrap());
    }

    /// Receives and replays everything.
    pub fn catch_up(&mut self, primary: &Arc<Engine>) -> Result<()> {
        primary.flush_log()?;
        if !self.is_connected() {
            self.connect(primary)?;
        }
        while self.receive_one(primary)? {}
        self.flush()?;
        while self.replay_one()?.is_some() {}
        Ok(())
    }
}

fn send_headers(engine: &Engine, sent: &mut Option<SegmentHeader>, headers: &[SegmentHeader]) -> Result<()> {
    for header in headers {
        if sent.is_none_or(|sent| sent.number < header.number || sent.epoch < header.epoch) {
            engine.receive_segment(SENDER, &header.encode())?;
            *sent = Some(*header);
        }
    }
    Ok(())
}
