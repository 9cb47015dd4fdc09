//! Functions as the planner sees them: their signature and the facts that rewrites rely on.
//!
//! A plan holds handles; how a function computes is the registry's affair. [`Functions`] is how
//! rewrites and the parser of plan text ask a registry for a function by name or by operator.

use firn_base::{Type, TypeId, Value};
use std::fmt;
use std::sync::Arc;

/// `pg_proc.provolatile`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Volatility {
    /// Equal arguments give equal results for ever.
    Immutable,
    /// Equal arguments give equal results within one statement.
    Stable,
    /// Each call may give another result or has an effect.
    Volatile,
}

/// `pg_proc.prokind`, with set-returning functions apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionKind {
    /// One value for each row.
    Scalar,
    /// Any number of rows for each row.
    Set,
    /// One value for a group of rows.
    Aggregate,
    /// One value for each row of a partition.
    Window,
}

/// What a comparison asks, as the strategies of PostgreSQL's B-tree operator classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// `<>`, the negation of equality.
    NotEqual,
}

impl Strategy {
    /// What a comparison asks with its operands exchanged.
    pub fn commuted(self) -> Strategy {
        match self {
            Strategy::Less => Strategy::Greater,
            Strategy::LessOrEqual => Strategy::GreaterOrEqual,
            Strategy::GreaterOrEqual => Strategy::LessOrEqual,
            Strategy::Greater => Strategy::Less,
            other => other,
        }
    }
}

/// The facts about a function that the planner uses.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    /// `pg_proc.oid`.
    pub oid: u32,
    /// `pg_proc.proname`.
    pub name: Box<str>,
    /// The symbol of an operator that calls it, such as `+`.
    pub operator: Option<Box<str>>,
    /// What kind of function it is.
    pub kind: FunctionKind,
    /// The types of its arguments, polymorphic ones included.
    pub arguments: Box<[TypeId]>,
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    /// Whether calls give an array, written `VARIADIC array`, for the arguments of any type that may be repeated.
    pub takes_variadic_array: bool,
    /// The type of its result; polymorphic if the arguments decide.
    pub result: TypeId,
    /// How long results keep.
    pub volatility: Volatility,
    /// Whether it is NULL where an argument is NULL.
    pub strict: bool,
    /// Whether it may be NULL where no argument is; of an aggregate or a window function, whether it may be NULL at all.
    pub may_be_null: bool,
    /// Whether it may raise an error. Overflow (22003) does not count.
    pub can_fail: bool,
    /// With which constant arguments it raises none.
    pub cannot_fail: Option<firn_vector::registry::CannotFail>,
    /// What it compares as, if values of its argument's type compare so in sorting and grouping.
    pub strategy: Option<Strategy>,
    /// An aggregate's value over no rows, if it is known without running it.
    pub over_nothing: Option<Value>,
}

/// A handle of a function: cheap to copy, equal if the oids are, and if both take an array for variadic arguments or neither does.
#[derive(Clone)]
pub struct Function(Arc<Facts>);

impl Function {
    /// A handle of a function with these facts.
    pub fn new(facts: Facts) -> Function {
        Function(Arc::new(facts))
    }

    /// A handle of the same function for calls with `VARIADIC array`.
    pub fn with_variadic_array(&self) -> Function {
        Function::new(Facts { takes_variadic_array: true, ..Facts::clone(&self.0) })
    }

    /// Whether a call may be evaluated more or fewer times than the statement says.
    pub fn is_volatile(&self) -> bool {
        self.0.volatility == Volatility::Volatile
    }

    /// Whether it distinguishes the same values as grouping does.
    pub fn is_equality(&self) -> bool {
        self.0.strategy == Some(Strategy::Equal)
    }

    /// The declared type of an argument.
    pub fn argument(&self, index: usize) -> Option<TypeId> {
        match self.0.arguments.get(index) {
            None if self.0.variadic => self.0.arguments.last().copied(),
            other => other.copied(),
        }
    }

    /// Whether it takes so many arguments. A binary operator takes any number as a chain.
    pub fn takes(&self, count: usize) -> bool {
        let declared = self.0.arguments.len();
        count == declared || self.0.variadic && count + 1 >= declared || self.is_chain(count)
    }

    /// Whether a call with so many arguments applies a binary operator from left to right.
    pub fn is_chain(&self, count: usize) -> bool {
        self.0.operator.is_some() && self.0.arguments.len() == 2 && !self.0.variadic && count > 2
    }
}

impl std::ops::Deref for Function {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.0.oid == other.0.oid && self.0.takes_variadic_array == other.0.takes_variadic_array
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

/// Where functions are found: a registry.
pub trait Functions {
    /// The function of that name that takes exactly these types.
    fn named(&self, name: &str, arguments: &[Type]) -> Option<Function>;

    /// The function that the operator of that symbol calls for exactly these types; one type for a prefix operator.
    fn operator(&self, symbol: &str, arguments: &[Type]) -> Option<Function>;
}

/// Whether a declared type stands for any type of a kind.
pub fn is_polymorphic(id: TypeId) -> bool {
    matches!(
        id,
        TypeId::ANY
            | TypeId::ANYELEMENT
            | TypeId::ANYARRAY
            | TypeId::ANYNONARRAY
            | TypeId::ANYENUM
            | TypeId::ANYRANGE
            | TypeId::ANYCOMPATIBLE
            | TypeId::ANYCOMPATIBLEARRAY
            | TypeId::ANYCOMPATIBLENONARRAY
            | TypeId::ANYCOMPATIBLERANGE
            | TypeId::RECORD
    )
}
