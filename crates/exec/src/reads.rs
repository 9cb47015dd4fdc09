//! What a plan is about to read, for the predicate log of its transaction.
//!
//! Every scan of an optimised plan is noted with the columns it yields and the conditions that lead to
//! it, before the plan runs: as one predicate, however many rows it comes to and whichever way they
//! are found (seed 000 §2.2.3). What is not about one column and literals is left out, which makes the predicate wider than
//! what is read, never narrower: the columns that it looks at are among those that the scan yields. Comparisons of
//! floating-point numbers are a little wider than they need be.

use crate::scan::FirnTable;
use crate::types;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, TableScan};
use firn_base::{ColumnId, ColumnSet, SqlType, Value};
use firn_storage::{StringRange, comparisons_are_exact, summary, summary_is_exact};
use firn_txn::catalog::TableDef;
use firn_txn::{Restriction, Transaction};

/// Notes in a transaction what a plan reads, if that is to be validated.
pub(crate) fn note(plan: &LogicalPlan, transaction: &Transaction) -> Result<()> {
    if !transaction.notes_reads() {
        return Ok(());
    }
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = firn_table(scan)
        {
            note_scan(scan, &table, transaction);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The table of ours that a scan is of.
pub(crate) fn firn_table(scan: &TableScan) -> Option<FirnTable> {
    let provider = source_as_provider(&scan.source).ok()?;
    let provider: &dyn std::any::Any = provider.as_ref();
    provider.downcast_ref::<FirnTable>().cloned()
}

fn note_scan(scan: &TableScan, table: &FirnTable, transaction: &Transaction) {
    let definition = table.definition();
    let visible: Vec<ColumnId> = definition.visible_columns().map(|(id, _)| id).collect();
    let columns: ColumnSet = match &scan.projection {
        // A position behind the columns is the row id's.
        Some(wanted) => wanted.iter().filter_map(|position| visible.get(*position).copied()).collect(),
        None => visible.iter().copied().collect(),
    };
    let columns_of = Columns(&|expression| column(definition, expression));
    transaction.note_scan(table.table(), &columns_of.restrictions(&scan.filters), columns);
}

/// What predicates ask of single columns, all of them together.
pub(crate) fn implied(definition: &TableDef, predicates: &[Expr]) -> Vec<Restriction> {
    Columns(&|expression| column(definition, expression)).restrictions(predicates)
}

/// Whether a predicate narrows what is noted.
pub(crate) fn narrows(definition: &TableDef, predicate: &Expr) -> bool {
    let columns = Columns(&|expression| column(definition, expression));
    !columns.restrictions(std::slice::from_ref(predicate)).is_empty()
}

/// What tells columns of a table from other expressions: which one it is, and its type.
pub(crate) struct Columns<'a>(pub &'a dyn Fn(&Expr) -> Option<(ColumnId, SqlType)>);

impl Columns<'_> {
    /// What predicates ask of single columns, all of them together.
    pub(crate) fn restrictions(&self, predicates: &[Expr]) -> Vec<Restriction> {
        let parts = predicates.iter().flat_map(split_conjunction);
        parts.filter_map(|part| self.restriction(part)).collect()
    }

    /// What a predicate asks of the only column that it is about, if that is told by literals.
    pub(crate) fn restriction(&self, predicate: &Expr) -> Option<Restriction> {
        match predicate {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                Restriction::any([self.restriction(left)?, self.restriction(right)?])
            }
            // Below OR; elsewhere a conjunction comes in its parts. One part alone is wider, but narrow enough.
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                match (self.restriction(left), self.restriction(right)) {
                    (Some(left), Some(right)) => left.and(&right).or(Some(left)),
                    (one, other) => one.or(other),
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (left.as_ref(), right.as_ref()) {
                (_, Expr::Literal(scalar, _)) => self.compared(left, *op, scalar),
                (Expr::Literal(scalar, _), _) => self.compared(right, op.swap()?, scalar),
                _ => None,
            },
            Expr::Between(Between { expr, negated, low, high }) => {
                let [first, last] = [low, high].map(|end| match end.as_ref() {
                    Expr::Literal(scalar, _) => Some(scalar),
                    _ => None,
                });
                let end = |operator, scalar: Option<&ScalarValue>| self.compared(expr, operator, scalar?);
                if *negated {
                    return Restriction::any([end(Operator::Lt, first)?, end(Operator::Gt, last)?]);
                }
                match (end(Operator::GtEq, first), end(Operator::LtEq, last)) {
                    (Some(above), Some(below)) => above.and(&below),
                    (one, other) => one.or(other),
                }
            }
            Expr::InList(InList { expr, list, negated }) => {
                let each = list.iter().map(|item| match item {
                    Expr::Literal(scalar, _) => self.compared(expr, Operator::Eq, scalar),
                    _ => None,
                });
                let any = Restriction::any(each.collect::<Option<Vec<Restriction>>>()?)?;
                if *negated { self.negation(expr, &any) } else { Some(any) }
            }
            Expr::Like(Like {
                negated: false,
                expr,
                pattern,
                escape_char: None,
                case_insensitive: false,
            }) => match pattern.as_ref() {
                Expr::Literal(scalar, _) => self.begins_like(expr, scalar),
                _ => None,
            },
            Expr::IsNotNull(expr) | Expr::IsNotUnknown(expr) => {
                Some(Restriction::not_null((self.0)(expr)?.0))
            }
            Expr::IsNull(expr) | Expr::IsUnknown(expr) => Some(Restriction::null((self.0)(expr)?.0)),
            Expr::IsTrue(flag) => self.flag(flag, true),
            Expr::IsFalse(flag) | Expr::Not(flag) => self.flag(flag, false),
            Expr::IsNotTrue(flag) => self.flag_or_null(flag, false),
            Expr::IsNotFalse(flag) => self.flag_or_null(flag, true),
            Expr::Column(_) => self.flag(predicate, true),
            _ => None,
        }
    }

    /// A column of booleans that is true, or false.
    fn flag(&self, expression: &Expr, wanted: bool) -> Option<Restriction> {
        self.compared(expression, Operator::Eq, &ScalarValue::Boolean(Some(wanted)))
    }

    fn flag_or_null(&self, expression: &Expr, wanted: bool) -> Option<Restriction> {
        let flag = self.flag(expression, wanted)?;
        let null = Restriction::null(flag.column());
        Restriction::any([flag, null])
    }

    /// The values of the expression that are not among these, and not NULL.
    fn negation(&self, expression: &Expr, of: &Restriction) -> Option<Restriction> {
        let (column, ty) = (self.0)(expression)?;
        let is_exact = comparisons_are_exact(ty) || of.strings().is_some();
        Some(if is_exact { of.others() } else { Restriction::not_null(column) })
    }

    /// `expression operator scalar`, if the expression is a column and the scalar of just its type.
    fn compared(&self, expression: &Expr, operator: Operator, scalar: &ScalarValue) -> Option<Restriction> {
        let (column, ty) = (self.0)(expression)?;
        let value = fitting(scalar, ty)?;
        match ty {
            SqlType::Text | SqlType::Varchar(_) | SqlType::Bytea => {
                string_restriction(column, operator, value.as_cell(ty).bytes())
            }
            _ => restriction_of(column, ty, operator, &value),
        }
    }

    /// `expression LIKE pattern`, by the characters before the pattern's first wildcard.
    fn begins_like(&self, expression: &Expr, pattern: &ScalarValue) -> Option<Restriction> {
        let (column, ty) = (self.0)(expression)?;
        if !matches!(ty, SqlType::Text | SqlType::Varchar(_)) {
            return None;
        }
        let pattern = pattern.try_as_str().flatten()?;
        let prefix = plain_beginning(pattern).filter(|prefix| !prefix.is_empty())?;
        Some(Restriction::of_strings(column, StringRange::prefixed(prefix.as_bytes())))
    }
}

