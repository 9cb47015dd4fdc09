//! Functions: what `pg_proc` says of one, and its body.

use crate::aggregate::AggregateKernel;
use crate::kernel::{CallSite, Kernel, SetKernel, Signature};
use crate::registry::OperatorId;
use crate::window::WindowKernel;
use firn_base::sync::Arc;
use firn_base::{Representation, Type, TypeId, Value};
use std::fmt;

/// The oid of a row in `pg_proc`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);

/// When a function may give another result for the same arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Volatility {
    /// Never: calls with constants are folded when a statement is planned.
    Immutable,
    /// Not within one statement: calls with constants are folded once an execution.
    Stable,
    /// At any time.
    Volatile,
}

/// Where a function may run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parallel {
    /// In any worker.
    Safe,
    /// In the leader alone.
    Restricted,
    /// Only in a plan without workers.
    Unsafe,
}

/// How a parameter is passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Given by the caller.
    In,
    /// A column of the result.
    Out,
    /// Both.
    InOut,
    /// The last of those given, which takes any number of arguments.
    Variadic,
    /// A column of a result that is a table.
    Table,
}

impl Mode {
    /// Whether a call gives it.
    pub fn is_input(self) -> bool {
        matches!(self, Mode::In | Mode::InOut | Mode::Variadic)
    }
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its type, which may be polymorphic; of a variadic one the array, or [`TypeId::ANY`].
    pub ty: TypeId,
    /// Its name, if calls may name it.
    pub name: Option<Arc<str>>,
    /// How it is passed.
    pub mode: Mode,
    /// What it is if it is left out: text for the type's input function.
    pub default: Option<Arc<str>>,
}

/// What kind of function it is, and its body.
#[derive(Clone)]
pub enum Body {
    /// One result for each call.
    Scalar(Kernels),
    /// Any number of rows for each call.
    Set(Arc<dyn SetKernel>),
    /// One result for a group of rows.
    Aggregate(AggregateBody),
    /// One result for each row of a window.
    Window(Arc<dyn WindowKernel>),
}

/// The bodies of a scalar function: one that reads values as their types lie, and more for values that the plan knows more of.
#[derive(Clone)]
pub struct Kernels {
    /// For arguments and results that lie as their types do.
    pub general: Arc<dyn Kernel>,
    /// For narrower representations, such as decimals of one scale; the first that fits is taken.
    pub special: Vec<Special>,
}

/// A body for some representations of the arguments.
#[derive(Clone)]
pub struct Special {
    /// How the result lies if the arguments lie like these; `None` if the body is not for them.
    pub result: fn(&[Representation]) -> Option<Representation>,
    /// The body.
    pub kernel: Arc<dyn Kernel>,
}

/// What `pg_aggregate` says of an aggregate, and its body.
#[derive(Clone)]
pub struct AggregateBody {
    /// The body.
    pub kernel: Arc<dyn AggregateKernel>,
    /// Whether its arguments are ordered by WITHIN GROUP, and how.
    pub kind: AggregateKind,
    /// How many of the arguments of an ordered-set aggregate are direct ones.
    pub direct: usize,
    /// By what the result is the first value: `min` is by `<`. An index may answer it.
    pub sort_operator: Option<OperatorId>,
}

/// `pg_aggregate.aggkind`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AggregateKind {
    /// `f(arguments)`
    Normal,
    /// `f(direct) WITHIN GROUP (ORDER BY arguments)`
    OrderedSet,
    /// As an ordered set, and the direct arguments are a row that is ranked among the others.
    HypotheticalSet,
}

/// With which constant arguments a function raises no error, whatever the others are. The function gets the constants that are not
/// NULL, each in its place.
#[derive(Clone, Copy)]
pub struct CannotFail(pub fn(&[Option<&Value>]) -> bool);

impl PartialEq for CannotFail {
    fn eq(&self, other: &CannotFail) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl fmt::Debug for CannotFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CannotFail")
    }
}

