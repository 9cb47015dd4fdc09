//! Functions of dates, times, timestamps and intervals.

use super::integers::division_by_zero;
use crate::kernel::prepared::prepared;
use crate::kernel::scalar::scalar;
use crate::kernel::{Argument, Call, Outcome, Text};
use crate::registry::RegistryBuilder;
use firn_base::datetime::{self, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};
use firn_base::numeric::Numeric;
use firn_base::operators::{days_between, move_date, shift, shift_in_zone, span};
use firn_base::sync::Arc;
use firn_base::{Error, Interval, Result, SqlState, TimeZoneSetting, clock};
use std::fmt::Write;

const MILLION: i128 = 1_000_000;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    arithmetic(builder);
    fields(builder);
    making(builder);
    builder.scalar::<(), _>("now() transaction_timestamp()", |call, ()| call.context.transaction_time);
    builder.scalar::<(), _>("statement_timestamp()", |call, ()| call.context.statement_time);
    builder.scalar::<(), _>("clock_timestamp()", |_, ()| clock::wall_clock_micros());
    builder.scalar::<(), _>("timeofday()", |call, ()| {
        write_time_of_day(clock::wall_clock_micros(), call.context.zone(), &mut call.text);
        Text
    });
}

/// Appends a moment as `timeofday` shows it: `Wed Feb 21 17:38:46.123456 2024 CET`.
fn write_time_of_day(moment: i64, zone: &TimeZoneSetting, out: &mut String) {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let local = moment + i64::from(zone.offset_at(moment)) * MICROS_PER_SECOND;
    let (days, time) = (local.div_euclid(MICROS_PER_DAY), local.rem_euclid(MICROS_PER_DAY));
    let (year, month, day) = civil_from_days(days);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    let (seconds, micros) = (time / MICROS_PER_SECOND, time % MICROS_PER_SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let zone = zone.abbreviation_at(moment);
    write!(out, "{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {year:04} {zone}")
        .expect("strings take all");
}

fn arithmetic(builder: &mut RegistryBuilder) {
    builder.scalar::<(i32, i32), _>("date_mi(date,date)", |_, (left, right)| days_between(left, right));
    builder.scalar::<(i32, i32), _>("date_pli(date,int4)", |_, (days, more)| move_date(days, more.into()));
    builder.scalar::<(i32, i32), _>("integer_pl_date(int4,date)", |_, (more, days)| {
        move_date(days, more.into())
    });
    builder
        .scalar::<(i32, i32), _>("date_mii(date,int4)", |_, (days, less)| move_date(days, -i64::from(less)));
    builder.scalar::<(i32, Interval), _>("date_pl_interval(date,interval)", |_, (days, by)| {
        shift(datetime::date_to_timestamp(days)?, &by)
    });
    builder.scalar::<(Interval, i32), _>("interval_pl_date(interval,date)", |_, (by, days)| {
        shift(datetime::date_to_timestamp(days)?, &by)
    });
    builder.scalar::<(i32, Interval), _>("date_mi_interval(date,interval)", |_, (days, by)| {
        shift(datetime::date_to_timestamp(days)?, &by.checked_neg()?)
    });
    builder.scalar::<(i64, Interval), _>("timestamp_pl_interval(timestamp,interval)", |_, (moment, by)| {
        shift(moment, &by)
    });
    builder.scalar::<(Interval, i64), _>("interval_pl_timestamp(interval,timestamp)", |_, (by, moment)| {
        shift(moment, &by)
    });
    builder.scalar::<(i64, Interval), _>("timestamp_mi_interval(timestamp,interval)", |_, (moment, by)| {
        shift(moment, &by.checked_neg()?)
    });
    builder.scalar::<(i64, Interval), _>(
        "timestamptz_pl_interval(timestamptz,interval)",
        |call, (moment, by)| shift_in_zone(moment, &by, call.context.zone()),
    );
    builder.scalar::<(Interval, i64), _>(
        "interval_pl_timestamptz(interval,timestamptz)",
        |call, (by, moment)| shift_in_zone(moment, &by, call.context.zone()),
    );
    builder.scalar::<(i64, Interval), _>(
        "timestamptz_mi_interval(timestamptz,interval)",
        |call, (moment, by)| shift_in_zone(moment, &by.checked_neg()?, call.context.zone()),
    );
    builder.scalar::<(i64, i64), _>(
        "timestamp_mi(timestamp,timestamp) timestamptz_mi(timestamptz,timestamptz)",
        |_, (left, right)| span(left, right),
    );
    builder.scalar::<(i64, Interval), _>("time_pl_interval(time,interval)", |_, (time, by)| {
        on_the_clock(time, by.microseconds())
    });
    builder.scalar::<(Interval, i64), _>("interval_pl_time(interval,time)", |_, (by, time)| {
        on_the_clock(time, by.microseconds())
    });
    builder.scalar::<(i64, Interval), _>("time_mi_interval(time,interval)", |_, (time, by)| {
        on_the_clock(time, -(by.microseconds() % MICROS_PER_DAY))
    });
    builder.scalar::<(i64, i64), _>("time_mi_time(time,time)", |_, (left, right)| {
        Interval::from_parts(0, 0, left - right)
    });
    builder.scalar::<(Interval, Interval), _>("interval_pl(interval,interval)", |_, (left, right)| {
        left.checked_add(right)
    });
    builder.scalar::<(Interval, Interval), _>("interval_mi(interval,interval)", |_, (left, right)| {
        left.checked_sub(right)
    });
    builder.scalar::<(Interval,), _>("interval_um(interval)", |_, (value,)| value.checked_neg());
    builder.scalar::<(Interval, f64), _>("interval_mul(interval,float8)", |_, (value, factor)| {
        value.checked_mul(factor)
    });
    builder.scalar::<(f64, Interval), _>("mul_d_interval(float8,interval)", |_, (factor, value)| {
        value.checked_mul(factor)
    });
    builder.scalar::<(Interval, f64), _>(
        "interval_div(interval,float8)",
        |_, (value, divisor)| match divisor == 0.0 {
            true => Err(division_by_zero()),
            false => value.checked_div(divisor),
        },
    );
    builder.scalar::<(i64, i64), _>("age(timestamp,timestamp)", |_, (later, earlier)| age(later, earlier));
    builder.scalar::<(i64,), _>("age(timestamp)", |call, (earlier,)| age(midnight(call.context)?, earlier));
    builder.scalar::<(i64, i64), _>("age(timestamptz,timestamptz)", |call, (later, earlier)| {
        let zone = call.context.zone();
        age(datetime::to_local(later, zone)?, datetime::to_local(earlier, zone)?)
    });
    builder.scalar::<(i64,), _>("age(timestamptz)", |call, (earlier,)| {
        age(midnight(call.context)?, datetime::to_local(earlier, call.context.zone())?)
    });
    builder.scalar::<(Interval,), _>("justify_hours(interval)", |_, (value,)| justify_hours(value));
    builder.scalar::<(Interval,), _>("justify_days(interval)", |_, (value,)| justify_days(value));
    builder.scalar::<(Interval,), _>("justify_interval(interval)", |_, (value,)| justify(value));
    builder.scalar::<(&str, i64), _>("timezone(text,timestamptz)", |_, (zone, moment)| {
        datetime::to_local(moment, &TimeZoneSetting::named(zone)?)
    });
    builder.scalar::<(&str, i64), _>("timezone(text,timestamp)", |_, (zone, local)| {
        datetime::to_utc(local, &TimeZoneSetting::named(zone)?)
    });
    builder.scalar::<(Interval, i64), _>("timezone(interval,timestamptz)", |_, (offset, moment)| {
        move_clock(moment, zone_offset(offset)?)
    });
    builder.scalar::<(Interval, i64), _>("timezone(interval,timestamp)", |_, (offset, local)| {
        move_clock(local, -zone_offset(offset)?)
    });
    builder.scalar::<(i32,), _>("isfinite(date)", |_, (days,)| datetime::is_finite_date(days));
    builder.scalar::<(i64,), _>("isfinite(timestamp) isfinite(timestamptz)", |_, (moment,)| {
        datetime::is_finite(moment)
    });
    builder.scalar::<(Interval,), _>("isfinite(interval)", |_, (_,)| true);
}

/// A moment so many microseconds later.
fn move_clock(moment: i64, by: i64) -> Result<i64> {
    match datetime::is_finite(moment) {
        true => datetime::check_timestamp(moment.checked_add(by)),
        false => Ok(moment),
    }
}

/// A time of day moved by some microseconds, round the clock.
pub fn on_the_clock(time: i64, by: i64) -> i64 {
    (time + by % MICROS_PER_DAY).rem_euclid(MICROS_PER_DAY)
}

/// The beginning of the current day, as the clocks of the session's zone show it.
fn midnight(context: &crate::Context<'_>) -> Result<i64> {
    let local = datetime::to_local(context.transaction_time, context.zone())?;
    Ok(local - local.rem_euclid(MICROS_PER_DAY))
}

/// The microseconds of an interval that is an offset of a zone.
fn zone_offset(offset: Interval) -> Result<i64> {
    if offset.months != 0 || offset.days != 0 {
        let message = "interval time zone must not include months or days";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(offset.microseconds())
}

/// The span between two moments on the clock in years, months, days and time.
fn age(later: i64, earlier: i64) -> Result<Interval> {
    if !datetime::is_finite(later) || !datetime::is_finite(earlier) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"));
    }
    if later < earlier {
        return age(earlier, later)?.checked_neg();
    }
    let split = |micros: i64| {
        let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
        (year, i64::from(month), i64::from(day), micros.rem_euclid(MICROS_PER_DAY))
    };
    let (y1, m1, d1, t1) = split(later);
    let (y0, m0, d0, t0) = split(earlier);
    let (mut months, mut days, mut time) = ((y1 - y0) * 12 + m1 - m0, d1 - d0, t1 - t0);
    if time < 0 {
        time += MICROS_PER_DAY;
        days -= 1;
    }
    while days < 0 {
        // Days are borrowed from the month in which the earlier moment lies.
        days += i64::from(datetime::days_in_month(y0, m0 as u32));
        months -= 1;
    }
    Interval::from_parts(months as i32, days as i32, time)
}

fn interval_of(months: i64, days: i64, micros: i64) -> Result<Interval> {
    match (i32::try_from(months), i32::try_from(days)) {
        (Ok(months), Ok(days)) => Interval::from_parts(months, days, micros),
        _ => Err(firn_base::interval::out_of_range()),
    }
}

/// With full days taken out of the hours, and one sign for both.
fn justify_hours(value: Interval) -> Result<Interval> {
    let micros = value.microseconds();
    let (mut days, mut micros) = (i64::from(value.days) + micros / MICROS_PER_DAY, micros % MICROS_PER_DAY);
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROS_PER_DAY);
    }
    interval_of(value.months.into(), days, micros)
}

