//! Who is running: the read time of every active transaction, and from them the horizon, the time
//! below which nobody reads.
//!
//! ```text
//! begin                                         collector
//! slot: idle → drawing (everything is needed)   now ← last commit
//! read time ← last commit                       horizon ← least of now and all slots
//! slot ← read time
//! ```
//! All in sequential order. If the collector saw the slot idle, its `now` was read before the slot
//! was taken, hence before the transaction's read time: the horizon is not above it.
//!
//! Whoever needs a row that another transaction has changed and not committed can wait for its end here, and so can who
//! needs a table that others have locked or write to. Each slot names the transaction that its own waits for, or what it
//! wants if that is no row; who has that the tables know, which may change hands while somebody waits. Who has locked one waits for all who write to it, or lock rows there: those are found by what they have joined,
//! which each notes beside its slot, where nobody looks unless somebody waits. So rings are found by walking along them;
//! of each the one of the greatest number gives way.

use crate::isolation::Isolation;
use crate::statistics::Running;
use crate::waits::{HoldersOf, Waited, Want};
use firn_base::sync::{Apart, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};
use firn_base::{Error, Result, Snapshot, SqlState, Stamp, TableId, Time};
use std::cell::Cell;
use std::time::Duration;

/// Whether little is enough, of what is made for every set: a model makes one for each of its schedules, and Miri is slow.
const SMALL: bool = cfg!(any(feature = "models", miri));

/// Transactions that can run at once.
const SLOTS: usize = if SMALL { 64 } else { 4096 };
const SLOT_BITS: u32 = SLOTS.ilog2();
const IDLE: u64 = u64::MAX;
/// While a transaction that begins draws its read time: it may lie anywhere.
const DRAWING: u64 = IDLE - 1;
/// While a transaction runs that reads by no snapshot: nothing is kept for it.
const NO_SNAPSHOT: u64 = IDLE - 2;
/// Set in the read time of a transaction that is about to move on from it: what it will read next may lie
/// anywhere after it.
const ADVANCING: u64 = 1 << 62;

/// Places where waiting transactions sleep; which one depends on whom they wait for.
const BEDS: usize = 64;

/// How many tables a transaction notes without a lock that it has joined the writers of: those of nearly all.
const FIRST_TABLES: usize = if SMALL { 1 } else { 22 };

/// The running transactions.
pub(crate) struct ActiveSet {
    slots: Box<[Slot]>,
    /// Of each slot.
    joined: Box<[Joined]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    beds: Box<[(Mutex<()>, Condvar)]>,
    /// How often transactions that ran on have let go of rows.
    releases: Apart<AtomicU64>,
}

/// On a cache line of its own, since its transaction writes it at begin and end.
#[repr(align(64))]
struct Slot {
    read_time: AtomicU64,
    /// How many transactions have used the slot and ended: makes their ids differ.
    uses: AtomicU64,
    /// The stamp of the transaction that this one waits for, or 0.
    waits_for: AtomicU64,
    /// How many wait for this one.
    waiters: AtomicU32,
    // What others are told of it, by its own thread.
    /// The session that it is of.
    session: AtomicU32,
    /// When it began, by the engine's slow clock.
    begun: AtomicU64,
    /// How many undo records it has written, as of its last statement.
    records: AtomicU64,
    /// Its isolation, and whether it writes.
    traits: AtomicU32,
    /// How many tables' writers it has joined, or those who lock rows there.
    joined: AtomicU32,
    /// What it waits for if that is a table or the catalog: see [`Want::to_bits`]. Else when the one that it waits for had last let go
    /// of rows ([`Joined::released_at`]).
    wants: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 64);
const _: () = assert!(SMALL || size_of::<Joined>() == 128);

/// The tables whose writers a transaction has joined, as many as its slot says. On cache lines of its own, as the slot. Those where it
/// has joined the ones who lock rows are marked [`ONLY_LOCKS`]; if it writes there later, it notes them once more.
#[repr(align(64))]
struct Joined {
    first: [AtomicU32; FIRST_TABLES],
    /// When it has last let go of rows, in the count of [`ActiveSet::releases`]; or one before in the slot.
    released_at: AtomicU64,
    more: Mutex<Vec<u32>>,
}

