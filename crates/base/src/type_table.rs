//! The built-in types: the supported part of PostgreSQL's `pg_type`.
//!
//! One row describes a type and the type of its arrays. Types that users create are in the catalog, which
//! describes them with the same [`TypeInfo`].

use crate::data_type::{Collation, TypeId};
use crate::representation::Representation;
use Representation as R;
use std::sync::LazyLock;

/// `pg_type.typtype`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeKind {
    /// A base type, or an array.
    Base,
    /// A pseudo-type: only for arguments and results of functions, never for a column.
    Pseudo,
}

/// The properties of a type.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    /// Its oid.
    pub id: TypeId,
    /// `pg_type.typname`. That of arrays is the name of their element after an underscore.
    pub name: &'static str,
    /// The name that `format_type` prints, without modifiers.
    pub sql_name: &'static str,
    /// The type of its arrays, if there is one.
    pub array: Option<TypeId>,
    /// The type of its elements, for arrays and vectors; [`TypeId::CHAR`] for `name`, as in PostgreSQL.
    pub element: Option<TypeId>,
    /// `pg_type.typcategory`: overloads are resolved by categories.
    pub category: u8,
    /// `pg_type.typispreferred`: whether casts within its category prefer it.
    pub is_preferred: bool,
    /// `pg_type.typlen`: bytes of a value in PostgreSQL; -1 where it varies, -2 for C strings.
    pub length: i16,
    /// `pg_type.typalign`.
    pub alignment: u8,
    /// `pg_type.typstorage`.
    pub storage: u8,
    /// `pg_type.typtype`.
    pub kind: TypeKind,
    /// The collation with which values are compared; [`Collation::NONE`] where collations do not matter.
    pub collation: Collation,
    /// The layout of values without a modifier; `None` for polymorphic pseudo-types.
    pub representation: Option<Representation>,
}

impl TypeInfo {
    /// `pg_type.typbyval`: whether PostgreSQL passes values in a register.
    pub fn is_by_value(&self) -> bool {
        matches!(self.length, 1 | 2 | 4 | 8)
    }

    /// Whether values are arrays: not strings or vectors, which have elements as well.
    pub fn is_array(&self) -> bool {
        // Arrays of records are pseudo-types.
        matches!(self.category, b'A' | b'P')
            && self.length == -1
            && self.array.is_none()
            && self.element.is_some()
            && !matches!(self.id, TypeId::INT2VECTOR | TypeId::OIDVECTOR)
    }

    fn array_of(&self, name: &'static str, sql_name: &'static str) -> TypeInfo {
        TypeInfo {
            id: self.array.expect("the row has an array type"),
            name,
            sql_name,
            array: None,
            element: Some(self.id),
            category: if matches!(self.kind, TypeKind::Pseudo) { b'P' } else { b'A' },
            is_preferred: false,
            length: -1,
            alignment: if self.alignment == b'd' { b'd' } else { b'i' },
            storage: b'x',
            kind: self.kind,
            collation: self.collation,
            representation: self.representation.map(Representation::list),
        }
    }
}

/// Describes built-in and other types. The catalog implements it; [`BuiltInTypes`] needs no catalog.
pub trait TypeCatalog {
    /// The properties of a type.
    fn type_info(&self, id: TypeId) -> Option<TypeInfo>;
}

/// Only the built-in types.
pub struct BuiltInTypes;

impl TypeCatalog for BuiltInTypes {
    fn type_info(&self, id: TypeId) -> Option<TypeInfo> {
        info(id).copied()
    }
}

/// The properties of a built-in type.
pub fn info(id: TypeId) -> Option<&'static TypeInfo> {
    let table: &'static [TypeInfo] = &TABLE;
    table.binary_search_by_key(&id.0, |info| info.id.0).ok().map(|place| &table[place])
}

/// The built-in type of that `typname`.
pub fn by_name(name: &str) -> Option<&'static TypeInfo> {
    TABLE.iter().find(|info| info.name == name)
}

/// All built-in types.
pub fn all() -> &'static [TypeInfo] {
    &TABLE
}

