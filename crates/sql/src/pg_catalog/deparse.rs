//! Defaults, conditions and generated columns of tables as PostgreSQL prints them: from their bound form, with the casts that the
//! binder has added.
//!
//! There are two forms. The plain one puts every operation into parentheses. The pretty one leaves out those that common
//! precedence makes unnecessary: around operands of a call, `*` below `+`, AND below OR. The bound form does not show special syntax
//! (`CURRENT_DATE`, `EXTRACT`); such an expression is printed as written.

use super::Source;
use crate::statement::quote_literal;
use firn_base::{TextStyle, Type, TypeId, Value, text};
use firn_bind::{BoundExpression, Place};
use firn_plan::function::FunctionKind;
use firn_plan::scalar::{Call, Case, Cast, Quantified, Values};
use firn_plan::{Column, Columns, Scalar};
use firn_query::catalog::{Binding, Names};
use firn_query::relations::NoRelations;
use firn_syntax::print::quote_name;
use firn_syntax::tree::{Expr, ExprKind, StepKind};
use firn_syntax::visit::{self, Visitor};
use firn_txn::catalog::{ColumnDef, TableDef};
use std::collections::HashMap;
use std::fmt::Write;

/// The default of a column, from its text.
pub(crate) fn default(source: &Source, column: &str, ty: Type, text: &str, pretty: bool) -> String {
    let bound = bound(source, text, Place::Default { column, ty }, None);
    bound.and_then(|(bound, names)| print(&bound, names, pretty)).unwrap_or_else(|| text.to_owned())
}

/// The expression of a generated column of a table.
pub(crate) fn generated(source: &Source, table: &TableDef, column: &ColumnDef, pretty: bool) -> String {
    let text = column.generated.as_deref().expect("the column is generated");
    let place = Place::Generated { column: &column.name, ty: column.ty.declared };
    let bound = bound(source, text, place, Some(table));
    bound.and_then(|(bound, names)| print(&bound, names, pretty)).unwrap_or_else(|| text.to_owned())
}

/// An expression of an index of a table, from its text.
pub(crate) fn indexed(source: &Source, table: &TableDef, text: &str, pretty: bool) -> String {
    let bound = bound(source, text, Place::IndexExpression, Some(table));
    bound.and_then(|(bound, names)| print(&bound, names, pretty)).unwrap_or_else(|| text.to_owned())
}

/// The condition of a partial index of a table, from its text.
pub(crate) fn index_condition(source: &Source, table: &TableDef, text: &str, pretty: bool) -> String {
    let bound = bound(source, text, Place::IndexPredicate, Some(table));
    bound.and_then(|(bound, names)| print(&bound, names, pretty)).unwrap_or_else(|| text.to_owned())
}

/// The condition of a CHECK of a table, from its text.
pub(crate) fn condition(source: &Source, table: &TableDef, text: &str, pretty: bool) -> String {
    let bound = bound(source, text, Place::Check, Some(table));
    bound.and_then(|(bound, names)| print(&bound, names, pretty)).unwrap_or_else(|| text.to_owned())
}

type ColumnNames = HashMap<Column, String>;

/// Binds an expression; `None` if it is printed as written.
fn bound(
    source: &Source,
    text: &str,
    place: Place<'_>,
    table: Option<&TableDef>,
) -> Option<(BoundExpression, ColumnNames)> {
    let mut expression = crate::parse::parse_expression(text).ok()?;
    let mut own_syntax = OwnSyntax(false);
    visit::expression(&mut own_syntax, &mut expression);
    if own_syntax.0 {
        return None;
    }
    let style = TextStyle::DEFAULT;
    let facts = &source.facts;
    let names = Names {
        search_path: &facts.search_path,
        database: &facts.database,
        literals: &style,
        style: &style,
        present: None,
    };
    let binding = Binding::new(source.registry, &source.catalog, names, &NoRelations);
    let relation = match table {
        None => None,
        Some(table) => {
            let schema = source.schema_name(table.schema);
            Some(firn_bind::Catalog::relation(&binding, Some(schema), &table.name).ok()??)
        }
    };
    let bound =
        firn_bind::bind_kept_expression(text, &expression, place, relation.as_ref(), &binding).ok()?;
    let name = |(column, number): &(Column, i16)| {
        let attribute = relation.as_ref()?.columns.iter().find(|attribute| attribute.number == *number)?;
        Some((*column, quote_name(&attribute.name).to_string()))
    };
    let names = bound.inputs.iter().map(name).collect::<Option<ColumnNames>>()?;
    Some((bound, names))
}

