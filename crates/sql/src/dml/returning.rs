//! RETURNING: what a change yields of the rows it has changed.

use super::refuse_ambiguous;
use crate::bind::Binder;
use crate::statement::fold;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind};
use firn_base::{Error, Result, SqlState, SqlType};
use firn_exec::dml::Returning;
use firn_exec::error::from_datafusion;
use firn_exec::expression::RowExpression;
use firn_exec::{ROW_ID_COLUMN, types};

/// Binds RETURNING over rows with the columns of `schema`; `positions` says where they stand.
pub(super) fn plan(
    binder: &Binder<'_>,
    items: &[SelectItem],
    schema: &DFSchema,
    positions: &dyn Fn(usize) -> Option<usize>,
) -> Result<Returning> {
    let mut returning = Returning { outputs: Vec::new(), columns: Vec::new() };
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
