//! Prepared statements by their text, and what types their parameters have.
//!
//! A parameter's type comes from the statement wherever that knows it, since `WHERE id = $1` is to find
//! the index on an integer column. Where a value would lose something in that type, or the statement does not
//! know, the value's own type is declared: `WHERE id = $1` with 1.5 then finds nothing, instead of 2. Strings are as
//! quoted literals are in SQL: of whatever type is wanted.

use firn_session::base::coerce::cast;
use firn_session::base::{
    Error, ParameterType, Result, SqlState, SqlType, TimeZoneSetting, Value, array, numeric,
};
use firn_session::{Connection, Numbered, Statement, number_parameters};
use std::collections::HashMap;
use std::sync::Arc;

/// When there are more, all are forgotten.
const MOST: usize = 256;

type Types = Box<[Option<ParameterType>]>;

/// The statements that a connection has prepared.
#[derive(Default)]
pub struct Statements {
    /// Texts as the engine wants them, if they are written with question marks.
    numbered: HashMap<String, Option<Arc<Numbered>>>,
    prepared: HashMap<(String, Types), Statement>,
}

/// A statement with the values to run it with.
pub struct Bound {
    pub statement: Statement,
    pub values: Vec<Value>,
    pub numbered: Option<Arc<Numbered>>,
}

impl Statements {
    /// Forgets all: what they mean may have changed.
    pub fn clear(&mut self) {
        self.prepared.clear();
    }

    /// A statement for these values.
    pub fn bind(&mut self, connection: &mut Connection, sql: &str, values: Vec<Value>) -> Result<Bound> {
        let numbered = match self.numbered.get(sql) {
            Some(known) => known.clone(),
            None => {
                if self.numbered.len() >= MOST {
                    self.numbered.clear();
                }
                let numbered = number_parameters(sql)?.map(Arc::new);
                self.numbered.insert(sql.to_owned(), numbered.clone());
                numbered
            }
        };
        let text = numbered.as_ref().map_or(sql, |numbered| &numbered.text);
        let bound = self.bind_numbered(connection, text, values);
        match (bound, numbered) {
            (Ok((statement, values)), numbered) => Ok(Bound { statement, values, numbered }),
            (Err(error), numbered) => Err(located(error, numbered.as_deref())),
        }
    }

    fn bind_numbered(
        &mut self,
        connection: &mut Connection,
        text: &str,
        values: Vec<Value>,
    ) -> Result<(Statement, Vec<Value>)> {
        let untyped = self.prepare(connection, text, Box::default());
        let types: Types = match &untyped {
            Ok(statement) => {
                let wanted = statement.parameters();
                check_count(wanted.len(), values.len())?;
                let pairs = wanted.iter().zip(&values);
                pairs.map(|(ty, value)| if fits(value, *ty) { None } else { natural(value) }).collect()
            }
            Err(_) => values.iter().map(natural).collect(),
        };
        let statement = match untyped {
            Ok(statement) if types.iter().all(Option::is_none) => statement,
            Err(error) if types.iter().all(Option::is_none) => return Err(failed(connection, text, error)),
            _ => match self.prepare(connection, text, types) {
                Ok(statement) => statement,
                Err(error) => return Err(failed(connection, text, error)),
            },
        };
        check_count(statement.parameters().len(), values.len())?;
        let pairs = values.into_iter().zip(statement.parameters());
        let values = pairs.map(|(value, ty)| read(value, *ty, connection)).collect::<Result<_>>()?;
        Ok((statement, values))
    }

    fn prepare(&mut self, connection: &mut Connection, text: &str, types: Types) -> Result<Statement> {
        let key = (text.to_owned(), types);
        if let Some(statement) = self.prepared.get(&key) {
            return Ok(statement.clone());
        }
        let statement = connection.try_prepare(text, &key.1)?;
        if self.prepared.len() >= MOST {
            self.prepared.clear();
        }
        self.prepared.insert(key, statement.clone());
        Ok(statement)
    }
}

/// The statement cannot be prepared: now its transaction block fails, as with every error.
fn failed(connection: &mut Connection, text: &str, error: Error) -> Error {
    // It is the same error, or one about the same text.
    let _ = connection.prepare(text);
    error
}

