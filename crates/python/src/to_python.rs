//! Values and rows of results as Python's objects.
//!
//! Dates and times that Python's classes cannot represent (years beyond 1 to 9999, 24:00) are errors with a hint,
//! never rounded. An interval is a `timedelta` if that keeps its parts apart, and a `firndb.Interval` otherwise.

use crate::error;
use firn_session::Column;
use firn_session::base::datetime::civil_from_days;
use firn_session::base::{Error, Interval, Numeric, SqlState, Type, TypeId, Value};
use firn_session::server::{Datum, ResultChunk};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::ops::Range;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Python's classes for values without a built-in type.
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
pub fn tuples_of_values(py: Python<'_>, columns: usize, values: &[Value]) -> PyResult<Vec<Py<PyTuple>>> {
    let row = |row: &[Value]| {
        let cells = row.iter().map(|cell| value(py, cell));
        Ok(PyTuple::new(py, cells.collect::<PyResult<Vec<_>>>()?)?.unbind())
    };
    values.chunks_exact(columns.max(1)).map(row).collect()
}

/// Some rows of vectors as tuples.
pub fn tuples_of_vectors(
    py: Python<'_>,
    columns: &[Column],
    chunk: &ResultChunk,
    rows: Range<usize>,
) -> PyResult<Vec<Py<PyTuple>>> {
    // Names of objects are converted to text.
    let described = columns.iter().zip(chunk.values.vectors()).enumerate();
    let cells: Vec<_> = described
        .map(|(place, (column, vector))| match chunk.text(place) {
            Some(text) => (Type::new(TypeId::TEXT), text),
            None => (column.ty, vector),
        })
        .collect();
    rows.map(|row| {
        let cells = cells.iter().map(|(ty, vector)| datum(py, vector.datum(row), *ty));
        Ok(PyTuple::new(py, cells.collect::<PyResult<Vec<_>>>()?)?.unbind())
    })
    .collect()
}

fn datum(py: Python<'_>, datum: Datum<'_>, ty: Type) -> PyResult<Py<PyAny>> {
    match datum {
        // Without a copy in between.
        Datum::Text(value) => text(py, value),
        Datum::Bytes(value) => bytes(py, value),
        datum => value(py, &datum.to_value(ty)),
    }
}

fn any<'py, T: IntoPyObjectExt<'py>>(py: Python<'py>, value: T) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

fn value(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Boolean(value) => any(py, *value),
        Value::SmallInt(value) => any(py, *value),
        Value::Integer(value) => any(py, *value),
        Value::BigInt(value) => any(py, *value),
        Value::Real(value) => any(py, *value),
        Value::Double(value) => any(py, *value),
        Value::Numeric { unscaled, scale } => decimal(py, Numeric::from_decimal(*unscaled, *scale)),
        Value::Text(value) => text(py, value),
        Value::Bytea(value) => bytes(py, value),
        Value::Date(days) => date(py, *days),
        Value::Time(micros) => time(py, *micros),
        Value::Timestamp(micros) => datetime(py, *micros, false),
        Value::TimestampTz(micros) => datetime(py, *micros, true),
        Value::Interval(value) => interval(py, *value),
        Value::Uuid(value) => uuid(py, value),
        Value::Number(value) => decimal(py, *value),
        Value::Oid(value) => any(py, *value),
        Value::Array(array) => {
            let lengths: Vec<usize> =
                array.dimensions().iter().map(|dimension| dimension.length as usize).collect();
            list(py, &lengths, array.elements())
        }
    }
}

/// An array as a list; one of several dimensions as a list of lists.
fn list(py: Python<'_>, lengths: &[usize], elements: &[Value]) -> PyResult<Py<PyAny>> {
    let inner: Vec<Py<PyAny>> = match lengths {
        [] | [_] => elements.iter().map(|element| value(py, element)).collect::<PyResult<_>>()?,
        [length, inner @ ..] => elements
            .chunks_exact(elements.len() / length)
            .map(|part| list(py, inner, part))
            .collect::<PyResult<_>>()?,
    };
    Ok(PyList::new(py, inner)?.into_any().unbind())
}

fn text(py: Python<'_>, value: &str) -> PyResult<Py<PyAny>> {
    Ok(PyString::new(py, value).into_any().unbind())
}

fn bytes(py: Python<'_>, value: &[u8]) -> PyResult<Py<PyAny>> {
    Ok(PyBytes::new(py, value).into_any().unbind())
}

fn decimal(py: Python<'_>, value: Numeric) -> PyResult<Py<PyAny>> {
    let mut text = String::new();
    value.write(&mut text);
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
    let error = Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("Python cannot represent a {what}"))
        .with_hint("Cast the column to text, or fetch the result as Arrow.");
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
