//! CREATE and ALTER SEQUENCE. A sequence's definition is transactional, its counter is not:
//! `nextval` never returns a value again, even if the transaction rolls back.

use super::{Context, already_exists, alter};
use crate::names::{Relation, missing_column};
use crate::statement::{ObjectKind, QualifiedName};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType, Type, TypeId};
use firn_syntax::character_position;
use firn_syntax::tree::{AlterSequence, CreateSequence, ObjectName, SequenceOption, SequenceOptionKind};
use firn_txn::catalog::{Oid, SequenceDef, TableDef};

/// Options of CREATE and ALTER SEQUENCE and of identity columns, if given.
#[derive(Clone, Debug, Default)]
pub(super) struct SequenceOptions {
    /// AS
    pub ty: Option<SqlType>,
    /// INCREMENT BY
    pub increment: Option<i64>,
    /// MINVALUE; `Some(None)` for NO MINVALUE
    pub minimum: Option<Option<i64>>,
    /// MAXVALUE; `Some(None)` for NO MAXVALUE
    pub maximum: Option<Option<i64>>,
    /// START WITH
    pub start: Option<i64>,
    /// RESTART [WITH]; `Some(None)` for the start value
    pub restart: Option<Option<i64>>,
    /// CYCLE, NO CYCLE
    pub cycle: Option<bool>,
    /// CACHE
    pub cache: Option<i64>,
    /// SEQUENCE NAME
    pub name: Option<QualifiedName>,
    /// OWNED BY table.column; `Some(None)` for OWNED BY NONE
    pub owner: Option<Option<(QualifiedName, String)>>,
}

/// CREATE SEQUENCE
pub(super) fn create(context: &mut Context<'_>, text: &str, create: &CreateSequence) -> Result<()> {
    let name = &QualifiedName::from(&create.name);
    let options = &options_of(context, text, &create.options, false)?;
    let schema = context.names().creation_schema(name)?;
    if context.names().relation_in(schema, &name.name).is_some() {
        if create.if_not_exists {
            let message = format!("relation \"{}\" already exists, skipping", name.name);
            context.notice(SqlState::DUPLICATE_TABLE, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Sequence, &name.name));
    }
    add(context, schema, &name.name, options.ty.unwrap_or(SqlType::BigInt), options, None).map(|_| ())
}

/// The serial or identity column that a sequence is made for.
#[derive(Clone, Copy)]
pub(super) struct DrawingColumn {
    /// Its table and number.
    pub owner: (Oid, u16),
    /// Whether it is an identity column.
    pub is_identity: bool,
}

/// Puts a new sequence into the catalog.
pub(super) fn add(
    context: &mut Context<'_>,
    schema: Oid,
    name: &str,
    ty: SqlType,
    options: &SequenceOptions,
    column: Option<DrawingColumn>,
) -> Result<Arc<SequenceDef>> {
    let increment = options.increment.unwrap_or(1);
    let (least, most) = bounds(ty)?;
    let minimum = options.minimum.flatten().unwrap_or(if increment > 0 { 1 } else { least });
    let maximum = options.maximum.flatten().unwrap_or(if increment > 0 { most } else { -1 });
    let definition = SequenceDef {
        oid: context.allocate(),
        schema,
        name: name.to_owned(),
        ty,
        start: options.start.unwrap_or(if increment > 0 { minimum } else { maximum }),
        increment,
        minimum,
        maximum,
        cycle: options.cycle.unwrap_or(false),
        cache: options.cache.unwrap_or(1),
        owner: match &options.owner {
            Some(owner) => resolve_owner(context, owner.as_ref())?,
            None => column.map(|column| column.owner),
        },
        is_identity: column.is_some_and(|column| column.is_identity),
    };
    check(&definition)?;
    let definition = Arc::new(definition);
    context.catalog_mut()?.sequences.insert(definition.oid, definition.clone());
    Ok(definition)
}

/// ALTER SEQUENCE
pub(super) fn alter(context: &mut Context<'_>, text: &str, alter: &AlterSequence) -> Result<()> {
    let name = &QualifiedName::from(&alter.name);
    let found = alter::relation_to_alter(context, Some(ObjectKind::Sequence), alter.if_exists, name)?;
    let Some(Relation::Sequence(old)) = found else { return Ok(()) };
    let options = options_of(context, text, &alter.options, false)?;
    change(context, &old, &options)
}

