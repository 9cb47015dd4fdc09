//! Access to threads: each one has a name, and the thread that starts it joins it.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use crate::{Error, Result, SqlState};
#[cfg(feature = "models")]
pub use modelled::{JoinHandle, yield_now};
use std::cell::Cell;
use std::io;
#[cfg(not(feature = "models"))]
pub use std::thread::{JoinHandle, yield_now};
pub use std::thread::{Scope, ScopedJoinHandle, available_parallelism, scope};
use std::time::Duration;

#[cfg(feature = "models")]
mod modelled;

/// Starts a named thread. 53000 if the operating system refuses.
#[allow(clippy::useless_conversion, reason = "a handle is another type with `models`")]
pub fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    #[cfg(feature = "models")]
    if crate::sync::in_model() {
        return Ok(JoinHandle::task(name, body));
    }
    let thread = permitted().and_then(|()| std::thread::Builder::new().name(name.to_owned()).spawn(body));
    thread.map(Into::into).map_err(|error| refused(&error))
}

fn refused(error: &io::Error) -> Error {
    Error::new(SqlState::INSUFFICIENT_RESOURCES, "could not start a thread")
        .with_detail(error.to_string())
        .with_hint("Let the process have more threads: see ulimit -u, and pids.max of its control group.")
}

/// Starts a named thread that is required. Panics if the operating system refuses.
#[allow(clippy::useless_conversion, reason = "as above")]
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "models")]
    if crate::sync::in_model() {
        return JoinHandle::task(name, body);
    }
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("the operating system starts a thread")
        .into()
}

/// Whether that thread is the caller.
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    #[cfg(feature = "models")]
    return thread.is_current();
    #[cfg(not(feature = "models"))]
    return thread.thread().id() == std::thread::current().id();
}

/// Pins the calling thread, and those that it starts from now on, to one core. Does nothing if the machine
/// has no such core: pinning makes measurements more stable, nothing else depends on it.
pub fn pin_to_core(core: usize) {
    // SAFETY: an all-zero `cpu_set_t` is the empty set, and `CPU_SET` writes inside it for cores below
    // `CPU_SETSIZE`. The call reads the set and changes nothing else.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        if core < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(core, &mut cores);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores);
        }
    }
}

/// The threads to which a thread that [stands back](stand_back) leaves contended cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Transactions and their dependencies: of a core that these want as well, it gets a quarter.
    Transactions,
    /// Queries as well: it gets a quarter of a core where a query runs, a tenth where a transaction does.
    Queries,
    /// All other work: it gets a tenth of a core where a query runs, a thirtieth where a transaction does.
    /// For work with several threads, each of which gets that share.
    Everything,
}

/// Makes the calling thread, and those that it starts from now on, leave contended cores to others
/// (`setpriority(2)`; docs/decisions/0011-queries-are-nice.md). This cannot be undone. Does nothing if
/// threads have no niceness of their own.
pub fn stand_back(behind: Behind) {
    let niceness = match behind {
        Behind::Transactions => 5,
        Behind::Queries => 10,
        Behind::Everything => 15,
    };
    #[cfg(target_os = "linux")]
    // SAFETY: the call accesses no memory of ours. On Linux process 0 is the calling thread only.
    unsafe {
        // Refused to a thread that is nicer already.
        libc::setpriority(libc::PRIO_PROCESS, 0, niceness);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

thread_local! {
    /// Whether this is a thread of [`run_behind`], or one that such a thread has started.
    static RUNS_BEHIND: Cell<bool> = const { Cell::new(false) };
}

/// The interval at which [`run_behind`] calls `look`.
const LOOK_AROUND: Duration = Duration::from_millis(20);

/// Runs `body` on a thread that [stands back](stand_back), and waits for it. Meanwhile it calls `look`
/// regularly. The calling thread runs `body` if it is such a thread itself, or if the operating system
/// refuses to start one.
pub fn run_behind<T: Send>(
    name: &str,
    behind: Behind,
    look: &dyn Fn(),
    body: impl FnOnce() -> T + Send,
) -> T {
    if RUNS_BEHIND.get() {
        return body();
    }
    // Taken by the thread, or left for the caller if there is none.
    let body = Mutex::new(Some(body));
    let take = || body.lock().take().expect("the body runs once");
    let has_ended = AtomicBool::new(false);
    let ended = Ended { has_ended: &has_ended, caller: std::thread::current() };
    scope(|scope| {
        let started = try_spawn_scoped(scope, name, || {
            let _ended = ended;
            stand_back(behind);
            RUNS_BEHIND.set(true);
            take()()
        });
        match started {
            Ok(thread) => {
                while !has_ended.load(Ordering::Acquire) {
                    std::thread::park_timeout(LOOK_AROUND);
                    look();
                }
                // A panic continues in the caller.
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Err(_) => take()(),
        }
    })
}

/// Wakes the waiting thread, however the awaited work ends.
struct Ended<'a> {
    has_ended: &'a AtomicBool,
    caller: std::thread::Thread,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        self.caller.unpark();
    }
}

/// Starts a named thread with a stack of that size; an error if the operating system refuses.
#[allow(clippy::useless_conversion, reason = "as above")]
pub fn try_spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(body);
    thread.map(Into::into)
}

