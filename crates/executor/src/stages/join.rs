//! Joins: each row of a chunk with its partners on the build side.
//!
//! With equalities between both sides, candidates are found in a hash table; without, they are all pairs (a block-nested-loop join).
//! First all rows of a chunk are looked for there at once. Where keys of the build side are unique and there are no other conditions, that
//! is the join: its chunk goes on with its own columns uncopied, those of the build side beside them, and a narrower selection.
//!
//! Else candidates come in batches of one vector. Residual conditions see only the columns that they use, gathered for the
//! batch; rows that pass are gathered with the columns that go on. Semi, anti and mark joins gather nothing that goes on: they
//! narrow the selection of their chunk, or add one bit a row.
//!
//! Where the build side has not found room, rows whose partners may be in temporary files are put off, and joined at the end ([`parts`]).
//!
//! A mark is NULL if a condition is NULL for a pair and none is true. Rows of either side with a NULL in a key therefore meet
//! others than those with an equal key: those of their group, if some of the conditions are equalities that are never NULL,
//! such as those of a correlated `NOT IN`; else all.
//!
//! Cost of a probed row: its key (8 bytes), one cache line of the hash table, one of the keys for each row that is found, and for each
//! pair one of each column of the build side that goes on.

mod parts;

use self::parts::{JoinParts, Member, PartJoin};
use crate::columns::{NO_ROW, gather, gather_padded};
use crate::expression::{Conditions, Expression, truth};
use crate::keys::{KeyIndex, KeyLayout, Keys, NONE, rows_with_null};
use crate::pipeline::{Output, SlotId, Stage, StagePlan, Work};
use crate::sinks::{Build, SideWriter};
use crate::template::Template;
use arrow_buffer::{BooleanBuffer, NullBuffer};
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};
use firn_plan::faults::Fault;
use firn_plan::operator::JoinKind;
use firn_vector::{Chunk, Data, Selection, Vector};

/// A join, as the side that probes runs it.
pub struct JoinPlan {
    /// What is done with rows that have partners, and with those that have none.
    pub kind: JoinKind,
    /// Where the build side is kept.
    pub slot: SlotId,
    /// How the columns of this side lie.
    pub representations: Vec<Representation>,
    /// Those that conditions use or that go on: what is kept of rows that are put off.
    pub stored: Vec<usize>,
    /// The keys of this side, and how they are compared with those of the build side; no keys if all pairs are candidates.
    pub keys: Template<Vec<Expression>>,
    /// How keys are made.
    pub layout: KeyLayout,
    /// For each key whether NULL has no partner.
    pub strict: Vec<bool>,
    /// What candidates must meet beside equal keys.
    pub residual: Template<Conditions>,
    /// The columns that conditions use: of this side, then of the build side's table.
    pub used: (Vec<usize>, Vec<usize>),
    /// The columns of this side that go on.
    pub columns: Vec<usize>,
    /// The columns of the build side's table that go on.
    pub build_columns: Vec<usize>,
    /// How the build side's columns that go on lie.
    pub build_representations: Vec<Representation>,
    /// Whether pairs go on: with rows of the build side. Else it is only noted which of those have had a partner.
    pub gives_pairs: bool,
    /// Whether it is noted which rows of the build side have had a partner.
    pub notes_matches: bool,
    /// Then whether those go on at the end that have had one, else the others.
    pub matched_go_on: bool,
    /// Whether the first row with an equal key says all: of semi and anti joins without other conditions.
    pub first_is_enough: bool,
    /// For a mark join.
    pub mark: Option<MarkPlan>,
}

/// How the mark of a mark join is found.
pub struct MarkPlan {
    /// All conditions, over the columns that conditions use.
    pub conditions: Template<Conditions>,
    /// Whether the conditions are one equality of NULL-rejecting keys: then the mark is known from keys alone.
    pub is_one_key: bool,
    /// Equalities among the conditions that are never NULL, if there are some: the keys of this side. Those of the build side
    /// are in its shape.
    pub groups: Option<Template<Vec<Expression>>>,
    /// Whether the other conditions are one equality: then all rows of a group with a NULL on one side say the same.
    pub one_null_suffices: bool,
}

