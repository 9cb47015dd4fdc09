//! Sub-queries where DataFusion knows none: it plans EXISTS and IN as joins, in predicates only.
//!
//! | written | becomes |
//! |---|---|
//! | `EXISTS (SELECT …)` in a select list | `(SELECT count(*) > 0 …)` |
//! | `x IN (SELECT …)` in a select list, and in conditions beside `OR` and below `NOT`, where it matters | CASE over counts: of rows equal to `x`, of all if `x` is NULL, of NULLs |
//! | `EXISTS (SELECT FROM …)` | `EXISTS (SELECT 1 FROM …)` |
//! | `NOT (x IN (SELECT …))` that all of a condition depends on | `x NOT IN (SELECT …)` |
//! | `(a, b) IN (SELECT c, d …)` | `EXISTS (SELECT … WHERE c = a AND d = b)`; where NULL is not false, CASE over counts as above |
//! | `x IN (VALUES (a), (b))` | `x IN (SELECT * FROM (VALUES (a), (b)))` |

use super::{binary, call, cast, digits, parsed, take};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query,
    SelectItem, SetExpr, TableFactor, UnaryOperator, VisitMut, VisitorMut,
};
use firn_base::Error;
use std::ops::ControlFlow;

/// Rewrites the sub-queries of an output.
pub(super) fn in_select_list(expression: &mut Expr) {
    let _ = expression.visit(&mut Outputs { queries: 0 });
}

/// Rewrites IN in a condition where NULL is not the same as false: DataFusion takes one for the other but for NOT IN that all of the
/// condition depends on. `holds` says whether the condition as a whole does.
pub(super) fn in_condition(condition: &mut Expr, holds: bool) {
    if !holds {
        super::any::rewrite_beside_null(condition);
    }
    super::any::rewrite(condition);
    match condition {
        Expr::Nested(inner) => in_condition(inner, holds),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            in_condition(left, holds);
            in_condition(right, holds);
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
            in_condition(left, false);
            in_condition(right, false);
        }
        Expr::InSubquery { negated: false, .. } => {}
        Expr::InSubquery { expr, .. } if holds && !super::is_row(expr) => {}
        Expr::UnaryOp { op: UnaryOperator::Not, expr } if holds && is_membership(expr) => {
            if let Some(turned) = turned(expr) {
                *condition = turned;
                in_condition(condition, true);
            }
        }
        other if has_in(other) => {
            let _: ControlFlow<Error> = other.visit(&mut Outputs { queries: 0 });
        }
        _ => {}
    }
}

fn is_in(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_in(inner),
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => matches!(right.as_ref(), Expr::Subquery(_)),
        Expr::InSubquery { .. } => true,
        _ => false,
    }
}

/// Whether an expression is IN, or another word for it.
fn is_membership(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_membership(inner),
        Expr::InSubquery { .. } => true,
        other => super::any::is_membership(other),
    }
}

/// NOT IN of what means IN with a sub-query, and the reverse. NOT around IN would hold where IN is NULL: DataFusion makes a join of
/// it that leaves out those of which it is true.
fn turned(expression: &mut Expr) -> Option<Expr> {
    super::any::rewrite(expression);
    match expression {
        Expr::Nested(inner) => turned(inner),
        Expr::InSubquery { negated, .. } => {
            *negated = !*negated;
            Some(take(expression))
        }
        _ => None,
    }
}

