//! Index joins: each row of a chunk with the rows that an index of the right side finds for it.
//!
//! Keys of many rows are looked up together, up to about one vector of rows found; those are read with the columns that go on
//! or that conditions use, and all conditions are asked of the pairs. What is not looked up is not read.

use crate::expression::{Conditions, Expression};
use crate::pipeline::{Output, Stage, StagePlan, Work};
use crate::source::Lookup;
use crate::stages::join::more_than_one_row;
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_plan::operator::JoinKind;
use firn_vector::{Chunk, Selection, Vector};

/// An index join.
pub struct IndexJoinPlan {
    /// What is done with rows that have partners, and with those that have none.
    pub kind: JoinKind,
    /// The number of the look-up in the program.
    pub lookup: usize,
    /// What a row is looked up by, in the order of the look-up's attributes.
    pub keys: Template<Vec<Expression>>,
    /// What pairs must meet: over the left columns in `used`, then all columns of the look-up.
    pub conditions: Template<Conditions>,
    /// The left columns that conditions use.
    pub used: Vec<usize>,
    /// The left columns that go on.
    pub columns: Vec<usize>,
    /// The columns of the look-up that go on, and how they lie.
    pub right_columns: Vec<(usize, Representation)>,
}

impl StagePlan for Arc<IndexJoinPlan> {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        Ok(Box::new(IndexJoin {
            keys: self.keys.copy(),
            conditions: self.conditions.copy(),
            lookup: work.run.lookup(self.lookup).clone(),
            plan: self.clone(),
            probe: None,
        }))
    }
}

struct IndexJoin {
    plan: Arc<IndexJoinPlan>,
    keys: Vec<Expression>,
    conditions: Conditions,
    lookup: Arc<dyn Lookup>,
    probe: Option<Probe>,
}

/// Where a chunk stands.
struct Probe {
    chunk: Chunk,
    /// The positions of its selected rows.
    positions: Vec<u16>,
    keys: Vec<Vector>,
    /// How many of the rows have been looked up.
    looked_up: usize,
    /// What was found for the last ones: a row by its number among the selected ones, and its partner.
    found: Vec<(u32, u64)>,
    /// How many of these have been read.
    read: usize,
    matched: Vec<bool>,
}

impl Stage for IndexJoin {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        let positions: Vec<u16> = match chunk.rows().positions() {
            Some(positions) => positions.to_vec(),
            None => (0..chunk.length()).map(|row| row as u16).collect(),
        };
        let keys = self.keys.iter_mut().map(|key| key.evaluate(&work.scope(), &chunk));
        let keys = keys.collect::<Result<_>>()?;
        let matched = vec![false; positions.len()];
        self.probe =
            Some(Probe { chunk, positions, keys, looked_up: 0, found: Vec::new(), read: 0, matched });
        self.resume(work)
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        let mut probe = self.probe.take().expect("it has a chunk");
        let most = work.run.options.vector_rows;
        if probe.read == probe.found.len() && probe.looked_up < probe.positions.len() {
            (probe.read, probe.found) = (0, Vec::new());
            let rest = &probe.positions[probe.looked_up..];
            let rows = self.lookup.find(&probe.keys, rest, most, &mut probe.found)?;
            let first = probe.looked_up as u32;
            probe.found.iter_mut().for_each(|(row, _)| *row += first);
            probe.looked_up += rows;
        }
        let end = probe.found.len().min(probe.read + most);
        let rows = match probe.read < end {
            true => self.read(work, &mut probe, end)?,
            false => None,
        };
        // The rest may be there at once: a step may come to nothing, but not to two chunks.
        let is_through = probe.read == probe.found.len() && probe.looked_up == probe.positions.len();
        let output = match (rows, is_through) {
            (Some(rows), _) => Output::Some(rows),
            (None, true) => return Ok(self.rest(probe).map_or(Output::None, Output::Last)),
            (None, false) => Output::Again,
        };
        self.probe = Some(probe);
        Ok(output)
    }
}

impl IndexJoin {
    /// Reads rows that were found, up to one of them, and asks the conditions. What goes on for those that meet them.
    fn read(&mut self, work: Work<'_>, probe: &mut Probe, end: usize) -> Result<Option<Chunk>> {
        let kind = self.plan.kind;
        let (rows, partners): (Vec<u32>, Vec<u64>) = probe.found[probe.read..end].iter().copied().unzip();
        probe.read = end;
        let right = self.lookup.read(&partners)?;
        debug_assert_eq!(right.length(), rows.len());
        let position = |row: &u32| usize::from(probe.positions[*row as usize]);
        let left = |place: &usize| probe.chunk.vectors()[*place].take(rows.iter().map(position));
        let asked: Vec<Vector> =
            self.plan.used.iter().map(left).chain(right.vectors().iter().cloned()).collect();
        let asked = self.conditions.select(&work.scope(), Chunk::new(rows.len(), asked))?;
        let met: Vec<u16> = match asked.selection() {
            Some(selection) => selection.positions().to_vec(),
            None => (0..rows.len()).map(|row| row as u16).collect(),
        };
        for number in &met {
            let matched = &mut probe.matched[rows[usize::from(*number)] as usize];
            if *matched && kind == JoinKind::Single {
                return Err(more_than_one_row());
            }
            *matched = true;
        }
        if !kind.gives_right() || met.is_empty() {
            return Ok(None);
        }
        let right = self.plan.right_columns.iter().map(|(place, _)| right.vectors()[*place].clone());
        let vectors = self.plan.columns.iter().map(left).chain(right).collect();
        let chunk = Chunk::new(rows.len(), vectors);
        let all = met.len() == rows.len();
        Ok(Some(if all { chunk } else { chunk.with_selection(Some(Selection::new(met))) }))
    }

    /// What goes on for a chunk when all its partners have been asked.
    fn rest(&self, probe: Probe) -> Option<Chunk> {
        let wanted = match self.plan.kind {
            JoinKind::Inner => return None,
            JoinKind::Semi => true,
            JoinKind::Anti | JoinKind::Left | JoinKind::Single => false,
            JoinKind::Full | JoinKind::Mark => unreachable!("the verifier refuses these kinds"),
        };
        let rows = probe.positions.iter().zip(&probe.matched);
        let positions: Vec<u16> =
            rows.filter(|(_, matched)| **matched == wanted).map(|(position, _)| *position).collect();
        if positions.is_empty() {
            return None;
        }
        let length = probe.chunk.length();
        let mut vectors: Vec<Vector> =
            self.plan.columns.iter().map(|place| probe.chunk.vectors()[*place].clone()).collect();
        if self.plan.kind.gives_right() {
            vectors.extend(self.plan.right_columns.iter().map(|(_, it)| Vector::null(*it, length)));
        }
        Some(Chunk::new(length, vectors).with_selection(Some(Selection::new(positions))))
    }
}