/// With full months of 30 days taken out of the days, and one sign for both.
fn justify_days(value: Interval) -> Result<Interval> {
    let (mut months, mut days) =
        (i64::from(value.months) + i64::from(value.days / 30), i64::from(value.days % 30));
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    interval_of(months, days, value.microseconds())
}

/// Both, and one sign for all three parts.
fn justify(value: Interval) -> Result<Interval> {
    let micros = value.microseconds();
    let (mut days, mut micros) = (i64::from(value.days) + micros / MICROS_PER_DAY, micros % MICROS_PER_DAY);
    let mut months = i64::from(value.months) + days / 30;
    days %= 30;
    let is_negative = |months: i64, days: i64, micros: i64| {
        months < 0 || months == 0 && (days < 0 || days == 0 && micros < 0)
    };
    if months > 0 && (days < 0 || days == 0 && micros < 0) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || days == 0 && micros > 0) {
        (months, days) = (months + 1, days - 30);
    }
    if !is_negative(0, days, 0) && days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + MICROS_PER_DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - MICROS_PER_DAY);
    }
    interval_of(months, days, micros)
}

/// A value that has fields.
pub enum Moment {
    /// Microseconds as the clock shows them, and, of a moment in a zone, the offset in seconds.
    Point(i64, Option<i32>),
    Day(i32),
    Time(i64),
    Span(Interval),
}

