//! The catalog's description of a column's values: their type, and how they are stored.
//!
//! These can differ. If the engine that uses [`SqlType`] made a plain `numeric` column, it is stored with 38
//! digits, 16 of them after the point. If another one did, it is stored with a scale for each value. So a
//! column has a [`Type`] and the [`Representation`] of its physical table, which is also in
//! [`StorageColumn`](crate::catalog::StorageColumn).
//!
//! In logs and checkpoints a column that an [`SqlType`] describes completely is the name of that type. Any
//! other is
//!
//! ```text
//! {"oid":1231,"modifier":-1,"collation":0,"stored":"list(numeric)"}
//! ```

use firn_base::{Collation, Error, Representation, Result, SqlType, Type, TypeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::result;

/// The type of a column, and how its values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnType {
    /// The meaning of the values.
    pub declared: Type,
    /// How they are stored in blocks.
    pub stored: Representation,
}

impl ColumnType {
    /// A column whose values are stored as its type requires. `None` for types that no column has.
    pub fn new(declared: Type) -> Option<ColumnType> {
        Some(ColumnType { declared, stored: declared.representation()? })
    }

    /// The [`SqlType`] that describes the column completely, if there is one.
    pub fn as_sql_type(self) -> Option<SqlType> {
        let ty = match (self.declared.id, self.stored) {
            // Columns made from quotients are plain numerics to users.
            (TypeId::NUMERIC, Representation::Decimal { precision, scale }) => {
                SqlType::Numeric { precision, scale }
            }
            _ => SqlType::try_from(self.declared).ok()?,
        };
        (ColumnType::from(ty) == self).then_some(ty)
    }

    /// The [`SqlType`] that describes the column completely; 0A000 if there is none.
    pub fn to_sql_type(self) -> Result<SqlType> {
        self.as_sql_type().ok_or_else(|| {
            Error::unsupported(format_args!("a column of type {} that is stored as {}", self, self.stored))
        })
    }

    /// The [`SqlType`] that describes the column completely. Panics if there is none: statements that refer
    /// to a table with such a column are refused before they use it.
    pub fn sql_type(self) -> SqlType {
        self.as_sql_type().expect("tables with columns of other types are refused by name")
    }
}

impl From<SqlType> for ColumnType {
    fn from(ty: SqlType) -> ColumnType {
        ColumnType { declared: ty.into(), stored: ty.into() }
    }
}

impl fmt::Display for ColumnType {
    /// The type as SQL declares it, with the digits that a quotient is stored with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_sql_type() {
            Some(ty) => ty.fmt(f),
            None => self.declared.fmt(f),
        }
    }
}

/// A column that no name of an [`SqlType`] describes.
#[derive(Serialize, Deserialize)]
struct Parts {
    oid: u32,
    modifier: i32,
    collation: u32,
    #[serde(with = "representation")]
    stored: Representation,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Parts(Parts),
}

impl Serialize for ColumnType {
    fn serialize<S: Serializer>(&self, serializer: S) -> result::Result<S::Ok, S::Error> {
        if let Some(ty) = self.as_sql_type() {
            return serializer.serialize_str(&ty.to_string());
        }
        let Type { id, modifier, collation } = self.declared;
        Parts { oid: id.0, modifier, collation: collation.0, stored: self.stored }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ColumnType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> result::Result<ColumnType, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Name(name) => sql_type(&name)?.into(),
            Written::Parts(Parts { oid, modifier, collation, stored }) => ColumnType {
                declared: Type { id: TypeId(oid), modifier, collation: Collation(collation) },
                stored,
            },
        })
    }
}

/// A type whose values are stored in this way, if there is one.
pub(crate) fn stored_so(stored: Representation) -> Option<SqlType> {
    Some(match stored {
        Representation::Boolean => SqlType::Boolean,
        Representation::Int16 => SqlType::SmallInt,
        Representation::Int32 => SqlType::Integer,
        Representation::Int64 => SqlType::BigInt,
        Representation::Float32 => SqlType::Real,
        Representation::Float64 => SqlType::Double,
        Representation::Decimal { precision, scale } => SqlType::Numeric { precision, scale },
        Representation::Text => SqlType::Text,
        Representation::PaddedText => SqlType::Char(1),
        Representation::Bytes => SqlType::Bytea,
        Representation::Date => SqlType::Date,
        Representation::Time => SqlType::Time,
        Representation::Timestamp => SqlType::Timestamp,
        Representation::TimestampTz => SqlType::TimestampTz,
        Representation::Interval => SqlType::Interval,
        Representation::Uuid => SqlType::Uuid,
        Representation::Oid | Representation::Numeric | Representation::List(_) | Representation::Record => {
            return None;
        }
    })
}

/// The [`SqlType`] of that name.
pub(crate) fn sql_type<E: de::Error>(name: &str) -> result::Result<SqlType, E> {
    SqlType::parse(name).map_err(|error| E::custom(error.message()))
}

/// Serde for [`Representation`], by its name.
pub(crate) mod representation {
    use firn_base::Representation;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(stored: &Representation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(stored)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Representation, D::Error> {
        let name = String::deserialize(deserializer)?;
        Representation::from_name(&name)
            .ok_or_else(|| D::Error::custom(format_args!("\"{name}\" is not a representation")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(ty: ColumnType) -> String {
        let written = serde_json::to_string(&ty).expect("the type is written");
        assert_eq!(serde_json::from_str::<ColumnType>(&written).expect("the type is read"), ty);
        written
    }

    #[test]
    fn what_has_a_name_of_before_is_written_by_it() {
        for (ty, written) in [
            (SqlType::NUMERIC, "\"numeric\""),
            (SqlType::Numeric { precision: 12, scale: 2 }, "\"numeric(12,2)\""),
            (SqlType::Numeric { precision: 38, scale: 20 }, "\"numeric(38,20)\""),
            (SqlType::Char(3), "\"character(3)\""),
            (SqlType::TimestampTz, "\"timestamp with time zone\""),
        ] {
            assert_eq!(through(ty.into()), written);
        }
    }

    #[test]
    fn one_type_may_be_stored_in_two_ways() {
        let of_before = ColumnType::from(SqlType::NUMERIC);
        let of_now = ColumnType::new(Type::new(TypeId::NUMERIC)).expect("columns of this type exist");
        assert_eq!(of_before.declared, of_now.declared);
        assert_eq!(of_before.stored, Representation::Decimal { precision: 38, scale: 16 });
        assert_eq!(of_now.stored, Representation::Numeric);
        assert_eq!(of_before.as_sql_type(), Some(SqlType::NUMERIC));
        assert_eq!(of_now.as_sql_type(), None, "its values are stored differently");
        assert_eq!(through(of_now), r#"{"oid":1700,"modifier":-1,"collation":0,"stored":"numeric"}"#);
    }

    #[test]
    fn arrays_and_types_without_a_name_of_before_keep_all_that_they_have() {
        let array = Type::varchar(5).array().expect("arrays of this type exist").with_collation(Collation::C);
        let array = ColumnType::new(array).expect("columns of this type exist");
        assert_eq!(through(array), r#"{"oid":1015,"modifier":9,"collation":950,"stored":"list(text)"}"#);
        assert!(array.to_sql_type().is_err());
        let other = ColumnType::new(Type::new(TypeId::TEXT).with_collation(Collation::C));
        assert_eq!(
            other.expect("columns of this type exist").as_sql_type(),
            None,
            "its collation has no name"
        );
        assert_eq!(ColumnType::new(Type::new(TypeId::ANYARRAY)), None);
    }
}
