//! The build side of a join: its rows, and where their keys are found.
//!
//! Rows are collected first and [indexed](KeyIndex) when all are there, so nothing is moved while it grows. Rows with a NULL in a key that
//! takes none are not indexed; mark joins find them in a list.
//!
//! Where memory does not suffice, rows go to temporary files, split by the hash of their key ([`Partitions`]). At the end some parts
//! are read back and indexed: those are joined as if they were all. The rows of the other side that belong to other parts are put
//! off, and these parts are joined one after the other when all have come ([`crate::stages`]): a hybrid hash join, see G. Graefe,
//! "Query Evaluation Techniques for Large Databases", ACM Computing Surveys 25(2), 1993, section 5.2. Rows that have no
//! hash to be split by, such as those of joins without equalities, are one part.

use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::{Collection, Table};
use crate::expression::Expression;
use crate::keys::{KeyIndex, KeyLayout, Keys, rows_with_null};
use crate::partitions::{PARTS, PartRows, Partitions, part_of};
use crate::pipeline::{Sink, SinkPlan, Work};
use crate::sinks::groups::{GroupShape, Groups, INDEX_BYTES};
use crate::spill::SpillArea;
use crate::template::Template;
use arrow_buffer::BooleanBuffer;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{Error, Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Data, Datum, Vector};
use std::any::Any;

/// What is kept of the build side.
pub struct BuildPlan {
    /// The columns that are kept.
    pub columns: Vec<usize>,
    /// The keys; none if all pairs are candidates.
    pub keys: Template<Vec<Expression>>,
    /// For each key whether NULL has no partner.
    pub strict: Vec<bool>,
    /// What its rows are.
    pub shape: Arc<BuildShape>,
}

/// What the rows of a build side are.
pub struct BuildShape {
    /// How the columns that are kept lie.
    pub representations: Vec<Representation>,
    /// How keys are made.
    pub layout: KeyLayout,
    /// Whether it is noted which rows have had a partner.
    pub notes_matches: bool,
    /// Whether rows with a NULL in a key that takes none matter: as rows, not only that there are some.
    pub keeps_nulls: bool,
    /// Whether rows find their partners among those with the same hash, and need not meet others.
    pub is_divided: bool,
    /// The keys that say which rows meet those with a NULL in other keys; `None` if these meet all.
    pub groups: Option<GroupShape>,
}

/// A build side, or a part of one.
pub struct Build {
    /// Its rows in memory.
    pub table: Table,
    /// The rows that have a NULL in a key that takes none.
    pub null_rows: Vec<u32>,
    /// Its rows by their keys; `None` if all pairs are candidates.
    pub index: Option<KeyIndex>,
    /// Its rows by the keys of groups, if the join has some.
    pub groups: Option<Groups>,
    /// What is known of all rows, in memory or not.
    pub facts: BuildFacts,
    /// The rows that are in temporary files, if some are.
    pub spilled: Option<SpilledBuild>,
    matched: Vec<AtomicBool>,
    _account: Account,
}

/// What is known of all rows of a build side.
#[derive(Clone, Copy, Default)]
pub struct BuildFacts {
    /// Whether there are rows.
    pub has_rows: bool,
    /// Whether some have a NULL in a key that takes none.
    pub has_nulls: bool,
}

/// The rows of a build side that are in temporary files.
pub struct SpilledBuild {
    /// What they are.
    pub shape: Arc<BuildShape>,
    /// The parts.
    pub parts: Arc<Vec<PartRows>>,
    /// How many rows all parts had, with those that have been read back.
    pub rows: u64,
    /// Which parts these are.
    is_stored: [bool; PARTS],
    /// The rows that are known to go on when their part has been joined: those with a partner, or those without.
    pub rest: Mutex<Option<RowBuffer>>,
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

impl SpilledBuild {
    /// Whether the partners of a row whose key has this hash are in temporary files.
    pub fn has_part_of(&self, hash: u64) -> bool {
        !self.shape.is_divided || self.is_stored[part_of(hash, 0)]
    }
}

/// With fewer rows than this for each row of a vector, one thread indexes all.
const LEAST_TO_SHARE: usize = 8;

/// What a row takes in both indexes of groups.
const GROUP_BYTES: usize = 2 * INDEX_BYTES;

/// A part of a build side that is in memory has at least so many bytes; they are granted however little memory is left.
pub const LEAST_BYTES: usize = 256 << 10;

/// Rows of a build side that are being collected.
pub struct BuildRows {
    shape: Arc<BuildShape>,
    rows: Collection,
    keys: Keys,
    null_rows: Vec<u32>,
    account: Account,
}

impl BuildRows {
    fn new(work: Work<'_>, shape: &Arc<BuildShape>) -> BuildRows {
        BuildRows {
            shape: shape.clone(),
            rows: Collection::new(shape.representations.iter().copied()),
            keys: shape.layout.none(),
            null_rows: Vec::new(),
            account: Account::new(&work.run.options.budget),
        }
    }

