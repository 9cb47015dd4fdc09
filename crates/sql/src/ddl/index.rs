//! CREATE INDEX.
//!
//! An expression of an index is a hidden generated column of the table, which all indexes with the same text share. A partial index
//! begins with one that is TRUE where its condition is. So creating the first index with an expression rewrites the table.

use super::alter::identity_sources;
use super::{Context, already_exists, column, create, expression, kinds, parameter, rewrite};
use crate::names::missing_column;
use crate::operator_classes;
use crate::parse::parse_expression;
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::{ColumnId, Error, Result, SqlState, Type};
use firn_bind::Place;
use firn_syntax::tree::{CreateIndex, Expr, ExprKind, IndexElement, NullsOrder, SortOrder};
use firn_txn::catalog::{
    ColumnDef, ColumnType, Deferral, IndexAnnotations, IndexColumnDef, IndexDef, TableDef,
};
use firn_txn::{IndexColumn, IndexSpec};

/// The most columns of an index, as in PostgreSQL.
const MOST_COLUMNS: usize = 32;

/// A part of the key of an index.
enum Part {
    /// A column of the table.
    Column(u16),
    /// A hidden column, by its text and its type.
    Computed(Computed),
}

/// The definition of a hidden column.
pub(super) struct Computed {
    /// Its expression, in its stored form.
    text: String,
    ty: ColumnType,
}

/// CREATE INDEX. `text` is the text from which it was parsed.
pub(super) fn create(context: &mut Context<'_>, text: &str, index: &CreateIndex) -> Result<()> {
    let table = context.names().table(&QualifiedName::from(&index.table.name))?;
    if let Some(method) = index.method.as_ref().filter(|method| &*method.text != "btree") {
        return Err(Error::unsupported(format!("index method {}", method.text))
            .with_hint("Leave USING out; indexes are ordered."));
    }
    kinds::check_tablespace(index.tablespace.as_ref())?;
    let (values, parameters) = parameter::of_index(&index.options)?;
    let mut annotations = IndexAnnotations { parameters, ..IndexAnnotations::default() };
    let condition = match &index.condition {
        None => None,
        Some(condition) => Some(predicate(context, text, &table, condition)?),
    };
    let mut parts = Vec::with_capacity(index.elements.len());
    for (position, element) in index.elements.iter().enumerate() {
        let (part, class) = part(context, text, &table, element)?;
        parts.push(part);
        annotations.classes.extend(class.map(|class| (position as u16, class.to_owned())));
    }
    // INCLUDE columns only save PostgreSQL an access to the table; our indexes do not need them.
    for element in &index.include {
        match part(context, text, &table, element)? {
            (Part::Column(column), _) => annotations.include.push(column),
            (Part::Computed(_), _) => {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "expressions are not supported in included columns",
                ));
            }
        }
    }
    if parts.len() > MOST_COLUMNS {
        return Err(Error::new(
            SqlState::new("54011"),
            format!("cannot use more than {MOST_COLUMNS} columns in an index"),
        ));
    }
    let name = match &index.name {
        Some(name) => name.text.to_string(),
        None => {
            let included = annotations.include.iter().map(|column| Part::Column(*column));
            let included: Vec<Part> = included.collect();
            let names = parts.iter().chain(&included).map(|part| part_name(&table, part)).collect();
            let stem = format!("{}_{}", table.name, distinct_names(names).join("_"));
            context.names().fresh(table.schema, &stem, "idx", &[])
        }
    };
    if context.names().relation_in(table.schema, &name).is_some() {
        if index.if_not_exists {
            let message = format!("relation \"{name}\" already exists, skipping");
            context.notice(SqlState::DUPLICATE_TABLE, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Index, &name));
    }
    if index.is_unique && !values {
        return Err(unique_without_values());
    }
    context.lock(&table)?;
    context.refuse_pending(&table, "CREATE INDEX")?;
    let mut table = TableDef::clone(&context.table(table.oid));
    let columns = index_columns(context, &mut table, condition.as_deref(), parts, &index.elements)?;
    let definition = IndexDef {
        oid: context.allocate(),
        name,
        columns,
        condition,
        unique: index.is_unique,
        nulls_not_distinct: index.is_unique && index.nulls_not_distinct,
        values,
        deferral: Deferral::Never,
        internal: false,
        annotations,
    };
    build(context, &table, &definition)?;
    table.indexes.push(definition);
    context.put_table(table)
}

