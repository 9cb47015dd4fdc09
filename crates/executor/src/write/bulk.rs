//! Rows that are inserted many at a time.
//!
//! Their columns go to the storage whole, and their unique keys wait to enter the indexes together: [`Writer::enter_keys`] enters them
//! at the latest. Of an error of a row and of a key that waits, the one of the earlier row is reported.
//!
//! A row is inserted alone where something looks at it by its id later: a deferrable key, and a reference that is tested at the end of
//! the statement or of the transaction.

use super::foreign_key;
use super::messages;
use super::rows::{RowVectors, stored};
use super::target::Target;
use super::writer::{Writer, key_values};
use crate::arrays::{array_of, vector_of};
use crate::values::{push, value};
use arrow_array::{Array, ArrayRef};
use firn_base::{ColumnId, Error, Result, SqlState};
use firn_txn::{Transaction, pin};
use firn_vector::builder::Builder;

impl Writer<'_> {
    /// How many threads may enter keys that wait.
    pub fn with_key_threads(mut self, threads: usize) -> Self {
        self.key_threads = threads;
        self
    }

    /// Whether rows of a table can be inserted together.
    pub(crate) fn inserts_together(&self, target: usize) -> bool {
        let table = self.set.target(target);
        // Columns say how many rows there are.
        table.width() > 0
            && !self.has_several_changes
            && table.late_keys.is_empty()
            && table.references.iter().all(|reference| {
                !reference.to_itself && !self.transaction.defers(reference.constraint, reference.deferral)
            })
    }

    /// Inserts rows that violate neither NOT NULL nor a CHECK, if they [can be](Writer::inserts_together) inserted together; all
    /// columns are known. The ordinal of an error is the place among `rows`.
    pub(crate) fn insert_together(
        &mut self,
        target: usize,
        columns: &RowVectors,
        rows: &[u16],
    ) -> Result<()> {
        let set = self.set;
        let table = set.target(target);
        let (mut until, mut failure) = (rows.len(), None);
        if !table.references.is_empty() {
            let missing = rows.iter().enumerate().find_map(|(place, row)| {
                Some((place, self.check_references(table, columns, usize::from(*row)).err()?))
            });
            if let Some((place, error)) = missing {
                (until, failure) = (place, Some(error.with_ordinal(place as u64)));
            }
        }
        if until > 0 {
            let length = columns.vector(ColumnId(0)).len();
            let array =
                |number: usize| column_of(table, columns, ColumnId(number as u16), &rows[..until], length);
            let arrays = (0..table.width()).map(array).collect::<Result<Vec<ArrayRef>>>()?;
            self.insert_arrays(target, &arrays)?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Inserts rows as the storage takes them, which violate nothing but perhaps unique keys.
    pub(super) fn insert_arrays(&mut self, target: usize, columns: &[ArrayRef]) -> Result<()> {
        let set = self.set;
        let table = set.target(target);
        self.inserted_together = Some(target);
        let inserted = self.transaction.insert_batch_waiting(&table.table, columns, self.key_threads);
        inserted.map_err(|error| match error.ordinal() {
            Some(row) => messages::explain_duplicate(error, table, |column| {
                let column_value = columns[column.index()].slice(row as usize, 1);
                value(vector_of(&column_value, table.stored(column)).datum(0), table.stored(column))
            }),
            None => self.explain_waiting(target, error),
        })
    }

    /// Enters the keys that wait into their indexes. 23505 of the first row whose key is taken, which [`Error::row`] names.
    pub fn enter_keys(&mut self) -> Result<()> {
        let Some(target) = self.inserted_together else { return Ok(()) };
        let set = self.set;
        let entered = self.transaction.enter_keys(&set.target(target).table, self.key_threads);
        entered.map_err(|error| self.explain_waiting(target, error))
    }

    /// Of an error that ends the statement and of those that are found as the keys enter that wait, the one of the row that came
    /// first: `comes_before` says of one of the latter whether it did.
    #[cold]
    pub fn first_error(
        &mut self,
        error: Error,
        comes_before: impl FnOnce(&Transaction, &Error, &Error) -> bool,
    ) -> Error {
        let state = error.state();
        if !["0A", "22", "23", "54"].contains(&&state.as_str()[..2]) {
            return error;
        }
        match self.enter_keys() {
            Err(waiting)
                if waiting.state() == SqlState::UNIQUE_VIOLATION
                    && comes_before(self.transaction, &waiting, &error) =>
            {
                waiting
            }
            _ => error,
        }
    }

    /// Adds to an error of a unique index which key it is, of a row that is stored already.
    #[cold]
    fn explain_waiting(&self, target: usize, error: Error) -> Error {
        let table = self.set.target(target);
        let Some(row) = error.row().filter(|_| error.state() == SqlState::UNIQUE_VIOLATION) else {
            return error;
        };
        let unique = table.unique.iter().find(|unique| error.constraint() == Some(unique.name.as_str()));
        let columns = unique.map_or(&[] as &[ColumnId], |unique| &unique.columns);
        let (found, _) = self.read(target, columns, 1, std::iter::once((0, row)));
        messages::explain_duplicate(error, table, |column| {
            value(found.vector(column).datum(0), table.general(column))
        })
    }

    /// Tests the foreign keys of a row that is to be inserted.
    fn check_references(&self, table: &Target, columns: &RowVectors, row: usize) -> Result<()> {
        if self.transaction.trusts_references() {
            return Ok(());
        }
        for reference in &table.references {
            // MATCH SIMPLE: a key with a NULL references nothing.
            if reference.columns.iter().any(|column| columns.vector(*column).is_null(row)) {
                continue;
            }
            let key = key_values(table, &reference.columns, &columns.row(row))?;
            foreign_key::check_reference(self.transaction, &table.definition, reference, &key, &pin())?;
        }
        Ok(())
    }
}

impl Target {
    /// Whether rows may be inserted without a look at any of them, but for NOT NULL and unique keys.
    pub(super) fn takes_arrays(&self) -> bool {
        let is_stored_alike = |column: &super::target::TargetColumn| column.general == column.stored;
        !self.columns.is_empty()
            && self.checks.is_empty()
            && !self.has_generated_columns()
            && self.references.is_empty()
            && self.late_keys.is_empty()
            && self.columns.iter().all(is_stored_alike)
    }
}

/// Rows of a column, as the storage takes them. 22003 if the column cannot hold a number.
fn column_of(
    table: &Target,
    columns: &RowVectors,
    column: ColumnId,
    rows: &[u16],
    length: usize,
) -> Result<ArrayRef> {
    let (vector, to) = (columns.vector(column), table.stored(column));
    if vector.representation() != to {
        let mut builder = Builder::new(to);
        for row in rows {
            let stored = stored(vector.datum(usize::from(*row)), to)?;
            push(&mut builder, &stored.cell().to_value(to), to);
        }
        return Ok(array_of(&builder.finish()));
    }
    Ok(match rows.len() == length {
        true => array_of(vector),
        false => array_of(&vector.take(rows.iter().map(|row| usize::from(*row)))),
    })
}