/// Changes a sequence as options say.
pub(super) fn change(context: &mut Context<'_>, old: &SequenceDef, options: &SequenceOptions) -> Result<()> {
    let mut new = old.clone();
    if let Some(ty) = options.ty {
        // Bounds that were those of the old type become those of the new one.
        let ((old_least, old_most), (least, most)) = (bounds(old.ty)?, bounds(ty)?);
        new.ty = ty;
        if new.maximum == old_most {
            new.maximum = most;
        }
        if new.minimum == old_least {
            new.minimum = least;
        }
    }
    new.increment = options.increment.unwrap_or(new.increment);
    let (least, most) = bounds(new.ty)?;
    match options.minimum {
        Some(Some(minimum)) => new.minimum = minimum,
        Some(None) => new.minimum = if new.increment > 0 { 1 } else { least },
        None => {}
    }
    match options.maximum {
        Some(Some(maximum)) => new.maximum = maximum,
        Some(None) => new.maximum = if new.increment > 0 { most } else { -1 },
        None => {}
    }
    new.start = options.start.unwrap_or(new.start);
    new.cycle = options.cycle.unwrap_or(new.cycle);
    new.cache = options.cache.unwrap_or(new.cache);
    if let Some(owner) = &options.owner {
        if let Some((table, _)) = identity_column(context, old) {
            let message = "cannot change ownership of identity sequence";
            let detail = format!("Sequence \"{}\" is linked to table \"{}\".", old.name, table.name);
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail));
        }
        new.owner = resolve_owner(context, owner.as_ref())?;
    }
    check(&new)?;
    let (last, is_called) = context.engine.last_value(old);
    let restart = options.restart.map(|value| value.unwrap_or(new.start));
    let value = restart.unwrap_or(last);
    if !(new.minimum..=new.maximum).contains(&value) {
        let (which, word, bound) = match value < new.minimum {
            true => ("less", "MINVALUE", new.minimum),
            false => ("greater", "MAXVALUE", new.maximum),
        };
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("RESTART value ({value}) cannot be {which} than {word} ({bound})"),
        ));
    }
    let new = Arc::new(new);
    context.catalog_mut()?.sequences.insert(new.oid, new.clone());
    if restart.is_some() {
        context.engine.set_value(&new, value, false)?;
    } else if is_called {
        context.engine.set_value(&new, value, true)?;
    }
    Ok(())
}

/// The identity column that draws from a sequence, if one does.
pub(super) fn identity_column(context: &Context<'_>, sequence: &SequenceDef) -> Option<(Arc<TableDef>, u16)> {
    let (table, column) = sequence.owner?;
    let catalog = context.transaction.catalog();
    let table = catalog.tables.get(&table)?;
    table.columns[usize::from(column)].identity?;
    let drawn = catalog.identity_sequence(table.oid, column)?;
    (drawn.oid == sequence.oid).then(|| (table.clone(), column))
}

/// The column that OWNED BY names.
fn resolve_owner(
    context: &Context<'_>,
    owner: Option<&(QualifiedName, String)>,
) -> Result<Option<(Oid, u16)>> {
    let Some((table, column)) = owner else { return Ok(None) };
    let table = match context.names().relation(table)? {
        Relation::Table(table) => table,
        Relation::View(_) => return Err(Error::unsupported("sequences that columns of views own")),
        Relation::Sequence(found) => return Err(cannot_own(&found.name, "sequences")),
        Relation::Index(_, found) => return Err(cannot_own(&found.name, "indexes")),
    };
    match table.column(column) {
        Some((id, _)) => Ok(Some((table.oid, id.0))),
        None => Err(missing_column(&table, column)),
    }
}

/// 42809
fn cannot_own(relation: &str, kinds: &str) -> Error {
    let message = format!("sequence cannot be owned by relation \"{relation}\"");
    let detail = format!("This operation is not supported for {kinds}.");
    Error::new(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail)
}

