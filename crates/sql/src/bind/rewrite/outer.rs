//! Columns of outer tables that are called like a column of an inner one.
//!
//! The planner takes `customer.id` for a field of `orders.customer` where it stands in a sub-query over `orders`, and looks no further.
//! With a schema in front it is a column of a table and nothing else:
//!
//! | written | becomes |
//! |---|---|
//! | `FROM customer WHERE EXISTS (SELECT FROM orders WHERE customer = customer.id)` | `… customer = public.customer.id` |

use super::using::known_as;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Query, Select, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Whether there is a query in a query.
pub(super) fn has_subquery(query: &Query) -> bool {
    struct Count(usize);
    impl ast::Visitor for Count {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.0 += 1;
            if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    ast::Visit::visit(query, &mut Count(0)).is_break()
}

/// Puts schemas in front of columns of outer tables.
pub(super) fn qualify(query: &mut Query) {
    let _: ControlFlow<()> = query.visit(&mut Qualify { scopes: Vec::new() });
}

/// What the items of a FROM clause are called, and the schemas that they are found in.
type Scope = Vec<(String, Ident)>;

struct Qualify {
    /// Outermost first.
    scopes: Vec<Scope>,
}

impl VisitorMut for Qualify {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut scope = Scope::new();
        select.from.iter().for_each(|from| add(&mut scope, from));
        self.scopes.push(scope);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(names) = expression
            && let [table, _] = names.as_slice()
            && let Some((_, outer)) = self.scopes.split_last()
        {
            let name = fold(table);
            let schema_in = |scope: &Scope| {
                scope.iter().find(|(known, _)| *known == name).map(|(_, schema)| schema.clone())
            };
            let is_own = self.scopes.last().is_some_and(|own| schema_in(own).is_some());
            if !is_own && let Some(schema) = outer.iter().rev().find_map(schema_in) {
                names.insert(0, schema);
            }
        }
        ControlFlow::Continue(())
    }
}

fn add(scope: &mut Scope, from: &TableWithJoins) {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    for factor in factors {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            add(scope, table_with_joins);
        }
        let Some(name) = known_as(factor) else { continue };
        let schema = match factor {
            TableFactor::Table { alias: None, name, .. } => match name.0.as_slice() {
                [.., schema, _] => schema.as_ident().cloned(),
                _ => None,
            },
            _ => None,
        };
        scope.push((fold(&name), schema.unwrap_or_else(|| Ident::new("public"))));
    }
}
