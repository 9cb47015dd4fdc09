//! Regions of huge pages, cut into places of 1 MiB, and the allocation of their pages before they are needed.
//!
//! At the first touch of a page the kernel clears it. For 2 MiB that takes 0.2 ms, and 5 ms and more in a
//! virtual machine whose host must find the memory first. That is as long as thousands of transactions. So a
//! [`Provider`] keeps some places ready, with their pages, on a thread of its own. If memory is taken faster
//! than it provides, the pages are allocated at once.
//!
//! Huge pages come from memory that is free in large pieces, and that is what the host of a virtual machine
//! takes back. Where it had, 1.5 GB of huge pages took 3.2 s to allocate, and of small pages 0.47 s (0.07 s
//! and 0.47 s where it had not). So a thread in a hurry, such as a load, gets small pages while huge ones are
//! found to be slow. So does the provider on a core that other threads need. The kernel combines the small
//! pages later.
//!
//! Places that are [reserved](reserve) have their pages from the beginning and keep them when they are given
//! back. Then they are cleared, by the provider if it comes first.

use firn_base::clock::{now, thread_cpu_time};
use firn_base::sync::unmodelled::{AtomicBool, Condvar, Mutex, MutexGuard};
use firn_base::sync::{Arc, Ordering, Weak, in_model};
use firn_base::thread::{self, Behind, JoinHandle};
use std::ptr::NonNull;
use std::time::Duration;

/// Size of a place.
pub(crate) const PLACE_BYTES: usize = 1 << 20;

/// Pieces that fill less of a place than this come from the allocator.
const SMALLEST: usize = PLACE_BYTES - PLACE_BYTES / 8;

#[cfg_attr(miri, expect(dead_code, reason = "Miri maps nothing"))]
const REGION_BYTES: usize = 32 << 20;

/// One place is kept ready for this many in use, …
const USED_PER_READY: usize = 16;
/// … but no more than this many.
const MOST_READY: usize = 16;

/// Huge pages are slow if a place takes longer to get its own: small ones take a little less where memory is
/// available.
const SLOW: Duration = Duration::from_micros(500);

/// This many places get small pages after a thread was in a hurry, or the provider had less than half of a
/// core, …
const HURRIED: u32 = 256;
/// … except one place in this many, which shows whether huge pages are still slow.
const TRIED: u32 = 64;

/// Unused places. Regions are never unmapped: a database that has needed the memory once will need it again.
/// Places that were given back keep no pages, except reserved ones.
static STOCK: Mutex<Stock> = Mutex::new(Stock {
    ready: Vec::new(),
    stale: Vec::new(),
    bare: Vec::new(),
    used: 0,
    reserved: 0,
    waiting: 0,
    huge_cost: Duration::ZERO,
    hurried: 0,
    small: 0,
});

/// Wakes providers.
static LOW: Condvar = Condvar::new();

struct Stock {
    /// Places with their pages.
    ready: Vec<Place>,
    /// Places with their pages, to be cleared.
    stale: Vec<Place>,
    /// Places without pages.
    bare: Vec<Place>,
    /// Places in use.
    used: usize,
    /// How many places should have their pages, including those in use.
    reserved: usize,
    /// Providers that wait for work.
    waiting: usize,
    /// How long a place takes to get huge pages, approximately.
    huge_cost: Duration,
    /// How many places should get small pages while huge ones are slow.
    hurried: u32,
    /// Counts small pages.
    small: u32,
}

/// The size of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Huge,
    Small,
}

struct Place(NonNull<u8>);
// SAFETY: the stock owns free places.
unsafe impl Send for Place {}

impl Stock {
    /// How many places should be ready.
    fn wanted(&self) -> usize {
        let ahead = (self.used / USED_PER_READY).min(MOST_READY);
        ahead.max(self.reserved.saturating_sub(self.used))
    }

    /// The pages that the next place should get.
    fn pages(&mut self) -> Pages {
        if self.hurried == 0 || self.huge_cost < SLOW {
            return Pages::Huge;
        }
        self.hurried -= 1;
        self.small = self.small.wrapping_add(1);
        if self.small.is_multiple_of(TRIED) { Pages::Huge } else { Pages::Small }
    }

    /// Notes how long a place took to get huge pages. One place in two gets those of its neighbour as well.
    fn note_huge(&mut self, cost: Duration) {
        self.huge_cost = (self.huge_cost * 7 + cost) / 8;
    }

