//! Storage parameters of tables: CREATE TABLE … WITH (…), ALTER TABLE … SET (…) and RESET (…).

use crate::settings::{duration_ms, print_duration};
use crate::statement::Parameter;
use firn_base::{Error, Result, SqlState};
use firn_txn::catalog::{FreezeAfter, TableSettings};

const FREEZE_AFTER: &str = "freeze_after";

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
        if is_known(name)? {
            settings.freeze_after = Some(freeze_after(value.as_deref().unwrap_or("true"))?);
        }
    }
    Ok(settings)
}

/// RESET (…)
pub(super) fn reset(mut settings: TableSettings, names: &[String]) -> Result<TableSettings> {
    for name in names {
        if is_known(name)? {
            settings.freeze_after = None;
        }
    }
    Ok(settings)
}

/// Settings as `pg_class.reloptions` has them.
pub(crate) fn options(settings: &TableSettings) -> Vec<String> {
    let value = |after: FreezeAfter| match after {
        FreezeAfter::Never => "never".to_owned(),
        FreezeAfter::Milliseconds(count) => print_duration(count.into()),
    };
    settings.freeze_after.map(|after| format!("{FREEZE_AFTER}={}", value(after))).into_iter().collect()
}

/// Whether it is a parameter of ours; 22023 if it is nobody's.
fn is_known(name: &str) -> Result<bool> {
    let own = name.strip_prefix("toast.").unwrap_or(name);
    let is_vacuums =
        ["autovacuum_", "log_autovacuum_", "vacuum_"].into_iter().any(|prefix| own.starts_with(prefix));
    if is_vacuums || WITHOUT_EFFECT.contains(&own) {
        return Ok(false);
    }
    match name == FREEZE_AFTER {
        true => Ok(true),
        false => {
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\""))
                .with_hint(format!("Tables have the parameter {FREEZE_AFTER}.")))
        }
    }
}

fn freeze_after(value: &str) -> Result<FreezeAfter> {
    if value.eq_ignore_ascii_case("never") {
        return Ok(FreezeAfter::Never);
    }
    let count = duration_ms(value).and_then(|count| u32::try_from(count).ok());
    count.map(FreezeAfter::Milliseconds).ok_or_else(|| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{FREEZE_AFTER}\": \"{value}\""),
        )
        .with_hint("Give a time such as '500ms', '10s' or '1h', or 'never'.")
    })
}
