//! The rows of relations that are the same in every database: types, functions, operators, casts and their relatives.
//!
//! Functions, operators, casts and aggregates are those of the registry, so the catalogs list what can be called. Types also name
//! functions that only the protocol uses; these are in `procedures.tsv`.

use super::relation::{Cell, Row};
use super::rows::{BTREE, row};
use super::types::{self, ListedType};
use super::{OWNER, Source};
use crate::operator_classes::{self, OperatorClass};
use firn_base::{TimeZoneSetting, Type, TypeId, clock, time_zone};
use firn_txn::catalog::Oid;
use firn_vector::registry::{
    AggregateKind, Body, CastContext, CastMethod, Function, FunctionId, Mode, Parallel, Parameter, Volatility,
};
use std::sync::LazyLock;

/// The languages: PostgreSQL's oids of `internal`, `c` and `sql`.
const INTERNAL: i64 = 12;
const LANGUAGES: [(i64, &str, bool); 3] =
    [(INTERNAL, "internal", false), (13, "c", false), (14, "sql", true)];

/// The supported collations of PostgreSQL, with their providers.
pub(super) const COLLATIONS: [(i64, &str, &str); 3] =
    [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")];

fn pg_catalog() -> i64 {
    i64::from(Oid::PG_CATALOG.0)
}

pub(super) fn pg_type(_: &Source) -> Vec<Row> {
    let row = |ty: &ListedType| {
        row! {
            "oid": ty.oid,
            "typname": ty.name,
            "typnamespace": pg_catalog(),
            "typowner": OWNER,
            "typlen": ty.length,
            "typbyval": ty.by_value,
            "typtype": ty.kind,
            "typcategory": ty.category.to_string(),
            "typispreferred": ty.is_preferred,
            "typisdefined": true,
            "typdelim": ty.delimiter,
            "typelem": ty.element,
            "typarray": ty.array,
            "typinput": ty.input,
            "typoutput": ty.output,
            "typreceive": ty.receive,
            "typsend": ty.send,
            "typmodin": ty.modifier_input,
            "typmodout": ty.modifier_output,
            "typanalyze": ty.analyze,
            "typalign": ty.alignment.to_string(),
            "typstorage": ty.storage.to_string(),
            "typtypmod": -1,
            "typcollation": ty.collation,
            "typsubscript": ty.subscript,
        }
    };
    types::all().iter().map(row).collect()
}

/// A row of `procedures.tsv`.
pub(super) struct Procedure {
    pub(super) oid: i64,
    pub(super) name: &'static str,
    arguments: Vec<i64>,
    result: i64,
    volatility: &'static str,
    returns_set: bool,
    is_strict: bool,
}

/// The functions that types name. Some of these are in the registry.
static PROCEDURES: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let procedure = |line: &'static str| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let number = |text: &str| text.parse().expect("a number");
        Procedure {
            oid: number(fields[0]),
            name: fields[1],
            result: number(fields[3]),
            arguments: fields[4].split_whitespace().map(number).collect(),
            volatility: fields[5],
            returns_set: fields[7] == "t",
            is_strict: fields[8] == "t",
        }
    };
    include_str!("procedures.tsv").lines().map(procedure).collect()
});

/// The functions that types name and the registry does not have.
pub(super) fn procedures(source: &Source) -> impl Iterator<Item = &'static Procedure> {
    let registry = source.registry;
    PROCEDURES.iter().filter(move |procedure| registry.function(FunctionId(procedure.oid as u32)).is_none())
}

pub(super) fn pg_proc(source: &Source) -> Vec<Row> {
    let mut functions: Vec<&Function> = source.registry.functions().map(|function| &**function).collect();
    functions.sort_by_key(|function| function.id);
    let procedure = |procedure: &Procedure| {
        row! {
            "oid": procedure.oid,
            "proname": procedure.name,
            "pronamespace": pg_catalog(),
            "proowner": OWNER,
            "prolang": INTERNAL,
            "procost": 1.0,
            "prorows": if procedure.returns_set { 1000.0 } else { 0.0 },
            "prokind": "f",
            "proisstrict": procedure.is_strict,
            "proretset": procedure.returns_set,
            "provolatile": procedure.volatility,
            "proparallel": "s",
            "pronargs": procedure.arguments.len() as i64,
            "prorettype": procedure.result,
            "proargtypes": procedure.arguments.clone(),
            "prosrc": procedure.name,
        }
    };
    functions.into_iter().map(function_row).chain(procedures(source).map(procedure)).collect()
}

