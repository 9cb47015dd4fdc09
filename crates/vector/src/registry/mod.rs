//! The registry: the one list of functions, operators, casts, aggregates and window functions.
//!
//! It is a value. [`RegistryBuilder::built_in`] begins with what this crate has; `sql` adds functions that need the catalog,
//! and others may add theirs. Which overload a call means is the binder's business, which gets from here all that it asks.

pub mod cast;
mod facts;
pub mod function;
pub mod operator;

use crate::aggregate::{Aggregate, aggregate};
use crate::kernel::scalar::{hot, scalar};
use crate::kernel::{Arguments, Call, Kernel, Outcome, SetKernel};
use crate::window::{WindowFunction, window};
use facts::FunctionFacts;
use firn_base::sync::Arc;
use firn_base::{Representation, Type, TypeId, Value};
use std::collections::{HashMap, HashSet};

pub use cast::{Cast, CastContext, CastMethod};
pub use facts::{TypeFunctions, type_functions};
pub use function::{
    AggregateBody, AggregateKind, Body, CannotFail, Function, FunctionId, Kernels, Mode, Parallel, Parameter,
    Special, Volatility,
};
pub use operator::{Operator, OperatorId, Strategy};

/// All functions, operators and casts.
pub struct Registry {
    functions: HashMap<FunctionId, Arc<Function>>,
    by_name: HashMap<Arc<str>, Vec<Arc<Function>>>,
    operators: HashMap<OperatorId, Arc<Operator>>,
    operators_by_name: HashMap<Arc<str>, Vec<Arc<Operator>>>,
    operators_by_function: HashMap<FunctionId, OperatorId>,
    orders: HashMap<(TypeId, TypeId, Strategy), OperatorId>,
    casts: HashMap<(TypeId, TypeId), Cast>,
    inputs: HashMap<TypeId, FunctionId>,
    outputs: HashMap<TypeId, FunctionId>,
    /// The functions that may ask for the session.
    asking: HashSet<FunctionId>,
}

impl Registry {
    /// What this crate has.
    pub fn built_in() -> Registry {
        RegistryBuilder::built_in().finish()
    }

    /// A function by its oid.
    pub fn function(&self, id: FunctionId) -> Option<&Arc<Function>> {
        self.functions.get(&id)
    }

    /// Whether calls of a function may ask for the session, its catalog or any of its settings, beyond the style of texts and the names
    /// of objects: those from outside this crate may, and few of this crate.
    pub fn may_ask_session(&self, id: FunctionId) -> bool {
        self.asking.contains(&id)
    }

    /// All functions of a name, in the order of their oids.
    pub fn functions_named(&self, name: &str) -> &[Arc<Function>] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The function of a name that takes exactly these types.
    pub fn function_of(&self, name: &str, arguments: &[TypeId]) -> Option<&Arc<Function>> {
        self.functions_named(name)
            .iter()
            .find(|function| function.arguments().map(|parameter| parameter.ty).eq(arguments.iter().copied()))
    }

    /// An operator by its oid.
    pub fn operator(&self, id: OperatorId) -> Option<&Arc<Operator>> {
        self.operators.get(&id)
    }

    /// All operators of a name, prefix operators among them, in the order of their oids.
    pub fn operators_named(&self, name: &str) -> &[Arc<Operator>] {
        self.operators_by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The operator of a name between exactly these types.
    pub fn operator_of(&self, name: &str, left: Option<TypeId>, right: TypeId) -> Option<&Arc<Operator>> {
        self.operators_named(name).iter().find(|operator| (operator.left, operator.right) == (left, right))
    }

    /// The operator that calls a function, the one with the smallest oid if there are several.
    pub fn operator_calling(&self, function: FunctionId) -> Option<OperatorId> {
        self.operators_by_function.get(&function).copied()
    }

    /// The operator that compares values of these types in their default order.
    pub fn order(&self, left: TypeId, right: TypeId, strategy: Strategy) -> Option<OperatorId> {
        self.orders.get(&(left, right, strategy)).copied()
    }

    /// The function that reads values of a type from text.
    pub fn input(&self, ty: TypeId) -> Option<FunctionId> {
        self.inputs.get(&ty).copied()
    }

    /// The function that writes values of a type as text.
    pub fn output(&self, ty: TypeId) -> Option<FunctionId> {
        self.outputs.get(&ty).copied()
    }

    /// All functions, in no order.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.functions.values()
    }

