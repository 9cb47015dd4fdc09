//! Evaluation of expressions over the rows of vectors.

use super::{Case, Expression, Node, Quantified, Scope, Values, parameter, truth};
use crate::columns::Scatter;
use crate::keys::{KeyLayout, KeySet};
use crate::values::repeat;
use arrow_buffer::{BooleanBuffer, NullBuffer};
use firn_base::array::Dimension;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};
use firn_vector::builder::Builder;
use firn_vector::kernel::Part;
use firn_vector::lists::{Lists, Record, Shape};
use firn_vector::numerics::Numerics;
use firn_vector::selection::Rows;
use firn_vector::vector::Form;
use firn_vector::{Data, Datum, Slot, Vector};

/// What an evaluation reads.
pub(super) struct Evaluation<'a> {
    pub scope: &'a Scope<'a>,
    pub vectors: &'a [Vector],
    /// The operands of the CASEs around, the innermost last.
    pub operands: Vec<Vector>,
    /// Which part of a chunk these are.
    part: Part,
    /// Whether it has ended because some results are too wide.
    is_too_wide: bool,
}

/// What is known of a row while it is compared with the elements of its array, or looked up in a set.
const OPEN: u8 = 0;
const UNKNOWN: u8 = 1;
const DECIDED: u8 = 2;

impl<'a> Evaluation<'a> {
    /// Evaluates something for a part of a chunk; `None` if results are too wide.
    pub fn of_part(
        scope: &'a Scope<'a>,
        vectors: &'a [Vector],
        part: Part,
        evaluate: impl FnOnce(&mut Evaluation<'a>) -> Result<Vector>,
    ) -> Result<Option<Vector>> {
        let mut evaluation = Evaluation { scope, vectors, operands: Vec::new(), part, is_too_wide: false };
        match evaluate(&mut evaluation) {
            Err(_) if evaluation.is_too_wide => Ok(None),
            result => result.map(Some),
        }
    }

    /// The result of a call, unless it is too wide.
    fn called(&mut self, result: Option<Vector>) -> Result<Vector> {
        self.is_too_wide |= result.is_none();
        result.ok_or_else(too_wide)
    }
}

/// Not an error for a client: the part is cut.
#[cold]
fn too_wide() -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "the values of a vector are too wide")
}

