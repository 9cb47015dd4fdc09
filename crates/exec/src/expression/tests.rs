//! Row expressions against DataFusion's evaluation of the same expressions.

use super::delegate::Delegate;
use super::{Environment, Node, Row, RowExpression};
use crate::query::RunOptions;
use crate::types;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use firn_base::random::Random;
use firn_base::{Cell, SqlType, Value};

const NUMERIC: SqlType = SqlType::Numeric { precision: 10, scale: 2 };
const COLUMNS: [(&str, SqlType); 7] = [
    ("a", SqlType::Integer),
    ("b", SqlType::Integer),
    ("big", SqlType::BigInt),
    ("n", NUMERIC),
    ("s", SqlType::Text),
    ("t", SqlType::Boolean),
    ("f", SqlType::Double),
];

fn schema() -> DFSchema {
    let fields: Vec<_> = COLUMNS.iter().map(|(name, ty)| types::field(name, *ty)).collect();
    DFSchema::try_from(Schema::new(fields)).expect("names differ")
}

fn value(random: &mut Random, ty: SqlType) -> Value {
    if random.uniform(0, 5) == 0 {
        return Value::Null;
    }
    let edge = random.uniform(0, 9) == 0;
    match ty {
        SqlType::Integer if edge => Value::Integer(i32::MAX),
        SqlType::Integer => Value::Integer(random.uniform(-3, 3) as i32),
        SqlType::BigInt if edge => Value::BigInt(i64::MIN),
        SqlType::BigInt => Value::BigInt(random.uniform(-3, 3)),
        NUMERIC => Value::Numeric { unscaled: i128::from(random.uniform(-300, 300)), scale: 2 },
        SqlType::Text => Value::Text(["", "a", "ab", "Ba", "ä%"][random.uniform(0, 4) as usize].to_owned()),
        SqlType::Boolean => Value::Boolean(random.uniform(0, 1) == 1),
        SqlType::Double => Value::Double(random.uniform(-4, 4) as f64 / 2.0),
        other => panic!("no values of {other}"),
    }
}

fn literal(random: &mut Random, ty: SqlType) -> Expr {
    Expr::Literal(types::scalar(&value(random, ty), ty), None)
}

