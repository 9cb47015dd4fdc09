//! Parameters: the values that a program or a client gives, as values of the statement's types.

use firn_base::type_table::TypeInfo;
use firn_base::{
    ArrayValue, Error, Representation, Result, SqlState, TextStyle, Type, Value, binary, coerce, text,
};
use std::borrow::Cow;

/// The parameters as values of the statement's types.
pub(crate) fn coerced<'v>(
    types: &[Type],
    values: &'v [Value],
    style: &TextStyle,
) -> Result<Cow<'v, [Value]>> {
    if types.len() != values.len() {
        if values.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        return Err(Error::new(
            SqlState::PROTOCOL_VIOLATION,
            format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                values.len(),
                types.len()
            ),
        ));
    }
    values.iter().try_for_each(refuse_zero_bytes)?;
    if types.iter().zip(values).all(|(ty, value)| coerce::is_of(value, *ty)) {
        return Ok(Cow::Borrowed(values));
    }
    let coerced = types.iter().zip(values).map(|(ty, value)| of_type(value.clone(), *ty, style));
    coerced.collect::<Result<Vec<Value>>>().map(Cow::Owned)
}

/// The value as one of a type. A string is read as a literal is.
fn of_type(value: Value, ty: Type, style: &TextStyle) -> Result<Value> {
    match (value, ty.element()) {
        // The statement looks the name up when it runs.
        (value @ Value::Text(_), _) if ty.names_objects() => Ok(value),
        (Value::Text(written), _) if !ty.representation().is_some_and(Representation::is_string) => {
            text::parse_any(&written, ty, style)
        }
        (Value::Array(array), Some(element)) if ty.info().is_some_and(TypeInfo::is_array) => {
            let dimensions = array.dimensions().to_vec();
            let elements = array.into_elements().into_iter().map(|value| of_type(value, element, style));
            Ok(Value::Array(ArrayValue::new(dimensions, elements.collect::<Result<_>>()?)))
        }
        (value, _) => coerce::assign_parameter(value, ty, style),
    }
}

/// 22021 for strings with zero bytes: a protocol has refused them before, a program in this process may have some.
fn refuse_zero_bytes(value: &Value) -> Result<()> {
    match value {
        Value::Text(text) if text.as_bytes().contains(&0) => binary::utf8(text.as_bytes()).map(drop),
        Value::Array(array) => array.elements().iter().try_for_each(refuse_zero_bytes),
        _ => Ok(()),
    }
}
