//! Arrays in PostgreSQL's binary format, as clients send them.
//!
//! ```text
//! dimensions:i32  has_nulls:i32  element type:u32
//! then per dimension  length:i32  first index:i32
//! then per element    length:i32 (-1 for NULL)  bytes
//! ```

use super::{
    ArrayValue, Dimension, MAX_DIMENSIONS, are_in_bounds, bound_is_too_large, count, too_many_dimensions,
};
use crate::binary;
use crate::data_type::{Type, TypeId};
use crate::error::{Error, Result, SqlState};
use crate::value::Value;

/// Reads an array of `element`; 22P03 if the bytes are not valid, 42804 if its elements are of another type.
pub fn decode_any(bytes: &[u8], element: Type) -> Result<ArrayValue> {
    read(bytes, element, |cell| binary::decode_any(cell, element))
}

fn read(bytes: &[u8], element: Type, decode: impl Fn(&[u8]) -> Result<Value>) -> Result<ArrayValue> {
    let mut rest = bytes;
    let number = word(&mut rest)?;
    let has_nulls = word(&mut rest)?;
    let found = TypeId(word(&mut rest)? as u32);
    let number = usize::try_from(number).map_err(|_| invalid("invalid number of array dimensions"))?;
    if number > MAX_DIMENSIONS {
        return Err(too_many_dimensions(number));
    }
    if !matches!(has_nulls, 0 | 1) {
        return Err(invalid("invalid array flags"));
    }
    if found != element.id && !(is_string(found) && is_string(element.id)) {
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {} instead of expected {} ({element})",
                found.0, element.id.0
            ),
        ));
    }
    let mut dimensions = Vec::with_capacity(number);
    for _ in 0..number {
        let length = u32::try_from(word(&mut rest)?).map_err(|_| invalid("invalid array length"))?;
        let lower = word(&mut rest)?;
        dimensions.push(Dimension { length, lower });
        if !are_in_bounds(&dimensions) {
            return Err(bound_is_too_large(lower));
        }
    }
    // Each element has a length, so a wrong number is detected before memory is allocated for it.
    let count = count(&dimensions).filter(|count| *count <= rest.len() / 4);
    let count = count.ok_or_else(|| invalid("insufficient data left in message"))?;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(match word(&mut rest)? {
            -1 => Value::Null,
            length => {
                let cell = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
                let (cell, others) = cell.ok_or_else(|| invalid("insufficient data left in message"))?;
                rest = others;
                decode(cell)?
            }
        });
    }
    match rest {
        // One dimension without indexes makes an array without elements.
        [] if elements.is_empty() => Ok(ArrayValue::default()),
        [] => Ok(ArrayValue::new(dimensions, elements)),
        _ => Err(invalid("incorrect binary data format of an array")),
    }
}

/// Whether values of the type are sent as their characters, like those of `text`.
fn is_string(id: TypeId) -> bool {
    matches!(id, TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME)
}

