//! Column definitions: types, defaults, NOT NULL, serial, identity and generated columns.

use super::sequence::{self, SequenceOptions};
use super::{Context, create, expression};
use crate::statement::{quote_ident, quote_literal};
use firn_base::{Error, Result, SqlState, Type, TypeId, type_table};
use firn_syntax::tree::{
    self, BaseType, ColumnConstraint, ColumnConstraintKind, ConstraintAttributes, Name, ObjectName,
    TableConstraint, TableConstraintKind, TypeName,
};
use firn_syntax::{Span, character_position};
use firn_txn::catalog::{ColumnDef, ColumnType, Identity, Oid};

/// The parts of a column definition.
pub(super) struct ColumnParts {
    /// The definition for the catalog; the default of a serial column is added later.
    pub column: ColumnDef,
    /// The options of the sequence that a serial or identity column needs.
    pub sequence: Option<SequenceOptions>,
    /// Whether the column's default uses that sequence.
    pub serial: bool,
    /// The expression of a generated column as written, which is checked once its table is in the catalog.
    pub generated: Option<tree::Expr>,
    /// The constraints written with the column, as constraints of the table.
    pub constraints: Vec<TableConstraint>,
}

/// Names of system columns, which PostgreSQL reserves, and one that FirnDB reserves.
const RESERVED_NAMES: &[&str] = &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "_rowid"];

/// The most digits of a numeric column.
const MOST_DIGITS: u16 = 38;

/// PostgreSQL's types that FirnDB lacks.
const OTHER_TYPES: &[&str] = &[
    "jsonb",
    "jsonpath",
    "xml",
    "money",
    "inet",
    "cidr",
    "macaddr",
    "macaddr8",
    "point",
    "box",
    "circle",
    "line",
    "lseg",
    "path",
    "polygon",
    "tsvector",
    "tsquery",
    "timetz",
    "hstore",
    "bit",
    "varbit",
    "int4range",
    "int8range",
    "numrange",
    "tsrange",
    "tstzrange",
    "daterange",
    "citext",
];

/// Whether PostgreSQL may store long values of a type apart from their rows.
fn may_be_long(ty: Type) -> bool {
    ty.info().is_some_and(|info| info.length == -1)
        && !matches!(ty.id, TypeId::INT2VECTOR | TypeId::OIDVECTOR)
}