fn fields(builder: &mut RegistryBuilder) {
    of_unit::<i32, _>(builder, "extract(text,date)", |_, unit, days| unit.extract(Moment::Day(days)));
    of_unit::<i64, _>(builder, "extract(text,time)", |_, unit, time| unit.extract(Moment::Time(time)));
    of_unit::<i64, _>(builder, "extract(text,timestamp)", |_, unit, local| {
        unit.extract(Moment::Point(local, None))
    });
    of_unit::<i64, _>(builder, "extract(text,timestamptz)", |call, unit, moment| {
        unit.extract(in_zone(moment, call.context.zone())?)
    });
    of_unit::<Interval, _>(builder, "extract(text,interval)", |_, unit, span| {
        unit.extract(Moment::Span(span))
    });
    let part =
        |unit: &Named, moment: Moment| Ok::<_, Error>(unit.extract(moment)?.map(|field| field.to_f64()));
    // A date has the fields of its midnight here.
    of_unit::<i32, _>(builder, "date_part(text,date)", move |_, unit, days| {
        part(unit, Moment::Point(datetime::date_to_timestamp(days)?, None))
    });
    of_unit::<i64, _>(builder, "date_part(text,time)", move |_, unit, time| part(unit, Moment::Time(time)));
    of_unit::<i64, _>(builder, "date_part(text,timestamp)", move |_, unit, local| {
        part(unit, Moment::Point(local, None))
    });
    of_unit::<i64, _>(builder, "date_part(text,timestamptz)", move |call, unit, moment| {
        part(unit, in_zone(moment, call.context.zone())?)
    });
    of_unit::<Interval, _>(builder, "date_part(text,interval)", move |_, unit, span| {
        part(unit, Moment::Span(span))
    });

    of_unit::<i64, _>(builder, "date_trunc(text,timestamp)", |_, unit, local| {
        truncate(unit, local, "timestamp without time zone")
    });
    of_unit::<i64, _>(builder, "date_trunc(text,timestamptz)", |call, unit, moment| {
        truncate_in_zone(unit, moment, call.context.zone())
    });
    builder.scalar::<(&str, i64, &str), _>("date_trunc(text,timestamptz,text)", |_, (unit, moment, zone)| {
        truncate_in_zone(&Named::new(unit), moment, &TimeZoneSetting::named(zone)?)
    });
    of_unit::<Interval, _>(builder, "date_trunc(text,interval)", |_, unit, span| truncate_by(unit, span));
}