/// As [`default_stem`], of columns that may be hidden.
pub(super) fn stem(table: &TableDef, columns: &[IndexColumnDef], include: &[u16]) -> String {
    let name = |column: &IndexColumnDef| match &table.columns[usize::from(column.column)] {
        ColumnDef { hidden: true, generated: Some(text), .. } => expression_name(text),
        column => column.name.clone(),
    };
    let included = include.iter().map(|column| table.columns[usize::from(*column)].name.clone());
    let names = distinct_names(columns.iter().map(name).chain(included).collect());
    format!("{}_{}", table.name, names.join("_"))
}

/// `table_column_column`, the beginning of generated names.
pub(super) fn default_stem(table: &TableDef, columns: &[IndexColumnDef], include: &[u16]) -> String {
    let mut stem = table.name.clone();
    for column in columns.iter().map(|column| column.column).chain(include.iter().copied()) {
        stem.push('_');
        stem.push_str(&table.columns[usize::from(column)].name);
    }
    stem
}

/// 0A000
pub(super) fn unique_without_values() -> Error {
    Error::unsupported("a unique index without values")
        .with_hint("Leave out values = off, or UNIQUE: a unique index is searched at every insert.")
}

/// Refuses types whose values have no order, and so cannot be keys.
pub(super) fn check_order(ty: Type) -> Result<()> {
    if operator_classes::default_of(ty) != 0 {
        return Ok(());
    }
    let message = format!("data type {ty} has no default operator class for access method \"btree\"");
    Err(Error::new(SqlState::UNDEFINED_OBJECT, message).with_hint(
        "You must specify an operator class for the index or define a default operator class for the data type.",
    ))
}

/// A column or expression of an index, with its operator class if that is not the default one.
fn part(
    context: &Context<'_>,
    script: &str,
    table: &TableDef,
    element: &IndexElement,
) -> Result<(Part, Option<&'static str>)> {
    if let Some(collation) = &element.collation {
        column::check_collation(collation)?;
    }
    let part = match &element.value.kind {
        ExprKind::Column(name) if name.qualifiers.is_empty() => {
            let name = &name.name.text;
            match table.column(name) {
                Some((id, _)) => Part::Column(id.0),
                None if firn_bind::is_system_column(name) => {
                    let message = "index creation on system columns is not supported";
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                None => {
                    let message = format!("column \"{name}\" does not exist");
                    return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
                }
            }
        }
        _ => Part::Computed(computed(context, script, table, &element.value)?),
    };
    let ty = match &part {
        Part::Column(column) => table.columns[usize::from(*column)].ty.declared,
        Part::Computed(computed) => computed.ty.declared,
    };
    check_order(ty)?;
    let class = match &element.class {
        None => None,
        Some(class) => {
            let shown = QualifiedName::from(class);
            let known = operator_classes::named(&class.name.text).ok_or_else(|| {
                let message =
                    format!("operator class \"{shown}\" does not exist for access method \"btree\"");
                Error::new(SqlState::UNDEFINED_OBJECT, message)
            })?;
            if !known.accepts(ty) {
                let ty = Type::new(ty.id);
                let message = format!("operator class \"{shown}\" does not accept data type {ty}");
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
            }
            (!known.is_default_of(ty)).then_some(known.name)
        }
    };
    Ok((part, class))
}

/// An expression of an index, bound over a table that is in the catalog.
fn computed(context: &Context<'_>, script: &str, table: &TableDef, expression: &Expr) -> Result<Computed> {
    let (bound, text) =
        expression::check_indexed(context, script, table, expression, Place::IndexExpression)?;
    let name = firn_bind::index_column_name(expression);
    Ok(Computed { text, ty: column::stored_type(&name, bound.ty)? })
}

/// WHERE of an index, in its stored form.
fn predicate(context: &Context<'_>, script: &str, table: &TableDef, condition: &Expr) -> Result<String> {
    let (_, text) = expression::check_indexed(context, script, table, condition, Place::IndexPredicate)?;
    Ok(text)
}

/// The expression of the column that marks the rows of a partial index.
pub(super) fn membership(condition: &str) -> String {
    format!("CASE WHEN {condition} THEN true END")
}

fn part_name(table: &TableDef, part: &Part) -> String {
    match part {
        Part::Column(column) => table.columns[usize::from(*column)].name.clone(),
        Part::Computed(computed) => expression_name(&computed.text),
    }
}

/// The name of a column of an index on an expression.
pub(crate) fn expression_name(text: &str) -> String {
    parse_expression(text).map_or("expr".to_owned(), |expression| firn_bind::index_column_name(&expression))
}

/// Distinct names: a number is appended to a name that occurs before, as PostgreSQL names the columns of an index.
pub(crate) fn distinct_names(names: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let mut candidates =
            std::iter::once(name.clone()).chain((1..).map(|number| format!("{name}{number}")));
        let fresh = candidates.find(|candidate| !distinct.contains(candidate));
        distinct.push(fresh.expect("numbers do not end"));
    }
    distinct
}