impl Evaluation<'_> {
    pub fn expression(&mut self, expression: &mut Expression, rows: Rows<'_>) -> Result<Vector> {
        let length = rows.length();
        let representation = expression.representation;
        Ok(match &mut expression.node {
            Node::Column(position) => self.vectors[*position].clone(),
            Node::Constant(constant) => repeat(constant, length),
            Node::Parameter(number) => parameter(self.scope, *number, length),
            Node::Call(site, arguments) => {
                let mut vectors = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    vectors.push(self.expression(argument, rows)?);
                }
                let result = site.vectors_of_part(self.scope.context, &vectors, rows, self.part)?;
                self.called(result)?
            }
            Node::Chain(first, steps) => {
                let mut left = self.expression(first, rows)?;
                for (site, right) in steps {
                    let right = self.expression(right, rows)?;
                    let result = site.vectors_of_part(self.scope.context, &[left, right], rows, self.part)?;
                    left = self.called(result)?;
                }
                left
            }
            Node::Connect { all, operands } => self.connect(operands, *all, rows)?,
            Node::Not(operand) => {
                let operand = self.expression(operand, rows)?.plain(rows);
                let Some(Data::Boolean(values)) = operand.data() else { panic!("NOT takes a boolean") };
                let values = Data::Boolean(!values);
                match operand.is_constant() {
                    true if operand.is_null(0) => operand,
                    true => Vector::constant(Representation::Boolean, values, length),
                    false => Vector::flat(Representation::Boolean, values, operand.validity().cloned()),
                }
            }
            Node::Case(case) => self.case(case, representation, rows)?,
            Node::CaseValue => self.operands.last().expect("a CASE with an operand is around").clone(),
            Node::Coalesce(operands) => self.coalesce(operands, representation, rows)?,
            Node::IsNull { operand, negated } => {
                let operand = self.expression(operand, rows)?;
                match (operand.form(), operand.validity()) {
                    _ if operand.has_no_null() => boolean(*negated, length),
                    (Form::Flat(_), Some(validity)) => {
                        let valid = validity.inner();
                        let values = if *negated { valid.clone() } else { !valid };
                        Vector::flat(representation, Data::Boolean(values), None)
                    }
                    _ => booleans(length, |row| operand.is_null(row) != *negated),
                }
            }
            Node::Test { operand, which, negated } => {
                let operand = self.expression(operand, rows)?.plain(rows);
                booleans(length, |row| (truth(&operand, row) == *which) != *negated)
            }
            Node::Distinct { operands, layout, negated } => {
                let left = self.expression(&mut operands.0, rows)?;
                let right = self.expression(&mut operands.1, rows)?;
                self.distinct(layout, left, right, *negated, rows)
            }
            Node::Quantified(quantified) => self.quantified(quantified, rows)?,
            Node::Array(elements) => self.array(elements, representation, rows)?,
            Node::Row(fields) => {
                let mut vectors = Vec::with_capacity(fields.len());
                for (ty, field) in fields {
                    vectors.push((*ty, self.expression(field, rows)?));
                }
                let vectors: Vec<_> =
                    vectors.iter().map(|(ty, vector)| (*ty, vector.flatten(rows))).collect();
                let mut builder = Builder::new(Representation::Record);
                for row in 0..length {
                    builder.push(Datum::Record(Record::new(&vectors, row)));
                }
                builder.finish()
            }
            Node::Field(operand, number) => {
                let operand = self.expression(operand, rows)?;
                let mut builder = Builder::new(representation);
                rows.each(|row| {
                    builder.pad(row);
                    match operand.datum(row) {
                        Datum::Record(record) => builder.push(record.get(*number).1),
                        _ => builder.push_null(),
                    }
                });
                builder.pad(length);
                builder.finish()
            }
            Node::Convert(operand) => {
                let operand = self.expression(operand, rows)?;
                converted(&operand, representation, rows)
            }
            Node::Elements(array, cast) => self.elements(array, cast, representation, rows)?,
        })
    }

    /// AND (`all`) or OR. An operand is evaluated for the rows that those before it have left open.
    pub fn connect(&mut self, operands: &mut [Expression], all: bool, rows: Rows<'_>) -> Result<Vector> {
        let length = rows.length();
        let mut tally = Tally::new(length);
        // `None`: the rows that are asked for are all open.
        let mut open: Option<Vec<u16>> = None;
        for operand in operands {
            let rows = open.as_ref().map_or(rows, |open| Rows::at(open, length));
            if rows.count() == 0 {
                break;
            }
            let vector = self.expression(operand, rows)?.plain(rows);
            tally.add(&vector, all);
            open = tally.open(rows);
        }
        Ok(tally.finish(all))
    }

    fn case(&mut self, case: &mut Case, representation: Representation, rows: Rows<'_>) -> Result<Vector> {
        let length = rows.length();
        let has_operand = case.operand.is_some();
        let mut operand = match &mut case.operand {
            Some(operand) => Some(self.expression(operand, rows)?),
            None => None,
        };
        let mut result = Scatter::new(representation, length);
        let mut open = positions(rows);
        for (condition, value) in &mut case.arms {
            if open.is_empty() {
                break;
            }
            self.operands.extend(operand.take());
            let condition = self.expression(condition, Rows::at(&open, length));
            if has_operand {
                operand = self.operands.pop();
            }
            let condition = condition?.plain(Rows::all(length));
            let (reached, rest): (Vec<u16>, Vec<u16>) =
                open.into_iter().partition(|row| truth(&condition, usize::from(*row)) == Some(true));
            open = rest;
            if !reached.is_empty() {
                let reached = Rows::at(&reached, length);
                let value = self.expression(value, reached)?;
                result.put(value, reached);
            }
        }
        if !open.is_empty() {
            let open = Rows::at(&open, length);
            let value = self.expression(&mut case.otherwise, open)?;
            result.put(value, open);
        }
        Ok(result.finish())
    }

    fn coalesce(
        &mut self,
        operands: &mut [Expression],
        representation: Representation,
        rows: Rows<'_>,
    ) -> Result<Vector> {
        let length = rows.length();
        let mut result = Scatter::new(representation, length);
        let mut open = positions(rows);
        for operand in operands {
            if open.is_empty() {
                break;
            }
            let vector = self.expression(operand, Rows::at(&open, length))?;
            let (found, rest): (Vec<u16>, Vec<u16>) =
                open.into_iter().partition(|row| !vector.is_null(usize::from(*row)));
            open = rest;
            if !found.is_empty() {
                result.put(vector, Rows::at(&found, length));
            }
        }
        Ok(result.finish())
    }

    fn distinct(
        &self,
        layout: &KeyLayout,
        left: Vector,
        right: Vector,
        negated: bool,
        rows: Rows<'_>,
    ) -> Vector {
        let (left, right) = (layout.keys(&[left], rows), layout.keys(&[right], rows));
        let (mut bits, mut place) = (vec![false; rows.length()], 0);
        rows.each(|row| {
            bits[row] = (left.get(place) == right.get(place)) == negated;
            place += 1;
        });
        booleans(rows.length(), |row| bits[row])
    }

    fn quantified(&mut self, quantified: &mut Quantified, rows: Rows<'_>) -> Result<Vector> {
        let length = rows.length();
        let Quantified { site, all, argument, values } = quantified;
        let left = self.expression(argument, rows)?;
        let mut state = vec![OPEN; length];
        match values {
            Values::List(list) => {
                let (mut tally, mut open) = (Tally::new(length), None::<Vec<u16>>);
                for value in list {
                    let rows = open.as_ref().map_or(rows, |open| Rows::at(open, length));
                    if rows.count() == 0 {
                        break;
                    }
                    let right = self.expression(value, rows)?;
                    let found = site.vectors(self.scope.context, &[left.clone(), right], rows)?;
                    tally.add(&found.plain(rows), *all);
                    open = tally.open(rows);
                }
                return Ok(tally.finish(*all));
            }
            Values::Set { layout, set, has_null } => {
                in_set(&left, layout, set, *has_null, &mut state, rows);
            }
            Values::Array(array) => {
                let arrays = self.expression(array, rows)?;
                let mut result = Slot::new();
                rows.try_each(|row| {
                    let Datum::List(list) = arrays.datum(row) else {
                        state[row] = UNKNOWN;
                        return Ok(());
                    };
                    for element in list.iter() {
                        site.cells(self.scope.context, &[left.datum(row), element], &mut result)?;
                        let found = match result.get() {
                            Datum::Boolean(found) => Some(found),
                            _ => None,
                        };
                        if !step(&mut state[row], found, *all) {
                            break;
                        }
                    }
                    Ok::<(), firn_base::Error>(())
                })?;
            }
        }
        let all = *all;
        let values = BooleanBuffer::collect_bool(length, |row| (state[row] == DECIDED) != all);
        let validity = state
            .contains(&UNKNOWN)
            .then(|| NullBuffer::new(BooleanBuffer::collect_bool(length, |row| state[row] != UNKNOWN)));
        Ok(Vector::flat(Representation::Boolean, Data::Boolean(values), validity))
    }

    fn array(
        &mut self,
        elements: &mut [Expression],
        representation: Representation,
        rows: Rows<'_>,
    ) -> Result<Vector> {
        let Representation::List(element) = representation else { panic!("ARRAY makes arrays") };
        let mut vectors = Vec::with_capacity(elements.len());
        for element in elements.iter_mut() {
            vectors.push(self.expression(element, rows)?);
        }
        if vectors.iter().any(|vector| matches!(vector.representation(), Representation::List(_))) {
            return array_of_arrays(&vectors, representation, rows);
        }
        let (mut builder, mut starts) = (Builder::new(*element), vec![0; rows.length()]);
        rows.each(|row| {
            starts[row] = builder.len() as u32;
            vectors.iter().for_each(|vector| builder.push(vector.datum(row)));
        });
        let mut lengths = vec![0; rows.length()];
        rows.each(|row| lengths[row] = vectors.len() as u32);
        let lists = Lists::new(Arc::new(builder.finish()), starts.into(), lengths.into(), None);
        Ok(Vector::flat(representation, Data::List(lists), None))
    }

    /// An array with a cast of each element.
    fn elements(
        &mut self,
        array: &mut Expression,
        cast: &mut Expression,
        representation: Representation,
        rows: Rows<'_>,
    ) -> Result<Vector> {
        let arrays = self.expression(array, rows)?;
        let Representation::List(element) = representation else { panic!("it makes arrays") };
        let mut builder = Builder::new(representation);
        rows.try_each(|row| {
            builder.pad(row);
            let Datum::List(list) = arrays.datum(row) else {
                builder.push_null();
                return Ok(());
            };
            let elements = list.elements();
            let length = elements.len();
            let vectors = [elements];
            let cast = cast.evaluate_on(self.scope, &vectors, Rows::all(length))?;
            let cast = converted(&cast, *element, Rows::all(length)).flatten(Rows::all(length));
            builder.push(Datum::List(firn_vector::lists::List::with_shape(&cast, list.shape())));
            Ok::<(), firn_base::Error>(())
        })?;
        builder.pad(rows.length());
        Ok(builder.finish())
    }
}

