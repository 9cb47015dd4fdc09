//! The budget of memory that all queries share.
//!
//! An operator that keeps rows has an [`Account`] and states how much it keeps, each time it has grown. What the budget does
//! not have is refused with 53200; an account gives back what it has when it is dropped.

use crate::measures::Gauge;
use firn_base::sync::{Arc, AtomicU64, OnceLock, Ordering};
use firn_base::{Error, Result, SqlState, memory};
use firn_storage::print_bytes;
use firn_vector::context::Memory;

static GIVEN: OnceLock<u64> = OnceLock::new();

/// States how many bytes all queries of the process together may keep; false if that has been stated or
/// [asked](query_memory) before, when it stays as it is.
pub fn limit_query_memory(bytes: u64) -> bool {
    GIVEN.set(bytes).is_ok()
}

/// How many bytes all queries of the process together may keep: half of the memory that the process may have, if nothing
/// else was stated.
pub fn query_memory() -> u64 {
    *GIVEN.get_or_init(|| memory::of_process().map_or(4 << 30, |bytes| bytes / 2))
}

/// Of the memory that the process does not use for its data, one part in this many is always there for queries, so that a
/// store that is full can still be counted and searched.
const RESERVED_PART: u64 = 4;

/// How much memory queries may use together, and how much they do.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    /// Granted however little the process has left.
    reserve: u64,
    used: AtomicU64,
    /// How much the process has left: see [`memory::left_for`].
    left_for: fn(u64) -> i64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, reserve: limit, used: AtomicU64::new(0), left_for: |_| i64::MAX })
    }

    /// The budget of all queries of the process: [`query_memory`], as far as the process has it. It is no exact account: what
    /// was granted may not have been used yet. It keeps the process from growing beyond its memory.
    pub fn of_process() -> Arc<Budget> {
        let reserve = memory::margin() / RESERVED_PART;
        Arc::new(Budget {
            limit: query_memory(),
            reserve,
            used: AtomicU64::new(0),
            left_for: memory::left_for,
        })
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    /// How many bytes are in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Memory for Budget {
    fn grow(&self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        if self.used().saturating_add(bytes) > self.reserve && (self.left_for)(bytes) < bytes as i64 {
            return Err(process_is_full(bytes));
        }
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.limit {
            return Ok(());
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        Err(exceeded(bytes, self.limit, before))
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// The process has no memory left, though the budget has.
#[cold]
fn process_is_full(bytes: u64) -> Error {
    let detail = format!("It asked for {} more; the process has nothing left.", print_bytes(bytes));
    refused(detail).with_hint(
        "Let the query keep fewer rows at a time, delete rows, or give the process more memory; a lower memory_limit leaves \
         more of it to queries.",
    )
}

/// The budget is used up.
#[cold]
fn exceeded(bytes: u64, limit: u64, used: u64) -> Error {
    let (bytes, limit, left) =
        (print_bytes(bytes), print_bytes(limit), print_bytes(limit.saturating_sub(used)));
    refused(format!("It asked for {bytes} more; of {limit} for all queries {left} are left.")).with_hint(
        "Raise query_memory (firn serve --query-memory), or let the query keep fewer rows at a time.",
    )
}

fn refused(detail: String) -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "the query needs more memory than it may use").with_detail(detail)
}

/// What one operator keeps.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    bytes: usize,
    /// Where the operator is measured, if it is.
    gauge: Option<Gauge>,
}

impl Account {
    /// An account of nothing.
    pub fn new(budget: &Arc<Budget>) -> Account {
        Account { budget: budget.clone(), bytes: 0, gauge: Gauge::current() }
    }

    fn measure(&self, bytes: i64) {
        if let Some(gauge) = &self.gauge {
            gauge.add_memory(bytes);
        }
    }

    /// The budget that it is of.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What it has stated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// States that the operator keeps so many bytes now. 53200 if the budget does not have them.
    pub fn set(&mut self, bytes: usize) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.grow(more)?,
            None => self.budget.shrink(self.bytes - bytes),
        }
        self.measure(bytes as i64 - self.bytes as i64);
        self.bytes = bytes;
        Ok(())
    }

    /// Takes over what another operator keeps.
    pub fn take(&mut self, mut other: Account) {
        assert!(Arc::ptr_eq(&self.budget, &other.budget));
        let bytes = std::mem::take(&mut other.bytes);
        other.measure(-(bytes as i64));
        self.measure(bytes as i64);
        self.bytes += bytes;
    }

    /// States that it keeps so many bytes less, or nothing if it keeps fewer.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.budget.shrink(bytes);
        self.measure(-(bytes as i64));
        self.bytes -= bytes;
    }

    /// States that it keeps so many bytes more.
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.set(self.bytes + bytes)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.shrink(self.bytes);
        self.measure(-(self.bytes as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_budget_does_not_have_is_refused_and_accounts_give_back() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (Account::new(&budget), Account::new(&budget));
        one.set(70).unwrap();
        assert_eq!(other.set(31).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        assert_eq!(budget.used(), 70);
        one.set(60).unwrap();
        other.add(31).unwrap();
        other.take(one);
        assert_eq!((budget.used(), other.bytes()), (91, 91));
        other.give_back(60);
        assert_eq!(budget.used(), 31);
        other.give_back(60);
        assert_eq!((budget.used(), other.bytes()), (0, 0));
    }

    #[test]
    fn queries_get_their_budget_as_far_as_the_process_has_it() {
        let budget = |left_for| Budget { limit: 500, reserve: 10, used: AtomicU64::new(0), left_for };
        let ample = budget(|_| 1000);
        ample.grow(500).unwrap();
        let error = ample.grow(1).unwrap_err();
        assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
        assert_eq!(
            error.detail(),
            Some("It asked for 1 bytes more; of 500 bytes for all queries 0 bytes are left.")
        );
        assert_eq!(ample.used(), 500);

        let little = budget(|_| 100);
        little.grow(100).unwrap();
        let error = little.grow(101).unwrap_err();
        assert_eq!((error.state(), little.used()), (SqlState::OUT_OF_MEMORY, 100));
        assert!(error.detail().unwrap().ends_with("the process has nothing left."), "{error:?}");

        // A full store is still counted.
        let none = budget(|_| -1);
        none.grow(10).unwrap();
        assert_eq!(none.grow(1).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        assert_eq!(none.used(), 10);
    }
}
