//! The catalog as a transaction sees it, and its DDL.

use super::Transaction;

use crate::catalog::{Catalog, IndexDef};
use crate::ddl::{Action, Ddl, DdlMark};
use crate::engine::Engine;
use crate::index_build::build_index;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Result, TableId};
use firn_storage::{ColumnSpec, IndexId, IndexSpec, Table};

/// Which catalog a transaction sees.
#[derive(Default)]
pub(super) struct CatalogView {
    /// The committed catalog of the snapshot, once it has been looked up.
    committed: OnceLock<Arc<Catalog>>,
    /// The changed one, once the transaction runs DDL.
    ddl: Option<Box<Ddl>>,
}

impl CatalogView {
    /// Whether the transaction runs DDL, and so has the right to change the catalog.
    #[inline]
    pub fn has_ddl(&self) -> bool {
        self.ddl.is_some()
    }

    /// Its DDL.
    pub fn ddl(&self) -> Option<&Ddl> {
        self.ddl.as_deref()
    }

    /// The snapshot has been replaced: the committed catalog is to be looked up again.
    #[inline]
    pub fn forget_committed(&mut self) {
        self.committed = OnceLock::new();
    }

    /// The present point in its DDL.
    pub fn mark(&self) -> DdlMark {
        self.ddl.as_ref().map_or_else(DdlMark::default, |ddl| ddl.mark())
    }

    /// Undoes the DDL since a mark.
    pub fn roll_back(&mut self, mark: DdlMark, engine: &Engine) {
        if let Some(ddl) = &mut self.ddl {
            ddl.roll_back(mark, engine);
        }
    }

    /// Undoes what its DDL has done to storage, since it rolls back.
    pub fn undo_actions(&mut self, engine: &Engine) {
        if let Some(ddl) = &mut self.ddl {
            ddl.undo_actions(0, engine);
        }
    }

    /// Ends its DDL; returns whether there was any.
    pub fn end_ddl(&mut self) -> bool {
        self.ddl.take().is_some()
    }
}

impl Transaction {
    /// The catalog as the transaction sees it, its own DDL included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        let CatalogView { committed, ddl } = &self.catalog_view;
        match ddl {
            Some(ddl) => &ddl.catalog,
            None => committed.get_or_init(|| self.engine.catalog_at(self.snapshot)),
        }
    }

    /// The version of that catalog. Faster than reading it from the catalog.
    #[inline]
    pub fn catalog_version(&self) -> u64 {
        if !self.has_ddl()
            && let Some(version) = self.engine.newest_catalog_version(self.snapshot)
        {
            return version;
        }
        self.catalog().version
    }

    /// Whether it may have changed the catalog; if so it keeps others from changing it.
    #[inline]
    pub fn has_ddl(&self) -> bool {
        self.catalog_view.has_ddl()
    }

    /// The catalog, to change it. The first use takes the DDL lock until the end of the transaction. Errors: 40001 if the
    /// DDL of another transaction has committed since this one began, 55P03 if another one runs and does not end in time.
    pub fn catalog_mut(&mut self) -> Result<&mut Catalog> {
        let ddl = self.ddl_mut()?;
        ddl.history.push(ddl.catalog.clone());
        let version = self.engine.fresh_catalog_version();
        let catalog = Arc::make_mut(&mut self.catalog_view.ddl.as_mut().expect("just made").catalog);
        catalog.version = version;
        Ok(catalog)
    }

    pub(super) fn ddl_mut(&mut self) -> Result<&mut Ddl> {
        self.check_writable()?;
        assert!(!self.read_only, "a transaction that was begun to read does not write");
        if !self.has_ddl() {
            self.begin_ddl()?;
            self.catalog_view.ddl = Some(Box::new(Ddl::new(self.catalog().clone())));
        }
        Ok(self.catalog_view.ddl.as_mut().expect("just made"))
    }

    /// The physical table of an id, also if this transaction has just created it.
    pub fn table(&self, id: TableId) -> Arc<Table> {
        self.engine.table(id)
    }

    /// The indexes of keys that are tested at the end of a statement or of the transaction.
    pub(super) fn late_keys(&self) -> Vec<IndexId> {
        let indexes = self.catalog().tables.values().flat_map(|table| &table.indexes);
        indexes.filter(|index| index.unique && !index.is_always_unique()).map(IndexDef::id).collect()
    }

    /// Creates an empty physical table, which disappears if the transaction rolls back. `name` is for messages. The caller
    /// puts the id into a [`crate::catalog::TableDef`].
    pub fn create_storage(&mut self, name: &str, columns: Vec<ColumnSpec>) -> Result<TableId> {
        let engine = self.engine.clone();
        let ddl = self.ddl_mut()?;
        let table = engine.create_table(name, columns);
        let id = table.id();
        ddl.actions.push(Action::CreateStorage(table));
        Ok(id)
    }

    /// Drops a physical table once this transaction has committed and no snapshot sees the table any more.
    pub fn drop_storage(&mut self, table: TableId) -> Result<()> {
        self.ddl_mut()?.actions.push(Action::DropStorage(table));
        Ok(())
    }

    /// Builds an index over the rows of a table, on at most `threads` threads, under [`Transaction::lock_exclusive`]. The
    /// index disappears if the transaction rolls back. 23505 if `spec.unique` and two rows share a key.
    pub fn create_index(&mut self, table: &Arc<Table>, spec: IndexSpec, threads: usize) -> Result<()> {
        self.lock_exclusive(table)?;
        let index = build_index(table, spec, threads, Some(self.engine.memory()))?;
        table.add_index(index.clone());
        self.ddl_mut()?.actions.push(Action::CreateIndex(table.clone(), index));
        Ok(())
    }

    /// Drops an index once this transaction has committed.
    pub fn drop_index(&mut self, table: &Arc<Table>, index: IndexId) -> Result<()> {
        self.lock_exclusive(table)?;
        let indexes = table.indexes();
        let index = indexes.iter().find(|candidate| candidate.spec().id == index);
        let index = index.expect("the catalog names existing indexes").clone();
        self.ddl_mut()?.actions.push(Action::DropIndex(table.clone(), index));
        Ok(())
    }

    /// Unlocks the tables and gives back the right to change the catalog.
    pub(super) fn end_ddl(&mut self) {
        self.locks.unlock_tables(self.snapshot.owner);
        if self.catalog_view.end_ddl() {
            self.engine.end_ddl();
        }
    }
}
