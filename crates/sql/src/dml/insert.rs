//! Binding of INSERT.

use super::{assigned, assignments, condition, is_default, named_column, refuse_duplicates};
use super::{returning, side_by_side, storage_positions, target_set};
use crate::bind::Binder;
use crate::statement::{Overriding, fold};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableObject};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType, TimeZoneSetting, Value, coerce, numeric, text};
use firn_exec::dml::{
    Change, ConflictAction, DmlPlan, Insert, InsertSource, InsertValue, OnConflict, Target,
};
use firn_exec::error::from_datafusion;
use firn_exec::expression::RowExpression;
use firn_txn::Catalog;
use firn_txn::catalog::TableDef;
use std::borrow::Cow;

pub(super) fn plan(
    binder: &Binder<'_>,
    catalog: &Catalog,
    insert: &ast::Insert,
    with: Option<&ast::With>,
    overriding: Option<Overriding>,
) -> Result<DmlPlan> {
    let foreign = insert.or.is_some()
        || insert.ignore
        || insert.overwrite
        || insert.replace_into
        || insert.partitioned.is_some()
        || !insert.assignments.is_empty()
        || !insert.after_columns.is_empty()
        || insert.output.is_some();
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT into anything but a table"));
    };
    if foreign {
        return Err(Error::unsupported("this form of INSERT"));
    }
    let table = binder.table(name)?;
    let set = target_set(binder, catalog, &table)?;
    let columns = if insert.columns.is_empty() {
        table.visible_columns().map(|(id, _)| id).collect()
    } else {
        let named = |name| named_column(&table, name).map(|(id, _)| id);
        insert.columns.iter().map(named).collect::<Result<Vec<ColumnId>>>()?
    };
    refuse_duplicates(&table, &columns)?;
    let listed = !insert.columns.is_empty();
    let (columns, source) = match &insert.source {
        None => (Vec::new(), InsertSource::Values(vec![Vec::new()])),
        Some(query) => {
            let query = under(with, query);
            Source { binder, target: set.root(), table: &table, listed, overriding }.bind(columns, &query)?
        }
    };
    let alias = insert.table_alias.as_ref().map_or_else(|| table.name.clone(), |alias| fold(&alias.alias));
    let on_conflict = match &insert.on {
        None => None,
        Some(ast::OnInsert::OnConflict(on)) => Some(on_conflict(binder, set.root(), &table, &alias, on)?),
        Some(_) => return Err(Error::unsupported("ON DUPLICATE KEY UPDATE")),
    };
    let returning = match &insert.returning {
        None => None,
        Some(items) => {
            let scan = binder.table_scan_with_row_id(&table, Some(&alias))?;
            let ids = storage_positions(&table);
            Some(returning::plan(binder, items, scan.schema(), &|column| ids.get(column).copied())?)
        }
    };
    returning::refuse_reading(returning.as_ref(), &set)?;
    Ok(DmlPlan {
        set,
        change: Change::Insert(Insert { columns, source, goes_on: None, on_conflict }),
        returning,
        picked: Vec::new(),
        parameters: binder.parameter_types()?,
    })
}

/// A query below the WITH that stands before the INSERT.
fn under<'q>(with: Option<&ast::With>, query: &'q ast::Query) -> Cow<'q, ast::Query> {
    let Some(outer) = with else { return Cow::Borrowed(query) };
    let mut below = query.clone();
    if below.with.is_some() {
        below.body = Box::new(SetExpr::Query(Box::new(query.clone())));
        below.order_by = None;
        below.limit_clause = None;
        below.fetch = None;
    }
    below.with = Some(outer.clone());
    Cow::Owned(below)
}

/// VALUES as SELECTs, in which sub-queries are planned.
fn as_selects(values: &ast::Values) -> Result<SetExpr> {
    let mut all: Option<SetExpr> = None;
    for row in &values.rows {
        let mut one = crate::parse::parse_query("SELECT 1")?;
        let SetExpr::Select(select) = one.body.as_mut() else { unreachable!("SELECT 1 is a SELECT") };
        select.projection = row.iter().cloned().map(ast::SelectItem::UnnamedExpr).collect();
        all = Some(match all {
            None => *one.body,
            Some(rows) => SetExpr::SetOperation {
                left: Box::new(rows),
                op: ast::SetOperator::Union,
                set_quantifier: ast::SetQuantifier::All,
                right: one.body,
            },
        });
    }
    all.ok_or_else(|| Error::new(SqlState::SYNTAX_ERROR, "VALUES needs a row"))
}