/// Set in the number of a table.
const ONLY_LOCKS: u32 = 1 << 31;

/// In `traits`, above the isolation.
const WRITES: u32 = 1 << 8;

/// The right to be counted as running.
#[derive(Debug)]
pub(crate) struct ActiveSlot {
    at: usize,
    /// How often others had let go of rows when it began, or was last told to try again.
    releases: AtomicU64,
}

thread_local! {
    /// The slot this thread's last transaction had; most likely idle again.
    static HINT: Cell<usize> = const { Cell::new(0) };
}

impl ActiveSet {
    pub fn new() -> ActiveSet {
        let slot = |_| Slot {
            read_time: AtomicU64::new(IDLE),
            uses: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            session: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            records: AtomicU64::new(0),
            traits: AtomicU32::new(0),
            joined: AtomicU32::new(0),
            wants: AtomicU64::new(0),
        };
        let joined = |_| Joined {
            first: std::array::from_fn(|_| AtomicU32::new(0)),
            released_at: AtomicU64::new(0),
            more: Mutex::default(),
        };
        ActiveSet {
            slots: (0..SLOTS).map(slot).collect(),
            joined: (0..SLOTS).map(joined).collect(),
            used: AtomicUsize::new(0),
            beds: (0..BEDS).map(|_| Default::default()).collect(),
            releases: Apart::default(),
        }
    }

