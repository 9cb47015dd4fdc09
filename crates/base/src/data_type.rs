//! Types as SQL names them: the type with its modifier and collation.
//!
//! [`Type`] is the type of a column, a parameter or an expression. The properties of a type are in
//! [`type_table`](crate::type_table); the memory layout of its values is its [`Representation`].
//!
//! A modifier is PostgreSQL's `typmod`, -1 for none:
//!
//! ```text
//! numeric(p, s)      (p << 16 | s & 0x7ff) + 4        s is a signed number of 11 bits
//! varchar(n), char(n)                    n + 4
//! timestamp(p), timestamptz(p), time(p)  p
//! interval fields(p)                     fields << 16 | p, each all ones for none
//! ```

use crate::error::{Error, Result};
use crate::representation::Representation;
use crate::type_table::{self, TypeInfo};
use crate::types::SqlType;
use std::fmt;

/// The oid of a row in `pg_type`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TypeId(pub u32);

macro_rules! type_ids {
    ($($name:ident = $oid:literal;)*) => {
        impl TypeId {
            $(#[doc = concat!("PostgreSQL's oid ", stringify!($oid), ".")] pub const $name: TypeId = TypeId($oid);)*
        }
    };
}

type_ids! {
    BOOL = 16; BYTEA = 17; CHAR = 18; NAME = 19; INT8 = 20; INT2 = 21; INT2VECTOR = 22; INT4 = 23;
    REGPROC = 24; TEXT = 25; OID = 26; TID = 27; XID = 28; CID = 29; OIDVECTOR = 30;
    JSON = 114; PG_NODE_TREE = 194; JSON_ARRAY = 199; FLOAT4 = 700; FLOAT8 = 701; UNKNOWN = 705;
    BOOL_ARRAY = 1000; BYTEA_ARRAY = 1001; CHAR_ARRAY = 1002; NAME_ARRAY = 1003; INT2_ARRAY = 1005;
    INT4_ARRAY = 1007; TEXT_ARRAY = 1009; BPCHAR_ARRAY = 1014; VARCHAR_ARRAY = 1015; INT8_ARRAY = 1016;
    FLOAT4_ARRAY = 1021; FLOAT8_ARRAY = 1022; OID_ARRAY = 1028; ACLITEM = 1033; ACLITEM_ARRAY = 1034;
    BPCHAR = 1042; VARCHAR = 1043; DATE = 1082; TIME = 1083; TIMESTAMP = 1114; TIMESTAMP_ARRAY = 1115;
    DATE_ARRAY = 1182; TIME_ARRAY = 1183; TIMESTAMPTZ = 1184; TIMESTAMPTZ_ARRAY = 1185;
    INTERVAL = 1186; INTERVAL_ARRAY = 1187; NUMERIC_ARRAY = 1231; NUMERIC = 1700; REFCURSOR = 1790;
    REGPROCEDURE = 2202; REGOPER = 2203; REGOPERATOR = 2204; REGCLASS = 2205; REGTYPE = 2206;
    RECORD = 2249; CSTRING = 2275; ANY = 2276; ANYARRAY = 2277; VOID = 2278; TRIGGER = 2279;
    LANGUAGE_HANDLER = 2280; INTERNAL = 2281; ANYELEMENT = 2283; RECORD_ARRAY = 2287;
    ANYNONARRAY = 2776; UUID = 2950; UUID_ARRAY = 2951; PG_LSN = 3220; ANYENUM = 3500; ANYRANGE = 3831;
    EVENT_TRIGGER = 3838; REGNAMESPACE = 4089; REGROLE = 4096; REGCOLLATION = 4191; XID8 = 5069;
    ANYCOMPATIBLE = 5077; ANYCOMPATIBLEARRAY = 5078; ANYCOMPATIBLENONARRAY = 5079; ANYCOMPATIBLERANGE = 5080;
}

/// The oid of a row in `pg_collation`. All supported collations compare strings by their bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Collation(pub u32);

impl Collation {
    /// For types whose values have no collation.
    pub const NONE: Collation = Collation(0);
    /// `"default"`
    pub const DEFAULT: Collation = Collation(100);
    /// `"C"`
    pub const C: Collation = Collation(950);
    /// `"POSIX"`
    pub const POSIX: Collation = Collation(951);
}

/// The type of a column, parameter or expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    /// Which type.
    pub id: TypeId,
    /// `typmod`: length, or precision and scale; -1 for none.
    pub modifier: i32,
    /// The collation with which values are compared.
    pub collation: Collation,
}

