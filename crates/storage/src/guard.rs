//! Guards: while one is held, nothing is freed that could be reached when it was taken.

pub use crossbeam_epoch::Guard;
#[cfg(not(feature = "models"))]
pub use crossbeam_epoch::pin;
use firn_base::sync::{Arc, AtomicBool, Ordering};

/// As in `crossbeam_epoch`, but in a model every task has a handle of its own, and the model ends with all
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
    // At its end a task has no handle any more; then the guard alone keeps the registration.
    HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin())
}

/// Runs the functions that guards have deferred, on any thread, except the last few of each thread, which
/// remain in its local list until there are more.
///
/// By itself crossbeam's epoch collection runs only some hundreds of functions at a time, the oldest first,
/// and only if threads pin often enough. A thread that defers a hundred thousand under one guard, such as the
/// nodes of a tree, queues them before everything that is deferred later: for example the end of a freezer's
/// round, in an otherwise idle database.
#[derive(Default)]
pub struct Reaper {
    /// Whether everything has been run that was deferred when this was.
    done: Option<Arc<AtomicBool>>,
}

impl Reaper {
    /// Does the work of up to `most` calls of `flush`, fewer if everything is run that had been deferred when
    /// it last returned false. Returns whether functions may be left. Guards that are held prevent them from
    /// running.
    pub fn reap(&mut self, most: usize, pin: impl Fn() -> Guard) -> bool {
        let done = match &self.done {
            Some(done) => done.clone(),
            None => {
                let done = Arc::new(AtomicBool::new(false));
                let signal = done.clone();
                pin().defer(move || signal.store(true, Ordering::SeqCst));
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
    fn functions_deferred_under_one_guard_run_without_frequent_pins() {
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
