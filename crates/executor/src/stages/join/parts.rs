//! Joins of rows for which there was no memory: those that were put off, part by part.
//!
//! ```text
//! a task     rows of both sides with the same bits of the hash of their key, in temporary files
//! divided    into tasks by other bits, as long as its build side does not fit and more bits may help
//! joined     else: as many rows of the build side as fit are indexed and all rows of the other side are looked for there,
//!            then the next ones, and so on (a block-nested-loop join)
//! ```
//!
//! More bits do not help where one key has most of the rows, nor where rows do not find their partners by a hash. If a task takes more
//! than one round, two bits a row of the other side are kept from one to the next: whether it has had a partner, and whether a
//! condition was unknown. What goes on only once all partners are known goes on in the last round.
//!
//! Each worker writes what it puts off. When all have come to their ends, each takes tasks, as long as there are some. One that
//! starts later has no rows to put off any more, but may take tasks.

use super::{Join, JoinPlan, Next, Probe};
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::keys::Keys;
use crate::partitions::{MOST_LEVELS, PartRows};
use crate::pipeline::{Output, Work};
use crate::sinks::{Build, BuildFacts, BuildRows, BuildShape, LEAST_BYTES, SideWriter, SpilledBuild};
use crate::sinks::{is_readable, stored_nulls};
use arrow_buffer::BooleanBuffer;
use firn_base::Result;
use firn_base::sync::{Arc, Mutex};
use firn_plan::faults::Fault;
use firn_plan::operator::JoinKind;
use firn_vector::{Chunk, Selection, Vector};

/// What the workers of a join share.
#[derive(Default)]
pub(super) struct JoinParts(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    /// How many workers may still put rows off or make tasks.
    active: usize,
    put_off: Vec<PartRows>,
    /// What is to be joined, once all rows have come.
    tasks: Option<Vec<Task>>,
}

/// One of the workers.
pub(super) struct Member {
    parts: Arc<JoinParts>,
    /// Whether it may put rows off or make tasks.
    is_active: bool,
    has_ended: bool,
}

/// What a worker does next.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
enum Turn {
    Join(Task),
    /// Others may still put rows off or make tasks.
    Wait,
    /// There are no tasks for it.
    End,
}

impl Member {
    /// Counts a worker in.
    pub fn new(parts: &Arc<JoinParts>) -> Member {
        parts.0.lock().active += 1;
        Member { parts: parts.clone(), is_active: true, has_ended: false }
    }

    /// Counts it out, with what it has put off.
    pub fn leave(&mut self, put_off: Vec<PartRows>) {
        let mut shared = self.parts.0.lock();
        shared.put_off.extend(put_off);
        shared.active -= usize::from(self.is_active);
        (self.is_active, self.has_ended) = (false, true);
    }

    /// The next task, when all rows have come. What makes tasks of them is called once.
    fn next(&mut self, begin: impl FnOnce(Vec<PartRows>) -> Result<Vec<Task>>) -> Result<Turn> {
        let mut shared = self.parts.0.lock();
        let is_waiting = shared.active > 0;
        if shared.tasks.is_none() && !is_waiting {
            let put_off = std::mem::take(&mut shared.put_off);
            shared.tasks = Some(begin(put_off)?);
        }
        Ok(match shared.tasks.as_mut().and_then(Vec::pop) {
            Some(task) => {
                // Until it is known that it is joined and not divided.
                shared.active += 1;
                self.is_active = true;
                Turn::Join(task)
            }
            None if is_waiting => Turn::Wait,
            None => Turn::End,
        })
    }

    /// Adds the tasks that it has made of the last one, if it has.
    fn add(&mut self, tasks: Vec<Task>) {
        let mut shared = self.parts.0.lock();
        shared.tasks.as_mut().expect("one of them was among them").extend(tasks);
        shared.active -= usize::from(self.is_active);
        self.is_active = false;
    }
}

impl Drop for Member {
    /// A worker may end without having come to its end: because its rows are not wanted, or by an error.
    fn drop(&mut self) {
        self.leave(Vec::new());
    }
}

/// Rows to be joined.
struct Task {
    build: Option<PartRows>,
    probe: Option<PartRows>,
    /// How often they have been split.
    level: u32,
    /// Whether to split them once more may help.
    may_divide: bool,
}

