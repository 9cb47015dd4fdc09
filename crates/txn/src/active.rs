//! The running transactions: their read times, and from these the horizon, the time before which no
//! transaction reads.
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
//! A transaction that needs a row with an uncommitted change waits here for the end of the transaction that
//! made it. So does one that needs a table that others have locked or write to. A slot has the transaction
//! that its own waits for, or the [`Want`] if it waits for something else than a row. The holder of a table
//! is found through the table, since it may change during the wait. A transaction that has locked a table
//! waits for all that write to it, or lock rows of it. These are found through the tables that each
//! transaction has joined. They are noted next to its slot, and only waiting transactions read them.
//! Deadlocks are found by following these edges. Of a cycle the transaction with the greatest number gives
//! way.

use crate::isolation::Isolation;
use crate::statistics::Running;
use crate::waits::{HoldersOf, Waited, Want};
use firn_base::sync::{Apart, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};
use firn_base::{Error, Result, Snapshot, SqlState, Stamp, TableId, Time};
use std::cell::Cell;
use std::time::Duration;

/// Whether a set is small: a model makes one for each of its schedules, and Miri is slow.
const SMALL: bool = cfg!(any(feature = "models", miri));

/// Transactions that can run at once.
const SLOTS: usize = if SMALL { 64 } else { 4096 };
const SLOT_BITS: u32 = SLOTS.ilog2();
const IDLE: u64 = u64::MAX;
/// The read time of a transaction that is just drawing it: it may have any value.
const DRAWING: u64 = IDLE - 1;
/// The read time of a transaction that has released its snapshot: no version is retained for it.
const NO_SNAPSHOT: u64 = IDLE - 2;
/// Set in the read time of a transaction that is about to advance its snapshot: the next read time may have any later value.
const ADVANCING: u64 = 1 << 62;

/// Queues in which waiting transactions sleep; the transaction that they wait for selects one.
const WAIT_QUEUES: usize = 64;

/// How many tables with joined writers a transaction notes without a lock. Nearly all transactions join fewer.
const FIRST_TABLES: usize = if SMALL { 1 } else { 22 };

/// The running transactions.
pub(crate) struct ActiveSet {
    slots: Box<[Slot]>,
    /// One for each slot.
    joined: Box<[Joined]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    wait_queues: Box<[(Mutex<()>, Condvar)]>,
    /// How often transactions have released rows and continued to run.
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
    // What its own thread reports of it.
    /// Its session.
    session: AtomicU32,
    /// When it began, by the engine's slow clock.
    begun: AtomicU64,
    /// How many undo records it had written at the end of its last statement.
    records: AtomicU64,
    /// Its isolation level, and whether it writes.
    traits: AtomicU32,
    /// How many tables it has joined, to write there or to lock rows.
    joined: AtomicU32,
    /// What it waits for if that is a table or the catalog: see [`Want::to_bits`]. Otherwise when the transaction that it waits for
    /// had last released rows ([`Joined::released_at`]).
    wants: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 64);
const _: () = assert!(SMALL || size_of::<Joined>() == 128);

/// The tables that a transaction has joined; the slot has their number. On cache lines of its own, as the slot. Tables of which it
/// only locks rows are marked [`ONLY_LOCKS`]; if it writes to one later, it notes the table once more.
#[repr(align(64))]
struct Joined {
    first: [AtomicU32; FIRST_TABLES],
    /// When it last released rows, by the count of [`ActiveSet::releases`]. If it has not, the value is of an earlier transaction in
    /// the slot.
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
    /// The count of [`ActiveSet::releases`] when it began, or when a wait last ended with [`Waited::Released`].
    releases: AtomicU64,
}