/// An error whose position is that in the text as it was written.
pub fn located(error: Error, numbered: Option<&Numbered>) -> Error {
    match (numbered, error.position()) {
        (Some(numbered), Some(position)) => error.with_position(numbered.original(position)),
        _ => error,
    }
}

fn check_count(wanted: usize, given: usize) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    let message = format!("the statement has {wanted} parameters, but {given} values were given");
    Err(Error::new(SqlState::UNDEFINED_PARAMETER, message)
        .with_hint("Give a sequence with one value for each ? or $1, $2, …."))
}

/// Whether a value can be made of a type without losing anything.
fn fits(value: &Value, ty: ParameterType) -> bool {
    let ty = match (value, ty) {
        (Value::Null | Value::Text(_), _) => return true,
        (Value::Array(elements), ParameterType::Array(element)) => {
            return elements.elements().iter().all(|value| fits(value, ParameterType::Single(element)));
        }
        (_, ParameterType::Array(_)) | (Value::Array(_), _) => return false,
        (_, ParameterType::Single(ty)) => ty,
    };
    let integer = match value {
        Value::Integer(value) => Some(i64::from(*value)),
        Value::BigInt(value) => Some(*value),
        _ => None,
    };
    if let Some(integer) = integer {
        return match ty {
            SqlType::SmallInt => i16::try_from(integer).is_ok(),
            SqlType::Integer => i32::try_from(integer).is_ok(),
            SqlType::BigInt => true,
            SqlType::Real => integer.unsigned_abs() <= 1 << 24,
            SqlType::Double => integer.unsigned_abs() <= 1 << 53,
            SqlType::Numeric { precision, scale } => {
                numeric::fit(i128::from(integer), 0, precision, scale).is_ok()
            }
            _ => false,
        };
    }
    match (value, ty) {
        (Value::Numeric { unscaled, scale }, SqlType::Numeric { precision, scale: kept }) => {
            *scale <= kept && numeric::fit(*unscaled, *scale, precision, kept).is_ok()
        }
        (Value::Numeric { .. }, SqlType::Real | SqlType::Double)
        | (Value::Double(_), SqlType::Real | SqlType::Double)
        | (Value::Date(_), SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz)
        | (Value::Timestamp(_), SqlType::Timestamp | SqlType::TimestampTz) => true,
        (value, ty) => value.is_of(ty),
    }
}

/// The type that a value has by itself; none for NULL and strings.
fn natural(value: &Value) -> Option<ParameterType> {
    match value {
        Value::Text(_) => None,
        Value::Array(elements) => {
            let types = elements.elements().iter().filter_map(Value::natural_type);
            types.reduce(wider).map(ParameterType::array_of)
        }
        value => value.natural_type().map(ParameterType::Single),
    }
}

/// The type for elements of both.
fn wider(left: SqlType, right: SqlType) -> SqlType {
    let rank = |ty: &SqlType| match ty {
        SqlType::Integer => 1,
        SqlType::BigInt => 2,
        SqlType::Numeric { .. } => 3,
        SqlType::Double => 4,
        _ => 0,
    };
    if rank(&right) > rank(&left) { right } else { left }
}

/// A string read as what is wanted.
fn read(value: Value, ty: ParameterType, connection: &Connection) -> Result<Value> {
    let zone = || {
        let name = connection.setting("timezone").unwrap_or_default();
        TimeZoneSetting::from_name(&name).unwrap_or(TimeZoneSetting::UTC)
    };
    match (value, ty) {
        (Value::Text(text), ParameterType::Array(element)) => array::parse(&text, element, &zone()),
        (Value::Text(text), ParameterType::Single(ty)) if !ty.is_string() => {
            cast(Value::Text(text), ty, &zone())
        }
        (Value::Array(elements), ParameterType::Array(element)) => {
            let elements = elements
                .into_list()?
                .into_iter()
                .map(|value| read(value, ParameterType::Single(element), connection));
            elements.collect::<Result<_>>().map(Value::Array)
        }
        (value, _) => Ok(value),
    }
}
