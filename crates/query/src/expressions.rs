//! Expressions that the catalog keeps as text: CHECK conditions, defaults and generated columns, bound for the tables that a statement writes to.

use crate::catalog::Binding;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, TableId, Type, stack};
use firn_bind::{
    BoundExpression, Catalog, Place, Relation, bind_assignments, bind_expression, bind_kept_expression,
};
use firn_executor::TargetSet;
use firn_executor::write::{CatalogExpressions, Load, RowExpression, StoredExpression};
use firn_plan::Scalar;
use firn_plan::operator::SourceId;
use firn_plan::rewrite::Evaluator;
use firn_plan::rewrite::fold::fold_alone;
use firn_plan::statistics::{Computed, Meaning};
use firn_storage::Table;
use firn_syntax::tree::Expr;
use firn_txn::Transaction;
use firn_txn::catalog::{IndexDef, TableDef};
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
        relation: Option<&Arc<Relation>>,
    ) -> Result<StoredExpression> {
        let expression = firn_syntax::parse_expression(text, firn_syntax::Options::default());
        let bound = expression
            .and_then(|expression| bind_kept_expression(text, &expression, place, relation, self.binding))
            .map_err(Error::without_position)?;
        Ok(stored(bound))
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
                let bind =
                    || bind_expression(text, condition, Place::CopyWhere, Some(&relation), self.binding);
                Some(stored(stack::with_room(bind)?))
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
        let found = self.binding.relation(Some(schema), &table.name)?;
        Ok(found.expect("a table that is written to is in the catalog"))
    }
}

impl TransactionExpressions<'_> {
    /// The columns that a table computes for its indexes, for the planner. Constants in their expressions are evaluated.
    pub fn computed(&self, table: &Arc<TableDef>, evaluator: &dyn Evaluator) -> Result<Vec<Computed>> {
        let mut computed = Vec::new();
        let hidden = (0..).zip(&table.columns).filter(|(_, definition)| definition.hidden);
        for (number, definition) in hidden {
            let leads = |index: &&IndexDef| index.columns.first().is_some_and(|first| first.column == number);
            let mut conditions =
                table.indexes.iter().filter(leads).filter_map(|index| index.condition.as_deref());
            let condition = conditions.next();
            let mut bound = match condition {
                None => self.generated(table, ColumnId(number))?,
                Some(text) => self.bind(text, Place::IndexPredicate, Some(&self.relation(table)?))?,
            };
            fold_alone(&mut bound.scalar, evaluator);
            computed.push(Computed {
                attribute: number as i16 + 1,
                ty: definition.ty.declared,
                name: definition.name.as_str().into(),
                inputs: bound.inputs,
                meaning: match (condition, bound.scalar) {
                    (None, value) => Meaning::Value(value),
                    (Some(_), Scalar::And(list)) => Meaning::Member(list),
                    (Some(_), one) => Meaning::Member(vec![one]),
                },
            });
        }
        Ok(computed)
    }
}

fn stored(bound: BoundExpression) -> StoredExpression {
    let BoundExpression { inputs, columns, scalar, .. } = bound;
    StoredExpression { inputs, columns, scalar }
}

impl CatalogExpressions for TransactionExpressions<'_> {
    fn registry(&self) -> &Registry {
        self.binding.registry()
    }

    fn check(&self, table: &Arc<TableDef>, condition: &str) -> Result<StoredExpression> {
        self.bind(condition, Place::Check, Some(&self.relation(table)?))
    }

    fn default(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let default = self.binding.default_of(table, column).unwrap_or_else(|| "NULL".to_owned());
        let place = Place::Default { column: &definition.name, ty: definition.ty.declared };
        self.bind(&default, place, None)
    }

    fn generated(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<StoredExpression> {
        let definition = &table.columns[column.index()];
        let text = definition.generated.as_deref().expect("the column is generated");
        let place = match definition.hidden {
            false => Place::Generated { column: &definition.name, ty: definition.ty.declared },
            true => Place::IndexExpression,
        };
        self.bind(text, place, Some(&self.relation(table)?))
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        self.transaction.table(id)
    }
}
