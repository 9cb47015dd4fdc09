//! Variances, covariances and regressions of floats, by the formulas of PostgreSQL (Youngs and Cramer's), so that infinities make
//! the one NaN ([`crate::floats`]) while they are in a frame, and what double precision cannot hold is an error.
//!
//! Each of these is computed from the same sums: how many values there are, their sum and the sum of the squares of their
//! distances from the mean; of pairs `(y, x)` these of both, and the sum of the products of the distances. A single value is
//! the `x` of a pair whose `y` is 0.

use super::{any_type, passes};
use crate::error::to_datafusion;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use firn_base::operators::one_nan;
use firn_base::sync::Arc;
use firn_base::{Error, SqlState};
use std::collections::BTreeSet;

/// An aggregate of this file by its name.
pub fn statistic(name: &str) -> Option<Arc<AggregateUDF>> {
    let statistic = Statistic::named(name)?;
    Some(Arc::new(AggregateUDF::from(Aggregate { statistic, signature: any_type() })))
}

/// What is asked of values or pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Statistic {
    DeviationOfSample,
    DeviationOfPopulation,
    VarianceOfSample,
    VarianceOfPopulation,
    CovarianceOfSample,
    CovarianceOfPopulation,
    Correlation,
    Slope,
    Intercept,
    Determination,
    AverageX,
    AverageY,
    SquaresX,
    SquaresY,
    Products,
}

impl Statistic {
    fn named(name: &str) -> Option<Statistic> {
        Some(match name {
            "stddev" | "stddev_samp" => Statistic::DeviationOfSample,
            "stddev_pop" => Statistic::DeviationOfPopulation,
            "variance" | "var_samp" | "var" | "var_sample" => Statistic::VarianceOfSample,
            "var_pop" | "var_population" => Statistic::VarianceOfPopulation,
            "covar_samp" | "covar" => Statistic::CovarianceOfSample,
            "covar_pop" => Statistic::CovarianceOfPopulation,
            "corr" => Statistic::Correlation,
            "regr_slope" => Statistic::Slope,
            "regr_intercept" => Statistic::Intercept,
            "regr_r2" => Statistic::Determination,
            "regr_avgx" => Statistic::AverageX,
            "regr_avgy" => Statistic::AverageY,
            "regr_sxx" => Statistic::SquaresX,
            "regr_syy" => Statistic::SquaresY,
            "regr_sxy" => Statistic::Products,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Statistic::DeviationOfSample => "stddev_samp",
            Statistic::DeviationOfPopulation => "stddev_pop",
            Statistic::VarianceOfSample => "var_samp",
            Statistic::VarianceOfPopulation => "var_pop",
            Statistic::CovarianceOfSample => "covar_samp",
            Statistic::CovarianceOfPopulation => "covar_pop",
            Statistic::Correlation => "corr",
            Statistic::Slope => "regr_slope",
            Statistic::Intercept => "regr_intercept",
            Statistic::Determination => "regr_r2",
            Statistic::AverageX => "regr_avgx",
            Statistic::AverageY => "regr_avgy",
            Statistic::SquaresX => "regr_sxx",
            Statistic::SquaresY => "regr_syy",
            Statistic::Products => "regr_sxy",
        }
    }

    fn arguments(self) -> usize {
        match self {
            Statistic::DeviationOfSample
            | Statistic::DeviationOfPopulation
            | Statistic::VarianceOfSample
            | Statistic::VarianceOfPopulation => 1,
            _ => 2,
        }
    }

    /// What it is of values with such sums.
    fn of(self, sums: &Sums) -> Option<f64> {
        let Sums { count, x, xx, y, yy, xy } = *sums;
        if count < 1.0 {
            return None;
        }
        let value = match self {
            Statistic::DeviationOfSample | Statistic::VarianceOfSample | Statistic::CovarianceOfSample
                if count < 2.0 =>
            {
                return None;
            }
            Statistic::DeviationOfSample => (xx / (count - 1.0)).sqrt(),
            Statistic::DeviationOfPopulation => (xx / count).sqrt(),
            Statistic::VarianceOfSample => xx / (count - 1.0),
            Statistic::VarianceOfPopulation => xx / count,
            Statistic::CovarianceOfSample => xy / (count - 1.0),
            Statistic::CovarianceOfPopulation => xy / count,
            Statistic::Correlation if xx == 0.0 || yy == 0.0 => return None,
            Statistic::Correlation => xy / (xx * yy).sqrt(),
            Statistic::Slope | Statistic::Intercept | Statistic::Determination if xx == 0.0 => return None,
            Statistic::Slope => xy / xx,
            Statistic::Intercept => (y - x * xy / xx) / count,
            Statistic::Determination if yy == 0.0 => 1.0,
            Statistic::Determination => (xy * xy) / (xx * yy),
            Statistic::AverageX => x / count,
            Statistic::AverageY => y / count,
            Statistic::SquaresX => xx,
            Statistic::SquaresY => yy,
            Statistic::Products => xy,
        };
        Some(one_nan(value))
    }
}

/// Sums of pairs; see above.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

/// A pair.
#[derive(Clone, Copy, Debug)]
struct Row {
    y: f64,
    x: f64,
}

/// The names of the fields of [`Sums`], in the order in which they are handed on.
const FIELDS: [&str; 6] = ["count", "x", "y", "xx", "yy", "xy"];

impl Sums {
    /// These and one more pair.
    fn with(self, row: Row) -> Result<Sums> {
        let Row { x, y } = row;
        if self.count == 0.0 {
            // The distance of an infinity from itself.
            let nothing = |is_finite: bool| if is_finite { 0.0 } else { f64::NAN };
            return Ok(Sums {
                count: 1.0,
                x,
                y,
                xx: nothing(x.is_finite()),
                yy: nothing(y.is_finite()),
                xy: nothing(x.is_finite() && y.is_finite()),
            });
        }
        let count = self.count + 1.0;
        let sums = Sums { count, x: self.x + x, y: self.y + y, ..self };
        let (to_x, to_y) = (x * count - sums.x, y * count - sums.y);
        let weight = count * self.count;
        let next = Sums {
            xx: self.xx + to_x * to_x / weight,
            yy: self.yy + to_y * to_y / weight,
            xy: self.xy + to_x * to_y / weight,
            ..sums
        };
        next.checked(self, Sums { x, y, ..Sums::default() })
    }

