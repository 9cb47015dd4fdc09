//! Storage parameters of tables: CREATE TABLE … WITH (…), ALTER TABLE … SET (…) and RESET (…).

use crate::settings::{duration_ms, print_duration};
use crate::statement::Parameter;
use firn_base::{Error, Result, SqlState};
use firn_txn::catalog::{After, TableSettings};

const FREEZE_AFTER: &str = "freeze_after";
const COMPACT_AFTER: &str = "compact_after";

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
        _ => Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\""))
            .with_hint(format!("Tables have the parameters {FREEZE_AFTER} and {COMPACT_AFTER}."))),
    }
}

fn after(name: &str, value: &str) -> Result<After> {
    if value.eq_ignore_ascii_case("never") {
        return Ok(After::Never);
    }
    let count = duration_ms(value).and_then(|count| u32::try_from(count).ok());
    count.map(After::Milliseconds).ok_or_else(|| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .with_hint("Give a time such as '500ms', '10s' or '1h', or 'never'.")
    })
}