/// What is inserted, and into which columns.
struct Source<'b> {
    binder: &'b Binder<'b>,
    target: &'b Target,
    table: &'b Arc<TableDef>,
    /// Whether the columns were written out.
    listed: bool,
    overriding: Option<Overriding>,
}

impl Source<'_> {
    fn bind(&self, mut columns: Vec<ColumnId>, query: &ast::Query) -> Result<(Vec<ColumnId>, InsertSource)> {
        let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
        if let (SetExpr::Values(values), true) = (query.body.as_ref(), is_plain) {
            let width = values.rows.first().map_or(0, |row| row.len());
            if values.rows.iter().any(|row| row.len() != width) {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
            }
            fit(&mut columns, width, self.listed)?;
            let has_subquery = values.rows.iter().any(|row| row.iter().any(contains_query));
            if !has_subquery {
                let rows =
                    values.rows.iter().map(|row| self.row_of_values(&columns, row)).collect::<Result<_>>()?;
                return Ok((columns, InsertSource::Values(rows)));
            }
        }
        let mut query = Cow::Borrowed(query);
        if let (SetExpr::Values(values), true) = (query.body.as_ref(), is_plain) {
            let body = as_selects(values)?;
            *query.to_mut().body = body;
        }
        let described: Vec<(String, SqlType)> = columns
            .iter()
            .map(|column| &self.table.columns[column.index()])
            .map(|column| (column.name.clone(), column.ty.sql_type()))
            .collect();
        let plan = self.binder.query_for_insert(&query, &described)?;
        fit(&mut columns, plan.schema().fields().len(), self.listed)?;
        let passed_over: Vec<bool> = columns.iter().map(|column| self.is_passed_over(*column)).collect();
        for (column, passed_over) in columns.iter().zip(&passed_over) {
            if !passed_over {
                self.refuse_generated(*column)?;
            }
        }
        if !passed_over.contains(&true) {
            return Ok((columns, InsertSource::Query(Box::new(plan))));
        }
        let kept = |position: &usize| !passed_over[*position];
        let outputs = plan.schema().columns();
        let outputs: Vec<Expr> =
            (0..outputs.len()).filter(kept).map(|position| Expr::Column(outputs[position].clone())).collect();
        let columns = (0..columns.len()).filter(kept).map(|position| columns[position]).collect();
        let plan = LogicalPlanBuilder::from(plan)
            .project(outputs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        Ok((columns, InsertSource::Query(Box::new(plan))))
    }

    fn row_of_values(&self, columns: &[ColumnId], row: &[ast::Expr]) -> Result<Vec<InsertValue>> {
        columns
            .iter()
            .zip(row)
            .map(|(column, expression)| {
                if is_default(expression) || self.is_passed_over(*column) {
                    return Ok(InsertValue::Default);
                }
                self.refuse_generated(*column)?;
                let described = &self.table.columns[column.index()];
                if let Some(value) = literal(expression, described.ty.sql_type()) {
                    return Ok(InsertValue::Expression(RowExpression::constant(
                        value,
                        described.ty.sql_type(),
                    )));
                }
                let schema = DFSchema::empty();
                assigned(self.binder, expression, &schema, &described.name, described.ty.sql_type(), &|_| {
                    None
                })
                .map(InsertValue::Expression)
            })
            .collect()
    }

    /// Whether the column takes its default whatever is given for it.
    fn is_passed_over(&self, column: ColumnId) -> bool {
        self.overriding == Some(Overriding::User) && self.table.columns[column.index()].identity.is_some()
    }

    fn refuse_generated(&self, column: ColumnId) -> Result<()> {
        match self.overriding {
            Some(Overriding::System) => Ok(()),
            _ => self.target.refuse_generated(column, true),
        }
    }
}

/// Lets go of the columns that get no value; fails if the numbers do not fit.
fn fit(columns: &mut Vec<ColumnId>, values: usize, listed: bool) -> Result<()> {
    if values > columns.len() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
    }
    if values < columns.len() && listed {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    columns.truncate(values);
    Ok(())
}

