//! The rows of a build side by some of their keys, for the rows with a NULL in the others.
//!
//! The mark of a correlated `NOT IN` is NULL for a row if the value on either side is NULL and the correlation holds. What the
//! correlation compares is never NULL, so a hash finds the rows for which it holds: among those with a NULL,
//! and, for a row of the other side with a NULL, among all. Without this each such row would be compared with all of the other side.

use crate::budget::Account;
use crate::columns::Table;
use crate::expression::Expression;
use crate::keys::{KeyIndex, KeyLayout, Keys};
use crate::pipeline::Work;
use crate::sinks::BuildShape;
use crate::template::Template;
use firn_base::Result;
use firn_base::sync::{Arc, Mutex};
use firn_vector::Chunk;

/// The keys of groups, over the columns that are kept of the build side.
pub struct GroupShape {
    /// The keys.
    pub keys: Template<Vec<Expression>>,
    /// How they are made.
    pub layout: KeyLayout,
}

/// Rows by their groups.
pub struct Groups {
    shape: Arc<BuildShape>,
    /// The rows with a NULL, by their numbers among these.
    nulls: KeyIndex,
    /// All rows, once one of the other side with a NULL has come.
    all: Mutex<Option<Arc<KeyIndex>>>,
    /// For what an index takes beyond [`INDEX_BYTES`] a row, as with strings.
    account: Mutex<Account>,
}

/// About what a row takes in an index of groups, with its key. The build side has it charged for two indexes.
pub(super) const INDEX_BYTES: usize = 24;

impl Groups {
    /// Groups the rows with a NULL. `None` if the join has no groups.
    pub fn new(
        work: Work<'_>,
        shape: &Arc<BuildShape>,
        table: &Table,
        null_rows: &[u32],
    ) -> Result<Option<Groups>> {
        let Some(group) = &shape.groups else { return Ok(None) };
        let nulls = group.index(work, table, null_rows.iter().copied())?;
        let account = Mutex::new(Account::new(&work.run.options.budget));
        let groups = Groups { shape: shape.clone(), nulls, all: Mutex::new(None), account };
        groups.charge(&groups.nulls, null_rows.len())?;
        Ok(Some(groups))
    }

    /// Charges an index of so many rows.
    fn charge(&self, index: &KeyIndex, rows: usize) -> Result<()> {
        self.account.lock().add(index.memory().saturating_sub(INDEX_BYTES * rows))
    }

    fn shape(&self) -> &GroupShape {
        self.shape.groups.as_ref().expect("the join has groups")
    }

    /// The keys of the rows of a chunk of the other side, by the expressions of that side.
    pub fn keys(&self, work: Work<'_>, keys: &mut [Expression], chunk: &Chunk) -> Result<Keys> {
        self.shape().chunk_keys(work, keys, chunk)
    }

    /// The rows with a NULL, by their numbers among these.
    pub fn nulls(&self) -> &KeyIndex {
        &self.nulls
    }

    /// All rows. One worker groups them, and others wait for it.
    pub fn all(&self, work: Work<'_>, table: &Table) -> Result<Arc<KeyIndex>> {
        let mut all = self.all.lock();
        if let Some(index) = &*all {
            return Ok(index.clone());
        }
        let index = Arc::new(self.shape().index(work, table, 0..table.rows() as u32)?);
        self.charge(&index, table.rows())?;
        Ok(all.insert(index).clone())
    }
}

impl GroupShape {
    fn chunk_keys(&self, work: Work<'_>, keys: &mut [Expression], chunk: &Chunk) -> Result<Keys> {
        let vectors =
            keys.iter_mut().map(|key| key.evaluate(&work.scope(), chunk)).collect::<Result<Vec<_>>>()?;
        Ok(self.layout.keys(&vectors, chunk.rows()))
    }

    fn index(&self, work: Work<'_>, table: &Table, rows: impl Iterator<Item = u32>) -> Result<KeyIndex> {
        let (mut expressions, mut keys) = (self.keys.copy(), self.layout.none());
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            work.context.check_cancel()?;
            let places: Vec<u32> = rows.by_ref().take(work.run.options.vector_rows).collect();
            let chunk = Chunk::new(places.len(), table.gather(0..table.vectors().len(), &places));
            keys.append(&self.chunk_keys(work, &mut expressions, &chunk)?);
        }
        KeyIndex::new(keys, &[], 1, &|| work.context.check_cancel())
    }
}
