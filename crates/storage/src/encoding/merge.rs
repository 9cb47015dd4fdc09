//! Merging of dictionaries: new blocks join the dictionary of their column (Krueger et al., "Fast Updates on
//! Read-Optimized Databases Using Multi-Core CPUs", PVLDB 5(1), 2011; in the following "the paper").
//!
//! ```text
//!  delta, plain           main's dictionary       main, codes
//!  d0 d1 d2 d3 …          m0 m1 m2 m3 …           3 0 0 2 …
//!   │ step 1a                  │                      │
//!   ▼                          │                      │
//!  delta's dictionary ──┐      │                      │
//!  codes for it         ▼      ▼ step 1b              │
//!      │              merged dictionary               │
//!      │              + translation of delta's codes ─┼─┐
//!      │              + translation of main's codes ──┤ │
//!      │ step 2                                       ▼ │
//!      └───────────────► codes for the merged one ◄─────┘
//! ```
//! - **Step 1a** ([`DeltaDictionary::build`]). Each thread takes some of the blocks, collects their different
//!   values in a hash table and sorts these, or sorts all values if most of them differ. The threads' results
//!   are merged as in step 1b. The paper walks a tree that every insert maintains; here inserts do no such
//!   work, and the values are sorted for the merge.
//! - **Step 1b** ([`DeltaDictionary::merge`]). Both dictionaries are divided at the same values into as many
//!   parts as there are threads, as proposed by Francis and Mathieson ("A Benchmark Parallel Sort for Shared
//!   Memory Multiprocessors", IEEE Transactions on Computers, 1988). First each thread finds the place of
//!   delta's values among main's and counts the new ones. The counts of the parts before then determine where
//!   its own values go, and it writes them. The paper merges twice for that; here the places are kept, four
//!   bytes for a value of delta.
//! - **Step 2** ([`Merge::main`], [`Merge::delta`]). A code is looked up in its translation, and the result
//!   is as narrow as the merged dictionary allows. If no new value sorts before main's last value, main's
//!   codes keep their meaning: they are shared and not written again, unless they become wider.
//!
//! Step 2 processes one block at a time. Each result is independent, and blocks of both dictionaries can be
//! read side by side. So a caller that puts each block in place when it is done needs memory for one block,
//! the merged dictionary and the translations at a time. [`merge_columns`] processes as many columns at once
//! as it has threads if there are many columns, or one column after the other with all threads.

use super::codes::{Code, CodeWidth, Codes, each_codes};
use super::dictionary::{Dictionary, MOST_VALUES, StringDictionary, WordDictionary};
use super::runs::{self, RunEnds};
use super::strings::{MOST_STRING_BYTES, Strings};
use super::word::{Order, Word, fold};
use super::{ColumnWord, EncodedColumn, Piece, Source, kept_nulls};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use firn_base::Representation;
use firn_base::sync::{Arc, Mutex};
use firn_base::thread;
use firn_base::types::Width;
use hashbrown::HashTable;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

/// A dictionary would have more than [`MOST_VALUES`] values or [`MOST_STRING_BYTES`] bytes of strings. The
/// column gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more different values than a dictionary can have")
    }
}

impl std::error::Error for TooLarge {}

/// Executes all jobs, on up to `threads` threads.
pub(crate) fn in_parallel<J: Send, R: Send>(
    threads: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 || jobs.len() <= 1 {
        return jobs.into_iter().map(work).collect();
    }
    let jobs: Vec<Mutex<Option<J>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let done = thread::for_each("merge", threads, &jobs, |job| {
        Ok(work(job.lock().take().expect("every job is done once")))
    });
    done.expect("jobs return no error")
}

/// Sorted values, each once.
trait Sorted: Sync {
    /// The result of a merge.
    type Merged: Send + Sync;

    fn of(merged: &Self::Merged) -> &Self;

    fn len(&self) -> usize;

    fn compare(&self, at: usize, other: &Self, with: usize) -> Ordering;

    /// Bytes of a value in addition to its position.
    fn weight(&self, at: usize) -> usize;

    /// Bytes of all values in addition to their positions.
    fn total_weight(&self) -> usize;

    /// Writes the merged values, and where among them main's and delta's are.
    fn write<C: Code>(
        main: &Self,
        delta: &Self,
        joint: &Joint,
        threads: usize,
    ) -> (Self::Merged, Vec<C>, Vec<C>);
}

/// Step 1b between its two halves.
struct Joint {
    parts: Vec<Part>,
    /// For every value of delta the position in main of the first value that is not lower, and [`FOUND`] if
    /// it is equal.
    places: Vec<u32>,
    values: usize,
    bytes: usize,
}

/// Marks a position.
const FOUND: u32 = 1 << 31;

const _: () = assert!(MOST_VALUES < FOUND as usize);

