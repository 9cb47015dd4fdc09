//! The result of a statement: rows that are computed while they are read, returned as tuples or as Arrow batches.
//!
//! Rows are computed when they are requested. Some are converted to tuples ahead of time; a program that then continues with
//! Arrow gets those again, in batches.

use crate::capsule::{self, Batches};
use crate::database::{has_forked, refuse_fork};
use crate::error;
use crate::interrupt::{self, lock};
use crate::session::{Core, drop_released};
use crate::to_python::{tuples_of_values, tuples_of_vectors};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use firn_session::base::{Error, Result, SqlState, Value};
use firn_session::server::{ResultChunk, RowChunk};
use firn_session::{Column, CommandTag, Rows};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// How many rows are converted to tuples at once.
const TUPLES_AHEAD: usize = 256;

/// A range of rows that have been computed.
enum Stretch {
    Values(Vec<Value>),
    Vectors(ResultChunk, Range<usize>),
}

/// The rows of a result, while they are fetched. Locked after the connection's state.
pub struct Drawn {
    rows: Option<Rows>,
    schema: SchemaRef,
    columns: Arc<[Column]>,
    chunk: Option<RowChunk>,
    /// How many rows of the chunk have been returned or are in `ready`.
    offset: usize,
    tag: CommandTag,
    ended: bool,
}

impl Drawn {
    /// Drops the rows. A later request for rows is an error, unless there were no more.
    pub fn close(&mut self) {
        (self.rows, self.chunk) = (None, None);
    }

    /// How many rows of the chunk are left.
    fn left(&self) -> usize {
        match &self.chunk {
            None => 0,
            Some(chunk) => chunk.rows(self.columns.len()) - self.offset,
        }
    }

    /// Ensures that the chunk has rows; false at the end.
    fn draw(&mut self) -> Result<bool> {
        while self.left() == 0 {
            (self.chunk, self.offset) = (None, 0);
            let Some(rows) = &mut self.rows else {
                return if self.ended { Ok(false) } else { Err(error::closed("result")) };
            };
            match rows.next_chunk() {
                Ok(Some(chunk)) => self.chunk = Some(chunk),
                Ok(None) => {
                    (self.tag, self.ended) = (rows.tag(), true);
                    self.close();
                }
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// At most this number of rows; `None` at the end.
    fn stretch(&mut self, most: usize) -> Result<Option<Stretch>> {
        if !self.draw()? {
            return Ok(None);
        }
        let (from, rows) = (self.offset, self.left().min(most));
        self.offset += rows;
        Ok(self.chunk.as_ref().map(|chunk| match chunk {
            RowChunk::Vectors(chunk) => Stretch::Vectors(chunk.clone(), from..from + rows),
            RowChunk::Values(values) => {
                let width = self.columns.len();
                Stretch::Values(values[from * width..(from + rows) * width].to_vec())
            }
        }))
    }

    /// The rest of the chunk, or the next one, as a batch.
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if !self.draw()? {
            return Ok(None);
        }
        let chunk = self.chunk.take().expect("there are rows");
        let (_, chunk) = chunk.split(self.offset, self.columns.len());
        Rows::batch(chunk, &self.columns, &self.schema).map(Some)
    }

    /// Returns tuples that were made ahead and are not used to the chunk.
    fn take_back(&mut self, rows: usize) {
        assert!(rows <= self.offset, "tuples are made of the chunk; a cursor is used by one thread");
        self.offset -= rows;
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        if let Some(rows) = self.rows.take() {
            drop_released(rows, drop);
        }
    }
}

/// The rows of a result, for their readers.
#[derive(Clone)]
struct Source {
    core: Arc<Core>,
    drawn: Arc<Mutex<Drawn>>,
    /// Tuples that have not been requested yet. Locked with the interpreter held, and never during a wait.
    ready: Arc<Mutex<VecDeque<Py<PyTuple>>>>,
}

impl Source {
    /// Calls `work` with the rows, of which the first are those in `ready`.
    fn whole<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Drawn) -> Result<T> + Send,
    ) -> PyResult<Result<T>> {
        let ready = std::mem::take(&mut *self.ready.lock());
        let (rows, mut are_back) = (ready.len(), false);
        let done = self.core.try_call(py, |_| {
            let mut drawn = self.drawn.lock();
            drawn.take_back(rows);
            are_back = true;
            work(&mut drawn)
        });
        if !are_back {
            *self.ready.lock() = ready;
        }
        done
    }
}

