//! Advisory locks: locks on numbers whose meaning only the clients define (PostgreSQL 15, 13.3.5 and 9.27.10).
//!
//! A session holds a lock until it has unlocked it as often as it has locked it, or ends. Or the lock belongs to the transaction,
//! and is released with it, or with the savepoint after which it was taken. Requests for one lock are granted in their order. But
//! a session that holds the lock does not wait for those that wait for it.
//!
//! A waiting session checks periodically for a deadlock through other sessions which wait for advisory locks
//! or for rows; if there is one it fails with 40P01.

use firn_base::sync::{AtomicBool, Condvar, Mutex, Ordering};
use firn_base::{Cancel, Error, Result, SqlState, clock};
use firn_txn::Engine;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// How often a waiting session checks whether it has been cancelled, or is in a deadlock.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// The key of a lock: one number of 64 bits or two of 32, which are never the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The upper half, or the first number: `classid`.
    pub class: u32,
    /// The lower half, or the second number: `objid`.
    pub object: u32,
    /// Whether it is of two numbers.
    pub is_pair: bool,
}

impl From<i64> for Key {
    fn from(number: i64) -> Key {
        Key { class: (number >> 32) as u32, object: number as u32, is_pair: false }
    }
}

impl From<(i32, i32)> for Key {
    fn from((class, object): (i32, i32)) -> Key {
        Key { class: class as u32, object: object as u32, is_pair: true }
    }
}

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Several sessions may hold it.
    Shared,
    /// One session holds it.
    Exclusive,
}

impl Mode {
    /// PostgreSQL's name of such a lock.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Shared => "ShareLock",
            Mode::Exclusive => "ExclusiveLock",
        }
    }
}

/// How long a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Until it is unlocked, or the session ends.
    Session,
    /// Until the transaction ends.
    Transaction,
}

/// A lock that is held or waited for, for `pg_locks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its mode.
    pub mode: Mode,
    /// Its session.
    pub session: u32,
    /// Whether it is held.
    pub is_granted: bool,
}

/// What a waiting session checks.
pub struct Waiting<'w> {
    /// Ends the wait.
    pub cancel: &'w Cancel,
    /// The longest wait.
    pub timeout: Option<Duration>,
    /// The engine, whose transactions wait for one another.
    pub engine: &'w Engine,
}

/// The advisory locks of a database.
#[derive(Default, Debug)]
pub struct AdvisoryLocks {
    table: Mutex<Table>,
    released: Condvar,
    /// Whether a lock was ever taken: a database without locks skips all work for them. Set under the lock of `table`.
    is_used: AtomicBool,
}

#[derive(Default, Debug)]
struct Table {
    locks: HashMap<Key, Lock>,
    /// The locks of transactions, by session, in the order in which they were taken.
    of_transactions: HashMap<u32, Vec<(Key, Mode)>>,
}

#[derive(Default, Debug)]
struct Lock {
    /// How often each session holds it.
    held: BTreeMap<(u32, Mode), u32>,
    /// The requests that wait for it, in order.
    waiting: Vec<(u32, Mode)>,
}

fn conflict(left: Mode, right: Mode) -> bool {
    left == Mode::Exclusive || right == Mode::Exclusive
}

impl Lock {
    /// The sessions for which a session has to wait. A waiting one also waits for those before it.
    fn blockers(&self, session: u32, mode: Mode) -> BTreeSet<u32> {
        let holders = self.held.keys().filter(|(holder, held)| *holder != session && conflict(*held, mode));
        let mut blockers: BTreeSet<u32> = holders.map(|(holder, _)| *holder).collect();
        if !self.held.keys().any(|(holder, _)| *holder == session) {
            let before = self.waiting.iter().take_while(|waiting| **waiting != (session, mode));
            let before = before.filter(|(other, wanted)| *other != session && conflict(*wanted, mode));
            blockers.extend(before.map(|(other, _)| *other));
        }
        blockers
    }
}

impl Table {
    fn grant(&mut self, key: Key, session: u32, mode: Mode, scope: Scope) {
        *self.locks.entry(key).or_default().held.entry((session, mode)).or_default() += 1;
        if scope == Scope::Transaction {
            self.of_transactions.entry(session).or_default().push((key, mode));
        }
    }

    /// Releases a lock once; false if the session does not hold it.
    fn give_back(&mut self, key: Key, session: u32, mode: Mode) -> bool {
        let Some(lock) = self.locks.get_mut(&key) else { return false };
        let Some(count) = lock.held.get_mut(&(session, mode)) else { return false };
        *count -= 1;
        if *count == 0 {
            lock.held.remove(&(session, mode));
            self.drop_unused(key);
        }
        true
    }