/// Parts of both dictionaries with all values between two.
#[derive(Clone, Debug)]
struct Part {
    main: Range<usize>,
    delta: Range<usize>,
    /// The number of new values in delta's parts before, and their weight.
    new_before: usize,
    weight_before: usize,
}

/// For fewer values it takes longer to start a thread than to merge them.
const PART_VALUES: usize = if cfg!(test) { 64 } else { 1 << 17 };

/// Divides both dictionaries at the same values, so that all parts have about the same total size.
fn cut<S: Sorted + ?Sized>(main: &S, delta: &S, parts: usize) -> Vec<Part> {
    let total = main.len() + delta.len();
    let parts = parts.clamp(1, total / PART_VALUES + 1);
    let mut cuts = vec![(0, 0)];
    for part in 1..parts {
        let before = total * part / parts;
        // How many of them are main's.
        let (mut low, mut high) = (before.saturating_sub(delta.len()), before.min(main.len()));
        while low < high {
            let middle = (low + high) / 2;
            if main.compare(middle, delta, before - middle - 1) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (in_main, mut in_delta) = (low, before - low);
        // Equal values belong to one part.
        if in_main < main.len()
            && in_delta > 0
            && main.compare(in_main, delta, in_delta - 1) == Ordering::Equal
        {
            in_delta -= 1;
        }
        cuts.push((in_main, in_delta));
    }
    cuts.push((main.len(), delta.len()));
    let part = |cut: &[(usize, usize)]| Part {
        main: cut[0].0..cut[1].0,
        delta: cut[0].1..cut[1].1,
        new_before: 0,
        weight_before: 0,
    };
    cuts.windows(2).map(part).collect()
}

/// The first half of step 1b.
fn join<S: Sorted + ?Sized>(main: &S, delta: &S, threads: usize) -> Joint {
    let mut places = vec![0; delta.len()];
    let mut parts = cut(main, delta, threads);
    let mut rest = &mut places[..];
    let jobs = parts
        .iter()
        .map(|part| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(part.delta.len());
            rest = others;
            (part.clone(), own)
        })
        .collect();
    let found = in_parallel(threads, jobs, |(part, places)| {
        // Mostly there are at most this many values of main between two of delta.
        let window = (2 * part.main.len() / part.delta.len().max(1)).max(1).next_power_of_two();
        let (mut at, end) = (part.main.start, part.main.end);
        let (mut new, mut weight) = (0, 0);
        for (value, place) in part.delta.zip(places) {
            let below = |at: usize| main.compare(at, delta, value) == Ordering::Less;
            while end - at >= window && below(at + window - 1) {
                at += window;
            }
            // A binary search without unpredictable branches.
            let mut size = window.min(end - at);
            while size > 0 {
                let half = size.div_ceil(2);
                at += if below(at + half - 1) { half } else { 0 };
                size -= half;
            }
            let found = at < end && main.compare(at, delta, value) == Ordering::Equal;
            *place = at as u32 | if found { FOUND } else { 0 };
            new += usize::from(!found);
            weight += if found { 0 } else { delta.weight(value) };
        }
        (new, weight)
    });
    let (mut values, mut bytes) = (0, 0);
    for (part, (new, weight)) in parts.iter_mut().zip(found) {
        (part.new_before, part.weight_before) = (values, bytes);
        values += new;
        bytes += weight;
    }
    Joint { parts, places, values, bytes }
}

impl Part {
    /// The position of its first value.
    fn first(&self) -> usize {
        self.main.start + self.new_before
    }

    /// Walks the part in order. `copy` gets ranges of main and the position of their first value. `insert`
    /// gets new values of delta and their positions. `found` gets others and the position of main's equal
    /// one.
    #[inline(always)]
    fn walk(
        &self,
        places: &[u32],
        mut copy: impl FnMut(Range<usize>, usize),
        mut delta: impl FnMut(usize, usize, bool),
    ) {
        let (mut from, mut to) = (self.main.start, self.first());
        for value in self.delta.clone() {
            let place = (places[value] & !FOUND) as usize;
            copy(from..place, to);
            to += place - from;
            from = place;
            let new = places[value] & FOUND == 0;
            delta(value, to, new);
            to += usize::from(new);
        }
        copy(from..self.main.end, to);
    }
}

/// Divides a slice into pieces of these lengths.
fn cut_slice<T>(mut slice: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let cut = lengths
        .map(|length| {
            let (own, others) = std::mem::take(&mut slice).split_at_mut(length);
            slice = others;
            own
        })
        .collect();
    assert!(slice.is_empty());
    cut
}

/// What every part of a merge writes: merged values and translations.
struct Target<'a, T, C> {
    part: &'a Part,
    merged: &'a mut [T],
    main: &'a mut [C],
    delta: &'a mut [C],
}

impl Joint {
    fn merged_len<S: Sorted + ?Sized>(&self, main: &S) -> usize {
        main.len() + self.values
    }

