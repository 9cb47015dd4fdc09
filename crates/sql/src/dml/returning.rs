//! RETURNING: what a change yields of the rows it has changed.

use super::refuse_ambiguous;
use crate::bind::Binder;
use crate::statement::fold;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType};
use firn_exec::dml::{ChangedRows, Returning, TargetSet};
use firn_exec::error::from_datafusion;
use firn_exec::expression::RowExpression;
use firn_exec::{FirnTable, ROW_ID_COLUMN, types};
use std::ops::ControlFlow;

/// Binds RETURNING over rows with the columns of `schema`; `positions` says where they stand.
pub(super) fn plan(
    binder: &Binder<'_>,
    items: &[SelectItem],
    schema: &DFSchema,
    positions: &dyn Fn(usize) -> Option<usize>,
) -> Result<Returning> {
    if items.iter().any(has_query) {
        return with_queries(binder, items, schema, positions);
    }
    let mut returning = Returning { outputs: Vec::new(), columns: Vec::new(), query: None };
    for item in items {
        match item {
            SelectItem::UnnamedExpr(expression) => {
                let name = output_name(expression);
                refuse_ambiguous(expression, schema)?;
                returning.push(binder.expression(expression, schema)?, name, schema, positions)?;
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                refuse_ambiguous(expr, schema)?;
                returning.push(binder.expression(expr, schema)?, fold(alias), schema, positions)?;
            }
            SelectItem::Wildcard(_) => returning.push_all(None, schema, positions)?,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let Some(ast::ObjectNamePart::Identifier(ident)) = name.0.last() else {
                    return Err(Error::unsupported(format!("\"{name}.*\" in RETURNING")));
                };
                returning.push_all(Some(&fold(ident)), schema, positions)?;
            }
            other => return Err(Error::unsupported(format!("\"{other}\" in RETURNING"))),
        }
    }
    Ok(returning)
}

fn has_query(item: &SelectItem) -> bool {
    struct Finder;
    impl ast::Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    ast::Visit::visit(item, &mut Finder).is_break()
}

/// Outputs with sub-queries: the rows are gathered first, and a query runs over them.
fn with_queries(
    binder: &Binder<'_>,
    items: &[SelectItem],
    schema: &DFSchema,
    positions: &dyn Fn(usize) -> Option<usize>,
) -> Result<Returning> {
    let (mut outputs, mut fields, mut relation) = (Vec::new(), Vec::new(), None);
    for (position, (qualifier, field)) in schema.iter().enumerate() {
        let (Some(place), Some(ty)) = (positions(position), types::sql_type(field)) else { continue };
        let name = qualifier.map(|qualifier| qualifier.table().to_owned());
        if relation.get_or_insert_with(|| name.clone()) != &name {
            return Err(Error::unsupported("a sub-query in RETURNING beside FROM or USING")
                .with_hint("Read the changed rows again with a query of its own."));
        }
        outputs.push(RowExpression::column(place, ty));
        fields.push(field.clone());
    }
    let relation = relation.flatten().unwrap_or_default();
    let query = binder.query_over_changed(Arc::new(ChangedRows::new(fields)), &relation, items)?;
    let columns = crate::bind::columns_of(query.schema().as_arrow())?;
    Ok(Returning { outputs, columns, query: Some(Box::new(query)) })
}

/// Refuses a sub-query of RETURNING that reads what the change writes: PostgreSQL shows it the rows
/// as they were before.
pub(super) fn refuse_reading(returning: Option<&Returning>, set: &TargetSet) -> Result<()> {
    let Some(query) = returning.and_then(|returning| returning.query.as_deref()) else { return Ok(()) };
    let mut reads = false;
    let visited = query.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<FirnTable>()
        {
            reads |= set.writes_to(table.definition().oid);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map_err(from_datafusion)?;
    match reads {
        true => Err(Error::unsupported("a sub-query in RETURNING that reads the changed table")
            .with_hint("Run the query on its own, before or after the change.")),
        false => Ok(()),
    }
}

/// What [`plan`] needs of [`Returning`].
trait Push {
    fn push(
        &mut self,
        expression: Expr,
        name: String,
        schema: &DFSchema,
        positions: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()>;

    fn push_all(
        &mut self,
        qualifier: Option<&str>,
        schema: &DFSchema,
        positions: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()>;
}

impl Push for Returning {
    fn push(
        &mut self,
        expression: Expr,
        name: String,
        schema: &DFSchema,
        positions: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()> {
        let (_, field) = expression.to_field(schema).map_err(from_datafusion)?;
        let ty = types::sql_type(&field).unwrap_or(SqlType::Text);
        self.outputs.push(RowExpression::compile_or_delegate(&expression, schema, positions)?);
        self.columns.push((name, ty));
        Ok(())
    }

    fn push_all(
        &mut self,
        qualifier: Option<&str>,
        schema: &DFSchema,
        positions: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()> {
        let mut found = false;
        for (of, field) in schema.iter() {
            let wanted = qualifier.is_none_or(|wanted| of.is_some_and(|of| of.table() == wanted));
            found |= wanted;
            if wanted && field.name() != ROW_ID_COLUMN {
                let name = types::visible_name(field.name()).to_owned();
                self.push(Expr::from((of, field)), name, schema, positions)?;
            }
        }
        match (found, qualifier) {
            (false, Some(qualifier)) => Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{qualifier}\""),
            )),
            _ => Ok(()),
        }
    }
}

/// The name that PostgreSQL gives an output without alias.
fn output_name(expression: &ast::Expr) -> String {
    match expression {
        ast::Expr::Identifier(ident) => fold(ident),
        ast::Expr::CompoundIdentifier(idents) => idents.last().map_or_else(String::new, fold),
        ast::Expr::Nested(inner) => output_name(inner),
        ast::Expr::Cast { expr, .. } => output_name(expr),
        ast::Expr::Function(function) => match function.name.0.last() {
            Some(ast::ObjectNamePart::Identifier(ident)) => fold(ident),
            _ => "?column?".to_owned(),
        },
        ast::Expr::Case { .. } => "case".to_owned(),
        _ => "?column?".to_owned(),
    }
}
