//! Values that executions use one at a time, each with buffers that the next one uses again.

use firn_base::sync::Mutex;

/// Copies of a value that are used by turns.
pub(crate) struct Pool<T> {
    template: Mutex<T>,
    free: Mutex<Vec<T>>,
}

/// So many are kept; more are made as they are needed.
const MOST_KEPT: usize = 16;

impl<T: Clone> Pool<T> {
    /// What copies are made of.
    pub fn new(value: T) -> Pool<T> {
        Pool { template: Mutex::new(value), free: Mutex::new(Vec::new()) }
    }

    /// A copy that no other execution uses.
    pub fn take(&self) -> T {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| self.template.lock().clone())
    }

    /// Keeps a copy for the next execution.
    pub fn give_back(&self, value: T) {
        let mut free = self.free.lock();
        if free.len() < MOST_KEPT {
            free.push(value);
        }
    }
}
