//! Expressions that the catalog keeps as text: CHECK conditions and defaults, bound for the tables that a statement writes to.

use crate::catalog::{Binding, quoted};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result, TableId, Type, stack};
use firn_bind::{Catalog, Relation, RowScalar, bind_assignments, bind_copy_condition};
use firn_executor::TargetSet;
use firn_executor::write::{CatalogExpressions, Load, RowExpression, StoredExpression};
use firn_plan::operator::SourceId;
use firn_plan::{Operator, Scalar};
use firn_storage::Table;
use firn_syntax::tree::Expr;
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

impl TransactionExpressions<'_> {
    /// A load of columns of a table. Positions in its condition are bytes of the text beside it.
    pub fn load(
        &self,
        table: &Arc<TableDef>,
        columns: Vec<ColumnId>,
        condition: Option<(&str, &Expr)>,
    ) -> Result<Load> {
        let named = [(SourceId(table.oid.0), table.clone())];
        let set = TargetSet::compile(self.transaction.catalog(), &named, self)?;
        let condition = match condition {
            Some((text, condition)) => {
                let relation = self.relation(table)?;
                let bound =
                    stack::with_room(|| bind_copy_condition(text, condition, &relation, self.binding))?;
                Some(stored(bound))
            }
            None => None,
        };
        Load::compile(set, columns, condition.as_ref(), self)
    }

    /// Values of these types as those of columns of a table, as INSERT assigns them: the first expression is over the first column
    /// of the values, and so on.
    pub fn assignments(
        &self,
        table: &Arc<TableDef>,
        columns: &[ColumnId],
        types: &[Type],
    ) -> Result<Vec<RowExpression>> {
        let relation = self.relation(table)?;
        let attribute = |column: &ColumnId| {
            let number = column.0 as i16 + 1;
            let found = relation.columns.iter().find(|attribute| attribute.number == number);
            found.expect("the relation has the table's columns")
        };
        let pairs: Vec<_> = types.iter().copied().zip(columns.iter().map(attribute)).collect();
        let bound = bind_assignments(&pairs, self.binding)?;
        let compiled = |scalar| RowExpression::compile(&stored(scalar), self.registry());
        bound.into_iter().map(compiled).collect()
    }

    /// A table as the binder sees it.
    fn relation(&self, table: &TableDef) -> Result<Arc<Relation>> {
        let schema = &self.transaction.catalog().schemas[&table.schema].name;
        let found = Catalog::relation(self.binding, Some(schema), &table.name)?;
        Ok(found.expect("the table is in its catalog"))
    }
}

fn stored(bound: RowScalar) -> StoredExpression {
    let RowScalar { inputs, columns, scalar } = bound;
    StoredExpression { inputs, columns, scalar }
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
