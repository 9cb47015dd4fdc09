//! The catalog: what the database is made of, as one immutable value per version.
//!
//! A transaction reads the catalog of its snapshot and, when it runs DDL, changes a copy of its
//! own, which commit publishes at the commit time. Objects are shared between versions.

use firn_base::sync::Arc;
use firn_base::{ColumnId, SqlType, TableId};
use firn_storage::IndexId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The id of a catalog object, unique in the database, never reused; PostgreSQL's oid. Ours begin
/// at [`Oid::FIRST_USER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Oid(pub u32);

impl Oid {
    /// The schema `pg_catalog`.
    pub const PG_CATALOG: Oid = Oid(11);
    /// The schema `public`.
    pub const PUBLIC: Oid = Oid(2200);
    /// The schema `information_schema`.
    pub const INFORMATION_SCHEMA: Oid = Oid(13000);
    /// The first id given to an object that a user makes.
    pub const FIRST_USER: Oid = Oid(16384);
}

/// A schema.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SchemaDef {
    /// Its id.
    pub oid: Oid,
    /// Its name.
    pub name: String,
}

/// A column of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(with = "crate::catalog::sql_type_serde")]
    pub ty: SqlType,
    /// NOT NULL, also through a primary key.
    pub not_null: bool,
    /// The DEFAULT expression as SQL text; `nextval('…')` for serial columns.
    pub default: Option<String>,
    /// GENERATED … AS IDENTITY.
    pub identity: Option<Identity>,
    /// Dropped: storage still holds it, nobody sees it.
    pub dropped: bool,
}

/// GENERATED … AS IDENTITY.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Identity {
    /// Users may not insert their own value.
    Always,
    /// Users may.
    ByDefault,
}

/// What a foreign key does when the row it points to goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// Refuse at the end of the statement.
    NoAction,
    /// Refuse at once.
    Restrict,
    /// Do the same to the pointing rows.
    Cascade,
    /// Set the pointing columns to NULL.
    SetNull,
    /// Set the pointing columns to their defaults.
    SetDefault,
}

/// A constraint of a table. NOT NULL is a property of the column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConstraintDef {
    /// Its id.
    pub oid: Oid,
    /// Its name, unique in the table.
    pub name: String,
    /// What it demands.
    pub kind: ConstraintKind,
}

/// What a constraint demands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ConstraintKind {
    /// PRIMARY KEY, kept by a unique index over columns that are not null.
    PrimaryKey {
        /// The index.
        index: Oid,
    },
    /// UNIQUE, kept by a unique index.
    Unique {
        /// The index.
        index: Oid,
    },
    /// CHECK.
    Check {
        /// The condition as SQL text.
        expression: String,
    },
    /// FOREIGN KEY.
    ForeignKey {
        /// The pointing columns.
        columns: Vec<u16>,
        /// The table pointed to.
        parent: Oid,
        /// Its columns, in the same order, covered by a unique index.
        parent_columns: Vec<u16>,
        /// ON DELETE.
        on_delete: ReferentialAction,
        /// ON UPDATE.
        on_update: ReferentialAction,
    },
}

/// A column of an index.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndexColumnDef {
    /// Which column of the table.
    pub column: u16,
    /// Largest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// An index of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndexDef {
    /// Its id; storage's [`IndexId`] has the same number.
    pub oid: Oid,
    /// Its name, unique in the table's schema among tables, indexes, views and sequences.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<IndexColumnDef>,
    /// Whether it keeps keys unique.
    pub unique: bool,
}

impl IndexDef {
    /// The id that storage knows the index by.
    pub fn id(&self) -> IndexId {
        IndexId(self.oid.0)
    }
}

/// A table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// Its id.
    pub oid: Oid,
    /// The schema it is in.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Its columns in storage order, dropped ones included; position = [`ColumnId`].
    pub columns: Vec<ColumnDef>,
    /// Its constraints.
    pub constraints: Vec<ConstraintDef>,
    /// Its indexes, those of constraints included.
    pub indexes: Vec<IndexDef>,
    /// The physical table.
    pub storage: u32,
}

impl TableDef {
    /// The physical table's id.
    pub fn storage(&self) -> TableId {
        TableId(self.storage)
    }

    /// The columns that users see, with their positions.
    pub fn visible_columns(&self) -> impl Iterator<Item = (ColumnId, &ColumnDef)> {
        self.columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.dropped)
            .map(|(position, column)| (ColumnId(position as u16), column))
    }

    /// The visible column of that name.
    pub fn column(&self, name: &str) -> Option<(ColumnId, &ColumnDef)> {
        self.visible_columns().find(|(_, column)| column.name == name)
    }

    /// The primary key's index.
    pub fn primary_key(&self) -> Option<&IndexDef> {
        let index = self.constraints.iter().find_map(|constraint| match constraint.kind {
            ConstraintKind::PrimaryKey { index } => Some(index),
            _ => None,
        })?;
        self.indexes.iter().find(|candidate| candidate.oid == index)
    }
}

/// A view.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ViewDef {
    /// Its id.
    pub oid: Oid,
    /// The schema it is in.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Its column names and types.
    pub columns: Vec<ColumnDef>,
    /// The defining query as SQL text, names fully qualified by the search path at creation.
    pub query: String,
}

/// A sequence's definition; its counter is outside transactions ([`crate::Engine`]).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SequenceDef {
    /// Its id.
    pub oid: Oid,
    /// The schema it is in.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// The type that bounds it.
    #[serde(with = "crate::catalog::sql_type_serde")]
    pub ty: SqlType,
    /// START WITH
    pub start: i64,
    /// INCREMENT BY
    pub increment: i64,
    /// MINVALUE
    pub minimum: i64,
    /// MAXVALUE
    pub maximum: i64,
    /// CYCLE
    pub cycle: bool,
    /// OWNED BY: the table and column that drop it with them.
    pub owner: Option<(Oid, u16)>,
}

/// One version of the catalog. Cloning is cheap: objects are shared.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Differs between any two versions that differ; key of plan caches.
    pub version: u64,
    /// Schemas by id.
    pub schemas: BTreeMap<Oid, Arc<SchemaDef>>,
    /// Tables by id.
    pub tables: BTreeMap<Oid, Arc<TableDef>>,
    /// Views by id.
    pub views: BTreeMap<Oid, Arc<ViewDef>>,
    /// Sequences by id.
    pub sequences: BTreeMap<Oid, Arc<SequenceDef>>,
}

/// Serde for [`SqlType`], by its name in SQL.
mod sql_type_serde {
    use firn_base::SqlType;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ty: &SqlType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&ty.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SqlType, D::Error> {
        let name = String::deserialize(deserializer)?;
        SqlType::parse(&name).map_err(serde::de::Error::custom)
    }
}
