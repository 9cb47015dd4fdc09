//! Rewriting the syntax tree: what PostgreSQL means, said in words that DataFusion's planner knows.
//!
//! | written | becomes |
//! |---|---|
//! | `1` | `CAST(1 AS int4)`: DataFusion takes every integer for a bigint |
//! | `SELECT max(a), 1` | `SELECT max(a) AS max, CAST(1 AS int4) AS "?column?"` |
//! | `1e3`, integers beyond a bigint | `CAST('1000' AS numeric(4, 0))` |
//! | `interval '1' day` | `CAST('1 day' AS interval)`: read by our own parser |
//! | `SELECT EXISTS (SELECT …)`, `SELECT a IN (SELECT …)`, `(a, b) IN (SELECT c, d …)` | see [`subquery`] |
//! | `EXISTS (SELECT FROM a)` | `EXISTS (SELECT CAST(1 AS int4) FROM a)` |
//! | `x = ANY (ARRAY[a, b])` and the like | see [`any`] |
//! | other `ARRAY[a, b]` of columns | `make_array(a, b)` |
//! | `VALUES ('a'::char(5)), ('b')` | see [`values`] |
//! | `x::numeric(38, 16)` | `round(x::numeric, 16)`: otherwise it would be plain `numeric` |
//! | `x LIKE p ESCAPE e` | `x LIKE like_escape(p, e)` |
//! | `~x` | `-1 - x` |
//! | `x ^ y`, `\|/ x`, `\|\|/ x`, `@ x` | `power(x, y)`, `sqrt(x)`, `cbrt(x)`, `abs(x)` |
//! | `x AT TIME ZONE z` | `timezone(z, x)` |
//! | `x SIMILAR TO p` | `x ~ similar_to_escape(p)` |
//! | `(a, b) OVERLAPS (c, d)` | `overlaps(a, b, c, d)` |
//! | `U&'\\0041'` | `'A'` |
//! | `CAST(x AS timestamp(3))`, `current_timestamp(3)` | `"round moment"(CAST(x AS timestamp), 3)`, … |
//! | `(a, b) = (c, d)`, `(a, b) IN ((c, d))` | `a = c AND b = d` |
//! | `pg_catalog.f(x)` | `f(x)` |
//! | `mod(a, b)` | `a % b` |
//! | `regexp_substr(s, p)` | `array_element(regexp_match(s, "whole group"(p)), 1)` |
//! | `SELECT id FROM a FULL JOIN b USING (id)` | `SELECT coalesce(a.id, b.id) AS id …`: see [`using`] |
//! | `SELECT DISTINCT a + b … ORDER BY a + b` | `… ORDER BY 1`: see [`distinct`] |
//! | `GROUP BY x, x::text` | `GROUP BY x, "as cast"(x::text)`: see [`grouping`] |
//! | `SELECT DISTINCT a … EXCEPT ALL …` | `(SELECT DISTINCT a … OFFSET 0) EXCEPT ALL …`: see [`counted`] |
//! | `FETCH FIRST n ROWS ONLY` | `LIMIT n` |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `SELECT generate_series(1, 3)` | `SELECT unnest(generate_series(1, 3))` |
//! | `FROM generate_series(1, 3) AS i` | `FROM generate_series(1, 3) AS i(i)` |
//! | `FROM unnest(a) WITH ORDINALITY AS x` | `FROM unnest(a, "list positions"(a)) AS x(x, ordinality)` |
//! | `FROM unnest('{1,2}'::int[]) WITH ORDINALITY` | `FROM (SELECT unnest("list 1"), … FROM (SELECT '{1,2}'::int[] AS "list 1") …) …` |

mod any;
mod counted;
mod distinct;
mod grouping;
mod outer;
mod subquery;
mod using;
mod values;

pub use self::using::{Relations, merge};

