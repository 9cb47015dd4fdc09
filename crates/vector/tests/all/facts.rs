//! What the registry says of functions, against what calls with sample values do: a function that is said never to give NULL, or never
//! to fail, does not.

use super::style;
use firn_base::{Error, SqlState, Type, TypeId, Value, text};
use firn_vector::context::detached;
use firn_vector::kernel::{CallSite, Signature};
use firn_vector::registry::{Body, Function, Volatility};
use firn_vector::{Context, Registry, Slot};

/// Values of a type by its name in `pg_type`, with those at which functions fail.
fn samples(name: &str) -> &'static [&'static str] {
    match name {
        "bool" => &["t", "f"],
        "int2" => &["0", "1", "-1", "2", "-32768"],
        "int4" => &["0", "1", "-1", "2", "7", "-2147483648"],
        "int8" => &["0", "1", "-1", "3", "-9223372036854775808", "9223372036854775807"],
        "oid" | "xid" | "cid" => &["0", "23", "4294967295"],
        "float4" => &["0", "1.5", "-2", "NaN", "Infinity"],
        "float8" => &["0", "1.5", "-2", "2", "NaN", "-Infinity"],
        "numeric" => {
            &["0", "2.50", "-3", "1e-20", "NaN", "Infinity", "12345678901234567890123456789012345678"]
        }
        "text" | "varchar" | "bpchar" | "name" | "cstring" => {
            &["", "a", "%", "a\\", "day", "millennium", "epoch", "Hällo", "12", "UTC", "hex"]
        }
        "char" => &["a", ""],
        "bytea" => &["\\x", "\\x00ff"],
        "date" => &["2024-02-29", "4714-11-24 BC", "5874897-12-31"],
        "time" => &["00:00:00", "23:59:59.999999"],
        "timestamp" => &["2024-02-29 12:34:56.789", "4714-11-24 00:00:00 BC", "294246-12-31 23:59:59"],
        "timestamptz" => &["2024-02-29 12:34:56+00", "4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59+00"],
        "interval" => &["00:00:00", "1 mon -2 days 03:00", "-2147483648 days", "1 day"],
        "uuid" => &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
        "_int4" => &["{}", "{1,2}", "{NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}"],
        "_text" => &["{}", "{a,NULL}"],
        "_numeric" => &["{1.5}"],
        "_oid" => &["{1}"],
        _ => &[],
    }
}

/// The type that an argument or a result is called with: a declared one, or one that a polymorphic type may stand for.
fn concrete(id: TypeId) -> Type {
    Type::new(match id {
        TypeId::ANY
        | TypeId::ANYELEMENT
        | TypeId::ANYNONARRAY
        | TypeId::ANYCOMPATIBLE
        | TypeId::ANYCOMPATIBLENONARRAY => TypeId::INT4,
        TypeId::ANYARRAY | TypeId::ANYCOMPATIBLEARRAY => TypeId::INT4_ARRAY,
        other => other,
    })
}

fn sample_values(ty: Type) -> Vec<Value> {
    let name = firn_base::type_table::info(ty.id).map_or("", |info| info.name);
    let read = |text: &&str| match ty.representation() {
        Some(firn_base::Representation::Text) => Value::Text((*text).to_owned()),
        _ => text::parse_any(text, ty, &style()).unwrap_or_else(|error| panic!("{text} of {ty}: {error:?}")),
    };
    samples(name).iter().map(read).collect()
}

/// All combinations of sample values, or some if there are many, always the same ones.
fn combinations(values: &[Vec<Value>]) -> Vec<Vec<Value>> {
    const MOST: usize = 400;
    let all: usize = values.iter().map(Vec::len).product();
    let step = if all > MOST { (all / MOST) | 1 } else { 1 };
    let nth = |mut number: usize| {
        let pick = |list: &Vec<Value>| {
            let value = list[number % list.len()].clone();
            number /= list.len();
            value
        };
        values.iter().map(pick).collect()
    };
    (0..all).step_by(step).map(nth).collect()
}

struct Calls {
    site: CallSite,
    types: Vec<Type>,
    result: Type,
}

impl Calls {
    fn of(function: &Function, types: Vec<Type>) -> Option<Calls> {
        let result = concrete(function.result);
        let site = function.call_site(Signature {
            representations: types.iter().map(|ty| ty.representation()).collect::<Option<_>>()?,
            arguments: types.clone().into(),
            result,
            representation: result.representation()?,
            has_variadic_array: false,
        });
        Some(Calls { site, types, result })
    }

    fn call(&mut self, arguments: &[Value]) -> Result<Value, Error> {
        let style = style();
        let context = Context { style: &style, ..detached() };
        let slots: Vec<Slot> = arguments
            .iter()
            .zip(&self.types)
            .map(|(value, ty)| {
                let mut slot = Slot::new();
                slot.set_value(value, *ty);
                slot
            })
            .collect();
        let datums: Vec<_> = slots.iter().map(Slot::get).collect();
        let mut out = Slot::new();
        self.site.cells(&context, &datums, &mut out)?;
        Ok(out.get().to_value(self.result))
    }
}

#[test]
fn functions_that_are_said_not_to_fail_or_not_to_be_null_are_not() {
    let registry = Registry::built_in();
    let mut functions: Vec<_> = registry.functions().collect();
    functions.sort_by_key(|function| function.id);
    let (mut wrong, mut called, mut ruled) = (Vec::new(), 0, 0);
    for function in functions {
        let is_checked = !function.may_be_null || !function.can_fail || function.cannot_fail.is_some();
        if !matches!(function.body, Body::Scalar(_))
            || !is_checked
            || function.volatility == Volatility::Volatile
        {
            continue;
        }
        let types: Vec<Type> = function.arguments().map(|parameter| concrete(parameter.ty)).collect();
        let mut values: Vec<Vec<Value>> = types.iter().map(|ty| sample_values(*ty)).collect();
        if values.iter().any(Vec::is_empty) {
            continue;
        }
        if !function.is_strict && !function.may_be_null {
            values.iter_mut().for_each(|values| values.push(Value::Null));
        }
        let Some(mut calls) = Calls::of(function, types) else { continue };
        called += 1;
        for arguments in combinations(&values) {
            let is_ruled = function.cannot_fail.is_some() && {
                // Any set of the arguments may be constants.
                (1..1 << arguments.len()).any(|set: u32| {
                    let constants: Vec<Option<&Value>> = arguments
                        .iter()
                        .enumerate()
                        .map(|(number, value)| {
                            (set >> number & 1 == 1 && *value != Value::Null).then_some(value)
                        })
                        .collect();
                    !function.can_fail_with(&constants)
                })
            };
            ruled += usize::from(is_ruled);
            match calls.call(&arguments) {
                Ok(Value::Null) if !function.may_be_null => {
                    wrong.push(format!("{function:?} of {arguments:?} is NULL"));
                }
                Err(error)
                    if (!function.can_fail || is_ruled)
                        && error.state() != SqlState::NUMERIC_VALUE_OUT_OF_RANGE =>
                {
                    wrong.push(format!("{function:?} of {arguments:?} fails: {error:?}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(called > 700, "only {called} functions have been called");
    assert!(ruled > 500, "only {ruled} calls had constants that keep them from failing");
}
