//! Storage parameters of tables: CREATE TABLE … WITH (…), ALTER TABLE … SET (…) and RESET (…); and of indexes: CREATE
//! INDEX … WITH (…).

use crate::settings::{boolean, cooling_time, duration_ms, print_duration};
use crate::statement::{Parameter, fold};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};
use firn_base::{Error, Result, SqlState};
use firn_txn::catalog::{After, IndexDef, TableSettings};

const FREEZE_AFTER: &str = "freeze_after";
const COMPACT_AFTER: &str = "compact_after";
const VALUES: &str = "values";

/// What PostgreSQL's tables know and ours do without.
const WITHOUT_EFFECT: [&str; 5] =
    ["fillfactor", "parallel_workers", "user_catalog_table", "toast_tuple_target", "oids"];

/// The settings of a new table.
pub(super) fn settings_of(parameters: &[Parameter]) -> Result<TableSettings> {
    set(TableSettings::default(), parameters)
}

/// SET (…)
pub(super) fn set(mut settings: TableSettings, parameters: &[Parameter]) -> Result<TableSettings> {
    for Parameter { name, value } in parameters {
        if let Some(setting) = setting(&mut settings, name)? {
            *setting = Some(after(name, value.as_deref().unwrap_or("true"))?);
        }
    }
    Ok(settings)
}

/// RESET (…)
pub(super) fn reset(mut settings: TableSettings, names: &[String]) -> Result<TableSettings> {
    for name in names {
        if let Some(setting) = setting(&mut settings, name)? {
            *setting = None;
        }
    }
    Ok(settings)
}

/// Settings as `pg_class.reloptions` has them.
pub(crate) fn options(settings: &TableSettings) -> Vec<String> {
    let value = |after: After| match after {
        After::Never => "never".to_owned(),
        After::Milliseconds(count) => print_duration(count.into()),
    };
    let all = [(FREEZE_AFTER, settings.freeze_after), (COMPACT_AFTER, settings.compact_after)];
    all.into_iter().filter_map(|(name, after)| Some(format!("{name}={}", value(after?)))).collect()
}

/// Whether an index keeps the values of all rows, as its parameters say.
pub(super) fn keeps_values(parameters: &[Expr]) -> Result<bool> {
    let mut keeps = true;
    for parameter in parameters {
        let (name, value) = index_parameter(parameter)?;
        match &name[..] {
            VALUES => {
                keeps = boolean(&value).ok_or_else(|| invalid_value(&name, &value, "Say on or off."))?
            }
            // What PostgreSQL's indexes know and ours do without.
            "fillfactor" | "deduplicate_items" => {}
            _ => return Err(unrecognized(&name, "Indexes have the parameter values.")),
        }
    }
    Ok(keeps)
}

/// A parameter's name and value, which sqlparser takes for a comparison.
fn index_parameter(parameter: &Expr) -> Result<(String, String)> {
    let parts = match parameter {
        Expr::Identifier(name) => Some((name, "on".to_owned())),
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (&**left, &**right) {
            (Expr::Identifier(name), Expr::Identifier(value)) => Some((name, value.value.clone())),
            (Expr::Identifier(name), Expr::Value(value)) => match &value.value {
                Value::SingleQuotedString(value) => Some((name, value.clone())),
                value => Some((name, value.to_string())),
            },
            _ => None,
        },
        _ => None,
    };
    let syntax = || {
        let message = format!("syntax error at or near \"{parameter}\"");
        Error::new(SqlState::SYNTAX_ERROR, message).with_hint("Give parameters as WITH (values = off).")
    };
    let (name, value) = parts.ok_or_else(syntax)?;
    Ok((fold(name), value))
}

/// The parameters of an index as `pg_class.reloptions` has them.
pub(crate) fn index_options(index: &IndexDef) -> Vec<String> {
    if index.values { Vec::new() } else { vec![format!("{VALUES}=off")] }
}

/// What a parameter sets; nothing if only PostgreSQL's tables have it. 22023 if it is nobody's.
fn setting<'s>(settings: &'s mut TableSettings, name: &str) -> Result<Option<&'s mut Option<After>>> {
    let own = name.strip_prefix("toast.").unwrap_or(name);
    let is_vacuums =
        ["autovacuum_", "log_autovacuum_", "vacuum_"].into_iter().any(|prefix| own.starts_with(prefix));
    if is_vacuums || WITHOUT_EFFECT.contains(&own) {
        return Ok(None);
    }
    match name {
        FREEZE_AFTER => Ok(Some(&mut settings.freeze_after)),
        COMPACT_AFTER => Ok(Some(&mut settings.compact_after)),
        _ => {
            let hint = format!("Tables have the parameters {FREEZE_AFTER} and {COMPACT_AFTER}.");
            Err(unrecognized(name, &hint))
        }
    }
}

fn unrecognized(name: &str, hint: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\""))
        .with_hint(hint)
}

fn invalid_value(name: &str, value: &str, hint: &str) -> Error {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint)
}

/// A time with a unit, or never; a number alone is one of milliseconds, as in settings.
fn after(name: &str, value: &str) -> Result<After> {
    let ms = match cooling_time(value) {
        Some(None) => return Ok(After::Never),
        Some(Some(time)) => u32::try_from(time.as_millis()).ok(),
        None => duration_ms(value).and_then(|ms| u32::try_from(ms).ok()),
    };
    ms.map(After::Milliseconds).ok_or_else(|| {
        let hint =
            "Give a time such as '500ms', '10s' or '1h', or 'never'. A number alone is one of milliseconds.";
        invalid_value(name, value, hint)
    })
}
