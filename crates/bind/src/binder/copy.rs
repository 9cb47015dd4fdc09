//! Scalars over the rows of COPY FROM: its condition, and values of other types as those of columns.
//!
//! Such a scalar stands by itself, outside of any plan: its columns are those of one relation.

use super::{Binder, Clause, ItemColumn, Operand, Table};
use crate::binder::attach::Pending;
use crate::catalog::{Attribute, Catalog, Relation};
use firn_base::{Representation, Result, SqlState, Type, TypeId};
use firn_plan::{Column, ColumnInfo, Columns, Scalar};
use firn_syntax::tree::Expr;
use std::sync::Arc;

/// A scalar over columns of one relation.
#[derive(Debug)]
pub struct RowScalar {
    /// The columns that it may use, and which attribute each is.
    pub inputs: Vec<(Column, i16)>,
    /// The columns.
    pub columns: Columns,
    /// What is computed.
    pub scalar: Scalar,
}

/// The condition of a COPY to a relation. Positions of errors are positions in `text`.
pub fn bind_copy_condition(
    text: &str,
    condition: &Expr,
    relation: &Arc<Relation>,
    catalog: &dyn Catalog,
) -> Result<RowScalar> {
    let mut binder = Binder::new(text, &[], catalog);
    binder.open();
    let mut inputs = Vec::with_capacity(relation.columns.len());
    let mut columns = Vec::with_capacity(relation.columns.len());
    for attribute in &relation.columns {
        let column = binder.new_column(ColumnInfo::new(attribute.ty, true).named(&*attribute.name));
        inputs.push((column, attribute.number));
        let name = (&*attribute.name).into();
        columns.push(ItemColumn { name, value: Scalar::Column(column), ty: attribute.ty });
    }
    binder.add_item(Table::of_relation(relation.clone(), None, columns, None));
    let mut scalar =
        binder.within(Clause::CopyWhere, |binder| binder.condition(condition, "COPY FROM WHERE"))?;
    if binder.pending.values().any(|pending| matches!(pending, Pending::Query(_))) {
        let message = "cannot use subquery in COPY FROM WHERE condition";
        return Err(binder.error(SqlState::FEATURE_NOT_SUPPORTED, message, condition.span.start));
    }
    binder.inline(&mut scalar);
    let used = |column: Column| {
        let mut found = false;
        scalar.for_each_column(&mut |other| found |= other == column);
        found
    };
    inputs.retain(|(column, _)| used(*column));
    Ok(RowScalar { inputs, columns: binder.plan.columns, scalar })
}

/// Values of some types as values of columns, as an INSERT assigns them. Attributes of their row are numbered from 1 on.
///
/// Formats with types of their own have none for every numeric and every array: such values may come as texts.
pub fn bind_assignments(values: &[(Type, &Attribute)], catalog: &dyn Catalog) -> Result<Vec<RowScalar>> {
    let assigned = |(place, (ty, attribute)): (usize, &(Type, &Attribute))| {
        let mut binder = Binder::new("", &[], catalog);
        // There is no text.
        binder.has_positions = false;
        binder.open();
        let column = binder.new_column(ColumnInfo::new(*ty, true).named(&*attribute.name));
        let mut operand = Operand { scalar: Scalar::Column(column), ty: *ty, at: 0 };
        let representation = attribute.ty.representation();
        if ty.id == TypeId::TEXT
            && matches!(representation, Some(Representation::Numeric | Representation::List(_)))
        {
            operand = binder.cast(operand, attribute.ty, 0)?;
        }
        let mut scalar = binder.assigned(operand, attribute)?.scalar;
        binder.inline(&mut scalar);
        let inputs = vec![(column, i16::try_from(place + 1).expect("a table has not so many columns"))];
        Ok(RowScalar { inputs, columns: binder.plan.columns, scalar })
    };
    values.iter().enumerate().map(assigned).collect()
}

impl Binder<'_> {
    /// Puts values that several places of a scalar share into each of them.
    pub(super) fn inline(&self, scalar: &mut Scalar) {
        if let Scalar::Column(column) = scalar {
            let column = self.aliases_of_pending.get(column).unwrap_or(column);
            if let Some(Pending::Value(value)) = self.pending.get(column) {
                let mut value = value.clone();
                self.inline(&mut value);
                *scalar = value;
            }
            return;
        }
        scalar.for_each_child_mut(|child| self.inline(child));
    }
}
