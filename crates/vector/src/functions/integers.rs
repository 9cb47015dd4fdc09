//! Arithmetic on whole numbers.

use crate::kernel::Overflow;
use crate::registry::RegistryBuilder;

const INT2: Overflow = Overflow("smallint out of range");
const INT4: Overflow = Overflow("integer out of range");
const INT8: Overflow = Overflow("bigint out of range");

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder
        .scalar::<(i16, i16), _>("int2pl(int2,int2)", |_, (left, right)| left.checked_add(right).ok_or(INT2));
    builder
        .scalar::<(i32, i32), _>("int4pl(int4,int4)", |_, (left, right)| left.checked_add(right).ok_or(INT4));
    builder
        .scalar::<(i64, i64), _>("int8pl(int8,int8)", |_, (left, right)| left.checked_add(right).ok_or(INT8));
}