/// The result of a statement.
#[pyclass(frozen, module = "firndb._firndb")]
pub struct RowSet {
    source: Source,
    columns: Option<Arc<[Column]>>,
    schema: SchemaRef,
}

impl RowSet {
    /// For a statement that yields rows. The first rows are computed at once: so most errors are raised where the
    /// statement is executed, and `SELECT nextval('s')` has its effect even if no row is fetched.
    pub fn of_rows(py: Python<'_>, core: Arc<Core>, rows: Rows) -> PyResult<RowSet> {
        let (columns, schema, tag) = (rows.columns().clone(), rows.schema(), rows.tag());
        let drawn = Drawn {
            rows: Some(rows),
            schema: schema.clone(),
            columns: columns.clone(),
            chunk: None,
            offset: 0,
            tag,
            ended: false,
        };
        let rows = RowSet::new(core, drawn, Some(columns), schema);
        let Source { core, drawn, .. } = &rows.source;
        core.call(py, |_| drawn.lock().draw())?;
        Ok(rows)
    }

    /// For any other.
    pub fn of_tag(core: Arc<Core>, tag: CommandTag) -> RowSet {
        let schema: SchemaRef = Arc::new(arrow_schema::Schema::empty());
        let drawn = Drawn {
            rows: None,
            schema: schema.clone(),
            columns: Arc::new([]),
            chunk: None,
            offset: 0,
            tag,
            ended: true,
        };
        RowSet::new(core, drawn, None, schema)
    }

    fn new(core: Arc<Core>, drawn: Drawn, columns: Option<Arc<[Column]>>, schema: SchemaRef) -> RowSet {
        let drawn = Arc::new(Mutex::new(drawn));
        core.keep(&drawn);
        RowSet { source: Source { core, drawn, ready: Arc::default() }, columns, schema }
    }

    fn columns(&self, py: Python<'_>) -> PyResult<&Arc<[Column]>> {
        self.columns.as_ref().ok_or_else(|| {
            let error = Error::new(SqlState::SYNTAX_ERROR, "the statement yields no rows");
            error::raised(py, &error)
        })
    }

    /// As [`Source::whole`], if the statement yields rows.
    fn whole<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Drawn) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.columns(py)?;
        self.source.whole(py, work)?.map_err(|error| error::raised(py, &error))
    }

    /// Converts the next rows to tuples; false at the end.
    fn refill(&self, py: Python<'_>, wanted: usize) -> PyResult<bool> {
        let columns = self.columns(py)?;
        let Source { core, drawn, ready } = &self.source;
        let most = wanted.clamp(TUPLES_AHEAD, 1 << 14);
        let stretch = core.call(py, |_| drawn.lock().stretch(most))?;
        let (tuples, rows) = match stretch {
            None => return Ok(false),
            Some(Stretch::Values(values)) => {
                (tuples_of_values(py, columns.len(), &values), values.len() / columns.len().max(1))
            }
            Some(Stretch::Vectors(chunk, rows)) => {
                (tuples_of_vectors(py, columns, &chunk, rows.clone()), rows.len())
            }
        };
        match tuples {
            Ok(tuples) => {
                ready.lock().extend(tuples);
                Ok(true)
            }
            Err(raised) => {
                // Python cannot represent one of them, but Arrow can.
                core.call(py, |_| {
                    drawn.lock().take_back(rows);
                    Ok(())
                })?;
                Err(raised)
            }
        }
    }
}

#[pymethods]
impl RowSet {
    /// Name, type, precision and scale of each column; None if the statement yields no rows.
    #[getter]
    #[allow(clippy::type_complexity)]
    fn columns_of(&self) -> Option<Vec<(String, String, Option<u16>, Option<i16>)>> {
        let columns = self.columns.as_ref()?;
        let describe = |column: &Column| {
            let name =
                column.ty.info().map_or_else(|| column.ty.to_string(), |info| info.sql_name.to_owned());
            let (precision, scale) = column.ty.precision_and_scale().unzip();
            (column.name.clone(), name, precision, scale)
        };
        Some(columns.iter().map(describe).collect())
    }