use crate::data_type::{take_decimals, take_digits};
use crate::ddl::check_collation;
use crate::output_name::output_name;
use crate::pg_catalog;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, LimitClause, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut,
    VisitorMut,
};
use firn_base::{Error, Result, SqlState, numeric};
use firn_exec::types::NAME_END;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Rewrites a query over relations that others know of.
pub fn query(query: &mut Query, relations: Relations<'_>) -> Result<()> {
    merge(query, relations);
    done(query.visit(&mut Rewriter))?;
    let _: ControlFlow<()> = query.visit(&mut Arrays);
    Ok(())
}

/// A rewritten query for a second try, if the planner may have taken columns of outer tables for fields of others: see [`outer`].
pub fn second_try(query: &Query) -> Option<Query> {
    outer::has_subquery(query).then(|| {
        let mut query = query.clone();
        outer::qualify(&mut query);
        query
    })
}

/// Rewrites an expression, as [`query`] does.
pub fn expression(expression: &mut Expr, relations: Relations<'_>) -> Result<()> {
    merge(expression, relations);
    done(expression.visit(&mut Rewriter))?;
    let _: ControlFlow<()> = expression.visit(&mut Arrays);
    Ok(())
}

fn done(flow: ControlFlow<Error>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        refuse_locks(query)?;
        distinct::order_by_position(query)?;
        if let Some(order_by) = &mut query.order_by
            && let ast::OrderByKind::Expressions(expressions) = &mut order_by.kind
        {
            expressions.iter_mut().for_each(|item| subquery::in_select_list(&mut item.expr));
        }
        grouping::tell_casts_apart(query);
        fetch_to_limit(query)?;
        table_to_select(query);
        values::unite(&mut query.body);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        // Positions and counts are no values: they lose the cast that made them int4.
        if let Some(order_by) = &mut query.order_by
            && let ast::OrderByKind::Expressions(expressions) = &mut order_by.kind
        {
            expressions.iter_mut().for_each(|item| plain_number(&mut item.expr));
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(count);
            offset.iter_mut().for_each(|offset| count(&mut offset.value));
        }
        counted::mark_distinct(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if select.projection.is_empty() && matches!(select.distinct, Some(ast::Distinct::Distinct)) {
            let message = "SELECT DISTINCT must have at least one column";
            return ControlFlow::Break(Error::new(SqlState::SYNTAX_ERROR, message));
        }
        name_outputs(&mut select.projection);
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } =
                item
            {
                subquery::in_select_list(expression);
            }
        }
        for condition in select.selection.iter_mut().chain(&mut select.having) {
            subquery::in_condition(condition, true);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if let ast::GroupByExpr::Expressions(expressions, _) = &mut select.group_by {
            expressions.iter_mut().for_each(plain_number);
        }
        if let Some(ast::Distinct::On(expressions)) = &mut select.distinct {
            expressions.iter_mut().for_each(plain_number);
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } =
                item
            {
                unnest_series(expression);
            }
        }
        for ast::NamedWindowDefinition(_, window) in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(window) = window {
                plain_frame(window);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } =
            factor
        {
            return ControlFlow::Break(
                Error::unsupported("TABLESAMPLE")
                    .with_hint("WHERE random() < 0.01 is a sample of about a hundredth."),
            );
        }
        if let TableFactor::Table { name, alias, args: Some(_), .. }
        | TableFactor::Function { name, alias, .. } = factor
        {
            without_pg_catalog(name);
            name_function_column(name, alias);
        }
        if let Some(unnest) = unnest(factor) {
            *factor = unnest;
        }
        if let TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } = factor {
            let unnest = Ident::new("unnest");
            if std::mem::take(with_ordinality) {
                let alias_of_all = alias.get_or_insert_with(|| named(unnest.clone()));
                pg_catalog::name_numbered(alias_of_all, array_exprs.len());
                let mut names = HashSet::new();
                let differ = alias_of_all.columns.iter().all(|column| names.insert(fold(&column.name)));
                if differ && !array_exprs.iter().any(names_columns) {
                    let (alias, subquery) = (alias.take(), numbered(std::mem::take(array_exprs)));
                    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
                    return ControlFlow::Continue(());
                }
                array_exprs.push(quoted_call("list positions", array_exprs.clone()));
            }
            name_function_column(&ObjectName::from(vec![unnest]), alias);
        }
        if let TableFactor::Table { with_ordinality: true, .. }
        | TableFactor::Function { with_ordinality: true, .. } = factor
        {
            return ControlFlow::Break(
                Error::unsupported("WITH ORDINALITY").with_hint("row_number() OVER () numbers rows."),
            );
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        any::rewrite(expression);
        match expression {
            Expr::Value(value) => {
                if let Value::UnicodeStringLiteral(text) = &mut value.value {
                    value.value = Value::SingleQuotedString(std::mem::take(text));
                }
                if let Value::Number(digits, _) = &value.value {
                    match number(digits, false)? {
                        Number::Integer => wrap(expression, DataType::Int4(None)),
                        Number::Other(literal) => *expression = *literal,
                        Number::Plain => {}
                    }
                }
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                plain_number(expr);
                if let Expr::Value(ast::ValueWithSpan { value: Value::Number(digits, _), .. }) = expr.as_ref()
                    && matches!(number(digits, true)?, Number::Integer)
                {
                    wrap(expression, DataType::Int4(None));
                }
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => {
                let minus_one = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits("1")) };
                let minus_one = cast(minus_one, DataType::Int4(None));
                *expression = Expr::Nested(Box::new(binary(minus_one, BinaryOperator::Minus, take(expr))));
            }
            Expr::UnaryOp { op, expr } => {
                let function = match op {
                    UnaryOperator::PGSquareRoot => "sqrt",
                    UnaryOperator::PGCubeRoot => "cbrt",
                    UnaryOperator::PGAbs => "abs",
                    _ => return ControlFlow::Continue(()),
                };
                *expression = call(function, vec![take(expr)]);
            }
            Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } => {
                *expression = call("power", vec![take(left), take(right)]);
            }
            Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => {
                let (Expr::Tuple(left), Expr::Tuple(right)) = (left.as_mut(), right.as_mut()) else {
                    return ControlFlow::Continue(());
                };
                if left.len() != 2 || right.len() != 2 {
                    let side = if left.len() == 2 { "right" } else { "left" };
                    let message = format!("wrong number of parameters on {side} side of OVERLAPS expression");
                    return ControlFlow::Break(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                *expression = call("overlaps", left.drain(..).chain(right.drain(..)).collect());
            }
            Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
                *expression = call("starts_with", vec![take(left), take(right)]);
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                if let Some(escape) = escape_char.take() {
                    let escaped = call("like_escape", vec![take(pattern), Expr::Value(escape)]);
                    **pattern = escaped;
                }
            }
            Expr::Exists { subquery, .. } => subquery::give_output(&mut subquery.body),
            Expr::InSubquery { expr, subquery, .. }
                if !is_row(expr) && matches!(subquery.body.as_ref(), SetExpr::Values(_)) =>
            {
                subquery::select_rows(subquery);
            }
            Expr::InSubquery { expr, subquery, negated } if is_row(expr) => {
                if *negated {
                    return ControlFlow::Break(Error::unsupported("NOT IN between rows and a subquery"));
                }
                *expression = subquery::row_in(expr, subquery)?;
            }
            Expr::Cast { data_type, .. } | Expr::TypedString(ast::TypedString { data_type, .. }) => {
                if let Some(decimals) = take_decimals(data_type) {
                    round_moment(expression, decimals);
                } else if let Some(decimals) = take_digits(data_type) {
                    let decimals = cast(digits(&decimals.to_string()), DataType::Int4(None));
                    *expression = call("round", vec![take(expression), decimals]);
                }
            }
            Expr::Interval(_) => interval(expression)?,
            Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = vec![take(time_zone), take(timestamp)];
                *expression = call("timezone", arguments);
            }
            Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = vec![take(pattern)];
                if let Some(escape) = escape_char.take() {
                    arguments.push(Expr::Value(escape));
                }
                let op =
                    if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
                let right = Box::new(call("similar_to_escape", arguments));
                *expression = Expr::BinaryOp { left: Box::new(take(expr)), op, right };
            }
            Expr::Collate { expr, collation } => {
                if let Err(error) = check_collation(collation) {
                    return ControlFlow::Break(error);
                }
                *expression = take(expr);
            }
            Expr::BinaryOp { left, op, right } => {
                if let Some(expanded) = compare_rows(left, op, right)? {
                    *expression = expanded;
                }
            }
            Expr::InList { expr, list, negated } if is_row(expr) => {
                let mut any: Option<Expr> = None;
                for item in list.drain(..) {
                    let mut item = item;
                    let equal = compare_rows(expr, &BinaryOperator::Eq, &mut item)?
                        .unwrap_or(Expr::Value(Value::Boolean(false).with_empty_span()));
                    any = Some(match any {
                        Some(any) => binary(any, BinaryOperator::Or, equal),
                        None => equal,
                    });
                }
                let any = Expr::Nested(Box::new(any.expect("the parser refuses empty lists")));
                *expression = if *negated {
                    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) }
                } else {
                    any
                };
            }
            Expr::Function(function) => {
                without_pg_catalog(&mut function.name);
                if let Some(ast::WindowType::WindowSpec(window)) = &mut function.over {
                    plain_frame(window);
                }
                if let Some(decimals) = precision_of_now(function) {
                    round_moment(expression, decimals);
                    return ControlFlow::Continue(());
                }
                if let Some(operator) = operator_of(function) {
                    *expression = operator;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Arrays that are made of columns, when nobody asks any more for what has been written: the planner knows no columns but a FROM's own
/// in a constructor.
struct Arrays;

impl VisitorMut for Arrays {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if matches!(expression, Expr::Array(_))
            && names_columns(expression)
            && let Expr::Array(array) = expression
        {
            *expression = quoted_call("make_array", std::mem::take(&mut array.elem));
        }
        ControlFlow::Continue(())
    }
}

/// How many decimals `CURRENT_TIMESTAMP(3)` and its relatives ask for, whose argument is a number that has been cast.
fn precision_of_now(function: &mut Function) -> Option<u64> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let name = name.value.to_ascii_lowercase();
    if !["current_timestamp", "localtimestamp", "current_time", "localtime"].contains(&name.as_str()) {
        return None;
    }
    let FunctionArguments::List(arguments) = &mut function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { expr, .. }))] = arguments.args.as_slice()
    else {
        return None;
    };
    let Expr::Value(ast::ValueWithSpan { value: Value::Number(decimals, _), .. }) = expr.as_ref() else {
        return None;
    };
    let decimals = decimals.parse().ok()?;
    arguments.args.clear();
    Some(decimals).filter(|decimals| *decimals < 6)
}

