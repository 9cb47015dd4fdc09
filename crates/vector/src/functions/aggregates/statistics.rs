//! Averages, variances, correlations and regressions of floats, and variances of exact numbers.
//!
//! Sums of squared differences are kept by the method of Youngs and Cramer ("Some results relevant to choice of sum and
//! sum-of-product algorithms", Technometrics 13, 1971), as PostgreSQL keeps them, so that results agree to the last digits. Exact numbers
//! keep sums and sums of squares.

use crate::aggregate::Aggregate;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::image::{self, take};
use crate::kernel::slot::Slot;
use crate::kernel::{Argument, Call, Signature};
use crate::registry::RegistryBuilder;
use firn_base::numeric::Numeric;
use firn_base::operators::one_nan;
use firn_base::{Error, Representation, Result, SqlState};
use std::marker::PhantomData;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    for ty in ["float4", "float8"] {
        let mut add = |name: &str, result: fn(&One) -> Option<f64>| {
            let signature = format!("{name}({ty})");
            match ty {
                "float4" => builder.aggregate(&signature, OneColumn::<f32>(result, PhantomData)),
                _ => builder.aggregate(&signature, OneColumn::<f64>(result, PhantomData)),
            };
        };
        add("avg", |s| (s.n > 0.0).then(|| s.sum / s.n));
        add("var_pop", |s| (s.n > 0.0).then(|| s.squares / s.n));
        add("stddev_pop", |s| (s.n > 0.0).then(|| (s.squares / s.n).sqrt()));
        for name in ["var_samp", "variance"] {
            add(name, |s| (s.n > 1.0).then(|| s.squares / (s.n - 1.0)));
        }
        for name in ["stddev_samp", "stddev"] {
            add(name, |s| (s.n > 1.0).then(|| (s.squares / (s.n - 1.0)).sqrt()));
        }
    }
    let mut add = |name: &str, result: fn(&Two) -> Option<f64>| {
        builder.aggregate(&format!("{name}(float8,float8)"), TwoColumns(result));
    };
    add("regr_sxx", |s| (s.n > 0.0).then_some(s.xx));
    add("regr_syy", |s| (s.n > 0.0).then_some(s.yy));
    add("regr_sxy", |s| (s.n > 0.0).then_some(s.xy));
    add("regr_avgx", |s| (s.n > 0.0).then(|| s.x / s.n));
    add("regr_avgy", |s| (s.n > 0.0).then(|| s.y / s.n));
    add("covar_pop", |s| (s.n > 0.0).then(|| s.xy / s.n));
    add("covar_samp", |s| (s.n > 1.0).then(|| s.xy / (s.n - 1.0)));
    // Vertical and horizontal lines have no correlation.
    add("corr", |s| (s.n > 0.0 && s.xx != 0.0 && s.yy != 0.0).then(|| s.xy / (s.xx * s.yy).sqrt()));
    add("regr_r2", |s| match s.n > 0.0 && s.xx != 0.0 {
        true if s.yy == 0.0 => Some(1.0),
        true => Some(s.xy * s.xy / (s.xx * s.yy)),
        false => None,
    });
    add("regr_slope", |s| (s.n > 0.0 && s.xx != 0.0).then(|| s.xy / s.xx));
    add("regr_intercept", |s| (s.n > 0.0 && s.xx != 0.0).then(|| (s.y - s.x * s.xy / s.xx) / s.n));
    builder.aggregate("regr_count(float8,float8)", CountPairs);

    let mut exact = |name: &str, is_sample: bool, is_root: bool| {
        let kind = Exact { is_sample, is_root };
        builder.aggregate(&format!("{name}(int2)"), ExactColumn::<i16>(kind, PhantomData));
        builder.aggregate(&format!("{name}(int4)"), ExactColumn::<i32>(kind, PhantomData));
        builder.aggregate(&format!("{name}(int8)"), ExactColumn::<i64>(kind, PhantomData));
        builder.aggregate(&format!("{name}(numeric)"), ExactColumn::<Numeric>(kind, PhantomData));
    };
    exact("var_pop", false, false);
    exact("var_samp", true, false);
    exact("variance", true, false);
    exact("stddev_pop", false, true);
    exact("stddev_samp", true, true);
    exact("stddev", true, true);
}

