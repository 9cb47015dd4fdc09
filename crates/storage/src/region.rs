//! Regions of huge pages, cut into places of 1 MiB, and who gets their pages before they are needed.
//!
//! The first touch of a page is the kernel's work: to clear 2 MiB takes it 0.2 ms, and in a virtual
//! machine whose host must find the memory first 5 ms and more. That is thousands of transactions, so a
//! [`Provider`] keeps some places ready, with their pages, on a thread of its own. Whoever takes memory
//! faster than it provides has the pages got at once.
//!
//! Huge pages are of memory that lay free in large pieces, and that is what a virtual machine's host takes back: where it has,
//! 1.5 GB of huge pages took 3.2 s to get, and of small ones 0.47 (0.07 and 0.47 where it had not). So who is in a hurry, as
//! a load is, gets small pages as long as huge ones are found to be slow, and so does the provider on a core that others want.
//! The kernel puts them together in its time.
//!
//! Places that are [reserved](reserve) have their pages from the beginning and keep them when they are given back: then they
//! are cleared, by the provider if it comes first.

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

/// A place is kept ready for so many that are in use, …
const USED_PER_READY: usize = 16;
/// … but no more than these.
const MOST_READY: usize = 16;

/// Huge pages are slow if a place takes longer to get its own: small ones take a little less where memory is at hand.
const SLOW: Duration = Duration::from_micros(500);

/// So many places get small pages after somebody was in a hurry, or the provider had less than half of a core, …
const HURRIED: u32 = 256;
/// … but for one in so many, which shows whether huge ones are still slow.
const TRIED: u32 = 64;

/// Places that nobody uses. Regions are never unmapped: a database that has once needed the memory will
/// need it again, and places that were given back keep no pages but for those reserved.
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
    /// With their pages.
    ready: Vec<Place>,
    /// With their pages, to be cleared.
    stale: Vec<Place>,
    /// Without.
    bare: Vec<Place>,
    /// Places in use.
    used: usize,
    /// So many there are to be with their pages, those in use included.
    reserved: usize,
    /// Providers that have nothing to do.
    waiting: usize,
    /// How long a place takes to get huge pages, about.
    huge_cost: Duration,
    /// So many places are to get small pages while huge ones are slow.
    hurried: u32,
    /// Counts them.
    small: u32,
}

/// Of which size pages are to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Huge,
    Small,
}

struct Place(NonNull<u8>);
// SAFETY: a free place is owned by the stock.
unsafe impl Send for Place {}

impl Stock {
    /// How many places are to be ready.
    fn wanted(&self) -> usize {
        let ahead = (self.used / USED_PER_READY).min(MOST_READY);
        ahead.max(self.reserved.saturating_sub(self.used))
    }

    /// Which pages the next place is to get.
    fn pages(&mut self) -> Pages {
        if self.hurried == 0 || self.huge_cost < SLOW {
            return Pages::Huge;
        }
        self.hurried -= 1;
        self.small = self.small.wrapping_add(1);
        if self.small.is_multiple_of(TRIED) { Pages::Huge } else { Pages::Small }
    }

    /// Notes how long a place took to get huge pages: one in two gets those of its neighbour as well.
    fn note_huge(&mut self, cost: Duration) {
        self.huge_cost = (self.huge_cost * 7 + cost) / 8;
    }

    /// A place that is to be made ready.
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

/// Bytes of places that have their pages and wait to be used.
pub(crate) fn kept_bytes() -> u64 {
    let stock = STOCK.lock();
    ((stock.ready.len() + stock.stale.len()) * PLACE_BYTES) as u64
}

/// A zeroed place for `bytes`, if that is what places are for.
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
    /// How long its huge pages took to get, if it had none and got such.
    huge_cost: Option<Duration>,
    /// Whether others had the core for more than half of the time.
    stood_back: bool,
}

/// A place that is not ready.
enum Unready {
    Stale(Place),
    /// Zero, with its pages or without.
    Bare(Place),
}

impl Unready {
    /// The place with its pages, of that size if it has none yet.
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
        // What the pages cost is not the time in which others had the core.
        let worked = thread_cpu_time() - worked;
        Made { place, huge_cost: is_huge.then_some(worked), stood_back: begun.elapsed() > 2 * worked }
    }
}

/// Takes so many bytes for the process, with their pages, on so many threads, and keeps them from then on whether they are in
/// use or not: whoever needs them later has no page to wait for. What is reserved already counts; what there is no address space
/// for is left out.
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
    STOCK.lock().ready.extend(ready.expect("it does not fail"));
}

