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
