//! The column that tells the file of each row: it stands in no file, so that readers know nothing of it. Conditions over it
//! alone say which files are read at all.

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringViewBuilder};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::common::cast::as_boolean_array;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use firn_base::sync::Arc;
use firn_base::{Result, SqlType};
use firn_exec::error::from_datafusion;
use firn_exec::types;
use std::path::{Path, PathBuf};

/// Where a statement wants the names of files among its columns.
#[derive(Clone)]
pub(super) struct Names {
    at: usize,
    name: String,
}

impl Names {
    /// Takes the column out of those that are wanted, if it is one: it is the one of that number.
    pub fn among(wanted: &mut Vec<usize>, number: usize, name: &str) -> Option<Names> {
        let at = wanted.iter().position(|column| *column == number)?;
        wanted.remove(at);
        Some(Names { at, name: name.to_owned() })
    }
}

/// The columns of a file's batches, with that of the names.
pub(super) fn schema(names: &Option<Names>, columns: &SchemaRef) -> SchemaRef {
    match names {
        Some(Names { at, name }) => with_name(columns, *at, name),
        None => columns.clone(),
    }
}

/// Columns with one more for the names of files.
pub(super) fn with_name(columns: &SchemaRef, at: usize, name: &str) -> SchemaRef {
    let mut fields: Vec<FieldRef> = columns.fields().to_vec();
    fields.insert(at, types::field(name, SqlType::Text));
    Arc::new(Schema::new(fields))
}

/// A batch of a file's rows, with the file's name if it is wanted.
pub(super) fn add(names: &Option<Names>, batch: RecordBatch, path: &Path) -> Result<RecordBatch> {
    let Some(Names { at, .. }) = names else { return Ok(batch) };
    let rows = batch.num_rows();
    let schema = schema(names, batch.schema_ref());
    let mut columns = batch.columns().to_vec();
    columns.insert(*at, repeated(path, rows));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| from_datafusion(error.into()))
}

/// A path so many times.
fn repeated(path: &Path, times: usize) -> ArrayRef {
    let name = path.to_string_lossy();
    // Long names lie there once.
    let mut names = StringViewBuilder::with_capacity(times).with_deduplicate_strings();
    (0..times).for_each(|_| names.append_value(&name));
    Arc::new(names.finish())
}

/// Leaves the files whose names meet those conditions that are about nothing else, and the conditions that are about
/// none of it. Above the scan all are asked again.
pub(super) fn choose(session: &dyn Session, name: &str, filters: &mut Vec<Expr>, paths: &mut Vec<PathBuf>) {
    let columns =
        |filter: &Expr| filter.column_refs().into_iter().map(|column| column.name == name).collect();
    let mut of_names = Vec::new();
    filters.retain(|filter| {
        let are_names: Vec<bool> = columns(filter);
        if !are_names.is_empty() && are_names.iter().all(|is_name| *is_name) {
            of_names.push(filter.clone());
        }
        !are_names.contains(&true)
    });
    if let Some(met) = conjunction(of_names).and_then(|condition| met(session, name, condition, paths)) {
        let mut met = met.into_iter();
        paths.retain(|_| met.next().unwrap_or(true));
    }
}

/// Which of the files meet a condition over their names; `None` where that cannot be told.
fn met(session: &dyn Session, name: &str, condition: Expr, paths: &[PathBuf]) -> Option<Vec<bool>> {
    let schema = with_name(&Arc::new(Schema::empty()), 0, name);
    let condition =
        session.create_physical_expr(condition, &DFSchema::try_from(schema.clone()).ok()?).ok()?;
    let mut all = StringViewBuilder::new();
    paths.iter().for_each(|path| all.append_value(path.to_string_lossy()));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(all.finish())]).ok()?;
    let met = condition.evaluate(&batch).ok()?.into_array(paths.len()).ok()?;
    Some(as_boolean_array(&met).ok()?.iter().map(|met| met == Some(true)).collect())
}
