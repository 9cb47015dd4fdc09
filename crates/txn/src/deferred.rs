//! Deferred checks: what a transaction has yet to look at before it may commit.
//!
//! SQL lets constraints be tested at COMMIT instead of at the end of a statement. Here is kept which tests
//! have been put off and what SET CONSTRAINTS has said; how they are made is for whoever writes rows to know,
//! and [`Transaction::commit`](crate::Transaction::commit) insists that they have been.
//!
//! A check names a row or a key, not a version of it: however often a row changes it is looked at once, as
//! it is then. Nothing is forgotten before the transaction ends, because a savepoint may want it back:
//! checks that were added since are dropped, those that were made since are to be made again.

use crate::catalog::{Deferral, Oid};
use firn_base::sync::Arc;
use firn_base::{RowId, Value};
use firn_storage::KeyBuffer;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// A check that was put off.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// That a row of the foreign key's table points at one that is there.
    Row {
        /// The foreign key.
        constraint: Oid,
        /// The row.
        row: RowId,
    },
    /// That nothing points at a key that went, unless it is there again.
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
}

/// A key that no row of the referenced table had when it was noted.
#[derive(Debug)]
pub struct GoneKey {
    /// As the referenced table's index has it: what makes two keys the same.
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

/// The checks that a transaction has put off.
#[derive(Default)]
pub(crate) struct Deferred {
    /// In the order in which they were put off, those that have been made included.
    checks: Vec<Check>,
    /// Where in `checks` those stand that have not been made.
    pending: HashMap<Check, usize>,
    /// Where those stand that have been made, in that order.
    made: Vec<usize>,
    /// What holds after each SET CONSTRAINTS.
    modes: Vec<Modes>,
}

/// What SET CONSTRAINTS has said: whether constraints are deferred.
#[derive(Clone, Default)]
struct Modes {
    all: Option<bool>,
    /// Said of single ones since it was said of all.
    single: BTreeMap<Oid, bool>,
}

/// A place to go back to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DeferredMark {
    checks: usize,
    made: usize,
    modes: usize,
}

impl Deferred {
    /// Whether a constraint's checks are put off now.
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

    /// Puts a check off.
    pub fn add(&mut self, check: Check) {
        if !self.pending.contains_key(&check) {
            self.pending.insert(check.clone(), self.checks.len());
            self.checks.push(check);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The checks that are to be made, in the order in which they were put off.
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
            if self.pending.get(&check) == Some(&(mark.checks + at)) {
                self.pending.remove(&check);
            }
        }
        for at in self.made.drain(mark.made..) {
            if let Some(check) = self.checks.get(at) {
                self.pending.insert(check.clone(), at);
            }
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
        let mut deferred = Deferred::default();
        for _ in 0..3 {
            deferred.add(row(1, 7));
            deferred.add(row(2, 7));
        }
        let key = |bytes: &[u8]| Check::Key {
            constraint: Oid(1),
            key: Arc::new(GoneKey { encoded: KeyBuffer::from_slice(bytes), values: Box::new([]) }),
        };
        deferred.add(key(b"a"));
        deferred.add(key(b"b"));
        deferred.add(key(b"a"));
        assert_eq!(pending(&deferred), [row(1, 7), row(2, 7), key(b"a"), key(b"b")]);
    }

    #[test]
    fn a_savepoint_forgets_what_was_put_off_since_and_wants_again_what_was_made() {
        let mut deferred = Deferred::default();
        deferred.add(row(1, 1));
        deferred.add(row(2, 1));
        let mark = deferred.mark();
        deferred.made(|constraint| constraint == Oid(1));
        assert_eq!(pending(&deferred), [row(2, 1)]);
        // Made, put off again, and something new.
        deferred.add(row(1, 1));
        deferred.add(row(1, 2));
        deferred.made(|constraint| constraint == Oid(1));
        deferred.add(row(1, 2));
        assert_eq!(pending(&deferred), [row(2, 1), row(1, 2)]);
        deferred.roll_back(mark);
        assert_eq!(pending(&deferred), [row(1, 1), row(2, 1)]);
        deferred.roll_back(DeferredMark::default());
        assert!(deferred.is_empty());
    }

    #[test]
    fn what_is_said_of_all_outdoes_what_was_said_of_one() {
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