    /// Counts a transaction that begins now; `last` is the newest published commit time, `begun` what a clock
    /// shows that others can compare with.
    pub fn enter(
        &self,
        last: &AtomicU64,
        isolation: Isolation,
        begun: u64,
    ) -> Result<(ActiveSlot, Snapshot)> {
        let hint = HINT.get();
        for offset in 0..SLOTS {
            let at = (hint + offset) % SLOTS;
            let slot = &self.slots[at];
            if slot.read_time.compare_exchange(IDLE, DRAWING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            if at >= self.used.load(Ordering::Relaxed) {
                // Before the read time is drawn, so that a collector that misses the slot has read
                // `last` earlier than this.
                self.used.fetch_max(at + 1, Ordering::SeqCst);
            }
            let uses = slot.uses.load(Ordering::Relaxed);
            let read_time = last.load(Ordering::SeqCst);
            slot.read_time.store(read_time, Ordering::SeqCst);
            slot.session.store(0, Ordering::Relaxed);
            slot.begun.store(begun, Ordering::Relaxed);
            slot.records.store(0, Ordering::Relaxed);
            slot.traits.store(isolation as u32, Ordering::Relaxed);
            HINT.set(at);
            let releases = AtomicU64::new(self.releases.load(Ordering::SeqCst));
            let snapshot = Snapshot { read_time: Time(read_time), owner: stamp_of(uses, at) };
            return Ok((ActiveSlot { at, releases }, snapshot));
        }
        Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, format!("more than {SLOTS} transactions are running"))
            .with_hint("End some of them, or run fewer at once."))
    }

    /// Says whose transaction it is.
    #[inline]
    pub fn set_session(&self, slot: &ActiveSlot, session: u32) {
        self.slots[slot.at].session.store(session, Ordering::Relaxed);
    }

    /// Says what it is kept apart from.
    #[inline]
    pub fn set_isolation(&self, slot: &ActiveSlot, isolation: Isolation) {
        let traits = &self.slots[slot.at].traits;
        // Nobody else writes to it.
        traits.store(traits.load(Ordering::Relaxed) & WRITES | isolation as u32, Ordering::Relaxed);
    }

    /// Says that it writes.
    pub fn set_writes(&self, slot: &ActiveSlot) {
        let traits = &self.slots[slot.at].traits;
        // Nobody else writes to it.
        traits.store(traits.load(Ordering::Relaxed) | WRITES, Ordering::Relaxed);
    }

    /// Says that it has joined the writers of a table that others know of, until it ends, or those who only lock rows there.
    pub fn note_joined(&self, slot: &ActiveSlot, table: TableId, only_locks: bool) {
        self.set_writes(slot);
        assert!(table.0 < ONLY_LOCKS, "tables are numbered from below");
        let number = if only_locks { table.0 | ONLY_LOCKS } else { table.0 };
        let (own, tables) = (&self.slots[slot.at], &self.joined[slot.at]);
        // Nobody else writes to these, either.
        let count = own.joined.load(Ordering::Relaxed) as usize;
        match tables.first.get(count) {
            // Release, for who reads it in place of what another one has noted there: he must see that the slot has been given on.
            Some(place) => place.store(number, Ordering::Release),
            None => {
                let mut more = tables.more.lock();
                more.truncate(count - FIRST_TABLES);
                more.push(number);
            }
        }
        own.joined.store(count as u32 + 1, Ordering::Release);
    }

    /// What the transaction in a slot has joined, as it notes it. If the slot is another's afterwards, it is not the first one's.
    fn joined_in(&self, at: usize) -> impl Iterator<Item = u32> {
        let count = self.slots[at].joined.load(Ordering::Acquire) as usize;
        let tables = &self.joined[at];
        let more = match count.checked_sub(FIRST_TABLES) {
            None | Some(0) => Vec::new(),
            Some(count) => tables.more.lock().iter().take(count).copied().collect(),
        };
        let first = tables.first.iter().take(count).map(|table| table.load(Ordering::Acquire));
        first.chain(more)
    }

    /// Calls `visit` with the transactions that have joined the writers of a table, or also with those who only lock rows there,
    /// until it returns false.
    fn sharers(&self, table: TableId, or_locks: bool, mut visit: impl FnMut(Stamp) -> bool) {
        let shares = |joined: u32| joined == table.0 || or_locks && joined == table.0 | ONLY_LOCKS;
        let used = self.used.load(Ordering::SeqCst);
        for (at, slot) in self.slots[..used].iter().enumerate() {
            let uses = slot.uses.load(Ordering::SeqCst);
            // Whoever ends has joined nothing any more before its slot is given on.
            if self.joined_in(at).any(shares)
                && slot.uses.load(Ordering::SeqCst) == uses
                && !visit(stamp_of(uses, at))
            {
                return;
            }
        }
    }

    /// One that has joined the writers of a table, or those who only lock rows there if these count, but for `own`. Who has only just
    /// done so may not be found.
    pub fn sharer_beside(&self, own: Stamp, table: TableId, or_locks: bool) -> Option<Stamp> {
        let mut found = None;
        self.sharers(table, or_locks, |sharer| {
            found = (sharer != own).then_some(sharer);
            found.is_none()
        });
        found
    }

    /// Says what it waits for from now on, if it is not a row.
    pub fn set_want(&self, slot: &ActiveSlot, want: Option<Want>) {
        self.slots[slot.at].wants.store(want.map_or(0, Want::to_bits), Ordering::SeqCst);
    }

    /// Whether somebody waits for a table to write there or to lock it alone.
    pub fn is_wanted(&self, table: TableId) -> bool {
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used].iter().any(|slot| {
            let want = Want::from_bits(slot.wants.load(Ordering::SeqCst));
            [Want::Write(table), Want::WriteToo(table), Want::Lock(table)].map(Some).contains(&want)
        })
    }

    /// Says how many undo records it has written.
    #[inline]
    pub fn set_records(&self, slot: &ActiveSlot, records: usize) {
        self.slots[slot.at].records.store(records as u64, Ordering::Relaxed);
    }

    /// Every running transaction, as of about now by the clock of [`ActiveSet::enter`].
    pub fn running_now(&self, last: &AtomicU64, now: u64, holders_of: HoldersOf<'_>) -> Vec<Running> {
        let used = self.used.load(Ordering::SeqCst);
        let look = |(at, slot): (usize, &Slot)| {
            let uses = slot.uses.load(Ordering::SeqCst);
            let read_time = slot.read_time.load(Ordering::SeqCst);
            if matches!(read_time, IDLE | DRAWING) {
                return None;
            }
            let mut awaits = Vec::new();
            self.each_awaited_by(stamp_of(uses, at), holders_of, |other| awaits.extend(other.sequence()));
            let traits = slot.traits.load(Ordering::Relaxed);
            let now_read = last.load(Ordering::SeqCst);
            let read_time = if read_time == NO_SNAPSHOT { now_read } else { read_time & !ADVANCING };
            let running = Running {
                id: stamp_of(uses, at).sequence().expect("it is a transaction's"),
                session: slot.session.load(Ordering::Relaxed),
                isolation: Isolation::from_number(traits % WRITES),
                age: Duration::from_micros(now.saturating_sub(slot.begun.load(Ordering::Relaxed))),
                read_time: Time(read_time),
                commits_behind: now_read.saturating_sub(read_time),
                writes: traits & WRITES != 0,
                records: slot.records.load(Ordering::Relaxed),
                waits_for: awaits,
                wants: Want::from_bits(slot.wants.load(Ordering::SeqCst)),
                writes_to: self
                    .joined_in(at)
                    .filter(|joined| joined & ONLY_LOCKS == 0)
                    .map(TableId)
                    .collect(),
                locks_in: self
                    .joined_in(at)
                    .filter(|joined| joined & ONLY_LOCKS != 0)
                    .map(|joined| TableId(joined & !ONLY_LOCKS))
                    .collect(),
            };
            // It may have ended meanwhile, and what was read be another's.
            (slot.uses.load(Ordering::SeqCst) == uses && slot.read_time.load(Ordering::SeqCst) != IDLE)
                .then_some(running)
        };
        self.slots[..used].iter().enumerate().filter_map(look).collect()
    }

    /// How many transactions have ended.
    pub fn ended(&self) -> u64 {
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used].iter().map(|slot| slot.uses.load(Ordering::Relaxed)).sum()
    }

    /// Begins to move a transaction on from the time it reads at to the newest published commit, which is
    /// returned. Until [`ActiveSet::settle`] everything is kept that it may read, before and after.
    pub fn advance(&self, slot: &ActiveSlot, from: Time, last: &AtomicU64) -> Time {
        self.slots[slot.at].read_time.store(from.0 | ADVANCING, Ordering::SeqCst);
        Time(last.load(Ordering::SeqCst))
    }

    /// Says at what time it reads from now on.
    pub fn settle(&self, slot: &ActiveSlot, read_time: Time) {
        self.slots[slot.at].read_time.store(read_time.0, Ordering::SeqCst);
    }

    /// Says that from now on it reads by no snapshot.
    pub fn release_snapshot(&self, slot: &ActiveSlot) {
        self.slots[slot.at].read_time.store(NO_SNAPSHOT, Ordering::SeqCst);
    }

    /// Has a transaction that has [forgone](ActiveSet::release_snapshot) its snapshot read at the newest published commit, which is
    /// returned, as one that begins now.
    pub fn acquire_snapshot(&self, slot: &ActiveSlot, last: &AtomicU64) -> Time {
        let own = &self.slots[slot.at].read_time;
        own.store(DRAWING, Ordering::SeqCst);
        let read_time = last.load(Ordering::SeqCst);
        own.store(read_time, Ordering::SeqCst);
        Time(read_time)
    }

    /// Counts a transaction off.
    pub fn leave(&self, slot: &ActiveSlot) {
        let own = &self.slots[slot.at];
        // Before the slot is another's. Most have only read.
        if own.joined.load(Ordering::Relaxed) > 0 {
            own.joined.store(0, Ordering::Relaxed);
        }
        // A panic may have ended its waiting.
        if own.wants.load(Ordering::Relaxed) > 0 {
            own.wants.store(0, Ordering::Relaxed);
        }
        // Before the rest, so that nobody takes the next transaction in the slot for this one.
        own.uses.store(own.uses.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        // What it read comes before it is gone; and in sequential order with the waiters' own count, so
        // that either they see that it has gone or it sees them.
        own.read_time.store(IDLE, Ordering::SeqCst);
        self.wake(slot);
    }

    /// Tells those who wait for a transaction, which runs on, that it has let go of rows. They wait for it no more, also those that
    /// have yet to wake: otherwise a ring would be seen through them that is none.
    pub fn report_release(&self, slot: &ActiveSlot) {
        let now = self.releases.fetch_add(1, Ordering::SeqCst) + 1;
        self.joined[slot.at].released_at.store(now, Ordering::SeqCst);
        self.wake(slot);
    }

    /// Wakes those who wait for a transaction.
    fn wake(&self, slot: &ActiveSlot) {
        if self.slots[slot.at].waiters.load(Ordering::SeqCst) > 0 {
            let (lock, wake) = &self.beds[slot.at % BEDS];
            drop(lock.lock());
            wake.notify_all();
        }
    }

    /// The slot of a transaction that still runs.
    fn running(&self, stamp: u64) -> Option<&Slot> {
        let sequence = Stamp::from_bits(stamp).sequence()?;
        let slot = &self.slots[slot_of(sequence)];
        let is_running = || {
            slot.uses.load(Ordering::SeqCst) == sequence >> SLOT_BITS
                && slot.read_time.load(Ordering::SeqCst) != IDLE
        };
        is_running().then_some(slot)
    }

    /// Waits for the end of another transaction, for a while. Of a ring that waits for each other one is
    /// told, perhaps only when it calls again.
    pub fn wait(
        &self,
        own: &ActiveSlot,
        own_stamp: Stamp,
        other: Stamp,
        longest: Duration,
        holders_of: HoldersOf<'_>,
    ) -> Waited {
        let released_at = self.released_at(other);
        if released_at > own.releases.load(Ordering::Relaxed) {
            return self.retries(own);
        }
        let Slot { waits_for, wants, .. } = &self.slots[own.at];
        let is_for_row = Want::from_bits(wants.load(Ordering::Relaxed)).is_none();
        if is_for_row {
            wants.store(edge_of(released_at), Ordering::SeqCst);
        }
        // In sequential order: of those who close a ring together, the last sees all of it.
        waits_for.store(other.to_bits(), Ordering::SeqCst);
        // What was seen of a ring one after the other may not have been there at once; a ring is still there at the second look.
        let waited = if (0..2).all(|_| self.is_victim(own_stamp, holders_of)) {
            Waited::Deadlock
        } else {
            self.sleep_until_end(own, other, released_at, longest)
        };
        waits_for.store(0, Ordering::SeqCst);
        if is_for_row {
            wants.store(0, Ordering::SeqCst);
        }
        waited
    }

    /// Whether a transaction waits for itself through others whose numbers are all less than its own. That is so of one of
    /// each ring: all see it, and only one shall give way.
    fn is_victim(&self, own: Stamp, holders_of: HoldersOf<'_>) -> bool {
        let mut seen = [false; SLOTS];
        let (mut waiting, mut found) = (vec![own], false);
        while let Some(next) = waiting.pop() {
            self.each_awaited_by(next, holders_of, |other| {
                found |= other == own;
                let number = other.sequence().expect("transactions are waited for");
                if other < own && !std::mem::replace(&mut seen[slot_of(number)], true) {
                    waiting.push(other);
                }
            });
            if found {
                return true;
            }
        }
        false
    }

    /// Calls `visit` with those that a transaction waits for, if it still runs.
    fn each_awaited_by(&self, waiting: Stamp, holders_of: HoldersOf<'_>, mut visit: impl FnMut(Stamp)) {
        let Some(slot) = self.running(waiting.to_bits()) else { return };
        let waits_for = slot.waits_for.load(Ordering::SeqCst);
        let wants = slot.wants.load(Ordering::SeqCst);
        // It may have ended meanwhile, and the slot be another's.
        if self.running(waiting.to_bits()).is_none() {
            return;
        }
        match Want::from_bits(wants) {
            // Of these it names one.
            Some(want @ (Want::Unwritten(table) | Want::Alone(table))) => {
                self.sharers(table, want == Want::Alone(table), |sharer| {
                    if sharer != waiting {
                        visit(sharer);
                    }
                    true
                });
            }
            // It may yet sleep for one that has given back what it wants, and may have it itself together with others.
            Some(want) => {
                holders_of(want).into_iter().filter(|holder| *holder != waiting).for_each(visit);
            }
            None => {
                let holder = Stamp::from_bits(waits_for);
                if waits_for > 0 && edge_of(self.released_at(holder)) == wants {
                    visit(holder);
                }
            }
        }
    }

    /// When a transaction, or one before in its slot, has last let go of rows.
    fn released_at(&self, of: Stamp) -> u64 {
        let number = of.sequence().expect("transactions are waited for");
        self.joined[slot_of(number)].released_at.load(Ordering::SeqCst)
    }

    /// Tells a transaction to try again, after which it counts what is let go of anew.
    fn retries(&self, own: &ActiveSlot) -> Waited {
        own.releases.store(self.releases.load(Ordering::SeqCst), Ordering::Relaxed);
        Waited::Released
    }

    fn sleep_until_end(&self, own: &ActiveSlot, other: Stamp, released_at: u64, longest: Duration) -> Waited {
        let Some(slot) = self.running(other.to_bits()) else { return Waited::Ended };
        let (lock, wake) = &self.beds[other.sequence().expect("it runs") as usize % BEDS];
        slot.waiters.fetch_add(1, Ordering::SeqCst);
        let stays = || self.released_at(other) == released_at;
        {
            let mut bed = lock.lock();
            if self.running(other.to_bits()).is_some() && stays() {
                wake.wait_for(&mut bed, longest);
            }
        }
        slot.waiters.fetch_sub(1, Ordering::SeqCst);
        match self.running(other.to_bits()) {
            None => Waited::Ended,
            Some(_) if stays() => Waited::NotYet,
            Some(_) => self.retries(own),
        }
    }

    /// The time at or before which nobody reads any more but the newest state: records with this
    /// stamp or an older one are needed by no active or future snapshot.
    pub fn horizon(&self, last: &AtomicU64) -> Time {
        let now = last.load(Ordering::SeqCst);
        let least = |least: u64, time| if time == DRAWING { 0 } else { least.min(time & !ADVANCING) };
        Time(self.read_times().fold(now, least))
    }

    /// The read times of all active transactions, ascending, and the time that those begun since
    /// read at least at, as do those that are advancing. `None` while one is drawing its read time, which
    /// may lie anywhere.
    pub fn snapshot_times(&self, last: &AtomicU64) -> Option<(Vec<Time>, Time)> {
        let mut now = last.load(Ordering::SeqCst);
        let mut times = Vec::new();
        for time in self.read_times() {
            if time == DRAWING {
                return None;
            }
            if time & ADVANCING != 0 {
                now = now.min(time & !ADVANCING);
            }
            times.push(Time(time & !ADVANCING));
        }
        times.sort_unstable();
        Some((times, Time(now)))
    }

    fn read_times(&self) -> impl Iterator<Item = u64> {
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used]
            .iter()
            .map(|slot| slot.read_time.load(Ordering::SeqCst))
            .filter(|time| !matches!(*time, IDLE | NO_SNAPSHOT))
    }
}

