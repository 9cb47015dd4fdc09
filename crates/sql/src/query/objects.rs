//! The session of a statement for its functions, and the names of objects for the text forms of `regclass` and its relatives.

use crate::pg_catalog::{Source, names};
use firn_base::{Result, TypeId};
use firn_vector::context::{Objects, Session};
use std::any::Any;

impl Objects for Source {
    fn name(&self, ty: TypeId, oid: u32) -> Option<String> {
        names::object_name(self, ty, oid)
    }

    fn oid(&self, ty: TypeId, name: &str) -> Result<Option<u32>> {
        names::object_oid(self, ty, name)
    }
}

impl Session for Source {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
