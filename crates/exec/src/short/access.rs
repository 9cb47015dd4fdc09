//! Choosing indexes: from a flat query to nested look-ups.
//!
//! A condition `column op value` can be part of an index's key when the value depends only on
//! parameters and on tables that are looked up earlier; so can one `column IN (…)` or `column = ANY ($1)`,
//! whose values are looked up one after the other. Among the tables not placed yet, the one
//! with the best look-up comes next: a point of a unique index before a long key before a short
//! one. There are no statistics in this; a program that turns out to touch many rows gives up.

use super::aggregate::{Aggregate, AggregateFunction};
use super::flatten::{Flat, FlatColumn};
use super::lookup::{Asked, Given, KeyPart, KeyValue, Lookup, Lookups, RangeEnd};
use super::{Body, Output, ShortProgram, SortKey};
use crate::dml::target::find_physical_index;
use crate::expression::RowExpression;
use crate::lower::quantified::{Comparison, Quantifier, quantifier_of};
use crate::reads::Columns;
use crate::types;
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::{Between, Cast, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, SortExpr, lit};
use firn_base::{ColumnId, SqlType};
use firn_txn::catalog::IndexDef;
use std::collections::HashSet;

/// More tables than this are not a short statement.
const MOST_TABLES: usize = 4;

/// A condition on one column that an index can serve.
struct Candidate<'f> {
    /// Which of the query's conditions it comes from.
    condition: usize,
    column: usize,
    operator: Operator,
    value: Wanted<'f>,
    /// Tables that the value depends on.
    needs: HashSet<usize>,
    /// Whether the index decides the condition alone, so that no filter has to.
    is_exact: bool,
}

impl Candidate<'_> {
    /// Whether it is told by the text of the query alone.
    fn is_literal(&self) -> bool {
        let is_literal = |expression: &Expr| matches!(expression, Expr::Literal(..));
        match self.value {
            Wanted::One(value) => is_literal(value),
            Wanted::OneOf(values) => values.iter().all(is_literal),
            Wanted::Element(_) => false,
        }
    }
}

/// What a column is compared with.
#[derive(Clone, Copy)]
enum Wanted<'f> {
    /// A value.
    One(&'f Expr),
    /// Any of some values, which depend on no table.
    OneOf(&'f [Expr]),
    /// Any element of an array, which depends on no table.
    Element(&'f Expr),
}

impl<'f> Wanted<'f> {
    fn one(self) -> Option<&'f Expr> {
        match self {
            Wanted::One(value) => Some(value),
            Wanted::OneOf(_) | Wanted::Element(_) => None,
        }
    }
}

/// A way to look a table up.
struct Choice<'f> {
    table: usize,
    index: &'f IndexDef,
    key: Vec<&'f Candidate<'f>>,
    low: Option<&'f Candidate<'f>>,
    high: Option<&'f Candidate<'f>>,
    is_point: bool,
}

impl Choice<'_> {
    /// The larger, the fewer rows are to be expected.
    fn rank(&self) -> (bool, usize, bool, usize) {
        let ends = usize::from(self.low.is_some()) + usize::from(self.high.is_some());
        (self.is_point, self.key.len(), !self.is_repeated(), ends)
    }

    /// Whether it is done once for each of several values.
    fn is_repeated(&self) -> bool {
        self.key.iter().any(|candidate| candidate.value.one().is_none())
    }
}

pub(super) fn compile(flat: Flat) -> Option<ShortProgram> {
    if flat.tables.len() > MOST_TABLES {
        return None;
    }
    extremes(&flat).or_else(|| compile_look_ups(&flat))
}