impl StagePlan for Arc<JoinPlan> {
    fn open(&self) -> Option<Box<dyn StagePlan>> {
        Some(Box::new(OpenJoin { plan: self.clone(), parts: Arc::new(JoinParts::default()) }))
    }

    fn start(&self, work: Work<'_>) -> Result<Box<dyn Stage>> {
        OpenJoin { plan: self.clone(), parts: Arc::new(JoinParts::default()) }.start(work)
    }
}

/// A join whose workers share what they have put off.
struct OpenJoin {
    plan: Arc<JoinPlan>,
    parts: Arc<JoinParts>,
}

impl StagePlan for OpenJoin {
    fn start(&self, _: Work<'_>) -> Result<Box<dyn Stage>> {
        let plan = &self.plan;
        Ok(Box::new(Join {
            keys: plan.keys.copy(),
            residual: plan.residual.copy(),
            mark: plan.mark.as_ref().map(|mark| mark.conditions.copy()).unwrap_or_default(),
            group_keys: plan
                .mark
                .as_ref()
                .and_then(|mark| mark.groups.as_ref())
                .map(Template::copy)
                .unwrap_or_default(),
            plan: plan.clone(),
            chunk_keys: plan.layout.none(),
            hashes: Vec::new(),
            build: None,
            probe: None,
            writer: None,
            parts: Member::new(&self.parts),
            part: None,
        }))
    }
}

struct Join {
    plan: Arc<JoinPlan>,
    keys: Vec<Expression>,
    residual: Conditions,
    mark: Conditions,
    /// The keys by which rows of the build side are grouped for a mark join, if they are.
    group_keys: Vec<Expression>,
    /// Of the chunk that is being looked for.
    chunk_keys: Keys,
    hashes: Vec<u64>,
    build: Option<Arc<Build>>,
    probe: Option<Probe>,
    /// Where rows are put off.
    writer: Option<SideWriter>,
    parts: Member,
    /// The part that is being joined, once all rows have come.
    part: Option<PartJoin>,
}

/// Where a chunk stands.
struct Probe {
    chunk: Chunk,
    /// The positions of its selected rows.
    positions: Vec<u16>,
    /// For each the first row of the build side with its key, or none, once the build side is there, if there are keys.
    found: Option<Vec<u32>>,
    /// Rows that have a NULL in a key that takes none.
    has_null: Option<Vec<bool>>,
    /// Where a NULL is compared within groups alone: the group of each row.
    groups: Option<ProbeGroups>,
    /// The row, by its number among the selected ones, and the next candidate of it.
    row: usize,
    next: Next,
    matched: Vec<bool>,
    /// Rows for which a condition was NULL.
    unknown: Vec<bool>,
    is_prepared: bool,
    /// Whether all candidates are in this build side, and not in others before it or behind.
    is_whole: bool,
}

/// The groups of the build side to which the rows of a chunk belong.
struct ProbeGroups {
    /// For each row the first row of its group among those with a NULL, or none.
    nulls: Vec<u32>,
    /// All rows by their group, and for each row the first one of its group, or none; only if a row of the chunk has a NULL.
    all: Option<(Arc<KeyIndex>, Vec<u32>)>,
}

/// The candidate that comes next.
#[derive(Clone, Copy)]
enum Next {
    /// The first one.
    First,
    /// A row with an equal key, by its number among these.
    Equal(usize),
    /// A row of the build side that has a NULL in its key, by its number among these.
    Null(usize),
    /// A row of the same group, by its number among these.
    InGroup(usize),
    /// Any row.
    Any(u32),
}

impl Stage for Join {
    fn push(&mut self, work: Work<'_>, chunk: Chunk) -> Result<Output> {
        let positions: Vec<u16> = match chunk.rows().positions() {
            Some(positions) => positions.to_vec(),
            None => (0..chunk.length()).map(|row| row as u16).collect(),
        };
        let count = positions.len();
        self.probe = Some(Probe {
            chunk,
            positions,
            found: None,
            has_null: None,
            groups: None,
            row: 0,
            next: Next::First,
            matched: vec![false; count],
            unknown: vec![false; count],
            is_prepared: false,
            is_whole: true,
        });
        self.resume(work)
    }