/// Makes tasks of what all workers have put off.
fn begin(
    work: Work<'_>,
    plan: &JoinPlan,
    spilled: &SpilledBuild,
    put_off: Vec<PartRows>,
) -> Result<Vec<Task>> {
    if plan.notes_matches {
        let rest = RowBuffer::in_file(plan.build_representations.clone(), &work.run.options)?;
        *spilled.rest.lock() = Some(rest);
    }
    let mut probe: Vec<PartRows> = Vec::new();
    for part in put_off.into_iter().skip(usize::from(Fault::JoinPartLost.is_made())) {
        match probe.iter_mut().find(|own| own.number() == part.number()) {
            Some(own) => own.append(part),
            None => probe.push(part),
        }
    }
    let build = spilled.parts.iter().cloned().collect();
    let is_divided = spilled.shape.is_divided;
    Ok(tasks(plan, build, probe, 0, is_divided.then_some(spilled.rows)))
}

/// The parts of both sides that belong together. They may be divided if none has more than half of the rows of the build side.
fn tasks(
    plan: &JoinPlan,
    build: Vec<PartRows>,
    mut probe: Vec<PartRows>,
    level: u32,
    rows: Option<u64>,
) -> Vec<Task> {
    let mut tasks = Vec::with_capacity(build.len());
    for build in build {
        let place = probe.iter().position(|probe| probe.number() == build.number());
        let probe = place.map(|place| probe.swap_remove(place));
        let is_heavy = rows.is_none_or(|rows| build.rows() > rows / 2);
        if probe.is_some() || plan.notes_matches {
            let may_divide = level + 1 < MOST_LEVELS && !is_heavy;
            tasks.push(Task { build: Some(build), probe, level, may_divide });
        }
    }
    // Rows without a partner.
    if !matches!(plan.kind, JoinKind::Inner | JoinKind::Semi) {
        let alone = |probe| Task { build: None, probe: Some(probe), level, may_divide: false };
        tasks.extend(probe.into_iter().map(alone));
    }
    tasks
}

impl Task {
    /// Whether it is better divided than joined at once.
    fn is_large(&self, work: Work<'_>, shape: &BuildShape) -> bool {
        let is_readable = |build| match work.run.options.always_spill {
            // Tests divide small parts too.
            true => self.level >= 2,
            false => is_readable(work, shape, build),
        };
        self.may_divide && !self.build.as_ref().is_none_or(is_readable)
    }

    /// Splits both sides once more.
    fn divide(self, work: Work<'_>, plan: &JoinPlan, shape: &BuildShape) -> Result<Vec<Task>> {
        let Task { build, probe, level, .. } = self;
        let area = work.run.options.spill.as_ref().expect("rows have been put off");
        let of_probe: Vec<_> = plan.stored.iter().map(|place| plan.representations[*place]).collect();
        let split = |rows: Option<PartRows>, representations| -> Result<Vec<PartRows>> {
            let mut writer = SideWriter::new(work, area, shape, representations, level + 1)?;
            for number in 0..rows.as_ref().map_or(0, PartRows::blocks) {
                work.context.check_cancel()?;
                writer.add_block(rows.as_ref().expect("it has blocks").block(number)?)?;
            }
            writer.finish()
        };
        let rows = build.as_ref().map_or(0, PartRows::rows);
        let (build, probe) = (split(build, &shape.representations)?, split(probe, &of_probe)?);
        Ok(tasks(plan, build, probe, level + 1, Some(rows)))
    }
}

/// A task that is being joined.
pub(super) struct PartJoin {
    task: Task,
    /// The rows of the build side that are in memory.
    build: Option<Arc<Build>>,
    /// The block of the build side where the next round begins.
    next: usize,
    is_first: bool,
    /// The block of the other side that is looked for next.
    block: usize,
    /// For each block of the other side what earlier rounds have come to.
    kept: Vec<Option<(BooleanBuffer, BooleanBuffer)>>,
    account: Account,
}

