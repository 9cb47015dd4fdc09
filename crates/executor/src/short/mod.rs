//! Short programs: statements that touch few rows, found by indexes, run on the calling thread without vectors.
//!
//! A [`ShortProgram`] is compiled of the same plan as the pipelines and calls the same functions, on single values. It is a row of
//! steps. The first finds rows by an index, or lists them; each further one filters a row, computes columns of it, or looks
//! up its partners in another table; what comes through the last one is a row of the result, of an aggregate, or one to be
//! changed. Tables, indexes and columns are resolved when it is compiled, so that it belongs to one version of the catalog; buffers
//! are used again by the next execution.
//!
//! Which index is read is chosen when it is compiled, without the values. Whether few rows are touched is known only as it runs:
//! a program that has visited [`MOST_ROWS`] rows gives up, before it has changed anything, and its caller runs the
//! pipelines of the plan. For the same reason a program that finds rows calls no volatile function.
//!
//! What it reads is logged for validation as pipelines log it, with two exceptions, both narrower: a row that is found by all of a
//! unique key, which decides all conditions, is logged as that row, and a range that is read in the order of its index is logged up to
//! where reading ended.
//!
//! In reading order: `compile` and `access` (the program of a plan, the index of a scan), `run` (steps), `sink` (what becomes of rows),
//! `change` (row changes and locks).

mod access;
mod change;
mod compile;
mod run;
mod sink;

use crate::expression::{CellConditions, CellExpression, CellScope, Row, datum_of_cell};
use crate::keys::KeyLayout;
use crate::pool::Pool;
use crate::source::Sources;
use crate::values::{constant, datum, value};
use crate::write::TargetSet;
use access::Lookup;
use change::Body;
use firn_base::sync::Arc;
use firn_base::{Cell, Representation, Result, RowId, Value};
use firn_plan::Plan;
use firn_txn::Transaction;
use firn_vector::aggregate::AggregateKernel;
use firn_vector::kernel::Signature;
use firn_vector::{Context, Datum, Registry, Slot, Vector};
use smallvec::SmallVec;

/// How many rows a short program visits.
pub const MOST_ROWS: usize = 1000;

/// A plan that touches few rows. See the module.
pub struct ShortProgram {
    steps: Vec<Step>,
    lookups: Vec<Lookup>,
    /// Where the values of columns are; expressions name columns by their place here.
    places: Vec<Place>,
    /// How many cells the rows of all look-ups have together.
    cells: usize,
    parameters: Vec<Option<Representation>>,
    grouping: Option<Grouping>,
    /// The order of the rows, unless they come in it.
    sort: Vec<SortBy>,
    limit: Option<Limit>,
    outputs: Vec<Output>,
    body: Body,
    states: Pool<Box<State>>,
}

/// What is done with a row.
enum Step {
    /// Each of several rows in turn: expressions, and the register of the first one.
    Values { rows: Vec<Vec<usize>>, first: usize },
    /// A look-up, by its number.
    Look(usize),
    /// Conditions, by their number.
    Filter(usize),
    /// Expressions by their numbers, each with its register; one may read the registers before its own.
    Map(Vec<(usize, usize)>),
}

/// Where the value of a column is.
#[derive(Clone, Copy)]
enum Place {
    /// In a cell of a row that was read, and how it lies in the table and in general.
    Cell { at: usize, stored: Representation, general: Representation },
    /// In a register.
    Register(usize),
    /// It is that of a parameter.
    Parameter(usize),
}

/// Aggregates over all rows that have come through the steps before.
struct Grouping {
    /// How many of the steps are before it.
    after: usize,
    aggregates: Vec<Aggregate>,
    /// Whether the first row with a value decides.
    first_is_enough: bool,
}

/// An aggregate.
struct Aggregate {
    kernel: Arc<dyn AggregateKernel>,
    signature: Arc<Signature>,
    /// Expressions.
    arguments: Vec<usize>,
    /// Conditions: rows for which they do not hold are left out.
    filter: usize,
    /// If equal arguments count once: their keys.
    distinct: Option<KeyLayout>,
    /// The register of the result.
    register: usize,
}

/// A part of an order.
#[derive(Clone, Copy)]
struct SortBy {
    place: usize,
    representation: Representation,
    descending: bool,
    nulls_first: bool,
}

/// LIMIT and OFFSET, as expressions.
#[derive(Clone, Copy)]
struct Limit {
    count: Option<usize>,
    offset: Option<usize>,
}

/// A column of the result.
#[derive(Clone, Copy)]
struct Output {
    place: usize,
    representation: Representation,
}

/// What an execution uses: expressions, which keep results, and buffers.
#[derive(Clone, Default)]
struct State {
    expressions: Vec<CellExpression>,
    conditions: Vec<CellConditions>,
    registers: Vec<Slot>,
    /// The values that rows to be changed get, row by row.
    assigned: Vec<Slot>,
    /// How many of these belong to this execution.
    assigned_now: usize,
    /// The values of the generated columns of the row that is changed.
    generated: Vec<Slot>,
    /// The keys of rows to be sorted, row by row, and how many belong to this execution.
    sort_keys: Vec<Slot>,
    sort_keys_now: usize,
    /// The ids of rows to be changed or locked; a row to be inserted has none.
    ids: Vec<Option<RowId>>,
}

