//! The catalog: all objects of the database, as one immutable value per version.
//!
//! A transaction reads the catalog of its snapshot. When it runs DDL it changes a copy of its own, which
//! the commit publishes at the commit time. Versions share objects.

pub use crate::column_type::ColumnType;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Representation, Result, SqlState, SqlType, TableId};
use firn_storage::{ColumnSpec, IndexColumn, IndexId, IndexSpec, Table};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The first id of an object that a user creates.
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
    /// Its type, and how its values are stored.
    pub ty: ColumnType,
    /// NOT NULL, also through a primary key.
    pub not_null: bool,
    /// The DEFAULT expression as SQL text; `nextval('…')` for serial columns.
    pub default: Option<String>,
    /// GENERATED … AS IDENTITY.
    pub identity: Option<Identity>,
    /// GENERATED ALWAYS AS … STORED: the expression over other columns as SQL text. Such a column has no default. Older logs and
    /// checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<String>,
    /// Generated for indexes only: it is not visible to users. Its name is what index definitions show in its
    /// place. Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "is_no")]
    pub hidden: bool,
    /// Dropped: storage still has it, but users do not see it.
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

/// What a foreign key does when the referenced row is deleted or its key changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// Refuse at the end of the statement.
    NoAction,
    /// Refuse at once.
    Restrict,
    /// Do the same to the referencing rows.
    Cascade,
    /// Set the referencing columns to NULL.
    SetNull,
    /// Set the referencing columns to their defaults.
    SetDefault,
}

/// When a key or a foreign key is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Deferral {
    /// NOT DEFERRABLE: at the end of every statement.
    #[default]
    Never,
    /// DEFERRABLE: at the end of every statement, unless SET CONSTRAINTS defers it.
    InitiallyImmediate,
    /// INITIALLY DEFERRED: at the end of the transaction, unless SET CONSTRAINTS makes it immediate.
    InitiallyDeferred,
}

/// A constraint of a table. NOT NULL is a property of the column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConstraintDef {
    /// Its id.
    pub oid: Oid,
    /// Its name, unique in the table.
    pub name: String,
    /// Its kind, with the condition.
    pub kind: ConstraintKind,
    /// Whether all rows are known to meet it. Rows that existed when it was added NOT VALID are not, until VALIDATE CONSTRAINT has
    /// checked them. Older logs and checkpoints do not have this field.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub valid: bool,
}

/// The kind of a constraint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ConstraintKind {
    /// PRIMARY KEY, enforced by a unique index over NOT NULL columns.
    PrimaryKey {
        /// The index.
        index: Oid,
    },
    /// UNIQUE, enforced by a unique index.
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
        /// The referencing columns.
        columns: Vec<u16>,
        /// The referenced table.
        parent: Oid,
        /// Its columns, in the same order, covered by a unique index.
        parent_columns: Vec<u16>,
        /// ON DELETE.
        on_delete: ReferentialAction,
        /// ON UPDATE.
        on_update: ReferentialAction,
        /// The columns that ON DELETE SET NULL and SET DEFAULT set, if they are not all. Older logs and checkpoints do not have this
        /// field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        on_delete_columns: Vec<u16>,
        /// MATCH FULL: all of the referencing columns are NULL, or none. Older logs and checkpoints do not have this field.
        #[serde(default, skip_serializing_if = "is_no")]
        match_full: bool,
        /// When it is tested. Older logs and checkpoints do not have this field.
        #[serde(default)]
        deferral: Deferral,
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
    /// Its columns in order; that of the [condition](IndexDef::condition) comes first.
    pub columns: Vec<IndexColumnDef>,
    /// WHERE of a partial index, as SQL text. The index has the keys of all rows. Its first column is a
    /// hidden one that is TRUE if the condition is, and NULL otherwise, so that only keys of rows that meet
    /// the condition can be equal. Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Whether it keeps keys unique.
    pub unique: bool,
    /// NULLS NOT DISTINCT: whether keys with NULLs are kept unique as well. Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "is_no")]
    pub nulls_not_distinct: bool,
    /// Whether it has the keys of all rows, and not only of those outside of compact blocks. Older logs and checkpoints do not
    /// have this field.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub values: bool,
    /// When uniqueness is tested: deferred only for a deferrable constraint. Older logs and checkpoints do not have this field.
    #[serde(default)]
    pub deferral: Deferral,
    /// Whether it was made for a foreign key, not by a user: it is not visible to users. Older logs and
    /// checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "is_no")]
    pub internal: bool,
    /// What is only displayed. Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "IndexAnnotations::is_empty")]
    pub annotations: IndexAnnotations,
}

