//! Column definitions: types, defaults, NOT NULL, serial and identity.

use super::{Context, sequence};
use crate::data_type::{Declared, declared, take_decimals};
use crate::statement::{SequenceOptions, fold, quote_literal};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{self, ColumnOption, DataType, Expr};
use firn_base::{Error, Result, SqlState, SqlType};
use firn_txn::catalog::{ColumnDef, Identity, Oid};

/// A column as it was written, taken apart.
pub(super) struct ColumnParts {
    /// What the catalog will hold; the default of a serial column comes later.
    pub column: ColumnDef,
    /// The sequence that a serial or identity column wants.
    pub sequence: Option<SequenceOptions>,
    /// Whether the column's default is that sequence.
    pub serial: bool,
    /// The constraints written with the column, as constraints of the table.
    pub constraints: Vec<ast::TableConstraint>,
}

/// Names of system columns, which PostgreSQL keeps for itself, and the one that we do.
const RESERVED_NAMES: &[&str] = &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "_rowid"];

/// Tells that a column keeps more decimals of a second than its type asks for.
pub(super) fn note_decimals(context: &mut Context<'_>, column: &str, data_type: &DataType) {
    if let Some(decimals) = take_decimals(&mut data_type.clone()) {
        let message =
            format!("column \"{column}\" keeps microseconds, and does not round to {decimals} decimals");
        context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
    }
}

/// Takes a column definition apart and checks its default.
pub(super) fn parts(context: &mut Context<'_>, definition: &ast::ColumnDef) -> Result<ColumnParts> {
    let name = fold(&definition.name);
    if RESERVED_NAMES.contains(&name.as_str()) {
        return Err(Error::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column name \"{name}\" conflicts with a system column name"),
        ));
    }
    let (ty, serial) = match declared(&definition.data_type)? {
        Declared::Type(ty) => (ty, false),
        Declared::Serial(ty) => (ty, true),
    };
    note_decimals(context, &name, &definition.data_type);
    let mut parts = ColumnParts {
        column: ColumnDef {
            name,
            ty: ty.into(),
            not_null: serial,
            default: None,
            identity: None,
            dropped: false,
        },
        sequence: serial.then(SequenceOptions::default),
        serial,
        constraints: Vec::new(),
    };
    let mut says_null = false;
    for option in &definition.options {
        let constraint_name = option.name.clone();
        match &option.option {
            ColumnOption::Null => says_null = true,
            ColumnOption::NotNull => parts.column.not_null = true,
            ColumnOption::Default(expression) => {
                if parts.column.default.is_some() || serial {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        format!("multiple default values specified for column \"{}\"", parts.column.name),
                    ));
                }
                parts.column.default = default(context, &parts.column.name, ty, expression)?;
            }
            ColumnOption::PrimaryKey(key) => {
                parts.column.not_null = true;
                let mut key = key.clone();
                key.name = key.name.or(constraint_name);
                key.columns = vec![index_column(&definition.name)];
                parts.constraints.push(ast::TableConstraint::PrimaryKey(key));
            }
            ColumnOption::Unique(key) => {
                let mut key = key.clone();
                key.name = key.name.or(constraint_name);
                key.columns = vec![index_column(&definition.name)];
                parts.constraints.push(ast::TableConstraint::Unique(key));
            }
            ColumnOption::ForeignKey(key) => {
                let mut key = key.clone();
                key.name = key.name.or(constraint_name);
                key.columns = vec![definition.name.clone()];
                parts.constraints.push(ast::TableConstraint::ForeignKey(key));
            }
            ColumnOption::Check(check) => {
                let mut check = check.clone();
                check.name = check.name.or(constraint_name);
                parts.constraints.push(ast::TableConstraint::Check(check));
            }
            ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                if !matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
                    return Err(Error::new(
                        SqlState::INVALID_PARAMETER_VALUE,
                        "identity column type must be smallint, integer, or bigint",
                    ));
                }
                if serial || parts.column.default.is_some() {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        format!("both default and identity specified for column \"{}\"", parts.column.name),
                    ));
                }
                parts.column.identity = Some(match generated_as {
                    ast::GeneratedAs::Always => Identity::Always,
                    ast::GeneratedAs::ByDefault => Identity::ByDefault,
                    ast::GeneratedAs::ExpStored => return Err(generated()),
                });
                parts.column.not_null = true;
                parts.sequence = Some(sequence::options_of_tree(sequence_options.as_deref().unwrap_or(&[]))?);
            }
            ColumnOption::Generated { .. } => return Err(generated()),
            ColumnOption::Collation(name) => check_collation(name)?,
            other => return Err(Error::unsupported(format!("column option {other}"))),
        }
    }
    if says_null && parts.column.not_null {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("conflicting NULL/NOT NULL declarations for column \"{}\"", parts.column.name),
        ));
    }
    Ok(parts)
}

/// 0A000 for a collation that orders strings otherwise than by their bytes.
pub(crate) fn check_collation(name: &ast::ObjectName) -> Result<()> {
    match crate::pg_catalog::is_default_collation(name) {
        true => Ok(()),
        false => Err(Error::unsupported(format!("collation {name}"))
            .with_hint("Strings compare by their bytes: leave COLLATE out, or say COLLATE \"C\".")),
    }
}

fn generated() -> Error {
    Error::unsupported("a generated column").with_hint("Use a view that computes the column.")
}

fn index_column(name: &ast::Ident) -> ast::IndexColumn {
    ast::IndexColumn {
        column: ast::OrderByExpr {
            expr: Expr::Identifier(name.clone()),
            options: ast::OrderByOptions { asc: None, nulls_first: None },
            with_fill: None,
        },
        operator_class: None,
    }
}

/// The text of a default after a check that it can be evaluated and stored; `None` for NULL.
pub(super) fn default(
    context: &Context<'_>,
    column: &str,
    ty: SqlType,
    expression: &Expr,
) -> Result<Option<String>> {
    if let Expr::Value(value) = expression
        && matches!(value.value, ast::Value::Null)
    {
        return Ok(None);
    }
    let refuse = |state, message: &str| Err(Error::new(state, message));
    let mut found = None;
    let _ = ast::visit_expressions(expression, |inner| {
        found = match inner {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => Some("subquery"),
            Expr::CompoundIdentifier(_) => Some("column reference"),
            Expr::Identifier(ident) if !is_bare_function(ident) => Some("column reference"),
            _ => return std::ops::ControlFlow::Continue(()),
        };
        std::ops::ControlFlow::Break(())
    });
    match found {
        Some("subquery") => {
            return refuse(SqlState::FEATURE_NOT_SUPPORTED, "cannot use subquery in DEFAULT expression");
        }
        Some(_) => {
            return refuse(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot use column reference in DEFAULT expression",
            );
        }
        None => {}
    }
    context.bind(|binder| binder.assignment(expression, &DFSchema::empty(), column, ty))?;
    Ok(Some(expression.to_string()))
}

/// Words that look like columns and call functions.
fn is_bare_function(ident: &ast::Ident) -> bool {
    ident.quote_style.is_none()
        && [
            "current_date",
            "current_timestamp",
            "current_time",
            "localtime",
            "localtimestamp",
            "current_user",
            "session_user",
            "user",
        ]
        .contains(&ident.value.to_lowercase().as_str())
}

/// The default of a serial column over its sequence.
pub(super) fn next_value_of(context: &Context<'_>, schema: Oid, sequence: &str) -> String {
    format!("nextval({}::regclass)", quote_literal(&context.sql_name(schema, sequence)))
}
