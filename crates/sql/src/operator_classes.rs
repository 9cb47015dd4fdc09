//! The operator classes of B-trees: those of PostgreSQL, from a table that is generated with those of `pg_catalog`.

use firn_base::{Type, TypeId};
use std::sync::LazyLock;

/// An operator class: a row of `classes.tsv`.
pub(crate) struct OperatorClass {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    pub(crate) family: i64,
    pub(crate) family_name: &'static str,
    /// The type of the values that it orders.
    pub(crate) input: i64,
    pub(crate) is_default: bool,
}

static CLASSES: LazyLock<Vec<OperatorClass>> = LazyLock::new(|| {
    let class = |line: &'static str| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let number = |place: usize| fields[place].parse().expect("a number");
        OperatorClass {
            oid: number(0),
            name: fields[1],
            family: number(2),
            family_name: fields[3],
            input: number(4),
            is_default: fields[5] == "t",
        }
    };
    include_str!("pg_catalog/classes.tsv").lines().map(class).collect()
});

/// All of them.
pub(crate) fn all() -> &'static [OperatorClass] {
    &CLASSES
}

/// The class of that name.
pub(crate) fn named(name: &str) -> Option<&'static OperatorClass> {
    CLASSES.iter().find(|class| class.name == name)
}

/// The default class of a type, by its oid. Types that are compared as another type have that type's. 0 if there is none.
pub(crate) fn default_of(ty: Type) -> i64 {
    let is_default = |class: &&OperatorClass| class.is_default && class.input == compared(ty);
    CLASSES.iter().find(is_default).map_or(0, |class| class.oid)
}

/// The type as which values of a type are compared.
fn compared(ty: Type) -> i64 {
    let compared = match ty.id {
        TypeId::VARCHAR => TypeId::TEXT,
        id if firn_vector::is_object(id) => TypeId::OID,
        _ if ty.info().is_some_and(|info| info.is_array()) => TypeId::ANYARRAY,
        id => id,
    };
    i64::from(compared.0)
}

impl OperatorClass {
    /// Whether it orders values of a type.
    pub(crate) fn accepts(&self, ty: Type) -> bool {
        self.input == compared(ty)
    }

    /// Whether it is the default class of a type.
    pub(crate) fn is_default_of(&self, ty: Type) -> bool {
        self.oid == default_of(ty)
    }
}
