//! Grouping: a set of keys, and for each group a state of every aggregate.
//!
//! A row costs its key, two cache lines of the set (slot and key), and one line of states for each
//! aggregate; aggregates run column by column over the numbers of the groups. With grouping sets each set has its own groups. A DISTINCT
//! aggregate keeps the set of the arguments that its groups have had; one with an order keeps its rows until the end. What these keep
//! goes to temporary files first, if memory does not suffice ([`Seen`], [`SortedRun`]).
//!
//! There are two phases. Each worker groups the rows that it gets. When its set outgrows the cache, it is split into parts by the hash
//! of the keys ([`Run`]s) and begins empty again; if that hardly saves rows, it may grow more. At the end the runs of one part are
//! grouped by one worker, all parts side by side: see V. Leis, P. Boncz, A. Kemper, T. Neumann, "Morsel-Driven Parallelism",
//! SIGMOD 2014, section 4.4. Few groups are merged by one worker at once.
//!
//! Where memory does not suffice, no groups are added any more: rows of other groups go to temporary files, split by the hash of
//! their key ([`Partitions`]), and each part is grouped by itself when all rows have come. The state of one group must fit.

use super::build::LEAST_BYTES;
use super::runs::{Merge, SortedRun};
use super::sort::sorted;
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::{Collection, Table, gather};
use crate::expression::{Conditions, Cutter, Expression, Scope};
use crate::keys::{FewKeys, KeyColumn, KeyLayout, KeySet, Keys, NONE};
use crate::partitions::{MOST_LEVELS, PartRows, Partitions};
use crate::pipeline::{Sink, SinkPlan, Work};
use crate::seen::Seen;
use crate::spill::SpillArea;
use crate::template::Template;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Representation, Result, thread};
use firn_vector::aggregate::{AggregateKernel, States};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local, Part, Signature};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Data, Selection, Vector};
use std::any::Any;

/// What is grouped.
pub struct GroupPlan {
    /// The positions of the keys' columns.
    pub keys: Vec<usize>,
    /// How they lie.
    pub representations: Vec<Representation>,
    /// By which of the keys rows are grouped, once for each set.
    pub sets: Vec<SetPlan>,
    /// Whether the position of the set follows the keys in the result.
    pub with_number: bool,
    /// The aggregates.
    pub aggregates: Template<Vec<AggregatePlan>>,
    /// How the columns of the input lie.
    pub input: Vec<Representation>,
    /// Whether the arguments of a row may be computed twice.
    pub can_spill: bool,
}

/// A grouping set.
#[derive(Clone)]
pub struct SetPlan {
    /// Positions of keys: those that are compared, then those that they determine.
    pub keys: Vec<usize>,
    /// How keys are made of those that are compared.
    pub layout: KeyLayout,
}

impl SetPlan {
    /// The vectors that are compared, of one for each key.
    fn compared<'v>(&self, vectors: &'v [Vector]) -> &'v [Vector] {
        &vectors[..self.layout.len()]
    }
}

/// An aggregate.
#[derive(Clone)]
pub struct AggregatePlan {
    /// What it does.
    pub kernel: Arc<dyn AggregateKernel>,
    /// The types that it is called with.
    pub signature: Arc<Signature>,
    /// Its arguments.
    pub arguments: Vec<Expression>,
    /// Rows for which it is not TRUE are left out.
    pub filter: Conditions,
    /// Keys of a group's number and the arguments, if equal arguments count once.
    pub distinct: Option<KeyLayout>,
    /// In which order rows are added, if one is asked for.
    pub order: Option<OrderPlan>,
}

/// The order in which an aggregate gets its rows.
#[derive(Clone)]
pub struct OrderPlan {
    /// The positions of the order's columns in the input.
    pub columns: Vec<usize>,
    /// How they lie.
    pub representations: Vec<Representation>,
    /// Keys of a group's number and these columns.
    pub layout: KeyLayout,
}

impl GroupPlan {
    /// The key by which DISTINCT and orders begin: a group's number.
    pub fn group_key() -> KeyColumn {
        KeyColumn::equal(Representation::Oid, false)
    }
}

struct GroupSink {
    keys: Vec<usize>,
    sets: Vec<Groups>,
    aggregates: Vec<AggregatePlan>,
    /// The chunk that is being added.
    cutter: Cutter,
    /// Rows that have come since memory was measured, which looks at each state.
    unmeasured: usize,
    account: Account,
    /// How often its rows have been split before.
    level: u32,
    /// Where rows of further groups may go, and how the columns of the input lie.
    area: Option<(Arc<SpillArea>, Vec<Representation>)>,
    /// What the groups took when no more could be added.
    full: Option<usize>,
    /// At how many groups of a set they are split into runs, if they may be.
    limit: Option<usize>,
}

/// How many parts runs have.
const PARTS: usize = 64;

