//! The build side of a join: its rows, and where their keys are found.
//!
//! Rows are collected first and [indexed](KeyIndex) when all are there, so nothing is moved while it grows. Rows with a NULL in a key that
//! takes none are not indexed; mark joins find them in a list.

use crate::budget::Account;
use crate::columns::{Collection, Table};
use crate::expression::Expression;
use crate::keys::{KeyIndex, KeyLayout, Keys, rows_with_null};
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
    /// Its rows by their keys; `None` if all pairs are candidates.
    pub index: Option<KeyIndex>,
    matched: Vec<AtomicBool>,
    _account: Account,
}

impl Build {
    /// Notes that a row has had a partner.
    pub fn set_matched(&self, row: u32) {
        self.matched[row as usize].store(true, Ordering::Relaxed);
    }

    /// Whether a row has had a partner.
    pub fn is_matched(&self, row: u32) -> bool {
        self.matched[row as usize].load(Ordering::Relaxed)
    }
}

/// With fewer rows than this for each row of a vector, one thread indexes all.
const LEAST_TO_SHARE: usize = 8;

struct BuildSink {
    columns: Vec<usize>,
    expressions: Vec<Expression>,
    layout: KeyLayout,
    strict: Vec<bool>,
    rows: Collection,
    keys: Keys,
    /// Of the chunk that is being added.
    chunk_keys: Keys,
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
            chunk_keys: self.layout.none(),
            null_rows: Vec::new(),
            account: Account::new(&work.run.options.budget),
        }))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut sinks = super::own::<BuildSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        let others: Vec<BuildSink> = sinks.collect();
        all.rows.reserve(others.iter().map(|other| other.rows.rows()).sum());
        for other in others {
            let before = all.rows.rows() as u32;
            all.null_rows.extend(other.null_rows.iter().map(|row| before + row));
            all.keys.append(&other.keys);
            all.rows.append_all(&other.rows.finish());
            all.account.set(all.rows.memory() + all.keys.memory())?;
        }
        let BuildSink { rows, keys, null_rows, mut account, .. } = all;
        let count = rows.rows();
        let index = match self.layout.is_empty() {
            true => None,
            false => {
                account.add(KeyIndex::estimate(count))?;
                let least = LEAST_TO_SHARE * work.run.options.vector_rows;
                let threads = if count < least { 1 } else { work.run.options.workers };
                let check = || work.context.check_cancel();
                Some(KeyIndex::new(keys, &null_rows, threads, &check)?)
            }
        };
        let matched = if self.notes_matches { count } else { 0 };
        account.set(rows.memory() + index.as_ref().map_or(0, KeyIndex::memory) + matched)?;
        Ok(Arc::new(Build {
            table: rows.finish(),
            null_rows,
            index,
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
            self.layout.keys_into(&vectors, chunk.rows(), &mut self.chunk_keys);
            self.keys.append(&self.chunk_keys);
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
