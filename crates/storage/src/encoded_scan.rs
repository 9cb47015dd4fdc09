//! Scans of compact blocks: conditions are evaluated on the encoded columns, and only rows that meet them are
//! decoded. This is late materialization (Abadi, Myers, DeWitt and Madden, "Materialization Strategies in a
//! Column-Oriented DBMS", ICDE 2007; Funke, Kemper and Neumann, "Compacting Transactional Data in Hybrid
//! OLTP&OLAP Databases", VLDB 2012, section 3.4).
//!
//! It applies to batches in which no row has a version that affects the snapshot. Other batches are read as
//! those of all blocks are, by [`crate::walk`].

use crate::Guard;
use crate::block::Block;
use crate::compact::Compact;
use crate::encoding::{self, CodeSet, Dictionary, EncodedColumn, Form};
use crate::index::{doubles_within, reals_within, summary, wide_numbers};
use crate::layout::RANGE_SLOTS;
use crate::restriction::{Restriction, StringRange};
use crate::scan::{BATCH_ROWS, ScanBatch, TableScan, row_ids};
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer};
use firn_base::sync::{Arc, AtomicU64, Mutex, Ordering, fence};
use firn_base::types::Width;
use firn_base::{Cell, ColumnId, Representation, Slot};
use std::ops::{Bound, Range};

/// If more than one row in this many meets the conditions, all are returned: the caller checks them again,
/// and whole ranges are decoded faster than single rows.
const FEW: usize = 2;

/// The result for some rows of a compact block.
pub(crate) enum Encoded {
    /// The rows that may meet the conditions.
    Rows(ScanBatch),
    /// No row meets the conditions.
    NothingMeets,
    /// The rows have to be read one by one.
    MayHaveVersions,
}

impl TableScan {
    /// Rows of a compact block, if the snapshot sees the present rows without their versions.
    pub(crate) fn encoded(&self, block: &Block, first: u32, end: u32, guard: &Guard) -> Encoded {
        let is_clean = || {
            let mut ranges = (first..end).step_by(RANGE_SLOTS as usize).map(Slot);
            ranges.all(|start| block.position(start).versioned().is_empty())
                || block
                    .sees_all(self.snapshot(), guard)
                    .unwrap_or_else(|| !block.differs(first, end, self.snapshot(), guard).0)
        };
        if !is_clean() {
            return Encoded::MayHaveVersions;
        }
        // After the positions: see [`crate::compact`].
        let Some(compact) = block.compact() else { return Encoded::MayHaveVersions };
        let end = end.min(compact.slots());
        if first >= end {
            return Encoded::NothingMeets;
        }
        let present = bits_of(compact.present(), first, end);
        // As in `Walk::range`.
        fence(Ordering::Acquire);
        if !is_clean() {
            return Encoded::MayHaveVersions;
        }
        let rows = present.count_set_bits();
        let is_full = rows == present.len();
        // Rows that were deleted still have their values.
        let selected = match self.select(compact, first, end) {
            Some(selected) if is_full => selected,
            Some(selected) => &selected & &present,
            None => present,
        };
        let selected = self.filtered(compact, first, selected);
        if is_full && selected.count_set_bits() * FEW >= rows {
            let slots = first as usize..end as usize;
            let array = |column: &ColumnId| compact.column(*column).to_array(slots.clone(), Form::Plain);
            let ids = || row_ids(block, first, end).collect::<Vec<_>>().into();
            return Encoded::Rows(ScanBatch {
                columns: self.columns().iter().map(array).collect(),
                rows,
                row_ids: self.gives_row_ids().then(ids),
            });
        }
        let slots: Vec<u32> = selected.set_indices().map(|at| first + at as u32).collect();
        self.pass_over(rows - slots.len());
        if slots.is_empty() {
            return Encoded::NothingMeets;
        }
        let array = |column: &ColumnId| -> ArrayRef { compact.column(*column).take(&slots) };
        let ids = || slots.iter().map(|slot| block.row(Slot(*slot)).to_bits()).collect::<Vec<_>>().into();
        Encoded::Rows(ScanBatch {
            columns: self.columns().iter().map(array).collect(),
            rows: slots.len(),
            row_ids: self.gives_row_ids().then(ids),
        })
    }