    fn append<'a>(
        &mut self,
        vectors: impl IntoIterator<Item = &'a Vector>,
        rows: Rows<'_>,
        keys: &Keys,
        has_null: Option<&[bool]>,
    ) {
        let before = self.rows.rows() as u32;
        self.keys.append(keys);
        let nulls = has_null.into_iter().flatten().enumerate().filter(|(_, has_null)| **has_null);
        self.null_rows.extend(nulls.map(|(row, _)| before + row as u32));
        self.rows.append(vectors, rows);
    }

    fn memory(&self) -> usize {
        self.rows.memory() + self.keys.memory()
    }

    /// What an index of so many rows takes beside rows and keys.
    fn index_memory(&self, rows: usize) -> usize {
        let index = if self.shape.layout.is_empty() { 0 } else { KeyIndex::estimate(rows) };
        let groups = if self.shape.groups.is_some() { GROUP_BYTES * rows } else { 0 };
        index + groups + if self.shape.notes_matches { rows } else { 0 }
    }

    /// Indexes them.
    fn finish(self, work: Work<'_>, facts: BuildFacts, spilled: Option<SpilledBuild>) -> Result<Build> {
        let BuildRows { shape, rows, keys, null_rows, mut account } = self;
        let count = rows.rows();
        let index = match shape.layout.is_empty() {
            true => None,
            false => {
                let least = LEAST_TO_SHARE * work.run.options.vector_rows;
                let threads = if count < least { 1 } else { work.run.options.workers };
                let check = || work.context.check_cancel();
                Some(KeyIndex::new(keys, &null_rows, threads, &check)?)
            }
        };
        let matched = if shape.notes_matches { count } else { 0 };
        let groups = if shape.groups.is_some() { GROUP_BYTES * count } else { 0 };
        let bytes = rows.memory() + index.as_ref().map_or(0, KeyIndex::memory) + matched + groups;
        // What it takes has been estimated; a little more is not refused.
        account.give_back(account.bytes().saturating_sub(bytes));
        let table = rows.finish();
        let groups = Groups::new(work, &shape, &table, &null_rows)?;
        Ok(Build {
            table,
            null_rows,
            index,
            groups,
            facts,
            spilled,
            matched: (0..matched).map(|_| AtomicBool::new(false)).collect(),
            _account: account,
        })
    }

    /// Appends the rows of a block of a part.
    fn append_block(&mut self, part: &PartRows, number: usize) -> Result<()> {
        let (chunk, keys) = part.block(number)?;
        let (nulls, vectors) =
            chunk.vectors().split_last().expect("which rows have a NULL is the last column");
        let has_null = stored_nulls(nulls);
        let none = self.shape.layout.none();
        self.append(vectors, chunk.rows(), keys.as_ref().unwrap_or(&none), has_null.as_deref());
        Ok(())
    }

    /// Reads rows of a part from a block on, as many as there is memory for, but some. Which block is the next.
    pub fn read(
        work: Work<'_>,
        shape: &Arc<BuildShape>,
        part: Option<&PartRows>,
        from: usize,
        facts: BuildFacts,
    ) -> Result<(Build, usize)> {
        let (mut rows, mut next) = (BuildRows::new(work, shape), from);
        if let Some(part) = part {
            while next < part.blocks() {
                work.context.check_cancel()?;
                rows.append_block(part, next)?;
                next += 1;
                let bytes = rows.memory() + rows.index_memory(rows.rows.rows());
                let is_full = rows.account.set(bytes).is_err() && bytes >= LEAST_BYTES;
                if is_full || work.run.options.always_spill {
                    break;
                }
            }
        }
        Ok((rows.finish(work, facts, None)?, next))
    }
}