    fn resume(&mut self, work: Work<'_>) -> Result<Output> {
        let Some(build) = self.build(work) else { return Ok(Output::Blocked(self.plan.slot)) };
        if !build.facts.has_rows && matches!(self.plan.kind, JoinKind::Inner | JoinKind::Semi) {
            return Ok(Output::Done(None));
        }
        let mut probe = self.probe.take().expect("it has a chunk");
        if !probe.is_prepared {
            self.prepare(work, &mut probe, &build)?;
            if probe.positions.is_empty() {
                return Ok(Output::None);
            }
        }
        self.go_on(work, probe, &build)
    }

    fn end(&mut self, work: Work<'_>) -> Result<Output> {
        let Some(build) = self.build(work) else {
            // Rows of the build side may go on though no rows of this side have come.
            if self.plan.notes_matches {
                return Ok(Output::Blocked(self.plan.slot));
            }
            self.parts.leave(Vec::new());
            return Ok(Output::Done(None));
        };
        match &build.spilled {
            Some(spilled) => self.join_parts(work, spilled, build.facts),
            None => Ok(Output::Done(None)),
        }
    }
}

impl Join {
    /// The build side, once it is there.
    fn build(&mut self, work: Work<'_>) -> Option<Arc<Build>> {
        if self.build.is_none() {
            self.build = work.run.filled::<Build>(self.plan.slot);
        }
        self.build.clone()
    }

    /// Asks the next candidates of a chunk that has been looked for.
    fn go_on(&mut self, work: Work<'_>, mut probe: Probe, build: &Build) -> Result<Output> {
        if let (Some(_), Some(index)) = (&probe.found, &build.index) {
            let asks_nothing = self.plan.kind != JoinKind::Mark && self.residual.is_empty();
            if asks_nothing && !self.plan.first_is_enough && probe.is_whole && index.is_unique() {
                return Ok(self.with_partners(probe, build).map_or(Output::None, Output::Last));
            }
        }
        if probe.row == probe.positions.len() {
            return Ok(self.through(probe, build));
        }
        let pairs = candidates(&self.plan, &mut probe, build, work.run.options.vector_rows);
        let rows = self.judge(work, &mut probe, build, pairs)?;
        // The rest may be there at once: a step may come to nothing, but not to two chunks.
        let output = match (rows, probe.row == probe.positions.len()) {
            (Some(rows), _) => Output::Some(rows),
            (None, true) => return Ok(self.through(probe, build)),
            (None, false) => Output::Again,
        };
        self.probe = Some(probe);
        Ok(output)
    }

    /// A chunk whose candidates in this build side have all been asked.
    fn through(&mut self, probe: Probe, build: &Build) -> Output {
        match &mut self.part {
            Some(part) if !part.is_last() => {
                if self.plan.kind != JoinKind::Inner {
                    part.keep(&probe);
                }
                Output::None
            }
            _ => self.rest(probe, build).map_or(Output::None, Output::Last),
        }
    }

    fn prepare(&mut self, work: Work<'_>, probe: &mut Probe, build: &Build) -> Result<()> {
        probe.is_prepared = true;
        if self.keys.is_empty() {
            return match &build.spilled {
                Some(spilled) => self.put_off(work, probe, spilled),
                None => Ok(()),
            };
        }
        if !build.facts.has_rows {
            return Ok(());
        }
        let vectors = self
            .keys
            .iter_mut()
            .map(|key| key.evaluate(&work.scope(), &probe.chunk))
            .collect::<Result<Vec<_>>>()?;
        let strict: Vec<Vector> = vectors
            .iter()
            .zip(&self.plan.strict)
            .filter(|(_, strict)| **strict)
            .map(|(vector, _)| vector.clone())
            .collect();
        probe.has_null = rows_with_null(&strict, probe.chunk.rows());
        self.plan.layout.keys_into(&vectors, probe.chunk.rows(), &mut self.chunk_keys);
        if let Some(spilled) = &build.spilled {
            self.put_off(work, probe, spilled)?;
        }
        self.look_up(work, probe, build)
    }