/// Adds a function of the name of a unit, which is looked up once where it is constant, and a value.
fn of_unit<A: Argument, O: Outcome + 'static>(
    builder: &mut RegistryBuilder,
    signature: &str,
    function: impl for<'a> Fn(&mut Call<'_>, &Named, A::Row<'a>) -> O + Copy + Send + Sync + 'static,
) {
    let general = scalar::<(&str, A), O>(move |call, (name, value)| function(call, &Named::new(name), value));
    builder.kernel(signature, Arc::new(prepared::<A, Named, O>(general, 0, Named::new, function)));
}

fn in_zone(moment: i64, zone: &TimeZoneSetting) -> Result<Moment> {
    if !datetime::is_finite(moment) {
        return Ok(Moment::Point(moment, Some(0)));
    }
    Ok(Moment::Point(datetime::to_local(moment, zone)?, Some(zone.offset_at(moment))))
}

#[cold]
fn unknown_unit(unit: &str, ty: &str, is_known: bool) -> Error {
    let message = match is_known {
        true => format!("unit \"{unit}\" not supported for type {ty}"),
        false => format!("unit \"{unit}\" not recognized for type {ty}"),
    };
    let state = if is_known { SqlState::FEATURE_NOT_SUPPORTED } else { SqlState::INVALID_PARAMETER_VALUE };
    Error::new(state, message)
}

/// A unit of time, by any of its names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    Julian,
    DayOfWeek,
    IsoDayOfWeek,
    IsoYear,
    DayOfYear,
    Zone,
    ZoneHour,
    ZoneMinute,
}

