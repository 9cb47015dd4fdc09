//! Expressions in definitions: defaults, conditions of CHECK and expressions of generated columns.
//!
//! An expression is bound for checking and stored as the canonical text of its tree. An expression over a row names the columns
//! of its table without qualifiers, so that the table can be renamed.

use super::Context;
use crate::names::{Relation as Named, parse_qualified};
use crate::parse::parse_expression;
use crate::statement::{QualifiedName, quote_literal};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, TextStyle, Type, TypeId, Value, text};
use firn_bind::{BoundExpression, Catalog, Place, Relation};
use firn_plan::Scalar;
use firn_syntax::print;
use firn_syntax::tree::{Expr, ExprKind, Name, StepKind};
use firn_syntax::visit::{self, Visitor};
use firn_txn::catalog::{ColumnDef, SequenceDef, TableDef};

/// The text of a default after a check that it can be evaluated and stored; `None` for NULL. `script` is the text from which the
/// expression was parsed.
pub(super) fn default(
    context: &Context<'_>,
    script: &str,
    column: &str,
    ty: Type,
    expression: &Expr,
) -> Result<Option<String>> {
    if matches!(expression.kind, ExprKind::Null) {
        return Ok(None);
    }
    let place = Place::Default { column, ty };
    let bound =
        context.bound(|catalog| firn_bind::bind_expression(script, expression, place, None, catalog))?;
    Ok(Some(fixed_datetime(expression, &bound).unwrap_or_else(|| {
        let mut expression = expression.clone();
        visit::expression(&mut FixLiterals(&bound.literals), &mut expression);
        print::expression(&expression)
    })))
}

/// The text of a date or time that a string denotes when the definition is made, such as `now`.
fn fixed_datetime(expression: &Expr, bound: &BoundExpression) -> Option<String> {
    let is_string = match &expression.kind {
        ExprKind::String(_) | ExprKind::TypedLiteral(_) => true,
        ExprKind::Chain(chain) => {
            matches!(chain.first.kind, ExprKind::String(_))
                && chain.steps.iter().all(|step| matches!(step.kind, StepKind::Cast(_)))
        }
        _ => false,
    };
    let id = bound.ty.id;
    match &bound.scalar {
        Scalar::Constant(_, value)
            if is_string
                && matches!(id, TypeId::DATE | TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ)
                && !matches!(value, Value::Null) =>
        {
            let mut written = String::new();
            text::write_any(value, Type::new(id), &TextStyle::DEFAULT, &mut written);
            Some(format!("{}::{}", quote_literal(&written), Type::new(id)))
        }
        _ => None,
    }
}

/// 42804 if a default does not fit a new type of its column: its value of the old type is assigned to the new one.
pub(super) fn check_default(
    context: &Context<'_>,
    column: &str,
    (old, new): (Type, Type),
    default: &str,
) -> Result<()> {
    let text = format!("({default})::{old}");
    let expression = parse_expression(&text)?;
    let place = Place::Default { column, ty: new };
    let bind =
        |catalog: &dyn Catalog| firn_bind::bind_kept_expression(&text, &expression, place, None, catalog);
    context.bound(bind).map(drop).map_err(|error| match error.state() {
        SqlState::DATATYPE_MISMATCH => Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("default for column \"{column}\" cannot be cast automatically to type {new}"),
        ),
        _ => error.without_position(),
    })
}

/// The stored text of a condition of CHECK, and the columns that it uses. `table` is in the catalog. `script` is the text from which
/// the condition was parsed.
pub(super) fn check(
    context: &Context<'_>,
    script: &str,
    table: &TableDef,
    condition: &Expr,
) -> Result<(String, Vec<u16>)> {
    let bound = over_table(context, script, table, condition, Place::Check)?;
    let columns = bound.inputs.iter().map(|(_, number)| *number as u16 - 1).collect();
    Ok((kept(condition, &bound), columns))
}

/// The text of an expression over a table that does not depend on the session.
fn kept(expression: &Expr, bound: &BoundExpression) -> String {
    let mut expression = expression.clone();
    visit::expression(&mut FixLiterals(&bound.literals), &mut expression);
    unqualified(&expression)
}

