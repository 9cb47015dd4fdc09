//! The steps of a short program.
//!
//! The cells that look-ups read lie side by side in one row: first those of the first look-up, then those of the next. A step calls the
//! next one for each row that it lets through.

use super::access::{KeyBound, KeyValue, Lookup};
use super::sink::Sink;
use super::{MOST_ROWS, RowView, ShortProgram, State, Step};
use crate::expression::CellScope;
use crate::source::Request;
use crate::stages::more_than_one_row;
use crate::table::{as_stored, noted};
use crate::write::StoredCells;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnSet, Result, RowId, Value};
use firn_plan::operator::JoinKind;
use firn_storage::{Index, KeyBuffer, Restriction};
use firn_txn::{Guard, Transaction};
use firn_vector::{Datum, Slot};
use smallvec::SmallVec;
use std::ops::Bound;

/// How a step has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It is through.
    Through,
    /// No more rows are wanted.
    Enough,
    /// Too many rows have been visited.
    Spent,
}

/// A program that runs.
pub(super) struct Run<'r, 'g> {
    pub program: &'g ShortProgram,
    pub transaction: &'r Transaction,
    pub parameters: &'r [Value],
    pub scope: CellScope<'r>,
    /// What rows are read with. A program that reads none has no guard, since a function that it calls may wait.
    pub guard: Option<&'g Guard>,
    pub cells: SmallVec<[Cell<'g>; 32]>,
    /// The step behind the last one, at which rows go to the sink.
    pub until: usize,
    /// How many rows may still be visited.
    pub budget: usize,
    /// What each look-up logs beside its keys, once it is known.
    pub noted: SmallVec<[Option<Noted>; 2]>,
}

/// What a look-up logs beside its keys: restrictions of other columns, and the columns that are read.
pub(super) type Noted = (Vec<Restriction>, ColumnSet);

/// What encoding a key comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoded {
    Key,
    /// No row can have it.
    NoRow,
    /// The bound is none.
    NoBound,
}

/// A part of an index.
struct Part {
    low: Bound<KeyBuffer>,
    high: Bound<KeyBuffer>,
    /// What else must hold of its rows, by number.
    conditions: usize,
}

impl<'r, 'g> Run<'r, 'g> {
    pub fn new(
        program: &'g ShortProgram,
        transaction: &'r Transaction,
        parameters: &'r [Value],
        scope: CellScope<'r>,
        guard: Option<&'g Guard>,
    ) -> Run<'r, 'g> {
        let cells = SmallVec::from_elem(Cell::Null, program.cells);
        let until = program.grouping.as_ref().map_or(program.steps.len(), |grouping| grouping.after);
        let noted = SmallVec::new();
        Run { program, transaction, parameters, scope, guard, cells, until, budget: MOST_ROWS, noted }
    }

    /// The row as it is by now.
    #[inline]
    pub fn row<'a>(&'a self, registers: &'a [Slot]) -> RowView<'a> {
        let parameters = self.scope.parameters;
        RowView { places: &self.program.places, cells: &self.cells, registers, parameters }
    }

    /// Runs a step, and those behind it for each row.
    pub fn step(&mut self, at: usize, state: &mut State, sink: &mut Sink<'_>) -> Result<End> {
        if at == self.until {
            return sink.take(self, state);
        }
        match &self.program.steps[at] {
            Step::Filter(number) => {
                let State { conditions, registers, .. } = &mut *state;
                let row = self.row(registers);
                match conditions[*number].hold(self.scope, &row)? {
                    true => self.step(at + 1, state, sink),
                    false => Ok(End::Through),
                }
            }
            Step::Map(outputs) => {
                for (expression, register) in outputs {
                    self.set(state, *expression, *register)?;
                }
                self.step(at + 1, state, sink)
            }
            Step::Values { rows, first } => {
                for row in rows {
                    for (number, expression) in row.iter().enumerate() {
                        self.set(state, *expression, first + number)?;
                    }
                    let end = self.step(at + 1, state, sink)?;
                    if end != End::Through {
                        return Ok(end);
                    }
                }
                Ok(End::Through)
            }
            Step::Look(number) => {
                let program = self.program;
                let lookup = &program.lookups[*number];
                let mut matched = false;
                let end = self.look(at, *number, lookup, state, sink, &mut matched)?;
                let goes_on = match lookup.kind {
                    JoinKind::Left | JoinKind::Single | JoinKind::Anti => !matched,
                    JoinKind::Semi => matched,
                    _ => false,
                };
                if end != End::Through || !goes_on {
                    return Ok(end);
                }
                if lookup.kind.pads_right() {
                    self.own_cells(lookup).fill(Cell::Null);
                }
                self.step(at + 1, state, sink)
            }
        }
    }

