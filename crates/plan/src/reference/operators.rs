//! Operators over lists of rows.

use super::scalars::same;
use crate::column::Column;
use crate::operator::*;
use crate::plan::{NodeId, Plan};
use firn_base::{Error, Result, SqlState, Value};
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

/// A row: values of columns.
#[derive(Clone, Default, Debug)]
pub struct Row(Vec<(Column, Value)>);

impl Row {
    /// The value of a column.
    pub fn get(&self, column: Column) -> &Value {
        let found = self.0.iter().rev().find(|(other, _)| *other == column);
        &found.unwrap_or_else(|| panic!("{column:?} is not in the row")).1
    }

    /// Adds a column.
    pub fn set(&mut self, column: Column, value: Value) {
        self.0.push((column, value));
    }

    fn with(&self, other: &Row) -> Row {
        Row(self.0.iter().chain(&other.0).cloned().collect())
    }
}

/// The rows of sources: a value for each attribute, from 1.
pub type Tables = HashMap<SourceId, Vec<Vec<Value>>>;

/// The rows that a plan gives, in its order.
pub fn run(plan: &Plan, tables: &Tables, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
    let interpreter = Interpreter {
        plan,
        tables,
        parameters,
        shared: RefCell::default(),
        rounds: RefCell::default(),
        sequence: Cell::new(0),
        work: Cell::new(0),
    };
    let rows = interpreter.operator(plan.root, &Row::default())?;
    let values = |row: Row| plan.output.iter().map(|column| row.get(*column).clone()).collect();
    Ok(rows.into_iter().map(values).collect())
}

/// Orders two rows.
pub fn compare(left: &Row, right: &Row, keys: &[SortKey]) -> Ordering {
    let by = |key: &SortKey| {
        let (left, right) = (left.get(key.column), right.get(key.column));
        let nulls = if key.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (left, right) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => nulls,
            (_, Value::Null) => nulls.reverse(),
            _ => {
                let order = left.compare(right).expect("neither is NULL");
                if key.descending { order.reverse() } else { order }
            }
        }
    };
    keys.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Sorts rows; equal ones stay in their order.
pub fn sort(rows: &mut [Row], keys: &[SortKey]) {
    rows.sort_by(|left, right| compare(left, right, keys));
}

/// A plan with more rounds or rows than this is taken for endless.
const MOST_WORK: usize = 200_000;

/// A definition, the row of the outer query around it, and its rows once it is read.
struct Definition {
    node: NodeId,
    outer: Row,
    rows: OnceCell<Vec<Row>>,
}

/// The rows of the round before, and the columns that they have.
type Round = Rc<(Vec<Column>, Vec<Row>)>;

pub struct Interpreter<'a> {
    plan: &'a Plan,
    tables: &'a Tables,
    parameters: &'a [Value],
    shared: RefCell<HashMap<SharedId, Rc<Definition>>>,
    rounds: RefCell<HashMap<IterateId, Round>>,
    sequence: Cell<i64>,
    work: Cell<usize>,
}

