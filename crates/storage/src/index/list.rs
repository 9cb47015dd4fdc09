//! The indexes of a table: read by every change of a row, replaced as a whole by DDL.
//!
//! Reading takes no lock: a lock would cost every insert and update two writes to memory that all threads
//! share.

use super::Index;
use crate::Guard;
use crossbeam_epoch::{Atomic, Owned};
use firn_base::ColumnSet;
use firn_base::sync::{Arc, Mutex, Ordering};

/// The indexes at one time.
pub(crate) struct Indexes {
    all: Arc<[Arc<Index>]>,
    /// The union of their columns.
    columns: ColumnSet,
}

impl Indexes {
    fn new(all: Arc<[Arc<Index>]>) -> Indexes {
        let columns = all.iter().fold(ColumnSet::NONE, |columns, index| columns.union(index.columns()));
        Indexes { all, columns }
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> &Arc<[Arc<Index>]> {
        &self.all
    }

    /// The union of their columns.
    #[inline]
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }
}

/// A list of indexes that is read without a lock.
pub(crate) struct IndexList {
    current: Atomic<Indexes>,
    /// The holder may replace the list.
    turn: Mutex<()>,
}

impl IndexList {
    pub fn new() -> IndexList {
        IndexList { current: Atomic::new(Indexes::new(Arc::new([]))), turn: Mutex::new(()) }
    }

    /// The current indexes.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard) -> &'g Indexes {
        // SAFETY: never null; freed only after every guard is released that was held at its replacement
        // (`replace`), and by `drop`, which excludes borrowers.
        unsafe { self.current.load(Ordering::Acquire, guard).deref() }
    }

    /// Replaces the list.
    pub fn replace(&self, change: impl FnOnce(&[Arc<Index>]) -> Arc<[Arc<Index>]>) {
        let _turn = self.turn.lock();
        let guard = &crate::pin();
        let fresh = Owned::new(Indexes::new(change(self.get(guard).all())));
        let old = self.current.swap(fresh, Ordering::AcqRel, guard);
        // SAFETY: it was just unlinked.
        unsafe { guard.defer_destroy(old) };
    }
}

impl Drop for IndexList {
    fn drop(&mut self) {
        // SAFETY: there is no borrower any more; never null.
        drop(unsafe { std::mem::take(&mut self.current).into_owned() });
    }
}
