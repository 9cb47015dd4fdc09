//! The state of a transaction that runs DDL: its own catalog, and the changes of storage that happen at its end.

use crate::catalog::Catalog;
use crate::engine::Engine;
use firn_base::sync::Arc;
use firn_base::{TableId, Time};
use firn_storage::{Index, Table};

/// The DDL of a running transaction, which holds the engine's DDL lock.
pub(crate) struct Ddl {
    /// The committed catalog at its beginning.
    pub base: Arc<Catalog>,
    /// The catalog with its changes.
    pub catalog: Arc<Catalog>,
    /// The catalog before each change, for a rollback to a savepoint.
    pub history: Vec<Arc<Catalog>>,
    pub actions: Vec<Action>,
    /// Tables that it has locked exclusively, to change their definition or all of their rows.
    pub exclusive: Vec<Arc<Table>>,
}

/// A point in the DDL of a transaction, to roll back to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DdlMark {
    /// Changes of the catalog so far.
    changes: usize,
    /// Changes of storage so far.
    actions: usize,
}

/// A change of storage by DDL. It is made at once if no other transaction can see it, otherwise at
/// commit.
pub(crate) enum Action {
    CreateStorage(Arc<Table>),
    DropStorage(TableId),
    CreateIndex(Arc<Table>, Arc<Index>),
    DropIndex(Arc<Table>, Arc<Index>),
}

impl Ddl {
    pub fn new(base: Arc<Catalog>) -> Ddl {
        Ddl { catalog: base.clone(), base, history: Vec::new(), actions: Vec::new(), exclusive: Vec::new() }
    }

    /// The present point.
    pub fn mark(&self) -> DdlMark {
        DdlMark { changes: self.history.len(), actions: self.actions.len() }
    }

    /// Undoes every change of the catalog and of storage since a mark.
    pub fn roll_back(&mut self, mark: DdlMark, engine: &Engine) {
        self.undo_actions(mark.actions, engine);
        if mark.changes < self.history.len() {
            self.catalog = self.history.swap_remove(mark.changes);
            self.history.truncate(mark.changes);
        }
    }

    /// Undoes every action from `keep` on.
    pub fn undo_actions(&mut self, keep: usize, engine: &Engine) {
        for action in self.actions.drain(keep..).rev() {
            match action {
                Action::CreateStorage(table) => engine.forget_table(table.id()),
                Action::CreateIndex(table, index) => table.remove_index(&index),
                Action::DropStorage(_) | Action::DropIndex(..) => {}
            }
        }
    }

    /// The physical tables that it creates.
    pub fn created_storage(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.actions.iter().filter_map(|action| match action {
            Action::CreateStorage(table) => Some(table),
            _ => None,
        })
    }

    /// At commit, makes the changes that had to wait for it.
    pub fn publish(&self, time: Time, engine: &Engine) {
        for action in &self.actions {
            match action {
                Action::DropStorage(id) => {
                    engine.table(*id).gate().retire();
                    engine.drop_table_after(*id, time);
                }
                Action::DropIndex(table, index) => table.remove_index(index),
                Action::CreateStorage(table) => {
                    // Its rows have no versions that would hide them from older snapshots.
                    table.gate().set_changed_at(time);
                    table.publish();
                }
                Action::CreateIndex(..) => {}
            }
        }
        for table in &self.exclusive {
            table.gate().set_changed_at(time);
        }
    }

    /// The changes of the catalog and of storage, encoded for the log.
    pub fn log_entry(&self, engine: &Engine) -> Vec<u8> {
        let created = self.actions.iter().filter_map(|action| match action {
            Action::CreateStorage(table) => Some(table.clone()),
            _ => None,
        });
        let dropped = self.actions.iter().filter_map(|action| match action {
            Action::DropStorage(id) => Some(*id),
            _ => None,
        });
        self.catalog.changes_since(&self.base, created, dropped, engine.id_marks()).to_bytes()
    }
}
