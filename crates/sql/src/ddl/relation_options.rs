//! PostgreSQL's storage parameters of tables, columns and indexes, which have no effect: their names and what they take.
//!
//! The table is that of PostgreSQL 15's `reloptions.c`.

use crate::settings::{boolean, option_integer, option_real};
use firn_base::{Error, Result, SqlState};

/// What has a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Table,
    /// The table of a table's long values.
    Toast,
    Column,
    Index,
}

/// What a parameter takes.
enum Kind {
    Boolean,
    Integer(i32, i32),
    Real(f64, f64),
    /// on, off or auto
    Cleanup,
}

use Kind::{Boolean, Cleanup, Integer, Real};
use Owner::{Column, Index, Table, Toast};

const BOTH: &[Owner] = &[Table, Toast];

const OPTIONS: &[(&str, &[Owner], Kind)] = &[
    ("autovacuum_analyze_scale_factor", &[Table], Real(0.0, 100.0)),
    ("autovacuum_analyze_threshold", &[Table], Integer(0, i32::MAX)),
    ("autovacuum_enabled", BOTH, Boolean),
    ("autovacuum_freeze_max_age", BOTH, Integer(100_000, 2_000_000_000)),
    ("autovacuum_freeze_min_age", BOTH, Integer(0, 1_000_000_000)),
    ("autovacuum_freeze_table_age", BOTH, Integer(0, 2_000_000_000)),
    ("autovacuum_multixact_freeze_max_age", BOTH, Integer(10_000, 2_000_000_000)),
    ("autovacuum_multixact_freeze_min_age", BOTH, Integer(0, 1_000_000_000)),
    ("autovacuum_multixact_freeze_table_age", BOTH, Integer(0, 2_000_000_000)),
    ("autovacuum_vacuum_cost_delay", BOTH, Real(0.0, 100.0)),
    ("autovacuum_vacuum_cost_limit", BOTH, Integer(1, 10_000)),
    ("autovacuum_vacuum_insert_scale_factor", BOTH, Real(0.0, 100.0)),
    ("autovacuum_vacuum_insert_threshold", BOTH, Integer(-1, i32::MAX)),
    ("autovacuum_vacuum_scale_factor", BOTH, Real(0.0, 100.0)),
    ("autovacuum_vacuum_threshold", BOTH, Integer(0, i32::MAX)),
    ("deduplicate_items", &[Index], Boolean),
    ("fillfactor", &[Table, Index], Integer(10, 100)),
    ("log_autovacuum_min_duration", BOTH, Integer(-1, i32::MAX)),
    ("n_distinct", &[Column], Real(-1.0, f64::MAX)),
    ("n_distinct_inherited", &[Column], Real(-1.0, f64::MAX)),
    ("parallel_workers", &[Table], Integer(0, 1024)),
    ("toast_tuple_target", &[Table], Integer(128, 8160)),
    ("user_catalog_table", &[Table], Boolean),
    ("vacuum_cleanup_index_scale_factor", &[Index], Real(0.0, 1e10)),
    ("vacuum_index_cleanup", BOTH, Cleanup),
    ("vacuum_truncate", BOTH, Boolean),
];

/// Checks the value of a parameter. False if there is none of that name.
pub(super) fn check(owner: Owner, name: &str, value: &str) -> Result<bool> {
    let is_it = |(known, owners, _): &&(&str, &[Owner], Kind)| *known == name && owners.contains(&owner);
    let Some((_, _, kind)) = OPTIONS.iter().find(is_it) else { return Ok(false) };
    let refused = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let invalid = |kind: &str| refused(format!("invalid value for {kind} option \"{name}\": {value}"));
    let outside = |low: String, high: String| {
        let error = refused(format!("value {value} out of bounds for option \"{name}\""));
        error.with_detail(format!("Valid values are between \"{low}\" and \"{high}\"."))
    };
    match *kind {
        Boolean => match boolean(value) {
            Some(_) => Ok(true),
            None => Err(invalid("boolean")),
        },
        Integer(low, high) => match option_integer(value) {
            Some(number) if (low..=high).contains(&number) => Ok(true),
            Some(_) => Err(outside(low.to_string(), high.to_string())),
            None => Err(invalid("integer")),
        },
        Real(low, high) => match option_real(value) {
            Some(number) if (low..=high).contains(&number) => Ok(true),
            Some(_) => Err(outside(format!("{low:.6}"), format!("{high:.6}"))),
            None => Err(invalid("floating point")),
        },
        Cleanup => {
            let words = ["auto", "on", "off", "true", "false", "yes", "no", "1", "0"];
            match words.iter().any(|word| value.eq_ignore_ascii_case(word)) {
                true => Ok(true),
                false => Err(invalid("enum").with_detail("Valid values are \"on\", \"off\", and \"auto\".")),
            }
        }
    }
}
