//! CREATE and ALTER SEQUENCE. A sequence's definition is transactional, its counter is not: what
//! `nextval` has given stays given, whatever becomes of the transaction.

use super::{Context, already_exists};
use crate::names::{Relation, missing, missing_column};
use crate::statement::{ObjectKind, QualifiedName, SequenceOptions};
use datafusion::sql::sqlparser::ast::{self, Expr};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType};
use firn_txn::catalog::{Oid, SequenceDef};

/// CREATE SEQUENCE
pub(super) fn create(
    context: &mut Context<'_>,
    name: &QualifiedName,
    if_not_exists: bool,
    options: &SequenceOptions,
) -> Result<()> {
    let schema = context.names().creation_schema(name)?;
    if context.names().relation_in(schema, &name.name).is_some() {
        if if_not_exists {
            let message = format!("relation \"{}\" already exists, skipping", name.name);
            context.notice(SqlState::DUPLICATE_TABLE, message);
            return Ok(());
        }
        return Err(already_exists(ObjectKind::Sequence, &name.name));
    }
    add(context, schema, &name.name, options.ty.unwrap_or(SqlType::BigInt), options, None).map(|_| ())
}

/// Puts a new sequence into the catalog.
pub(super) fn add(
    context: &mut Context<'_>,
    schema: Oid,
    name: &str,
    ty: SqlType,
    options: &SequenceOptions,
    owner: Option<(Oid, u16)>,
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
        owner: match &options.owner {
            Some(owner) => resolve_owner(context, owner.as_ref())?,
            None => owner,
        },
    };
    check(&definition)?;
    let definition = Arc::new(definition);
    context.catalog_mut()?.sequences.insert(definition.oid, definition.clone());
    Ok(definition)
}

/// ALTER SEQUENCE
pub(super) fn alter(
    context: &mut Context<'_>,
    name: &QualifiedName,
    if_exists: bool,
    options: &SequenceOptions,
) -> Result<()> {
    context.names().refuse_source(name)?;
    let old = match context.names().find(name) {
        Some(Relation::Sequence(sequence)) => sequence,
        Some(_) => return Err(crate::names::wrong_kind(ObjectKind::Sequence, &name.name)),
        None if if_exists => {
            let message = format!("relation \"{name}\" does not exist, skipping");
            context.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(());
        }
        None => return Err(crate::names::missing_relation(name)),
    };
    let mut new = SequenceDef::clone(&old);
    if let Some(ty) = options.ty {
        // Bounds that were the old type's become the new one's.
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
    if let Some(owner) = &options.owner {
        new.owner = resolve_owner(context, owner.as_ref())?;
    }
    check(&new)?;
    let (last, is_called) = context.engine.last_value(&old);
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

/// The column that OWNED BY names.
fn resolve_owner(
    context: &Context<'_>,
    owner: Option<&(QualifiedName, String)>,
) -> Result<Option<(Oid, u16)>> {
    let Some((table, column)) = owner else { return Ok(None) };
    let table = match context.names().object(ObjectKind::Table, table) {
        Ok(Relation::Table(table)) => table,
        _ => return Err(missing(ObjectKind::Table, table)),
    };
    match table.column(column) {
        Some((id, _)) => Ok(Some((table.oid, id.0))),
        None => Err(missing_column(&table, column)),
    }
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

/// What must hold between a sequence's numbers.
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

/// Options as sqlparser gives them for identity columns.
pub(super) fn options_of_tree(tree: &[ast::SequenceOptions]) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    for option in tree {
        match option {
            ast::SequenceOptions::IncrementBy(by, _) => options.increment = Some(number(by)?),
            ast::SequenceOptions::MinValue(value) => {
                options.minimum = Some(value.as_ref().map(number).transpose()?);
            }
            ast::SequenceOptions::MaxValue(value) => {
                options.maximum = Some(value.as_ref().map(number).transpose()?);
            }
            ast::SequenceOptions::StartWith(start, _) => options.start = Some(number(start)?),
            ast::SequenceOptions::Cache(_) => {}
            // sqlparser keeps whether NO was written.
            ast::SequenceOptions::Cycle(no) => options.cycle = Some(!no),
        }
    }
    Ok(options)
}

fn number(expression: &Expr) -> Result<i64> {
    expression
        .to_string()
        .replace(' ', "")
        .parse()
        .map_err(|_| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{expression}\"")))
}
