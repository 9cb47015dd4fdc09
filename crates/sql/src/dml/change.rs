//! Binding of UPDATE and DELETE.
//!
//! The rows to change, and what to assign to them, come from a query over the table and whatever
//! FROM or USING adds, whose last column is the row id.

use super::{assignments, returning, side_by_side, storage_positions, target_set};
use crate::bind::Binder;
use crate::statement::fold;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    self, FromTable, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, coerce};
use firn_exec::dml::{Assigned, Change, Delete, DmlPlan, Returning, RowSource, Update};
use firn_exec::types;
use firn_txn::Catalog;
use firn_txn::catalog::{ColumnDef, TableDef};

/// What a row source carries along for RETURNING: its columns' positions in the source's rows with
/// their types, and their names.
#[derive(Default)]
struct Carried {
    places: Vec<(usize, SqlType)>,
    fields: Vec<(Option<TableReference>, FieldRef)>,
}

pub(super) fn plan_update(
    binder: &Binder<'_>,
    catalog: &Catalog,
    update: &ast::Update,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() || update.output.is_some()
    {
        return Err(Error::unsupported("this form of UPDATE"));
    }
    if !update.table.joins.is_empty() {
        return Err(Error::unsupported("a join in UPDATE").with_hint("Use UPDATE … FROM."));
    }
    let from: &[TableWithJoins] = match &update.from {
        None => &[],
        Some(ast::UpdateTableFromKind::AfterSet(from) | ast::UpdateTableFromKind::BeforeSet(from)) => from,
    };
    let (table, alias) = target(binder, &update.table.relation)?;
    let set = target_set(binder, catalog, &table)?;
    let mut columns = Vec::new();
    let mut values = Vec::new();
    let mut outputs = Vec::new();
    for (column, value) in assignments(&table, &update.assignments)? {
        columns.push(column);
        let Some(value) = value else {
            values.push(Assigned::Default);
            continue;
        };
        set.root().refuse_generated(column, false)?;
        values.push(Assigned::Output(outputs.len()));
        outputs.push(output(value, &table.columns[column.index()], outputs.len())?);
    }
    let assigned = outputs.len();
    carry(&mut outputs, from, update.returning.is_some())?;
    let source =
        binder.row_source(with, &update.table.relation, from, update.selection.as_ref(), &outputs)?;
    for (column, value) in columns.iter().zip(&values) {
        if let Assigned::Output(position) = value {
            check_assignment(&table.columns[column.index()], source.schema().field(*position))?;
        }
    }
    let carried = carried(&source, assigned)?;
    let outputs = update.returning.as_deref();
    let outputs = outputs.map(|outputs| binder.merged_outputs(&update.table.relation, from, with, outputs));
    let returning = returning_of(binder, outputs.transpose()?.as_deref(), &table, &alias, &carried)?;
    returning::refuse_reading(returning.as_ref(), &set)?;
    Ok(DmlPlan {
        set,
        change: Change::Update(Update {
            source: RowSource::new(source),
            columns,
            values,
            carried: carried.places,
            may_repeat: !from.is_empty(),
        }),
        returning,
        picked: Vec::new(),
        parameters: binder.parameter_types()?,
    })
}

pub(super) fn plan_delete(
    binder: &Binder<'_>,
    catalog: &Catalog,
    delete: &ast::Delete,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    if !delete.tables.is_empty()
        || !delete.order_by.is_empty()
        || delete.limit.is_some()
        || delete.output.is_some()
    {
        return Err(Error::unsupported("this form of DELETE"));
    }
    let (FromTable::WithFromKeyword(named) | FromTable::WithoutKeyword(named)) = &delete.from;
    let [TableWithJoins { relation, joins }] = named.as_slice() else {
        return Err(Error::unsupported("DELETE from several tables"));
    };
    if !joins.is_empty() {
        return Err(Error::unsupported("a join in DELETE").with_hint("Use DELETE … USING."));
    }
    let using = delete.using.as_deref().unwrap_or(&[]);
    let (table, alias) = target(binder, relation)?;
    let set = target_set(binder, catalog, &table)?;
    let mut outputs = Vec::new();
    carry(&mut outputs, using, delete.returning.is_some())?;
    let source = binder.row_source(with, relation, using, delete.selection.as_ref(), &outputs)?;
    let carried = carried(&source, 0)?;
    let outputs = delete.returning.as_deref();
    let outputs = outputs.map(|outputs| binder.merged_outputs(relation, using, with, outputs));
    let returning = returning_of(binder, outputs.transpose()?.as_deref(), &table, &alias, &carried)?;
    returning::refuse_reading(returning.as_ref(), &set)?;
    Ok(DmlPlan {
        set,
        change: Change::Delete(Delete {
            source: RowSource::new(source),
            carried: carried.places,
            may_repeat: !using.is_empty(),
        }),
        returning,
        picked: Vec::new(),
        parameters: binder.parameter_types()?,
    })
}

