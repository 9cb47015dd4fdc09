//! Stacks for work whose recursion is as deep as a statement is nested.
//!
//! Trees of statements, plans and expressions are walked, copied, printed and dropped by recursion. The
//! parser limits their depth; this module gives the thread that processes a deep one a stack of sufficient
//! size.
//!
//! ```text
//! syntax trees, plans, compiled expressions   with_room_for_tree, Tree    TREE_MARGIN bytes are free
//! binding, optimising                         with_room                   MARGIN bytes are free
//! ```
//! If the bytes are not free on the present stack, the work gets one of ROOM bytes.
//!
//! Invariant: to copy, compare, print, evaluate or drop the deepest tree that the parser accepts takes less
//! than TREE_MARGIN bytes. The tests of the limits in the session crate run statements of that depth on
//! threads with small stacks.

use std::ops::Deref;

/// Trees up to this depth are processed on any stack.
pub const SHALLOW: u32 = 40;

/// Free stack that work on a deep tree can rely on.
const MARGIN: usize = 64 << 20;

/// Free stack that walks over one tree can rely on. The stacks that the standard library gives to threads, of 2 MiB, have it.
const TREE_MARGIN: usize = 3 << 19;

/// Size of a new stack. Only pages that are touched take memory.
const ROOM: usize = 2 * MARGIN;

/// Stack size of threads that work for a statement: their work never moves to another stack.
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

/// Runs `work` with room for walks over one tree: on the present stack if there is room, as on usual stacks
/// of threads.
#[inline]
pub fn with_room_for_tree<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(TREE_MARGIN, ROOM, work)
}

/// A value that contains trees, and is dropped with room for them.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> Tree<T> {
    /// A value that contains trees.
    pub fn new(value: T) -> Tree<T> {
        Tree { value: Some(value) }
    }
}

impl<T> Deref for Tree<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value exists until it is dropped")
    }
}

impl<T> Drop for Tree<T> {
    #[inline]
    fn drop(&mut self) {
        with_room_for_tree(|| drop(self.value.take()));
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
            for _ in 0..5_000 {
                list = List(Some(Box::new(list)));
            }
            drop(Tree::new(list));
        });
        thread.unwrap().join().unwrap();
    }
}
