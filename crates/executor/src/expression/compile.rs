//! Makes expressions of a plan's scalars.

use super::{Case, Expression, Node, Quantified, Values};
use crate::keys::{Class, KeyColumn, KeyLayout, KeySet};
use crate::values::{constant, value};
use firn_base::numeric::MAX_PRECISION;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, Type, TypeId, Value};
use firn_plan::evaluator::input_parameter;
use firn_plan::function::Strategy;
use firn_plan::scalar;
use firn_plan::{Column, Columns, Function, Scalar};
use firn_vector::kernel::{CallSite, Signature};
use firn_vector::registry::CastMethod;
use firn_vector::selection::Rows;
use firn_vector::{Datum, FunctionId, Registry, Vector};

/// So many constants are better looked up than compared one by one.
const LIST_TO_SET: usize = 4;

/// The vectors of a chunk: which column each is, and how its values lie.
#[derive(Clone, Default, Debug)]
pub struct Layout(Vec<(Column, Representation)>);

impl Layout {
    /// No columns.
    pub fn new() -> Layout {
        Layout::default()
    }

    /// Adds a column.
    pub fn push(&mut self, column: Column, representation: Representation) {
        debug_assert!(self.position(column).is_none(), "{column:?} is there already");
        self.0.push((column, representation));
    }

    /// Where a column is.
    pub fn position(&self, column: Column) -> Option<usize> {
        self.0.iter().position(|(other, _)| *other == column)
    }

    /// How the values of a column lie. Panics if it is not there.
    pub fn representation(&self, column: Column) -> Representation {
        let position = self.position(column).unwrap_or_else(|| panic!("{column:?} is not in {self:?}"));
        self.0[position].1
    }

    /// The columns, in their order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = Column> + '_ {
        self.0.iter().map(|(column, _)| *column)
    }

    /// How the values of each column lie.
    pub fn representations(&self) -> impl ExactSizeIterator<Item = Representation> + '_ {
        self.0.iter().map(|(_, representation)| *representation)
    }

    /// How many columns.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Column, Representation)> for Layout {
    fn from_iter<I: IntoIterator<Item = (Column, Representation)>>(columns: I) -> Layout {
        let mut layout = Layout::new();
        columns.into_iter().for_each(|(column, representation)| layout.push(column, representation));
        layout
    }
}

/// What compiling needs to know.
#[derive(Clone, Copy)]
pub struct Compiler<'a> {
    /// The functions.
    pub registry: &'a Registry,
    /// The columns of the statement.
    pub columns: &'a Columns,
}

/// How values of a type lie in general.
pub(crate) fn representation_of(ty: Type) -> Representation {
    ty.representation().unwrap_or_else(|| panic!("{ty} has no values"))
}

