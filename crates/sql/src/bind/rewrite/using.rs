//! Columns that JOIN … USING merges.
//!
//! DataFusion takes the left table's column for the merged one, which is NULL in rows that only the
//! right table has. PostgreSQL takes the right one, or whichever is there:
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT id FROM a RIGHT JOIN b USING (id)` | `SELECT b.id FROM …` |
//! | `SELECT id FROM a FULL JOIN b USING (id)` | `SELECT coalesce(a.id, b.id) AS id FROM …` |
//! | `SELECT * FROM a FULL JOIN b USING (id)` | `SELECT * REPLACE (coalesce(a.id, b.id) AS id) FROM …` |
//!
//! Of other joins the left one is right. But in WHERE, DataFusion takes it for ambiguous:
//!
//! | written | becomes |
//! |---|---|
//! | `… FROM a JOIN b USING (id) WHERE id > 1` | `… WHERE a.id > 1` |

use super::call;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, TableFactor, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Rewrites the merged columns of a SELECT.
pub(super) fn merge_columns(select: &mut Select) {
    let from_the_left = merged_from_the_left(select);
    let _: ControlFlow<()> = select.selection.visit(&mut Replace { merged: &from_the_left, queries: 0 });
    let merged = merged_columns(select);
    if merged.is_empty() {
        return;
    }
    for item in &mut select.projection {
        match item {
            SelectItem::Wildcard(options) => {
                let element = |column: &Merged| {
                    Box::new(ReplaceSelectElement {
                        expr: column.value.clone(),
                        column_name: Ident::with_quote('"', &column.name),
                        as_keyword: true,
                    })
                };
                options.opt_replace = Some(ReplaceSelectItem { items: merged.iter().map(element).collect() });
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                let name = fold(ident);
                if let Some(column) = merged.iter().find(|column| column.name == name) {
                    let alias = Ident::with_quote('"', name);
                    *item = SelectItem::ExprWithAlias { expr: column.value.clone(), alias };
                }
            }
            other => {
                let _: ControlFlow<()> = other.visit(&mut Replace { merged: &merged, queries: 0 });
            }
        }
    }
    let mut replace = Replace { merged: &merged, queries: 0 };
    let _: ControlFlow<()> = select.selection.visit(&mut replace);
    let _: ControlFlow<()> = select.group_by.visit(&mut replace);
    let _: ControlFlow<()> = select.having.visit(&mut replace);
}

struct Merged {
    name: String,
    value: Expr,
}

fn merged_columns(select: &Select) -> Vec<Merged> {
    let mut merged = Vec::new();
    for from in &select.from {
        let [join] = from.joins.as_slice() else { continue };
        let (Some(left), Some(right)) = (known_as(&from.relation), known_as(&join.relation)) else {
            continue;
        };
        let (columns, full) = match &join.join_operator {
            JoinOperator::FullOuter(JoinConstraint::Using(columns)) => (columns, true),
            JoinOperator::Right(JoinConstraint::Using(columns))
            | JoinOperator::RightOuter(JoinConstraint::Using(columns)) => (columns, false),
            _ => continue,
        };
        for column in columns {
            let Some(column) = last(column) else { continue };
            let of = |table: &Ident| Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
            let value = match full {
                true => call("coalesce", vec![of(&left), of(&right)]),
                false => of(&right),
            };
            merged.push(Merged { name: fold(column), value });
        }
    }
    merged
}

/// What INNER and LEFT JOINs merge, if there are no others and each of them merges it: else a table may have a column of that name
/// which is not merged, and then it is ambiguous.
fn merged_from_the_left(select: &Select) -> Vec<Merged> {
    let [from] = select.from.as_slice() else { return Vec::new() };
    let Some(left) = known_as(&from.relation) else { return Vec::new() };
    let mut joins = from.joins.iter().map(|join| match &join.join_operator {
        JoinOperator::Join(JoinConstraint::Using(columns))
        | JoinOperator::Inner(JoinConstraint::Using(columns))
        | JoinOperator::Left(JoinConstraint::Using(columns))
        | JoinOperator::LeftOuter(JoinConstraint::Using(columns)) => columns.as_slice(),
        _ => &[],
    });
    let Some(first) = joins.next() else { return Vec::new() };
    let others: Vec<_> = joins.collect();
    let merged = first.iter().filter_map(last).filter_map(|column| {
        let name = fold(column);
        let is_merged = |columns: &&[ObjectName]| columns.iter().filter_map(last).any(|it| fold(it) == name);
        let value = Expr::CompoundIdentifier(vec![left.clone(), column.clone()]);
        others.iter().all(is_merged).then_some(Merged { name, value })
    });
    merged.collect()
}

/// The name that columns of a table are qualified by.
pub(super) fn known_as(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => last(name).cloned(),
        _ => None,
    }
}

fn last(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(ObjectNamePart::as_ident)
}

struct Replace<'m> {
    merged: &'m [Merged],
    /// How many queries deep the visit is: they have columns of their own.
    queries: usize,
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let (Expr::Identifier(ident), 0) = (&*expression, self.queries) {
            let name = fold(ident);
            if let Some(column) = self.merged.iter().find(|column| column.name == name) {
                *expression = column.value.clone();
            }
        }
        ControlFlow::Continue(())
    }
}
