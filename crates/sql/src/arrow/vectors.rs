//! Arrow arrays of plain types as vectors: the reverse of `firn_query::arrow`.
//!
//! Most arrays have the layout of the storage's, and [`vector_of`] shares their buffers. Lists are not images here, nor are decimals
//! for plain numerics, and a column of nothing but NULL has no type.

use arrow::array::types::Decimal128Type;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::DataType;
use firn_base::Representation;
use firn_base::sync::Arc;
use firn_executor::arrays::vector_of;
use firn_vector::lists::Lists;
use firn_vector::numerics::Numerics;
use firn_vector::{Chunk, Data, Vector};

/// Rows of a batch of plain types as a chunk, of at most 65,536 rows.
pub fn chunk(batch: &RecordBatch, representations: &[Representation]) -> Chunk {
    let columns = batch.columns().iter().zip(representations);
    Chunk::new(
        batch.num_rows(),
        columns.map(|(array, representation)| vector(array, *representation)).collect(),
    )
}

/// An array of a plain type as a vector of a representation that its values can have. Panics if it is of another type.
pub fn vector(array: &ArrayRef, representation: Representation) -> Vector {
    let data = match (array.data_type(), representation) {
        (DataType::Null, _) => return Vector::null(representation, array.len()),
        (DataType::Decimal128(_, scale), Representation::Numeric) => {
            let scales: ScalarBuffer<u16> = vec![*scale as u16; array.len()].into();
            let unscaled = array.as_primitive::<Decimal128Type>().values();
            Data::Numeric(Numerics::new(unscaled.clone(), scales))
        }
        (DataType::List(_), Representation::List(element)) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.offsets();
            let (first, last) = (offsets[0], offsets[lists.len()]);
            let elements = lists.values().slice(first as usize, (last - first) as usize);
            let starts = offsets[..lists.len()].iter().map(|start| (start - first) as u32);
            let lengths = offsets.lengths().map(|length| length as u32);
            Data::List(Lists::new(
                Arc::new(vector(&elements, *element)),
                starts.collect(),
                lengths.collect(),
                None,
            ))
        }
        _ => return vector_of(array, representation),
    };
    Vector::flat(representation, data, array.nulls().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array,
        Int64Array, ListArray, NullArray, StringViewArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::Int64Type;
    use firn_base::{Type, TypeId, Value};
    use firn_executor::values::value;

    #[test]
    fn a_vector_has_the_values_of_its_array_wherever_it_is_cut() {
        let decimal = |precision, scale| {
            let array = Decimal128Array::from(vec![Some(-125), None, Some(7)]);
            Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
        };
        let (long, bytes) = ("a string that does not lie in its view", [1_u8; 16]);
        let uuids = vec![Some(&bytes[..]), None, Some(&[2; 16][..])];
        let lists = [Some(vec![Some(1), None]), None, Some(vec![])];
        let numeric = |unscaled, scale| Value::Numeric { unscaled, scale };
        let number = |unscaled, scale| Value::Number(firn_base::Numeric::from_decimal(unscaled, scale));
        let cases: Vec<(ArrayRef, Type, [Value; 3])> = vec![
            (
                Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
                Type::new(TypeId::BOOL),
                [Value::Boolean(true), Value::Null, Value::Boolean(false)],
            ),
            (
                Arc::new(Int64Array::from(vec![Some(1), None, Some(-1)])),
                Type::new(TypeId::INT8),
                [Value::BigInt(1), Value::Null, Value::BigInt(-1)],
            ),
            (
                Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.5)])),
                Type::new(TypeId::FLOAT8),
                [Value::Double(1.5), Value::Null, Value::Double(-0.5)],
            ),
            (
                Arc::new(Date32Array::from(vec![Some(1), None, Some(-1)])),
                Type::new(TypeId::DATE),
                [Value::Date(1), Value::Null, Value::Date(-1)],
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, Some(-1)])),
                Type::new(TypeId::TIMESTAMP),
                [Value::Timestamp(1), Value::Null, Value::Timestamp(-1)],
            ),
            (decimal(5, 2), Type::numeric(5, 2), [numeric(-125, 2), Value::Null, numeric(7, 2)]),
            (decimal(30, 2), Type::numeric(30, 2), [numeric(-125, 2), Value::Null, numeric(7, 2)]),
            (decimal(5, 2), Type::new(TypeId::NUMERIC), [number(-125, 2), Value::Null, number(7, 2)]),
            (
                Arc::new(StringViewArray::from(vec![Some(long), None, Some("a")])),
                Type::new(TypeId::TEXT),
                [Value::Text(long.into()), Value::Null, Value::Text("a".into())],
            ),
            (
                Arc::new(BinaryViewArray::from(vec![Some(long.as_bytes()), None, Some(b"a")])),
                Type::new(TypeId::BYTEA),
                [Value::Bytea(long.into()), Value::Null, Value::Bytea(b"a".to_vec())],
            ),
            (
                Arc::new(
                    FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids.into_iter(), 16).unwrap(),
                ),
                Type::new(TypeId::UUID),
                [Value::Uuid(bytes), Value::Null, Value::Uuid([2; 16])],
            ),
            (
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
                Type::new(TypeId::INT8_ARRAY),
                [
                    Value::Array(vec![Value::BigInt(1), Value::Null].into()),
                    Value::Null,
                    Value::Array(vec![].into()),
                ],
            ),
            (Arc::new(NullArray::new(3)), Type::new(TypeId::DATE), [Value::Null, Value::Null, Value::Null]),
        ];
        for (array, ty, expected) in cases {
            let representation = ty.representation().unwrap();
            for (from, length) in [(0, 3), (1, 2), (2, 1), (0, 0)] {
                let part = vector(&array.slice(from, length), representation);
                let found: Vec<Value> =
                    (0..length).map(|row| value(part.datum(row), representation)).collect();
                assert_eq!(found, expected[from..from + length], "{ty} from {from}");
            }
        }
    }

    #[test]
    fn numbers_and_strings_are_not_copied() {
        let numbers = Int64Array::from(vec![1, 2, 3]);
        let Some(Data::Int64(shared)) =
            vector(&(Arc::new(numbers.clone()) as ArrayRef), Representation::Int64).data().cloned()
        else {
            panic!("they are numbers")
        };
        assert_eq!(shared.as_ptr(), numbers.values().as_ptr());
        let texts = StringViewArray::from(vec!["a string that does not lie in its view"]);
        let Some(Data::Strings(shared)) =
            vector(&(Arc::new(texts.clone()) as ArrayRef), Representation::Text).data().cloned()
        else {
            panic!("they are strings")
        };
        assert_eq!(shared.buffers()[0].as_ptr(), texts.data_buffers()[0].as_ptr());
    }
}