fn column(random: &mut Random, ty: SqlType) -> Expr {
    let named: Vec<&str> = COLUMNS.iter().filter(|(_, of)| *of == ty).map(|(name, _)| *name).collect();
    let name = named[random.uniform(0, named.len() as i64 - 1) as usize];
    Expr::Column(Column::new_unqualified(name))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn case(random: &mut Random, ty: SqlType, depth: u32) -> Expr {
    let branches = (0..random.uniform(1, 2))
        .map(|_| {
            let condition = expression(random, SqlType::Boolean, depth);
            (Box::new(condition), Box::new(expression(random, ty, depth)))
        })
        .collect();
    let otherwise = (random.uniform(0, 1) == 0).then(|| Box::new(expression(random, ty, depth)));
    Expr::Case(Case::new(None, branches, otherwise))
}

/// A random expression of a type, of operators whose operands need no coercion.
fn expression(random: &mut Random, ty: SqlType, depth: u32) -> Expr {
    if depth == 0 {
        return if random.uniform(0, 2) == 0 { literal(random, ty) } else { column(random, ty) };
    }
    let depth = depth - 1;
    let of = |random: &mut Random, ty| expression(random, ty, depth);
    match (ty, random.uniform(0, 7)) {
        (_, 0) => case(random, ty, depth),
        (SqlType::Integer | SqlType::BigInt | SqlType::Double, 1) => Expr::Negative(Box::new(of(random, ty))),
        (SqlType::Integer | SqlType::BigInt, _) => {
            let op =
                [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo]
                    [random.uniform(0, 4) as usize];
            binary(of(random, ty), op, of(random, ty))
        }
        (SqlType::Double, _) => {
            let op = [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide]
                [random.uniform(0, 3) as usize];
            binary(of(random, ty), op, of(random, ty))
        }
        (SqlType::Text, 1..4) => binary(of(random, ty), Operator::StringConcat, of(random, ty)),
        (SqlType::Boolean, choice) => condition(random, depth, choice),
        _ => expression(random, ty, 0),
    }
}

fn condition(random: &mut Random, depth: u32, choice: i64) -> Expr {
    let operand_type = COLUMNS[random.uniform(0, 6) as usize].1;
    let negated = random.uniform(0, 1) == 1;
    let of = |random: &mut Random, ty| Box::new(expression(random, ty, depth));
    match choice {
        1 => binary(
            *of(random, SqlType::Boolean),
            if negated { Operator::And } else { Operator::Or },
            *of(random, SqlType::Boolean),
        ),
        2 => match random.uniform(0, 6) {
            0 => Expr::Not(of(random, SqlType::Boolean)),
            1 => Expr::IsTrue(of(random, SqlType::Boolean)),
            2 => Expr::IsNotFalse(of(random, SqlType::Boolean)),
            3 => Expr::IsUnknown(of(random, SqlType::Boolean)),
            4 => Expr::IsNotTrue(of(random, SqlType::Boolean)),
            5 => Expr::IsNull(of(random, operand_type)),
            _ => Expr::IsNotNull(of(random, operand_type)),
        },
        3 => Expr::Between(Between::new(
            of(random, operand_type),
            negated,
            of(random, operand_type),
            of(random, operand_type),
        )),
        4 => {
            let list = (0..random.uniform(1, 3)).map(|_| literal(random, operand_type)).collect();
            Expr::InList(InList::new(of(random, operand_type), list, negated))
        }
        5 => {
            let pattern = ["%", "_", "a%", "%b", "_a%", "\\%"][random.uniform(0, 5) as usize];
            let pattern = Expr::Literal(ScalarValue::Utf8View(Some(pattern.to_owned())), None);
            Expr::Like(Like::new(negated, of(random, SqlType::Text), Box::new(pattern), None, false))
        }
        _ => {
            let op = [
                Operator::Eq,
                Operator::NotEq,
                Operator::Lt,
                Operator::LtEq,
                Operator::Gt,
                Operator::GtEq,
                Operator::IsDistinctFrom,
                Operator::IsNotDistinctFrom,
            ][random.uniform(0, 7) as usize];
            binary(*of(random, operand_type), op, *of(random, operand_type))
        }
    }
}

/// For expressions without anything that may fail, evaluation by rows and by DataFusion yields the
/// same value; where one fails, so does the other, unless it did not have to look (DataFusion
/// evaluates both sides of AND and every branch of CASE on some paths).
#[test]
fn expressions_yield_what_datafusion_yields() {
    let seed = 4_711;
    let mut random = Random::seeded(seed);
    let schema = schema();
    let options = RunOptions::default();
    let environment = Environment { parameters: &[], options: &options };
    let (mut values, mut errors) = (0, 0);
    for _ in 0..3000 {
        let ty = COLUMNS[random.uniform(0, 6) as usize].1;
        let expr = expression(&mut random, ty, 3);
        let compiled = RowExpression::compile(&expr, &schema, &Some)
            .unwrap_or_else(|| panic!("seed {seed}: {expr} does not compile"));
        let Ok(delegate) = Delegate::new(&expr, &schema, &Some) else { panic!("seed {seed}: {expr}") };
        let delegate = Node::Delegate(Box::new(delegate));
        for _ in 0..4 {
            let row: Vec<Value> = COLUMNS.iter().map(|(_, ty)| value(&mut random, *ty)).collect();
            let cells: Vec<Cell<'_>> =
                row.iter().zip(&COLUMNS).map(|(value, (_, ty))| value.as_cell(*ty)).collect();
            let row = Row { cells: &cells, environment: &environment };
            match (compiled.evaluate(row), delegate.evaluate(row)) {
                (Ok(ours), Ok(theirs)) => {
                    let equal = ours.is_null() && theirs.is_null()
                        || ours.compare(&theirs).is_some_and(std::cmp::Ordering::is_eq);
                    assert!(equal, "seed {seed}: {expr} on {cells:?}: {ours:?}, DataFusion {theirs:?}");
                    values += 1;
                }
                (Err(ours), Err(theirs)) => {
                    let arithmetic = ["22003", "22012"];
                    assert!(arithmetic.contains(&ours.state().as_str()), "seed {seed}: {expr}: {ours:?}");
                    assert!(arithmetic.contains(&theirs.state().as_str()), "seed {seed}: {expr}: {theirs:?}");
                    errors += 1;
                }
                (Ok(_), Err(theirs)) => {
                    let arithmetic = ["22003", "22012"];
                    assert!(arithmetic.contains(&theirs.state().as_str()), "seed {seed}: {expr}: {theirs:?}");
                }
                (Err(ours), Ok(theirs)) => {
                    panic!("seed {seed}: {expr} on {cells:?}: {ours:?}, DataFusion {theirs:?}")
                }
            }
        }
    }
    assert!(values > 5000 && errors > 100, "{values} values and {errors} errors are too few");
}

#[test]
fn parameters_and_the_time_come_from_the_environment() {
    let schema = schema();
    let options = RunOptions { now: 77, ..RunOptions::default() };
    let parameters = [Value::Integer(5)];
    let environment = Environment { parameters: &parameters, options: &options };
    let placeholder = Expr::Placeholder(datafusion::logical_expr::expr::Placeholder::new_with_field(
        "$1".to_owned(),
        Some(types::field("$1", SqlType::Integer)),
    ));
    let sum = binary(Expr::Column(Column::new_unqualified("a")), Operator::Plus, placeholder);
    let cells = [Cell::i32(2)];
    let row = Row { cells: &cells, environment: &environment };
    let compiled = RowExpression::compile(&sum, &schema, &Some).expect("compiles");
    assert_eq!(*compiled.evaluate(row).expect("fits"), Value::Integer(7));
    let delegate = Delegate::new(&sum, &schema, &Some).expect("is planned");
    assert_eq!(delegate.evaluate(row).expect("fits"), Value::Integer(7));
    assert!(!compiled.is_constant() && !delegate.is_constant());
}
