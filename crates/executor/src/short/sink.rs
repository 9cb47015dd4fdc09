//! What becomes of the rows that come through the steps of a short program.

use super::change::Body;
use super::run::{End, Run};
use super::{Aggregate, Grouping, Limit, RowView, ShortProgram, SortBy, State};
use crate::expression::{CellScope, NoRow};
use crate::keys::KeySet;
use crate::seen::new_rows;
use firn_base::{Result, RowId, Value};
use firn_txn::{Transaction, pin};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Local};
use firn_vector::selection::Rows;
use firn_vector::{Context, Datum, Slot, order};
use std::cmp::Ordering;

/// Where rows go.
pub(super) struct Sink<'v> {
    values: &'v mut Vec<Value>,
    /// The arguments of each aggregate in the rows so far, while rows are grouped.
    arguments: Option<Vec<Arguments>>,
    /// How many rows are still to be passed over, and how many are wanted.
    skip: u64,
    take: u64,
    /// How many have come.
    pub rows: usize,
}

/// The arguments of an aggregate.
struct Arguments {
    builders: Vec<Builder>,
    rows: usize,
}

impl Sink<'_> {
    /// Takes a row. Whether more are wanted.
    pub fn take(&mut self, run: &Run<'_, '_>, state: &mut State) -> Result<End> {
        let program = run.program;
        if let Some(arguments) = &mut self.arguments {
            let grouping = program.grouping.as_ref().expect("rows are grouped");
            let mut has_value = false;
            for (aggregate, arguments) in grouping.aggregates.iter().zip(arguments) {
                has_value |= arguments.add(aggregate, run, state)?;
            }
            return Ok(if has_value && grouping.first_is_enough { End::Enough } else { End::Through });
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(End::Through);
        }
        if let Body::Change(change) = &program.body {
            change.collect(run, state)?;
        } else {
            let row = run.row(&state.registers);
            self.values.extend(program.outputs.iter().map(|output| row.value(*output)));
            for key in &program.sort {
                let row = run.row(&state.registers);
                let value = crate::expression::Row::datum(&row, key.place);
                keep(&mut state.sort_keys, &mut state.sort_keys_now, value);
            }
            if let Body::Lock(lock) = &program.body {
                let row = run.row(&state.registers);
                state.ids.extend(lock.targets.iter().map(|target| row_id(&row, target.row)));
            }
        }
        self.rows += 1;
        Ok(if self.rows as u64 >= self.take { End::Enough } else { End::Through })
    }
}

/// The id of a row at a place, unless it is NULL.
pub(super) fn row_id(row: &RowView<'_>, place: usize) -> Option<RowId> {
    match crate::expression::Row::datum(row, place) {
        Datum::Int64(bits) => Some(RowId::from_bits(bits as u64)),
        Datum::Null => None,
        other => panic!("{other:?} is the id of no row"),
    }
}

/// Keeps a value behind those of this execution, in a slot that an earlier one may have left.
#[inline]
pub(super) fn keep(slots: &mut Vec<Slot>, now: &mut usize, value: Datum<'_>) {
    if *now == slots.len() {
        slots.push(Slot::new());
    }
    slots[*now].set(value);
    *now += 1;
}

impl Arguments {
    fn new(aggregate: &Aggregate) -> Arguments {
        let builders = aggregate.signature.representations.iter().map(|it| Builder::new(*it));
        Arguments { builders: builders.collect(), rows: 0 }
    }

    /// Adds those of a row. Whether one of them is a value, and not NULL.
    fn add(&mut self, aggregate: &Aggregate, run: &Run<'_, '_>, state: &mut State) -> Result<bool> {
        let State { expressions, conditions, registers, .. } = state;
        let row = run.row(registers);
        if !conditions[aggregate.filter].hold(run.scope, &row)? {
            return Ok(false);
        }
        let mut has_value = false;
        for (builder, number) in self.builders.iter_mut().zip(&aggregate.arguments) {
            let argument = expressions[*number].evaluate(run.scope, &row)?;
            has_value |= !argument.is_null();
            builder.push(argument);
        }
        self.rows += 1;
        Ok(has_value)
    }

    /// The value of the aggregate.
    fn finish(self, aggregate: &Aggregate, context: &Context<'_>, out: &mut Slot) -> Result<()> {
        let vectors: Vec<_> = self.builders.into_iter().map(Builder::finish).collect();
        let new;
        let rows = match &aggregate.distinct {
            Some(layout) => {
                let keys = layout.keys(&vectors, Rows::all(self.rows));
                new = new_rows(&mut KeySet::new(layout), &keys, Rows::all(self.rows));
                new.rows(self.rows)
            }
            None => Rows::all(self.rows),
        };
        let mut local = Local::default();
        let mut call = Call::new(context, &aggregate.signature, &mut local);
        let mut states = aggregate.kernel.states();
        states.resize(&aggregate.signature, 1);
        states.add_to(&mut call, 0, &vectors, rows)?;
        let mut result = Builder::new(aggregate.signature.representation);
        states.finish(&mut call, 0..1, &mut result)?;
        out.set(result.finish().datum(0));
        Ok(())
    }
}