fn round_moment(expression: &mut Expr, decimals: u64) {
    let moment = take(expression);
    *expression = quoted_call("round moment", vec![moment, digits(&decimals.to_string())]);
}

fn take(expression: &mut Expr) -> Expr {
    std::mem::replace(expression, Expr::Value(Value::Null.with_empty_span()))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    call_ident(Ident::new(name), arguments)
}

/// A call of a function whose name no user writes.
fn quoted_call(name: &str, arguments: Vec<Expr>) -> Expr {
    call_ident(Ident::with_quote('"', name), arguments)
}

fn call_ident(name: Ident, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)));
    Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn cast(expression: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expression), data_type, format: None, array: false }
}

fn wrap(expression: &mut Expr, ty: DataType) {
    let number = take(expression);
    *expression = cast(number, ty);
}

/// What PostgreSQL makes of a number's digits.
enum Number {
    /// An integer.
    Integer,
    /// A number that DataFusion would not read as what it is.
    Other(Box<Expr>),
    /// What DataFusion makes of it, too: a bigint or a numeric.
    Plain,
}

fn number(digits: &str, negative: bool) -> ControlFlow<Error, Number> {
    let digits: String = digits.chars().filter(|character| *character != '_').collect();
    let limit = |largest: i64| largest as u128 + u128::from(negative);
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    ControlFlow::Continue(match digits.parse::<u128>() {
        Ok(magnitude) if magnitude <= limit(i64::from(i32::MAX)) => Number::Integer,
        Ok(magnitude) if magnitude <= limit(i64::MAX) => Number::Plain,
        _ if whole || digits.contains(['e', 'E']) => {
            let parsed = match whole {
                true => numeric::parse(&digits).map(Some),
                false => numeric::parse_exact(&digits),
            };
            let (unscaled, scale) = match parsed {
                Ok(Some(parsed)) => parsed,
                // Better approximate than cut off.
                Ok(None) => {
                    let text = Expr::Value(Value::SingleQuotedString(digits).with_empty_span());
                    let double = DataType::Double(ast::ExactNumberInfo::None);
                    return ControlFlow::Continue(Number::Other(Box::new(cast(text, double))));
                }
                Err(error) => return ControlFlow::Break(error),
            };
            let mut text = String::new();
            numeric::write(unscaled, scale, &mut text);
            let length =
                unscaled.unsigned_abs().checked_ilog10().map_or(1, |digits| digits + 1).max(u32::from(scale));
            let ty = DataType::Numeric(ast::ExactNumberInfo::PrecisionAndScale(
                u64::from(length),
                i64::from(scale),
            ));
            let text = Expr::Value(Value::SingleQuotedString(text).with_empty_span());
            Number::Other(Box::new(cast(text, ty)))
        }
        _ => Number::Plain,
    })
}

