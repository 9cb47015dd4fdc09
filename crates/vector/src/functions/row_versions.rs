//! The version of a row as `xmin` shows it: a hash of its values. It differs, but for one time in four billions, once a value of the row
//! has changed, and needs no place in the row. Clients compare it with what they have read before.

use super::hashes::of_bytes;
use crate::datum::Datum;
use crate::kernel::scalar::scalar;
use crate::lists::Record;
use crate::registry::{
    Body, Function, FunctionId, Kernels, Mode, Parallel, Parameter, RegistryBuilder, Volatility,
};
use firn_base::TypeId;
use firn_base::sync::Arc;

/// The function of a row, which no name finds.
pub const ROW_VERSION: FunctionId = FunctionId(13_100);

/// The first number that PostgreSQL gives to a transaction; smaller ones have a meaning of their own.
const FIRST_VERSION: u32 = 3;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    let kernel = scalar::<(Record<'static>,), u32>(|_, (row,)| {
        let mut bytes = Vec::new();
        (0..row.len()).for_each(|field| append(row.get(field).1, &mut bytes));
        FIRST_VERSION + of_bytes(&bytes) as u32 % (u32::MAX - FIRST_VERSION)
    });
    builder.add(Function {
        id: ROW_VERSION,
        schema: Some("".into()),
        name: "row_version".into(),
        parameters: [Parameter { ty: TypeId::RECORD, name: None, mode: Mode::In, default: None }].into(),
        result: TypeId::XID,
        volatility: Volatility::Immutable,
        is_strict: true,
        parallel: Parallel::Safe,
        may_be_null: false,
        can_fail: false,
        cannot_fail: None,
        body: Body::Scalar(Kernels { general: Arc::new(kernel), special: Vec::new() }),
    });
}

/// Appends a value so that no other row of the same types has the same bytes.
fn append(value: Datum<'_>, bytes: &mut Vec<u8>) {
    bytes.push(u8::from(!value.is_null()));
    let mut sized = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    match value {
        Datum::Null => {}
        Datum::Boolean(value) => bytes.push(value.into()),
        Datum::Int16(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::Int32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::Int64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::UInt32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::Float32(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::Float64(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        Datum::Uuid(value) => bytes.extend_from_slice(&value),
        Datum::Interval(value) => {
            bytes.extend_from_slice(&value.months.to_le_bytes());
            bytes.extend_from_slice(&value.days.to_le_bytes());
            bytes.extend_from_slice(&value.nanoseconds.to_le_bytes());
        }
        // With all decimals: 1.0 and 1.00 are two values to a reader.
        Datum::Numeric(value) => sized(value.to_string().as_bytes()),
        Datum::Text(text) => sized(text.as_bytes()),
        Datum::Bytes(value) => sized(value),
        Datum::List(list) => {
            bytes.extend_from_slice(&(list.dimensions() as u64).to_le_bytes());
            for number in 0..list.dimensions() {
                let dimension = list.dimension(number).expect("it has so many");
                bytes.extend_from_slice(&dimension.length.to_le_bytes());
                bytes.extend_from_slice(&dimension.lower.to_le_bytes());
            }
            list.iter().for_each(|element| append(element, bytes));
        }
        Datum::Record(row) => (0..row.len()).for_each(|field| append(row.get(field).1, bytes)),
    }
}