    /// A place that should be made ready.
    fn unready(&mut self) -> Option<Unready> {
        self.stale.pop().map(Unready::Stale).or_else(|| self.bare().map(Unready::Bare))
    }

    fn bare(&mut self) -> Option<Place> {
        if self.bare.is_empty() {
            let start = map(REGION_BYTES)?;
            // Last place first, so that places are handed out in address order.
            for place in (0..REGION_BYTES / PLACE_BYTES).rev() {
                // SAFETY: within the region.
                self.bare.push(Place(unsafe { start.add(place * PLACE_BYTES) }));
            }
        }
        self.bare.pop()
    }
}

/// Bytes of places that have their pages and are not in use.
pub(crate) fn kept_bytes() -> u64 {
    let stock = STOCK.lock();
    ((stock.ready.len() + stock.stale.len()) * PLACE_BYTES) as u64
}

/// A zeroed place for `bytes`, if the size is right for a place.
pub(crate) fn take(bytes: usize) -> Option<NonNull<u8>> {
    if cfg!(miri) || !(SMALLEST..=PLACE_BYTES).contains(&bytes) {
        return None;
    }
    let mut stock = STOCK.lock();
    let ready = stock.ready.pop();
    let unready = if ready.is_none() { Some(stock.unready()?) } else { None };
    stock.used += 1;
    if stock.waiting > 0 && stock.ready.len() <= stock.wanted() / 2 {
        LOW.notify_one();
    }
    let Some(unready) = unready else { return ready.map(|place| place.0) };
    stock.hurried = HURRIED;
    let pages = stock.pages();
    drop(stock);
    let made = unready.make_ready(pages);
    if let Some(cost) = made.huge_cost {
        STOCK.lock().note_huge(cost);
    }
    Some(made.place.0)
}

/// A place that has been made ready.
struct Made {
    place: Place,
    /// How long its huge pages took to allocate, if it had no pages and got huge ones.
    huge_cost: Option<Duration>,
    /// Whether other threads had the core for more than half of the time.
    stood_back: bool,
}

/// A place that is not ready.
enum Unready {
    Stale(Place),
    /// Zero, with or without its pages.
    Bare(Place),
}

impl Unready {
    /// The place with its pages, of the given size if it has none yet.
    fn make_ready(self, pages: Pages) -> Made {
        let (begun, worked) = (now(), thread_cpu_time());
        let (place, is_huge) = match self {
            Unready::Stale(place) => {
                clear(&place);
                (place, false)
            }
            Unready::Bare(place) => {
                populate(&place, pages);
                (place, pages == Pages::Huge)
            }
        };
        // Time in which other threads had the core is no cost of the pages.
        let worked = thread_cpu_time() - worked;
        Made { place, huge_cost: is_huge.then_some(worked), stood_back: begun.elapsed() > 2 * worked }
    }
}

/// Allocates this many bytes for the process, with their pages, on this many threads, and keeps them whether
/// they are in use or not. So no later use waits for pages. Bytes that are reserved already count. What
/// exceeds the address space is left out.
pub fn reserve(bytes: u64, threads: usize) {
    if cfg!(miri) || in_model() {
        return;
    }
    let places = usize::try_from(bytes / PLACE_BYTES as u64).expect("64-bit addresses");
    let mut stock = STOCK.lock();
    stock.reserved = stock.reserved.max(places);
    let missing = stock.wanted().saturating_sub(stock.ready.len());
    let unready: Vec<Mutex<Option<Unready>>> =
        (0..missing).map_while(|_| stock.unready().map(Some).map(Mutex::new)).collect();
    drop(stock);
    let taken = |unready: &Mutex<Option<Unready>>| {
        unready.lock().take().expect("taken once").make_ready(Pages::Huge).place
    };
    let ready = thread::for_each("firn-memory", threads, &unready, |unready| Ok(taken(unready)));
    STOCK.lock().ready.extend(ready.expect("the thread does not panic"));
}