    /// All operators, in no order.
    pub fn operators(&self) -> impl Iterator<Item = &Arc<Operator>> {
        self.operators.values()
    }

    /// The casts of `pg_cast`, in no order.
    pub fn casts(&self) -> impl Iterator<Item = &Cast> {
        self.casts.values()
    }

    fn listed_cast(&self, source: TypeId, target: TypeId) -> Option<&Cast> {
        self.casts.get(&(source, target))
    }
}

/// A function that PostgreSQL has and a registry in the making has not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its signature, as the functions that add one take it.
    pub signature: String,
    /// How many arguments it takes.
    pub arguments: usize,
    /// Whether it is NULL where an argument is.
    pub is_strict: bool,
}

/// A registry in the making.
#[derive(Default)]
pub struct RegistryBuilder {
    functions: Vec<Function>,
    operators: Vec<Operator>,
    /// How many of the functions are of this crate.
    own: usize,
    /// Those of them that ask for the session.
    asking: Vec<FunctionId>,
}

impl RegistryBuilder {
    /// Says of functions that have been added that their calls ask for settings of the session by name.
    pub(crate) fn asks_session(&mut self, signatures: &str) -> &mut RegistryBuilder {
        let ids = signatures.split_ascii_whitespace().map(|signature| known(signature, b'f', false).id);
        self.asking.extend(ids);
        self
    }

    /// Whatever is added from now on is from outside this crate.
    pub(crate) fn end_own(&mut self) {
        self.own = self.functions.len();
    }