/// A plain number.
fn digits(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.into(), false).with_empty_span())
}

/// Takes the cast off a number that [`wrap`] put there.
fn plain_number(expression: &mut Expr) {
    if let Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Int4(None), .. } = expression {
        let number = match expr.as_ref() {
            Expr::Value(value) => matches!(value.value, Value::Number(..)),
            Expr::UnaryOp { op: UnaryOperator::Minus, .. } => true,
            _ => false,
        };
        if number {
            *expression = take(expr);
        }
    }
}

/// What LIMIT and OFFSET count with is a bigint.
fn count(expression: &mut Expr) {
    plain_number(expression);
    if !matches!(expression, Expr::Value(value) if !matches!(value.value, Value::Placeholder(_))) {
        wrap(expression, DataType::Int8(None));
    }
}

/// A lock that is not taken would lose updates. Those of whole statements have been taken off by now.
fn refuse_locks(query: &Query) -> ControlFlow<Error> {
    match query.locks.first() {
        None => ControlFlow::Continue(()),
        Some(lock) => {
            let clause = firn_exec::locking::clause(crate::parse::locks::asked(lock).lock);
            ControlFlow::Break(
                Error::unsupported(format!("{clause} here")).with_hint(
                    "Lock rows by a SELECT of its own, or by a sub-query of UPDATE or DELETE: WHERE id IN (SELECT …).",
                ),
            )
        }
    }
}