/// How many groups a set may have before it is split, for each row of a vector: with vectors of 2,048 rows some 130,000, which are
/// about 10 MB with two aggregates.
const LIMIT: usize = 64;

/// A set of which fewer rows than this come to a group may grow so many times beyond its limit.
const LEAST_ROWS: usize = 2;
const MOST_GROWTH: usize = 8;

/// With fewer groups than this for each row of a vector, one worker merges those of all.
const LEAST_TO_SHARE: usize = 8;

/// With fewer rows than this memory is not measured again.
const LEAST_TO_MEASURE: usize = 4096;

/// The groups of one set.
struct Groups {
    plan: SetPlan,
    set: KeySet,
    /// The keys' values in the first row of each group.
    values: Collection,
    aggregates: Vec<Aggregating>,
    /// For each row of the chunk that is being added, the number of its group.
    numbers: Vec<u32>,
    /// Of the selected rows of that chunk: keys, and numbers of their groups.
    keys: Keys,
    found: Vec<u32>,
    few: FewKeys,
    /// Rows that have been added since the set was split.
    rows: usize,
    /// What the set was before, by parts, and what that takes.
    runs: Vec<Vec<Run>>,
    run_bytes: usize,
    /// The rows of groups that are not there.
    others: Option<Partitions>,
}

/// Groups that one worker has found: those of one part, or all of them.
struct Run {
    keys: Keys,
    /// The keys' values.
    values: Vec<Vector>,
    /// The states of each aggregate.
    states: Vec<Box<dyn States>>,
    bytes: usize,
}

/// An aggregate at work.
struct Aggregating {
    states: Box<dyn States>,
    local: Local,
    seen: Option<Seen>,
    waiting: Option<Waiting>,
}

/// The rows that an aggregate adds, and its arguments in them.
type AggregateInput = (Option<Selection>, Vec<Vector>);

/// The rows of an ordered aggregate.
struct Waiting {
    keys: Keys,
    /// The numbers of the groups, and the arguments.
    rows: Collection,
    /// Those for which there was no memory.
    runs: Vec<SortedRun>,
}

impl SinkPlan for GroupPlan {
    fn start(&self, work: Work<'_>) -> Result<Box<dyn Sink>> {
        let mut sink = GroupSink::new(work, self, &self.sets, 0);
        // All rows are one group, and it is there without rows.
        for groups in sink.sets.iter_mut().filter(|groups| groups.plan.keys.is_empty()) {
            groups.number(&[], Rows::all(1));
            groups.grow(&sink.aggregates);
        }
        Ok(Box::new(sink))
    }

    fn finish(&self, work: Work<'_>, sinks: Vec<Box<dyn Sink>>) -> Result<Arc<dyn Any + Send + Sync>> {
        let sinks: Vec<GroupSink> = super::own::<GroupSink>(sinks).collect();
        let has_runs = sinks.iter().flat_map(|sink| &sink.sets).any(|groups| !groups.runs.is_empty());
        let count = sinks.iter().flat_map(|sink| &sink.sets).map(|groups| groups.set.len()).sum::<usize>();
        let is_large = sinks.len() > 1 && count > LEAST_TO_SHARE * work.run.options.vector_rows;
        // Without memory, and with aggregates that run alone, there is no limit.
        let may_share = sinks.iter().all(|sink| sink.limit.is_some() && sink.full.is_none());
        let result = match may_share && (has_runs || is_large) {
            true => self.finish_by_parts(work, sinks)?,
            false => self.finish_at_once(work, sinks)?,
        };
        Ok(Arc::new(result))
    }
}

impl GroupPlan {
    /// A buffer for the result.
    fn result(&self, work: Work<'_>) -> RowBuffer {
        let keys = self.representations.iter().copied();
        let number = self.with_number.then_some(Representation::Int32);
        let aggregates = self.aggregates.copy();
        let results = aggregates.iter().map(|aggregate| aggregate.signature.representation);
        RowBuffer::new(keys.chain(number).chain(results).collect(), &work.run.options)
    }

    /// Merges the groups of all workers one after the other, and groups the rows that have been put off.
    fn finish_at_once(&self, work: Work<'_>, sinks: Vec<GroupSink>) -> Result<RowBuffer> {
        let mut sinks = sinks.into_iter();
        let mut all = sinks.next().expect("there is a worker");
        let mut others: Vec<Vec<PartRows>> = Vec::new();
        others.resize_with(self.sets.len(), Vec::new);
        all.take_runs(work)?;
        let mut is_merged = false;
        for mut other in sinks {
            is_merged = true;
            other.take_others(&mut others)?;
            all.merge(work, other)?;
        }
        all.take_others(&mut others)?;
        if is_merged && others.iter().any(|parts| !parts.is_empty()) {
            // Rows that one worker has put off may be of groups of another one.
            all.full.get_or_insert(all.memory());
            all.level += 1;
            for (set, parts) in others.iter_mut().enumerate() {
                for chunk in std::mem::take(parts).iter().flat_map(PartRows::chunks) {
                    all.add(work, chunk?, Some(set))?;
                }
            }
            all.take_others(&mut others)?;
        }
        let mut result = self.result(work);
        let level = all.level;
        all.emit(work, self, 0, &mut result)?;
        for (set, parts) in others.into_iter().enumerate() {
            self.group_parts(work, set, parts, level + 1, &mut result)?;
        }
        Ok(result)
    }