/// What is known of rows while operands of AND or OR, or comparisons with some values, are asked one after the other: a bit for each row.
struct Tally {
    length: usize,
    /// For which an operand has decided; `None` before the first.
    decided: Option<BooleanBuffer>,
    /// For which an operand was NULL, if that has been so for any.
    unknown: Option<BooleanBuffer>,
}

impl Tally {
    fn new(length: usize) -> Tally {
        Tally { length, decided: None, unknown: None }
    }

    /// Adds what an operand is. In rows that have been decided it may be anything.
    fn add(&mut self, vector: &Vector, all: bool) {
        let Some(Data::Boolean(values)) = vector.data() else { panic!("operands are booleans") };
        let length = self.length;
        let (values, validity) = match vector.is_constant() {
            true if vector.is_null(0) => {
                (BooleanBuffer::new_unset(length), Some(BooleanBuffer::new_unset(length)))
            }
            true if values.value(0) => (BooleanBuffer::new_set(length), None),
            true => (BooleanBuffer::new_unset(length), None),
            false => (values.clone(), vector.validity().map(|validity| validity.inner().clone())),
        };
        // FALSE decides AND, TRUE decides OR.
        let mut decided = if all { !&values } else { values };
        if let Some(validity) = validity {
            decided = &decided & &validity;
            let unknown = !&validity;
            self.unknown = Some(match &self.unknown {
                Some(before) => before | &unknown,
                None => unknown,
            });
        }
        self.decided = Some(match &self.decided {
            Some(before) => before | &decided,
            None => decided,
        });
    }

