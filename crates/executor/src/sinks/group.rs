//! Grouping: a set of keys, and for each group a state of every aggregate.
//!
//! A row costs its key (16 bytes), two cache lines of the set (slot and key), and one line of states for each
//! aggregate; aggregates run column by column over the numbers of the groups. With grouping sets each set has its own groups. A DISTINCT
//! aggregate keeps the set of the arguments that its groups have had; one with an order keeps its rows until the end.
//!
//! Where memory does not suffice, no groups are added any more: rows of other groups go to temporary files, split by the hash of
//! their key ([`Partitions`]), and each part is grouped by itself when all rows have come. What one group keeps must fit.

use super::sort::sorted;
use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::columns::Collection;
use crate::expression::{Conditions, Expression};
use crate::keys::{KeyColumn, KeyLayout, KeySet, Keys};
use crate::partitions::{MOST_LEVELS, PartRows, Partitions};
use crate::pipeline::{Sink, SinkPlan, Template, Work};
use crate::spill::SpillArea;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::aggregate::{AggregateKernel, States};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local, Signature};
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
    /// Positions of keys.
    pub keys: Vec<usize>,
    /// How their keys are made.
    pub layout: KeyLayout,
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
    /// Rows that have come since memory was measured, which looks at each state.
    unmeasured: usize,
    account: Account,
    /// How often its rows have been split before.
    level: u32,
    /// Where rows of further groups may go, and how the columns of the input lie.
    area: Option<(Arc<SpillArea>, Vec<Representation>)>,
    /// What the groups took when no more could be added.
    full: Option<usize>,
}

/// With fewer rows than this memory is not measured again.
const LEAST_TO_MEASURE: usize = 4096;

/// The groups of one set.
struct Groups {
    plan: SetPlan,
    set: KeySet,
    /// The keys' values in the first row of each group.
    values: Collection,
    aggregates: Vec<Aggregating>,
    /// A copy for each call; of a chunk's length.
    numbers: Vec<u32>,
    /// The rows of groups that are not there.
    others: Option<Partitions>,
}

/// An aggregate at work.
struct Aggregating {
    states: Box<dyn States>,
    local: Local,
    seen: Option<KeySet>,
    waiting: Option<Waiting>,
}

/// The rows of an ordered aggregate.
struct Waiting {
    keys: Keys,
    groups: Vec<u32>,
    arguments: Collection,
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
        let mut sinks = super::own::<GroupSink>(sinks);
        let mut all = sinks.next().expect("there is a worker");
        let mut others: Vec<Vec<PartRows>> = Vec::new();
        others.resize_with(self.sets.len(), Vec::new);
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
                    all.add(work, &chunk?, Some(set))?;
                }
            }
            all.take_others(&mut others)?;
        }
        let keys = self.representations.iter().copied();
        let number = self.with_number.then_some(Representation::Int32);
        let results = all.aggregates.iter().map(|aggregate| aggregate.signature.representation);
        let representations = keys.chain(number).chain(results).collect();
        let mut result = RowBuffer::new(representations, &work.run.options);
        let level = all.level;
        all.emit(work, self, 0, &mut result)?;
        for (set, parts) in others.into_iter().enumerate() {
            self.group_parts(work, set, parts, level + 1, &mut result)?;
        }
        Ok(Arc::new(result))
    }
}