/// Takes a place back and frees its pages, so that it is zero when it is taken again, unless it is reserved.
pub(crate) fn give_back(start: NonNull<u8>) {
    {
        let mut stock = STOCK.lock();
        let is_reserved = stock.used + stock.ready.len() + stock.stale.len() <= stock.reserved;
        // At once: a place that is given back at the same time counts as well.
        stock.used -= 1;
        if is_reserved {
            stock.stale.push(Place(start));
            if stock.waiting > 0 {
                LOW.notify_one();
            }
            return;
        }
    }
    // SAFETY: the place is free again; dropping the pages of an anonymous private mapping makes it read as
    // zeros.
    let result = unsafe { libc::madvise(start.as_ptr().cast(), PLACE_BYTES, libc::MADV_DONTNEED) };
    assert_eq!(result, 0, "the kernel frees pages of our own mapping");
    STOCK.lock().bare.push(Place(start));
}

/// Maps this many bytes; `None` if there is no room.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches no existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range was just mapped. Advice may be refused without harm.
    unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
    NonNull::new(start.cast())
}

/// Keeps places ready on a thread of its own, as long as it is referenced. There is one in a process.
pub struct Provider {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// The provider of this process, which the first caller starts.
    pub fn shared() -> Arc<Provider> {
        static SHARED: Mutex<Weak<Provider>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let provider = Arc::new(Provider::start());
            *shared = Arc::downgrade(&provider);
            provider
        })
    }

    fn start() -> Provider {
        let stopping = Arc::new(AtomicBool::new(false));
        let provide = {
            let stopping = stopping.clone();
            move || provide(&stopping)
        };
        // Models do not control its locks.
        let is_started = !cfg!(miri) && !in_model();
        Provider { stopping, thread: is_started.then(|| thread::spawn("firn-memory", provide)) }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        {
            // Under the lock, so that it either waits already or checks before it waits.
            let _stock = STOCK.lock();
            self.stopping.store(true, Ordering::Relaxed);
            LOW.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the provider of memory panicked");
        }
    }
}

fn provide(stopping: &AtomicBool) {
    thread::stand_back(Behind::Queries);
    let mut stock = STOCK.lock();
    while !stopping.load(Ordering::Relaxed) {
        let unready = if stock.ready.len() < stock.wanted() { stock.unready() } else { None };
        match unready {
            Some(unready) => {
                let pages = stock.pages();
                let made = MutexGuard::unlocked(&mut stock, || unready.make_ready(pages));
                made.huge_cost.into_iter().for_each(|cost| stock.note_huge(cost));
                if made.stood_back {
                    stock.hurried = HURRIED;
                }
                stock.ready.push(made.place);
            }
            None => {
                stock.waiting += 1;
                LOW.wait(&mut stock);
                stock.waiting -= 1;
            }
        }
    }
}

/// Clears a place that was in use.
fn clear(place: &Place) {
    // SAFETY: the place is in a mapping of ours and has no user.
    unsafe { place.0.as_ptr().write_bytes(0, PLACE_BYTES) };
}

