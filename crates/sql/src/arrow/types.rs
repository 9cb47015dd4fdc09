//! The SQL types of Arrow's types.
//!
//! A *plain* type is the only Arrow type in which queries take the values of an SQL type; `plain_type` of the parent module
//! returns it for each type that has one.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, TimeUnit};
use firn_base::{Error, Result, SqlType, Type, TypeId, Value};
use firn_executor::values;
use firn_storage::arrow::SQL_TYPE_KEY;
use std::sync::Arc;

/// The time zone of `timestamptz` in Arrow types.
pub const UTC: &str = "UTC";

/// The SQL type of values of a plain type; of a type that is not plain, `None`. A column of nothing but NULL is text, as in PostgreSQL.
pub fn type_of(plain: &DataType) -> Option<Type> {
    let id = match plain {
        DataType::Null | DataType::Utf8View => TypeId::TEXT,
        DataType::Boolean => TypeId::BOOL,
        DataType::Int16 => TypeId::INT2,
        DataType::Int32 => TypeId::INT4,
        DataType::Int64 => TypeId::INT8,
        DataType::Float32 => TypeId::FLOAT4,
        DataType::Float64 => TypeId::FLOAT8,
        DataType::Decimal128(precision, scale) => {
            return Some(Type::numeric(u16::from(*precision), i16::from(*scale)));
        }
        DataType::FixedSizeBinary(16) => TypeId::UUID,
        DataType::BinaryView => TypeId::BYTEA,
        DataType::Date32 => TypeId::DATE,
        DataType::Time64(TimeUnit::Microsecond) => TypeId::TIME,
        DataType::Timestamp(TimeUnit::Microsecond, None) => TypeId::TIMESTAMP,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => TypeId::TIMESTAMPTZ,
        DataType::Interval(_) => TypeId::INTERVAL,
        DataType::List(element) => return type_of(element.data_type())?.array(),
        _ => return None,
    };
    Some(Type::new(id))
}

/// The SQL type of a field with a plain type: the declared one, if its values are stored so, or that of the plain type.
pub fn declared(field: &Field) -> Option<Type> {
    let declared = field.metadata().get(SQL_TYPE_KEY).and_then(|name| SqlType::parse(name).ok());
    let lies_so = |ty: &SqlType| firn_storage::arrow::data_type(*ty) == *field.data_type();
    match declared.filter(lies_so) {
        Some(ty) => Some(Type::from(ty)),
        None => type_of(field.data_type()),
    }
}

/// The Arrow type of the values of an SQL type in batches.
pub fn data_type(ty: Type) -> DataType {
    firn_query::arrow::data_type(ty)
}

/// A field for values of an SQL type, which may be NULL.
pub fn field(name: &str, ty: Type) -> Arc<Field> {
    Arc::new(Field::new(name, data_type(ty), true))
}

/// The value at a position of an array of a plain type.
pub fn value_at(array: &ArrayRef, row: usize) -> Result<Value> {
    let Some(ty) = type_of(array.data_type()) else {
        return Err(Error::unsupported(format!("a value of type {}", array.data_type())));
    };
    let representation = ty.representation().expect("a plain type is that of values");
    let vector = super::vectors::vector(&array.slice(row, 1), representation);
    Ok(values::value(vector.datum(0), representation))
}
