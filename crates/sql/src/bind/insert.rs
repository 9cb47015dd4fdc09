//! Queries that feed changes: what INSERT stores, which rows UPDATE and DELETE touch.

use super::context::{CHANGED_ROWS, WITH_ROW_ID};
use super::{Binder, analysis};
use crate::statement::fold;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, CastKind, DataType, ExactNumberInfo, ExcludeSelectItem, Ident, ObjectName, ObjectNamePart, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, TimezoneInfo, Value,
};
use firn_base::{Error, Result, SqlState, SqlType};
use firn_exec::ROW_ID_COLUMN;
use firn_exec::dml::ORDINAL_COLUMN;
use firn_exec::error::from_datafusion;

/// The query with its bare literals and untyped parameters, in VALUES or at the top of a select
/// list, cast to the types of the columns that they are for.
pub fn typed(query: &Query, columns: &[(String, SqlType)]) -> Result<Query> {
    let mut query = query.clone();
    type_outputs(&mut query.body, columns)?;
    Ok(query)
}

fn type_outputs(body: &mut SetExpr, columns: &[(String, SqlType)]) -> Result<()> {
    match body {
        SetExpr::Values(values) => {
            for row in &mut values.rows {
                if row.content.len() > columns.len() {
                    return Err(too_many());
                }
                for (expression, (_, ty)) in row.content.iter_mut().zip(columns) {
                    type_output(expression, *ty);
                }
            }
        }
        SetExpr::Select(select) => {
            for (item, (_, ty)) in select.projection.iter_mut().zip(columns) {
                match item {
                    SelectItem::UnnamedExpr(expression) => type_output(expression, *ty),
                    SelectItem::ExprWithAlias { expr, .. } => type_output(expr, *ty),
                    // Behind a wildcard positions are not known.
                    _ => break,
                }
            }
        }
        SetExpr::Query(query) => type_outputs(&mut query.body, columns)?,
        SetExpr::SetOperation { left, right, .. } => {
            type_outputs(left, columns)?;
            type_outputs(right, columns)?;
        }
        _ => {}
    }
    Ok(())
}

fn too_many() -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns")
}

fn type_output(expression: &mut ast::Expr, ty: SqlType) {
    let ast::Expr::Value(value) = &*expression else { return };
    let data_type = match (&value.value, ty) {
        // Fitting to a length is assignment's affair: a cast would cut without complaint.
        (_, ty) if ty.is_string() => DataType::Text,
        (Value::Placeholder(_), SqlType::Numeric { .. }) => DataType::Numeric(ExactNumberInfo::None),
        (Value::Placeholder(_) | Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_), ty) => {
            syntax_of(ty)
        }
        _ => return,
    };
    match &value.value {
        Value::Placeholder(_)
        | Value::SingleQuotedString(_)
        | Value::EscapedStringLiteral(_)
        | Value::DollarQuotedString(_) => {}
        _ => return,
    }
    let inner = std::mem::replace(expression, ast::Expr::Value(Value::Null.with_empty_span()));
    *expression = ast::Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(inner),
        data_type,
        format: None,
        array: false,
    };
}

/// A type as the syntax tree writes it.
pub fn syntax_of(ty: SqlType) -> DataType {
    match ty {
        SqlType::Boolean => DataType::Boolean,
        SqlType::SmallInt => DataType::SmallInt(None),
        SqlType::Integer => DataType::Integer(None),
        SqlType::BigInt => DataType::BigInt(None),
        SqlType::Real => DataType::Real,
        SqlType::Double => DataType::DoublePrecision,
        SqlType::NUMERIC => DataType::Numeric(ExactNumberInfo::None),
        SqlType::Numeric { precision, scale } => {
            DataType::Numeric(ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale)))
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => DataType::Text,
        SqlType::Bytea => DataType::Bytea,
        SqlType::Date => DataType::Date,
        SqlType::Time => DataType::Time(None, TimezoneInfo::None),
        SqlType::Timestamp => DataType::Timestamp(None, TimezoneInfo::None),
        SqlType::TimestampTz => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        SqlType::Interval => DataType::Interval { fields: None, precision: None },
        SqlType::Uuid => DataType::Uuid,
    }
}