/// The table to change and the name that it goes by.
fn target(binder: &Binder<'_>, relation: &TableFactor) -> Result<(Arc<TableDef>, String)> {
    let TableFactor::Table { name, alias, args: None, .. } = relation else {
        return Err(Error::unsupported("changing anything but a table"));
    };
    let table = binder.table(name)?;
    let alias = alias.as_ref().map_or_else(|| table.name.clone(), |alias| fold(&alias.name));
    Ok((table, alias))
}

/// An assigned value as an output of the row source. A literal in quotes and a bare parameter have
/// no type by themselves: they are read as the column's, without its length, which the writer tests.
fn output(value: ast::Expr, column: &ColumnDef, position: usize) -> Result<SelectItem> {
    let untyped = match &value {
        ast::Expr::Value(value) => matches!(
            value.value,
            ast::Value::SingleQuotedString(_) | ast::Value::Placeholder(_) | ast::Value::Null
        ),
        _ => false,
    };
    let expr = if untyped {
        let ty = match column.ty.sql_type() {
            SqlType::Varchar(_) | SqlType::Char(_) => SqlType::Text,
            ty => ty,
        };
        ast::Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(value),
            data_type: written_type(ty)?,
            format: None,
            array: false,
        }
    } else {
        value
    };
    Ok(SelectItem::ExprWithAlias { expr, alias: ast::Ident::with_quote('"', format!("set {position}")) })
}

/// A type as syntax.
fn written_type(ty: SqlType) -> Result<ast::DataType> {
    crate::parse::parse_type(&ty.to_string())
        .map_err(|error| Error::new(SqlState::INTERNAL_ERROR, format!("type {ty}: {}", error.message())))
}

/// Fails with 42804 if there is no assignment cast from an output to its column.
fn check_assignment(column: &ColumnDef, output: &FieldRef) -> Result<()> {
    if *output.data_type() == datafusion::arrow::datatypes::DataType::Null {
        return Ok(());
    }
    let mismatch = |what: String| {
        Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{}\" is of type {} but expression is of type {what}", column.name, column.ty),
        )
        .with_hint("You will need to rewrite or cast the expression.")
    };
    let wanted = column.ty.sql_type();
    match types::sql_type(output) {
        Some(ty) if ty == wanted || coerce::can_assign(ty, wanted) => Ok(()),
        Some(ty) => Err(mismatch(ty.to_string())),
        None => Err(mismatch(output.data_type().to_string())),
    }
}

/// Adds the columns of the other relations, if RETURNING may ask for them.
fn carry(outputs: &mut Vec<SelectItem>, from: &[TableWithJoins], wanted: bool) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    for TableWithJoins { relation, joins } in from {
        for relation in std::iter::once(relation).chain(joins.iter().map(|join| &join.relation)) {
            let name = match relation {
                TableFactor::Table { alias: Some(alias), .. }
                | TableFactor::Derived { alias: Some(alias), .. }
                | TableFactor::Function { alias: Some(alias), .. } => {
                    ast::ObjectName::from(vec![alias.name.clone()])
                }
                TableFactor::Table { name, .. } => name.clone(),
                other => {
                    return Err(Error::unsupported(format!("RETURNING beside \"{other}\""))
                        .with_hint("Give it an alias, or leave RETURNING out."));
                }
            };
            outputs.push(SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                ast::WildcardAdditionalOptions::default(),
            ));
        }
    }
    Ok(())
}

/// What a row source carries between the assigned values and the row id.
fn carried(source: &LogicalPlan, assigned: usize) -> Result<Carried> {
    let schema = source.schema();
    let mut carried = Carried::default();
    for position in assigned..schema.fields().len() - 1 {
        let (qualifier, field) = schema.qualified_field(position);
        let Some(ty) = types::sql_type(field) else {
            return Err(Error::unsupported(format!("column \"{}\" beside RETURNING", field.name())));
        };
        carried.places.push((position, ty));
        carried.fields.push((qualifier.cloned(), field.clone()));
    }
    Ok(carried)
}

fn returning_of(
    binder: &Binder<'_>,
    items: Option<&[SelectItem]>,
    table: &Arc<TableDef>,
    alias: &str,
    carried: &Carried,
) -> Result<Option<Returning>> {
    let Some(items) = items else { return Ok(None) };
    let ids = storage_positions(table);
    let scan = binder.table_scan_with_row_id(table, Some(alias))?;
    let mut fields: Vec<_> = scan
        .schema()
        .iter()
        .take(ids.len())
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    fields.extend(carried.fields.iter().cloned());
    let schema = side_by_side(fields)?;
    let positions = |column: usize| match column.checked_sub(ids.len()) {
        None => Some(ids[column]),
        Some(column) => Some(table.columns.len() + column),
    };
    returning::plan(binder, items, &schema, &positions).map(Some)
}