    fn drop_unused(&mut self, key: Key) {
        if self.locks.get(&key).is_some_and(|lock| lock.held.is_empty() && lock.waiting.is_empty()) {
            self.locks.remove(&key);
        }
    }

    /// How often the session's transaction holds a lock.
    fn of_transaction(&self, key: Key, session: u32, mode: Mode) -> u32 {
        let taken = self.of_transactions.get(&session).into_iter().flatten();
        taken.filter(|taken| **taken == (key, mode)).count() as u32
    }

    fn stop_waiting(&mut self, key: Key, session: u32, mode: Mode) {
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.waiting.retain(|waiting| *waiting != (session, mode));
            self.drop_unused(key);
        }
    }

    /// Whether a session waits for itself, through advisory locks and rows.
    fn waits_for_itself(&self, session: u32, engine: &Engine) -> bool {
        let mut edges: HashMap<u32, BTreeSet<u32>> = HashMap::new();
        for lock in self.locks.values() {
            for (waiting, mode) in &lock.waiting {
                edges.entry(*waiting).or_default().extend(lock.blockers(*waiting, *mode));
            }
        }
        let running = engine.running();
        for transaction in &running {
            let others = running.iter().filter(|other| transaction.waits_for.contains(&other.id));
            edges.entry(transaction.session).or_default().extend(others.map(|other| other.session));
        }
        let mut seen = BTreeSet::new();
        let mut next: Vec<u32> = edges.get(&session).into_iter().flatten().copied().collect();
        while let Some(other) = next.pop() {
            if other == session {
                return true;
            }
            if seen.insert(other) {
                next.extend(edges.get(&other).into_iter().flatten());
            }
        }
        false
    }
}

impl AdvisoryLocks {
    /// Takes a lock if no other session conflicts.
    pub fn try_lock(&self, key: Key, session: u32, mode: Mode, scope: Scope) -> bool {
        let mut table = self.table.lock();
        let is_free = table.locks.get(&key).is_none_or(|lock| lock.blockers(session, mode).is_empty());
        if is_free {
            self.is_used.store(true, Ordering::Relaxed);
            table.grant(key, session, mode, scope);
        }
        is_free
    }

