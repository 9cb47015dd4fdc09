//! What a plan is about to read, for the predicate log of its transaction.
//!
//! Every scan of an optimised plan is noted with the columns it yields and the conditions that lead to
//! it, before the plan runs: as one predicate, however many rows it comes to and whichever way they
//! are found (seed 000 §2.2.3). Conditions that say nothing about one column and literals are left out,
//! which makes the predicate wider than what is read, never narrower: the columns they look at are
//! among those that the scan yields.

use crate::scan::FirnTable;
use crate::types;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, TableScan};
use firn_base::{ColumnId, ColumnSet, SqlType, Value};
use firn_storage::{summary, summary_is_exact};
use firn_txn::catalog::TableDef;
use firn_txn::{Condition, Transaction};

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
    transaction.note_scan(table.table(), &implied(definition, &scan.filters), columns);
}

/// The conditions on single columns that predicates imply, all of them together.
pub(crate) fn implied(definition: &TableDef, predicates: &[Expr]) -> Vec<Condition> {
    let parts = predicates.iter().flat_map(split_conjunction);
    parts.flat_map(|part| conditions(definition, part)).collect()
}

/// Whether a predicate narrows what is noted.
pub(crate) fn narrows(definition: &TableDef, predicate: &Expr) -> bool {
    split_conjunction(predicate).into_iter().any(|part| !conditions(definition, part).is_empty())
}

/// The conditions that a predicate implies.
fn conditions(definition: &TableDef, predicate: &Expr) -> Vec<Condition> {
    let one = match predicate {
        // What IN is made of, if its list is short.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            match (&conditions(definition, left)[..], &conditions(definition, right)[..]) {
                ([one], [other]) if one.column == other.column => Some(either(*one, *other)),
                _ => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (left.as_ref(), right.as_ref()) {
            (Expr::Column(_), Expr::Literal(scalar, _)) => compared(definition, left, *op, scalar),
            (Expr::Literal(scalar, _), Expr::Column(_)) => {
                op.swap().and_then(|swapped| compared(definition, right, swapped, scalar))
            }
            _ => None,
        },
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let ends = [(Operator::GtEq, low), (Operator::LtEq, high)];
            return ends
                .into_iter()
                .filter_map(|(operator, end)| match end.as_ref() {
                    Expr::Literal(scalar, _) => compared(definition, expr, operator, scalar),
                    _ => None,
                })
                .collect();
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let each = list.iter().map(|item| match item {
                Expr::Literal(scalar, _) => compared(definition, expr, Operator::Eq, scalar),
                _ => None,
            });
            each.collect::<Option<Vec<Condition>>>().and_then(|each| each.into_iter().reduce(either))
        }
        Expr::Like(Like { negated: false, expr, pattern, escape_char: None, case_insensitive: false }) => {
            match pattern.as_ref() {
                Expr::Literal(scalar, _) => begins_like(definition, expr, scalar),
                _ => None,
            }
        }
        Expr::IsNotNull(expr) => {
            column(definition, expr).map(|(column, _)| Condition { column, low: 0, high: u64::MAX })
        }
        _ => None,
    };
    one.into_iter().collect()
}

/// What holds if one of two conditions on a column does.
fn either(one: Condition, other: Condition) -> Condition {
    Condition { low: one.low.min(other.low), high: one.high.max(other.high), ..one }
}

/// The column that an expression is, and its type.
fn column(definition: &TableDef, expression: &Expr) -> Option<(ColumnId, SqlType)> {
    let Expr::Column(column) = expression else { return None };
    let (id, column) = definition.column(&column.name)?;
    Some((id, column.ty))
}

/// `expression operator scalar`, if the scalar is of just the column's type.
fn compared(
    definition: &TableDef,
    expression: &Expr,
    operator: Operator,
    scalar: &ScalarValue,
) -> Option<Condition> {
    let (column, ty) = column(definition, expression)?;
    match ty {
        // Plans compare zeros and NaNs in another order than keys do.
        SqlType::Real | SqlType::Double => return None,
        // And blanks at the end, which keys leave out.
        SqlType::Char(_) if operator != Operator::Eq => return None,
        _ => {}
    }
    let value = fitting(scalar, ty)?;
    let at = summary(ty, &value.as_cell(ty))?;
    let (all, exact) = (Condition { column, low: 0, high: u64::MAX }, summary_is_exact(ty));
    Some(match operator {
        Operator::Eq => Condition { low: at, high: at, ..all },
        Operator::GtEq => Condition { low: at, ..all },
        Operator::LtEq => Condition { high: at, ..all },
        // Where other values have the same summary, it stays in.
        Operator::Gt => Condition { low: if exact { at.checked_add(1)? } else { at }, ..all },
        Operator::Lt => Condition { high: if exact { at.checked_sub(1)? } else { at }, ..all },
        _ => return None,
    })
}

/// `expression LIKE pattern`, by the characters before the pattern's first wildcard.
fn begins_like(definition: &TableDef, expression: &Expr, pattern: &ScalarValue) -> Option<Condition> {
    let (column, ty) = column(definition, expression)?;
    if !matches!(ty, SqlType::Text | SqlType::Varchar(_)) {
        return None;
    }
    let pattern = pattern.try_as_str().flatten()?;
    let prefix = pattern.split(['%', '_', '\\']).next().filter(|prefix| !prefix.is_empty())?;
    let at = |text: &str| summary(ty, &firn_base::Cell::text(text));
    // Whatever follows the prefix, up to the last that eight bytes can tell.
    let known = at(prefix)?;
    let rest = 8usize.saturating_sub(prefix.len()) * 8;
    let high = if rest == 0 { known } else { known | (u64::MAX >> (64 - rest)) };
    prefix.bytes().all(|byte| byte > 1).then_some(Condition { column, low: known, high })
}

/// The scalar as a value of exactly this type, if it is one.
fn fitting(scalar: &ScalarValue, ty: SqlType) -> Option<Value> {
    if scalar.is_null() || scalar.data_type() != types::data_type(ty) {
        return None;
    }
    types::value(scalar).ok()
}