/// The least and greatest value of a sequence's type.
fn bounds(ty: SqlType) -> Result<(i64, i64)> {
    match ty {
        SqlType::SmallInt => Ok((i64::from(i16::MIN), i64::from(i16::MAX))),
        SqlType::Integer => Ok((i64::from(i32::MIN), i64::from(i32::MAX))),
        SqlType::BigInt => Ok((i64::MIN, i64::MAX)),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}

/// Checks the relations between a sequence's numbers.
fn check(sequence: &SequenceDef) -> Result<()> {
    let invalid = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let (least, most) = bounds(sequence.ty)?;
    let (minimum, maximum, start) = (sequence.minimum, sequence.maximum, sequence.start);
    if sequence.increment == 0 {
        return invalid("INCREMENT must not be zero".into());
    }
    if maximum > most || maximum < least {
        return invalid(format!(
            "MAXVALUE ({maximum}) is out of range for sequence data type {}",
            sequence.ty
        ));
    }
    if minimum < least || minimum > most {
        return invalid(format!(
            "MINVALUE ({minimum}) is out of range for sequence data type {}",
            sequence.ty
        ));
    }
    if minimum >= maximum {
        return invalid(format!("MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})"));
    }
    if start < minimum {
        return invalid(format!("START value ({start}) cannot be less than MINVALUE ({minimum})"));
    }
    if start > maximum {
        return invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({maximum})"));
    }
    Ok(())
}

/// Options, each given at most once. Only the sequence of an identity column is named by an option.
pub(super) fn options_of(
    context: &Context<'_>,
    text: &str,
    list: &[SequenceOption],
    may_be_named: bool,
) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    for (place, option) in list.iter().enumerate() {
        let at = |error: Error| error.with_position(character_position(text, option.span.start));
        let is_same = |other: &SequenceOption| {
            std::mem::discriminant(&other.kind) == std::mem::discriminant(&option.kind)
        };
        if list[..place].iter().any(is_same) {
            return Err(at(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options")));
        }
        let number = |text: &str| number(text).map_err(at);
        match &option.kind {
            SequenceOptionKind::Type(name) => {
                let ty = context.bound(|catalog| firn_bind::bind_type_name(text, name, catalog))?;
                options.ty = Some(type_of(ty)?);
            }
            // It is only shown: numbers are allocated from memory anyway.
            SequenceOptionKind::Cache(size) => {
                let cache = number(size)?;
                if cache < 1 {
                    let message = format!("CACHE ({size}) must be greater than zero");
                    return Err(at(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)));
                }
                options.cache = Some(cache);
            }
            SequenceOptionKind::Logged | SequenceOptionKind::Unlogged => {}
            SequenceOptionKind::Cycle(cycle) => options.cycle = Some(*cycle),
            SequenceOptionKind::Increment(by) => options.increment = Some(number(by)?),
            SequenceOptionKind::MaxValue(value) => {
                options.maximum = Some(value.as_deref().map(number).transpose()?);
            }
            SequenceOptionKind::MinValue(value) => {
                options.minimum = Some(value.as_deref().map(number).transpose()?);
            }
            SequenceOptionKind::OwnedBy(owner) => options.owner = Some(owner_of(owner)?),
            SequenceOptionKind::SequenceName(name) if may_be_named => options.name = Some(name.into()),
            SequenceOptionKind::SequenceName(_) => {
                let message = "sequence option \"sequence_name\" not supported here";
                return Err(at(Error::new(SqlState::SYNTAX_ERROR, message)));
            }
            SequenceOptionKind::Start(value) => options.start = Some(number(value)?),
            SequenceOptionKind::Restart(value) => {
                options.restart = Some(value.as_deref().map(number).transpose()?);
            }
        }
    }
    Ok(options)
}

/// The type of a sequence.
pub(super) fn type_of(ty: Type) -> Result<SqlType> {
    match ty.id {
        TypeId::INT2 => Ok(SqlType::SmallInt),
        TypeId::INT4 => Ok(SqlType::Integer),
        TypeId::INT8 => Ok(SqlType::BigInt),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}

/// What OWNED BY names: a table and its column, or none.
fn owner_of(name: &ObjectName) -> Result<Option<(QualifiedName, String)>> {
    let column = name.name.text.to_string();
    match &name.qualifiers[..] {
        [] if column == "none" => Ok(None),
        [] => Err(Error::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
            .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")),
        [before @ .., table] => {
            let schema = before.last().map(|schema| schema.text.to_string());
            Ok(Some((QualifiedName { schema, name: table.text.to_string() }, column)))
        }
    }
}

fn number(text: &str) -> Result<i64> {
    text.replace('_', "").parse().map_err(|_| {
        let message = format!("value \"{text}\" is out of range for type bigint");
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}
