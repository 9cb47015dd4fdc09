//! Sorting: rows and their keys are collected, then the keys are sorted and the rows gathered in that order.
//!
//! A row costs its columns once, its key (16 bytes, or its bytes), and 4 bytes for its place; a comparison reads keys alone. With
//! a limit, rows that cannot be among the first are left out: once twice as many have come as are wanted, the others are dropped,
//! and from then on rows behind the last one are not collected at all. Where the first rows of each partition are wanted, a
//! [hash table](FirstOfEach) of partitions finds those that are not.
//!
//! Equal rows keep the order in which they came. Where memory does not suffice, sorted runs go to temporary files
//! and are merged as they are read.

use super::first_of_each::FirstOfEach;
use super::runs::SortedRun;
use crate::budget::Account;
use crate::columns::{Collection, Table};
use crate::keys::list::ByteKeys;
use crate::keys::{KeyLayout, Keys};
use crate::pipeline::{Sink, SinkPlan, Work};
use crate::stages::LimitBounds;
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Selection, Vector};
use std::any::Any;

/// What is sorted.
pub struct SortPlan {
    /// How the columns of the input lie; all are kept.
    pub representations: Vec<Representation>,
    /// The positions of the order's columns.
    pub columns: Vec<usize>,
    /// Their keys.
    pub layout: KeyLayout,
    /// Which rows are kept.
    pub keep: Keep,
}

/// Which rows of an order are kept.
pub enum Keep {
    /// All.
    All,
    /// As many as a limit above lets pass.
    First(Box<Template<LimitBounds>>),
    /// The first of each group that is equal in some columns, by which the order begins. Their keys need not have an order.
    FirstOfEach(Vec<usize>, KeyLayout),
}

/// Rows in an order.
pub enum Sorted {
    /// In memory: the rows, and their places, the first first.
    Memory {
        /// The rows.
        table: Table,
        /// Their places.
        order: Vec<u32>,
        /// What they take.
        account: Account,
    },
    /// In temporary files, to be merged.
    Runs {
        /// The runs.
        runs: Arc<Vec<SortedRun>>,
        /// How the columns lie.
        representations: Vec<Representation>,
        /// How their keys are made.
        layout: KeyLayout,
        /// The columns of groups of which the first row alone is kept.
        first_of: Option<(Vec<usize>, KeyLayout)>,
    },
}

/// Rows that are being collected to be sorted, by one worker.
pub(super) struct SortSink {
    columns: Vec<usize>,
    layout: KeyLayout,
    representations: Vec<Representation>,
    /// Those in memory, and their keys.
    pub rows: Collection,
    pub keys: Keys,
    wanted: Wanted,
    /// Those in temporary files.
    pub runs: Vec<SortedRun>,
    pub account: Account,
}

/// Which of the rows that are sorted are wanted.
enum Wanted {
    All,
    /// So many of the first ones. The last key that is wanted, once so many have come.
    First(usize, Option<Keys>),
    /// The first ones of each partition.
    FirstOfEach(Box<FirstOfEach>),
}

/// With fewer rows than this nothing is dropped early.
const LEAST_TO_DROP: usize = 4096;

impl SinkPlan for SortPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        let limit = match &self.keep {
            Keep::All => None,
            Keep::First(bounds) => {
                let (count, offset) = bounds.copy().evaluate(work)?;
                count.map(|count| (count.saturating_add(offset) as usize, None))
            }
            Keep::FirstOfEach(_, layout) => Some((1, Some(layout.clone()))),
        };
        let (columns, layout) = (self.columns.clone(), self.layout.clone());
        Ok(Box::new(SortSink::new(work, self.representations.clone(), columns, layout, limit)))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut all = SortSink::of_all(work, sinks)?;
        let extra = all.rows.rows() * 24;
        if all.runs.is_empty()
            && let Err(error) = all.account.add(extra)
        {
            all.spill(work, error)?;
        }
        if !all.runs.is_empty() {
            if all.rows.rows() > 0 {
                all.write_run(work)?;
            }
            let first_of = match &self.keep {
                Keep::FirstOfEach(columns, layout) => Some((columns.clone(), layout.clone())),
                _ => None,
            };
            return Ok(Arc::new(Sorted::Runs {
                runs: Arc::new(all.runs),
                representations: self.representations.clone(),
                layout: self.layout.clone(),
                first_of,
            }));
        }
        let mut order = sorted(&all.keys, work)?;
        if let Wanted::First(limit, _) = all.wanted {
            order.truncate(limit);
        }
        let SortSink { rows, account, .. } = all;
        let table = rows.finish();
        if let Keep::FirstOfEach(columns, layout) = &self.keep {
            let vectors: Vec<Vector> = columns.iter().map(|place| table.vectors()[*place].clone()).collect();
            let keys = layout.keys(&vectors, Rows::all(table.rows()));
            order.dedup_by(|next, before| keys.get(*next as usize) == keys.get(*before as usize));
        }
        Ok(Arc::new(Sorted::Memory { table, order, account }))
    }
}

