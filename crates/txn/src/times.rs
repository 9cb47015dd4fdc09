//! After which times blocks are frozen and encoded: what the catalog says of tables, kept at hand for the threads that ask
//! again and again.

use crate::catalog::{After, Catalog, TableDef, TableSettings};
use firn_base::TableId;
use firn_base::sync::Arc;
use std::collections::HashMap;
use std::time::Duration;

/// After which times something is done to the blocks of tables.
pub(crate) struct Times {
    /// What says so.
    catalog: Arc<Catalog>,
    /// Of tables that have none of their own there is nothing.
    by_table: HashMap<TableId, Option<After>>,
    /// Tables' own, each once.
    pub own: Vec<Duration>,
}

impl Times {
    /// What a catalog says, by one of its tables' settings.
    pub fn of(catalog: Arc<Catalog>, setting: impl Fn(&TableSettings) -> Option<After>) -> Times {
        let of_table = |table: &Arc<TableDef>| (table.storage(), setting(&table.settings));
        let by_table: HashMap<TableId, Option<After>> = catalog.tables.values().map(of_table).collect();
        let mut own: Vec<Duration> =
            by_table.values().filter_map(|own| own.and_then(After::duration)).collect();
        own.sort_unstable();
        own.dedup();
        Times { catalog, by_table, own }
    }

    /// Whether that is what this catalog says.
    pub fn are_of(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    /// When it is done to a table's blocks; `None` for never. Of one that is only about to be made, or is gone, nothing
    /// is known.
    pub fn of_table(&self, table: TableId, of_others: Option<Duration>) -> Option<Duration> {
        self.by_table.get(&table)?.map_or(of_others, After::duration)
    }
}
