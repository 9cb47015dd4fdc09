//! The types that `pg_type` lists: those of the type table, and PostgreSQL's other base types, which clients look up by name or oid and
//! which have no values here (`types.tsv`).

use firn_base::type_table::{self, TypeKind};
use firn_base::{Type, TypeId};
use firn_syntax::Options;
use firn_syntax::tree::{BaseType, TypeName};
use firn_vector::registry::{TypeFunctions, type_functions};
use std::collections::HashMap;
use std::sync::LazyLock;

/// PostgreSQL's subscripting function of arrays, and that of `name`.
const ARRAY_SUBSCRIPTS: i64 = 6179;
const RAW_ARRAY_SUBSCRIPTS: i64 = 6180;
/// PostgreSQL's function that collects statistics of arrays.
const ARRAY_ANALYZE: i64 = 3816;

/// The arrays of vectors, which have no values here.
const INT2VECTOR_ARRAY: i64 = 1006;
const OIDVECTOR_ARRAY: i64 = 1013;

/// A row of `pg_type`.
pub(crate) struct ListedType {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    /// The name that `format_type` prints without a modifier.
    sql_name: &'static str,
    pub(crate) length: i64,
    pub(crate) by_value: bool,
    pub(crate) kind: &'static str,
    pub(crate) category: char,
    pub(crate) is_preferred: bool,
    pub(crate) delimiter: &'static str,
    /// The type of the elements of arrays, vectors and `name`; 0 for others.
    pub(crate) element: i64,
    pub(crate) array: i64,
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) receive: i64,
    pub(crate) send: i64,
    pub(crate) modifier_input: i64,
    pub(crate) modifier_output: i64,
    pub(crate) analyze: i64,
    pub(crate) alignment: char,
    pub(crate) storage: char,
    pub(crate) collation: i64,
    pub(crate) subscript: i64,
}

static TYPES: LazyLock<Vec<ListedType>> = LazyLock::new(|| {
    let functions: HashMap<TypeId, TypeFunctions> =
        type_functions().map(|functions| (functions.id, functions)).collect();
    let built_in = type_table::all().iter().map(|info| {
        let subscript = match info.element {
            None => 0,
            Some(_) if info.id == TypeId::NAME => RAW_ARRAY_SUBSCRIPTS,
            Some(_) => ARRAY_SUBSCRIPTS,
        };
        let function = |choose: fn(&TypeFunctions) -> firn_vector::registry::FunctionId| {
            functions.get(&info.id).map_or(0, |functions| i64::from(choose(functions).0))
        };
        ListedType {
            oid: i64::from(info.id.0),
            name: info.name,
            sql_name: info.sql_name,
            length: info.length.into(),
            by_value: info.is_by_value(),
            kind: match info.kind {
                TypeKind::Base => "b",
                TypeKind::Pseudo => "p",
            },
            category: info.category.into(),
            is_preferred: info.is_preferred,
            delimiter: ",",
            element: info.element.map_or(0, |element| element.0.into()),
            array: match info.id {
                TypeId::INT2VECTOR => INT2VECTOR_ARRAY,
                TypeId::OIDVECTOR => OIDVECTOR_ARRAY,
                _ => info.array.map_or(0, |array| array.0.into()),
            },
            input: function(|functions| functions.input),
            output: function(|functions| functions.output),
            receive: function(|functions| functions.receive),
            send: function(|functions| functions.send),
            modifier_input: function(|functions| functions.modifier_input),
            modifier_output: function(|functions| functions.modifier_output),
            analyze: if info.is_array() { ARRAY_ANALYZE } else { 0 },
            alignment: info.alignment.into(),
            storage: info.storage.into(),
            collation: info.collation.0.into(),
            subscript,
        }
    });
    let others = include_str!("types.tsv").lines().map(|line| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let number = |field: usize| fields[field].parse().expect("a number");
        let character = |field: usize| fields[field].chars().next().expect("a character");
        ListedType {
            oid: number(0),
            name: fields[1],
            length: number(2),
            by_value: fields[3] == "t",
            kind: fields[4],
            category: character(5),
            is_preferred: fields[6] == "t",
            delimiter: fields[7],
            element: number(8),
            array: number(9),
            input: number(10),
            output: number(11),
            receive: number(12),
            send: number(13),
            modifier_input: number(14),
            modifier_output: number(15),
            analyze: if character(5) == 'A' { ARRAY_ANALYZE } else { 0 },
            alignment: character(16),
            storage: character(17),
            collation: number(18),
            subscript: number(19),
            sql_name: fields[20],
        }
    });
    let mut types: Vec<ListedType> = built_in.chain(others).collect();
    types.sort_by_key(|listed| listed.oid);
    types
});

/// All types, in the order of their oids.
pub(crate) fn all() -> &'static [ListedType] {
    &TYPES
}

/// The type of an oid.
pub(crate) fn numbered(oid: i64) -> Option<&'static ListedType> {
    TYPES.binary_search_by_key(&oid, |listed| listed.oid).ok().map(|place| &TYPES[place])
}

