#![allow(missing_docs, unused)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileVersions(());
impl FileVersions {
    pub fn is_current(&self) -> bool {
        unimplemented!()
    }
}
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ZoneMaps(());

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Csv,
    Json,
    Parquet,
    Arrow,
}
impl Kind {
    pub fn by_bytes(first: &[u8]) -> Option<Kind> {
        unimplemented!()
    }
}
pub(crate) mod columns {
    use super::Kind;
    use arrow_array::RecordBatch;
    use arrow_schema::{FieldRef, SchemaRef};
    use firn_base::Result;
    use std::path::Path;
    pub(crate) trait ColumnFile: Send + Sync {
        fn schema(&self) -> &SchemaRef;
    }
    pub(crate) type Sink<'s> = &'s mut dyn FnMut(RecordBatch) -> Result<()>;
    pub(crate) fn open(path: &Path, kind: Kind) -> Result<Box<dyn ColumnFile>> {
        unimplemented!()
    }
    pub(crate) fn readable(path: &Path, file: &dyn ColumnFile, column: usize) -> Result<FieldRef> {
        unimplemented!()
    }
    pub(crate) struct Fitted(Box<dyn ColumnFile>);
    impl Fitted {
        pub(crate) fn of(
            path: &Path,
            file: Box<dyn ColumnFile>,
            found: &[usize],
            schema: SchemaRef,
        ) -> Fitted {
            unimplemented!()
        }
        pub(crate) fn all(&self) -> Vec<usize> {
            unimplemented!()
        }
        pub(crate) fn read(&self, parts: &[usize], batch_rows: usize, sink: Sink<'_>) -> Result<()> {
            unimplemented!()
        }
    }
}
pub(crate) mod ipc {
    use arrow_array::RecordBatch;
    use arrow_schema::{ArrowError, SchemaRef};
    #[derive(Default)]
    pub(crate) struct StreamReader(());
    impl StreamReader {
        pub fn push(&mut self, bytes: &[u8]) -> std::result::Result<(), ArrowError> {
            unimplemented!()
        }
        pub fn schema(&self) -> Option<SchemaRef> {
            unimplemented!()
        }
        pub fn next_batch(&mut self) -> Option<RecordBatch> {
            unimplemented!()
        }
        pub fn finish(&self) -> std::result::Result<(), ArrowError> {
            unimplemented!()
        }
    }
}