    /// Takes a lock, and waits for it. 57014 if the statement is cancelled, 55P03 if it waits for too long, 40P01 for a
    /// deadlock.
    pub fn lock(
        &self,
        key: Key,
        session: u32,
        mode: Mode,
        scope: Scope,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        if self.try_lock(key, session, mode, scope) {
            return Ok(());
        }
        let begun = clock::now();
        let mut table = self.table.lock();
        table.locks.entry(key).or_default().waiting.push((session, mode));
        let result = loop {
            let lock = table.locks.get(&key).expect("a session waits for it");
            if lock.blockers(session, mode).is_empty() {
                break Ok(());
            }
            if let Err(error) = waiting.cancel.check() {
                break Err(error);
            }
            if waiting.timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
                waiting.engine.statistics().lock_timeouts.count();
                let message = "canceling statement due to lock timeout";
                break Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, message));
            }
            if table.waits_for_itself(session, waiting.engine) {
                waiting.engine.statistics().deadlocks.count();
                break Err(Error::deadlock());
            }
            self.released.wait_for(&mut table, LOOKS_EVERY);
        };
        table.stop_waiting(key, session, mode);
        if result.is_ok() {
            table.grant(key, session, mode, scope);
        }
        drop(table);
        // The requests behind it may be granted, or find that they wait for one more session.
        self.released.notify_all();
        result
    }

    /// Releases a lock of the session; false if it holds none.
    pub fn unlock(&self, key: Key, session: u32, mode: Mode) -> bool {
        let mut table = self.table.lock();
        let of_transaction = table.of_transaction(key, session, mode);
        let held = table.locks.get(&key).and_then(|lock| lock.held.get(&(session, mode)).copied());
        let is_held = held.unwrap_or(0) > of_transaction && table.give_back(key, session, mode);
        drop(table);
        self.released.notify_all();
        is_held
    }

    /// Releases all locks of the session except those of its transaction.
    pub fn unlock_all(&self, session: u32) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let mut table = self.table.lock();
        let held = table.locks.iter().flat_map(|(key, lock)| {
            let own = lock.held.iter().filter(|((holder, _), _)| *holder == session);
            own.map(|((_, mode), count)| (*key, *mode, *count))
        });
        for (key, mode, count) in held.collect::<Vec<_>>() {
            for _ in table.of_transaction(key, session, mode)..count {
                table.give_back(key, session, mode);
            }
        }
        drop(table);
        self.released.notify_all();
    }

    /// How many locks the session's transaction has taken.
    pub fn taken_by_transaction(&self, session: u32) -> usize {
        if !self.is_used.load(Ordering::Relaxed) {
            return 0;
        }
        self.table.lock().of_transactions.get(&session).map_or(0, Vec::len)
    }

    /// Releases the locks of the session's transaction except the first ones.
    pub fn end_transaction(&self, session: u32, first: usize) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let mut table = self.table.lock();
        let Some(taken) = table.of_transactions.get_mut(&session) else { return };
        let later = taken.split_off(first.min(taken.len()));
        if taken.is_empty() {
            table.of_transactions.remove(&session);
        }
        for (key, mode) in later {
            table.give_back(key, session, mode);
        }
        drop(table);
        self.released.notify_all();
    }

    /// All locks that are held and waited for.
    pub fn list(&self) -> Vec<Listed> {
        let table = self.table.lock();
        let listed = table.locks.iter().flat_map(|(key, lock)| {
            let of = |session, mode, is_granted| Listed { key: *key, mode, session, is_granted };
            let held = lock.held.keys().map(move |(session, mode)| of(*session, *mode, true));
            held.chain(lock.waiting.iter().map(move |(session, mode)| of(*session, *mode, false)))
        });
        listed.collect()
    }

    /// The sessions for which a waiting session waits.
    pub fn blockers_of(&self, session: u32) -> BTreeSet<u32> {
        let table = self.table.lock();
        let waits = |lock: &Lock| {
            let wanted = lock.waiting.iter().find(|(waiting, _)| *waiting == session);
            wanted.map(|(_, mode)| lock.blockers(session, *mode))
        };
        table.locks.values().filter_map(waits).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::sync::Arc;
    use firn_base::thread;
    use firn_txn::Config;

    fn key(number: i64) -> Key {
        Key::from(number)
    }

    #[test]
    fn locks_are_counted_and_go_with_what_they_belong_to() {
        let locks = AdvisoryLocks::default();
        let (one, pair) = (key(1 << 32 | 2), Key::from((1, 2)));
        assert_ne!(one, pair);
        assert!(locks.try_lock(one, 1, Mode::Exclusive, Scope::Session));
        assert!(locks.try_lock(one, 1, Mode::Exclusive, Scope::Session));
        assert!(locks.try_lock(one, 1, Mode::Exclusive, Scope::Transaction));
        assert!(locks.try_lock(one, 1, Mode::Shared, Scope::Transaction));
        assert!(!locks.try_lock(one, 2, Mode::Shared, Scope::Session));
        assert!(locks.try_lock(pair, 2, Mode::Shared, Scope::Session));
        assert!(locks.try_lock(pair, 3, Mode::Shared, Scope::Session));
        assert!(!locks.try_lock(pair, 3, Mode::Exclusive, Scope::Session));
        assert_eq!(locks.list().len(), 4);
        let unlocked = [(); 3].map(|()| locks.unlock(one, 1, Mode::Exclusive));
        assert_eq!(unlocked, [true, true, false]);
        assert!(!locks.unlock(one, 1, Mode::Shared));
        locks.end_transaction(1, 1);
        assert_eq!(locks.taken_by_transaction(1), 1);
        assert!(!locks.try_lock(one, 2, Mode::Shared, Scope::Session));
        locks.end_transaction(1, 0);
        assert!(locks.try_lock(one, 2, Mode::Shared, Scope::Session));
        locks.unlock_all(2);
        assert_eq!(locks.list().len(), 1);
        locks.unlock_all(3);
        assert_eq!(locks.list(), []);
    }

    #[test]
    fn waiters_get_the_lock_in_order_or_a_deadlock_error() {
        let engine = Engine::open(Config::default()).unwrap();
        let locks = Arc::new(AdvisoryLocks::default());
        let take = |session: u32, number: i64, timeout: Option<Duration>| {
            let (engine, locks) = (engine.clone(), locks.clone());
            move || {
                let waiting = Waiting { cancel: &Cancel::new(), timeout, engine: &engine };
                locks.lock(key(number), session, Mode::Exclusive, Scope::Session, &waiting)
            }
        };
        assert!(locks.try_lock(key(1), 1, Mode::Exclusive, Scope::Session));
        assert!(locks.try_lock(key(2), 2, Mode::Exclusive, Scope::Session));
        let late = take(3, 1, Some(Duration::from_millis(1)))().unwrap_err();
        assert_eq!(late.state(), SqlState::LOCK_NOT_AVAILABLE);
        let first = thread::spawn("first", take(1, 2, None));
        while locks.blockers_of(1).is_empty() {
            clock::sleep(Duration::from_millis(1));
        }
        let deadlock = take(2, 1, None)().unwrap_err();
        assert_eq!(deadlock.state(), SqlState::DEADLOCK_DETECTED);
        locks.unlock_all(2);
        first.join().unwrap().unwrap();
        assert_eq!(locks.list().iter().filter(|listed| listed.session == 1 && listed.is_granted).count(), 2);
    }
}
