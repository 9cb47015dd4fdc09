//! What PostgreSQL 15's catalogs say: the tables in `facts/`, which `facts/generate.sh` writes.
//!
//! Only functions that have a body here are in the registry, and only operators and casts whose functions are.

use super::cast::CastContext;
use super::function::{AggregateKind, FunctionId, Mode, Parallel, Parameter, Volatility};
use super::operator::{Operator, OperatorId, Strategy};
use firn_base::{TypeId, type_table};
use std::collections::HashMap;
use std::sync::LazyLock;

/// What `pg_proc` says of a function.
pub(super) struct FunctionFacts {
    pub id: FunctionId,
    pub name: &'static str,
    pub kind: u8,
    pub returns_set: bool,
    pub volatility: Volatility,
    pub is_strict: bool,
    pub parallel: Parallel,
    pub result: TypeId,
    pub parameters: Box<[Parameter]>,
}

/// What `pg_aggregate` says of an aggregate.
#[derive(Clone, Copy)]
pub(super) struct AggregateFacts {
    pub kind: AggregateKind,
    pub direct: usize,
    pub sort_operator: Option<OperatorId>,
}

/// What `pg_cast` says of a cast.
pub(super) struct CastFacts {
    pub source: TypeId,
    pub target: TypeId,
    pub function: FunctionId,
    pub context: CastContext,
    pub method: u8,
}

/// What `pg_type` says of the functions of a type. Those that it does not have are 0.
#[derive(Clone, Copy, Debug)]
pub struct TypeFunctions {
    /// The type.
    pub id: TypeId,
    /// Reads its text.
    pub input: FunctionId,
    /// Writes its text.
    pub output: FunctionId,
    /// Reads its binary form.
    pub receive: FunctionId,
    /// Writes its binary form.
    pub send: FunctionId,
    /// Reads its modifiers.
    pub modifier_input: FunctionId,
    /// Writes its modifiers.
    pub modifier_output: FunctionId,
}

/// The functions by what `regprocedure` would print with the names of `pg_type`: `int4pl(int4,int4)`.
pub(super) static FUNCTIONS: LazyLock<HashMap<String, FunctionFacts>> = LazyLock::new(|| {
    let functions = rows(include_str!("../facts/functions.tsv")).map(function);
    functions.map(|facts| (signature(&facts), facts)).collect()
});

pub(super) static AGGREGATES: LazyLock<HashMap<FunctionId, AggregateFacts>> = LazyLock::new(|| {
    let aggregate = |fields: Vec<&'static str>| {
        let kind = match fields[1] {
            "n" => AggregateKind::Normal,
            "o" => AggregateKind::OrderedSet,
            "h" => AggregateKind::HypotheticalSet,
            other => panic!("{other} is no kind of aggregate"),
        };
        let sort_operator = Some(OperatorId(number(fields[3]))).filter(|operator| operator.0 != 0);
        let direct = number(fields[2]) as usize;
        (FunctionId(number(fields[0])), AggregateFacts { kind, direct, sort_operator })
    };
    rows(include_str!("../facts/aggregates.tsv")).map(aggregate).collect()
});

/// All operators.
pub(super) fn operators() -> impl Iterator<Item = Operator> {
    rows(include_str!("../facts/operators.tsv")).map(|fields| {
        let operator = |field: &str| Some(OperatorId(number(field))).filter(|operator| operator.0 != 0);
        Operator {
            id: OperatorId(number(fields[0])),
            name: fields[1].into(),
            left: Some(TypeId(number(fields[2]))).filter(|left| left.0 != 0),
            right: TypeId(number(fields[3])),
            result: TypeId(number(fields[4])),
            function: FunctionId(number(fields[5])),
            commutator: operator(fields[6]),
            negator: operator(fields[7]),
            can_merge: fields[8] == "t",
            can_hash: fields[9] == "t",
            strategy: Strategy::of_btree(number(fields[10]) as u16),
        }
    })
}