/// A query for nothing but the least or the greatest values of columns whose order an index keeps. Each is the first row of
/// a look-up, which reads no further, and notes no more as read: whoever only knows the greatest number given so far does not
/// mind rows below it.
fn extremes(flat: &Flat) -> Option<ShortProgram> {
    let (calls, results) = flat.aggregate.as_ref()?;
    if flat.tables.len() > 1 {
        return None;
    }
    let ways = calls.iter().zip(results.fields());
    let programs = ways
        .map(|(call, field)| extreme(flat, call, types::sql_type(field)?))
        .collect::<Option<Vec<ShortProgram>>>()?;
    let body = Body::Extremes {
        programs,
        types: results.fields().iter().map(|field| types::sql_type(field)).collect::<Option<_>>()?,
        outputs: over_results(flat, results)?,
    };
    let count = |count: &Option<Expr>| match count {
        None => Some(None),
        Some(count) => row_count(RowExpression::compile(count, &flat.schema(), &|_| None)?).map(Some),
    };
    let lookups = Lookups { lookups: Vec::new(), cells: 0 };
    let (skip, fetch) = (count(&flat.skip)?, count(&flat.fetch)?);
    Some(ShortProgram { lookups, body, width: flat.outputs.len(), skip, fetch })
}

/// A program whose only row has the least or the greatest value of a column, if there is any; `None` if no index finds it.
fn extreme(flat: &Flat, call: &Expr, result: SqlType) -> Option<ShortProgram> {
    let aggregate = aggregate(call, result, &|argument| {
        let column = |position: usize| flat.columns[position].column.map(|_| position);
        RowExpression::compile(argument, &flat.schema(), &column)
    })?;
    // Plans compare them field by field, and so does whoever sorts by no index.
    if matches!(result, SqlType::Interval) {
        return None;
    }
    let is_least = match aggregate.function {
        AggregateFunction::Smallest => true,
        AggregateFunction::Largest => false,
        _ => return None,
    };
    let argument = argument_of(call)?;
    let column = flat.column_of(argument)?;
    let FlatColumn { table, column, .. } = &flat.columns[column];
    let nullable = !flat.tables[*table].definition.columns[(*column)?.index()].not_null;
    let mut conditions = flat.conditions.clone();
    conditions.extend(nullable.then(|| argument.clone().is_not_null()));
    // NULLs are passed over on whichever side the index has them.
    [false, true].into_iter().find_map(|nulls_first| {
        let first = Flat {
            conditions: conditions.clone(),
            outputs: vec![argument.clone()],
            order: vec![SortExpr { expr: argument.clone(), asc: is_least, nulls_first }],
            skip: None,
            fetch: Some(lit(1i64)),
            aggregate: None,
            ..flat.clone()
        };
        let program = compile_look_ups(&first)?;
        matches!(&program.body, Body::Rows { sort, .. } if sort.is_empty()).then_some(program)
    })
}

/// What an aggregate of one argument is over.
fn argument_of(call: &Expr) -> Option<&Expr> {
    match call {
        Expr::Alias(alias) => argument_of(&alias.expr),
        Expr::AggregateFunction(call) => call.params.args.first(),
        _ => None,
    }
}

