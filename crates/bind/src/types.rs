//! Facts of types that overloads and casts are resolved by.

use firn_base::type_table::{self, TypeInfo};
use firn_base::{Type, TypeId};
use firn_vector::Registry;
use firn_vector::registry::{CastContext, CastMethod};

/// The category of strings.
pub const STRINGS: u8 = b'S';
const UNKNOWNS: u8 = b'X';
const USERS: u8 = b'U';

/// What is known of a built-in type.
fn info(id: TypeId) -> Option<&'static TypeInfo> {
    type_table::info(id)
}

/// `pg_type.typcategory`.
pub fn category(id: TypeId) -> u8 {
    if id == TypeId::UNKNOWN { UNKNOWNS } else { info(id).map_or(USERS, |info| info.category) }
}

/// `pg_type.typispreferred`.
pub fn is_preferred(id: TypeId) -> bool {
    info(id).is_some_and(|info| info.is_preferred)
}

/// Whether it is an array type with subscripts of its own, not a vector.
pub fn is_array(id: TypeId) -> bool {
    info(id).is_some_and(TypeInfo::is_array)
}

/// The element of an array, as functions of arrays see it: vectors count as well.
pub fn element(id: TypeId) -> Option<TypeId> {
    Type::new(id).element().map(|element| element.id)
}

/// The type of arrays of these elements.
pub fn array(id: TypeId) -> Option<TypeId> {
    info(id).and_then(|info| info.array)
}

/// Whether it stands for a type that the arguments determine.
pub fn is_polymorphic(id: TypeId) -> bool {
    is_simple_polymorphic(id) || is_compatible_polymorphic(id)
}

/// `anyelement` and its family: all of one element type.
pub fn is_simple_polymorphic(id: TypeId) -> bool {
    matches!(
        id,
        TypeId::ANYELEMENT | TypeId::ANYARRAY | TypeId::ANYNONARRAY | TypeId::ANYENUM | TypeId::ANYRANGE
    )
}

/// `anycompatible` and its family: all are cast to a common type.
pub fn is_compatible_polymorphic(id: TypeId) -> bool {
    matches!(
        id,
        TypeId::ANYCOMPATIBLE
            | TypeId::ANYCOMPATIBLEARRAY
            | TypeId::ANYCOMPATIBLENONARRAY
            | TypeId::ANYCOMPATIBLERANGE
    )
}

/// How a value gets from one type to another.
#[derive(Clone, PartialEq, Debug)]
pub enum Path {
    /// It is the same bits.
    Relabel,
    /// By a cast of the registry.
    Cast(CastMethod),
}

/// The way from one type to another, if there is one in this context.
pub fn path(registry: &Registry, source: TypeId, target: TypeId, context: CastContext) -> Option<Path> {
    if source == target {
        return Some(Path::Relabel);
    }
    let cast = registry.cast(source, target).filter(|cast| cast.context <= context)?;
    Some(match cast.method {
        CastMethod::Relabel => Path::Relabel,
        method => Path::Cast(method),
    })
}

/// Whether values of a type can stand where another is declared, as they are.
pub fn is_binary_coercible(registry: &Registry, source: TypeId, target: TypeId) -> bool {
    match target {
        _ if source == target => true,
        TypeId::ANY | TypeId::ANYELEMENT | TypeId::ANYCOMPATIBLE => true,
        TypeId::ANYARRAY | TypeId::ANYCOMPATIBLEARRAY => is_array(source),
        TypeId::ANYNONARRAY | TypeId::ANYCOMPATIBLENONARRAY => !is_array(source),
        _ => registry
            .cast(source, target)
            .is_some_and(|cast| cast.method == CastMethod::Relabel && cast.context == CastContext::Implicit),
    }
}