/// Whether an expression has a part with special syntax that the bound form does not show.
struct OwnSyntax(bool);

impl Visitor for OwnSyntax {
    fn expr(&mut self, expr: &mut Expr) {
        self.0 |= matches!(expr.kind, ExprKind::Special(_) | ExprKind::CurrentValue(_));
        if let ExprKind::Chain(chain) = &expr.kind {
            self.0 |= chain
                .steps
                .iter()
                .any(|step| matches!(step.kind, StepKind::AtTimeZone(_) | StepKind::Collate(_)));
        }
    }
}

fn print(bound: &BoundExpression, names: ColumnNames, pretty: bool) -> Option<String> {
    let mut printer = Printer { out: String::new(), pretty, indent: 0, names, columns: &bound.columns };
    printer.scalar(&bound.scalar, false)?;
    Some(printer.out)
}

/// The parent of an operand.
#[derive(Clone, Copy)]
enum Parent<'a> {
    /// An operator of that symbol, of which it is the first operand or another one.
    Operator(&'a str, bool),
    And,
    Or,
    Not,
    /// A cast.
    Cast,
    /// A test, or a comparison with ANY.
    Other,
}

struct Printer<'a> {
    out: String,
    pretty: bool,
    /// The indentation of new lines.
    indent: usize,
    names: ColumnNames,
    columns: &'a Columns,
}