fn compile_look_ups(flat: &Flat) -> Option<ShortProgram> {
    let schema = flat.schema();
    let mut candidates = Vec::new();
    for (position, condition) in flat.conditions.iter().enumerate() {
        add_candidates(flat, &schema, position, condition, &mut candidates);
    }
    let choices = choose(flat, &candidates)?;

    // Conditions that no index decides alone become filters of the first look-up that can test them.
    let decided: HashSet<usize> = choices
        .iter()
        .flat_map(|choice| choice.key.iter().chain(&choice.low).chain(&choice.high))
        .filter(|candidate| candidate.is_exact)
        .map(|candidate| candidate.condition)
        .collect();
    let order: Vec<usize> = choices.iter().map(|choice| choice.table).collect();
    let depth_of =
        |table: usize| order.iter().position(|placed| *placed == table).expect("every table is placed");
    let mut filters: Vec<Vec<(usize, &Expr)>> = vec![Vec::new(); choices.len()];
    for (position, condition) in flat.conditions.iter().enumerate() {
        if !decided.contains(&position) {
            let depth = tables_of(flat, condition).into_iter().map(depth_of).max().unwrap_or(0);
            filters[depth].push((position, condition));
        }
    }

    // The index may yield the wanted order by itself.
    let (needs_sort, reverse) = match choices.as_slice() {
        [only] => match order_by_index(flat, only) {
            Some(reverse) => (false, reverse),
            None => (!flat.order.is_empty(), false),
        },
        _ => (!flat.order.is_empty(), false),
    };

    // Whoever gets rows in the index's order, or the first of them, has read what the order comes from.
    let is_in_order = choices.len() == 1
        && !needs_sort
        && (!flat.order.is_empty() || flat.fetch.is_some() || flat.skip.is_some());

    // Every column that an expression refers to gets a place in the row.
    let mut used = HashSet::new();
    let outputs_over_tables: &[Expr] = if flat.aggregate.is_some() { &[] } else { &flat.outputs };
    let calls: &[Expr] = flat.aggregate.as_ref().map_or(&[], |(calls, _)| calls);
    let sort: &[SortExpr] = if needs_sort { &flat.order } else { &[] };
    let keys = choices
        .iter()
        .flat_map(|choice| choice.key.iter().chain(&choice.low).chain(&choice.high))
        .filter_map(|candidate| candidate.value.one());
    for expression in outputs_over_tables
        .iter()
        .chain(calls)
        .chain(sort.iter().map(|key| &key.expr))
        .chain(filters.iter().flatten().map(|(_, filter)| *filter))
        .chain(keys)
    {
        used.extend(columns_of(flat, expression));
    }
    let mut positions = vec![None; flat.columns.len()];
    let mut cells = 0;
    let mut spans = Vec::new();
    for choice in &choices {
        let offset = cells;
        let mut columns = Vec::new();
        for (column, described) in flat.columns.iter().enumerate() {
            if let (true, Some(id)) =
                (described.table == choice.table && used.contains(&column), described.column)
            {
                positions[column] = Some(cells);
                columns.push(id);
                cells += 1;
            }
        }
        spans.push((offset, columns));
    }
    let place = |column: usize| positions[column];
    let expression = |expression: &Expr| RowExpression::compile(expression, &schema, &place);

    let mut lookups = Vec::with_capacity(choices.len());
    for ((choice, (offset, columns)), filters) in choices.iter().zip(spans).zip(filters) {
        let table = &flat.tables[choice.table];
        let range_column = choice.index.columns.get(choice.key.len());
        let part = |candidate: &Candidate<'_>| {
            let value = match candidate.value {
                Wanted::One(value) => KeyValue::One(expression(value)?),
                Wanted::OneOf(values) => {
                    KeyValue::OneOf(values.iter().map(expression).collect::<Option<_>>()?)
                }
                Wanted::Element(array) => KeyValue::Element(expression(array)?),
            };
            Some(KeyPart { value, ty: flat.column_type(candidate.column)? })
        };
        let end = |candidate: Option<&Candidate<'_>>| match candidate {
            None => Some(None),
            Some(candidate) => Some(Some(RangeEnd {
                value: expression(candidate.value.one()?)?,
                ty: flat.column_type(candidate.column)?,
                inclusive: matches!(candidate.operator, Operator::GtEq | Operator::LtEq),
            })),
        };
        let (positions, filters): (Vec<usize>, Vec<Expr>) =
            filters.into_iter().map(|(position, filter)| (position, filter.clone())).unzip();
        let own = Columns(&|expression| {
            let column = flat.column_of(expression)?;
            let described = &flat.columns[column];
            Some((described.column.filter(|_| described.table == choice.table)?, flat.column_type(column)?))
        });
        let known = own.restrictions(&filters);
        // The others among the candidates that the filter is made of.
        let given = candidates
            .iter()
            .filter(|candidate| {
                flat.columns[candidate.column].table == choice.table
                    && positions.contains(&candidate.condition)
                    && !candidate.is_literal()
            })
            .map(|candidate| {
                let column = flat.columns[candidate.column].column?;
                let what = match candidate.operator {
                    Operator::Eq => Asked::Equal(part(candidate)?),
                    Operator::Gt | Operator::GtEq => Asked::Above(end(Some(candidate))??),
                    _ => Asked::Below(end(Some(candidate))??),
                };
                Some(Given { column, what })
            })
            .collect::<Option<_>>()?;
        let filter = filters.into_iter().reduce(Expr::and);
        let indexed = || choice.index.columns.iter().map(|column| ColumnId(column.column));
        lookups.push(Lookup {
            table: table.table.clone(),
            // Without it the table is scanned.
            index: find_physical_index(&table.table, choice.index)?,
            read: match is_in_order {
                true => columns.iter().copied().chain(indexed()).collect(),
                false => columns.iter().copied().collect(),
            },
            columns,
            offset,
            key: choice.key.iter().copied().map(part).collect::<Option<_>>()?,
            is_point: choice.is_point,
            low: end(choice.low)?,
            high: end(choice.high)?,
            descending: range_column.is_some_and(|column| column.descending),
            reverse,
            filter: match filter {
                Some(filter) => Some(expression(&filter)?),
                None => None,
            },
            known,
            given,
        });
    }

    let width = flat.outputs.len();
    let count = |count: &Option<Expr>| match count {
        None => Some(None),
        Some(count) => row_count(expression(count)?).map(Some),
    };
    let (skip, fetch) = (count(&flat.skip)?, count(&flat.fetch)?);
    let body = match &flat.aggregate {
        Some((calls, results)) => aggregate_body(flat, calls, results, &expression)?,
        None => Body::Rows {
            outputs: flat
                .outputs
                .iter()
                .map(|output| match flat.column_of(output) {
                    Some(column) if flat.columns[column].column.is_none() => {
                        Some(Output::RowId(depth_of(flat.columns[column].table)))
                    }
                    _ => Some(Output::Expression(expression(output)?)),
                })
                .collect::<Option<_>>()?,
            sort: sort
                .iter()
                .map(|key| {
                    let expression = expression(&key.expr)?;
                    if matches!(expression.ty(), Some(SqlType::Char(_))) {
                        return None;
                    }
                    Some(SortKey { expression, descending: !key.asc, nulls_first: key.nulls_first })
                })
                .collect::<Option<_>>()?,
        },
    };
    Some(ShortProgram { lookups: Lookups { lookups, cells }, body, width, skip, fetch })
}

