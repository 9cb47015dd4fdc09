//! Storage parameters of tables: CREATE TABLE … WITH (…), ALTER TABLE … SET (…) and RESET (…); and of indexes: CREATE
//! INDEX … WITH (…).

use crate::settings::{boolean, cooling_time, duration_ms, print_duration};
use firn_base::{Error, Result, SqlState};
use firn_syntax::print;
use firn_syntax::tree::{OptionValue, RelOption};
use firn_txn::catalog::{After, IndexDef, TableSettings};

const FREEZE_AFTER: &str = "freeze_after";
const COMPACT_AFTER: &str = "compact_after";
const VALUES: &str = "values";

/// Parameters of PostgreSQL's tables that have no effect here.
const WITHOUT_EFFECT: [&str; 5] =
    ["fillfactor", "parallel_workers", "user_catalog_table", "toast_tuple_target", "oids"];

/// Parameters of PostgreSQL's columns that have no effect here.
const OF_COLUMNS: [&str; 2] = ["n_distinct", "n_distinct_inherited"];

/// The settings of a new table.
pub(super) fn settings_of(parameters: &[RelOption]) -> Result<TableSettings> {
    set(TableSettings::default(), parameters)
}

/// SET (…)
pub(super) fn set(mut settings: TableSettings, parameters: &[RelOption]) -> Result<TableSettings> {
    for parameter in parameters {
        let name = full_name(parameter);
        if let Some(setting) = setting(&mut settings, &name)? {
            *setting = Some(after(&name, &value_of(parameter, "true"))?);
        }
    }
    Ok(settings)
}

/// RESET (…)
pub(super) fn reset(mut settings: TableSettings, parameters: &[RelOption]) -> Result<TableSettings> {
    for parameter in parameters {
        if let Some(setting) = setting(&mut settings, &full_name(parameter))? {
            *setting = None;
        }
    }
    Ok(settings)
}

/// SET (…) and RESET (…) of a column, which have no effect. 22023 if PostgreSQL's columns do not have a parameter either.
pub(super) fn check_of_column(parameters: &[RelOption]) -> Result<()> {
    for parameter in parameters {
        let name = full_name(parameter);
        if !OF_COLUMNS.contains(&name.as_str()) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized parameter \"{name}\""),
            ));
        }
    }
    Ok(())
}

/// A parameter's name, such as `toast.autovacuum_enabled`.
fn full_name(parameter: &RelOption) -> String {
    match &parameter.namespace {
        Some(namespace) => format!("{}.{}", namespace.text, parameter.name.text),
        None => parameter.name.text.to_string(),
    }
}

/// A parameter's value as text.
fn value_of(parameter: &RelOption, default: &str) -> String {
    match &parameter.value {
        None => default.to_owned(),
        Some(OptionValue::Type(name)) => print::type_name(name),
        Some(OptionValue::TypeOf { name, .. }) => name.name.text.to_string(),
        Some(OptionValue::Word(name)) => name.text.to_string(),
        Some(OptionValue::Operator(operator)) => operator.symbol().to_owned(),
        Some(OptionValue::Number(text) | OptionValue::String(text)) => text.to_string(),
    }
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

/// The parameters of a new index: whether it keeps the values of all rows, and those that are only shown.
pub(super) fn of_index(parameters: &[RelOption]) -> Result<(bool, Vec<(String, String)>)> {
    let (mut keeps, mut shown) = (true, Vec::new());
    for parameter in parameters {
        let (name, value) = (full_name(parameter), value_of(parameter, "on"));
        match &name[..] {
            VALUES => {
                keeps = boolean(&value)
                    .ok_or_else(|| invalid_value(&name, &value, "Valid values are on and off."))?
            }
            // Parameters of PostgreSQL's indexes that have no effect here.
            "fillfactor" => match value.parse::<i64>() {
                Ok(10..=100) => shown.push((name, value)),
                Ok(_) => {
                    let message = format!("value {value} out of bounds for option \"{name}\"");
                    let error = Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
                    return Err(error.with_detail("Valid values are between \"10\" and \"100\"."));
                }
                Err(_) => {
                    let message = format!("invalid value for integer option \"{name}\": {value}");
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
            },
            "deduplicate_items" => match boolean(&value) {
                Some(_) => shown.push((name, value)),
                None => {
                    let message = format!("invalid value for boolean option \"{name}\": {value}");
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
            },
            _ => return Err(unrecognized(&name, "Indexes have the parameter values.")),
        }
    }
    Ok((keeps, shown))
}

/// SET (…) of an index. 0A000 for parameters that are fixed when an index is created.
pub(super) fn set_of_index(shown: &mut Vec<(String, String)>, parameters: &[RelOption]) -> Result<()> {
    let (_, new) = of_index(parameters)?;
    refuse_values(parameters)?;
    // New parameters follow the existing ones, as in PostgreSQL.
    shown.retain(|(known, _)| new.iter().all(|(name, _)| name != known));
    shown.extend(new);
    Ok(())
}

/// RESET (…) of an index.
pub(super) fn reset_of_index(shown: &mut Vec<(String, String)>, parameters: &[RelOption]) -> Result<()> {
    refuse_values(parameters)?;
    shown.retain(|(name, _)| parameters.iter().all(|parameter| full_name(parameter) != *name));
    Ok(())
}

fn refuse_values(parameters: &[RelOption]) -> Result<()> {
    match parameters.iter().any(|parameter| &*parameter.name.text == VALUES) {
        false => Ok(()),
        true => Err(Error::unsupported("this form of ALTER INDEX").with_hint(
            "The parameter of an index cannot be changed: create another index with or without WITH (values = off), \
             and drop this one.",
        )),
    }
}

/// The parameters of an index as `pg_class.reloptions` has them.
pub(crate) fn index_options(index: &IndexDef) -> Vec<String> {
    let own = (!index.values).then(|| format!("{VALUES}=off"));
    let shown = index.annotations.parameters.iter().map(|(name, value)| format!("{name}={value}"));
    own.into_iter().chain(shown).collect()
}

/// The setting of a parameter; `None` if it has no effect here. 22023 if PostgreSQL does not have it either.
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

/// A time with a unit, or `never`; a number alone is one of milliseconds, as in settings.
fn after(name: &str, value: &str) -> Result<After> {
    let ms = match cooling_time(value) {
        Some(None) => return Ok(After::Never),
        Some(Some(time)) => u32::try_from(time.as_millis()).ok(),
        None => duration_ms(value).and_then(|ms| u32::try_from(ms).ok()),
    };
    ms.map(After::Milliseconds).ok_or_else(|| {
        let hint =
            "Give a time such as '500ms', '10s' or '1h', or 'never'. A number without a unit is in milliseconds.";
        invalid_value(name, value, hint)
    })
}
