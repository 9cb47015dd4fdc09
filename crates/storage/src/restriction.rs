//! What a predicate requires of one column: the values that it admits.
//!
//! It is a set of ranges, which represents comparisons, `IN`, `OR`, `<>`, `LIKE 'prefix%'`, and their
//! negations. Mühlbauer ("On Scalable and Flexible Transaction and Query Processing in Main-Memory Database
//! Systems", TU München 2016, section 2.2.3) keeps the attribute's predicates as a tree; those of one column
//! fit in a list. The ranges are of [summaries](summary), which zones and the predicate log use. Where
//! summaries do not distinguish strings, there may be ranges of the strings themselves in addition. A
//! restriction may admit more than its predicate, never less.

use crate::index::summary;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Representation};
use smallvec::{SmallVec, smallvec};

/// Most ranges of a restriction that a predicate log keeps.
const MOST_RANGES: usize = if cfg!(miri) { 16 } else { 1024 };

/// Which values of a column a predicate admits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restriction {
    column: ColumnId,
    /// First and last summaries, ascending; ranges neither overlap nor touch.
    ranges: SmallVec<[(u64, u64); 2]>,
    /// The strings themselves, if they are known.
    strings: Option<Arc<[StringRange]>>,
    nulls: bool,
}

/// Strings from the first on that sort before the other, if there is one. Ranges of a set ascend, and do not
/// touch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StringRange {
    /// The first.
    pub from: Box<[u8]>,
    /// The string that they sort before.
    pub until: Option<Box<[u8]>>,
}

impl StringRange {
    /// All strings.
    pub fn all() -> StringRange {
        StringRange { from: Box::default(), until: None }
    }

    /// One string.
    pub fn only(string: &[u8]) -> StringRange {
        StringRange { from: string.into(), until: Some(next(string)) }
    }

    /// Those that sort after one.
    pub fn after(string: &[u8]) -> StringRange {
        StringRange { from: next(string), until: None }
    }

    /// One, and those that sort after it.
    pub fn from(string: &[u8]) -> StringRange {
        StringRange { from: string.into(), until: None }
    }

    /// Those that sort before one.
    pub fn before(string: &[u8]) -> StringRange {
        StringRange { from: Box::default(), until: Some(string.into()) }
    }

    /// One, and those that sort before it.
    pub fn until(string: &[u8]) -> StringRange {
        StringRange { from: Box::default(), until: Some(next(string)) }
    }

    /// Those that begin with a string.
    pub fn prefixed(prefix: &[u8]) -> StringRange {
        // The least string after all of them: the prefix with its last byte incremented that can be.
        let last = prefix.iter().rposition(|byte| *byte < u8::MAX);
        let until = last.map(|last| {
            let mut until = prefix[..=last].to_vec();
            until[last] += 1;
            until.into_boxed_slice()
        });
        StringRange { from: prefix.into(), until }
    }

    fn is_empty(&self) -> bool {
        self.until.as_ref().is_some_and(|until| *until <= self.from)
    }

    fn contains(&self, string: &[u8]) -> bool {
        *self.from <= *string && self.until.as_ref().is_none_or(|until| *string < **until)
    }

    /// The summaries of its strings, from the first to the last; it is not empty.
    fn summaries(&self) -> (u64, u64) {
        let of = |string: &[u8]| {
            summary(Representation::Text, &Cell::Bytes(string)).expect("a string is not NULL")
        };
        let last = match self.until.as_deref() {
            None => u64::MAX,
            // Those before `next(string)` are those up to the string.
            Some([until @ .., 0]) => of(until),
            // The summary separates these from all before them: they are shorter than a summary, and have no
            // byte that takes two.
            Some(until) if until.len() < size_of::<u64>() && until.iter().all(|byte| *byte > 1) => {
                of(until) - 1
            }
            Some(until) => of(until),
        };
        (of(&self.from), last)
    }

    /// Ranges as those of a set: sorted and merged.
    fn set(mut ranges: Vec<StringRange>) -> Arc<[StringRange]> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable();
        ranges.dedup_by(|next, previous| {
            let Some(until) = &previous.until else { return true };
            let meets = next.from <= *until;
            if meets && next.until.as_ref().is_none_or(|further| further > until) {
                previous.until = next.until.take();
            }
            meets
        });
        ranges.into()
    }
}

/// The next string in the order.
fn next(string: &[u8]) -> Box<[u8]> {
    [string, &[0]].concat().into()
}

