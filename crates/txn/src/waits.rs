//! What transactions wait for, and how a wait ends.

use firn_base::{Stamp, TableId};

/// What a transaction waits for, other than a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// To lock rows of a table. Another transaction has a conflicting lock on the table, or is about to.
    LockRows(TableId),
    /// To write to a table. Another transaction has locked the table, or is about to.
    Write(TableId),
    /// The same, of a transaction that has locked rows of the table: it is not blocked by one that wants the table alone and has
    /// yet to wait for it.
    WriteToo(TableId),
    /// To lock a table in SHARE UPDATE EXCLUSIVE mode, which another transaction holds.
    Maintain(TableId),
    /// To lock a table, possibly together with others. Another transaction has locked it alone, or waits for it.
    Share(TableId),
    /// To lock a table alone. Another transaction has locked it, or is about to.
    Lock(TableId),
    /// For the end of the transactions that write to a table. No others join them.
    Unwritten(TableId),
    /// For the end of the transactions that write to a table or lock rows of it. No others join them.
    Alone(TableId),
    /// To change the catalog, which another transaction does.
    Catalog,
}

/// Returns the holders of what a transaction wants, except the writers of a table.
pub type HoldersOf<'h> = &'h dyn Fn(Want) -> Vec<Stamp>;

impl Want {
    /// As an integer, which is never 0.
    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Want::Write(table) => 1 << 32 | u64::from(table.0),
            Want::Lock(table) => 2 << 32 | u64::from(table.0),
            Want::Alone(table) => 3 << 32 | u64::from(table.0),
            Want::Catalog => 4 << 32,
            Want::Share(table) => 5 << 32 | u64::from(table.0),
            Want::LockRows(table) => 6 << 32 | u64::from(table.0),
            Want::Maintain(table) => 7 << 32 | u64::from(table.0),
            Want::Unwritten(table) => 8 << 32 | u64::from(table.0),
            Want::WriteToo(table) => 9 << 32 | u64::from(table.0),
        }
    }

    /// The wait that an integer represents; `None` for 0.
    pub(crate) fn from_bits(bits: u64) -> Option<Want> {
        let table = TableId(bits as u32);
        match bits >> 32 {
            0 => None,
            1 => Some(Want::Write(table)),
            2 => Some(Want::Lock(table)),
            3 => Some(Want::Alone(table)),
            4 => Some(Want::Catalog),
            5 => Some(Want::Share(table)),
            6 => Some(Want::LockRows(table)),
            7 => Some(Want::Maintain(table)),
            8 => Some(Want::Unwritten(table)),
            9 => Some(Want::WriteToo(table)),
            _ => unreachable!("only `to_bits` makes them"),
        }
    }
}

/// How a wait for the end of another transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The other transaction has ended.
    Ended,
    /// It still runs.
    NotYet,
    /// It still runs, but has rolled back to a savepoint: the row may be free.
    Released,
    /// It waits, perhaps through others, for the transaction that would wait for it.
    Deadlock,
}