#[cold]
fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

/// 22003 if a result is infinite and neither of the two that it is made of.
fn check<const N: usize>(parts: [(f64, f64, f64); N]) -> Result<()> {
    let is_overflow = |(result, left, right): &(f64, f64, f64)| {
        result.is_infinite() && !left.is_infinite() && !right.is_infinite()
    };
    if parts.iter().any(is_overflow) { Err(overflow()) } else { Ok(()) }
}

/// Number, sum, and sum of squared differences from the average.
#[derive(Clone, Copy, Default)]
struct One {
    n: f64,
    sum: f64,
    squares: f64,
}

struct OneColumn<A>(fn(&One) -> Option<f64>, PhantomData<fn(A)>);

impl<A> Clone for OneColumn<A> {
    fn clone(&self) -> Self {
        OneColumn(self.0, PhantomData)
    }
}

impl<A> Aggregate for OneColumn<A>
where
    A: for<'a> Argument<Row<'a> = A> + Into<f64> + Send + Sync,
{
    type Arguments = (A,);
    type State = One;

    fn accepts(result: Representation) -> bool {
        result == Representation::Float64
    }
    fn start(&self, _: &Signature) -> One {
        One::default()
    }
    fn add(&self, _: &mut Call<'_>, state: &mut One, (value,): (A,)) -> Result<()> {
        let value = value.into();
        let (sum, n) = (state.sum + value, state.n + 1.0);
        let mut squares = state.squares;
        if state.n > 0.0 {
            let difference = value * n - sum;
            squares += difference * difference / (n * state.n);
            if sum.is_infinite() || squares.is_infinite() {
                if state.sum.is_finite() && value.is_finite() {
                    return Err(overflow());
                }
                squares = f64::NAN;
            }
        } else if !value.is_finite() {
            squares = f64::NAN;
        }
        *state = One { n, sum, squares };
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut One, other: One) -> Result<()> {
        if state.n == 0.0 {
            *state = other;
        } else if other.n > 0.0 {
            let (n, sum) = (state.n + other.n, state.sum + other.sum);
            let difference = state.sum / state.n - other.sum / other.n;
            let squares = state.squares + other.squares + state.n * other.n * difference * difference / n;
            check([(sum, state.sum, other.sum), (squares, state.squares, other.squares)])?;
            *state = One { n, sum, squares };
        }
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &One, out: &mut Builder) -> Result<()> {
        out.push((self.0)(state).map_or(Datum::Null, |value| Datum::Float64(one_nan(value))));
        Ok(())
    }
    fn write(&self, state: &One, out: &mut Vec<u8>) {
        [state.n, state.sum, state.squares].iter().for_each(|part| write_float(*part, out));
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> One {
        One { n: read_float(image), sum: read_float(image), squares: read_float(image) }
    }
}

fn write_float(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn read_float(image: &mut &[u8]) -> f64 {
    f64::from_bits(u64::from_le_bytes(take(image)))
}

/// The same of pairs; `x` is the second argument.
#[derive(Clone, Copy, Default)]
struct Two {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

#[derive(Clone)]
struct TwoColumns(fn(&Two) -> Option<f64>);

impl Aggregate for TwoColumns {
    type Arguments = (f64, f64);
    type State = Two;

    fn accepts(result: Representation) -> bool {
        result == Representation::Float64
    }
    fn start(&self, _: &Signature) -> Two {
        Two::default()
    }
    fn add(&self, _: &mut Call<'_>, s: &mut Two, (y, x): (f64, f64)) -> Result<()> {
        let mut next = Two { n: s.n + 1.0, x: s.x + x, y: s.y + y, ..*s };
        if s.n > 0.0 {
            let (dx, dy) = (x * next.n - next.x, y * next.n - next.y);
            let scale = 1.0 / (next.n * s.n);
            next.xx += dx * dx * scale;
            next.yy += dy * dy * scale;
            next.xy += dx * dy * scale;
            let parts = [next.x, next.xx, next.y, next.yy, next.xy];
            if parts.iter().any(|part| part.is_infinite()) {
                let of_x = s.x.is_finite() && x.is_finite();
                let of_y = s.y.is_finite() && y.is_finite();
                let is_overflow = (next.x.is_infinite() || next.xx.is_infinite()) && of_x
                    || (next.y.is_infinite() || next.yy.is_infinite()) && of_y
                    || next.xy.is_infinite() && of_x && of_y;
                if is_overflow {
                    return Err(overflow());
                }
                let nan = |part: f64| if part.is_infinite() { f64::NAN } else { part };
                (next.xx, next.yy, next.xy) = (nan(next.xx), nan(next.yy), nan(next.xy));
            }
        } else {
            if !x.is_finite() {
                (next.xx, next.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (next.yy, next.xy) = (f64::NAN, f64::NAN);
            }
        }
        *s = next;
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, s: &mut Two, other: Two) -> Result<()> {
        if s.n == 0.0 {
            *s = other;
        } else if other.n > 0.0 {
            let n = s.n + other.n;
            let (dx, dy) = (s.x / s.n - other.x / other.n, s.y / s.n - other.y / other.n);
            let weight = s.n * other.n / n;
            let merged = Two {
                n,
                x: s.x + other.x,
                y: s.y + other.y,
                xx: s.xx + other.xx + weight * dx * dx,
                yy: s.yy + other.yy + weight * dy * dy,
                xy: s.xy + other.xy + weight * dx * dy,
            };
            check([
                (merged.x, s.x, other.x),
                (merged.xx, s.xx, other.xx),
                (merged.y, s.y, other.y),
                (merged.yy, s.yy, other.yy),
                (merged.xy, s.xy, other.xy),
            ])?;
            *s = merged;
        }
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &Two, out: &mut Builder) -> Result<()> {
        out.push((self.0)(state).map_or(Datum::Null, |value| Datum::Float64(one_nan(value))));
        Ok(())
    }
    fn write(&self, s: &Two, out: &mut Vec<u8>) {
        [s.n, s.x, s.xx, s.y, s.yy, s.xy].iter().for_each(|part| write_float(*part, out));
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Two {
        Two {
            n: read_float(image),
            x: read_float(image),
            xx: read_float(image),
            y: read_float(image),
            yy: read_float(image),
            xy: read_float(image),
        }
    }
}

#[derive(Clone)]
struct CountPairs;

impl Aggregate for CountPairs {
    type Arguments = (f64, f64);
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> i64 {
        0
    }
    fn add(&self, _: &mut Call<'_>, count: &mut i64, _: (f64, f64)) -> Result<()> {
        *count += 1;
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, count: &mut i64, other: i64) -> Result<()> {
        *count += other;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, count: &i64, out: &mut Builder) -> Result<()> {
        out.push(Datum::Int64(*count));
        Ok(())
    }
    fn write(&self, count: &i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&count.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> i64 {
        i64::from_le_bytes(take(image))
    }
}

/// Which variance.
#[derive(Clone, Copy)]
struct Exact {
    is_sample: bool,
    is_root: bool,
}

/// Number, sum and sum of squares of what is left of the values without the first one. The variance is the same, and the squares have
/// fewer digits. A value that is not finite is added as it is.
#[derive(Clone, Copy)]
struct Sums {
    n: i64,
    first: Numeric,
    sum: Numeric,
    squares: Numeric,
}

struct ExactColumn<A>(Exact, PhantomData<fn(A)>);

impl<A> Clone for ExactColumn<A> {
    fn clone(&self) -> Self {
        ExactColumn(self.0, PhantomData)
    }
}

/// A type of exact numbers.
trait Number {
    fn number(self) -> Numeric;
}

impl Number for i16 {
    fn number(self) -> Numeric {
        Numeric::from(i64::from(self))
    }
}

impl Number for i32 {
    fn number(self) -> Numeric {
        Numeric::from(i64::from(self))
    }
}

impl Number for i64 {
    fn number(self) -> Numeric {
        Numeric::from(self)
    }
}

impl Number for Numeric {
    fn number(self) -> Numeric {
        self
    }
}

impl<A> Aggregate for ExactColumn<A>
where
    A: for<'a> Argument<Row<'a> = A> + Number + Send + Sync,
{
    type Arguments = (A,);
    type State = Sums;

    fn accepts(result: Representation) -> bool {
        result == Representation::Numeric
    }
    fn start(&self, _: &Signature) -> Sums {
        Sums { n: 0, first: Numeric::ZERO, sum: Numeric::ZERO, squares: Numeric::ZERO }
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Sums, (value,): (A,)) -> Result<()> {
        let value = value.number();
        if state.n == 0 && value.is_finite() {
            state.first = value;
        }
        state.n += 1;
        let value = value.checked_sub(state.first)?;
        state.sum = state.sum.checked_add(value)?;
        state.squares = state.squares.checked_add(value.checked_mul(value)?)?;
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Sums, other: Sums) -> Result<()> {
        if state.n == 0 || other.n == 0 {
            *state = if state.n == 0 { other } else { *state };
            return Ok(());
        }
        // The values of the other state without the first one of this state: each is larger by the same difference.
        let more = other.first.checked_sub(state.first)?;
        let n = Numeric::from(other.n);
        let twice = more.checked_mul(other.sum)?.checked_mul(Numeric::from(2i64))?;
        let squares =
            other.squares.checked_add(twice)?.checked_add(more.checked_mul(more)?.checked_mul(n)?)?;
        state.n += other.n;
        state.sum = state.sum.checked_add(other.sum)?.checked_add(more.checked_mul(n)?)?;
        state.squares = state.squares.checked_add(squares)?;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &Sums, out: &mut Builder) -> Result<()> {
        let Exact { is_sample, is_root } = self.0;
        if state.n <= i64::from(is_sample) {
            out.push_null();
            return Ok(());
        }
        if !state.sum.is_finite() {
            out.push(Datum::Numeric(Numeric::NAN));
            return Ok(());
        }
        let n = Numeric::from(state.n);
        let differences = n.checked_mul(state.squares)?.checked_sub(state.sum.checked_mul(state.sum)?)?;
        let others = Numeric::from(state.n - i64::from(is_sample));
        out.push(Datum::Numeric(match differences.sign() {
            Some(1) => {
                let variance = differences.checked_div(n.checked_mul(others)?)?;
                let scale = variance.number().map_or(0, |(_, scale)| scale);
                if is_root { super::super::roots::root(variance, scale)? } else { variance }
            }
            // Without differences there are no decimals.
            _ => Numeric::ZERO,
        }));
        Ok(())
    }
    fn write(&self, state: &Sums, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.n.to_le_bytes());
        image::write(&Datum::Numeric(state.first), out);
        image::write(&Datum::Numeric(state.sum), out);
        image::write(&Datum::Numeric(state.squares), out);
    }
    fn read(&self, _: &Signature, bytes: &mut &[u8]) -> Sums {
        let n = i64::from_le_bytes(take(bytes));
        let mut slot = Slot::new();
        let mut number = || {
            image::read(bytes, Representation::Numeric, &mut slot);
            match slot.get() {
                Datum::Numeric(value) => value,
                other => panic!("{other:?} is no numeric"),
            }
        };
        Sums { n, first: number(), sum: number(), squares: number() }
    }
}
