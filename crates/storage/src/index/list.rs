//! The indexes of a table: asked for by every change of a row, replaced as a whole by DDL.
//!
//! Reading takes no lock: a lock would cost every insert and update two writes to memory that all
//! threads share.

use super::Index;
use crate::Guard;
use crossbeam_epoch::{Atomic, Owned};
use firn_base::ColumnSet;
use firn_base::sync::{Arc, Mutex, Ordering};

/// The indexes as they were at one moment.
pub(crate) struct Indexes {
    all: Arc<[Arc<Index>]>,
    /// The columns that they are over.
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

    /// The columns that they are over.
    #[inline]
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }
}

/// A list of indexes that readers do not lock.
pub(crate) struct IndexList {
    current: Atomic<Indexes>,
    /// The right to replace the list.
    turn: Mutex<()>,
}

impl IndexList {
    pub fn new() -> IndexList {
        IndexList { current: Atomic::new(Indexes::new(Arc::new([]))), turn: Mutex::new(()) }
    }

    /// The indexes now.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard) -> &'g Indexes {
        // SAFETY: never null; freed only after everybody pinned at the time of its replacement has
        // gone on (`replace`), and by `drop`, which nobody borrows beside.
        unsafe { self.current.load(Ordering::Acquire, guard).deref() }
    }

    /// Puts another list in the place of the one now.
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
        // SAFETY: nobody borrows it any more; never null.
        drop(unsafe { std::mem::take(&mut self.current).into_owned() });
    }
}
