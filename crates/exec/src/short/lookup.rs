//! Nested look-ups in indexes.
//!
//! The cells that look-ups read lie side by side in one row: first those of the outermost look-up,
//! then those of the next. Expressions of a look-up (its key, its bounds, its filter) see the cells
//! of the look-ups around it, the filter also its own.

use crate::expression::{Environment, Row, RowExpression};
use crate::reads;
use datafusion::logical_expr::Operator;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, ColumnSet, Result, RowId, SqlType, Value, numeric};
use firn_storage::{Index, KeyBuffer, Table};
use firn_txn::{Guard, Restriction, Transaction};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Bound;

/// Look-ups, outermost first.
pub(super) struct Lookups {
    pub lookups: Vec<Lookup>,
    /// Cells of a row of all of them.
    pub cells: usize,
}

/// A point or a range of one index.
pub(super) struct Lookup {
    pub table: Arc<Table>,
    pub index: Arc<Index>,
    /// The columns to read, where their cells begin in the row, and what a query that reads them has learnt of: also those that rows
    /// are in the order of.
    pub columns: Vec<ColumnId>,
    pub read: ColumnSet,
    pub offset: usize,
    /// What the first columns of the index must equal.
    pub key: Vec<KeyPart>,
    /// Whether the key is all of a unique index's.
    pub is_point: bool,
    /// Bounds of the column after the key, in the order of its values.
    pub low: Option<RangeEnd>,
    pub high: Option<RangeEnd>,
    /// Whether that column is indexed largest first.
    pub descending: bool,
    pub reverse: bool,
    /// What else must hold of the rows.
    pub filter: Option<RowExpression>,
    /// What of that is about one column: told by literals, and by what is evaluated for each look-up. Rows that are
    /// passed over for it need not be noted as read.
    pub known: Vec<Restriction>,
    pub given: Vec<Given>,
}

/// What a column must be.
#[derive(Debug)]
pub(super) struct Given {
    pub column: ColumnId,
    pub what: Asked,
}

/// Like what.
#[derive(Debug)]
pub(super) enum Asked {
    Equal(KeyPart),
    Above(RangeEnd),
    Below(RangeEnd),
}

impl Given {
    /// What it comes to; `None` if summaries cannot tell.
    fn restriction(&self, row: Row<'_>) -> Result<Option<Restriction>> {
        let none = || Some(Restriction::within(self.column, 1, 0));
        let compared = |ty, operator, value: &Value| reads::restriction_of(self.column, ty, operator, value);
        Ok(match &self.what {
            Asked::Equal(part @ KeyPart { value: KeyValue::One(value), ty }) => {
                match exactly(value.evaluate(row)?, *ty) {
                    Some(value) => compared(part.ty, Operator::Eq, &value),
                    None => none(),
                }
            }
            Asked::Equal(part) => {
                let values = part.several(row)?.expect("it is a part with several");
                let each = values.iter().map(|value| compared(part.ty, Operator::Eq, value));
                match each.collect::<Option<Vec<Restriction>>>() {
                    Some(each) if each.is_empty() => none(),
                    each => each.and_then(Restriction::any),
                }
            }
            Asked::Above(end) | Asked::Below(end) => {
                let is_low = matches!(self.what, Asked::Above(_));
                match end.limit(row, is_low)? {
                    Limit::Nothing => none(),
                    Limit::Beyond => None,
                    Limit::At(value, inclusive) => {
                        let operator = match (is_low, inclusive) {
                            (true, true) => Operator::GtEq,
                            (true, false) => Operator::Gt,
                            (false, true) => Operator::LtEq,
                            (false, false) => Operator::Lt,
                        };
                        compared(end.ty, operator, &value)
                    }
                }
            }
        })
    }
}

/// What a column of the key must equal.
#[derive(Debug)]
pub(super) struct KeyPart {
    pub value: KeyValue,
    pub ty: SqlType,
}

/// Where the value comes from.
#[derive(Debug)]
pub(super) enum KeyValue {
    /// From an expression.
    One(RowExpression),
    /// From each of these in turn; there is one such part in a key at most.
    OneOf(Vec<RowExpression>),
    /// From each element of an array in turn, likewise.
    Element(RowExpression),
}

