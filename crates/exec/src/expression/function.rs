//! The scalar functions that row expressions evaluate themselves.

use super::{Node, Row};
use firn_base::{Error, Result, SqlState, SqlType, Value, operators};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A function of some values, known by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Abs,
    Lower,
    Upper,
    Length,
    Substring,
    /// `concat(…)`: NULLs count as empty.
    Concat,
    /// `… || …`: NULL if either side is.
    Append,
    Coalesce,
    NullIf,
    Now,
    NextValue,
}

impl Function {
    /// The function of that name, if it takes arguments of these types.
    pub(super) fn find(name: &str, arguments: &[Option<SqlType>]) -> Option<Function> {
        let strings = || arguments.iter().all(|ty| ty.is_none_or(SqlType::is_string));
        let found = match (name, arguments.len()) {
            ("abs", 1) => Function::Abs,
            ("lower", 1) if strings() => Function::Lower,
            ("upper", 1) if strings() => Function::Upper,
            ("character_length" | "char_length" | "length", 1) if strings() => Function::Length,
            ("substr" | "substring", 2 | 3) if arguments[0].is_none_or(SqlType::is_string) => {
                Function::Substring
            }
            ("concat", 1..) if strings() => Function::Concat,
            ("coalesce", 1..) => Function::Coalesce,
            ("nullif", 2) => Function::NullIf,
            ("nextval", 1) if strings() => Function::NextValue,
            ("now" | "current_timestamp" | "transaction_timestamp", 0) => Function::Now,
            _ => return None,
        };
        Some(found)
    }

    /// Calls it. Arguments are evaluated as they are needed.
    pub(super) fn call<'a>(
        self,
        arguments: &'a [Node],
        result: SqlType,
        row: Row<'a>,
    ) -> Result<Cow<'a, Value>> {
        match self {
            Function::Coalesce => {
                for argument in arguments {
                    let value = argument.evaluate(row)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                return Ok(Cow::Owned(Value::Null));
            }
            Function::NullIf => {
                let value = arguments[0].evaluate(row)?;
                let other = arguments[1].evaluate(row)?;
                let equal = value.compare(&other) == Some(Ordering::Equal);
                return Ok(if equal { Cow::Owned(Value::Null) } else { value });
            }
            Function::Now => return Ok(Cow::Owned(Value::TimestampTz(row.environment.options.now))),
            Function::Concat => {
                let mut all = String::new();
                for argument in arguments {
                    if let Value::Text(text) = &*argument.evaluate(row)? {
                        all.push_str(text);
                    }
                }
                return Ok(Cow::Owned(Value::Text(all)));
            }
            _ => {}
        }
        let first = arguments[0].evaluate(row)?;
        if first.is_null() {
            return Ok(Cow::Owned(Value::Null));
        }
        let value = match self {
            Function::Abs => absolute(&first)?,
            Function::Lower => Value::Text(text(&first)?.to_lowercase()),
            Function::Upper => Value::Text(text(&first)?.to_uppercase()),
            Function::Length => {
                let length = text(&first)?.chars().count() as i64;
                match result {
                    SqlType::BigInt => Value::BigInt(length),
                    _ => Value::Integer(length as i32),
                }
            }
            Function::NextValue => Value::BigInt(row.environment.options.services.next_value(text(&first)?)?),
            Function::Append => match &*arguments[1].evaluate(row)? {
                Value::Null => Value::Null,
                second => Value::Text(format!("{}{}", text(&first)?, text(second)?)),
            },
            Function::Substring => {
                let Some(start) = integer(&*arguments[1].evaluate(row)?)? else {
                    return Ok(Cow::Owned(Value::Null));
                };
                let count = match arguments.get(2) {
                    None => None,
                    Some(count) => match integer(&*count.evaluate(row)?)? {
                        Some(count) => Some(count),
                        None => return Ok(Cow::Owned(Value::Null)),
                    },
                };
                Value::Text(substring(text(&first)?, start, count)?)
            }
            _ => unreachable!("{self:?} has been called above"),
        };
        Ok(Cow::Owned(value))
    }
}

/// The characters from position `start` (from 1, may lie before the string), at most `count`
/// counted from `start`.
fn substring(text: &str, start: i64, count: Option<i64>) -> Result<String> {
    let end = match count {
        Some(count) if count < 0 => {
            return Err(Error::new(SqlState::new("22011"), "negative substring length not allowed"));
        }
        Some(count) => start.saturating_add(count),
        None => i64::MAX,
    };
    let first = start.max(1);
    let taken = end.saturating_sub(first).max(0);
    Ok(text.chars().skip((first - 1) as usize).take(taken as usize).collect())
}

fn absolute(value: &Value) -> Result<Value> {
    match value {
        Value::SmallInt(0..) | Value::Integer(0..) | Value::BigInt(0..) => Ok(value.clone()),
        Value::Real(value) => Ok(Value::Real(value.abs())),
        Value::Double(value) => Ok(Value::Double(value.abs())),
        Value::Numeric { unscaled: 0.., .. } => Ok(value.clone()),
        negative => operators::negate(negative),
    }
}

fn text(value: &Value) -> Result<&str> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(super::not_of_type(other, "text")),
    }
}

fn integer(value: &Value) -> Result<Option<i64>> {
    match value {
        Value::Null => Ok(None),
        Value::SmallInt(value) => Ok(Some(i64::from(*value))),
        Value::Integer(value) => Ok(Some(i64::from(*value))),
        Value::BigInt(value) => Ok(Some(*value)),
        other => Err(super::not_of_type(other, "integer")),
    }
}

#[cfg(test)]
mod tests {
    use super::substring;

    #[test]
    fn a_substring_may_begin_before_the_string() {
        assert_eq!(substring("firn", 2, None).expect("valid"), "irn");
        assert_eq!(substring("firn", 2, Some(2)).expect("valid"), "ir");
        assert_eq!(substring("firn", -1, Some(3)).expect("valid"), "f");
        assert_eq!(substring("firn", 9, Some(3)).expect("valid"), "");
        assert_eq!(substring("äöü", 2, Some(1)).expect("valid"), "ö");
        assert!(substring("firn", 1, Some(-1)).is_err());
    }
}