/// The expression, if it is a count of rows that depends on no row.
fn row_count(expression: RowExpression) -> Option<RowExpression> {
    let is_count =
        matches!(expression.ty(), None | Some(SqlType::SmallInt | SqlType::Integer | SqlType::BigInt));
    (expression.is_constant() && is_count).then_some(expression)
}

fn aggregate_body(
    flat: &Flat,
    calls: &[Expr],
    results: &DFSchema,
    expression: &dyn Fn(&Expr) -> Option<RowExpression>,
) -> Option<Body> {
    let mut aggregates = Vec::with_capacity(calls.len());
    let mut result_types = Vec::with_capacity(calls.len());
    for (call, field) in calls.iter().zip(results.fields()) {
        let result = types::sql_type(field)?;
        aggregates.push(aggregate(call, result, expression)?);
        result_types.push(result);
    }
    Some(Body::Aggregate { aggregates, types: result_types, outputs: over_results(flat, results)? })
}

/// The outputs, which are over the results of aggregates.
fn over_results(flat: &Flat, results: &DFSchema) -> Option<Vec<RowExpression>> {
    flat.outputs.iter().map(|output| RowExpression::compile(output, results, &Some)).collect()
}

fn aggregate(
    call: &Expr,
    result: SqlType,
    expression: &dyn Fn(&Expr) -> Option<RowExpression>,
) -> Option<Aggregate> {
    let call = match call {
        Expr::Alias(alias) => return aggregate(&alias.expr, result, expression),
        Expr::AggregateFunction(call) => call,
        _ => return None,
    };
    let parameters = &call.params;
    if parameters.filter.is_some() || !parameters.order_by.is_empty() || parameters.null_treatment.is_some() {
        return None;
    }
    let function = match (call.func.name(), parameters.distinct) {
        ("count", false) => AggregateFunction::Count,
        ("count", true) => AggregateFunction::CountDistinct,
        ("sum", false) => AggregateFunction::Sum,
        ("avg", false) => AggregateFunction::Average,
        ("min", _) => AggregateFunction::Smallest,
        ("max", _) => AggregateFunction::Largest,
        _ => return None,
    };
    let argument = match parameters.args.as_slice() {
        // `count(*)` is analysed into a count of a literal.
        [Expr::Literal(literal, _)] if function == AggregateFunction::Count && !literal.is_null() => None,
        [] if function == AggregateFunction::Count => None,
        [argument] => Some(expression(argument)?),
        _ => return None,
    };
    let argument_type = argument.as_ref().and_then(RowExpression::ty);
    Aggregate::is_supported(function, argument_type, result).then_some(Aggregate {
        function,
        argument,
        result,
    })
}

