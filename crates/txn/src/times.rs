//! The intervals after which blocks are frozen and encoded: a copy of the tables' settings in the catalog, for the threads that
//! need them all the time.

use crate::catalog::{After, Catalog, TableDef, TableSettings};
use firn_base::TableId;
use firn_base::sync::Arc;
use std::collections::HashMap;
use std::time::Duration;

/// The intervals after which blocks of tables are frozen, or encoded.
pub(crate) struct Times {
    /// The catalog that they come from.
    catalog: Arc<Catalog>,
    /// Every table of the catalog; `None` if it has no interval of its own.
    by_table: HashMap<TableId, Option<After>>,
    /// The tables' own intervals, each once.
    pub own: Vec<Duration>,
}

impl Times {
    /// The intervals in a catalog, of one setting of its tables.
    pub fn of(catalog: Arc<Catalog>, setting: impl Fn(&TableSettings) -> Option<After>) -> Times {
        let of_table = |table: &Arc<TableDef>| (table.storage(), setting(&table.settings));
        let by_table: HashMap<TableId, Option<After>> = catalog.tables.values().map(of_table).collect();
        let mut own: Vec<Duration> =
            by_table.values().filter_map(|own| own.and_then(After::duration)).collect();
        own.sort_unstable();
        own.dedup();
        Times { catalog, by_table, own }
    }

    /// Whether they come from this catalog.
    pub fn are_of(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    /// The interval of a table; `None` for never, and for a table that the catalog does not have (yet, or any more).
    pub fn of_table(&self, table: TableId, of_others: Option<Duration>) -> Option<Duration> {
        self.by_table.get(&table)?.map_or(of_others, After::duration)
    }
}
