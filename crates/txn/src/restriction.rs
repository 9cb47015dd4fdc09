//! What a predicate asks of one column: which values it admits.
//!
//! Values are told by their [`summary`](firn_storage::summary) alone, so a restriction may admit more than its predicate, never
//! less. It is a set of ranges, since that is what comparisons, `IN`, `OR` and `<>` come to, and what of them is
//! not the case (seed 000 §2.2.3 keeps the attribute's predicates as a tree; one column's fit in a list).

use firn_base::ColumnId;
use firn_storage::Condition;
use smallvec::{SmallVec, smallvec};

/// Ranges of a restriction that a log keeps.
const MOST_RANGES: usize = 1024;

/// Which values of a column a predicate admits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restriction {
    column: ColumnId,
    /// Summaries from the first to the last, in ascending order; ranges neither meet nor follow each other at once.
    ranges: SmallVec<[(u64, u64); 2]>,
    nulls: bool,
}

impl Restriction {
    /// Values that are not NULL and whose summary is `low` at least and `high` at most; none if there is no such number.
    pub fn within(column: ColumnId, low: u64, high: u64) -> Restriction {
        let ranges = if low <= high { smallvec![(low, high)] } else { SmallVec::new() };
        Restriction { column, ranges, nulls: false }
    }

    /// All values but NULL.
    pub fn not_null(column: ColumnId) -> Restriction {
        Restriction::within(column, 0, u64::MAX)
    }

    /// NULL alone.
    pub fn null(column: ColumnId) -> Restriction {
        Restriction { column, ranges: SmallVec::new(), nulls: true }
    }

    /// The column.
    pub fn column(&self) -> ColumnId {
        self.column
    }

    /// What any of some restrictions on one column admits; `None` if there are none, or of several columns.
    pub fn any(restrictions: impl IntoIterator<Item = Restriction>) -> Option<Restriction> {
        let mut restrictions = restrictions.into_iter();
        let mut any = restrictions.next()?;
        for restriction in restrictions {
            if restriction.column != any.column {
                return None;
            }
            any.ranges.extend(restriction.ranges);
            any.nulls |= restriction.nulls;
        }
        any.ranges.sort_unstable();
        any.ranges.dedup_by(|next, previous| {
            let meets = previous.1.checked_add(1).is_none_or(|following| next.0 <= following);
            if meets {
                previous.1 = previous.1.max(next.1);
            }
            meets
        });
        Some(any)
    }

    /// What both admit; `None` if they are of different columns.
    pub fn and(&self, other: &Restriction) -> Option<Restriction> {
        let common = |(low, high): (u64, u64)| {
            let from = other.ranges.partition_point(|range| range.1 < low);
            let overlapping = other.ranges[from..].iter().take_while(move |range| range.0 <= high);
            overlapping.map(move |range| (low.max(range.0), high.min(range.1)))
        };
        (self.column == other.column).then(|| Restriction {
            column: self.column,
            ranges: self.ranges.iter().copied().flat_map(common).collect(),
            nulls: self.nulls && other.nulls,
        })
    }

    /// The other values that are not NULL: of a predicate that NULL does not meet, and that the summary tells exactly,
    /// what its negation admits.
    pub fn others(&self) -> Restriction {
        let mut ranges = SmallVec::new();
        let mut from = Some(0);
        for (low, high) in &self.ranges {
            if let (Some(first), Some(last)) = (from, low.checked_sub(1))
                && first <= last
            {
                ranges.push((first, last));
            }
            from = high.checked_add(1);
        }
        ranges.extend(from.map(|first| (first, u64::MAX)));
        Restriction { column: self.column, ranges, nulls: false }
    }

    /// If it has more ranges than [`MOST_RANGES`], one of fewer that admits all of them: those that lie closest to each other
    /// become one.
    pub fn coarser(&self) -> Option<Restriction> {
        let excess = self.ranges.len().checked_sub(MOST_RANGES).filter(|excess| *excess > 0)?;
        let gap = |(previous, next): (&(u64, u64), &(u64, u64))| next.0 - previous.1;
        let mut gaps: Vec<u64> = self.ranges.iter().zip(&self.ranges[1..]).map(gap).collect();
        let (_, widest, _) = gaps.select_nth_unstable(excess - 1);
        let mut ranges: SmallVec<[(u64, u64); 2]> = SmallVec::with_capacity(MOST_RANGES);
        for range in &self.ranges {
            match ranges.last_mut() {
                Some(last) if gap((last, range)) <= *widest => last.1 = range.1,
                _ => ranges.push(*range),
            }
        }
        Some(Restriction { column: self.column, ranges, nulls: self.nulls })
    }

