#![allow(missing_docs, unused)]
use arrow_array::RecordBatch;
use arrow_schema::{Field, FieldRef};
use firn_base::{Result, SqlType, Value};
pub use firn_storage::views::{strings_of, tightened};
pub fn sql_type(field: &Field) -> Result<SqlType> {
    unimplemented!()
}
pub fn plain_field(field: &Field) -> Result<FieldRef> {
    unimplemented!()
}
pub fn normalise(batch: &RecordBatch, targets: Option<&[SqlType]>) -> Result<RecordBatch> {
    unimplemented!()
}
pub fn rows(batch: &RecordBatch, budget: &mut usize) -> Result<Vec<Vec<Value>>> {
    unimplemented!()
}
pub fn refuse_claims(batch: &RecordBatch, most_bytes: usize) -> Result<()> {
    unimplemented!()
}
