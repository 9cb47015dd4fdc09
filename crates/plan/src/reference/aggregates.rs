//! Aggregates over rows.

use super::operators::{Interpreter, Row, sort};
use super::scalars::same;
use crate::operator::{Aggregate, SortKey};
use crate::scalar::Scalar;
use firn_base::{Result, Value};

impl Interpreter<'_> {
    /// An aggregate of some rows.
    pub fn aggregate(&self, aggregate: &Aggregate, rows: &[&Row]) -> Result<Value> {
        let Aggregate { function, arguments, distinct, order, filter, .. } = aggregate;
        self.aggregate_of(&function.name, arguments, *distinct, order, filter.as_ref(), rows)
    }

    /// An aggregate by its name.
    pub fn aggregate_of(
        &self,
        name: &str,
        arguments: &[Scalar],
        distinct: bool,
        order: &[SortKey],
        filter: Option<&Scalar>,
        rows: &[&Row],
    ) -> Result<Value> {
        let mut taken: Vec<Row> = Vec::new();
        for row in rows {
            if self.holds(filter.map_or(&[], std::slice::from_ref), row)? {
                taken.push((*row).clone());
            }
        }
        if order.is_empty() {
            // Any order is allowed; one that depends on the values alone makes results comparable.
            taken.sort_by_cached_key(|row| {
                arguments.first().map(|scalar| format!("{:?}", self.scalar(scalar, row).ok()))
            });
        } else {
            sort(&mut taken, order);
        }
        let mut values: Vec<Value> = Vec::new();
        for row in &taken {
            let value = match arguments.first() {
                Some(argument) => self.scalar(argument, row)?,
                None => Value::Boolean(true),
            };
            if !distinct || !values.iter().any(|other| same(other, &value)) {
                values.push(value);
            }
        }
        if name != "array_agg" {
            values.retain(|value| *value != Value::Null);
        }
        let integer = |value: &Value| match value {
            Value::Integer(value) => i64::from(*value),
            other => panic!("{other:?} is no integer"),
        };
        Ok(match name {
            "count" | "counted" => Value::BigInt(values.len() as i64),
            _ if values.is_empty() => Value::Null,
            "sum" => Value::BigInt(values.iter().map(integer).sum()),
            "min" => Value::Integer(values.iter().map(integer).min().expect("there are some") as i32),
            "max" => Value::Integer(values.iter().map(integer).max().expect("there are some") as i32),
            "array_agg" => Value::Array(values.into_iter().collect()),
            other => panic!("the reference has no aggregate {other}"),
        })
    }
}