    /// Adds a scalar function that PostgreSQL has: a function over the values of one row. `signatures` names it as
    /// `regprocedure` does with the names of `pg_type`, and others that do the same, with blanks between them.
    pub fn scalar<A: Arguments, O: Outcome + 'static>(
        &mut self,
        signatures: &str,
        call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
    ) -> &mut RegistryBuilder {
        self.kernel(signatures, Arc::new(scalar::<A, O>(call)))
    }

    /// As [`RegistryBuilder::scalar`], for the few functions that get a loop of their own, in which they are inlined.
    pub fn hot<A: Arguments, O: Outcome + 'static>(
        &mut self,
        signatures: &str,
        call: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) -> O + Send + Sync + 'static,
    ) -> &mut RegistryBuilder {
        self.kernel(signatures, Arc::new(hot::<A, O>(call)))
    }

    /// Adds a scalar function that PostgreSQL has, with a kernel that was made before.
    pub fn kernel(&mut self, signatures: &str, kernel: Arc<dyn Kernel>) -> &mut RegistryBuilder {
        for signature in signatures.split_ascii_whitespace() {
            let facts = known(signature, b'f', false);
            check_kernel(signature, facts, &*kernel);
            let body = Body::Scalar(Kernels { general: kernel.clone(), special: Vec::new() });
            let given = facts
                .parameters
                .iter()
                .filter(|parameter| !matches!(parameter.mode, Mode::Out | Mode::Table));
            let takes_all = (0..given.count()).all(|number| kernel.takes_null(number));
            let may_be_null = kernel.may_be_null() || !facts.is_strict && !takes_all;
            self.functions.push(Function { may_be_null, ..of_facts(facts, kernel.can_fail(), body) });
        }
        self
    }

    /// Says of functions that have been added with which constant arguments they raise no error.
    pub fn cannot_fail(
        &mut self,
        signatures: &str,
        rule: fn(&[Option<&Value>]) -> bool,
    ) -> &mut RegistryBuilder {
        for signature in signatures.split_ascii_whitespace() {
            let id = known(signature, b'f', false).id;
            let function = self.functions.iter_mut().rev().find(|function| function.id == id);
            let function = function.unwrap_or_else(|| panic!("{signature} has been added before"));
            assert!(function.can_fail, "{signature} cannot fail with any arguments");
            function.cannot_fail = Some(CannotFail(rule));
        }
        self
    }

    /// Adds a body for narrower representations to functions that have been added.
    pub fn special(
        &mut self,
        signatures: &str,
        result: fn(&[Representation]) -> Option<Representation>,
        kernel: impl Kernel + 'static,
    ) -> &mut RegistryBuilder {
        let kernel: Arc<dyn Kernel> = Arc::new(kernel);
        for signature in signatures.split_ascii_whitespace() {
            let id = known(signature, b'f', false).id;
            let function = self.functions.iter_mut().rev().find(|function| function.id == id);
            let function = function.unwrap_or_else(|| panic!("{signature} has been added before"));
            let Body::Scalar(kernels) = &mut function.body else { panic!("it is a scalar function") };
            kernels.special.push(Special { result, kernel: kernel.clone() });
        }
        self
    }

    /// Adds functions that PostgreSQL has and that return sets.
    pub fn set(&mut self, signatures: &str, kernel: impl SetKernel + 'static) -> &mut RegistryBuilder {
        let kernel: Arc<dyn SetKernel> = Arc::new(kernel);
        for signature in signatures.split_ascii_whitespace() {
            let facts = known(signature, b'f', true);
            self.functions.push(of_facts(facts, kernel.can_fail(), Body::Set(kernel.clone())));
        }
        self
    }

    /// Adds aggregates that PostgreSQL has. They may fail only by numbers that do not fit.
    pub fn aggregate<A: Aggregate>(&mut self, signatures: &str, body: A) -> &mut RegistryBuilder {
        let kernel: Arc<dyn crate::aggregate::AggregateKernel> = Arc::new(aggregate(body));
        for signature in signatures.split_ascii_whitespace() {
            let facts = known(signature, b'a', false);
            if let Some((arguments, result)) = representations(facts) {
                assert!(kernel.accepts(&arguments, result), "{signature} has other types");
            }
            let more = facts::AGGREGATES[&facts.id];
            let body = Body::Aggregate(AggregateBody {
                kernel: kernel.clone(),
                kind: more.kind,
                direct: more.direct,
                sort_operator: more.sort_operator,
            });
            self.functions.push(of_facts(facts, false, body));
        }
        self
    }

    /// Adds window functions that PostgreSQL has.
    pub fn window<W: WindowFunction>(
        &mut self,
        signatures: &str,
        can_fail: bool,
        body: W,
    ) -> &mut RegistryBuilder {
        let kernel: Arc<dyn crate::window::WindowKernel> = Arc::new(window(body));
        for signature in signatures.split_ascii_whitespace() {
            let facts = known(signature, b'w', false);
            // Those without arguments number rows.
            let may_be_null = !facts.parameters.is_empty();
            let body = Body::Window(kernel.clone());
            self.functions.push(Function { may_be_null, ..of_facts(facts, can_fail, body) });
        }
        self
    }

    /// Whether PostgreSQL has the scalar function of that signature, and nothing has added it yet.
    pub fn is_missing(&self, signature: &str) -> bool {
        let Some(facts) = facts::FUNCTIONS.get(signature) else { return false };
        facts.kind == b'f' && !facts.returns_set && !self.functions.iter().any(|added| added.id == facts.id)
    }

    /// The functions of that name of which [`RegistryBuilder::is_missing`] is true.
    pub fn missing_named(&self, name: &str) -> Vec<Missing> {
        let named = facts::FUNCTIONS.iter().filter(|(_, facts)| facts.name == name);
        let missing = named.map(|(signature, facts)| Missing {
            signature: signature.clone(),
            arguments: facts.parameters.iter().filter(|parameter| parameter.mode.is_input()).count(),
            is_strict: facts.is_strict,
        });
        let mut missing: Vec<Missing> =
            missing.filter(|missing| self.is_missing(&missing.signature)).collect();
        missing.sort_unstable_by(|left, right| left.signature.cmp(&right.signature));
        missing
    }

    /// Adds a function that PostgreSQL does not have, or a user's.
    pub fn add(&mut self, function: Function) -> &mut RegistryBuilder {
        self.functions.push(function);
        self
    }

    /// Adds an operator that PostgreSQL does not have, or a user's.
    pub fn add_operator(&mut self, operator: Operator) -> &mut RegistryBuilder {
        self.operators.push(operator);
        self
    }

    /// The registry. Panics if an oid is there twice.
    pub fn finish(self) -> Registry {
        let mut registry = Registry {
            functions: HashMap::new(),
            by_name: HashMap::new(),
            operators: HashMap::new(),
            operators_by_name: HashMap::new(),
            operators_by_function: HashMap::new(),
            orders: HashMap::new(),
            casts: HashMap::new(),
            inputs: HashMap::new(),
            outputs: HashMap::new(),
            asking: self.functions[self.own..]
                .iter()
                .map(|function| function.id)
                .chain(self.asking)
                .collect(),
        };
        for function in self.functions {
            let function = Arc::new(function);
            registry.by_name.entry(function.name.clone()).or_default().push(function.clone());
            let before = registry.functions.insert(function.id, function.clone());
            assert!(before.is_none(), "{function:?} is there twice");
        }
        registry.by_name.values_mut().for_each(|named| named.sort_by_key(|function| function.id));

        let listed = facts::operators();
        let has_function = |operator: &Operator| registry.functions.contains_key(&operator.function);
        let listed: Vec<Operator> = listed.filter(has_function).collect();
        for operator in listed.into_iter().chain(self.operators) {
            let operator = Arc::new(operator);
            if let (Some(left), Some(strategy)) = (operator.left, operator.strategy) {
                registry.orders.insert((left, operator.right, strategy), operator.id);
            }
            registry.operators_by_function.entry(operator.function).or_insert(operator.id);
            registry.operators_by_name.entry(operator.name.clone()).or_default().push(operator.clone());
            let before = registry.operators.insert(operator.id, operator.clone());
            assert!(before.is_none(), "{operator:?} is there twice");
        }
        registry.operators_by_name.values_mut().for_each(|named| named.sort_by_key(|operator| operator.id));

        for facts in facts::type_functions() {
            if registry.functions.contains_key(&facts.input) {
                registry.inputs.insert(facts.id, facts.input);
            }
            if registry.functions.contains_key(&facts.output) {
                registry.outputs.insert(facts.id, facts.output);
            }
        }
        for facts in facts::casts() {
            let method = match facts.method {
                b'f' => registry
                    .functions
                    .contains_key(&facts.function)
                    .then_some(CastMethod::Function(facts.function)),
                b'b' => Some(CastMethod::Relabel),
                _ => registry.by_text(facts.source, facts.target),
            };
            if let Some(method) = method {
                let (source, target) = (facts.source, facts.target);
                registry
                    .casts
                    .insert((source, target), Cast { source, target, context: facts.context, method });
            }
        }
        registry
    }
}