/// Parts of an index's definition that have no effect here. They are kept for display and for dumps.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct IndexAnnotations {
    /// INCLUDE: which columns of the table.
    pub include: Vec<u16>,
    /// Operator classes other than the default ones: which column of the key, and the name of its class.
    pub classes: Vec<(u16, String)>,
    /// Storage parameters and their values.
    pub parameters: Vec<(String, String)>,
}

impl IndexAnnotations {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.classes.is_empty() && self.parameters.is_empty()
    }

    /// The class of a column of the key that is not the default one.
    pub fn class(&self, position: usize) -> Option<&str> {
        let class = self.classes.iter().find(|(column, _)| usize::from(*column) == position);
        class.map(|(_, name)| name.as_str())
    }
}

fn yes() -> bool {
    true
}

fn is_yes(said: &bool) -> bool {
    *said
}

fn one() -> i64 {
    1
}

fn is_one(said: &i64) -> bool {
    *said == 1
}

fn is_no(said: &bool) -> bool {
    !*said
}

impl IndexDef {
    /// The id of the index in storage.
    pub fn id(&self) -> IndexId {
        IndexId(self.oid.0)
    }

    /// The columns that its definition shows.
    pub fn key_columns(&self) -> &[IndexColumnDef] {
        &self.columns[usize::from(self.condition.is_some())..]
    }

    /// From which column on NULLs are equal: not that of the condition, which is NULL for all rows that are not to be unique.
    pub fn equal_nulls_from(&self) -> Option<usize> {
        self.nulls_not_distinct.then_some(usize::from(self.condition.is_some()))
    }

    /// Whether no snapshot ever sees two rows under one key without NULLs. Rows under a deferrable constraint may
    /// share a key until the constraint is tested.
    pub fn is_always_unique(&self) -> bool {
        self.unique && self.deferral == Deferral::Never
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
    /// Its own settings.
    #[serde(default, skip_serializing_if = "TableSettings::is_empty")]
    pub settings: TableSettings,
}

/// Settings of one table, where they differ from those of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TableSettings {
    /// When its blocks are frozen; the default is [`Config::freeze_after`](crate::Config::freeze_after).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_after: Option<After>,
    /// When its frozen blocks are encoded; the default is [`Config::compact_after`](crate::Config::compact_after).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_after: Option<After>,
}

impl TableSettings {
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        *self == TableSettings::default()
    }
}

/// After which time without writes blocks are frozen, or encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum After {
    /// Never.
    Never,
    /// After this many milliseconds.
    Milliseconds(u32),
}

impl After {
    /// The time; `None` for never.
    pub fn duration(self) -> Option<Duration> {
        match self {
            After::Never => None,
            After::Milliseconds(count) => Some(Duration::from_millis(count.into())),
        }
    }
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
            .filter(|(_, column)| !column.dropped && !column.hidden)
            .map(|(position, column)| (ColumnId(position as u16), column))
    }

    /// The visible column of that name.
    pub fn column(&self, name: &str) -> Option<(ColumnId, &ColumnDef)> {
        self.visible_columns().find(|(_, column)| column.name == name)
    }

    /// The indexes that users see.
    pub fn visible_indexes(&self) -> impl Iterator<Item = &IndexDef> {
        self.indexes.iter().filter(|index| !index.internal)
    }

    /// The primary key's index.
    pub fn primary_key(&self) -> Option<&IndexDef> {
        let index = self.constraints.iter().find_map(|constraint| match constraint.kind {
            ConstraintKind::PrimaryKey { index } => Some(index),
            _ => None,
        })?;
        self.indexes.iter().find(|candidate| candidate.oid == index)
    }

    /// When one of its constraints is tested.
    pub fn deferral(&self, constraint: &ConstraintDef) -> Deferral {
        match &constraint.kind {
            ConstraintKind::ForeignKey { deferral, .. } => *deferral,
            ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                let index = self.indexes.iter().find(|candidate| candidate.oid == *index);
                index.map_or(Deferral::Never, |index| index.deferral)
            }
            ConstraintKind::Check { .. } => Deferral::Never,
        }
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
    /// CACHE, which has no effect. Older logs and checkpoints do not have this field.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cache: i64,
    /// OWNED BY: the table and column that drop it with them.
    pub owner: Option<(Oid, u16)>,
    /// Whether its owner is an identity column that draws from it. Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "is_no")]
    pub is_identity: bool,
}