impl ShortProgram {
    /// Runs the steps. The values of the rows are appended, or what is to be changed is kept in the state; how many rows, or `None` if
    /// there are too many.
    pub(super) fn rows(
        &self,
        state: &mut State,
        transaction: &Transaction,
        parameters: &[Value],
        scope: CellScope<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<usize>> {
        (state.assigned_now, state.sort_keys_now) = (0, 0);
        state.ids.clear();
        let (take, skip) = self.limit(state, scope)?;
        let takes_in_order = self.sort.is_empty() && self.body.takes_in_order();
        let begin = values.len();
        let mut sink = Sink {
            values,
            arguments: self.grouping.as_ref().map(Grouping::arguments),
            skip: if takes_in_order { skip } else { 0 },
            take: match (takes_in_order, &self.body) {
                (true, Body::Lock(_)) => u64::MAX,
                (true, _) => take,
                (false, _) => u64::MAX,
            },
            rows: 0,
        };
        if let Body::Lock(lock) = &self.body {
            // Rows that are passed over are locked as well.
            (sink.skip, sink.take) = (0, lock.wanted(self.sort.is_empty(), take, skip));
        }
        if take == 0 {
            return Ok(Some(0));
        }
        let guard = (!self.lookups.is_empty()).then(pin);
        let mut run = Run::new(self, transaction, parameters, scope, guard.as_ref());
        let mut end = run.step(0, state, &mut sink)?;
        if let (Some(grouping), Some(arguments)) = (&self.grouping, sink.arguments.take())
            && end != End::Spent
        {
            for (aggregate, arguments) in grouping.aggregates.iter().zip(arguments) {
                arguments.finish(aggregate, scope.context, &mut state.registers[aggregate.register])?;
            }
            run.until = self.steps.len();
            end = run.step(grouping.after, state, &mut sink)?;
        }
        let rows = sink.rows;
        if end == End::Spent {
            values.truncate(begin);
            return Ok(None);
        }
        if self.sort.is_empty() {
            return Ok(Some(rows));
        }
        let (skip, take) = if matches!(self.body, Body::Lock(_)) { (0, u64::MAX) } else { (skip, take) };
        Ok(Some(self.sorted(state, values, begin, rows, skip, take)))
    }

    /// How many rows go on, and how many are passed over before.
    pub(super) fn limit(&self, state: &mut State, scope: CellScope<'_>) -> Result<(u64, u64)> {
        let Some(Limit { count, offset }) = self.limit else { return Ok((u64::MAX, 0)) };
        let mut number = |expression: Option<usize>| -> Result<Option<u64>> {
            let Some(expression) = expression else { return Ok(None) };
            match state.expressions[expression].evaluate(scope, &NoRow)? {
                Datum::Null => Ok(None),
                Datum::Int64(number) => Ok(Some(u64::try_from(number).expect("the binder checks the sign"))),
                other => panic!("a limit is a bigint, not {other:?}"),
            }
        };
        Ok((number(count)?.unwrap_or(u64::MAX), number(offset)?.unwrap_or(0)))
    }

    /// Sorts the rows whose values have been appended, and keeps those that are wanted.
    fn sorted(
        &self,
        state: &mut State,
        values: &mut Vec<Value>,
        begin: usize,
        rows: usize,
        skip: u64,
        take: u64,
    ) -> usize {
        let keys = |row: usize| &state.sort_keys[row * self.sort.len()..][..self.sort.len()];
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by(|left, right| {
            let pairs = self.sort.iter().zip(keys(*left).iter().zip(keys(*right)));
            let mut orders = pairs.map(|(key, (left, right))| key.compare(&left.get(), &right.get()));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        let (skip, take) = (skip.min(rows as u64) as usize, take.min(rows as u64) as usize);
        let width = self.outputs.len();
        let mut unsorted: Vec<Value> = values.drain(begin..).collect();
        let wanted = || order.iter().skip(skip).take(take);
        for row in wanted() {
            let row = &mut unsorted[row * width..][..width];
            values.extend(row.iter_mut().map(|value| std::mem::replace(value, Value::Null)));
        }
        if let Body::Lock(lock) = &self.body {
            let width = lock.targets.len();
            let sorted = wanted().flat_map(|row| state.ids[row * width..][..width].iter().copied());
            state.ids = sorted.collect();
        }
        wanted().count()
    }
}

impl Grouping {
    fn arguments(&self) -> Vec<Arguments> {
        self.aggregates.iter().map(Arguments::new).collect()
    }
}

impl SortBy {
    fn compare(&self, left: &Datum<'_>, right: &Datum<'_>) -> Ordering {
        match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if self.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if self.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => {
                let order = order::of(left, right, self.representation);
                if self.descending { order.reverse() } else { order }
            }
        }
    }
}
