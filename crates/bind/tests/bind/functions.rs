//! A registry of all of PostgreSQL's functions: those that are built in, and the others without a body.

use firn_base::{Error, Representation, Result, TypeId};
use firn_vector::aggregate::{AggregateKernel, States};
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Errors, Kernel, Set, SetKernel, Signature};
use firn_vector::registry::{
    AggregateBody, AggregateKind, Body, Function, FunctionId, Kernels, Mode, Parallel, Parameter,
    RegistryBuilder, Volatility,
};
use firn_vector::window::{Partition, Reach, WindowKernel};
use firn_vector::{Datum, Registry, Rows, Slot, Vector};
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const FUNCTIONS: &str = include_str!("../../../vector/src/facts/functions.tsv");
const AGGREGATES: &str = include_str!("../../../vector/src/facts/aggregates.tsv");

/// All functions.
pub fn registry() -> Registry {
    let built_in = Registry::built_in();
    let mut builder = RegistryBuilder::built_in();
    let aggregates: HashMap<&str, (&str, usize)> = AGGREGATES
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[0], (fields[1], fields[2].parse().expect("it is a number")))
        })
        .collect();
    for line in FUNCTIONS.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let id = FunctionId(fields[0].parse().expect("it is a number"));
        if built_in.function(id).is_none() {
            builder.add(function(id, &fields, &aggregates));
        }
    }
    builder.finish()
}

fn function(id: FunctionId, fields: &[&str], aggregates: &HashMap<&str, (&str, usize)>) -> Function {
    let types = if fields[11].is_empty() { fields[9] } else { fields[11] };
    let types: Vec<TypeId> =
        types.split_whitespace().map(|id| TypeId(id.parse().expect("it is a number"))).collect();
    let is_variadic = fields[7] != "0";
    let mut names = fields[10].split_whitespace();
    let mut parameters: Vec<Parameter> = types
        .iter()
        .enumerate()
        .map(|(place, ty)| Parameter {
            ty: *ty,
            name: names.next().filter(|name| *name != "-").map(Into::into),
            mode: match fields[12].as_bytes().get(place) {
                None if is_variadic && place + 1 == types.len() => Mode::Variadic,
                None | Some(b'i') => Mode::In,
                Some(b'o') => Mode::Out,
                Some(b'b') => Mode::InOut,
                Some(b'v') => Mode::Variadic,
                _ => Mode::Table,
            },
            default: None,
        })
        .collect();
    let defaults: Vec<&str> = fields[13].split('|').filter(|default| !default.is_empty()).collect();
    let given = parameters.iter_mut().rev().filter(|one| matches!(one.mode, Mode::In | Mode::InOut));
    for (parameter, default) in given.zip(defaults.iter().rev()) {
        let text = default.split("::").next().unwrap_or(default).trim_matches('\'');
        parameter.default = Some(text.into());
    }
    let body = match (fields[2], fields[3]) {
        ("a", _) => {
            let (kind, direct) = aggregates[fields[0]];
            Body::Aggregate(AggregateBody {
                kernel: Arc::new(NoBody),
                kind: match kind {
                    "n" => AggregateKind::Normal,
                    "o" => AggregateKind::OrderedSet,
                    _ => AggregateKind::HypotheticalSet,
                },
                direct,
                sort_operator: None,
            })
        }
        ("w", _) => Body::Window(Arc::new(NoBody)),
        (_, "t") => Body::Set(Arc::new(NoBody)),
        _ => Body::Scalar(Kernels { general: Arc::new(NoBody), special: Vec::new() }),
    };
    Function {
        id,
        schema: None,
        name: fields[1].into(),
        parameters: parameters.into(),
        result: TypeId(fields[8].parse().expect("it is a number")),
        volatility: match fields[4] {
            "i" => Volatility::Immutable,
            "s" => Volatility::Stable,
            _ => Volatility::Volatile,
        },
        is_strict: fields[5] == "t",
        parallel: Parallel::Safe,
        may_be_null: true,
        can_fail: true,
        cannot_fail: None,
        body,
    }
}

/// The body of a function that tests bind and do not call.
struct NoBody;

fn none<T>() -> Result<T> {
    Err(Error::unsupported("a function without a body"))
}

impl Kernel for NoBody {
    fn can_fail(&self) -> bool {
        true
    }

    fn may_be_null(&self) -> bool {
        true
    }

    fn takes_null(&self, _: usize) -> bool {
        false
    }

    fn accepts(&self, _: &[Representation], _: Representation) -> bool {
        true
    }

    fn vectors(&self, _: &mut Call<'_>, _: &[Vector], _: Rows<'_>, _: Option<&mut Errors>) -> Result<Vector> {
        none()
    }

    fn cells(&self, _: &mut Call<'_>, _: &[Datum<'_>], _: &mut Slot) -> Result<()> {
        none()
    }
}

impl SetKernel for NoBody {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, _: &mut Call<'_>, _: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        none()
    }
}

impl WindowKernel for NoBody {
    fn accepts(&self, _: Representation) -> bool {
        true
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        None
    }

    fn start(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn rows(
        &self,
        _: &mut Call<'_>,
        _: &mut (dyn Any + Send),
        _: &mut dyn Partition,
        _: Range<u64>,
        _: &mut Builder,
    ) -> Result<()> {
        none()
    }
}

impl AggregateKernel for NoBody {
    fn accepts(&self, _: &[Representation], _: Representation) -> bool {
        true
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn states(&self) -> Box<dyn States> {
        Box::new(NoBody)
    }
}

impl States for NoBody {
    fn len(&self) -> usize {
        1
    }

    fn resize(&mut self, _: &Signature, _: usize) {}

    fn add(&mut self, _: &mut Call<'_>, _: &[u32], _: &[Vector], _: Rows<'_>) -> Result<()> {
        none()
    }

    fn add_to(&mut self, _: &mut Call<'_>, _: usize, _: &[Vector], _: Rows<'_>) -> Result<()> {
        none()
    }

    fn remove_from(&mut self, _: &mut Call<'_>, _: usize, _: &[Vector], _: Rows<'_>) -> Result<bool> {
        none()
    }

    fn merge(&mut self, _: &mut Call<'_>, _: &mut dyn States, _: &[u32]) -> Result<()> {
        none()
    }

    fn split(&mut self, _: &[u8], sizes: &[usize]) -> Vec<Box<dyn States>> {
        sizes.iter().map(|_| Box::new(NoBody) as Box<dyn States>).collect()
    }

    fn finish(&self, _: &mut Call<'_>, _: Range<usize>, _: &mut Builder) -> Result<()> {
        none()
    }

    fn memory(&self) -> usize {
        0
    }

    fn write(&self, _: usize, _: &mut Vec<u8>) {}

    fn read(&mut self, _: &Signature, _: &mut &[u8]) {}

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
