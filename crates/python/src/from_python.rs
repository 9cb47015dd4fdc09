//! Python's objects as values of parameters.

use crate::error;
use firn_session::base::operators::one_nan;
use firn_session::base::{ArrayValue, Error, Interval, Numeric, SqlState, Value};
use firn_session::server::{Numbered, number_named_parameters};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::sync::Arc;

/// The days from the first of January of the year 1 to 1970, in Python's ordinals.
const EPOCH: i64 = 719_163;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Python's classes that are distinguished by `isinstance`.
struct Classes {
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
    date: Py<PyAny>,
    time: Py<PyAny>,
    datetime: Py<PyAny>,
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
            timedelta: get("datetime", "timedelta")?,
            interval: get("firndb._types", "Interval")?,
        })
    })
}

/// The values with which a statement is run.
#[derive(Clone)]
pub struct Given {
    pub values: Vec<Value>,
    /// The statement with numbers, if the values have names.
    pub numbered: Option<Arc<Numbered>>,
}

/// Reads the parameters of a statement, for each of its runs: by positions or by names, but not both.
pub struct Reader<'s> {
    sql: &'s str,
    way: Option<Way<'s>>,
}

enum Way<'s> {
    Places,
    Names(Arc<Numbered>, Vec<&'s str>),
}

impl<'s> Reader<'s> {
    pub fn new(sql: &'s str) -> Reader<'s> {
        Reader { sql, way: None }
    }

    /// The values of a sequence or a mapping; none for `None`.
    pub fn given(&mut self, parameters: Option<&Bound<'_, PyAny>>) -> PyResult<Given> {
        // Checking for a mapping takes longer.
        let is_sequence =
            |object: &Bound<'_, PyAny>| object.cast::<PyTuple>().is_ok() || object.cast::<PyList>().is_ok();
        let mapping = parameters
            .filter(|parameters| !is_sequence(parameters))
            .and_then(|parameters| parameters.cast::<PyMapping>().ok());
        match (mapping, &self.way) {
            (None, None | Some(Way::Places)) => {
                self.way = Some(Way::Places);
                Ok(Given { values: sequence(parameters)?, numbered: None })
            }
            (Some(mapping), Some(Way::Names(numbered, names))) => named(mapping, numbered, names),
            (Some(mapping), None) => {
                let raised = |error: Error| error::raised(mapping.py(), &error);
                let (numbered, names) = number_named_parameters(self.sql).map_err(raised)?;
                let numbered = Arc::new(numbered);
                let given = named(mapping, &numbered, &names);
                self.way = Some(Way::Names(numbered, names));
                given
            }
            (Some(_), Some(Way::Places)) | (None, Some(Way::Names(..))) => {
                Err(PyTypeError::new_err("the parameters of executemany() are all sequences or all mappings"))
            }
        }
    }
}

/// The values of a mapping with those names.
fn named(mapping: &Bound<'_, PyMapping>, numbered: &Arc<Numbered>, names: &[&str]) -> PyResult<Given> {
    let values = names.iter().map(|name| match mapping.get_item(*name) {
        Ok(object) => value(&object),
        Err(error) if error.is_instance_of::<PyKeyError>(mapping.py()) => {
            let message = format!("there is no value for parameter ${name}");
            let error = Error::new(SqlState::UNDEFINED_PARAMETER, message);
            Err(error::raised(mapping.py(), &error))
        }
        Err(error) => Err(error),
    });
    Ok(Given { values: values.collect::<PyResult<_>>()?, numbered: Some(numbered.clone()) })
}

/// The values of a sequence of parameters; none for `None`.
fn sequence(parameters: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Value>> {
    let Some(parameters) = parameters else { return Ok(Vec::new()) };
    if let Ok(tuple) = parameters.cast::<PyTuple>() {
        return tuple.iter().map(|object| value(&object)).collect();
    }
    if let Ok(list) = parameters.cast::<PyList>() {
        return list.iter().map(|object| value(&object)).collect();
    }
    if parameters.cast::<PyString>().is_ok() || parameters.cast::<PyBytes>().is_ok() {
        return Err(PyTypeError::new_err(
            "parameters are a sequence with a value for each ? or $1, $2, …, or a dict for $name; a single one is \
             (value,)",
        ));
    }
    parameters.try_iter()?.map(|object| value(&object?)).collect()
}

/// The value for an object.
fn value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = object.py();
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Value::Boolean(value.is_true()));
    }
    if let Ok(value) = object.cast::<PyInt>() {
        return integer(value);
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Value::Double(one_nan(value.extract()?)));
    }
    if let Ok(value) = object.cast::<PyString>() {
        return Ok(Value::Text(value.extract()?));
    }
    if let Ok(value) = object.cast::<PyBytes>() {
        return Ok(Value::Bytea(value.as_bytes().to_vec()));
    }
    if let Ok(value) = object.cast::<PyByteArray>() {
        return Ok(Value::Bytea(value.to_vec()));
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let elements = object.try_iter()?.map(|element| value(&element?));
        return array(elements.collect::<PyResult<_>>()?)
            .map(Value::Array)
            .map_err(|error| error::raised(py, &error));
    }
    let classes = classes(py)?;
    let is = |class: &Py<PyAny>| object.is_instance(class.bind(py));
    let int = |name: &str| object.getattr(name)?.extract::<i64>();
    let clock = || {
        let seconds = int("hour")? * 3600 + int("minute")? * 60 + int("second")?;
        PyResult::Ok(seconds * 1_000_000 + int("microsecond")?)
    };
    let days = || PyResult::Ok(object.call_method0("toordinal")?.extract::<i64>()? - EPOCH);
    if is(&classes.decimal)? {
        return decimal(object);
    }
    if is(&classes.datetime)? {
        // pandas has a timestamp that means NULL.
        if is_missing(object)? {
            return Ok(Value::Null);
        }
        let local = days()? * MICROS_PER_DAY + clock()?;
        let offset = object.call_method0("utcoffset")?;
        return match offset.is_none() {
            true => Ok(Value::Timestamp(local)),
            false => Ok(Value::TimestampTz(local - micros(&offset)?)),
        };
    }
    if is(&classes.date)? {
        return Ok(Value::Date(i32::try_from(days()?)?));
    }
    if is(&classes.time)? {
        if !object.getattr("tzinfo")?.is_none() {
            return Err(PyTypeError::new_err(
                "a time with a time zone has no SQL type here; pass a datetime",
            ));
        }
        return clock().map(Value::Time);
    }
    if is(&classes.timedelta)? {
        let (months, days, micros) = match is(&classes.interval)? {
            true => object.getattr("parts")?.extract()?,
            false => (0, i32::try_from(int("days")?)?, int("seconds")? * 1_000_000 + int("microseconds")?),
        };
        return match i64::checked_mul(micros, 1000) {
            Some(nanoseconds) => Ok(Value::Interval(Interval { months, days, nanoseconds })),
            None => Err(out_of_range(object, "interval")),
        };
    }
    if is(&classes.uuid)? {
        return Ok(Value::Uuid(object.getattr("bytes")?.extract()?));
    }
    foreign(object)
}

