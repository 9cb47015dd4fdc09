//! Comparisons: `<`, `<=`, `=`, `>=`, `>`, `<>` of all types that have an order, the functions that indexes order by, and the larger and
//! smaller of two.

use super::comparison_loops::{self, Test};
use crate::kernel::batch::batched;
use crate::kernel::scalar::scalar;
use crate::kernel::{Any, Argument, Outcome, Output, Signature};
use crate::order;
use crate::registry::RegistryBuilder;
use crate::selection::Rows;
use crate::vector::Vector;
use crate::{Datum, lists::List, lists::Record};
use firn_base::datetime::{MICROS_PER_DAY, is_finite, is_finite_date, to_utc};
use firn_base::numeric::Numeric;
use firn_base::operators::{compare_blank_padded, compare_floats};
use firn_base::sync::Arc;
use firn_base::{Interval, TimeZoneSetting};
use std::cmp::Ordering;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    six::<bool, bool>(builder, "bool%(bool,bool)", |left, right| left.cmp(&right));
    looped_six::<i16, i16>(builder, "int2%(int2,int2)", |left, right| left.cmp(&right));
    looped_six::<i32, i32>(builder, "int4%(int4,int4) date_%(date,date)", |left, right| left.cmp(&right));
    looped_six::<i64, i64>(
        builder,
        "int8%(int8,int8) time_%(time,time) timestamp_%(timestamp,timestamp) timestamptz_%(timestamptz,timestamptz)",
        |left, right| left.cmp(&right),
    );
    six::<i64, i64>(builder, "tid%(tid,tid) xid8%(xid8,xid8) pg_lsn_%(pg_lsn,pg_lsn)", |left, right| {
        left.cmp(&right)
    });
    six::<i16, i32>(builder, "int24%(int2,int4)", |left, right| i32::from(left).cmp(&right));
    six::<i32, i16>(builder, "int42%(int4,int2)", |left, right| left.cmp(&i32::from(right)));
    six::<i16, i64>(builder, "int28%(int2,int8)", |left, right| i64::from(left).cmp(&right));
    six::<i64, i16>(builder, "int82%(int8,int2)", |left, right| left.cmp(&i64::from(right)));
    looped_six::<i32, i64>(builder, "int48%(int4,int8)", |left, right| i64::from(left).cmp(&right));
    looped_six::<i64, i32>(builder, "int84%(int8,int4)", |left, right| left.cmp(&i64::from(right)));
    six::<u32, u32>(builder, "oid%(oid,oid)", |left, right| left.cmp(&right));
    six::<f32, f32>(builder, "float4%(float4,float4)", |left, right| {
        compare_floats(left.into(), right.into())
    });
    hot_six::<f64, f64>(builder, "float8%(float8,float8)", compare_floats);
    six::<f32, f64>(builder, "float48%(float4,float8)", |left, right| compare_floats(left.into(), right));
    six::<f64, f32>(builder, "float84%(float8,float4)", |left, right| compare_floats(left, right.into()));
    looped_six::<Numeric, Numeric>(builder, "numeric_%(numeric,numeric)", |left, right| left.cmp(&right));
    six::<Interval, Interval>(builder, "interval_%(interval,interval)", |left, right| left.compare(&right));
    six::<[u8; 16], [u8; 16]>(builder, "uuid_%(uuid,uuid)", |left, right| left.cmp(&right));
    six::<&[u8], &[u8]>(builder, "bytea%(bytea,bytea)", |left, right| left.cmp(right));
    looped_six::<&str, &str>(
        builder,
        "text%(text,text) name%(name,name) name%text(name,text) text%name(text,name) char%(char,char)",
        |left, right| left.cmp(right),
    );
    looped_six::<&str, &str>(builder, "bpchar%(bpchar,bpchar)", compare_blank_padded);
    six::<List, List>(builder, "array_%(anyarray,anyarray)", |left, right| order::lists(&left, &right));
    six::<Record, Record>(builder, "record_%(record,record)", |left, right| order::records(&left, &right));

    looped_six::<i32, i64>(builder, "date_%_timestamp(date,timestamp)", compare_date);
    looped_six::<i64, i32>(builder, "timestamp_%_date(timestamp,date)", |left, right| {
        compare_date(right, left).reverse()
    });
    in_zone::<i32, i64>(builder, "date_%_timestamptz(date,timestamptz)", |left, right, zone| {
        compare_local(midnight(left), right, zone)
    });
    in_zone::<i64, i32>(builder, "timestamptz_%_date(timestamptz,date)", |left, right, zone| {
        compare_local(midnight(right), left, zone).reverse()
    });
    in_zone::<i64, i64>(builder, "timestamp_%_timestamptz(timestamp,timestamptz)", |left, right, zone| {
        compare_local(left.into(), right, zone)
    });
    in_zone::<i64, i64>(builder, "timestamptz_%_timestamp(timestamptz,timestamp)", |left, right, zone| {
        compare_local(right.into(), left, zone).reverse()
    });

    ordering::<bool>(builder, "btboolcmp(bool,bool)", |left, right| left.cmp(&right));
    // PostgreSQL's gives the difference.
    builder.scalar::<(i16, i16), _>("btint2cmp(int2,int2)", |_, (left, right)| {
        i32::from(left) - i32::from(right)
    });
    ordering::<i32>(builder, "btint4cmp(int4,int4) date_cmp(date,date)", |left, right| left.cmp(&right));
    ordering::<i64>(
        builder,
        "btint8cmp(int8,int8) time_cmp(time,time) timestamp_cmp(timestamp,timestamp) \
         timestamptz_cmp(timestamptz,timestamptz) bttidcmp(tid,tid) xid8cmp(xid8,xid8) pg_lsn_cmp(pg_lsn,pg_lsn)",
        |left, right| left.cmp(&right),
    );
    ordering::<f32>(builder, "btfloat4cmp(float4,float4)", |left, right| {
        compare_floats(left.into(), right.into())
    });
    ordering::<f64>(builder, "btfloat8cmp(float8,float8)", compare_floats);
    ordering::<Numeric>(builder, "numeric_cmp(numeric,numeric)", |left, right| left.cmp(&right));
    ordering::<Interval>(builder, "interval_cmp(interval,interval)", |left, right| left.compare(&right));
    ordering::<u32>(builder, "btoidcmp(oid,oid)", |left, right| left.cmp(&right));
    ordering::<[u8; 16]>(builder, "uuid_cmp(uuid,uuid)", |left, right| left.cmp(&right));
    ordering_of::<i16, i32>(builder, "btint24cmp(int2,int4)", |left, right| i32::from(left).cmp(&right));
    ordering_of::<i32, i16>(builder, "btint42cmp(int4,int2)", |left, right| left.cmp(&right.into()));
    ordering_of::<i16, i64>(builder, "btint28cmp(int2,int8)", |left, right| i64::from(left).cmp(&right));
    ordering_of::<i64, i16>(builder, "btint82cmp(int8,int2)", |left, right| left.cmp(&right.into()));
    ordering_of::<i32, i64>(builder, "btint48cmp(int4,int8)", |left, right| i64::from(left).cmp(&right));
    ordering_of::<i64, i32>(builder, "btint84cmp(int8,int4)", |left, right| left.cmp(&right.into()));
    ordering_of::<f32, f64>(builder, "btfloat48cmp(float4,float8)", |left, right| {
        compare_floats(left.into(), right)
    });
    ordering_of::<f64, f32>(builder, "btfloat84cmp(float8,float4)", |left, right| {
        compare_floats(left, right.into())
    });
    ordering_of::<i32, i64>(builder, "date_cmp_timestamp(date,timestamp)", compare_date);
    ordering_of::<i64, i32>(builder, "timestamp_cmp_date(timestamp,date)", |left, right| {
        compare_date(right, left).reverse()
    });
    builder.scalar::<(i32, i64), _>("date_cmp_timestamptz(date,timestamptz)", |call, (left, right)| {
        compare_local(midnight(left), right, call.context.zone()) as i32
    });
    builder.scalar::<(i64, i32), _>("timestamptz_cmp_date(timestamptz,date)", |call, (left, right)| {
        compare_local(midnight(right), left, call.context.zone()).reverse() as i32
    });
    builder.scalar::<(i64, i64), _>(
        "timestamp_cmp_timestamptz(timestamp,timestamptz)",
        |call, (left, right)| compare_local(left.into(), right, call.context.zone()) as i32,
    );
    builder.scalar::<(i64, i64), _>(
        "timestamptz_cmp_timestamp(timestamptz,timestamp)",
        |call, (left, right)| compare_local(right.into(), left, call.context.zone()).reverse() as i32,
    );
    builder.scalar::<(u32, u32), _>("xideq(xid,xid) cideq(cid,cid)", |_, (left, right)| left == right);
    builder.scalar::<(u32, u32), _>("xidneq(xid,xid)", |_, (left, right)| left != right);
    builder.scalar::<(u32, i32), _>("xideqint4(xid,int4)", |_, (left, right)| left == right as u32);
    builder.scalar::<(u32, i32), _>("xidneqint4(xid,int4)", |_, (left, right)| left != right as u32);
    ordering::<&str>(builder, "bpcharcmp(bpchar,bpchar)", compare_blank_padded);
    ordering::<List>(builder, "btarraycmp(anyarray,anyarray)", |left, right| order::lists(&left, &right));
    ordering::<Record>(builder, "btrecordcmp(record,record)", |left, right| order::records(&left, &right));

    extremes::<i16>(builder, "int2%(int2,int2)", |left, right| left.cmp(&right));
    extremes::<i32>(builder, "int4%(int4,int4) date_%(date,date)", |left, right| left.cmp(&right));
    extremes::<i64>(
        builder,
        "int8%(int8,int8) time_%(time,time) timestamp_%(timestamp,timestamp) timestamptz_%(timestamptz,timestamptz) \
         tid%(tid,tid) pg_lsn_%(pg_lsn,pg_lsn)",
        |left, right| left.cmp(&right),
    );
    extremes::<u32>(builder, "oid%(oid,oid)", |left, right| left.cmp(&right));
    extremes::<f32>(builder, "float4%(float4,float4)", |left, right| {
        compare_floats(left.into(), right.into())
    });
    extremes::<f64>(builder, "float8%(float8,float8)", compare_floats);
    extremes::<Numeric>(builder, "numeric_%(numeric,numeric)", |left, right| left.cmp(&right));
    extremes::<Interval>(builder, "interval_%(interval,interval)", |left, right| left.compare(&right));
    larger_string::<true>(builder, "text_larger(text,text)", |left, right| left.cmp(right));
    larger_string::<false>(builder, "text_smaller(text,text)", |left, right| left.cmp(right));
    larger_string::<true>(builder, "bpchar_larger(bpchar,bpchar)", compare_blank_padded);
    larger_string::<false>(builder, "bpchar_smaller(bpchar,bpchar)", compare_blank_padded);
    builder.scalar::<(List, List), _>("array_larger(anyarray,anyarray)", |call, (left, right)| {
        call.value.set(Datum::List(if order::lists(&left, &right).is_gt() { left } else { right }));
        Any
    });
    builder.scalar::<(List, List), _>("array_smaller(anyarray,anyarray)", |call, (left, right)| {
        call.value.set(Datum::List(if order::lists(&left, &right).is_lt() { left } else { right }));
        Any
    });

    // What OPERATOR ~<~ and its relatives call: order by bytes, which all our collations have.
    pattern(builder, "text_pattern_%(text,text)", |left, right| left.cmp(right));
    pattern(builder, "bpchar_pattern_%(bpchar,bpchar)", compare_blank_padded);
    builder.scalar::<(&str, &str), _>("starts_with(text,text)", |_, (text, start)| text.starts_with(start));
}

