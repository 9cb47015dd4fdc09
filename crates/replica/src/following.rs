//! A running replica: one thread receives the log of the server that it follows, and connects again when the connection is lost;
//! another one replays it. It may become a primary meanwhile ([`crate::promotion`]): then both end.
//!
//! A replica that cannot follow any more copies the database anew beside the old one, which is served meanwhile, and then asks its owner
//! to open the directory again ([`crate::join`]). If the server has another history, the owner is asked at once: the log of the
//! replica is to be cut ([`crate::rejoin`]).

use crate::channel::{Channel, Received, Stoppable};
use crate::join;
use crate::message::FollowerStatus;
use crate::promotion::{Promoting, Promotion, Succession, Wish};
use crate::receiver::{Receiver, Taken};
use firn_base::clock::Instant;
use firn_base::disk::Disk;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_base::{Epoch, Error, Lsn, Result, SqlState, clock};
use firn_log::{LogPoint, Waited};
use firn_txn::{DirectoryRole, Engine, Replayer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait before connecting again: at first, and at most.
const RETRY_AFTER: Duration = Duration::from_millis(100);
const RETRY_AFTER_AT_MOST: Duration = Duration::from_secs(5);
/// The same for a voter.
const RETRY_OF_VOTER: Duration = Duration::from_millis(20);
/// How much is received before it is made durable, if more arrives all the time.
const BATCH_BYTES: usize = 4 << 20;
/// A server that has been silent for so long is gone.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// How long to wait for a message before looking for something else to do.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// An answer follows so soon when replay has advanced, …
const ANSWER_AFTER: Duration = Duration::from_millis(1);
/// … and this often in any case.
const ANSWER_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before copying again what could not be copied.
const RETRY_COPY_AFTER: Duration = Duration::from_secs(60);
/// How long to wait for the threads to end.
const LONGEST_END: Duration = Duration::from_secs(3);
/// What replay may lack when the primary is asked to hand over: a moment's work.
const LITTLE_BYTES: u64 = 16 << 20;
/// How long the replaying thread sleeps at once.
const REPLAY_WAIT: Duration = Duration::from_millis(100);
/// The same of a voter, which may be appointed meanwhile.
const REPLAY_WAIT_OF_VOTER: Duration = Duration::from_millis(10);

/// What a replica does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowingState {
    /// It is connecting to the server.
    Connecting,
    /// It receives the log.
    Receiving,
    /// It cannot follow any more, and copies the database anew.
    CopyingAnew,
    /// A new copy is complete: the directory is to be opened again.
    Superseded,
    /// The server has another history: the directory is to be closed, its log cut, and opened again.
    Diverged,
    /// It has become a primary.
    Promoted,
    /// It was to become a primary, which has failed: what it is is known when the database is opened again.
    Uncertain,
}

/// How far a replica has come. Times are in microseconds since 1970 UTC.
#[derive(Clone, PartialEq, Debug)]
pub struct FollowingStatus {
    /// What it does.
    pub state: FollowingState,
    /// Whether the server was a primary when it was connected last.
    pub is_of_primary: bool,
    /// Where receiving began since it was started.
    pub begun: Lsn,
    /// How far it has come.
    pub reached: FollowerStatus,
    /// Up to where the log of the server is on disk, as it has said last.
    pub available: Lsn,
    /// When its last message has come, and when it had sent it, by its clock.
    pub last_message: Option<(i64, i64)>,
    /// When the group was sealed that has been replayed last.
    pub replayed_time: Option<i64>,
    /// Why receiving has failed last, if it has not succeeded since.
    pub receive_error: Option<String>,
    /// Why replay has failed last, if it has not succeeded since.
    pub replay_error: Option<String>,
}

/// How a replica connects to the server that it follows.
pub type Connect = dyn Fn() -> Result<Box<dyn Channel>> + Send + Sync;