/// Makes the kernel allocate the pages of the place. It does no harm if the kernel does not support it
/// (before Linux 5.14) or has no pages: then they are allocated, or fail to be, at the first touch.
fn populate(place: &Place, pages: Pages) {
    let advise = |advice| {
        // SAFETY: the place is in a mapping of ours and has no user yet; its content is not changed.
        unsafe { libc::madvise(place.0.as_ptr().cast(), PLACE_BYTES, advice) };
    };
    if pages == Pages::Small {
        advise(libc::MADV_NOHUGEPAGE);
    }
    advise(libc::MADV_POPULATE_WRITE);
    if pages == Pages::Small {
        advise(libc::MADV_HUGEPAGE);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use firn_base::clock::now;

    const PAGE: usize = 4096;

    fn resident_pages(start: NonNull<u8>) -> usize {
        let mut resident = [0u8; PLACE_BYTES / PAGE];
        // SAFETY: the place is mapped, and there is a byte for every page of it.
        let result = unsafe { libc::mincore(start.as_ptr().cast(), PLACE_BYTES, resident.as_mut_ptr()) };
        assert_eq!(result, 0);
        resident.iter().filter(|resident| **resident & 1 != 0).count()
    }

    /// Places that are given back at the end.
    struct Taken(Vec<NonNull<u8>>);

    impl Taken {
        fn take(count: usize) -> Taken {
            Taken((0..count).map(|_| take(PLACE_BYTES).expect("there is room")).collect())
        }

        /// Asserts that they are zero, and writes into every page.
        fn fill(&mut self) {
            for start in &self.0 {
                // SAFETY: the test owns the place until it is given back.
                let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), PLACE_BYTES) };
                assert!(bytes.iter().step_by(512).all(|byte| *byte == 0));
                bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            }
        }
    }

    impl Drop for Taken {
        fn drop(&mut self) {
            self.0.drain(..).for_each(give_back);
        }
    }

    #[test]
    fn places_are_ready_in_advance_and_zero_and_have_no_other_user() {
        let provider = Provider::shared();
        assert!(Arc::ptr_eq(&provider, &Provider::shared()));
        let mut held = Taken::take(4 * USED_PER_READY);
        held.fill();
        // Tests that run at the same time take places too.
        let deadline = now() + Duration::from_secs(60);
        loop {
            assert!(now() < deadline, "the provider makes no place ready");
            let stock = STOCK.lock();
            let all = stock.ready.iter().all(|place| resident_pages(place.0) == PLACE_BYTES / PAGE);
            assert!(all, "a ready place lacks some of its pages");
            // Two may have been one huge page.
            if stock.ready.len() > 2 {
                break;
            }
            drop(stock);
            thread::yield_now();
        }
        for _ in 0..20 {
            Taken::take(2 * MOST_READY).fill();
        }
        // SAFETY: as in `fill`.
        assert!(held.0.iter().all(|start| unsafe { start.read() } == 1));
    }

    #[test]
    fn reserved_places_are_kept_and_zero_when_they_are_taken_again() {
        let places = 300;
        reserve((places * PLACE_BYTES) as u64, 2);
        // The provider may be at work on some, and tests that run at the same time take and give back places
        // too.
        let are_there = || {
            let stock = STOCK.lock();
            stock.used + stock.ready.len() + stock.stale.len() >= places
        };
        let wait_until_they_are_there = || {
            let deadline = now() + Duration::from_secs(60);
            while !are_there() {
                let stock = STOCK.lock();
                assert!(now() < deadline, "{} {} {}", stock.used, stock.ready.len(), stock.stale.len());
                drop(stock);
                thread::yield_now();
            }
        };
        wait_until_they_are_there();
        for _ in 0..3 {
            // Asserts that they are zero, and writes into them.
            Taken::take(places / 2).fill();
            wait_until_they_are_there();
        }
    }

    #[test]
    fn hurried_takes_get_small_pages_while_huge_ones_are_slow() {
        let mut stock = Stock {
            ready: Vec::new(),
            stale: Vec::new(),
            bare: Vec::new(),
            used: 0,
            reserved: 0,
            waiting: 0,
            huge_cost: Duration::ZERO,
            hurried: HURRIED,
            small: 0,
        };
        assert!(stock.pages() == Pages::Huge, "they are not known to be slow");
        (0..20).for_each(|_| stock.note_huge(2 * SLOW));
        let chosen: Vec<bool> = (0..HURRIED + 5).map(|_| stock.pages() == Pages::Small).collect();
        let small = chosen.iter().filter(|small| **small).count() as u32;
        assert_eq!(small, HURRIED - HURRIED / TRIED, "all but the tried ones");
        assert!(!chosen[HURRIED as usize..].contains(&true), "no thread is in a hurry any more");
        // If threads are always in a hurry, huge pages are tried, too.
        let tried = (0..3 * TRIED).filter(|_| {
            stock.hurried = HURRIED;
            stock.pages() == Pages::Huge
        });
        assert_eq!(tried.count(), 3);
        stock.hurried = HURRIED;
        (0..20).for_each(|_| stock.note_huge(SLOW / 10));
        assert!(stock.pages() == Pages::Huge, "they are fast again");
    }

    #[test]
    fn places_with_small_pages_are_as_others() {
        let place = Place(take(PLACE_BYTES).expect("there is room"));
        // Remove the pages that it has.
        // SAFETY: the place is ours.
        unsafe { libc::madvise(place.0.as_ptr().cast(), PLACE_BYTES, libc::MADV_DONTNEED) };
        populate(&place, Pages::Small);
        assert_eq!(resident_pages(place.0), PLACE_BYTES / PAGE);
        let mut taken = Taken(vec![place.0]);
        taken.fill();
    }

    #[test]
    fn a_provider_ends_with_its_last_holder_and_another_follows() {
        for _ in 0..50 {
            let holders: Vec<_> = (0..3).map(|_| thread::spawn("holder", Provider::shared)).collect();
            holders.into_iter().for_each(|holder| drop(holder.join().expect("the thread does not panic")));
        }
    }
}