    /// A bit for every slot: false if its row does not meet the conditions. `None` if nothing is known.
    fn select(&self, compact: &Compact, first: u32, end: u32) -> Option<BooleanBuffer> {
        let mut all: Option<BooleanBuffer> = None;
        let slots = || first as usize..end as usize;
        let asked = self.asked().iter().map(|asked| {
            let column = compact.column(asked.restriction.column());
            asked.select(column, slots())
        });
        // Evaluated last, since they cost more.
        let judged = self.judged().iter().map(|judged| judged.select(compact.column(judged.column), slots()));
        for one in asked.chain(judged) {
            let Some(one) = one else { continue };
            let both = match all {
                Some(all) => &all & &one,
                None => one,
            };
            if both.count_set_bits() == 0 {
                return Some(both);
            }
            all = Some(both);
        }
        all
    }
}

impl TableScan {
    /// Of some rows, those that pass the filters of the scan.
    fn filtered(&self, compact: &Compact, first: u32, mut selected: BooleanBuffer) -> BooleanBuffer {
        for filter in self.filters().iter() {
            let rows = selected.count_set_bits();
            if rows == 0 {
                break;
            }
            if !filter.removes_rows() {
                continue;
            }
            let is_range = rows * FEW >= selected.len();
            selected = match is_range {
                true => {
                    let slots = first as usize..first as usize + selected.len();
                    let array =
                        |column: &ColumnId| compact.column(*column).to_array(slots.clone(), Form::Plain);
                    let passed = (filter.passes)(&filter.columns.iter().map(array).collect::<Vec<_>>());
                    &selected & &passed
                }
                false => {
                    let places: Vec<usize> = selected.set_indices().collect();
                    let slots: Vec<u32> = places.iter().map(|place| first + *place as u32).collect();
                    let array = |column: &ColumnId| compact.column(*column).take(&slots);
                    let passed = (filter.passes)(&filter.columns.iter().map(array).collect::<Vec<_>>());
                    let mut bits = BooleanBufferBuilder::new(selected.len());
                    bits.append_n(selected.len(), false);
                    passed.set_indices().for_each(|number| bits.set_bit(places[number], true));
                    bits.finish()
                }
            };
            filter.note(rows as u64, selected.count_set_bits() as u64);
        }
        selected
    }
}

/// Computes a bit for each row of some columns: whether the row is needed. It may be set for a row that is
/// not.
pub type RowFilter = Arc<dyn Fn(&[ArrayRef]) -> BooleanBuffer + Send + Sync>;

/// A condition that is added while the scan runs: that the row has a partner in a join.
pub(crate) struct Filter {
    columns: Box<[ColumnId]>,
    passes: RowFilter,
    /// How many rows have been tested lately, how many of them have passed, and how often the filter was
    /// skipped.
    asked: AtomicU64,
    passed: AtomicU64,
    left_out: AtomicU64,
}

impl Filter {
    /// The number of tested rows from which on the statistics count.
    const ENOUGH: u64 = 2 * BATCH_ROWS as u64;

    /// A filter that lets most rows pass is tested only once in this many times, in case other rows follow.
    const SELDOM: u64 = 16;

    pub fn new(columns: &[ColumnId], passes: RowFilter) -> Filter {
        let [asked, passed, left_out] = [const { AtomicU64::new(0) }; 3];
        Filter { columns: columns.into(), passes, asked, passed, left_out }
    }

    /// Whether the filter can be expected to remove enough rows to pay.
    fn removes_rows(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked < Filter::ENOUGH
            || self.passed.load(Ordering::Relaxed) * FEW as u64 <= asked
            || self.left_out.fetch_add(1, Ordering::Relaxed) % Filter::SELDOM == Filter::SELDOM - 1
    }

    /// Notes how many rows were tested, and how many have passed. Older figures count for less. Threads that
    /// note at the same time may lose a figure.
    fn note(&self, asked: u64, passed: u64) {
        let before = self.asked.load(Ordering::Relaxed);
        let kept = if before > 4 * Filter::ENOUGH { 2 } else { 1 };
        self.asked.store(before / kept + asked, Ordering::Relaxed);
        self.passed.store(self.passed.load(Ordering::Relaxed) / kept + passed, Ordering::Relaxed);
    }
}

