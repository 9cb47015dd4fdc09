//! Grouping: a set of keys, and for each group a state of every aggregate.
//!
//! A row costs its key (16 bytes), two cache lines of the set (slot and key), and one line of states for each
//! aggregate; aggregates run column by column over the numbers of the groups. With grouping sets each set has its own groups. A DISTINCT
//! aggregate keeps the set of the arguments that its groups have had; one with an order keeps its rows until the end.

use super::Kept;
use super::sort::sorted;
use crate::budget::Account;
use crate::columns::Collection;
use crate::expression::{Conditions, Expression};
use crate::keys::{KeyColumn, KeyLayout, KeySet, Keys};
use crate::pipeline::{Sink, SinkPlan, Template, Work};
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
        let aggregates = self.aggregates.copy();
        let groups = |plan: &SetPlan| Groups {
            plan: plan.clone(),
            set: KeySet::new(&plan.layout),
            values: Collection::new(plan.keys.iter().map(|key| self.representations[*key])),
            aggregates: aggregates.iter().map(Aggregating::new).collect(),
            numbers: Vec::new(),
        };
        let mut sink = GroupSink {
            keys: self.keys.clone(),
            sets: self.sets.iter().map(groups).collect(),
            aggregates: aggregates.clone(),
            unmeasured: 0,
            account: Account::new(&work.run.options.budget),
        };
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
        for other in sinks {
            all.merge(work, other)?;
        }
        let GroupSink { sets, aggregates, mut account, .. } = all;
        let keys = self.representations.iter().copied();
        let number = self.with_number.then_some(Representation::Int32);
        let results = aggregates.iter().map(|aggregate| aggregate.signature.representation);
        let mut result = Collection::new(keys.chain(number).chain(results));
        let mut states = sets.iter().map(Groups::memory).sum::<usize>();
        for (number, groups) in sets.into_iter().enumerate() {
            let memory = groups.memory();
            let (vectors, rows) = groups.finish(work, self, number, &aggregates)?;
            result.append(&vectors, Rows::all(rows));
            account.set(states + result.memory())?;
            states -= memory;
        }
        account.set(result.memory())?;
        Ok(Arc::new(Kept { table: result.finish(), account }))
    }
}

impl Sink for GroupSink {
    fn consume(&mut self, work: Work<'_>, chunk: Chunk) -> Result<bool> {
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
        for groups in &mut self.sets {
            groups.number(&keys, chunk.rows());
            groups.grow(&self.aggregates);
            for (number, (selection, arguments)) in inputs.iter().enumerate() {
                let plan = &self.aggregates[number];
                let rows = match selection {
                    Some(selection) => selection.rows(chunk.length()),
                    None => Rows::all(chunk.length()),
                };
                groups.aggregates[number].add(work, plan, &chunk, &groups.numbers, arguments, rows)?;
            }
        }
        self.unmeasured += chunk.count();
        let groups = self.sets.iter().map(|groups| groups.set.len()).sum::<usize>();
        if self.unmeasured >= groups.max(LEAST_TO_MEASURE) {
            self.unmeasured = 0;
            self.account.set(self.sets.iter().map(Groups::memory).sum())?;
        }
        Ok(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl GroupSink {
    /// Adds the groups of another worker. There is no DISTINCT and no order: those run alone.
    fn merge(&mut self, work: Work<'_>, other: GroupSink) -> Result<()> {
        for (own, other) in self.sets.iter_mut().zip(other.sets) {
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
        self.account.set(self.sets.iter().map(Groups::memory).sum())
    }
}

impl Groups {
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

    /// The groups' rows: all keys, the number of the set if it is asked for, and the aggregates' results.
    fn finish(
        mut self,
        work: Work<'_>,
        plan: &GroupPlan,
        number: usize,
        aggregates: &[AggregatePlan],
    ) -> Result<(Vec<Vector>, usize)> {
        let rows = self.set.len();
        let values = self.values.finish();
        let key = |key: usize| match self.plan.keys.iter().position(|other| *other == key) {
            Some(place) => values.vectors()[place].clone(),
            None => Vector::null(plan.representations[key], rows),
        };
        let mut vectors: Vec<Vector> = (0..plan.keys.len()).map(key).collect();
        if plan.with_number {
            let data = Data::Int32(vec![number as i32].into());
            vectors.push(Vector::constant(Representation::Int32, data, rows));
        }
        for (aggregating, plan) in self.aggregates.iter_mut().zip(aggregates) {
            aggregating.add_waiting(work, plan)?;
            let mut call = Call::new(work.context, &plan.signature, &mut aggregating.local);
            let mut results = Builder::new(plan.signature.representation);
            aggregating.states.finish(&mut call, 0..rows, &mut results)?;
            vectors.push(results.finish());
        }
        Ok((vectors, rows))
    }
}

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
fn new_rows(seen: &mut KeySet, keys: &Keys, rows: Rows<'_>) -> Selection {
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
