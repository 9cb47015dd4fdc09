//! Expressions that the catalog keeps as text: CHECK conditions and defaults, bound for the tables that a statement writes to.

use crate::catalog::{Binding, quoted};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result, TableId};
use firn_executor::write::{CatalogExpressions, StoredExpression};
use firn_plan::{Operator, Scalar};
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
    /// An expression over the columns of a table.
    fn bind(&self, table: &TableDef, expression: &str) -> Result<StoredExpression> {
        let schema = &self.transaction.catalog().schemas[&table.schema].name;
        let text = format!("SELECT ({expression}) FROM {}.{}", quoted(schema), quoted(&table.name));
        let mut parsed = firn_syntax::parse(&text, firn_syntax::Options::default())?;
        let statement = parsed.pop().expect("it is a statement").statement;
        let plan = firn_bind::bind(&text, &statement, &[], self.binding)?.plan;
        let mut stored = StoredExpression {
            inputs: Vec::new(),
            columns: plan.columns.clone(),
            scalar: Scalar::Column(plan.output[0]),
        };
        for node in plan.post_order() {
            match &plan[node] {
                Operator::Scan(scan) => stored.inputs = scan.columns.clone(),
                Operator::Map { outputs, .. } => {
                    if let Some((_, scalar)) = outputs.iter().find(|(column, _)| *column == plan.output[0]) {
                        stored.scalar = scalar.clone();
                    }
                }
                other => panic!("an expression over a table needs no {other:?}"),
            }
        }
        Ok(stored)
    }
}

impl CatalogExpressions for TransactionExpressions<'_> {
    fn registry(&self) -> &Registry {
        firn_bind::Catalog::registry(self.binding)
    }

    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<StoredExpression> {
        self.bind(table, condition)
    }

    fn default(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let default = self.binding.default_of(table, column).unwrap_or_else(|| "NULL".to_owned());
        self.bind(table, &format!("CAST({default} AS {})", definition.ty.declared))
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        self.transaction.table(id)
    }
}