impl Compiler<'_> {
    /// A scalar over the columns of a layout.
    pub fn scalar(&self, scalar: &Scalar, layout: &Layout) -> Result<Expression> {
        self.within(scalar, layout, None)
    }

    /// A scalar whose values lie as those of its type do in general.
    pub fn general(&self, scalar: &Scalar, layout: &Layout) -> Result<Expression> {
        let ty = scalar.ty(self.columns);
        Ok(convert(self.scalar(scalar, layout)?, representation_of(ty)))
    }

    /// Several scalars.
    pub fn scalars(&self, scalars: &[Scalar], layout: &Layout) -> Result<Vec<Expression>> {
        scalars.iter().map(|scalar| self.scalar(scalar, layout)).collect()
    }

    /// `operand`: how the operand of the CASE around lies.
    fn within(
        &self,
        scalar: &Scalar,
        layout: &Layout,
        operand: Option<Representation>,
    ) -> Result<Expression> {
        let each = |list: &[Scalar]| -> Result<Vec<Expression>> {
            list.iter().map(|scalar| self.within(scalar, layout, operand)).collect()
        };
        let boxed = |scalar: &Scalar| self.within(scalar, layout, operand).map(Box::new);
        let boolean = |node| (node, Representation::Boolean);
        let (node, representation) = match scalar {
            Scalar::Column(column) => {
                let position =
                    layout.position(*column).unwrap_or_else(|| panic!("no {column:?} in {layout:?}"));
                (Node::Column(position), layout.representation(*column))
            }
            Scalar::Constant(ty, value) => {
                let representation = representation_of(*ty);
                (Node::Constant(constant(value, representation, 1)), representation)
            }
            Scalar::Parameter(number, ty) => {
                (Node::Parameter(usize::from(*number) - 1), representation_of(*ty))
            }
            Scalar::Call(call) => return self.call(call, each(&call.arguments)?),
            Scalar::Cast(cast) => {
                let argument = self.within(&cast.argument, layout, operand)?;
                let source = cast.argument.ty(self.columns);
                return self.cast(cast, source, argument);
            }
            Scalar::And(list) => boolean(Node::Connect { all: true, operands: ordered(each(list)?) }),
            Scalar::Or(list) => boolean(Node::Connect { all: false, operands: ordered(each(list)?) }),
            Scalar::Not(argument) => boolean(Node::Not(boxed(argument)?)),
            Scalar::Case(case) => {
                let representation = representation_of(scalar.ty(self.columns));
                let own =
                    case.operand.as_ref().map(|scalar| self.within(scalar, layout, operand)).transpose()?;
                let inner = own.as_ref().map(Expression::representation).or(operand);
                let arm = |(condition, result): &(Scalar, Scalar)| {
                    let condition = self.within(condition, layout, inner)?;
                    let result = self.within(result, layout, operand)?;
                    Ok((condition, convert(result, representation)))
                };
                let arms = case.arms.iter().map(arm).collect::<Result<_>>()?;
                let otherwise = self.within(&case.otherwise, layout, operand)?;
                let otherwise = convert(otherwise, representation);
                (Node::Case(Box::new(Case { operand: own, arms, otherwise })), representation)
            }
            Scalar::CaseValue(_) => (Node::CaseValue, operand.expect("a CASE with an operand is around")),
            Scalar::Coalesce(list) => {
                let representation = representation_of(scalar.ty(self.columns));
                let list = each(list)?.into_iter().map(|operand| convert(operand, representation)).collect();
                (Node::Coalesce(list), representation)
            }
            Scalar::IsNull(argument, negated) => {
                boolean(Node::IsNull { operand: boxed(argument)?, negated: *negated })
            }
            Scalar::Test(argument, which, negated) => {
                boolean(Node::Test { operand: boxed(argument)?, which: *which, negated: *negated })
            }
            Scalar::Distinct(pair, negated) => {
                let left = self.within(&pair.0, layout, operand)?;
                let right = self.within(&pair.1, layout, operand)?;
                let class = Class::common(left.representation, right.representation)
                    .expect("operands of IS DISTINCT FROM have one type");
                let column = KeyColumn { class, nullable: true, descending: false, nulls_first: false };
                let layout = KeyLayout::new(vec![column]);
                boolean(Node::Distinct { operands: Box::new((left, right)), layout, negated: *negated })
            }
            Scalar::Quantified(quantified) => {
                let argument = self.within(&quantified.argument, layout, operand)?;
                boolean(Node::Quantified(Box::new(self.quantified(quantified, argument, &each)?)))
            }
            Scalar::Array(ty, list) => {
                let representation = representation_of(*ty);
                (Node::Array(each(list)?), representation)
            }
            Scalar::Row(list) => {
                let types = list.iter().map(|scalar| scalar.ty(self.columns));
                (Node::Row(types.zip(each(list)?).collect()), Representation::Record)
            }
            Scalar::Field(argument, number, ty) => {
                (Node::Field(boxed(argument)?, usize::from(*number)), representation_of(*ty))
            }
        };
        Ok(Expression { node, representation, can_fail: scalar.can_fail() })
    }

    fn call(&self, call: &scalar::Call, arguments: Vec<Expression>) -> Result<Expression> {
        let function = &call.function;
        let can_fail = function.can_fail;
        let types: Vec<Type> = call.arguments.iter().map(|argument| argument.ty(self.columns)).collect();
        if !function.is_chain(arguments.len()) {
            return self.apply(Callee::of(function), can_fail, arguments, &types, call.ty);
        }
        let mut rest = arguments.into_iter().zip(types);
        let (mut left, mut left_type) = rest.next().expect("a chain has operands");
        let (mut first, mut steps) = (None, Vec::with_capacity(rest.len()));
        for (right, right_type) in rest {
            let step = self.apply(
                Callee::of(function),
                can_fail,
                vec![left, right],
                &[left_type, right_type],
                call.ty,
            )?;
            let Node::Call(site, operands) = step.node else { panic!("a function is called") };
            let [operand, right] = <[Expression; 2]>::try_from(operands).ok().expect("it has two operands");
            first.get_or_insert(operand);
            steps.push((*site, right));
            // Stands for what the steps before come to.
            left = Expression { node: Node::CaseValue, ..step };
            left_type = call.ty;
        }
        let first = Box::new(first.expect("a chain has operands"));
        Ok(Expression { node: Node::Chain(first, steps), ..left })
    }

    /// A call of a function of the registry.
    fn apply(
        &self,
        callee: Callee,
        can_fail: bool,
        mut arguments: Vec<Expression>,
        types: &[Type],
        result: Type,
    ) -> Result<Expression> {
        self.narrow_constants(callee.oid, &mut arguments);
        let representations: Vec<Representation> = arguments.iter().map(Expression::representation).collect();
        let (site, representation) = self.call_site(callee, types, &representations, result)?;
        let can_fail = can_fail || arguments.iter().any(Expression::can_fail);
        Ok(Expression { node: Node::Call(Box::new(site), arguments), representation, can_fail })
    }

    /// Makes decimals of numeric constants where the function then has a body for decimals. They keep their digits and their scale, of
    /// which the scale of the result depends.
    fn narrow_constants(&self, oid: u32, arguments: &mut [Expression]) {
        let Some(function) = self.registry.function(FunctionId(oid)) else { return };
        let narrow: Vec<Option<Representation>> = arguments.iter().map(decimal_of_constant).collect();
        if narrow.iter().all(Option::is_none) {
            return;
        }
        let pairs = || arguments.iter().zip(&narrow);
        let representations: Vec<Representation> =
            pairs().map(|(argument, narrow)| narrow.unwrap_or(argument.representation)).collect();
        if function.narrow_representation(&representations).is_none() {
            return;
        }
        for (argument, narrow) in arguments.iter_mut().zip(narrow) {
            if let (Node::Constant(vector), Some(representation)) = (&mut argument.node, narrow) {
                let value = value(vector.datum(0), vector.representation());
                (*vector, argument.representation) = (constant(&value, representation, 1), representation);
            }
        }
    }

    /// A call site, and how its results lie.
    pub(crate) fn call_site(
        &self,
        callee: Callee,
        types: &[Type],
        representations: &[Representation],
        result: Type,
    ) -> Result<(CallSite, Representation)> {
        let Callee { oid, takes_variadic_array: has_variadic_array } = callee;
        let function = self.registry.function(FunctionId(oid)).ok_or_else(|| missing(oid))?;
        let representation = function.representation(representations, result);
        let signature = Signature {
            arguments: types.into(),
            representations: representations.into(),
            result,
            representation,
            has_variadic_array,
        };
        Ok((function.call_site(signature), representation))
    }

    fn cast(&self, cast: &scalar::Cast, source: Type, argument: Expression) -> Result<Expression> {
        let method = match &cast.function {
            Some(function) => CastMethod::Function(FunctionId(function.oid)),
            None if source.id == cast.ty.id => self.registry.refit(source, cast.ty),
            None => match self.registry.cast(source.id, cast.ty.id) {
                Some(found) => found.method,
                None => {
                    let message = format!("cannot cast type {source} to {}", cast.ty);
                    return Err(Error::new(SqlState::CANNOT_COERCE, message));
                }
            },
        };
        self.cast_by(&method, cast, source, cast.ty, argument)
    }

    fn cast_by(
        &self,
        method: &CastMethod,
        cast: &scalar::Cast,
        source: Type,
        target: Type,
        argument: Expression,
    ) -> Result<Expression> {
        let fixed = |ty: TypeId, value: Value| Expression {
            node: Node::Constant(constant(&value, representation_of(Type::new(ty)), 1)),
            representation: representation_of(Type::new(ty)),
            can_fail: false,
        };
        match method {
            CastMethod::Relabel => Ok(as_type(argument, target)),
            CastMethod::Function(function) => {
                let known = self.registry.function(*function).ok_or_else(|| missing(function.0))?;
                let takes = known.arguments().count();
                let (mut arguments, mut types) = (vec![argument], vec![source]);
                if takes > 1 {
                    arguments.push(fixed(TypeId::INT4, Value::Integer(target.modifier)));
                    types.push(Type::new(TypeId::INT4));
                }
                if takes > 2 {
                    arguments.push(fixed(TypeId::BOOL, Value::Boolean(!cast.implicit)));
                    types.push(Type::new(TypeId::BOOL));
                }
                // A short integer becomes an oid by the function that makes an integer of it.
                let declared = Type::new(known.result);
                let is_oid = |ty: Type| representation_of(ty) == Representation::Oid;
                let made = if is_oid(target) && !is_oid(declared) { declared } else { target };
                let value = self.apply(Callee::by_id(*function), cast.can_fail, arguments, &types, made)?;
                Ok(as_type(value, target))
            }
            CastMethod::InputOutput { output, input } => {
                let text = Type::new(TypeId::CSTRING);
                let written =
                    self.apply(Callee::by_id(*output), cast.can_fail, vec![argument], &[source], text)?;
                let known = self.registry.function(*input).ok_or_else(|| missing(input.0))?;
                let (mut arguments, mut types) = (vec![written], vec![text]);
                if known.arguments().count() > 1 {
                    arguments.push(fixed(TypeId::OID, Value::Oid(input_parameter(target).0)));
                    arguments.push(fixed(TypeId::INT4, Value::Integer(target.modifier)));
                    types.extend([Type::new(TypeId::OID), Type::new(TypeId::INT4)]);
                }
                self.apply(Callee::by_id(*input), cast.can_fail, arguments, &types, target)
            }
            CastMethod::Elements(method) => {
                let (from, to) = (source.element(), target.element());
                let (from, to) = (from.expect("it is an array"), to.expect("it is an array"));
                let representation = representation_of(from);
                let element = Expression { node: Node::Column(0), representation, can_fail: false };
                let element = self.cast_by(method, cast, from, to, element)?;
                let can_fail = cast.can_fail || argument.can_fail;
                let node = Node::Elements(Box::new(argument), Box::new(element));
                Ok(Expression { node, representation: representation_of(target), can_fail })
            }
        }
    }

    fn quantified(
        &self,
        quantified: &scalar::Quantified,
        argument: Expression,
        each: &dyn Fn(&[Scalar]) -> Result<Vec<Expression>>,
    ) -> Result<Quantified> {
        let function = &quantified.function;
        let left = quantified.argument.ty(self.columns);
        let (values, right, right_representation) = match &quantified.values {
            scalar::Values::List(list) => {
                let ty = list.first().map_or(left, |scalar| scalar.ty(self.columns));
                let representation = representation_of(ty);
                let list: Vec<Expression> =
                    each(list)?.into_iter().map(|value| convert(value, representation)).collect();
                let asks_equality = match quantified.all {
                    false => function.strategy == Some(Strategy::Equal),
                    true => function.strategy == Some(Strategy::NotEqual),
                };
                let class = Class::common(argument.representation, representation);
                match class
                    .filter(|_| asks_equality && list.len() >= LIST_TO_SET)
                    .and_then(|class| as_set(&list, class))
                {
                    Some(set) => (set, ty, representation),
                    None => (Values::List(list), ty, representation),
                }
            }
            scalar::Values::Array(array) => {
                let element = array.ty(self.columns).element().expect("it is an array");
                let array = each(std::slice::from_ref(array))?.pop().expect("there is one");
                (Values::Array(array), element, representation_of(element))
            }
        };
        let representations = [argument.representation, right_representation];
        let result = Type::new(TypeId::BOOL);
        let (site, _) = self.call_site(Callee::of(function), &[left, right], &representations, result)?;
        Ok(Quantified { site, all: quantified.all, argument, values })
    }
}

