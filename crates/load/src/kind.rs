//! How values of a column are read and written: by code for their type alone, or one by one.
//!
//! Columns have the Arrow types in which tables store their values. A numeric with a scale for each value, and an array, is
//! the image (`Numeric::image`, `ArrayValue::write_image`) that blocks hold, as `BinaryView`.

use firn_base::{Representation, SqlType, Type, TypeId};

/// How values of a column are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// By code for the type.
    Typed(SqlType),
    /// Value by value: numerics without a common scale, arrays, oids and types that are stored like oids.
    General(Type, Representation),
}

impl Kind {
    pub fn of(ty: impl Into<Type>) -> Kind {
        let ty = ty.into();
        if ty.id == TypeId::BPCHAR && ty.length().is_none() {
            // Without a length it is neither padded nor truncated.
            return Kind::Typed(SqlType::Text);
        }
        // A type without a representation is refused when its first value is read.
        let representation = ty.representation().unwrap_or(Representation::Text);
        match SqlType::try_from(ty) {
            Ok(typed) if Representation::from(typed) == representation => Kind::Typed(typed),
            _ => Kind::General(ty, representation),
        }
    }

    /// The type whose columns are written by code of its own.
    pub fn typed(self) -> Option<SqlType> {
        match self {
            Kind::Typed(ty) => Some(ty),
            Kind::General(..) => None,
        }
    }
}

/// The columns of a file with the kinds of their values.
pub(crate) fn kinds<T: Into<Type>>(columns: impl IntoIterator<Item = (String, T)>) -> Vec<(String, Kind)> {
    columns.into_iter().map(|(name, ty)| (name, Kind::of(ty))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_without_a_scale_is_read_value_by_value() {
        let plain = Type::new(TypeId::NUMERIC);
        assert_eq!(Kind::of(plain), Kind::General(plain, Representation::Numeric));
        let decimal = SqlType::Numeric { precision: 12, scale: 2 };
        assert_eq!(Kind::of(Type::numeric(12, 2)), Kind::Typed(decimal));
        assert_eq!(Kind::of(SqlType::Char(3)), Kind::Typed(SqlType::Char(3)));
        assert_eq!(Kind::of(TypeId::BPCHAR), Kind::Typed(SqlType::Text));
        let array = Type::new(TypeId::INT4_ARRAY);
        assert_eq!(Kind::of(array), Kind::General(array, Representation::List(&Representation::Int32)));
        let oid = Type::new(TypeId::OID);
        assert_eq!(Kind::of(oid), Kind::General(oid, Representation::Oid));
    }
}