    /// The sums of two lots.
    fn and(self, other: Sums) -> Result<Sums> {
        if self.count == 0.0 {
            return Ok(other);
        }
        if other.count == 0.0 {
            return Ok(self);
        }
        let count = self.count + other.count;
        let (to_x, to_y) =
            (self.x / self.count - other.x / other.count, self.y / self.count - other.y / other.count);
        let weight = self.count * other.count / count;
        let next = Sums {
            count,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx + weight * to_x * to_x,
            yy: self.yy + other.yy + weight * to_y * to_y,
            xy: self.xy + other.xy + weight * to_x * to_y,
        };
        next.checked(self, other)
    }

    /// Sums that have come of two others: infinite only if one of these was, and then there is no distance.
    fn checked(self, one: Sums, other: Sums) -> Result<Sums> {
        let is_endless = |value: f64, squares: f64| value.is_infinite() || squares.is_infinite();
        let (x, y) = (is_endless(self.x, self.xx), is_endless(self.y, self.yy));
        if !(x || y || self.xy.is_infinite()) {
            return Ok(self);
        }
        let (was_x, was_y) = (is_odd(one.x) || is_odd(other.x), is_odd(one.y) || is_odd(other.y));
        if x && !was_x || y && !was_y || self.xy.is_infinite() && !(was_x || was_y) {
            let message = "value out of range: overflow";
            return Err(to_datafusion(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)));
        }
        let distance = |is_endless: bool, value: f64| if is_endless { f64::NAN } else { value };
        Ok(Sums {
            xx: distance(x, self.xx),
            yy: distance(y, self.yy),
            xy: distance(x || y || self.xy.is_infinite(), self.xy),
            ..self
        })
    }

    fn fields(&self) -> [f64; 6] {
        [self.count, self.x, self.y, self.xx, self.yy, self.xy]
    }

    fn of_fields([count, x, y, xx, yy, xy]: [f64; 6]) -> Sums {
        Sums { count, x, y, xx, yy, xy }
    }
}

fn is_odd(value: f64) -> bool {
    !value.is_finite()
}

/// The arguments of an aggregate, row by row.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Single(&'a Float64Array),
    Pairs { y: &'a Float64Array, x: &'a Float64Array },
}