/// What the catalogs say of a function. Panics if they know none, or one of another kind.
fn known(signature: &str, kind: u8, returns_set: bool) -> &'static FunctionFacts {
    let facts = facts::FUNCTIONS.get(signature);
    let facts =
        facts.unwrap_or_else(|| panic!("PostgreSQL has no function {signature} of types that we have"));
    assert_eq!((facts.kind, facts.returns_set), (kind, returns_set), "{signature} is of another kind");
    facts
}

fn of_facts(facts: &FunctionFacts, can_fail: bool, body: Body) -> Function {
    Function {
        id: facts.id,
        schema: None,
        name: facts.name.into(),
        parameters: facts.parameters.clone(),
        result: facts.result,
        volatility: facts.volatility,
        is_strict: facts.is_strict,
        parallel: facts.parallel,
        may_be_null: true,
        can_fail,
        cannot_fail: None,
        body,
    }
}

/// How arguments and result lie; `None` if a type is polymorphic.
fn representations(facts: &FunctionFacts) -> Option<(Vec<Representation>, Representation)> {
    let given = facts
        .parameters
        .iter()
        .filter(|parameter| matches!(parameter.mode, Mode::In | Mode::InOut | Mode::Variadic));
    let arguments = given.map(|parameter| Type::new(parameter.ty).representation()).collect::<Option<_>>()?;
    Some((arguments, Type::new(facts.result).representation()?))
}

/// Panics if a kernel takes other types than its function, or NULLs where the function is strict.
fn check_kernel(signature: &str, facts: &FunctionFacts, kernel: &dyn Kernel) {
    if let Some((arguments, result)) = representations(facts) {
        assert!(kernel.accepts(&arguments, result), "the kernel of {signature} has other types");
        let takes_null = (0..arguments.len()).any(|number| kernel.takes_null(number));
        assert!(!(facts.is_strict && takes_null), "{signature} is strict, but its kernel takes NULL");
    }
}