    /// Merges the groups of all workers part by part, by as many workers.
    fn finish_by_parts(&self, work: Work<'_>, sinks: Vec<GroupSink>) -> Result<RowBuffer> {
        let threads = work.run.options.workers;
        let result = Mutex::new(self.result(work));
        let account = Mutex::new(Account::new(&work.run.options.budget));
        let mut sets: Vec<Vec<Mutex<Groups>>> = Vec::new();
        sets.resize_with(self.sets.len(), Vec::new);
        for sink in sinks {
            account.lock().take(sink.account);
            sets.iter_mut().zip(sink.sets).for_each(|(set, groups)| set.push(Mutex::new(groups)));
        }
        for (number, workers) in sets.into_iter().enumerate() {
            thread::for_each("query", threads, &workers, |groups| {
                groups.lock().split();
                Ok(())
            })?;
            let mut parts: Vec<Vec<Run>> = Vec::new();
            parts.resize_with(PARTS, Vec::new);
            for groups in workers {
                let runs = groups.into_inner().runs;
                parts.iter_mut().zip(runs).for_each(|(part, runs)| part.extend(runs));
            }
            let parts: Vec<Mutex<Vec<Run>>> = parts.into_iter().map(Mutex::new).collect();
            thread::for_each("query", threads, &parts, |runs| {
                let runs = std::mem::take(&mut *runs.lock());
                if runs.is_empty() {
                    return Ok(());
                }
                let (aggregates, bytes) = (self.aggregates.copy(), runs.iter().map(|run| run.bytes).sum());
                let most = runs.iter().map(|run| run.keys.len()).max().unwrap_or(0);
                let mut groups = Groups::new(self, &self.sets[number], &aggregates, most);
                for run in runs {
                    work.context.check_cancel()?;
                    groups.add_run(work, &aggregates, run)?;
                }
                let keep = &mut |chunk| result.lock().push(chunk);
                groups.emit(work, self, number, &aggregates, keep)?;
                account.lock().give_back(bytes);
                Ok(())
            })?;
        }
        Ok(result.into_inner())
    }

    /// Groups the rows of parts by one set, each by itself.
    fn group_parts(
        &self,
        work: Work<'_>,
        set: usize,
        parts: Vec<PartRows>,
        level: u32,
        result: &mut RowBuffer,
    ) -> Result<()> {
        for part in parts {
            let mut sink = GroupSink::new(work, self, &self.sets[set..=set], level);
            for chunk in part.chunks() {
                work.context.check_cancel()?;
                sink.add(work, chunk?, None)?;
                sink.measure(work, false)?;
            }
            drop(part);
            let mut others = vec![Vec::new()];
            sink.take_others(&mut others)?;
            sink.emit(work, self, set, result)?;
            self.group_parts(work, set, others.pop().expect("there is one"), level + 1, result)?;
        }
        Ok(())
    }
}