/// How a replica follows.
pub struct Options {
    /// Its name, which the server shows.
    pub name: String,
    /// The disk with the database.
    pub disk: Arc<dyn Disk>,
    /// The directory of the database.
    pub directory: PathBuf,
    /// Connects to the server.
    pub connect: Box<Connect>,
    /// Whether it ends if the server has another history. Otherwise it tries again and again.
    pub may_diverge: bool,
    /// Gets lines for the person who runs the server: a failure, unless it is that of before, and what becomes of it.
    pub report: Box<dyn Fn(&str) + Send + Sync>,
    /// Called once when it follows no more. The database is a primary now ([`FollowingState::Promoted`]), or it is to be closed and
    /// opened again: because a new copy is complete ([`FollowingState::Superseded`]), because it is unknown what it is
    /// ([`FollowingState::Uncertain`]), or because the server has another history ([`FollowingState::Diverged`]). Then
    /// [`rejoin`](crate::rejoin::rejoin) is to be called in between.
    pub ended: Box<dyn Fn(FollowingState) + Send + Sync>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A replica that follows, until it is stopped.
#[derive(Debug)]
pub struct Following {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    engine: Arc<Engine>,
    options: Options,
    stopping: AtomicBool,
    is_paused: AtomicBool,
    /// Groups are replayed so many microseconds after they were sealed, by the clock of this machine.
    delay: AtomicU64,
    status: Mutex<FollowingStatus>,
    promoting: Promoting,
    /// Where the beginning of the epoch ends for which this voter has been appointed.
    begun: Mutex<Option<Lsn>>,
    heard: Mutex<Heard>,
    /// What waits for the end, or for the end of a pause, sleeps here.
    changed: Condvar,
}

/// When the server that is followed was heard.
#[derive(Default)]
struct Heard {
    /// In which epoch, and when, in microseconds of a clock that is never set.
    last: Option<(Epoch, u64)>,
    /// Servers of earlier epochs are not noted, and may not rely on this voter any more.
    least: Epoch,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Following {
    /// Begins to follow. Error: 55000 if the database is no replica.
    pub fn start(engine: Arc<Engine>, options: Options) -> Result<Following> {
        let replayer = engine.replayer()?;
        let begun = engine.received()?.lsn;
        let reached = FollowerStatus { received: begun, flushed: begun, replayed: engine.visible_lsn() };
        let status = FollowingStatus {
            state: FollowingState::Connecting,
            is_of_primary: true,
            begun,
            reached,
            available: begun,
            last_message: None,
            replayed_time: None,
            receive_error: None,
            replay_error: None,
        };
        let shared = Arc::new(Shared {
            engine,
            options,
            stopping: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            status: Mutex::new(status),
            promoting: Promoting::default(),
            begun: Mutex::default(),
            heard: Mutex::default(),
            changed: Condvar::new(),
        });
        let (receiving, replaying) = (shared.clone(), shared.clone());
        let threads = vec![
            thread::spawn("firn-receive", move || receiving.run_receiver()),
            thread::spawn("firn-replay", move || replaying.run_replayer(replayer)),
        ];
        Ok(Following { shared, threads })
    }

    /// A handle that shows and controls it, also after its end.
    pub fn watch(&self) -> FollowingWatch {
        FollowingWatch(self.shared.clone())
    }

    /// Stops receiving and replay. What has been received is replayed when the database is opened again.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Under the lock, so that no thread begins to sleep in between.
        drop(self.shared.status.lock());
        self.shared.changed.notify_all();
        let begun = clock::now();
        for thread in self.threads.drain(..) {
            // One that is connecting notices later, and ends by itself.
            while !thread.is_finished() && begun.elapsed() < LONGEST_END {
                clock::sleep(LONGEST_END / 1000);
            }
            if thread.is_finished() {
                // Its panic was reported where it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.end();
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// The log has been asked for, of a primary or of another replica.
    Asked {
        is_of_primary: bool,
    },
    Streaming,
}

/// Why receiving has ended.
enum Ended {
    /// It was to end.
    Asked,
    /// The server has handed over.
    HandedOver,
}

/// Shows and controls a replica that follows.
#[derive(Clone, Debug)]
pub struct FollowingWatch(Arc<Shared>);

impl FollowingWatch {
    /// How far it has come.
    pub fn status(&self) -> FollowingStatus {
        let mut status = self.0.status.lock().clone();
        status.reached.replayed = self.0.engine.visible_lsn();
        if self.0.promoting.is_done() {
            status.state = FollowingState::Promoted;
        }
        status
    }

    /// Makes the replica a primary, and waits for that, for so long at most, if it waits at all. Returns where the log of the former
    /// primary ends; `None` if the time has passed. Then it is given up, unless the primary has been asked and may still answer.
    ///
    /// Errors: those of `check`, which is called again and again; 55000 if it is no replica any more, or the primary refuses to hand over;
    /// 55006 if another one waits for the same; those of replay and of the disk.
    pub fn promote(
        &self,
        promotion: Promotion,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<LogPoint>> {
        self.0.promoting.run(promotion, longest, check)
    }

    /// When the server of an epoch was heard last, in microseconds of a clock that is never set.
    pub fn heard(&self) -> Option<(Epoch, u64)> {
        self.0.heard.lock().last
    }

    /// No primary of an epoch before this one may rely on this voter from now on, except for what it has been answered.
    pub fn refuse_before(&self, epoch: Epoch) {
        let mut heard = self.0.heard.lock();
        heard.least = heard.least.max(epoch);
    }

    /// Does what must not be done once the server has been heard again, unless it has been since it was [heard](FollowingWatch::heard) then.
    pub fn unless_heard_since(
        &self,
        known: Option<(Epoch, u64)>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let heard = self.0.heard.lock();
        if heard.last == known { work() } else { Ok(()) }
    }

    /// Whether it copies the database anew.
    pub fn is_copying(&self) -> bool {
        self.0.status.lock().state == FollowingState::CopyingAnew
    }

    /// Where the beginning of the epoch ends for which this voter has been appointed, if it has begun.
    pub fn begun(&self) -> Option<Lsn> {
        *self.0.begun.lock()
    }

    /// Stops or continues replay; the log is received nevertheless.
    pub fn pause(&self, pause: bool) {
        self.0.is_paused.store(pause, Ordering::SeqCst);
        drop(self.0.status.lock());
        self.0.changed.notify_all();
    }

    /// Whether replay has been stopped.
    pub fn is_paused(&self) -> bool {
        self.0.is_paused.load(Ordering::SeqCst)
    }

    /// Lets replay be behind by so much: a group is replayed when it was sealed so long ago, by the clocks of both machines.
    pub fn set_delay(&self, delay: Duration) {
        self.0.delay.store(delay.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Sleeps for a while, or until something changes.
    fn sleep(&self, longest: Duration) {
        let mut status = self.status.lock();
        if !self.is_stopping() {
            self.changed.wait_for(&mut status, longest);
        }
    }

    fn set_state(&self, state: FollowingState) {
        self.status.lock().state = state;
    }

    /// Receives until it is to stop, or a new copy is complete.
    fn run_receiver(&self) {
        let mut pause = RETRY_AFTER;
        while !self.is_stopping() && !self.promoting.is_done() {
            if self.promoting.replaying().is_some() {
                self.sleep(RETRY_AFTER);
                continue;
            }
            self.set_state(FollowingState::Connecting);
            let mut phase = Phase::Greeting;
            let received = catch_unwind(AssertUnwindSafe(|| self.receive_once(&mut phase)));
            let received = received.unwrap_or_else(|_| Err(panicked("receiving")));
            let handed_over = match &received {
                Ok(Ended::HandedOver) => Ok(()),
                Ok(Ended::Asked) => Err(&ended()),
                Err(error) => Err(error),
            };
            self.promoting.end_receiving(handed_over);
            let Err(error) = received else {
                self.sleep(RETRY_AFTER);
                continue;
            };
            if self.is_stopping() {
                return;
            }
            if phase == Phase::Streaming {
                pause = RETRY_AFTER;
            }
            self.note_error(&error);
            if let Phase::Asked { is_of_primary } = phase {
                match error.state() {
                    // The primary has another history. A replica that has one will follow the primary, too, or be given up.
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
                        if is_of_primary && self.options.may_diverge && self.promoting.begin_receiving() =>
                    {
                        return self.ask_to_reopen(FollowingState::Diverged);
                    }
                    // What a voter has more than the primary of a later epoch has is of another history, too.
                    SqlState::CANNOT_CONNECT_NOW
                        if self.engine.voter().is_some() && self.promoting.begin_receiving() =>
                    {
                        return self.ask_to_reopen(FollowingState::Diverged);
                    }
                    // The server does not retain the log from there on.
                    SqlState::UNDEFINED_FILE if self.promoting.begin_receiving() => match self.begin_anew() {
                        Ok(()) => return self.ask_to_reopen(FollowingState::Superseded),
                        Err(error) => {
                            self.promoting.end_receiving(Err(&error));
                            self.note_error(&error);
                            self.set_state(FollowingState::Connecting);
                            pause = RETRY_COPY_AFTER;
                        }
                    },
                    _ => {}
                }
            }
            // Commits wait for a voter.
            let now = match self.engine.voter() {
                Some(_) if pause == RETRY_COPY_AFTER => RETRY_AFTER_AT_MOST,
                Some(_) => RETRY_OF_VOTER,
                None => pause,
            };
            self.sleep(now);
            pause = RETRY_AFTER_AT_MOST.min(2 * pause);
        }
    }

    fn note_error(&self, error: &Error) {
        let text = error.to_string();
        let is_new =
            self.status.lock().receive_error.replace(text.clone()).is_none_or(|before| before != text);
        if is_new {
            (self.options.report)(&format!("the log cannot be received, which is tried again: {text}"));
        }
    }

    /// The replica receives as long as nothing has been opened, so it does not become a primary.
    fn ask_to_reopen(&self, state: FollowingState) {
        self.set_state(state);
        (self.options.ended)(state);
    }

    /// Notes that the server of an epoch has been heard. Returns whether it may rely on this voter.
    fn note_heard(&self, epoch: Epoch) -> bool {
        let mut heard = self.heard.lock();
        if epoch < heard.least {
            return false;
        }
        heard.last = Some((epoch, clock::boot_micros()));
        true
    }

    /// Receives over one connection until it ends.
    fn receive_once(&self, phase: &mut Phase) -> Result<Ended> {
        let mut channel = (self.options.connect)()?;
        let channel = &mut *channel;
        if !self.promoting.begin_receiving() {
            return Ok(Ended::Asked);
        }
        let mut receiver = Receiver::begin(self.engine.clone(), channel, &self.options.name)?;
        let mut message = Vec::new();
        let (mut unflushed, mut answered, mut heard) = (0, None, clock::now());
        let (mut reported, mut received) = (Lsn(0), Lsn(0));
        while !self.is_stopping() {
            let is_streaming = *phase == Phase::Streaming;
            if self.promoting.wish() == Wish::End {
                return Ok(Ended::Asked);
            }
            if !receiver.is_current() {
                return Err(ended());
            }
            if is_streaming
                && receiver.is_close()?
                && self.replays_well()
                && let Some(server) = self.promoting.take_request()
            {
                receiver.ask_for_handover(&server, channel)?;
            }
            // What is being replayed is answered soon: commits may wait for that.
            let is_replaying = heard.elapsed() < ANSWER_EVERY && self.engine.visible_lsn() < received;
            let longest = match is_streaming && (is_replaying || self.engine.visible_lsn() > reported) {
                _ if unflushed > 0 => Duration::ZERO,
                true => ANSWER_AFTER,
                false => LONGEST_WAIT,
            };
            match channel.receive_within(&mut message, longest)? {
                Received::End => return Err(ended()),
                Received::Nothing if heard.elapsed() > LONGEST_SILENCE => return Err(silent()),
                Received::Nothing => {}
                Received::Message => {
                    heard = clock::now();
                    let is_relied_on = self.note_heard(receiver.sender());
                    let taken = receiver.take(&message, channel)?;
                    if !is_relied_on {
                        receiver.forget_beat();
                    }
                    receiver.answer_beat(channel)?;
                    match taken {
                        Taken::Identity => {
                            let is_of_primary = receiver.is_of_primary();
                            *phase = Phase::Asked { is_of_primary };
                            self.status.lock().is_of_primary = is_of_primary;
                        }
                        Taken::Beginning => {
                            *phase = Phase::Streaming;
                            self.set_state(FollowingState::Receiving);
                            self.status.lock().receive_error = None;
                        }
                        Taken::Groups => unflushed += message.len(),
                        Taken::Part => {}
                        Taken::Position => {
                            let sent_at = receiver.sent_at().unwrap_or_default();
                            let mut status = self.status.lock();
                            status.last_message = Some((clock::wall_clock_micros(), sent_at));
                            status.available = receiver.available();
                        }
                        Taken::HandedOver => {
                            // The former primary waits for that. If it does not come there, it has given up nevertheless.
                            let _ = receiver.answer(channel);
                            return Ok(Ended::HandedOver);
                        }
                    }
                    if unflushed < BATCH_BYTES && (unflushed > 0 || *phase != Phase::Streaming) {
                        continue;
                    }
                }
            }
            // The server does not read answers while it sends a file, so they are few then.
            let since = answered.map(|answered: Instant| answered.elapsed());
            let is_news = self.engine.visible_lsn() > reported && since >= Some(ANSWER_AFTER);
            let is_due = unflushed > 0 || is_news || since.is_none_or(|since| since >= ANSWER_EVERY);
            if *phase == Phase::Streaming && is_due {
                let reached = receiver.answer(channel)?;
                (unflushed, answered, reported) = (0, Some(clock::now()), reached.replayed);
                received = reached.received;
                let mut status = self.status.lock();
                (status.reached, status.available) = (reached, receiver.available());
            }
        }
        Ok(Ended::Asked)
    }

    /// Copies the database anew, and asks for the directory to be opened again.
    fn begin_anew(&self) -> Result<()> {
        self.set_state(FollowingState::CopyingAnew);
        (self.options.report)("the server does not have the log from there on: the database is copied anew");
        let Options { disk, directory, connect, name, .. } = &self.options;
        let upstream = self.engine.upstream().expect("it is a replica").to_owned();
        let stopped = || self.is_stopping() || self.promoting.wish() == Wish::End;
        let mut channel = Stoppable { channel: &mut *connect()?, is_stopped: &stopped };
        let identity = self.engine.identity().expect("a replica has a directory");
        let option = DirectoryRole::read(&**disk, directory)?.and_then(|role| role.option);
        let voter = self.engine.voter();
        let followed = (&*upstream, option.as_deref());
        join::copy_anew(disk, directory, &mut channel, followed, name, identity, voter)?;
        // A promotion removes the copy.
        if stopped() { Err(ended()) } else { Ok(()) }
    }

    /// Replays until it is to stop.
    fn run_replayer(&self, mut replayer: Replayer) {
        while !self.is_stopping() {
            let replayed = catch_unwind(AssertUnwindSafe(|| self.replay_some(&mut replayer)));
            let has_panicked = replayed.is_err();
            if self.promoting.is_done() {
                return;
            }
            match replayed.unwrap_or_else(|_| Err(panicked("replay"))) {
                Ok(true) => {}
                Ok(false) => self.sleep(REPLAY_WAIT),
                Err(error) => {
                    let text = error.to_string();
                    let is_new = self
                        .status
                        .lock()
                        .replay_error
                        .replace(text.clone())
                        .is_none_or(|before| before != text);
                    if is_new {
                        (self.options.report)(&format!("the log cannot be replayed: {text}"));
                    }
                    match self.promoting.replaying() {
                        // It has begun the epoch, and nobody else can lead it: that is tried again.
                        Some(Succession::InEpoch(_)) if is_passing(&error) && !has_panicked => {}
                        // What is committed has been decided already.
                        Some(_) if self.engine.voter().is_some() => {
                            self.promoting.give_up(error);
                            return (self.options.ended)(FollowingState::Uncertain);
                        }
                        Some(_) => self.promoting.finish(Err(error)),
                        None => {}
                    }
                    if has_panicked {
                        // A commit may have been replayed in part, which no reader sees.
                        self.promoting.give_up(panicked("replay"));
                        return;
                    }
                    self.sleep(REPLAY_WAIT);
                }
            }
        }
    }

    /// Replays what has been received, or waits for it for a while. Returns false if replay is not to go on now.
    fn replay_some(&self, replayer: &mut Replayer) -> Result<bool> {
        match self.promoting.replaying() {
            Some(Succession::InEpoch(epoch)) => return self.replay_in_epoch(replayer, epoch),
            Some(succession) => return self.replay_to_the_end(replayer, succession).map(|()| false),
            None => {}
        }
        // Before the primary gives up, everything is to be replayed.
        let is_wanted = self.promoting.wish() != Wish::Nothing;
        if self.is_paused.load(Ordering::SeqCst) && !is_wanted {
            return Ok(false);
        }
        let delay = self.delay.load(Ordering::SeqCst) as i64;
        if delay > 0
            && !is_wanted
            && let Some(sealed) = replayer.next_wall_time()?
            && clock::wall_clock_micros() < sealed.saturating_add(delay)
        {
            return Ok(false);
        }
        match replayer.replay_next()? {
            Some(end) => {
                let mut status = self.status.lock();
                (status.replayed_time, status.replay_error) = (Some(end.wall_time), None);
            }
            None if replayer.wait(self.replay_wait())? == Waited::Closed => return Ok(false),
            None => {}
        }
        Ok(true)
    }
}

impl Shared {
    /// Replays all that has been received, whether it is paused or delayed or not, and makes the replica a primary.
    fn replay_to_the_end(&self, replayer: &mut Replayer, succession: Succession) -> Result<()> {
        let cluster = match succession {
            Succession::InCluster(cluster) => Some(cluster),
            Succession::Next | Succession::InEpoch(_) => None,
        };
        self.engine.flush_log()?;
        // Whatever other voters have.
        self.engine.confirm_all();
        while let Some(end) = replayer.replay_next()? {
            self.status.lock().replayed_time = Some(end.wall_time);
            if self.is_stopping() {
                return Ok(());
            }
        }
        // What has been copied in the meantime is of the former primary, and must not take the place of this database.
        join::discard(&*self.options.disk, &self.options.directory)?;
        match replayer.promote(cluster) {
            Ok(point) => {
                self.promoting.finish(Ok(point));
                (self.options.ended)(FollowingState::Promoted);
                Ok(())
            }
            Err(error) => {
                // The directory may be that of a primary.
                self.promoting.give_up(error.clone());
                (self.options.ended)(FollowingState::Uncertain);
                Err(error)
            }
        }
    }

    fn replay_wait(&self) -> Duration {
        if self.engine.voter().is_some() { REPLAY_WAIT_OF_VOTER } else { REPLAY_WAIT }
    }

    /// Begins an epoch for which this voter has been appointed, and becomes a primary once a majority has its beginning and everything
    /// before it is replayed. Returns false if replay is not to go on now.
    fn replay_in_epoch(&self, replayer: &mut Replayer, epoch: Epoch) -> Result<bool> {
        let known = *self.begun.lock();
        let begun = match known {
            Some(begun) => begun,
            None => {
                join::discard(&*self.options.disk, &self.options.directory)?;
                let begun = replayer.begin_epoch(epoch).inspect_err(|error| {
                    self.promoting.give_up(error.clone());
                    (self.options.ended)(FollowingState::Uncertain);
                })?;
                *self.begun.lock() = Some(begun);
                begun
            }
        };
        let replayed = replayer.replay_next()?;
        let point = replayer.point();
        if replayer.take_over(begun)? {
            self.promoting.finish(Ok(point));
            (self.options.ended)(FollowingState::Promoted);
            return Ok(false);
        }
        Ok(replayed.is_some() || replayer.wait(REPLAY_WAIT_OF_VOTER)? != Waited::Closed)
    }

    /// Whether replay goes on, and lacks little.
    fn replays_well(&self) -> bool {
        let received = self.engine.received().map_or(0, |point| point.lsn.0);
        let lacks = received.saturating_sub(self.engine.visible_lsn().0);
        self.status.lock().replay_error.is_none() && lacks <= LITTLE_BYTES
    }
}

/// Whether replay may succeed when it is tried again.
fn is_passing(error: &Error) -> bool {
    [SqlState::OUT_OF_MEMORY, SqlState::TOO_MANY_CONNECTIONS].contains(&error.state())
}

#[cold]
fn panicked(what: &str) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, format!("{what} has panicked")).with_hint("Start the replica again.")
}

#[cold]
fn ended() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the server has ended the connection")
}

#[cold]
fn silent() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the server does not answer")
}