/// The comments on one object and on its columns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommentDef {
    /// The object.
    pub oid: Oid,
    /// The texts: under 0 that of the object, under other numbers those of its columns, counted from 1.
    pub texts: BTreeMap<u16, String>,
}

/// One version of the catalog. Cloning is cheap: objects are shared.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Differs between any two versions that differ.
    pub version: u64,
    /// Schemas by id.
    pub schemas: BTreeMap<Oid, Arc<SchemaDef>>,
    /// Tables by id.
    pub tables: BTreeMap<Oid, Arc<TableDef>>,
    /// Views by id.
    pub views: BTreeMap<Oid, Arc<ViewDef>>,
    /// Sequences by id.
    pub sequences: BTreeMap<Oid, Arc<SequenceDef>>,
    /// Comments by the id of their object.
    pub comments: BTreeMap<Oid, Arc<CommentDef>>,
}

impl Catalog {
    /// The catalog of a new database, with the built-in schemas.
    pub fn bootstrap() -> Catalog {
        let builtin = [
            (Oid::PG_CATALOG, "pg_catalog"),
            (Oid::PUBLIC, "public"),
            (Oid::INFORMATION_SCHEMA, "information_schema"),
        ];
        let schemas =
            builtin.map(|(oid, name)| (oid, Arc::new(SchemaDef { oid, name: name.to_owned() }))).into();
        Catalog { version: 1, schemas, ..Catalog::default() }
    }

    /// The schema of that name.
    pub fn schema(&self, name: &str) -> Option<&Arc<SchemaDef>> {
        self.schemas.values().find(|schema| schema.name == name)
    }

    /// The table of that name in a schema.
    pub fn table(&self, schema: Oid, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.values().find(|table| table.schema == schema && table.name == name)
    }

    /// The view of that name in a schema.
    pub fn view(&self, schema: Oid, name: &str) -> Option<&Arc<ViewDef>> {
        self.views.values().find(|view| view.schema == schema && view.name == name)
    }

    /// The sequence that an identity column draws from.
    pub fn identity_sequence(&self, table: Oid, column: u16) -> Option<&Arc<SequenceDef>> {
        let owned = || self.sequences.values().filter(|sequence| sequence.owner == Some((table, column)));
        // In older directories none is marked.
        owned().find(|sequence| sequence.is_identity).or_else(|| owned().next())
    }

    /// The sequence of that name in a schema.
    pub fn sequence(&self, schema: Oid, name: &str) -> Option<&Arc<SequenceDef>> {
        self.sequences.values().find(|sequence| sequence.schema == schema && sequence.name == name)
    }

    /// The index of that name in a schema, with its table.
    pub fn index(&self, schema: Oid, name: &str) -> Option<(&Arc<TableDef>, &IndexDef)> {
        self.tables.values().filter(|table| table.schema == schema).find_map(|table| {
            let index = table.visible_indexes().find(|index| index.name == name)?;
            Some((table, index))
        })
    }

    /// The comment on an object, or on a column of it; 0 is the object itself.
    pub fn comment(&self, object: Oid, column: u16) -> Option<&str> {
        self.comments.get(&object)?.texts.get(&column).map(String::as_str)
    }

    /// Sets a comment, or removes it with `None`.
    pub fn set_comment(&mut self, object: Oid, column: u16, text: Option<String>) {
        let before = self.comments.get(&object).map(|comment| comment.texts.clone());
        let mut texts = before.unwrap_or_default();
        match text {
            Some(text) => texts.insert(column, text),
            None => texts.remove(&column),
        };
        if texts.is_empty() {
            self.comments.remove(&object);
        } else {
            self.comments.insert(object, Arc::new(CommentDef { oid: object, texts }));
        }
    }

    /// Removes the comments on objects and columns that do not exist any more.
    pub fn forget_comments(&mut self) {
        let comments: Vec<Arc<CommentDef>> = self.comments.values().cloned().collect();
        for comment in comments {
            let gone: Vec<u16> = comment
                .texts
                .keys()
                .copied()
                .filter(|column| !self.is_commented(comment.oid, *column))
                .collect();
            for column in gone {
                self.set_comment(comment.oid, column, None);
            }
        }
    }

