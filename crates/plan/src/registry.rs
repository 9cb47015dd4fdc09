//! The registry as the planner sees it: facts of its functions, operators included.

use crate::function::{Facts, Function, FunctionKind, Functions, Strategy, Volatility, is_polymorphic};
use firn_base::{Type, TypeId, Value};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{Call, Local, Signature};
use firn_vector::registry as vector;
use firn_vector::{Datum, Registry};

impl Functions for Registry {
    fn named(&self, name: &str, arguments: &[Type]) -> Option<Function> {
        let ids: Vec<TypeId> = arguments.iter().map(|ty| ty.id).collect();
        let exact = self.function_of(name, &ids);
        let takes = |function: &&std::sync::Arc<vector::Function>| {
            let fits = |(declared, id): (TypeId, &TypeId)| declared == *id || is_polymorphic(declared);
            let declared: Vec<TypeId> = function.arguments().map(|parameter| parameter.ty).collect();
            declared.len() == ids.len() && declared.into_iter().zip(&ids).all(fits)
        };
        let found = exact.or_else(|| self.functions_named(name).iter().find(takes))?;
        Some(planned(self, found))
    }

    fn operator(&self, symbol: &str, arguments: &[Type]) -> Option<Function> {
        let operator = match arguments {
            [right] => self.operator_of(symbol, None, right.id)?,
            [left, right] => self.operator_of(symbol, Some(left.id), right.id)?,
            _ => return None,
        };
        Some(planned(self, self.function(operator.function)?))
    }
}

/// The facts that the planner uses about a function of a registry.
pub fn planned(registry: &Registry, function: &vector::Function) -> Function {
    let operator = registry.operator_calling(function.id).and_then(|id| registry.operator(id));
    let negated = operator.and_then(|operator| registry.operator(operator.negator?));
    let strategy =
        match (operator.and_then(|operator| operator.strategy), negated.map(|other| other.strategy)) {
            (Some(vector::Strategy::Less), _) => Some(Strategy::Less),
            (Some(vector::Strategy::LessEqual), _) => Some(Strategy::LessOrEqual),
            (Some(vector::Strategy::Equal), _) => Some(Strategy::Equal),
            (Some(vector::Strategy::GreaterEqual), _) => Some(Strategy::GreaterOrEqual),
            (Some(vector::Strategy::Greater), _) => Some(Strategy::Greater),
            (None, Some(Some(vector::Strategy::Equal))) => Some(Strategy::NotEqual),
            _ => None,
        };
    let kind = match function.body {
        vector::Body::Scalar(_) => FunctionKind::Scalar,
        vector::Body::Set(_) => FunctionKind::Set,
        vector::Body::Aggregate(_) => FunctionKind::Aggregate,
        vector::Body::Window(_) => FunctionKind::Window,
    };
    let over_nothing = over_nothing(function);
    Function::new(Facts {
        oid: function.id.0,
        name: (&*function.name).into(),
        operator: operator.map(|operator| (&*operator.name).into()),
        kind,
        arguments: function.arguments().map(|parameter| parameter.ty).collect(),
        variadic: function.variadic().is_some(),
        takes_variadic_array: false,
        result: function.result,
        volatility: match function.volatility {
            vector::Volatility::Immutable => Volatility::Immutable,
            vector::Volatility::Stable => Volatility::Stable,
            vector::Volatility::Volatile => Volatility::Volatile,
        },
        strict: function.is_strict && kind == FunctionKind::Scalar,
        may_be_null: function.may_be_null && !matches!(over_nothing, Some(Value::BigInt(_))),
        can_fail: function.can_fail,
        cannot_fail: function.cannot_fail,
        strategy,
        over_nothing,
    })
}

/// An aggregate's value over no rows: what a state that has seen none gives.
fn over_nothing(function: &vector::Function) -> Option<Value> {
    let vector::Body::Aggregate(body) = &function.body else { return None };
    let types: Vec<Type> = function.arguments().map(|parameter| Type::new(parameter.ty)).collect();
    let is_any = |ty: &Type| ty.id == TypeId::ANY;
    // What the arguments of count("any") are does not matter.
    let stands_for = |ty: &Type| if is_any(ty) { Type::new(TypeId::BOOL) } else { *ty };
    let types: Vec<Type> = types.iter().map(stands_for).collect();
    let result = Type::new(function.result);
    let signature = Signature {
        representations: types.iter().map(|ty| ty.representation()).collect::<Option<_>>()?,
        arguments: types.into(),
        result,
        representation: result.representation()?,
        has_variadic_array: false,
    };
    let (context, mut local) = (detached(), Local::default());
    let mut call = Call::new(&context, &signature, &mut local);
    let mut states = body.kernel.states();
    states.resize(&signature, 1);
    let mut out = Builder::new(signature.representation);
    states.finish(&mut call, 0..1, &mut out).ok()?;
    match out.finish().datum(0) {
        Datum::Null => Some(Value::Null),
        Datum::Int64(value) if result.id == TypeId::INT8 => Some(Value::BigInt(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;

    #[test]
    fn operators_bring_what_they_mean() {
        let built_in = Registry::built_in();
        let registry: &dyn Functions = &built_in;
        let int4 = Type::new(TypeId::INT4);
        let plus = registry.operator("+", &[int4, int4]).expect("integers have a sum");
        assert_eq!(registry.named("int4pl", &[int4, int4]), Some(plus.clone()));
        assert_eq!(plus.operator.as_deref(), Some("+"));
        assert!(plus.strict && !plus.can_fail && plus.strategy.is_none(), "overflow does not count");
        assert!(!plus.may_be_null, "a sum of numbers is a number");
        let int4 = TypeId::INT4;
        for (name, arguments, may_be_null) in [
            ("int4", &[TypeId::FLOAT8][..], false),
            ("lower", &[TypeId::TEXT], false),
            ("scale", &[TypeId::NUMERIC], true),
            ("count", &[], false),
            ("sum", &[int4], true),
            ("row_number", &[], false),
            ("lag", &[TypeId::ANYELEMENT], true),
        ] {
            let function = built_in.function_of(name, arguments).expect("it is in the registry");
            assert_eq!(planned(&built_in, function).may_be_null, may_be_null, "{name}");
        }
        for operator in built_in.operators() {
            let Some(left) = operator.left else { continue };
            let types = [Type::new(left), Type::new(operator.right)];
            let planned = registry.operator(&operator.name, &types).expect("it is listed");
            assert_eq!(
                planned.is_equality(),
                operator.strategy == Some(vector::Strategy::Equal),
                "{operator:?}"
            );
        }
    }
    #[test]
    fn constants_decide_whether_a_call_can_fail() {
        let built_in = Registry::built_in();
        let int4 = Type::new(TypeId::INT4);
        let divide = Functions::operator(&built_in, "/", &[int4, int4]).expect("integers have a quotient");
        let call = |arguments: Vec<Scalar>| Scalar::call(divide.clone(), true, arguments).can_fail();
        let constant = |value| Scalar::Constant(int4, value);
        let (unknown, two, zero) =
            (Scalar::Parameter(1, int4), constant(Value::Integer(2)), constant(Value::Integer(0)));
        assert!(!call(vec![unknown.clone(), two.clone()]));
        assert!(!call(vec![unknown.clone(), two.clone(), two.clone()]));
        assert!(call(vec![unknown.clone(), zero.clone()]));
        assert!(call(vec![unknown.clone(), two.clone(), zero]));
        assert!(call(vec![two.clone(), unknown.clone()]));
        assert!(call(vec![unknown, constant(Value::Null)]));
    }
}