/// An expression as named in a message about its value: as an index definition shows it.
fn shown(text: &str) -> String {
    if looks_like_function(text) { text.to_owned() } else { format!("({text})") }
}

/// Whether an index definition shows an expression without parentheses.
pub(crate) fn looks_like_function(text: &str) -> bool {
    parse_expression(text).is_ok_and(|expression| {
        matches!(
            expression.kind,
            ExprKind::Call(_)
                | ExprKind::Coalesce(_)
                | ExprKind::Greatest(_)
                | ExprKind::Least(_)
                | ExprKind::NullIf(_)
                | ExprKind::Special(_)
        )
    })
}

/// The columns of an index, with the hidden ones that it needs, which are added to the table.
fn index_columns(
    context: &mut Context<'_>,
    table: &mut TableDef,
    condition: Option<&str>,
    parts: Vec<Part>,
    elements: &[IndexElement],
) -> Result<Vec<IndexColumnDef>> {
    let mut wanted: Vec<Computed> = condition.map(member_of).into_iter().collect();
    let mut places: Vec<Option<u16>> = wanted.iter().map(|_| None).collect();
    for part in parts {
        match part {
            Part::Column(column) => places.push(Some(column)),
            Part::Computed(computed) => {
                places.push(None);
                wanted.push(computed);
            }
        }
    }
    let mut hidden = hidden_columns(context, table, &wanted)?.into_iter();
    let columns = places
        .into_iter()
        .map(|place| place.unwrap_or_else(|| hidden.next().expect("there is one for each expression")));
    let plain = |column| IndexColumnDef { column, descending: false, nulls_first: false };
    let mut columns: Vec<IndexColumnDef> = columns.map(plain).collect();
    let first = usize::from(condition.is_some());
    for (column, element) in columns[first..].iter_mut().zip(elements) {
        column.descending = element.order == SortOrder::Descending;
        column.nulls_first = match element.nulls {
            NullsOrder::Default => column.descending,
            NullsOrder::First => true,
            NullsOrder::Last => false,
        };
    }
    Ok(columns)
}

/// The column that begins a partial index.
pub(super) fn member_of(condition: &str) -> Computed {
    let ty = firn_base::Type::new(firn_base::TypeId::BOOL);
    Computed { text: membership(condition), ty: ColumnType::new(ty).expect("columns have booleans") }
}

/// The hidden columns of a table with these expressions. Those that are missing are added, and then the table is rewritten. The
/// caller has locked the table.
pub(super) fn hidden_columns(
    context: &mut Context<'_>,
    table: &mut TableDef,
    wanted: &[Computed],
) -> Result<Vec<u16>> {
    let old = table.clone();
    let mut found = Vec::with_capacity(wanted.len());
    let mut is_written_anew = false;
    for Computed { text, ty } in wanted {
        let is_it = |column: &ColumnDef| {
            column.hidden && column.generated.as_deref() == Some(text.as_str()) && column.ty == *ty
        };
        let place = table.columns.iter().position(is_it).unwrap_or_else(|| {
            let generated = Some(text.clone());
            let column = ColumnDef { generated, hidden: true, ..create::plain_column(shown(text), *ty) };
            is_written_anew = true;
            match table.columns.iter().position(is_free) {
                Some(place) => {
                    table.columns[place] = column;
                    place
                }
                None => {
                    table.columns.push(column);
                    table.columns.len() - 1
                }
            }
        });
        found.push(place as u16);
    }
    if table.columns.len() > create::MOST_COLUMNS {
        return Err(create::too_many_columns());
    }
    if is_written_anew {
        rewrite::table(context, &old, table.clone(), &identity_sources(&old))?;
        *table = TableDef::clone(&context.table(old.oid));
    }
    Ok(found)
}

/// The prefix of the names of dropped hidden columns, whose places the next hidden columns take.
const FREE: &str = "........free.";

/// Whether it was hidden and has been dropped: no client has seen the number of the column.
fn is_free(column: &ColumnDef) -> bool {
    column.dropped && column.name.starts_with(FREE)
}

/// Drops the hidden columns that are in no index any more.
pub(super) fn drop_hidden_columns(table: &mut TableDef) {
    for number in 0..table.columns.len() {
        let is_used = |index: &IndexDef| index.columns.iter().any(|part| usize::from(part.column) == number);
        if table.columns[number].hidden && !table.indexes.iter().any(is_used) {
            let column = &mut table.columns[number];
            column.name = format!("{FREE}{}........", number + 1);
            (column.dropped, column.hidden, column.generated) = (true, false, None);
        }
    }
}