    /// The number of merged values of each part.
    fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let next = self.parts.iter().skip(1).map(|part| part.new_before).chain([self.values]);
        self.parts.iter().zip(next).map(|(part, next)| part.main.len() + next - part.new_before)
    }

    fn targets<'a, T, C>(
        &'a self,
        merged: &'a mut [T],
        main: &'a mut [C],
        delta: &'a mut [C],
    ) -> Vec<Target<'a, T, C>> {
        let merged = cut_slice(merged, self.lengths());
        let main = cut_slice(main, self.parts.iter().map(|part| part.main.len()));
        let delta = cut_slice(delta, self.parts.iter().map(|part| part.delta.len()));
        let parts = self.parts.iter().zip(merged).zip(main).zip(delta);
        parts.map(|(((part, merged), main), delta)| Target { part, merged, main, delta }).collect()
    }

    /// Whether main's values keep their positions.
    fn appends(&self, main_len: usize) -> bool {
        self.places.iter().find(|place| **place & FOUND == 0).is_none_or(|place| *place as usize == main_len)
    }
}

impl<T: Word> Sorted for [T] {
    type Merged = Vec<T>;

    fn of(merged: &Vec<T>) -> &[T] {
        merged
    }

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline]
    fn compare(&self, at: usize, other: &[T], with: usize) -> Ordering {
        self[at].cmp(&other[with])
    }

    fn weight(&self, _at: usize) -> usize {
        0
    }

    fn total_weight(&self) -> usize {
        0
    }

    fn write<C: Code>(main: &[T], delta: &[T], joint: &Joint, threads: usize) -> (Vec<T>, Vec<C>, Vec<C>) {
        let mut merged = vec![T::default(); joint.merged_len(main)];
        let mut of_main = vec![C::default(); main.len()];
        let mut of_delta = vec![C::default(); delta.len()];
        let targets = joint.targets(&mut merged, &mut of_main, &mut of_delta);
        in_parallel(threads, targets, |target| {
            let (part, first) = (target.part, target.part.first());
            let merged = std::cell::Cell::from_mut(target.merged).as_slice_of_cells();
            part.walk(
                &joint.places,
                |from, to| {
                    let own = from.start - part.main.start..from.end - part.main.start;
                    let merged = &merged[to - first..to - first + from.len()];
                    for ((merged, translated), (value, number)) in
                        merged.iter().zip(&mut target.main[own]).zip(main[from].iter().zip(to as u64..))
                    {
                        merged.set(*value);
                        *translated = C::narrow(number);
                    }
                },
                |value, to, new| {
                    target.delta[value - part.delta.start] = C::narrow(to as u64);
                    if new {
                        merged[to - first].set(delta[value]);
                    }
                },
            );
        });
        (merged, of_main, of_delta)
    }
}

impl Sorted for Strings {
    type Merged = Strings;

    fn of(merged: &Strings) -> &Strings {
        merged
    }

    fn len(&self) -> usize {
        Strings::len(self)
    }

    fn compare(&self, at: usize, other: &Strings, with: usize) -> Ordering {
        self.get(at).cmp(other.get(with))
    }

    fn weight(&self, at: usize) -> usize {
        self.get(at).len()
    }

    fn total_weight(&self) -> usize {
        self.all_bytes().len()
    }

    fn write<C: Code>(
        main: &Strings,
        delta: &Strings,
        joint: &Joint,
        threads: usize,
    ) -> (Strings, Vec<C>, Vec<C>) {
        // Where each value ends; the first begins at 0.
        let mut ends = vec![0i32; joint.merged_len(main) + 1];
        let mut bytes = vec![0u8; main.total_weight() + joint.bytes];
        let mut of_main = vec![C::default(); main.len()];
        let mut of_delta = vec![C::default(); delta.len()];
        let first_byte = |part: &Part| main.offsets()[part.main.start] as usize + part.weight_before;
        let starts: Vec<usize> = joint.parts.iter().map(first_byte).chain([bytes.len()]).collect();
        let bytes_of = cut_slice(&mut bytes, starts.windows(2).map(|both| both[1] - both[0]));
        let targets = joint.targets(&mut ends[1..], &mut of_main, &mut of_delta);
        let jobs = targets.into_iter().zip(bytes_of).zip(&starts).collect();
        in_parallel(threads, jobs, |((target, bytes), start)| {
            let (part, first) = (target.part, target.part.first());
            let ends = std::cell::Cell::from_mut(target.merged).as_slice_of_cells();
            let bytes = std::cell::Cell::from_mut(bytes).as_slice_of_cells();
            let written = std::cell::Cell::new(0);
            let append = |string: &[u8]| {
                let at = written.get();
                for (target, byte) in bytes[at..at + string.len()].iter().zip(string) {
                    target.set(*byte);
                }
                written.set(at + string.len());
            };
            part.walk(
                &joint.places,
                |from, to| {
                    let own = from.start - part.main.start..from.end - part.main.start;
                    let offsets = &main.offsets()[from.start..=from.end];
                    let shift = (start + written.get()) as i32 - offsets[0];
                    append(&main.all_bytes()[offsets[0] as usize..offsets[from.len()] as usize]);
                    let ends = &ends[to - first..to - first + from.len()];
                    for ((end, translated), (offset, number)) in
                        ends.iter().zip(&mut target.main[own]).zip(offsets[1..].iter().zip(to as u64..))
                    {
                        end.set(offset + shift);
                        *translated = C::narrow(number);
                    }
                },
                |value, to, new| {
                    target.delta[value - part.delta.start] = C::narrow(to as u64);
                    if new {
                        append(delta.get(value));
                        ends[to - first].set((start + written.get()) as i32);
                    }
                },
            );
        });
        (Strings::new(ends, bytes), of_main, of_delta)
    }
}

