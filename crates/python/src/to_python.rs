//! Values and rows of results as Python's objects.
//!
//! Dates and times that Python's classes cannot hold (years beyond 1 to 9999, 24:00) are errors with a way out,
//! never rounded. An interval is a `timedelta`; one whose parts that would mix up is a `firndb.Interval`.

use crate::error;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use firn_session::Column;
use firn_session::base::datetime::civil_from_days;
use firn_session::base::{Error, Interval, SqlState, SqlType, Value, numeric};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::ops::Range;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Python's classes for what is not built in.
struct Classes {
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
    date: Py<PyAny>,
    time: Py<PyAny>,
    datetime: Py<PyAny>,
    utc: Py<PyAny>,
    timedelta: Py<PyAny>,
    interval: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let get = |module: &str, name: &str| PyResult::Ok(py.import(module)?.getattr(name)?.unbind());
        Ok(Classes {
            decimal: get("decimal", "Decimal")?,
            uuid: get("uuid", "UUID")?,
            date: get("datetime", "date")?,
            time: get("datetime", "time")?,
            datetime: get("datetime", "datetime")?,
            utc: py.import("datetime")?.getattr("timezone")?.getattr("utc")?.unbind(),
            timedelta: get("datetime", "timedelta")?,
            interval: get("firndb._types", "Interval")?,
        })
    })
}

/// Rows of values, row-major, as tuples.
pub fn tuples_of_values(py: Python<'_>, columns: &[Column], values: &[Value]) -> PyResult<Vec<Py<PyTuple>>> {
    let row = |row: &[Value]| {
        let cells = row.iter().zip(columns).map(|(cell, column)| value(py, cell, column.ty));
        Ok(PyTuple::new(py, cells.collect::<PyResult<Vec<_>>>()?)?.unbind())
    };
    values.chunks_exact(columns.len().max(1)).map(row).collect()
}

/// Rows of a batch as tuples.
pub fn tuples_of_batch(
    py: Python<'_>,
    columns: &[Column],
    arrays: &[ArrayRef],
    rows: Range<usize>,
) -> PyResult<Vec<Py<PyTuple>>> {
    let cells = arrays.iter().zip(columns);
    let cells = cells.map(|(array, column)| {
        objects(py, array.as_ref(), column.element.unwrap_or(column.ty), rows.clone())
    });
    let mut cells: Vec<_> = cells.map(|cells| cells.map(Vec::into_iter)).collect::<PyResult<_>>()?;
    let tuple = |_| {
        let row: Vec<Py<PyAny>> =
            cells.iter_mut().map(|column| column.next().expect("one cell for each row")).collect();
        Ok(PyTuple::new(py, row)?.unbind())
    };
    rows.map(tuple).collect()
}

/// A stretch of an array as objects; `ty` is the type of its elements, if they are arrays in their turn.
fn objects(py: Python<'_>, array: &dyn Array, ty: SqlType, rows: Range<usize>) -> PyResult<Vec<Py<PyAny>>> {
    macro_rules! each {
        ($typed:expr, $value:ident => $object:expr) => {{
            let typed = $typed;
            rows.map(|row| {
                if typed.is_null(row) {
                    return Ok(py.None());
                }
                let $value = typed.value(row);
                $object
            })
            .collect()
        }};
    }
    match array.data_type() {
        DataType::Boolean => each!(array.as_boolean(), value => any(py, value)),
        DataType::Int16 => each!(array.as_primitive::<Int16Type>(), value => any(py, value)),
        DataType::Int32 => each!(array.as_primitive::<Int32Type>(), value => any(py, value)),
        DataType::Int64 => each!(array.as_primitive::<Int64Type>(), value => any(py, value)),
        DataType::Float32 => each!(array.as_primitive::<Float32Type>(), value => any(py, value)),
        DataType::Float64 => each!(array.as_primitive::<Float64Type>(), value => any(py, value)),
        DataType::Decimal128(_, scale) => {
            each!(array.as_primitive::<Decimal128Type>(), value => decimal(py, value, *scale as u8, ty))
        }
        DataType::Utf8View => each!(array.as_string_view(), value => text(py, value)),
        DataType::Utf8 => each!(array.as_string::<i32>(), value => text(py, value)),
        DataType::BinaryView => each!(array.as_binary_view(), value => bytes(py, value)),
        DataType::Date32 => each!(array.as_primitive::<Date32Type>(), value => date(py, value)),
        DataType::Time64(_) => each!(array.as_primitive::<Time64MicrosecondType>(), value => time(py, value)),
        DataType::Timestamp(_, zone) => {
            each!(array.as_primitive::<TimestampMicrosecondType>(), value => datetime(py, value, zone.is_some()))
        }
        DataType::Interval(_) => each!(array.as_primitive::<IntervalMonthDayNanoType>(), value => {
            interval(py, Interval { months: value.months, days: value.days, nanoseconds: value.nanoseconds })
        }),
        DataType::FixedSizeBinary(_) => each!(array.as_fixed_size_binary(), value => uuid(py, value)),
        DataType::List(_) => each!(array.as_list::<i32>(), value => {
            let elements = objects(py, value.as_ref(), ty, 0..value.len())?;
            Ok(PyList::new(py, elements)?.into_any().unbind())
        }),
        DataType::Null => Ok(rows.map(|_| py.None()).collect()),
        other => unreachable!("no SQL type is {other} in Arrow"),
    }
}