impl Restriction {
    /// Values that are not NULL and whose summary is `low` at least and `high` at most; none if `low` is
    /// above `high`.
    pub fn within(column: ColumnId, low: u64, high: u64) -> Restriction {
        let ranges = if low <= high { smallvec![(low, high)] } else { SmallVec::new() };
        Restriction { column, ranges, strings: None, nulls: false }
    }

    /// Strings of a range, of a column of text or bytes.
    pub fn of_strings(column: ColumnId, range: StringRange) -> Restriction {
        let strings = StringRange::set(vec![range]);
        let ranges = strings.iter().map(StringRange::summaries).collect();
        Restriction { column, ranges, strings: Some(strings), nulls: false }
    }

    /// All values but NULL.
    pub fn not_null(column: ColumnId) -> Restriction {
        Restriction::within(column, 0, u64::MAX)
    }

    /// NULL alone.
    pub fn null(column: ColumnId) -> Restriction {
        Restriction { column, ranges: SmallVec::new(), strings: None, nulls: true }
    }

    /// The column.
    pub fn column(&self) -> ColumnId {
        self.column
    }

    /// The summaries of values that it admits, first and last; ascending and separate.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// The strings that it admits, ascending and separate, if they are known more exactly than by their
    /// summaries.
    pub fn strings(&self) -> Option<&[StringRange]> {
        self.strings.as_deref()
    }

    /// As [`Restriction::strings`]; empty for a restriction that admits no value.
    fn known_strings(&self) -> Option<&[StringRange]> {
        if self.ranges.is_empty() { Some(&[]) } else { self.strings() }
    }

    /// Whether it admits NULL.
    pub fn admits_null(&self) -> bool {
        self.nulls
    }

    /// What any of some restrictions on one column admits; `None` if there are none, or if they are on
    /// several columns.
    pub fn any(restrictions: impl IntoIterator<Item = Restriction>) -> Option<Restriction> {
        let mut restrictions = restrictions.into_iter();
        let mut any = restrictions.next()?;
        let known = |restriction: &Restriction| restriction.known_strings().map(<[StringRange]>::to_vec);
        let (mut strings, mut are_strings) = (known(&any), any.strings.is_some());
        for restriction in restrictions {
            if restriction.column != any.column {
                return None;
            }
            are_strings |= restriction.strings.is_some();
            strings = match (strings, known(&restriction)) {
                (Some(mut strings), Some(more)) => {
                    strings.extend(more);
                    Some(strings)
                }
                _ => None,
            };
            any.ranges.extend(restriction.ranges);
            any.nulls |= restriction.nulls;
        }
        any.strings = strings.filter(|_| are_strings).map(StringRange::set);
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

    /// What both admit; `None` if they are on different columns.
    pub fn and(&self, other: &Restriction) -> Option<Restriction> {
        let common = |(low, high): (u64, u64)| {
            let from = other.ranges.partition_point(|range| range.1 < low);
            let overlapping = other.ranges[from..].iter().take_while(move |range| range.0 <= high);
            overlapping.map(move |range| (low.max(range.0), high.min(range.1)))
        };
        let strings = match (self.known_strings(), other.known_strings()) {
            (Some(mine), Some(theirs)) if self.strings.is_some() || other.strings.is_some() => {
                let common = |mine: &StringRange| {
                    let ends_before =
                        |range: &StringRange| range.until.as_ref().is_some_and(|until| *until <= mine.from);
                    let from = theirs.partition_point(ends_before);
                    let overlapping = theirs[from..].iter().map(|range| mine.and(range));
                    overlapping.take_while(|both| !both.is_empty()).collect::<Vec<_>>()
                };
                Some(StringRange::set(mine.iter().flat_map(common).collect()))
            }
            _ => self.strings.clone().or_else(|| other.strings.clone()),
        };
        (self.column == other.column).then(|| Restriction {
            column: self.column,
            ranges: self.ranges.iter().copied().flat_map(common).collect(),
            strings,
            nulls: self.nulls && other.nulls,
        })
    }

    /// The other values that are not NULL. This is what the negation of a predicate admits, if NULL does not
    /// meet the predicate and its summary is exact or its strings are known.
    pub fn others(&self) -> Restriction {
        if let Some(strings) = &self.strings {
            let mut others = Vec::new();
            let mut from = Some(Box::default());
            for range in strings.iter() {
                others.push(StringRange {
                    from: from.expect("no range follows an unbounded one"),
                    until: Some(range.from.clone()),
                });
                from = range.until.clone();
            }
            others.extend(from.map(|from| StringRange { from, until: None }));
            let each = others.into_iter().map(|range| Restriction::of_strings(self.column, range));
            return Restriction::any(each).unwrap_or_else(|| Restriction::within(self.column, 1, 0));
        }
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
        Restriction { column: self.column, ranges, strings: None, nulls: false }
    }

    /// If it has more ranges than [`MOST_RANGES`], one with fewer ranges that admits all of them: the closest
    /// ones are merged, and strings are kept as their summaries only.
    pub fn coarser(&self) -> Option<Restriction> {
        let strings = self.strings.as_ref().map_or(0, |strings| strings.len());
        if self.ranges.len().max(strings) <= MOST_RANGES {
            return None;
        }
        let gap = |(previous, next): (&(u64, u64), &(u64, u64))| next.0 - previous.1;
        // The widths of the gaps to remove; none if only the strings are too many.
        let mut gaps: Vec<u64> = self.ranges.iter().zip(self.ranges.iter().skip(1)).map(gap).collect();
        let excess = self.ranges.len().saturating_sub(MOST_RANGES);
        let widest = excess.checked_sub(1).map_or(0, |last| *gaps.select_nth_unstable(last).1);
        let mut ranges: SmallVec<[(u64, u64); 2]> = SmallVec::with_capacity(MOST_RANGES);
        for range in &self.ranges {
            match ranges.last_mut() {
                Some(last) if gap((last, range)) <= widest => last.1 = range.1,
                _ => ranges.push(*range),
            }
        }
        Some(Restriction { column: self.column, ranges, strings: None, nulls: self.nulls })
    }

    /// Whether a value with that summary, or NULL if it is `None`, may be admitted.
    pub fn admits(&self, summary: Option<u64>) -> bool {
        let Some(summary) = summary else { return self.nulls };
        let after = self.ranges.partition_point(|range| range.0 <= summary);
        after.checked_sub(1).is_some_and(|at| summary <= self.ranges[at].1)
    }

    /// Whether a value of the column's type is admitted, as far as is known.
    pub fn admits_value(&self, representation: Representation, value: &Cell<'_>) -> bool {
        match &self.strings {
            Some(strings) if !value.is_null() => {
                let after = strings.partition_point(|range| *range.from <= *value.bytes());
                after.checked_sub(1).is_some_and(|at| strings[at].contains(value.bytes()))
            }
            _ => self.admits(summary(representation, value)),
        }
    }

    /// Whether it admits a value with a summary between these, both included.
    pub fn admits_within(&self, low: u64, high: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < low);
        self.ranges.get(at).is_some_and(|range| range.0 <= high)
    }