/// The mapping from codes for one dictionary to codes for another.
#[derive(Debug)]
enum Translation {
    /// The codes are the same.
    Same,
    /// The codes are looked up.
    Table(Codes),
}

/// The result of merging two dictionaries.
struct Merged<S: Sorted + ?Sized> {
    /// `None` if it is main's dictionary.
    values: Option<S::Merged>,
    main: Translation,
    delta: Codes,
}

fn codes_of(width: CodeWidth, numbers: impl Iterator<Item = u64>) -> Codes {
    let highest = match width {
        CodeWidth::One => u8::HIGHEST,
        CodeWidth::Two => u16::HIGHEST,
        CodeWidth::Four => u32::HIGHEST,
        CodeWidth::Eight => u64::HIGHEST,
    };
    Codes::collect(highest, numbers)
}

/// Step 1b.
fn merge_sorted<S: Sorted + ?Sized>(main: &S, delta: &S, threads: usize) -> Result<Merged<S>, TooLarge> {
    let joint = join(main, delta, threads);
    let values = joint.merged_len(main);
    if values > MOST_VALUES || main.total_weight() + joint.bytes > MOST_STRING_BYTES {
        return Err(TooLarge);
    }
    let width = CodeWidth::for_highest(values.saturating_sub(1) as u64);
    if joint.values == 0 {
        let places = joint.places.iter().map(|place| u64::from(*place & !FOUND));
        return Ok(Merged { values: None, main: Translation::Same, delta: codes_of(width, places) });
    }
    fn write<S: Sorted + ?Sized, C: Code>(
        main: &S,
        delta: &S,
        joint: &Joint,
        threads: usize,
        codes: impl Fn(Vec<C>) -> Codes,
    ) -> Merged<S> {
        let (values, of_main, of_delta) = S::write::<C>(main, delta, joint, threads);
        let same = joint.appends(main.len());
        let of_main = if same { Translation::Same } else { Translation::Table(codes(of_main)) };
        Merged { values: Some(values), main: of_main, delta: codes(of_delta) }
    }
    Ok(match width {
        CodeWidth::One => write(main, delta, &joint, threads, |codes: Vec<u8>| Codes::One(codes.into())),
        CodeWidth::Two => write(main, delta, &joint, threads, |codes: Vec<u16>| Codes::Two(codes.into())),
        _ => write(main, delta, &joint, threads, |codes: Vec<u32>| Codes::Four(codes.into())),
    })
}

/// Looks up codes.
fn look_up<C: Code>(codes: &[C], table: &Codes) -> Codes {
    fn in_slice<C: Code, W: Code>(codes: &[C], table: &[W]) -> ScalarBuffer<W> {
        codes.iter().map(|code| table[code.number() as usize]).collect::<Vec<W>>().into()
    }
    match table {
        Codes::One(table) => Codes::One(in_slice(codes, table)),
        Codes::Two(table) => Codes::Two(in_slice(codes, table)),
        Codes::Four(table) => Codes::Four(in_slice(codes, table)),
        Codes::Eight(table) => Codes::Eight(in_slice(codes, table)),
    }
}

/// Codes for another dictionary, with the width that it needs.
fn translated(codes: &Codes, translation: &Translation, width: CodeWidth) -> Codes {
    match translation {
        Translation::Same if codes.width() == width => codes.clone(),
        Translation::Same => each_codes!(codes, codes => {
            codes_of(width, codes.iter().map(|code| code.number()))
        }),
        Translation::Table(table) => each_codes!(codes, codes => look_up(codes, table)),
    }
}

/// Delta's dictionary and its codes for it: step 1a.
pub struct DeltaDictionary {
    representation: Representation,
    values: DeltaValues,
    /// For each thread: the translation of its codes to those of all of delta.
    leaves: Vec<Vec<u32>>,
    pieces: Vec<DeltaPiece>,
}

enum DeltaValues {
    Two(Vec<i16>),
    Four(Vec<i32>),
    Eight(Vec<i64>),
    Sixteen(Vec<i128>),
    Strings(Strings),
}