/// The columns that an expression refers to.
fn columns_of(flat: &Flat, expression: &Expr) -> Vec<usize> {
    expression
        .column_refs()
        .into_iter()
        .filter_map(|column| flat.column_of(&Expr::Column(column.clone())))
        .collect()
}

/// The tables that an expression refers to.
fn tables_of(flat: &Flat, expression: &Expr) -> HashSet<usize> {
    columns_of(flat, expression).into_iter().map(|column| flat.columns[column].table).collect()
}

/// Finds in a condition what an index can serve.
fn add_candidates<'f>(
    flat: &'f Flat,
    schema: &DFSchema,
    condition: usize,
    expression: &'f Expr,
    candidates: &mut Vec<Candidate<'f>>,
) {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            add_candidate(flat, schema, condition, left, *op, Wanted::One(right), candidates);
            if let Some(swapped) = op.swap() {
                add_candidate(flat, schema, condition, right, swapped, Wanted::One(left), candidates);
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let begin = candidates.len();
            add_candidate(flat, schema, condition, expr, Operator::GtEq, Wanted::One(low), candidates);
            add_candidate(flat, schema, condition, expr, Operator::LtEq, Wanted::One(high), candidates);
            // Two ends are one condition: neither decides it alone.
            for candidate in &mut candidates[begin..] {
                candidate.is_exact = false;
            }
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            add_candidate(flat, schema, condition, expr, Operator::Eq, Wanted::OneOf(list), candidates);
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let equal = Quantifier { comparison: Comparison::Equal, any: true };
            if let (Some(quantifier), [side, array]) = (quantifier_of(func), args.as_slice())
                && quantifier == equal
            {
                let array = Wanted::Element(array);
                add_candidate(flat, schema, condition, side, Operator::Eq, array, candidates);
            }
        }
        _ => {}
    }
}