impl PartJoin {
    /// Begins a task, before its first round.
    fn new(work: Work<'_>, plan: &JoinPlan, task: Task) -> Result<PartJoin> {
        let mut account = Account::new(&work.run.options.budget);
        let (rows, blocks) = task.probe.as_ref().map_or((0, 0), |probe| (probe.rows(), probe.blocks()));
        let bytes = rows as usize / 4 + blocks * 64;
        if plan.kind != JoinKind::Inner
            && let Err(error) = account.set(bytes)
            && bytes > LEAST_BYTES
        {
            return Err(error);
        }
        Ok(PartJoin { task, build: None, next: 0, is_first: true, block: 0, kept: Vec::new(), account })
    }

    /// Whether this is the last round.
    pub fn is_last(&self) -> bool {
        self.next == self.task.build.as_ref().map_or(0, PartRows::blocks)
    }

    /// Begins a round.
    fn read(&mut self, work: Work<'_>, shape: &Arc<BuildShape>, facts: BuildFacts) -> Result<()> {
        self.is_first = self.next == 0;
        let (build, next) = BuildRows::read(work, shape, self.task.build.as_ref(), self.next, facts)?;
        (self.build, self.next, self.block) = (Some(Arc::new(build)), next, 0);
        Ok(())
    }

    /// The next rows of the other side, and their keys.
    fn probe(&mut self, plan: &JoinPlan) -> Result<Option<(Probe, Option<Keys>)>> {
        let Some(rows) = self.task.probe.as_ref().filter(|rows| self.block < rows.blocks()) else {
            return Ok(None);
        };
        let (chunk, keys) = rows.block(self.block)?;
        let length = chunk.length();
        let mut stored = chunk.into_vectors();
        let has_null = stored_nulls(&stored.pop().expect("which rows have a NULL is the last column"));
        let mut vectors: Vec<Vector> =
            plan.representations.iter().map(|it| Vector::null(*it, length)).collect();
        plan.stored.iter().zip(stored).for_each(|(place, vector)| vectors[*place] = vector);
        let (matched, unknown) = match self.kept.get_mut(self.block).and_then(Option::take) {
            Some((matched, unknown)) => (matched.iter().collect(), unknown.iter().collect()),
            None => (vec![false; length], vec![false; length]),
        };
        self.block += 1;
        let probe = Probe {
            chunk: Chunk::new(length, vectors),
            positions: (0..length).map(|row| row as u16).collect(),
            found: None,
            has_null,
            groups: None,
            row: 0,
            next: Next::First,
            matched,
            unknown,
            is_prepared: true,
            is_whole: plan.kind == JoinKind::Inner || self.is_first && self.is_last(),
        };
        Ok(Some((probe, keys)))
    }

    /// Keeps what a round has come to for rows of the other side: those that have been read last.
    pub fn keep(&mut self, probe: &Probe) {
        let block = self.block - 1;
        self.kept.resize_with(self.kept.len().max(block + 1), || None);
        let bits = |flags: &[bool]| BooleanBuffer::collect_bool(flags.len(), |row| flags[row]);
        self.kept[block] = Some((bits(&probe.matched), bits(&probe.unknown)));
    }

    /// The end of a round: rows of the build side of which it is known that they go on.
    fn leave_rest(&mut self, work: Work<'_>, plan: &JoinPlan, spilled: &SpilledBuild) -> Result<()> {
        let Some(build) = self.build.take().filter(|_| plan.notes_matches) else { return Ok(()) };
        let (rows, most) = (build.table.rows(), work.run.options.vector_rows);
        for from in (0..rows).step_by(most) {
            work.context.check_cancel()?;
            let places: Vec<u32> = (from..rows.min(from + most))
                .map(|row| row as u32)
                .filter(|row| build.is_matched(*row) == plan.matched_go_on)
                .collect();
            let vectors = build.table.gather(plan.build_columns.iter().copied(), &places);
            let mut rest = spilled.rest.lock();
            rest.as_mut().expect("it has been made").push(Chunk::new(places.len(), vectors))?;
        }
        Ok(())
    }
}