/// A list's elements as an array; nested lists as one of several dimensions.
fn array(elements: Vec<Value>) -> Result<ArrayValue, Error> {
    if !elements.iter().any(|element| matches!(element, Value::Array(_))) {
        return Ok(ArrayValue::from(elements));
    }
    let parts = elements.into_iter().map(|element| match element {
        Value::Array(array) => Ok(array),
        _ => Err(Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "an array has arrays and single values as elements",
        )),
    });
    ArrayValue::stacked(parts.collect::<Result<_, _>>()?)
}

/// Objects of NumPy and pandas, recognized by their attributes: neither library has to be installed.
fn foreign(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let name = object.get_type().name()?.to_string();
    if object.hasattr("dtype")? {
        // Nanoseconds would be converted to plain integers.
        if let "datetime64" | "timedelta64" = name.as_str() {
            let micros = object.call_method1("astype", (format!("{name}[us]"),))?;
            return value(&micros.call_method0("item")?);
        }
        if object.hasattr("tolist")? {
            return value(&object.call_method0("tolist")?);
        }
    }
    if let "NAType" | "NaTType" = name.as_str() {
        return Ok(Value::Null);
    }
    if let Ok(view) = object.py().import("builtins")?.getattr("bytes")?.call1((object,))
        && name == "memoryview"
    {
        return Ok(Value::Bytea(view.extract()?));
    }
    let hint =
        if object.cast::<PyMapping>().is_ok() { "; pass json.dumps(…) for a text column" } else { "" };
    Err(PyTypeError::new_err(format!("there is no SQL type for an object of type {name}{hint}")))
}

/// Whether it is `pandas.NaT`, the only object that differs from itself.
fn is_missing(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.ne(object)
}

/// A `timedelta` in microseconds.
fn micros(span: &Bound<'_, PyAny>) -> PyResult<i64> {
    let int = |name: &str| span.getattr(name)?.extract::<i64>();
    Ok(int("days")? * MICROS_PER_DAY + int("seconds")? * 1_000_000 + int("microseconds")?)
}

fn integer(value: &Bound<'_, PyInt>) -> PyResult<Value> {
    match value.extract::<i64>() {
        Ok(small) => Ok(i32::try_from(small).map_or(Value::BigInt(small), Value::Integer)),
        Err(_) => digits(value.as_any(), &value.str()?.to_string()),
    }
}

fn decimal(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // Without an exponent.
    let text: String = value.call_method1("__format__", ("f",))?.extract()?;
    digits(value, &text)
}

fn digits(value: &Bound<'_, PyAny>, text: &str) -> PyResult<Value> {
    Numeric::parse(text).map(Value::Number).map_err(|_| out_of_range(value, "numeric"))
}

fn out_of_range(value: &Bound<'_, PyAny>, ty: &str) -> PyErr {
    let text = value.str().map_or_else(|_| String::new(), |text| text.to_string());
    let error =
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{text} is out of range for type {ty}"));
    error::raised(value.py(), &error)
}
