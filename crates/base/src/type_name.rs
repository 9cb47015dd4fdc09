//! The names of types: every spelling that PostgreSQL accepts for the supported types.
//!
//! Invariant: `SqlType::parse(&ty.to_string()) == Ok(ty)`.

use crate::error::{Error, Result, SqlState};
use crate::types::SqlType;
use std::str::FromStr;

/// The longest `varchar(n)` and `char(n)`, as in PostgreSQL.
const MAX_STRING_LENGTH: u32 = 10_485_760;

impl SqlType {
    /// The type of that name, in any spelling and case that PostgreSQL accepts, with or without the prefix
    /// `pg_catalog.` and the quotes that PostgreSQL prints around `"char"`.
    pub fn parse(name: &str) -> Result<SqlType> {
        let lower = name.to_ascii_lowercase();
        let (base, arguments, suffix) = split(&lower).ok_or_else(|| unknown(name))?;
        let words: Vec<&str> = base.split_whitespace().chain(suffix.split_whitespace()).collect();
        let full = words.join(" ");
        let full = full.strip_prefix("pg_catalog.").unwrap_or(&full);
        let plain = |ty: SqlType| match arguments.as_slice() {
            [] => Ok(ty),
            _ => Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("type modifier is not allowed for type \"{full}\""),
            )),
        };
        match full {
            "boolean" | "bool" => plain(SqlType::Boolean),
            "smallint" | "int2" => plain(SqlType::SmallInt),
            "integer" | "int" | "int4" => plain(SqlType::Integer),
            "bigint" | "int8" => plain(SqlType::BigInt),
            "real" | "float4" => plain(SqlType::Real),
            "double precision" | "float8" => plain(SqlType::Double),
            "float" => float(&arguments),
            "numeric" | "decimal" | "dec" => SqlType::numeric(&arguments),
            "text" | "name" => plain(SqlType::Text),
            "varchar"
            | "character varying"
            | "char varying"
            | "national character varying"
            | "national char varying"
            | "nchar varying" => match arguments.as_slice() {
                [] => Ok(SqlType::Varchar(None)),
                [length] => Ok(SqlType::Varchar(Some(string_length("varchar", *length)?))),
                _ => Err(too_many(full)),
            },
            "char" | "character" | "national character" | "national char" | "nchar" => {
                match arguments.as_slice() {
                    [] => Ok(SqlType::Char(1)),
                    [length] => Ok(SqlType::Char(string_length("char", *length)?)),
                    _ => Err(too_many(full)),
                }
            }
            // Without a length PostgreSQL's `bpchar` is unbounded and ignores trailing blanks; text is the
            // closest supported type.
            "bpchar" => match arguments.as_slice() {
                [] => Ok(SqlType::Text),
                [length] => Ok(SqlType::Char(string_length("char", *length)?)),
                _ => Err(too_many(full)),
            },
            // The one-byte type of PostgreSQL's catalogs.
            "\"char\"" => plain(SqlType::Text),
            "bytea" => plain(SqlType::Bytea),
            "date" => plain(SqlType::Date),
            "time" | "time without time zone" => microseconds(full, &arguments, SqlType::Time),
            "timestamp" | "timestamp without time zone" => microseconds(full, &arguments, SqlType::Timestamp),
            "timestamptz" | "timestamp with time zone" => {
                microseconds(full, &arguments, SqlType::TimestampTz)
            }
            "interval" => microseconds(full, &arguments, SqlType::Interval),
            "uuid" => plain(SqlType::Uuid),
            "serial" | "serial2" | "serial4" | "serial8" | "smallserial" | "bigserial" => Err(unknown(name)
                .with_hint("A serial type is a default, not a type: use it only in CREATE TABLE.")),
            _ => Err(unknown(name)),
        }
    }

    /// `numeric(precision, scale)` with PostgreSQL's checks of the modifiers and our limit of 38 digits;
    /// without modifiers [`SqlType::NUMERIC`].
    fn numeric(arguments: &[i64]) -> Result<SqlType> {
        let (precision, scale) = match arguments {
            [] => return Ok(SqlType::NUMERIC),
            [precision] => (*precision, 0),
            [precision, scale] => (*precision, *scale),
            _ => return Err(too_many("numeric")),
        };
        if !(1..=38).contains(&precision) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("NUMERIC precision {precision} must be between 1 and 38"),
            ));
        }
        if !(0..=precision).contains(&scale) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
            ));
        }
        Ok(SqlType::Numeric { precision: precision as u8, scale: scale as u8 })
    }
}

