//! The budget of memory that all queries share.
//!
//! An operator that keeps rows has an [`Account`] and states how much it keeps, each time it has grown. What the budget does
//! not have is refused with 53200; an account gives back what it has when it is dropped.

use firn_base::sync::{Arc, AtomicU64, OnceLock, Ordering};
use firn_base::{Error, Result, SqlState, memory};
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

/// How much memory queries may use together, and how much they do.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    /// How many bytes are in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Memory for Budget {
    fn grow(&self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= self.limit {
            return Ok(());
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        Err(exceeded(bytes))
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

#[cold]
fn exceeded(bytes: u64) -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "out of memory")
        .with_detail(format!("A query asked for {bytes} bytes more than query_memory allows."))
        .with_hint("Increase query_memory, or let fewer queries run at once.")
}

/// What one operator keeps.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Account {
    /// An account of nothing.
    pub fn new(budget: &Arc<Budget>) -> Account {
        Account { budget: budget.clone(), bytes: 0 }
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
        self.bytes = bytes;
        Ok(())
    }

    /// States that it keeps so many bytes more.
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.set(self.bytes + bytes)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.shrink(self.bytes);
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
        drop(one);
        assert_eq!(budget.used(), 31);
    }
}
