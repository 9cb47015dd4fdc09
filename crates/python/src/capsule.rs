//! Arrow data across Python's boundary: the PyCapsule interface, which passes only pointers.
//!
//! Implemented here instead of with `pyo3-arrow`, which would compile Arrow with other features
//! than everywhere else (docs/decisions/0025-python-package.md).

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    NullArray, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader, StructArray,
};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// The exception for Arrow's error about another library's data.
pub fn invalid(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Batches of one result, for any consumer of Arrow.
#[pyclass(frozen, module = "firndb._firndb")]
pub struct Batches {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

#[pymethods]
impl Batches {
    /// A stream of them; any number of streams may be open.
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

/// A stream for another library, in the requested types as far as there are casts.
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
    let guarded = Guarded { schema: reader.schema(), reader: Some(reader) };
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(guarded)), STREAM)
}

/// A reader that others call as a C function. A panic across this boundary would end the process, and so would an
/// error that C cannot read, with a NUL in its text.
struct Guarded {
    schema: SchemaRef,
    /// `None` after a panic.
    reader: Option<Box<dyn RecordBatchReader + Send>>,
}

impl Iterator for Guarded {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let failed = |why: &str| Some(Err(ArrowError::ExternalError(why.into())));
        let Some(reader) = &mut self.reader else { return failed("the stream has failed before") };
        match catch_unwind(AssertUnwindSafe(|| reader.next())) {
            Ok(next) => next.map(|next| next.map_err(readable)),
            Err(panic) => {
                self.release();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown cause");
                failed(&format!("internal error: {}", text.replace('\0', NUL)))
            }
        }
    }
}

impl RecordBatchReader for Guarded {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Guarded {
    fn release(&mut self) {
        // Dropping it may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.reader.take())));
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.release();
    }
}

/// The replacement of a NUL in a text for C.
const NUL: &str = "\u{FFFD}";

/// An error whose text C can read.
fn readable(error: ArrowError) -> ArrowError {
    let text = match &error {
        ArrowError::ExternalError(source) => source.to_string(),
        other => other.to_string(),
    };
    if text.contains('\0') { ArrowError::ExternalError(text.replace('\0', NUL).into()) } else { error }
}

/// A schema for another library.
pub fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowSchema::try_from(schema).map_err(invalid)?, SCHEMA)
}

/// The schema with the requested types, where there are casts to them.
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

/// A batch in the requested types; a value that does not fit is an error.
fn converted(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        cast_with_options(column, field.data_type(), &options).map_err(|error| {
            let (name, ty) = (field.name(), field.data_type());
            ArrowError::CastError(format!(
                "column \"{name}\" cannot be converted to the requested type {ty}: {error}"
            ))
        })
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// All batches of an object that has `__arrow_c_stream__` or `__arrow_c_array__`.
pub fn import(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let pointer: NonNull<FFI_ArrowArrayStream> = capsule.pointer_checked(Some(STREAM))?.cast();
        // SAFETY: a capsule of this name holds a stream, which is moved out of it and marked as gone.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
        // Another thread that needs the interpreter may compute the stream.
        return object.py().detach(|| drained(stream)).map_err(invalid);
    }
    if object.hasattr("__arrow_c_array__")? {
        let capsules = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
        let schema: NonNull<FFI_ArrowSchema> = schema.pointer_checked(Some(SCHEMA))?.cast();
        let array: NonNull<FFI_ArrowArray> = array.pointer_checked(Some(ARRAY))?.cast();
        // SAFETY: a capsule of this name holds a schema, by the interface's contract, and lives during this call.
        let ty = DataType::try_from(unsafe { schema.as_ref() }).map_err(invalid)?;
        // SAFETY: a capsule of this name holds an array, which is moved out of it and marked as gone.
        let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
        let DataType::Struct(fields) = ty else { return Err(no_table()) };
        let schema = Arc::new(Schema::new(fields));
        // SAFETY: the array has the type of its schema, by the interface's contract.
        let batch = unsafe { imported(array, &schema) }.map_err(invalid)?.ok_or_else(no_table)?;
        return Ok((schema, vec![batch]));
    }
    Err(PyTypeError::new_err(format!(
        "an object with __arrow_c_stream__ or __arrow_c_array__ is expected (a table of pyarrow, pandas, Polars, \
         DuckDB, …), not {}",
        object.get_type().name()?
    )))
}

