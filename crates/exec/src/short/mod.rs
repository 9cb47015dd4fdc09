//! The short path: statements that touch few rows through indexes, run on the caller's thread
//! without batches, without async, without DataFusion.
//!
//! A [`ShortProgram`] is compiled once from an analysed plan ([`flatten`] takes the plan apart,
//! [`access`] finds the indexes) and run many times. It holds its tables, indexes and columns
//! resolved, so a run looks nothing up by name. It consists of nested *look-ups*, each a point or a
//! range of one index with keys from parameters or from the rows of the look-ups around it, and of
//! what to do with the rows that come through: expressions, or aggregates over all of them.
//!
//! Whether a statement touches few rows is known for sure only while it runs: a program that has
//! visited [`MOST_ROWS`] without end gives up, and its caller runs the plan instead.

mod access;
mod aggregate;
mod flatten;
mod lookup;

use self::aggregate::Aggregate;
use self::lookup::Lookups;
use crate::expression::{Environment, Row, RowExpression};
use crate::query::RunOptions;
use datafusion::logical_expr::LogicalPlan;
use firn_base::{Cell, Error, Result, SqlState, SqlType, Value};
use firn_txn::{Transaction, pin};
use std::cmp::Ordering;

/// Rows that a program visits before it leaves the statement to the analytical path, which is
/// faster per row by then.
pub const MOST_ROWS: usize = 4096;

/// A compiled query. See the module.
pub struct ShortProgram {
    lookups: Lookups,
    body: Body,
    /// Columns of a row of the result.
    width: usize,
    skip: Option<RowExpression>,
    fetch: Option<RowExpression>,
}

/// What happens to the rows that come through the look-ups.
enum Body {
    /// Each becomes a row of the result, in the order of the last sort key that is not kept by the
    /// index anyway.
    Rows { outputs: Vec<Output>, sort: Vec<SortKey> },
    /// All together become one row: expressions over the aggregates' results.
    Aggregate { aggregates: Vec<Aggregate>, types: Vec<SqlType>, outputs: Vec<RowExpression> },
    /// Likewise, but each result is the first row of a program of its own, which follows an index: the least or
    /// greatest value of a column. There are no other look-ups.
    Extremes { programs: Vec<ShortProgram>, types: Vec<SqlType>, outputs: Vec<RowExpression> },
}

/// A column of the result.
#[derive(Debug)]
enum Output {
    Expression(RowExpression),
    /// The id of the row that a look-up found, as the bits of a bigint.
    RowId(usize),
}

/// A key of ORDER BY.
#[derive(Debug)]
struct SortKey {
    expression: RowExpression,
    descending: bool,
    nulls_first: bool,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// With that many rows.
    Done {
        /// How many.
        rows: usize,
    },
    /// Too many rows came up; there is no result.
    GaveUp,
}

impl ShortProgram {
    /// Compiles an analysed plan; `None` if it is not a short statement.
    pub fn compile(plan: &LogicalPlan) -> Option<ShortProgram> {
        access::compile(flatten::flatten(plan)?)
    }

    /// Columns of a row of the result.
    pub fn width(&self) -> usize {
        self.width
    }

    /// What EXPLAIN says of it, a line per look-up.
    pub fn describe(&self) -> Vec<String> {
        match &self.body {
            Body::Extremes { programs, .. } => programs.iter().flat_map(ShortProgram::describe).collect(),
            _ => self.lookups.lookups.iter().map(lookup::Lookup::describe).collect(),
        }
    }

    /// Runs it and appends the rows to `result`, row-major.
    pub fn run(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
        result: &mut Vec<Value>,
    ) -> Result<Completion> {
        let environment = Environment { parameters, options };
        let skip = row_count(&self.skip, &environment, "OFFSET")?.unwrap_or(0);
        let fetch = row_count(&self.fetch, &environment, "LIMIT")?.unwrap_or(usize::MAX);
        self.run_within(transaction, &environment, skip, fetch, result)
    }

    /// As [`ShortProgram::run`] for a program without LIMIT and OFFSET of its own, with these instead.
    pub(crate) fn run_part(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
        skip: usize,
        fetch: usize,
        result: &mut Vec<Value>,
    ) -> Result<Completion> {
        debug_assert!(self.skip.is_none() && self.fetch.is_none());
        self.run_within(transaction, &Environment { parameters, options }, skip, fetch, result)
    }

    fn run_within(
        &self,
        transaction: &Transaction,
        environment: &Environment<'_>,
        skip: usize,
        fetch: usize,
        result: &mut Vec<Value>,
    ) -> Result<Completion> {
        match &self.body {
            Body::Rows { outputs, sort } if sort.is_empty() => {
                self.stream(transaction, environment, outputs, skip, fetch, result)
            }
            Body::Rows { outputs, sort } => {
                self.sort(transaction, environment, outputs, sort, skip, fetch, result)
            }
            Body::Aggregate { aggregates, types, outputs } => {
                let mut states: Vec<_> = aggregates.iter().map(Aggregate::start).collect();
                let guard = pin();
                let finished =
                    self.lookups.run(transaction, environment, &guard, MOST_ROWS, &mut |row, _| {
                        for (aggregate, state) in aggregates.iter().zip(&mut states) {
                            aggregate.add(state, row)?;
                        }
                        Ok(true)
                    })?;
                if !finished {
                    return Ok(Completion::GaveUp);
                }
                let results = aggregates.iter().zip(states).map(|(aggregate, state)| aggregate.finish(state));
                let results: Vec<Value> = results.collect::<Result<_>>()?;
                one_row(&results, types, outputs, environment, skip, fetch, result)
            }
            Body::Extremes { programs, types, outputs } => {
                let mut results = Vec::with_capacity(programs.len());
                for (position, program) in programs.iter().enumerate() {
                    let Environment { parameters, options } = *environment;
                    let completion = program.run(transaction, parameters, options, &mut results)?;
                    if completion == Completion::GaveUp {
                        return Ok(Completion::GaveUp);
                    }
                    results.resize(position + 1, Value::Null);
                }
                one_row(&results, types, outputs, environment, skip, fetch, result)
            }
        }
    }