impl Printer<'_> {
    /// Appends an expression; `None` if it has no text. Casts that are not in the statement are shown if `implicit`.
    fn scalar(&mut self, scalar: &Scalar, implicit: bool) -> Option<()> {
        match scalar {
            Scalar::Column(column) => self.out.push_str(self.names.get(column)?),
            Scalar::Constant(ty, value) => self.constant(*ty, value, true),
            Scalar::Call(call) if call.as_operator => self.operation(call, call.arguments.len())?,
            Scalar::Call(call) => self.call(call)?,
            Scalar::Cast(cast) => self.cast(cast, implicit)?,
            Scalar::And(list) => self.list(list, " AND ", Parent::And)?,
            Scalar::Or(list) => self.list(list, " OR ", Parent::Or)?,
            Scalar::Not(argument) => {
                self.open();
                self.out.push_str("NOT ");
                self.operand(argument, false, Parent::Not)?;
                self.close();
            }
            Scalar::Case(case) => self.case(case)?,
            Scalar::Coalesce(list) => {
                self.out.push_str("COALESCE(");
                self.separated(list)?;
                self.out.push(')');
            }
            Scalar::IsNull(argument, negated) => {
                self.test(argument, if *negated { " IS NOT NULL" } else { " IS NULL" })?;
            }
            Scalar::Test(argument, value, negated) => {
                let value = match value {
                    Some(true) => "TRUE",
                    Some(false) => "FALSE",
                    None => "UNKNOWN",
                };
                self.test(argument, &format!(" IS {}{value}", if *negated { "NOT " } else { "" }))?;
            }
            Scalar::Distinct(pair, negated) => {
                if *negated {
                    self.open();
                    self.out.push_str("NOT ");
                }
                let parenthesised = *negated && self.pretty;
                if parenthesised {
                    self.out.push('(');
                }
                self.open();
                self.operand(&pair.0, true, Parent::Other)?;
                self.out.push_str(" IS DISTINCT FROM ");
                self.operand(&pair.1, true, Parent::Other)?;
                self.close();
                if parenthesised {
                    self.out.push(')');
                }
                if *negated {
                    self.close();
                }
            }
            Scalar::Quantified(quantified) => self.quantified(quantified)?,
            Scalar::Array(ty, list) => {
                self.out.push_str("ARRAY[");
                self.separated(list)?;
                self.out.push(']');
                if list.is_empty() {
                    write!(self.out, "::{ty}").expect("strings take all");
                }
            }
            Scalar::Row(list) => {
                self.out.push_str("ROW(");
                self.separated(list)?;
                self.out.push(')');
            }
            Scalar::Parameter(..) | Scalar::CaseValue(_) | Scalar::Field(..) => return None,
        }
        Some(())
    }

    /// A parenthesis of the plain form only.
    fn open(&mut self) {
        if !self.pretty {
            self.out.push('(');
        }
    }

    fn close(&mut self) {
        if !self.pretty {
            self.out.push(')');
        }
    }

    /// An operand, in the parentheses that the pretty form needs.
    fn operand(&mut self, scalar: &Scalar, implicit: bool, parent: Parent<'_>) -> Option<()> {
        let parenthesised = self.pretty && !is_simple(scalar, parent);
        if parenthesised {
            self.out.push('(');
        }
        self.scalar(scalar, implicit)?;
        if parenthesised {
            self.out.push(')');
        }
        Some(())
    }

    fn separated(&mut self, list: &[Scalar]) -> Option<()> {
        for (place, scalar) in list.iter().enumerate() {
            if place > 0 {
                self.out.push_str(", ");
            }
            self.scalar(scalar, true)?;
        }
        Some(())
    }

    fn list(&mut self, list: &[Scalar], word: &str, parent: Parent<'_>) -> Option<()> {
        self.open();
        for (place, scalar) in list.iter().enumerate() {
            if place > 0 {
                self.out.push_str(word);
            }
            self.operand(scalar, false, parent)?;
        }
        self.close();
        Some(())
    }

    fn test(&mut self, argument: &Scalar, test: &str) -> Option<()> {
        self.open();
        self.operand(argument, true, Parent::Other)?;
        self.out.push_str(test);
        self.close();
        Some(())
    }

    /// The first operands of an operator, of which a chain has many.
    fn operation(&mut self, call: &Call, count: usize) -> Option<()> {
        let symbol = call.function.operator.as_deref()?;
        self.open();
        match count {
            1 => {
                write!(self.out, "{symbol} ").expect("strings take all");
                self.operand(&call.arguments[0], true, Parent::Operator("", true))?;
            }
            _ => {
                if count > 2 {
                    let parenthesised = self.pretty && !binds_as_tightly(symbol, symbol, true);
                    if parenthesised {
                        self.out.push('(');
                    }
                    self.operation(call, count - 1)?;
                    if parenthesised {
                        self.out.push(')');
                    }
                } else {
                    self.operand(&call.arguments[0], true, Parent::Operator(symbol, true))?;
                }
                write!(self.out, " {symbol} ").expect("strings take all");
                self.operand(&call.arguments[count - 1], true, Parent::Operator(symbol, false))?;
            }
        }
        self.close();
        Some(())
    }

    fn call(&mut self, call: &Call) -> Option<()> {
        if call.function.variadic || call.function.kind != FunctionKind::Scalar {
            return None;
        }
        write!(self.out, "{}(", quote_name(&call.function.name)).expect("strings take all");
        self.separated(&call.arguments)?;
        self.out.push(')');
        Some(())
    }

    fn cast(&mut self, cast: &Cast, implicit: bool) -> Option<()> {
        match &cast.argument {
            // A literal whose type only the session can decide.
            Scalar::Constant(Type { id: TypeId::UNKNOWN, .. }, Value::Text(text)) => {
                write!(self.out, "{}::{}", quote_literal(text), cast.ty).expect("strings take all");
                return Some(());
            }
            argument if cast.implicit && !implicit => return self.operand(argument, false, Parent::Cast),
            Scalar::Constant(ty, value) if ty.id == cast.ty.id && ty.modifier < 0 => {
                self.constant(*ty, value, false);
            }
            argument => {
                self.open();
                self.operand(argument, false, Parent::Cast)?;
                self.close();
            }
        }
        write!(self.out, "::{}", cast.ty).expect("strings take all");
        Some(())
    }

    fn constant(&mut self, ty: Type, value: &Value, labelled: bool) {
        let mut written = String::new();
        let is_labelled = match value {
            Value::Null => {
                self.out.push_str("NULL");
                true
            }
            Value::Boolean(value) => {
                self.out.push_str(if *value { "true" } else { "false" });
                false
            }
            value => {
                text::write_any(value, ty, &TextStyle::DEFAULT, &mut written);
                let is_number = written.bytes().all(|byte| byte.is_ascii_digit() || b"+-eE.".contains(&byte));
                match ty.id {
                    TypeId::INT4 if !written.starts_with('-') => {
                        self.out.push_str(&written);
                        false
                    }
                    TypeId::NUMERIC if is_number => {
                        match written.starts_with('-') {
                            true => write!(self.out, "({written})").expect("strings take all"),
                            false => self.out.push_str(&written),
                        }
                        !written.contains(['e', 'E', '.']) || ty.modifier >= 0
                    }
                    _ => {
                        self.out.push_str(&quote_literal(&written));
                        ty.id != TypeId::UNKNOWN
                    }
                }
            }
        };
        if is_labelled && labelled {
            write!(self.out, "::{ty}").expect("strings take all");
        }
    }

    fn quantified(&mut self, quantified: &Quantified) -> Option<()> {
        let symbol = quantified.function.operator.as_deref()?;
        self.open();
        self.operand(&quantified.argument, true, Parent::Other)?;
        write!(self.out, " {symbol} {} (", if quantified.all { "ALL" } else { "ANY" })
            .expect("strings take all");
        match &quantified.values {
            Values::Array(array) => self.operand(array, true, Parent::Other)?,
            // The values have a type of their own if all of them are cast to that of the operator without a change.
            Values::List(list) => match list.iter().map(unchanged).collect::<Option<Vec<&Scalar>>>() {
                Some(inner) if !inner.is_empty() => {
                    let ty = list[0].ty(self.columns).array()?;
                    self.open();
                    self.out.push_str("ARRAY[");
                    let inner: Vec<Scalar> = inner.into_iter().cloned().collect();
                    self.separated(&inner)?;
                    self.out.push(']');
                    self.close();
                    write!(self.out, "::{ty}").expect("strings take all");
                }
                _ => {
                    self.out.push_str("ARRAY[");
                    self.separated(list)?;
                    self.out.push(']');
                }
            },
        }
        self.out.push(')');
        self.close();
        Some(())
    }

    /// CASE, each part on a line of its own.
    fn case(&mut self, case: &Case) -> Option<()> {
        self.line("CASE");
        self.indent += 4;
        if let Some(operand) = &case.operand {
            self.out.push(' ');
            self.scalar(operand, true)?;
        }
        for (condition, result) in &case.arms {
            self.line("WHEN ");
            match (&case.operand, condition) {
                (None, condition) => self.scalar(condition, false)?,
                // The value that the operand is compared with.
                (Some(_), Scalar::Call(call)) if call.as_operator && call.arguments.len() == 2 => {
                    self.scalar(&call.arguments[1], false)?;
                }
                (Some(_), _) => return None,
            }
            self.out.push_str(" THEN ");
            self.scalar(result, true)?;
        }
        self.line("ELSE ");
        self.scalar(&case.otherwise, true)?;
        self.indent -= 4;
        self.line("END");
        Some(())
    }

    /// A word at the beginning of a line.
    fn line(&mut self, word: &str) {
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', self.indent));
        self.out.push_str(word);
    }
}

