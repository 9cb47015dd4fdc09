//! How much memory the queries of the process may hold in hash tables and sort buffers: what they are given, and no more
//! than the process has left.

use datafusion::common::{Result as DataFusionResult, resources_datafusion_err};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use firn_base::memory;
use firn_base::sync::{AtomicUsize, OnceLock, Ordering};
use firn_storage::print_bytes;
use std::fmt;

static GIVEN: OnceLock<u64> = OnceLock::new();

/// Says how many bytes all running plans together may hold in their hash tables and sort buffers; false if that has been
/// said or [asked](query_memory) before, when it stays as it is.
pub fn limit_query_memory(bytes: u64) -> bool {
    GIVEN.set(bytes).is_ok()
}

/// How many bytes that are, at most. If nobody has said, half of the memory that the process may have.
pub fn query_memory() -> u64 {
    *GIVEN.get_or_init(|| memory::of_process().map_or(4 << 30, |bytes| bytes / 2))
}

/// What a query is told that needs memory which the process has not; else its share is used up.
pub(crate) const NOTHING_LEFT: &str = "what the process may have nothing is left";

/// Of what the process keeps back, one in so many bytes is for queries, so that a full store can be counted and looked through.
const KEPT_FOR_QUERIES: u64 = 4;

/// Who asks first gets it, as long as there is some.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    given: u64,
    /// What queries may hold together however little is left of the process.
    always: u64,
    used: AtomicUsize,
    left_for: fn(u64) -> i64,
}

impl QueryMemory {
    /// What was given, as far as the process has it.
    pub fn of_process() -> QueryMemory {
        QueryMemory {
            given: query_memory(),
            always: memory::margin() / KEPT_FOR_QUERIES,
            used: AtomicUsize::new(0),
            left_for: memory::left_for,
        }
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
        let refused = |of: &str| {
            resources_datafusion_err!(
                "{} needs {} more than its {}; of {of}",
                reservation.consumer().name(),
                print_bytes(additional as u64),
                print_bytes(reservation.size() as u64)
            )
        };
        // What was asked for before may not have been touched yet, and what will be touched is not asked for in time: so this
        // is no exact account, but keeps the process from growing without end.
        let is_little = self.reserved().saturating_add(additional) as u64 <= self.always;
        if !is_little && (self.left_for)(additional as u64) < additional as i64 {
            return Err(refused(NOTHING_LEFT));
        }
        let grown = |used: usize| used.checked_add(additional).filter(|used| *used as u64 <= self.given);
        let grown = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        grown.map(drop).map_err(|used| {
            let left = print_bytes(self.given.saturating_sub(used as u64));
            refused(&format!("{} for all queries {left} are left", print_bytes(self.given)))
        })
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.given as usize)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", print_bytes(self.reserved() as u64), print_bytes(self.given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::MemoryConsumer;
    use firn_base::sync::Arc;

    #[test]
    fn queries_get_what_they_are_given_as_far_as_the_process_has_it() {
        let pool = |left_for| {
            let used = AtomicUsize::new(0);
            Arc::new(QueryMemory { given: 500, always: 10, used, left_for }) as Arc<dyn MemoryPool>
        };
        let enough = pool(|_| 1000);
        let reservation = MemoryConsumer::new("sort").register(&enough);
        reservation.try_grow(500).unwrap();
        let error = reservation.try_grow(1).unwrap_err().to_string();
        assert!(error.contains("sort needs 1 bytes more than its 500 bytes; of 500 bytes"), "{error}");
        assert_eq!(enough.reserved(), 500);
        reservation.free();
        reservation.try_grow(500).unwrap();

        let little = pool(|_| 100);
        let reservation = MemoryConsumer::new("sort").register(&little);
        reservation.try_grow(100).unwrap();
        let error = reservation.try_grow(101).unwrap_err().to_string();
        assert!(error.contains(NOTHING_LEFT) && little.reserved() == 100, "{error}");

        // A full store is still counted.
        let none = pool(|_| -1);
        let reservation = MemoryConsumer::new("sort").register(&none);
        reservation.try_grow(10).unwrap();
        let error = reservation.try_grow(1).unwrap_err().to_string();
        assert!(error.contains(NOTHING_LEFT) && none.reserved() == 10, "{error}");
    }
}
