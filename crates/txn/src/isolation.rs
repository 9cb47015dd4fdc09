//! Isolation levels.

/// The degree to which a transaction is isolated from others. Each level includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Isolation {
    /// Reads the newest snapshot whenever it is [refreshed](crate::Transaction::refresh): SQL's READ COMMITTED.
    ReadCommitted,
    /// Reads one snapshot, and changes no row that has changed since: SQL's REPEATABLE READ.
    Snapshot,
    /// Has the effect that it would have alone, at the time of its commit.
    #[default]
    Serializable,
}

impl Isolation {
    /// The level with this number, which is that of a cast to an integer.
    pub(crate) fn from_number(number: u32) -> Isolation {
        match number {
            0 => Isolation::ReadCommitted,
            1 => Isolation::Snapshot,
            _ => Isolation::Serializable,
        }
    }
}