    /// Looks for the rows of a chunk, whose keys have been made.
    fn look_up(&mut self, work: Work<'_>, probe: &mut Probe, build: &Build) -> Result<()> {
        let index = build.index.as_ref().expect("a build side with keys has an index");
        let mut found = Vec::with_capacity(self.chunk_keys.len());
        index.find_all(&self.chunk_keys, &mut self.hashes, &mut found);
        // The key of a row with a NULL means nothing.
        let of_nulls = found.iter_mut().zip(probe.has_null.iter().flatten());
        of_nulls.filter(|(_, has_null)| **has_null).for_each(|(found, _)| *found = NONE);
        if Fault::NullInAntiJoin.is_made() && self.plan.kind == JoinKind::Anti {
            let has_null: Vec<bool> = (0..found.len()).map(|row| probe.has_null(row)).collect();
            probe.matched = has_null;
        }
        if self.plan.first_is_enough || self.plan.mark.as_ref().is_some_and(|mark| mark.is_one_key) {
            let is_found = probe.matched.iter_mut().zip(&found);
            is_found.for_each(|(matched, found)| *matched |= *found != NONE);
            probe.row = probe.positions.len();
        }
        probe.found = Some(found);
        self.look_up_groups(work, probe, build)
    }

    /// Looks for the groups of the rows of a chunk, if a row of either side has a NULL.
    fn look_up_groups(&mut self, work: Work<'_>, probe: &mut Probe, build: &Build) -> Result<()> {
        let Some(groups) = &build.groups else { return Ok(()) };
        let has_null = probe.has_null.as_ref().is_some_and(|has_null| has_null.contains(&true));
        if !has_null && build.null_rows.is_empty() {
            return Ok(());
        }
        let keys = groups.keys(work, &mut self.group_keys, &probe.chunk)?;
        let mut find = |index: &KeyIndex| {
            let mut found = Vec::with_capacity(keys.len());
            index.find_all(&keys, &mut self.hashes, &mut found);
            found
        };
        let nulls = find(groups.nulls());
        let all = match has_null {
            false => None,
            true => {
                let index = groups.all(work, &build.table)?;
                let found = find(&index);
                Some((index, found))
            }
        };
        probe.groups = Some(ProbeGroups { nulls, all });
        Ok(())
    }

    /// What goes on for a chunk of which each row has at most one partner, about which nothing is asked.
    fn with_partners(&self, probe: Probe, build: &Build) -> Option<Chunk> {
        let Probe { chunk, positions, found, .. } = probe;
        let (kind, length) = (self.plan.kind, chunk.length());
        let mut found = found.expect("rows have been looked for");
        if self.plan.notes_matches {
            found.iter().filter(|partner| **partner != NONE).for_each(|partner| build.set_matched(*partner));
        }
        if kind == JoinKind::Inner && !self.plan.gives_pairs {
            return None;
        }
        let own = self.plan.columns.iter().map(|place| &chunk.vectors()[*place]);
        let of_build = self.plan.build_columns.iter().map(|place| &build.table.vectors()[*place]);
        // The partner of each row of the chunk, selected or not.
        let spread = |found: &[u32], of_others: u32| {
            let mut partners = vec![of_others; length];
            let pairs = positions.iter().zip(found);
            pairs.for_each(|(position, partner)| partners[usize::from(*position)] = *partner);
            partners
        };
        if kind != JoinKind::Inner {
            let partners = if positions.len() == length { found } else { spread(&found, NO_ROW) };
            let of_build = of_build.map(|vector| gather_padded(vector, &partners));
            let chunk_of_all = Chunk::new(length, own.cloned().chain(of_build).collect());
            return Some(chunk_of_all.with_selection(chunk.selection().cloned()));
        }
        let pairs = positions.iter().zip(&found).filter(|(_, partner)| **partner != NONE);
        let kept: Vec<u16> = pairs.map(|(position, _)| *position).collect();
        if kept.is_empty() {
            return None;
        }
        if kept.len() * 2 < length {
            // Few rows: copies are cheaper than columns of which most is not read.
            found.retain(|partner| *partner != NONE);
            let own = own.map(|vector| vector.take(kept.iter().map(|position| usize::from(*position))));
            let of_build = of_build.map(|vector| gather(vector, &found));
            return Some(Chunk::new(kept.len(), own.chain(of_build).collect()));
        }
        let partners = match kept.len() == length {
            true => found,
            false => {
                let any = *found.iter().find(|partner| **partner != NONE).expect("some row has a partner");
                found.iter_mut().filter(|partner| **partner == NONE).for_each(|partner| *partner = any);
                spread(&found, any)
            }
        };
        let of_build = of_build.map(|vector| gather(vector, &partners));
        let selection = (kept.len() < length).then(|| Selection::new(kept));
        Some(Chunk::new(length, own.cloned().chain(of_build).collect()).with_selection(selection))
    }

