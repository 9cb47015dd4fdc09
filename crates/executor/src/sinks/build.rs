//! The build side of a join: its rows, and a hash table over their keys.
//!
//! ```text
//! heads   4 bytes a bucket, twice as many buckets as rows at least: the first row of the bucket
//! next    4 bytes a row: the row behind it in its bucket
//! keys    16 bytes a row, or their bytes
//! ```
//!
//! Rows are collected first and linked when all are there, so nothing is moved while it grows. Rows with a NULL in a key that
//! takes none are not linked; mark joins find them in a list.

use crate::budget::Account;
use crate::columns::{Collection, Table};
use crate::expression::Expression;
use crate::keys::{Key, KeyLayout, Keys, rows_with_null};
use crate::pipeline::{Sink, SinkPlan, Template, Work};
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Representation, Result};
use firn_vector::{Chunk, Vector};
use std::any::Any;

/// What is kept of the build side.
pub struct BuildPlan {
    /// The columns that are kept.
    pub columns: Vec<usize>,
    /// How they lie.
    pub representations: Vec<Representation>,
    /// The keys; none if all pairs are candidates.
    pub keys: Template<Vec<Expression>>,
    /// How keys are made.
    pub layout: KeyLayout,
    /// For each key whether NULL has no partner.
    pub strict: Vec<bool>,
    /// Whether it is noted which rows have had a partner.
    pub notes_matches: bool,
}

/// A build side.
pub struct Build {
    /// Its rows.
    pub table: Table,
    /// The rows that have a NULL in a key that takes none.
    pub null_rows: Vec<u32>,
    keys: Keys,
    heads: Vec<u32>,
    next: Vec<u32>,
    matched: Vec<AtomicBool>,
    _account: Account,
}

const NONE: u32 = u32::MAX;

impl Build {
    /// The first row with a key.
    #[inline]
    pub fn first(&self, key: Key<'_>, hash: u64) -> Option<u32> {
        let head = *self.heads.get(bucket(hash, self.heads.len()))?;
        self.equal_from(head, key)
    }

    /// The row with the same key behind another one.
    #[inline]
    pub fn next(&self, row: u32, key: Key<'_>, _: u64) -> Option<u32> {
        self.equal_from(self.next[row as usize], key)
    }

    #[inline]
    fn equal_from(&self, mut row: u32, key: Key<'_>) -> Option<u32> {
        while row != NONE {
            if self.keys.get(row as usize) == key {
                return Some(row);
            }
            row = self.next[row as usize];
        }
        None
    }

    /// Notes that a row has had a partner.
    pub fn set_matched(&self, row: u32) {
        self.matched[row as usize].store(true, Ordering::Relaxed);
    }

    /// Whether a row has had a partner.
    pub fn is_matched(&self, row: u32) -> bool {
        self.matched[row as usize].load(Ordering::Relaxed)
    }
}

#[inline]
fn bucket(hash: u64, buckets: usize) -> usize {
    (hash >> 20) as usize & buckets.wrapping_sub(1)
}

struct BuildSink {
    columns: Vec<usize>,
    expressions: Vec<Expression>,
    layout: KeyLayout,
    strict: Vec<bool>,
    rows: Collection,
    keys: Keys,
    null_rows: Vec<u32>,
    account: Account,
}

impl SinkPlan for BuildPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(BuildSink {
            columns: self.columns.clone(),
            expressions: self.keys.copy(),
            layout: self.layout.clone(),
            strict: self.strict.clone(),
            rows: Collection::new(self.representations.iter().copied()),
            keys: self.layout.none(),
            null_rows: Vec::new(),
            account: Account::new(&work.run.options.budget),
        }))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut sinks = super::own::<BuildSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        for other in sinks {
            let before = all.rows.rows() as u32;
            all.null_rows.extend(other.null_rows.iter().map(|row| before + row));
            all.keys.append(&other.keys);
            all.rows.append_all(&other.rows.finish());
            all.account.set(all.rows.memory() + all.keys.memory())?;
        }
        let BuildSink { rows, keys, null_rows, mut account, .. } = all;
        let count = rows.rows();
        assert!(count < NONE as usize, "numbers of rows have 32 bits");
        let (mut heads, mut next) = (Vec::new(), Vec::new());
        if !self.layout.is_empty() {
            let buckets = (count * 2).next_power_of_two();
            account.add(buckets * 4 + count * 12)?;
            (heads, next) = (vec![NONE; buckets], vec![NONE; count]);
            let hashes = keys.hashes();
            // From the last row on, so that rows with one key are found in the order in which they came.
            let mut left_out = null_rows.iter().rev().copied().peekable();
            for (row, hash) in hashes.into_iter().enumerate().rev() {
                if left_out.next_if_eq(&(row as u32)).is_some() {
                    continue;
                }
                let head = &mut heads[bucket(hash, buckets)];
                next[row] = std::mem::replace(head, row as u32);
                if row % (1 << 16) == 0 {
                    work.context.check_cancel()?;
                }
            }
        }
        let matched = if self.notes_matches { count } else { 0 };
        Ok(Arc::new(Build {
            table: rows.finish(),
            null_rows,
            keys,
            heads,
            next,
            matched: (0..matched).map(|_| AtomicBool::new(false)).collect(),
            _account: account,
        }))
    }
}

impl Sink for BuildSink {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        let before = self.rows.rows() as u32;
        if !self.layout.is_empty() {
            let vectors = self
                .expressions
                .iter_mut()
                .map(|key| key.evaluate(&work.scope(), &chunk))
                .collect::<Result<Vec<_>>>()?;
            self.keys.append(&self.layout.keys(&vectors, chunk.rows()));
            let strict = vectors.iter().zip(&self.strict).filter(|(_, strict)| **strict);
            let strict: Vec<Vector> = strict.map(|(vector, _)| vector.clone()).collect();
            if let Some(has_null) = rows_with_null(&strict, chunk.rows()) {
                let nulls = has_null.iter().enumerate().filter(|(_, has_null)| **has_null);
                self.null_rows.extend(nulls.map(|(row, _)| before + row as u32));
            }
        }
        self.rows.append(self.columns.iter().map(|place| &chunk.vectors()[*place]), chunk.rows());
        self.account.set(self.rows.memory() + self.keys.memory())?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