/// What PostgreSQL adds to a length or precision to make a modifier.
const HEADER: i32 = 4;
/// The fields of an interval without a restriction of fields.
const ALL_FIELDS: i32 = 0x7fff;
/// The precision of an interval without a limit of precision.
const FULL_PRECISION: i32 = 0xffff;

impl Type {
    /// A type without a modifier, with its own collation. An oid that is not built in gets no collation.
    pub fn new(id: TypeId) -> Type {
        let collation = type_table::info(id).map_or(Collation::NONE, |info| info.collation);
        Type { id, modifier: -1, collation }
    }

    /// The same type with another modifier.
    pub fn with_modifier(self, modifier: i32) -> Type {
        Type { modifier, ..self }
    }

    /// The same type with another collation.
    pub fn with_collation(self, collation: Collation) -> Type {
        Type { collation, ..self }
    }

    /// `numeric(precision, scale)`.
    pub fn numeric(precision: u16, scale: i16) -> Type {
        let modifier = (i32::from(precision) << 16 | i32::from(scale) & 0x7ff) + HEADER;
        Type::new(TypeId::NUMERIC).with_modifier(modifier)
    }

    /// `varchar(length)`.
    pub fn varchar(length: u32) -> Type {
        Type::new(TypeId::VARCHAR).with_modifier(length as i32 + HEADER)
    }

    /// `character(length)`.
    pub fn character(length: u32) -> Type {
        Type::new(TypeId::BPCHAR).with_modifier(length as i32 + HEADER)
    }

    /// The properties of a built-in type; `None` for others.
    pub fn info(self) -> Option<&'static TypeInfo> {
        type_table::info(self.id)
    }

    /// Precision and scale of a numeric that has them.
    pub fn precision_and_scale(self) -> Option<(u16, i16)> {
        if self.id != TypeId::NUMERIC || self.modifier < HEADER {
            return None;
        }
        let bits = self.modifier - HEADER;
        // The scale is a signed number of 11 bits.
        let scale = ((bits & 0x7ff) ^ 0x400) - 0x400;
        Some(((bits >> 16) as u16, scale as i16))
    }

    /// The largest number of characters of a varchar or char with a limit.
    pub fn length(self) -> Option<u32> {
        let is_limited = matches!(self.id, TypeId::VARCHAR | TypeId::BPCHAR) && self.modifier >= HEADER;
        is_limited.then(|| (self.modifier - HEADER) as u32)
    }

    /// Whether values, or the elements of arrays, refer to objects of the catalog: their text is a name in
    /// the catalog.
    pub fn names_objects(self) -> bool {
        match self.element() {
            Some(element) => element.names_objects(),
            None => {
                self.representation() == Some(Representation::Oid)
                    && !matches!(self.id, TypeId::OID | TypeId::XID | TypeId::CID)
            }
        }
    }

    /// The memory layout of values. `None` for polymorphic pseudo-types and for types that are not built in.
    ///
    /// A numeric has one scale for all values if its declaration fits: 38 digits, and a scale from 0 to the
    /// precision.
    pub fn representation(self) -> Option<Representation> {
        if let Some((precision @ 1..=38, scale @ 0..)) = self.precision_and_scale()
            && scale as u16 <= precision
        {
            return Some(Representation::Decimal { precision: precision as u8, scale: scale as u8 });
        }
        self.info()?.representation
    }

    /// The type of its arrays, with the modifier of the elements.
    pub fn array(self) -> Option<Type> {
        let array = self.info()?.array?;
        Some(Type { id: array, ..self })
    }

    /// The type of the elements of arrays and vectors.
    pub fn element(self) -> Option<Type> {
        let info = self.info()?;
        let id = info.element.filter(|_| info.id != TypeId::NAME)?;
        Some(Type { id, ..self })
    }
}

