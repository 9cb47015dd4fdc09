//! How much memory the queries of the process may hold in hash tables and sort buffers: what they are given, and no more
//! than the stores beside them leave.

use datafusion::common::{Result as DataFusionResult, resources_datafusion_err};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use firn_base::memory;
use firn_base::sync::{Arc, AtomicUsize, Mutex, OnceLock, Ordering, Weak};
use firn_storage::{MemoryBudget, print_bytes};
use std::fmt;

/// One in so many bytes of the process's memory is left to everything that nobody counts.
const UNCOUNTED: u64 = 16;

static GIVEN: OnceLock<u64> = OnceLock::new();
static STORES: Mutex<Vec<Weak<MemoryBudget>>> = Mutex::new(Vec::new());

/// Says how many bytes all running plans together may hold in their hash tables and sort buffers; false if that has been
/// said or [asked](query_memory) before, when it stays as it is.
pub fn limit_query_memory(bytes: u64) -> bool {
    GIVEN.set(bytes).is_ok()
}

/// How many bytes that are, at most. If nobody has said, half of the memory that the process may have.
pub fn query_memory() -> u64 {
    *GIVEN.get_or_init(|| memory::of_process().map_or(4 << 30, |bytes| bytes / 2))
}

/// From now on what this store holds is not there for queries.
pub fn share_memory_with(store: &Arc<MemoryBudget>) {
    let mut stores = STORES.lock();
    stores.retain(|store| store.strong_count() > 0);
    stores.push(Arc::downgrade(store));
}

/// Bytes that all stores of the process hold.
fn held_by_stores() -> u64 {
    STORES.lock().iter().filter_map(Weak::upgrade).map(|store| store.total()).sum()
}

/// Who asks first gets it, as long as there is some.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    given: u64,
    /// For queries and stores together.
    of_process: u64,
    used: AtomicUsize,
    held_by_stores: fn() -> u64,
}

impl QueryMemory {
    /// What was given, beside the stores that are open.
    pub fn of_process() -> QueryMemory {
        let of_process = memory::of_process().map_or(u64::MAX, |bytes| bytes - bytes / UNCOUNTED);
        QueryMemory { given: query_memory(), of_process, used: AtomicUsize::new(0), held_by_stores }
    }

    fn limit(&self) -> u64 {
        self.given.min(self.of_process.saturating_sub((self.held_by_stores)()))
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "queries"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        let limit = self.limit();
        let grown = |used: usize| used.checked_add(additional).filter(|used| *used as u64 <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(used) => Err(resources_datafusion_err!(
                "{} needs {} more than its {}; of {} for all queries {} are left",
                reservation.consumer().name(),
                print_bytes(additional as u64),
                print_bytes(reservation.size() as u64),
                print_bytes(limit),
                print_bytes(limit.saturating_sub(used as u64))
            )),
        }
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit() as usize)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", print_bytes(self.reserved() as u64), print_bytes(self.limit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::MemoryConsumer;

    #[test]
    fn queries_get_what_they_are_given_as_far_as_stores_leave_it() {
        let pool = |held_by_stores| {
            let pool =
                QueryMemory { given: 500, of_process: 1000, used: AtomicUsize::new(0), held_by_stores };
            Arc::new(pool) as Arc<dyn MemoryPool>
        };
        for (pool, most) in [(pool(|| 300), 500), (pool(|| 900), 100), (pool(|| 1100), 0)] {
            let reservation = MemoryConsumer::new("sort").register(&pool);
            reservation.try_grow(most).unwrap();
            let error = reservation.try_grow(1).unwrap_err().to_string();
            assert!(error.contains(&format!("sort needs 1 bytes more than its {most} bytes")), "{error}");
            assert_eq!(pool.reserved(), most);
            reservation.free();
            reservation.try_grow(most).unwrap();
        }
    }

    #[test]
    fn what_stores_hold_counts_as_long_as_they_are_open() {
        let store = Arc::new(MemoryBudget::new(None));
        share_memory_with(&store);
        let before = held_by_stores();
        store.retire(1, 1000);
        assert_eq!(held_by_stores(), before + 1000);
        drop(store);
        assert_eq!(held_by_stores(), before);
    }
}
