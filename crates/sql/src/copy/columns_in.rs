//! COPY FROM files that store columns: Parquet, and Arrow's IPC format as a file or as a stream.
//!
//! Such files name their columns, and the names determine the columns of the table. Text for a column of another
//! type is read as a literal of that type.

use super::from::{Incoming, Store};
use super::stop_if_cancelled;
use crate::arrow;
use crate::files::Kind;
use crate::files::columns::{Fitted, open, readable};
use crate::files::ipc::StreamReader;
use crate::run::RunOptions;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema};
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, TextStyle, TimeZoneSetting, Type, TypeId, thread};
use firn_txn::Transaction;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;

/// Rows of a batch that is stored at once.
const BATCH_ROWS: usize = 64 << 10;

/// The most parts in which a file is read; progress is reported after each.
const SHARES: usize = 32;

/// Batches that may wait to be stored.
const WAITING_BATCHES: usize = 2;

/// Columns that are read.
pub(super) struct ColumnsIn {
    kind: Kind,
    place: String,
    /// Whether the statement names columns: then the file may have others.
    named: bool,
    zone: TimeZoneSetting,
    stream: StreamReader,
    /// Which columns of the stream are stored, once they are known.
    found: Option<Vec<usize>>,
}

impl ColumnsIn {
    pub fn new(kind: Kind, place: String, named: bool, zone: TimeZoneSetting) -> ColumnsIn {
        ColumnsIn { kind, place, named, zone, stream: StreamReader::default(), found: None }
    }

    /// Takes the next bytes of a stream.
    pub fn push(
        &mut self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        data: &[u8],
    ) -> Result<()> {
        self.guarded(|stream| stream.push(data))?;
        let Some(schema) = self.stream.schema() else { return Ok(()) };
        if self.found.is_none() {
            self.found = Some(self.choose(store, transaction, &schema)?);
        }
        while let Some(batch) = self.stream.next_batch() {
            let found = self.found.as_ref().expect("it has just been chosen");
            let batch = batch.project(found).map_err(external)?;
            crate::arrow::refuse_claims(&batch, 1 << 30)?;
            self.store(store, transaction, options, &batch)?;
        }
        Ok(())
    }

    /// Ends a stream.
    pub fn finish(&mut self) -> Result<()> {
        self.guarded(|stream| stream.finish())
    }

