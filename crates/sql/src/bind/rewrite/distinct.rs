//! SELECT DISTINCT may be ordered by nothing but what it selects: of rows that it makes one, an
//! expression over something else would have several values.

use super::{digits, take};
use crate::data_type::sql_type;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Distinct, Expr, OrderByKind, Query, SelectItem, SetExpr, VisitMut, VisitorMut,
};
use firn_base::{Error, SqlState, SqlType};
use std::ops::ControlFlow;

/// Expressions in ORDER BY become the places of their equals in the select list; 42P10 for one that is
/// not there. Columns that are not there are found out when names are bound.
pub(super) fn order_by_position(query: &mut Query) -> ControlFlow<Error> {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by) else {
        return ControlFlow::Continue(());
    };
    let (Some(Distinct::Distinct), OrderByKind::Expressions(order)) = (&select.distinct, &mut order.kind)
    else {
        return ControlFlow::Continue(());
    };
    let listed: Vec<Option<String>> = select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
                Some(comparable(expression))
            }
            _ => None,
        })
        .collect();
    // What stands behind a wildcard has no place that is known yet.
    let has_wildcard = listed.contains(&None);
    for key in order {
        if matches!(
            &key.expr,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Collate { .. }
        ) {
            continue;
        }
        let wanted = Some(comparable(&key.expr));
        match listed.iter().position(|item| *item == wanted) {
            Some(_) if has_wildcard => {}
            Some(position) => key.expr = digits(&(position + 1).to_string()),
            None => {
                return ControlFlow::Break(Error::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                ));
            }
        }
    }
    ControlFlow::Continue(())
}

/// An expression as text that is the same for other spellings of it: names without their tables, no
/// outer parentheses, one way to write casts.
pub(super) fn comparable(expression: &Expr) -> String {
    let mut expression = expression;
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    let mut expression = expression.clone();
    let _ = expression.visit(&mut Uniform);
    expression.to_string().to_lowercase()
}

struct Uniform;

impl VisitorMut for Uniform {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::CompoundIdentifier(parts) => {
                if let Some(last) = parts.pop() {
                    *expression = Expr::Identifier(last);
                }
            }
            Expr::Cast { kind, expr, data_type, .. } => {
                if *kind == CastKind::DoubleColon {
                    *kind = CastKind::Cast;
                }
                while let Expr::Nested(inner) = expr.as_mut() {
                    let inner = take(inner);
                    **expr = inner;
                }
                if let Some(name) = only_name(data_type) {
                    *data_type = name;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The name of a type that goes by several, if nothing else is said of it.
fn only_name(data_type: &DataType) -> Option<DataType> {
    Some(match sql_type(data_type).ok()? {
        SqlType::SmallInt => DataType::SmallInt(None),
        SqlType::Integer => DataType::Integer(None),
        SqlType::BigInt => DataType::BigInt(None),
        SqlType::Real => DataType::Real,
        SqlType::Double => DataType::DoublePrecision,
        SqlType::Boolean => DataType::Boolean,
        _ => return None,
    })
}
