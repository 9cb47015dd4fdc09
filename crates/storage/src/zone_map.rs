//! Zone maps: the range of the values of a frozen block's columns. A scan under conditions need not read a
//! block that cannot meet them. See Moerkotte, "Small Materialized Aggregates: A Light Weight Index Structure
//! for Data Warehousing", VLDB 1998.
//!
//! Values are compared by their [`summary`](crate::index::summary), as in the predicate log, with the same
//! [restrictions](Restriction). A zone may be wider than its values, never narrower.

use crate::restriction::Restriction;

/// The least and the greatest summary of a column's values. NULLs have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    pub low: u64,
    pub high: u64,
}

impl Zone {
    /// Nothing is known.
    pub const ANY: Zone = Zone { low: 0, high: u64::MAX };
    /// There is no value.
    pub const EMPTY: Zone = Zone { low: u64::MAX, high: 0 };

    /// Whether a value in it may be admitted. NULLs are in no zone.
    pub fn may_meet(self, restriction: &Restriction) -> bool {
        restriction.admits_null() || self.low <= self.high && restriction.admits_within(self.low, self.high)
    }

    /// Widens it to include these numbers.
    pub fn add(&mut self, low: u64, high: u64) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }
}