    /// Asks conditions of candidates. The rows that go on for them, if any do.
    fn judge(
        &mut self,
        work: Work<'_>,
        probe: &mut Probe,
        build: &Build,
        pairs: Pairs,
    ) -> Result<Option<Chunk>> {
        let kind = self.plan.kind;
        if pairs.rows.is_empty() {
            return Ok(None);
        }
        let conditions = if kind == JoinKind::Mark { &mut self.mark } else { &mut self.residual };
        let mut pairs = pairs;
        if !conditions.is_empty() {
            let (own, of_build) = &self.plan.used;
            let own = own.iter().map(|place| {
                probe.chunk.vectors()[*place].take(pairs.rows.iter().map(|row| probe.position(*row)))
            });
            let of_build =
                of_build.iter().map(|place| gather(&build.table.vectors()[*place], &pairs.partners));
            let chunk = Chunk::new(pairs.rows.len(), own.chain(of_build).collect());
            if kind == JoinKind::Mark {
                let found = conditions.truth(&work.scope(), &chunk)?;
                for (number, row) in pairs.rows.iter().enumerate() {
                    match truth(&found, number) {
                        Some(true) => probe.matched[*row as usize] = true,
                        None => probe.unknown[*row as usize] = true,
                        Some(false) => {}
                    }
                }
                return Ok(None);
            }
            let chunk = conditions.select(&work.scope(), chunk)?;
            if let Some(selection) = chunk.selection() {
                pairs.retain(selection.positions());
            }
        }
        for row in &pairs.rows {
            let matched = &mut probe.matched[*row as usize];
            if *matched && kind == JoinKind::Single {
                return Err(more_than_one_row());
            }
            *matched = true;
        }
        if self.plan.notes_matches {
            pairs.partners.iter().for_each(|partner| build.set_matched(*partner));
        }
        if !self.plan.gives_pairs || pairs.rows.is_empty() {
            return Ok(None);
        }
        let own = self.plan.columns.iter().map(|place| {
            probe.chunk.vectors()[*place].take(pairs.rows.iter().map(|row| probe.position(*row)))
        });
        let of_build = build.table.gather(self.plan.build_columns.iter().copied(), &pairs.partners);
        Ok(Some(Chunk::new(pairs.rows.len(), own.chain(of_build).collect())))
    }