/// Checks the expression of a generated column. Returns the text to be stored. The table is in the catalog, with a text of the expression.
/// `script` is the text from which the expression was parsed.
pub(super) fn check_generated(
    context: &Context<'_>,
    script: &str,
    table: &TableDef,
    column: &ColumnDef,
    expression: &Expr,
) -> Result<String> {
    let place = Place::Generated { column: &column.name, ty: column.ty.declared };
    let bound = over_table(context, script, table, expression, place)?;
    Ok(kept(expression, &bound))
}

/// The generated columns of a table over one of its columns.
pub(super) fn generated_over(table: &TableDef, column: ColumnId) -> Vec<ColumnId> {
    let is_over = |found: &ColumnDef| {
        let expression = found.generated.as_deref().and_then(|text| parse_expression(text).ok());
        expression.is_some_and(|expression| columns_in(table, &expression).contains(&column.0))
    };
    table.visible_columns().filter(|(_, found)| is_over(found)).map(|(id, _)| id).collect()
}

/// Binds an expression over the columns of a table that is in the catalog.
pub(super) fn over_table(
    context: &Context<'_>,
    script: &str,
    table: &TableDef,
    expression: &Expr,
    place: Place<'_>,
) -> Result<BoundExpression> {
    context.bound(|catalog| {
        let relation = relation(context, table, catalog)?;
        firn_bind::bind_expression(script, expression, place, Some(&relation), catalog)
    })
}

/// A table that is in the catalog, for the binder.
fn relation(context: &Context<'_>, table: &TableDef, catalog: &dyn Catalog) -> Result<Arc<Relation>> {
    let relation = catalog.relation(Some(context.schema_name(table.schema)), &table.name)?;
    relation.ok_or_else(|| Error::internal("the table of an expression is not in the catalog"))
}

/// Checks an expression or the condition of an index over a table that is in the catalog. Returns the text to be stored.
pub(super) fn check_indexed(
    context: &Context<'_>,
    script: &str,
    table: &TableDef,
    expression: &Expr,
    place: Place<'_>,
) -> Result<(BoundExpression, String)> {
    let bound = over_table(context, script, table, expression, place)?;
    let text = kept(expression, &bound);
    Ok((bound, text))
}

/// The text of an expression without the names of relations.
pub(super) fn unqualified(expression: &Expr) -> String {
    let mut expression = expression.clone();
    visit::expression(&mut Unqualify, &mut expression);
    print::expression(&expression)
}

/// Replaces strings that sessions read as different values by texts that always mean the same.
struct FixLiterals<'l>(&'l [(u32, Box<str>)]);

impl Visitor for FixLiterals<'_> {
    fn expr(&mut self, expr: &mut Expr) {
        fix_literal(expr, self.0);
    }
}

/// Replaces an expression that is a string by the fixed text, if one has been noted at its position.
pub(super) fn fix_literal(expr: &mut Expr, noted: &[(u32, Box<str>)]) {
    let (places, value) = match &mut expr.kind {
        ExprKind::String(value) => (expr.span.start..expr.span.start + 1, value),
        ExprKind::TypedLiteral(literal) => (literal.type_name.span.end..expr.span.end, &mut literal.value),
        _ => return,
    };
    if let Some((_, fixed)) = noted.iter().find(|(at, _)| places.contains(at)) {
        value.clone_from(fixed);
    }
}

/// Removes the qualifiers from the names of columns.
struct Unqualify;

impl Visitor for Unqualify {
    fn expr(&mut self, expr: &mut Expr) {
        if let ExprKind::Column(name) = &mut expr.kind {
            name.qualifiers.clear();
        }
    }
}