    /// Evaluates an expression into a register, of which it reads only those before.
    fn set(&self, state: &mut State, expression: usize, register: usize) -> Result<()> {
        let (before, rest) = state.registers.split_at_mut(register);
        let row = self.row(before);
        rest[0].set(state.expressions[expression].evaluate(self.scope, &row)?);
        Ok(())
    }

    /// The cells of a look-up, its row's id among them.
    fn own_cells(&mut self, lookup: &Lookup) -> &mut [Cell<'g>] {
        let count = lookup.columns.len() + usize::from(lookup.row_cell.is_some());
        &mut self.cells[lookup.first_cell..lookup.first_cell + count]
    }

    fn look(
        &mut self,
        at: usize,
        number: usize,
        lookup: &'g Lookup,
        state: &mut State,
        sink: &mut Sink<'_>,
        matched: &mut bool,
    ) -> Result<End> {
        let guard = self.guard.expect("programs with look-ups have a guard");
        // An index that has been dropped since lacks the keys of newer rows.
        let is_kept = |index: &Arc<Index>| Arc::ptr_eq(index, &lookup.index);
        if !lookup.table.indexes_now(guard).iter().any(is_kept) {
            return Ok(End::Spent);
        }
        if lookup.is_point {
            let mut key = KeyBuffer::new();
            if self.encode(lookup, state, None, None, &mut key)? != Encoded::Key {
                return Ok(End::Through);
            }
            return match self.find(number, lookup, &key, guard) {
                Some(id) => self.accept(at, lookup, lookup.conditions, id, state, sink, matched),
                None => Ok(End::Through),
            };
        }
        let Some(part) = lookup.key.iter().position(|part| !matches!(part.value, KeyValue::One(_))) else {
            let Some(part) = self.part(lookup, state)? else { return Ok(End::Through) };
            return self.range(at, number, lookup, &part, guard, state, sink, matched);
        };
        let keys = self.keys(lookup, part, state)?;
        if keys.len() > self.budget {
            return Ok(End::Spent);
        }
        for key in keys {
            let (low, high) = (Bound::Included(key.clone()), Bound::Included(key));
            let part = Part { low, high, conditions: lookup.conditions };
            let end = self.range(at, number, lookup, &part, guard, state, sink, matched)?;
            if end != End::Through {
                return Ok(end);
            }
        }
        Ok(End::Through)
    }

    /// The row under a key, and its cells.
    fn find(
        &mut self,
        number: usize,
        lookup: &'g Lookup,
        key: &KeyBuffer,
        guard: &'g Guard,
    ) -> Option<RowId> {
        let Lookup { table, index, columns, .. } = lookup;
        let transaction = self.transaction;
        let is_noted = lookup.noted.is_noted && transaction.notes_reads();
        let noted = (is_noted && !lookup.is_decided).then(|| self.noted(number, lookup));
        let cells = &mut self.cells[lookup.first_cell..lookup.first_cell + columns.len()];
        match &noted {
            Some((restrictions, read)) => {
                let found =
                    transaction.find_under(table, index, key, columns, cells, restrictions, *read, guard);
                self.noted[number] = noted;
                found
            }
            None if is_noted => transaction.find(table, index, key, columns, cells, guard),
            None => table.find(index, key, transaction.snapshot(), columns, cells, guard),
        }
    }

