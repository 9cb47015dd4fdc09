//! LIKE in CREATE TABLE: columns, and on request defaults, checks, identities and indexes, of
//! another table. The copy keeps nothing of where it came from.

use super::column::ColumnParts;
use super::{Context, constraint, index};
use crate::parse::parse_expression;
use crate::statement::{Like, SequenceOptions};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_txn::catalog::{ConstraintDef, ConstraintKind, IndexColumnDef, IndexDef, TableDef};

/// The columns that a LIKE stands for, and the table that they are of.
pub(super) fn columns(context: &Context<'_>, like: &Like) -> Result<(Arc<TableDef>, Vec<ColumnParts>)> {
    let source = context.names().table(&like.name)?;
    let mut columns = Vec::new();
    for (id, column) in source.visible_columns() {
        let mut column = column.clone();
        column.default = column.default.filter(|_| like.including.defaults);
        column.identity = column.identity.filter(|_| like.including.identity);
        let owner = Some((source.oid, id.0));
        let sequence = context.transaction.catalog().sequences.values().find(|known| known.owner == owner);
        let sequence = column.identity.and(sequence).map(|known| SequenceOptions {
            increment: Some(known.increment),
            minimum: Some(Some(known.minimum)),
            maximum: Some(Some(known.maximum)),
            start: Some(known.start),
            cycle: Some(known.cycle),
            ..SequenceOptions::default()
        });
        columns.push(ColumnParts { column, sequence, serial: false, constraints: Vec::new() });
    }
    Ok((source, columns))
}

/// Adds the checks and indexes of `source` that the LIKE asks for to the new table, which is in the
/// catalog and empty. Checks keep their names; indexes get new ones.
pub(super) fn constraints(
    context: &mut Context<'_>,
    table: &mut TableDef,
    source: &TableDef,
    like: &Like,
) -> Result<()> {
    if like.including.constraints {
        for known in &source.constraints {
            let ConstraintKind::Check { expression } = &known.kind else { continue };
            let check = ast::TableConstraint::Check(ast::CheckConstraint {
                name: Some(ast::Ident::with_quote('"', &known.name)),
                expr: Box::new(parse_expression(expression)?),
                enforced: None,
            });
            constraint::add(context, table, &check, constraint::Rows::None)?;
        }
    }
    if like.including.indexes {
        for known in &source.indexes {
            // Made with a foreign key, which is not copied.
            let serves_key = |constraint: &ConstraintDef| {
                matches!(constraint.kind, ConstraintKind::ForeignKey { .. }) && constraint.name == known.name
            };
            if source.constraints.iter().any(serves_key) {
                continue;
            }
            copy_index(context, table, source, known)?;
        }
    }
    Ok(())
}

fn copy_index(
    context: &mut Context<'_>,
    table: &mut TableDef,
    source: &TableDef,
    known: &IndexDef,
) -> Result<()> {
    let here = |column: &IndexColumnDef| {
        let name = &source.columns[usize::from(column.column)].name;
        let (id, _) = table.column(name).expect("LIKE has copied every column");
        IndexColumnDef { column: id.0, ..*column }
    };
    let columns: Vec<IndexColumnDef> = known.columns.iter().map(here).collect();
    let kept_by = source.constraints.iter().find_map(|constraint| match constraint.kind {
        ConstraintKind::PrimaryKey { index } if index == known.oid => Some(true),
        ConstraintKind::Unique { index } if index == known.oid => Some(false),
        _ => None,
    });
    match kept_by {
        Some(true) if table.primary_key().is_some() => Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("multiple primary keys for table \"{}\" are not allowed", table.name),
        )),
        Some(primary) => constraint::add_key(context, table, None, columns, primary, known.deferral),
        None => {
            let stem = index::default_stem(table, &columns);
            let taken: Vec<String> = table.indexes.iter().map(|index| index.name.clone()).collect();
            let name = context.names().fresh(table.schema, &stem, "idx", &taken);
            let copy = IndexDef { oid: context.allocate(), name, columns, ..*known };
            index::build(context, table, &copy)?;
            table.indexes.push(copy);
            Ok(())
        }
    }
}