/// Which function a call calls, and whether its last argument is the array of a variadic one.
#[derive(Clone, Copy)]
pub(crate) struct Callee {
    oid: u32,
    takes_variadic_array: bool,
}

impl Callee {
    fn of(function: &Function) -> Callee {
        Callee { oid: function.oid, takes_variadic_array: function.takes_variadic_array }
    }

    fn by_id(id: FunctionId) -> Callee {
        Callee { oid: id.0, takes_variadic_array: false }
    }
}

/// A set of constants, if all of them are.
fn as_set(list: &[Expression], class: Class) -> Option<Values> {
    let layout =
        KeyLayout::new(vec![KeyColumn { class, nullable: true, descending: false, nulls_first: false }]);
    let (mut set, mut has_null) = (KeySet::new(&layout), false);
    for value in list {
        let Node::Constant(value) = &value.node else { return None };
        if value.is_null(0) {
            has_null = true;
            continue;
        }
        let value: &[Vector] = std::slice::from_ref(value);
        set.insert(&layout.keys(value, Rows::all(1)), &mut Vec::new());
    }
    Some(Values::Set { layout, set: Arc::new(set), has_null })
}

/// Those first that cannot fail.
fn ordered(mut operands: Vec<Expression>) -> Vec<Expression> {
    operands.sort_by_key(Expression::can_fail);
    operands
}