    /// How many rows were changed, or fetched once all have been; -1 while that is unknown.
    #[getter]
    fn rowcount(&self, py: Python<'_>) -> PyResult<i64> {
        // A thread that held the lock does not exist in a forked child, where the lock is never released.
        refuse_fork(py)?;
        // Another thread may be drawing.
        let drawn = &self.source.drawn;
        interrupt::released(py, || {
            let Some(drawn) = lock(drawn) else { return -1 };
            match drawn.tag.shown_rows() {
                Some(rows) if drawn.ended => rows as i64,
                _ => -1,
            }
        })
    }

    /// What the statement did, such as `INSERT 0 3`.
    #[getter]
    fn statusmessage(&self, py: Python<'_>) -> PyResult<String> {
        refuse_fork(py)?;
        let drawn = &self.source.drawn;
        interrupt::released(py, || lock(drawn).map_or_else(String::new, |drawn| drawn.tag.to_string()))
    }

    /// The next row, or None.
    fn fetchone(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        loop {
            if let Some(row) = self.source.ready.lock().pop_front() {
                return Ok(Some(row));
            }
            if !self.refill(py, 1)? {
                return Ok(None);
            }
        }
    }

    /// The next rows: at most this number, or all without a number.
    #[pyo3(signature = (size=None))]
    fn fetch(&self, py: Python<'_>, size: Option<usize>) -> PyResult<Vec<Py<PyTuple>>> {
        let size = size.unwrap_or(usize::MAX);
        self.columns(py)?;
        let mut rows = Vec::new();
        loop {
            {
                let mut ready = self.source.ready.lock();
                let taken = ready.len().min(size - rows.len());
                rows.extend(ready.drain(..taken));
            }
            if rows.len() == size || !self.refill(py, size - rows.len())? {
                return Ok(rows);
            }
        }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        self.fetchone(py)
    }

    /// The next batch, or None.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Batches>> {
        let batch = self.whole(py, Drawn::batch)?;
        Ok(batch.map(|batch| Batches { schema: self.schema.clone(), batches: vec![batch] }))
    }

    /// All remaining batches.
    fn batches(&self, py: Python<'_>) -> PyResult<Batches> {
        let batches = self.whole(py, |drawn| {
            let mut batches = Vec::new();
            while let Some(batch) = drawn.batch()? {
                batches.push(batch);
            }
            Ok(batches)
        })?;
        Ok(Batches { schema: self.schema.clone(), batches })
    }

    /// The remaining rows as a stream, which computes them when its consumer requests them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.whole(py, |_| Ok(()))?;
        let reader = Reader { source: self.source.clone(), schema: self.schema.clone() };
        capsule::export(py, reader, requested_schema)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::export_schema(py, &self.schema)
    }

    /// Drops the rows.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if has_forked() {
            return Ok(());
        }
        let ready = std::mem::take(&mut *self.source.ready.lock());
        drop(ready);
        // Closing the connection has closed its results.
        let drawn = &self.source.drawn;
        interrupt::released(py, || {
            if let Some(mut drawn) = lock(drawn) {
                drawn.close();
            }
        })
    }
}

/// The rows of a result for a consumer of Arrow, which may call from any thread.
struct Reader {
    source: Source,
    schema: SchemaRef,
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = Python::try_attach(|py| {
            match self.source.whole(py, Drawn::batch) {
                Ok(Ok(batch)) => Ok(batch),
                Ok(Err(error)) => Err(ArrowError::ExternalError(Box::new(error))),
                // The interface cannot pass an exception. Ctrl-C's will be raised again.
                Err(raised) => {
                    if raised.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                        let _ = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
                    }
                    Err(ArrowError::ExternalError("interrupted by a signal handler".into()))
                }
            }
        });
        match next {
            Some(next) => next.transpose(),
            None => Some(Err(ArrowError::ExternalError("the interpreter is shutting down".into()))),
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