/// A row of the table: see the column names above it.
#[allow(clippy::too_many_arguments)]
const fn row(
    id: TypeId,
    name: &'static str,
    sql_name: &'static str,
    array: u32,
    category: u8,
    length: i16,
    layout: &[u8; 2],
    representation: R,
) -> TypeInfo {
    TypeInfo {
        id,
        name,
        sql_name,
        array: if array == 0 { None } else { Some(TypeId(array)) },
        element: None,
        category,
        is_preferred: false,
        length,
        alignment: layout[0],
        storage: layout[1],
        kind: TypeKind::Base,
        collation: Collation::NONE,
        representation: Some(representation),
    }
}

const fn preferred(mut info: TypeInfo) -> TypeInfo {
    info.is_preferred = true;
    info
}

const fn collated(mut info: TypeInfo, collation: Collation) -> TypeInfo {
    info.collation = collation;
    info
}

const fn of_elements(mut info: TypeInfo, element: TypeId) -> TypeInfo {
    info.element = Some(element);
    info
}

const fn pseudo(
    id: TypeId,
    name: &'static str,
    length: i16,
    layout: &[u8; 2],
    representation: Option<R>,
) -> TypeInfo {
    TypeInfo {
        kind: TypeKind::Pseudo,
        representation,
        ..row(id, name, name, 0, b'P', length, layout, R::Text)
    }
}

const INT16: R = R::Int16;
const OID: R = R::Oid;

