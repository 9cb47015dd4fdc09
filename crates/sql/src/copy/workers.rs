//! Threads that process items and return the results in the order of the items.

use firn_base::sync::{Arc, Condvar, Mutex};
use firn_base::thread::{self, Behind, JoinHandle};
use firn_query::ResultChunk;
use firn_vector::{Data, Vector};
use std::collections::{BTreeMap, VecDeque};

/// Worker threads.
pub(super) struct Workers<I, O> {
    shared: Arc<Shared<I, O>>,
    threads: Vec<JoinHandle<()>>,
    /// Items given, and results taken.
    given: u64,
    taken: u64,
    /// The sizes of the items whose results have not been taken.
    sizes: VecDeque<usize>,
}

struct Shared<I, O> {
    state: Mutex<State<I, O>>,
    /// An item has been given, or there will be no more.
    given: Condvar,
    /// An item is done.
    done: Condvar,
}

struct State<I, O> {
    items: VecDeque<(u64, I)>,
    results: BTreeMap<u64, O>,
    stopped: bool,
    /// Whether a thread has panicked: then the result of its item is missing.
    panicked: bool,
}

impl<I: Send + 'static, O: Send + 'static> Workers<I, O> {
    /// Starts this number of threads, or as many as the system allows; `None` if that is none. They yield processors to transactions, as
    /// queries do.
    pub fn start(
        name: &str,
        threads: usize,
        work: impl Fn(I) -> O + Send + Sync + 'static,
    ) -> Option<Workers<I, O>> {
        let state =
            State { items: VecDeque::new(), results: BTreeMap::new(), stopped: false, panicked: false };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), given: Condvar::new(), done: Condvar::new() });
        let work = Arc::new(work);
        let mut workers = Workers { shared, threads: Vec::new(), given: 0, taken: 0, sizes: VecDeque::new() };
        for _ in 0..threads {
            let (shared, work) = (workers.shared.clone(), work.clone());
            let started = thread::start(name, move || {
                thread::stand_back(Behind::Transactions);
                shared.work(&*work);
            });
            let Ok(thread) = started else { break };
            workers.threads.push(thread);
        }
        (!workers.threads.is_empty()).then_some(workers)
    }

    /// How many results have not been taken.
    pub fn under_way(&self) -> usize {
        (self.given - self.taken) as usize
    }

    /// Whether this number of threads has enough to do: a few items for each, but fewer if these are large.
    pub fn is_enough(&self) -> bool {
        const ITEMS: usize = 2;
        const BYTES: usize = 128 << 20;
        let bytes: usize = self.sizes.iter().sum();
        self.under_way() >= ITEMS * self.threads.len() || bytes >= BYTES && self.under_way() > 0
    }

    /// Adds an item of about this size in bytes.
    pub fn give(&mut self, item: I, bytes: usize) {
        self.sizes.push_back(bytes);
        self.shared.state.lock().items.push_back((self.given, item));
        self.given += 1;
        self.shared.given.notify_one();
    }

    /// The result of the first item whose result has not been taken, when it is done; `None` if there is none. Panics if a thread has.
    pub fn next(&mut self) -> Option<O> {
        if self.taken == self.given {
            return None;
        }
        let mut state = self.shared.state.lock();
        loop {
            if let Some(result) = state.results.remove(&self.taken) {
                self.taken += 1;
                self.sizes.pop_front();
                return Some(result);
            }
            assert!(!state.panicked, "a worker panicked");
            self.shared.done.wait(&mut state);
        }
    }
}

impl<I, O> Shared<I, O> {
    fn work(&self, work: &dyn Fn(I) -> O) {
        let _end = End(self);
        while let Some((number, item)) = self.item() {
            let result = work(item);
            self.state.lock().results.insert(number, result);
            self.done.notify_all();
        }
    }

    /// The next item; `None` when there are no more.
    fn item(&self) -> Option<(u64, I)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            self.given.wait(&mut state);
        }
    }
}

/// Reports a panic, when it is dropped.
struct End<'s, I, O>(&'s Shared<I, O>);

impl<I, O> Drop for End<'_, I, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().panicked = true;
            self.0.done.notify_all();
        }
    }
}

impl<I, O> Drop for Workers<I, O> {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.given.notify_all();
        for thread in self.threads.drain(..) {
            // The thread that waited for its result has seen the panic.
            let _ = thread.join();
        }
    }
}

/// The approximate bytes of a chunk's values, and at least its number of rows: rows of no columns, or of nothing but NULL, are written as well.
pub(super) fn bytes_of(chunk: &ResultChunk) -> usize {
    let bytes = |vector: &Vector| match vector.data() {
        // Many views may share their bytes, and may use only few of them.
        Some(Data::Strings(strings)) if !vector.is_constant() => {
            strings.views().iter().map(|view| 16 + *view as u32 as usize).sum()
        }
        _ => vector.memory(),
    };
    chunk.values.vectors().iter().map(bytes).sum::<usize>().max(chunk.rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let mut random = Random::seeded(3);
        for threads in 1..4 {
            let mut workers = Workers::start("test", threads, |item: u64| {
                if item.is_multiple_of(7) {
                    firn_base::thread::yield_now();
                }
                item * item
            })
            .unwrap();
            let mut results = Vec::new();
            for item in 0..500 {
                workers.give(item, 1);
                while workers.under_way() > random.uniform(0, 8) as usize {
                    results.extend(workers.next());
                }
            }
            results.extend(std::iter::from_fn(|| workers.next()));
            assert_eq!(results, (0..500).map(|item| item * item).collect::<Vec<u64>>());
            assert_eq!(workers.next(), None);
            // No thread waits for the remaining items.
            workers.give(1, 1);
        }
    }

    #[test]
    fn there_are_as_many_workers_as_the_system_gives() {
        let start =
            |permitted| thread::with_at_most(permitted, || Workers::start("test", 3, |item: u64| item + 1));
        assert!(start(0).is_none());
        let mut workers = start(1).unwrap();
        (0..5).for_each(|item| workers.give(item, 1));
        assert_eq!(std::iter::from_fn(|| workers.next()).collect::<Vec<u64>>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_panic_of_a_worker_is_one_of_its_waiter() {
        let mut workers = Workers::start("test", 2, |item: u64| assert_ne!(item, 3)).unwrap();
        (0..5).for_each(|item| workers.give(item, 1));
        let taken = catch_unwind(AssertUnwindSafe(|| (0..5).for_each(|_| assert!(workers.next().is_some()))));
        assert!(taken.is_err());
    }
}