    /// The rows of a part of the index.
    #[allow(clippy::too_many_arguments)]
    fn range(
        &mut self,
        at: usize,
        number: usize,
        lookup: &'g Lookup,
        part: &Part,
        guard: &'g Guard,
        state: &mut State,
        sink: &mut Sink<'_>,
        matched: &mut bool,
    ) -> Result<End> {
        let transaction = self.transaction;
        let (table, index) = (&lookup.table, &lookup.index);
        let bounds = (slice(&part.low), slice(&part.high));
        let mut outcome = Ok(End::Through);
        let mut is_enough = false;
        let mut visit = |run: &mut Run<'r, 'g>, id: RowId| {
            let cells = &mut run.cells[lookup.first_cell..lookup.first_cell + lookup.columns.len()];
            if lookup.columns.is_empty() || transaction.peek(table, id, &lookup.columns, cells, guard) {
                outcome = run.accept(at, lookup, part.conditions, id, state, sink, matched);
                // The first partner decides.
                is_enough = *matched && matches!(lookup.kind, JoinKind::Semi | JoinKind::Anti);
            }
            matches!(outcome, Ok(End::Through)) && !is_enough
        };
        if lookup.noted.is_noted && transaction.notes_reads() {
            let (restrictions, columns) = self.noted(number, lookup);
            let run = &mut *self;
            transaction.range_under(
                table,
                index,
                bounds,
                lookup.reverse,
                &restrictions,
                columns,
                guard,
                &mut |id| visit(run, id),
            );
            self.noted[number] = Some((restrictions, columns));
        } else {
            let snapshot = transaction.snapshot();
            let run = &mut *self;
            index.range(bounds.0, bounds.1, lookup.reverse, guard, &mut |key, id| {
                !table.sees(index, key, id, snapshot, guard) || visit(run, id)
            });
        }
        outcome
    }

    /// What a look-up logs beside its keys. It is put back when the look-up has ended.
    fn noted(&mut self, number: usize, lookup: &Lookup) -> (Vec<Restriction>, ColumnSet) {
        if self.noted.is_empty() {
            self.noted.resize_with(self.program.lookups.len(), || None);
        }
        if let Some(noted) = self.noted[number].take() {
            return noted;
        }
        let request = Request {
            columns: &lookup.noted.columns,
            used: lookup.noted.used,
            conditions: &lookup.noted.conditions,
            judges: &[],
            parameters: self.parameters,
            all: &lookup.noted.all,
            workers: 1,
        };
        let (restrictions, columns) = noted(&request, &lookup.definition);
        match lookup.noted.keeps_order {
            true => (restrictions, columns.union(lookup.index.columns())),
            false => (restrictions, columns),
        }
    }

    /// Goes on with a row that has been read, if the conditions of that number hold.
    #[allow(clippy::too_many_arguments)]
    fn accept(
        &mut self,
        at: usize,
        lookup: &'g Lookup,
        conditions: usize,
        id: RowId,
        state: &mut State,
        sink: &mut Sink<'_>,
        matched: &mut bool,
    ) -> Result<End> {
        if self.budget == 0 {
            return Ok(End::Spent);
        }
        self.budget -= 1;
        if let Some(cell) = lookup.row_cell {
            self.cells[cell] = Cell::Word(id.to_bits());
        }
        let State { conditions: all, registers, .. } = &mut *state;
        let conditions = &mut all[conditions];
        if !conditions.is_empty() {
            let row = self.row(registers);
            if !conditions.hold(self.scope, &row)? {
                return Ok(End::Through);
            }
        }
        if *matched && lookup.kind == JoinKind::Single {
            return Err(more_than_one_row());
        }
        *matched = true;
        match lookup.kind {
            JoinKind::Semi | JoinKind::Anti => Ok(End::Through),
            _ => self.step(at + 1, state, sink),
        }
    }