impl KeyPart {
    /// The values that the column can hold among those in turn, each once; `None` if there is but one.
    fn several<'a>(&'a self, row: Row<'a>) -> Result<Option<Vec<Cow<'a, Value>>>> {
        let given: Vec<Cow<'a, Value>> = match &self.value {
            KeyValue::One(_) => return Ok(None),
            KeyValue::OneOf(values) => {
                values.iter().map(|value| value.evaluate(row)).collect::<Result<_>>()?
            }
            KeyValue::Element(array) => match array.evaluate(row)? {
                Cow::Borrowed(Value::Array(array)) => array.elements().iter().map(Cow::Borrowed).collect(),
                Cow::Owned(Value::Array(array)) => {
                    array.into_elements().into_iter().map(Cow::Owned).collect()
                }
                _ => Vec::new(),
            },
        };
        let mut values: Vec<_> = given.into_iter().filter_map(|value| exactly(value, self.ty)).collect();
        values.sort_by(|left, right| left.compare(right).expect("NULL is none of them"));
        values.dedup();
        Ok(Some(values))
    }
}

/// An end of a range. Where the value does not fit the column's type exactly, the range ends at the last value before it that does.
#[derive(Debug)]
pub(super) struct RangeEnd {
    pub value: RowExpression,
    pub ty: SqlType,
    pub inclusive: bool,
}

/// Takes a row with the ids of the rows it is made of; false ends the run.
pub(super) type Sink<'s> = &'s mut dyn FnMut(Row<'_>, &[RowId]) -> Result<bool>;

type Ids = SmallVec<[RowId; 4]>;

/// A run of some look-ups.
struct Run<'r, 'g> {
    lookups: &'g [Lookup],
    transaction: &'r Transaction,
    environment: &'r Environment<'r>,
    guard: &'g Guard,
    cells: SmallVec<[Cell<'g>; 24]>,
    ids: Ids,
    /// Rows that may still be visited.
    budget: usize,
}

/// How a look-up ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is through.
    Through,
    /// The sink has had enough.
    Enough,
    /// The budget is spent.
    Spent,
}

impl Lookups {
    /// Calls `sink` with every row; false if more than `budget` rows would have to be visited.
    pub(super) fn run(
        &self,
        transaction: &Transaction,
        environment: &Environment<'_>,
        guard: &Guard,
        budget: usize,
        sink: Sink<'_>,
    ) -> Result<bool> {
        let mut run = Run {
            lookups: &self.lookups,
            transaction,
            environment,
            guard,
            cells: SmallVec::from_elem(Cell::Null, self.cells),
            ids: SmallVec::new(),
            budget,
        };
        Ok(run.descend(0, sink)? != End::Spent)
    }
}

impl<'g> Run<'_, 'g> {
    /// Runs the look-up at `depth` and, for each of its rows, those inside it.
    fn descend(&mut self, depth: usize, sink: Sink<'_>) -> Result<End> {
        let Some(lookup) = self.lookups.get(depth) else {
            let row = Row { cells: &self.cells, environment: self.environment };
            return Ok(if sink(row, &self.ids)? { End::Through } else { End::Enough });
        };
        let Some(part) = lookup.key.iter().find(|part| !matches!(part.value, KeyValue::One(_))) else {
            return self.look_up(depth, lookup, None, sink);
        };
        // The values depend on parameters only, so they need no cells that look-ups change.
        let row = Row { cells: &[], environment: self.environment };
        let values = part.several(row)?.expect("it is the part with several");
        if values.len() > self.budget {
            return Ok(End::Spent);
        }
        for value in &values {
            let end = self.look_up(depth, lookup, Some(value), sink)?;
            if end != End::Through {
                return Ok(end);
            }
        }
        Ok(End::Through)
    }

    /// Runs a look-up, with that for the part of the key that takes several values in turn.
    fn look_up(
        &mut self,
        depth: usize,
        lookup: &'g Lookup,
        in_turn: Option<&Value>,
        sink: Sink<'_>,
    ) -> Result<End> {
        let mut key = KeyBuffer::new();
        let mut ends = None;
        {
            let row = Row { cells: &self.cells, environment: self.environment };
            if lookup.low.is_none() && lookup.high.is_none() {
                if !lookup.encode_key(row, in_turn, None, &mut key)? {
                    return Ok(End::Through);
                }
            } else {
                ends = lookup.ends(row, in_turn)?;
                if ends.is_none() {
                    return Ok(End::Through);
                }
            }
        }
        if lookup.is_point {
            let cells = &mut self.cells[lookup.offset..lookup.offset + lookup.columns.len()];
            let (transaction, guard) = (self.transaction, self.guard);
            let found = transaction.find(&lookup.table, &lookup.index, &key, &lookup.columns, cells, guard);
            return match found {
                Some(id) => self.accept(depth, lookup, id, sink),
                None => Ok(End::Through),
            };
        }
        let (low, high) = ends.unwrap_or_else(|| {
            if key.is_empty() {
                (Bound::Unbounded, Bound::Unbounded)
            } else {
                (Bound::Included(key.clone()), Bound::Included(key))
            }
        });
        let mut outcome = Ok(End::Through);
        let (transaction, guard) = (self.transaction, self.guard);
        let restrictions = match transaction.notes_reads() && lookup.filter.is_some() {
            true => lookup.restrictions(Row { cells: &self.cells, environment: self.environment })?,
            false => Vec::new(),
        };
        // Of many stretches the rows are noted one by one, since stretches come to be noted as fewer that are wider.
        let alone = depth == 0 && in_turn.is_none();
        let read = if alone { lookup.read } else { ColumnSet::NONE };
        transaction.range_under(
            &lookup.table,
            &lookup.index,
            (borrow(&low), borrow(&high)),
            lookup.reverse,
            &restrictions,
            read,
            guard,
            &mut |id| {
                outcome = self.visit(depth, lookup, alone, id, sink);
                matches!(outcome, Ok(End::Through))
            },
        );
        outcome
    }

    /// Reads a row of a range, by itself unless it has been noted with the range, and goes on with it.
    fn visit(
        &mut self,
        depth: usize,
        lookup: &'g Lookup,
        is_noted: bool,
        id: RowId,
        sink: Sink<'_>,
    ) -> Result<End> {
        let cells = &mut self.cells[lookup.offset..lookup.offset + lookup.columns.len()];
        let (transaction, table, columns) = (self.transaction, &lookup.table, &lookup.columns);
        let is_seen = columns.is_empty()
            || if is_noted {
                transaction.peek(table, id, columns, cells, self.guard)
            } else {
                transaction.read(table, id, columns, cells, self.guard)
            };
        if is_seen { self.accept(depth, lookup, id, sink) } else { Ok(End::Through) }
    }

    /// Goes on with a row that has been read.
    fn accept(&mut self, depth: usize, lookup: &'g Lookup, id: RowId, sink: Sink<'_>) -> Result<End> {
        if self.budget == 0 {
            return Ok(End::Spent);
        }
        self.budget -= 1;
        if let Some(filter) = &lookup.filter
            && !filter.holds(Row { cells: &self.cells, environment: self.environment })?
        {
            return Ok(End::Through);
        }
        self.ids.push(id);
        let end = self.descend(depth + 1, sink);
        self.ids.pop();
        end
    }
}

