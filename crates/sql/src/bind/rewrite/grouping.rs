//! Expressions of GROUP BY that differ in nothing but casts: DataFusion leaves these out of the names that it gives expressions,
//! and wants names that differ.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT x, x::text … GROUP BY x, x::text` | `SELECT x, "as cast"(x::text) … GROUP BY x, "as cast"(x::text)` |
//!
//! The function yields its argument; its name tells the casts in it ([`AS_CAST`]).

use super::distinct::comparable;
use super::{quoted_call, take};
use crate::bind::keys::AS_CAST;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, ObjectNamePart,
    OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value, VisitMut, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Tells them apart in a query.
pub(super) fn tell_casts_apart(query: &mut Query) {
    let order: &mut [OrderByExpr] = match &mut query.order_by {
        Some(order) => match &mut order.kind {
            OrderByKind::Expressions(keys) => keys.as_mut_slice(),
            _ => &mut [],
        },
        None => &mut [],
    };
    in_body(&mut query.body, order);
}

fn in_body(body: &mut SetExpr, order: &mut [OrderByExpr]) {
    match body {
        SetExpr::Select(select) => in_select(select, order),
        SetExpr::SetOperation { left, right, .. } => {
            in_body(left, &mut []);
            in_body(right, &mut []);
        }
        // A query in parentheses is visited by itself.
        _ => {}
    }
}

fn in_select(select: &mut Select, order: &mut [OrderByExpr]) {
    let colliding = colliding(select);
    if colliding.is_empty() {
        return;
    }
    let mut wrap = Wrap { colliding, queries: 0, depth: 0, found: None };
    let _: ControlFlow<()> = select.projection.visit(&mut wrap);
    let _: ControlFlow<()> = select.group_by.visit(&mut wrap);
    let _: ControlFlow<()> = select.having.visit(&mut wrap);
    let _: ControlFlow<()> = select.distinct.visit(&mut wrap);
    let _: ControlFlow<()> = select.named_window.visit(&mut wrap);
    for key in order {
        let _: ControlFlow<()> = key.expr.visit(&mut wrap);
    }
}

/// The expressions of GROUP BY with a cast without which they are like another one, as [`comparable`] texts.
fn colliding(select: &Select) -> HashSet<String> {
    let GroupByExpr::Expressions(listed, _) = &select.group_by else { return HashSet::new() };
    let mut members = Vec::new();
    listed.iter().for_each(|member| find_members(member, &select.projection, &mut members));
    if members.len() < 2 {
        return HashSet::new();
    }
    struct Texts {
        own: String,
        without_casts: String,
        has_casts: bool,
    }
    let texts = |member: &&Expr| {
        let mut stripped = (*member).clone();
        let mut strip = Strip { found: false };
        let _: ControlFlow<()> = stripped.visit(&mut strip);
        Texts { own: comparable(member), without_casts: comparable(&stripped), has_casts: strip.found }
    };
    let texts: Vec<Texts> = members.iter().map(texts).collect();
    let collides = |text: &&Texts| {
        let is_alike = |other: &Texts| other.without_casts == text.without_casts && other.own != text.own;
        text.has_casts && texts.iter().any(is_alike)
    };
    texts.iter().filter(collides).map(|text| text.own.clone()).collect()
}

/// The expressions that a member of GROUP BY stands for: those of sets, and of the select list by their places or names.
fn find_members<'e>(member: &'e Expr, projection: &'e [SelectItem], found: &mut Vec<&'e Expr>) {
    match member {
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
            sets.iter().flatten().for_each(|member| find_members(member, projection, found));
        }
        Expr::Tuple(members) => {
            members.iter().for_each(|member| find_members(member, projection, found));
        }
        Expr::Value(place) => {
            let Value::Number(digits, _) = &place.value else { return };
            let place = digits.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            if let Some(SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }) =
                place.and_then(|place| projection.get(place))
            {
                found.push(item);
            }
        }
        Expr::Identifier(name) => {
            found.push(member);
            let name = fold(name);
            let named = |item: &'e SelectItem| match item {
                SelectItem::ExprWithAlias { expr, alias } if fold(alias) == name => Some(expr),
                _ => None,
            };
            found.extend(projection.iter().filter_map(named));
        }
        other => found.push(other),
    }
}

/// Takes the casts out of an expression.
struct Strip {
    found: bool,
}

impl VisitorMut for Strip {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Cast { expr, .. } => {
                self.found = true;
                *expression = take(expr);
            }
            Expr::Nested(inner) => *expression = take(inner),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Makes calls of the expressions that collide. Of those that are parts of each other the whole counts.
struct Wrap {
    colliding: HashSet<String>,
    /// How many queries deep the visit is: they have columns of their own.
    queries: usize,
    /// How many expressions deep it is.
    depth: usize,
    /// The depth of the expression whose parts are visited, if that is one of them.
    found: Option<usize>,
}

impl VisitorMut for Wrap {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        self.depth += 1;
        if self.queries == 0 && self.found.is_none() && self.colliding.contains(&comparable(expression)) {
            self.found = Some(self.depth);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.found == Some(self.depth) {
            self.found = None;
            *expression = quoted_call(AS_CAST, vec![take(expression)]);
        }
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}