/// The characters before a pattern's first wildcard.
fn plain_beginning(pattern: &str) -> Option<&str> {
    pattern.split(['%', '_', '\\']).next()
}

/// Whether a pattern asks for nothing but what strings begin with, or are.
pub(crate) fn is_prefix(like: &Like) -> bool {
    let Expr::Literal(pattern, _) = like.pattern.as_ref() else { return false };
    let pattern = pattern.try_as_str().flatten();
    let is_prefix = |pattern: &str| {
        let rest = plain_beginning(pattern).map(|beginning| &pattern[beginning.len()..]);
        matches!(rest, Some("" | "%"))
    };
    !like.negated && !like.case_insensitive && like.escape_char.is_none() && pattern.is_some_and(is_prefix)
}

/// What `column operator string` asks of a column of strings, to the last byte.
fn string_restriction(column: ColumnId, operator: Operator, string: &[u8]) -> Option<Restriction> {
    let range = match operator {
        Operator::Eq | Operator::NotEq => StringRange::only(string),
        Operator::Gt => StringRange::after(string),
        Operator::GtEq => StringRange::from(string),
        Operator::Lt => StringRange::before(string),
        Operator::LtEq => StringRange::until(string),
        _ => return None,
    };
    let restriction = Restriction::of_strings(column, range);
    Some(if operator == Operator::NotEq { restriction.others() } else { restriction })
}