impl Join {
    /// Puts off the rows of a chunk whose partners may be in temporary files. The others stay.
    pub(super) fn put_off(
        &mut self,
        work: Work<'_>,
        probe: &mut Probe,
        spilled: &SpilledBuild,
    ) -> Result<()> {
        let (plan, shape) = (&self.plan, &spilled.shape);
        self.chunk_keys.hashes_into(&mut self.hashes);
        let goes = |row: &u32| {
            let row = *row as usize;
            !shape.is_divided || !probe.has_null(row) && spilled.has_part_of(self.hashes[row])
        };
        let (gone, kept): (Vec<u32>, Vec<u32>) = (0..probe.positions.len() as u32).partition(goes);
        if gone.is_empty() {
            return Ok(());
        }
        let positions =
            |rows: &[u32]| -> Vec<u16> { rows.iter().map(|row| probe.positions[*row as usize]).collect() };
        let nulls = |rows: &[u32]| -> Option<Vec<bool>> {
            let has_null = probe.has_null.as_ref()?;
            Some(rows.iter().map(|row| has_null[*row as usize]).collect())
        };
        let keys = |rows: &[u32]| -> Keys {
            let mut keys = plan.layout.none();
            if !plan.layout.is_empty() {
                keys.push_all(&self.chunk_keys, rows);
            }
            keys
        };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let area = work.run.options.spill.as_ref().expect("the build side has been spilled");
                let of_stored: Vec<_> =
                    plan.stored.iter().map(|place| plan.representations[*place]).collect();
                self.writer.insert(SideWriter::new(work, area, shape, &of_stored, 0)?)
            }
        };
        let vectors = plan.stored.iter().map(|place| probe.chunk.vectors()[*place].clone()).collect();
        let length = probe.chunk.length();
        writer.add(vectors, length, &positions(&gone), &keys(&gone), nulls(&gone).as_deref())?;
        let (positions, has_null, keys) = (positions(&kept), nulls(&kept), keys(&kept));
        probe.chunk = probe.chunk.clone().with_selection(Some(Selection::new(positions.clone())));
        (probe.matched, probe.unknown) = (vec![false; kept.len()], vec![false; kept.len()]);
        (probe.positions, probe.has_null, self.chunk_keys) = (positions, has_null, keys);
        Ok(())
    }

    /// Joins the rows that have been put off, step by step.
    pub(super) fn join_parts(
        &mut self,
        work: Work<'_>,
        spilled: &SpilledBuild,
        facts: BuildFacts,
    ) -> Result<Output> {
        if !self.parts.has_ended {
            let put_off = self.writer.take().map(SideWriter::finish).transpose()?;
            self.parts.leave(put_off.unwrap_or_default());
        }
        let Some(part) = &mut self.part else {
            let plan = &self.plan;
            let task = match self.parts.next(|put_off| begin(work, plan, spilled, put_off))? {
                Turn::Join(task) => task,
                Turn::Wait => return Ok(Output::Idle),
                Turn::End => return Ok(Output::Done(None)),
            };
            if task.is_large(work, &spilled.shape) {
                self.parts.add(task.divide(work, &self.plan, &spilled.shape)?);
            } else {
                let mut part = PartJoin::new(work, &self.plan, task)?;
                part.read(work, &spilled.shape, facts)?;
                if !part.is_last() && part.task.may_divide && !work.run.options.always_spill {
                    // It is larger in memory than was expected.
                    let PartJoin { task, build, account, .. } = part;
                    drop((build, account));
                    self.parts.add(task.divide(work, &self.plan, &spilled.shape)?);
                } else {
                    self.parts.add(Vec::new());
                    self.part = Some(part);
                }
            }
            return Ok(Output::Again);
        };
        let output = match self.probe.take() {
            Some(probe) => {
                let build = part.build.clone().expect("a round has begun");
                self.go_on(work, probe, &build)?
            }
            None => match part.probe(&self.plan)? {
                Some((mut probe, keys)) => {
                    let build = part.build.clone().expect("a round has begun");
                    if let Some(keys) = keys {
                        self.chunk_keys = keys;
                        self.look_up(work, &mut probe, &build)?;
                    }
                    self.go_on(work, probe, &build)?
                }
                None => {
                    part.leave_rest(work, &self.plan, spilled)?;
                    match part.is_last() {
                        true => self.part = None,
                        false => part.read(work, &spilled.shape, facts)?,
                    }
                    Output::None
                }
            },
        };
        Ok(match output {
            Output::None => Output::Again,
            Output::Last(chunk) => Output::Some(chunk),
            other => other,
        })
    }
}
