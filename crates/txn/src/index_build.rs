//! Building an index over the rows that a table holds.

use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_storage::{Index, IndexSpec, MemoryBudget, Table, pin};

/// The number of rows after which the build checks whether there is memory for the index.
const ROWS_BETWEEN_CHECKS: usize = 4096;

/// Builds an index over every row in place, on at most `threads` threads. Errors: 53200 if it outgrows `limit`, 23505 if it is
/// unique and two rows share a key.
pub(crate) fn build_index(
    table: &Table,
    spec: IndexSpec,
    threads: usize,
    limit: Option<&MemoryBudget>,
) -> Result<Arc<Index>> {
    let index = Index::new(spec);
    let guard = &pin();
    let mut load = index.load(table.budget(), threads, guard);
    let admit = || {
        let what_for = || format!("index \"{}\"", index.spec().name);
        limit.map_or(Ok(()), |limit| limit.admit(index.held_bytes(), what_for))
    };
    let mut rows = 0;
    table.keys_in_place(&index, |key, row| {
        rows += 1;
        if rows % ROWS_BETWEEN_CHECKS == 0 {
            admit()?;
        }
        load.add(key, row).map_err(|_| duplicate(&index))
    })?;
    load.finish().map_err(|_| duplicate(&index))?;
    // Many keys may have waited until now.
    admit()?;
    Ok(index)
}

/// 23505 for an index that could not be built because rows share a key.
pub(crate) fn duplicate(index: &Index) -> Error {
    let name = &index.spec().name;
    Error::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{name}\""))
        .with_detail("Some rows share a key.")
        .with_constraint(name)
}
