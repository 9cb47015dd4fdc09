//! Timeouts: one thread per database that, when their time is over, raises the cancel flags of statements, and ends transactions
//! whose clients are idle. It starts with the first timeout and ends with the database.

use crate::rest::Rest;
use firn_base::clock::{Instant, now};
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use firn_base::thread::{self, JoinHandle};
use firn_sql::Cancel;
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

#[derive(Default)]
struct Alarms {
    /// By time; the number distinguishes entries that are due at the same time.
    due: BTreeMap<(Instant, u64), Due>,
    next: u64,
    closed: bool,
}

/// What happens when the time is over.
enum Due {
    /// A statement is cancelled. The flag records that the timeout has caused it.
    Cancel(Cancel, Arc<AtomicBool>),
    /// A transaction ends.
    End(Arc<Rest>),
}

/// A timeout that is set. Dropping it cancels it.
pub(crate) struct Alarm {
    shared: Arc<Shared>,
    key: (Instant, u64),
    rang: Arc<AtomicBool>,
}

impl Timer {
    /// Raises `cancel` after `delay`.
    pub fn set(&self, delay: Duration, cancel: &Cancel) -> Alarm {
        let rang = Arc::new(AtomicBool::new(false));
        self.add(delay, Due::Cancel(cancel.clone(), rang.clone()), rang)
    }

    /// Ends the resting transaction after `delay`.
    pub fn set_end(&self, delay: Duration, rest: &Arc<Rest>) -> Alarm {
        self.add(delay, Due::End(rest.clone()), Arc::default())
    }

    fn add(&self, delay: Duration, due: Due, rang: Arc<AtomicBool>) -> Alarm {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            *thread = Some(thread::spawn("firn-timer", move || shared.run()));
        }
        drop(thread);
        let mut alarms = self.shared.alarms.lock();
        alarms.next += 1;
        let key = (now() + delay, alarms.next);
        alarms.due.insert(key, due);
        drop(alarms);
        self.shared.changed.notify_one();
        Alarm { shared: self.shared.clone(), key, rang }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.alarms.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of that thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut alarms = self.alarms.lock();
        while !alarms.closed {
            let Some((&(at, number), _)) = alarms.due.first_key_value() else {
                self.changed.wait(&mut alarms);
                continue;
            };
            if at > now() {
                self.changed.wait_until(&mut alarms, at);
                continue;
            }
            match alarms.due.remove(&(at, number)).expect("it was just seen") {
                Due::Cancel(cancel, rang) => {
                    // Release: a thread that sees the cancel flag raised also sees what has raised it.
                    rang.store(true, Ordering::Release);
                    cancel.cancel();
                }
                Due::End(rest) => {
                    // Without the lock: taking back many changes takes a while.
                    let again = MutexGuard::unlocked(&mut alarms, || rest.end());
                    if let Some(delay) = again {
                        // If the alarm is cancelled, nothing rests there, and the entry is removed when it is due.
                        alarms.due.insert((now() + delay, number), Due::End(rest));
                    }
                }
            }
        }
    }
}

impl Alarm {
    /// Whether the time is over.
    pub fn rang(&self) -> bool {
        self.rang.load(Ordering::Acquire)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.alarms.lock().due.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_rings_unless_it_is_taken_back() {
        let timer = Timer::default();
        let (early, late) = (Cancel::new(), Cancel::new());
        drop(timer.set(Duration::from_millis(1), &late));
        let alarm = timer.set(Duration::from_millis(5), &early);
        while !alarm.rang() {
            thread::yield_now();
        }
        assert!(!late.is_cancelled());
    }
}
