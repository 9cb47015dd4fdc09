//! Expressions: scalars of a plan, compiled to be evaluated for the selected rows of a chunk.
//!
//! An expression is a tree whose leaves are columns by their position; each inner node is evaluated once for a whole vector,
//! so the tree is walked once for some 2,000 rows. CASE, AND, OR, COALESCE and quantified comparisons
//! evaluate an operand only for the rows that reach it: with a selection that becomes smaller.
//!
//! Invariant: a result is as long as the chunk. Rows that are not selected have any value.

mod cells;
mod compile;
mod evaluate;
mod parts;

pub(crate) use cells::{CellConditions, CellExpression, CellScope, NoRow, Row, datum_of_cell};
pub(crate) use compile::representation_of;
pub use compile::{Compiler, Layout};
pub(crate) use evaluate::converted;
pub(crate) use parts::Cutter;
pub use parts::WIDE_BYTES;

use crate::keys::{KeyLayout, KeySet};
use crate::values::repeat;
use evaluate::Evaluation;
use firn_base::sync::Arc;
use firn_base::{Representation, Result, Type};
use firn_vector::kernel::{CallSite, Part};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Context, Data, Datum, Selection, Vector};

/// A compiled scalar. Each worker evaluates a clone of its own, since calls keep what they have compiled.
#[derive(Clone)]
pub struct Expression {
    node: Node,
    representation: Representation,
    can_fail: bool,
}

#[derive(Clone)]
enum Node {
    /// A vector of the chunk.
    Column(usize),
    /// A constant vector of one row.
    Constant(Vector),
    /// A parameter, from 0.
    Parameter(usize),
    /// A function of these.
    Call(Box<CallSite>, Vec<Expression>),
    /// A function of the first operand and the next, of its result and the next, and so on. A chain may have any length, so it
    /// is one node: as nested calls it would be as deep.
    Chain(Box<Expression>, Vec<(CallSite, Expression)>),
    /// All, or any, of these.
    Connect {
        all: bool,
        operands: Vec<Expression>,
    },
    Not(Box<Expression>),
    Case(Box<Case>),
    /// The operand of the innermost CASE that has one.
    CaseValue,
    Coalesce(Vec<Expression>),
    IsNull {
        operand: Box<Expression>,
        negated: bool,
    },
    Test {
        operand: Box<Expression>,
        which: Option<bool>,
        negated: bool,
    },
    Distinct {
        operands: Box<(Expression, Expression)>,
        layout: KeyLayout,
        negated: bool,
    },
    /// A comparison with any or all of some values.
    Quantified(Box<Quantified>),
    Array(Vec<Expression>),
    Row(Vec<(Type, Expression)>),
    Field(Box<Expression>, usize),
    /// The same values in a more general representation.
    Convert(Box<Expression>),
    /// A cast of each element of an array: the expression reads elements as column 0.
    Elements(Box<Expression>, Box<Expression>),
}

#[derive(Clone)]
struct Case {
    operand: Option<Expression>,
    arms: Vec<(Expression, Expression)>,
    otherwise: Expression,
}

#[derive(Clone)]
struct Quantified {
    site: CallSite,
    all: bool,
    argument: Expression,
    values: Values,
}

#[derive(Clone)]
enum Values {
    List(Vec<Expression>),
    Array(Expression),
    /// Constants for which equality is asked: whether one of them is NULL, and the others.
    Set {
        layout: KeyLayout,
        set: Arc<KeySet>,
        has_null: bool,
    },
}

/// What expressions are evaluated with, beside the chunk.
pub struct Scope<'a> {
    /// The statement's surroundings.
    pub context: &'a Context<'a>,
    /// A constant vector of one row for each parameter.
    pub parameters: &'a [Vector],
}

impl Expression {
    /// How its values lie.
    pub fn representation(&self) -> Representation {
        self.representation
    }

    /// Whether evaluating it may raise an error; overflow does not count.
    pub fn can_fail(&self) -> bool {
        self.can_fail
    }

    /// The position of the column, if it is nothing else.
    pub fn as_column(&self) -> Option<usize> {
        match self.node {
            Node::Column(position) => Some(position),
            _ => None,
        }
    }

    /// Its value, if it is a constant.
    pub fn constant(&self) -> Option<Datum<'_>> {
        match &self.node {
            Node::Constant(vector) => Some(vector.datum(0)),
            _ => None,
        }
    }

    /// Its values in the selected rows of a chunk.
    pub fn evaluate(&mut self, scope: &Scope<'_>, chunk: &Chunk) -> Result<Vector> {
        self.evaluate_on(scope, chunk.vectors(), chunk.rows())
    }

    /// Its values in some rows of vectors.
    pub fn evaluate_on(&mut self, scope: &Scope<'_>, vectors: &[Vector], rows: Rows<'_>) -> Result<Vector> {
        match &self.node {
            Node::Column(position) => Ok(vectors[*position].clone()),
            _ => parts::whole(self.representation, vectors, rows, |vectors, rows, part| {
                Evaluation::of_part(scope, vectors, part, |evaluation| evaluation.expression(self, rows))
            }),
        }
    }

    /// Its values in the selected rows of a part of a chunk; `None` if they are too wide.
    pub(crate) fn evaluate_part(
        &mut self,
        scope: &Scope<'_>,
        chunk: &Chunk,
        part: Part,
    ) -> Result<Option<Vector>> {
        let (vectors, rows) = (chunk.vectors(), chunk.rows());
        Evaluation::of_part(scope, vectors, part, |evaluation| evaluation.expression(self, rows))
    }

    /// Its value without any columns, in a vector of one row.
    pub fn evaluate_once(&mut self, scope: &Scope<'_>) -> Result<Vector> {
        self.evaluate_on(scope, &[], Rows::all(1))
    }
}