/// What a short program has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// How many rows it has changed; `None` of a query.
    pub count: Option<u64>,
    /// How many rows the result has.
    pub rows: usize,
}

type Datums<'d> = SmallVec<[Datum<'d>; 12]>;

/// The values of a row, of columns by their places.
struct RowView<'r> {
    places: &'r [Place],
    cells: &'r [Cell<'r>],
    registers: &'r [Slot],
    parameters: &'r [Datum<'r>],
}

impl Row for RowView<'_> {
    #[inline]
    fn datum(&self, place: usize) -> Datum<'_> {
        match self.places[place] {
            Place::Cell { at, stored, general } => datum_of_cell(&self.cells[at], stored, general),
            Place::Register(register) => self.registers[register].get(),
            Place::Parameter(number) => self.parameters[number],
        }
    }
}

impl RowView<'_> {
    /// A value of the result.
    #[inline]
    fn value(&self, output: Output) -> Value {
        match self.places[output.place] {
            Place::Cell { at, stored, general } if stored == general => self.cells[at].to_value(stored),
            Place::Cell { at, stored, general } => {
                value(datum_of_cell(&self.cells[at], stored, general), general)
            }
            Place::Register(register) => value(self.registers[register].get(), output.representation),
            Place::Parameter(number) => value(self.parameters[number], output.representation),
        }
    }
}

impl ShortProgram {
    /// The short program of an optimised plan; `None` if it has none. `targets` are the tables that it changes, compiled for writing.
    pub fn compile(
        plan: &Plan,
        registry: &Registry,
        sources: &dyn Sources,
        targets: Option<&TargetSet>,
    ) -> Option<ShortProgram> {
        compile::program(plan, registry, sources, targets)
    }

    /// A row of registers and parameters.
    fn row_without_cells<'r>(&'r self, registers: &'r [Slot], scope: CellScope<'r>) -> RowView<'r> {
        RowView { places: &self.places, cells: &[], registers, parameters: scope.parameters }
    }

    /// The indexes that it reads by: the oid of the table, and that of the index, in the order of the plan.
    pub fn indexes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.lookups.iter().map(|lookup| (lookup.definition.oid.0, lookup.index.spec().id.0))
    }

    /// Whether it finds every row that it reads by all of a unique key. Then no estimate has chosen its way.
    pub fn is_by_keys(&self) -> bool {
        self.lookups.iter().all(|lookup| {
            let index = lookup.index.spec();
            index.unique && lookup.key.len() == index.columns.len()
        })
    }

    /// Runs a program without changes and locks, and appends the values of its rows, row by row. How many rows; `None` if it
    /// gives up. Then, and after an error, nothing has been appended.
    pub fn query(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        context: &Context<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<usize>> {
        assert!(matches!(self.body, Body::Query), "a program that changes or locks rows is executed");
        context.check_cancel()?;
        let begin = values.len();
        let mut state = self.states.take();
        let rows = with_parameters(&self.parameters, parameters, |datums| {
            let scope = CellScope { context, parameters: datums };
            self.rows(&mut state, transaction, parameters, scope, values)
        });
        self.states.give_back(state);
        rows.inspect_err(|_| values.truncate(begin))
    }

    /// Runs a program with its changes or locks, and appends the values of RETURNING, or of the rows of the query. `None` if it gives
    /// up, before it has changed anything. What [`execute`](crate::execution::execute) says of errors holds here as well.
    pub fn execute(
        &self,
        targets: &TargetSet,
        transaction: &mut Transaction,
        parameters: &[Value],
        context: &Context<'_>,
        values: &mut Vec<Value>,
    ) -> Result<Option<Done>> {
        context.check_cancel()?;
        let mut state = self.states.take();
        let done = with_parameters(&self.parameters, parameters, |datums| {
            let scope = CellScope { context, parameters: datums };
            self.change(&mut state, targets, transaction, parameters, scope, values)
        });
        self.states.give_back(state);
        done
    }
}

/// Calls with the values of parameters, borrowed.
fn with_parameters<T>(
    representations: &[Option<Representation>],
    parameters: &[Value],
    call: impl FnOnce(&[Datum<'_>]) -> T,
) -> T {
    assert!(parameters.len() >= representations.len(), "each parameter has a value");
    let vector = |(value, representation): (&Value, &Option<Representation>)| match (value, representation) {
        (Value::Array(_), Some(representation)) => Some(constant(value, *representation, 1)),
        _ => None,
    };
    let is_array = |value: &Value| matches!(value, Value::Array(_));
    let arrays: Vec<Option<Vector>> = match parameters.iter().any(is_array) {
        true => parameters.iter().zip(representations).map(vector).collect(),
        false => Vec::new(),
    };
    let mut datums = Datums::new();
    for (number, (value, representation)) in parameters.iter().zip(representations).enumerate() {
        datums.push(match representation {
            // A parameter that the plan does not use has no type.
            None => Datum::Null,
            Some(_) => match arrays.get(number) {
                Some(Some(vector)) => vector.datum(0),
                _ => datum(value).expect("arrays have been made vectors"),
            },
        });
    }
    call(&datums)
}
