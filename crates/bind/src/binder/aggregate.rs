//! Aggregates: calls, and to which query one belongs.
//!
//! An aggregate belongs to the innermost query of which its arguments use a column; one without columns to the query in
//! which it stands.

use super::attach::Pending;
use super::call::{CallShape, Overload, argument_names, signature};
use super::{Binder, Clause, Operand, Reference};
use firn_base::{Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::{Column, ColumnInfo, Function, Scalar};
use firn_syntax::tree::{Call, NullsOrder, SortItem, SortOrder};
use firn_vector::registry::{AggregateKind, Body};

/// An aggregate of a query.
#[derive(Clone, Debug)]
pub(crate) struct AggregateCall {
    /// The column that stands for it.
    pub output: Column,
    pub function: Function,
    pub arguments: Vec<Scalar>,
    pub distinct: bool,
    pub order: Vec<SortSpec>,
    pub filter: Option<Scalar>,
    pub at: u32,
}

/// An item of ORDER BY.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SortSpec {
    pub value: Scalar,
    pub ty: Type,
    pub descending: bool,
    pub nulls_first: bool,
}

/// What a call is of a query that it does not stand in: the reference's table and column.
const AGGREGATE: &str = "aggregate";

impl Binder<'_> {
    /// A call of an aggregate, with its arguments bound.
    pub(super) fn aggregate_call(
        &mut self,
        call: &Call,
        mut overload: Overload,
        mut order: Vec<SortSpec>,
        at: u32,
    ) -> Result<Operand> {
        let function = overload.function.clone();
        let Body::Aggregate(body) = &function.body else { panic!("it is an aggregate") };
        let name = &function.name;
        let wrong =
            |binder: &Self, message: String| Err(binder.error(SqlState::WRONG_OBJECT_TYPE, message, at));
        match body.kind {
            AggregateKind::Normal if !call.within_group.is_empty() => {
                let message =
                    format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
                return wrong(self, message);
            }
            AggregateKind::OrderedSet | AggregateKind::HypotheticalSet if call.within_group.is_empty() => {
                return wrong(self, format!("WITHIN GROUP is required for ordered-set aggregate {name}"));
            }
            AggregateKind::OrderedSet | AggregateKind::HypotheticalSet if call.is_distinct => {
                return wrong(self, "cannot use DISTINCT with WITHIN GROUP".to_owned());
            }
            _ => {}
        }
        if !argument_names(call).is_empty() {
            return wrong(self, "aggregates cannot use named arguments".to_owned());
        }
        if call.arguments.is_empty() && !call.is_star && call.within_group.is_empty() {
            return wrong(self, format!("{name}(*) must be used to call a parameterless aggregate function"));
        }
        if body.kind == AggregateKind::HypotheticalSet {
            self.hypothetical(call, &mut overload, &mut order, at)?;
        }
        let filter = match &call.filter {
            Some(filter) => Some(self.filter(filter)?),
            None => None,
        };
        let arguments: Vec<Scalar> =
            overload.arguments.iter().map(|argument| argument.scalar.clone()).collect();
        if call.is_distinct {
            for argument in &overload.arguments {
                self.check_equality(argument.ty, argument.at)?;
                self.check_order(argument.ty, argument.at)?;
            }
            if order.is_empty() && body.kernel.keeps_order() {
                // PostgreSQL finds duplicates by sorting, which the result shows.
                let ascending = overload.arguments.iter().map(|argument| SortSpec {
                    value: argument.scalar.clone(),
                    ty: argument.ty,
                    descending: false,
                    nulls_first: false,
                });
                order.extend(ascending);
            }
            order.iter_mut().for_each(|item| self.unify(&mut item.value, &arguments));
            let foreign = order.iter().position(|item| !arguments.contains(&item.value));
            if let Some(foreign) = foreign {
                let at = call.order_by.get(foreign).map_or(at, |item| item.value.span.start);
                return Err(self.error(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
                    at,
                ));
            }
        }
        let mut used: Vec<&Scalar> = arguments.iter().collect();
        used.extend(order.iter().map(|item| &item.value));
        used.extend(&filter);
        let columns = self.columns_behind(&used);
        self.check_contents(&columns)?;
        let (current, level) = (self.levels.len() - 1, self.aggregate_level(&columns));
        self.check_aggregate_place("aggregate functions", level, at)?;
        let nested = self.levels[level].aggregates.iter().find(|other| columns.contains(&other.output));
        if let Some(nested) = nested {
            let message = "aggregate function calls cannot be nested";
            return Err(self.error(SqlState::GROUPING_ERROR, message, nested.at));
        }

        let ty = overload.result;
        // Two equal calls are one.
        let same = self.levels[level].aggregates.iter().find(|other| {
            other.function == overload.handle
                && other.distinct == call.is_distinct
                && self.are_same(&other.arguments, &arguments)
                && self.is_same_order(&other.order, &order)
                && self.are_same(other.filter.as_slice(), filter.as_slice())
                && !other.function.is_volatile()
        });
        let is_stable = !used.iter().any(|scalar| scalar.is_volatile());
        let output = match same.filter(|_| is_stable) {
            Some(same) => same.output,
            None => {
                let info =
                    ColumnInfo::new(ty, overload.handle.may_be_null).named(overload.handle.name.as_ref());
                let output = self.plan.columns.add(info);
                self.levels[level].aggregates.push(AggregateCall {
                    output,
                    function: overload.handle,
                    arguments,
                    distinct: call.is_distinct,
                    order,
                    filter,
                    at,
                });
                output
            }
        };
        let owner = self.levels[level].id;
        self.owners.insert(output, owner);
        if level != current {
            let name = AGGREGATE.into();
            self.references.push(Reference { column: output, at, table: AGGREGATE.into(), name, owner });
        }
        Ok(Operand { scalar: Scalar::Column(output), ty, at })
    }

    /// The arguments of a hypothetical-set aggregate: each direct one gets a common type with its column, and behind them
    /// stands a number that says how the columns are ordered.
    fn hypothetical(
        &mut self,
        call: &Call,
        overload: &mut Overload,
        order: &mut [SortSpec],
        at: u32,
    ) -> Result<()> {
        let (direct, columns) = (call.arguments.len(), call.within_group.len());
        if direct != columns {
            let inputs: Vec<TypeId> = overload.arguments.iter().map(|argument| argument.ty.id).collect();
            let name = signature(&call.name, &inputs, CallShape::default());
            let message = format!("function {name} does not exist");
            return Err(self.error(SqlState::UNDEFINED_FUNCTION, message, at).with_hint(format!(
                "To use the hypothetical-set aggregate {}, the number of hypothetical direct arguments (here {direct}) must match the number of ordering columns (here {columns}).",
                overload.function.name,
            )));
        }
        let mut arguments = std::mem::take(&mut overload.arguments);
        let ordered = arguments.split_off(direct);
        let (mut left, mut right) = (Vec::with_capacity(direct), Vec::with_capacity(direct + 1));
        let mut orders = 0;
        for (column, ((direct, ordered), spec)) in arguments.into_iter().zip(ordered).zip(order).enumerate() {
            // The column comes first: its type decides between types that cast to each other.
            let (pair, ty) = self.as_common(vec![ordered, direct], "WITHIN GROUP")?;
            let [ordered, direct] = pair.try_into().unwrap_or_else(|_| unreachable!("both are there"));
            (spec.value, spec.ty) = (ordered.scalar.clone(), ty);
            orders |= (i32::from(spec.descending) | i32::from(spec.nulls_first) << 1) << (2 * column);
            left.push(direct);
            right.push(ordered);
        }
        let ty = Type::new(TypeId::INT4);
        right.push(Operand { scalar: Scalar::Constant(ty, Value::Integer(orders)), ty, at });
        left.extend(right);
        overload.arguments = left;
        Ok(())
    }

    /// FILTER (WHERE …)
    pub(super) fn filter(&mut self, filter: &firn_syntax::tree::Expr) -> Result<Scalar> {
        let operand = self.within(Clause::Filter, |binder| binder.expression(filter))?;
        Ok(self.boolean(operand, "FILTER")?.scalar)
    }

    /// The columns that scalars use, those of sub-queries and conditions that stand for columns among them.
    pub(super) fn columns_behind(&self, scalars: &[&Scalar]) -> Vec<Column> {
        let mut columns = Vec::new();
        for scalar in scalars {
            scalar.for_each_column(&mut |column| columns.push(column));
        }
        let mut next = 0;
        while next < columns.len() {
            let column = self.aliases_of_pending.get(&columns[next]).copied().unwrap_or(columns[next]);
            match self.pending.get(&column) {
                Some(Pending::Query(query)) => {
                    columns.extend(query.outer.iter().copied());
                    let own = query.conditions.iter().chain(&query.guard);
                    own.for_each(|scalar| scalar.for_each_column(&mut |column| columns.push(column)));
                }
                Some(Pending::Value(value)) => value.for_each_column(&mut |column| columns.push(column)),
                None => {}
            }
            next += 1;
        }
        columns.retain(|column| !self.pending.contains_key(column));
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The place of the query that a column belongs to, if that is still being bound.
    pub(super) fn level_of(&self, column: Column) -> Option<usize> {
        let owner = self.owners.get(&column)?;
        self.levels.iter().position(|level| level.id == *owner)
    }

    /// Window functions and sets are computed after aggregates.
    fn check_contents(&self, columns: &[Column]) -> Result<()> {
        for level in &self.levels {
            if let Some(window) = level.window_calls.iter().find(|window| columns.contains(&window.output)) {
                let message = "aggregate function calls cannot contain window function calls";
                return Err(self.error(SqlState::GROUPING_ERROR, message, window.at));
            }
            if let Some(set) =
                level.sets.iter().find(|set| set.outputs.iter().any(|output| columns.contains(output)))
            {
                let message = "aggregate function calls cannot contain set-returning function calls";
                let error = self.error(SqlState::FEATURE_NOT_SUPPORTED, message, set.at);
                return Err(error.with_hint(MOVE_SET));
            }
        }
        Ok(())
    }

    /// The query that an aggregate of these columns belongs to.
    pub(super) fn aggregate_level(&self, columns: &[Column]) -> usize {
        let level = columns.iter().filter_map(|column| self.level_of(*column)).max();
        level.unwrap_or(self.levels.len() - 1)
    }

    /// Whether aggregates, or GROUPING, of a query may stand in its clause at hand.
    pub(super) fn check_aggregate_place(&self, what: &str, level: usize, at: u32) -> Result<()> {
        let level = &self.levels[level];
        let place = match level.clause {
            Clause::None
            | Clause::Targets
            | Clause::Having
            | Clause::OrderBy
            | Clause::DistinctOn
            | Clause::WindowPartition
            | Clause::WindowOrder => return Ok(()),
            Clause::From => "FROM clause of their own query level",
            Clause::FrameRange => "window RANGE",
            Clause::FrameRows => "window ROWS",
            Clause::FrameGroups => "window GROUPS",
            other => other.name(),
        };
        Err(self.not_allowed(what, place, at))
    }

    #[cold]
    fn not_allowed(&self, what: &str, place: &str, at: u32) -> Error {
        self.error(SqlState::GROUPING_ERROR, format!("{what} are not allowed in {place}"), at)
    }

    /// ORDER BY within a call: expressions only.
    pub(super) fn call_order(&mut self, items: &[SortItem]) -> Result<Vec<SortSpec>> {
        let mut order = Vec::with_capacity(items.len());
        for item in items {
            let operand = self.within(Clause::OrderBy, |binder| binder.expression(&item.value))?;
            order.push(self.sort_spec(operand, item)?);
        }
        Ok(order)
    }

    /// An item of an order with its value bound.
    pub(super) fn sort_spec(&mut self, operand: Operand, item: &SortItem) -> Result<SortSpec> {
        let operand = self.known(operand)?;
        self.check_order(operand.ty, operand.at)?;
        let descending = match &item.order {
            SortOrder::Default | SortOrder::Ascending => false,
            SortOrder::Descending => true,
            SortOrder::Using(operator) => {
                let id = operand.ty.id;
                let chosen = self.choose_operator(operator, Some(id), id, operand.at)?;
                match chosen.operator.strategy {
                    Some(firn_vector::registry::Strategy::Less) => false,
                    Some(firn_vector::registry::Strategy::Greater) => true,
                    _ => {
                        let message =
                            format!("operator {} is not a valid ordering operator", operator.symbol());
                        let error = self.error(SqlState::WRONG_OBJECT_TYPE, message, operand.at);
                        return Err(error.with_hint(
                            "Ordering operators must be \"<\" or \">\" members of btree operator families.",
                        ));
                    }
                }
            }
        };
        let nulls_first = match item.nulls {
            NullsOrder::Default => descending,
            NullsOrder::First => true,
            NullsOrder::Last => false,
        };
        Ok(SortSpec { value: operand.scalar, ty: operand.ty, descending, nulls_first })
    }

    /// An operand of a known type: a literal becomes text.
    pub(super) fn known(&mut self, operand: Operand) -> Result<Operand> {
        if operand.ty.id != firn_base::TypeId::UNKNOWN {
            return Ok(operand);
        }
        self.coerce(operand, firn_base::TypeId::TEXT, false)
    }
}