/// Whether the rows of a part may be expected to fit the memory that is left.
pub fn is_readable(work: Work<'_>, shape: &BuildShape, part: &PartRows) -> bool {
    let index = if shape.layout.is_empty() { 0 } else { KeyIndex::estimate(part.rows() as usize) };
    let bytes = part.bytes() + index;
    bytes <= LEAST_BYTES || bytes as u64 <= work.run.options.budget.left()
}

/// Which rows of a temporary file have a NULL in a key that takes none; `None` if there are none.
pub fn stored_nulls(nulls: &Vector) -> Option<Vec<bool>> {
    let is_set = |row: usize| matches!(nulls.datum(row), Datum::Boolean(true));
    (0..nulls.len()).any(is_set).then(|| (0..nulls.len()).map(is_set).collect())
}

/// Writes rows of one side of a join to temporary files.
pub struct SideWriter {
    partitions: Partitions,
    is_divided: bool,
    has_keys: bool,
    /// How many rows with a NULL have come: they have no partner and may be in any part.
    nulls: u64,
}

impl SideWriter {
    /// Nothing has been written. `representations` are those of this side's columns.
    pub fn new(
        work: Work<'_>,
        area: &Arc<SpillArea>,
        shape: &BuildShape,
        representations: &[Representation],
        level: u32,
    ) -> Result<SideWriter> {
        let representations = representations.iter().copied().chain([Representation::Boolean]).collect();
        let has_keys = !shape.layout.is_empty();
        let keys = has_keys.then(|| shape.layout.none());
        // So that tests have several blocks.
        let block_rows = work.run.options.vector_rows;
        let partitions = Partitions::with_keys(area, representations, keys, level, block_rows)?;
        Ok(SideWriter { partitions, is_divided: shape.is_divided, has_keys, nulls: 0 })
    }

    /// Adds rows of vectors of one length, each with its key, and whether that has a NULL that has no partner.
    pub fn add(
        &mut self,
        mut vectors: Vec<Vector>,
        length: usize,
        positions: &[u16],
        keys: &Keys,
        has_null: Option<&[bool]>,
    ) -> Result<()> {
        let mut nulls = vec![false; length];
        for (position, has_null) in positions.iter().zip(has_null.unwrap_or_default()) {
            nulls[usize::from(*position)] = *has_null;
        }
        vectors.push(Vector::flat(
            Representation::Boolean,
            Data::Boolean(nulls.into_iter().collect::<BooleanBuffer>()),
            None,
        ));
        let hashes = match self.is_divided {
            false => vec![0; positions.len()],
            true => {
                let mut hashes = keys.hashes();
                for (hash, _) in
                    hashes.iter_mut().zip(has_null.unwrap_or_default()).filter(|(_, null)| **null)
                {
                    *hash = self.nulls;
                    self.nulls += 1;
                }
                hashes
            }
        };
        let keys = self.has_keys.then_some(keys);
        self.partitions.add_with_keys(&vectors, length, positions, &hashes, keys)
    }

    /// Adds all rows of a block that another one has written.
    pub fn add_block(&mut self, (chunk, keys): (Chunk, Option<Keys>)) -> Result<()> {
        let length = chunk.length();
        let mut vectors = chunk.into_vectors();
        let has_null = stored_nulls(&vectors.pop().expect("which rows have a NULL is the last column"));
        let positions: Vec<u16> = (0..length).map(|row| row as u16).collect();
        let keys = keys.expect("rows without keys are not divided");
        self.add(vectors, length, &positions, &keys, has_null.as_deref())
    }

    /// The parts that have rows.
    pub fn finish(self) -> Result<Vec<PartRows>> {
        self.partitions.finish()
    }
}

struct BuildSink {
    columns: Vec<usize>,
    expressions: Vec<Expression>,
    strict: Vec<bool>,
    shape: Arc<BuildShape>,
    collected: BuildRows,
    /// Of the chunk that is being added.
    chunk_keys: Keys,
    /// Where rows go once there is no memory for more.
    writer: Option<SideWriter>,
    /// Of the rows that have been written.
    facts: BuildFacts,
}

