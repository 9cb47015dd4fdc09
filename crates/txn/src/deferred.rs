//! Deferred checks: the constraint checks that a transaction must still make before it commits.
//!
//! SQL permits constraints to be checked at COMMIT instead of at the end of a statement. This module lists the
//! deferred checks and the effects of SET CONSTRAINTS. The crate that writes rows makes the checks, and
//! [`Transaction::commit`](crate::Transaction::commit) asserts that it has.
//!
//! A check refers to a row or a key, not to a version of it: however often a row changes, it is checked once,
//! as it is at that time. Checks that were made remain listed until the transaction ends, because of
//! savepoints: a rollback drops the checks that were added since, and lists those again that were made since.
//!
//! The memory that they take is counted as that of what the transaction has written.

use crate::catalog::{Deferral, Oid};
use firn_base::sync::Arc;
use firn_base::{Result, RowId, Value};
use firn_storage::{Counted, Held, KeyBuffer, MemoryBudget};
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// A deferred check.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// That a row of the foreign key's table references an existing one.
    Row {
        /// The foreign key.
        constraint: Oid,
        /// The row.
        row: RowId,
    },
    /// That no row references a key that was removed, unless the key exists again.
    Key {
        /// The foreign key.
        constraint: Oid,
        /// The key.
        key: Arc<GoneKey>,
    },
}

impl Check {
    /// The foreign key.
    pub fn constraint(&self) -> Oid {
        match self {
            Check::Row { constraint, .. } | Check::Key { constraint, .. } => *constraint,
        }
    }

    /// About how many bytes it takes while it is listed.
    fn bytes(&self) -> usize {
        let own = match self {
            Check::Row { .. } => 0,
            // The values take about as much as their encoding, and their places.
            Check::Key { key, .. } => {
                size_of::<GoneKey>() + 2 * key.encoded.len() + size_of_val(&*key.values)
            }
        };
        // In the list, in the table, which may be half empty, and in the list of those that were made.
        size_of::<Check>() + 2 * size_of::<(Check, usize)>() + size_of::<usize>() + own
    }
}

/// The memory of checks is counted each time it has grown by so much.
const COUNTED_BYTES: usize = 64 << 10;

/// A key that no row of the referenced table had when it was noted.
#[derive(Debug)]
pub struct GoneKey {
    /// The key in the encoding of the referenced table's index, by which keys are compared.
    pub encoded: KeyBuffer,
    /// The referenced columns.
    pub values: Box<[Value]>,
}

impl PartialEq for GoneKey {
    fn eq(&self, other: &GoneKey) -> bool {
        self.encoded == other.encoded
    }
}

impl Eq for GoneKey {}

impl Hash for GoneKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.encoded.hash(state);
    }
}

/// The deferred checks of a transaction.
#[derive(Default)]
pub(crate) struct Deferred {
    /// All checks in the order in which they were deferred, including those that have been made.
    checks: Vec<Check>,
    /// The positions in `checks` of those that have not been made.
    pending: HashMap<Check, usize>,
    /// The positions in `checks` of those that have been made, in the order in which they were.
    made: Vec<usize>,
    /// The modes after each SET CONSTRAINTS.
    modes: Vec<Modes>,
    /// What `checks` take, and what of that is counted.
    bytes: usize,
    counted: Option<Counted>,
}

/// Which constraints SET CONSTRAINTS has deferred.
#[derive(Clone, Default)]
struct Modes {
    all: Option<bool>,
    /// Single constraints, since it last set all.
    single: BTreeMap<Oid, bool>,
}

/// A point to roll back to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DeferredMark {
    checks: usize,
    made: usize,
    modes: usize,
}

impl Deferred {
    /// Whether a constraint's checks are deferred now.
    pub fn defers(&self, constraint: Oid, deferral: Deferral) -> bool {
        let initially = deferral == Deferral::InitiallyDeferred;
        let Some(modes) = self.modes.last() else { return initially };
        modes.single.get(&constraint).copied().or(modes.all).unwrap_or(initially)
    }

    /// SET CONSTRAINTS; ALL without a list.
    pub fn set(&mut self, constraints: Option<&[Oid]>, deferred: bool) {
        self.modes.push(match constraints {
            None => Modes { all: Some(deferred), single: BTreeMap::new() },
            Some(constraints) => {
                let mut modes = self.modes.last().cloned().unwrap_or_default();
                modes.single.extend(constraints.iter().map(|constraint| (*constraint, deferred)));
                modes
            }
        });
    }