fn unit_named(name: &str) -> Option<Unit> {
    const NAMES: &[(&str, Unit)] = &[
        ("microsecond microseconds microsecon usec usecs us usecond useconds", Unit::Microsecond),
        ("millisecond milliseconds millisecon msec msecs ms msecond mseconds", Unit::Millisecond),
        ("second seconds s sec secs", Unit::Second),
        ("minute minutes m min mins", Unit::Minute),
        ("hour hours h hr hrs", Unit::Hour),
        ("day days d", Unit::Day),
        ("week weeks w", Unit::Week),
        ("month months mon mons", Unit::Month),
        ("quarter qtr", Unit::Quarter),
        ("year years y yr yrs", Unit::Year),
        ("decade decades dec decs", Unit::Decade),
        ("century centuries c cent", Unit::Century),
        ("millennium millennia mil mils", Unit::Millennium),
        ("epoch", Unit::Epoch),
        ("julian j jd", Unit::Julian),
        ("dow", Unit::DayOfWeek),
        ("isodow", Unit::IsoDayOfWeek),
        ("isoyear", Unit::IsoYear),
        ("doy", Unit::DayOfYear),
        ("timezone", Unit::Zone),
        ("timezone_hour timezone_h", Unit::ZoneHour),
        ("timezone_minute timezone_m", Unit::ZoneMinute),
    ];
    let name = name.to_ascii_lowercase();
    NAMES.iter().find(|(names, _)| names.split(' ').any(|known| known == name)).map(|(_, unit)| *unit)
}

/// A unit, or what is none, with its name for errors.
struct Named {
    name: Box<str>,
    unit: Option<Unit>,
}

impl Named {
    fn new(name: &str) -> Named {
        Named { name: name.into(), unit: unit_named(name) }
    }

    /// The field of a value; `None` of an infinite one if it does not grow with time.
    fn extract(&self, moment: Moment) -> Result<Option<Numeric>> {
        extract_unit(&self.name, self.unit, moment)
    }
}

/// A field of a value; `None` of an infinite one if it does not grow with time.
pub fn extract(name: &str, moment: Moment) -> Result<Option<Numeric>> {
    Named::new(name).extract(moment)
}

fn extract_unit(name: &str, unit: Option<Unit>, moment: Moment) -> Result<Option<Numeric>> {
    let is_positive = match moment {
        Moment::Day(days) if !datetime::is_finite_date(days) => days > 0,
        Moment::Point(local, _) if !datetime::is_finite(local) => local > 0,
        moment => return finite_unit(name, unit, moment).map(Some),
    };
    let grows = matches!(
        unit,
        Some(
            Unit::Year
                | Unit::Decade
                | Unit::Century
                | Unit::Millennium
                | Unit::Julian
                | Unit::IsoYear
                | Unit::Epoch
        )
    );
    let is_zone = matches!(unit, Some(Unit::Zone | Unit::ZoneHour | Unit::ZoneMinute));
    if !(grows || is_zone && matches!(moment, Moment::Point(..))) {
        // What no value of the type has is no field of this one either.
        let sample = match moment {
            Moment::Day(_) => Moment::Day(0),
            Moment::Point(_, offset) => Moment::Point(0, offset),
            other => other,
        };
        finite_unit(name, unit, sample)?;
    }
    Ok(grows.then_some(if is_positive { Numeric::INFINITY } else { Numeric::NEGATIVE_INFINITY }))
}

