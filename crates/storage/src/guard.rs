//! Guards: as long as one is held, nothing is freed that could be reached when it was taken.

pub use crossbeam_epoch::Guard;
#[cfg(not(feature = "models"))]
pub use crossbeam_epoch::pin;
use firn_base::sync::{Arc, AtomicBool, Ordering};

/// As in `crossbeam_epoch`, but in a model every task pins for itself, and the model ends with all
/// garbage freed.
#[cfg(feature = "models")]
pub fn pin() -> Guard {
    use crossbeam_epoch::{Collector, LocalHandle};

    shuttle::lazy_static! {
        static ref COLLECTOR: Collector = Collector::new();
    }
    shuttle::thread_local! {
        static HANDLE: LocalHandle = COLLECTOR.register();
    }
    if !firn_base::sync::in_model() {
        return crossbeam_epoch::pin();
    }
    // At its end a task has no handle any more; then the guard alone keeps its place.
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin())
}

/// Sees to it that what guards have put off is done, whoever put it off, but for the last few of each thread, which it keeps to itself until there are more.
///
/// By themselves the epochs of crossbeam do little of that at a time, some hundreds of functions, the oldest first, and only when somebody
/// pins often enough. Whoever puts off a hundred thousand under one guard, such as the nodes of a tree, leaves them before
/// whatever is put off after them: before the end of a freezer's round, say, on a database where nothing else happens.
#[derive(Default)]
pub struct Reaper {
    /// Whether what had been put off when this was is done.
    done: Option<Arc<AtomicBool>>,
}

impl Reaper {
    /// Does what so many `flush`es do, unless all that had been put off when it was last told that nothing is left is done earlier;
    /// whether something may be left. Guards that are held keep it from being done.
    pub fn reap(&mut self, most: usize, pin: impl Fn() -> Guard) -> bool {
        let done = match &self.done {
            Some(done) => done.clone(),
            None => {
                let done = Arc::new(AtomicBool::new(false));
                let tell = done.clone();
                pin().defer(move || tell.store(true, Ordering::SeqCst));
                self.done.insert(done).clone()
            }
        };
        for _ in 0..most {
            pin().flush();
            if done.load(Ordering::SeqCst) {
                self.done = None;
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_epoch::Collector;

    #[test]
    fn what_was_put_off_under_one_guard_is_done_without_anybody_who_pins_often() {
        const PUT_OFF: usize = if cfg!(miri) { 60 } else { 100_000 };
        const CALLS: usize = if cfg!(miri) { 8 } else { 64 };
        let epochs = Collector::new();
        let (here, there) = (epochs.register(), epochs.register());
        let all = Arc::new(());
        let guard = there.pin();
        for _ in 0..PUT_OFF {
            let one = all.clone();
            guard.defer(move || drop(one));
        }
        guard.flush();
        let mut reaper = Reaper::default();
        assert!(reaper.reap(CALLS, || here.pin()) && reaper.reap(CALLS, || here.pin()), "a guard is held");
        assert_eq!(Arc::strong_count(&all), PUT_OFF + 1);
        drop(guard);
        let mut times = 1;
        while reaper.reap(CALLS, || here.pin()) {
            times += 1;
        }
        assert_eq!(Arc::strong_count(&all), 1);
        assert!(cfg!(miri) || (2..10).contains(&times), "{times}");
    }
}