impl From<SqlType> for Type {
    fn from(ty: SqlType) -> Type {
        Type::new(TypeId(ty.oid())).with_modifier(ty.typmod())
    }
}

impl TryFrom<Type> for SqlType {
    type Error = Error;

    /// 0A000 for types that are not in [`SqlType`].
    fn try_from(ty: Type) -> Result<SqlType> {
        let same = SqlType::from_oid(ty.id.0, ty.modifier).filter(|same| Type::from(*same).id == ty.id);
        same.ok_or_else(|| Error::unsupported(format_args!("type {ty}")))
    }
}

impl From<TypeId> for Type {
    fn from(id: TypeId) -> Type {
        Type::new(id)
    }
}

/// The names of fields to which an interval may be restricted, as `format_type` prints them.
const INTERVAL_FIELDS: [(i32, &str); 13] = {
    const YEAR: i32 = 1 << 2;
    const MONTH: i32 = 1 << 1;
    const DAY: i32 = 1 << 3;
    const HOUR: i32 = 1 << 10;
    const MINUTE: i32 = 1 << 11;
    const SECOND: i32 = 1 << 12;
    [
        (YEAR, " year"),
        (MONTH, " month"),
        (DAY, " day"),
        (HOUR, " hour"),
        (MINUTE, " minute"),
        (SECOND, " second"),
        (YEAR | MONTH, " year to month"),
        (DAY | HOUR, " day to hour"),
        (DAY | HOUR | MINUTE, " day to minute"),
        (DAY | HOUR | MINUTE | SECOND, " day to second"),
        (HOUR | MINUTE, " hour to minute"),
        (HOUR | MINUTE | SECOND, " hour to second"),
        (MINUTE | SECOND, " minute to second"),
    ]
};