/// SET STORAGE, which has no effect.
pub(super) fn check_storage(ty: Type, storage: &str) -> Result<()> {
    let lower = storage.to_lowercase();
    if !["plain", "external", "extended", "main"].contains(&&*lower) {
        let message = format!("invalid storage type \"{storage}\"");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if lower != "plain" && !may_be_long(ty) {
        let message = format!("column data type {} can only have storage PLAIN", Type::new(ty.id));
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(())
}

/// COMPRESSION, which has no effect.
pub(super) fn check_compression(ty: Type, method: &str) -> Result<()> {
    if method == "default" {
        return Ok(());
    }
    if !may_be_long(ty) {
        let message = format!("column data type {} does not support compression", Type::new(ty.id));
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    match method {
        "pglz" | "lz4" => Ok(()),
        _ => {
            let message = format!("invalid compression method \"{method}\"");
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Splits a column definition of a table into parts and checks its default. `text` is the text from which it was parsed.
pub(super) fn parts(
    context: &Context<'_>,
    text: &str,
    table: &str,
    definition: &tree::ColumnDef,
) -> Result<ColumnParts> {
    let name = definition.name.text.to_string();
    let at = |span: Span, error: Error| error.with_position(character_position(text, span.start));
    if RESERVED_NAMES.contains(&name.as_str()) {
        return Err(Error::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column name \"{name}\" conflicts with a system column name"),
        ));
    }
    let type_name = definition.type_name.as_ref().expect("typed tables are refused");
    let (ty, serial) = match serial_type(type_name)? {
        Some(ty) => (ColumnType::new(ty).expect("columns have integers"), true),
        None => (column_type(context, text, &name, type_name)?, false),
    };
    if let Some(collation) = &definition.collation {
        check_collation(collation)?;
    }
    if let Some(method) = &definition.compression {
        check_compression(ty.declared, &method.text)?;
    }
    let column = ColumnDef { not_null: serial, ..create::plain_column(name, ty) };
    let sequence = serial.then(SequenceOptions::default);
    let mut parts = ColumnParts { column, sequence, serial, generated: None, constraints: Vec::new() };
    let (mut says_null, mut has_default) = (None, serial);
    let wrong = |span: Span, message: String| {
        let name = &definition.name.text;
        let message = format!("{message} for column \"{name}\" of table \"{table}\"");
        Err(at(span, Error::new(SqlState::SYNTAX_ERROR, message)))
    };
    let mut last: Option<Attributed> = None;
    for constraint in &definition.constraints {
        let span = constraint.span;
        if let Some(attribute) = attribute(&constraint.kind) {
            let attributed = last.as_mut().filter(|last| last.may_be_deferred);
            let Some(attributed) = attributed else {
                let message = format!("misplaced {} clause", attribute.words());
                return Err(at(span, Error::new(SqlState::SYNTAX_ERROR, message)));
            };
            let attributes = &mut parts.constraints[attributed.place].attributes;
            attributed.add(attribute, attributes).map_err(|error| at(span, error))?;
            continue;
        }
        let kind = table_constraint(&definition.name, constraint);
        last = None;
        match &constraint.kind {
            ColumnConstraintKind::Null => says_null = Some(span),
            ColumnConstraintKind::NotNull => parts.column.not_null = true,
            ColumnConstraintKind::Default(default) => {
                if has_default {
                    return wrong(span, "multiple default values specified".to_owned());
                }
                has_default = true;
                parts.column.default =
                    expression::default(context, text, &parts.column.name, ty.declared, default)?;
            }
            ColumnConstraintKind::Identity { always, options } => {
                if parts.column.identity.is_some() {
                    return wrong(span, "multiple identity specifications".to_owned());
                }
                check_identity_type(ty.declared)?;
                parts.column.identity = Some(identity(*always));
                parts.column.not_null = true;
                parts.sequence = Some(sequence::options_of(context, text, options, true)?);
            }
            ColumnConstraintKind::Generated(expression) => {
                if parts.generated.is_some() {
                    return wrong(span, "multiple generation clauses specified".to_owned());
                }
                parts.column.generated = Some(expression::unqualified(expression));
                parts.generated = Some(expression.clone());
            }
            ColumnConstraintKind::PrimaryKey(_) => parts.column.not_null = true,
            _ => {}
        }
        if has_default && parts.column.identity.is_some() {
            return wrong(span, "both default and identity specified".to_owned());
        }
        if has_default && parts.generated.is_some() {
            return wrong(span, "both default and generation expression specified".to_owned());
        }
        if parts.column.identity.is_some() && parts.generated.is_some() {
            return wrong(span, "both identity and generation expression specified".to_owned());
        }
        if let Some(kind) = kind {
            let may_be_deferred = !matches!(kind, TableConstraintKind::Check(_));
            let attributes = ConstraintAttributes::default();
            let name = constraint.name.clone();
            parts.constraints.push(TableConstraint { span, name, kind, attributes });
            last = Some(Attributed::new(parts.constraints.len() - 1, may_be_deferred));
        }
    }
    match says_null {
        Some(span) if parts.column.not_null => {
            wrong(span, "conflicting NULL/NOT NULL declarations".to_owned())
        }
        _ => Ok(parts),
    }
}

/// A constraint of a column as a constraint of its table.
fn table_constraint(column: &Name, constraint: &ColumnConstraint) -> Option<TableConstraintKind> {
    Some(match &constraint.kind {
        ColumnConstraintKind::Unique { nulls_not_distinct, index } => TableConstraintKind::Unique {
            is_primary: false,
            nulls_not_distinct: *nulls_not_distinct,
            columns: vec![column.clone()],
            include: Vec::new(),
            index: index.clone(),
        },
        ColumnConstraintKind::PrimaryKey(index) => TableConstraintKind::Unique {
            is_primary: true,
            nulls_not_distinct: false,
            columns: vec![column.clone()],
            include: Vec::new(),
            index: index.clone(),
        },
        ColumnConstraintKind::Check { condition, .. } => TableConstraintKind::Check(condition.clone()),
        ColumnConstraintKind::References(reference) => {
            TableConstraintKind::ForeignKey { columns: vec![column.clone()], reference: reference.clone() }
        }
        _ => return None,
    })
}

/// When a constraint of a column is tested, according to the words after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Deferrable(bool),
    Initially { deferred: bool },
}

fn attribute(kind: &ColumnConstraintKind) -> Option<Attribute> {
    Some(match kind {
        ColumnConstraintKind::Deferrable => Attribute::Deferrable(true),
        ColumnConstraintKind::NotDeferrable => Attribute::Deferrable(false),
        ColumnConstraintKind::InitiallyDeferred => Attribute::Initially { deferred: true },
        ColumnConstraintKind::InitiallyImmediate => Attribute::Initially { deferred: false },
        _ => return None,
    })
}

impl Attribute {
    fn words(self) -> &'static str {
        match self {
            Attribute::Deferrable(true) => "DEFERRABLE",
            Attribute::Deferrable(false) => "NOT DEFERRABLE",
            Attribute::Initially { deferred: true } => "INITIALLY DEFERRED",
            Attribute::Initially { deferred: false } => "INITIALLY IMMEDIATE",
        }
    }
}

/// A constraint with the attributes after it that have been read.
struct Attributed {
    place: usize,
    may_be_deferred: bool,
    deferrable: Option<bool>,
    initially_deferred: Option<bool>,
}

impl Attributed {
    fn new(place: usize, may_be_deferred: bool) -> Attributed {
        Attributed { place, may_be_deferred, deferrable: None, initially_deferred: None }
    }

    fn add(&mut self, attribute: Attribute, attributes: &mut ConstraintAttributes) -> Result<()> {
        let refuse = |message: &str| Err(Error::new(SqlState::SYNTAX_ERROR, message));
        match attribute {
            Attribute::Deferrable(deferrable) => {
                if self.deferrable.replace(deferrable).is_some() {
                    return refuse("multiple DEFERRABLE/NOT DEFERRABLE clauses not allowed");
                }
            }
            Attribute::Initially { deferred } => {
                if self.initially_deferred.replace(deferred).is_some() {
                    return refuse("multiple INITIALLY IMMEDIATE/DEFERRED clauses not allowed");
                }
            }
        }
        if self.deferrable == Some(false) && self.initially_deferred == Some(true) {
            return refuse("constraint declared INITIALLY DEFERRED must be DEFERRABLE");
        }
        attributes.initially_deferred = self.initially_deferred == Some(true);
        attributes.deferrable = attributes.initially_deferred || self.deferrable == Some(true);
        Ok(())
    }
}

/// The type of a column that a type name denotes. `text` is the text from which the name was parsed.
pub(super) fn column_type(
    context: &Context<'_>,
    text: &str,
    column: &str,
    type_name: &TypeName,
) -> Result<ColumnType> {
    let resolved = context.bound(|catalog| firn_bind::bind_type_name(text, type_name, catalog));
    let ty = resolved.map_err(|error| match &type_name.base {
        BaseType::Named { name, .. }
            if error.state() == SqlState::UNDEFINED_OBJECT
                && matches!(name.schema().map(|schema| &*schema.text), None | Some("pg_catalog"))
                && OTHER_TYPES.contains(&&*name.name.text) =>
        {
            Error::unsupported(format!("type {}", name.name.text))
                .with_hint("See docs/dialect.md for the types that FirnDB has.")
        }
        _ => error,
    })?;
    stored_type(column, ty)
}

/// A type as that of a column. 42P16 for types without values of their own.
pub(super) fn stored_type(column: &str, ty: Type) -> Result<ColumnType> {
    let element = ty.element().unwrap_or(ty);
    let is_pseudo = [ty, element]
        .iter()
        .any(|ty| ty.info().is_some_and(|info| matches!(info.kind, type_table::TypeKind::Pseudo)));
    if is_pseudo {
        return Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("column \"{column}\" has pseudo-type {ty}"),
        ));
    }
    if let Some((precision, _)) = Type::precision_and_scale(Type { id: element.id, ..ty })
        && precision > MOST_DIGITS
    {
        return Err(Error::unsupported(format!("NUMERIC precision {precision}"))
            .with_hint(format!("FirnDB supports up to {MOST_DIGITS} digits.")));
    }
    ColumnType::new(ty).ok_or_else(|| {
        Error::unsupported(format!("type {ty}"))
            .with_hint("See docs/dialect.md for the types that FirnDB has.")
    })
}