/// The same values in another representation of their type.
pub(crate) fn convert(expression: Expression, representation: Representation) -> Expression {
    if expression.representation == representation {
        return expression;
    }
    let can_fail = expression.can_fail;
    Expression { node: Node::Convert(Box::new(expression)), representation, can_fail }
}

/// The same values as those of a type. Of plain `numeric` they may lie as decimals.
fn as_type(expression: Expression, target: Type) -> Expression {
    match (expression.representation, representation_of(target)) {
        (Representation::Decimal { .. }, Representation::Numeric) => expression,
        (_, representation) => convert(expression, representation),
    }
}

/// The decimal of exactly the digits and the scale of a numeric constant.
fn decimal_of_constant(expression: &Expression) -> Option<Representation> {
    let Node::Constant(vector) = &expression.node else { return None };
    let (Datum::Numeric(value), Representation::Numeric) = (vector.datum(0), vector.representation()) else {
        return None;
    };
    let (unscaled, scale) = value.number()?;
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= MAX_PRECISION)?;
    let digits = unscaled.unsigned_abs().checked_ilog10().unwrap_or(0) as u8 + 1;
    Some(Representation::Decimal { precision: digits.max(scale), scale })
}

fn missing(oid: u32) -> Error {
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("function with OID {oid} does not exist"))
}