/// Appends an array of `element`.
pub fn encode_any(array: &ArrayValue, element: Type, out: &mut Vec<u8>) {
    let has_nulls = array.elements().iter().any(Value::is_null);
    out.extend((array.dimensions().len() as i32).to_be_bytes());
    out.extend(i32::from(has_nulls).to_be_bytes());
    out.extend(element.id.0.to_be_bytes());
    for dimension in array.dimensions() {
        out.extend(dimension.length.to_be_bytes());
        out.extend(dimension.lower.to_be_bytes());
    }
    for value in array.elements() {
        if value.is_null() {
            out.extend((-1i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend([0; 4]);
        binary::encode_any(value, element, out);
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

fn word(rest: &mut &[u8]) -> Result<i32> {
    let (word, others) =
        rest.split_first_chunk().ok_or_else(|| invalid("insufficient data left in message"))?;
    *rest = others;
    Ok(i32::from_be_bytes(*word))
}

#[cold]
fn invalid(message: &str) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::parse_any;
    use crate::text::parse_bytea;
    use crate::text_style::TextStyle;

    fn binary(words: &[i32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The bytes are those of PostgreSQL's `array_send`.
    #[test]
    fn arrays_have_the_bytes_that_postgres_sends() {
        for (id, text, bytes) in [
            (
                TypeId::INT4,
                "[0:1]={1,2}",
                "\\x000000010000000000000017000000020000000000000004000000010000000400000002",
            ),
            (TypeId::INT4, "{}", "\\x000000000000000000000017"),
            (TypeId::INT2, "{1,NULL}", "\\x0000000100000001000000150000000200000001000000020001ffffffff"),
        ] {
            let array = parse_any(text, Type::new(id), &TextStyle::DEFAULT).unwrap();
            let mut encoded = Vec::new();
            encode_any(&array, Type::new(id), &mut encoded);
            assert_eq!(encoded, parse_bytea(bytes).unwrap(), "{text}");
            assert_eq!(decode_any(&encoded, Type::new(id)).unwrap(), array, "{text}");
        }
    }

    #[test]
    fn arrays_of_every_shape_survive_the_binary_format() {
        for (id, text) in [
            (TypeId::NUMERIC, "{1.0,1.00,NaN,NULL}"),
            (TypeId::TEXT, "[2:3][-1:0]={{a,b},{NULL,\"\"}}"),
            (TypeId::DATE, "{{2000-01-01}}"),
            (TypeId::OID, "{4294967295}"),
        ] {
            let array = parse_any(text, Type::new(id), &TextStyle::DEFAULT).unwrap();
            let mut encoded = Vec::new();
            encode_any(&array, Type::new(id), &mut encoded);
            assert_eq!(decode_any(&encoded, Type::new(id)).unwrap(), array, "{text}");
        }
    }

    #[test]
    fn arrays_are_read_from_their_binary_format() {
        let array = binary(&[1, 1, 23, 2, 1, 4, 258, -1]);
        let expected: ArrayValue = [Value::Integer(258), Value::Null].into_iter().collect();
        let (integer, text) = (Type::new(TypeId::INT4), Type::new(TypeId::TEXT));
        assert_eq!(decode_any(&array, integer).unwrap(), expected);
        assert_eq!(decode_any(&binary(&[0, 0, 25]), text).unwrap(), ArrayValue::default());
        // Names and strings of limited length are texts.
        assert_eq!(decode_any(&binary(&[0, 0, 1043]), text).unwrap(), ArrayValue::default());
        let state = |words: &[i32]| decode_any(&binary(words), integer).unwrap_err().state();
        assert_eq!(state(&[1, 0, 20, 0, 1]), SqlState::DATATYPE_MISMATCH);
        assert_eq!(state(&[7, 0, 23]), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(state(&[1, 0, 23, 1, i32::MAX, 4, 7]), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    /// Truncates a valid array everywhere and puts wrong numbers into its header.
    #[test]
    fn bytes_that_are_no_array_are_refused() {
        let good = binary(&[1, 0, 23, 1, 1, 4, 7]);
        for cut in 0..good.len() {
            assert!(decode_any(&good[..cut], Type::new(TypeId::INT4)).is_err(), "{cut}");
        }
        for lie in [
            &[1, 0, 23, i32::MAX - 1, 1, 4, 7][..],
            &[1, 0, 23, -1, 1],
            &[1, 2, 23, 1, 1, 4, 7],
            &[-1, 0, 23],
            &[1, 0, 23, 1, 1, 5, 7],
            &[1, 0, 23, 1, 1, 4, 7, 7],
            &[6, 0, 23, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1],
        ] {
            let state = decode_any(&binary(lie), Type::new(TypeId::INT4)).unwrap_err().state();
            assert_eq!(state, SqlState::INVALID_BINARY_REPRESENTATION, "{lie:?}");
        }
    }
}