fn add_candidate<'f>(
    flat: &'f Flat,
    schema: &DFSchema,
    condition: usize,
    side: &'f Expr,
    operator: Operator,
    value: Wanted<'f>,
    candidates: &mut Vec<Candidate<'f>>,
) {
    let is_range = match operator {
        Operator::Eq => false,
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => true,
        _ => return,
    };
    let type_of = |expression: &Expr| {
        let (_, field) = expression.to_field(schema).ok()?;
        types::sql_type(&field)
    };
    // The analysis casts a column to meet a wider value; the index holds it uncast.
    let (column, compared_as) = match side {
        // Its own type: a cast's field keeps what is said of the column's.
        Expr::Cast(Cast { expr, field }) => match types::sql_type(field) {
            Some(wider) => (flat.column_of(expr), Some(wider)),
            None => return,
        },
        _ => (flat.column_of(side), None),
    };
    let Some(column) = column else { return };
    let Some(ty) = flat.column_type(column) else { return };
    if compared_as.is_some_and(|wider| !is_widening(ty, wider)) {
        return;
    }
    let (types, needs): (Option<Vec<SqlType>>, _) = match value {
        Wanted::One(value) => (type_of(value).map(|ty| vec![ty]), tables_of(flat, value)),
        Wanted::OneOf(values) => (
            values.iter().map(type_of).collect(),
            values.iter().flat_map(|value| tables_of(flat, value)).collect(),
        ),
        Wanted::Element(array) => {
            let element = array.get_type(schema).ok().and_then(|ty| types::element_type(&ty));
            (element.map(|ty| vec![ty]), tables_of(flat, array))
        }
    };
    let Some(types) = types else { return };
    if !types.iter().all(|value_type| can_meet(ty, *value_type)) {
        return;
    }
    // Keys of char(n) leave the blanks at its end out, as equality does; order is another matter, and so is
    // telling several values apart.
    if matches!(ty, SqlType::Char(_)) && (is_range || value.one().is_none()) {
        return;
    }
    if value.one().is_none() && !needs.is_empty() {
        return;
    }
    if needs.contains(&flat.columns[column].table) {
        return;
    }
    let described = &flat.tables[flat.columns[column].table].definition.columns
        [flat.columns[column].column.expect("it has a type").index()];
    // A range end alone lets NULLs in that stand beyond the last value; then, and where the end has been rounded, a filter
    // tests the condition again.
    let is_exact =
        !is_range || (described.not_null && types == [ty] && !matches!(ty, SqlType::Numeric { .. }));
    candidates.push(Candidate { condition, column, operator, value, needs, is_exact });
}

/// Whether a cast between the types keeps every value apart and in order.
fn is_widening(from: SqlType, to: SqlType) -> bool {
    use SqlType::{BigInt, Integer, Numeric, SmallInt};
    match (from, to) {
        (from, to) if from == to => true,
        (SqlType::Char(_), _) | (_, SqlType::Char(_)) => false,
        (from, to) if from.is_string() => matches!(to, SqlType::Text | SqlType::Varchar(None)),
        (SmallInt, Integer | BigInt) | (Integer, BigInt) => true,
        (SmallInt, Numeric { precision, scale }) => precision - scale >= 5,
        (Integer, Numeric { precision, scale }) => precision - scale >= 10,
        (BigInt, Numeric { precision, scale }) => precision - scale >= 19,
        (Numeric { precision: p, scale: s }, Numeric { precision, scale }) => {
            scale >= s && precision - scale >= p - s
        }
        _ => false,
    }
}

/// Whether a look-up can bring a value of the one type to a column of the other.
fn can_meet(column: SqlType, value: SqlType) -> bool {
    let is_exact_number =
        |ty| matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Numeric { .. });
    match (column, value) {
        // A column of char(n) that is compared without a cast meets char(n), or a literal that counts as text.
        (SqlType::Char(_), value) => value.is_string(),
        (_, SqlType::Char(_)) => false,
        (column, value) if column.is_string() => value.is_string(),
        (column, value) if is_exact_number(column) => is_exact_number(value),
        // Floats have values that are equal and encoded differently (zeros): leave them alone.
        (SqlType::Real | SqlType::Double, _) => false,
        (column, value) => column == value,
    }
}

