//! Arrow over Python's boundary: the PyCapsule interface, by which only pointers travel.
//!
//! Written out instead of taken from `pyo3-arrow`, which would have DataFusion compiled with other features
//! than everything else (docs/decisions/0025-python-package.md).

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_cast::{can_cast_types, cast};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// The exception for what Arrow says of the other side's data.
pub fn invalid(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Batches of one result, for whoever understands Arrow.
#[pyclass(frozen, module = "firndb._firndb")]
pub struct Batches {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

#[pymethods]
impl Batches {
    /// A stream of them; there may be any number.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = self.batches.clone().into_iter().map(Ok);
        export(py, RecordBatchIterator::new(batches, self.schema.clone()), requested_schema)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.schema)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A stream for another library, in the types that it requests as far as they can be had.
pub fn export<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
    requested: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let reader: Box<dyn RecordBatchReader + Send> = match requested {
        None => Box::new(reader),
        Some(requested) => {
            let schema = requested_types(&reader.schema(), &requested)?;
            let wanted = schema.clone();
            let batches = reader.map(move |batch| converted(batch?, &wanted));
            Box::new(RecordBatchIterator::new(batches, schema))
        }
    };
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A schema for another library.
pub fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowSchema::try_from(schema).map_err(invalid)?, SCHEMA)
}

/// The schema with the types that are requested, where there is a cast to them.
fn requested_types(schema: &SchemaRef, requested: &Bound<'_, PyCapsule>) -> PyResult<SchemaRef> {
    let pointer: NonNull<FFI_ArrowSchema> = requested.pointer_checked(Some(SCHEMA))?.cast();
    // SAFETY: a capsule of this name holds a schema, by the interface's contract, and lives during this call.
    let requested = Schema::try_from(unsafe { pointer.as_ref() }).map_err(invalid)?;
    if requested.fields().len() != schema.fields().len() {
        return Err(PyValueError::new_err("the requested schema has another number of columns"));
    }
    let pairs = schema.fields().iter().zip(requested.fields());
    let fields = pairs.map(|(field, wanted)| match can_cast_types(field.data_type(), wanted.data_type()) {
        true => Arc::new(Field::new(field.name(), wanted.data_type().clone(), true)),
        false => field.clone(),
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

fn converted(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
}

/// All batches of an object that has `__arrow_c_stream__` or `__arrow_c_array__`.
pub fn import(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let pointer: NonNull<FFI_ArrowArrayStream> = capsule.pointer_checked(Some(STREAM))?.cast();
        // SAFETY: a capsule of this name holds a stream, which is moved out of it and marked as gone.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
        // A stream may be made by another thread that needs the interpreter.
        return object
            .py()
            .detach(|| {
                let reader = ArrowArrayStreamReader::try_new(stream)?;
                let schema = reader.schema();
                Ok((schema, reader.collect::<Result<Vec<_>, _>>()?))
            })
            .map_err(invalid);
    }
    if object.hasattr("__arrow_c_array__")? {
        let capsules = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
        let schema: NonNull<FFI_ArrowSchema> = schema.pointer_checked(Some(SCHEMA))?.cast();
        let array: NonNull<FFI_ArrowArray> = array.pointer_checked(Some(ARRAY))?.cast();
        // SAFETY: capsules of these names hold an array, which is moved out and marked as gone, and its schema,
        // which lives during this call.
        let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
        let data = data.map_err(invalid)?;
        if !matches!(data.data_type(), arrow_schema::DataType::Struct(_)) || data.null_count() > 0 {
            return Err(PyTypeError::new_err("a table or record batch is expected, not a single column"));
        }
        let batch = RecordBatch::from(StructArray::from(data));
        return Ok((batch.schema(), vec![batch]));
    }
    Err(PyTypeError::new_err(format!(
        "an object with __arrow_c_stream__ or __arrow_c_array__ is expected (a table of pyarrow, pandas, Polars, \
         DuckDB, …), not {}",
        object.get_type().name()?
    )))
}