/// Takes a place back and lets its pages go, so that it is zero when next taken, unless it is among those reserved.
pub(crate) fn give_back(start: NonNull<u8>) {
    {
        let mut stock = STOCK.lock();
        let is_reserved = stock.used + stock.ready.len() + stock.stale.len() <= stock.reserved;
        // At once: who gives one back meanwhile counts as well.
        stock.used -= 1;
        if is_reserved {
            stock.stale.push(Place(start));
            if stock.waiting > 0 {
                LOW.notify_one();
            }
            return;
        }
    }
    // SAFETY: the place is ours again; dropping the pages of an anonymous private mapping makes it read
    // as zeros.
    let result = unsafe { libc::madvise(start.as_ptr().cast(), PLACE_BYTES, libc::MADV_DONTNEED) };
    assert_eq!(result, 0, "the kernel lets go of pages of our own mapping");
    STOCK.lock().bare.push(Place(start));
}

/// Maps that many bytes; `None` if there is no room.
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

/// Keeps places ready on a thread of its own, for as long as anybody holds it. There is one in a process.
pub struct Provider {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// The provider of this process, which begins with whoever asks first.
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
        // Models do not see its locks.
        let is_started = !cfg!(miri) && !in_model();
        Provider { stopping, thread: is_started.then(|| thread::spawn("firn-memory", provide)) }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        {
            // Under the lock, so that it either waits already or looks before it does.
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

/// Makes a place zero that was in use.
fn clear(place: &Place) {
    // SAFETY: the place is in a mapping of ours and nobody's.
    unsafe { place.0.as_ptr().write_bytes(0, PLACE_BYTES) };
}

/// Has the kernel give the place its pages. Without harm if it does not know how, before Linux 5.14, or
/// has none: then they come, or fail to, at the first touch.
fn populate(place: &Place, pages: Pages) {
    let advise = |advice| {
        // SAFETY: the place is in a mapping of ours and nobody's yet; nothing that it holds is changed.
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

    /// Places, given back at the end.
    struct Taken(Vec<NonNull<u8>>);

    impl Taken {
        fn take(count: usize) -> Taken {
            Taken((0..count).map(|_| take(PLACE_BYTES).expect("there is room")).collect())
        }

        /// Asserts that nothing is in them, and writes into every page.
        fn fill(&mut self) {
            for start in &self.0 {
                // SAFETY: the place is ours until it is given back.
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
    fn places_are_ready_ahead_and_zero_and_nobody_elses() {
        let provider = Provider::shared();
        assert!(Arc::ptr_eq(&provider, &Provider::shared()));
        let mut held = Taken::take(4 * USED_PER_READY);
        held.fill();
        // Tests beside this one take places too.
        let deadline = now() + Duration::from_secs(60);
        loop {
            assert!(now() < deadline, "nothing is provided");
            let stock = STOCK.lock();
            let all = stock.ready.iter().all(|place| resident_pages(place.0) == PLACE_BYTES / PAGE);
            assert!(all, "a place is ready that has not all of its pages");
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
    fn what_is_reserved_stays_and_is_zero_when_it_is_taken_again() {
        let places = 300;
        reserve((places * PLACE_BYTES) as u64, 2);
        // The provider may be at work on some, and tests beside this one take and give back places too.
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
            // Asserts that they are zero, and writes to them.
            Taken::take(places / 2).fill();
            wait_until_they_are_there();
        }
    }

    #[test]
    fn small_pages_are_for_who_is_in_a_hurry_while_huge_ones_are_slow() {
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
        assert!(stock.pages() == Pages::Huge, "they are quick as far as anybody knows");
        (0..20).for_each(|_| stock.note_huge(2 * SLOW));
        let chosen: Vec<bool> = (0..HURRIED + 5).map(|_| stock.pages() == Pages::Small).collect();
        let small = chosen.iter().filter(|small| **small).count() as u32;
        assert_eq!(small, HURRIED - HURRIED / TRIED, "all but those that are tried");
        assert!(!chosen[HURRIED as usize..].contains(&true), "nobody is in a hurry any more");
        // Who is in a hurry all the time has them tried, too.
        let tried = (0..3 * TRIED).filter(|_| {
            stock.hurried = HURRIED;
            stock.pages() == Pages::Huge
        });
        assert_eq!(tried.count(), 3);
        stock.hurried = HURRIED;
        (0..20).for_each(|_| stock.note_huge(SLOW / 10));
        assert!(stock.pages() == Pages::Huge, "they are quick again");
    }

    #[test]
    fn places_with_small_pages_are_as_others() {
        let place = Place(take(PLACE_BYTES).expect("there is room"));
        // Without the pages that it has.
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
            holders.into_iter().for_each(|holder| drop(holder.join().expect("it does not panic")));
        }
    }
}