fn finite_unit(name: &str, unit: Option<Unit>, moment: Moment) -> Result<Numeric> {
    let ty = match moment {
        Moment::Day(_) => "date",
        Moment::Time(_) => "time without time zone",
        Moment::Span(_) => "interval",
        Moment::Point(_, None) => "timestamp without time zone",
        Moment::Point(_, Some(_)) => "timestamp with time zone",
    };
    let refused = || Err(unknown_unit(&name.to_ascii_lowercase(), ty, unit.is_some()));
    let Some(unit) = unit else { return refused() };
    let whole = |value: i64| Ok(Numeric::from(value));
    let micros = |value: i128, scale| Ok(Numeric::new(value, scale).expect("times have fewer digits"));
    let of_day = |time: i64| match unit {
        Unit::Hour => Some(Numeric::from(time / 3_600_000_000)),
        Unit::Minute => Some(Numeric::from(time / 60_000_000 % 60)),
        Unit::Second => Numeric::new((time % 60_000_000).into(), 6),
        Unit::Millisecond => Numeric::new((time % 60_000_000).into(), 3),
        Unit::Microsecond => Some(Numeric::from(time % 60_000_000)),
        _ => None,
    };
    match moment {
        Moment::Time(time) => match unit {
            Unit::Epoch => micros(time.into(), 6),
            _ => of_day(time).map_or_else(refused, Ok),
        },
        Moment::Span(span) => {
            let (years, months) = (i64::from(span.months / 12), i64::from(span.months % 12));
            match unit {
                Unit::Year => whole(years),
                Unit::Month => whole(months),
                Unit::Quarter => whole(months / 3 + 1),
                Unit::Day => whole(span.days.into()),
                Unit::Decade => whole(years / 10),
                Unit::Century => whole(years / 100),
                Unit::Millennium => whole(years / 1000),
                Unit::Epoch => {
                    // A year of 365.25 days, a month of 30.
                    let seconds = i128::from(years) * 31_557_600
                        + i128::from(months * 30 + i64::from(span.days)) * 86_400;
                    micros(seconds * MILLION + i128::from(span.microseconds()), 6)
                }
                _ => of_day(span.microseconds()).map_or_else(refused, Ok),
            }
        }
        Moment::Day(days) => match unit {
            Unit::Epoch => whole(i64::from(days) * 86_400),
            Unit::Julian => whole(i64::from(days) + 2_440_588),
            _ => calendar(unit, days.into()).map_or_else(refused, whole),
        },
        Moment::Point(local, offset) => {
            let days = local.div_euclid(MICROS_PER_DAY);
            match (unit, offset) {
                (Unit::Epoch, offset) => {
                    micros(i128::from(local) - i128::from(offset.unwrap_or(0)) * MILLION, 6)
                }
                (Unit::Julian, _) => {
                    let time = Numeric::from(local.rem_euclid(MICROS_PER_DAY));
                    let part = time.checked_div(Numeric::from(MICROS_PER_DAY))?;
                    Numeric::from(days + 2_440_588).checked_add(part)
                }
                (Unit::Zone, Some(offset)) => whole(offset.into()),
                (Unit::ZoneHour, Some(offset)) => whole((offset / 3600).into()),
                (Unit::ZoneMinute, Some(offset)) => whole((offset / 60 % 60).into()),
                _ => match of_day(local.rem_euclid(MICROS_PER_DAY)) {
                    Some(value) => Ok(value),
                    None => calendar(unit, days).map_or_else(refused, whole),
                },
            }
        }
    }
}

/// A field of a day.
fn calendar(unit: Unit, days: i64) -> Option<i64> {
    let (year, month, day) = civil_from_days(days);
    let weekday = (days + 4).rem_euclid(7);
    // There is no year 0: the year before 1 is 1 BC.
    let shown = |year: i64| if year > 0 { year } else { year - 1 };
    Some(match unit {
        Unit::Year => shown(year),
        Unit::Month => month.into(),
        Unit::Day => day.into(),
        Unit::Quarter => i64::from(month - 1) / 3 + 1,
        Unit::DayOfWeek => weekday,
        Unit::IsoDayOfWeek => (weekday + 6) % 7 + 1,
        Unit::DayOfYear => days - days_from_civil(year, 1, 1) + 1,
        Unit::Week => iso_week(days).1,
        Unit::IsoYear => shown(iso_week(days).0),
        Unit::Decade => year.div_euclid(10),
        Unit::Century => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((100 - year) / 100)
            }
        }
        Unit::Millennium => {
            if year > 0 {
                (year + 999) / 1000
            } else {
                -((1000 - year) / 1000)
            }
        }
        _ => return None,
    })
}

/// The ISO year and week of a day: those of the Thursday of its week.
pub fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, _, _) = civil_from_days(thursday);
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// Whether it names a day or a part of one.
pub fn is_day_or_shorter(unit: &str) -> bool {
    unit_named(unit).is_some_and(|unit| unit <= Unit::Day)
}

fn truncate_in_zone(unit: &Named, moment: i64, zone: &TimeZoneSetting) -> Result<i64> {
    if !datetime::is_finite(moment) {
        return Ok(moment);
    }
    let local = truncate(unit, datetime::to_local(moment, zone)?, "timestamp with time zone")?;
    // Units below a day do not depend on how the clocks are set.
    match unit.unit {
        Some(unit) if unit <= Unit::Hour => Ok(local - i64::from(zone.offset_at(moment)) * MICROS_PER_SECOND),
        _ => datetime::to_utc(local, zone),
    }
}