/// All casts.
pub(super) fn casts() -> impl Iterator<Item = CastFacts> {
    rows(include_str!("../facts/casts.tsv")).map(|fields| CastFacts {
        source: TypeId(number(fields[0])),
        target: TypeId(number(fields[1])),
        function: FunctionId(number(fields[2])),
        context: match fields[3] {
            "i" => CastContext::Implicit,
            "a" => CastContext::Assignment,
            "e" => CastContext::Explicit,
            other => panic!("{other} is no context of casts"),
        },
        method: fields[4].as_bytes()[0],
    })
}

/// The functions of all types, in the order of their oids.
pub fn type_functions() -> impl Iterator<Item = TypeFunctions> {
    rows(include_str!("../facts/types.tsv")).map(|fields| {
        let function = |place: usize| FunctionId(number(fields[place]));
        TypeFunctions {
            id: TypeId(number(fields[0])),
            input: function(1),
            output: function(2),
            receive: function(3),
            send: function(4),
            modifier_input: function(5),
            modifier_output: function(6),
        }
    })
}

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().map(|line| line.split('\t').collect())
}

fn number(field: &str) -> u32 {
    field.parse().unwrap_or_else(|_| panic!("{field} is no number"))
}

fn function(fields: Vec<&'static str>) -> FunctionFacts {
    let [
        id,
        name,
        kind,
        set,
        volatility,
        strict,
        parallel,
        variadic,
        result,
        given,
        names,
        all,
        modes,
        defaults,
    ] = fields.try_into().expect("functions have 14 columns");
    let types: Vec<TypeId> = if all.is_empty() { given } else { all }
        .split_ascii_whitespace()
        .map(|field| TypeId(number(field)))
        .collect();
    let mut names = names.split_ascii_whitespace();
    let variadic = number(variadic) != 0;
    let mut parameters: Vec<Parameter> = types
        .iter()
        .enumerate()
        .map(|(place, ty)| Parameter {
            ty: *ty,
            name: names.next().filter(|name| *name != "-").map(Into::into),
            mode: match modes.as_bytes().get(place) {
                None if variadic && place + 1 == types.len() => Mode::Variadic,
                None | Some(b'i') => Mode::In,
                Some(b'o') => Mode::Out,
                Some(b'b') => Mode::InOut,
                Some(b'v') => Mode::Variadic,
                Some(b't') => Mode::Table,
                Some(other) => panic!("{other} is no mode of parameters"),
            },
            default: None,
        })
        .collect();
    let is_given = |parameter: &&mut Parameter| matches!(parameter.mode, Mode::In | Mode::InOut);
    let defaults = defaults.split('|').filter(|default| !default.is_empty());
    let last: Vec<&str> = defaults.collect();
    for (parameter, default) in parameters.iter_mut().rev().filter(is_given).zip(last.iter().rev()) {
        // A default is a literal, a string with its type.
        let text = default.split("::").next().unwrap_or(default).trim_matches('\'');
        parameter.default = Some(text.into());
    }
    FunctionFacts {
        id: FunctionId(number(id)),
        name,
        kind: kind.as_bytes()[0],
        returns_set: set == "t",
        volatility: match volatility {
            "i" => Volatility::Immutable,
            "s" => Volatility::Stable,
            "v" => Volatility::Volatile,
            other => panic!("{other} is no volatility"),
        },
        is_strict: strict == "t",
        parallel: match parallel {
            "s" => Parallel::Safe,
            "r" => Parallel::Restricted,
            "u" => Parallel::Unsafe,
            other => panic!("{other} is no place for functions"),
        },
        result: TypeId(number(result)),
        parameters: parameters.into(),
    }
}

fn signature(facts: &FunctionFacts) -> String {
    let mut text = format!("{}(", facts.name);
    let given =
        facts.parameters.iter().filter(|parameter| !matches!(parameter.mode, Mode::Out | Mode::Table));
    for (number, parameter) in given.enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(type_table::info(parameter.ty).map_or("?", |info| info.name));
    }
    text + ")"
}