impl fmt::Display for Type {
    /// The name as PostgreSQL's `format_type` prints it. A type that is not built in is its oid.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(info) = self.info() else { return write!(f, "{}", self.id.0) };
        if let Some(element) = self.element().filter(|_| info.is_array()) {
            return write!(f, "{element}[]");
        }
        let modifier = self.modifier;
        match self.id {
            // Without a length, `character` means `character(1)` to the parser.
            TypeId::BPCHAR if modifier < HEADER => f.write_str("bpchar"),
            TypeId::BPCHAR | TypeId::VARCHAR if modifier >= HEADER => {
                write!(f, "{}({})", info.sql_name, modifier - HEADER)
            }
            TypeId::NUMERIC => match self.precision_and_scale() {
                Some((precision, scale)) => write!(f, "numeric({precision},{scale})"),
                None => f.write_str("numeric"),
            },
            TypeId::TIME if modifier >= 0 => write!(f, "time({modifier}) without time zone"),
            TypeId::TIMESTAMP if modifier >= 0 => write!(f, "timestamp({modifier}) without time zone"),
            TypeId::TIMESTAMPTZ if modifier >= 0 => write!(f, "timestamp({modifier}) with time zone"),
            TypeId::INTERVAL if modifier >= 0 => {
                let (fields, precision) = (modifier >> 16 & ALL_FIELDS, modifier & FULL_PRECISION);
                f.write_str("interval")?;
                if let Some((_, name)) = INTERVAL_FIELDS.iter().find(|(bits, _)| *bits == fields) {
                    f.write_str(name)?;
                }
                if precision != FULL_PRECISION { write!(f, "({precision})") } else { Ok(()) }
            }
            _ => f.write_str(info.sql_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names and modifiers are those of `SELECT format_type(oid, typmod)` in PostgreSQL 15.
    #[test]
    fn types_print_as_format_type_prints_them() {
        let cases = [
            (Type::new(TypeId::INT4), "integer"),
            (Type::new(TypeId::CHAR), "\"char\""),
            (Type::new(TypeId::CHAR_ARRAY), "\"char\"[]"),
            (Type::new(TypeId::BPCHAR), "bpchar"),
            (Type::character(3), "character(3)"),
            (Type::varchar(5), "character varying(5)"),
            (Type::varchar(5).array().expect("the type has an array type"), "character varying(5)[]"),
            (Type::new(TypeId::VARCHAR), "character varying"),
            (Type::new(TypeId::NUMERIC), "numeric"),
            (Type::numeric(12, 2), "numeric(12,2)"),
            (Type::numeric(3, -2), "numeric(3,-2)"),
            (Type::new(TypeId::NUMERIC).with_modifier(786438), "numeric(12,2)"),
            (Type::new(TypeId::TIMESTAMP).with_modifier(3), "timestamp(3) without time zone"),
            (Type::new(TypeId::TIMESTAMPTZ_ARRAY), "timestamp with time zone[]"),
            (Type::new(TypeId::INTERVAL).with_modifier(0x1c08_0003), "interval day to second(3)"),
            (Type::new(TypeId::INTERVAL).with_modifier(0x7fff_0002), "interval(2)"),
            (Type::new(TypeId::INTERVAL).with_modifier(0x6_ffff), "interval year to month"),
            (Type::new(TypeId::INT2VECTOR), "int2vector"),
            (Type::new(TypeId(99_999)), "99999"),
        ];
        for (ty, name) in cases {
            assert_eq!(ty.to_string(), name);
        }
    }

    #[test]
    fn a_numeric_has_one_scale_where_its_declaration_fits_38_digits() {
        let decimal = |precision, scale| Some(Representation::Decimal { precision, scale });
        assert_eq!(Type::numeric(12, 2).representation(), decimal(12, 2));
        assert_eq!(Type::numeric(38, 0).representation(), decimal(38, 0));
        for ty in
            [Type::numeric(39, 2), Type::numeric(3, -2), Type::numeric(2, 5), Type::new(TypeId::NUMERIC)]
        {
            assert_eq!(ty.representation(), Some(Representation::Numeric), "{ty}");
        }
    }

    #[test]
    fn types_of_today_convert_there_and_back_and_others_are_refused() {
        for ty in [
            SqlType::Boolean,
            SqlType::Integer,
            SqlType::NUMERIC,
            SqlType::Numeric { precision: 12, scale: 2 },
            SqlType::Varchar(Some(3)),
            SqlType::Char(2),
            SqlType::TimestampTz,
            SqlType::Uuid,
        ] {
            assert_eq!(SqlType::try_from(Type::from(ty)).expect("the type is supported"), ty);
        }
        for id in [TypeId::NAME, TypeId::REGCLASS, TypeId::INT4_ARRAY, TypeId::UNKNOWN] {
            let error = SqlType::try_from(Type::new(id)).expect_err("the type is new");
            assert_eq!(error.state(), crate::SqlState::FEATURE_NOT_SUPPORTED);
        }
    }

    #[test]
    fn objects_are_those_of_the_reg_types() {
        let names = |id| Type::new(id).names_objects();
        assert!(names(TypeId::REGCLASS) && names(TypeId::REGPROC) && names(TypeId(2210)));
        assert!(
            !names(TypeId::OID) && !names(TypeId::XID) && !names(TypeId::OIDVECTOR) && !names(TypeId::NAME)
        );
    }

    #[test]
    fn arrays_keep_the_modifier_of_their_elements() {
        let array = Type::numeric(12, 2).array().expect("the type has an array type");
        assert_eq!(array.id, TypeId::NUMERIC_ARRAY);
        assert_eq!(array.element(), Some(Type::numeric(12, 2)));
        assert_eq!(array.representation(), Some(Representation::List(&Representation::Numeric)));
        assert_eq!(Type::new(TypeId::NAME).element(), None, "a name is a string");
        assert_eq!(Type::new(TypeId::INT2VECTOR).element(), Some(Type::new(TypeId::INT2)));
    }
}
