//! What transactions wait for, and how a wait ends.

use firn_base::{Stamp, TableId};

/// What a transaction waits for that does not wait for a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// To lock rows of a table that another one has locked against that, or is about to.
    LockRows(TableId),
    /// To write to a table that another one has locked, or is about to.
    Write(TableId),
    /// The same, of one who has locked rows there: whoever wants the table alone and has yet to wait for that one is in nobody's way.
    WriteToo(TableId),
    /// To have the maintenance of a table that another one has.
    Maintain(TableId),
    /// To lock a table, also together with others, that another one has locked alone, or others wait for.
    Share(TableId),
    /// To lock a table alone that another one has locked, or is about to.
    Lock(TableId),
    /// That those end who write to a table. Nobody joins them any more.
    Unwritten(TableId),
    /// That those end who write to a table or lock rows there. Nobody joins them any more.
    Alone(TableId),
    /// To change the catalog, as another one does.
    Catalog,
}

/// Who has what somebody wants, but for the writers of a table.
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

    /// The wait that an integer stands for; `None` for 0.
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

/// How waiting for another transaction's end came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// It has ended.
    Ended,
    /// It has not yet.
    NotYet,
    /// It has not, but has gone back to a savepoint: what is waited for may be free.
    Released,
    /// It never would: it waits, perhaps through others, for the one that would wait for it.
    Deadlock,
}
