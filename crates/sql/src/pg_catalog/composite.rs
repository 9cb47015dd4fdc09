//! Composite values and zero-based vectors, as pgjdbc's metadata queries use them.
//!
//! `_pg_expandarray(list)` yields a row `(x, n)` per element: the element and its position. DataFusion
//! knows no composite values, so both fields become columns of their own, which is all that a query can
//! see of them:
//!
//! | PostgreSQL | DataFusion |
//! |---|---|
//! | `_pg_expandarray(a) AS k` | `unnest(a) AS "k.x", unnest(firn_subscripts(a, 1)) AS "k.n"` |
//! | `(_pg_expandarray(a)).n` | `unnest(firn_subscripts(a, 1))` |
//! | `(i.k).x` | `i."k.x"` |
//! | `i.indoption[n - 1]` | `i.indoption[(n - 1) + 1]`: vectors begin at 0, lists at 1 |

use super::rewrite::{VECTORS, call, function_name};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SelectItem,
    Subscript, Value,
};

/// Makes two columns of each composite column of a SELECT list.
pub(super) fn flatten(projection: &mut Vec<SelectItem>) {
    let mut position = 0;
    while position < projection.len() {
        let (expr, name) = match &projection[position] {
            SelectItem::UnnamedExpr(expr) => (expr, "_pg_expandarray".to_owned()),
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            _ => {
                position += 1;
                continue;
            }
        };
        let Some(list) = expanded(expr) else {
            position += 1;
            continue;
        };
        let column = |field| SelectItem::ExprWithAlias {
            expr: expansion(list.clone(), field),
            alias: Ident::with_quote('"', field_name(&name, field)),
        };
        let columns = [column("x"), column("n")];
        projection.splice(position..=position, columns);
        position += 2;
    }
}

/// What access to a field of a composite value becomes, or to an element of a vector.
pub(super) fn access(root: &Expr, chain: &mut [AccessExpr]) -> Option<Expr> {
    if let ([AccessExpr::Dot(Expr::Identifier(field))], Expr::Nested(composite)) = (&*chain, root) {
        let field = folded(field);
        if !matches!(field.as_str(), "x" | "n") {
            return None;
        }
        if let Some(list) = expanded(composite) {
            return Some(expansion(list.clone(), &field));
        }
        let mut names = match &**composite {
            Expr::Identifier(name) => vec![name.clone()],
            Expr::CompoundIdentifier(names) => names.clone(),
            _ => return None,
        };
        let last = names.last_mut().expect("an identifier has a part");
        *last = Ident::with_quote('"', field_name(&folded(last), &field));
        return Some(Expr::CompoundIdentifier(names));
    }
    let (subscript, names) = chain.split_last_mut()?;
    let vector = match (names.last(), root) {
        (Some(AccessExpr::Dot(Expr::Identifier(name))), _) | (None, Expr::Identifier(name)) => folded(name),
        _ => return None,
    };
    if let AccessExpr::Subscript(Subscript::Index { index }) = subscript
        && VECTORS.iter().any(|known| vector.ends_with(known))
        // What has been moved already comes by again.
        && !matches!(index, Expr::Nested(_))
    {
        let zero_based = std::mem::replace(index, Expr::Value(Value::Null.into()));
        *index = Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(zero_based))),
            op: BinaryOperator::Plus,
            right: Box::new(Expr::Value(Value::Number("1".to_owned(), false).into())),
        }));
    }
    None
}

/// The list that `_pg_expandarray` is called with, if that is what an expression is.
fn expanded(expr: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = expr else { return None };
    match &function.args {
        FunctionArguments::List(arguments) if function_name(function) == "_pg_expandarray" => {
            match arguments.args.as_slice() {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] => Some(list),
                _ => None,
            }
        }
        _ => None,
    }
}

/// One field of each element of a list, a row each.
fn expansion(list: Expr, field: &str) -> Expr {
    let one = Expr::Value(Value::Number("1".to_owned(), false).into());
    let values = if field == "x" { list } else { call("firn_subscripts", vec![list, one]) };
    call("unnest", vec![values])
}

fn field_name(column: &str, field: &str) -> String {
    format!("{column}.{field}")
}

/// A name in the case in which it is looked up.
pub(super) fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}