    /// Rows in the order in which the indexes yield them; stops as soon as there are enough.
    fn stream(
        &self,
        transaction: &Transaction,
        environment: &Environment<'_>,
        outputs: &[Output],
        mut skip: usize,
        fetch: usize,
        result: &mut Vec<Value>,
    ) -> Result<Completion> {
        if fetch == 0 {
            return Ok(Completion::Done { rows: 0 });
        }
        let begin = result.len();
        let mut rows = 0;
        let guard = pin();
        let finished = self.lookups.run(transaction, environment, &guard, MOST_ROWS, &mut |row, ids| {
            if skip > 0 {
                skip -= 1;
                return Ok(true);
            }
            for output in outputs {
                result.push(output.evaluate(row, ids)?);
            }
            rows += 1;
            Ok(rows < fetch)
        })?;
        if !finished {
            result.truncate(begin);
            return Ok(Completion::GaveUp);
        }
        Ok(Completion::Done { rows })
    }

    #[allow(clippy::too_many_arguments)]
    fn sort(
        &self,
        transaction: &Transaction,
        environment: &Environment<'_>,
        outputs: &[Output],
        sort: &[SortKey],
        skip: usize,
        fetch: usize,
        result: &mut Vec<Value>,
    ) -> Result<Completion> {
        let mut found: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
        let guard = pin();
        let finished = self.lookups.run(transaction, environment, &guard, MOST_ROWS, &mut |row, ids| {
            let keys = sort
                .iter()
                .map(|key| Ok(key.expression.evaluate(row)?.into_owned()))
                .collect::<Result<_>>()?;
            let values = outputs.iter().map(|output| output.evaluate(row, ids)).collect::<Result<_>>()?;
            found.push((keys, values));
            Ok(true)
        })?;
        if !finished {
            return Ok(Completion::GaveUp);
        }
        found.sort_by(|(left, _), (right, _)| {
            sort.iter()
                .zip(left.iter().zip(right))
                .map(|(key, (left, right))| key.compare(left, right))
                .find(|ordering| ordering.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        let mut rows = 0;
        for (_, values) in found.into_iter().skip(skip).take(fetch) {
            result.extend(values);
            rows += 1;
        }
        Ok(Completion::Done { rows })
    }
}

/// The one row of aggregates' results, unless LIMIT or OFFSET leave it out.
fn one_row(
    results: &[Value],
    types: &[SqlType],
    outputs: &[RowExpression],
    environment: &Environment<'_>,
    skip: usize,
    fetch: usize,
    result: &mut Vec<Value>,
) -> Result<Completion> {
    if skip > 0 || fetch == 0 {
        return Ok(Completion::Done { rows: 0 });
    }
    let cells: Vec<Cell<'_>> = results.iter().zip(types).map(|(value, ty)| value.as_cell(*ty)).collect();
    let row = Row { cells: &cells, environment };
    for output in outputs {
        result.push(output.evaluate(row)?.into_owned());
    }
    Ok(Completion::Done { rows: 1 })
}

impl Output {
    #[inline]
    fn evaluate(&self, row: Row<'_>, ids: &[firn_base::RowId]) -> Result<Value> {
        match self {
            Output::Expression(expression) => Ok(expression.evaluate(row)?.into_owned()),
            Output::RowId(lookup) => Ok(Value::BigInt(ids[*lookup].to_bits() as i64)),
        }
    }
}

impl SortKey {
    fn compare(&self, left: &Value, right: &Value) -> Ordering {
        match left.compare(right) {
            Some(ordering) if self.descending => ordering.reverse(),
            Some(ordering) => ordering,
            None => match (left.is_null(), right.is_null()) {
                (true, true) => Ordering::Equal,
                (true, false) if self.nulls_first => Ordering::Less,
                (true, false) => Ordering::Greater,
                _ if self.nulls_first => Ordering::Greater,
                _ => Ordering::Less,
            },
        }
    }
}

/// What LIMIT or OFFSET comes to; NULL is as if it were not there.
pub(crate) fn row_count(
    expression: &Option<RowExpression>,
    environment: &Environment<'_>,
    clause: &str,
) -> Result<Option<usize>> {
    let Some(expression) = expression else { return Ok(None) };
    let count = match *expression.evaluate(Row { cells: &[], environment })? {
        Value::Null => return Ok(None),
        Value::SmallInt(count) => i64::from(count),
        Value::Integer(count) => i64::from(count),
        Value::BigInt(count) => count,
        ref other => panic!("{clause} is {other:?}, which the analysis should have refused"),
    };
    match usize::try_from(count) {
        Ok(count) => Ok(Some(count)),
        Err(_) => {
            let state = if clause == "LIMIT" { "2201W" } else { "2201X" };
            Err(Error::new(SqlState::new(state), format!("{clause} must not be negative")))
        }
    }
}