    /// Whether there is an object, and a column of it unless that is 0.
    fn is_commented(&self, oid: Oid, column: u16) -> bool {
        let is_visible = |columns: &[ColumnDef]| {
            let is_shown = |column: &ColumnDef| !column.dropped && !column.hidden;
            column == 0 || columns.get(usize::from(column) - 1).is_some_and(is_shown)
        };
        if let Some(table) = self.tables.get(&oid) {
            return is_visible(&table.columns);
        }
        if let Some(view) = self.views.get(&oid) {
            return is_visible(&view.columns);
        }
        oid < Oid::FIRST_USER
            || self.schemas.contains_key(&oid)
            || self.sequences.contains_key(&oid)
            || self.tables.values().any(|table| {
                table.indexes.iter().any(|index| index.oid == oid)
                    || table.constraints.iter().any(|constraint| constraint.oid == oid)
            })
    }

    /// The differences from `base`, and the changes of storage since.
    pub(crate) fn changes_since(
        &self,
        base: &Catalog,
        created: impl Iterator<Item = Arc<Table>>,
        dropped: impl Iterator<Item = TableId>,
        marks: IdMarks,
    ) -> CatalogChange {
        CatalogChange {
            marks,
            created: created.map(|table| StorageDef::of(&table)).collect(),
            schemas: Changes::between(&base.schemas, &self.schemas),
            tables: Changes::between(&base.tables, &self.tables),
            views: Changes::between(&base.views, &self.views),
            sequences: Changes::between(&base.sequences, &self.sequences),
            comments: Changes::between(&base.comments, &self.comments),
            dropped: dropped.map(|table| table.0).collect(),
        }
    }

    /// The whole catalog as a change of an empty one, for a checkpoint.
    pub fn to_change(&self, storage: impl Iterator<Item = Arc<Table>>, marks: IdMarks) -> CatalogChange {
        self.changes_since(&Catalog::default(), storage, std::iter::empty(), marks)
    }

    /// Applies a change from the log or a checkpoint. The caller changes storage.
    pub fn apply(&mut self, change: CatalogChange) {
        self.version += 1;
        change.schemas.apply(&mut self.schemas, |object| object.oid);
        change.tables.apply(&mut self.tables, |object| object.oid);
        change.views.apply(&mut self.views, |object| object.oid);
        change.sequences.apply(&mut self.sequences, |object| object.oid);
        change.comments.apply(&mut self.comments, |object| object.oid);
    }
}

/// The next unused ids, with which recovery continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdMarks {
    /// The next object id.
    pub next_oid: u32,
    /// The next physical table.
    pub next_table: u32,
}

/// A physical table as the log and checkpoints describe it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StorageDef {
    /// Its id.
    pub id: u32,
    /// Its name at creation, for messages.
    pub name: String,
    /// Its columns.
    pub columns: Vec<StorageColumn>,
}

/// A column of a physical table.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WrittenColumn", into = "WrittenColumn")]
pub struct StorageColumn {
    /// How its values are stored.
    pub stored: Representation,
    /// Whether it may hold NULL.
    pub nullable: bool,
}

/// A [`StorageColumn`] as logs and checkpoints have it: with the name of an [`SqlType`] that is stored in
/// this way, if there is one, since older programs know no others. `numeric` has 38 digits, 16 of them after
/// the point.
#[derive(Serialize, Deserialize)]
struct WrittenColumn {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ty: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<String>,
    nullable: bool,
}

impl From<StorageColumn> for WrittenColumn {
    fn from(StorageColumn { stored, nullable }: StorageColumn) -> WrittenColumn {
        match crate::column_type::stored_so(stored) {
            Some(ty) => WrittenColumn { ty: Some(ty.to_string()), stored: None, nullable },
            None => WrittenColumn { ty: None, stored: Some(stored.to_string()), nullable },
        }
    }
}

impl TryFrom<WrittenColumn> for StorageColumn {
    type Error = String;

    fn try_from(
        WrittenColumn { stored, ty, nullable }: WrittenColumn,
    ) -> std::result::Result<StorageColumn, String> {
        let stored = match (stored, ty) {
            (Some(name), _) => Representation::from_name(&name)
                .ok_or_else(|| format!("\"{name}\" is not a representation"))?,
            (None, Some(name)) => SqlType::parse(&name).map_err(|error| error.message().to_owned())?.into(),
            (None, None) => return Err("a column has no type".to_owned()),
        };
        Ok(StorageColumn { stored, nullable })
    }
}