/// The hint of functions that return sets in the wrong place.
pub(super) const MOVE_SET: &str =
    "You might be able to move the set-returning function into a LATERAL FROM item.";

impl Clause {
    /// How messages name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Clause::None | Clause::Targets => "SELECT",
            Clause::From => "FROM",
            Clause::FromFunction => "functions in FROM",
            Clause::On => "JOIN conditions",
            Clause::Where => "WHERE",
            Clause::Having => "HAVING",
            Clause::Filter => "FILTER",
            Clause::WindowPartition | Clause::WindowOrder => "window definitions",
            Clause::FrameRange | Clause::FrameRows | Clause::FrameGroups => "window definitions",
            Clause::GroupBy => "GROUP BY",
            Clause::OrderBy => "ORDER BY",
            Clause::DistinctOn => "DISTINCT ON",
            Clause::Limit => "LIMIT",
            Clause::Offset => "OFFSET",
            Clause::Returning => "RETURNING",
            Clause::Values => "VALUES",
            Clause::InsertTargets => "INSERT",
            Clause::UpdateTargets => "UPDATE",
            Clause::MergeWhen => "MERGE WHEN conditions",
            Clause::Default => "DEFAULT expressions",
            Clause::Check => "check constraints",
            Clause::Generated => "column generation expressions",
            Clause::IndexExpression => "index expressions",
            Clause::IndexPredicate => "index predicates",
            Clause::Transform => "transform expressions",
            Clause::CopyWhere => "COPY FROM WHERE conditions",
            Clause::Execute => "EXECUTE parameters",
        }
    }
}
