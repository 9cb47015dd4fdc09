//! The registry as folding sees it: calls and casts of constants, evaluated while a statement is planned.
//!
//! Only what is IMMUTABLE is evaluated, so the context's time, zone and session have no influence on a plan that is kept. The
//! context gives memory and the flag that cancels.

use crate::function::{Function, is_polymorphic};
use crate::rewrite::Evaluator;
use crate::scalar::Cast;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, Type, TypeId, Value};
use firn_vector::kernel::Signature;
use firn_vector::registry::{CastMethod, Function as Entry, Volatility};
use firn_vector::{Context, Datum, FunctionId, Registry, Slot};

/// Evaluates by the functions of a registry.
pub struct RegistryEvaluator<'a> {
    registry: &'a Registry,
    context: &'a Context<'a>,
}

impl<'a> RegistryEvaluator<'a> {
    /// An evaluator that calls functions in a context.
    pub fn new(registry: &'a Registry, context: &'a Context<'a>) -> RegistryEvaluator<'a> {
        RegistryEvaluator { registry, context }
    }

    fn entry(&self, id: FunctionId) -> Option<&Arc<Entry>> {
        self.registry.function(id)
    }

    /// Calls a function over constants of the types that the call has.
    fn apply(&self, entry: &Entry, arguments: &[(Type, Value)], result: Type) -> Result<Value> {
        self.apply_variadic(entry, arguments, result, false)
    }

    /// As [`Self::apply`]; the last argument may be the array of a variadic one.
    fn apply_variadic(
        &self,
        entry: &Entry,
        arguments: &[(Type, Value)],
        result: Type,
        has_variadic_array: bool,
    ) -> Result<Value> {
        let representation =
            |ty: Type| ty.representation().filter(|found| !matches!(found, Representation::Record));
        let types: Box<[Type]> = arguments.iter().map(|(ty, _)| *ty).collect();
        let representations: Option<Vec<Representation>> =
            types.iter().map(|ty| representation(*ty)).collect();
        let known =
            representations.filter(|_| representation(result).is_some() && !is_polymorphic(result.id));
        let Some(representations) = known.filter(|_| entry.volatility == Volatility::Immutable) else {
            return Err(stays());
        };
        let signature = Signature {
            representation: entry.representation(&representations, result),
            representations: representations.into(),
            arguments: types,
            result,
            has_variadic_array,
        };
        let mut site = entry.call_site(signature);
        let mut slots: Vec<Slot> = arguments.iter().map(|_| Slot::new()).collect();
        for (slot, (ty, value)) in slots.iter_mut().zip(arguments) {
            slot.set_value(value, *ty);
        }
        let data: Vec<Datum<'_>> = slots.iter().map(Slot::get).collect();
        let mut out = Slot::new();
        site.cells(self.context, &data, &mut out)?;
        Ok(out.get().to_value(result))
    }

    fn cast_by(&self, method: &CastMethod, cast: &Cast, source: Type, value: Value) -> Result<Value> {
        match method {
            CastMethod::Relabel if source.representation() == cast.ty.representation() => Ok(value),
            CastMethod::Function(id) => {
                let entry = self.entry(*id).ok_or_else(stays)?;
                let mut arguments = vec![(source, value)];
                let further = [
                    (Type::new(TypeId::INT4), Value::Integer(cast.ty.modifier)),
                    (Type::new(TypeId::BOOL), Value::Boolean(!cast.implicit)),
                ];
                arguments.extend(further.into_iter().take(entry.arguments().count().saturating_sub(1)));
                self.apply(entry, &arguments, cast.ty)
            }
            CastMethod::InputOutput { output, input } => {
                let (output, input) =
                    (self.entry(*output).ok_or_else(stays)?, self.entry(*input).ok_or_else(stays)?);
                let text = Type::new(TypeId::CSTRING);
                let mut arguments = vec![(text, self.apply(output, &[(source, value)], text)?)];
                if input.arguments().count() > 1 {
                    arguments.push((Type::new(TypeId::OID), Value::Oid(input_parameter(cast.ty).0)));
                    arguments.push((Type::new(TypeId::INT4), Value::Integer(cast.ty.modifier)));
                }
                self.apply(input, &arguments, cast.ty)
            }
            // Casts of elements are left to the execution, and so is what changes how a value lies.
            CastMethod::Relabel | CastMethod::Elements(_) => Err(stays()),
        }
    }
}

/// Of what is not evaluated while planning. Nobody sees this error: the expression stays.
fn stays() -> Error {
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, "the expression is evaluated by the execution")
}