impl StorageDef {
    /// The description of a table.
    pub fn of(table: &Table) -> StorageDef {
        let column =
            |spec: &ColumnSpec| StorageColumn { stored: spec.representation, nullable: spec.nullable };
        StorageDef {
            id: table.id().0,
            name: table.name().to_string(),
            columns: table.columns().iter().map(column).collect(),
        }
    }

    /// The columns for storage.
    pub fn column_specs(&self) -> Vec<ColumnSpec> {
        let spec =
            |column: &StorageColumn| ColumnSpec { representation: column.stored, nullable: column.nullable };
        self.columns.iter().map(spec).collect()
    }
}

impl IndexDef {
    /// The index for storage, over a physical table.
    pub fn spec(&self, table: &Table) -> IndexSpec {
        let column = |part: &IndexColumnDef| {
            let spec = &table.columns()[usize::from(part.column)];
            IndexColumn {
                column: ColumnId(part.column),
                representation: spec.representation,
                nullable: spec.nullable,
                descending: part.descending,
                nulls_first: part.nulls_first,
            }
        };
        IndexSpec {
            id: self.id(),
            name: self.name.clone(),
            columns: self.columns.iter().map(column).collect(),
            unique: self.is_always_unique(),
            equal_nulls_from: self.equal_nulls_from(),
            values: self.values,
        }
    }
}

/// The changes of the catalog by one transaction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CatalogChange {
    /// The next unused ids.
    pub marks: IdMarks,
    /// Physical tables that were created.
    pub created: Vec<StorageDef>,
    /// Physical tables that were dropped.
    pub dropped: Vec<u32>,
    schemas: Changes<SchemaDef>,
    tables: Changes<TableDef>,
    views: Changes<ViewDef>,
    sequences: Changes<SequenceDef>,
    /// Older logs and checkpoints do not have this field.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    comments: Changes<CommentDef>,
}

impl CatalogChange {
    /// The encoding for the log: JSON, which tools can read and whose old versions can be recognized.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps have string keys and numbers are finite")
    }

    /// The inverse; XX001 if the bytes are no valid encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<CatalogChange> {
        serde_json::from_slice(bytes).map_err(|error| {
            Error::new(SqlState::DATA_CORRUPTED, format!("a catalog change cannot be read: {error}"))
        })
    }
}

/// Objects of one kind that were created or changed, and those that were dropped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
struct Changes<T> {
    put: Vec<T>,
    removed: Vec<Oid>,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Changes { put: Vec::new(), removed: Vec::new() }
    }
}

impl<T> Changes<T> {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }
}

impl<T: Clone> Changes<T> {
    fn between(before: &BTreeMap<Oid, Arc<T>>, after: &BTreeMap<Oid, Arc<T>>) -> Changes<T> {
        let unchanged = |oid, object| before.get(oid).is_some_and(|known| Arc::ptr_eq(known, object));
        let put = after.iter().filter(|(oid, object)| !unchanged(oid, object));
        Changes {
            put: put.map(|(_, object)| T::clone(object)).collect(),
            removed: before.keys().filter(|oid| !after.contains_key(oid)).copied().collect(),
        }
    }

    fn apply(self, objects: &mut BTreeMap<Oid, Arc<T>>, oid: impl Fn(&T) -> Oid) {
        for removed in &self.removed {
            objects.remove(removed);
        }
        objects.extend(self.put.into_iter().map(|object| (oid(&object), Arc::new(object))));
    }
}

