//! PostgreSQL's numbers for our types, as its wire protocol and its catalogs have them.

use crate::types::SqlType;

/// What PostgreSQL adds to a length or precision to make a type modifier.
const HEADER: i32 = 4;

impl SqlType {
    /// The type's row in `pg_type`.
    pub fn oid(self) -> u32 {
        match self {
            SqlType::Boolean => 16,
            SqlType::Bytea => 17,
            SqlType::BigInt => 20,
            SqlType::SmallInt => 21,
            SqlType::Integer => 23,
            SqlType::Text => 25,
            SqlType::Real => 700,
            SqlType::Double => 701,
            SqlType::Char(_) => 1042,
            SqlType::Varchar(_) => 1043,
            SqlType::Date => 1082,
            SqlType::Time => 1083,
            SqlType::Timestamp => 1114,
            SqlType::TimestampTz => 1184,
            SqlType::Interval => 1186,
            SqlType::Numeric { .. } => 1700,
            SqlType::Uuid => 2950,
        }
    }

    /// `pg_type.typlen`: bytes of a value in PostgreSQL, -1 where it varies.
    pub fn typlen(self) -> i16 {
        match self {
            SqlType::Boolean => 1,
            SqlType::SmallInt => 2,
            SqlType::Integer | SqlType::Real | SqlType::Date => 4,
            SqlType::BigInt | SqlType::Double | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => {
                8
            }
            SqlType::Interval | SqlType::Uuid => 16,
            SqlType::Numeric { .. } | SqlType::Bytea => -1,
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => -1,
        }
    }

    /// The type modifier: length, or precision and scale; -1 for none.
    pub fn typmod(self) -> i32 {
        match self {
            SqlType::NUMERIC => -1,
            ty if crate::numeric::is_quotient(ty) => -1,
            SqlType::Numeric { precision, scale } => (i32::from(precision) << 16 | i32::from(scale)) + HEADER,
            SqlType::Varchar(Some(length)) | SqlType::Char(length) => length as i32 + HEADER,
            _ => -1,
        }
    }

    /// The short name in `pg_type.typname`.
    pub fn typname(self) -> &'static str {
        match self {
            SqlType::Boolean => "bool",
            SqlType::Bytea => "bytea",
            SqlType::BigInt => "int8",
            SqlType::SmallInt => "int2",
            SqlType::Integer => "int4",
            SqlType::Text => "text",
            SqlType::Real => "float4",
            SqlType::Double => "float8",
            SqlType::Char(_) => "bpchar",
            SqlType::Varchar(_) => "varchar",
            SqlType::Date => "date",
            SqlType::Time => "time",
            SqlType::Timestamp => "timestamp",
            SqlType::TimestampTz => "timestamptz",
            SqlType::Interval => "interval",
            SqlType::Numeric { .. } => "numeric",
            SqlType::Uuid => "uuid",
        }
    }

    /// The type of that row in `pg_type`; `None` for types that are not supported. The types of PostgreSQL's
    /// own catalogs become the types of their contents: `name`, `"char"` and `unknown` text, `oid` and the
    /// `reg…` types integer.
    pub fn from_oid(oid: u32, typmod: i32) -> Option<SqlType> {
        let modifier = typmod - HEADER;
        Some(match oid {
            16 => SqlType::Boolean,
            17 => SqlType::Bytea,
            20 => SqlType::BigInt,
            21 => SqlType::SmallInt,
            23 | 24 | 26 | 2202..=2206 | 4089 | 4096 => SqlType::Integer,
            18 | 19 | 25 | 705 => SqlType::Text,
            700 => SqlType::Real,
            701 => SqlType::Double,
            1042 if modifier >= 1 => SqlType::Char(modifier as u32),
            1042 => SqlType::Text,
            1043 if modifier >= 1 => SqlType::Varchar(Some(modifier as u32)),
            1043 => SqlType::Varchar(None),
            1082 => SqlType::Date,
            1083 => SqlType::Time,
            1114 => SqlType::Timestamp,
            1184 => SqlType::TimestampTz,
            1186 => SqlType::Interval,
            1700 => {
                let (precision, scale) = (modifier >> 16, modifier & 0x7ff);
                if (1..=38).contains(&precision) && (0..=precision).contains(&scale) {
                    SqlType::Numeric { precision: precision as u8, scale: scale as u8 }
                } else {
                    SqlType::NUMERIC
                }
            }
            2950 => SqlType::Uuid,
            _ => return None,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const ALL: [SqlType; 20] = [
        SqlType::Boolean,
        SqlType::SmallInt,
        SqlType::Integer,
        SqlType::BigInt,
        SqlType::Real,
        SqlType::Double,
        SqlType::NUMERIC,
        SqlType::Numeric { precision: 12, scale: 2 },
        SqlType::Text,
        SqlType::Varchar(None),
        SqlType::Varchar(Some(16)),
        SqlType::Char(1),
        SqlType::Char(200),
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Time,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Interval,
        SqlType::Uuid,
    ];

    #[test]
    fn every_type_is_found_by_its_oid_and_modifier() {
        for ty in ALL {
            assert_eq!(SqlType::from_oid(ty.oid(), ty.typmod()), Some(ty));
        }
        assert_eq!(SqlType::Numeric { precision: 12, scale: 2 }.typmod(), 786438);
    }
}