/// A scan's restriction of a column, and its translation to encoded columns.
pub(crate) struct Asked {
    pub restriction: Restriction,
    /// The values as numbers, if numbers can represent them.
    numbers: Option<encoding::Condition<'static>>,
    /// The codes in the dictionary of the last block. All blocks have the same one, except during a merge.
    codes: Mutex<Option<(Dictionary, Arc<CodeSet>)>>,
}

impl Asked {
    pub fn new(restriction: Restriction, representation: Representation) -> Asked {
        Asked { numbers: numbers(representation, &restriction), restriction, codes: Mutex::new(None) }
    }

    /// A bit for every slot: whether its value may be admitted. `None` if that is not known, or if all are.
    fn select(&self, column: &EncodedColumn, slots: Range<usize>) -> Option<BooleanBuffer> {
        let nulls = column.validity(slots.clone());
        if !self.restriction.narrows() {
            // All but NULL.
            return nulls.filter(|_| !self.restriction.admits_null()).map(|nulls| nulls.inner().clone());
        }
        let selected = match column.codes() {
            Some((_, dictionary)) => column.select_codes(slots, &*self.codes_of(dictionary)?),
            None => match &self.numbers {
                Some(numbers) => column.select(slots, numbers)?,
                // Without runs they are compared as fast after decoding.
                None if column.encoding().runs => {
                    column.select(slots, &in_ranges(self.restriction.strings()?))?
                }
                None => return None,
            },
        };
        Some(match nulls {
            Some(nulls) if self.restriction.admits_null() => &selected | &!nulls.inner(),
            _ => selected,
        })
    }

    /// The codes of the values that are admitted. `None` if they are not known.
    fn codes_of(&self, dictionary: Dictionary) -> Option<Arc<CodeSet>> {
        let mut last = self.codes.lock();
        if let Some((_, codes)) = last.as_ref().filter(|(of, _)| of.is(&dictionary)) {
            return Some(codes.clone());
        }
        let representation = dictionary.representation();
        let is_text = matches!(representation, Representation::Text | Representation::Bytes);
        let codes = match (&self.numbers, self.restriction.strings()) {
            (Some(numbers), _) => dictionary.codes_of(numbers)?,
            (None, Some(strings)) if is_text => dictionary.codes_of(&in_ranges(strings))?,
            (None, None) if is_text => {
                let summary = |string: &[u8]| {
                    summary(representation, &Cell::Bytes(string)).expect("a string is not NULL")
                };
                dictionary.codes_of_summaries(self.restriction.ranges(), summary)
            }
            // The dictionary is sorted with the blanks at the end of strings, and for images by their bytes.
            (None, None) if representation.width() == Width::View => {
                let admits =
                    |string: &[u8]| self.restriction.admits(summary(representation, &Cell::Bytes(string)));
                dictionary.codes_of_strings(admits)
            }
            _ => return None,
        };
        let codes = Arc::new(codes);
        *last = Some((dictionary, codes.clone()));
        Some(codes)
    }
}

/// Evaluates a condition for each of some strings of a column, NULL among them. `None` if it cannot.
pub type Judge = Arc<dyn Fn(&ArrayRef) -> Option<BooleanBuffer> + Send + Sync>;

/// A condition on a column of strings that is no range, such as a pattern that begins with a wildcard. It is
/// evaluated once for each value of a dictionary (Funke, Kemper and Neumann, VLDB 2012, section 3.5).
pub(crate) struct Judged {
    pub column: ColumnId,
    judge: Judge,
    verdict: Mutex<Verdict>,
}

/// What is known of the dictionary of the last block.
#[derive(Default)]
struct Verdict {
    dictionary: Option<Dictionary>,
    /// How many of its values have been evaluated.
    judged: usize,
    /// The codes of those that meet the condition.
    met: Vec<Range<u64>>,
    /// When all have been evaluated: the same, and whether NULL meets it. The inner `None` if the judge could
    /// not evaluate.
    codes: Option<Option<Arc<(CodeSet, bool)>>>,
}

impl Judged {
    pub fn new(column: ColumnId, judge: Judge) -> Judged {
        Judged { column, judge, verdict: Mutex::default() }
    }

