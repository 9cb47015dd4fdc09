//! Scalars: expressions over the columns of one row.
//!
//! Sub-queries never appear here: the binder writes joins. Operators that chain (`a + b + c`, AND,
//! OR) are one node with a list, so that long texts make wide trees and not deep ones; the parser's
//! depth limit bounds the levels, and with them the recursion here and in Drop.
//!
//! Errors are lazy: CASE, COALESCE, AND and OR evaluate an operand that can fail only on the rows
//! that reach it.

use crate::column::{Column, Columns};
use crate::function::{Function, FunctionKind};
use firn_base::{Type, TypeId, Value};

/// An expression over the columns of one row.
#[derive(Clone, PartialEq, Debug)]
pub enum Scalar {
    /// The value of a column.
    Column(Column),
    /// A constant; its type, NULL's as well, is written beside it.
    Constant(Type, Value),
    /// `$number`, from 1.
    Parameter(u16, Type),
    /// A call of a function.
    Call(Box<Call>),
    /// A change of type.
    Cast(Box<Cast>),
    /// All of these.
    And(Vec<Scalar>),
    /// One of these.
    Or(Vec<Scalar>),
    /// NOT
    Not(Box<Scalar>),
    /// CASE
    Case(Box<Case>),
    /// The operand of the innermost CASE around it, within a WHEN of that CASE.
    CaseValue(Type),
    /// The first that is not NULL. All have one type.
    Coalesce(Vec<Scalar>),
    /// IS NULL, or IS NOT NULL if negated.
    IsNull(Box<Scalar>, bool),
    /// IS TRUE (`Some(true)`), IS FALSE, IS UNKNOWN (`None`), or their negations.
    Test(Box<Scalar>, Option<bool>, bool),
    /// IS DISTINCT FROM, or IS NOT DISTINCT FROM if negated: the equality of grouping, for operands of one type.
    Distinct(Box<(Scalar, Scalar)>, bool),
    /// Whether a comparison holds for any or all of some values.
    Quantified(Box<Quantified>),
    /// ARRAY[…]; the type is that of the array.
    Array(Type, Vec<Scalar>),
    /// ROW(…)
    Row(Vec<Scalar>),
    /// A field of a row, from 0, and its type.
    Field(Box<Scalar>, u16, Type),
}

/// A call of a function of the registry. A binary operator with more than two arguments is applied from left to right.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// What is called.
    pub function: Function,
    /// Whether it was written as an operator.
    pub as_operator: bool,
    /// What it is called with.
    pub arguments: Vec<Scalar>,
    /// The type of the result.
    pub ty: Type,
}

/// A change of type.
#[derive(Clone, PartialEq, Debug)]
pub struct Cast {
    /// What is cast.
    pub argument: Scalar,
    /// The type that it gets.
    pub ty: Type,
    /// The function that computes it. Without one the value goes through its text form, or is the same bits.
    pub function: Option<Function>,
    /// Whether the statement does not write it.
    pub implicit: bool,
    /// Whether it may raise an error.
    pub can_fail: bool,
}

/// CASE, with or without an operand. All results have one type.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The value that [`Scalar::CaseValue`] stands for.
    pub operand: Option<Scalar>,
    /// Conditions and results.
    pub arms: Vec<(Scalar, Scalar)>,
    /// The result if no condition holds; NULL is written.
    pub otherwise: Scalar,
}

/// `argument operator ANY (values)`, or ALL. IN is `= ANY`, NOT IN is `<> ALL`.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantified {
    /// The comparison.
    pub function: Function,
    /// Whether it must hold for all.
    pub all: bool,
    /// The left operand.
    pub argument: Scalar,
    /// The right operands.
    pub values: Values,
}

/// The right operands of a quantified comparison.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// One by one.
    List(Vec<Scalar>),
    /// The elements of an array.
    Array(Scalar),
}

impl Scalar {
    /// TRUE or FALSE.
    pub fn boolean(value: bool) -> Scalar {
        Scalar::Constant(Type::new(TypeId::BOOL), Value::Boolean(value))
    }

    /// A bigint.
    pub fn int8(value: i64) -> Scalar {
        Scalar::Constant(Type::new(TypeId::INT8), Value::BigInt(value))
    }

    /// A call whose result has the type that the function declares.
    pub fn call(function: Function, as_operator: bool, arguments: Vec<Scalar>) -> Scalar {
        let ty = Type::new(function.result);
        Scalar::Call(Box::new(Call { function, as_operator, arguments, ty }))
    }

    /// `left IS NOT DISTINCT FROM right`
    pub fn same(left: Column, right: Column) -> Scalar {
        Scalar::Distinct(Box::new((Scalar::Column(left), Scalar::Column(right))), true)
    }

    /// The column, if it is nothing else.
    pub fn as_column(&self) -> Option<Column> {
        match self {
            Scalar::Column(column) => Some(*column),
            _ => None,
        }
    }