fn function_row(function: &Function) -> Row {
    let numbers = |parameters: &mut dyn Iterator<Item = &Parameter>| -> Vec<i64> {
        parameters.map(|parameter| i64::from(parameter.ty.0)).collect()
    };
    let variadic = function.variadic().map_or(0, |ty| match ty {
        TypeId::ANY => i64::from(TypeId::ANY.0),
        TypeId::ANYARRAY => i64::from(TypeId::ANYELEMENT.0),
        TypeId::ANYCOMPATIBLEARRAY => i64::from(TypeId::ANYCOMPATIBLE.0),
        ty => Type::new(ty).element().map_or(0, |element| i64::from(element.id.0)),
    });
    let has_results = function.columns().next().is_some();
    let is_named = function.parameters.iter().any(|parameter| parameter.name.is_some());
    let mut row = row! {
        "oid": i64::from(function.id.0),
        "proname": &*function.name,
        "pronamespace": i64::from(schema_of(function).0),
        "proowner": OWNER,
        "prolang": INTERNAL,
        "procost": 1.0,
        "prorows": if function.returns_set() { 1000.0 } else { 0.0 },
        "provariadic": variadic,
        "prokind": match &function.body {
            Body::Scalar(_) | Body::Set(_) => "f",
            Body::Aggregate(_) => "a",
            Body::Window(_) => "w",
        },
        "proisstrict": function.is_strict,
        "proretset": function.returns_set(),
        "provolatile": match function.volatility {
            Volatility::Immutable => "i",
            Volatility::Stable => "s",
            Volatility::Volatile => "v",
        },
        "proparallel": match function.parallel {
            Parallel::Safe => "s",
            Parallel::Restricted => "r",
            Parallel::Unsafe => "u",
        },
        "pronargs": function.arguments().count() as i64,
        "pronargdefaults": function.defaults() as i64,
        "prorettype": i64::from(function.result.0),
        "proargtypes": numbers(&mut function.arguments()),
        "prosrc": &*function.name,
    };
    if has_results || variadic != 0 {
        let modes = function.parameters.iter().map(|parameter| mode(parameter.mode).to_owned());
        row.push(("proallargtypes", numbers(&mut function.parameters.iter()).into()));
        row.push(("proargmodes", modes.collect::<Vec<_>>().into()));
    }
    if is_named {
        let names = function.parameters.iter().map(|parameter| parameter.name.as_deref().unwrap_or(""));
        row.push(("proargnames", names.map(str::to_owned).collect::<Vec<_>>().into()));
    }
    row
}

/// The schema of a function.
pub(super) fn schema_of(function: &Function) -> Oid {
    match function.schema.as_deref() {
        None => Oid::PG_CATALOG,
        Some(_) => Oid::INFORMATION_SCHEMA,
    }
}

/// The letter of `pg_proc.proargmodes`.
fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::In => "i",
        Mode::Out => "o",
        Mode::InOut => "b",
        Mode::Variadic => "v",
        Mode::Table => "t",
    }
}

pub(super) fn pg_aggregate(source: &Source) -> Vec<Row> {
    let row = |function: &Function| {
        let Body::Aggregate(aggregate) = &function.body else { return None };
        Some((
            function.id,
            row! {
                "aggfnoid": i64::from(function.id.0),
                "aggkind": match aggregate.kind {
                    AggregateKind::Normal => "n",
                    AggregateKind::OrderedSet => "o",
                    AggregateKind::HypotheticalSet => "h",
                },
                "aggnumdirectargs": aggregate.direct as i64,
                "aggfinalmodify": "r",
                "aggmfinalmodify": "r",
                "aggsortop": aggregate.sort_operator.map_or(0, |operator| i64::from(operator.0)),
                "aggtranstype": i64::from(TypeId::INTERNAL.0),
            },
        ))
    };
    let mut rows: Vec<(FunctionId, Row)> =
        source.registry.functions().filter_map(|function| row(function)).collect();
    rows.sort_by_key(|(id, _)| *id);
    rows.into_iter().map(|(_, row)| row).collect()
}

pub(super) fn pg_operator(source: &Source) -> Vec<Row> {
    let mut operators: Vec<_> = source.registry.operators().collect();
    operators.sort_by_key(|operator| operator.id);
    let row = |operator: &&std::sync::Arc<firn_vector::registry::Operator>| {
        row! {
            "oid": i64::from(operator.id.0),
            "oprname": &*operator.name,
            "oprnamespace": pg_catalog(),
            "oprowner": OWNER,
            "oprkind": if operator.left.is_some() { "b" } else { "l" },
            "oprcanmerge": operator.can_merge,
            "oprcanhash": operator.can_hash,
            "oprleft": operator.left.map_or(0, |left| i64::from(left.0)),
            "oprright": i64::from(operator.right.0),
            "oprresult": i64::from(operator.result.0),
            "oprcom": operator.commutator.map_or(0, |operator| i64::from(operator.0)),
            "oprnegate": operator.negator.map_or(0, |operator| i64::from(operator.0)),
            "oprcode": i64::from(operator.function.0),
        }
    };
    operators.iter().map(row).collect()
}

