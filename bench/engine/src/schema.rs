//! Table definitions of the workloads. They are used as SQL text for any server, as catalog entries
//! made through the transaction API, and as column ids for typed access.
//!
//! The [`tables!`] macro turns one listing into a module per table with a constant per column and
//! a [`TableSchema`]; nothing else in this crate numbers columns.

use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType};
use firn_storage::{ColumnSpec, Index, IndexColumn, IndexSpec, Table};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid, TableDef,
    TableSettings,
};
use firn_txn::{Catalog, Engine};
use std::fmt::Write;

/// A column of a workload's table.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSchema {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub ty: SqlType,
    /// Whether it may be NULL.
    pub nullable: bool,
}

/// A secondary index, not unique.
#[derive(Clone, Copy, Debug)]
pub struct IndexSchema {
    /// Its name.
    pub name: &'static str,
    /// Its columns; true means largest first.
    pub columns: &'static [(ColumnId, bool)],
}

/// A table of a workload.
#[derive(Debug)]
pub struct TableSchema {
    /// Its name.
    pub name: &'static str,
    /// Its columns; the position is the [`ColumnId`].
    pub columns: &'static [ColumnSchema],
    /// The columns of the primary key; empty if there is none.
    pub primary_key: &'static [ColumnId],
    /// The secondary indexes.
    pub indexes: &'static [IndexSchema],
}

/// Declares tables: a module per table, in it a [`ColumnId`] per column, named as in SQL, and
/// `SCHEMA`.
macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident {
        columns { $($column:ident: $ty:expr $(, $null:ident)?;)* }
        primary key ($($key:ident),*);
        $(index $index:ident ($($part:ident $($descending:ident)?),*);)*
    })*) => {$(
        $(#[$doc])*
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod $table {
            use firn_base::{ColumnId, SqlType};
            #[allow(unused_imports)]
            use $crate::schema::IndexSchema;
            use $crate::schema::{ColumnSchema, TableSchema};

            #[allow(non_camel_case_types)]
            enum Position { $($column),* }
            $(pub const $column: ColumnId = ColumnId(Position::$column as u16);)*

            pub static SCHEMA: TableSchema = TableSchema {
                name: stringify!($table),
                columns: &[$(ColumnSchema {
                    name: stringify!($column),
                    ty: {
                        #[allow(unused_imports)]
                        use SqlType::*;
                        $ty
                    },
                    nullable: $crate::schema::tables!(@flag $($null)?),
                }),*],
                primary_key: &[$($key),*],
                indexes: &[$(IndexSchema {
                    name: stringify!($index),
                    columns: &[$(($part, $crate::schema::tables!(@flag $($descending)?))),*],
                }),*],
            };
        }
    )*};
    (@flag) => { false };
    (@flag null) => { true };
    (@flag desc) => { true };
}
pub(crate) use tables;

