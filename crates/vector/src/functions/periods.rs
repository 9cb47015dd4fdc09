//! Periods of time: OVERLAPS and `date_bin`.

use crate::kernel::Call;
use crate::registry::RegistryBuilder;
use firn_base::datetime::{self, MICROS_PER_DAY};
use firn_base::operators::{shift, shift_in_zone};
use firn_base::{Error, Interval, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(Option<i64>, Option<i64>, Option<i64>, Option<i64>), _>(
        "overlaps(timestamp,timestamp,timestamp,timestamp) overlaps(timestamptz,timestamptz,timestamptz,timestamptz) \
         overlaps(time,time,time,time)",
        |_, (from, to, other_from, other_to)| overlap((from, to), (other_from, other_to)),
    );
    with_lengths(builder, "timestamp", |_, moment, length| shift(moment, &length));
    with_lengths(builder, "timestamptz", |call, moment, length| {
        shift_in_zone(moment, &length, call.context.zone())
    });
    with_lengths(builder, "time", |_, time, length| {
        Ok(super::moments::on_the_clock(time, length.microseconds()))
    });
    builder.scalar::<(Interval, i64, i64), _>(
        "date_bin(interval,timestamp,timestamp) date_bin(interval,timestamptz,timestamptz)",
        |_, (stride, moment, origin)| bin(stride, moment, origin),
    );
}

/// OVERLAPS of periods of which one or both are given by their length.
fn with_lengths(
    builder: &mut RegistryBuilder,
    ty: &str,
    behind: fn(&mut Call<'_>, i64, Interval) -> Result<i64>,
) {
    type Moment = Option<i64>;
    type Length = Option<Interval>;
    let end = move |call: &mut Call<'_>, from: Moment, length: Length| match (from, length) {
        (Some(from), Some(length)) => behind(call, from, length).map(Some),
        _ => Ok(None),
    };
    builder.scalar::<(Moment, Length, Moment, Length), _>(
        &format!("overlaps({ty},interval,{ty},interval)"),
        move |call, (from, length, other_from, other_length)| {
            let to = end(call, from, length)?;
            let other_to = end(call, other_from, other_length)?;
            Ok::<_, Error>(overlap((from, to), (other_from, other_to)))
        },
    );
    builder.scalar::<(Moment, Moment, Moment, Length), _>(
        &format!("overlaps({ty},{ty},{ty},interval)"),
        move |call, (from, to, other_from, other_length)| {
            let other_to = end(call, other_from, other_length)?;
            Ok::<_, Error>(overlap((from, to), (other_from, other_to)))
        },
    );
    builder.scalar::<(Moment, Length, Moment, Moment), _>(
        &format!("overlaps({ty},interval,{ty},{ty})"),
        move |call, (from, length, other_from, other_to)| {
            let to = end(call, from, length)?;
            Ok::<_, Error>(overlap((from, to), (other_from, other_to)))
        },
    );
}

/// Whether two periods have a point in common, the end of each left out. The ends of a period may be given in either order, and one of
/// them may be unknown; then the result is, unless the other ones decide.
fn overlap(one: (Option<i64>, Option<i64>), other: (Option<i64>, Option<i64>)) -> Option<bool> {
    let ordered = |(from, to): (Option<i64>, Option<i64>)| match (from, to) {
        (Some(from), Some(to)) => Some((from.min(to), Some(from.max(to)))),
        (from, to) => from.or(to).map(|known| (known, None)),
    };
    let (one, other) = (ordered(one)?, ordered(other)?);
    let ((_, first_to), (later, later_to)) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    if one.0 == other.0 {
        return (first_to.is_some() && later_to.is_some()).then_some(true);
    }
    match later < first_to? {
        true => Some(true),
        false => later_to.map(|_| false),
    }
}

/// The beginning of the bin that a moment is in. Bins of one length begin at the origin.
fn bin(stride: Interval, moment: i64, origin: i64) -> Result<i64> {
    let refused = |message: &str| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message);
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let length = i64::from(stride.days).checked_mul(MICROS_PER_DAY);
    let length = length.and_then(|days| days.checked_add(stride.microseconds()));
    let length = length.ok_or_else(firn_base::interval::out_of_range)?;
    if length <= 0 {
        return Err(refused("stride must be greater than zero"));
    }
    if !datetime::is_finite(moment) {
        return Ok(moment);
    }
    if !datetime::is_finite(origin) {
        return Err(refused("origin out of range"));
    }
    let distance = moment.checked_sub(origin).ok_or_else(firn_base::interval::out_of_range)?;
    datetime::check_timestamp(moment.checked_sub(distance.rem_euclid(length)))
}