/// The row of a type that columns have.
pub(crate) fn of(ty: Type) -> &'static ListedType {
    numbered(ty.id.0.into()).expect("pg_type lists all types of columns")
}

/// The oid of a type by its name in SQL or in `pg_type`, with `[]` appended for arrays.
pub(crate) fn named(name: &str) -> Option<i64> {
    let parsed = firn_syntax::parse_type_name(name, Options::default()).ok()?;
    let TypeName { base, bounds, .. } = &parsed;
    let known = |id: TypeId| Some(i64::from(id.0));
    let base = match base {
        BaseType::SmallInt => known(TypeId::INT2),
        BaseType::Integer => known(TypeId::INT4),
        BaseType::BigInt => known(TypeId::INT8),
        BaseType::Real => known(TypeId::FLOAT4),
        BaseType::DoublePrecision => known(TypeId::FLOAT8),
        BaseType::Boolean => known(TypeId::BOOL),
        BaseType::Numeric(_) => known(TypeId::NUMERIC),
        BaseType::Bit { is_varying, .. } => listed(if *is_varying { "varbit" } else { "bit" }),
        BaseType::Character { is_varying: true, .. } => known(TypeId::VARCHAR),
        BaseType::Character { is_varying: false, .. } => known(TypeId::BPCHAR),
        BaseType::Time { with_zone: true, .. } => listed("timetz"),
        BaseType::Time { with_zone: false, .. } => known(TypeId::TIME),
        BaseType::Timestamp { with_zone: true, .. } => known(TypeId::TIMESTAMPTZ),
        BaseType::Timestamp { with_zone: false, .. } => known(TypeId::TIMESTAMP),
        BaseType::Interval { .. } => known(TypeId::INTERVAL),
        BaseType::Named { name, .. } => match name.schema().map(|schema| &*schema.text) {
            None | Some("pg_catalog") => listed(&name.name.text),
            Some(_) => None,
        },
    }?;
    match bounds.is_empty() {
        true => Some(base),
        false => Some(numbered(base)?.array).filter(|array| *array != 0),
    }
}

fn listed(name: &str) -> Option<i64> {
    TYPES.iter().find(|listed| listed.name == name).map(|listed| listed.oid)
}

/// The name of a type by its oid and modifier, as `format_type` prints it; without a modifier
/// PostgreSQL prints the bare name.
pub(crate) fn format_type(oid: i64, modifier: Option<i64>) -> Option<String> {
    let listed = numbered(oid)?;
    let is_array = listed.category == 'A' && listed.length == -1 && listed.subscript != 0;
    if is_array && listed.name.starts_with('_') {
        return Some(format!("{}[]", format_type(listed.element, modifier)?));
    }
    let digits = modifier.filter(|modifier| *modifier >= 0);
    Some(match (u32::try_from(oid).ok().and_then(|oid| type_table::info(TypeId(oid))), listed.name, digits) {
        // Without a length, character means character(1).
        (Some(info), _, _) if info.id == TypeId::BPCHAR && modifier.is_none() => "character".to_owned(),
        (Some(info), ..) => {
            let modifier = modifier.and_then(|modifier| i32::try_from(modifier).ok()).unwrap_or(-1);
            Type::new(info.id).with_modifier(modifier).to_string()
        }
        (None, "timetz", Some(digits)) => format!("time({digits}) with time zone"),
        (None, "bit" | "varbit", Some(digits)) => format!("{}({digits})", listed.sql_name),
        (None, ..) => listed.sql_name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of `SELECT format_type(oid, typmod)` in PostgreSQL 15.
    #[test]
    fn types_are_found_by_their_names_and_named_with_their_modifiers() {
        let cases = [
            (1043, Some(24), "character varying(20)"),
            (1700, Some(655_366), "numeric(10,2)"),
            (23, None, "integer"),
            (1114, Some(3), "timestamp(3) without time zone"),
            (1007, Some(-1), "integer[]"),
            (1042, Some(7), "character(3)"),
            (1042, Some(-1), "bpchar"),
            (1042, None, "character"),
            (18, None, "\"char\""),
            (1560, Some(3), "bit(3)"),
            (22, None, "int2vector"),
            (1013, None, "oidvector[]"),
            (3807, None, "jsonb[]"),
        ];
        for (oid, modifier, name) in cases {
            assert_eq!(format_type(oid, modifier).as_deref(), Some(name));
        }
        assert_eq!(format_type(99_999_999, None), None);
        for (name, oid) in [
            ("int", 23),
            ("pg_catalog.int4", 23),
            ("timestamp with time zone", 1184),
            ("\"char\"", 18),
            ("char", 1042),
            ("text[]", 1009),
            ("_text", 1009),
            ("json", 114),
        ] {
            assert_eq!(named(name), Some(oid), "{name}");
        }
        assert_eq!(named("int2vector[]"), Some(1006));
        assert_eq!((named("nothing"), named("int )")), (None, None));
    }
}
