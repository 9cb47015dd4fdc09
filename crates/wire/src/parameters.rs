//! Values of parameters as clients send them.

use crate::decode::Format;
use firn_base::binary::{self, utf8};
use firn_base::datetime::Present;
use firn_base::{Error, Representation, Result, TextStyle, Type, TypeId, Value, clock, text};

/// The type that a client declares for a parameter. `unknown` leaves it to inference, like 0.
pub(crate) fn declared(oid: u32) -> Result<Option<TypeId>> {
    let id = TypeId(oid);
    if oid == 0 || id == TypeId::UNKNOWN {
        return Ok(None);
    }
    match Type::new(id).representation() {
        Some(_) => Ok(Some(id)),
        None => Err(Error::unsupported(format!("a parameter of the type with OID {oid}"))),
    }
}

/// The value of a parameter. Its type's modifier is applied.
pub(crate) fn read(bytes: Option<&[u8]>, format: Format, ty: Type, style: &TextStyle) -> Result<Value> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    match (ty.id, format) {
        (TypeId::INT4, Format::Text) if let Some(number) = short_number(bytes) => Ok(Value::Integer(number)),
        (TypeId::INT8, Format::Text) if let Some(number) = short_number(bytes) => {
            Ok(Value::BigInt(number.into()))
        }
        (_, Format::Text) => read_text(utf8(bytes)?, ty, style),
        (_, Format::Binary) => binary::decode_any(bytes, ty),
    }
}

/// Whether a value is sent as characters.
pub(crate) fn is_text(format: Format, ty: Type) -> bool {
    let of_type = ty.representation();
    format == Format::Text || matches!(of_type, Some(Representation::Text | Representation::PaddedText))
}

/// A value from its text. The text of a type that names an object of the catalog is returned as text: the session reads it when
/// the statement runs.
pub(crate) fn read_text(text: &str, ty: Type, style: &TextStyle) -> Result<Value> {
    match ty.id {
        _ if ty.names_objects() => Ok(Value::Text(text.to_owned())),
        TypeId::DATE | TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ => {
            text::parse_any_at(text, ty, Present { moment: clock::wall_clock_micros(), style })
        }
        _ => text::parse_any(text, ty, style),
    }
}

/// A number of at most nine digits and nothing else. Most keys are such numbers, and they are read without the checks that
/// other texts need.
#[inline]
fn short_number(bytes: &[u8]) -> Option<i32> {
    if bytes.is_empty() || bytes.len() > 9 {
        return None;
    }
    bytes.iter().try_fold(0, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| 10 * number + i32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{ArrayValue, Numeric};

    fn value(bytes: &[u8], format: Format, ty: Type) -> Value {
        read(Some(bytes), format, ty, &TextStyle::DEFAULT).unwrap()
    }

    #[test]
    fn a_parameter_is_read_as_its_type() {
        let numeric = Type::new(TypeId::NUMERIC);
        assert_eq!(value(b"12", Format::Text, Type::new(TypeId::INT4)), Value::Integer(12));
        assert_eq!(value(b" 12 ", Format::Text, Type::new(TypeId::INT8)), Value::BigInt(12));
        assert_eq!(value(b"4294967295", Format::Text, Type::new(TypeId::OID)), Value::Oid(u32::MAX));
        assert_eq!(value(&[255; 4], Format::Binary, Type::new(TypeId::REGCLASS)), Value::Oid(u32::MAX));
        assert_eq!(value(b"rel", Format::Text, Type::new(TypeId::CHAR)), Value::Text("r".to_owned()));
        let digits = Value::Number(Numeric::parse("1.500").unwrap());
        assert_eq!(format!("{:?}", value(b"1.500", Format::Text, numeric)), format!("{digits:?}"));
        let array = ArrayValue::from(vec![Value::Integer(1), Value::Null]);
        assert_eq!(value(b"{1,NULL}", Format::Text, Type::new(TypeId::INT4_ARRAY)), Value::Array(array));
        let named = value(b"pg_class", Format::Text, Type::new(TypeId::REGCLASS));
        assert_eq!(named, Value::Text("pg_class".to_owned()), "the session looks it up");
        assert_eq!(read(None, Format::Text, numeric, &TextStyle::DEFAULT).unwrap(), Value::Null);
    }

    #[test]
    fn a_declared_type_is_one_that_values_have() {
        assert_eq!(declared(0).unwrap(), None);
        assert_eq!(declared(TypeId::UNKNOWN.0).unwrap(), None);
        assert_eq!(declared(23).unwrap(), Some(TypeId::INT4));
        for without_values in [TypeId::ANYELEMENT.0, 99_999] {
            assert_eq!(declared(without_values).unwrap_err().state().as_str(), "0A000");
        }
    }
}