fn fetch_to_limit(query: &mut Query) -> ControlFlow<Error> {
    let Some(fetch) = query.fetch.take() else { return ControlFlow::Continue(()) };
    if fetch.with_ties || fetch.percent {
        return ControlFlow::Break(Error::unsupported("FETCH … WITH TIES or PERCENT"));
    }
    let rows = fetch.quantity.unwrap_or_else(|| digits("1"));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, .. }) => *limit = Some(rows),
        clause => {
            *clause = Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() })
        }
    }
    ControlFlow::Continue(())
}

fn table_to_select(query: &mut Query) {
    fn replace(body: &mut SetExpr) {
        match body {
            SetExpr::Table(table) => {
                let mut parts = Vec::new();
                parts.extend(table.schema_name.take().map(Ident::new));
                parts.extend(table.table_name.take().map(Ident::new));
                *body = SetExpr::Select(Box::new(select_all(ObjectName::from(parts))));
            }
            SetExpr::SetOperation { left, right, .. } => {
                replace(left);
                replace(right);
            }
            _ => {}
        }
    }
    replace(&mut query.body);
}

fn parsed(text: &str) -> ast::Statement {
    let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
    let mut statements =
        datafusion::sql::sqlparser::parser::Parser::parse_sql(&dialect, text).expect("it is valid");
    statements.pop().expect("it is one statement")
}