/// The columns of a table that one of its conditions uses, in their order. Every column that such an expression names belongs to the table.
pub(crate) fn columns_in(table: &TableDef, expression: &Expr) -> Vec<u16> {
    struct Columns<'t>(&'t TableDef, Vec<u16>);
    impl Visitor for Columns<'_> {
        fn expr(&mut self, expr: &mut Expr) {
            let ExprKind::Column(name) = &expr.kind else { return };
            match self.0.column(&name.name.text) {
                Some((id, _)) => self.1.push(id.0),
                // The whole row.
                None => self.1.extend(self.0.visible_columns().map(|(id, _)| id.0)),
            }
        }
    }
    let mut columns = Columns(table, Vec::new());
    visit::expression(&mut columns, &mut expression.clone());
    let mut columns = columns.1;
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Renames a column inside the text of an expression over its table.
pub(super) fn rename_column(text: &str, from: &str, to: &str) -> Result<String> {
    struct Rename<'n>(&'n str, &'n str);
    impl Visitor for Rename<'_> {
        fn expr(&mut self, expr: &mut Expr) {
            if let ExprKind::Column(name) = &mut expr.kind
                && *name.name.text == *self.0
            {
                name.name = Name::new(self.1);
            }
        }
    }
    let mut expression = parse_expression(text)?;
    visit::expression(&mut Rename(from, to), &mut expression);
    Ok(print::expression(&expression))
}

/// Whether the text of a default calls `nextval` for a sequence.
pub(super) fn uses_sequence(context: &Context<'_>, default: &str, sequence: &SequenceDef) -> bool {
    let Ok(mut expression) = parse_expression(default) else { return false };
    let mut found = false;
    let mut look = NextValues(|name: &mut Box<str>| found |= is_sequence(context, name, sequence));
    visit::expression(&mut look, &mut expression);
    found
}

/// A default that calls `nextval` for a sequence with the sequence's new name; `None` if it does not.
pub(super) fn rename_sequence(
    context: &Context<'_>,
    default: &str,
    sequence: &SequenceDef,
    to: &str,
) -> Option<String> {
    let mut expression = parse_expression(default).ok()?;
    let mut found = false;
    let mut rename = NextValues(|name: &mut Box<str>| {
        if is_sequence(context, name, sequence) {
            *name = to.into();
            found = true;
        }
    });
    visit::expression(&mut rename, &mut expression);
    found.then(|| print::expression(&expression))
}

fn is_sequence(context: &Context<'_>, name: &str, sequence: &SequenceDef) -> bool {
    let name: Option<QualifiedName> = parse_qualified(name).ok();
    let found = name.and_then(|name| context.names().find(&name));
    matches!(found, Some(Named::Sequence(found)) if found.oid == sequence.oid)
}

/// Calls a function with every string that names a sequence for `nextval`.
struct NextValues<F>(F);

impl<F: FnMut(&mut Box<str>)> Visitor for NextValues<F> {
    fn expr(&mut self, expr: &mut Expr) {
        let ExprKind::Call(call) = &mut expr.kind else { return };
        let [argument] = &mut call.arguments[..] else { return };
        if &*call.name.name.text != "nextval" {
            return;
        }
        let mut value = &mut argument.value;
        loop {
            match &mut value.kind {
                ExprKind::String(name) => return (self.0)(name),
                ExprKind::TypedLiteral(literal) => return (self.0)(&mut literal.value),
                ExprKind::Chain(chain)
                    if chain.steps.iter().all(|step| matches!(step.kind, StepKind::Cast(_))) =>
                {
                    value = &mut chain.first;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_in_defaults_are_found_behind_casts() {
        let mut names = Vec::new();
        for text in [
            "nextval('public.s'::regclass)",
            "pg_catalog.nextval(('s2'::text)::regclass) + 1",
            "coalesce(nextval(regclass 's3'), 0)",
            "currval('no')",
            "lower('no')",
        ] {
            let mut expression = parse_expression(text).unwrap();
            visit::expression(
                &mut NextValues(|name: &mut Box<str>| names.push(name.to_string())),
                &mut expression,
            );
        }
        assert_eq!(names, ["public.s", "s2", "s3"]);
    }

    #[test]
    fn a_renamed_column_is_renamed_wherever_a_condition_names_it() {
        let renamed = rename_column("a > 0 AND lower(b) = a::text", "a", "A b").unwrap();
        assert_eq!(renamed, "\"A b\" > 0 AND lower(b) = \"A b\"::text");
    }
}