/// The type of `smallserial`, `serial` and `bigserial`, which also make a sequence.
fn serial_type(type_name: &TypeName) -> Result<Option<Type>> {
    let BaseType::Named { name, modifiers } = &type_name.base else { return Ok(None) };
    let id = match &*name.name.text {
        "serial" | "serial4" => TypeId::INT4,
        "bigserial" | "serial8" => TypeId::INT8,
        "smallserial" | "serial2" => TypeId::INT2,
        _ => return Ok(None),
    };
    if !name.qualifiers.is_empty() || !modifiers.is_empty() {
        return Ok(None);
    }
    match type_name.bounds.is_empty() {
        true => Ok(Some(Type::new(id))),
        false => Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "array of serial is not implemented")),
    }
}

/// 22023 for a type that an identity column cannot have.
pub(super) fn check_identity_type(ty: Type) -> Result<()> {
    match ty.id {
        TypeId::INT2 | TypeId::INT4 | TypeId::INT8 => Ok(()),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "identity column type must be smallint, integer, or bigint",
        )),
    }
}

/// GENERATED ALWAYS or BY DEFAULT.
pub(super) fn identity(always: bool) -> Identity {
    if always { Identity::Always } else { Identity::ByDefault }
}

/// 0A000 for a collation that does not order strings by their bytes.
pub(super) fn check_collation(name: &ObjectName) -> Result<()> {
    let is_in_catalog = matches!(name.schema().map(|schema| &*schema.text), None | Some("pg_catalog"));
    let is_of_bytes =
        ["default", "c", "posix", "ucs_basic"].iter().any(|known| name.name.text.eq_ignore_ascii_case(known));
    match is_in_catalog && is_of_bytes {
        true => Ok(()),
        false => {
            let parts: Vec<String> = name.parts().map(|part| quote_ident(&part.text)).collect();
            Err(Error::unsupported(format!("collation {}", parts.join(".")))
                .with_hint("Strings are compared by their bytes: leave COLLATE out, or write COLLATE \"C\"."))
        }
    }
}

/// The default of a serial column over its sequence.
pub(super) fn next_value_of(context: &Context<'_>, schema: Oid, sequence: &str) -> String {
    format!("nextval({}::regclass)", quote_literal(&context.sql_name(schema, sequence)))
}
