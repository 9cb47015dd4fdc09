//! Comparisons of a column with a constant of a wider type, as comparisons within the column's own type.
//!
//! `id < 100.5` over an integer is analysed as PostgreSQL means it, `CAST(id AS numeric) < 100.5`. That would be
//! computed for every row, and neither indexes nor zones nor codes know the numbers that a column's values become. But
//! these rise with the values, so that a constant parts the values into those that are less, equal and greater:
//!
//! | written | compared instead |
//! |---|---|
//! | `id < 100.5`, `id <= 100.5` | `id <= 100` |
//! | `id = 100.5` | with nothing: false, or NULL where the column is |
//! | `id <> 100.5` | with nothing: true, or NULL |
//! | `id < 3000000000` over an `integer` | the same |
//! | `big = 9007199254740993::float8`, which three integers become when they are rounded | `big >= 9007199254740992 AND big <= 9007199254740994` |
//! | `price > 1.005` over a `numeric(10, 2)` | `price >= 1.01` |
//! | `day < '2026-01-01 12:00'::timestamp` | `day <= '2026-01-01'` |
//!
//! Where the constant stands is searched for with the order that SQL has for values of the two types
//! ([`Value::compare`]), so it is exact by definition. As a rule of the optimiser it comes after constants have been
//! folded, and before filters go down to the scans. DataFusion itself does the same for constants that the column's type
//! has.

use crate::lower::cast;
use crate::types;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use firn_base::{SqlType, Value};
use std::cmp::Ordering;
use std::ops::Range;

/// The rule of the optimiser.
#[derive(Debug, Default)]
pub(crate) struct ExactComparisons;

impl OptimizerRule for ExactComparisons {
    fn name(&self) -> &str {
        "exact_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let filters = match &plan {
            LogicalPlan::Filter(filter) => std::slice::from_ref(&filter.predicate),
            LogicalPlan::Join(join) => join.filter.as_slice(),
            LogicalPlan::TableScan(scan) => &scan.filters,
            _ => &[],
        };
        // Mostly there is nothing to do.
        let is_cast_column = |part: &Expr| Ok(cast_column(part).is_some());
        if !filters.iter().any(|filter| filter.exists(is_cast_column).expect("it never fails")) {
            return Ok(Transformed::no(plan));
        }
        let schema = match &plan {
            LogicalPlan::TableScan(scan) => {
                DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?
            }
            _ => merge_schema(&plan.inputs()),
        };
        plan.map_expressions(|filter| filter.transform_up(|part| Ok(exactly(part, &schema))))
    }
}

/// A column that is cast, and to which type.
fn cast_column(expression: &Expr) -> Option<(&Expr, SqlType)> {
    cast::of(expression).filter(|(column, _)| matches!(column, Expr::Column(_)))
}

/// A comparison in the column's own type, if it is one of a column that is cast.
fn exactly(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let exact = match &expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (left.as_ref(), right.as_ref()) {
            (cast, Expr::Literal(constant, _)) => {
                Cast::of(cast, schema).and_then(|cast| cast.compared(*op, constant))
            }
            (Expr::Literal(constant, _), cast) => {
                op.swap().and_then(|op| Cast::of(cast, schema)?.compared(op, constant))
            }
            _ => None,
        },
        Expr::InList(list) => Cast::of(&list.expr, schema).and_then(|cast| cast.among(list)),
        _ => None,
    };
    match exact {
        Some(exact) => Transformed::yes(exact),
        None => Transformed::no(expression),
    }
}

/// A column that is cast to a type that has all its values, or that they are rounded to.
struct Cast<'a> {
    column: &'a Expr,
    ty: SqlType,
    /// The values of its type are those of these numbers, in their order.
    numbers: Range<i128>,
    nullable: bool,
}

/// Which values of a type equal a constant, by their numbers. Those before are less, and those behind greater.
type Place = Range<i128>;