/// Stack size of threads that work for a statement.
const SCOPED_STACK_BYTES: usize = crate::stack::WORKER_BYTES;

/// Starts a named thread that may borrow from outside its [`scope`]. 53000 if the operating system refuses.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    try_spawn_scoped(scope, name, body).map_err(|error| refused(&error))
}

/// [`start_scoped`] for a thread that is required. Panics if the operating system refuses.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    try_spawn_scoped(scope, name, body).expect("the operating system starts a thread")
}

fn try_spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    permitted()?;
    let runs_behind = RUNS_BEHIND.get();
    let body = move || {
        RUNS_BEHIND.set(runs_behind);
        body()
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(SCOPED_STACK_BYTES).spawn_scoped(scope, body)
}

thread_local! {
    /// How many threads the calling one may still start; `None` for no limit of a test.
    static PERMITTED: Cell<Option<usize>> = const { Cell::new(None) };
}

fn permitted() -> io::Result<()> {
    match PERMITTED.get() {
        Some(0) => Err(io::ErrorKind::WouldBlock.into()),
        left => {
            PERMITTED.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}

/// For tests: runs `body` as if the operating system started at most `threads` more threads for the calling
/// one. Required threads do not count.
#[doc(hidden)]
pub fn with_at_most<T>(threads: usize, body: impl FnOnce() -> T) -> T {
    PERMITTED.set(Some(threads));
    let done = body();
    PERMITTED.set(None);
    done
}

/// Runs `body` for every item, on up to `threads` threads that take the next item when they are free. Returns
/// the results in the order of the items. After an error no further item is begun, and the first error is
/// returned.
///
/// The caller is one of the threads, and does the work of those that the operating system refuses to start.
pub fn for_each<I: Sync, T: Send>(
    name: &str,
    threads: usize,
    items: &[I],
    body: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = body(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((at, result));
        }
        done
    };
    let others = threads.min(items.len()).saturating_sub(1);
    let mut results = scope(|scope| {
        let others: Vec<_> = (0..others).map_while(|_| try_spawn_scoped(scope, name, work).ok()).collect();
        let mut done = work();
        for other in others {
            // A panic continues in the caller.
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the niceness of the threads that work runs on from the system.
    #[test]
    #[cfg(target_os = "linux")]
    fn work_runs_behind_on_one_nicer_thread_and_those_that_it_starts() {
        // SAFETY: the call accesses no memory of ours.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let own = niceness();
        let (outer, inner, helper) = run_behind("test", Behind::Transactions, &|| {}, || {
            let name = || std::thread::current().id();
            let here = name();
            let is_same = run_behind("test", Behind::Transactions, &|| {}, || name() == here);
            let helper = scope(|scope| {
                start_scoped(scope, "test", || {
                    let here = name();
                    (niceness(), run_behind("test", Behind::Transactions, &|| {}, || name() == here))
                })
                .unwrap()
                .join()
                .unwrap()
            });
            (niceness(), is_same, helper)
        });
        let looks = Cell::new(0);
        let look = || looks.set(looks.get() + 1);
        run_behind("test", Behind::Transactions, &look, || std::thread::sleep(3 * LOOK_AROUND));
        assert!(looks.get() >= 2);
        assert_eq!((niceness(), inner), (own, true));
        assert_eq!(helper, (outer, true));
        assert!(own >= 5 || outer == 5, "{own} {outer}");
        assert_eq!(with_at_most(0, || run_behind("test", Behind::Transactions, &|| {}, niceness)), own);
    }

    #[test]
    fn every_item_is_worked_on_once_and_an_error_ends_it() {
        let items: Vec<u32> = (0..1000).collect();
        for threads in [1, 3] {
            let doubled = for_each("test", threads, &items, |item| Ok(item * 2)).unwrap();
            assert_eq!(doubled, items.iter().map(|item| item * 2).collect::<Vec<u32>>());
            let refused = for_each("test", threads, &items, |item| match item {
                500 => Err(Error::new(SqlState::INTERNAL_ERROR, "500")),
                item => Ok(*item),
            });
            assert_eq!(refused.unwrap_err().message(), "500");
        }
    }

    #[test]
    fn threads_that_are_refused_are_done_without_or_an_error() {
        let items: Vec<u32> = (0..100).collect();
        for permitted in 0..3 {
            let done = with_at_most(permitted, || for_each("test", 4, &items, |item| Ok(*item)));
            assert_eq!(done.unwrap(), items);
        }
        with_at_most(1, || {
            scope(|scope| assert_eq!(start_scoped(scope, "test", || 5).unwrap().join().unwrap(), 5));
            let refused = start("test", || ()).err().unwrap();
            assert_eq!(refused.state(), SqlState::INSUFFICIENT_RESOURCES);
            assert!(refused.hint().is_some());
        });
        assert_eq!(start("test", || 6).unwrap().join().unwrap(), 6);
    }
}