/// `SELECT * FROM name`
fn select_all(name: ObjectName) -> Select {
    match parsed(&format!("SELECT * FROM {name}")) {
        ast::Statement::Query(query) => match *query.body {
            SetExpr::Select(select) => *select,
            other => unreachable!("{other} is no SELECT"),
        },
        other => unreachable!("{other} is no query"),
    }
}

/// Gives every unnamed output the name that PostgreSQL gives it, and makes names differ that would
/// collide: what stands behind [`NAME_END`] is not shown to users.
fn name_outputs(projection: &mut [SelectItem]) {
    let mut taken = HashSet::new();
    for item in projection.iter_mut() {
        let (name, expression) = match item {
            SelectItem::UnnamedExpr(expression) => {
                let name = output_name(expression);
                // A plain column keeps its qualifier, by which ORDER BY may still call it.
                let plain = matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                if plain && taken.insert(name.clone()) {
                    continue;
                }
                (name, take(expression))
            }
            SelectItem::ExprWithAlias { expr, alias } => (fold(alias), take(expr)),
            _ => continue,
        };
        let mut unique = name.clone();
        let mut number = 1;
        while !taken.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}{NAME_END}{number}");
        }
        *item = SelectItem::ExprWithAlias { expr: expression, alias: Ident::with_quote('"', unique) };
    }
}

/// `interval '1' day` and `interval '1 day'`, read by our own parser.
fn interval(expression: &mut Expr) -> ControlFlow<Error> {
    let Expr::Interval(interval) = expression else { unreachable!("called for intervals only") };
    plain_number(&mut interval.value);
    let text = match interval.value.as_ref() {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
            Value::Number(digits, _) => digits.clone(),
            _ => return ControlFlow::Break(bad_interval()),
        },
        _ => return ControlFlow::Break(bad_interval()),
    };
    if interval.last_field.is_some() || interval.leading_precision.is_some() {
        return ControlFlow::Break(Error::unsupported("an interval with a range of fields or a precision"));
    }
    let text = match &interval.leading_field {
        // The field gives plain numbers their unit; a text that names its units keeps them.
        Some(field) if text.trim().parse::<f64>().is_ok() => format!("{} {field}", text.trim()),
        _ => text,
    };
    let literal = Expr::Value(Value::SingleQuotedString(text).with_empty_span());
    *expression = cast(literal, DataType::Interval { fields: None, precision: None });
    ControlFlow::Continue(())
}

fn bad_interval() -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "an interval literal must be a string")
        .with_hint("Multiply an interval instead, as in n * interval '1 day'.")
}

fn is_row(expression: &Expr) -> bool {
    matches!(expression, Expr::Tuple(_))
}