impl<'a> Cast<'a> {
    fn of(expression: &'a Expr, schema: &DFSchema) -> Option<Cast<'a>> {
        let (column, to) = cast_column(expression)?;
        let (_, field) = column.to_field(schema).ok()?;
        // Other casts may fail, which is for whoever wrote them to see.
        let ty = types::sql_type(&field).filter(|ty| cast::is_rising(*ty, to))?;
        Some(Cast { column, ty, numbers: numbers(ty)?, nullable: field.is_nullable() })
    }

    /// Where a constant stands; `None` if that cannot be told.
    fn place(&self, constant: &ScalarValue) -> Option<Place> {
        if constant.is_null() {
            return None;
        }
        let constant = types::value(constant).ok()?;
        use Value::{BigInt, Date, Double, Integer, Numeric, SmallInt, Timestamp};
        match (value(self.ty, 0), &constant) {
            (Date(_), Timestamp(_)) => {}
            (
                SmallInt(_) | Integer(_) | BigInt(_) | Numeric { .. },
                SmallInt(_) | Integer(_) | BigInt(_) | Numeric { .. } | Double(_),
            ) => {}
            _ => return None,
        }
        let order = |number| value(self.ty, number).compare(&constant).expect("neither is NULL");
        let first = first_not(self.numbers.clone(), |number| order(number) == Ordering::Less);
        let behind = first_not(first..self.numbers.end, |number| order(number) == Ordering::Equal);
        Some(first..behind)
    }

    fn compared(&self, op: Operator, constant: &ScalarValue) -> Option<Expr> {
        let place = self.place(constant)?;
        let Range { start, end } = self.numbers;
        Some(match op {
            Operator::Eq => self.within(place),
            Operator::NotEq => self.outside(place),
            Operator::Lt => self.within(start..place.start),
            Operator::LtEq => self.within(start..place.end),
            Operator::Gt => self.within(place.end..end),
            Operator::GtEq => self.within(place.start..end),
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom if place.is_empty() => {
                lit(op == Operator::IsDistinctFrom)
            }
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom if place.start + 1 == place.end => {
                self.with_value(op, place.start)
            }
            _ => return None,
        })
    }

    fn among(&self, InList { list, negated, .. }: &InList) -> Option<Expr> {
        let mut items = Vec::with_capacity(list.len());
        // Of constants that several values equal.
        let mut others = Vec::new();
        for item in list {
            let Expr::Literal(constant, _) = item else { return None };
            if constant.is_null() {
                items.push(self.literal(&Value::Null));
                continue;
            }
            let place = self.place(constant)?;
            match place.end - place.start {
                0 => {}
                1 => items.push(self.literal(&value(self.ty, place.start))),
                _ if *negated => others.push(self.outside(place)),
                _ => others.push(self.within(place)),
            }
        }
        let listed = (!items.is_empty()).then(|| self.column.clone().in_list(items, *negated));
        let parts = listed.into_iter().chain(others);
        let together = match negated {
            true => parts.reduce(Expr::and),
            false => parts.reduce(Expr::or),
        };
        Some(together.unwrap_or_else(|| self.always(*negated)))
    }

    /// That the column has one of the values with these numbers.
    fn within(&self, wanted: Range<i128>) -> Expr {
        match (wanted.start == self.numbers.start, wanted.end == self.numbers.end) {
            _ if wanted.is_empty() => self.always(false),
            (true, true) => self.always(true),
            (true, false) => self.with_value(Operator::LtEq, wanted.end - 1),
            (false, true) => self.with_value(Operator::GtEq, wanted.start),
            (false, false) if wanted.start + 1 == wanted.end => self.with_value(Operator::Eq, wanted.start),
            (false, false) => {
                let from = self.with_value(Operator::GtEq, wanted.start);
                from.and(self.with_value(Operator::LtEq, wanted.end - 1))
            }
        }
    }

    /// That it has one of the others.
    fn outside(&self, unwanted: Range<i128>) -> Expr {
        let Range { start, end } = self.numbers;
        if unwanted.is_empty() {
            return self.always(true);
        }
        if unwanted.start + 1 == unwanted.end {
            return self.with_value(Operator::NotEq, unwanted.start);
        }
        match (start..unwanted.start, unwanted.end..end) {
            (less, greater) if less.is_empty() => self.within(greater),
            (less, greater) if greater.is_empty() => self.within(less),
            (less, greater) => self.within(less).or(self.within(greater)),
        }
    }

    /// What is true of all values, or of none; of NULL it is not known.
    fn always(&self, answer: bool) -> Expr {
        match (self.nullable, answer) {
            (false, _) => lit(answer),
            (true, true) => self.with_value(Operator::GtEq, self.numbers.start),
            (true, false) => self.with_value(Operator::Lt, self.numbers.start),
        }
    }

    fn with_value(&self, op: Operator, number: i128) -> Expr {
        binary_expr(self.column.clone(), op, self.literal(&value(self.ty, number)))
    }

    fn literal(&self, value: &Value) -> Expr {
        Expr::Literal(types::scalar(value, self.ty), None)
    }
}

/// The numbers of the values of a type; `None` if they have none.
fn numbers(ty: SqlType) -> Option<Range<i128>> {
    let of_bits = |bits: u32| -(1i128 << (bits - 1))..1i128 << (bits - 1);
    Some(match ty {
        SqlType::SmallInt => of_bits(16),
        SqlType::Integer | SqlType::Date => of_bits(32),
        SqlType::BigInt => of_bits(64),
        SqlType::Numeric { precision, .. } => {
            let beyond = 10i128.pow(u32::from(precision));
            1 - beyond..beyond
        }
        _ => return None,
    })
}

/// The value of a type with a number.
fn value(ty: SqlType, number: i128) -> Value {
    match ty {
        SqlType::SmallInt => Value::SmallInt(number as i16),
        SqlType::Integer => Value::Integer(number as i32),
        SqlType::Date => Value::Date(number as i32),
        SqlType::BigInt => Value::BigInt(number as i64),
        SqlType::Numeric { scale, .. } => Value::Numeric { unscaled: number, scale },
        ty => panic!("values of {ty} have no numbers"),
    }
}

/// The first of some numbers that does not satisfy what all before it do; the one behind the last if there is none.
fn first_not(within: Range<i128>, satisfied: impl Fn(i128) -> bool) -> i128 {
    let Range { start: mut low, end: mut high } = within;
    while low < high {
        // Numbers of 38 digits are further apart than an `i128` reaches.
        let middle = low + (high.wrapping_sub(low) as u128 / 2) as i128;
        if satisfied(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::Column;
    use datafusion::logical_expr::expr::Cast as CastExpr;

    fn schema(ty: SqlType, nullable: bool) -> DFSchema {
        let field = types::column_field("c", ty, nullable);
        DFSchema::try_from(datafusion::arrow::datatypes::Schema::new(vec![field])).unwrap()
    }

    /// `CAST(c AS to)`, and a literal of that type.
    fn sides(to: SqlType, constant: &Value) -> (Expr, Expr) {
        let column = Box::new(Expr::Column(Column::from_name("c")));
        let cast = Expr::Cast(CastExpr::new_from_field(column, types::field("", to)));
        (cast, Expr::Literal(types::scalar(constant, to), None))
    }

    fn numeric(unscaled: i128, precision: u8, scale: u8) -> (SqlType, Value) {
        (SqlType::Numeric { precision, scale }, Value::Numeric { unscaled, scale })
    }

    /// What an expression over the column says of a value.
    fn answer(expression: &Expr, ty: SqlType, schema: &DFSchema, value: &Value) -> Option<bool> {
        use datafusion::arrow::array::{AsArray, RecordBatch};
        let physical = crate::query::physical_expression(
            expression.clone(),
            schema,
            &[],
            &crate::query::RunOptions::default(),
        )
        .unwrap();
        let array = firn_storage::arrow::values_to_array(std::slice::from_ref(value), ty);
        let batch = RecordBatch::try_new(std::sync::Arc::clone(schema.inner()), vec![array]).unwrap();
        let answers = physical.evaluate(&batch).unwrap().into_array(1).unwrap();
        let answers = answers.as_boolean();
        datafusion::arrow::array::Array::is_valid(answers, 0).then(|| answers.value(0))
    }

    const OPS: [Operator; 8] = [
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
        Operator::IsDistinctFrom,
        Operator::IsNotDistinctFrom,
    ];

    /// A column's type, numbers of values of it, and constants of their types.
    type Case<'a> = (SqlType, &'a [i128], Vec<(SqlType, Value)>);

    /// Against the order of values of both types.
    #[test]
    fn a_column_compares_with_what_replaces_the_constant_as_with_the_constant() {
        let two_to_53 = 9_007_199_254_740_992i64;
        let doubles = |doubles: &[f64]| -> Vec<(SqlType, Value)> {
            doubles.iter().map(|double| (SqlType::Double, Value::Double(*double))).collect()
        };
        let day = 86_400_000_000i64;
        let most = 10i128.pow(38) - 1;
        let cases: [Case<'_>; 7] = [
            (
                SqlType::SmallInt,
                &[-32768, -32767, -1, 0, 1, 99, 100, 101, 32766, 32767],
                [
                    doubles(&[0.0, -0.0, 0.5, -0.5, 100.5, 32767.0, 32767.5, -32768.0, -40000.0, 1e300]),
                    doubles(&[f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-300]),
                    vec![(SqlType::Integer, Value::Integer(32768)), (SqlType::BigInt, Value::BigInt(-32769))],
                    vec![numeric(1005, 6, 1), numeric(-5, 6, 1), numeric(1000, 6, 1), numeric(999_999, 6, 1)],
                ]
                .concat(),
            ),
            (
                SqlType::Integer,
                &[i32::MIN as i128, -1, 0, 1, 16_777_216, 16_777_217, i32::MAX as i128],
                [
                    doubles(&[16_777_216.5, 2_147_483_647.0, 2_147_483_647.5, -2_147_483_648.5, f64::NAN]),
                    vec![(SqlType::BigInt, Value::BigInt(2_147_483_648)), numeric(-1, 12, 2)],
                ]
                .concat(),
            ),
            (
                SqlType::BigInt,
                &[
                    i64::MIN as i128,
                    two_to_53 as i128 - 1,
                    two_to_53 as i128,
                    two_to_53 as i128 + 1,
                    two_to_53 as i128 + 2,
                    two_to_53 as i128 + 3,
                    i64::MAX as i128 - 512,
                    i64::MAX as i128 - 511,
                    i64::MAX as i128,
                    0,
                ],
                [
                    doubles(&[9_007_199_254_740_992.0, 9_007_199_254_740_994.0, 9_007_199_254_740_996.0]),
                    doubles(&[9_223_372_036_854_775_808.0, -9_223_372_036_854_775_808.0, 0.5]),
                    vec![numeric(two_to_53 as i128 * 10 + 5, 20, 1), numeric(10i128.pow(20), 21, 0)],
                ]
                .concat(),
            ),
            (
                SqlType::Numeric { precision: 10, scale: 2 },
                &[-9_999_999_999, -101, -100, 0, 10, 100, 101, 9_999_999_999],
                [
                    doubles(&[1.005, 1.0, -1.01, 0.1, 99_999_999.99, 1e9, f64::NAN, f64::NEG_INFINITY]),
                    vec![numeric(1005, 11, 3), numeric(1010, 11, 3), numeric(-99_999_999_991, 11, 3)],
                    vec![numeric(10i128.pow(12), 13, 2)],
                ]
                .concat(),
            ),
            (
                SqlType::Numeric { precision: 38, scale: 16 },
                &[-most, -1, 0, 1, 5_000_000_000_000_000, 15_000_000_000_000_001, most],
                doubles(&[0.5, 1.5, -1e22, 1e22, 1e300, 1e-17, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
            ),
            (
                SqlType::Numeric { precision: 38, scale: 0 },
                &[-most, -1, 0, 1, most],
                doubles(&[0.5, 1e38, -1e38, 9e37]),
            ),
            (
                SqlType::Date,
                &[-2, -1, 0, 1, 20_000, 106_751_991],
                [-day - 1, -day, -1, 0, 1, day, 20_000 * day + 1, i64::MAX, i64::MIN]
                    .map(|micros| (SqlType::Timestamp, Value::Timestamp(micros)))
                    .to_vec(),
            ),
        ];
        for (ty, numbers, constants) in cases {
            for nullable in [true, false] {
                let schema = schema(ty, nullable);
                let values: Vec<Value> = numbers.iter().map(|number| value(ty, *number)).collect();
                for (of, constant) in &constants {
                    let (cast, literal) = sides(*of, constant);
                    for op in OPS {
                        let comparison = binary_expr(cast.clone(), op, literal.clone());
                        let exact = exactly(comparison.clone(), &schema);
                        let lowered = crate::lower::expression(comparison, &schema, &[]).unwrap();
                        assert_eq!(exactly(lowered, &schema).transformed, exact.transformed);
                        let swapped = op.swap().map(|op| binary_expr(literal.clone(), op, cast.clone()));
                        let swapped = swapped.map(|swapped| exactly(swapped, &schema).data);
                        let is_alike = |swapped: Expr| !exact.transformed || swapped == exact.data;
                        assert!(swapped.is_none_or(is_alike), "{constant:?}");
                        if !exact.transformed {
                            // Only of constants that several values equal.
                            assert!(matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom));
                            let is_wide =
                                matches!(ty, SqlType::BigInt | SqlType::Numeric { precision: 38, .. });
                            assert!(is_wide && *of == SqlType::Double, "{ty} {of}");
                            continue;
                        }
                        for value in &values {
                            let order = value.compare(constant).unwrap();
                            let expected = match op {
                                Operator::Eq | Operator::IsNotDistinctFrom => order.is_eq(),
                                Operator::NotEq | Operator::IsDistinctFrom => order.is_ne(),
                                Operator::Lt => order.is_lt(),
                                Operator::LtEq => order.is_le(),
                                Operator::Gt => order.is_gt(),
                                _ => order.is_ge(),
                            };
                            let found = answer(&exact.data, ty, &schema, value);
                            assert_eq!(found, Some(expected), "{value:?} {op} {constant:?}: {}", exact.data);
                        }
                        if nullable {
                            let expected = match op {
                                Operator::IsDistinctFrom => Some(true),
                                Operator::IsNotDistinctFrom => Some(false),
                                _ => None,
                            };
                            let found = answer(&exact.data, ty, &schema, &Value::Null);
                            assert_eq!(found, expected, "NULL {op} {constant:?}: {}", exact.data);
                        }
                    }
                }
                // All of them in a list, and with NULL among them.
                for of in [SqlType::Double, SqlType::Timestamp] {
                    let own = || constants.iter().filter(|(own, _)| *own == of);
                    if own().next().is_none() {
                        continue;
                    }
                    let list: Vec<Expr> = own().map(|(_, constant)| sides(of, constant).1).collect();
                    let with_null = [list.clone(), vec![sides(of, &Value::Null).1]].concat();
                    for (list, has_null) in [(list, false), (with_null, true)] {
                        for negated in [false, true] {
                            let (cast, _) = sides(of, &Value::Null);
                            let exact = exactly(cast.in_list(list.clone(), negated), &schema);
                            assert!(exact.transformed);
                            for value in &values {
                                let is_in =
                                    own().any(|(_, constant)| value.compare(constant).unwrap().is_eq());
                                let expected = match (is_in, has_null) {
                                    (false, true) => None,
                                    _ => Some(is_in != negated),
                                };
                                let found = answer(&exact.data, ty, &schema, value);
                                assert_eq!(found, expected, "{value:?}: {}", exact.data);
                            }
                            if nullable {
                                assert_eq!(answer(&exact.data, ty, &schema, &Value::Null), None);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn casts_that_may_fail_or_round_for_others_stay() {
        let (cast, literal) = sides(SqlType::Numeric { precision: 5, scale: 2 }, &numeric(100, 5, 2).1);
        for ty in [SqlType::BigInt, SqlType::Double, SqlType::Numeric { precision: 10, scale: 4 }] {
            let comparison = binary_expr(cast.clone(), Operator::Lt, literal.clone());
            assert!(!exactly(comparison, &schema(ty, true)).transformed, "{ty}");
        }
        let (cast, _) = sides(SqlType::Double, &Value::Null);
        let null = Expr::Literal(ScalarValue::Float64(None), None);
        let comparison = binary_expr(cast, Operator::Lt, null);
        assert!(!exactly(comparison, &schema(SqlType::Integer, true)).transformed);
    }
}