    /// Those of some rows that are not decided; `None` if no row is.
    fn open(&self, rows: Rows<'_>) -> Option<Vec<u16>> {
        let decided = self.decided.as_ref().filter(|decided| decided.count_set_bits() > 0)?;
        Some(match rows.positions() {
            None => (!decided).set_indices().map(|row| row as u16).collect(),
            Some(positions) => {
                positions.iter().copied().filter(|row| !decided.value(usize::from(*row))).collect()
            }
        })
    }

    fn finish(self, all: bool) -> Vector {
        let decided = self.decided.unwrap_or_else(|| BooleanBuffer::new_unset(self.length));
        // A row is NULL if an operand was and none has decided.
        let validity = self.unknown.map(|unknown| NullBuffer::new(&!&unknown | &decided));
        let values = if all { !&decided } else { decided };
        Vector::flat(Representation::Boolean, Data::Boolean(values), validity)
    }
}

/// Notes what one comparison of a quantified one has found. Whether others are to be asked.
fn step(state: &mut u8, found: Option<bool>, all: bool) -> bool {
    match found {
        Some(found) if found != all => {
            *state = DECIDED;
            false
        }
        Some(_) => true,
        None => {
            *state = UNKNOWN;
            true
        }
    }
}

/// `= ANY` or `<> ALL` of a set of constants: one look-up a row.
fn in_set(left: &Vector, layout: &KeyLayout, set: &KeySet, has_null: bool, state: &mut [u8], rows: Rows<'_>) {
    let keys = layout.keys(std::slice::from_ref(left), rows);
    let (hashes, mut place) = (keys.hashes(), 0);
    rows.each(|row| {
        state[row] = if left.is_null(row) {
            UNKNOWN
        } else if set.find(keys.get(place), hashes[place]).is_some() {
            DECIDED
        } else if has_null {
            UNKNOWN
        } else {
            OPEN
        };
        place += 1;
    });
}