/// The plan with its columns named and cast as the columns that they are to be stored in.
pub fn assign(plan: LogicalPlan, columns: &[(String, SqlType)], binder: &Binder<'_>) -> Result<LogicalPlan> {
    if plan.schema().fields().len() > columns.len() {
        return Err(too_many());
    }
    let zone = binder.zone()?;
    let assigned: Result<Vec<Expr>> = plan
        .schema()
        .columns()
        .into_iter()
        .zip(columns)
        .map(|(column, (name, ty))| {
            let column = Expr::Column(column);
            analysis::assign(column, plan.schema(), name, *ty, &binder.parameters, zone)
                .map(|expression| expression.alias(name))
                .map_err(|error| binder.error(error))
        })
        .collect();
    let assigned = assigned?;
    LogicalPlanBuilder::from(plan)
        .project(assigned)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

/// `SELECT outputs… FROM relation ORDER BY _ordinal` over the rows of a change.
pub fn changed_rows_query(relation: &str, outputs: &[SelectItem]) -> Result<Query> {
    let without_ordinal = |item: &SelectItem| {
        let mut item = item.clone();
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = &mut item {
            let ordinal = ObjectName::from(vec![Ident::new(ORDINAL_COLUMN)]);
            options.opt_exclude = Some(ExcludeSelectItem::Single(ordinal));
        }
        item
    };
    let marked = crate::statement::quote_ident(&format!("{relation}{CHANGED_ROWS}"));
    let mut query = crate::parse::parse_query(&format!("SELECT 1 FROM {marked} ORDER BY {ORDINAL_COLUMN}"))?;
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("it is a SELECT") };
    select.projection = outputs.iter().map(without_ordinal).collect();
    Ok(*query)
}

/// `[WITH …] SELECT outputs…, target._rowid FROM target, from… WHERE selection`.
pub fn row_source_query(
    with: Option<&ast::With>,
    target: &TableFactor,
    from: &[TableWithJoins],
    selection: Option<&ast::Expr>,
    outputs: &[SelectItem],
) -> Result<Query> {
    let mut target = target.clone();
    let TableFactor::Table { name, alias, .. } = &mut target else {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "the target of a change must be a table"));
    };
    let Some(ObjectNamePart::Identifier(last)) = name.0.last_mut() else {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "the target of a change must be a table"));
    };
    let known_as = match alias {
        Some(alias) => alias.name.clone(),
        None => last.clone(),
    };
    last.value.push(WITH_ROW_ID);

    // Only the target has a row id to leave out.
    let without_row_id = |item: &SelectItem| {
        let mut item = item.clone();
        let (options, of_target) = match &mut item {
            SelectItem::Wildcard(options) => (options, true),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                let of_target = matches!(
                    name.0.last(),
                    Some(ObjectNamePart::Identifier(ident)) if fold(ident) == fold(&known_as)
                );
                (options, of_target)
            }
            _ => return item,
        };
        if of_target {
            let row_id = ObjectName::from(vec![Ident::new(ROW_ID_COLUMN)]);
            options.opt_exclude = Some(ExcludeSelectItem::Single(row_id));
        }
        item
    };
    let mut projection: Vec<SelectItem> = outputs.iter().map(without_row_id).collect();
    projection.push(SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(vec![
        known_as,
        Ident::new(ROW_ID_COLUMN),
    ])));

    let mut tables = vec![TableWithJoins { relation: target, joins: Vec::new() }];
    tables.extend(from.iter().cloned());
    let mut query = crate::parse::parse_query("SELECT 1")?;
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("SELECT 1 is a SELECT") };
    select.projection = projection;
    select.from = tables;
    select.selection = selection.cloned();
    query.with = with.cloned();
    Ok(*query)
}
