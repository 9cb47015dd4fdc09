//! Type names in SQL text to [`SqlType`].

use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo,
};
use firn_base::{Error, ParameterType, Result, SqlState, SqlType};

/// What a column was declared as: a type, or one of the words that also make a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declared {
    /// An ordinary type.
    Type(SqlType),
    /// `smallserial`, `serial`, `bigserial`: the type, with a sequence of its own.
    Serial(SqlType),
}

/// The type that a name stands for; 42704 for unknown names, 0A000 for types that FirnDB lacks.
pub fn sql_type(data_type: &DataType) -> Result<SqlType> {
    match declared(data_type)? {
        Declared::Type(ty) => Ok(ty),
        Declared::Serial(_) => Err(unknown(&data_type.to_string().to_lowercase())),
    }
}

/// What a parameter declared with a type's name takes, which may be an array.
pub fn parameter_type(data_type: &DataType) -> Result<ParameterType> {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            sql_type(element).map(ParameterType::array_of)
        }
        other => sql_type(other).map(ParameterType::Single),
    }
}

/// What a column declaration's type name stands for.
pub fn declared(data_type: &DataType) -> Result<Declared> {
    let ty = match data_type {
        DataType::Boolean | DataType::Bool => SqlType::Boolean,
        DataType::SmallInt(None) | DataType::Int2(None) => SqlType::SmallInt,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => SqlType::Integer,
        DataType::BigInt(None) | DataType::Int8(None) => SqlType::BigInt,
        DataType::Real | DataType::Float4 => SqlType::Real,
        DataType::DoublePrecision | DataType::Double(ExactNumberInfo::None) | DataType::Float8 => {
            SqlType::Double
        }
        DataType::Float(ExactNumberInfo::None) => SqlType::Double,
        DataType::Float(ExactNumberInfo::Precision(bits)) => match bits {
            1..=24 => SqlType::Real,
            25..=53 => SqlType::Double,
            _ => {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    "precision for type float must be between 1 and 53 bits",
                ));
            }
        },
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text => SqlType::Text,
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            SqlType::Varchar(match length {
                None => None,
                Some(length) => Some(character_length("varchar", length)?),
            })
        }
        DataType::Char(length) | DataType::Character(length) => SqlType::Char(match length {
            None => 1,
            Some(length) => character_length("char", length)?,
        }),
        DataType::Bytea => SqlType::Bytea,
        DataType::Date => SqlType::Date,
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Time,
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Timestamp,
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => SqlType::TimestampTz,
        DataType::Interval { .. } => SqlType::Interval,
        DataType::Uuid => SqlType::Uuid,
        DataType::Custom(name, arguments) => return custom(name, arguments),
        array @ DataType::Array(_) => {
            return Err(Error::unsupported(format!("type {}", array.to_string().to_lowercase())).with_hint(
                "Arrays of one dimension are values, but no columns: store a row for each element (unnest).",
            ));
        }
        other => {
            return Err(Error::unsupported(format!("type {}", other.to_string().to_lowercase()))
                .with_hint("See docs/dialect.md for the types that FirnDB has."));
        }
    };
    Ok(Declared::Type(ty))
}

fn custom(name: &ast::ObjectName, arguments: &[String]) -> Result<Declared> {
    let last = match name.0.last() {
        Some(ast::ObjectNamePart::Identifier(ident)) => fold(ident),
        _ => return Err(unknown(&name.to_string())),
    };
    let length = || arguments.first().and_then(|argument| argument.parse::<u32>().ok());
    Ok(match last.as_str() {
        "serial" | "serial4" => Declared::Serial(SqlType::Integer),
        "bigserial" | "serial8" => Declared::Serial(SqlType::BigInt),
        "smallserial" | "serial2" => Declared::Serial(SqlType::SmallInt),
        "bool" => Declared::Type(SqlType::Boolean),
        "int2" => Declared::Type(SqlType::SmallInt),
        "int4" => Declared::Type(SqlType::Integer),
        "int8" => Declared::Type(SqlType::BigInt),
        "float4" => Declared::Type(SqlType::Real),
        "float8" => Declared::Type(SqlType::Double),
        "text" | "name" => Declared::Type(SqlType::Text),
        "bpchar" => match length() {
            Some(length) => Declared::Type(SqlType::Char(length)),
            None => Declared::Type(SqlType::Text),
        },
        "varchar" => Declared::Type(SqlType::Varchar(length())),
        "bytea" => Declared::Type(SqlType::Bytea),
        "date" => Declared::Type(SqlType::Date),
        "time" => Declared::Type(SqlType::Time),
        "timestamp" => Declared::Type(SqlType::Timestamp),
        "timestamptz" => Declared::Type(SqlType::TimestampTz),
        "interval" => Declared::Type(SqlType::Interval),
        "uuid" => Declared::Type(SqlType::Uuid),
        "numeric" | "decimal" => Declared::Type(SqlType::NUMERIC),
        "json" | "jsonb" | "xml" | "money" | "inet" | "cidr" | "macaddr" | "point" | "box" | "circle"
        | "line" | "path" | "polygon" | "tsvector" | "tsquery" | "timetz" | "hstore" => {
            return Err(Error::unsupported(format!("type {last}"))
                .with_hint("See docs/dialect.md for the types that FirnDB has."));
        }
        _ => return Err(unknown(&last)),
    })
}

/// Takes off how many decimals of a second a type asks for; what that is if they are fewer than we keep.
pub fn take_decimals(data_type: &mut DataType) -> Option<u64> {
    let (DataType::Time(decimals, _)
    | DataType::Timestamp(decimals, _)
    | DataType::Interval { precision: decimals, .. }) = data_type
    else {
        return None;
    };
    decimals.take().filter(|decimals| *decimals < 6)
}

/// Takes off how many digits a `numeric` has, if these are what plain `numeric` has here, and says how many are decimals: there is no
/// other type for it, but a cast to it rounds.
pub fn take_digits(data_type: &mut DataType) -> Option<u8> {
    let (DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info)) = data_type else {
        return None;
    };
    match numeric(info) {
        Ok(SqlType::NUMERIC) if *info != ExactNumberInfo::None => {
            *info = ExactNumberInfo::None;
            let SqlType::Numeric { scale, .. } = SqlType::NUMERIC else { unreachable!("it is a numeric") };
            Some(scale)
        }
        _ => None,
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<SqlType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(SqlType::NUMERIC),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if precision == 0 || precision > 1000 {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ));
    }
    if precision > 38 {
        return Err(Error::unsupported(format!("NUMERIC precision {precision}"))
            .with_hint("FirnDB holds up to 38 digits."));
    }
    if !(0..=precision as i64).contains(&scale) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        ));
    }
    Ok(SqlType::Numeric { precision: precision as u8, scale: scale as u8 })
}

fn character_length(name: &str, length: &CharacterLength) -> Result<u32> {
    const LONGEST: u64 = 10_485_760;
    match length {
        CharacterLength::IntegerLength { length: 0, .. } => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("length for type {name} must be at least 1"),
        )),
        CharacterLength::IntegerLength { length, .. } if *length <= LONGEST => Ok(*length as u32),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("length for type {name} cannot exceed {LONGEST}"),
        )),
    }
}

fn unknown(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}