struct DeltaPiece {
    leaf: usize,
    /// Codes for the leaf; 0 for NULLs.
    codes: Vec<u32>,
    nulls: Option<NullBuffer>,
}

/// The different values of some pieces, sorted, and codes for them.
type Leaf<M> = (M, Vec<Vec<u32>>);

/// Different values of delta, its leaves' codes, and its pieces.
type Collected<M> = (M, Vec<Vec<u32>>, Vec<DeltaPiece>);

impl DeltaDictionary {
    /// Finds the different values of a column's new blocks, on up to `threads` threads. Panics if they are
    /// not of the type, or if the type is boolean, which needs no dictionary.
    pub fn build(
        representation: Representation,
        pieces: &[Piece<'_>],
        threads: usize,
    ) -> Result<DeltaDictionary, TooLarge> {
        pieces.iter().for_each(|piece| piece.check(representation));
        // About the same number of slots for each thread.
        let slots: usize = pieces.iter().map(Piece::slots).sum();
        let leaves = threads.clamp(1, pieces.len().max(1));
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); leaves];
        let mut before = 0;
        for (number, piece) in pieces.iter().enumerate() {
            let middle = before + piece.slots() / 2;
            groups[(middle * leaves / slots.max(1)).min(leaves - 1)].push(number);
            before += piece.slots();
        }
        fn collected<S: Sorted + ?Sized>(
            pieces: &[Piece<'_>],
            groups: &[Vec<usize>],
            threads: usize,
            collect: impl Fn(&[Piece<'_>]) -> Option<Leaf<S::Merged>> + Sync,
        ) -> Result<Collected<S::Merged>, TooLarge> {
            let leaves = in_parallel(threads, groups.iter().collect(), |group| {
                let own: Vec<Piece<'_>> = group.iter().map(|number| pieces[*number]).collect();
                collect(&own)
            });
            let mut nodes = Vec::new();
            let mut tables = Vec::new();
            let mut collected: Vec<Option<DeltaPiece>> = pieces.iter().map(|_| None).collect();
            for (leaf, (values, group)) in leaves.into_iter().zip(groups).enumerate() {
                let (values, codes) = values.ok_or(TooLarge)?;
                for (number, codes) in group.iter().zip(codes) {
                    let nulls = kept_nulls(pieces[*number].nulls);
                    collected[*number] = Some(DeltaPiece { leaf, codes, nulls });
                }
                tables.push((0..S::of(&values).len() as u32).collect::<Vec<u32>>());
                nodes.push((values, vec![leaf]));
            }
            // In pairs, until one is left.
            while nodes.len() > 1 {
                let mut above = Vec::new();
                let mut rest = nodes.into_iter();
                while let Some((values, mut leaves)) = rest.next() {
                    let Some((others, more)) = rest.next() else {
                        above.push((values, leaves));
                        break;
                    };
                    let merged = merge_sorted(S::of(&values), S::of(&others), threads)?;
                    for leaf in &leaves {
                        if let Translation::Table(table) = &merged.main {
                            tables[*leaf]
                                .iter_mut()
                                .for_each(|code| *code = table.get(*code as usize) as u32);
                        }
                    }
                    for leaf in &more {
                        tables[*leaf]
                            .iter_mut()
                            .for_each(|code| *code = merged.delta.get(*code as usize) as u32);
                    }
                    leaves.extend(more);
                    above.push((merged.values.unwrap_or(values), leaves));
                }
                nodes = above;
            }
            let (values, _) = nodes.pop().expect("there is a leaf");
            Ok((
                values,
                tables,
                collected.into_iter().map(|piece| piece.expect("each piece is in a group")).collect(),
            ))
        }
        macro_rules! words {
            ($word:ty, $kind:ident) => {{
                let collect = |pieces: &[Piece<'_>]| Some(collect_words::<$word>(representation, pieces));
                let (values, leaves, pieces) = collected::<[$word]>(pieces, &groups, threads, collect)?;
                DeltaDictionary { representation, values: DeltaValues::$kind(values), leaves, pieces }
            }};
        }
        Ok(match representation.width() {
            Width::Bit => panic!("booleans need no dictionary"),
            Width::Fixed(2) => words!(i16, Two),
            Width::Fixed(4) => words!(i32, Four),
            Width::Fixed(8) => words!(i64, Eight),
            Width::Fixed(_) => words!(i128, Sixteen),
            Width::View => {
                let (values, leaves, pieces) =
                    collected::<Strings>(pieces, &groups, threads, collect_strings)?;
                DeltaDictionary { representation, values: DeltaValues::Strings(values), leaves, pieces }
            }
        })
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        match &self.values {
            DeltaValues::Two(ordinals) => ordinals.len(),
            DeltaValues::Four(ordinals) => ordinals.len(),
            DeltaValues::Eight(ordinals) => ordinals.len(),
            DeltaValues::Sixteen(ordinals) => ordinals.len(),
            DeltaValues::Strings(strings) => strings.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Merges it with the dictionary that the column has: step 1b. Panics if that is of another type.
    pub fn merge(self, main: Option<&Dictionary>, threads: usize) -> Result<Merge, TooLarge> {
        let DeltaDictionary { representation, values, leaves, pieces } = self;
        assert!(
            main.is_none_or(|main| main.representation() == representation),
            "a dictionary of another type"
        );
        fn words<T: ColumnWord>(
            representation: Representation,
            main: Option<&Dictionary>,
            delta: Vec<T>,
            threads: usize,
        ) -> Result<(Dictionary, Translation, Option<Codes>), TooLarge> {
            let new = |ordinals: Vec<T>| {
                T::into_dictionary(Arc::new(WordDictionary::new(representation, ordinals.into())))
            };
            let Some(main) = main else { return Ok((new(delta), Translation::Same, None)) };
            let ordinals = T::of_dictionary(main).expect("a dictionary of this width").ordinals();
            let merged = merge_sorted(ordinals, &delta[..], threads)?;
            Ok((merged.values.map_or_else(|| main.clone(), new), merged.main, Some(merged.delta)))
        }
        let (dictionary, of_main, of_delta) = match values {
            DeltaValues::Two(ordinals) => words(representation, main, ordinals, threads)?,
            DeltaValues::Four(ordinals) => words(representation, main, ordinals, threads)?,
            DeltaValues::Eight(ordinals) => words(representation, main, ordinals, threads)?,
            DeltaValues::Sixteen(ordinals) => words(representation, main, ordinals, threads)?,
            DeltaValues::Strings(delta) => {
                let new =
                    |strings| Dictionary::Strings(Arc::new(StringDictionary::new(representation, strings)));
                match main {
                    None => (new(delta), Translation::Same, None),
                    Some(Dictionary::Strings(dictionary)) => {
                        let merged = merge_sorted(&dictionary.strings, &delta, threads)?;
                        let merged_dictionary =
                            merged.values.map_or_else(|| Dictionary::Strings(dictionary.clone()), new);
                        (merged_dictionary, merged.main, Some(merged.delta))
                    }
                    Some(_) => unreachable!("the type is the same"),
                }
            }
        };
        let width = CodeWidth::for_highest(dictionary.len().saturating_sub(1) as u64);
        let leaves = leaves
            .into_iter()
            .map(|leaf| {
                let code = |code: u32| {
                    of_delta.as_ref().map_or(u64::from(code), |codes| codes.number(code as usize))
                };
                // A leaf of NULLs only has code 0 for all of them.
                let some = if leaf.is_empty() { &[0][..] } else { &[] };
                codes_of(width, leaf.iter().map(|rank| code(*rank)).chain(some.iter().copied()))
            })
            .collect();
        Ok(Merge { representation, old: main.cloned(), dictionary, main: of_main, leaves, delta: pieces })
    }
}

/// A merged dictionary, and the translations of main's and delta's codes: all that step 2 needs.
pub struct Merge {
    representation: Representation,
    old: Option<Dictionary>,
    dictionary: Dictionary,
    main: Translation,
    leaves: Vec<Codes>,
    delta: Vec<DeltaPiece>,
}

impl Merge {
    /// The merged dictionary. It is main's own if all of delta's values are in it.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Frees what [`Merge::delta`] needs.
    pub fn forget_delta(&mut self) {
        (self.leaves, self.delta) = (Vec::new(), Vec::new());
    }

    /// Whether a block of main has codes for the dictionary that was merged.
    pub fn concerns(&self, column: &EncodedColumn) -> bool {
        column.codes().is_some_and(|(_, dictionary)| self.old.as_ref().is_some_and(|old| old.is(&dictionary)))
    }

    fn width(&self) -> CodeWidth {
        CodeWidth::for_highest(self.dictionary.len().saturating_sub(1) as u64)
    }

    /// A block of main with codes for the merged dictionary. Panics if it has none for the one that was
    /// merged.
    pub fn main(&self, column: &EncodedColumn) -> EncodedColumn {
        let (codes, dictionary) = column.codes().expect("a column of codes");
        assert!(self.old.as_ref().is_some_and(|old| old.is(&dictionary)), "codes of another dictionary");
        let codes = translated(codes, &self.main, self.width());
        EncodedColumn::of_codes(
            self.representation,
            column.runs.clone(),
            column.nulls.clone(),
            codes,
            &self.dictionary,
        )
    }

    /// A block of delta, by its number among the given ones, with codes; with runs of them, if `runs`.
    pub fn delta(&self, number: usize, runs: bool) -> EncodedColumn {
        let piece = &self.delta[number];
        let leaf = &self.leaves[piece.leaf];
        let nulls = piece.nulls.as_ref();
        if !runs {
            let codes = look_up(&piece.codes, leaf);
            return EncodedColumn::of_codes(
                self.representation,
                None,
                nulls.cloned(),
                codes,
                &self.dictionary,
            );
        }
        let is_null = |slot| nulls.is_some_and(|nulls| nulls.is_null(slot));
        let ends = runs::ends(piece.codes.len(), |slot| match (is_null(slot - 1), is_null(slot)) {
            (false, false) => piece.codes[slot - 1] == piece.codes[slot],
            (before, now) => before == now,
        });
        let lasts = || ends.iter().map(|end| *end as usize - 1);
        let codes = codes_of(leaf.width(), lasts().map(|slot| leaf.number(piece.codes[slot] as usize)));
        let nulls = nulls.map(|nulls| NullBuffer::new(lasts().map(|slot| nulls.is_valid(slot)).collect()));
        EncodedColumn::of_codes(
            self.representation,
            Some(RunEnds::new(ends.clone())),
            nulls,
            codes,
            &self.dictionary,
        )
    }
}

impl Merge {
    /// A merge that gives blocks of main codes for a dictionary of only those values that they have; `None`
    /// if these are more than half.
    pub fn forgetting<'a>(
        dictionary: &Dictionary,
        main: impl IntoIterator<Item = &'a EncodedColumn>,
    ) -> Option<Merge> {
        let mut used = vec![false; dictionary.len()];
        for column in main {
            if let Some((codes, own)) = column.codes()
                && own.is(dictionary)
            {
                each_codes!(codes, codes => codes.iter().for_each(|code| used[code.number() as usize] = true));
            }
        }
        let left = used.iter().filter(|used| **used).count();
        if left * FORGETS_BELOW > used.len() {
            return None;
        }
        let mut next = 0;
        // No block has the codes of the others.
        let numbers = used.iter().map(|used| {
            next += u64::from(*used);
            next.saturating_sub(1)
        });
        let table = codes_of(CodeWidth::for_highest(left.saturating_sub(1) as u64), numbers);
        Some(Merge {
            representation: dictionary.representation(),
            old: Some(dictionary.clone()),
            dictionary: dictionary.only(&used),
            main: Translation::Table(table),
            leaves: Vec::new(),
            delta: Vec::new(),
        })
    }
}

/// A dictionary is reduced if at most one in this many of its values is left.
const FORGETS_BELOW: usize = 2;

/// A column to merge.
pub struct ColumnToMerge<'a> {
    /// The type of its values.
    pub representation: Representation,
    /// Main's dictionary, if it has one.
    pub dictionary: Option<Dictionary>,
    /// Blocks of main with codes for it.
    pub main: &'a [EncodedColumn],
    /// New blocks, and which of them should have runs of codes.
    pub delta: &'a [(Piece<'a>, bool)],
}

/// A column after the merge.
pub struct MergedColumn {
    /// Main's dictionary from now on.
    pub dictionary: Dictionary,
    /// Blocks of main.
    pub main: Vec<EncodedColumn>,
    /// Blocks that were new.
    pub delta: Vec<EncodedColumn>,
}

/// The number of threads over columns, and the number within each column. Columns are processed in parallel
/// if there are at least twice as many as threads, so that few threads are idle during the last one.
/// Otherwise all threads work on one column, so that only one column's hash tables and translations are in
/// memory.
pub(crate) fn share_out(threads: usize, columns: usize) -> (usize, usize) {
    if columns >= 2 * threads { (threads, 1) } else { (1, threads) }
}

/// Merges columns, on up to `threads` threads.
pub fn merge_columns(columns: &[ColumnToMerge<'_>], threads: usize) -> Vec<Result<MergedColumn, TooLarge>> {
    let (over, within) = share_out(threads, columns.len());
    in_parallel(over, columns.iter().collect(), |column| {
        let pieces: Vec<Piece<'_>> = column.delta.iter().map(|(piece, _)| *piece).collect();
        let merge = DeltaDictionary::build(column.representation, &pieces, within)?
            .merge(column.dictionary.as_ref(), within)?;
        let main = in_parallel(within, column.main.iter().collect(), |block| merge.main(block));
        let delta = in_parallel(within, column.delta.iter().enumerate().collect(), |(number, (_, runs))| {
            merge.delta(number, *runs)
        });
        Ok(MergedColumn { dictionary: merge.dictionary, main, delta })
    })
}

/// After this many values it is known whether most of them differ.
const TRIED: usize = 1 << 13;

fn collect_words<T: ColumnWord>(representation: Representation, pieces: &[Piece<'_>]) -> Leaf<Vec<T>> {
    let order = Order::of(representation);
    let words = |piece: &Piece<'_>| T::of_source(&piece.values).expect("words of the type's width").len();
    debug_assert!(pieces.iter().map(words).sum::<usize>() <= u32::MAX as usize);
    let mut codes: Vec<Vec<u32>> = Vec::with_capacity(pieces.len());

    // By a hash table: at first, codes are in the order of appearance.
    let mut table: HashTable<(T, u32)> = HashTable::new();
    let mut ordinals: Vec<(T, u32)> = Vec::new();
    let mut seen = 0;
    'tried: {
        for piece in pieces {
            let words = T::of_source(&piece.values).expect("checked");
            let mut own = Vec::with_capacity(words.len());
            for (slots, chunk) in (0..).step_by(TRIED).zip(words.chunks(TRIED)) {
                own.extend(chunk.iter().enumerate().map(|(slot, word)| {
                    if piece.is_null(slots + slot) {
                        return 0;
                    }
                    seen += 1;
                    let ordinal = word.ordinal(order);
                    let entry = table.entry(
                        ordinal.hash(),
                        |(other, _)| *other == ordinal,
                        |(other, _)| other.hash(),
                    );
                    entry
                        .or_insert_with(|| {
                            let code = ordinals.len() as u32;
                            ordinals.push((ordinal, code));
                            (ordinal, code)
                        })
                        .get()
                        .1
                }));
                if seen >= TRIED && ordinals.len() > seen / 2 {
                    break 'tried;
                }
            }
            codes.push(own);
        }
        ordinals.sort_unstable_by_key(|(ordinal, _)| *ordinal);
        let mut ranks = vec![0; ordinals.len().max(1)];
        for (rank, (_, code)) in (0..).zip(&ordinals) {
            ranks[*code as usize] = rank;
        }
        for code in codes.iter_mut().flatten() {
            *code = ranks[*code as usize];
        }
        return (ordinals.into_iter().map(|(ordinal, _)| ordinal).collect(), codes);
    }

    // By sorting all of them.
    drop(table);
    ordinals.clear();
    codes.clear();
    let mut at = 0;
    for piece in pieces {
        let words = T::of_source(&piece.values).expect("checked");
        let valid = words.iter().enumerate().filter(|(slot, _)| !piece.is_null(*slot));
        ordinals.extend(valid.map(|(slot, word)| (word.ordinal(order), at + slot as u32)));
        at += words.len() as u32;
    }
    ordinals.sort_unstable_by_key(|(ordinal, _)| *ordinal);
    let mut all = vec![0; at as usize];
    let mut different: Vec<T> = Vec::with_capacity(ordinals.len());
    for (ordinal, slot) in ordinals {
        if different.last() != Some(&ordinal) {
            different.push(ordinal);
        }
        all[slot as usize] = different.len() as u32 - 1;
    }
    let mut rest = &all[..];
    for piece in pieces {
        let (own, others) = rest.split_at(piece.slots());
        codes.push(own.to_vec());
        rest = others;
    }
    (different, codes)
}

fn collect_strings(pieces: &[Piece<'_>]) -> Option<Leaf<Strings>> {
    let mut table: HashTable<(u64, &[u8], u32)> = HashTable::new();
    let mut different: Vec<(u64, &[u8], u32)> = Vec::new();
    let mut codes: Vec<Vec<u32>> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let Source::Strings(strings) = piece.values else { unreachable!("checked") };
        let mut code = |slot: usize| {
            if piece.is_null(slot) {
                return 0;
            }
            let string = strings[slot];
            let hash = hash_string(string);
            let same = |(other_hash, other, _): &(u64, &[u8], u32)| *other_hash == hash && *other == string;
            let entry = table.entry(hash, same, |(hash, _, _)| *hash);
            entry
                .or_insert_with(|| {
                    let code = different.len() as u32;
                    different.push((beginning(string), string, code));
                    (hash, string, code)
                })
                .get()
                .2
        };
        codes.push((0..strings.len()).map(&mut code).collect());
    }
    drop(table);
    different
        .sort_unstable_by(|(a, a_string, _), (b, b_string, _)| a.cmp(b).then_with(|| a_string.cmp(b_string)));
    let mut ranks = vec![0; different.len().max(1)];
    for (rank, (_, _, code)) in (0..).zip(&different) {
        ranks[*code as usize] = rank;
    }
    for code in codes.iter_mut().flatten() {
        *code = ranks[*code as usize];
    }
    let strings = Strings::collect(different.iter().map(|(_, string, _)| *string))?;
    Some((strings, codes))
}

/// The first 8 bytes as a number: strings whose numbers differ have the same order as these.
fn beginning(string: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = string.len().min(8);
    bytes[..length].copy_from_slice(&string[..length]);
    u64::from_be_bytes(bytes)
}

/// 64 bits that differ in all places for different strings.
pub(super) fn hash_string(string: &[u8]) -> u64 {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (chunks, rest) = string.as_chunks::<16>();
    let mut hash = string.len() as u64;
    for chunk in chunks {
        let [low, high] = *chunk.as_chunks::<8>().0 else { unreachable!("16 bytes are two words") };
        hash = fold(hash ^ word(&low), word(&high));
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let [low, high] = *last.as_chunks::<8>().0 else { unreachable!("16 bytes are two words") };
    fold(hash ^ word(&low), word(&high))
}