impl<'a> Rows<'a> {
    fn of(arguments: &'a [ArrayRef]) -> Rows<'a> {
        match arguments {
            [x] => Rows::Single(x.as_primitive::<Float64Type>()),
            [y, x] => Rows::Pairs { y: y.as_primitive::<Float64Type>(), x: x.as_primitive::<Float64Type>() },
            other => panic!("they take one argument or two, not {}", other.len()),
        }
    }

    fn count(self) -> usize {
        match self {
            Rows::Single(x) | Rows::Pairs { x, .. } => x.len(),
        }
    }

    /// A row, if nothing in it is NULL.
    fn get(self, row: usize) -> Option<Row> {
        match self {
            Rows::Single(x) => x.is_valid(row).then(|| Row { x: x.value(row), y: 0.0 }),
            Rows::Pairs { y, x } => {
                (x.is_valid(row) && y.is_valid(row)).then(|| Row { x: x.value(row), y: y.value(row) })
            }
        }
    }

    fn all(self) -> impl Iterator<Item = Option<Row>> {
        (0..self.count()).map(move |row| self.get(row))
    }
}

/// Partial sums, one in each row.
fn partial(states: &[ArrayRef]) -> impl Iterator<Item = Sums> {
    let fields: Vec<&Float64Array> = states.iter().map(|field| field.as_primitive::<Float64Type>()).collect();
    let rows = fields[0].len();
    (0..rows).map(move |row| Sums::of_fields(std::array::from_fn(|field| fields[field].value(row))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    statistic: Statistic,
    signature: Signature,
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.statistic.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |ty: &DataType| ty.is_numeric() || ty.is_null();
        if arguments.len() != self.statistic.arguments() || !arguments.iter().all(is_number) {
            return exec_err!("Function '{}' takes other arguments", self.name());
        }
        Ok(vec![DataType::Float64; arguments.len()])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let named = |name: &str, ty: DataType| {
            Arc::new(Field::new(format_state_name(arguments.name, name), ty, false))
        };
        Ok(match arguments.is_distinct {
            true => vec![named("rows", list_type())],
            false => FIELDS.iter().map(|field| named(field, DataType::Float64)).collect(),
        })
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let statistic = self.statistic;
        Ok(match arguments.is_distinct {
            true => Box::new(OfDistinct { statistic, rows: BTreeSet::new() }),
            false => Box::new(OfAll { statistic, sums: Sums::default() }),
        })
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(&self, _arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(OfGroups { statistic: self.statistic, groups: Vec::new() }))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return self.accumulator(arguments);
        }
        let (came, leaving) = (Vec::new(), Vec::new());
        Ok(Box::new(OfFrame { statistic: self.statistic, came, sums_of_came: Sums::default(), leaving }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// One group.
#[derive(Debug)]
struct OfAll {
    statistic: Statistic,
    sums: Sums,
}

impl Accumulator for OfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in Rows::of(values).all().flatten() {
            self.sums = self.sums.with(row)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.statistic.of(&self.sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.sums.fields().map(|field| ScalarValue::Float64(Some(field))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for sums in partial(states) {
            self.sums = self.sums.and(sums)?;
        }
        Ok(())
    }
}

/// Many groups.
struct OfGroups {
    statistic: Statistic,
    groups: Vec<Sums>,
}

/// The fields of sums as columns.
fn columns(sums: impl ExactSizeIterator<Item = Sums>) -> Vec<ArrayRef> {
    let mut columns: [Vec<f64>; 6] = std::array::from_fn(|_| Vec::with_capacity(sums.len()));
    for sums in sums {
        for (column, field) in columns.iter_mut().zip(sums.fields()) {
            column.push(field);
        }
    }
    columns.into_iter().map(|column| Arc::new(Float64Array::from(column)) as ArrayRef).collect()
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Sums::default());
        for (index, (group, row)) in group_indices.iter().zip(Rows::of(values).all()).enumerate() {
            if let (Some(row), true) = (row, passes(opt_filter, index)) {
                self.groups[*group] = self.groups[*group].with(row)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let values: Float64Array = groups.iter().map(|sums| self.statistic.of(sums)).collect();
        Ok(Arc::new(values))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(columns(emit_to.take_needed(&mut self.groups).into_iter()))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Sums::default());
        for (group, sums) in group_indices.iter().zip(partial(values)) {
            self.groups[*group] = self.groups[*group].and(sums)?;
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut groups = Vec::with_capacity(values[0].len());
        for (index, row) in Rows::of(values).all().enumerate() {
            groups.push(match row.filter(|_| passes(opt_filter, index)) {
                Some(row) => Sums::default().with(row)?,
                None => Sums::default(),
            });
        }
        Ok(columns(groups.into_iter()))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Sums>()
    }
}

/// A frame that rows leave, by two stacks as in [`super::sliding`].
#[derive(Debug)]
struct OfFrame {
    statistic: Statistic,
    /// The rows that came last.
    came: Vec<Option<Row>>,
    sums_of_came: Sums,
    /// Of those before them, the next to leave at the end, the sums from each to the last.
    leaving: Vec<Sums>,
}

impl Accumulator for OfFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in Rows::of(values).all() {
            self.came.push(row);
            if let Some(row) = row {
                self.sums_of_came = self.sums_of_came.with(row)?;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() {
            if self.leaving.is_empty() {
                let mut sums = Sums::default();
                for row in self.came.drain(..).rev() {
                    if let Some(row) = row {
                        sums = sums.with(row)?;
                    }
                    self.leaving.push(sums);
                }
                self.sums_of_came = Sums::default();
            }
            self.leaving.pop().expect("who leaves has come");
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let before = self.leaving.last().copied().unwrap_or_default();
        Ok(ScalarValue::Float64(self.statistic.of(&before.and(self.sums_of_came)?)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.came.capacity() * size_of::<Option<Row>>()
            + self.leaving.capacity() * size_of::<Sums>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("frames are not merged")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("frames are not merged")
    }
}

/// One group, of which equal rows count once. Lowering has left no equal floats with other bits.
#[derive(Debug)]
struct OfDistinct {
    statistic: Statistic,
    /// The bits of `y` and `x`: in an order, so that sums are the same whenever they are computed.
    rows: BTreeSet<[u64; 2]>,
}

/// What partial sets are handed on as: `y` and `x` of each row, one behind the other.
fn list_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
}

impl Accumulator for OfDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = Rows::of(values).all().flatten();
        self.rows.extend(rows.map(|Row { y, x }| [y.to_bits(), x.to_bits()]));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sums = Sums::default();
        for [y, x] in &self.rows {
            sums = sums.with(Row { y: f64::from_bits(*y), x: f64::from_bits(*x) })?;
        }
        Ok(ScalarValue::Float64(self.statistic.of(&sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.len() * size_of::<[u64; 2]>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bits = self.rows.iter().flatten();
        let values: Vec<ScalarValue> =
            bits.map(|bits| ScalarValue::Float64(Some(f64::from_bits(*bits)))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            let values = list.as_primitive::<Float64Type>().values();
            let pairs = values.chunks_exact(2);
            self.rows.extend(pairs.map(|pair| [pair[0].to_bits(), pair[1].to_bits()]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(rows: &[(f64, f64)]) -> Sums {
        rows.iter().fold(Sums::default(), |sums, (y, x)| sums.with(Row { y: *y, x: *x }).unwrap())
    }

    #[test]
    fn sums_of_two_lots_are_those_of_all_values() {
        let rows = [(1.0, 2.0), (2.0, 5.0), (4.0, 3.0), (-1.0, 8.0), (7.0, 7.0)];
        let all = sums(&rows).fields();
        for split in 0..=rows.len() {
            let parts = sums(&rows[..split]).and(sums(&rows[split..])).unwrap().fields();
            for (part, whole) in parts.into_iter().zip(all) {
                assert!((part - whole).abs() < 1e-9, "{split}: {parts:?} {all:?}");
            }
        }
        assert_eq!(Statistic::VarianceOfSample.of(&sums(&[(0.0, 1.0), (0.0, 3.0)])), Some(2.0));
        assert_eq!(Statistic::Slope.of(&sums(&[(1.0, 1.0), (5.0, 3.0)])), Some(2.0));
        assert_eq!(Statistic::Correlation.of(&sums(&[(1.0, 1.0), (5.0, 1.0)])), None);
    }

    #[test]
    fn infinities_make_the_one_nan_and_what_does_not_fit_is_an_error() {
        let nan = |value: Option<f64>| value.map(f64::to_bits) == Some(f64::NAN.to_bits());
        for rows in [[(1.0, f64::INFINITY), (2.0, 1.0)], [(2.0, 1.0), (1.0, f64::NEG_INFINITY)]] {
            let sums = sums(&rows);
            assert!(nan(Statistic::DeviationOfSample.of(&sums)), "{sums:?}");
            assert!(nan(Statistic::Correlation.of(&sums)));
            assert_eq!(Statistic::SquaresY.of(&sums), Some(0.5));
            assert!(nan(Statistic::VarianceOfPopulation.of(&sums.and(sums).unwrap())));
        }
        assert!(nan(Statistic::VarianceOfPopulation.of(&sums(&[(0.0, f64::INFINITY)]))));
        let one = sums(&[(0.0, 1e308)]);
        assert!(one.with(Row { y: 0.0, x: -1e308 }).is_err());
        assert!(one.and(sums(&[(0.0, -1e308)])).is_err());
    }
}