/// Orders the tables and chooses an index for each.
fn choose<'f>(flat: &'f Flat, candidates: &'f [Candidate<'f>]) -> Option<Vec<Choice<'f>>> {
    let mut placed: HashSet<usize> = HashSet::new();
    let mut choices = Vec::with_capacity(flat.tables.len());
    while placed.len() < flat.tables.len() {
        let best = (0..flat.tables.len())
            .filter(|table| !placed.contains(table))
            .filter_map(|table| best_index(flat, candidates, table, &placed))
            .max_by_key(Choice::rank)?;
        placed.insert(best.table);
        choices.push(best);
    }
    Some(choices)
}

fn best_index<'f>(
    flat: &'f Flat,
    candidates: &'f [Candidate<'f>],
    table: usize,
    placed: &HashSet<usize>,
) -> Option<Choice<'f>> {
    let usable = |column: ColumnId| {
        candidates.iter().filter(move |candidate| {
            let described = &flat.columns[candidate.column];
            described.table == table && described.column == Some(column) && candidate.needs.is_subset(placed)
        })
    };
    let indexes = &flat.tables[table].definition.indexes;
    let possible = indexes.iter().filter_map(|index| {
        let mut key = Vec::new();
        let mut repeated = false;
        for column in &index.columns {
            let equal =
                || usable(ColumnId(column.column)).filter(|candidate| candidate.operator == Operator::Eq);
            let one = equal().find(|candidate| candidate.value.one().is_some());
            // Several values for more than one column would multiply.
            let several = || equal().next().filter(|_| !std::mem::replace(&mut repeated, true));
            match one.or_else(several) {
                Some(candidate) => key.push(candidate),
                None => break,
            }
        }
        let (mut low, mut high) = (None, None);
        if let Some(next) = index.columns.get(key.len()) {
            for candidate in usable(ColumnId(next.column)) {
                match candidate.operator {
                    Operator::Gt | Operator::GtEq => low = low.or(Some(candidate)),
                    Operator::Lt | Operator::LtEq => high = high.or(Some(candidate)),
                    _ => {}
                }
            }
        }
        let is_point = index.is_always_unique() && key.len() == index.columns.len();
        let choice = Choice { table, index, key, low, high, is_point };
        (choice.rank() > (false, 0, true, 0) || follows_order(flat, &choice)).then_some(choice)
    });
    // Of those that are as good as each other, one in the wanted order.
    let follows = |choice: &Choice<'f>| flat.tables.len() == 1 && order_by_index(flat, choice).is_some();
    possible.max_by_key(|choice| (choice.rank(), follows(choice)))
}

/// Whether a look-up without any key is still worth it: the first rows in the index's order.
fn follows_order(flat: &Flat, choice: &Choice<'_>) -> bool {
    flat.tables.len() == 1
        && flat.fetch.is_some()
        && !flat.order.is_empty()
        && order_by_index(flat, choice).is_some()
}

/// Whether the look-up yields rows in the wanted order, and if so whether against the index's.
fn order_by_index(flat: &Flat, choice: &Choice<'_>) -> Option<bool> {
    if flat.order.is_empty() || choice.is_point && !choice.is_repeated() {
        return Some(false);
    }
    if choice.is_repeated() {
        return None;
    }
    let definition = &flat.tables[choice.table].definition;
    let bound: HashSet<Option<ColumnId>> =
        choice.key.iter().map(|candidate| flat.columns[candidate.column].column).collect();
    let mut following = choice.index.columns[choice.key.len()..].iter();
    let mut reverse = None;
    for key in &flat.order {
        let column = flat.columns[flat.column_of(&key.expr)?].column;
        // A column that equals one value orders nothing.
        if bound.contains(&column) {
            continue;
        }
        let indexed = following.next()?;
        if Some(ColumnId(indexed.column)) != column {
            return None;
        }
        let against = key.asc == indexed.descending;
        let nullable = !definition.columns[usize::from(indexed.column)].not_null;
        if nullable && (key.nulls_first != indexed.nulls_first) != against {
            return None;
        }
        if *reverse.get_or_insert(against) != against {
            return None;
        }
    }
    Some(reverse.unwrap_or(false))
}
