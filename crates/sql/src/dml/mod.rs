//! Binding of INSERT, UPDATE and DELETE: from syntax trees to [`DmlPlan`]s.
//!
//! Expressions of the statement are bound as parts of queries or by themselves, so that they mean
//! what they would mean in SELECT; the changes themselves are `firn_exec`'s affair. DataFusion's own
//! plans for changes are never used: they lose conditions.

mod change;
mod insert;
mod picked;
mod returning;

use crate::bind::Binder;
use crate::parse::{depth_of, parse_expression};
use crate::statement::{Change, fold};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType, TableId};
use firn_exec::Table;
use firn_exec::dml::{DmlPlan, TargetSet, TextCompiler};
use firn_exec::error::from_datafusion;
use firn_exec::expression::RowExpression;
use firn_exec::locking::Picked;
use firn_txn::Catalog;
use firn_txn::catalog::{ColumnDef, TableDef};
use std::ops::ControlFlow;

/// Binds an INSERT, UPDATE or DELETE.
pub fn plan(binder: &Binder<'_>, catalog: &Catalog, change: &Change) -> Result<DmlPlan> {
    let (mut tree, mut with) = (change.tree.clone(), change.with.clone());
    let picked = picked::take(binder, &mut tree, &mut with)?;
    let with = with.as_ref();
    let mut plan = match &tree {
        ast::Statement::Insert(insert) => insert::plan(binder, catalog, insert, with, change.overriding),
        ast::Statement::Update(update) => change::plan_update(binder, catalog, update, with),
        ast::Statement::Delete(delete) => change::plan_delete(binder, catalog, delete, with),
        other => Err(Error::unsupported(format!("a change of rows by \"{other}\""))),
    }?;
    // Those that are left are the user's.
    let added: usize = picked.iter().map(Picked::parameters).sum();
    plan.parameters.truncate(plan.parameters.len() - added);
    plan.picked = picked;
    Ok(plan)
}

/// A table compiled for writing, with the tables that its foreign keys lead to.
pub fn target_set(binder: &Binder<'_>, catalog: &Catalog, table: &Arc<TableDef>) -> Result<Arc<TargetSet>> {
    TargetSet::compile(catalog, table, &CatalogText { binder })
}

/// Compiles what the catalog holds as text.
struct CatalogText<'b> {
    binder: &'b Binder<'b>,
}

impl CatalogText<'_> {
    fn parse(&self, text: &str) -> Result<ast::Expr> {
        let expression = parse_expression(text)?;
        self.binder.note_depth(depth_of(&expression)?);
        Ok(expression)
    }
}

impl TextCompiler for CatalogText<'_> {
    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<RowExpression> {
        let scan = self.binder.table_scan_with_row_id(table, None)?;
        let condition = self.binder.expression(&self.parse(condition)?, scan.schema())?;
        let ids = storage_positions(table);
        RowExpression::compile_or_delegate(&condition, scan.schema(), &|column| ids.get(column).copied())
    }

    fn default(&self, table: &Arc<TableDef>, column: ColumnId, expression: &str) -> Result<RowExpression> {
        let ColumnDef { name, ty, .. } = &table.columns[column.index()];
        assigned(self.binder, &self.parse(expression)?, &DFSchema::empty(), name, ty.sql_type(), &|_| None)
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        self.binder.physical_table(id)
    }
}

/// Where in a whole row of storage the visible columns stand.
fn storage_positions(table: &TableDef) -> Vec<usize> {
    table.visible_columns().map(|(id, _)| id.index()).collect()
}

/// An expression that is to be stored in a column. The writer makes the assignment's cast.
fn assigned(
    binder: &Binder<'_>,
    expression: &ast::Expr,
    schema: &DFSchema,
    column: &str,
    ty: SqlType,
    positions: &dyn Fn(usize) -> Option<usize>,
) -> Result<RowExpression> {
    refuse_ambiguous(expression, schema)?;
    let bound = binder.assignment(expression, schema, column, ty)?;
    RowExpression::compile_or_delegate(&bound, schema, positions)
}