    fn guarded(
        &mut self,
        step: impl FnOnce(&mut StreamReader) -> std::result::Result<(), ArrowError>,
    ) -> Result<()> {
        let damaged = |why: &str| {
            let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "the data is not an Arrow stream");
            error.with_detail(why.lines().next().unwrap_or_default()).with_context(self.place.clone())
        };
        match catch_unwind(AssertUnwindSafe(|| step(&mut self.stream))) {
            Ok(done) => done.map_err(|error| damaged(&error.to_string())),
            Err(_) => Err(damaged("its metadata is inconsistent")),
        }
    }

    /// Reads a whole file. Another thread reads it while this one stores.
    pub fn read_file(
        self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
    ) -> Result<()> {
        let file = open(path, self.kind)?;
        let found = self.choose(store, transaction, file.schema())?;
        let field = |column: &usize| readable(path, &*file, *column);
        let schema = Arc::new(Schema::new(found.iter().map(field).collect::<Result<Vec<_>>>()?));
        let file = Fitted::of(path, file, &found, schema);
        let (sender, batches) = mpsc::sync_channel::<RecordBatch>(WAITING_BATCHES);
        let progress = store.progress.clone();
        thread::scope(|scope| {
            let read = move || {
                let gone = |_| Error::new(SqlState::QUERY_CANCELED, "the reader of the rows has ended");
                let parts = file.all();
                // For each part the file is opened and its dictionaries are read.
                let shares = parts.chunks(parts.len().div_ceil(SHARES).max(1));
                let share_bytes = progress.bytes_in_all() / shares.len().max(1) as u64;
                for share in shares {
                    file.read(share, BATCH_ROWS, &mut |batch| sender.send(batch).map_err(gone))?;
                    progress.add_bytes(share_bytes);
                }
                Ok(())
            };
            let reader = thread::start_scoped(scope, "firn-load", read)?;
            for batch in batches {
                stop_if_cancelled(options)?;
                self.store(store, transaction, options, &batch)?;
            }
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Finds the columns of the table in a file by their names, and stores only those; others get their defaults.
    fn choose(&self, store: &mut Store, transaction: &Transaction, schema: &Schema) -> Result<Vec<usize>> {
        let place = |name: &str| schema.fields().iter().position(|field| field.name() == name);
        if self.named {
            let missing = store.columns.iter().find(|(_, name, _)| place(name).is_none());
            if let Some((_, name, _)) = missing {
                let message = format!("the file has no column \"{name}\"");
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                    .with_hint(has(schema))
                    .with_context(self.place.clone()));
            }
        } else {
            let is_known = |field: &&FieldRef| !store.columns.iter().any(|(_, name, _)| name == field.name());
            if let Some(field) = schema.fields().iter().find(is_known) {
                let message = format!("there is no column \"{}\" to copy to", field.name());
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                    .with_hint("Name the columns to be read: COPY t (a, b) FROM …")
                    .with_context(self.place.clone()));
            }
            store.retain_columns(transaction, |name| place(name).is_some())?;
        }
        let is_ambiguous =
            |name: &String| schema.fields().iter().filter(|field| field.name() == name).count() > 1;
        if let Some((_, name, _)) = store.columns.iter().find(|(_, name, _)| is_ambiguous(name)) {
            let message = format!("the file has more than one column \"{name}\"");
            return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message)
                .with_hint(format!(
                    "Queries call the others \"{name}_1\", …: INSERT INTO t SELECT … FROM 'file.parquet'."
                ))
                .with_context(self.place.clone()));
        }
        Ok(store.columns.iter().map(|(_, name, _)| place(name).expect("it is there")).collect())
    }

    /// Stores a batch of the chosen columns.
    fn store(
        &self,
        store: &mut Store,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        let targets: Vec<Type> = store.columns.iter().map(|(_, _, ty)| *ty).collect();
        let batch =
            arrow::normalise(batch, Some(&targets)).map_err(|error| store.placed(transaction, error))?;
        let rows = batch.num_rows();
        let lies_as_stored = |(column, ty): (&ArrayRef, &Type)| {
            let is_bounded = ty.length().is_some();
            !is_bounded && is_stored_alike(column.data_type(), *ty)
        };
        if batch.columns().iter().zip(&targets).all(lies_as_stored) {
            return store.put(transaction, options, rows, batch.columns());
        }
        let mut columns = Vec::new();
        for (column, (_, name, ty)) in batch.columns().iter().zip(&store.columns) {
            let is_text = matches!(ty.id, TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME);
            match column.data_type() {
                DataType::Utf8View if !is_text => {
                    columns.push((Incoming::Stored(self.literals(column, name, *ty)?), *ty));
                }
                plain => {
                    let ty = arrow::types::type_of(plain).expect("a normal batch has plain types");
                    columns.push((Incoming::Plain(column.clone()), ty));
                }
            }
        }
        store.assign_columns(transaction, options, rows, &columns)
    }

    /// Texts read as literals of a type, in the representation of the storage.
    fn literals(&self, texts: &ArrayRef, name: &str, ty: Type) -> Result<ArrayRef> {
        let read = firn_load::read_literals(texts.as_string_view(), ty, TextStyle::in_zone(self.zone));
        read.map_err(|(error, value)| {
            let shown: String = value.chars().take(100).collect();
            error.with_context(format!("{}, column {name}: \"{shown}\"", self.place))
        })
    }
}

/// Whether a plain array has the representation of the storage for a type.
fn is_stored_alike(plain: &DataType, ty: Type) -> bool {
    match ty.representation() {
        // The storage has images of these.
        None | Some(Representation::Numeric | Representation::List(_) | Representation::Record) => false,
        Some(representation) => *plain == firn_storage::arrow::data_type(representation),
    }
}

/// The columns of a file, for a hint.
fn has(schema: &Schema) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = schema.fields().iter().take(MOST).map(|field| field.name().as_str()).collect();
    let more = if schema.fields().len() > MOST { ", …" } else { "" };
    format!("Its columns are {}{more}.", names.join(", "))
}

fn external(error: ArrowError) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, error.to_string())
}