/// The signatures of a family with the names of its six functions in place of `%`. PostgreSQL writes some with an underscore.
fn names(signatures: &str, suffix: &str) -> String {
    let name = |signature: &str| {
        let is_of_text = signature == "text%(text,text)" && !matches!(suffix, "eq" | "ne");
        signature.replace('%', &if is_of_text { format!("_{suffix}") } else { suffix.to_owned() })
    };
    signatures.split_ascii_whitespace().map(name).collect::<Vec<_>>().join(" ")
}

/// Six comparisons by an order that cannot fail.
fn six<A: Argument, B: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, B::Row<'a>) -> Ordering + Copy + Send + Sync + 'static,
) {
    builder
        .scalar::<(A, B), _>(&names(signatures, "lt"), move |_, (left, right)| compare(left, right).is_lt());
    builder
        .scalar::<(A, B), _>(&names(signatures, "le"), move |_, (left, right)| compare(left, right).is_le());
    builder
        .scalar::<(A, B), _>(&names(signatures, "eq"), move |_, (left, right)| compare(left, right).is_eq());
    builder
        .scalar::<(A, B), _>(&names(signatures, "ge"), move |_, (left, right)| compare(left, right).is_ge());
    builder
        .scalar::<(A, B), _>(&names(signatures, "gt"), move |_, (left, right)| compare(left, right).is_gt());
    builder
        .scalar::<(A, B), _>(&names(signatures, "ne"), move |_, (left, right)| compare(left, right).is_ne());
}

