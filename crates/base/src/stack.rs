//! Stacks for work whose recursion is as deep as a statement is.
//!
//! Trees of statements, plans and expressions are walked, copied, printed and dropped by recursion. The parser limits
//! how deep they are; this module gives the thread that handles a deep one a stack on which the deepest fits.
//!
//! ```text
//! depth ≤ SHALLOW               the thread's own stack
//! SHALLOW < depth ≤ the limit   a stack of ROOM bytes, unless MARGIN bytes of the present one are free
//! ```
//!
//! Invariant: the deepest tree that the parser accepts needs at most MARGIN bytes, also in a debug build. The tests of
//! the limits in the session crate run statements of that depth on threads with small stacks.

use std::ops::{Deref, DerefMut};

/// Trees up to this depth are handled on any stack.
pub const SHALLOW: u32 = 40;

/// Free stack that work on a deep tree can rely on.
const MARGIN: usize = 64 << 20;

/// Size of a new stack. Memory is taken only as far as it is touched.
const ROOM: usize = 2 * MARGIN;

/// Stack of threads that work for a statement: what runs there never moves to another stack.
pub const WORKER_BYTES: usize = MARGIN;

/// Runs `work` with room for the deepest trees.
pub fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(MARGIN, ROOM, work)
}

/// Runs `work` on a tree of that depth.
#[inline]
pub fn with_room_for<T>(depth: u32, work: impl FnOnce() -> T) -> T {
    match depth {
        0..=SHALLOW => work(),
        _ => with_room(work),
    }
}

/// A value that contains a tree of a known depth, and is dropped with room for it.
#[derive(Clone, Debug)]
pub struct Deep<T> {
    depth: u32,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> Deep<T> {
    /// A value that contains a tree of that depth.
    pub fn new(depth: u32, value: T) -> Deep<T> {
        Deep { depth, value: Some(value) }
    }

    /// The value alone.
    pub fn into_inner(mut self) -> T {
        self.value.take().expect("it is there until it is dropped")
    }

    /// How deep the tree is.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth
    }
}

impl<T> Deref for Deep<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Deep<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Deep<T> {
    #[inline]
    fn drop(&mut self) {
        if self.depth > SHALLOW
            && let Some(value) = self.value.take()
        {
            with_room(|| drop(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List(#[allow(dead_code, reason = "only dropped")] Option<Box<List>>);

    #[test]
    fn a_deep_value_is_dropped_on_a_thread_with_a_small_stack() {
        let thread = crate::thread::try_spawn("small", 128 << 10, || {
            let mut list = List(None);
            for _ in 0..10_000 {
                list = List(Some(Box::new(list)));
            }
            drop(Deep::new(10_000, list));
        });
        thread.unwrap().join().unwrap();
    }
}
