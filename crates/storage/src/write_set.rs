//! A write set: one transaction's undo and redo images.

use firn_base::Stamp;

/// A place in a write set to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {}

/// One transaction's changes: undo records in segments that never move, redo images in order.
pub struct WriteSet {}

impl WriteSet {
    /// An empty write set of the transaction with this stamp.
    pub fn new(owner: Stamp) -> WriteSet {
        todo!("{owner:?}")
    }

    /// Where it is now.
    pub fn mark(&self) -> Mark {
        todo!()
    }
}