/// Whether there is IN with a sub-query in an expression, but for what is in sub-queries.
fn has_in(expression: &Expr) -> bool {
    struct Find {
        queries: usize,
    }
    impl ast::Visitor for Find {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match self.queries == 0 && is_in(expression) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    ast::Visit::visit(expression, &mut Find { queries: 0 }).is_break()
}

struct Outputs {
    /// How many queries deep the visit is: predicates of sub-queries are not outputs.
    queries: usize,
}

impl VisitorMut for Outputs {
    type Break = Error;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        super::any::rewrite_beside_null(expression);
        super::any::rewrite(expression);
        match expression {
            Expr::Exists { subquery, negated } => {
                if let Some(count) = count_of(subquery, *negated) {
                    *expression = count;
                }
            }
            Expr::InSubquery { expr, subquery, negated } => {
                let within = match take(expr) {
                    Expr::Tuple(row) => super::any::counts_of_row_in(row, subquery),
                    value => counts_of_in(value, subquery),
                };
                *expression = match negated {
                    true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(within) },
                    false => within,
                };
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `(SELECT count(*) > 0 …)` for the rows of a sub-query: in place of its outputs if these make no rows of others. `None` for sets.
fn count_of(subquery: &mut Box<Query>, negated: bool) -> Option<Expr> {
    let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
    let grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(list, _) if list.is_empty());
    let limited = subquery.limit_clause.is_some() || subquery.fetch.is_some();
    if grouped || select.having.is_some() || limited || select.projection.iter().any(calls) {
        let mut rows = parsed_rows("SELECT 1 FROM (SELECT 1) AS exists_rows");
        give_output(&mut subquery.body);
        let SetExpr::Select(select) = rows.body.as_mut() else { unreachable!("it is a SELECT") };
        if let TableFactor::Derived { subquery: source, .. } = &mut select.from[0].relation {
            std::mem::swap(source, subquery);
        }
        *subquery = rows;
    }
    let SetExpr::Select(select) = subquery.body.as_mut() else { unreachable!("it is a SELECT") };
    let all = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
    let Expr::Function(mut count) = call("count", Vec::new()) else { unreachable!("it is a call") };
    if let FunctionArguments::List(list) = &mut count.args {
        list.args.push(all);
    }
    let op = if negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
    let compared = binary(Expr::Function(count), op, digits("0"));
    select.projection = vec![SelectItem::ExprWithAlias { expr: compared, alias: Ident::new("exists") }];
    select.distinct = None;
    subquery.order_by = None;
    Some(Expr::Subquery(std::mem::replace(subquery, Box::new(empty_query()))))
}

/// Whether there is a call in an output: one of an aggregate yields a row of many, one of `unnest` many of one.
fn calls(item: &SelectItem) -> bool {
    let is_call = |expression: &Expr| match expression {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(item, is_call).is_break()
}

fn parsed_rows(text: &str) -> Box<Query> {
    match parsed(text) {
        ast::Statement::Query(query) => query,
        other => unreachable!("{other} is a query"),
    }
}

/// `x IN (SELECT …)` with all three truths: true if a row is equal, else NULL if a comparison was
/// with NULL, else false.
fn counts_of_in(value: Expr, subquery: &mut Query) -> Expr {
    const TEXT: &str = "SELECT CASE \
        WHEN (SELECT count(*) FROM (SELECT 1) AS in_rows(\"in value\") WHERE \"in value\" = 1) > 0 THEN true \
        WHEN 1 IS NULL AND (SELECT count(*) FROM (SELECT 1) AS in_rows(\"in value\")) > 0 THEN NULL \
        WHEN (SELECT count(*) FROM (SELECT 1) AS in_rows(\"in value\") WHERE \"in value\" IS NULL) > 0 THEN NULL \
        ELSE false END";
    struct Fill {
        value: Expr,
        rows: Query,
    }
    impl VisitorMut for Fill {
        type Break = ();

        fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Derived { subquery, .. } = factor {
                **subquery = self.rows.clone();
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            match expression {
                Expr::BinaryOp { op: BinaryOperator::Eq, right: place, .. } | Expr::IsNull(place)
                    if matches!(place.as_ref(), Expr::Value(_)) =>
                {
                    **place = Expr::Nested(Box::new(self.value.clone()));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let ast::Statement::Query(mut outer) = parsed(TEXT) else { unreachable!("it is a query") };
    let SetExpr::Select(select) = outer.body.as_mut() else { unreachable!("it is a SELECT") };
    let Some(SelectItem::UnnamedExpr(mut case)) = select.projection.pop() else {
        unreachable!("it has an output")
    };
    let rows = std::mem::replace(subquery, empty_query());
    let _ = case.visit(&mut Fill { value, rows });
    Expr::Nested(Box::new(case))
}

/// Gives rows without columns, which are only asked whether there are any, a constant: DataFusion looks
/// for the first column of what it joins with.
pub(super) fn give_output(rows: &mut SetExpr) {
    fn has_none(rows: &SetExpr) -> bool {
        match rows {
            SetExpr::Select(select) => select.projection.is_empty(),
            SetExpr::Query(query) => has_none(&query.body),
            SetExpr::SetOperation { left, right, .. } => has_none(left) && has_none(right),
            _ => false,
        }
    }
    fn give(rows: &mut SetExpr) {
        match rows {
            SetExpr::Select(select) => {
                let one = cast(digits("1"), DataType::Int4(None));
                select.projection.push(SelectItem::ExprWithAlias { expr: one, alias: Ident::new("one") });
            }
            SetExpr::Query(query) => give(&mut query.body),
            SetExpr::SetOperation { left, right, .. } => {
                give(left);
                give(right);
            }
            _ => unreachable!("it has columns"),
        }
    }
    if has_none(rows) {
        give(rows);
    }
}

/// A list of rows as a query that has named columns: DataFusion looks for the expression of the first of what it joins with.
pub(super) fn select_rows(rows: &mut Query) {
    let ast::Statement::Query(mut outer) = parsed("SELECT * FROM (SELECT 1) AS listed_rows") else {
        unreachable!("it is a query")
    };
    let SetExpr::Select(select) = outer.body.as_mut() else { unreachable!("it is a SELECT") };
    if let TableFactor::Derived { subquery, .. } = &mut select.from[0].relation {
        **subquery = std::mem::replace(rows, empty_query());
    }
    *rows = *outer;
}

/// A query to leave behind where one is taken out.
fn empty_query() -> Query {
    *parsed_rows("SELECT 1")
}

/// `(a, b) IN (SELECT c, d …)` as EXISTS over the subquery under names of our own.
pub(super) fn row_in(row: &mut Expr, subquery: &mut Query) -> ControlFlow<Error, Expr> {
    let Expr::Tuple(row) = row else { unreachable!("called for rows only") };
    let name = |number: usize| format!("row_column_{number}");
    let names: Vec<String> = (1..=row.len()).map(name).collect();
    let text =
        format!("SELECT EXISTS (SELECT 1 FROM (SELECT 1) AS row_source({}) WHERE true)", names.join(", "));
    let ast::Statement::Query(mut outer) = parsed(&text) else { unreachable!("it is a query") };
    let SetExpr::Select(select) = outer.body.as_mut() else { unreachable!("it is a SELECT") };
    let Some(SelectItem::UnnamedExpr(mut exists)) = select.projection.pop() else {
        unreachable!("it has an output")
    };
    if let Expr::Exists { subquery: inner, .. } = &mut exists
        && let SetExpr::Select(inner) = inner.body.as_mut()
    {
        if let TableFactor::Derived { subquery: source, .. } = &mut inner.from[0].relation {
            **source = std::mem::replace(subquery, empty_query());
        }
        let equal = row.drain(..).zip(&names).map(|(value, name)| {
            let column = Expr::CompoundIdentifier(vec![Ident::new("row_source"), Ident::new(name)]);
            binary(column, BinaryOperator::Eq, Expr::Nested(Box::new(value)))
        });
        inner.selection = equal.reduce(|all, next| binary(all, BinaryOperator::And, next));
    }
    ControlFlow::Continue(exists)
}