    /// Whether it excludes anything but NULL.
    pub fn narrows(&self) -> bool {
        self.ranges[..] != [(0, u64::MAX)]
            || self.strings.as_ref().is_some_and(|strings| **strings != [StringRange::all()])
    }
}

impl StringRange {
    /// The intersection; an empty range if there is none.
    fn and(&self, other: &StringRange) -> StringRange {
        let until = match (&self.until, &other.until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.as_ref().or(other.as_ref()),
        };
        StringRange { from: self.from.clone().max(other.from.clone()), until: until.cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    const COLUMN: ColumnId = ColumnId(3);

    /// Summaries, some of them at the ends of their range.
    const NUMBERS: [u64; 9] = [0, 1, 2, 3, 4, 5, u64::MAX - 2, u64::MAX - 1, u64::MAX];

    /// Strings, some with the same summary, some with the same beginning.
    const STRINGS: [&[u8]; 15] = [
        b"",
        b"\0",
        b"\x01",
        b"a",
        b"a\0",
        b"a\x01",
        b"ab",
        b"b",
        b"long and longer",
        b"long and longest",
        b"long or not",
        b"long or\0",
        b"long or",
        b"\xff",
        b"\xff\xff",
    ];

    fn random(random: &mut Random) -> Restriction {
        let mut number = || NUMBERS[random.uniform(0, 8) as usize];
        let (low, high) = (number(), number());
        match random.uniform(0, 5) {
            0 => Restriction::null(COLUMN),
            1 => Restriction::not_null(COLUMN),
            _ => Restriction::within(COLUMN, low, high),
        }
    }

    fn random_strings(random: &mut Random) -> Restriction {
        let string = STRINGS[random.uniform(0, STRINGS.len() as i64 - 1) as usize];
        let range = match random.uniform(0, 7) {
            0 => return Restriction::null(COLUMN),
            1 => return Restriction::not_null(COLUMN),
            2 => StringRange::after(string),
            3 => StringRange::from(string),
            4 => StringRange::before(string),
            5 => StringRange::until(string),
            6 => StringRange::prefixed(string),
            _ => StringRange::only(string),
        };
        Restriction::of_strings(COLUMN, range)
    }

    #[test]
    fn sets_of_values_are_combined_as_what_they_admit() {
        let mut source = Random::seeded(7);
        for _ in 0..if cfg!(miri) { 10 } else { 20_000 } {
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
            for low in NUMBERS {
                for high in NUMBERS.into_iter().filter(|high| *high >= low) {
                    let between = NUMBERS.into_iter().filter(|number| (low..=high).contains(number));
                    let expected = between.map(Some).any(|number| any.admits(number));
                    // Values between the numbers are not tested here.
                    assert!(any.admits_within(low, high) || !expected, "{any:?} {low} {high}");
                    assert!(!any.admits_within(low, low) || any.admits(Some(low)), "{any:?} {low}");
                }
            }
        }
    }

    #[test]
    fn sets_of_strings_are_combined_as_what_they_admit_and_their_summaries_admit_no_less() {
        let mut source = Random::seeded(8);
        let value = |string: &'static [u8]| Cell::Bytes(string);
        for _ in 0..if cfg!(miri) { 10 } else { 20_000 } {
            let parts: Vec<Restriction> = (0..4).map(|_| random_strings(&mut source)).collect();
            let any = Restriction::any(parts[..3].to_vec()).unwrap();
            let both = any.and(&parts[3]).unwrap();
            for value in STRINGS.map(value).into_iter().chain([Cell::Null]) {
                let expected = parts[..3].iter().any(|part| part.admits_value(Representation::Text, &value));
                assert_eq!(any.admits_value(Representation::Text, &value), expected, "{parts:?} {value:?}");
                let in_both = expected && parts[3].admits_value(Representation::Text, &value);
                assert_eq!(both.admits_value(Representation::Text, &value), in_both, "{parts:?} {value:?}");
                let summary = summary(Representation::Text, &value);
                assert!(any.admits(summary) || !expected, "{parts:?} {value:?}");
                assert!(both.admits(summary) || !in_both, "{parts:?} {value:?}");
                if any.strings.is_some() {
                    let others = any.others();
                    let expected = !value.is_null() && !expected;
                    assert_eq!(
                        others.admits_value(Representation::Text, &value),
                        expected,
                        "{parts:?} {value:?}"
                    );
                    assert!(others.admits(summary) || !expected, "{parts:?} {value:?}");
                }
            }
            for set in [&any, &both].into_iter().filter_map(|set| set.strings.as_ref()) {
                let apart =
                    |pair: &[StringRange]| pair[0].until.as_ref().is_some_and(|end| *end < pair[1].from);
                assert!(set.windows(2).all(apart) && set.iter().all(|range| !range.is_empty()), "{set:?}");
            }
        }
    }

    #[test]
    fn ranges_of_strings_hold_what_their_names_say() {
        for string in STRINGS {
            for other in STRINGS {
                assert_eq!(StringRange::only(string).contains(other), other == string);
                assert_eq!(StringRange::after(string).contains(other), other > string);
                assert_eq!(StringRange::from(string).contains(other), other >= string);
                assert_eq!(StringRange::before(string).contains(other), other < string);
                assert_eq!(StringRange::until(string).contains(other), other <= string);
                assert_eq!(StringRange::prefixed(string).contains(other), other.starts_with(string));
            }
        }
        let of = |string: &[u8]| summary(Representation::Text, &Cell::Bytes(string)).unwrap();
        assert_eq!(StringRange::only(b"ship").summaries(), (of(b"ship"), of(b"ship")));
        assert_eq!(StringRange::prefixed(b"ship").summaries(), (of(b"ship"), of(b"shiq") - 1));
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

        // All with the same summary.
        let strings = (0..2 * MOST_RANGES).map(|n| format!("the same beginning {n:04}"));
        let each =
            strings.map(|string| Restriction::of_strings(COLUMN, StringRange::only(string.as_bytes())));
        let many = Restriction::any(each).unwrap();
        let coarser = many.coarser().unwrap();
        assert_eq!((coarser.ranges.len(), coarser.strings()), (1, None));
        assert_eq!(coarser.ranges(), many.ranges());
    }

    #[test]
    fn columns_are_not_mixed() {
        let (one, other) = (Restriction::null(COLUMN), Restriction::null(ColumnId(4)));
        assert_eq!(one.and(&other), None);
        assert_eq!(Restriction::any([one, other]), None);
        assert_eq!(Restriction::any([]), None);
    }
}