/// As [`six`], with loops over whole vectors.
fn looped_six<A: Argument, B: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, B::Row<'a>) -> Ordering + Copy + Send + Sync + 'static,
) {
    for (suffix, test) in Test::ALL {
        let row = scalar::<(A, B), _>(move |_, (left, right)| test.accepts(compare(left, right)));
        let kernel = batched(row, move |signature: &Signature, arguments: &[Vector], rows: Rows<'_>| {
            comparison_loops::compare(test, signature, arguments, rows)
        });
        builder.kernel(&names(signatures, suffix), Arc::new(kernel));
    }
}

/// As [`six`], each inlined into a loop of its own.
fn hot_six<A: Argument, B: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, B::Row<'a>) -> Ordering + Copy + Send + Sync + 'static,
) {
    builder.hot::<(A, B), _>(&names(signatures, "lt"), move |_, (left, right)| compare(left, right).is_lt());
    builder.hot::<(A, B), _>(&names(signatures, "le"), move |_, (left, right)| compare(left, right).is_le());
    builder.hot::<(A, B), _>(&names(signatures, "eq"), move |_, (left, right)| compare(left, right).is_eq());
    builder.hot::<(A, B), _>(&names(signatures, "ge"), move |_, (left, right)| compare(left, right).is_ge());
    builder.hot::<(A, B), _>(&names(signatures, "gt"), move |_, (left, right)| compare(left, right).is_gt());
    builder.hot::<(A, B), _>(&names(signatures, "ne"), move |_, (left, right)| compare(left, right).is_ne());
}