    /// Defers a check. 53200 if there is no memory for more; then it is deferred all the same, until its statement is taken back.
    pub fn add(&mut self, check: Check, budget: &Arc<MemoryBudget>) -> Result<()> {
        if self.pending.contains_key(&check) {
            return Ok(());
        }
        self.bytes += check.bytes();
        self.pending.insert(check.clone(), self.checks.len());
        self.checks.push(check);
        let counted = self.counted.as_ref().map_or(0, Counted::bytes);
        if self.bytes < counted + COUNTED_BYTES {
            return Ok(());
        }
        let refused = budget.admit((self.bytes - counted) as u64, || "deferred checks".to_owned());
        match &mut self.counted {
            Some(counted) => counted.set(self.bytes),
            None => self.counted = Some(Counted::new(Held::Unfinished, self.bytes, budget)),
        }
        refused
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The checks that must be made, in the order in which they were deferred.
    pub fn pending(&self) -> impl Iterator<Item = &Check> {
        let is_pending = |(at, check): &(usize, &Check)| self.pending.get(check) == Some(at);
        self.checks.iter().enumerate().filter(is_pending).map(|(_, check)| check)
    }

    /// The checks of these constraints have been made.
    pub fn made(&mut self, is_made: impl Fn(Oid) -> bool) {
        let before = self.made.len();
        self.made.extend(self.pending.extract_if(|check, _| is_made(check.constraint())).map(|(_, at)| at));
        self.made[before..].sort_unstable();
    }

    pub fn mark(&self) -> DeferredMark {
        DeferredMark { checks: self.checks.len(), made: self.made.len(), modes: self.modes.len() }
    }

    pub fn roll_back(&mut self, mark: DeferredMark) {
        self.modes.truncate(mark.modes);
        for (at, check) in self.checks.drain(mark.checks..).enumerate() {
            self.bytes -= check.bytes();
            if self.pending.get(&check) == Some(&(mark.checks + at)) {
                self.pending.remove(&check);
            }
        }
        for at in self.made.drain(mark.made..) {
            if let Some(check) = self.checks.get(at) {
                self.pending.insert(check.clone(), at);
            }
        }
        if let Some(counted) = &mut self.counted
            && self.bytes + COUNTED_BYTES <= counted.bytes()
        {
            self.checks.shrink_to_fit();
            self.pending.shrink_to_fit();
            counted.set(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(constraint: u32, row: u64) -> Check {
        Check::Row { constraint: Oid(constraint), row: RowId::from_bits(row) }
    }

    fn pending(deferred: &Deferred) -> Vec<Check> {
        deferred.pending().cloned().collect()
    }

    #[test]
    fn a_row_is_checked_once_however_often_it_changes() {
        let (mut deferred, budget) = (Deferred::default(), Arc::new(MemoryBudget::default()));
        for _ in 0..3 {
            deferred.add(row(1, 7), &budget).unwrap();
            deferred.add(row(2, 7), &budget).unwrap();
        }
        let key = |bytes: &[u8]| Check::Key {
            constraint: Oid(1),
            key: Arc::new(GoneKey { encoded: KeyBuffer::from_slice(bytes), values: Box::new([]) }),
        };
        for bytes in [b"a", b"b", b"a"] {
            deferred.add(key(bytes), &budget).unwrap();
        }
        assert_eq!(pending(&deferred), [row(1, 7), row(2, 7), key(b"a"), key(b"b")]);
    }

    #[test]
    fn a_rollback_drops_checks_deferred_since_and_lists_again_those_made_since() {
        let (mut deferred, budget) = (Deferred::default(), Arc::new(MemoryBudget::default()));
        let add = |deferred: &mut Deferred, check| deferred.add(check, &budget).unwrap();
        add(&mut deferred, row(1, 1));
        add(&mut deferred, row(2, 1));
        let mark = deferred.mark();
        deferred.made(|constraint| constraint == Oid(1));
        assert_eq!(pending(&deferred), [row(2, 1)]);
        // Made, deferred again, and a new one.
        add(&mut deferred, row(1, 1));
        add(&mut deferred, row(1, 2));
        deferred.made(|constraint| constraint == Oid(1));
        add(&mut deferred, row(1, 2));
        assert_eq!(pending(&deferred), [row(2, 1), row(1, 2)]);
        deferred.roll_back(mark);
        assert_eq!(pending(&deferred), [row(1, 1), row(2, 1)]);
        deferred.roll_back(DeferredMark::default());
        assert!(deferred.is_empty());
    }

    /// The limit is reached while one statement after the other defers checks; the last one is taken back, then all are.
    #[test]
    fn memory_of_checks_is_counted_and_given_back() {
        let budget = Arc::new(MemoryBudget::new(Some(4 << 20)));
        let mut deferred = Deferred::default();
        let held = || budget.held(Held::Unfinished) as usize;
        let (mut number, mut mark) = (0, deferred.mark());
        let error = loop {
            if number % 1000 == 0 {
                mark = deferred.mark();
            }
            number += 1;
            if let Err(error) = deferred.add(row(1, number), &budget) {
                break error;
            }
            assert!(deferred.bytes < held() + COUNTED_BYTES && held() <= 4 << 20);
        };
        assert_eq!(error.state(), firn_base::SqlState::OUT_OF_MEMORY);
        assert!(number > 20_000, "{number}");
        deferred.roll_back(mark);
        assert_eq!(deferred.checks.len() as u64, (number - 1) / 1000 * 1000);
        assert!(held() < (4 << 20) && deferred.bytes < held() + COUNTED_BYTES);
        deferred.roll_back(DeferredMark::default());
        assert_eq!((deferred.bytes, held()), (0, 0));
    }

    #[test]
    fn a_mode_of_all_constraints_replaces_that_of_a_single_one() {
        let mut deferred = Deferred::default();
        let (a, b) = (Oid(1), Oid(2));
        let initially = [Deferral::InitiallyImmediate, Deferral::InitiallyDeferred];
        let now = |deferred: &Deferred| initially.map(|deferral| deferred.defers(a, deferral));
        assert_eq!(now(&deferred), [false, true]);
        deferred.set(Some(&[a]), true);
        let mark = deferred.mark();
        assert_eq!(now(&deferred), [true, true]);
        assert!(!deferred.defers(b, Deferral::InitiallyImmediate));
        deferred.set(None, false);
        assert_eq!(now(&deferred), [false, false]);
        deferred.roll_back(mark);
        assert_eq!(now(&deferred), [true, true]);
    }
}