#[rustfmt::skip]
const SCALARS: &[TypeInfo] = &[
    //            oid                      typname      as printed     array  category length  align storage
    preferred(row(TypeId::BOOL,           "bool",      "boolean",      1000, b'B',  1, b"cp", R::Boolean)),
    row(TypeId::BYTEA,                    "bytea",     "bytea",        1001, b'U', -1, b"ix", R::Bytes),
    row(TypeId::CHAR,                     "char",      "\"char\"",     1002, b'Z',  1, b"cp", R::Text),
    of_elements(collated(row(TypeId::NAME, "name",     "name",         1003, b'S', 64, b"cp", R::Text), Collation::C), TypeId::CHAR),
    row(TypeId::INT8,                     "int8",      "bigint",       1016, b'N',  8, b"dp", R::Int64),
    row(TypeId::INT2,                     "int2",      "smallint",     1005, b'N',  2, b"sp", R::Int16),
    of_elements(row(TypeId::INT2VECTOR,   "int2vector", "int2vector",     0, b'A', -1, b"ip", R::List(&INT16)), TypeId::INT2),
    row(TypeId::INT4,                     "int4",      "integer",      1007, b'N',  4, b"ip", R::Int32),
    row(TypeId::REGPROC,                  "regproc",   "regproc",      1008, b'N',  4, b"ip", R::Oid),
    preferred(collated(row(TypeId::TEXT,  "text",      "text",         1009, b'S', -1, b"ix", R::Text), Collation::DEFAULT)),
    preferred(row(TypeId::OID,            "oid",       "oid",          1028, b'N',  4, b"ip", R::Oid)),
    row(TypeId::TID,                      "tid",       "tid",          1010, b'U',  6, b"sp", R::Int64),
    row(TypeId::XID,                      "xid",       "xid",          1011, b'U',  4, b"ip", R::Oid),
    row(TypeId::CID,                      "cid",       "cid",          1012, b'U',  4, b"ip", R::Oid),
    of_elements(row(TypeId::OIDVECTOR,    "oidvector", "oidvector",       0, b'A', -1, b"ip", R::List(&OID)), TypeId::OID),
    row(TypeId::JSON,                     "json",      "json",          199, b'U', -1, b"ix", R::Text),
    collated(row(TypeId::PG_NODE_TREE,    "pg_node_tree", "pg_node_tree", 0, b'Z', -1, b"ix", R::Text), Collation::DEFAULT),
    row(TypeId::FLOAT4,                   "float4",    "real",         1021, b'N',  4, b"ip", R::Float32),
    preferred(row(TypeId::FLOAT8,         "float8",    "double precision", 1022, b'N', 8, b"dp", R::Float64)),
    row(TypeId::ACLITEM,                  "aclitem",   "aclitem",      1034, b'U', 12, b"ip", R::Text),
    collated(row(TypeId::BPCHAR,          "bpchar",    "character",    1014, b'S', -1, b"ix", R::PaddedText), Collation::DEFAULT),
    collated(row(TypeId::VARCHAR,         "varchar",   "character varying", 1015, b'S', -1, b"ix", R::Text), Collation::DEFAULT),
    row(TypeId::DATE,                     "date",      "date",         1182, b'D',  4, b"ip", R::Date),
    row(TypeId::TIME,                     "time",      "time without time zone", 1183, b'D', 8, b"dp", R::Time),
    row(TypeId::TIMESTAMP,                "timestamp", "timestamp without time zone", 1115, b'D', 8, b"dp", R::Timestamp),
    preferred(row(TypeId::TIMESTAMPTZ,    "timestamptz", "timestamp with time zone", 1185, b'D', 8, b"dp", R::TimestampTz)),
    preferred(row(TypeId::INTERVAL,       "interval",  "interval",     1187, b'T', 16, b"dp", R::Interval)),
    row(TypeId::NUMERIC,                  "numeric",   "numeric",      1231, b'N', -1, b"im", R::Numeric),
    row(TypeId::REFCURSOR,                "refcursor", "refcursor",    2201, b'U', -1, b"ix", R::Text),
    row(TypeId::REGPROCEDURE,             "regprocedure", "regprocedure", 2207, b'N', 4, b"ip", R::Oid),
    row(TypeId::REGOPER,                  "regoper",   "regoper",      2208, b'N',  4, b"ip", R::Oid),
    row(TypeId::REGOPERATOR,              "regoperator", "regoperator", 2209, b'N', 4, b"ip", R::Oid),
    row(TypeId::REGCLASS,                 "regclass",  "regclass",     2210, b'N',  4, b"ip", R::Oid),
    row(TypeId::REGTYPE,                  "regtype",   "regtype",      2211, b'N',  4, b"ip", R::Oid),
    row(TypeId::UUID,                     "uuid",      "uuid",         2951, b'U', 16, b"cp", R::Uuid),
    row(TypeId::PG_LSN,                   "pg_lsn",    "pg_lsn",       3221, b'U',  8, b"dp", R::Int64),
    row(TypeId::REGNAMESPACE,             "regnamespace", "regnamespace", 4090, b'N', 4, b"ip", R::Oid),
    row(TypeId::REGROLE,                  "regrole",   "regrole",      4097, b'N',  4, b"ip", R::Oid),
    row(TypeId::REGCOLLATION,             "regcollation", "regcollation", 4192, b'N', 4, b"ip", R::Oid),
    row(TypeId::XID8,                     "xid8",      "xid8",          271, b'U',  8, b"dp", R::Int64),
    TypeInfo { category: b'X', ..pseudo(TypeId::UNKNOWN, "unknown", -2, b"cp", Some(R::Text)) },
    TypeInfo { array: Some(TypeId(2287)), ..pseudo(TypeId::RECORD, "record", -1, b"dx", Some(R::Record)) },
    TypeInfo { array: Some(TypeId(1263)), ..pseudo(TypeId::CSTRING, "cstring", -2, b"cp", Some(R::Text)) },
    pseudo(TypeId::ANY,                   "any",                    4, b"ip", None),
    pseudo(TypeId::ANYARRAY,              "anyarray",              -1, b"dx", None),
    pseudo(TypeId::VOID,                  "void",                   4, b"ip", Some(R::Text)),
    pseudo(TypeId::TRIGGER,               "trigger",                4, b"ip", None),
    pseudo(TypeId::LANGUAGE_HANDLER,      "language_handler",       4, b"ip", None),
    pseudo(TypeId::INTERNAL,              "internal",               8, b"dp", None),
    pseudo(TypeId::ANYELEMENT,            "anyelement",             4, b"ip", None),
    pseudo(TypeId::ANYNONARRAY,           "anynonarray",            4, b"ip", None),
    pseudo(TypeId::ANYENUM,               "anyenum",                4, b"ip", None),
    pseudo(TypeId::ANYRANGE,              "anyrange",              -1, b"dx", None),
    pseudo(TypeId::EVENT_TRIGGER,         "event_trigger",          4, b"ip", None),
    pseudo(TypeId::ANYCOMPATIBLE,         "anycompatible",          4, b"ip", None),
    pseudo(TypeId::ANYCOMPATIBLEARRAY,    "anycompatiblearray",    -1, b"dx", None),
    pseudo(TypeId::ANYCOMPATIBLENONARRAY, "anycompatiblenonarray",  4, b"ip", None),
    pseudo(TypeId::ANYCOMPATIBLERANGE,    "anycompatiblerange",    -1, b"dx", None),
];