impl Sink for GroupSink {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
        self.add(work, chunk, None)?;
        if let Some(limit) = self.limit.filter(|_| self.full.is_none()) {
            self.sets.iter_mut().filter(|groups| groups.is_beyond(limit)).for_each(Groups::split);
        }
        if work.run.options.always_spill {
            self.spill_rows(work)?;
        }
        self.measure(work, false)?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl GroupSink {
    fn new(work: Work<'_>, plan: &GroupPlan, sets: &[SetPlan], level: u32) -> GroupSink {
        let aggregates = plan.aggregates.copy();
        let groups = |set: &SetPlan| Groups::new(plan, set, &aggregates, 0);
        let run_alone = |aggregate: &AggregatePlan| aggregate.distinct.is_some() || aggregate.order.is_some();
        let limit = (!aggregates.iter().any(run_alone)).then_some(LIMIT * work.run.options.vector_rows);
        let area = work.run.options.spill.as_ref().filter(|_| plan.can_spill && level < MOST_LEVELS);
        GroupSink {
            keys: plan.keys.clone(),
            sets: sets.iter().map(groups).collect(),
            aggregates: aggregates.clone(),
            cutter: Cutter::new(work),
            unmeasured: 0,
            account: Account::new(&work.run.options.budget),
            level,
            area: area.map(|area| (area.clone(), plan.input.clone())),
            full: None,
            limit,
        }
    }

    /// Adds the rows of a chunk to the groups of all sets, or of one.
    fn add(&mut self, work: Work<'_>, chunk: Chunk, only: Option<usize>) -> Result<()> {
        self.cutter.begin(chunk);
        loop {
            let (aggregates, scope) = (&mut self.aggregates, work.scope());
            let part = self.cutter.next(|chunk, part| {
                let (mut inputs, mut bytes) = (Vec::with_capacity(aggregates.len()), 0);
                for aggregate in &mut *aggregates {
                    let Some(input) = aggregate.input(&scope, chunk, part)? else { return Ok(None) };
                    bytes += input.1.iter().map(Vector::memory).sum::<usize>();
                    inputs.push(input);
                }
                Ok(Some((inputs, bytes)))
            })?;
            match part {
                Some((part, inputs)) => self.add_part(work, &part, &inputs, only)?,
                None => return Ok(()),
            }
        }
    }

    /// As [`GroupSink::add`], with what the aggregates get of each row.
    fn add_part(
        &mut self,
        work: Work<'_>,
        chunk: &Chunk,
        inputs: &[AggregateInput],
        only: Option<usize>,
    ) -> Result<()> {
        let keys: Vec<Vector> = self.keys.iter().map(|place| chunk.vectors()[*place].clone()).collect();
        let length = chunk.length();
        for (set, groups) in self.sets.iter_mut().enumerate() {
            if only.is_some_and(|only| only != set) {
                continue;
            }
            let added = match (&self.area, self.full) {
                (Some((area, input)), Some(_)) if !groups.plan.keys.is_empty() => {
                    let open = || Partitions::new(area, input.clone(), self.level);
                    Some(groups.number_known(&keys, chunk, open)?)
                }
                _ => {
                    groups.number(&keys, chunk.rows());
                    None
                }
            };
            groups.grow(&self.aggregates);
            for (number, (selection, arguments)) in inputs.iter().enumerate() {
                let plan = &self.aggregates[number];
                let rows = match selection {
                    Some(selection) => selection.rows(length),
                    None => Rows::all(length),
                };
                let known: Vec<u16>;
                let rows = match &added {
                    None => rows,
                    Some(added) => {
                        let mut positions = Vec::with_capacity(rows.count());
                        rows.each(|row| positions.extend(added[row].then_some(row as u16)));
                        known = positions;
                        Rows::at(&known, length)
                    }
                };
                groups.aggregates[number].add(work, plan, chunk, &groups.numbers, arguments, rows)?;
            }
        }
        self.unmeasured += chunk.count();
        Ok(())
    }

    fn memory(&self) -> usize {
        self.sets.iter().map(Groups::memory).sum()
    }

    /// States what the groups take, from time to time. Once there is no memory for more groups, no more are added.
    fn measure(&mut self, work: Work<'_>, at_once: bool) -> Result<()> {
        let groups = self.sets.iter().map(|groups| groups.set.len()).sum::<usize>();
        if !at_once && self.unmeasured < groups.max(LEAST_TO_MEASURE) {
            return Ok(());
        }
        self.unmeasured = 0;
        let mut bytes = self.memory();
        let Err(mut error) = self.account.set(bytes) else { return Ok(()) };
        if self.sets.iter().any(|groups| !groups.runs.is_empty()) {
            // A group takes memory once in a set, but in each of its runs.
            self.limit = None;
            self.take_runs(work)?;
            bytes = self.memory();
            match self.account.set(bytes) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        if self.kept_rows() >= LEAST_BYTES && self.spill_rows(work)? {
            match self.account.set(self.memory()) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        if self.area.is_none() || self.sets.iter().all(|groups| groups.plan.keys.is_empty()) {
            return Err(error);
        }
        // What the groups that are there keep may grow a little; nothing makes it less.
        match self.full {
            // Groups of several workers come together: the budget had room for each worker's.
            _ if at_once => self.full = Some(bytes),
            None => self.full = Some(bytes),
            Some(full) if bytes <= full + full / 4 => {}
            Some(_) => return Err(error),
        }
        Ok(())
    }

    /// What is kept of rows beside the groups' states.
    fn kept_rows(&self) -> usize {
        self.sets.iter().flat_map(|groups| &groups.aggregates).map(Aggregating::kept_rows).sum()
    }

    /// Moves that to temporary files; false if there may be none.
    fn spill_rows(&mut self, work: Work<'_>) -> Result<bool> {
        let Some(area) = &work.run.options.spill else { return Ok(false) };
        for groups in &mut self.sets {
            for (aggregating, plan) in groups.aggregates.iter_mut().zip(&self.aggregates) {
                aggregating.spill_rows(work, plan, area)?;
            }
        }
        Ok(true)
    }

    /// Moves the rows of groups that are not there to those of each set.
    fn take_others(&mut self, into: &mut [Vec<PartRows>]) -> Result<()> {
        for (groups, into) in self.sets.iter_mut().zip(into) {
            if let Some(others) = groups.others.take() {
                into.extend(others.finish()?);
            }
        }
        Ok(())
    }

    /// Adds the groups of all runs to the set again.
    fn take_runs(&mut self, work: Work<'_>) -> Result<()> {
        for groups in &mut self.sets {
            for run in std::mem::take(&mut groups.runs).into_iter().flatten() {
                work.context.check_cancel()?;
                groups.add_run(work, &self.aggregates, run)?;
            }
            groups.run_bytes = 0;
        }
        Ok(())
    }

    /// Adds the groups of another worker. There is no DISTINCT and no order: those run alone.
    fn merge(&mut self, work: Work<'_>, other: GroupSink) -> Result<()> {
        let GroupSink { sets, account, full, .. } = other;
        drop(account);
        if full.is_some() {
            self.full.get_or_insert(usize::MAX / 2);
        }
        for (own, mut other) in self.sets.iter_mut().zip(sets) {
            for run in std::mem::take(&mut other.runs).into_iter().flatten() {
                own.add_run(work, &self.aggregates, run)?;
            }
            own.add_run(work, &self.aggregates, other.into_run())?;
        }
        self.measure(work, true)
    }

    /// Appends the groups' rows; the first set has this number.
    fn emit(self, work: Work<'_>, plan: &GroupPlan, first: usize, result: &mut RowBuffer) -> Result<()> {
        let GroupSink { sets, aggregates, mut account, .. } = self;
        let mut left: usize = sets.iter().map(Groups::memory).sum();
        let charged = account.bytes().min(left);
        for (number, groups) in sets.into_iter().enumerate() {
            left -= groups.memory();
            groups.emit(work, plan, first + number, &aggregates, &mut |chunk| result.push(chunk))?;
            account.set(charged.min(left))?;
        }
        Ok(())
    }
}

impl Groups {
    /// No groups, with room for so many.
    fn new(plan: &GroupPlan, set: &SetPlan, aggregates: &[AggregatePlan], room: usize) -> Groups {
        Groups {
            plan: set.clone(),
            set: KeySet::with_room(&set.layout, room),
            values: Collection::new(set.keys.iter().map(|key| plan.representations[*key])),
            aggregates: aggregates.iter().map(Aggregating::new).collect(),
            numbers: Vec::new(),
            keys: set.layout.none(),
            found: Vec::new(),
            few: FewKeys::default(),
            rows: 0,
            runs: Vec::new(),
            run_bytes: 0,
            others: None,
        }
    }

    /// Whether the set is to be split.
    fn is_beyond(&self, limit: usize) -> bool {
        let groups = self.set.len();
        let saves_rows = self.rows >= groups * LEAST_ROWS;
        groups > limit && (saves_rows || groups > limit * MOST_GROWTH)
    }

    /// Splits the set into runs. It is empty afterwards.
    fn split(&mut self) {
        let count = self.set.len();
        if count == 0 {
            return;
        }
        self.rows = 0;
        let hashes = self.set.keys().hashes();
        let parts: Vec<u8> = hashes.iter().map(|hash| (*hash % PARTS as u64) as u8).collect();
        let mut sizes = [0; PARTS];
        parts.iter().for_each(|part| sizes[usize::from(*part)] += 1);
        let mut next = [0; PARTS];
        (1..PARTS).for_each(|part| next[part] = next[part - 1] + sizes[part - 1]);
        let starts = next;
        let mut order = vec![0; count];
        for (number, part) in parts.iter().enumerate() {
            let place = &mut next[usize::from(*part)];
            order[*place] = number as u32;
            *place += 1;
        }
        let empty = Collection::new(self.values.representations());
        let values = std::mem::replace(&mut self.values, empty).finish();
        let values = Table::new(count, values.gather(0..values.vectors().len(), &order));
        let value_bytes: usize = values.vectors().iter().map(Vector::memory).sum();
        let mut states: Vec<_> = self
            .aggregates
            .iter_mut()
            .map(|aggregate| aggregate.states.split(&parts, &sizes).into_iter())
            .collect();
        self.runs.resize_with(PARTS, Vec::new);
        for (part, runs) in self.runs.iter_mut().enumerate() {
            let states: Vec<Box<dyn States>> =
                states.iter_mut().map(|states| states.next().expect("there is one for each part")).collect();
            let (from, size) = (starts[part], sizes[part]);
            if size == 0 {
                continue;
            }
            let mut keys = self.plan.layout.none();
            keys.push_all(self.set.keys(), &order[from..from + size]);
            let bytes = keys.memory()
                + value_bytes / count * size
                + states.iter().map(|states| states.memory()).sum::<usize>();
            self.run_bytes += bytes;
            let values = values.slice(0..values.vectors().len(), from, size);
            runs.push(Run { keys, values, states, bytes });
        }
        self.set.clear();
    }

    /// All groups of the set as one run.
    fn into_run(self) -> Run {
        assert!(self.aggregates.iter().all(Aggregating::is_simple), "it runs alone");
        Run {
            keys: self.set.into_keys(),
            values: self.values.finish().vectors().to_vec(),
            states: self.aggregates.into_iter().map(|aggregate| aggregate.states).collect(),
            bytes: 0,
        }
    }

    /// Adds the groups of a run.
    fn add_run(&mut self, work: Work<'_>, plans: &[AggregatePlan], run: Run) -> Result<()> {
        let Run { keys, values, mut states, .. } = run;
        let mut next = self.set.len() as u32;
        self.found.clear();
        self.set.insert(&keys, &mut self.found);
        let mut new = Vec::with_capacity(self.set.len() - next as usize);
        for (row, number) in self.found.iter().enumerate() {
            if *number == next {
                new.push(row as u32);
                next += 1;
            }
        }
        if new.len() == keys.len() {
            self.values.append(&values, Rows::all(keys.len()));
        } else {
            let values: Vec<Vector> = values.iter().map(|vector| gather(vector, &new)).collect();
            self.values.append(&values, Rows::all(new.len()));
        }
        self.grow(plans);
        for ((own, other), plan) in self.aggregates.iter_mut().zip(&mut states).zip(plans) {
            let mut call = Call::new(work.context, &plan.signature, &mut own.local);
            own.states.merge(&mut call, &mut **other, &self.found)?;
        }
        Ok(())
    }

    /// Finds the group of each row that has one. Other rows are put off. Which rows have one.
    fn number_known(
        &mut self,
        keys: &[Vector],
        chunk: &Chunk,
        open: impl FnOnce() -> Result<Partitions>,
    ) -> Result<Vec<bool>> {
        let vectors: Vec<Vector> = self.plan.keys.iter().map(|key| keys[*key].clone()).collect();
        let compared = self.plan.compared(&vectors);
        debug_assert!(self.plan.layout.admits(compared, chunk.rows()), "the plan says that there is no NULL");
        self.plan.layout.keys_into(compared, chunk.rows(), &mut self.keys);
        let hashes = self.keys.hashes();
        self.found.clear();
        self.set.find_all(&self.keys, &hashes, &mut self.found);
        self.numbers.clear();
        self.numbers.resize(chunk.length(), 0);
        let mut known = vec![false; chunk.length()];
        let (mut place, mut positions, mut of_others) = (0, Vec::new(), Vec::new());
        chunk.rows().each(|row| {
            match self.found[place] {
                NONE => {
                    positions.push(row as u16);
                    of_others.push(hashes[place]);
                }
                number => (self.numbers[row], known[row]) = (number, true),
            }
            place += 1;
        });
        if !positions.is_empty() {
            let others = match &mut self.others {
                Some(others) => others,
                None => self.others.insert(open()?),
            };
            others.add(chunk.vectors(), chunk.length(), &positions, &of_others)?;
        }
        Ok(known)
    }

    /// Finds the group of each row; new ones keep the values of their keys.
    fn number(&mut self, keys: &[Vector], rows: Rows<'_>) {
        self.rows += rows.count();
        self.found.clear();
        let mut next = self.set.len() as u32;
        if self.plan.keys.is_empty() {
            if next == 0 {
                let one = self.plan.layout.keys(&[], Rows::all(1));
                self.set.insert(&one, &mut self.found);
                self.values.append([], Rows::all(1));
            }
            self.numbers.clear();
            self.numbers.resize(rows.length(), 0);
            return;
        }
        let vectors: Vec<Vector> = self.plan.keys.iter().map(|key| keys[*key].clone()).collect();
        let compared = self.plan.compared(&vectors);
        debug_assert!(self.plan.layout.admits(compared, rows), "the plan says that there is no NULL");
        // Of each different key one row is looked for, if the vector has few.
        let has_few = !self.plan.layout.is_word() && self.few.find(compared, rows);
        let asked = if has_few { Rows::at(self.few.firsts(), rows.length()) } else { rows };
        self.plan.layout.keys_into(compared, asked, &mut self.keys);
        self.set.insert(&self.keys, &mut self.found);
        if self.set.len() > next as usize {
            let (mut place, mut new) = (0, Vec::with_capacity(self.set.len() - next as usize));
            asked.each(|row| {
                if self.found[place] == next {
                    new.push(row as u16);
                    next += 1;
                }
                place += 1;
            });
            self.values.append(&vectors, Rows::at(&new, rows.length()));
        }
        if has_few {
            let of_keys = std::mem::take(&mut self.found);
            self.found.extend(self.few.numbers().iter().map(|number| of_keys[usize::from(*number)]));
        }
        match rows.positions() {
            None => std::mem::swap(&mut self.numbers, &mut self.found),
            Some(positions) => {
                self.numbers.clear();
                self.numbers.resize(rows.length(), 0);
                let pairs = positions.iter().zip(&self.found);
                pairs.for_each(|(row, number)| self.numbers[usize::from(*row)] = *number);
            }
        }
    }

    fn grow(&mut self, plans: &[AggregatePlan]) {
        let groups = self.set.len();
        for (aggregating, plan) in self.aggregates.iter_mut().zip(plans) {
            if aggregating.states.len() < groups {
                aggregating.states.resize(&plan.signature, groups);
            }
        }
    }

    fn memory(&self) -> usize {
        self.set.memory()
            + self.run_bytes
            + self.values.memory()
            + self.aggregates.iter().map(Aggregating::memory).sum::<usize>()
    }

    /// Appends the groups' rows: all keys, the number of the set if it is asked for, and the aggregates' results.
    fn emit(
        mut self,
        work: Work<'_>,
        plan: &GroupPlan,
        number: usize,
        aggregates: &[AggregatePlan],
        keep: &mut dyn FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        let rows = self.set.len();
        let most = match self.memory() / rows.max(1) {
            0 => EMITTED,
            bytes => (work.run.options.vector_bytes / bytes).clamp(1, EMITTED),
        };
        let values = self.values.finish();
        for (aggregating, plan) in self.aggregates.iter_mut().zip(aggregates) {
            aggregating.add_rest(work, plan)?;
        }
        for from in (0..rows).step_by(most) {
            work.context.check_cancel()?;
            let count = most.min(rows - from);
            let key = |key: usize| match self.plan.keys.iter().position(|other| *other == key) {
                Some(place) => values.vectors()[place].slice(from, count),
                None => Vector::null(plan.representations[key], count),
            };
            let mut vectors: Vec<Vector> = (0..plan.keys.len()).map(key).collect();
            if plan.with_number {
                let data = Data::Int32(vec![number as i32].into());
                vectors.push(Vector::constant(Representation::Int32, data, count));
            }
            for (aggregating, plan) in self.aggregates.iter_mut().zip(aggregates) {
                let mut call = Call::new(work.context, &plan.signature, &mut aggregating.local);
                let mut results = Builder::new(plan.signature.representation);
                aggregating.states.finish(&mut call, from..from + count, &mut results)?;
                vectors.push(results.finish());
            }
            keep(Chunk::new(count, vectors))?;
        }
        Ok(())
    }
}

/// How many groups a chunk of the result has, if they are not wide.
const EMITTED: usize = 8192;

impl Aggregating {
    fn new(plan: &AggregatePlan) -> Aggregating {
        Aggregating {
            states: plan.kernel.states(),
            local: Local::default(),
            seen: plan.distinct.as_ref().map(Seen::new),
            waiting: plan.order.as_ref().map(|order| Waiting {
                keys: order.layout.none(),
                rows: Collection::new(plan.waiting()),
                runs: Vec::new(),
            }),
        }
    }

    /// Whether the states are all that it knows.
    fn is_simple(&self) -> bool {
        self.seen.is_none() && self.waiting.is_none()
    }

    /// Adds rows to their groups; `groups` has the number for each row of the chunk.
    fn add(
        &mut self,
        work: Work<'_>,
        plan: &AggregatePlan,
        chunk: &Chunk,
        groups: &[u32],
        arguments: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()> {
        if self.is_simple() {
            let mut call = Call::new(work.context, &plan.signature, &mut self.local);
            return self.states.add(&mut call, groups, arguments, rows);
        }
        let numbers = Vector::flat(Representation::Oid, Data::UInt32(groups.to_vec().into()), None);
        let mut vectors: Vec<Vector> = std::iter::once(numbers).chain(arguments.iter().cloned()).collect();
        let order = plan.order.iter().flat_map(|order| &order.columns);
        let order: Vec<Vector> = order.map(|place| chunk.vectors()[*place].clone()).collect();
        let new;
        let rows = match (&plan.distinct, &mut self.seen) {
            (Some(layout), Some(seen)) => {
                let keys = layout.keys(&vectors, rows);
                vectors.extend(order);
                match seen.add(work, &vectors, &keys, rows)? {
                    Some(selection) => new = selection,
                    None => return Ok(()),
                }
                new.rows(chunk.length())
            }
            _ => {
                vectors.extend(order);
                rows
            }
        };
        self.add_counted(work, plan, &vectors, rows)
    }

    /// Adds rows that count, or keeps them to be added in their order. They have the number of the group, the arguments, and the
    /// columns of the order.
    fn add_counted(
        &mut self,
        work: Work<'_>,
        plan: &AggregatePlan,
        vectors: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()> {
        let (counted, order) = vectors.split_at(1 + plan.arguments.len());
        if let (Some(OrderPlan { layout, .. }), Some(waiting)) = (&plan.order, &mut self.waiting) {
            let keys: Vec<Vector> = counted[..1].iter().chain(order).cloned().collect();
            waiting.keys.append(&layout.keys(&keys, rows));
            waiting.rows.append(counted, rows);
            return Ok(());
        }
        self.add_to_states(work, plan, counted, rows)
    }

    fn add_to_states(
        &mut self,
        work: Work<'_>,
        plan: &AggregatePlan,
        vectors: &[Vector],
        rows: Rows<'_>,
    ) -> Result<()> {
        let Some(Data::UInt32(groups)) = vectors[0].data() else { panic!("groups have numbers") };
        let mut call = Call::new(work.context, &plan.signature, &mut self.local);
        self.states.add(&mut call, groups, &vectors[1..], rows)
    }

    /// Adds the rows that have waited for all others: those that DISTINCT has put off, and all in their order.
    fn add_rest(&mut self, work: Work<'_>, plan: &AggregatePlan) -> Result<()> {
        if let Some(mut seen) = self.seen.take() {
            let mut account = Account::new(&work.run.options.budget);
            seen.drain(work, true, &mut |chunk| {
                self.add_counted(work, plan, chunk.vectors(), chunk.rows())?;
                let bytes = self.kept_rows();
                match (account.set(bytes), &work.run.options.spill) {
                    (Err(_), Some(area)) if bytes >= LEAST_BYTES => {
                        self.spill_rows(work, plan, area)?;
                        account.set(0)
                    }
                    _ => Ok(()),
                }
            })?;
        }
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        let order = plan.order.as_ref().expect("rows wait for their order");
        let most = work.run.options.vector_rows;
        if waiting.runs.is_empty() {
            let places = sorted(&waiting.keys, work)?;
            let table = waiting.rows.finish();
            for places in places.chunks(most) {
                work.context.check_cancel()?;
                let vectors = table.gather(0..table.vectors().len(), places);
                self.add_to_states(work, plan, &vectors, Rows::all(places.len()))?;
            }
            return Ok(());
        }
        if let (Some(area), false) = (&work.run.options.spill, waiting.keys.is_empty()) {
            waiting.write_run(work, plan, area)?;
        }
        let mut merge =
            Merge::new(work, Arc::new(waiting.runs), plan.waiting().collect(), order.layout.clone())?;
        loop {
            work.context.check_cancel()?;
            let table = merge.next(most)?;
            if table.rows() == 0 {
                return Ok(());
            }
            self.add_to_states(work, plan, table.vectors(), Rows::all(table.rows()))?;
        }
    }

    /// What it keeps of rows beside its states.
    fn kept_rows(&self) -> usize {
        let waiting =
            self.waiting.as_ref().map_or(0, |waiting| waiting.keys.memory() + waiting.rows.memory());
        self.seen.as_ref().map_or(0, Seen::memory) + waiting
    }

    /// Moves that to temporary files.
    fn spill_rows(&mut self, work: Work<'_>, plan: &AggregatePlan, area: &Arc<SpillArea>) -> Result<()> {
        if let Some(seen) = &mut self.seen {
            let order = plan.order.iter().flat_map(|order| &order.representations);
            seen.spill(area, plan.waiting().chain(order.copied()).collect())?;
        }
        match &mut self.waiting {
            Some(waiting) if !waiting.keys.is_empty() => waiting.write_run(work, plan, area),
            _ => Ok(()),
        }
    }

    fn memory(&self) -> usize {
        self.states.memory() + self.kept_rows()
    }
}

impl Waiting {
    /// Writes the rows in memory as a sorted run.
    fn write_run(&mut self, work: Work<'_>, plan: &AggregatePlan, area: &Arc<SpillArea>) -> Result<()> {
        let order = plan.order.as_ref().expect("rows wait for their order");
        let places = sorted(&self.keys, work)?;
        let table = std::mem::replace(&mut self.rows, Collection::new(plan.waiting())).finish();
        let keys = std::mem::replace(&mut self.keys, order.layout.none());
        self.runs.push(SortedRun::write(work, area.create()?, &table, &keys, &places)?);
        Ok(())
    }
}

impl AggregatePlan {
    /// What it gets of a part of a chunk; `None` if that is too wide.
    fn input(&mut self, scope: &Scope<'_>, chunk: &Chunk, part: Part) -> Result<Option<AggregateInput>> {
        let Some(chosen) = self.filter.select_part(scope, chunk, part)? else { return Ok(None) };
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &mut self.arguments {
            let Some(vector) = argument.evaluate_part(scope, &chosen, part)? else { return Ok(None) };
            arguments.push(vector.plain(chosen.rows()));
        }
        Ok(Some((chosen.selection().cloned(), arguments)))
    }

    /// How the number of a group and the arguments lie.
    fn waiting(&self) -> impl Iterator<Item = Representation> + '_ {
        std::iter::once(Representation::Oid).chain(self.arguments.iter().map(Expression::representation))
    }
}
