//! Constants, and strings that are read as values of a type.

use super::{Binder, Operand};
use firn_base::datetime::Present;
use firn_base::{ArrayValue, Numeric, Result, SqlState, SqlType, TextStyle, Type, TypeId, Value};
use firn_base::{array, text};
use firn_plan::Scalar;
use firn_plan::scalar::Cast;

impl Binder<'_> {
    /// A number as written: an integer that fits bigint, or a numeric.
    pub(super) fn number(&self, digits: &str, at: u32) -> Result<Operand> {
        if let Ok(value) = digits.parse::<i64>() {
            let ty = Type::new(TypeId::INT8);
            return Ok(Operand { scalar: Scalar::Constant(ty, Value::BigInt(value)), ty, at });
        }
        let ty = Type::new(TypeId::NUMERIC);
        let scalar = match Numeric::parse(digits) {
            Ok(number) => Scalar::Constant(ty, Value::Number(number)),
            // As a value of a floating type it may be in range.
            Err(error) if error.state() == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
                let argument = Scalar::Constant(Type::new(TypeId::UNKNOWN), Value::Text(digits.to_owned()));
                Scalar::Cast(Box::new(Cast { argument, ty, function: None, implicit: true, can_fail: true }))
            }
            Err(error) => return Err(self.placed(error, at)),
        };
        Ok(Operand { scalar, ty, at })
    }

    /// A string as a value of a type. Where its meaning depends on the session or the catalog, it is read when the
    /// statement runs.
    pub(super) fn read_literal(&mut self, value: &str, ty: Type, at: u32) -> Result<Scalar> {
        let plain = Type::new(ty.id);
        match self.literal_value(value, plain) {
            Some(Ok(found)) => {
                self.note_literal(value, plain, &found, at);
                Ok(Scalar::Constant(plain, found))
            }
            Some(Err(error)) => Err(self.placed(error, at)),
            None => {
                let argument = Scalar::Constant(Type::new(TypeId::UNKNOWN), Value::Text(value.to_owned()));
                let cast = Cast { argument, ty: plain, function: None, implicit: true, can_fail: true };
                Ok(Scalar::Cast(Box::new(cast)))
            }
        }
    }

    /// What a string means as a value of a type; `None` if only the running statement knows.
    fn literal_value(&self, value: &str, ty: Type) -> Option<Result<Value>> {
        let style = self.style();
        let is_of_time =
            matches!(ty.id, TypeId::DATE | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ | TypeId::TIME);
        match ty.id {
            _ if is_of_time && names_the_present(value) => {
                let present = Present { moment: self.catalog.present()?, style };
                Some(text::parse_at(value, SqlType::try_from(ty).ok()?, present))
            }
            TypeId::TEXT | TypeId::VARCHAR | TypeId::UNKNOWN | TypeId::BPCHAR | TypeId::CSTRING => {
                Some(Ok(Value::Text(value.to_owned())))
            }
            TypeId::NAME => {
                let mut end = value.len().min(63);
                while !value.is_char_boundary(end) {
                    end -= 1;
                }
                Some(Ok(Value::Text(value[..end].to_owned())))
            }
            TypeId::NUMERIC => Some(Numeric::parse(value).map(Value::Number)),
            TypeId::OID | TypeId::XID | TypeId::CID => Some(oid(value, ty)),
            TypeId::RECORD => None,
            _ => {
                if let Some(element) = ty.element().filter(|_| ty.info().is_some_and(|info| info.is_array()))
                {
                    let is_moment = matches!(
                        element.id,
                        TypeId::DATE | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ | TypeId::TIME
                    );
                    let is_read = Self::has_plain_text(element.id) || is_moment && !names_the_present(value);
                    if !is_read {
                        return None;
                    }
                    return Some(array::parse_any(value, element, style).map(Value::Array));
                }
                let kind = SqlType::try_from(ty).ok()?;
                Some(text::parse(value, kind, style))
            }
        }
    }

    /// How literals are read: as the session says, unless the catalog keeps the text at hand, which means the same in all sessions.
    pub(super) fn style(&self) -> &TextStyle {
        if self.is_kept { &TextStyle::DEFAULT } else { self.catalog.style() }
    }

    /// Binds a text that the catalog keeps. No place in it is one of the statement.
    pub(super) fn kept<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> T {
        let before =
            (std::mem::replace(&mut self.has_positions, false), std::mem::replace(&mut self.is_kept, true));
        let bound = bind(self);
        (self.has_positions, self.is_kept) = before;
        bound
    }

    /// Whether values of a type are read from text without a session.
    fn has_plain_text(id: TypeId) -> bool {
        matches!(
            id,
            TypeId::BOOL
                | TypeId::INT2
                | TypeId::INT4
                | TypeId::INT8
                | TypeId::FLOAT4
                | TypeId::FLOAT8
                | TypeId::NUMERIC
                | TypeId::TEXT
                | TypeId::VARCHAR
                | TypeId::BPCHAR
                | TypeId::UUID
                | TypeId::BYTEA
                | TypeId::INTERVAL
        )
    }
}

/// An array of constants of one type, as one constant.
pub(super) fn constant_array(elements: Vec<Value>) -> Value {
    Value::Array(ArrayValue::from(elements))
}

fn oid(value: &str, ty: Type) -> Result<Value> {
    let trimmed = value.trim();
    let parsed =
        trimmed.parse::<u32>().ok().or_else(|| trimmed.parse::<i32>().ok().map(|negative| negative as u32));
    parsed.map(Value::Oid).ok_or_else(|| {
        let is_number = !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            let message = format!("value \"{value}\" is out of range for type {ty}");
            return firn_base::Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message);
        }
        let message = format!("invalid input syntax for type {ty}: \"{value}\"");
        firn_base::Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    })
}

/// Whether a string of a date or time means another one each day.
pub fn names_the_present(value: &str) -> bool {
    let words = value.split(|c: char| !c.is_ascii_alphabetic());
    words.into_iter().any(|word| {
        ["now", "today", "tomorrow", "yesterday"].iter().any(|special| word.eq_ignore_ascii_case(special))
    })
}
