#![allow(missing_docs, unused)]
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use firn_base::Result;
use firn_base::sync::Arc;
use std::collections::BTreeMap;
#[derive(Debug)]
pub struct Source(());
impl Source {
    pub fn new(schema: &Schema, batches: Vec<RecordBatch>) -> Result<Source> {
        unimplemented!()
    }
}
#[derive(Clone, Debug, Default)]
pub struct Sources(BTreeMap<String, Arc<Source>>);
impl Sources {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn find(&self, schema: Option<&str>, name: &str) -> Option<&Arc<Source>> {
        if schema.is_some() { None } else { self.0.get(name) }
    }
    pub fn with(&self, name: &str, source: Source) -> Sources {
        unimplemented!()
    }
    pub fn without(&self, name: &str) -> Option<Sources> {
        unimplemented!()
    }
}
impl PartialEq for Sources {
    fn eq(&self, other: &Sources) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((a, s), (b, t))| a == b && Arc::ptr_eq(s, t))
    }
}