/// A comparison of two rows as comparisons of their columns; `None` if these are no rows.
fn compare_rows(left: &mut Expr, op: &BinaryOperator, right: &mut Expr) -> ControlFlow<Error, Option<Expr>> {
    let (Expr::Tuple(left), Expr::Tuple(right)) = (left, right) else { return ControlFlow::Continue(None) };
    if left.len() != right.len() || left.is_empty() {
        return ControlFlow::Break(Error::new(
            SqlState::SYNTAX_ERROR,
            "unequal number of entries in row expressions",
        ));
    }
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    let all = |op: BinaryOperator, joined: BinaryOperator| {
        let compared = pairs().map(|(left, right)| binary(left, op.clone(), right));
        compared.reduce(|all, next| binary(all, joined.clone(), next)).map(|all| Expr::Nested(Box::new(all)))
    };
    match op {
        BinaryOperator::Eq => ControlFlow::Continue(all(BinaryOperator::Eq, BinaryOperator::And)),
        BinaryOperator::NotEq => ControlFlow::Continue(all(BinaryOperator::NotEq, BinaryOperator::Or)),
        BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
            let strict = match op {
                BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
                _ => BinaryOperator::Gt,
            };
            // From the last column to the first: a < c OR (a = c AND (b < d …)).
            let mut rest: Option<Expr> = None;
            for (left, right) in pairs().rev() {
                rest = Some(match rest {
                    None => binary(left, op.clone(), right),
                    Some(rest) => {
                        let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
                        let later = binary(equal, BinaryOperator::And, Expr::Nested(Box::new(rest)));
                        binary(binary(left, strict.clone(), right), BinaryOperator::Or, later)
                    }
                });
            }
            ControlFlow::Continue(rest.map(|rest| Expr::Nested(Box::new(rest))))
        }
        _ => ControlFlow::Continue(None),
    }
}

/// `unnest` in FROM is a word to the parser, unless it stands in quotes, behind its schema or behind LATERAL.
fn unnest(factor: &mut TableFactor) -> Option<TableFactor> {
    let (name, arguments, alias, with_ordinality) = match factor {
        TableFactor::Table { name, args: Some(arguments), alias, with_ordinality, .. } => {
            (name, &arguments.args, alias, *with_ordinality)
        }
        TableFactor::Function { name, args, alias, with_ordinality, .. } => {
            (name, &*args, alias, *with_ordinality)
        }
        _ => return None,
    };
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    if fold(name) != "unnest" {
        return None;
    }
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Some(array.clone()),
        _ => None,
    };
    let array_exprs = arguments.iter().map(argument).collect::<Option<_>>()?;
    Some(TableFactor::UNNEST {
        alias: alias.take(),
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality,
    })
}

/// A query of what some lists hold, side by side and numbered, that makes each list once, whatever else that does.
fn numbered(lists: Vec<Expr>) -> Box<Query> {
    let names: Vec<String> = (1..=lists.len()).map(|number| format!("list {number}")).collect();
    let outputs: String = names.iter().map(|name| format!("unnest(\"{name}\") AS \"{name}\", ")).collect();
    let all: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let text = format!(
        "SELECT {outputs} unnest(\"list positions\"({})) AS ordinality FROM (SELECT 1) AS lists",
        all.join(", ")
    );
    let ast::Statement::Query(mut query) = parsed(&text) else { unreachable!("it is a query") };
    if let SetExpr::Select(outer) = query.body.as_mut()
        && let TableFactor::Derived { subquery, .. } = &mut outer.from[0].relation
        && let SetExpr::Select(inner) = subquery.body.as_mut()
    {
        let item = |(expr, name): (Expr, &String)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', name),
        };
        inner.projection = lists.into_iter().zip(&names).map(item).collect();
    }
    query
}

