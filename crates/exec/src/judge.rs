//! Conditions on one column of strings that no order tells, for scans to judge once for each value of a dictionary.
//!
//! `s LIKE '%x%'`, `lower(s) = 'x'` and `length(s) > 5` cost many times what a look-up of a code does. Where blocks
//! have codes, a scan evaluates such a condition for the values of the dictionary, and only rows whose codes are among
//! those that meet it are decoded. The condition itself stays above the scan: there are blocks without codes, and
//! dictionaries of more values than there are rows.
//!
//! A dictionary may have values that no row has, or none that other conditions leave. If one of them cannot be judged, for
//! example because something is divided by its length, nothing is judged by values, and rows are as ever.

use crate::reads;
use crate::types;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use firn_base::sync::Arc;
use firn_base::{ColumnId, SqlType};
use firn_storage::Judge;
use firn_txn::catalog::TableDef;

/// A condition on a column, ready to be evaluated.
#[derive(Clone, Debug)]
pub(crate) struct ColumnCondition {
    column: ColumnId,
    condition: Arc<dyn PhysicalExpr>,
    /// A column alone.
    schema: SchemaRef,
}

/// The conditions among some predicates that are worth being judged by values.
pub(crate) fn conditions(
    definition: &TableDef,
    predicates: &[Expr],
    state: &dyn Session,
) -> Vec<ColumnCondition> {
    let parts = predicates.iter().flat_map(split_conjunction);
    parts.filter_map(|part| condition(definition, part, state)).collect()
}

/// Whether a predicate is of use to a scan for that.
pub(crate) fn is_of_use(definition: &TableDef, predicate: &Expr) -> bool {
    split_conjunction(predicate).into_iter().any(|part| column(definition, part).is_some())
}

fn condition(definition: &TableDef, predicate: &Expr, state: &dyn Session) -> Option<ColumnCondition> {
    let (column, name, ty) = column(definition, predicate)?;
    let schema = Arc::new(Schema::new(vec![types::column_field(name, ty, true)]));
    // Whatever the table is called in the statement.
    let alone = |part: Expr| {
        Ok(match part {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::from_name(column.name))),
            part => Transformed::no(part),
        })
    };
    let predicate = predicate.clone().transform_up(alone).ok()?.data;
    let qualified = DFSchema::try_from(Arc::clone(&schema)).ok()?;
    let condition = state.create_physical_expr(predicate, &qualified).ok()?;
    Some(ColumnCondition { column, condition, schema })
}

/// The only column that a predicate is about, if that is one of strings, and it takes more to tell than to compare.
fn column<'d>(definition: &'d TableDef, predicate: &Expr) -> Option<(ColumnId, &'d str, SqlType)> {
    let mut found: Option<ColumnId> = None;
    let mut is_alone = true;
    let mut is_costly = false;
    let look = |part: &Expr| {
        match part {
            Expr::Column(column) => match definition.column(&column.name) {
                Some((id, _)) => is_alone &= *found.get_or_insert(id) == id,
                None => is_alone = false,
            },
            Expr::ScalarFunction(function) => {
                is_alone &= function.func.signature().volatility == Volatility::Immutable;
                is_costly = true;
            }
            Expr::Like(like) => is_costly |= !reads::is_prefix(like),
            Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                is_costly |= !matches!(
                    op,
                    Operator::And
                        | Operator::Or
                        | Operator::Eq
                        | Operator::NotEq
                        | Operator::Lt
                        | Operator::LtEq
                        | Operator::Gt
                        | Operator::GtEq
                );
            }
            Expr::Cast(_) | Expr::Case(_) | Expr::SimilarTo(_) => is_costly = true,
            Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::Not(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_) => {}
            _ => is_alone = false,
        }
        Ok(if is_alone { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    };
    predicate.apply(look).ok()?;
    let id = found.filter(|_| is_alone && is_costly)?;
    let column = &definition.columns[id.index()];
    let ty = column.ty.sql_type();
    (ty.is_string() || ty == SqlType::Bytea).then_some((id, &column.name, ty))
}

impl ColumnCondition {
    /// As a scan asks it.
    pub(crate) fn judge(&self) -> (ColumnId, Judge) {
        let own = self.clone();
        (self.column, Arc::new(move |values| own.met(values)))
    }

    /// Which of some values meet it; `None` if one cannot be told.
    fn met(&self, values: &ArrayRef) -> Option<BooleanBuffer> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::clone(values)]).ok()?;
        let answers = self.condition.evaluate(&batch).ok()?.into_array(values.len()).ok()?;
        let answers = answers.as_boolean_opt()?;
        Some(match answers.nulls() {
            Some(known) => answers.values() & known.inner(),
            None => answers.values().clone(),
        })
    }
}