fn borrow(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_slice()),
        Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Lookup {
    /// What EXPLAIN says of it.
    pub(super) fn describe(&self) -> String {
        let name = &self.index.spec().name;
        let filtered = if self.filter.is_some() { ", filtered" } else { "" };
        if self.is_point {
            let several = self.key.iter().any(|part| !matches!(part.value, KeyValue::One(_)));
            let points = if several { "Points" } else { "Point" };
            return format!("{points} of index {name}{filtered}");
        }
        let ends = usize::from(self.low.is_some()) + usize::from(self.high.is_some());
        let backwards = if self.reverse { ", backwards" } else { "" };
        format!("Range of index {name} ({} key columns, {ends} bounds){backwards}{filtered}", self.key.len())
    }

    /// What of the filter is about one column.
    fn restrictions(&self, row: Row<'_>) -> Result<Vec<Restriction>> {
        let mut restrictions = self.known.clone();
        for given in &self.given {
            restrictions.extend(given.restriction(row)?);
        }
        Ok(restrictions)
    }

    /// Appends the encoded key, followed by `extra`; false if no row can have it.
    fn encode_key(
        &self,
        row: Row<'_>,
        in_turn: Option<&Value>,
        extra: Option<Cell<'_>>,
        key: &mut KeyBuffer,
    ) -> Result<bool> {
        // One column by one value is what most statements ask for.
        if let ([KeyPart { value: KeyValue::One(value), ty }], None) = (&self.key[..], extra) {
            let Some(value) = exactly(value.evaluate(row)?, *ty) else { return Ok(false) };
            self.index.encode(&[value.as_cell(*ty)], key);
            return Ok(true);
        }
        let mut values: SmallVec<[Cow<'_, Value>; 6]> = SmallVec::new();
        for part in &self.key {
            let value = match (&part.value, in_turn) {
                (KeyValue::One(value), _) => exactly(value.evaluate(row)?, part.ty),
                (_, in_turn) => in_turn.map(Cow::Borrowed),
            };
            match value {
                Some(value) => values.push(value),
                None => return Ok(false),
            }
        }
        let mut cells: SmallVec<[Cell<'_>; 6]> =
            values.iter().zip(&self.key).map(|(value, part)| value.as_cell(part.ty)).collect();
        cells.extend(extra);
        self.index.encode(&cells, key);
        Ok(true)
    }

    /// The ends of the range in the order of the index; `None` if no row can lie in it.
    fn ends(
        &self,
        row: Row<'_>,
        in_turn: Option<&Value>,
    ) -> Result<Option<(Bound<KeyBuffer>, Bound<KeyBuffer>)>> {
        let mut ends = [Bound::Unbounded, Bound::Unbounded];
        for (end, (given, is_low)) in ends.iter_mut().zip([(&self.low, true), (&self.high, false)]) {
            let mut key = KeyBuffer::new();
            let limit = match given {
                None => Limit::Beyond,
                Some(given) => given.limit(row, is_low)?,
            };
            let exact = match &limit {
                Limit::Nothing => return Ok(None),
                Limit::Beyond => None,
                Limit::At(value, inclusive) => {
                    let ty = given.as_ref().expect("a limit comes from an end").ty;
                    Some((value.as_cell(ty), *inclusive))
                }
            };
            if !self.encode_key(row, in_turn, exact.map(|(cell, _)| cell), &mut key)? {
                return Ok(None);
            }
            *end = match exact {
                Some((_, false)) => Bound::Excluded(key),
                _ if key.is_empty() => Bound::Unbounded,
                _ => Bound::Included(key),
            };
        }
        let [low, high] = ends;
        Ok(Some(if self.descending { (high, low) } else { (low, high) }))
    }
}

/// Where a range ends, in the column's type.
enum Limit<'a> {
    /// Before anything the column can hold: there is no row in the range.
    Nothing,
    /// Outside what the column can hold: no limit at all.
    Beyond,
    /// There; whether the value itself is in the range.
    At(Cow<'a, Value>, bool),
}

impl RangeEnd {
    fn limit<'a>(&'a self, row: Row<'a>, is_low: bool) -> Result<Limit<'a>> {
        let value = self.value.evaluate(row)?;
        if value.is_null() {
            return Ok(Limit::Nothing);
        }
        let rounded = match round(&value, self.ty, is_low) {
            None => return Ok(Limit::At(value, self.inclusive)),
            Some(rounded) => rounded,
        };
        Ok(match rounded {
            // The nearest that the column can hold in the direction of the range is in it, unless it is the end itself.
            Rounded::To(end) => {
                let inclusive = self.inclusive || end.compare(&value).is_some_and(|order| order.is_ne());
                Limit::At(Cow::Owned(end), inclusive)
            }
            Rounded::AboveAll if is_low => Limit::Nothing,
            Rounded::BelowAll if !is_low => Limit::Nothing,
            Rounded::AboveAll | Rounded::BelowAll => Limit::Beyond,
        })
    }
}

/// A number brought to a type that may not hold it.
enum Rounded {
    To(Value),
    BelowAll,
    AboveAll,
}

/// The nearest number of type `ty` at or below the value, or at or above it; `None` if the value
/// is of that type already.
fn round(value: &Value, ty: SqlType, up: bool) -> Option<Rounded> {
    let (unscaled, scale) = match *value {
        Value::SmallInt(_) if ty == SqlType::SmallInt => return None,
        Value::Integer(_) if ty == SqlType::Integer => return None,
        Value::BigInt(_) if ty == SqlType::BigInt => return None,
        Value::SmallInt(value) => (i128::from(value), 0),
        Value::Integer(value) => (i128::from(value), 0),
        Value::BigInt(value) => (i128::from(value), 0),
        Value::Numeric { unscaled, scale } => (unscaled, scale),
        _ => return None,
    };
    let (wanted, limit) = match ty {
        SqlType::SmallInt => (0, i128::from(i16::MAX)),
        SqlType::Integer => (0, i128::from(i32::MAX)),
        SqlType::BigInt => (0, i128::from(i64::MAX)),
        SqlType::Numeric { precision, scale } => (scale, 10i128.pow(u32::from(precision)) - 1),
        other => panic!("a bound of {other} is a number"),
    };
    let result = if wanted >= scale {
        numeric::power_of_ten(u32::from(wanted - scale)).and_then(|factor| unscaled.checked_mul(factor))
    } else {
        let divisor = 10i128.pow(u32::from(scale - wanted));
        let floor = unscaled.div_euclid(divisor);
        Some(if up && unscaled.rem_euclid(divisor) != 0 { floor + 1 } else { floor })
    };
    Some(match result {
        // Integers reach one further down than up; losing that one to "below all" would be wrong.
        Some(result) if result > limit => Rounded::AboveAll,
        Some(result) if result < -limit - 1 => Rounded::BelowAll,
        None if unscaled > 0 => Rounded::AboveAll,
        None => Rounded::BelowAll,
        Some(result) => Rounded::To(match ty {
            SqlType::SmallInt => Value::SmallInt(result as i16),
            SqlType::Integer => Value::Integer(result as i32),
            SqlType::BigInt => Value::BigInt(result as i64),
            SqlType::Numeric { scale, .. } => Value::Numeric { unscaled: result, scale },
            other => panic!("a bound of {other} is a number"),
        }),
    })
}

/// The value in the column's type, if the column can hold exactly it; NULL equals nothing.
fn exactly(value: Cow<'_, Value>, ty: SqlType) -> Option<Cow<'_, Value>> {
    match (&*value, ty) {
        (Value::Null, _) => None,
        (Value::Numeric { scale, .. }, SqlType::Numeric { scale: wanted, precision }) if *scale == wanted => {
            let Value::Numeric { unscaled, .. } = *value else { unreachable!("matched as one") };
            // A narrow numeric is stored in 8 bytes, which must not cut the value.
            (unscaled.unsigned_abs() < 10u128.pow(u32::from(precision))).then_some(value)
        }
        (Value::SmallInt(_) | Value::Integer(_) | Value::BigInt(_) | Value::Numeric { .. }, _) => {
            let Some(below) = round(&value, ty, false) else { return Some(value) };
            match below {
                Rounded::To(rounded) if rounded.compare(&value)?.is_eq() => Some(Cow::Owned(rounded)),
                _ => None,
            }
        }
        _ => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_the_column_cannot_hold_equals_none_of_its_values() {
        let as_integer = |value| exactly(Cow::Owned(value), SqlType::Integer).map(Cow::into_owned);
        assert_eq!(as_integer(Value::BigInt(7)), Some(Value::Integer(7)));
        assert_eq!(as_integer(Value::BigInt(1 << 40)), None);
        assert_eq!(as_integer(Value::Numeric { unscaled: 70, scale: 1 }), Some(Value::Integer(7)));
        assert_eq!(as_integer(Value::Numeric { unscaled: 75, scale: 1 }), None);
        assert_eq!(as_integer(Value::Null), None);
        let narrow = SqlType::Numeric { precision: 4, scale: 2 };
        let exact = exactly(Cow::Owned(Value::Integer(12)), narrow).map(Cow::into_owned);
        assert_eq!(exact, Some(Value::Numeric { unscaled: 1200, scale: 2 }));
        assert_eq!(exactly(Cow::Owned(Value::Integer(123)), narrow), None);
    }

    #[test]
    fn a_bound_is_rounded_to_either_side() {
        let numeric = |unscaled| Value::Numeric { unscaled, scale: 1 };
        let rounded = |value: Value, up| match round(&value, SqlType::Integer, up) {
            Some(Rounded::To(Value::Integer(value))) => Ok(value),
            Some(Rounded::AboveAll) => Err(1),
            Some(Rounded::BelowAll) => Err(-1),
            _ => panic!("expected an integer"),
        };
        assert_eq!(rounded(numeric(25), false), Ok(2));
        assert_eq!(rounded(numeric(25), true), Ok(3));
        assert_eq!(rounded(numeric(-25), false), Ok(-3));
        assert_eq!(rounded(numeric(-25), true), Ok(-2));
        assert_eq!(rounded(Value::BigInt(i64::from(i32::MIN)), false), Ok(i32::MIN));
        assert_eq!(rounded(Value::BigInt(i64::MAX), false), Err(1));
        assert_eq!(rounded(Value::BigInt(i64::MIN), true), Err(-1));
    }
}
