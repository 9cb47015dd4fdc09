//! Functions in FROM that read files: `read_csv('orders.csv', delimiter => ';')`. Their arguments are constants, since they decide which
//! columns the files have.

use super::Binder;
use crate::catalog::{FileArgument, Relation};
use firn_base::{Result, Value};
use firn_syntax::character_position;
use firn_syntax::tree::{Argument, Expr, ExprKind, TableFunction};
use std::sync::Arc;

impl Binder<'_> {
    /// The files that a function in FROM reads, if it does.
    pub(super) fn file_function(&self, function: &TableFunction) -> Result<Option<Arc<Relation>>> {
        let [item] = &function.functions[..] else { return Ok(None) };
        let ExprKind::Call(call) = &item.call.kind else { return Ok(None) };
        let is_plain = !function.is_rows_from
            && function.columns.is_empty()
            && item.columns.is_empty()
            && call.name.qualifiers.is_empty()
            && !call.is_star
            && !call.is_distinct
            && !call.is_variadic
            && call.order_by.is_empty()
            && call.filter.is_none()
            && call.over.is_none();
        if !is_plain || !self.catalog.reads_files(&call.name.name.text) {
            return Ok(None);
        }
        if function.with_ordinality {
            return Err(self.unsupported("WITH ORDINALITY", item.call.span.start));
        }
        let arguments: Vec<FileArgument<'_>> =
            call.arguments.iter().map(|argument| self.file_argument(argument)).collect();
        self.catalog.file_function(&call.name.name.text, &arguments).map(Some)
    }

    fn file_argument<'a>(&self, argument: &'a Argument) -> FileArgument<'a> {
        let name = argument.name.as_ref();
        let start = name.map_or(argument.value.span.start, |name| name.span.start);
        FileArgument {
            name: name.map(|name| &*name.text),
            value: constant(&argument.value),
            position: self.has_positions.then(|| character_position(self.text, start)),
        }
    }
}

/// The value of a literal, or of an array of literals.
fn constant(expression: &Expr) -> Option<Value> {
    Some(match &expression.kind {
        ExprKind::Boolean(value) => Value::Boolean(*value),
        ExprKind::Integer(value) => Value::BigInt(i64::from(*value)),
        ExprKind::Number(digits) => Value::BigInt(digits.parse().ok()?),
        ExprKind::String(text) => Value::Text(text.to_string()),
        ExprKind::Array(elements) => {
            let elements: Vec<Value> = elements.iter().map(constant).collect::<Option<_>>()?;
            Value::Array(elements.into())
        }
        _ => return None,
    })
}
