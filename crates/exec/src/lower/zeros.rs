//! Zero among floats that are looked up: DataFusion finds the values of a list by their bits, and makes a list of
//! `x = 0 OR x = 1 OR …`. The zero of the other sign comes along.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// A list with both zeros, if it has one.
pub fn in_list(mut list: InList) -> InList {
    let Some(zeros) = list.list.iter().find_map(both) else { return list };
    list.list.extend(zeros);
    list
}

/// An operand of OR that is a comparison of a column with zero, as one with both.
pub fn of_or(operand: Expr) -> Expr {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = &operand else { return operand };
    let (column, zeros) = match (left.as_ref(), right.as_ref()) {
        (column @ Expr::Column(_), other) | (other, column @ Expr::Column(_)) => (column, both(other)),
        _ => return operand,
    };
    match zeros {
        Some([one, other]) => column.clone().eq(one).or(column.clone().eq(other)),
        None => operand,
    }
}

/// Both zeros of the type of a literal that is one of them.
fn both(literal: &Expr) -> Option<[Expr; 2]> {
    let zeros: [ScalarValue; 2] = match literal {
        Expr::Literal(ScalarValue::Float64(Some(0.0)), _) => [0.0_f64, -0.0].map(|zero| Some(zero).into()),
        Expr::Literal(ScalarValue::Float32(Some(0.0)), _) => [0.0_f32, -0.0].map(|zero| Some(zero).into()),
        _ => return None,
    };
    Some(zeros.map(|zero| Expr::Literal(zero, None)))
}
