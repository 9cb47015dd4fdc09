//! Storage parameters of tables: CREATE TABLE … WITH (…), ALTER TABLE … SET (…) and RESET (…); and of indexes: CREATE
//! INDEX … WITH (…).

use super::relation_options::{self, Owner};
use crate::settings::{boolean, cooling_time, duration_ms, print_duration};
use firn_base::{Error, Result, SqlState};
use firn_syntax::print;
use firn_syntax::tree::{OptionValue, RelOption};
use firn_txn::catalog::{After, IndexDef, TableSettings};

const FREEZE_AFTER: &str = "freeze_after";
const COMPACT_AFTER: &str = "compact_after";
const VALUES: &str = "values";

/// The settings of a new table.
pub(super) fn settings_of(parameters: &[RelOption]) -> Result<TableSettings> {
    // Of tables with oids only the wish to have none is left.
    let is_oids = |parameter: &&RelOption| parameter.namespace.is_none() && &*parameter.name.text == "oids";
    if let Some(oids) = parameters.iter().find(is_oids) {
        let value = value_of(oids, "true");
        match boolean(&value) {
            Some(false) => {}
            Some(true) => {
                let message = "tables declared WITH OIDS are not supported";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            None => {
                let message = "oids requires a Boolean value";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
        }
    }
    let others: Vec<RelOption> = parameters.iter().filter(|parameter| !is_oids(parameter)).cloned().collect();
    set(TableSettings::default(), &others)
}

/// SET (…)
pub(super) fn set(mut settings: TableSettings, parameters: &[RelOption]) -> Result<TableSettings> {
    refuse_repetition(parameters)?;
    for parameter in parameters {
        let name = &*parameter.name.text;
        let value = value_of(parameter, "true");
        let owner = match parameter.namespace.as_ref().map(|namespace| &*namespace.text) {
            None => Owner::Table,
            Some("toast") => Owner::Toast,
            Some(other) => {
                let message = format!("unrecognized parameter namespace \"{other}\"");
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        };
        match name {
            FREEZE_AFTER if owner == Owner::Table => settings.freeze_after = Some(after(name, &value)?),
            COMPACT_AFTER if owner == Owner::Table => settings.compact_after = Some(after(name, &value)?),
            _ if relation_options::check(owner, name, &value)? => {}
            _ => {
                let hint = format!("Tables have the parameters {FREEZE_AFTER} and {COMPACT_AFTER}.");
                return Err(unrecognized(name, &hint));
            }
        }
    }
    Ok(settings)
}

/// RESET (…)
pub(super) fn reset(mut settings: TableSettings, parameters: &[RelOption]) -> Result<TableSettings> {
    refuse_values_of_reset(parameters)?;
    for parameter in parameters.iter().filter(|parameter| parameter.namespace.is_none()) {
        match &*parameter.name.text {
            FREEZE_AFTER => settings.freeze_after = None,
            COMPACT_AFTER => settings.compact_after = None,
            _ => {}
        }
    }
    Ok(settings)
}

/// SET (…) of a column, which has no effect.
pub(super) fn check_of_column(parameters: &[RelOption]) -> Result<()> {
    refuse_repetition(parameters)?;
    for parameter in parameters {
        let name = full_name(parameter);
        if !relation_options::check(Owner::Column, &name, &value_of(parameter, "true"))? {
            let message = format!("unrecognized parameter \"{name}\"");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    Ok(())
}

/// 42601 for a value in RESET.
pub(super) fn refuse_values_of_reset(parameters: &[RelOption]) -> Result<()> {
    match parameters.iter().any(|parameter| parameter.value.is_some()) {
        false => Ok(()),
        true => Err(Error::new(SqlState::SYNTAX_ERROR, "RESET must not include values for parameters")),
    }
}

/// 22023 for a parameter that is there twice.
fn refuse_repetition(parameters: &[RelOption]) -> Result<()> {
    let name = |parameter: &RelOption| full_name(parameter);
    let is_repeated = |place: usize| {
        let before = &parameters[..place];
        before.iter().any(|other| name(other) == name(&parameters[place]))
    };
    match (0..parameters.len()).find(|place| is_repeated(*place)) {
        None => Ok(()),
        Some(place) => {
            let message = format!("parameter \"{}\" specified more than once", parameters[place].name.text);
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
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
        After::Milliseconds(count) => print_duration(count),
    };
    let all = [(FREEZE_AFTER, settings.freeze_after), (COMPACT_AFTER, settings.compact_after)];
    all.into_iter().filter_map(|(name, after)| Some(format!("{name}={}", value(after?)))).collect()
}

/// The parameters of a new index: whether it keeps the values of all rows, and those that are only shown.
pub(super) fn of_index(parameters: &[RelOption]) -> Result<(bool, Vec<(String, String)>)> {
    refuse_repetition(parameters)?;
    let (mut keeps, mut shown) = (true, Vec::new());
    for parameter in parameters {
        let name = full_name(parameter);
        if name == VALUES {
            let value = value_of(parameter, "on");
            keeps = boolean(&value).ok_or_else(|| invalid_value(&name, &value, "Say on or off."))?;
            continue;
        }
        let value = value_of(parameter, "true");
        if !relation_options::check(Owner::Index, &name, &value)? {
            return Err(unrecognized(&name, "Indexes have the parameter values."));
        }
        shown.push((name, value));
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
    refuse_values_of_reset(parameters)?;
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