fn any<'py, T: IntoPyObjectExt<'py>>(py: Python<'py>, value: T) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

fn value(py: Python<'_>, value: &Value, ty: SqlType) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Boolean(value) => any(py, *value),
        Value::SmallInt(value) => any(py, *value),
        Value::Integer(value) => any(py, *value),
        Value::BigInt(value) => any(py, *value),
        Value::Real(value) => any(py, *value),
        Value::Double(value) => any(py, *value),
        Value::Numeric { unscaled, scale } => decimal(py, *unscaled, *scale, ty),
        Value::Text(value) => text(py, value),
        Value::Bytea(value) => bytes(py, value),
        Value::Date(days) => date(py, *days),
        Value::Time(micros) => time(py, *micros),
        Value::Timestamp(micros) => datetime(py, *micros, false),
        Value::TimestampTz(micros) => datetime(py, *micros, true),
        Value::Interval(value) => interval(py, *value),
        Value::Uuid(value) => uuid(py, value),
        Value::Number(value) => classes(py)?.decimal.call1(py, (value.to_string(),)),
        Value::Oid(value) => any(py, *value),
        Value::Array(array) => {
            let elements = array.elements().iter().map(|element| self::value(py, element, ty));
            Ok(PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        }
    }
}

fn text(py: Python<'_>, value: &str) -> PyResult<Py<PyAny>> {
    Ok(PyString::new(py, value).into_any().unbind())
}

fn bytes(py: Python<'_>, value: &[u8]) -> PyResult<Py<PyAny>> {
    Ok(PyBytes::new(py, value).into_any().unbind())
}

fn decimal(py: Python<'_>, unscaled: i128, scale: u8, ty: SqlType) -> PyResult<Py<PyAny>> {
    let (unscaled, scale) = numeric::shown(unscaled, scale, ty);
    let mut text = String::new();
    numeric::write(unscaled, scale, &mut text);
    classes(py)?.decimal.call1(py, (text,))
}

fn uuid(py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
    classes(py)?.uuid.call1(py, (py.None(), PyBytes::new(py, bytes)))
}

/// Year, month and day, if Python's calendar has that day.
fn civil(py: Python<'_>, days: i64, what: &str) -> PyResult<(i64, u32, u32)> {
    match civil_from_days(days) {
        civil @ (1..=9999, ..) => Ok(civil),
        (year, ..) => Err(too_far(py, &format!("{what} in the year {year}"))),
    }
}

fn too_far(py: Python<'_>, what: &str) -> PyErr {
    let error = Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("Python cannot hold a {what}"))
        .with_hint("Cast the column to text, or take the result as Arrow.");
    error::raised(py, &error)
}

/// Hour, minute, second, microsecond.
fn clock(micros: i64) -> (i64, i64, i64, i64) {
    let seconds = micros / 1_000_000;
    (seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}

fn date(py: Python<'_>, days: i32) -> PyResult<Py<PyAny>> {
    let (year, month, day) = civil(py, i64::from(days), "date")?;
    classes(py)?.date.call1(py, (year, month, day))
}

fn time(py: Python<'_>, micros: i64) -> PyResult<Py<PyAny>> {
    if micros >= MICROS_PER_DAY {
        return Err(too_far(py, "time of 24:00"));
    }
    classes(py)?.time.call1(py, clock(micros))
}

fn datetime(py: Python<'_>, micros: i64, is_utc: bool) -> PyResult<Py<PyAny>> {
    let (year, month, day) = civil(py, micros.div_euclid(MICROS_PER_DAY), "timestamp")?;
    let (hour, minute, second, micro) = clock(micros.rem_euclid(MICROS_PER_DAY));
    let classes = classes(py)?;
    let zone = if is_utc { classes.utc.clone_ref(py) } else { py.None() };
    classes.datetime.call1(py, (year, month, day, hour, minute, second, micro, zone))
}

fn interval(py: Python<'_>, value: Interval) -> PyResult<Py<PyAny>> {
    let micros = value.nanoseconds / 1000;
    let classes = classes(py)?;
    if value.months == 0 && (0..MICROS_PER_DAY).contains(&micros) {
        return classes.timedelta.call1(py, (value.days, micros / 1_000_000, micros % 1_000_000));
    }
    classes.interval.call1(py, (value.months, value.days, micros))
}