pub(super) fn pg_cast(source: &Source) -> Vec<Row> {
    /// The first oid of PostgreSQL's casts, which are numbered in their order.
    const FIRST: i64 = 10_035;
    let mut casts: Vec<_> = source.registry.casts().collect();
    casts.sort_by_key(|cast| (cast.source.0, cast.target.0));
    let row = |(oid, cast): (i64, &firn_vector::registry::Cast)| {
        let (method, function) = match cast.method {
            CastMethod::Function(function) => ("f", i64::from(function.0)),
            CastMethod::Relabel => ("b", 0),
            CastMethod::InputOutput { .. } | CastMethod::Elements(_) => ("i", 0),
        };
        row! {
            "oid": oid,
            "castsource": i64::from(cast.source.0),
            "casttarget": i64::from(cast.target.0),
            "castfunc": function,
            "castcontext": match cast.context {
                CastContext::Implicit => "i",
                CastContext::Assignment => "a",
                CastContext::Explicit => "e",
            },
            "castmethod": method,
        }
    };
    (FIRST..).zip(casts).map(row).collect()
}

pub(super) fn pg_opclass(_: &Source) -> Vec<Row> {
    let row = |class: &OperatorClass| {
        row! {
            "oid": class.oid,
            "opcmethod": BTREE,
            "opcname": class.name,
            "opcnamespace": pg_catalog(),
            "opcowner": OWNER,
            "opcfamily": class.family,
            "opcintype": class.input,
            "opcdefault": class.is_default,
        }
    };
    operator_classes::all().iter().map(row).collect()
}

pub(super) fn pg_opfamily(_: &Source) -> Vec<Row> {
    let mut families: Vec<(i64, &str)> =
        operator_classes::all().iter().map(|class| (class.family, class.family_name)).collect();
    families.sort_unstable();
    families.dedup();
    let row = |(oid, name): (i64, &str)| {
        row! {
            "oid": oid,
            "opfmethod": BTREE,
            "opfname": name,
            "opfnamespace": pg_catalog(),
            "opfowner": OWNER,
        }
    };
    families.into_iter().map(row).collect()
}

pub(super) fn pg_collation(_: &Source) -> Vec<Row> {
    let row = |(oid, name, provider): (i64, &str, &str)| {
        let locale = (provider == "c").then_some(name);
        row! {
            "oid": oid,
            "collname": name,
            "collnamespace": pg_catalog(),
            "collowner": OWNER,
            "collprovider": provider,
            "collisdeterministic": true,
            "collencoding": -1,
            "collcollate": locale,
            "collctype": locale,
        }
    };
    COLLATIONS.into_iter().map(row).collect()
}

/// Whether there is a language of that name.
pub(crate) fn has_language(name: &str) -> bool {
    LANGUAGES.iter().any(|(_, known, _)| *known == name)
}

pub(super) fn pg_language(_: &Source) -> Vec<Row> {
    let row = |(oid, name, is_trusted): (i64, &str, bool)| {
        row! { "oid": oid, "lanname": name, "lanowner": OWNER, "lanpltrusted": is_trusted }
    };
    LANGUAGES.into_iter().map(row).collect()
}

/// The zones of the IANA database with their current offsets.
pub(super) fn pg_timezone_names(_: &Source) -> Vec<Row> {
    let now = clock::wall_clock_micros();
    let row = |name: &str| {
        let zone = TimeZoneSetting::from_name(name)?;
        let offset = zone.offset_at(now);
        Some(row! {
            "name": name,
            "abbrev": zone.abbreviation_at(now),
            "utc_offset": Cell::Interval(i64::from(offset) * 1_000_000),
            "is_dst": zone.is_daylight_saving_at(now),
        })
    };
    time_zone::names().filter_map(row).collect()
}

pub(super) fn pg_timezone_abbrevs(_: &Source) -> Vec<Row> {
    let row = |(name, hours, is_dst): (&str, i32, bool)| {
        row! { "abbrev": name, "utc_offset": Cell::Interval(i64::from(hours) * 3_600_000_000), "is_dst": is_dst }
    };
    time_zone::abbreviations().map(row).collect()
}
