//! The flag by which a statement is ended from outside: by a cancel request, a timeout or a lost connection.

use crate::sync::{Arc, AtomicBool, OnceLock, Ordering};
use crate::{Error, SqlState};
use std::fmt;

/// A flag that ends a running statement. Clones share it.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Default)]
struct Flag {
    raised: AtomicBool,
    /// Raises the flag when a thread reads it.
    watch: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.0.raised).finish()
    }
}

impl Cancel {
    /// A flag that is not raised.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Raises it: the statement that runs under it soon fails with 57014.
    pub fn cancel(&self) {
        self.0.raised.store(true, Ordering::Relaxed);
    }

    /// Lowers it again, for the next statement.
    pub fn reset(&self) {
        self.0.raised.store(false, Ordering::Relaxed);
    }

    /// Whether it is raised.
    pub fn is_cancelled(&self) -> bool {
        if self.0.raised.load(Ordering::Relaxed) {
            return true;
        }
        let raise = self.0.watch.get().is_some_and(|watch| watch());
        if raise {
            self.cancel();
        }
        raise
    }

    /// 57014 if it is raised.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.is_cancelled() {
            false => Ok(()),
            true => Err(cancelled()),
        }
    }

    /// Every thread that reads the flag then calls `watch` to decide whether to raise it. Only the first one
    /// given counts.
    pub fn watch(&self, watch: impl Fn() -> bool + Send + Sync + 'static) {
        // A second one is dropped.
        let _ = self.0.watch.set(Box::new(watch));
    }
}

/// The error of a statement that was cancelled.
#[cold]
pub fn cancelled() -> Error {
    Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}