impl Interpreter<'_> {
    pub fn parameter(&self, number: u16) -> Value {
        self.parameters[usize::from(number) - 1].clone()
    }

    pub fn next_value(&self) -> i64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    fn padding(&self, columns: &[Column]) -> Row {
        Row(columns.iter().map(|column| (*column, Value::Null)).collect())
    }

    /// The rows of an operator, for a row of the outer query. They hold the outer columns as well.
    fn operator(&self, node: NodeId, outer: &Row) -> Result<Vec<Row>> {
        let plan = self.plan;
        self.work.set(self.work.get() + 1);
        let rows = match &plan[node] {
            Operator::Scan(scan) => {
                let mut rows = Vec::new();
                for values in &self.tables[&scan.source] {
                    let mut row = outer.clone();
                    for (column, attribute) in &scan.columns {
                        row.set(*column, values[*attribute as usize - 1].clone());
                    }
                    if self.holds(&scan.conditions, &row)? {
                        rows.push(row);
                    }
                }
                rows
            }
            Operator::Values { columns, rows: lists } => {
                let row = |list: &Vec<_>| {
                    let mut row = outer.clone();
                    for (column, scalar) in columns.iter().zip(list) {
                        row.set(*column, self.scalar(scalar, outer)?);
                    }
                    Ok(row)
                };
                lists.iter().map(row).collect::<Result<_>>()?
            }
            Operator::TableFunction(calls) => self.set_calls(calls, outer)?,
            Operator::FlatMap { input, calls } => {
                let mut rows = Vec::new();
                for row in self.operator(*input, outer)? {
                    rows.extend(self.set_calls(calls, &row)?);
                }
                rows
            }
            Operator::Filter { input, conditions } => {
                let mut rows = Vec::new();
                for row in self.operator(*input, outer)? {
                    if self.holds(conditions, &row)? {
                        rows.push(row);
                    }
                }
                rows
            }
            Operator::Map { input, outputs } => {
                let mut rows = self.operator(*input, outer)?;
                for row in &mut rows {
                    let values = outputs.iter().map(|(_, scalar)| self.scalar(scalar, row));
                    let values = values.collect::<Result<Vec<_>>>()?;
                    for ((column, _), value) in outputs.iter().zip(values) {
                        row.set(*column, value);
                    }
                }
                rows
            }
            Operator::Join(join) => self.join(join, outer)?,
            Operator::Group(group) => self.group(group, outer)?,
            Operator::Window(window) => self.window(window, self.operator(window.input, outer)?)?,
            Operator::Sort { input, keys } => {
                let mut rows = self.operator(*input, outer)?;
                sort(&mut rows, keys);
                rows
            }
            Operator::Limit(limit) => self.limit(limit, outer)?,
            Operator::DistinctOn { input, keys, order } => {
                let mut rows = self.operator(*input, outer)?;
                sort(&mut rows, order);
                let mut first: Vec<Row> = Vec::new();
                let equal =
                    |left: &Row, right: &Row| keys.iter().all(|key| same(left.get(*key), right.get(*key)));
                for row in rows {
                    if !first.iter().any(|other| equal(other, &row)) {
                        first.push(row);
                    }
                }
                first
            }
            // What share is taken is not tested here.
            Operator::Sample { input, .. } => self.operator(*input, outer)?,
            Operator::UnionAll { columns, inputs } => {
                let mut rows = Vec::new();
                for (input, list) in inputs {
                    for row in self.operator(*input, outer)? {
                        rows.push(renamed(&row, list, columns, outer));
                    }
                }
                rows
            }
            Operator::Iterate(iterate) => self.iterate(iterate, outer)?,
            Operator::IterateRead { iterate, columns } => {
                let round = Rc::clone(&self.rounds.borrow()[iterate]);
                round.1.iter().map(|row| renamed(row, &round.0, columns, outer)).collect()
            }
            Operator::Shared { id, definition, body } => {
                let definition =
                    Definition { node: *definition, outer: outer.clone(), rows: OnceCell::new() };
                let before = self.shared.borrow_mut().insert(*id, Rc::new(definition));
                let rows = self.operator(*body, outer);
                self.shared.borrow_mut().remove(id);
                self.shared.borrow_mut().extend(before.map(|before| (*id, before)));
                rows?
            }
            Operator::SharedRead { id, columns } => {
                let definition = Rc::clone(&self.shared.borrow()[id]);
                if definition.rows.get().is_none() {
                    let rows = self.operator(definition.node, &definition.outer)?;
                    definition.rows.set(rows).expect("a definition does not read itself");
                }
                let rows = definition.rows.get().expect("it is evaluated");
                let (own, of): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
                rows.iter().map(|row| renamed(row, &of, &own, outer)).collect()
            }
            Operator::Lock { input, .. } => self.operator(*input, outer)?,
            Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_) => {
                panic!("the reference changes no tables")
            }
        };
        self.work.set(self.work.get() + rows.len());
        if self.work.get() > MOST_WORK {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too much for the reference"));
        }
        Ok(rows)
    }

    fn set_calls(&self, calls: &SetCalls, row: &Row) -> Result<Vec<Row>> {
        let mut lists = Vec::new();
        for call in &calls.calls {
            let arguments = call.arguments.iter().map(|scalar| self.scalar(scalar, row));
            let arguments = arguments.collect::<Result<Vec<_>>>()?;
            lists.push(match (&*call.function.name, &arguments[..]) {
                (_, arguments) if arguments.contains(&Value::Null) => Vec::new(),
                ("generate_series", [Value::Integer(from), Value::Integer(to)]) => {
                    (*from..=*to).map(Value::Integer).collect()
                }
                ("unnest", [Value::Array(array)]) => array.elements().to_vec(),
                (name, _) => panic!("the reference has no {name}"),
            });
        }
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let nth = |index: usize| {
            let mut row = row.clone();
            for (call, list) in calls.calls.iter().zip(&lists) {
                row.set(call.columns[0], list.get(index).cloned().unwrap_or(Value::Null));
            }
            if let Some(ordinality) = calls.ordinality {
                row.set(ordinality, Value::BigInt(index as i64 + 1));
            }
            row
        };
        Ok((0..longest).map(nth).collect())
    }

    fn join(&self, join: &Join, outer: &Row) -> Result<Vec<Row>> {
        let left = self.operator(join.left, outer)?;
        let padding = |node| {
            let scope = crate::properties::scope(self.plan, node);
            self.padding(&scope.iter().map(|(column, _)| column).collect::<Vec<_>>())
        };
        let pads = if join.kind.pads_right() { padding(join.right) } else { Row::default() };
        let mut fixed = None;
        let mut used: Vec<bool> = Vec::new();
        let mut rows = Vec::new();
        for row in &left {
            let right = match &fixed {
                Some(rows) => Rc::clone(rows),
                None if join.dependent => Rc::new(self.operator(join.right, row)?),
                None => Rc::clone(fixed.insert(Rc::new(self.operator(join.right, outer)?))),
            };
            used.resize(right.len(), false);
            let (mut matched, mut unknown) = (false, false);
            for (index, other) in right.iter().enumerate() {
                let pair = row.with(other);
                if join.kind == JoinKind::Mark {
                    match self.all_of(&join.conditions, &pair)? {
                        Value::Boolean(true) => matched = true,
                        Value::Null => unknown = true,
                        _ => {}
                    }
                    continue;
                }
                if !self.holds(&join.conditions, &pair)? {
                    continue;
                }
                if matched && join.kind == JoinKind::Single {
                    let message = "more than one row returned by a subquery used as an expression";
                    return Err(Error::new(SqlState::CARDINALITY_VIOLATION, message));
                }
                (matched, used[index]) = (true, true);
                if join.kind.gives_right() {
                    rows.push(pair);
                }
            }
            match join.kind {
                JoinKind::Semi if matched => rows.push(row.clone()),
                JoinKind::Anti if !matched => rows.push(row.clone()),
                JoinKind::Left | JoinKind::Full | JoinKind::Single if !matched => rows.push(row.with(&pads)),
                JoinKind::Mark => {
                    let mark = if matched {
                        Value::Boolean(true)
                    } else if unknown {
                        Value::Null
                    } else {
                        Value::Boolean(false)
                    };
                    let mut row = row.clone();
                    row.set(join.mark.expect("a mark join has a mark"), mark);
                    rows.push(row);
                }
                _ => {}
            }
        }
        if join.kind == JoinKind::Full {
            let right = match fixed {
                Some(rows) => rows,
                None => Rc::new(self.operator(join.right, outer)?),
            };
            used.resize(right.len(), false);
            let pads = outer.with(&padding(join.left));
            for (row, _) in right.iter().zip(used).filter(|(_, used)| !used) {
                rows.push(pads.with(row));
            }
        }
        Ok(rows)
    }

    fn group(&self, group: &Group, outer: &Row) -> Result<Vec<Row>> {
        let rows = self.operator(group.input, outer)?;
        let all: Vec<u32> = (0..group.keys.len() as u32).collect();
        let one = [all];
        let sets = group.sets.as_ref().map_or(&one[..], |sets| &sets.sets);
        let mut result = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let key = |index: &u32| group.keys[*index as usize];
            let equal = |left: &Row, right: &Row| {
                set.iter().all(|index| same(left.get(key(index)), right.get(key(index))))
            };
            let mut groups: Vec<Vec<&Row>> = Vec::new();
            for row in &rows {
                match groups.iter_mut().find(|group| equal(group[0], row)) {
                    Some(group) => group.push(row),
                    None => groups.push(vec![row]),
                }
            }
            if set.is_empty() && groups.is_empty() {
                groups.push(Vec::new());
            }
            for members in groups {
                let mut row = outer.clone();
                for index in 0..group.keys.len() {
                    let is_in = set.contains(&(index as u32));
                    let value = if is_in { members[0].get(group.keys[index]).clone() } else { Value::Null };
                    match &group.sets {
                        Some(sets) => row.set(sets.columns[index], value),
                        None => row.set(group.keys[index], value),
                    }
                }
                if let Some(column) = group.sets.as_ref().and_then(|sets| sets.number) {
                    row.set(column, Value::Integer(number as i32));
                }
                for aggregate in &group.aggregates {
                    row.set(aggregate.output, self.aggregate(aggregate, &members)?);
                }
                result.push(row);
            }
        }
        Ok(result)
    }

    fn limit(&self, limit: &Limit, outer: &Row) -> Result<Vec<Row>> {
        let number = |scalar: &Option<_>| -> Result<Option<usize>> {
            let Some(scalar) = scalar else { return Ok(None) };
            Ok(match self.scalar(scalar, outer)? {
                Value::BigInt(number) if number >= 0 => Some(number as usize),
                Value::Null => None,
                other => panic!("LIMIT is {other:?}"),
            })
        };
        let (count, offset) = (number(&limit.count)?, number(&limit.offset)?.unwrap_or(0));
        let rows = self.operator(limit.input, outer)?;
        let mut end = count.map_or(rows.len(), |count| rows.len().min(offset + count));
        if let Some(ties) = &limit.ties
            && end > 0
            && count != Some(0)
        {
            while end < rows.len() && compare(&rows[end - 1], &rows[end], ties).is_eq() {
                end += 1;
            }
        }
        Ok(rows.into_iter().take(end).skip(offset).collect())
    }

    fn iterate(&self, iterate: &Iterate, outer: &Row) -> Result<Vec<Row>> {
        let columns = &iterate.columns;
        let mut result: Vec<Row> = Vec::new();
        let equal = |left: &Row, right: &Row| {
            columns.iter().all(|column| same(left.get(*column), right.get(*column)))
        };
        let mut add = |rows: Vec<Row>, list: &[Column]| {
            let mut new: Vec<Row> = Vec::new();
            for row in rows {
                let row = renamed(&row, list, columns, outer);
                if iterate.distinct && result.iter().any(|other| equal(other, &row)) {
                    continue;
                }
                result.push(row.clone());
                new.push(row);
            }
            new
        };
        let mut round = add(self.operator(iterate.initial, outer)?, &iterate.initial_columns);
        while !round.is_empty() {
            let before = self.rounds.borrow_mut().insert(iterate.id, Rc::new((columns.clone(), round)));
            let rows = self.operator(iterate.step, outer);
            self.rounds.borrow_mut().remove(&iterate.id);
            self.rounds.borrow_mut().extend(before.map(|before| (iterate.id, before)));
            round = add(rows?, &iterate.step_columns);
        }
        Ok(result)
    }
}

/// The outer row and the values of some columns under other numbers.
fn renamed(row: &Row, from: &[Column], to: &[Column], outer: &Row) -> Row {
    let mut result = outer.clone();
    for (from, to) in from.iter().zip(to) {
        result.set(*to, row.get(*from).clone());
    }
    result
}
