//! LIKE in CREATE TABLE: columns, and on request defaults, generation expressions, checks, identities and indexes, of
//! another table. The copy does not depend on the other table.

use super::column::ColumnParts;
use super::create::plain_column;
use super::sequence::SequenceOptions;
use super::{Context, constraint, index};
use crate::names::{Relation, wrong_kind};
use crate::parse::parse_expression;
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_syntax::Span;
use firn_syntax::tree::{
    ConstraintAttributes, LikeOption, Name, TableConstraint, TableConstraintKind, TableLike,
};
use firn_txn::catalog::{ConstraintDef, ConstraintKind, IndexAnnotations, IndexDef, TableDef};

/// Whether a LIKE copies what an option names: the last mention of it counts.
fn includes(like: &TableLike, wanted: LikeOption) -> bool {
    let about = like.options.iter().rev().find(|(_, option)| [wanted, LikeOption::All].contains(option));
    about.is_some_and(|(including, _)| *including)
}

/// The columns that a LIKE copies, and the table that they belong to, unless that is a view.
pub(super) fn columns(
    context: &Context<'_>,
    like: &TableLike,
) -> Result<(Option<Arc<TableDef>>, Vec<ColumnParts>)> {
    let name = QualifiedName::from(&like.table);
    let source = match context.names().relation(&name)? {
        Relation::Table(table) => table,
        Relation::View(view) => {
            let column = |column: &firn_txn::catalog::ColumnDef| ColumnParts {
                column: plain_column(column.name.clone(), column.ty),
                sequence: None,
                serial: false,
                generated: None,
                constraints: Vec::new(),
            };
            return Ok((None, view.columns.iter().map(column).collect()));
        }
        _ => return Err(wrong_kind(ObjectKind::Table, &name.name)),
    };
    let mut columns = Vec::new();
    for (id, column) in source.visible_columns() {
        let mut column = column.clone();
        column.default = column.default.filter(|_| includes(like, LikeOption::Defaults));
        column.identity = column.identity.filter(|_| includes(like, LikeOption::Identity));
        column.generated = column.generated.filter(|_| includes(like, LikeOption::Generated));
        let sequence = context.transaction.catalog().identity_sequence(source.oid, id.0);
        let sequence = column.identity.and(sequence).map(|known| SequenceOptions {
            increment: Some(known.increment),
            minimum: Some(Some(known.minimum)),
            maximum: Some(Some(known.maximum)),
            start: Some(known.start),
            cycle: Some(known.cycle),
            cache: Some(known.cache),
            ..SequenceOptions::default()
        });
        // The expression names columns, which are copied with their names.
        columns.push(ColumnParts {
            column,
            sequence,
            serial: false,
            generated: None,
            constraints: Vec::new(),
        });
    }
    Ok((Some(source), columns))
}

/// Adds the checks and indexes of `source` that the LIKE requests to the new table, which is in the
/// catalog and empty. Checks keep their names; indexes get new ones.
pub(super) fn constraints(
    context: &mut Context<'_>,
    table: &mut TableDef,
    source: &TableDef,
    like: &TableLike,
) -> Result<()> {
    if includes(like, LikeOption::Constraints) {
        for known in &source.constraints {
            let ConstraintKind::Check { expression } = &known.kind else { continue };
            let check = TableConstraint {
                span: Span::default(),
                name: Some(Name::new(&*known.name)),
                kind: TableConstraintKind::Check(parse_expression(expression)?),
                attributes: ConstraintAttributes::default(),
            };
            constraint::add(context, expression, table, &check, constraint::Rows::None)?;
        }
    }
    if includes(like, LikeOption::Indexes) {
        for known in source.visible_indexes() {
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
    let columns = index::copied_columns(context, table, source, known)?;
    let included = |column: &u16| {
        let name = &source.columns[usize::from(*column)].name;
        table.column(name).expect("LIKE has copied every column").0.0
    };
    let include = known.annotations.include.iter().map(included).collect();
    let annotations = IndexAnnotations { include, ..known.annotations.clone() };
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
        Some(primary) => {
            let (deferral, nulls_not_distinct) = (known.deferral, known.nulls_not_distinct);
            let key = constraint::Key { columns, primary, nulls_not_distinct, deferral, annotations };
            constraint::add_key(context, table, None, key)
        }
        None => {
            let key = &columns[usize::from(known.condition.is_some())..];
            let stem = index::stem(table, key, &annotations.include);
            let taken: Vec<String> = table.visible_indexes().map(|index| index.name.clone()).collect();
            let name = context.names().fresh(table.schema, &stem, "idx", &taken);
            let oid = context.allocate();
            let copy = IndexDef { oid, name, columns, annotations, ..known.clone() };
            index::build(context, table, &copy)?;
            table.indexes.push(copy);
            Ok(())
        }
    }
}