/// How a waiter writes down when the one that it waits for had last let go of rows.
fn edge_of(released_at: u64) -> u64 {
    u64::from(released_at as u32)
}

/// The transaction that has a slot after so many others.
fn stamp_of(uses: u64, at: usize) -> Stamp {
    Stamp::transaction(uses << SLOT_BITS | at as u64)
}

/// The slot that a transaction of this number has.
fn slot_of(sequence: u64) -> usize {
    sequence as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_oldest_read_time_or_now() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        assert_eq!(active.horizon(&last), Time(5));
        let (first, snapshot) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        assert_eq!(snapshot.read_time, Time(5));
        last.store(9, Ordering::SeqCst);
        let (second, later) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        assert_ne!(snapshot.owner, later.owner);
        assert_eq!(active.horizon(&last), Time(5));
        assert_eq!(active.snapshot_times(&last), Some((vec![Time(5), Time(9)], Time(9))));
        active.leave(&first);
        assert_eq!(active.horizon(&last), Time(9));
        active.leave(&second);
        last.store(12, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(12));
    }

    #[test]
    fn who_moves_on_keeps_what_it_reads_before_and_after() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let (slot, _) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        last.store(9, Ordering::SeqCst);
        assert_eq!(active.advance(&slot, Time(5), &last), Time(9));
        last.store(12, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(5));
        assert_eq!(active.snapshot_times(&last), Some((vec![Time(5)], Time(5))));
        active.settle(&slot, Time(9));
        assert_eq!(active.horizon(&last), Time(9));
        assert_eq!(active.snapshot_times(&last), Some((vec![Time(9)], Time(12))));
    }

    #[test]
    fn for_who_has_forgone_its_snapshot_nothing_is_kept_until_it_reads_again() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let (slot, snapshot) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        active.release_snapshot(&slot);
        last.store(9, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(9));
        assert_eq!(active.snapshot_times(&last), Some((vec![], Time(9))));
        // It runs, and others wait for it.
        assert_eq!(active.running_now(&last, 0, &|_| Vec::new())[0].commits_behind, 0);
        assert!(active.running(snapshot.owner.to_bits()).is_some());
        assert_eq!(active.acquire_snapshot(&slot, &last), Time(9));
        last.store(12, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(9));
        active.leave(&slot);
        assert_eq!(active.horizon(&last), Time(12));
    }

    #[test]
    fn the_running_are_told_with_what_they_do() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let (first, snapshot) = active.enter(&last, Isolation::ReadCommitted, 1000).unwrap();
        active.set_session(&first, 7);
        let (second, _) = active.enter(&last, Isolation::Serializable, 2000).unwrap();
        last.store(9, Ordering::SeqCst);
        active.note_joined(&second, TableId(3), false);
        active.note_joined(&second, TableId(4), true);
        active.set_records(&second, 12);
        active.slots[second.at].waits_for.store(snapshot.owner.to_bits(), Ordering::SeqCst);
        let [reader, writer] = &active.running_now(&last, 2500, &|_| Vec::new())[..] else {
            panic!("two are running")
        };
        assert_eq!((reader.session, reader.isolation), (7, Isolation::ReadCommitted));
        assert_eq!((reader.age, reader.commits_behind), (Duration::from_micros(1500), 4));
        assert_eq!((reader.writes, &reader.waits_for), (false, &vec![]));
        assert_eq!((writer.writes, writer.records, &writer.waits_for), (true, 12, &vec![reader.id]));
        assert_eq!((&writer.writes_to, &writer.locks_in), (&vec![TableId(3)], &vec![TableId(4)]));
        assert_eq!(writer.wants, None);
        active.leave(&first);
        active.leave(&second);
        assert_eq!((active.running_now(&last, 3000, &|_| Vec::new()).len(), active.ended()), (0, 2));
    }

    #[test]
    fn waiting_ends_with_the_other_transaction() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let (first, waited_for) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        let (second, waiting) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        let wait = |longest| active.wait(&second, waiting.owner, waited_for.owner, longest, &|_| Vec::new());
        assert_eq!(wait(Duration::from_millis(1)), Waited::NotYet);
        firn_base::thread::scope(|scope| {
            firn_base::thread::spawn_scoped(scope, "other", || {
                firn_base::clock::sleep(Duration::from_millis(5));
                active.leave(&first);
            });
            assert_eq!(wait(Duration::from_secs(600)), Waited::Ended);
        });
        // Its slot is another's by now.
        let (_, other) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        assert_ne!(other.owner, waited_for.owner);
        assert_eq!(wait(Duration::from_secs(600)), Waited::Ended);
    }

    #[test]
    fn of_a_ring_one_is_told() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let running: Vec<_> =
            (0..3).map(|_| active.enter(&last, Isolation::Serializable, 0).unwrap()).collect();
        firn_base::thread::scope(|scope| {
            for at in 0..2 {
                let (active, running) = (&active, &running);
                firn_base::thread::spawn_scoped(scope, "waiting", move || {
                    let ((own, snapshot), (_, next)) = (&running[at], &running[at + 1]);
                    let longest = Duration::from_secs(600);
                    let wait = || active.wait(own, snapshot.owner, next.owner, longest, &|_| Vec::new());
                    while wait() != Waited::Ended {}
                    active.leave(own);
                });
            }
            let (own, snapshot) = &running[2];
            let (first, longest) = (running[0].1.owner, Duration::from_millis(1));
            while active.wait(own, snapshot.owner, first, longest, &|_| Vec::new()) != Waited::Deadlock {}
            active.leave(own);
        });
    }
}