/// What `column operator value` asks of a column, whose type the value has; of strings as far as summaries tell.
pub(crate) fn restriction_of(
    column: ColumnId,
    ty: SqlType,
    operator: Operator,
    value: &Value,
) -> Option<Restriction> {
    match ty {
        SqlType::Real | SqlType::Double => return float_restriction(column, operator, value),
        // Plans compare blanks at the end, which keys leave out.
        SqlType::Char(_) if operator != Operator::Eq => return None,
        _ => {}
    }
    let at = summary(ty, &value.as_cell(ty))?;
    let within = |low, high| Restriction::within(column, low, high);
    // Where other values have the same summary, it stays in.
    let beyond = |next: Option<u64>| if summary_is_exact(ty) { next } else { Some(at) };
    let none = Restriction::within(column, 1, 0);
    Some(match operator {
        Operator::Eq => within(at, at),
        Operator::NotEq if summary_is_exact(ty) => within(at, at).others(),
        Operator::NotEq => Restriction::not_null(column),
        Operator::GtEq => within(at, u64::MAX),
        Operator::LtEq => within(0, at),
        Operator::Gt => beyond(at.checked_add(1)).map_or(none, |low| within(low, u64::MAX)),
        Operator::Lt => beyond(at.checked_sub(1)).map_or(none, |high| within(0, high)),
        _ => return None,
    })
}

/// As [`restriction_of`], for floats. Summaries have them in PostgreSQL's order, in which zeros are equal, and so are NaNs, which are
/// the greatest. Plans may tell them apart by their signs: whichever of them some order has there is admitted.
fn float_restriction(column: ColumnId, operator: Operator, value: &Value) -> Option<Restriction> {
    let (ty, is_zero, is_nan, nan) = match *value {
        Value::Real(value) => (SqlType::Real, value == 0.0, value.is_nan(), Value::Real(f32::NAN)),
        Value::Double(value) => (SqlType::Double, value == 0.0, value.is_nan(), Value::Double(f64::NAN)),
        _ => return None,
    };
    let at = summary(ty, &value.as_cell(ty))?;
    let nan = summary(ty, &nan.as_cell(ty))?;
    let within = |low, high| Restriction::within(column, low, high);
    let beyond = u64::from(!is_zero);
    Some(match operator {
        Operator::Eq => within(at, at),
        Operator::NotEq | Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq if is_nan => {
            Restriction::not_null(column)
        }
        Operator::NotEq if is_zero => Restriction::not_null(column),
        Operator::NotEq => within(at, at).others(),
        Operator::Gt => within(at + beyond, u64::MAX),
        Operator::GtEq => within(at, u64::MAX),
        Operator::Lt => Restriction::any([within(0, at - beyond), within(nan, nan)])?,
        Operator::LtEq => Restriction::any([within(0, at), within(nan, nan)])?,
        _ => return None,
    })
}

/// The column that an expression is, and its type.
fn column(definition: &TableDef, expression: &Expr) -> Option<(ColumnId, SqlType)> {
    let Expr::Column(column) = expression else { return None };
    let (id, column) = definition.column(&column.name)?;
    Some((id, column.ty.sql_type()))
}

/// The scalar as a value of exactly this type, if it is one.
fn fitting(scalar: &ScalarValue, ty: SqlType) -> Option<Value> {
    if scalar.is_null() || scalar.data_type() != types::data_type(ty) {
        return None;
    }
    types::value(scalar).ok()
}