/// The value of a plain literal for a column of type `ty`, without binding it: long lists of rows
/// consist of nothing else. `None` for what is no literal or does not fit; binding says why.
fn literal(expression: &ast::Expr, ty: SqlType) -> Option<Value> {
    let (value, negative) = match expression {
        ast::Expr::Value(value) => (&value.value, false),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match expr.as_ref() {
            ast::Expr::Value(value) if matches!(value.value, ast::Value::Number(..)) => (&value.value, true),
            _ => return None,
        },
        _ => return None,
    };
    let value = match value {
        ast::Value::Null => return Some(Value::Null),
        ast::Value::Boolean(value) => Value::Boolean(*value),
        ast::Value::Number(digits, _) => {
            if matches!(ty, SqlType::Real | SqlType::Double) {
                let sign = if negative { "-" } else { "" };
                return text::parse(&format!("{sign}{digits}"), ty, &TimeZoneSetting::UTC).ok();
            }
            let (unscaled, scale) = numeric::parse_exact(digits).ok()??;
            let unscaled = if negative { -unscaled } else { unscaled };
            match (scale, i64::try_from(unscaled)) {
                (0, Ok(whole)) => Value::BigInt(whole),
                _ => Value::Numeric { unscaled, scale },
            }
        }
        // A string has no type yet: it is read as the column's. Times may depend on the session.
        ast::Value::SingleQuotedString(string) if ty.is_string() => Value::Text(string.clone()),
        ast::Value::SingleQuotedString(string)
            if matches!(
                ty,
                SqlType::Boolean
                    | SqlType::SmallInt
                    | SqlType::Integer
                    | SqlType::BigInt
                    | SqlType::Numeric { .. }
                    | SqlType::Uuid
                    | SqlType::Bytea
            ) =>
        {
            return text::parse(string, ty, &TimeZoneSetting::UTC).ok();
        }
        _ => return None,
    };
    coerce::assign(value, ty, &TimeZoneSetting::UTC).ok()
}

/// Whether an expression holds a query.
fn contains_query(expression: &ast::Expr) -> bool {
    struct Finder;
    impl ast::Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Break(())
        }
    }
    ast::Visit::visit(expression, &mut Finder).is_break()
}

fn on_conflict(
    binder: &Binder<'_>,
    target: &Target,
    table: &Arc<TableDef>,
    alias: &str,
    on: &ast::OnConflict,
) -> Result<OnConflict> {
    let action = match &on.action {
        ast::OnConflictAction::DoNothing => ConflictAction::Nothing,
        ast::OnConflictAction::DoUpdate(update) => {
            if on.conflict_target.is_none() {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                )
                .with_hint("For example, ON CONFLICT (column_name)."));
            }
            do_update(binder, target, table, alias, update)?
        }
    };
    let (columns, constraint) = match &on.conflict_target {
        None => (None, None),
        Some(ast::ConflictTarget::Columns(names)) => {
            let named = |name: &ast::Ident| {
                named_column(table, &ast::ObjectName::from(vec![name.clone()])).map(|(id, _)| id)
            };
            (Some(names.iter().map(named).collect::<Result<Vec<_>>>()?), None)
        }
        Some(ast::ConflictTarget::OnConstraint(name)) => match name.0.last() {
            Some(ast::ObjectNamePart::Identifier(ident)) => (None, Some(fold(ident))),
            _ => return Err(Error::unsupported(format!("\"{name}\" as a constraint"))),
        },
    };
    OnConflict::new(target, columns.as_deref(), constraint.as_deref(), action)
}

/// DO UPDATE: expressions over the existing row and the one that was to be inserted.
fn do_update(
    binder: &Binder<'_>,
    target: &Target,
    table: &Arc<TableDef>,
    alias: &str,
    update: &ast::DoUpdate,
) -> Result<ConflictAction> {
    let existing = binder.table_scan_with_row_id(table, Some(alias))?;
    let excluded = binder.table_scan_with_row_id(table, Some("excluded"))?;
    let ids = storage_positions(table);
    // The hidden row ids are left out: nothing may refer to them.
    let visible = |schema: &DFSchema| {
        schema
            .iter()
            .take(ids.len())
            .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
            .collect::<Vec<_>>()
    };
    let mut both = visible(existing.schema());
    both.extend(visible(excluded.schema()));
    let schema = side_by_side(both)?;
    let positions = |column: usize| match column.checked_sub(ids.len()) {
        None => Some(ids[column]),
        Some(column) => ids.get(column).map(|id| table.columns.len() + id),
    };
    let mut columns = Vec::new();
    let mut values = Vec::new();
    for (column, value) in assignments(table, &update.assignments)? {
        let described = &table.columns[column.index()];
        columns.push(column);
        values.push(match value {
            None => None,
            Some(value) => {
                target.refuse_generated(column, false)?;
                Some(assigned(binder, &value, &schema, &described.name, described.ty.sql_type(), &positions)?)
            }
        });
    }
    let condition = match &update.selection {
        None => None,
        Some(selection) => Some(condition(binder, selection, &schema, &positions)?),
    };
    Ok(ConflictAction::Update { columns, values, condition })
}
