//! Handles of functions: the registry's entries as plans hold them.

use firn_base::TypeId;
use firn_base::Value;
use firn_plan::Function;
use firn_plan::function::{Facts, FunctionKind, Strategy, Volatility};
use firn_vector::Registry;
use firn_vector::registry::{self, Body};
use std::collections::HashMap;

/// Handles that have been made, by oid.
#[derive(Default)]
pub struct Handles(HashMap<u32, Function>);

impl Handles {
    /// The handle of a function.
    pub fn of(&mut self, registry: &Registry, function: &registry::Function) -> Function {
        let make = || Function::new(facts(registry, function));
        self.0.entry(function.id.0).or_insert_with(make).clone()
    }
}

fn facts(registry: &Registry, function: &registry::Function) -> Facts {
    let operator = registry.operator_calling(function.id).and_then(|id| registry.operator(id));
    let arguments: Box<[TypeId]> = function.arguments().map(|parameter| parameter.ty).collect();
    let kind = match &function.body {
        Body::Scalar(_) => FunctionKind::Scalar,
        Body::Set(_) => FunctionKind::Set,
        Body::Aggregate(_) => FunctionKind::Aggregate,
        Body::Window(_) => FunctionKind::Window,
    };
    let counts = kind == FunctionKind::Aggregate && COUNTS.contains(&function.id.0);
    let order = operator.and_then(|operator| {
        let negated = |id| {
            registry.operator(id).is_some_and(|negator| negator.strategy == Some(registry::Strategy::Equal))
        };
        match operator.strategy {
            Some(registry::Strategy::Less) => Some(Strategy::Less),
            Some(registry::Strategy::LessEqual) => Some(Strategy::LessOrEqual),
            Some(registry::Strategy::Equal) => Some(Strategy::Equal),
            Some(registry::Strategy::GreaterEqual) => Some(Strategy::GreaterOrEqual),
            Some(registry::Strategy::Greater) => Some(Strategy::Greater),
            None => operator.negator.filter(|id| negated(*id)).map(|_| Strategy::NotEqual),
        }
    });
    Facts {
        oid: function.id.0,
        name: (&*function.name).into(),
        operator: operator.map(|operator| (&*operator.name).into()),
        kind,
        variadic: function.variadic() == Some(TypeId::ANY),
        arguments,
        result: function.result,
        volatility: match function.volatility {
            registry::Volatility::Immutable => Volatility::Immutable,
            registry::Volatility::Stable => Volatility::Stable,
            registry::Volatility::Volatile => Volatility::Volatile,
        },
        strict: function.is_strict,
        // Comparisons and arithmetic are NULL only of NULL; of other functions nothing is known.
        may_be_null: match kind {
            FunctionKind::Aggregate => !counts,
            FunctionKind::Scalar => !function.is_strict || operator.is_none(),
            FunctionKind::Set | FunctionKind::Window => true,
        },
        can_fail: function.can_fail,
        strategy: order,
        over_nothing: counts.then_some(Value::BigInt(0)),
    }
}

/// `count(*)` and `count("any")`.
const COUNTS: [u32; 2] = [2803, 2147];