/// Serde for [`SqlType`], by its name in SQL.
mod sql_type_serde {
    use firn_base::SqlType;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ty: &SqlType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&ty.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SqlType, D::Error> {
        crate::column_type::sql_type(&String::deserialize(deserializer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_keys_of_older_logs_are_not_deferrable() {
        let kind = ConstraintKind::ForeignKey {
            columns: vec![1],
            parent: Oid(20000),
            parent_columns: vec![0],
            on_delete: ReferentialAction::NoAction,
            on_update: ReferentialAction::Cascade,
            on_delete_columns: Vec::new(),
            match_full: false,
            deferral: Deferral::Never,
        };
        let written = r#"{"ForeignKey":{"columns":[1],"parent":20000,"parent_columns":[0],"on_delete":"NoAction","on_update":"Cascade"}}"#;
        assert_eq!(serde_json::from_str::<ConstraintKind>(written).unwrap(), kind);
    }

    #[test]
    fn columns_of_older_logs_are_stored_as_their_type_was() {
        for (written, stored) in [
            (r#"{"ty":"numeric","nullable":true}"#, Representation::Decimal { precision: 38, scale: 16 }),
            (r#"{"ty":"character(1)","nullable":true}"#, Representation::PaddedText),
            (r#"{"stored":"numeric","nullable":true}"#, Representation::Numeric),
        ] {
            let read: StorageColumn = serde_json::from_str(written).unwrap();
            assert_eq!(read, StorageColumn { stored, nullable: true });
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
        for bad in [
            r#"{"nullable":true}"#,
            r#"{"stored":"nothing","nullable":true}"#,
            r#"{"ty":"oops","nullable":true}"#,
        ] {
            assert!(serde_json::from_str::<StorageColumn>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn columns_of_older_logs_are_not_generated() {
        let written =
            r#"{"name":"a","ty":"integer","not_null":false,"default":null,"identity":null,"dropped":false}"#;
        let mut read: ColumnDef = serde_json::from_str(written).unwrap();
        assert_eq!(read.generated, None);
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
        read.generated = Some("b + 1".into());
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<ColumnDef>(&written).unwrap(), read);
    }

    #[test]
    fn keys_of_older_logs_are_tested_at_once() {
        let written = r#"{"oid":20000,"name":"a_pkey","columns":[],"unique":true}"#;
        assert!(serde_json::from_str::<IndexDef>(written).unwrap().is_always_unique());
    }

    #[test]
    fn constraints_of_older_logs_are_met_by_all_rows() {
        let check = r#"{"oid":20000,"name":"a","kind":{"Check":{"expression":"a > 0"}}}"#;
        let mut read: ConstraintDef = serde_json::from_str(check).unwrap();
        assert!(read.valid);
        assert_eq!(serde_json::to_string(&read).unwrap(), check);
        read.valid = false;
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<ConstraintDef>(&written).unwrap(), read);
    }

    #[test]
    fn comments_go_with_their_objects_and_survive_the_log() {
        let base = Catalog::bootstrap();
        let mut changed = base.clone();
        changed.set_comment(Oid::PUBLIC, 0, Some("all".into()));
        changed.set_comment(Oid(30000), 2, Some("a column of nothing".into()));
        changed.forget_comments();
        let marks = IdMarks { next_oid: 30001, next_table: 1 };
        let change = changed.changes_since(&base, std::iter::empty(), std::iter::empty(), marks);
        let mut applied = base.clone();
        applied.apply(CatalogChange::from_bytes(&change.to_bytes()).unwrap());
        assert_eq!((applied.comment(Oid::PUBLIC, 0), applied.comments.len()), (Some("all"), 1));
        let mut without = applied.clone();
        without.set_comment(Oid::PUBLIC, 0, None);
        let change = without.changes_since(&applied, std::iter::empty(), std::iter::empty(), marks);
        applied.apply(change);
        assert!(applied.comments.is_empty());
    }

    #[test]
    fn a_change_says_just_what_differs_and_survives_the_log() {
        let base = Catalog::bootstrap();
        let mut changed = base.clone();
        changed.schemas.remove(&Oid::INFORMATION_SCHEMA);
        let table = TableDef {
            oid: Oid(20000),
            schema: Oid::PUBLIC,
            name: "orders".into(),
            columns: vec![ColumnDef {
                name: "price".into(),
                ty: SqlType::Numeric { precision: 12, scale: 2 }.into(),
                not_null: true,
                default: Some("1.00".into()),
                identity: None,
                generated: None,
                hidden: false,
                dropped: false,
            }],
            constraints: vec![],
            indexes: vec![],
            storage: 3,
            settings: TableSettings::default(),
        };
        changed.tables.insert(table.oid, Arc::new(table.clone()));
        let marks = IdMarks { next_oid: 20001, next_table: 4 };
        let change = changed.changes_since(&base, std::iter::empty(), [TableId(2)].into_iter(), marks);
        assert_eq!((change.tables.put.len(), change.schemas.put.len()), (1, 0));

        let read = CatalogChange::from_bytes(&change.to_bytes()).unwrap();
        assert_eq!(read, change);
        let mut applied = base.clone();
        applied.apply(read);
        assert_eq!(applied.schemas.len(), 2);
        assert_eq!(*applied.tables[&table.oid], table);
    }
}