    /// A bit for every slot: whether its value meets the condition. `None` if that is not known.
    fn select(&self, column: &EncodedColumn, slots: Range<usize>) -> Option<BooleanBuffer> {
        let (_, dictionary) = column.codes()?;
        let codes = self.codes_of(dictionary, slots.len())?;
        let (codes, null) = &*codes;
        let nulls = column.validity(slots.clone());
        let selected = column.select_codes(slots, codes);
        Some(match nulls {
            Some(nulls) if *null => &selected | &!nulls.inner(),
            _ => selected,
        })
    }

    /// The codes of a dictionary's values that meet the condition, and whether NULL does. They are known once
    /// all values have been evaluated; each call for `rows` rows evaluates as many values. So a block costs
    /// at most twice as much as otherwise. A caller does not wait while another one evaluates.
    fn codes_of(&self, dictionary: Dictionary, rows: usize) -> Option<Arc<(CodeSet, bool)>> {
        let mut verdict = self.verdict.try_lock()?;
        if !verdict.dictionary.as_ref().is_some_and(|last| last.is(&dictionary)) {
            *verdict = Verdict { dictionary: Some(dictionary.clone()), ..Verdict::default() };
        }
        if verdict.codes.is_none() && self.judge(&dictionary, rows, &mut verdict).is_none() {
            verdict.codes = Some(None);
        }
        verdict.codes.clone().flatten()
    }

    /// Evaluates up to `most` more values of a dictionary. `None` if they cannot be evaluated.
    fn judge(&self, dictionary: &Dictionary, most: usize, verdict: &mut Verdict) -> Option<()> {
        let values = dictionary.views()?;
        let Verdict { judged, met, codes, .. } = verdict;
        let end = values.len().min(*judged + most);
        while *judged < end {
            let part = values.slice(*judged, BATCH_ROWS.min(end - *judged));
            let found = (self.judge)(&part)?;
            assert_eq!(found.len(), part.len(), "a judge returns a bit for every value");
            met.extend(found.set_slices().map(|(from, to)| (*judged + from) as u64..(*judged + to) as u64));
            *judged += part.len();
        }
        if *judged == values.len() {
            let null = (self.judge)(&new_null_array(values.data_type(), 1))?.value(0);
            *codes = Some(Some(Arc::new((dictionary.codes_within(std::mem::take(met)), null))));
        }
        Some(())
    }
}

/// The bits of some slots, the first a multiple of 64.
fn bits_of(words: &[AtomicU64], first: u32, end: u32) -> BooleanBuffer {
    debug_assert!(first.is_multiple_of(64) && first < end);
    let words = &words[first as usize / 64..end.div_ceil(64) as usize];
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, (end - first) as usize)
}

/// The condition that strings are in one of some ranges.
fn in_ranges(strings: &[StringRange]) -> encoding::Condition<'_> {
    fn bounds(range: &StringRange) -> (Bound<Cell<'_>>, Bound<Cell<'_>>) {
        let until = range.until.as_deref().map(Cell::Bytes).map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(Cell::Bytes(&range.from)), until)
    }
    encoding::Condition::Ranges(strings.iter().map(bounds).collect())
}