    /// What goes on for a chunk when all its candidates have been asked.
    fn rest(&self, probe: Probe, build: &Build) -> Option<Chunk> {
        let own = |chunk: &Chunk| -> Vec<Vector> {
            self.plan.columns.iter().map(|place| chunk.vectors()[*place].clone()).collect()
        };
        let length = probe.chunk.length();
        let mut vectors = own(&probe.chunk);
        let wanted = match self.plan.kind {
            JoinKind::Inner => return None,
            JoinKind::Semi => true,
            JoinKind::Anti => false,
            JoinKind::Left | JoinKind::Full | JoinKind::Single => {
                let pads = self.plan.build_representations.iter();
                vectors.extend(pads.map(|it| Vector::null(*it, length)));
                false
            }
            JoinKind::Mark => {
                vectors.push(self.marks(&probe, build));
                return Some(Chunk::new(length, vectors).with_selection(probe.chunk.selection().cloned()));
            }
        };
        let positions: Vec<u16> = probe
            .positions
            .iter()
            .zip(&probe.matched)
            .filter(|(_, matched)| **matched == wanted)
            .map(|(position, _)| *position)
            .collect();
        (!positions.is_empty())
            .then(|| Chunk::new(length, vectors).with_selection(Some(Selection::new(positions))))
    }

    fn marks(&self, probe: &Probe, build: &Build) -> Vector {
        let length = probe.chunk.length();
        let is_one_key = self.plan.mark.as_ref().is_some_and(|mark| mark.is_one_key);
        let (mut values, mut valid) = (vec![false; length], vec![true; length]);
        for (row, position) in probe.positions.iter().enumerate() {
            let of_keys =
                is_one_key && build.facts.has_rows && (build.facts.has_nulls || probe.has_null(row));
            values[usize::from(*position)] = probe.matched[row];
            valid[usize::from(*position)] = probe.matched[row] || !(probe.unknown[row] || of_keys);
        }
        let validity = valid.contains(&false).then(|| NullBuffer::new(valid.iter().copied().collect()));
        let values: BooleanBuffer = values.into_iter().collect();
        Vector::flat(Representation::Boolean, Data::Boolean(values), validity)
    }
}

#[cold]
pub(crate) fn more_than_one_row() -> Error {
    let message = "more than one row returned by a subquery used as an expression";
    Error::new(SqlState::CARDINALITY_VIOLATION, message)
}

impl Probe {
    fn position(&self, row: u32) -> usize {
        usize::from(self.positions[row as usize])
    }

    fn has_null(&self, row: usize) -> bool {
        self.has_null.as_ref().is_some_and(|has_null| has_null[row])
    }

    /// The rows of the build side with a NULL that a row is compared with, by their numbers among these.
    fn null_rows<'a>(&'a self, row: usize, build: &'a Build) -> NullRows<'a> {
        match (&self.groups, &build.groups) {
            (Some(own), Some(groups)) if own.nulls[row] != NONE => {
                NullRows::OfGroup(groups.nulls().rows(&own.nulls[row]))
            }
            (_, Some(_)) => NullRows::OfGroup(&[]),
            (_, None) => NullRows::All,
        }
    }

    fn next_row(&mut self) {
        (self.row, self.next) = (self.row + 1, Next::First);
    }
}

/// Rows of the build side with a NULL.
enum NullRows<'a> {
    All,
    /// Some of them, by their numbers.
    OfGroup(&'a [u32]),
}

impl NullRows<'_> {
    fn get(&self, number: usize, build: &Build) -> Option<u32> {
        match self {
            NullRows::All => build.null_rows.get(number).copied(),
            NullRows::OfGroup(numbers) => numbers.get(number).map(|number| build.null_rows[*number as usize]),
        }
    }
}

/// Candidates: rows by their number among the selected ones, and rows of the build side.
struct Pairs {
    rows: Vec<u32>,
    partners: Vec<u32>,
}

impl Pairs {
    fn retain(&mut self, numbers: &[u16]) {
        self.rows = numbers.iter().map(|number| self.rows[usize::from(*number)]).collect();
        self.partners = numbers.iter().map(|number| self.partners[usize::from(*number)]).collect();
    }
}