/// The array types: the element, `typname`, and the name as `format_type` prints it.
const ARRAYS: &[(TypeId, &str, &str)] = &[
    (TypeId::BOOL, "_bool", "boolean[]"),
    (TypeId::BYTEA, "_bytea", "bytea[]"),
    (TypeId::CHAR, "_char", "\"char\"[]"),
    (TypeId::NAME, "_name", "name[]"),
    (TypeId::INT8, "_int8", "bigint[]"),
    (TypeId::INT2, "_int2", "smallint[]"),
    (TypeId::INT4, "_int4", "integer[]"),
    (TypeId::REGPROC, "_regproc", "regproc[]"),
    (TypeId::TEXT, "_text", "text[]"),
    (TypeId::JSON, "_json", "json[]"),
    (TypeId::OID, "_oid", "oid[]"),
    (TypeId::TID, "_tid", "tid[]"),
    (TypeId::XID, "_xid", "xid[]"),
    (TypeId::CID, "_cid", "cid[]"),
    (TypeId::FLOAT4, "_float4", "real[]"),
    (TypeId::FLOAT8, "_float8", "double precision[]"),
    (TypeId::ACLITEM, "_aclitem", "aclitem[]"),
    (TypeId::BPCHAR, "_bpchar", "character[]"),
    (TypeId::VARCHAR, "_varchar", "character varying[]"),
    (TypeId::DATE, "_date", "date[]"),
    (TypeId::TIME, "_time", "time without time zone[]"),
    (TypeId::TIMESTAMP, "_timestamp", "timestamp without time zone[]"),
    (TypeId::TIMESTAMPTZ, "_timestamptz", "timestamp with time zone[]"),
    (TypeId::INTERVAL, "_interval", "interval[]"),
    (TypeId::NUMERIC, "_numeric", "numeric[]"),
    (TypeId::REFCURSOR, "_refcursor", "refcursor[]"),
    (TypeId::REGPROCEDURE, "_regprocedure", "regprocedure[]"),
    (TypeId::REGOPER, "_regoper", "regoper[]"),
    (TypeId::REGOPERATOR, "_regoperator", "regoperator[]"),
    (TypeId::REGCLASS, "_regclass", "regclass[]"),
    (TypeId::REGTYPE, "_regtype", "regtype[]"),
    (TypeId::UUID, "_uuid", "uuid[]"),
    (TypeId::PG_LSN, "_pg_lsn", "pg_lsn[]"),
    (TypeId::REGNAMESPACE, "_regnamespace", "regnamespace[]"),
    (TypeId::REGROLE, "_regrole", "regrole[]"),
    (TypeId::REGCOLLATION, "_regcollation", "regcollation[]"),
    (TypeId::XID8, "_xid8", "xid8[]"),
    (TypeId::RECORD, "_record", "record[]"),
    (TypeId::CSTRING, "_cstring", "cstring[]"),
];

/// All types, in the order of their oids.
static TABLE: LazyLock<Box<[TypeInfo]>> = LazyLock::new(|| {
    let scalar = |id| SCALARS.iter().find(|info| info.id == id).expect("elements are in the table");
    let arrays = ARRAYS.iter().map(|&(element, name, sql_name)| scalar(element).array_of(name, sql_name));
    let mut table: Vec<TypeInfo> = SCALARS.iter().copied().chain(arrays).collect();
    table.sort_by_key(|info| info.id.0);
    table.into()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_and_elements_name_each_other() {
        for info in all() {
            if let Some(array) = info.array {
                let array = super::info(array).expect("the table has the array type");
                assert_eq!(array.element, Some(info.id), "{}", info.name);
                assert_eq!(array.name, format!("_{}", info.name));
                assert_eq!(array.sql_name, format!("{}[]", info.sql_name));
                assert!(array.is_array());
            }
            assert_eq!(super::info(info.id).expect("the type is found").name, info.name);
            assert_eq!(by_name(info.name).expect("the type is found").id, info.id);
        }
    }

    #[test]
    fn vectors_and_names_have_elements_and_are_no_arrays() {
        for id in [TypeId::INT2VECTOR, TypeId::OIDVECTOR, TypeId::NAME] {
            assert!(!info(id).expect("the type is built in").is_array());
        }
    }
}