/// A function.
#[derive(Clone)]
pub struct Function {
    /// Its oid.
    pub id: FunctionId,
    /// The schema that it is in, if that is not `pg_catalog`.
    pub schema: Option<Arc<str>>,
    /// Its name, of which there may be several with other parameters.
    pub name: Arc<str>,
    /// All parameters in their order, those of the result among them.
    pub parameters: Box<[Parameter]>,
    /// The type of its result, or of each row of it; it may be polymorphic.
    pub result: TypeId,
    /// When it may give another result.
    pub volatility: Volatility,
    /// Whether the result is NULL if an argument is. (A kernel may do the same for some arguments of a function that is not strict.)
    pub is_strict: bool,
    /// Where it may run.
    pub parallel: Parallel,
    /// Whether the result may be NULL though no argument is; of an aggregate or a window function, whether it may be NULL at all. (If it
    /// is not strict and this does not hold, it is never NULL.)
    pub may_be_null: bool,
    /// Whether a call may raise an error. 22003 of a number that does not fit does not count.
    pub can_fail: bool,
    /// With which constant arguments no call raises an error, if there are such.
    pub cannot_fail: Option<CannotFail>,
    /// What it does.
    pub body: Body,
}

impl Function {
    /// The parameters that a call gives, in their order.
    pub fn arguments(&self) -> impl DoubleEndedIterator<Item = &Parameter> {
        self.parameters
            .iter()
            .filter(|parameter| matches!(parameter.mode, Mode::In | Mode::InOut | Mode::Variadic))
    }

    /// The parameters that are columns of the result: none if it is one value of a type.
    pub fn columns(&self) -> impl DoubleEndedIterator<Item = &Parameter> {
        self.parameters
            .iter()
            .filter(|parameter| matches!(parameter.mode, Mode::Out | Mode::InOut | Mode::Table))
    }

    /// How many of the last arguments may be left out.
    pub fn defaults(&self) -> usize {
        self.arguments().rev().take_while(|parameter| parameter.default.is_some()).count()
    }

    /// The type of its variadic parameter: an array, or [`TypeId::ANY`].
    pub fn variadic(&self) -> Option<TypeId> {
        self.arguments().next_back().filter(|last| last.mode == Mode::Variadic).map(|last| last.ty)
    }

    /// Whether a call with these constants among its arguments may raise an error.
    pub fn can_fail_with(&self, constants: &[Option<&Value>]) -> bool {
        self.can_fail && !self.cannot_fail.is_some_and(|rule| rule.0(constants))
    }

    /// Whether it returns a set of rows.
    pub fn returns_set(&self) -> bool {
        matches!(self.body, Body::Set(_))
    }

    /// How results of that type lie if the arguments lie like these. Panics if no value can be of the type.
    pub fn representation(&self, arguments: &[Representation], result: Type) -> Representation {
        self.narrow_representation(arguments)
            .unwrap_or_else(|| result.representation().expect("results have a type of values"))
    }

    /// How results lie if there is a body for narrower representations like these.
    pub fn narrow_representation(&self, arguments: &[Representation]) -> Option<Representation> {
        let Body::Scalar(kernels) = &self.body else { return None };
        kernels.special.iter().find_map(|special| (special.result)(arguments))
    }

    /// A place of a plan that calls it. Panics if it is not a scalar function, or if no body of it accepts the signature.
    pub fn call_site(&self, signature: Signature) -> CallSite {
        let Body::Scalar(kernels) = &self.body else { panic!("{} is not a scalar function", self.name) };
        let special = kernels
            .special
            .iter()
            .find(|special| (special.result)(&signature.representations) == Some(signature.representation));
        let kernel = special.map_or(&kernels.general, |special| &special.kernel);
        CallSite::new(kernel.clone(), Arc::new(signature), self.volatility)
    }
}

impl fmt::Debug for Function {
    /// `name(types)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (number, parameter) in self.arguments().enumerate() {
            if number > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}", Type::new(parameter.ty))?;
        }
        f.write_str(")")
    }
}
