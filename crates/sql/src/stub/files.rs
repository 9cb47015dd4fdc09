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
impl ZoneMaps {
    pub fn set_chunk_bytes(&self, bytes: usize) {
        unimplemented!()
    }
    pub fn len(&self) -> usize {
        unimplemented!()
    }
}