/// A moment on the clock with everything below the unit cut off.
fn truncate(named: &Named, local: i64, ty: &str) -> Result<i64> {
    if !datetime::is_finite(local) {
        return Ok(local);
    }
    let days = local.div_euclid(MICROS_PER_DAY);
    let (year, month, _) = civil_from_days(days);
    let at = |year: i64, month: u32| days_from_civil(year, month, 1) * MICROS_PER_DAY;
    let to = |micros: i64| local - local.rem_euclid(micros);
    let truncated = match named.unit {
        Some(Unit::Microsecond) => local,
        Some(Unit::Millisecond) => to(1000),
        Some(Unit::Second) => to(MICROS_PER_SECOND),
        Some(Unit::Minute) => to(60 * MICROS_PER_SECOND),
        Some(Unit::Hour) => to(3600 * MICROS_PER_SECOND),
        Some(Unit::Day) => to(MICROS_PER_DAY),
        Some(Unit::Week) => (days - (days + 3).rem_euclid(7)) * MICROS_PER_DAY,
        Some(Unit::Month) => at(year, month),
        Some(Unit::Quarter) => at(year, (month - 1) / 3 * 3 + 1),
        Some(Unit::Year) => at(year, 1),
        Some(Unit::Decade) => at(year.div_euclid(10) * 10, 1),
        Some(Unit::Century) => at((year - 1).div_euclid(100) * 100 + 1, 1),
        Some(Unit::Millennium) => at((year - 1).div_euclid(1000) * 1000 + 1, 1),
        other => {
            let is_known = matches!(other, Some(Unit::Zone | Unit::ZoneHour | Unit::ZoneMinute));
            return Err(unknown_unit(&named.name.to_ascii_lowercase(), ty, is_known));
        }
    };
    datetime::check_timestamp(Some(truncated))
}

/// An interval with everything below the unit cut off.
pub fn truncate_span(name: &str, span: Interval) -> Result<Interval> {
    truncate_by(&Named::new(name), span)
}

fn truncate_by(named: &Named, span: Interval) -> Result<Interval> {
    let micros = span.microseconds();
    let to = |unit: i64| (span.months, span.days, micros - micros % unit);
    let years = |years: i32| (span.months / (12 * years) * (12 * years), 0, 0);
    let (months, days, micros) = match named.unit {
        Some(Unit::Millennium) => years(1000),
        Some(Unit::Century) => years(100),
        Some(Unit::Decade) => years(10),
        Some(Unit::Year) => years(1),
        Some(Unit::Quarter) => (span.months / 3 * 3, 0, 0),
        Some(Unit::Month) => (span.months, 0, 0),
        Some(Unit::Day) => (span.months, span.days, 0),
        Some(Unit::Hour) => to(3600 * MICROS_PER_SECOND),
        Some(Unit::Minute) => to(60 * MICROS_PER_SECOND),
        Some(Unit::Second) => to(MICROS_PER_SECOND),
        Some(Unit::Millisecond) => to(1000),
        Some(Unit::Microsecond) => (span.months, span.days, micros),
        other => {
            let is_known = matches!(other, Some(Unit::Week | Unit::Zone | Unit::ZoneHour | Unit::ZoneMinute));
            return Err(unknown_unit(&named.name.to_ascii_lowercase(), "interval", is_known));
        }
    };
    Interval::from_parts(months, days, micros)
}