fn positions(rows: Rows<'_>) -> Vec<u16> {
    match rows.positions() {
        Some(positions) => positions.to_vec(),
        None => (0..rows.length()).map(|row| row as u16).collect(),
    }
}

fn boolean(value: bool, length: usize) -> Vector {
    let data = Data::Boolean(BooleanBuffer::collect_bool(1, |_| value));
    Vector::constant(Representation::Boolean, data, length)
}

fn booleans(length: usize, value: impl FnMut(usize) -> bool) -> Vector {
    let values = BooleanBuffer::collect_bool(length, value);
    Vector::flat(Representation::Boolean, Data::Boolean(values), None)
}

/// `ARRAY[…]` of arrays: one array with a dimension more. 2202E if they have different dimensions; NULL is an empty array.
fn array_of_arrays(vectors: &[Vector], representation: Representation, rows: Rows<'_>) -> Result<Vector> {
    let Representation::List(element) = representation else { panic!("ARRAY makes arrays") };
    let length = rows.length();
    let (mut builder, mut starts, mut lengths) = (Builder::new(*element), vec![0; length], vec![0; length]);
    let mut shapes: Vec<Option<Shape>> = vec![None; length];
    rows.try_each(|row| {
        starts[row] = builder.len() as u32;
        let mut inner: Option<Vec<Dimension>> = None;
        for vector in vectors {
            let datum = vector.datum(row);
            let (dimensions, list) = match datum {
                Datum::List(list) => {
                    ((0..list.dimensions()).filter_map(|number| list.dimension(number)).collect(), Some(list))
                }
                _ => (Vec::new(), None),
            };
            match &inner {
                None => inner = Some(dimensions),
                Some(first) if *first == dimensions => {}
                Some(_) => {
                    let message =
                        "multidimensional arrays must have array expressions with matching dimensions";
                    return Err(Error::new(SqlState::new("2202E"), message));
                }
            }
            list.into_iter().for_each(|list| list.iter().for_each(|datum| builder.push(datum)));
        }
        lengths[row] = builder.len() as u32 - starts[row];
        let inner = inner.unwrap_or_default();
        if !inner.is_empty() {
            let outer = Dimension { length: vectors.len() as u32, lower: 1 };
            shapes[row] = Some(std::iter::once(outer).chain(inner).collect());
        }
        Ok(())
    })?;
    let lists = Lists::new(Arc::new(builder.finish()), starts.into(), lengths.into(), Some(shapes.into()));
    Ok(Vector::flat(representation, Data::List(lists), None))
}

/// The same values in another representation: numbers of one scale as numbers of any, and the bits of `integer` as those of
/// `oid`, which PostgreSQL has for one another without a function.
pub(crate) fn converted(vector: &Vector, representation: Representation, rows: Rows<'_>) -> Vector {
    if vector.representation() == representation {
        return vector.clone();
    }
    if let (Representation::Decimal { scale, .. }, Representation::Numeric, Form::Flat(data)) =
        (vector.representation(), representation, vector.form())
        && let Some(digits) = match data {
            Data::Int64(values) => Some(values.iter().map(|value| i128::from(*value)).collect()),
            Data::Int128(values) => Some(values.clone()),
            _ => None,
        }
    {
        let scales = vec![u16::from(scale); vector.len()];
        let data = Data::Numeric(Numerics::new(digits, scales.into()));
        return Vector::flat(representation, data, vector.validity().cloned());
    }
    let mut builder = Builder::new(representation);
    rows.each(|row| {
        builder.pad(row);
        builder.push(match (vector.datum(row), representation) {
            (Datum::Int32(value), Representation::Oid) => Datum::UInt32(value as u32),
            (Datum::UInt32(value), Representation::Int32) => Datum::Int32(value as i32),
            (value, _) => value,
        });
    });
    builder.pad(rows.length());
    builder.finish()
}