/// Conditions, all of which must be TRUE; those that cannot fail are asked first.
#[derive(Clone, Default)]
pub struct Conditions(Vec<Expression>);

impl Conditions {
    /// Conditions in the order in which they are asked, as far as errors leave it open.
    pub fn new(mut conditions: Vec<Expression>) -> Conditions {
        conditions.sort_by_key(Expression::can_fail);
        Conditions(conditions)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows for which all are TRUE: each is asked only for those that are left.
    pub fn select(&mut self, scope: &Scope<'_>, chunk: Chunk) -> Result<Chunk> {
        let asked = |condition: &mut Expression, rows: Rows<'_>| {
            condition.evaluate_on(scope, chunk.vectors(), rows).map(Some)
        };
        let selection = self.selected(&chunk, asked)?.expect("truths are not wide");
        Ok(chunk.with_selection(selection))
    }

    /// As [`Conditions::select`], of a part of a chunk; `None` if what they compute is too wide.
    pub(crate) fn select_part(
        &mut self,
        scope: &Scope<'_>,
        chunk: &Chunk,
        part: Part,
    ) -> Result<Option<Chunk>> {
        let asked = |condition: &mut Expression, rows: Rows<'_>| {
            Evaluation::of_part(scope, chunk.vectors(), part, |evaluation| {
                evaluation.expression(condition, rows)
            })
        };
        Ok(self.selected(chunk, asked)?.map(|selection| chunk.clone().with_selection(selection)))
    }

    /// The selection of a chunk that is left; `None` if a condition comes to nothing.
    fn selected(
        &mut self,
        chunk: &Chunk,
        mut asked: impl FnMut(&mut Expression, Rows<'_>) -> Result<Option<Vector>>,
    ) -> Result<Option<Option<Selection>>> {
        let mut selection = chunk.selection().cloned();
        for condition in &mut self.0 {
            let rows = match &selection {
                Some(selection) => selection.rows(chunk.length()),
                None => Rows::all(chunk.length()),
            };
            if rows.count() == 0 {
                break;
            }
            let Some(truth) = asked(condition, rows)? else { return Ok(None) };
            if let Some(positions) = positions_of_true(&truth, rows) {
                selection = Some(Selection::new(positions));
            }
        }
        Ok(Some(selection))
    }

    /// The truth of all together in each selected row.
    pub fn truth(&mut self, scope: &Scope<'_>, chunk: &Chunk) -> Result<Vector> {
        parts::whole(Representation::Boolean, chunk.vectors(), chunk.rows(), |vectors, rows, part| {
            Evaluation::of_part(scope, vectors, part, |evaluation| {
                evaluation.connect(&mut self.0, true, rows)
            })
        })
    }
}

/// Whether a row of a plain vector of booleans is TRUE or FALSE; `None` if it is NULL.
pub fn truth(vector: &Vector, row: usize) -> Option<bool> {
    let Some(Data::Boolean(values)) = vector.data() else { panic!("it is a plain vector of booleans") };
    let is_null = vector.is_null(row);
    (!is_null).then(|| values.value(if vector.is_constant() { 0 } else { row }))
}

/// The positions of rows that are TRUE; `None` if all are. 64 rows cost one test where nothing is selected before.
fn positions_of_true(vector: &Vector, rows: Rows<'_>) -> Option<Vec<u16>> {
    let vector = vector.plain(rows);
    if vector.is_constant() {
        return match truth(&vector, 0) {
            Some(true) => None,
            _ => Some(Vec::new()),
        };
    }
    let Some(Data::Boolean(values)) = vector.data() else { panic!("a condition is a boolean") };
    let bits = match vector.validity() {
        None => values.clone(),
        Some(validity) => values & validity.inner(),
    };
    match rows.positions() {
        None => {
            let count = bits.count_set_bits();
            (count < rows.length()).then(|| {
                let mut positions = Vec::with_capacity(count);
                positions.extend(bits.set_indices().map(|row| row as u16));
                positions
            })
        }
        Some(selected) => {
            // Branch-free: the place of the next position moves only if the row is TRUE.
            let (mut positions, mut count) = (vec![0; selected.len()], 0);
            for row in selected {
                positions[count] = *row;
                count += usize::from(bits.value(usize::from(*row)));
            }
            positions.truncate(count);
            (count < selected.len()).then_some(positions)
        }
    }
}

/// As [`repeat`], of a parameter.
fn parameter(scope: &Scope<'_>, number: usize, length: usize) -> Vector {
    repeat(&scope.parameters[number], length)
}