fn making(builder: &mut RegistryBuilder) {
    builder.scalar::<(i32, i32, i32), _>("make_date(int4,int4,int4)", |_, (year, month, day)| {
        make_date(year, month, day)
    });
    builder.scalar::<(i32, i32, f64), _>("make_time(int4,int4,float8)", |_, (hour, minute, second)| {
        make_time(hour, minute, second)
    });
    builder.scalar::<(i32, i32, i32, i32, i32, f64), _>(
        "make_timestamp(int4,int4,int4,int4,int4,float8)",
        |_, (year, month, day, hour, minute, second)| make_timestamp(year, month, day, hour, minute, second),
    );
    builder.scalar::<(i32, i32, i32, i32, i32, f64), _>(
        "make_timestamptz(int4,int4,int4,int4,int4,float8)",
        |call, (year, month, day, hour, minute, second)| {
            datetime::to_utc(make_timestamp(year, month, day, hour, minute, second)?, call.context.zone())
        },
    );
    builder.scalar::<(i32, i32, i32, i32, i32, f64, &str), _>(
        "make_timestamptz(int4,int4,int4,int4,int4,float8,text)",
        |_, (year, month, day, hour, minute, second, zone)| {
            let zone = TimeZoneSetting::parse(zone)?;
            datetime::to_utc(make_timestamp(year, month, day, hour, minute, second)?, &zone)
        },
    );
    builder.scalar::<(i32, i32, i32, i32, i32, i32, f64), _>(
        "make_interval(int4,int4,int4,int4,int4,int4,float8)",
        |_, (years, months, weeks, days, hours, minutes, seconds)| {
            let out_of_range = firn_base::interval::out_of_range;
            if !seconds.is_finite() {
                return Err(out_of_range());
            }
            let months = i64::from(years) * 12 + i64::from(months);
            let days = i64::from(weeks) * 7 + i64::from(days);
            let seconds = (seconds * MICROS_PER_SECOND as f64).round_ties_even() as i64;
            let micros = i64::from(hours) * 3_600_000_000 + i64::from(minutes) * 60_000_000;
            interval_of(months, days, micros.checked_add(seconds).ok_or_else(out_of_range)?)
        },
    );
    builder.scalar::<(f64,), _>("to_timestamp(float8)", |_, (seconds,)| {
        if seconds.is_infinite() {
            return Ok(match seconds > 0.0 {
                true => datetime::TIMESTAMP_INFINITY,
                false => datetime::TIMESTAMP_MINUS_INFINITY,
            });
        }
        if seconds.is_nan() {
            return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
        }
        let micros = (seconds * MICROS_PER_SECOND as f64).round_ties_even();
        let is_in_range = micros > i64::MIN as f64 && micros < i64::MAX as f64;
        datetime::check_timestamp(is_in_range.then_some(micros as i64))
    });
}

#[cold]
fn field_out_of_range(what: String) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, what)
}

fn make_date(year: i32, month: i32, day: i32) -> Result<i32> {
    let refused = || field_out_of_range(format!("date field value out of range: {year}-{month:02}-{day:02}"));
    // There is no year 0; -1 is the year before 1.
    let counted = if year < 0 { i64::from(year) + 1 } else { year.into() };
    let month = u32::try_from(month).ok().filter(|month| (1..=12).contains(month)).ok_or_else(refused)?;
    let is_day = |day: &u32| (1..=datetime::days_in_month(counted, month)).contains(day);
    let day = u32::try_from(day).ok().filter(is_day).ok_or_else(refused)?;
    if year == 0 {
        return Err(refused());
    }
    datetime::check_date(days_from_civil(counted, month, day))
        .map_err(|_| field_out_of_range(format!("date out of range: {year}-{month:02}-{day:02}")))
}

fn make_time(hour: i32, minute: i32, second: f64) -> Result<i64> {
    let refused =
        || field_out_of_range(format!("time field value out of range: {hour}:{minute:02}:{second}"));
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0.0..=60.0).contains(&second) {
        return Err(refused());
    }
    let micros = (second * MICROS_PER_SECOND as f64).round_ties_even() as i64;
    let time = i64::from(hour) * 3_600_000_000 + i64::from(minute) * 60_000_000 + micros;
    if time > MICROS_PER_DAY { Err(refused()) } else { Ok(time) }
}

fn make_timestamp(year: i32, month: i32, day: i32, hour: i32, minute: i32, second: f64) -> Result<i64> {
    let days = make_date(year, month, day)?;
    let time = make_time(hour, minute, second)?;
    datetime::check_timestamp(datetime::date_to_timestamp(days)?.checked_add(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::TextStyle;

    #[test]
    fn the_time_of_day_is_written_as_postgres_does() {
        let zone = TimeZoneSetting::parse("Europe/Berlin").unwrap();
        let style = TextStyle::in_zone(zone);
        let moment = datetime::parse_timestamptz("2024-07-04 01:02:03.000456+02", &style).unwrap();
        let mut out = String::new();
        write_time_of_day(moment, &zone, &mut out);
        assert_eq!(out, "Thu Jul 04 01:02:03.000456 2024 CEST");
    }
}