impl Evaluator for RegistryEvaluator<'_> {
    fn call(&self, function: &Function, arguments: &[(Type, Value)], result: Type) -> Result<Value> {
        let entry = self.entry(FunctionId(function.oid)).ok_or_else(stays)?;
        self.apply_variadic(entry, arguments, result, function.takes_variadic_array)
    }

    fn cast(&self, cast: &Cast, source: Type, value: Value) -> Result<Value> {
        let method = match &cast.function {
            Some(function) => CastMethod::Function(FunctionId(function.oid)),
            None if source.id == cast.ty.id => self.registry.refit(source, cast.ty),
            None => self.registry.cast(source.id, cast.ty.id).ok_or_else(stays)?.method,
        };
        self.cast_by(&method, cast, source, value)
    }
}

/// The type that the input function of a type is called with: that of an array's elements, else the type itself, as
/// PostgreSQL's `getTypeIOParam` has it.
pub fn input_parameter(ty: Type) -> TypeId {
    let is_array = ty.info().is_some_and(|info| info.is_array());
    ty.element().filter(|_| is_array).map_or(ty.id, |element| element.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Functions;
    use crate::rewrite::fold::fold_alone;
    use crate::scalar::Scalar;
    use firn_vector::context::detached;

    fn folded(mut scalar: Scalar) -> Scalar {
        let registry = Registry::built_in();
        fold_alone(&mut scalar, &RegistryEvaluator::new(&registry, &detached()));
        scalar
    }

    fn call(symbol: &str, arguments: Vec<(TypeId, Value)>) -> Scalar {
        let types: Vec<Type> = arguments.iter().map(|(ty, _)| Type::new(*ty)).collect();
        let functions: &dyn Functions = &Registry::built_in();
        let function = match functions.operator(symbol, &types[..types.len().min(2)]) {
            Some(function) => function,
            None => functions.named(symbol, &types).expect("the registry has it"),
        };
        let arguments = arguments.into_iter().map(|(ty, value)| Scalar::Constant(Type::new(ty), value));
        Scalar::call(function, true, arguments.collect())
    }

    fn cast(ty: Type, source: TypeId, value: Value, implicit: bool) -> Scalar {
        let registry = Registry::built_in();
        let function = match registry.cast(source, ty.id).map(|cast| cast.method) {
            Some(CastMethod::Function(id)) => {
                registry.function(id).map(|entry| crate::registry::planned(&registry, entry))
            }
            _ => None,
        };
        let argument = Scalar::Constant(Type::new(source), value);
        Scalar::Cast(Box::new(Cast { argument, ty, function, implicit, can_fail: true }))
    }

    #[test]
    fn immutable_calls_become_constants_and_chains_as_well() {
        let integer = |value| (TypeId::INT4, Value::Integer(value));
        let expected = Scalar::Constant(Type::new(TypeId::INT4), Value::Integer(6));
        assert_eq!(folded(call("+", vec![integer(1), integer(2), integer(3)])), expected);
        let text = |value: &str| (TypeId::TEXT, Value::Text(value.to_owned()));
        let expected = Scalar::Constant(Type::new(TypeId::TEXT), Value::Text("ab".to_owned()));
        assert_eq!(folded(call("||", vec![text("a"), text("b")])), expected);
    }

    #[test]
    fn what_raises_an_error_stays_and_so_does_what_is_not_immutable() {
        let division = call("/", vec![(TypeId::INT4, Value::Integer(1)), (TypeId::INT4, Value::Integer(0))]);
        assert_eq!(folded(division.clone()), division);
        let now = call("now", Vec::new());
        assert_eq!(folded(now.clone()), now);
        let text = cast(Type::new(TypeId::INT4), TypeId::TEXT, Value::Text("x".to_owned()), false);
        assert_eq!(folded(text.clone()), text);
    }

    #[test]
    fn casts_of_constants_are_folded_by_function_and_by_text() {
        let int4 = Type::new(TypeId::INT4);
        let text = cast(int4, TypeId::TEXT, Value::Text(" 12 ".to_owned()), false);
        assert_eq!(folded(text), Scalar::Constant(int4, Value::Integer(12)));
        let wide = cast(int4, TypeId::INT8, Value::BigInt(7), true);
        assert_eq!(folded(wide), Scalar::Constant(int4, Value::Integer(7)));
        let text = Type::new(TypeId::TEXT);
        let number = cast(text, TypeId::INT4, Value::Integer(-3), false);
        assert_eq!(folded(number), Scalar::Constant(text, Value::Text("-3".to_owned())));
    }
}
