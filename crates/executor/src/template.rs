//! Expressions of which each worker has its own, since calls keep what they have compiled.

use firn_base::sync::Mutex;

/// What workers copy: expressions, of which each has its own.
pub struct Template<T>(Mutex<T>);

impl<T: Clone> Template<T> {
    /// What copies are made of.
    pub fn new(value: T) -> Template<T> {
        Template(Mutex::new(value))
    }

    /// A copy.
    #[inline]
    pub fn copy(&self) -> T {
        self.0.lock().clone()
    }
}