impl SinkPlan for BuildPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(BuildSink {
            columns: self.columns.clone(),
            expressions: self.keys.copy(),
            strict: self.strict.clone(),
            collected: BuildRows::new(work, &self.shape),
            chunk_keys: self.shape.layout.none(),
            shape: self.shape.clone(),
            writer: None,
            facts: BuildFacts::default(),
        }))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let mut sinks = super::own::<BuildSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        let mut others: Vec<BuildSink> = sinks.collect();
        let is_spilled = all.writer.is_some() || others.iter().any(|other| other.writer.is_some());
        if !is_spilled {
            let more = others.iter().map(|other| other.collected.rows.rows()).sum();
            all.collected.rows.reserve(more);
            while all.writer.is_none()
                && let Some(other) = others.pop()
            {
                all.merge(work, other)?;
            }
        }
        if all.writer.is_none() && others.is_empty() {
            let rows = &mut all.collected;
            let count = rows.rows.rows();
            let bytes = rows.memory() + rows.index_memory(count);
            match rows.account.set(bytes) {
                Ok(()) => {
                    let facts = BuildFacts { has_rows: count > 0, has_nulls: !rows.null_rows.is_empty() };
                    return Ok(Arc::new(all.collected.finish(work, facts, None)?));
                }
                Err(error) => all.spill(work, error)?,
            }
        }
        others.push(all);
        self.finish_spilled(work, others).map(|build| Arc::new(build) as _)
    }
}

impl BuildPlan {
    /// Reads as many parts back as a half of the memory that is left has room for.
    fn finish_spilled(&self, work: Work<'_>, sinks: Vec<BuildSink>) -> Result<Build> {
        let (mut parts, mut facts) = (Vec::<PartRows>::new(), BuildFacts::default());
        for mut sink in sinks {
            sink.write_collected(work)?;
            facts.has_rows |= sink.facts.has_rows;
            facts.has_nulls |= sink.facts.has_nulls;
            for part in sink.writer.map(SideWriter::finish).transpose()?.unwrap_or_default() {
                match parts.iter_mut().find(|own| own.number() == part.number()) {
                    Some(own) => own.append(part),
                    None => parts.push(part),
                }
            }
        }
        parts.sort_by_key(PartRows::number);
        let all_rows = parts.iter().map(PartRows::rows).sum();
        let mut rows = BuildRows::new(work, &self.shape);
        let (mut room, mut left) = (work.run.options.budget.left() as usize / 2, Vec::new());
        for part in parts {
            // Values may take twice as much in memory.
            let expected = 2 * part.bytes() + rows.index_memory(part.rows() as usize);
            let is_read = match work.run.options.always_spill {
                true => part.number() % 2 == 1,
                false => expected <= room && rows.account.add(expected).is_ok(),
            };
            if !is_read {
                left.push(part);
                continue;
            }
            room = room.saturating_sub(expected);
            for number in 0..part.blocks() {
                work.context.check_cancel()?;
                rows.append_block(&part, number)?;
            }
        }
        let mut is_stored = [false; PARTS];
        left.iter().for_each(|part: &PartRows| is_stored[part.number()] = true);
        let spilled = (!left.is_empty()).then(|| SpilledBuild {
            shape: self.shape.clone(),
            parts: Arc::new(left),
            rows: all_rows,
            is_stored,
            rest: Mutex::new(None),
        });
        rows.finish(work, facts, spilled)
    }
}

impl BuildSink {
    /// Takes over the rows of another worker.
    fn merge(&mut self, work: Work<'_>, other: BuildSink) -> Result<()> {
        let (own, other) = (&mut self.collected, other.collected);
        let before = own.rows.rows() as u32;
        own.null_rows.extend(other.null_rows.iter().map(|row| before + row));
        own.keys.append(&other.keys);
        own.rows.append_all(&other.rows.finish());
        own.account.take(other.account);
        self.grow_or_spill(work)
    }