impl FromStr for SqlType {
    type Err = Error;

    fn from_str(name: &str) -> Result<SqlType> {
        SqlType::parse(name)
    }
}

/// Splits `base(a, b) suffix`.
fn split(name: &str) -> Option<(&str, Vec<i64>, &str)> {
    let Some((base, rest)) = name.split_once('(') else { return Some((name, Vec::new(), "")) };
    let (arguments, suffix) = rest.split_once(')')?;
    let arguments =
        arguments.split(',').map(|argument| argument.trim().parse().ok()).collect::<Option<_>>()?;
    Some((base, arguments, suffix))
}

fn float(arguments: &[i64]) -> Result<SqlType> {
    match arguments {
        [] => Ok(SqlType::Double),
        [1..=24] => Ok(SqlType::Real),
        [25..=53] => Ok(SqlType::Double),
        [bits] if *bits < 1 => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "precision for type float must be at least 1 bit",
        )),
        [_] => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "precision for type float must be less than 54 bits",
        )),
        _ => Err(too_many("float")),
    }
}

fn string_length(name: &str, length: i64) -> Result<u32> {
    match u32::try_from(length) {
        Ok(length @ 1..=MAX_STRING_LENGTH) => Ok(length),
        Ok(0) | Err(_) => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("length for type {name} must be at least 1"),
        )),
        Ok(_) => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("length for type {name} cannot exceed {MAX_STRING_LENGTH}"),
        )),
    }
}

/// Types with a precision of fractional seconds. All six digits are stored.
fn microseconds(name: &str, arguments: &[i64], ty: SqlType) -> Result<SqlType> {
    match arguments {
        [] | [6] => Ok(ty),
        [0..=5] => Err(Error::unsupported(format_args!("{name} with fewer than 6 digits of a second"))
            .with_hint("Use date_trunc or round the values where they are made.")),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("{} precision must be between 0 and 6", name.to_ascii_uppercase()),
        )),
    }
}

fn too_many(name: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid {} type modifier", name.to_ascii_uppercase()),
    )
}

fn unknown(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.trim())).with_hint(
        "Types are boolean, smallint, integer, bigint, real, double precision, numeric, text, varchar, \
         char, bytea, date, time, timestamp, timestamptz, interval and uuid.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_its_type() {
        let cases = [
            ("BOOL", SqlType::Boolean),
            ("int2", SqlType::SmallInt),
            (" Integer ", SqlType::Integer),
            ("pg_catalog.int4", SqlType::Integer),
            ("int8", SqlType::BigInt),
            ("float4", SqlType::Real),
            ("float(24)", SqlType::Real),
            ("double  precision", SqlType::Double),
            ("decimal(10, 2)", SqlType::Numeric { precision: 10, scale: 2 }),
            ("numeric(5)", SqlType::Numeric { precision: 5, scale: 0 }),
            ("dec", SqlType::NUMERIC),
            ("name", SqlType::Text),
            ("character varying ( 10 )", SqlType::Varchar(Some(10))),
            ("varchar", SqlType::Varchar(None)),
            ("char", SqlType::Char(1)),
            ("bpchar(3)", SqlType::Char(3)),
            ("timestamp(6) with time zone", SqlType::TimestampTz),
            ("timestamptz", SqlType::TimestampTz),
            ("time without time zone", SqlType::Time),
            ("uuid", SqlType::Uuid),
        ];
        for (name, ty) in cases {
            assert_eq!(SqlType::parse(name).unwrap(), ty, "{name}");
        }
    }

    #[test]
    fn every_type_is_found_by_the_name_it_prints() {
        for ty in crate::oid::tests::ALL {
            assert_eq!(SqlType::parse(&ty.to_string()).unwrap(), ty);
        }
    }

    #[test]
    fn unknown_names_and_modifiers_are_refused() {
        let state = |name| SqlType::parse(name).unwrap_err().state();
        assert_eq!(state("bigserial"), SqlState::UNDEFINED_OBJECT);
        assert_eq!(state("jsonb"), SqlState::UNDEFINED_OBJECT);
        assert_eq!(state("numeric(39)"), SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(state("numeric(3,4)"), SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(state("varchar(0)"), SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(state("int(3)"), SqlState::SYNTAX_ERROR);
        assert_eq!(state("timestamp(3)"), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