/// The next candidates, of at most so many.
fn candidates(plan: &JoinPlan, probe: &mut Probe, build: &Build, most: usize) -> Pairs {
    let most = most.min(1 << 16);
    let mut pairs = Pairs { rows: Vec::with_capacity(most), partners: Vec::with_capacity(most) };
    let total = build.table.rows() as u32;
    let is_mark = plan.kind == JoinKind::Mark;
    let one_key = plan.mark.as_ref().is_some_and(|mark| mark.is_one_key);
    let one_null_suffices = plan.mark.as_ref().is_some_and(|mark| mark.one_null_suffices);
    // Whether one partner suffices, and a partner needs not be asked anything.
    let one_suffices = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti | JoinKind::Mark);
    let notes_only =
        plan.notes_matches && !plan.gives_pairs && plan.used.0.is_empty() && plan.used.1.is_empty();
    let found = probe.found.take();
    let index = || -> &KeyIndex { build.index.as_ref().expect("a build side with keys has an index") };
    while probe.row < probe.positions.len() && pairs.rows.len() < most {
        let row = probe.row;
        if one_suffices && probe.matched[row] {
            probe.next_row();
            continue;
        }
        // Where a key is compared with a NULL, there is no partner any more.
        if probe.unknown[row] && (probe.has_null(row) || matches!(probe.next, Next::Null(_))) {
            probe.next_row();
            continue;
        }
        let candidate = match (&found, probe.next) {
            (None, Next::First) => Next::Any(0),
            (Some(found), Next::First) => match probe.has_null(row) {
                // What a NULL is compared with matters only to a mark.
                true if is_mark && !one_key && build.groups.is_some() => Next::InGroup(0),
                true if is_mark && !one_key => Next::Any(0),
                false if found[row] != NONE => Next::Equal(0),
                false if is_mark && !one_key => Next::Null(0),
                _ => {
                    probe.next_row();
                    continue;
                }
            },
            (_, next) => next,
        };
        match candidate {
            Next::First => unreachable!("it has just been replaced"),
            Next::Any(partner) => {
                // A stretch of rows at once.
                let room = if plan.first_is_enough { 1 } else { most - pairs.rows.len() };
                let stretch = (total - partner).min(room as u32);
                pairs.rows.extend(std::iter::repeat_n(row as u32, stretch as usize));
                pairs.partners.extend(partner..partner + stretch);
                match partner + stretch < total && !plan.first_is_enough {
                    true => probe.next = Next::Any(partner + stretch),
                    false => probe.next_row(),
                }
            }
            Next::Equal(number) => {
                let Some(found) = &found else { panic!("rows have been looked for") };
                let equal = &index().rows(&found[row])[number..];
                // Rows with one key are noted together.
                if notes_only && number == 0 && build.is_matched(equal[0]) {
                    probe.next_row();
                    continue;
                }
                let stretch = equal.len().min(most - pairs.rows.len());
                pairs.rows.extend(std::iter::repeat_n(row as u32, stretch));
                pairs.partners.extend_from_slice(&equal[..stretch]);
                match stretch < equal.len() {
                    true => probe.next = Next::Equal(number + stretch),
                    false if is_mark => probe.next = Next::Null(0),
                    false => probe.next_row(),
                }
            }
            Next::Null(number) => match probe.null_rows(row, build).get(number, build) {
                Some(partner) => {
                    pairs.rows.push(row as u32);
                    pairs.partners.push(partner);
                    match one_null_suffices {
                        true => probe.next_row(),
                        false => probe.next = Next::Null(number + 1),
                    }
                }
                None => probe.next_row(),
            },
            Next::InGroup(number) => {
                let all = probe.groups.as_ref().and_then(|groups| groups.all.as_ref());
                let (index, of_all) = all.expect("a row has a NULL");
                let rows = if of_all[row] == NONE { &[][..] } else { &index.rows(&of_all[row])[number..] };
                let room = if one_null_suffices { 1 } else { most - pairs.rows.len() };
                let stretch = rows.len().min(room);
                pairs.rows.extend(std::iter::repeat_n(row as u32, stretch));
                pairs.partners.extend_from_slice(&rows[..stretch]);
                match stretch < rows.len() && !one_null_suffices {
                    true => probe.next = Next::InGroup(number + stretch),
                    false => probe.next_row(),
                }
            }
        }
    }
    probe.found = found;
    pairs
}