/// Fails with 42702 if an expression calls a column of `schema` by a name that two relations have:
/// DataFusion's planner would take the first. Sub-queries have names of their own and are left out.
fn refuse_ambiguous(expression: &ast::Expr, schema: &DFSchema) -> Result<()> {
    struct Names<'s> {
        schema: &'s DFSchema,
        queries: usize,
    }
    impl ast::Visitor for Names<'_> {
        type Break = String;

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<String> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<String> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<String> {
            if let (ast::Expr::Identifier(ident), 0) = (expression, self.queries) {
                let name = fold(ident);
                if self.schema.fields().iter().filter(|field| *field.name() == name).count() > 1 {
                    return ControlFlow::Break(name);
                }
            }
            ControlFlow::Continue(())
        }
    }
    match ast::Visit::visit(expression, &mut Names { schema, queries: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => {
            Err(Error::new(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous")))
        }
    }
}

/// A condition: an expression of type boolean.
fn condition(
    binder: &Binder<'_>,
    expression: &ast::Expr,
    schema: &DFSchema,
    positions: &dyn Fn(usize) -> Option<usize>,
) -> Result<RowExpression> {
    refuse_ambiguous(expression, schema)?;
    let bound: Expr = binder.expression(expression, schema)?;
    let ty = bound.get_type(schema).map_err(from_datafusion)?;
    if !matches!(
        ty,
        datafusion::arrow::datatypes::DataType::Boolean | datafusion::arrow::datatypes::DataType::Null
    ) {
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("argument of WHERE must be type boolean, not type {ty}"),
        ));
    }
    RowExpression::compile_or_delegate(&bound, schema, positions)
}

/// The column that an assignment or a column list names, possibly qualified.
fn named_column<'t>(table: &'t TableDef, name: &ast::ObjectName) -> Result<(ColumnId, &'t ColumnDef)> {
    let name = match name.0.last() {
        Some(ast::ObjectNamePart::Identifier(ident)) => fold(ident),
        _ => return Err(Error::unsupported(format!("\"{name}\" as a column"))),
    };
    table.column(&name).ok_or_else(|| {
        Error::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" of relation \"{}\" does not exist", table.name),
        )
    })
}

/// Fails if a column is named twice.
fn refuse_duplicates(table: &TableDef, columns: &[ColumnId]) -> Result<()> {
    for (position, column) in columns.iter().enumerate() {
        if columns[..position].contains(column) {
            let name = &table.columns[column.index()].name;
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
    }
    Ok(())
}

/// Whether an expression is the keyword DEFAULT.
fn is_default(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Identifier(ident) => {
            ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
        }
        _ => false,
    }
}

/// An assignment of SET taken apart: the columns and their values, `None` for DEFAULT.
fn assignments(
    table: &TableDef,
    assignments: &[ast::Assignment],
) -> Result<Vec<(ColumnId, Option<ast::Expr>)>> {
    let mut taken = Vec::with_capacity(assignments.len());
    for ast::Assignment { target, value } in assignments {
        match target {
            ast::AssignmentTarget::ColumnName(name) => {
                taken.push((named_column(table, name)?.0, value.clone()));
            }
            ast::AssignmentTarget::Tuple(names) => {
                let values = values_of_tuple(value, names.len())?;
                for (name, value) in names.iter().zip(values) {
                    taken.push((named_column(table, name)?.0, value));
                }
            }
        }
    }
    let columns: Vec<ColumnId> = taken.iter().map(|(column, _)| *column).collect();
    for (position, column) in columns.iter().enumerate() {
        if columns[..position].contains(column) {
            let name = &table.columns[column.index()].name;
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("multiple assignments to same column \"{name}\""),
            ));
        }
    }
    Ok(taken.into_iter().map(|(column, value)| (column, (!is_default(&value)).then_some(value))).collect())
}

/// The values of `(a, b) = …`.
fn values_of_tuple(value: &ast::Expr, columns: usize) -> Result<Vec<ast::Expr>> {
    let mismatch = || Error::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values");
    let values = match value {
        ast::Expr::Tuple(values) => values.clone(),
        ast::Expr::Nested(value) => vec![value.as_ref().clone()],
        // Each column takes its own copy of the query, cut down to its value.
        ast::Expr::Subquery(query) => {
            let ast::SetExpr::Select(select) = query.body.as_ref() else {
                return Err(Error::unsupported("assigning several columns from this query"));
            };
            let single = |item: &ast::SelectItem| match item {
                ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. } => {
                    let mut select = select.clone();
                    select.projection = vec![item.clone()];
                    let mut query = query.clone();
                    query.body = Box::new(ast::SetExpr::Select(select));
                    Ok(ast::Expr::Subquery(query))
                }
                _ => Err(Error::unsupported("assigning several columns from a query with \"*\"")),
            };
            select.projection.iter().map(single).collect::<Result<_>>()?
        }
        _ => {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            ));
        }
    };
    if values.len() == columns { Ok(values) } else { Err(mismatch()) }
}

/// The columns of several relations side by side, under their qualifiers.
fn side_by_side(columns: Vec<(Option<TableReference>, FieldRef)>) -> Result<DFSchema> {
    DFSchema::new_with_metadata(columns, std::collections::HashMap::new()).map_err(from_datafusion)
}