    /// The column whose value it has: the column itself, or a cast of it that changes nothing, as comparisons of varchar have
    /// it cast to text. `type_of` gives a column's type.
    pub fn as_kept_column(&self, type_of: impl FnOnce(Column) -> Type) -> Option<Column> {
        match self {
            Scalar::Cast(cast) if cast.function.is_none() => {
                let column = cast.argument.as_column()?;
                keeps_value(type_of(column), cast.ty).then_some(column)
            }
            scalar => scalar.as_column(),
        }
    }

    /// Whether it is TRUE, as a condition that always holds is.
    pub fn is_true(&self) -> bool {
        matches!(self, Scalar::Constant(_, Value::Boolean(true)))
    }

    /// Calls `visit` with each operand, in the order of the text.
    pub fn for_each_child<'a>(&'a self, mut visit: impl FnMut(&'a Scalar)) {
        match self {
            Scalar::Column(_) | Scalar::Constant(..) | Scalar::Parameter(..) | Scalar::CaseValue(_) => {}
            Scalar::Call(call) => call.arguments.iter().for_each(visit),
            Scalar::Cast(cast) => visit(&cast.argument),
            Scalar::And(list)
            | Scalar::Or(list)
            | Scalar::Coalesce(list)
            | Scalar::Array(_, list)
            | Scalar::Row(list) => list.iter().for_each(visit),
            Scalar::Not(argument)
            | Scalar::IsNull(argument, _)
            | Scalar::Test(argument, ..)
            | Scalar::Field(argument, ..) => visit(argument),
            Scalar::Case(case) => {
                case.operand.iter().for_each(&mut visit);
                for (condition, result) in &case.arms {
                    visit(condition);
                    visit(result);
                }
                visit(&case.otherwise);
            }
            Scalar::Distinct(pair, _) => {
                visit(&pair.0);
                visit(&pair.1);
            }
            Scalar::Quantified(quantified) => {
                visit(&quantified.argument);
                match &quantified.values {
                    Values::List(list) => list.iter().for_each(visit),
                    Values::Array(array) => visit(array),
                }
            }
        }
    }

    /// Calls `visit` with each operand, in the order of the text.
    pub fn for_each_child_mut(&mut self, mut visit: impl FnMut(&mut Scalar)) {
        match self {
            Scalar::Column(_) | Scalar::Constant(..) | Scalar::Parameter(..) | Scalar::CaseValue(_) => {}
            Scalar::Call(call) => call.arguments.iter_mut().for_each(visit),
            Scalar::Cast(cast) => visit(&mut cast.argument),
            Scalar::And(list)
            | Scalar::Or(list)
            | Scalar::Coalesce(list)
            | Scalar::Array(_, list)
            | Scalar::Row(list) => list.iter_mut().for_each(visit),
            Scalar::Not(argument)
            | Scalar::IsNull(argument, _)
            | Scalar::Test(argument, ..)
            | Scalar::Field(argument, ..) => visit(argument),
            Scalar::Case(case) => {
                case.operand.iter_mut().for_each(&mut visit);
                for (condition, result) in &mut case.arms {
                    visit(condition);
                    visit(result);
                }
                visit(&mut case.otherwise);
            }
            Scalar::Distinct(pair, _) => {
                visit(&mut pair.0);
                visit(&mut pair.1);
            }
            Scalar::Quantified(quantified) => {
                visit(&mut quantified.argument);
                match &mut quantified.values {
                    Values::List(list) => list.iter_mut().for_each(visit),
                    Values::Array(array) => visit(array),
                }
            }
        }
    }

    /// Calls `visit` with each column that it uses, once for each place.
    pub fn for_each_column(&self, visit: &mut impl FnMut(Column)) {
        match self {
            Scalar::Column(column) => visit(*column),
            _ => self.for_each_child(|child| child.for_each_column(visit)),
        }
    }

    /// Changes each column that it uses.
    pub fn rename(&mut self, rename: &mut impl FnMut(Column) -> Column) {
        match self {
            Scalar::Column(column) => *column = rename(*column),
            _ => self.for_each_child_mut(|child| child.rename(rename)),
        }
    }

    /// Whether `is` holds of a part of it or of itself.
    pub fn any(&self, is: &mut impl FnMut(&Scalar) -> bool) -> bool {
        if is(self) {
            return true;
        }
        let mut found = false;
        self.for_each_child(|child| found = found || child.any(is));
        found
    }

    /// Whether it uses a column of which `is` holds.
    pub fn uses(&self, mut is: impl FnMut(Column) -> bool) -> bool {
        self.any(&mut |scalar| scalar.as_column().is_some_and(&mut is))
    }