/// The hidden columns over a column.
pub(super) fn hidden_over(table: &TableDef, column: ColumnId) -> Vec<ColumnId> {
    let is_over = |found: &ColumnDef| {
        let expression = found.generated.as_deref().and_then(|text| parse_expression(text).ok());
        found.hidden
            && expression
                .is_some_and(|expression| expression::columns_in(table, &expression).contains(&column.0))
    };
    let numbered = (0..).map(ColumnId).zip(&table.columns);
    numbered.filter(|(_, found)| is_over(found)).map(|(id, _)| id).collect()
}

/// Gives the hidden columns over a column the types that follow from the column's new type. `new` is the definition with
/// it, which is not in the catalog yet, and `old` the current one.
pub(super) fn retype_hidden_columns(
    context: &mut Context<'_>,
    old: &TableDef,
    new: &mut TableDef,
    column: ColumnId,
) -> Result<()> {
    let over = hidden_over(new, column);
    if over.is_empty() {
        return Ok(());
    }
    context.put_table(new.clone())?;
    for id in over {
        let text = new.columns[id.index()].generated.clone().expect("it is generated");
        let expression = parse_expression(&text)?;
        let computed = computed(context, &text, new, &expression).map_err(Error::without_position)?;
        new.columns[id.index()].ty = computed.ty;
    }
    context.put_table(old.clone())
}

/// Renames a column in the expressions of indexes.
pub(super) fn rename_column(table: &mut TableDef, from: &str, to: &str) -> Result<()> {
    for index in &mut table.indexes {
        if let Some(condition) = &mut index.condition {
            *condition = expression::rename_column(condition, from, to)?;
        }
    }
    for column in table.columns.iter_mut().filter(|column| column.hidden) {
        column.name = shown(column.generated.as_deref().expect("it is generated"));
    }
    Ok(())
}

/// The columns of an index of another table, over this one, which has columns of the same names.
pub(super) fn copied_columns(
    context: &mut Context<'_>,
    table: &mut TableDef,
    source: &TableDef,
    known: &IndexDef,
) -> Result<Vec<IndexColumnDef>> {
    let definition = |part: &IndexColumnDef| &source.columns[usize::from(part.column)];
    let hidden = known.columns.iter().map(definition).filter(|column| column.hidden);
    let wanted: Vec<Computed> = hidden
        .map(|column| {
            let text = column.generated.clone().expect("it is generated");
            Computed { text, ty: column.ty }
        })
        .collect();
    let mut hidden = hidden_columns(context, table, &wanted)?.into_iter();
    let here = |part: &IndexColumnDef| {
        let column = match definition(part) {
            column if column.hidden => hidden.next().expect("there is one for each expression"),
            column => table.column(&column.name).expect("LIKE has copied every column").0.0,
        };
        IndexColumnDef { column, ..*part }
    };
    Ok(known.columns.iter().map(here).collect())
}

/// Plain ascending columns.
pub(super) fn plain_columns(table: &TableDef, names: &[String]) -> Result<Vec<IndexColumnDef>> {
    names
        .iter()
        .map(|name| match table.column(name) {
            Some((id, _)) => Ok(IndexColumnDef { column: id.0, descending: false, nulls_first: false }),
            None => Err(missing_column(table, name)),
        })
        .collect()
}

/// Builds the physical index over the rows of the table. The caller has locked the table. 23505 if the
/// index is unique, even if deferrable, and two rows share a key.
pub(super) fn build(context: &mut Context<'_>, table: &TableDef, index: &IndexDef) -> Result<()> {
    build_again(context, table, index)?;
    match index.unique && !index.is_always_unique() {
        true => {
            let storage = context.transaction.table(table.storage());
            context.transaction.refuse_duplicates(&storage, index.id())
        }
        false => Ok(()),
    }
}

/// As [`build`], for an index that replaces one with the same uniqueness. Rows may share a key of a deferrable
/// constraint: they are tested at the end of their transaction.
pub(super) fn build_again(context: &mut Context<'_>, table: &TableDef, index: &IndexDef) -> Result<()> {
    let storage = context.transaction.table(table.storage());
    let columns = index
        .columns
        .iter()
        .map(|column| IndexColumn {
            column: ColumnId(column.column),
            representation: storage.columns()[usize::from(column.column)].representation,
            nullable: storage.columns()[usize::from(column.column)].nullable,
            descending: column.descending,
            nulls_first: column.nulls_first,
        })
        .collect();
    let unique = index.is_always_unique();
    let spec = IndexSpec {
        id: index.id(),
        name: index.name.clone(),
        columns,
        unique,
        equal_nulls_from: index.equal_nulls_from(),
        values: index.values,
    };
    context.transaction.create_index(&storage, spec, context.options.threads)
}
