//! Scalars over a row.

use super::operators::{Interpreter, Row};
use crate::function::Function;
use crate::scalar::{Case, Scalar, Values};
use firn_base::operators;
use firn_base::{Error, Result, SqlState, TimeZoneSetting, Value};
use std::cmp::Ordering;

/// Whether two values are one for grouping: NULL is equal to NULL.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Array(left), Value::Array(right)) => {
            let (left, right) = (left.elements(), right.elements());
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => left.compare(right) == Some(Ordering::Equal),
    }
}

impl Interpreter<'_> {
    /// The value of a scalar.
    pub fn scalar(&self, scalar: &Scalar, row: &Row) -> Result<Value> {
        self.within(scalar, row, None)
    }

    /// TRUE or not, conditions that cannot fail first.
    pub fn holds(&self, conditions: &[Scalar], row: &Row) -> Result<bool> {
        for fails in [false, true] {
            for condition in conditions.iter().filter(|condition| condition.can_fail() == fails) {
                if self.scalar(condition, row)? != Value::Boolean(true) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// TRUE, FALSE or NULL, conditions that cannot fail first.
    pub fn all_of(&self, conditions: &[Scalar], row: &Row) -> Result<Value> {
        self.connect(conditions, row, None, false)
    }

    /// AND (`decisive` FALSE) and OR (TRUE).
    fn connect(&self, list: &[Scalar], row: &Row, operand: Option<&Value>, decisive: bool) -> Result<Value> {
        let mut result = Value::Boolean(!decisive);
        for fails in [false, true] {
            for scalar in list.iter().filter(|scalar| scalar.can_fail() == fails) {
                match self.within(scalar, row, operand)? {
                    Value::Boolean(value) if value == decisive => return Ok(Value::Boolean(decisive)),
                    Value::Null => result = Value::Null,
                    _ => {}
                }
            }
        }
        Ok(result)
    }

    fn within(&self, scalar: &Scalar, row: &Row, operand: Option<&Value>) -> Result<Value> {
        let value = |scalar: &Scalar| self.within(scalar, row, operand);
        Ok(match scalar {
            Scalar::Column(column) => row.get(*column).clone(),
            Scalar::Constant(_, constant) => constant.clone(),
            Scalar::Parameter(number, _) => self.parameter(*number),
            Scalar::CaseValue(_) => operand.expect("a CASE with an operand is around").clone(),
            Scalar::Call(call) => {
                let mut values = call.arguments.iter().map(value).collect::<Result<Vec<_>>>()?;
                if call.function.is_chain(values.len()) {
                    let mut rest = values.split_off(1).into_iter();
                    let first = values.pop().expect("a chain has operands");
                    return rest
                        .try_fold(first, |left, right| self.call(&call.function.name, vec![left, right]));
                }
                self.call(&call.function.name, values)?
            }
            Scalar::Cast(cast) => {
                let argument = value(&cast.argument)?;
                match &cast.function {
                    Some(function) => self.call(&function.name, vec![argument])?,
                    None => argument,
                }
            }
            Scalar::And(list) => self.connect(list, row, operand, false)?,
            Scalar::Or(list) => self.connect(list, row, operand, true)?,
            Scalar::Not(argument) => match value(argument)? {
                Value::Boolean(truth) => Value::Boolean(!truth),
                _ => Value::Null,
            },
            Scalar::Case(case) => self.case(case, row, operand)?,
            Scalar::Coalesce(list) => {
                for scalar in list {
                    let found = value(scalar)?;
                    if found != Value::Null {
                        return Ok(found);
                    }
                }
                Value::Null
            }
            Scalar::IsNull(argument, negated) => {
                Value::Boolean((value(argument)? == Value::Null) != *negated)
            }
            Scalar::Test(argument, which, negated) => {
                let is = match (value(argument)?, which) {
                    (Value::Boolean(truth), Some(which)) => truth == *which,
                    (Value::Null, None) => true,
                    _ => false,
                };
                Value::Boolean(is != *negated)
            }
            Scalar::Distinct(pair, negated) => {
                Value::Boolean(same(&value(&pair.0)?, &value(&pair.1)?) == *negated)
            }
            Scalar::Quantified(quantified) => {
                let left = value(&quantified.argument)?;
                let values = match &quantified.values {
                    Values::List(list) => list.iter().map(value).collect::<Result<Vec<_>>>()?,
                    Values::Array(array) => match value(array)? {
                        Value::Array(array) => array.into_elements(),
                        _ => return Ok(Value::Null),
                    },
                };
                let mut result = Value::Boolean(quantified.all);
                for right in values {
                    match self.call(&quantified.function.name, vec![left.clone(), right])? {
                        Value::Boolean(truth) if truth != quantified.all => {
                            return Ok(Value::Boolean(truth));
                        }
                        Value::Null => result = Value::Null,
                        _ => {}
                    }
                }
                result
            }
            Scalar::Array(_, list) => Value::Array(list.iter().map(value).collect::<Result<_>>()?),
            Scalar::Row(_) | Scalar::Field(..) => panic!("the reference has no rows as values"),
        })
    }

    fn case(&self, case: &Case, row: &Row, operand: Option<&Value>) -> Result<Value> {
        let own = case.operand.as_ref().map(|scalar| self.within(scalar, row, operand)).transpose()?;
        for (condition, result) in &case.arms {
            if self.within(condition, row, own.as_ref().or(operand))? == Value::Boolean(true) {
                return self.within(result, row, operand);
            }
        }
        self.within(&case.otherwise, row, operand)
    }

    /// The result of a function.
    fn call(&self, name: &str, arguments: Vec<Value>) -> Result<Value> {
        match name {
            "nextval" => Ok(Value::BigInt(self.next_value())),
            _ => call(name, arguments),
        }
    }
}

/// The result of an immutable function.
pub fn evaluate(function: &Function, arguments: Vec<Value>) -> Result<Value> {
    call(&function.name, arguments)
}

/// The result of a strict function.
fn call(name: &str, arguments: Vec<Value>) -> Result<Value> {
    if arguments.contains(&Value::Null) {
        return Ok(Value::Null);
    }
    let zone = TimeZoneSetting::default();
    let ordered = |is: fn(Ordering) -> bool| {
        let order = arguments[0].compare(&arguments[1]).expect("neither is NULL");
        Ok(Value::Boolean(is(order)))
    };
    match name {
        "int4eq" | "int8eq" | "texteq" | "booleq" | "numeric_eq" => ordered(Ordering::is_eq),
        "int4ne" | "int8ne" => ordered(Ordering::is_ne),
        "int4lt" | "int8lt" | "text_lt" => ordered(Ordering::is_lt),
        "int4le" | "int8le" => ordered(Ordering::is_le),
        "int4gt" | "int8gt" => ordered(Ordering::is_gt),
        "int4ge" | "int8ge" => ordered(Ordering::is_ge),
        "int4pl" | "int8pl" => operators::add(&arguments[0], &arguments[1], &zone),
        "int4mi" | "int8mi" => operators::subtract(&arguments[0], &arguments[1], &zone),
        "int4mul" | "int8mul" => operators::multiply(&arguments[0], &arguments[1]),
        "int4div" => operators::divide(&arguments[0], &arguments[1]),
        "int4um" => operators::negate(&arguments[0]),
        "int8" => match arguments[0] {
            Value::Integer(value) => Ok(Value::BigInt(i64::from(value))),
            _ => panic!("int8 takes an integer"),
        },
        "textcat" => match (&arguments[0], &arguments[1]) {
            (Value::Text(left), Value::Text(right)) => Ok(Value::Text(format!("{left}{right}"))),
            _ => panic!("|| takes strings"),
        },
        "scale" => match arguments[0] {
            Value::Numeric { scale, .. } => Ok(Value::Integer(i32::from(scale))),
            _ => panic!("scale takes a numeric"),
        },
        "limit_count" | "offset_count" => match arguments[0] {
            Value::BigInt(..0) => Err(Error::new(SqlState::new("2201W"), "LIMIT must not be negative")),
            _ => Ok(arguments[0].clone()),
        },
        "pg_backend_pid" => Ok(Value::Integer(7)),
        _ => Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("no function {name}"))),
    }
}
