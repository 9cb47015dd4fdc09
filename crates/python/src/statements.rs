//! Prepared statements by their text, and the types of their parameters.
//!
//! A parameter's type is inferred from the statement wherever possible, since `WHERE id = $1` must use
//! the index on an integer column. Where a value would lose information in that type, or the statement does not
//! determine it, the value's own type is declared: `WHERE id = $1` with 1.5 then finds nothing, instead of 2. Strings are like
//! quoted literals in SQL: of whatever type is required.

use crate::from_python::Given;
use firn_session::base::{Error, Numeric, Representation, Result, SqlState, Type, TypeId, Value};
use firn_session::server::{Numbered, ServerConnection as _, number_named_parameters, number_parameters};
use firn_session::{Connection, Statement};
use std::collections::HashMap;
use std::sync::Arc;

/// Beyond this number, all are dropped.
const MOST: usize = 256;

type Types = Box<[Option<TypeId>]>;

/// The statements that a connection has prepared.
#[derive(Default)]
pub struct Statements {
    /// Texts in the engine's syntax, of those that are written with question marks.
    numbered: HashMap<String, Option<Arc<Numbered>>>,
    prepared: HashMap<(String, Types), Statement>,
    /// The settings under which they were prepared: literals are read as these say.
    settings: u64,
    /// Whether an error that a frame of the program may remedy leaves the transaction block as it is.
    pub spares_block: bool,
}

/// A statement with its values.
pub struct Bound {
    pub statement: Statement,
    pub values: Vec<Value>,
    pub numbered: Option<Arc<Numbered>>,
}

impl Statements {
    /// Drops all: their meaning may have changed.
    pub fn clear(&mut self) {
        self.prepared.clear();
    }

    /// A statement for these values.
    pub fn bind(&mut self, connection: &mut Connection, sql: &str, given: Given) -> Result<Bound> {
        let Given { values, numbered } = given;
        let numbered = match (numbered, self.numbered.get(sql)) {
            (Some(named), _) => Some(named),
            (None, Some(known)) => known.clone(),
            (None, None) => {
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
            (Err(error), numbered) => Err(with_hint_of_names(located(error, numbered.as_deref()), sql)),
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
            Err(error) if types.iter().all(Option::is_none) => {
                return Err(self.failed(connection, text, error));
            }
            _ => match self.prepare(connection, text, types) {
                Ok(statement) => statement,
                Err(error) => return Err(self.failed(connection, text, error)),
            },
        };
        check_count(statement.parameters().len(), values.len())?;
        Ok((statement, values))
    }

    fn prepare(&mut self, connection: &mut Connection, text: &str, types: Types) -> Result<Statement> {
        let settings = connection.settings_version();
        if self.settings != settings {
            self.clear();
            self.settings = settings;
        }
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

    /// The statement cannot be prepared: now its transaction block fails, as with every error.
    fn failed(&self, connection: &mut Connection, text: &str, error: Error) -> Error {
        if !self.spares_block || error.missing_relation().is_none() {
            // It is the same error, or one about the same text.
            let _ = connection.prepare(text);
        }
        error
    }
}

/// Adds a hint: a name after a dollar sign is a parameter only for values that have names.
fn with_hint_of_names(error: Error, sql: &str) -> Error {
    // Positions count characters from 1.
    let at = error.position().and_then(|position| sql.chars().nth(position as usize - 1));
    let is_dollar = error.state() == SqlState::SYNTAX_ERROR && at == Some('$');
    match is_dollar && number_named_parameters(sql).is_ok_and(|(_, names)| !names.is_empty()) {
        true => error.with_hint("Give the values of $name as a dict: {\"name\": value}."),
        false => error,
    }
}

/// The error with its position in the text as it was written.
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

/// Whether a type can represent a value without loss.
fn fits(value: &Value, ty: Type) -> bool {
    let element = ty.element().filter(|_| ty.info().is_some_and(|info| info.is_array()));
    match (value, element) {
        (Value::Null | Value::Text(_), _) => return true,
        (Value::Array(array), Some(element)) => {
            return array.elements().iter().all(|value| fits(value, element));
        }
        (_, Some(_)) | (Value::Array(_), None) => return false,
        (_, None) => {}
    }
    let is_float = matches!(ty.id, TypeId::FLOAT4 | TypeId::FLOAT8);
    let integer = match value {
        Value::Integer(value) => Some(i64::from(*value)),
        Value::BigInt(value) => Some(*value),
        _ => None,
    };
    if let Some(integer) = integer {
        return match ty.id {
            TypeId::INT2 => i16::try_from(integer).is_ok(),
            TypeId::INT4 => i32::try_from(integer).is_ok(),
            TypeId::INT8 => true,
            TypeId::FLOAT4 => integer.unsigned_abs() <= 1 << 24,
            TypeId::FLOAT8 => integer.unsigned_abs() <= 1 << 53,
            TypeId::NUMERIC => is_kept(Numeric::from_decimal(integer.into(), 0), ty),
            _ => ty.representation() == Some(Representation::Oid) && u32::try_from(integer).is_ok(),
        };
    }
    match value {
        Value::Number(number) => is_float || ty.id == TypeId::NUMERIC && is_kept(*number, ty),
        Value::Double(_) => is_float,
        Value::Date(_) => matches!(ty.id, TypeId::DATE | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ),
        Value::Timestamp(_) => matches!(ty.id, TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ),
        value => natural(value) == Some(ty.id),
    }
}

/// Whether a numeric of a type can have that value.
fn is_kept(number: Numeric, ty: Type) -> bool {
    match ty.precision_and_scale() {
        Some((precision, scale)) => number.fit(precision, scale).is_ok_and(|fitted| fitted == number),
        None => true,
    }
}

/// The type that a value has by itself; `None` for NULL and strings.
fn natural(value: &Value) -> Option<TypeId> {
    match value {
        Value::Text(_) => None,
        Value::Number(_) | Value::Numeric { .. } => Some(TypeId::NUMERIC),
        Value::Oid(_) => Some(TypeId::OID),
        Value::Array(array) => {
            let own = |element: &Value| match element {
                Value::Text(_) => Some(TypeId::TEXT),
                element => natural(element),
            };
            let element = array.elements().iter().filter_map(own).reduce(wider)?;
            Type::new(element).array().map(|array| array.id)
        }
        value => value.natural_type().map(|ty| TypeId(ty.oid())),
    }
}

/// The type for elements of both.
fn wider(left: TypeId, right: TypeId) -> TypeId {
    let rank = |ty: TypeId| match ty {
        TypeId::INT4 => 1,
        TypeId::INT8 => 2,
        TypeId::NUMERIC => 3,
        TypeId::FLOAT8 => 4,
        _ => 0,
    };
    if rank(right) > rank(left) { right } else { left }
}