    /// Appends the key, with `listed` for the part that lists values, and the value of a bound behind it.
    fn encode(
        &self,
        lookup: &Lookup,
        state: &mut State,
        listed: Option<Datum<'_>>,
        bound: Option<&KeyBound>,
        key: &mut KeyBuffer,
    ) -> Result<Encoded> {
        let State { expressions, registers, .. } = state;
        let row = self.row(registers);
        let mut stored = StoredCells::default();
        // Each expression keeps its result, so all that are used are borrowed at once: their numbers rise.
        let (mut rest, mut first) = (&mut expressions[..], 0);
        let mut evaluate = |number: usize| {
            let (own, behind) =
                std::mem::take(&mut rest)[number - first..].split_first_mut().expect("it is there");
            (rest, first) = (behind, number + 1);
            own.evaluate(self.scope, &row)
        };
        for part in &lookup.key {
            let value = match part.value {
                KeyValue::One(number) => evaluate(number)?,
                KeyValue::OneOf(_) | KeyValue::Element(_) => listed.expect("a part lists values"),
            };
            match as_stored(value, part.representation) {
                Some(value) => stored.push(value),
                None => return Ok(Encoded::NoRow),
            }
        }
        if let Some(bound) = bound {
            let value = evaluate(bound.value)?;
            match as_stored(value, bound.representation) {
                Some(value) => stored.push(value),
                None if value.is_null() => return Ok(Encoded::NoRow),
                // The column cannot hold the value; the condition is asked of each row.
                None => return Ok(Encoded::NoBound),
            }
        }
        stored.with(|cells| lookup.index.encode(cells, key));
        Ok(Encoded::Key)
    }

    /// The keys with each of the values that a part lists, each once, in the order of the index.
    fn keys(&self, lookup: &Lookup, part: usize, state: &mut State) -> Result<Vec<KeyBuffer>> {
        let mut keys: Vec<KeyBuffer> = Vec::new();
        let mut listed: Vec<Slot> = Vec::new();
        {
            let State { expressions, registers, .. } = &mut *state;
            let row = self.row(registers);
            let mut add = |value: Datum<'_>| {
                let mut slot = Slot::new();
                slot.set(value);
                listed.push(slot);
            };
            match &lookup.key[part].value {
                KeyValue::One(_) => unreachable!("it lists values"),
                KeyValue::OneOf(values) => {
                    for number in values {
                        add(expressions[*number].evaluate(self.scope, &row)?);
                    }
                }
                KeyValue::Element(array) => {
                    if let Datum::List(list) = expressions[*array].evaluate(self.scope, &row)? {
                        list.iter().for_each(&mut add);
                    }
                }
            }
        }
        for value in &listed {
            let mut key = KeyBuffer::new();
            if self.encode(lookup, state, Some(value.get()), None, &mut key)? == Encoded::Key {
                keys.push(key);
            }
        }
        keys.sort_unstable_by(|left, right| left.as_slice().cmp(right.as_slice()));
        keys.dedup_by(|left, right| left.as_slice() == right.as_slice());
        Ok(keys)
    }

    /// The part of the index that has the rows, if any row can be there.
    fn part(&self, lookup: &Lookup, state: &mut State) -> Result<Option<Part>> {
        let mut key = KeyBuffer::new();
        if self.encode(lookup, state, None, None, &mut key)? == Encoded::NoRow {
            return Ok(None);
        }
        let (mut low, mut high) = match lookup.key.is_empty() {
            true => (Bound::Unbounded, Bound::Unbounded),
            false => (Bound::Included(key.clone()), Bound::Included(key)),
        };
        let mut conditions = lookup.conditions;
        for bound in &lookup.bounds {
            let mut end = KeyBuffer::new();
            match self.encode(lookup, state, None, Some(bound), &mut end)? {
                Encoded::NoRow => return Ok(None),
                Encoded::NoBound => {
                    conditions = lookup.with_bounds;
                    continue;
                }
                Encoded::Key => {}
            }
            let end = if bound.is_included { Bound::Included(end) } else { Bound::Excluded(end) };
            if bound.is_low { low = end } else { high = end }
        }
        Ok(Some(Part { low, high, conditions }))
    }
}

fn slice(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(KeyBuffer::as_slice)
}