impl TableSchema {
    /// The CREATE TABLE statement.
    pub fn create_table_sql(&self) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name);
        for (position, column) in self.columns.iter().enumerate() {
            let separator = if position == 0 { "" } else { "," };
            let null = if column.nullable { "" } else { " NOT NULL" };
            write!(sql, "{separator}\n    {} {}{null}", column.name, column.ty).expect("strings grow");
        }
        if !self.primary_key.is_empty() {
            let names: Vec<_> = self.primary_key.iter().map(|id| self.columns[id.index()].name).collect();
            write!(sql, ",\n    PRIMARY KEY ({})", names.join(", ")).expect("strings grow");
        }
        sql.push_str("\n)");
        sql
    }

    /// The CREATE INDEX statements of the secondary indexes.
    pub fn create_index_sql(&self) -> Vec<String> {
        let index_sql = |index: &IndexSchema| {
            let parts: Vec<_> = index
                .columns
                .iter()
                .map(|&(id, descending)| {
                    format!("{}{}", self.columns[id.index()].name, if descending { " DESC" } else { "" })
                })
                .collect();
            format!("CREATE INDEX {} ON {} ({})", index.name, self.name, parts.join(", "))
        };
        self.indexes.iter().map(index_sql).collect()
    }

    /// All statements that create the table and its indexes.
    pub fn ddl(&self) -> Vec<String> {
        let mut statements = vec![self.create_table_sql()];
        statements.extend(self.create_index_sql());
        statements
    }

    /// Creates the table and its indexes in schema `public`, in a transaction of its own: exactly
    /// what [`TableSchema::ddl`] does, for callers below SQL.
    pub fn create(&self, engine: &Arc<Engine>) -> Result<()> {
        let mut transaction = engine.begin();
        if self.find(transaction.catalog()).is_some() {
            return Err(Error::new(
                SqlState::DUPLICATE_TABLE,
                format!("relation \"{}\" already exists", self.name),
            ));
        }
        let specs = self
            .columns
            .iter()
            .map(|column| ColumnSpec { representation: column.ty.into(), nullable: column.nullable })
            .collect();
        let storage = transaction.create_storage(self.name, specs)?;
        let table = transaction.table(storage);

        let mut indexes = Vec::new();
        let mut constraints = Vec::new();
        if !self.primary_key.is_empty() {
            let key: Vec<_> = self.primary_key.iter().map(|&id| (id, false)).collect();
            let index = self.index_def(engine, format!("{}_pkey", self.name), &key, true);
            constraints.push(ConstraintDef {
                oid: engine.allocate_oid(),
                name: index.name.clone(),
                kind: ConstraintKind::PrimaryKey { index: index.oid },
                valid: true,
            });
            indexes.push(index);
        }
        for index in self.indexes {
            indexes.push(self.index_def(engine, index.name.to_owned(), index.columns, false));
        }
        for index in &indexes {
            transaction.create_index(&table, self.index_spec(index), 1)?;
        }

        let oid = engine.allocate_oid();
        let definition = TableDef {
            oid,
            schema: Oid::PUBLIC,
            name: self.name.to_owned(),
            columns: self
                .columns
                .iter()
                .map(|column| ColumnDef {
                    name: column.name.to_owned(),
                    ty: column.ty.into(),
                    not_null: !column.nullable,
                    default: None,
                    identity: None,
                    generated: None,
                    hidden: false,
                    dropped: false,
                })
                .collect(),
            constraints,
            indexes,
            storage: storage.0,
            settings: TableSettings::default(),
        };
        transaction.catalog_mut()?.tables.insert(oid, Arc::new(definition));
        let ticket = transaction.commit()?;
        engine.wait(ticket)
    }

    /// The table's definition in a catalog.
    pub fn find<'c>(&self, catalog: &'c Catalog) -> Option<&'c Arc<TableDef>> {
        catalog.tables.values().find(|table| table.schema == Oid::PUBLIC && table.name == self.name)
    }

    /// The open table and its indexes, primary key first, then as listed here. 42P01 if the
    /// database has no such table.
    pub fn open(&self, engine: &Arc<Engine>) -> Result<(Arc<Table>, Vec<Arc<Index>>)> {
        let catalog = engine.catalog();
        let definition = self.find(&catalog).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", self.name))
                .with_hint("Load the benchmark's tables first.")
        })?;
        let table = engine.table(definition.storage());
        let open = table.indexes();
        let named = |name: &str| {
            open.iter().find(|index| index.spec().name == name).cloned().ok_or_else(|| {
                Error::new(SqlState::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist"))
            })
        };
        let mut indexes = Vec::new();
        if !self.primary_key.is_empty() {
            indexes.push(named(&format!("{}_pkey", self.name))?);
        }
        for index in self.indexes {
            indexes.push(named(index.name)?);
        }
        Ok((table, indexes))
    }

    fn index_def(
        &self,
        engine: &Engine,
        name: String,
        columns: &[(ColumnId, bool)],
        unique: bool,
    ) -> IndexDef {
        // PostgreSQL's default: NULLs last ascending, first descending.
        let columns = columns
            .iter()
            .map(|&(id, descending)| IndexColumnDef { column: id.0, descending, nulls_first: descending })
            .collect();
        IndexDef {
            oid: engine.allocate_oid(),
            name,
            columns,
            unique,
            values: true,
            deferral: Deferral::Never,
            condition: None,
            internal: false,
            annotations: Default::default(),
        }
    }

    fn index_spec(&self, index: &IndexDef) -> IndexSpec {
        let columns = index
            .columns
            .iter()
            .map(|part| {
                let column = &self.columns[usize::from(part.column)];
                IndexColumn {
                    column: ColumnId(part.column),
                    representation: column.ty.into(),
                    nullable: column.nullable,
                    descending: part.descending,
                    nulls_first: part.nulls_first,
                }
            })
            .collect();
        IndexSpec {
            id: index.id(),
            name: index.name.clone(),
            columns,
            unique: index.unique,
            values: index.values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    tables! {
        /// A table for the tests here.
        pair {
            columns {
                p_left: Integer;
                p_right: Numeric { precision: 12, scale: 2 }, null;
            }
            primary key (p_left);
            index pair_right (p_right desc, p_left);
        }
    }

    #[test]
    fn a_listing_becomes_sql_and_column_ids() {
        assert_eq!(
            pair::SCHEMA.ddl(),
            [
                "CREATE TABLE pair (\n    p_left integer NOT NULL,\n    p_right numeric(12,2),\n    PRIMARY KEY (p_left)\n)",
                "CREATE INDEX pair_right ON pair (p_right DESC, p_left)"
            ]
        );
        assert_eq!((pair::p_left, pair::p_right), (ColumnId(0), ColumnId(1)));
    }
}