impl SortSink {
    /// No rows of columns that lie like this, to be sorted by some of them. With a limit so many of the first rows are wanted: of all, or
    /// of each partition by the first columns of the order, of which keys are given that need not have an order.
    pub fn new(
        work: Work<'_>,
        representations: Vec<Representation>,
        columns: Vec<usize>,
        layout: KeyLayout,
        limit: Option<(usize, Option<KeyLayout>)>,
    ) -> SortSink {
        let wanted = match limit {
            None => Wanted::All,
            Some((count, Some(partition))) if count > 0 && !partition.is_empty() => {
                Wanted::FirstOfEach(Box::new(FirstOfEach::new(count, partition)))
            }
            Some((count, _)) => Wanted::First(count, None),
        };
        SortSink {
            columns,
            rows: Collection::new(representations.iter().copied()),
            representations,
            keys: layout.none(),
            layout,
            wanted,
            runs: Vec::new(),
            account: Account::new(&work.run.options.budget),
        }
    }

    /// The rows of all workers.
    pub fn of_all(work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<SortSink> {
        let mut sinks = super::own::<SortSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        all.keep_wanted(work)?;
        for mut other in sinks {
            other.keep_wanted(work)?;
            all.runs.append(&mut other.runs);
            all.keys.append(&other.keys);
            all.rows.append_all(&other.rows.finish());
            all.grow_or_spill(work)?;
        }
        Ok(all)
    }

    /// Drops the rows that are not the first of their partitions, and what says so. It may be that not all others are wanted: those of other
    /// workers may come before them.
    fn keep_wanted(&mut self, work: Work<'_>) -> Result<()> {
        if let Wanted::FirstOfEach(_) = &self.wanted {
            self.drop_others(work)?;
            self.wanted = Wanted::All;
            self.account.set(self.rows.memory() + self.keys.memory())?;
        }
        Ok(())
    }

    /// Adds those rows of a chunk that may be wanted.
    fn add(&mut self, work: Work<'_>, mut chunk: Chunk) -> Result<()> {
        let vectors: Vec<Vector> = self.columns.iter().map(|place| chunk.vectors()[*place].clone()).collect();
        let keys = self.layout.keys(&vectors, chunk.rows());
        match &mut self.wanted {
            Wanted::First(_, Some(last)) => {
                let (last, mut number, mut positions) = (last.get(0), 0, Vec::new());
                chunk.rows().each(|row| {
                    // An equal one that comes later is behind it.
                    if keys.get(number) < last {
                        positions.push(row as u16);
                        self.keys.push(keys.get(number));
                    }
                    number += 1;
                });
                chunk = chunk.with_selection(Some(Selection::new(positions)));
            }
            Wanted::FirstOfEach(first) => {
                let positions = first.choose(&vectors, chunk.rows(), &keys, &mut self.keys);
                chunk = chunk.with_selection(Some(Selection::new(positions)));
            }
            Wanted::All | Wanted::First(..) => self.keys.append(&keys),
        }
        self.rows.append(chunk.vectors(), chunk.rows());
        let wanted = match &self.wanted {
            Wanted::All => return Ok(()),
            Wanted::First(limit, _) => *limit,
            Wanted::FirstOfEach(first) => first.kept(),
        };
        match self.rows.rows() >= wanted.saturating_mul(2).max(LEAST_TO_DROP) {
            true => self.drop_others(work),
            false => Ok(()),
        }
    }

    /// States what it keeps. What there is no memory for goes to a temporary file, if there may be one.
    fn grow_or_spill(&mut self, work: Work<'_>) -> Result<()> {
        if work.run.options.always_spill && self.rows.rows() > 0 {
            return self.write_run(work);
        }
        let of_partitions = match &self.wanted {
            Wanted::FirstOfEach(first) => first.memory(),
            _ => 0,
        };
        match self.account.set(self.rows.memory() + self.keys.memory() + of_partitions) {
            Ok(()) => Ok(()),
            Err(error) => self.spill(work, error),
        }
    }

    /// Writes what it has, for which there is no memory, if there may be temporary files.
    pub fn spill(&mut self, work: Work<'_>, error: Error) -> Result<()> {
        match work.run.options.spill {
            Some(_) if self.rows.rows() > 0 => self.write_run(work),
            _ => Err(error),
        }
    }

    /// Writes what it has as a sorted run.
    pub fn write_run(&mut self, work: Work<'_>) -> Result<()> {
        let area = work.run.options.spill.as_ref().expect("there may be temporary files");
        self.drop_others(work)?;
        let order = sorted(&self.keys, work)?;
        let empty = Collection::new(self.representations.iter().copied());
        let table = std::mem::replace(&mut self.rows, empty).finish();
        let keys = std::mem::replace(&mut self.keys, self.layout.none());
        self.runs.push(SortedRun::write(work, area.create()?, &table, &keys, &order)?);
        if let Wanted::FirstOfEach(first) = &mut self.wanted {
            first.clear();
        }
        self.account.set(0)
    }

    /// Drops rows that are not wanted, as far as that is known.
    fn drop_others(&mut self, work: Work<'_>) -> Result<()> {
        let kept = match &mut self.wanted {
            Wanted::FirstOfEach(first) if first.kept() < self.rows.rows() => first.compact(),
            Wanted::First(limit, last) if *limit < self.rows.rows() => {
                let mut order = sorted(&self.keys, work)?;
                order.truncate(*limit);
                *last = order.last().map(|row| {
                    let mut last = self.layout.none();
                    last.push(self.keys.get(*row as usize));
                    last
                });
                order
            }
            _ => return Ok(()),
        };
        let rows = std::mem::replace(&mut self.rows, Collection::new(self.representations.iter().copied()));
        let rows = rows.finish();
        self.rows.append(&rows.gather(0..rows.vectors().len(), &kept), Rows::all(kept.len()));
        let keys = std::mem::replace(&mut self.keys, self.layout.none());
        self.keys.push_all(&keys, &kept);
        Ok(())
    }
}

impl Sink for SortSink {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        if let Wanted::First(0, _) = self.wanted {
            return Ok(false);
        }
        self.add(work, chunk)?;
        self.grow_or_spill(work)?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Keys are sorted in runs of so many, between which a cancel is noticed.
const RUN: usize = 1 << 16;

/// The places of keys in their order; equal ones as they came.
pub(super) fn sorted(keys: &Keys, work: Work<'_>) -> Result<Vec<u32>> {
    assert!(keys.len() < u32::MAX as usize, "numbers of rows have 32 bits");
    match keys {
        Keys::Words(words) => sorted_words(words, work),
        Keys::Wide(words) => sorted_words(words, work),
        Keys::Double(words) => sorted_words(words, work),
        Keys::Bytes(keys) => sorted_bytes(keys, work),
        Keys::Records(_) => panic!("records have no order"),
    }
}

/// Most keys differ in their first bytes, which lie beside the number of their row.
fn sorted_bytes(keys: &ByteKeys, work: Work<'_>) -> Result<Vec<u32>> {
    let first = |key: &[u8]| match key.first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut first = [0; 16];
            first[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(first)
        }
    };
    let mut pairs: Vec<(u128, u32)> = (0..keys.len()).map(|row| (first(keys.get(row)), row as u32)).collect();
    let rest = |row: u32| keys.get(row as usize);
    in_runs(&mut pairs, work, |(left, of_left), (right, of_right)| {
        left.cmp(right).then_with(|| rest(*of_left).cmp(rest(*of_right))).then(of_left.cmp(of_right))
    })?;
    Ok(pairs.into_iter().map(|(_, row)| row).collect())
}

fn sorted_words<W: Copy + Ord>(words: &[W], work: Work<'_>) -> Result<Vec<u32>> {
    let mut pairs: Vec<(W, u32)> = words.iter().enumerate().map(|(row, key)| (*key, row as u32)).collect();
    in_runs(&mut pairs, work, |left, right| left.cmp(right))?;
    Ok(pairs.into_iter().map(|(_, row)| row).collect())
}

/// Sorts items, which are all different: runs first, then pairs of runs, and so on.
fn in_runs<T: Copy>(
    items: &mut Vec<T>,
    work: Work<'_>,
    compare: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Result<()> {
    for run in items.chunks_mut(RUN) {
        work.context.check_cancel()?;
        run.sort_unstable_by(&compare);
    }
    let (mut length, mut merged) = (RUN, Vec::new());
    while length < items.len() {
        merged.reserve(items.len());
        for pair in items.chunks(2 * length) {
            let (mut left, mut right) = pair.split_at(length.min(pair.len()));
            while let (Some(one), Some(other)) = (left.first(), right.first()) {
                if merged.len() % RUN == 0 {
                    work.context.check_cancel()?;
                }
                match compare(one, other).is_le() {
                    true => {
                        merged.push(*one);
                        left = &left[1..];
                    }
                    false => {
                        merged.push(*other);
                        right = &right[1..];
                    }
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(items, &mut merged);
        merged.clear();
        length *= 2;
    }
    Ok(())
}