    /// Whether evaluating it may raise an error (overflow aside).
    pub fn can_fail(&self) -> bool {
        self.any(&mut |scalar| match scalar {
            Scalar::Call(call) => call.can_fail(),
            Scalar::Cast(cast) => cast.can_fail,
            Scalar::Quantified(quantified) => quantified.function.can_fail,
            _ => false,
        })
    }

    /// Whether evaluating it twice may give two results, or has effects.
    pub fn is_volatile(&self) -> bool {
        self.calls(&mut Function::is_volatile)
    }

    /// Whether it calls a function of which `is` holds.
    pub fn calls(&self, is: &mut impl FnMut(&Function) -> bool) -> bool {
        self.any(&mut |scalar| match scalar {
            Scalar::Call(call) => is(&call.function),
            Scalar::Cast(cast) => cast.function.as_ref().is_some_and(&mut *is),
            Scalar::Quantified(quantified) => is(&quantified.function),
            _ => false,
        })
    }

    /// The type of its values.
    pub fn ty(&self, columns: &Columns) -> Type {
        match self {
            Scalar::Column(column) => columns[*column].ty,
            Scalar::Constant(ty, _)
            | Scalar::Parameter(_, ty)
            | Scalar::CaseValue(ty)
            | Scalar::Array(ty, _)
            | Scalar::Field(_, _, ty) => *ty,
            Scalar::Call(call) => call.ty,
            Scalar::Cast(cast) => cast.ty,
            Scalar::Case(case) => match case.arms.first() {
                Some((_, result)) => result.ty(columns),
                None => case.otherwise.ty(columns),
            },
            Scalar::Coalesce(list) => list[0].ty(columns),
            Scalar::Row(_) => Type::new(TypeId::RECORD),
            Scalar::And(_)
            | Scalar::Or(_)
            | Scalar::Not(_)
            | Scalar::IsNull(..)
            | Scalar::Test(..)
            | Scalar::Distinct(..)
            | Scalar::Quantified(_) => Type::new(TypeId::BOOL),
        }
    }

    /// Whether it may be NULL, if `nullable` says which columns may be.
    pub fn nullable(&self, nullable: &impl Fn(Column) -> bool) -> bool {
        let any = |list: &[Scalar]| list.iter().any(|scalar| scalar.nullable(nullable));
        match self {
            Scalar::Column(column) => nullable(*column),
            Scalar::Constant(_, value) => *value == Value::Null,
            Scalar::Parameter(..) | Scalar::CaseValue(_) | Scalar::Field(..) => true,
            Scalar::Call(call) => {
                let function = &call.function;
                function.may_be_null || any(&call.arguments) && function.strict
            }
            Scalar::Cast(cast) => {
                let may_be_null = cast.function.as_ref().is_some_and(|function| function.may_be_null);
                may_be_null || cast.argument.nullable(nullable)
            }
            Scalar::And(list) | Scalar::Or(list) => any(list),
            Scalar::Not(argument) => argument.nullable(nullable),
            Scalar::Case(case) => {
                case.otherwise.nullable(nullable)
                    || case.arms.iter().any(|(_, result)| result.nullable(nullable))
            }
            Scalar::Coalesce(list) => list.iter().all(|scalar| scalar.nullable(nullable)),
            Scalar::IsNull(..)
            | Scalar::Test(..)
            | Scalar::Distinct(..)
            | Scalar::Array(..)
            | Scalar::Row(_) => false,
            Scalar::Quantified(quantified) => {
                quantified.argument.nullable(nullable)
                    || quantified.function.may_be_null
                    || match &quantified.values {
                        Values::List(list) => any(list),
                        // Elements may be NULL.
                        Values::Array(_) => true,
                    }
            }
        }
    }
}

impl Call {
    /// Whether the call itself may raise an error: its constant arguments may decide.
    pub fn can_fail(&self) -> bool {
        let function = &self.function;
        let Some(cannot_fail) = function.cannot_fail.filter(|_| function.can_fail) else {
            return function.can_fail;
        };
        fn constant(scalar: &Scalar) -> Option<&Value> {
            match scalar {
                Scalar::Constant(_, value) if *value != Value::Null => Some(value),
                _ => None,
            }
        }
        let constants: Vec<Option<&Value>> = self.arguments.iter().map(constant).collect();
        match function.is_chain(constants.len()) {
            true => constants[1..].iter().any(|right| !(cannot_fail.0)(&[None, *right])),
            false => !(cannot_fail.0)(&constants),
        }
    }
}

impl Function {
    /// Whether it may stand in a scalar.
    pub fn is_scalar(&self) -> bool {
        self.kind == FunctionKind::Scalar
    }
}

/// Whether a cast without a function from one type to another keeps the value, and what it is equal to and less than.
fn keeps_value(from: Type, to: Type) -> bool {
    let is_string = |ty: Type| matches!(ty.id, TypeId::TEXT | TypeId::VARCHAR);
    is_string(from) && is_string(to) && to.modifier < 0 && from.collation == to.collation
}