impl GroupPlan {
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
                sink.add(work, &chunk?, None)?;
                sink.measure(false)?;
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
        self.add(work, &chunk, None)?;
        self.measure(false)?;
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl GroupSink {
    fn new(work: Work<'_>, plan: &GroupPlan, sets: &[SetPlan], level: u32) -> GroupSink {
        let aggregates = plan.aggregates.copy();
        let groups = |set: &SetPlan| Groups {
            plan: set.clone(),
            set: KeySet::new(&set.layout),
            values: Collection::new(set.keys.iter().map(|key| plan.representations[*key])),
            aggregates: aggregates.iter().map(Aggregating::new).collect(),
            numbers: Vec::new(),
            others: None,
        };
        let area = work.run.options.spill.as_ref().filter(|_| plan.can_spill && level < MOST_LEVELS);
        GroupSink {
            keys: plan.keys.clone(),
            sets: sets.iter().map(groups).collect(),
            aggregates: aggregates.clone(),
            unmeasured: 0,
            account: Account::new(&work.run.options.budget),
            level,
            area: area.map(|area| (area.clone(), plan.input.clone())),
            full: None,
        }
    }

    /// Adds the rows of a chunk to the groups of all sets, or of one.
    fn add(&mut self, work: Work<'_>, chunk: &Chunk, only: Option<usize>) -> Result<()> {
        let mut inputs = Vec::with_capacity(self.aggregates.len());
        for aggregate in &mut self.aggregates {
            let chosen = aggregate.filter.select(&work.scope(), chunk.clone())?;
            let arguments = aggregate
                .arguments
                .iter_mut()
                .map(|argument| Ok(argument.evaluate(&work.scope(), &chosen)?.plain(chosen.rows())))
                .collect::<Result<Vec<_>>>()?;
            inputs.push((chosen.selection().cloned(), arguments));
        }
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
    fn measure(&mut self, at_once: bool) -> Result<()> {
        let groups = self.sets.iter().map(|groups| groups.set.len()).sum::<usize>();
        if !at_once && self.unmeasured < groups.max(LEAST_TO_MEASURE) {
            return Ok(());
        }
        self.unmeasured = 0;
        let bytes = self.memory();
        let Err(error) = self.account.set(bytes) else { return Ok(()) };
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

    /// Moves the rows of groups that are not there to those of each set.
    fn take_others(&mut self, into: &mut [Vec<PartRows>]) -> Result<()> {
        for (groups, into) in self.sets.iter_mut().zip(into) {
            if let Some(others) = groups.others.take() {
                into.extend(others.finish()?);
            }
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
        for (own, other) in self.sets.iter_mut().zip(sets) {
            let (mut numbers, before) = (Vec::new(), own.set.len() as u32);
            own.set.insert(other.set.keys(), &mut numbers);
            let values = other.values.finish();
            let (mut next, mut new) = (before, Vec::new());
            for (row, number) in numbers.iter().enumerate() {
                if *number == next {
                    new.push(row as u32);
                    next += 1;
                }
            }
            let new_values = values.gather(0..values.vectors().len(), &new);
            own.values.append(&new_values, Rows::all(new.len()));
            own.grow(&self.aggregates);
            for ((own, mut other), plan) in
                own.aggregates.iter_mut().zip(other.aggregates).zip(&self.aggregates)
            {
                assert!(other.seen.is_none() && other.waiting.is_none(), "it runs alone");
                let mut call = Call::new(work.context, &plan.signature, &mut own.local);
                own.states.merge(&mut call, &mut *other.states, &numbers)?;
            }
        }
        self.measure(true)
    }

    /// Appends the groups' rows; the first set has this number.
    fn emit(self, work: Work<'_>, plan: &GroupPlan, first: usize, result: &mut RowBuffer) -> Result<()> {
        let GroupSink { sets, aggregates, mut account, .. } = self;
        let mut left: usize = sets.iter().map(Groups::memory).sum();
        let charged = account.bytes().min(left);
        for (number, groups) in sets.into_iter().enumerate() {
            left -= groups.memory();
            groups.emit(work, plan, first + number, &aggregates, result)?;
            account.set(charged.min(left))?;
        }
        Ok(())
    }
}

impl Groups {
    /// Finds the group of each row that has one. Other rows are put off. Which rows have one.
    fn number_known(
        &mut self,
        keys: &[Vector],
        chunk: &Chunk,
        open: impl FnOnce() -> Result<Partitions>,
    ) -> Result<Vec<bool>> {
        let vectors: Vec<Vector> = self.plan.keys.iter().map(|key| keys[*key].clone()).collect();
        let keys = self.plan.layout.keys(&vectors, chunk.rows());
        let hashes = keys.hashes();
        self.numbers.clear();
        self.numbers.resize(chunk.length(), 0);
        let mut known = vec![false; chunk.length()];
        let (mut place, mut positions, mut of_others) = (0, Vec::new(), Vec::new());
        chunk.rows().each(|row| {
            match self.set.find(keys.get(place), hashes[place]) {
                Some(number) => (self.numbers[row], known[row]) = (number, true),
                None => {
                    positions.push(row as u16);
                    of_others.push(hashes[place]);
                }
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
        let vectors: Vec<Vector> = self.plan.keys.iter().map(|key| keys[*key].clone()).collect();
        let (mut numbers, mut next) = (Vec::with_capacity(rows.count()), self.set.len() as u32);
        if self.plan.keys.is_empty() {
            let one = self.plan.layout.keys(&[], Rows::all(1));
            self.set.insert(&one, &mut numbers);
            numbers = vec![0; rows.count()];
            if next == 0 {
                self.values.append([], Rows::all(1));
            }
            next = 1;
        } else {
            self.set.insert(&self.plan.layout.keys(&vectors, rows), &mut numbers);
        }
        self.numbers.clear();
        self.numbers.resize(rows.length(), 0);
        let (mut place, mut new) = (0, Vec::new());
        rows.each(|row| {
            let number = numbers[place];
            if number == next {
                new.push(row as u16);
                next += 1;
            }
            self.numbers[row] = number;
            place += 1;
        });
        if !new.is_empty() {
            self.values.append(&vectors, Rows::at(&new, rows.length()));
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
        result: &mut RowBuffer,
    ) -> Result<()> {
        let rows = self.set.len();
        let values = self.values.finish();
        for (aggregating, plan) in self.aggregates.iter_mut().zip(aggregates) {
            aggregating.add_waiting(work, plan)?;
        }
        for from in (0..rows).step_by(EMITTED) {
            work.context.check_cancel()?;
            let count = EMITTED.min(rows - from);
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
            result.push(Chunk::new(count, vectors))?;
        }
        Ok(())
    }
}

/// How many groups a chunk of the result has.
const EMITTED: usize = 8192;

impl Aggregating {
    fn new(plan: &AggregatePlan) -> Aggregating {
        let arguments = plan.arguments.iter().map(Expression::representation);
        Aggregating {
            states: plan.kernel.states(),
            local: Local::default(),
            seen: plan.distinct.as_ref().map(KeySet::new),
            waiting: plan.order.as_ref().map(|order| Waiting {
                keys: order.layout.none(),
                groups: Vec::new(),
                arguments: Collection::new(arguments),
            }),
        }
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
        let numbers = || Vector::flat(Representation::Oid, Data::UInt32(groups.to_vec().into()), None);
        let new;
        let rows = match (&plan.distinct, &mut self.seen) {
            (Some(layout), Some(seen)) => {
                let vectors: Vec<Vector> =
                    std::iter::once(numbers()).chain(arguments.iter().cloned()).collect();
                new = new_rows(seen, &layout.keys(&vectors, rows), rows);
                new.rows(chunk.length())
            }
            _ => rows,
        };
        if let (Some(order), Some(waiting)) = (&plan.order, &mut self.waiting) {
            let columns = order.columns.iter().map(|place| chunk.vectors()[*place].clone());
            let vectors: Vec<Vector> = std::iter::once(numbers()).chain(columns).collect();
            waiting.keys.append(&order.layout.keys(&vectors, rows));
            rows.each(|row| waiting.groups.push(groups[row]));
            waiting.arguments.append(arguments, rows);
            return Ok(());
        }
        let mut call = Call::new(work.context, &plan.signature, &mut self.local);
        self.states.add(&mut call, groups, arguments, rows)
    }

    /// Adds the rows that have waited for all others, in their order.
    fn add_waiting(&mut self, work: Work<'_>, plan: &AggregatePlan) -> Result<()> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let order = sorted(&waiting.keys, work)?;
        let table = waiting.arguments.finish();
        let mut call = Call::new(work.context, &plan.signature, &mut self.local);
        for places in order.chunks(work.run.options.vector_rows) {
            work.context.check_cancel()?;
            let groups: Vec<u32> = places.iter().map(|place| waiting.groups[*place as usize]).collect();
            let arguments = table.gather(0..table.vectors().len(), places);
            self.states.add(&mut call, &groups, &arguments, Rows::all(places.len()))?;
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, |waiting| {
            waiting.keys.memory() + waiting.groups.capacity() * 4 + waiting.arguments.memory()
        });
        self.states.memory() + self.seen.as_ref().map_or(0, KeySet::memory) + waiting
    }
}

/// The rows whose keys were not there.
pub(crate) fn new_rows(seen: &mut KeySet, keys: &Keys, rows: Rows<'_>) -> Selection {
    let (mut next, mut numbers) = (seen.len() as u32, Vec::with_capacity(keys.len()));
    seen.insert(keys, &mut numbers);
    let (mut place, mut new) = (0, Vec::new());
    rows.each(|row| {
        if numbers[place] == next {
            new.push(row as u16);
            next += 1;
        }
        place += 1;
    });
    Selection::new(new)
}