/// The whole content of a stream. Implemented here because Arrow's own reader panics when a stream fails without an error text.
fn drained(mut stream: FFI_ArrowArrayStream) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let (Some(get_schema), Some(get_next), Some(_)) = (stream.get_schema, stream.get_next, stream.release)
    else {
        return Err(ArrowError::CDataInterface("the stream has been read already".to_owned()));
    };
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: a stream that is not released has a function that fills a schema or reports an error.
    let code = unsafe { get_schema(&mut stream, &mut schema) };
    if code != 0 {
        return Err(failure(&mut stream, code));
    }
    let schema: SchemaRef = Arc::new(Schema::try_from(&schema)?);
    let mut batches = Vec::new();
    loop {
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: as above; an array that it does not fill remains released, which means the end.
        let code = unsafe { get_next(&mut stream, &mut array) };
        if code != 0 {
            return Err(failure(&mut stream, code));
        }
        if array.is_released() {
            return Ok((schema, batches));
        }
        // SAFETY: the arrays of a stream are structures of its schema's fields, by the interface's contract.
        let batch = unsafe { imported(array, &schema) }?;
        let batch =
            batch.ok_or_else(|| ArrowError::CDataInterface("a batch of the stream is NULL".to_owned()));
        batches.push(batch?);
    }
}

#[cold]
fn no_table() -> PyErr {
    PyTypeError::new_err("a table or record batch is expected, not a single column")
}

/// The batch that a structure is; `None` if it has NULLs itself, which the rows of a batch cannot be.
///
/// A column of type null has no buffers, but Polars passes an obsolete one that may say which rows are NULL, and
/// `arrow` refuses such a column. It is read as the structure without fields, whose only buffer is such a one.
///
/// # Safety
/// The array is a structure of the schema's fields.
unsafe fn imported(array: FFI_ArrowArray, schema: &SchemaRef) -> Result<Option<RecordBatch>, ArrowError> {
    let has_bitmap = |column| column < array.num_children() && array.child(column).num_buffers() == 1;
    let fields = schema.fields().iter().enumerate().map(|(column, field)| match field.data_type() {
        DataType::Null if has_bitmap(column) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(Fields::empty())))
        }
        _ => field.clone(),
    });
    let ty = DataType::Struct(fields.collect());
    // SAFETY: the caller's promise; a column of type null with one buffer has the layout of a structure without fields.
    let data = unsafe { from_ffi_and_data_type(array, ty) }?;
    if data.null_count() > 0 {
        return Ok(None);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(data.len()));
    let columns = StructArray::from(data).into_parts().1.into_iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match field.data_type() {
        DataType::Null => Arc::new(NullArray::new(column.len())),
        _ => column,
    });
    RecordBatch::try_new_with_options(schema.clone(), columns.collect(), &options).map(Some)
}

/// The error of a stream, which need not have a text.
fn failure(stream: &mut FFI_ArrowArrayStream, code: c_int) -> ArrowError {
    let text = match stream.get_last_error {
        // SAFETY: the function is called right after the one that failed, on a stream that is not released.
        Some(get_last_error) => unsafe { get_last_error(stream) },
        None => std::ptr::null(),
    };
    ArrowError::CDataInterface(match text.is_null() {
        true => format!("the stream fails with error {code}, without a message"),
        // SAFETY: the returned text ends with a NUL and is valid until the function is called again.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    })
}