/// Whether there is a name of a column in an expression.
fn names_columns(expression: &Expr) -> bool {
    let found = ast::visit_expressions(expression, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn without_pg_catalog(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && schema.value.eq_ignore_ascii_case("pg_catalog")
    {
        name.0.remove(0);
    }
}

/// Functions that are operators by another name, and the one that yields the first group of a pattern that is all of a group.
fn operator_of(function: &mut Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let name = name.value.to_lowercase();
    if !["mod", "regexp_substr"].contains(&name.as_str()) {
        return None;
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
    ] = list.args.as_mut_slice()
    else {
        return None;
    };
    let (left, right) = (Expr::Nested(Box::new(take(left))), Expr::Nested(Box::new(take(right))));
    if name == "mod" {
        return Some(Expr::Nested(Box::new(binary(left, BinaryOperator::Modulo, right))));
    }
    let group = quoted_call("whole group", vec![right]);
    Some(call("array_element", vec![call("regexp_match", vec![left, group]), digits("1")]))
}

/// Frame bounds are constants as they are written: plain numbers that count rows, and intervals without the cast that reads them.
fn plain_frame(window: &mut ast::WindowSpec) {
    let Some(frame) = &mut window.window_frame else { return };
    for bound in std::iter::once(&mut frame.start_bound).chain(frame.end_bound.iter_mut()) {
        if let ast::WindowFrameBound::Preceding(Some(bound)) | ast::WindowFrameBound::Following(Some(bound)) =
            bound
        {
            plain_number(bound);
            plain_interval(bound);
        }
    }
}

/// `interval '1 day'` of the cast that it has become.
fn plain_interval(expression: &mut Expr) {
    if let Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } = expression
        && let Expr::Value(value) = expr.as_ref()
        && matches!(value.value, Value::SingleQuotedString(_))
    {
        let value = Box::new(take(expr));
        *expression = Expr::Interval(ast::Interval {
            value,
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        });
    }
}

/// A series in the select list makes a row of each of its elements.
fn unnest_series(expression: &mut Expr) {
    if let Expr::Function(function) = expression
        && let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
        && name.value.eq_ignore_ascii_case("generate_series")
    {
        *expression = call("unnest", vec![take(expression)]);
    }
}

fn named(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// A function in FROM that yields one column names it as its alias, or as itself.
fn name_function_column(name: &ObjectName, alias: &mut Option<TableAlias>) {
    let Some(ObjectNamePart::Identifier(function)) = name.0.last() else { return };
    if !["generate_series", "unnest"].contains(&function.value.to_lowercase().as_str()) {
        return;
    }
    let alias = alias.get_or_insert_with(|| named(function.clone()));
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn rewritten(text: &str) -> String {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap();
        let Some(ast::Statement::Query(mut parsed)) = statements.pop() else { panic!("{text} is no query") };
        query(&mut parsed, &|_, _| None).unwrap();
        parsed.to_string()
    }

    #[test]
    fn outputs_get_the_names_that_postgresql_gives_them() {
        assert_eq!(
            rewritten("SELECT a, t.b, Max(c), d::text, true, 'x' FROM t"),
            "SELECT a, t.b, Max(c) AS \"max\", CAST(d AS TEXT) AS \"d\", true AS \"bool\", 'x' AS \"?column?\" FROM t"
                .replace("CAST(d AS TEXT)", "d::TEXT")
        );
    }

    #[test]
    fn equal_names_are_kept_apart_behind_a_mark() {
        assert_eq!(rewritten("SELECT a, t.a FROM t"), "SELECT a, t.a AS \"a\u{0}2\" FROM t");
    }

    #[test]
    fn integers_are_four_bytes_wide_but_positions_stay_plain() {
        assert_eq!(
            rewritten("SELECT a FROM t WHERE a = -5 ORDER BY 1 LIMIT 2"),
            "SELECT a FROM t WHERE a = CAST(-5 AS INT4) ORDER BY 1 LIMIT 2"
        );
    }

    #[test]
    fn rows_compare_column_by_column() {
        assert_eq!(
            rewritten("SELECT a FROM t WHERE (a, b) < (c, d)"),
            "SELECT a FROM t WHERE (a < c OR a = c AND (b < d))"
        );
    }
}