/// The values that a restriction admits, if its column has values of fixed width whose order is that of
/// numbers.
fn numbers(
    representation: Representation,
    restriction: &Restriction,
) -> Option<encoding::Condition<'static>> {
    // A summary begins with the value, its sign bit inverted; zeros follow if the value is narrower than 8
    // bytes.
    let bits: u32 = match (representation, representation.width()) {
        (Representation::Boolean, _) => {
            let admitted = |value: &bool| restriction.admits(summary(representation, &Cell::boolean(*value)));
            let admitted = [false, true].into_iter().filter(admitted).map(Cell::boolean);
            return Some(encoding::Condition::In(admitted.collect()));
        }
        (Representation::Int16, _) => 16,
        (Representation::Int32 | Representation::Oid | Representation::Date, _) => 32,
        (
            Representation::Int64
            | Representation::Time
            | Representation::Timestamp
            | Representation::TimestampTz,
            _,
        ) => 64,
        (Representation::Decimal { .. }, Width::Fixed(8)) => 64,
        (Representation::Decimal { .. }, _) => 128,
        (Representation::Float32 | Representation::Float64 | Representation::Uuid, _) => {
            let ends = |&(first, last): &(u64, u64)| match representation {
                // The lower half of the summary of a real is zero.
                Representation::Float32 => {
                    let first = u32::try_from(first.div_ceil(1 << 32)).ok()?;
                    reals_within(first, (last >> 32) as u32).map(|ends| ends.map(Cell::f32))
                }
                Representation::Float64 => doubles_within(first, last).map(|ends| ends.map(Cell::f64)),
                // The part of the value that the summary leaves out may be anything.
                _ => Some([(first, 0), (last, u64::MAX)].map(|(begin, rest)| {
                    let bytes = u128::from(begin) << 64 | u128::from(rest);
                    Cell::i128(i128::from_le_bytes(bytes.to_be_bytes()))
                })),
            };
            let ranges = restriction.ranges().iter().filter_map(ends);
            let bounds = ranges.map(|[low, high]| (Bound::Included(low), Bound::Included(high)));
            return Some(encoding::Condition::Ranges(bounds.collect()));
        }
        _ => return None,
    };
    // Unsigned numbers are in summaries as they are.
    let sign = if representation == Representation::Oid { 0 } else { 1 << 63 };
    let of_range = |&(first, last): &(u64, u64)| {
        if bits == 128 {
            return wide_numbers(first, last).map(|ends| ends.map(Cell::i128));
        }
        let shift = 64 - bits;
        // The least value whose summary is not less, and the greatest whose summary is not greater.
        let low = (first >> shift) + u64::from(first.trailing_zeros() < shift && first != 0);
        let high = last >> shift;
        let cell = |number: u64| match bits {
            16 => Cell::i16((number ^ sign >> shift) as i16),
            32 => Cell::i32((number ^ sign >> shift) as i32),
            _ => Cell::i64((number ^ sign) as i64),
        };
        (low <= u64::MAX >> shift && low <= high).then(|| [low, high].map(cell))
    };
    let ranges = restriction.ranges().iter().filter_map(of_range);
    Some(encoding::Condition::Ranges(
        ranges.map(|[low, high]| (Bound::Included(low), Bound::Included(high))).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::merge::DeltaDictionary;
    use crate::encoding::{Encoding, Kept, Piece, Source};
    use arrow_buffer::NullBuffer;

    #[test]
    fn a_range_of_summaries_is_the_range_of_values_that_have_them() {
        let column = ColumnId(0);
        let numbers: Vec<i32> =
            [i32::MIN, i32::MIN + 1, -2, -1, 0, 1, 2, 1000, i32::MAX - 1, i32::MAX].into();
        let piece = Piece { values: Source::Four(&numbers), nulls: None };
        let encoding = Encoding { runs: false, values: Kept::Plain };
        let encoded = EncodedColumn::encode(Representation::Int32, piece, encoding).unwrap();
        let summaries: Vec<u64> =
            numbers.iter().map(|n| summary(Representation::Int32, &Cell::i32(*n)).unwrap()).collect();
        let near = |at: u64| [at.saturating_sub(1), at, at.saturating_add(1)];
        let bounds: Vec<u64> = summaries.iter().copied().chain([0, u64::MAX]).flat_map(near).collect();
        for &low in &bounds {
            for &high in &bounds {
                let restriction = Restriction::within(column, low, high);
                let others = restriction.others();
                for (restriction, within) in [(restriction, true), (others, false)] {
                    let selected = Asked::new(restriction, Representation::Int32).select(&encoded, 0..10);
                    let expected = summaries.iter().map(|summary| (low..=high).contains(summary) == within);
                    match selected {
                        Some(selected) => assert!(selected.iter().eq(expected), "{low:x} to {high:x}"),
                        None => assert!(expected.min() == Some(true), "{low:x} to {high:x}"),
                    }
                }
            }
        }
    }

    /// As above, of types whose order is not that of their words.
    #[test]
    fn ranges_of_floats_and_uuids_are_those_of_values_that_have_the_summaries() {
        let doubles = [
            f64::NEG_INFINITY,
            -1.5,
            -f64::from_bits(1),
            -0.0,
            0.0,
            f64::from_bits(1),
            2.5,
            f64::INFINITY,
            f64::NAN,
            -f64::NAN,
        ];
        let uuids = [[0u8; 16], [1; 16], [0x7f; 16], [0x80; 16], [0xff; 16]];
        let words: Vec<i64> = doubles.iter().map(|double| double.to_bits() as i64).collect();
        let short_words: Vec<i32> = doubles.iter().map(|double| (*double as f32).to_bits() as i32).collect();
        let wide_words: Vec<i128> = uuids.iter().map(|uuid| i128::from_le_bytes(*uuid)).collect();
        for (representation, values, cells) in [
            (Representation::Float64, Source::Eight(&words), doubles.map(Cell::f64).to_vec()),
            (
                Representation::Float32,
                Source::Four(&short_words),
                doubles.map(|double| Cell::f32(double as f32)).to_vec(),
            ),
            (
                Representation::Uuid,
                Source::Sixteen(&wide_words),
                wide_words.iter().map(|word| Cell::i128(*word)).collect(),
            ),
        ] {
            let piece = Piece { values, nulls: None };
            let plain =
                EncodedColumn::encode(representation, piece, Encoding { runs: false, values: Kept::Plain })
                    .unwrap();
            let merge = DeltaDictionary::build(representation, &[piece], 1).unwrap().merge(None, 1).unwrap();
            let codes = merge.delta(0, false);
            let summaries: Vec<u64> =
                cells.iter().map(|cell| summary(representation, cell).unwrap()).collect();
            let near = |at: u64| [at.saturating_sub(1), at, at.saturating_add(1)];
            let bounds: Vec<u64> = summaries.iter().copied().chain([0, u64::MAX]).flat_map(near).collect();
            for &low in &bounds {
                for &high in &bounds {
                    let asked = Asked::new(Restriction::within(ColumnId(0), low, high), representation);
                    for column in [&plain, &codes] {
                        let expected = summaries.iter().map(|summary| (low..=high).contains(summary));
                        match asked.select(column, 0..cells.len()) {
                            Some(selected) => {
                                assert!(selected.iter().eq(expected), "{representation}: {low:x} to {high:x}")
                            }
                            None => {
                                assert!((low, high) == (0, u64::MAX), "{representation}: {low:x} to {high:x}")
                            }
                        }
                    }
                }
            }
        }
    }

    /// The order of the dictionary is not that of the strings without blanks.
    #[test]
    fn blanks_at_the_end_are_none_of_what_codes_are_asked_for() {
        let strings: [&[u8]; 5] = [b"a       ", b"a\x01      ", b"a b     ", b"ab      ", b"        "];
        let piece = Piece { values: Source::Strings(&strings), nulls: None };
        let representation = Representation::PaddedText;
        let merge = DeltaDictionary::build(representation, &[piece], 1).unwrap().merge(None, 1).unwrap();
        let codes = merge.delta(0, false);
        for wanted in [&b"a"[..], b"a\x01", b"a b", b"ab", b"", b"b"] {
            let at = summary(representation, &Cell::Bytes(wanted)).unwrap();
            let asked = Asked::new(Restriction::within(ColumnId(0), at, at), representation);
            let selected = asked.select(&codes, 0..strings.len()).unwrap();
            let expected = strings.iter().map(|string| string.trim_ascii_end() == wanted);
            assert!(selected.iter().eq(expected), "{wanted:?}");
        }
    }

    #[test]
    fn a_dictionary_is_judged_once_as_many_values_at_a_time_as_rows_are_come_to() {
        use arrow_array::cast::AsArray;
        use firn_base::sync::AtomicUsize;
        let names: Vec<String> = (0..200).map(|number| format!("name {number}")).collect();
        let strings: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let nulls: NullBuffer = (0..200).map(|at| at % 7 != 3).collect();
        let piece = Piece { values: Source::Strings(&strings), nulls: Some(&nulls) };
        let merge =
            DeltaDictionary::build(Representation::Text, &[piece], 1).unwrap().merge(None, 1).unwrap();
        let (codes, count) = (merge.delta(0, false), merge.dictionary().len());
        let plain = Encoding { runs: false, values: Kept::Plain };
        let plain = EncodedColumn::encode(Representation::Text, piece, plain).unwrap();
        for takes_null in [false, true] {
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = asked.clone();
            let judge = move |values: &ArrayRef| {
                counter.fetch_add(values.len(), Ordering::Relaxed);
                let ends = |value: Option<&str>| value.map_or(takes_null, |value| value.ends_with('7'));
                Some(values.as_string_view().iter().map(ends).collect())
            };
            let judged = Judged::new(ColumnId(0), Arc::new(judge));
            assert!(judged.select(&codes, 0..64).is_none() && judged.select(&plain, 0..200).is_none());
            assert!(judged.select(&codes, 64..128).is_none());
            assert_eq!(asked.load(Ordering::Relaxed), 128);
            for _ in 0..2 {
                let selected = judged.select(&codes, 64..200).unwrap();
                let expected = |(name, is_valid): (&String, bool)| {
                    if is_valid { name.ends_with('7') } else { takes_null }
                };
                let expected = names.iter().zip(nulls.iter()).skip(64).map(expected);
                assert!(selected.iter().eq(expected));
            }
            assert_eq!(asked.load(Ordering::Relaxed), count + 1);
        }
        // A judge that has returned `None` is not called again.
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let judge = move |_: &ArrayRef| {
            counter.fetch_add(1, Ordering::Relaxed);
            None
        };
        let judged = Judged::new(ColumnId(0), Arc::new(judge));
        assert!((0..3).all(|_| judged.select(&codes, 0..200).is_none()));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    /// Strings with a common beginning, more than small encodings hold, in blocks of a dictionary and of a
    /// later one.
    #[test]
    fn strings_are_judged_by_their_codes_in_dictionaries_of_any_size() {
        let count = if cfg!(miri) { 40 } else { 5_000 };
        let names: Vec<String> = (0..count).map(|number| format!("somebody {number:06}")).collect();
        let strings: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let nulls: NullBuffer = (0..count).map(|at| at % 7 != 3).collect();
        let piece = Piece { values: Source::Strings(&strings), nulls: Some(&nulls) };
        let merged = |piece, before| {
            let delta = DeltaDictionary::build(Representation::Text, &[piece], 1).unwrap();
            delta.merge(before, 1).unwrap()
        };
        let merge = merged(piece, None);
        let first = merge.delta(0, false);
        let more = Piece { values: Source::Strings(&[b"anybody", b"somebody 000017 a"]), nulls: None };
        let second = merged(more, Some(merge.dictionary())).main(&first);
        // Without a dictionary conditions are evaluated on runs only.
        let plain = |runs| {
            EncodedColumn::encode(Representation::Text, piece, Encoding { runs, values: Kept::Plain })
                .unwrap()
        };
        let (in_runs, one_by_one) = (plain(true), plain(false));
        let name = |at: usize| names[at].as_bytes();
        let column = ColumnId(0);
        let of = |range| Restriction::of_strings(column, range);
        let list = [1, 2, 17, 30, 39].map(|at| of(StringRange::only(name(at))));
        let list = Restriction::any(list).unwrap();
        let asked = [
            of(StringRange::only(name(17))),
            of(StringRange::prefixed(b"somebody 00001")),
            of(StringRange::after(name(20))).and(&of(StringRange::until(name(25)))).unwrap(),
            Restriction::any([list.clone(), Restriction::null(column)]).unwrap(),
            list.others(),
            list,
            of(StringRange::only(b"somebody else")),
            Restriction::not_null(column),
            Restriction::null(column),
            // All strings have the same summary.
            Restriction::within(
                column,
                summary(Representation::Text, &Cell::text("somebody")).unwrap(),
                u64::MAX,
            ),
        ];
        for restriction in asked {
            let asked = Asked::new(restriction.clone(), Representation::Text);
            assert!(asked.select(&one_by_one, 0..count).is_none() || !restriction.narrows());
            for encoded in [&first, &second, &first, &in_runs] {
                let Some(selected) = asked.select(encoded, 0..count) else {
                    assert!(restriction.strings().is_none() && std::ptr::eq(encoded, &in_runs));
                    continue;
                };
                for (at, string) in strings.iter().enumerate() {
                    let value = if nulls.is_valid(at) { Cell::Bytes(string) } else { Cell::Null };
                    assert_eq!(
                        selected.value(at),
                        restriction.admits_value(Representation::Text, &value),
                        "{restriction:?} {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn bits_are_those_of_the_slots() {
        let words = [u64::MAX, 0b101].map(AtomicU64::new);
        let bits = |first, end| bits_of(&words, first, end).iter().collect::<Vec<bool>>();
        assert_eq!(bits(64, 68), [true, false, true, false]);
        assert_eq!(bits(0, 66).iter().filter(|bit| **bit).count(), 65);
    }
}