    /// States what it keeps. What there is no memory for goes to temporary files, if there may be some.
    fn grow_or_spill(&mut self, work: Work<'_>) -> Result<()> {
        let bytes = self.collected.memory();
        match self.collected.account.set(bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.spill(work, error),
        }
    }

    fn spill(&mut self, work: Work<'_>, error: Error) -> Result<()> {
        if work.run.options.spill.is_none() {
            return Err(error);
        }
        self.write_collected(work)
    }

    /// Writes the rows that are in memory.
    fn write_collected(&mut self, work: Work<'_>) -> Result<()> {
        let collected = std::mem::replace(&mut self.collected, BuildRows::new(work, &self.shape));
        let BuildRows { rows, keys, null_rows, account, .. } = collected;
        let table = rows.finish();
        let mut has_null = vec![false; if null_rows.is_empty() { 0 } else { table.rows() }];
        null_rows.iter().for_each(|row| has_null[*row as usize] = true);
        let most = work.run.options.vector_rows;
        let mut of_chunk = self.shape.layout.none();
        for from in (0..table.rows()).step_by(most) {
            work.context.check_cancel()?;
            let count = most.min(table.rows() - from);
            of_chunk.clear();
            if !keys.is_empty() {
                let numbers: Vec<u32> = (from..from + count).map(|row| row as u32).collect();
                of_chunk.push_all(&keys, &numbers);
            }
            let vectors = table.slice(0..table.vectors().len(), from, count);
            let nulls = has_null.get(from..from + count);
            self.write(work, vectors, Rows::all(count), &of_chunk, nulls)?;
        }
        drop(account);
        Ok(())
    }

    /// Writes rows with their keys.
    fn write(
        &mut self,
        work: Work<'_>,
        vectors: Vec<Vector>,
        rows: Rows<'_>,
        keys: &Keys,
        has_null: Option<&[bool]>,
    ) -> Result<()> {
        let mut positions: Vec<u16> = Vec::with_capacity(rows.count());
        rows.each(|row| positions.push(row as u16));
        self.facts.has_rows |= !positions.is_empty();
        self.facts.has_nulls |= has_null.is_some_and(|has_null| has_null.contains(&true));
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let area = work.run.options.spill.as_ref().expect("there may be temporary files");
                let representations = &self.shape.representations;
                self.writer.insert(SideWriter::new(work, area, &self.shape, representations, 0)?)
            }
        };
        let Some(has_null) = has_null.filter(|has_null| !self.shape.keeps_nulls && has_null.contains(&true))
        else {
            return writer.add(vectors, rows.length(), &positions, keys, has_null);
        };
        // Rows with a NULL have no partner, and nothing asks for them.
        let kept: Vec<u32> = (0..positions.len() as u32).filter(|row| !has_null[*row as usize]).collect();
        let positions: Vec<u16> = kept.iter().map(|row| positions[*row as usize]).collect();
        let mut of_kept = self.shape.layout.none();
        of_kept.push_all(keys, &kept);
        writer.add(vectors, rows.length(), &positions, &of_kept, None)
    }
}

impl Sink for BuildSink {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        let mut has_null = None;
        if !self.shape.layout.is_empty() {
            let vectors = self
                .expressions
                .iter_mut()
                .map(|key| key.evaluate(&work.scope(), &chunk))
                .collect::<Result<Vec<_>>>()?;
            self.shape.layout.keys_into(&vectors, chunk.rows(), &mut self.chunk_keys);
            let strict = vectors.iter().zip(&self.strict).filter(|(_, strict)| **strict);
            let strict: Vec<Vector> = strict.map(|(vector, _)| vector.clone()).collect();
            has_null = rows_with_null(&strict, chunk.rows());
        }
        let vectors = self.columns.iter().map(|place| &chunk.vectors()[*place]);
        if self.writer.is_some() {
            let keys = std::mem::replace(&mut self.chunk_keys, self.shape.layout.none());
            self.write(work, vectors.cloned().collect(), chunk.rows(), &keys, has_null.as_deref())?;
            self.chunk_keys = keys;
            return Ok(true);
        }
        self.collected.append(vectors, chunk.rows(), &self.chunk_keys, has_null.as_deref());
        match work.run.options.always_spill {
            true => self.write_collected(work)?,
            false => self.grow_or_spill(work)?,
        }
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