/// Six comparisons by an order that depends on the session's time zone.
fn in_zone<A: Argument, B: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, B::Row<'a>, &TimeZoneSetting) -> Ordering + Copy + Send + Sync + 'static,
) {
    for (suffix, accepts) in [
        ("lt", Ordering::is_lt as fn(Ordering) -> bool),
        ("le", Ordering::is_le),
        ("eq", Ordering::is_eq),
        ("ge", Ordering::is_ge),
        ("gt", Ordering::is_gt),
        ("ne", Ordering::is_ne),
    ] {
        builder.scalar::<(A, B), _>(&names(signatures, suffix), move |call, (left, right)| {
            accepts(compare(left, right, call.context.zone()))
        });
    }
}

fn pattern(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(&'a str, &'a str) -> Ordering + Copy + Send + Sync + 'static,
) {
    for (suffix, accepts) in [
        ("lt", Ordering::is_lt as fn(Ordering) -> bool),
        ("le", Ordering::is_le),
        ("ge", Ordering::is_ge),
        ("gt", Ordering::is_gt),
    ] {
        builder.scalar::<(&str, &str), _>(&names(signatures, suffix), move |_, (left, right)| {
            accepts(compare(left, right))
        });
    }
}

/// Functions that give -1, 0 or 1.
fn ordering<A: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, A::Row<'a>) -> Ordering + Send + Sync + 'static,
) {
    ordering_of::<A, A>(builder, signatures, compare);
}

/// -1, 0 or 1, as the left value is smaller, equal or larger.
fn ordering_of<A: Argument, B: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(A::Row<'a>, B::Row<'a>) -> Ordering + Send + Sync + 'static,
) {
    builder.scalar::<(A, B), _>(signatures, move |_, (left, right)| compare(left, right) as i32);
}

/// The larger and the smaller of two values of a type of fixed width.
fn extremes<A>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl Fn(A, A) -> Ordering + Copy + Send + Sync + 'static,
) where
    A: for<'a> Argument<Row<'a> = A> + Outcome<Value = A> + Output + Copy,
{
    builder.scalar::<(A, A), _>(&names(signatures, "larger"), move |_, (left, right)| {
        if compare(left, right).is_gt() { left } else { right }
    });
    builder.scalar::<(A, A), _>(&names(signatures, "smaller"), move |_, (left, right)| {
        if compare(left, right).is_lt() { left } else { right }
    });
}

fn larger_string<const LARGER: bool>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    compare: impl for<'a> Fn(&'a str, &'a str) -> Ordering + Copy + Send + Sync + 'static,
) {
    builder.scalar::<(&str, &str), _>(signatures, move |call, (left, right)| {
        let order = compare(left, right);
        call.text.push_str(if (LARGER && order.is_ge()) || (!LARGER && order.is_le()) {
            left
        } else {
            right
        });
        crate::kernel::Text
    });
}

/// A day, by its midnight, and a moment. A day may lie beyond all moments.
fn compare_date(days: i32, moment: i64) -> Ordering {
    match is_finite_date(days) || is_finite(moment) {
        true => midnight(days).cmp(&moment.into()),
        // Both are infinite.
        false => (days > 0).cmp(&(moment > 0)),
    }
}

/// The midnight of a day.
fn midnight(days: i32) -> i128 {
    i128::from(days) * i128::from(MICROS_PER_DAY)
}

/// A moment on the clocks of a zone, which may lie beyond all moments, and a moment.
fn compare_local(local: i128, moment: i64, zone: &TimeZoneSetting) -> Ordering {
    // What is infinite is as large as an infinite moment, and a day that is beyond all moments is not.
    let largest = midnight(i32::MAX);
    match local {
        local if local == largest && moment == i64::MAX => return Ordering::Equal,
        local if local == midnight(i32::MIN) && moment == i64::MIN => return Ordering::Equal,
        _ => {}
    }
    match i64::try_from(local).ok().and_then(|local| to_utc(local, zone).ok()) {
        Some(utc) => utc.cmp(&moment),
        None if local > 0 => Ordering::Greater,
        None => Ordering::Less,
    }
}