thread_local! {
    /// The slot of this thread's last transaction; most likely it is idle again.
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
            wait_queues: (0..WAIT_QUEUES).map(|_| Default::default()).collect(),
            releases: Apart::default(),
        }
    }

    /// Enters a transaction that begins now. `last` is the newest published commit time, `begun` the time by a clock that
    /// [`ActiveSet::running_now`] can compare with.
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

    /// Sets the session of a transaction.
    #[inline]
    pub fn set_session(&self, slot: &ActiveSlot, session: u32) {
        self.slots[slot.at].session.store(session, Ordering::Relaxed);
    }

    /// Sets the isolation level of a transaction.
    #[inline]
    pub fn set_isolation(&self, slot: &ActiveSlot, isolation: Isolation) {
        let traits = &self.slots[slot.at].traits;
        // No other thread stores to it.
        traits.store(traits.load(Ordering::Relaxed) & WRITES | isolation as u32, Ordering::Relaxed);
    }

    /// Notes that a transaction writes.
    pub fn set_writes(&self, slot: &ActiveSlot) {
        let traits = &self.slots[slot.at].traits;
        // No other thread stores to it.
        traits.store(traits.load(Ordering::Relaxed) | WRITES, Ordering::Relaxed);
    }

    /// Notes that a transaction has joined a table that others can use, until its end: its writers, or its lockers.
    pub fn note_joined(&self, slot: &ActiveSlot, table: TableId, only_locks: bool) {
        self.set_writes(slot);
        assert!(table.0 < ONLY_LOCKS, "table numbers leave the highest bit free");
        let number = if only_locks { table.0 | ONLY_LOCKS } else { table.0 };
        let (own, tables) = (&self.slots[slot.at], &self.joined[slot.at]);
        // No other thread stores to these, either.
        let count = own.joined.load(Ordering::Relaxed) as usize;
        match tables.first.get(count) {
            // Release, for a thread that loads it in place of the value of an earlier transaction: it must see that the slot has
            // another transaction.
            Some(place) => place.store(number, Ordering::Release),
            None => {
                let mut more = tables.more.lock();
                more.truncate(count - FIRST_TABLES);
                more.push(number);
            }
        }
        own.joined.store(count as u32 + 1, Ordering::Release);
    }

    /// The tables that the transaction in a slot has joined, as it has noted them. If the slot has another transaction afterwards,
    /// the result is not that of the first one.
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

    /// Calls `visit` with the transactions that have joined the writers of a table (if `or_locks`, also with those that only lock
    /// rows of it), until it returns false.
    fn sharers(&self, table: TableId, or_locks: bool, mut visit: impl FnMut(Stamp) -> bool) {
        let shares = |joined: u32| joined == table.0 || or_locks && joined == table.0 | ONLY_LOCKS;
        let used = self.used.load(Ordering::SeqCst);
        for (at, slot) in self.slots[..used].iter().enumerate() {
            let uses = slot.uses.load(Ordering::SeqCst);
            // A transaction that ends clears its tables before the slot gets another transaction.
            if self.joined_in(at).any(shares)
                && slot.uses.load(Ordering::SeqCst) == uses
                && !visit(stamp_of(uses, at))
            {
                return;
            }
        }
    }

    /// A transaction other than `own` that has joined the writers of a table, or, if `or_locks`, those that only lock rows of it. One
    /// that has only just joined may not be found.
    pub fn sharer_beside(&self, own: Stamp, table: TableId, or_locks: bool) -> Option<Stamp> {
        let mut found = None;
        self.sharers(table, or_locks, |sharer| {
            found = (sharer != own).then_some(sharer);
            found.is_none()
        });
        found
    }

    /// Sets what a transaction waits for, if it is not a row.
    pub fn set_want(&self, slot: &ActiveSlot, want: Option<Want>) {
        self.slots[slot.at].wants.store(want.map_or(0, Want::to_bits), Ordering::SeqCst);
    }

    /// Whether a transaction waits for a table to write to it or to lock it alone.
    pub fn is_wanted(&self, table: TableId) -> bool {
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used].iter().any(|slot| {
            let want = Want::from_bits(slot.wants.load(Ordering::SeqCst));
            [Want::Write(table), Want::WriteToo(table), Want::Lock(table)].map(Some).contains(&want)
        })
    }

    /// Sets how many undo records a transaction has written.
    #[inline]
    pub fn set_records(&self, slot: &ActiveSlot, records: usize) {
        self.slots[slot.at].records.store(records as u64, Ordering::Relaxed);
    }

    /// Every running transaction; `now` is the time by the clock of [`ActiveSet::enter`].
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
            // The transaction may have ended meanwhile, and the values be those of the next one.
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

    /// Begins to advance a transaction's snapshot from its read time to the newest published commit, which is
    /// returned. Until [`ActiveSet::settle`] every version is retained that either snapshot may read.
    pub fn advance(&self, slot: &ActiveSlot, from: Time, last: &AtomicU64) -> Time {
        self.slots[slot.at].read_time.store(from.0 | ADVANCING, Ordering::SeqCst);
        Time(last.load(Ordering::SeqCst))
    }

    /// Sets the read time of a transaction.
    pub fn settle(&self, slot: &ActiveSlot, read_time: Time) {
        self.slots[slot.at].read_time.store(read_time.0, Ordering::SeqCst);
    }

    /// Notes that a transaction has no snapshot from now on.
    pub fn release_snapshot(&self, slot: &ActiveSlot) {
        self.slots[slot.at].read_time.store(NO_SNAPSHOT, Ordering::SeqCst);
    }

    /// Gives a transaction that has [released](ActiveSet::release_snapshot) its snapshot a new read time, which is returned: the newest
    /// published commit, as for one that begins now.
    pub fn acquire_snapshot(&self, slot: &ActiveSlot, last: &AtomicU64) -> Time {
        let own = &self.slots[slot.at].read_time;
        own.store(DRAWING, Ordering::SeqCst);
        let read_time = last.load(Ordering::SeqCst);
        own.store(read_time, Ordering::SeqCst);
        Time(read_time)
    }

    /// Removes a transaction.
    pub fn leave(&self, slot: &ActiveSlot) {
        let own = &self.slots[slot.at];
        // Before the slot gets another transaction. Most transactions have only read.
        if own.joined.load(Ordering::Relaxed) > 0 {
            own.joined.store(0, Ordering::Relaxed);
        }
        // A panic may have ended its wait.
        if own.wants.load(Ordering::Relaxed) > 0 {
            own.wants.store(0, Ordering::Relaxed);
        }
        // Before the rest, so that no thread takes the next transaction in the slot for this one.
        own.uses.store(own.uses.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        // Its reads come before its end. In sequential order with the waiters' count, so that either
        // the waiters see its end or it sees the waiters.
        own.read_time.store(IDLE, Ordering::SeqCst);
        self.wake(slot);
    }

    /// Reports to the waiters of a transaction that it has released rows and continues to run. They no longer wait for it, also those
    /// that have not woken yet: otherwise a deadlock would be found through them that does not exist.
    pub fn report_release(&self, slot: &ActiveSlot) {
        let now = self.releases.fetch_add(1, Ordering::SeqCst) + 1;
        self.joined[slot.at].released_at.store(now, Ordering::SeqCst);
        self.wake(slot);
    }

    /// Wakes the waiters of a transaction.
    fn wake(&self, slot: &ActiveSlot) {
        if self.slots[slot.at].waiters.load(Ordering::SeqCst) > 0 {
            let (lock, wake) = &self.wait_queues[slot.at % WAIT_QUEUES];
            drop(lock.lock());
            wake.notify_all();
        }
    }

    /// The slot of a transaction, if it still runs.
    fn running(&self, stamp: u64) -> Option<&Slot> {
        let sequence = Stamp::from_bits(stamp).sequence()?;
        let slot = &self.slots[slot_of(sequence)];
        let is_running = || {
            slot.uses.load(Ordering::SeqCst) == sequence >> SLOT_BITS
                && slot.read_time.load(Ordering::SeqCst) != IDLE
        };
        is_running().then_some(slot)
    }

    /// Waits at most `longest` for the end of another transaction. Of a cycle of waiting transactions one
    /// gets [`Waited::Deadlock`], perhaps only at its next call.
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
            return self.retry(own);
        }
        let Slot { waits_for, wants, .. } = &self.slots[own.at];
        let is_for_row = Want::from_bits(wants.load(Ordering::Relaxed)).is_none();
        if is_for_row {
            wants.store(edge_of(released_at), Ordering::SeqCst);
        }
        // In sequential order: of the transactions that close a cycle together, the last one sees all of it.
        waits_for.store(other.to_bits(), Ordering::SeqCst);
        // The edges of a cycle are read one after the other, and may not have existed at one time. A real cycle is still there when
        // they are read a second time.
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

    /// Whether a transaction waits for itself through others whose numbers are all less than its own. This holds for exactly one
    /// transaction of a cycle: all of them see the cycle, and only one must give way.
    fn is_victim(&self, own: Stamp, holders_of: HoldersOf<'_>) -> bool {
        let mut seen = [false; SLOTS];
        let (mut waiting, mut found) = (vec![own], false);
        while let Some(next) = waiting.pop() {
            self.each_awaited_by(next, holders_of, |other| {
                found |= other == own;
                let number = other.sequence().expect("only transactions are waited for");
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

    /// Calls `visit` with the transactions that a running transaction waits for.
    fn each_awaited_by(&self, waiting: Stamp, holders_of: HoldersOf<'_>, mut visit: impl FnMut(Stamp)) {
        let Some(slot) = self.running(waiting.to_bits()) else { return };
        let waits_for = slot.waits_for.load(Ordering::SeqCst);
        let wants = slot.wants.load(Ordering::SeqCst);
        // The transaction may have ended meanwhile, and the slot have another one.
        if self.running(waiting.to_bits()).is_none() {
            return;
        }
        match Want::from_bits(wants) {
            // `waits_for` names only one of these.
            Some(want @ (Want::Unwritten(table) | Want::Alone(table))) => {
                self.sharers(table, want == Want::Alone(table), |sharer| {
                    if sharer != waiting {
                        visit(sharer);
                    }
                    true
                });
            }
            // It may still sleep for a transaction that has released the lock, and may hold the lock itself together with others.
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

    /// When a transaction, or an earlier one in its slot, last released rows.
    fn released_at(&self, of: Stamp) -> u64 {
        let number = of.sequence().expect("only transactions are waited for");
        self.joined[slot_of(number)].released_at.load(Ordering::SeqCst)
    }

    /// Ends a wait with [`Waited::Released`]; the next wait counts releases from now on.
    fn retry(&self, own: &ActiveSlot) -> Waited {
        own.releases.store(self.releases.load(Ordering::SeqCst), Ordering::Relaxed);
        Waited::Released
    }

    fn sleep_until_end(&self, own: &ActiveSlot, other: Stamp, released_at: u64, longest: Duration) -> Waited {
        let Some(slot) = self.running(other.to_bits()) else { return Waited::Ended };
        let (lock, wake) = &self.wait_queues[other.sequence().expect("it runs") as usize % WAIT_QUEUES];
        slot.waiters.fetch_add(1, Ordering::SeqCst);
        let has_not_released = || self.released_at(other) == released_at;
        {
            let mut locked = lock.lock();
            if self.running(other.to_bits()).is_some() && has_not_released() {
                wake.wait_for(&mut locked, longest);
            }
        }
        slot.waiters.fetch_sub(1, Ordering::SeqCst);
        match self.running(other.to_bits()) {
            None => Waited::Ended,
            Some(_) if has_not_released() => Waited::NotYet,
            Some(_) => self.retry(own),
        }
    }

    /// The time at or before which every snapshot sees only the newest state: no active or future
    /// snapshot needs records with this stamp or an older one.
    pub fn horizon(&self, last: &AtomicU64) -> Time {
        let now = last.load(Ordering::SeqCst);
        let least = |least: u64, time| if time == DRAWING { 0 } else { least.min(time & !ADVANCING) };
        Time(self.read_times().fold(now, least))
    }

    /// The read times of all active transactions, ascending, and a lower bound of the read times of
    /// transactions that have begun since or are advancing. `None` while a transaction is drawing its
    /// read time, which may have any value.
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

/// How a slot stores when the transaction that its own waits for had last released rows.
fn edge_of(released_at: u64) -> u64 {
    u64::from(released_at as u32)
}

/// The transaction that has a slot after `uses` others.
fn stamp_of(uses: u64, at: usize) -> Stamp {
    Stamp::transaction(uses << SLOT_BITS | at as u64)
}

/// The slot of the transaction with this number.
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
    fn an_advancing_transaction_retains_what_both_snapshots_read() {
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
    fn no_version_is_retained_for_a_transaction_that_has_released_its_snapshot() {
        let last = AtomicU64::new(5);
        let active = ActiveSet::new();
        let (slot, snapshot) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        active.release_snapshot(&slot);
        last.store(9, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(9));
        assert_eq!(active.snapshot_times(&last), Some((vec![], Time(9))));
        // It runs, and other transactions can wait for it.
        assert_eq!(active.running_now(&last, 0, &|_| Vec::new())[0].commits_behind, 0);
        assert!(active.running(snapshot.owner.to_bits()).is_some());
        assert_eq!(active.acquire_snapshot(&slot, &last), Time(9));
        last.store(12, Ordering::SeqCst);
        assert_eq!(active.horizon(&last), Time(9));
        active.leave(&slot);
        assert_eq!(active.horizon(&last), Time(12));
    }

    #[test]
    fn running_transactions_are_listed_with_what_they_do() {
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
        // Its slot has another transaction by now.
        let (_, other) = active.enter(&last, Isolation::Serializable, 0).unwrap();
        assert_ne!(other.owner, waited_for.owner);
        assert_eq!(wait(Duration::from_secs(600)), Waited::Ended);
    }

    #[test]
    fn one_transaction_of_a_cycle_gets_the_deadlock() {
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