    /// Whether a value with that summary, NULL if it has none, is among them.
    pub fn admits(&self, summary: Option<u64>) -> bool {
        let Some(summary) = summary else { return self.nulls };
        let after = self.ranges.partition_point(|range| range.0 <= summary);
        after.checked_sub(1).is_some_and(|at| summary <= self.ranges[at].1)
    }

    /// The narrowest condition that all its values meet, if there is one that says more than of a gap between them.
    pub fn hull(&self) -> Option<Condition> {
        let (low, high) = (self.ranges.first()?.0, self.ranges.last()?.1);
        let is_told = self.ranges.len() == 1 || (low, high) != (0, u64::MAX);
        (is_told && !self.nulls).then_some(Condition { column: self.column, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    const COLUMN: ColumnId = ColumnId(3);

    /// Summaries of which some are at the ends of their range.
    const NUMBERS: [u64; 9] = [0, 1, 2, 3, 4, 5, u64::MAX - 2, u64::MAX - 1, u64::MAX];

    fn random(random: &mut Random) -> Restriction {
        let mut number = || NUMBERS[random.uniform(0, 8) as usize];
        let (low, high) = (number(), number());
        match random.uniform(0, 5) {
            0 => Restriction::null(COLUMN),
            1 => Restriction::not_null(COLUMN),
            _ => Restriction::within(COLUMN, low, high),
        }
    }

    #[test]
    fn sets_of_values_are_combined_as_what_they_admit() {
        let mut source = Random::seeded(7);
        for _ in 0..20_000 {
            let parts: Vec<Restriction> = (0..4).map(|_| random(&mut source)).collect();
            let any = Restriction::any(parts[..3].to_vec()).unwrap();
            let both = any.and(&parts[3]).unwrap();
            let others = any.others();
            for number in NUMBERS.map(Some).into_iter().chain([None]) {
                let expected = parts[..3].iter().any(|part| part.admits(number));
                assert_eq!(any.admits(number), expected, "{parts:?} {number:?}");
                assert_eq!(both.admits(number), expected && parts[3].admits(number), "{parts:?} {number:?}");
                assert_eq!(others.admits(number), number.is_some() && !expected, "{parts:?} {number:?}");
            }
            assert!(any.ranges.is_sorted() && others.ranges.is_sorted() && both.ranges.is_sorted());
            if let Some(hull) = any.hull() {
                assert!(!any.admits(None));
                let least = NUMBERS.into_iter().find(|number| any.admits(Some(*number)));
                let greatest = NUMBERS.into_iter().rfind(|number| any.admits(Some(*number)));
                assert_eq!((Some(hull.low), Some(hull.high)), (least, greatest));
            }
        }
    }

    #[test]
    fn of_very_many_values_the_closest_become_ranges() {
        let values = |of: u64| (0..of).map(|n| Restriction::within(COLUMN, n * n, n * n));
        let few = Restriction::any(values(MOST_RANGES as u64)).unwrap();
        assert_eq!(few.coarser(), None);
        let of = 3 * MOST_RANGES as u64;
        let many = Restriction::any(values(of).chain([Restriction::null(COLUMN)])).unwrap();
        let coarser = many.coarser().unwrap();
        assert_eq!(coarser.ranges.len(), MOST_RANGES);
        assert!(coarser.admits(None) && (0..of).all(|n| coarser.admits(Some(n * n))));
        assert!(!coarser.admits(Some(of * of)) && !coarser.admits(Some((of - 1) * (of - 1) - 1)));
        assert!(coarser.admits(Some(3)), "the least ones are closest");
    }

    #[test]
    fn columns_are_not_mixed() {
        let (one, other) = (Restriction::null(COLUMN), Restriction::null(ColumnId(4)));
        assert_eq!(one.and(&other), None);
        assert_eq!(Restriction::any([one, other]), None);
        assert_eq!(Restriction::any([]), None);
    }
}
