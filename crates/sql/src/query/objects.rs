//! The names of objects, for the text forms of `regclass` and its like.

use crate::pg_catalog::functions as shared;
use crate::pg_catalog::{Cell, Source};
use firn_base::{Result, TypeId};
use firn_vector::context::Objects;

impl Objects for Source {
    fn name(&self, ty: TypeId, oid: u32) -> Option<String> {
        shared::object_name(self, ty, oid.into())
    }

    fn oid(&self, ty: TypeId, name: &str) -> Result<Option<u32>> {
        Ok(shared::object_oid(self, ty, &Cell::Text(name.to_owned())).map(|oid| oid as u32))
    }
}
