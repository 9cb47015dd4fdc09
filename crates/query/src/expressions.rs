//! Expressions that the catalog keeps as text: CHECK conditions and defaults, bound for the tables that a statement writes to.

use crate::catalog::Binding;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, TableId};
use firn_bind::{Catalog, Place, Relation, bind_expression};
use firn_executor::write::{CatalogExpressions, StoredExpression};
use firn_storage::Table;
use firn_txn::Transaction;
use firn_txn::catalog::TableDef;
use firn_vector::Registry;

/// Binds the expressions of a transaction's catalog.
pub struct TransactionExpressions<'a> {
    /// By what names are found.
    pub binding: &'a Binding<'a>,
    /// Whose catalog it is.
    pub transaction: &'a Transaction,
}

impl TransactionExpressions<'_> {
    /// An expression over the columns of a relation, if it sees any. No place in it is one of the statement.
    fn bind(
        &self,
        text: &str,
        place: Place<'_>,
        relation: Option<&std::sync::Arc<Relation>>,
    ) -> Result<StoredExpression> {
        let expression = firn_syntax::parse_expression(text, firn_syntax::Options::default());
        let bound = expression
            .and_then(|expression| bind_expression(text, &expression, place, relation, self.binding))
            .map_err(Error::without_position)?;
        Ok(StoredExpression { inputs: bound.inputs, columns: bound.columns, scalar: bound.scalar })
    }
}

impl CatalogExpressions for TransactionExpressions<'_> {
    fn registry(&self) -> &Registry {
        self.binding.registry()
    }

    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<StoredExpression> {
        let schema = &self.transaction.catalog().schemas[&table.schema].name;
        let relation = self.binding.relation(Some(schema), &table.name)?;
        let relation = relation.expect("a table that is written to is in the catalog");
        self.bind(condition, Place::Check, Some(&relation))
    }

    fn default(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let default = self.binding.default_of(table, column).unwrap_or_else(|| "NULL".to_owned());
        let place = Place::Default { column: &definition.name, ty: definition.ty.declared };
        self.bind(&default, place, None)
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        self.transaction.table(id)
    }
}
