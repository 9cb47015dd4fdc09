#![allow(missing_docs, unused)]
use crate::parse::Parsed;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use arrow_array::RecordBatch;
use firn_base::sync::Arc;
use firn_base::{Error, Result, TimeZoneSetting};
pub use firn_load::end_of_first_row;
pub use firn_load::source::is_damage;
use firn_syntax::tree::Copy;
use firn_txn::Transaction;
use std::io;
use std::path::Path;
#[path = "../copy/progress.rs"]
mod progress;
pub use progress::{Channel, Progress};
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFormat {
    Text,
    Csv,
    Binary,
    Json,
    Parquet,
    Arrow,
}
impl CopyFormat {
    pub fn is_binary(self) -> bool {
        unimplemented!()
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Open,
    Read,
}
pub type Failed<'f> = &'f (dyn Fn(Deed, &io::Error) -> Error + Sync);
#[derive(Debug)]
pub struct Copied {
    pub rows: u64,
    pub notices: Vec<Error>,
}
pub struct CopyFrom(());
impl CopyFrom {
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        zone: TimeZoneSetting,
    ) -> Result<CopyFrom> {
        unimplemented!()
    }
    pub fn release_snapshot(&self, transaction: &mut Transaction) {
        unimplemented!()
    }
    pub fn progress(&self) -> &Arc<Progress> {
        unimplemented!()
    }
    pub fn columns(&self) -> usize {
        unimplemented!()
    }
    pub fn format(&self) -> CopyFormat {
        unimplemented!()
    }
    pub fn write(&mut self, transaction: &mut Transaction, options: &RunOptions, data: &[u8]) -> Result<()> {
        unimplemented!()
    }
    pub fn finish(self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        unimplemented!()
    }
    pub fn read_file(
        self,
        transaction: &mut Transaction,
        options: &RunOptions,
        path: &Path,
        failed: Failed<'_>,
    ) -> Result<Copied> {
        unimplemented!()
    }
    pub fn write_batch(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        unimplemented!()
    }
}
pub fn make_rejects_table(context: &mut crate::ddl::Context<'_>, copy: &Copy) -> Result<bool> {
    unimplemented!()
}
pub struct CopyTo(());
impl CopyTo {
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        options: &RunOptions,
        zone: TimeZoneSetting,
    ) -> Result<CopyTo> {
        unimplemented!()
    }
    pub fn progress(&self) -> &Arc<Progress> {
        unimplemented!()
    }
    pub fn columns(&self) -> usize {
        unimplemented!()
    }
    pub fn format(&self) -> CopyFormat {
        unimplemented!()
    }
    pub fn has_whole_rows(&self) -> bool {
        unimplemented!()
    }
    pub fn rows(&self) -> u64 {
        unimplemented!()
    }
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
}