/// The operand of a cast that changes nothing but the type.
fn unchanged(scalar: &Scalar) -> Option<&Scalar> {
    match scalar {
        Scalar::Cast(cast) if cast.implicit && cast.function.is_none() => Some(&cast.argument),
        _ => None,
    }
}

/// Whether an operand needs no parentheses in the pretty form.
fn is_simple(scalar: &Scalar, parent: Parent<'_>) -> bool {
    match scalar {
        Scalar::Call(call) if call.as_operator => match (parent, call.function.operator.as_deref()) {
            (Parent::Operator(outer, is_first), Some(inner)) => {
                call.arguments.len() >= 2 && binds_as_tightly(inner, outer, is_first)
            }
            (Parent::And | Parent::Or | Parent::Not, _) => true,
            _ => false,
        },
        Scalar::IsNull(..) | Scalar::Test(..) | Scalar::Distinct(_, false) => {
            matches!(parent, Parent::And | Parent::Or | Parent::Not)
        }
        Scalar::And(_) | Scalar::Not(_) | Scalar::Distinct(_, true) => {
            matches!(parent, Parent::And | Parent::Or)
        }
        Scalar::Or(_) => matches!(parent, Parent::Or),
        Scalar::Quantified(_) => false,
        Scalar::Cast(cast) if cast.function.is_none() => {
            matches!(cast.argument, Scalar::Constant(..)) || is_simple(&cast.argument, Parent::Cast)
        }
        _ => true,
    }
}

/// Whether an operator within another one needs no parentheses: for operators with a commonly known precedence.
fn binds_as_tightly(inner: &str, outer: &str, is_first: bool) -> bool {
    let level = |symbol: &str| match symbol {
        "+" | "-" => Some(1),
        "*" | "/" | "%" => Some(2),
        _ => None,
    };
    match (level(inner), level(outer)) {
        (Some(inner), Some(outer)) => inner > outer || inner == outer && is_first,
        _ => false,
    }
}
